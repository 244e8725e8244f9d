//! A small storage engine: an LSM tree like LevelDB, made of this crate's tables. An example to learn from, no product: one
//! thread uses it at a time, writes wait for compactions, and nothing keeps a second process out of its directory.
//!
//! ```text
//! a change       -> the log, which is synced, and then the memtable
//! full memtable  -> a table of level 0, and a new log
//! full level     -> one table of the next level, without the versions that nobody can see any more
//! MANIFEST       names the tables and the log. Its atomic replacement is the moment at which they change.
//! ```
//!
//! `cargo run --release --example lsm` shows it at work; see `lsm/demo.rs`. Memtable and log are in `lsm/memtable.rs`.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::ops::{Bound, Range, RangeBounds};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use leveltable::db::{DbRange, MAX_SEQUENCE, ValueType, Version};
use leveltable::{DbTable, OpenOptions, ReadOptions, RibbonFilterPolicy, Table, WriteOptions};
use memtable::{Log, Memtable};

#[path = "lsm/demo.rs"]
mod demo;
#[path = "lsm/memtable.rs"]
mod memtable;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// A sequence number: what was written later is not seen. Compactions keep what a snapshot sees until it is dropped.
pub type Snapshot = Arc<u64>;
/// Sees all that is written.
pub const NOW: u64 = MAX_SEQUENCE;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const FAILED: &str = "an earlier write failed, and no flush has succeeded since";

/// A database in a directory.
#[derive(Default)]
pub struct Lsm {
    dir: PathBuf,
    memtable_limit: usize,
    level_limit: usize,
    /// `None` after a failure, when nobody knows what is on disk.
    log: Option<Log>,
    memtable: Memtable,
    memtable_bytes: usize,
    /// Newest first, each with its level and the number of its file.
    tables: Vec<(u64, u64, DbTable)>,
    last_sequence: u64,
    last_file: u64,
    snapshots: Vec<Weak<u64>>,
}

impl Lsm {
    /// Opens or creates a database. A memtable is full with `memtable_limit` bytes, a level with `level_limit` tables.
    pub fn open(dir: impl Into<PathBuf>, memtable_limit: usize, level_limit: usize) -> Result<Lsm> {
        let mut lsm = Lsm::default();
        (lsm.dir, lsm.memtable_limit, lsm.level_limit) = (dir.into(), memtable_limit, level_limit);
        fs::create_dir_all(&lsm.dir)?;
        let manifest = lsm.dir.join("MANIFEST");
        if manifest.try_exists()? {
            lsm.recover(&Table::open(manifest)?)?;
        }
        lsm.flush()?; // Nothing is added to the old log: its end may be torn.
        Ok(lsm)
    }

    fn recover(&mut self, manifest: &Table) -> Result<()> {
        for entry in manifest {
            let (_, value) = entry?;
            let (level, number) = (number_in(&value[..8])?, number_in(&value[8..])?);
            let table = DbTable::open(self.path(number, "ldb"))?;
            self.tables.push((level, number, table));
            self.last_file = self.last_file.max(number);
        }
        let properties = manifest.properties().ok_or("no properties")?;
        self.last_sequence = number_in(properties.user("sequence").ok_or("no sequence")?)?;
        let number = number_in(properties.user("log").ok_or("no log")?)?;
        self.last_file = self.last_file.max(number);
        for record in Log::read(&self.path(number, "log"))? {
            self.apply(&record)?;
        }
        Ok(())
    }

    /// Sets keys to values, and deletes those without a value. Returns when that is on disk. After an error or a crash, all of
    /// it is or nothing; after an error, nothing more is written until `flush` succeeds.
    pub fn write(
        &mut self,
        changes: &[(impl AsRef<[u8]>, Option<impl AsRef<[u8]>>)],
    ) -> Result<()> {
        if self.memtable_bytes >= self.memtable_limit {
            self.flush()?;
        }
        let mut batch = Memtable::default();
        for ((key, value), sequence) in changes.iter().zip(self.last_sequence + 1..) {
            let value = value.as_ref().map(AsRef::as_ref);
            let version = value
                .map(Bytes::copy_from_slice)
                .map_or(Version::Deleted, Version::Value);
            batch.insert(key.as_ref(), sequence, version);
        }
        let record = batch.table(ALL)?;
        let mut log = self.log.take().ok_or(FAILED)?;
        log.append(&record)?;
        self.log = Some(log);
        self.memtable_bytes += record.len();
        self.apply(&OpenOptions::new().open_db_source(record)?)
    }

    /// Adds a record of the log to the memtable.
    fn apply(&mut self, record: &DbTable) -> Result<()> {
        for entry in record {
            let entry = entry?;
            self.last_sequence = self.last_sequence.max(entry.sequence);
            self.memtable
                .insert(&entry.user_key, entry.sequence, entry.version);
        }
        Ok(())
    }

    /// Returns a snapshot of all that is written.
    pub fn snapshot(&mut self) -> Snapshot {
        let snapshot = Arc::new(self.last_sequence);
        self.snapshots.push(Arc::downgrade(&snapshot));
        snapshot
    }

    /// Returns the value of `key`: [`NOW`], or as a snapshot sees it.
    pub fn get(&self, key: &[u8], at: u64) -> Result<Option<Bytes>> {
        let mut found = self.memtable.get(key, at);
        // The newest table that knows the key decides. The filters of others say that they do not, nearly always without a read.
        let mut tables = self.tables.iter();
        while found.is_none()
            && let Some((_, _, table)) = tables.next()
        {
            found = table.get_at(key, at)?;
        }
        match found {
            Some(Version::Value(value)) => Ok(Some(value)),
            Some(Version::Deleted) | None => Ok(None),
        }
    }

    /// Iterates from both ends over the entries of `keys`, as [`get`](Lsm::get) sees them. Copies what the memtable has of them.
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>, at: u64) -> Result<DbRange> {
        let keys = (keys.start_bound().cloned(), keys.end_bound().cloned());
        // As a table in memory, the memtable is one more input of the merge.
        let memtable = self.memtable.table(keys)?;
        let memtable = OpenOptions::new().open_db_source(memtable)?.iter();
        let tables = self.tables.iter().map(|(_, _, table)| table.range(keys));
        Ok(DbTable::merge(tables.chain([memtable]))?.at(at).into_iter())
    }

    /// Writes the memtable to a table, starts a new log, and compacts full levels.
    pub fn flush(&mut self) -> Result<()> {
        let memtable = self.memtable.table(ALL)?;
        let memtable = OpenOptions::new().open_db_source(memtable)?;
        let number = self.new_file();
        let log = Log::create(number, &self.path(number, "log"))?;
        self.rewrite(0..0, vec![memtable], 0, log)?;
        self.memtable = Memtable::default();
        self.memtable_bytes = 0;
        for level in 0.. {
            let start = self.tables.partition_point(|table| table.0 < level);
            let end = self.tables.partition_point(|table| table.0 <= level);
            if end - start >= self.level_limit.max(2) {
                self.merge(start..end, level + 1)?;
            } else if end == self.tables.len() {
                break;
            }
        }
        Ok(())
    }

    /// Writes all that can be seen to a single table.
    pub fn compact(&mut self) -> Result<()> {
        self.flush()?;
        let level = self.tables.last().map_or(0, |table| table.0);
        self.merge(0..self.tables.len(), level)
    }

    /// Merges tables into one of the given level.
    fn merge(&mut self, run: Range<usize>, level: u64) -> Result<()> {
        let options = ReadOptions::new().fill_cache(false); // the cache is for lookups
        let tables = self.tables[run.clone()].iter();
        let inputs = tables.map(|(_, _, table)| table.with(options)).collect();
        let log = self.log.take().ok_or(FAILED)?;
        self.rewrite(run, inputs, level, log)
    }

    /// Puts a table of all that can be seen of the inputs in the place of `run`.
    fn rewrite(
        &mut self,
        run: Range<usize>,
        inputs: Vec<DbTable>,
        level: u64,
        log: Log,
    ) -> Result<()> {
        self.log = None; // until all of this has succeeded
        self.snapshots.retain(|weak| weak.strong_count() > 0);
        let snapshots = self.snapshots.iter().filter_map(Weak::upgrade).map(|s| *s);
        let readers: BTreeSet<u64> = snapshots.chain([NOW]).collect();
        let number = self.new_file();
        let path = self.path(number, "ldb");
        let filter = RibbonFilterPolicy::new(12); // 0.03 % of absent keys pass
        let mut builder = WriteOptions::new().filter_policy(filter).create_db(&path)?;
        let mut versions = DbTable::merge(inputs)?;
        let (mut last_key, mut newer) = (Vec::new(), u64::MAX);
        while versions.next()? {
            let (key, sequence) = (versions.user_key(), versions.sequence());
            if key != last_key {
                (last_key, newer) = (key.to_vec(), u64::MAX);
            }
            // Readers see a version from its own number up to that of the next newer one.
            let is_seen = readers.range(sequence..newer).next().is_some();
            newer = sequence;
            // A deletion hides older versions. At the bottom there are none left, unless a reader is older.
            let hides = run.end < self.tables.len() || readers.first() < Some(&sequence);
            match versions.value_type() {
                ValueType::Value if is_seen => builder.put(key, sequence, versions.value())?,
                ValueType::Deletion if is_seen && hides => builder.delete(key, sequence)?,
                _ => {}
            }
        }
        let mut tables = self.tables.clone();
        tables.drain(run.clone());
        if builder.entries() > 0 {
            builder.finish()?;
            tables.insert(run.start, (level, number, DbTable::open(path)?));
        }
        // Publishing the manifest also syncs the directory, with the names of the new table and the log.
        let mut manifest = WriteOptions::new().create(self.dir.join("MANIFEST"))?;
        let mut named = HashSet::from([self.path(log.number, "log")]);
        for (position, (level, number, _)) in (0u64..).zip(&tables) {
            let value = [level.to_be_bytes(), number.to_be_bytes()].concat();
            manifest.add(position.to_be_bytes(), value)?;
            named.insert(self.path(*number, "ldb"));
        }
        manifest.property("sequence", self.last_sequence.to_be_bytes())?;
        manifest.property("log", log.number.to_be_bytes())?;
        manifest.finish()?;
        (self.tables, self.log) = (tables, Some(log));
        for file in fs::read_dir(&self.dir)? {
            let path = file?.path();
            let extension = path.extension().unwrap_or_default();
            let is_ours = extension == "ldb" || extension == "log" || extension == "tmp";
            if is_ours && !named.contains(&path) {
                fs::remove_file(path)?; // Open tables stay readable (on Windows they cannot be removed).
            }
        }
        Ok(())
    }

    fn new_file(&mut self) -> u64 {
        self.last_file += 1;
        self.last_file
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.dir.join(format!("{number:06}.{extension}"))
    }
}

fn number_in(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}

fn main() -> Result<()> {
    demo::run()
}
