//! Bytes that requests bring.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future;

use crate::read::source::read_at::ReadAt;

/// A future on the heap that may move between threads, as [`AsyncReadAt`] returns them.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Most bytes of one request, unless a single block takes more.
pub(crate) const MAX_REQUEST_LEN: u64 = 8 << 20;

/// Parts that lie at most so many bytes apart come with one request, and what lies between them with them: at 100 MB/s, that
/// takes less than a millisecond, and a request some thirty.
pub(crate) const MAX_REQUEST_GAP: u64 = 64 << 10;

/// Bytes that can be read at any position, each read a request that may take long: an object in a store, a file on another
/// machine.
///
/// A read returns **all `len` bytes at `offset`, or an error**. All reads must be of one content: a source that finds that it
/// was replaced returns [`io::ErrorKind::StaleNetworkFileHandle`], which becomes
/// [`ErrorKind::Replaced`](crate::ErrorKind::Replaced). Deadlines and retries are the source's, too. A future that is dropped
/// before it is ready must have no effect on other reads.
pub trait AsyncReadAt: Send + Sync {
    /// Its name in messages, such as a URL without secrets; see [`Error::path`](crate::Error::path). `None` by default.
    fn name(&self) -> Option<String> {
        None
    }

    /// Reads the last `len` bytes, or all if there are fewer, and tells the size: see [`Tail`]. Called once, when a table is opened,
    /// before any other read.
    ///
    /// # Errors
    ///
    /// Those of the source; the table is not opened then.
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>>;

    /// Reads the `len` bytes at `offset`, as one request.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the content ends before, and those of the source.
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>>;

    /// Reads several parts, each an offset and a length, as by [`read_at`](AsyncReadAt::read_at).
    ///
    /// Opening asks so for the parts that it lacks. The default reads all at the same time, each by a request of its own.
    ///
    /// # Errors
    ///
    /// Returns a result for each part, in their order: one that fails does not fail the others. A result that is missing is an error of
    /// its part.
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

/// A table in memory, for tests and for what was fetched as a whole.
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
