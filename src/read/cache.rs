//! The block cache, bounded in bytes.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, Weighter};

/// Capacity in bytes of the cache that tables share by default.
const DEFAULT_CAPACITY: u64 = 32 << 20;

/// Overhead of an entry in bytes, besides its block.
const ENTRY_OVERHEAD: u64 = 96;

/// Keeps blocks that were read lately, up to a number of bytes. Clones share one cache.
///
/// Any number of tables may share a cache, and any number of threads use it: it is split into shards,
/// and no shard is locked while a block is read or decompressed. A block larger than a shard's part of the
/// capacity (a few shards for each processor) is not kept.
///
/// From a file that was opened by its path or as a `File`, a lookup caches a block only if the block was read before, by a lookup, a
/// walk or the check of the order at opening: after the first read the system keeps it in memory, and blocks that are used once
/// take no room from those that are used again. From other sources, some of which are far away, a lookup caches each block at once. So
/// does a walk from all of them, but for the block in which it begins.
///
/// Once the cache is full, it admits one block of 32 that are offered by lookups, at random, and none of a walk's. In a
/// table much larger than the cache most blocks would be evicted before they are used again, and the work of keeping and
/// evicting them would only delay lookups; blocks that are used often are soon admitted (bimodal insertion: Qureshi et al.,
/// "Adaptive insertion policies for high performance caching", ISCA 2007).
#[derive(Clone)]
pub struct BlockCache {
    blocks: Arc<Blocks>,
    eviction: Eviction,
    /// Whether blocks were evicted for want of room.
    full: Arc<AtomicBool>,
}

type Blocks = Cache<BlockKey, Bytes, BlockWeighter, BuildHasherDefault<BlockKeyHasher>, Eviction>;

/// Remembers whether a block was evicted. From a full cache, nearly always; but a block that is replaced, or too large to be
/// kept, counts as evicted, too.
#[derive(Debug, Clone, Default)]
struct Eviction(Arc<AtomicBool>);

impl Lifecycle<BlockKey, Bytes> for Eviction {
    /// Evicted blocks, which are dropped after the shard is unlocked.
    type RequestState = [Option<Bytes>; 2];

    fn on_evict(&self, evicted: &mut Self::RequestState, _: BlockKey, block: Bytes) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
        let [first, second] = evicted;
        let free = if first.is_none() { first } else { second };
        *free = Some(block);
    }
}

/// A block's identity in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) table: TableId,
    pub(crate) offset: u64,
}

/// Tells open tables apart, so that a file replaced under its name is never mistaken for the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TableId(u64);

impl TableId {
    pub(crate) fn next() -> TableId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        TableId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Debug, Clone, Copy)]
struct BlockWeighter;

impl Weighter<BlockKey, Bytes> for BlockWeighter {
    fn weight(&self, _: &BlockKey, block: &Bytes) -> u64 {
        block.len() as u64 + ENTRY_OVERHEAD
    }
}

/// Mixes the two numbers of a [`BlockKey`]: they are ours, so nobody can choose them to collide.
#[derive(Debug, Clone, Copy, Default)]
struct BlockKeyHasher(u64);

impl Hasher for BlockKeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        // The two halves of a full product folded together, as in wyhash.
        let product = u128::from(self.0 ^ n ^ 0xa076_1d64_78bd_642f) * 0xe703_7ed1_a0b4_28db_u128;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

impl BlockCache {
    /// A cache that holds up to `capacity` bytes of blocks, their bookkeeping included.
    pub fn new(capacity: u64) -> BlockCache {
        // An estimate of how many blocks that is, for the sizes of the cache's own tables.
        let blocks = usize::try_from(capacity / 4096)
            .unwrap_or(usize::MAX)
            .max(16);
        let eviction = Eviction::default();
        let blocks = Cache::with(
            blocks,
            capacity,
            BlockWeighter,
            BuildHasherDefault::default(),
            eviction.clone(),
        );
        BlockCache {
            blocks: Arc::new(blocks),
            eviction,
            full: Arc::default(),
        }
    }

    /// The cache of 32 MiB that all tables share which were opened without one of their own.
    pub fn shared() -> BlockCache {
        static SHARED: LazyLock<BlockCache> = LazyLock::new(|| BlockCache::new(DEFAULT_CAPACITY));
        SHARED.clone()
    }

    /// Most bytes that the cache holds.
    pub fn capacity(&self) -> u64 {
        self.blocks.capacity()
    }

    /// Bytes that it holds now, bookkeeping included.
    pub fn size(&self) -> u64 {
        self.blocks.weight()
    }

    /// Returns the name, the value and a help text of each gauge of the cache, for a metrics exporter. Hits and misses are
    /// counted by table: see [`Stats::metrics`](crate::Stats::metrics).
    ///
    /// ```
    /// let cache = leveltable::BlockCache::shared();
    /// for (name, value, help) in cache.metrics() {
    ///     println!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    /// }
    /// ```
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> + use<> {
        let size = "Bytes that the block cache holds, bookkeeping included.";
        let capacity = "Most bytes that the block cache holds.";
        [
            ("leveltable_cache_size_bytes", self.size(), size),
            ("leveltable_cache_capacity_bytes", self.capacity(), capacity),
        ]
        .into_iter()
    }

    #[inline]
    pub(crate) fn get(&self, key: BlockKey) -> Option<Bytes> {
        self.blocks.get(&key)
    }

    #[inline]
    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.blocks.contains_key(&key)
    }

    /// Whether a block that was just read should be inserted: always while there is room, else one time in 32.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        !self.is_full() || one_in_32()
    }

    pub(crate) fn insert(&self, key: BlockKey, block: Bytes) {
        self.blocks.insert(key, block);
        if self.eviction.0.load(Ordering::Relaxed) && !self.is_full() {
            let has_room = self.blocks.weight() < self.blocks.capacity() / 2;
            self.eviction.0.store(false, Ordering::Relaxed);
            self.full.store(!has_room, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

/// Returns `true` one time in 32, at random, so that no walk can be in step with it.
fn one_in_32() -> bool {
    thread_local! {
        static STATE: Cell<u32> = const { Cell::new(0x9e37_79b9) };
    }
    // Xorshift (Marsaglia 2003).
    let next = STATE.try_with(|state| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x
    });
    // A thread that is ending may still read a table as it drops its values.
    next.is_ok_and(|x| x.is_multiple_of(32))
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BlockCache({} of {} bytes)",
            self.size(),
            self.capacity()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_bytes_and_keeps_what_is_used() {
        let cache = BlockCache::new(1 << 20);
        let table = TableId::next();
        let hot = BlockKey {
            table,
            offset: u64::MAX,
        };
        cache.insert(hot, Bytes::from(vec![7; 4096]));
        for i in 0..2000 {
            let len = 1000 + (i as usize * 37) % 9000;
            cache.insert(BlockKey { table, offset: i }, Bytes::from(vec![0; len]));
            assert!(cache.size() <= cache.capacity());
            assert_eq!(
                cache.get(hot).map(|b| b.len()),
                Some(4096),
                "after {i} others"
            );
        }
        assert!(cache.size() > cache.capacity() / 2);
        let gauges: Vec<u64> = cache.metrics().map(|(_, value, _)| value).collect();
        assert_eq!(gauges, [cache.size(), 1 << 20]);
        assert_eq!(
            cache.get(BlockKey {
                table: TableId::next(),
                offset: 1999
            }),
            None
        );
    }

    #[test]
    fn a_cache_of_nothing_keeps_nothing() {
        let cache = BlockCache::new(0);
        let key = BlockKey {
            table: TableId::next(),
            offset: 0,
        };
        cache.insert(key, Bytes::from_static(b"block"));
        assert_eq!(cache.get(key), None);
        assert_eq!(cache.size(), 0);
    }
}
