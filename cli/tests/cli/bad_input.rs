//! Input that is refused, files that are kept, builds that are interrupted.

use std::fs;
use std::io::{Read, Write};
use std::ops::Range;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;

#[cfg(target_os = "linux")]
use super::signals::{send_signal, tool_with_signals};
use super::{await_files, complaint, names_in, process, run, stdout, testdata, tool};

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
            &["--keys database"],
        ),
        (
            &["--keys=database"],
            "a\t1\tvalue\n",
            &["line 1", "no value"],
        ),
        (
            &["--keys=database"],
            "a\t-1\tvalue\tv\n",
            &[
                "line 1",
                "`-1` is not an integer from 0 to 72057594037927935",
            ],
        ),
        (
            &["--keys=database"],
            "a\t99999999999999999999\tvalue\tv\n",
            &["`99999999999999999999` is not an integer from 0 to 72057594037927935"],
        ),
        (
            &["--keys=database", "--format=jsonl"],
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
            &["--keys=database"],
            "a\t1\tmerge\tv\n",
            &["line 1", "`merge`", "value or deletion"],
        ),
        (
            &["--keys=database"],
            "a\t72057594037927936\tvalue\tv\n",
            &["line 1", "72057594037927935"],
        ),
        (
            &["--keys=database"],
            "a\t1\tvalue\tv\na\t2\tvalue\tv\n",
            &["line 2", "at sequence 2 is out of order"],
        ),
        (
            &["--keys=database"],
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
            &["zstd has levels", "to 22"],
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
/// Entries are parsed in chunks, while those before them are added. The input is still open when the tool ends.
#[test]
fn a_bad_line_far_into_the_input_is_named_at_once() {
    let directory = TempDir::new().unwrap();
    for (bad, words) in [
        ("0000001\t\n", "is out of order, it follows \"0015000\""),
        ("no tab\n", "no value"),
    ] {
        let mut build = process();
        build.arg("build").arg(directory.path().join("new.ldb"));
        build.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut build = build.spawn().unwrap();
        let lines = |numbers: Range<u32>| numbers.map(|n| format!("{n:07}\tvalue\n")).collect();
        let input: [String; 3] = [lines(1..15_001), bad.into(), lines(15_001..30_000)];
        let mut stdin = build.stdin.take().unwrap();
        // The tool may end before it has read everything.
        let _ = stdin.write_all(input.concat().as_bytes());
        let status = build.wait().unwrap();
        drop(stdin);
        let mut stderr = String::new();
        let mut said = build.stderr.take().unwrap();
        said.read_to_string(&mut stderr).unwrap();
        assert!(stderr.contains("standard input, line 15001: "), "{stderr}");
        assert!(
            stderr.contains(words) && status.code() == Some(2),
            "{stderr}"
        );
        assert!(names_in(directory.path()).is_empty(), "{stderr}");
    }
}

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
        (&["--keys=database"], ""),
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
        let mut building = tool_with_signals(None)
            .arg("build")
            .arg(directory.path().join("new.ldb"))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = building.stdin.take().unwrap();
        lines.write_all(b"a\t1\n").unwrap();
        await_files(&mut building, directory.path(), 1);
        send_signal(signal, &building);
        let output = building.wait_with_output().unwrap();
        assert_eq!(complaint(output, 130), "interrupted: nothing was written");
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
        let mut building = tool_with_signals(Some(ignored))
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
            send_signal(signal, &building);
            std::thread::sleep(Duration::from_millis(50));
        }
        let status = building.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{sent:?}: {status}");
        assert!(names_in(directory.path()).is_empty(), "{sent:?}");
    }
}
