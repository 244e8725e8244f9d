//! A file that is mapped into memory, and what the system is told about it. The only module that may use `unsafe`.
//!
//! Without the feature `mmap` there are no maps: the type has no values then.

#[cfg(feature = "mmap")]
pub(super) use mapped::Map;
#[cfg(not(feature = "mmap"))]
pub(super) use unmapped::Map;

#[cfg(feature = "mmap")]
#[expect(
    unsafe_code,
    reason = "only the caller can promise that a mapped file stays unchanged"
)]
mod mapped {
    use std::path::Path;
    use std::sync::Arc;

    use bytes::Bytes;
    #[cfg(unix)]
    use memmap2::Advice;
    use memmap2::Mmap;

    use crate::error::Result;
    use crate::read::source::{Source, failed, open_regular};

    /// A file's map, shared by all [`Bytes`] that were made of it.
    #[derive(Clone)]
    pub(in crate::read) struct Map(Arc<Mmap>);

    impl AsRef<[u8]> for Map {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Source {
        /// Maps the file at `path` into memory: the fastest lookups in a table that is not compressed, and memory that processes
        /// share. Needs the feature `mmap`.
        ///
        /// An uncompressed block is used where it lies, without a copy and without the cache, and is checked at its first use. A
        /// compressed block is decompressed at each use, unless it is in the [`BlockCache`](crate::BlockCache), as with
        /// [`Source::open`]. With Snappy and the default cache of 32 MiB, a lookup takes about 0.8 times as long as with
        /// [`Table::open`](crate::Table::open), since no read call is made. With a cache that holds all blocks, a map gains
        /// nothing.
        ///
        /// A block that is not in memory is read as a whole when it is first used, and nothing else with it. A walk reads ahead of
        /// itself, up to 384 KiB. If the system drops a block's pages later, it reads them one by one as they are touched again,
        /// except for walks. On Windows, the system alone decides how much is read.
        ///
        /// ```no_run
        /// use leveltable::{OpenOptions, Source};
        ///
        /// // SAFETY: this program replaces its tables, and never changes one.
        /// let source = unsafe { Source::map("table.ldb")? };
        /// let table = OpenOptions::new().open_source(source)?;
        /// # Ok::<(), leveltable::Error>(())
        /// ```
        ///
        /// # Safety
        ///
        /// Nobody, in this process or another, may change or truncate the file while the source, a table that was opened on it,
        /// or a value from such a table lives: they lend the file's memory as `&[u8]`. A file that is *replaced*, as by
        /// [`WriteOptions::create`](crate::WriteOptions::create), is not changed: the map keeps the old one.
        ///
        /// If the file is truncated, access to a page that it no longer has raises SIGBUS, which ends the process. So does a disk
        /// that fails to read a page.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot be opened or mapped, or is not a regular file.
        pub unsafe fn map(path: impl AsRef<Path>) -> Result<Source> {
            let path = path.as_ref();
            let map = || {
                let (file, _) = open_regular(path)?;
                // SAFETY: the caller promises that the file stays as it is.
                unsafe { Mmap::map(&file) }
            };
            let map = map().map_err(|e| failed("mapping the table", e, path))?;
            let map = Map(Arc::new(map));
            Ok(Source::mapped(Bytes::from_owner(map.clone()), map, path))
        }
    }

    impl Map {
        /// Asks the system to read the `len` bytes at `offset`, without waiting for them.
        #[cfg(unix)]
        pub(in crate::read) fn announce(&self, offset: u64, len: u64) {
            let end = offset.saturating_add(len).min(self.0.len() as u64);
            if offset < end {
                // Both are at most the map's length. If the system refuses, the bytes are read when they are touched.
                let (offset, len) = (offset as usize, (end - offset) as usize);
                let _ = self.0.advise_range(Advice::WillNeed, offset, len);
            }
        }

        #[cfg(not(unix))]
        pub(in crate::read) fn announce(&self, _offset: u64, _len: u64) {}

        /// Tells the system not to read more than what is touched or announced.
        #[cfg(unix)]
        pub(in crate::read) fn expect_random_access(&self) {
            // If the system refuses, it reads more than it must.
            let _ = self.0.advise(Advice::Random);
        }

        #[cfg(not(unix))]
        pub(in crate::read) fn expect_random_access(&self) {}
    }
}

#[cfg(not(feature = "mmap"))]
mod unmapped {
    use std::convert::Infallible;

    #[derive(Clone)]
    pub(in crate::read) struct Map(Infallible);

    impl Map {
        pub(in crate::read) fn announce(&self, _offset: u64, _len: u64) {
            match self.0 {}
        }

        pub(in crate::read) fn expect_random_access(&self) {
            match self.0 {}
        }
    }
}
