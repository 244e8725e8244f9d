//! Writes a table, and looks up what is in it and what is not.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leveltable::{
    BloomFilterPolicy, Compression, CountingReadAt, Destination, OpenOptions, ReadAt,
    RibbonFilterPolicy, Summary, Table, TableBuilder, WriteOptions,
};

use crate::page_cache::ColdReads;
use crate::workload::Workload;

/// How long lookups from the disk itself may take for each filter, most of which are slow without one.
const COLD_TIME: Duration = Duration::from_millis(100);

/// A filter, with the bits a key that it is asked to spend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Filter {
    None,
    /// What LevelDB writes: a Bloom filter for each 2 KiB of the file.
    BloomWindows(u32),
    /// One of LevelDB's Bloom filters for the whole table.
    BloomTable(u32),
    /// This crate's own filter, one for the whole table.
    Ribbon(u32),
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Filter::None => "none",
            Filter::BloomWindows(_) => "Bloom, 2 KiB windows",
            Filter::BloomTable(_) => "Bloom, whole table",
            Filter::Ribbon(_) => "ribbon, whole table",
        })
    }
}

impl Filter {
    pub(crate) fn bits_asked(self) -> Option<u32> {
        match self {
            Filter::None => None,
            Filter::BloomWindows(bits) | Filter::BloomTable(bits) | Filter::Ribbon(bits) => {
                Some(bits)
            }
        }
    }

    fn options(self) -> WriteOptions {
        // Random values do not compress; without trying, the comparison is quicker.
        let options = WriteOptions::leveldb().compression(Compression::None);
        match self {
            Filter::None => options.no_filter(),
            Filter::BloomWindows(bits) => options.filter_policy(BloomFilterPolicy::new(bits)),
            Filter::BloomTable(bits) => options
                .filter_policy(BloomFilterPolicy::new(bits))
                .whole_table_filter(true),
            Filter::Ribbon(bits) => options
                .filter_policy(RibbonFilterPolicy::new(bits))
                .whole_table_filter(true),
        }
    }

    /// Share of absent keys that pass, by theory.
    ///
    /// A Bloom filter with `b` bits a key and `k` probes of an ideal hash lets `(1 - e^(-k/b))^k` pass. For
    /// the ribbon, [`RibbonFilterPolicy::new`] documents `2^(-0.99 b)`.
    pub(crate) fn expected_rate(self) -> f64 {
        match self {
            Filter::None => 1.0,
            Filter::BloomWindows(bits) | Filter::BloomTable(bits) => {
                let bits = f64::from(bits);
                let probes = (bits * 0.69).floor().clamp(1.0, 30.0);
                (1.0 - (-probes / bits).exp()).powf(probes)
            }
            Filter::Ribbon(bits) => (-0.99 * f64::from(bits)).exp2(),
        }
    }
}

/// What a filter costs and what it is good for.
#[derive(Default)]
pub(crate) struct Measured {
    /// The whole filter block in bits, divided by the number of entries.
    pub(crate) bits_per_key: f64,
    /// Lookups of absent keys.
    pub(crate) lookups: u64,
    /// Data blocks that they read, all in vain: counted where the reading happens.
    pub(crate) wasted_reads: u64,
    /// Bytes that the system read from disk for each lookup while the page cache did not hold the table.
    pub(crate) disk_bytes_per_lookup: Option<f64>,
    /// Of an absent key, with the table in the page cache and no block cache.
    pub(crate) time_per_lookup: Duration,
}

impl Measured {
    /// Share of absent keys that cost a read.
    pub(crate) fn rate(&self) -> f64 {
        self.wasted_reads as f64 / self.lookups as f64
    }
}

/// Measures `filter` on a table in `dir`, which is removed afterwards.
pub(crate) fn on_disk(
    dir: &Path,
    workload: &Workload,
    filter: Filter,
) -> Result<Measured, Box<dyn Error>> {
    let path = dir.join("table.ldb");
    let summary = write(filter.options().create(&path)?, workload)?;
    find_every_present_key(&Table::open(&path)?, workload)?;
    let mut measured = miss_every_absent_key(File::open(&path)?, &summary, workload)?;
    measured.disk_bytes_per_lookup = cold_lookups(&path, workload)?;
    std::fs::remove_file(&path)?;
    Ok(measured)
}

/// Measures `filter` on a table in memory. Reads are counted as they are for a file.
pub(crate) fn in_memory(workload: &Workload, filter: Filter) -> Result<Measured, Box<dyn Error>> {
    let mut file = Vec::new();
    let summary = write(filter.options().build(&mut file), workload)?;
    let file = bytes::Bytes::from(file);
    find_every_present_key(&OpenOptions::new().open_source(file.clone())?, workload)?;
    miss_every_absent_key(file, &summary, workload)
}

fn write<D: Destination>(
    mut builder: TableBuilder<D>,
    workload: &Workload,
) -> leveltable::Result<Summary> {
    for (key, value) in &workload.entries {
        builder.add(key, value)?;
    }
    builder.finish()
}

fn find_every_present_key(table: &Table, workload: &Workload) -> Result<(), Box<dyn Error>> {
    for (key, value) in &workload.entries {
        if table.get_with(key, |found| found == value)? != Some(true) {
            return Err(format!("present, but not found: {}", key.escape_ascii()).into());
        }
    }
    Ok(())
}

fn miss_every_absent_key(
    file: impl ReadAt + 'static,
    summary: &Summary,
    workload: &Workload,
) -> Result<Measured, Box<dyn Error>> {
    let disk = Arc::new(CountingReadAt::new(file));
    // Without a block cache every wasted read shows.
    let table = OpenOptions::new()
        .no_cache()
        .open_source(Arc::clone(&disk))?;
    let passed = workload
        .absent
        .iter()
        .filter(|key| table.may_contain(key))
        .count();

    let reads = disk.reads();
    let start = Instant::now();
    for key in &workload.absent {
        if table.get(key)?.is_some() {
            return Err(format!("absent, but found: {}", key.escape_ascii()).into());
        }
    }
    let time = start.elapsed();
    let wasted_reads = disk.reads() - reads;
    if wasted_reads != passed as u64 {
        return Err(format!(
            "{passed} absent keys passed the filter, yet {wasted_reads} blocks were read"
        )
        .into());
    }
    Ok(Measured {
        bits_per_key: summary
            .filter
            .as_ref()
            .map_or(0.0, |filter| filter.bits_per_key(summary.entries)),
        lookups: workload.absent.len() as u64,
        wasted_reads,
        disk_bytes_per_lookup: None,
        time_per_lookup: time / workload.absent.len() as u32,
    })
}

/// Bytes read from disk for each lookup of an absent key while the page cache does not hold the table.
fn cold_lookups(path: &Path, workload: &Workload) -> Result<Option<f64>, Box<dyn Error>> {
    let table = OpenOptions::new().no_cache().open(path)?;
    let Some(disk) = ColdReads::new(&File::open(path)?) else {
        return Ok(None);
    };
    let start = Instant::now();
    let mut lookups = 0u32;
    for key in &workload.absent {
        table.get(key)?;
        lookups += 1;
        if start.elapsed() > COLD_TIME {
            break;
        }
    }
    Ok(disk.bytes().map(|bytes| bytes as f64 / f64::from(lookups)))
}
