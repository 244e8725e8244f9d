//! Databases: directories that CURRENT makes one. Nothing in them is opened for writing, created or locked.

pub(crate) mod info;
pub(crate) mod records;
pub(crate) mod salvage;
pub(crate) mod verify;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use leveltable::OpenOptions;
use leveltable_database::{
    Database, DatabaseOptions, Edit, FileKind, FileState, GapKind, LogItem, LogReader,
};

use crate::failure::Failure;
use crate::output::complain;
use crate::place::is_url;

/// Returns whether `path` is a directory that says that it is a database.
pub(crate) fn is_database(path: &Path) -> bool {
    !is_url(path) && fs::symlink_metadata(path.join("CURRENT")).is_ok()
}

/// Opens the database in the directory `path`.
pub(crate) fn open(path: &Path, skip_damaged: bool) -> Result<Database, Failure> {
    Ok(options(skip_damaged).open_read_only(path)?)
}

/// Every block is read once, and some systems allow few open files.
fn options(skip_damaged: bool) -> DatabaseOptions {
    DatabaseOptions::new()
        .tables(OpenOptions::new().no_cache())
        .max_open_tables(100)
        .skip_damaged(skip_damaged)
}

/// Returns the message of an error, in which the options of the library are those of the tool.
pub(crate) fn with_remedies(message: &str) -> String {
    message
        .replace("open_without_manifest reads", "`leveltable salvage` copies")
        .replace(
            "skip_damaged reads the database",
            "`scan --skip-damaged` reads the database",
        )
        .replace("need DatabaseOptions::comparator", "need one that is known")
}

/// Says on standard error which records of logs were left out of `db` because they are damaged. Returns whether there are any.
pub(crate) fn complain_of_damage(db: &Database) -> bool {
    let recovery = db.recovery();
    let mut is_damaged = false;
    for left_out in { &recovery.gaps }
        .iter()
        .filter(|g| g.gap.kind == GapKind::Damaged)
    {
        let (path, gap) = (db.path().join(&left_out.file), &left_out.gap);
        let what = format!("{} bytes at offset {}", gap.bytes, gap.offset);
        complain("left out", &format!("{}: {what}", path.display()));
        is_damaged = true;
    }
    is_damaged
}

/// Returns the word for a file's state.
pub(crate) fn state_name(state: FileState) -> &'static str {
    match state {
        FileState::Live => "live",
        FileState::Missing => "missing",
        FileState::Obsolete => "obsolete",
        FileState::Orphan => "not listed",
        FileState::Aside => "aside",
    }
}

/// What the MANIFEST of a database says of a table that is named by itself.
pub(crate) struct Beside {
    directory: PathBuf,
    pub(crate) comparator: String,
    is_listed: bool,
}

impl Beside {
    /// Reads the MANIFEST in the directory of the table at `path`. `None` if there is none that can be read.
    pub(crate) fn of(path: &Path) -> Option<Beside> {
        let (kind, number) = kind_of(path);
        let directory = path.parent()?;
        if kind != FileKind::Table || !is_database(directory) {
            return None;
        }
        let current = fs::read_to_string(directory.join("CURRENT")).ok()?;
        let manifest = directory.join(current.trim_end());
        if kind_of(&manifest).0 != FileKind::Manifest {
            return None;
        }
        let (mut comparator, mut listed) = (None, BTreeSet::new());
        for item in LogReader::open(manifest).ok()? {
            let LogItem::Record(record) = item.ok()? else {
                continue;
            };
            let edit = Edit::parse(&record.payload).ok()?;
            comparator = edit.comparator.or(comparator);
            for (_, number) in &edit.deleted {
                listed.remove(number);
            }
            listed.extend(edit.added.iter().map(|(_, file)| file.number));
        }
        Some(Beside {
            directory: directory.to_owned(),
            comparator: String::from_utf8(comparator?).ok()?,
            is_listed: listed.contains(&number?),
        })
    }
}

/// Says on standard error, if the table at `path` is a part of a database, that it is no more.
pub(crate) fn note_part(path: &Path) {
    let Some(beside) = Beside::of(path) else {
        return;
    };
    let (path, directory) = (path.display(), beside.directory.display());
    let what = if beside.is_listed {
        "a table of the database in"
    } else {
        "a table that is not listed, or no longer, by the database in"
    };
    let hint = "newer versions may lie elsewhere: name the directory to read the database";
    complain("note", &format!("{path}: {what} {directory}: {hint}"));
}

/// Returns what a file of a database is by its name, and its number.
pub(crate) fn kind_of(path: &Path) -> (FileKind, Option<u64>) {
    let name = path.file_name().and_then(|name| name.to_str());
    FileKind::of(name.unwrap_or_default())
}
