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
//! A file that the manifest does not name is obsolete, or left by a crash, and is removed.
//!
//! `cargo run --release --example lsm` shows the engine at work; that part is in `lsm/demo.rs`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::ops::{Range, RangeBounds};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use leveltable::db::{DbRange, InternalKey, MAX_SEQUENCE, ValueType, Version};
use leveltable::{Compression, DbTable, DbTableBuilder, Destination, OpenOptions};
use leveltable::{ReadOptions, Table, TableBuilder, WriteOptions};

#[path = "lsm/demo.rs"]
mod demo;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// The versions of each key with their sequence numbers, oldest first.
type Memtable = BTreeMap<Vec<u8>, Vec<(u64, Version)>>;
/// The tables of each level with the numbers of their files, newest first.
type Levels = Vec<Vec<(u64, DbTable)>>;

/// A database in a directory.
#[derive(Default)]
pub struct Lsm {
    dir: PathBuf,
    memtable_limit: usize,
    level_limit: usize,
    /// With its number. `None` after a failure, when it is not known what the disk holds: opening anew finds out.
    log: Option<(u64, File)>,
    memtable: Memtable,
    memtable_bytes: usize,
    levels: Levels,
    /// The number of the last change.
    sequence: u64,
    next_file: u64,
    snapshots: Vec<Weak<u64>>,
}

/// A point in time: reads at a snapshot do not see later changes. Compactions keep what it sees until it is dropped.
pub struct Snapshot(Arc<u64>);

impl Lsm {
    /// Opens or creates a database. A memtable is full with `memtable_limit` bytes, a level with `level_limit` tables.
    pub fn open(dir: impl Into<PathBuf>, memtable_limit: usize, level_limit: usize) -> Result<Lsm> {
        let (dir, level_limit) = (dir.into(), level_limit.max(2));
        fs::create_dir_all(&dir)?;
        let mut lsm = Lsm {
            dir,
            memtable_limit,
            level_limit,
            ..Lsm::default()
        };
        let manifest = lsm.dir.join("MANIFEST");
        if manifest.try_exists()? {
            lsm.recover(&Table::open(manifest)?)?;
        }
        lsm.flush()?; // The old log is never written to again: its end may be torn.
        Ok(lsm)
    }

    fn recover(&mut self, manifest: &Table) -> Result<()> {
        for entry in manifest {
            let (place, number) = entry?;
            let (level, number) = (usize::from(place[0]), number_of(&number)?);
            self.levels.resize_with(level + 1, Vec::new);
            let table = DbTable::open(self.path(number, "ldb"))?;
            self.levels[level].push((number, table));
            self.next_file = self.next_file.max(number + 1);
        }
        let properties = manifest
            .properties()
            .ok_or("the manifest has no properties")?;
        let property = |name| number_of(properties.user(name).ok_or(name)?);
        let log = property("log")?;
        (self.sequence, self.next_file) = (property("sequence")?, self.next_file.max(log + 1));
        let log = fs::read(self.path(log, "log"))?;
        let mut rest = log.as_slice();
        // A crash may have torn the last record. No one was told that it is written.
        while let Some(record) = take_record(&mut rest) {
            self.apply(record)?;
        }
        Ok(())
    }

    /// Sets keys to values, or deletes those whose value is `None`: all of it or, if it fails or the process dies, perhaps
    /// nothing. Returns when it is on disk. After an error only reading goes on, until the database is opened anew.
    pub fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        changes: &[(K, Option<V>)],
    ) -> Result<()> {
        if self.memtable_bytes >= self.memtable_limit {
            self.flush()?;
        }
        let mut record = Vec::new();
        for ((user_key, value), sequence) in changes.iter().zip(self.sequence + 1..) {
            let value_type = if value.is_some() {
                ValueType::Value
            } else {
                ValueType::Deletion
            };
            let mut key = Vec::new();
            InternalKey {
                user_key: user_key.as_ref(),
                sequence,
                value_type,
            }
            .encode(&mut key);
            put_sized(&mut record, &key)?;
            put_sized(&mut record, value.as_ref().map_or(&[], V::as_ref))?;
        }
        let mut sized = Vec::new();
        put_sized(&mut sized, &record)?;
        let checksum = crc32c::crc32c(&sized).to_le_bytes();
        // Put back only after success: a record after a torn one would not be found.
        let (number, mut log) = self
            .log
            .take()
            .ok_or("a write failed: open the database anew")?;
        log.write_all(&[&checksum[..], &sized].concat())?;
        log.sync_data()?;
        self.log = Some((number, log));
        self.apply(&record)
    }

    /// Adds the changes of a record of the log to the memtable.
    fn apply(&mut self, mut record: &[u8]) -> Result<()> {
        while !record.is_empty() {
            let stored = take_sized(&mut record).and_then(InternalKey::parse);
            let (key, value) = stored
                .zip(take_sized(&mut record))
                .ok_or("no change in a record")?;
            let version = match key.value_type {
                ValueType::Value => Version::Value(Bytes::copy_from_slice(value)),
                ValueType::Deletion => Version::Deleted,
            };
            self.memtable_bytes += key.user_key.len() + value.len() + 64; // about what it takes
            let versions = self.memtable.entry(key.user_key.to_vec()).or_default();
            versions.push((key.sequence, version));
            self.sequence = key.sequence;
        }
        Ok(())
    }

    /// Returns a snapshot of all that is written.
    pub fn snapshot(&mut self) -> Snapshot {
        let snapshot = Arc::new(self.sequence);
        self.snapshots.push(Arc::downgrade(&snapshot));
        Snapshot(snapshot)
    }

    /// Returns the value of `key`, now or at a snapshot.
    pub fn get(&self, key: &[u8], at: Option<&Snapshot>) -> Result<Option<Bytes>> {
        let sequence = at.map_or(MAX_SEQUENCE, |snapshot| *snapshot.0);
        let versions = self.memtable.get(key).into_iter().flatten().rev();
        let mut found = { versions }
            .find(|(s, _)| *s <= sequence)
            .map(|(_, version)| version.clone());
        // Newest first: the first table that knows the key decides. The others' filters answer without reading.
        let mut tables = self.levels.iter().flatten();
        while let (None, Some((_, table))) = (&found, tables.next()) {
            found = table.get_at(key, sequence)?;
        }
        Ok(found.and_then(|version| match version {
            Version::Value(value) => Some(value),
            Version::Deleted => None,
        }))
    }

    /// Returns the entries with keys in `keys`, now or at a snapshot, as an iterator from both ends. Costs a copy of the
    /// memtable's entries there. Panics for bounds that `BTreeMap::range` panics for.
    pub fn range<'k>(
        &self,
        keys: impl RangeBounds<&'k [u8]>,
        at: Option<&Snapshot>,
    ) -> Result<DbRange> {
        let keys = (keys.start_bound().cloned(), keys.end_bound().cloned());
        // As a table in memory, the memtable is one more input of the merge.
        let options = WriteOptions::new()
            .compression(Compression::None)
            .no_filter();
        let mut memory = options.build_db(Vec::new());
        add_all(&mut memory, self.memtable.range::<[u8], _>(keys))?;
        let memory = OpenOptions::new().open_db_source(memory.finish_into_writer()?.0)?;
        let tables = self
            .levels
            .iter()
            .flatten()
            .map(|(_, table)| table.range(keys));
        let merged = DbTable::merge(std::iter::once(memory.iter()).chain(tables))?;
        Ok(merged
            .at(at.map_or(MAX_SEQUENCE, |snapshot| *snapshot.0))
            .into_iter())
    }

    /// Writes the memtable to a table, starts a new log, and compacts full levels.
    pub fn flush(&mut self) -> Result<()> {
        let mut levels = self.levels.clone();
        levels.resize_with(levels.len().max(1), Vec::new);
        if !self.memtable.is_empty() {
            let number = self.new_file();
            let mut builder = DbTableBuilder::create(self.path(number, "ldb"))?;
            add_all(&mut builder, self.memtable.iter())?;
            builder.finish()?;
            levels[0].insert(0, (number, DbTable::open(self.path(number, "ldb"))?));
        }
        let number = self.new_file();
        let log = File::create_new(self.path(number, "log"))?;
        self.install(levels, (number, log))?;
        (self.memtable, self.memtable_bytes) = (Memtable::new(), 0);
        let limit = self.level_limit;
        while let Some(level) = { &self.levels }
            .iter()
            .position(|tables| tables.len() >= limit)
        {
            self.merge(level..level + 1, level + 1)?;
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
        self.snapshots
            .retain(|snapshot| snapshot.strong_count() > 0);
        let snapshots = self
            .snapshots
            .iter()
            .filter_map(|snapshot| Some(*snapshot.upgrade()?));
        let readers: BTreeSet<u64> = snapshots.chain([MAX_SEQUENCE]).collect(); // the last reads what is newest
        let is_bottom = self.levels[from.end..].iter().all(Vec::is_empty);
        let options = ReadOptions::new().fill_cache(false); // the cache is for lookups
        let inputs = self.levels[from.clone()]
            .iter()
            .flatten()
            .map(|(_, table)| table.with(options));
        let mut versions = DbTable::merge(inputs)?;
        let number = self.new_file();
        let mut builder = DbTableBuilder::create(self.path(number, "ldb"))?;
        let (mut last, mut newer) = (Vec::new(), u64::MAX);
        while versions.next()? {
            let (user_key, sequence) = (versions.user_key(), versions.sequence());
            if user_key != last {
                (last, newer) = (user_key.to_vec(), u64::MAX);
            }
            // Readers see a version from its own number up to that of the next newer one.
            let is_seen = readers.range(sequence..newer).next().is_some();
            newer = sequence;
            // A deletion hides older versions. Here all of them are dropped if no reader is older than it.
            let value_type = versions.value_type();
            let hides_nothing = is_bottom && readers.first() >= Some(&sequence);
            if is_seen && !(value_type == ValueType::Deletion && hides_nothing) {
                builder.add(
                    InternalKey {
                        user_key,
                        sequence,
                        value_type,
                    },
                    versions.value(),
                )?;
            }
        }
        let mut levels = self.levels.clone();
        levels.resize_with(levels.len().max(to + 1), Vec::new);
        levels[from].fill(Vec::new());
        if builder.entries() > 0 {
            builder.finish()?;
            levels[to].insert(0, (number, DbTable::open(self.path(number, "ldb"))?));
        }
        let log = self
            .log
            .take()
            .ok_or("a write failed: open the database anew")?;
        self.install(levels, log)
    }

    /// Publishes a manifest, and removes the files that it does not name. Publishing syncs the directory, so that the names of
    /// a new log and new tables are on disk, too.
    fn install(&mut self, levels: Levels, log: (u64, File)) -> Result<()> {
        self.log = None; // Which manifest is on disk if this fails?
        let mut manifest = TableBuilder::create(self.dir.join("MANIFEST"))?;
        let mut named = HashSet::from([self.path(log.0, "log")]);
        for (level, tables) in levels.iter().enumerate() {
            for (position, (number, _)) in tables.iter().enumerate() {
                manifest.add(
                    [u8::try_from(level)?, u8::try_from(position)?],
                    number.to_be_bytes(),
                )?;
                named.insert(self.path(*number, "ldb"));
            }
        }
        manifest.property("sequence", self.sequence.to_be_bytes())?;
        manifest.property("log", log.0.to_be_bytes())?;
        manifest.finish()?;
        (self.levels, self.log) = (levels, Some(log));
        for file in fs::read_dir(&self.dir)? {
            let path = file?.path();
            let is_ours = path
                .extension()
                .is_some_and(|e| e == "ldb" || e == "log" || e == "tmp");
            if is_ours && !named.contains(&path) {
                fs::remove_file(path)?; // An open table can still be read, except on Windows, where this fails.
            }
        }
        Ok(())
    }

    fn new_file(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.dir.join(format!("{number:06}.{extension}"))
    }
}

fn add_all<'m, D: Destination>(
    builder: &mut DbTableBuilder<D>,
    entries: impl Iterator<Item = (&'m Vec<u8>, &'m Vec<(u64, Version)>)>,
) -> Result<()> {
    for (key, versions) in entries {
        for (sequence, version) in versions.iter().rev() {
            match version {
                Version::Value(value) => builder.put(key, *sequence, value)?,
                Version::Deleted => builder.delete(key, *sequence)?,
            }
        }
    }
    Ok(())
}

fn number_of(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}

fn put_sized(dst: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    dst.extend(u32::try_from(bytes.len())?.to_le_bytes());
    dst.extend(bytes);
    Ok(())
}

fn take_sized<'a>(src: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(*src.split_off(..4)?.first_chunk()?);
    src.split_off(..usize::try_from(len).ok()?)
}

/// Takes a record of the log: a checksum, a length, and the changes. `None` if it is not whole.
fn take_record<'a>(log: &mut &'a [u8]) -> Option<&'a [u8]> {
    let checksum = u32::from_le_bytes(*log.split_off(..4)?.first_chunk()?);
    let sized = *log;
    let record = take_sized(log)?;
    (crc32c::crc32c(&sized[..4 + record.len()]) == checksum).then_some(record)
}

fn main() -> Result<()> {
    demo::run()
}
