//! A database: lookups in its logs and tables.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use leveltable::db::DbEntry;
use leveltable::{BytewiseComparator, Comparator, Error, ErrorKind, KeyRange, Result};

use crate::options::DatabaseOptions;
use crate::range::DatabaseRange;
use crate::recovery::Recovery;
use crate::state::{MAX_ATTEMPTS, State};

/// A LevelDB database, opened for reading only: its live contents as of opening, or of the last [`refresh`](Database::refresh).
///
/// Takes no lock and writes nothing, so a writer can be at work in another process. What a writer does later is not seen until a
/// refresh. Each lookup and each range shows the contents after one write batch, never half of one.
///
/// Cheap to clone: clones share everything. Can be used by many threads at a time.
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
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    dir: PathBuf,
    options: DatabaseOptions,
    /// Locked only to take or to replace it.
    state: RwLock<Arc<State>>,
}

impl Shared {
    pub(crate) fn state(&self) -> Arc<State> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }

    /// Reads the database again.
    fn read_again(&self) -> Result<()> {
        let read = State::read(&self.dir, &self.options, Some(&self.state()))?;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read it later.
        if state.current != read.current || state.progress() <= read.progress() {
            *state = Arc::new(read);
        }
        Ok(())
    }

    /// Does something with the state; after reading the database again, if the state turns out to be out of date.
    pub(crate) fn with_state<T>(&self, work: impl Fn(&Arc<State>) -> Result<T>) -> Result<T> {
        for _ in 1..MAX_ATTEMPTS {
            match work(&self.state()) {
                Err(error) if error.kind() == ErrorKind::Replaced => self.read_again()?,
                result => return result,
            }
        }
        work(&self.state())
    }
}

impl Database {
    /// Opens the database in the directory `dir` with [`DatabaseOptions::new`].
    ///
    /// Reads CURRENT, the MANIFEST and the logs. Holds the newest version of each key in the logs, usually up to 4 MiB. Tables are
    /// opened when they are first needed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotADatabase`], with what the directory looks like; [`ErrorKind::Unsupported`] for a database of RocksDB or
    /// Pebble; [`ErrorKind::Corruption`] for damage in the MANIFEST or a log, with file and offset;
    /// [`ErrorKind::Replaced`] if a writer changes the database too often while it is read; [`ErrorKind::Io`].
    ///
    /// A record at the end of a log or MANIFEST that its writer did not finish is no error: see [`recovery`](Database::recovery).
    pub fn open_read_only(dir: impl AsRef<Path>) -> Result<Database> {
        DatabaseOptions::new().open_read_only(dir)
    }

    pub(crate) fn new(dir: &Path, options: &DatabaseOptions, state: State) -> Database {
        let shared = Shared {
            dir: dir.to_owned(),
            options: options.clone(),
            state: RwLock::new(Arc::new(state)),
        };
        Database {
            shared: Arc::new(shared),
        }
    }

    /// The directory, as it was given.
    pub fn path(&self) -> &Path {
        &self.shared.dir
    }

    /// Returns the value of `key`; `None` if there is none, or it was deleted.
    ///
    /// Asks the logs in memory, each table of level 0 whose keys may include it, and of each further level the one that may, until
    /// one knows the key. Each asks its filter first. If a table has vanished because the writer has compacted it, reads the
    /// database again and starts over: the result is then of that time.
    ///
    /// # Errors
    ///
    /// Those of opening and reading tables, [`ErrorKind::Comparator`] if the order is not known, and those of
    /// [`open_read_only`](Database::open_read_only) where the database is read again.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let key = key.as_ref();
        let found = self.shared.with_state(|state| state.find(key))?;
        Ok(found.and_then(|entry| entry.version.into_value()))
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    ///
    /// As [`get`](Database::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns the values of many keys, in the order of `keys`, all as of the same moment.
    ///
    /// Reads the blocks of a table many at a time.
    ///
    /// # Errors
    ///
    /// As [`get`](Database::get); no value is returned then.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let found = self.shared.with_state(|state| state.find_many(&keys))?;
        let value = |found: Option<DbEntry>| found.and_then(|entry| entry.version.into_value());
        Ok(found.into_iter().map(value).collect())
    }

    /// All entries in order, from either end.
    ///
    /// In a database whose order is not known, entries come as its files store them, from the front only, and the keys are held in
    /// memory meanwhile.
    pub fn iter(&self) -> DatabaseRange {
        self.range(..)
    }

    /// The entries whose keys are within `bounds`, from either end. Tables are opened when the range gets to them.
    pub fn range(&self, bounds: impl KeyRange) -> DatabaseRange {
        DatabaseRange::new(self.shared.clone(), Ok(bounds.key_bounds()))
    }

    /// The entries whose keys begin with `prefix`, from either end.
    ///
    /// Only in bytewise order do such keys always lie together. In any other order the only item is an error of
    /// [`ErrorKind::Comparator`]: use a range there.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> DatabaseRange {
        let (order, prefix) = (self.comparator(), prefix.as_ref());
        let bounds = if order == BytewiseComparator.name() {
            Ok((Bound::Included(prefix.to_vec()), prefix_end(prefix)))
        } else {
            let message = format!(
                "keys of one prefix need not lie together in the order {order:?}: use a range"
            );
            Err(Error::new(ErrorKind::Comparator, message))
        };
        DatabaseRange::new(self.shared.clone(), bounds)
    }

    /// The name of the comparator, such as `leveldb.BytewiseComparator`.
    pub fn comparator(&self) -> String {
        self.shared.state().order_name.clone()
    }

    /// Whether the order is known. Lookups, bounds and walks back are errors of [`ErrorKind::Comparator`] otherwise.
    pub fn has_known_order(&self) -> bool {
        self.shared.state().order.is_some()
    }

    /// The sequence number of the last change. Without a MANIFEST, of the last one in logs.
    ///
    /// Older sequence numbers are no snapshots: compactions drop what nobody had asked to keep. See
    /// [`history`](Database::history).
    pub fn last_sequence(&self) -> u64 {
        self.shared.state().last_sequence
    }

    /// What was read at opening, or at the last refresh, and what was passed over.
    pub fn recovery(&self) -> Recovery {
        self.shared.state().recovery.clone()
    }

    /// Reads the database again if it has changed. Returns whether it had. Ranges go on showing what they were made of.
    ///
    /// Costs a look at CURRENT, the MANIFEST and the directory, or what opening costs. Open tables stay open.
    ///
    /// # Errors
    ///
    /// As [`open_read_only`](Database::open_read_only); the contents are those from before then.
    pub fn refresh(&self) -> Result<bool> {
        if self.shared.state().is_up_to_date()? {
            return Ok(false);
        }
        self.shared.read_again()?;
        Ok(true)
    }

    /// Opens all tables, and keeps them open until the next [`refresh`](Database::refresh), whatever
    /// [`max_open_tables`](DatabaseOptions::max_open_tables) says. Ranges over a pinned database end well beside a writer: on Unix,
    /// a table that is open stays readable after its removal.
    ///
    /// # Errors
    ///
    /// As [`get`](Database::get).
    pub fn pin(&self) -> Result<()> {
        self.shared.with_state(|state| state.pin())
    }
}

/// All entries, as by [`Database::iter`].
impl IntoIterator for &Database {
    type Item = Result<(Bytes, Bytes)>;
    type IntoIter = DatabaseRange;

    fn into_iter(self) -> DatabaseRange {
        self.iter()
    }
}

/// The upper bound of the keys that begin with `prefix`, in bytewise order.
fn prefix_end(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == 0xff).is_some() {}
    match end.last_mut() {
        Some(last) => *last += 1,
        None => return Bound::Unbounded,
    }
    Bound::Excluded(end)
}
