//! The last version that knew nothing of pieces reads today's tables: its tool is built from the history, and asked.
//!
//! `cargo test --test engine earlier_reader:: -- --ignored` takes two minutes, most of them to compile.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{self, Entry, root};
use leveltable::filter::FixedPrefix;
use leveltable::{BloomFilterPolicy, Compression, WriteOptions};

/// The last commit before tables had pieces.
const EARLIER: &str = "4ec52e1";

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// Builds the tool of the earlier version.
fn earlier_tool() -> PathBuf {
    let root = root();
    let source = root.join("target/earlier");
    std::fs::create_dir_all(&source).unwrap();
    let mut archive = Command::new("git");
    let archive = archive.current_dir(root).args(["archive", EARLIER]);
    let mut archive = archive.stdout(Stdio::piped()).spawn().unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xC").arg(&source);
    run(tar.stdin(archive.stdout.take().unwrap()));
    assert!(archive.wait().unwrap().success(), "no commit {EARLIER}");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--package", "leveltable-cli"]);
    build.args(["--target-dir", "target"]);
    run(build.current_dir(&source));
    source.join("target/debug/leveltable")
}

/// What the tool prints, with `input` on its standard input, and its status.
fn ask(tool: &Path, args: &[&str], input: &str) -> (String, Option<i32>) {
    let mut command = Command::new(tool);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        child.wait_with_output().unwrap()
    });
    (
        String::from_utf8(output.stdout).unwrap(),
        output.status.code(),
    )
}

#[test]
#[ignore = "compiles an earlier version"]
fn an_earlier_version_reads_tables_with_pieces() {
    let tool = earlier_tool();
    let directory = tempfile::tempdir().unwrap();
    let new = WriteOptions::new;
    let raw = || new().compression(Compression::None);
    let options = [
        new(),
        raw(),
        new().prefix_filter(FixedPrefix::new(7)),
        raw().block_align(true),
        new().no_filter(),
        new().filter_policy(BloomFilterPolicy::new(10)),
        // An entry a block makes many pieces.
        new().block_size(1).prefix_filter(FixedPrefix::new(9)),
    ];
    let mut pieces = 0;
    for (i, options) in options.iter().enumerate() {
        for count in [1, 100, 20_000] {
            let key = |n: usize| format!("key {:08}", 2 * n);
            let entry = |n| (key(n).into_bytes(), format!("value {n}").into_bytes());
            let entries: Vec<Entry> = (0..count).map(entry).collect();
            let file = common::build(options, &entries);
            pieces += usize::from(common::Layout::of(&file).pieces.is_some());
            let path = directory.path().join(format!("{i}-{count}.ldb"));
            std::fs::write(&path, file).unwrap();
            let path = path.to_str().unwrap();

            let lines = |n: usize| format!("{}\tvalue {n}\n", key(n));
            let all: String = (0..count).map(lines).collect();
            assert_eq!(ask(&tool, &["scan", path], ""), (all.clone(), Some(0)));
            let keys: String = (0..count).map(|n| key(n) + "\n").collect();
            assert_eq!(ask(&tool, &["get", path, "-"], &keys), (all, Some(0)));
            let absent: String = (0..count)
                .map(|n| format!("key {:08}\n", 2 * n + 1))
                .collect();
            assert_eq!(
                ask(&tool, &["get", path, "-"], &absent),
                (String::new(), Some(1))
            );
            let (report, status) = ask(&tool, &["verify", path], "");
            assert_eq!(status, Some(0), "{report}");
        }
    }
    assert_eq!(pieces, 3 * options.len());
}
