//! Index and filters, in parts that are loaded when they are first needed: which data block may hold a key.
//!
//! This module does not read. A question is answered, or the missing parts are named; the caller has them read and
//! [admitted](Parts::admit), and asks again.

pub(crate) mod bounds;
pub(crate) mod filter;
pub(crate) mod index;
mod index_entries;
pub(crate) mod state;

use std::ops::{Bound, Range};

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{self, Error, ErrorKind, Section};
use crate::filter::prefix_of_all;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_check::{check_entries, check_keys};
use crate::read::parts::bounds::{Bounds, Direction, key_of};
use crate::read::parts::filter::{FilterContents, TableFilter};
use crate::read::parts::index::{BlockRef, Found, Index, NotLoaded};
use crate::read::parts::state::BlockState;

/// A part of the file that is not data and not needed to open the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// A piece of the index, by its number.
    Index(usize),
    /// A piece of the filter; piece 0 if it is read whole.
    Filter(usize),
    /// A piece of the filter of prefixes.
    Prefixes(usize),
}

/// A kind of parts, and how many a table has of it.
pub(crate) type Kind = (fn(usize) -> Part, usize);

/// The parts that are missing to answer a question.
pub(crate) type Missing = Vec<Part>;

/// Number of layers of a ribbon filter whose pieces a lookup reads at once.
pub(crate) const LAYERS: usize = 1;

/// The index and the filters of a table, as far as they are loaded.
pub(crate) struct Parts {
    /// `None` in a table that is only walked because its order is not known.
    pub(crate) order: Option<Order>,
    pub(crate) index: Index,
    /// The filter of keys that is in use.
    pub(crate) filter: Option<TableFilter>,
    /// The filter of prefixes that is in use.
    pub(crate) prefixes: Option<TableFilter>,
}

/// Questions.
impl Parts {
    /// The order of the keys; an error if it is not known.
    #[inline]
    pub(crate) fn order(&self) -> error::Result<&Order> {
        self.order.as_ref().ok_or_else(order_unknown)
    }

    /// The data block that a search of the [index](Index::seek) finds for `key`.
    #[inline]
    pub(crate) fn seek(
        &self,
        key: &[u8],
        order: &Order,
        is_wanted: bool,
    ) -> Result<Option<Found<'_>>, Missing> {
        let found = self.index.seek(key, order, is_wanted);
        found.map_err(|NotLoaded| self.missing_of_index(key, order))
    }

    /// Data block `i`, one of `0..index.len()`.
    pub(crate) fn block(&self, i: usize) -> Result<BlockRef, Missing> {
        let found = self.index.block(i);
        found.map_err(|NotLoaded| self.index_parts(i..i + 1))
    }

    /// The data blocks that may have entries within bounds; the `order` is only used if a bound is a key.
    pub(crate) fn blocks_within(
        &self,
        (lower, upper): &Bounds,
        order: Option<&Order>,
    ) -> Result<Range<usize>, Missing> {
        let block_at = |bound| {
            let sought = key_of(bound).zip(order);
            sought.map_or(Ok(None), |(key, order)| self.seek(key, order, false))
        };
        let (first, last) = match (block_at(lower), block_at(upper)) {
            (Ok(first), Ok(last)) => (first, last),
            (first, last) => {
                let missing = [first.err(), last.err()].into_iter().flatten();
                return Err(missing.flatten().collect());
            }
        };
        let all = self.index.len();
        let start = match (lower, first) {
            (Bound::Excluded(key), Some(found))
                if key == found.key() && found.state().has(BlockState::CHECKED) =>
            {
                // The block ends at or before the key, as was checked when it was read.
                found.block() + 1
            }
            (_, Some(found)) => found.block(),
            (Bound::Unbounded, None) => 0,
            (_, None) => all,
        };
        let end = last.map_or(all, |last| last.block() + 1);
        Ok(start..end.max(start))
    }

    /// The prefix of all keys within these bounds, to be looked up in the filter of prefixes, if both exist.
    pub(crate) fn prefix_to_ask<'k>(&self, (lower, upper): &'k Bounds) -> Option<&'k [u8]> {
        let FilterContents::Prefixes(extractor) = &self.prefixes.as_ref()?.of else {
            return None;
        };
        let [lower, upper] = [lower, upper].map(|bound| bound.as_ref().map(Vec::as_slice));
        prefix_of_all(&**extractor, lower, upper)
    }

    /// Whether the filter of prefixes passes `prefix`. If parts of a ribbon filter are missing, those of its first
    /// `layers` layers are all named.
    pub(crate) fn passes_prefix(&self, prefix: &[u8], layers: usize) -> Result<bool, Missing> {
        let Some(filter) = &self.prefixes else {
            return Ok(true);
        };
        filter.ask(prefix, 0).map_err(|NotLoaded| {
            let needed = filter.needed(prefix, layers).into_iter();
            needed.map(Part::Prefixes).collect()
        })
    }

    /// Whether the versions of the user key of `key`, which the filter of this block's window rejects, may begin in the next block: this
    /// block's index key has the same user key, and the next block's filter passes it.
    pub(crate) fn may_be_in_next(
        &self,
        filter: &TableFilter,
        found: Found<'_>,
        key: &[u8],
        order: &Order,
    ) -> bool {
        let (next, key) = (found.block() + 1, order.filter_key(key));
        let passes = |next: BlockRef| filter.ask(key, next.handle.offset);
        order.filter_key(found.key()) == key
            && next < self.index.len()
            && self.index.block(next).and_then(passes) != Ok(false)
    }
}

/// The parts that a question needs. Some may be loaded already.
impl Parts {
    /// The parts that a lookup of `key` needs next and that are not loaded. It may need more once these are loaded. If parts of
    /// a ribbon filter are missing, those of its first `layers` layers are all named.
    pub(crate) fn missing_for(&self, key: &[u8], order: &Order, layers: usize) -> Missing {
        let mut parts = Vec::new();
        if let Some(filter) = &self.filter {
            let key = order.filter_key(key);
            let is_per_window = filter.is_per_window();
            match is_per_window.and_then(|it_is| Ok(it_is || filter.ask(key, 0)?)) {
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

    /// The piece of the index in which to look for `key`, if it is not loaded.
    fn missing_of_index(&self, key: &[u8], order: &Order) -> Missing {
        let p = self.index.seek_piece(key, order);
        let part = p.map(Part::Index).filter(|&part| !self.has(part));
        part.into_iter().collect()
    }

    /// The pieces of the index that name `blocks`.
    pub(crate) fn index_parts(&self, blocks: Range<usize>) -> Vec<Part> {
        let last = blocks.end.saturating_sub(1).max(blocks.start);
        let pieces = self.index.piece_of(blocks.start)..=self.index.piece_of(last);
        pieces.map(Part::Index).collect()
    }

    /// How many parts of each kind the table has.
    pub(crate) fn kinds(&self) -> [Kind; 3] {
        let pieces = |filter: &Option<_>| filter.as_ref().map_or(0, TableFilter::pieces);
        [
            (Part::Index, self.index.pieces()),
            (Part::Filter, pieces(&self.filter)),
            (Part::Prefixes, pieces(&self.prefixes)),
        ]
    }

    /// All parts that the table has.
    pub(crate) fn all(&self) -> Vec<Part> {
        let kinds = self.kinds().into_iter();
        kinds.flat_map(|(part, len)| (0..len).map(part)).collect()
    }

    /// The pieces of the index that a walk reads at once when it reaches data block `i`: the one that names it and those that name
    /// its next blocks, within `limits`, in all at most `most` bytes of the file.
    pub(crate) fn pieces_of_walk(
        &self,
        i: usize,
        limits: &Range<usize>,
        direction: Option<Direction>,
        most: u64,
    ) -> Vec<Part> {
        let here = self.index.piece_of(i);
        let last = limits.end.min(self.index.len()).saturating_sub(1).max(i);
        let end = direction.map_or(i, |direction| direction.pick(last, limits.start.min(i)));
        let end = self.index.piece_of(end);
        let (mut parts, mut len) = (Vec::new(), 0);
        for n in 0..=here.abs_diff(end) {
            let p = if end < here { here - n } else { here + n };
            let range = self.range(Part::Index(p));
            len += range.end - range.start;
            if self.index.has(p) || n > 0 && len > most {
                break;
            }
            parts.push(Part::Index(p));
        }
        parts
    }
}

/// Admitting parts.
impl Parts {
    /// The filter that this is a piece of, and the number of the piece.
    fn filter_of(&self, part: Part) -> Option<(&TableFilter, usize)> {
        match part {
            Part::Filter(i) => Some((self.filter.as_ref()?, i)),
            Part::Prefixes(i) => Some((self.prefixes.as_ref()?, i)),
            Part::Index(_) => None,
        }
    }

    /// Whether a part is loaded.
    fn has(&self, part: Part) -> bool {
        match part {
            Part::Index(p) => self.index.has(p),
            part => self.filter_of(part).is_none_or(|(filter, i)| filter.has(i)),
        }
    }

    /// Where a part lies in the file; an empty range if it was read at opening.
    pub(crate) fn range(&self, part: Part) -> Range<u64> {
        let divided = self.index.divided.as_ref();
        let range = match part {
            Part::Index(p) => divided.map(|pieces| pieces.range(p)),
            part => self.filter_of(part).map(|(filter, i)| filter.range(i)),
        };
        range.unwrap_or_default()
    }

    /// The section of the file that a part belongs to.
    pub(crate) fn section(part: Part) -> Section {
        match part {
            Part::Index(_) => Section::Index,
            Part::Filter(_) | Part::Prefixes(_) => Section::Filter,
        }
    }

    /// Checks a part and keeps it; `bytes` are those at its [range](Parts::range). Returns the bytes of memory that it takes, apart from
    /// what lies in a `file` in memory: 0 if it was loaded already.
    pub(crate) fn admit(
        &self,
        part: Part,
        bytes: &Bytes,
        file: Option<&Bytes>,
    ) -> Result<usize, Defect> {
        if let Part::Index(p) = part {
            let is_new = self.index.admit(p, bytes, self.order.as_ref())?;
            return Ok(if is_new {
                self.index.weight_of(p, file)
            } else {
                0
            });
        }
        let Some((filter, i)) = self.filter_of(part) else {
            return Ok(0);
        };
        let is_new = filter.admit(i, bytes, self.index.last_block_offset())?;
        Ok(if is_new { filter.weight_of(i, file) } else { 0 })
    }

    /// The `parts` that are not loaded, with their ranges, ascending and without duplicates.
    pub(crate) fn unread(&self, parts: Vec<Part>) -> Vec<(Range<u64>, Part)> {
        let unread = parts.into_iter().filter(|&part| !self.has(part));
        let mut unread: Vec<_> = unread.map(|part| (self.range(part), part)).collect();
        unread.sort_unstable_by_key(|(range, part)| (range.start, range.end, *part));
        // Many keys need the same parts.
        unread.dedup();
        unread
    }

    /// Bytes of memory that they take, apart from what lies in a `file` in memory.
    pub(crate) fn weight(&self, file: Option<&Bytes>) -> usize {
        let filters = self.filter.iter().chain(&self.prefixes);
        let filters = filters.map(|filter| filter.weight(file));
        self.index.weight(file) + filters.sum::<usize>()
    }
}

/// Checking data blocks, and learning from them.
impl Parts {
    /// Checks a data block that was read: its structure, and, unless this was checked before, that its keys ascend and lie between its
    /// index keys.
    pub(crate) fn check_block(&self, found: BlockRef, block: &Block<Bytes>) -> Result<(), Defect> {
        let state = self.index.state(found);
        if state.has(BlockState::CHECKED) {
            return block.check_restarts();
        }
        match &self.order {
            None => check_entries(block)?,
            Some(order) => check_keys(block, order, |first, last| {
                self.index.check_ends(found, first, last, order)
            })?,
        }
        state.set(BlockState::CHECKED);
        Ok(())
    }

    /// Learns the fences of a checked data block.
    pub(crate) fn learn(&self, found: BlockRef, block: &Block<Bytes>) {
        if let Some(Order::Bytewise) = self.order {
            self.index.learn(found, block);
        }
    }
}

#[cold]
fn order_unknown() -> Error {
    Error::new(
        ErrorKind::Comparator,
        "this table was opened in its stored order, which can only be walked: to look keys up, open it with the \
         comparator that it was written with",
    )
}
