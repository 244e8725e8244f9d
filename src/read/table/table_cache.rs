//! Opens tables on demand, and closes some when there are too many.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::Result;
use crate::read::source::stats::{SHARDS, shard_of_this_thread};
use crate::read::store::cache::CacheStats;
use crate::read::table::Table;

/// Keeps recently used tables open, up to a number of tables and a number of bytes of their indexes and filters.
///
/// A table's key can be anything, such as a number or a path. A table that is not open is opened once, however many threads ask for
/// it at the same time; threads that ask for others do not wait. A closed table stays open as long as somebody has a clone of it.
///
/// Blocks have their own cache: see [`BlockCache`](crate::BlockCache).
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
/// tables.remove(&1); // before its file is deleted
/// assert!(!tables.is_empty());
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug)]
pub struct TableCache<K, T> {
    max_open: u64,
    max_bytes: u64,
    /// The tables that are open or being opened.
    tables: Mutex<Cells<K, T>>,
    /// Open tables that a thread has found before: it finds them again under a lock without contention. A table that is closed is removed
    /// from all of these, while `tables` is locked.
    known: Box<[Known<K, T>]>,
    /// Number of open tables, and their weight.
    open: AtomicU64,
    bytes: AtomicU64,
    /// Advances with each call that opens or weighs a table, and with one in [`CALLS`] others. Not with every call, since threads would
    /// contend for it.
    now: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

/// Number of calls of a thread before the time advances: the precision of the order in which tables were used.
const CALLS: u64 = 64;

type Cells<K, T> = HashMap<K, Arc<Cell<T>>>;

/// A table that a [`TableCache`] can hold: a handle whose clones share everything.
pub trait OpenTable: Clone {
    /// Bytes of memory that it takes now, without blocks, such as [`Table::weight`]. It may grow.
    fn weight(&self) -> usize;
}

impl OpenTable for Table {
    fn weight(&self) -> usize {
        Table::weight(self)
    }
}

/// The tables that the threads of one shard have found, in cache lines of its own; processors fetch these in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Known<K, T>(Mutex<(Cells<K, T>, Hits)>);

/// Number of calls that found their table open.
type Hits = u64;

/// A table, once it is open.
#[derive(Debug)]
struct Cell<T> {
    table: OnceLock<T>,
    /// Held while the table is being opened: only threads that ask for this table wait.
    opening: Mutex<()>,
    /// Its weight when it was last weighed; 0 until it is open, and after it is closed.
    weight: AtomicU64,
    /// When it was last used: twice the time, plus one if it was open already.
    used: AtomicU64,
}

impl<T> Default for Cell<T> {
    fn default() -> Cell<T> {
        Cell {
            table: OnceLock::new(),
            opening: Mutex::new(()),
            weight: AtomicU64::new(0),
            used: AtomicU64::new(0),
        }
    }
}

impl<T: OpenTable> Cell<T> {
    /// Notes when the table was used. Does not store the same time again, so that threads do not contend for it.
    #[inline]
    fn use_at(&self, time: u64) {
        if self.used.load(Relaxed) != time {
            self.used.store(time, Relaxed);
        }
    }

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
}

/// Keeps at most 500 tables open, which take at most 64 MiB.
impl<K: Eq + Hash + Clone, T: OpenTable> Default for TableCache<K, T> {
    fn default() -> TableCache<K, T> {
        TableCache::new(500, 64 << 20)
    }
}

impl<K: Eq + Hash + Clone, T: OpenTable> TableCache<K, T> {
    /// Keeps at most `max_open` tables open, which take at most `max_bytes` bytes of memory; but always the most recent
    /// one.
    pub fn new(max_open: usize, max_bytes: u64) -> TableCache<K, T> {
        let known = |_| Known(Mutex::new((HashMap::new(), 0)));
        TableCache {
            max_open: max_open as u64,
            max_bytes,
            tables: Mutex::new(HashMap::new()),
            known: (0..SHARDS).map(known).collect(),
            open: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            now: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// Returns a clone of the table with this `key`; opens it with `open` if it is not open.
    ///
    /// Tables are weighed when they are opened, or have grown since they were last used. If there are too many, or they are too large,
    /// the least recently used are closed; two that were used within some calls of each other may be closed in either order.
    ///
    /// Getting an open table that the thread has found before takes a lock that few other threads take, and neither allocates nor
    /// reads. No lock is held while `open` runs, except one of this key. In C++ LevelDB this is `TableCache`, which may open a table
    /// twice.
    ///
    /// # Errors
    ///
    /// The error of `open`. The next call tries again.
    pub fn get(&self, key: &K, open: impl FnOnce() -> Result<T>) -> Result<T> {
        let (table, has_grown) = match self.find(key) {
            Some(found) => found,
            None => (self.find_or_open(key, open)?, true),
        };
        if has_grown && self.is_over() {
            self.make_room();
        }
        Ok(table)
    }

    /// Closes the table with this `key`, if it is open: call it before its file is deleted or replaced. Takes some twenty locks, one
    /// after the other.
    pub fn remove(&self, key: &K) {
        let removed = self.take(&mut lock(&self.tables), key);
        drop(removed); // after the lock is released
    }

    /// Number of open tables. Takes no lock.
    pub fn len(&self) -> usize {
        self.open.load(Relaxed) as usize
    }

    /// Whether no table is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters of the cache's work so far. A call that waits while another opens its table is a miss, and so is one that fails; the bytes
    /// are the weight of the open tables. Takes some twenty locks, one after the other.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, Table, TableCache, WriteOptions};
    /// # let file = WriteOptions::new().build(Vec::new()).finish_into_writer()?.0;
    /// # let open = || OpenOptions::new().open_source(file.clone());
    /// let tables: TableCache<u64, Table> = TableCache::default();
    /// tables.get(&1, open)?;
    /// tables.get(&1, open)?;
    /// let stats = tables.stats();
    /// assert_eq!((stats.hits, stats.misses, stats.evictions), (1, 1, 0));
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.known.iter().map(|known| lock(&known.0).1).sum(),
            misses: self.misses.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "the number is below `SHARDS`")]
    fn known(&self) -> MutexGuard<'_, (Cells<K, T>, Hits)> {
        lock(&self.known[shard_of_this_thread()].0)
    }

    /// The table with this `key`, if the thread has found it before, and whether it has grown since it was last weighed.
    #[inline]
    fn find(&self, key: &K) -> Option<(T, bool)> {
        let (cells, hits) = &mut *self.known();
        let cell = cells.get(key)?;
        let table = cell.table.get()?.clone();
        *hits += 1;
        let has_grown = self.note_weight(cell, table.weight().max(1));
        let ticks = has_grown || hits.is_multiple_of(CALLS);
        let now = if ticks {
            self.tick()
        } else {
            self.now.load(Relaxed)
        };
        cell.use_at(2 * now + 1);
        Some((table, has_grown))
    }

    /// The table with this `key`, which is opened if it is not open. It is not kept if it was removed meanwhile.
    #[cold]
    fn find_or_open(&self, key: &K, open: impl FnOnce() -> Result<T>) -> Result<T> {
        let new = || Arc::new(Cell::default());
        let cell = Arc::clone(lock(&self.tables).entry(key.clone()).or_insert_with(new));
        let is_open = cell.table.get().is_some();
        let found = cell.get_or_open(open);
        let mut tables = lock(&self.tables);
        if let (Ok(table), Some(kept)) = (&found, tables.get(key))
            && Arc::ptr_eq(kept, &cell)
        {
            cell.use_at(2 * self.tick() + u64::from(is_open));
            self.note_weight(&cell, table.weight().max(1));
            self.known().0.insert(key.clone(), Arc::clone(&cell));
        }
        if is_open {
            self.known().1 += 1;
        } else {
            self.misses.fetch_add(1, Relaxed);
            drop(cell);
            // Forgets a table that could not be opened, unless other threads are trying.
            tables.retain(|_, cell| cell.table.get().is_some() || Arc::strong_count(cell) > 1);
        }
        found
    }

    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Relaxed) + 1
    }

    /// Notes the weight of a table, 0 if it is closed, and returns whether it has changed. The table cannot be closed meanwhile.
    #[inline]
    fn note_weight(&self, cell: &Cell<T>, weight: usize) -> bool {
        let weight = weight as u64;
        if cell.weight.load(Relaxed) == weight {
            return false;
        }
        let known = cell.weight.swap(weight, Relaxed);
        self.bytes.fetch_add(weight.wrapping_sub(known), Relaxed);
        let opened = u64::from(weight > 0).wrapping_sub(u64::from(known > 0));
        self.open.fetch_add(opened, Relaxed);
        true
    }

    /// Removes the table with this `key` from the locked `tables`, to be closed when no lock is held.
    fn take(&self, tables: &mut Cells<K, T>, key: &K) -> Option<Arc<Cell<T>>> {
        let cell = tables.remove(key)?;
        for known in &self.known {
            lock(&known.0).0.remove(key);
        }
        self.note_weight(&cell, 0);
        Some(cell)
    }

    fn is_over(&self) -> bool {
        let (open, bytes) = (self.open.load(Relaxed), self.bytes.load(Relaxed));
        open > 1 && (open > self.max_open || bytes > self.max_bytes)
    }

    /// Closes tables, the least recently used first. Goes through all open tables for each.
    #[cold]
    fn make_room(&self) {
        let mut closed = Vec::new(); // dropped when the lock is released
        let mut tables = lock(&self.tables);
        while self.is_over() {
            let open = tables
                .iter()
                .filter(|(_, cell)| cell.weight.load(Relaxed) > 0);
            let oldest = open.min_by_key(|(_, cell)| cell.used.load(Relaxed));
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            closed.extend(self.take(&mut tables, &key));
            self.evictions.fetch_add(1, Relaxed);
        }
    }
}

/// A panic in `open` leaves no table behind, and nothing else panics under a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
