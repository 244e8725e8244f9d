//! Walks within bounds: the live entries of a database, from both ends, and all versions that files still hold.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::iter::{self, FlatMap, FusedIterator, Peekable};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::{DbEntry, DbRange, MAX_SEQUENCE, Version};
use leveltable::{DbTable, Error, ErrorKind, KeyRange, Result, TableCache};

use self::VersionState::{Deleted, FileNotListed, Live, Overwritten};
use crate::database::Database;
use crate::directory::{FileKind, name_of};
use crate::log::Recovery;
use crate::state::{Bounds, Listed, Run, State, is_not_found};

/// The live entries of a database within bounds, from both ends; made by [`Database::range`] and the like.
///
/// Owns what it needs. Shows the database as of its first entry, whatever a writer or a refresh does meanwhile. Ends after its first
/// error. One error is of kind [`ErrorKind::Replaced`]: the writer has removed a table that the range had not come to yet.
/// [`Database::pin`] prevents that on Unix.
#[derive(Debug)]
#[must_use]
pub struct DatabaseRange {
    db: Database,
    /// Until the first entry is asked for: the bounds, or the error that is the only item.
    bounds: Option<Result<Bounds>>,
    /// `None` before the first entry, and after the last.
    walk: Option<Walk>,
}

impl DatabaseRange {
    pub(crate) fn new(db: Database, bounds: Result<Bounds>) -> DatabaseRange {
        let (bounds, walk) = (Some(bounds), None);
        DatabaseRange { db, bounds, walk }
    }

    /// Takes an entry from an end.
    #[inline]
    fn take(&mut self, back: bool) -> Option<Result<(Bytes, Bytes)>> {
        let entry = match &mut self.walk {
            Some(walk) => walk.step(back),
            None => self.start(back).transpose(),
        };
        if !matches!(entry, Some(Ok(_))) {
            self.walk = None;
        }
        let value = |version: Version| version.into_value().unwrap_or_default();
        Some(entry?.map(|entry| (entry.user_key, value(entry.version))))
    }

    /// Takes the first entry. Reads the database again if a table has vanished since it was read.
    fn start(&mut self, back: bool) -> Result<Option<DbEntry>> {
        let Some(bounds) = self.bounds.take().transpose()? else {
            return Ok(None);
        };
        let (walk, entry) = self.db.with_state(|state| {
            let mut walk = Walk::new(state, &bounds)?;
            let entry = walk.step(back).transpose()?;
            Ok((walk, entry))
        })?;
        self.walk = Some(walk);
        Ok(entry)
    }
}

/// A walk in parts, so that tables are opened when it comes to them, and few are merged at a time.
#[derive(Debug)]
struct Walk {
    entries: FlatMap<vec::IntoIter<Part>, DbRange, fn(Part) -> DbRange>,
    /// In an order that is not known, the newest version of each key, and the error of walking back.
    newest: Option<(HashMap<Bytes, u64>, Error)>,
}

/// Tables, and the bounds within which a walk merges them.
#[derive(Debug, Clone)]
struct Part {
    state: Arc<State>,
    tables: Vec<Arc<Listed>>,
    bounds: Bounds,
}

impl Part {
    /// What the database has within bounds.
    fn new(state: &Arc<State>, runs: &[Run], bounds: Bounds) -> Part {
        let place = |end: &[u8]| state.place(end, &bounds);
        let tables = runs.iter().flat_map(|run| state.within(run, place));
        Part {
            state: state.clone(),
            tables: tables.cloned().collect(),
            bounds,
        }
    }
}

impl Walk {
    fn new(state: &Arc<State>, bounds: &Bounds) -> Result<Walk> {
        let parts = cut(state, bounds)?;
        // Reads everything once.
        let mut newest = state.known_order().err().map(|e| (HashMap::new(), e));
        if let Some((newest, _)) = &mut newest {
            for entry in parts.iter().cloned().flat_map(entries) {
                let entry = entry?;
                let sequence = newest.entry(entry.user_key).or_default();
                *sequence = entry.sequence.max(*sequence);
            }
        }
        let entries = parts.into_iter().flat_map(entries as fn(Part) -> DbRange);
        Ok(Walk { entries, newest })
    }

    /// Takes an entry from an end.
    #[inline]
    fn step(&mut self, back: bool) -> Option<Result<DbEntry>> {
        match &self.newest {
            None if back => self.entries.next_back(),
            None => self.entries.next(),
            Some((_, error)) if back => Some(Err(error.clone())),
            Some((newest, _)) => self.entries.find(|entry| {
                // Whatever is no live value is passed over.
                let Ok(entry) = entry else { return true };
                let is_newest = newest.get(&entry.user_key) == Some(&entry.sequence);
                is_newest && entry.version != Version::Deleted
            }),
        }
    }
}

/// Cuts a walk into parts: where tables begin, or in an order that is not known into tables.
fn cut(state: &Arc<State>, bounds: &Bounds) -> Result<Vec<Part>> {
    if !state.is_known && matches!(bounds, (Bound::Unbounded, Bound::Unbounded)) {
        let part = |run: &[Run]| Part::new(state, run, bounds.clone());
        return Ok(state.runs.chunks(1).map(part).collect());
    }
    let order = state.known_order()?;
    let tables = state.runs.iter().flatten();
    let starts = tables.map(|table| table.file.first_user_key());
    let starts = starts.filter(|key| state.place(key, bounds).is_eq());
    let cuts = starts.sorted_by(|a, b| order.compare(a, b));
    let cuts: Vec<_> = cuts.map(<[u8]>::to_vec).collect();
    let from = cuts.iter().cloned().map(Bound::Included);
    let to = cuts.iter().cloned().map(Bound::Excluded);
    let (lower, upper) = bounds.clone();
    let bounds = iter::once(lower).chain(from).zip(to.chain([upper]));
    let part = |bounds| Part::new(state, &state.runs, bounds);
    Ok(bounds.map(part).collect())
}

/// In an order that is not known, all versions of the part's one table; else the newest ones, deleted keys left out.
fn entries(part: Part) -> DbRange {
    let open = || -> Result<DbRange> {
        let range = |table| Ok(part.state.table(table)?.range(part.bounds.clone()));
        let ranges = part.tables.iter().map(|table| range(table));
        let mut ranges: Vec<DbRange> = ranges.collect::<Result<_>>()?;
        match part.state.is_known {
            false if ranges.len() == 1 => Ok(ranges.remove(0)),
            _ => Ok(DbTable::merge(ranges)?.at(MAX_SEQUENCE).into_iter()),
        }
    };
    open().unwrap_or_else(DbRange::of_error)
}

impl Iterator for DatabaseRange {
    type Item = Result<(Bytes, Bytes)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.take(false)
    }
}

impl DoubleEndedIterator for DatabaseRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(true)
    }
}

impl FusedIterator for DatabaseRange {}

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VersionState {
    /// A lookup finds it. A deletion that is live hides older versions.
    Live,
    /// A later value, of this sequence number, replaced it.
    Overwritten(u64),
    /// A later deletion, of this sequence number, removed it.
    Deleted(u64),
    /// It is in a file that is no part of the database: see [`FileState`](crate::FileState).
    FileNotListed,
}

impl Database {
    /// Returns each version of `key` in the directory's logs and tables, the newest first, those in files that are no part of the
    /// database last.
    ///
    /// These are the versions that compactions have not dropped yet; they are no snapshots of the database. Reads the logs again,
    /// and of tables the blocks that may hold the key; all their blocks, if the order is not bytewise.
    ///
    /// # Errors
    ///
    /// As [`history_range`](Database::history_range), but the order need not be known.
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<HistoryEntry>> {
        let key = Bound::Included(key.as_ref().to_vec());
        self.with_state(|state| {
            let part = Part::new(state, &state.runs, (key.clone(), key.clone()));
            History::read(state, &part.bounds)?.versions(&part)
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
        let bounds = bounds.key_bounds();
        let parts = cut(&state, &bounds)?.into_iter();
        let mut history = History::read(&state, &bounds)?;
        let versions = parts.map(move |part| history.versions(&part)).flatten_ok();
        Ok(Box::new(versions.take_while_inclusive(Result::is_ok)))
    }
}

/// The files of a database that hold versions.
struct History {
    /// The changes in logs, in the order of their keys.
    logged: Peekable<vec::IntoIter<HistoryEntry>>,
    /// Numbers and bytes of tables that are no part of the database.
    unlisted: Vec<(u64, u64)>,
    /// As they are stored.
    open_tables: TableCache<u64, DbTable>,
}

impl History {
    /// Reads the logs, as far as they are about keys within `bounds`.
    fn read(state: &State, bounds: &Bounds) -> Result<History> {
        let (mut logged, mut unlisted) = (Vec::new(), Vec::new());
        for file in state.files()? {
            match (file.kind, file.number, file.bytes) {
                (FileKind::Table, Some(number), Some(bytes)) if file.listed.is_none() => {
                    unlisted.push((number, bytes));
                }
                (FileKind::Log, Some(number), Some(_)) => {
                    let is_live = state.version.needs_log(number);
                    let found = if is_live { Live } else { FileNotListed };
                    let path = state.dir.join(&file.name);
                    // Opening the database has said what is damaged.
                    Recovery::default().read_log(&path, true, |entry, offset| {
                        if state.place(&entry.user_key, bounds).is_eq() {
                            logged.push(version(entry, &path, offset, found));
                        }
                    })?;
                }
                _ => {}
            }
        }
        logged.sort_by(|a, b| state.order.compare(&a.user_key, &b.user_key));
        Ok(History {
            logged: logged.into_iter().peekable(),
            unlisted,
            open_tables: TableCache::new(state.options.most_open_tables(), u64::MAX),
        })
    }

    /// All versions of the next part of the database, in order.
    fn versions(&mut self, part: &Part) -> Result<Vec<HistoryEntry>> {
        let (state, order) = (&part.state, &part.state.order);
        let is_in_part = |key: &[u8]| state.place(key, &part.bounds).is_eq();
        let is_logged = |version: &HistoryEntry| is_in_part(&version.user_key);
        let mut all: Vec<_> = self.logged.peeking_take_while(is_logged).collect();
        let listed = { part.tables.iter() }.map(|table| (table.file.number, table.file.size));
        let tables = listed.chain(self.unlisted.iter().copied());
        for (number, size) in tables.filter(|(number, _)| *number > 0) {
            let is_listed = state.version.tables.contains_key(&number);
            let found = if is_listed { Live } else { FileNotListed };
            let mut read = || -> Result<()> {
                // In another order, versions may lie anywhere in a table.
                let as_stored = !state.is_bytewise;
                let open = || state.open_file(number, size, as_stored);
                let table = self.open_tables.get(&number, open)?;
                let mut entries = match as_stored {
                    true => table.iter(),
                    false => table.range(part.bounds.clone()),
                };
                let path = state.table_path(number);
                while let Some(entry) = entries.next().transpose()? {
                    if is_in_part(&entry.user_key) {
                        all.push(version(entry, &path, entries.block_offset(), found));
                    }
                }
                Ok(())
            };
            // Damage ends a file that is no part of the database, and so does its removal.
            let is_passed =
                |e: &Error| !is_listed && (e.kind() != ErrorKind::Io || is_not_found(e));
            read().or_else(|e| if is_passed(&e) { Ok(()) } else { Err(e) })?;
        }
        all.sort_by_key(|version| (version.state, Reverse(version.sequence)));
        all.sort_by(|a, b| order.compare(&a.user_key, &b.user_key));
        for versions in all.chunk_by_mut(|a, b| order.compare(&a.user_key, &b.user_key).is_eq()) {
            let mut state = Live;
            for version in versions.iter_mut().filter(|version| version.state == Live) {
                version.state = state;
                state = match version.version {
                    Version::Value(_) => Overwritten(version.sequence),
                    Version::Deleted => Deleted(version.sequence),
                };
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
