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
//! `cargo run --release --example lsm` shows it at work: that is in `lsm/demo.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::ops::{Range, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::db::{Compaction, DbRange, MAX_SEQUENCE, ValueType};
use leveltable::{DbTable, ReadOptions, RibbonFilterPolicy, Table, TableCache, WriteOptions};

#[path = "lsm/demo.rs"]
mod demo;
#[path = "lsm/memtable.rs"]
mod memtable;

use memtable::{Change, Memtable, MemtableCursor, StoredKey, changes_in, table_of};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// A sequence number: what was written later is not seen. Compactions keep what a snapshot sees until it is dropped.
pub type Snapshot = Arc<u64>;
/// Sees all that is written.
pub const NOW: u64 = MAX_SEQUENCE;

/// Level and name of the file, the newest of a level first: in the order in which lookups ask them.
type Tables = BTreeSet<(u64, Reverse<String>)>;

const LAST_LEVEL: u64 = 6;
const FAILED: &str = "an earlier write failed, and no flush has succeeded since";

/// A database in a directory.
#[derive(Default)]
pub struct Lsm {
    dir: PathBuf,
    memtable_limit: usize,
    level_limit: usize,
    /// `None` after a failure, when nobody knows what is on disk.
    log: Option<(String, File)>,
    memtable: Arc<Memtable>,
    tables: Tables,
    open: TableCache<String, DbTable>,
    last_sequence: u64,
    last_file: u64,
    snapshots: Vec<Snapshot>,
}

impl Lsm {
    /// Opens or creates a database. A memtable is full with `memtable_limit` bytes, a level with `level_limit` tables.
    pub fn open(dir: impl Into<PathBuf>, memtable_limit: usize, level_limit: usize) -> Result<Lsm> {
        let mut lsm = Lsm::default();
        (lsm.dir, lsm.memtable_limit, lsm.level_limit) = (dir.into(), memtable_limit, level_limit);
        fs::create_dir_all(&lsm.dir)?;
        if lsm.dir.join("MANIFEST").try_exists()? {
            for file in Table::open(lsm.dir.join("MANIFEST"))?.iter() {
                let (name, value) = file?;
                lsm.recover(str::from_utf8(&name)?, str::from_utf8(&value)?.parse()?)?;
            }
        }
        lsm.flush()?; // Nothing is added to the old log: its end may be torn.
        Ok(lsm)
    }

    /// Reads a file that the manifest names, with the level of a table, or the sequence number after which a log begins.
    fn recover(&mut self, name: &str, value: u64) -> Result<()> {
        let (number, extension) = name.split_once('.').ok_or("no name of a database's file")?;
        self.last_file = self.last_file.max(number.parse()?);
        if extension == "ldb" {
            self.tables.insert((value, Reverse(name.into())));
            return Ok(());
        }
        let mut rest = &fs::read(self.dir.join(name))?[..];
        // Up to the first record that is not whole: a crash tore that one, and its `write` has not returned.
        while let Some((len, after)) = rest.split_first_chunk()
            && let Ok(len) = usize::try_from(u64::from_be_bytes(*len))
            && let Some((record, after)) = after.split_at_checked(len)
            && let Ok(changes) = changes_in(record)
        {
            self.apply(changes);
            rest = after;
        }
        self.last_sequence = self.last_sequence.max(value);
        Ok(())
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for (key, value) in changes {
            self.last_sequence = self.last_sequence.max(key.sequence());
            self.memtable.insert(key, value);
        }
    }

    /// Sets keys to values, and deletes those without a value. Returns when that is on disk. After an error or a crash, all of
    /// it is or nothing; after an error, nothing more is written until `flush` succeeds.
    pub fn write(&mut self, batch: &[(impl AsRef<[u8]>, Option<impl AsRef<[u8]>>)]) -> Result<()> {
        if self.log.as_ref().ok_or(FAILED)?.1.metadata()?.len() >= self.memtable_limit as u64 {
            self.flush()?;
        }
        let mut changes: Vec<Change> = Vec::new();
        for ((key, value), sequence) in batch.iter().zip(self.last_sequence + 1..) {
            let value = value.as_ref().map(AsRef::as_ref);
            let value_type = value.map_or(ValueType::Deletion, |_| ValueType::Value);
            let key = StoredKey::new(key.as_ref(), sequence, value_type);
            changes.push((key, Bytes::copy_from_slice(value.unwrap_or_default())));
        }
        changes.sort();
        // A record is a whole table, which brings its checksums. Syncing it takes longer than building it.
        let record = table_of(&changes)?;
        let (name, mut log) = self.log.take().ok_or(FAILED)?;
        log.write_all(&[&(record.len() as u64).to_be_bytes(), &*record].concat())?;
        log.sync_data()?;
        self.log = Some((name, log));
        self.apply(changes);
        Ok(())
    }

    /// Returns a snapshot of all that is written.
    pub fn snapshot(&mut self) -> Snapshot {
        let snapshot = Arc::new(self.last_sequence);
        self.snapshots.push(snapshot.clone());
        snapshot
    }

    /// Returns the value of `key`: [`NOW`], or as a snapshot sees it.
    pub fn get(&self, key: &[u8], at: u64) -> Result<Option<Bytes>> {
        if let Some(newest) = memtable::get(&self.memtable, key, at) {
            return Ok(newest);
        }
        // The newest table that knows the key decides. The filters of others say that they do not, nearly always without a read.
        for id in &self.tables {
            if let Some(version) = self.table(id)?.at(at).get(key)? {
                return Ok(version.into_value());
            }
        }
        Ok(None)
    }

    /// Returns a table, which is opened if it is not open.
    fn table(&self, (_, Reverse(name)): &(u64, Reverse<String>)) -> leveltable::Result<DbTable> {
        (self.open).get(name, || DbTable::open(self.dir.join(name)))
    }

    /// Iterates from both ends over the entries of `keys`, as [`get`](Lsm::get) sees them.
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>, at: u64) -> Result<DbRange> {
        let keys = (keys.start_bound().cloned(), keys.end_bound().cloned());
        let mut inputs = vec![DbRange::of(MemtableCursor::new(&self.memtable), keys)];
        for id in &self.tables {
            inputs.push(self.table(id)?.range(keys));
        }
        // The memtable may grow meanwhile, by what this does not see.
        Ok(DbTable::merge(inputs)?
            .at(at.min(self.last_sequence))
            .into_iter())
    }

    /// Writes the memtable to a table, starts a new log, and compacts full levels.
    pub fn flush(&mut self) -> Result<()> {
        let name = self.new_name("log");
        self.log = Some((name.clone(), File::create(self.dir.join(name))?));
        self.merge(
            0..0,
            Some(DbRange::of(MemtableCursor::new(&self.memtable), ..)),
            0,
        )?;
        self.memtable = Arc::default(); // Ranges keep the old one.
        for level in 0..=LAST_LEVEL {
            if self.tables.iter().filter(|id| id.0 == level).count() >= self.level_limit.max(2) {
                self.merge(level..level + 1, None, LAST_LEVEL.min(level + 1))?;
            }
        }
        Ok(())
    }

    /// Writes all that can be seen to a single table.
    pub fn compact(&mut self) -> Result<()> {
        self.flush()?;
        self.merge(0..LAST_LEVEL + 1, None, LAST_LEVEL)
    }

    /// Merges the tables of some levels and new entries to a table of level `to`, without what nobody can see.
    fn merge(&mut self, levels: Range<u64>, new: Option<DbRange>, to: u64) -> Result<()> {
        let log = self.log.take().ok_or(FAILED)?;
        let tables = self.tables.clone().into_iter();
        let (merged, mut tables): (Tables, Tables) = tables.partition(|id| levels.contains(&id.0));
        self.snapshots.retain(|one| Arc::strong_count(one) > 1);
        let snapshots = self.snapshots.iter().map(|one| **one);
        let uncached = ReadOptions::new().fill_cache(false); // the cache is for lookups
        let mut inputs: Vec<DbRange> = new.into_iter().collect();
        for id in &merged {
            inputs.push(self.table(id)?.with_read_options(uncached).iter());
        }
        let is_bottom = tables.iter().all(|id| id.0 < to);
        let seen = Compaction::new(DbTable::merge(inputs)?, snapshots);
        let seen = seen.drop_deletions_where(|_| is_bottom);
        let name = self.new_name("ldb");
        let options = WriteOptions::new().filter_policy(RibbonFilterPolicy::new(12)); // 0.03 % of absent keys pass
        let mut builder = options.create_db(self.dir.join(&name))?;
        builder.extend(seen)?;
        if builder.table_mut().entries() > 0 {
            builder.finish()?;
            tables.insert((to, Reverse(name)));
        }
        self.publish(tables, log)
    }

    /// Makes these the tables and the log of the database, and removes other files.
    fn publish(&mut self, tables: Tables, log: (String, File)) -> Result<()> {
        let mut files = BTreeMap::from([(log.0.clone(), self.last_sequence)]);
        files.extend(tables.iter().map(|(level, name)| (name.0.clone(), *level)));
        let mut manifest = WriteOptions::new().create(self.dir.join("MANIFEST"))?;
        for (name, value) in &files {
            manifest.add(name, value.to_string())?;
        }
        manifest.finish()?; // Also syncs the directory, with the names of the new table and the log.
        (self.tables, self.log) = (tables, Some(log));
        for file in fs::read_dir(&self.dir)? {
            let name = file?.file_name().into_string().unwrap_or_default();
            let is_ours = [".ldb", ".log", ".tmp"].map(|end| name.ends_with(end));
            if is_ours.contains(&true) && !files.contains_key(&name) {
                self.open.remove(&name);
                fs::remove_file(self.dir.join(name))?; // Open tables stay readable (on Windows they cannot be removed).
            }
        }
        Ok(())
    }

    fn new_name(&mut self, extension: &str) -> String {
        self.last_file += 1;
        format!("{:010}.{extension}", self.last_file)
    }
}

fn main() -> Result<()> {
    demo::run()
}
