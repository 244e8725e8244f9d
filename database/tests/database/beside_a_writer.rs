//! Reads beside C++ LevelDB, which writes in another process, and beside a MANIFEST that is replaced again and again.
//!
//! `cargo test -p leveltable-database --test database beside_a_writer:: -- --ignored`

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leveltable::bytes::Bytes;
use leveltable::{ErrorKind, ReadAt, WriteOptions};
use leveltable_database::sister_crates::{self, Directory, FileSystem};
use leveltable_database::{Database, DatabaseOptions, TableMetadata};

use crate::common::{
    Change, Log, Settings, Writer, batch, edit, internal, listing, manifest, scratch, varint,
    write_database,
};

const KEYS: usize = 2000;
/// Set by every batch to its number.
const COUNTER: &[u8] = b"counter";

/// Oldest first: the number of a batch, and what it set or deleted.
type Versions = Vec<(usize, Option<Vec<u8>>)>;

/// The batches so far, and for each key the batches that changed it, with its values.
#[derive(Default)]
struct Written {
    versions: HashMap<Vec<u8>, Versions>,
}

impl Written {
    fn add(&mut self, number: usize, changes: &[Change]) {
        for (key, value) in changes {
            let versions = self.versions.entry(key.clone()).or_default();
            versions.push((number, value.clone()));
        }
    }

    /// The contents after a batch.
    fn after(&self, batch: usize) -> BTreeMap<&[u8], &[u8]> {
        let mut contents = BTreeMap::new();
        for (key, versions) in &self.versions {
            let seen = versions.iter().rev().find(|(number, _)| *number <= batch);
            if let Some((_, Some(value))) = seen {
                contents.insert(&key[..], &value[..]);
            }
        }
        contents
    }
}

struct Shared {
    written: Mutex<Written>,
    begun: AtomicUsize,
    acknowledged: AtomicUsize,
    done: AtomicBool,
}

fn write(shared: &Shared, dir: &Path, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let settings = Settings {
        write_buffer: 64 << 10,
        ..Settings::default()
    };
    let mut writer = Writer::start();
    writer.open(dir, &settings);
    let mut number = 0;
    while !shared.done.load(Ordering::SeqCst) {
        number += 1;
        let mut changes: Vec<Change> = (0..random.usize(1..40))
            .map(|_| {
                let key = format!("key{:05}", random.usize(..KEYS)).into_bytes();
                let value = vec![random.u8(..); random.usize(..200)];
                (key, (random.u8(..5) > 0).then_some(value))
            })
            .collect();
        changes.push((COUNTER.to_vec(), Some(number.to_string().into_bytes())));
        shared.written.lock().unwrap().add(number, &changes);
        shared.begun.store(number, Ordering::SeqCst);
        writer.batch(&changes);
        shared.acknowledged.store(number, Ordering::SeqCst);
        if random.usize(..2000) == 0 {
            // Logs become tables, and a new MANIFEST is written.
            writer.open(dir, &settings);
        }
        if random.usize(..2000) == 0 {
            writer.run("compact");
        }
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Walks over a pinned database, or looks up all keys at once.
fn read(db: &Database, is_walk: bool) -> leveltable::Result<Entries> {
    if is_walk {
        db.pin()?;
        return db
            .iter()
            .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
            .collect();
    }
    let mut keys: Vec<Vec<u8>> = (0..KEYS)
        .map(|i| format!("key{i:05}").into_bytes())
        .collect();
    keys.insert(0, COUNTER.to_vec());
    let values = db.get_many(&keys)?;
    let found = keys.into_iter().zip(values);
    Ok(found
        .filter_map(|(key, value)| Some((key, value?.to_vec())))
        .collect())
}

#[test]
#[ignore = "needs C++ LevelDB"]
fn each_read_shows_the_contents_after_one_batch() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    let shared = Shared {
        written: Mutex::default(),
        begun: AtomicUsize::new(0),
        acknowledged: AtomicUsize::new(0),
        done: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(&shared, &dir, 7));
        while shared.acknowledged.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            compare(&shared, &dir);
        }));
        shared.done.store(true, Ordering::SeqCst);
        if let Err(panic) = failed {
            std::panic::resume_unwind(panic);
        }
    });
}

fn compare(shared: &Shared, dir: &Path) {
    let db = Database::open_read_only(dir).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut removed = 0;
    for round in 0..1000 {
        let acknowledged = shared.acknowledged.load(Ordering::SeqCst);
        // One object all the time, and new ones.
        let db = if random.bool() {
            db.refresh().unwrap();
            db.clone()
        } else {
            Database::open_read_only(dir).unwrap()
        };
        let is_walk = round % 2 == 0;
        let entries = match read(&db, is_walk) {
            Ok(entries) => entries,
            Err(error) => panic!("{round}: {error}"),
        };
        let begun = shared.begun.load(Ordering::SeqCst);
        let counter = entries.iter().find(|(key, _)| key == COUNTER).unwrap();
        let batch: usize = str::from_utf8(&counter.1).unwrap().parse().unwrap();
        assert!(
            (acknowledged..=begun).contains(&batch),
            "{acknowledged} {batch} {begun}"
        );
        let written = shared.written.lock().unwrap();
        let expected = written.after(batch);
        let found = entries.iter().map(|(key, value)| (&key[..], &value[..]));
        assert!(found.eq(expected), "{round}: batch {batch}, {is_walk}");
        drop(written);
        // Without pinning, a walk ends well or says why.
        for entry in db.iter() {
            if let Err(error) = entry {
                assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");
                assert!(error.to_string().contains("pin"), "{error}");
                removed += 1;
            }
        }
    }
    println!(
        "{} batches, {removed} walks met a removed table",
        shared.begun.load(Ordering::SeqCst)
    );
}

/// A database that was deleted and created again uses numbers again.
#[test]
#[ignore = "needs C++ LevelDB"]
fn a_recreated_database_is_not_mixed_with_the_old_one() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    let mut writer = Writer::start();
    let settings = Settings {
        bloom_bits: 0,
        ..Settings::default()
    };
    let mut reader: Option<Database> = None;
    for round in 0..50 {
        writer.run("close");
        let _ = std::fs::remove_dir_all(&dir);
        writer.open(&dir, &settings);
        let value = format!("{round:04}").into_bytes();
        for key in ["a", "b", "c"] {
            writer.batch(&[(key.into(), Some(value.clone()))]);
        }
        writer.run("compact");
        let db = reader.get_or_insert_with(|| Database::open_read_only(&dir).unwrap());
        if round % 2 == 0 {
            db.refresh().unwrap();
        }
        let a = db.get("a").unwrap().unwrap();
        let old = format!("{:04}", round - round % 2).into_bytes();
        assert!(a == value || a == old, "{round}: {a:?}");
        // Whichever it is, all are of the same.
        let all = db.get_many(&["a", "b", "c"]).unwrap();
        assert!(all.iter().all(|value| value == &all[0]), "{round}: {all:?}");
        db.refresh().unwrap();
        let walked: Vec<_> = db.iter().map(|entry| entry.unwrap().1).collect();
        assert_eq!(walked, [&value[..]; 3]);
    }
}

/// As when databases are opened to write: a new MANIFEST, CURRENT names it, and the old one goes.
#[test]
fn a_refresh_while_the_manifest_is_replaced_reads_the_new_one() {
    let scratch = scratch();
    let dir = scratch.path();
    let manifest = manifest(&[edit(3, &[])]);
    write_database(dir, &manifest, &[]);
    let db = Database::open_read_only(dir).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 2.. {
                if done.load(Ordering::SeqCst) {
                    return;
                }
                let next = format!("MANIFEST-{:06}", number + 1);
                fs::write(dir.join(&next), &manifest).unwrap();
                fs::write(dir.join("000001.dbtmp"), next + "\n").unwrap();
                fs::rename(dir.join("000001.dbtmp"), dir.join("CURRENT")).unwrap();
                fs::remove_file(dir.join(format!("MANIFEST-{number:06}"))).unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let failed = (0..5000).find_map(|_| db.refresh().err());
        done.store(true, Ordering::SeqCst);
        assert!(failed.is_none(), "{failed:?}");
    });
}

/// When the writer makes a table of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flush {
    BeforeTheListing,
    AfterTheListing,
    BeforeTheLogIsOpened,
    WhileTheLogIsRead,
}

/// A directory whose writer makes a table of its first log in the middle of a reading, once.
#[derive(Debug)]
struct Flushing {
    files: FileSystem,
    at: Flush,
    is_done: AtomicBool,
    openings: AtomicUsize,
}

impl Flushing {
    /// As LevelDB does: a table, an edit, and the log is removed. The next log is there before.
    fn flush(&self, at: Flush) {
        if self.at != at || self.is_done.swap(true, Ordering::SeqCst) {
            return;
        }
        let dir = self.files.path();
        if !dir.join("000004.log").exists() {
            fs::write(dir.join("000004.log"), []).unwrap();
        }
        let mut table = WriteOptions::new()
            .create_db(dir.join("000005.ldb"))
            .unwrap();
        table.put("a", 1001, "flushed").unwrap();
        table.finish().unwrap();
        let table = TableMetadata {
            number: 5,
            size: fs::metadata(dir.join("000005.ldb")).unwrap().len(),
            smallest: internal(b"a", 1001),
            largest: internal(b"a", 1001),
        };
        let mut flushed = vec![2, 4, 4]; // the log that is needed now, and the last sequence number
        varint(&mut flushed, 1001);
        flushed.extend(listing(0, &table));
        fs::write(
            dir.join("MANIFEST-000002"),
            manifest(&[edit(3, &[]), flushed]),
        )
        .unwrap();
        fs::remove_file(dir.join("000003.log")).unwrap();
    }
}

impl Directory for Flushing {
    fn path(&self) -> &Path {
        self.files.path()
    }

    fn list(&self) -> io::Result<BTreeMap<String, u64>> {
        self.flush(Flush::BeforeTheListing);
        let listed = self.files.list();
        self.flush(Flush::AfterTheListing);
        listed
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadAt>> {
        let is_first_log = name == "000003.log";
        if name.ends_with(".log") {
            self.openings.fetch_add(1, Ordering::SeqCst);
        }
        if is_first_log {
            self.flush(Flush::BeforeTheLogIsOpened);
        }
        let file = self.files.open(name)?;
        if is_first_log {
            self.flush(Flush::WhileTheLogIsRead);
        }
        Ok(file)
    }

    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        self.files.read(name, most)
    }
}

/// Whenever it does: nothing is missed or shown twice. The directory is read again only if a log is gone before it is opened: a reader
/// that began again whenever a log was too new never ended beside a fast writer.
#[test]
fn a_log_may_become_a_table_while_the_database_is_read() {
    use Flush::{AfterTheListing, BeforeTheListing, BeforeTheLogIsOpened, WhileTheLogIsRead};
    for (at, has_next_log, openings) in [
        (BeforeTheListing, false, 1),
        (BeforeTheListing, true, 1),
        (AfterTheListing, false, 2), // to see whether it is there, and to read it
        (AfterTheListing, true, 1),
        (BeforeTheLogIsOpened, false, 2),
        (BeforeTheLogIsOpened, true, 3),
        (WhileTheLogIsRead, false, 1),
        (WhileTheLogIsRead, true, 2),
    ] {
        let scratch = scratch();
        let dir = scratch.path();
        let log = |sequence, key: &[u8], value: &[u8]| {
            let mut log = Log::default();
            log.add(&batch(sequence, &[(key, Some(value))]));
            log.0
        };
        write_database(
            dir,
            &manifest(&[edit(3, &[])]),
            &log(1001, b"a", b"flushed"),
        );
        if has_next_log {
            fs::write(dir.join("000004.log"), log(1002, b"b", b"logged")).unwrap();
        }
        let flushing = Arc::new(Flushing {
            files: FileSystem(dir.to_owned()),
            at,
            is_done: AtomicBool::new(false),
            openings: AtomicUsize::new(0),
        });
        let db = sister_crates::open(flushing.clone(), &DatabaseOptions::new()).unwrap();
        assert!(flushing.is_done.load(Ordering::SeqCst));
        assert_eq!(flushing.openings.load(Ordering::SeqCst), openings, "{at:?}");
        let text = |bytes: Bytes| bytes.escape_ascii().to_string();
        let entries = db.iter().map(|entry| entry.unwrap());
        let entries: Vec<_> = entries.map(|(key, value)| [key, value].map(text)).collect();
        let expected = [["a", "flushed"], ["b", "logged"]];
        assert_eq!(entries, expected[..1 + usize::from(has_next_log)], "{at:?}");
        assert_eq!(db.get("a").unwrap().unwrap(), "flushed");
        assert_eq!(db.last_sequence(), 1001 + u64::from(has_next_log));
        assert_eq!(db.refresh().unwrap(), at == WhileTheLogIsRead);
        assert_eq!(db.get("a").unwrap().unwrap(), "flushed");
        assert!(!db.refresh().unwrap(), "{at:?}");
    }
}
