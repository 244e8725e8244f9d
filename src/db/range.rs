//! The entries of a database's tables, from both ends.

use std::ops::Bound;

use bytes::Bytes;

use crate::db::cursor::DbCursor;
use crate::db::entry::DbEntry;
use crate::error::{Error, ErrorKind, Result};
use crate::format::internal_key::{InternalKey, MAX_SEQUENCE, ValueType, user_order};
use crate::read::parts::bounds::{Bounds, Direction, KeyRange};
use crate::read::table::Table;
use crate::read::walk::cursor::Cursor;
use crate::read::walk::ends::DoubleEnded;
use crate::read::walk::inputs::sorted_range;
use crate::read::walk::run::TableRun;
use crate::read::walk::table_walk::TableWalk;
use crate::sorted_input::{SortedCursor, SortedInput};

/// Entries of a database's tables, from both ends; made by [`DbTable::range`](crate::DbTable::range) and the like, or from a [`DbCursor`].
/// [`at`](DbRange::at) a sequence number, what a snapshot sees.
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
/// assert_eq!(table.range("a"..).at(8).count(), 1);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DbRange(DoubleEnded<DbCursor>);

impl DbRange {
    /// Shows what a snapshot of `sequence` sees, from both ends of the range: see [`DbCursor::at`].
    pub fn at(self, sequence: u64) -> DbRange {
        DbRange(self.0.restart(|cursor| cursor.at(sequence)))
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
        let (walk, error) = TableWalk::of_foreign(input, stored_bounds(bounds));
        DbRange::of_walk(walk, error)
    }

    /// The entries, of user keys within `bounds`, of tables that are opened one at a time, when the range reaches them: see
    /// [`TableRange::of_run`](crate::TableRange::of_run). The comparator of the run is an
    /// [`InternalKeyComparator`](crate::db::InternalKeyComparator).
    pub fn of_run(run: impl TableRun + 'static, bounds: impl KeyRange) -> DbRange {
        DbRange::of_walk(TableWalk::of_run(run, stored_bounds(bounds)), None)
    }

    /// The entries of a table whose user keys are within bounds, or an error.
    pub(super) fn of_table(table: &Table, (bounds, error): (Bounds, Option<Error>)) -> DbRange {
        let mut cursor = Cursor::of_table(table, stored_bounds(bounds));
        let error = error.or_else(|| cursor.ask_prefixes().err());
        DbRange::of_walk(TableWalk::One(cursor), error)
    }

    fn of_walk(walk: TableWalk, error: Option<Error>) -> DbRange {
        let error = error.or_else(|| not_internal_order(&walk));
        DbRange(DoubleEnded::new(DbCursor::of_walk(walk), error))
    }

    /// The cursor at the front.
    pub(super) fn into_cursor(self) -> DbCursor {
        self.0.front
    }

    /// All versions, for a merge.
    pub(super) fn into_versions(self) -> Result<TableWalk> {
        self.0.into_whole()?.into_versions()
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

    /// Offset, in its file, of the block that contains the current entry.
    #[doc(hidden)] // for histories, which say where a version is
    pub fn block_offset(&self) -> u64 {
        self.0.lent().map_or(0, DbCursor::block_offset)
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

/// All that the cursor shows, wherever it stands.
impl IntoIterator for DbCursor {
    type Item = Result<DbEntry>;
    type IntoIter = DbRange;

    fn into_iter(self) -> DbRange {
        let snapshot = self.snapshot;
        DbRange(DoubleEnded::new(self.restart(snapshot), None))
    }
}

sorted_range!(
    /// The remaining entries of the range. The key is the stored one: user key, sequence number and type.
    DbRange, DbEntry, DbCursor::stored_key
);

/// The bounds of the stored keys whose user keys are within bounds.
pub(super) fn stored_bounds(bounds: impl KeyRange) -> Bounds {
    // The newest and the oldest key that a user key could be stored under.
    let newest = |key: Vec<u8>| InternalKey::seek_target(&key, MAX_SEQUENCE);
    let oldest = |key: Vec<u8>| InternalKey::oldest(&key);
    let (lower, upper) = bounds.key_bounds();
    let lower = match lower {
        Bound::Excluded(key) => Bound::Excluded(oldest(key)),
        lower => lower.map(newest),
    };
    let upper = match upper {
        Bound::Included(key) => Bound::Included(oldest(key)),
        upper => upper.map(newest),
    };
    (lower, upper)
}
