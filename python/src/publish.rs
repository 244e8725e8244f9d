//! `publish`: tables become a set.

use std::path::PathBuf;

use leveltable_object_store::set::PublishErrorKind;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::errors::{other, raise};
use crate::handle::Handle;
use crate::runtime::{Place, Runtime};
use crate::table::Reader;

/// Publishes tables as one set, whose manifest is at `manifest`; they lie beside or below it. Returns the publication's id.
///
/// Readers see the set that was there before, or this one. `replacing` is the set that is replaced, as `open` returned it; if
/// another publisher was faster, that is an error. Without it, there must be no set yet. Empty tables are left out.
#[pyfunction]
#[pyo3(signature = (manifest, tables, *, replacing = None))]
pub(crate) fn publish(
    py: Python<'_>,
    manifest: PathBuf,
    tables: Vec<PathBuf>,
    replacing: Option<&Bound<'_, Reader>>,
) -> PyResult<String> {
    let previous = match replacing.map(|set| set.get().handle()).transpose()? {
        None => None,
        Some(Handle::Set(set, _)) => Some(set),
        Some(_) => return Err(other("replacing: expected a set, as open returns it")),
    };
    let locate = |name: &PathBuf| {
        let place = Place::of(name).and_then(|place| place.locate());
        place.map_err(raise)
    };
    let (store, object) = locate(&manifest)?;
    let shards = tables.iter().map(|table| Ok(locate(table)?.1));
    let shards = shards.collect::<PyResult<Vec<_>>>()?;
    let runtime = Runtime::get().map_err(raise)?;
    let version = previous.as_ref().map(|set| set.version());
    let publishing = leveltable_object_store::publish(store, &object, &shards, version);
    let published = py.detach(|| runtime.wait(async { Ok(publishing.await) }));
    let published = published.map_err(raise)?;
    let published = published.map_err(|error| {
        let message = format!("{}: {error}", manifest.display());
        match error.kind() {
            PublishErrorKind::Io | PublishErrorKind::Unconfirmed => PyOSError::new_err(message),
            _ => other(message),
        }
    })?;
    Ok(published.version.to_string())
}
