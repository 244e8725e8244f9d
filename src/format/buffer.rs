//! Where the bytes of a file gather before they are written.

/// Bytes that gather in memory that stays initialised: a compressor gets [`room`](Buffer::room) to write to, which a
/// `Vec` would have to fill with zeros for each block.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The bytes, and what was there before behind them.
    memory: Vec<u8>,
    len: usize,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.memory.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// `len` bytes of any content to write to, of which [`take_up`](Buffer::take_up) appends the first.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if self.memory.len() < end {
            self.memory.resize(end, 0);
        }
        self.memory.get_mut(self.len..end).unwrap_or_default()
    }

    /// Appends the first `len` bytes of the room.
    pub(crate) fn take_up(&mut self, len: usize) {
        self.len = self.memory.len().min(self.len + len);
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.take_up(bytes.len());
    }
}
