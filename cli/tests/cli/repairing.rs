//! `repair`: its report, what it refuses, and what it leaves behind. `tests/sessions/tool/repairing.md` shows what it prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use leveltable_database::{DatabaseBuildOptions, DatabaseBuilder, IndexedDbComparator};
use tempfile::TempDir;

use super::{complaint, json_lines, names_in, repair_command, run, tool};

/// A database of a few tables, with keys that are no text.
fn database(directory: &Path) -> PathBuf {
    let db = directory.join("db");
    let options = DatabaseBuildOptions::new().table_bytes(5_000);
    let mut builder = DatabaseBuilder::create(&db, options).unwrap();
    for i in 0..2_000u32 {
        let key = [&b"\xff"[..], &i.to_be_bytes()].concat();
        builder.put(key, i.to_string().repeat(20)).unwrap();
    }
    assert!(builder.finish().unwrap().tables > 2);
    db
}

fn repair(db: &Path, new: &str, args: &[&str]) -> Output {
    let new = db.with_file_name(new);
    let mut tool = tool();
    tool.arg("repair").args([db, &new]).args(args);
    tool.output().unwrap()
}

#[test]
fn the_report_has_a_line_of_json_for_each_finding() {
    let scratch = TempDir::new().unwrap();
    let db = database(scratch.path());
    let mut bytes = fs::read(db.join("000003.ldb")).unwrap();
    bytes[100] ^= 1;
    fs::write(db.join("000003.ldb"), bytes).unwrap();
    fs::remove_file(db.join("000002.ldb")).unwrap();
    let report = scratch.path().join("report");
    let output = repair(&db, "new", &["--report", report.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stderr, b"");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().next().unwrap().contains("data are lost"));
    let lines = json_lines(&fs::read(&report).unwrap());
    let about = |name: &str| {
        let mut lines = lines.iter().filter(|line| line["file"] == name);
        let line = lines.next().unwrap();
        assert_eq!(line["grade"], "lost");
        assert_eq!(lines.next(), None);
        line
    };
    let missing = about("000002.ldb");
    assert_eq!(missing["from_hex"], "ff00000000");
    assert!(missing.get("from").is_none() && missing.get("offset").is_none());
    let block = about("000003.ldb");
    assert_eq!(block["offset"], 0);
    assert!(block["bytes"].as_u64().unwrap() > 100);
    assert!(block["from_hex"].as_str() < block["to_hex"].as_str());
    assert!(missing["to_hex"].as_str() < block["to_hex"].as_str());
    assert!(lines.iter().all(|line| line["reason"].is_string()));
    assert_eq!(
        run([Path::new("verify"), &scratch.path().join("new")])
            .status
            .code(),
        Some(0)
    );
}

#[test]
fn what_is_refused_leaves_nothing() {
    let scratch = TempDir::new().unwrap();
    let db = database(scratch.path());
    let before = names_in(&db);
    fs::create_dir(scratch.path().join("there")).unwrap();
    let inside = db.join("report");
    for (new, args, expected) in [
        ("there", &[][..], "name a new directory"),
        ("nowhere/new", &[], "parent directory does not exist"),
        ("new", &["--report", inside.to_str().unwrap()], "only read"),
        (
            "new",
            &["--report", scratch.path().to_str().unwrap()],
            "already exists",
        ),
        ("new", &["--comparator", "reverse"], "possible values"),
    ] {
        let output = repair(&db, new, args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(expected), "{text}");
        assert_eq!(output.stdout, b"");
    }
    for url in ["s3://bucket/db", "file:///db"] {
        let line = complaint(run([Path::new("repair"), &db, Path::new(url)]), 2);
        assert!(line.contains("a database is a directory"), "{line}");
    }
    assert_eq!(names_in(&db), before);
    assert_eq!(names_in(scratch.path()).len(), 2, "db and there");
}

#[test]
fn a_file_that_is_refused_belongs_to_a_database_that_can_be_repaired() {
    let scratch = TempDir::new().unwrap();
    let db = database(scratch.path());
    let command = repair_command(&db);
    let (table, out) = (db.join("000002.ldb"), scratch.path().join("out"));
    fs::write(&table, "torn").unwrap();
    let points = |args: &[&Path]| {
        let output = run(args);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.matches(&command).count(), 1, "{args:?}: {text}");
    };
    let [get, scan, verify, salvage] = ["get", "scan", "verify", "salvage"].map(Path::new);
    for damaged in [&table, &db] {
        points(&[get, damaged, Path::new(r"\xff\x00\x00\x00\x00")]);
        points(&[scan, damaged]);
        points(&[verify, damaged]);
    }
    points(&[salvage, &table, &out]);
    fs::remove_file(db.join("CURRENT")).unwrap();
    points(&[get, &db, Path::new(r"\xff\x00\x00\x00\x00")]);
    points(&[salvage, &table, &out]);
    // A table by itself belongs to none.
    let alone = scratch.path().join("000002.ldb");
    fs::copy(&table, &alone).unwrap();
    let line = complaint(run([scan, &alone]), 2);
    assert!(!line.contains("leveltable repair"), "{line}");
}

/// The keys of an empty IndexedDB could be in either order.
#[test]
fn an_unknown_order_is_asked_for() {
    let scratch = TempDir::new().unwrap();
    let db = scratch.path().join("db");
    let mut builder = DatabaseBuilder::create(&db, DatabaseBuildOptions::new()).unwrap();
    builder.put([0; 5], "5").unwrap();
    builder.finish().unwrap();
    fs::remove_file(db.join("MANIFEST-000001")).unwrap();
    let line = complaint(repair(&db, "new", &[]), 2);
    assert!(line.contains("--comparator"), "{line}");
    let output = repair(&db, "new", &["--comparator", "idb_cmp1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let info = run([Path::new("info"), &scratch.path().join("new")]);
    let info = String::from_utf8(info.stdout).unwrap();
    assert!(info.contains("idb_cmp1"), "{info}");
}

/// Every command that the owner of a broken database is told to type.
#[test]
#[cfg(unix)]
fn the_commands_of_the_page_run_as_they_are_written_down() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/repair.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = { page.split("```sh\n").skip(1) }
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    let dirs = [
        "My World/db",
        "Default/Local Storage/leveldb",
        "Default/IndexedDB/https_example.org_0.indexeddb.leveldb",
        "geth/chaindata",
        "Data/worlds/mine/data/actors",
    ];
    let mut repaired = 0;
    for block in &blocks {
        let scratch = TempDir::new().unwrap();
        let sh = |script: &str| {
            let path = std::env::var("PATH").unwrap();
            let tool = Path::new(env!("CARGO_BIN_EXE_leveltable"))
                .parent()
                .unwrap();
            let mut sh = std::process::Command::new("sh");
            sh.env("PATH", format!("{}:{path}", tool.display()));
            let output = sh
                .args(["-ec", script])
                .current_dir(scratch.path())
                .output();
            let output = output.unwrap();
            assert!(output.status.success(), "{script}: {output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        for dir in dirs {
            let dir = scratch.path().join(dir);
            fs::create_dir_all(dir.parent().unwrap()).unwrap();
            let options = match dir.to_str().unwrap().contains("indexeddb") {
                true => DatabaseBuildOptions::new().comparator(IndexedDbComparator),
                false => DatabaseBuildOptions::new(),
            };
            let mut builder = DatabaseBuilder::create(&dir, options).unwrap();
            builder.put([0, 0, 0, 0, 5], "five").unwrap();
            builder.finish().unwrap();
            fs::remove_file(dir.join("CURRENT")).unwrap();
        }
        fs::create_dir(scratch.path().join("geth/chaindata/ancient")).unwrap();
        if block.contains("db.new") && !block.contains("leveltable repair") {
            sh("leveltable repair 'My World/db' 'My World/db.new'");
        }
        let said = sh(block);
        let moves: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("  mv "))
            .collect();
        repaired += moves.len() / 2;
        if !block.contains("mv ") {
            sh(&moves.join("\n"));
        }
        let moved = block.contains("geth");
        assert!(!moved || scratch.path().join("geth/chaindata/ancient").is_dir());
    }
    assert_eq!((blocks.len(), repaired), (7, 6));
}

#[cfg(target_os = "linux")]
mod ends {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use leveltable_database::Database;

    use crate::signals::{send_signal, tool_with_signals};

    const ENTRIES: u64 = 60_000;

    /// A database of 6 MB without its CURRENT: nothing is lost of it.
    fn large(directory: &Path) {
        let old = directory.join("old");
        let options = DatabaseBuildOptions::new().table_bytes(1 << 20);
        let mut builder = DatabaseBuilder::create(&old, options).unwrap();
        for i in 0..ENTRIES {
            let value = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string().repeat(5);
            builder.put(format!("{i:08}"), value).unwrap();
        }
        builder.finish().unwrap();
        fs::remove_file(old.join("CURRENT")).unwrap();
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn is_whole(db: &Path) -> bool {
        let db = Database::open_read_only(db).unwrap();
        db.iter().map(Result::unwrap).count() as u64 == ENTRIES
    }

    /// Ends a repair after each of 30 times by a signal. Returns how often that was before its end.
    fn end_by(signal: &str, check_left: impl Fn(BTreeSet<String>)) -> u32 {
        let scratch = TempDir::new().unwrap();
        large(scratch.path());
        let before = crate::names_in(&scratch.path().join("old"));
        let mut ended = 0;
        for round in 0..30u64 {
            let mut repair = tool_with_signals(None);
            repair
                .args(["repair", "old", "new", "--report", "report"])
                .current_dir(scratch.path())
                .stdout(Stdio::null());
            let child = repair.stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(5 + round * 25));
            send_signal(signal, &child);
            let status = child.wait_with_output().unwrap().status;
            let mut left = names_in(scratch.path());
            assert!(left.remove("old"));
            if left.remove("new") {
                assert!(is_whole(&scratch.path().join("new")));
            }
            match (status.code(), status.signal()) {
                (Some(0), _) => assert_eq!(left, names(&["report"])),
                (Some(130), _) | (None, Some(_)) => ended += 1,
                other => panic!("{other:?}"),
            }
            if status.code() != Some(0) {
                check_left(left);
            }
            assert_eq!(crate::names_in(&scratch.path().join("old")), before);
            for name in names_in(scratch.path()) {
                let path = scratch.path().join(&name);
                match path.is_dir() {
                    true if name != "old" => fs::remove_dir_all(path).unwrap(),
                    true => {}
                    false => fs::remove_file(path).unwrap(),
                }
            }
        }
        ended
    }

    #[test]
    fn an_interrupted_repair_leaves_nothing_or_all() {
        let ended = end_by("-INT", |left| assert!(left.is_empty(), "{left:?}"));
        assert!(ended > 0);
    }

    #[test]
    fn a_killed_repair_leaves_a_whole_directory_or_what_is_named_temporary() {
        let ended = end_by("-KILL", |mut left| {
            left.remove("report");
            let is_temporary = |name: &String| name.starts_with(".leveltable-");
            assert!(left.len() <= 1 && left.iter().all(is_temporary), "{left:?}");
        });
        assert!(ended > 0);
    }

    #[test]
    #[ignore = "mounts small disks, in a user namespace"]
    fn a_full_disk_is_an_error_that_leaves_nothing_of_a_repair() {
        let scratch = TempDir::new().unwrap();
        large(scratch.path());
        let tool = env!("CARGO_BIN_EXE_leveltable");
        let (mut filled, mut whole) = (0, 0);
        let files = fs::read_dir(scratch.path().join("old")).unwrap();
        let bytes: u64 = files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        for round in 1..=30 {
            let kib = 16 + bytes / 1024 * round / 24;
            let space = if round % 8 == 0 { "" } else { "--ignore-space" };
            let script = format!(
                "mkdir -p disk && mount -t tmpfs -o size={kib}k none disk && {tool} repair old disk/db {space} > shown; \
                 code=$?; ls -A disk | wc -l; exit $code"
            );
            let mut unshare = Command::new("unshare");
            unshare.args(["-rm", "sh", "-c", &script]);
            let output = unshare.current_dir(scratch.path()).output().unwrap();
            let left = String::from_utf8(output.stdout.clone()).unwrap();
            if output.status.code() == Some(0) {
                whole += 1;
                assert_eq!(left, "1\n");
                continue;
            }
            let message = complaint(output, 2);
            let is_known = ["No space left", "are free"].map(|what| message.contains(what));
            assert!(is_known.contains(&true), "{message}");
            filled += u32::from(is_known[0]);
            assert_eq!(left, "0\n", "{message}");
        }
        assert!(filled > 15 && whole > 0, "{filled} {whole}");
    }
}
