//! Sizes of ranges and keys at fractions of a database.

use std::fs;
use std::path::Path;

use crate::common::{Log, batch, edit, internal, listing, scratch, write_database};
use leveltable::WriteOptions;
use leveltable_database::{Database, TableMetadata};

const KEYS: u64 = 8_000;

fn key(i: u64) -> String {
    format!("{i:08}")
}

/// A table of every `step`th key.
fn write_table(dir: &Path, number: u64, keys: std::ops::Range<u64>, step: u64) -> TableMetadata {
    let path = dir.join(format!("{number:06}.ldb"));
    let mut builder = WriteOptions::new().create_db(&path).unwrap();
    for i in keys.clone().step_by(step as usize) {
        let value: Vec<u8> = (0..100).map(|j| ((i * j * number) >> 3) as u8).collect();
        builder.put(key(i), number, value).unwrap();
    }
    builder.finish().unwrap();
    let last = keys.clone().step_by(step as usize).last().unwrap();
    TableMetadata {
        number,
        size: fs::metadata(path).unwrap().len(),
        smallest: internal(key(keys.start).as_bytes(), number),
        largest: internal(key(last).as_bytes(), number),
    }
}

/// Tables of two levels, one of level 0 across all of them, and a log.
fn write(dir: &Path) -> u64 {
    let mut manifest = Log::default();
    manifest.add(&edit(3, &[]));
    let mut bytes = 0;
    let quarters = (0..4).map(|i| (2, 10 + i, i * KEYS / 4..(i + 1) * KEYS / 4, 1));
    let halves = (0..2).map(|i| (1, 20 + i, i * KEYS / 2..(i + 1) * KEYS / 2, 3));
    for (level, number, keys, step) in quarters.chain(halves).chain([(0, 30, 0..KEYS, 2)]) {
        let table = write_table(dir, number, keys, step);
        bytes += table.size;
        manifest.add(&listing(level, &table));
    }
    let mut log = Log::default();
    log.add(&batch(40, &[(key(17).as_bytes(), Some(&b"new"[..]))]));
    write_database(dir, &manifest.0, &log.0);
    bytes
}

#[test]
fn sizes_and_keys_are_about_right() {
    let dir = scratch();
    let bytes = write(dir.path());
    let db = Database::open_read_only(&dir).unwrap();
    let all = db.approximate_bytes(..).unwrap();
    assert!((bytes..bytes + 5_000).contains(&all), "{all} {bytes}");
    for (from, to) in [
        (0, KEYS),
        (0, 2_000),
        (1_999, 2_001),
        (500, 7_500),
        (4_000, 4_100),
    ] {
        let found = db.approximate_bytes(key(from)..key(to)).unwrap() as f64;
        let expected = all as f64 * (to - from) as f64 / KEYS as f64;
        // Two blocks of each of four tables, and the filters of those that lie within.
        let off = (found - expected).abs();
        assert!(
            off < 8.0 * 4_096.0 + 0.03 * all as f64,
            "{from}..{to}: {found} {expected}"
        );
    }
    assert_eq!(db.approximate_bytes("b".."a").unwrap(), 0);
    for i in 0..=100 {
        let found = db.key_at_fraction(f64::from(i) / 100.0).unwrap().unwrap();
        let found: u64 = str::from_utf8(&found)
            .unwrap()
            .trim_end_matches(':')
            .parse()
            .unwrap();
        let expected = KEYS * i as u64 / 100;
        assert!(
            found.abs_diff(expected) < KEYS / 20,
            "{i}: {found} {expected}"
        );
    }
}

#[test]
fn an_empty_database_has_no_middle() {
    let dir = scratch();
    let mut manifest = Log::default();
    manifest.add(&edit(3, &[]));
    write_database(dir.path(), &manifest.0, &[]);
    let db = Database::open_read_only(&dir).unwrap();
    assert_eq!(db.key_at_fraction(0.5).unwrap(), None);
    assert_eq!(db.approximate_bytes(..).unwrap(), 0);
}

/// It walked the whole database.
#[test]
fn the_last_entry_is_found_at_once_and_pages_follow_each_other() {
    let dir = scratch();
    write(dir.path());
    let db = Database::open_read_only(&dir).unwrap();
    let (last, _) = db.iter().last().unwrap().unwrap();
    assert_eq!(last, key(KEYS - 1));
    let (mut start, mut seen) = (std::ops::Bound::Unbounded, 0);
    loop {
        let page = db.prefix_from("000012", start.clone()).take(7);
        let page: Vec<_> = page.map(|entry| entry.unwrap().0).collect();
        let Some(last) = page.last() else { break };
        seen += page.len();
        start = std::ops::Bound::Excluded(last.clone());
    }
    assert_eq!(seen, 100);
}
