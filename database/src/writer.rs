//! Whether a writer is at work.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use leveltable::sister_crates::is_held;

/// Whether a process holds the database's lock, as far as the system says so without a touch: opening and closing LOCK in a process
/// that holds the database would drop its lock, except on Windows, where LOCK cannot be opened or read meanwhile. `false` on systems
/// other than these and Linux, which do not say.
pub fn holds_lock(dir: &Path) -> bool {
    #[cfg(target_os = "linux")]
    if let Ok(lock) = std::fs::metadata(dir.join("LOCK")) {
        use std::os::unix::fs::MetadataExt;

        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        // "1: POSIX  ADVISORY  WRITE 3540 08:01:131090 0 EOF". Some file systems have two names for a device: the inode must do.
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
    // LevelDB 1.23 lets others open it, and locks what they would read.
    let read = || File::open(dir.join("LOCK"))?.read(&mut [0]);
    cfg!(windows) && read().is_err_and(|error| is_held(&error))
}
