//! Merging tables: against a naive model, in reads, and on bad inputs.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::common::{self, CountingReadAt, Entry, Layout, Reverse};
use crate::forms::{self, Failing, Form};
use bytes::Bytes;
use leveltable::{
    BloomFilterPolicy, BytewiseComparator, Comparator, Compression, DbTable, ErrorKind,
    OpenOptions, ReadAt, SortedInput, SortedSlice, Source, Table, TableRange, WriteOptions,
    db::{
        Compaction, DbCursor, DbEntry, InternalKey, InternalKeyComparator, MAX_SEQUENCE, ValueType,
        Version,
    },
    merge::MergeCursor,
};
use proptest::prelude::*;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A way to write and read tables.
#[derive(Debug, Clone, Copy)]
struct Kind {
    reverse: bool,
    /// With properties, as this crate writes them, or without, as LevelDB does.
    properties: bool,
}

impl Kind {
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        if self.reverse { b.cmp(a) } else { a.cmp(b) }
    }

    fn write(self) -> WriteOptions {
        let options = match self.properties {
            true => WriteOptions::new(),
            false => WriteOptions::leveldb(),
        };
        let options = options.block_size(64).restart_interval(3);
        match self.reverse {
            true => options.comparator(Reverse),
            false => options,
        }
    }

    fn open(self) -> OpenOptions {
        match self.reverse {
            true => OpenOptions::new().comparator(Reverse),
            false => OpenOptions::new(),
        }
    }

    fn order(self) -> Arc<dyn Comparator> {
        match self.reverse {
            true => Arc::new(Reverse),
            false => Arc::new(BytewiseComparator),
        }
    }

    fn table(self, entries: &[Entry]) -> Table {
        let mut entries = entries.to_vec();
        entries.sort_by(|(a, _), (b, _)| self.compare(a, b));
        entries.dedup_by(|(a, _), (b, _)| a == b);
        let file = common::build(&self.write(), &entries);
        self.open().open_source(file).unwrap()
    }

    fn contains(self, (lower, upper): &Bounds, key: &[u8]) -> bool {
        let above = match lower {
            Bound::Included(limit) => self.compare(key, limit).is_ge(),
            Bound::Excluded(limit) => self.compare(key, limit).is_gt(),
            Bound::Unbounded => true,
        };
        above
            && match upper {
                Bound::Included(limit) => self.compare(key, limit).is_le(),
                Bound::Excluded(limit) => self.compare(key, limit).is_lt(),
                Bound::Unbounded => true,
            }
    }
}

/// What is done to a cursor.
#[derive(Debug, Clone)]
enum Move {
    First,
    Last,
    Next(usize),
    Prev(usize),
    Seek(Vec<u8>),
}

/// A list, and a place in it: 0 is before the first item.
struct Model<T> {
    items: Vec<T>,
    at: usize,
}

impl<T> Model<T> {
    fn new(items: Vec<T>) -> Model<T> {
        Model { items, at: 0 }
    }

    fn current(&self) -> Option<&T> {
        self.items.get(self.at.checked_sub(1)?)
    }

    fn step(&mut self, forward: bool) {
        self.at = match forward {
            true => (self.at + 1).min(self.items.len() + 1),
            false => self.at.saturating_sub(1),
        };
    }

    fn seek(&mut self, is_before: impl FnMut(&T) -> bool) {
        self.at = 1 + self.items.iter().map(is_before).take_while(|b| *b).count();
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // 1 and 5 are also in the tags that come after user keys: a key may share them.
    let byte = prop::sample::select(vec![0u8, 1, 5, b'a', b'b', 0xff]);
    let head = prop::sample::select(vec![
        &b""[..],
        b"",
        b"a common beginning",
        b"common to many",
    ]);
    (head, prop::collection::vec(byte, 0..4)).prop_map(|(head, tail)| [head, &tail].concat())
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        3 => Just(Bound::Unbounded),
        1 => key().prop_map(Bound::Included),
        1 => key().prop_map(Bound::Excluded),
    ]
}

fn bounds() -> impl Strategy<Value = Bounds> {
    prop_oneof![
        4 => (bound(), bound()),
        1 => key().prop_map(|key| (Bound::Included(key.clone()), Bound::Included(key))),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let step = prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        6 => (1..6usize).prop_map(Move::Next),
        6 => (1..6usize).prop_map(Move::Prev),
        3 => key().prop_map(Move::Seek),
    ];
    prop::collection::vec(step, 0..40)
}

fn kind() -> impl Strategy<Value = Kind> {
    (any::<bool>(), any::<bool>()).prop_map(|(reverse, properties)| Kind {
        reverse,
        properties,
    })
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec((key(), prop::collection::vec(any::<u8>(), 0..6)), 0..30)
}

fn form() -> impl Strategy<Value = Form> {
    prop::sample::select(&forms::FORMS[..])
}

fn owned((key, value): (Bytes, Bytes)) -> Entry {
    (key.to_vec(), value.to_vec())
}

/// Compares what a range lends with those of the entries that it has.
fn check_lent(mut range: TableRange, entries: &[Entry], is_within: impl Fn(&[u8]) -> bool) {
    for (key, value) in entries.iter().filter(|(key, _)| is_within(key)) {
        assert!(range.advance().unwrap());
        assert_eq!((range.key(), range.value()), (&key[..], &value[..]));
        assert_eq!(
            (range.key_bytes(), range.value_bytes()),
            (key.clone().into(), value.clone().into())
        );
    }
    assert!(!range.advance().unwrap());
    assert_eq!((range.key(), range.value()), (&b""[..], &b""[..]));
}

type Merged = (Vec<u8>, Vec<u8>, usize);

fn check_plain(
    mut cursor: MergeCursor,
    items: Vec<Merged>,
    kind: Kind,
    moves: &[Move],
    ends: &[bool],
) {
    let mut model = Model::new(items);
    let check = |cursor: &MergeCursor, model: &Model<Merged>, moved: bool| {
        assert_eq!(moved, model.current().is_some());
        assert_eq!(cursor.is_valid(), moved);
        let (key, value, input) = model.current().cloned().unwrap_or_default();
        assert_eq!(
            (cursor.key(), cursor.value(), cursor.input()),
            (&key[..], &value[..], input)
        );
        assert_eq!(cursor.value_bytes(), value);
    };
    for step in moves {
        match step {
            Move::First => {
                model.at = 1;
                let moved = cursor.seek_to_first().unwrap();
                check(&cursor, &model, moved);
            }
            Move::Last => {
                model.at = model.items.len();
                let moved = cursor.seek_to_last().unwrap();
                check(&cursor, &model, moved);
            }
            Move::Seek(key) => {
                model.seek(|(other, ..)| kind.compare(other, key).is_lt());
                let moved = cursor.seek(key).unwrap();
                check(&cursor, &model, moved);
            }
            Move::Next(times) | Move::Prev(times) => {
                let forward = matches!(step, Move::Next(_));
                for _ in 0..*times {
                    model.step(forward);
                    let moved = match forward {
                        true => cursor.next(),
                        false => cursor.prev(),
                    };
                    check(&cursor, &model, moved.unwrap());
                }
            }
        }
    }
    let all = model.items.iter();
    let all: Vec<_> = all.map(|(k, v, _)| Pair(k.clone(), v.clone())).collect();
    check_ends(cursor.into_iter(), &all, ends);
}

/// Takes from both ends: `true` from the front.
fn check_ends<T, I, E>(mut taken: I, items: &[E], ends: &[bool])
where
    I: DoubleEndedIterator<Item = leveltable::Result<T>>,
    E: PartialEq<T> + std::fmt::Debug,
    T: std::fmt::Debug,
{
    let mut left = items.iter();
    // Past the end, too.
    for &front in ends.iter().cycle().take(items.len() + 3) {
        let (taken, expected) = match front {
            true => (taken.next(), left.next()),
            false => (taken.next_back(), left.next_back()),
        };
        match (taken.map(Result::unwrap), expected) {
            (Some(taken), Some(expected)) => assert_eq!(*expected, taken),
            (None, None) => {}
            (taken, expected) => panic!("{taken:?} for {expected:?}"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Pair(Vec<u8>, Vec<u8>);

impl PartialEq<(Bytes, Bytes)> for Pair {
    fn eq(&self, (key, value): &(Bytes, Bytes)) -> bool {
        self.0 == *key && self.1 == *value
    }
}

/// A change of a user key in one of several tables: user key, sequence, whether it is a value, value, table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    user_key: Vec<u8>,
    sequence: u64,
    value: Option<Vec<u8>>,
    input: usize,
}

impl PartialEq<DbEntry> for Change {
    fn eq(&self, entry: &DbEntry) -> bool {
        let version = match &self.value {
            Some(value) => Version::Value(value.clone().into()),
            None => Version::Deleted,
        };
        self.user_key == entry.user_key
            && self.sequence == entry.sequence
            && version == entry.version
    }
}

fn changes() -> impl Strategy<Value = Vec<(Vec<u8>, u64, Option<Vec<u8>>)>> {
    let value = prop::collection::vec(any::<u8>(), 0..6);
    let value = prop_oneof![2 => value.prop_map(Some), 1 => Just(None)];
    prop::collection::vec((key(), 0..12u64, value), 0..40)
}

/// The changes as a table holds them: one of each user key, sequence and type.
fn sorted(changes: Vec<Change>, kind: Kind) -> Vec<Change> {
    let mut changes = changes;
    changes.sort_by(|a, b| {
        kind.compare(&a.user_key, &b.user_key)
            .then(b.sequence.cmp(&a.sequence))
            .then(b.value.is_some().cmp(&a.value.is_some()))
            .then(a.input.cmp(&b.input))
    });
    changes.dedup_by_key(|c| (c.user_key.clone(), c.sequence, c.value.is_some(), c.input));
    changes
}

/// What a snapshot sees of sorted changes, from the definition.
fn seen(changes: &[Change], sequence: u64, deletions: bool) -> Vec<Change> {
    let mut newest: BTreeMap<Vec<u8>, &Change> = BTreeMap::new();
    for change in changes {
        if change.sequence <= sequence && !newest.contains_key(&change.user_key) {
            newest.insert(change.user_key.clone(), change);
        }
    }
    let is_seen = |change: &&Change| {
        newest.get(&change.user_key) == Some(change) && (deletions || change.value.is_some())
    };
    changes.iter().filter(is_seen).cloned().collect()
}

fn db_table(kind: Kind, changes: &[Change]) -> DbTable {
    let mut file = Vec::new();
    let mut builder = kind.write().build_db(&mut file);
    for change in changes {
        match &change.value {
            Some(value) => builder.put(&change.user_key, change.sequence, value),
            None => builder.delete(&change.user_key, change.sequence),
        }
        .unwrap();
    }
    builder.finish().unwrap();
    kind.open().open_db_source(file).unwrap()
}

/// A change as a table stores it.
fn stored_entry(change: &Change) -> Entry {
    let value_type = match change.value {
        Some(_) => ValueType::Value,
        None => ValueType::Deletion,
    };
    let key = InternalKey {
        user_key: &change.user_key,
        sequence: change.sequence,
        value_type,
    };
    let mut stored = Vec::new();
    key.encode(&mut stored);
    (stored, change.value.clone().unwrap_or_default())
}

fn db_table_of(kind: Kind, entries: &[Entry]) -> DbTable {
    let mut builder = kind.write().build_db(Vec::new());
    for (key, value) in entries {
        let key = InternalKey::parse(key).unwrap();
        builder.add(key, value).unwrap();
    }
    let file = builder.finish_into_writer().unwrap().0;
    kind.open().open_db_source(file).unwrap()
}

fn check_db(mut cursor: DbCursor, items: Vec<Change>, kind: Kind, moves: &[Move], ends: &[bool]) {
    let mut model = Model::new(items);
    let check = |cursor: &DbCursor, model: &Model<Change>, moved: bool| {
        assert_eq!(moved, model.current().is_some());
        assert_eq!(cursor.is_valid(), moved);
        match model.current() {
            Some(change) => {
                assert_eq!(cursor.user_key(), change.user_key);
                assert_eq!(cursor.sequence(), change.sequence);
                let is_value = cursor.value_type() == ValueType::Value;
                assert_eq!(is_value, change.value.is_some());
                let value = change.value.as_deref().unwrap_or(b"");
                assert_eq!(cursor.value(), value);
                assert_eq!(cursor.value_bytes(), value);
            }
            None => {
                let empty = (&b""[..], 0, ValueType::Deletion, &b""[..]);
                let shown = (
                    cursor.user_key(),
                    cursor.sequence(),
                    cursor.value_type(),
                    cursor.value(),
                );
                assert_eq!(shown, empty);
            }
        }
    };
    for step in moves {
        match step {
            Move::First => {
                model.at = 1;
                let moved = cursor.seek_to_first().unwrap();
                check(&cursor, &model, moved);
            }
            Move::Last => {
                model.at = model.items.len();
                let moved = cursor.seek_to_last().unwrap();
                check(&cursor, &model, moved);
            }
            Move::Seek(key) => {
                model.seek(|c| kind.compare(&c.user_key, key).is_lt());
                let moved = cursor.seek(key).unwrap();
                check(&cursor, &model, moved);
            }
            Move::Next(times) | Move::Prev(times) => {
                let forward = matches!(step, Move::Next(_));
                for _ in 0..*times {
                    model.step(forward);
                    let moved = match forward {
                        true => cursor.next(),
                        false => cursor.prev(),
                    };
                    check(&cursor, &model, moved.unwrap());
                }
            }
        }
    }
    check_ends(cursor.into_iter(), &model.items, ends);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 4000 }))]

    #[test]
    fn plain_merges_agree_with_the_model(
        kind in kind(),
        inputs in prop::collection::vec((form(), entries(), bounds()), 0..7),
        moves in moves(),
        ends in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let mut items: Vec<Merged> = Vec::new();
        let mut ranges = Vec::new();
        for (input, (form, entries, bounds)) in inputs.into_iter().enumerate() {
            let table = kind.table(&entries);
            let entries: Vec<Entry> = table.iter().map(|entry| owned(entry.unwrap())).collect();
            let make = |entries: &[Entry]| kind.table(entries);
            let range = forms::plain(form, &entries, &kind.order(), bounds.clone(), &make);
            check_lent(range.clone(), &entries, |key| kind.contains(&bounds, key));
            ranges.push(range);
            let within = entries.into_iter().filter(|(key, _)| kind.contains(&bounds, key));
            items.extend(within.map(|(key, value)| (key, value, input)));
        }
        items.sort_by(|a, b| kind.compare(&a.0, &b.0).then(a.2.cmp(&b.2)));
        let cursor = Table::merge(ranges).unwrap();
        let pairs: Vec<_> = items.iter().map(|(k, v, _)| Pair(k.clone(), v.clone())).collect();
        check_ends(cursor.clone().into_iter(), &pairs, &ends);
        check_plain(cursor, items, kind, &moves, &ends);
    }

    #[test]
    fn database_merges_agree_with_the_model(
        kind in kind(),
        inputs in prop::collection::vec((form(), changes(), bounds()), 0..6),
        snapshot in prop::option::of(0..13u64),
        moves in moves(),
        ends in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let mut all = Vec::new();
        let mut ranges = Vec::new();
        for (input, (form, changes, bounds)) in inputs.into_iter().enumerate() {
            let changes = changes.into_iter().map(|(user_key, sequence, value)| Change {
                user_key,
                sequence,
                value,
                input,
            });
            let changes = sorted(changes.collect(), kind);
            let stored: Vec<Entry> = changes.iter().map(stored_entry).collect();
            let make = |entries: &[Entry]| db_table_of(kind, entries);
            ranges.push(forms::database(form, &stored, &kind.order(), bounds.clone(), &make));
            all.extend(changes.into_iter().filter(|c| kind.contains(&bounds, &c.user_key)));
        }
        let all = sorted(all, kind);
        let mut cursor = DbTable::merge(ranges).unwrap();
        let shown = match snapshot {
            Some(sequence) => {
                cursor = cursor.at(sequence);
                seen(&all, sequence, false)
            }
            None => all,
        };
        check_ends(cursor.clone().into_iter(), &shown, &ends);
        check_db(cursor, shown, kind, &moves, &ends);
    }

    /// By what each snapshot sees of a sorted list of all changes, and by what it sees afterwards.
    #[test]
    fn compactions_keep_what_somebody_sees(
        kind in kind(),
        inputs in prop::collection::vec(changes(), 0..5),
        snapshots in prop::collection::vec(0..13u64, 0..4),
        is_bottom: bool,
        odd in 0..3usize,
        moves in moves(),
    ) {
        let mut all = Vec::new();
        let mut tables = Vec::new();
        for (input, changes) in inputs.into_iter().enumerate() {
            let changes = changes.into_iter().map(|(user_key, sequence, value)| Change {
                user_key,
                sequence,
                value,
                input,
            });
            let changes = sorted(changes.collect(), kind);
            tables.push(db_table(kind, &changes));
            all.extend(changes);
        }
        let all = sorted(all, kind);
        let readers: Vec<u64> = snapshots.iter().copied().chain([MAX_SEQUENCE]).collect();
        let seen_by: Vec<_> = readers.iter().map(|&at| seen(&all, at, true)).collect();
        let hides_nothing = |key: &[u8]| is_bottom || key.len() % 2 == odd;
        let is_kept = |change: &&Change| {
            let is_seen = seen_by.iter().any(|seen| seen.contains(change));
            // A deletion that everybody sees hides nothing at the bottom.
            let hides = change.value.is_some()
                || !hides_nothing(&change.user_key)
                || snapshots.iter().any(|&at| at < change.sequence);
            is_seen && hides
        };
        let kept: Vec<Change> = all.iter().filter(is_kept).cloned().collect();
        // Wherever the cursor stands and whatever it shows.
        let mut cursor = DbTable::merge(&tables).unwrap().at(5);
        for step in moves.iter().take(2) {
            match step {
                Move::Next(_) => cursor.next().unwrap(),
                Move::Prev(_) => cursor.prev().unwrap(),
                Move::Last => cursor.seek_to_last().unwrap(),
                Move::First | Move::Seek(_) => cursor.seek_to_first().unwrap(),
            };
        }
        let mut asked: Vec<Vec<u8>> = Vec::new();
        let mut compaction = Compaction::new(cursor, snapshots.clone()).drop_deletions_where(|key| {
            asked.push(key.to_vec());
            hides_nothing(key)
        });
        let mut builder = kind.write().build_db(Vec::new());
        let mut expected = kept.iter();
        while compaction.advance().unwrap() {
            let (key, value) = (InternalKey::parse(compaction.key()).unwrap(), compaction.value());
            let change = expected.next().unwrap();
            prop_assert_eq!((key.user_key, key.sequence), (&change.user_key[..], change.sequence));
            prop_assert_eq!(key.value_type == ValueType::Value, change.value.is_some());
            prop_assert_eq!(value, change.value.as_deref().unwrap_or_default());
            builder.add(key, value).unwrap();
        }
        prop_assert_eq!(expected.next(), None);
        prop_assert!(!compaction.advance().unwrap());
        prop_assert!(asked.is_sorted_by(|a, b| kind.compare(a, b).is_lt()), "{:?}", asked);
        let table = builder.finish_into_writer().unwrap().0;
        let table = kind.open().open_db_source(table).unwrap();
        for at in readers {
            check_ends(table.iter().at(at), &seen(&all, at, false), &[true]);
        }
    }

    /// A table alone: its cursor, its ranges, and each lookup at each sequence number.
    #[test]
    fn one_database_table_agrees_with_the_model(
        kind in kind(),
        changes in changes(),
        bounds in bounds(),
        snapshot in prop::option::of(0..13u64),
        moves in moves(),
        ends in prop::collection::vec(any::<bool>(), 1..20),
        more in prop::collection::vec(key(), 0..5),
    ) {
        let changes = changes.into_iter().map(|(user_key, sequence, value)| Change {
            user_key,
            sequence,
            value,
            input: 0,
        });
        let all = sorted(changes.collect(), kind);
        let table = db_table(kind, &all);
        let mut keys: Vec<_> = all.iter().map(|c| c.user_key.clone()).chain(more).collect();
        keys.dedup();
        for sequence in 0..13 {
            let seen = seen(&all, sequence, true);
            let find = |key: &Vec<u8>| seen.iter().find(|c| c.user_key == *key);
            let many = table.at(sequence).get_entries(&keys).unwrap();
            prop_assert_eq!(many.len(), keys.len());
            for (key, one_of_many) in keys.iter().zip(many) {
                let entry = table.at(sequence).get_entry(key).unwrap();
                prop_assert_eq!(entry.is_some(), find(key).is_some());
                if let (Some(entry), Some(change)) = (&entry, find(key)) {
                    prop_assert_eq!(change, entry);
                    prop_assert!(table.may_contain(key).unwrap());
                }
                prop_assert_eq!(&one_of_many, &entry);
                let version = entry.map(|entry| entry.version);
                prop_assert_eq!(table.at(sequence).get(key).unwrap(), version);
            }
            let shown: Vec<_> = seen.iter().filter(|c| c.value.is_some()).collect();
            let first = table.iter().at(sequence).next().transpose().unwrap();
            prop_assert!(shown.first().copied().into_iter().eq(first.iter()), "{:?}", first);
            let last = table.iter().at(sequence).last().transpose().unwrap();
            prop_assert!(shown.last().copied().into_iter().eq(last.iter()), "{:?}", last);
        }
        if !kind.reverse {
            for prefix in [&b""[..], b"a", b"common", b"\xff", b"\xff\xff"] {
                let begins = all.iter().filter(|c| c.user_key.starts_with(prefix));
                let begins: Vec<_> = begins.cloned().collect();
                check_ends(table.prefix(prefix), &begins, &ends);
            }
        }
        let within = all.iter().filter(|c| kind.contains(&bounds, &c.user_key));
        let within: Vec<_> = within.cloned().collect();
        let (range, shown) = match snapshot {
            Some(sequence) => (table.range(bounds).at(sequence), seen(&within, sequence, false)),
            None => (table.range(bounds), within),
        };
        check_ends(range, &shown, &ends);
        let (cursor, shown) = match snapshot {
            Some(sequence) => (table.cursor().at(sequence), seen(&all, sequence, false)),
            None => (table.cursor(), all),
        };
        check_db(cursor, shown, kind, &moves, &ends);
    }
}

/// An input that fails at each of its moves in turn: the merge passes the error on, shows no wrong entry, and goes on after a seek.
#[test]
fn an_error_of_an_input_in_mid_way_is_that_of_the_move() {
    let entries = |first: usize| {
        let keys = (first..12).step_by(2);
        keys.map(|i| (format!("{i:02}"), "value"))
            .collect::<Vec<_>>()
    };
    let turns = [true, true, true, false, true, true, false, false, true];
    for left in 0..14 {
        let cursor = SortedSlice::new(entries(0));
        let failing = TableRange::of(Failing { cursor, left }, ..);
        let sound = TableRange::of(SortedSlice::new(entries(1)), ..);
        let mut merged = Table::merge([failing, sound]).unwrap();
        let (mut at, mut failures) = (0, 0);
        for forward in turns.into_iter().cycle().take(30) {
            let moved = if forward {
                merged.next()
            } else {
                merged.prev()
            };
            at = if forward { (at + 1).min(13) } else { at - 1 };
            if let Err(error) = moved {
                failures += 1;
                assert_eq!(error.kind(), ErrorKind::Io);
                assert!(!merged.is_valid() && merged.key().is_empty());
                assert_eq!(merged.next().unwrap_err().kind(), ErrorKind::InvalidState);
                assert!(merged.seek("05").unwrap());
                at = 6;
            }
            let expected = (1..13).contains(&at).then(|| format!("{:02}", at - 1));
            assert_eq!(merged.key(), expected.unwrap_or_default().as_bytes());
        }
        assert_eq!(failures, 1, "{left}");
    }
}

/// So many inputs that their numbers take more than a byte.
#[test]
fn hundreds_of_inputs_are_merged() {
    let kind = Kind {
        reverse: false,
        properties: false,
    };
    let key = |i: u32| {
        format!(
            "a beginning longer than sixteen bytes {:06}",
            i * 7919 % 100_003
        )
    };
    let tables: Vec<_> = (0..300)
        .map(|table| {
            let keys = (table * 40..(table + 1) * 40).map(key);
            kind.table(
                &keys
                    .map(|key| (key.into_bytes(), Vec::new()))
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    let mut keys: Vec<_> = (0..300 * 40).map(key).collect();
    keys.sort();
    let merged = Table::merge(&tables).unwrap().into_iter();
    assert!(merged.map(|entry| entry.unwrap().0).eq(keys.iter()));
    let merged = Table::merge(&tables).unwrap().into_iter().rev();
    assert!(merged.map(|entry| entry.unwrap().0).eq(keys.iter().rev()));
}

/// A table whose reads are counted, and the number that opening took.
struct Counted<T> {
    table: T,
    disk: Arc<CountingReadAt<Bytes>>,
    opened: u64,
}

impl<T> Counted<T> {
    fn open(file: Vec<u8>, open: impl FnOnce(OpenOptions, Source) -> T) -> Counted<T> {
        let disk = Arc::new(CountingReadAt::new(Bytes::from(file)));
        let table = open(OpenOptions::new().no_cache(), disk.clone().into());
        Counted {
            table,
            opened: disk.reads(),
            disk,
        }
    }

    /// Reads since the table was opened.
    fn reads(&self) -> u64 {
        self.disk.reads() - self.opened
    }
}

fn plain(options: &WriteOptions, keys: std::ops::Range<u32>) -> Counted<Table> {
    let entries: Vec<Entry> = keys
        .map(|i| (format!("key{i:06}").into_bytes(), vec![b'v'; 20]))
        .collect();
    let file = common::build(options, &entries);
    Counted::open(file, |open, source| open.open_source(source).unwrap())
}

/// Tables one after the other, as the levels of an engine have them.
fn consecutive(options: &WriteOptions) -> [Counted<Table>; 5] {
    [0, 1, 2, 3, 4].map(|i| plain(options, 1000 * i..1000 * (i + 1)))
}

/// Whether each table was read.
fn read<T>(tables: &[Counted<T>]) -> Vec<bool> {
    tables.iter().map(|table| table.reads() > 0).collect()
}

fn small_blocks() -> WriteOptions {
    WriteOptions::new().block_size(300)
}

#[test]
fn inputs_outside_of_the_bounds_are_not_read() {
    let tables = consecutive(&small_blocks());
    let ranges = tables
        .iter()
        .map(|t| t.table.range("key001500".."key002500"));
    let merged: Vec<_> = Table::merge(ranges).unwrap().into_iter().collect();
    assert_eq!(merged.len(), 1000);
    assert_eq!(read(&tables), [false, true, true, false, false]);
}

#[test]
fn inputs_are_read_when_the_merge_gets_to_them() {
    let tables = consecutive(&small_blocks());
    let mut cursor = Table::merge(tables.iter().map(|t| &t.table)).unwrap();
    assert_eq!(read(&tables), [false; 5]);
    assert!(cursor.seek_to_first().unwrap());
    assert_eq!(tables[0].reads(), 1);
    assert_eq!(read(&tables), [true, false, false, false, false]);
    assert!(cursor.seek("key002999").unwrap());
    assert_eq!(read(&tables), [true, false, true, false, false]);
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.key(), b"key003000");
    assert_eq!(read(&tables), [true, false, true, true, false]);
    assert!(cursor.prev().unwrap());
    assert!(cursor.prev().unwrap());
    assert_eq!(cursor.key(), b"key002998");
    assert_eq!(read(&tables), [true, false, true, true, false]);
    assert!(cursor.seek_to_last().unwrap());
    assert_eq!(cursor.key(), b"key004999");
    assert_eq!(read(&tables), [true, false, true, true, true]);
}

#[test]
fn a_filter_rules_inputs_out_if_the_bounds_are_one_key() {
    let bloom = BloomFilterPolicy::new(20);
    for options in [
        small_blocks(),
        small_blocks()
            .filter_policy(bloom)
            .whole_table_filter(false),
        small_blocks().filter_policy(bloom).whole_table_filter(true),
    ] {
        // Each holds every third key.
        let tables = [0, 1, 2].map(|first| {
            let keys = (first..3000).step_by(3);
            let entries: Vec<Entry> = keys
                .map(|i: u32| (format!("key{i:06}").into_bytes(), Vec::new()))
                .collect();
            let file = common::build(&options, &entries);
            Counted::open(file, |open, source| open.open_source(source).unwrap())
        });
        let key = "key001501"; // the second table's
        let ranges = tables.iter().map(|t| t.table.range(key..=key));
        let mut cursor = Table::merge(ranges).unwrap();
        assert!(cursor.next().unwrap());
        assert_eq!((cursor.key(), cursor.input()), (key.as_bytes(), 1));
        assert!(!cursor.next().unwrap());
        assert_eq!(read(&tables), [false, true, false]);
    }
}

#[test]
fn databases_tables_are_ruled_out_by_user_keys() {
    let table = |first: u32, step: usize, most: u32| {
        let mut file = Vec::new();
        let mut builder = small_blocks().build_db(&mut file);
        for i in (first..most).step_by(step) {
            for sequence in [9, 5] {
                builder
                    .put(format!("key{i:06}"), sequence, "value")
                    .unwrap();
            }
        }
        builder.finish().unwrap();
        Counted::open(file, |open, source| open.open_db_source(source).unwrap())
    };
    // Two that interleave, and one of other keys.
    let tables = [table(0, 2, 1000), table(1, 2, 1000), table(1000, 1, 1500)];
    let merge = |bounds: (&'static str, &'static str)| {
        let ranges = tables.iter().map(|t| t.table.range(bounds.0..=bounds.1));
        DbTable::merge(ranges).unwrap().at(MAX_SEQUENCE)
    };
    let key = "key000501";
    assert_eq!(merge((key, key)).into_iter().count(), 1);
    assert_eq!(read(&tables), [false, true, false]);
    assert_eq!(merge(("key000400", "key000419")).into_iter().count(), 20);
    assert_eq!(read(&tables), [true, true, false]);
    assert!(tables[1].table.may_contain(key).unwrap());
    assert!(!tables[0].table.may_contain(key).unwrap());
    assert!(!tables[0].table.may_contain("z").unwrap(), "past the end");
}

#[test]
fn database_lookups_of_many_keys_read_each_block_once() {
    let mut file = Vec::new();
    let mut builder = small_blocks().build_db(&mut file);
    let keys: Vec<_> = (0..200).map(|i| format!("key{i:06}")).collect();
    for key in &keys {
        builder.put(key, 5, key).unwrap();
    }
    builder.finish().unwrap();
    let counted = Counted::open(file, |open, source| open.open_db_source(source).unwrap());
    let mut wanted: Vec<_> = keys.iter().rev().chain(&keys).cloned().collect();
    wanted.push("absent".into());
    let (before, batches) = (counted.disk.bytes(), counted.disk.batches());
    let found = counted.table.at(MAX_SEQUENCE).get_entries(&wanted).unwrap();
    for (key, entry) in wanted.iter().zip(found).take(400) {
        let version = entry.map(|entry| entry.version);
        assert_eq!(version, Some(Version::Value(key.clone().into())));
    }
    let properties = counted.table.as_table().properties().unwrap();
    assert!(properties.data_blocks > 10);
    // They lie side by side.
    assert_eq!((counted.reads(), counted.disk.batches() - batches), (1, 1));
    assert_eq!(counted.disk.bytes() - before, properties.data_bytes);
}

#[test]
fn inputs_of_different_orders_are_refused() {
    let bytewise = Kind {
        reverse: false,
        properties: true,
    }
    .table(&[]);
    let reverse = Kind {
        reverse: true,
        properties: true,
    }
    .table(&[]);
    let error = Table::merge([&bytewise, &reverse]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    let message = error.to_string();
    assert!(
        message.contains("test.Reverse") && message.contains("BytewiseComparator"),
        "{message}"
    );
    assert!(message.contains("number 1"), "{message}");

    let kinds = [false, true].map(|reverse| Kind {
        reverse,
        properties: true,
    });
    let databases = kinds.map(|kind| db_table(kind, &[]));
    let error = DbTable::merge(&databases).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    // Of stored keys, all tables have an order of the same name: that of user keys counts.
    let stored = databases.each_ref().map(DbTable::as_table);
    assert_eq!(
        Table::merge(stored).unwrap_err().kind(),
        ErrorKind::Comparator
    );
    assert!(Table::merge([databases[0].as_table(), &bytewise]).is_err());

    let file = common::build(&WriteOptions::new(), &[]);
    let unknown = OpenOptions::new().stored_order().open_source(file).unwrap();
    assert_eq!(
        Table::merge([&unknown]).unwrap_err().kind(),
        ErrorKind::Comparator
    );
    // Prefixes make no range in another order.
    assert_eq!(
        Table::merge([reverse.prefix("a")]).unwrap_err().kind(),
        ErrorKind::Comparator
    );
    let prefix = databases[1].prefix("a");
    assert_eq!(
        DbTable::merge([prefix.clone()]).unwrap_err().kind(),
        ErrorKind::Comparator
    );
    let items: Vec<_> = prefix.collect();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].as_ref().unwrap_err().kind(), ErrorKind::Comparator);
}

#[test]
fn ranges_of_which_an_entry_was_taken_and_snapshots_are_refused() {
    let kind = Kind {
        reverse: false,
        properties: true,
    };
    let entries = ["a", "b", "c", "d"].map(|key| (key.as_bytes().to_vec(), Vec::new()));
    let table = kind.table(&entries);
    let mut front = table.iter();
    front.next();
    let mut back = table.iter();
    back.next_back();
    let mut done = table.range("x"..);
    assert!(done.next().is_none());
    for input in [front, back, done] {
        let error = Table::merge([input]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        assert!(
            error
                .to_string()
                .contains("was advanced before it was merged"),
            "{error}"
        );
    }
    let mut whole = Table::merge([table.range("b"..), table.range(.."b")]).unwrap();
    assert!(whole.seek("c").unwrap());
    assert_eq!(
        Table::merge([whole.into_iter()])
            .unwrap()
            .into_iter()
            .count(),
        4
    );

    let change = Change {
        user_key: b"k".into(),
        sequence: 3,
        value: None,
        input: 0,
    };
    let database = db_table(kind, &[change]);
    let mut taken = database.iter();
    taken.next();
    let again: Vec<_> = taken.clone().at(3).collect();
    assert!(again.is_empty(), "{again:?}");
    for input in [taken, database.iter().at(3)] {
        let error = DbTable::merge([input]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidState);
    }
}

/// Every data block of one of three inputs is damaged in turn: a walk shows the right entries up to an error, and the cursor
/// has no position then until a seek succeeds.
#[test]
fn damage_of_an_input_is_an_error_and_no_entry_is_skipped() {
    let options = small_blocks().compression(Compression::None);
    let files: Vec<Vec<u8>> = (0..3u32)
        .map(|first| {
            let entries: Vec<Entry> = (first..120)
                .step_by(3)
                .map(|i| (format!("key{i:06}").into_bytes(), vec![b'v'; 30]))
                .collect();
            common::build(&options, &entries)
        })
        .collect();
    let open = |file: &Vec<u8>| {
        OpenOptions::new()
            .no_cache()
            .open_source(file.clone())
            .unwrap()
    };
    let expected: Vec<_> = (0..120)
        .map(|i| format!("key{i:06}").into_bytes())
        .collect();
    let layout = Layout::of(&files[1]);
    assert!(layout.data.len() > 3);
    for block in &layout.data {
        let mut damaged = files[1].clone();
        damaged[block.start + 5] ^= 1;
        // Opening checks small files whole: the damage comes later.
        let flaky = Arc::new(Switch {
            sound: files[1].clone().into(),
            damaged: damaged.into(),
            is_damaged: AtomicBool::new(false),
        });
        let source: Source = flaky.clone().into();
        let middle = OpenOptions::new().no_cache().open_source(source).unwrap();
        flaky.is_damaged.store(true, Relaxed);
        let mut cursor = Table::merge([&open(&files[0]), &middle, &open(&files[2])]).unwrap();
        for forward in [true, false] {
            let mut shown = Vec::new();
            let mut moved = if forward {
                cursor.seek_to_first()
            } else {
                cursor.seek_to_last()
            };
            while let Ok(true) = moved {
                shown.push(cursor.key().to_vec());
                moved = if forward {
                    cursor.next()
                } else {
                    cursor.prev()
                };
            }
            let error = moved.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert_eq!(error.corruption().unwrap().offset, block.start as u64);
            assert!(!cursor.is_valid());
            assert_eq!((cursor.key(), cursor.value()), (&b""[..], &b""[..]));
            assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::InvalidState);
            assert_eq!(cursor.prev().unwrap_err().kind(), ErrorKind::InvalidState);
            assert!(shown.len() < expected.len());
            match forward {
                true => assert_eq!(shown, expected[..shown.len()]),
                false => assert!(shown.iter().eq(expected.iter().rev().take(shown.len()))),
            }
        }
        flaky.is_damaged.store(false, Relaxed);
        assert!(cursor.seek("key000050").unwrap());
        assert_eq!(cursor.key(), b"key000050");
        let mut taken = cursor.into_iter();
        assert_eq!(taken.by_ref().filter(Result::is_ok).count(), 120);
        assert!(taken.next().is_none() && taken.next_back().is_none());
    }
}

/// A source that can be damaged while it is open.
struct Switch {
    sound: Bytes,
    damaged: Bytes,
    is_damaged: AtomicBool,
}

impl ReadAt for Switch {
    fn size(&self) -> io::Result<u64> {
        Ok(self.sound.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        match self.is_damaged.load(Relaxed) {
            true => self.damaged.read_at(offset, len),
            false => self.sound.read_at(offset, len),
        }
    }
}

/// A database's cursor over keys that are no internal keys, which the index does not show.
#[test]
fn a_stored_key_of_another_kind_is_an_error_of_the_move() {
    let order = InternalKeyComparator::new(BytewiseComparator);
    let mut file = Vec::new();
    let options = WriteOptions::leveldb().comparator(order);
    let mut builder = options.build(&mut file);
    let stored = |key: &str, sequence: u64, value_type: u64| {
        [key.as_bytes(), &(sequence << 8 | value_type).to_le_bytes()].concat()
    };
    builder.add(stored("a", 7, 1), "1").unwrap();
    builder.flush().unwrap();
    builder.add(stored("b", 7, 0x7f), "2").unwrap(); // no type of this database
    builder.add(stored("b", 6, 1), "3").unwrap();
    builder.flush().unwrap();
    builder.add(stored("c", 7, 1), "4").unwrap();
    builder.finish().unwrap();
    let table = OpenOptions::new().open_db_source(file).unwrap();
    for mut cursor in [
        table.cursor(),
        table.cursor().at(9),
        table.cursor().at(2),
        DbTable::merge([&table, &table]).unwrap(),
    ] {
        for forward in [true, false] {
            let mut moved = if forward {
                cursor.seek_to_first()
            } else {
                cursor.seek_to_last()
            };
            while let Ok(true) = moved {
                // The bad key comes after the first user key's and before others.
                assert_eq!(cursor.user_key() == b"a", forward);
                moved = if forward {
                    cursor.next()
                } else {
                    cursor.prev()
                };
            }
            let error = moved.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.to_string().contains("internal key"), "{error}");
            assert!(!cursor.is_valid());
            assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::InvalidState);
            assert_eq!(cursor.prev().unwrap_err().kind(), ErrorKind::InvalidState);
            assert!(cursor.seek("c").is_ok());
        }
    }
    assert!(table.iter().any(|entry| entry.is_err()));
    let mut entries = table.iter();
    assert!(entries.by_ref().any(|entry| entry.is_err()));
    assert!(entries.next().is_none(), "ends after its first error");
}

/// Properties that lie about the first or last key: an error when the merge gets there.
#[test]
fn a_key_that_is_not_as_the_properties_say_is_an_error() {
    for (key, forward) in [(&b"key.first"[..], true), (b"key.last", false)] {
        let mut entries: Vec<Entry> = Vec::new();
        for i in 100..200u32 {
            entries.push((i.to_string().into_bytes(), vec![b'v'; 20]));
        }
        let mut file = common::build(&small_blocks().compression(Compression::None), &entries);
        let block = Layout::of(&file).properties.unwrap();
        let at = block.start
            + file[block.clone()]
                .windows(key.len())
                .position(|w| w == key)
                .unwrap()
            + key.len();
        // "100" becomes "090", "199" becomes "299".
        let (from, to) = if forward {
            (b"100", b"090")
        } else {
            (b"199", b"299")
        };
        assert_eq!(&file[at..at + 3], from);
        file[at..at + 3].copy_from_slice(to);
        common::seal(&mut file, &block);
        let table = OpenOptions::new().open_source(file).unwrap();
        let mut cursor = Table::merge([&table, &table]).unwrap();
        let moved = if forward {
            cursor.seek_to_first()
        } else {
            cursor.seek_to_last()
        };
        let error = moved.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(
            error.to_string().contains("as its properties say"),
            "{error}"
        );
        assert!(!cursor.is_valid());
    }
}

#[test]
fn entries_are_counted_without_a_walk() {
    let tables = consecutive(&small_blocks());
    assert_eq!(tables[0].table.entries(), Some(1000));
    assert_eq!(tables[0].reads(), 0);
    let kind = Kind {
        reverse: false,
        properties: false,
    };
    assert_eq!(kind.table(&[]).entries(), None);
    let changes = [9, 4].map(|sequence| Change {
        user_key: b"k".into(),
        sequence,
        value: None,
        input: 0,
    });
    let database = db_table(
        Kind {
            properties: true,
            ..kind
        },
        &changes,
    );
    assert_eq!(database.as_table().entries(), Some(2));
    let properties = database.as_table().properties().unwrap();
    assert_eq!(properties.sequences, Some(4..=9));
    assert_eq!(properties.deletions, 2);
}

/// A comparator that takes keys of eight bytes only.
#[test]
fn a_merge_of_an_empty_range_asks_the_order_about_no_other_keys() {
    let fixed = |i: u64| format!("{i:08}").into_bytes();
    let entries: Vec<Entry> = (0..10).map(|i| (fixed(i), vec![])).collect();
    let file = common::build(
        &WriteOptions::new().comparator(common::EightBytes),
        &entries,
    );
    let table = OpenOptions::new()
        .comparator(common::EightBytes)
        .open_source(file)
        .unwrap();
    let merged = Table::merge([
        table.range(fixed(7)..fixed(3)),
        table.range(fixed(3)..fixed(5)),
    ])
    .unwrap();
    assert_eq!(merged.into_iter().count(), 2);
}

/// A range without entries is in an order, too.
#[test]
fn an_empty_first_range_does_not_hide_another_order() {
    let table = |options: WriteOptions, keys: [&str; 2]| {
        let mut file = Vec::new();
        let mut builder = options.build_db(&mut file);
        for key in keys {
            builder.put(key, 9, "value").unwrap();
        }
        builder.finish().unwrap();
        file
    };
    let bytewise = table(WriteOptions::new(), ["a", "b"]);
    let bytewise = OpenOptions::new().open_db_source(bytewise).unwrap();
    let reverse = table(WriteOptions::new().comparator(Reverse), ["d", "c"]);
    let reverse = OpenOptions::new()
        .comparator(Reverse)
        .open_db_source(reverse)
        .unwrap();
    for first in [bytewise.range("z".."a"), bytewise.iter()] {
        let error = DbTable::merge([first, reverse.iter()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator);
    }
}
