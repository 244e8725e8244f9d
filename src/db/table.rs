//! Tables of a LevelDB database: internal keys over a [`Table`].

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;

use crate::comparator::Order;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Result, Section};
#[cfg(doc)]
use crate::format::internal_key::InternalKeyComparator;
use crate::format::internal_key::{
    InternalKey, MAX_SEQUENCE, internal_order, not_internal, user_key,
};
use crate::read::open::options::OpenOptions;
use crate::read::open::recognise::may_be_internal;
use crate::read::parts::bounds::{Bounds, KeyRange};
use crate::read::source::Source;
use crate::read::store::ReadOptions;
use crate::read::table::Table;
use crate::read::table::opened::Opened;
use crate::read::table::table_cache::OpenTable;

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
    /// The order of user keys.
    pub(super) order: Order,
}

impl OpenOptions {
    /// Opens the database's table at `path`. [`comparator`](OpenOptions::comparator) and
    /// [`filter_policy`](OpenOptions::filter_policy) apply to user keys here.
    ///
    /// # Errors
    ///
    /// Same as [`open`](OpenOptions::open), and [`ErrorKind::Corruption`] if an index key that is read is not an internal key, as
    /// in a plain table.
    pub fn open_db(&self, path: impl AsRef<Path>) -> Result<DbTable> {
        self.open_db_source(Source::open(path)?)
    }

    /// Opens a database's table from memory, an open file, or anything that implements [`ReadAt`](crate::ReadAt).
    ///
    /// # Errors
    ///
    /// Same as [`open_db`](OpenOptions::open_db).
    pub fn open_db_source(&self, source: impl Into<Source>) -> Result<DbTable> {
        let order = self.order.clone().unwrap_or(Order::Bytewise);
        let mut options = self.clone();
        if !self.stored_order {
            options.order = Some(internal_order(order.clone()));
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

    /// Returns approximately how many bytes of the file all versions of the user keys within `bounds` take; see
    /// [`Table::approximate_bytes`].
    ///
    /// # Errors
    ///
    /// Same as [`Table::approximate_bytes`].
    pub fn approximate_bytes(&self, bounds: impl KeyRange) -> Result<u64> {
        let bounds = stored_bounds(&bounds.key_bounds());
        self.table.approximate_bytes(bounds)
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

    /// The table as it is stored: internal keys in [`InternalKeyComparator`] order. For statistics, and
    /// for cursors over stored keys. A lookup of a user key there is an error, unless its last eight bytes happen to form a sequence
    /// number and a type.
    pub fn as_table(&self) -> &Table {
        &self.table
    }
}

impl OpenTable for DbTable {
    fn weight(&self) -> usize {
        self.table.weight()
    }
}

/// The bounds of the stored keys whose user keys are within bounds.
pub(super) fn stored_bounds((lower, upper): &Bounds) -> Bounds {
    // The newest and the oldest key that a user key could be stored under.
    let newest = |key: &Vec<u8>| InternalKey::seek_target(key, MAX_SEQUENCE);
    let oldest = |key: &Vec<u8>| InternalKey::oldest(key);
    let lower = match lower {
        Bound::Excluded(key) => Bound::Excluded(oldest(key)),
        lower => lower.as_ref().map(newest),
    };
    let upper = match upper {
        Bound::Included(key) => Bound::Included(oldest(key)),
        upper => upper.as_ref().map(newest),
    };
    (lower, upper)
}
