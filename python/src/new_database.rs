//! `build_database` and `compact_database`.

use std::path::PathBuf;

use leveltable_database::{CompactOptions, DatabaseBuildOptions, DatabaseBuilder, compact_into};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::builder::{Options, codec};
use crate::errors::raise;
use crate::keys::{Data, Key, bounds};
use crate::report;

/// Builds a database of pairs in ascending order.
#[pyfunction]
pub(crate) fn _build_database<'py>(
    path: PathBuf,
    entries: &Bound<'py, PyAny>,
    options: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = entries.py();
    let tables = Options::of(py, Some(options))?.write;
    let options = DatabaseBuildOptions::new().tables(tables);
    let mut builder = DatabaseBuilder::create(path, options).map_err(raise)?;
    for entry in entries.try_iter()? {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry?.extract()?;
        let (key, value): (Data<'_>, Data<'_>) = (key.extract()?, value.extract()?);
        builder.put(key, value).map_err(raise)?;
    }
    let built = py.detach(|| builder.finish()).map_err(raise)?;
    report::built(py, &built)
}

/// Writes the live entries of a database to a new one, with changes, which are pairs of keys and values or `None`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
pub(crate) fn _compact_database<'py>(
    path: PathBuf,
    new: PathBuf,
    start: Key<'_>,
    stop: Key<'_>,
    prefix: Key<'_>,
    changes: &Bound<'py, PyAny>,
    compression: Option<&str>,
    level: Option<i32>,
    ignore_space: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = changes.py();
    let mut pairs = Vec::new();
    for change in changes.try_iter()? {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = change?.extract()?;
        let (key, value): (Data<'_>, Key<'_>) = (key.extract()?, value.extract()?);
        let value = value.map(|value| value.as_ref().to_vec());
        pairs.push((key.as_ref().to_vec(), value));
    }
    let bounds = bounds([start, stop, prefix]);
    let codec = codec(compression, level)?;
    let compacted = py.detach(|| {
        let mut options = CompactOptions::new().ignore_space(ignore_space);
        options = options.range(bounds).changes(pairs);
        if let Some(codec) = codec {
            options = options.compression(codec);
        }
        compact_into(path, new, options)
    });
    report::compacted(py, &compacted.map_err(raise)?)
}
