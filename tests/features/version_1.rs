//! The golden tables of version 1 of the format: read, and written again to the byte. `testdata/version-1/README.md` says what they are.
//! C++ LevelDB reads them in `tests/engine/cpp_leveldb.rs`.

#[path = "../../testdata/version-1/tables.rs"]
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use leveltable::{BytewiseComparator, ErrorKind, OpenOptions, Table, db::InternalKeyComparator};
use tables::{Entry, Golden};
use xxhash_rust::xxh3::xxh3_64;

const LIST: &str = include_str!("../../testdata/version-1/tables.tsv");
const LOCK: &str = include_str!("../../Cargo.lock");

/// The length and the XXH3 of each table, by its name.
fn listed() -> BTreeMap<&'static str, (usize, u64)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    let listed = lines.map(|line| {
        let [name, length, hash] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?}");
        };
        let hash = u64::from_str_radix(hash, 16).unwrap();
        (name, (length.parse().unwrap(), hash))
    });
    listed.collect()
}

/// The crates that compress, and whether `Cargo.lock` has the versions that compressed the listed tables.
fn same_compressor(codec: &str) -> bool {
    let lines = LIST.lines().filter_map(|line| line.strip_prefix("# "));
    let crates = lines.filter_map(|line| line.strip_prefix(codec)?.strip_prefix(": "));
    crates.flat_map(|crates| crates.split(", ")).all(|one| {
        let (name, version) = one.split_once(' ').unwrap();
        LOCK.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n"))
    })
}

/// Asserts that `file` holds the entries of `golden`, by a walk and by lookups.
fn assert_holds(golden: &Golden, file: Vec<u8>) {
    let entries = golden.entries();
    let name = golden.name();
    let options = match golden.database {
        true => OpenOptions::new().comparator(InternalKeyComparator::new(BytewiseComparator)),
        false => OpenOptions::new(),
    };
    let table: Table = options.open_source(file.clone()).unwrap();
    let walked = table
        .iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    let walked: Vec<Entry> = walked.collect::<leveltable::Result<_>>().unwrap();
    assert!(walked == entries, "{name}: other entries");
    let step = (entries.len() / 500).max(1);
    for (key, value) in entries.iter().step_by(step) {
        assert_eq!(
            table.get(key).unwrap().as_deref(),
            Some(&value[..]),
            "{name}"
        );
        let user_key = key.len() - if golden.database { 8 } else { 0 };
        let mut absent = key.clone();
        absent.splice(user_key..user_key, *b"?");
        assert_eq!(table.get(absent).unwrap(), None, "{name}");
    }
    if !golden.database {
        let expected = entries
            .iter()
            .filter(|(key, _)| key.starts_with(b"000001/"))
            .count();
        assert_eq!(table.prefix("000001/").count(), expected, "{name}");
        assert_eq!(table.prefix("absent/").count(), 0, "{name}");
    }
}

#[test]
fn every_file_is_read() {
    let mut codecs = BTreeMap::new();
    for golden in tables::all() {
        let Some(path) = golden.file() else { continue };
        let file = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (length, hash) = listed()[&golden.name()[..]];
        assert_eq!(
            (file.len(), xxh3_64(&file)),
            (length, hash),
            "{}",
            path.display()
        );
        if golden.options().is_some() {
            assert_holds(&golden, file);
        } else {
            let refused = OpenOptions::new()
                .open_source(file)
                .and_then(|table| table.iter().try_for_each(|e| e.map(drop)));
            assert_eq!(
                refused.unwrap_err().kind(),
                ErrorKind::Unsupported,
                "{}",
                golden.name()
            );
        }
        *codecs.entry(golden.codec).or_insert(0) += 1;
    }
    assert_eq!(codecs.len(), 5, "{codecs:?}");
}

/// Builds the tables that `choose` picks: each is as listed, and read. Compressed ones need the versions of the list to be equal.
fn build_again(choose: impl Fn(&Golden) -> bool) {
    let listed = listed();
    for golden in tables::all().iter().filter(|golden| choose(golden)) {
        let Some(file) = golden.build() else { continue };
        if same_compressor(golden.codec) {
            let written = (file.len(), xxh3_64(&file));
            assert_eq!(
                written,
                listed[&golden.name()[..]],
                "{}: other bytes",
                golden.name()
            );
        }
        assert_holds(golden, file);
    }
}

#[test]
fn small_tables_are_written_again_to_the_byte() {
    assert_eq!(listed().len(), tables::all().len());
    build_again(|golden| golden.count <= 10_000);
}

#[test]
fn large_tables_are_written_again_to_the_byte() {
    build_again(|golden| golden.count > 10_000 && !golden.database);
}

#[test]
fn large_tables_of_databases_are_written_again_to_the_byte() {
    build_again(|golden| golden.count > 10_000 && golden.database);
}

/// Writes list and files to a new directory. Those of version 1 are never written again: this was for once, and is for a version 2.
#[test]
#[ignore = "writes to the directory that LEVELTABLE_GOLDEN names"]
fn generate() {
    let directory =
        std::env::var_os("LEVELTABLE_GOLDEN").expect("LEVELTABLE_GOLDEN names a new directory");
    let directory = Path::new(&directory);
    fs::create_dir(directory).unwrap();
    let mut list = String::new();
    for golden in tables::all() {
        let file = golden.build().expect("all codecs: --all-features");
        list += &format!(
            "{}\t{}\t{:016x}\n",
            golden.name(),
            file.len(),
            xxh3_64(&file)
        );
        if let Some(path) = golden.file() {
            fs::write(directory.join(path.file_name().unwrap()), file).unwrap();
        }
    }
    fs::write(directory.join("tables.tsv"), list).unwrap();
}
