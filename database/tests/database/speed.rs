//! Scans and lookups beside C++ LevelDB, of copies of one database, in turns. Files are warm, and both have LevelDB's default cache of 8 MiB.
//!
//! `cargo test --release -p leveltable-database --test database speed:: -- --ignored --nocapture` prints them.

use std::time::Instant;

use crate::common::{Change, Settings, Writer, copy_dir};
use leveltable::{BlockCache, OpenOptions};
use leveltable_database::{Database, DatabaseOptions};

const ENTRIES: u64 = 300_000;
/// Has no factor in common with the number of entries.
const STRIDE: u64 = 104_729;
const ROUNDS: usize = 7;

fn key(number: u64) -> Vec<u8> {
    format!("user/{number:08}").into_bytes()
}

/// Writes the entries in no order, with values of 100 bytes of which half can be compressed.
fn write(writer: &mut Writer) {
    let mut random = fastrand::Rng::with_seed(1);
    let entry = |number: u64, random: &mut fastrand::Rng| -> Change {
        let value: Vec<u8> = (0..50).map(|_| random.u8(..)).chain([b'x'; 50]).collect();
        (key(number * STRIDE % ENTRIES), Some(value))
    };
    for first in (0..ENTRIES).step_by(100) {
        let changes: Vec<Change> = (first..first + 100)
            .map(|i| entry(i, &mut random))
            .collect();
        writer.batch(&changes);
    }
}

/// What is measured: its name, C++ LevelDB's command, what we do, and how many times as fast it must be.
type Work<'a> = (&'a str, &'a str, fn(&Database) -> usize, f64);

/// Nanoseconds, and bytes of what was found.
type Took = (u64, u64);

fn time(work: impl FnOnce() -> usize) -> Took {
    let begin = Instant::now();
    let bytes = work();
    (begin.elapsed().as_nanos() as u64, bytes as u64)
}

fn scan(db: &Database) -> usize {
    let (mut all, mut bytes) = (db.iter(), 0);
    while all.advance().unwrap() {
        bytes += all.key().len() + all.value().len();
    }
    bytes
}

fn collect(db: &Database) -> usize {
    let entries = db.iter().map(Result::unwrap);
    entries.map(|(key, value)| key.len() + value.len()).sum()
}

/// Looks up the keys that C++ LevelDB does, in writer.cc.
fn get(db: &Database) -> usize {
    let mut random = 1u32;
    let keys = (0..ENTRIES).map(|_| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        key(u64::from(random) % ENTRIES)
    });
    keys.map(|key| db.get(key).unwrap().unwrap().len()).sum()
}

/// How long C++ LevelDB takes for a command.
fn theirs(writer: &mut Writer, command: &str) -> Took {
    let answer = writer.ask(command);
    let mut words = answer.split(' ').skip(1).map(|word| word.parse().unwrap());
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
#[ignore = "needs C++ LevelDB, a release build and a quiet machine"]
fn scans_are_as_fast_as_in_cpp_leveldb_and_lookups_nearly() {
    for (snappy, is_compacted) in [(false, true), (false, false), (true, true), (true, false)] {
        // Not in memory: reads of such files take longer than those of files in the page cache.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (theirs_in, ours_in) = (dir.path().join("theirs"), dir.path().join("ours"));
        let settings = Settings {
            snappy,
            ..Settings::default()
        };
        let mut writer = Writer::start();
        writer.open(&theirs_in, &settings);
        write(&mut writer);
        if is_compacted {
            writer.run("compact");
        }
        // What is compacted when the database is opened, and by lookups, is done before it is copied.
        writer.run("close");
        writer.open(&theirs_in, &settings);
        let get_command = format!("get {ENTRIES}");
        theirs(&mut writer, &get_command);
        writer.run("close");
        copy_dir(&theirs_in, &ours_in);
        writer.open(&theirs_in, &settings);
        // Neither caches uncompressed blocks of files, unless, for ours, a cache is given.
        let tables = match snappy {
            true => OpenOptions::new().cache(BlockCache::new(8 << 20)),
            false => OpenOptions::new(),
        };
        let options = DatabaseOptions::new().tables(tables);
        let db = options.open_read_only(&ours_in).unwrap();
        let works: [Work<'_>; 3] = [
            ("scan, lent", "scan", scan, 1.0),
            ("scan, kept", "scan", collect, 0.0),
            ("get", &get_command, get, 0.8),
        ];
        for (name, command, work, least) in works {
            let (mut ours_took, mut theirs_took) = (u64::MAX, u64::MAX);
            for _ in 0..ROUNDS {
                let (there, here) = (theirs(&mut writer, command), time(|| work(&db)));
                assert_eq!(there.1, here.1, "{name}");
                ours_took = ours_took.min(here.0);
                theirs_took = theirs_took.min(there.0);
            }
            let [ours, theirs] = [ours_took, theirs_took].map(|ns| ns as f64 / ENTRIES as f64);
            println!(
                "snappy {snappy}, compacted {is_compacted}, {name}: {ours:.0} ns, C++ {theirs:.0}: {:.2} times as fast",
                theirs / ours
            );
            assert!(theirs / ours >= least, "{name}");
        }
    }
}
