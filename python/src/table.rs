//! `Table`: an open table or set.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use leveltable::{BlockCache, OpenOptions, Source};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::arrow::Batches;
use crate::errors::{other, raise};
use crate::keys::{Ends, bounds, bytes_of};
use crate::reader::Reader;
use crate::report;
use crate::runtime::Runtime;
use crate::walk::{Entries, Yield};

/// An open table, or a set of tables that reads like one. Any number of threads may use it at once.
#[pyclass(frozen, module = "leveltable")]
pub(crate) struct Table {
    /// `None` once it is closed. Only locked to copy it.
    reader: RwLock<Option<Reader>>,
    /// What `open` was called with.
    source: Py<PyAny>,
    cache: Option<u64>,
    check_order: bool,
}

/// Opens a table or a set.
#[pyfunction]
#[pyo3(signature = (source, *, cache = None, check_order = false, set_id = None))]
pub(crate) fn open(
    source: Bound<'_, PyAny>,
    cache: Option<u64>,
    check_order: bool,
    set_id: Option<&str>,
) -> PyResult<Table> {
    let py = source.py();
    let options = OpenOptions::new().check_order(check_order);
    let options = match cache {
        None => options,
        Some(0) => options.no_cache(),
        Some(bytes) => options.cache(BlockCache::new(bytes)),
    };
    let reader = if let Ok(bytes) = source.cast::<PyBytes>() {
        let file = bytes.as_bytes();
        let file = bytes::Bytes::copy_from_slice(file);
        py.detach(|| options.open_source(Source::from(file)))
            .map(Reader::Local)
    } else {
        let path: PathBuf = source.extract()?;
        let runtime = || Python::attach(|_| Runtime::get());
        py.detach(|| Reader::open(&path, &options, runtime))
    };
    let reader = reader.map_err(raise)?;
    if let Some(expected) = set_id
        && reader.set_id().as_deref() != Some(expected)
    {
        let found = reader.set_id();
        let found = found.map_or("no set".into(), |id| format!("publication {id}"));
        return Err(other(format!(
            "{source}: expected publication {expected}, found {found}: another set was published since; read it from the start"
        )));
    }
    Ok(Table {
        reader: RwLock::new(Some(reader)),
        source: source.unbind(),
        cache,
        check_order,
    })
}

impl Table {
    pub(crate) fn reader(&self) -> PyResult<Reader> {
        let reader = self.reader.read().unwrap_or_else(PoisonError::into_inner);
        let reader = reader.clone();
        reader.ok_or_else(|| PyValueError::new_err("the table is closed"))
    }

    #[expect(clippy::too_many_arguments, reason = "those of the methods in Python")]
    fn entries(
        &self,
        yields: Yield,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        let walk = self.reader()?.walk(bounds(start, stop, prefix)?, reverse);
        Ok(Entries::new(walk.map_err(raise)?, yields))
    }
}

#[pymethods]
impl Table {
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, reader) = (key.py(), self.reader()?);
        let key = bytes_of(key)?;
        let value = py.detach(|| reader.get(&key)).map_err(raise)?;
        Ok(match value {
            Some(value) => Some(PyBytes::new(py, &value).into_any()),
            None => default,
        })
    }

    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let (py, reader) = (keys.py(), self.reader()?);
        let keys = keys.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let keys = keys.iter().map(bytes_of).collect::<PyResult<Vec<_>>>()?;
        let values = py.detach(|| reader.get_many(&keys)).map_err(raise)?;
        let values = values.iter().map(|value| {
            let value = value.as_ref();
            value.map(|value| PyBytes::new(py, value))
        });
        PyList::new(py, values)
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let missing = || PyKeyError::new_err(key.clone().unbind());
        self.get(key, None)?.ok_or_else(missing)
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, reader) = (key.py(), self.reader()?);
        let key = bytes_of(key)?;
        py.detach(|| reader.contains(&key)).map_err(raise)
    }

    fn __len__(&self) -> PyResult<usize> {
        let entries = self.reader()?.entries();
        let entries = entries.and_then(|entries| usize::try_from(entries).ok());
        entries.ok_or_else(|| {
            PyTypeError::new_err("this table does not say how many entries it has: count them")
        })
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __iter__(&self) -> PyResult<Entries> {
        self.entries(Yield::Keys, None, None, None, false)
    }

    #[pyo3(signature = (start = None, stop = None, *, prefix = None, reverse = false))]
    fn items(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Yield::Items, start, stop, prefix, reverse)
    }

    #[pyo3(signature = (start = None, stop = None, *, prefix = None, reverse = false))]
    fn keys(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Yield::Keys, start, stop, prefix, reverse)
    }

    #[pyo3(signature = (start = None, stop = None, *, prefix = None, reverse = false))]
    fn values(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Yield::Values, start, stop, prefix, reverse)
    }

    #[pyo3(signature = (prefix, *, reverse = false))]
    fn prefix(&self, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Entries> {
        self.entries(Yield::Items, None, None, Some(prefix), reverse)
    }

    #[pyo3(signature = (start = None, stop = None, *, prefix = None, rows = 65_536))]
    fn batches(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        rows: usize,
    ) -> PyResult<Batches> {
        Batches::new(self.reader()?, bounds(start, stop, prefix)?, rows)
    }

    fn splits(&self, py: Python<'_>, parts: usize) -> PyResult<Vec<Ends>> {
        let reader = self.reader()?;
        py.detach(|| reader.splits(parts)).map_err(raise)
    }

    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        report::stats(py, self.reader()?.stats())
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = self.reader()?;
        let properties = reader.properties();
        properties
            .map(|found| report::properties(py, found))
            .transpose()
    }

    #[getter]
    fn set_id(&self) -> PyResult<Option<String>> {
        Ok(self.reader()?.set_id())
    }

    fn close(&self) {
        let mut reader = self.reader.write().unwrap_or_else(PoisonError::into_inner);
        *reader = None;
    }

    fn __enter__(this: Py<Table>) -> Py<Table> {
        this
    }

    fn __exit__(
        &self,
        _class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close();
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        // A set is read by all workers as it was published, or not at all.
        let options = PyDict::new(py);
        options.set_item("cache", self.cache)?;
        options.set_item("check_order", self.check_order)?;
        options.set_item("set_id", self.reader()?.set_id())?;
        let reopen = py.import("leveltable")?.getattr("_reopen")?;
        PyTuple::new(
            py,
            [
                reopen,
                (&self.source, options).into_pyobject(py)?.into_any(),
            ],
        )
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let source = self.source.bind(py);
        let name = match source.cast::<PyBytes>() {
            Ok(_) => "in memory".to_owned(),
            Err(_) => source.repr()?.to_string(),
        };
        let state = match self.reader() {
            Ok(reader) => reader.describe(),
            Err(_) => "closed".to_owned(),
        };
        Ok(format!("<leveltable.Table {name}: {state}>"))
    }
}
