//! The entries of a database's tables, from both ends.

use std::ops::Bound;

use crate::comparator::Order;
use crate::db::cursor::DbCursor;
use crate::db::entry::DbEntry;
#[cfg(doc)]
use crate::db::snapshot::Snapshot;
use crate::db::table::{DbTable, stored_bounds};
use crate::error::{Error, ErrorKind, Result};
use crate::format::internal_key::user_order;
use crate::read::parts::bounds::{KeyRange, Way, prefix_bounds_from};
#[cfg(doc)]
use crate::read::table::Table;
use crate::read::walk::cursor::Cursor;
use crate::read::walk::ends::Ends;
use crate::read::walk::merge::MergeCursor;
use crate::read::walk::range::no_prefix_in;

/// Entries of a database's tables, from both ends; made by [`DbTable::range`], [`Snapshot::range`] and the like, or of a
/// [`DbCursor`].
///
/// Ends after its first error. Each user key is a copy,
/// where a cursor lends it; values are slices of their blocks. From the first entry that is taken from the back on, it has
/// two cursors.
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
pub struct DbRange(pub(super) Ends<DbCursor>);

impl DbRange {
    /// What a snapshot of `sequence` sees of the range.
    pub(super) fn at(mut self, sequence: u64) -> DbRange {
        self.0.front = self.0.front.at(sequence);
        self
    }

    /// Takes the next entry from the front, or from the back, for [`lent`](DbRange::lent) to lend. Returns `false` if none is left.
    #[doc(hidden)] // for walks over the parts of a database
    #[inline]
    pub fn advance(&mut self, back: bool) -> Result<bool> {
        self.0.advance(way(back))
    }

    /// The cursor on the entry last taken from the front, or from the back.
    #[doc(hidden)] // for walks over the parts of a database
    #[inline]
    pub fn lent(&self, back: bool) -> &DbCursor {
        self.0.cursor(way(back))
    }
}

fn way(back: bool) -> Way {
    if back { Way::Back } else { Way::Forward }
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

    /// All entries of the user keys within `bounds`, from either end. A filter of the prefixes of user keys is asked as by
    /// [`Table::range`], and read for that; otherwise nothing is read until the first entry is taken.
    pub fn range(&self, bounds: impl KeyRange) -> DbRange {
        let bounds = bounds.key_bounds();
        let mut cursor = Cursor::of_table(&self.table, stored_bounds(&bounds));
        let is_excluded = || self.table.prefixes_exclude(&bounds);
        let error = cursor.rule_out(is_excluded).err();
        let cursor = DbCursor::new(MergeCursor::of_one(cursor), self.order.clone());
        DbRange(Ends::new(cursor, error))
    }

    /// All entries of the user keys that begin with `prefix`, like [`range`](DbTable::range).
    ///
    /// Only in bytewise order do such user keys always lie together. In any other order the only item is an error of
    /// [`ErrorKind::Comparator`]: use a range there.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> DbRange {
        self.prefix_from(prefix, Bound::<&[u8]>::Unbounded)
    }

    /// The entries of [`prefix`](DbTable::prefix) whose user keys come from `start` on; see [`Table::prefix_from`].
    pub fn prefix_from(&self, prefix: impl AsRef<[u8]>, start: Bound<impl AsRef<[u8]>>) -> DbRange {
        match no_prefix_in(&self.order) {
            Some(error) => DbRange(Ends::new(self.cursor(), Some(error))),
            None => self.range(prefix_bounds_from(prefix.as_ref(), start)),
        }
    }

    /// Returns a cursor over the entries of several tables of one database, or of [ranges](DbTable::range) of them, before
    /// the first entry.
    ///
    /// The order in which the tables are given matters only if two of them have the same user key with the same sequence
    /// number: these entries come in that order, and a snapshot sees the first.
    ///
    /// As in a [merge of plain tables](crate::Table::merge), tables are not read that their properties or filters rule out.
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
        let mut all = Vec::new();
        for range in inputs {
            let cursor = range.into().0.into_whole()?;
            if cursor.snapshot.is_some() {
                return Err(Error::new(
                    ErrorKind::InvalidState,
                    "a range shows a snapshot, and a merge takes all versions: merge ranges of the tables, and call `at` on the merge",
                ));
            }
            all.extend(cursor.stored.inputs);
        }
        let merged = MergeCursor::of_inputs(all)?;
        let order = user_order(&merged.order).cloned();
        let order = order.unwrap_or(Order::Bytewise);
        Ok(DbCursor::new(merged, order))
    }
}

/// All of the table.
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
        DbRange(Ends::new(self, None))
    }
}

impl Iterator for DbRange {
    type Item = Result<DbEntry>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.take(Way::Forward)
    }

    /// The last entry, at once: those between are not read, and so not checked.
    fn last(mut self) -> Option<Self::Item> {
        self.next_back()
    }
}

impl DoubleEndedIterator for DbRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.take(Way::Back)
    }
}

impl std::iter::FusedIterator for DbRange {}
