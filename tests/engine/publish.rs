//! A table at a path is there whole, or not at all: after errors, after a full disk, after `SIGKILL`.
//!
//! What needs a process of its own (a umask, a directory to stand in, a file size limit, a death) runs
//! this test binary again, in a role: see [`child`]. The tests that trace or fail system calls need
//! `strace` and are ignored by default: `cargo test --test engine publish:: -- --ignored`.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{self, Entry, Random};
use leveltable::{Compression, ErrorKind, OpenOptions, Table, TableBuilder, WriteOptions};
use tempfile::TempDir;

// ---- A child process ------------------------------------------------------------------------

const ROLE: &str = "LEVELTABLE_TEST_ROLE";

/// This test binary, to be run again in `role`; it writes to `table` in the directory it stands in.
fn child(role: &str, directory: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    as_child(&mut command, role, directory);
    command
}

fn as_child(command: &mut Command, role: &str, directory: &Path) {
    command
        .args([
            "--exact",
            "publish::in_a_role",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .current_dir(directory);
}

/// The work of a child process. In an ordinary run of the tests there is no role, and this shows that a child without
/// a proper one fails, so that no test takes a child that did nothing for one that did its work.
#[test]
fn in_a_role() {
    match env::var(ROLE).as_deref() {
        Ok("write once") => write_once(),
        Ok("write once, unsynced") => {
            let options = WriteOptions::new().compression(Compression::None);
            write_with(&options.sync(false), "table", 1).unwrap();
            println!("\nwritten");
        }
        Ok("write once, far into this thread's calls") => {
            // `strace` counts the calls of each thread from 1. Those of interest get numbers that the
            // main thread, which starts the process and reports on the test, never reaches.
            let mut null = fs::OpenOptions::new()
                .write(true)
                .open("/dev/null")
                .unwrap();
            for _ in 0..200 {
                fs::File::open("/dev/null").unwrap();
                null.write_all(b"0").unwrap();
            }
            write_once();
        }
        Ok("write for ever") => {
            for generation in 1.. {
                write_table("table", generation).unwrap();
                println!("\nwritten {generation}");
            }
        }
        Ok(role) => panic!("no such role: {role}"),
        Err(_) => {
            let directory = tempfile::tempdir().unwrap();
            let output = child("none that there is", directory.path()).output();
            let output = output.unwrap();
            assert!(!output.status.success(), "{output:?}");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(text.contains("no such role: none that there is"), "{text}");
        }
    }
}

fn write_once() {
    match write_table("table", 1) {
        Ok(()) => println!("\nwritten"),
        Err(error) => println!("\n{:?} error: {error}", error.kind()),
    }
}

/// Entries of some generation: enough for several writes, and each tells its generation.
fn generation(generation: usize) -> Vec<Entry> {
    let mut random = Random(generation as u64);
    let entry = |i: usize| {
        let key = format!("{i:04}").into_bytes();
        let mut value = format!("{generation} ").into_bytes();
        value.extend(random.bytes(16).repeat(1000));
        (key, value)
    };
    (0..60).map(entry).collect()
}

fn write_table(path: impl AsRef<Path>, number: usize) -> leveltable::Result<()> {
    write_with(
        &WriteOptions::new().compression(Compression::None),
        path,
        number,
    )
}

fn write_with(
    options: &WriteOptions,
    path: impl AsRef<Path>,
    number: usize,
) -> leveltable::Result<()> {
    let mut builder = options.create(path)?;
    for (key, value) in generation(number) {
        builder.add(&key, &value)?;
    }
    builder.finish()?;
    Ok(())
}

/// The generation of the table at `path`, after checking that it is there to the last byte.
fn whole_generation(path: &Path) -> usize {
    let table = Table::open(path).unwrap();
    let (_, value) = table.first().unwrap().unwrap();
    let number = value.split(|&b| b == b' ').next().unwrap();
    let number = str::from_utf8(number).unwrap().parse().unwrap();
    common::assert_holds(&table, &generation(number));
    number
}

// ---- What a path may hold -------------------------------------------------------------------

/// The content of a directory before a table is written to its `table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    OldFile,
}

const OLD: &[u8] = b"the old file";

impl Before {
    fn directory(self) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        if let Before::OldFile = self {
            fs::write(directory.path().join("table"), OLD).unwrap();
        }
        directory
    }

    /// Asserts that the directory holds what it held, and `leftovers` temporary files.
    fn assert_untouched(self, directory: &Path, leftovers: usize) {
        let (temporary, others): (Vec<_>, Vec<_>) = names(directory)
            .into_iter()
            .partition(|name| is_temporary(name));
        assert_eq!(temporary.len(), leftovers, "{temporary:?}");
        match self {
            Before::Nothing => assert_eq!(others, [""; 0]),
            Before::OldFile => {
                assert_eq!(others, ["table"]);
                assert_eq!(fs::read(directory.join("table")).unwrap(), OLD);
            }
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// The documented name of an unfinished table: `.leveltable-*.tmp`.
fn is_temporary(name: &str) -> bool {
    name.starts_with(".leveltable-") && name.ends_with(".tmp")
}

#[test]
fn nothing_is_at_the_path_before_finish_and_the_table_is_after() {
    for before in [Before::Nothing, Before::OldFile] {
        let directory = before.directory();
        let path = directory.path().join("table");
        let mut builder = TableBuilder::create(&path).unwrap();
        before.assert_untouched(directory.path(), 1);
        for (key, value) in generation(1) {
            builder.add(&key, &value).unwrap();
        }
        builder.flush().unwrap();
        before.assert_untouched(directory.path(), 1);
        builder.finish().unwrap();
        assert_eq!(names(directory.path()), ["table"]);
        assert_eq!(whole_generation(&path), 1);
    }
}

#[test]
fn a_dropped_builder_leaves_no_trace() {
    for before in [Before::Nothing, Before::OldFile] {
        let directory = before.directory();
        let mut builder = TableBuilder::create(directory.path().join("table")).unwrap();
        before.assert_untouched(directory.path(), 1);
        builder.add(b"key", b"value").unwrap();
        drop(builder);
        before.assert_untouched(directory.path(), 0);
    }
}

/// A table may fail as late as in `finish`; here the comparator's successor is refused.
#[test]
fn a_builder_that_fails_to_finish_leaves_no_trace() {
    #[derive(Debug)]
    struct Liar;

    impl leveltable::Comparator for Liar {
        fn name(&self) -> &str {
            "test.Liar"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            a.cmp(b)
        }

        fn find_short_successor(&self, key: &mut Vec<u8>) {
            key.clear();
        }
    }

    for before in [Before::Nothing, Before::OldFile] {
        let directory = before.directory();
        let options = WriteOptions::new().comparator(Liar);
        let mut builder = options.create(directory.path().join("table")).unwrap();
        builder.add(b"key", b"value").unwrap();
        let error = builder.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator);
        before.assert_untouched(directory.path(), 0);
    }
}

fn is_taken(error: &leveltable::Error) -> bool {
    let cause = error.io_error().unwrap().kind();
    error.kind() == ErrorKind::Io && cause == std::io::ErrorKind::AlreadyExists
}

#[test]
fn a_file_that_is_not_to_be_replaced_stays() {
    let options = WriteOptions::new().replace_existing(false);

    let directory = Before::OldFile.directory();
    let created = options.create(directory.path().join("table"));
    let error = created.unwrap_err();
    assert!(is_taken(&error), "{error}");
    Before::OldFile.assert_untouched(directory.path(), 0);

    // One that appeared while the table was built.
    let directory = Before::Nothing.directory();
    let path = directory.path().join("table");
    let mut builder = options.create(&path).unwrap();
    builder.add(b"key", b"value").unwrap();
    fs::write(&path, b"theirs").unwrap();
    let error = builder.finish().unwrap_err();
    assert!(is_taken(&error), "{error}");
    assert_names_path(&error, &path);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(names(directory.path()), ["table"]);

    fs::remove_file(&path).unwrap();
    options.create(&path).unwrap().finish().unwrap();
    assert_eq!(Table::open(&path).unwrap().iter().count(), 0);
    assert_eq!(names(directory.path()), ["table"]);
}

/// Of several that finish at the same moment one is published, and the others know that theirs is not.
#[test]
fn one_of_many_tables_for_a_path_wins() {
    const TABLES: usize = 4;
    for _ in 0..50 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let start = std::sync::Barrier::new(TABLES);
        let publish = |i: usize| {
            let options = WriteOptions::new().replace_existing(false);
            let mut builder = options.create(&path).unwrap();
            builder.add(b"number", [i as u8]).unwrap();
            start.wait();
            builder.finish()
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let publish = &publish;
            let threads: Vec<_> = (0..TABLES)
                .map(|i| scope.spawn(move || publish(i)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let winner = results.iter().position(Result::is_ok).unwrap();
        for (i, result) in results.iter().enumerate() {
            assert_eq!(result.is_ok(), i == winner);
            assert!(result.as_ref().err().is_none_or(is_taken), "{result:?}");
        }
        let number = Table::open(&path).unwrap().get(b"number").unwrap();
        assert_eq!(number.as_deref(), Some(&[winner as u8][..]));
        assert_eq!(names(directory.path()), ["table"]);
    }
}

#[test]
fn a_table_that_is_replaced_while_open_is_read_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    write_table(&path, 1).unwrap();
    let old = Table::open(&path).unwrap();
    let mut walk = old.iter();
    walk.next().unwrap().unwrap();
    write_table(&path, 2).unwrap();
    assert_eq!(walk.map(Result::unwrap).count(), 59);
    common::assert_holds(&old, &generation(1));
    assert_eq!(whole_generation(&path), 2);
}

/// Which nobody should do, and some programs do.
#[test]
fn a_table_that_is_overwritten_in_place_is_an_error_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    write_table(&path, 1).unwrap();
    let size = fs::metadata(&path).unwrap().len();
    let table = OpenOptions::new()
        .no_filter()
        .no_cache()
        .open(&path)
        .unwrap();
    fs::write(&path, vec![b'x'; 1319]).unwrap();
    let error = table.last().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let words = format!("the file is now 1319 bytes, was {size} when opened");
    assert!(error.to_string().ends_with(&words), "{error}");
    assert_names_path(&error, &path);
}

#[test]
fn a_path_without_a_directory_is_in_the_current_one() {
    let directory = tempfile::tempdir().unwrap();
    let output = child("write once", directory.path()).output().unwrap();
    assert!(says(&output, "written"), "{output:?}");
    assert_eq!(names(directory.path()), ["table"]);
    assert_eq!(whole_generation(&directory.path().join("table")), 1);
}

/// Whether the child wrote a line that begins so.
fn says(output: &Output, what: &str) -> bool {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().any(|line| line.starts_with(what))
}

// ---- Paths that cannot be -------------------------------------------------------------------

fn assert_names_path(error: &leveltable::Error, path: &Path) {
    let message = error.to_string();
    assert!(message.contains(&*path.to_string_lossy()), "{message}");
}

#[test]
fn a_path_that_cannot_be_is_an_error_that_names_it() {
    let directory = Before::OldFile.directory();
    let refused: [PathBuf; 4] = [
        directory.path().join("missing").join("table"),
        directory.path().join("table").join("below a file"),
        directory.path().to_owned(),
        directory.path().join(".."),
    ];
    for path in refused {
        let error = TableBuilder::create(&path).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_names_path(&error, &path);
        assert!(error.io_error().is_some());
        Before::OldFile.assert_untouched(directory.path(), 0);
    }
    assert!(TableBuilder::create("").is_err());
}

/// All the work of building was done before the renaming failed.
#[test]
fn a_name_that_cannot_be_published_fails_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name);
    let long = "n".repeat(256);
    for path in [inside("name/"), inside("name/."), inside(&long)] {
        let error = TableBuilder::create(&path).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_names_path(&error, &path);
    }
    let longest = inside(&long[1..]);
    write_table(&longest, 1).unwrap();
    assert_eq!(whole_generation(&longest), 1);
    assert_eq!(names(directory.path()), [&long[1..]]);
}

/// A FIFO, a socket or a device was replaced by a table.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name);
    let fifo = Command::new("mkfifo").arg(inside("fifo")).status();
    assert!(fifo.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(inside("socket")).unwrap();
    symlink("/dev/null", inside("link to a device")).unwrap();
    let before = names(directory.path());
    let special = before.iter().map(|name| inside(name));
    for path in special.chain(["/dev/null".into()]) {
        let error = TableBuilder::create(&path).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_names_path(&error, &path);
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert!(!fs::metadata(&path).unwrap().file_type().is_file());
    }
    assert!(inside("fifo").metadata().unwrap().file_type().is_fifo());
    assert_eq!(names(directory.path()), before);

    // A link that leads nowhere, or to a file, is replaced as before.
    symlink("nowhere", inside("broken")).unwrap();
    write_table(inside("broken"), 1).unwrap();
    assert_eq!(whole_generation(&inside("broken")), 1);
}

/// It was refused, since it was followed after all.
#[cfg(unix)]
#[test]
fn a_link_to_a_directory_is_replaced_as_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let (inside, link) = (
        directory.path().join("inside"),
        directory.path().join("table"),
    );
    std::fs::create_dir(&inside).unwrap();
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    write_table(&link, 1).unwrap();
    assert_eq!(whole_generation(&link), 1);
    assert!(!link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 0);
}

/// Errors of reads after opening named no file.
#[test]
fn errors_of_an_open_table_name_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    write_table(&path, 1).unwrap();
    let table = OpenOptions::new().no_cache().open(&path).unwrap();
    let len = std::fs::metadata(&path).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    let error = table.cursor().seek_to_first().unwrap_err();
    assert_names_path(&error, &path);
    assert!(error.to_string().contains("reading"), "{error}");
    file.set_len(len).unwrap(); // zeros
    let error = table.cursor().seek_to_first().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!(error.path(), Some(&*path));
}

/// The path may become a directory between making the builder and finishing it.
#[test]
fn a_path_that_has_become_a_directory_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let mut builder = TableBuilder::create(&path).unwrap();
    builder.add(b"key", b"value").unwrap();
    fs::create_dir_all(path.join("child")).unwrap();
    let error = builder.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_names_path(&error, &path);
    assert_eq!(names(directory.path()), ["table"]);
    assert_eq!(names(&path), ["child"]);
}

#[test]
fn a_directory_that_has_gone_is_an_error_that_names_the_path() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("directory");
    fs::create_dir(&directory).unwrap();
    let path = directory.join("table");
    let mut builder = TableBuilder::create(&path).unwrap();
    builder.add(b"key", b"value").unwrap();
    let removed = fs::remove_dir_all(&directory);
    if cfg!(windows) && removed.is_err() {
        return; // Windows keeps directories of open files.
    }
    removed.unwrap();
    let error = builder.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_names_path(&error, &path);
    assert_eq!(names(parent.path()), [""; 0]);
}

// ---- Death ----------------------------------------------------------------------------------

/// A process that writes one generation after another to the same path is killed a hundred times: a moment
/// after it reported some number of them, or while it writes the next. The path always holds one whole
/// generation: the last that was reported, or the one after it.
#[test]
fn a_killed_writer_never_leaves_a_bad_table() {
    const RUNS: usize = 100;
    let mut random = Random(2026);
    let (mut leftovers, mut replaced, mut ahead) = (0, 0, 0);
    for run in 0..RUNS {
        let directory = Before::OldFile.directory();
        let mut command = child("write for ever", directory.path());
        let mut child = command
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let awaited = random.below(3);
        let mut reported = 0;
        while reported < awaited {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it has ended");
            reported = generation_in(&line).unwrap_or(reported);
        }
        if run % 2 == 0 {
            while !names(directory.path())
                .iter()
                .any(|name| is_temporary(name))
            {
                std::thread::yield_now();
            }
        }
        std::thread::sleep(std::time::Duration::from_micros(random.next() % 5_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        // The last line may be cut.
        let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let last = whole_lines.lines().rev().find_map(generation_in);
        let reported = last.unwrap_or(reported);

        let path = directory.path().join("table");
        if fs::read(&path).unwrap() == OLD {
            assert_eq!(reported, 0);
        } else {
            let found = whole_generation(&path);
            assert!(
                (reported..=reported + 1).contains(&found),
                "{found} after {reported}"
            );
            replaced += 1;
            ahead += found - reported;
        }
        let others = names(directory.path())
            .into_iter()
            .filter(|name| name != "table");
        for name in others {
            assert!(is_temporary(&name), "{name}");
            leftovers += 1;
        }
    }
    println!(
        "{RUNS} writers killed: 0 bad tables; {replaced} had replaced the old file, {ahead} were about to \
         say so, {leftovers} left a temporary file"
    );
    assert!(
        leftovers > RUNS / 10 && replaced > RUNS / 10,
        "the moments are ill chosen"
    );
}

/// The generation that a line of the child's reports.
fn generation_in(line: &str) -> Option<usize> {
    let number = line.trim_end().strip_prefix("written ")?;
    Some(number.parse().unwrap())
}

// ---- Unix: permissions and limits -----------------------------------------------------------

/// A shell that runs the child after `setup`.
#[cfg(unix)]
fn child_in_shell(setup: &str, role: &str, directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{setup}; exec \"$0\" \"$@\""));
    command.arg(env::current_exe().unwrap());
    as_child(&mut command, role, directory);
    command
}

#[cfg(unix)]
#[test]
fn permissions_are_those_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    for (umask, mode) in [
        ("022", 0o644),
        ("002", 0o664),
        ("077", 0o600),
        ("000", 0o666),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let setup = format!("umask {umask}");
        let output = child_in_shell(&setup, "write once", directory.path())
            .output()
            .unwrap();
        assert!(says(&output, "written"), "{output:?}");
        let metadata = fs::metadata(directory.path().join("table")).unwrap();
        assert_eq!(
            metadata.permissions().mode() & 0o7777,
            mode,
            "umask {umask}"
        );
    }
}

/// A disk that is full at every size up to the table's: a write is cut short, the next one fails.
/// The limit is the kernel's own, on the size of a file; with `SIGXFSZ` ignored, the error is `EFBIG`.
#[cfg(unix)]
#[test]
fn a_file_that_may_not_grow_leaves_no_trace() {
    let whole = common::build(
        &WriteOptions::new().compression(Compression::None),
        &generation(1),
    );
    // POSIX counts blocks of 512 bytes; dash does, bash counts 1024 unless it is `sh`.
    let directory = tempfile::tempdir().unwrap();
    let mut probe = Command::new("sh");
    probe.args([
        "-c",
        "trap '' XFSZ; ulimit -f 1; head -c 5000 /dev/zero > probe",
    ]);
    probe.current_dir(directory.path()).output().unwrap();
    let unit = fs::metadata(directory.path().join("probe")).unwrap().len() as usize;
    assert!([512, 1024].contains(&unit), "{unit}");
    let blocks = whole.len().div_ceil(unit);
    let limits = (0..blocks).step_by(160).chain([blocks - 1, blocks]);
    for limit in limits {
        for before in [Before::Nothing, Before::OldFile] {
            let directory = before.directory();
            let setup = format!("trap '' XFSZ; ulimit -f {limit}");
            let output = child_in_shell(&setup, "write once", directory.path())
                .output()
                .unwrap();
            assert_eq!(says(&output, "written"), limit == blocks, "{output:?}");
            if limit == blocks {
                assert_eq!(whole_generation(&directory.path().join("table")), 1);
            } else {
                assert!(says(&output, "Io error: table: writing "), "{output:?}");
                before.assert_untouched(directory.path(), 0);
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn a_directory_that_cannot_be_written_is_an_error_that_names_the_path() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let directory = Before::OldFile.directory();
    let read_only = fs::Permissions::from_mode(0o555);
    fs::set_permissions(directory.path(), read_only).unwrap();
    let path = directory.path().join("table");
    match TableBuilder::create(&path) {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Io);
            assert_names_path(&error, &path);
        }
        Ok(builder) => {
            // The superuser may write anywhere, so somebody else must try; from a copy of this binary,
            // since the original may lie where they cannot go.
            drop(builder);
            let open = tempfile::tempdir().unwrap();
            fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let binary = open.path().join("publish");
            // Copied by another process: a file that this one has open for writing cannot be run, and a child that
            // another test is starting right then would have it open, too.
            let mut copy = Command::new("cp");
            let copied = copy.arg(env::current_exe().unwrap()).arg(&binary).status();
            assert!(copied.unwrap().success());
            let mut command = Command::new(binary);
            as_child(&mut command, "write once", directory.path());
            let output = command.uid(65534).gid(65534).output().unwrap();
            assert!(
                says(&output, "Io error: table: creating a table: "),
                "{output:?}"
            );
        }
    }
    Before::OldFile.assert_untouched(directory.path(), 0);
}

/// A real full disk: a tmpfs too small for the table, in a mount namespace of its own.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "mounts a file system in a user namespace, which not every machine allows"]
fn a_full_disk_leaves_no_trace() {
    let mount = |size: &str| format!("mount -t tmpfs -o size={size} tmpfs \"$PWD\" && cd \"$PWD\"");
    let run = |size: &str| {
        let directory = tempfile::tempdir().unwrap();
        let script = format!(
            "{} && printf '{}' > table && {{ \"$0\" \"$@\"; ls -A; cat table | head -c 100; }}",
            mount(size),
            str::from_utf8(OLD).unwrap()
        );
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", &script])
            .arg(env::current_exe().unwrap());
        as_child(&mut command, "write once", directory.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    };
    let old = str::from_utf8(OLD).unwrap();
    for size in ["64k", "300k", "600k", "900k"] {
        let output = run(size);
        assert!(says(&output, "Io error: table: writing "), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("os error 28"), "ENOSPC: {text}");
        assert!(text.ends_with(&format!("\ntable\n{old}")), "{text}");
    }
    let output = run("4m");
    assert!(says(&output, "written"), "{output:?}");
}

// ---- Linux: system calls --------------------------------------------------------------------

#[cfg(target_os = "linux")]
mod system_calls {
    use super::*;

    /// Everything that could change a file or its name; those that an architecture lacks are left out.
    const TRACED: &str = "?open,openat,?creat,write,pwrite64,writev,pwritev,sendfile,copy_file_range,fsync,fdatasync,\
         sync_file_range,ftruncate,fallocate,?rename,renameat,renameat2,?link,linkat,?unlink,unlinkat";

    /// A system call of a traced process.
    #[derive(Debug)]
    struct Call {
        name: String,
        /// Arguments and result, file descriptors with their paths.
        text: String,
        /// Which one it is, from 1, of its thread's calls of this name.
        nth: usize,
    }

    /// The part that a call plays in publishing a table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Step {
        Create,
        Write,
        SyncFile,
        Rename,
        OpenDirectory,
        SyncDirectory,
        Other,
    }

    impl Call {
        fn step(&self, directory: &Path) -> Option<Step> {
            let opened = format!("\"{}\"", directory.display());
            let directory = format!("<{}>", directory.display());
            let on_temporary = self.text.contains(".leveltable-");
            let step = match &*self.name {
                "open" | "openat" if on_temporary && self.text.contains("O_CREAT|O_EXCL") => {
                    Step::Create
                }
                "write" if on_temporary => Step::Write,
                "fsync" if on_temporary => Step::SyncFile,
                "rename" | "renameat" | "renameat2" if on_temporary => Step::Rename,
                "open" | "openat" if self.text.contains(&opened) => Step::OpenDirectory,
                "fsync" if self.text.contains(&directory) => Step::SyncDirectory,
                _ if on_temporary || self.text.contains("\"table\"") => Step::Other,
                _ => return None,
            };
            Some(step)
        }
    }

    /// Runs the child under `strace`, which tampers with its calls as `injection` says.
    fn trace(directory: &Path, injection: Option<&str>) -> (Vec<Call>, Output) {
        let role = "write once, far into this thread's calls";
        trace_role(role, directory, injection)
    }

    fn trace_role(role: &str, directory: &Path, injection: Option<&str>) -> (Vec<Call>, Output) {
        let aside = tempfile::tempdir().unwrap();
        let log = aside.path().join("log");
        let mut command = Command::new("strace");
        command
            .args(["-f", "-y", "-qq", "-e", &format!("trace={TRACED}"), "-o"])
            .arg(&log);
        if let Some(injection) = injection {
            command.args(["-e", &format!("inject={injection}")]);
        }
        command.arg(env::current_exe().unwrap());
        as_child(&mut command, role, directory);
        let output = command.output().expect("strace is installed");
        let log = fs::read_to_string(log).unwrap();
        (parse(&log), output)
    }

    fn parse(log: &str) -> Vec<Call> {
        let mut counts = std::collections::HashMap::new();
        let call = |line: &str| {
            let (thread, call) = line.split_once(' ')?;
            let (name, text) = call.trim_start().split_once('(')?;
            let nth = counts
                .entry((thread.to_owned(), name.to_owned()))
                .or_insert(0);
            *nth += 1;
            Some(Call {
                name: name.to_owned(),
                text: text.to_owned(),
                nth: *nth,
            })
        };
        log.lines().filter_map(call).collect()
    }

    fn steps(calls: &[Call], directory: &Path) -> Vec<Step> {
        let directory = directory.canonicalize().unwrap();
        calls
            .iter()
            .filter_map(|call| call.step(&directory))
            .collect()
    }

    #[test]
    #[ignore = "needs strace"]
    fn the_file_is_synced_before_its_name_and_its_name_before_success() {
        for before in [Before::Nothing, Before::OldFile] {
            let directory = before.directory();
            let (calls, output) = trace(directory.path(), None);
            assert!(says(&output, "written"), "{output:?}");
            let mut steps = steps(&calls, directory.path());
            let written = calls.iter().filter(|call| call.name == "write");
            let written = written.filter(|call| call.text.contains(".leveltable-"));
            let written = written.map(|call| {
                let (_, result) = call.text.rsplit_once("= ").unwrap();
                result.trim().parse::<u64>().unwrap()
            });
            let size = fs::metadata(directory.path().join("table")).unwrap().len();
            assert_eq!(written.sum::<u64>(), size);
            assert!(steps.iter().filter(|&&step| step == Step::Write).count() >= 3);
            steps.dedup();
            use Step::*;
            assert_eq!(
                steps,
                [
                    Create,
                    Write,
                    SyncFile,
                    Rename,
                    OpenDirectory,
                    SyncDirectory
                ]
            );
        }
    }

    /// It is renamed all the same, so that nobody sees a part of it.
    #[test]
    #[ignore = "needs strace"]
    fn a_table_that_is_not_to_be_synced_is_written_and_renamed_only() {
        for before in [Before::Nothing, Before::OldFile] {
            let directory = before.directory();
            let (calls, output) = trace_role("write once, unsynced", directory.path(), None);
            assert!(says(&output, "written"), "{output:?}");
            let syncs = calls.iter().filter(|call| call.name.contains("sync"));
            assert_eq!(syncs.count(), 0, "{calls:?}");
            let mut steps = steps(&calls, directory.path());
            steps.dedup();
            assert_eq!(steps, [Step::Create, Step::Write, Step::Rename]);
            assert_eq!(whole_generation(&directory.path().join("table")), 1);
        }
    }

    /// What a crash may leave of it: each is an error, and none is read as another table.
    #[test]
    fn what_a_crash_leaves_of_a_table_that_was_not_synced_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let options = WriteOptions::new().compression(Compression::None);
        write_with(&options.sync(false), &path, 1).unwrap();
        let whole = fs::read(&path).unwrap();
        let pages = (0..whole.len()).step_by(4096 * 16);
        for page in pages {
            let mut zeroed = whole.clone();
            let end = whole.len().min(page + 4096);
            zeroed[page..end].fill(0);
            for left in [&whole[..page], &zeroed] {
                fs::write(&path, left).unwrap();
                let read =
                    Table::open(&path).and_then(|table| table.iter().try_for_each(|e| e.map(drop)));
                assert!(read.is_err(), "page at {page}");
            }
        }
    }

    /// Fails, interrupts, or kills the process at, each system call that publishing a table makes.
    #[test]
    #[ignore = "needs strace"]
    fn a_failure_at_any_system_call_leaves_the_old_file_or_the_whole_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let (calls, _) = trace(directory.path(), None);
        let directory = directory.path().canonicalize().unwrap();
        let calls = calls
            .iter()
            .filter_map(|call| Some((call, call.step(&directory)?)));
        let mut points = 0;
        for (call, step) in calls {
            for fault in ["error=EIO", "error=ENOSPC", "error=EINTR", "signal=SIGKILL"] {
                for before in [Before::Nothing, Before::OldFile] {
                    let injection = format!("{}:{fault}:when={}", call.name, call.nth);
                    assert_survives(before, step, fault, &injection);
                    points += 1;
                }
            }
        }
        println!("{points} faults injected into system calls");
        assert!(points >= 8 * 8);
    }

    /// As on some network and FUSE file systems.
    #[test]
    #[ignore = "needs strace"]
    fn a_directory_that_cannot_be_synced_is_no_error_where_none_can() {
        for fault in ["EINVAL", "EOPNOTSUPP", "ENOSYS", "EBADF"] {
            let directory = Before::OldFile.directory();
            let (calls, _) = trace(directory.path(), None);
            let path = directory.path().canonicalize().unwrap();
            let mut calls = calls.iter();
            let sync = calls.find(|call| call.step(&path) == Some(Step::SyncDirectory));
            let injection = format!("fsync:error={fault}:when={}", sync.unwrap().nth);

            let directory = Before::OldFile.directory();
            let (calls, output) = trace(directory.path(), Some(&injection));
            let injected = calls.iter().any(|call| call.text.contains("(INJECTED)"));
            assert!(injected, "{fault}");
            assert!(says(&output, "written"), "{fault}: {output:?}");
            assert_eq!(whole_generation(&directory.path().join("table")), 1);
        }
    }

    fn assert_survives(before: Before, step: Step, fault: &str, injection: &str) {
        let directory = before.directory();
        let (calls, output) = trace(directory.path(), Some(injection));
        let done = steps(&calls, directory.path());
        assert!(done.contains(&step), "{injection} missed {step:?}");

        let path = directory.path().join("table");
        let is_new = path.exists() && fs::read(&path).unwrap() != OLD;
        if is_new {
            assert_eq!(whole_generation(&path), 1, "{injection}");
            assert!(
                step >= Step::Rename || fault == "error=EINTR",
                "{injection}"
            );
        }
        if fault == "signal=SIGKILL" {
            assert!(!output.status.success() && !says(&output, "written"));
            assert!(is_new || step <= Step::Rename, "{injection}");
            if !is_new {
                // Killed on the way in or out of a call: which, matters to the first alone.
                let leftovers = names(directory.path())
                    .iter()
                    .filter(|name| is_temporary(name))
                    .count();
                assert!(
                    leftovers == 1 || step == Step::Create && leftovers == 0,
                    "{injection}"
                );
                before.assert_untouched(directory.path(), leftovers);
            }
        } else if says(&output, "written") {
            assert!(
                is_new && fault == "error=EINTR",
                "{injection} was not noticed"
            );
        } else {
            let names_path = match step {
                Step::Create => "Io error: table: creating a table: ",
                _ => "Io error: table: ",
            };
            assert!(says(&output, names_path), "{output:?}");
            assert_eq!(is_new, step > Step::Rename, "{injection}: {output:?}");
            if is_new {
                assert_eq!(names(directory.path()), ["table"], "{injection}");
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(
                    text.contains(
                        "the table is at its path and whole, but its name may not survive"
                    ),
                    "does not say that the table is there: {text}"
                );
            } else {
                before.assert_untouched(directory.path(), 0);
            }
        }
    }
}

/// A failed write says nothing about a table's source.
#[test]
fn a_write_that_fails_is_an_error_of_io() {
    struct Stale;
    impl Write for Stale {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StaleNetworkFileHandle.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut builder = WriteOptions::new().build(Stale);
    builder.add(b"key", b"value").unwrap();
    let error = builder.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}
