//! Tables that are opened on demand, and closed when there are too many.

use std::collections::HashMap;
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
#[derive(Debug)]
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

/// After so many calls, tables are weighed again, even if none was opened.
const CALLS_BETWEEN: u64 = 256;

/// The tables that are open or being opened.
#[derive(Debug)]
struct Open<K, T> {
    slots: HashMap<K, Slot<T>>,
    /// Number of calls so far.
    calls: u64,
}

#[derive(Debug)]
struct Slot<T> {
    /// `None` while the table is being opened: only those wait for it who ask for it.
    table: Arc<Mutex<Option<T>>>,
    /// Its weight when a table was last opened; 0 until it is open itself.
    weight: u64,
    /// The call that last asked for it.
    used: u64,
}

/// Keeps at most 500 tables open, which take at most 64 MiB.
impl<K: Eq + Hash + Clone, T: OpenTable> Default for TableCache<K, T> {
    fn default() -> TableCache<K, T> {
        TableCache::new(500, 64 << 20)
    }
}

impl<K: Eq + Hash + Clone, T: OpenTable> TableCache<K, T> {
    /// Keeps at most `max_open` tables open, which take at most `max_bytes` bytes of memory; but always the one used last.
    pub fn new(max_open: usize, max_bytes: u64) -> TableCache<K, T> {
        let open = Open {
            slots: HashMap::new(),
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
        let (slot, mut is_due) = self.slot(key);
        let opened = {
            let mut table = lock(&slot);
            match &*table {
                Some(table) => Ok(table.clone()),
                None => {
                    is_due = true;
                    open().inspect(|opened| *table = Some(opened.clone()))
                }
            }
        };
        drop(slot);
        if is_due {
            // Closing a file is not done under the lock.
            drop(self.make_room());
        }
        opened
    }

    /// Closes the table that goes by `key`, if it is open: before its file is deleted or replaced.
    pub fn remove(&self, key: &K) {
        let removed = lock(&self.open).slots.remove(key);
        drop(removed);
    }

    /// Returns clones of the tables that are open and that no other call is looking at, in no order.
    pub fn tables(&self) -> Vec<T> {
        let open = lock(&self.open);
        let slots = open.slots.values();
        slots
            .filter_map(|slot| slot.table.try_lock().ok()?.clone())
            .collect()
    }

    /// Number of open tables.
    pub fn len(&self) -> usize {
        let open = lock(&self.open);
        open.slots.values().filter(|slot| slot.weight > 0).count()
    }

    /// Whether no table is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of `key`, and whether it is time to weigh the tables again: those that are open may have grown.
    fn slot(&self, key: &K) -> (Arc<Mutex<Option<T>>>, bool) {
        let mut open = lock(&self.open);
        open.calls += 1;
        let used = open.calls;
        let slot = open.slots.entry(key.clone()).or_insert_with(|| Slot {
            table: Arc::new(Mutex::new(None)),
            weight: 0,
            used,
        });
        slot.used = used;
        (Arc::clone(&slot.table), used.is_multiple_of(CALLS_BETWEEN))
    }

    /// Weighs the open tables again, and returns those that must be closed: those used the longest time
    /// ago. Forgets those that could not be opened.
    fn make_room(&self) -> Vec<Slot<T>> {
        let mut open = lock(&self.open);
        let slots = &mut open.slots;
        slots.retain(|_, slot| {
            slot.table.clear_poison();
            // If it is being opened, or looked at by another call, it keeps the weight that it had, none if it is new.
            let Ok(table) = slot.table.try_lock() else {
                return true;
            };
            let weight = table.as_ref().map(|table| table.weight().max(1));
            slot.weight = weight.unwrap_or(0) as u64;
            slot.weight > 0 || Arc::strong_count(&slot.table) > 1
        });
        let mut closed = Vec::new();
        loop {
            let opened = slots.iter().filter(|(_, slot)| slot.weight > 0);
            let bytes: u64 = opened.clone().map(|(_, slot)| slot.weight).sum();
            let count = opened.clone().count();
            let oldest = opened.min_by_key(|(_, slot)| slot.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return closed;
            };
            if count == 1 || count <= self.max_open && bytes <= self.max_bytes {
                return closed;
            }
            closed.extend(slots.remove(&oldest));
        }
    }
}

/// A panic in `open` leaves no table behind, which is what the slot says.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.clear_poison();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
