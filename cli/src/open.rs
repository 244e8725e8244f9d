//! Opens plain tables and tables of databases, and reads both in the same way.

use std::fs;
use std::io;
use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use leveltable::{
    DbTable, Error, ErrorKind, OpenOptions, Result, Source, Table, db::KeyKind, db::MAX_SEQUENCE,
};
use leveltable_database::Database;

use crate::database::{self, order_beside};
use crate::failure::{Failure, is_not_found};
use crate::files::tables_in;
use crate::output::complain;
use crate::place::{check_url, copy_if_remote, is_url, source};
use crate::remote::open_set;
use crate::row::{Row, RowSource, directed};
use crate::set::Set;
use crate::sort::KeyOrder;

/// The option that overrules what a table's keys are taken for.
#[derive(Args, Clone, Copy)]
pub(crate) struct KeysArg {
    /// The kind of the tables' keys
    #[arg(long, value_enum, default_value_t = Keys::Auto, value_name = "KIND")]
    pub(crate) keys: Keys,
}

/// The options that say how to look for keys in a table or a set.
#[derive(Args)]
pub(crate) struct LookupArgs {
    #[command(flatten)]
    pub(crate) keys: KeysArg,
    /// First read all of a table that does not name its order, to be certain of it
    #[arg(long)]
    check_order: bool,
    /// Read this publication of the set, as `splits` prints it, or fail
    #[arg(long, value_name = "ID")]
    set: Option<String>,
}

/// What a path names.
pub(crate) enum Opened {
    Set(Box<dyn Set>),
    Database(Database),
    Table(AnyTable),
}

impl LookupArgs {
    /// Opens what `path` names, a table without its filter: reading it costs more than it saves a scan or a single lookup. Damaged
    /// records of a database's logs are an error unless `skip_damaged` leaves them out.
    pub(crate) fn open(
        &self,
        path: &Path,
        skip_damaged: bool,
    ) -> std::result::Result<Opened, Failure> {
        let opened = open_any(path, skip_damaged, || self.open_table(path))?;
        let failed = |what: &str| Err(Failure::new(what).at(path.display()));
        match (&self.set, &opened) {
            (Some(id), Opened::Set(set)) if *id != set.id() => {
                failed("another set is published here than --set asks for: run `splits` again")
            }
            (Some(_), Opened::Table(_) | Opened::Database(_)) => {
                failed("not a set, which --set asks for")
            }
            _ => Ok(opened),
        }
    }

    /// Opens the table at `path`, without its filter.
    pub(crate) fn open_table(&self, path: &Path) -> Result<AnyTable> {
        let options = OpenOptions::new().no_filter();
        open_with(path, self.keys.keys, options, self.check_order)
    }
}

/// Opens the set or the database at `path`, or by `open` the table. Only what is no file, or says that it is a manifest, is opened
/// as a set, so that metadata are read once.
pub(crate) fn open_any(
    path: &Path,
    skip_damaged: bool,
    open: impl FnOnce() -> Result<AnyTable>,
) -> std::result::Result<Opened, Failure> {
    check_url(path)?;
    if database::is_database(path) {
        return Ok(Opened::Database(database::open(path, skip_damaged)?));
    }
    let is_file = is_url(path) || fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let opened = is_file.then(open);
    let may_be_set = match &opened {
        Some(Ok(table)) => lists_a_set(table.table()),
        // A set's manifests may be numbered, in a directory.
        Some(Err(e)) => is_not_found(e),
        None => true,
    };
    if may_be_set && let Some(set) = open_set(path)? {
        return Ok(Opened::Set(set));
    }
    match opened {
        Some(opened) => Ok(Opened::Table(opened.map_err(|e| refused(e, path))?)),
        None => {
            check_is_file(path)?;
            Err(Failure::new("appeared while it was opened: try again").at(path.display()))
        }
    }
}

impl Opened {
    /// Returns the entry of each key. In a table of a database that is its newest entry not newer than `at`.
    pub(crate) fn get_many(&self, keys: &[Vec<u8>], at: Option<u64>) -> Result<Vec<Option<Row>>> {
        let values = match self {
            Opened::Set(set) => set.get_many(keys)?,
            Opened::Database(db) => db.get_many(keys)?,
            Opened::Table(table) => match &table.keys {
                TypedTable::Plain(table) => table.get_many(keys)?,
                TypedTable::Database(table) => {
                    let snapshot = table.at(at.unwrap_or(MAX_SEQUENCE));
                    let find = |key| Ok(snapshot.get_entry(key)?.map(Row::from));
                    return keys.iter().map(find).collect();
                }
            },
        };
        let keys = keys.iter().map(|key| Bytes::from(key.clone()));
        let found = keys.zip(values);
        Ok(found
            .map(|(key, value)| Some(Row::from((key, value?))))
            .collect())
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
    pub(crate) order: Order,
    /// Whether the order is byte order, of user keys in a table of a database.
    pub(crate) is_bytewise: bool,
}

/// What is known of the order of a table's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// They are in byte order, or in that of a database: the user or the table says so, or all of them were checked.
    Certain,
    /// Nothing speaks against it, but most of them were not read.
    Assumed,
    /// They are in neither. The table can only be walked, as it is stored.
    Unknown,
}

/// A table whose keys are shown as they are, or as those of a database.
pub(crate) enum TypedTable {
    Plain(Table),
    Database(DbTable),
}

/// Which way a walk goes.
#[derive(Clone, Copy)]
pub(crate) struct Direction {
    pub(crate) reverse: bool,
    /// Whether it is to reach the end of its bounds, and not only their first entries. Stores read ahead by it.
    #[cfg_attr(not(feature = "object-store"), expect(dead_code))]
    pub(crate) is_whole: bool,
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
}

/// Opens the table at `path` without its filter. A set is an error.
pub(crate) fn open_table(path: &Path, keys: Keys) -> Result<AnyTable, Failure> {
    let open = || open_with(path, keys, OpenOptions::new().no_filter(), false);
    match open_any(path, false, open)? {
        Opened::Table(table) => Ok(table),
        Opened::Set(_) | Opened::Database(_) => {
            Err(Failure::new("not a single table: name its tables").at(path.display()))
        }
    }
}

/// Up to this size, opening checks the order of all keys.
const CHECKED_WHEN_OPENED: u64 = 64 << 10;

/// Opens the table at `path`, and checks the order of all its keys if `check_order` asks for it. If they are in no known order,
/// opens it for walking.
pub(crate) fn open_with(
    path: &Path,
    keys: Keys,
    options: OpenOptions,
    check_order: bool,
) -> Result<AnyTable> {
    if check_order {
        copy_if_remote(path)?;
    }
    // A cache is useless, because each block is read once.
    let options = options.no_cache().check_order(check_order);
    let opened = match keys {
        Keys::Auto => return open_by_content(path, &options, check_order),
        Keys::Database => open_in(KeyOrder::Internal, path, &options),
        Keys::Plain => open_as(false, Some(KeyOrder::Bytewise), source(path)?, options),
        Keys::Stored => open_as(false, Some(KeyOrder::Internal), source(path)?, options),
    };
    match opened {
        Err(e) if e.kind() == ErrorKind::Comparator => {
            let is_database = keys == Keys::Database;
            // Keys that are not a database's are not shown as if they were.
            open_in_stored_order(path, is_database)
                .map_err(|other| if is_database { e } else { other })
        }
        opened => opened,
    }
}

/// Opens a table by what the MANIFEST beside it, the table itself or its keys say they are.
fn open_by_content(path: &Path, options: &OpenOptions, check_order: bool) -> Result<AnyTable> {
    if let Some(Ok(table)) = order_beside(path).map(|order| open_in(order, path, options)) {
        return Ok(table);
    }
    // Without an order, the library says whether the keys are those of a database, or in an order that the table names.
    let plain = options.open_source(source(path)?);
    let is_database = matches!(&plain, Err(e) if e.kind() == ErrorKind::DatabaseTable);
    let opened = if is_database {
        options
            .open_db_source(source(path)?)
            .map(TypedTable::Database)
    } else {
        plain.map(TypedTable::Plain)
    };
    match opened {
        Ok(keys) => {
            let mut table = AnyTable::new(keys, Some(KeyOrder::Bytewise));
            let is_small = table.table().file_bytes() <= CHECKED_WHEN_OPENED;
            if !check_order && !is_small && table.table().properties().is_none() {
                table.order = Order::Assumed;
            }
            Ok(table)
        }
        Err(e) if e.kind() == ErrorKind::Comparator => {
            let stated = order_stated(path).map(|order| open_in(order, path, options));
            let stored = || is_database.then(|| open_in_stored_order(path, true));
            match stated.and_then(Result::ok).or_else(|| stored()?.ok()) {
                Some(table) => Ok(table),
                None => open_in_stored_order(path, false),
            }
        }
        Err(e) => Err(e),
    }
}

/// Opens a table of a database in this order, which its MANIFEST or the table itself names for nothing. Programs that do not know
/// another order than byte order have opened such databases and written tables in byte order, so that order is checked.
fn open_in(order: KeyOrder, path: &Path, options: &OpenOptions) -> Result<AnyTable> {
    let options = match order {
        KeyOrder::IndexedDb => options.clone().check_order(true),
        _ => options.clone(),
    };
    open_as(true, Some(order), source(path)?, options)
}

/// Opens a table of a database, or one whose keys are shown as they are stored, in this order; `None` stands for the one in which it is
/// stored, in which it can only be walked.
pub(crate) fn open_as(
    is_database: bool,
    order: Option<KeyOrder>,
    source: impl Into<Source>,
    options: OpenOptions,
) -> Result<AnyTable> {
    let options = match order {
        None => options.stored_order(),
        Some(order) if is_database => options.comparator(order.of_user_keys()),
        Some(order) => options.comparator(order.comparator()),
    };
    let keys = if is_database {
        TypedTable::Database(options.open_db_source(source)?)
    } else {
        TypedTable::Plain(options.open_source(source)?)
    };
    Ok(AnyTable::new(keys, order))
}

/// Returns the order that the table at `path` names, if it is one of a database that is known.
pub(crate) fn order_stated(path: &Path) -> Option<KeyOrder> {
    let options = OpenOptions::new().no_cache().stored_order();
    let table = options.open_source(source(path).ok()?).ok()?;
    let properties = table.properties()?;
    let is_database = properties.key_kind == KeyKind::Database;
    KeyOrder::of_database(&properties.comparator).filter(|_| is_database)
}

/// Opens a table for walking, in the order in which it is stored.
pub(crate) fn open_in_stored_order(path: &Path, is_database: bool) -> Result<AnyTable> {
    copy_if_remote(path)?;
    open_as(
        is_database,
        None,
        source(path)?,
        OpenOptions::new().no_cache(),
    )
}

/// Says on standard error that the answer about the table at `path` holds only in the order that was assumed.
pub(crate) fn note_assumed_order(path: &Path) {
    let what = "nothing in it names the order of its keys, so byte order was assumed: --check-order makes certain";
    complain("note", &format!("{}: {what}", path.display()));
}

/// Returns the failure for keys that turn out to be in another order than the one in which they were looked up.
pub(crate) fn another_order(error: Error) -> Failure {
    let hint = "--check-order finds out before, and then reads the table as it is stored";
    Failure::new(format!("{error}: {hint}"))
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
fn refused(error: Error, path: &Path) -> Failure {
    match error.kind() {
        ErrorKind::Comparator => Failure::new(format!(
            "{}: the keys are not those that --keys implies: leave the option out to detect their kind",
            path.display()
        )),
        _ => error.into(),
    }
}

/// Returns whether the table at `path` is the manifest of a set.
pub(crate) fn is_manifest(path: &Path) -> Result<bool> {
    let options = OpenOptions::new().no_filter().no_cache();
    Ok(lists_a_set(&options.open_source(source(path)?)?))
}

/// Returns whether `table` is the manifest of a set, which a property says.
fn lists_a_set(table: &Table) -> bool {
    let properties = table.properties();
    properties.is_some_and(|properties| properties.user("leveltable.set").is_some())
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
                "is a directory of tables: name one, such as {}",
                table.display()
            )),
            // Says what it is instead.
            _ => database::open(path, false).map(drop),
        },
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => fail(
            "not a regular file: reading a table needs random access, so save it to a file first",
        ),
    }
}

impl AnyTable {
    /// A table whose keys are known to be in this order, or in none that is known.
    fn new(keys: TypedTable, order: Option<KeyOrder>) -> AnyTable {
        let is_database = matches!(keys, TypedTable::Database(_));
        AnyTable {
            keys,
            order: order.map_or(Order::Unknown, |_| Order::Certain),
            is_bytewise: order == Some(KeyOrder::Bytewise)
                || order == Some(KeyOrder::Internal) && is_database,
        }
    }

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
    pub(crate) fn rows(&self, bounds: Bounds, reverse: bool) -> RowSource {
        match &self.keys {
            TypedTable::Plain(table) => directed(
                table.range(bounds).map(|entry| entry.map(Row::from)),
                reverse,
            ),
            TypedTable::Database(table) => directed(
                table.range(bounds).map(|entry| entry.map(Row::from)),
                reverse,
            ),
        }
    }
}
