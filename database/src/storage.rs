//! Directories: one that is read, and a new one that is written. The file system, behind two small traits that tests implement
//! in memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leveltable::sister_crates::{advice, sync_directory};
use leveltable::{Error, ReadAt, Result, Source};
use same_file::Handle;
use tempfile::TempDir;

/// A directory that is read. Names are those of files in it.
pub trait Directory: Debug + Send + Sync {
    /// Its path for messages.
    fn path(&self) -> &Path;

    /// Names and sizes of the regular files. Files that vanish meanwhile are left out.
    fn list(&self) -> io::Result<BTreeMap<String, u64>>;

    /// Opens a regular file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadAt>>;

    /// The first bytes of a small file, up to `most`.
    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>>;

    /// Opens a table.
    fn open_table(&self, name: &str) -> Result<Source> {
        let path = self.path().join(name);
        let file = self.open(name);
        let file = file.map_err(|error| failed("opening the table", error, &path))?;
        Ok(Source::from(file).named(path))
    }

    /// Whether the file exists.
    fn exists(&self, name: &str) -> bool {
        self.open(name).is_ok()
    }

    /// Holds a file open, to notice later if another file has its name. `None` if that cannot happen.
    fn hold(&self, _name: &str) -> io::Result<Option<Handle>> {
        Ok(None)
    }
}

/// A new directory, which appears when it is published. Dropping it leaves nothing.
pub trait NewDirectory: Debug + Send {
    /// Its path for messages.
    fn path(&self) -> &Path;

    /// Where its files are until then, if that is a path.
    fn temporary_path(&self) -> Option<&Path>;

    /// Other temporary directories beside it: of killed builds, or of builds at work.
    fn leftovers(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Free space in bytes, if it is known.
    fn free_bytes(&self) -> io::Result<Option<u64>>;

    /// Creates a file.
    fn create(&mut self, name: &str) -> io::Result<Box<dyn NewFile>>;

    /// Makes the names of its files durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Renames the directory to its path, unless something is there.
    fn publish(&mut self) -> io::Result<()>;

    /// Makes its name durable.
    fn sync_name(&mut self) -> io::Result<()>;
}

/// A file of a new directory.
pub trait NewFile: Write + Debug + Send {
    /// Makes what was written durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl NewFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A directory of the file system.
#[derive(Debug)]
pub struct FileSystem(pub PathBuf);

/// The error of a failed operation on a path, with advice for users of Windows.
pub fn failed(doing: &str, error: io::Error, path: &Path) -> Error {
    Error::io(format!("{doing}{}", advice(&error)), error).at_path(path)
}

/// Opens a regular file for reading. (Opening a pipe would wait for its writer.)
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("this is not a regular file"));
    }
    File::open(path)
}

impl FileSystem {
    pub(crate) fn at(path: &Path) -> Arc<dyn Directory> {
        Arc::new(FileSystem(path.to_owned()))
    }
}

impl Directory for FileSystem {
    fn path(&self) -> &Path {
        &self.0
    }

    fn list(&self) -> io::Result<BTreeMap<String, u64>> {
        let entries = fs::read_dir(&self.0)?.collect::<io::Result<Vec<_>>>()?;
        let file = |entry: DirEntry| {
            // Names of LevelDB's files are ASCII.
            let name = entry.file_name().into_string().ok()?;
            let metadata = fs::metadata(entry.path()).ok()?;
            metadata.is_file().then_some((name, metadata.len()))
        };
        Ok(entries.into_iter().filter_map(file).collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(open_file(&self.0.join(name))?))
    }

    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let (file, mut start) = (open_file(&self.0.join(name))?, Vec::new());
        file.take(most).read_to_end(&mut start)?;
        Ok(start)
    }

    fn open_table(&self, name: &str) -> Result<Source> {
        Source::open(self.0.join(name))
    }

    fn exists(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    fn hold(&self, name: &str) -> io::Result<Option<Handle>> {
        let file = open_file(&self.0.join(name))?;
        Handle::from_file(file).map(Some)
    }
}

/// Beginning and end of the names of temporary directories.
const TEMPORARY: (&str, &str) = (".leveltable-", ".tmp");

/// A new directory of the file system: until it is published, a temporary directory beside its place.
#[derive(Debug)]
pub(crate) struct NewFileSystem {
    path: PathBuf,
    /// Absolute: the process may change its current directory.
    target: PathBuf,
    temporary: TempDir,
    /// A file whose owner and permissions new files get; the system's defaults if `None`.
    file_like: Option<Metadata>,
}

impl NewFileSystem {
    /// Fails now if the directory could not be published at `path` later.
    pub(crate) fn create(path: &Path) -> Result<NewFileSystem> {
        let failed = |error| failed("creating a database", error, path);
        let target = std::path::absolute(path).map_err(failed)?;
        let invalid = |what| failed(io::Error::new(io::ErrorKind::InvalidInput, what));
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(invalid("this path has no name that a directory could get"));
        };
        if !parent.is_dir() {
            let what = "its parent directory does not exist";
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, what)));
        }
        // Without a separator at the end, which would follow a link.
        let target = parent.join(name);
        match target.symlink_metadata() {
            Ok(_) => return Err(taken(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // For example a name that is too long, which would make the renaming fail as well.
            Err(error) => return Err(failed(error)),
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(TEMPORARY.0).suffix(TEMPORARY.1);
        #[cfg(unix)]
        {
            // The ordinary permissions of a new directory, to which the system applies the umask.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o777));
        }
        let temporary = builder.tempdir_in(parent).map_err(failed)?;
        Ok(NewFileSystem {
            path: path.to_owned(),
            target,
            temporary,
            file_like: None,
        })
    }

    /// Gives the directory and its files the owner and the permissions of another one and of one of its files, where the system allows.
    fn like(mut self, directory: &Path, file: Option<&Path>) -> NewFileSystem {
        if let Ok(of) = fs::metadata(directory) {
            keep_owner(self.temporary.path(), &of, 0o700);
        }
        self.file_like = file.and_then(|file| fs::metadata(file).ok());
        self
    }
}

/// A new directory at `new`, which must not be inside `directory`. It gets the owner and permissions of `directory`, and its files those of
/// `file`.
pub fn new_like(directory: &Path, file: Option<&str>, new: &Path) -> Result<Box<dyn NewDirectory>> {
    let file = file.map(|name| directory.join(name));
    let created = NewFileSystem::create(new)?;
    Ok(Box::new(created.like(directory, file.as_deref())))
}

/// Gives a path the owner and the permissions of another, and at least the permissions `least`, as far as the system allows.
fn keep_owner(path: &Path, of: &Metadata, least: u32) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

        // The group is kept if only that is allowed. Changing the owner clears some bits, so permissions come last.
        if chown(path, Some(of.uid()), Some(of.gid())).is_err() {
            let _ = chown(path, None, Some(of.gid()));
        }
        let mode = of.permissions().mode() & 0o7777 | least;
        let _ = fs::set_permissions(path, PermissionsExt::from_mode(mode));
    }
    let _ = (path, of, least);
}

/// The error if something exists where the new directory should be.
pub(crate) fn taken(path: &Path) -> Error {
    let what = "the path already exists: name a new directory";
    let source = io::Error::new(io::ErrorKind::AlreadyExists, what);
    Error::io("creating a database", source).at_path(path)
}

impl NewDirectory for NewFileSystem {
    fn path(&self) -> &Path {
        &self.path
    }

    fn temporary_path(&self) -> Option<&Path> {
        Some(self.temporary.path())
    }

    fn leftovers(&self) -> Vec<PathBuf> {
        let own = self.temporary.path();
        let entries = own.parent().and_then(|parent| fs::read_dir(parent).ok());
        let is_leftover = |entry: &DirEntry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_named = name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1);
            is_named && entry.path() != own && entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        let entries = entries.into_iter().flatten().flatten().filter(is_leftover);
        let mut found: Vec<_> = entries.map(|entry| entry.path()).collect();
        found.sort();
        found
    }

    #[cfg(unix)]
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let system = rustix::fs::statvfs(self.temporary.path())?;
        Ok(Some(system.f_bavail.saturating_mul(system.f_frsize)))
    }

    #[cfg(not(unix))]
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn NewFile>> {
        let path = self.temporary.path().join(name);
        let file = File::create_new(&path)?;
        if let Some(of) = &self.file_like {
            keep_owner(&path, of, 0o600);
        }
        Ok(Box::new(file))
    }

    fn sync(&mut self) -> io::Result<()> {
        sync_directory(self.temporary.path())
    }

    fn publish(&mut self) -> io::Result<()> {
        rename_to_new(self.temporary.path(), &self.target)?;
        // It is no longer there.
        self.temporary.disable_cleanup(true);
        Ok(())
    }

    fn sync_name(&mut self) -> io::Result<()> {
        sync_directory(self.target.parent().unwrap_or(&self.target))
    }
}

/// Renames a directory, unless something has the name already: `rename` replaces an empty directory.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;

        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // The file system, or an old kernel, does not know this flag.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            renamed => return Ok(renamed?),
        }
    }
    match to.symlink_metadata() {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Reads a file from its start to its current end. It may grow meanwhile.
pub struct Sequential {
    file: Arc<dyn ReadAt>,
    offset: u64,
}

impl Sequential {
    /// From the start of the file.
    pub fn new(file: Arc<dyn ReadAt>) -> Sequential {
        Sequential { file, offset: 0 }
    }
}

impl Read for Sequential {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.file.size()?.saturating_sub(self.offset);
        let len = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let bytes = self.file.read_at(self.offset, len)?;
        self.offset += len as u64;
        if let Some(part) = buffer.get_mut(..len) {
            part.copy_from_slice(&bytes);
        }
        Ok(len)
    }
}

/// Fails, before anything is written, if a new directory has less space than needed.
pub fn check_space(target: &dyn NewDirectory, needed: u64) -> Result<()> {
    let free = target.free_bytes();
    let free = free.map_err(|error| failed("asking for free space", error, target.path()))?;
    let Some(free) = free.filter(|&free| free < needed) else {
        return Ok(());
    };
    let message = format!(
        "this takes up to {needed} bytes, and {free} are free here: free some, or name a place on another disk"
    );
    let source = io::Error::new(io::ErrorKind::StorageFull, message);
    Err(Error::io("creating a database", source).at_path(target.path()))
}
