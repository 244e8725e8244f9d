//! The key of the current entry, put together from pieces.

use super::super::block::{Block, Entry};

/// What is loaded and stored at once.
pub(super) const LANE: usize = 16;

/// What one copy takes.
pub(super) const CHUNK: usize = 2 * LANE;

/// A key that short pieces are put together to by copies of a fixed size: a few instructions, where a copy of any
/// length is a call.
///
/// Processors pass on what was just stored only to a load of bytes that were stored together; any other waits
/// until they have reached the cache. So keys are stored in whole lanes, and loaded likewise.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// The key and, behind it, room that holds anything: a chunk in all at least.
    bytes: Vec<u8>,
    len: usize,
}

/// Some bytes of a string, inside of it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    string: &'a [u8],
    start: usize,
    len: usize,
}

impl Piece<'_> {
    #[inline]
    pub(super) fn of(string: &[u8], start: usize, len: usize) -> Piece<'_> {
        Piece { string, start, len }
    }

    /// The bytes of `entry`'s key that it does not share with the one before.
    #[inline]
    pub(super) fn unshared<'a, B: AsRef<[u8]>>(block: &'a Block<B>, entry: &Entry) -> Piece<'a> {
        let len = entry.value_start - entry.key_start;
        Piece::of(block.data().as_ref(), entry.key_start, len)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn as_slice(&self) -> &[u8] {
        let end = self.start + self.len;
        self.string.get(self.start..end).unwrap_or_default()
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
    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Becomes the first `len` bytes of `chunk`.
    #[inline]
    pub(super) fn set_short(&mut self, chunk: &[u8; CHUNK], len: usize) {
        if let Some(room) = self.bytes.first_chunk_mut() {
            *room = *chunk;
            self.len = len;
        }
    }

    /// Replaces all behind the first `kept` bytes, of which there are so many, by `piece`.
    pub(super) fn splice(&mut self, kept: usize, piece: Piece<'_>) {
        if !self.splice_short(kept, piece) {
            self.bytes.truncate(kept);
            self.bytes.extend_from_slice(piece.as_slice());
            self.len = self.bytes.len();
            self.bytes.resize(self.len + 2 * CHUNK, 0);
        }
    }

    /// The same for ordinary pieces. Answers `false`, and nothing has changed, for others: longer ones, those near the
    /// ends of their string or of the room here, and where there is less to keep.
    #[inline]
    pub(super) fn splice_short(&mut self, kept: usize, piece: Piece<'_>) -> bool {
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

/// The first `kept` bytes of `chunk`, then `piece` and what follows it, up to a chunk in all; `None` where `piece` is too
/// near to the ends of its string.
#[inline]
pub(super) fn merge(chunk: &[u8; CHUNK], kept: usize, piece: Piece<'_>) -> Option<[u8; CHUNK]> {
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
