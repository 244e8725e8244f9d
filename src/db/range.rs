//! The entries of a database's tables, from both ends.

use std::ops::Bound;

use bytes::Bytes;

use crate::db::cursor::DbCursor;
use crate::db::entry::DbEntry;
#[cfg(doc)]
use crate::db::snapshot::Snapshot;
use crate::db::table::{DbTable, stored_bounds};
use crate::error::{Error, ErrorKind, Result};
use crate::format::internal_key::{ValueType, user_order};
use crate::read::parts::bounds::{Direction, KeyRange, prefix_bounds_from};
#[cfg(doc)]
use crate::read::table::Table;
use crate::read::walk::cursor::Cursor;
use crate::read::walk::ends::DoubleEnded;
use crate::read::walk::range::no_prefix_in;
use crate::read::walk::run::TableRun;
use crate::read::walk::table_walk::TableWalk;
use crate::sorted_input::SortedCursor;

/// Entries of a database's tables, from both ends; made by [`DbTable::range`], [`Snapshot::range`] and the like, or from
/// a [`DbCursor`].
///
/// Ends after its first error. [`advance`](DbRange::advance) lends entries; as an iterator, it copies each user key, and values are slices
/// of their blocks. Once an entry is taken from the back, it has two cursors.
///
/// ```
/// use leveltable::{OpenOptions, WriteOptions};
///
/// let mut file = Vec::new();
/// let mut builder = WriteOptions::new().build_db(&mut file);
/// builder.put("apple", 9, "green")?;
/// builder.put("apple", 4, "red")?;
/// builder.delete("banana", 7)?;
/// builder.finish()?;
/// let table = OpenOptions::new().open_db_source(file)?;
/// assert_eq!(table.range("a"..).count(), 3);
/// assert_eq!(table.at(8).range("a"..).count(), 1);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DbRange(pub(super) DoubleEnded<DbCursor>);

impl DbRange {
    /// The range as a snapshot of `sequence` sees it.
    pub(super) fn at(mut self, sequence: u64) -> DbRange {
        self.0.front = self.0.front.at(sequence);
        self
    }

    /// The entries of a sorted input whose user keys are within `bounds`, from either end, or for a merge: see
    /// [`TableRange::of`](crate::TableRange::of). The input lends [stored keys](crate::db::InternalKey), and its
    /// [comparator](SortedCursor::comparator) is an [`InternalKeyComparator`](crate::db::InternalKeyComparator).
    ///
    /// ```
    /// use leveltable::db::{DbRange, InternalKey, InternalKeyComparator, MAX_SEQUENCE, ValueType};
    /// use leveltable::{BytewiseComparator, DbTable, SortedSlice};
    ///
    /// let key = |sequence| {
    ///     let mut stored = Vec::new();
    ///     let key = InternalKey { user_key: b"apple", sequence, value_type: ValueType::Value };
    ///     key.encode(&mut stored);
    ///     stored
    /// };
    /// let memtable = SortedSlice::new([(key(9), "green"), (key(4), "red")]);
    /// let memtable = memtable.with_comparator(InternalKeyComparator::new(BytewiseComparator));
    /// let mut seen = DbTable::merge([DbRange::of(memtable, "a"..)])?.at(8).into_iter();
    /// assert!(seen.advance()?);
    /// assert_eq!((seen.user_key(), seen.value()), (&b"apple"[..], &b"red"[..]));
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn of(
        input: impl SortedCursor + Clone + Send + Sync + 'static,
        bounds: impl KeyRange,
    ) -> DbRange {
        let (walk, error) = TableWalk::of_foreign(input, stored_bounds(&bounds.key_bounds()));
        let error = error.or_else(|| not_internal_order(&walk));
        DbRange(DoubleEnded::new(DbCursor::of_walk(walk), error))
    }

    /// The entries, of user keys within `bounds`, of tables that are opened one at a time, when the range reaches them: see
    /// [`TableRange::of_run`](crate::TableRange::of_run). The comparator of the run is an
    /// [`InternalKeyComparator`](crate::db::InternalKeyComparator).
    pub fn of_run(run: impl TableRun + 'static, bounds: impl KeyRange) -> DbRange {
        let walk = TableWalk::of_run(run, stored_bounds(&bounds.key_bounds()));
        let error = not_internal_order(&walk);
        DbRange(DoubleEnded::new(DbCursor::of_walk(walk), error))
    }

    /// Takes the next entry from the front, as [`next`](Iterator::next) does, and lends it until the next call that takes from the
    /// front. Returns `false` if none is left. Allocates nothing; see [`TableRange::advance`](crate::TableRange::advance).
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut builder = WriteOptions::new().build_db(Vec::new());
    /// builder.put("apple", 9, "green")?;
    /// builder.put("apple", 4, "red")?;
    /// # let table = OpenOptions::new().open_db_source(builder.finish_into_writer()?.0)?;
    /// let mut versions = table.iter();
    /// while versions.advance()? {
    ///     println!("{} at {}", versions.user_key().escape_ascii(), versions.sequence());
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`DbCursor::next`]. The range then ends.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.0.advance(Direction::Forward)
    }

    /// The user key of the entry last taken from the front by [`advance`](DbRange::advance) or `next`; empty before the first, after the
    /// end of the range, and after an error.
    #[inline]
    pub fn user_key(&self) -> &[u8] {
        self.0.lent().map_or(&[], DbCursor::user_key)
    }

    /// The sequence number of the [current entry](DbRange::user_key); 0 if there is none.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.0.lent().map_or(0, DbCursor::sequence)
    }

    /// Whether the [current entry](DbRange::user_key) is a value or a deletion; a deletion if there is none.
    #[inline]
    pub fn value_type(&self) -> ValueType {
        self.0
            .lent()
            .map_or(ValueType::Deletion, DbCursor::value_type)
    }

    /// The value of the current entry; empty when [`user_key`](DbRange::user_key) is, and for a deletion.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.0.lent().map_or(&[], DbCursor::value)
    }

    /// A copy of the current [user key](DbRange::user_key), to keep.
    pub fn key_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.user_key())
    }

    /// The current [value](DbRange::value), to keep: a slice of its block, which stays in memory meanwhile.
    pub fn value_bytes(&self) -> Bytes {
        self.0.lent().map_or_else(Bytes::new, DbCursor::value_bytes)
    }

    /// Takes the next entry from an end, for [`lent`](DbRange::lent) to lend. Returns `false` if none is left.
    #[doc(hidden)] // for the databases, which lend from both ends
    #[inline]
    pub fn advance_from(&mut self, back: bool) -> Result<bool> {
        self.0.advance(direction(back))
    }

    /// The cursor on the entry last taken from an end.
    #[doc(hidden)] // for the databases, which lend from both ends
    #[inline]
    pub fn lent(&self, back: bool) -> &DbCursor {
        self.0.cursor(direction(back))
    }
}

fn direction(back: bool) -> Direction {
    if back {
        Direction::Backward
    } else {
        Direction::Forward
    }
}

/// The error if the stored keys are not in the order of a database.
fn not_internal_order(walk: &TableWalk) -> Option<Error> {
    let order = walk.order().ok()?;
    let message = || {
        let name = order.comparator().name();
        format!(
            "the keys of a database's input are in the order of an InternalKeyComparator, not in {name:?}"
        )
    };
    let is_internal = user_order(order).is_some();
    (!is_internal).then(|| Error::new(ErrorKind::Comparator, message()))
}

impl DbTable {
    /// Returns a [cursor](DbCursor) over all entries, before the first. Reads nothing yet.
    pub fn cursor(&self) -> DbCursor {
        self.iter().0.front
    }

    /// All entries: user keys in order, the versions of each newest first, deletions included; from either end.
    /// [`at`](DbTable::at) a sequence number, what a snapshot sees. Reads nothing until the first entry is taken.
    pub fn iter(&self) -> DbRange {
        self.range(..)
    }

    /// All entries of the user keys within `bounds`, from either end. A filter of the prefixes of user keys is checked as
    /// by [`Table::range`], and read for that; otherwise nothing is read until the first entry is taken.
    pub fn range(&self, bounds: impl KeyRange) -> DbRange {
        let bounds = stored_bounds(&bounds.key_bounds());
        let mut cursor = Cursor::of_table(&self.table, bounds);
        let error = cursor.ask_prefixes().err();
        let cursor = DbCursor::of_walk(TableWalk::One(cursor));
        DbRange(DoubleEnded::new(cursor, error))
    }

    /// All entries of the user keys that begin with `prefix`, like [`range`](DbTable::range).
    ///
    /// Only in bytewise order do such user keys always lie together. In any other order the only item is an error of
    /// [`ErrorKind::Comparator`]: use a range there.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> DbRange {
        self.prefix_from(prefix, Bound::<&[u8]>::Unbounded)
    }

    /// The entries of [`prefix`](DbTable::prefix) whose user keys are at or after `start`; see [`Table::prefix_from`].
    pub fn prefix_from(&self, prefix: impl AsRef<[u8]>, start: Bound<impl AsRef<[u8]>>) -> DbRange {
        match no_prefix_in(&self.order) {
            Some(error) => DbRange(DoubleEnded::new(self.cursor(), Some(error))),
            None => self.range(prefix_bounds_from(prefix.as_ref(), start)),
        }
    }

    /// Returns a cursor over the entries of several tables of one database, or of [ranges](DbTable::range) of them, before
    /// the first entry.
    ///
    /// The order in which the tables are given matters only if two of them have the same user key with the same sequence
    /// number: these entries come in that order, and a snapshot sees the first.
    ///
    /// As in a [merge of plain tables](crate::Table::merge), tables that their properties or filters rule out are not read.
    ///
    /// ```
    /// # use leveltable::{DbTable, OpenOptions, WriteOptions};
    /// # fn table(changes: &[(&str, u64, Option<&str>)]) -> leveltable::Result<DbTable> {
    /// #     let mut file = Vec::new();
    /// #     let mut builder = WriteOptions::new().build_db(&mut file);
    /// #     for &(key, sequence, value) in changes {
    /// #         match value {
    /// #             Some(value) => builder.put(key, sequence, value)?,
    /// #             None => builder.delete(key, sequence)?,
    /// #         }
    /// #     }
    /// #     builder.finish()?;
    /// #     OpenOptions::new().open_db_source(file)
    /// # }
    /// let new = table(&[("apple", 9, None), ("cherry", 8, Some("dark"))])?;
    /// let old = table(&[("apple", 4, Some("red")), ("banana", 3, Some("yellow"))])?;
    /// let mut cursor = DbTable::merge([&new, &old])?.at(9);
    /// assert!(cursor.seek("apple")?);
    /// assert_eq!(cursor.user_key(), b"banana", "the apple was deleted");
    /// let as_of_5 = DbTable::merge([new.range("a".."b"), old.range("a".."b")])?.at(5);
    /// for entry in as_of_5 {
    ///     let entry = entry?; // the red apple
    ///     println!("{} at {}", entry.user_key.escape_ascii(), entry.sequence);
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Comparator`] if the names of the orders of the tables' user keys differ, or an order is not known.
    /// [`ErrorKind::InvalidState`] for a range that shows a snapshot or was advanced, and for entries of a cursor that is not before its
    /// first.
    pub fn merge<R: Into<DbRange>>(inputs: impl IntoIterator<Item = R>) -> Result<DbCursor> {
        let stored = |range: R| {
            let cursor = range.into().0.into_whole()?;
            if cursor.snapshot.is_some() {
                let message = "a range shows a snapshot, and a merge takes all versions: merge ranges of the tables, and call `at` on the merge";
                return Err(Error::new(ErrorKind::InvalidState, message));
            }
            Ok(cursor.stored)
        };
        let merged = TableWalk::merge(inputs.into_iter().map(stored))?;
        Ok(DbCursor::of_walk(TableWalk::Merge(merged)))
    }
}

/// The whole table.
impl From<&DbTable> for DbRange {
    fn from(table: &DbTable) -> DbRange {
        table.iter()
    }
}

/// The entries from the cursor's position on: from the current one, or from the first if the cursor stands before it.
impl IntoIterator for DbCursor {
    type Item = Result<DbEntry>;
    type IntoIter = DbRange;

    fn into_iter(self) -> DbRange {
        DbRange(DoubleEnded::new(self, None))
    }
}
