//! How long building and compacting takes: `cargo test --release -p leveltable-database --test database build_speed:: -- --ignored --nocapture`.

use std::time::Instant;

use leveltable::SortedEntries;
use leveltable_database::{CompactOptions, DatabaseBuildOptions, DatabaseBuilder, compact_into};

/// A million entries of 16 and 100 bytes; half of each value repeats. `ENTRIES` chooses another number, and `PLACE` the disk.
#[test]
#[ignore = "measures"]
fn build_and_compact() {
    let entries = std::env::var("ENTRIES").map_or(1_000_000, |n| n.parse().unwrap());
    let place = std::env::var_os("PLACE").unwrap_or_else(|| std::env::temp_dir().into());
    let scratch = tempfile::tempdir_in(place).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let entries = (0..entries).map(|i: u64| {
        let half: [u8; 50] = std::array::from_fn(|_| random.u8(..));
        (format!("{i:016}"), half.repeat(2))
    });
    let dir = scratch.path().join("db");
    let begin = Instant::now();
    let mut builder = DatabaseBuilder::create(&dir, DatabaseBuildOptions::new()).unwrap();
    builder.extend(SortedEntries::new(entries)).unwrap();
    let built = builder.finish().unwrap();
    println!("build: {:.2?}, {} bytes", begin.elapsed(), built.bytes);
    let begin = Instant::now();
    let compacted = compact_into(&dir, scratch.path().join("new"), CompactOptions::new()).unwrap();
    println!(
        "compact: {:.2?}, {} bytes",
        begin.elapsed(),
        compacted.built.bytes
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or("VmHWM: unknown"));
}
