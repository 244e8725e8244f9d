//! A growing buffer whose unused memory stays initialised: for bytes of a file to be written, or for a key.

use std::ops::Range;

/// Number of bytes that the processor stores at once.
const LANE: usize = 16;

/// Length of a fixed-size copy, which takes a few instructions, while a copy of variable length takes a call.
const CHUNK: usize = 2 * LANE;

/// From index `LANE - n` on, a mask for the first `n` bytes of a lane.
static KEPT: [[u8; LANE]; 2] = [[0xff; LANE], [0; LANE]];

/// Bytes, followed by room with arbitrary contents.
///
/// A compressor needs [`room`](Buffer::room) to write to. A `Vec` would have to zero that room for each block. A key is
/// [spliced](Buffer::splice) from short slices by copies that may write into the room.
#[derive(Debug, Default, Clone)]
pub(crate) struct Buffer {
    /// The bytes, then the room.
    memory: Vec<u8>,
    len: usize,
}

impl Buffer {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`len` counts bytes of `memory`")]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// The bytes and the room after them, to [`splice`](Buffer::splice) from.
    #[inline]
    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Keeps the first `len` bytes; there must be at least as many.
    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len, "only bytes of the buffer can be kept");
        self.len = len;
    }

    /// Returns `len` bytes with arbitrary contents to write to. [`commit`](Buffer::commit) then appends the first of
    /// them.
    #[expect(clippy::indexing_slicing, reason = "`memory` has just grown to `end`")]
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if self.memory.len() < end {
            self.memory.resize(end, 0);
        }
        &mut self.memory[self.len..end]
    }

    /// Appends the first `len` bytes of the room, which must have at least as many.
    pub(crate) fn commit(&mut self, len: usize) {
        self.len += len;
        debug_assert!(self.len <= self.memory.len(), "more than the room holds");
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    /// Appends the bytes of `from` at `range`, which must lie inside it.
    #[inline(always)]
    pub(super) fn append(&mut self, from: &[u8], range: Range<usize>) {
        let len = range.end - range.start;
        if let Some(chunk) = from
            .get(range.start..)
            .and_then(<[u8]>::first_chunk::<CHUNK>)
            && let Some(to) = self
                .memory
                .get_mut(self.len..)
                .and_then(<[u8]>::first_chunk_mut)
            && len <= CHUNK
        {
            *to = *chunk;
            self.len += len;
        } else {
            self.splice_slowly(self.len, from, range);
        }
    }

    /// Keeps the first `kept` bytes, of which there must be at least as many, and appends the bytes of `from` at `range`, which
    /// must lie inside it.
    ///
    /// Stores whole lanes, including bytes that are kept: the processor forwards a recent store to a load only if all bytes of the
    /// load were stored together. Any other load waits for the cache, which would take half of the time of a scan.
    #[inline(always)]
    pub(super) fn splice(&mut self, kept: usize, from: &[u8], range: Range<usize>) {
        debug_assert!(kept <= self.len, "only bytes of the buffer can be kept");
        let (in_lane, len) = (kept % LANE, range.end - range.start);
        let lane = kept - in_lane;
        let start = range.start.wrapping_sub(in_lane);
        if let Some(new) = from.get(start..).and_then(<[u8]>::first_chunk::<CHUNK>)
            && let Some(to) = self
                .memory
                .get_mut(lane..)
                .and_then(<[u8]>::first_chunk_mut)
            && let Some(masks) = KEPT.as_flattened().get(LANE - in_lane..)
            && let Some(mask) = masks.first_chunk::<LANE>()
            && in_lane + len <= CHUNK
        {
            let mut merged: [u8; CHUNK] = *new;
            for ((merged, kept), mask) in merged.iter_mut().zip(&*to).zip(mask) {
                *merged ^= (*merged ^ kept) & mask;
            }
            *to = merged;
            self.len = kept + len;
        } else {
            self.splice_slowly(kept, from, range);
        }
    }

    /// Splices a slice that is long, or near the end of `from` or of the memory.
    #[inline(never)]
    #[expect(clippy::indexing_slicing, reason = "`range` lies inside `from`")]
    fn splice_slowly(&mut self, kept: usize, from: &[u8], range: Range<usize>) {
        self.truncate(kept);
        // Grow once, for the slice and for the copies that follow: growing twice could double the memory twice.
        self.room(range.len() + 2 * CHUNK);
        self.extend(&from[range]);
    }
}
