//! Opening the tables of a database.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leveltable::db::{Memtable, Version};
use leveltable::{Comparator, Compression, Corruption, DbTable, Error, ErrorKind, Result};
use leveltable::{Section, WriteOptions};

use crate::directory::{file_name, name_of, replaced};
use crate::state::{Listed, State};

/// Bytes of keys and values of a table that is sorted in memory.
const MAX_SORTED_BYTES: usize = 256 << 20;

/// Seen by ranges under way, which cannot start over; by others only if this happens each time they read the database again.
const REMOVED: &str =
    "the table was removed by a compaction: try again, or pin the database before";

impl State {
    /// Opens a listed table, or returns it if it is open.
    ///
    /// Fails with [`ErrorKind::Replaced`] if the state is out of date: the table vanished, or its number is perhaps that of
    /// another table now.
    pub(crate) fn table(&self, table: &Listed) -> Result<DbTable> {
        if let Some(kept) = table.kept.get() {
            return Ok(kept.clone());
        }
        let opened = self.open(table.file.number, table.file.size)?;
        let tables = self.runs.iter().map(|run| run.tables.len());
        if tables.sum::<usize>() <= self.max_open {
            // Another thread may have done the same.
            let _ = table.kept.set(opened.clone());
        }
        Ok(opened)
    }

    /// Opens all tables, and keeps them open as long as the state.
    pub(crate) fn pin(&self) -> Result<()> {
        for (_, table) in self.tables() {
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
            let opened = self.open_stored(&path);
            // Whatever was opened, or was not: it is the database's only if that is still the one that was read.
            if let Some(current) = &self.current
                && !current.is_current(&self.dir)?
            {
                let what = "the database was reopened or replaced by its writer";
                return Err(replaced(what, &path));
            }
            let (table, other_order) = opened.map_err(|e| self.explain_missing(e, &path))?;
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
        match self.table_options.open_db(path) {
            Err(error) if error.kind() == ErrorKind::Comparator => {
                let table = self.table_options.clone().stored_order().open_db(path)?;
                Ok((table, Some(error)))
            }
            opened => Ok((opened?, None)),
        }
    }

    /// The error of a table that is not there, which says whether the MANIFEST has changed since.
    #[cold]
    pub(crate) fn explain_missing(&self, error: Error, path: &Path) -> Error {
        let Some(current) = self.current.as_ref().filter(|_| is_not_found(&error)) else {
            return error;
        };
        // A writer removes a table after it has written so to the MANIFEST.
        match current.len() {
            Ok(bytes) if bytes == self.manifest_bytes => {
                let manifest = name_of(&current.path);
                let doing = format!("{manifest} lists this table; opening it");
                Error::io(doing, io::ErrorKind::NotFound.into()).at_path(path)
            }
            _ => replaced(REMOVED, path),
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
        let sorted = builder.finish_into_writer()?.0;
        self.table_options.open_db_source(sorted)
    }
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    io::Error::from(error.clone()).kind() == io::ErrorKind::NotFound
}
