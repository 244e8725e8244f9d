//! A table's cursor that keeps within bounds: an input of a merge.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::db::key::{user_key, user_order};
use crate::error::{Result, Section, show_key};
use crate::format::Defect;
use crate::read::cursor::Cursor;
use crate::read::range::{Range, exclude_all};
use crate::read::ranking::Way;
use crate::read::table::Table;

/// The entries of a table within bounds, for a merge to walk.
///
/// It reads no block before it must. Where the table's properties tell its first or last key, the input can stand there
/// unread; the key is checked when the merge gets to it.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) cursor: Cursor,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    at: At,
    /// Its place among the inputs that the caller gave.
    pub(super) number: usize,
    /// Whether to use what the properties say of the first and the last key. A table that is walked alone is read as it is.
    uses_properties: bool,
    /// Whether nothing was left of the range.
    is_empty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// On the cursor's entry.
    Entry,
    /// On the first entry, whose key the properties tell. The cursor is anywhere.
    UnreadFirst,
    /// The same on the last entry.
    UnreadLast,
    /// Before the first entry. The cursor is anywhere.
    Before,
    /// Before the first entry. The cursor is on the entry before it.
    JustBefore,
    /// After the last entry. The cursor is anywhere.
    After,
    /// After the last entry. The cursor is on the entry after it.
    JustAfter,
}

impl Input {
    /// Input number `number`: what is left of `range`.
    pub(super) fn new(range: Range, number: usize) -> Result<Input> {
        let (mut cursor, bounds) = range.into_parts()?;
        let is_empty = bounds.is_none();
        let (lower, upper) = bounds.unwrap_or((Bound::Unbounded, Bound::Unbounded));
        cursor.read_within(&lower, &upper);
        Ok(Input {
            cursor,
            lower,
            upper,
            at: At::Before,
            number,
            uses_properties: true,
            is_empty,
        })
    }

    /// An input that is alone.
    pub(super) fn alone(table: &Table, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> Input {
        let mut cursor = table.cursor();
        cursor.read_within(&lower, &upper);
        Input {
            cursor,
            lower,
            upper,
            at: At::Before,
            number: 0,
            uses_properties: false,
            is_empty: false,
        }
    }

    /// The same among other inputs, before its first entry.
    pub(super) fn renumbered(mut self, number: usize) -> Input {
        self.number = number;
        self.uses_properties = true;
        self.rewind();
        self
    }

    /// Moves before the first entry.
    pub(super) fn rewind(&mut self) {
        self.at = At::Before;
    }

    fn table(&self) -> &Table {
        &self.cursor.table
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Result<Ordering> {
        Ok(self.table().order()?.compare(a, b))
    }

    /// Whether filter or properties tell, without reading, that no entry lies within the bounds.
    pub(super) fn is_ruled_out(&self) -> Result<bool> {
        if self.is_empty || exclude_all(self.table().order()?, &self.lower, &self.upper) {
            return Ok(true);
        }
        if let (Some(lower), Some(upper)) = (key_of(&self.lower), key_of(&self.upper))
            && self.table().excludes_versions(lower, upper)?
        {
            return Ok(true);
        }
        let is_past = match self.first_key() {
            Some(first) => !self.is_below_upper(first)?,
            None => false,
        };
        Ok(is_past
            || match self.last_key() {
                Some(last) => !self.is_above_lower(last)?,
                None => false,
            })
    }

    /// The table's first key, if its properties tell.
    fn first_key(&self) -> Option<&[u8]> {
        let properties = self.table().properties();
        properties
            .filter(|_| self.uses_properties)?
            .first_key
            .as_deref()
    }

    /// The table's last key, if its properties tell.
    fn last_key(&self) -> Option<&[u8]> {
        let properties = self.table().properties();
        properties
            .filter(|_| self.uses_properties)?
            .last_key
            .as_deref()
    }

    /// Whether the input is on an entry.
    #[inline]
    pub(super) fn is_on_entry(&self) -> bool {
        matches!(self.at, At::Entry | At::UnreadFirst | At::UnreadLast)
    }

    /// The current key; empty if the input is on no entry.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        match self.at {
            At::Entry => self.cursor.key(),
            At::UnreadFirst => self.first_key().unwrap_or(&[]),
            At::UnreadLast => self.last_key().unwrap_or(&[]),
            At::Before | At::JustBefore | At::After | At::JustAfter => &[],
        }
    }

    /// Reads the current entry if it is still unread. Returns whether there is one.
    #[inline]
    pub(super) fn read(&mut self) -> Result<bool> {
        match self.at {
            At::Entry => Ok(true),
            At::UnreadFirst | At::UnreadLast => self.read_entry().map(|()| true),
            _ => Ok(false),
        }
    }

    #[cold]
    fn read_entry(&mut self) -> Result<()> {
        let is_first = self.at == At::UnreadFirst;
        let moved = if is_first {
            self.cursor.seek_to_first()?
        } else {
            self.cursor.seek_to_last()?
        };
        let expected = self.key();
        if !moved || self.cursor.key() != expected {
            let what = if is_first { "first" } else { "last" };
            let expected = format!(
                "the table's {what} key to be {}, as its properties say",
                show_key(expected)
            );
            let defect = Defect::new(expected, show_key(self.cursor.key()));
            return Err(if moved {
                self.cursor.locate(defect)
            } else {
                self.table().file().locate(defect, Section::Data, 0)
            });
        }
        self.at = At::Entry;
        Ok(())
    }

    /// Moves to the first entry.
    pub(super) fn seek_to_first(&mut self) -> Result<bool> {
        if let Some(first) = self.first_key()
            && self.is_above_lower(first)?
        {
            self.at = At::UnreadFirst;
            return Ok(true);
        }
        self.read_first()
    }

    fn read_first(&mut self) -> Result<bool> {
        let moved = self.cursor.seek_lower(&self.lower)?;
        self.arrive_forward(moved)
    }

    /// Moves to the last entry.
    pub(super) fn seek_to_last(&mut self) -> Result<bool> {
        if let Some(last) = self.last_key()
            && self.is_below_upper(last)?
        {
            self.at = At::UnreadLast;
            return Ok(true);
        }
        let moved = self.cursor.seek_upper(&self.upper)?;
        self.arrive_backward(moved)
    }

    /// Moves to the first entry at or after `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let is_past_last = match self.last_key() {
            Some(last) => self.compare(key, last)?.is_gt(),
            None => false,
        };
        if is_past_last || !self.is_below_upper(key)? {
            self.at = At::After;
            return Ok(false);
        }
        let is_first = match self.first_key() {
            Some(first) => self.compare(key, first)?.is_le(),
            None => false,
        };
        if is_first || !self.is_above_lower(key)? {
            return self.seek_to_first();
        }
        let found = self.cursor.seek(key)?;
        self.arrive_forward(found)
    }

    /// From an entry that is read, moves to the next if that is an ordinary one, and no upper bound has to be asked.
    /// Otherwise stays and returns `false`.
    #[inline(always)]
    pub(super) fn step_plainly(&mut self) -> bool {
        matches!(self.upper, Bound::Unbounded) && self.cursor.step_plainly()
    }

    /// Moves on along `way`.
    #[inline(always)]
    pub(super) fn step(&mut self, way: Way) -> Result<bool> {
        match way {
            Way::Forward => self.next(),
            Way::Back => self.prev(),
        }
    }

    /// Moves to the next entry: from before the first to the first. Returns `false` after the last.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<bool> {
        if self.at != At::Entry {
            return self.next_from_elsewhere();
        }
        let moved = self.cursor.next()?;
        if moved && matches!(self.upper, Bound::Unbounded) {
            return Ok(true);
        }
        self.arrive_forward(moved)
    }

    #[inline(never)]
    fn next_from_elsewhere(&mut self) -> Result<bool> {
        match self.at {
            At::Before => return self.seek_to_first(),
            At::After | At::JustAfter => return Ok(false),
            At::UnreadLast => {
                self.at = At::After;
                return Ok(false);
            }
            At::UnreadFirst => self.read_entry()?,
            At::Entry | At::JustBefore => {}
        }
        let moved = self.cursor.next()?;
        self.arrive_forward(moved)
    }

    /// Moves to the previous entry: from after the last to the last. Returns `false` before the first.
    #[inline(always)]
    pub(super) fn prev(&mut self) -> Result<bool> {
        if self.at != At::Entry {
            return self.prev_from_elsewhere();
        }
        let moved = self.cursor.prev()?;
        if moved && matches!(self.lower, Bound::Unbounded) {
            return Ok(true);
        }
        self.arrive_backward(moved)
    }

    #[inline(never)]
    fn prev_from_elsewhere(&mut self) -> Result<bool> {
        match self.at {
            At::After => return self.seek_to_last(),
            At::Before | At::JustBefore => return Ok(false),
            At::UnreadFirst => {
                self.at = At::Before;
                return Ok(false);
            }
            At::UnreadLast => self.read_entry()?,
            At::Entry | At::JustAfter => {}
        }
        let moved = self.cursor.prev()?;
        self.arrive_backward(moved)
    }

    /// Notes where the cursor has got to by a move forward, which ended on an entry if `moved`.
    #[inline]
    fn arrive_forward(&mut self, moved: bool) -> Result<bool> {
        let is_within = moved && self.is_below_upper(self.cursor.key())?;
        self.at = match moved {
            _ if is_within => At::Entry,
            true => At::JustAfter,
            false => At::After,
        };
        Ok(is_within)
    }

    /// The same by a move backward.
    #[inline]
    fn arrive_backward(&mut self, moved: bool) -> Result<bool> {
        let is_within = moved && self.is_above_lower(self.cursor.key())?;
        self.at = match moved {
            _ if is_within => At::Entry,
            true => At::JustBefore,
            false => At::Before,
        };
        Ok(is_within)
    }

    #[inline]
    fn is_above_lower(&self, key: &[u8]) -> Result<bool> {
        self.table().is_above(key, &self.lower)
    }

    #[inline]
    fn is_below_upper(&self, key: &[u8]) -> Result<bool> {
        self.table().is_below(key, &self.upper)
    }
}

fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
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
        if inner.table_filter_rejects(lower, order) {
            return Ok(true);
        }
        let Some(first) = inner.index.seek(lower, order) else {
            return Ok(inner.last_block_checked());
        };
        let last = inner.index.seek(upper, order);
        let last = last.map_or(inner.index.len(), |last| last.block + 1);
        let rejects = |i| inner.block_filter_rejects(inner.index.block(i), lower, order);
        Ok((first.block..last).all(rejects))
    }
}
