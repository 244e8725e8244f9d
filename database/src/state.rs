//! What a database holds at a moment: its tables by levels, and the changes in its logs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leveltable::db::{InternalKeyComparator, Memtable};
use leveltable::{Comparator, DbTable, Error, ErrorKind, OpenOptions, Result, TableCache};

use crate::directory::{CHANGED, Current, FileKind, failed, file_name, list, open_file, replaced};
use crate::manifest::{TableFile, Version};
use crate::options::DatabaseOptions;
use crate::recovery::{Newest, Recovery, bad_manifest};

/// How often the database is read again because it changed meanwhile. A flush has to fall into the same short moment each time.
pub(crate) const MAX_ATTEMPTS: u32 = 20;

/// What a database holds at a moment. Never changes; reading on means making another.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) dir: PathBuf,
    /// `None` if the database was opened without a MANIFEST.
    pub(crate) current: Option<Current>,
    /// Bytes of the MANIFEST that were read.
    pub(crate) manifest_bytes: u64,
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
    /// How tables are opened.
    pub(crate) table_options: OpenOptions,
    pub(crate) open_tables: Arc<TableCache<u64, DbTable>>,
    pub(crate) max_open: usize,
}

/// Tables of a level in the order of their keys, which do not overlap: all of a level, or a single one of level 0, or of any level
/// if the order is not known.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) level: u32,
    pub(crate) tables: Vec<Listed>,
}

/// A table that the MANIFEST lists.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) file: TableFile,
    /// Keeps it open as long as the state: once it is pinned, or open and all tables may be.
    pub(crate) kept: OnceLock<DbTable>,
}

impl State {
    /// Reads the database in `dir` by its MANIFEST. Open tables of `previous` are used again if its MANIFEST still is the
    /// current one.
    pub(crate) fn read(
        dir: &Path,
        options: &DatabaseOptions,
        previous: Option<&State>,
    ) -> Result<State> {
        for attempt in 1..MAX_ATTEMPTS {
            match State::try_read(dir, options, previous) {
                Err(error) if error.kind() == ErrorKind::Replaced => {
                    std::thread::sleep(Duration::from_millis(attempt.into()));
                }
                read => return read,
            }
        }
        State::try_read(dir, options, previous)
    }

    /// Fails with [`ErrorKind::Replaced`] if what was read may not fit together: a memtable became a table in between.
    fn try_read(dir: &Path, options: &DatabaseOptions, previous: Option<&State>) -> Result<State> {
        let current = Current::open(dir)?;
        let mut recovery = Recovery::default();
        let (mut version, mut manifest_bytes) = recovery.read_manifest(&current)?;
        let logs = open_logs(dir, &version)?;
        // From here on the logs are open, and stay readable. If they are still those that the MANIFEST needs, nothing that
        // was in a log before them has become a table unseen. Of compactions alone the newer result is as good.
        let mut is_same = current.is_current(dir)?;
        if is_same && current.len()? != manifest_bytes {
            let needed = version.first_logs();
            recovery = Recovery::default();
            (version, manifest_bytes) = recovery.read_manifest(&current)?;
            is_same = version.first_logs() == needed;
        }
        if !is_same {
            return Err(replaced(CHANGED, dir));
        }
        let tables = std::mem::take(&mut version.tables);
        let mut state = State::new(dir, options, version, &logs, recovery)?;
        state.runs = runs(tables, state.order.as_ref()).map_err(|found| {
            bad_manifest(&current, "tables of a level that do not overlap", found)
        })?;
        state.manifest_bytes = manifest_bytes;
        state.current = Some(current);
        if let Some(previous) = previous.filter(|previous| previous.current == state.current) {
            state.open_tables = previous.open_tables.clone();
        }
        Ok(state)
    }

    /// Reads all tables and logs in `dir`, as if they were listed.
    pub(crate) fn read_without_manifest(dir: &Path, options: &DatabaseOptions) -> Result<State> {
        let version = Version::default();
        let recovery = Recovery {
            without_manifest: true,
            ..Recovery::default()
        };
        let logs = open_logs(dir, &version)?;
        let mut state = State::new(dir, options, version, &logs, recovery)?;
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
        state.runs = runs(tables, None).unwrap_or_default();
        Ok(state)
    }

    /// Reads logs to their ends, one after the other: what a log shows was written after all of those before it.
    fn new(
        dir: &Path,
        options: &DatabaseOptions,
        version: Version,
        logs: &[(u64, PathBuf, File)],
        mut recovery: Recovery,
    ) -> Result<State> {
        let order = options.order(version.stated.comparator.as_deref());
        let (order_name, order) = order.map_err(|error| error.at_path(dir))?;
        let mut newest = Newest::default();
        for log in logs {
            recovery.read_log(log, options.skip_damaged, &mut newest)?;
        }
        let oldest = version.stated.log_number.filter(|&log| log > 0);
        recovery.missing_log = oldest.filter(|log| logs.iter().all(|(number, ..)| number < log));
        let memtable = order
            .clone()
            .map_or_else(Memtable::new, Memtable::with_comparator);
        for (user_key, (sequence, version)) in newest.versions {
            memtable.add(user_key, sequence, version);
        }
        let stated = version.stated.last_sequence.unwrap_or(0);
        let max_open = options.max_open_tables.unwrap_or(500);
        Ok(State {
            dir: dir.to_owned(),
            current: None,
            manifest_bytes: 0,
            runs: Vec::new(),
            last_sequence: newest.last_sequence.max(stated),
            version,
            memtable,
            table_options: options.table_options(order.as_ref()),
            order_name,
            order,
            recovery,
            open_tables: Arc::new(TableCache::new(max_open, u64::MAX)),
            max_open,
        })
    }

    /// What a MANIFEST would list of a table; `None` if it has no entries.
    fn describe(&self, number: u64, size: u64) -> Result<Option<TableFile>> {
        let mut cursor = self.open(number, size)?.as_table().cursor();
        if !cursor.seek_to_first()? {
            return Ok(None);
        }
        let smallest = cursor.key().to_vec();
        cursor.seek_to_last()?;
        Ok(Some(TableFile {
            number,
            size,
            smallest,
            largest: cursor.key().to_vec(),
        }))
    }

    /// All tables with their levels.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u32, &Listed)> {
        let runs = self.runs.iter();
        runs.flat_map(|run| run.tables.iter().map(|table| (run.level, table)))
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
        if !current.is_current(&self.dir)? || current.len()? != self.manifest_bytes {
            return Ok(false);
        }
        let read = self.recovery.logs.iter().map(|log| (log.number, log.bytes));
        Ok(needed_logs(&self.dir, &self.version)?.into_iter().eq(read))
    }

    /// Larger in a later state by the same MANIFEST.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.last_sequence, self.manifest_bytes)
    }
}

/// Sorts tables into runs. Fails with two that overlap in a level from 1 on.
fn runs(
    tables: BTreeMap<(u32, u64), TableFile>,
    order: Option<&Arc<dyn Comparator>>,
) -> Result<Vec<Run>, String> {
    let mut runs: Vec<Run> = Vec::new();
    for ((level, _), file) in tables {
        let table = Listed {
            file,
            kept: OnceLock::new(),
        };
        match runs.last_mut() {
            Some(run) if order.is_some() && level > 0 && run.level == level => {
                run.tables.push(table);
            }
            _ => runs.push(Run {
                level,
                tables: vec![table],
            }),
        }
    }
    let Some(order) = order else {
        return Ok(runs);
    };
    let order = InternalKeyComparator::new(order.clone());
    for Run { tables, .. } in &mut runs {
        tables.sort_by(|a, b| order.compare(&a.file.smallest, &b.file.smallest));
        let files = tables.iter().map(|table| &table.file);
        for (a, b) in files.clone().zip(files.skip(1)) {
            if order.compare(&a.largest, &b.smallest).is_ge() {
                return Err(format!("{} and {}, which overlap", a.number, b.number));
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
fn open_logs(dir: &Path, version: &Version) -> Result<Vec<(u64, PathBuf, File)>> {
    let open = |(number, _)| {
        let path = dir.join(file_name(number, "log"));
        match open_file(&path) {
            Ok(file) => Ok((number, path, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(replaced(CHANGED, dir)),
            Err(error) => Err(failed("opening the log", error, &path)),
        }
    };
    needed_logs(dir, version)?.into_iter().map(open).collect()
}
