//! Where the cached data blocks of a table are.

use std::array;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;

use crate::format::block_search::{BlockAddress, SearchPart};
use crate::format::prefetch::{prefetch, prefetch_address};

/// A data block that was read from the source: in the cache, or only held by a lookup.
#[derive(Debug)]
#[repr(C)] // the bytes' address is in the cache line of the reference counts before it, as often as possible
pub(crate) struct ReadBlock {
    pub(crate) bytes: Bytes,
    /// Number of uses of a block in the cache, modulo 256.
    uses: AtomicU8,
}

/// A full cache is told of the first use of a block, and then of every eighth: telling it takes as long as the rest of a lookup.
const TOLD: u8 = 8;

impl ReadBlock {
    pub(crate) fn new(bytes: Bytes) -> ReadBlock {
        let uses = AtomicU8::new(0);
        ReadBlock { bytes, uses }
    }

    /// Counts a use. Returns whether the cache is told of it.
    pub(crate) fn count_use(&self) -> bool {
        // Two threads that use it at once may be counted as one.
        let uses = self.uses.load(Relaxed);
        self.uses.store(uses.wrapping_add(1), Relaxed);
        uses.is_multiple_of(TOLD)
    }
}

/// The blocks of one table that are in the cache, by their numbers.
///
/// The cache decides which blocks stay, and owns them. A lookup finds them here, without a search of the cache's hash table, which waits
/// for memory several times in a row and takes a lock that many blocks share. What it will read is prefetched by address before it
/// asks the filter, and locked only afterwards: a locked instruction lets nothing overtake it. So a lookup by default takes 1.2 times
/// as long as in a mapped table of 20,000 entries, and 1.35 times in one of 100,000.
#[derive(Debug, Default)]
pub(crate) struct CachedBlocks(OnceLock<Box<[Group]>>);

/// Adjacent blocks, whose places take memory when the cache takes the first of them: those of all blocks of a large table would take a
/// millisecond of its first lookup.
type Group = OnceLock<Box<[Place; GROUP]>>;
const GROUP: usize = 64;

/// A block that may be in the cache.
#[derive(Debug, Default)]
struct Place {
    /// The addresses of its reference counts and of its bytes, or what they once were: only for prefetching, without a lock.
    counts: AtomicUsize,
    bytes: BlockAddress,
    block: Mutex<Weak<ReadBlock>>,
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Weak<ReadBlock>> {
        self.block.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedBlocks {
    /// A block, if it is in the cache.
    #[inline]
    pub(crate) fn get(&self, block: usize) -> Option<Arc<ReadBlock>> {
        let mut place = self.place(block)?.lock();
        let read = place.upgrade();
        if read.is_none() {
            // Frees the counts of an evicted block.
            *place = Weak::new();
        }
        read
    }

    /// Prefetches where [`get`](CachedBlocks::get) looks for a block.
    pub(crate) fn prefetch_place(&self, block: usize) {
        prefetch(self.place(block).into_iter());
    }

    /// Prefetches what a search in `part` of a block reads, if it is in the cache.
    #[inline(never)] // so that it takes no registers where a block in memory is prefetched
    pub(crate) fn prefetch(&self, block: usize, part: SearchPart) {
        if let Some(place) = self.place(block) {
            prefetch_address(place.counts.load(Relaxed));
            place.bytes.prefetch(part);
        }
    }

    /// Whether a block is in the cache.
    pub(crate) fn has(&self, block: usize) -> bool {
        self.place(block)
            .is_some_and(|place| place.lock().strong_count() > 0)
    }

    /// Calls `keep` to put a block into the cache, unless another thread has done so. The table has `blocks` data blocks.
    pub(crate) fn put(
        &self,
        block: usize,
        blocks: usize,
        read: ReadBlock,
        keep: impl FnOnce(Arc<ReadBlock>),
    ) {
        let groups = || (0..blocks.div_ceil(GROUP)).map(|_| Group::new()).collect();
        let groups = self.0.get_or_init(groups);
        let places = groups
            .get(block / GROUP)
            .map(|group| group.get_or_init(|| Box::new(array::from_fn(|_| Place::default()))));
        if let Some(place) = places.and_then(|places| places.get(block % GROUP))
            && let mut known = place.lock()
            && known.strong_count() == 0
        {
            let read = Arc::new(read);
            place.bytes.set(&read.bytes);
            place.counts.store(Arc::as_ptr(&read).addr(), Relaxed);
            *known = Arc::downgrade(&read);
            keep(read);
        }
    }

    /// The numbers of the blocks in the cache.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        let blocks = self.0.get().map_or(0, |groups| groups.len() * GROUP);
        (0..blocks).filter(|&block| self.has(block))
    }

    /// Bytes of memory that this takes: 32 for each block of the groups that the cache has, or had, blocks of.
    pub(crate) fn weight(&self) -> usize {
        let groups = self.0.get().map_or(&[][..], |groups| groups);
        let places = groups.iter().filter_map(Group::get);
        size_of_val(groups) + places.map(|places| size_of_val(&**places)).sum::<usize>()
    }

    #[inline]
    fn place(&self, block: usize) -> Option<&Place> {
        let group = self.0.get()?.get(block / GROUP)?;
        group.get()?.get(block % GROUP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_as_long_as_the_cache_owns_it() {
        let blocks = CachedBlocks::default();
        assert!(blocks.get(2).is_none());
        let mut cache = Vec::new();
        let block = |bytes| ReadBlock::new(Bytes::from_static(bytes));
        blocks.put(2, 4, block(b"first"), |read| cache.push(read));
        blocks.put(2, 4, block(b"second"), |read| cache.push(read));
        assert_eq!(blocks.get(2).unwrap().bytes, "first");
        assert_eq!(blocks.numbers().collect::<Vec<_>>(), [2]);
        cache.clear();
        assert!(blocks.get(2).is_none() && !blocks.has(2) && blocks.get(4).is_none());
        blocks.put(2, 4, block(b"third"), |read| cache.push(read));
        assert_eq!(blocks.get(2).unwrap().bytes, "third");
        assert_eq!(
            blocks.weight(),
            size_of::<Group>() + GROUP * size_of::<Place>()
        );
    }

    #[test]
    fn the_first_use_is_told_and_then_one_of_eight() {
        let block = ReadBlock::new(Bytes::new());
        let told: Vec<_> = (0..1000).filter(|_| block.count_use()).collect();
        assert!(told.iter().eq(&Vec::from_iter((0..1000).step_by(8))));
    }
}
