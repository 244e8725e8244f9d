//! What opening and lookups read, counted by the system for each thread.

use std::fs;
use std::path::Path;

use leveltable::{DbTable, OpenOptions, WriteOptions};
use leveltable_database::{Database, DatabaseOptions, TableMetadata};

use crate::common::{
    Log, batch, edit, internal, manifest, scratch, string, varint, write_database,
};

/// Calls of `read` and `pread` in this thread so far and their bytes, as of before this call; and the bytes that this call reads.
fn reads() -> ([u64; 2], u64) {
    let counters = fs::read_to_string("/proc/thread-self/io").unwrap();
    let so_far = ["syscr: ", "rchar: "].map(|name| {
        let line = counters.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().parse().unwrap()
    });
    (so_far, counters.len() as u64)
}

/// What looking at the counters takes is left out.
fn reads_of(work: impl FnOnce()) -> [u64; 2] {
    let ([calls_before, _], _) = reads();
    let ([calls, bytes], own_bytes) = reads();
    work();
    let ([calls_after, bytes_after], _) = reads();
    let own_calls = calls - calls_before;
    [
        calls_after - calls - own_calls,
        bytes_after - bytes - own_bytes,
    ]
}

/// A version edit that adds tables to levels.
fn with_tables(tables: &[(u8, TableMetadata)]) -> Vec<u8> {
    let mut record = edit(3, &[]);
    for (level, table) in tables {
        record.extend([7, *level]);
        varint(&mut record, table.number);
        varint(&mut record, table.size);
        string(&mut record, &table.smallest);
        string(&mut record, &table.largest);
    }
    record
}

#[test]
fn opening_reads_the_manifest_and_the_log_and_no_table() {
    let dir = scratch();
    // None of the tables is there.
    let table = |number: u64| TableMetadata {
        number,
        size: 1 << 20,
        smallest: internal(format!("{number:06}/a").as_bytes(), 9),
        largest: internal(format!("{number:06}/z").as_bytes(), 1),
    };
    let tables: Vec<_> = (10..1010).map(|number| (1, table(number))).collect();
    let mut log = Log::default();
    log.add(&batch(1001, &[(b"000500/m", Some(b"in the log"))]));
    let manifest = manifest(&[with_tables(&tables)]);
    write_database(dir.path(), &manifest, &log.0);
    // The first time, the shared cache asks the system for the number of processors.
    let db = Database::open_read_only(dir.path()).unwrap();
    let [calls, bytes] = reads_of(|| drop(Database::open_read_only(dir.path()).unwrap()));
    assert_eq!(db.files().unwrap().len(), 1003);
    // CURRENT twice, once to see whether it is still the same.
    let needed = 2 * "MANIFEST-000002\n".len() + manifest.len() + log.0.len();
    // A digit more or less in the counters' own text may be among them.
    assert!(
        bytes.abs_diff(needed as u64) < 8,
        "{bytes} and not {needed}"
    );
    assert!(calls < 30, "{calls}");
    assert!(db.get("000500/n").is_err());
}

const KEYS: usize = 24_000;

fn key(i: usize) -> String {
    format!("user/{i:08}")
}

/// Writes a table of one of four keys, and returns what the MANIFEST lists of it and its filter's rate.
fn write_table(dir: &Path, number: u64, keys: impl Iterator<Item = usize>) -> (TableMetadata, f64) {
    let path = dir.join(format!("{number:06}.ldb"));
    let keys: Vec<String> = keys.map(|i| key(2 * i)).collect();
    let mut builder = WriteOptions::leveldb().create_db(&path).unwrap();
    for key in &keys {
        builder.put(key, number, [b'v'; 100]).unwrap();
    }
    builder.finish().unwrap();
    let table = DbTable::open(&path).unwrap();
    const ASKED: usize = 20_000;
    (0..ASKED).for_each(|i| drop(table.get(key(2 * i + 1)).unwrap()));
    let rate = table.as_table().stats().filter_passed as f64 / ASKED as f64;
    let end = |key: Option<&String>| internal(key.unwrap().as_bytes(), number);
    let file = TableMetadata {
        number,
        size: fs::metadata(path).unwrap().len(),
        smallest: end(keys.first()),
        largest: end(keys.last()),
    };
    (file, rate)
}

/// Two tables of level 0, three of level 1, six of level 2: an absent key is asked of two, one and one.
#[test]
fn absent_keys_read_what_the_filters_let_pass() {
    let dir = scratch();
    let (mut tables, mut rates) = (Vec::new(), Vec::new());
    for (level, first, parts) in [(0, 0, 1), (0, 1, 1), (1, 2, 3), (2, 3, 6)] {
        let mut of_level = Vec::new();
        for part in 0..parts {
            let part = part * KEYS / parts..(part + 1) * KEYS / parts;
            let number = 10 + tables.len() as u64;
            let keys = part.filter(|i| i % 4 == first);
            let (file, rate) = write_table(dir.path(), number, keys);
            tables.push((level, file));
            of_level.push(rate);
        }
        rates.push(of_level);
    }
    write_database(dir.path(), &manifest(&[with_tables(&tables)]), &[]);
    let options = DatabaseOptions::new().tables(OpenOptions::new().no_cache().preload(true));
    let db = options.open_read_only(dir.path()).unwrap();
    db.pin().unwrap();
    let expected: f64 = (0..KEYS)
        .map(|i| {
            { rates.iter() }
                .map(|of| of[i * of.len() / KEYS])
                .sum::<f64>()
        })
        .sum();
    let [calls, _] = reads_of(|| {
        for i in 0..KEYS {
            assert_eq!(db.get(key(2 * i + 1)).unwrap(), None);
        }
    });
    println!("{calls} reads for {KEYS} absent keys, {expected:.0} expected");
    assert!(
        calls > 0 && calls as f64 <= 1.1 * expected,
        "{calls} reads, {expected} expected"
    );
    // A present key reads its block, and those of the filters that err.
    let [calls, _] = reads_of(|| {
        for i in 0..1000 {
            assert!(db.get(key(2 * i)).unwrap().is_some());
        }
    });
    assert!((1000..1100).contains(&calls), "{calls}");
}
