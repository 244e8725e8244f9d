//! What commands read of a large table, counted by `strace`. Ignored by default:
//! `cargo test --test cli reads -- --ignored`.

use std::fs;
use std::path::Path;
use std::process::Command;

use leveltable::{Compression, Source, WriteOptions};
use tempfile::TempDir;

/// Writes a table of some 30 MB. Returns the size of its index.
fn write(path: &Path, options: WriteOptions) -> u64 {
    let options = options.compression(Compression::None);
    let mut builder = options.create(path).unwrap();
    for i in 0..250_000u64 {
        builder.add(format!("{i:016}"), [7; 100]).unwrap();
    }
    builder.finish().unwrap();
    let layout = leveltable_repair::layout(Source::open(path).unwrap()).unwrap();
    layout.index.stored_bytes
}

/// Runs the tool. Returns how often it opened `path`, and how many bytes it read of it.
fn traced(path: &Path, args: &[&str]) -> (usize, u64) {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    let output = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=openat,read,pread64", "-o"])
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_leveltable"))
        .args(args)
        .output()
        .expect("strace is installed");
    assert!(output.status.code() < Some(2), "{output:?}");
    let log = fs::read_to_string(log).unwrap();
    let name = path.to_str().unwrap();
    let calls = log.lines().filter(|line| line.contains(name));
    let (opened, read): (Vec<&str>, Vec<&str>) = calls.partition(|line| line.contains("openat("));
    let bytes = |line: &&str| line.rsplit_once(" = ").unwrap().1.parse::<u64>().unwrap();
    (opened.len(), read.iter().map(bytes).sum())
}

/// Of a table that does not record its order, too.
#[test]
#[ignore = "needs strace"]
fn a_part_is_read_from_index_and_blocks() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("large.ldb");
    let name = path.to_str().unwrap();
    for (options, stock) in [(WriteOptions::leveldb(), 1), (WriteOptions::new(), 0)] {
        fs::remove_file(&path).ok();
        let index = write(&path, options);
        let size = fs::metadata(&path).unwrap().len();
        assert!(size > 25 << 20);
        for (args, indexes, more) in [
            (&["get", name, "0000000000123456"][..], 1, 100 << 10),
            (&["get", name, "00000000001234567"], 1, 100 << 10),
            (
                &["scan", name, "--from=0000000000123456", "--limit=3"],
                1,
                400 << 10,
            ),
            (&["scan", name, "--prefix=000000000012345"], 1, 400 << 10),
            (&["splits", name, "4"], 1, 100 << 10),
            // Once more to describe it; of a table in pieces, the metadata alone.
            (&["info", name], 2 * stock, 100 << 10),
        ] {
            let (opened, read) = traced(&path, args);
            assert_eq!(opened, 1, "{args:?}");
            let most = indexes * index + more;
            assert!(read <= most, "{args:?}: {read} bytes, at most {most}");
        }
        for args in [
            &["verify", name][..],
            &["info", name, "--full"],
            &["scan", name, "--limit=1"],
        ] {
            assert_eq!(traced(&path, args).0, 1, "{args:?}");
        }
    }
}
