//! How far a long run over a file has come, and the callback that is told.

use std::ops::ControlFlow;

/// How far a verification or a salvage has come, in bytes of the file.
///
/// A verification deals with each byte once; a salvage twice: it looks for blocks first, then copies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes dealt with so far. Never falls; at the end it is `total`.
    pub done: u64,
    /// Bytes to deal with: the size of the file for a verification, twice that for a salvage.
    pub total: u64,
}

/// Calls back as a run proceeds, and remembers whether it is to end.
pub(crate) struct Reporter<'a> {
    progress: Progress,
    cancelled: bool,
    callback: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(
        total: u64,
        callback: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Reporter<'a> {
        Reporter {
            progress: Progress { done: 0, total },
            cancelled: false,
            callback,
        }
    }

    /// Tells that `done` bytes are dealt with, or as many as were before if those are more. Once the callback
    /// asked to end, it is not called again.
    pub(crate) fn reach(&mut self, done: u64) -> ControlFlow<()> {
        if self.cancelled {
            return ControlFlow::Break(());
        }
        let Progress {
            done: before,
            total,
        } = self.progress;
        self.progress.done = before.max(done.min(total));
        let flow = (self.callback)(self.progress);
        self.cancelled = flow.is_break();
        flow
    }

    /// Tells that all is done, where an answer to end comes too late.
    pub(crate) fn complete(&mut self) {
        self.progress.done = self.progress.total;
        let _ = (self.callback)(self.progress);
    }

    /// Whether the callback asked to end.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}
