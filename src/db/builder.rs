//! Writes tables of a LevelDB database.

use std::io;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result, show_key};
use crate::format::internal_key::{InternalKey, MAX_SEQUENCE, ValueType, internal_order};
use crate::sorted_input::SortedInput;
use crate::write::builder::TableBuilder;
use crate::write::new_file::{Destination, NewFile};
use crate::write::options::WriteOptions;
use crate::write::summary::Summary;

/// Writes a table of a LevelDB database; made by [`WriteOptions::create_db`].
///
/// Entries come in the table's order: user keys ascending, the versions of each newest first.
///
/// ```
/// use leveltable::{DbTable, WriteOptions, db::Version};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("000005.ldb");
/// let mut builder = WriteOptions::new().create_db(&path)?;
/// builder.put("apple", 9, "green")?;
/// builder.put("apple", 4, "red")?;
/// builder.delete("banana", 7)?;
/// builder.finish()?;
///
/// assert_eq!(DbTable::open(&path)?.get(b"banana")?, Some(Version::Deleted));
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "there is no table until `finish`"]
pub struct DbTableBuilder<D: Destination> {
    /// Takes internal keys.
    pub(crate) table: TableBuilder<D>,
    /// The stored form of the key being added.
    stored_key: Vec<u8>,
}

impl WriteOptions {
    /// Starts a database's table at `path`, published like that of [`create`](WriteOptions::create).
    ///
    /// [`comparator`](WriteOptions::comparator) and [`filter_policy`](WriteOptions::filter_policy) are for user keys here.
    /// LevelDB uses the filter only of tables that start from [`leveldb`](WriteOptions::leveldb).
    ///
    /// # Errors
    ///
    /// Same as [`create`](WriteOptions::create).
    pub fn create_db(&self, path: impl AsRef<Path>) -> Result<DbTableBuilder<NewFile>> {
        Ok(DbTableBuilder::over(self.for_internal_keys().create(path)?))
    }

    /// Starts a database's table that is written to `writer`; see [`build`](WriteOptions::build).
    pub fn build_db<D: Destination>(&self, writer: D) -> DbTableBuilder<D> {
        DbTableBuilder::over(self.for_internal_keys().build(writer))
    }

    fn for_internal_keys(&self) -> WriteOptions {
        let mut options = self.clone();
        options.0.order = internal_order(self.0.order.clone());
        options
    }
}

impl<W: io::Write> DbTableBuilder<W> {
    /// Finishes the table and gives the writer back; see [`TableBuilder::finish_into_writer`].
    ///
    /// # Errors
    ///
    /// Same as [`TableBuilder::finish`].
    pub fn finish_into_writer(self) -> Result<(W, Summary)> {
        self.table.finish_into_writer()
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
    /// Same as [`TableBuilder::add`], and [`ErrorKind::TooLarge`] for a sequence number above [`MAX_SEQUENCE`], after which
    /// nothing has changed.
    pub fn put(
        &mut self,
        user_key: impl AsRef<[u8]>,
        sequence: u64,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let key = InternalKey::new(user_key.as_ref(), sequence, ValueType::Value);
        self.add(key, value)
    }

    /// Adds that `user_key` was deleted at `sequence`.
    ///
    /// # Errors
    ///
    /// Same as [`put`](DbTableBuilder::put).
    pub fn delete(&mut self, user_key: impl AsRef<[u8]>, sequence: u64) -> Result<()> {
        let key = InternalKey::new(user_key.as_ref(), sequence, ValueType::Deletion);
        self.add(key, [])
    }

    /// Adds an entry as another table stores it. LevelDB's deletions have an empty value.
    ///
    /// # Errors
    ///
    /// Same as [`put`](DbTableBuilder::put).
    pub fn add(&mut self, key: InternalKey<'_>, value: impl AsRef<[u8]>) -> Result<()> {
        if key.sequence > MAX_SEQUENCE {
            let message = format!("sequence number {} does not fit into 56 bits", key.sequence);
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        self.stored_key.clear();
        key.encode(&mut self.stored_key);
        self.table.add(&self.stored_key, value.as_ref())
    }

    /// Adds all entries of a source of internal keys, as other tables store them: a [`DbRange`](crate::db::DbRange), a merge of tables, a
    /// [`Compaction`](crate::db::Compaction).
    ///
    /// Costs an [`add`](DbTableBuilder::add) for each entry; the source lends key and value. In C++ LevelDB, `DBImpl::DoCompactionWork`
    /// is this loop.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions, db::Compaction};
    /// # let mut builder = WriteOptions::new().build_db(Vec::new());
    /// # builder.put("apple", 9, "green")?;
    /// # builder.put("apple", 4, "red")?;
    /// # let table = OpenOptions::new().open_db_source(builder.finish_into_writer()?.0)?;
    /// // A table with two versions of a key, of which no snapshot sees the older one.
    /// let mut compacted = WriteOptions::new().build_db(Vec::new());
    /// compacted.extend(Compaction::new(table.cursor(), []))?;
    /// assert_eq!(compacted.finish()?.properties.entries, 1);
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the source, and of [`put`](DbTableBuilder::put); and [`ErrorKind::InvalidState`] for a key that is not an internal key.
    /// The entries before the error have been added.
    pub fn extend(&mut self, mut source: impl SortedInput) -> Result<()> {
        while source.advance()? {
            parse_version(source.key())?;
            self.table.add(source.key(), source.value())?;
        }
        Ok(())
    }

    /// The builder of the table as it is stored, for all that does not depend on the form of keys: [`property`](TableBuilder::property),
    /// [`flush`](TableBuilder::flush), [`file_bytes`](TableBuilder::file_bytes). Entries added there must have internal keys.
    pub fn table_mut(&mut self) -> &mut TableBuilder<D> {
        &mut self.table
    }

    /// Writes what is left and publishes the table; see [`TableBuilder::finish`].
    ///
    /// # Errors
    ///
    /// Same as [`TableBuilder::finish`].
    pub fn finish(self) -> Result<Summary> {
        self.table.finish()
    }
}

/// Parses the key of an entry that a source of internal keys lends.
///
/// # Errors
///
/// [`ErrorKind::InvalidState`] if it is not an internal key.
pub fn parse_version(stored: &[u8]) -> Result<InternalKey<'_>> {
    InternalKey::parse(stored).ok_or_else(|| {
        let message = format!(
            "{} is not an internal key, which ends in sequence number and type",
            show_key(stored)
        );
        Error::new(ErrorKind::InvalidState, message)
    })
}
