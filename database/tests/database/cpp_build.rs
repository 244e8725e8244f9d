//! C++ LevelDB opens what this crate builds and compacts: same entries, no compaction, and it writes on.
//!
//! Needs a C++ compiler and `libleveldb-dev`: `cargo test -p leveltable-database --test database cpp_build:: -- --ignored`.
//! `LEVELTABLE_LARGE=1` builds databases of up to 116 MB.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use leveltable::{Compression, SortedEntries, WriteOptions};
use leveltable_database::{
    CompactOptions, Database, DatabaseBuildOptions, DatabaseBuilder, FileKind, FileState,
    IndexedDbComparator, compact_into,
};

use crate::common::{Settings, Writer, copy_dir, hex, scratch};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn is_large() -> bool {
    std::env::var_os("LEVELTABLE_LARGE").is_some()
}

/// Values that shrink by half.
fn model(entries: u32) -> Model {
    let mut random = fastrand::Rng::with_seed(entries.into());
    let mut entry = |i: u32| {
        let random: Vec<u8> = (0..50).map(|_| random.u8(..)).collect();
        (format!("user/{i:08}").into_bytes(), random.repeat(2))
    };
    (0..entries).map(&mut entry).collect()
}

/// LevelDB's own account of what it did since it opened the database.
fn log(dir: &Path) -> String {
    fs::read_to_string(dir.join("LOG")).unwrap()
}

/// Opens, reads, writes and compacts the database with C++ LevelDB. Returns the level of its tables.
fn assert_leveldb_takes(dir: &Path, model: &Model, settings: &Settings) -> u32 {
    let level = {
        let files = Database::open_read_only(dir).unwrap().files().unwrap();
        let listed = files.iter().find_map(|file| file.listed.as_ref());
        listed.map_or(0, |(level, _)| *level)
    };
    let names = |kind| {
        let files = fs::read_dir(dir).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| FileKind::of(name).0 == kind).collect();
        names.sort();
        names
    };
    let tables = names(FileKind::Table);
    let scratch = scratch();
    let mut writer = Writer::start();
    writer.open(dir, settings);
    assert!(writer.dump(scratch.path()).into_iter().eq(model.clone()));
    assert_eq!(writer.ask("check"), format!("ok {}", model.len()));
    // The compaction that LevelDB may think of runs in the background.
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(names(FileKind::Table), tables);
    let said = log(dir);
    assert!(
        !said.contains("ompact") && !said.contains("Level-0 table"),
        "{said}"
    );
    assert!(
        !said.contains("orrupt") && !said.contains("gnoring"),
        "{said}"
    );
    let mut model = model.clone();
    for batch in 0..20u32 {
        let keys = (0..50).map(|i| format!("user/{:08}", batch * 37 + i * 11).into_bytes());
        let changes: Vec<_> = keys
            .map(|key| (key, (batch % 3 > 0).then(|| vec![7; 100])))
            .collect();
        writer.batch(&changes);
        for (key, value) in changes {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
    }
    assert!(writer.dump(scratch.path()).into_iter().eq(model.clone()));
    let answer = writer.ask(&format!(
        "compact_between {} {}",
        hex(b"\0"),
        hex(&[0xff; 20])
    ));
    assert!(answer.starts_with("ok"), "{answer}");
    assert!(log(dir).contains("Compact"));
    assert!(writer.dump(scratch.path()).into_iter().eq(model.clone()));
    writer.run("close");
    writer.open(dir, settings);
    assert!(writer.dump(scratch.path()).into_iter().eq(model));
    level
}

#[test]
#[ignore = "needs C++ LevelDB"]
fn leveldb_takes_what_is_built() {
    let sizes: &[u32] = if is_large() {
        &[1, 3_000, 80_000, 1_000_000]
    } else {
        &[1, 3_000, 200_000]
    };
    for &entries in sizes {
        for codec in [Compression::None, Compression::Snappy] {
            for (indexed_db, bloom_bits) in [(false, 10), (true, 0)] {
                let scratch = scratch();
                let dir = scratch.path().join("db");
                let model = model(entries);
                let tables = WriteOptions::leveldb().compression(codec);
                let tables = if bloom_bits == 0 {
                    tables.no_filter()
                } else {
                    tables
                };
                let mut options = DatabaseBuildOptions::new().tables(tables);
                // As it says of bytes that are no keys of IndexedDB, they are in bytewise order.
                if indexed_db {
                    options = options.comparator(IndexedDbComparator);
                }
                let mut builder = DatabaseBuilder::create(&dir, options).unwrap();
                builder.extend(SortedEntries::new(&model)).unwrap();
                let built = builder.finish().unwrap();
                let snappy = codec == Compression::Snappy;
                let settings = Settings {
                    snappy,
                    bloom_bits,
                    indexed_db,
                    ..Settings::default()
                };
                let found = assert_leveldb_takes(&dir, &model, &settings);
                assert_eq!(found, built.level);
                // LevelDB compacts level 1 from 10 MiB on, and each further one from ten times as much.
                let limits = [10u64, 100, 1000].map(|limit| limit << 20);
                let lowest = limits.iter().position(|limit| built.bytes < *limit);
                assert_eq!(
                    Some(found as usize),
                    lowest.map(|level| level + 1),
                    "{} bytes",
                    built.bytes
                );
            }
        }
    }
}

#[test]
#[ignore = "needs C++ LevelDB"]
fn leveldb_takes_what_is_compacted_and_the_bytes_are_its_own() {
    let (keys, writes) = if is_large() {
        (200_000, 600_000)
    } else {
        (20_000, 60_000)
    };
    let scratch = scratch();
    let dir = scratch.path().join("db");
    let settings = Settings::default();
    let mut writer = Writer::start();
    writer.open(&dir, &settings);
    let mut random = fastrand::Rng::with_seed(1);
    let mut model = Model::new();
    for _ in 0..writes / 1000 {
        let mut change = |_| {
            let key = format!("user/{:08}", random.u32(..keys)).into_bytes();
            let value: Vec<u8> = (0..50).map(|_| random.u8(..)).collect();
            (key, (random.u8(..10) > 2).then(|| value.repeat(2)))
        };
        let changes: Vec<_> = (0..1000).map(&mut change).collect();
        writer.batch(&changes);
        for (key, value) in changes {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
    }
    writer.run("close");
    let copy = scratch.path().join("copy");
    copy_dir(&dir, &copy);
    let new = scratch.path().join("new");
    let compacted = compact_into(&dir, &new, CompactOptions::new()).unwrap();
    assert!(!compacted.has_writer);
    writer.open(&copy, &settings);
    let answer = writer.ask(&format!(
        "compact_between {} {}",
        hex(b"\0"),
        hex(&[0xff; 20])
    ));
    assert!(answer.starts_with("ok"), "{answer}");
    writer.run("close");
    let tables = |dir: &Path| -> u64 {
        let files = Database::open_read_only(dir).unwrap().files().unwrap();
        let tables = files
            .iter()
            .filter(|file| file.kind == FileKind::Table && file.state == FileState::Live);
        tables.filter_map(|file| file.bytes).sum()
    };
    let (theirs, ours) = (tables(&copy), tables(&new));
    println!("CompactRange {theirs} bytes, compact_into {ours}");
    assert!(
        ours as f64 <= 1.01 * theirs as f64,
        "{ours} bytes, {theirs} by LevelDB"
    );
    assert_leveldb_takes(&new, &model, &settings);
}

/// Batches raise all of 100 counters at once, so that contents of any moment have one number in all of them.
#[test]
#[ignore = "needs C++ LevelDB"]
fn a_live_database_is_compacted_as_of_one_moment() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    let settings = Settings {
        write_buffer: 64 << 10,
        max_file: 1 << 20,
        ..Settings::default()
    };
    let mut writer = Writer::start();
    writer.open(&dir, &settings);
    let changes = |n: u32| -> Vec<_> {
        let counter = |i: u32| {
            (
                format!("counter/{i:03}").into_bytes(),
                Some(n.to_be_bytes().repeat(50)),
            )
        };
        let fresh = (
            format!("new/{n:08}").into_bytes(),
            Some(n.to_be_bytes().to_vec()),
        );
        (0..100).map(counter).chain([fresh]).collect()
    };
    writer.batch(&changes(0));
    let is_done = AtomicBool::new(false);
    let rounds = if is_large() { 100 } else { 15 };
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut n = 0;
            while !is_done.load(Ordering::Relaxed) {
                n += 1;
                writer.batch(&changes(n));
            }
            n
        });
        let mut before = 0;
        for round in 0..rounds {
            let new = scratch.path().join(format!("new{round}"));
            let compacted = compact_into(&dir, &new, CompactOptions::new()).unwrap();
            assert!(compacted.has_writer);
            let db = Database::open_read_only(&new).unwrap();
            let number = |value: &[u8]| u32::from_be_bytes(*value.first_chunk().unwrap());
            let counters: Vec<_> = db
                .prefix("counter/")
                .map(|entry| number(&entry.unwrap().1))
                .collect();
            assert_eq!(counters, vec![counters[0]; 100]);
            let new = db.prefix("new/").map(|entry| number(&entry.unwrap().1));
            assert!(new.eq(0..=counters[0]));
            assert!(counters[0] >= before);
            before = counters[0];
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(writing.join().unwrap() >= before && before > 0);
    });
    // A writer that does nothing is seen as well.
    let compacted = compact_into(&dir, scratch.path().join("idle"), CompactOptions::new()).unwrap();
    assert_eq!(compacted.has_writer, cfg!(target_os = "linux"));
    drop(writer);
    let compacted =
        compact_into(&dir, scratch.path().join("closed"), CompactOptions::new()).unwrap();
    assert!(!compacted.has_writer);
}
