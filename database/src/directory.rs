//! The files of a database's directory: their kinds, which of them count, and the MANIFEST in CURRENT.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leveltable::{Error, ErrorKind, ReadAt, Result};
use same_file::Handle;

use crate::storage::{Directory, failed};

/// Advice for a database without a table that its MANIFEST lists.
pub(crate) const REPAIR: &str =
    "`repair` of leveltable-repair makes a new database of what is left";

/// Advice for a database without a sound MANIFEST.
pub(crate) const WITHOUT_MANIFEST: &str = "open_without_manifest reads what tables and logs say";

const CHANGED: &str = "the writer has removed the file or replaced the database: try again, pin the database before, or read a copy";

/// The kind of a file of a database, from its name; see [`Database::files`](crate::Database::files).
///
/// ```
/// use leveltable_database::FileKind;
///
/// assert_eq!(FileKind::of("000005.ldb"), (FileKind::Table, Some(5)));
/// assert_eq!(FileKind::of("LOCK"), (FileKind::Other, None));
/// ```
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
    /// Anything else: `LOCK`, which a writer holds, `LOG`, a text for people, `000007.dbtmp`, and files that are not LevelDB's.
    Other,
}

impl FileKind {
    /// The kind of the file called `name`, and the number in its name, if there is one.
    pub fn of(name: &str) -> (FileKind, Option<u64>) {
        let (kind, digits) = match (name, name.strip_prefix("MANIFEST-"), name.split_once('.')) {
            ("CURRENT", ..) => return (FileKind::Current, None),
            (_, Some(digits), _) => (FileKind::Manifest, digits),
            (.., Some((digits, "log"))) => (FileKind::Log, digits),
            (.., Some((digits, "ldb" | "sst"))) => (FileKind::Table, digits),
            _ => return (FileKind::Other, None),
        };
        match digits.parse() {
            Ok(number) if !digits.starts_with('+') => (kind, Some(number)),
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

/// Names and sizes of the files in `dir`. Files that vanish meanwhile are left out.
pub(crate) fn list(dir: &dyn Directory) -> Result<BTreeMap<String, Option<u64>>> {
    let files = dir.list();
    let files = files.map_err(|error| failed("listing the directory", error, dir.path()))?;
    let file = |(name, bytes)| (name, Some(bytes));
    Ok(files.into_iter().map(file).collect())
}

/// The error of a database that changed while it was read. Ranges in progress see it, since they cannot start over; others only
/// if this happens each time they read the database again.
pub(crate) fn changed(path: &Path) -> Error {
    Error::new(ErrorKind::Replaced, CHANGED).at_path(path)
}

/// The MANIFEST that CURRENT names, held open, so that its identity is not reused.
pub(crate) struct Current {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn ReadAt>,
    handle: Option<Handle>,
}

impl PartialEq for Current {
    fn eq(&self, other: &Current) -> bool {
        (&self.path, &self.handle) == (&other.path, &other.handle)
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Current").field(&self.path).finish()
    }
}

impl Current {
    /// Reads CURRENT and opens the MANIFEST. Fails with [`ErrorKind::Replaced`] if CURRENT changed in between.
    pub(crate) fn open(dir: &dyn Directory) -> Result<Current> {
        let name = read_current(dir)?;
        let path = dir.path().join(&name);
        let held = dir.hold(&name);
        match held.and_then(|handle| Ok((handle, dir.open(&name)?))) {
            Ok((handle, file)) => Ok(Current { path, file, handle }),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("opening the MANIFEST", error, &path))
            }
            Err(_) if read_current(dir)? != name => Err(changed(dir.path())),
            Err(_) => {
                let what = format!("CURRENT names {name}, which is not there");
                Err(not_a_database(dir, &what).with_hint(WITHOUT_MANIFEST))
            }
        }
    }

    /// Whether CURRENT still names this MANIFEST, and the name still refers to this file.
    pub(crate) fn is_current(&self, dir: &dyn Directory) -> Result<bool> {
        match Current::open(dir) {
            Err(error) if error.kind() != ErrorKind::Io => Ok(false),
            named => Ok(named? == *self),
        }
    }

    /// Size of the MANIFEST, which grows.
    pub(crate) fn len(&self) -> Result<u64> {
        let len = self.file.size();
        len.map_err(|error| failed("reading the MANIFEST", error, &self.path))
    }
}

/// More bytes than any name of a MANIFEST has.
const NAME_LEN: u64 = 1000;

/// The name of the MANIFEST in CURRENT.
fn read_current(dir: &dyn Directory) -> Result<String> {
    let text = match dir.read("CURRENT", NAME_LEN) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_database(dir)?),
        read => read.map_err(|e| failed("reading CURRENT", e, &dir.path().join("CURRENT")))?,
    };
    let name = str::from_utf8(&text).ok();
    if let Some(name) = name.and_then(|text| text.strip_suffix('\n'))
        && FileKind::of(name).0 == FileKind::Manifest
    {
        return Ok(name.to_owned());
    }
    let text = text.escape_ascii();
    let what = format!("CURRENT holds \"{text}\" instead of a MANIFEST's name and a newline");
    Err(not_a_database(dir, &what).with_hint(WITHOUT_MANIFEST))
}

/// The error of a directory without CURRENT, which describes the directory.
fn no_database(dir: &dyn Directory) -> Result<Error> {
    let files = list(dir)?;
    let has = |is_wanted: fn(&String) -> bool| files.keys().any(is_wanted);
    let manifest = dir.read("MANIFEST", NAME_LEN);
    let looks_like = if files.is_empty() {
        "an empty directory"
    } else if has(|name| name.starts_with("marker.manifest.")) {
        "a database of Pebble, which names its MANIFEST in a marker file"
    } else if has(|name| name == "KEYREGISTRY" || name.ends_with(".vlog"))
        || manifest.is_ok_and(|start| start.starts_with(b"Bdgr"))
    {
        "a database of Badger"
    } else if has(|name| name.starts_with("OPTIONS-")) {
        "a database of RocksDB or Pebble without CURRENT"
    } else if has(|name| matches!(FileKind::of(name).0, FileKind::Table | FileKind::Log)) {
        let lost = not_a_database(dir, "a database that lost CURRENT");
        return Ok(lost.with_hint(WITHOUT_MANIFEST));
    } else {
        "a directory with neither CURRENT nor tables of a database"
    };
    let what = format!("not a LevelDB database, but {looks_like}");
    Ok(not_a_database(dir, &what))
}

fn not_a_database(dir: &dyn Directory, what: &str) -> Error {
    Error::new(ErrorKind::NotADatabase, what).at_path(dir.path())
}
