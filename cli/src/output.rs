//! Standard output and standard error.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::Path;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;

pub(crate) const BOLD: Style = Style::new().bold();
const RED: Style = AnsiColor::Red.on_default().bold();

/// Prints `what` and `message` as one line to standard error.
pub(crate) fn complain(what: &str, message: &str) {
    // If this fails too, the exit status still reports the problem.
    let message = message.replace('\n', " "); // some stores answer with several lines
    let _ = writeln!(anstream::stderr(), "{RED}{what}:{RED:#} {message}");
}

/// Prints a note about the file at `path` to standard error.
pub(crate) fn note(path: &Path, what: impl Display) {
    complain("note", &format!("{}: {what}", path.display()));
}

/// Reports what was written to `path`, if standard error is a terminal.
pub(crate) fn report(path: &Path, what: impl Display) {
    if io::stderr().is_terminal() {
        anstream::eprintln!("{}: {what}", path.display());
    }
}

/// Buffered standard output for rows. On a terminal each row appears at once.
pub(crate) struct Rows {
    out: BufWriter<StdoutLock<'static>>,
    is_terminal: bool,
}

impl Rows {
    pub(crate) fn new() -> Rows {
        Rows {
            out: BufWriter::with_capacity(64 << 10, io::stdout().lock()),
            is_terminal: io::stdout().is_terminal(),
        }
    }

    /// Writes one row with `write`.
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut self.out).map_err(Failure::Output)?;
        if self.is_terminal {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the buffered output, so that it comes before the next line on standard error.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::Output)
    }

    /// Writes the line that separates the output for several files, as `head` does, if the output is a terminal. A program would
    /// take it for a row.
    pub(crate) fn heading(&mut self, file: &Path, is_first: bool) -> Result<(), Failure> {
        if !self.is_terminal {
            return Ok(());
        }
        let gap = if is_first { "" } else { "\n" };
        self.write(|out| writeln!(out, "{gap}==> {} <==", file.display()))
    }
}

/// Prints `text` to standard output at once.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    written.map_err(Failure::Output)
}

/// Returns `n` and `what`, in the plural unless `n` is 1.
pub(crate) fn count(n: u64, what: &str) -> String {
    match what.strip_suffix('y') {
        _ if n == 1 => format!("1 {what}"),
        Some(stem) => format!("{n} {stem}ies"),
        None if what.ends_with("ch") => format!("{n} {what}es"),
        None => format!("{n} {what}s"),
    }
}

/// Returns the number of entries after a comma, or nothing if it is not known.
pub(crate) fn and_entries(n: Option<u64>) -> String {
    n.map_or_else(String::new, |n| format!(", {}", count(n, "entry")))
}

/// The delay before the bar appears.
const PATIENCE: Duration = Duration::from_millis(500);

/// A progress bar on standard error, hidden if that is not a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: bool,
}

impl Progress {
    /// Creates a bar of `total` bytes, or one without an end.
    pub(crate) fn bytes(total: Option<u64>) -> Progress {
        Progress::new(
            total,
            match total {
                Some(_) => "{wide_bar} {percent:>3} %  {bytes} of {total_bytes}, {eta} left{msg}",
                None => "{spinner} {bytes}, {bytes_per_sec}{msg}",
            },
        )
    }

    /// Creates a bar of `total` sorted entries.
    pub(crate) fn sorted(total: u64) -> Progress {
        let template = "{wide_bar} {percent:>3} %  {human_pos} of {human_len} sorted entries written, {eta} left";
        Progress::new(Some(total), template)
    }

    fn new(total: Option<u64>, template: &str) -> Progress {
        // A bad template is not a reason to fail: show the default bar.
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        bar.set_style(style);
        Progress { bar, shown: false }
    }

    /// Sets the number of bytes or entries done.
    pub(crate) fn set(&mut self, done: u64) {
        if !self.shown && self.bar.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(done);
    }

    /// Returns a callback that shows the number of bytes in temporary files beside the bar, also between calls of `set`.
    pub(crate) fn of_sorting(&self) -> impl Fn(u64) + Send + Sync + 'static {
        let bar = self.bar.clone();
        move |written| bar.set_message(format!("; sorting: {} written", HumanBytes(written)))
    }
}

/// Removes the bar from the terminal.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
