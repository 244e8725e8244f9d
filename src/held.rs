//! Files that another program holds. On Windows, a program can open a file so that no other opens, replaces or removes it, and no
//! other renames a directory that it is in.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use crate::error::Error;

/// ERROR_SHARING_VIOLATION and ERROR_LOCK_VIOLATION. Elsewhere, these numbers do not occur as errors of files.
const HELD: [i32; 2] = [32, 33];

/// Whether an operation failed because another program holds the file.
pub fn is_held(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|code| HELD.contains(&code))
}

/// Whether the cause of an error of this crate is a file that another program holds.
pub fn is_about_held(error: &Error) -> bool {
    error.io_error().is_some_and(is_held)
}

/// Whether another program may hold the file, which Windows also reports as a lack of permission.
fn may_be_held(error: &io::Error) -> bool {
    is_held(error) || cfg!(windows) && error.kind() == io::ErrorKind::PermissionDenied
}

/// Advice for users of Windows, to append to the name of a failed step: the system does not say who holds a file.
pub fn advice(error: &io::Error) -> &'static str {
    if is_held(error) {
        ", which another program holds (close that program, or take the file from a shadow copy)"
    } else if may_be_held(error) {
        " (something there is read-only, or another program has it open)"
    } else {
        ""
    }
}

/// Renames a new file or directory. On Windows, retries for half a second if that is refused: virus scanners and indexers briefly
/// hold new files.
pub fn rename_patiently(mut rename: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for pause in (0..9).map(|n| 1 << n) {
        match rename() {
            Err(e) if may_be_held(&e) => {
                sleep(Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    rename()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A final refusal is reported at once.
    #[test]
    fn renaming_is_tried_again_where_waiting_may_help() {
        let tries = |error: fn() -> io::Error| {
            let mut tries = 0;
            let renamed = rename_patiently(|| {
                tries += 1;
                Err(error())
            });
            renamed.unwrap_err();
            tries
        };
        assert_eq!(tries(|| io::Error::from_raw_os_error(HELD[0])), 10);
        let denied = if cfg!(windows) { 10 } else { 1 };
        assert_eq!(tries(|| io::ErrorKind::PermissionDenied.into()), denied);
        assert_eq!(tries(|| io::ErrorKind::StorageFull.into()), 1);
    }

    #[test]
    fn an_error_tells_whether_a_file_is_held() {
        let of = |code| Error::io("opening a table", io::Error::from_raw_os_error(code));
        assert!(is_about_held(&of(32)) && is_about_held(&of(33)));
        assert!(!is_about_held(&of(5)));
        assert!(!is_about_held(&Error::io(
            "opening a table",
            io::Error::other("held")
        )));
    }
}
