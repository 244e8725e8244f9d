//! Tables of a LevelDB database: internal keys over a [`Table`].

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;

use crate::comparator::Order;
#[cfg(doc)]
use crate::db::key::InternalKeyComparator;
use crate::db::key::{self, InternalKey, MAX_SEQUENCE, ValueType, internal_order};
use crate::db::range::DbRange;
use crate::db::recognise::may_be_internal;
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::format::Defect;
use crate::format::block_cursor::BlockCursor;
use crate::format::block_search::SearchPart;
use crate::read::index::BlockRef;
use crate::read::options::{OpenOptions, ReadOptions};
use crate::read::range::KeyRange;
use crate::read::source::Source;
use crate::read::table::Table;

/// What a database's table says of a user key at some sequence number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Version {
    /// It has this value.
    Value(Bytes),
    /// It was deleted. Not the same as absent: an engine must not go on to look in older tables.
    Deleted,
}

/// An entry of a database's table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DbEntry {
    /// The key as the database's user knows it.
    pub user_key: Bytes,
    /// When it was written: larger is later.
    pub sequence: u64,
    /// What was written.
    pub version: Version,
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
/// assert_eq!(table.get_at(b"apple", 8)?, Some(Version::Value("red".into())));
/// assert_eq!(table.get_at(b"apple", 3)?, None, "not yet written");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DbTable {
    table: Table,
    /// Of user keys.
    order: Order,
}

impl OpenOptions {
    /// Opens the database's table at `path`. [`comparator`](OpenOptions::comparator) and
    /// [`filter_policy`](OpenOptions::filter_policy) apply to user keys here.
    ///
    /// # Errors
    ///
    /// As [`open`](OpenOptions::open), and [`ErrorKind::Corruption`] if an index key is no internal key, as in a plain
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
        let as_plain =
            |e: Error| e.with_hint("if this is not a database's table, open it with Table");
        let table = options
            .open_source(source)
            .map_err(|error| match error.kind() {
                ErrorKind::Comparator => as_plain(error),
                _ => error,
            })?;
        let index = table.index();
        let index_keys = (0..index.len()).map(|i| index.key(i));
        if let Some(key) = { index_keys }.find(|key| !may_be_internal(key)) {
            let index_offset = table.file().footer()?.index.offset;
            let error = table
                .file()
                .locate(not_internal(key), Section::Index, index_offset);
            return Err(as_plain(error));
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

    /// Returns the newest version of `user_key`; `None` if the table holds none.
    ///
    /// # Errors
    ///
    /// Those of reading a data block; see [`Table::get`].
    pub fn get(&self, user_key: impl AsRef<[u8]>) -> Result<Option<Version>> {
        self.find_at(user_key.as_ref(), MAX_SEQUENCE)
    }

    /// Returns the newest version of `user_key` that is no newer than `sequence`: what a snapshot of that number sees.
    /// `None` if the table holds none.
    ///
    /// Reads at most one data block, and none if the filter knows that the key is absent. Reads a second
    /// one if an index key has this user key and the filter cannot exclude a block.
    ///
    /// # Errors
    ///
    /// Those of reading a data block; see [`Table::get`].
    pub fn get_at(&self, user_key: impl AsRef<[u8]>, sequence: u64) -> Result<Option<Version>> {
        self.find_at(user_key.as_ref(), sequence)
    }

    fn find_at(&self, user_key: &[u8], sequence: u64) -> Result<Option<Version>> {
        let target = InternalKey::seek_target(user_key, sequence);
        let Some(first) = self.table.seek_block(&target)? else {
            return Ok(None);
        };
        let blocks = self.blocks_of(first, user_key);
        let mut passes = false;
        for found in blocks.clone() {
            if !self.table.block_filter_rejects(found, &target)? {
                passes = true;
                break;
            }
        }
        // If one passes, all are searched: a filter that is wrong may hide a key, but not its newest versions alone.
        for found in blocks.filter(|_| passes) {
            if let Some(version) = self.find(found, &target)? {
                return Ok(version);
            }
        }
        Ok(None)
    }

    /// The data blocks that may hold versions of `user_key`, from `first` on. It is one, unless its index key has the same
    /// user key: LevelDB cuts between two user keys where it shortens, but nothing says who made a table.
    fn blocks_of(
        &self,
        first: BlockRef,
        user_key: &[u8],
    ) -> impl Iterator<Item = BlockRef> + Clone {
        let index = self.table.index();
        let goes_on = move |i: &usize| {
            let separator = key::user_key(index.key(i - 1));
            self.order.compare(separator, user_key).is_eq()
        };
        let more = (first.block + 1..index.len()).take_while(goes_on);
        std::iter::once(first).chain(more.map(move |i| index.block(i)))
    }

    /// Searches a data block for `target`. Returns `None` if it is past all of the block's keys, `Some(None)` if it leads to another
    /// user key.
    fn find(&self, found: BlockRef, target: &[u8]) -> Result<Option<Option<Version>>> {
        let mut cursor = BlockCursor::new(self.table.block(found, SearchPart::WHOLE)?);
        let locate = |defect| self.table.locate(found.block, defect);
        if !cursor.seek(target, self.table.order()?).map_err(locate)? {
            return Ok(None);
        }
        let entry = parse(cursor.key()).map_err(locate)?;
        let value = || cursor.block().data().slice(cursor.value_range());
        let is_same = self
            .order
            .compare(entry.user_key, key::user_key(target))
            .is_eq();
        Ok(Some(is_same.then(|| version(entry.value_type, value))))
    }

    /// Returns the same table, read with `options`: a cheap clone; see [`Table::with`].
    pub fn with(&self, options: ReadOptions) -> DbTable {
        DbTable {
            table: self.table.with(options),
            order: self.order.clone(),
        }
    }

    /// All entries: user keys in order, the versions of each newest first; from either end.
    pub fn iter(&self) -> DbRange {
        self.range(..)
    }

    /// All versions of the user keys within `bounds`, from either end. A filter of the prefixes of user keys is asked as by
    /// [`Table::range`].
    pub fn range(&self, bounds: impl KeyRange) -> DbRange {
        let (lower, upper) = bounds.into_bounds();
        if self.table.prefixes_exclude(&lower, &upper) {
            return DbRange(None);
        }
        // The newest and oldest keys that a user key could be stored under.
        let newest = |key: &Vec<u8>| InternalKey::seek_target(key, MAX_SEQUENCE);
        let oldest = |key: &Vec<u8>| {
            let mut stored = Vec::new();
            let value_type = ValueType::Deletion;
            InternalKey {
                user_key: key,
                sequence: 0,
                value_type,
            }
            .encode(&mut stored);
            stored
        };
        let lower = match &lower {
            Bound::Included(key) => Bound::Included(newest(key)),
            Bound::Excluded(key) => Bound::Excluded(oldest(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let upper = match &upper {
            Bound::Included(key) => Bound::Included(oldest(key)),
            Bound::Excluded(key) => Bound::Excluded(newest(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        DbRange(Some(self.table.range((lower, upper))))
    }

    /// Whether the table may hold a user key that begins with `prefix`; see [`Table::may_contain_prefix`].
    pub fn may_contain_prefix(&self, prefix: impl AsRef<[u8]>) -> bool {
        let prefix = prefix.as_ref();
        let first = InternalKey::seek_target(prefix, MAX_SEQUENCE);
        !matches!(self.order, Order::Bytewise) || self.table.may_contain_prefix_at(prefix, &first)
    }

    /// The table as it is stored: internal keys in [`InternalKeyComparator`] order. For statistics, and
    /// for cursors over stored keys.
    pub fn as_table(&self) -> &Table {
        &self.table
    }
}

/// All entries, as by [`DbTable::iter`].
impl IntoIterator for &DbTable {
    type Item = Result<DbEntry>;
    type IntoIter = DbRange;

    fn into_iter(self) -> DbRange {
        self.iter()
    }
}

pub(super) fn parse(stored: &[u8]) -> Result<InternalKey<'_>, Defect> {
    InternalKey::parse(stored).ok_or_else(|| not_internal(stored))
}

#[cold]
fn not_internal(stored: &[u8]) -> Defect {
    let found = match stored.last_chunk::<8>() {
        Some([value_type, ..]) => format!("{} with type {value_type}", show_key(stored)),
        None => format!("{} of {} bytes", show_key(stored), stored.len()),
    };
    let expected = "internal keys of at least 8 bytes and of type 0 or 1";
    Defect::new(expected, found)
}

pub(super) fn version(value_type: ValueType, value: impl FnOnce() -> Bytes) -> Version {
    match value_type {
        ValueType::Value => Version::Value(value()),
        ValueType::Deletion => Version::Deleted,
    }
}
