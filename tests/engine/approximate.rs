//! Sizes of ranges, keys at fractions and last entries: right within a block, and by the index alone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use leveltable::{ErrorKind, OpenOptions, ReadAt, Table, WriteOptions};

use crate::common::{Layout, Random, Reverse, entries, payload};

/// Refuses reads that begin before an offset.
struct Sealed {
    file: Bytes,
    before: AtomicU64,
}

impl ReadAt for Sealed {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if offset < self.before.load(Relaxed) {
            return Err(io::Error::other("a data block was read"));
        }
        self.file.read_at(offset, len)
    }
}

fn key(i: u64) -> String {
    format!("{i:08}")
}

/// Keys with gaps, and values of very different lengths and contents: blocks hold from one entry to hundreds.
fn build(options: &WriteOptions, count: u64) -> Vec<u8> {
    build_in(options, count, false)
}

fn build_in(options: &WriteOptions, count: u64, reverse: bool) -> Vec<u8> {
    let mut random = Random(7);
    let mut builder = options.build(Vec::new());
    for i in 0..count {
        let i = if reverse { count - i } else { i };
        let len = if i % 700 < 20 {
            3_000
        } else {
            random.below(120)
        };
        let value = if i % 3 == 0 {
            vec![7; len]
        } else {
            random.bytes(len)
        };
        builder.add(key(i * 10), value).unwrap();
    }
    builder.finish_into_writer().unwrap().0
}

/// For each entry its key, and how many bytes of the file come before it, of which each entry of a block has the same share.
fn places(file: &[u8]) -> (Vec<(Vec<u8>, f64)>, f64) {
    let layout = Layout::of(file);
    let mut places = Vec::new();
    for block in &layout.data {
        let keys = entries(&payload(file, block));
        let share = block.len() as f64 / keys.len() as f64;
        let place = |(i, (key, _))| (key, block.start as f64 + i as f64 * share);
        places.extend(keys.into_iter().enumerate().map(place));
    }
    let end = layout.data.last().unwrap().end as f64;
    (places, end)
}

fn check(options: WriteOptions, count: u64, reverse: bool) {
    let (mut options, mut open) = (options, OpenOptions::new());
    if reverse {
        (options, open) = (options.comparator(Reverse), open.comparator(Reverse));
    }
    let file = Bytes::from(build_in(&options, count, reverse));
    let (places, end) = places(&file);
    let largest = Layout::of(&file).data.iter().map(|it| it.len()).max();
    let largest = largest.unwrap() as f64;
    let source = Arc::new(Sealed {
        file,
        before: AtomicU64::new(0),
    });
    let table = open.open_source(Arc::clone(&source)).unwrap();
    source.before.store(end as u64, Relaxed);
    assert_eq!(table.approximate_bytes(..).unwrap(), end as u64);
    let mut random = Random(count);
    let mut worst = 0f64;
    let mut pick = || places[random.below(places.len())].clone();
    for _ in 0..2_000 {
        let [a, b] = [pick(), pick()];
        let (lower, upper) = if a.1 <= b.1 { (a, b) } else { (b, a) };
        let found = table.approximate_bytes(&lower.0..&upper.0).unwrap() as f64;
        worst = worst.max((found - (upper.1 - lower.1)).abs());
        assert_eq!(
            table.approximate_bytes(&upper.0..&lower.0).unwrap().min(1),
            0
        );
        let from = table.approximate_bytes(&lower.0..).unwrap() as f64;
        worst = worst.max((from - (end - lower.1)).abs());
    }
    assert!(
        worst <= largest,
        "{worst} of {end}, in blocks of up to {largest}"
    );
    for i in 0..=1_000 {
        let due = end * f64::from(i) / 1_000.0;
        let key = table
            .key_at_fraction(f64::from(i) / 1_000.0)
            .unwrap()
            .unwrap();
        let order = |a: &[u8]| {
            if reverse {
                key[..] <= *a
            } else {
                *a <= key[..]
            }
        };
        let up_to = places.partition_point(|(a, _)| order(a));
        let passed = places.get(up_to).map_or(end, |(_, place)| *place);
        assert!(
            (due.floor()..=due + largest).contains(&passed) || i == 0,
            "{i}: {due} {passed}"
        );
    }
    println!("{count} entries, {end} bytes: off by {worst}, {largest} the largest block");
}

#[test]
fn sizes_are_right_within_a_block_and_no_block_is_read() {
    for count in [1, 2, 60, 3_000] {
        check(WriteOptions::new(), count, false);
        check(WriteOptions::leveldb(), count, false);
    }
    // An index of many pieces.
    check(WriteOptions::new().block_size(256), 40_000, false);
    check(WriteOptions::new().block_size(256), 10_000, true);
    check(WriteOptions::new().block_align(true), 3_000, false);
}

#[test]
fn an_empty_table_has_no_middle_and_no_bytes() {
    let file = WriteOptions::new().build(Vec::new()).finish_into_writer();
    let table = OpenOptions::new().open_source(file.unwrap().0).unwrap();
    assert_eq!(table.key_at_fraction(0.5).unwrap(), None);
    assert_eq!(table.approximate_bytes("a".."b").unwrap(), 0);
    assert_eq!(table.approximate_bytes(..).unwrap(), 0);
}

/// Its index is in some order, so a fraction has a key, and bounds mean nothing.
#[test]
fn an_order_that_is_not_known_has_no_bounds() {
    let file = build_in(&WriteOptions::new().comparator(Reverse), 3_000, true);
    let options = OpenOptions::new().stored_order();
    let table = options.open_source(file).unwrap();
    assert!(table.approximate_bytes(..).unwrap() > 0);
    let error = table.approximate_bytes("1"..).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    assert!(table.key_at_fraction(0.5).unwrap().is_some());
}

#[test]
fn fractions_out_of_range_are_the_ends() {
    let table = build(&WriteOptions::new(), 3_000);
    let table = OpenOptions::new().open_source(table).unwrap();
    let at = |fraction| table.key_at_fraction(fraction).unwrap().unwrap();
    assert_eq!(at(-1.0), at(0.0));
    assert_eq!(at(f64::NAN), at(0.0));
    assert_eq!(at(f64::INFINITY), at(1.0));
    let (last, _) = table.last().unwrap().unwrap();
    assert!(at(1.0) >= last);
}

#[test]
fn all_versions_of_user_keys_are_counted() {
    let mut builder = WriteOptions::new().build_db(Vec::new());
    for i in 0..1_000 {
        for sequence in [9, 5, 3] {
            builder.put(key(i), sequence, [i as u8; 40]).unwrap();
        }
    }
    let file = builder.finish_into_writer().unwrap().0;
    let table = OpenOptions::new().open_db_source(file).unwrap();
    let all = table.approximate_bytes(..).unwrap() as f64;
    for (from, to) in [(0, 500), (250, 300), (900, 1_000), (17, 983)] {
        let some = table.approximate_bytes(key(from)..key(to)).unwrap() as f64;
        let expected = all * (to - from) as f64 / 1_000.0;
        assert!(
            (some - expected).abs() < 4_500.0,
            "{from}..{to}: {some}, {expected}"
        );
        let middle = table.key_at_fraction(to as f64 / 1_000.0).unwrap().unwrap();
        let text = str::from_utf8(&middle).unwrap();
        assert!(
            to == 1_000 || text.parse::<u64>().unwrap().abs_diff(to) < 50,
            "{text}"
        );
    }
}

/// It walked the table. The table's other blocks may be lost.
#[test]
fn the_last_entry_is_found_at_once() {
    let file = Bytes::from(build(&WriteOptions::new(), 3_000));
    let last = Layout::of(&file).data.pop().unwrap().start;
    let source = Arc::new(Sealed {
        file,
        before: AtomicU64::new(0),
    });
    let table = OpenOptions::new().no_cache();
    let table = table.open_source(Arc::clone(&source)).unwrap();
    source.before.store(last as u64, Relaxed);
    let (key_of_last, _) = table.last().unwrap().unwrap();
    let of = |range: leveltable::TableRange| range.last().map(|entry| entry.unwrap().0);
    assert_eq!(of(table.iter()), Some(key_of_last.clone()));
    assert_eq!(of(table.range(&key_of_last[..]..)), Some(key_of_last));
    assert_eq!(of(table.range("a".."a")), None);
    let merged: Vec<&Table> = vec![&table, &table];
    assert!(Table::merge(merged).unwrap().into_iter().last().is_some());
}

#[test]
fn the_last_entry_of_what_is_left_is_found() {
    let table = build(&WriteOptions::new(), 10);
    let table = OpenOptions::new().open_source(table).unwrap();
    for (front, back) in [(0, 0), (3, 2), (9, 0), (0, 9), (5, 5), (11, 0)] {
        let mut range = table.iter();
        (0..front).for_each(|_| drop(range.next()));
        (0..back).for_each(|_| drop(range.next_back()));
        let mut left = range.clone();
        let mut expected = None;
        for entry in left.by_ref() {
            expected = Some(entry.unwrap());
        }
        assert_eq!(range.last().map(Result::unwrap), expected, "{front} {back}");
    }
}
