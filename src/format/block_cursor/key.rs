//! The key of the current entry, assembled from pieces.

use super::super::block::{Block, Entry};

/// Bytes that are loaded and stored at once.
pub(in crate::format) const LANE: usize = 16;

/// Bytes of one copy.
pub(in crate::format) const CHUNK: usize = 2 * LANE;

/// A key that is assembled from short pieces. A copy of fixed size takes a few instructions, where a copy of any length
/// takes a call.
///
/// A processor forwards a recent store only to a load of bytes that were stored together. Any other load waits until the
/// store has reached the cache. So keys are stored in whole lanes, and loaded in the same lanes.
#[derive(Debug, Clone)]
pub(in crate::format) struct Key {
    /// The key, then unused bytes of any content. At least a chunk in all.
    bytes: Vec<u8>,
    len: usize,
}

/// Some bytes of a string. The bytes around them may be loaded, too, since a copy has a fixed size.
#[derive(Clone, Copy, Default)]
pub(in crate::format) struct Piece<'a> {
    string: &'a [u8],
    start: usize,
    len: usize,
}

impl<'a> Piece<'a> {
    /// The `len` bytes of `string` from `start` on, which lie inside it.
    #[inline]
    pub(in crate::format) fn of(string: &'a [u8], start: usize, len: usize) -> Piece<'a> {
        Piece { string, start, len }
    }

    /// Its first `len` bytes. `len` is at most its length.
    #[inline]
    pub(in crate::format) fn first(self, len: usize) -> Piece<'a> {
        debug_assert!(len <= self.len, "`len` is at most the piece's length");
        Piece { len, ..self }
    }

    /// The bytes of the key that `entry` does not share with the one before.
    #[inline]
    pub(in crate::format) fn unshared<B: AsRef<[u8]>>(
        block: &'a Block<B>,
        entry: &Entry,
    ) -> Piece<'a> {
        let len = entry.value_start - entry.key_start;
        Piece::of(block.data().as_ref(), entry.key_start, len)
    }

    #[inline]
    pub(in crate::format) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a piece lies inside its string")]
    pub(in crate::format) fn as_slice(&self) -> &'a [u8] {
        &self.string[self.start..self.start + self.len]
    }
}

impl Default for Key {
    fn default() -> Key {
        Key {
            bytes: vec![0; CHUNK],
            len: 0,
        }
    }
}

impl Key {
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "`bytes` is never shorter than `len`"
    )]
    pub(in crate::format) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    pub(in crate::format) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(in crate::format) fn clear(&mut self) {
        self.len = 0;
    }

    /// Keeps the first `len` bytes. `len` is at most its length.
    #[inline]
    pub(in crate::format) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len, "only bytes of the key can be kept");
        self.len = len;
    }

    /// Becomes the first `len` bytes of `chunk`.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "`bytes` is never shorter than a chunk"
    )]
    pub(in crate::format) fn set_short(&mut self, chunk: &[u8; CHUNK], len: usize) {
        self.bytes[..CHUNK].copy_from_slice(chunk);
        self.len = len;
    }

    /// Keeps the first `kept` bytes, of at least as many, and replaces the rest by `piece`.
    #[inline(always)]
    pub(in crate::format) fn splice(&mut self, kept: usize, piece: Piece<'_>) {
        if !self.splice_short(kept, piece) {
            self.splice_long(kept, piece);
        }
    }

    #[inline(never)]
    fn splice_long(&mut self, kept: usize, piece: Piece<'_>) {
        debug_assert!(kept <= self.len, "only bytes of the key can be kept");
        self.bytes.truncate(kept);
        // Once: to grow for the key, and again for the unused bytes, could double it.
        self.bytes.reserve(piece.len + 2 * CHUNK);
        self.bytes.extend_from_slice(piece.as_slice());
        self.len = self.bytes.len();
        self.bytes.resize(self.len + 2 * CHUNK, 0);
    }

    /// The same for ordinary pieces. For others it changes nothing and returns `false`: for long pieces, for those near
    /// the ends of their string or of the room here, and if the key has fewer than `kept` bytes.
    #[inline(always)]
    pub(in crate::format) fn splice_short(&mut self, kept: usize, piece: Piece<'_>) -> bool {
        let in_lane = kept % LANE;
        let lane = kept - in_lane;
        if kept <= self.len
            && in_lane + piece.len <= CHUNK
            && let Some(chunk) = self.bytes.get_mut(lane..lane + CHUNK)
            && let Some(chunk) = chunk.first_chunk_mut()
            && let Some(merged) = merge(chunk, in_lane, piece)
        {
            *chunk = merged;
            self.len = kept + piece.len;
            return true;
        }
        false
    }
}

/// The first `kept` bytes of `chunk`, then `piece` and the bytes after it, up to a chunk in all. `None` if `piece` is too
/// near to the ends of its string.
///
/// For example, `kept` is 2, `chunk` begins with `apple`, and `piece` is `ricot` in the entry `02 05 06 ricot orange`. The
/// load begins 2 bytes before the piece, at `05 06 ricot orange`. A mask keeps `ap` in place of `05 06`.
#[inline(always)]
pub(in crate::format) fn merge(
    chunk: &[u8; CHUNK],
    kept: usize,
    piece: Piece<'_>,
) -> Option<[u8; CHUNK]> {
    /// From `CHUNK - n` on: a mask of the first `n` bytes of a chunk.
    static MASKS: [[u8; CHUNK]; 2] = [[0xff; CHUNK], [0; CHUNK]];
    let masks = MASKS.as_flattened().get(CHUNK - kept.min(CHUNK)..)?;
    let mask = masks.first_chunk::<CHUNK>()?;
    let start = piece.start.checked_sub(kept)?;
    let mut merged = *piece.string.get(start..start + CHUNK)?.first_chunk()?;
    for ((merged, kept), mask) in merged.iter_mut().zip(chunk).zip(mask) {
        *merged ^= (*merged ^ kept) & mask;
    }
    Some(merged)
}
