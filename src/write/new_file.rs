//! Destinations of a table: any writer, or a path where it appears complete or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf, Prefix};

use tempfile::{NamedTempFile, PathPersistError, TempPath};

use crate::error::{Error, Result};
use crate::held::{advice, rename_patiently};
use crate::write::settings::Settings;

/// The destination of a [`TableBuilder`](crate::TableBuilder): any [`io::Write`], or a [`NewFile`].
///
/// Sealed. Unlike a writer, a destination knows when its table is complete, so that `finish` can publish a path.
pub trait Destination: sealed::Destination {}

impl<D: sealed::Destination> Destination for D {}

pub(crate) mod sealed {
    use std::io;

    use crate::error::Result;

    pub trait Destination {
        /// The rest of the destination when its table is complete.
        type Published;
        /// Appends all of `bytes`.
        fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
        /// Makes the complete table visible to others.
        fn publish(self) -> Result<Self::Published>;
    }
}

/// A writer gets the bytes and a `flush`, and is returned. Syncing is up to the caller.
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
/// [`TableBuilder::temporary_path`](crate::TableBuilder::temporary_path). It is removed when the builder is dropped. A
/// file left by a killed process can be deleted.
#[derive(Debug)]
pub struct NewFile {
    pub(super) temporary: NamedTempFile,
    /// The path of the table, made absolute when the file was created: the process may change its current directory before it
    /// finishes.
    target: PathBuf,
    /// Whether an existing file may be replaced.
    replace: bool,
    /// Whether the file and its name are synced.
    sync: bool,
    /// [`rename`]. Tests inject faults here.
    rename: fn(TempPath, &Path, bool) -> Result<(), PathPersistError>,
}

impl NewFile {
    /// Fails now if the file could not be published at `path` later.
    pub(crate) fn create(path: &Path, settings: &Settings) -> Result<NewFile> {
        let replace = settings.replace;
        let failed = |e| Error::io(format!("creating a table{}", advice(&e)), e).at_path(path);
        let target = publishable(path, replace)
            .map(without_limit)
            .map_err(failed)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".leveltable-").suffix(".tmp");
        // The errors of `tempfile_in` name the temporary file, which the caller does not know.
        let created = builder.make_in(directory(&target), |path| File::create_new(path));
        let created = created.map_err(|e| match e.kind() {
            ErrorKind::NotFound => io::Error::new(e.kind(), "its directory does not exist"),
            _ => e,
        });
        Ok(NewFile {
            temporary: created.map_err(failed)?,
            target,
            replace,
            sync: settings.sync,
            rename,
        })
    }
}

impl sealed::Destination for NewFile {
    type Published = ();

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self.temporary.as_file_mut(), bytes)
    }

    /// The file's bytes reach the disk before its name does, and the name before this returns, unless syncing is off.
    fn publish(self) -> Result<()> {
        if self.sync {
            let synced = self.temporary.as_file().sync_all();
            synced.map_err(|e| Error::io("syncing a finished table", e))?;
        }
        // Closes the file: some systems do not rename an open one.
        let mut temporary = Some(self.temporary.into_temp_path());
        let renamed = rename_patiently(|| match temporary.take() {
            Some(path) => (self.rename)(path, &self.target, self.replace).map_err(|refused| {
                temporary = Some(refused.path);
                refused.error
            }),
            None => Err(io::Error::other("the temporary file is gone")),
        });
        renamed.map_err(|e| {
            let doing = "renaming a finished table to its path";
            Error::io(format!("{doing}{}", advice(&e)), e)
        })?;
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

/// Makes `path` absolute, and checks that a file can be renamed to it.
///
/// Publishing can still fail. These checks avoid building a table that has no place.
fn publishable(path: &Path, replace: bool) -> io::Result<PathBuf> {
    let invalid = |what| Err(io::Error::new(ErrorKind::InvalidInput, what));
    // "name/" and "name/." are paths of a directory, although they have a file name.
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
        // A link is replaced and not followed, but nobody wants to replace `/dev/stdout`.
        Ok(_) if target.metadata().is_ok_and(is_special) => {
            invalid("what is there is not a regular file, and is not replaced")
        }
        Ok(_) => Ok(target),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(target),
        // For example a name that is too long, which would make the renaming fail as well.
        Err(e) => Err(e),
    }
}

/// Renames a file, replacing an existing one if that is allowed.
fn rename(file: TempPath, to: &Path, replace: bool) -> Result<(), PathPersistError> {
    if replace {
        file.persist(to)
    } else {
        file.persist_noclobber(to)
    }
}

/// Returns an absolute path in a form without a length limit. Windows limits other forms to 260 characters, and `tempfile`, unlike the
/// standard library, renames to a path as it is.
fn without_limit(path: PathBuf) -> PathBuf {
    // Names of temporary files may be longer.
    const SHORT: usize = 200;
    match path.components().next() {
        Some(Component::Prefix(disk))
            if matches!(disk.kind(), Prefix::Disk(_)) && path.as_os_str().len() > SHORT =>
        {
            let mut verbatim = OsString::from(r"\\?\");
            verbatim.push(&path);
            verbatim.into()
        }
        _ => path,
    }
}

/// The directory of a file, whose path is absolute.
fn directory(file: &Path) -> &Path {
    file.parent().unwrap_or(file)
}

/// Some network and FUSE file systems cannot sync a directory. They handle renames in their own way, so that is not an error.
#[cfg(unix)]
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    use rustix::io::Errno;

    const UNSUPPORTED: [Errno; 5] = [
        Errno::INVAL,
        Errno::NOTSUP,
        Errno::OPNOTSUPP,
        Errno::NOSYS,
        Errno::BADF, // on systems where syncing needs a descriptor for writing, which a directory cannot have
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;
    use crate::ErrorKind;

    thread_local! {
        /// How many of the next renames fail, and with which error.
        static REFUSALS: Cell<(u32, Refusal)> = const { Cell::new((0, held)) };
    }

    type Refusal = fn() -> io::Error;

    fn held() -> io::Error {
        io::Error::from_raw_os_error(32)
    }

    fn denied() -> io::Error {
        io::ErrorKind::PermissionDenied.into()
    }

    fn refusing(path: TempPath, to: &Path, replace: bool) -> Result<(), PathPersistError> {
        assert_closed(&path);
        let (left, error) = REFUSALS.get();
        if left == 0 {
            return rename(path, to, replace);
        }
        REFUSALS.set((left - 1, error));
        let error = error();
        Err(PathPersistError { error, path })
    }

    /// Some systems do not rename an open file.
    fn assert_closed(path: &Path) {
        for open in fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten()
        {
            assert_ne!(fs::read_link(open.path()).ok().as_deref(), Some(path));
        }
    }

    /// Writes a file, over an existing one or not, while `refusals` renames fail.
    fn write(path: &Path, text: &str, refusals: (u32, Refusal), replace: bool) -> Result<()> {
        let settings = Settings {
            replace,
            ..Settings::new()
        };
        let mut file = NewFile::create(path, &settings)?;
        file.rename = refusing;
        REFUSALS.set(refusals);
        sealed::Destination::write_all(&mut file, text.as_bytes()).unwrap();
        sealed::Destination::publish(file)
    }

    #[test]
    fn a_file_that_is_held_for_a_moment_gets_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let mut refusals: Vec<(u32, Refusal)> = vec![(0, held), (1, held), (9, held)];
        if cfg!(windows) {
            refusals.extend([(1, denied as Refusal), (9, denied)]);
        }
        for (at, refusals) in refusals.into_iter().enumerate() {
            for replace in [false, true] {
                let path = directory
                    .path()
                    .join(if replace { "replaced" } else { "new" });
                let value = at.to_string();
                write(&path, &value, refusals, replace).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), value);
            }
            fs::remove_file(directory.path().join("new")).unwrap();
        }
        let names = fs::read_dir(directory.path()).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn a_file_that_stays_held_is_an_error_and_leaves_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        write(&path, "old", (0, held), true).unwrap();
        for refusal in [held as Refusal, denied] {
            let error = write(&path, "new", (1000, refusal), true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            let is_held = refusal().raw_os_error().is_some();
            let says = error.to_string().contains("another program holds");
            assert_eq!(says, is_held, "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "old");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }
}
