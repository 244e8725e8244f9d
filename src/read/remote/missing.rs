//! What has not been fetched of a file that is being opened.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::fetch::MOST_REQUEST_LEN;
use crate::read::source::ReadAt;

/// Parts that lie at most so many bytes apart are fetched as one, and what lies between them with them: at 100 MB/s, that takes
/// less than a millisecond, and a request some thirty.
pub(super) const MOST_GAP: u64 = 64 << 10;

/// The rest of a file of which some parts were fetched. To read it is an error, which notes what is missing.
///
/// So the code that opens a table runs as it is: it fails, what it missed is fetched, and it runs again.
#[derive(Debug)]
pub(super) struct Missing {
    size: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was asked for, each an offset and an end.
    parts: Vec<(u64, u64)>,
    /// What could not be fetched, and why.
    failed: Vec<(u64, u64, Arc<io::Error>)>,
}

impl Missing {
    /// Of a file of `size` bytes.
    pub(super) fn new(size: u64) -> Missing {
        Missing {
            size,
            state: Mutex::default(),
        }
    }

    /// From now on, to read from the `len` bytes at `offset` is this error.
    pub(super) fn fail(&self, (offset, len): (u64, usize), error: io::Error) {
        let end = offset.saturating_add(len as u64);
        self.state().failed.push((offset, end, Arc::new(error)));
    }

    /// Removes and returns what was asked for: parts that lie near each other as one, up to 8 MiB, since what comes together is
    /// copied apart.
    pub(super) fn take(&self) -> Vec<(u64, usize)> {
        let mut parts = std::mem::take(&mut self.state().parts);
        parts.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in parts {
            match merged.last_mut() {
                Some(last) if end <= last.1 => {}
                Some(last)
                    if start <= last.1.saturating_add(MOST_GAP)
                        && end - last.0 <= MOST_REQUEST_LEN =>
                {
                    last.1 = end;
                }
                _ => merged.push((start, end)),
            }
        }
        // What does not fit this machine's memory stays missing, and the error of reading it stands.
        let part = |(start, end): (u64, u64)| Some((start, usize::try_from(end - start).ok()?));
        merged.into_iter().filter_map(part).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadAt for Missing {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let Some(end) = offset.checked_add(len as u64) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut state = self.state();
        let covers = |&&(start, stop, _): &&(u64, u64, _)| start <= offset && end <= stop;
        if let Some((.., error)) = state.failed.iter().find(covers) {
            return Err(io::Error::new(error.kind(), Arc::clone(error)));
        }
        state.parts.push((offset, end));
        Err(io::ErrorKind::WouldBlock.into())
    }
}
