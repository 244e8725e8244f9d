//! Where a table's bytes come from.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::read::current::OpenedFile;
use crate::read::map::Map;
use crate::read::positional;
#[cfg(feature = "async")]
use crate::read::remote::AsyncReadAt;

/// Bytes that can be read at any position, by any number of threads at once.
///
/// Implement it for whatever holds a table: an object store, an archive member, an encrypted file.
///
/// A read returns **all `len` bytes at `offset`, or an error**. The content must not change while a table is open on it.
pub trait ReadAt: Send + Sync {
    /// Size in bytes. Called once, when a table is opened.
    fn size(&self) -> io::Result<u64>;

    /// Reads the `len` bytes at `offset`. If the content ends before, returns [`io::ErrorKind::UnexpectedEof`].
    ///
    /// A table reads only within [`size`](ReadAt::size).
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Reads several parts, each an offset and a length, as by [`read_at`](ReadAt::read_at). Gives the result of each to
    /// `each`, with the part's position in `parts`, as soon as it is there: one that fails does not fail the others. The order
    /// is the source's choice. A result that is never given is an error of its part. `each` may itself read from the source, so
    /// it must not be called under a lock that a read takes.
    ///
    /// [`Table::get_many`](crate::Table::get_many) asks for all blocks of a batch in one call, up to some hundred parts of a
    /// few MiB together, and searches a block in `each`, while others are on their way. Opening a table asks for all that it still
    /// needs in one call. The default reads one part after another.
    /// Implement it where parts can be read at the same time, from an object store for example.
    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        for (i, &(offset, len)) in parts.iter().enumerate() {
            each(i, self.read_at(offset, len));
        }
    }
}

/// Positional reads. On Unix (`pread`) they neither use nor move the file's own position. On Windows (`seek_read`) they do not
/// use it either, but leave it after what was read last: do not rely on the position of a file that tables read.
///
/// Of many parts, Linux first copies those that are in its page cache. The others are announced before they are read, so that
/// the disk works on up to 64 of them at a time.
impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        positional::read_at(self, offset, len)
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        positional::read_many_at(self, parts, each);
    }
}

impl ReadAt for Bytes {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(len));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.len() => Ok(self.slice(start..end)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<R: ReadAt + ?Sized> ReadAt for Arc<R> {
    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        (**self).read_at(offset, len)
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        (**self).read_many_at(parts, each);
    }
}

/// The bytes of a table that is not opened. A source that is read by requests has none at hand: an error.
impl ReadAt for Source {
    fn size(&self) -> io::Result<u64> {
        self.reader()?.size()
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
/// reads ahead of lookups as it likes.
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
    pub(super) bytes: SourceBytes,
    /// Where the file was opened, for messages.
    pub(crate) path: Option<Arc<Path>>,
    /// The file, as it was.
    pub(super) opened: Option<Arc<OpenedFile>>,
}

#[derive(Clone)]
pub(super) enum SourceBytes {
    /// The whole table. Of a mapped file also its map, to tell the system which bytes it will need.
    Memory(Bytes, Option<Map>),
    /// A file, of which the system keeps in memory what was read lately.
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

    /// Reads the whole file at `path` into memory, as large as it is now. Lookups then need no I/O. The file may change
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

    /// Whether it is a file or in memory: a source of any other kind may be far away.
    pub(super) fn is_near(&self) -> bool {
        matches!(self.bytes, SourceBytes::File(_) | SourceBytes::Memory(..))
    }

    pub(super) fn of(bytes: SourceBytes) -> Source {
        Source {
            bytes,
            path: None,
            opened: None,
        }
    }

    /// What `make` makes of the file at `path` and its size. Refuses all but regular files: what else can be opened may have no
    /// size, no end, or nobody who writes it.
    pub(super) fn of_file(
        path: &Path,
        doing: &str,
        make: impl FnOnce(File, u64) -> io::Result<Source>,
    ) -> Result<Source> {
        let source = || {
            // Asked before, since opening a named pipe waits for a writer.
            if !std::fs::metadata(path)?.is_file() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "not a regular file",
                ));
            }
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            let mut source = make(file, metadata.len())?;
            source.opened = Some(Arc::new(OpenedFile::new(path, &metadata)?));
            Ok(source)
        };
        match source() {
            Ok(source) => Ok(source.named(path)),
            Err(e) => Err(Error::io(doing, e).at_path(path)),
        }
    }

    /// Sets what errors of a table call this source, such as its URL. [`Source::open`] and [`Source::load`] set the path.
    pub fn named(mut self, name: impl AsRef<Path>) -> Source {
        self.path = Some(name.as_ref().into());
        self
    }

    /// What errors of a table call this source: the path of a file that was opened by it.
    pub fn name(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn reader(&self) -> io::Result<&dyn ReadAt> {
        match &self.bytes {
            SourceBytes::Memory(bytes, _) => Ok(bytes),
            SourceBytes::File(file) => Ok(file),
            SourceBytes::Io(source) => Ok(source),
            #[cfg(feature = "async")]
            SourceBytes::Remote(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the error of a read of a source that had `size` bytes when it was opened. If it is a file and shorter now, the error says so.
    #[cold]
    pub(super) fn explain(&self, error: io::Error, size: u64) -> io::Error {
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

impl<R: ReadAt + 'static> From<Arc<R>> for Source {
    fn from(source: Arc<R>) -> Source {
        Source::of(SourceBytes::Io(source))
    }
}

impl From<Arc<dyn ReadAt>> for Source {
    fn from(source: Arc<dyn ReadAt>) -> Source {
        Source::of(SourceBytes::Io(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_and_memory_read_alike_and_never_short() {
        let content: Bytes = (0..=255).collect::<Vec<u8>>().into();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        for source in [&file as &dyn ReadAt, &content] {
            assert_eq!(source.size().unwrap(), 256);
            assert_eq!(source.read_at(250, 6).unwrap(), content[250..]);
            assert_eq!(source.read_at(256, 0).unwrap().len(), 0);
            for (offset, len) in [(250, 7), (256, 1), (1000, 1)] {
                let kind = source.read_at(offset, len).unwrap_err().kind();
                assert_eq!(kind, io::ErrorKind::UnexpectedEof);
            }
        }
        assert!(ReadAt::read_at(&content, u64::MAX, 1).is_err());
        assert!(ReadAt::read_at(&content, 1, usize::MAX).is_err());
    }
}
