//! Opens plain tables and tables of databases, and reads both in the same way.

use std::fs;
use std::io::{self, Write};
use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use leveltable::{
    BytewiseComparator, DbTable, Error, ErrorKind, OpenOptions, Result, Table,
    db::{DbEntry, InternalKeyComparator, KeyKind, ValueType, Version},
};

use crate::failure::Failure;
use crate::files::tables_in;
use crate::notation::{Notation, write_json_field};
use crate::output::complain;
use crate::place::{check_url, is_url, source};
use crate::remote::Set;

/// The option that overrules what a table's keys are taken for.
#[derive(Args, Clone, Copy)]
pub(crate) struct KeysArg {
    /// The kind of the tables' keys
    #[arg(long, value_enum, default_value_t = Keys::Auto, value_name = "KIND")]
    pub(crate) keys: Keys,
}

/// The option that names a publication of a set.
#[derive(Args)]
pub(crate) struct SetArg {
    /// Read this publication of the set, as `splits` prints it, or fail
    #[arg(long, value_name = "ID")]
    set: Option<String>,
}

impl SetArg {
    /// Opens the set whose manifest is at `path`. `None` if it is a table, which no publication was named of.
    pub(crate) fn open(&self, path: &Path) -> std::result::Result<Option<Set>, Failure> {
        let set = Set::open(path)?;
        let failed = |what: &str| Err(Failure::new(what).at(path.display()));
        match (&self.set, &set) {
            (Some(_), None) => failed("not a set, which --set asks for"),
            (Some(id), Some(set)) if *id != set.id() => {
                failed("another set is published here than --set asks for: run `splits` again")
            }
            _ => Ok(set),
        }
    }
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
pub(crate) struct AnyTable {
    pub(crate) keys: TypedTable,
    /// Whether the keys ascend in byte order, or in that of a database. If not, the table can only be walked, in the
    /// order in which it is stored.
    pub(crate) order_is_known: bool,
}

/// A table whose keys are shown as they are, or as those of a database.
pub(crate) enum TypedTable {
    Plain(Table),
    Database(DbTable),
}

/// Rows of a table, or the error at which they end.
pub(crate) type RowIter = Box<dyn DoubleEndedIterator<Item = Result<Row>>>;

/// An entry of either kind of table.
pub(crate) struct Row {
    pub(crate) key: Bytes,
    /// Sequence number and type, in a table of a database.
    pub(crate) tag: Option<(u64, ValueType)>,
    pub(crate) value: Bytes,
}

impl Keys {
    /// Returns the kind of keys that the option names, if it does.
    pub(crate) fn named(self) -> Option<KeyKind> {
        match self {
            Keys::Auto => None,
            Keys::Plain => Some(KeyKind::Plain),
            Keys::Database | Keys::Stored => Some(KeyKind::Database),
        }
    }

    fn open(self, path: &Path, options: &OpenOptions) -> Result<TypedTable> {
        let as_plain = |options: OpenOptions| {
            let opened = options.open_source(source(path)?);
            opened.map(TypedTable::Plain)
        };
        let as_database = || {
            let opened = options.open_db_source(source(path)?);
            opened.map(TypedTable::Database)
        };
        match self {
            Keys::Auto => match as_plain(options.clone()) {
                Err(e) if e.kind() == ErrorKind::DatabaseTable => as_database(),
                opened => opened,
            },
            Keys::Plain => as_plain(options.clone().comparator(BytewiseComparator)),
            Keys::Database => as_database(),
            Keys::Stored => {
                let order = InternalKeyComparator::new(BytewiseComparator);
                as_plain(options.clone().comparator(order))
            }
        }
    }

    /// Returns whether the filter is unused because of `--keys plain`: the same table has a filter when it is
    /// opened as a table of a database.
    pub(crate) fn leave_filter_unused(self, path: &Path) -> bool {
        self.opened_as_database(path)
            .is_some_and(|table| table.as_table().filter().is_some())
    }

    fn opened_as_database(self, path: &Path) -> Option<DbTable> {
        let source = (self == Keys::Plain).then(|| source(path));
        OpenOptions::new().open_db_source(source?.ok()?).ok()
    }
}

/// Opens the table at `path` without its filter. Reading it costs more than it saves a scan or a single lookup.
pub(crate) fn open(path: &Path, keys: Keys) -> Result<AnyTable, Failure> {
    check_is_file(path)?;
    open_with(path, keys, &OpenOptions::new().no_filter()).map_err(|e| refused(e, path))
}

/// Opens the table at `path`. If its order is not known, opens it for walking.
pub(crate) fn open_with(path: &Path, keys: Keys, options: &OpenOptions) -> Result<AnyTable> {
    // A cache is useless, because each block is read once.
    let options = options.clone().no_cache();
    match keys.open(path, &options) {
        Ok(keys) => Ok(AnyTable {
            keys,
            order_is_known: true,
        }),
        Err(e) if e.kind() == ErrorKind::Comparator => match keys {
            Keys::Auto => {
                let plain = options.open_source(source(path)?).map_err(|e| e.kind());
                let is_database = matches!(plain, Err(ErrorKind::DatabaseTable));
                let stored = is_database.then(|| open_in_stored_order(path, true));
                match stored {
                    Some(Ok(table)) => Ok(table),
                    _ => open_in_stored_order(path, false),
                }
            }
            // Keys that are not a database's are not shown as if they were.
            Keys::Database => open_in_stored_order(path, true).map_err(|_| e),
            Keys::Plain | Keys::Stored => open_in_stored_order(path, false),
        },
        Err(e) => Err(e),
    }
}

/// Returns `table`, which was opened from `path`, once it is certain that its keys are in the order that was guessed: if nothing
/// says what its order is, by reading all of it. If they are not, returns it opened for walking.
pub(crate) fn make_certain(path: &Path, keys: Keys, table: AnyTable) -> Result<AnyTable, Failure> {
    let is_guess = keys == Keys::Auto && table.table().properties().is_none();
    if !is_guess || !table.order_is_known {
        return Ok(table);
    }
    let options = OpenOptions::new().no_filter().check_order(true);
    Ok(open_with(path, keys, &options)?)
}

/// Opens a table for walking, in the order in which it is stored.
pub(crate) fn open_in_stored_order(path: &Path, is_database: bool) -> Result<AnyTable> {
    let options = OpenOptions::new().no_cache().stored_order();
    let keys = if is_database {
        TypedTable::Database(options.open_db_source(source(path)?)?)
    } else {
        TypedTable::Plain(options.open_source(source(path)?)?)
    };
    Ok(AnyTable {
        keys,
        order_is_known: false,
    })
}

/// Says on standard error that the order of the table at `path` is unknown, and what is done about it.
pub(crate) fn note_unknown_order(path: &Path, keys: Keys, remedy: &str) {
    let path = path.display();
    let what = match keys {
        Keys::Auto => "the keys are neither in byte order nor in that of a database",
        Keys::Plain => "the keys are not in byte order",
        Keys::Database | Keys::Stored => "the keys are not in the order of a database",
    };
    complain("note", &format!("{path}: {what}: {remedy}"));
}

/// What is done with a table whose order is unknown.
pub(crate) const SHOWN_AS_STORED: &str = "shown in the order in which they are stored";

/// Returns the failure for a table that does not open.
pub(crate) fn refused(error: Error, path: &Path) -> Failure {
    match error.kind() {
        ErrorKind::Comparator => Failure::new(format!(
            "{}: the keys are not those that --keys implies: leave the option out to detect their kind",
            path.display()
        )),
        _ => error.into(),
    }
}

/// Returns whether the table at `path` is the manifest of a set, which a property says.
pub(crate) fn is_manifest(path: &Path) -> Result<bool> {
    // A manifest names its order in its properties. Of a table that names none, a sample would be read.
    let options = OpenOptions::new().no_filter().no_cache().check_order(false);
    let table = options.open_source(source(path)?)?;
    let properties = table.properties();
    Ok(properties.is_some_and(|properties| properties.user("leveltable.set").is_some()))
}

/// Fails with a remedy if `path` is neither a regular file nor a URL.
pub(crate) fn check_is_file(path: &Path) -> Result<(), Failure> {
    check_url(path)?;
    if is_url(path) {
        return Ok(());
    }
    let fail = |what: &str| Err(Failure::new(format!("{}: {what}", path.display())));
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => fail("no such file"),
        Err(e) => fail(&e.to_string()),
        Ok(metadata) if metadata.is_dir() => match tables_in(path).as_deref() {
            Some([table, ..]) => fail(&format!(
                "is a directory: name one of its tables, such as {}",
                table.display()
            )),
            _ => fail("is a directory without tables (.ldb, .sst)"),
        },
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => fail(
            "not a regular file: reading a table needs random access, so save it to a file first",
        ),
    }
}

impl AnyTable {
    /// Returns the table with its keys as they are stored.
    pub(crate) fn table(&self) -> &Table {
        match &self.keys {
            TypedTable::Plain(table) => table,
            TypedTable::Database(table) => table.as_table(),
        }
    }

    pub(crate) fn is_database(&self) -> bool {
        matches!(self.keys, TypedTable::Database(_))
    }

    /// Returns the entries whose keys, or user keys in a table of a database, lie within the bounds. If the order is
    /// not known, bounds are an error of the iterator.
    pub(crate) fn rows(&self, bounds: Bounds) -> RowIter {
        match &self.keys {
            TypedTable::Plain(table) => {
                let range = table.range(bounds);
                Box::new(range.map(|entry| {
                    entry.map(|(key, value)| Row {
                        key,
                        tag: None,
                        value,
                    })
                }))
            }
            TypedTable::Database(table) => {
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
    /// Writes the line `key<TAB>value`, or `key<TAB>sequence<TAB>type<TAB>value`. Cuts the value to `width` characters.
    pub(crate) fn write_line(
        &self,
        notation: Notation,
        keys_only: bool,
        width: Option<usize>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        notation.write(&self.key, out)?;
        if let Some((sequence, value_type)) = self.tag {
            write!(out, "\t{sequence}\t{}", type_name(value_type))?;
        }
        if !keys_only {
            out.write_all(b"\t")?;
            match width {
                Some(width) => notation.write_cut(&self.value, width, out)?,
                None => notation.write(&self.value, out)?,
            }
        }
        out.write_all(b"\n")
    }

    /// Writes the entry as a line with a JSON object, which begins with the name of its file if one is given.
    pub(crate) fn write_json(
        &self,
        hex: bool,
        keys_only: bool,
        file: Option<&Path>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        out.write_all(b"{")?;
        if let Some(file) = file {
            out.write_all(b"\"file\":")?;
            serde_json::to_writer(&mut *out, &file.to_string_lossy())?;
            out.write_all(b",")?;
        }
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
