//! Writes tables of a LevelDB database.

use std::fmt;
use std::path::Path;

use crate::db::key::{InternalKey, MAX_SEQUENCE, ValueType, internal_order};
use crate::error::{Error, ErrorKind, Result};
use crate::write::builder::{Summary, TableBuilder};
use crate::write::new_file::{Destination, NewFile};
use crate::write::options::WriteOptions;

/// Writes a table of a LevelDB database; made by [`WriteOptions::create_db`].
///
/// Entries come in the table's order: user keys ascending, the versions of each newest first.
pub struct DbTableBuilder<D: Destination> {
    table: TableBuilder<D>,
    stored_key: Vec<u8>,
}

impl<D: Destination> fmt::Debug for DbTableBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DbTableBuilder")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl WriteOptions {
    /// Starts a database's table at `path`, published like that of [`create`](WriteOptions::create).
    /// [`comparator`](WriteOptions::comparator) and [`filter_policy`](WriteOptions::filter_policy) speak of user
    /// keys here. For LevelDB itself to use its filter, start from [`leveldb`](WriteOptions::leveldb).
    ///
    /// # Errors
    ///
    /// As [`create`](WriteOptions::create).
    pub fn create_db(&self, path: impl AsRef<Path>) -> Result<DbTableBuilder<NewFile>> {
        Ok(DbTableBuilder::over(self.for_internal_keys().create(path)?))
    }

    /// Starts a database's table that is written to `writer`; see [`build`](WriteOptions::build).
    pub fn build_db<D: Destination>(&self, writer: D) -> DbTableBuilder<D> {
        DbTableBuilder::over(self.for_internal_keys().build(writer))
    }

    fn for_internal_keys(&self) -> WriteOptions {
        let mut options = self.clone();
        options.order = internal_order(self.order.clone());
        options
    }
}

impl<D: Destination> DbTableBuilder<D> {
    fn over(table: TableBuilder<D>) -> DbTableBuilder<D> {
        DbTableBuilder {
            table,
            stored_key: Vec::new(),
        }
    }

    /// Adds that `user_key` got `value` at `sequence`.
    ///
    /// # Errors
    ///
    /// As [`TableBuilder::add`], and [`ErrorKind::TooLarge`] for a sequence number above
    /// [`MAX_SEQUENCE`]; nothing is changed then.
    pub fn put(&mut self, user_key: &[u8], sequence: u64, value: &[u8]) -> Result<()> {
        self.add(user_key, sequence, ValueType::Value, value)
    }

    /// Adds that `user_key` was deleted at `sequence`.
    ///
    /// # Errors
    ///
    /// As [`put`](DbTableBuilder::put).
    pub fn delete(&mut self, user_key: &[u8], sequence: u64) -> Result<()> {
        self.add(user_key, sequence, ValueType::Deletion, &[])
    }

    fn add(
        &mut self,
        user_key: &[u8],
        sequence: u64,
        value_type: ValueType,
        value: &[u8],
    ) -> Result<()> {
        if sequence > MAX_SEQUENCE {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("sequence number {sequence} does not fit 56 bits"),
            ));
        }
        self.stored_key.clear();
        InternalKey {
            user_key,
            sequence,
            value_type,
        }
        .encode(&mut self.stored_key);
        self.table.add(&self.stored_key, value)
    }

    /// The builder inside, whose keys are internal keys.
    pub(crate) fn table_mut(&mut self) -> &mut TableBuilder<D> {
        &mut self.table
    }

    /// Ends the data block under way; see [`TableBuilder::flush`].
    ///
    /// # Errors
    ///
    /// As [`TableBuilder::flush`].
    pub fn flush(&mut self) -> Result<()> {
        self.table.flush()
    }

    /// Number of entries added so far.
    pub fn entries(&self) -> u64 {
        self.table.entries()
    }

    /// Bytes of the file so far; see [`TableBuilder::file_bytes`].
    pub fn file_bytes(&self) -> u64 {
        self.table.file_bytes()
    }

    /// Writes what is left and publishes the table; see [`TableBuilder::finish`].
    ///
    /// # Errors
    ///
    /// As [`TableBuilder::finish`].
    pub fn finish(self) -> Result<Summary> {
        self.table.finish()
    }
}
