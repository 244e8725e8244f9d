//! A database's live entries, with changes, into a new directory.

use std::cmp::Ordering;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use leveltable::db::{InternalKey, ValueType};
use leveltable::filter::{FilterBuilder, FilterPolicy};
use leveltable::{BloomFilterPolicy, Comparator, Compression, Error, ErrorKind, KeyRange, Result};
use leveltable::{SortedInput, WriteOptions};

use crate::builder::{BuiltDatabase, DatabaseBuildOptions, DatabaseBuilder, parse_version};
#[cfg(doc)]
use crate::database::Database;
use crate::database::DatabaseOptions;
use crate::directory::FileState;
use crate::state::{Bounds, State, is_not_found};
use crate::storage::{Directory, FileSystem};
use crate::walk::DatabaseRange;
use crate::writer::holds_lock;

/// How many tables are held open, so that a writer can remove them meanwhile.
const MAX_PINNED: usize = 500;

/// What [`compact_into`] keeps and changes, and how it writes.
#[derive(Default)]
#[must_use]
pub struct CompactOptions<'a> {
    database: DatabaseOptions,
    part: Part,
    compression: Option<Compression>,
    tables: Option<WriteOptions>,
    table_bytes: Option<u64>,
    ignores_space: bool,
    changes: Option<Box<dyn SortedInput + 'a>>,
    on_temporary: Option<Box<dyn FnOnce(&Path) + 'a>>,
}

/// Which keys are kept.
#[derive(Debug, Clone, Default)]
enum Part {
    #[default]
    All,
    Range(Bounds),
    Prefix(Vec<u8>),
}

impl fmt::Debug for CompactOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactOptions")
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}

impl<'a> CompactOptions<'a> {
    /// All keys, written as the source is.
    pub fn new() -> CompactOptions<'a> {
        CompactOptions::default()
    }

    /// How the source is opened: its comparator, if it is not a built-in one, and caches.
    pub fn database(mut self, options: DatabaseOptions) -> CompactOptions<'a> {
        self.database = options;
        self
    }

    /// Keeps the keys within `bounds` only.
    pub fn range(mut self, bounds: impl KeyRange) -> CompactOptions<'a> {
        self.part = Part::Range(bounds.key_bounds());
        self
    }

    /// Keeps the keys that begin with `prefix` only. Not in an order that is not bytewise.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> CompactOptions<'a> {
        self.part = Part::Prefix(prefix.as_ref().to_vec());
        self
    }

    /// Compresses with this codec.
    pub fn compression(mut self, compression: Compression) -> CompactOptions<'a> {
        self.compression = Some(compression);
        self
    }

    /// Writes tables with these options; codec and filter are theirs, then. Their comparator is not used.
    pub fn tables(mut self, options: WriteOptions) -> CompactOptions<'a> {
        self.tables = Some(options);
        self
    }

    /// Ends tables at this size: see [`DatabaseBuildOptions::table_bytes`].
    pub fn table_bytes(mut self, bytes: u64) -> CompactOptions<'a> {
        self.table_bytes = Some(bytes);
        self
    }

    /// With `true`, begins even if the disk has less room than the source takes: where much of that was deleted or overwritten. If
    /// the room then does not suffice, that is an error, and nothing is left.
    pub fn ignore_space(mut self, yes: bool) -> CompactOptions<'a> {
        self.ignores_space = yes;
        self
    }

    /// Calls `learn` with the [temporary directory](DatabaseBuilder::temporary_path), before the work begins: a program that a
    /// signal may end removes it itself.
    pub fn on_temporary(mut self, learn: impl FnOnce(&Path) + 'a) -> CompactOptions<'a> {
        self.on_temporary = Some(Box::new(learn));
        self
    }

    /// Puts and deletions, merged in last. Keys are internal keys in ascending order; their sequence numbers only say which version
    /// of a key is the newest, the others of which are passed over. Each change gets the sequence number after the source's last one.
    /// [`Changes`] makes such a source from pairs.
    pub fn changes(mut self, changes: impl SortedInput + 'a) -> CompactOptions<'a> {
        self.changes = Some(Box::new(changes));
        self
    }
}

/// Pairs of keys and their new values, `None` to delete one, as a source for [`CompactOptions::changes`]. Keys ascend.
#[derive(Debug, Clone)]
pub struct Changes<I, V> {
    pairs: I,
    stored: Vec<u8>,
    value: Option<V>,
}

impl<I, V> Changes<I, V> {
    /// A source of `pairs`, such as those of a `BTreeMap`.
    pub fn new<K>(pairs: impl IntoIterator<IntoIter = I>) -> Changes<I, V>
    where
        I: Iterator<Item = (K, Option<V>)>,
    {
        let pairs = pairs.into_iter();
        Changes {
            pairs,
            stored: Vec::new(),
            value: None,
        }
    }
}

impl<I, K, V> SortedInput for Changes<I, V>
where
    I: Iterator<Item = (K, Option<V>)>,
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    fn advance(&mut self) -> Result<bool> {
        self.stored.clear();
        let Some((key, value)) = self.pairs.next() else {
            self.value = None;
            return Ok(false);
        };
        let value_type = if value.is_some() {
            ValueType::Value
        } else {
            ValueType::Deletion
        };
        let key = InternalKey {
            user_key: key.as_ref(),
            sequence: 0,
            value_type,
        };
        key.encode(&mut self.stored);
        self.value = value;
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        &self.stored
    }

    fn value(&self) -> &[u8] {
        self.value.as_ref().map_or(&[], AsRef::as_ref)
    }
}

/// What [`compact_into`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes of the source's files that count.
    pub bytes_before: u64,
    /// The new database.
    pub built: BuiltDatabase,
    /// Whether the source's writer was seen at work. What it wrote meanwhile may be missing in the new database: do not put it in the
    /// old one's place. On systems other than Linux, one that wrote nothing meanwhile is not seen.
    pub has_writer: bool,
}

/// Writes the live entries of the database in `directory` to a new one, `new`: what is overwritten or deleted takes no more space.
/// Reads the source only, without its lock. Of a live database, the copy holds the contents at one moment after the call began.
///
/// Comparator, codec, filter and size of tables are the source's, as its newest table shows them, unless an option says otherwise.
/// The new directory is made as by [`DatabaseBuilder`]: whole, or not at all.
///
/// ```
/// use leveltable_database::{Changes, CompactOptions, Database, compact_into};
/// # use leveltable_database::{DatabaseBuildOptions, DatabaseBuilder};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
/// # let mut builder = DatabaseBuilder::create(&old, DatabaseBuildOptions::new())?;
/// # for key in ["fruit/apple", "fruit/banana", "job"] { builder.put(key, "")?; }
/// # builder.finish()?;
/// let changes = Changes::new([("fruit/apple", Some("green")), ("fruit/banana", None)]);
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
/// Those of [`Database::open_read_only`], of reading tables and of [`DatabaseBuilder`]; those of the changes.
/// [`ErrorKind::Comparator`] if the order is not known. Damage is an error, since a copy would hide it.
/// [`ErrorKind::Io`] if the disk has less room than the part of the source takes; see [`ignore_space`](CompactOptions::ignore_space).
/// [`ErrorKind::Replaced`] if a writer removed a table of a database of more than 500 tables meanwhile.
pub fn compact_into(
    directory: impl AsRef<Path>,
    new: impl AsRef<Path>,
    options: CompactOptions<'_>,
) -> Result<Compacted> {
    let (directory, new) = (directory.as_ref(), new.as_ref());
    let parent = std::path::absolute(new).ok();
    let parent = parent.and_then(|new| fs::canonicalize(new.parent()?).ok());
    if parent.is_some() && parent == fs::canonicalize(directory).ok() {
        let what = "a new database is not made inside of the old one, which stays as it is: name a place beside it";
        return Err(Error::new(ErrorKind::InvalidState, what).at_path(new));
    }
    let create = |options| DatabaseBuilder::create(new, options);
    compact(FileSystem::at(directory), options, create)
}

/// Compacts the database in any directory into what `create` makes.
pub(crate) fn compact(
    dir: Arc<dyn Directory>,
    options: CompactOptions<'_>,
    create: impl FnOnce(DatabaseBuildOptions) -> Result<DatabaseBuilder>,
) -> Result<Compacted> {
    let had_writer = holds_lock(dir.path());
    let db = options.database.open_in(dir).map_err(needs_repair)?;
    db.state().known_order()?;
    if db.state().runs.iter().flatten().count() <= MAX_PINNED {
        db.pin().map_err(needs_repair)?;
    }
    let state = db.state();
    let mut settings = settings(&state, &options).map_err(needs_repair)?;
    let live = |file: &crate::DatabaseFile| file.state == FileState::Live;
    let files = db.files()?.into_iter().filter(live);
    let bytes_before = files.filter_map(|file| file.bytes).sum();
    let entries = match &options.part {
        Part::All => db.iter(),
        Part::Range(bounds) => db.range(bounds.clone()),
        Part::Prefix(prefix) => db.prefix(prefix),
    };
    if !options.ignores_space {
        settings = settings.expected_bytes(part_bytes(&state, &options.part));
    }
    let mut builder = create(settings)?;
    if let (Some(learn), Some(path)) = (options.on_temporary, builder.temporary_path()) {
        learn(path);
    }
    match options.changes {
        None => copy(entries, &mut builder)?,
        Some(changes) => {
            let changes = NewestChanges::new(changes, state.order.clone());
            merge(entries, changes, state.last_sequence + 1, &mut builder)?;
        }
    }
    let built = builder.finish()?;
    let has_writer = had_writer || holds_lock(db.path()) || !matches!(db.refresh(), Ok(false));
    Ok(Compacted {
        bytes_before,
        built,
        has_writer,
    })
}

/// Damage of the source, and files that are missing.
fn needs_repair(error: Error) -> Error {
    let kind = error.kind();
    let is_damage = matches!(kind, ErrorKind::Corruption | ErrorKind::NotATable);
    if is_damage || kind == ErrorKind::Io && is_not_found(&error) {
        return error.with_hint("only a sound database is compacted, so repair it first");
    }
    error
}

/// Bytes of the tables that may hold a part of the database.
fn part_bytes(state: &State, part: &Part) -> u64 {
    let place = |end: &[u8]| match part {
        Part::All => Ordering::Equal,
        Part::Range(bounds) => state.place(end, bounds),
        Part::Prefix(prefix) if end.starts_with(prefix) => Ordering::Equal,
        Part::Prefix(prefix) => end.cmp(prefix),
    };
    let runs = state.runs.iter();
    let tables = runs.flat_map(|run| state.within(run, place));
    tables.map(|table| table.file.size).sum()
}

/// How the new database is written: as the newest table of the source is, and with tables as large as most of those that compactions
/// left there.
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
    let mut sizes: Vec<u64> = compacted.map(|table| table.file.size).collect();
    sizes.sort_unstable();
    let usual = sizes.get(sizes.len() * 3 / 4).copied().unwrap_or(0);
    let usual = usual.checked_ilog2().map_or(0, |log| 1 << log);
    let table_bytes = options.table_bytes.unwrap_or(usual.max(2 << 20));
    Ok(DatabaseBuildOptions::new()
        .comparator(state.order.clone())
        .tables(tables)
        .table_bytes(table_bytes)
        .last_sequence(state.last_sequence))
}

/// Codec and filter of the newest table. LevelDB's defaults if there is none.
fn settings_of_tables(state: &State) -> Result<WriteOptions> {
    let options = WriteOptions::leveldb();
    let Some(newest) = state.version.tables.values().next_back() else {
        return Ok(options);
    };
    let table = state.table(newest)?;
    let table = table.as_table();
    let (mut codec, mut entries, mut end) = ("none", 0, 0);
    for block in table.blocks() {
        let block = block?;
        // Some blocks are stored as they are, since compressing them gains too little.
        codec = if block.codec == "none" {
            codec
        } else {
            block.codec
        };
        (entries, end) = (entries + block.entries, block.offset + block.stored_bytes);
    }
    let options = match Compression::of(codec) {
        Some(compression) => options.compression(compression),
        None => options,
    };
    let Some(filter) = table.filter() else {
        return Ok(options.no_filter());
    };
    // A filter for each 2 KiB has a byte more, and an offset.
    let bits = 8 * filter.bytes.saturating_sub(5 * (end >> 11)) / u64::max(entries, 1);
    let bits = if (8..=12).contains(&bits) {
        10
    } else {
        bits.clamp(1, 40) as u32
    };
    Ok(match &*filter.policy {
        BLOOM => options.filter_policy(BloomFilterPolicy::new(bits)),
        BLOOM_OF_GO => options.filter_policy(BloomOfGo(BloomFilterPolicy::new(bits))),
        _ => WriteOptions::new().compression(Compression::of(codec).unwrap_or_default()),
    })
}

const BLOOM: &str = "leveldb.BuiltinBloomFilter2";
const BLOOM_OF_GO: &str = "leveldb.BuiltinBloomFilter";

/// LevelDB's filter, by the name that goleveldb has for it.
#[derive(Debug)]
struct BloomOfGo(BloomFilterPolicy);

impl FilterPolicy for BloomOfGo {
    fn name(&self) -> &str {
        BLOOM_OF_GO
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        self.0.builder()
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        self.0.key_may_match(key, filter)
    }
}

/// Adds the entry that a range lends.
fn add_lent(entries: &DatabaseRange, builder: &mut DatabaseBuilder) -> Result<()> {
    let Some((user_key, sequence)) = entries.lent_version() else {
        return Ok(());
    };
    let value_type = ValueType::Value;
    builder.add(
        InternalKey {
            user_key,
            sequence,
            value_type,
        },
        entries.value(),
    )
}

fn copy(mut entries: DatabaseRange, builder: &mut DatabaseBuilder) -> Result<()> {
    while entries.advance().map_err(needs_repair)? {
        add_lent(&entries, builder)?;
    }
    Ok(())
}

/// Adds entries and changes in the order of their keys. A change replaces the entry of its key.
fn merge(
    mut entries: DatabaseRange,
    mut changes: NewestChanges<'_>,
    sequence: u64,
    builder: &mut DatabaseBuilder,
) -> Result<()> {
    let mut has_entry = entries.advance().map_err(needs_repair)?;
    let mut has_change = changes.advance()?;
    while has_entry || has_change {
        let order = match (has_entry, has_change) {
            (true, false) => Ordering::Less,
            (false, _) => Ordering::Greater,
            _ => changes.order.compare(entries.key(), &changes.user_key),
        };
        if order.is_lt() {
            add_lent(&entries, builder)?;
        } else if changes.value_type == ValueType::Value {
            let (user_key, value_type) = (&*changes.user_key, changes.value_type);
            let version = InternalKey {
                user_key,
                sequence,
                value_type,
            };
            builder.add(version, changes.input.value())?;
        }
        if order.is_le() {
            has_entry = entries.advance().map_err(needs_repair)?;
        }
        if order.is_ge() {
            has_change = changes.advance()?;
        }
    }
    Ok(())
}

/// The newest version of each key of a source of changes.
struct NewestChanges<'a> {
    input: Box<dyn SortedInput + 'a>,
    order: Arc<dyn Comparator>,
    has_begun: bool,
    /// Of the current change.
    user_key: Vec<u8>,
    value_type: ValueType,
}

impl<'a> NewestChanges<'a> {
    fn new(input: Box<dyn SortedInput + 'a>, order: Arc<dyn Comparator>) -> NewestChanges<'a> {
        NewestChanges {
            input,
            order,
            has_begun: false,
            user_key: Vec::new(),
            value_type: ValueType::Value,
        }
    }

    fn advance(&mut self) -> Result<bool> {
        while self.input.advance()? {
            let version = parse_version(self.input.key())?;
            let order = match self.has_begun {
                true => self.order.compare(&self.user_key, version.user_key),
                false => Ordering::Less,
            };
            if order.is_gt() {
                let shown = version.user_key.escape_ascii();
                let message = format!(
                    "the change of \"{shown}\" comes before the one last read: changes ascend by key"
                );
                return Err(Error::new(ErrorKind::OutOfOrder, message));
            }
            if order.is_lt() {
                self.has_begun = true;
                self.value_type = version.value_type;
                version.user_key.clone_into(&mut self.user_key);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
