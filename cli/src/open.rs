//! Opens sets, databases, plain tables and tables of databases, and reads them in the same way.

use std::collections::HashMap;
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
use crate::output::note;
use crate::path::{is_database, is_url, repair_command};
use crate::place::{check_url, copy_if_remote, source, tables_in};
use crate::remote::open_set;
use crate::row::{Bounds, Row, RowSource, directed};
use crate::set::Set;
use crate::sort::KeyOrder;

/// The option that overrides the detected kind of a table's keys.
#[derive(Args, Clone, Copy)]
pub(crate) struct KeysArg {
    /// The kind of the tables' keys
    #[arg(long, value_enum, default_value_t = Keys::Auto, value_name = "KIND")]
    pub(crate) keys: Keys,
}

/// Options for looking up keys in a table or a set.
#[derive(Args)]
pub(crate) struct LookupArgs {
    #[command(flatten)]
    pub(crate) keys: KeysArg,
    /// First read the whole table, if it does not record its order, to be certain of it
    #[arg(long)]
    check_order: bool,
    /// Read this publication of the set, as `splits` prints it, or fail
    #[arg(long, value_name = "ID")]
    set: Option<String>,
}

impl LookupArgs {
    /// Opens `path`; a table without its filter, because reading it costs more than it saves a scan or a single lookup. Damaged
    /// records of a database's logs are an error unless `skip_damaged` leaves them out.
    pub(crate) fn open(&self, path: &Path, skip_damaged: bool) -> Result<Opened, Failure> {
        let opened = open_any(path, skip_damaged, || self.open_table(path))?;
        match (&self.set, &opened) {
            (Some(id), Opened::Set(set)) if *id != set.id() => {
                let what = "another set is published here than --set asks for: run `splits` again";
                Err(Failure::of(path, what))
            }
            (Some(_), Opened::Table(_) | Opened::Database(_)) => {
                Err(Failure::of(path, "not a set, which --set asks for"))
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

/// The kinds of things at a path.
pub(crate) enum Opened {
    Set(Box<dyn Set>),
    Database(Database),
    Table(AnyTable),
}

/// Opens the set or the database at `path`, or the table with `open`. A file is opened as a set only if it says that it is a
/// manifest, so that metadata are read once.
pub(crate) fn open_any(
    path: &Path,
    skip_damaged: bool,
    open: impl FnOnce() -> Result<AnyTable>,
) -> Result<Opened, Failure> {
    check_url(path)?;
    if is_database(path) {
        let db = database::options(skip_damaged).open_read_only(path)?;
        return Ok(Opened::Database(db));
    }
    let is_file = is_url(path) || path.is_file();
    let opened = is_file.then(open);
    let may_be_set = match &opened {
        Some(Ok(table)) => lists_a_set(&table.table),
        // A set's manifests may be numbered, in a directory.
        Some(Err(e)) => is_not_found(e),
        None => path.is_dir(),
    };
    if may_be_set && let Some(set) = open_set(path)? {
        return Ok(Opened::Set(set));
    }
    match opened {
        Some(Err(e)) if e.kind() == ErrorKind::Comparator => Err(Failure::of(
            path,
            "the keys are not those that --keys implies: leave the option out to detect their kind",
        )),
        Some(opened) => Ok(Opened::Table(opened?)),
        None => {
            check_is_file(path)?;
            Err(Failure::of(path, "appeared while it was opened: try again"))
        }
    }
}

/// Opens `path`; a table with keys of this kind, without its filter.
pub(crate) fn open_unfiltered(path: &Path, keys: Keys) -> Result<Opened, Failure> {
    let open = || open_with(path, keys, OpenOptions::new().no_filter(), false);
    open_any(path, false, open)
}

impl Opened {
    /// Returns whether keys cannot be looked up because their order is not known.
    pub(crate) fn is_unordered(&self) -> bool {
        match self {
            Opened::Set(_) => false,
            Opened::Database(db) => !db.has_known_order(),
            Opened::Table(table) => table.order.is_none(),
        }
    }

    /// Returns the entry of each key. In a table of a database, that is the newest entry of the key that is not newer
    /// than `at`.
    pub(crate) fn get_many(&self, keys: &[Vec<u8>], at: Option<u64>) -> Result<Vec<Option<Row>>> {
        let at = at.unwrap_or(MAX_SEQUENCE);
        let all = (Bound::Unbounded, Bound::Unbounded);
        let values = match self {
            Opened::Set(set) => set.get_many(keys)?,
            Opened::Database(db) if self.is_unordered() => {
                return search(database::rows(db, all, false, false)?, keys, at);
            }
            Opened::Database(db) => db.get_many(keys)?,
            Opened::Table(table) if self.is_unordered() => {
                return search(table.rows(all, false), keys, at);
            }
            Opened::Table(table) => match &table.database {
                None => table.table.get_many(keys)?,
                Some(database) => {
                    let found = database.at(at).get_entries(keys)?.into_iter();
                    return Ok(found.map(|entry| entry.map(Row::from)).collect());
                }
            },
        };
        let row = |(key, value): (&Vec<u8>, Option<Bytes>)| {
            Some(Row::from((Bytes::from(key.clone()), value?)))
        };
        Ok(keys.iter().zip(values).map(row).collect())
    }
}

/// Looks for all keys in one walk over `rows`, whose order is not known. The newest version of a key that is not newer than `at`
/// counts.
fn search(rows: RowSource, keys: &[Vec<u8>], at: u64) -> Result<Vec<Option<Row>>> {
    let mut found: HashMap<&[u8], Option<Row>> = keys.iter().map(|key| (&key[..], None)).collect();
    let sequence = |row: &Row| row.tag.map(|(sequence, _)| sequence);
    for row in rows {
        let row = row?;
        if let Some(best) = found.get_mut(&row.key[..])
            && sequence(&row) <= Some(at)
            && best.as_ref().map(sequence) < Some(sequence(&row))
        {
            *best = Some(row);
        }
    }
    let found = keys.iter().map(|key| found.get(&key[..])?.clone());
    Ok(found.collect())
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

impl Keys {
    /// Returns the kind of keys that the option names, if it names one.
    pub(crate) fn named(self) -> Option<KeyKind> {
        match self {
            Keys::Auto => None,
            Keys::Plain => Some(KeyKind::Plain),
            Keys::Database | Keys::Stored => Some(KeyKind::Database),
        }
    }
}

/// An open table of either kind.
pub(crate) struct AnyTable {
    /// The table with its stored keys.
    pub(crate) table: Table,
    /// The same table, if its keys are shown as those of a database.
    pub(crate) database: Option<DbTable>,
    /// The order of its stored keys. `None` if it is neither byte order nor a database's: the table can then only be walked in its
    /// stored order.
    pub(crate) order: Option<KeyOrder>,
    /// Whether nothing contradicts the order, but neither the user nor the table names it, and most of the keys were not read.
    pub(crate) is_assumed: bool,
}

impl AnyTable {
    /// Opens a table of a database, or one whose stored keys are shown. `order` is that of its keys; `None` if it is unknown.
    fn open(
        is_database: bool,
        order: Option<KeyOrder>,
        source: impl Into<Source>,
        options: &OpenOptions,
    ) -> Result<AnyTable> {
        let (table, database) = if is_database {
            let database = options.open_db_source(source)?;
            (database.as_table().clone(), Some(database))
        } else {
            (options.open_source(source)?, None)
        };
        Ok(AnyTable {
            table,
            database,
            order,
            is_assumed: false,
        })
    }

    /// Returns whether the keys, as shown, are in byte order.
    pub(crate) fn is_bytewise(&self) -> bool {
        self.order == Some(KeyOrder::of(self.database.is_some()))
    }

    /// Returns the entries whose keys, or user keys in a table of a database, are within the bounds. If the order is
    /// not known, bounds are an error of the iterator.
    pub(crate) fn rows(&self, bounds: Bounds, reverse: bool) -> RowSource {
        match &self.database {
            None => directed(self.table.range(bounds), reverse),
            Some(database) => directed(database.range(bounds), reverse),
        }
    }
}

/// Opens the table at `path`, and checks the order of all its keys if `check_order` is set. If they are in no known order,
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
    // A cache is useless because each block is read once.
    let options = options.no_cache().check_order(check_order);
    let (is_database, order) = match keys {
        Keys::Auto => return open_by_content(path, &options, check_order),
        Keys::Database => (true, KeyOrder::Internal),
        Keys::Plain => (false, KeyOrder::Bytewise),
        Keys::Stored => (false, KeyOrder::Internal),
    };
    match open_as(is_database, Some(order), source(path)?, &options) {
        Err(e) if e.kind() == ErrorKind::Comparator => {
            // Keys that are not a database's must not be shown as if they were.
            open_in_stored_order(path, is_database)
                .map_err(|other| if is_database { e } else { other })
        }
        opened => opened,
    }
}

/// Opening checks the order of all keys in tables up to this size.
const CHECKED_WHEN_OPENED: u64 = 64 << 10;

/// Opens a table in the way that the MANIFEST beside it, its properties or its keys suggest.
fn open_by_content(path: &Path, options: &OpenOptions, check_order: bool) -> Result<AnyTable> {
    // The order in the MANIFEST or in the properties may be wrong: programs that only know byte order have opened such databases and
    // written tables in byte order. So any other order is checked.
    let open_named = |order| {
        let check = check_order || order == KeyOrder::IndexedDb;
        let options = options.clone().check_order(check);
        open_as(true, Some(order), source(path).ok()?, &options).ok()
    };
    if let Some(table) = order_beside(path).and_then(open_named) {
        return Ok(table);
    }
    // Without an order, the library detects whether the keys are those of a database, or in an order that the
    // properties name.
    let open = |is_database| {
        let order = Some(KeyOrder::of(is_database));
        AnyTable::open(is_database, order, source(path)?, options)
    };
    let plain = open(false);
    let is_database = matches!(&plain, Err(e) if e.kind() == ErrorKind::DatabaseTable);
    match if is_database { open(true) } else { plain } {
        Ok(mut opened) => {
            let is_small = opened.table.file_bytes() <= CHECKED_WHEN_OPENED;
            opened.is_assumed = !check_order && !is_small && opened.table.properties().is_none();
            Ok(opened)
        }
        Err(e) if e.kind() == ErrorKind::Comparator => {
            let stated = order_stated(path).and_then(open_named);
            let stored = || is_database.then(|| open_in_stored_order(path, true).ok());
            match stated.or_else(|| stored().flatten()) {
                Some(table) => Ok(table),
                None => open_in_stored_order(path, false),
            }
        }
        Err(e) => Err(e),
    }
}

/// Opens a table of a database, or one whose stored keys are shown, in this order; `None` means the stored order, in which it can only
/// be walked.
pub(crate) fn open_as(
    is_database: bool,
    order: Option<KeyOrder>,
    source: impl Into<Source>,
    options: &OpenOptions,
) -> Result<AnyTable> {
    let options = options.clone();
    let options = match order {
        None => options.stored_order(),
        Some(order) if is_database => options.comparator(order.of_user_keys()),
        Some(order) => options.comparator(order.comparator()),
    };
    AnyTable::open(is_database, order, source, &options)
}

/// Opens a table for walking in its stored order.
pub(crate) fn open_in_stored_order(path: &Path, is_database: bool) -> Result<AnyTable> {
    copy_if_remote(path)?;
    let options = OpenOptions::new().no_cache();
    open_as(is_database, None, source(path)?, &options)
}

/// Returns the order that the properties of the table at `path` name, if it is a known one of a database.
fn order_stated(path: &Path) -> Option<KeyOrder> {
    let options = OpenOptions::new().no_cache().stored_order();
    let table = options.open_source(source(path).ok()?).ok()?;
    let properties = table.properties()?;
    let is_database = properties.key_kind == KeyKind::Database;
    KeyOrder::of_database(&properties.comparator).filter(|_| is_database)
}

/// Returns the order of a database's table at `path` that the MANIFEST beside it, or its properties, name, if it is known.
pub(crate) fn order_named(path: &Path) -> Option<KeyOrder> {
    order_beside(path).or_else(|| order_stated(path))
}

/// Says on standard error that the answer about the table at `path` is only correct in the assumed order.
pub(crate) fn note_assumed_order(path: &Path) {
    let what = "nothing in it records the order of its keys, so byte order was assumed: --check-order makes certain";
    note(path, what);
}

/// Returns the failure for keys that turn out to be in another order than the assumed one.
pub(crate) fn another_order(error: Error) -> Failure {
    let hint = "--check-order finds out before, and then reads the table as it is stored";
    Failure::new(format!("{error}: {hint}"))
}

/// Says on standard error that the order of the table at `path` is unknown, and how it is handled.
pub(crate) fn note_unknown_order(path: &Path, keys: Keys, remedy: &str) {
    let what = match keys {
        Keys::Auto => "the keys are neither in byte order nor in that of a database",
        Keys::Plain => "the keys are not in byte order",
        Keys::Database | Keys::Stored => "the keys are not in the order of a database",
    };
    note(path, format!("{what}: {remedy}"));
}

/// How a table with an unknown order is handled.
pub(crate) const SHOWN_AS_STORED: &str = "shown in the order in which they are stored";

/// Returns whether the table at `path` is the manifest of a set.
pub(crate) fn is_manifest(path: &Path) -> Result<bool> {
    let options = OpenOptions::new().no_filter().no_cache();
    Ok(lists_a_set(&options.open_source(source(path)?)?))
}

/// Returns whether `table` is the manifest of a set, according to a property.
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
    let fail = |what: &str| Err(Failure::of(path, what));
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => fail("no such file"),
        Err(e) => fail(&e.to_string()),
        Ok(metadata) if metadata.is_dir() => match tables_in(path).as_deref() {
            Some([table, ..]) => match repair_command(path) {
                Some(command) => fail(&format!("a database without CURRENT; {command}")),
                None => fail(&format!(
                    "is a directory of tables: name one, such as {}",
                    table.display()
                )),
            },
            // The error says what it is instead.
            _ => Ok(database::options(false).open_read_only(path).map(drop)?),
        },
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => fail(
            "not a regular file: reading a table needs random access, so save it to a file first",
        ),
    }
}
