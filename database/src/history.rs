//! All versions of a user key that files still hold.

use std::cmp::{Ordering, Reverse};
use std::iter;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::{DbEntry, Version};
use leveltable::{BytewiseComparator, Comparator, ErrorKind, KeyRange, Result};

use crate::batch::Batch;
use crate::database::Database;
use crate::directory::{FileKind, failed, name_of};
use crate::files::FileState;
use crate::log::{LogItem, LogReader, LogRecord};
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
        // A key, why its next version is dead, and whether there was an error.
        let (mut newer, mut has_failed) = (None, false);
        Ok(Box::new(merged.map_while(move |entry| {
            if std::mem::replace(&mut has_failed, entry.is_err()) {
                return None;
            }
            Some(entry.map(|entry| scope.with_state(entry, &mut newer)))
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
    fn with_state(
        &self,
        mut entry: HistoryEntry,
        newer: &mut Option<(Bytes, VersionState)>,
    ) -> HistoryEntry {
        if entry.state == VersionState::Live {
            if let Some((key, dead)) = newer
                && self.order.compare(key, &entry.user_key).is_eq()
            {
                entry.state = *dead;
            }
            let dead = match entry.version {
                Version::Deleted => VersionState::Deleted(entry.sequence),
                Version::Value(_) => VersionState::Overwritten(entry.sequence),
            };
            *newer = Some((entry.user_key.clone(), dead));
        }
        entry
    }

    /// The wanted versions in a file. Damage ends a file that is no part of the database, and so does its removal.
    fn read(self: &Arc<Self>, path: &Path, kind: FileKind, state: FileState) -> HistoryEntries {
        let is_live = state == FileState::Live;
        let entries = match kind {
            FileKind::Table => self.table(path),
            _ => log(path).map(|entries| (entries, false)),
        };
        let (entries, is_sorted) = entries.unwrap_or_else(|error| {
            let error = self.state.explain_missing(error, path);
            (Box::new(iter::once(Err(error))), true)
        });
        let entries = entries.take_while(move |entry| match entry {
            Err(error) if !is_live => error.kind() == ErrorKind::Io && !is_not_found(error),
            _ => true,
        });
        let scope = self.clone();
        let entries = entries.filter(move |entry| {
            { entry.as_ref() }.map_or(true, |(entry, _)| scope.is_wanted(&entry.user_key))
        });
        let file = name_of(path);
        let entries = entries.map(move |entry| {
            let (entry, offset) = entry?;
            Ok(HistoryEntry {
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
        });
        if is_sorted {
            return Box::new(entries);
        }
        match entries.collect::<Result<Vec<_>>>() {
            Ok(mut entries) => {
                entries.sort_by(|a, b| self.compare(a, b));
                Box::new(entries.into_iter().map(Ok))
            }
            Err(error) => Box::new(iter::once(Err(error))),
        }
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        let (lower, upper) = &self.bounds;
        !is_below(&*self.order, key, lower) && !is_above(&*self.order, key, upper)
    }

    /// The versions in a table with the offsets of their blocks, and whether they are in the database's order.
    fn table(&self, path: &Path) -> Result<(Versions, bool)> {
        let (table, other_order) = self.state.open_stored(path)?;
        // Blocks know their offsets, and a walk knows the versions.
        let (mut blocks, mut offset, mut left) = (table.as_table().blocks(), 0, 0);
        let versions = table.iter().map(move |entry| {
            while left == 0
                && let Some(block) = blocks.next().transpose()?
            {
                (offset, left) = (block.offset, block.entries);
            }
            left = left.saturating_sub(1);
            Ok((entry?, offset))
        });
        Ok((Box::new(versions), other_order.is_none()))
    }
}

/// Versions and their offsets, as a file holds them.
type Versions = Box<dyn Iterator<Item = Result<(DbEntry, u64)>> + Send>;

/// The versions in a log with the offsets of their records.
fn log(path: &Path) -> Result<Versions> {
    let path = path.to_owned();
    let items = LogReader::open(&path)?;
    Ok(Box::new(items.flat_map(move |item| match item {
        Err(error) => vec![Err(failed("reading the log", error, &path))],
        Ok(LogItem::Record(record)) => versions(&record),
        // Opening has said what is damaged.
        Ok(LogItem::Gap(_)) => Vec::new(),
    })))
}

fn versions(record: &LogRecord) -> Vec<Result<(DbEntry, u64)>> {
    let changes = Batch::parse(&record.payload).into_iter();
    let changes = changes.flat_map(|batch| batch.changes());
    let versions = changes.map(|change| DbEntry {
        user_key: Bytes::copy_from_slice(change.user_key),
        sequence: change.sequence,
        version: change.value.map(Bytes::copy_from_slice).into(),
    });
    versions
        .map(|version| Ok((version, record.offset)))
        .collect()
}
