//! The entries of a table, or of sorted memory, within bounds: what a range takes, and an input of a merge.

use std::ops::Bound;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, Result, show_key};
use crate::format::Defect;
use crate::format::internal_key::{user_key, user_order};
use crate::read::bounds::{Bounds, Way, exclude_all, is_past_start, start};
use crate::read::cursor::{Cursor, lost};
use crate::read::sorted::{Sorted, SortedCursor};
use crate::read::table::Table;

/// A cursor over the entries of a source within bounds.
///
/// In a merge, it reads no block before it must: where a table's properties name its first or last key, it can stand there unread,
/// and the key is checked when the merge gets to it.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    source: Source,
    pub(super) bounds: Bounds,
    at: At,
    /// Its place among the inputs of a merge. Of a table that is walked alone, what the properties say of the first and the last
    /// key is not used: it is read as it is.
    pub(super) number: Option<usize>,
    /// Whether it is known to have no entries.
    pub(super) is_empty: bool,
    /// Whether a table was told to read no blocks outside the bounds.
    is_limited: bool,
}

#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all inputs are tables, of which a box would cost each step a load"
)]
enum Source {
    Table(Cursor),
    Memory(SortedCursor),
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// On the source's entry.
    Entry,
    /// On the first entry of a walk along this way. Properties tell its key.
    Unread(Way),
    /// On none: where a walk along this way ends.
    End(Way),
}

impl Input {
    /// The entries of a table within bounds.
    pub(crate) fn of_table(table: &Table, bounds: Bounds) -> Input {
        Input::new(Source::Table(table.cursor()), bounds)
    }

    /// Entries in memory within bounds.
    pub(crate) fn of_memory(sorted: Sorted, bounds: Bounds) -> Input {
        Input::new(Source::Memory(SortedCursor::new(sorted)), bounds)
    }

    fn new(source: Source, bounds: Bounds) -> Input {
        let mut input = Input {
            source,
            bounds,
            at: At::End(Way::Back),
            number: None,
            is_empty: false,
            is_limited: false,
        };
        // If the order is not known, the first move with a bound is an error.
        let order = input.order();
        input.is_empty = order.is_ok_and(|order| exclude_all(order, &input.bounds));
        input
    }

    /// Notes that there are no entries if `is_excluded` says so, unless that is known.
    pub(crate) fn rule_out(&mut self, is_excluded: impl FnOnce() -> Result<bool>) -> Result<()> {
        self.is_empty = self.is_empty || is_excluded()?;
        Ok(())
    }

    /// Leaves out entries outside `bounds`, which lie within those of before.
    pub(super) fn narrow(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.is_limited = false; // the table is still limited to the wider bounds
    }

    /// Goes back to before the first entry.
    pub(super) fn leave(&mut self) {
        self.at = At::End(Way::Back);
    }

    pub(super) fn table(&self) -> Option<&Table> {
        match &self.source {
            Source::Table(cursor) => Some(&cursor.table),
            Source::Memory(_) => None,
        }
    }

    pub(super) fn order(&self) -> Result<&Order> {
        match &self.source {
            Source::Table(cursor) => cursor.table.order(),
            Source::Memory(cursor) => Ok(cursor.sorted.order()),
        }
    }

    /// Whether filter or properties tell, without reading, that no entry lies within the bounds.
    pub(super) fn is_ruled_out(&self) -> Result<bool> {
        if self.is_empty {
            return Ok(true);
        }
        if let (
            Some(table),
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) = (self.table(), &self.bounds.0, &self.bounds.1)
            && table.excludes_versions(lower, upper)?
        {
            return Ok(true);
        }
        for way in [Way::Forward, Way::Back] {
            if let Some(first) = self.stated_key(way)
                && !self.is_past(first, way.reverse())?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first key that a walk along `way` comes to, if the table's properties name it.
    #[inline(never)]
    fn stated_key(&self, way: Way) -> Option<&[u8]> {
        self.table()?
            .stated_key(way)
            .filter(|_| self.number.is_some())
    }

    /// Whether `key` is within the bound at which a walk along `way` starts.
    #[inline]
    fn is_past(&self, key: &[u8], way: Way) -> Result<bool> {
        is_past_start(&self.bounds, way, key, || self.order())
    }

    /// The current key; `None` if the input is on no entry.
    #[inline(always)]
    pub(super) fn key(&self) -> Option<&[u8]> {
        match self.at {
            At::Entry => Some(self.read_key()),
            At::End(_) => None,
            At::Unread(way) => self.stated_key(way),
        }
    }

    /// The key of the entry that the source is on.
    #[inline(always)]
    pub(super) fn read_key(&self) -> &[u8] {
        match &self.source {
            Source::Table(cursor) => cursor.key(),
            Source::Memory(cursor) => cursor.key(),
        }
    }

    /// The value of an entry that was read.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        match &self.source {
            Source::Table(cursor) => cursor.value(),
            Source::Memory(cursor) => cursor.value(),
        }
    }

    /// The value of an entry that was read, as a slice of its block.
    #[inline]
    pub(super) fn value_bytes(&self) -> Bytes {
        match &self.source {
            Source::Table(cursor) => cursor.value_bytes(),
            Source::Memory(cursor) => cursor.value_bytes(),
        }
    }

    /// Whether the input is on an entry that was read.
    #[inline(always)]
    pub(super) fn is_read(&self) -> bool {
        matches!(self.at, At::Entry)
    }

    /// Reads the current entry if it is still unread. Returns whether there is one.
    pub(super) fn read(&mut self) -> Result<bool> {
        match self.at {
            At::Entry => Ok(true),
            At::Unread(way) => self.read_stated(way),
            At::End(_) => Ok(false),
        }
    }

    #[cold]
    fn read_stated(&mut self, way: Way) -> Result<bool> {
        let moved = self.seek_source(way)?;
        let (found, stated) = (self.read_key(), self.stated_key(way).unwrap_or(&[]));
        if !moved || found != stated {
            let which = if way == Way::Forward { "first" } else { "last" };
            let stated = show_key(stated);
            let expected = format!("the table's {which} key to be {stated}, as its properties say");
            return Err(self.locate(Defect::new(expected, show_key(found))));
        }
        self.at = At::Entry;
        Ok(true)
    }

    /// Tells a table, before its first block is read, to read none outside the bounds.
    fn limit(&mut self) -> Result<()> {
        if let (Source::Table(cursor), false) = (&mut self.source, self.is_limited) {
            cursor.limit(&self.bounds)?;
            self.is_limited = true;
        }
        Ok(())
    }

    /// Moves the source to the first entry of a walk along `way` that starts at a bound of the input.
    fn seek_source(&mut self, way: Way) -> Result<bool> {
        self.limit()?;
        let bound = start(&self.bounds, way);
        match &mut self.source {
            Source::Table(cursor) => cursor.seek_from(bound, way),
            Source::Memory(cursor) => Ok(cursor.seek_from(bound, way)),
        }
    }

    /// Moves to the first entry at or after `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.at = At::End(Way::Forward);
        let order = self.order()?;
        // The first key is at or after `key`.
        let first = self.stated_key(Way::Forward);
        if first.is_some_and(|first| order.compare(key, first).is_le())
            || !self.is_past(key, Way::Forward)?
        {
            return self.seek_to_start(Way::Forward);
        }
        let last = self.stated_key(Way::Back);
        if last.is_some_and(|last| order.compare(key, last).is_gt())
            || !self.is_past(key, Way::Back)?
        {
            return Ok(false);
        }
        self.limit()?;
        let found = match &mut self.source {
            Source::Table(cursor) => cursor.seek(key)?,
            Source::Memory(cursor) => cursor.seek_from(Bound::Included(key), Way::Forward),
        };
        self.arrive(found, Way::Forward)
    }

    /// Moves from an entry that was read to the next one on the way.
    #[inline(always)]
    pub(super) fn step(&mut self, way: Way) -> Result<bool> {
        if self.step_plainly(way) {
            return Ok(true);
        }
        self.step_within(way)
    }

    /// Moves from an entry of a table to the next one on the way if that is an ordinary entry of the same block, and there is no
    /// bound to check. Otherwise stays and returns `false`.
    #[inline(always)]
    pub(super) fn step_plainly(&mut self, way: Way) -> bool {
        match (&mut self.source, way, &self.bounds) {
            (Source::Table(cursor), Way::Forward, (_, Bound::Unbounded))
            | (Source::Table(cursor), Way::Back, (Bound::Unbounded, _)) => cursor.step_plainly(way),
            _ => false,
        }
    }

    #[inline(never)]
    fn step_within(&mut self, way: Way) -> Result<bool> {
        let moved = match &mut self.source {
            Source::Table(cursor) => cursor.step_plainly(way) || cursor.go_slowly(way)?,
            Source::Memory(cursor) => cursor.go(way),
        };
        self.arrive(moved, way)
    }

    /// Notes where a move of the source along `way` has got to.
    fn arrive(&mut self, moved: bool, way: Way) -> Result<bool> {
        let is_on_entry = moved && self.is_past(self.read_key(), way.reverse())?;
        self.at = if is_on_entry { At::Entry } else { At::End(way) };
        Ok(is_on_entry)
    }

    /// Moves to the next entry on the way: from where a walk the other way ends to the first.
    pub(super) fn go(&mut self, way: Way) -> Result<bool> {
        match self.at {
            At::Entry => self.step(way),
            At::End(end) if end != way => self.seek_to_start(way),
            // What is the first entry of one way is the last of the other.
            At::Unread(_) | At::End(_) => {
                self.at = At::End(way);
                Ok(false)
            }
        }
    }

    /// Moves to the first entry of a walk along `way`.
    pub(super) fn seek_to_start(&mut self, way: Way) -> Result<bool> {
        self.at = At::End(way);
        if self.is_empty {
            return Ok(false);
        }
        if let Some(key) = self.stated_key(way)
            && self.is_past(key, way)?
        {
            self.at = At::Unread(way);
            return Ok(true);
        }
        let moved = self.seek_source(way)?;
        self.arrive(moved, way)
    }

    /// The error of a defect in the current entry.
    #[cold]
    pub(super) fn locate(&self, defect: Defect) -> Error {
        match &self.source {
            Source::Table(cursor) => cursor.locate(defect),
            Source::Memory(_) => lost(),
        }
    }
}

impl Table {
    /// The first key that a walk along `way` comes to, if the properties name it.
    pub(crate) fn stated_key(&self, way: Way) -> Option<&[u8]> {
        let properties = self.properties()?;
        match way {
            Way::Forward => properties.first_key.as_deref(),
            Way::Back => properties.last_key.as_deref(),
        }
    }

    /// Whether filter and index know that the table has no key from `lower` to `upper`, which are the same key or have the
    /// same user key. Filters know nothing of other ranges.
    pub(crate) fn excludes_versions(&self, lower: &[u8], upper: &[u8]) -> Result<bool> {
        let (inner, order) = (&*self.inner, self.order()?);
        let is_one_key =
            lower == upper || user_order(order).is_some() && user_key(lower) == user_key(upper);
        if !is_one_key {
            return Ok(false);
        }
        if inner.filter_rejects(lower, order, None)? {
            return Ok(true);
        }
        let Some(first) = self.seek(lower)? else {
            return Ok(true);
        };
        let last = self.seek(upper)?;
        let last = last.map_or(inner.index.len(), |last| last.block + 1);
        for i in first.block..last {
            if !inner.filter_rejects(lower, order, Some(inner.block(i)?))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
