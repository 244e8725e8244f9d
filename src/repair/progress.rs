//! Progress of a long run over a file, and the callback that hears of it.

use std::fmt;
use std::ops::ControlFlow;

/// How far a verification or a salvage has come, in bytes of the file.
///
/// A verification goes through the file once. A salvage goes through it twice: it looks for blocks first, then copies
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes done so far. Never falls; at the end it is `total`.
    pub done: u64,
    /// Bytes to do: the size of the file for a verification, twice that for a salvage.
    pub total: u64,
}

/// Called as a run proceeds, if there is one; ends it by [`ControlFlow::Break`].
#[derive(Default)]
pub(crate) struct Callback<'a>(Option<Box<dyn FnMut(Progress) -> ControlFlow<()> + 'a>>);

impl<'a> Callback<'a> {
    pub(crate) fn new(callback: impl FnMut(Progress) -> ControlFlow<()> + 'a) -> Callback<'a> {
        Callback(Some(Box::new(callback)))
    }
}

impl fmt::Debug for Callback<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// Calls back as a run proceeds, and remembers whether the callback asked to end it.
pub(crate) struct Reporter<'a> {
    progress: Progress,
    cancelled: bool,
    callback: Callback<'a>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(total: u64, callback: Callback<'a>) -> Reporter<'a> {
        Reporter {
            progress: Progress { done: 0, total },
            cancelled: false,
            callback,
        }
    }

    /// Reports that `done` bytes are done, unless more were before. The callback is not called again after it asked to
    /// end the run.
    pub(crate) fn reach(&mut self, done: u64) -> ControlFlow<()> {
        if self.cancelled {
            return ControlFlow::Break(());
        }
        let Progress {
            done: before,
            total,
        } = self.progress;
        self.progress.done = done.clamp(before, total);
        let flow = self.call();
        self.cancelled = flow.is_break();
        flow
    }

    /// Reports that the run is complete. It is too late to cancel it.
    pub(crate) fn complete(&mut self) {
        self.progress.done = self.progress.total;
        let _ = self.call();
    }

    fn call(&mut self) -> ControlFlow<()> {
        match &mut self.callback.0 {
            Some(callback) => callback(self.progress),
            None => ControlFlow::Continue(()),
        }
    }

    /// Whether the callback asked to end the run.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}
