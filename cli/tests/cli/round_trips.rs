//! What `scan` prints, `build` reads; what people have, too; ranges, notations.

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use super::{complaint, hex, json_lines, read_entries, run, stdout, testdata, tool};

/// `build` reads every format that `scan` prints, in any order, and sorts it with little memory.
#[test]
fn build_reads_back_what_scan_prints() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("back.ldb");
    let out = out.to_str().unwrap();
    for name in [
        "extremes-b4096-r16-bloom10.ldb",
        "words-b4096-r16-bloom10-snappy.ldb",
        "large-b4096-r16-bloom10.ldb",
        "versions-b512-r16-nofilter.ldb",
        "db-log-snappy.ldb",
    ] {
        let path = testdata(name);
        let path = path.to_str().unwrap();
        let original = stdout(run(["scan", path, "--hex"]));
        let is_database = stdout(run(["info", path, "--json"]));
        let is_database =
            serde_json::from_slice::<Value>(&is_database).unwrap()["keys"] == "database";
        for (form, sort) in [
            (&[][..], &[][..]),
            (&["--hex"], &["--codec=zstd"]),
            (&["--json"], &["--codec=zlib", "--level=9"]),
            (&["--json", "--hex"], &["--codec=deflate", "--filter=none"]),
            (&["--reverse"], &["--sort"]),
            (&["--reverse", "--json"], &["--sort", "--sort-memory=1K"]),
        ] {
            let lines = stdout(tool().args(["scan", path]).args(form).output().unwrap());
            let mut build = tool();
            build.args(["build", out, "--force"]).args(sort);
            if is_database {
                build.arg("--keys=database");
            }
            if form == ["--hex"] {
                build.arg("--hex");
            }
            if form.contains(&"--json") {
                build.arg("--format=jsonl");
            }
            assert_eq!(stdout(build.write_stdin(lines).output().unwrap()), b"");
            let back = stdout(run(["scan", out, "--hex"]));
            assert!(back == original, "{name} {form:?} {sort:?}");
        }
    }
}

/// CSV and JSON lines as other programs write them, and text that only looks like them.
#[test]
fn build_reads_what_people_have() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("t.ldb");
    let csv = "id,name,note\n10,\"Smith, J.\",\"said \"\"hi\"\"\ntwice\"\n2,Müller,\n";
    let jsonl = "{\"id\": 10, \"v\": {\"b\": [1, 2.50]}, \"x\": 0}\n\
                 {\"id\":\"a\\tb\",\"v\":\"t\\u00fcr\"}\n{\"id_hex\":\"ff\",\"v\":null}\n";
    for (args, lines, expected) in [
        (&["--format=csv"][..], "a,1\nb,2\n", "a\t1\nb\t2\n"),
        (
            &[
                "--format=csv",
                "--key-field=id",
                "--value-field=note",
                "--sort",
            ],
            csv,
            "10\tsaid \"hi\"\\ntwice\n2\t\n",
        ),
        (
            &[
                "--format=csv",
                "--key-field=1",
                "--value-field=2",
                "--header",
                "--sort",
            ],
            csv,
            "10\tSmith, J.\n2\tMüller\n",
        ),
        (
            &["--format=csv", "--delimiter=;", "--value-field=3"],
            "a;x;C:\\d\n",
            "a\tC:\\\\d\n",
        ),
        (&["--format=csv", "--delimiter=\\t"], "a\tb\n", "a\tb\n"),
        (&["--format=csv", "--hex"], "61,62\n", "a\tb\n"),
        (&["--format=csv"], "\u{feff}a,b\n", "a\tb\n"),
        (
            &["--format=csv", "--keys=database"],
            "a,9,value,red\na,4,deletion,\n",
            "a\t9\tvalue\tred\na\t4\tdeletion\t\n",
        ),
        (
            &["--format=jsonl", "--key-field=id", "--value-field=v"],
            jsonl,
            "10\t{\"b\": [1, 2.50]}\na\\tb\ttür\n\\xff\tnull\n",
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value\":7}\n",
            "a\t7\n",
        ),
        (
            &["--format=json"],
            "{\"file\":\"x\",\"key\":true,\"value\":12345678901234567890123}\n",
            "true\t12345678901234567890123\n",
        ),
        (&["--format=tab"], "a\tb\n", "a\tb\n"),
        (
            &["--format=jsonl", "--key-field=id", "--value-field=v"],
            "{\"id\":\"\\\\\",\"x\":1,\"x\":\"\\\":{\",\"v\":{\"v\":[{\"id\":1}]}}\n",
            "\\\\\t{\"v\":[{\"id\":1}]}\n",
        ),
        // A byte order mark is dropped once, at the start of the input.
        (
            &[],
            "\u{feff}a\tb\n\u{feff}c\td\n",
            "a\tb\n\\xef\\xbb\\xbfc\td\n",
        ),
        (&["--hex"], "\u{feff}61\t62\n", "a\tb\n"),
        (&["--raw"], "\u{feff}a\tb\n", "\\xef\\xbb\\xbfa\tb\n"),
        (
            &["--format=jsonl"],
            "\u{feff}{\"key\":\"a\",\"value\":7}\n",
            "a\t7\n",
        ),
        // Quotes that open no field, or close one, stand at any place.
        (
            &["--format=csv"],
            "\u{feff}\"a\",5\"\nb,\"\"\"\"\nc,\"d\"",
            "a\t5\"\nb\t\"\nc\td\n",
        ),
        (
            &[],
            "{\"key\":\"x\",\"value\":\"y\"}\t\n",
            "{\"key\":\"x\",\"value\":\"y\"}\t\n",
        ),
        (&[], "\"a,b\"\t{}\n", "\"a,b\"\t{}\n"),
    ] {
        let mut build = tool();
        build
            .arg("build")
            .arg(&out)
            .arg("--force")
            .args(args)
            .write_stdin(lines);
        stdout(build.output().unwrap());
        let shown = tool().arg("scan").arg(&out).output().unwrap();
        assert_eq!(
            String::from_utf8(stdout(shown)).unwrap(),
            expected,
            "{args:?} {lines}"
        );
    }
}

/// With little memory each run has one entry, so equal keys meet in the merge.
#[test]
fn of_equal_keys_the_last_is_kept_however_they_are_sorted() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("sorted.ldb");
    let lines: String = (0..200)
        .map(|i| format!("{:02}\t{i}\n", i * 37 % 100))
        .collect();
    let expected: String = (0..100u32)
        .map(|key| {
            let last = (0..200).rev().find(|i| i * 37 % 100 == key).unwrap();
            format!("{key:02}\t{last}\n")
        })
        .collect();
    for memory in ["1", "500", "1M"] {
        let mut build = tool();
        build.arg("build").arg(&out).args([
            "--force",
            "--sort",
            "--keep-last",
            "--sort-memory",
            memory,
        ]);
        stdout(build.write_stdin(lines.as_str()).output().unwrap());
        let shown = stdout(tool().arg("scan").arg(&out).output().unwrap());
        assert_eq!(String::from_utf8(shown).unwrap(), expected, "{memory}");
    }
}

/// Each run has one entry, and there are more runs than files that may be open. The last of equal keys is kept across
/// all merges.
#[test]
#[cfg(target_os = "linux")]
fn sorting_with_little_memory_needs_few_files() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("sorted.ldb");
    let lines: String = (0..3_000u32)
        .map(|i| format!("{:04}\t{i}\n", i * 37 % 1_500))
        .collect();
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 100; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_leveltable"))
        .args(["build", "--sort", "--keep-last", "--sort-memory=1"])
        .arg(&out)
        .write_stdin(lines);
    stdout(limited.output().unwrap());
    let shown = stdout(tool().arg("scan").arg(&out).output().unwrap());
    let expected: String = (0..1_500u32)
        .map(|key| {
            let last = (1_500..3_000).find(|i| i * 37 % 1_500 == key).unwrap();
            format!("{key:04}\t{last}\n")
        })
        .collect();
    assert_eq!(String::from_utf8(shown).unwrap(), expected);
}

#[test]
fn ranges_limits_and_prefixes_select_as_a_model_does() {
    let path = testdata("extremes-b64-r3-nofilter.ldb");
    let path = path.to_str().unwrap();
    let keys: Vec<Vec<u8>> = read_entries("extremes.entries")
        .into_iter()
        .map(|e| e.0)
        .collect();
    let some: Vec<Option<&[u8]>> = vec![None, Some(b""), Some(b"\x01\xff"), Some(b"\xff\xff")];
    for from in &some {
        for to in &some {
            for prefix in &some {
                let selected = |key: &&Vec<u8>| {
                    from.is_none_or(|from| &key[..] >= from)
                        && to.is_none_or(|to| &key[..] < to)
                        && prefix.is_none_or(|prefix| key.starts_with(prefix))
                };
                let mut expected: Vec<&Vec<u8>> = keys.iter().filter(selected).collect();
                expected.reverse();
                let mut scan = tool();
                scan.args([
                    "scan",
                    path,
                    "--hex",
                    "--keys-only",
                    "--reverse",
                    "--limit=7",
                ]);
                for (option, key) in [("from", from), ("to", to), ("prefix", prefix)] {
                    if let Some(key) = key {
                        scan.arg(format!("--{option}={}", hex(key)));
                    }
                }
                if let (Some(from), Some(to)) = (from, to)
                    && from > to
                {
                    let refused = complaint(scan.output().unwrap(), 2);
                    assert!(refused.contains("comes after --to"), "{refused}");
                    continue;
                }
                let expected: String = expected.iter().take(7).map(|key| hex(key) + "\n").collect();
                let shown = String::from_utf8(stdout(scan.output().unwrap())).unwrap();
                assert_eq!(shown, expected, "{from:?} {to:?} {prefix:?}");
            }
        }
    }
}

#[test]
fn a_databases_keys_can_be_shown_as_they_are_stored() {
    let path = testdata("db-log.ldb");
    let path = path.to_str().unwrap();
    let entries = read_entries("db-log.entries");
    let shown = stdout(run(["scan", path, "--keys=stored", "--hex", "--keys-only"]));
    let expected: String = entries.iter().map(|(key, _)| hex(key) + "\n").collect();
    assert_eq!(String::from_utf8(shown).unwrap(), expected);
    let (key, value) = &entries[entries.len() / 2];
    let output = run(["get", path, "--keys=stored", "--hex", "--", &hex(key)]);
    assert_eq!(stdout(output), format!("{}\n", hex(value)).as_bytes());
    let complaint = complaint(run(["scan", path, "--keys=stored", "--prefix=a"]), 2);
    assert!(complaint.contains("--prefix"), "{complaint}");
}

#[test]
fn text_is_json_where_it_can_be_and_hexadecimal_where_not() {
    let lines = b"plain\tvalue\n\\xff\t\\x00\n".as_slice();
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("t.ldb");
    let out = out.to_str().unwrap();
    stdout(
        tool()
            .args(["build", out])
            .write_stdin(lines)
            .output()
            .unwrap(),
    );
    let shown = json_lines(&stdout(run(["scan", out, "--json"])));
    assert_eq!(
        shown[0],
        serde_json::json!({"file": out, "key": "plain", "value": "value"})
    );
    assert_eq!(
        shown[1],
        serde_json::json!({"file": out, "key_hex": "ff", "value": "\0"})
    );
    let shown = json_lines(&stdout(run(["scan", out, "--json", "--hex"])));
    assert_eq!(
        shown[1],
        serde_json::json!({"file": out, "key_hex": "ff", "value_hex": "00"})
    );
    // --raw prints the bytes of a value, and escapes name a key of arbitrary bytes.
    assert_eq!(stdout(run(["get", out, r"\xff", "--raw"])), b"\0");
}

/// Lines of files from Windows end with one. A raw or escaped carriage return is part of the value.
#[test]
fn a_carriage_return_at_the_end_of_a_line_is_no_value() {
    for (args, lines, value) in [
        (&[][..], "k\tv\r\n", "76"),
        (&[], "k\tv\r\r\n", "760d"),
        (&[], "k\tv\\r\r\n", "760d"),
        (&["--hex"], "6b\t76\r\n", "76"),
        (&["--raw"], "k\tv\r\n", "760d"),
        (
            &["--format=jsonl"],
            "{\"key\":\"k\",\"value\":\"v\\r\"}\r\n",
            "760d",
        ),
        (&["--format=csv"], "k,v\r\n", "76"),
        (&["--format=csv"], "k,\"v\r\"\r\n", "760d"),
    ] {
        let directory = TempDir::new().unwrap();
        let out = directory.path().join("t.ldb");
        let mut build = tool();
        build.arg("build").arg(&out).args(args).write_stdin(lines);
        stdout(build.output().unwrap());
        let scan = tool().args(["scan", "--hex"]).arg(&out).output();
        let shown = stdout(scan.unwrap());
        let expected = format!("6b\t{value}\n");
        assert_eq!(String::from_utf8(shown).unwrap(), expected, "{lines:?}");
    }
}
