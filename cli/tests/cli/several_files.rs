//! Several files, directories, and keys from standard input.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::{complaint, json_lines, stdout, testdata, tool};

#[test]
fn files_and_directories_are_shown_in_number_order() {
    let directory = TempDir::new().unwrap();
    let table = fs::read(testdata("words-b1024-r16-bloom10.ldb")).unwrap();
    for name in [
        "000010.ldb",
        "9.sst",
        "000009.ldb",
        "other.ldb",
        "000003.log",
        "LOCK",
    ] {
        fs::write(directory.path().join(name), &table).unwrap();
    }
    fs::create_dir(directory.path().join("1.ldb")).unwrap();
    let in_order = ["000009.ldb", "9.sst", "000010.ldb", "other.ldb"];
    let paths = in_order.map(|name| directory.path().join(name));
    let run = |args: &[&str]| tool().args(args).arg(directory.path()).output().unwrap();

    // A heading would be a row for a program.
    let row = "user/000000/email\tsomeone0@example.org\n";
    let shown = String::from_utf8(stdout(run(&["scan", "--limit=1"]))).unwrap();
    assert_eq!(shown, row.repeat(4));

    let shown = String::from_utf8(stdout(run(&["info"]))).unwrap();
    let expected = paths.each_ref().map(|p| p.to_str().unwrap());
    let titles: Vec<&str> = { shown.lines() }
        .filter(|line| expected.contains(line))
        .collect();
    assert_eq!(titles, expected);

    for command in ["info", "verify", "scan"] {
        let records = json_lines(&stdout(run(&[command, "--json"])));
        let mut files: Vec<&str> = records
            .iter()
            .map(|r| r["file"].as_str().unwrap())
            .collect();
        files.dedup();
        assert_eq!(
            files,
            paths.each_ref().map(|p| p.to_str().unwrap()),
            "{command}"
        );
    }

    let empty = TempDir::new().unwrap();
    for command in ["info", "verify", "scan"] {
        let output = tool().arg(command).arg(empty.path()).output().unwrap();
        assert!(complaint(output, 2).contains("an empty directory"));
    }
}

/// Programs can rely on a record for each file, with the same fields.
#[test]
fn each_file_has_a_record_whatever_became_of_it() {
    let directory = TempDir::new().unwrap();
    let sound = testdata("words-b1024-r16-bloom10.ldb");
    let mut bytes = fs::read(&sound).unwrap();
    bytes[3_000] ^= 1;
    let damaged = directory.path().join("damaged.ldb");
    fs::write(&damaged, &bytes).unwrap();
    let text = directory.path().join("text.ldb");
    fs::write(&text, "no table ".repeat(20)).unwrap();
    let missing = directory.path().join("missing.ldb");
    let files = [
        &damaged,
        &missing,
        &text,
        &sound,
        &testdata("db-compacted-reverse.ldb"),
    ];
    for (command, failures) in [("info", 2), ("verify", 1)] {
        for more in [&["--json"][..], &["--json", "--blocks"]] {
            if command == "verify" && more.len() > 1 {
                continue;
            }
            let output = tool().arg(command).args(more).args(files).output().unwrap();
            assert_eq!(output.status.code(), Some(2));
            let records = json_lines(&output.stdout);
            assert_eq!(records.len(), files.len(), "{command}");
            let fields = |record: &Value| -> Vec<String> {
                record.as_object().unwrap().keys().cloned().collect()
            };
            for (record, file) in records.iter().zip(files) {
                // Of what cannot be read, `info` does not know of which kind it is.
                if command == "verify" || record["error"].is_null() {
                    assert_eq!(fields(record), fields(&records[0]), "{command}");
                } else {
                    assert_eq!(fields(record), ["error", "file", "kind"]);
                }
                assert_eq!(record["file"], file.to_str().unwrap());
                assert_eq!(record["error"].is_null(), !record["file_bytes"].is_null());
                // One file has the same record as one of several.
                let alone = tool().arg(command).args(more).arg(file).output().unwrap();
                assert_eq!(json_lines(&alone.stdout), std::slice::from_ref(record));
            }
            let failed = records.iter().filter(|record| !record["error"].is_null());
            assert_eq!(failed.count(), failures, "{command}");
        }
    }
    let output = tool()
        .args(["scan", "--json"])
        .args(files)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let failed: Vec<Value> = { json_lines(&output.stdout).into_iter() }
        .filter(|record| !record["error"].is_null())
        .collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
    let alone = tool().args(["scan", "--json"]).arg(&text).output().unwrap();
    assert_eq!(json_lines(&alone.stdout), [failed[2].clone()]);
}

/// On a terminal, the entries of several files have headings.
#[test]
#[cfg(target_os = "linux")]
fn a_terminal_shows_headings() {
    let table = testdata("words-b1024-r16-bloom10.ldb");
    let (tool, table) = (env!("CARGO_BIN_EXE_leveltable"), table.to_str().unwrap());
    let command = format!("{tool} scan -n 1 {table} {table}");
    let output = assert_cmd::Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown.matches(&format!("==> {table} <==")).count(), 2);
}

#[test]
fn get_takes_several_keys_and_standard_input() {
    let path = testdata("words-b1024-r16-bloom10.ldb");
    let get = |args: &[&str], stdin: &'static str| {
        let mut get = tool();
        get.arg("get").arg(&path).args(args).write_stdin(stdin);
        get.output().unwrap()
    };
    let (a, b) = ("user/000000/name", "user/000037/email");
    let rows = "user/000000/name\ttable footer \nuser/000037/email\tsomeone1@example.org\n";
    assert_eq!(stdout(get(&[a, b], "")), rows.as_bytes());
    let lines = "user/000000/name\r\n\nuser/000037/email";
    assert_eq!(stdout(get(&["-"], lines)), rows.as_bytes());
    assert_eq!(stdout(get(&[a, "-"], b)), rows.as_bytes());
    let one = stdout(get(&["-"], "user\\x2f000000/name"));
    assert_eq!(one, b"user/000000/name\ttable footer \n");

    let marked = "\u{feff}user/000000/name\n";
    assert_eq!(
        stdout(get(&["-"], marked)),
        b"user/000000/name\ttable footer \n"
    );
    assert!(complaint(get(&["-", "--raw"], marked), 1).starts_with("not found: key"));
    let note = complaint(get(&["-"], "\n"), 0);
    assert_eq!(note, "note: standard input has no keys");

    let output = get(&["absent", b, "--json"], "");
    let records = json_lines(&output.stdout);
    assert_eq!(
        records[0],
        serde_json::json!({"key": "absent", "value": null})
    );
    assert_eq!(records[1]["value"], "someone1@example.org");
    assert!(complaint(output, 1).starts_with("not found: key \"absent\""));

    let refused = complaint(get(&["-"], "\nb\\q\n"), 2);
    assert!(
        refused.contains("standard input, line 2: `\\q`"),
        "{refused}"
    );

    // Damage hides one key, and the other is still found.
    let directory = TempDir::new().unwrap();
    let damaged = directory.path().join("damaged.ldb");
    let mut bytes = fs::read(&path).unwrap();
    bytes[3_000] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let args = ["--json", "user/000999/name", a];
    let output = tool().arg("get").arg(&damaged).args(args).output().unwrap();
    let records = json_lines(&output.stdout);
    assert!(
        records[0]["error"]
            .as_str()
            .unwrap()
            .contains("corrupt data block")
    );
    assert_eq!(records[1]["value"], "table footer ");
    complaint(output, 2);
}
