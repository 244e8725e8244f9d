//! Tables of a LevelDB database: internal keys over a [`Table`].

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::cursor::DbCursor;
use crate::db::range::{DbRange, stored_bounds};
use crate::error::{ErrorKind, Result, Section};
#[cfg(doc)]
use crate::format::internal_key::InternalKeyComparator;
use crate::format::internal_key::{InternalKey, ValueType, internal_order, not_internal, user_key};
use crate::read::bounds::{KeyRange, prefix_bounds_from};
use crate::read::cursor::Cursor;
use crate::read::merge::MergeCursor;
use crate::read::options::{OpenOptions, ReadOptions};
use crate::read::range::{Ends, no_prefix_in};
use crate::read::recognise::may_be_internal;
use crate::read::source::Source;
use crate::read::table::Table;
use crate::read::table_cache::OpenTable;

/// The state of a user key at some sequence number: a value or a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Version {
    /// It has this value.
    Value(Bytes),
    /// It was deleted. Not the same as absent: an engine must not go on to look in older tables.
    Deleted,
}

impl Version {
    /// The value; `None` of a deletion.
    pub fn into_value(self) -> Option<Bytes> {
        match self {
            Version::Value(value) => Some(value),
            Version::Deleted => None,
        }
    }
}

/// An entry of a database's table. Engines make those of a memtable with [`new`](DbEntry::new).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DbEntry {
    /// The key as the database's user knows it.
    pub user_key: Bytes,
    /// When it was written: larger is later.
    pub sequence: u64,
    /// The value, or that the key was deleted.
    pub version: Version,
}

impl DbEntry {
    /// A version of `user_key`, written as number `sequence`.
    ///
    /// ```
    /// use leveltable::db::{DbEntry, Version};
    ///
    /// let entry = DbEntry::new("apple", 4, Version::Value("red".into()));
    /// assert_eq!(entry.user_key, "apple");
    /// ```
    pub fn new(user_key: impl Into<Bytes>, sequence: u64, version: Version) -> DbEntry {
        DbEntry {
            user_key: user_key.into(),
            sequence,
            version,
        }
    }

    #[inline]
    pub(super) fn of(key: InternalKey<'_>, value: impl FnOnce() -> Bytes) -> DbEntry {
        let version = match key.value_type {
            ValueType::Value => Version::Value(value()),
            ValueType::Deletion => Version::Deleted,
        };
        DbEntry::new(Bytes::copy_from_slice(key.user_key), key.sequence, version)
    }
}

/// A table of a LevelDB database (`000005.ldb` beside `CURRENT` and `MANIFEST-*`): user keys with
/// sequence numbers, deletions and several versions of a key.
///
/// Like [`Table`], cheap to clone and safe to share between threads.
///
/// ```
/// use leveltable::{DbTable, OpenOptions, WriteOptions, db::Version};
///
/// let mut file = Vec::new();
/// let mut builder = WriteOptions::leveldb().build_db(&mut file);
/// builder.delete(b"apple", 9)?; // the newest version of a key comes first
/// builder.put(b"apple", 4, b"red")?;
/// builder.finish()?;
///
/// let table = OpenOptions::new().open_db_source(file)?;
/// assert_eq!(table.get(b"apple")?, Some(Version::Deleted));
/// assert_eq!(table.at(8).get(b"apple")?, Some(Version::Value("red".into())));
/// assert_eq!(table.at(3).get(b"apple")?, None, "not yet written");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DbTable {
    pub(super) table: Table,
    /// Of user keys.
    pub(super) order: Order,
}

impl OpenOptions {
    /// Opens the database's table at `path`. [`comparator`](OpenOptions::comparator) and
    /// [`filter_policy`](OpenOptions::filter_policy) apply to user keys here.
    ///
    /// # Errors
    ///
    /// As [`open`](OpenOptions::open), and [`ErrorKind::Corruption`] if an index key that is read is no internal key, as in a plain
    /// table.
    pub fn open_db(&self, path: impl AsRef<Path>) -> Result<DbTable> {
        self.open_db_source(Source::open(path)?)
    }

    /// Opens a database's table from memory, an open file, or anything that implements [`ReadAt`](crate::ReadAt).
    ///
    /// # Errors
    ///
    /// As [`open_db`](OpenOptions::open_db).
    pub fn open_db_source(&self, source: impl Into<Source>) -> Result<DbTable> {
        let order = self.order.clone().unwrap_or(Order::Bytewise);
        let mut options = self.clone();
        if !self.stored_order {
            options.order = Some(internal_order(order.clone()));
        }
        let hint = "if this is not a database's table, open it with Table";
        let table = options.open_source(source).map_err(|e| match e.kind() {
            ErrorKind::Comparator => e.with_hint(hint),
            _ => e,
        })?;
        let (file, index) = (&table.inner.file, &table.inner.index);
        if let Some(key) = index.tops().find(|key| !may_be_internal(key)) {
            return Err(file.locate(not_internal(key), Section::Index, index.footer.index.offset));
        }
        Ok(DbTable { table, order })
    }
}

impl DbTable {
    /// Opens the database's table at `path` with [`OpenOptions::new`].
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open_db`].
    pub fn open(path: impl AsRef<Path>) -> Result<DbTable> {
        OpenOptions::new().open_db(path)
    }

    /// Returns the same table, read with `options`: a cheap clone; see [`Table::with_read_options`].
    pub fn with_read_options(&self, options: ReadOptions) -> DbTable {
        DbTable {
            table: self.table.with_read_options(options),
            order: self.order.clone(),
        }
    }

    /// Returns a cursor over all entries, before the first.
    pub fn cursor(&self) -> DbCursor {
        self.iter().0.front
    }

    /// All entries: user keys in order, the versions of each newest first, deletions included; from either end.
    /// [`at`](DbTable::at) a sequence number, what a snapshot sees.
    pub fn iter(&self) -> DbRange {
        self.range(..)
    }

    /// All entries of the user keys within `bounds`, from either end. A filter of the prefixes of user keys is asked as by
    /// [`Table::range`].
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

    /// Returns about how many bytes of the file all versions of the user keys within `bounds` take; see [`Table::approximate_bytes`].
    ///
    /// # Errors
    ///
    /// As [`Table::approximate_bytes`].
    pub fn approximate_bytes(&self, bounds: impl KeyRange) -> Result<u64> {
        let bounds = stored_bounds(&bounds.key_bounds());
        self.table.approximate_bytes(bounds)
    }

    /// Returns a user key up to which about `fraction` of the bytes of all entries lie; see [`Table::key_at_fraction`].
    ///
    /// # Errors
    ///
    /// As [`Table::key_at_fraction`].
    pub fn key_at_fraction(&self, fraction: f64) -> Result<Option<Bytes>> {
        let key = self.table.key_at_fraction(fraction)?;
        Ok(key.map(|key| key.slice_ref(user_key(&key))))
    }

    /// The table as it is stored: internal keys in [`InternalKeyComparator`] order. For statistics, and
    /// for cursors over stored keys.
    pub fn as_table(&self) -> &Table {
        &self.table
    }
}

impl OpenTable for DbTable {
    fn weight(&self) -> usize {
        self.table.weight()
    }
}
