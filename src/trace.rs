//! Events for subscribers of the crate `tracing`: the one file that knows whether the feature of that name is on.
//!
//! Without it, all functions here are empty, and callers pass only what they have at hand. The crate's documentation lists the
//! events.

#![cfg_attr(
    not(feature = "tracing"),
    allow(unused_variables, reason = "the functions are empty")
)]

use std::path::Path;

#[cfg(feature = "tracing")]
use tracing::{Level, event, field};

use crate::error::Error;

/// Nothing, in place of the macro of `tracing`.
#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($($_:tt)*) => {};
}

/// A table was opened.
pub(crate) fn opened(path: Option<&Path>, bytes: u64, blocks: usize, filter: Option<&str>) {
    event!(
        target: "leveltable::open",
        Level::DEBUG,
        path = path.map(|path| field::display(path.display())),
        bytes,
        blocks,
        filter,
        "opened a table"
    );
}

/// A table could not be opened.
pub(crate) fn not_opened(error: &Error) {
    event!(
        target: "leveltable::open",
        Level::DEBUG,
        path = error.path().map(|path| field::display(path.display())),
        error = field::display(error),
        "did not open a table"
    );
}

/// `parts`, each an offset and a length, are about to be read from the source.
#[inline]
pub(crate) fn read(path: Option<&Path>, parts: &[(u64, usize)]) {
    for &(offset, len) in parts {
        event!(
            target: "leveltable::read",
            Level::TRACE,
            path = path.map(|path| field::display(path.display())),
            offset,
            bytes = len,
            "reading"
        );
    }
}

/// Returns `error` with the path of its file, if that is known, and reports it.
#[cold]
pub(crate) fn error(error: Error, path: Option<&Path>) -> Error {
    let error = match path {
        Some(path) => error.at_path(path),
        None => error,
    };
    let corruption = error.corruption();
    // An event's level is part of its static description.
    macro_rules! report {
        ($level:ident) => {
            event!(
                target: "leveltable::error",
                Level::$level,
                path = error.path().map(|path| field::display(path.display())),
                kind = field::debug(error.kind()),
                section = corruption.map(|corruption| field::display(corruption.section)),
                offset = corruption.map(|corruption| corruption.offset),
                error = field::display(&error),
                "an error"
            )
        };
    }
    if corruption.is_some() {
        report!(ERROR);
    } else {
        report!(WARN);
    }
    error
}

/// A table is complete: at `path`, or in the writer that it was built into.
pub(crate) fn published(path: Option<&Path>, entries: u64, bytes: u64) {
    event!(
        target: "leveltable::publish",
        Level::DEBUG,
        path = path.map(|path| field::display(path.display())),
        entries,
        bytes,
        "published a table"
    );
}
