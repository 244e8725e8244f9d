//! A progress bar for work that takes longer than a moment.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar appears after this time.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar on standard error, hidden if that is not a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    /// Creates a bar of `total` bytes, or one without an end.
    pub(crate) fn bytes(total: Option<u64>) -> Progress {
        let template = match total {
            Some(_) => "{wide_bar} {percent:>3} %  {bytes} of {total_bytes}, {eta} left",
            None => "{spinner} {bytes}, {bytes_per_sec}",
        };
        // A bad template is no reason to fail: show the default bar.
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        bar.set_style(style);
        Progress {
            bar,
            started: Instant::now(),
            shown: false,
        }
    }

    /// Sets the number of bytes done.
    pub(crate) fn set(&mut self, done: u64) {
        if !self.shown && self.started.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(done);
    }
}

/// Removes the bar from the terminal.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
