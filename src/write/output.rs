//! The file under way: blocks are sealed into a buffer, and large writes go to the destination.

use crate::error::{Error, ErrorKind, Result};
use crate::format::buffer::Buffer;
use crate::format::codec::{Compression, Compressor};
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame::{TRAILER_LEN, seal, seal_raw};
use crate::write::new_file::Destination;

/// Bytes that gather before they are written: few large writes instead of one for each block.
const WRITE_SIZE: usize = 256 << 10;

/// The file so far: what was handed to the destination, and what waits for it.
pub(super) struct Output<D> {
    pub(super) destination: D,
    compressor: Compressor,
    buffer: Buffer,
    /// Bytes that went to the destination: the file offset of `buffer`.
    written: u64,
    /// A write failed, so that the destination holds who knows what.
    failed: bool,
}

impl<D: Destination> Output<D> {
    pub(super) fn new(destination: D, compression: Compression) -> Output<D> {
        Output {
            destination,
            compressor: Compressor::new(compression),
            buffer: Buffer::default(),
            written: 0,
            failed: false,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    pub(super) fn check(&self) -> Result<()> {
        match self.failed {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::InvalidState,
                "an earlier write failed, so this table cannot be finished: start a new one",
            )),
        }
    }

    pub(super) fn seal(&mut self, block: &[u8]) -> Result<BlockHandle> {
        let offset = self.offset();
        seal(block, &mut self.compressor, &mut self.buffer);
        self.end_block(offset)
    }

    pub(super) fn seal_raw(&mut self, block: &[u8]) -> Result<BlockHandle> {
        let offset = self.offset();
        seal_raw(block, &mut self.buffer);
        self.end_block(offset)
    }

    fn end_block(&mut self, offset: u64) -> Result<BlockHandle> {
        let size = self.offset() - offset - TRAILER_LEN as u64;
        if self.buffer.len() >= WRITE_SIZE {
            self.write_out()?;
        }
        Ok(BlockHandle { offset, size })
    }

    pub(super) fn append_footer(&mut self, footer: Footer) {
        let mut bytes = Vec::new();
        footer.encode(&mut bytes);
        self.buffer.extend(&bytes);
    }

    fn write_out(&mut self) -> Result<()> {
        self.destination
            .append(self.buffer.as_slice())
            .map_err(|e| {
                self.failed = true;
                let (len, at) = (self.buffer.len(), self.written);
                let error = Error::io(format!("writing {len} bytes of a table at offset {at}"), e);
                match self.destination.path() {
                    Some(path) => error.at_path(path),
                    None => error,
                }
            })?;
        self.written += self.buffer.len() as u64;
        self.buffer.truncate(0);
        Ok(())
    }

    pub(super) fn publish(mut self) -> Result<()> {
        self.write_out()?;
        self.destination.publish()
    }
}
