//! Looking user keys up in a database's table: one, or many at once.

use bytes::Bytes;

use crate::db::key::{self, InternalKey, MAX_SEQUENCE, ValueType};
use crate::db::table::{DbEntry, DbTable, Version, not_internal, version};
use crate::error::{Error, Result};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::read::index::BlockRef;
#[cfg(doc)]
use crate::read::table::Table;

/// On the entry that a lookup found, whose key is an internal key.
type Found = BlockCursor<Bytes>;

impl DbTable {
    /// Returns the newest version of `user_key`; `None` if the table holds none.
    ///
    /// # Errors
    ///
    /// Those of reading a data block; see [`Table::get`].
    pub fn get(&self, user_key: impl AsRef<[u8]>) -> Result<Option<Version>> {
        self.get_at(user_key, MAX_SEQUENCE)
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
        let found = self.find(user_key.as_ref(), sequence)?;
        Ok(found.map(|found| version_of(&found)))
    }

    /// Returns the newest version of `user_key` with its sequence number, like [`get`](DbTable::get).
    ///
    /// # Errors
    ///
    /// As [`get`](DbTable::get).
    pub fn get_entry(&self, user_key: impl AsRef<[u8]>) -> Result<Option<DbEntry>> {
        self.get_entry_at(user_key, MAX_SEQUENCE)
    }

    /// Returns the newest version of `user_key` that is no newer than `sequence`, with its own sequence number, like
    /// [`get_at`](DbTable::get_at).
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build_db(&mut file);
    /// # builder.put("apple", 9, "green")?;
    /// # builder.put("apple", 4, "red")?;
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_db_source(file)?;
    /// let entry = table.get_entry_at("apple", 8)?;
    /// assert_eq!(entry.map(|entry| entry.sequence), Some(4));
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get`](DbTable::get).
    pub fn get_entry_at(
        &self,
        user_key: impl AsRef<[u8]>,
        sequence: u64,
    ) -> Result<Option<DbEntry>> {
        let found = self.find(user_key.as_ref(), sequence)?;
        Ok(found.map(|found| DbEntry {
            user_key: Bytes::copy_from_slice(key::user_key(found.key())),
            sequence: sequence_of(&found),
            version: version_of(&found),
        }))
    }

    /// Calls `read` with the newest version of `user_key`, and returns what it returns; see
    /// [`get_with_at`](DbTable::get_with_at).
    ///
    /// # Errors
    ///
    /// As [`get`](DbTable::get).
    pub fn get_with<R>(
        &self,
        user_key: impl AsRef<[u8]>,
        read: impl FnOnce(InternalKey<'_>, &[u8]) -> R,
    ) -> Result<Option<R>> {
        self.get_with_at(user_key, MAX_SEQUENCE, read)
    }

    /// Calls `read` with the key and the value of the newest version of `user_key` that is no newer than `sequence`, and
    /// returns what it returns; `None` if the table holds none. The value of a deletion is empty.
    ///
    /// Copies neither.
    ///
    /// # Errors
    ///
    /// As [`get`](DbTable::get).
    pub fn get_with_at<R>(
        &self,
        user_key: impl AsRef<[u8]>,
        sequence: u64,
        read: impl FnOnce(InternalKey<'_>, &[u8]) -> R,
    ) -> Result<Option<R>> {
        let found = self.find(user_key.as_ref(), sequence)?;
        Ok(found.map(|found| {
            let key = InternalKey {
                user_key: key::user_key(found.key()),
                sequence: sequence_of(&found),
                value_type: value_type_of(&found),
            };
            read(key, found.value())
        }))
    }

    /// Returns the newest versions of many user keys, in the order of `user_keys`; see
    /// [`get_many_at`](DbTable::get_many_at).
    ///
    /// # Errors
    ///
    /// As [`get_many_at`](DbTable::get_many_at).
    pub fn get_many<K: AsRef<[u8]>>(&self, user_keys: &[K]) -> Result<Vec<Option<Version>>> {
        self.get_many_at(user_keys, MAX_SEQUENCE)
    }

    /// Returns for many user keys the newest version that is no newer than `sequence`, in the order of `user_keys`; `None`
    /// for each of which the table holds none.
    ///
    /// Reads like [`Table::get_many`]: each block once, and many at a time.
    ///
    /// # Errors
    ///
    /// As [`get`](DbTable::get), for the first block that cannot be read; no version is returned then.
    pub fn get_many_at<K: AsRef<[u8]>>(
        &self,
        user_keys: &[K],
        sequence: u64,
    ) -> Result<Vec<Option<Version>>> {
        let mut wanted = Vec::with_capacity(user_keys.len());
        for (at, user_key) in user_keys.iter().enumerate() {
            let target = InternalKey::seek_target(user_key.as_ref(), sequence);
            if let Some(first) = self.first_block(&target)? {
                wanted.push((first, at, target));
            }
        }
        wanted.sort_unstable_by_key(|(first, at, _)| (first.block, *at));
        let mut versions = vec![None; user_keys.len()];
        let of_blocks: Vec<_> = wanted
            .chunk_by(|(a, ..), (b, ..)| a.block == b.block)
            .collect();
        let found: Vec<BlockRef> = of_blocks
            .iter()
            .filter_map(|keys| Some(keys.first()?.0))
            .collect();
        // The first block that failed, and why.
        let mut failed: Option<(usize, Error)> = None;
        self.table.fetch_blocks(&found, |i, block| {
            let keys = of_blocks.get(i).copied().unwrap_or_default();
            let mut search = |block: Block<Bytes>| {
                for (first, at, target) in keys {
                    let fetch = |wanted: BlockRef| {
                        if wanted.block == first.block {
                            Ok(block.clone())
                        } else {
                            self.table.block(wanted)
                        }
                    };
                    let found = self.find_from(*first, target, fetch)?;
                    if let (Some(found), Some(slot)) = (found, versions.get_mut(*at)) {
                        *slot = Some(version_of(&found));
                    }
                }
                Ok(())
            };
            if let Err(error) = block.and_then(&mut search)
                && failed.as_ref().is_none_or(|&(before, _)| i < before)
            {
                failed = Some((i, error));
            }
        });
        failed.map_or(Ok(versions), |(_, error)| Err(error))
    }

    /// Whether the newest version of `user_key` is a value: `false` if it was deleted, or the table holds none.
    ///
    /// # Errors
    ///
    /// As [`get`](DbTable::get).
    pub fn contains_key(&self, user_key: impl AsRef<[u8]>) -> Result<bool> {
        self.contains_key_at(user_key, MAX_SEQUENCE)
    }

    /// Whether a snapshot of `sequence` sees a value of `user_key` in this table.
    ///
    /// # Errors
    ///
    /// As [`get`](DbTable::get).
    pub fn contains_key_at(&self, user_key: impl AsRef<[u8]>, sequence: u64) -> Result<bool> {
        let found = self.find(user_key.as_ref(), sequence)?;
        Ok(found.is_some_and(|found| value_type_of(&found) == ValueType::Value))
    }

    /// Whether the table may hold a version of `user_key`, a deletion perhaps, by filter and index alone, without I/O.
    /// `false` is certain; see [`Table::may_contain`].
    pub fn may_contain(&self, user_key: impl AsRef<[u8]>) -> bool {
        let user_key = user_key.as_ref();
        let newest = InternalKey::seek_target(user_key, MAX_SEQUENCE);
        let oldest = InternalKey::oldest(user_key);
        let excluded = self.table.excludes_versions(&newest, &oldest);
        // An error says that the order is not known.
        !excluded.unwrap_or(false)
    }

    fn find(&self, user_key: &[u8], sequence: u64) -> Result<Option<Found>> {
        let target = InternalKey::seek_target(user_key, sequence);
        let Some(first) = self.first_block(&target)? else {
            return Ok(None);
        };
        let fetch = |block| self.table.block(block);
        self.find_from(first, &target, fetch)
    }

    /// The first data block that may hold `target` or an older version, by index and filter.
    fn first_block(&self, target: &[u8]) -> Result<Option<BlockRef>> {
        let Some(first) = self.table.seek_block(target)? else {
            return Ok(None);
        };
        for found in self.blocks_from(first, target) {
            if !self.table.block_filter_rejects(found, target)? {
                // All are searched then: a filter that is wrong may hide a key, but not its newest versions alone.
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// The data blocks that may hold versions of the user key of `target`, from `first` on. It is one, unless its index key
    /// has the same user key: LevelDB cuts between two user keys where it shortens, but nothing says who made a table.
    fn blocks_from(&self, first: BlockRef, target: &[u8]) -> impl Iterator<Item = BlockRef> {
        let index = self.table.index();
        let goes_on = move |i: &usize| {
            let separator = key::user_key(index.key(i - 1));
            self.order.compare(separator, key::user_key(target)).is_eq()
        };
        let more = (first.block + 1..index.len()).take_while(goes_on);
        std::iter::once(first).chain(more.map(move |i| index.block(i)))
    }

    /// Searches the blocks from `first` on for the first entry at or after `target`; `None` if it is of another user key.
    fn find_from(
        &self,
        first: BlockRef,
        target: &[u8],
        mut fetch: impl FnMut(BlockRef) -> Result<Block<Bytes>>,
    ) -> Result<Option<Found>> {
        for found in self.blocks_from(first, target) {
            let mut cursor = BlockCursor::new(fetch(found)?);
            let locate = |defect| self.table.locate(found.block, defect);
            let sought = cursor.seek(target, self.table.order()?);
            if !sought.map_err(locate)? {
                continue;
            }
            let Some(entry) = InternalKey::parse(cursor.key()) else {
                return Err(locate(not_internal(cursor.key())));
            };
            let same = self.order.compare(entry.user_key, key::user_key(target));
            return Ok(same.is_eq().then_some(cursor));
        }
        Ok(None)
    }
}

fn sequence_of(found: &Found) -> u64 {
    key::tag(found.key()).unwrap_or(0) >> 8
}

fn value_type_of(found: &Found) -> ValueType {
    ValueType::of_tag(key::tag(found.key()).unwrap_or(0))
}

fn version_of(found: &Found) -> Version {
    version(value_type_of(found), || {
        found.block().data().slice(found.value_range())
    })
}
