//! The bytes of a file that wait to be written.

/// A growing buffer whose unused memory stays initialised.
///
/// A compressor needs [`room`](Buffer::room) to write to. A `Vec` would have to fill that room with zeros for each block.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The bytes, then room that holds anything.
    memory: Vec<u8>,
    len: usize,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[expect(clippy::indexing_slicing, reason = "`len` counts bytes of `memory`")]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// `len` bytes of any content to write to. [`take_up`](Buffer::take_up) then appends the first of them.
    #[expect(clippy::indexing_slicing, reason = "`memory` has just grown to `end`")]
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if self.memory.len() < end {
            self.memory.resize(end, 0);
        }
        &mut self.memory[self.len..end]
    }

    /// Appends the first `len` bytes of the room, which has at least as many.
    pub(crate) fn take_up(&mut self, len: usize) {
        self.len += len;
        debug_assert!(self.len <= self.memory.len(), "more than the room holds");
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.take_up(bytes.len());
    }

    /// Inserts `count` zeros before the byte at `at`, or at the end.
    pub(crate) fn insert_zeros(&mut self, at: usize, count: usize) {
        let end = self.len;
        self.room(count);
        self.memory.copy_within(at..end, at + count);
        self.memory
            .iter_mut()
            .skip(at)
            .take(count)
            .for_each(|byte| *byte = 0);
        self.take_up(count);
    }
}
