//! The worked example of `docs/format.md`, which C++ LevelDB 1.23 wrote.

use std::fs;
use std::path::Path;

use leveltable_database::{Database, Edit, LogItem, LogReader};

use crate::common::scratch;

/// The bytes of a file that the document lists, with the offset of each line.
fn listed(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/format.md");
    let document = fs::read_to_string(path).unwrap();
    let (_, listing) = document.split_once(&format!("\n{name}\n")).unwrap();
    let (listing, _) = listing.split_once("```").unwrap();
    let mut bytes = Vec::new();
    for line in listing.lines() {
        let (offset, rest) = line.trim_start().split_once("  ").unwrap();
        assert_eq!(offset, bytes.len().to_string(), "{line}");
        let (hex, _) = rest.split_once("    ").unwrap();
        bytes.extend(
            hex.split(' ')
                .map(|byte| u8::from_str_radix(byte, 16).unwrap()),
        );
    }
    bytes
}

#[test]
fn the_worked_example_is_a_database() {
    let dir = scratch();
    fs::write(dir.path().join("CURRENT"), "MANIFEST-000002\n").unwrap();
    for name in ["000003.log", "MANIFEST-000002"] {
        fs::write(dir.path().join(name), listed(name)).unwrap();
    }
    let db = Database::open_read_only(dir.path()).unwrap();
    let entries: Vec<_> = db.iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(entries, [("a".into(), "b".into())]);
    assert_eq!(db.last_sequence(), 3);
    assert!(db.recovery().gaps.is_empty());
    let manifest = listed("MANIFEST-000002");
    let records = LogReader::new(&manifest[..]).map(Result::unwrap);
    let edits = records.map(|item| match item {
        LogItem::Record(record) => Edit::parse(&record.payload).unwrap(),
        LogItem::Gap(gap) => panic!("{gap:?}"),
    });
    let edits: Vec<_> = edits.collect();
    assert_eq!(
        edits[0].comparator.as_deref(),
        Some(&b"leveldb.BytewiseComparator"[..])
    );
    assert_eq!(
        (edits[1].log_number, edits[1].next_file_number),
        (Some(3), Some(4))
    );
}
