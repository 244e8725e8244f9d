//! A database, and opening it.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
#[cfg(doc)]
use leveltable::ErrorKind;
use leveltable::Result;
use leveltable::db::DbEntry;

use crate::files::DatabaseFile;
use crate::log::Recovery;
use crate::options::DatabaseOptions;
use crate::state::{State, retry};
use crate::storage::{Directory, FileSystem};

/// A LevelDB database, opened for reading only: its live contents as of opening, or of the last [`refresh`](Database::refresh).
///
/// Takes no lock and writes nothing, so a writer can be at work in another process. Later changes by a writer are not seen until
/// a refresh. Each lookup and each range shows the contents after one write batch, never half of one.
///
/// Cheap to clone: clones share everything. Safe to use from many threads at once.
///
/// ```no_run
/// use leveltable_database::Database;
///
/// let db = Database::open_read_only("Local Storage/leveldb")?;
/// if let Some(value) = db.get("key")? {
///     println!("{}", value.escape_ascii());
/// }
/// for entry in db.prefix("user/") {
///     let (key, value) = entry?;
///     println!("{}: {} bytes", key.escape_ascii(), value.len());
/// }
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Database {
    dir: Arc<dyn Directory>,
    /// Locked only to read or replace the `Arc`.
    state: Arc<RwLock<Arc<State>>>,
}

impl Database {
    /// Opens the database in the directory `dir` with [`DatabaseOptions::new`].
    ///
    /// Reads CURRENT, the MANIFEST and the logs. Holds the newest version of each key in the logs, usually up to 4 MiB. Tables are
    /// opened when they are first needed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotADatabase`], with a description of the directory; [`ErrorKind::Unsupported`] for a database of RocksDB
    /// or Pebble; [`ErrorKind::Corruption`] for damage in the MANIFEST or a log, with file and offset; [`ErrorKind::Replaced`]
    /// if a writer changes the database too often while it is read; [`ErrorKind::Io`].
    ///
    /// An unfinished record at the end of a log or MANIFEST is not an error: see [`recovery`](Database::recovery).
    pub fn open_read_only(dir: impl AsRef<Path>) -> Result<Database> {
        DatabaseOptions::new().open_read_only(dir)
    }

    fn new(state: State) -> Database {
        Database {
            dir: state.dir.clone(),
            state: Arc::new(RwLock::new(Arc::new(state))),
        }
    }

    pub(crate) fn state(&self) -> Arc<State> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }

    /// Reads the database again.
    fn read_again(&self) -> Result<()> {
        let known = self.state();
        let mut read = State::read(&self.dir, &known.options)?;
        if read.current == known.current {
            read.open_tables = known.open_tables.clone();
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read a later state.
        let progress = |state: &State| (state.last_sequence, state.version.bytes);
        if state.current != read.current || progress(&state) <= progress(&read) {
            *state = Arc::new(read);
        }
        Ok(())
    }

    /// Calls `work` with the state; if the state turns out to be out of date, reads the database again and repeats the call.
    pub(crate) fn with_state<T>(
        &self,
        mut work: impl FnMut(&Arc<State>) -> Result<T>,
    ) -> Result<T> {
        retry(|attempt| {
            if attempt > 1 {
                self.read_again()?;
            }
            work(&self.state())
        })
    }

    /// The directory, as passed to [`open_read_only`](Database::open_read_only).
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the value of `key`; `None` if there is none, or it was deleted.
    ///
    /// Searches the logs in memory, each table of level 0 whose range includes the key, and in each further level the one such
    /// table, until one has the key. Each checks its filter first. If a table has vanished because the writer has compacted it,
    /// reads the database again and starts over: the result is then of that time.
    ///
    /// # Errors
    ///
    /// Errors of opening and reading tables, [`ErrorKind::Comparator`] if the order is not known, and errors of
    /// [`open_read_only`](Database::open_read_only) if the database is read again.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = key.as_ref();
        let found = self.with_state(|state| state.find(key))?;
        Ok(found.and_then(|entry| entry.version.into_value()))
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Database::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns the values of many keys, in the order of `keys`, all as of the same moment.
    ///
    /// Reads the blocks of a table many at a time.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Database::get); no value is then returned.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let found = self.with_state(|state| state.find_many(keys))?;
        let value = |found: Option<DbEntry>| found.and_then(|entry| entry.version.into_value());
        Ok(found.into_iter().map(value).collect())
    }

    /// The name of the comparator in the MANIFEST, such as that of [`BytewiseComparator`](leveltable::BytewiseComparator).
    pub fn comparator(&self) -> String {
        self.state().order_name.clone()
    }

    /// Whether the order is known. If not, lookups, bounds and walks back are errors of kind [`ErrorKind::Comparator`].
    pub fn has_known_order(&self) -> bool {
        self.state().is_known
    }

    /// The sequence number of the last change. Without a MANIFEST, that of the last one in logs.
    ///
    /// Older sequence numbers are not snapshots: compactions drop versions that nobody had asked to keep. See
    /// [`history`](Database::history).
    pub fn last_sequence(&self) -> u64 {
        self.state().last_sequence
    }

    /// What was read at opening, or at the last refresh, and what was skipped; [`DatabaseOptions`] has an example.
    pub fn recovery(&self) -> Recovery {
        self.state().recovery.clone()
    }

    /// The files that are in the directory now, and those that the MANIFEST, as it was read, lists and that are missing; sorted by
    /// name. Lists the directory, and opens no table.
    ///
    /// ```no_run
    /// use leveltable_database::{Database, FileState};
    ///
    /// for file in Database::open_read_only("db")?.files()? {
    ///     if let FileState::Missing | FileState::Orphan = file.state {
    ///         println!("{}: {:?}", file.name, file.state);
    ///     }
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of listing the directory.
    pub fn files(&self) -> Result<Vec<DatabaseFile>> {
        self.state().files()
    }

    /// Reads the database again if it has changed. Returns whether it had. Existing ranges keep showing the old
    /// contents.
    ///
    /// Checks CURRENT, the MANIFEST and the directory; if they have changed, costs what opening costs. Open tables stay
    /// open.
    ///
    /// # Errors
    ///
    /// Same as [`open_read_only`](Database::open_read_only); the contents are then unchanged.
    pub fn refresh(&self) -> Result<bool> {
        let has_changed = !self.state().is_up_to_date()?;
        if has_changed {
            retry(|_| self.read_again())?;
        }
        Ok(has_changed)
    }

    /// Opens all tables, and keeps them open until the next [`refresh`](Database::refresh), regardless of
    /// [`max_open_tables`](DatabaseOptions::max_open_tables). Ranges over a pinned database cannot fail because of a writer: on
    /// Unix, an open table stays readable after its removal.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Database::get).
    pub fn pin(&self) -> Result<()> {
        self.with_state(|state| {
            for table in state.runs.iter().flatten() {
                let _ = table.kept.set(state.table(table)?);
            }
            Ok(())
        })
    }
}

impl DatabaseOptions {
    /// Opens the database in the directory `dir`; see [`Database::open_read_only`].
    ///
    /// # Errors
    ///
    /// Same as [`Database::open_read_only`], and [`ErrorKind::Comparator`] if the MANIFEST names another order than
    /// [`comparator`](DatabaseOptions::comparator).
    pub fn open_read_only(&self, dir: impl AsRef<Path>) -> Result<Database> {
        self.open_in(FileSystem::at(dir.as_ref()))
    }

    /// Reads all tables and logs in `dir` as if a MANIFEST listed them, the tables in level 0: for a directory whose MANIFEST
    /// is lost or damaged. Opens every table.
    ///
    /// The newest version of each key wins, by sequence number. Files that the lost MANIFEST no longer listed count as well, so
    /// deleted keys may reappear; [`Recovery::without_manifest`](crate::Recovery::without_manifest) is set. The order is
    /// bytewise unless [`comparator`](DatabaseOptions::comparator) says otherwise. With
    /// [`skip_damaged`](DatabaseOptions::skip_damaged), tables that cannot be opened are left out.
    ///
    /// # Errors
    ///
    /// Errors of listing the directory, of reading a log, and of opening a table.
    pub fn open_without_manifest(&self, dir: impl AsRef<Path>) -> Result<Database> {
        let dir = FileSystem::at(dir.as_ref());
        State::read_without_manifest(&dir, self).map(Database::new)
    }

    pub(crate) fn open_in(&self, dir: Arc<dyn Directory>) -> Result<Database> {
        retry(|_| State::read(&dir, self)).map(Database::new)
    }
}
