//! `Reader`, which tables and databases have in common, and `Table`.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use leveltable::{BlockCache, BytewiseComparator, Comparator as _, OpenOptions, Source};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::arrow::Batches;
use crate::errors::{other, raise};
use crate::handle::Handle;
use crate::keys::{Bounds, Ends, bounds, bytes_of};
use crate::report;
use crate::runtime::Runtime;
use crate::walk::{Entries, Yield};

/// What tables, sets and databases have in common. Any number of threads may use one at once.
#[pyclass(frozen, subclass, module = "leveltable")]
pub(crate) struct Reader {
    /// `None` once it is closed. Only locked to copy it.
    handle: RwLock<Option<Handle>>,
    /// What was opened.
    source: Py<PyAny>,
}

impl Reader {
    pub(crate) fn new(handle: Handle, source: Py<PyAny>) -> Reader {
        Reader {
            handle: RwLock::new(Some(handle)),
            source,
        }
    }

    pub(crate) fn handle(&self) -> PyResult<Handle> {
        let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
        let handle = handle.clone();
        handle.ok_or_else(|| PyValueError::new_err("it is closed"))
    }

    pub(crate) fn source(&self) -> &Py<PyAny> {
        &self.source
    }

    fn entries(
        &self,
        yields: Yield,
        [start, stop, prefix]: [Option<&Bound<'_, PyAny>>; 3],
        reverse: bool,
    ) -> PyResult<Entries> {
        let walk = self
            .handle()?
            .walk(self.bounds(start, stop, prefix)?, reverse);
        Ok(Entries::new(walk.map_err(raise)?, yields))
    }

    fn bounds(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bounds> {
        // Only in bytewise order do the keys of a prefix lie together. A range of them says so otherwise.
        if let (Handle::Database(database), Some(prefix)) = (self.handle()?, prefix)
            && database.comparator() != BytewiseComparator.name()
            && let Some(Err(error)) = database.prefix(bytes_of(prefix)?).next()
        {
            return Err(raise(error));
        }
        bounds(start, stop, prefix)
    }
}

#[pymethods]
impl Reader {
    /// Returns the value of `key`, or `default`.
    ///
    /// A key that the filter excludes is not read; any other takes one block, from the cache or the file.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, handle) = (key.py(), self.handle()?);
        let key = bytes_of(key)?;
        let value = py.detach(|| handle.get(&key)).map_err(raise)?;
        Ok(match value {
            Some(value) => Some(PyBytes::new(py, &value).into_any()),
            None => default,
        })
    }

    /// Returns the values of many keys, in their order; `None` for each that is missing. Blocks are read many at a time.
    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let (py, handle) = (keys.py(), self.handle()?);
        let keys = keys.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let keys = keys.iter().map(bytes_of).collect::<PyResult<Vec<_>>>()?;
        let values = py.detach(|| handle.get_many(&keys)).map_err(raise)?;
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
        let (py, handle) = (key.py(), self.handle()?);
        let key = bytes_of(key)?;
        py.detach(|| handle.contains(&key)).map_err(raise)
    }

    fn __len__(&self) -> PyResult<usize> {
        let entries = self.handle()?.entries();
        let entries = entries.and_then(|entries| usize::try_from(entries).ok());
        entries.ok_or_else(|| {
            PyTypeError::new_err("this table does not say how many entries it has: count them")
        })
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __iter__(&self) -> PyResult<Entries> {
        self.entries(Yield::Keys, [None; 3], false)
    }

    /// Iterates over keys and values from `start` on, before `stop`, and with `prefix`; with `reverse` from the last.
    ///
    /// Tables in object storage and sets have no `reverse`.
    #[pyo3(signature = (start = None, stop = None, *, prefix = None, reverse = false))]
    fn items(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Yield::Items, [start, stop, prefix], reverse)
    }

    /// Iterates over the keys, as `items`. Values are read, too.
    #[pyo3(signature = (start = None, stop = None, *, prefix = None, reverse = false))]
    fn keys(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Yield::Keys, [start, stop, prefix], reverse)
    }

    /// Iterates over the values, as `items`.
    #[pyo3(signature = (start = None, stop = None, *, prefix = None, reverse = false))]
    fn values(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Yield::Values, [start, stop, prefix], reverse)
    }

    /// Iterates over the items whose keys begin with `prefix`.
    #[pyo3(signature = (prefix, *, reverse = false))]
    fn prefix(&self, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Entries> {
        self.entries(Yield::Items, [None, None, Some(prefix)], reverse)
    }

    /// Returns the entries that `items` has as Arrow record batches of up to `rows` rows, with the columns `key` and `value`.
    ///
    /// Pass the result to pyarrow, DuckDB, polars or pandas: they take it by `__arrow_c_stream__`, as often as they like.
    #[pyo3(signature = (start = None, stop = None, *, prefix = None, rows = 65_536))]
    fn batches(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        rows: usize,
    ) -> PyResult<Batches> {
        Batches::new(self.handle()?, self.bounds(start, stop, prefix)?, rows)
    }

    /// Closes the file once the walks over it have ended.
    fn close(&self) {
        let mut handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
        *handle = None;
    }

    fn __enter__(this: Py<Reader>) -> Py<Reader> {
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

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        let (class, reader) = (this.get_type().name()?, this.get());
        let source = reader.source.bind(this.py());
        let name = match source.cast::<PyBytes>() {
            Ok(_) => "in memory".to_owned(),
            Err(_) => source.repr()?.to_string(),
        };
        let state = match reader.handle() {
            Ok(handle) => handle.describe(),
            Err(_) => "closed".to_owned(),
        };
        Ok(format!("<leveltable.{class} {name}: {state}>"))
    }
}

/// An open table, or a set of tables that reads like one.
#[pyclass(frozen, extends = Reader, module = "leveltable")]
pub(crate) struct Table {
    cache: Option<u64>,
    check_order: bool,
}

/// Options that keep blocks in a cache of `bytes`, or in the one that all share.
pub(crate) fn cached(bytes: Option<u64>) -> OpenOptions {
    let options = OpenOptions::new();
    match bytes {
        None => options,
        Some(0) => options.no_cache(),
        Some(bytes) => options.cache(BlockCache::new(bytes)),
    }
}

/// Opens a table or a set: `source` is a path, the bytes of a table, or a URL, such as `s3://bucket/table.ldb`.
///
/// `cache` is the size in bytes of a block cache of its own; otherwise all share one of 32 MiB. `check_order` reads the whole
/// table to see that its keys ascend, which is of use for large tables that other programs wrote. `set_id` is the publication
/// that a set must be.
///
/// Stores are reached as the environment says: `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ACCESS_KEY_ID` and so on, `AZURE_..`, `GOOGLE_..`.
#[pyfunction]
#[pyo3(signature = (source, *, cache = None, check_order = false, set_id = None))]
pub(crate) fn open<'py>(
    source: Bound<'py, PyAny>,
    cache: Option<u64>,
    check_order: bool,
    set_id: Option<&str>,
) -> PyResult<Bound<'py, Table>> {
    let py = source.py();
    let options = cached(cache).check_order(check_order);
    let handle = if let Ok(bytes) = source.cast::<PyBytes>() {
        let file = bytes::Bytes::copy_from_slice(bytes.as_bytes());
        py.detach(|| options.open_source(Source::from(file)))
            .map(Handle::Local)
    } else {
        let path: PathBuf = source.extract()?;
        let runtime = || Python::attach(|_| Runtime::get());
        py.detach(|| Handle::open(&path, &options, runtime))
    };
    let handle = handle.map_err(raise)?;
    if let Some(expected) = set_id
        && handle.set_id().as_deref() != Some(expected)
    {
        let found = handle.set_id();
        let found = found.map_or("no set".into(), |id| format!("publication {id}"));
        return Err(other(format!(
            "{source}: expected publication {expected}, found {found}: another set was published since; read it from the start"
        )));
    }
    let table = Table { cache, check_order };
    let reader = PyClassInitializer::from(Reader::new(handle, source.unbind()));
    Bound::new(py, reader.add_subclass(table))
}

#[pymethods]
impl Table {
    /// Returns bounds of up to `parts` parts of about the same size, for workers to read: `table.items(start, stop)` of each.
    fn splits(this: &Bound<'_, Self>, parts: usize) -> PyResult<Vec<Ends>> {
        let handle = this.as_super().get().handle()?;
        this.py().detach(|| handle.splits(parts)).map_err(raise)
    }

    /// What was read so far, and what filters and the cache have saved.
    #[getter]
    fn stats<'py>(this: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let stats = this.as_super().get().handle()?.stats();
        stats
            .map(|stats| report::stats(this.py(), stats))
            .transpose()
    }

    /// What the table says of itself. `None` for a set, and for a table that LevelDB wrote.
    #[getter]
    fn properties<'py>(this: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let handle = this.as_super().get().handle()?;
        let properties = handle.properties();
        properties
            .map(|found| report::properties(this.py(), found))
            .transpose()
    }

    /// The publication of a set, which pickling keeps to. `None` for a table.
    #[getter]
    fn set_id(this: &Bound<'_, Self>) -> PyResult<Option<String>> {
        Ok(this.as_super().get().handle()?.set_id())
    }

    /// A set is read by all workers as it was published, or not at all.
    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let (py, reader) = (this.py(), this.as_super().get());
        let options = PyDict::new(py);
        options.set_item("cache", this.get().cache)?;
        options.set_item("check_order", this.get().check_order)?;
        options.set_item("set_id", reader.handle()?.set_id())?;
        let open = py.import("leveltable")?.getattr("_open")?;
        Ok((open, ("open", reader.source().bind(py).clone(), options)))
    }
}

/// A function, and its arguments: what is opened, and with which options.
pub(crate) type Reduced<'py> = (
    Bound<'py, PyAny>,
    (&'static str, Bound<'py, PyAny>, Bound<'py, PyDict>),
);
