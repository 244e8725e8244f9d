//! The entries of a table within bounds, and those of several tables.

use std::ops::Bound;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result};
use crate::read::parts::bounds::{Bounds, Direction, KeyRange, prefix_bounds_from};
use crate::read::table::Table;
use crate::read::walk::cursor::Cursor;
use crate::read::walk::ends::DoubleEnded;
use crate::read::walk::merge::MergeCursor;
use crate::read::walk::run::TableRun;
use crate::read::walk::table_walk::TableWalk;
use crate::sorted_input::SortedCursor;

impl Table {
    /// Returns a [cursor](Cursor) before the first entry. Reads nothing yet.
    pub fn cursor(&self) -> Cursor {
        Cursor::of_table(self, (Bound::Unbounded, Bound::Unbounded))
    }

    /// All entries in order, from either end. Reads nothing until the first is taken.
    pub fn iter(&self) -> TableRange {
        self.range(..)
    }

    /// The entries whose keys are within `bounds`, from either end.
    ///
    /// If the lower bound is above the upper one, the range is empty, and nothing is read. If all keys within the bounds must
    /// have the same prefix, as between `user/1` and `user/5` where prefixes end at a slash, a filter [of
    /// prefixes](crate::WriteOptions::prefix_filter) is checked, and if no key has the prefix, nothing is read. Other filters
    /// are not checked: they hold single keys.
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
        TableRange::of_table(self, (bounds.key_bounds(), None))
    }

    /// The entries whose keys begin with `prefix`, from either end.
    ///
    /// Reads nothing if a filter [of prefixes](crate::WriteOptions::prefix_filter) excludes them. `prefix` may be longer than
    /// the prefixes in the filter. If it is shorter, the filter is of no use.
    ///
    /// Only in bytewise order do such keys always lie together. In any other order the only item is an error of
    /// [`ErrorKind::Comparator`]: use a [`range`](Table::range) there.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TableRange {
        self.prefix_from(prefix, Bound::<&[u8]>::Unbounded)
    }

    /// The entries of [`prefix`](Table::prefix) at or after `start`: the next page after a key, for example. A start outside the
    /// prefix is not an error: before it, all entries remain; after it, none.
    ///
    /// Costs as much as a [`range`](Table::range), and checks the filter of prefixes. In C++ LevelDB, a program seeks to the start,
    /// and compares each key with the prefix.
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
        let range = prefix_range(self.order().ok(), prefix.as_ref(), start);
        TableRange::of_table(self, range)
    }

    /// Returns a cursor over the entries of several tables of one order, or of [ranges](Table::range) of them, before the
    /// first entry.
    ///
    /// No block is read until the first move, and none at all from an input that is known to have no entry within its
    /// bounds: from the first and last key in its [properties](Table::properties), or from its filter if the bounds are one
    /// key (`key..=key`). A table whose properties name its first key is read when the merge reaches that key. If the
    /// properties are wrong, that is then an error, but keys outside of the stated ones may not be shown.
    ///
    /// A step takes about log₂ *n* comparisons of keys.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, Table, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # for key in ["apple", "banana", "cherry"] { builder.add(key, "")?; }
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// # let tables = [table.clone(), table];
    /// for entry in Table::merge(tables.iter().map(|table| table.range("b"..)))? {
    ///     let (key, value) = entry?;
    ///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Comparator`] if the names of the inputs' orders differ, or an order is not known; [`ErrorKind::InvalidState`]
    /// for a range that was advanced, and for entries of a cursor that is not before its first; and the error of a range that could
    /// not be made.
    pub fn merge<R: Into<TableRange>>(inputs: impl IntoIterator<Item = R>) -> Result<MergeCursor> {
        let inputs = inputs.into_iter();
        TableWalk::merge(inputs.map(|input| input.into().0.into_whole()))
    }

    /// The first entry, or `None` in an empty table.
    ///
    /// # Errors
    ///
    /// Errors of reading a data block; see [`get`](Table::get).
    pub fn first(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.iter().next().transpose()
    }

    /// The last entry, or `None` in an empty table.
    ///
    /// # Errors
    ///
    /// Errors of reading a data block; see [`get`](Table::get).
    pub fn last(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.iter().next_back().transpose()
    }
}

/// The bounds of the keys that begin with `prefix`, from `start` on; in an order in which they need not be adjacent, an error. Such an
/// order is not used on the prefix, which need not be a valid key.
pub(crate) fn prefix_range(
    order: Option<&Order>,
    prefix: &[u8],
    start: Bound<impl AsRef<[u8]>>,
) -> (Bounds, Option<Error>) {
    if let Some(Order::Custom(comparator)) = order {
        let error = no_prefixes(comparator.name());
        return ((Bound::Unbounded, Bound::Unbounded), Some(error));
    }
    (prefix_bounds_from(prefix, start), None)
}

/// The error for a prefix in the order of this name, in which its keys need not be adjacent.
#[cold]
pub fn no_prefixes(name: &str) -> Error {
    let message =
        format!("keys of one prefix need not lie together in the order {name:?}: use a range");
    Error::new(ErrorKind::Comparator, message)
}

/// The entries of a table within bounds, from both ends; made by [`Table::range`]. Or the entries of a [`MergeCursor`].
///
/// Owns its data. Ends after its first error: no entry is skipped silently. [`advance`](TableRange::advance) lends keys and values; as an
/// iterator, it copies each key, and values are slices of their blocks. Once an entry is taken from the back, it has two cursors.
#[derive(Debug, Clone)]
#[must_use]
pub struct TableRange(pub(crate) DoubleEnded<TableWalk>);

impl TableRange {
    /// The entries of a table within bounds, or an error.
    fn of_table(table: &Table, (bounds, error): (Bounds, Option<Error>)) -> TableRange {
        let mut cursor = Cursor::of_table(table, bounds);
        let error = error.or_else(|| cursor.ask_prefixes().err());
        TableRange(DoubleEnded::new(TableWalk::One(cursor), error))
    }

    /// The entries of a sorted input within `bounds`, from either end, or for a merge: see [`SortedCursor`].
    ///
    /// Costs as much as the moves of the input; only the bounds are copied. A second copy of the input is made for the back.
    ///
    /// ```
    /// use leveltable::{SortedSlice, TableRange};
    ///
    /// let fruit = SortedSlice::new([("apple", "red"), ("banana", "yellow"), ("cherry", "dark")]);
    /// let mut range = TableRange::of(fruit, .."c");
    /// assert_eq!(range.next_back().unwrap()?.0, "banana");
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn of(
        input: impl SortedCursor + Clone + Send + Sync + 'static,
        bounds: impl KeyRange,
    ) -> TableRange {
        let (walk, error) = TableWalk::of_foreign(input, bounds.key_bounds());
        TableRange(DoubleEnded::new(walk, error))
    }

    /// The entries within `bounds` of tables that are opened one at a time, when the range reaches them: see [`TableRun`].
    ///
    /// Finds the first and the last table by binary search. In a merge, a table is not opened before it is needed: while its first key is
    /// after the entries of other inputs, it waits.
    ///
    /// ```
    /// use leveltable::{OpenOptions, Result, Table, TableRange, TableRun, WriteOptions};
    ///
    /// struct Level(Vec<(String, String, Vec<u8>)>);
    ///
    /// impl TableRun for Level {
    ///     fn tables(&self) -> usize {
    ///         self.0.len()
    ///     }
    ///     fn keys(&self, i: usize) -> (&[u8], &[u8]) {
    ///         let (first, last, _) = &self.0[i];
    ///         (first.as_bytes(), last.as_bytes())
    ///     }
    ///     fn open(&self, i: usize) -> Result<Table> {
    ///         OpenOptions::new().open_source(self.0[i].2.clone()) // usually a path
    ///     }
    /// }
    ///
    /// # let table = |first: &str, last: &str| -> Result<_> {
    /// #     let mut builder = WriteOptions::new().build(Vec::new());
    /// #     builder.add(first, "")?;
    /// #     builder.add(last, "")?;
    /// #     Ok((first.to_owned(), last.to_owned(), builder.finish_into_writer()?.0))
    /// # };
    /// let level = Level(vec![table("apple", "cherry")?, table("date", "fig")?]);
    /// let mut range = TableRange::of_run(level, "b"..);
    /// assert!(range.advance()?); // opens the first table
    /// assert_eq!(range.key(), b"cherry");
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn of_run(run: impl TableRun + 'static, bounds: impl KeyRange) -> TableRange {
        let walk = TableWalk::of_run(run, bounds.key_bounds());
        TableRange(DoubleEnded::new(walk, None))
    }

    /// Takes the next entry from the front, as [`next`](Iterator::next) does, and lends it. Returns `false` if none is
    /// left.
    ///
    /// [`key`](TableRange::key) and [`value`](TableRange::value) are lent until the next call that takes from the front. This takes a third
    /// to half of the time of `next`, which allocates a copy of each key; like an iterator of C++ LevelDB, it allocates nothing.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut builder = WriteOptions::new().build(Vec::new());
    /// # for key in ["apple", "banana", "cherry"] { builder.add(key, "fruit")?; }
    /// # let table = OpenOptions::new().open_source(builder.finish_into_writer()?.0)?;
    /// let (mut from_b, mut bytes) = (table.range("b"..), 0);
    /// while from_b.advance()? {
    ///     bytes += from_b.key().len() + from_b.value().len();
    /// }
    /// assert_eq!(bytes, 22);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of reading a data block; see [`Table::get`]. The range then ends.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.0.advance(Direction::Forward)
    }

    /// The key of the entry last taken from the front by [`advance`](TableRange::advance) or `next`; empty before the first, after the end
    /// of the range, and after an error.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.0.lent().map_or(&[], TableWalk::key)
    }

    /// The value of the current entry; empty when [`key`](TableRange::key) is.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.0.lent().map_or(&[], TableWalk::value)
    }

    /// A copy of the current [key](TableRange::key), to keep.
    pub fn key_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.key())
    }

    /// The current [value](TableRange::value), to keep: a slice of its block, which stays in memory meanwhile.
    pub fn value_bytes(&self) -> Bytes {
        self.0
            .lent()
            .map_or_else(Bytes::new, TableWalk::value_bytes)
    }
}

/// The whole table.
impl From<&Table> for TableRange {
    fn from(table: &Table) -> TableRange {
        table.iter()
    }
}

/// All entries of the cursor, wherever it stands.
impl IntoIterator for MergeCursor {
    type Item = Result<(Bytes, Bytes)>;
    type IntoIter = TableRange;

    fn into_iter(mut self) -> TableRange {
        self.rewind();
        TableRange(DoubleEnded::new(TableWalk::Merge(self), None))
    }
}
