//! The tool on the tables that C++ LevelDB wrote, and the tables that it builds beside those.

use std::collections::BTreeMap;
use std::fs;

use leveltable::{Compression, WriteOptions};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    Entry, complaint, golden_tables, hex, run, split, stdout, stdout_in_unknown_order, testdata,
    tool,
};

/// Tables in another order are shown in the order in which they are stored, with a note if the tool can tell.
#[test]
fn scan_shows_every_entry_of_leveldbs_tables() {
    let mut noted = 0;
    for table in golden_tables() {
        let scan = |more: &[&str]| {
            let args = ["scan".as_ref(), table.path.as_os_str(), "--hex".as_ref()];
            tool().args(args).args(more).output().unwrap()
        };
        let output = scan(&[]);
        let is_noted = table.is_reverse && !output.stderr.is_empty();
        let stdout = if is_noted {
            stdout_in_unknown_order
        } else {
            stdout
        };
        noted += u32::from(is_noted);
        let expected = table.hex_lines();
        let shown = String::from_utf8(stdout(output)).unwrap();
        assert_eq!(shown, expected, "{}", table.path.display());

        let mut lines: Vec<&str> = expected.lines().collect();
        lines.reverse();
        let backwards = stdout(scan(&["--reverse"]));
        assert!(str::from_utf8(&backwards).unwrap().lines().eq(lines));
    }
    assert!(noted > 5, "{noted}");
}

#[test]
fn get_finds_present_keys_and_reports_absent_ones() {
    for table in golden_tables().iter().filter(|table| !table.is_reverse) {
        let get = |key: &[u8], more: &[String]| {
            let args = ["get".as_ref(), table.path.as_os_str(), "--hex".as_ref()];
            let key = ["--".to_owned(), hex(key)];
            tool().args(args).args(more).args(key).output().unwrap()
        };
        // Each lookup is a process, so look up only a few keys from all over the table.
        let step = table.entries.len() / 5 + 1;
        // A command of Windows has 32,767 characters.
        let fits = |(key, _): &&Entry| cfg!(unix) || key.len() < 10_000;
        for (stored, value) in table.entries.iter().step_by(step).filter(fits) {
            let (key, at, value_type) = match table.is_database {
                true => {
                    let (user_key, sequence, value_type) = split(stored);
                    let at = format!("--at={sequence}");
                    (user_key, vec![at], value_type)
                }
                false => (&stored[..], vec![], "value"),
            };
            let output = get(key, &at);
            match value_type {
                "deletion" => {
                    assert!(output.stdout.is_empty());
                    assert!(complaint(output, 1).starts_with("deleted at sequence"));
                }
                _ => assert_eq!(stdout(output), format!("{}\n", hex(value)).as_bytes()),
            }
        }
        let output = get(b"no such key in any of them", &[]);
        assert!(output.stdout.is_empty());
        let is_large = fs::metadata(&table.path).unwrap().len() > 64 << 10;
        let notes = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(notes.contains("byte order was assumed"), is_large);
        assert!(notes.lines().last().unwrap().starts_with("not found"));
    }
}

/// The expected answers are LevelDB's own, for a user key as of a sequence number.
#[test]
fn get_returns_what_the_database_returned() {
    let text = fs::read_to_string(testdata("db-compacted.lookups.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(1)
        .map(|l| l.split('\t').collect())
        .collect();
    let mut statuses = BTreeMap::new();
    for row in rows.iter().step_by(rows.len() / 40 + 1) {
        let [sequence, key, answer, ..] = row[..] else {
            panic!("{row:?}");
        };
        let path = testdata("db-compacted.ldb");
        let at = format!("--at={sequence}");
        let args = ["get", path.to_str().unwrap(), "--hex", &at, "--", key];
        let output = run(args);
        let status = output.status.code();
        match status {
            Some(0) => {
                assert_eq!(answer, "found", "{row:?}");
                assert_eq!(output.stdout, format!("{}\n", row[3]).as_bytes(), "{row:?}");
            }
            _ => {
                assert_eq!(answer, "absent", "{row:?}");
                complaint(output, 1);
            }
        }
        *statuses.entry(status).or_insert(0) += 1;
    }
    // Both answers occurred several times.
    let is_frequent = |status: i32| statuses.get(&Some(status)) > Some(&5);
    assert!(is_frequent(0) && is_frequent(1), "{statuses:?}");
}

#[test]
fn info_agrees_with_how_leveldb_wrote_the_tables() {
    for table in golden_tables().iter().filter(|table| !table.is_reverse) {
        let args = ["info".as_ref(), table.path.as_os_str()];
        let output = tool()
            .args(args)
            .args(["--json", "--blocks"])
            .output()
            .unwrap();
        let info: Value = serde_json::from_slice(&stdout(output)).unwrap();
        let number = |value: &Value| value.as_u64().unwrap();
        let name = &table.columns[0];

        assert_eq!(
            number(&info["entries"]),
            table.entries.len() as u64,
            "{name}"
        );
        let bytes = |of: fn(&Entry) -> &Vec<u8>| -> u64 {
            table
                .entries
                .iter()
                .map(|entry| of(entry).len() as u64)
                .sum()
        };
        assert_eq!(number(&info["key_bytes"]), bytes(|(key, _)| key), "{name}");
        assert_eq!(
            number(&info["value_bytes"]),
            bytes(|(_, value)| value),
            "{name}"
        );
        assert_eq!(info["keys"] == "database", table.is_database, "{name}");
        assert_eq!(info["unreadable"], Value::Array(vec![]));

        let policy = match table.columns[8].as_str() {
            "none" => Value::Null,
            "bloom" => "leveldb.BuiltinBloomFilter2".into(),
            _ => "leveldb.BuiltinBloomFilter".into(),
        };
        assert_eq!(info["filter"]["policy"], policy, "{name}");

        let codecs = info["codecs"].as_object().unwrap();
        let allowed = match table.columns[5].as_str() {
            "none" => &["none"][..],
            _ => &["none", "snappy"],
        };
        assert!(codecs.keys().all(|codec| allowed.contains(&codec.as_str())));

        // The sections tile the file, and the blocks tile the first section.
        let size = fs::metadata(&table.path).unwrap().len();
        let end_of = |tiles: &Value| {
            tiles.as_array().unwrap().iter().fold(0, |end, tile| {
                assert_eq!(number(&tile["offset"]), end, "{name}");
                end + number(&tile["stored_bytes"])
            })
        };
        assert_eq!(end_of(&info["sections"]), size, "{name}");
        assert_eq!(
            end_of(&info["blocks"]),
            number(&info["data_stored_bytes"]),
            "{name}"
        );

        let key = |key: &[u8]| match table.is_database {
            true => {
                let (user_key, sequence, value_type) = split(key);
                (
                    user_key.to_vec(),
                    Value::from(sequence),
                    Value::from(value_type),
                )
            }
            false => (key.to_vec(), Value::Null, Value::Null),
        };
        let expected = table.entries.first().map(|(first, _)| key(first));
        let shown = &info["first_key"];
        match expected {
            None => assert!(shown.is_null()),
            Some((bytes, sequence, value_type)) => {
                match str::from_utf8(&bytes) {
                    Ok(text) => assert_eq!(shown["key"], text),
                    Err(_) => assert_eq!(shown["key_hex"], hex(&bytes)),
                }
                assert_eq!(shown["sequence"], sequence);
                assert_eq!(shown["type"], value_type);
            }
        }
    }
}

/// `info` distinguishes an unknown policy from a filter that holds other keys.
#[test]
fn info_says_why_a_filter_is_not_used() {
    let directory = TempDir::new().unwrap();
    let unknown = |name: &str| {
        let mut bytes = fs::read(testdata(name)).unwrap();
        let policy = b"leveldb.BuiltinBloomFilter2";
        let at = bytes
            .windows(policy.len())
            .position(|w| w == policy)
            .unwrap();
        bytes[at] = b'L';
        // `info` shows a metaindex of 54 bytes: its entry begins three bytes before the name, and the last
        // five are type and checksum.
        let start = at - "filter.".len() - 3;
        let (type_at, crc_at) = (start + 49, start + 50);
        let crc = crc32c::crc32c(&bytes[start..=type_at]);
        let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
        bytes[crc_at..][..4].copy_from_slice(&masked.to_le_bytes());
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let (plain, database) = ("words-b1024-r16-bloom10.ldb", "db-compacted.ldb");
    for (path, keys, words) in [
        (
            testdata(plain),
            "auto",
            "filter  leveldb.BuiltinBloomFilter2",
        ),
        (
            testdata(plain),
            "plain",
            "filter  leveldb.BuiltinBloomFilter2",
        ),
        (
            testdata(database),
            "auto",
            "filter  leveldb.BuiltinBloomFilter2",
        ),
        (
            testdata(database),
            "stored",
            "filter  leveldb.BuiltinBloomFilter2",
        ),
        (
            testdata(database),
            "plain",
            "filter  not used: it holds, or may hold, a database's user keys",
        ),
        (
            unknown(plain),
            "auto",
            "filter  not used: its policy is unknown",
        ),
        (
            unknown(plain),
            "plain",
            "filter  not used: its policy is unknown",
        ),
        (
            unknown(database),
            "auto",
            "filter  not used: its policy is unknown",
        ),
        (
            unknown(database),
            "plain",
            "filter  not used: it holds, or may hold, a database's user keys",
        ),
        (
            testdata("words-b4096-r16-nofilter.ldb"),
            "plain",
            "filter  none",
        ),
        (
            testdata("db-compacted-nofilter.ldb"),
            "plain",
            "filter  none",
        ),
    ] {
        let info = tool()
            .args(["info", "--full"])
            .arg(&path)
            .args(["--keys", keys])
            .output();
        // Seen as plain keys, a database's are out of order.
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_noted = name.starts_with("db-") && keys == "plain";
        let stdout = if is_noted {
            stdout_in_unknown_order
        } else {
            stdout
        };
        let shown = String::from_utf8(stdout(info.unwrap())).unwrap();
        assert!(shown.contains(words), "{} {keys}: {shown}", path.display());
        if words.contains("not used") {
            // The next line names it.
            let (_, after) = shown.split_once(words).unwrap();
            let line = after.lines().nth(1).unwrap();
            assert!(
                line.contains("eveldb.BuiltinBloomFilter2, ") && line.ends_with(" bytes"),
                "{line}"
            );
        }
    }
}

/// Builds LevelDB's tables from their entries as text, and compares the bytes.
#[test]
fn build_writes_the_bytes_that_leveldb_wrote() {
    let directory = TempDir::new().unwrap();
    let mut built = 0;
    for table in golden_tables() {
        let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
        let [_, _, origin, _, _, compression, numbers @ ..] = &columns[..] else {
            panic!("{columns:?}");
        };
        let [block_size, interval, filter, bits, flush] = *numbers else {
            panic!("{columns:?}");
        };
        let is_plain = *compression == "none" && !table.is_reverse && flush == "0";
        if !is_plain || !["none", "bloom"].contains(&filter) || *origin == "database" {
            continue;
        }
        let out = directory.path().join("built.ldb");
        let mut arguments = vec![
            "build",
            out.to_str().unwrap(),
            "--codec=none",
            "--force",
            "--hex",
            "--allow-empty",
            "--no-properties",
        ];
        let mut numbers = vec![
            format!("--block-size={block_size}"),
            format!("--restart-interval={interval}"),
            format!("--filter={filter}"),
        ];
        if filter != "none" {
            numbers.push(format!("--bits-per-key={bits}"));
        }
        arguments.extend(numbers.iter().map(String::as_str));
        if table.is_database {
            arguments.push("--keys=database");
        }
        let output = tool()
            .args(&arguments)
            .write_stdin(table.hex_lines())
            .output();
        assert_eq!(stdout(output.unwrap()), b"");
        let bytes = fs::read(&out).unwrap();
        assert!(
            bytes == fs::read(&table.path).unwrap(),
            "{}",
            table.columns[0]
        );
        built += 1;
    }
    assert!(built > 20, "{built}");
}

/// The filter is in the file, and every command knows what it is.
#[test]
fn build_adds_a_filter_of_prefixes() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (table, rescued) = (path("prefixes.ldb"), path("rescued.ldb"));
    let line = |i| format!("{:04}/{:04}\tvalue\n", i / 10 * 2, i % 10);
    let lines: String = (0..2000).map(line).collect();
    for (option, extractor) in [
        ("--prefix-length=5", "leveltable.FixedPrefix(5)"),
        ("--prefix-delimiter=/", "leveltable.DelimitedPrefix(2f)"),
    ] {
        let mut build = tool();
        build.args(["build", &table, option, "--force"]);
        let built = build.write_stdin(lines.clone()).output().unwrap();
        assert_eq!(stdout(built), b"");

        let info = stdout(run(["info", &table, "--json"]));
        let info: Value = serde_json::from_slice(&info).unwrap();
        assert_eq!(info["prefix_filter"]["extractor"], extractor);
        let bytes = info["prefix_filter"]["bytes"].as_u64().unwrap();
        assert!((250..350).contains(&bytes), "200 prefixes in {bytes} bytes");
        let sections = info["sections"].as_array().unwrap();
        let named = sections.iter().filter(|s| s["section"] == "prefixes");
        let sizes: Vec<u64> = named.map(|s| s["stored_bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [bytes + 5]);
        let shown = String::from_utf8(stdout(run(["info", &table]))).unwrap();
        let expected = format!("filter  of prefixes, {extractor}\n        {bytes} bytes\n");
        assert!(shown.contains(&expected), "{shown}");

        let verified = String::from_utf8(stdout(run(["verify", &table]))).unwrap();
        assert!(!verified.contains("warning: "), "{verified}");
        let found = stdout(run(["scan", &table, "--prefix", "0004/"]));
        assert_eq!(found.iter().filter(|byte| **byte == b'\n').count(), 10);
        let salvaged = stdout(run(["salvage", &table, &rescued, option, "--force"]));
        let salvaged = String::from_utf8(salvaged).unwrap();
        assert!(salvaged.contains("nothing lost"), "{salvaged}");
        assert_eq!(stdout(run(["scan", &rescued])), lines.as_bytes());
        let info = stdout(run(["info", &rescued, "--json"]));
        let info: Value = serde_json::from_slice(&info).unwrap();
        assert_eq!(info["prefix_filter"]["bytes"], bytes);
    }
    for (arguments, message) in [
        (&["--prefix-length=0"][..], "--prefix-length"),
        (&["--prefix-delimiter=ab"], "expected one character"),
        (
            &["--prefix-length=4", "--prefix-delimiter=/"],
            "cannot be used with",
        ),
    ] {
        let mut build = tool();
        build.args(["build", &table, "--force"]).args(arguments);
        let output = build.output().unwrap();
        assert!(!output.status.success());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(message), "{error}");
    }
}

/// No block touches two pages, and no command takes the padding for damage.
#[test]
fn build_aligns_blocks() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (table, rescued) = (path("aligned.ldb"), path("rescued.ldb"));
    let line = |i| format!("{i:08}\tvalue {i} {}\n", "v".repeat(60));
    let lines: String = (0..2000).map(line).collect();
    let mut build = tool();
    build.args(["build", &table, "--codec=none", "--block-align"]);
    let built = build.write_stdin(lines.clone()).output().unwrap();
    assert_eq!(stdout(built), b"");

    let info = stdout(run(["info", &table, "--json", "--blocks"]));
    let info: Value = serde_json::from_slice(&info).unwrap();
    let blocks = info["blocks"].as_array().unwrap();
    assert!(blocks.len() > 30);
    for block in blocks {
        let number = |field: &str| block[field].as_u64().unwrap();
        assert!(number("offset") % 4096 + number("stored_bytes") <= 4096);
    }
    let number = |value: &Value, field: &str| value[field].as_u64().unwrap();
    let padding = blocks.windows(2).map(|pair| {
        number(&pair[1], "offset") - number(&pair[0], "offset") - number(&pair[0], "stored_bytes")
    });
    let padding = format!(" blocks, {} bytes of padding\n", padding.sum::<u64>());
    let shown = String::from_utf8(stdout(run(["info", &table, "--full"]))).unwrap();
    assert!(shown.contains(&padding), "{shown}");
    let verified = String::from_utf8(stdout(run(["verify", &table]))).unwrap();
    assert!(!verified.contains("warning: "), "{verified}");
    let salvaged = String::from_utf8(stdout(run(["salvage", &table, &rescued]))).unwrap();
    assert!(salvaged.contains("nothing lost"), "{salvaged}");
    assert_eq!(stdout(run(["scan", &rescued])), lines.as_bytes());
}

/// A block that was zeroed looks like padding. The properties tell that it is missing.
#[test]
fn salvage_compares_with_the_properties() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (table, rescued) = (path("aligned.ldb"), path("rescued.ldb"));
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = options.block_align(true).no_filter().build(Vec::new());
    let mut ends = vec![];
    for (i, len) in [3000, 500, 2000, 2000].into_iter().enumerate() {
        builder.add(format!("key {i}"), vec![b'v'; len]).unwrap();
        builder.flush().unwrap();
        ends.push(builder.file_bytes() as usize);
    }
    let (mut file, _) = builder.finish_into_writer().unwrap();
    let index = leveltable_repair::layout(file.clone()).unwrap().index;
    file[ends[0]..4096].fill(0);
    file[(index.offset + index.stored_bytes) as usize - 1] ^= 1;
    fs::write(&table, file).unwrap();

    let output = run(["salvage", &table, &rescued]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        !text.contains("nothing lost") && !text.contains("everything"),
        "{text}"
    );
    let line = "the table's properties state 4 entries in 4 blocks";
    assert!(text.contains(line), "{text}");
    let output = run(["scan", &table, "--skip-damaged", "--keys-only"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(line), "{error}");
}
