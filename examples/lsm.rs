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
use std::ops::{Bound, Range, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;
use leveltable::db::{DbEntry, DbRange, InternalKey, InternalKeyComparator, MAX_SEQUENCE, Version};
use leveltable::{
    BytewiseComparator, Comparator, Compression, DbTable, OpenOptions, ReadOptions,
    RibbonFilterPolicy, SortedCursor, SortedInput, Table, TableCache, WriteOptions,
};

#[path = "lsm/demo.rs"]
mod demo;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// A sequence number: what was written later is not seen. Compactions keep what a snapshot sees until it is dropped.
pub type Snapshot = Arc<u64>;
/// Sees all that is written.
pub const NOW: u64 = MAX_SEQUENCE;

/// Level and name of the file, the newest of a level first: in the order in which lookups ask them.
type Tables = BTreeSet<(u64, Reverse<String>)>;

/// A key and a sequence number, and what was written: a key's newest change comes first.
type Change = ((Bytes, Reverse<u64>), Version);

type Entry<'m> = crossbeam_skiplist::map::Entry<'m, (Bytes, Reverse<u64>), Version>;

/// Changes that are in no table yet.
type Memtable = SkipMap<(Bytes, Reverse<u64>), Version>;

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
            for file in &Table::open(lsm.dir.join("MANIFEST"))? {
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
        for (key, version) in changes {
            self.last_sequence = self.last_sequence.max(key.1.0);
            self.memtable.insert(key, version);
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
            let value = value.as_ref().map(|value| value.as_ref().to_vec().into());
            let version = value.map_or(Version::Deleted, Version::Value);
            changes.push(((key.as_ref().to_vec().into(), Reverse(sequence)), version));
        }
        changes.sort_by(|a, b| a.0.cmp(&b.0));
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
        let place = (Bytes::copy_from_slice(key), Reverse(at));
        let newest = self.memtable.lower_bound(Bound::Included(&place));
        if let Some(newest) = newest.filter(|newest| newest.key().0 == key) {
            return Ok(newest.value().clone().into_value());
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
        let mut inputs = vec![DbRange::of(self.memtable_cursor(), keys)];
        for id in &self.tables {
            inputs.push(self.table(id)?.range(keys));
        }
        // The memtable may grow meanwhile, by what this does not see.
        Ok(DbTable::merge(inputs)?
            .at(at.min(self.last_sequence))
            .into_iter())
    }

    fn memtable_cursor(&self) -> MemtableCursor {
        let memtable = self.memtable.clone();
        MemtableCursor {
            memtable,
            current: None,
            stored_key: Vec::new(),
        }
    }

    /// Writes the memtable to a table, starts a new log, and compacts full levels.
    pub fn flush(&mut self) -> Result<()> {
        let name = self.new_name("log");
        self.log = Some((name.clone(), File::create(self.dir.join(name))?));
        self.merge(0..0, Some(DbRange::of(self.memtable_cursor(), ..)), 0)?;
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
        let mut seen = DbTable::merge(inputs)?.compact(snapshots);
        seen = seen.drop_deletions(tables.iter().all(|id| id.0 < to));
        let name = self.new_name("ldb");
        let options = WriteOptions::new().filter_policy(RibbonFilterPolicy::new(12)); // 0.03 % of absent keys pass
        let mut builder = options.create_db(self.dir.join(&name))?;
        while let Some((key, value)) = seen.next()? {
            builder.add(key, value)?;
        }
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

/// Walks the memtable, which may grow meanwhile.
#[derive(Clone)]
struct MemtableCursor {
    memtable: Arc<Memtable>,
    current: Option<Change>,
    stored_key: Vec<u8>,
}

impl MemtableCursor {
    fn stand(&mut self, entry: Option<Entry<'_>>) -> leveltable::Result<bool> {
        self.stored_key.clear();
        self.current = entry.map(|entry| (entry.key().clone(), entry.value().clone()));
        if let Some(((key, sequence), version)) = &self.current {
            let (sequence, value_type) = (sequence.0, version.value_type());
            let key = InternalKey {
                user_key: key,
                sequence,
                value_type,
            };
            key.encode(&mut self.stored_key);
        }
        Ok(self.current.is_some())
    }
}

impl SortedInput for MemtableCursor {
    fn advance(&mut self) -> leveltable::Result<bool> {
        let (memtable, from) = (self.memtable.clone(), self.current.take());
        let from = from
            .as_ref()
            .map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key));
        self.stand(memtable.lower_bound(from))
    }

    fn key(&self) -> &[u8] {
        &self.stored_key
    }

    fn value(&self) -> &[u8] {
        match &self.current {
            Some((_, Version::Value(value))) => value,
            _ => &[],
        }
    }
}

impl SortedCursor for MemtableCursor {
    fn seek(&mut self, key: &[u8]) -> leveltable::Result<bool> {
        let (user_key, tag) = key.split_at(key.len() - 8); // as a database's merge seeks
        let sequence = u64::from_le_bytes(tag.try_into().unwrap()) >> 8;
        let place = (Bytes::copy_from_slice(user_key), Reverse(sequence));
        self.stand(self.memtable.clone().lower_bound(Bound::Included(&place)))
    }

    fn seek_to_first(&mut self) -> leveltable::Result<bool> {
        self.stand(self.memtable.clone().front())
    }

    fn seek_to_last(&mut self) -> leveltable::Result<bool> {
        self.stand(self.memtable.clone().back())
    }

    fn prev(&mut self) -> leveltable::Result<bool> {
        let (memtable, from) = (self.memtable.clone(), self.current.take());
        let from = from
            .as_ref()
            .map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key));
        self.stand(memtable.upper_bound(from))
    }

    fn comparator(&self) -> leveltable::Result<Arc<dyn Comparator>> {
        Ok(Arc::new(InternalKeyComparator::new(BytewiseComparator)))
    }
}

/// Returns the changes in a record of the log.
fn changes_in(record: &[u8]) -> leveltable::Result<Vec<Change>> {
    let table = OpenOptions::new().open_db_source(record.to_vec())?;
    let change = |own: DbEntry| ((own.user_key, Reverse(own.sequence)), own.version);
    table.iter().map(|entry| entry.map(change)).collect()
}

/// Returns a table of these changes.
fn table_of(changes: &[Change]) -> leveltable::Result<Vec<u8>> {
    let options = WriteOptions::leveldb().compression(Compression::None);
    let mut builder = options.no_filter().build_db(Vec::new());
    for ((key, sequence), version) in changes {
        builder.add_version(key, sequence.0, version)?;
    }
    Ok(builder.finish_into_writer()?.0)
}

fn main() -> Result<()> {
    demo::run()
}
