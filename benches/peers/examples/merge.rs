//! Merges four tables of 250,000 entries, beside a walk over one table of all of them, and beside C++ LevelDB's merging
//! iterator over the same files. Compiles `cpp/merge.cc`, which needs `libleveldb-dev` and `libsnappy1v5`.
//!
//!     cargo run --release --example merge

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use leveltable::{Compression, OpenOptions, Source, Table, WriteOptions, merge::MergeCursor};

const ENTRIES: u32 = 1_000_000;
const ROUNDS: usize = 9;

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("merge");
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-O2", "-DNDEBUG", "cpp/merge.cc"])
        .args(["-l:libleveldb.a", "-l:libsnappy.so.1", "-pthread", "-o"])
        .arg(&program)
        .status()?;
    ensure!(compiled.success(), "cpp/merge.cc does not compile");
    let mut random = fastrand::Rng::with_seed(1);
    run("at random", directory.path(), &program, |_| {
        random.usize(..4)
    })?;
    run("in turn", directory.path(), &program, |i| i as usize % 4)?;
    run("by thousands", directory.path(), &program, |i| {
        i as usize / 1000 % 4
    })
}

/// Measures with entry `i` in table `table_of(i)`.
fn run(name: &str, dir: &Path, cpp: &Path, mut table_of: impl FnMut(u32) -> usize) -> Result<()> {
    let paths = ["all", "a", "b", "c", "d"].map(|name| dir.join(name));
    let options = WriteOptions::leveldb().compression(Compression::None);
    let mut builders = Vec::new();
    for path in &paths {
        builders.push(options.create(path)?);
    }
    for i in 0..ENTRIES {
        let key = format!("key{i:013}");
        for builder in [0, 1 + table_of(i)] {
            builders[builder].add(&key, [b'v'; 100])?;
        }
    }
    for builder in builders {
        builder.finish()?;
    }
    let mut tables = Vec::new();
    for path in &paths {
        tables.push(OpenOptions::new().open_source(Source::load(path)?)?);
    }
    let (all, four) = tables.split_first().context("five tables")?;
    let (mut walks, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let [mut walk, mut merge] = [f64::MAX; 2];
        for _ in 0..7 {
            walk = walk.min(timed(|| walk_one(all))?);
            merge = merge.min(timed(|| walk_merged(Table::merge(four)?))?);
        }
        let output = Command::new(cpp).args(&paths).output()?;
        let output = String::from_utf8(output.stdout)?;
        let peer = output
            .split(' ')
            .nth(1)
            .context("two times")?
            .parse::<f64>()?;
        walks.push(merge / walk);
        peers.push(peer / merge);
    }
    let (walk, peer) = (median(walks), median(peers));
    println!(
        "{name:12}  {walk:.2} times a walk over one table; LevelDB takes {peer:.2} times as long"
    );
    Ok(())
}

fn walk_one(table: &Table) -> leveltable::Result<u64> {
    let (mut cursor, mut sum) = (table.cursor(), 0);
    while cursor.next()? {
        sum += cursor.value().len() as u64 + u64::from(cursor.key()[7]);
    }
    Ok(sum)
}

fn walk_merged(mut cursor: MergeCursor) -> leveltable::Result<u64> {
    let mut sum = 0;
    while cursor.next()? {
        sum += cursor.value().len() as u64 + u64::from(cursor.key()[7]);
    }
    Ok(sum)
}

/// Milliseconds.
fn timed(walk: impl FnOnce() -> leveltable::Result<u64>) -> Result<f64> {
    let start = Instant::now();
    black_box(walk()?);
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
