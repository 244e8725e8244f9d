//! Which block may hold a key, and where in the block its value is.

use std::ops::Range;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, show_key};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_search::{SearchPart, find};
use crate::read::parts::filter::TableFilter;
use crate::read::parts::index::{Found, NotLoaded};
use crate::read::parts::{LAYERS, Missing, Parts};
use crate::read::source::stats::Counter;
use crate::read::store::Loaded;
use crate::read::table::opened::Opened;

impl Opened {
    /// The only data block to look for `key` in; `None` if filter and index exclude the key.
    #[inline(always)]
    pub(crate) fn candidate(&self, key: &[u8], order: &Order) -> Result<Option<Found<'_>>> {
        match self.candidate_in_memory(key, order) {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => Ok(None), // a separate arm, so that no block is moved, which takes 2 ns
            Err(NotLoaded) => self.read_candidate(key, order),
        }
    }

    /// The same, after reading the missing parts of filter and index.
    #[cold]
    #[inline(never)]
    fn read_candidate(&self, key: &[u8], order: &Order) -> Result<Option<Found<'_>>> {
        self.ask(|| self.ask_candidate(key, order, LAYERS))
    }

    /// Returns the result of [`candidate`](Opened::candidate), or the missing parts of filter and index: those of the first
    /// `layers` layers of a ribbon filter all at once.
    pub(crate) fn ask_candidate(
        &self,
        key: &[u8],
        order: &Order,
        layers: usize,
    ) -> Result<Option<Found<'_>>, Missing> {
        let found = self.candidate_in_memory(key, order);
        found.map_err(|NotLoaded| self.parts.missing_for(key, order, layers))
    }

    /// Returns the result of [`candidate`](Opened::candidate), using only the parts of filter and index in memory.
    ///
    /// If the previous key passed the filter, this one is expected to as well, and its block is prefetched before the filter is
    /// checked: the processor then waits for both at once. (It looks 200 to 500 instructions ahead, so it would not reach the block
    /// while it waits for the filter.) Otherwise the filter is checked first: absent keys often follow absent keys, and then need no
    /// search of the index, unless the filter depends on the block.
    #[inline(always)] // a call would take a tenth of the instructions of an absent key
    pub(crate) fn candidate_in_memory(
        &self,
        key: &[u8],
        order: &Order,
    ) -> Result<Option<Found<'_>>, NotLoaded> {
        let Opened { parts, store, .. } = self;
        let is_expected = store.file.counters.passed_last();
        let find = || parts.index.seek(key, order, is_expected);
        let Some(filter) = &parts.filter else {
            return find();
        };
        let is_per_window = filter.is_per_window()?;
        let filter_key = order.filter_key(key);
        if !is_expected && !is_per_window {
            let passes = filter.ask(filter_key, 0)?;
            let found = if passes { find()? } else { None };
            self.note_passed(passes);
            return Ok(found);
        }
        let found = find();
        if let (true, Ok(Some(found))) = (is_expected, found) {
            store.prefetch(found);
        }
        if is_per_window {
            return self.ask_window(filter, found?, key, order);
        }
        let passes = filter.ask(filter_key, 0)?;
        let found = if passes { found? } else { None };
        self.note_passed(passes);
        Ok(found)
    }

    /// The data block that the index has found for `key`, unless the filter of its window rejects the key.
    #[inline(always)]
    fn ask_window<'t>(
        &'t self,
        filter: &TableFilter,
        found: Option<Found<'t>>,
        key: &[u8],
        order: &Order,
    ) -> Result<Option<Found<'t>>, NotLoaded> {
        let Some(block) = found else {
            return Ok(None);
        };
        let passes = filter.ask(order.filter_key(key), block.offset())?
            || matches!(order, Order::Custom(_))
                && self.parts.may_be_in_next(filter, block, key, order);
        self.note_passed(passes);
        Ok(if passes { found } else { None })
    }

    /// Returns the result of [`candidate_in_memory`](Opened::candidate_in_memory) for each of `keys`. A window's filter takes three steps,
    /// index, bounds and filter: the memory of each step is prefetched for all keys before any waits for it.
    pub(crate) fn candidates_in_memory<'t>(
        &'t self,
        keys: &[&[u8]],
        order: &Order,
    ) -> Vec<Result<Option<Found<'t>>, NotLoaded>> {
        let Parts { index, filter, .. } = &self.parts;
        keys.iter().for_each(|key| index.prefetch(key, order));
        let filter = filter.as_ref();
        let Some((filter, windows)) = filter.and_then(|it| Some((it, it.windows()?))) else {
            let keys = keys.iter();
            return keys
                .map(|key| self.candidate_in_memory(key, order))
                .collect();
        };
        let sought = keys.iter().map(|key| index.seek(key, order, true));
        let found: Vec<_> = sought.collect();
        let offsets = found.iter().filter_map(|found| Some(found.ok()??.offset()));
        offsets.clone().for_each(|at| windows.prefetch_bounds(at));
        offsets.for_each(|at| windows.prefetch_filter(at));
        let found = keys.iter().zip(&found);
        let asked = found.map(|(key, found)| self.ask_window(filter, (*found)?, key, order));
        asked.collect()
    }

    /// Counts whether the filter passed a key.
    #[inline]
    fn note_passed(&self, passes: bool) {
        let file = &self.store.file;
        let counters = &file.counters;
        counters.add_answer(passes, Counter::FilterPassed, Counter::FilterRejected);
        counters.set_passed_last(passes);
    }

    /// Checks that a key to look for has the form of the table's keys.
    #[inline(always)]
    pub(crate) fn check_form(&self, key: &[u8], order: &Order) -> Result<()> {
        match order {
            Order::Custom(_) if order.is_foreign(key) => Err(self.not_internal(key)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn not_internal(&self, key: &[u8]) -> Error {
        let message = format!("{} is not an internal key", show_key(key));
        let error = Error::new(ErrorKind::InvalidState, message);
        let error = error.with_hint("use DbTable to look up user keys");
        self.store.file.with_path(error)
    }
}

/// The range of the value of `key` in the bytes of a data block.
#[inline(always)] // as `Index::seek`
pub(crate) fn find_value(
    (bytes, block): Loaded<'_>,
    key: &[u8],
    order: &Order,
    part: SearchPart,
) -> Result<Option<Range<usize>>, Defect> {
    let (start, block) = (block.start, bytes.get(block).unwrap_or_default());
    let value = find(&Block::parse(block)?, key, order, part)?;
    Ok(value.map(|value| start + value.start..start + value.end))
}
