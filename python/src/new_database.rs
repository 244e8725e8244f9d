//! `build_database` and `compact_database`.

use std::path::PathBuf;
use std::sync::Arc;

use leveltable::{Comparator, Sorter};
use leveltable_database::sister_crates::built_in_comparator;
use leveltable_database::{CompactOptions, DatabaseBuildOptions, DatabaseBuilder, compact_into};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::builder::{Options, codec};
use crate::errors::raise;
use crate::keys::{Data, Key, bounds};
use crate::report;

/// The built-in comparator with this name.
pub(crate) fn comparator_named(name: &str) -> PyResult<Arc<dyn Comparator>> {
    let order = built_in_comparator(name.as_bytes());
    order.ok_or_else(|| PyValueError::new_err(format!("unknown comparator {name:?}")))
}

/// Builds a database of pairs in ascending order, or of any pairs with `sort`.
#[pyfunction]
pub(crate) fn _build_database<'py>(
    path: PathBuf,
    entries: &Bound<'py, PyAny>,
    sort: bool,
    comparator: &str,
    options: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = entries.py();
    let tables = Options::of(py, Some(options))?.write;
    let order = comparator_named(comparator)?;
    let mut sorter = sort.then(|| Sorter::new().comparator(order.clone()).keep_all(true));
    let options = DatabaseBuildOptions::new().tables(tables).comparator(order);
    let mut builder = DatabaseBuilder::create(path, options).map_err(raise)?;
    for entry in entries.try_iter()? {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry?.extract()?;
        let (key, value): (Data<'_>, Data<'_>) = (key.extract()?, value.extract()?);
        let added = match &mut sorter {
            Some(sorter) => sorter.add(key, value),
            None => builder.put(key, value),
        };
        added.map_err(raise)?;
    }
    let built = py.detach(|| {
        if let Some(sorter) = sorter {
            builder.extend(sorter.finish()?)?;
        }
        builder.finish()
    });
    report::built(py, &built.map_err(raise)?)
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
