//! Tables that are opened on demand, and closed when there are too many.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::read::table::Table;

/// Keeps tables open that were used lately: at most so many, and at most so many bytes of their indexes and filters.
///
/// Tables go by any key, such as a number or a path. One that is not open is opened once, however many threads ask for it at the
/// same time; those that ask for others do not wait. A table that had to be closed stays open as long as somebody has a clone of it.
///
/// Blocks have a cache of their own: see [`BlockCache`](crate::BlockCache).
///
/// ```
/// use leveltable::{Table, TableCache};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # for number in 0..3 {
/// #     leveltable::TableBuilder::create(dir.path().join(format!("{number:06}.ldb")))?.finish()?;
/// # }
/// let tables = TableCache::new(100, 64 << 20);
/// for number in [0, 1, 2, 1, 0] {
///     let path = dir.path().join(format!("{number:06}.ldb"));
///     let table: Table = tables.get(&number, || Table::open(path))?;
///     assert_eq!(table.get("key")?, None);
/// }
/// assert_eq!(tables.len(), 3);
/// # Ok::<(), leveltable::Error>(())
/// ```
pub struct TableCache<K, T> {
    max_open: usize,
    max_bytes: u64,
    open: Mutex<Open<K, T>>,
}

/// A table that a [`TableCache`] can hold: a handle of which clones share everything.
pub trait OpenTable: Clone {
    /// Bytes of memory that it takes now, without blocks. It may grow.
    fn weight(&self) -> usize;
}

impl OpenTable for Table {
    fn weight(&self) -> usize {
        Table::weight(self)
    }
}

/// The tables that are open or being opened.
#[derive(Debug)]
struct Open<K, T> {
    slots: HashMap<K, Slot<T>>,
    /// Their weights together.
    bytes: u64,
    /// Number of calls so far.
    calls: u64,
}

#[derive(Debug)]
struct Slot<T> {
    /// `None` while the table is being opened: only those wait for it who ask for it.
    table: Arc<Mutex<Option<T>>>,
    /// Its weight when it was last asked for; 0 while it is being opened.
    weight: u64,
    /// The call that last asked for it.
    used: u64,
}

impl<K, T> fmt::Debug for TableCache<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableCache")
            .field("max_open", &self.max_open)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Clone, T: OpenTable> TableCache<K, T> {
    /// Keeps at most `max_open` tables open, which take at most `max_bytes` bytes of memory; but always the one used last.
    pub fn new(max_open: usize, max_bytes: u64) -> TableCache<K, T> {
        let open = Open {
            slots: HashMap::new(),
            bytes: 0,
            calls: 0,
        };
        TableCache {
            max_open,
            max_bytes,
            open: Mutex::new(open),
        }
    }

    /// Returns a clone of the table that goes by `key`, which `open` opens if it is not open.
    ///
    /// # Errors
    ///
    /// That of `open`. The next call tries again.
    pub fn get(&self, key: &K, open: impl FnOnce() -> Result<T>) -> Result<T> {
        let slot = self.slot(key);
        let opened = {
            let mut table = lock(&slot);
            match &*table {
                Some(table) => Ok(table.clone()),
                None => open().inspect(|opened| *table = Some(opened.clone())),
            }
        };
        let closed = self.settle(key, &slot, opened.as_ref().ok());
        // Closing a file is not done under the lock.
        drop(closed);
        opened
    }

    /// Closes the table that goes by `key`, if it is open: before its file is deleted or replaced.
    pub fn remove(&self, key: &K) {
        let removed = lock(&self.open).remove(key);
        drop(removed);
    }

    /// Number of open tables.
    pub fn len(&self) -> usize {
        lock(&self.open).slots.len()
    }

    /// Whether no table is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, key: &K) -> Arc<Mutex<Option<T>>> {
        let mut open = lock(&self.open);
        open.calls += 1;
        let used = open.calls;
        let slot = open.slots.entry(key.clone()).or_insert_with(|| Slot {
            table: Arc::new(Mutex::new(None)),
            weight: 0,
            used,
        });
        slot.used = used;
        Arc::clone(&slot.table)
    }

    /// Notes what came of opening, and returns the tables that must be closed for it: those used the longest time ago.
    fn settle(&self, key: &K, table: &Arc<Mutex<Option<T>>>, opened: Option<&T>) -> Vec<Slot<T>> {
        let mut open = lock(&self.open);
        let Open { slots, bytes, .. } = &mut *open;
        match slots.get_mut(key) {
            Some(slot) if Arc::ptr_eq(&slot.table, table) => match opened {
                Some(opened) => {
                    let weight = opened.weight() as u64;
                    *bytes = *bytes - slot.weight + weight;
                    slot.weight = weight;
                }
                None => return open.remove(key).into_iter().collect(),
            },
            // It was removed meanwhile.
            _ => {}
        }
        let mut closed = Vec::new();
        while open.slots.len() > 1
            && (open.slots.len() > self.max_open || open.bytes > self.max_bytes)
        {
            let oldest = open.slots.iter().min_by_key(|(_, slot)| slot.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            closed.extend(open.remove(&oldest));
        }
        closed
    }
}

impl<K: Eq + Hash, T> Open<K, T> {
    fn remove(&mut self, key: &K) -> Option<Slot<T>> {
        let slot = self.slots.remove(key)?;
        self.bytes -= slot.weight;
        Some(slot)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A caller's `open` that panics leaves no table behind, which is what the slot says.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
