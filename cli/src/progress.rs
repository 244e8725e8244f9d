//! A progress bar, for work that takes longer than a moment and a terminal that shows it.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar on standard error; hidden where that is no terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    /// Of `total` bytes, or of no known end.
    pub(crate) fn bytes(total: Option<u64>) -> Progress {
        let template = match total {
            Some(_) => "{wide_bar} {percent:>3} %  {bytes} of {total_bytes}, {eta} left",
            None => "{spinner} {bytes}, {bytes_per_sec}",
        };
        // A template that does not parse would show as a plain bar: no reason to fail.
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

    /// So much is done.
    pub(crate) fn set(&mut self, done: u64) {
        if !self.shown && self.started.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(done);
    }
}

/// The bar leaves no trace.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
