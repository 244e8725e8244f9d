//! `repair`: its report, what it refuses, and what it leaves behind. `tests/sessions/tool/repairing.md` shows what it prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use leveltable_database::{DatabaseBuildOptions, DatabaseBuilder};
use tempfile::TempDir;

use super::{complaint, json_lines, names_in, repair_command, run, tool};

/// A database of a few tables, with keys that are no text.
fn database(directory: &Path) -> PathBuf {
    let db = directory.join("db");
    let options = DatabaseBuildOptions::new().table_bytes(5_000);
    let mut builder = DatabaseBuilder::create(&db, options).unwrap();
    for i in 0..2_000u32 {
        let key = [&b"\xff"[..], &i.to_be_bytes()].concat();
        builder.put(key, i.to_string().repeat(20)).unwrap();
    }
    assert!(builder.finish().unwrap().tables > 2);
    db
}

fn repair(db: &Path, new: &str, args: &[&str]) -> Output {
    let new = db.with_file_name(new);
    let mut tool = tool();
    tool.arg("repair").args([db, &new]).args(args);
    tool.output().unwrap()
}

#[test]
fn the_report_has_a_line_of_json_for_each_finding() {
    let scratch = TempDir::new().unwrap();
    let db = database(scratch.path());
    let mut bytes = fs::read(db.join("000003.ldb")).unwrap();
    bytes[100] ^= 1;
    fs::write(db.join("000003.ldb"), bytes).unwrap();
    fs::remove_file(db.join("000002.ldb")).unwrap();
    let report = scratch.path().join("report");
    let output = repair(&db, "new", &["--report", report.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stderr, b"");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().next().unwrap().contains("data are lost"));
    let lines = json_lines(&fs::read(&report).unwrap());
    let about = |name: &str| {
        let mut lines = lines.iter().filter(|line| line["file"] == name);
        let line = lines.next().unwrap();
        assert_eq!(line["grade"], "lost");
        assert_eq!(lines.next(), None);
        line
    };
    let missing = about("000002.ldb");
    assert_eq!(missing["from_hex"], "ff00000000");
    assert!(missing.get("from").is_none() && missing.get("offset").is_none());
    let block = about("000003.ldb");
    assert_eq!(block["offset"], 0);
    assert!(block["bytes"].as_u64().unwrap() > 100);
    assert!(block["from_hex"].as_str() < block["to_hex"].as_str());
    assert!(missing["to_hex"].as_str() < block["to_hex"].as_str());
    assert!(lines.iter().all(|line| line["reason"].is_string()));
    assert_eq!(
        run([Path::new("verify"), &scratch.path().join("new")])
            .status
            .code(),
        Some(0)
    );
}

#[test]
fn what_is_refused_leaves_nothing() {
    let scratch = TempDir::new().unwrap();
    let db = database(scratch.path());
    let before = names_in(&db);
    fs::create_dir(scratch.path().join("there")).unwrap();
    let inside = db.join("report");
    for (new, args, expected) in [
        ("there", &[][..], "replaces nothing"),
        ("nowhere/new", &[], "make it first"),
        ("new", &["--report", inside.to_str().unwrap()], "only read"),
        (
            "new",
            &["--report", scratch.path().to_str().unwrap()],
            "already exists",
        ),
        ("new", &["--comparator", "reverse"], "possible values"),
    ] {
        let output = repair(&db, new, args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(expected), "{text}");
        assert_eq!(output.stdout, b"");
    }
    for url in ["s3://bucket/db", "file:///db"] {
        let line = complaint(run([Path::new("repair"), &db, Path::new(url)]), 2);
        assert!(line.contains("a database is a directory"), "{line}");
    }
    assert_eq!(names_in(&db), before);
    assert_eq!(names_in(scratch.path()).len(), 2, "db and there");
}

#[test]
fn a_file_that_is_refused_belongs_to_a_database_that_can_be_repaired() {
    let scratch = TempDir::new().unwrap();
    let db = database(scratch.path());
    let command = repair_command(&db);
    let (table, out) = (db.join("000002.ldb"), scratch.path().join("out"));
    fs::write(&table, "torn").unwrap();
    let points = |args: &[&Path]| {
        let output = run(args);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.matches(&command).count(), 1, "{args:?}: {text}");
    };
    let [get, scan, verify, salvage] = ["get", "scan", "verify", "salvage"].map(Path::new);
    for damaged in [&table, &db] {
        points(&[get, damaged, Path::new(r"\xff\x00\x00\x00\x00")]);
        points(&[scan, damaged]);
        points(&[verify, damaged]);
    }
    points(&[salvage, &table, &out]);
    fs::remove_file(db.join("CURRENT")).unwrap();
    points(&[get, &db, Path::new(r"\xff\x00\x00\x00\x00")]);
    points(&[salvage, &table, &out]);
    // A table by itself belongs to none.
    let alone = scratch.path().join("000002.ldb");
    fs::copy(&table, &alone).unwrap();
    let line = complaint(run([scan, &alone]), 2);
    assert!(!line.contains("leveltable repair"), "{line}");
}

/// The keys of an empty IndexedDB could be in either order.
#[test]
fn an_unknown_order_is_asked_for() {
    let scratch = TempDir::new().unwrap();
    let db = scratch.path().join("db");
    let mut builder = DatabaseBuilder::create(&db, DatabaseBuildOptions::new()).unwrap();
    builder.put([0; 5], "5").unwrap();
    builder.finish().unwrap();
    fs::remove_file(db.join("MANIFEST-000001")).unwrap();
    let line = complaint(repair(&db, "new", &[]), 2);
    assert!(line.contains("--comparator"), "{line}");
    let output = repair(&db, "new", &["--comparator", "idb_cmp1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let info = run([Path::new("info"), &scratch.path().join("new")]);
    let info = String::from_utf8(info.stdout).unwrap();
    assert!(info.contains("idb_cmp1"), "{info}");
}
