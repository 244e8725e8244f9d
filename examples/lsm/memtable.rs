//! The memtable: a skip list that is walked while it grows, as one input of a merge among tables.

use std::cmp::{Ordering, Reverse};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;
use leveltable::db::{InternalKey, InternalKeyComparator, ValueType};
use leveltable::{
    BytewiseComparator, Comparator, Compression, OpenOptions, SortedCursor, SortedInput,
    WriteOptions,
};

/// A key as a table stores it, with the sequence number of a change; and the value, empty if the change is a deletion.
pub(crate) type Change = (StoredKey, Bytes);

/// Changes that are in no table yet.
pub(crate) type Memtable = SkipMap<StoredKey, Bytes>;

/// User key, sequence number and type of a change, in the order of a database's tables: of a user key the newest first.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredKey(pub(crate) Bytes);

impl StoredKey {
    pub(crate) fn new(user_key: &[u8], sequence: u64, value_type: ValueType) -> StoredKey {
        let mut stored = Vec::new();
        let key = InternalKey {
            user_key,
            sequence,
            value_type,
        };
        key.encode(&mut stored);
        StoredKey(stored.into())
    }

    pub(crate) fn sequence(&self) -> u64 {
        InternalKey::parse(&self.0).map_or(0, |key| key.sequence)
    }

    /// The user key, and sequence number and type as one number.
    fn parts(&self) -> Option<(&[u8], Reverse<u64>)> {
        let (user_key, tag) = self.0.split_last_chunk()?;
        Some((user_key, Reverse(u64::from_le_bytes(*tag))))
    }
}

impl Ord for StoredKey {
    fn cmp(&self, other: &StoredKey) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for StoredKey {
    fn partial_cmp(&self, other: &StoredKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The newest value of `key` that a snapshot sees, `None` in place of one that was deleted; `None` if the memtable has no change of the key.
pub(crate) fn get(memtable: &Memtable, key: &[u8], at: u64) -> Option<Option<Bytes>> {
    let place = StoredKey::new(key, at, ValueType::Value);
    let newest = memtable.lower_bound(Bound::Included(&place))?;
    let found = InternalKey::parse(&newest.key().0).filter(|found| found.user_key == key)?;
    let is_value = found.value_type == ValueType::Value;
    Some(is_value.then(|| newest.value().clone()))
}

/// Stands on a change of the memtable, which may grow meanwhile.
#[derive(Clone)]
pub(crate) struct MemtableCursor(Arc<Memtable>, Option<Change>);

impl MemtableCursor {
    /// Before the first change.
    pub(crate) fn new(memtable: &Arc<Memtable>) -> MemtableCursor {
        MemtableCursor(memtable.clone(), None)
    }

    /// Moves to what `find` finds, from the current key on.
    fn stand<F>(&mut self, find: F) -> leveltable::Result<bool>
    where
        F: for<'m> FnOnce(&'m Memtable, Option<&StoredKey>) -> Option<Entry<'m, StoredKey, Bytes>>,
    {
        let from = self.1.take();
        let found = find(&self.0, from.as_ref().map(|(key, _)| key));
        self.1 = found.map(|entry| (entry.key().clone(), entry.value().clone()));
        Ok(self.1.is_some())
    }
}

impl SortedInput for MemtableCursor {
    fn advance(&mut self) -> leveltable::Result<bool> {
        self.stand(|memtable, from| {
            from.map_or_else(
                || memtable.front(),
                |key| memtable.lower_bound(Bound::Excluded(key)),
            )
        })
    }

    fn key(&self) -> &[u8] {
        self.1.as_ref().map_or(&[], |(key, _)| &key.0)
    }

    fn value(&self) -> &[u8] {
        self.1.as_ref().map_or(&[], |(_, value)| value)
    }
}

impl SortedCursor for MemtableCursor {
    fn seek(&mut self, key: &[u8]) -> leveltable::Result<bool> {
        let key = StoredKey(Bytes::copy_from_slice(key));
        self.stand(|memtable, _| memtable.lower_bound(Bound::Included(&key)))
    }

    fn seek_to_first(&mut self) -> leveltable::Result<bool> {
        self.stand(|memtable, _| memtable.front())
    }

    fn seek_to_last(&mut self) -> leveltable::Result<bool> {
        self.stand(|memtable, _| memtable.back())
    }

    fn prev(&mut self) -> leveltable::Result<bool> {
        self.stand(|memtable, from| memtable.upper_bound(Bound::Excluded(from?)))
    }

    fn comparator(&self) -> leveltable::Result<Arc<dyn Comparator>> {
        Ok(Arc::new(InternalKeyComparator::new(BytewiseComparator)))
    }
}

/// Returns the changes in a record of the log.
pub(crate) fn changes_in(record: &[u8]) -> leveltable::Result<Vec<Change>> {
    let table = OpenOptions::new().open_db_source(record.to_vec())?;
    let stored = table.as_table().iter();
    stored
        .map(|change| change.map(|(key, value)| (StoredKey(key), value)))
        .collect()
}

/// Returns a table of these changes.
pub(crate) fn table_of(changes: &[Change]) -> leveltable::Result<Vec<u8>> {
    let options = WriteOptions::leveldb().compression(Compression::None);
    let mut builder = options.no_filter().build_db(Vec::new());
    for (key, value) in changes {
        builder.table_mut().add(&key.0, value)?;
    }
    Ok(builder.finish_into_writer()?.0)
}
