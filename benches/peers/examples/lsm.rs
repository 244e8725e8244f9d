//! Reads from the engine of this crate's example `lsm`, beside a database of C++ LevelDB with the same entries: `readrandom`,
//! `readmissing` and `readseq` of LevelDB's `db_bench`. Both are compacted, compress with Snappy, and have filters of 12 bits per
//! key and a cache of 32 MiB. Compiles `cpp/lsm.cc`, which needs `libleveldb-dev`.
//!
//!     cargo run --release --example lsm

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use leveltable::db::Version;

#[allow(dead_code)]
#[path = "../../../examples/lsm.rs"]
mod lsm;

use lsm::{Lsm, NOW};

const ENTRIES: u64 = 200_000;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("lsm");
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-O2", "-DNDEBUG", "cpp/lsm.cc"])
        .args(["-lleveldb", "-pthread", "-o"])
        .arg(&program)
        .status()?;
    ensure!(compiled.success(), "cpp/lsm.cc does not compile");
    let mut ratios = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        let (own, sum) = run(&directory.path().join(format!("own {round}")))
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        let output = Command::new(&program)
            .arg(directory.path().join(format!("peer {round}")))
            .arg(ENTRIES.to_string())
            .output()?;
        let output = String::from_utf8(output.stdout)?;
        let words: Vec<_> = output.split_whitespace().collect();
        ensure!(words.get(3) == Some(&&*sum.to_string()), "other values");
        for ((ratios, own), peer) in ratios.iter_mut().zip(own).zip(words) {
            ratios.push(peer.parse::<f64>()? / own);
        }
        println!("nanoseconds: {own:.0?}; LevelDB: {output}");
    }
    for (name, mut ratios) in ["readrandom", "readmissing", "readseq"].iter().zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        let [first, .., last] = ratios[..] else {
            continue;
        };
        let median = ratios.get(ROUNDS / 2).context("rounds")?;
        println!("{name:12} LevelDB takes {median:.2} times as long ({first:.2} to {last:.2})");
    }
    Ok(())
}

/// Entry number `i` in the order of writing. The multiplier has no factor in common with a power of ten.
fn key(i: u64, end: &str) -> Vec<u8> {
    format!("{:016}{end}", i * 7919 % ENTRIES).into_bytes()
}

/// Nanoseconds for each of the three, and a sum of what was read.
fn run(directory: &Path) -> Result<([f64; 3], u64), Box<dyn std::error::Error>> {
    let mut db = Lsm::open(directory, 4 << 20, 4)?;
    for i in (0..ENTRIES).step_by(1000) {
        let entry = |i: u64| (key(i, ""), Some([b'a' + (i % 26) as u8; 100]));
        db.write(&(i..i + 1000).map(entry).collect::<Vec<_>>())?;
    }
    db.compact()?;
    let mut sum = 0;
    let mut times = [0.0; 3];
    let since = |start: Instant| start.elapsed().as_nanos() as f64 / ENTRIES as f64;
    let start = Instant::now();
    for i in 0..ENTRIES {
        let value = db.get(&key(i * 31, ""), NOW)?.ok_or("a missing key")?;
        sum += u64::from(value[0]);
    }
    times[0] = since(start);
    let start = Instant::now();
    for i in 0..ENTRIES {
        if db.get(&key(i * 31, "."), NOW)?.is_some() {
            return Err("an absent key was found".into());
        }
    }
    times[1] = since(start);
    let start = Instant::now();
    for entry in db.range(.., NOW)? {
        if let Version::Value(value) = entry?.version {
            sum += u64::from(value[0]);
        }
    }
    times[2] = since(start);
    Ok((times, sum))
}
