//! The tables of a database: opening them, and looking keys up in logs and tables.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use leveltable::db::{DbEntry, MAX_SEQUENCE, Version};
use leveltable::{BytewiseComparator, Comparator, Compression, DbTable, Error, ErrorKind};
use leveltable::{OpenOptions, Result, Section, WriteOptions};

use crate::directory::{failed, file_name, name_of};
use crate::record::TableFile;
use crate::recovery::damage;
use crate::state::State;

/// Bytes of keys and values of a table that is sorted in memory.
const MAX_SORTED_BYTES: usize = 256 << 20;

/// Seen by ranges under way, which cannot start over; by others only if this happens each time they read the database again.
const REMOVED: &str = "the writer has removed the table or replaced the database: try again, or pin the database before";

/// Tables of a level in the order of their keys, which do not overlap: all of a level, or a single one of level 0, or of any level
/// if the order is not known.
pub(crate) type Run = Vec<Arc<Listed>>;

/// A table that the MANIFEST lists. Or what logs hold, the newest version of each key, as a table in memory of number 0, which no
/// file has.
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

/// Where `key` lies: before the bounds (`Less`), within them, or after them.
pub(crate) fn place<K: AsRef<[u8]>>(
    order: &dyn Comparator,
    key: &[u8],
    (lower, upper): &Bounds<K>,
) -> Ordering {
    let is_beyond = |bound: &Bound<K>, side: Ordering| match bound {
        Bound::Unbounded => false,
        Bound::Included(bound) => order.compare(key, bound.as_ref()) == side,
        Bound::Excluded(bound) => order.compare(key, bound.as_ref()) != side.reverse(),
    };
    match is_beyond(lower, Ordering::Less) {
        true => Ordering::Less,
        false if is_beyond(upper, Ordering::Greater) => Ordering::Greater,
        false => Ordering::Equal,
    }
}

impl State {
    pub(crate) fn is_bytewise(&self) -> bool {
        self.order_name == BytewiseComparator.name()
    }

    /// Returns the newest version of `key`: that of the logs and of level 0 with the highest sequence number (in a repaired
    /// database, all tables are there, and their numbers say nothing), or else the first in the other levels.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Version>> {
        self.known_order()?;
        let (only, mut newest) = (only(key), None);
        for table in self.runs.iter().flat_map(|run| self.within(run, &only)) {
            if table.level > 0 && newest.is_some() {
                break;
            }
            let found = self.table(table)?.at(MAX_SEQUENCE).get_entry(key)?;
            newest = newer(found, newest);
        }
        Ok(newest.map(|entry| entry.version))
    }

    /// Returns the newest versions of many keys, as [`find`](State::find) does.
    pub(crate) fn find_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<DbEntry>>> {
        self.known_order()?;
        let mut newest = vec![None; keys.len()];
        for run in &self.runs {
            // By their numbers, the tables to ask, and for which keys.
            let mut asked = BTreeMap::new();
            for (at, (key, found)) in keys.iter().zip(&newest).enumerate() {
                let only = only(key.as_ref());
                for table in self.within(run, &only) {
                    if table.level == 0 || found.is_none() {
                        let (_, asked) = asked.entry(table.file.number).or_insert((table, vec![]));
                        asked.push((at, key));
                    }
                }
            }
            for (table, asked) in asked.into_values() {
                let keys: Vec<_> = asked.iter().map(|(_, key)| *key).collect();
                let found = self.table(table)?.at(MAX_SEQUENCE).get_entries(&keys)?;
                for ((at, _), found) in asked.into_iter().zip(found) {
                    if let Some(newest) = newest.get_mut(at) {
                        *newest = newer(found, newest.take());
                    }
                }
            }
        }
        Ok(newest)
    }

    /// The tables of a run that may hold keys within bounds; for one key, these are one, or neighbours that share it. A table of
    /// level 0 that is in another order than the database may hold keys outside of what the MANIFEST lists as its ends, and so may
    /// any if the order is not known.
    pub(crate) fn within<'r, K: AsRef<[u8]>>(
        &'r self,
        run: &'r Run,
        bounds: &Bounds<K>,
    ) -> impl Iterator<Item = &'r Arc<Listed>> {
        let is_leveled = run.first().is_some_and(|table| table.level > 0);
        let is_listed_well = self.has_known_order() && (is_leveled || self.is_bytewise());
        let place = move |key: &[u8]| match is_listed_well {
            true => place(&*self.order, key, bounds),
            false => Ordering::Equal,
        };
        let start = run.partition_point(|table| place(table.file.last_user_key()).is_lt());
        let from = run.iter().skip(start);
        from.take_while(move |table| place(table.file.first_user_key()).is_le())
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
        let is_old = old.exists() && !modern.exists();
        if is_old { old } else { modern }
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
                return Err(damage(&path, Section::Footer, found, expected, found_bytes));
            }
            match other_order {
                Some(error) => sort(&table, &self.order, error),
                None => Ok(table),
            }
        })
    }

    fn table_options(&self) -> OpenOptions {
        let options = self.options.tables.clone().comparator(self.order.clone());
        // Programs that do not know an order are known to have opened databases under its name, and to have written tables in
        // bytewise order there. Nobody does that to bytewise databases.
        match self.has_known_order() {
            false => options.stored_order(),
            true if self.is_bytewise() => options,
            true => options.check_order(true),
        }
    }

    /// Opens a table as it is stored, with an error if that is in another order than the database.
    pub(crate) fn open_stored(&self, path: &Path) -> Result<(DbTable, Option<Error>)> {
        let options = self.table_options();
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
            return Err(Error::new(ErrorKind::Replaced, REMOVED).at_path(path));
        }
        if is_missing {
            let manifest = name_of(&current.path);
            let doing = format!("{manifest} lists this table; opening it");
            return Err(failed(&doing, io::ErrorKind::NotFound.into(), path));
        }
        opened
    }
}

/// Makes a table in memory of one in another order. Fails with `error` if that takes too much.
fn sort(table: &DbTable, order: &Arc<dyn Comparator>, error: Error) -> Result<DbTable> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for entry in table.iter() {
        let entry = entry?;
        bytes += entry.user_key.len();
        if let Version::Value(value) = &entry.version {
            bytes += value.len();
        }
        if bytes > MAX_SORTED_BYTES {
            return Err(error);
        }
        entries.push(entry);
    }
    newest_in_memory(entries, order)
}

/// Makes a table in memory that holds the newest version of each key.
pub(crate) fn newest_in_memory(
    mut entries: Vec<DbEntry>,
    order: &Arc<dyn Comparator>,
) -> Result<DbTable> {
    let by_key = |a: &DbEntry, b: &DbEntry| order.compare(&a.user_key, &b.user_key);
    entries.sort_by(|a, b| by_key(a, b).then(b.sequence.cmp(&a.sequence)));
    entries.dedup_by(|older, newer| by_key(older, newer).is_eq());
    let options = WriteOptions::new().comparator(order.clone()).no_filter();
    let mut builder = options.compression(Compression::None).build_db(Vec::new());
    for entry in entries {
        builder.add_version(entry.user_key, entry.sequence, &entry.version)?;
    }
    let (table, _) = builder.finish_into_writer()?;
    let options = OpenOptions::new().comparator(order.clone());
    options.open_db_source(table)
}

/// The version with the higher sequence number.
fn newer(found: Option<DbEntry>, newest: Option<DbEntry>) -> Option<DbEntry> {
    let both = found.into_iter().chain(newest);
    both.max_by_key(|entry| entry.sequence)
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    io::Error::from(error.clone()).kind() == io::ErrorKind::NotFound
}
