//! Opening a table whose kind is not known beforehand, and reading it in one way whatever it is.

use std::fs;
use std::io::{self, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use leveltable::{
    BytewiseComparator, DbEntry, DbTable, ErrorKind, InternalKeyComparator, OpenOptions, Result,
    Table, ValueType, Version,
};

use crate::failure::Failure;
use crate::notation::{Notation, write_json_field};

/// The table, and what its keys are.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// The table's file
    pub(crate) file: PathBuf,
    /// What the table's keys are
    #[arg(long, value_enum, default_value_t = Keys::Auto, value_name = "KIND")]
    pub(crate) keys: Keys,
}

/// How a table's keys are to be understood.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Find out: those of a database show by their last eight bytes
    Auto,
    /// Just keys, in the order of their bytes
    Plain,
    /// A database's: user key, sequence number, and whether it was written or deleted
    Database,
    /// A database's, shown as they are stored, with their last eight bytes
    Stored,
}

/// Where a walk begins and ends.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// An open table of either kind.
pub(crate) enum AnyTable {
    Plain(Table),
    Database(DbTable),
}

/// An entry of either kind of table.
pub(crate) struct Row {
    pub(crate) key: Bytes,
    /// In a database's table: its sequence number, and whether it was written or deleted.
    pub(crate) tag: Option<(u64, ValueType)>,
    pub(crate) value: Bytes,
}

impl TableArgs {
    /// Opens the table for a walk or a single lookup, which are better off without reading its filter.
    pub(crate) fn open(&self) -> Result<AnyTable, Failure> {
        self.open_with(OpenOptions::new().no_filters())
    }

    /// Opens the table with its filter, to look at that.
    pub(crate) fn open_with_filter(&self) -> Result<AnyTable, Failure> {
        self.open_with(OpenOptions::new())
    }

    /// Whether `--keys` is why the filter is not used: the table, read as a database's, has it.
    pub(crate) fn filter_is_for_user_keys(&self) -> bool {
        let has_filter = |table: DbTable| table.as_table().filter().is_some();
        self.keys == Keys::Plain && OpenOptions::new().open_db(&self.file).is_ok_and(has_filter)
    }

    fn open_with(&self, options: OpenOptions) -> Result<AnyTable, Failure> {
        let path = &self.file;
        check_is_file(path)?;
        // Each block is read once.
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
                "{}: the keys do not ascend in the order that --keys says: leave it out to find out",
                path.display()
            )),
            _ => e.into(),
        })
    }
}

/// The table at `path` is in the order of a comparator that its writer brought along.
#[cold]
pub(crate) fn own_order(path: &Path) -> Failure {
    Failure::new(format!(
        "{}: the keys ascend neither by their bytes nor as a database's: the table was written in an order \
         of its own, which only a program that has its comparator can read",
        path.display()
    ))
}

/// Says what to do about what is not even a file.
pub(crate) fn check_is_file(path: &Path) -> Result<(), Failure> {
    let fail = |what: &str| Err(Failure::new(format!("{}: {what}", path.display())));
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => fail("no such file"),
        Err(e) => fail(&e.to_string()),
        Ok(metadata) if metadata.is_dir() => match table_in(path) {
            Some(table) => fail(&format!(
                "a directory: name one of the tables in it, such as {}",
                table.display()
            )),
            None => fail("a directory, without tables (.ldb, .sst) in it"),
        },
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => {
            fail("not an ordinary file: a table is read back and forth, so save it to a file first")
        }
    }
}

/// The first table in a directory, by name.
fn table_in(directory: &Path) -> Option<PathBuf> {
    let paths = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let is_table = |path: &PathBuf| path.extension().is_some_and(|e| e == "ldb" || e == "sst");
    paths.filter(is_table).min()
}

impl AnyTable {
    /// The table as it is stored.
    pub(crate) fn table(&self) -> &Table {
        match self {
            AnyTable::Plain(table) => table,
            AnyTable::Database(table) => table.as_table(),
        }
    }

    /// The entries whose (user) keys lie within the bounds, from either end.
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

/// The word for a type that rows show and `build` takes.
pub(crate) fn type_name(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Value => "value",
        ValueType::Deletion => "deletion",
    }
}

impl Row {
    /// Writes `key<TAB>value`, or `key<TAB>sequence<TAB>type<TAB>value`, and ends the line.
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

    /// Writes the entry as a JSON object, and ends the line.
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
