//! Runs the tool `leveltable` as its users do.
//!
//! Compares its output with what C++ LevelDB says of its own tables in the engine's `testdata/`, and the tables
//! that it builds with those that LevelDB built. `tests/sessions/tool/` and the README hold whole sessions, input and
//! output.

mod bad_input;
mod damage;
mod databases;
mod golden;
mod merging;
mod messages;
mod new_databases;
mod orders;
mod other_programs;
#[cfg(target_os = "linux")]
mod reads;
mod repairing;
mod round_trips;
#[cfg(unix)]
#[path = "../common/sessions.rs"]
mod sessions;
mod several_files;
#[cfg(target_os = "linux")]
#[path = "../common/signals.rs"]
mod signals;
mod streams;
#[cfg(windows)]
mod windows;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use serde_json::Value;

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

/// A path in a command, as messages show it.
fn argument(path: &Path) -> String {
    let quote = if cfg!(windows) { "\"" } else { "" };
    format!("{quote}{}{quote}", path.display())
}

/// The command that repairs a database, as messages show it.
fn repair_command(db: &Path) -> String {
    format!("`leveltable repair {} NEW`", argument(db))
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
        &["prune", "."],
        &["build", "table.ldb", "--json"],
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
        "merge",
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

/// Runs the `console` blocks of `tests/sessions/tool/*.md` of the READMEs and of `docs/repair.md`: see [`sessions::replay`].
#[test]
#[cfg(unix)]
fn sessions_run_as_they_are_written_down() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions/tool");
    let mut files: Vec<PathBuf> = names_in(&directory)
        .iter()
        .map(|name| directory.join(name))
        .collect();
    files.push(Path::new(ENGINE).join("README.md"));
    files.push(Path::new(ENGINE).join("database/README.md"));
    files.push(Path::new(ENGINE).join("docs/repair.md"));
    files.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"));
    let commands = sessions::replay(&files, &testdata(""));
    assert!(commands > 30, "{commands}");
}
