//! Versions in memory, beside a database's tables.

use bytes::Bytes;

use crate::comparator::{Comparator, Order};
use crate::db::range::{DbRange, stored_bounds};
#[cfg(doc)]
use crate::db::table::DbTable;
use crate::db::table::{DbEntry, Version};
use crate::format::internal_key::{InternalKey, ValueType, internal_order};
use crate::read::bounds::KeyRange;
use crate::read::cursor::Cursor;
use crate::read::sorted::Sorted;

/// Versions in memory, sorted as a database's table holds them: what an engine has written and not flushed yet. An input of
/// [`DbTable::merge`].
///
/// Clones share the versions. Threads can add some while others read. A range shows a version that is added during its walk, or
/// does not: one [at a sequence number](crate::db::DbCursor::at) that was complete before the walk began always shows the same.
/// (A cursor over all versions that turns around may show a version that was added meanwhile out of order.)
///
/// ```
/// use leveltable::{DbTable, OpenOptions, WriteOptions, db::{Memtable, Version}};
///
/// # let mut file = Vec::new();
/// let mut builder = WriteOptions::new().build_db(&mut file);
/// builder.put("apple", 4, "red")?;
/// builder.put("banana", 3, "yellow")?;
/// builder.finish()?;
/// let table = OpenOptions::new().open_db_source(file)?;
/// let memtable = Memtable::new();
/// memtable.add("apple", 9, Version::Deleted);
///
/// let live = DbTable::merge([memtable.range("a"..), table.range("a"..)])?.at(9);
/// let live: Vec<_> = live.into_iter().collect::<leveltable::Result<_>>()?;
/// assert_eq!(live.len(), 1);
/// assert_eq!(live[0].user_key, "banana");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Memtable {
    /// Under internal keys.
    stored: Sorted,
    /// Of user keys.
    order: Order,
}

impl Default for Memtable {
    fn default() -> Memtable {
        Memtable::new()
    }
}

impl Memtable {
    /// Returns an empty memtable whose user keys are in bytewise order.
    pub fn new() -> Memtable {
        Memtable::of(Order::Bytewise)
    }

    /// Returns an empty memtable whose user keys are in the order of `comparator`.
    pub fn with_comparator(comparator: impl Comparator + 'static) -> Memtable {
        Memtable::of(Order::of(comparator))
    }

    fn of(order: Order) -> Memtable {
        Memtable {
            stored: Sorted::new(internal_order(order.clone())),
            order,
        }
    }

    /// Adds a version of `user_key`, or replaces the one of this sequence number and type. A sequence number above
    /// [`MAX_SEQUENCE`](crate::db::MAX_SEQUENCE) is stored as that.
    pub fn add(&self, user_key: impl AsRef<[u8]>, sequence: u64, version: Version) {
        let (value_type, value) = match version {
            Version::Value(value) => (ValueType::Value, value),
            Version::Deleted => (ValueType::Deletion, Bytes::new()),
        };
        let key = InternalKey::new(user_key.as_ref(), sequence, value_type);
        self.stored.insert(key.to_stored().into(), value);
    }

    /// Number of versions, deletions counted.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Whether there are no versions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the newest version of `user_key` that is no newer than `sequence`, with its own sequence number; `None` if there
    /// is none.
    pub fn get_at(&self, user_key: impl AsRef<[u8]>, sequence: u64) -> Option<DbEntry> {
        let target = InternalKey::seek_target(user_key.as_ref(), sequence);
        let (stored, value) = self.stored.first_from(&target)?;
        let found = InternalKey::parse(&stored)?;
        let is_it = self
            .order
            .compare(found.user_key, user_key.as_ref())
            .is_eq();
        is_it.then(|| DbEntry::of(found, || value))
    }

    /// All versions: user keys in order, the versions of each newest first, deletions included; from either end.
    pub fn iter(&self) -> DbRange {
        self.range(..)
    }

    /// All versions of the user keys within `bounds`, from either end.
    pub fn range(&self, bounds: impl KeyRange) -> DbRange {
        let bounds = stored_bounds(&bounds.key_bounds());
        let cursor = Cursor::of_memory(&self.stored, bounds);
        DbRange::new(cursor, &self.order, None)
    }
}
