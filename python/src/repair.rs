//! `verify`, `salvage` and `repair_database`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use leveltable::{Destination, ErrorKind, Result, Source, TableBuilder};
use leveltable_repair::{RepairOptions, SalvageOptions, SalvageReport, VerifyOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::builder::Options;
use crate::errors::{check_signals, raise};
use crate::new_database::comparator_named;
use crate::report;

/// Ends the work after a signal, whose exception is stored in `signal`.
fn look(signal: &mut PyResult<()>) -> ControlFlow<()> {
    *signal = check_signals();
    match signal {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

/// Reads a whole table, checks it, and reports what is wrong.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let mut signal = Ok(());
    let report = py.detach(|| {
        let options = VerifyOptions::new().progress(|_| look(&mut signal));
        leveltable_repair::verify(Source::open(&path)?, options)
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
        let mut table = options.create(&target)?;
        let report = match copy(&source, &mut table, &mut signal) {
            // It turns out to be a table of a database.
            Err(error) if error.kind() == ErrorKind::DatabaseTable => {
                let mut table = options.create_db(&target)?;
                let report = copy(&source, table.table_mut(), &mut signal)?;
                return finish(report, || table.finish().map(drop));
            }
            report => report?,
        };
        finish(report, || table.finish().map(drop))
    });
    signal?;
    report::salvaged(py, &report.map_err(raise)?)
}

fn copy<D: Destination>(
    source: &Path,
    to: &mut TableBuilder<D>,
    signal: &mut PyResult<()>,
) -> Result<SalvageReport> {
    let options = SalvageOptions::new().progress(|_| look(signal));
    leveltable_repair::salvage(Source::open(source)?, to, options)
}

/// Finishes the new table, unless the work was interrupted.
fn finish(report: SalvageReport, finish: impl FnOnce() -> Result<()>) -> Result<SalvageReport> {
    if !report.cancelled {
        finish()?;
    }
    Ok(report)
}

/// Writes what is left of the damaged database in the directory `path` to a new one at `new`, and reports what is lost or unproven.
///
/// Only reads `path`. The new database appears complete and synced, or not at all. `comparator` names the order of the keys, if no
/// MANIFEST is left to name it: "leveldb.BytewiseComparator", or "idb_cmp1" for Chrome's IndexedDB. As much space as `path` takes must
/// be free, unless `ignore_space` is set. This fails while a program has the database open.
#[pyfunction]
#[pyo3(signature = (path, new, *, comparator=None, ignore_space=false))]
pub(crate) fn repair_database<'py>(
    py: Python<'py>,
    path: PathBuf,
    new: PathBuf,
    comparator: Option<&str>,
    ignore_space: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let order = comparator.map(comparator_named).transpose()?;
    let mut signal = Ok(());
    let report = py.detach(|| {
        let options = RepairOptions::new().ignore_space(ignore_space);
        let options = match order {
            Some(order) => options.comparator(order),
            None => options,
        };
        leveltable_repair::repair(path, new, options.progress(|_| look(&mut signal)))
    });
    signal?;
    report::repaired(py, &report.map_err(raise)?)
}
