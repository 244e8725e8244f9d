//! The block cache, bounded in bytes.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::read::parts::state::BlockState;
use crate::read::source::stats::{Counters, Stats};
use crate::read::store::cached::ReadBlock;

/// Capacity in bytes of the cache that tables share by default.
const DEFAULT_CAPACITY: u64 = 32 << 20;

/// Overhead of an entry in bytes, besides its block.
const ENTRY_OVERHEAD: u64 = 96;

/// Keeps recently read blocks, up to a number of bytes. Clones share one cache.
///
/// Any number of tables may share a cache, and any number of threads use it: it is split into shards,
/// and no shard is locked while a block is read or decompressed. A block larger than a shard's part of the
/// capacity (a few shards for each processor) is not kept.
///
/// A cache set with [`OpenOptions::cache`](crate::OpenOptions::cache) keeps every block that is read, unless it is used in place in
/// memory. The [shared](BlockCache::shared) one does so for sources that may be far away, those that are neither files nor memory.
/// For files, whose blocks are in the system's page cache already, the shared cache keeps blocks that are read again: while it has
/// room, every block that a lookup reads; when it is full, a block that was read for the second time within a few thousand such reads
/// (a fourth to a half as many as it has room for blocks of 4 KiB). So it keeps tables that fit and the hot blocks of others, and
/// uniform lookups in a table that does not fit pay little for it. Scans leave no uncompressed blocks of a file in it.
///
/// When the last clone of a table is dropped, its blocks are removed.
///
/// ```
/// use leveltable::{BlockCache, OpenOptions, WriteOptions};
///
/// let cache = BlockCache::new(64 << 20);
/// let mut builder = WriteOptions::new().build(Vec::new());
/// builder.add("key", [7; 3000])?; // compresses well
/// let (file, _) = builder.finish_into_writer()?;
/// let table = OpenOptions::new().cache(cache.clone()).open_source(file)?;
/// table.get("key")?;
/// assert!(cache.size() > 3000 && cache.size() < cache.capacity());
/// assert_eq!(cache.stats().misses, 1);
/// assert_eq!(BlockCache::shared().capacity(), 32 << 20);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Clone)]
pub struct BlockCache(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) blocks:
        Cache<BlockKey, Arc<ReadBlock>, BlockWeighter, DefaultHashBuilder, Evictions>,
    /// Approximate number of blocks that the cache has room for.
    room: u64,
    /// Number of misses so far.
    misses: AtomicU64,
    /// Whether it had room at the last check.
    has_room: AtomicBool,
    evictions: Arc<AtomicU64>,
    tables: Mutex<Tables>,
}

/// The counters of the tables that use a cache: each counts its own hits and misses, to avoid contention.
#[derive(Debug, Default)]
struct Tables {
    /// By the tables' numbers.
    open: HashMap<u64, Counters>,
    /// The sums for closed tables.
    closed: Stats,
}

/// Drops evicted blocks when no lock is held.
type Dropping = DefaultLifecycle<BlockKey, Arc<ReadBlock>>;

/// Counts what the cache evicts.
#[derive(Debug, Clone)]
pub(crate) struct Evictions {
    count: Arc<AtomicU64>,
    default: Dropping,
}

impl Lifecycle<BlockKey, Arc<ReadBlock>> for Evictions {
    type RequestState = <Dropping as Lifecycle<BlockKey, Arc<ReadBlock>>>::RequestState;

    fn on_evict(&self, state: &mut Self::RequestState, key: BlockKey, block: Arc<ReadBlock>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.default.on_evict(state, key, block);
    }
}

/// A block's key in the cache: the number of its table, and its number there.
pub(crate) type BlockKey = (u64, u64);

/// A number that no other open table has, so that a file that replaces another is never mistaken for it.
pub(crate) fn next_table() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockWeighter;

impl Weighter<BlockKey, Arc<ReadBlock>> for BlockWeighter {
    fn weight(&self, _: &BlockKey, block: &Arc<ReadBlock>) -> u64 {
        block.bytes.len() as u64 + ENTRY_OVERHEAD
    }
}

/// Counters of a cache's work so far, and its current size: returned by [`BlockCache::stats`] and
/// [`TableCache::stats`](crate::TableCache::stats).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Requests that found their item in the cache.
    pub hits: u64,
    /// Requests that did not find their item.
    pub misses: u64,
    /// Items that were removed to make room.
    pub evictions: u64,
    /// Current size in bytes, bookkeeping included.
    pub bytes: u64,
}

impl BlockCache {
    /// A cache that holds up to `capacity` bytes of blocks, their bookkeeping included.
    pub fn new(capacity: u64) -> BlockCache {
        // An estimate of that number of blocks, for the sizes of the cache's own tables.
        let blocks = usize::try_from(capacity / 4096).unwrap_or(usize::MAX);
        let blocks = blocks.max(16);
        let evictions = Arc::<AtomicU64>::default();
        let lifecycle = Evictions {
            count: Arc::clone(&evictions),
            default: DefaultLifecycle::default(),
        };
        let hasher = DefaultHashBuilder::default();
        BlockCache(Arc::new(Shared {
            blocks: Cache::with(blocks, capacity, BlockWeighter, hasher, lifecycle),
            room: blocks as u64,
            misses: AtomicU64::new(0),
            has_room: AtomicBool::new(true),
            evictions,
            tables: Mutex::default(),
        }))
    }

    /// The cache of 32 MiB shared by all tables that were opened without one of their own.
    pub fn shared() -> BlockCache {
        static SHARED: LazyLock<BlockCache> = LazyLock::new(|| BlockCache::new(DEFAULT_CAPACITY));
        SHARED.clone()
    }

    /// Maximum size of the cache in bytes. Takes a lock for each shard.
    pub fn capacity(&self) -> u64 {
        self.0.blocks.capacity()
    }

    /// Current size in bytes, bookkeeping included. Takes a lock for each shard.
    pub fn size(&self) -> u64 {
        self.0.blocks.weight()
    }

    /// Counters of the work for all tables so far, including closed ones. A block that is larger than the cache keeps counts as
    /// evicted. Takes a lock that opening and closing a table take, and reads the [counters](crate::Table::stats) of each open table;
    /// lookups pay nothing for it.
    ///
    /// ```
    /// # use leveltable::{BlockCache, Compression, OpenOptions, WriteOptions};
    /// # let mut builder = WriteOptions::new().build(Vec::new());
    /// # builder.add("apple", [7; 1000])?;
    /// # let file = builder.finish_into_writer()?.0;
    /// let cache = BlockCache::new(1 << 20);
    /// let table = OpenOptions::new().cache(cache.clone()).open_source(file)?;
    /// let before = cache.stats();
    /// table.get("apple")?;
    /// table.get("apple")?;
    /// let now = cache.stats();
    /// assert_eq!(now.hits + now.misses - before.hits - before.misses, 2);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn stats(&self) -> CacheStats {
        let tables = self.tables();
        let open = tables.open.values().map(Counters::snapshot);
        let counted = open.fold(tables.closed, |sum, stats| sum + stats);
        CacheStats {
            hits: counted.cache_hits,
            misses: counted.cache_misses,
            evictions: self.0.evictions.load(Ordering::Relaxed),
            bytes: self.size(),
        }
    }

    /// Adds a table's counters to the [sums](BlockCache::stats) from now on.
    pub(crate) fn enter(&self, table: u64, counters: &Counters) {
        self.tables().open.insert(table, counters.clone());
    }

    /// Keeps the counts of a table that was closed.
    pub(crate) fn leave(&self, table: u64) {
        let mut tables = self.tables();
        if let Some(counters) = tables.open.remove(&table) {
            tables.closed += counters.snapshot();
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        let tables = &self.0.tables;
        tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether blocks are evicted soon, so that the cache must know which are used.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        !self.0.has_room.load(Ordering::Relaxed)
    }

    /// Counts a miss of a block, and returns whether the cache takes it: if there is room, or the block was missed recently, within a
    /// fourth to a half as many misses as the cache has blocks. For uniform lookups in four times what fits, that is one miss in
    /// seven. (Keeping them all took up to a third of the lookups' time.)
    pub(crate) fn takes_missed(&self, state: &BlockState) -> bool {
        let Shared { room, misses, .. } = &*self.0;
        let misses = misses.fetch_add(1, Ordering::Relaxed);
        if misses.is_multiple_of(64.min(room / 4)) {
            // Not each time, since this locks all shards.
            let has_room = self.size() < self.capacity() / 8 * 7;
            self.0.has_room.store(has_room, Ordering::Relaxed);
        }
        state.missed_lately(misses / (room / 4)) || self.0.has_room.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, capacity) = (self.size(), self.capacity());
        write!(f, "BlockCache({size} of {capacity} bytes)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_bytes_and_keeps_what_is_used() {
        let cache = BlockCache::new(1 << 20);
        let table = next_table();
        let hot = (table, u64::MAX);
        let block = |byte, len| Arc::new(ReadBlock::new(vec![byte; len].into()));
        cache.0.blocks.insert(hot, block(7, 4096));
        for i in 0..2000 {
            let len = 1000 + (i as usize * 37) % 9000;
            cache.0.blocks.insert((table, i), block(0, len));
            assert!(cache.size() <= cache.capacity());
            assert_eq!(
                cache.0.blocks.get(&hot).map(|b| b.bytes.len()),
                Some(4096),
                "after {i} others"
            );
        }
        assert!(cache.size() > cache.capacity() / 2);
        assert!(cache.0.blocks.get(&(next_table(), 1999)).is_none());
    }

    #[test]
    fn a_cache_of_nothing_keeps_nothing() {
        let cache = BlockCache::new(0);
        let key = (next_table(), 0);
        let block = ReadBlock::new("block".into());
        cache.0.blocks.insert(key, Arc::new(block));
        assert!(cache.0.blocks.get(&key).is_none());
        assert_eq!(cache.size(), 0);
    }
}
