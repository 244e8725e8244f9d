//! Data blocks: where they are found, checked when they come in, and kept.

use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::error::Result;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_search::prefetch_block;
use crate::format::footer::BlockHandle;
use crate::format::frame::{self, TRAILER_LEN};
use crate::format::page::PAGE_LEN;
use crate::read::cache::{BlockCache, BlockKey};
use crate::read::file::TableFile;
use crate::read::index::BlockRef;
use crate::read::options::ReadOptions;
use crate::read::stats::Counter;
use crate::read::table::Inner;

/// A data block where it lies.
#[derive(Clone)]
pub(super) struct Fetched<'a> {
    place: Place<'a>,
    /// Inside the bytes.
    range: Range<usize>,
}

#[derive(Clone)]
enum Place<'a> {
    /// Among the bytes of the whole file in memory.
    InFile(&'a Bytes, &'a TableFile),
    /// In bytes of its own.
    Apart(Bytes),
}

impl Fetched<'_> {
    fn whole(block: Bytes) -> Fetched<'static> {
        Fetched {
            range: 0..block.len(),
            place: Place::Apart(block),
        }
    }

    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "the range lies inside, see `in_place` and `whole`"
    )]
    pub(super) fn payload(&self) -> &[u8] {
        let bytes = match &self.place {
            Place::InFile(bytes, _) => *bytes,
            Place::Apart(bytes) => bytes,
        };
        &bytes[self.range.clone()]
    }

    /// The bytes at `range` of the payload, which lies inside it.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "a search found the range in the payload"
    )]
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.payload()[range]
    }

    /// The same, as bytes that keep the block in memory.
    pub(super) fn bytes_at(&self, range: Range<usize>) -> Bytes {
        let start = self.range.start;
        let bytes = match &self.place {
            Place::InFile(bytes, file) => file.own(bytes),
            Place::Apart(bytes) => bytes,
        };
        bytes.slice(start + range.start..start + range.end)
    }

    #[inline]
    pub(super) fn into_bytes(self, range: Range<usize>) -> Bytes {
        match self.place {
            Place::InFile(..) => self.bytes_at(range),
            Place::Apart(mut bytes) => {
                // Cut to size rather than sliced: the reference count stays as it is.
                let start = self.range.start;
                bytes.truncate(start + range.end);
                bytes.advance(start + range.start);
                bytes
            }
        }
    }

    pub(super) fn into_payload(self) -> Bytes {
        let len = self.range.len();
        self.into_bytes(0..len)
    }
}

/// What a data block is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// For a key, or for the first entries of a walk, which may be all that is wanted.
    Lookup,
    /// For a walk that has come to it from a neighbour.
    Walk,
}

/// Most bytes of data blocks that are read at once because they follow each other.
pub(super) const MOST_RUN_LEN: u64 = 256 << 10;

/// Most data blocks that are asked for in one batch, and most bytes of them, unless one takes more.
pub(super) const MOST_BLOCKS: usize = 512;
const MOST_BATCH_LEN: u64 = 4 << 20;

/// How many of `blocks` are asked for in one batch; one at least.
fn batch_len(blocks: &[BlockRef]) -> usize {
    let mut len = 0;
    let fits = |(i, found): &(usize, &BlockRef)| {
        len += found.handle.size;
        *i == 0 || *i < MOST_BLOCKS && len <= MOST_BATCH_LEN
    };
    blocks.iter().enumerate().take_while(fits).count()
}

/// Data blocks that follow each other in the file, with what may lie between them.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    pub(super) blocks: Range<usize>,
    /// Where it begins in the file, and how long it is, in bytes.
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Run {
    /// Where it lies in the file.
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }

    /// The frame of the block at `handle`, one of the run's, of which `bytes` were read.
    pub(super) fn frame(&self, bytes: &Bytes, handle: BlockHandle) -> Option<Bytes> {
        let start = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        let end = start.checked_add(usize::try_from(handle.size).ok()?)?;
        let end = end.checked_add(TRAILER_LEN)?;
        (end <= bytes.len()).then(|| bytes.slice(start..end))
    }
}

impl Inner {
    /// A data block, from memory, the cache or the source: checked when it comes in. Its end is prefetched.
    #[inline(always)]
    pub(super) fn fetch_block(&self, found: BlockRef, read: ReadOptions) -> Result<Fetched<'_>> {
        match self.fetch_in_place(found, read) {
            Some(block) => Ok(block),
            None => self.announce_and_fetch(found, read).map(Fetched::whole),
        }
    }

    /// The same for a block that was announced before, if the file is mapped.
    pub(super) fn fetch_announced(
        &self,
        found: BlockRef,
        read: ReadOptions,
    ) -> Result<Fetched<'_>> {
        match self.fetch_in_place(found, read) {
            Some(block) => Ok(block),
            None => self.fetch_touched(found, read).map(Fetched::whole),
        }
    }

    /// A data block that is used where it lies in memory.
    #[inline(always)]
    pub(super) fn fetch_in_place(&self, found: BlockRef, read: ReadOptions) -> Option<Fetched<'_>> {
        let hint = self.hints.of(found.block);
        if hint.is_in_place(read.verify_checksums)
            && let Some(file) = self.file.memory()
        {
            let block = in_place(file, &self.file, found.handle);
            prefetch_block(block.payload());
            return Some(block);
        }
        None
    }

    #[inline(never)]
    fn announce_and_fetch(&self, found: BlockRef, read: ReadOptions) -> Result<Bytes> {
        self.announce_block(found);
        self.fetch_touched(found, read)
    }

    /// A data block in bytes of its own, from the cache or the source.
    pub(super) fn fetch_apart(&self, found: BlockRef, read: ReadOptions) -> Result<Bytes> {
        self.fetch_touched(found, read)
    }

    /// The same; `part` of a block from the cache is touched. One from the source has just been read and checked, and asking
    /// for its lines again takes 70 ns.
    fn fetch_touched(&self, found: BlockRef, read: ReadOptions) -> Result<Bytes> {
        match self.cached(found) {
            Some(block) => {
                prefetch_block(&block);
                Ok(block)
            }
            None => self.admit(found, &self.file.read_frame(found.handle)?, read),
        }
    }

    /// Asks the system to read a data block of a mapped file as a whole, and not page by page as it is touched. A block that was
    /// seen before is likely to be in memory still, and asking takes longer than to find it there.
    pub(super) fn announce_block(&self, found: BlockRef) {
        if self.file.is_mapped() && !self.is_known(found.block) {
            let run = self.run(found.block..found.block + 1);
            self.file.announce(run.offset, run.len);
        }
    }

    /// Whether data block `i` was seen before.
    pub(super) fn is_known(&self, i: usize) -> bool {
        self.hints.of(i).is_ordered()
    }

    /// The same; without an order to check, no block is marked as seen, and any may have been.
    fn may_be_known(&self, i: usize) -> bool {
        self.is_known(i) || self.order.is_none()
    }

    /// A data block from the cache. A block that was never seen cannot be there, so the cache is not searched for it.
    pub(super) fn cached(&self, found: BlockRef) -> Option<Bytes> {
        let cache = self.cache.as_ref()?;
        if !self.may_be_known(found.block) {
            return None;
        }
        let block = cache.get(self.cache_key(found.handle))?;
        self.file.counters.add(Counter::CacheHits, 1);
        Some(block)
    }

    /// The data block in `frame`, which came from the source: checked, and kept in the cache, unless it can be used where it lies
    /// in memory.
    pub(super) fn admit(&self, found: BlockRef, frame: &Bytes, read: ReadOptions) -> Result<Bytes> {
        self.try_admit(found, frame, read, Use::Lookup)
            .map_err(|defect| self.locate(found.block, defect))
    }

    /// The same, for a caller who reads the block once more if there is a defect: only an error that stays is located.
    #[inline(always)] // a call adds 13 instructions to the 5,300 of a lookup that reads its block
    pub(super) fn try_admit(
        &self,
        found: BlockRef,
        frame: &Bytes,
        read: ReadOptions,
        what_for: Use,
    ) -> Result<Bytes, Defect> {
        let was_seen = self.may_be_known(found.block);
        let block = self.check_frame(found.block, frame, read.verify_checksums)?;
        if self.file.is_memory() && frame::is_raw(frame) {
            self.hints.set_in_place(found.block, read.verify_checksums);
            return Ok(block);
        }
        if let Some(cache) = &self.cache {
            self.file.counters.add(Counter::CacheMisses, 1);
            if read.fill_cache && read.verify_checksums && self.admits(cache, what_for, was_seen) {
                // In bytes of its own: a source may return a slice of something large, and all of that would stay in memory.
                let kept = if frame::is_raw(frame) && !self.is_remote {
                    Bytes::copy_from_slice(&block)
                } else {
                    block.clone()
                };
                cache.insert(self.cache_key(found.handle), kept);
            }
        }
        Ok(block)
    }

    /// Whether the cache takes a block that just came in; `was_seen` tells whether it came in before.
    ///
    /// The system keeps recently read parts of a file in memory, so the cache takes a lookup's block of a file only when it comes
    /// in again: blocks that are used once take no room, and the first visit to a raw block needs no copy in fresh memory. A
    /// million lookups in 67,000 blocks by a cache of 32 MiB read 5 % fewer of them (Zipf's law with an exponent of 0.99; with
    /// 1.2, 7 %), after 20 % more in the first 65,000. A walk visits each block once, and leaves them for the next walk, if there
    /// is room.
    fn admits(&self, cache: &BlockCache, what_for: Use, was_seen: bool) -> bool {
        match what_for {
            _ if self.is_remote => true,
            Use::Walk => !cache.is_full(),
            Use::Lookup => (was_seen || !self.file.source.is_file()) && cache.admits(),
        }
    }

    /// Data blocks of a file that is not in memory, in ascending order. Gives each to `take`, with its position in `found`,
    /// when it is there and was checked. They are asked for a batch at a time, so that the memory that they take is bounded.
    pub(super) fn fetch_all(
        &self,
        found: &[BlockRef],
        read: ReadOptions,
        mut take: impl FnMut(usize, Result<Bytes>),
    ) {
        let (mut first, mut rest) = (0, found);
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_len(rest));
            self.fetch_batch(batch, read, &mut |at, block| take(first + at, block));
            (first, rest) = (first + batch.len(), after);
        }
    }

    /// A batch of them, from the cache or from the source, which is asked for all that are missing at once, and goes on while
    /// those that are there are taken.
    fn fetch_batch(
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
        let runs = self.runs(missing.iter().map(|(_, found)| found.block));
        // The blocks of a run follow each other among those that are missing.
        let mut rest = &missing[..];
        let mut parts = Vec::with_capacity(runs.len());
        let mut wanted = Vec::with_capacity(runs.len());
        for run in runs {
            let (blocks, after) = rest.split_at(run.blocks.len().min(rest.len()));
            rest = after;
            match usize::try_from(run.len) {
                Ok(len) => {
                    parts.push((run.offset, len));
                    wanted.push((run, blocks));
                }
                // Too long for this machine's memory, which is the error of reading it alone.
                Err(_) => blocks
                    .iter()
                    .for_each(|&(at, found)| take(at, self.fetch_apart(found, read))),
            }
        }
        self.file.read_many(&parts, &mut |part, bytes| {
            let Some((run, blocks)) = wanted.get(part) else {
                return;
            };
            if let &[(at, found)] = *blocks {
                return take(at, bytes.and_then(|frame| self.admit(found, &frame, read)));
            }
            // If the run could not be read, or its bytes are not sound, each block is read alone: an error is that of one block.
            let bytes = bytes.ok();
            for &(at, found) in *blocks {
                let frame = bytes.as_ref();
                let frame = frame.and_then(|bytes| run.frame(bytes, found.handle));
                let block =
                    frame.and_then(|frame| self.try_admit(found, &frame, read, Use::Lookup).ok());
                take(at, block.map_or_else(|| self.fetch_apart(found, read), Ok));
            }
        });
    }

    /// The data blocks of `missing`, in ascending order, those that follow each other as one run.
    fn runs(&self, missing: impl Iterator<Item = usize>) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for i in missing {
            let longer = runs
                .last()
                .filter(|last| last.blocks.end == i && self.is_adjacent(i - 1))
                .map(|last| self.run(last.blocks.start..i + 1))
                .filter(|longer| longer.len <= MOST_RUN_LEN);
            match (longer, runs.last_mut()) {
                (Some(longer), Some(last)) => *last = longer,
                _ => runs.push(self.run(i..i + 1)),
            }
        }
        runs
    }

    /// The longest run of data blocks that begins at `block`, ends before `end`, and takes at most `len` bytes of the file; one
    /// block at least.
    pub(super) fn run_from(&self, block: usize, end: usize, len: u64) -> Run {
        let start = self.index.handle(block).offset;
        let more = (block + 1..end.min(self.index.len()))
            .take_while(|&i| self.frame_end(i) - start <= len && self.is_adjacent(i - 1));
        let last = self.last_of_run(block, more);
        self.run(block..last + 1)
    }

    /// The same for a run that ends with `block`, and begins at or after `start`.
    pub(super) fn run_to(&self, block: usize, start: usize, len: u64) -> Run {
        let end = self.frame_end(block);
        let more = (start.min(block)..block)
            .rev()
            .take_while(|&i| end - self.index.handle(i).offset <= len && self.is_adjacent(i));
        let last = self.last_of_run(block, more);
        self.run(last..block + 1)
    }

    /// The last block of a run that begins with `first`, of those that may follow it in `more`. Short stretches of blocks that
    /// are in the cache are read again, since a read for each part between them takes longer; long ones are not, and no run ends
    /// with one.
    fn last_of_run(&self, first: usize, more: impl Iterator<Item = usize>) -> usize {
        const MOST_CACHED: usize = 8;
        let mut last = first;
        for i in more {
            if i.abs_diff(last) > MOST_CACHED + 1 {
                break;
            }
            if !self.is_cached(i) {
                last = i;
            }
        }
        last
    }

    /// Whether data block `i` is in the cache.
    pub(super) fn is_cached(&self, i: usize) -> bool {
        let key = self.cache_key(self.index.handle(i));
        self.cache.as_ref().is_some_and(|cache| cache.contains(key))
    }

    /// Whether no more than padding lies between data block `i` and the next.
    fn is_adjacent(&self, i: usize) -> bool {
        self.index.handle(i + 1).offset - self.frame_end(i) < PAGE_LEN
    }

    /// The run of `blocks`, of which there is at least one.
    pub(super) fn run(&self, blocks: Range<usize>) -> Run {
        let offset = self.index.handle(blocks.start).offset;
        let len = self.frame_end(blocks.end - 1) - offset;
        Run {
            blocks,
            offset,
            len,
        }
    }

    /// How long `run` is with the padding after it.
    pub(super) fn padded_len(&self, run: &Run) -> u64 {
        let next = run.blocks.end;
        if next > 0 && next < self.index.len() && self.is_adjacent(next - 1) {
            self.index.handle(next).offset - run.offset
        } else {
            run.len
        }
    }

    /// The bytes of `run`.
    pub(super) fn read_run(&self, run: &Run) -> Result<Bytes> {
        match usize::try_from(run.len) {
            Ok(len) => self.file.read(run.offset, len),
            // A single block, on a machine of 32 bits.
            Err(_) => self.file.read_frame(self.index.handle(run.blocks.start)),
        }
    }

    /// Where the last data block ends in the file; 0 if there is none.
    pub(super) fn blocks_end(&self) -> u64 {
        let last = self.index.len().checked_sub(1);
        last.map_or(0, |last| self.frame_end(last))
    }

    /// Where the frame of data block `i` ends in the file.
    pub(super) fn frame_end(&self, i: usize) -> u64 {
        let BlockHandle { offset, size } = self.index.handle(i);
        // No overflow: the index has handles inside the file only.
        offset + size + TRAILER_LEN as u64
    }

    /// The block in `frame`, which is that of data block `i`: checks checksum and form, and, unless a lookup has done so, the
    /// order of its keys.
    pub(super) fn check_frame(
        &self,
        i: usize,
        frame: &Bytes,
        verify: bool,
    ) -> Result<Bytes, Defect> {
        if verify {
            frame::verify(frame)?;
        }
        let payload = frame::open(frame)?;
        self.check_payload(i, &payload, &mut KeyWork::of_block())?;
        Ok(payload)
    }

    /// Checks the form of data block `i`, and, unless that was done before, the order of its keys, within what is left of `work`.
    #[inline]
    pub(super) fn check_payload(
        &self,
        i: usize,
        payload: &Bytes,
        work: &mut KeyWork,
    ) -> Result<(), Defect> {
        let block = Block::parse(payload)?;
        let hint = self.hints.of(i);
        let Some(order) = &self.order else {
            return block.check_entries();
        };
        if hint.is_ordered() {
            return block.check_restarts();
        }
        block.check_keys(order, work, |first, last| {
            self.index.check_ends(i, first, last, order)
        })?;
        hint.set_ordered();
        Ok(())
    }

    /// Checks the order of the last data block's keys, unless a lookup has done so: that a key is past the last index key shows
    /// that it is not in the table only if the block's keys are not.
    #[inline]
    pub(super) fn check_end(&self, read: ReadOptions) -> Result<()> {
        match self.index.len().checked_sub(1) {
            Some(last) if !self.knows_end() => {
                self.fetch_block(self.index.block(last), read).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The name of the data block at `handle` in the cache.
    fn cache_key(&self, handle: BlockHandle) -> BlockKey {
        BlockKey {
            table: self.id,
            offset: handle.offset,
        }
    }
}

/// The data block at `handle`, which is stored raw, where it lies in memory.
#[inline]
fn in_place<'a>(bytes: &'a Bytes, file: &'a TableFile, handle: BlockHandle) -> Fetched<'a> {
    // Both fit: the block was read from there before.
    let start = handle.offset as usize;
    Fetched {
        place: Place::InFile(bytes, file),
        range: start..start + handle.size as usize,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Compression, OpenOptions, ReadOptions, WriteOptions};

    /// Without checksums, each lookup in memory took the block apart anew, and was slower than with them.
    #[test]
    fn blocks_in_memory_are_used_in_place_with_checksums_and_without() {
        let mut file = Vec::new();
        let options = WriteOptions::new().compression(Compression::None);
        let mut builder = options.build(&mut file);
        builder.add(b"key", b"value").unwrap();
        builder.finish().unwrap();
        let table = OpenOptions::new().open_source(file).unwrap();
        let careless = table.with(ReadOptions::new().verify_checksums(false));
        assert_eq!(careless.place_in_memory(0), None);
        assert!(careless.contains_key("key").unwrap());
        assert_eq!(careless.place_in_memory(0), Some(0));
        assert_eq!(table.place_in_memory(0), None, "not verified yet");
        assert!(table.contains_key("key").unwrap());
        assert_eq!(table.place_in_memory(0), Some(0));
    }
}
