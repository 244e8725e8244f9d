//! Runs the workload with the `sstable` crate.
//!
//! The crate has no borrowing lookup and cannot map a file. It reads with `pread`, into a cache that holds every
//! block.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use sstable::{CompressionType, Options, SSIterator, Table, TableBuilder};

use crate::workload::{self, Answers, Key, Measured, SEEK_STEPS, VALUE_LEN};

/// Capacity of the cache, which this crate counts in blocks.
const CACHE_BLOCKS: usize = 1 << 20;

pub fn run(directory: &Path, work: &str, table: &str, probes: &str) -> Result<Measured> {
    let path = directory.join(table).with_extension("ldb");
    let options = Options {
        compression_type: match table {
            "snappy" => CompressionType::CompressionSnappy,
            _ => CompressionType::CompressionNone,
        },
        ..Options::default()
    }
    .with_cache_capacity(CACHE_BLOCKS);
    match work {
        "build-memory" => return build_in_memory(directory, &options),
        "build-file" => return build_file(directory, &options),
        _ => {}
    }
    let open = || Table::new_from_file(options.clone(), &path).map_err(|e| anyhow!("{e}"));
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
                _ => Ok(scan_forward(&table)),
            })
        }
        "seek" => workload::time_second_pass(n, || Ok(seek(&table, &probes))),
        _ => bail!("unknown work {work}"),
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

fn scan_forward(table: &Table) -> Answers {
    let (mut answers, mut entry) = (Answers::default(), Default::default());
    let mut iterator = table.iter();
    while iterator.advance() {
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

fn build(
    options: &Options,
    file: impl std::io::Write,
    keys: &[Key],
    values: &[u8],
) -> Result<Answers> {
    let mut builder = TableBuilder::new(options.clone(), file);
    let values = values.chunks_exact(VALUE_LEN).cycle();
    for (key, value) in keys.iter().zip(values) {
        builder.add(key, value).map_err(|e| anyhow!("{e}"))?;
    }
    builder.finish().map_err(|e| anyhow!("{e}"))?;
    Ok(Answers {
        checksum: 0,
        count: keys.len() as u64,
    })
}
