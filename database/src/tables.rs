//! The tables that are open.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use leveltable::db::{DbEntry, DbRange, MAX_SEQUENCE, Memtable, Version};
use leveltable::{BytewiseComparator, Comparator, DbTable, Error, ErrorKind, OpenOptions, Result};
use quick_cache::sync::Cache;

/// Bytes of keys and values of a table that is sorted in memory.
const MOST_SORTED: usize = 256 << 20;

/// Open tables by number, a bounded number of them: those that were used lately.
#[derive(Debug)]
pub(crate) struct TableCache {
    open: Cache<u64, OpenTable>,
}

impl TableCache {
    pub(crate) fn new(max_open: usize) -> TableCache {
        TableCache {
            open: Cache::new(max_open),
        }
    }

    /// Returns the table of this number, opened by `open` if it is not. No lock is held meanwhile: two threads may both open it.
    pub(crate) fn get(
        &self,
        number: u64,
        open: impl FnOnce() -> Result<OpenTable>,
    ) -> Result<OpenTable> {
        if let Some(table) = self.open.get(&number) {
            return Ok(table);
        }
        let table = open()?;
        self.open.insert(number, table.clone());
        Ok(table)
    }
}

/// How the tables of a database are opened.
#[derive(Debug, Clone)]
pub(crate) struct TableOptions {
    options: OpenOptions,
    /// `None` if it is not known.
    order: Option<Arc<dyn Comparator>>,
}

/// A table that answers in the database's order.
#[derive(Debug, Clone)]
pub(crate) struct OpenTable {
    /// Without an order if it is not the database's.
    table: DbTable,
    /// The entries of a table that is in another order, sorted.
    sorted: Option<Memtable>,
}

impl TableOptions {
    pub(crate) fn new(options: &OpenOptions, order: Option<&Arc<dyn Comparator>>) -> TableOptions {
        let order = order.cloned();
        let options = match &order {
            Some(order) => {
                // Programs that do not know an order are known to have opened databases under its name, and to have written
                // tables in bytewise order there. Nobody does that to bytewise databases.
                let is_bytewise = order.name() == BytewiseComparator.name();
                let options = options.clone().comparator(order.clone());
                if is_bytewise {
                    options
                } else {
                    options.check_order(true)
                }
            }
            None => options.clone().stored_order(),
        };
        TableOptions { options, order }
    }

    /// Opens a table. One of which it turns out that it is in another order than the database is sorted in memory.
    pub(crate) fn open(&self, path: &Path) -> Result<OpenTable> {
        match (self.options.open_db(path), &self.order) {
            (Ok(table), _) => Ok(OpenTable {
                table,
                sorted: None,
            }),
            (Err(error), Some(order)) if error.kind() == ErrorKind::Comparator => {
                let table = self.options.clone().stored_order().open_db(path)?;
                let sorted = Some(sort(&table, order, error)?);
                Ok(OpenTable { table, sorted })
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// Reads a table into memory. Fails with `error` if that takes too much.
fn sort(table: &DbTable, order: &Arc<dyn Comparator>, error: Error) -> Result<Memtable> {
    let memtable = Memtable::with_comparator(order.clone());
    let mut bytes = 0;
    for entry in table.iter() {
        let DbEntry {
            user_key,
            sequence,
            version,
        } = entry?;
        bytes += user_key.len();
        // Not a slice of its block, which it would keep in memory.
        let version = match version {
            Version::Value(value) => Some(value.to_vec()).into(),
            Version::Deleted => Version::Deleted,
        };
        if let Version::Value(value) = &version {
            bytes += value.len();
        }
        if bytes > MOST_SORTED {
            return Err(error);
        }
        memtable.add(user_key, sequence, version);
    }
    Ok(memtable)
}

impl OpenTable {
    /// The table as it is stored.
    pub(crate) fn stored(&self) -> &DbTable {
        &self.table
    }

    /// The newest version of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<DbEntry>> {
        match &self.sorted {
            Some(sorted) => Ok(sorted.get_at(key, MAX_SEQUENCE)),
            None => self.table.at(MAX_SEQUENCE).get_entry(key),
        }
    }

    /// The newest versions of many keys.
    pub(crate) fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Version>>> {
        match &self.sorted {
            Some(sorted) => {
                let get = |key: &&[u8]| Some(sorted.get_at(key, MAX_SEQUENCE)?.version);
                Ok(keys.iter().map(get).collect())
            }
            None => self.table.at(MAX_SEQUENCE).get_many(keys),
        }
    }

    /// All versions of the keys within bounds.
    pub(crate) fn range(&self, bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> DbRange {
        match &self.sorted {
            Some(sorted) => sorted.range(bounds),
            None => self.table.range(bounds),
        }
    }
}
