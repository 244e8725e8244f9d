//! Ctrl-C and other requests to end, while a table is under way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leveltable::{NewFile, TableBuilder, WriteOptions};

/// Status of a command that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

/// Where the table's bytes are until it is finished, of no use to anybody. Afterwards nothing is there.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

fn unfinished() -> MutexGuard<'static, Option<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a table at `path` that leaves no trace if the user ends the program before it is finished.
pub(crate) fn create(
    options: &WriteOptions,
    path: &Path,
) -> leveltable::Result<TableBuilder<NewFile>> {
    // Fails where there is a handler: ours, or that of `nohup`, which is to stay. Then a file is left
    // behind, as after an end that no program can handle.
    let _ = ctrlc::try_set_handler(|| {
        if let Some(path) = unfinished().take() {
            let _ = fs::remove_file(path);
        }
        process::exit(INTERRUPTED);
    });
    // Held until the path is known, so that the handler waits for it.
    let mut unfinished = unfinished();
    let builder = options.create(path)?;
    *unfinished = Some(builder.temporary_path().to_owned());
    Ok(builder)
}
