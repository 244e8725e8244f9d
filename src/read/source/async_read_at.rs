//! Bytes that are read by requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future;

use crate::read::source::read_at::ReadAt;

/// A boxed future that may move between threads, as [`AsyncReadAt`] returns them.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Maximum length of one request, unless a single block is longer.
pub(crate) const MAX_REQUEST_LEN: u64 = 8 << 20;

/// Parts at most this many bytes apart are fetched by one request, together with the bytes between them: at 100 MB/s, these
/// take less than a millisecond, and a request takes some thirty.
pub(crate) const MAX_REQUEST_GAP: u64 = 64 << 10;

/// Bytes that can be read at any position, each read a request that may take long: an object in a store, a file on another
/// machine.
///
/// A read returns **all `len` bytes at `offset`, or an error**. All reads must see the same content: a source that finds that
/// it was replaced returns [`io::ErrorKind::StaleNetworkFileHandle`], which becomes
/// [`ErrorKind::Replaced`](crate::ErrorKind::Replaced). The source is also responsible for deadlines and retries. Dropping a
/// future before it is ready must have no effect on other reads.
pub trait AsyncReadAt: Send + Sync {
    /// The source's name in messages, such as a URL without secrets; see [`Error::path`](crate::Error::path). `None` by
    /// default.
    fn name(&self) -> Option<String> {
        None
    }

    /// Reads the last `len` bytes, or all if there are fewer, and returns them with the size: see [`Tail`]. Called once, when a
    /// table is opened, before any other read.
    ///
    /// # Errors
    ///
    /// Errors of the source; the table is then not opened.
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>>;

    /// Reads the `len` bytes at `offset`, as one request.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the content ends before the range does, and errors of the source.
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>>;

    /// Reads several parts, each an offset and a length, like [`read_at`](AsyncReadAt::read_at).
    ///
    /// Opening uses it for the parts that it lacks. The default reads all parts at the same time, each by its own
    /// request.
    ///
    /// # Errors
    ///
    /// Returns a result for each part, in their order: a failed part does not fail the others. A missing result is an error of its
    /// part.
    fn read_many_at<'a>(
        &'a self,
        parts: &'a [(u64, usize)],
    ) -> BoxFuture<'a, Vec<io::Result<Bytes>>> {
        let read = |&(offset, len): &(u64, usize)| self.read_at(offset, len);
        Box::pin(future::join_all(parts.iter().map(read)))
    }
}

/// The end of a source, and its size; see [`AsyncReadAt::read_tail`].
#[derive(Debug, Clone)]
pub struct Tail {
    /// Size of the whole source in bytes.
    pub size: u64,
    /// Its last bytes.
    pub bytes: Bytes,
}

impl<R: AsyncReadAt + ?Sized> AsyncReadAt for Arc<R> {
    fn name(&self) -> Option<String> {
        (**self).name()
    }

    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        (**self).read_tail(len)
    }

    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        (**self).read_at(offset, len)
    }

    fn read_many_at<'a>(
        &'a self,
        parts: &'a [(u64, usize)],
    ) -> BoxFuture<'a, Vec<io::Result<Bytes>>> {
        (**self).read_many_at(parts)
    }
}

/// A table in memory, for tests and for downloaded tables.
impl AsyncReadAt for Bytes {
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        let size = self.len() as u64;
        let start = size.saturating_sub(len);
        let read = ReadAt::read_at(self, start, (size - start) as usize);
        Box::pin(future::ready(read.map(|bytes| Tail { size, bytes })))
    }

    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(future::ready(ReadAt::read_at(self, offset, len)))
    }
}
