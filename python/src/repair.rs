//! `verify`, `salvage`, `merge`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use leveltable::repair::{SalvageOptions, SalvageReport, SalvageTarget, VerifyOptions};
use leveltable::{ErrorKind, Result, Source, repair};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::builder::{Builder, Options};
use crate::errors::{other, raise};
use crate::handle::Handle;
use crate::report;
use crate::table::Reader;

/// Entries between two looks at signals.
const PATIENCE: u64 = 1 << 16;

/// Fails if a signal is to end the work, such as Ctrl-C. Called without the interpreter's lock.
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Looks at signals, and keeps the exception.
type Look<'a> = &'a mut (dyn FnMut() -> ControlFlow<()> + 'a);

/// Does `work` without the interpreter's lock.
fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Look<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let mut signal = Ok(());
        let done = work(&mut || {
            signal = check_signals();
            match signal {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        signal.and(done.map_err(raise))
    })
}

/// Reads all of a table, checks it, and reports what is wrong.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let report = interruptible(py, |look| {
        let options = VerifyOptions::new().progress(|_| look());
        repair::verify(Source::open(&path)?, options)
    });
    report::verified(py, &report?)
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
    let options = Options::of(py, options)?;
    let report = interruptible(py, |look| {
        let write = options.write.clone().replace_existing(options.replace);
        let mut builder = write.create(&target)?;
        match copy(&source, &mut builder, look) {
            // It turns out to be a table of a database.
            Err(error) if error.kind() == ErrorKind::DatabaseTable => drop(builder),
            Ok(report) if !report.cancelled => {
                builder.finish()?;
                return Ok(report);
            }
            report => return report,
        }
        let mut builder = write.create_db(&target)?;
        let report = copy(&source, &mut builder, look)?;
        if !report.cancelled {
            builder.finish()?;
        }
        Ok(report)
    });
    report::salvaged(py, &report?)
}

fn copy(source: &Path, to: &mut impl SalvageTarget, look: Look<'_>) -> Result<SalvageReport> {
    let options = SalvageOptions::new().progress(|_| look());
    repair::salvage(Source::open(source)?, to, options)
}

#[pyfunction]
#[pyo3(signature = (target, sources, **options))]
pub(crate) fn merge<'py>(
    py: Python<'py>,
    target: PathBuf,
    sources: Vec<Bound<'py, Reader>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut tables = Vec::new();
    for source in sources {
        let Handle::Local(table) = source.get().handle()? else {
            return Err(other("only tables in files and in memory can be merged"));
        };
        tables.push(table);
    }
    let builder = Builder::create(&target, &Options::of(py, options)?).map_err(raise)?;
    builder.write(py, |builder| {
        let merged = leveltable::Table::merge(&tables).map_err(raise)?;
        let (mut cursor, mut entries) = (merged.first_wins(), 0_u64);
        while cursor.next().map_err(raise)? {
            let added = builder.add(cursor.key(), cursor.value());
            added.map_err(raise)?;
            entries += 1;
            if entries.is_multiple_of(PATIENCE) {
                check_signals()?;
            }
        }
        Ok(())
    })
}
