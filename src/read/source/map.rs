//! A file mapped into memory. The only module that may use `unsafe`.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
#[cfg(unix)]
use memmap2::Advice;
use memmap2::Mmap;

use crate::error::Result;
use crate::read::source::{MappedFile, Source, SourceBytes};

/// A map of a file, shared by all `Bytes` made from it.
struct Map(Mmap);

/// The owner inside the `Bytes` of a map.
struct Owner(Arc<Map>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

impl MappedFile for Map {
    #[cfg(unix)]
    fn announce(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.0.len() as u64);
        if offset < end {
            // Both are at most the map's length. If the system refuses, the bytes are read when they are touched.
            let (offset, len) = (offset as usize, (end - offset) as usize);
            let _ = self.0.advise_range(Advice::WillNeed, offset, len);
        }
    }

    #[cfg(not(unix))]
    fn announce(&self, _offset: u64, _len: u64) {}
}

impl Source {
    /// Maps the file at `path` into memory: the fastest lookups in an uncompressed table, and memory that processes share.
    /// Needs the feature `mmap`.
    ///
    /// An uncompressed block is used in place, without a copy and without the cache, and is checked at its first use. A
    /// compressed block is decompressed at each use, unless it is in the [`BlockCache`](crate::BlockCache), as with
    /// [`Source::open`]. With Snappy and the default cache of 32 MiB, a lookup takes about 0.8 times as long as with
    /// [`Table::open`](crate::Table::open), since no read call is made. With a cache that holds all blocks, a map gains
    /// nothing.
    ///
    /// A block that is not in memory is read as a whole when it is first used, without any read-ahead. A walk reads ahead, up
    /// to 256 KiB. If the system drops a block's pages later, it reads them one by one as they are touched again, except for
    /// walks. On Windows, the system alone decides how much is read.
    ///
    /// ```no_run
    /// use leveltable::{OpenOptions, Source};
    ///
    /// // SAFETY: this program replaces its tables, and never changes one in place.
    /// let source = unsafe { Source::map("table.ldb")? };
    /// let table = OpenOptions::new().open_source(source)?;
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Nobody, in this process or another, may change or truncate the file while the source, a table opened on it, or a
    /// value from such a table is alive: they lend the file's memory as `&[u8]`. A file that is *replaced*, as by
    /// [`WriteOptions::create`](crate::WriteOptions::create), is not changed: the map keeps the old one.
    ///
    /// If the file is truncated, access to a page that it no longer has raises SIGBUS, which ends the process. So does a disk
    /// that fails to read a page.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot be opened or mapped, or is not a regular file.
    #[expect(
        unsafe_code,
        reason = "only the caller can promise that a mapped file stays unchanged"
    )]
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Source> {
        Source::of_file(path.as_ref(), "mapping the table", |file, _| {
            // SAFETY: the caller guarantees that the file does not change.
            let map = Arc::new(Map(unsafe { Mmap::map(&file) }?));
            // Accesses are random: read-ahead would be wasted. What is needed is announced. If the system refuses, it reads more.
            #[cfg(unix)]
            let _ = map.0.advise(Advice::Random);
            let bytes = Bytes::from_owner(Owner(Arc::clone(&map)));
            Ok(Source::of(SourceBytes::Memory(bytes, Some(map))))
        })
    }
}
