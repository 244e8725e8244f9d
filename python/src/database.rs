//! `Database`: a database, read without its lock.

use std::path::PathBuf;
use std::sync::Arc;

use leveltable_database::{Database as Opened, DatabaseOptions};
use pyo3::prelude::*;

use crate::errors::{other, raise};
use crate::keys::Data;
use crate::report;
use crate::table::{Reader, cached};

/// The live contents of a LevelDB database.
#[pyclass(frozen, subclass, extends = Reader, module = "leveltable._native")]
pub(crate) struct Database;

fn opened(this: &Bound<'_, Database>) -> PyResult<Opened> {
    let handle = this.as_super().get().handle()?;
    let opened = handle.as_database().cloned();
    opened.ok_or_else(|| other("not a database"))
}

#[pymethods]
impl Database {
    #[new]
    #[pyo3(signature = (path, *, cache = None, skip_damaged = false, without_manifest = false))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        cache: Option<u64>,
        skip_damaged: bool,
        without_manifest: bool,
    ) -> PyResult<PyClassInitializer<Database>> {
        let options = DatabaseOptions::new().tables(cached(cache));
        let options = options.skip_damaged(skip_damaged);
        let opened = py.detach(|| {
            if without_manifest {
                options.open_without_manifest(&path)
            } else {
                options.open_read_only(&path)
            }
        });
        let handle = Arc::new(opened.map_err(raise)?);
        Ok(Reader::new(handle).add_subclass(Database))
    }

    /// Reads the database again if it has changed. Returns whether it had. Existing walks keep showing the old
    /// contents.
    fn refresh(this: &Bound<'_, Self>) -> PyResult<bool> {
        let opened = opened(this)?;
        this.py().detach(|| opened.refresh()).map_err(raise)
    }

    /// Opens all tables, so that walks do not fail if a writer removes their files meanwhile.
    fn pin(this: &Bound<'_, Self>) -> PyResult<()> {
        let opened = opened(this)?;
        this.py().detach(|| opened.pin()).map_err(raise)
    }

    /// Returns the versions of `key` that files still hold, the newest first.
    fn history<'py>(this: &Bound<'py, Self>, key: Data) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, opened) = (this.py(), opened(this)?);
        let versions = py.detach(|| opened.history(key.as_ref())).map_err(raise)?;
        let versions = versions.into_iter();
        versions.map(|it| report::version(py, it)).collect()
    }

    /// The files of the directory, and which of them count.
    #[getter]
    fn files<'py>(this: &Bound<'py, Self>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, opened) = (this.py(), opened(this)?);
        let files = py.detach(|| opened.files()).map_err(raise)?;
        files.iter().map(|file| report::file(py, file)).collect()
    }

    /// What was read of the logs when the database was opened, and what was skipped.
    #[getter]
    fn recovery<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        report::recovery(this.py(), &opened(this)?.recovery())
    }

    /// The name of the keys' order.
    #[getter]
    fn comparator(this: &Bound<'_, Self>) -> PyResult<String> {
        Ok(opened(this)?.comparator())
    }

    /// The sequence number of the last change.
    #[getter]
    fn last_sequence(this: &Bound<'_, Self>) -> PyResult<u64> {
        Ok(opened(this)?.last_sequence())
    }
}
