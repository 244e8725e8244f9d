//! The block cache, bounded in bytes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

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
/// By default a table keeps blocks here that it had to decompress. Uncompressed blocks of a file are in the system's page cache
/// already, and are kept here only if [`OpenOptions::cache`](crate::OpenOptions::cache) names the cache. Those of any other
/// [`ReadAt`](crate::ReadAt), which may be far away, are always kept.
///
/// When the last clone of a table is dropped, its blocks are removed.
#[derive(Clone)]
pub struct BlockCache(pub(super) Arc<Cache<BlockKey, Bytes, BlockWeighter>>);

/// A block's identity in the cache: the number of its table, and its offset there.
pub(super) type BlockKey = (u64, u64);

/// A number that no other open table has, so that a file replaced under its name is never mistaken for the old one.
pub(super) fn next_table() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BlockWeighter;

impl Weighter<BlockKey, Bytes> for BlockWeighter {
    fn weight(&self, _: &BlockKey, block: &Bytes) -> u64 {
        block.len() as u64 + ENTRY_OVERHEAD
    }
}

impl BlockCache {
    /// A cache that holds up to `capacity` bytes of blocks, their bookkeeping included.
    pub fn new(capacity: u64) -> BlockCache {
        // An estimate of how many blocks that is, for the sizes of the cache's own tables.
        let blocks = usize::try_from(capacity / 4096).unwrap_or(usize::MAX);
        let cache = Cache::with_weighter(blocks.max(16), capacity, BlockWeighter);
        BlockCache(Arc::new(cache))
    }

    /// The cache of 32 MiB that all tables share which were opened without one of their own.
    pub fn shared() -> BlockCache {
        static SHARED: LazyLock<BlockCache> = LazyLock::new(|| BlockCache::new(DEFAULT_CAPACITY));
        SHARED.clone()
    }

    /// Most bytes that the cache holds.
    pub fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    /// Bytes that it holds now, bookkeeping included.
    pub fn size(&self) -> u64 {
        self.0.weight()
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
        cache.0.insert(hot, Bytes::from(vec![7; 4096]));
        for i in 0..2000 {
            let len = 1000 + (i as usize * 37) % 9000;
            cache.0.insert((table, i), Bytes::from(vec![0; len]));
            assert!(cache.size() <= cache.capacity());
            assert_eq!(
                cache.0.get(&hot).map(|b| b.len()),
                Some(4096),
                "after {i} others"
            );
        }
        assert!(cache.size() > cache.capacity() / 2);
        assert_eq!(cache.0.get(&(next_table(), 1999)), None);
    }

    #[test]
    fn a_cache_of_nothing_keeps_nothing() {
        let cache = BlockCache::new(0);
        let key = (next_table(), 0);
        cache.0.insert(key, Bytes::from_static(b"block"));
        assert_eq!(cache.0.get(&key), None);
        assert_eq!(cache.size(), 0);
    }
}
