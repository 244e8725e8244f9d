//! Sorted entries in memory, which a cursor walks as it does a table.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::block::{Block, BlockBuilder};
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

/// Entries of a [`Sorted`] that follow each other, as a copy: a cursor walks them like a data block.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) block: Block<Bytes>,
    /// The first and the last key.
    ends: (Bytes, Bytes),
}

/// Bytes of the entries that are copied at a time, so that a step seldom searches the map; the last one may exceed it.
const CHUNK_LEN: usize = 1 << 10;

impl Chunk {
    /// The bound of the entries that come after these on the way.
    pub(super) fn end(&self, way: Way) -> Bound<&[u8]> {
        Bound::Excluded(way.pick(&self.ends.1, &self.ends.0))
    }
}

impl Sorted {
    /// Copies the first entries of a walk along `way` that starts at `bound`; `None` if there are none.
    pub(super) fn chunk(&self, bound: Bound<&[u8]>, way: Way) -> Result<Option<Chunk>> {
        let bound = bound.map(|key| self.key(Bytes::copy_from_slice(key)));
        let (mut chunk, mut len) = (Vec::new(), 0);
        let mut take = |(key, value): (&SortedKey, &Bytes)| {
            len += key.key.len() + value.len();
            chunk.push((key.key.clone(), value.clone()));
            len < CHUNK_LEN
        };
        let entries = self.read();
        match way {
            Way::Forward => entries.range((bound, Bound::Unbounded)).all(&mut take),
            Way::Back => entries
                .range((Bound::Unbounded, bound))
                .rev()
                .all(&mut take),
        };
        drop(entries);
        if way == Way::Back {
            chunk.reverse();
        }
        let (Some((first, _)), Some((last, _))) = (chunk.first(), chunk.last()) else {
            return Ok(None);
        };
        let ends = (first.clone(), last.clone());
        let mut builder = BlockBuilder::new(16);
        for (key, value) in &chunk {
            if !builder.has_room(key.len(), value.len()) {
                let message = "an entry in memory is longer than a table can hold";
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            builder.add(key, common_prefix(builder.last_key(), key), value);
        }
        let block = Block::parse(builder.finish(Bytes::copy_from_slice));
        let block = block.map_err(|defect| defect.locate(Section::Data, 0))?;
        Ok(Some(Chunk { block, ends }))
    }
}
