//! `Reader`, the base class of tables and databases, and `Table`.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use leveltable::{BlockCache, OpenOptions, Source};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::arrow::Batches;
use crate::errors::raise;
use crate::handle::{self, About, Handle};
use crate::keys::{Bounds, Data, Ends, Key, bounds, ends};
use crate::report;
use crate::walk::{Lists, Walk};

/// The common methods of tables, sets and databases. Any number of threads may use one at once.
#[pyclass(frozen, subclass, module = "leveltable._native")]
pub(crate) struct Reader {
    /// `None` once it is closed. Only locked to copy it.
    handle: RwLock<Option<Handle>>,
}

impl Reader {
    pub(crate) fn new(handle: Handle) -> PyClassInitializer<Reader> {
        let handle = RwLock::new(Some(handle));
        PyClassInitializer::from(Reader { handle })
    }

    pub(crate) fn handle(&self) -> PyResult<Handle> {
        let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
        let handle = handle.clone();
        handle.ok_or_else(|| PyValueError::new_err("it is closed"))
    }

    /// The handle, and the bounds for a start, a stop and a prefix.
    fn range(&self, keys: [Key<'_>; 3]) -> PyResult<(Handle, Bounds)> {
        let handle = self.handle()?;
        if let [_, _, Some(prefix)] = &keys {
            handle.check_prefix(prefix.as_ref()).map_err(raise)?;
        }
        Ok((handle, bounds(keys)))
    }
}

#[pymethods]
impl Reader {
    /// Returns the value of `key`, or `default`.
    ///
    /// A key that the filter excludes takes no read; any other takes one block, from the cache or the file.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Data<'_>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let handle = self.handle()?;
        let value = py.detach(|| handle.get(key.as_ref())).map_err(raise)?;
        let value = value.map(|value| PyBytes::new(py, &value).into_any());
        Ok(value.or(default))
    }

    /// Returns the values of many keys, in their order; `None` for each that is missing. Blocks are read many at a time.
    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let (py, handle) = (keys.py(), self.handle()?);
        let keys = keys.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let keys = keys.iter().map(|key| key.extract::<Data<'_>>());
        let keys = keys.collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let values = py.detach(|| handle.get_many(&keys)).map_err(raise)?;
        let bytes = |value: &Option<bytes::Bytes>| Some(PyBytes::new(py, value.as_ref()?));
        PyList::new(py, values.iter().map(bytes))
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let missing = || PyKeyError::new_err(key.clone().unbind());
        let found = self.get(key.py(), key.extract()?, None)?;
        found.ok_or_else(missing)
    }

    fn __contains__(&self, py: Python<'_>, key: Data<'_>) -> PyResult<bool> {
        let handle = self.handle()?;
        let value = py.detach(|| handle.get(key.as_ref())).map_err(raise)?;
        Ok(value.is_some())
    }

    /// Iterates over lists of the entries.
    fn _walk(
        &self,
        start: Key<'_>,
        stop: Key<'_>,
        prefix: Key<'_>,
        reverse: bool,
    ) -> PyResult<Lists> {
        let (handle, bounds) = self.range([start, stop, prefix])?;
        let step = handle.step(bounds, reverse).map_err(raise)?;
        Ok(Lists::new(Walk::new(step)))
    }

    /// Returns the same entries as `items`, as Arrow record batches of up to `rows` rows, with the columns `key` and `value`.
    ///
    /// Pass the result to pyarrow, DuckDB, polars or pandas, which read it through `__arrow_c_stream__`, any number of
    /// times.
    #[pyo3(signature = (start = None, stop = None, *, prefix = None, rows = 65_536))]
    fn batches(&self, start: Key, stop: Key, prefix: Key, rows: usize) -> PyResult<Batches> {
        if rows == 0 {
            return Err(PyValueError::new_err("rows must be at least 1"));
        }
        let (handle, bounds) = self.range([start, stop, prefix])?;
        Ok(Batches {
            handle,
            bounds,
            rows,
        })
    }

    /// Closes the file once the walks over it have ended.
    fn close(&self) {
        let mut handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
        *handle = None;
    }
}

/// An open table, or a set of tables that reads like one.
#[pyclass(frozen, subclass, extends = Reader, module = "leveltable._native")]
pub(crate) struct Table;

/// Options that keep blocks in a cache of `bytes`, or in the shared one.
pub(crate) fn cached(bytes: Option<u64>) -> OpenOptions {
    match bytes {
        None => OpenOptions::new(),
        Some(bytes) => OpenOptions::new().cache(BlockCache::new(bytes)),
    }
}

fn handle_of(this: &Bound<'_, Table>) -> PyResult<Handle> {
    this.as_super().get().handle()
}

#[pymethods]
impl Table {
    #[new]
    #[pyo3(signature = (source, *, cache = None, check_order = false))]
    fn new(
        source: &Bound<'_, PyAny>,
        cache: Option<u64>,
        check_order: bool,
    ) -> PyResult<PyClassInitializer<Table>> {
        let py = source.py();
        let options = cached(cache).check_order(check_order);
        let handle = if let Ok(bytes) = source.cast::<PyBytes>() {
            let file = Source::from(bytes.as_bytes().to_vec());
            py.detach(|| options.open_source(file))
                .map(|table| Arc::new(table) as Handle)
        } else {
            let path: PathBuf = source.extract()?;
            py.detach(|| handle::open(&path, &options))
        };
        Ok(Reader::new(handle.map_err(raise)?).add_subclass(Table))
    }

    /// Whether the file at the table's path is still the one that was opened, unchanged. `False`: reopen it. One system call, no read.
    /// An error for a table that is not a local file.
    fn is_current(this: &Bound<'_, Self>) -> PyResult<bool> {
        let handle = handle_of(this)?;
        this.py().detach(|| handle.is_current()).map_err(raise)
    }

    /// Returns bounds of up to `parts` parts of similar size, for workers to read: `table.items(start, stop)` for each.
    fn splits(this: &Bound<'_, Self>, parts: usize) -> PyResult<Vec<Ends>> {
        let handle = handle_of(this)?;
        let parts = this.py().detach(|| handle.splits(parts)).map_err(raise)?;
        Ok(parts.into_iter().map(ends).collect())
    }

    /// Counts of what was read so far, and what filters and the cache have saved.
    #[getter]
    fn stats<'py>(this: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let stats = handle_of(this)?.stats();
        stats.map(|it| report::stats(this.py(), it)).transpose()
    }

    /// The table's properties. `None` for a set, and for a table that LevelDB wrote.
    #[getter]
    fn properties<'py>(this: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let handle = handle_of(this)?;
        let properties = handle.properties();
        properties
            .map(|it| report::properties(this.py(), it))
            .transpose()
    }

    /// The size in bytes, the number of entries, and the filter; for a set its publication and the number of tables.
    fn _about(this: &Bound<'_, Self>) -> PyResult<About> {
        Ok(handle_of(this)?.about())
    }
}
