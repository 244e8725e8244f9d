//! What a database holds at a moment: its tables by levels, and the changes in its logs.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leveltable::db::{InternalKeyComparator, Memtable};
use leveltable::{Comparator, Corruption, DbTable, Error, ErrorKind, OpenOptions, Result, Section};

use crate::directory::{self, Current, FileKind, failed};
use crate::manifest::{TableFile, Version};
use crate::options::DatabaseOptions;
use crate::recovery::{Newest, Recovery, read_manifest};
use crate::tables::TableCache;

/// How often the database is read again because it changed meanwhile. A flush has to fall into the same short moment each time.
pub(crate) const MOST_ATTEMPTS: u32 = 20;

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
    pub(crate) levels: Levels,
    /// The newest version of each user key in the logs.
    pub(crate) memtable: Memtable,
    pub(crate) last_sequence: u64,
    pub(crate) recovery: Recovery,
    table_options: OpenOptions,
    tables: Arc<TableCache>,
    pinned: OnceLock<HashMap<u64, DbTable>>,
}

/// Tables by levels: level 0 from the newest to the oldest, the others by keys.
#[derive(Debug, Default)]
pub(crate) struct Levels(pub(crate) Vec<Vec<TableFile>>);

impl Levels {
    /// Sorts the tables of a version. Fails if two of one level overlap.
    fn of(version: &Version, order: Option<&Arc<dyn Comparator>>) -> Result<Levels, (u64, u64)> {
        let mut levels: Vec<Vec<TableFile>> = Vec::new();
        for ((level, _), file) in &version.tables {
            let level = *level as usize;
            if levels.len() <= level {
                levels.resize_with(level + 1, Vec::new);
            }
            if let Some(files) = levels.get_mut(level) {
                files.push(file.clone());
            }
        }
        for (level, files) in levels.iter_mut().enumerate() {
            let Some(order) = order.filter(|_| level > 0) else {
                files.sort_by_key(|file| std::cmp::Reverse(file.number));
                continue;
            };
            let order = InternalKeyComparator::new(order.clone());
            files.sort_by(|a, b| order.compare(&a.smallest, &b.smallest));
            for pair in files.windows(2) {
                if let [a, b] = pair
                    && order.compare(&a.largest, &b.smallest).is_ge()
                {
                    return Err((a.number, b.number));
                }
            }
        }
        Ok(Levels(levels))
    }

    /// All tables with their levels.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &TableFile)> {
        let levels = (0..).zip(&self.0);
        levels.flat_map(|(level, files)| files.iter().map(move |file| (level, file)))
    }
}

impl State {
    /// Reads the database in `dir` by its MANIFEST. Open tables of `previous` are used again if its MANIFEST still is the
    /// current one.
    pub(crate) fn read(
        dir: &Path,
        options: &DatabaseOptions,
        previous: Option<&State>,
    ) -> Result<State> {
        for attempt in 0..MOST_ATTEMPTS {
            if let Some(state) = State::try_read(dir, options, previous)? {
                return Ok(state);
            }
            std::thread::sleep(Duration::from_millis(attempt.into()));
        }
        let message = format!(
            "a writer changed the database {MOST_ATTEMPTS} times while it was read; try again, or read a copy"
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
        let name = version.comparator.as_deref().map(String::from_utf8_lossy);
        let order_name = name.map_or("leveldb.BytewiseComparator".to_owned(), String::from);
        let order = options
            .order(&order_name)
            .map_err(|error| error.at_path(dir))?;
        let newest = read_logs(dir, &logs, options, &mut recovery)?;
        recovery.missing_log = version
            .log_number
            .filter(|&log| log > 0 && logs.iter().all(|(number, _)| *number < log));
        let levels = Levels::of(&version, order.as_ref()).map_err(|(a, b)| {
            let found = format!("{a} and {b}, which overlap");
            let expected = "tables of a level that do not overlap";
            let corruption = Corruption::new(Section::Manifest, 0, expected, found);
            let advice = "open_without_manifest reads what tables and logs say";
            Error::damage(&current.path, corruption, advice)
        })?;
        let last_sequence = newest.last_sequence.max(version.last_sequence.unwrap_or(0));
        let is_same = |previous: &&State| {
            let before = previous.current.as_ref();
            before.is_some_and(|before| before.is_same_file(&current))
        };
        let tables = match previous.filter(is_same) {
            Some(previous) => previous.tables.clone(),
            None => Arc::new(TableCache::new(options.max_open_tables)),
        };
        Ok(Some(State {
            dir: dir.to_owned(),
            manifest_bytes,
            version,
            memtable: newest.into_memtable(order.as_ref()),
            table_options: options.of_tables(order.as_ref()),
            order_name,
            order,
            levels,
            last_sequence,
            recovery,
            tables,
            pinned: OnceLock::new(),
            current: Some(current),
        }))
    }

    /// Reads all tables and logs in `dir`, as if they were listed.
    pub(crate) fn read_without_manifest(dir: &Path, options: &DatabaseOptions) -> Result<State> {
        let order_name = options.given_order_name().to_owned();
        let order = options.order(&order_name)?;
        let mut recovery = Recovery {
            without_manifest: true,
            ..Recovery::default()
        };
        let mut version = Version::default();
        let logs = open_logs(dir, &version)?.unwrap_or_default();
        let newest = read_logs(dir, &logs, options, &mut recovery)?;
        let last_sequence = newest.last_sequence;
        let mut state = State {
            dir: dir.to_owned(),
            current: None,
            manifest_bytes: 0,
            version: Version::default(),
            memtable: newest.into_memtable(order.as_ref()),
            table_options: options.of_tables(order.as_ref()),
            order_name,
            order,
            levels: Levels::default(),
            last_sequence,
            recovery,
            tables: Arc::new(TableCache::new(options.max_open_tables)),
            pinned: OnceLock::new(),
        };
        for (name, size) in directory::list(dir)? {
            let (FileKind::Table, Some(number)) = FileKind::of(&name) else {
                continue;
            };
            match state.describe(number, size) {
                Ok(Some(file)) => {
                    version.tables.insert((0, number), file);
                }
                Ok(None) => {}
                Err(error) if options.skip_damaged => {
                    state.recovery.unreadable_tables.push((name, error));
                }
                Err(error) => return Err(error),
            }
        }
        state.levels = Levels::of(&version, None).unwrap_or_default();
        state.version = version;
        Ok(state)
    }

    /// What a MANIFEST would list of a table; `None` if it has no entries.
    fn describe(&self, number: u64, size: u64) -> Result<Option<TableFile>> {
        let table = self.table_of_size(number, None)?;
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

    /// Opens a listed table, or returns it if it is open.
    ///
    /// Fails with [`ErrorKind::Replaced`] if the state is out of date: the table vanished, or its number is perhaps that of
    /// another table now.
    pub(crate) fn table(&self, file: &TableFile) -> Result<DbTable> {
        if let Some(table) = self
            .pinned
            .get()
            .and_then(|pinned| pinned.get(&file.number))
        {
            return Ok(table.clone());
        }
        self.table_of_size(file.number, Some(file.size))
    }

    /// Opens a table of the directory that is no part of the database.
    pub(crate) fn open_unlisted(&self, name: &str) -> Result<DbTable> {
        self.table_options.open_db(self.dir.join(name))
    }

    fn table_of_size(&self, number: u64, size: Option<u64>) -> Result<DbTable> {
        self.tables.get(number, || {
            let [modern, old] = directory::table_names(number).map(|name| self.dir.join(name));
            let path = if modern.exists() { &modern } else { &old };
            let opened = self.table_options.open_db(path);
            // Whatever was opened, or was not: it is the database's only if that is still the one that was read.
            if let Some(current) = &self.current
                && !current.is_same(&self.dir)?
            {
                return Err(replaced(
                    "the database was reopened or replaced by its writer",
                    path,
                ));
            }
            let table = opened.map_err(|error| self.explain_missing(error, &modern))?;
            let found = table.as_table().file_bytes();
            if let Some(size) = size.filter(|&size| size != found) {
                let expected = format!("a table of {size} bytes, as the MANIFEST says");
                let corruption =
                    Corruption::new(Section::Footer, found, expected, format!("{found} bytes"));
                return Err(Error::damage(
                    path,
                    corruption,
                    "a copy of the database may be incomplete",
                ));
            }
            Ok(table)
        })
    }

    /// The error of a table that is not there, which says whether the MANIFEST has changed since.
    #[cold]
    fn explain_missing(&self, error: Error, path: &Path) -> Error {
        if !is_not_found(&error) {
            return error;
        }
        let Some(current) = &self.current else {
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
            let mut tables = HashMap::new();
            for (_, file) in self.levels.all() {
                tables.insert(file.number, self.table(file)?);
            }
            // Another thread may have done the same.
            let _ = self.pinned.set(tables);
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
        let logs = directory::list(&self.dir)?;
        let logs = needed_logs(&logs, &self.version);
        let read = self.recovery.logs.iter().map(|log| (log.number, log.bytes));
        Ok(logs.into_iter().eq(read))
    }

    /// Whether `other` is an older state of the same database.
    pub(crate) fn is_newer_than(&self, other: &State) -> bool {
        let (Some(current), Some(others)) = (&self.current, &other.current) else {
            return false;
        };
        current.is_same_file(others) && self.progress(other).is_gt()
    }

    fn progress(&self, other: &State) -> Ordering {
        let own = (self.last_sequence, self.manifest_bytes);
        own.cmp(&(other.last_sequence, other.manifest_bytes))
    }
}

#[cold]
pub(crate) fn replaced(what: &str, path: &Path) -> Error {
    Error::new(ErrorKind::Replaced, what).at_path(path)
}

fn is_not_found(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Numbers and sizes of the logs among `files` whose changes are not in tables yet, in ascending order.
fn needed_logs(files: &[(String, u64)], version: &Version) -> Vec<(u64, u64)> {
    let number = |(name, size): &(String, u64)| match FileKind::of(name) {
        (FileKind::Log, Some(number)) if *name == directory::log_name(number) => {
            version.needs_log(number).then_some((number, *size))
        }
        _ => None,
    };
    let mut logs: Vec<_> = files.iter().filter_map(number).collect();
    logs.sort_unstable();
    logs
}

/// Lists the logs once, and opens those that are needed, in ascending order. `None` if one has vanished since.
fn open_logs(dir: &Path, version: &Version) -> Result<Option<Vec<(u64, File)>>> {
    let files = directory::list(dir)?;
    let mut logs = Vec::new();
    for (number, _) in needed_logs(&files, version) {
        let path = dir.join(directory::log_name(number));
        match directory::open_file(&path) {
            Ok(file) => logs.push((number, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("opening the log", error, &path)),
        }
    }
    Ok(Some(logs))
}

/// Reads logs to their ends, one after the other: what a log shows was written after all of those before it.
fn read_logs(
    dir: &Path,
    logs: &[(u64, File)],
    options: &DatabaseOptions,
    recovery: &mut Recovery,
) -> Result<Newest> {
    let mut newest = Newest::default();
    for (number, file) in logs {
        let path = dir.join(directory::log_name(*number));
        newest.read_log((*number, file), &path, options.skip_damaged, recovery)?;
    }
    Ok(newest)
}
