//! `TableBuilder`, and the options of whatever writes a table.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use leveltable::filter::{DelimitedPrefix, FixedPrefix};
use leveltable::{
    BloomFilterPolicy, Compression, Error, ErrorKind, NewFile, Result, RibbonFilterPolicy, Summary,
    WriteOptions,
};
use leveltable_object_store::{ObjectTableBuilder, UploadOptions};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use crate::errors::raise;
use crate::keys::bytes_of;
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
        let write = options.write.clone().replace_existing(options.replace);
        match &place {
            Place::File(file) => write.create(file).map(Builder::File),
            Place::Url(_) => {
                let runtime = Runtime::get()?;
                let (store, object) = place.locate()?;
                let upload = UploadOptions::new()
                    .replace_existing(options.replace)
                    .named(name.to_string_lossy());
                let work = async { upload.create(store, object, &write) };
                Ok(Builder::Object(runtime.wait(work)?, runtime))
            }
        }
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

    pub(crate) fn finish(self) -> Result<Summary> {
        match self {
            Builder::File(builder) => builder.finish(),
            Builder::Object(builder, runtime) => Ok(runtime.wait(builder.finish())?.summary),
        }
    }

    /// Leaves nothing behind.
    pub(crate) fn abort(self) -> Result<()> {
        match self {
            Builder::File(_) => Ok(()),
            Builder::Object(builder, runtime) => runtime.wait(builder.abort()),
        }
    }
}

/// Options of whatever writes a table.
pub(crate) struct Options {
    pub(crate) write: WriteOptions,
    pub(crate) replace: bool,
}

/// Makes `Given`: options as Python passes them, each by its name, which may be absent.
macro_rules! given {
    ($($name:ident: $type:ty),*) => {
        #[derive(Default)]
        struct Given {
            $($name: Option<$type>,)*
        }

        impl Given {
            fn of(options: &Bound<'_, PyDict>) -> PyResult<Given> {
                let mut given = Given::default();
                for (name, value) in options {
                    match &*name.extract::<String>()? {
                        $(stringify!($name) => {
                            let wrong = |error| PyTypeError::new_err(format!("option {name}: {error}"));
                            given.$name = Some(value.extract::<$type>().map_err(wrong)?);
                        })*
                        name => return Err(PyTypeError::new_err(format!("unknown option {name}"))),
                    }
                }
                Ok(given)
            }
        }
    };
}

given!(
    compression: String, level: i32, block_size: usize, filter: String, bits_per_key: f64, prefix_delimiter: Vec<u8>,
    prefix_length: usize, leveldb: bool, replace: bool
);

impl Options {
    pub(crate) fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
        let given = given.map(Given::of).transpose()?.unwrap_or_default();
        let write = if given.leveldb == Some(true) {
            WriteOptions::leveldb()
        } else {
            WriteOptions::new()
        };
        let write = given
            .block_size
            .into_iter()
            .fold(write, WriteOptions::block_size);
        let write = given
            .compression(write)
            .and_then(|write| given.filter(write));
        let write = write.and_then(|write| given.prefix_filter(write));
        Ok(Options {
            write: write.map_err(PyValueError::new_err)?,
            replace: given.replace.unwrap_or(true),
        })
    }
}

impl Given {
    fn compression(&self, write: WriteOptions) -> Result<WriteOptions, String> {
        let codec = match (self.compression.as_deref(), self.level) {
            (None, None) => return Ok(write),
            (Some("none"), None) => Compression::None,
            (Some("snappy"), None) => Compression::Snappy,
            (Some("zstd"), level) => Compression::Zstd(level.unwrap_or(1)),
            (Some("zlib"), level) => Compression::Zlib(level.unwrap_or(6).unsigned_abs()),
            (Some("none" | "snappy") | None, Some(_)) => {
                return Err("level: only zstd and zlib have levels".into());
            }
            (Some(name), _) => {
                return Err(format!(
                    "compression: {name:?} is none of none, snappy, zstd, zlib"
                ));
            }
        };
        Ok(write.compression(codec))
    }

    fn filter(&self, write: WriteOptions) -> Result<WriteOptions, String> {
        let bits = self.bits_per_key.unwrap_or(10.0);
        match self.filter.as_deref() {
            None if self.bits_per_key.is_none() => Ok(write),
            Some("none") => Ok(write.no_filter()),
            Some("ribbon") => Ok(write.filter_policy(RibbonFilterPolicy::new(bits))),
            Some("bloom") => Ok(write
                .filter_policy(BloomFilterPolicy::new(bits as u32))
                .whole_table_filter(false)),
            None => Err("bits_per_key: name the filter as well".into()),
            Some(name) => Err(format!("filter: {name:?} is none of ribbon, bloom, none")),
        }
    }

    fn prefix_filter(&self, write: WriteOptions) -> Result<WriteOptions, String> {
        match (self.prefix_delimiter.as_deref(), self.prefix_length) {
            (None, None) => Ok(write),
            (Some([delimiter]), None) => Ok(write.prefix_filter(DelimitedPrefix::new(*delimiter))),
            (None, Some(length)) => Ok(write.prefix_filter(FixedPrefix::new(length))),
            _ => Err("give one of prefix_delimiter, which is one byte, and prefix_length".into()),
        }
    }
}

/// Writes a table at `path`, a file or a URL, from its first key to its last. It appears when it is finished, as by the end of a
/// `with` block, and not at all if that ends by an exception.
///
/// Options: `compression` (`"snappy"`, `"zstd"`, `"zlib"`, `"none"`), its `level`, `block_size` in bytes (4096), `filter`
/// (`"ribbon"`, which LevelDB ignores, `"bloom"`, `"none"`), `bits_per_key` (10), a filter of prefixes by `prefix_delimiter` (one
/// byte) or `prefix_length`, `leveldb=True` for what LevelDB itself would write, `replace=False` to keep a file that is there.
/// `properties` are stored in the table.
#[pyclass(module = "leveltable")]
pub(crate) struct TableBuilder {
    /// `None` once it is finished or given up. Never waited for: a builder has one user at a time.
    builder: Mutex<Option<Builder>>,
    path: PathBuf,
}

impl TableBuilder {
    fn builder(&mut self) -> &mut Option<Builder> {
        self.builder
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&mut self) -> PyResult<Builder> {
        self.builder().take().ok_or_else(|| raise(finished()))
    }
}

fn finished() -> Error {
    let what = "the table is finished, or was given up";
    Error::new(ErrorKind::InvalidState, what)
}

#[pymethods]
impl TableBuilder {
    #[new]
    #[pyo3(signature = (path, *, properties = None, **options))]
    fn new(
        path: PathBuf,
        properties: Option<&Bound<'_, PyDict>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TableBuilder> {
        let mut builder = Builder::create(&path, &Options::of(options)?).map_err(raise)?;
        for (name, value) in properties.into_iter().flatten() {
            let name: String = name.extract()?;
            builder.property(&name, &bytes_of(&value)?).map_err(raise)?;
        }
        Ok(TableBuilder {
            builder: Mutex::new(Some(builder)),
            path,
        })
    }

    /// Adds an entry. Its key comes after the one before.
    fn add(&mut self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key_bytes, value) = (bytes_of(key)?, bytes_of(value)?);
        let builder = self.builder().as_mut();
        let builder = builder.ok_or_else(|| raise(finished()))?;
        // Compressing a block takes some microseconds; an upload may wait for its store.
        let added = match builder {
            Builder::File(builder) => builder.add(&key_bytes, &value),
            Builder::Object(..) => key.py().detach(|| builder.add(&key_bytes, &value)),
        };
        added.map_err(raise)
    }

    fn __setitem__(&mut self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add(key, value)
    }

    /// Adds the entries of a mapping, or of an iterable of pairs, in ascending order.
    fn update(&mut self, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        let entries = match entries.cast::<PyMapping>() {
            Ok(mapping) => mapping.items()?.into_any(),
            Err(_) => entries.clone(),
        };
        for entry in entries.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry?.extract()?;
            self.add(&key, &value)?;
        }
        Ok(())
    }

    /// Ends the table, which appears now, synced to disk. Returns a summary.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let builder = self.take()?;
        let summary = py.detach(|| builder.finish()).map_err(raise)?;
        report::summary(py, &summary)
    }

    /// Gives up. Leaves nothing behind.
    fn abort(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.builder().take() {
            Some(builder) => py.detach(|| builder.abort()).map_err(raise),
            None => Ok(()),
        }
    }

    fn __enter__(this: Py<TableBuilder>) -> Py<TableBuilder> {
        this
    }

    fn __exit__(
        &mut self,
        class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = class.py();
        if !class.is_none() {
            return self.abort(py);
        }
        if self.builder().is_some() {
            self.finish(py)?;
        }
        Ok(())
    }

    fn __repr__(&mut self) -> String {
        let path = self.path.display().to_string();
        let state = match self.builder() {
            Some(Builder::File(builder)) => format!("{} entries so far", builder.entries()),
            Some(Builder::Object(builder, _)) => format!("{} entries so far", builder.entries()),
            None => "finished".to_owned(),
        };
        format!("<leveltable.TableBuilder {path:?}: {state}>")
    }
}
