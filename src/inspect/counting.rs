//! Counting reads where the reading is done.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::read::source::ReadAt;

/// Counts the reads of a source, and their bytes.
///
/// Shows what a filter avoids, where the reading happens:
///
/// ```
/// use std::sync::Arc;
/// use leveltable::{OpenOptions, WriteOptions, inspect::CountingReadAt};
/// # use bytes::Bytes;
///
/// let mut file = Vec::new();
/// let mut builder = WriteOptions::new().build(&mut file);
/// builder.add(b"present", b"1")?;
/// builder.finish()?;
///
/// let disk = Arc::new(CountingReadAt::new(Bytes::from(file)));
/// let table = OpenOptions::new().open_source(Arc::clone(&disk))?;
/// let opening = disk.reads();
/// table.get(b"absent")?;
/// assert_eq!(disk.reads(), opening, "the filter answered");
/// table.get(b"present")?;
/// assert_eq!(disk.reads(), opening + 1, "one data block");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct CountingReadAt<R> {
    inner: R,
    reads: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
}

impl<R: ReadAt> CountingReadAt<R> {
    /// Wraps `inner`, counting from zero.
    pub fn new(inner: R) -> CountingReadAt<R> {
        CountingReadAt {
            inner,
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        }
    }

    /// Number of reads so far, failed ones included: calls of [`ReadAt::read_at`], and parts that
    /// [`ReadAt::read_many_at`] was asked for.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Number of calls of [`ReadAt::read_many_at`] so far.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Number of bytes asked for so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl<R: ReadAt> ReadAt for CountingReadAt<R> {
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        self.inner.read_at(offset, len)
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        let bytes = parts.iter().map(|&(_, len)| len as u64).sum();
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.reads.fetch_add(parts.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.inner.read_many_at(parts, each);
    }
}
