//! Data blocks: `load` takes one from memory, the cache or the source, checks it when it comes in, and keeps it.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_search::prefetch_part;
use crate::format::footer::BlockHandle;
use crate::format::frame::{self, TRAILER_LEN};
use crate::format::page::PAGE_LEN;
use crate::read::cache::BlockKey;
use crate::read::index::{BlockRef, Found};
use crate::read::options::ReadOptions;
use crate::read::state::State;
use crate::read::stats::Counter;
use crate::read::table::Inner;

/// Most bytes of data blocks that are read at once because they follow each other.
pub(super) const MAX_READ_LEN: u64 = 256 << 10;

/// Most data blocks that are asked for in one batch, and most bytes of them, unless one takes more.
pub(super) const MAX_BATCH_BLOCKS: usize = 512;
const MAX_BATCH_LEN: u64 = 4 << 20;

/// Most bytes between two blocks that are read together: less than a page, such as the padding of an aligned table.
pub(super) const MAX_GAP: u64 = PAGE_LEN - 1;

/// Why a data block is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// For a key, one of a batch perhaps.
    Lookup,
    /// With others, for a walk that has come to it from a neighbour.
    Walk,
}

/// Bytes, and where in them a data block lies.
pub(crate) type Loaded<'a> = (&'a Bytes, Range<usize>);

/// A data block that lies in bytes of its own.
pub(super) fn whole(block: &Bytes) -> Loaded<'_> {
    (block, 0..block.len())
}

/// How many of `blocks` are asked for in one batch; one at least.
pub(super) fn batch_len(blocks: &[BlockRef]) -> usize {
    let mut len = 0;
    let fits = |(i, found): &(usize, &BlockRef)| {
        len += found.handle.size;
        *i == 0 || *i < MAX_BATCH_BLOCKS && len <= MAX_BATCH_LEN
    };
    blocks.iter().enumerate().take_while(fits).count()
}

impl Inner {
    /// Where a data block lies in a file in memory, if it is used there, and was checked before.
    #[inline(always)]
    pub(super) fn in_place(
        &self,
        state: &State,
        handle: BlockHandle,
    ) -> Option<(&Bytes, Range<usize>)> {
        if !state.has(State::IN_PLACE) {
            return None;
        }
        // Both fit: the block was read from there before.
        let BlockHandle { offset, size } = handle;
        let range = offset as usize..(offset + size) as usize;
        Some((self.file.memory()?, range))
    }

    /// Prefetches what a search for the key of `found` looks at, if the block is used in place.
    #[inline(always)]
    pub(super) fn prefetch_in_place(&self, found: Found<'_>) {
        if let Some((file, range)) = self.in_place(found.state(), found.handle()) {
            prefetch_part(file.get(range).unwrap_or_default(), found.part());
        }
    }

    /// The data block that a search has found: bytes, and where in them it lies. It comes from memory, or from the cache or the source,
    /// and is in `own` then. In a mapped file, it is announced before its first use if `announce`.
    #[inline(always)]
    pub(super) fn load<'a>(
        &'a self,
        found: Found<'_>,
        read: ReadOptions,
        announce: bool,
        own: &'a mut Option<Bytes>,
    ) -> Result<Loaded<'a>> {
        if let Some((file, range)) = self.in_place(found.state(), found.handle()) {
            // Not a slice, which would be counted up and down for a value that is only looked at.
            return Ok((self.file.owners.of_this_thread(file), range));
        }
        Ok(whole(own.insert(self.load_found(found, read, announce)?)))
    }

    #[inline(never)]
    fn load_found(&self, found: Found<'_>, read: ReadOptions, announce: bool) -> Result<Bytes> {
        let block = found.to_ref();
        if announce {
            self.announce_block(block);
        }
        let loaded = self.load_anew(block, read)?;
        prefetch_part(&loaded, found.part());
        Ok(loaded)
    }

    /// A data block to keep, from memory, the cache or the source.
    pub(super) fn load_bytes(&self, found: BlockRef, read: ReadOptions) -> Result<Bytes> {
        match self.in_place(self.index.state(found), found.handle) {
            Some((file, range)) => Ok(self.file.owners.of_this_thread(file).slice(range)),
            None => self.load_anew(found, read),
        }
    }

    /// A data block from the cache or the source; on its first use also one that lies in memory.
    pub(super) fn load_anew(&self, found: BlockRef, read: ReadOptions) -> Result<Bytes> {
        if let Some(block) = self.cached(found) {
            return Ok(block);
        }
        self.admit(found, &self.file.read_frame(found.handle)?, read)
    }

    /// Asks the system to read a data block of a mapped file as a whole, and not page by page as it is used. A block that was
    /// read before is likely to be in memory still, and asking takes longer than to find it there.
    #[inline]
    pub(super) fn announce_block(&self, found: BlockRef) {
        if self.file.map().is_some() && !self.index.state(found).has(State::CHECKED) {
            let Range { start, end } = frame_range(found.handle);
            self.file.announce(start, end - start);
        }
    }

    /// A data block from the cache.
    pub(super) fn cached(&self, found: BlockRef) -> Option<Bytes> {
        let cache = self.cache.as_ref()?;
        if !self.index.state(found).has(State::CACHED) {
            return None;
        }
        let block = cache.0.blocks.get(&self.cache_key(found.handle))?;
        self.file.counters.add(Counter::CacheHits, 1);
        Some(block)
    }

    /// Whether a data block is in the cache.
    pub(super) fn is_cached(&self, found: BlockRef) -> bool {
        let cache = self.cache.as_ref();
        cache.is_some_and(|cache| {
            let may_be_cached = self.index.state(found).has(State::CACHED);
            may_be_cached && cache.0.blocks.contains_key(&self.cache_key(found.handle))
        })
    }

    /// The name of the data block at `handle` in the cache.
    pub(super) fn cache_key(&self, handle: BlockHandle) -> BlockKey {
        (self.id, handle.offset)
    }

    /// The data block in `frame`, which came from the source: checked, and kept.
    pub(super) fn admit(&self, found: BlockRef, frame: &Bytes, read: ReadOptions) -> Result<Bytes> {
        self.try_admit(found, frame, read, Use::Lookup)
            .map_err(|defect| self.locate(found, defect))
    }

    /// Like [`admit`](Inner::admit), for a caller who reads the block once more if there is a defect: only an error that stays
    /// is located.
    pub(super) fn try_admit(
        &self,
        found: BlockRef,
        frame: &Bytes,
        read: ReadOptions,
        what_for: Use,
    ) -> Result<Bytes, Defect> {
        let block = self.check_frame(found, frame)?;
        let (is_raw, state) = (frame::is_raw(frame), self.index.state(found));
        if is_raw && self.file.is_memory() {
            if let Some(Order::Bytewise) = self.order {
                self.index.learn(found, &Block::parse(&block)?);
            }
            state.set(State::IN_PLACE);
            return Ok(block);
        }
        if let Some(cache) = &self.cache
            && (self.keeps_all || !is_raw || what_for == Use::Lookup)
        {
            self.file.counters.add(Counter::CacheMisses, 1);
            let keeps = || self.keeps_all || cache.takes_missed(state);
            if read.fill_cache && keeps() {
                // What was read with a raw block would stay in memory, too.
                let is_alone = self.file.reads_alone() && what_for == Use::Lookup;
                let copy = (is_raw && !is_alone).then(|| Bytes::copy_from_slice(&block));
                let kept = copy.unwrap_or_else(|| block.clone());
                cache.0.blocks.insert(self.cache_key(found.handle), kept);
                if let Some(Order::Bytewise) = self.order {
                    self.index.learn(found, &Block::parse(&block)?);
                }
                state.set(State::CACHED);
            }
        }
        Ok(block)
    }

    /// The data block in `frame`: checks checksum and form, and, unless that was done before, the order of its keys.
    pub(super) fn check_frame(&self, found: BlockRef, frame: &Bytes) -> Result<Bytes, Defect> {
        frame::verify(frame)?;
        let payload = frame::open(frame)?;
        let block = Block::parse(&payload)?;
        let state = self.index.state(found);
        if state.has(State::CHECKED) {
            block.check_restarts()?;
            return Ok(payload);
        }
        match &self.order {
            None => block.check_entries()?,
            Some(order) => block.check_keys(order, |first, last| {
                self.index.check_ends(found, first, last, order)
            })?,
        }
        state.set(State::CHECKED);
        Ok(payload)
    }

    /// Data blocks of a file that is not in memory, in ascending order. Gives each to `take`, with its position in `found`, when it is
    /// there and was checked. They are asked for a batch at a time, so that the memory that they take is bounded.
    pub(super) fn load_many(
        &self,
        found: &[BlockRef],
        read: ReadOptions,
        mut take: impl FnMut(usize, Result<Bytes>),
    ) {
        let (mut first, mut rest) = (0, found);
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_len(rest));
            self.load_batch(batch, read, &mut |at, block| take(first + at, block));
            (first, rest) = (first + batch.len(), after);
        }
    }

    /// Loads a batch of blocks, from the cache or the source, which is asked for all that are missing at once, and goes on while those
    /// that are there are taken.
    fn load_batch(
        &self,
        found: &[BlockRef],
        read: ReadOptions,
        take: &mut dyn FnMut(usize, Result<Bytes>),
    ) {
        let mut missing = Vec::new();
        for (at, &found) in found.iter().enumerate() {
            match self.cached(found) {
                Some(block) => take(at, Ok(block)),
                None => missing.push((at, found)),
            }
        }
        let ranges = missing.iter().map(|(_, found)| frame_range(found.handle));
        let ranges: Vec<Range<u64>> = ranges.collect();
        self.file.read_each(&ranges, &mut |i, frame| {
            if let Some(&(at, found)) = missing.get(i) {
                take(at, frame.and_then(|frame| self.admit(found, &frame, read)));
            }
        });
    }

    /// Where a data block ends in the file, with the padding after it if no more than that lies before the next block.
    pub(super) fn padded_end(&self, found: BlockRef) -> u64 {
        let (end, next) = (frame_range(found.handle).end, found.block + 1);
        match (next < self.index.len()).then(|| self.index.block(next)) {
            Some(Ok(next)) if next.handle.offset - end <= MAX_GAP => next.handle.offset,
            _ => end,
        }
    }
}

/// Where the frame of the block at `handle`, one of the index's, lies in the file.
pub(super) fn frame_range(handle: BlockHandle) -> Range<u64> {
    let BlockHandle { offset, size } = handle;
    // No overflow: the index has handles inside the file only.
    offset..offset + size + TRAILER_LEN as u64
}

#[cfg(test)]
mod tests {
    use crate::{Compression, OpenOptions, WriteOptions};

    #[test]
    fn blocks_in_memory_are_used_in_place_once_they_were_checked() {
        let mut file = Vec::new();
        let options = WriteOptions::new().compression(Compression::None);
        let mut builder = options.build(&mut file);
        builder.add(b"key", b"value").unwrap();
        builder.finish().unwrap();
        let table = OpenOptions::new().open_source(file).unwrap();
        let first = table.inner.block(0).unwrap();
        let is_in_place = || {
            let state = table.inner.index.state(first);
            table.inner.in_place(state, first.handle).is_some()
        };
        assert!(!is_in_place());
        assert!(table.contains_key("key").unwrap());
        assert!(is_in_place());
    }
}
