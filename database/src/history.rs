//! All versions of a user key that files still hold.

use std::cmp::{Ordering, Reverse};
use std::iter;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::Version;
use leveltable::{BytewiseComparator, Comparator, Error, ErrorKind, KeyRange, Result};

use crate::batch::Batch;
use crate::database::Database;
use crate::directory::{FileKind, failed};
use crate::files::FileState;
use crate::log::{LogItem, LogReader};
use crate::manifest::TableFile;
use crate::range::{Bounds, is_after, is_before};
use crate::state::{State, is_not_found};

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
        for (level, files) in state.levels.iter().enumerate() {
            let may_hold = |file: &&TableFile| scope.may_hold(level, file);
            let files = files.iter().filter(may_hold);
            let paths: Vec<_> = files.map(|file| state.table_path(file.number)).collect();
            // Tables of a sorted level are opened one after the other.
            let together = if level > 0 { paths.len() } else { 1 };
            for paths in paths.chunks(together.max(1)) {
                let (scope, paths) = (scope.clone(), paths.to_vec());
                let entries = paths.into_iter();
                let entries = entries.flat_map(move |path| scope.read(&path, Scope::table, true));
                inputs.push(Box::new(entries));
            }
        }
        for file in self.files()? {
            let read = match file.kind {
                FileKind::Table if file.listed.is_none() => Scope::table,
                FileKind::Log if file.bytes.is_some() => Scope::log,
                _ => continue,
            };
            let path = self.path().join(&file.name);
            inputs.push(scope.read(&path, read, file.state == FileState::Live));
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

    fn may_hold(&self, level: usize, file: &TableFile) -> bool {
        (self.state).may_hold(&*self.order, level, file, &self.bounds)
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        let (lower, upper) = &self.bounds;
        !is_before(&*self.order, key, lower) && !is_after(&*self.order, key, upper)
    }

    /// The wanted versions in a file.
    fn read(
        self: &Arc<Self>,
        path: &Path,
        read: impl FnOnce(&Arc<Scope>, &Path) -> Result<HistoryEntries>,
        is_listed: bool,
    ) -> HistoryEntries {
        let entries = read(self, path).unwrap_or_else(|error| {
            let error = self.state.explain_missing(error, path);
            Box::new(iter::once(Err(error)))
        });
        if is_listed {
            return entries;
        }
        let readable =
            entries.take_while(|entry| !matches!(entry, Err(error) if is_passed_over(error)));
        Box::new(readable.map(|entry| {
            let state = VersionState::FileNotListed;
            Ok(HistoryEntry { state, ..entry? })
        }))
    }

    fn table(self: &Arc<Self>, path: &Path) -> Result<HistoryEntries> {
        let (table, other_order) = self.state.table_options.open_stored(path)?;
        let (scope, file) = (self.clone(), name(path));
        // Blocks know their offsets, and a walk knows the versions.
        let (mut blocks, mut offset, mut left) = (table.blocks(), 0, 0);
        let entries = table.iter().map(move |entry| {
            let entry = entry?;
            while left == 0
                && let Some(block) = blocks.next().transpose()?
            {
                (offset, left) = (block.offset, block.entries);
            }
            left = left.saturating_sub(1);
            Ok(HistoryEntry {
                user_key: entry.user_key,
                sequence: entry.sequence,
                version: entry.version,
                file: file.clone(),
                offset,
                state: VersionState::Live,
            })
        });
        let is_wanted = move |entry: &Result<HistoryEntry>| match entry {
            Ok(entry) => scope.is_wanted(&entry.user_key),
            Err(_) => true,
        };
        let entries = entries.filter(is_wanted);
        if other_order.is_some() {
            return Ok(self.sorted(entries.collect::<Result<_>>()?));
        }
        Ok(Box::new(entries))
    }

    fn log(self: &Arc<Self>, path: &Path) -> Result<HistoryEntries> {
        let mut entries = Vec::new();
        for item in LogReader::open(path)? {
            let item = item.map_err(|error| failed("reading the log", error, path))?;
            // Opening has said what is damaged.
            let LogItem::Record(record) = item else {
                continue;
            };
            let Ok(batch) = Batch::parse(&record.payload) else {
                continue;
            };
            let changes = batch.changes();
            let wanted = changes.filter(|change| self.is_wanted(change.user_key));
            entries.extend(wanted.map(|change| HistoryEntry {
                user_key: Bytes::copy_from_slice(change.user_key),
                sequence: change.sequence,
                version: change.value.map(Bytes::copy_from_slice).into(),
                file: name(path),
                offset: record.offset,
                state: VersionState::Live,
            }));
        }
        Ok(self.sorted(entries))
    }

    fn sorted(&self, mut entries: Vec<HistoryEntry>) -> HistoryEntries {
        entries.sort_by(|a, b| self.compare(a, b));
        Box::new(entries.into_iter().map(Ok))
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Whether an error ends a file that is no part of the database: its damage, or its removal.
fn is_passed_over(error: &Error) -> bool {
    error.kind() != ErrorKind::Io || is_not_found(error)
}
