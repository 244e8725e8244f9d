//! `TableBuilder`, and the options for writing tables.

use std::mem;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use leveltable::filter::{DelimitedPrefix, FixedPrefix};
use leveltable::sister_crates::{POLICIES, filter_with};
use leveltable::{Compression, WriteOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrow;
use crate::errors::raise;
use crate::keys::Data;
use crate::output::Builder;
use crate::report;

fn wrong<T>(why: String) -> PyResult<T> {
    Err(PyValueError::new_err(why))
}

fn unknown_filter<T>(name: &str) -> PyResult<T> {
    let names: Vec<&str> = POLICIES.iter().filter_map(|policy| policy.option).collect();
    wrong(format!(
        "filter: {name:?} is none of {}, none",
        names.join(", ")
    ))
}

/// The codec with this name, if there is one.
pub(crate) fn codec(name: Option<&str>, level: Option<i32>) -> PyResult<Option<Compression>> {
    let codec: Option<Compression> = match name {
        Some(name) => match name.parse() {
            Ok(codec) => Some(codec),
            Err(error) => return wrong(format!("compression: {error}")),
        },
        None => None,
    };
    let Some(level) = level else {
        return Ok(codec);
    };
    match codec.unwrap_or_default().at_level(level) {
        Ok(codec) => Ok(Some(codec)),
        Err(why) => wrong(format!("level: {why}")),
    }
}

/// Options for writing tables.
#[pyclass(frozen, from_py_object, module = "leveltable._native")]
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) write: WriteOptions,
    /// Whether an upload may replace an object.
    replace: bool,
}

impl Options {
    /// The options that are `given` by their names.
    pub(crate) fn of(py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
        let options = py.get_type::<Options>().call((), given)?;
        Ok(options.extract()?)
    }
}

#[pymethods]
impl Options {
    #[new]
    #[pyo3(signature = (*, compression = None, level = None, block_size = 4096, filter = None, bits_per_key = None,
        prefix_delimiter = None, prefix_length = None, leveldb = false, replace = true))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn new(
        compression: Option<&str>,
        level: Option<i32>,
        block_size: usize,
        filter: Option<&str>,
        bits_per_key: Option<f64>,
        prefix_delimiter: Option<&[u8]>,
        prefix_length: Option<usize>,
        leveldb: bool,
        replace: bool,
    ) -> PyResult<Options> {
        let mut write = if leveldb {
            WriteOptions::leveldb()
        } else {
            WriteOptions::new()
        };
        write = write.replace_existing(replace).block_size(block_size);
        if let Some(codec) = codec(compression, level)? {
            write = write.compression(codec);
        }
        write = match filter {
            None if bits_per_key.is_none() => write,
            None => return wrong("bits_per_key: name the filter as well".into()),
            Some("none") => write.no_filter(),
            Some(name) => match POLICIES.iter().find(|it| it.option == Some(name)) {
                Some(policy) => filter_with(write, policy, bits_per_key.unwrap_or(10.0)),
                None => return unknown_filter(name),
            },
        };
        write = match (prefix_delimiter, prefix_length) {
            (None, None) => write,
            (Some([delimiter]), None) => write.prefix_filter(DelimitedPrefix::new(*delimiter)),
            (None, Some(length)) => write.prefix_filter(FixedPrefix::new(length)),
            _ => return wrong("prefix_delimiter: give this one byte, or prefix_length".into()),
        };
        Ok(Options { write, replace })
    }
}

/// Writes a table.
#[pyclass(subclass, module = "leveltable._native")]
pub(crate) struct TableBuilder {
    /// Never contended: a builder has one user at a time.
    builder: Mutex<Builder>,
}

impl TableBuilder {
    fn builder(&mut self) -> &mut Builder {
        self.builder
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TableBuilder {
    #[new]
    #[pyo3(signature = (path, *, properties = None, **options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        properties: Option<&Bound<'_, PyDict>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TableBuilder> {
        let options = Options::of(py, options)?;
        let builder = Builder::create(py, &path, &options.write, options.replace);
        let mut builder = builder.map_err(raise)?;
        for (name, value) in properties.into_iter().flatten() {
            let (name, value): (String, Data<'_>) = (name.extract()?, value.extract()?);
            builder.property(&name, value.as_ref()).map_err(raise)?;
        }
        let builder = Mutex::new(builder);
        Ok(TableBuilder { builder })
    }

    /// Adds an entry. Its key must come after the previous one.
    fn add(&mut self, py: Python<'_>, key: Data<'_>, value: Data<'_>) -> PyResult<()> {
        let added = match self.builder() {
            // Compressing a block takes some microseconds.
            Builder::File(builder) => builder.add(key, value),
            // An upload may wait for its store.
            builder => py.detach(|| builder.add(key.as_ref(), value.as_ref())),
        };
        added.map_err(raise)
    }

    fn __setitem__(&mut self, py: Python<'_>, key: Data<'_>, value: Data<'_>) -> PyResult<()> {
        self.add(py, key, value)
    }

    fn _add_arrow(&mut self, data: &Bound<'_, PyAny>, key: &str, value: &str) -> PyResult<()> {
        arrow::add(self.builder(), data, [key, value])
    }

    /// Finishes the table, which appears now, synced to disk. Returns a summary.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let builder = self.builder();
        let summary = py.detach(|| builder.finish()).map_err(raise)?;
        report::summary(py, &summary)
    }

    /// Aborts the table. Leaves nothing behind.
    fn abort(&mut self, py: Python<'_>) -> PyResult<()> {
        match mem::replace(self.builder(), Builder::Ended) {
            Builder::Object(builder, runtime) => py.detach(|| runtime.wait(builder.abort())),
            Builder::File(_) | Builder::Ended => Ok(()),
        }
        .map_err(raise)
    }

    /// Number of entries so far; `None` once the table is finished or aborted.
    fn _entries(&mut self) -> Option<u64> {
        match self.builder() {
            Builder::File(builder) => Some(builder.entries()),
            Builder::Object(builder, _) => Some(builder.entries()),
            Builder::Ended => None,
        }
    }
}
