//! The files under a directory as a workload.

use std::error::Error;
use std::path::Path;
use std::time::UNIX_EPOCH;

use walkdir::WalkDir;

use crate::workload::Workload;

/// Returns an entry for each file under `dir`: from its path to its size and its modification time, in seconds
/// since 1970, 8 bytes each.
///
/// The absent keys are `path.1`, `path.2` and so on, unless such files exist.
pub(crate) fn workload(dir: &Path, lookups: usize) -> Result<Workload, Box<dyn Error>> {
    let mut entries = Vec::new();
    let mut unreadable = 0;
    for entry in WalkDir::new(dir) {
        let (entry, metadata) = match entry.and_then(|e| Ok((e.metadata()?, e))) {
            Ok((metadata, entry)) => (entry, metadata),
            Err(e) if e.depth() == 0 => return Err(e.into()),
            Err(_) => {
                unreadable += 1;
                continue;
            }
        };
        if metadata.is_file() {
            let modified = metadata.modified()?.duration_since(UNIX_EPOCH);
            let seconds = modified.map_or(0, |time| time.as_secs());
            let value = [metadata.len().to_le_bytes(), seconds.to_le_bytes()].concat();
            entries.push((entry.path().as_os_str().as_encoded_bytes().to_vec(), value));
        }
    }
    if unreadable > 0 {
        eprintln!("left out {unreadable} files or directories that could not be read");
    }
    if entries.is_empty() {
        return Err(format!("no files under {}", dir.display()).into());
    }
    let siblings = (1..).flat_map(|n| {
        let suffix = format!(".{n}");
        entries
            .iter()
            .map(move |(path, _)| [path, suffix.as_bytes()].concat())
    });
    let absent = siblings.take(lookups).collect();
    let title = format!("Paths of the files under {}", dir.display());
    Ok(Workload::new(title, entries, absent))
}
