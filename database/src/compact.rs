//! Copies a database's live entries, with changes, into a new directory.

use std::cmp::Ordering;
use std::fmt;
use std::fs;
use std::iter;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use leveltable::Result;
use leveltable::WriteOptions;
use leveltable::db::{InternalKey, ValueType};
use leveltable::format::codec_name;
use leveltable::prefix_bounds;
use leveltable::sister_crates::{BuiltIn, POLICIES, data_frame, filter_with, no_prefixes};
use leveltable::{Comparator, Compression, DbTable, Error, ErrorKind, KeyRange};

use crate::builder::{BuiltDatabase, DatabaseBuildOptions, DatabaseBuilder};
#[cfg(doc)]
use crate::database::Database;
use crate::database::DatabaseOptions;
use crate::directory::file_name;
use crate::files::FileState;
use crate::state::{Bounds, State, missing};
use crate::storage::{Directory, FileSystem};
use crate::walk::DatabaseRange;
use crate::writer::holds_lock;

/// Number of tables that are kept open, so that a writer may remove them meanwhile.
const MAX_PINNED: usize = 500;

/// Options of [`compact_into`]: what it keeps and changes, and how it writes.
///
/// ```no_run
/// use leveltable::{BlockCache, Compression, OpenOptions};
/// use leveltable_database::{CompactOptions, DatabaseOptions, compact_into};
///
/// let tables = OpenOptions::new().cache(BlockCache::new(1 << 20));
/// let options = CompactOptions::new()
///     .database(DatabaseOptions::new().tables(tables))
///     .range("a".."m")
///     .compression(Compression::None)
///     .table_bytes(64 << 20)
///     .ignore_space(true)
///     .on_temporary(|path| println!("writing to {}", path.display()));
/// let compacted = compact_into("db", "db.new", options)?;
/// println!("{} entries, {} bytes before", compacted.built.entries, compacted.bytes_before);
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct CompactOptions<'a> {
    database: DatabaseOptions,
    /// All keys if `None`.
    bounds: Option<Bounds>,
    is_prefix: bool,
    compression: Option<Compression>,
    tables: Option<WriteOptions>,
    table_bytes: Option<u64>,
    ignores_space: bool,
    changes: Option<Box<dyn Iterator<Item = Change> + 'a>>,
    on_temporary: Option<Learn<'a>>,
}

/// Receives the path of the temporary directory.
type Learn<'a> = Box<dyn FnOnce(&Path) + 'a>;

/// A key, and its new value, or `None` to delete it.
type Change = (Vec<u8>, Option<Vec<u8>>);

impl fmt::Debug for CompactOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactOptions")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

impl<'a> CompactOptions<'a> {
    /// Keeps all keys, and writes like the source.
    pub fn new() -> CompactOptions<'a> {
        CompactOptions::default()
    }

    /// Options for opening the source: its comparator, if it is not a built-in one, and caches. The default is
    /// [`DatabaseOptions::new`].
    pub fn database(mut self, options: DatabaseOptions) -> CompactOptions<'a> {
        self.database = options;
        self
    }

    /// Only keeps the keys within `bounds`. By default all are kept.
    pub fn range(mut self, bounds: impl KeyRange) -> CompactOptions<'a> {
        self.bounds = Some(bounds.key_bounds());
        self
    }

    /// Only keeps the keys that begin with `prefix`; by default all are kept. In an order that is not bytewise, [`compact_into`] fails.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> CompactOptions<'a> {
        self.bounds = Some(prefix_bounds(prefix.as_ref()));
        self.is_prefix = true;
        self
    }

    /// Compresses with this codec; by default with that of the source's largest table.
    pub fn compression(mut self, compression: Compression) -> CompactOptions<'a> {
        self.compression = Some(compression);
        self
    }

    /// Writes tables with these options. By default, codec and filter are those of the source's largest table, and the rest is as in
    /// [`WriteOptions::leveldb`]. The comparator of these options is not used.
    pub fn tables(mut self, options: WriteOptions) -> CompactOptions<'a> {
        self.tables = Some(options);
        self
    }

    /// Ends tables at this size, as [`DatabaseBuildOptions::table_bytes`] does; by default at the source's.
    pub fn table_bytes(mut self, bytes: u64) -> CompactOptions<'a> {
        self.table_bytes = Some(bytes);
        self
    }

    /// With `true`, starts even if the disk has less free space than the source takes, for example because much of that was
    /// deleted or overwritten. If the space then does not suffice, that is an error, and nothing is left. `false` by default.
    pub fn ignore_space(mut self, yes: bool) -> CompactOptions<'a> {
        self.ignores_space = yes;
        self
    }

    /// Calls `learn` with the [temporary directory](DatabaseBuilder::temporary_path) before the work begins: a program that
    /// may be ended by a signal removes it itself. Calls nothing by default.
    pub fn on_temporary(mut self, learn: impl FnOnce(&Path) + 'a) -> CompactOptions<'a> {
        self.on_temporary = Some(Box::new(learn));
        self
    }

    /// Changes that are applied last, such as those of a `BTreeMap`: keys in ascending order, each with its new value, or `None`
    /// to delete it. Each gets the sequence number after the source's last one. They are applied whether or not their keys are
    /// kept. [`compact_into`] has an example.
    pub fn changes<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        mut self,
        changes: impl IntoIterator<Item = (K, Option<V>), IntoIter: 'a>,
    ) -> CompactOptions<'a> {
        let stored = |(key, value): (K, Option<V>)| {
            let value = value.map(|value| value.as_ref().to_vec());
            (key.as_ref().to_vec(), value)
        };
        self.changes = Some(Box::new(changes.into_iter().map(stored)));
        self
    }
}

/// The result of [`compact_into`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Total size of the source's live files in bytes.
    pub bytes_before: u64,
    /// The new database.
    pub built: BuiltDatabase,
    /// Whether the source's writer was seen at work. Its later changes may be missing in the new database: do not put it in the old
    /// one's place. On systems other than Linux and Windows, a writer that wrote nothing meanwhile is not noticed.
    pub has_writer: bool,
}

/// Writes the live entries of the database in `directory` to a new one, `new`: overwritten and deleted entries take no more space.
/// Only reads the source, without its lock. For a live database, the copy holds the contents at one moment after the call began.
///
/// Comparator, codec, filter and size of tables are the source's, taken from its largest table, unless an option says otherwise.
/// The new directory is made by a [`DatabaseBuilder`]: it appears complete, or not at all.
///
/// ```
/// use leveltable_database::{CompactOptions, Database, compact_into};
/// # use leveltable_database::{DatabaseBuildOptions, DatabaseBuilder};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let mut builder = DatabaseBuilder::create(&old, DatabaseBuildOptions::new())?;
/// # for key in ["fruit/apple", "fruit/banana", "job"] { builder.put(key, "")?; }
/// # builder.finish()?;
/// let changes = [("fruit/apple", Some("green")), ("fruit/banana", None)];
/// let options = CompactOptions::new().prefix("fruit/").changes(changes);
/// let compacted = compact_into(&old, &new, options)?;
/// assert_eq!(compacted.built.entries, 1);
/// assert_eq!(Database::open_read_only(&new)?.get("fruit/apple")?.as_deref(), Some(&b"green"[..]));
/// # Ok::<(), leveltable::Error>(())
/// ```
///
/// Reads all tables once and the newest one twice, and holds the logs and a block of each table that it merges. In LevelDB,
/// `CompactRange` does this in place.
///
/// # Errors
///
/// Errors of [`Database::open_read_only`], of reading tables, of [`DatabaseBuilder`] and of the changes. [`ErrorKind::Comparator`] if
/// the order is not known. Damage is an error, and so is a missing log of
/// the MANIFEST, since a copy would hide them. [`ErrorKind::Io`] if the disk has less free space than the
/// kept part of the source takes; see [`ignore_space`](CompactOptions::ignore_space). [`ErrorKind::Replaced`] if a writer removed a
/// table of a database of more than 500 tables meanwhile.
pub fn compact_into(
    directory: impl AsRef<Path>,
    new: impl AsRef<Path>,
    options: CompactOptions<'_>,
) -> Result<Compacted> {
    let (directory, new) = (directory.as_ref(), new.as_ref());
    check_outside(directory, new)?;
    let create = |options| DatabaseBuilder::create(new, options);
    compact(FileSystem::at(directory), options, create)
}

/// Rejects a new database inside the old one.
pub fn check_outside(directory: &Path, new: &Path) -> Result<()> {
    let parent = std::path::absolute(new).ok();
    let parent = parent.and_then(|new| fs::canonicalize(new.parent()?).ok());
    if parent.is_some() && parent == fs::canonicalize(directory).ok() {
        let what = "a new database is not made inside of the old one, which stays as it is: name a place beside it";
        return Err(Error::new(ErrorKind::InvalidState, what).at_path(new));
    }
    Ok(())
}

/// Compacts the database in any directory into the new one from `create`.
pub(crate) fn compact(
    dir: Arc<dyn Directory>,
    options: CompactOptions<'_>,
    create: impl FnOnce(DatabaseBuildOptions) -> Result<DatabaseBuilder>,
) -> Result<Compacted> {
    let had_writer = holds_lock(dir.path());
    let db = options.database.open_in(dir);
    let db = db.map_err(|error| match error.kind() {
        // It may not be a database.
        ErrorKind::Io => error,
        _ => needs_repair(error),
    })?;
    db.handle.state().known_order()?;
    if db.handle.state().runs.iter().flatten().count() <= MAX_PINNED {
        db.pin().map_err(needs_repair)?;
    }
    let state = db.handle.state();
    if let Some(log) = state.recovery.missing_log {
        return Err(missing(
            &db.path().join(file_name(log, "log")),
            "log that the MANIFEST needs",
        ));
    }
    let mut settings = settings(&state, &options).map_err(needs_repair)?;
    let live = |file: &crate::DatabaseFile| file.state == FileState::Live;
    let files = db.files()?.into_iter().filter(live);
    let bytes_before = files.filter_map(|file| file.bytes).sum();
    if options.is_prefix && !state.is_bytewise {
        return Err(no_prefixes(&state.order_name));
    }
    let bounds = options
        .bounds
        .unwrap_or((Bound::Unbounded, Bound::Unbounded));
    if !options.ignores_space {
        settings = settings.expected_bytes(part_bytes(&state, &bounds));
    }
    let mut builder = create(settings)?;
    if let (Some(learn), Some(path)) = (options.on_temporary, builder.temporary_path()) {
        learn(path);
    }
    let changes = options.changes.unwrap_or_else(|| Box::new(iter::empty()));
    merge(db.range(bounds), changes, &state, &mut builder)?;
    let built = builder.finish()?;
    let has_writer = had_writer || holds_lock(db.path()) || !matches!(db.refresh(), Ok(false));
    Ok(Compacted {
        bytes_before,
        built,
        has_writer,
    })
}

/// Adds advice to errors about damage of the source. The error of a missing table already has it.
fn needs_repair(error: Error) -> Error {
    if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotATable) {
        return error.with_note("only a sound database is compacted, so repair it first");
    }
    error
}

/// Size of the tables that may hold a part of the database.
fn part_bytes(state: &State, bounds: &Bounds) -> u64 {
    let tables = state.tables_within(bounds);
    tables.map(|table| table.file.size).sum()
}

/// Settings for the new database: those of the source's largest table, and the usual size of the tables that compactions left there.
fn settings(state: &State, options: &CompactOptions<'_>) -> Result<DatabaseBuildOptions> {
    let tables = match &options.tables {
        Some(tables) => tables.clone(),
        None => settings_of_tables(state)?,
    };
    let tables = match options.compression {
        Some(compression) => tables.compression(compression),
        None => tables,
    };
    let compacted = state.version.tables.values();
    let compacted = compacted.filter(|table| table.level > 0);
    let usual = usual_table_bytes(compacted.map(|table| table.file.size).collect());
    let table_bytes = options.table_bytes.unwrap_or(usual);
    Ok(DatabaseBuildOptions::new()
        .comparator(state.order.clone())
        .tables(tables)
        .table_bytes(table_bytes)
        .last_sequence(state.last_sequence))
}

/// The usual size of a database's tables, from the sizes of those that compactions left: a power of two, at least LevelDB's
/// default.
pub fn usual_table_bytes(mut sizes: Vec<u64>) -> u64 {
    sizes.sort_unstable();
    let usual = sizes.get(sizes.len() * 3 / 4).copied().unwrap_or(0);
    let usual = usual.checked_ilog2().map_or(0, |log| 1 << log);
    usual.max(2 << 20)
}

/// Codec and filter of the largest table, since a small one may have raw blocks only, although its writer compresses. LevelDB's
/// defaults if there is none.
fn settings_of_tables(state: &State) -> Result<WriteOptions> {
    let tables = state.version.tables.values();
    match tables.max_by_key(|table| table.file.size) {
        Some(largest) => settings_of(&state.table(largest)?),
        None => Ok(WriteOptions::leveldb()),
    }
}

/// Codec and filter of a table. Reads all of it.
pub fn settings_of(table: &DbTable) -> Result<WriteOptions> {
    let (options, table) = (WriteOptions::leveldb(), table.as_table());
    // Some blocks are stored uncompressed because compression gains too little.
    let mut codec = "none";
    for i in 0..table.data_blocks() {
        let frame = data_frame(table, i)?;
        codec = codec_name(&frame).unwrap_or("none");
        if codec != "none" {
            break;
        }
    }
    let (mut all, mut entries) = (table.cursor(), 0);
    while all.next()? {
        entries += 1;
    }
    // A codec that is not built in is replaced.
    let compression: Compression = codec.parse().unwrap_or_default();
    let options = options.compression(compression);
    let Some(filter) = table.filter() else {
        return Ok(options.no_filter());
    };
    // A filter for each 2 KiB takes an extra byte and an offset.
    let windows = table.approximate_bytes(..)? >> 11;
    let bits = 8 * filter.bytes.saturating_sub(5 * windows) / u64::max(entries, 1);
    let bits = if (8..=12).contains(&bits) {
        10
    } else {
        bits.clamp(1, 40) as u32
    };
    let is_same = |policy: &&BuiltIn| policy.reader().name() == filter.policy;
    let default = WriteOptions::new().compression(compression);
    Ok(match POLICIES.iter().find(is_same) {
        Some(policy) if policy.whole_table => filter_with(default, policy, 10.0),
        Some(policy) => filter_with(options, policy, f64::from(bits)),
        None => default,
    })
}

/// Adds entries and changes in the order of their keys. A change replaces the entry of its key.
fn merge(
    mut entries: DatabaseRange,
    mut changes: Box<dyn Iterator<Item = Change> + '_>,
    state: &State,
    builder: &mut DatabaseBuilder,
) -> Result<()> {
    let value_type = ValueType::Value;
    let mut change = next_change(&mut changes, None, &*state.order)?;
    let mut has_entry = entries.advance().map_err(needs_repair)?;
    while has_entry || change.is_some() {
        let order = match &change {
            Some((key, _)) if has_entry => state.order.compare(entries.key(), key),
            Some(_) => Ordering::Greater,
            None => Ordering::Less,
        };
        if order.is_lt()
            && let Some((user_key, sequence)) = entries.lent_version()
        {
            builder.add(
                InternalKey {
                    user_key,
                    sequence,
                    value_type,
                },
                entries.value(),
            )?;
        }
        if order.is_ge()
            && let Some((user_key, Some(value))) = &change
        {
            let sequence = state.last_sequence + 1;
            builder.add(
                InternalKey {
                    user_key,
                    sequence,
                    value_type,
                },
                value,
            )?;
        }
        if order.is_le() {
            has_entry = entries.advance().map_err(needs_repair)?;
        }
        if order.is_ge() {
            change = next_change(&mut changes, change.as_ref(), &*state.order)?;
        }
    }
    Ok(())
}

/// Returns the next change, and checks that it comes after the one before.
fn next_change(
    changes: &mut dyn Iterator<Item = Change>,
    previous: Option<&Change>,
    order: &dyn Comparator,
) -> Result<Option<Change>> {
    let next = changes.next();
    if let (Some((before, _)), Some((key, _))) = (previous, &next)
        && order.compare(before, key).is_ge()
    {
        let shown = key.get(..100).unwrap_or(key).escape_ascii();
        let message = format!(
            "the change of \"{shown}\" does not come after the one before: changes ascend by key"
        );
        return Err(Error::new(ErrorKind::OutOfOrder, message));
    }
    Ok(next)
}
