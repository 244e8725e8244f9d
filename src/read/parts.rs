//! Parts of index and filters that are not there yet: which ones a key needs, reading them, and keeping them.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::read::bounds::{Bounds, Way, key_of};
use crate::read::filter::TableFilter;
use crate::read::index::{BlockRef, Found, NotLoaded};
use crate::read::table::Inner;

/// Part of a file that is neither data nor needed to open the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// This piece of the index.
    Index(usize),
    /// This piece of the filter; piece 0 of one that is read whole.
    Filter(usize),
    /// This piece of the filter of prefixes.
    Prefixes(usize),
}

/// Of so many layers of a ribbon filter, a lookup reads the pieces that a key may need at once.
pub(super) const LAYERS: usize = 1;

/// Which parts are needed. Those that are there already are left out, or [not read again](Inner::unread).
impl Inner {
    /// What a lookup of `key` needs that is not there yet. More may be needed when this is there. Of a ribbon filter, the first
    /// `layers` layers are asked for at once.
    pub(super) fn missing_for(&self, key: &[u8], order: &Order, layers: usize) -> Vec<Part> {
        let mut parts = Vec::new();
        if let Some(filter) = &self.filter {
            let key = order.filter_key(key);
            let is_of_windows = filter.is_of_windows();
            match is_of_windows.and_then(|it_is| Ok(it_is || filter.ask(key, 0)?)) {
                Ok(false) => return parts,
                Ok(_) => {}
                Err(NotLoaded) => {
                    parts.extend(filter.needed(key, layers).into_iter().map(Part::Filter))
                }
            }
        }
        parts.extend(self.missing_of_index(key, order));
        parts
    }

    /// The piece of the index that tells where to look for `key`, if it is not there yet.
    pub(super) fn missing_of_index(&self, key: &[u8], order: &Order) -> Vec<Part> {
        let p = self.index.seek_piece(key, order);
        let part = p.map(Part::Index).filter(|&part| !self.has(part));
        part.into_iter().collect()
    }

    /// What the filter of prefixes needs for `prefix` that is not there yet.
    pub(super) fn missing_for_prefix(&self, prefix: &[u8], layers: usize) -> Vec<Part> {
        let filter = self.prefixes.iter();
        let needed = filter.flat_map(|filter| filter.needed(prefix, layers));
        let needed = needed.map(Part::Prefixes);
        needed.filter(|&part| !self.has(part)).collect()
    }

    /// The pieces of the index that name the first and the last data block within bounds.
    pub(super) fn missing_for_bounds(&self, (lower, upper): &Bounds) -> Result<Vec<Part>> {
        let piece_at = |bound| match key_of(bound) {
            Some(key) => self.order().map(|order| self.index.seek_piece(key, order)),
            None => Ok(None),
        };
        let (first, last) = (piece_at(lower)?, piece_at(upper)?);
        Ok(first.into_iter().chain(last).map(Part::Index).collect())
    }

    /// The pieces of the index that name `blocks`.
    pub(super) fn index_parts(&self, blocks: Range<usize>) -> Vec<Part> {
        let last = blocks.end.saturating_sub(1).max(blocks.start);
        let pieces = self.index.piece_of(blocks.start)..=self.index.piece_of(last);
        pieces.map(Part::Index).collect()
    }

    /// All pieces of filters.
    pub(super) fn filter_parts(&self) -> Vec<Part> {
        let pieces = |filter: &Option<_>| 0..filter.as_ref().map_or(0, TableFilter::pieces);
        let of_keys = pieces(&self.filter).map(Part::Filter);
        let of_prefixes = pieces(&self.prefixes).map(Part::Prefixes);
        of_keys.chain(of_prefixes).collect()
    }

    /// All parts that the table has.
    pub(super) fn parts(&self) -> Vec<Part> {
        let mut parts = self.index_parts(0..self.index.len());
        parts.extend(self.filter_parts());
        parts
    }

    /// The pieces of the index that a walk reads at once when it comes to data block `i`: the one that names it and, on the walk's
    /// way, those that name its next blocks, of `limits`, in all at most `most` bytes of the file.
    pub(super) fn pieces_of_walk(
        &self,
        i: usize,
        limits: &Range<usize>,
        way: Option<Way>,
        most: u64,
    ) -> Vec<Part> {
        let here = self.index.piece_of(i);
        let last = limits.end.min(self.index.len()).saturating_sub(1).max(i);
        let end = way.map_or(i, |way| way.pick(last, limits.start.min(i)));
        let end = self.index.piece_of(end);
        let (mut parts, mut len) = (Vec::new(), 0);
        for n in 0..=here.abs_diff(end) {
            let p = if end < here { here - n } else { here + n };
            let range = self.part_range(Part::Index(p));
            len += range.end - range.start;
            if self.index.has(p) || n > 0 && len > most {
                break;
            }
            parts.push(Part::Index(p));
        }
        parts
    }
}

/// Reading parts, and keeping them.
impl Inner {
    /// The filter that this is a piece of, and which one.
    fn filter_of(&self, part: Part) -> Option<(&TableFilter, usize)> {
        match part {
            Part::Filter(i) => Some((self.filter.as_ref()?, i)),
            Part::Prefixes(i) => Some((self.prefixes.as_ref()?, i)),
            Part::Index(_) => None,
        }
    }

    /// Whether a part is there.
    pub(super) fn has(&self, part: Part) -> bool {
        match part {
            Part::Index(p) => self.index.has(p),
            part => self.filter_of(part).is_none_or(|(filter, i)| filter.has(i)),
        }
    }

    /// Where in the file a part lies; nowhere if it was read at opening.
    pub(super) fn part_range(&self, part: Part) -> Range<u64> {
        let divided = self.index.divided.as_ref();
        let range = match part {
            Part::Index(p) => divided.map(|pieces| pieces.range(p)),
            part => self.filter_of(part).map(|(filter, i)| filter.range(i)),
        };
        range.unwrap_or_default()
    }

    /// Checks a part and keeps it; `bytes` are those at its [range](Inner::part_range).
    pub(super) fn admit_part(&self, part: Part, bytes: &Bytes) -> Result<()> {
        let (kept, section) = match part {
            Part::Index(p) => {
                let kept = self.index.admit(p, bytes, self.order.as_ref());
                (kept, Section::Index)
            }
            part => {
                let last_block = self.index.last_block_offset();
                let filter = self.filter_of(part);
                let kept = filter.map(|(filter, i)| filter.admit(i, bytes, last_block));
                (kept.unwrap_or(Ok(())), Section::Filter)
            }
        };
        self.weight.forget();
        kept.map_err(|defect| {
            let offset = self.part_range(part).start;
            self.file.locate(defect, section, offset)
        })
    }

    /// Those of `parts` that are not there, with where they lie, in ascending order, each once.
    pub(super) fn unread(&self, parts: Vec<Part>) -> Vec<(Range<u64>, Part)> {
        let unread = parts.into_iter().filter(|&part| !self.has(part));
        let mut unread: Vec<_> = unread.map(|part| (self.part_range(part), part)).collect();
        unread.sort_unstable_by_key(|(range, part)| (range.start, range.end, *part));
        // Many keys need the same ones.
        unread.dedup();
        unread
    }

    /// Reads those of `parts` that are not there, all at once, those less than a page apart together, and keeps them.
    #[cold]
    pub(super) fn bring(&self, parts: Vec<Part>) -> Result<()> {
        let (ranges, parts): (Vec<_>, Vec<_>) = self.unread(parts).into_iter().unzip();
        let mut result = Ok(());
        self.file.read_each(&ranges, &mut |i, bytes| {
            if let (Ok(()), Some(&part)) = (&result, parts.get(i)) {
                result = bytes.and_then(|bytes| self.admit_part(part, &bytes));
            }
        });
        result
    }

    /// Returns the answer of `ask`, which answers or names the parts that are missing to tell: those are read, and it is asked again. May
    /// take several reads, since a key may be in any layer of a ribbon filter.
    #[inline]
    pub(super) fn ask<T>(&self, mut ask: impl FnMut() -> Result<T, Vec<Part>>) -> Result<T> {
        /// As many as a ribbon has layers.
        const MAX_READS: usize = 256;
        for _ in 0..=MAX_READS {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(missing) => self.bring(missing)?,
            }
        }
        let message = "index or filter lack a part that was read";
        Err(Error::new(ErrorKind::InvalidState, message))
    }

    /// The data block that a search of the [index](crate::read::index::Index::seek) finds for `key`.
    #[inline]
    pub(super) fn seek(
        &self,
        key: &[u8],
        order: &Order,
        is_wanted: bool,
    ) -> Result<Option<Found<'_>>> {
        let seek = || self.index.seek(key, order, is_wanted);
        self.ask(|| seek().map_err(|NotLoaded| self.missing_of_index(key, order)))
    }

    /// Data block `i`, one of `0..index.len()`.
    pub(crate) fn block(&self, i: usize) -> Result<BlockRef> {
        self.ask(|| {
            self.index
                .block(i)
                .map_err(|NotLoaded| self.index_parts(i..i + 1))
        })
    }
}
