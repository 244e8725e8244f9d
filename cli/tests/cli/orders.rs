//! Tables in other orders, and keys of another kind than they seem.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::{
    complaint, golden_tables, hex, json_lines, read_entries, split, stdout,
    stdout_in_unknown_order, testdata, tool,
};

/// `get` reads everything, `salvage` refuses, and `info` shows everything but the filter.
#[test]
fn tables_in_an_unknown_order_can_be_looked_into() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("copy.ldb");
    let mut unknown = 0;
    for table in golden_tables().iter().filter(|table| table.is_reverse) {
        let run = |args: &[&str]| {
            let (command, args) = args.split_first().unwrap();
            tool()
                .arg(command)
                .arg(&table.path)
                .args(args)
                .output()
                .unwrap()
        };
        let output = run(&["info", "--json", "--full"]);
        let info: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(info["entries"], table.entries.len());
        assert_eq!(info["keys"] == "database", table.is_database);
        if info["order_known"] == true {
            continue;
        }
        unknown += 1;
        stdout_in_unknown_order(output);

        let (stored, value) = &table.entries[table.entries.len() / 2];
        let (key, at) = match table.is_database {
            true => {
                let (user_key, sequence, _) = split(stored);
                (user_key, vec![format!("--at={sequence}")])
            }
            false => (&stored[..], vec![]),
        };
        let at: Vec<&str> = at.iter().map(String::as_str).collect();
        let wanted = hex(key);
        let output = run(&[&["get", "--hex"], &at[..], &["--", &wanted]].concat());
        let notes = String::from_utf8(output.stderr).unwrap();
        assert!(
            notes
                .lines()
                .next()
                .unwrap()
                .ends_with("searched by reading the whole table")
        );
        match table.is_database && split(stored).2 == "deletion" {
            true => assert!(notes.contains("deleted at sequence"), "{notes}"),
            false => assert_eq!(output.stdout, format!("{}\n", hex(value)).as_bytes()),
        }
        let output = run(&["get", "--hex", "--", "00112233"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());

        let prefix = hex(&key[..key.len().min(6)]);
        let rows = run(&["scan", "--hex", "--prefix", &prefix]);
        let rows = String::from_utf8(stdout_in_unknown_order(rows)).unwrap();
        let expected: Vec<String> = { table.entries.iter().map(|entry| table.hex_line(entry)) }
            .filter(|line| line.starts_with(&prefix))
            .collect();
        assert_eq!(rows, expected.concat());
        assert_eq!(run(&["scan", "--from", "a"]).status.code(), Some(2));

        let output = tool()
            .arg("salvage")
            .args([&table.path, &out])
            .arg("--force")
            .output();
        let refused = complaint(output.unwrap(), 2);
        assert!(refused.contains("is not in the order"), "{refused}");
        assert!(!out.exists());
    }
    assert!(unknown > 5, "{unknown}");
}

/// The last byte of a key decides between keys that are otherwise the same: `z` comes before `a`.
#[derive(Debug)]
struct LastByteDescends;

impl leveltable::Comparator for LastByteDescends {
    fn name(&self) -> &str {
        "test.LastByteDescends"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        let split = |key: &[u8]| key.split_last().map(|(last, rest)| (*last, rest.to_vec()));
        let (Some((last_a, rest_a)), Some((last_b, rest_b))) = (split(a), split(b)) else {
            return a.cmp(b);
        };
        rest_a.cmp(&rest_b).then(last_b.cmp(&last_a))
    }
}

/// In a large table, the order shows only when a block is read that is not in byte order.
#[test]
fn an_order_that_shows_late_is_an_order_of_its_own() {
    for is_database in [false, true] {
        check_order_that_shows_late(is_database);
    }
}

fn check_order_that_shows_late(is_database: bool) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("late.ldb");
    let options = leveltable::WriteOptions::new()
        .compression(leveltable::Compression::None)
        .comparator(LastByteDescends);
    let file = || fs::File::create(&path).unwrap();
    let mut plain = options.build(file());
    let mut database = options.build_db(file());
    let mut expected = Vec::new();
    for i in 0..20_000u64 {
        let ends: &[&str] = if i == 15_003 { &["z", "a"] } else { &["a"] };
        for end in ends {
            let (key, value) = (format!("{i:06}{end}"), format!("value of {i}"));
            if is_database {
                database.put(&key, i + 1, &value).unwrap();
                expected.push(format!("{key}\t{}\tvalue\t{value}\n", i + 1));
            } else {
                plain.add(&key, &value).unwrap();
                expected.push(format!("{key}\t{value}\n"));
            }
        }
    }
    if is_database {
        database.finish().unwrap();
    } else {
        plain.finish().unwrap();
    }
    assert!(fs::metadata(&path).unwrap().len() > 200_000);
    let run = |args: &[&str]| {
        let (command, args) = args.split_first().unwrap();
        tool().arg(command).arg(&path).args(args).output().unwrap()
    };
    let scan = |args: &[&str]| String::from_utf8(stdout_in_unknown_order(run(args))).unwrap();
    assert_eq!(scan(&["scan"]), expected.concat());
    expected.reverse();
    assert_eq!(scan(&["scan", "--reverse"]), expected.concat());
    expected.reverse();
    assert_eq!(
        scan(&["scan", "--prefix", "015003"]),
        expected[15_003..15_005].concat()
    );
    assert_eq!(scan(&["get", "015003a"]), "value of 15003\n");
    assert_eq!(
        scan(&["get", "015003z", "019999a"]),
        [&expected[15_003][..], &expected[20_000]].concat()
    );

    // Rows within bounds were shown before the order showed: which ones are left is unknown.
    let output = run(&["scan", "--from", "014990", "--to", "015100"]);
    assert_eq!(output.status.code(), Some(2));
    let info = run(&["info", "--json", "--full"]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["entries"], 20_001);
    assert_eq!(info["order_known"], false);
    assert_eq!(info["comparator"], "test.LastByteDescends");
    let out = directory.path().join("copy.ldb");
    let output = tool().arg("salvage").args([&path, &out]).output().unwrap();
    let refused = complaint(output, 2);
    assert!(refused.contains("test.LastByteDescends"), "{refused}");
}

/// Byte order, except that one key is far from where it belongs: in a block that no lookup of it reads.
#[derive(Debug)]
struct OneAstray;

impl leveltable::Comparator for OneAstray {
    fn name(&self) -> &str {
        "test.OneAstray"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        let place = |key: &[u8]| match key {
            b"010000+" => b"043500".to_vec(),
            key => key.to_vec(),
        };
        place(a).cmp(&place(b)).then_with(|| a.cmp(b))
    }
}

/// Index and blocks that lookups read are in byte order. The answer says that it was assumed, and --check-order misses no key.
#[test]
fn an_order_that_no_lookup_sees_is_found_if_asked_for() {
    // So long that opening checks few of the blocks: not the one of the key.
    let value = "value".repeat(20);
    for (is_database, is_astray) in [(false, true), (true, true), (false, false), (true, false)] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("astray.ldb");
        let options = leveltable::WriteOptions::leveldb()
            .compression(leveltable::Compression::None)
            .comparator(OneAstray);
        let file = || fs::File::create(&path).unwrap();
        let mut keys: Vec<String> = (0..60_000).map(|i| format!("{i:06}")).collect();
        if is_astray {
            keys.insert(43_500, "010000+".into());
        }
        if is_database {
            let mut builder = options.build_db(file());
            for (key, sequence) in keys.iter().zip(1..) {
                builder.put(key, sequence, &value).unwrap();
                if sequence == 30 {
                    // Shows that the keys are a database's.
                    builder.delete(key, 1).unwrap();
                }
            }
            builder.finish().unwrap();
        } else {
            let mut builder = options.build(file());
            for key in &keys {
                builder.add(key, &value).unwrap();
            }
            builder.finish().unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() > 4 << 20);
        let run = |args: &[&str]| {
            let (command, args) = args.split_first().unwrap();
            tool().arg(command).arg(&path).args(args).output().unwrap()
        };
        // One note, however many keys are absent.
        let output = run(&["get", "010000+", "none", "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let notes = String::from_utf8(output.stderr).unwrap();
        let noted = notes.matches("byte order was assumed: --check-order");
        assert_eq!((noted.count(), notes.lines().count()), (1, 3), "{notes}");
        let output = run(&["scan", "--prefix", "010000+"]);
        assert!(output.stdout.is_empty());
        assert!(complaint(output, 0).contains("byte order was assumed: --check-order"));
        // What is found is there in any order, and a walk over all shows the order.
        assert_eq!(
            stdout(run(&["get", "000007"])),
            format!("{value}\n").as_bytes()
        );
        if !is_astray {
            let output = run(&["get", "010000+", "--check-order"]);
            assert!(complaint(output, 1).starts_with("not found: "));
            let output = run(&["scan", "--prefix", "010000+", "--check-order"]);
            assert_eq!(stdout(output), b"");
            continue;
        }
        // The block of the key is not in byte order: a lookup that reads it is an error, and not an answer.
        for part in [
            &["get", "043499"][..],
            &["scan", "--from", "0434", "--to", "0436"],
        ] {
            let error = run(part);
            assert_eq!(error.status.code(), Some(2), "{part:?}");
            let error = String::from_utf8(error.stderr).unwrap();
            assert!(error.contains("--check-order finds out before"), "{error}");
        }
        let kind = if is_database { "database" } else { "plain" };
        let output = run(&["get", "010000+", "--keys", kind]);
        assert!(
            complaint(output, 1).starts_with("not found: "),
            "the order was named"
        );
        assert_eq!(
            stdout_in_unknown_order(run(&["get", "010000+", "--check-order"])),
            format!("{value}\n").as_bytes()
        );
        // A key that is found, the key that is hidden, and an absent key.
        let output = run(&[
            "get",
            "000007",
            "010000+",
            "none",
            "--json",
            "--check-order",
        ]);
        assert_eq!(output.status.code(), Some(1));
        let values: Vec<Value> = json_lines(&output.stdout)
            .into_iter()
            .map(|line| line["value"].clone())
            .collect();
        assert_eq!(
            values,
            [Value::from(&*value), Value::from(&*value), Value::Null]
        );
        for (prefix, rows) in [("010000+", 1), ("01000", 11)] {
            let rows_shown =
                stdout_in_unknown_order(run(&["scan", "--check-order", "--prefix", prefix]));
            let rows_shown = String::from_utf8(rows_shown).unwrap();
            assert_eq!(rows_shown.lines().count(), rows, "{rows_shown}");
        }
        let output = run(&[
            "scan",
            "--check-order",
            "--from",
            "010000+",
            "--to",
            "010001",
        ]);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
    }
}

/// `--keys` overrules the guess, in every command.
#[test]
fn the_kind_of_keys_can_be_named() {
    let directory = TempDir::new().unwrap();
    let path = testdata("db-log.ldb");
    let run = |command: &str, keys: &str, more: &[&Path]| {
        let mut tool = tool();
        tool.args([command, "--keys", keys])
            .arg(&path)
            .args(more)
            .output()
            .unwrap()
    };
    let entries = read_entries("db-log.entries");
    let plain = run("scan", "plain", &[Path::new("--hex")]);
    let lines: String = { entries.iter() }
        .map(|(key, value)| format!("{}\t{}\n", hex(key), hex(value)))
        .collect();
    assert_eq!(stdout_in_unknown_order(plain), lines.as_bytes());
    let wanted = hex(&entries[7].0);
    let plain = run("get", "plain", &["--hex", "--", &wanted].map(Path::new));
    assert_eq!(
        stdout_in_unknown_order(plain),
        format!("{}\n", hex(&entries[7].1)).as_bytes()
    );
    for keys in ["plain", "database", "auto"] {
        let report = run("verify", keys, &[Path::new("--json")]);
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["keys"] == "plain", keys == "plain", "{report}");
        let out = directory.path().join(keys);
        let salvaged = run("salvage", keys, &[&out]);
        if keys == "plain" {
            // Its versions do not ascend bytewise.
            assert!(complaint(salvaged, 2).contains("is not in the order"));
            continue;
        }
        assert_eq!(salvaged.status.code(), Some(0), "{keys}");
        let mut copied = tool();
        copied.args(["scan", "--hex", "--keys=stored"]).arg(&out);
        let copied = stdout(copied.output().unwrap());
        assert_eq!(copied, lines.as_bytes(), "{keys}");
    }
    let words = testdata("words-b1024-r16-bloom10.ldb");
    for command in ["info", "scan"] {
        let output = tool()
            .args([command, "--keys=database"])
            .arg(&words)
            .output();
        assert!(complaint(output.unwrap(), 2).contains("--keys"));
    }
}
