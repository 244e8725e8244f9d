//! The files of a database's directory: what they are, which of them count, and what CURRENT names.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use leveltable::{Error, ErrorKind, Result};
use same_file::Handle;

use crate::database::Database;
use crate::record::TableFile;
use crate::state::State;

pub(crate) const WITHOUT_MANIFEST: &str = "open_without_manifest reads what tables and logs say";

const IN_USE: &str =
    ", which a writer has opened for itself alone, as LevelDB does on Windows; close it";

/// What a file of a database is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// `CURRENT`, which holds the name of the MANIFEST.
    Current,
    /// `MANIFEST-000002`: the tables, by levels.
    Manifest,
    /// `000003.log`: changes that are not in tables yet.
    Log,
    /// `000005.ldb`, or `.sst` as LevelDB before 1.14 named tables.
    Table,
    /// `LOCK`, which a writer holds.
    Lock,
    /// `LOG` and `LOG.old`, which people read.
    InfoLog,
    /// `000007.dbtmp`, which becomes CURRENT.
    Temporary,
    /// Anything else.
    Other,
}

impl FileKind {
    /// What the file called `name` is, and its number if its name has one.
    pub fn of(name: &str) -> (FileKind, Option<u64>) {
        let (kind, digits) = match (name.strip_prefix("MANIFEST-"), name.split_once('.')) {
            (Some(digits), _) => (FileKind::Manifest, digits),
            (_, Some((digits, "log"))) => (FileKind::Log, digits),
            (_, Some((digits, "ldb" | "sst"))) => (FileKind::Table, digits),
            (_, Some((digits, "dbtmp"))) => (FileKind::Temporary, digits),
            _ => (FileKind::Other, ""),
        };
        let number = digits.parse().ok();
        match (name, number) {
            ("CURRENT", _) => (FileKind::Current, None),
            ("LOCK", _) => (FileKind::Lock, None),
            ("LOG" | "LOG.old", _) => (FileKind::InfoLog, None),
            (_, Some(_)) if !digits.starts_with('+') => (kind, number),
            _ => (FileKind::Other, None),
        }
    }
}

/// The name of a log or a table.
pub(crate) fn file_name(number: u64, extension: &str) -> String {
    format!("{number:06}.{extension}")
}

/// The name of the file at `path`.
pub(crate) fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Opens a regular file for reading. (Opening a pipe would wait for its writer.)
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("this is not a regular file"));
    }
    File::open(path)
}

/// A failed operation on a path. On Windows, LevelDB's writer opens its log and its MANIFEST for itself alone.
#[cold]
pub(crate) fn failed(doing: &str, error: io::Error, path: &Path) -> Error {
    const SHARING_VIOLATION: i32 = 32;
    let is_in_use = cfg!(windows) && error.raw_os_error() == Some(SHARING_VIOLATION);
    let hint = if is_in_use { IN_USE } else { "" };
    Error::io(format!("{doing}{hint}"), error).at_path(path)
}

/// The files in `dir`, in no order. Those that vanish meanwhile are left out.
pub(crate) fn list(dir: &Path) -> Result<Vec<DatabaseFile>> {
    let failed = |error| failed("listing the directory", error, dir);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Names of LevelDB's files are ASCII.
        if let Ok(name) = entry.file_name().into_string()
            && let Ok(metadata) = fs::metadata(entry.path())
            && metadata.is_file()
        {
            files.push(DatabaseFile::new(name, Some(metadata.len())));
        }
    }
    Ok(files)
}

/// The error of a database that changed while it was read.
#[cold]
pub(crate) fn changed(dir: &Path) -> Error {
    let what = "a writer changed the database each time it was read; try again, or read a copy";
    Error::new(ErrorKind::Replaced, what).at_path(dir)
}

/// What CURRENT points to: the MANIFEST, held open, which keeps its identity from being used again.
#[derive(Debug, PartialEq)]
pub(crate) struct Current {
    pub(crate) path: PathBuf,
    pub(crate) handle: Handle,
}

impl Current {
    /// Reads CURRENT and opens the MANIFEST. Fails with [`ErrorKind::Replaced`] if CURRENT changed in between.
    pub(crate) fn open(dir: &Path) -> Result<Current> {
        let path = read_current(dir)?;
        match open_file(&path).and_then(Handle::from_file) {
            Ok(handle) => Ok(Current { path, handle }),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("opening the MANIFEST", error, &path))
            }
            Err(_) if read_current(dir)? != path => Err(changed(dir)),
            Err(_) => {
                let what = format!("CURRENT names {}, which is not there", name_of(&path));
                Err(not_a_database(dir, &format!("{what}; {WITHOUT_MANIFEST}")))
            }
        }
    }

    /// Whether CURRENT still names this MANIFEST, and its name this file.
    pub(crate) fn is_current(&self, dir: &Path) -> Result<bool> {
        match Current::open(dir) {
            Err(e) if matches!(e.kind(), ErrorKind::Replaced | ErrorKind::NotADatabase) => {
                Ok(false)
            }
            named => Ok(named? == *self),
        }
    }

    /// Bytes of the MANIFEST, which grows.
    pub(crate) fn len(&self) -> Result<u64> {
        let metadata = self.handle.as_file().metadata();
        let metadata = metadata.map_err(|e| failed("reading the MANIFEST", e, &self.path))?;
        Ok(metadata.len())
    }
}

/// The first bytes of a file: more than any name of a MANIFEST has.
fn read_start(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    open_file(path)?.take(1000).read_to_end(&mut start)?;
    Ok(start)
}

/// The path of the MANIFEST that CURRENT names.
fn read_current(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("CURRENT");
    let text = match read_start(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_database(dir)?),
        read => read.map_err(|error| failed("reading CURRENT", error, &path))?,
    };
    let name = str::from_utf8(&text).ok();
    let name = name.and_then(|text| text.strip_suffix('\n'));
    match name.filter(|name| FileKind::of(name).0 == FileKind::Manifest) {
        Some(name) => Ok(dir.join(name)),
        None => {
            let text = text.escape_ascii();
            let what = format!("CURRENT holds \"{text}\" instead of a MANIFEST's name");
            let what = format!("{what} and a newline; {WITHOUT_MANIFEST}");
            Err(not_a_database(dir, &what))
        }
    }
}

/// The error of a directory without CURRENT, which says what it looks like.
#[cold]
fn no_database(dir: &Path) -> Result<Error> {
    let files = list(dir)?;
    let has = |is_wanted: fn(&DatabaseFile) -> bool| files.iter().any(is_wanted);
    let manifest = read_start(&dir.join("MANIFEST"));
    let looks_like = if files.is_empty() {
        "an empty directory"
    } else if has(|file| file.name.starts_with("marker.manifest.")) {
        "a database of Pebble, which names its MANIFEST in a marker file"
    } else if has(|file| file.name == "KEYREGISTRY" || file.name.ends_with(".vlog"))
        || manifest.is_ok_and(|start| start.starts_with(b"Bdgr"))
    {
        "a database of Badger"
    } else if has(|file| file.name.starts_with("OPTIONS-")) {
        "a database of RocksDB or Pebble without CURRENT"
    } else if has(|file| matches!(file.kind, FileKind::Table | FileKind::Log)) {
        &format!("a database that lost CURRENT; {WITHOUT_MANIFEST}")
    } else {
        "no database: it has neither CURRENT nor tables"
    };
    let what = format!("not a LevelDB database, but {looks_like}");
    Ok(not_a_database(dir, &what))
}

#[cold]
fn not_a_database(dir: &Path, what: &str) -> Error {
    Error::new(ErrorKind::NotADatabase, what).at_path(dir)
}

/// A file of a database's directory, or one that should be there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseFile {
    /// Its name.
    pub name: String,
    /// What it is, by its name.
    pub kind: FileKind,
    /// The number in its name.
    pub number: Option<u64>,
    /// Its size in bytes; `None` if it is not there.
    pub bytes: Option<u64>,
    /// Whether it counts.
    pub state: FileState,
    /// The level, and what the MANIFEST says of the table, if it lists it.
    pub listed: Option<(u32, TableFile)>,
}

impl DatabaseFile {
    /// A file that is no part of a database yet.
    fn new(name: String, bytes: Option<u64>) -> DatabaseFile {
        let (kind, number) = FileKind::of(&name);
        DatabaseFile {
            name,
            kind,
            number,
            bytes,
            state: FileState::Aside,
            listed: None,
        }
    }
}

/// Whether a file is part of its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileState {
    /// Part of the database.
    Live,
    /// Listed, and not there.
    Missing,
    /// It was part of the database, and its contents are elsewhere now: a writer would have removed it.
    Obsolete,
    /// A table or a log that the MANIFEST does not know. LevelDB deletes such files when it opens the database.
    Orphan,
    /// No data: `LOG`, `LOCK` and the like, and files of others.
    Aside,
}

impl Database {
    /// The files of the directory as of now, and those that are listed and not there, by the MANIFEST as it was read; sorted by name.
    ///
    /// # Errors
    ///
    /// Those of listing the directory.
    pub fn files(&self) -> Result<Vec<DatabaseFile>> {
        self.state().files()
    }
}

impl State {
    /// The files of the directory, and those that are listed and not there.
    pub(crate) fn files(&self) -> Result<Vec<DatabaseFile>> {
        let mut files = list(&self.dir)?;
        let tables = self.runs.iter().flatten();
        let tables = tables.filter(|table| table.file.number > 0);
        let listed: HashMap<u64, _> = tables.map(|table| (table.file.number, table)).collect();
        let found: HashSet<_> = files.iter().map(|file| (file.kind, file.number)).collect();
        let tables = listed.keys().map(|&table| (FileKind::Table, table, "ldb"));
        let log = self.recovery.missing_log;
        for (kind, number, end) in tables.chain(log.map(|log| (FileKind::Log, log, "log"))) {
            if !found.contains(&(kind, Some(number))) {
                files.push(DatabaseFile::new(file_name(number, end), None));
            }
        }
        let current = self.current.as_ref().map(|current| name_of(&current.path));
        for file in &mut files {
            let number = file.number.unwrap_or(0);
            let table = listed.get(&number);
            let table = table.filter(|_| file.kind == FileKind::Table);
            file.listed = table.map(|table| (table.level, table.file.clone()));
            file.state = match file.kind {
                _ if file.bytes.is_none() => FileState::Missing,
                FileKind::Current => FileState::Live,
                FileKind::Manifest if current.as_ref() == Some(&file.name) => FileState::Live,
                FileKind::Table if table.is_some() => FileState::Live,
                FileKind::Table if !self.version.deleted.contains(&number) => FileState::Orphan,
                FileKind::Log if self.version.needs_log(number) => FileState::Live,
                FileKind::Manifest | FileKind::Table | FileKind::Log => FileState::Obsolete,
                _ => FileState::Aside,
            };
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }
}
