//! Databases that C++ LevelDB writes in another process, read while it has them open.
//!
//! Needs a C++ compiler and `libleveldb-dev`: `cargo test -p leveltable-database --test database cpp_leveldb:: -- --ignored`.
//! `LEVELTABLE_LARGE=1` writes 200 instead of 40; `LEVELTABLE_SEED` chooses others.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use leveltable::{Comparator, ErrorKind};
use leveltable_database::{Database, DatabaseOptions, FileKind, FileState, VersionState};

use crate::common::{Change, Settings, Writer, copy_dir, scratch, take};

#[derive(Debug)]
struct Reverse;

impl Comparator for Reverse {
    fn name(&self) -> &str {
        "test.Reverse"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.cmp(a)
    }
}

/// The live entries.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn seed() -> u64 {
    std::env::var("LEVELTABLE_SEED").map_or(1, |seed| seed.parse().unwrap())
}

fn settings(random: &mut fastrand::Rng) -> Settings {
    Settings {
        // LevelDB's least.
        write_buffer: 64 << 10,
        max_file: 1 << 20,
        block_size: 1 << random.u32(8..13),
        snappy: random.bool(),
        bloom_bits: [0, 4, 10][random.usize(..3)],
        reuse_logs: random.bool(),
        reverse: random.u8(..8) == 0,
        ..Settings::default()
    }
}

fn key(random: &mut fastrand::Rng, keys: usize) -> Vec<u8> {
    match random.usize(..500) {
        0 => Vec::new(),
        1 => vec![0xff; random.usize(..5)],
        _ => format!("user/{:05}", random.usize(..keys)).into_bytes(),
    }
}

fn batch(random: &mut fastrand::Rng, keys: usize) -> Vec<Change> {
    let len = match random.u8(..10) {
        0 => random.usize(..200),
        _ => random.usize(..10),
    };
    let change = |random: &mut fastrand::Rng| {
        let len = match random.usize(..300) {
            0 => random.usize(..100_000), // several fragments in the log
            _ => random.usize(..100),
        };
        let byte = random.u8(..);
        let value = random.u8(..5) > 0;
        (key(random, keys), value.then(|| vec![byte; len]))
    };
    (0..len).map(|_| change(random)).collect()
}

fn apply(model: &mut Model, changes: &[Change]) {
    for (key, value) in changes {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

fn options(settings: &Settings) -> DatabaseOptions {
    match settings.reverse {
        true => DatabaseOptions::new().comparator(Reverse),
        false => DatabaseOptions::new(),
    }
}

/// Walks both ways and from both ends, ranges, and every key.
fn assert_same(db: &Database, model: &Model, settings: &Settings, random: &mut fastrand::Rng) {
    let in_order = |from: Bound<&[u8]>, to: Bound<&[u8]>| {
        let is_above = |key: &[u8]| match from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
        };
        let is_below = |key: &[u8]| match to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
        };
        let entries = model.iter().map(|(key, value)| (&key[..], &value[..]));
        let mut entries: Vec<_> = entries
            .filter(|(key, _)| is_above(key) && is_below(key))
            .collect();
        if settings.reverse {
            entries.reverse();
        }
        entries
    };
    let all = in_order(Bound::Unbounded, Bound::Unbounded);
    let walked: Vec<_> = db.iter().collect::<Result<_, _>>().unwrap();
    assert!(
        walked
            .iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .eq(all.iter().copied())
    );
    let back: Vec<_> = db.iter().rev().collect::<Result<_, _>>().unwrap();
    assert!(
        back.iter()
            .rev()
            .map(|(key, value)| (&key[..], &value[..]))
            .eq(all.iter().copied())
    );
    for _ in 0..10 {
        let ends = [key(random, 3000), key(random, 3000)];
        let [from, to] = &ends;
        let bound = |random: &mut fastrand::Rng, key| match random.u8(..5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        let (from, to) = (bound(random, &from[..]), bound(random, &to[..]));
        let expected = if settings.reverse {
            in_order(to, from)
        } else {
            in_order(from, to)
        };
        let mut range = db.range((from, to));
        let (mut front, mut ends) = (Vec::new(), Vec::new());
        // From both ends in turn, to keep and lent.
        loop {
            let way = random.u8(..3);
            let list = if way < 2 { &mut front } else { &mut ends };
            match take(&mut range, way) {
                Some(entry) => list.push(entry.unwrap()),
                None => break,
            }
        }
        assert!(range.next().is_none() && range.next_back().is_none());
        assert!(!range.advance().unwrap() && range.key().is_empty() && range.value().is_empty());
        front.extend(ends.into_iter().rev());
        assert!(
            front
                .iter()
                .map(|(key, value)| (&key[..], &value[..]))
                .eq(expected),
            "{from:?} {to:?}"
        );
    }
    let mut keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    keys.extend((0..200).map(|_| key(random, 6000)));
    keys.push(Vec::new());
    for key in &keys {
        let value = db.get(key).unwrap();
        assert_eq!(
            value.as_deref(),
            model.get(key).map(|value| &value[..]),
            "{key:?}"
        );
    }
    random.shuffle(&mut keys);
    let values = db.get_many(&keys).unwrap();
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(
            value.as_deref(),
            model.get(key).map(|value| &value[..]),
            "{key:?}"
        );
    }
    if !settings.reverse {
        let prefix = b"user/00";
        let expected = model.iter().filter(|(key, _)| key.starts_with(prefix));
        let found: Vec<_> = db.prefix(prefix).collect::<Result<_, _>>().unwrap();
        assert!(
            found
                .iter()
                .map(|(key, value)| (&key[..], &value[..]))
                .eq(expected.map(|(key, value)| (&key[..], &value[..])))
        );
    }
}

/// Writes one database in a few sittings, and reads it in between, while LevelDB has it open.
fn write_and_read(scratch: &Path, number: u64) {
    let mut random = fastrand::Rng::with_seed(seed() * 100_000 + number);
    let settings = settings(&mut random);
    let dir = scratch.join(number.to_string());
    println!("{number}: {settings:?}");
    let mut model = Model::new();
    let mut writer = Writer::start();
    writer.open(&dir, &settings);
    let mut early: Option<Database> = None;
    for sitting in 0..1 + random.usize(..4) {
        for _ in 0..random.usize(..400) {
            let changes = batch(&mut random, 3000);
            apply(&mut model, &changes);
            writer.batch(&changes);
            match random.usize(..300) {
                0 => writer.run("compact"),
                1..10 => writer.run("snapshot"),
                10..20 => writer.run("release"),
                _ => {}
            }
        }
        let db = options(&settings).open_read_only(&dir).unwrap();
        // Compactions go on in the background: only what is open is sure to stay readable.
        db.pin().unwrap();
        assert_same(&db, &model, &settings, &mut random);
        if let Some(early) = early.replace(db) {
            early.refresh().unwrap();
            early.pin().unwrap();
            assert_same(&early, &model, &settings, &mut random);
        }
        if sitting % 2 == 1 {
            // Dies, and comes back.
            std::mem::replace(&mut writer, Writer::start()).kill();
            writer.open(&dir, &settings);
        }
    }
    writer.run("close");
    let db = options(&settings).open_read_only(&dir).unwrap();
    assert_same(&db, &model, &settings, &mut random);
    assert!(db.recovery().gaps.is_empty(), "{:?}", db.recovery());
    for file in db.files().unwrap() {
        // A compaction that closing interrupts leaves a part of a table, an orphan.
        assert_ne!(file.state, FileState::Missing, "{file:?}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
#[ignore = "needs C++ LevelDB"]
fn databases_of_cpp_leveldb_hold_what_was_written() {
    let scratch = scratch();
    let each = match std::env::var_os("LEVELTABLE_LARGE") {
        None => 20,
        Some(_) => 100,
    };
    std::thread::scope(|scope| {
        for half in 0..2 {
            let scratch = scratch.path();
            scope.spawn(move || (0..each).for_each(|i| write_and_read(scratch, 2 * i + half)));
        }
    });
}

#[test]
#[ignore = "needs C++ LevelDB"]
fn a_repaired_database_holds_the_newest_versions() {
    for number in 0..10 {
        let scratch = scratch();
        let dir = scratch.path().join("db");
        let mut random = fastrand::Rng::with_seed(seed() * 1000 + number);
        let settings = Settings {
            reverse: false,
            ..settings(&mut random)
        };
        let mut model = Model::new();
        let mut writer = Writer::start();
        writer.open(&dir, &settings);
        for _ in 0..600 {
            let changes = batch(&mut random, 3000);
            apply(&mut model, &changes);
            writer.batch(&changes);
        }
        writer.run("close");
        std::fs::remove_file(dir.join("CURRENT")).unwrap();
        // What the lost MANIFEST listed is what is there.
        let error = Database::open_read_only(&dir).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotADatabase);
        assert!(error.to_string().contains("lost CURRENT"), "{error}");
        // A compaction that closing interrupts leaves a part of a table, which nothing lists.
        let lenient = DatabaseOptions::new().skip_damaged(true);
        let db = lenient.open_without_manifest(&dir).unwrap();
        assert!(
            db.recovery().unreadable_tables.len() <= 1,
            "{:?}",
            db.recovery()
        );
        assert!(db.recovery().without_manifest);
        assert_same(&db, &model, &settings, &mut random);
        writer.run(&format!("repair {}", dir.display()));
        let db = Database::open_read_only(&dir).unwrap();
        assert_same(&db, &model, &settings, &mut random);
    }
}

/// Logs cut at every byte: what is left is what LevelDB finds when it opens a copy.
#[test]
#[ignore = "needs C++ LevelDB"]
fn a_log_that_is_cut_holds_what_leveldb_finds() {
    let scratch = scratch();
    let mut writer = Writer::start();
    for number in 0..3 {
        let dir = scratch.path().join("db");
        let mut random = fastrand::Rng::with_seed(seed() * 1000 + number);
        writer.open(&dir, &Settings::default());
        let log = dir.join("000003.log");
        while std::fs::metadata(&log).unwrap().len() < 8 << 10 {
            let changes: Vec<Change> = (0..random.usize(1..20))
                .map(|_| {
                    let value = vec![random.u8(..); random.usize(..60)];
                    (key(&mut random, 50), (random.u8(..4) > 0).then_some(value))
                })
                .collect();
            writer.batch(&changes);
        }
        writer.run("close");
        let whole = std::fs::read(&log).unwrap();
        for len in 0..=whole.len() {
            std::fs::write(&log, &whole[..len]).unwrap();
            let db = Database::open_read_only(&dir).unwrap();
            let found: Vec<_> = db.iter().collect::<Result<_, _>>().unwrap();
            let copy = scratch.path().join("copy");
            copy_dir(&dir, &copy);
            writer.open(&copy, &Settings::default());
            let expected = writer.dump(scratch.path());
            writer.run("close");
            assert!(
                found
                    .iter()
                    .map(|(k, v)| (&k[..], &v[..]))
                    .eq(expected.iter().map(|(k, v)| (&k[..], &v[..]))),
                "{len}"
            );
            let read = db.recovery().logs[0].bytes;
            assert_eq!(read, len as u64);
            std::fs::remove_dir_all(copy).unwrap();
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
#[ignore = "needs C++ LevelDB"]
fn history_and_files_say_where_versions_are() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    let mut writer = Writer::start();
    let settings = Settings::default();
    let put = |value: &str| vec![(b"k".to_vec(), Some(value.as_bytes().to_vec()))];
    writer.open(&dir, &settings);
    writer.batch(&put("one"));
    writer.run("compact");
    writer.batch(&[(b"k".to_vec(), None)]);
    writer.batch(&put("three"));
    let db = Database::open_read_only(&dir).unwrap();
    assert_eq!(db.last_sequence(), 3);
    let history = db.history("k").unwrap();
    let states: Vec<_> = history
        .iter()
        .map(|entry| (entry.sequence, entry.state))
        .collect();
    let expected = [
        (3, VersionState::Live),
        (2, VersionState::Overwritten(3)),
        (1, VersionState::Deleted(2)),
    ];
    assert_eq!(states, expected);
    assert!(history[0].file.ends_with(".log") && history[1].file == history[0].file);
    // The deletion's record: header, sequence and count, type, length, key.
    assert_eq!([history[1].offset, history[0].offset], [0, 7 + 12 + 3]);
    assert!(history[2].file.ends_with(".ldb"));
    assert_eq!(history[2].offset, 0);
    assert!(db.history("absent").unwrap().is_empty());

    // A table that nothing lists, and a log that is in tables.
    let table = dir.join(&history[2].file);
    std::fs::copy(&table, dir.join("000900.ldb")).unwrap();
    std::fs::copy(dir.join(&history[0].file), dir.join("000001.log")).unwrap();
    let files = db.files().unwrap();
    let state = |name: &str| files.iter().find(|file| file.name == name).unwrap().state;
    assert_eq!(state("000900.ldb"), FileState::Orphan);
    assert_eq!(state("000001.log"), FileState::Obsolete);
    assert_eq!(state("LOCK"), FileState::Aside);
    assert_eq!(state("CURRENT"), FileState::Live);
    let unlisted = db.history("k").unwrap();
    assert_eq!(unlisted.len(), 6);
    let all: Vec<_> = db.history_range(..).unwrap().map(Result::unwrap).collect();
    assert_eq!(all, unlisted);
    assert!(
        unlisted[3..]
            .iter()
            .all(|entry| entry.state == VersionState::FileNotListed)
    );
    std::fs::remove_file(&table).unwrap();
    let files = db.files().unwrap();
    let missing: Vec<_> = files
        .iter()
        .filter(|file| file.state == FileState::Missing)
        .collect();
    assert_eq!(missing.len(), 1);
    assert_eq!((missing[0].kind, missing[0].bytes), (FileKind::Table, None));
}
