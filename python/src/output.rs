//! The destination of a table: a file, or a store.

use std::mem;
use std::path::Path;

use leveltable::{Error, ErrorKind, NewFile, Result, Summary, TableBuilder, WriteOptions};
use leveltable_object_store::{ObjectTableBuilder, UploadOptions};
use pyo3::Python;

use crate::runtime::{Runtime, local, locate};

/// The destination of a table.
pub(crate) enum Builder {
    File(TableBuilder<NewFile>),
    Object(ObjectTableBuilder, Runtime),
    /// It is finished or aborted.
    Ended,
}

impl Builder {
    /// Begins the table `name`; an upload does not replace an object unless `replace` is set.
    pub(crate) fn create(
        py: Python<'_>,
        name: &Path,
        options: &WriteOptions,
        replace: bool,
    ) -> Result<Builder> {
        if let Some(file) = local(name)? {
            return options.create(file).map(Builder::File);
        }
        let (runtime, (store, object)) = (Runtime::get(py)?, locate(name)?);
        let upload = UploadOptions::new().replace_existing(replace);
        let upload = upload.named(name.to_string_lossy());
        let builder = upload.create(store, object, options)?;
        Ok(Builder::Object(builder, runtime))
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Builder::File(builder) => builder.add(key, value),
            Builder::Object(builder, runtime) => runtime.wait(builder.add(key, value)),
            Builder::Ended => Err(ended()),
        }
    }

    pub(crate) fn property(&mut self, name: &str, value: &[u8]) -> Result<()> {
        match self {
            Builder::File(builder) => builder.property(name, value),
            Builder::Object(builder, _) => builder.property(name, value),
            Builder::Ended => Err(ended()),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<Summary> {
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
