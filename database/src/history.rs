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
use leveltable::{BytewiseComparator, Comparator, ErrorKind, KeyRange, Result};

use crate::database::Database;
use crate::directory::{FileKind, FileState, name_of};
use crate::log::LogReader;
use crate::recovery::Recovery;
use crate::state::State;
use crate::tables::{Bounds, is_not_found, is_within};

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
    let scope = Arc::new(Scope { order, bounds });
    let mut sources: Vec<HistoryEntries> = Vec::new();
    for run in &state.runs {
        let (scope, state) = (scope.clone(), state.clone());
        let tables = state.within(run, &scope.bounds).to_vec().into_iter();
        sources.push(Box::new(tables.flat_map(move |table| {
            let path = state.table_path(table.file.number);
            or_error(scope.read(&state, &path, FileKind::Table, true))
        })));
    }
    for file in state.files()? {
        let is_log = file.kind == FileKind::Log && file.bytes.is_some();
        if is_log || file.kind == FileKind::Table && file.listed.is_none() {
            let path = state.dir.join(&file.name);
            let is_live = file.state == FileState::Live;
            let entries = or_error(scope.read(state, &path, file.kind, is_live));
            // Damage ends a file that is no part of the database, and so does its removal.
            sources.push(Box::new(entries.take_while(move |entry| match entry {
                Err(error) if !is_live => error.kind() == ErrorKind::Io && !is_not_found(error),
                _ => true,
            })));
        }
    }
    let by = scope.clone();
    // The last key, and why its next version is dead.
    let mut newer: Option<(Bytes, VersionState)> = None;
    let merged = sources.into_iter().kmerge_by(move |a, b| match (a, b) {
        (Ok(a), Ok(b)) => by.compare(a, b).is_lt(),
        (a, _) => a.is_err(),
    });
    let mut has_failed = false;
    let merged = merged.take_while(move |entry| !mem::replace(&mut has_failed, entry.is_err()));
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

    /// The wanted versions in a file, sorted.
    fn read(
        self: &Arc<Self>,
        state: &State,
        path: &Path,
        kind: FileKind,
        is_live: bool,
    ) -> Result<HistoryEntries> {
        let (scope, file) = (self.clone(), name_of(path));
        let place = move |entry: DbEntry, offset| {
            let is_wanted = is_within(&scope.order, &entry.user_key, &scope.bounds);
            is_wanted.then(|| HistoryEntry {
                user_key: entry.user_key,
                sequence: entry.sequence,
                version: entry.version,
                file: file.clone(),
                offset,
                state: if is_live {
                    VersionState::Live
                } else {
                    VersionState::FileNotListed
                },
            })
        };
        let mut sorted = Vec::new();
        if kind == FileKind::Log {
            // Opening the database has said what is damaged.
            Recovery::default().read_log(
                path,
                LogReader::open(path)?,
                true,
                |change, offset| {
                    sorted.extend(place(change.to_entry(), offset));
                },
            )?;
        } else {
            let (table, other_order) = state.open_stored(path)?;
            // Blocks know their offsets, and a walk knows the versions.
            let (mut blocks, mut offset, mut left) = (table.as_table().blocks(), 0, 0);
            let placed = table.iter().map(move |entry| {
                while left == 0
                    && let Some(block) = blocks.next().transpose()?
                {
                    (offset, left) = (block.offset, block.entries);
                }
                left = left.saturating_sub(1);
                Ok(place(entry?, offset))
            });
            let wanted = placed.flatten_ok();
            if other_order.is_none() {
                return Ok(Box::new(wanted));
            }
            sorted = wanted.collect::<Result<_>>()?;
        }
        sorted.sort_by(|a, b| self.compare(a, b));
        Ok(Box::new(sorted.into_iter().map(Ok)))
    }
}

/// What was read, or the error as the only item.
fn or_error(entries: Result<HistoryEntries>) -> HistoryEntries {
    entries.unwrap_or_else(|error| Box::new(iter::once(Err(error))))
}
