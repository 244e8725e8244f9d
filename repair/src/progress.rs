//! Progress of a long run over a file, and the callback that receives it.

use std::fmt;
use std::io;
use std::ops::ControlFlow;

use leveltable::{Error, Result};

/// Progress of a verification, a salvage or a repair, in bytes of the file or of all files. [`VerifyOptions`](crate::VerifyOptions) has an
/// example.
///
/// A verification goes through the file once. A salvage goes through it twice: it looks for blocks first, then copies them. So does a
/// repair, and if the MANIFEST leaves doubt, it compares all tables in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes done so far. Never decreases; at the end it equals `total`.
    pub done: u64,
    /// Total number of bytes: the size of the file for a verification, twice that for a salvage, three times that of all files for
    /// a repair.
    pub total: u64,
}

/// Calls the callback, if there is one, as a run proceeds, and remembers whether it asked to end the run.
#[derive(Default)]
pub(crate) struct Reporter<'a> {
    done: u64,
    /// Total number of bytes.
    pub(crate) total: u64,
    /// Whether the callback asked to end the run.
    pub(crate) is_cancelled: bool,
    pub(crate) callback: Option<Box<dyn FnMut(Progress) -> ControlFlow<()> + 'a>>,
}

impl fmt::Debug for Reporter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl Reporter<'_> {
    /// Reports that `done` bytes are done, unless more were reported before. The callback is not called again after it
    /// has asked to end the run.
    pub(crate) fn reach(&mut self, done: u64) -> ControlFlow<()> {
        let total = self.total;
        self.done = done.clamp(self.done, total);
        if let Some(callback) = self.callback.as_mut().filter(|_| !self.is_cancelled) {
            let done = self.done;
            self.is_cancelled = callback(Progress { done, total }).is_break();
        }
        if self.is_cancelled {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Reports that `done` bytes are done. Fails if the callback asks to end the run.
    pub(crate) fn proceed(&mut self, done: u64) -> Result<()> {
        if self.reach(done).is_break() {
            return Err(Error::io("repairing", io::ErrorKind::Interrupted.into()));
        }
        Ok(())
    }

    /// Reports, now and then, that `done` of `all` steps of one third of the run are done.
    pub(crate) fn proceed_within(&mut self, third: u64, done: u64, all: u64) -> Result<()> {
        if !done.is_multiple_of(1024) {
            return Ok(());
        }
        let bytes = u128::from(self.total / 3);
        let part = bytes * u128::from(done.min(all)) / u128::from(all.max(1));
        self.proceed(self.total / 3 * third + part as u64)
    }

    /// Reports that the run is complete. The run cannot be cancelled any more.
    pub(crate) fn complete(&mut self) {
        let _ = self.reach(self.total);
        self.is_cancelled = false;
    }
}
