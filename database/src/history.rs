//! All versions of a user key that files still hold.

use std::cmp::{Ordering, Reverse};
use std::iter;
use std::mem;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::{DbEntry, Version};
use leveltable::{BytewiseComparator, Comparator, Error, ErrorKind, KeyRange, Result};

use crate::database::Database;
use crate::directory::{FileKind, FileState, name_of};
use crate::log::LogReader;
use crate::recovery::Recovery;
use crate::state::State;
use crate::tables::{Bounds, is_not_found, place};
use crate::walk::or_error;

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
    /// These are the versions that compactions have not dropped yet; they are no snapshots of the database. Costs as much as
    /// [`history_range`](Database::history_range).
    ///
    /// # Errors
    ///
    /// As [`history_range`](Database::history_range), but the order need not be known.
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<HistoryEntry>> {
        let key = Bound::Included(key.as_ref().to_vec());
        // Any order knows whether two keys are the same.
        let bytewise = || Arc::new(BytewiseComparator) as Arc<dyn Comparator>;
        self.with_state(|state| {
            let order = state.order.clone().unwrap_or_else(bytewise);
            versions(state, order, (key.clone(), key.clone()))?.collect()
        })
    }

    /// Returns each version of the keys within `bounds` in the directory's logs and tables: keys in order, of each the versions as
    /// by [`history`](Database::history).
    ///
    /// Reads the logs again, and every table whose keys may be within the bounds, from its beginning to its end. Holds the changes
    /// in logs in memory, and keeps a table open for each sorted level, each table of level 0 and each unlisted one. Unlisted files
    /// that are damaged are passed over.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Database::get). The iterator ends after its first error.
    pub fn history_range(&self, bounds: impl KeyRange) -> Result<HistoryEntries> {
        let state = self.state();
        let order = state.known_order()?.clone();
        versions(&state, order, bounds.key_bounds())
    }
}

fn versions(
    state: &Arc<State>,
    order: Arc<dyn Comparator>,
    bounds: Bounds,
) -> Result<HistoryEntries> {
    let scope = Arc::new(Scope {
        state: state.clone(),
        order,
        bounds,
    });
    let mut sources: Vec<HistoryEntries> = Vec::new();
    for run in &state.runs {
        let tables: Vec<_> = state.within(run, &scope.bounds).cloned().collect();
        let scope = scope.clone();
        sources.push(Box::new(tables.into_iter().flat_map(move |table| {
            let path = scope.state.table_path(table.file.number);
            or_error(scope.read_table(&path, VersionState::Live))
        })));
    }
    for file in state.files()? {
        let path = state.dir.join(&file.name);
        let found = match file.state {
            FileState::Live => VersionState::Live,
            _ => VersionState::FileNotListed,
        };
        let entries = match file.kind {
            FileKind::Log if file.bytes.is_some() => scope.read_log(&path, found),
            FileKind::Table if file.listed.is_none() => scope.read_table(&path, found),
            _ => continue,
        };
        // Damage ends a file that is no part of the database, and so does its removal.
        let is_told = move |error: &Error| {
            found == VersionState::Live || error.kind() == ErrorKind::Io && !is_not_found(error)
        };
        let entries = or_error(entries);
        sources.push(Box::new(entries.take_while(move |entry| {
            entry.as_ref().map_or_else(is_told, |_| true)
        })));
    }
    let merged = sources.into_iter().kmerge_by({
        let scope = scope.clone();
        move |a: &Result<HistoryEntry>, b: &Result<HistoryEntry>| match (a, b) {
            (Ok(a), Ok(b)) => scope.compare(a, b).is_lt(),
            (a, _) => a.is_err(),
        }
    });
    let mut has_failed = false;
    let merged = merged.take_while(move |entry| !mem::replace(&mut has_failed, entry.is_err()));
    // The last key, and why its next version is dead.
    let mut newer: Option<(Bytes, VersionState)> = None;
    Ok(Box::new(merged.map_ok(move |mut entry| {
        if entry.state == VersionState::Live {
            let dead = match entry.version {
                Version::Deleted => VersionState::Deleted(entry.sequence),
                Version::Value(_) => VersionState::Overwritten(entry.sequence),
            };
            match newer.replace((entry.user_key.clone(), dead)) {
                Some((key, dead)) if scope.order.compare(&key, &entry.user_key).is_eq() => {
                    entry.state = dead;
                }
                _ => {}
            }
        }
        entry
    })))
}

/// Which versions are wanted, and in which order.
struct Scope {
    state: Arc<State>,
    order: Arc<dyn Comparator>,
    bounds: Bounds,
}

impl Scope {
    fn compare(&self, a: &HistoryEntry, b: &HistoryEntry) -> Ordering {
        let place = |entry: &HistoryEntry| {
            let is_unlisted = entry.state == VersionState::FileNotListed;
            (is_unlisted, Reverse(entry.sequence))
        };
        let by_key = self.order.compare(&a.user_key, &b.user_key);
        by_key.then_with(|| place(a).cmp(&place(b)))
    }

    /// An entry of the file at `path`, if it is wanted.
    fn entry(
        &self,
        entry: DbEntry,
        path: &Path,
        offset: u64,
        state: VersionState,
    ) -> Option<HistoryEntry> {
        let place = place(&self.order, &entry.user_key, &self.bounds);
        place.is_eq().then(|| HistoryEntry {
            user_key: entry.user_key,
            sequence: entry.sequence,
            version: entry.version,
            file: name_of(path),
            offset,
            state,
        })
    }

    /// The wanted versions in a log, sorted.
    fn read_log(&self, path: &Path, state: VersionState) -> Result<HistoryEntries> {
        let (mut entries, log) = (Vec::new(), LogReader::open(path)?);
        // Opening the database has said what is damaged.
        Recovery::default().read_log(path, log, true, |change, offset| {
            entries.extend(self.entry(change.to_entry(), path, offset, state));
        })?;
        Ok(self.sorted(entries))
    }

    /// The wanted versions in a table, sorted.
    fn read_table(self: &Arc<Self>, path: &Path, state: VersionState) -> Result<HistoryEntries> {
        let (table, other_order) = self.state.open_stored(path)?;
        // Blocks know their offsets, and a walk knows the versions.
        let blocks = table.as_table().blocks();
        let mut offsets = blocks
            .map_ok(|block| iter::repeat_n(block.offset, block.entries as usize))
            .flatten_ok();
        let (scope, path) = (self.clone(), path.to_owned());
        let entries = table.iter().map(move |entry| {
            let offset = offsets.next().transpose()?.unwrap_or_default();
            Ok(scope.entry(entry?, &path, offset, state))
        });
        let entries = entries.flatten_ok();
        if other_order.is_none() {
            return Ok(Box::new(entries));
        }
        Ok(self.sorted(entries.collect::<Result<_>>()?))
    }

    fn sorted(&self, mut entries: Vec<HistoryEntry>) -> HistoryEntries {
        entries.sort_by(|a, b| self.compare(a, b));
        Box::new(entries.into_iter().map(Ok))
    }
}
