//! Whether a table's file is still the one that was opened.

use std::fs::{Metadata, metadata};
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::time::SystemTime;

/// A file that was opened by its path.
#[derive(Debug)]
pub(crate) struct OpenedFile {
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
    pub(crate) fn new(path: &Path, metadata: &Metadata) -> io::Result<OpenedFile> {
        // The process may change its directory.
        let path = absolute(path)?;
        let identity = identity(metadata);
        Ok(OpenedFile { path, identity })
    }

    /// The file's size when it was opened.
    pub(crate) fn size(&self) -> u64 {
        self.identity.0
    }

    /// Whether the file is still at its path, and as it was.
    pub(crate) fn is_current(&self) -> io::Result<bool> {
        match metadata(&self.path) {
            Ok(found) => Ok(identity(&found) == self.identity),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn weight(&self) -> usize {
        size_of::<OpenedFile>() + self.path.capacity()
    }
}
