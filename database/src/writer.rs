//! Whether a writer is at work.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use leveltable::sister_crates::is_held;

/// Whether a process holds the database's lock; `false` on systems other than Windows and Linux. On Linux, it does not open LOCK:
/// closing it would drop the lock if this process holds the database. On Windows, LOCK cannot be opened or read meanwhile.
pub fn holds_lock(dir: &Path) -> bool {
    #[cfg(target_os = "linux")]
    if let Ok(lock) = std::fs::metadata(dir.join("LOCK")) {
        use std::os::unix::fs::MetadataExt;

        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        // "1: POSIX ADVISORY WRITE 3540 08:01:131090 0 EOF". Some file systems have two numbers for a device, so only the inode
        // is compared.
        let inode = |line: &str| {
            line.split_whitespace()
                .nth(5)?
                .rsplit(':')
                .next()?
                .parse()
                .ok()
        };
        return locks.lines().any(|line| inode(line) == Some(lock.ino()));
    }
    // LevelDB 1.23 lets others open LOCK, and locks the bytes that they would read.
    let read = || File::open(dir.join("LOCK"))?.read(&mut [0]);
    cfg!(windows) && read().is_err_and(|error| is_held(&error))
}
