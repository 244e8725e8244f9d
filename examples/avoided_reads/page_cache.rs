//! What the operating system says it read from the disk.

use std::fs::File;

/// Bytes that this process has caused to be read from disk so far, or `None` where the system does not
/// tell. Reads that the page cache answers do not count.
#[cfg(target_os = "linux")]
fn bytes_read_from_disk() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    let read = io
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "))?;
    read.parse().ok()
}

/// Drops the file from the page cache, so that the next reads go to the disk. It must have been synced:
/// pages that are still to be written stay.
#[cfg(target_os = "linux")]
fn drop_pages(file: &File) -> Option<()> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).ok()
}

#[cfg(not(target_os = "linux"))]
fn bytes_read_from_disk() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn drop_pages(_: &File) -> Option<()> {
    None
}

/// Counts the bytes read from disk since it was made, with the file's pages dropped at that moment.
pub(crate) struct ColdReads {
    start: u64,
}

impl ColdReads {
    /// `None` where such reads are not counted: not on Linux, or on a file system in memory or behind a
    /// cache of its own.
    pub(crate) fn new(file: &File) -> Option<ColdReads> {
        drop_pages(file)?;
        let before = bytes_read_from_disk()?;
        // The first byte comes from disk now, if anything does.
        leveltable::ReadAt::read_at(file, 0, 1).ok()?;
        if bytes_read_from_disk()? == before {
            return None;
        }
        drop_pages(file)?;
        Some(ColdReads {
            start: bytes_read_from_disk()?,
        })
    }

    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(bytes_read_from_disk()? - self.start)
    }
}
