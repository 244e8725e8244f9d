//! Runs the tool `leveltable` as its users do.
//!
//! Compares its output with what C++ LevelDB says of its own tables in the engine's `testdata/`, and the tables
//! that it builds with those that LevelDB built. `tests/cli/` and the README hold whole sessions, input and
//! output.

#[cfg(unix)]
#[path = "common/sessions.rs"]
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use leveltable::filter::PrefixExtractor;
use leveltable::{Comparator, Compression, WriteOptions};
use serde_json::Value;
use tempfile::TempDir;

// ---- Running the tool -----------------------------------------------------------------------

fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_leveltable"))
}

/// The tool as a `std::process::Command`, to read its output while it runs.
fn process() -> std::process::Command {
    std::process::Command::new(env!("CARGO_BIN_EXE_leveltable"))
}

fn run<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    tool().args(args).output().unwrap()
}

fn stdout(output: Output) -> Vec<u8> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    output.stdout
}

/// Asserts that the tool said on standard error that the order of the table is unknown, and no more. Returns what it
/// printed.
fn stdout_in_unknown_order(output: Output) -> Vec<u8> {
    let complaint = complaint(
        Output {
            stdout: vec![],
            ..output.clone()
        },
        0,
    );
    assert!(complaint.starts_with("note: "), "{complaint}");
    output.stdout
}

/// Asserts that the tool exited with `status` and printed one line to standard error. Returns that line.
fn complaint(output: Output, status: i32) -> String {
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    let [line] = lines[..] else {
        panic!("not one line: {stderr:?}");
    };
    line.to_owned()
}

fn json_lines(bytes: &[u8]) -> Vec<Value> {
    let lines = str::from_utf8(bytes).unwrap().lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Waits until there are `files` files in `directory`, because `child` has created its temporary file.
fn await_files(child: &mut Child, directory: &Path, files: usize) {
    let started = Instant::now();
    while names_in(directory).len() < files {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "no file was made: {ended:?}");
        if started.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("no file was made in {:?}", started.elapsed());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

// ---- LevelDB's own tables -------------------------------------------------------------------

/// The directory of the engine, which holds `testdata/` and the README.
const ENGINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A key, as the table stores it, and a value.
type Entry = (Vec<u8>, Vec<u8>);

/// Returns the path of a file in `testdata/`.
fn testdata(name: &str) -> PathBuf {
    [ENGINE, "testdata", name].iter().collect()
}

/// Reads the entries of a table from the file that C++ LevelDB's generator wrote beside it. Each string follows
/// its length, four little-endian bytes.
fn read_entries(name: &str) -> Vec<Entry> {
    let bytes = fs::read(testdata(name)).unwrap();
    let mut rest = bytes.as_slice();
    let mut string = || {
        let (len, after) = rest.split_first_chunk()?;
        let (string, after) = after.split_at(u32::from_le_bytes(*len) as usize);
        rest = after;
        Some(string.to_vec())
    };
    let mut entries = Vec::new();
    while let Some(key) = string() {
        entries.push((key, string().expect("a key without a value")));
    }
    entries
}

/// A line of `testdata/manifest.tsv`.
struct Golden {
    path: PathBuf,
    /// As they are stored, in the table's order.
    entries: Vec<Entry>,
    is_database: bool,
    is_reverse: bool,
    columns: Vec<String>,
}

fn golden_tables() -> Vec<Golden> {
    let manifest = fs::read_to_string(testdata("manifest.tsv")).unwrap();
    let tables: Vec<Golden> = manifest
        .lines()
        .skip(1)
        .map(|line| {
            let columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
            Golden {
                path: testdata(&columns[0]),
                entries: read_entries(&columns[1]),
                is_database: columns[3] == "internal",
                is_reverse: columns[4] == "reverse",
                columns,
            }
        })
        .collect();
    assert!(tables.len() > 60, "{} tables", tables.len());
    tables
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// User key, sequence and type of a stored key.
fn split(stored: &[u8]) -> (&[u8], u64, &'static str) {
    let (user_key, tag) = stored.split_at(stored.len() - 8);
    let tag = u64::from_le_bytes(tag.try_into().unwrap());
    let name = match tag & 0xff {
        0 => "deletion",
        1 => "value",
        other => panic!("type {other}"),
    };
    (user_key, tag >> 8, name)
}

impl Golden {
    /// Returns the line that `scan --hex` should print for an entry.
    fn hex_line(&self, (key, value): &Entry) -> String {
        match self.is_database {
            true => {
                let (user_key, sequence, value_type) = split(key);
                format!(
                    "{}\t{sequence}\t{value_type}\t{}\n",
                    hex(user_key),
                    hex(value)
                )
            }
            false => format!("{}\t{}\n", hex(key), hex(value)),
        }
    }

    fn hex_lines(&self) -> String {
        self.entries
            .iter()
            .map(|entry| self.hex_line(entry))
            .collect()
    }
}

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
        for (stored, value) in table.entries.iter().step_by(step) {
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
        assert!(complaint(output, 1).starts_with("not found"));
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
            "filter  leveldb.BuiltinBloomFilter2, ",
        ),
        (
            testdata(plain),
            "plain",
            "filter  leveldb.BuiltinBloomFilter2, ",
        ),
        (
            testdata(database),
            "auto",
            "filter  leveldb.BuiltinBloomFilter2, ",
        ),
        (
            testdata(database),
            "stored",
            "filter  leveldb.BuiltinBloomFilter2, ",
        ),
        (
            testdata(database),
            "plain",
            "filter  not used: it holds a database's user keys",
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
            "filter  not used: its policy is unknown",
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
            .arg("info")
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
            arguments.push("--database");
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
    let shown = String::from_utf8(stdout(run(["info", &table]))).unwrap();
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
    file[ends[0]..4096].fill(0);
    let index_end = file.len() - 48;
    file[index_end - 1] ^= 1;
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

// ---- Other orders ---------------------------------------------------------------------------

/// `get` reads everything, `salvage` copies in the stored order, and `info` shows everything but the filter.
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
        let output = run(&["info", "--json"]);
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
        let report = String::from_utf8(stdout_in_unknown_order(output.unwrap())).unwrap();
        assert!(report.contains("nothing lost"), "{report}");
        let copied = tool().arg("scan").arg(&out).arg("--hex").output().unwrap();
        assert_eq!(
            stdout_in_unknown_order(copied),
            table.hex_lines().as_bytes()
        );
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
    let info = run(&["info", "--json"]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["entries"], 20_001);
    assert_eq!(info["order_known"], false);
    assert_eq!(info["comparator"], "test.LastByteDescends");
    let out = directory.path().join("copy.ldb");
    let output = tool().arg("salvage").args([&path, &out]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Nothing else in the copy tells a database's keys, whose versions do not meet.
    let keys = if is_database {
        "--keys=database"
    } else {
        "--keys=plain"
    };
    let copied = tool().args(["scan", keys]).arg(&out).output().unwrap();
    assert_eq!(
        stdout_in_unknown_order(copied),
        expected.concat().as_bytes()
    );
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

/// Index and blocks that lookups read are in byte order. No key is missed all the same.
#[test]
fn an_order_that_no_lookup_sees_hides_no_key() {
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
        if !is_astray {
            assert!(complaint(run(&["get", "010000+"]), 1).starts_with("not found: "));
            assert_eq!(stdout(run(&["scan", "--prefix", "010000+"])), b"");
            continue;
        }
        let kind = if is_database { "database" } else { "plain" };
        let output = run(&["get", "010000+", "--keys", kind]);
        assert!(
            complaint(output, 1).starts_with("not found: "),
            "the order was named"
        );
        assert_eq!(
            stdout_in_unknown_order(run(&["get", "010000+"])),
            format!("{value}\n").as_bytes()
        );
        // A key that is found, the key that is hidden, and an absent key.
        let output = run(&["get", "000007", "010000+", "none", "--json"]);
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
            let rows_shown = stdout_in_unknown_order(run(&["scan", "--prefix", prefix]));
            let rows_shown = String::from_utf8(rows_shown).unwrap();
            assert_eq!(rows_shown.lines().count(), rows, "{rows_shown}");
        }
        let output = run(&["scan", "--from", "010000+", "--to", "010001"]);
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
        assert_eq!(
            run("salvage", keys, &[&out]).status.code(),
            Some(0),
            "{keys}"
        );
        let copied = tool()
            .args(["scan", "--hex", "--keys=stored"])
            .arg(&out)
            .output();
        assert_eq!(stdout(copied.unwrap()), lines.as_bytes(), "{keys}");
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

// ---- There and back -------------------------------------------------------------------------

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
                build.arg("--database");
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
            &["--format=csv", "--database"],
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
        serde_json::json!({"key": "plain", "value": "value"})
    );
    assert_eq!(
        shown[1],
        serde_json::json!({"key_hex": "ff", "value": "\0"})
    );
    let shown = json_lines(&stdout(run(["scan", out, "--json", "--hex"])));
    assert_eq!(
        shown[1],
        serde_json::json!({"key_hex": "ff", "value_hex": "00"})
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

// ---- Streams --------------------------------------------------------------------------------

/// Builds a table of many blocks in `directory`.
fn large_table(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("large.ldb");
    let lines: String = (0..50_000)
        .map(|i| format!("{i:08}\tvalue of {i}\n"))
        .collect();
    let mut build = tool();
    build
        .arg("build")
        .arg(&path)
        .args(["--codec=none", "--filter=none"]);
    stdout(build.write_stdin(lines).output().unwrap());
    path
}

#[test]
fn closing_the_output_ends_the_tool_without_an_error() {
    let directory = TempDir::new().unwrap();
    let path = large_table(&directory);
    for form in [&["scan"][..], &["scan", "--json"], &["info", "--blocks"]] {
        let mut child = process()
            .args(form)
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut output = BufReader::with_capacity(64, child.stdout.take().unwrap());
        output.read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        drop(output);
        let mut complaint = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut complaint)
            .unwrap();
        assert_eq!(complaint, "");
        assert!(child.wait().unwrap().success(), "{form:?}");
    }
}

/// Rows are printed while the table is read: first the rows before the damaged block, then the error.
#[test]
fn rows_before_damage_are_printed_and_the_damage_reported() {
    let directory = TempDir::new().unwrap();
    let path = large_table(&directory);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();

    let output = tool().arg("scan").arg(&path).output().unwrap();
    let rows = output.stdout.iter().filter(|&&b| b == b'\n').count();
    assert!((20_000..30_000).contains(&rows), "{rows}");
    let complaint = complaint(output, 2);
    assert!(
        complaint.contains("corrupt data block at offset"),
        "{complaint}"
    );

    let output = tool().arg("info").arg(&path).output().unwrap();
    let picture = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(picture.contains("section"));
    assert!(self::complaint(output, 1).starts_with("unreadable: "));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error_and_no_silent_loss() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let table = testdata("words-b1024-r16-bloom10.ldb");
    let table = table.to_str().unwrap();
    let manifest = testdata("manifest.tsv");
    let manifest = manifest.to_str().unwrap();
    for args in [
        &["scan", table][..],
        &["scan", table, "--limit=1"],
        &["get", table, "user/000000/name"],
        &["info", table],
        &["info", table, "--json"],
        &["build", "-", manifest, "--raw", "--sort"],
    ] {
        let output = process().args(args).stdout(full()).output().unwrap();
        let complaint = complaint(output, 2);
        assert!(complaint.contains("No space left on device"), "{complaint}");
    }
    // The device must stay a device.
    let output = tool()
        .args(["build", "/dev/full", "--force"])
        .write_stdin("a\tb\n")
        .output();
    assert!(complaint(output.unwrap(), 2).contains("not a regular file"));
    drop(full());
}

/// A limit on the size of files simulates a full disk.
#[test]
#[cfg(unix)]
fn a_table_that_has_no_room_is_an_error_and_leaves_no_trace() {
    let large = testdata("large-b4096-r16-bloom10.ldb");
    let lines = stdout(run([Path::new("scan"), &large]));
    for command in ["salvage IN OUT --codec none", "build OUT --codec none"] {
        let directory = TempDir::new().unwrap();
        let out = directory.path().join("new.ldb");
        let words = command.split(' ').map(|word| match word {
            "IN" => large.as_os_str(),
            "OUT" => out.as_os_str(),
            word => word.as_ref(),
        });
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_leveltable"))
            .args(words)
            .write_stdin(lines.clone());
        let complaint = complaint(limited.output().unwrap(), 2);
        let expected = format!("error: {}: writing", out.display());
        assert!(complaint.starts_with(&expected), "{complaint}");
        assert!(names_in(directory.path()).is_empty(), "{command}");
    }
}

// ---- Several files --------------------------------------------------------------------------

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
        "CURRENT",
    ] {
        fs::write(directory.path().join(name), &table).unwrap();
    }
    fs::create_dir(directory.path().join("1.ldb")).unwrap();
    let in_order = ["000009.ldb", "9.sst", "000010.ldb", "other.ldb"];
    let paths = in_order.map(|name| directory.path().join(name));
    let run = |args: &[&str]| tool().args(args).arg(directory.path()).output().unwrap();

    let shown = String::from_utf8(stdout(run(&["scan", "--limit=1"]))).unwrap();
    let expected: Vec<String> = { paths.iter() }
        .map(|p| {
            format!(
                "==> {} <==\nuser/000000/email\tsomeone0@example.org\n",
                p.display()
            )
        })
        .collect();
    assert_eq!(shown, expected.join("\n"));

    let shown = String::from_utf8(stdout(run(&["info"]))).unwrap();
    let headings: Vec<&str> = shown.lines().filter(|l| l.starts_with("==> ")).collect();
    let expected = paths.each_ref().map(|p| format!("==> {} <==", p.display()));
    assert_eq!(headings, expected);

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
        assert!(complaint(output, 2).contains("a directory without tables"));
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
                assert_eq!(fields(record), fields(&records[0]), "{command}");
                assert_eq!(record["file"], file.to_str().unwrap());
                assert_eq!(record["error"].is_null(), !record["entries"].is_null());
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

// ---- Damage ---------------------------------------------------------------------------------

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
    assert_eq!(output.status.code(), Some(1));
    let reports = json_lines(&output.stdout);
    let noted = reports.iter().filter(|r| r["order_known"] == false).count();
    assert!(noted > 4, "{noted}");
    for (table, report) in others.iter().zip(&reports) {
        assert_eq!(report["damage"], 0, "{report}");
        assert_eq!(report["sound"], report["order_known"], "{report}");
        assert_eq!(report["entries"], table.entries.len(), "{report}");
    }
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(notes.lines().count(), noted);
    assert!(
        notes
            .lines()
            .all(|l| l.starts_with("note: ")
                && l.ends_with("everything but their order was checked")),
        "{notes}"
    );
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

/// Forwards, backwards and within bounds, in a known order and in an unknown one.
#[test]
fn scan_goes_on_after_damaged_blocks() {
    let directory = TempDir::new().unwrap();
    let damaged = directory.path().join("damaged.ldb");
    for (name, damages) in [
        ("words-b1024-r16-bloom10.ldb", &[3_000, 6_000][..]),
        ("words-b1024-r16-bloom10.ldb", &[10]),
        ("words-b1024-r16-bloom10.ldb", &[8_600]),
        ("db-log-snappy.ldb", &[3_000]),
        ("words-reverse-b64-r2-nofilter.ldb", &[3_000, 9_000]),
        ("db-compacted-reverse.ldb", &[3_000, 9_000]),
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
        let output = tool().arg("info").arg(&damaged).output().unwrap();
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

#[test]
fn salvage_harms_neither_file() {
    let directory = TempDir::new().unwrap();
    let damaged = directory.path().join("damaged.ldb");
    fs::write(
        &damaged,
        "nothing that could be salvaged from here, in more than 48 bytes",
    )
    .unwrap();
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

// ---- Bad input ------------------------------------------------------------------------------

#[test]
fn other_files_are_refused_with_a_message_that_says_what_they_are() {
    let directory = TempDir::new().unwrap();
    let text = directory.path().join("notes.txt");
    fs::write(
        &text,
        "a few notes, which are no table at all, in more than 48 bytes",
    )
    .unwrap();
    let empty = directory.path().join("empty.ldb");
    fs::write(&empty, "").unwrap();
    let missing = directory.path().join("missing.ldb");
    for command in ["info", "scan", "get", "verify"] {
        for (path, words) in [
            (&missing, "no such file"),
            (&directory.path().to_owned(), "empty.ldb"),
            (&text, "plain text"),
            (&empty, "empty"),
        ] {
            let mut tool = tool();
            tool.arg(command).arg(path);
            if command == "get" {
                tool.arg("key");
            }
            let output = tool.output().unwrap();
            // `verify` reports a readable file as a damaged table, which is an answer and not an error.
            let says = match command == "verify" && path.exists() {
                true => String::from_utf8(output.stdout).unwrap(),
                false => complaint(output, 2),
            };
            assert!(says.contains(words), "{says}");
            assert!(says.contains(path.to_str().unwrap()), "{says}");
            assert!(!says.contains("found this is"), "{says}");
        }
    }
}

#[test]
fn keys_that_cannot_be_read_are_refused() {
    let table = testdata("words-b1024-r16-bloom10.ldb");
    let table = table.to_str().unwrap();
    for (args, words) in [
        (&["get", table, r"a\q"][..], [r"KEY: `\q`", r"\xNN"]),
        (&["get", table, "--hex", "abc"], ["KEY", "half a byte"]),
        (&["scan", table, r"--from=\x4"], ["--from", r"`\x`"]),
        (&["scan", table, r"--to=\"], ["--to", r"`\`"]),
        (
            &["scan", table, "--hex", "--prefix=zz"],
            ["--prefix", "hexadecimal digit"],
        ),
    ] {
        let complaint = complaint(run(args), 2);
        assert!(
            words.iter().all(|word| complaint.contains(word)),
            "{complaint}"
        );
    }
}

/// Each input is refused, the message names the line, and the directory stays empty.
#[test]
fn lines_that_are_no_entries_build_nothing() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("new.ldb");
    for (args, lines, words) in [
        (
            &[][..],
            "a\t1\nc\t2\nb\t3\n",
            &[
                "line 3",
                "\"b\" is out of order, it follows \"c\"",
                "--sort",
            ][..],
        ),
        (
            &[],
            "a\t1\na\t2\n",
            &["line 2", "duplicate key \"a\"", "--keep-last"],
        ),
        (
            &["--sort"],
            "b\t1\na\t1\nb\t2\n",
            &["duplicate key \"b\"", "--keep-last"],
        ),
        (
            &["--sort", "--sort-memory=1"],
            "b\t1\na\t1\nb\t2\n",
            &["duplicate key \"b\"", "--keep-last"],
        ),
        (&[], "a\t1\nb\n", &["line 2", "no value"]),
        (&[], "a\t1\t2\n", &["line 1", "more than two columns"]),
        (&[], "a\\\t1\n", &["line 1", "`\\` is not an escape"]),
        (&["--hex"], "6\t31\n", &["line 1", "half a byte"]),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value\":\"1\"}\nb\t2\n",
            &["line 2", "not a JSON object"],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\"}\n",
            &["line 1", "neither value nor value_hex"],
        ),
        (
            &["--format=jsonl"],
            "{\"kay\":\"a\",\"value\":\"1\"}\n",
            &["line 1", "unknown JSON field \"kay\"", "key_hex"],
        ),
        (
            &["--format=jsonl"],
            "{\"value\":\"1\"}\n",
            &["line 1", "neither key nor key_hex"],
        ),
        (&["--format=jsonl"], "{\n", &["line 1", "not a JSON object"]),
        (
            &["--format=jsonl"],
            "{\"key\":null,\"value\":7}\n",
            &["line 1", "key is null"],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value\":\"\",\"vlaue\":\"\"}\n",
            &["unknown JSON field \"vlaue\""],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"key_hex\":\"61\",\"value\":\"\"}\n",
            &["both key and key_hex"],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"sequence\":1,\"type\":\"value\",\"value\":\"\"}\n",
            &["--database"],
        ),
        (&["--database"], "a\t1\tvalue\n", &["line 1", "no value"]),
        (
            &["--database"],
            "a\t-1\tvalue\tv\n",
            &[
                "line 1",
                "`-1` is not an integer from 0 to 72057594037927935",
            ],
        ),
        (
            &["--database"],
            "a\t99999999999999999999\tvalue\tv\n",
            &["`99999999999999999999` is not an integer from 0 to 72057594037927935"],
        ),
        (
            &["--database", "--format=jsonl"],
            "{\"key\":\"a\",\"sequence\":99999999999999999999,\"type\":\"value\",\"value\":\"\"}\n",
            &["`99999999999999999999` is not an integer from 0 to 72057594037927935"],
        ),
        (
            &["--format=csv"],
            "a,\"b\nc,d\ne,f\n",
            &["standard input, line 1: a quote opens here and is never closed"],
        ),
        (
            &[
                "--format=csv",
                "--delimiter=;",
                "--key-field=id",
                "--value-field=v",
            ],
            "id;v\n1;\"x\ny\"\n2;\"z\"\"\n3;w\n",
            &["line 4: a quote opens here and is never closed"],
        ),
        (
            &["--format=csv", "--header"],
            "\u{feff}\"id,v\n1,2\n",
            &["standard input, line 1: a quote opens here and is never closed"],
        ),
        (
            &["--format=csv", "--key-field=name"],
            "id,name\n1,a\n",
            &["key and value are the same field, name: use --value-field"],
        ),
        (
            &["--format=csv", "--value-field=1"],
            "1,a\n",
            &["key and value are the same field, 1: use --key-field"],
        ),
        (
            &["--format=jsonl", "--key-field=value"],
            "{\"value\":1}\n",
            &["key and value are the same field, value: use --value-field"],
        ),
        (
            &["--format=csv", "--key-field=id", "--value-field=2"],
            "id,v,id\n1,2,3\n",
            &["two fields are named \"id\""],
        ),
        (
            &["--format=csv", "--raw"],
            "a,b\n",
            &["--raw needs --format text: CSV and JSON lines have no such escapes"],
        ),
        (
            &["--format=jsonl", "--raw"],
            "{\"key\":\"a\",\"value\":\"\"}\n",
            &["--raw needs --format text: CSV and JSON lines have no such escapes"],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value\":{\"key\":1},\"k\\u0065y\":\"b\"}\n",
            &["line 1: two fields are named \"key\""],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value_hex\":\"00\",\"value_hex\":\"01\"}\n",
            &["line 1: two fields are named \"value_hex\""],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value\":null}\n",
            &[
                "line 1: value is null, as \"get --json\" prints an absent key: remove the line, or name the field \
                 with --value-field",
            ],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value\":1}\n\u{feff}{\"key\":\"b\",\"value\":1}\n",
            &["line 2: not a JSON object"],
        ),
        (
            &["--database"],
            "a\t1\tmerge\tv\n",
            &["line 1", "`merge`", "value or deletion"],
        ),
        (
            &["--database"],
            "a\t72057594037927936\tvalue\tv\n",
            &["line 1", "72057594037927935"],
        ),
        (
            &["--database"],
            "a\t1\tvalue\tv\na\t2\tvalue\tv\n",
            &["line 2", "at sequence 2 is out of order"],
        ),
        (
            &["--database"],
            "a\t1\tdeletion\tv\n",
            &["line 1", "a deletion cannot have a value"],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":[1],\"value\":7}\n",
            &["line 1", "key is an array"],
        ),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value_hex\":7}\n",
            &["line 1", "value_hex is not a string"],
        ),
        (
            &["--format=jsonl", "--key-field=id"],
            "{\"key\":\"a\",\"value\":7}\n",
            &["line 1", "neither id nor id_hex"],
        ),
        (
            &[],
            "{\"key\":\"a\",\"value\":\"\"}\n",
            &["line 1", "no value", "--format jsonl"],
        ),
        (&[], "a,b\n", &["line 1", "no value", "--format csv"]),
        (&["--format=csv"], "a\n", &["line 1", "no field 2"]),
        (&["--format=csv"], "a,1\nb,2,3\n", &["line 2", "3 fields"]),
        (
            &["--format=csv"],
            "a,\"1\n\"\na,2\n",
            &["line 3", "duplicate key"],
        ),
        (
            &["--format=csv", "--key-field=id"],
            "a,b\n1,2\n",
            &["no field named \"id\"", "a, b"],
        ),
        (
            &["--format=csv", "--key-field=0"],
            "a,b\n",
            &["counted from 1"],
        ),
        (&["--key-field=id"], "a\tb\n", &["--format csv"]),
        (&["--header"], "a\tb\n", &["--format csv"]),
        (&["--codec=snappy", "--level=3"], "a\t1\n", &["no levels"]),
        (
            &["--codec=zstd", "--level=23"],
            "a\t1\n",
            &["levels 1 to 22"],
        ),
        (
            &["--filter=none", "--bits-per-key=10"],
            "a\t1\n",
            &["--bits-per-key needs a filter"],
        ),
    ] {
        let output = tool()
            .arg("build")
            .arg(&out)
            .args(args)
            .write_stdin(lines)
            .output();
        let complaint = complaint(output.unwrap(), 2);
        assert!(
            words.iter().all(|word| complaint.contains(word)),
            "{complaint}"
        );
        assert!(!complaint.contains(" at line "), "{complaint}");
        assert!(names_in(directory.path()).is_empty(), "{complaint}");
    }
}

/// A command that fails at once leaves its pipe empty.
#[test]
fn a_table_without_entries_is_built_only_when_asked_for() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("empty.ldb");
    let build = |args: &[&str], lines: &'static str| {
        let mut build = tool();
        build.arg("build").arg(&out).args(args);
        build.write_stdin(lines).output().unwrap()
    };
    for (args, lines) in [
        (&[][..], ""),
        (&[], "\n\n"),
        (&["--sort"], ""),
        (&["--database"], ""),
    ] {
        let refused = complaint(build(args, lines), 2);
        assert!(
            refused.contains("standard input: no entries") && refused.contains("--allow-empty"),
            "{refused}"
        );
        assert!(names_in(directory.path()).is_empty(), "{args:?}");
    }
    for args in [
        &["--allow-empty"][..],
        &["--allow-empty", "--force", "--sort"],
    ] {
        stdout(build(args, ""));
        assert_eq!(stdout(tool().arg("scan").arg(&out).output().unwrap()), b"");
    }
    let to_stdout = tool()
        .args(["build", "-"])
        .write_stdin("")
        .output()
        .unwrap();
    assert!(to_stdout.stdout.is_empty());
    complaint(to_stdout, 2);
}

#[test]
fn nothing_is_overwritten_unless_asked_for() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("kept.ldb");
    let build = |args: &[&str], lines: &'static str| {
        let output = tool()
            .arg("build")
            .arg(&out)
            .args(args)
            .write_stdin(lines)
            .output();
        output.unwrap()
    };
    fs::write(&out, "kept").unwrap();
    let refused = complaint(build(&[], "a\t1\n"), 2);
    assert!(
        refused.contains("already exists") && refused.contains("--force"),
        "{refused}"
    );
    // Even with --force the old file stays until the new one is complete.
    complaint(build(&["--force"], "a\t1\nb\n"), 2);
    assert_eq!(fs::read(&out).unwrap(), b"kept");
    assert_eq!(stdout(build(&["--force"], "a\t1\n")), b"");
    assert_eq!(stdout(run(["scan", out.to_str().unwrap()])), b"a\t1\n");
    assert_eq!(names_in(directory.path()).len(), 1);

    // A file that somebody creates in the meantime is not overwritten either.
    let late = directory.path().join("late.ldb");
    let mut building = process()
        .arg("build")
        .arg(&late)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    await_files(&mut building, directory.path(), 2);
    fs::write(&late, "theirs").unwrap();
    let mut lines = building.stdin.take().unwrap();
    lines.write_all(b"a\t1\n").unwrap();
    drop(lines);
    let refused = complaint(building.wait_with_output().unwrap(), 2);
    assert!(refused.contains("already exists"), "{refused}");
    assert_eq!(fs::read(&late).unwrap(), b"theirs");
    assert_eq!(names_in(directory.path()).len(), 2);

    let below = directory.path().join("no/such/directory/new.ldb");
    let output = tool()
        .arg("build")
        .arg(&below)
        .write_stdin("a\t1\n")
        .output();
    assert!(complaint(output.unwrap(), 2).contains("does not exist"));
    let output = tool()
        .arg("build")
        .arg(directory.path())
        .write_stdin("a\t1\n")
        .output();
    assert!(complaint(output.unwrap(), 2).contains("not a regular file"));
}

#[test]
#[cfg(unix)]
fn a_symbolic_link_is_reported_as_one() {
    let directory = TempDir::new().unwrap();
    let [kept, link, dangling] =
        ["kept.ldb", "link.ldb", "dangling.ldb"].map(|name| directory.path().join(name));
    fs::write(&kept, "kept").unwrap();
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    let table = testdata("words-b1024-r16-bloom10.ldb");
    for out in [&link, &dangling] {
        let build = tool()
            .arg("build")
            .arg(out)
            .arg("--force")
            .write_stdin("a\t1\n")
            .output();
        let salvage = tool()
            .arg("salvage")
            .args([&table, out])
            .arg("--force")
            .output();
        for output in [build, salvage] {
            let complaint = complaint(output.unwrap(), 2);
            assert!(complaint.contains("is a symbolic link"), "{complaint}");
        }
        assert!(out.is_symlink());
    }
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
    assert_eq!(names_in(directory.path()).len(), 3);
}

#[test]
#[cfg(target_os = "linux")]
fn an_interrupted_build_leaves_no_trace() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let directory = TempDir::new().unwrap();
        // The tool leaves a signal ignored that its parent ignores, so reset these signals.
        let mut building = std::process::Command::new("env")
            .arg("--default-signal=INT,TERM,HUP")
            .arg(env!("CARGO_BIN_EXE_leveltable"))
            .arg("build")
            .arg(directory.path().join("new.ldb"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = building.stdin.take().unwrap();
        lines.write_all(b"a\t1\n").unwrap();
        await_files(&mut building, directory.path(), 1);
        let id = building.id().to_string();
        let kill = std::process::Command::new("kill")
            .args([signal, &id])
            .status();
        assert!(kill.unwrap().success());
        let status = building.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{signal}: {status}");
        assert!(names_in(directory.path()).is_empty(), "{signal}");
    }
}

/// A script ignores SIGINT in what it runs in the background, and `nohup` SIGHUP. The other signals still end the tool
/// without a trace, and those have no effect.
#[test]
#[cfg(target_os = "linux")]
fn a_build_in_the_background_leaves_no_trace() {
    for (ignored, sent) in [
        ("INT", ["-INT", "-TERM"]),
        ("INT", ["-INT", "-HUP"]),
        ("HUP", ["-HUP", "-TERM"]),
    ] {
        let directory = TempDir::new().unwrap();
        let mut building = std::process::Command::new("env")
            .args([
                "--default-signal=INT,TERM,HUP",
                &format!("--ignore-signal={ignored}"),
            ])
            .arg(env!("CARGO_BIN_EXE_leveltable"))
            .arg("build")
            .arg(directory.path().join("new.ldb"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = building.stdin.take().unwrap();
        lines.write_all(b"a\t1\n").unwrap();
        await_files(&mut building, directory.path(), 1);
        for signal in sent {
            assert!(building.try_wait().unwrap().is_none(), "{signal}");
            let kill = std::process::Command::new("kill")
                .args([signal, &building.id().to_string()])
                .status();
            assert!(kill.unwrap().success());
            std::thread::sleep(Duration::from_millis(50));
        }
        let status = building.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{sent:?}: {status}");
        assert!(names_in(directory.path()).is_empty(), "{sent:?}");
    }
}

// ---- Object stores --------------------------------------------------------------------------

/// With it, `tests/object_store.rs` tests them.
#[test]
#[cfg(not(feature = "object-store"))]
fn a_url_needs_a_feature_that_the_message_names() {
    const URL: &str = "s3://bucket/table.ldb";
    for arguments in [
        &["info", URL][..],
        &["get", URL, "key"],
        &["scan", URL],
        &["splits", URL, "2"],
        &["verify", URL],
        &["salvage", URL, "rescued.ldb"],
        &["build", URL],
        &["publish", "manifest", "table.ldb"],
    ] {
        let complaint = complaint(run(arguments), 2);
        let names_feature =
            complaint.contains("cargo install leveltable-cli --features object-store");
        assert!(names_feature, "{arguments:?}: {complaint}");
    }
}

// ---- Shells ---------------------------------------------------------------------------------

#[test]
fn completions_and_manual_pages_know_every_command() {
    let commands = [
        "info",
        "get",
        "scan",
        "splits",
        "verify",
        "salvage",
        "build",
        "publish",
        "completions",
        "man",
    ];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = String::from_utf8(stdout(run(["completions", shell]))).unwrap();
        assert!(commands.iter().all(|c| script.contains(c)), "{shell}");
        assert!(script.contains("skip-damaged"), "{shell}");
    }
    let page = String::from_utf8(stdout(run(["man"]))).unwrap();
    assert!(page.contains(".TH LEVELTABLE 1"), "{page}");
    assert!(
        commands
            .iter()
            .all(|c| page.contains(&format!("leveltable\\-{c}(1)"))),
        "{page}"
    );
    for command in commands {
        let page = String::from_utf8(stdout(run(["man", command]))).unwrap();
        assert!(
            page.contains(&format!("\\fBleveltable {command}\\fR")),
            "{page}"
        );
    }
    assert!(complaint(run(["man", "nothing"]), 2).contains("the commands are info, "));
    assert_eq!(run(["completions", "tcsh"]).status.code(), Some(2));
}

// ---- Sessions -------------------------------------------------------------------------------

/// Runs the `console` blocks of `tests/cli/*.md` and of the README: see [`sessions::replay`].
#[test]
#[cfg(unix)]
fn sessions_run_as_they_are_written_down() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    let mut files: Vec<PathBuf> = names_in(&directory)
        .iter()
        .map(|name| directory.join(name))
        .collect();
    files.push(Path::new(ENGINE).join("README.md"));
    let commands = sessions::replay(&files, &testdata(""));
    assert!(commands > 30, "{commands}");
}
