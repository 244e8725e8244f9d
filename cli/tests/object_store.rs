//! Runs the tool with the feature `object-store`: URLs of files, sets, uploads that are interrupted.
//!
//! The crate `leveltable-object-store` is tested on servers. What is tested here is that the tool uses it rightly.
#![cfg(unix)]

#[path = "common/sessions.rs"]
mod sessions;
#[path = "common/signals.rs"]
mod signals;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use leveltable::{OpenOptions, WriteOptions};
use signals::{send_signal, tool_with_signals};
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
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions/object-store");
    let names = names_in(&directory);
    let files: Vec<PathBuf> = names.iter().map(|name| directory.join(name)).collect();
    let commands = sessions::replay(&files, Path::new(TESTDATA));
    assert!(commands > 20, "{commands}");
}

/// The commands of docs/scaling.md for engines with a shell: two tasks write, one process publishes, many read.
#[test]
fn the_shell_commands_of_the_page_on_scaling_run() {
    let page = include_str!("../../docs/scaling.md");
    let blocks = page
        .split("\n```")
        .filter_map(|block| block.strip_prefix("sh\n"));
    let blocks: Vec<&str> = blocks.collect();
    let [build, publish, read] = blocks[..] else {
        panic!("{} blocks", blocks.len());
    };
    let directory = TempDir::new().unwrap();
    let words = url(&directory.path().join("words"));
    fs::create_dir(directory.path().join("words")).unwrap();
    let tools = Path::new(env!("CARGO_BIN_EXE_leveltable"))
        .parent()
        .unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let run = |commands: &str, input: &[u8]| -> Vec<u8> {
        let mut shell = Command::new("sh")
            .args(["-eu", "-c", &commands.replace("s3://bucket/words", &words)])
            .current_dir(directory.path())
            .env("PATH", &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        shell.stdin.take().unwrap().write_all(input).unwrap();
        let output = shell.wait_with_output().unwrap();
        assert!(output.status.success(), "{commands}");
        output.stdout
    };

    let lines = many_lines();
    let half = lines.len() / 2; // the lines are of one length
    let mut names = run(build, &lines[..half]);
    names.extend(run(build, &lines[half..]));
    assert_eq!(names.iter().filter(|&&byte| byte == b'\n').count(), 2);
    fs::write(directory.path().join("names.txt"), names).unwrap();
    run(publish, b"");
    run(read, b"");
    let parts = names_in(directory.path());
    let mut numbers: Vec<usize> = parts
        .iter()
        .filter_map(|name| {
            name.strip_prefix("part-")?
                .strip_suffix(".tsv")?
                .parse()
                .ok()
        })
        .collect();
    numbers.sort_unstable();
    assert!(numbers.len() > 100, "{}", numbers.len());
    let part = |number| fs::read(directory.path().join(format!("part-{number}.tsv"))).unwrap();
    assert!(numbers.into_iter().flat_map(part).eq(lines));
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

/// More than one step of the copy that is made first.
#[test]
fn a_damaged_object_is_salvaged_as_the_same_file_is() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("damaged.ldb");
    let mut building = tool()
        .args(["build", "--codec", "none"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    building
        .stdin
        .take()
        .unwrap()
        .write_all(&many_lines())
        .unwrap();
    assert!(building.wait().unwrap().success());
    let mut bytes = fs::read(&path).unwrap();
    bytes[12 << 20] ^= 1;
    fs::write(&path, bytes).unwrap();

    let [from_file, from_url] = [path.display().to_string(), url(&path)].map(|input| {
        let out = directory.path().join("rescued.ldb");
        let salvage_to = |out: &str| {
            let mut salvaging = tool();
            salvaging.args(["salvage", "--force", &input, out]);
            let salvaged = salvaging.output().unwrap();
            assert_eq!(salvaged.status.code(), Some(1), "{salvaged:?}");
            salvaged
        };
        let salvaged = salvage_to(out.to_str().unwrap());
        let uploaded = directory.path().join("uploaded.ldb");
        salvage_to(&url(&uploaded));
        assert!(fs::read(&out).unwrap() == fs::read(uploaded).unwrap());
        let mut scanning = tool();
        scanning.args(["scan", "--skip-damaged", &input]);
        let scanned = scanning.output().unwrap();
        assert_eq!(scanned.status.code(), Some(1));
        let named = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(&input, "IN");
        let texts = [salvaged.stdout, scanned.stdout, scanned.stderr].map(named);
        (texts, fs::read(out).unwrap())
    });
    assert!(from_file == from_url, "{:?}", from_url.0[0]);

    let spaced = directory.path().join("a b.ldb");
    fs::rename(&path, &spaced).unwrap();
    let before = fs::read(&spaced).unwrap();
    let shown = directory.path().display();
    for itself in [
        format!("file://{shown}/a b.ldb"),
        format!("file://{shown}/a%20b.ldb"),
        format!("FILE://{shown}/a%20b.ldb"),
        format!("file://localhost{shown}/./a%20b.ldb"),
    ] {
        let mut onto_itself = tool();
        onto_itself
            .args(["salvage", "--force", &itself])
            .arg(&spaced);
        let onto_itself = onto_itself.output().unwrap();
        assert_eq!(onto_itself.status.code(), Some(2), "{itself}");
        let message = String::from_utf8(onto_itself.stderr).unwrap();
        assert!(message.contains("the same file"), "{itself}: {message}");
        assert!(fs::read(&spaced).unwrap() == before, "{itself}");
    }
}

/// Lists a set again: `forge` changes the last key and the record of each table.
fn publish_forged(manifests: &Path, forge: impl Fn(&mut Vec<u8>, &mut Vec<u8>)) {
    let options = OpenOptions::new().no_cache();
    let listed = options.open(manifests.join("0000000001")).unwrap();
    let path = manifests.join("0000000002");
    let write = WriteOptions::new().replace_existing(true);
    let mut builder = write.create(path).unwrap();
    for entry in listed.iter() {
        let (key, record) = entry.unwrap();
        let (mut key, mut record) = (key.to_vec(), record.to_vec());
        forge(&mut key, &mut record);
        builder.add(key, record).unwrap();
    }
    for (name, value) in listed.properties().unwrap().user_properties() {
        builder
            .property(str::from_utf8(name).unwrap(), value)
            .unwrap();
    }
    builder.finish().unwrap();
}

#[test]
fn publish_reads_no_name_that_is_not_utf8() {
    let directory = TempDir::new().unwrap();
    let set = directory.path().join("set");
    let mut publishing = tool()
        .arg("publish")
        .args([&set, Path::new("-")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let names = b"\n1.ldb\n\xff.ldb\n";
    publishing.stdin.take().unwrap().write_all(names).unwrap();
    let output = publishing.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("standard input, line 3"), "{message}");
    assert!(message.contains("UTF-8"), "{message}");
    assert!(!set.exists());
}

/// By a manifest of another writer, or a forged one, lookups miss keys.
#[test]
fn a_table_that_differs_from_what_its_set_lists_is_reported() {
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (table, lines) in [
        ("1.ldb", "apple\tred\nbanana\tyellow\n"),
        ("2.ldb", "cherry\tred\nfig\tviolet\n"),
    ] {
        fs::write(at("lines"), lines).unwrap();
        let building = tool().arg("build").arg(at(table)).arg(at("lines")).status();
        assert!(building.unwrap().success());
    }
    let (set, tables) = (at("set"), [at("1.ldb"), at("2.ldb")]);
    let publishing = tool().arg("publish").arg(&set).args(tables).status();
    assert!(publishing.unwrap().success());
    let replace = |bytes: &mut Vec<u8>, from: &[u8], to: &[u8]| {
        if let Some(i) = bytes.windows(from.len()).position(|part| part == from) {
            bytes.splice(i..i + from.len(), to.iter().copied());
        }
    };
    type Forge<'a> = &'a dyn Fn(&mut Vec<u8>, &mut Vec<u8>);
    let cases: [(Forge<'_>, &str); 4] = [
        (&|_, _| {}, ""),
        // The record ends with the number of entries.
        (
            &|key, record| {
                if key == b"fig" {
                    *record.last_mut().unwrap() = 3;
                }
            },
            "the set lists 3 entries",
        ),
        (
            &|_, record| replace(record, b"cherry", b"damson"),
            "its first key is \"cherry\", and the set lists \"damson\"",
        ),
        (
            &|key, _| replace(key, b"fig", b"elderberry"),
            "its last key is \"fig\", and the set lists \"elderberry\"",
        ),
    ];
    for (forge, expected) in cases {
        publish_forged(&set, forge);
        let verified = tool().arg("verify").arg(&set).output().unwrap();
        let report = String::from_utf8(verified.stdout).unwrap();
        let is_as_listed = expected.is_empty();
        assert_eq!(verified.status.code(), Some(i32::from(!is_as_listed)));
        assert!(report.contains(expected), "{report}");
        let differs = report.contains("2.ldb: not as listed: 2 entries in 1 block");
        assert_eq!(differs, !is_as_listed, "{report}");
        assert_eq!(report.contains("set: not sound"), !is_as_listed, "{report}");
        let verified = tool().arg("verify").arg(&set).arg("--json").output();
        let records = String::from_utf8(verified.unwrap().stdout).unwrap();
        let unsound = records
            .lines()
            .filter(|line| line.contains("\"sound\":false"));
        assert_eq!(
            unsound.count(),
            if is_as_listed { 0 } else { 2 },
            "{records}"
        );
    }
}

#[test]
fn an_interrupted_upload_leaves_no_trace() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let directory = TempDir::new().unwrap();
        let mut building = tool_with_signals(None)
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
        send_signal(signal, &building);
        let status = building.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{signal}: {status}");
        assert_eq!(names_in(directory.path()), [""; 0], "{signal}");
    }
}

/// A mutex that is free when a request may be answered, and the status of the answer.
type Answer = Option<(Arc<Mutex<()>>, &'static str)>;

/// Starts a server of S3 that begins uploads, and answers other requests that write as `answer` says, once that mutex is
/// free: not at all, if that is `None`. Returns its URL, and a channel that tells of these requests.
fn slow_server(answer: Answer) -> (String, mpsc::Receiver<()>) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    let serve = |mut connection: TcpStream, tell: mpsc::Sender<()>, answer: Answer| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && connection.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
        }
        let body =
            "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
        let (status, body) = match &head[..] {
            [b'P', b'O', b'S', b'T', ..] => ("200 OK", body),
            [b'H', b'E', b'A', b'D', ..] => ("404 Not Found", ""),
            _ => {
                let _ = tell.send(());
                let Some((gate, status)) = answer else {
                    std::thread::sleep(Duration::from_secs(600));
                    return;
                };
                drop(gate.lock().unwrap());
                (status, "")
            }
        };
        let len = body.len();
        let _ = write!(
            connection,
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}"
        );
        let _ = std::io::copy(&mut connection, &mut std::io::sink());
    };
    std::thread::spawn(move || {
        for connection in server.incoming() {
            let (tell, answer) = (tell.clone(), answer.clone());
            std::thread::spawn(move || serve(connection.unwrap(), tell, answer));
        }
    });
    (endpoint, told)
}

/// Starts a build in the bucket of a server.
fn build_at(endpoint: &str, lines: &[u8]) -> Child {
    let mut building = start_at(
        endpoint,
        &["build", "--codec", "none", "s3://bucket/new.ldb"],
    );
    building.stdin.take().unwrap().write_all(lines).unwrap();
    building
}

/// Starts the tool, whose stores are at a server.
fn start_at(endpoint: &str, arguments: &[&str]) -> Child {
    tool_with_signals(None)
        .args(arguments)
        .env("AWS_ENDPOINT", endpoint)
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_SKIP_SIGNATURE", "true")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Aborting an upload takes requests, which the server may answer late or never.
#[test]
fn a_second_signal_ends_an_upload_at_once() {
    // Of parts, and of one request.
    for lines in [many_lines(), b"apple\tred\n".to_vec()] {
        let (endpoint, told) = slow_server(None);
        let mut building = build_at(&endpoint, &lines);
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        send_signal("-INT", &building);
        std::thread::sleep(Duration::from_secs(1));
        let status = building.try_wait().unwrap();
        assert_eq!(status, None, "the first signal waits");
        let sent = Instant::now();
        send_signal("-TERM", &building);
        let status = building.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{status}");
        assert!(sent.elapsed() < Duration::from_secs(20));
    }
}

/// The table is not there, as the status of an interrupted program says.
#[test]
fn an_upload_that_fails_after_a_signal_is_interrupted() {
    let sound = format!("{TESTDATA}/words-b1024-r16-bloom10.ldb");
    let salvage = ["salvage", &sound, "s3://bucket/new.ldb"];
    type Start<'a> = &'a dyn Fn(&str) -> Child;
    let starts: [Start<'_>; 2] = [
        &|endpoint| build_at(endpoint, b"apple\tred\n"),
        &|endpoint| start_at(endpoint, &salvage),
    ];
    for start in starts {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (endpoint, told) = slow_server(Some((Arc::clone(&gate), "403 Forbidden")));
        let running = start(&endpoint);
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        send_signal("-TERM", &running);
        // Until the tool has taken the signal, which nothing shows.
        std::thread::sleep(Duration::from_secs(1));
        drop(closed);
        let output = running.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert!(stderr.contains("403"), "{stderr}");
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
            // The rest of an upload is read: with bytes unread, closing resets the connection, and the answer can be lost.
            let _ = connection.shutdown(Shutdown::Write);
            let _ = connection.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = std::io::copy(&mut connection, &mut std::io::sink());
        }
    });
    let input = TempDir::new().unwrap();
    let lines = input.path().join("lines");
    fs::write(&lines, "apple\tred\n").unwrap();
    let lines = lines.to_str().unwrap();
    let damaged = format!("{TESTDATA}/words-b1024-r16-bloom10.ldb");
    let damaged = &damaged[..];
    for arguments in [
        &["get", "s3://bucket/table.ldb", "apple"][..],
        &["scan", "s3://bucket/table.ldb"],
        &["info", "s3://bucket/table.ldb"],
        &["verify", "s3://bucket/table.ldb"],
        &["splits", "s3://bucket/table.ldb", "3"],
        &["build", "s3://bucket/table.ldb", lines],
        &["salvage", damaged, "s3://bucket/table.ldb"],
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
