//! Runs the tool with the feature `object-store`: URLs of files, sets, uploads that are interrupted.
//!
//! The crate `leveltable-object-store` is tested on servers. What is tested here is that the tool uses it rightly.
#![cfg(unix)]

#[path = "common/sessions.rs"]
mod sessions;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const TESTDATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata");

fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_leveltable"))
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Lines of more than a part of an upload, which is 8 MiB.
fn many_lines() -> Vec<u8> {
    let value = "v".repeat(1000);
    let lines = (0..20_000).map(|i| format!("{i:08}\t{value}\n"));
    lines.collect::<String>().into_bytes()
}

#[test]
fn sessions_run_as_they_are_written_down() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/object-store");
    let names = names_in(&directory);
    let files: Vec<PathBuf> = names.iter().map(|name| directory.join(name)).collect();
    let commands = sessions::replay(&files, Path::new(TESTDATA));
    assert!(commands > 20, "{commands}");
}

/// The commands say of an object what they say of the same file.
#[test]
fn urls_are_read_as_files_are() {
    let directory = fs::canonicalize(TESTDATA).unwrap();
    let tables = [
        "words-b1024-r16-bloom10.ldb",
        "db-log-snappy.ldb",
        "empty-b4096-r16-nofilter.ldb",
    ];
    for table in tables {
        let path = directory.join(table);
        let run = |arguments: &[&str], file: &str| -> Output {
            let mut command = tool();
            command.arg(arguments[0]).arg(file).args(&arguments[1..]);
            command.output().unwrap()
        };
        for arguments in [
            &["scan"][..],
            &["scan", "--reverse", "--json"],
            &["scan", "--from", "user/002", "--limit", "7"],
            &["get", "user/000037/email", "absent"],
            &["verify"],
            &["info", "--blocks"],
            &["info", "--json"],
            &["splits", "3"],
        ] {
            let (of_file, of_url) = (path.display().to_string(), url(&path));
            let (expected, found) = (run(arguments, &of_file), run(arguments, &of_url));
            let named = |bytes: &[u8]| {
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                text.replace(&of_url, &of_file)
            };
            assert_eq!(found.status, expected.status, "{arguments:?} {table}");
            assert_eq!(named(&found.stdout), named(&expected.stdout));
            assert_eq!(named(&found.stderr), named(&expected.stderr));
        }
    }
}

/// A walk makes requests that grow, and shows what the file holds wherever they end.
#[test]
fn a_large_object_is_read_whole() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("large.ldb");
    let mut building = tool()
        .args(["build", "--codec", "none", &url(&path)])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = many_lines();
    building.stdin.take().unwrap().write_all(&lines).unwrap();
    assert!(building.wait().unwrap().success());
    assert!(fs::metadata(&path).unwrap().len() > 16 << 20);
    let scanned = tool().args(["scan", &url(&path)]).output().unwrap();
    assert!(scanned.stdout == lines);
    let verified = tool().args(["verify", &url(&path)]).output().unwrap();
    assert!(verified.status.success());
}

#[test]
fn an_interrupted_upload_leaves_no_trace() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let directory = TempDir::new().unwrap();
        // The tool leaves a signal ignored that its parent ignores, so reset these signals.
        let mut building = Command::new("env")
            .arg("--default-signal=INT,TERM,HUP")
            .arg(env!("CARGO_BIN_EXE_leveltable"))
            .args(["build", "--codec", "none"])
            .arg(url(&directory.path().join("new.ldb")))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = building.stdin.take().unwrap();
        lines.write_all(&many_lines()).unwrap();
        let started = Instant::now();
        while names_in(directory.path()).is_empty() {
            assert!(building.try_wait().unwrap().is_none(), "{signal}");
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "nothing is uploaded"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let id = building.id().to_string();
        let kill = Command::new("kill").args([signal, &id]).status();
        assert!(kill.unwrap().success());
        let status = building.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{signal}: {status}");
        assert_eq!(names_in(directory.path()), [""; 0], "{signal}");
    }
}

#[test]
fn an_upload_that_fails_leaves_no_trace() {
    let directory = TempDir::new().unwrap();
    let mut lines = many_lines();
    lines.extend_from_slice(b"00000000\tout of order\n");
    let input = directory.path().join("lines");
    fs::write(&input, lines).unwrap();
    let built = tool()
        .args(["build", "--codec", "none"])
        .arg(url(&directory.path().join("new.ldb")))
        .arg(&input)
        .output()
        .unwrap();
    let stderr = String::from_utf8(built.stderr).unwrap();
    assert_eq!(built.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("is out of order"), "{stderr}");
    assert_eq!(names_in(directory.path()), ["lines"]);
}

/// Whatever a server answers, even the request itself.
#[test]
fn no_message_shows_a_secret() {
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG";
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in server.incoming() {
            let mut connection = connection.unwrap();
            let mut request = [0; 4096];
            let len = connection.read(&mut request).unwrap_or(0);
            let end = request.windows(4).position(|end| end == b"\r\n\r\n");
            let len = end.unwrap_or(len);
            let head = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n";
            let _ = write!(connection, "{head}Content-Length: {len}\r\n\r\n");
            let _ = connection.write_all(&request[..len]);
        }
    });
    let input = TempDir::new().unwrap();
    let lines = input.path().join("lines");
    fs::write(&lines, "apple\tred\n").unwrap();
    let lines = lines.to_str().unwrap();
    for arguments in [
        &["get", "s3://bucket/table.ldb", "apple"][..],
        &["scan", "s3://bucket/table.ldb"],
        &["info", "s3://bucket/table.ldb"],
        &["verify", "s3://bucket/table.ldb"],
        &["splits", "s3://bucket/table.ldb", "3"],
        &["build", "s3://bucket/table.ldb", lines],
        &["publish", "s3://bucket/manifest", "s3://bucket/table.ldb"],
    ] {
        let run = tool()
            .args(arguments)
            .env("AWS_ENDPOINT", &endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .output()
            .unwrap();
        let stderr = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(stderr.contains("403"), "{arguments:?}: {stderr}");
        assert!(!stderr.contains(SECRET), "{arguments:?}: {stderr}");
    }
}
