//! `verify`, `salvage`, `merge`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use leveltable::repair::{SalvageOptions, SalvageReport, VerifyOptions};
use leveltable::{ErrorKind, Result, Source, repair};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::builder::{Builder, Options};
use crate::errors::{other, raise};
use crate::handle::Handle;
use crate::report;
use crate::table::{self, Reader};

/// Entries between two looks at signals.
const PATIENCE: u64 = 1 << 16;

/// Ends work that a signal interrupts, such as Ctrl-C. Called without the interpreter's lock.
#[derive(Default)]
struct Interrupt(Option<PyErr>);

impl Interrupt {
    fn look(&mut self) -> ControlFlow<()> {
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.0 = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn or<T>(self, result: Result<T>) -> PyResult<T> {
        match self.0 {
            Some(error) => Err(error),
            None => result.map_err(raise),
        }
    }
}

/// Reads all of a table, checks it, and reports what is wrong.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let mut interrupt = Interrupt::default();
    let report = py.detach(|| {
        let options = VerifyOptions::new().progress(|_| interrupt.look());
        repair::verify(Source::open(&path)?, options)
    });
    report::verified(py, &interrupt.or(report)?)
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
    let options = Options::of(options)?;
    let mut interrupt = Interrupt::default();
    let report = py.detach(|| copy(&source, &target, &options, &mut interrupt));
    report::salvaged(py, &interrupt.or(report)?)
}

/// Copies a plain table or, if it turns out to be one, a table of a database.
fn copy(
    source: &Path,
    target: &Path,
    options: &Options,
    interrupt: &mut Interrupt,
) -> Result<SalvageReport> {
    let write = options.write.clone().replace_existing(options.replace);
    let mut builder = write.create(target)?;
    let look = SalvageOptions::new().progress(|_| interrupt.look());
    match repair::salvage(Source::open(source)?, &mut builder, look) {
        Err(error) if error.kind() == ErrorKind::DatabaseTable => {
            drop(builder);
            let mut builder = write.create_db(target)?;
            let look = SalvageOptions::new().progress(|_| interrupt.look());
            let report = repair::salvage(Source::open(source)?, &mut builder, look)?;
            if !report.cancelled {
                builder.finish()?;
            }
            Ok(report)
        }
        report => {
            let report = report?;
            if !report.cancelled {
                builder.finish()?;
            }
            Ok(report)
        }
    }
}

/// Writes one table of the entries of several, which are paths or open tables. Of equal keys, the first table's entry is kept:
/// name the newest first.
#[pyfunction]
#[pyo3(signature = (target, sources, **options))]
pub(crate) fn merge<'py>(
    py: Python<'py>,
    target: PathBuf,
    sources: Vec<Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut tables = Vec::new();
    for source in sources {
        let handle = match source.cast::<Reader>() {
            Ok(reader) => reader.get().handle()?,
            Err(_) => table::open(source, Some(0), false, None)?
                .as_super()
                .get()
                .handle()?,
        };
        let Handle::Local(table) = handle else {
            return Err(other("only tables in files and in memory can be merged"));
        };
        tables.push(table);
    }
    let mut builder = Builder::create(&target, &Options::of(options)?).map_err(raise)?;
    let mut interrupt = Interrupt::default();
    let merged = py.detach(|| {
        let mut cursor = leveltable::Table::merge(&tables)?.first_wins();
        let mut entries = 0_u64;
        while cursor.next()? {
            builder.add(cursor.key(), cursor.value())?;
            entries += 1;
            if entries.is_multiple_of(PATIENCE) && interrupt.look().is_break() {
                break;
            }
        }
        Ok(())
    });
    match interrupt.or(merged) {
        Ok(()) => {
            let summary = py.detach(|| builder.finish()).map_err(raise)?;
            report::summary(py, &summary)
        }
        Err(error) => {
            py.detach(|| builder.abort()).map_err(raise)?;
            Err(error)
        }
    }
}
