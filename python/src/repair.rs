//! `verify` and `salvage`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use leveltable::repair::{SalvageOptions, SalvageReport, SalvageTarget, VerifyOptions};
use leveltable::{DbTableBuilder, ErrorKind, Result, Source, Summary, TableBuilder, repair};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::builder::Options;
use crate::errors::raise;
use crate::report;

/// Fails if a signal is to end the work, such as Ctrl-C. Called without the interpreter's lock.
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Ends the work after a signal, whose exception it leaves in `signal`.
fn look(signal: &mut PyResult<()>) -> ControlFlow<()> {
    *signal = check_signals();
    match signal {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

/// Reads all of a table, checks it, and reports what is wrong.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let mut signal = Ok(());
    let report = py.detach(|| {
        let options = VerifyOptions::new().progress(|_| look(&mut signal));
        repair::verify(Source::open(&path)?, options)
    });
    signal?;
    report::verified(py, &report.map_err(raise)?)
}

/// Copies the readable part of a damaged table to a new one, and reports what is lost. `options` are those of `TableBuilder`.
#[pyfunction]
#[pyo3(signature = (source, target, **options))]
pub(crate) fn salvage<'py>(
    py: Python<'py>,
    source: PathBuf,
    target: PathBuf,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = Options::of(py, options)?.write;
    let mut signal = Ok(());
    let report = py.detach(|| {
        let table = options.create(&target)?;
        match copy(&source, table, TableBuilder::finish, &mut signal) {
            // It turns out to be a table of a database.
            Err(error) if error.kind() == ErrorKind::DatabaseTable => {
                let table = options.create_db(&target)?;
                copy(&source, table, DbTableBuilder::finish, &mut signal)
            }
            report => report,
        }
    });
    signal?;
    report::salvaged(py, &report.map_err(raise)?)
}

fn copy<T: SalvageTarget>(
    source: &Path,
    mut to: T,
    finish: impl FnOnce(T) -> Result<Summary>,
    signal: &mut PyResult<()>,
) -> Result<SalvageReport> {
    let options = SalvageOptions::new().progress(|_| look(signal));
    let report = repair::salvage(Source::open(source)?, &mut to, options)?;
    if !report.cancelled {
        finish(to)?;
    }
    Ok(report)
}
