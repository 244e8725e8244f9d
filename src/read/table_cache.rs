//! Tables that are opened on demand, and closed when there are too many.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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

/// The tables that are open or being opened.
#[derive(Debug)]
struct Open<K, T> {
    slots: HashMap<K, Slot<T>>,
    /// Number of calls so far.
    calls: u64,
}

#[derive(Debug)]
struct Slot<T> {
    cell: Arc<Cell<T>>,
    /// Its weight when it was last weighed; 0 until it is open.
    weight: u64,
    /// The call that last asked for it.
    used: u64,
}

/// A table, once it is open.
#[derive(Debug)]
struct Cell<T> {
    table: OnceLock<T>,
    /// Held while the table is being opened: only those wait for it who ask for it.
    opening: Mutex<()>,
}

impl<T: OpenTable> Cell<T> {
    fn get_or_open(&self, open: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(table) = self.table.get() {
            return Ok(table.clone());
        }
        let _opening = lock(&self.opening);
        match self.table.get() {
            Some(table) => Ok(table.clone()),
            None => {
                let opened = open()?;
                Ok(self.table.get_or_init(|| opened).clone())
            }
        }
    }

    /// The table's weight; 0 if it is not open.
    fn weight(&self) -> u64 {
        let table = self.table.get();
        table.map_or(0, |table| table.weight().max(1) as u64)
    }
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
    /// Tables are weighed when one is opened, or has grown since it was last asked for.
    ///
    /// # Errors
    ///
    /// That of `open`. The next call tries again.
    pub fn get(&self, key: &K, open: impl FnOnce() -> Result<T>) -> Result<T> {
        let (cell, known_weight) = self.cell(key);
        let table = cell.get_or_open(open);
        let is_as_known = table.is_ok() && cell.weight() == known_weight;
        drop(cell);
        if !is_as_known {
            // Closing a file is not done under the lock.
            drop(self.make_room());
        }
        table
    }

    /// Closes the table that goes by `key`, if it is open: before its file is deleted or replaced.
    pub fn remove(&self, key: &K) {
        let removed = lock(&self.open).slots.remove(key);
        drop(removed);
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

    /// The cell of `key`, which is asked for now, and its weight when it was last weighed.
    fn cell(&self, key: &K) -> (Arc<Cell<T>>, u64) {
        let mut open = lock(&self.open);
        open.calls += 1;
        let used = open.calls;
        let slot = open.slots.entry(key.clone()).or_insert_with(|| Slot {
            cell: Arc::new(Cell {
                table: OnceLock::new(),
                opening: Mutex::new(()),
            }),
            weight: 0,
            used,
        });
        slot.used = used;
        (Arc::clone(&slot.cell), slot.weight)
    }

    /// Weighs the open tables, and returns those that must be closed: those used the longest time ago. Forgets those that could
    /// not be opened.
    fn make_room(&self) -> Vec<Slot<T>> {
        let mut open = lock(&self.open);
        let slots = &mut open.slots;
        slots.retain(|_, slot| {
            slot.weight = slot.cell.weight();
            slot.weight > 0 || Arc::strong_count(&slot.cell) > 1
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

/// A panic in `open` leaves no table behind, and nothing else panics under a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
