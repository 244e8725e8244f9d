//! The work on a table as its users open it, for the peers in Rust: warm and cold.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::disk::{self, Cold};
use crate::figures::Spread;
use crate::workload::{self, Answers, BATCH, FEW, Key, Measured};

/// An open table, map or database.
pub trait Store {
    /// Looks up a key, and adds its value if it is there.
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()>;

    /// Looks up several keys at once.
    fn get_many(&self, _batch: &[Key], _answers: &mut Answers) -> Result<()> {
        bail!("no such call")
    }

    /// Walks over the first `limit` entries.
    fn forward(&self, limit: usize) -> Result<Answers>;

    /// Walks over all entries, from the last to the first.
    fn backward(&self) -> Result<Answers>;

    /// Walks over a few entries from each of `starts` on.
    fn seek(&self, starts: &[Key]) -> Result<Answers>;
}

/// Walks over entries as `entry` yields them.
#[cfg(feature = "databases")]
pub fn walk<E>(
    entries: impl Iterator<Item = E>,
    limit: usize,
    answers: &mut Answers,
    mut add: impl FnMut(E, &mut Answers) -> Result<()>,
) -> Result<()> {
    for entry in entries.take(limit) {
        add(entry, answers)?;
    }
    Ok(())
}

/// Does one piece of work on what `open` opens at `path`.
pub fn run<S: Store>(
    directory: &Path,
    path: &Path,
    work: &str,
    probes: &str,
    open: impl Fn() -> Result<S>,
) -> Result<Measured> {
    if let Some(work) = work.strip_prefix("cold-") {
        return cold(directory, path, work, probes, open);
    }
    let keys = workload::read_keys(directory, probes)?;
    let n = keys.len();
    match work {
        "open" => return workload::time_open(open),
        "first" => {
            let mut next = keys.iter().cycle();
            return workload::time_open(|| {
                let store = open()?;
                first(&store, next.next().context("no keys")?)?;
                Ok(store)
            });
        }
        "held" => {
            return workload::measure_memory(|| {
                let store = open()?;
                get(&store, &keys)?;
                Ok(store)
            });
        }
        _ => {}
    }
    let store = open()?;
    match work {
        "get" => workload::time_second_pass(n, || get(&store, &keys)),
        "get-many" => workload::time_second_pass(n, || {
            let mut answers = Answers::default();
            for batch in keys.chunks(BATCH) {
                store.get_many(batch, &mut answers)?;
            }
            Ok(answers)
        }),
        // Here the keys are those of the table.
        "forward" => workload::time_second_pass(n, || store.forward(n)),
        "backward" => workload::time_second_pass(n, || store.backward()),
        "seek" => workload::time_second_pass(n, || store.seek(&keys)),
        _ => bail!("unknown work {work}"),
    }
}

fn get(store: &impl Store, keys: &[Key]) -> Result<Answers> {
    let mut answers = Answers::default();
    for key in keys {
        store.get(key, &mut answers)?;
    }
    Ok(answers)
}

/// Looks up the first key after an opening, which is present.
fn first(store: &impl Store, key: &Key) -> Result<()> {
    let mut answers = Answers::default();
    store.get(key, &mut answers)?;
    ensure!(answers.count == 1, "the first key is absent");
    Ok(())
}

/// Each pass starts with none of the file in the page cache, opens it, and reads each block at most once.
fn cold<S: Store>(
    directory: &Path,
    path: &Path,
    work: &str,
    probes: &str,
    open: impl Fn() -> Result<S>,
) -> Result<Measured> {
    let mut cold = Cold::default();
    let mut answers = Answers::default();
    if work == "forward" {
        let limit = probes.parse()?;
        disk::drop_pages(path)?;
        let store = open()?;
        let answers = cold.time(limit, || store.forward(limit))?;
        return Ok(cold.measured(answers));
    }
    let keys = workload::read_keys(directory, probes)?;
    if work == "get-in-turns" {
        return get_in_turns(path, &keys, open);
    }
    let len = if work == "get-few" { FEW } else { BATCH };
    for pass in keys.chunks(len) {
        disk::drop_pages(path)?;
        if work == "open" {
            cold.time(1, &open)?;
            continue;
        }
        if work == "first" {
            let key = pass.first().context("a pass without keys")?;
            cold.time(1, || first(&open()?, key))?;
            continue;
        }
        let store = open()?;
        cold.time(pass.len(), || match work {
            "get" | "get-few" => pass.iter().try_for_each(|key| store.get(key, &mut answers)),
            "get-many" => store.get_many(pass, &mut answers),
            _ => bail!("unknown work cold-{work}"),
        })?;
    }
    Ok(cold.measured(answers))
}

/// Looks up every other key, and in turn reads the block of the next with nothing but `pread`: both wait for the same disk at the
/// same time, whatever else keeps it busy. Returns the median time of the lookups divided by that of the reads.
fn get_in_turns<S: Store>(
    path: &Path,
    keys: &[Key],
    open: impl Fn() -> Result<S>,
) -> Result<Measured> {
    let blocks = workload::read_blocks(path)?;
    let mut answers = Answers::default();
    let (mut lookups, mut reads) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 1 << 16];
    for (keys, blocks) in keys.chunks(BATCH).zip(blocks.chunks(BATCH)) {
        disk::drop_pages(path)?;
        let (store, file) = (open()?, File::open(path)?);
        for (keys, blocks) in keys.chunks(2).zip(blocks.chunks(2)) {
            let ([key, _], [_, (offset, len)]) = (keys, blocks) else {
                bail!("a pass has an odd number of keys");
            };
            lookups.push(time(|| store.get(key, &mut answers))?);
            reads.push(time(|| {
                Ok(file.read_exact_at(&mut buffer[..*len], *offset)?)
            })?);
        }
    }
    let median = |times: Vec<f64>| Spread::of(times).map_or(f64::NAN, |times| times.median);
    Ok(Measured {
        figure: median(lookups) / median(reads),
        disk_bytes: 0.0,
        answers,
    })
}

/// Nanoseconds that `work` takes, waiting included.
fn time(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64)
}
