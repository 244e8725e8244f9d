//! Opens tables on demand, and closes some when there are too many.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    max_open: usize,
    max_bytes: u64,
    tables: Mutex<Tables<K, T>>,
    /// Open tables that a thread has found before: it finds them again under a lock without contention. A table that is closed is removed
    /// from all of these, while `tables` is locked.
    known: Box<[Known<K, T>]>,
    /// The weight of the open tables.
    bytes: AtomicU64,
}

#[derive(Debug)]
struct Tables<K, T> {
    open: Cells<K, T>,
    /// The open tables, in the order in which they are closed.
    queue: VecDeque<K>,
    /// The tables that are being opened, each with a lock: only threads that ask for this table wait.
    opening: HashMap<K, Arc<Mutex<()>>>,
    misses: u64,
    evictions: u64,
}

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

/// An open table.
#[derive(Debug)]
struct Cell<T> {
    table: T,
    /// Its weight when it was last weighed.
    weight: AtomicU64,
    /// Whether it was found open since it was opened, or last passed over in the queue.
    used: AtomicBool,
}

impl<T> Cell<T> {
    #[inline]
    fn note_use(&self) {
        // Not stored again, so that threads do not contend for it.
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
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
            max_open,
            max_bytes,
            tables: Mutex::new(Tables {
                open: HashMap::new(),
                queue: VecDeque::new(),
                opening: HashMap::new(),
                misses: 0,
                evictions: 0,
            }),
            known: (0..SHARDS).map(known).collect(),
            bytes: AtomicU64::new(0),
        }
    }

    /// Returns a clone of the table with this `key`; opens it with `open` if it is not open.
    ///
    /// Tables are weighed when they are opened, or have grown since they were last used. If there are too many, or they are too large,
    /// some are closed, in the order in which they were opened; but one that was used since then goes to the end of that order first.
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
        if has_grown {
            self.make_room(key);
        }
        Ok(table)
    }

    /// Closes the table with this `key`, if it is open: call it before its file is deleted or replaced. Takes some twenty locks, one
    /// after the other.
    pub fn remove(&self, key: &K) {
        let mut tables = lock(&self.tables);
        let removed = self.take(&mut tables.open, key);
        tables.queue.retain(|open| open != key);
        tables.opening.remove(key); // so that it is not kept
        drop(tables);
        drop(removed); // after the lock is released
    }

    /// Number of open tables. Takes a lock.
    pub fn len(&self) -> usize {
        lock(&self.tables).open.len()
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
        let tables = lock(&self.tables);
        CacheStats {
            hits: self.known.iter().map(|known| lock(&known.0).1).sum(),
            misses: tables.misses,
            evictions: tables.evictions,
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
        let table = cell.table.clone();
        *hits += 1;
        cell.note_use();
        let has_grown = self.note_weight(cell, table.weight());
        Some((table, has_grown))
    }

    /// The table with this `key`, which is opened if it is not open. It is not kept if it was removed meanwhile.
    #[cold]
    fn find_or_open(&self, key: &K, open: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut tables = lock(&self.tables);
        if let Some(cell) = tables.open.get(key) {
            let (known, hits) = &mut *self.known();
            *hits += 1;
            known.insert(key.clone(), Arc::clone(cell));
            cell.note_use();
            self.note_weight(cell, cell.table.weight());
            return Ok(cell.table.clone());
        }
        let opening = Arc::clone(tables.opening.entry(key.clone()).or_default());
        tables.misses += 1;
        drop(tables);
        let turn = lock(&opening);
        // Another thread may have opened it.
        let found = lock(&self.tables)
            .open
            .get(key)
            .map(|cell| cell.table.clone());
        let opened = found.map_or_else(open, Ok);
        let mut tables = lock(&self.tables);
        let current = tables.opening.get(key);
        if current.is_some_and(|current| Arc::ptr_eq(current, &opening)) {
            if let Ok(table) = &opened
                && !tables.open.contains_key(key)
            {
                let cell = Arc::new(Cell {
                    table: table.clone(),
                    weight: AtomicU64::new(0),
                    used: AtomicBool::new(false),
                });
                self.note_weight(&cell, table.weight());
                tables.open.insert(key.clone(), cell);
                tables.queue.push_back(key.clone());
            }
            // One count is of `tables`, the other of this thread.
            if Arc::strong_count(&opening) == 2 {
                tables.opening.remove(key);
            }
        }
        drop(turn);
        drop(opening); // while `tables` is locked, so that the count is exact
        opened
    }

    /// Notes the weight of a table, and returns whether it has changed. The table cannot be closed meanwhile.
    #[inline]
    fn note_weight(&self, cell: &Cell<T>, weight: usize) -> bool {
        let weight = weight as u64;
        if cell.weight.load(Relaxed) == weight {
            return false;
        }
        let known = cell.weight.swap(weight, Relaxed);
        self.bytes.fetch_add(weight.wrapping_sub(known), Relaxed);
        true
    }

    /// Removes the table with this `key` from the locked tables that are `open`, to be closed when no lock is held.
    fn take(&self, open: &mut Cells<K, T>, key: &K) -> Option<Arc<Cell<T>>> {
        let cell = open.remove(key)?;
        for known in &self.known {
            lock(&known.0).0.remove(key);
        }
        self.note_weight(&cell, 0);
        Some(cell)
    }

    /// Closes tables if there are too many, in the order of the queue, but not the one that is `asked` for.
    #[cold]
    fn make_room(&self, asked: &K) {
        let mut closed = Vec::new(); // dropped when the lock is released
        let mut tables = lock(&self.tables);
        let Tables { open, queue, .. } = &mut *tables;
        let is_over =
            |open: usize| open > self.max_open || self.bytes.load(Relaxed) > self.max_bytes;
        while open.len() > 1
            && is_over(open.len())
            && let Some(key) = queue.pop_front()
        {
            let was_used = |cell: &Arc<Cell<T>>| cell.used.swap(false, Relaxed);
            if key == *asked || open.get(&key).is_some_and(was_used) {
                queue.push_back(key);
            } else {
                closed.extend(self.take(open, &key));
            }
        }
        tables.evictions += closed.len() as u64;
    }
}

/// A panic in `open` leaves no table behind, and nothing else panics under a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
