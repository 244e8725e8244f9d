//! Whether a table's file is still the one that was opened.

use std::fs::{self, OpenOptions as FileOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leveltable::{ErrorKind, OpenOptions, Source, Table, TableBuilder};

fn write(path: &Path, value: &str) {
    let mut builder = TableBuilder::create(path).unwrap();
    builder.add("key", value).unwrap();
    builder.finish().unwrap();
}

/// A table opened at `path`, positionally and loaded.
fn tables(path: &Path) -> [Table; 2] {
    let loaded = Source::load(path).unwrap();
    let loaded = OpenOptions::new().open_source(loaded).unwrap();
    [Table::open(path).unwrap(), loaded]
}

/// What happens to a file, and whether it is current afterwards.
#[test]
fn what_happens_to_the_file_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let aside = directory.path().join("aside");
    type Happens<'a> = (&'a str, &'a dyn Fn(), bool);
    let cases: [Happens; 8] = [
        ("nothing", &|| {}, true),
        ("read", &|| drop(fs::read(&path)), true),
        ("linked", &|| fs::hard_link(&path, &aside).unwrap(), true),
        ("replaced", &|| write(&path, "value"), false),
        ("removed", &|| fs::remove_file(&path).unwrap(), false),
        ("moved", &|| fs::rename(&path, &aside).unwrap(), false),
        ("grown", &|| append(&path), false),
        ("written to", &|| overwrite(&path), false),
    ];
    for (what, happen, expected) in cases {
        let _ = fs::remove_file(&aside);
        write(&path, "value");
        let tables = tables(&path);
        let reads = tables.each_ref().map(|table| table.stats().source_reads);
        happen();
        for table in &tables {
            assert_eq!(table.is_current().unwrap(), expected, "{what}");
        }
        let now = tables.each_ref().map(|table| table.stats().source_reads);
        assert_eq!(now, reads, "{what}");
    }
}

fn append(path: &Path) {
    let mut file = FileOptions::new().append(true).open(path).unwrap();
    file.write_all(b"more").unwrap();
}

/// In place, and not longer.
fn overwrite(path: &Path) {
    let mut file = FileOptions::new().write(true).open(path).unwrap();
    file.write_all(b"x").unwrap();
    // File systems may count time in steps of some milliseconds.
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified + Duration::from_secs(1))
        .unwrap();
}

#[test]
fn what_is_not_in_a_file_is_an_error() {
    let file = leveltable::WriteOptions::new()
        .build(Vec::new())
        .finish_into_writer()
        .unwrap()
        .0;
    let file = Bytes::from(file);
    let mut opened = tempfile::tempfile().unwrap();
    opened.write_all(&file).unwrap();
    for source in [
        file.clone().into(),
        Source::from(Arc::new(file)),
        opened.into(),
    ] {
        let table = OpenOptions::new().open_source(source.named("a name"));
        let error = table.unwrap().is_current().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        assert!(error.to_string().contains("a name"), "{error}");
    }
}
