//! Python's exceptions: classes of `leveltable.errors`, and `OSError`.

use std::io;
use std::path::Path;

use leveltable::{Error, ErrorKind, Section};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

/// The Python exception for an error of the engine; `leveltable.errors` chooses the class.
pub(crate) fn raise(error: Error) -> PyErr {
    let source = error.io_error();
    let number = source.and_then(io::Error::raw_os_error);
    let cause = source.map(|source| format!("{:?}", source.kind()));
    let path = error.path().map(|path| path.display().to_string());
    let place = error.corruption();
    let place = place.map(|place| (place.section.to_string(), place.offset));
    let kind = format!("{:?}", error.kind());
    let message = match hint(&error) {
        Some(hint) => error.with_hint(hint).to_string(),
        None => error.to_string(),
    };
    new("_make", (kind, message, path, number, cause, place))
}

const REPAIR: &str = "`repair_database` makes a new database of what is left";

/// What to do, by the functions of this package and their arguments, in place of the engine's hint.
fn hint(error: &Error) -> Option<&'static str> {
    error.hint()?;
    let section = error.corruption().map(|damage| damage.section);
    let directory = error.path().and_then(Path::parent);
    let is_of_database = || directory.is_some_and(|directory| directory.join("CURRENT").exists());
    match (error.kind(), section) {
        (ErrorKind::Io | ErrorKind::NotADatabase, _) | (_, Some(Section::Manifest)) => Some(REPAIR),
        (_, Some(Section::Log)) => Some(
            "`skip_damaged=True` reads the database without the damaged records, and reports them",
        ),
        (_, Some(_)) if is_of_database() => Some(REPAIR),
        (_, Some(_)) => Some("`verify` lists all damage, and `salvage` copies what is sound"),
        _ => None,
    }
}

/// An error without its own class.
pub(crate) fn other(message: impl Into<String>) -> PyErr {
    new("Error", (message.into(),))
}

fn new(name: &str, args: impl for<'py> PyCallArgs<'py>) -> PyErr {
    Python::attach(|py| {
        let module = py.import("leveltable.errors");
        match module.and_then(|module| module.getattr(name)?.call1(args)) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}

/// Fails if a signal, such as Ctrl-C, asks to end the work. Called without the interpreter's lock.
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}
