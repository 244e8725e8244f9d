//! Directories of databases: a MANIFEST, logs and tables of arbitrary changes, and arbitrary bytes in their place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use leveltable::WriteOptions;

use crate::log;

/// A key, and its value or none. Few keys, so that they meet.
type Change = (u8, Option<u8>);

#[derive(Debug, Arbitrary)]
pub struct Input<'a> {
    /// Level, and changes of one table each.
    pub tables: Vec<(u8, Vec<Change>)>,
    pub logs: Vec<Vec<Vec<Change>>>,
    /// Files whose bytes are changed: which, where, how.
    pub damage: Vec<(u8, u16, u8)>,
    /// Appended to the MANIFEST as a record with a right checksum.
    pub edit: Option<&'a [u8]>,
    /// Appended to the last log in the same way.
    pub record: Option<&'a [u8]>,
}

/// What a directory holds.
#[derive(Debug, Default)]
pub struct Written {
    /// What it would show without damage.
    pub contents: Contents,
    /// All values that keys ever had.
    pub ever: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// Names of the files whose bytes are not those that were written.
    pub damaged: BTreeSet<String>,
}

impl Written {
    fn put(&mut self, key: &[u8], value: Option<u8>) {
        let values = value.map(|value| (key.to_vec(), vec![value; 3]));
        self.ever.extend(values);
    }
}

/// A directory of this process, in memory where there is such a file system.
pub fn directory() -> &'static Path {
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

/// Keys and values.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The key of this number: 32 endings, after up to six letters.
pub fn key(key: u8) -> Vec<u8> {
    vec![b'k'; usize::from(key % 7)]
        .into_iter()
        .chain([key % 32])
        .collect()
}

/// Writes a database that LevelDB could have written, and then the damage, in place of what is in the directory.
pub fn write(input: &Input<'_>, dir: &Path) -> Written {
    for file in fs::read_dir(dir).expect("it is there") {
        fs::remove_file(file.expect("it is there").path()).expect("it can go");
    }
    let mut written = Written::default();
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
            written.put(&key(name), value);
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
        put(dir, &format!("{number:06}.ldb"), table, input, &mut written);
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
                written.put(&key, value);
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
            &mut written,
        );
    }
    let mut edits = vec![edit];
    edits.extend(input.edit.map(<[u8]>::to_vec));
    put(
        dir,
        "MANIFEST-000002",
        log::encode(&edits),
        input,
        &mut written,
    );
    fs::write(dir.join("CURRENT"), "MANIFEST-000002\n").expect("there is room");
    let live = versions.into_iter();
    let live = live.filter_map(|(key, value)| Some((key, vec![value?; 3])));
    written.contents = live.collect();
    written
}

/// Writes a file, with the damage that is meant for it.
fn put(dir: &Path, name: &str, mut bytes: Vec<u8>, input: &Input<'_>, written: &mut Written) {
    let whole = bytes.clone();
    for &(file, at, by) in input.damage.iter().take(4) {
        let is_meant = name.bytes().fold(0u8, u8::wrapping_add) % 4 == file % 4;
        let len = bytes.len().max(1);
        match bytes.get_mut(usize::from(at) % len) {
            Some(byte) if is_meant && by > 0 => *byte ^= by,
            Some(_) if is_meant => bytes.truncate(usize::from(at) % len),
            _ => {}
        }
    }
    if bytes != whole {
        written.damaged.insert(name.to_owned());
    }
    fs::write(dir.join(name), bytes).expect("there is room");
}
