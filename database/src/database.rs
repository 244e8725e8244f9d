//! A database, and the options for opening it.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::db::DbEntry;
use leveltable::sister_crates::{no_prefixes, prefix_bounds_from};
use leveltable::{Comparator, KeyRange, OpenOptions, Result};
#[cfg(doc)]
use leveltable::{DbTable, ErrorKind};

use crate::approximate::{bytes_within, key_at};
use crate::files::{DatabaseFile, files_of};
use crate::handle::Handle;
use crate::log::Recovery;
use crate::options::Settings;
use crate::state::{State, retry};
use crate::storage::{Directory, FileSystem};
use crate::walk::{self, DatabaseRange, HistoryEntries, HistoryEntry};

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
    pub(crate) handle: Handle,
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

    fn of(handle: Handle) -> Database {
        Database { handle }
    }

    /// The directory, as passed to [`open_read_only`](Database::open_read_only).
    pub fn path(&self) -> &Path {
        self.handle.dir.path()
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
        let found = self.handle.with_state(|state| state.find(key))?;
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
        let found = self.handle.with_state(|state| state.find_many(keys))?;
        let value = |found: Option<DbEntry>| found.and_then(|entry| entry.version.into_value());
        Ok(found.into_iter().map(value).collect())
    }

    /// The name of the comparator in the MANIFEST, such as that of [`BytewiseComparator`](leveltable::BytewiseComparator).
    pub fn comparator(&self) -> String {
        self.handle.state().order_name.clone()
    }

    /// Whether the order is known. If not, lookups, bounds and walks back are errors of kind [`ErrorKind::Comparator`].
    pub fn has_known_order(&self) -> bool {
        self.handle.state().is_known
    }

    /// The sequence number of the last change. Without a MANIFEST, that of the last one in logs.
    ///
    /// Older sequence numbers are not snapshots: compactions drop versions that nobody had asked to keep. See
    /// [`history`](Database::history).
    pub fn last_sequence(&self) -> u64 {
        self.handle.state().last_sequence
    }

    /// What was read at opening, or at the last refresh, and what was skipped; [`DatabaseOptions`] has an example.
    pub fn recovery(&self) -> Recovery {
        self.handle.state().recovery.clone()
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
        files_of(&self.handle.state())
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
        let has_changed = !self.handle.state().is_up_to_date()?;
        if has_changed {
            retry(|_| self.handle.read_again())?;
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
        self.handle.with_state(|state| {
            for table in state.runs.iter().flatten() {
                let _ = table.kept.set(state.table(table)?);
            }
            Ok(())
        })
    }

    /// All entries in order, from either end; see [`range`](Database::range).
    ///
    /// In a database whose order is not known, entries come in the order of its files, from the front only, and the keys are kept
    /// in memory meanwhile.
    pub fn iter(&self) -> DatabaseRange {
        self.range(..)
    }

    /// The entries whose keys are within `bounds`, from either end. Tables are opened when the range reaches them; up to 16, before the
    /// first entry. Reads nothing before that.
    ///
    /// ```no_run
    /// # let db = leveltable_database::Database::open_read_only("db")?;
    /// for entry in db.range("user/1".."user/2").rev() {
    ///     println!("{}", entry?.0.escape_ascii());
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn range(&self, bounds: impl KeyRange) -> DatabaseRange {
        DatabaseRange::new(self.handle.clone(), Ok(bounds.key_bounds()))
    }

    /// The entries whose keys begin with `prefix`, from either end; reads like [`range`](Database::range).
    ///
    /// Only in bytewise order do such keys always lie together. In any other order the only item is an error of
    /// [`ErrorKind::Comparator`]: use a range there.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> DatabaseRange {
        self.prefix_from(prefix, Bound::<&[u8]>::Unbounded)
    }

    /// The entries of [`prefix`](Database::prefix) at or after `start`: the next page after a key, for example. A start before the
    /// prefix leaves all entries; one after it, none.
    ///
    /// ```no_run
    /// use std::ops::Bound;
    ///
    /// # let db = leveltable_database::Database::open_read_only("db")?;
    /// let last_shown = "user/20";
    /// for entry in db.prefix_from("user/", Bound::Excluded(last_shown)).take(20) {
    ///     println!("{}", entry?.0.escape_ascii());
    /// }
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn prefix_from(
        &self,
        prefix: impl AsRef<[u8]>,
        start: Bound<impl AsRef<[u8]>>,
    ) -> DatabaseRange {
        let (state, bounds) = (
            self.handle.state(),
            prefix_bounds_from(prefix.as_ref(), start),
        );
        let bounds = state.is_bytewise.then_some(bounds);
        let bounds = bounds.ok_or_else(|| no_prefixes(&state.order_name));
        DatabaseRange::new(self.handle.clone(), bounds)
    }

    /// Returns each version of `key` in the directory's logs and tables, the newest first, those in files that are not part of
    /// the database last.
    ///
    /// These are the versions that compactions have not dropped yet; they are not snapshots of the database. Reads the logs
    /// again, and the blocks of tables that may hold the key; all blocks, if the order is not bytewise.
    ///
    /// # Errors
    ///
    /// Same as [`history_range`](Database::history_range), but the order need not be known.
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<HistoryEntry>> {
        let key = Bound::Included(key.as_ref().to_vec());
        self.handle
            .with_state(|state| walk::history(state, key.clone()))
    }

    /// Returns each version of the keys within `bounds` in the directory's logs and tables: keys in order, and the versions of
    /// each as by [`history`](Database::history).
    ///
    /// Reads the logs again. Keeps their changes in memory, and the versions up to where the next table begins. Damaged unlisted
    /// files are skipped.
    ///
    /// # Errors
    ///
    /// Errors of [`get`](Database::get). The iterator ends after its first error.
    pub fn history_range(&self, bounds: impl KeyRange) -> Result<HistoryEntries> {
        walk::history_range(&self.handle.state(), &bounds.key_bounds())
    }

    /// Returns approximately how many bytes of files the keys within `bounds` take, including old versions and deletions: for tables
    /// within the bounds their sizes in the MANIFEST, and for each table across a bound the result of [`DbTable::approximate_bytes`],
    /// with an error of less than two blocks. The contents of logs count as the table in memory that holds them.
    ///
    /// Opens the tables across a bound, up to two in each level from 1 on, and reads no data block. This is
    /// `GetApproximateSizes` of C++ LevelDB, which ignores the logs.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Database::get).
    ///
    /// ```no_run
    /// # let db = leveltable_database::Database::open_read_only("db")?;
    /// println!("{} bytes of users", db.approximate_bytes("user/".."user0")?);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn approximate_bytes(&self, bounds: impl KeyRange) -> Result<u64> {
        let bounds = bounds.key_bounds();
        self.handle.with_state(|state| bytes_within(state, &bounds))
    }

    /// Returns a key before which about `fraction` of the bytes of files lie, as
    /// [`approximate_bytes`](Database::approximate_bytes) counts them: 0.5 returns the middle of the database. `None` if the
    /// database is empty.
    ///
    /// Opens some tables of each level to find the key, and reads no data block. C++ LevelDB has no counterpart.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Database::get).
    pub fn key_at_fraction(&self, fraction: f64) -> Result<Option<Bytes>> {
        self.handle.with_state(|state| key_at(state, fraction))
    }
}

/// Options for opening a database.
///
/// ```no_run
/// use leveltable::{BlockCache, OpenOptions};
/// use leveltable_database::DatabaseOptions;
///
/// let options = DatabaseOptions::new()
///     .tables(OpenOptions::new().cache(BlockCache::new(256 << 20)))
///     .max_open_tables(2000)
///     .skip_damaged(true);
/// let db = options.open_read_only("db")?;
/// for (file, gap) in &db.recovery().gaps {
///     println!("{file}: {} bytes at {}", gap.bytes, gap.offset);
/// }
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct DatabaseOptions(Settings);

impl DatabaseOptions {
    /// The comparator named in the MANIFEST, the shared cache of 32 MiB, up to 500 open tables, damage is an error.
    pub fn new() -> DatabaseOptions {
        DatabaseOptions::default()
    }

    /// The order of the user keys, if it is not built in: [`BytewiseComparator`](leveltable::BytewiseComparator) and
    /// [`IndexedDbComparator`](crate::IndexedDbComparator) are found by the name in the MANIFEST. Opening a database that names another
    /// order fails. By default, a database in an unknown order can only be walked.
    pub fn comparator(mut self, comparator: impl Comparator + 'static) -> DatabaseOptions {
        self.0.comparator = Some(Arc::new(comparator));
        self
    }

    /// Options for opening and reading tables: filter policies, caches. The default is [`OpenOptions::new`]. Its comparator is not
    /// used.
    pub fn tables(mut self, options: OpenOptions) -> DatabaseOptions {
        self.0.tables = options;
        self
    }

    /// Maximum number of open tables, each with its index and filter in memory; at least 1, and 500 by default. Ranges keep their
    /// current tables open.
    pub fn max_open_tables(mut self, most: usize) -> DatabaseOptions {
        self.0.max_open_tables = Some(most.max(1));
        self
    }

    /// Leaves out damaged records of logs instead of failing; [`Database::recovery`] then says which. Values that they set are
    /// missing, and values that they deleted or replaced reappear. `false` by default.
    pub fn skip_damaged(mut self, yes: bool) -> DatabaseOptions {
        self.0.skip_damaged = yes;
        self
    }

    /// Lets [`open_without_manifest`](DatabaseOptions::open_without_manifest) leave out files that another program holds instead of
    /// failing, as LevelDB holds its log and its MANIFEST on Windows. [`Recovery::held`](crate::Recovery::held) names them, and
    /// [`Recovery::unknown`](crate::Recovery::unknown) says what is not known without them. `false` by default.
    pub fn skip_held(mut self, yes: bool) -> DatabaseOptions {
        self.0.skip_held = yes;
        self
    }

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
        State::read_without_manifest(&dir, &self.0)
            .map(Handle::new)
            .map(Database::of)
    }

    pub(crate) fn open_in(&self, dir: Arc<dyn Directory>) -> Result<Database> {
        retry(|_| State::read(&dir, &self.0))
            .map(Handle::new)
            .map(Database::of)
    }
}
