//! A key, assembled from what the entries of a block store.

/// Bytes of one copy.
const CHUNK: usize = 32;

/// A key that is assembled from short slices. A copy of fixed size takes a few instructions, where a copy of any length takes
/// a call.
#[derive(Debug, Default, Clone)]
pub(super) struct Key {
    /// The key, then unused bytes of any content.
    bytes: Vec<u8>,
    len: usize,
}

impl Key {
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "`bytes` is never shorter than `len`"
    )]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Keeps the first `len` bytes, of at least as many.
    #[inline]
    pub(super) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len, "only bytes of the key can be kept");
        self.len = len;
    }

    /// The key and the unused bytes after it, to [`splice`](Key::splice) from.
    #[inline]
    pub(super) fn buffer(&self) -> &[u8] {
        &self.bytes
    }

    /// Keeps the first `kept` bytes, of at least as many, and appends `len` bytes of `block`, those from `start` on. They must
    /// lie inside it.
    #[inline(always)]
    pub(super) fn splice(&mut self, kept: usize, block: &[u8], (start, len): (usize, usize)) {
        debug_assert!(kept <= self.len, "only bytes of the key can be kept");
        if len <= CHUNK
            && let Some(from) = block.get(start..start + CHUNK)
            && let Some(to) = self.bytes.get_mut(kept..kept + CHUNK)
        {
            to.copy_from_slice(from);
            self.len = kept + len;
        } else {
            self.splice_slowly(kept, block, start, len);
        }
    }

    /// Splices a slice that is long, or near the end of `block` or of `bytes`.
    #[inline(never)]
    #[expect(clippy::indexing_slicing, reason = "the bytes lie inside the block")]
    fn splice_slowly(&mut self, kept: usize, block: &[u8], start: usize, len: usize) {
        self.bytes.truncate(kept);
        // Once: to grow for the key, and again for the unused bytes, could double it.
        self.bytes.reserve(len + 2 * CHUNK);
        self.bytes.extend_from_slice(&block[start..start + len]);
        self.len = self.bytes.len();
        self.bytes.resize(self.len + 2 * CHUNK, 0);
    }
}
