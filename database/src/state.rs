//! What a database holds at a moment: its tables by levels, and the changes in its logs.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leveltable::db::{InternalKeyComparator, Memtable};
use leveltable::{
    BytewiseComparator, Comparator, Corruption, DbTable, Error, ErrorKind, Result, Section,
    TableCache,
};

use crate::directory::{self, Current, FileKind, failed};
use crate::manifest::{TableFile, Version};
use crate::options::DatabaseOptions;
use crate::range::{Bounds, is_after, is_before};
use crate::recovery::{Logged, Recovery, bad_manifest, read_manifest};
use crate::tables::TableOptions;

/// How often the database is read again because it changed meanwhile. A flush has to fall into the same short moment each time.
pub(crate) const MAX_ATTEMPTS: u32 = 20;

/// What a database holds at a moment. Never changes; reading on means making another.
#[derive(Debug)]
pub(crate) struct State {
    dir: PathBuf,
    /// `None` if the database was opened without a MANIFEST.
    pub(crate) current: Option<Current>,
    /// Bytes of the MANIFEST that were read.
    manifest_bytes: u64,
    pub(crate) version: Version,
    /// The comparator's name.
    pub(crate) order_name: String,
    /// `None` if the order is not known.
    pub(crate) order: Option<Arc<dyn Comparator>>,
    /// Level 0 from the newest to the oldest table, the others by keys.
    pub(crate) levels: Vec<Vec<TableFile>>,
    /// The newest version of each user key in the logs.
    pub(crate) memtable: Memtable,
    pub(crate) last_sequence: u64,
    pub(crate) recovery: Recovery,
    pub(crate) table_options: TableOptions,
    open_tables: Arc<TableCache<u64, DbTable>>,
    pinned: OnceLock<HashMap<u64, DbTable>>,
}

impl State {
    /// Reads the database in `dir` by its MANIFEST. Open tables of `previous` are used again if its MANIFEST still is the
    /// current one.
    pub(crate) fn read(
        dir: &Path,
        options: &DatabaseOptions,
        previous: Option<&State>,
    ) -> Result<State> {
        for attempt in 0..MAX_ATTEMPTS {
            if let Some(state) = State::try_read(dir, options, previous)? {
                return Ok(state);
            }
            std::thread::sleep(Duration::from_millis(attempt.into()));
        }
        let message = format!(
            "a writer changed the database {MAX_ATTEMPTS} times while it was read; try again, or read a copy"
        );
        Err(Error::new(ErrorKind::Replaced, message).at_path(dir))
    }

    /// Returns `None` if what was read may not fit together: a memtable became a table in between.
    fn try_read(
        dir: &Path,
        options: &DatabaseOptions,
        previous: Option<&State>,
    ) -> Result<Option<State>> {
        let Some(current) = Current::open(dir)? else {
            return Ok(None);
        };
        let mut recovery = Recovery::default();
        let (mut version, mut manifest_bytes) = read_manifest(&current, &mut recovery)?;
        let Some(logs) = open_logs(dir, &version)? else {
            return Ok(None);
        };
        // From here on the logs are open, and stay readable. If they are still those that the MANIFEST needs, nothing that
        // was in a log before them has become a table unseen. Of compactions alone the newer result is as good.
        if !current.is_same(dir)? {
            return Ok(None);
        }
        if current.len()? != manifest_bytes {
            let needed = (version.log_number, version.prev_log_number);
            recovery = Recovery::default();
            (version, manifest_bytes) = read_manifest(&current, &mut recovery)?;
            if (version.log_number, version.prev_log_number) != needed {
                return Ok(None);
            }
        }
        let tables = std::mem::take(&mut version.tables);
        let mut state = State::new(dir, options, version, &logs, recovery)?;
        state.levels = levels(tables, state.order.as_ref()).map_err(|(a, b)| {
            let found = format!("{a} and {b}, which overlap");
            bad_manifest(&current, "tables of a level that do not overlap", found)
        })?;
        state.manifest_bytes = manifest_bytes;
        state.current = Some(current);
        if let Some(previous) = previous.filter(|previous| previous.current == state.current) {
            state.open_tables = previous.open_tables.clone();
        }
        Ok(Some(state))
    }

    /// Reads all tables and logs in `dir`, as if they were listed.
    pub(crate) fn read_without_manifest(dir: &Path, options: &DatabaseOptions) -> Result<State> {
        let version = Version {
            comparator: Some(options.given_order_name().into()),
            ..Version::default()
        };
        let recovery = Recovery {
            without_manifest: true,
            ..Recovery::default()
        };
        let logs = open_logs(dir, &version)?.unwrap_or_default();
        let mut state = State::new(dir, options, version, &logs, recovery)?;
        let mut tables = BTreeMap::new();
        for (name, size) in directory::list(dir)? {
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
        state.levels = levels(tables, None).unwrap_or_default();
        Ok(state)
    }

    /// Reads logs to their ends, one after the other: what a log shows was written after all of those before it.
    fn new(
        dir: &Path,
        options: &DatabaseOptions,
        version: Version,
        logs: &[(u64, File)],
        mut recovery: Recovery,
    ) -> Result<State> {
        let name = version.comparator.as_deref().map(String::from_utf8_lossy);
        let name = name.map_or(BytewiseComparator.name().to_owned(), String::from);
        let order = options.order(&name).map_err(|error| error.at_path(dir))?;
        let mut logged = Logged::default();
        for (number, file) in logs {
            let path = dir.join(directory::log_name(*number));
            logged.read((*number, file), &path, options.skip_damaged, &mut recovery)?;
        }
        let oldest = version.log_number.filter(|&log| log > 0);
        recovery.missing_log = oldest.filter(|log| logs.iter().all(|(number, _)| number < log));
        Ok(State {
            dir: dir.to_owned(),
            current: None,
            manifest_bytes: 0,
            levels: Vec::new(),
            last_sequence: (logged.last_sequence).max(version.last_sequence.unwrap_or(0)),
            version,
            memtable: logged.into_memtable(order.as_ref()),
            table_options: TableOptions::new(&options.tables, order.as_ref()),
            order_name: name,
            order,
            recovery,
            open_tables: Arc::new(TableCache::new(options.max_open_tables, u64::MAX)),
            pinned: OnceLock::new(),
        })
    }

    /// What a MANIFEST would list of a table; `None` if it has no entries.
    fn describe(&self, number: u64, size: u64) -> Result<Option<TableFile>> {
        let table = self.open(number, size)?;
        let mut cursor = table.as_table().cursor();
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
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &TableFile)> {
        let levels = self.levels.iter().enumerate();
        levels.flat_map(|(level, files)| files.iter().map(move |file| (level, file)))
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

    /// Whether tables of a level hold no keys outside of what the MANIFEST lists as their first and last one. A table of level 0
    /// that is in another order than the database may.
    pub(crate) fn trusts_ends(&self, level: usize) -> bool {
        level > 0 || self.order_name == BytewiseComparator.name()
    }

    /// Whether a table may hold keys within bounds.
    pub(crate) fn may_hold(
        &self,
        order: &dyn Comparator,
        level: usize,
        file: &TableFile,
        (lower, upper): &Bounds,
    ) -> bool {
        let is_outside = is_before(order, file.last_user_key(), lower)
            || is_after(order, file.first_user_key(), upper);
        !is_outside || !self.trusts_ends(level)
    }

    /// Opens a listed table, or returns it if it is open.
    ///
    /// Fails with [`ErrorKind::Replaced`] if the state is out of date: the table vanished, or its number is perhaps that of
    /// another table now.
    pub(crate) fn table(&self, file: &TableFile) -> Result<DbTable> {
        let pinned = self.pinned.get();
        match pinned.and_then(|pinned| pinned.get(&file.number)) {
            Some(table) => Ok(table.clone()),
            None => self.open(file.number, file.size),
        }
    }

    /// The path of a table, which may be one of an earlier LevelDB.
    pub(crate) fn table_path(&self, number: u64) -> PathBuf {
        let [modern, old] = directory::table_names(number).map(|name| self.dir.join(name));
        if !modern.exists() && old.exists() {
            old
        } else {
            modern
        }
    }

    fn open(&self, number: u64, size: u64) -> Result<DbTable> {
        self.open_tables.get(&number, || {
            let path = self.table_path(number);
            let found = std::fs::metadata(&path).map(|metadata| metadata.len());
            let opened = self.table_options.open(&path);
            // Whatever was opened, or was not: it is the database's only if that is still the one that was read.
            if let Some(current) = &self.current
                && !current.is_same(&self.dir)?
            {
                return Err(replaced(
                    "the database was reopened or replaced by its writer",
                    &path,
                ));
            }
            let table = opened.map_err(|error| self.explain_missing(error, &path))?;
            match found {
                Ok(found) if found != size => {
                    let expected = format!("a table of {size} bytes, as the MANIFEST says");
                    let corruption =
                        Corruption::new(Section::Footer, found, expected, format!("{found} bytes"));
                    let advice = "a copy of the database may be incomplete";
                    Err(Error::damage(&path, corruption, advice))
                }
                _ => Ok(table),
            }
        })
    }

    /// The error of a table that is not there, which says whether the MANIFEST has changed since.
    #[cold]
    pub(crate) fn explain_missing(&self, error: Error, path: &Path) -> Error {
        let Some(current) = self.current.as_ref().filter(|_| is_not_found(&error)) else {
            return error;
        };
        // A writer removes a table after it has written so to the MANIFEST.
        match current.len() {
            Ok(bytes) if bytes == self.manifest_bytes => {
                let doing = format!("{} lists this table; opening it", current.manifest);
                Error::io(doing, io::ErrorKind::NotFound.into()).at_path(path)
            }
            _ => replaced("the table was removed by a compaction", path),
        }
    }

    /// Opens all tables, and keeps them open as long as the state.
    pub(crate) fn pin(&self) -> Result<()> {
        if self.pinned.get().is_none() {
            let tables = self
                .tables()
                .map(|(_, file)| Ok((file.number, self.table(file)?)));
            // Another thread may have done the same.
            let _ = self.pinned.set(tables.collect::<Result<_>>()?);
        }
        Ok(())
    }

    /// Whether reading again would lead to the same state.
    pub(crate) fn is_up_to_date(&self) -> Result<bool> {
        let Some(current) = &self.current else {
            return Ok(true);
        };
        if !current.is_same(&self.dir)? || current.len()? != self.manifest_bytes {
            return Ok(false);
        }
        let read = self.recovery.logs.iter().map(|log| (log.number, log.bytes));
        Ok(needed_logs(&self.dir, &self.version)?.into_iter().eq(read))
    }

    /// Whether `other` is an older state by the same MANIFEST.
    pub(crate) fn is_newer_than(&self, other: &State) -> bool {
        let progress = |state: &State| (state.last_sequence, state.manifest_bytes);
        self.current == other.current && progress(self) > progress(other)
    }
}

#[cold]
fn replaced(what: &str, path: &Path) -> Error {
    Error::new(ErrorKind::Replaced, what).at_path(path)
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Sorts tables into their levels. Fails with two that overlap in a level from 1 on.
fn levels(
    tables: BTreeMap<(u32, u64), TableFile>,
    order: Option<&Arc<dyn Comparator>>,
) -> Result<Vec<Vec<TableFile>>, (u64, u64)> {
    let mut levels: Vec<Vec<TableFile>> = Vec::new();
    for ((level, _), file) in tables.into_iter().rev() {
        let level = level as usize;
        levels.resize_with(levels.len().max(level + 1), Vec::new);
        levels
            .get_mut(level)
            .into_iter()
            .for_each(|files| files.push(file.clone()));
    }
    let Some(order) = order else {
        return Ok(levels);
    };
    let order = InternalKeyComparator::new(order.clone());
    for files in levels.iter_mut().skip(1) {
        files.sort_by(|a, b| order.compare(&a.smallest, &b.smallest));
        for pair in files.windows(2) {
            if let [a, b] = pair
                && order.compare(&a.largest, &b.smallest).is_ge()
            {
                return Err((a.number, b.number));
            }
        }
    }
    Ok(levels)
}

/// Numbers and sizes of the logs whose changes are not in tables yet, in ascending order.
fn needed_logs(dir: &Path, version: &Version) -> Result<Vec<(u64, u64)>> {
    let number = |(name, size): (String, u64)| match FileKind::of(&name) {
        (FileKind::Log, Some(number)) if name == directory::log_name(number) => {
            version.needs_log(number).then_some((number, size))
        }
        _ => None,
    };
    let mut logs: Vec<_> = directory::list(dir)?
        .into_iter()
        .filter_map(number)
        .collect();
    logs.sort_unstable();
    Ok(logs)
}

/// Lists the logs once, and opens those that are needed, in ascending order. `None` if one has vanished since.
fn open_logs(dir: &Path, version: &Version) -> Result<Option<Vec<(u64, File)>>> {
    let mut logs = Vec::new();
    for (number, _) in needed_logs(dir, version)? {
        let path = dir.join(directory::log_name(number));
        match directory::open_file(&path) {
            Ok(file) => logs.push((number, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("opening the log", error, &path)),
        }
    }
    Ok(Some(logs))
}
