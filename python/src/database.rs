//! `Database`: a database, read without its lock.

use std::path::PathBuf;

use leveltable_database::{Database as Opened, DatabaseOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{other, raise};
use crate::handle::Handle;
use crate::keys::bytes_of;
use crate::report;
use crate::table::{Reader, Reduced, cached};

/// The live contents of a LevelDB database, read without its lock, beside a writer or without one. Writes nothing.
///
/// Shows the contents as of opening until `refresh` is called. `cache` is the size in bytes of a block cache of its own.
/// `skip_damaged` leaves out damaged records of logs, which `recovery` then lists. `without_manifest` reads all files that are
/// there, for a directory whose MANIFEST is lost.
#[pyclass(frozen, extends = Reader, module = "leveltable")]
pub(crate) struct Database {
    cache: Option<u64>,
    skip_damaged: bool,
    without_manifest: bool,
}

impl Database {
    fn opened(this: &Bound<'_, Self>) -> PyResult<Opened> {
        match this.as_super().get().handle()? {
            Handle::Database(opened) => Ok(opened),
            _ => Err(other("not a database")),
        }
    }
}

#[pymethods]
impl Database {
    #[new]
    #[pyo3(signature = (path, *, cache = None, skip_damaged = false, without_manifest = false))]
    fn new(
        path: Bound<'_, PyAny>,
        cache: Option<u64>,
        skip_damaged: bool,
        without_manifest: bool,
    ) -> PyResult<PyClassInitializer<Database>> {
        let (py, directory) = (path.py(), path.extract::<PathBuf>()?);
        let options = DatabaseOptions::new()
            .tables(cached(cache))
            .skip_damaged(skip_damaged);
        let opened = py.detach(|| {
            if without_manifest {
                options.open_without_manifest(&directory)
            } else {
                options.open_read_only(&directory)
            }
        });
        let handle = Handle::Database(opened.map_err(raise)?);
        let database = Database {
            cache,
            skip_damaged,
            without_manifest,
        };
        let reader = Reader::new(handle, path.unbind());
        Ok(PyClassInitializer::from(reader).add_subclass(database))
    }

    /// Reads the database again if it has changed. Returns whether it had. Walks go on showing what they began with.
    fn refresh(this: &Bound<'_, Self>) -> PyResult<bool> {
        let opened = Database::opened(this)?;
        this.py().detach(|| opened.refresh()).map_err(raise)
    }

    /// Opens all tables, so that walks end well even if a writer removes their files meanwhile.
    fn pin(this: &Bound<'_, Self>) -> PyResult<()> {
        let opened = Database::opened(this)?;
        this.py().detach(|| opened.pin()).map_err(raise)
    }

    /// Returns the versions of `key` that files still hold, the newest first.
    fn history<'py>(
        this: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, opened, key) = (this.py(), Database::opened(this)?, bytes_of(key)?);
        let versions = py.detach(|| opened.history(&key)).map_err(raise)?;
        let versions = versions.into_iter();
        versions
            .map(|version| report::version(py, version))
            .collect()
    }

    /// The files of the directory, and which of them count.
    #[getter]
    fn files<'py>(this: &Bound<'py, Self>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, opened) = (this.py(), Database::opened(this)?);
        let files = py.detach(|| opened.files()).map_err(raise)?;
        files.iter().map(|file| report::file(py, file)).collect()
    }

    /// What opening read of logs, and what it passed over.
    #[getter]
    fn recovery<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        report::recovery(this.py(), &Database::opened(this)?.recovery())
    }

    /// The name of the keys' order.
    #[getter]
    fn comparator(this: &Bound<'_, Self>) -> PyResult<String> {
        Ok(Database::opened(this)?.comparator())
    }

    /// The sequence number of the last change.
    #[getter]
    fn last_sequence(this: &Bound<'_, Self>) -> PyResult<u64> {
        Ok(Database::opened(this)?.last_sequence())
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let (py, reader) = (this.py(), this.as_super().get());
        let options = PyDict::new(py);
        options.set_item("cache", this.get().cache)?;
        options.set_item("skip_damaged", this.get().skip_damaged)?;
        options.set_item("without_manifest", this.get().without_manifest)?;
        let open = py.import("leveltable")?.getattr("_open")?;
        Ok((
            open,
            ("Database", reader.source().bind(py).clone(), options),
        ))
    }
}
