//! All versions of a user key that files still hold.

use std::cmp::Reverse;
use std::mem;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::{DbEntry, Version};
use leveltable::{ErrorKind, KeyRange, Result};

use crate::database::Database;
use crate::directory::{FileKind, FileState, name_of};
use crate::recovery::Recovery;
use crate::state::{State, open_log};
use crate::tables::is_not_found;
use crate::walk::{Part, cut};

/// A version of a user key that a file still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// The key as the database's user knows it.
    pub user_key: Bytes,
    /// When it was written: larger is later.
    pub sequence: u64,
    /// What was written.
    pub version: Version,
    /// The file's name.
    pub file: String,
    /// Offset in the file: of the record in a log, of the block in a table.
    pub offset: u64,
    /// Whether it counts, and why not.
    pub state: VersionState,
}

/// Versions of user keys; made by [`Database::history_range`].
pub type HistoryEntries = Box<dyn Iterator<Item = Result<HistoryEntry>> + Send>;

/// Whether a version is what a lookup finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VersionState {
    /// A lookup finds it. A deletion that is live hides older versions.
    Live,
    /// A later value, of this sequence number, replaced it.
    Overwritten(u64),
    /// A later deletion, of this sequence number, removed it.
    Deleted(u64),
    /// It is in a file that is no part of the database: see [`FileState`].
    FileNotListed,
}

impl Database {
    /// Returns each version of `key` in the directory's logs and tables, the newest first, those in files that are no part of the
    /// database last.
    ///
    /// These are the versions that compactions have not dropped yet; they are no snapshots of the database. Reads the logs again,
    /// and of tables the blocks that may hold the key.
    ///
    /// # Errors
    ///
    /// As [`history_range`](Database::history_range), but the order need not be known.
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<HistoryEntry>> {
        let key = Bound::Included(key.as_ref().to_vec());
        self.with_state(|state| {
            let part = Part::new(state, (key.clone(), key.clone()));
            Unlisted::read(state)?.history(&part)
        })
    }

    /// Returns each version of the keys within `bounds` in the directory's logs and tables: keys in order, of each the versions as
    /// by [`history`](Database::history).
    ///
    /// Reads the logs again. Holds their changes in memory, and the versions up to where the next table begins. Unlisted files that
    /// are damaged are passed over.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Database::get). The iterator ends after its first error.
    pub fn history_range(&self, bounds: impl KeyRange) -> Result<HistoryEntries> {
        let state = self.state();
        state.known_order()?;
        let parts = cut(&state, &bounds.key_bounds())?.into_iter();
        let unlisted = Unlisted::read(&state)?;
        let mut has_failed = false;
        let versions = parts.map(move |part| unlisted.history(&part)).flatten_ok();
        Ok(Box::new(versions.take_while(move |version| {
            !mem::replace(&mut has_failed, version.is_err())
        })))
    }
}

/// What holds versions beside the listed tables.
struct Unlisted {
    /// All changes in logs, in the order of their keys.
    logged: Vec<HistoryEntry>,
    tables: Vec<PathBuf>,
}

impl Unlisted {
    fn read(state: &State) -> Result<Unlisted> {
        let (mut logged, mut tables) = (Vec::new(), Vec::new());
        for file in state.files()? {
            if file.kind == FileKind::Table && file.listed.is_none() {
                tables.push(state.dir.join(&file.name));
            } else if file.kind == FileKind::Log && file.bytes.is_some() {
                let found = match file.state {
                    FileState::Live => VersionState::Live,
                    _ => VersionState::FileNotListed,
                };
                let (path, log) = open_log(&state.dir, &file.name)?;
                // Opening the database has said what is damaged.
                Recovery::default().read_log(&path, log, true, |change, offset| {
                    logged.push(version(change.to_entry(), &path, offset, found));
                })?;
            }
        }
        logged.sort_by(|a, b| state.order.compare(&a.user_key, &b.user_key));
        Ok(Unlisted { logged, tables })
    }

    /// All versions of a part of the database, in order.
    fn history(&self, part: &Part) -> Result<Vec<HistoryEntry>> {
        let (state, order) = (&part.state, &part.state.order);
        let place = |version: &HistoryEntry| part.place(&version.user_key);
        let start = self
            .logged
            .partition_point(|version| place(version).is_lt());
        let logged = self.logged.iter().skip(start);
        let logged = logged.take_while(|version| place(version).is_eq());
        let mut all: Vec<_> = logged.cloned().collect();
        for table in part.tables.iter().filter(|table| table.file.number > 0) {
            let path = state.table_path(table.file.number);
            read_table(part, &path, VersionState::Live, &mut all)?;
        }
        for path in &self.tables {
            // Damage ends a file that is no part of the database, and so does its removal.
            if let Err(error) = read_table(part, path, VersionState::FileNotListed, &mut all)
                && error.kind() == ErrorKind::Io
                && !is_not_found(&error)
            {
                return Err(error);
            }
        }
        all.sort_by_key(|version| {
            let is_unlisted = version.state == VersionState::FileNotListed;
            (is_unlisted, Reverse(version.sequence))
        });
        all.sort_by(|a, b| order.compare(&a.user_key, &b.user_key));
        // The last key, and why its next version is dead.
        let mut newer: Option<(Bytes, VersionState)> = None;
        for version in &mut all {
            let dead = match (version.state, &version.version) {
                (VersionState::Live, Version::Deleted) => VersionState::Deleted(version.sequence),
                (VersionState::Live, _) => VersionState::Overwritten(version.sequence),
                _ => continue,
            };
            if let Some((key, dead)) = newer.replace((version.user_key.clone(), dead))
                && order.compare(&key, &version.user_key).is_eq()
            {
                version.state = dead;
            }
        }
        Ok(all)
    }
}

fn version(entry: DbEntry, path: &Path, offset: u64, state: VersionState) -> HistoryEntry {
    HistoryEntry {
        user_key: entry.user_key,
        sequence: entry.sequence,
        version: entry.version,
        file: name_of(path),
        offset,
        state,
    }
}

/// Adds the versions that a table has of a part.
fn read_table(
    part: &Part,
    path: &Path,
    found: VersionState,
    all: &mut Vec<HistoryEntry>,
) -> Result<()> {
    let (table, other_order) = part.state.open_stored(path)?;
    let mut entries = match other_order {
        None if part.state.has_known_order() => table.range(part.bounds.clone()),
        // They may lie anywhere in it.
        _ => table.iter(),
    };
    while let Some(entry) = entries.next().transpose()? {
        if part.place(&entry.user_key).is_eq() {
            all.push(version(entry, path, entries.block_offset(), found));
        }
    }
    Ok(())
}
