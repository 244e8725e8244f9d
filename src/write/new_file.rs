//! Where a table is written to: any writer, or a path where it appears whole or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// Where a [`TableBuilder`](crate::TableBuilder) writes: every [`io::Write`], and [`NewFile`].
///
/// Sealed: it exists so that `finish` can publish a path without handing over something that could
/// be forgotten.
pub trait Destination: sealed::Destination {}

impl<D: sealed::Destination> Destination for D {}

pub(crate) mod sealed {
    use std::io;
    use std::path::Path;

    use crate::error::Result;

    pub trait Destination {
        /// Writes all of `bytes`, behind what was written before.
        fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
        /// The table is whole: makes it so for others.
        fn publish(self) -> Result<()>;
        /// Where the table will be, for messages.
        fn path(&self) -> Option<&Path>;
    }
}

/// A writer gets the bytes and a `flush`; whether they are synced is the caller's business.
impl<W: Write> sealed::Destination for W {
    /// As `write_all`, which panics where a writer claims to have written more than it was given.
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let len @ 1.. = bytes.len() {
            match self.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    let claim =
                        || io::Error::other(format!("the writer claims {n} of {len} bytes"));
                    bytes = bytes.get(n..).ok_or_else(claim)?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn publish(mut self) -> Result<()> {
        self.flush()
            .map_err(|e| Error::io("flushing the writer of a finished table", e))
    }

    fn path(&self) -> Option<&Path> {
        None
    }
}

/// A file that appears at its path when the table is finished, and otherwise leaves no trace.
///
/// Until then it is a temporary file `.leveltable-XXXXXX.tmp` in the same directory, at
/// [`TableBuilder::temporary_path`](crate::TableBuilder::temporary_path). It is removed when the builder is
/// dropped; one that a killed process left behind can be deleted.
#[derive(Debug)]
pub struct NewFile {
    temporary: NamedTempFile,
    /// As the caller named it, for messages.
    path: PathBuf,
    /// The same, resolved when the file was begun: the table ends up there wherever the process goes meanwhile.
    target: PathBuf,
    /// Whether a file that is there may be replaced.
    replace: bool,
}

impl NewFile {
    pub(crate) fn create(path: &Path, replace: bool) -> io::Result<NewFile> {
        // A link to a directory is replaced as any other.
        let is_directory = path.symlink_metadata().is_ok_and(|there| there.is_dir());
        if path.file_name().is_none() || is_directory {
            let what = "not the path of a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let target = std::path::absolute(path)?;
        // Asked again when the table is published; here only to save the work of building it.
        if !replace && target.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".leveltable-").suffix(".tmp");
        #[cfg(unix)]
        {
            // The ordinary permissions of a new file, which the umask then narrows.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        Ok(NewFile {
            temporary: builder.tempfile_in(directory(&target))?,
            path: path.to_owned(),
            target,
            replace,
        })
    }

    pub(crate) fn temporary_path(&self) -> &Path {
        self.temporary.path()
    }
}

impl sealed::Destination for NewFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.temporary.as_file_mut().write_all(bytes)
    }

    /// The file's bytes reach the disk before its name does, and the name before this returns.
    fn publish(self) -> Result<()> {
        let NewFile {
            temporary,
            path,
            target,
            replace,
        } = self;
        let failed = |doing, e| Error::io(doing, e).at_path(&path);
        temporary
            .as_file()
            .sync_all()
            .map_err(|e| failed("syncing a finished table", e))?;
        let renamed = match replace {
            true => temporary.persist(&target),
            false => temporary.persist_noclobber(&target),
        };
        renamed.map_err(|e| failed("renaming a finished table to its path", e.error))?;
        sync_directory(directory(&target)).map_err(|e| {
            let doing = "syncing the directory of a finished table, which is there whole but may not \
                         survive a power cut";
            failed(doing, e)
        })
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(unix)]
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Windows cannot sync a directory; its file systems log renames themselves.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
