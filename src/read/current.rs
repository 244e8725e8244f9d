//! Whether a table's file is still the one that was opened.

use std::fs::{Metadata, metadata};
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::read::table::Table;

/// A file that was opened by its path.
#[derive(Debug)]
pub(super) struct OpenedFile {
    path: PathBuf,
    identity: Identity,
}

/// What no two files share, or two states of one, as a rule: size, time of the last change, and which file it is.
type Identity = (u64, Option<SystemTime>, FileNumber);

/// Device and inode. Where files have no numbers, when it was created.
#[cfg(unix)]
type FileNumber = (u64, u64);
#[cfg(not(unix))]
type FileNumber = Option<SystemTime>;

#[cfg(unix)]
fn number(metadata: &Metadata) -> FileNumber {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn number(metadata: &Metadata) -> FileNumber {
    metadata.created().ok()
}

fn identity(metadata: &Metadata) -> Identity {
    let modified = metadata.modified().ok();
    (metadata.len(), modified, number(metadata))
}

impl OpenedFile {
    pub(super) fn new(path: &Path, metadata: &Metadata) -> io::Result<OpenedFile> {
        // The process may change its directory.
        let path = absolute(path)?;
        let identity = identity(metadata);
        Ok(OpenedFile { path, identity })
    }

    /// Bytes of memory that it takes.
    pub(super) fn weight(&self) -> usize {
        size_of::<OpenedFile>() + self.path.capacity()
    }
}

impl Table {
    /// Whether the file that the table was opened on is still at its path, and unchanged: the same file, of the same size, last modified
    /// when it was at opening. `false` if it was replaced, removed or written to. A replaced file is read on, and can be opened again;
    /// one that was written to must be.
    ///
    /// One call of the system, for the metadata of what is at the path, and no read. A change that keeps all of this is not seen, such as
    /// one within the few milliseconds in which a file system's clock does not advance. On Windows, the time when a file was created
    /// tells it from others. C++ LevelDB has nothing like it, since nobody replaces its tables.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidState`] for a table whose file was not opened by this crate, by its path; [`ErrorKind::Io`] if the system does
    /// not tell.
    ///
    /// ```
    /// use leveltable::{Table, TableBuilder};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("fruit.ldb");
    /// TableBuilder::create(&path)?.finish()?;
    /// let table = Table::open(&path)?;
    /// assert!(table.is_current()?);
    /// TableBuilder::create(&path)?.finish()?;
    /// assert!(!table.is_current()?);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn is_current(&self) -> Result<bool> {
        let file = &self.inner.file;
        let Some(opened) = &file.source.opened else {
            let message = "this table was not opened by the path of a file: nothing tells whether it has changed";
            return Err(file.name_in(Error::new(ErrorKind::InvalidState, message)));
        };
        match metadata(&opened.path) {
            Ok(found) => Ok(identity(&found) == opened.identity),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(file.name_in(Error::io("asking whether the table has changed", e))),
        }
    }
}
