//! Damaged tables, for each command.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use leveltable::filter::PrefixExtractor;
use leveltable::{Comparator, WriteOptions};
use serde_json::Value;
use tempfile::TempDir;

use super::{Golden, complaint, golden_tables, json_lines, names_in, run, stdout, testdata, tool};

/// LevelDB's tables are sound. Of those in another order, everything but the order is, and the report says so if that
/// is detectable.
#[test]
fn verify_finds_leveldbs_tables_sound() {
    let tables = golden_tables();
    let (others, known): (Vec<&Golden>, Vec<&Golden>) = tables.iter().partition(|t| t.is_reverse);
    let mut verify = tool();
    verify
        .args(["verify", "--json"])
        .args(known.iter().map(|table| &table.path));
    let reports = json_lines(&stdout(verify.output().unwrap()));
    assert_eq!(reports.len(), known.len());
    for (table, report) in known.iter().zip(reports) {
        assert_eq!(report["sound"], true, "{report}");
        assert_eq!(report["entries"], table.entries.len(), "{report}");
        assert_eq!(report["checked_bytes"], report["file_bytes"], "{report}");
        assert_eq!(report["keys"] == "database", table.is_database, "{report}");
    }
    let output = tool()
        .args(["verify", "--json"])
        .args(others.iter().map(|table| &table.path))
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stderr.is_empty(), "{output:?}");
    let reports = json_lines(&output.stdout);
    let noted = reports.iter().filter(|r| r["order_known"] == false).count();
    assert!(noted > 4, "{noted}");
    for (table, report) in others.iter().zip(&reports) {
        assert_eq!(report["damage"], 0, "{report}");
        assert_eq!(report["unchecked"], 0, "{report}");
        assert_eq!(report["sound"], report["order_known"], "{report}");
        assert_eq!(report["entries"], table.entries.len(), "{report}");
        let verify = || [Path::new("verify"), &table.path];
        let output = run(verify());
        let is_known = report["order_known"] == true;
        assert_eq!(output.status.code(), Some(if is_known { 0 } else { 3 }));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.len() < 400, "{text}");
        assert_eq!(
            text.contains(": blocks sound, order not known: "),
            !is_known
        );
        let known = run(verify().into_iter().chain([Path::new("--stored-order")]));
        let text = String::from_utf8(stdout(known)).unwrap();
        assert!(text.contains(": sound: "), "{text}");
    }
}

#[test]
fn verify_tells_sound_from_damaged_from_unreadable_by_its_status() {
    let directory = TempDir::new().unwrap();
    let sound = testdata("words-b1024-r16-bloom10.ldb");
    let damaged = directory.path().join("damaged.ldb");
    let mut bytes = fs::read(&sound).unwrap();
    // In two data blocks, and in the filter.
    for at in [100, 3_000, 8_200] {
        bytes[at] ^= 0x10;
    }
    fs::write(&damaged, &bytes).unwrap();
    let missing = directory.path().join("missing.ldb");
    let verify = |args: &[&str], files: &[&PathBuf]| {
        tool()
            .arg("verify")
            .args(args)
            .args(files)
            .output()
            .unwrap()
    };

    let output = verify(&[], &[&damaged]);
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8(output.stdout).unwrap();
    for section in [
        "data block at offset 0",
        "data block at offset 2099",
        "filter block at offset 8060",
    ] {
        assert!(report.contains(&format!("damage: {section}")), "{report}");
    }

    let output = verify(&[], &[&missing, &damaged, &sound]);
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(complaint(output, 2).contains("no such file"));
    assert!(
        stdout.contains("damaged, ") && stdout.contains(": sound: 300 entries"),
        "{stdout}"
    );

    for (files, status) in [(vec![&sound], 0), (vec![&sound, &damaged], 1)] {
        let output = verify(&["--quiet"], &files);
        assert_eq!(output.status.code(), Some(status));
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
}

/// Runs each command on the same files and compares the exit status with `--help`.
#[test]
fn each_command_ends_with_the_status_that_the_help_gives() {
    let directory = TempDir::new().unwrap();
    let sound = fs::read(testdata("words-b1024-r16-bloom10.ldb")).unwrap();
    let (mut data, mut index) = (sound.clone(), sound.clone());
    data[100] ^= 1;
    index[8_600] ^= 1;
    let file = directory.path().join("table.ldb");
    let out = directory.path().join("out.ldb");
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    for (what, bytes, statuses) in [
        ("sound", &sound[..], [0; 5]),
        ("data", &data, [1, 2, 2, 1, 1]),
        ("index", &index, [2, 2, 2, 1, 1]),
        ("empty", b"", [2, 2, 2, 1, 2]),
        ("HTML", &b"<html>".repeat(100), [2, 2, 2, 1, 2]),
    ] {
        fs::write(file, bytes).unwrap();
        let found = [
            run(["info", file]),
            run(["get", file, "user/000000/name"]),
            run(["scan", file]),
            run(["verify", file]),
            run(["salvage", file, out, "--force"]),
        ]
        .map(|output| output.status.code().unwrap());
        assert_eq!(found, statuses, "{what}");
    }
    let missing = run([
        "get",
        testdata("words-b1024-r16-bloom10.ldb").to_str().unwrap(),
        "x",
    ]);
    assert_eq!(missing.status.code(), Some(1));
}

/// Forwards, backwards and within bounds.
#[test]
fn scan_goes_on_after_damaged_blocks() {
    let directory = TempDir::new().unwrap();
    let damaged = directory.path().join("damaged.ldb");
    for (name, damages) in [
        ("words-b1024-r16-bloom10.ldb", &[3_000, 6_000][..]),
        ("words-b1024-r16-bloom10.ldb", &[10]),
        ("words-b1024-r16-bloom10.ldb", &[8_600]),
        ("db-log-snappy.ldb", &[3_000]),
    ] {
        let table = golden_tables()
            .into_iter()
            .find(|t| t.columns[0] == name)
            .unwrap();
        let mut bytes = fs::read(&table.path).unwrap();
        for &at in damages {
            bytes[at] ^= 1;
        }
        fs::write(&damaged, bytes).unwrap();
        let scan = |more: &[&str]| {
            let mut scan = tool();
            scan.args(["scan", "--hex"]).arg(&damaged).args(more);
            scan.output().unwrap()
        };
        assert_eq!(scan(&[]).status.code(), Some(2), "{name}");
        let output = scan(&["--skip-damaged"]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let errors = String::from_utf8(output.stderr).unwrap();
        let left_out = errors.lines().filter(|l| l.starts_with("left out: "));
        assert_eq!(left_out.count(), damages.len(), "{name}: {errors}");
        let shown = String::from_utf8(output.stdout).unwrap();
        let all = table.hex_lines();
        let mut rest = all.lines();
        assert!(shown.lines().all(|line| rest.any(|l| l == line)), "{name}");
        assert!(shown.len() > all.len() / 2, "{name}");

        let backwards = String::from_utf8(scan(&["--skip-damaged", "--reverse"]).stdout).unwrap();
        assert!(backwards.lines().rev().eq(shown.lines()), "{name}");
        let prefix = "757365722f3030";
        let some = scan(&["--skip-damaged", "--prefix", prefix]).stdout;
        let expected: String = { shown.split_inclusive('\n') }
            .filter(|line| line.starts_with(prefix))
            .collect();
        assert_eq!(String::from_utf8(some).unwrap(), expected, "{name}");
        let few = scan(&["--skip-damaged", "--limit=100"]).stdout;
        let expected: String = shown.split_inclusive('\n').take(100).collect();
        assert_eq!(String::from_utf8(few).unwrap(), expected, "{name}");
    }
    // Nothing is left out of a table without its last byte, but it does not pass for a sound one.
    let sound = testdata("words-b1024-r16-bloom10.ldb");
    let bytes = fs::read(&sound).unwrap();
    fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
    let scan = tool()
        .args(["scan", "--skip-damaged"])
        .arg(&damaged)
        .output()
        .unwrap();
    assert_eq!(scan.stdout, stdout(run([Path::new("scan"), &sound])));
    assert!(complaint(scan, 0).starts_with("damaged: "));
    let scan = tool().args(["scan", "--skip-damaged"]).arg(&sound).output();
    assert_eq!(
        stdout(scan.unwrap()),
        stdout(run([Path::new("scan"), &sound]))
    );
}

/// The data can be read without them.
#[test]
fn info_shows_a_table_whose_filter_metaindex_or_properties_are_damaged() {
    let directory = TempDir::new().unwrap();
    let damaged = directory.path().join("damaged.ldb");
    let golden = fs::read(testdata("words-b1024-r16-bloom10.ldb")).unwrap();
    let mut builder = WriteOptions::new().build(Vec::new());
    for i in 0..300 {
        builder.add(format!("key {i:03}"), "value").unwrap();
    }
    let (stated, _) = builder.finish_into_writer().unwrap();
    let creator = stated.windows(7).position(|bytes| bytes == b"creator");
    for (sound, at, section, filter) in [
        (
            &golden,
            8_200,
            "filter block",
            "filter  not used: it is damaged",
        ),
        (
            &golden,
            8_480,
            "metaindex block",
            "filter  unknown: the metaindex",
        ),
        (
            &stated,
            creator.unwrap(),
            "properties block",
            "filter  not used: the properties are damaged",
        ),
    ] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&damaged, bytes).unwrap();
        let mut info = tool();
        let output = info
            .args(["info", "--full"])
            .arg(&damaged)
            .output()
            .unwrap();
        let shown = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(
            shown.contains("300 entries\n") && shown.contains(filter),
            "{shown}"
        );
        let fault = complaint(output, 1);
        assert!(
            fault.starts_with("unreadable: ") && fault.contains(section),
            "{fault}"
        );
        let output = tool()
            .args(["info", "--json"])
            .arg(&damaged)
            .output()
            .unwrap();
        let info: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(info["unreadable"].as_array().unwrap().len(), 1);
        let sections = info["sections"].as_array().unwrap();
        let bytes = sections.iter().map(|s| s["stored_bytes"].as_u64().unwrap());
        assert_eq!(bytes.sum::<u64>(), info["file_bytes"].as_u64().unwrap());
    }
}

/// A table of any order and any extractor may come from anybody.
#[test]
fn info_escapes_names_from_the_file() {
    #[derive(Debug)]
    struct Named(&'static str);
    impl Comparator for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            b.cmp(a)
        }
    }
    impl PrefixExtractor for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn prefix_len(&self, _: &[u8]) -> Option<usize> {
            Some(0)
        }
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("names.ldb");
    let name = "a\x1b[2J\nb \u{9b}";
    let escaped = "a\\x1b[2J\\nb ";
    let reversed = WriteOptions::new().comparator(Named(name));
    let with_prefixes = WriteOptions::new().prefix_filter(Named(name));
    for (options, places) in [(reversed, 1), (with_prefixes, 2)] {
        let mut builder = options.build(Vec::new());
        builder.add("b", "").unwrap();
        fs::write(&path, builder.finish_into_writer().unwrap().0).unwrap();
        let shown = String::from_utf8(run(["info".as_ref(), path.as_os_str()]).stdout).unwrap();
        assert_eq!(shown.matches(escaped).count(), places, "{shown}");
        assert!(shown.contains(&format!("\"{escaped}")), "{shown}");
        let is_control = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(is_control), "{shown:?}");
    }
}

#[test]
fn long_values_can_be_cut() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("t.ldb");
    let lines = "a\tshort\nb\tlonger than that\nc\täöüäöü\n";
    stdout(
        tool()
            .arg("build")
            .arg(&out)
            .write_stdin(lines)
            .output()
            .unwrap(),
    );
    let scan = |more: &[&str]| tool().arg("scan").arg(&out).args(more).output().unwrap();
    let cut = String::from_utf8(stdout(scan(&["--width=5"]))).unwrap();
    assert_eq!(cut, "a\tshort\nb\tlonge..\nc\täöüäö..\n");
    let cut = String::from_utf8(stdout(scan(&["--width=4", "--hex"]))).unwrap();
    assert_eq!(cut, "61\t7368..\n62\t6c6f..\n63\tc3a4..\n");
    assert_eq!(scan(&["--width=4", "--json"]).status.code(), Some(2));
}

/// Salvage returns the entries that C++ LevelDB wrote, without those of the destroyed block.
#[test]
fn salvage_copies_intact_blocks_and_reports_what_is_lost() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("rescued.ldb");
    for name in ["words-b1024-r16-bloom10.ldb", "db-log-snappy.ldb"] {
        let table = golden_tables()
            .into_iter()
            .find(|t| t.columns[0] == name)
            .unwrap();
        let bytes = fs::read(&table.path).unwrap();
        let damaged = directory.path().join(name);
        let salvage = |bytes: &[u8]| {
            fs::write(&damaged, bytes).unwrap();
            let output = tool()
                .arg("salvage")
                .args([&damaged, &out])
                .arg("--force")
                .output();
            output.unwrap()
        };
        let rescued = || {
            let shown = stdout(tool().arg("scan").arg(&out).arg("--hex").output().unwrap());
            String::from_utf8(shown).unwrap()
        };

        // A sound table is copied completely.
        assert!(
            String::from_utf8(stdout(salvage(&bytes)))
                .unwrap()
                .contains("nothing lost")
        );
        assert_eq!(rescued(), table.hex_lines());

        // One damaged block.
        let mut destroyed = bytes.clone();
        destroyed[3_000] ^= 1;
        let output = salvage(&destroyed);
        assert_eq!(output.status.code(), Some(1));
        let report = String::from_utf8(output.stdout).unwrap();
        assert!(report.contains("lost bytes"), "{report}");
        let (all, some) = (table.hex_lines(), rescued());
        let all: BTreeSet<&str> = all.lines().collect();
        let some: BTreeSet<&str> = some.lines().collect();
        assert!(some.is_subset(&all) && some.len() < all.len());
        assert!(
            some.len() > all.len() * 3 / 4,
            "{} of {}",
            some.len(),
            all.len()
        );

        // No footer and no index.
        let output = salvage(&bytes[..bytes.len() - 100]);
        assert_eq!(output.status.code(), Some(1));
        let report = String::from_utf8(output.stdout).unwrap();
        assert!(report.contains("the index is lost"), "{report}");
        assert_eq!(rescued(), table.hex_lines());
    }
}

/// `-` means standard output to `build`. `salvage` refuses it and does not create a file of that name.
#[test]
fn salvage_refuses_a_dash_for_a_file() {
    let directory = TempDir::new().unwrap();
    let table = testdata("words-b1024-r16-bloom10.ldb");
    let salvage = |out: &str| {
        let mut salvage = tool();
        salvage.current_dir(directory.path());
        salvage.arg("salvage").arg(&table).arg(out);
        salvage.output().unwrap()
    };
    let complaint = complaint(salvage("-"), 2);
    assert!(complaint.contains("OUT must be a file"), "{complaint}");
    assert!(names_in(directory.path()).is_empty());
    stdout(salvage("./-"));
    assert_eq!(names_in(directory.path()), BTreeSet::from(["-".to_owned()]));
}

/// Its entries are records of tables: a copy of them is no data, and was reported as complete.
#[test]
fn salvage_refuses_the_manifest_of_a_set() {
    let directory = TempDir::new().unwrap();
    let [manifest, out] = ["manifest", "out.ldb"].map(|name| directory.path().join(name));
    let mut builder = WriteOptions::new().create(&manifest).unwrap();
    builder.add("last key", "a record of a table").unwrap();
    builder.property("leveltable.set", "1").unwrap();
    builder.finish().unwrap();
    let mut sound = fs::read(&manifest).unwrap();
    for _ in 0..2 {
        let output = tool().arg("salvage").args([&manifest, &out]).output();
        let line = complaint(output.unwrap(), 2);
        assert!(line.contains("is the manifest of a set"), "{line}");
        assert!(!out.exists());
        // Nor is it copied if it is damaged.
        sound[5] ^= 1;
        fs::write(&manifest, &sound).unwrap();
    }
}

#[test]
fn salvage_harms_neither_file() {
    let directory = TempDir::new().unwrap();
    let damaged = directory.path().join("damaged.ldb");
    let mut bytes = fs::read(testdata("words-b4096-r16-nofilter.ldb")).unwrap();
    let footer = bytes.split_off(bytes.len() - 48);
    fs::write(&damaged, [vec![7; 100], footer].concat()).unwrap();
    let kept = directory.path().join("kept.ldb");
    fs::write(&kept, "kept").unwrap();
    let new = directory.path().join("new.ldb");
    let missing = directory.path().join("missing.ldb");
    for (from, to, force, words) in [
        (&damaged, &new, false, "nothing to salvage"),
        (&damaged, &kept, true, "nothing to salvage"),
        (&damaged, &kept, false, "already exists"),
        (&damaged, &damaged, true, "the same file"),
        (&missing, &new, false, "no such file"),
    ] {
        let mut salvage = tool();
        salvage.arg("salvage").args([from, to]);
        if force {
            salvage.arg("--force");
        }
        let before = fs::read(&damaged).unwrap();
        let complaint = complaint(salvage.output().unwrap(), 2);
        assert!(complaint.contains(words), "{complaint}");
        assert_eq!(fs::read(&damaged).unwrap(), before);
        assert_eq!(fs::read(&kept).unwrap(), b"kept");
        assert_eq!(names_in(directory.path()).len(), 2, "{complaint}");
    }
}
