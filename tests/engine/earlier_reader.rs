//! The last version that knew nothing of pieces reads today's tables: its engine is built from the history, and asked.
//!
//! `cargo test --test engine earlier_reader:: -- --ignored` takes half a minute, most of it to compile that engine.

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

/// Builds `earlier/main.rs` with the engine of the earlier version.
fn earlier_reader() -> PathBuf {
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
    package(&source, &root.join("tests/engine/earlier/main.rs")).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--target-dir", "target"]);
    run(build.current_dir(source.join("reader")));
    source.join("reader/target/debug/earlier")
}

/// A package of its own beside the engine, with the same versions of dependencies: that engine's own would be compiled with all that
/// its tests depend on.
fn package(source: &Path, program: &Path) -> std::io::Result<()> {
    let reader = source.join("reader");
    std::fs::create_dir_all(&reader)?;
    let manifest = format!(
        "[package]\nname = \"earlier\"\nedition = \"2024\"\n\n\
         [[bin]]\nname = \"earlier\"\npath = {program:?}\n\n\
         [dependencies]\nleveltable = {{ path = \"..\" }}\n\n\
         [profile.dev]\nopt-level = 1\ndebug = false\n\n[workspace]\n"
    );
    std::fs::write(reader.join("Cargo.toml"), manifest)?;
    std::fs::copy(source.join("Cargo.lock"), reader.join("Cargo.lock"))?;
    Ok(())
}

/// What the reader prints, with `input` on its standard input, and its status.
fn ask(reader: &Path, args: &[&str], input: &str) -> (String, Option<i32>) {
    let mut command = Command::new(reader);
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
    let reader = earlier_reader();
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
            assert_eq!(ask(&reader, &["scan", path], ""), (all.clone(), Some(0)));
            let keys: String = (0..count).map(|n| key(n) + "\n").collect();
            assert_eq!(ask(&reader, &["get", path], &keys), (all, Some(0)));
            let absent: String = (0..count)
                .map(|n| format!("key {:08}\n", 2 * n + 1))
                .collect();
            let none = (String::new(), Some(0));
            assert_eq!(ask(&reader, &["get", path], &absent), none);
            let (report, status) = ask(&reader, &["verify", path], "");
            assert_eq!(status, Some(0), "{report}");
        }
    }
    assert_eq!(pieces, 3 * options.len());
}
