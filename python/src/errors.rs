//! Python's exceptions: classes of `leveltable.errors`, and `OSError`.

use std::io;

use leveltable::Error;
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
    // In Python, they are functions of this package, and their arguments.
    let message = error.to_string();
    let message = message
        .replace("`repair` of leveltable-repair", "`repair_database`")
        .replace(" of leveltable-repair", "")
        .replace(
            "open_without_manifest reads",
            "`repair_database` makes a new one of",
        )
        .replace("skip_damaged reads", "`skip_damaged=True` reads");
    new("_make", (kind, message, path, number, cause, place))
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
