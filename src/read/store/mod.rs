//! Data blocks: from memory, from the cache, or from the file. A block is checked and kept when it is read.
//!
//! [`load`](BlockStore::load) loads a block that was found for a key, and [`load_many`](BlockStore::load_many) many
//! blocks.

pub(crate) mod cache;
pub(crate) mod cached;
mod read_options;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result, Section};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_search::prefetch_part;
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::read::parts::Parts;
use crate::read::parts::index::{BlockRef, Found};
use crate::read::parts::state::BlockState;
use crate::read::source::file::TableFile;
use crate::read::source::stats::Counter;
use crate::read::store::cache::{BlockCache, BlockKey, next_table};
use crate::read::store::cached::{CachedBlocks, ReadBlock};
pub use crate::read::store::read_options::ReadOptions;

/// Maximum number of data blocks in one batch, and of their bytes, unless a single one is larger.
const MAX_BATCH_BLOCKS: usize = 512;
const MAX_BATCH_LEN: u64 = 4 << 20;

/// Why a data block is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// For a key, perhaps one of a batch.
    Lookup,
    /// For a walk that comes from the block before or after it, and reads several blocks at once.
    Walk,
}

/// Bytes, and the range in them of a data block.
pub(crate) type Loaded<'a> = (&'a Bytes, Range<usize>);

/// A data block that has its own bytes.
pub(crate) fn whole(block: &Bytes) -> Loaded<'_> {
    (block, 0..block.len())
}

/// How many of `blocks` are requested in one batch; at least one.
pub(crate) fn batch_len(blocks: &[BlockRef]) -> usize {
    let mut len = 0;
    let fits = |(i, found): &(usize, &BlockRef)| {
        len += found.handle.size;
        *i == 0 || *i < MAX_BATCH_BLOCKS && len <= MAX_BATCH_LEN
    };
    blocks.iter().enumerate().take_while(fits).count()
}

/// The data blocks of a table. The state of each is in its [`Parts`], beside its handle.
pub(crate) struct BlockStore {
    pub(crate) file: TableFile,
    cache: Option<BlockCache>,
    /// Whether every block that is read is kept in the cache.
    keeps_all: bool,
    /// The table's number in the cache.
    id: u64,
    cached: CachedBlocks,
}

impl BlockStore {
    /// The blocks of `file`, kept in `cache`: all of them, or those worth keeping.
    pub(crate) fn new(file: TableFile, cache: Option<BlockCache>, keeps_all: bool) -> BlockStore {
        let id = next_table();
        if let Some(cache) = &cache {
            cache.enter(id, &file.counters);
        }
        BlockStore {
            file,
            cache,
            keeps_all,
            id,
            cached: CachedBlocks::default(),
        }
    }

    /// Called when nobody can ask for the table's blocks any more: removes them from the cache.
    pub(crate) fn leave(&self) {
        if let Some(cache) = &self.cache {
            cache.leave(self.id);
            for block in self.cached.numbers() {
                cache.0.blocks.remove(&self.cache_key(block));
            }
        }
    }

    /// The error of a defect in a data block.
    #[cold]
    pub(crate) fn locate(&self, found: BlockRef, defect: Defect) -> Error {
        self.file.locate(defect, Section::Data, found.handle.offset)
    }

    /// The range of a data block in a file in memory, if it is used in place and was checked.
    #[inline(always)]
    pub(crate) fn in_place(
        &self,
        state: &BlockState,
        handle: BlockHandle,
    ) -> Option<(&Bytes, Range<usize>)> {
        if !state.has(BlockState::IN_PLACE) {
            return None;
        }
        // Both fit: the block was read from there before.
        let BlockHandle { offset, size } = handle;
        let range = offset as usize..(offset + size) as usize;
        Some((self.file.memory()?, range))
    }

    /// Prefetches what a search for the key of `found` reads, if the block is used in place or in the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, found: Found<'_>) {
        if let Some((file, range)) = self.in_place(found.state(), found.handle()) {
            prefetch_part(file.get(range).unwrap_or_default(), found.part());
        } else if found.state().has(BlockState::CACHED) {
            self.cached.prefetch(found.block(), found.part());
        }
    }

    /// Prefetches the place of a block that may be in the cache, for [`prefetch`](BlockStore::prefetch).
    pub(crate) fn prefetch_place(&self, found: Found<'_>) {
        if found.state().has(BlockState::CACHED) {
            self.cached.prefetch_place(found.block());
        }
    }

    /// The data block that a search has found: bytes, and its range in them. A block from the cache or the source is put
    /// into `held`. In a mapped file, a block is announced before its first use if `announce` is set.
    #[inline(always)]
    pub(crate) fn load<'a>(
        &'a self,
        parts: &Parts,
        found: Found<'_>,
        read: ReadOptions,
        announce: bool,
        held: &'a mut Option<Arc<ReadBlock>>,
    ) -> Result<Loaded<'a>> {
        if let Some((file, range)) = self.in_place(found.state(), found.handle()) {
            // Not a slice, whose reference count would be changed twice for a value that is only borrowed.
            return Ok((self.file.owners.of_this_thread(file), range));
        }
        let block = match self.cached_block(found.state(), found.block()) {
            Some(cached) => cached,
            None => self.read_found(parts, found, read, announce)?,
        };
        Ok(whole(&held.insert(block).bytes))
    }

    #[inline(never)]
    fn read_found(
        &self,
        parts: &Parts,
        found: Found<'_>,
        read: ReadOptions,
        announce: bool,
    ) -> Result<Arc<ReadBlock>> {
        let block = found.to_ref();
        if announce {
            self.announce_block(parts, block);
        }
        let bytes = self.read_checked(parts, block, read)?;
        prefetch_part(&bytes, found.part());
        Ok(Arc::new(ReadBlock::new(bytes)))
    }

    /// A data block to keep, from memory, the cache or the source.
    pub(crate) fn load_bytes(
        &self,
        parts: &Parts,
        found: BlockRef,
        read: ReadOptions,
    ) -> Result<Bytes> {
        match self.in_place(parts.index.state(found), found.handle) {
            Some((file, range)) => Ok(self.file.owners.of_this_thread(file).slice(range)),
            None => self.load_checked(parts, found, read),
        }
    }

    /// A data block from the cache or the source; on its first use also one in memory.
    pub(crate) fn load_checked(
        &self,
        parts: &Parts,
        found: BlockRef,
        read: ReadOptions,
    ) -> Result<Bytes> {
        if let Some(block) = self.cached(parts, found) {
            return Ok(block);
        }
        self.read_checked(parts, found, read)
    }

    /// A data block from the source; on its first use also one in memory.
    fn read_checked(&self, parts: &Parts, found: BlockRef, read: ReadOptions) -> Result<Bytes> {
        let frame = self.file.read_frame(found.handle, Section::Data)?;
        self.admit(parts, found, &frame, read)
    }

    /// Asks the system to read a data block of a mapped file as a whole, and not page by page as it is used. A block that was
    /// read before is probably still in memory, and asking takes longer than finding it there.
    #[inline]
    pub(crate) fn announce_block(&self, parts: &Parts, found: BlockRef) {
        if self.file.map().is_some() && !parts.index.state(found).has(BlockState::CHECKED) {
            let Range { start, end } = found.handle.frame_in_file();
            self.file.announce(start, end - start);
        }
    }

    /// A data block from the cache.
    pub(crate) fn cached(&self, parts: &Parts, found: BlockRef) -> Option<Bytes> {
        let cached = self.cached_block(parts.index.state(found), found.block)?;
        Some(cached.bytes.clone())
    }

    /// A data block from the cache, by state and number.
    #[inline]
    pub(crate) fn cached_block(&self, state: &BlockState, block: usize) -> Option<Arc<ReadBlock>> {
        if !state.has(BlockState::CACHED) {
            return None;
        }
        let cached = self.cached.get(block);
        match &cached {
            Some(cached) => self.count_use(block, cached),
            // If another thread reads the block at this moment, it is read once more later.
            None => state.clear(BlockState::CACHED),
        }
        cached
    }

    /// Counts that a block in the cache is used.
    #[inline]
    fn count_use(&self, block: usize, cached: &ReadBlock) {
        self.file.counters.add(Counter::CacheHits, 1);
        if let Some(cache) = &self.cache
            && cache.is_full()
            && cached.count_use()
        {
            cache.0.blocks.get(&self.cache_key(block));
        }
    }

    /// Whether a data block is in the cache.
    pub(crate) fn is_cached(&self, parts: &Parts, found: BlockRef) -> bool {
        parts.index.state(found).has(BlockState::CACHED) && self.cached.has(found.block)
    }

    /// Bytes of memory that the places of cached blocks take.
    pub(crate) fn weight(&self) -> usize {
        self.cached.weight()
    }

    /// The key of a data block in the cache.
    fn cache_key(&self, block: usize) -> BlockKey {
        (self.id, block as u64)
    }

    /// The data block in `frame`, which was read from the source: checked, and kept.
    pub(crate) fn admit(
        &self,
        parts: &Parts,
        found: BlockRef,
        frame: &Bytes,
        read: ReadOptions,
    ) -> Result<Bytes> {
        self.try_admit(parts, found, frame, read, Use::Lookup)
            .map_err(|defect| self.locate(found, defect))
    }

    /// Like [`admit`](BlockStore::admit), for a caller that reads the block once more if there is a defect: only a persistent error
    /// is located.
    pub(crate) fn try_admit(
        &self,
        parts: &Parts,
        found: BlockRef,
        frame: &Bytes,
        read: ReadOptions,
        what_for: Use,
    ) -> Result<Bytes, Defect> {
        let block = check_frame(parts, found, frame)?;
        let (is_raw, state) = (frame::is_raw(frame), parts.index.state(found));
        if is_raw && self.file.is_memory() {
            parts.learn(found, &block);
            state.set(BlockState::IN_PLACE);
            return Ok(block.data);
        }
        if let Some(cache) = &self.cache
            && (self.keeps_all || !is_raw || what_for == Use::Lookup)
        {
            self.file.counters.add(Counter::CacheMisses, 1);
            if read.fill_cache && (cache.takes_missed(state) || self.keeps_all) {
                // Otherwise, all bytes that were read with an uncompressed block would stay in memory.
                let is_alone = self.file.reads_alone() && what_for == Use::Lookup;
                let copy = (is_raw && !is_alone).then(|| Bytes::copy_from_slice(&block.data));
                let kept = ReadBlock::new(copy.unwrap_or_else(|| block.data.clone()));
                parts.learn(found, &block);
                let (key, blocks) = (self.cache_key(found.block), parts.index.len());
                let keep = |kept| cache.0.blocks.insert(key, kept);
                self.cached.put(found.block, blocks, kept, keep);
                state.set(BlockState::CACHED);
            }
        }
        Ok(block.data)
    }

    /// Data blocks that are neither used in place nor in the cache, in ascending order. Passes each to `take`, with its position in
    /// `found`, when it has been read and checked. All blocks of a batch are requested at once, and read while earlier ones
    /// are taken; batches bound the memory.
    pub(crate) fn load_many(
        &self,
        parts: &Parts,
        found: &[BlockRef],
        read: ReadOptions,
        mut take: impl FnMut(usize, Result<Bytes>),
    ) {
        if self.file.is_memory() {
            let announce = |&found: &BlockRef| self.announce_block(parts, found);
            found.iter().for_each(announce);
            let load = |&found| self.load_checked(parts, found, read);
            let loaded = found.iter().map(load).enumerate();
            return loaded.for_each(|(i, block)| take(i, block));
        }
        let mut first = 0;
        while let Some(rest @ [_, ..]) = found.get(first..) {
            let batch = rest.split_at(batch_len(rest)).0;
            let ranges = batch.iter().map(|found| found.handle.frame_in_file());
            let ranges: Vec<Range<u64>> = ranges.collect();
            self.file.read_each(&ranges, &mut |i, frame| {
                if let Some(&found) = batch.get(i) {
                    let frame = frame.map_err(|e| e.of_section(Section::Data));
                    let block = frame.and_then(|frame| self.admit(parts, found, &frame, read));
                    take(first + i, block);
                }
            });
            first += batch.len();
        }
    }
}

/// The data block in `frame`: checks its checksum, its structure and its keys.
pub(crate) fn check_frame(
    parts: &Parts,
    found: BlockRef,
    frame: &Bytes,
) -> Result<Block<Bytes>, Defect> {
    frame::verify(frame)?;
    let block = Block::parse(frame::open(frame)?)?;
    parts.check_block(found, &block)?;
    Ok(block)
}

#[cfg(test)]
mod tests {
    use crate::read::table::opened::Opened;
    use crate::{Compression, OpenOptions, WriteOptions};

    #[test]
    fn blocks_in_memory_are_used_in_place_once_they_were_checked() {
        let mut file = Vec::new();
        let options = WriteOptions::new().compression(Compression::None);
        let mut builder = options.build(&mut file);
        builder.add(b"key", b"value").unwrap();
        builder.finish().unwrap();
        let table = OpenOptions::new().open_source(file).unwrap();
        let Opened { parts, store, .. } = &*table.opened;
        let first = parts.block(0).unwrap();
        let is_in_place = || {
            let state = parts.index.state(first);
            store.in_place(state, first.handle).is_some()
        };
        assert!(!is_in_place());
        assert!(table.contains_key("key").unwrap());
        assert!(is_in_place());
    }
}
