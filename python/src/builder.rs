//! `TableBuilder`, and the options of whatever writes a table.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use leveltable::filter::{DelimitedPrefix, FixedPrefix};
use leveltable::{
    BloomFilterPolicy, Compression, Error, ErrorKind, NewFile, Result, RibbonFilterPolicy, Summary,
    WriteOptions,
};
use leveltable_object_store::{ObjectTableBuilder, UploadOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrow;
use crate::errors::raise;
use crate::keys::Data;
use crate::report;
use crate::runtime::{Runtime, local, locate};

/// Where a table is written.
pub(crate) enum Builder {
    File(leveltable::TableBuilder<NewFile>),
    Object(ObjectTableBuilder, Runtime),
    /// It is finished, or was given up.
    Ended,
}

impl Builder {
    fn create(py: Python<'_>, name: &Path, options: &Options) -> Result<Builder> {
        if let Some(file) = local(name)? {
            return options.write.create(file).map(Builder::File);
        }
        let (runtime, (store, object)) = (Runtime::get(py)?, locate(name)?);
        let upload = UploadOptions::new().replace_existing(options.replace);
        let upload = upload.named(name.to_string_lossy());
        let builder = upload.create(store, object, &options.write)?;
        Ok(Builder::Object(builder, runtime))
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Builder::File(builder) => builder.add(key, value),
            Builder::Object(builder, runtime) => runtime.wait(builder.add(key, value)),
            Builder::Ended => Err(ended()),
        }
    }

    fn property(&mut self, name: &str, value: &[u8]) -> Result<()> {
        match self {
            Builder::File(builder) => builder.property(name, value),
            Builder::Object(builder, _) => builder.property(name, value),
            Builder::Ended => Err(ended()),
        }
    }

    fn finish(&mut self) -> Result<Summary> {
        match mem::replace(self, Builder::Ended) {
            Builder::File(builder) => builder.finish(),
            Builder::Object(builder, runtime) => Ok(runtime.wait(builder.finish())?.summary),
            Builder::Ended => Err(ended()),
        }
    }
}

fn ended() -> Error {
    let what = "the table is finished, or was given up";
    Error::new(ErrorKind::InvalidState, what)
}

fn wrong<T>(why: String) -> PyResult<T> {
    Err(PyValueError::new_err(why))
}

fn unknown<T>(option: &str, name: &str, names: &str) -> PyResult<T> {
    wrong(format!("{option}: {name:?} is none of {names}"))
}

/// The codec that is named, if one is.
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
    match codec.filter(|codec| codec.level().is_some()) {
        Some(codec) => Ok(Some(codec.at_level(level))),
        None => wrong("level: only zstd, zlib and deflate have levels".into()),
    }
}

/// Options of whatever writes a table.
#[pyclass(frozen, from_py_object, module = "leveltable._native")]
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) write: WriteOptions,
    /// That of an upload.
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
        let bits = bits_per_key.unwrap_or(10.0);
        let bloom = BloomFilterPolicy::new(bits as u32);
        write = match filter {
            None if bits_per_key.is_none() => write,
            None => return wrong("bits_per_key: name the filter as well".into()),
            Some("none") => write.no_filter(),
            Some("ribbon") => write.filter_policy(RibbonFilterPolicy::new(bits)),
            Some("bloom") => write.filter_policy(bloom).whole_table_filter(false),
            Some(name) => return unknown("filter", name, "ribbon, bloom, none"),
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
    /// Never waited for: a builder has one user at a time.
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
        let mut builder = Builder::create(py, &path, &options).map_err(raise)?;
        for (name, value) in properties.into_iter().flatten() {
            let (name, value): (String, Data<'_>) = (name.extract()?, value.extract()?);
            builder.property(&name, value.as_ref()).map_err(raise)?;
        }
        let builder = Mutex::new(builder);
        Ok(TableBuilder { builder })
    }

    /// Adds an entry. Its key comes after the one before.
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

    /// Ends the table, which appears now, synced to disk. Returns a summary.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let builder = self.builder();
        let summary = py.detach(|| builder.finish()).map_err(raise)?;
        report::summary(py, &summary)
    }

    /// Gives up. Leaves nothing behind.
    fn abort(&mut self, py: Python<'_>) -> PyResult<()> {
        match mem::replace(self.builder(), Builder::Ended) {
            Builder::Object(builder, runtime) => py.detach(|| runtime.wait(builder.abort())),
            Builder::File(_) | Builder::Ended => Ok(()),
        }
        .map_err(raise)
    }

    /// Entries so far; `None` once the table is finished, or was given up.
    fn _entries(&mut self) -> Option<u64> {
        match self.builder() {
            Builder::File(builder) => Some(builder.entries()),
            Builder::Object(builder, _) => Some(builder.entries()),
            Builder::Ended => None,
        }
    }
}
