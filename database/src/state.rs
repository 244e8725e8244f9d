//! The state of a database at a moment: its tables by levels, and the changes in its logs. Opens tables, and looks up keys.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::{DbEntry, InternalKeyComparator, MAX_SEQUENCE};
use leveltable::sister_crates::{is_about_held, is_held};
use leveltable::{BytewiseComparator, Comparator, Compression, Corruption, DbTable, Error};
use leveltable::{ErrorKind, OpenOptions, ReadAt, Result, Section, TableCache, WriteOptions};

use crate::directory::{Current, FileKind, REPAIR, changed, file_name, list, name_of};
use crate::indexeddb::built_in_comparator;
use crate::log::{Gap, LogReader, Recovery, damage};
use crate::options::Settings;
use crate::record::{Edit, TableMetadata};
use crate::storage::{Directory, Sequential, failed};

/// Limit for the keys and values of a table that is sorted in memory, in bytes.
const MAX_SORTED_BYTES: usize = 256 << 20;

/// Tables in the order of their keys, which do not overlap: a whole level, or a single table of level 0, or of any level if the
/// order is not known.
pub(crate) type Run = Vec<Arc<ListedTable>>;

/// A table listed in the MANIFEST. Or the newest version of each key in the logs, as a table in memory with the number 0, which
/// no file has.
#[derive(Debug)]
pub(crate) struct ListedTable {
    pub(crate) level: u32,
    pub(crate) file: TableMetadata,
    /// Keeps the table open as long as the state: if it is pinned, or if all tables may be open.
    pub(crate) kept: OnceLock<DbTable>,
}

/// The bounds of a walk.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The result of all edits of a MANIFEST.
#[derive(Debug, Default)]
pub(crate) struct Version {
    /// The latest value of each field, without the tables.
    pub(crate) stated: Edit,
    /// The tables, by number.
    pub(crate) tables: BTreeMap<u64, Arc<ListedTable>>,
    /// Numbers of tables that were once listed.
    pub(crate) deleted: BTreeSet<u64>,
    /// Bytes of the MANIFEST that were read.
    pub(crate) bytes: u64,
    /// Those bytes that are not records.
    pub(crate) gaps: Vec<(String, Gap)>,
}

impl Version {
    /// Reads the MANIFEST from its start.
    pub(crate) fn read(current: &Current) -> Result<Version> {
        let (path, file) = (&*current.path, Sequential::new(current.file.clone()));
        let (mut version, mut recovery) = (Version::default(), Recovery::default());
        let (items, how) = (LogReader::new(file), (Section::Manifest, false));
        version.bytes = recovery.read(path, items, how, |record| version.apply(&record.payload))?;
        let (log, stated) = (version.stated.log_number, &version.stated);
        let numbers = [log, stated.next_file_number, stated.last_sequence];
        if numbers.contains(&None) {
            let expected = "a log number, a next file number and a last sequence number";
            let stated = numbers.iter().flatten().count();
            let found = format!("{stated} of them in {} bytes", version.bytes);
            let defect = Corruption::new(Section::Manifest, 0, expected, found);
            return Err(damage(path, defect));
        }
        version.gaps = recovery.gaps;
        Ok(version)
    }

    /// Applies an edit: deletions first, as LevelDB does.
    fn apply(&mut self, payload: &[u8]) -> Result<(), Corruption> {
        self.stated.read(payload)?;
        for (_, number) in self.stated.deleted.drain(..) {
            self.tables.remove(&number);
            self.deleted.insert(number);
        }
        for (level, file) in std::mem::take(&mut self.stated.added) {
            self.add(level, file);
        }
        Ok(())
    }

    /// Lists a table in a level.
    pub(crate) fn add(&mut self, level: u32, file: TableMetadata) {
        let (number, kept) = (file.number, OnceLock::new());
        let listed = ListedTable { level, file, kept };
        self.tables.insert(number, Arc::new(listed));
    }

    /// Whether a log's changes are not in tables yet.
    pub(crate) fn needs_log(&self, number: u64) -> bool {
        let (first, older) = (self.stated.log_number, self.stated.prev_log_number);
        number >= first.unwrap_or(0) || Some(number) == older
    }
}

/// The state of a database at a moment. Immutable; reading on makes a new one.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) dir: Arc<dyn Directory>,
    pub(crate) options: Settings,
    /// `None` if the database was opened without a MANIFEST.
    pub(crate) current: Option<Current>,
    /// The contents of the MANIFEST. Without one, the tables that are there.
    pub(crate) version: Version,
    /// The comparator's name.
    pub(crate) order_name: String,
    /// An order that distinguishes keys, if that name is not known.
    pub(crate) order: Arc<dyn Comparator>,
    /// Whether `order` is the order of that name.
    pub(crate) is_known: bool,
    /// Whether that is LevelDB's default.
    pub(crate) is_bytewise: bool,
    /// The logs, as a table in memory, then the tables from the lowest level to the highest.
    pub(crate) runs: Vec<Run>,
    pub(crate) last_sequence: u64,
    pub(crate) recovery: Recovery,
    pub(crate) open_tables: Arc<TableCache<u64, DbTable>>,
}

/// Number of attempts: these take half a second or more, since a writer may flush every few milliseconds.
const ATTEMPTS: u64 = 100;

/// Repeats `work` a bounded number of times while it fails because the database has changed meanwhile. It fails in the end only if each
/// time a log becomes a table between the reading of the MANIFEST and the opening of that log, or a compaction happens before its tables
/// are open. Open tables stay open: the sooner it tries again, the fewer are new.
pub(crate) fn retry<T>(mut work: impl FnMut(u64) -> Result<T>) -> Result<T> {
    for attempt in 1..ATTEMPTS {
        match work(attempt) {
            Err(e) if e.kind() == ErrorKind::Replaced => sleep(Duration::from_millis(attempt / 10)),
            done => return done,
        }
    }
    work(ATTEMPTS)
}

impl State {
    /// Reads the database in `dir` by its MANIFEST.
    ///
    /// Fails with [`ErrorKind::Replaced`] if the parts that were read may not fit together: a log became a table before it was open.
    pub(crate) fn read(dir: &Arc<dyn Directory>, options: &Settings) -> Result<State> {
        let current = Current::open(&**dir)?;
        // Lists the logs before it reads the MANIFEST: none that this needs at its end had been removed by then. Opens them at once,
        // since a busy writer may remove one while another is read.
        let mut logs = logs_in(&**dir)?;
        let version = Version::read(&current)?;
        let (log, last) = (version.stated.log_number.unwrap_or(0), logs.last());
        if last.is_none_or(|last| last.0 < log) {
            // The writer has begun it since, unless it is missing.
            let name = file_name(log, "log");
            if dir.exists(&name) || current.len()? != version.bytes {
                logs.push((log, None, name));
            }
        }
        let logs: Vec<_> = opened(&**dir, logs, &version).collect();
        let mut state = State::new(dir, options, version, logs, false)?;
        if !current.is_current(&**dir)? {
            return Err(changed(dir.path()));
        }
        state.current = Some(current);
        state.with_runs()
    }

    /// Reads all tables and logs in `dir`, as if they were listed.
    pub(crate) fn read_without_manifest(
        dir: &Arc<dyn Directory>,
        options: &Settings,
    ) -> Result<State> {
        let version = Version::default();
        let logs = opened(&**dir, logs_in(&**dir)?, &version);
        let mut state = State::new(dir, options, version, logs, options.skip_held)?;
        state.recovery.without_manifest = true;
        for (name, bytes) in list(&**dir)? {
            let (FileKind::Table, Some(number)) = FileKind::of(&name) else {
                let is_manifest = FileKind::of(&name).0 == FileKind::Manifest;
                if options.skip_held && is_manifest && dir.open(&name).is_err_and(|e| is_held(&e)) {
                    state.recovery.held.push(name);
                }
                continue;
            };
            let opened = state.open(number, bytes.unwrap_or(0));
            match opened.and_then(|table| describe(&table, number)) {
                Ok(Some(file)) => state.version.add(0, file),
                Ok(None) => {}
                Err(error) if options.skip_held && is_about_held(&error) => {
                    state.recovery.held.push(name);
                }
                Err(error) if options.skip_damaged => {
                    state.recovery.unreadable_tables.push((name, error));
                }
                Err(error) => return Err(error),
            }
        }
        state.with_runs()
    }

    /// Reads logs to their ends, one after another: what a log contains was written after all earlier logs. `skip_held` leaves out logs
    /// that another program holds.
    fn new(
        dir: &Arc<dyn Directory>,
        options: &Settings,
        version: Version,
        logs: impl IntoIterator<Item = (PathBuf, io::Result<Arc<dyn ReadAt>>)>,
        skip_held: bool,
    ) -> Result<State> {
        let stated = version.stated.comparator.as_deref();
        let order: Arc<dyn Comparator> = match (&options.comparator, stated) {
            (Some(given), _) => given.clone(),
            (None, stated) => stated
                .and_then(built_in_comparator)
                .unwrap_or_else(|| Arc::new(BytewiseComparator)),
        };
        let name = stated.map_or(order.name().into(), String::from_utf8_lossy);
        let is_known = order.name() == name;
        if options.comparator.is_some() && !is_known {
            let (what, given) = ("the MANIFEST names the comparator", order.name());
            let message = format!("{what} {name:?}, and the options {given:?}");
            return Err(Error::new(ErrorKind::Comparator, message).at_path(dir.path()));
        }
        let mut last_sequence = version.stated.last_sequence.unwrap_or(0);
        let (mut recovery, mut newest) = (Recovery::default(), HashMap::<Bytes, DbEntry>::new());
        for (path, file) in logs {
            let read = recovery.read_log(&path, file, options.skip_damaged, |entry, _| {
                last_sequence = last_sequence.max(entry.sequence);
                let known = newest.get(&entry.user_key);
                if known.is_none_or(|known| known.sequence <= entry.sequence) {
                    newest.insert(entry.user_key.clone(), entry);
                }
            });
            match read {
                Err(error) if skip_held && is_about_held(&error) => {
                    recovery.held.push(name_of(&path));
                }
                read => read?,
            }
        }
        let last_log = recovery.logs.last().map_or(0, |log| log.number);
        recovery.missing_log = version.stated.log_number.filter(|&log| log > last_log);
        let logged = newest_in_memory(newest.into_values().collect(), &order)?;
        let mut runs = Vec::new();
        if let Some(file) = describe(&logged, 0)? {
            let (level, kept) = (0, logged.into());
            runs.push(vec![Arc::new(ListedTable { level, file, kept })]);
        }
        Ok(State {
            dir: dir.clone(),
            options: options.clone(),
            current: None,
            runs,
            last_sequence,
            is_known,
            is_bytewise: name == BytewiseComparator.name(),
            order_name: name.into_owned(),
            version,
            order,
            recovery,
            open_tables: Arc::new(TableCache::new(options.open_tables_limit(), u64::MAX)),
        })
    }

    /// Adds the listed tables, sorted into runs. Fails if two tables overlap in a level from 1 on.
    fn with_runs(mut self) -> Result<State> {
        self.recovery.gaps.append(&mut self.version.gaps);
        let order = InternalKeyComparator::new(self.order.clone());
        let mut listed: Run = self.version.tables.values().cloned().collect();
        listed.sort_by(|a, b| order.compare(&a.file.smallest, &b.file.smallest));
        listed.sort_by_key(|table| table.level);
        for run in listed.chunk_by(|a, b| self.is_known && a.level > 0 && a.level == b.level) {
            for (a, b) in run.iter().map(|table| &table.file).tuple_windows() {
                if order.compare(&a.largest, &b.smallest).is_ge() {
                    let found = format!("{} and {}, which overlap", a.number, b.number);
                    let expected = "tables of a level that do not overlap";
                    let defect = Corruption::new(Section::Manifest, 0, expected, found);
                    let manifest = self.current.as_ref();
                    let manifest = manifest.map_or(self.dir.path(), |at| &at.path);
                    return Err(damage(manifest, defect));
                }
            }
            self.runs.push(run.to_vec());
        }
        Ok(self)
    }

    /// The order, or an error if it is not known.
    pub(crate) fn known_order(&self) -> Result<&dyn Comparator> {
        if self.is_known {
            return Ok(&*self.order);
        }
        let needed = "lookups, bounds and walks back need its comparator";
        let message = format!("the order {:?} is not known: {needed}", self.order_name);
        Err(Error::new(ErrorKind::Comparator, message).at_path(self.dir.path()))
    }

    /// Whether reading again would give the same state.
    pub(crate) fn is_up_to_date(&self) -> Result<bool> {
        let Some(current) = &self.current else {
            return Ok(true);
        };
        if !current.is_current(&*self.dir)? || current.len()? != self.version.bytes {
            return Ok(false);
        }
        let needed = logs_in(&*self.dir)?.into_iter();
        let needed = needed.filter(|log| self.version.needs_log(log.0));
        let found = needed.map(|(number, bytes, _)| (number, bytes));
        let read = self.recovery.logs.iter();
        let read = read.filter(|log| self.version.needs_log(log.number));
        Ok(found.eq(read.map(|log| (log.number, Some(log.bytes)))))
    }

    /// Where `key` lies: before the bounds (`Less`), within them, or after them.
    pub(crate) fn place(&self, key: &[u8], bounds: &Bounds) -> Ordering {
        let is_beyond = |bound: &Bound<Vec<u8>>, side: Ordering| match bound {
            Bound::Unbounded => false,
            Bound::Included(bound) => self.order.compare(key, bound) == side,
            Bound::Excluded(bound) => self.order.compare(key, bound) != side.reverse(),
        };
        match bounds {
            (lower, _) if is_beyond(lower, Ordering::Less) => Ordering::Less,
            (_, upper) if is_beyond(upper, Ordering::Greater) => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// Returns the newest version of `key`: the one in the logs and level 0 with the highest sequence number (in a repaired
    /// database, all tables are in level 0, and their numbers say nothing), or else the first in the other levels.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<DbEntry>> {
        self.known_order()?;
        let place = |end: &[u8]| self.order.compare(end, key);
        let mut newest = None;
        for table in self.runs.iter().flat_map(|run| self.within(run, place)) {
            if table.level > 0 && newest.is_some() {
                break;
            }
            let found = self.table(table)?.at(MAX_SEQUENCE).get_entry(key)?;
            newest = newer(found, newest);
        }
        Ok(newest)
    }

    /// Returns the newest versions of many keys, as [`find`](State::find) does.
    pub(crate) fn find_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<DbEntry>>> {
        self.known_order()?;
        let mut newest = vec![None; keys.len()];
        for run in &self.runs {
            // The tables to ask, by their numbers, and for which keys.
            let mut asked = BTreeMap::new();
            for (at, (key, found)) in keys.iter().zip(&newest).enumerate() {
                let place = |end: &[u8]| self.order.compare(end, key.as_ref());
                for table in self.within(run, place) {
                    if table.level == 0 || found.is_none() {
                        let (_, asked) = asked.entry(table.file.number).or_insert((table, vec![]));
                        asked.push((at, key));
                    }
                }
            }
            for (table, asked) in asked.into_values() {
                let keys: Vec<_> = asked.iter().map(|(_, key)| *key).collect();
                let found = self.table(table)?.at(MAX_SEQUENCE).get_entries(&keys)?;
                for ((at, _), found) in asked.into_iter().zip(found) {
                    if let Some(newest) = newest.get_mut(at) {
                        *newest = newer(found, newest.take());
                    }
                }
            }
        }
        Ok(newest)
    }

    /// Whether the tables of a run hold no keys outside of the ends listed in the MANIFEST.
    pub(crate) fn is_sorted(&self, run: &Run) -> bool {
        let is_leveled = run.first().is_some_and(|table| table.level > 0);
        self.is_bytewise || self.is_known && is_leveled
    }

    /// The tables of a run that may hold a key (one table, or neighbours that share the key), or keys within bounds.
    /// `place` compares a table's ends with these. A table of level 0 in another order than the database may hold keys outside of
    /// its listed ends, and so may any table if the order is not known.
    pub(crate) fn within<'r>(
        &self,
        run: &'r Run,
        place: impl Fn(&[u8]) -> Ordering,
    ) -> impl Iterator<Item = &'r Arc<ListedTable>> {
        let is_sorted = self.is_sorted(run);
        let is_before =
            |table: &ListedTable| is_sorted && place(table.file.last_user_key()).is_lt();
        let start = run.partition_point(|table| is_before(table));
        let from = run.iter().skip(start);
        from.take_while(move |table| !is_sorted || place(table.file.first_user_key()).is_le())
    }

    /// The tables of all runs that may hold keys within bounds.
    pub(crate) fn tables_within<'s>(
        &'s self,
        bounds: &'s Bounds,
    ) -> impl Iterator<Item = &'s Arc<ListedTable>> {
        let place = |end: &[u8]| self.place(end, bounds);
        let runs = self.runs.iter();
        runs.flat_map(move |run| self.within(run, place))
    }

    /// Opens a listed table, or returns it if it is open.
    ///
    /// Fails with [`ErrorKind::Replaced`] if the state is out of date: the table vanished, or its number may now belong to
    /// another table.
    pub(crate) fn table(&self, table: &ListedTable) -> Result<DbTable> {
        if let Some(kept) = table.kept.get() {
            return Ok(kept.clone());
        }
        let opened = self.open(table.file.number, table.file.size)?;
        if self.runs.iter().flatten().count() <= self.options.open_tables_limit() {
            // Another thread may have done the same.
            let _ = table.kept.set(opened.clone());
        }
        Ok(opened)
    }

    /// The name of a table, which may be from LevelDB before 1.14.
    fn table_name(&self, number: u64) -> String {
        let [modern, old] = ["ldb", "sst"].map(|end| file_name(number, end));
        let is_old = self.dir.exists(&old) && !self.dir.exists(&modern);
        if is_old { old } else { modern }
    }

    pub(crate) fn table_path(&self, number: u64) -> PathBuf {
        self.dir.path().join(self.table_name(number))
    }

    /// Opens a table of this size, unless it is open. Sorts it in memory if it is in another order than the database.
    pub(crate) fn open(&self, number: u64, size: u64) -> Result<DbTable> {
        let open = || match self.open_file(number, size, false) {
            Err(error) if error.kind() == ErrorKind::Comparator => {
                let stored = self.open_file(number, size, true)?;
                sort(&stored, &self.order)?.ok_or(error)
            }
            opened => opened,
        };
        self.open_tables.get(&number, open)
    }

    /// Opens a table of this size, to look up keys in it or to walk it as stored.
    pub(crate) fn open_file(&self, number: u64, size: u64, as_stored: bool) -> Result<DbTable> {
        let name = self.table_name(number);
        let path = self.dir.path().join(&name);
        let options = self.options.tables.clone().comparator(self.order.clone());
        // Programs without the right comparator are known to have opened databases under its name, and to have written tables
        // in bytewise order. Nobody does that to bytewise databases.
        let options = match as_stored || !self.is_known {
            true => options.stored_order(),
            false if self.is_bytewise => options,
            false => options.check_order(true),
        };
        let source = self.dir.open_table(&name);
        let opened = source.and_then(|source| options.open_db_source(source));
        // Whether or not opening succeeded, the file is the database's only if the MANIFEST is still the one that was read. A
        // writer removes a table only after writing so to the MANIFEST.
        if let Some(current) = &self.current {
            let is_gone = opened.as_ref().is_err_and(is_not_found);
            if !current.is_current(&*self.dir)? || is_gone && current.len()? != self.version.bytes {
                return Err(changed(&path));
            }
            if is_gone {
                return Err(missing(
                    &path,
                    &format!("table that {} lists", current.path.display()),
                ));
            }
        }
        let table = opened?;
        let found = table.as_table().file_bytes();
        if found != size {
            let expected = format!("a table of {size} bytes, as the MANIFEST says");
            let found_bytes = format!("{found} bytes, as in an incomplete copy of the database");
            let defect = Corruption::new(Section::Footer, found, expected, found_bytes);
            return Err(damage(&path, defect));
        }
        Ok(table)
    }
}

/// The entry that a MANIFEST would have for a table; `None` if it has no entries.
fn describe(table: &DbTable, number: u64) -> Result<Option<TableMetadata>> {
    let table = table.as_table();
    let ends = table.first()?.zip(table.last()?);
    Ok(ends.map(|((smallest, _), (largest, _))| TableMetadata {
        number,
        size: table.file_bytes(),
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
    }))
}

/// The error of a file that the database needs and lacks.
pub(crate) fn missing(path: &Path, what: &str) -> Error {
    let missing = io::Error::new(io::ErrorKind::NotFound, "no such file");
    failed(&format!("opening a {what}"), missing, path).with_hint(REPAIR)
}

/// Number, size and name of a log.
type ListedLog = (u64, Option<u64>, String);

/// The logs of a directory, in ascending order.
fn logs_in(dir: &dyn Directory) -> Result<Vec<ListedLog>> {
    let log = |(name, bytes): (String, Option<u64>)| match FileKind::of(&name) {
        (FileKind::Log, Some(number)) => Some((number, bytes, name)),
        _ => None,
    };
    Ok(list(dir)?.into_iter().filter_map(log).sorted().collect())
}

/// Opens the logs whose changes are not in tables yet, each when it is asked for.
fn opened<'d>(
    dir: &'d dyn Directory,
    mut logs: Vec<ListedLog>,
    version: &Version,
) -> impl Iterator<Item = (PathBuf, io::Result<Arc<dyn ReadAt>>)> + use<'d> {
    logs.retain(|log| version.needs_log(log.0));
    let logs = logs.into_iter();
    logs.map(|(_, _, name)| (dir.path().join(&name), dir.open(&name)))
}

/// Sorts a table in another order into a table in memory; `None` if that would take too much memory.
fn sort(table: &DbTable, order: &Arc<dyn Comparator>) -> Result<Option<DbTable>> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for entry in table.iter() {
        let entry = entry?;
        let value = entry.version.clone().into_value().unwrap_or_default();
        bytes += entry.user_key.len() + value.len();
        if bytes > MAX_SORTED_BYTES {
            return Ok(None);
        }
        entries.push(entry);
    }
    newest_in_memory(entries, order).map(Some)
}

/// Makes a table in memory with the newest version of each key.
fn newest_in_memory(mut entries: Vec<DbEntry>, order: &Arc<dyn Comparator>) -> Result<DbTable> {
    let by_key = |a: &DbEntry, b: &DbEntry| order.compare(&a.user_key, &b.user_key);
    entries.sort_by(|a, b| by_key(a, b).then(b.sequence.cmp(&a.sequence)));
    entries.dedup_by(|older, newer| by_key(older, newer).is_eq());
    let mut options = WriteOptions::new().comparator(order.clone());
    // Most lookups are for keys that are not in the logs, and end at the filter. Another order may treat different keys as
    // equal, which a filter does not.
    if order.name() != BytewiseComparator.name() {
        options = options.no_filter();
    }
    let mut builder = options.compression(Compression::None).build_db(Vec::new());
    for entry in entries {
        match entry.version.into_value() {
            Some(value) => builder.put(entry.user_key, entry.sequence, value)?,
            None => builder.delete(entry.user_key, entry.sequence)?,
        }
    }
    let (table, _) = builder.finish_into_writer()?;
    let options = OpenOptions::new().comparator(order.clone());
    options.open_db_source(table)
}

/// The version with the higher sequence number.
fn newer(found: Option<DbEntry>, newest: Option<DbEntry>) -> Option<DbEntry> {
    let both = found.into_iter().chain(newest);
    both.max_by_key(|entry| entry.sequence)
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    io::Error::from(error.clone()).kind() == io::ErrorKind::NotFound
}
