//! Property tests: tables of arbitrary entries, in arbitrary shapes, against models too simple to be
//! wrong: a sorted vector, an index into it, a filter over all entries.
//!
//! `PROPTEST_CASES=10000 cargo test --release --test features model::` looks harder.

use std::cmp::{Ordering, Reverse};
use std::collections::VecDeque;
use std::io;
use std::ops::Bound;

use crate::common::{self, Entry, Random};
use bytes::Bytes;
use leveltable::{
    BlockCache, BloomFilterPolicy, BytewiseComparator, Comparator, Compression, ErrorKind,
    OpenOptions, ReadAt, Source, Table, WriteOptions,
    db::{DbEntry, InternalKey, MAX_SEQUENCE, ValueType, Version},
    filter::{DelimitedPrefix, FilterBuilder, FilterPolicy, FixedPrefix},
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

// ---- Orders ---------------------------------------------------------------------------------

/// The orders that tables are written in here, each with a filter policy that agrees with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The default.
    Bytewise,
    /// The same order by way of the trait: another path through lookups and index.
    BytewiseByTrait,
    Reverse,
    FoldCase,
}

/// The bytewise order, in a type that the crate does not know.
#[derive(Debug)]
struct BytewiseByTrait;

impl Comparator for BytewiseByTrait {
    fn name(&self) -> &str {
        BytewiseComparator.name()
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        BytewiseComparator.compare(a, b)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        BytewiseComparator.find_shortest_separator(start, limit);
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        BytewiseComparator.find_short_successor(key);
    }
}

/// The bytewise order backward. Shortens as much as the order allows.
#[derive(Debug)]
struct ReverseComparator;

impl Comparator for ReverseComparator {
    fn name(&self) -> &str {
        "test.Reverse"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        let shared = start.iter().zip(limit).take_while(|(a, b)| a == b).count();
        start.truncate(shared + 1);
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        key.clear();
    }
}

/// Takes `A` for `a`. Its separators are spelled differently from the keys that they equal.
#[derive(Debug)]
struct FoldCaseComparator;

impl Comparator for FoldCaseComparator {
    fn name(&self) -> &str {
        "test.FoldCase"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, _: &[u8]) {
        start.make_ascii_lowercase();
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        key.make_ascii_uppercase();
    }
}

/// Bloom over folded keys: agrees with [`FoldCaseComparator`].
#[derive(Debug)]
struct FoldCaseBloom(BloomFilterPolicy);

struct FoldCaseBuilder(Box<dyn FilterBuilder>);

impl FilterPolicy for FoldCaseBloom {
    fn name(&self) -> &str {
        "test.FoldCaseBloom"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        Box::new(FoldCaseBuilder(self.0.builder()))
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        self.0.key_may_match(&key.to_ascii_lowercase(), filter)
    }
}

impl FilterBuilder for FoldCaseBuilder {
    fn add_key(&mut self, key: &[u8]) {
        self.0.add_key(&key.to_ascii_lowercase());
    }

    fn finish(&mut self, dst: &mut Vec<u8>) {
        self.0.finish(dst);
    }
}

impl Order {
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Order::Bytewise | Order::BytewiseByTrait => a.cmp(b),
            Order::Reverse => b.cmp(a),
            Order::FoldCase => FoldCaseComparator.compare(a, b),
        }
    }

    /// `entries` in this order, the first of each key.
    fn sort(self, mut entries: Vec<Entry>) -> Vec<Entry> {
        entries.sort_by(|(a, _), (b, _)| self.compare(a, b));
        entries.dedup_by(|(a, _), (b, _)| self.compare(a, b).is_eq());
        entries
    }
}

// ---- Shapes ---------------------------------------------------------------------------------

/// All that may differ between two tables of the same entries, and between two ways to read one.
#[derive(Debug, Clone)]
struct Shape {
    order: Order,
    block_size: usize,
    restart_interval: usize,
    block_align: bool,
    compression: Compression,
    filter: Filter,
    home: Home,
}

#[derive(Debug, Clone, Copy)]
enum Filter {
    None,
    /// That of [`WriteOptions::new`]; none in an order that it does not agree with.
    Default,
    /// One for each 2 KiB of file, at so many bits per key.
    Window(u32),
    WholeTable(u32),
}

/// Where the table lies.
#[derive(Debug, Clone, Copy)]
enum Home {
    Memory,
    /// A file, through the shared cache.
    File,
    /// Something of the application's, through a cache of so many bytes or none.
    Remote(Option<u64>),
}

/// A source such as an application may bring. It copies, and insists that the table keep its promises.
struct Remote(Vec<u8>);

impl ReadAt for Remote {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let range = offset as usize..offset as usize + len;
        Ok(Bytes::copy_from_slice(&self.0[range]))
    }
}

fn shape(order: Order) -> impl Strategy<Value = Shape> {
    let filter = prop_oneof![
        Just(Filter::None),
        Just(Filter::Default),
        (1u32..20).prop_map(Filter::Window),
        (1u32..20).prop_map(Filter::WholeTable),
    ];
    let home = prop_oneof![
        2 => Just(Home::Memory),
        1 => Just(Home::File),
        1 => Just(Home::Remote(None)),
        1 => select(vec![0, 300, 5_000, 1 << 20]).prop_map(|bytes| Home::Remote(Some(bytes))),
    ];
    let block_size = prop_oneof![
        Just(1usize),
        2usize..100,
        select(vec![256, 1000, 4096, 1 << 20])
    ];
    let restart_interval = prop_oneof![1usize..6, select(vec![16, 1000])];
    let fields = (
        block_size,
        restart_interval,
        any::<bool>(),
        select(Compression::all()),
        filter,
        home,
    );
    fields.prop_map(
        move |(block_size, restart_interval, block_align, compression, filter, home)| Shape {
            order,
            block_size,
            restart_interval,
            block_align,
            compression,
            filter,
            home,
        },
    )
}

fn any_shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        3 => shape(Order::Bytewise),
        1 => shape(Order::BytewiseByTrait),
        1 => shape(Order::Reverse),
        1 => shape(Order::FoldCase),
    ]
}

impl Shape {
    fn has_filter(&self) -> bool {
        match self.filter {
            Filter::None => false,
            Filter::Default => self.order != Order::FoldCase,
            Filter::Window(_) | Filter::WholeTable(_) => true,
        }
    }

    fn write_options(&self) -> WriteOptions {
        let options = WriteOptions::new()
            .block_size(self.block_size)
            .restart_interval(self.restart_interval)
            .block_align(self.block_align)
            .compression(self.compression);
        let options = match self.order {
            // Some with a filter of prefixes, which scans ask.
            Order::Bytewise => match self.restart_interval % 4 {
                0 => options,
                3 => options.prefix_filter(DelimitedPrefix::new(b'a')),
                len => options.prefix_filter(FixedPrefix::new(len)),
            },
            Order::BytewiseByTrait => options.comparator(BytewiseByTrait),
            Order::Reverse => options.comparator(ReverseComparator),
            Order::FoldCase => options.comparator(FoldCaseComparator),
        };
        let (bits, whole_table) = match self.filter {
            _ if !self.has_filter() => return options.no_filter(),
            Filter::None | Filter::Default => return options,
            Filter::Window(bits) => (bits, false),
            Filter::WholeTable(bits) => (bits, true),
        };
        let bloom = BloomFilterPolicy::new(bits);
        let options = match self.order {
            Order::FoldCase => options.filter_policy(FoldCaseBloom(bloom)),
            _ => options.filter_policy(bloom),
        };
        options.whole_table_filter(whole_table)
    }

    fn open_options(&self) -> OpenOptions {
        let options = OpenOptions::new().filter_policy(FoldCaseBloom(BloomFilterPolicy::new(10)));
        let options = match self.order {
            // Named, so that keys which look like a database's are read as they are stored.
            Order::Bytewise => options.comparator(BytewiseComparator),
            Order::BytewiseByTrait => options.comparator(BytewiseByTrait),
            Order::Reverse => options.comparator(ReverseComparator),
            Order::FoldCase => options.comparator(FoldCaseComparator),
        };
        match self.home {
            Home::Memory | Home::File => options,
            Home::Remote(None) => options.no_cache(),
            Home::Remote(Some(bytes)) => options.cache(BlockCache::new(bytes)),
        }
    }

    fn source(&self, table: Vec<u8>) -> Source {
        match self.home {
            Home::Memory => table.into(),
            Home::File => {
                let mut file = tempfile::tempfile().unwrap();
                io::Write::write_all(&mut file, &table).unwrap();
                file.into()
            }
            Home::Remote(_) => std::sync::Arc::new(Remote(table)).into(),
        }
    }

    /// `entries` sorted, as this shape's order has it, and the table that holds them.
    fn table(&self, entries: Vec<Entry>) -> (Vec<Entry>, Table) {
        let entries = self.order.sort(entries);
        let file = common::build(&self.write_options(), &entries);
        let table = self.open_options().open_source(self.source(file)).unwrap();
        assert_eq!(
            table.filter().is_some(),
            self.has_filter(),
            "the filter is in use"
        );
        (entries, table)
    }
}

// ---- Entries --------------------------------------------------------------------------------

/// Keys that meet the format's edges more often than chance would: few letters, so that they
/// repeat, share prefixes and are prefixes of each other; 0x00 and 0xff; both cases of a letter; lengths
/// on both sides of the longest one-byte varint.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let letters = || select(vec![0u8, 1, b'A', b'a', b'b', 0xfe, 0xff]);
    prop_oneof![
        4 => vec(letters(), 0..6),
        2 => vec(letters(), 0..4).prop_map(|tail| [b"shared/prefix/", &tail[..]].concat()),
        1 => vec(any::<u8>(), 0..20),
        1 => (select(vec![126, 127, 128, 300]), vec(letters(), 0..3))
            .prop_map(|(len, tail)| [vec![b'k'; len], tail].concat()),
    ]
}

/// Some are larger than the 2 KiB that a window filter covers, and do not compress.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => Just(vec![]),
        3 => vec(any::<u8>(), 0..20),
        3 => (any::<u8>(), 0usize..600).prop_map(|(byte, len)| vec![byte; len]),
        1 => (any::<u64>(), 1000usize..6000).prop_map(|(seed, len)| Random(seed).bytes(len)),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    vec((key(), value()), 0..60)
}

/// A key to look for: one that is there, one beside it, or any.
#[derive(Debug, Clone)]
enum Target {
    Stored(Index, Twist),
    Any(Vec<u8>),
}

#[derive(Debug, Clone, Copy)]
enum Twist {
    None,
    Longer,
    Shorter,
    Up,
    Down,
    OtherCase,
}

fn target() -> impl Strategy<Value = Target> {
    use Twist::*;
    prop_oneof![
        3 => (any::<Index>(), select(vec![None, None, Longer, Shorter, Up, Down, OtherCase]))
            .prop_map(|(index, twist)| Target::Stored(index, twist)),
        1 => key().prop_map(Target::Any),
    ]
}

impl Target {
    fn key(&self, entries: &[Entry]) -> Vec<u8> {
        match self {
            Target::Any(key) => key.clone(),
            Target::Stored(..) if entries.is_empty() => vec![],
            Target::Stored(index, twist) => twist.apply(&index.get(entries).0),
        }
    }
}

impl Twist {
    fn apply(self, key: &[u8]) -> Vec<u8> {
        let mut key = key.to_vec();
        match (self, key.last_mut()) {
            (Twist::Longer, _) => key.push(0),
            (Twist::Shorter, _) => drop(key.pop()),
            (Twist::Up, Some(last)) => *last = last.saturating_add(1),
            (Twist::Down, Some(last)) => *last = last.saturating_sub(1),
            (Twist::OtherCase, _) => key.iter_mut().for_each(|b| {
                if b.is_ascii_lowercase() {
                    b.make_ascii_uppercase();
                } else {
                    b.make_ascii_lowercase();
                }
            }),
            _ => {}
        }
        key
    }
}

fn owned((key, value): (Bytes, Bytes)) -> Entry {
    (key.to_vec(), value.to_vec())
}

// ---- Lookups --------------------------------------------------------------------------------

proptest! {
    #[test]
    fn lookups_find_what_is_there_and_nothing_else(
        shape in any_shape(),
        entries in entries(),
        targets in vec(target(), 20),
    ) {
        let (entries, table) = shape.table(entries);
        let keys = entries.iter().map(|(key, _)| key.clone());
        for key in keys.chain(targets.iter().map(|target| target.key(&entries))) {
            let here = entries.iter().find(|(k, _)| shape.order.compare(k, &key).is_eq());
            let expected = here.map(|(_, value)| &value[..]);
            let found = table.get(&key).unwrap();
            prop_assert_eq!(found.as_deref(), expected, "{:?}", key);
            let found = table.get_with(&key, <[u8]>::to_vec).unwrap();
            prop_assert_eq!(found.as_deref(), expected);
            prop_assert_eq!(table.contains_key(&key).unwrap(), expected.is_some());
            prop_assert!(table.may_contain(&key).unwrap() || expected.is_none(), "a filter hides {:?}", key);
        }
        let first = table.first().unwrap().map(owned);
        prop_assert_eq!(first.as_ref(), entries.first());
        let last = table.last().unwrap().map(owned);
        prop_assert_eq!(last.as_ref(), entries.last());
    }

}

// ---- Cursors --------------------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Move {
    Seek(Target),
    First,
    Last,
    Next,
    Prev,
}

/// Steps are many, so that runs of them cross restarts and blocks.
fn moves() -> impl Strategy<Value = Vec<Move>> {
    let steps = prop_oneof![
        3 => Just(Move::Next),
        3 => Just(Move::Prev),
        2 => target().prop_map(Move::Seek),
        1 => Just(Move::First),
        1 => Just(Move::Last),
    ];
    let runs = (steps, 1usize..8);
    vec(runs, 0..30).prop_map(|runs| {
        let repeat = |(step, times)| match step {
            Move::Next | Move::Prev => vec![step; times],
            step => vec![step],
        };
        runs.into_iter().flat_map(repeat).collect()
    })
}

/// Where a cursor stands among `len` entries, moved by nothing but arithmetic: 0 is before the first,
/// `i + 1` on entry `i`, `len + 1` past the last.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    len: usize,
}

impl Place {
    fn entry(self) -> Option<usize> {
        self.at.checked_sub(1).filter(|&i| i < self.len)
    }

    fn go(&mut self, step: &Move, lower_bound: impl Fn(&Target) -> usize) {
        self.at = match step {
            Move::Seek(target) => lower_bound(target) + 1,
            Move::First => 1,
            Move::Last => self.len,
            Move::Next => (self.at + 1).min(self.len + 1),
            Move::Prev => self.at.saturating_sub(1),
        };
    }
}

proptest! {
    #[test]
    fn cursors_stand_where_the_model_does(
        shape in any_shape(),
        entries in entries(),
        moves in moves(),
    ) {
        let (entries, table) = shape.table(entries);
        let lower_bound = |target: &Target| {
            let key = target.key(&entries);
            entries.partition_point(|(k, _)| shape.order.compare(k, &key).is_lt())
        };
        let mut place = Place { at: 0, len: entries.len() };
        let mut cursor = table.cursor();
        prop_assert!(!cursor.is_valid());
        for step in &moves {
            place.go(step, lower_bound);
            let on_entry = match step {
                Move::Seek(target) => cursor.seek(target.key(&entries)),
                Move::First => cursor.seek_to_first(),
                Move::Last => cursor.seek_to_last(),
                Move::Next => cursor.next(),
                Move::Prev => cursor.prev(),
            };
            let expected = place.entry().map(|i| &entries[i]);
            prop_assert_eq!(on_entry.unwrap(), expected.is_some(), "{:?} of {:?}", step, moves);
            prop_assert_eq!(cursor.is_valid(), expected.is_some());
            let (key, value) = expected.cloned().unwrap_or_default();
            prop_assert_eq!(cursor.key(), &key, "{:?} of {:?}", step, moves);
            prop_assert_eq!(cursor.value(), &value);
            prop_assert_eq!(cursor.value_bytes(), value);
        }
    }
}

// ---- Ranges ---------------------------------------------------------------------------------

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

fn ends() -> impl Strategy<Value = Vec<End>> {
    let runs = (select(vec![End::Front, End::Back]), 1usize..6);
    vec(runs, 0..20).prop_map(|runs| {
        let repeat = |(end, times)| std::iter::repeat_n(end, times);
        runs.into_iter().flat_map(repeat).collect()
    })
}

fn bound() -> impl Strategy<Value = Bound<Target>> {
    prop_oneof![
        2 => target().prop_map(Bound::Included),
        2 => target().prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

fn is_within(order: Order, key: &[u8], lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    let from_lower = match lower {
        Bound::Included(bound) => order.compare(key, bound).is_ge(),
        Bound::Excluded(bound) => order.compare(key, bound).is_gt(),
        Bound::Unbounded => true,
    };
    let to_upper = match upper {
        Bound::Included(bound) => order.compare(key, bound).is_le(),
        Bound::Excluded(bound) => order.compare(key, bound).is_lt(),
        Bound::Unbounded => true,
    };
    from_lower && to_upper
}

/// Takes from both ends of `range` as `ends` says, and then all the rest: what comes must be what
/// `expected` gives.
fn assert_yields<T: PartialEq + std::fmt::Debug>(
    mut range: impl DoubleEndedIterator<Item = T>,
    expected: impl IntoIterator<Item = T>,
    ends: &[End],
) {
    let mut expected: VecDeque<T> = expected.into_iter().collect();
    let rest = std::iter::repeat_n(&End::Front, expected.len() + 1);
    for end in ends.iter().chain(rest) {
        let (got, expected) = match end {
            End::Front => (range.next(), expected.pop_front()),
            End::Back => (range.next_back(), expected.pop_back()),
        };
        assert_eq!(got, expected, "from the {end:?}");
    }
    assert_eq!(range.next_back(), None, "an end is an end");
    assert_eq!(range.next(), None, "an end is an end");
}

proptest! {
    #[test]
    fn ranges_yield_what_lies_within_from_both_ends(
        shape in any_shape(),
        entries in entries(),
        bounds in (bound(), bound()),
        ends in ends(),
    ) {
        let (entries, table) = shape.table(entries);
        let (lower, upper) = (
            bounds.0.map(|target| target.key(&entries)),
            bounds.1.map(|target| target.key(&entries)),
        );
        let inside = |(key, _): &&Entry| is_within(shape.order, key, &lower, &upper);
        let expected: Vec<Entry> = entries.iter().filter(inside).cloned().collect();
        let range = table.range((lower.clone(), upper.clone()));
        assert_yields(range.map(|entry| owned(entry.unwrap())), expected.clone(), &ends);

        // The same by Rust's range syntax, where it has one.
        use Bound::{Excluded, Included, Unbounded};
        let by_syntax = match (lower, upper) {
            (Unbounded, Unbounded) => table.range(..),
            (Unbounded, Excluded(b)) => table.range(..b),
            (Unbounded, Included(b)) => table.range(..=b),
            (Included(a), Unbounded) => table.range(a..),
            (Included(a), Excluded(b)) => table.range(a..b),
            (Included(a), Included(b)) => table.range(a..=b),
            (Excluded(_), _) => return Ok(()),
        };
        prop_assert!(by_syntax.map(|entry| owned(entry.unwrap())).eq(expected));
    }

    #[test]
    fn prefixes_yield_the_keys_that_begin_with_them(
        shape in any_shape(),
        entries in entries(),
        targets in vec((target(), any::<Index>()), 4),
        ends in ends(),
    ) {
        let (entries, table) = shape.table(entries);
        for (target, cut) in targets {
            let key = target.key(&entries);
            let prefix = &key[..cut.index(key.len() + 1)];
            let mut range = table.prefix(prefix);
            if shape.order == Order::Bytewise {
                let expected = entries.iter().filter(|(key, _)| key.starts_with(prefix));
                assert_yields(range.map(|entry| owned(entry.unwrap())), expected.cloned(), &ends);
            } else {
                let refused = range.next().unwrap().unwrap_err();
                prop_assert_eq!(refused.kind(), ErrorKind::Comparator);
                prop_assert!(range.next().is_none() && range.next_back().is_none());
            }
        }
    }
}

// ---- Tables of a database -------------------------------------------------------------------

/// A change of a user key: to a value, or to nothing.
type Change = (Vec<u8>, u64, Option<Vec<u8>>);

fn changes(sequence: impl Strategy<Value = u64>) -> impl Strategy<Value = Vec<Change>> {
    // Fewer user keys than changes, so that they have several versions.
    let user_keys = vec(key(), 1..20);
    let changes = vec((any::<Index>(), sequence, prop::option::of(value())), 0..60);
    (user_keys, changes).prop_map(|(user_keys, changes)| {
        let user_key = |index: Index| index.get(&user_keys).clone();
        let change = |(index, sequence, value)| (user_key(index), sequence, value);
        changes.into_iter().map(change).collect()
    })
}

/// Puts `changes` in a database's order and writes them as `shape` says.
fn build_db(shape: &Shape, mut changes: Vec<Change>) -> (Vec<Change>, Vec<u8>) {
    let order = shape.order;
    changes.sort_by(|(a, m, _), (b, n, _)| order.compare(a, b).then(Reverse(*m).cmp(&Reverse(*n))));
    changes.dedup_by(|(a, m, _), (b, n, _)| m == n && order.compare(a, b).is_eq());
    let mut file = Vec::new();
    let mut builder = shape.write_options().build_db(&mut file);
    for (user_key, sequence, value) in &changes {
        match value {
            Some(value) => builder.put(user_key, *sequence, value).unwrap(),
            None => builder.delete(user_key, *sequence).unwrap(),
        }
    }
    builder.finish().unwrap();
    (changes, file)
}

fn stored_key((user_key, sequence, value): &Change) -> Vec<u8> {
    let value_type = if value.is_some() {
        ValueType::Value
    } else {
        ValueType::Deletion
    };
    let mut stored = Vec::new();
    let key = InternalKey {
        user_key,
        sequence: *sequence,
        value_type,
    };
    key.encode(&mut stored);
    stored
}

fn version(value: &Option<Vec<u8>>) -> Version {
    match value {
        Some(value) => Version::Value(value.clone().into()),
        None => Version::Deleted,
    }
}

proptest! {
    #[test]
    fn database_tables_can_be_read_as_of_every_sequence(
        shape in any_shape(),
        changes in changes(prop_oneof![4 => 0u64..30, 1 => MAX_SEQUENCE - 2..=MAX_SEQUENCE]),
        targets in vec(target(), 10),
        bounds in (bound(), bound()),
        ends in ends(),
    ) {
        let (changes, file) = build_db(&shape, changes);
        let table = shape.open_options().open_db_source(shape.source(file)).unwrap();
        let user_keys: Vec<Entry> = changes.iter().map(|(key, ..)| (key.clone(), vec![])).collect();
        let order = shape.order;

        let mut sequences: Vec<u64> = changes.iter().map(|(_, sequence, _)| *sequence).collect();
        sequences.extend([0, 30, 1 << 40, MAX_SEQUENCE]);
        sequences.sort();
        sequences.dedup();
        let stored = user_keys.iter().map(|(key, _)| key.clone());
        for key in stored.chain(targets.iter().map(|target| target.key(&user_keys))) {
            // Changes are newest first, so the first that is old enough is the one to see.
            let visible = |at: u64| {
                let mut versions = changes.iter().filter(|(k, ..)| order.compare(k, &key).is_eq());
                versions.find(|(_, sequence, _)| *sequence <= at).map(|(.., value)| version(value))
            };
            prop_assert_eq!(table.get(&key).unwrap(), visible(MAX_SEQUENCE), "{:?}", key);
            for &at in &sequences {
                let found = table.at(at).get(&key).unwrap();
                prop_assert_eq!(found, visible(at), "{:?} at {}", key, at);
            }
        }

        let entry = |(user_key, sequence, value): &Change| {
            DbEntry::new(user_key.clone(), *sequence, version(value))
        };
        assert_yields(table.iter().map(Result::unwrap), changes.iter().map(entry), &ends);
        let (lower, upper) = (
            bounds.0.map(|target| target.key(&user_keys)),
            bounds.1.map(|target| target.key(&user_keys)),
        );
        let inside = |(key, ..): &&Change| is_within(order, key, &lower, &upper);
        let expected: Vec<DbEntry> = changes.iter().filter(inside).map(entry).collect();
        let range = table.range((lower.clone(), upper.clone()));
        assert_yields(range.map(Result::unwrap), expected, &ends);
    }

    /// A database's table read as a plain one would lose keys: its filter knows user keys only.
    #[test]
    fn database_tables_are_not_taken_for_plain_ones(
        shape in shape(Order::Bytewise),
        changes in changes(1u64..1 << 40),
    ) {
        let (changes, file) = build_db(&shape, changes);
        let opened = OpenOptions::new().open_source(shape.source(file));
        match opened {
            // Nothing shows it in a table whose last key has no shorter successor and whose stored keys ascend bytewise, too.
            Ok(_) => {
                let last = changes.last().map_or(&[][..], |(user_key, ..)| user_key);
                let significant = last.iter().skip_while(|&&byte| byte == 0xff);
                prop_assert!(significant.count() <= 1, "{last:?}");
                let stored: Vec<Vec<u8>> = changes.iter().map(stored_key).collect();
                prop_assert!(stored.is_sorted());
            }
            // The rule looks at the first keys only, and the order of all keys is checked afterwards.
            Err(error) => {
                let kinds = [ErrorKind::DatabaseTable, ErrorKind::Comparator];
                prop_assert!(kinds.contains(&error.kind()), "{}", error);
            }
        }
    }
}

// ---- What a builder refuses -----------------------------------------------------------------

proptest! {
    #[test]
    fn keys_out_of_order_are_refused_and_change_nothing(
        shape in any_shape(),
        attempts in vec((key(), value(), prop::bool::weighted(0.1)), 0..60),
    ) {
        let order = shape.order;
        let (mut tried, mut accepted) = (Vec::new(), Vec::new());
        let mut builder = shape.write_options().build(&mut tried);
        let mut reference = shape.write_options().build(&mut accepted);
        let mut last: Option<&[u8]> = None;
        for (key, value, flush) in &attempts {
            if *flush {
                builder.flush().unwrap();
                reference.flush().unwrap();
            }
            let (entries, file_bytes) = (builder.entries(), builder.file_bytes());
            let added = builder.add(key, value);
            match last {
                Some(last) if order.compare(last, key).is_ge() => {
                    let error = added.unwrap_err();
                    prop_assert_eq!(error.kind(), ErrorKind::OutOfOrder);
                    let message = error.to_string();
                    for key in [key, last] {
                        // Long keys are cut.
                        let shown = key[..key.len().min(100)].escape_ascii().to_string();
                        prop_assert!(message.contains(&shown), "{message} lacks {shown}");
                    }
                    prop_assert_eq!((builder.entries(), builder.file_bytes()), (entries, file_bytes));
                }
                _ => {
                    added.unwrap();
                    reference.add(key, value).unwrap();
                    last = Some(key);
                }
            }
        }
        prop_assert_eq!(builder.finish().unwrap(), reference.finish().unwrap());
        prop_assert_eq!(tried, accepted);
    }
}

/// Bytewise, except for the separator before `liar` and the successor of `liar`.
#[derive(Debug, Clone, Copy)]
struct Liar(&'static [u8]);

impl Comparator for Liar {
    fn name(&self) -> &str {
        "test.Liar"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        if limit == b"liar" {
            *start = self.0.to_vec();
        }
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        if key == b"liar" {
            *key = b"before".to_vec();
        }
    }
}

/// Every separator must lie at or after the last key of its block and before the next key; one that does
/// not would hide keys.
#[test]
fn separators_that_lie_are_refused_and_change_nothing() {
    for separator in [&b"before"[..], b"", b"liar", b"liars", b"z"] {
        let options = WriteOptions::new()
            .comparator(Liar(separator))
            .block_size(1);
        let (mut tried, mut accepted) = (Vec::new(), Vec::new());
        let mut builder = options.build(&mut tried);
        builder.add(b"honest", b"1").unwrap();
        let error = builder.add(b"liar", b"2").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator);
        for part in ["test.Liar", "\"honest\"", "\"liar\""] {
            assert!(error.to_string().contains(part), "{error} lacks {part}");
        }
        builder.add(b"more", b"3").unwrap();
        builder.finish().unwrap();

        let mut builder = options.build(&mut accepted);
        builder.add(b"honest", b"1").unwrap();
        builder.add(b"more", b"3").unwrap();
        builder.finish().unwrap();
        assert_eq!(tried, accepted);
    }
    for honest in [&b"honest"[..], b"i", b"kiar\xff"] {
        let options = WriteOptions::new().comparator(Liar(honest)).block_size(1);
        let mut builder = options.build(Vec::new());
        builder.add(b"honest", b"1").unwrap();
        builder.add(b"liar", b"2").unwrap();
    }
}

#[test]
fn a_successor_that_lies_is_refused() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new().comparator(Liar(b"k")).build(&mut file);
    builder.add(b"liar", b"").unwrap();
    let error = builder.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    assert!(error.to_string().contains("\"before\""), "{error}");
    assert!(OpenOptions::new().open_source(file).is_err());
}

/// Takes address space but no memory: the zeros are never read.
#[test]
#[ignore = "takes 4 GiB of address space"]
fn entries_that_do_not_fit_a_block_are_refused_and_change_nothing() {
    let huge = vec![0; u32::MAX as usize];
    let (mut tried, mut accepted) = (Vec::new(), Vec::new());
    let mut builder = WriteOptions::new().build(&mut tried);
    let mut reference = WriteOptions::new().build(&mut accepted);
    builder.add(b"a", b"1").unwrap();
    reference.add(b"a", b"1").unwrap();
    let error = builder.add(b"b", &huge).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let mut huge_key = huge;
    huge_key[0] = b'b';
    let error = builder.add(&huge_key, b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    builder.add(b"b", b"2").unwrap();
    reference.add(b"b", b"2").unwrap();
    assert_eq!(builder.finish().unwrap(), reference.finish().unwrap());
    assert_eq!(tried, accepted);
}
