//! What a database holds at a moment: its tables by levels, and the changes in its logs.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::db::{DbEntry, InternalKeyComparator, Memtable};
use leveltable::{Comparator, DbTable, Error, ErrorKind, Result, TableCache};

use crate::database::DatabaseOptions;
use crate::directory::{CHANGED, Current, FileKind, file_name, list, replaced};
use crate::log::LogReader;
use crate::record::{TableFile, Version};
use crate::recovery::{Recovery, bad_manifest};
use crate::tables::{Listed, Run, is_not_found};

/// What a database holds at a moment. Never changes; reading on means making another.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) dir: PathBuf,
    pub(crate) options: DatabaseOptions,
    /// `None` if the database was opened without a MANIFEST.
    pub(crate) current: Option<Current>,
    /// What the MANIFEST says, without the tables.
    pub(crate) version: Version,
    /// The comparator's name.
    pub(crate) order_name: String,
    /// `None` if the order is not known.
    pub(crate) order: Option<Arc<dyn Comparator>>,
    /// From the lowest level to the highest.
    pub(crate) runs: Vec<Run>,
    /// The newest version of each user key in the logs.
    pub(crate) memtable: Memtable,
    pub(crate) last_sequence: u64,
    pub(crate) recovery: Recovery,
    pub(crate) open_tables: Arc<TableCache<u64, DbTable>>,
}

/// Does something again, a bounded number of times, while it fails because the database has changed meanwhile. A flush has to fall
/// into the same short moment each time.
pub(crate) fn retry<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    for attempt in 1..20 {
        match work() {
            Err(error) if error.kind() == ErrorKind::Replaced => {
                std::thread::sleep(Duration::from_millis(attempt));
            }
            done => return done,
        }
    }
    work()
}

impl State {
    /// Reads the database in `dir` by its MANIFEST. Open tables of `previous` are used again if its MANIFEST still is the
    /// current one.
    ///
    /// Fails with [`ErrorKind::Replaced`] if what was read may not fit together: a memtable became a table in between.
    pub(crate) fn read(
        dir: &Path,
        options: &DatabaseOptions,
        previous: Option<&State>,
    ) -> Result<State> {
        let current = Current::open(dir)?;
        let mut recovery = Recovery::default();
        let mut version = recovery.read_manifest(&current)?;
        let logs = open_logs(dir, &version)?;
        // From here on the logs are open, and stay readable. If they are still those that the MANIFEST needs, nothing that
        // was in a log before them has become a table unseen. Of compactions alone the newer result is as good.
        let mut is_same = current.is_current(dir)?;
        if is_same && current.len()? != version.bytes {
            let needed = version.first_logs();
            recovery = Recovery::default();
            version = recovery.read_manifest(&current)?;
            is_same = version.first_logs() == needed;
        }
        if !is_same {
            return Err(replaced(CHANGED, dir));
        }
        let tables = std::mem::take(&mut version.tables);
        let mut state = State::new(dir, options, version, logs, recovery)?;
        state.runs = runs(tables, state.order.as_ref(), &current.path)?;
        state.current = Some(current);
        if let Some(previous) = previous.filter(|previous| previous.current == state.current) {
            state.open_tables = previous.open_tables.clone();
        }
        Ok(state)
    }

    /// Reads all tables and logs in `dir`, as if they were listed.
    pub(crate) fn read_without_manifest(dir: &Path, options: &DatabaseOptions) -> Result<State> {
        let version = Version::default();
        let logs = open_logs(dir, &version)?;
        let mut state = State::new(dir, options, version, logs, Recovery::default())?;
        state.recovery.without_manifest = true;
        let mut tables = BTreeMap::new();
        for (name, size) in list(dir)? {
            let (FileKind::Table, Some(number)) = FileKind::of(&name) else {
                continue;
            };
            match state.describe(number, size) {
                Ok(file) => tables.extend(file.map(|file| ((0, number), file))),
                Err(error) if options.skip_damaged => {
                    state.recovery.unreadable_tables.push((name, error));
                }
                Err(error) => return Err(error),
            }
        }
        // Tables of level 0 may overlap.
        state.runs = runs(tables, None, dir)?;
        Ok(state)
    }

    /// Reads logs to their ends, one after the other: what a log shows was written after all of those before it.
    fn new(
        dir: &Path,
        options: &DatabaseOptions,
        version: Version,
        logs: Vec<(PathBuf, LogReader<File>)>,
        mut recovery: Recovery,
    ) -> Result<State> {
        let order = options.order(version.stated.comparator.as_deref());
        let (order_name, order) = order.map_err(|error| error.at_path(dir))?;
        let mut last_sequence = version.stated.last_sequence.unwrap_or(0);
        let mut newest: HashMap<Bytes, DbEntry> = HashMap::new();
        for (path, log) in logs {
            recovery.read_log(&path, log, options.skip_damaged, |change, _| {
                last_sequence = last_sequence.max(change.sequence);
                let known = newest.get(change.user_key);
                if known.is_none_or(|known| known.sequence <= change.sequence) {
                    let entry = change.to_entry();
                    newest.insert(entry.user_key.clone(), entry);
                }
            })?;
        }
        let oldest = version.stated.log_number.filter(|&log| log > 0);
        let is_missing = |log: &u64| recovery.logs.iter().all(|read| read.number < *log);
        recovery.missing_log = oldest.filter(is_missing);
        let memtable = order
            .clone()
            .map_or_else(Memtable::new, Memtable::with_comparator);
        for entry in newest.into_values() {
            memtable.add(entry.user_key, entry.sequence, entry.version);
        }
        Ok(State {
            dir: dir.to_owned(),
            options: options.clone(),
            current: None,
            runs: Vec::new(),
            last_sequence,
            version,
            memtable,
            order_name,
            order,
            recovery,
            open_tables: Arc::new(TableCache::new(options.most_open_tables(), u64::MAX)),
        })
    }

    /// What a MANIFEST would list of a table; `None` if it has no entries.
    fn describe(&self, number: u64, size: u64) -> Result<Option<TableFile>> {
        let table = self.open(number, size)?;
        let ends = table.as_table().first()?.zip(table.as_table().last()?);
        Ok(ends.map(|((smallest, _), (largest, _))| TableFile {
            number,
            size,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
        }))
    }

    /// The order, for what cannot do without it.
    pub(crate) fn known_order(&self) -> Result<&Arc<dyn Comparator>> {
        self.order.as_ref().ok_or_else(|| {
            let message = format!(
                "the database is in the order {:?}, which is not known: lookups, bounds and walks back need \
                 DatabaseOptions::comparator",
                self.order_name
            );
            Error::new(ErrorKind::Comparator, message).at_path(&self.dir)
        })
    }

    /// Whether reading again would lead to the same state.
    pub(crate) fn is_up_to_date(&self) -> Result<bool> {
        let Some(current) = &self.current else {
            return Ok(true);
        };
        if !current.is_current(&self.dir)? || current.len()? != self.version.bytes {
            return Ok(false);
        }
        let read = self.recovery.logs.iter().map(|log| (log.number, log.bytes));
        Ok(needed_logs(&self.dir, &self.version)?.into_iter().eq(read))
    }
}

/// Sorts tables into runs. Fails with two that overlap in a level from 1 on.
fn runs(
    tables: BTreeMap<(u32, u64), TableFile>,
    order: Option<&Arc<dyn Comparator>>,
    manifest: &Path,
) -> Result<Vec<Run>> {
    let listed = tables.into_iter().map(|((level, _), file)| {
        let kept = OnceLock::new();
        Arc::new(Listed { level, file, kept })
    });
    let listed: Run = listed.collect();
    let is_run = |a: &Listed, b: &Listed| order.is_some() && a.level > 0 && a.level == b.level;
    let mut runs: Vec<Run> = listed
        .chunk_by(|a, b| is_run(a, b))
        .map(<[_]>::to_vec)
        .collect();
    let Some(order) = order else {
        return Ok(runs);
    };
    let order = InternalKeyComparator::new(order.clone());
    for run in &mut runs {
        run.sort_by(|a, b| order.compare(&a.file.smallest, &b.file.smallest));
        for (a, b) in run.iter().map(|table| &table.file).tuple_windows() {
            if order.compare(&a.largest, &b.smallest).is_ge() {
                let found = format!("{} and {}, which overlap", a.number, b.number);
                let expected = "tables of a level that do not overlap";
                return Err(bad_manifest(manifest, expected, found));
            }
        }
    }
    Ok(runs)
}

/// Numbers and sizes of the logs whose changes are not in tables yet, in ascending order.
fn needed_logs(dir: &Path, version: &Version) -> Result<Vec<(u64, u64)>> {
    let number = |(name, size): (String, u64)| match FileKind::of(&name) {
        (FileKind::Log, Some(number)) if name == file_name(number, "log") => {
            version.needs_log(number).then_some((number, size))
        }
        _ => None,
    };
    let mut logs: Vec<_> = list(dir)?.into_iter().filter_map(number).collect();
    logs.sort_unstable();
    Ok(logs)
}

/// Lists the logs once, and opens those that are needed, in ascending order.
fn open_logs(dir: &Path, version: &Version) -> Result<Vec<(PathBuf, LogReader<File>)>> {
    let open = |(number, _)| {
        let path = dir.join(file_name(number, "log"));
        match LogReader::open(&path) {
            Err(error) if is_not_found(&error) => Err(replaced(CHANGED, dir)),
            opened => Ok((path, opened?)),
        }
    };
    needed_logs(dir, version)?.into_iter().map(open).collect()
}
