//! An input of a merge: the entries of a table, or of sorted memory, within bounds.

use std::ops::Bound;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, Result, Section, show_key};
use crate::format::Defect;
use crate::format::internal_key::{user_key, user_order};
use crate::read::cursor::{Cursor, lost};
use crate::read::merge::Way;
use crate::read::range::{Bounds, TableRange, exclude_all};
use crate::read::sorted::{Sorted, SortedCursor};
use crate::read::table::Table;

/// The entries of a source within bounds, for a merge to walk.
///
/// Reads no block before it must: where a table's properties name its first or last key, the input can stand there unread, and
/// the key is checked when the merge gets to it.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    source: Source,
    bounds: Bounds,
    at: At,
    /// Its place among the inputs that the caller gave.
    pub(super) number: usize,
    /// Whether to use what the properties say of the first and the last key. A table that is walked alone is read as it is.
    pub(super) uses_properties: bool,
    /// Whether nothing was left of the range.
    is_empty: bool,
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
    /// On the first entry of a merge that goes forward, or the last of one that goes back. Properties tell its key.
    Unread(Way),
    /// On none: past the last entry in a merge that goes forward, before the first in one that goes back.
    Off,
}

impl Input {
    /// The entries of a table within bounds.
    pub(crate) fn of_table(table: &Table, bounds: Bounds) -> Input {
        Input::new(table.cursor(), bounds)
    }

    /// Entries in memory within bounds.
    pub(crate) fn of_memory(sorted: Sorted, bounds: Bounds) -> Input {
        Input::of(Source::Memory(SortedCursor::new(sorted)), bounds)
    }

    /// What is left of `range`.
    pub(super) fn of_range(range: TableRange) -> Result<Input> {
        let (cursor, bounds) = range.into_parts()?;
        let is_empty = bounds.is_none();
        let bounds = bounds.unwrap_or((Bound::Unbounded, Bound::Unbounded));
        let input = Input::new(cursor, bounds);
        Ok(Input { is_empty, ..input })
    }

    fn new(cursor: Cursor, bounds: Bounds) -> Input {
        Input::of(Source::Table(cursor), bounds)
    }

    fn of(source: Source, bounds: Bounds) -> Input {
        Input {
            source,
            bounds,
            at: At::Off,
            number: 0,
            uses_properties: false,
            is_empty: false,
            is_limited: false,
        }
    }

    /// Leaves the entries.
    pub(super) fn leave(&mut self) {
        self.at = At::Off;
    }

    pub(super) fn order(&self) -> Result<&Order> {
        match &self.source {
            Source::Table(cursor) => cursor.table.order(),
            Source::Memory(cursor) => Ok(cursor.sorted.order()),
        }
    }

    /// Whether filter or properties tell, without reading, that no entry lies within the bounds.
    pub(super) fn is_ruled_out(&self) -> Result<bool> {
        let (lower, upper) = &self.bounds;
        if self.is_empty || exclude_all(self.order()?, lower, upper) {
            return Ok(true);
        }
        let Source::Table(cursor) = &self.source else {
            return Ok(false);
        };
        if let (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) = (lower, upper)
            && cursor.table.excludes_versions(lower, upper)?
        {
            return Ok(true);
        }
        for (end, bound) in [(Way::Forward, Way::Back), (Way::Back, Way::Forward)] {
            if let Some(key) = self.stated_key(end)
                && !self.is_within(key, bound)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first key that a walk along `way` comes to, if the table's properties name it.
    #[inline(never)]
    fn stated_key(&self, way: Way) -> Option<&[u8]> {
        let Source::Table(cursor) = &self.source else {
            return None;
        };
        let properties = cursor.table.properties().filter(|_| self.uses_properties)?;
        match way {
            Way::Forward => properties.first_key.as_deref(),
            Way::Back => properties.last_key.as_deref(),
        }
    }

    /// Whether `key` is within the bound from which a walk along `way` starts: the lower one of a walk forward.
    #[inline]
    fn is_within(&self, key: &[u8], way: Way) -> Result<bool> {
        let (bound, before) = match way {
            Way::Forward => (&self.bounds.0, std::cmp::Ordering::Less),
            Way::Back => (&self.bounds.1, std::cmp::Ordering::Greater),
        };
        Ok(match bound {
            Bound::Unbounded => true,
            Bound::Included(limit) => self.order()?.compare(key, limit) != before,
            Bound::Excluded(limit) => self.order()?.compare(key, limit) == before.reverse(),
        })
    }

    /// The current key; `None` if the input is on no entry.
    #[inline(always)]
    pub(super) fn key(&self) -> Option<&[u8]> {
        match self.at {
            At::Entry => Some(self.read_key()),
            At::Off => None,
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
            Source::Memory(cursor) => cursor.value_slice(),
        }
    }

    /// The value of an entry that was read, as a slice of its block.
    pub(super) fn value_bytes(&self) -> Bytes {
        match &self.source {
            Source::Table(cursor) => cursor.value_bytes(),
            Source::Memory(cursor) => cursor.value(),
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
            At::Off => Ok(false),
        }
    }

    #[cold]
    fn read_stated(&mut self, way: Way) -> Result<bool> {
        let moved = self.seek_source(None, way)?;
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
        if let Source::Table(cursor) = &mut self.source
            && !self.is_limited
        {
            cursor.read_within(&self.bounds.0, &self.bounds.1)?;
            self.is_limited = true;
        }
        Ok(())
    }

    /// Moves the source to the first entry of a walk along `way`, which starts at a bound of the input, or at the end of the
    /// source.
    fn seek_source(&mut self, bounds: Option<&Bounds>, way: Way) -> Result<bool> {
        self.limit()?;
        let unbounded = &Bound::Unbounded;
        let lower = bounds.map_or(unbounded, |bounds| &bounds.0);
        let upper = bounds.map_or(unbounded, |bounds| &bounds.1);
        match (&mut self.source, way) {
            (Source::Table(cursor), Way::Forward) => cursor.seek_lower(lower),
            (Source::Table(cursor), Way::Back) => cursor.seek_upper(upper),
            (Source::Memory(cursor), Way::Forward) => {
                Ok(cursor.seek(lower.as_ref().map(|key| &key[..]), way))
            }
            (Source::Memory(cursor), Way::Back) => {
                Ok(cursor.seek(upper.as_ref().map(|key| &key[..]), way))
            }
        }
    }

    /// Moves to the first entry of a walk along `way`.
    pub(super) fn seek_to_end(&mut self, way: Way) -> Result<bool> {
        if let Some(key) = self.stated_key(way)
            && self.is_within(key, way)?
        {
            self.at = At::Unread(way);
            return Ok(true);
        }
        let bounds = self.bounds.clone();
        let moved = self.seek_source(Some(&bounds), way)?;
        self.arrive(moved, way)
    }

    /// Moves to the first entry at or after `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.at = At::Off;
        let order = self.order()?;
        if let Some(last) = self.stated_key(Way::Back)
            && order.compare(key, last).is_gt()
        {
            return Ok(false);
        }
        let is_first = match self.stated_key(Way::Forward) {
            Some(first) => order.compare(key, first).is_le(),
            None => false,
        };
        if is_first || !self.is_within(key, Way::Forward)? {
            return self.seek_to_end(Way::Forward);
        }
        if !self.is_within(key, Way::Back)? {
            return Ok(false);
        }
        self.limit()?;
        let found = match &mut self.source {
            Source::Table(cursor) => cursor.seek(key)?,
            Source::Memory(cursor) => cursor.seek(Bound::Included(key), Way::Forward),
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
            (Source::Table(cursor), Way::Forward, (_, Bound::Unbounded)) => cursor.step_plainly(),
            (Source::Table(cursor), Way::Back, (Bound::Unbounded, _)) => cursor.step_back_plainly(),
            _ => false,
        }
    }

    #[inline(never)]
    fn step_within(&mut self, way: Way) -> Result<bool> {
        let moved = match (&mut self.source, way) {
            (Source::Table(cursor), Way::Forward) => cursor.next()?,
            (Source::Table(cursor), Way::Back) => cursor.prev()?,
            (Source::Memory(cursor), way) => cursor.step(way),
        };
        self.arrive(moved, way)
    }

    /// Moves to the first entry on the other way, which is `way` from now on.
    pub(super) fn turn(&mut self, way: Way) -> Result<bool> {
        match self.at {
            At::Entry => self.step(way),
            At::Off => self.seek_to_end(way),
            At::Unread(_) => {
                self.at = At::Off;
                Ok(false)
            }
        }
    }

    /// Notes where a move of the source along `way` has got to.
    fn arrive(&mut self, moved: bool, way: Way) -> Result<bool> {
        let is_on_entry = moved && self.is_within(self.read_key(), way.reverse())?;
        self.at = if is_on_entry { At::Entry } else { At::Off };
        Ok(is_on_entry)
    }

    /// The error of a defect in the current entry.
    #[cold]
    pub(super) fn locate(&self, defect: Defect) -> Error {
        match &self.source {
            Source::Table(cursor) if cursor.is_valid() => cursor.locate(defect),
            Source::Table(cursor) => cursor.table.file().locate(defect, Section::Data, 0),
            Source::Memory(_) => lost(),
        }
    }

    /// Names the file in `error`, if there is one.
    #[cold]
    pub(super) fn name_in(&self, error: Error) -> Error {
        match &self.source {
            Source::Table(cursor) => cursor.table.file().name_in(error),
            Source::Memory(_) => error,
        }
    }
}

impl Table {
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
