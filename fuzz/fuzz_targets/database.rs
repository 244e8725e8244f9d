//! Whole directories: a MANIFEST of arbitrary edits, logs and tables of arbitrary changes, and arbitrary bytes in their place.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use leveltable::WriteOptions;
use leveltable_database::{Database, DatabaseOptions};
use leveltable_fuzz::log;
use libfuzzer_sys::fuzz_target;

/// A key, and its value or none. Few keys, so that they meet.
type Change = (u8, Option<u8>);

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    /// Level, and changes of one table each.
    tables: Vec<(u8, Vec<Change>)>,
    logs: Vec<Vec<Vec<Change>>>,
    /// Files whose bytes are changed: which, where, how.
    damage: Vec<(u8, u16, u8)>,
    /// Appended to the MANIFEST as a record with a right checksum.
    edit: Option<&'a [u8]>,
    /// Appended to the last log in the same way.
    record: Option<&'a [u8]>,
}

fuzz_target!(|input: Input<'_>| {
    let dir = directory();
    for file in fs::read_dir(dir).expect("it is there") {
        fs::remove_file(file.expect("it is there").path()).expect("it can go");
    }
    let model = write(&input, dir);
    let is_whole = input.damage.is_empty() && input.edit.is_none() && input.record.is_none();
    if let Ok(db) = Database::open_read_only(dir) {
        let found = ask(&db);
        if is_whole {
            assert_eq!(found, Some(model));
        }
    } else {
        assert!(!is_whole, "a sound database is refused");
    }
    let lenient = DatabaseOptions::new().skip_damaged(true);
    for db in [
        lenient.open_read_only(dir),
        lenient.open_without_manifest(dir),
    ]
    .into_iter()
    .flatten()
    {
        ask(&db);
    }
});

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let dir = parent.join(format!("leveltable-fuzz-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("there is room");
        dir
    })
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(key: u8) -> Vec<u8> {
    vec![b'k'; usize::from(key % 7)]
        .into_iter()
        .chain([key % 32])
        .collect()
}

/// Asks a database everything. All answers agree; `None` if one was an error.
fn ask(db: &Database) -> Option<Contents> {
    let walk = |entry: leveltable::Result<(bytes::Bytes, bytes::Bytes)>| {
        entry
            .ok()
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
    };
    let forward: Option<Vec<_>> = db.iter().map(walk).collect();
    let back: Option<Vec<_>> = db.iter().rev().map(walk).collect();
    let keys: Vec<Vec<u8>> = (0..=255).step_by(5).map(key).collect();
    let many = db.get_many(&keys);
    let single: Vec<_> = keys.iter().map(|key| db.get(key)).collect();
    let _ = (
        db.history(&keys[3]),
        db.files(),
        db.recovery(),
        db.refresh(),
        db.pin(),
    );
    let (forward, mut back) = (forward?, back?);
    back.reverse();
    assert_eq!(forward, back);
    assert!(forward.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let contents: Contents = forward.into_iter().collect();
    if let Ok(many) = many {
        for ((key, one), many) in keys.iter().zip(single).zip(many) {
            // An edit may put tables into levels in which a newer version is below an older one: lookups stop at the first, as
            // LevelDB's do.
            assert_eq!(one.ok()?, many);
            assert!(
                many.is_some() == contents.contains_key(key) || !is_layered(db),
                "{key:?}"
            );
        }
    }
    Some(contents)
}

/// Whether all tables are in level 0, where the sequence numbers decide.
fn is_layered(db: &Database) -> bool {
    let files = db.files().unwrap_or_default();
    files
        .iter()
        .all(|file| file.listed.as_ref().is_none_or(|(level, _)| *level == 0))
}

/// Writes a database that LevelDB could have written, and then the damage. Returns what it would hold without that.
fn write(input: &Input<'_>, dir: &Path) -> Contents {
    let mut versions = BTreeMap::new();
    let mut sequence = 0;
    let mut edit = b"\x01\x1aleveldb.BytewiseComparator\x02\x32\x03\x64\x04\x64\x09\x00".to_vec();
    for ((_, changes), number) in input.tables.iter().take(5).zip(10u8..) {
        // The last change of a key in the table's is the newest.
        let mut table: BTreeMap<Vec<u8>, Vec<(u64, Option<u8>)>> = BTreeMap::new();
        for &(name, value) in changes.iter().take(30) {
            sequence += 1;
            table
                .entry(key(name))
                .or_default()
                .insert(0, (sequence, value));
            versions.insert(key(name), value);
        }
        let mut builder = WriteOptions::leveldb().block_size(64).build_db(Vec::new());
        let mut ends: Vec<Vec<u8>> = Vec::new();
        for (key, changes) in &table {
            for &(sequence, value) in changes {
                match value {
                    Some(value) => builder.put(key, sequence, [value; 3]),
                    None => builder.delete(key, sequence),
                }
                .expect("in order");
                let tag = sequence << 8 | u64::from(value.is_some());
                ends.push([&key[..], &tag.to_le_bytes()].concat());
            }
        }
        let (Some(first), Some(last)) = (ends.first(), ends.last()) else {
            continue;
        };
        let (table, _) = builder.finish_into_writer().expect("memory");
        edit.extend([7, 0, number]);
        let mut len = table.len();
        while len >= 0x80 {
            edit.push(len as u8 | 0x80);
            len >>= 7;
        }
        edit.push(len as u8);
        for end in [first, last] {
            edit.push(end.len() as u8);
            edit.extend(end);
        }
        put(dir, &format!("{number:06}.ldb"), table, input);
    }
    let logs = input.logs.len().min(3);
    for (batches, number) in input.logs.iter().take(3).zip(50..) {
        let mut records = Vec::new();
        for batch in batches.iter().take(10) {
            let mut record = (sequence + 1).to_le_bytes().to_vec();
            record.extend((batch.len() as u32).to_le_bytes());
            for &(name, value) in batch {
                sequence += 1;
                let key = key(name);
                record.extend([value.is_some().into(), key.len() as u8]);
                record.extend(&key);
                record.extend(
                    value
                        .map(|value| [3, value, value, value])
                        .unwrap_or_default()
                        .iter()
                        .take(4 * usize::from(value.is_some())),
                );
                versions.insert(key, value);
            }
            records.push(record);
        }
        if number == 49 + logs {
            records.extend(input.record.map(<[u8]>::to_vec));
        }
        put(
            dir,
            &format!("{number:06}.log"),
            log::encode(&records),
            input,
        );
    }
    let mut edits = vec![edit];
    edits.extend(input.edit.map(<[u8]>::to_vec));
    put(dir, "MANIFEST-000002", log::encode(&edits), input);
    fs::write(dir.join("CURRENT"), "MANIFEST-000002\n").expect("there is room");
    let live = versions.into_iter();
    live.filter_map(|(key, value)| Some((key, vec![value?; 3])))
        .collect()
}

/// Writes a file, with the damage that is meant for it.
fn put(dir: &Path, name: &str, mut bytes: Vec<u8>, input: &Input<'_>) {
    for &(file, at, by) in input.damage.iter().take(4) {
        let is_meant = name.bytes().fold(0u8, u8::wrapping_add) % 4 == file % 4;
        let len = bytes.len().max(1);
        match bytes.get_mut(usize::from(at) % len) {
            Some(byte) if is_meant && by > 0 => *byte ^= by,
            Some(_) if is_meant => bytes.truncate(usize::from(at) % len),
            _ => {}
        }
    }
    fs::write(dir.join(name), bytes).expect("there is room");
}
