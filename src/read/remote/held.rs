//! What has been fetched of a file that is being opened.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::source::Tail;
use crate::read::source::ReadAt;

/// Parts that lie at most so many bytes apart are fetched as one, and what lies between them with them: at 100 MB/s, that takes
/// less than a millisecond, and a request some thirty.
pub(super) const MOST_GAP: u64 = 64 << 10;

/// A file of which some parts are at hand. To read another one is an error, and notes that it is missing.
///
/// So the code that opens a table runs as it is: it fails, what it missed is fetched, and it runs again.
#[derive(Debug)]
pub(super) struct Held {
    size: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    parts: Vec<Part>,
    /// What was asked for in vain, each an offset and an end.
    missing: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Part {
    offset: u64,
    len: usize,
    bytes: Result<Bytes, Arc<io::Error>>,
}

impl Held {
    pub(super) fn new(tail: Tail) -> Held {
        let held = Held {
            size: tail.size,
            state: Mutex::default(),
        };
        let offset = tail.size.saturating_sub(tail.bytes.len() as u64);
        held.add((offset, tail.bytes.len()), Ok(tail.bytes));
        held
    }

    /// Takes in what came of a part that was missing: as many bytes, or an error.
    pub(super) fn add(&self, (offset, len): (u64, usize), bytes: io::Result<Bytes>) {
        let bytes = match bytes {
            Ok(bytes) if bytes.len() != len => {
                let message = format!("the source returned {} bytes", bytes.len());
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
            }
            bytes => bytes,
        };
        let bytes = bytes.map_err(Arc::new);
        let part = Part { offset, len, bytes };
        self.state().parts.push(part);
    }

    /// Removes and returns what was asked for in vain, parts that lie near each other as one.
    pub(super) fn take_missing(&self) -> Vec<(u64, usize)> {
        let mut missing = std::mem::take(&mut self.state().missing);
        missing.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in missing {
            match merged.last_mut() {
                Some(last) if start <= last.1.saturating_add(MOST_GAP) => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        // What does not fit this machine's memory stays missing, and the error of reading it stands.
        let part = |(start, end): (u64, u64)| Some((start, usize::try_from(end - start).ok()?));
        merged.into_iter().filter_map(part).collect()
    }

    /// Drops what was fetched: the open table has what it needs.
    pub(super) fn release(&self) {
        *self.state() = State::default();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing that holds the lock can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadAt for Held {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let Some(end) = offset.checked_add(len as u64) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut state = self.state();
        let mut failed = None;
        for part in &state.parts {
            let Some(start) = offset.checked_sub(part.offset) else {
                continue;
            };
            if end > part.offset + part.len as u64 {
                continue;
            }
            match &part.bytes {
                // It fits: it lies in the part.
                Ok(bytes) => match bytes.get(start as usize..start as usize + len) {
                    Some(bytes) => return Ok(Bytes::copy_from_slice(bytes)),
                    None => failed = Some(io::ErrorKind::UnexpectedEof.into()),
                },
                Err(error) => failed = Some(io::Error::new(error.kind(), Arc::clone(error))),
            }
        }
        Err(failed.unwrap_or_else(|| {
            state.missing.push((offset, end));
            io::ErrorKind::WouldBlock.into()
        }))
    }
}
