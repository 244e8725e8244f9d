//! `build --database` and `compact`: what they print, refuse and leave behind.

use std::fs;
use std::path::Path;
use std::process::Output;

use leveltable_database::{Database, DatabaseBuildOptions, DatabaseBuilder};
use tempfile::TempDir;

use super::{complaint, hex, names_in, run, stdout, tool};

/// Runs the tool in `directory`.
fn run_in(directory: &Path, args: &[&str], input: &str) -> Output {
    let mut tool = tool();
    tool.current_dir(directory).args(args).write_stdin(input);
    tool.output().unwrap()
}

fn entries(db: &Path) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let entries = Database::open_read_only(db).unwrap();
    let entries = entries
        .iter()
        .map(|entry| entry.map(|(key, value)| (text(&key), text(&value))));
    entries.collect::<Result<_, _>>().unwrap()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|&(key, value)| (key.into(), value.into()))
        .collect()
}

#[test]
fn every_input_of_build_becomes_a_database() {
    let scratch = TempDir::new().unwrap();
    let expected = pairs(&[("a", "1"), ("b", "2")]);
    for (n, (args, input)) in [
        (&[][..], "a\t1\nb\t2\n"),
        (&["--sort"], "b\t2\na\t1\n"),
        (&["--format=csv"], "a,1\nb,2\n"),
        (
            &["--format=jsonl"],
            "{\"key\":\"a\",\"value\":1}\n{\"key_hex\":\"62\",\"value\":\"2\"}\n",
        ),
        (
            &["--keys=database"],
            "a\t7\tvalue\t1\na\t5\tvalue\t0\nb\t3\tvalue\t2\nc\t9\tdeletion\t\n",
        ),
        (
            &["--keys=database", "--sort"],
            "b\t3\tvalue\t2\nc\t9\tdeletion\t\na\t5\tvalue\t0\na\t7\tvalue\t1\n",
        ),
        (&["--codec=deflate", "--filter=none"], "a\t1\nb\t2\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("db{n}");
        let args = [&["build", &name, "--database"], args].concat();
        assert_eq!(stdout(run_in(scratch.path(), &args, input)), b"");
        assert_eq!(entries(&scratch.path().join(name)), expected);
    }
    stdout(run_in(
        scratch.path(),
        &["build", "none", "--database", "--allow-empty"],
        "",
    ));
    assert_eq!(entries(&scratch.path().join("none")), []);
    assert_eq!(names_in(scratch.path()).len(), 8, "nothing else");
}

#[test]
fn a_database_is_built_in_the_order_of_indexed_db() {
    let scratch = TempDir::new().unwrap();
    let build = |out: &str, args: &[&str], input: &str| {
        let args = [&["build", out, "--hex"], args].concat();
        run_in(scratch.path(), &args, input)
    };
    // Bytewise, they come in the other order.
    let (first, last) = ("\0\x01\x01\x01\x01\x02\0a\0a", "\0\x01\x01\x01\x01\x01\0b");
    let lines = |middle: &str| {
        [(first, "31"), (last, "32")].map(|(key, value)| {
            let key = hex(key.as_bytes());
            format!("{key}\t{middle}{value}\n")
        })
    };
    let order = ["--database", "--comparator", "idb_cmp1"];
    for (out, keys, [one, two]) in [
        ("plain", "--keys=plain", lines("")),
        ("versions", "--keys=database", lines("7\tvalue\t")),
    ] {
        let sorted = format!("{out}, sorted");
        let (ascending, descending) = (format!("{one}{two}"), format!("{two}{one}"));
        let args = [&order[..], &[keys]].concat();
        let refused = complaint(build(out, &args, &descending), 2);
        assert!(refused.contains("line 2: key"), "{refused}");
        assert!(refused.contains("out of order"), "{refused}");
        let bytewise = complaint(build(out, &["--database", keys], &ascending), 2);
        assert!(bytewise.contains("out of order"), "{bytewise}");
        stdout(build(out, &args, &ascending));
        let args = [&args[..], &["--sort"]].concat();
        stdout(build(&sorted, &args, &descending));
        for name in [out, &sorted] {
            let path = scratch.path().join(name);
            assert_eq!(entries(&path), pairs(&[(first, "1"), (last, "2")]));
            let db = Database::open_read_only(path).unwrap();
            assert_eq!(db.comparator(), "idb_cmp1");
        }
    }
    // What `scan` prints can be built again.
    let lines = stdout(run_in(scratch.path(), &["scan", "plain", "--hex"], ""));
    let lines = String::from_utf8(lines).unwrap();
    stdout(build("copy", &order, &lines));
    let refused = |out, args: &[&str]| {
        let output = build(out, args, "");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let table = refused("table.ldb", &["--comparator", "idb_cmp1"]);
    assert!(table.contains("--database"), "{table}");
    let unknown = refused("db", &["--database", "--comparator", "mine"]);
    assert!(unknown.contains("idb_cmp1"), "{unknown}");
}

#[test]
fn what_cannot_be_built_leaves_nothing() {
    let scratch = TempDir::new().unwrap();
    fs::create_dir(scratch.path().join("there")).unwrap();
    for (args, input, expected) in [
        (
            &["there"][..],
            "a\t1\n",
            &["there", "name a new directory"][..],
        ),
        (
            &["nowhere/db"],
            "a\t1\n",
            &["nowhere", "parent directory does not exist"],
        ),
        (&["-"], "a\t1\n", &["a database is a directory"]),
        (
            &["s3://bucket/db"],
            "a\t1\n",
            &["a database is a directory"],
        ),
        (&["db"], "", &["no entries"]),
        (&["db"], "b\t1\na\t2\n", &["line 2", "out of order"]),
        (&["db"], "a\t1\na\t2\n", &["line 2", "duplicate"]),
        (&["db", "--keys=database"], "a\t1\n", &["line 1", "no type"]),
        (
            &["db", "--keys=database", "--format=jsonl", "--whole-record"],
            "{}\n",
            &["--whole-record"],
        ),
    ] {
        let output = run_in(
            scratch.path(),
            &[&["build", "--database"], args].concat(),
            input,
        );
        let complaint = complaint(output, 2);
        for words in expected {
            assert!(complaint.contains(words), "{complaint}");
        }
        assert_eq!(names_in(scratch.path()), ["there".to_owned()].into());
    }
    for option in ["--force", "--json", "--no-properties"] {
        let output = run_in(
            scratch.path(),
            &["build", "--database", "db", option],
            "a\t1\n",
        );
        assert_eq!(output.status.code(), Some(2));
    }
}

/// A database of versions in tables.
fn old(scratch: &Path) -> std::path::PathBuf {
    let input = "a\t9\tdeletion\t\na\t2\tvalue\told\nb\t4\tvalue\tnew\nb\t3\tvalue\told\nc/1\t5\tvalue\tx\nc/2\t6\tvalue\ty\n";
    stdout(run_in(
        scratch,
        &["build", "old", "--database", "--keys=database"],
        input,
    ));
    scratch.join("old")
}

#[test]
fn compact_keeps_what_is_live_and_wanted_and_makes_changes() {
    let scratch = TempDir::new().unwrap();
    let old = old(scratch.path());
    let before = fs::metadata(&old).unwrap().modified().unwrap();
    let changes = "{\"key\":\"b\",\"delete\":true}\n{\"key\":\"d\",\"value\":{\"n\":[1]}}\n{\"key_hex\":\"00\",\"value_hex\":\"41\"}\n{\"key\":\"d\",\"value\":\"last\"}\n";
    for (n, (args, input, expected)) in [
        (&[][..], "", &[("b", "new"), ("c/1", "x"), ("c/2", "y")][..]),
        (&["--prefix", "c/"], "", &[("c/1", "x"), ("c/2", "y")]),
        (
            &["--from", "b", "--to", "c/2"],
            "",
            &[("b", "new"), ("c/1", "x")],
        ),
        (&["--from", "632f32", "--hex"], "", &[("c/2", "y")]),
        (
            &["--changes=-"],
            changes,
            &[("\0", "A"), ("c/1", "x"), ("c/2", "y"), ("d", "last")],
        ),
        (&["--codec=none", "--to=b"], "", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let new = format!("new{n}");
        let output = run_in(
            scratch.path(),
            &[&["compact", "old", &new], args].concat(),
            input,
        );
        let said = String::from_utf8(stdout(output)).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            lines[0].starts_with("old: ") && lines[0].ends_with(" bytes"),
            "{said}"
        );
        assert!(lines[1].starts_with(&format!("{new}: ")), "{said}");
        let rename = if cfg!(windows) { "move" } else { "mv" };
        let expected_lines = [
            format!("  {rename} old old.old"),
            format!("  {rename} {new} old"),
        ];
        assert_eq!(lines[3..], expected_lines);
        assert_eq!(entries(&scratch.path().join(new)), pairs(expected));
    }
    assert_eq!(fs::metadata(&old).unwrap().modified().unwrap(), before);
    // The last change wins, and the one before it is gone as well.
    let db = Database::open_read_only(scratch.path().join("new4")).unwrap();
    assert_eq!(db.history_range(..).unwrap().count(), 4);
}

#[cfg(unix)]
#[test]
fn the_commands_that_compact_prints_put_the_new_directory_in_place() {
    let scratch = TempDir::new().unwrap();
    let real = scratch.path().join("it's real");
    fs::create_dir(&real).unwrap();
    old(&real);
    let link = scratch.path().join("my link");
    std::os::unix::fs::symlink(real.join("old"), &link).unwrap();
    // The place of the copy that is kept is taken.
    fs::create_dir(real.join("old.old")).unwrap();
    let said = stdout(run_in(
        scratch.path(),
        &["compact", "my link", "-new"].map(|a| if a == "-new" { "./-new" } else { a }),
        "",
    ));
    let said = String::from_utf8(said).unwrap();
    let commands: Vec<&str> = said.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(commands.len(), 2);
    for command in commands {
        let status = std::process::Command::new("sh")
            .args(["-c", command])
            .current_dir(scratch.path())
            .status();
        assert!(status.unwrap().success(), "{command}");
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        entries(&link),
        pairs(&[("b", "new"), ("c/1", "x"), ("c/2", "y")])
    );
    assert_eq!(
        names_in(&real),
        ["old", "old.old", "old.old1"].map(str::to_owned).into()
    );
}

#[test]
fn what_cannot_be_compacted_leaves_nothing() {
    let scratch = TempDir::new().unwrap();
    let old = old(scratch.path());
    fs::write(scratch.path().join("file"), "").unwrap();
    let bad = |line: &str| {
        fs::write(
            scratch.path().join("changes"),
            format!("{{\"key\":\"a\",\"value\":\"1\"}}\n{line}\n"),
        )
        .unwrap();
        complaint(
            run_in(
                scratch.path(),
                &["compact", "old", "new", "--changes", "changes"],
                "",
            ),
            2,
        )
    };
    for (line, expected) in [
        ("{\"key\":\"a\"}", "neither value nor value_hex"),
        (
            "{\"key\":\"a\",\"value\":\"1\",\"delete\":true}",
            "both a value",
        ),
        ("{\"key\":\"a\",\"delete\":1}", "neither true nor false"),
        (
            "{\"key\":\"a\",\"sequence\":1,\"value\":\"1\"}",
            "unknown JSON field",
        ),
        ("{\"key\":null,\"value\":\"1\"}", "key is null"),
        ("nonsense", "not a JSON object"),
    ] {
        let complaint = bad(line);
        assert!(
            complaint.contains("changes, line 2") && complaint.contains(expected),
            "{complaint}"
        );
    }
    fs::remove_file(scratch.path().join("changes")).unwrap();
    for (args, expected) in [
        (&["old", "file"][..], "name a new directory"),
        (&["old", "old"], "name a new directory"),
        (&["old", "old/new"], "beside it"),
        (&["old", "nowhere/new"], "parent directory does not exist"),
        (&["file", "new"], "not a directory"),
        (&["nowhere", "new"], "nowhere"),
        (&["old", "s3://bucket/new"], "not an object"),
        (&["old", "new", "--changes", "nowhere"], "nowhere"),
    ] {
        let complaint = complaint(
            run_in(scratch.path(), &[&["compact"], args].concat(), ""),
            2,
        );
        assert!(complaint.contains(expected), "{complaint}");
    }
    let table = old.join("000002.ldb");
    let mut bytes = fs::read(&table).unwrap();
    bytes[3] ^= 1;
    fs::write(&table, bytes).unwrap();
    let damaged = complaint(run_in(scratch.path(), &["compact", "old", "new"], ""), 2);
    assert!(
        damaged.contains("000002.ldb") && damaged.contains("repair"),
        "{damaged}"
    );
    assert_eq!(
        names_in(scratch.path()),
        ["file", "old"].map(str::to_owned).into()
    );
}

#[cfg(target_os = "linux")]
mod ends {
    use super::*;
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use crate::await_files;
    use crate::signals::{send_signal, tool_with_signals};

    /// Lines of 4 MB.
    fn lines() -> String {
        (0..40_000)
            .map(|i| format!("{i:08}\t{}\n", fastrand_like(i)))
            .collect()
    }

    /// Digits that hardly compress.
    fn fastrand_like(i: u64) -> String {
        let mut n = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let next = |_| {
            n ^= n << 13;
            n ^= n >> 7;
            n ^= n << 17;
            format!("{n:016x}")
        };
        (0..6).map(next).collect()
    }

    #[test]
    fn an_interrupted_build_leaves_nothing() {
        let text = lines();
        for round in 0..30u64 {
            let scratch = TempDir::new().unwrap();
            let signal = ["-INT", "-TERM", "-HUP"][round as usize % 3];
            let mut build = tool_with_signals(None);
            build
                .args(["build", "db", "--database"])
                .current_dir(scratch.path());
            let mut child = build
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = child.stdin.take().unwrap();
            // The input ends when the tool has: by itself, it would not end before.
            let (ended, waiting) = std::sync::mpsc::channel::<()>();
            let writing = std::thread::spawn({
                let text = text.clone();
                move || {
                    let _ = input.write_all(text.as_bytes());
                    let _ = waiting.recv_timeout(Duration::from_secs(60));
                }
            });
            await_files(&mut child, scratch.path(), 1);
            std::thread::sleep(Duration::from_millis(round * 20));
            send_signal(signal, &child);
            let output = child.wait_with_output().unwrap();
            drop(ended);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(130), "{stderr}");
            assert_eq!(stderr, "interrupted: nothing was written\n");
            assert_eq!(names_in(scratch.path()).len(), 0);
            writing.join().unwrap();
        }
    }

    #[test]
    fn an_interrupted_compaction_leaves_nothing_or_all() {
        let scratch = TempDir::new().unwrap();
        let mut builder =
            DatabaseBuilder::create(scratch.path().join("old"), DatabaseBuildOptions::new())
                .unwrap();
        for i in 0..300_000u64 {
            builder.put(format!("{i:08}"), fastrand_like(i)).unwrap();
        }
        builder.finish().unwrap();
        let mut interrupted = 0;
        for round in 0..30u64 {
            let mut compact = tool_with_signals(None);
            compact
                .args(["compact", "old", "new"])
                .current_dir(scratch.path())
                .stdout(Stdio::null());
            let child = compact.stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(10 + round * 15));
            send_signal("-INT", &child);
            let status = child.wait_with_output().unwrap().status;
            let names = names_in(scratch.path());
            match (status.code(), status.signal()) {
                // Before the tool takes signals, or as a whole.
                (Some(130), _) | (_, Some(2)) => {
                    interrupted += 1;
                    assert_eq!(names, ["old".to_owned()].into());
                }
                (code, _) => {
                    assert_eq!(code, Some(0));
                    assert_eq!(names, ["new", "old"].map(str::to_owned).into());
                    assert_eq!(entries(&scratch.path().join("new")).len(), 300_000);
                    fs::remove_dir_all(scratch.path().join("new")).unwrap();
                }
            }
        }
        assert!(interrupted > 0);
    }

    /// A file that grows past the limit raises SIGXFSZ, which ends a program that does not expect it.
    #[test]
    fn a_limit_of_the_file_size_is_an_error_that_leaves_nothing() {
        let scratch = TempDir::new().unwrap();
        fs::write(scratch.path().join("lines"), lines()).unwrap();
        for blocks in [0, 1, 2, 7, 100, 1000, 1900] {
            let tool = env!("CARGO_BIN_EXE_leveltable");
            let script = format!("ulimit -f {blocks}; exec {tool} build db lines --database");
            let output = Command::new("bash")
                .args(["-c", &script])
                .current_dir(scratch.path())
                .output();
            let message = complaint(output.unwrap(), 2);
            assert!(
                message.contains("db/") && message.contains("File too large"),
                "{message}"
            );
            assert_eq!(names_in(scratch.path()), ["lines".to_owned()].into());
        }
    }

    #[test]
    #[ignore = "mounts small disks, in a user namespace"]
    fn a_full_disk_is_an_error_that_leaves_nothing() {
        let scratch = TempDir::new().unwrap();
        fs::write(scratch.path().join("lines"), lines()).unwrap();
        let tool = env!("CARGO_BIN_EXE_leveltable");
        for kib in (4100..6100).step_by(66) {
            let script = format!(
                "mkdir -p disk && mount -t tmpfs -o size={kib}k none disk && {tool} build disk/db lines --database; \
                 code=$?; ls -A disk | wc -l; exit $code"
            );
            let unshare = ["-rm", "sh", "-c", &script];
            let output = Command::new("unshare")
                .args(unshare)
                .current_dir(scratch.path())
                .output()
                .unwrap();
            let left = String::from_utf8(output.stdout.clone()).unwrap();
            match output.status.code() {
                Some(0) => assert_eq!(left, "1\n"),
                _ => {
                    let message = complaint(output, 2);
                    assert!(
                        message.contains("No space left") || message.contains("are free"),
                        "{message}"
                    );
                    assert_eq!(left, "0\n", "{message}");
                }
            }
        }
    }

    #[test]
    fn what_a_kill_left_is_told() {
        let scratch = TempDir::new().unwrap();
        fs::create_dir(scratch.path().join(".leveltable-AbCdEf.tmp")).unwrap();
        let output = run_in(scratch.path(), &["build", "db", "--database"], "a\t1\n");
        let note = complaint(output, 0);
        assert!(
            note.contains(".leveltable-AbCdEf.tmp") && note.contains("can be deleted"),
            "{note}"
        );
    }
}

#[test]
fn a_database_that_a_program_holds_gets_no_commands() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let scratch = TempDir::new().unwrap();
    let old = old(scratch.path());
    fs::write(old.join("LOCK"), "").unwrap();
    // As C++ LevelDB takes it.
    let script = "import fcntl, sys; lock = open('old/LOCK', 'w'); fcntl.lockf(lock, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()";
    let mut holder = std::process::Command::new("python3");
    holder.args(["-c", script]).current_dir(scratch.path());
    let mut holder = holder
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 7];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).unwrap();
    let output = run_in(scratch.path(), &["compact", "old", "new"], "");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(
        (output.status.code(), text.contains("mv ")),
        (Some(1), false),
        "{text}"
    );
    assert!(
        text.contains("Close it, delete new, and run this again"),
        "{text}"
    );
    drop(holder.stdin.take());
    holder.wait().unwrap();
    fs::remove_dir_all(scratch.path().join("new")).unwrap();
    let output = run([
        "compact".as_ref(),
        old.as_os_str(),
        scratch.path().join("new").as_os_str(),
    ]);
    assert!(String::from_utf8(stdout(output)).unwrap().contains("mv "));
}
