//! Handles Ctrl-C and other requests to terminate while a table is being written.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process;
#[cfg(unix)]
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, with_remedies};
use crate::output::complain;
use leveltable::{NewFile, TableBuilder, WriteOptions};

/// Exit status of an interrupted command, which is the shell's convention for SIGINT.
const INTERRUPTED: i32 = 130;

/// Removes unfinished output. Returns `false` if the output is finished after all, and the program is about to say so.
type Undo = Box<dyn FnOnce() -> bool + Send>;

/// Signals that follow the first one within this time belong to the same request: `timeout` sends one to the program and one to its
/// group.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Number of attempts, a millisecond apart, to move and to remove an unfinished directory.
const TRIES: u32 = 1000;

/// The time of the first signal.
static INTERRUPTED_AT: OnceLock<Instant> = OnceLock::new();

static UNFINISHED: Mutex<Option<Undo>> = Mutex::new(None);

fn unfinished() -> MutexGuard<'static, Option<Undo>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a table at `path`. If the user terminates the program before the table is finished, nothing is left
/// on disk.
pub(crate) fn create(
    options: &WriteOptions,
    path: &Path,
) -> leveltable::Result<TableBuilder<NewFile>> {
    handle();
    // The handler waits for this lock, which is held until the path is known.
    let mut unfinished = unfinished();
    let builder = options.create(path)?;
    let temporary = builder.temporary_path().to_owned();
    *unfinished = Some(Box::new(move || {
        // Finishing the table renames the file, so it no longer exists then.
        let _ = fs::remove_file(temporary);
        true
    }));
    Ok(builder)
}

/// Calls `work`, which writes a new directory. It passes the temporary directory to its argument before anything is in it. If the
/// user terminates the program before the work is done, nothing is left on disk.
pub(crate) fn guard_directory<T>(
    work: impl FnOnce(Box<dyn FnOnce(&Path)>) -> leveltable::Result<T>,
) -> Result<T, Failure> {
    handle();
    // The handler waits for this lock, which is held until the path is known.
    let mut lock = unfinished();
    let guard = move |temporary: &Path| {
        let temporary = temporary.to_owned();
        *lock = Some(Box::new(move || {
            // Finishing the database renames the directory. After that, the work cannot rename it any more: a directory that got its
            // name while it was being removed would be half a database.
            let unfinished = temporary.with_extension("removed.tmp");
            match patiently(|| fs::rename(&temporary, &unfinished)) {
                Err(error) if error.kind() == ErrorKind::NotFound => return false,
                Ok(()) if patiently(|| fs::remove_dir_all(&unfinished)).is_ok() => {}
                Ok(()) => complain("left behind", &unfinished.display().to_string()),
                Err(_) => complain("left behind", &temporary.display().to_string()),
            }
            true
        }));
    };
    let done = work(Box::new(guard));
    if done.is_err() {
        after_failure();
    }
    // --force does not replace a database.
    done.map_err(|error| Failure::Message(with_remedies(&error)))
}

/// Retries, for a second, what Windows refuses while a file in a directory is open.
fn patiently(mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut tries = 0..TRIES;
    loop {
        match work() {
            Err(error) if error.kind() != ErrorKind::NotFound && tries.next().is_some() => {
                thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// If the user terminates the program, waits for its end: work fails when the handler removes its files.
pub(crate) fn after_failure() {
    if INTERRUPTED_AT.get().is_some() {
        thread::sleep(Duration::from_secs(10));
    }
}

/// Calls `undo` before the program ends at the user's request. If that returns `false`, the program goes on.
#[cfg(feature = "object-store")]
pub(crate) fn before_end(undo: impl FnOnce() -> bool + Send + 'static) {
    handle();
    *unfinished() = Some(Box::new(undo));
}

fn handle() {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| handle_signals(end));
}

/// Returns whether the user has asked to terminate the program, which may take a while.
#[cfg(feature = "object-store")]
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED_AT.get().is_some()
}

/// Ends the program without a trace of the unfinished table. When called again, ends it at once: removing what was uploaded takes
/// requests, and the user may not want to wait for them.
fn end() {
    if let Some(first) = INTERRUPTED_AT.get() {
        if first.elapsed() > AT_ONCE {
            process::exit(INTERRUPTED);
        }
        return;
    }
    let _ = INTERRUPTED_AT.set(Instant::now());
    thread::spawn(|| {
        // Held to the end of the program: a table or directory that is created meanwhile would be left behind.
        let mut unfinished = unfinished();
        let undo = unfinished.take();
        if undo.is_none_or(|undo| undo()) {
            complain("interrupted", "nothing was written");
            process::exit(INTERRUPTED);
        }
    });
}

/// Calls `end` on each of these signals that is not ignored. `nohup` ignores SIGHUP, and a script ignores SIGINT in
/// background commands; these must stay ignored, and the others must not.
#[cfg(unix)]
fn handle_signals(end: fn()) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    let ignored = ignored_signals();
    let is_ignored = |signal: i32| ignored & 1 << (signal - 1) != 0;
    let signals = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|&signal| !is_ignored(signal));
    // Without a handler, a temporary file may be left behind, as with a signal that no program can handle. This makes a
    // write past the limit of a file's size an error instead of ending the program.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    if let Ok(mut signals) = signal_hook::iterator::Signals::new(signals) {
        thread::spawn(move || signals.forever().for_each(|_| end()));
    }
}

/// Returns the set of ignored signals: bit 0 stands for signal 1. Only Linux says so without `unsafe`. Elsewhere SIGHUP is assumed to
/// be ignored, as under `nohup`.
#[cfg(unix)]
fn ignored_signals() -> u64 {
    let Ok(status) = fs::read_to_string("/proc/self/status") else {
        return 1 << (signal_hook::consts::SIGHUP - 1);
    };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

/// Calls `end` when the user interrupts the program. Does nothing if one of the signals is ignored or handled, which must
/// stay so.
#[cfg(not(unix))]
fn handle_signals(end: fn()) {
    let _ = ctrlc::try_set_handler(end);
}
