//! Output that is closed, damage in the middle of it, full disks.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use assert_cmd::Command;
use tempfile::TempDir;

use super::{complaint, names_in, process, run, stdout, testdata, tool};

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

    let mut info = tool();
    let output = info.args(["info", "--full"]).arg(&path).output().unwrap();
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

/// Temporary files may be elsewhere than the table, and fill another disk.
#[test]
#[cfg(unix)]
fn a_full_temporary_directory_is_named() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (temporary, damaged, out) = (path("tmp"), path("damaged.ldb"), path("new.ldb"));
    fs::create_dir(&temporary).unwrap();
    let mut bytes = fs::read(testdata("large-b4096-r16-bloom10.ldb")).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let lines: String = { (0..5_000).rev() }
        .map(|i| format!("{i:08}\t{}\n", "value".repeat(i % 40)))
        .collect();
    let sort = ["build", &out, "--sort", "--sort-memory=256K"];
    for command in [&sort[..], &["scan", &damaged, "--skip-damaged"]] {
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_leveltable"))
            .args(command)
            .env("TMPDIR", &temporary)
            .write_stdin(lines.clone());
        let output = limited.output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        let complaint = complaint.lines().last().unwrap();
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        let named = format!("in a temporary file in {temporary}: ");
        assert!(
            complaint.contains(&named) && complaint.contains("TMPDIR"),
            "{complaint}"
        );
    }
}
