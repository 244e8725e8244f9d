//! Walks within bounds: over the live entries of a database, from both ends, and over all versions that files still
//! hold.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::iter::{self, FusedIterator, Peekable};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::{DbEntry, DbRange, InternalKeyComparator, MAX_SEQUENCE};
use leveltable::db::{ValueType, Version};
use leveltable::{Comparator, DbTable, Error, ErrorKind, Result, SortedInput, Table};
use leveltable::{TableCache, TableRun};

use self::VersionState::{Deleted, FileNotListed, Live, Overwritten};
#[cfg(doc)]
use crate::Database;
use crate::directory::{FileKind, changed, name_of};
use crate::files::files_of;
use crate::handle::Handle;
use crate::log::Recovery;
use crate::state::{Bounds, ListedTable, State, is_not_found};

/// The live entries of a database within bounds, from both ends; made by [`Database::range`] and the like.
///
/// Owns its data. Shows the database as of its first entry, regardless of later changes by a writer or a refresh. Ends after its
/// first error. An error of kind [`ErrorKind::Replaced`] means that the writer has removed a table that the range had not reached
/// yet. [`Database::pin`] prevents that on Unix. A range over at most 16 tables opens them all before its first entry, and needs no
/// pin.
///
/// As an iterator, it copies each key; [`advance`](DatabaseRange::advance) lends keys and values, in about two thirds of the time.
#[derive(Debug)]
#[must_use]
pub struct DatabaseRange {
    db: Handle,
    /// An error is then the only item.
    bounds: Result<Bounds>,
    /// Whether an entry has been requested.
    has_begun: bool,
    /// All runs, merged, whose tables are opened when the range reaches them; in an unknown order, one table after another.
    entries: Option<DbRange>,
    /// In an unknown order, the remaining tables, and the newest version of each key.
    unordered: Option<Unordered>,
}

impl DatabaseRange {
    pub(crate) fn new(db: Handle, bounds: Result<Bounds>) -> DatabaseRange {
        DatabaseRange {
            db,
            bounds,
            has_begun: false,
            entries: None,
            unordered: None,
        }
    }

    /// Takes the next entry from the front, as [`next`](Iterator::next) does. Returns `false` if none is left.
    ///
    /// The range lends the entry as [`key`](DatabaseRange::key) and [`value`](DatabaseRange::value), without a copy, until the next
    /// call that takes from the front, or the end of the range. Entries from the back are not lent.
    ///
    /// ```no_run
    /// # let db = leveltable_database::Database::open_read_only("db")?;
    /// let (mut all, mut bytes) = (db.iter(), 0);
    /// while all.advance()? {
    ///     bytes += all.key().len() + all.value().len();
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of opening and reading tables, [`ErrorKind::Replaced`], and errors of reading the database again.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        let next = |entries: &mut DbRange| Ok(entries.advance()?.then_some(()));
        Ok(self.step(false, next)?.is_some())
    }

    /// The key of the entry last taken from the front by [`advance`](DatabaseRange::advance); empty before the first, after the end of the
    /// range, and after an error.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.entries.as_ref().map_or(&[], DbRange::user_key)
    }

    /// The value of the current entry; empty when [`key`](DatabaseRange::key) is.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.entries.as_ref().map_or(&[], DbRange::value)
    }

    /// User key and sequence number of the current entry, if there is one.
    pub(crate) fn lent_version(&self) -> Option<(&[u8], u64)> {
        let entries = self.entries.as_ref()?;
        Some((entries.user_key(), entries.sequence()))
    }

    /// Takes an entry with `next`, from the back or the front. Reads the database again if a table has vanished before the first.
    fn step<T>(
        &mut self,
        back: bool,
        next: impl Fn(&mut DbRange) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let taken = match self.has_begun {
            false => self.start(back, next),
            true => self.step_on(back, next),
        };
        if !matches!(taken, Ok(Some(_))) {
            (self.entries, self.unordered) = (None, None);
        }
        taken
    }

    fn start<T>(
        &mut self,
        back: bool,
        next: impl Fn(&mut DbRange) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.has_begun = true;
        let (db, bounds) = (self.db.clone(), self.bounds.clone()?);
        db.with_state(|state| {
            let is_everything = matches!(bounds, (Bound::Unbounded, Bound::Unbounded));
            self.unordered = match state.is_known || back || !is_everything {
                true => None,
                false => Some(Unordered::new(state)?),
            };
            self.entries = match &mut self.unordered {
                Some(unordered) => unordered.next_table()?,
                None => Some(merged(state, &bounds)?),
            };
            self.step_on(back, &next)
        })
    }

    fn step_on<T>(
        &mut self,
        back: bool,
        next: impl Fn(&mut DbRange) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        while let Some(entries) = &mut self.entries {
            if let Some(unordered) = self.unordered.as_ref().filter(|_| back) {
                unordered.state.known_order()?;
            }
            while let Some(taken) = next(entries)? {
                if self.unordered.as_ref().is_none_or(|it| it.shows(entries)) {
                    return Ok(Some(taken));
                }
            }
            self.entries = match &mut self.unordered {
                Some(unordered) => unordered.next_table()?,
                None => None,
            };
        }
        Ok(None)
    }

    /// Takes an entry with `next`, to keep.
    fn take(
        &mut self,
        back: bool,
        next: fn(&mut DbRange) -> Option<Result<DbEntry>>,
    ) -> Option<Result<(Bytes, Bytes)>> {
        let taken = self.step(back, |entries| next(entries).transpose());
        let keep = |entry: DbEntry| {
            let value = entry.version.into_value().unwrap_or_default();
            (entry.user_key, value)
        };
        taken.transpose().map(|taken| taken.map(keep))
    }
}

/// The tables of a database whose order is not known, as they are stored.
#[derive(Debug)]
struct Unordered {
    state: Arc<State>,
    /// The remaining tables.
    tables: VecDeque<Arc<ListedTable>>,
    /// The newest version of each key.
    newest: HashMap<Bytes, u64>,
}

impl Unordered {
    /// Reads everything once.
    fn new(state: &Arc<State>) -> Result<Unordered> {
        let mut newest = HashMap::new();
        let tables: VecDeque<_> = state.runs.iter().flatten().cloned().collect();
        for table in &tables {
            for entry in state.table(table)?.iter() {
                let entry = entry?;
                let sequence: &mut u64 = newest.entry(entry.user_key).or_default();
                *sequence = entry.sequence.max(*sequence);
            }
        }
        Ok(Unordered {
            state: state.clone(),
            tables,
            newest,
        })
    }

    fn next_table(&mut self) -> Result<Option<DbRange>> {
        let next = self.tables.pop_front();
        next.map(|table| Ok(self.state.table(&table)?.iter()))
            .transpose()
    }

    /// Whether the version that `entry` lends is the newest of its key, and not a deletion.
    fn shows(&self, entry: &DbRange) -> bool {
        let is_newest = || self.newest.get(entry.user_key()) == Some(&entry.sequence());
        entry.value_type() == ValueType::Value && is_newest()
    }
}

/// Maximum number of tables that a range opens before its first entry, so that a writer's compaction does not end it.
const FEW_TABLES: usize = 16;

/// The newest versions of the user keys within bounds, without deleted ones.
fn merged(state: &Arc<State>, bounds: &Bounds) -> Result<DbRange> {
    state.known_order()?;
    let held: Arc<[_]> = open_few(state, bounds)?.into();
    let mut ranges = Vec::new();
    for (run, tables) in state.runs.iter().enumerate() {
        if state.is_sorted(tables) {
            let tables = ListedRun {
                state: state.clone(),
                run,
                held: held.clone(),
            };
            ranges.push(DbRange::of_run(tables, bounds.clone()));
            continue;
        }
        for table in tables {
            ranges.push(state.table(table)?.range(bounds.clone()));
        }
    }
    Ok(DbTable::merge(ranges)?.at(MAX_SEQUENCE).into_iter())
}

/// Opens the tables that may hold keys within bounds, if they are few. Returns them with their numbers.
fn open_few(state: &State, bounds: &Bounds) -> Result<Vec<(u64, DbTable)>> {
    let few = FEW_TABLES.min(state.options.open_tables_limit());
    let tables: Vec<_> = state.tables_within(bounds).take(few + 1).collect();
    if tables.len() > few {
        return Ok(Vec::new());
    }
    let opened = |table: &Arc<ListedTable>| Ok((table.file.number, state.table(table)?));
    tables.into_iter().map(opened).collect()
}

/// A run of the database's tables.
struct ListedRun {
    state: Arc<State>,
    run: usize,
    /// The tables of all runs that are already open, with their numbers.
    held: Arc<[(u64, DbTable)]>,
}

impl ListedRun {
    fn tables(&self) -> &[Arc<ListedTable>] {
        self.state.runs.get(self.run).map_or(&[], Vec::as_slice)
    }
}

impl TableRun for ListedRun {
    fn tables(&self) -> usize {
        self.tables().len()
    }

    fn keys(&self, i: usize) -> (&[u8], &[u8]) {
        let table = self.tables().get(i);
        table.map_or((&[], &[]), |table| {
            (&table.file.smallest, &table.file.largest)
        })
    }

    fn open(&self, i: usize) -> Result<Table> {
        let table = self
            .tables()
            .get(i)
            .ok_or_else(|| changed(self.state.dir.path()))?;
        let number = table.file.number;
        let held = self.held.iter().find(|(held, _)| *held == number);
        let opened = held.map_or_else(|| self.state.table(table), |(_, open)| Ok(open.clone()));
        Ok(opened?.as_table().clone())
    }

    fn comparator(&self) -> Arc<dyn Comparator> {
        Arc::new(InternalKeyComparator::new(self.state.order.clone()))
    }
}

/// Tables that may hold keys within bounds.
struct Span {
    state: Arc<State>,
    tables: Vec<Arc<ListedTable>>,
    bounds: Bounds,
}

impl Span {
    /// The tables and keys of the database within bounds.
    fn new(state: &Arc<State>, bounds: Bounds) -> Span {
        Span {
            state: state.clone(),
            tables: state.tables_within(&bounds).cloned().collect(),
            bounds,
        }
    }
}

/// Divides a database into spans, where tables begin.
fn cut(state: &Arc<State>, bounds: &Bounds) -> Result<Vec<Span>> {
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
    Ok(bounds.map(|bounds| Span::new(state, bounds)).collect())
}

impl SortedInput for DatabaseRange {
    fn advance(&mut self) -> Result<bool> {
        self.advance()
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn value(&self) -> &[u8] {
        self.value()
    }
}

impl Iterator for DatabaseRange {
    type Item = Result<(Bytes, Bytes)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.take(false, DbRange::next)
    }

    /// Goes to the last entry at once: the entries between are not read. In an unknown order, all are read.
    fn last(mut self) -> Option<Self::Item> {
        if self.db.state().is_known {
            return self.next_back();
        }
        self.fold(None, |_, entry| Some(entry))
    }
}

impl DoubleEndedIterator for DatabaseRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(true, DbRange::next_back)
    }
}

impl FusedIterator for DatabaseRange {}

/// A version of a user key that a file still holds; returned by [`Database::history`].
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

/// Whether a version is what a lookup finds; see [`HistoryEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VersionState {
    /// A lookup finds it. A live deletion hides older versions.
    Live,
    /// A later value, of this sequence number, replaced it.
    Overwritten(u64),
    /// A later deletion, of this sequence number, removed it.
    Deleted(u64),
    /// It is in a file that is not part of the database: see [`FileState`](crate::FileState).
    FileNotListed,
}

/// The result of [`Database::history`].
pub(crate) fn history(state: &Arc<State>, key: Bound<Vec<u8>>) -> Result<Vec<HistoryEntry>> {
    let span = Span::new(state, (key.clone(), key));
    History::read(state, &span.bounds)?.versions(&span)
}

/// The result of [`Database::history_range`].
pub(crate) fn history_range(state: &Arc<State>, bounds: &Bounds) -> Result<HistoryEntries> {
    let spans = cut(state, bounds)?.into_iter();
    let mut history = History::read(state, bounds)?;
    let versions = spans.map(move |span| history.versions(&span)).flatten_ok();
    Ok(Box::new(versions.take_while_inclusive(Result::is_ok)))
}

/// The files of a database that hold versions.
struct History {
    /// The changes in logs, in the order of their keys.
    logged: Peekable<vec::IntoIter<HistoryEntry>>,
    /// Numbers and sizes of tables that are not part of the database.
    unlisted: Vec<(u64, u64, VersionState)>,
    /// Opened in their stored order.
    open_tables: TableCache<u64, DbTable>,
}

impl History {
    /// Reads the changes in logs to keys within `bounds`.
    fn read(state: &State, bounds: &Bounds) -> Result<History> {
        let (mut logged, mut unlisted) = (Vec::new(), Vec::new());
        for file in files_of(state)? {
            match (file.kind, file.number, file.bytes) {
                (FileKind::Table, Some(number), Some(bytes)) if file.listed.is_none() => {
                    unlisted.push((number, bytes, FileNotListed));
                }
                (FileKind::Log, Some(number), Some(_)) => {
                    let is_live = state.version.needs_log(number);
                    let found = if is_live { Live } else { FileNotListed };
                    let path = state.dir.path().join(&file.name);
                    // Damage was reported when the database was opened.
                    Recovery::default().read_log(
                        &path,
                        state.dir.open(&file.name),
                        true,
                        |entry, offset| {
                            if state.place(&entry.user_key, bounds).is_eq() {
                                logged.push(version(entry, &path, offset, found));
                            }
                        },
                    )?;
                }
                _ => {}
            }
        }
        logged.sort_by(|a, b| state.order.compare(&a.user_key, &b.user_key));
        Ok(History {
            logged: logged.into_iter().peekable(),
            unlisted,
            open_tables: TableCache::new(state.options.open_tables_limit(), u64::MAX),
        })
    }

    /// All versions of the next span of the database, in order.
    fn versions(&mut self, span: &Span) -> Result<Vec<HistoryEntry>> {
        let (state, order) = (&span.state, &span.state.order);
        let is_in_span = |key: &[u8]| state.place(key, &span.bounds).is_eq();
        let is_logged = |version: &HistoryEntry| is_in_span(&version.user_key);
        let mut all: Vec<_> = self.logged.peeking_take_while(is_logged).collect();
        let listed = span.tables.iter().map(|table| &table.file);
        let listed = listed.map(|file| (file.number, file.size, Live));
        let tables = listed.chain(self.unlisted.iter().copied());
        // Number 0 is the table of the logs' contents.
        for (number, size, found) in tables.filter(|table| table.0 > 0) {
            let mut read = || -> Result<()> {
                // In another order, versions may be anywhere in a table.
                let as_stored = !state.is_bytewise;
                let open = || state.open_file(number, size, as_stored);
                let table = self.open_tables.get(&number, open)?;
                let mut entries = match as_stored {
                    true => table.iter(),
                    false => table.range(span.bounds.clone()),
                };
                let path = state.table_path(number);
                while let Some(entry) = entries.next().transpose()? {
                    if is_in_span(&entry.user_key) {
                        let offset = entries.block_offset();
                        all.push(version(entry, &path, offset, found));
                    }
                }
                Ok(())
            };
            // A file that is not part of the database ends at damage, or when it is removed.
            let is_passed = |e: &Error| {
                found == FileNotListed && (e.kind() != ErrorKind::Io || is_not_found(e))
            };
            read().or_else(|e| if is_passed(&e) { Ok(()) } else { Err(e) })?;
        }
        all.sort_by_key(|version| (version.state, Reverse(version.sequence)));
        all.sort_by(|a, b| order.compare(&a.user_key, &b.user_key));
        for versions in all.chunk_by_mut(|a, b| order.compare(&a.user_key, &b.user_key).is_eq()) {
            let mut state = Live;
            for version in versions.iter_mut().filter(|version| version.state == Live) {
                version.state = state;
                state = match version.version {
                    Version::Deleted => Deleted(version.sequence),
                    _ => Overwritten(version.sequence),
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
