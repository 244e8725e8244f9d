//! Measures a filter on a table on disk, and how much of the table lookups read from it.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use leveltable::{OpenOptions, Table};

use crate::cold::Cold;
use crate::measure::{self, Filter, Measured};
use crate::workload::Workload;

/// How long to look up keys while the table is not in the page cache. Without a filter most of these lookups
/// wait for the disk.
const COLD_TIME: Duration = Duration::from_millis(100);

/// Number of cold lookups of present keys, each of which waits for the disk, and of absent keys.
const COLD_PRESENT: usize = 500;
const COLD_ABSENT: usize = 20_000;

/// Measures `filter` on a table in `dir`, which is removed afterwards.
pub(crate) fn measure(
    dir: &Path,
    workload: &Workload,
    filter: Filter,
) -> Result<Measured, Box<dyn Error>> {
    let (measured, path) = write_and_measure(dir, workload, filter)?;
    std::fs::remove_file(path)?;
    Ok(measured)
}

/// Measures `filter` as [`measure`] does. Then measures cold lookups of present and of absent keys, with the table opened
/// as `Table::open` does.
pub(crate) fn measure_cold(
    dir: &Path,
    workload: &Workload,
    filter: Filter,
) -> Result<(Measured, [Cold; 2]), Box<dyn Error>> {
    let (measured, path) = write_and_measure(dir, workload, filter)?;
    // Spread over the table, so that each is in another block, in random order.
    let entries = &workload.entries;
    let step = entries.len().div_ceil(COLD_PRESENT);
    let mut present: Vec<&[u8]> = entries
        .iter()
        .step_by(step)
        .map(|(key, _)| &key[..])
        .collect();
    Rng::with_seed(0).shuffle(&mut present);
    let absent: Vec<&[u8]> = workload
        .absent
        .iter()
        .take(COLD_ABSENT)
        .map(Vec::as_slice)
        .collect();
    let cold = [
        default_opening(&path, &present)?,
        default_opening(&path, &absent)?,
    ];
    std::fs::remove_file(path)?;
    Ok((measured, cold))
}

fn default_opening(path: &Path, keys: &[&[u8]]) -> Result<Cold, Box<dyn Error>> {
    let table = Table::open(path)?;
    let disk = ColdReads::new(&File::open(path)?);
    let reads = table.stats().source_reads;
    let start = Instant::now();
    for key in keys {
        table.get(key)?;
    }
    let time = start.elapsed();
    let lookups = keys.len().max(1);
    Ok(Cold {
        lookups: keys.len(),
        reads: (table.stats().source_reads - reads) as f64 / lookups as f64,
        disk_bytes: disk
            .and_then(|disk| disk.bytes())
            .map(|bytes| bytes as f64 / lookups as f64),
        time: time / lookups as u32,
    })
}

fn write_and_measure(
    dir: &Path,
    workload: &Workload,
    filter: Filter,
) -> Result<(Measured, PathBuf), Box<dyn Error>> {
    let path = dir.join("table.ldb");
    let summary = measure::write(filter.options().create(&path)?, workload)?;
    measure::find_every_present_key(&Table::open(&path)?, workload)?;
    let mut measured = measure::miss_every_absent_key(File::open(&path)?, &summary, workload)?;
    measured.disk_bytes_per_lookup = cold_lookups(&path, workload)?;
    Ok((measured, path))
}

/// Returns the bytes read from disk for each lookup of an absent key, starting with none of the table in the
/// page cache.
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

/// Counts the bytes read from disk since it was created, which drops the file from the page cache.
struct ColdReads {
    start: u64,
}

impl ColdReads {
    /// Returns `None` where the system does not count such reads: on other systems than Linux, on file systems
    /// in memory, and on those with a cache of their own.
    fn new(file: &File) -> Option<ColdReads> {
        drop_pages(file)?;
        let before = bytes_read_from_disk()?;
        // Reading the first byte must read from the disk now. If the counter stands still, it does not count
        // this file system.
        leveltable::ReadAt::read_at(file, 0, 1).ok()?;
        if bytes_read_from_disk()? == before {
            return None;
        }
        drop_pages(file)?;
        Some(ColdReads {
            start: bytes_read_from_disk()?,
        })
    }

    fn bytes(&self) -> Option<u64> {
        Some(bytes_read_from_disk()? - self.start)
    }
}

/// Returns the number of bytes that this process has read from disk so far. Reads that the page cache serves do
/// not count.
#[cfg(target_os = "linux")]
fn bytes_read_from_disk() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    let read = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "))?;
    read.parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn bytes_read_from_disk() -> Option<u64> {
    None
}

/// Drops the file from the page cache, so that the next reads go to the disk. The file must have been synced:
/// pages that are not written yet stay.
#[cfg(target_os = "linux")]
fn drop_pages(file: &File) -> Option<()> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).ok()
}

#[cfg(not(target_os = "linux"))]
fn drop_pages(_: &File) -> Option<()> {
    None
}
