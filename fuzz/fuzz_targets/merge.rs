//! Merges of sorted inputs of every kind, among them damaged tables: each move gives what a sorted list of all entries gives, or an error.

#![no_main]

use std::ops::Bound;
use std::sync::Arc;

use arbitrary::Arbitrary;
use leveltable::{
    BytewiseComparator, Comparator, DbTable, ErrorKind, OpenOptions, Result, SortedMap,
    SortedSlice, Table, TableRange, TableRun, WriteOptions,
    db::{DbCursor, DbRange, InternalKey, InternalKeyComparator, ValueType},
    merge::MergeCursor,
};
use leveltable_fuzz::naive::{Compare, Entry};
use leveltable_fuzz::tables::{self, DbEntry, Entries, KeyOrder, Options};
use libfuzzer_sys::fuzz_target;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

#[derive(Debug, Arbitrary)]
struct Input {
    is_database: bool,
    is_reverse: bool,
    tables: Vec<One>,
    /// Of a database, the snapshot that is shown.
    view: Option<u8>,
    moves: Vec<Move>,
}

#[derive(Debug, Arbitrary)]
struct One {
    options: Options,
    properties: bool,
    /// Whether the bytewise order is given as one of another type, which has its name.
    by_trait: bool,
    entries: Entries,
    lower: Limit,
    upper: Limit,
    /// A byte of the file to change, and by what.
    damage: Option<(u16, u8)>,
    form: Form,
}

/// The kind of sorted input that the entries become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
enum Form {
    Table,
    Slice,
    /// Of plain keys in bytewise order; else a slice.
    Map,
    /// Two tables, opened when a walk comes to them.
    Run,
    /// The table's cursor, by its trait.
    Cursor,
}

/// Tables one after the other.
struct Run {
    tables: Vec<(Vec<u8>, Vec<u8>, Table)>,
    order: Arc<dyn Comparator>,
}

impl TableRun for Run {
    fn tables(&self) -> usize {
        self.tables.len()
    }

    fn keys(&self, i: usize) -> (&[u8], &[u8]) {
        let (first, last, _) = &self.tables[i];
        (first, last)
    }

    fn open(&self, i: usize) -> Result<Table> {
        Ok(self.tables[i].2.clone())
    }

    fn comparator(&self) -> Arc<dyn Comparator> {
        self.order.clone()
    }
}

/// Entries as they are stored, in order, and what else is known of them.
struct Made {
    form: Form,
    stored: Vec<Entry>,
    order: Arc<dyn Comparator>,
    halves: Vec<Table>,
}

impl Made {
    fn new(
        one: &One,
        entries: &[DbEntry],
        order: KeyOrder,
        write: &WriteOptions,
        open: &OpenOptions,
        is_database: bool,
    ) -> Made {
        let user: Arc<dyn Comparator> = match order {
            KeyOrder::Bytewise => Arc::new(BytewiseComparator),
            order => Arc::new(order),
        };
        let order: Arc<dyn Comparator> = match is_database {
            true => Arc::new(InternalKeyComparator::new(user)),
            false => user,
        };
        let half = |entries: &[DbEntry]| match is_database {
            true => {
                let table = open.open_db_source(tables::build_db(write, entries));
                table.unwrap().as_table().clone()
            }
            false => {
                let plain = |(key, _, value): &DbEntry| (key.clone(), value.clone().unwrap());
                let entries: Vec<Entry> = entries.iter().map(plain).collect();
                open.open_source(tables::build(write, &entries)).unwrap()
            }
        };
        let form = if one.damage.is_some() {
            Form::Table
        } else {
            one.form
        };
        let (a, b) = entries.split_at(entries.len() / 2);
        let halves = [a, b]
            .into_iter()
            .filter(|half| form == Form::Run && !half.is_empty());
        Made {
            form,
            stored: entries
                .iter()
                .map(|entry| stored(entry, is_database))
                .collect(),
            order,
            halves: halves.map(half).collect(),
        }
    }

    fn slice(&self) -> SortedSlice<Vec<Entry>, Vec<u8>, Vec<u8>> {
        SortedSlice::new(self.stored.clone()).with_comparator(self.order.clone())
    }

    fn run(self) -> Run {
        let middle = self.stored.len() / 2;
        let parts = [&self.stored[..middle], &self.stored[middle..]];
        let ends = parts
            .into_iter()
            .filter_map(|part| Some((part.first()?, part.last()?)));
        let tables = ends.zip(self.halves);
        let tables = tables.map(|((first, last), table)| (first.0.clone(), last.0.clone(), table));
        Run {
            tables: tables.collect(),
            order: self.order,
        }
    }

    fn plain(self, table: &Table, bounds: Bounds) -> TableRange {
        let is_bytewise = self.order.name() == BytewiseComparator.name();
        match self.form {
            Form::Map if is_bytewise => {
                let map = self
                    .stored
                    .into_iter()
                    .collect::<std::collections::BTreeMap<_, _>>();
                TableRange::of(SortedMap::new(Arc::new(map)), bounds)
            }
            Form::Slice | Form::Map => TableRange::of(self.slice(), bounds),
            Form::Run => TableRange::of_run(self.run(), bounds),
            Form::Cursor => TableRange::of(table.cursor(), bounds),
            Form::Table => table.range(bounds),
        }
    }

    fn database(self, table: &DbTable, bounds: Bounds) -> DbRange {
        match self.form {
            Form::Slice | Form::Map => DbRange::of(self.slice(), bounds),
            Form::Run => DbRange::of_run(self.run(), bounds),
            Form::Cursor => DbRange::of(table.cursor(), bounds),
            Form::Table => table.range(bounds),
        }
    }
}

/// An entry as a table stores it.
fn stored((key, sequence, value): &DbEntry, is_database: bool) -> Entry {
    let bytes = value.clone().unwrap_or_default();
    if !is_database {
        return (key.clone(), bytes);
    }
    let value_type = match value {
        Some(_) => ValueType::Value,
        None => ValueType::Deletion,
    };
    let mut stored = Vec::new();
    let key = InternalKey {
        user_key: key,
        sequence: *sequence,
        value_type,
    };
    key.encode(&mut stored);
    (stored, bytes)
}

/// A key for bounds and seeks: of one of the entries, or any.
#[derive(Debug, Arbitrary)]
enum Key {
    OfEntry(u16),
    After(u16),
    Any(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
enum Limit {
    None,
    Included(Key),
    Excluded(Key),
}

#[derive(Debug, Arbitrary)]
enum Move {
    First,
    Last,
    Next(u8),
    Prev(u8),
    Seek(Key),
}

impl Key {
    fn resolve(&self, keys: &[Vec<u8>]) -> Vec<u8> {
        let pick = |i: &u16| {
            let i = usize::from(*i).checked_rem(keys.len());
            i.map_or_else(Vec::new, |i| keys[i].clone())
        };
        match self {
            Key::OfEntry(i) => pick(i),
            Key::After(i) => [pick(i), vec![0]].concat(),
            Key::Any(key) => key.clone(),
        }
    }
}

impl Limit {
    fn resolve(&self, keys: &[Vec<u8>]) -> Bound<Vec<u8>> {
        match self {
            Limit::None => Bound::Unbounded,
            Limit::Included(key) => Bound::Included(key.resolve(keys)),
            Limit::Excluded(key) => Bound::Excluded(key.resolve(keys)),
        }
    }
}

fn contains((lower, upper): &Bounds, key: &[u8], compare: Compare) -> bool {
    let above = match lower {
        Bound::Included(limit) => compare(key, limit).is_ge(),
        Bound::Excluded(limit) => compare(key, limit).is_gt(),
        Bound::Unbounded => true,
    };
    let below = match upper {
        Bound::Included(limit) => compare(key, limit).is_le(),
        Bound::Excluded(limit) => compare(key, limit).is_lt(),
        Bound::Unbounded => true,
    };
    above && below
}

/// An entry of the model: user key, sequence (0 in a plain table), value or deletion, input.
type Item = (Vec<u8>, u64, Option<Vec<u8>>, usize);

/// Both kinds of cursor.
#[expect(clippy::large_enum_variant, reason = "one at a time")]
enum Cursor {
    Plain(MergeCursor),
    Database(DbCursor),
}

impl Cursor {
    fn step(&mut self, step: &Step) -> Result<bool> {
        match (self, step) {
            (Cursor::Plain(cursor), Step::First) => cursor.seek_to_first(),
            (Cursor::Plain(cursor), Step::Last) => cursor.seek_to_last(),
            (Cursor::Plain(cursor), Step::Next) => cursor.next(),
            (Cursor::Plain(cursor), Step::Prev) => cursor.prev(),
            (Cursor::Plain(cursor), Step::Seek(key)) => cursor.seek(key),
            (Cursor::Database(cursor), Step::First) => cursor.seek_to_first(),
            (Cursor::Database(cursor), Step::Last) => cursor.seek_to_last(),
            (Cursor::Database(cursor), Step::Next) => cursor.next(),
            (Cursor::Database(cursor), Step::Prev) => cursor.prev(),
            (Cursor::Database(cursor), Step::Seek(key)) => cursor.seek(key),
        }
    }

    fn check(&self, item: Option<&Item>) {
        let empty = (Vec::new(), 0, None, 0);
        let (key, sequence, value, input) = item.unwrap_or(&empty);
        let bytes = value.as_deref().unwrap_or(b"");
        match self {
            Cursor::Plain(cursor) => {
                assert_eq!(cursor.is_valid(), item.is_some());
                assert_eq!((cursor.key(), cursor.value()), (&key[..], bytes));
                assert_eq!(cursor.input(), *input);
            }
            Cursor::Database(cursor) => {
                assert_eq!(cursor.is_valid(), item.is_some());
                assert_eq!((cursor.user_key(), cursor.value()), (&key[..], bytes));
                assert_eq!(cursor.sequence(), *sequence);
                let is_value = cursor.value_type() == ValueType::Value;
                assert_eq!(is_value, value.is_some());
            }
        }
    }
}

enum Step {
    First,
    Last,
    Next,
    Prev,
    Seek(Vec<u8>),
}

fuzz_target!(|input: Input| {
    let order = match input.is_reverse {
        true => KeyOrder::Reverse,
        false => KeyOrder::Bytewise,
    };
    if input.is_reverse && input.tables.iter().any(|one| one.options.has_prefixes) {
        return;
    }
    let compare = order.compare();
    let mut items: Vec<Item> = Vec::new();
    let mut keys = Vec::new();
    let (mut plain, mut databases) = (Vec::new(), Vec::new());
    let mut is_damaged = false;
    for one in input.tables.iter().take(9) {
        let write = order.write(reset(&one.options, one.properties));
        let (mut file, entries) = one.build(&write, order, input.is_database);
        keys.extend(entries.iter().map(|(key, ..)| key.clone()));
        keys.truncate(5000);
        if let Some((at, by)) = one.damage {
            let at = usize::from(at) % file.len();
            file[at] ^= by;
            is_damaged |= by != 0;
        }
        let open = OpenOptions::new().no_cache();
        let open = match (order, one.by_trait) {
            (KeyOrder::Reverse, _) => open.comparator(order),
            (_, true) => open.comparator(KeyOrder::ByTrait),
            (_, false) => open.comparator(BytewiseComparator),
        };
        let made = Made::new(one, &entries, order, &write, &open, input.is_database);
        // Of a damaged file, nearly all but the data is read when it is opened.
        match input.is_database {
            true => databases.extend(
                open.open_db_source(file)
                    .ok()
                    .map(|table| (table, entries, one, made)),
            ),
            false => plain.extend(
                open.open_source(file)
                    .ok()
                    .map(|table| (table, entries, one, made)),
            ),
        }
    }
    let mut cursor = match input.is_database {
        true => {
            let ranges =
                databases
                    .into_iter()
                    .enumerate()
                    .map(|(i, (table, entries, one, made))| {
                        let bounds = (one.lower.resolve(&keys), one.upper.resolve(&keys));
                        items.extend(within(entries, &bounds, compare, i));
                        made.database(&table, bounds)
                    });
            let ranges: Vec<_> = ranges.collect();
            let cursor = DbTable::merge(ranges).unwrap();
            Cursor::Database(match input.view {
                Some(at) => cursor.at(at.into()),
                None => cursor,
            })
        }
        false => {
            let ranges = plain
                .into_iter()
                .enumerate()
                .map(|(i, (table, entries, one, made))| {
                    let bounds = (one.lower.resolve(&keys), one.upper.resolve(&keys));
                    items.extend(within(entries, &bounds, compare, i));
                    made.plain(&table, bounds)
                });
            let ranges: Vec<_> = ranges.collect();
            let cursor = Table::merge(ranges).unwrap();
            Cursor::Plain(cursor)
        }
    };
    items.sort_by(|a, b| {
        let by_version = b.1.cmp(&a.1).then(b.2.is_some().cmp(&a.2.is_some()));
        compare(&a.0, &b.0).then(by_version).then(a.3.cmp(&b.3))
    });
    let items = match (input.is_database, input.view) {
        (true, Some(at)) => seen(items, at.into()),
        _ => items,
    };
    // 0 is before the first entry; nowhere after an error.
    let mut at = Some(0);
    for step in input
        .moves
        .iter()
        .flat_map(|step| steps(step, &keys))
        .take(2000)
    {
        let expected = match (&step, at) {
            (Step::First, _) => Some(1),
            (Step::Last, _) => Some(items.len()),
            (Step::Next, at) => at.map(|at| (at + 1).min(items.len() + 1)),
            (Step::Prev, at) => at.map(|at: usize| at.saturating_sub(1)),
            (Step::Seek(key), _) => {
                let is_before = |item: &Item| compare(&item.0, key).is_lt();
                Some(1 + items.iter().filter(|item| is_before(item)).count())
            }
        };
        match (cursor.step(&step), expected) {
            (Ok(moved), Some(expected)) => {
                let item = expected.checked_sub(1).and_then(|i| items.get(i));
                assert_eq!(moved, item.is_some());
                cursor.check(item);
                at = Some(expected);
            }
            (Ok(_), None) => panic!("a step without a position"),
            (Err(error), None) => assert_eq!(error.kind(), ErrorKind::InvalidState),
            (Err(error), Some(_)) => {
                assert!(is_damaged, "{error}");
                assert!(
                    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported),
                    "{error:?}"
                );
                cursor.check(None);
                at = None;
            }
        }
    }
});

impl One {
    /// The file, and its entries.
    fn build(
        &self,
        write: &WriteOptions,
        order: KeyOrder,
        is_database: bool,
    ) -> (Vec<u8>, Vec<DbEntry>) {
        let entries = self.entries.clone();
        if is_database {
            let entries = entries.into_versions(order);
            (tables::build_db(write, &entries), entries)
        } else {
            let entries = entries.in_order(order);
            let file = tables::build(write, &entries);
            let item = |(key, value): Entry| (key, 0, Some(value));
            (file, entries.into_iter().map(item).collect())
        }
    }
}

fn reset(options: &Options, properties: bool) -> WriteOptions {
    options
        .write
        .clone()
        .comparator(BytewiseComparator)
        .properties(properties)
}

fn within(entries: Vec<DbEntry>, bounds: &Bounds, compare: Compare, input: usize) -> Vec<Item> {
    let entries = entries
        .into_iter()
        .filter(|(key, ..)| contains(bounds, key, compare));
    entries
        .map(|(key, sequence, value)| (key, sequence, value, input))
        .collect()
}

/// What a snapshot sees of sorted entries: of each key the first that is old enough.
fn seen(items: Vec<Item>, at: u64) -> Vec<Item> {
    let mut seen: Vec<Item> = items.into_iter().filter(|item| item.1 <= at).collect();
    seen.dedup_by(|b, a| a.0 == b.0);
    seen.retain(|item| item.2.is_some());
    seen
}

fn steps(step: &Move, keys: &[Vec<u8>]) -> Vec<Step> {
    let times = |n: &u8| usize::from(n % 16) + 1;
    match step {
        Move::First => vec![Step::First],
        Move::Last => vec![Step::Last],
        Move::Next(n) => (0..times(n)).map(|_| Step::Next).collect(),
        Move::Prev(n) => (0..times(n)).map(|_| Step::Prev).collect(),
        Move::Seek(key) => vec![Step::Seek(key.resolve(keys))],
    }
}
