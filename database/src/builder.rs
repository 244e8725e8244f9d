//! Writes a new database: takes versions in ascending order, and publishes a directory at the end.

use std::cmp::Ordering;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use leveltable::db::{InternalKey, ValueType};
use leveltable::sister_crates::{parse_version, rename_patiently, show_key};
use leveltable::{BytewiseComparator, Comparator, DbTableBuilder, Error, ErrorKind, Result};
use leveltable::{SortedInput, WriteOptions};

use crate::directory::file_name;
use crate::log::encode_record;
use crate::record::{Edit, TableMetadata};
use crate::storage::{NewDirectory, NewFile, NewFileSystem, check_space, failed, taken};

/// Number of the MANIFEST; tables come after it.
const MANIFEST_NUMBER: u64 = 1;

/// The sequence number of entries that come without one. All get the same: keys are distinct, and equal numbers compress best.
const SEQUENCE: u64 = 1;

/// Size at which LevelDB compacts level 1 into the next, in bytes; each further level may be ten times as large. The last level,
/// 6, has no limit.
const LEVEL_1_LIMIT: u64 = 10 << 20;

/// Options for writing a database with a [`DatabaseBuilder`].
///
/// ```
/// use leveltable::WriteOptions;
/// use leveltable_database::{DatabaseBuildOptions, IndexedDbComparator};
///
/// let options = DatabaseBuildOptions::new()
///     .comparator(IndexedDbComparator)
///     .tables(WriteOptions::leveldb().block_size(16 << 10))
///     .table_bytes(64 << 20)
///     .expected_bytes(10 << 30)
///     .last_sequence(1000);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct DatabaseBuildOptions {
    comparator: Arc<dyn Comparator>,
    tables: WriteOptions,
    table_bytes: u64,
    expected_bytes: Option<u64>,
    last_sequence: u64,
}

impl Default for DatabaseBuildOptions {
    fn default() -> DatabaseBuildOptions {
        DatabaseBuildOptions::new()
    }
}

impl DatabaseBuildOptions {
    /// Bytewise order, tables of 2 MiB with [`WriteOptions::leveldb`]: Snappy, and LevelDB's filter of 10 bits per key.
    pub fn new() -> DatabaseBuildOptions {
        DatabaseBuildOptions {
            comparator: Arc::new(BytewiseComparator),
            tables: WriteOptions::leveldb(),
            table_bytes: 2 << 20,
            expected_bytes: None,
            last_sequence: 0,
        }
    }

    /// The order of user keys, which is recorded in the MANIFEST. Bytewise by default.
    pub fn comparator(mut self, comparator: impl Comparator) -> DatabaseBuildOptions {
        self.comparator = Arc::new(comparator);
        self
    }

    /// Options for tables: by default [`WriteOptions::leveldb`]. LevelDB only uses the filters of tables written with options that start
    /// from these. The comparator of these options is not used.
    pub fn tables(mut self, options: WriteOptions) -> DatabaseBuildOptions {
        self.tables = options;
        self
    }

    /// Ends a table when its data reaches this many bytes, as LevelDB's `max_file_size` does, but never between two versions of a
    /// key. At least 1; 2 MiB by default.
    pub fn table_bytes(mut self, bytes: u64) -> DatabaseBuildOptions {
        self.table_bytes = bytes.max(1);
        self
    }

    /// The expected size of the database in bytes. If less space is free, creating the builder fails before any work. By default,
    /// twice the size of a table.
    pub fn expected_bytes(mut self, bytes: u64) -> DatabaseBuildOptions {
        self.expected_bytes = Some(bytes);
        self
    }

    /// The last sequence number of the database, if no entry has a higher one: a copy that lacks its newest deletion should still
    /// end with that. 0 by default.
    pub fn last_sequence(mut self, sequence: u64) -> DatabaseBuildOptions {
        self.last_sequence = sequence;
        self
    }
}

/// Builds a LevelDB database from entries in ascending order: add every entry, then [`finish`](DatabaseBuilder::finish).
///
/// The directory appears at its path when it is finished: complete and synced, by one rename, or not at all. Until then its files
/// are in a temporary directory beside it, `.leveltable-XXXXXX.tmp`, which is removed when the builder is dropped. A killed
/// process leaves that directory, which can be deleted; the next build beside it [reports it](BuiltDatabase::leftovers).
///
/// All tables are in one level: the first one from 1 on that may be so large, so that LevelDB compacts nothing when it opens the
/// database. There is no log. The same entries and options make the same bytes. Memory is that of two tables: one is written while
/// the next is built. No file is open while the builder waits for entries.
///
/// ```
/// use leveltable_database::{Database, DatabaseBuildOptions, DatabaseBuilder};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("fruit");
/// let mut builder = DatabaseBuilder::create(&path, DatabaseBuildOptions::new())?;
/// builder.put("apple", "red")?;
/// builder.put("banana", "yellow")?;
/// let built = builder.finish()?;
/// assert_eq!((built.tables, built.entries, built.level), (1, 2, 1));
///
/// let db = Database::open_read_only(&path)?;
/// assert_eq!(db.get("banana")?.as_deref(), Some(&b"yellow"[..]));
/// # Ok::<(), leveltable::Error>(())
/// ```
///
/// With LevelDB, one would call `DB::Write` with batches, and compactions would write each entry several times.
#[derive(Debug)]
#[must_use = "there is no database until `finish`"]
pub struct DatabaseBuilder {
    /// The current table, in memory: Windows cannot remove a directory with open files when a build that waits for entries is
    /// interrupted.
    table: Option<DbTableBuilder<Vec<u8>>>,
    /// Dropped before `target`, for the same reason.
    writing: Writing,
    target: Box<dyn NewDirectory>,
    options: DatabaseBuildOptions,
    /// Whether the table has reached its size, and ends before the next user key.
    is_full: bool,
    /// The last user key added to a full table.
    last_key: Vec<u8>,
    /// Number of the last file.
    number: u64,
    /// The finished tables.
    tables: Vec<TableMetadata>,
    built: BuiltDatabase,
    /// Whether a file could not be written.
    is_broken: bool,
}

/// A table that is being written and synced while the next one is built: waiting for the disk took half of the time of a build.
#[derive(Debug, Default)]
struct Writing(Option<JoinHandle<Result<()>>>);

impl Writing {
    /// Begins to write a table, after the one before it.
    fn start(&mut self, mut file: Box<dyn NewFile>, table: Vec<u8>, path: PathBuf) -> Result<()> {
        self.finish()?;
        let at = path.clone();
        let thread = thread::Builder::new().spawn(move || {
            let written = file.write_all(&table);
            written.map_err(|error| failed("writing the table", error, &path))?;
            let synced = file.sync();
            synced.map_err(|error| failed("syncing the table", error, &path))
        });
        let started = thread.map_err(|e| failed("starting a thread to write the table", e, &at));
        self.0 = Some(started?);
        Ok(())
    }

    /// Waits until the table is on disk.
    fn finish(&mut self) -> Result<()> {
        let thread = self.0.take();
        thread.map_or(Ok(()), |thread| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // Nothing waits for the result of a builder that is dropped, and its file is to be closed.
        self.0.take().map(JoinHandle::join);
    }
}

/// A finished database, returned by [`DatabaseBuilder::finish`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuiltDatabase {
    /// Number of tables.
    pub tables: u64,
    /// Number of entries; each version of a key counts.
    pub entries: u64,
    /// Total size of all files in bytes.
    pub bytes: u64,
    /// The level of the tables.
    pub level: u32,
    /// The last sequence number.
    pub last_sequence: u64,
    /// Temporary directories beside the new one: of killed builds, or of a build still at work.
    pub leftovers: Vec<PathBuf>,
}

impl DatabaseBuilder {
    /// Starts a database that appears at `directory`. A relative path is resolved now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if something is at the path (including a symbolic link or an empty directory), its parent is not a
    /// directory, no directory can be made there, or less space is free than [expected](DatabaseBuildOptions::expected_bytes);
    /// [`ErrorKind::InvalidState`] if an option of the tables is out of its range.
    pub fn create(
        directory: impl AsRef<Path>,
        options: DatabaseBuildOptions,
    ) -> Result<DatabaseBuilder> {
        let target = NewFileSystem::create(directory.as_ref())?;
        DatabaseBuilder::create_in(Box::new(target), options)
    }

    /// Starts a database in a new directory of any kind.
    pub(crate) fn create_in(
        target: Box<dyn NewDirectory>,
        mut options: DatabaseBuildOptions,
    ) -> Result<DatabaseBuilder> {
        options.tables = options.tables.comparator(options.comparator.clone());
        // The first call of a builder checks its options.
        options.tables.build_db(io::sink()).table_mut().flush()?;
        let needed = options.expected_bytes;
        let needed = needed.unwrap_or(options.table_bytes.saturating_mul(2));
        check_space(&*target, needed)?;
        let (last_sequence, leftovers) = (options.last_sequence, target.leftovers());
        Ok(DatabaseBuilder {
            target,
            options,
            table: None,
            writing: Writing::default(),
            is_full: false,
            last_key: Vec::new(),
            number: MANIFEST_NUMBER,
            tables: Vec::new(),
            built: BuiltDatabase {
                last_sequence,
                leftovers,
                ..BuiltDatabase::default()
            },
            is_broken: false,
        })
    }

    /// The path of the files until [`finish`](DatabaseBuilder::finish). A program that may be ended by a signal removes this
    /// directory itself, since nothing is dropped then.
    pub fn temporary_path(&self) -> Option<&Path> {
        self.target.temporary_path()
    }

    /// Adds an entry. Keys come in ascending order, each once. Its sequence number is 1.
    ///
    /// # Errors
    ///
    /// Same as [`add`](DatabaseBuilder::add).
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (user_key, sequence, value_type) = (key.as_ref(), SEQUENCE, ValueType::Value);
        self.add(
            InternalKey {
                user_key,
                sequence,
                value_type,
            },
            value,
        )
    }

    /// Adds a version of a key: a value or a deletion, whose value is empty. User keys ascend, and the versions of each go from the
    /// newest to the oldest.
    ///
    /// # Errors
    ///
    /// Same as [`TableBuilder::add`](leveltable::TableBuilder::add). After [`ErrorKind::OutOfOrder`] the builder can be used further. If
    /// a file could not be created, written or synced, the error names it, and every further call fails.
    pub fn add(&mut self, version: InternalKey<'_>, value: impl AsRef<[u8]>) -> Result<()> {
        if self.is_broken {
            return Err(broken());
        }
        let is_next = self.is_full && self.comes_after_last(version.user_key)?;
        match &mut self.table {
            Some(table) if !is_next => table.add(version, value)?,
            _ => {
                // If its first entry is rejected, the table before it goes on.
                let mut next = self.options.tables.build_db(Vec::new());
                next.add(version, value)?;
                self.end_table()?;
                self.table = Some(next);
            }
        }
        let (table, full) = (self.table.as_mut(), self.options.table_bytes);
        self.is_full = table.is_some_and(|table| table.table_mut().file_bytes() >= full);
        if self.is_full {
            version.user_key.clone_into(&mut self.last_key);
        }
        self.built.entries += 1;
        self.built.last_sequence = self.built.last_sequence.max(version.sequence);
        Ok(())
    }

    /// Adds all entries of a source of plain keys, like [`put`](DatabaseBuilder::put): a map, a table, a merge, a range of a database.
    ///
    /// ```
    /// # use leveltable::SortedEntries;
    /// # use leveltable_database::{DatabaseBuildOptions, DatabaseBuilder};
    /// # use std::collections::BTreeMap;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("fruit");
    /// let map = BTreeMap::from([("apple", "red"), ("banana", "yellow")]);
    /// let mut builder = DatabaseBuilder::create(&path, DatabaseBuildOptions::new())?;
    /// builder.extend(SortedEntries::new(&map))?;
    /// assert_eq!(builder.finish()?.entries, 2);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the source, and of [`add`](DatabaseBuilder::add).
    pub fn extend(&mut self, mut source: impl SortedInput) -> Result<()> {
        while source.advance()? {
            self.put(source.key(), source.value())?;
        }
        Ok(())
    }

    /// Adds all entries of a source of internal keys, like [`add`](DatabaseBuilder::add): a merge of a database's tables, a
    /// [`Compaction`](leveltable::db::Compaction).
    ///
    /// # Errors
    ///
    /// Same as [`extend`](DatabaseBuilder::extend), and [`ErrorKind::InvalidState`] for a key that is not an internal
    /// key.
    pub fn extend_versions(&mut self, mut source: impl SortedInput) -> Result<()> {
        while source.advance()? {
            self.add(parse_version(source.key())?, source.value())?;
        }
        Ok(())
    }

    /// Writes the rest, syncs everything, and renames the directory to its path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`], with the file and the step that failed. The directory then does not exist; anything at the path was put there by
    /// somebody else. The exception is a parent directory that could not be synced, which the error says: the database is complete and at
    /// its path, but its name may not survive a crash.
    pub fn finish(mut self) -> Result<BuiltDatabase> {
        self.end_table()?;
        self.writing.finish()?;
        let bytes = self.tables.iter().map(|table| table.size).sum();
        let level = level_for(bytes);
        self.built.tables = self.tables.len() as u64;
        (self.built.bytes, self.built.level) = (bytes, level);
        let edit = Edit {
            comparator: Some(self.options.comparator.name().into()),
            log_number: Some(0),
            prev_log_number: Some(0),
            next_file_number: Some(self.number + 1),
            last_sequence: Some(self.built.last_sequence),
            deleted: Vec::new(),
            added: self.tables.drain(..).map(|table| (level, table)).collect(),
        };
        let manifest = format!("MANIFEST-{MANIFEST_NUMBER:06}");
        self.write_file(&manifest, &encode_record(&edit.encode()))?;
        self.write_file("CURRENT", format!("{manifest}\n").as_bytes())?;
        self.publish()?;
        Ok(self.built)
    }

    fn publish(&mut self) -> Result<()> {
        let path = self.target.path().to_owned();
        let target = &mut self.target;
        let synced = target.sync();
        synced.map_err(|error| failed("syncing the directory of a new database", error, &path))?;
        let published = rename_patiently(|| target.publish());
        published.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(&path),
            _ => failed("renaming a finished database to its path", error, &path),
        })?;
        let doing = "the database is at its path and whole, but its name may not survive a crash: syncing its parent directory";
        target
            .sync_name()
            .map_err(|error| failed(doing, error, &path))
    }

    /// Whether a user key comes after the last one of a full table, rather than being another version of it.
    fn comes_after_last(&self, key: &[u8]) -> Result<bool> {
        match self.options.comparator.compare(&self.last_key, key) {
            Ordering::Less => Ok(true),
            Ordering::Equal => Ok(false),
            Ordering::Greater => {
                let (key, last) = (show_key(key), show_key(&self.last_key));
                let message =
                    format!("key {key} comes before {last}, the last one added: user keys ascend");
                Err(Error::new(ErrorKind::OutOfOrder, message))
            }
        }
    }

    fn end_table(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Err(broken());
        }
        if let Some(table) = self.table.take() {
            let (table, summary) = table.finish_into_writer()?;
            self.number += 1;
            let name = file_name(self.number, "ldb");
            let path = self.target.path().join(&name);
            let file = self.target.create(&name);
            let file = file.map_err(|error| failed("creating the table", error, &path))?;
            self.writing.start(file, table, path)?;
            let properties = summary.properties;
            self.tables.push(TableMetadata {
                number: self.number,
                size: summary.file_bytes,
                smallest: properties.first_key.unwrap_or_default(),
                largest: properties.last_key.unwrap_or_default(),
            });
        }
        (self.is_broken, self.is_full) = (false, false);
        Ok(())
    }

    /// Writes a small file, and syncs it.
    fn write_file(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.target.path().join(name);
        let step = |doing| {
            let path = &path;
            move |error| failed(doing, error, path)
        };
        let mut file = self
            .target
            .create(name)
            .map_err(step("creating the file"))?;
        file.write_all(bytes).map_err(step("writing the file"))?;
        file.sync().map_err(step("syncing the file"))?;
        self.built.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Returns the first level from 1 on that LevelDB does not compact at this size.
fn level_for(bytes: u64) -> u32 {
    let limits = (0..5).map(|level| LEVEL_1_LIMIT * 10u64.pow(level));
    1 + limits.take_while(|&limit| bytes >= limit).count() as u32
}

#[cold]
fn broken() -> Error {
    let message = "a file of this database could not be written before: build it again";
    Error::new(ErrorKind::InvalidState, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_less_than_its_limit() {
        const MIB: u64 = 1 << 20;
        let bytes = [0, 10 * MIB - 1, 10 * MIB, 100 * MIB - 1, 100 * MIB];
        assert_eq!(bytes.map(level_for), [1, 1, 2, 2, 3]);
        let bytes = [1000 * MIB, 10_000 * MIB, 100_000 * MIB, u64::MAX];
        assert_eq!(bytes.map(level_for), [4, 5, 6, 6]);
    }
}
