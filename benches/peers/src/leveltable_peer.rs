//! Runs the workload with leveltable.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, bail};
use leveltable::{BlockCache, OpenOptions, Source, Table};

use crate::store::{self, Store};
use crate::workload::{self, Answers, BATCH, CACHE_BYTES, Key, Measured, SEEK_STEPS, TUNED};

pub fn run(
    directory: &Path,
    work: &str,
    table: &str,
    probes: &str,
    opening: &str,
) -> Result<Measured> {
    let path = directory.join(table).with_extension("ldb");
    if work == "build" {
        return build(directory, table);
    }
    if opening != TUNED {
        return store::run(directory, &path, work, probes, || open(&path, opening));
    }
    match work {
        "build-memory" => return build_in_memory(directory, table),
        "build-file" => return build_file(directory, table),
        _ => {}
    }
    let file = map(&path)?;
    // Like the others, it is told what the order is.
    let options = OpenOptions::new().cache(BlockCache::new(CACHE_BYTES));
    let options = options.check_order(false);
    if work == "open" {
        return workload::time_open(|| Ok(options.open_source(file.clone())?));
    }
    if work == "memory" {
        return workload::measure_memory(|| Ok(options.open_source(file)?));
    }
    let table = options.open_source(file)?;
    let probes = workload::read_keys(directory, probes)?;
    let n = probes.len();
    match work {
        "get-with" => workload::time_second_pass(n, || get_with(&table, &probes, 0)),
        "get" => workload::time_second_pass(n, || get(&table, &probes, 0)),
        "get-many" => workload::time_second_pass(n, || get_many(&table, &probes)),
        "threads-get-with" => workload::time_threads(n, |first| get_with(&table, &probes, first)),
        "threads-get" => workload::time_threads(n, |first| get(&table, &probes, first)),
        "forward" | "backward" => {
            let entries = workload::read_keys(directory, "keys")?.len();
            workload::time_second_pass(entries, || match work {
                "forward" => scan_forward(&table),
                _ => scan_backward(&table),
            })
        }
        "seek" => workload::time_second_pass(n, || seek(&table, &probes)),
        _ => bail!("unknown work {work}"),
    }
}

/// Opens a table as users do.
fn open(path: &Path, opening: &str) -> Result<Table> {
    Ok(match opening {
        "default" => Table::open(path)?,
        "preloaded" => OpenOptions::new().preload(true).open(path)?,
        "no-cache" => OpenOptions::new().no_cache().open(path)?,
        "256-mib" => OpenOptions::new()
            .cache(BlockCache::new(256 << 20))
            .open(path)?,
        "mapped" => OpenOptions::new().open_source(map(path)?)?,
        "mapped-preloaded" => OpenOptions::new().preload(true).open_source(map(path)?)?,
        _ => bail!("unknown opening {opening}"),
    })
}

/// The one place where a file is mapped.
fn map(path: &Path) -> Result<Source> {
    // SAFETY: the file is in this benchmark's own directory, and nothing changes it.
    Ok(unsafe { Source::map(path)? })
}

impl Store for Table {
    fn get(&self, key: &Key, answers: &mut Answers) -> Result<()> {
        if let Some(value) = Table::get(self, key)? {
            answers.value(&value);
        }
        Ok(())
    }

    fn get_many(&self, batch: &[Key], answers: &mut Answers) -> Result<()> {
        for value in Table::get_many(self, batch)?.iter().flatten() {
            answers.value(value);
        }
        Ok(())
    }

    fn forward(&self, limit: usize) -> Result<Answers> {
        let mut answers = Answers::default();
        let mut cursor = self.cursor();
        for _ in 0..limit {
            if !cursor.next()? {
                break;
            }
            answers.entry(cursor.key(), cursor.value());
        }
        Ok(answers)
    }

    fn backward(&self) -> Result<Answers> {
        scan_backward(self)
    }

    fn seek(&self, starts: &[Key]) -> Result<Answers> {
        seek(self, starts)
    }
}

/// Returns all probes, starting with number `first` and wrapping around.
fn around(probes: &[Key], first: usize) -> impl Iterator<Item = &Key> {
    let (before, from) = probes.split_at(first);
    from.iter().chain(before)
}

fn get_with(table: &Table, probes: &[Key], first: usize) -> Result<Answers> {
    let mut answers = Answers::default();
    for key in around(probes, first) {
        table.get_with(key, |value| answers.value(value))?;
    }
    Ok(answers)
}

fn get(table: &Table, probes: &[Key], first: usize) -> Result<Answers> {
    let mut answers = Answers::default();
    for key in around(probes, first) {
        if let Some(value) = table.get(key)? {
            answers.value(&value);
        }
    }
    Ok(answers)
}

fn get_many(table: &Table, probes: &[Key]) -> Result<Answers> {
    let mut answers = Answers::default();
    for batch in probes.chunks(BATCH) {
        for value in table.get_many(batch)?.iter().flatten() {
            answers.value(value);
        }
    }
    Ok(answers)
}

fn scan_forward(table: &Table) -> Result<Answers> {
    let mut answers = Answers::default();
    let mut cursor = table.cursor();
    while cursor.next()? {
        answers.entry(cursor.key(), cursor.value());
    }
    Ok(answers)
}

fn scan_backward(table: &Table) -> Result<Answers> {
    let mut answers = Answers::default();
    let mut cursor = table.cursor();
    let mut on_entry = cursor.seek_to_last()?;
    while on_entry {
        answers.entry(cursor.key(), cursor.value());
        on_entry = cursor.prev()?;
    }
    Ok(answers)
}

fn seek(table: &Table, starts: &[Key]) -> Result<Answers> {
    let mut answers = Answers::default();
    let mut cursor = table.cursor();
    for start in starts {
        let mut on_entry = cursor.seek(start)?;
        for _ in 0..SEEK_STEPS {
            if !on_entry {
                break;
            }
            answers.entry(cursor.key(), cursor.value());
            on_entry = cursor.next()?;
        }
    }
    Ok(answers)
}

/// As users build a table: it appears synced.
fn build(directory: &Path, table: &str) -> Result<Measured> {
    let keys = workload::read_keys(directory, "keys")?;
    let values = workload::read(directory, "values")?;
    let options = workload::write_options(table);
    let path = directory.join("built-by-leveltable");
    workload::time_writing(keys.len(), &path, || {
        workload::fill(options.create(&path)?, &keys, &values)?;
        Ok(())
    })
}

fn build_in_memory(directory: &Path, table: &str) -> Result<Measured> {
    let keys = workload::read_keys(directory, "keys")?;
    let values = workload::read(directory, "values")?;
    let options = workload::write_options(table);
    let mut file = Vec::new();
    workload::time_second_pass(keys.len(), || {
        file.clear(); // keeps the memory
        Ok(workload::build(&options, &mut file, &keys, &values)?)
    })
}

fn build_file(directory: &Path, table: &str) -> Result<Measured> {
    let keys = workload::read_keys(directory, "keys")?;
    let values = workload::read(directory, "values")?;
    let options = workload::write_options(table);
    let path = directory.join("built-by-leveltable");
    let measured = workload::time_second_pass(keys.len(), || {
        Ok(workload::build(
            &options,
            File::create(&path)?,
            &keys,
            &values,
        )?)
    });
    std::fs::remove_file(path)?;
    measured
}
