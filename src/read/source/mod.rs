//! Where a table's bytes come from.

#[cfg(feature = "async")]
pub(crate) mod async_read_at;
pub(crate) mod coalesce;
pub(crate) mod file;
pub(crate) mod identify;
#[cfg(feature = "mmap")]
mod map;
pub(crate) mod opened_file;
pub(crate) mod owners;
mod positional;
mod read_at;
pub(crate) mod stats;
pub(crate) mod weight;

use std::fmt;
use std::fs::File;
use std::io;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
#[cfg(feature = "mmap")]
use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::held::advice;
#[cfg(feature = "async")]
use crate::read::source::async_read_at::AsyncReadAt;
use crate::read::source::opened_file::OpenedFile;
use crate::read::source::read_at::Announce;
pub use crate::read::source::read_at::ReadAt;

/// The bytes of a table. A source that is read by requests cannot be read here: an error.
impl ReadAt for Source {
    fn size(&self) -> io::Result<u64> {
        let opened = self.opened.as_ref();
        opened.map_or_else(|| self.reader()?.size(), |opened| Ok(opened.size()))
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.reader()?.read_at(offset, len)
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        match self.reader() {
            Ok(reader) => reader.read_many_at(parts, each),
            Err(error) => each(0, Err(error)),
        }
    }
}

/// A table's bytes: a file, memory, or anything that implements [`ReadAt`].
///
/// Made from a [`File`], a `Vec<u8>`, `Bytes` or an `Arc` of a [`ReadAt`], or with [`Source::open`] and [`Source::load`].
/// Uncompressed blocks in memory are used in place, without a copy and without the block cache. Everything else is read block by
/// block, through the cache.
///
/// With the feature `mmap`, `Source::map` maps a file into memory. If a mapped file is truncated, access to it raises SIGBUS,
/// which no library can turn into an error. A map made elsewhere becomes a source with `Bytes::from_owner`, but the system then
/// reads ahead on lookups as it sees fit.
///
/// ```no_run
/// use leveltable::{OpenOptions, Source};
///
/// let table = OpenOptions::new().open_source(Source::open("table.ldb")?)?;
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Source {
    pub(crate) bytes: SourceBytes,
    /// The path or name of the source, for messages.
    pub(crate) path: Option<Arc<Path>>,
    /// The file as it was when it was opened.
    pub(crate) opened: Option<Arc<OpenedFile>>,
}

#[derive(Clone)]
pub(crate) enum SourceBytes {
    /// The whole table. For a mapped file also how to tell the system which bytes will be needed.
    Memory(Bytes, Option<Announce>),
    /// A file, whose recently read parts the system keeps in memory.
    File(Arc<File>),
    /// Read block by block, through the block cache.
    Io(Arc<dyn ReadAt>),
    /// Read by requests.
    #[cfg(feature = "async")]
    Remote(Arc<dyn AsyncReadAt>),
}

impl Source {
    /// Opens the file at `path` for positional reads. Errors of a table that is opened on it name the path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot be opened, or is not a regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Source> {
        Source::of_file(
            path.as_ref(),
            "opening the table",
            |file, _| Ok(file.into()),
        )
    }

    /// Reads the whole file at `path`, in its current size, into memory. Lookups then need no I/O. The file may change
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the file cannot be read, is not a regular file, or is larger than the memory
    /// that the system grants.
    pub fn load(path: impl AsRef<Path>) -> Result<Source> {
        Source::of_file(path.as_ref(), "loading the table", |file, size| {
            let size = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
            Ok(file.read_at(0, size)?.into())
        })
    }

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
    #[cfg(feature = "mmap")]
    #[expect(
        unsafe_code,
        reason = "only the caller can promise that a mapped file stays unchanged"
    )]
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Source> {
        Source::of_file(path.as_ref(), "mapping the table", |file, _| {
            // SAFETY: the caller guarantees that the file does not change.
            let (bytes, announce) = map::share(unsafe { Mmap::map(&file) }?);
            Ok(Source::of(SourceBytes::Memory(bytes, Some(announce))))
        })
    }

    /// Whether this is a file or memory: any other source may be far away.
    pub(crate) fn is_near(&self) -> bool {
        matches!(self.bytes, SourceBytes::File(_) | SourceBytes::Memory(..))
    }

    pub(crate) fn of(bytes: SourceBytes) -> Source {
        Source {
            bytes,
            path: None,
            opened: None,
        }
    }

    /// The result of `make` for the file at `path` and its size. Accepts only regular files: a device or a pipe may have no size or no
    /// end, and opening a pipe without a writer blocks.
    pub(crate) fn of_file(
        path: &Path,
        doing: &str,
        make: impl FnOnce(File, u64) -> io::Result<Source>,
    ) -> Result<Source> {
        let source = || {
            let mut options = File::options();
            #[cfg(unix)] // opening a named pipe waits for a writer otherwise
            options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
            let opened = options.read(true).open(path);
            // Sockets cannot be opened, and on Windows neither can directories.
            let metadata = opened
                .as_ref()
                .map_or_else(|_| path.metadata(), File::metadata);
            if let Some(metadata) = metadata.as_ref().ok().filter(|it| !it.is_file()) {
                let message = if metadata.is_dir() {
                    "a directory: a table is one of the files in it (the crate leveltable-database, or `Database` in Python, reads that of a LevelDB database)"
                } else {
                    "not a regular file"
                };
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            let (file, metadata) = (opened?, metadata?);
            let mut source = make(file, metadata.len())?;
            source.opened = Some(Arc::new(OpenedFile::new(path, &metadata)?));
            Ok(source)
        };
        match source() {
            Ok(source) => Ok(source.named(path)),
            Err(e) => Err(Error::io(format!("{doing}{}", advice(&e)), e).at_path(path)),
        }
    }

    /// Sets the name of this source in errors of a table, such as its URL. [`Source::open`] and [`Source::load`] set the
    /// path.
    pub fn named(mut self, name: impl AsRef<Path>) -> Source {
        self.path = Some(name.as_ref().into());
        self
    }

    /// The name of this source in errors of a table: the path of a file that was opened by it, or what [`named`](Source::named)
    /// set.
    pub fn name(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn reader(&self) -> io::Result<&dyn ReadAt> {
        match &self.bytes {
            SourceBytes::Memory(bytes, _) => Ok(bytes),
            SourceBytes::File(file) => Ok(file),
            SourceBytes::Io(source) => Ok(source),
            #[cfg(feature = "async")]
            SourceBytes::Remote(_) => Err(io::Error::other("this part was not fetched")),
        }
    }

    /// The error of a failed read of a source that had `size` bytes when it was opened. If it is a file that is shorter now, the error says
    /// so.
    #[cold]
    pub(crate) fn explain(&self, error: io::Error, size: u64) -> io::Error {
        if let SourceBytes::File(file) = &self.bytes
            && let Ok(now) = file.size()
            && now < size
        {
            let message = format!("{error}: the file is now {now} bytes, was {size} when opened");
            return io::Error::new(error.kind(), message);
        }
        error
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl From<Bytes> for Source {
    fn from(bytes: Bytes) -> Source {
        Source::of(SourceBytes::Memory(bytes, None))
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Source {
        Bytes::from(bytes).into()
    }
}

impl From<File> for Source {
    fn from(file: File) -> Source {
        Source::of(SourceBytes::File(Arc::new(file)))
    }
}

impl<R: ReadAt + ?Sized + 'static> From<Arc<R>> for Source {
    fn from(source: Arc<R>) -> Source {
        Source::of(SourceBytes::Io(Arc::new(source)))
    }
}
