//! Databases: directories with a file CURRENT. Their files are not opened for writing, created or locked.

pub(crate) mod records;
pub(crate) mod salvage;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use leveltable::OpenOptions;
use leveltable::sister_crates::is_about_held;
use leveltable_database::{
    Database, DatabaseOptions, Edit, FileKind, FileState, Gap, GapKind, HistoryEntry, LogItem,
    LogReader, VersionState,
};
use serde_json::json;

use crate::output::{complain, note};
use crate::path::{is_database, kind_of};
use crate::row::{Bounds, Row, RowSource, directed};
use crate::sort::KeyOrder;

/// Returns the options for opening databases: every block is read once, and some systems allow few open files.
pub(crate) fn options(skip_damaged: bool) -> DatabaseOptions {
    DatabaseOptions::new()
        .tables(OpenOptions::new().no_cache())
        .max_open_tables(100)
        .skip_damaged(skip_damaged)
}

/// Opens the readable part of a database while a program holds files of it. `None` if opening it fails for another reason.
pub(crate) fn open_beside(path: &Path) -> Option<Database> {
    let failed = options(true).open_read_only(path).err()?;
    if !is_about_held(&failed) {
        return None;
    }
    let beside = options(true).skip_held(true);
    beside.open_without_manifest(path).ok()
}

/// Reports on standard error which records of logs were left out of `db` because they are damaged. Returns whether there are
/// any.
pub(crate) fn complain_of_damage(db: &Database) -> bool {
    let mut gaps = db.recovery().gaps;
    gaps.retain(|(_, gap)| gap.kind == GapKind::Damaged);
    for (file, gap) in &gaps {
        let what = format!("{} bytes at offset {}", gap.bytes, gap.offset);
        complain(
            "left out",
            &format!("{}: {what}", db.path().join(file).display()),
        );
    }
    !gaps.is_empty()
}

/// The error if an option for databases is given for something else.
pub(crate) const NEEDS_DIRECTORY: &str = "--history needs a database: name its directory";

/// Returns the live entries of `db` within bounds, or all versions that its files still hold, with their places and states.
pub(crate) fn rows(
    db: &Database,
    bounds: Bounds,
    reverse: bool,
    with_history: bool,
) -> leveltable::Result<RowSource> {
    if !with_history {
        return Ok(directed(db.range(bounds), reverse));
    }
    let versions = db.history_range(bounds)?;
    if reverse {
        return Ok(directed(versions.collect::<Vec<_>>().into_iter(), true));
    }
    Ok(Box::new(versions.map(|version| version.map(Row::from))))
}

impl From<HistoryEntry> for Row {
    fn from(version: HistoryEntry) -> Row {
        let (state, by) = match version.state {
            VersionState::Live => ("live", None),
            VersionState::Overwritten(by) => ("overwritten", Some(by)),
            VersionState::Deleted(by) => ("deleted", Some(by)),
            VersionState::FileNotListed => ("file not listed", None),
        };
        Row {
            lead: vec![
                ("file", json!(version.file)),
                ("offset", json!(version.offset)),
                ("state", json!(state)),
                ("by", json!(by)),
            ],
            ..Row::of_version(version.user_key, version.sequence, version.version)
        }
    }
}

/// Returns the name of a file's state.
pub(crate) fn state_name(state: FileState) -> &'static str {
    match state {
        FileState::Live => "live",
        FileState::Missing => "missing",
        FileState::Obsolete => "obsolete",
        FileState::Orphan => "not listed",
        FileState::Aside => "aside",
    }
}

/// Returns a name for bytes of a log or MANIFEST that are not a record.
pub(crate) fn gap_name(gap: &Gap) -> &'static str {
    match gap.kind {
        _ if is_damage(gap) => "damage",
        GapKind::Zeros => "zeros",
        GapKind::Torn | GapKind::Damaged => "a record that its writer did not finish",
    }
}

/// Returns whether no crash leaves such bytes. None leaves all of a record with a wrong checksum.
pub(crate) fn is_damage(gap: &Gap) -> bool {
    gap.kind != GapKind::Zeros && !gap.is_cut
}

/// The contents of a MANIFEST: the comparator's name, and the numbers of the tables.
struct Manifest {
    comparator: String,
    tables: BTreeSet<u64>,
}

impl Manifest {
    /// Reads the MANIFEST of the database in `directory`. `None` if there is no readable one.
    fn read(directory: &Path) -> Option<Manifest> {
        let current = fs::read_to_string(directory.join("CURRENT")).ok()?;
        let path = directory.join(current.trim_end());
        if kind_of(&path).0 != FileKind::Manifest {
            return None;
        }
        let (mut comparator, mut tables) = (None, BTreeSet::new());
        for item in LogReader::open(path).ok()? {
            let LogItem::Record(record) = item.ok()? else {
                continue;
            };
            let edit = Edit::parse(&record.payload).ok()?;
            comparator = edit.comparator.or(comparator);
            for (_, number) in &edit.deleted {
                tables.remove(number);
            }
            tables.extend(edit.added.iter().map(|(_, file)| file.number));
        }
        let comparator = String::from_utf8(comparator?).ok()?;
        Some(Manifest { comparator, tables })
    }
}

/// Returns the database directory that `path` is, or that contains the file at `path`.
fn directory_of(path: &Path) -> Option<&Path> {
    if is_database(path) {
        return Some(path);
    }
    let directory = path
        .parent()
        .filter(|_| kind_of(path).0 != FileKind::Other)?;
    is_database(directory).then_some(directory)
}

/// Returns the order of the database that `path` is, or that contains the table or log at `path`, if its MANIFEST names a known
/// one.
pub(crate) fn order_beside(path: &Path) -> Option<KeyOrder> {
    KeyOrder::of_database(&Manifest::read(directory_of(path)?)?.comparator)
}

/// If the table at `path` is a part of a database, says so on standard error.
pub(crate) fn note_part(path: &Path) {
    if let (FileKind::Table, Some(number)) = kind_of(path)
        && let Some(directory) = directory_of(path)
        && let Some(manifest) = Manifest::read(directory)
    {
        let what = if manifest.tables.contains(&number) {
            "a table of the database in"
        } else {
            "a table that is not listed, or no longer, by the database in"
        };
        let directory = directory.display();
        let hint = "newer versions may lie elsewhere: name the directory to read the database";
        note(path, format!("{what} {directory}: {hint}"));
    }
}
