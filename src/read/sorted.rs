//! Sorted entries in memory, which a merge walks beside tables.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::vec;

use bytes::Bytes;

use crate::comparator::Order;
use crate::read::bounds::Way;

/// A sorted map of keys to values that can grow while cursors walk it. Clones share it.
#[derive(Clone)]
pub(crate) struct Sorted {
    order: Order,
    entries: Arc<RwLock<Entries>>,
}

type Entries = BTreeMap<SortedKey, Bytes>;

/// A key that knows its order, since that of a map cannot be chosen at run time.
#[derive(Clone)]
struct SortedKey {
    key: Bytes,
    order: Order,
}

impl Ord for SortedKey {
    fn cmp(&self, other: &SortedKey) -> Ordering {
        self.order.compare(&self.key, &other.key)
    }
}

impl PartialOrd for SortedKey {
    fn partial_cmp(&self, other: &SortedKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortedKey {
    fn eq(&self, other: &SortedKey) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SortedKey {}

impl Sorted {
    pub(crate) fn new(order: Order) -> Sorted {
        Sorted {
            order,
            entries: Arc::default(),
        }
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// Adds an entry, or replaces the value of its key.
    pub(crate) fn insert(&self, key: Bytes, value: Bytes) {
        let key = self.key(key);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(key, value);
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    /// Returns the first entry at or after `key`.
    pub(crate) fn first_from(&self, key: &[u8]) -> Option<(Bytes, Bytes)> {
        let key = self.key(Bytes::copy_from_slice(key));
        let entries = self.read();
        let (key, value) = entries.range(key..).next()?;
        Some((key.key.clone(), value.clone()))
    }

    fn key(&self, key: Bytes) -> SortedKey {
        let order = self.order.clone();
        SortedKey { key, order }
    }

    /// A panic while the lock is held leaves the map whole.
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sorted").finish_non_exhaustive()
    }
}

/// Number of entries that a cursor copies at a time, so that a step seldom searches the map.
const CHUNK: usize = 16;

/// A position in a [`Sorted`]. Shows an entry that is added during a walk if it lies past the entries copied.
#[derive(Debug, Clone)]
pub(super) struct SortedCursor {
    pub(super) sorted: Sorted,
    /// The current entry and the next ones on the way.
    chunk: vec::IntoIter<(Bytes, Bytes)>,
    way: Way,
}

impl SortedCursor {
    /// A cursor on no entry.
    pub(super) fn new(sorted: Sorted) -> SortedCursor {
        SortedCursor {
            sorted,
            chunk: vec::IntoIter::default(),
            way: Way::Forward,
        }
    }

    /// Moves to the first entry of a walk along `way` that starts at `bound`. Returns whether there is one.
    pub(super) fn seek_from(&mut self, bound: Bound<&[u8]>, way: Way) -> bool {
        let bound = bound.map(|key| self.sorted.key(Bytes::copy_from_slice(key)));
        let entries = self.sorted.read();
        let mut range = match way {
            Way::Forward => entries.range((bound, Bound::Unbounded)),
            Way::Back => entries.range((Bound::Unbounded, bound)),
        };
        let next = || match way {
            Way::Forward => range.next(),
            Way::Back => range.next_back(),
        };
        let chunk = std::iter::from_fn(next).take(CHUNK);
        let chunk = chunk.map(|(key, value)| (key.key.clone(), value.clone()));
        let chunk: Vec<_> = chunk.collect();
        drop(entries);
        (self.chunk, self.way) = (chunk.into_iter(), way);
        !self.chunk.as_slice().is_empty()
    }

    /// Moves from an entry to the next one on the way.
    pub(super) fn go(&mut self, way: Way) -> bool {
        let left = self.chunk.next();
        let is_there = way == self.way && !self.chunk.as_slice().is_empty();
        is_there || left.is_some_and(|(key, _)| self.seek_from(Bound::Excluded(&key), way))
    }

    fn entry(&self) -> Option<&(Bytes, Bytes)> {
        self.chunk.as_slice().first()
    }

    pub(super) fn key(&self) -> &[u8] {
        self.entry().map_or(&[], |(key, _)| key)
    }

    pub(super) fn value(&self) -> &[u8] {
        self.entry().map_or(&[], |(_, value)| value)
    }

    pub(super) fn value_bytes(&self) -> Bytes {
        self.entry()
            .map_or_else(Bytes::new, |(_, value)| value.clone())
    }
}
