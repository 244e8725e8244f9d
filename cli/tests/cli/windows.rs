//! What only Windows does: files that nobody else may open, and names. `.ci/windows` runs this below Wine.

use std::fs::{self, File, OpenOptions};
use std::os::windows::fs::OpenOptionsExt as _;
use std::os::windows::process::CommandExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{complaint, names_in, run, stdout, tool};

/// Holds a file as LevelDB 1.23 holds its log and its MANIFEST: others may not open it.
fn hold(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.share_mode(0).open(path).unwrap()
}

fn build(path: &Path, options: &[&str]) -> std::process::Output {
    let mut build = tool();
    build.arg("build").arg(path).args(options);
    build.write_stdin("a\t1\nb\t2\n").output().unwrap()
}

/// A database with a log, of which only its name is read here.
fn database(directory: &TempDir) -> PathBuf {
    let dir = directory.path().join("db");
    stdout(build(&dir, &["--database"]));
    fs::write(dir.join("000003.log"), []).unwrap();
    dir
}

#[test]
fn info_lists_what_it_can_beside_a_program_that_shares_nothing() {
    let directory = TempDir::new().unwrap();
    let dir = database(&directory);
    let holds = ["MANIFEST-000001", "000003.log"].map(|name| hold(&dir.join(name)));
    let output = run(["info".as_ref(), dir.as_os_str()]);
    let shown = String::from_utf8(output.stdout.clone()).unwrap();
    let line = |words: [&str; 2]| {
        let mut lines = shown.lines();
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(line(["held", "MANIFEST-000001"]), "{shown}");
    assert!(line(["held", "000003.log"]), "{shown}");
    assert!(line(["live", "000002.ldb"]), "{shown}");
    assert!(
        line(["unknown which tables are obsolete", "newer values"]),
        "{shown}"
    );
    let error = complaint(output, 2);
    for words in ["MANIFEST-000001", "close that program", "shadow copy"] {
        assert!(error.contains(words), "{error}");
    }
    drop(holds);
    assert!(run(["info".as_ref(), dir.as_os_str()]).status.success());
}

#[test]
fn repair_and_compact_notice_a_writer_by_its_lock() {
    let directory = TempDir::new().unwrap();
    let dir = database(&directory);
    let lock = hold(&dir.join("LOCK"));
    let [repaired, compacted] = ["repaired", "compacted"].map(|name| directory.path().join(name));
    let error = complaint(
        run(["repair".as_ref(), dir.as_os_str(), repaired.as_os_str()]),
        2,
    );
    assert!(
        error.contains("another program has this database open"),
        "{error}"
    );
    assert!(!repaired.exists());
    let output = run(["compact".as_ref(), dir.as_os_str(), compacted.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("Close it"), "{shown}");
    drop(lock);
    let shown = stdout(run([
        "repair".as_ref(),
        dir.as_os_str(),
        repaired.as_os_str(),
    ]));
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("  move "), "{shown}");
}

#[test]
fn the_commands_that_compact_prints_put_the_new_directory_in_place() {
    let directory = TempDir::new().unwrap();
    let [dir, new] = ["my db", "new db"].map(|name| directory.path().join(name));
    fs::rename(database(&directory), &dir).unwrap();
    let said = stdout(run(["compact".as_ref(), dir.as_os_str(), new.as_os_str()]));
    let said = String::from_utf8(said).unwrap();
    let commands: Vec<&str> = said.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(commands.len(), 2, "{said}");
    for command in commands {
        let mut shell = std::process::Command::new("cmd");
        shell.raw_arg(format!("/s /c \"{}\"", command.trim()));
        assert!(shell.status().unwrap().success(), "{command}");
    }
    let expected = ["my db", "my db.old"].map(str::to_owned);
    assert_eq!(names_in(directory.path()), expected.into());
    let value = stdout(run(["get".as_ref(), dir.as_os_str(), "a".as_ref()]));
    assert_eq!(value, b"1\n");
}

/// Builds a table at a path and a database beside it, and reads both.
fn assert_writable(path: &Path) {
    let output = build(path, &[]);
    assert!(output.status.success(), "{}: {output:?}", path.display());
    assert_eq!(
        stdout(run(["get".as_ref(), path.as_os_str(), "b".as_ref()])),
        b"2\n"
    );
    stdout(build(path, &["--force"]));
    let database = path.with_extension("db");
    stdout(build(&database, &["--database"]));
    assert_eq!(
        stdout(run(["get".as_ref(), database.as_os_str(), "a".as_ref()])),
        b"1\n"
    );
}

#[test]
fn a_table_that_is_held_is_an_error_that_says_what_to_do() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("table.ldb");
    stdout(build(&path, &[]));
    let held = hold(&path);
    for command in ["scan", "info", "verify"] {
        let error = complaint(run([command.as_ref(), path.as_os_str()]), 2);
        for words in ["table.ldb", "close that program", "shadow copy"] {
            assert!(error.contains(words), "{command}: {error}");
        }
    }
    drop(held);
    assert_eq!(
        stdout(run(["get".as_ref(), path.as_os_str(), "a".as_ref()])),
        b"1\n"
    );
}

#[test]
fn names_in_other_alphabets() {
    let directory = TempDir::new().unwrap();
    for name in ["таблица", "表", "ταμπλό", "جدول", "a b & c", "📦"] {
        let below = directory.path().join(name);
        fs::create_dir(&below).unwrap();
        assert_writable(&below.join(name).with_extension("ldb"));
        assert_eq!(names_in(&below).len(), 2, "{name}");
    }
}

#[test]
fn long_paths() {
    let directory = TempDir::new().unwrap();
    let mut long = directory.path().to_owned();
    while long.as_os_str().len() < 400 {
        long.push("a directory with a name that is not short");
    }
    fs::create_dir_all(&long).unwrap();
    assert_writable(&long.join("table.ldb"));
    // In the form that has no limit.
    let verbatim = PathBuf::from(format!(r"\\?\{}", long.display()));
    fs::create_dir(verbatim.join("below")).unwrap();
    assert_writable(&verbatim.join("below").join("table.ldb"));
}

/// Windows takes dots at the end of a name away, and finds devices in every directory.
#[test]
fn trailing_dots_and_device_names() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("table.ldb.");
    stdout(build(&path, &[]));
    assert_eq!(
        stdout(run(["get".as_ref(), path.as_os_str(), "a".as_ref()])),
        b"1\n"
    );
    for device in ["NUL", "CON", r"\\.\NUL"] {
        for options in [&[][..], &["--force"], &["--database"]] {
            let error = complaint(build(Path::new(device), options), 2);
            assert!(error.contains(device), "{error}");
        }
    }
    assert_eq!(names_in(directory.path()), ["table.ldb".to_owned()].into());
}

#[test]
fn files_and_directories_that_are_read_only() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("table.ldb");
    stdout(build(&path, &[]));
    let set = |path: &Path, yes| {
        let mut permissions = fs::metadata(path).unwrap().permissions();
        permissions.set_readonly(yes);
        fs::set_permissions(path, permissions).unwrap();
    };
    set(&path, true);
    assert_eq!(
        stdout(run(["get".as_ref(), path.as_os_str(), "a".as_ref()])),
        b"1\n"
    );
    let output = build(&path, &["--force"]);
    if !output.status.success() {
        let error = complaint(output, 2);
        assert!(error.contains("something there is read-only"), "{error}");
    }
    assert_eq!(names_in(directory.path()).len(), 1);
    set(&path, false);
    // Says nothing on Windows about what may be made in it.
    set(directory.path(), true);
    stdout(build(&path, &["--force"]));
    set(directory.path(), false);
}

#[test]
fn output_is_utf_8() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("table.ldb");
    let mut build = tool();
    build
        .arg("build")
        .arg(&path)
        .write_stdin("ключ\tзначение\r\n");
    stdout(build.output().unwrap());
    let shown = stdout(run(["scan".as_ref(), path.as_os_str()]));
    assert_eq!(shown, "ключ\tзначение\n".as_bytes());
    let shown = stdout(run(["get".as_ref(), path.as_os_str(), "ключ".as_ref()]));
    assert_eq!(shown, "значение\n".as_bytes());
}
