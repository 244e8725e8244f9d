//! Standard output and standard error.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use clap::builder::styling::{AnsiColor, Style};

use crate::failure::Failure;

pub(crate) const BOLD: Style = Style::new().bold();
const RED: Style = AnsiColor::Red.on_default().bold();

/// Says `what` is wrong, in one line on standard error.
pub(crate) fn complain(what: &str, message: &str) {
    // Where not even this can be written, the exit status tells.
    let _ = writeln!(anstream::stderr(), "{RED}{what}:{RED:#} {message}");
}

/// Standard output for rows: buffered, but on a terminal each row appears at once.
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

    /// Writes one row by `write`.
    pub(crate) fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut self.out)
            .and_then(|()| match self.is_terminal {
                true => self.out.flush(),
                false => Ok(()),
            })
            .map_err(Failure::output)
    }

    /// Nothing more comes.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::output)
    }
}

/// So many of `what`, in words.
pub(crate) fn count(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        _ => format!("{n} {what}s"),
    }
}

pub(crate) fn entries(n: u64) -> String {
    match n {
        1 => "1 entry".into(),
        _ => format!("{n} entries"),
    }
}
