//! A table's bytes that are read as a file's are.

use std::sync::Arc;

use bytes::Bytes;
use leveltable::{ReadAt, Source};

/// Most entries that a walk visits. A block can hold millions of empty ones.
pub const MAX_ENTRIES: usize = 600;

/// Bytes that are read through [`ReadAt`], not as memory.
struct Disk(Bytes);

impl ReadAt for Disk {
    fn size(&self) -> std::io::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<Bytes> {
        self.0.read_at(offset, len)
    }
}

/// Opens `file` read through [`ReadAt`].
pub fn disk(file: &Bytes) -> Source {
    Source::from(Arc::new(Disk(file.clone())))
}
