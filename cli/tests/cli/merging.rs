//! `merge`, against the entries of the tables that went in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{complaint, names_in, run, stdout, testdata, tool};

/// Builds a table of `lines` in `directory`. Returns its path.
fn build(directory: &Path, name: &str, lines: &str, options: &[&str]) -> String {
    let path = directory.join(name).to_str().unwrap().to_owned();
    let mut build = tool();
    build.args(["build", &path]).args(options);
    stdout(build.write_stdin(lines).output().unwrap());
    path
}

fn scan(path: &str) -> String {
    String::from_utf8(stdout(run(["scan", path]))).unwrap()
}

#[test]
fn tables_become_one() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let mut model = BTreeMap::new();
    let mut parts = Vec::new();
    for part in 0..3 {
        let entries =
            (0..2_000).map(|i| (format!("{:06}", i * 3 + part), format!("{part} of {i}")));
        let entries: BTreeMap<String, String> = entries.collect();
        let lines: String = { entries.iter() }
            .map(|(key, value)| format!("{key}\t{value}\n"))
            .collect();
        parts.push(build(directory.path(), &format!("{part}.ldb"), &lines, &[]));
        model.extend(entries);
    }
    let out = path("all.ldb");
    stdout(run(["merge", &out, &parts[1], &parts[0], &parts[2]]));
    let expected: String = { model.iter() }
        .map(|(key, value)| format!("{key}\t{value}\n"))
        .collect();
    assert_eq!(scan(&out), expected);
    // Bytes as `build` writes them, to a file and to standard output, with the same options.
    let built = build(directory.path(), "built.ldb", &expected, &["--codec=none"]);
    let merged = run([
        "merge",
        "-",
        &parts[0],
        &parts[1],
        &parts[2],
        "--codec=none",
    ]);
    assert_eq!(stdout(merged), fs::read(built).unwrap());
    // All tables of a directory.
    let refused = complaint(run(["merge", &out, directory.path().to_str().unwrap()]), 2);
    assert!(refused.contains("already exists"), "{refused}");
}

#[test]
fn a_key_of_two_tables_needs_a_decision() {
    let directory = TempDir::new().unwrap();
    let old = build(directory.path(), "old.ldb", "a\told\nb\tonly\n", &[]);
    let new = build(directory.path(), "new.ldb", "a\tnew\nc\tonly\n", &[]);
    let out = directory
        .path()
        .join("out.ldb")
        .to_str()
        .unwrap()
        .to_owned();
    let refused = complaint(run(["merge", &out, &old, &new]), 2);
    assert!(refused.contains("duplicate key \"a\""), "{refused}");
    assert_eq!(names_in(directory.path()).len(), 2);
    stdout(run(["merge", &out, &old, &new, "--keep-last"]));
    assert_eq!(scan(&out), "a\tnew\nb\tonly\nc\tonly\n");
    stdout(run(["merge", &out, &new, &old, "--keep-last", "--force"]));
    assert_eq!(scan(&out), "a\told\nb\tonly\nc\tonly\n");
}

/// All versions are kept, the newest first.
#[test]
fn tables_of_a_database_become_one() {
    let directory = TempDir::new().unwrap();
    let database = ["--keys=database"];
    let old = build(
        directory.path(),
        "1.ldb",
        "a\t3\tvalue\tx\nb\t1\tvalue\ty\n",
        &database,
    );
    let new = build(
        directory.path(),
        "2.ldb",
        "a\t7\tdeletion\t\na\t2\tvalue\tz\n",
        &database,
    );
    let out = directory.path().join("out").to_str().unwrap().to_owned();
    stdout(run(["merge", &out, directory.path().to_str().unwrap()]));
    assert_eq!(
        scan(&out),
        "a\t7\tdeletion\t\na\t3\tvalue\tx\na\t2\tvalue\tz\nb\t1\tvalue\ty\n"
    );
    let plain = build(directory.path(), "plain", "a\tb\n", &[]);
    for others in [[&old, &plain], [&plain, &new]] {
        let refused = run(["merge", &out, others[0], others[1], "--force"]);
        assert!(complaint(refused, 2).contains("not of the same kind"));
    }
}

#[test]
fn what_cannot_be_merged_is_refused() {
    let directory = TempDir::new().unwrap();
    let out = directory
        .path()
        .join("out.ldb")
        .to_str()
        .unwrap()
        .to_owned();
    let table = testdata("words-b1024-r16-bloom10.ldb");
    let table = table.to_str().unwrap();
    let reverse = testdata("words-reverse-b64-r2-nofilter.ldb");
    let text = testdata("manifest.tsv");
    for (inputs, words) in [
        ([table, reverse.to_str().unwrap()], "an order of their own"),
        ([table, text.to_str().unwrap()], "plain text"),
        ([table, "nowhere.ldb"], "no such file"),
    ] {
        let refused = complaint(run(["merge", &out, inputs[0], inputs[1]]), 2);
        assert!(refused.contains(words), "{refused}");
        assert!(names_in(directory.path()).is_empty());
    }
}
