//! Handles Ctrl-C and other requests to terminate while a table is being written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leveltable::{NewFile, TableBuilder, WriteOptions};

/// Exit status of an interrupted command, which is the shell's convention for SIGINT.
const INTERRUPTED: i32 = 130;

/// The temporary file of the unfinished table. Finishing the table renames it, so it no longer exists then.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

fn unfinished() -> MutexGuard<'static, Option<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a table at `path`. If the user terminates the program before the table is finished, nothing is left
/// behind.
pub(crate) fn create(
    options: &WriteOptions,
    path: &Path,
) -> leveltable::Result<TableBuilder<NewFile>> {
    // Fails if a handler exists: our own, or that of `nohup`, which must stay. In the latter case a temporary
    // file may be left behind, as after a signal that no program can handle.
    let _ = ctrlc::try_set_handler(|| {
        if let Some(path) = unfinished().take() {
            let _ = fs::remove_file(path);
        }
        process::exit(INTERRUPTED);
    });
    // The handler waits for this lock, which is held until the path is known.
    let mut unfinished = unfinished();
    let builder = options.create(path)?;
    *unfinished = Some(builder.temporary_path().to_owned());
    Ok(builder)
}
