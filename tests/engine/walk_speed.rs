//! What walks cost beside each other. `cargo test --release --test engine walk_speed -- --ignored --nocapture` prints the ratios.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use leveltable::{Compression, OpenOptions, SortedMap, Table, TableRange, WriteOptions};

const ENTRIES: usize = 100_000;

/// Every ninth key from `first` on.
fn entries(first: usize) -> impl Iterator<Item = (Bytes, Bytes)> {
    let entry = move |i: usize| {
        let key = format!("{:016}", 9 * i + first);
        (key.into(), Bytes::from(vec![b'v'; 100]))
    };
    (0..ENTRIES).map(entry)
}

fn table(first: usize) -> Table {
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = options.build(Vec::new());
    for (key, value) in entries(first) {
        builder.add(&key, &value).unwrap();
    }
    let file = builder.finish_into_writer().unwrap().0;
    OpenOptions::new().open_source(file).unwrap()
}

/// The median of the ratios of two works that take turns.
fn ratio(mut this: impl FnMut() -> Duration, mut other: impl FnMut() -> Duration) -> f64 {
    let mut ratios: Vec<f64> = Vec::new();
    for _ in 0..15 {
        ratios.push(this().as_secs_f64() / other().as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

#[test]
#[ignore = "measures time"]
fn a_map_among_tables_costs_what_a_table_does() {
    let tables: Vec<Table> = (0..9).map(table).collect();
    let map: Arc<BTreeMap<Bytes, Bytes>> = Arc::new(entries(8).collect());
    let of_tables = || Table::merge(&tables).unwrap();
    let with_map = || {
        let map = TableRange::of(SortedMap::new(map.clone()), ..);
        let tables = tables[..8].iter().map(Table::iter);
        Table::merge(tables.chain([map])).unwrap()
    };
    let walk = |mut merged: leveltable::merge::MergeCursor| {
        let mut entries = 0;
        while merged.next().unwrap() {
            entries += usize::from(!black_box(merged.value()).is_empty());
        }
        assert_eq!(entries, 9 * ENTRIES);
    };
    let per_entry = ratio(|| time(|| walk(with_map())), || time(|| walk(of_tables())));
    let first = |merge: &dyn Fn() -> leveltable::merge::MergeCursor| {
        time(|| {
            for i in 0..2000 {
                let mut merged = merge();
                assert!(merged.seek(format!("{:016}", i * 400)).unwrap());
            }
        })
    };
    let first = ratio(|| first(&with_map), || first(&of_tables));
    println!("a map with 8 tables to 9 tables: first entry {first:.3}, per entry {per_entry:.3}");
    assert!(first <= 1.1 && per_entry <= 1.1);
}

#[test]
#[ignore = "measures time"]
fn a_lent_range_costs_what_a_cursor_does_and_an_owned_one_its_copies() {
    let table = table(0);
    let lent = || {
        let mut range = table.iter();
        time(|| {
            while range.advance().unwrap() {
                black_box((range.key(), range.value()));
            }
        })
    };
    let by_cursor = || {
        let mut cursor = table.cursor();
        time(|| {
            while cursor.next().unwrap() {
                black_box((cursor.key(), cursor.value()));
            }
        })
    };
    let owned = || {
        let range = table.iter();
        time(|| range.for_each(|entry| drop(black_box(entry.unwrap()))))
    };
    let (block, key) = (Bytes::from(vec![1; 4096]), [7; 16]);
    let copies = || {
        time(|| {
            for i in 0..ENTRIES {
                let from = i % 3900;
                drop(black_box(block.slice(from..from + 100)));
                drop(black_box(Bytes::copy_from_slice(black_box(&key))));
            }
        })
    };
    let to_cursor = ratio(lent, by_cursor);
    let to_sum = ratio(owned, || lent() + copies());
    println!("lent to cursor {to_cursor:.3}, owned to lent and copies {to_sum:.3}");
    assert!(to_cursor <= 1.1 && to_sum <= 1.15);
}
