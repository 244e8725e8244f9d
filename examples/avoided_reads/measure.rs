//! Writes a table with a filter, looks up present and absent keys, and counts the reads.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leveltable::{
    BloomFilterPolicy, Compression, Destination, OpenOptions, ReadAt, RibbonFilterPolicy, Summary,
    Table, TableBuilder, WriteOptions,
};

use crate::workload::Workload;

/// A filter, with the bits per key asked of its policy.
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

    pub(crate) fn options(self) -> WriteOptions {
        // The values are random, so compressing them would only cost time.
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

    /// Returns the share of absent keys that pass in theory.
    ///
    /// A Bloom filter with `b` bits per key, `k` probes and an ideal hash lets `(1 - e^(-k/b))^k` pass.
    /// [`RibbonFilterPolicy::new`] documents `2^(-0.99 b)` for the ribbon.
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

/// Cost and benefit of a filter.
#[derive(Default)]
pub(crate) struct Measured {
    /// The whole filter block in bits, divided by the number of entries.
    pub(crate) bits_per_key: f64,
    /// Lookups of absent keys.
    pub(crate) lookups: u64,
    /// Data blocks that these lookups read.
    pub(crate) wasted_reads: u64,
    /// Bytes that the system read from disk for each lookup, starting with none of the table in the page
    /// cache. `None` where the system does not count them.
    pub(crate) disk_bytes_per_lookup: Option<f64>,
    /// Time of a lookup of an absent key, without a block cache.
    pub(crate) time_per_lookup: Duration,
}

impl Measured {
    /// Returns the share of lookups of absent keys that read a block.
    pub(crate) fn rate(&self) -> f64 {
        self.wasted_reads as f64 / self.lookups as f64
    }
}

/// Writes a table of all entries.
pub(crate) fn write<D: Destination>(
    mut builder: TableBuilder<D>,
    workload: &Workload,
) -> leveltable::Result<Summary> {
    for (key, value) in &workload.entries {
        builder.add(key, value)?;
    }
    builder.finish()
}

/// Fails unless `table` has every entry.
pub(crate) fn find_every_present_key(
    table: &Table,
    workload: &Workload,
) -> Result<(), Box<dyn Error>> {
    for (key, value) in &workload.entries {
        if table.get_with(key, |found| found == value)? != Some(true) {
            return Err(format!("present key not found: {}", key.escape_ascii()).into());
        }
    }
    Ok(())
}

/// Looks up all absent keys in a table that `file` holds. Fails if one is found, or if a lookup reads a block
/// although the filter excludes its key.
pub(crate) fn miss_every_absent_key(
    file: impl ReadAt + 'static,
    summary: &Summary,
    workload: &Workload,
) -> Result<Measured, Box<dyn Error>> {
    // A block cache would hide repeated reads.
    let table = OpenOptions::new().no_cache().open_source(Arc::new(file))?;
    let mut passed = 0;
    for key in &workload.absent {
        passed += usize::from(table.may_contain(key)?);
    }

    let reads = table.stats().source_reads;
    let start = Instant::now();
    for key in &workload.absent {
        if table.get(key)?.is_some() {
            return Err(format!("absent key found: {}", key.escape_ascii()).into());
        }
    }
    let time = start.elapsed();
    let wasted_reads = table.stats().source_reads - reads;
    if wasted_reads != passed as u64 {
        return Err(format!(
            "{passed} absent keys passed the filter, yet {wasted_reads} blocks were read"
        )
        .into());
    }
    Ok(Measured {
        bits_per_key: summary.properties.filter_bytes.map_or(0.0, |bytes| {
            bytes as f64 * 8.0 / summary.properties.entries as f64
        }),
        lookups: workload.absent.len() as u64,
        wasted_reads,
        disk_bytes_per_lookup: None,
        time_per_lookup: time / workload.absent.len() as u32,
    })
}
