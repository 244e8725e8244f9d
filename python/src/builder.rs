//! `TableBuilder`, and the options of whatever writes a table.

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

use crate::errors::raise;
use crate::keys::Data;
use crate::report;
use crate::runtime::{Place, Runtime};

/// Where a table is written.
pub(crate) enum Builder {
    File(leveltable::TableBuilder<NewFile>),
    Object(ObjectTableBuilder, Runtime),
}

impl Builder {
    /// Starts a table at `name`. Call it with the interpreter's lock held.
    pub(crate) fn create(name: &Path, options: &Options) -> Result<Builder> {
        let place = Place::of(name)?;
        if let Place::File(file) = &place {
            let write = options.write.clone().replace_existing(options.replace);
            return write.create(file).map(Builder::File);
        }
        let runtime = Runtime::get()?;
        let (store, object) = place.locate()?;
        let upload = UploadOptions::new()
            .replace_existing(options.replace)
            .named(name.to_string_lossy());
        let work = async { upload.create(store, object, &options.write) };
        Ok(Builder::Object(runtime.wait(work)?, runtime))
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Builder::File(builder) => builder.add(key, value),
            Builder::Object(builder, runtime) => runtime.wait(builder.add(key, value)),
        }
    }

    fn property(&mut self, name: &str, value: &[u8]) -> Result<()> {
        match self {
            Builder::File(builder) => builder.property(name, value),
            Builder::Object(builder, _) => builder.property(name, value),
        }
    }

    fn finish(self) -> Result<Summary> {
        match self {
            Builder::File(builder) => builder.finish(),
            Builder::Object(builder, runtime) => Ok(runtime.wait(builder.finish())?.summary),
        }
    }

    /// Leaves nothing behind.
    fn abort(self) -> Result<()> {
        match self {
            Builder::File(_) => Ok(()),
            Builder::Object(builder, runtime) => runtime.wait(builder.abort()),
        }
    }

    /// Writes what `fill` adds, or nothing if it fails, without the interpreter's lock. Returns a summary.
    pub(crate) fn write<'py>(
        mut self,
        py: Python<'py>,
        fill: impl FnOnce(&mut Builder) -> PyResult<()> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let written = py.detach(|| match fill(&mut self) {
            Ok(()) => self.finish().map_err(raise),
            Err(error) => {
                self.abort().map_err(raise)?;
                Err(error)
            }
        });
        report::summary(py, &written?)
    }
}

/// Options of whatever writes a table.
#[pyclass(frozen, from_py_object, module = "leveltable._native")]
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) write: WriteOptions,
    pub(crate) replace: bool,
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
    #[pyo3(signature = (*, compression = None, level = None, block_size = None, filter = None, bits_per_key = None,
        prefix_delimiter = None, prefix_length = None, leveldb = false, replace = true))]
    #[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
    fn new(
        compression: Option<&str>,
        level: Option<i32>,
        block_size: Option<usize>,
        filter: Option<&str>,
        bits_per_key: Option<f64>,
        prefix_delimiter: Option<&[u8]>,
        prefix_length: Option<usize>,
        leveldb: bool,
        replace: bool,
    ) -> PyResult<Options> {
        let wrong = |why: &str| Err(PyValueError::new_err(why.to_owned()));
        let mut write = if leveldb {
            WriteOptions::leveldb()
        } else {
            WriteOptions::new()
        };
        if let Some(bytes) = block_size {
            write = write.block_size(bytes);
        }
        write = match (compression, level) {
            (None, None) => write,
            (Some("none"), None) => write.compression(Compression::None),
            (Some("snappy"), None) => write.compression(Compression::Snappy),
            (Some("zstd"), level) => write.compression(Compression::Zstd(level.unwrap_or(1))),
            (Some("zlib"), level) => {
                write.compression(Compression::Zlib(level.unwrap_or(6).unsigned_abs()))
            }
            (Some("none" | "snappy") | None, Some(_)) => {
                return wrong("level: only zstd and zlib have levels");
            }
            (Some(name), _) => {
                return wrong(&format!(
                    "compression: {name:?} is none of none, snappy, zstd, zlib"
                ));
            }
        };
        let bits = bits_per_key.unwrap_or(10.0);
        write = match filter {
            None if bits_per_key.is_none() => write,
            Some("none") => write.no_filter(),
            Some("ribbon") => write.filter_policy(RibbonFilterPolicy::new(bits)),
            Some("bloom") => write
                .filter_policy(BloomFilterPolicy::new(bits as u32))
                .whole_table_filter(false),
            None => return wrong("bits_per_key: name the filter as well"),
            Some(name) => {
                return wrong(&format!("filter: {name:?} is none of ribbon, bloom, none"));
            }
        };
        write = match (prefix_delimiter, prefix_length) {
            (None, None) => write,
            (Some([delimiter]), None) => write.prefix_filter(DelimitedPrefix::new(*delimiter)),
            (None, Some(length)) => write.prefix_filter(FixedPrefix::new(length)),
            _ => {
                return wrong("give one of prefix_delimiter, which is one byte, and prefix_length");
            }
        };
        Ok(Options { write, replace })
    }
}

/// Writes a table.
#[pyclass(subclass, module = "leveltable._native")]
pub(crate) struct TableBuilder {
    /// `None` once it is finished or given up. Never waited for: a builder has one user at a time.
    builder: Mutex<Option<Builder>>,
}

impl TableBuilder {
    fn builder(&mut self) -> &mut Option<Builder> {
        self.builder
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn finished() -> PyErr {
    let what = "the table is finished, or was given up";
    raise(Error::new(ErrorKind::InvalidState, what))
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
        let mut builder = Builder::create(&path, &Options::of(py, options)?).map_err(raise)?;
        for (name, value) in properties.into_iter().flatten() {
            let (name, value): (String, Data<'_>) = (name.extract()?, value.extract()?);
            builder.property(&name, value.as_ref()).map_err(raise)?;
        }
        let builder = Mutex::new(Some(builder));
        Ok(TableBuilder { builder })
    }

    /// Adds an entry. Its key comes after the one before.
    fn add(&mut self, py: Python<'_>, key: Data<'_>, value: Data<'_>) -> PyResult<()> {
        let builder = self.builder().as_mut().ok_or_else(finished)?;
        // Compressing a block takes some microseconds; an upload may wait for its store.
        let added = match builder {
            Builder::File(builder) => builder.add(key, value),
            Builder::Object(..) => py.detach(|| builder.add(key.as_ref(), value.as_ref())),
        };
        added.map_err(raise)
    }

    fn __setitem__(&mut self, py: Python<'_>, key: Data<'_>, value: Data<'_>) -> PyResult<()> {
        self.add(py, key, value)
    }

    /// Ends the table, which appears now, synced to disk. Returns a summary.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let builder = self.builder().take().ok_or_else(finished)?;
        builder.write(py, |_| Ok(()))
    }

    /// Gives up. Leaves nothing behind.
    fn abort(&mut self, py: Python<'_>) -> PyResult<()> {
        let builder = self.builder().take();
        let aborted = py.detach(|| builder.map_or(Ok(()), Builder::abort));
        aborted.map_err(raise)
    }

    /// Entries so far; `None` once the table is finished, or was given up.
    fn _entries(&mut self) -> Option<u64> {
        match self.builder().as_ref()? {
            Builder::File(builder) => Some(builder.entries()),
            Builder::Object(builder, _) => Some(builder.entries()),
        }
    }
}
