//! How the tables of a database are opened.

use std::path::Path;
use std::sync::Arc;

use leveltable::db::{Memtable, Version};
use leveltable::{BytewiseComparator, Comparator, DbTable, Error, ErrorKind, OpenOptions, Result};
use leveltable::{Compression, WriteOptions};

/// Bytes of keys and values of a table that is sorted in memory.
const MAX_SORTED_BYTES: usize = 256 << 20;

/// How the tables of a database are opened.
#[derive(Debug, Clone)]
pub(crate) struct TableOptions {
    options: OpenOptions,
    /// `None` if it is not known.
    order: Option<Arc<dyn Comparator>>,
}

impl TableOptions {
    pub(crate) fn new(options: &OpenOptions, order: Option<&Arc<dyn Comparator>>) -> TableOptions {
        let order = order.cloned();
        let options = match &order {
            // Programs that do not know an order are known to have opened databases under its name, and to have written tables in
            // bytewise order there. Nobody does that to bytewise databases.
            Some(order) => {
                let options = options.clone().comparator(order.clone());
                if order.name() == BytewiseComparator.name() {
                    options
                } else {
                    options.check_order(true)
                }
            }
            None => options.clone().stored_order(),
        };
        TableOptions { options, order }
    }

    /// Opens a table. Sorts one in memory that turns out to be in another order than the database.
    pub(crate) fn open(&self, path: &Path) -> Result<DbTable> {
        match (self.open_stored(path)?, &self.order) {
            ((table, Some(error)), Some(order)) => self.sort(&table, order, error),
            ((table, _), _) => Ok(table),
        }
    }

    /// Opens a table as it is stored, with an error if that is in another order than the database.
    pub(crate) fn open_stored(&self, path: &Path) -> Result<(DbTable, Option<Error>)> {
        match self.options.open_db(path) {
            Err(error) if error.kind() == ErrorKind::Comparator => {
                let table = self.options.clone().stored_order().open_db(path)?;
                Ok((table, Some(error)))
            }
            opened => Ok((opened?, None)),
        }
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
        self.options.open_db_source(builder.finish_into_writer()?.0)
    }
}
