//! Opens plain tables and tables of databases, and reads both in the same way.

use std::fs;
use std::io::{self, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use leveltable::{
    BytewiseComparator, DbTable, ErrorKind, OpenOptions, Result, Table,
    db::{DbEntry, InternalKeyComparator, ValueType, Version},
};

use crate::failure::Failure;
use crate::notation::{Notation, write_json_field};

/// Arguments that name a table and the kind of its keys.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// The table's file
    pub(crate) file: PathBuf,
    /// The kind of the table's keys
    #[arg(long, value_enum, default_value_t = Keys::Auto, value_name = "KIND")]
    pub(crate) keys: Keys,
}

/// The kind of a table's keys.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Detect the kind: keys of a database are recognised by their last eight bytes
    Auto,
    /// Plain keys in byte order
    Plain,
    /// Keys of a database: user key, sequence number and type
    Database,
    /// Keys of a database, shown as they are stored, including their last eight bytes
    Stored,
}

/// The range of keys to scan.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// An open table of either kind.
pub(crate) enum AnyTable {
    Plain(Table),
    Database(DbTable),
}

/// An entry of either kind of table.
pub(crate) struct Row {
    pub(crate) key: Bytes,
    /// Sequence number and type, in a table of a database.
    pub(crate) tag: Option<(u64, ValueType)>,
    pub(crate) value: Bytes,
}

impl TableArgs {
    /// Opens the table without its filter. Reading it costs more than it saves a scan or a single lookup.
    pub(crate) fn open(&self) -> Result<AnyTable, Failure> {
        self.open_with(OpenOptions::new().no_filter())
    }

    /// Opens the table with its filter, to describe it.
    pub(crate) fn open_with_filter(&self) -> Result<AnyTable, Failure> {
        self.open_with(OpenOptions::new())
    }

    /// Returns whether the filter is unused because of `--keys plain`: the same table has a filter when it is
    /// opened as a table of a database.
    pub(crate) fn filter_is_for_user_keys(&self) -> bool {
        let has_filter = |table: DbTable| table.as_table().filter().is_some();
        self.keys == Keys::Plain && OpenOptions::new().open_db(&self.file).is_ok_and(has_filter)
    }

    fn open_with(&self, options: OpenOptions) -> Result<AnyTable, Failure> {
        let path = &self.file;
        check_is_file(path)?;
        // A cache is useless, because each block is read once.
        let options = options.no_cache();
        let internal_order = InternalKeyComparator::new(BytewiseComparator);
        let opened = match self.keys {
            Keys::Auto => match options.open(path) {
                Err(e) if e.kind() == ErrorKind::DatabaseTable => {
                    options.open_db(path).map(AnyTable::Database)
                }
                opened => opened.map(AnyTable::Plain),
            },
            Keys::Plain => {
                let options = options.comparator(BytewiseComparator);
                options.open(path).map(AnyTable::Plain)
            }
            Keys::Database => options.open_db(path).map(AnyTable::Database),
            Keys::Stored => {
                let options = options.comparator(internal_order);
                options.open(path).map(AnyTable::Plain)
            }
        };
        opened.map_err(|e| match (e.kind(), self.keys) {
            (ErrorKind::Comparator, Keys::Auto) => own_order(path),
            (ErrorKind::Comparator, _) => Failure::new(format!(
                "{}: the keys are not in the order that --keys implies: leave the option out to detect their kind",
                path.display()
            )),
            _ => e.into(),
        })
    }
}

/// Returns the failure for a table whose writer used a comparator of its own.
#[cold]
pub(crate) fn own_order(path: &Path) -> Failure {
    Failure::new(format!(
        "{}: the keys are neither in byte order nor in that of a database: the table was written with a custom \
         comparator, and only a program with the same comparator can read it",
        path.display()
    ))
}

/// Fails with a remedy if `path` is not a regular file.
pub(crate) fn check_is_file(path: &Path) -> Result<(), Failure> {
    let fail = |what: &str| Err(Failure::new(format!("{}: {what}", path.display())));
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => fail("no such file"),
        Err(e) => fail(&e.to_string()),
        Ok(metadata) if metadata.is_dir() => match table_in(path) {
            Some(table) => fail(&format!(
                "is a directory: name one of its tables, such as {}",
                table.display()
            )),
            None => fail("is a directory without tables (.ldb, .sst)"),
        },
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => fail(
            "not a regular file: reading a table needs random access, so save it to a file first",
        ),
    }
}

/// Returns the first table in a directory, by name.
fn table_in(directory: &Path) -> Option<PathBuf> {
    let paths = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let is_table = |path: &PathBuf| path.extension().is_some_and(|e| e == "ldb" || e == "sst");
    paths.filter(is_table).min()
}

impl AnyTable {
    /// Returns the table with its keys as they are stored.
    pub(crate) fn table(&self) -> &Table {
        match self {
            AnyTable::Plain(table) => table,
            AnyTable::Database(table) => table.as_table(),
        }
    }

    /// Returns the entries whose keys, or user keys in a table of a database, lie within the bounds.
    pub(crate) fn rows(&self, bounds: Bounds) -> Box<dyn DoubleEndedIterator<Item = Result<Row>>> {
        match self {
            AnyTable::Plain(table) => {
                let range = table.range(bounds);
                Box::new(range.map(|entry| {
                    entry.map(|(key, value)| Row {
                        key,
                        tag: None,
                        value,
                    })
                }))
            }
            AnyTable::Database(table) => {
                let range = table.range(bounds);
                Box::new(range.map(|entry| entry.map(Row::from)))
            }
        }
    }
}

impl From<DbEntry> for Row {
    fn from(entry: DbEntry) -> Row {
        let (value_type, value) = match entry.version {
            Version::Value(value) => (ValueType::Value, value),
            Version::Deleted => (ValueType::Deletion, Bytes::new()),
        };
        Row {
            key: entry.user_key,
            tag: Some((entry.sequence, value_type)),
            value,
        }
    }
}

/// Returns the name of a type that `scan` prints and `build` reads.
pub(crate) fn type_name(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Value => "value",
        ValueType::Deletion => "deletion",
    }
}

impl Row {
    /// Writes the line `key<TAB>value`, or `key<TAB>sequence<TAB>type<TAB>value`.
    pub(crate) fn write_line(
        &self,
        notation: Notation,
        keys_only: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        notation.write(&self.key, out)?;
        if let Some((sequence, value_type)) = self.tag {
            write!(out, "\t{sequence}\t{}", type_name(value_type))?;
        }
        if !keys_only {
            out.write_all(b"\t")?;
            notation.write(&self.value, out)?;
        }
        out.write_all(b"\n")
    }

    /// Writes the entry as a line with a JSON object.
    pub(crate) fn write_json(
        &self,
        hex: bool,
        keys_only: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        out.write_all(b"{")?;
        write_json_field("key", &self.key, hex, out)?;
        if let Some((sequence, value_type)) = self.tag {
            let name = type_name(value_type);
            write!(out, ",\"sequence\":{sequence},\"type\":\"{name}\"")?;
        }
        let deleted = matches!(self.tag, Some((_, ValueType::Deletion)));
        if !keys_only && !deleted {
            out.write_all(b",")?;
            write_json_field("value", &self.value, hex, out)?;
        }
        out.write_all(b"}\n")
    }
}
