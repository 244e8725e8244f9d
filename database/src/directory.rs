//! The files of a database's directory, by their names.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use leveltable::{Error, ErrorKind, Result};

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
            digits.parse().ok().filter(|_| are_digits)
        };
        let found = match name {
            "CURRENT" => (FileKind::Current, None),
            "LOCK" => (FileKind::Lock, None),
            "LOG" | "LOG.old" => (FileKind::InfoLog, None),
            _ => match (name.strip_prefix("MANIFEST-"), name.split_once('.')) {
                (Some(digits), _) => (FileKind::Manifest, number(digits)),
                (_, Some((digits, "log"))) => (FileKind::Log, number(digits)),
                (_, Some((digits, "ldb" | "sst"))) => (FileKind::Table, number(digits)),
                (_, Some((digits, "dbtmp"))) => (FileKind::Temporary, number(digits)),
                _ => (FileKind::Other, None),
            },
        };
        match found {
            (FileKind::Manifest | FileKind::Log | FileKind::Table | FileKind::Temporary, None) => {
                (FileKind::Other, None)
            }
            found => found,
        }
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
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) manifest: String,
    pub(crate) path: PathBuf,
    pub(crate) file: File,
}

impl Current {
    /// Reads CURRENT and opens the MANIFEST. `None` if CURRENT changed in between.
    pub(crate) fn open(dir: &Path) -> Result<Option<Current>> {
        let manifest = read_current(dir)?;
        let path = dir.join(&manifest);
        match open_file(&path) {
            Ok(file) => Ok(Some(Current {
                manifest,
                path,
                file,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if read_current(dir)? != manifest {
                    return Ok(None);
                }
                let message = format!(
                    "CURRENT names {manifest}, which is not there; open_without_manifest reads what tables and logs say"
                );
                Err(Error::new(ErrorKind::NotADatabase, message).at_path(dir))
            }
            Err(error) => Err(failed("opening the MANIFEST", error, &path)),
        }
    }

    /// Whether CURRENT still names this MANIFEST, and its name this file.
    pub(crate) fn is_same(&self, dir: &Path) -> Result<bool> {
        match read_current(dir) {
            Ok(manifest) => {
                Ok(manifest == self.manifest
                    && is_same_file(&self.file, &self.path).unwrap_or(false))
            }
            Err(error) if error.kind() == ErrorKind::NotADatabase => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether both opened the same MANIFEST.
    pub(crate) fn is_same_file(&self, other: &Current) -> bool {
        self.manifest == other.manifest && is_same_file(&self.file, &other.path).unwrap_or(false)
    }

    /// Bytes of the MANIFEST, which grows.
    pub(crate) fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|e| failed("reading the MANIFEST", e, &self.path))?;
        Ok(metadata.len())
    }
}

/// Whether `path` names the open file.
#[cfg(unix)]
fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (open, named) = (file.metadata()?, fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

/// Whether `path` names the open file, as far as its time of creation tells.
#[cfg(not(unix))]
fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, fs::metadata(path)?);
    Ok(open.created()? == named.created()?)
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
            let message = format!(
                "CURRENT holds \"{}\" instead of a MANIFEST's name and a newline; open_without_manifest reads what \
                 tables and logs say",
                text.escape_ascii()
            );
            Err(Error::new(ErrorKind::NotADatabase, message).at_path(dir))
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
        "a database that lost CURRENT; open_without_manifest reads what tables and logs say"
    } else {
        "no database: it has neither CURRENT nor tables"
    };
    let message = format!("not a LevelDB database, but {looks_like}");
    Ok(Error::new(ErrorKind::NotADatabase, message).at_path(dir))
}

fn is_badger_manifest(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = open_file(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"Bdgr"
}
