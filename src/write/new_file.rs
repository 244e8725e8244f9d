//! Where a table is written to: any writer, or a path where it appears whole or not at all.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::write::options::WriteOptions;

/// Where a [`TableBuilder`](crate::TableBuilder) writes: any [`io::Write`], or a [`NewFile`].
///
/// Sealed. Unlike a writer, a destination knows when its table is complete, so that `finish` can publish a path.
pub trait Destination: sealed::Destination {}

impl<D: sealed::Destination> Destination for D {}

pub(crate) mod sealed {
    use std::io;

    use crate::error::Result;

    pub trait Destination {
        /// What is left of the destination when its table is complete.
        type Published;
        /// Writes all of `bytes` after what was written before.
        fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
        /// Makes the table visible to others, now that it is complete.
        fn publish(self) -> Result<Self::Published>;
    }
}

/// A writer gets the bytes and a `flush`, and is given back. Syncing is up to the caller.
impl<W: Write> sealed::Destination for W {
    type Published = W;

    /// Like [`Write::write_all`], which panics if a writer claims to have written more than it was given.
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    let lie = "the writer claims more bytes than it was given";
                    bytes = bytes.get(n..).ok_or_else(|| io::Error::other(lie))?;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn publish(mut self) -> Result<W> {
        let failed = |e| Error::io("flushing the writer of a finished table", e);
        self.flush().map_err(failed)?;
        Ok(self)
    }
}

/// A file that appears at its path when the table is finished, and otherwise leaves no trace.
///
/// Until then it is a temporary file `.leveltable-XXXXXX.tmp` in the same directory, at
/// [`TableBuilder::temporary_path`](crate::TableBuilder::temporary_path). It is removed when the builder is
/// dropped. One that a killed process left there can be deleted.
#[derive(Debug)]
pub struct NewFile {
    pub(super) temporary: NamedTempFile,
    /// The path of the table, made absolute when the file was created: the process may change its directory before it finishes.
    target: PathBuf,
    /// Whether an existing file may be replaced.
    replace: bool,
    /// Whether the file and its name are synced.
    sync: bool,
}

impl NewFile {
    /// Fails now if the file could not be published at `path` later.
    pub(crate) fn create(path: &Path, options: &WriteOptions) -> Result<NewFile> {
        let replace = options.replace;
        let failed = |e| Error::io("creating a table", e).at_path(path);
        let target = publishable(path, replace).map_err(failed)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".leveltable-").suffix(".tmp");
        // The errors of `tempfile_in` name the temporary file, of which the caller does not know.
        let created = builder.make_in(directory(&target), |path| File::create_new(path));
        let created = created.map_err(|e| match e.kind() {
            ErrorKind::NotFound => io::Error::new(e.kind(), "its directory does not exist"),
            _ => e,
        });
        Ok(NewFile {
            temporary: created.map_err(failed)?,
            target,
            replace,
            sync: options.sync,
        })
    }
}

impl sealed::Destination for NewFile {
    type Published = ();

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self.temporary.as_file_mut(), bytes)
    }

    /// The file's bytes reach the disk before its name does, and the name before this returns, unless nothing is synced.
    fn publish(self) -> Result<()> {
        if self.sync {
            let synced = self.temporary.as_file().sync_all();
            synced.map_err(|e| Error::io("syncing a finished table", e))?;
        }
        let renamed = if self.replace {
            self.temporary.persist(&self.target)
        } else {
            self.temporary.persist_noclobber(&self.target)
        };
        renamed.map_err(|e| Error::io("renaming a finished table to its path", e.error))?;
        if !self.sync {
            return Ok(());
        }
        sync_directory(directory(&self.target)).map_err(|e| {
            let doing = "the table is at its path and whole, but its name may not survive a crash: \
                         syncing its directory";
            Error::io(doing, e)
        })
    }
}

/// `path` made absolute, if a file can be renamed to it.
///
/// Publishing asks the system again. These checks save the work of building a table that has no place.
fn publishable(path: &Path, replace: bool) -> io::Result<PathBuf> {
    let invalid = |what| Err(io::Error::new(ErrorKind::InvalidInput, what));
    // "name/" and "name/." are paths of a directory, with a name.
    let bytes = path.as_os_str().as_encoded_bytes();
    let is_last = |name: &OsStr| bytes.ends_with(name.as_encoded_bytes());
    if !path.file_name().is_some_and(is_last) {
        return invalid("not the path of a file");
    }
    let target = std::path::absolute(path)?;
    // A device, a FIFO or a socket.
    let is_special = |there: Metadata| !there.is_file() && !there.is_dir();
    match target.symlink_metadata() {
        Ok(there) if there.is_dir() => invalid("a directory is there"),
        Ok(_) if !replace => Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "a file is there already, and replace_existing(false) keeps it",
        )),
        // A link is replaced and not followed, but nobody means to replace `/dev/stdout`.
        Ok(_) if target.metadata().is_ok_and(is_special) => {
            invalid("what is there is no regular file, and is not replaced")
        }
        Ok(_) => Ok(target),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(target),
        // Among others a name that is too long: it would fail the renaming, too.
        Err(e) => Err(e),
    }
}

/// The directory of a file, whose path is absolute.
fn directory(file: &Path) -> &Path {
    file.parent().unwrap_or(file)
}

/// Some network and FUSE file systems cannot sync a directory. They take care of renames in their own way, so that is no error.
#[cfg(unix)]
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    use rustix::io::Errno;

    const UNSUPPORTED: [Errno; 5] = [
        Errno::INVAL,
        Errno::NOTSUP,
        Errno::OPNOTSUPP,
        Errno::NOSYS,
        Errno::BADF, // where syncing needs a descriptor for writing, which a directory cannot have
    ];
    match rustix::fs::fsync(std::fs::File::open(directory)?) {
        Err(errno) if !UNSUPPORTED.contains(&errno) => Err(errno.into()),
        _ => Ok(()),
    }
}

/// Windows cannot sync a directory. Its file systems log renames themselves.
#[cfg(not(unix))]
pub fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
