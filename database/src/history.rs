//! All versions of a user key that files still hold.

use std::cmp::{Ordering, Reverse};
use std::iter;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::Version;
use leveltable::{BytewiseComparator, Comparator, ErrorKind, KeyRange, Result};

use crate::batch::Batch;
use crate::database::Database;
use crate::directory::{FileKind, failed, name_of};
use crate::files::FileState;
use crate::log::{LogItem, LogReader};
use crate::lookup::{Bounds, is_above, is_below};
use crate::state::State;
use crate::tables::is_not_found;

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
        self.shared.with_state(|state| {
            let order = state.order.clone().unwrap_or_else(bytewise);
            let bounds = (key.clone(), key.clone());
            self.versions(state, order, bounds)?.collect()
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
        let state = self.shared.state();
        let order = state.known_order()?.clone();
        self.versions(&state, order, bounds.key_bounds())
    }

    fn versions(
        &self,
        state: &Arc<State>,
        order: Arc<dyn Comparator>,
        bounds: Bounds,
    ) -> Result<HistoryEntries> {
        let scope = Arc::new(Scope {
            state: state.clone(),
            order,
            bounds,
        });
        let mut inputs: Vec<HistoryEntries> = Vec::new();
        for run in &state.runs {
            // The tables of a run are opened one after the other.
            let tables = state.within(run, &*scope.order, &scope.bounds).iter();
            let paths: Vec<_> = tables.map(|t| state.table_path(t.file.number)).collect();
            let scope = scope.clone();
            let entries = paths.into_iter();
            inputs.push(Box::new(entries.flat_map(move |path| {
                scope.read(&path, FileKind::Table, FileState::Live)
            })));
        }
        for file in self.files()? {
            let is_log = file.kind == FileKind::Log && file.bytes.is_some();
            if is_log || file.kind == FileKind::Table && file.listed.is_none() {
                let path = self.path().join(&file.name);
                inputs.push(scope.read(&path, file.kind, file.state));
            }
        }
        let by = scope.clone();
        let merged = inputs.into_iter().kmerge_by(move |a, b| match (a, b) {
            (Ok(a), Ok(b)) => by.compare(a, b).is_lt(),
            (a, _) => a.is_err(),
        });
        // The newest version so far of the current key, and whether there was an error.
        let (mut newer, mut has_failed) = (None, false);
        Ok(Box::new(merged.map_while(move |entry| {
            if std::mem::replace(&mut has_failed, entry.is_err()) {
                return None;
            }
            Some(entry.map(|entry| scope.compare_with_newer(entry, &mut newer)))
        })))
    }
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

    /// Finds out why a version is dead, if there is a newer one of its key: the one that came before it.
    fn compare_with_newer(
        &self,
        mut entry: HistoryEntry,
        newer: &mut Option<HistoryEntry>,
    ) -> HistoryEntry {
        if entry.state == VersionState::Live {
            if let Some(newer) = newer
                && self.order.compare(&newer.user_key, &entry.user_key).is_eq()
            {
                entry.state = match newer.version {
                    Version::Deleted => VersionState::Deleted(newer.sequence),
                    Version::Value(_) => VersionState::Overwritten(newer.sequence),
                };
            }
            *newer = Some(entry.clone());
        }
        entry
    }

    /// The wanted versions in a file. Damage ends a file that is no part of the database, and so does its removal.
    fn read(self: &Arc<Self>, path: &Path, kind: FileKind, state: FileState) -> HistoryEntries {
        let entries = match kind {
            FileKind::Table => self.table(path),
            _ => self.log(path),
        };
        let entries = entries.unwrap_or_else(|error| {
            let error = self.state.explain_missing(error, path);
            Box::new(iter::once(Err(error)))
        });
        if state == FileState::Live {
            return entries;
        }
        let goes_on = |entry: &Result<_>| match entry {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::Io && !is_not_found(error),
        };
        Box::new(entries.take_while(goes_on).map(|entry| {
            let state = VersionState::FileNotListed;
            Ok(HistoryEntry { state, ..entry? })
        }))
    }

    fn table(self: &Arc<Self>, path: &Path) -> Result<HistoryEntries> {
        let (table, other_order) = self.state.open_stored(path)?;
        let (scope, file) = (self.clone(), name_of(path));
        // Blocks know their offsets, and a walk knows the versions.
        let (mut blocks, mut offset, mut left) = (table.blocks(), 0, 0);
        let entries = table.iter().map(move |entry| {
            while left == 0
                && let Some(block) = blocks.next().transpose()?
            {
                (offset, left) = (block.offset, block.entries);
            }
            left = left.saturating_sub(1);
            let entry = entry?;
            let version = (entry.sequence, entry.version);
            Ok(HistoryEntry::new(entry.user_key, version, &file, offset))
        });
        let is_wanted = move |entry: &Result<HistoryEntry>| {
            { entry.as_ref() }.map_or(true, |entry| scope.is_wanted(&entry.user_key))
        };
        let entries = entries.filter(is_wanted);
        if other_order.is_some() {
            return Ok(self.sorted(entries.collect::<Result<_>>()?));
        }
        Ok(Box::new(entries))
    }

    fn log(self: &Arc<Self>, path: &Path) -> Result<HistoryEntries> {
        let (mut entries, file) = (Vec::new(), name_of(path));
        for item in LogReader::open(path)? {
            let item = item.map_err(|error| failed("reading the log", error, path))?;
            // Opening has said what is damaged.
            if let LogItem::Record(record) = item
                && let Ok(batch) = Batch::parse(&record.payload)
            {
                let changes = batch.changes();
                let wanted = changes.filter(|change| self.is_wanted(change.user_key));
                entries.extend(wanted.map(|change| {
                    let value = change.value.map(Bytes::copy_from_slice);
                    let version = (change.sequence, value.into());
                    let user_key = Bytes::copy_from_slice(change.user_key);
                    HistoryEntry::new(user_key, version, &file, record.offset)
                }));
            }
        }
        Ok(self.sorted(entries))
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        let (lower, upper) = &self.bounds;
        !is_below(&*self.order, key, lower) && !is_above(&*self.order, key, upper)
    }

    fn sorted(&self, mut entries: Vec<HistoryEntry>) -> HistoryEntries {
        entries.sort_by(|a, b| self.compare(a, b));
        Box::new(entries.into_iter().map(Ok))
    }
}

impl HistoryEntry {
    fn new(
        user_key: Bytes,
        (sequence, version): (u64, Version),
        file: &str,
        offset: u64,
    ) -> HistoryEntry {
        HistoryEntry {
            user_key,
            sequence,
            version,
            file: file.to_owned(),
            offset,
            state: VersionState::Live,
        }
    }
}
