//! Data blocks: where they are found, checked when they come in, and kept.

use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::comparator::Order;
use crate::error::{ErrorKind, Result};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::footer::BlockHandle;
use crate::format::frame::{self, TRAILER_LEN};
use crate::read::cache::BlockKey;
use crate::read::file::TableFile;
use crate::read::index::BlockRef;
use crate::read::options::ReadOptions;
use crate::read::stats::Counter;
use crate::read::table::{Inner, Table};
use crate::read::walk_ahead::WalkAhead;

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

impl Inner {
    /// A data block, from memory, the cache or the source: checked when it comes in.
    #[inline(always)]
    pub(super) fn fetch_block(&self, found: BlockRef, read: ReadOptions) -> Result<Fetched<'_>> {
        if self
            .hints
            .of(found.block)
            .is_in_place(read.verify_checksums)
            && let Some(file) = self.file.memory()
        {
            return Ok(in_place(file, &self.file, found.handle));
        }
        self.fetch_copy(found, read).map(Fetched::whole)
    }

    #[inline(never)]
    fn fetch_copy(&self, found: BlockRef, read: ReadOptions) -> Result<Bytes> {
        if let Some(cache) = &self.cache
            && let Some(block) = cache.get(self.cache_key(found.handle))
        {
            self.file.counters.add(Counter::CacheHits, 1);
            return Ok(block);
        }
        self.admit_block(found, read)
    }

    /// Asks the system to read a data block of a mapped file as a whole, and not page by page as it is touched. A block that was
    /// seen before is likely to be in memory still, and asking takes longer than to find it there.
    pub(super) fn announce_block(&self, found: BlockRef) {
        if !self.hints.of(found.block).is_ordered() {
            let BlockHandle { offset, size } = found.handle;
            self.file.announce(offset, size + TRAILER_LEN as u64);
        }
    }

    /// A data block from the source: checked, and kept in the cache, unless it can be used where it lies in memory.
    fn admit_block(&self, found: BlockRef, read: ReadOptions) -> Result<Bytes> {
        self.announce_block(found);
        let frame = self.file.read_frame(found.handle)?;
        let block = self
            .check_frame(found.block, &frame, read.verify_checksums)
            .map_err(|defect| self.locate(found.block, defect))?;
        if self.file.is_memory() && frame::is_raw(&frame) {
            self.hints
                .of(found.block)
                .set_in_place(read.verify_checksums);
        } else if let Some(cache) = &self.cache {
            self.file.counters.add(Counter::CacheMisses, 1);
            if read.fill_cache && read.verify_checksums && cache.admits() {
                // In bytes of its own: a source may return a slice of something large, and all of that would stay in memory.
                let kept = if frame::is_raw(&frame) {
                    Bytes::copy_from_slice(&block)
                } else {
                    block.clone()
                };
                cache.insert(self.cache_key(found.handle), kept);
            }
        }
        Ok(block)
    }

    /// The block in `frame`, which is that of data block `i`: checks checksum and form, and, unless a lookup has done so, the order
    /// of its keys.
    fn check_frame(&self, i: usize, frame: &Bytes, verify: bool) -> Result<Bytes, Defect> {
        if verify {
            frame::verify(frame)?;
        }
        let payload = frame::open(frame)?;
        let block = Block::parse(&payload)?;
        let hint = self.hints.of(i);
        let Some(order) = &self.order else {
            block.check_entries()?;
            return Ok(payload);
        };
        if hint.is_ordered() {
            block.check_restarts()?;
            return Ok(payload);
        }
        let before = i.checked_sub(1).map(|before| self.index.key(before));
        block.check_keys(order, before, self.index.key(i))?;
        hint.set_ordered();
        if let Order::Bytewise = order {
            hint.set_fences(&block, i, &self.index);
        }
        Ok(payload)
    }

    /// Checks the order of keys in all data blocks, which are at hand. Damage is left for lookups to find.
    pub(super) fn check_order(&self) -> Result<()> {
        for i in 0..self.index.len() {
            let frame = self.file.read_frame(self.index.handle(i))?;
            if let Err(defect) = self.check_frame(i, &frame, true) {
                let error = self.locate(i, defect);
                if error.kind() == ErrorKind::Comparator {
                    return Err(error);
                }
            }
        }
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

impl Table {
    /// Announces what a walk through a mapped file comes to after data block `to`, at which it arrives from block `from`.
    pub(super) fn announce_walk(&self, from: Option<usize>, to: usize, ahead: &mut WalkAhead) {
        if let Some(map) = &self.inner.file.source.map {
            let BlockHandle { offset, size } = self.inner.index.handle(to);
            let frame = offset..offset + size + TRAILER_LEN as u64;
            let is_backward = from.is_some_and(|from| from > to);
            let is_known = self.inner.hints.of(to).is_ordered();
            if let Some(bytes) = ahead.arrive(frame, is_backward, is_known) {
                map.announce_walk(bytes);
            }
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
