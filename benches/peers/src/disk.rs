//! The disk: drops files from the page cache, counts what is read from the disk, and times plain reads.
//!
//! `cpp/workload.h` has the C++ counterpart of the first two.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use rustix::fs::{Advice, fadvise};

use crate::workload::{self, Answers, BATCH, Block, Measured};

/// Number of reads in flight. More gain nothing on the virtual disk that the goals were set on.
const IN_FLIGHT: usize = 64;

/// Returns the number of bytes that this process has read from disk so far, or 0 if the system does not count them.
pub fn bytes_read() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Drops a file, or all files of a directory, from the page cache. They must have been synced: pages that are not
/// written yet stay, and so do those that somebody maps.
pub fn drop_pages(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            drop_pages(&entry?.path())?;
        }
        return Ok(());
    }
    Ok(fadvise(File::open(path)?, 0, None, Advice::DontNeed)?)
}

/// Syncs a file, or all files of a directory.
pub fn sync(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            sync(&entry?.path())?;
        }
        return Ok(());
    }
    Ok(File::open(path)?.sync_all()?)
}

/// Returns whether files in `directory` can be dropped from the page cache, and reading them again is counted. A file
/// system in memory does neither, and one with a cache of its own may not count.
pub fn is_counted(directory: &Path) -> Result<bool> {
    let path = directory.join("is-counted");
    let mut file = File::create(&path)?;
    file.write_all(&[1; 4096])?;
    file.sync_all()?;
    drop_pages(&path)?;
    let before = bytes_read();
    File::open(&path)?.read_exact_at(&mut [0; 1], 0)?;
    let counted = bytes_read() > before;
    fs::remove_file(path)?;
    Ok(counted)
}

/// Reads the blocks of the present keys with nothing but `pread`: one after another (`cold-get`), or in batches, each
/// in the file's order with the next 64 announced (`cold-get-many`).
pub fn run(directory: &Path, work: &str, table: &str) -> Result<Measured> {
    let path = directory.join(table).with_extension("ldb");
    let blocks = workload::read_blocks(&path)?;
    let read: fn(&File, &[Block], &mut [u8]) -> Result<()> = match work {
        "cold-get" => one_after_another,
        "cold-get-many" => in_flight,
        _ => bail!("unknown work {work}"),
    };
    let mut buffer = vec![0; 1 << 16];
    let mut cold = Cold::default();
    for pass in blocks.chunks(BATCH) {
        drop_pages(&path)?;
        // A new one, since the kernel keeps track of how a descriptor is used.
        let file = File::open(&path)?;
        cold.time(pass.len(), || read(&file, pass, &mut buffer))?;
    }
    Ok(cold.measured(Answers::default()))
}

fn one_after_another(file: &File, blocks: &[Block], buffer: &mut [u8]) -> Result<()> {
    for &(offset, len) in blocks {
        file.read_exact_at(&mut buffer[..len], offset)?;
    }
    Ok(())
}

fn in_flight(file: &File, blocks: &[Block], buffer: &mut [u8]) -> Result<()> {
    let announce = |&(offset, len): &Block| {
        let len = std::num::NonZeroU64::new(len as u64);
        fadvise(file, offset, len, Advice::WillNeed)
    };
    let mut blocks = blocks.to_vec();
    blocks.sort_unstable();
    for block in blocks.iter().take(IN_FLIGHT) {
        announce(block)?;
    }
    for (i, &(offset, len)) in blocks.iter().enumerate() {
        if let Some(next) = blocks.get(i + IN_FLIGHT) {
            announce(next)?;
        }
        file.read_exact_at(&mut buffer[..len], offset)?;
    }
    Ok(())
}

/// Returns the nanoseconds that this process, of one thread, has been ready to run but had no processor, or 0 if the
/// system does not count them.
fn waited_for_processor() -> f64 {
    let counts = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let waited = counts.split_whitespace().nth(1);
    waited.and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}

/// Sums of what passes take while nothing of the file is in the page cache at their start. A pass waits for the disk, so
/// the time is what the ordinary clock shows, less the time in which other programs kept the processors busy.
#[derive(Default)]
pub struct Cold {
    nanoseconds: f64,
    bytes: f64,
    operations: f64,
}

impl Cold {
    /// Times `work`, which does a number of operations.
    pub fn time<T>(&mut self, operations: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let bytes = bytes_read();
        let waited = waited_for_processor();
        let start = (Instant::now(), workload::processor_time());
        let result = work()?;
        let ran = workload::processor_time() - start.1;
        let elapsed = start.0.elapsed();
        // Some of the waiting may have been before `start` or after the end.
        let idle = elapsed.saturating_sub(ran).as_nanos() as f64;
        let waited = (waited_for_processor() - waited).min(idle);
        self.nanoseconds += elapsed.as_nanos() as f64 - waited;
        self.bytes += (bytes_read() - bytes) as f64;
        self.operations += operations as f64;
        Ok(result)
    }

    /// Returns the means of an operation.
    pub fn measured(self, answers: Answers) -> Measured {
        Measured {
            figure: self.nanoseconds / self.operations,
            disk_bytes: self.bytes / self.operations,
            answers,
        }
    }
}
