//! Why a command could not be carried out.

use std::fmt::Display;
use std::io;

/// What ends a command early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody reads our output any more: no error.
    ClosedPipe,
    /// One line that says what is wrong and what to do.
    Message(String),
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// The same failure, with `place` said before it.
    pub(crate) fn at(self, place: impl Display) -> Failure {
        match self {
            Failure::ClosedPipe => Failure::ClosedPipe,
            Failure::Message(message) => Failure::Message(format!("{place}: {message}")),
        }
    }

    /// Writing to standard output failed.
    pub(crate) fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Message(format!("writing to standard output: {error}")),
        }
    }
}

impl From<leveltable::Error> for Failure {
    fn from(error: leveltable::Error) -> Failure {
        Failure::Message(error.to_string())
    }
}
