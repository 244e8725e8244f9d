//! Repair of a large database: its memory, and its time beside that of copying the bytes.
//!
//! `cargo test --release --test large -- --ignored --nocapture`, on an idle machine: takes three times the bytes on
//! disk. `LEVELTABLE_BYTES` is another size than 2 GB; `LEVELTABLE_DIRECTORY` a directory on another disk.
#![cfg(unix)] // cat and sync

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use leveltable_database::{Database, DatabaseBuildOptions, DatabaseBuilder};
use leveltable_repair::{RepairOptions, repair};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Writes keys of 16 bytes with values of 200, of which half can be compressed.
fn write(dir: &Path, bytes: u64) -> u64 {
    let mut builder = DatabaseBuilder::create(dir, DatabaseBuildOptions::new()).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let entries = bytes / 128;
    let mut value = [0; 200];
    for i in 0..entries {
        random.fill(&mut value[..100]);
        builder.put(format!("user/{i:011}"), value).unwrap();
    }
    builder.finish().unwrap();
    entries
}

fn shell(script: &str, dir: &Path) -> Duration {
    let begin = Instant::now();
    let mut shell = Command::new("sh");
    let status = shell.args(["-c", script]).current_dir(dir).status();
    assert!(status.unwrap().success());
    begin.elapsed()
}

#[test]
#[ignore = "takes 6 GB of disk"]
fn memory_is_bounded_and_time_is_a_few_copies() {
    let bytes = std::env::var("LEVELTABLE_BYTES").map_or(2 << 30, |n| n.parse().unwrap());
    let scratch = match std::env::var_os("LEVELTABLE_DIRECTORY") {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")),
    };
    let scratch = scratch.unwrap();
    let (old, new) = (scratch.path().join("old"), scratch.path().join("new"));
    let entries = write(&old, bytes);
    let manifest = old.join("MANIFEST-000001");
    for (lost, grade) in [(None, true), (Some(manifest), false)] {
        if let Some(lost) = &lost {
            fs::remove_file(lost).unwrap();
        }
        shell("cat old/* > all; sync all; rm all", scratch.path()); // what is read is in memory from now on
        let copied = shell("cat old/* > all; sync all", scratch.path());
        let size = fs::metadata(scratch.path().join("all")).unwrap().len();
        fs::remove_file(scratch.path().join("all")).unwrap();
        MEMORY.reset_peak_usage();
        let begin = Instant::now();
        let report = repair(&old, &new, RepairOptions::new()).unwrap();
        let (took, peak) = (begin.elapsed(), MEMORY.peak_usage_as_mb());
        let times = took.as_secs_f64() / copied.as_secs_f64();
        println!(
            "{size} bytes, {lost:?} lost: {peak:.0} MB, {:.1} s: {times:.2} times cat and sync, {:.1} s",
            took.as_secs_f64(),
            copied.as_secs_f64(),
        );
        assert_eq!(
            (report.is_complete(), report.written.entries),
            (grade, entries)
        );
        assert!(peak < 300.0);
        let db = Database::open_read_only(&new).unwrap();
        assert_eq!(db.iter().map(Result::unwrap).count() as u64, entries);
        fs::remove_dir_all(&new).unwrap();
    }
}
