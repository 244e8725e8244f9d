//! Data blocks: where they are found, checked when they come in, and kept.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::comparator::Order;
use crate::error::Result;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::read::cache::BlockKey;
use crate::read::options::ReadOptions;
use crate::read::stats::Counter;
use crate::read::table::Inner;

/// A data block where it lies: in the memory of the whole file, or in bytes of its own.
#[derive(Clone)]
pub(super) struct Fetched<'a> {
    bytes: Cow<'a, Bytes>,
    range: Range<usize>,
}

impl Fetched<'_> {
    fn whole(block: Bytes) -> Fetched<'static> {
        Fetched {
            range: 0..block.len(),
            bytes: Cow::Owned(block),
        }
    }

    #[inline]
    pub(super) fn payload(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }

    #[inline]
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        self.payload().get(range).unwrap_or_default()
    }

    pub(super) fn bytes_at(&self, range: Range<usize>) -> Bytes {
        let start = self.range.start;
        self.bytes.slice(start + range.start..start + range.end)
    }

    /// The bytes at `range` of the payload, which lies inside it.
    #[inline]
    pub(super) fn into_bytes(self, range: Range<usize>) -> Bytes {
        let start = self.range.start;
        let range = start + range.start..start + range.end;
        match self.bytes {
            Cow::Borrowed(bytes) => bytes.slice(range),
            Cow::Owned(mut bytes) => {
                // Cut to size rather than sliced: the reference count stays as it is.
                bytes.truncate(range.end);
                bytes.advance(range.start);
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
    /// Data block `i`, from memory, the cache or the source: checked when it comes in.
    #[inline]
    pub(super) fn fetch_block(&self, i: usize, read: ReadOptions) -> Result<Fetched<'_>> {
        if let Some(handle) = self.index.sound_handle(i)
            && let Some(block) = self.borrow_block(handle)
        {
            return Ok(block);
        }
        let cached = self.cache.as_ref().and_then(|cache| cache.get(self.key(i)));
        match cached {
            Some(block) => {
                self.file.counters.add(Counter::CacheHits, 1);
                Ok(Fetched::whole(block))
            }
            None => self.admit_block(i, read).map(Fetched::whole),
        }
    }

    /// Data block `i` from the source, checked, and remembered: by a bit if it can be used where it lies in
    /// memory, else in the cache.
    fn admit_block(&self, i: usize, read: ReadOptions) -> Result<Bytes> {
        let frame = self.file.read_frame(self.index.handle(i))?;
        let block = check_frame(&frame, read)
            .and_then(|()| frame::open(&frame))
            .and_then(|block| self.check_block(i, &block).map(|()| block))
            .map_err(|defect| self.locate(i, defect))?;
        if self.file.is_memory() && frame::is_raw(&frame) {
            if read.verify_checksums {
                self.index.set_sound(i);
            }
        } else if let Some(cache) = &self.cache {
            self.file.counters.add(Counter::CacheMisses, 1);
            if read.fill_cache && read.verify_checksums {
                cache.insert(self.key(i), block.clone());
            }
        }
        Ok(block)
    }

    fn check_block(&self, i: usize, payload: &[u8]) -> Result<(), Defect> {
        let block = Block::parse(payload)?;
        block.check_restarts()?;
        if let Order::Bytewise = self.order {
            self.index.see_parts(i, &block);
        }
        Ok(())
    }

    /// The name of data block `i` in the cache.
    fn key(&self, i: usize) -> BlockKey {
        BlockKey {
            table: self.id,
            offset: self.index.handle(i).offset,
        }
    }

    /// The data block at `handle`, which is raw, where it lies in memory.
    #[inline]
    fn borrow_block(&self, handle: BlockHandle) -> Option<Fetched<'_>> {
        let file = self.file.memory()?;
        // Both fit: the index holds only handles that end inside the file.
        let start = handle.offset as usize;
        Some(Fetched {
            bytes: Cow::Borrowed(file),
            range: start..start + handle.size as usize,
        })
    }
}

fn check_frame(frame: &[u8], read: ReadOptions) -> Result<(), Defect> {
    match read.verify_checksums {
        true => frame::verify(frame),
        false => Ok(()),
    }
}
