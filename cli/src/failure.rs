//! The errors of commands.

use std::error::Error as _;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

use crate::database::with_remedies;
use crate::place::is_url;
use crate::remote::explain;

/// The reason why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of the output has gone away. This is not an error.
    ClosedPipe,
    /// Standard output cannot be written: no other file can be shown either.
    Output(String),
    /// One line with the error and, where possible, a remedy.
    Message(String),
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// Returns the failure with `place` prepended to its message.
    pub(crate) fn at(self, place: impl Display) -> Failure {
        match self {
            Failure::ClosedPipe | Failure::Output(_) => self,
            Failure::Message(message) => Failure::Message(format!("{place}: {message}")),
        }
    }

    /// Returns the failure for a table that would replace what is at `path`.
    pub(crate) fn taken(path: &Path) -> Failure {
        let what = "already exists: use --force to replace it, or name another file";
        Failure::new(what).at(path.display())
    }

    /// Returns the failure for an error while writing to standard output.
    pub(crate) fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Output(format!("writing to standard output: {error}")),
        }
    }
}

impl From<leveltable::Error> for Failure {
    fn from(error: leveltable::Error) -> Failure {
        if let Some(what) = explain(&error) {
            let failure = Failure::new(what);
            return match error.path() {
                Some(path) => failure.at(path.display()),
                None => failure,
            };
        }
        // Of a new table, although it was not there before.
        if cause_of(&error) == Some(io::ErrorKind::AlreadyExists)
            && let Some(path) = error.path()
        {
            return Failure::taken(path);
        }
        match error.path().filter(|path| is_url(path)) {
            // A store says so at length.
            Some(path) if is_not_found(&error) => Failure::new("no such object").at(path.display()),
            _ => Failure::Message(with_remedies(&error.to_string())),
        }
    }
}

fn cause_of(error: &leveltable::Error) -> Option<io::ErrorKind> {
    let cause = error.source()?.downcast_ref::<io::Error>();
    cause.map(io::Error::kind)
}

/// Returns whether an error says that there is no such file or object.
pub(crate) fn is_not_found(error: &leveltable::Error) -> bool {
    cause_of(error) == Some(io::ErrorKind::NotFound)
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::ClosedPipe => "writing to standard output: broken pipe",
            Failure::Output(message) | Failure::Message(message) => message,
        })
    }
}
