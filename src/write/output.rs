//! The file being written: blocks are sealed into a buffer, which is written to the destination in large parts.

use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};
use crate::format::buffer::Buffer;
use crate::format::codec::Compressor;
use crate::format::footer::BlockHandle;
use crate::format::frame::{self, TRAILER_LEN};
use crate::write::align::Pages;
use crate::write::new_file::Destination;

/// Number of bytes to gather before a write: a few large writes instead of one for each block.
const WRITE_SIZE: usize = 256 << 10;

/// The file so far: the bytes written to the destination, and those still buffered.
pub(super) struct Output<D> {
    pub(super) destination: D,
    /// The table's final path, if it is known, for messages.
    pub(super) path: Option<PathBuf>,
    pub(super) compressor: Compressor,
    buffer: Buffer,
    /// Number of bytes written to the destination: the file offset of `buffer`.
    written: u64,
    /// Why nothing more can be written: an earlier failure, or options out of range.
    stopped: Option<String>,
}

impl<D: Destination> Output<D> {
    /// An empty file; every call fails if `stopped` says why.
    pub(super) fn new(
        destination: D,
        path: Option<PathBuf>,
        compressor: Compressor,
        stopped: Option<String>,
    ) -> Self {
        Self {
            destination,
            path,
            compressor,
            buffer: Buffer::default(),
            written: 0,
            stopped,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Fails if nothing more can be written.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match &self.stopped {
            None => Ok(()),
            Some(why) => Err(Error::new(ErrorKind::InvalidState, why)),
        }
    }

    /// Appends `block`, compressed if that pays; in an aligned table, after the padding that keeps it from touching more
    /// `pages` than necessary.
    pub(super) fn seal(
        &mut self,
        block: &[u8],
        is_raw: bool,
        pages: Option<&mut Pages>,
    ) -> Result<BlockHandle> {
        let (offset, start) = (self.offset(), self.buffer.len());
        let compressor = (!is_raw).then_some(&mut self.compressor);
        frame::seal(block, compressor, &mut self.buffer).map_err(|e| {
            let codec = self.compressor.compression;
            let doing = format!("compressing the block for offset {offset} with {codec:?}");
            self.stop(Error::io(doing, e))
        })?;
        let stored = self.buffer.len() - start;
        let padding = pages.map_or(0, |pages| pages.place(offset, block.len(), stored));
        if padding > 0 {
            let frame = self.buffer.as_slice().split_at(start).1.to_vec();
            self.buffer.truncate(start);
            self.buffer.extend(&vec![0; padding as usize]);
            self.buffer.extend(&frame);
        }
        if self.buffer.len() >= WRITE_SIZE {
            self.write_buffer()?;
        }
        Ok(BlockHandle {
            offset: offset + padding,
            size: (stored - TRAILER_LEN) as u64,
        })
    }

    /// Appends bytes that are not a block.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    fn write_buffer(&mut self) -> Result<()> {
        let (len, at) = (self.buffer.len(), self.written);
        self.destination
            .write_all(self.buffer.as_slice())
            .map_err(|e| {
                let doing = format!("writing {len} bytes of a table at offset {at}");
                self.stop(Error::io(doing, e))
            })?;
        self.written += len as u64;
        self.buffer.truncate(0);
        Ok(())
    }

    /// Makes every further call fail, since the table would lack a part; returns `error` with the file's path.
    #[cold]
    pub(super) fn stop(&mut self, error: Error) -> Error {
        let error = error.in_file(self.path.as_deref());
        self.stopped = Some(format!(
            "an earlier call failed, so start a new table: {error}"
        ));
        error
    }

    /// Writes the buffered bytes and completes the destination.
    pub(super) fn publish(mut self) -> Result<D::Published> {
        self.write_buffer()?;
        let published = self.destination.publish();
        published.map_err(|error| error.in_file(self.path.as_deref()))
    }
}

/// The error of an addition that would make a block too large: `what` is, for example, "the index does".
#[cold]
pub(super) fn too_large(what: &str) -> Error {
    let message = format!("{what} not fit a block of 4 GiB");
    Error::new(ErrorKind::TooLarge, message)
}
