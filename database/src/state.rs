//! What a database holds at a moment: its tables by levels, and the changes in its logs.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use itertools::Itertools as _;
use leveltable::TableCache;
use leveltable::db::{DbEntry, InternalKeyComparator};
use leveltable::{Comparator, DbTable, Error, ErrorKind, Result, Section};

use crate::database::DatabaseOptions;
use crate::directory::{Current, DatabaseFile, FileKind, changed, list};
use crate::log::LogReader;
use crate::record::{TableFile, Version};
use crate::recovery::{Recovery, damage, read_manifest};
use crate::tables::{Listed, Run, is_not_found, newest_in_memory};

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
    /// Of another name if the order is not known; it then tells keys apart.
    pub(crate) order: Arc<dyn Comparator>,
    /// The logs, as a table in memory, and the tables from the lowest level to the highest.
    pub(crate) runs: Vec<Run>,
    pub(crate) last_sequence: u64,
    pub(crate) recovery: Recovery,
    pub(crate) open_tables: Arc<TableCache<u64, DbTable>>,
}

/// Does something again, a bounded number of times, while it fails because the database has changed meanwhile. A flush has to fall
/// into the same short moment each time.
pub(crate) fn retry<T>(mut work: impl FnMut(u64) -> Result<T>) -> Result<T> {
    for attempt in 1..20 {
        match work(attempt) {
            Err(error) if error.kind() == ErrorKind::Replaced => {
                std::thread::sleep(Duration::from_millis(attempt));
            }
            done => return done,
        }
    }
    work(20)
}

impl State {
    /// Reads the database in `dir` by its MANIFEST.
    ///
    /// Fails with [`ErrorKind::Replaced`] if what was read may not fit together: a memtable became a table in between.
    pub(crate) fn read(dir: &Path, options: &DatabaseOptions) -> Result<State> {
        let current = Current::open(dir)?;
        let (mut version, mut recovery) = read_manifest(&current)?;
        let (logs, needed) = (open_logs(dir, &version)?, version.first_logs());
        // From here on the logs are open, and stay readable. If they are still those that the MANIFEST needs, nothing that
        // was in a log before them has become a table unseen. Of compactions alone the newer result is as good.
        let is_current = current.is_current(dir)?;
        if is_current && current.len()? != version.bytes {
            (version, recovery) = read_manifest(&current)?;
        }
        if !is_current || version.first_logs() != needed {
            return Err(changed(dir));
        }
        let mut state = State::new(dir, options, version, logs, recovery)?;
        state.current = Some(current);
        state.add_runs()?;
        Ok(state)
    }

    /// Reads all tables and logs in `dir`, as if they were listed.
    pub(crate) fn read_without_manifest(dir: &Path, options: &DatabaseOptions) -> Result<State> {
        let version = Version::default();
        let logs = open_logs(dir, &version)?;
        let mut state = State::new(dir, options, version, logs, Recovery::default())?;
        state.recovery.without_manifest = true;
        for file in list(dir)? {
            let (FileKind::Table, Some(number), Some(size)) = (file.kind, file.number, file.bytes)
            else {
                continue;
            };
            let opened = state.open(number, size);
            match opened.and_then(|table| describe(&table, number)) {
                Ok(described) => {
                    let listed = described.map(|file| ((0, number), file));
                    state.version.tables.extend(listed);
                }
                Err(error) if options.skip_damaged => {
                    state.recovery.unreadable_tables.push((file.name, error));
                }
                Err(error) => return Err(error),
            }
        }
        state.add_runs()?;
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
        let stated = version.stated.comparator.as_deref();
        let (order_name, order) = options.order(dir, stated)?;
        let mut last_sequence = version.stated.last_sequence.unwrap_or(0);
        let mut newest: HashMap<Bytes, DbEntry> = HashMap::new();
        for (path, log) in logs {
            recovery.read_log(&path, log, options.skip_damaged, |change, _| {
                last_sequence = last_sequence.max(change.sequence);
                let entry = change.to_entry();
                let known = newest.get(&entry.user_key);
                if known.is_none_or(|known| known.sequence <= entry.sequence) {
                    newest.insert(entry.user_key.clone(), entry);
                }
            })?;
        }
        let oldest = version.stated.log_number.filter(|&log| log > 0);
        let is_missing = |log: &u64| recovery.logs.iter().all(|read| read.number < *log);
        recovery.missing_log = oldest.filter(is_missing);
        let logged = newest_in_memory(newest.into_values().collect(), &order)?;
        let logged = describe(&logged, 0)?.map(|file| Listed {
            level: 0,
            file,
            kept: logged.into(),
        });
        Ok(State {
            dir: dir.to_owned(),
            options: options.clone(),
            current: None,
            runs: vec![logged.map(Arc::new).into_iter().collect()],
            last_sequence,
            version,
            order_name,
            order,
            recovery,
            open_tables: Arc::new(TableCache::new(options.most_open_tables(), u64::MAX)),
        })
    }

    pub(crate) fn has_known_order(&self) -> bool {
        self.order.name() == self.order_name
    }

    /// The order, for what cannot do without it.
    pub(crate) fn known_order(&self) -> Result<&dyn Comparator> {
        if self.has_known_order() {
            return Ok(&*self.order);
        }
        let needed = "lookups, bounds and walks back need DatabaseOptions::comparator";
        let (order, known) = (&self.order_name, "which is not known");
        let message = format!("the database is in the order {order:?}, {known}: {needed}");
        Err(Error::new(ErrorKind::Comparator, message).at_path(&self.dir))
    }

    /// Sorts tables into runs. Fails with two that overlap in a level from 1 on.
    fn add_runs(&mut self) -> Result<()> {
        let tables = std::mem::take(&mut self.version.tables);
        let order = InternalKeyComparator::new(self.order.clone());
        let is_known = self.has_known_order();
        let listed = tables.into_iter().map(|((level, _), file)| {
            let kept = OnceLock::new();
            Arc::new(Listed { level, file, kept })
        });
        let listed: Run = listed.collect();
        for run in listed.chunk_by(|a, b| is_known && a.level > 0 && a.level == b.level) {
            let mut run = run.to_vec();
            run.sort_by(|a, b| order.compare(&a.file.smallest, &b.file.smallest));
            for (a, b) in run.iter().map(|table| &table.file).tuple_windows() {
                if order.compare(&a.largest, &b.smallest).is_ge() {
                    let found = format!("{} and {}, which overlap", a.number, b.number);
                    let expected = "tables of a level that do not overlap";
                    let manifest = self.current.as_ref().map_or(&self.dir, |at| &at.path);
                    return Err(damage(manifest, Section::Manifest, 0, expected, found));
                }
            }
            self.runs.push(run);
        }
        Ok(())
    }

    /// Whether reading again would lead to the same state.
    pub(crate) fn is_up_to_date(&self) -> Result<bool> {
        let Some(current) = &self.current else {
            return Ok(true);
        };
        if !current.is_current(&self.dir)? || current.len()? != self.version.bytes {
            return Ok(false);
        }
        let logs = needed_logs(&self.dir, &self.version)?;
        let found = logs.iter().map(|log| (log.number, log.bytes));
        let read = self.recovery.logs.iter();
        Ok(found.eq(read.map(|log| (Some(log.number), Some(log.bytes)))))
    }
}

/// What a MANIFEST would list of a table; `None` if it has no entries.
fn describe(table: &DbTable, number: u64) -> Result<Option<TableFile>> {
    let table = table.as_table();
    let ends = table.first()?.zip(table.last()?);
    Ok(ends.map(|((smallest, _), (largest, _))| TableFile {
        number,
        size: table.file_bytes(),
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
    }))
}

/// The logs whose changes are not in tables yet, in ascending order.
fn needed_logs(dir: &Path, version: &Version) -> Result<Vec<DatabaseFile>> {
    let is_needed = |number| version.needs_log(number);
    let mut logs = list(dir)?;
    logs.retain(|file| file.kind == FileKind::Log && file.number.is_some_and(is_needed));
    logs.sort_by_key(|log| log.number);
    Ok(logs)
}

/// Lists the logs once, and opens those that are needed, in ascending order.
fn open_logs(dir: &Path, version: &Version) -> Result<Vec<(PathBuf, LogReader<File>)>> {
    let logs = needed_logs(dir, version)?.into_iter();
    logs.map(|log| open_log(dir, &log.name)).collect()
}

/// Opens a log that was listed: it is still there unless the database has changed.
pub(crate) fn open_log(dir: &Path, name: &str) -> Result<(PathBuf, LogReader<File>)> {
    let path = dir.join(name);
    match LogReader::open(&path) {
        Err(error) if is_not_found(&error) => Err(changed(dir)),
        opened => Ok((path, opened?)),
    }
}
