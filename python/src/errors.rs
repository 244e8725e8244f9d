//! Errors as Python has them: classes of `leveltable.errors`, and `OSError`.

use std::error::Error as _;
use std::io;

use leveltable::{Error, ErrorKind};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;

/// The class that Python has for an error of the engine.
pub(crate) fn raise(error: Error) -> PyErr {
    let class = match error.kind() {
        ErrorKind::Io | ErrorKind::Replaced => return os_error(&error),
        ErrorKind::Corruption => "CorruptionError",
        ErrorKind::NotATable | ErrorKind::NotADatabase | ErrorKind::DatabaseTable => {
            "NotATableError"
        }
        ErrorKind::OutOfOrder | ErrorKind::Comparator => "OrderError",
        _ => "Error",
    };
    let message = error.to_string();
    Python::attach(|py| match error.corruption() {
        Some(place) => {
            let section = place.section().to_string();
            new(py, class, (message, section, place.offset()))
        }
        None => new(py, class, (message,)),
    })
}

/// An error without a class of its own.
pub(crate) fn other(message: impl Into<String>) -> PyErr {
    let message = message.into();
    Python::attach(|py| new(py, "Error", (message,)))
}

pub(crate) fn wrong_type(what: &str, expected: &str, found: &Bound<'_, PyAny>) -> PyErr {
    let found = match found.get_type().name() {
        Ok(name) => name.to_string(),
        Err(error) => return error,
    };
    PyTypeError::new_err(format!("{what} must be {expected}, not {found}"))
}

fn new<'py>(py: Python<'py>, class: &str, args: impl PyCallArgs<'py>) -> PyErr {
    let made = py
        .import("leveltable.errors")
        .and_then(|module| module.getattr(class)?.call1(args));
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// `OSError(errno, message, path)`, of which Python makes a `FileNotFoundError` and so on.
fn os_error(error: &Error) -> PyErr {
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    let path = error.path().map(|path| path.display().to_string());
    let mut message = error.to_string();
    if let Some(path) = &path
        && let Some(rest) = message.strip_prefix(&format!("{path}: "))
    {
        message = rest.to_owned();
    }
    let number = match (error.kind(), source) {
        (ErrorKind::Replaced, _) => Some("ESTALE"),
        (_, Some(source)) => match source.raw_os_error() {
            Some(number) => return PyOSError::new_err((number, message, path)),
            None => name_of(source.kind()),
        },
        (_, None) => None,
    };
    let number = number.and_then(|name| {
        Python::attach(|py| py.import("errno")?.getattr(name)?.extract::<i32>()).ok()
    });
    match number {
        Some(number) => PyOSError::new_err((number, message, path)),
        None => PyOSError::new_err(error.to_string()),
    }
}

fn name_of(kind: io::ErrorKind) -> Option<&'static str> {
    Some(match kind {
        io::ErrorKind::NotFound => "ENOENT",
        io::ErrorKind::PermissionDenied => "EACCES",
        io::ErrorKind::AlreadyExists => "EEXIST",
        io::ErrorKind::TimedOut => "ETIMEDOUT",
        io::ErrorKind::StaleNetworkFileHandle => "ESTALE",
        _ => return None,
    })
}
