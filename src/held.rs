//! Files that another program holds. On Windows, a program can open a file so that no other opens, replaces or removes it, and no
//! other renames a directory that it is in.

use std::error::Error as _;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use crate::error::Error;

/// ERROR_SHARING_VIOLATION and ERROR_LOCK_VIOLATION. Elsewhere, files do not have errors of these numbers.
const HELD: [i32; 2] = [32, 33];

/// Whether an operation failed because another program holds the file.
pub fn is_held(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|code| HELD.contains(&code))
}

/// Whether that is what an error of this crate is about.
pub fn is_about_held(error: &Error) -> bool {
    let cause = error.source();
    let cause = cause.and_then(|cause| cause.downcast_ref());
    cause.is_some_and(is_held)
}

/// What to add to the name of a step that failed, for a user of Windows, whose system does not say who holds a file.
pub fn advice(error: &io::Error) -> &'static str {
    if is_held(error) {
        ", which another program holds (close that program, or take the file from a shadow copy)"
    } else if cfg!(windows) && error.kind() == io::ErrorKind::PermissionDenied {
        " (something there is read-only, or another program has it open)"
    } else {
        ""
    }
}

/// Renames a new file or directory. Tries again for half a second while that is refused: on Windows, virus scanners and indexers
/// hold what is new for a moment. Elsewhere, the error only comes later.
pub fn rename_patiently(mut rename: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for pause in (0..9).map(|n| 1 << n) {
        match rename() {
            Err(e) if is_held(&e) || e.kind() == io::ErrorKind::PermissionDenied => {
                sleep(Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    rename()
}
