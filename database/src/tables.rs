//! The tables of a database: opening them, and looking keys up in logs and tables.

use std::cmp::Ordering;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use leveltable::db::{DbEntry, MAX_SEQUENCE, Memtable, Version};
use leveltable::{BytewiseComparator, Comparator, Compression, Corruption, DbTable, Error};
use leveltable::{ErrorKind, Result, Section, WriteOptions};

use crate::directory::{file_name, name_of, replaced};
use crate::record::TableFile;
use crate::state::State;

/// Bytes of keys and values of a table that is sorted in memory.
const MAX_SORTED_BYTES: usize = 256 << 20;

/// Seen by ranges under way, which cannot start over; by others only if this happens each time they read the database again.
const REMOVED: &str = "the writer has removed the table or replaced the database: try again, or pin the database before";

/// Tables of a level in the order of their keys, which do not overlap: all of a level, or a single one of level 0, or of any level
/// if the order is not known.
pub(crate) type Run = Vec<Arc<Listed>>;

/// A table that the MANIFEST lists.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) level: u32,
    pub(crate) file: TableFile,
    /// Keeps it open as long as the state: once it is pinned, or open and all tables may be.
    pub(crate) kept: OnceLock<DbTable>,
}

/// The bounds of a walk.
pub(crate) type Bounds<K = Vec<u8>> = (Bound<K>, Bound<K>);

/// The versions of one key.
fn only(key: &[u8]) -> Bounds<&[u8]> {
    (Bound::Included(key), Bound::Included(key))
}

/// Whether `key` lies on this side of a bound: less than a lower one, or greater than an upper one.
fn is_beyond<K: AsRef<[u8]>>(
    order: &dyn Comparator,
    key: &[u8],
    side: Ordering,
    bound: &Bound<K>,
) -> bool {
    match bound {
        Bound::Unbounded => false,
        Bound::Included(bound) => order.compare(key, bound.as_ref()) == side,
        Bound::Excluded(bound) => order.compare(key, bound.as_ref()) != side.reverse(),
    }
}

pub(crate) fn is_within(order: &dyn Comparator, key: &[u8], (lower, upper): &Bounds) -> bool {
    let is_beyond = |side, bound| is_beyond(order, key, side, bound);
    !is_beyond(Ordering::Less, lower) && !is_beyond(Ordering::Greater, upper)
}

impl State {
    /// Returns the newest version of `key`: that of the logs and of level 0 with the highest sequence number (in a repaired
    /// database, all tables are there, and their numbers say nothing), or else the first in the other levels.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Version>> {
        self.known_order()?;
        let mut newest = self.find_logged(key);
        for table in (self.runs.iter()).flat_map(|run| self.within(run, &only(key))) {
            if table.level > 0 && newest.is_some() {
                break;
            }
            let found = self.table(table)?.at(MAX_SEQUENCE).get_entry(key)?;
            keep_newest(&mut newest, found);
        }
        Ok(newest.map(|entry| entry.version))
    }

    /// Returns the newest versions of many keys, as [`find`](State::find) does.
    pub(crate) fn find_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<DbEntry>>> {
        self.known_order()?;
        let logged = |key: &K| self.find_logged(key.as_ref());
        let mut newest: Vec<_> = keys.iter().map(logged).collect();
        for run in &self.runs {
            // What to ask each table for.
            let mut wanted = Vec::new();
            for (at, (key, found)) in keys.iter().zip(&newest).enumerate() {
                let tables = self.within(run, &only(key.as_ref())).iter();
                let tables = tables.filter(|table| table.level == 0 || found.is_none());
                wanted.extend(tables.map(|table| (table, at, key)));
            }
            wanted.sort_by_key(|(table, ..)| table.file.number);
            for wanted in wanted.chunk_by(|(a, ..), (b, ..)| a.file.number == b.file.number) {
                let Some((table, ..)) = wanted.first() else {
                    continue;
                };
                let keys: Vec<_> = wanted.iter().map(|(.., key)| *key).collect();
                let found = self.table(table)?.at(MAX_SEQUENCE).get_entries(&keys)?;
                for ((_, at, _), found) in wanted.iter().zip(found) {
                    if let Some(newest) = newest.get_mut(*at) {
                        keep_newest(newest, found);
                    }
                }
            }
        }
        Ok(newest)
    }

    /// Most databases that are not in use have empty logs.
    fn find_logged(&self, key: &[u8]) -> Option<DbEntry> {
        let is_logged = !self.memtable.is_empty();
        is_logged.then(|| self.memtable.get_at(key, MAX_SEQUENCE))?
    }

    /// The tables of a run that may hold keys within bounds; for one key, these are one, or neighbours that share it. A table of
    /// level 0 that is in another order than the database may hold keys outside of what the MANIFEST lists as its ends, and so may
    /// any if the order is not known.
    pub(crate) fn within<'r, K: AsRef<[u8]>>(
        &self,
        run: &'r Run,
        (lower, upper): &Bounds<K>,
    ) -> &'r [Arc<Listed>] {
        let is_bytewise = self.order_name == BytewiseComparator.name();
        let is_listed_well = is_bytewise || run.first().is_some_and(|table| table.level > 0);
        let Some(order) = self.order.as_deref().filter(|_| is_listed_well) else {
            return run;
        };
        let ends_below = |table: &Arc<Listed>| {
            is_beyond(order, table.file.last_user_key(), Ordering::Less, lower)
        };
        let begins_above = |table: &Arc<Listed>| {
            is_beyond(order, table.file.first_user_key(), Ordering::Greater, upper)
        };
        let start = run.partition_point(ends_below);
        let rest = run.get(start..).unwrap_or_default();
        let end = rest.iter().position(begins_above).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    }

    /// Opens a listed table, or returns it if it is open.
    ///
    /// Fails with [`ErrorKind::Replaced`] if the state is out of date: the table vanished, or its number is perhaps that of
    /// another table now.
    pub(crate) fn table(&self, table: &Listed) -> Result<DbTable> {
        if let Some(kept) = table.kept.get() {
            return Ok(kept.clone());
        }
        let opened = self.open(table.file.number, table.file.size)?;
        if self.runs.iter().flatten().count() <= self.options.most_open_tables() {
            // Another thread may have done the same.
            let _ = table.kept.set(opened.clone());
        }
        Ok(opened)
    }

    /// Opens all tables, and keeps them open as long as the state.
    pub(crate) fn pin(&self) -> Result<()> {
        for table in self.runs.iter().flatten() {
            let _ = table.kept.set(self.table(table)?);
        }
        Ok(())
    }

    /// The path of a table, which may be one of LevelDB before 1.14.
    pub(crate) fn table_path(&self, number: u64) -> PathBuf {
        let [modern, old] = ["ldb", "sst"].map(|end| self.dir.join(file_name(number, end)));
        if !modern.exists() && old.exists() {
            old
        } else {
            modern
        }
    }

    /// Opens a table of so many bytes, unless it is open. Sorts it in memory if it is in another order than the database.
    pub(crate) fn open(&self, number: u64, size: u64) -> Result<DbTable> {
        self.open_tables.get(&number, || {
            let path = self.table_path(number);
            let (table, other_order) = self.open_stored(&path)?;
            let found = table.as_table().file_bytes();
            if found != size {
                let expected = format!("a table of {size} bytes, as the MANIFEST says");
                let found_bytes = format!("{found} bytes");
                let corruption = Corruption::new(Section::Footer, found, expected, found_bytes);
                let advice = "a copy of the database may be incomplete";
                return Err(Error::damage(&path, corruption, advice));
            }
            match (other_order, &self.order) {
                (Some(error), Some(order)) => self.sort(&table, order, error),
                _ => Ok(table),
            }
        })
    }

    /// Opens a table as it is stored, with an error if that is in another order than the database.
    pub(crate) fn open_stored(&self, path: &Path) -> Result<(DbTable, Option<Error>)> {
        let options = self.options.table_options(self.order.as_ref());
        let opened = match options.open_db(path) {
            Err(error) if error.kind() == ErrorKind::Comparator => {
                let stored = options.stored_order().open_db(path);
                stored.map(|table| (table, Some(error)))
            }
            opened => opened.map(|table| (table, None)),
        };
        let Some(current) = &self.current else {
            return opened;
        };
        // Whatever was opened, or was not: it is the database's only if that is still the one that was read. A writer removes a
        // table after it has written so to the MANIFEST.
        let is_missing = opened.as_ref().is_err_and(is_not_found);
        if !current.is_current(&self.dir)? || is_missing && current.len()? != self.version.bytes {
            return Err(replaced(REMOVED, path));
        }
        if is_missing {
            let manifest = name_of(&current.path);
            let doing = format!("{manifest} lists this table; opening it");
            return Err(Error::io(doing, io::ErrorKind::NotFound.into()).at_path(path));
        }
        opened
    }

    /// Makes a table in memory of one in another order. Fails with `error` if that takes too much.
    fn sort(&self, table: &DbTable, order: &Arc<dyn Comparator>, error: Error) -> Result<DbTable> {
        let sorted = Memtable::with_comparator(order.clone());
        let mut bytes = 0;
        for entry in table.iter() {
            let entry = entry?;
            bytes += entry.user_key.len();
            if let Version::Value(value) = &entry.version {
                bytes += value.len();
            }
            if bytes > MAX_SORTED_BYTES {
                return Err(error);
            }
            sorted.add(entry.user_key, entry.sequence, entry.version);
        }
        let options = WriteOptions::new().comparator(order.clone());
        let mut builder = options.compression(Compression::None).build_db(Vec::new());
        for entry in sorted.iter() {
            let entry = entry?;
            builder.add_version(entry.user_key, entry.sequence, &entry.version)?;
        }
        let sorted = builder.finish_into_writer()?.0;
        let options = self.options.table_options(Some(order));
        options.open_db_source(sorted)
    }
}

/// Keeps the version with the highest sequence number.
fn keep_newest(newest: &mut Option<DbEntry>, found: Option<DbEntry>) {
    let sequence = |entry: &Option<DbEntry>| entry.as_ref().map(|entry| entry.sequence);
    if sequence(&found) > sequence(newest) {
        *newest = found;
    }
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    io::Error::from(error.clone()).kind() == io::ErrorKind::NotFound
}
