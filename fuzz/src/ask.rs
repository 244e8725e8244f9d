//! All questions that a table can be asked, and what must hold between the answers.

use std::ops::Bound;
use std::sync::LazyLock;

use bytes::Bytes;
use leveltable::{
    BlockCache, BytewiseComparator, Comparator as _, Cursor, DbTable, Error, ErrorKind,
    OpenOptions, Result, Table,
    db::{DbEntry, InternalKeyComparator, MAX_SEQUENCE, Version},
};

use crate::model::{End, Model, State};
use crate::naive::{self, Compare, Entry};
use crate::remote;
use crate::source::{MAX_ENTRIES, disk};
use crate::tables::KeyOrder;

/// An answer, in a form that can be compared with that of another table. An error is its kind: the words
/// differ with the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of a lookup.
    Value(Result<Option<Vec<u8>>, ErrorKind>),
    /// Of a seek or a step.
    Entry(Result<Option<Entry>, ErrorKind>),
    /// Of a walk: the entries, and why it ended if not at the end.
    Walk(Vec<Entry>, Option<ErrorKind>),
}

impl Answer {
    fn failed(&self) -> bool {
        match self {
            Answer::Value(answer) => answer.is_err(),
            Answer::Entry(answer) => answer.is_err(),
            Answer::Walk(_, end) => end.is_some(),
        }
    }
}

/// The kind of an error, whose words are made as well: they must not panic either.
fn kind(error: Error) -> ErrorKind {
    assert!(!error.to_string().is_empty());
    if let Some(corruption) = error.corruption() {
        assert!(!corruption.expected.is_empty());
    }
    error.kind()
}

fn entry(entry: (Bytes, Bytes)) -> Entry {
    (entry.0.to_vec(), entry.1.to_vec())
}

/// Asks `file` everything, as a plain table, as the stored keys of a database's table, and as a database's
/// table, from memory and through [`ReadAt`], in the ways that must agree. What it holds is checked
/// where the naive decoder understands it.
pub fn as_everything(file: &Bytes) {
    let more = probes_of(file);
    as_stored(file, KeyOrder::Bytewise, &more);
    as_stored(file, KeyOrder::Reverse, &more);
    as_internal(file, &more);
    in_stored_order(file);
    remote::as_remote(file, &loaded().no_cache(), &more);
    // Recognising a database's table.
    let _ = OpenOptions::new().open_source(file.clone()).map_err(kind);
}

/// A few keys out of the file's own bytes.
fn probes_of(file: &[u8]) -> Vec<Vec<u8>> {
    let piece = |at: usize, len: usize| file.iter().skip(at).take(len).copied().collect();
    vec![piece(3, 2), piece(file.len() / 2, 9)]
}

/// How a table is asked once more. Which way an input goes depends on its bytes: all ways every time would be slow.
#[derive(Clone, Copy)]
enum Again {
    /// Through [`ReadAt`], with a cache.
    Disk,
    /// Through [`ReadAt`], without.
    DiskUncached,
    /// In an order of the same meaning that the crate does not know by type.
    ByTrait,
}

impl Again {
    fn of(file: &[u8]) -> Again {
        match crc32c::crc32c(file) % 3 {
            0 => Again::Disk,
            1 => Again::DiskUncached,
            _ => Again::ByTrait,
        }
    }

    fn open(self, file: &Bytes, options: &OpenOptions, order: KeyOrder) -> Table {
        let table = match (self, order) {
            (Again::Disk, _) => options.open_source(disk(file)),
            (Again::ByTrait, KeyOrder::Bytewise) => {
                let options = options.clone().comparator(KeyOrder::ByTrait);
                options.open_source(file.clone())
            }
            (Again::DiskUncached | Again::ByTrait, _) => {
                options.clone().no_cache().open_source(disk(file))
            }
        };
        table.expect("what opens in one way opens in all")
    }
}

/// A small cache that all executions share: making one takes longer than asking a table.
pub fn cache() -> BlockCache {
    static CACHE: LazyLock<BlockCache> = LazyLock::new(|| BlockCache::new(1 << 18));
    CACHE.clone()
}

/// Asks a plain table in this order; checks that memory and [`ReadAt`], the order known by type and by
/// name, and answers with and without filters agree.
pub fn as_stored(file: &Bytes, order: KeyOrder, more: &[Vec<u8>]) {
    let by_default = loaded().cache(cache());
    let by_default = match order {
        KeyOrder::Bytewise => by_default.comparator(BytewiseComparator),
        other => by_default.comparator(other),
    };
    let all = unchecked(&by_default);
    let options = all.clone().no_filter();
    let model = naive::table(file, order.compare(), MAX_ENTRIES - 1);
    let opened = options.open_source(file.clone()).map_err(kind);
    let Ok(table) = opened else {
        // The model reads no properties: where they name another order, the table is refused, sound or not.
        let is_of_another =
            naive::named_order(file).is_some_and(|name| name != order.name().as_bytes());
        let is_refused = matches!(opened, Err(ErrorKind::Comparator)) && is_of_another;
        assert!(
            model.is_none() || is_refused,
            "a sound table is opened: {opened:?}"
        );
        assert!(options.open_source(disk(file)).is_err());
        check_in_pieces(file, &options, None, more);
        return;
    };
    let probes = probes(&table, more);
    check_in_pieces(file, &options, Some(&table), &probes);
    let asked = |table: &Table| ask(table, &probes, order == KeyOrder::Bytewise, order.compare());
    let answers = asked(&table);
    if let Some(model) = &model {
        check(&table, model, order.compare(), &probes);
    }
    check_blocks(file, &table, order.compare(), &probes);
    check_checked(file, &by_default.no_filter(), order.compare(), &probes);
    if naive::has_damaged_data(file) {
        // Nothing is skipped in silence: the walk ends where the damage is, if it does not end before.
        let walked = walk(table.iter());
        let ends_early =
            matches!(&walked, Answer::Walk(entries, None) if entries.len() == MAX_ENTRIES);
        assert!(walked.failed() || ends_early, "damage that is not noticed");
    }
    let others = asked(&Again::of(file).open(file, &options, order));
    assert_eq!(others, answers);
    if let Ok(filtered) = all.open_source(file.clone()).map_err(kind) {
        check_filtered(&filtered, &table, &probes);
    }
}

/// Options that read all of index and filters when a table is opened: what is damaged there is then no table.
fn loaded() -> OpenOptions {
    OpenOptions::new().preload(true)
}

/// Where index and filters come in pieces, answers are those of the `whole` table, or errors.
fn check_in_pieces(file: &Bytes, options: &OpenOptions, whole: Option<&Table>, probes: &[Vec<u8>]) {
    let options = options.clone().preload(false).no_cache();
    let Ok(table) = options.open_source(disk(file)) else {
        return;
    };
    for key in probes {
        let expected = whole.map(|whole| whole.get(key));
        let found = table.get(key);
        if let (Ok(found), Some(Ok(expected))) = (&found, &expected) {
            assert_eq!(found, expected);
        }
        if let (Ok(Some(_)), Some(Ok(_))) = (&found, &expected) {
            assert!(table.may_contain(key).unwrap());
        }
        let _ = table.cursor().seek(key);
    }
    let _ = (
        walk(table.iter()),
        walk(table.iter().rev()),
        table.splits(3),
    );
}

/// Answers with a filter are those without, or "absent" where the filter says so: it may lie.
fn check_filtered(filtered: &Table, table: &Table, probes: &[Vec<u8>]) {
    let _ = filtered.filter();
    for key in probes {
        let answer = value(filtered.get(key));
        match filtered.may_contain(key).unwrap() {
            true => assert_eq!(answer, value(table.get(key))),
            false => assert_eq!(answer, Answer::Value(Ok(None))),
        }
    }
}

/// Keys to ask for: some of the table's own, their neighbours, and `more`.
fn probes(table: &Table, more: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut probes = more.to_vec();
    let mut walk = table.iter().map_while(Result::ok);
    if let Some((key, _)) = walk.next() {
        probes.push(key.to_vec());
    }
    if let Some((key, _)) = walk.nth(2) {
        probes.push([&key, &[0][..]].concat());
    }
    if let Some(Ok((key, _))) = table.iter().next_back() {
        probes.push(key.to_vec());
        probes.push([&key, &[0xff][..]].concat());
    }
    probes.push(Vec::new());
    probes.sort();
    probes.dedup();
    probes
}

fn value(answer: Result<Option<Bytes>>) -> Answer {
    Answer::Value(answer.map(|value| value.map(Vec::from)).map_err(kind))
}

fn next(answer: Option<Result<(Bytes, Bytes)>>) -> Answer {
    Answer::Entry(answer.transpose().map(|e| e.map(entry)).map_err(kind))
}

fn walk(walk: impl Iterator<Item = Result<(Bytes, Bytes)>>) -> Answer {
    let (mut entries, mut end) = (Vec::new(), None);
    for answer in walk.take(MAX_ENTRIES) {
        match answer {
            Ok(e) => entries.push(entry(e)),
            Err(error) => end = Some(kind(error)),
        }
    }
    Answer::Walk(entries, end)
}

/// A walk with a cursor.
fn cursor_walk(table: &Table, forward: bool) -> Answer {
    let mut cursor = table.cursor();
    let (mut entries, mut end) = (Vec::new(), None);
    let mut moved = match forward {
        true => cursor.seek_to_first(),
        false => cursor.seek_to_last(),
    };
    while entries.len() < MAX_ENTRIES {
        match moved {
            Ok(true) => entries.push((cursor.key().to_vec(), cursor.value().to_vec())),
            Ok(false) => {
                assert!(!cursor.is_valid() && cursor.key().is_empty());
                break;
            }
            Err(error) => {
                end = Some(kind(error));
                assert_eq!(cursor.next().map_err(kind), Err(ErrorKind::InvalidState));
                assert_eq!(cursor.prev().map_err(kind), Err(ErrorKind::InvalidState));
                break;
            }
        }
        moved = match forward {
            true => cursor.next(),
            false => cursor.prev(),
        };
    }
    Answer::Walk(entries, end)
}

/// Every operation of a table; asserts what must hold of any file.
fn ask(table: &Table, probes: &[Vec<u8>], bytewise: bool, compare: Compare) -> Vec<Answer> {
    let forward = walk(table.iter());
    let backward = walk(table.iter().rev());
    assert_eq!(cursor_walk(table, true), forward);
    assert_eq!(cursor_walk(table, false), backward);
    let mut answers = vec![
        next(table.first().transpose()),
        next(table.last().transpose()),
        forward,
        backward,
        walk(both_ends(table)),
    ];
    let mut cursor = table.cursor();
    for key in probes {
        let found = value(table.get(key));
        let with = table.get_with(key, <[u8]>::to_vec);
        assert_eq!(Answer::Value(with.map_err(kind)), found);
        let contains = table.contains_key(key).map_err(kind);
        if let Answer::Value(found) = &found {
            assert_eq!(contains, found.clone().map(|value| value.is_some()));
        }
        // Where a lookup finds a key, a cursor lands; where the lookup fails, so does the cursor.
        let sought = cursor.seek(key).map_err(kind);
        match &found {
            Answer::Value(Ok(Some(value))) => {
                assert_eq!(sought, Ok(true));
                assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
                assert_eq!(cursor.value_bytes(), *value);
            }
            // Not a key of the table's form: there is a place for it all the same.
            Answer::Value(Err(ErrorKind::InvalidState)) => {}
            Answer::Value(Err(_)) => assert!(sought.is_err()),
            _ => {}
        }
        let is_absent = matches!(
            found,
            Answer::Value(Ok(None) | Err(ErrorKind::InvalidState))
        );
        assert!(table.may_contain(key).unwrap() || is_absent);
        // No block whose keys are out of order is answered from: what is found lies on the right side.
        let here = |cursor: &Cursor| (cursor.key().to_vec(), cursor.value().to_vec());
        let found_here = sought.map(|on| on.then(|| here(&cursor)));
        if let Ok(Some((landed, _))) = &found_here {
            assert!(compare(landed, key).is_ge());
        }
        let behind = next(table.range(&key[..]..).next());
        assert_eq!(Answer::Entry(found_here), behind);
        let before = next(table.range(..&key[..]).next_back());
        if sought.is_ok() {
            let moved = cursor.prev().map_err(kind);
            let found_here = moved.map(|on| on.then(|| here(&cursor)));
            if let Ok(Some((landed, _))) = &found_here {
                assert!(compare(landed, key).is_lt());
            }
            assert_eq!(Answer::Entry(found_here), before);
        }
        if bytewise {
            // (In the order by another name a prefix is refused: not part of the answers.)
            let _ = walk(table.prefix(key).take(3));
            let _ = walk(table.prefix(key).rev().take(3));
        }
        answers.extend([found, behind, before]);
    }
    // Many lookups at once answer as one by one, in whatever order, and fail where one of them does.
    let keys: Vec<&Vec<u8>> = probes.iter().rev().chain(probes).collect();
    let one_by_one: Result<Vec<_>> = keys.iter().map(|key| table.get(key)).collect();
    let at_once = table.get_many(&keys);
    match one_by_one {
        Ok(values) => assert_eq!(at_once.unwrap(), values),
        Err(_) => assert!(at_once.is_err()),
    }
    for pair in probes.chunks_exact(2) {
        let [a, b] = [&pair[0][..], &pair[1][..]];
        let inner = (Bound::Excluded(a), Bound::Excluded(b));
        answers.push(walk(table.range(a..=b).take(5)));
        answers.push(walk(table.range(a..=b).rev().take(5)));
        answers.push(walk(table.range(inner).take(5)));
        answers.push(walk(table.range(inner).rev().take(5)));
        answers.push(walk(table.range(b..a)));
    }
    let _ = (table.stats(), table.data_blocks());
    answers
}

/// The entries from both ends in turn, to where these meet: they do in any table.
fn both_ends(table: &Table) -> impl Iterator<Item = Result<(Bytes, Bytes)>> {
    let mut range = table.iter();
    (0..).map_while(move |i| match i % 3 {
        0 => range.next_back(),
        _ => range.next(),
    })
}

/// Checks every answer of `table` against the entries that it holds.
pub fn check(table: &Table, model: &[Entry], compare: Compare, probes: &[Vec<u8>]) {
    assert_eq!(walk(table.iter()), Answer::Walk(model.to_vec(), None));
    let backward = model.iter().rev().cloned().collect();
    assert_eq!(walk(table.iter().rev()), Answer::Walk(backward, None));
    let mut ends: std::collections::VecDeque<&Entry> = model.iter().collect();
    for (i, answer) in both_ends(table).enumerate() {
        let expected = match i % 3 {
            0 => ends.pop_back(),
            _ => ends.pop_front(),
        };
        assert_eq!(Some(&entry(answer.unwrap())), expected);
    }
    assert!(ends.is_empty());
    let keys: Vec<&[u8]> = model.iter().map(|(key, _)| &key[..]).collect();
    let at_once = table.get_many(&keys).unwrap();
    for ((key, value), at_once) in model.iter().zip(at_once) {
        assert_eq!(table.get(key).unwrap().unwrap(), value[..]);
        assert_eq!(at_once.unwrap(), value[..]);
    }
    let mut cursor = table.cursor();
    for key in probes {
        let at = model.partition_point(|(k, _)| compare(k, key).is_lt());
        let here = model.get(at);
        let exact = here.filter(|(k, _)| k == key);
        let expected = exact.map(|(_, value)| value.clone());
        assert_eq!(value(table.get(key)), Answer::Value(Ok(expected)));
        assert_eq!(cursor.seek(key).unwrap(), here.is_some());
        let ends = |bounds: (Bound<&[u8]>, Bound<&[u8]>), expected: &[Entry]| {
            let mut range = table.range(bounds);
            let first = expected.first().cloned();
            assert_eq!(next(range.next()), Answer::Entry(Ok(first)));
            let last = expected.last().cloned().filter(|_| expected.len() > 1);
            assert_eq!(next(range.next_back()), Answer::Entry(Ok(last)));
        };
        let behind = at + usize::from(exact.is_some());
        ends((Bound::Included(key), Bound::Unbounded), &model[at..]);
        ends((Bound::Excluded(key), Bound::Unbounded), &model[behind..]);
        ends((Bound::Unbounded, Bound::Included(key)), &model[..behind]);
        ends((Bound::Unbounded, Bound::Excluded(key)), &model[..at]);
        let bytewise = compare(b"a", b"b").is_lt();
        if bytewise && table.prefix("").next().is_none_or(|e| e.is_ok()) {
            for len in [1, 2, 5, usize::MAX] {
                let prefix = &key[..key.len().min(len)];
                let with_prefix = model.iter().filter(|(k, _)| k.starts_with(prefix));
                let expected: Vec<Entry> = with_prefix.cloned().collect();
                assert_eq!(walk(table.prefix(prefix)), Answer::Walk(expected, None));
                // Bounds that lie within one prefix more often than two probes do.
                let within =
                    |(k, _): &&Entry| compare(prefix, k).is_le() && compare(k, key).is_lt();
                let expected = model.iter().filter(within).cloned().collect();
                let found = walk(table.range(prefix..&key[..]));
                assert_eq!(found, Answer::Walk(expected, None));
            }
        }
    }
}

/// Opens a large file with the order of all blocks checked: if it opens, no block is out of order or damaged, and if not, the
/// error is of a block that is.
fn check_checked(file: &Bytes, options: &OpenOptions, compare: Compare, probes: &[Vec<u8>]) {
    let Some(model) = Model::of(file, compare, MAX_ENTRIES - 1) else {
        return;
    };
    if file.len() <= SMALL {
        return;
    }
    let has = |is: fn(&State) -> bool| model.has(is);
    let is_misordered = has(|state| matches!(state, State::Misordered(_)));
    let is_damaged = has(|state| matches!(state, State::Damaged));
    let is_unknown = has(|state| matches!(state, State::Unknown));
    let options = options.clone().check_order(true);
    match options.open_source(disk(file)) {
        Ok(table) => {
            assert!(!is_misordered, "out of order, and opened");
            assert!(!is_damaged, "damaged, and opened");
            check_blocks(file, &table, compare, probes);
        }
        Err(error) => match error.kind() {
            // What is damaged may be out of order as well.
            ErrorKind::Comparator => {
                assert!(is_misordered || is_damaged || is_unknown, "{error}");
            }
            _ => assert!(is_damaged || is_unknown, "{error}"),
        },
    }
}

/// Up to this size of the file, the order of all blocks is checked when a table is opened.
const SMALL: usize = 64 << 10;

/// `options` that leave the blocks of a file above [`SMALL`] for lookups to check: the harder way to open it.
fn unchecked(options: &OpenOptions) -> OpenOptions {
    options.clone().check_order(false)
}

/// Checks every answer of `table`, which was opened from `file` without a filter, against the data blocks that it rests
/// on: what a lookup answers from a block is right, and a block out of order is an error. In a small file there is none.
pub fn check_blocks(file: &[u8], table: &Table, compare: Compare, probes: &[Vec<u8>]) {
    let Some(model) = Model::of(file, compare, MAX_ENTRIES - 1) else {
        return;
    };
    let is_misordered = |state: &State| matches!(state, State::Misordered(_));
    assert!(
        file.len() > SMALL || !model.has(is_misordered),
        "a small file out of order is opened"
    );
    let all = (Bound::Unbounded, Bound::Unbounded);
    check_walk(table, &model, all);
    let more = model.probes(12);
    let mut lookups = Vec::new();
    let mut cursor = table.cursor();
    for key in probes.iter().chain(&more) {
        let answer = table.get(key).map(|value| value.map(Vec::from));
        let answer = answer.map_err(kind);
        let expected = model.get(key);
        match &expected {
            // Not a key of the table's form.
            Some(Ok(None)) if answer == Err(ErrorKind::InvalidState) => {}
            Some(Ok(value)) => assert_eq!(answer.as_ref(), Ok(value)),
            Some(Err(())) => assert!(answer.is_err(), "{key:?} from a block out of order"),
            None => {}
        }
        assert_eq!(table.contains_key(key).is_err(), answer.is_err());
        if let Ok(Some(_)) = answer {
            assert!(table.may_contain(key).unwrap() && cursor.seek(key).unwrap());
        }
        lookups.push((key, answer));
        let key = &key[..];
        check_walk(table, &model, (Bound::Included(key), Bound::Unbounded));
        check_walk(table, &model, (Bound::Unbounded, Bound::Excluded(key)));
        if let Some(other) = more.first() {
            check_walk(
                table,
                &model,
                (Bound::Excluded(key), Bound::Included(other)),
            );
            check_walk(
                table,
                &model,
                (Bound::Excluded(other), Bound::Included(key)),
            );
        }
    }
    let keys: Vec<_> = lookups.iter().map(|(key, _)| key).collect();
    let one_by_one: Result<Vec<_>, _> = lookups.iter().map(|(_, answer)| answer.clone()).collect();
    match (one_by_one, table.get_many(&keys)) {
        (Ok(values), at_once) => {
            let at_once = at_once.unwrap();
            assert!(
                at_once
                    .into_iter()
                    .map(|value| value.map(Vec::from))
                    .eq(values)
            );
        }
        (Err(_), at_once) => assert!(at_once.is_err()),
    }
}

/// Checks both walks within `bounds`: they give what the model does, and end with an error where it does.
fn check_walk(table: &Table, model: &Model, bounds: (Bound<&[u8]>, Bound<&[u8]>)) {
    let walks = [
        (walk(table.range(bounds)), model.forward(bounds)),
        (walk(table.range(bounds).rev()), model.backward(bounds)),
    ];
    for (answer, (mut expected, end)) in walks {
        let Answer::Walk(entries, error) = answer else {
            unreachable!("a walk")
        };
        let is_cut = entries.len() == MAX_ENTRIES;
        expected.truncate(MAX_ENTRIES);
        let is_prefix = expected.starts_with(&entries);
        match (end, error) {
            (End::Bound, None) => assert_eq!(entries, expected),
            (End::Bound, Some(_)) => panic!("an error without a reason"),
            (End::Error, error) => {
                assert!(
                    is_prefix && (error.is_some() || is_cut),
                    "a block out of order is walked"
                );
            }
            (End::Unknown, error) => {
                assert!(entries.starts_with(&expected) || error.is_some() && is_prefix);
            }
        }
    }
}

/// Checks a database's table, which was opened from `file` without a filter.
fn check_db_blocks(file: &[u8], table: &DbTable, compare: Compare, user_keys: &[Vec<u8>]) {
    let Some(model) = Model::of(file, compare, MAX_ENTRIES - 1) else {
        return;
    };
    if model.has(|state| matches!(state, State::Unknown)) {
        return;
    }
    let has_errors = model.has(|state| !matches!(state, State::Sound(_)));
    for user_key in user_keys {
        for sequence in SEQUENCES {
            let tag = sequence << 8 | 1;
            let target = [&user_key[..], &tag.to_le_bytes()].concat();
            let (entries, end) = model.forward((Bound::Included(&target), Bound::Unbounded));
            let answer = table.at(sequence).get(user_key).map_err(kind);
            let Some((key, value)) = entries.first() else {
                match (&answer, end) {
                    (Ok(found), End::Bound) => assert_eq!(*found, None),
                    // The block of the key tells; a block out of order past it need not be looked at.
                    (Ok(found), _) => {
                        assert!(found.is_none() && model.get(&target) != Some(Err(())))
                    }
                    (Err(_), _) => assert!(has_errors),
                }
                continue;
            };
            let same = |split: &[u8]| {
                let oldest = [split, &[0; 8]].concat();
                let newest = [&user_key[..], &[0; 8]].concat();
                compare(&oldest, &newest).is_eq()
            };
            let found = match key.split_last_chunk::<8>() {
                Some((found, _)) if !same(found) => Some(None),
                Some((_, [1, ..])) => Some(Some(Version::Value(Bytes::copy_from_slice(value)))),
                Some((_, [0, ..])) => Some(Some(Version::Deleted)),
                _ => None,
            };
            match (answer, found) {
                (Ok(answer), Some(found)) => assert_eq!(answer, found),
                (Ok(answer), None) => assert_eq!(answer, None, "no internal key"),
                // The entry that tells may be no internal key, or lie past a block that is an error.
                (Err(_), Some(Some(_))) => assert!(has_errors),
                (Err(_), _) => {}
            }
        }
    }
}

/// Asks a table in its stored order, in which it can only be walked: both walks give what a walk of the file gives.
pub fn in_stored_order(file: &Bytes) {
    let options = loaded().stored_order().no_cache();
    let Ok(table) = options.open_source(file.clone()).map_err(kind) else {
        assert!(naive::table(file, |a, b| a.cmp(b), MAX_ENTRIES).is_none());
        return;
    };
    let key = file.get(3..5).unwrap_or(&[]);
    let is_refused = |error: Option<Error>| {
        let error = error.expect("a lookup in no order");
        assert_eq!(kind(error), ErrorKind::Comparator);
    };
    is_refused(table.get(key).err());
    is_refused(table.contains_key(key).err());
    is_refused(table.get_many(&[key]).err());
    is_refused(table.cursor().seek(key).err());
    is_refused(table.range(key..).next().and_then(Result::err));
    is_refused(table.range(..key).next_back().and_then(Result::err));
    is_refused(table.prefix(key).next().and_then(Result::err));
    assert!(table.may_contain(key).unwrap());
    let (Answer::Walk(forward, end), Answer::Walk(backward, back_end)) =
        (walk(table.iter()), walk(table.iter().rev()))
    else {
        unreachable!("walks")
    };
    // Any order will do here: of a block out of order, the entries are known all the same.
    let Some(blocks) = naive::data_blocks(file, MAX_ENTRIES - 1) else {
        return;
    };
    let known = |block: &Option<naive::Block>| block.as_ref().is_some_and(|b| b.restarts_are_sound);
    let entries = |block: &Option<naive::Block>| block.clone().map(|b| b.entries);
    let mut expected: Vec<Entry> = Vec::new();
    for block in blocks.iter().take_while(|b| known(b)) {
        expected.extend(entries(block).unwrap());
    }
    let mut expected_back: Vec<Entry> = Vec::new();
    for block in blocks.iter().rev().take_while(|b| known(b)) {
        expected_back.extend(entries(block).unwrap().into_iter().rev());
    }
    let all = blocks.iter().all(known);
    for (walked, end, mut expected) in [
        (forward, end, expected),
        (backward, back_end, expected_back),
    ] {
        expected.truncate(MAX_ENTRIES);
        assert!(walked.starts_with(&expected), "stored order is lost");
        if all {
            assert_eq!((walked, end), (expected, None));
        }
    }
}

/// The order of a database's stored keys, from its description. One without a tag is all user key.
pub fn compare_stored(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let split = |key: &[u8]| match key.split_last_chunk::<8>() {
        Some((user, tag)) => (user.to_vec(), Some(u64::from_le_bytes(*tag))),
        None => (key.to_vec(), None),
    };
    let ((a, a_tag), (b, b_tag)) = (split(a), split(b));
    a.cmp(&b).then(b_tag.cmp(&a_tag))
}

/// The same where user keys descend.
pub fn compare_stored_reverse(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let user_key =
        |key: &[u8]| key[..key.len().saturating_sub(if key.len() < 8 { 0 } else { 8 })].to_vec();
    let by_user_key = user_key(b).cmp(&user_key(a));
    by_user_key.then_with(|| compare_stored(a, b))
}

/// The same for internal keys alone: others do not ascend by it, and are refused.
pub fn compare_internal(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    match a.len().min(b.len()) {
        ..8 => std::cmp::Ordering::Equal,
        _ => compare_stored(a, b),
    }
}

/// Asks a database's table, by its stored keys and by user keys.
pub fn as_internal(file: &Bytes, more: &[Vec<u8>]) {
    let all = unchecked(&loaded()).cache(cache());
    let options = all.clone().no_filter();
    let stored_by_default = loaded()
        .no_filter()
        .cache(cache())
        .comparator(InternalKeyComparator::new(BytewiseComparator));
    let stored_options = unchecked(&stored_by_default);
    let model = naive::table(file, compare_stored, MAX_ENTRIES - 1);
    let all_tagged = |model: &Vec<Entry>| model.iter().all(|(key, _)| key.len() >= 8);
    let model = model.filter(all_tagged);
    let opened = stored_options.open_source(file.clone()).map_err(kind);
    let Ok(stored) = opened else {
        assert!(model.is_none(), "a sound table is opened: {opened:?}");
        assert!(options.open_db_source(file.clone()).is_err());
        return;
    };
    let probes = probes(&stored, more);
    ask(&stored, &probes, false, compare_stored);
    check_blocks(file, &stored, compare_stored, &probes);
    check_checked(file, &stored_by_default, compare_stored, &probes);

    let Ok(table) = options.open_db_source(file.clone()).map_err(kind) else {
        return;
    };
    let user_keys: Vec<Vec<u8>> = probes
        .iter()
        .map(|key| key[..key.len().saturating_sub(8)].to_vec())
        .chain(more.iter().cloned())
        .collect();
    let answers = ask_db(&table, &user_keys);
    let on_disk = options.open_db_source(disk(file)).unwrap();
    assert_eq!(ask_db(&on_disk, &user_keys), answers);
    check_db_blocks(file, &table, compare_stored, &user_keys);
    if let Some(model) = model {
        check_db(&table, &model, &user_keys);
    }
    if let Ok(filtered) = all.open_db_source(file.clone()).map_err(kind) {
        for key in &user_keys {
            // The filter may lie, but only hide.
            let answer = filtered.get(key).map_err(kind);
            assert!(answer == Ok(None) || answer == table.get(key).map_err(kind));
        }
    }
}

/// Asks a database's table whose user keys descend.
pub fn as_reverse_database(file: &Bytes, more: &[Vec<u8>]) {
    let options = unchecked(&loaded())
        .no_filter()
        .no_cache()
        .comparator(KeyOrder::Reverse);
    let Ok(table) = options.open_db_source(file.clone()).map_err(kind) else {
        return;
    };
    let user_key = |key: &Vec<u8>| key[..key.len().saturating_sub(8)].to_vec();
    let user_keys: Vec<_> = more
        .iter()
        .map(user_key)
        .chain(more.iter().cloned())
        .collect();
    let answers = ask_db(&table, &user_keys);
    let on_disk = options.open_db_source(disk(file)).unwrap();
    assert_eq!(ask_db(&on_disk, &user_keys), answers);
    check_blocks(file, table.as_table(), compare_stored_reverse, more);
    check_db_blocks(file, &table, compare_stored_reverse, &user_keys);
}

/// Opens a table without saying what it is. One that opens is in bytewise order, and answers as such.
pub fn by_default(file: &Bytes, more: &[Vec<u8>]) {
    let by_default = loaded().no_filter().no_cache();
    if let Ok(table) = unchecked(&by_default)
        .open_source(file.clone())
        .map_err(kind)
    {
        check_blocks(file, &table, |a, b| a.cmp(b), more);
        check_checked(file, &by_default, |a, b| a.cmp(b), more);
    }
}

/// What a database's table answered to a seek or a step.
pub type DbAnswer = Result<Option<DbEntry>, ErrorKind>;

/// What it answered to a lookup.
pub type DbLookup = Result<Option<Version>, ErrorKind>;

fn db_next(answer: Option<Result<DbEntry>>) -> DbAnswer {
    answer.transpose().map_err(kind)
}

const SEQUENCES: [u64; 3] = [0, 100, MAX_SEQUENCE];

/// Every operation of a database's table.
pub fn ask_db(table: &DbTable, user_keys: &[Vec<u8>]) -> (Vec<DbAnswer>, Vec<DbLookup>) {
    let mut entries: Vec<DbAnswer> = Vec::new();
    let mut versions = Vec::new();
    let forward = table.iter().take(MAX_ENTRIES);
    entries.extend(forward.map(|e| db_next(Some(e))));
    let backward = table.iter().rev().take(MAX_ENTRIES);
    entries.extend(backward.map(|e| db_next(Some(e))));
    for key in user_keys {
        let newest = table.get(key).map_err(kind);
        assert_eq!(table.at(MAX_SEQUENCE).get(key).map_err(kind), newest);
        for sequence in SEQUENCES {
            versions.push(table.at(sequence).get(key).map_err(kind));
        }
        let key = &key[..];
        entries.push(db_next(table.range(key..).next()));
        entries.push(db_next(table.range(..key).next_back()));
        entries.push(db_next(table.range(key..=key).next()));
        entries.push(db_next(table.range(key..=key).next_back()));
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        entries.push(db_next(table.range(behind).next()));
    }
    (entries, versions)
}

/// Checks the answers of `table` against its stored entries.
pub fn check_db(table: &DbTable, model: &[Entry], user_keys: &[Vec<u8>]) {
    let parse = |(key, value): &Entry| {
        let (user_key, tag) = key.split_last_chunk::<8>().unwrap();
        let tag = u64::from_le_bytes(*tag);
        let version = match tag & 0xff {
            0 => Version::Deleted,
            1 => Version::Value(Bytes::copy_from_slice(value)),
            _ => return None,
        };
        let user_key = Bytes::copy_from_slice(user_key);
        Some(DbEntry::new(user_key, tag >> 8, version))
    };
    let Some(model) = model.iter().map(parse).collect::<Option<Vec<_>>>() else {
        return;
    };
    let forward: Vec<_> = table.iter().collect::<Result<_>>().unwrap();
    assert_eq!(forward, model);
    let backward: Vec<_> = table.iter().rev().collect::<Result<_>>().unwrap();
    assert!(backward.iter().eq(model.iter().rev()));
    for key in user_keys {
        for sequence in SEQUENCES {
            let newest = model
                .iter()
                .find(|e| e.user_key == *key && e.sequence <= sequence);
            let expected = newest.map(|e| e.version.clone());
            assert_eq!(table.at(sequence).get(key).unwrap(), expected);
        }
        let same: Vec<_> = model.iter().filter(|e| e.user_key == *key).collect();
        let all: Vec<_> = table
            .range(&key[..]..=&key[..])
            .collect::<Result<_>>()
            .unwrap();
        assert!(all.iter().eq(same));
        let prefix = &key[..key.len() / 2];
        let begins = model.iter().filter(|e| e.user_key.starts_with(prefix));
        match table.prefix(prefix).collect::<Result<Vec<_>>>() {
            Ok(found) => assert!(found.iter().eq(begins)),
            // Only in bytewise order do such keys lie together.
            Err(error) => assert_eq!(error.kind(), leveltable::ErrorKind::Comparator),
        }
    }
}
