//! Runs the workload with the `sstable` crate.
//!
//! The crate has no borrowing lookup and cannot map a file. It reads with `pread`, in the part `tuned` into a cache that holds
//! every block.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use sstable::{CompressionType, Options, SSIterator, Table, TableBuilder};

use crate::store::{self, Store};
use crate::workload::{self, Answers, Key, Measured, SEEK_STEPS, TUNED, USERS_CACHE_BYTES};

/// Capacity of the cache in the part `tuned`. This crate counts it in blocks.
const CACHE_BLOCKS: usize = 1 << 20;

/// Capacity of the cache where a table is opened as users do.
const USERS_CACHE_BLOCKS: usize = (USERS_CACHE_BYTES >> 12) as usize;

pub fn run(
    directory: &Path,
    work: &str,
    table: &str,
    probes: &str,
    opening: &str,
) -> Result<Measured> {
    let path = directory.join(table).with_extension("ldb");
    let options = Options {
        compression_type: match table {
            "snappy" => CompressionType::CompressionSnappy,
            _ => CompressionType::CompressionNone,
        },
        ..Options::default()
    }
    .with_cache_capacity(if opening == TUNED {
        CACHE_BLOCKS
    } else {
        USERS_CACHE_BLOCKS
    });
    match work {
        "build" => return build_as_users_do(directory, &options),
        "build-memory" => return build_in_memory(directory, &options),
        "build-file" => return build_file(directory, &options),
        _ => {}
    }
    let open = || Table::new_from_file(options.clone(), &path).map_err(|e| anyhow!("{e}"));
    if opening != TUNED {
        let keys = workload::read_keys(directory, "keys")?;
        let last = *keys.last().context("no keys")?;
        let open = || {
            Ok(Opened {
                table: open()?,
                last,
            })
        };
        return store::run(directory, &path, work, probes, open);
    }
    match work {
        "open" => return workload::time_open(open),
        "memory" => return workload::measure_memory(open),
        _ => {}
    }
    let table = open()?;
    let probes = workload::read_keys(directory, probes)?;
    let n = probes.len();
    match work {
        "get" | "get-many" => workload::time_second_pass(n, || get(&table, &probes, 0)),
        "threads" => workload::time_threads(n, |first| get(&table, &probes, first)),
        "forward" | "backward" => {
            let entries = workload::read_keys(directory, "keys")?;
            workload::time_second_pass(entries.len(), || match (work, entries.last()) {
                ("backward", Some(last)) => Ok(scan_backward(&table, last)),
                _ => Ok(scan_forward(&table, usize::MAX)),
            })
        }
        "seek" => workload::time_second_pass(n, || Ok(seek(&table, &probes))),
        _ => bail!("unknown work {work}"),
    }
}

/// A table as users open it.
struct Opened {
    table: Table,
    last: Key,
}

impl Store for Opened {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = self.table.get(key)? {
            answers.value(&value);
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        Ok(scan_forward(&self.table, limit))
    }

    fn backward(&self) -> Result<Answers> {
        Ok(scan_backward(&self.table, &self.last))
    }

    fn seek(&self, starts: &[Key]) -> Result<Answers> {
        Ok(seek(&self.table, starts))
    }
}

fn get(table: &Table, probes: &[Key], first: usize) -> Result<Answers> {
    let mut answers = Answers::default();
    let (before, from) = probes.split_at(first);
    for key in from.iter().chain(before) {
        if let Some(value) = table.get(key).map_err(|e| anyhow!("{e}"))? {
            answers.value(&value);
        }
    }
    Ok(answers)
}

/// Adds the iterator's current entry, which it copies into reused buffers.
fn add_entry(iterator: &impl SSIterator, entry: &mut (Vec<u8>, Vec<u8>), answers: &mut Answers) {
    let (key, value) = entry;
    if iterator.current(key, value) {
        answers.entry(key, value);
    }
}

fn scan_forward(table: &Table, limit: usize) -> Answers {
    let (mut answers, mut entry) = (Answers::default(), Default::default());
    let mut iterator = table.iter();
    while answers.count < limit as u64 && iterator.advance() {
        add_entry(&iterator, &mut entry, &mut answers);
    }
    answers
}

/// The crate has no other way to the last entry than seeking its key.
fn scan_backward(table: &Table, last: &Key) -> Answers {
    let (mut answers, mut entry) = (Answers::default(), Default::default());
    let mut iterator = table.iter();
    iterator.seek(last);
    while iterator.valid() {
        add_entry(&iterator, &mut entry, &mut answers);
        iterator.prev();
    }
    answers
}

fn seek(table: &Table, starts: &[Key]) -> Answers {
    let (mut answers, mut entry) = (Answers::default(), Default::default());
    let mut iterator = table.iter();
    for start in starts {
        iterator.seek(start);
        for _ in 0..SEEK_STEPS {
            if !iterator.valid() {
                break;
            }
            add_entry(&iterator, &mut entry, &mut answers);
            iterator.advance();
        }
    }
    answers
}

fn build_in_memory(directory: &Path, options: &Options) -> Result<Measured> {
    let keys = workload::read_keys(directory, "keys")?;
    let values = workload::read(directory, "values")?;
    let mut file = Vec::new();
    workload::time_second_pass(keys.len(), || {
        file.clear(); // keeps the memory
        build(options, &mut file, &keys, &values)
    })
}

fn build_file(directory: &Path, options: &Options) -> Result<Measured> {
    let keys = workload::read_keys(directory, "keys")?;
    let values = workload::read(directory, "values")?;
    let path = directory.join("built-by-sstable");
    let measured = workload::time_second_pass(keys.len(), || {
        build(options, File::create(&path)?, &keys, &values)
    });
    std::fs::remove_file(path)?;
    measured
}

fn build_as_users_do(directory: &Path, options: &Options) -> Result<Measured> {
    let keys = workload::read_keys(directory, "keys")?;
    let values = workload::read(directory, "values")?;
    let path = directory.join("built-by-sstable");
    workload::time_writing(keys.len(), &path, || {
        build(options, File::create(&path)?, &keys, &values)?;
        Ok(())
    })
}

fn build(
    options: &Options,
    file: impl std::io::Write,
    keys: &[Key],
    values: &[u8],
) -> Result<Answers> {
    let mut builder = TableBuilder::new(options.clone(), file);
    for (key, value) in workload::entries(keys, values) {
        builder.add(key, value).map_err(|e| anyhow!("{e}"))?;
    }
    builder.finish().map_err(|e| anyhow!("{e}"))?;
    Ok(Answers {
        checksum: 0,
        count: keys.len() as u64,
    })
}
