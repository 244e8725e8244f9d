//! What reading a database asks of the system. `cargo test -p leveltable-database --test database system_calls:: -- --ignored` needs strace.

use std::fs;
use std::path::Path;
use std::process::Command;

use leveltable::WriteOptions;
use leveltable_database::{Database, DatabaseOptions, FileKind};

use crate::common::{Log, edit, internal, manifest, scratch, write_database};

/// A database of this many tables in level 1, of 10 keys each.
fn write_tables(dir: &Path, count: u64) {
    let mut tables = Vec::new();
    for number in 10..10 + count {
        let path = dir.join(format!("{number:06}.ldb"));
        let mut builder = WriteOptions::leveldb().create_db(&path).unwrap();
        let key = |i: u64| format!("{number:06}/{i}");
        for i in 0..10 {
            builder.put(key(i), number, "value").unwrap();
        }
        builder.finish().unwrap();
        tables.push(leveltable_database::TableMetadata {
            number,
            size: fs::metadata(path).unwrap().len(),
            smallest: internal(key(0).as_bytes(), number),
            largest: internal(key(9).as_bytes(), number),
        });
    }
    let tables: Vec<_> = tables.iter().collect();
    write_database(dir, &manifest(&[edit(3, &tables)]), &Log::default().0);
}

/// Runs a test of this file under strace, and returns the calls that name a file, one a line.
fn trace(test: &str, dir: &Path) -> Vec<String> {
    let output = dir.with_extension("strace");
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-e", "trace=%file,flock,fcntl,ftruncate,write", "-o"])
        .arg(&output);
    strace.arg(std::env::current_exe().unwrap()).args([
        "--exact",
        test,
        "--ignored",
        "--nocapture",
    ]);
    let status = strace.env("DATABASE", dir).status().expect("strace");
    assert!(status.success());
    let calls = fs::read_to_string(output).unwrap();
    let dir = dir.display().to_string();
    // From the first look at the directory on.
    let calls = calls
        .lines()
        .filter(|call| call.contains(&dir) || call.contains("flock"));
    calls.map(str::to_owned).collect()
}

#[test]
#[ignore = "the child of another test"]
fn child_opens() {
    let Some(dir) = std::env::var_os("DATABASE") else {
        return;
    };
    let db = Database::open_read_only(dir).unwrap();
    assert_eq!(db.last_sequence(), 1000);
}

#[test]
#[ignore = "the child of another test"]
fn child_reads_everything() {
    let Some(dir) = std::env::var_os("DATABASE") else {
        return;
    };
    let db = Database::open_read_only(&dir).unwrap();
    assert_eq!(db.iter().count(), 10_000);
    assert!(db.get("000500/3").unwrap().is_some());
    assert_eq!(db.get_many(&["000500/3", "x"]).unwrap().len(), 2);
    assert_eq!(db.history("000500/3").unwrap().len(), 1);
    assert!(
        db.files()
            .unwrap()
            .iter()
            .any(|file| file.kind == FileKind::Log)
    );
    assert!(!db.refresh().unwrap());
    db.pin().unwrap();
    let db = DatabaseOptions::new().open_without_manifest(&dir).unwrap();
    assert_eq!(db.iter().rev().count(), 10_000);
}

#[test]
#[ignore = "needs strace"]
fn opening_reads_manifest_and_logs_and_no_table() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    fs::create_dir(&dir).unwrap();
    write_tables(&dir, 1000);
    let calls = trace("system_calls::child_opens", &dir);
    let opened: Vec<&String> = calls.iter().filter(|call| call.contains("open")).collect();
    assert!(opened.iter().any(|call| call.contains("MANIFEST-000002")));
    assert!(opened.iter().any(|call| call.contains("000003.log")));
    assert!(
        !opened.iter().any(|call| call.contains(".ldb")),
        "{opened:?}"
    );
}

#[test]
#[ignore = "needs strace"]
fn nothing_is_opened_for_writing_created_or_locked() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    fs::create_dir(&dir).unwrap();
    write_tables(&dir, 1000);
    fs::write(dir.join("LOCK"), "").unwrap();
    let before: Vec<_> = list(&dir);
    let calls = trace("system_calls::child_reads_everything", &dir);
    assert!(calls.iter().any(|call| call.contains(".ldb")));
    let forbidden = [
        "O_WRONLY",
        "O_RDWR",
        "O_CREAT",
        "O_TRUNC",
        "flock",
        "F_SETLK",
        "F_OFD_SETLK",
        "rename",
        "unlink",
        "mkdir",
        "truncate",
        "utime",
        "chmod",
        "/LOCK\", O",
    ];
    for call in calls {
        assert!(!forbidden.iter().any(|word| call.contains(word)), "{call}");
    }
    assert_eq!(list(&dir), before);
}

fn list(dir: &Path) -> Vec<(std::ffi::OsString, u64)> {
    let files = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut files: Vec<_> = files
        .map(|file| (file.file_name(), file.metadata().unwrap().len()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_table_that_a_compaction_removed_is_looked_for_again() {
    let scratch = scratch();
    let dir = scratch.path();
    write_tables(dir, 20);
    let db = Database::open_read_only(dir).unwrap();
    let (mut walk, mut lent) = (db.iter(), db.iter());
    assert_eq!(walk.next().unwrap().unwrap().0, "000010/0");
    // This one is over so few tables that it opens them all before its first entry.
    let mut short = Database::open_read_only(dir).unwrap().range(..="000025");
    assert_eq!(short.next().unwrap().unwrap().0, "000010/0");
    assert!(lent.advance().unwrap());
    // As a compaction does: another table, then the MANIFEST, and then the old tables go.
    let path = dir.join("000040.ldb");
    let mut builder = WriteOptions::new().create_db(&path).unwrap();
    builder.put("000011/5", 50, "new").unwrap();
    builder.finish().unwrap();
    let table = leveltable_database::TableMetadata {
        number: 40,
        size: fs::metadata(path).unwrap().len(),
        smallest: internal(b"000011/5", 50),
        largest: internal(b"000011/5", 50),
    };
    let mut second = Log(fs::read(dir.join("MANIFEST-000002")).unwrap());
    second.add(&[&[6, 1, 11][..], &edit(3, &[&table])[28..]].concat());
    fs::write(dir.join("MANIFEST-000002"), &second.0).unwrap();
    fs::remove_file(dir.join("000011.ldb")).unwrap();
    assert_eq!(short.map(Result::unwrap).count(), 149);
    // A walk under way cannot go on otherwise, and says so.
    let error = walk.find_map(Result::err).unwrap();
    assert_eq!(error.kind(), leveltable::ErrorKind::Replaced);
    assert!(error.to_string().contains("pin"), "{error}");
    assert!(walk.next().is_none());
    let error = loop {
        match lent.advance() {
            Ok(moved) => assert!(moved && !lent.key().is_empty()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), leveltable::ErrorKind::Replaced);
    assert!(!lent.advance().unwrap() && lent.key().is_empty());
    // A lookup starts over.
    assert_eq!(db.get("000011/5").unwrap().unwrap(), "new");
    assert_eq!(db.iter().count(), 191);
}
