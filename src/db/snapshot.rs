//! A database's table as of a sequence number: lookups of one user key or many, and ranges.

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::entry::{DbEntry, Version};
use crate::error::Result;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::block_search::SearchPart;
use crate::format::internal_key::{InternalKey, not_internal, user_key};
use crate::read::parts::index::BlockRef;
use crate::read::store::Loaded;
use crate::read::table::Table;
use crate::read::table::get_many::{Lookup, Unread};

/// A table as of a sequence number: of each user key the newest version that is not newer; made by [`DbTable::at`](crate::DbTable::at).
///
/// Lookups return deletions, after which an engine must not look in older tables. [`DbRange::at`](crate::db::DbRange::at) shows what a
/// snapshot sees of a range.
///
/// ```
/// # use leveltable::{OpenOptions, WriteOptions, db::Version};
/// # let mut file = Vec::new();
/// # let mut builder = WriteOptions::new().build_db(&mut file);
/// builder.put("apple", 9, "green")?;
/// builder.put("apple", 4, "red")?;
/// builder.delete("banana", 7)?;
/// # builder.finish()?;
/// # let table = OpenOptions::new().open_db_source(file)?;
/// let snapshot = table.at(8);
/// assert_eq!(snapshot.get("apple")?, Some(Version::Value("red".into())));
/// assert_eq!(snapshot.get_entry("apple")?.map(|entry| entry.sequence), Some(4));
/// assert_eq!(snapshot.get("banana")?, Some(Version::Deleted));
/// assert_eq!(table.iter().at(8).count(), 1, "the apple");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Snapshot<'t> {
    /// Has internal keys.
    pub(super) table: &'t Table,
    /// The order of user keys.
    pub(super) order: &'t Order,
    pub(super) sequence: u64,
}

impl Snapshot<'_> {
    /// Returns the version of `user_key` that the snapshot sees; `None` if the table holds none.
    ///
    /// Reads at most one data block, and none if the filter rejects the key. Reads a second one if an index key has this user
    /// key and the filter cannot exclude a block.
    ///
    /// # Errors
    ///
    /// Errors of reading a data block; see [`Table::get`].
    pub fn get(&self, user_key: impl AsRef<[u8]>) -> Result<Option<Version>> {
        Ok(self.get_entry(user_key)?.map(|entry| entry.version))
    }

    /// Returns the version of `user_key` with its own sequence number, like [`get`](Snapshot::get).
    ///
    /// # Errors
    ///
    /// Same as [`get`](Snapshot::get).
    pub fn get_entry(&self, user_key: impl AsRef<[u8]>) -> Result<Option<DbEntry>> {
        let target = InternalKey::seek_target(user_key.as_ref(), self.sequence);
        let Some(first) = self.table.opened.candidate(&target, self.table.order()?)? else {
            return Ok(None);
        };
        let first = first.to_ref();
        self.find_from(first, self.table.block(first)?, &target)
    }

    /// Returns the entries of many user keys, in the order of `user_keys`, like [`get_entry`](Snapshot::get_entry).
    ///
    /// Reads like [`Table::get_many`]: each block once, and many at a time.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Snapshot::get), for a block that cannot be read; no entry is returned then.
    pub fn get_entries<K: AsRef<[u8]>>(&self, user_keys: &[K]) -> Result<Vec<Option<DbEntry>>> {
        let mut wanted = Vec::with_capacity(user_keys.len());
        for (position, user_key) in user_keys.iter().enumerate() {
            let key = InternalKey::seek_target(user_key.as_ref(), self.sequence);
            let first = self.table.opened.candidate(&key, self.table.order()?)?;
            wanted.extend(first.map(|found| Lookup {
                found,
                position,
                key,
            }));
        }
        let mut entries = vec![None; user_keys.len()];
        let mut search = |wanted: &Lookup<'_, Vec<u8>>, (bytes, block): Loaded<'_>| {
            let found = wanted.found.to_ref();
            let block = self.table.parse(found, bytes.slice(block))?;
            if let Some(slot) = entries.get_mut(wanted.position) {
                *slot = self.find_from(found, block, &wanted.key)?;
            }
            Ok(())
        };
        let mut unread = Unread::new(&self.table.opened, self.table.read);
        unread.search_held(wanted, &mut search)?;
        unread.search(&mut search)?;
        Ok(entries)
    }

    /// Searches `block`, and the following ones that may hold more versions, for the first entry at or after `target`. `None` if it
    /// has another user key.
    ///
    /// A block may hold more versions if the index key before it has the same user key: A separator that LevelDB shortened lies between two
    /// user keys, but nothing says who wrote a table.
    fn find_from(
        &self,
        mut found: BlockRef,
        mut block: Block<Bytes>,
        target: &[u8],
    ) -> Result<Option<DbEntry>> {
        let opened = &self.table.opened;
        let is_same = |key| self.order.compare(key, user_key(target)).is_eq();
        loop {
            let mut cursor = BlockCursor::new(block);
            let locate = |defect| opened.store.locate(found, defect);
            let sought = cursor.seek(target, self.table.order()?, SearchPart::default());
            if sought.map_err(locate)? {
                let Some(key) = InternalKey::parse(cursor.key()) else {
                    return Err(locate(not_internal(cursor.key())));
                };
                let value = || cursor.block.data.slice(cursor.value_range());
                return Ok(is_same(key.user_key).then(|| DbEntry::of(key, value)));
            }
            let (next, separator) = (found.block + 1, opened.parts.index.key(found));
            if next == self.table.data_blocks() || !is_same(user_key(separator)) {
                return Ok(None);
            }
            found = opened.block(next)?;
            block = self.table.block(found)?;
        }
    }
}
