//! Bytes at any position: a file, memory, or whatever else holds a table.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::read::source::positional;

/// Bytes that can be read at any position, by any number of threads at once.
///
/// Implement it for whatever holds a table: an object store, an archive member, an encrypted file.
///
/// A read returns **all `len` bytes at `offset`, or an error**. The content must not change while a table is open on it.
///
/// ```
/// use leveltable::{ReadAt, bytes::Bytes};
/// use std::{fs::File, io};
///
/// /// A table inside a larger file; `Source::from(Arc::new(member))` opens it.
/// struct Member {
///     archive: File,
///     start: u64,
///     size: u64,
/// }
///
/// impl ReadAt for Member {
///     fn size(&self) -> io::Result<u64> {
///         Ok(self.size)
///     }
///
///     fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
///         self.archive.read_at(self.start + offset, len)
///     }
/// }
/// ```
pub trait ReadAt: Send + Sync {
    /// Size in bytes. Called once, when a table is opened.
    ///
    /// # Errors
    ///
    /// Errors of the source; the table is then not opened.
    fn size(&self) -> io::Result<u64>;

    /// Reads the `len` bytes at `offset`. A table only reads within [`size`](ReadAt::size).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the content ends before the range does, and errors of the source.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Reads several parts, each an offset and a length, like [`read_at`](ReadAt::read_at). Passes the result of each to
    /// `each`, with the part's position in `parts`, as soon as it has arrived: a failed part does not fail the others. The
    /// order is the source's choice. A missing result is an error of its part. `each` may itself read from the source, so it
    /// must not be called under a lock that a read takes.
    ///
    /// [`Table::get_many`](crate::Table::get_many) asks for all blocks of a batch in one call, up to some hundred parts of a few
    /// MiB together, and searches a block in `each` while others are in flight. Opening a table asks for everything that it still
    /// needs in one call. The default reads one part after another. Implement it if parts can be read at the same time, for
    /// example from an object store.
    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        for (i, &(offset, len)) in parts.iter().enumerate() {
            each(i, self.read_at(offset, len));
        }
    }
}

/// Asks the system to read a part of a mapped file, given its offset and length, without waiting for it.
pub(crate) type Announce = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Positional reads. On Unix (`pread`) they neither use nor move the file's own position. On Windows (`seek_read`) they
/// move it: do not rely on the position of a file that tables read.
///
/// For several parts, Linux first copies those in its page cache. The others are announced before they are read, so that the
/// disk works on up to 64 of them at a time.
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
