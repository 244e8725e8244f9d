//! Tables of a LevelDB database: internal keys over a [`Table`].

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::cursor::DbCursor;
use crate::db::entry::Version;
use crate::db::range::{DbRange, stored_bounds};
use crate::db::snapshot::Snapshot;
use crate::error::{Result, Section};
use crate::format::internal_key::{
    InternalKey, MAX_SEQUENCE, internal_order, not_internal, user_key,
};
use crate::read::open::options::OpenOptions;
use crate::read::open::recognise::may_be_internal;
use crate::read::parts::bounds::KeyRange;
use crate::read::source::Source;
use crate::read::store::ReadOptions;
use crate::read::table::Table;
use crate::read::table::opened::Opened;
use crate::read::table::table_cache::OpenTable;
use crate::read::walk::range::prefix_range;
use crate::read::walk::table_walk::TableWalk;

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
    /// Has internal keys.
    table: Table,
    /// The order of user keys.
    order: Order,
}

impl OpenOptions {
    /// Opens the database's table at `path`. [`comparator`](OpenOptions::comparator) and
    /// [`filter_policy`](OpenOptions::filter_policy) apply to user keys here.
    ///
    /// # Errors
    ///
    /// Same as [`open`](OpenOptions::open), and [`ErrorKind::Corruption`](crate::ErrorKind::Corruption) if an index key that is read is
    /// not an internal key, as in a plain table.
    pub fn open_db(&self, path: impl AsRef<Path>) -> Result<DbTable> {
        self.open_db_source(Source::open(path)?)
    }

    /// Opens a database's table from memory, an open file, or anything that implements [`ReadAt`](crate::ReadAt).
    ///
    /// # Errors
    ///
    /// Same as [`open_db`](OpenOptions::open_db).
    pub fn open_db_source(&self, source: impl Into<Source>) -> Result<DbTable> {
        let order = self.settings.order.clone().unwrap_or(Order::Bytewise);
        let mut options = self.clone();
        if !self.settings.stored_order {
            options.settings.order = Some(internal_order(order.clone()));
        }
        let table = options.open_source(source)?;
        let Opened { parts, store, .. } = &*table.opened;
        let index = &parts.index;
        if let Some(key) = index.tops().find(|key| !may_be_internal(key)) {
            let offset = index.footer.index.offset;
            return Err(store.file.locate(not_internal(key), Section::Index, offset));
        }
        Ok(DbTable { table, order })
    }
}

impl DbTable {
    /// Opens the database's table at `path` with [`OpenOptions::new`].
    ///
    /// # Errors
    ///
    /// Same as [`OpenOptions::open_db`].
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

    /// Returns the table as of `sequence`. [`MAX_SEQUENCE`] sees the newest versions.
    pub fn at(&self, sequence: u64) -> Snapshot<'_> {
        Snapshot {
            table: &self.table,
            order: &self.order,
            sequence,
        }
    }

    /// Returns the newest version of `user_key`, like [`Snapshot::get`] at [`MAX_SEQUENCE`]; `None` if the table holds
    /// none.
    ///
    /// # Errors
    ///
    /// Errors of reading a data block; see [`Table::get`].
    pub fn get(&self, user_key: impl AsRef<[u8]>) -> Result<Option<Version>> {
        self.at(MAX_SEQUENCE).get(user_key)
    }

    /// Whether the table may hold a version of `user_key`, perhaps a deletion, according to filter and index alone. `false` is
    /// certain; see [`Table::may_contain`].
    ///
    /// # Errors
    ///
    /// Same as [`Table::may_contain`].
    pub fn may_contain(&self, user_key: impl AsRef<[u8]>) -> Result<bool> {
        let newest = InternalKey::seek_target(user_key.as_ref(), MAX_SEQUENCE);
        self.table.may_contain(newest)
    }

    /// Returns a [cursor](DbCursor) over all entries, before the first. Reads nothing yet.
    pub fn cursor(&self) -> DbCursor {
        self.iter().into_cursor()
    }

    /// All entries: user keys in order, the versions of each newest first, deletions included; from either end. For
    /// those that a snapshot sees, use [`DbRange::at`]. Reads nothing until the first entry is taken.
    pub fn iter(&self) -> DbRange {
        self.range(..)
    }

    /// All entries of the user keys within `bounds`, from either end. Checks a filter of the prefixes of user
    /// keys like [`Table::range`], and may read it; reads nothing else until the first entry is taken.
    pub fn range(&self, bounds: impl KeyRange) -> DbRange {
        DbRange::of_table(&self.table, (bounds.key_bounds(), None))
    }

    /// All entries of the user keys that begin with `prefix`, like [`range`](DbTable::range).
    ///
    /// Only in bytewise order do such user keys always lie together. In any other order the only item is an error of
    /// [`ErrorKind::Comparator`](crate::ErrorKind::Comparator): use a range there.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> DbRange {
        self.prefix_from(prefix, Bound::<&[u8]>::Unbounded)
    }

    /// The entries of [`prefix`](DbTable::prefix) whose user keys are at or after `start`; see [`Table::prefix_from`].
    pub fn prefix_from(&self, prefix: impl AsRef<[u8]>, start: Bound<impl AsRef<[u8]>>) -> DbRange {
        let range = prefix_range(Some(&self.order), prefix.as_ref(), start);
        DbRange::of_table(&self.table, range)
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
    /// [`ErrorKind::Comparator`](crate::ErrorKind::Comparator) if the names of the orders of the tables' user keys differ, or an order is
    /// not known. [`ErrorKind::InvalidState`](crate::ErrorKind::InvalidState) for a range that shows a snapshot or was advanced.
    pub fn merge<R: Into<DbRange>>(inputs: impl IntoIterator<Item = R>) -> Result<DbCursor> {
        let versions = inputs.into_iter().map(|input| input.into().into_versions());
        let merged = TableWalk::merge(versions)?;
        Ok(DbCursor::of_walk(TableWalk::Merge(merged)))
    }

    /// Returns approximately how many bytes of the file all versions of the user keys within `bounds` take; see
    /// [`Table::approximate_bytes`].
    ///
    /// # Errors
    ///
    /// Same as [`Table::approximate_bytes`].
    pub fn approximate_bytes(&self, bounds: impl KeyRange) -> Result<u64> {
        self.table.approximate_bytes(stored_bounds(bounds))
    }

    /// Returns a user key before which about `fraction` of the bytes of all entries lie; see
    /// [`Table::key_at_fraction`].
    ///
    /// # Errors
    ///
    /// Same as [`Table::key_at_fraction`].
    pub fn key_at_fraction(&self, fraction: f64) -> Result<Option<Bytes>> {
        let key = self.table.key_at_fraction(fraction)?;
        Ok(key.map(|key| key.slice_ref(user_key(&key))))
    }

    /// The table as it is stored: internal keys in [`InternalKeyComparator`](crate::db::InternalKeyComparator) order. For statistics, and
    /// for cursors over stored keys. A lookup of a user key there is an error, unless its last eight bytes happen to form a sequence
    /// number and a type.
    pub fn as_table(&self) -> &Table {
        &self.table
    }
}

/// The whole table.
impl From<&DbTable> for DbRange {
    fn from(table: &DbTable) -> DbRange {
        table.iter()
    }
}

impl OpenTable for DbTable {
    fn weight(&self) -> usize {
        self.table.weight()
    }
}
