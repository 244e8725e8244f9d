//! Sorted entries in memory, which a merge walks beside tables.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;

use crate::comparator::Order;
use crate::read::merge::Way;

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
    /// Ascending.
    chunk: Vec<(Bytes, Bytes)>,
    at: usize,
}

impl SortedCursor {
    /// A cursor on no entry.
    pub(super) fn new(sorted: Sorted) -> SortedCursor {
        SortedCursor {
            sorted,
            chunk: Vec::new(),
            at: 0,
        }
    }

    /// Moves to the first entry within a lower bound on the way forward, or to the last one within an upper bound on the way
    /// back. Returns whether there is one.
    pub(super) fn seek(&mut self, bound: Bound<&[u8]>, way: Way) -> bool {
        let bound = bound.map(|key| self.sorted.key(Bytes::copy_from_slice(key)));
        let entries = self.sorted.read();
        let copy = |(key, value): (&SortedKey, &Bytes)| (key.key.clone(), value.clone());
        self.chunk.clear();
        match way {
            Way::Forward => {
                let range = entries.range((bound, Bound::Unbounded));
                self.chunk.extend(range.take(CHUNK).map(copy));
                self.at = 0;
            }
            Way::Back => {
                let range = entries.range((Bound::Unbounded, bound)).rev();
                self.chunk.extend(range.take(CHUNK).map(copy));
                self.chunk.reverse();
                self.at = self.chunk.len().saturating_sub(1);
            }
        }
        !self.chunk.is_empty()
    }

    /// Moves from an entry to the next one on the way.
    pub(super) fn step(&mut self, way: Way) -> bool {
        let at = match way {
            Way::Forward => self.at.checked_add(1),
            Way::Back => self.at.checked_sub(1),
        };
        if let Some(at) = at.filter(|&at| at < self.chunk.len()) {
            self.at = at;
            return true;
        }
        let key = self.key().to_vec();
        self.seek(Bound::Excluded(&key), way)
    }

    pub(super) fn key(&self) -> &[u8] {
        self.chunk.get(self.at).map_or(&[], |(key, _)| key)
    }

    pub(super) fn value(&self) -> Bytes {
        let entry = self.chunk.get(self.at);
        entry.map_or_else(Bytes::new, |(_, value)| value.clone())
    }

    pub(super) fn value_slice(&self) -> &[u8] {
        self.chunk.get(self.at).map_or(&[], |(_, value)| value)
    }
}
