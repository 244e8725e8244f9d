//! The files of a database's directory, by their names.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use leveltable::{Error, ErrorKind, Result};
use same_file::Handle;

pub(crate) const WITHOUT_MANIFEST: &str = "open_without_manifest reads what tables and logs say";

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
        let number = |digits: &str| {
            let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_: &u64| are_digits)
        };
        match name {
            "CURRENT" => return (FileKind::Current, None),
            "LOCK" => return (FileKind::Lock, None),
            "LOG" | "LOG.old" => return (FileKind::InfoLog, None),
            _ => {}
        }
        let (kind, digits) = match (name.strip_prefix("MANIFEST-"), name.split_once('.')) {
            (Some(digits), _) => (FileKind::Manifest, digits),
            (_, Some((digits, "log"))) => (FileKind::Log, digits),
            (_, Some((digits, "ldb" | "sst"))) => (FileKind::Table, digits),
            (_, Some((digits, "dbtmp"))) => (FileKind::Temporary, digits),
            _ => (FileKind::Other, ""),
        };
        number(digits).map_or((FileKind::Other, None), |number| (kind, Some(number)))
    }
}

pub(crate) fn log_name(number: u64) -> String {
    format!("{number:06}.log")
}

/// The names that a table may have, the modern one first.
pub(crate) fn table_names(number: u64) -> [String; 2] {
    [format!("{number:06}.ldb"), format!("{number:06}.sst")]
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
    if cfg!(windows) && error.raw_os_error() == Some(SHARING_VIOLATION) {
        let doing = format!(
            "{doing}, which a writer has opened for itself alone, as LevelDB does on Windows; close it"
        );
        return Error::io(doing, error).at_path(path);
    }
    Error::io(doing, error).at_path(path)
}

/// Names and sizes of the files in `dir`, sorted by name. Files that vanish meanwhile are left out.
pub(crate) fn list(dir: &Path) -> Result<Vec<(String, u64)>> {
    let failed = |error| failed("listing the directory", error, dir);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Names of LevelDB's files are ASCII.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() => files.push((name, metadata.len())),
            _ => {}
        }
    }
    files.sort();
    Ok(files)
}

/// What CURRENT points to: the MANIFEST, held open, which keeps its identity from being used again.
#[derive(Debug, PartialEq)]
pub(crate) struct Current {
    pub(crate) manifest: String,
    pub(crate) path: PathBuf,
    pub(crate) handle: Handle,
}

impl Current {
    /// Reads CURRENT and opens the MANIFEST. `None` if CURRENT changed in between.
    pub(crate) fn open(dir: &Path) -> Result<Option<Current>> {
        let manifest = read_current(dir)?;
        let path = dir.join(&manifest);
        match open_file(&path).and_then(Handle::from_file) {
            Ok(handle) => Ok(Some(Current {
                manifest,
                path,
                handle,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if read_current(dir)? != manifest {
                    return Ok(None);
                }
                let what = format!("CURRENT names {manifest}, which is not there");
                Err(not_a_database(dir, &format!("{what}; {WITHOUT_MANIFEST}")))
            }
            Err(error) => Err(failed("opening the MANIFEST", error, &path)),
        }
    }

    /// Whether CURRENT still names this MANIFEST, and its name this file.
    pub(crate) fn is_same(&self, dir: &Path) -> Result<bool> {
        match read_current(dir) {
            Ok(manifest) if manifest != self.manifest => Ok(false),
            Ok(_) => {
                let named = open_file(&self.path).and_then(Handle::from_file);
                Ok(named.is_ok_and(|named| named == self.handle))
            }
            Err(error) if error.kind() == ErrorKind::NotADatabase => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Bytes of the MANIFEST, which grows.
    pub(crate) fn len(&self) -> Result<u64> {
        let metadata = self.handle.as_file().metadata();
        let metadata = metadata.map_err(|e| failed("reading the MANIFEST", e, &self.path))?;
        Ok(metadata.len())
    }
}

/// The MANIFEST that CURRENT names.
fn read_current(dir: &Path) -> Result<String> {
    /// Longer than any name of a MANIFEST.
    const MOST: u64 = 1000;
    let path = dir.join("CURRENT");
    let mut text = Vec::new();
    match open_file(&path) {
        Ok(file) => file.take(MOST).read_to_end(&mut text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_database(dir)?),
        Err(error) => Err(error),
    }
    .map_err(|error| failed("reading CURRENT", error, &path))?;
    let name = text
        .strip_suffix(b"\n")
        .and_then(|name| str::from_utf8(name).ok());
    match name.filter(|name| matches!(FileKind::of(name), (FileKind::Manifest, _))) {
        Some(name) => Ok(name.to_owned()),
        None => {
            let text = text.escape_ascii();
            let what =
                format!("CURRENT holds \"{text}\" instead of a MANIFEST's name and a newline");
            Err(not_a_database(dir, &format!("{what}; {WITHOUT_MANIFEST}")))
        }
    }
}

/// The error of a directory without CURRENT, which says what it looks like.
#[cold]
fn no_database(dir: &Path) -> Result<Error> {
    let files = list(dir)?;
    let has = |wanted: &dyn Fn(&str) -> bool| files.iter().any(|(name, _)| wanted(name));
    let has_kind = |kind| has(&|name| FileKind::of(name).0 == kind);
    let looks_like = if files.is_empty() {
        "an empty directory"
    } else if has(&|name| name.starts_with("marker.manifest.")) {
        "a database of Pebble, which names its MANIFEST in a marker file"
    } else if has(&|name| name == "KEYREGISTRY" || name.ends_with(".vlog"))
        || is_badger_manifest(&dir.join("MANIFEST"))
    {
        "a database of Badger"
    } else if has(&|name| name.starts_with("OPTIONS-")) {
        "a database of RocksDB or Pebble without CURRENT"
    } else if has_kind(FileKind::Table) || has_kind(FileKind::Log) {
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

fn is_badger_manifest(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = open_file(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"Bdgr"
}
