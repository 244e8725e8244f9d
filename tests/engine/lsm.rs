//! The engine of `examples/lsm.rs` against a model: in one process, and killed again and again.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use leveltable::DbTable;
use leveltable::db::{DbEntry, Version};

use example::{Lsm, NOW, Snapshot};

#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/lsm.rs"]
mod example;

type Change = (Vec<u8>, Option<Vec<u8>>);

/// Oldest first; `None` where the key was deleted.
type Versions = Vec<(u64, Option<Vec<u8>>)>;

/// The versions of each key, and when each was written: at a number of batches.
#[derive(Default)]
struct Model {
    versions: BTreeMap<Vec<u8>, Versions>,
    batches: u64,
}

impl Model {
    fn write(&mut self, changes: &[Change]) {
        self.batches += 1;
        for (key, value) in changes {
            let versions = self.versions.entry(key.clone()).or_default();
            versions.push((self.batches, value.clone()));
        }
    }

    fn seen(versions: &[(u64, Option<Vec<u8>>)], at: u64) -> Option<&[u8]> {
        let (_, value) = versions.iter().rev().find(|(batch, _)| *batch <= at)?;
        value.as_deref()
    }

    fn get(&self, key: &[u8], at: u64) -> Option<&[u8]> {
        Model::seen(self.versions.get(key)?, at)
    }

    fn range(&self, keys: Keys<'_>, at: u64) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        let versions = self.versions.range::<[u8], _>(keys);
        versions.filter_map(move |(key, versions)| Some((&key[..], Model::seen(versions, at)?)))
    }
}

type Keys<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Key and value, to compare with the model's.
fn pair(entry: &DbEntry) -> (&[u8], &[u8]) {
    match &entry.version {
        Version::Value(value) => (&entry.user_key, value),
        _ => panic!("a deletion is shown: {entry:?}"),
    }
}

fn key(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..1000) {
        0 => Vec::new(),
        i => format!("{:04}", i * random.u32(1..10)).into_bytes(),
    }
}

fn changes(random: &mut fastrand::Rng, most: usize) -> Vec<Change> {
    let mut change = || {
        let key = key(random);
        let len = random.usize(..60);
        let value = random.u8(..3) > 0;
        (key, value.then(|| vec![random.u8(..); len]))
    };
    (0..most).map(|_| change()).collect()
}

/// Everything in `db`, both ways, is what the model sees.
fn assert_same(db: &Lsm, model: &Model, keys: Keys<'_>, at: Option<&(u64, Snapshot)>) {
    let batch = at.map_or(u64::MAX, |(batch, _)| *batch);
    let snapshot = at.map_or(NOW, |(_, snapshot)| **snapshot);
    let forward: Result<Vec<_>, _> = db.range(keys, snapshot).unwrap().collect();
    assert!(
        forward
            .unwrap()
            .iter()
            .map(pair)
            .eq(model.range(keys, batch))
    );
    let back: Result<Vec<_>, _> = db.range(keys, snapshot).unwrap().rev().collect();
    assert!(
        back.unwrap()
            .iter()
            .map(pair)
            .eq(model.range(keys, batch).rev())
    );
}

const ALL: Keys<'static> = (Bound::Unbounded, Bound::Unbounded);

/// Counts changes, lookups and scans. Snapshots, flushes, compactions and reopenings are rarer, and come on top.
fn operate(operations: usize, most_changes: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let open = || Lsm::open(directory.path(), 40_000, 3).unwrap();
    let (mut db, mut model) = (open(), Model::default());
    let mut snapshots: Vec<(u64, Snapshot)> = Vec::new();
    let mut done = 0;
    let mut rare = [0; 5];
    while done < operations {
        let any = |random: &mut fastrand::Rng| match random.usize(..=snapshots.len()) {
            0 => None,
            i => Some(i - 1),
        };
        match random.u32(..1000) {
            0..300 => {
                let most = random.usize(..2 * most_changes);
                let changes = changes(&mut random, most);
                db.write(&changes).unwrap();
                model.write(&changes);
                done += changes.len();
            }
            300..600 => {
                for _ in 0..most_changes {
                    let key = key(&mut random);
                    let at = any(&mut random).map(|i| &snapshots[i]);
                    let found = db
                        .get(&key, at.map_or(NOW, |(_, snapshot)| **snapshot))
                        .unwrap();
                    let batch = at.map_or(u64::MAX, |(batch, _)| *batch);
                    assert_eq!(found.as_deref(), model.get(&key, batch));
                    done += 1;
                }
            }
            600..900 => {
                let mut ends = [key(&mut random), key(&mut random)];
                ends.sort();
                let [from, to] = &ends;
                let from = match random.u32(..20) {
                    0 => Bound::Unbounded,
                    1..10 => Bound::Included(&from[..]),
                    _ => Bound::Excluded(&from[..]),
                };
                let to = match random.u32(..20) {
                    0 => Bound::Unbounded,
                    _ => Bound::Included(&to[..]),
                };
                let at = any(&mut random).map(|i| &snapshots[i]);
                assert_same(&db, &model, (from, to), at);
                done += 2;
            }
            900..930 => {
                snapshots.push((model.batches, db.snapshot()));
                rare[0] += 1;
            }
            930..960 => {
                if let Some(i) = any(&mut random) {
                    snapshots.swap_remove(i);
                    rare[1] += 1;
                }
            }
            960..980 => {
                db.flush().unwrap();
                rare[2] += 1;
            }
            980..990 => {
                db.compact().unwrap();
                rare[3] += 1;
            }
            _ => {
                snapshots.clear();
                drop(db);
                db = open();
                assert_same(&db, &model, ALL, None);
                rare[4] += 1;
            }
        }
    }
    println!(
        "{done} operations; snapshots taken and dropped, flushes, compactions, reopenings: {rare:?}"
    );
    assert!(rare.iter().all(|&times| times > 0), "{rare:?}");
    // Compactions leave out what nobody sees: the last one holds each live key once, and no deletion.
    snapshots.clear();
    db.compact().unwrap();
    let entries: u64 = tables(directory.path())
        .iter()
        .filter_map(|table| table.as_table().entries())
        .sum();
    assert_eq!(entries, model.range(ALL, u64::MAX).count() as u64);
    assert_same(&db, &model, ALL, None);
}

fn tables(directory: &Path) -> Vec<DbTable> {
    let paths = directory
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let tables = paths.filter(|path| path.extension().is_some_and(|e| e == "ldb"));
    tables.map(|path| DbTable::open(path).unwrap()).collect()
}

#[test]
fn the_engine_is_like_its_model() {
    operate(15_000, 15, 1);
}

#[test]
#[ignore = "100,000 operations take some seconds; in a release build, a million"]
fn the_engine_is_like_its_model_for_many_operations() {
    let operations = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    operate(operations, 100, 2);
}

// ---- Kills ----------------------------------------------------------------------------------

const DIRECTORY: &str = "LEVELTABLE_LSM_DIRECTORY";
const COUNT: &[u8] = b"number of batches";

fn open_to_kill(directory: &Path) -> Lsm {
    Lsm::open(directory, 2000, 2).unwrap()
}

/// Batch number `number`, which says its number in the database.
fn batch(number: u64) -> Vec<Change> {
    let mut random = fastrand::Rng::with_seed(number);
    let most = random.usize(..30);
    let mut changes = changes(&mut random, most);
    changes.push((COUNT.to_vec(), Some(number.to_string().into_bytes())));
    changes
}

fn count(db: &Lsm) -> u64 {
    let count = db.get(COUNT, NOW).unwrap();
    count.map_or(0, |count| str::from_utf8(&count).unwrap().parse().unwrap())
}

/// The work of a child process, which writes until it is killed. Without a directory, as in an ordinary run, does nothing.
#[test]
fn write_until_killed() {
    let Some(directory) = env::var_os(DIRECTORY) else {
        return;
    };
    let mut db = open_to_kill(Path::new(&directory));
    for number in count(&db) + 1.. {
        db.write(&batch(number)).unwrap();
        println!("\nwritten {number}");
        match number % 50 {
            0 => db.compact().unwrap(),
            25 => db.flush().unwrap(),
            _ => {}
        }
    }
}

fn kill(times: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    for _ in 0..times {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "lsm::write_until_killed",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(random.u64(5..200)));
        child.kill().unwrap(); // SIGKILL
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let written = lines.filter_map(|line| line.unwrap().strip_prefix("written ")?.parse().ok());
        let acknowledged = written.last().unwrap_or(model.batches);
        child.wait().unwrap();

        let db = open_to_kill(directory.path());
        let count = count(&db);
        // The last batch may have been written, and the process killed before it said so.
        assert!((acknowledged..=acknowledged + 1).contains(&count));
        while model.batches < count {
            model.write(&batch(model.batches + 1));
        }
        assert_same(&db, &model, ALL, None);
        let named = directory.path().read_dir().unwrap().count();
        assert!(named < 30, "{named} files: obsolete ones are not removed");
    }
    println!("{times} kills, {} batches", model.batches);
    assert!(model.batches > times as u64);
}

#[test]
fn what_was_acknowledged_outlives_a_kill() {
    kill(3, 1);
}

#[test]
#[ignore = "a hundred kills take half a minute"]
fn what_was_acknowledged_outlives_a_hundred_kills() {
    kill(100, 2);
}

/// Of a log that is cut anywhere, or has a wrong byte anywhere, what is whole before that is there, and writing goes on.
#[test]
fn a_torn_log_keeps_its_whole_records() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = open_to_kill(directory.path());
    let mut ends = vec![0];
    let log = |directory: &Path| {
        let mut paths = directory
            .read_dir()
            .unwrap()
            .map(|file| file.unwrap().path());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|e| e == "log");
        paths.find(is_log).unwrap()
    };
    for number in 1..=3u64 {
        let changes = [
            (COUNT, Some(number.to_string())),
            (b"long".as_slice(), Some("v".repeat(99))),
        ];
        db.write(&changes).unwrap();
        ends.push(fs::metadata(log(directory.path())).unwrap().len() as usize);
    }
    drop(db);
    let manifest = fs::read(directory.path().join("MANIFEST")).unwrap();
    let whole = fs::read(log(directory.path())).unwrap();
    let torn = tempfile::tempdir().unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut wrong = whole.clone();
        wrong[at] ^= 1;
        for bytes in [&whole[..at], &wrong] {
            let name = log(directory.path());
            fs::write(torn.path().join("MANIFEST"), &manifest).unwrap();
            fs::write(torn.path().join(name.file_name().unwrap()), bytes).unwrap();
            let mut db = open_to_kill(torn.path());
            let before = ends.iter().filter(|&&end| end <= at).count() as u64 - 1;
            let records = count(&db);
            // Some bytes of a footer carry nothing: with one of them wrong, all is as it was.
            let is_harmless = bytes.len() == whole.len() && records == 3;
            assert!(records == before || is_harmless, "{records} at byte {at}");
            let long = db.get(b"long", NOW).unwrap();
            assert_eq!(long.is_some(), records > 0);
            assert!(long.is_none_or(|long| *long == *"v".repeat(99).as_bytes()));
            db.write(&[("more", Some("value"))]).unwrap();
            drop(db);
            let db = open_to_kill(torn.path());
            assert_eq!(count(&db), records);
            assert_eq!(
                db.get(b"more", NOW).unwrap().as_deref(),
                Some(&b"value"[..])
            );
        }
    }
}

// ---- How long the engine is -----------------------------------------------------------------

/// Its lines of code: all that are neither blank nor only a comment. Beside it are its memtable, `examples/lsm/memtable.rs`, and what it is
/// shown with, `examples/lsm/demo.rs`.
#[test]
fn the_engine_has_at_most_200_lines_of_code() {
    let source = include_str!("../../examples/lsm.rs");
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    let lines = source.lines().map(str::trim).filter(is_code).count();
    println!(
        "{lines} lines of code, {} with comments",
        source.lines().count()
    );
    assert!((100..=200).contains(&lines), "{lines}");
}

// ---- What an absent key costs ---------------------------------------------------------------

#[test]
fn an_absent_key_over_twenty_tables_asks_twenty_filters_and_reads_nearly_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = Lsm::open(directory.path(), usize::MAX, 100).unwrap();
    for table in 0..20u32 {
        // Every table spans the whole range of keys.
        let changes: Vec<_> = (0..2000)
            .map(|i| (format!("{:08}", 2 * (i * 20 + table)), Some("value")))
            .collect();
        db.write(&changes).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(tables(directory.path()).len(), 20);
    let before = stats(&db);
    let absent = 20_000;
    for i in 0..absent {
        let key = format!("{:08}", 2 * i * 2 + 1);
        assert_eq!(db.get(key.as_bytes(), NOW).unwrap(), None);
    }
    let [probes, blocks] =
        std::array::from_fn(|i| (stats(&db)[i] - before[i]) as f64 / f64::from(absent));
    println!("{probes} filter probes and {blocks} blocks for an absent key");
    assert!(probes > 10.0, "the filters were asked");
    assert!(probes <= 20.0);
    assert!(blocks <= 0.02);
}

/// Filter probes, and data blocks that were asked for, from the file or the cache.
fn stats(db: &Lsm) -> [u64; 2] {
    db.stats()
        .unwrap()
        .iter()
        .fold([0; 2], |[probes, blocks], stats| {
            [
                probes + stats.filter_rejected + stats.filter_passed,
                blocks + stats.cache_hits + stats.cache_misses,
            ]
        })
}
