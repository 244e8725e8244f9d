//! Parts of a file that a table needs besides data blocks: pieces of its index, and its filters. They are read when they are first
//! needed, checked, and kept as long as the table is open.

use std::ops::{Bound, Range};
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::filter::RibbonFilterPolicy;
use crate::read::bounds::Way;
use crate::read::filter::PrefixFilter;
use crate::read::index::{BlockRef, NotLoaded};
use crate::read::store::MAX_READ_LEN;
use crate::read::table::Inner;

/// Part of a file that is neither data nor needed to open the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// This piece of the filter; piece 0 of one that is read whole.
    Filter(usize),
    /// This piece of the filter of prefixes.
    Prefixes(usize),
    /// This piece of the index.
    Index(usize),
    /// What shows where this piece of the index begins; of the first one, how many entries the index has.
    Anchor(usize),
}

/// Of so many layers of a ribbon filter, a lookup reads the pieces that a key may need at once.
pub(super) const LAYERS: usize = 1;

impl Inner {
    /// What a lookup of `key` needs that is not there yet. More may be needed when this is there. Of a ribbon filter, the first
    /// `layers` layers are asked for at once.
    pub(super) fn missing_for(&self, key: &[u8], order: &Order, layers: usize) -> Vec<Part> {
        let mut parts = Vec::new();
        if let Some(filter) = &self.filter {
            if filter.passes_table(order.filter_key(key)) == Ok(Some(false)) {
                return parts;
            }
            let hash = RibbonFilterPolicy::hash(order.filter_key(key));
            let missing = filter.block.missing_for(hash, layers);
            parts.extend(missing.into_iter().map(Part::Filter));
        }
        let last = self.index.pieces().checked_sub(1);
        let p = self.index.seek_piece(key, order);
        // Past the last key, the last block is looked at once.
        let p = p.or_else(|| last.filter(|_| !self.last_block_checked()));
        parts.extend(p.filter(|&p| !self.index.has(p)).map(Part::Index));
        parts
    }

    /// The pieces of the index that name the first and the last data block within bounds, and the anchor of the first, as far as they
    /// are not there.
    pub(super) fn missing_for_bounds(
        &self,
        lower: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
    ) -> Result<Vec<Part>> {
        let piece_at = |bound: &Bound<Vec<u8>>| -> Result<Option<usize>> {
            match bound {
                Bound::Included(key) | Bound::Excluded(key) => {
                    Ok(self.index.seek_piece(key, self.order()?))
                }
                Bound::Unbounded => Ok(None),
            }
        };
        let (first, last) = (piece_at(lower)?, piece_at(upper)?);
        let pieces = first.into_iter().chain(last.filter(|_| first != last));
        let missing = pieces.filter(|&p| !self.index.has(p)).map(Part::Index);
        let anchors = first.map(|first| self.missing_anchors(first));
        Ok(missing.chain(anchors.into_iter().flatten()).collect())
    }

    /// What must be read before an answer may rely on what piece `p` of the index does not hold: nothing if it is known where the
    /// piece begins.
    pub(super) fn missing_anchors(&self, p: usize) -> Vec<Part> {
        if self.index.is_placed(p) {
            return Vec::new();
        }
        let anchors = [0, p].into_iter().filter(|&p| !self.index.is_anchored(p));
        anchors.map(Part::Anchor).collect()
    }

    /// What must be read before answers may rely on what `blocks`, which were searched, do not hold.
    pub(super) fn missing_places(&self, blocks: impl Iterator<Item = BlockRef>) -> Vec<Part> {
        blocks
            .flat_map(|found| self.missing_anchors(found.piece as usize))
            .collect()
    }

    /// Makes sure that the piece of the index that a data block was found in begins where it says, before an answer relies on what
    /// it does not hold.
    #[inline]
    pub(super) fn check_place(&self, found: BlockRef) -> Result<()> {
        let p = found.piece as usize;
        if self.index.is_placed(p) {
            return Ok(());
        }
        self.bring(self.missing_anchors(p))
    }

    /// What the filter of prefixes needs for `prefix` and that is not there yet.
    pub(super) fn missing_for_prefix(&self, prefix: &[u8], layers: usize) -> Vec<Part> {
        let hash = RibbonFilterPolicy::hash(prefix);
        let missing = |filter: &PrefixFilter| filter.block.missing_for(hash, layers);
        let missing = self.prefixes.as_ref().map_or(Vec::new(), missing);
        missing.into_iter().map(Part::Prefixes).collect()
    }

    /// The pieces of filters that are not there.
    pub(super) fn missing_filters(&self) -> Vec<Part> {
        let of_keys = self
            .filter
            .as_ref()
            .map_or(Vec::new(), |filter| filter.block.missing());
        let of_prefixes = self
            .prefixes
            .as_ref()
            .map_or(Vec::new(), |filter| filter.block.missing());
        let of_keys = of_keys.into_iter().map(Part::Filter);
        of_keys
            .chain(of_prefixes.into_iter().map(Part::Prefixes))
            .collect()
    }

    /// All parts that the table has and that are not there.
    pub(super) fn missing_parts(&self) -> Vec<Part> {
        let mut parts = self.missing_pieces(0..self.index.len());
        parts.extend(self.missing_filters());
        parts
    }

    /// The pieces of the index that are not there and that name some of `blocks`.
    pub(super) fn missing_pieces(&self, blocks: Range<usize>) -> Vec<Part> {
        if blocks.is_empty() {
            return Vec::new();
        }
        let pieces = self.index.piece_of(blocks.start)..self.index.piece_of(blocks.end - 1) + 1;
        let missing = pieces.filter(|&p| !self.index.has(p));
        missing.map(Part::Index).collect()
    }

    /// Where in the file a part lies; `None` if it was read at opening, and is only to be checked.
    pub(super) fn part_range(&self, part: Part) -> Option<Range<u64>> {
        match part {
            Part::Filter(i) => Some(self.filter.as_ref()?.block.range(i)),
            Part::Prefixes(i) => Some(self.prefixes.as_ref()?.block.range(i)),
            Part::Index(p) => self.index.range(p),
            Part::Anchor(p) => self.index.anchor(p),
        }
    }

    /// Checks a part and keeps it; `bytes` are those at its [range](Inner::part_range).
    pub(super) fn admit_part(&self, part: Part, bytes: &Bytes) -> Result<()> {
        let (kept, section) = match (part, &self.filter, &self.prefixes) {
            (Part::Filter(i), Some(filter), _) => {
                let last_block = self.last_block_offset()?;
                (filter.admit(i, bytes, last_block), Section::Filter)
            }
            (Part::Prefixes(i), _, Some(filter)) => (filter.admit(i, bytes), Section::Filter),
            (Part::Filter(_) | Part::Prefixes(_), _, _) => return Ok(()),
            (Part::Index(p), _, _) => (
                self.index.admit(p, bytes, self.order.as_ref()),
                Section::Index,
            ),
            (Part::Anchor(p), _, _) => {
                let kept = self.index.admit_anchor(p, bytes).map(|()| 0);
                (kept, Section::Index)
            }
        };
        let weight = kept.map_err(|defect| {
            let range = self.part_range(part);
            let offset = range.map_or(self.index.offset(), |range| range.start);
            self.file.locate(defect, section, offset)
        })?;
        self.weight.fetch_add(weight, Relaxed);
        Ok(())
    }

    /// An offset at or after that of the last data block; `None` in an empty table. Not what an index entry says that was not checked:
    /// a filter that covers too little would hide keys.
    fn last_block_offset(&self) -> Result<Option<u64>> {
        let Some(last) = self.index.len().checked_sub(1) else {
            return Ok(None);
        };
        if self.index.range(self.index.piece_of(last)).is_none() {
            // It is in memory.
            self.admit_part(Part::Index(self.index.piece_of(last)), &Bytes::new())?;
        }
        let exact = self.index.block(last).map(|last| last.handle.offset);
        Ok(Some(exact.unwrap_or(self.index.data_bound())))
    }

    /// Where those of `parts` lie that are to be read, in ascending order, each once. The others were read at opening, and are checked
    /// and kept.
    pub(super) fn unread(&self, mut parts: Vec<Part>) -> Result<Vec<(Range<u64>, Part)>> {
        // Many keys need the same ones.
        parts.sort_unstable();
        parts.dedup();
        let mut unread = Vec::with_capacity(parts.len());
        for part in parts {
            match self.part_range(part) {
                Some(range) => unread.push((range, part)),
                None => self.admit_part(part, &Bytes::new())?,
            }
        }
        unread.sort_unstable_by_key(|(range, _)| (range.start, range.end));
        Ok(unread)
    }

    /// Reads parts, those that lie beside each other together and all at once, and keeps them.
    pub(super) fn bring(&self, parts: Vec<Part>) -> Result<()> {
        let unread = self.unread(parts)?;
        let ranges: Vec<Range<u64>> = unread.iter().map(|(range, _)| range.clone()).collect();
        let stretches = self.file.read_together(&ranges, MAX_READ_LEN);
        for (range, part) in unread {
            let read = stretches.iter().find_map(|stretch| stretch.get(&range));
            let bytes = match read {
                // Of what is read together, a part is most: a slice wastes little, but of a large group it would keep all.
                Some(bytes) if stretches.len() == ranges.len() => bytes,
                Some(bytes) => Bytes::copy_from_slice(&bytes),
                // What could not be read with other parts is read alone: an error is that of one part.
                None => self.file.read_range(&range)?,
            };
            self.admit_part(part, &bytes)?;
        }
        Ok(())
    }

    /// What `ask` answers; where it needs parts that are not there, these are read first, the `missing` ones.
    #[inline]
    pub(super) fn ask<T>(
        &self,
        ask: impl Fn() -> Result<T, NotLoaded>,
        missing: impl Fn() -> Vec<Part>,
    ) -> Result<T> {
        match ask() {
            Ok(answer) => Ok(answer),
            Err(NotLoaded) => self.ask_again(ask, missing),
        }
    }

    /// May take several reads: a key may be in any layer of a ribbon filter.
    #[cold]
    #[inline(never)]
    fn ask_again<T>(
        &self,
        ask: impl Fn() -> Result<T, NotLoaded>,
        missing: impl Fn() -> Vec<Part>,
    ) -> Result<T> {
        /// As many as a ribbon has layers.
        const MAX_READS: usize = 256;
        for _ in 0..MAX_READS {
            // Nothing is missing if another thread has just read it.
            self.bring(missing())?;
            if let Ok(answer) = ask() {
                return Ok(answer);
            }
        }
        Err(Error::new(
            ErrorKind::InvalidState,
            "index or filter lack a part that was read",
        ))
    }

    /// Data block `i`, one of `0..index.len()`.
    #[inline]
    pub(super) fn block(&self, i: usize) -> Result<BlockRef> {
        let missing = || vec![Part::Index(self.index.piece_of(i))];
        self.ask(|| self.index.block(i), missing)
    }

    /// The pieces of the index that a walk reads at once when it comes to data block `i`: the one that names it and, on the walk's
    /// way, those that name its next blocks, of `limits`, in all at most `most` bytes of the file. None if the piece is there.
    pub(super) fn pieces_of_walk(
        &self,
        i: usize,
        limits: &Range<usize>,
        way: Option<Way>,
        most: u64,
    ) -> Vec<Part> {
        let here = self.index.piece_of(i);
        let mut len = 0;
        let is_due = |&p: &usize| {
            let range = self.part_range(Part::Index(p));
            len += range.map_or(most, |range| range.end - range.start);
            !self.index.has(p) && (p == here || len <= most)
        };
        let pieces: Vec<usize> = match way {
            None => (here..here + 1).take_while(is_due).collect(),
            Some(Way::Forward) => {
                let last = limits.end.min(self.index.len()).saturating_sub(1).max(i);
                (here..self.index.piece_of(last) + 1)
                    .take_while(is_due)
                    .collect()
            }
            Some(Way::Back) => {
                let first = self.index.piece_of(limits.start.min(i));
                (first..here + 1).rev().take_while(is_due).collect()
            }
        };
        let first = pieces.iter().min().map(|&p| self.missing_anchors(p));
        let pieces = pieces.into_iter().map(Part::Index);
        pieces.chain(first.into_iter().flatten()).collect()
    }

    /// The one data block that can hold `key`, by the index, in a piece whose place was checked; `None` past the last index key.
    pub(super) fn seek(&self, key: &[u8], order: &Order) -> Result<Option<BlockRef>> {
        let found = self.seek_one(key, order)?;
        if let Some(found) = found {
            self.check_place(found)?;
        }
        Ok(found)
    }

    /// The one data block that can hold `key`, by the index; `None` past the last index key. That the block does not hold it tells
    /// that the table does not once the block's [place was checked](Inner::check_place).
    #[inline]
    pub(super) fn seek_one(&self, key: &[u8], order: &Order) -> Result<Option<BlockRef>> {
        let missing = || {
            let p = self.index.seek_piece(key, order);
            p.map(Part::Index).into_iter().collect()
        };
        self.ask(|| self.index.seek(key, order), missing)
    }
}
