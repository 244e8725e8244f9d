//! A small storage engine: an LSM tree like LevelDB, made of this crate's tables. It is an example to learn from and no product:
//! one thread uses it at a time, writes wait for compactions, and nothing keeps a second process out of its directory.
//!
//! ```text
//! a change       -> the log, which is synced, and then the memtable
//! full memtable  -> a table in level 0, and a new log
//! full level     -> one table in the next level, without the versions that nobody can see any more
//! MANIFEST       names the tables of each level and the log. It is replaced atomically: that is when a change of files counts.
//! ```
//!
//! `cargo run --release --example lsm` shows it at work; see `lsm/demo.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::ops::{Range, RangeBounds};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use leveltable::db::{DbRange, MAX_SEQUENCE, ValueType, Version};
use leveltable::{Compression, DbTable, DbTableBuilder, Destination, OpenOptions};
use leveltable::{ReadOptions, Table, TableBuilder, WriteOptions};

#[path = "lsm/demo.rs"]
mod demo;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// The versions of each key by their sequence numbers, newest first.
type Memtable = BTreeMap<Vec<u8>, BTreeMap<Reverse<u64>, Version>>;
/// The tables of each level with the numbers of their files, newest first.
type Levels = Vec<Vec<(u64, DbTable)>>;
/// What was written up to a sequence number. Compactions keep what a snapshot sees until it is dropped.
pub type Snapshot = Arc<u64>;
/// Sees all that is written.
pub const NOW: u64 = MAX_SEQUENCE;

const FAILED: &str = "writing failed before: open the database anew";

/// A database in a directory.
#[derive(Default)]
pub struct Lsm {
    dir: PathBuf,
    memtable_limit: usize,
    level_limit: usize,
    /// With its number. `None` after a failure, when nobody knows what is on disk.
    log: Option<(u64, File)>,
    memtable: Memtable,
    memtable_bytes: usize,
    levels: Levels,
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
            let (place, number) = entry?;
            let (level, number) = (usize::from(place[0]), number_in(&number)?);
            let table = DbTable::open(self.path(number, "ldb"))?;
            self.levels.resize_with(level + 1, Vec::new);
            self.levels[level].push((number, table));
            self.last_file = self.last_file.max(number);
        }
        let properties = manifest.properties().ok_or("no properties")?;
        self.last_sequence = number_in(properties.user("sequence").ok_or("no sequence")?)?;
        let number = number_in(properties.user("log").ok_or("no log")?)?;
        self.last_file = self.last_file.max(number);
        let log = fs::read(self.path(number, "log"))?;
        let mut rest = log.as_slice();
        while let Some(len) = rest.split_off(..8)
            && let Some(record) = rest.split_off(..usize::try_from(number_in(len)?)?)
            && self.apply(record.to_vec()).is_ok()
        {} // A crash may have torn the last record. Its write has not returned.
        Ok(())
    }

    /// Sets keys to values, and deletes those without a value. Returns when all of that is on disk; after an error or a crash,
    /// all of it or nothing is. After an error, nothing more is written until the database is opened anew.
    pub fn write(
        &mut self,
        changes: &[(impl AsRef<[u8]>, Option<impl AsRef<[u8]>>)],
    ) -> Result<()> {
        if self.memtable_bytes >= self.memtable_limit {
            self.flush()?;
        }
        let mut batch = Memtable::new();
        for ((key, value), sequence) in changes.iter().zip(self.last_sequence + 1..) {
            let value = value.as_ref().map(|v| Bytes::copy_from_slice(v.as_ref()));
            let version = value.map_or(Version::Deleted, Version::Value);
            let versions = batch.entry(key.as_ref().to_vec()).or_default();
            versions.insert(Reverse(sequence), version);
        }
        // A record is a whole table, which brings its checksums. That adds microseconds, and the sync takes milliseconds.
        let record = in_memory(batch.iter())?;
        let (number, mut log) = self.log.take().ok_or(FAILED)?; // stays `None` if this fails
        log.write_all(&[&(record.len() as u64).to_be_bytes()[..], &record].concat())?;
        log.sync_data()?;
        self.log = Some((number, log));
        self.apply(record)
    }

    /// Adds the changes of a record to the memtable; nothing if it is damaged.
    fn apply(&mut self, record: Vec<u8>) -> Result<()> {
        self.memtable_bytes += record.len();
        let record = OpenOptions::new().open_db_source(record)?;
        for entry in record.iter().collect::<leveltable::Result<Vec<_>>>()? {
            self.last_sequence = self.last_sequence.max(entry.sequence);
            let versions = self.memtable.entry(entry.user_key.to_vec()).or_default();
            versions.insert(Reverse(entry.sequence), entry.version);
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
        let versions = self.memtable.get(key);
        let newest = versions.and_then(|versions| versions.range(Reverse(at)..).next());
        let mut found = newest.map(|(_, version)| version.clone());
        // The newest table that knows the key decides. The filters of those before it say that they do not, without a read.
        let mut tables = self.levels.iter().flatten();
        while found.is_none()
            && let Some((_, table)) = tables.next()
        {
            found = table.get_at(key, at)?;
        }
        let Some(Version::Value(value)) = found else {
            return Ok(None);
        };
        Ok(Some(value))
    }

    /// Iterates from both ends over the entries of `keys`, as [`get`](Lsm::get) sees them. Copies what the memtable has of them.
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>, at: u64) -> Result<DbRange> {
        let keys = (keys.start_bound().cloned(), keys.end_bound().cloned());
        // As a table in memory, the memtable is one more input of the merge.
        let memtable = in_memory(self.memtable.range::<[u8], _>(keys))?;
        let memtable = OpenOptions::new().open_db_source(memtable)?.iter();
        let tables = self.levels.iter().flatten();
        let inputs = tables.map(|(_, table)| table.range(keys)).chain([memtable]);
        Ok(DbTable::merge(inputs)?.at(at).into_iter())
    }

    /// Writes the memtable to a table, starts a new log, and compacts full levels.
    pub fn flush(&mut self) -> Result<()> {
        let mut levels = self.levels.clone();
        levels.resize_with(levels.len().max(1), Vec::new);
        if !self.memtable.is_empty() {
            let (number, path) = self.new_file("ldb");
            let mut builder = DbTableBuilder::create(&path)?;
            add_all(&mut builder, self.memtable.iter())?;
            builder.finish()?;
            levels[0].insert(0, (number, DbTable::open(path)?));
        }
        let (number, path) = self.new_file("log");
        self.install(levels, (number, File::create(path)?))?;
        self.memtable.clear();
        self.memtable_bytes = 0;
        let limit = self.level_limit.max(2);
        while let Some(full) = { &self.levels }
            .iter()
            .position(|level| level.len() >= limit)
        {
            self.merge(full..full + 1, full + 1)?;
        }
        Ok(())
    }

    /// Writes all that can be seen to a single table.
    pub fn compact(&mut self) -> Result<()> {
        self.flush()?;
        self.merge(0..self.levels.len(), self.levels.len() - 1)
    }

    /// Merges the tables of some levels into one, the newest of level `to`.
    fn merge(&mut self, from: Range<usize>, to: usize) -> Result<()> {
        self.snapshots.retain(|s| s.strong_count() > 0);
        let snapshots = self.snapshots.iter().filter_map(Weak::upgrade).map(|s| *s);
        let readers: BTreeSet<u64> = snapshots.chain([NOW]).collect();
        let is_bottom = self.levels[from.end..].iter().all(Vec::is_empty);
        let options = ReadOptions::new().fill_cache(false); // the cache is for lookups
        let inputs = self.levels[from.clone()].iter().flatten();
        let mut versions = DbTable::merge(inputs.map(|(_, table)| table.with(options)))?;
        let (number, path) = self.new_file("ldb");
        let mut builder = DbTableBuilder::create(&path)?;
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
            let hides_nothing = is_bottom && readers.first() >= Some(&sequence);
            match versions.value_type() {
                ValueType::Value if is_seen => builder.put(key, sequence, versions.value())?,
                ValueType::Deletion if is_seen && !hides_nothing => {
                    builder.delete(key, sequence)?
                }
                _ => {}
            }
        }
        let mut levels = self.levels.clone();
        levels.resize_with(levels.len().max(to + 1), Vec::new);
        levels[from].fill(Vec::new());
        if builder.entries() > 0 {
            builder.finish()?;
            levels[to].insert(0, (number, DbTable::open(path)?));
        }
        let log = self.log.take().ok_or(FAILED)?;
        self.install(levels, log)
    }

    /// Publishes a manifest, which syncs the directory with the names of new tables and a new log, and removes other files.
    fn install(&mut self, levels: Levels, log: (u64, File)) -> Result<()> {
        self.log = None; // until it is known which manifest is on disk
        let mut manifest = TableBuilder::create(self.dir.join("MANIFEST"))?;
        let mut named = HashSet::from([self.path(log.0, "log")]);
        for (level, tables) in levels.iter().enumerate() {
            for (position, (number, _)) in tables.iter().enumerate() {
                let place = [u8::try_from(level)?, u8::try_from(position)?];
                manifest.add(place, number.to_be_bytes())?;
                named.insert(self.path(*number, "ldb"));
            }
        }
        manifest.property("sequence", self.last_sequence.to_be_bytes())?;
        manifest.property("log", log.0.to_be_bytes())?;
        manifest.finish()?;
        (self.levels, self.log) = (levels, Some(log));
        for file in fs::read_dir(&self.dir)? {
            let path = file?.path();
            let is_ours = path
                .extension()
                .is_some_and(|e| e == "ldb" || e == "log" || e == "tmp");
            if is_ours && !named.contains(&path) {
                fs::remove_file(path)?; // obsolete, or left by a crash; those who still read it can (except on Windows)
            }
        }
        Ok(())
    }

    fn new_file(&mut self, extension: &str) -> (u64, PathBuf) {
        self.last_file += 1;
        (self.last_file, self.path(self.last_file, extension))
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.dir.join(format!("{number:06}.{extension}"))
    }
}

fn add_all<'m, D: Destination>(
    builder: &mut DbTableBuilder<D>,
    entries: impl Iterator<Item = (&'m Vec<u8>, &'m BTreeMap<Reverse<u64>, Version>)>,
) -> Result<()> {
    for (key, versions) in entries {
        for (Reverse(sequence), version) in versions {
            match version {
                Version::Value(value) => builder.put(key, *sequence, value)?,
                Version::Deleted => builder.delete(key, *sequence)?,
            }
        }
    }
    Ok(())
}

fn in_memory<'m>(
    entries: impl Iterator<Item = (&'m Vec<u8>, &'m BTreeMap<Reverse<u64>, Version>)>,
) -> Result<Vec<u8>> {
    let options = WriteOptions::leveldb()
        .compression(Compression::None)
        .no_filter();
    let mut builder = options.build_db(Vec::new());
    add_all(&mut builder, entries)?;
    Ok(builder.finish_into_writer()?.0)
}

fn number_in(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}

fn main() -> Result<()> {
    demo::run()
}
