//! The entries of a cursor from both ends, and those of a table within bounds.

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result};
use crate::read::bounds::{KeyRange, Way, prefix_bounds_from};
use crate::read::cursor::Cursor;
use crate::read::merge::MergeCursor;
use crate::read::table::Table;

impl Table {
    /// All entries in order, from either end.
    pub fn iter(&self) -> TableRange {
        self.range(..)
    }

    /// The entries whose keys lie within `bounds`, from either end.
    ///
    /// If the lower bound is above the upper one, the range is empty, and nothing is read. If no key within the bounds can have
    /// another prefix, as between `user/1` and `user/5` where prefixes end at a slash, a filter [of
    /// prefixes](crate::WriteOptions::prefix_filter) is asked, and if it knows that no key has the prefix, nothing is read.
    /// Other filters are not: they know single keys.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # for key in ["apple", "banana", "cherry"] { builder.add(key.as_bytes(), b"")?; }
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// let mut from_b = table.range("b"..);
    /// let (key, _) = from_b.next().unwrap()?;
    /// assert_eq!(key, "banana");
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn range(&self, bounds: impl KeyRange) -> TableRange {
        let bounds = bounds.key_bounds();
        let mut cursor = Cursor::of_table(self, bounds.clone());
        let is_bytewise = matches!(self.order(), Ok(Order::Bytewise));
        let is_excluded = || Ok(is_bytewise && self.prefixes_exclude(&bounds)?);
        let error = cursor.rule_out(is_excluded).err();
        TableRange(Ends::new(MergeCursor::of_one(cursor), error))
    }

    /// The entries whose keys begin with `prefix`, from either end.
    ///
    /// Reads nothing if a filter [of prefixes](crate::WriteOptions::prefix_filter) knows that there are none. `prefix` may be
    /// longer than the prefixes in the filter. If it is shorter, the filter cannot tell.
    ///
    /// Only in bytewise order do such keys always lie together. In any other order the only item is an error of
    /// [`ErrorKind::Comparator`]: use a [`range`](Table::range) there.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TableRange {
        self.prefix_from(prefix, Bound::<&[u8]>::Unbounded)
    }

    /// The entries of [`prefix`](Table::prefix) from `start` on: the next page after a key, for example. A start outside of the prefix
    /// is no error: before it, all entries are left; after it, none.
    ///
    /// Costs what a [`range`](Table::range) does, and asks the filter of prefixes. In C++ LevelDB, a program seeks to the start, and
    /// compares each key with the prefix.
    ///
    /// ```
    /// use std::ops::Bound;
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut builder = WriteOptions::new().build(Vec::new());
    /// # for key in ["user/1", "user/2", "user/3", "world"] { builder.add(key, "")?; }
    /// # let table = OpenOptions::new().open_source(builder.finish_into_writer()?.0)?;
    /// let last_shown = "user/1";
    /// let page = table.prefix_from("user/", Bound::Excluded(last_shown)).take(20);
    /// assert_eq!(page.count(), 2);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn prefix_from(
        &self,
        prefix: impl AsRef<[u8]>,
        start: Bound<impl AsRef<[u8]>>,
    ) -> TableRange {
        match self.order().ok().and_then(no_prefix_in) {
            Some(error) => TableRange(Ends::new(self.iter().0.front, Some(error))),
            None => self.range(prefix_bounds_from(prefix.as_ref(), start)),
        }
    }

    /// The first entry, or `None` in an empty table.
    ///
    /// # Errors
    ///
    /// Those of reading a data block; see [`get`](Table::get).
    pub fn first(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.iter().next().transpose()
    }

    /// The last entry, or `None` in an empty table.
    ///
    /// # Errors
    ///
    /// Those of reading a data block; see [`get`](Table::get).
    pub fn last(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.iter().next_back().transpose()
    }
}

/// The error of asking for the keys of a prefix, if they need not lie together in this order. It is not asked about the prefix,
/// which may be no key to it.
pub(crate) fn no_prefix_in(order: &Order) -> Option<Error> {
    match order {
        Order::Bytewise => None,
        Order::Custom(comparator) => Some(no_prefixes(comparator.name())),
    }
}

/// The error of asking for the keys of a prefix in the order of this name, in which they need not lie together.
#[cold]
pub fn no_prefixes(name: &str) -> Error {
    let message =
        format!("keys of one prefix need not lie together in the order {name:?}: use a range");
    Error::new(ErrorKind::Comparator, message)
}

/// The entries of a table within bounds, from both ends; made by [`Table::range`]. Or those of a [`MergeCursor`].
///
/// Owns its data. Ends after its first error: no entry is skipped in silence. Each key is a copy, where a
/// [`Cursor`](crate::Cursor) lends it; values are slices of their blocks. From the first entry that is taken from the back on, it
/// has two cursors.
#[derive(Debug, Clone)]
#[must_use]
pub struct TableRange(pub(super) Ends<MergeCursor>);

/// All of the table.
impl From<&Table> for TableRange {
    fn from(table: &Table) -> TableRange {
        table.iter()
    }
}

/// All entries, as by [`Table::iter`].
impl IntoIterator for &Table {
    type Item = Result<(Bytes, Bytes)>;
    type IntoIter = TableRange;

    fn into_iter(self) -> TableRange {
        self.iter()
    }
}

impl Iterator for TableRange {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take(Way::Forward)
    }

    /// The last entry, at once: those between are not read, and so not checked.
    fn last(mut self) -> Option<Self::Item> {
        self.next_back()
    }
}

impl DoubleEndedIterator for TableRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.take(Way::Back)
    }
}

impl std::iter::FusedIterator for TableRange {}

/// A cursor in both directions whose entries an iterator takes.
pub(crate) trait Walk: Clone {
    type Entry;

    fn is_on_entry(&self) -> bool;
    fn is_before_first(&self) -> bool;

    /// Moves to the next entry on the way: from where a walk the other way ends to the first.
    fn go(&mut self, way: Way) -> Result<bool>;

    /// Moves to the first entry of a walk along `way`.
    fn seek_to_start(&mut self, way: Way) -> Result<bool>;

    /// The current entry, to keep.
    fn entry(&self) -> Self::Entry;

    /// How the entries that the two cursors stand on compare in the order of the walk.
    fn compare(&self, other: &Self) -> Result<Ordering>;
}

/// Takes entries from both ends, with a cursor for each, until they meet or one fails.
#[derive(Debug, Clone)]
pub(crate) struct Ends<C> {
    pub(crate) front: C,
    /// Whether the entry that the front cursor stands on is still to be taken.
    front_is_left: bool,
    /// Made when the first entry is taken from the back.
    back: Option<Box<C>>,
    /// Set when no more entries are left: perhaps an error is, of a range that could not be made.
    end: Option<Option<Error>>,
}

impl<C: Walk> Ends<C> {
    /// All entries from the position of `cursor` on, or an error instead.
    pub(crate) fn new(cursor: C, error: Option<Error>) -> Ends<C> {
        Ends {
            front_is_left: cursor.is_on_entry(),
            front: cursor,
            back: None,
            end: error.map(Some),
        }
    }

    /// The cursor, if all entries are left.
    pub(crate) fn into_whole(self) -> Result<C> {
        match self.end {
            None if self.back.is_none() && self.front.is_before_first() => Ok(self.front),
            end => Err(end.flatten().unwrap_or_else(not_whole)),
        }
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, way: Way) -> Option<Result<C::Entry>> {
        match self.advance(way) {
            Ok(true) => Some(Ok(self.cursor(way).entry())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// The cursor that takes entries along `way`.
    #[inline(always)]
    pub(crate) fn cursor(&self, way: Way) -> &C {
        match (way, &self.back) {
            (Way::Back, Some(back)) => back,
            _ => &self.front,
        }
    }

    /// The cursor on the entry last taken from the front; `None` after the end.
    pub(crate) fn lent(&self) -> Option<&C> {
        self.end.is_none().then_some(&self.front)
    }

    /// Takes an entry, for [`cursor`](Ends::cursor) to lend. Returns `false` if none is left.
    #[inline(always)]
    pub(crate) fn advance(&mut self, way: Way) -> Result<bool> {
        if let Some(error) = &mut self.end {
            return error.take().map_or(Ok(false), Err);
        }
        let moved = match way {
            Way::Forward => self.step_front(),
            Way::Back => self.step_back(),
        };
        if !matches!(moved, Ok(true)) {
            self.end = Some(None);
        }
        moved
    }

    /// Moves to the next entry from the front. Returns whether it is still to be taken.
    #[inline(always)]
    fn step_front(&mut self) -> Result<bool> {
        let moved = std::mem::take(&mut self.front_is_left) || self.front.go(Way::Forward)?;
        match &self.back {
            Some(back) if moved => Ok(self.front.compare(back)?.is_lt()),
            _ => Ok(moved),
        }
    }

    /// Moves to the next entry from the back. Returns whether it is still to be taken.
    fn step_back(&mut self) -> Result<bool> {
        if !self.front.is_on_entry() && !self.front.is_before_first() {
            // After the last entry, or lost.
            return self.front.go(Way::Forward);
        }
        let moved = match &mut self.back {
            Some(back) => back.go(Way::Back)?,
            None => {
                let back = self.back.insert(Box::new(self.front.clone()));
                back.seek_to_start(Way::Back)?
            }
        };
        match &self.back {
            Some(back) if moved && self.front.is_on_entry() => {
                let front = self.front.compare(back)?;
                Ok(front.is_lt() || self.front_is_left && front.is_eq())
            }
            _ => Ok(moved),
        }
    }
}

/// The error of a range in a merge that shows a snapshot, or that was advanced.
#[cold]
pub(crate) fn not_whole() -> Error {
    Error::new(
        ErrorKind::InvalidState,
        "an input of a merge is a range of all entries that was not advanced yet, at no snapshot: call `at` on the merge",
    )
}
