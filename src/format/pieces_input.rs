//! Shared by the decoders of pieces.

use std::ops::Range;

use bytes::Bytes;

use super::Defect;
use super::footer::BlockHandle;
use crate::coding::get_varint64;

/// Maximum length of a piece, unless it has a single entry, or there would be too many pieces.
pub(crate) const PIECE_LEN: usize = 16 << 10;

/// The rest of the block.
pub(super) struct Input(pub(super) Bytes);

impl Input {
    pub(super) fn take(&mut self, len: usize) -> Result<Bytes, Defect> {
        if len > self.0.len() {
            let expected = format!("{len} more bytes of pieces");
            return Err(Defect::new(expected, format!("{}", self.0.len())));
        }
        Ok(self.0.split_to(len))
    }

    pub(super) fn number(&mut self) -> Result<u64, Defect> {
        let (number, len) = get_varint64(&self.0).unwrap_or((0, self.0.len() + 1));
        self.take(len).map(|_| number)
    }

    pub(super) fn handle(&mut self) -> Result<BlockHandle, Defect> {
        let (offset, size) = (self.number()?, self.number()?);
        Ok(BlockHandle { offset, size })
    }
}

/// The bytes at `range` of the file, which are in the `block` at `handle`; none if the block is shorter.
pub(super) fn part(block: &[u8], handle: BlockHandle, range: Range<u64>) -> &[u8] {
    let [start, end] = [range.start, range.end].map(|at| (at - handle.offset) as usize);
    block.get(start..end).unwrap_or(&[])
}
