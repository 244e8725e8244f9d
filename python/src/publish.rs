//! `publish`: makes a set of tables.

use std::path::PathBuf;

use leveltable::{Error, ErrorKind};
use leveltable_object_store::TableSet;
use leveltable_object_store::set::PublishErrorKind;
use pyo3::prelude::*;

use crate::errors::{other, raise};
use crate::runtime::{Runtime, locate};
use crate::table::Reader;

/// Publishes tables as one set, whose manifest is at `manifest`; they must be in or below its directory. Returns the
/// publication's id.
///
/// Readers see the earlier set or this one. `replacing` is the set to replace, as `open` returned it; if another publisher
/// was faster, that is an error. Without it, no set may exist yet. Empty tables are left out.
#[pyfunction]
#[pyo3(signature = (manifest, tables, *, replacing = None))]
pub(crate) fn publish(
    py: Python<'_>,
    manifest: PathBuf,
    tables: Vec<PathBuf>,
    replacing: Option<&Bound<'_, Reader>>,
) -> PyResult<String> {
    let previous = replacing.map(|set| set.get().handle()).transpose()?;
    let version = previous.as_ref().map(|previous| {
        let set = previous.as_set().map(TableSet::version);
        set.ok_or_else(|| other("replacing: expected a set, as open returns it"))
    });
    let version = version.transpose()?;
    let published = Runtime::get(py).and_then(|runtime| {
        let (store, object) = locate(&manifest)?;
        let shards = tables.iter().map(|table| Ok(locate(table)?.1));
        let shards = shards.collect::<leveltable::Result<Vec<_>>>()?;
        let published = leveltable_object_store::publish(store, &object, &shards, version);
        let published = async {
            published.await.map_err(|error| {
                let kind = match error.kind() {
                    PublishErrorKind::Io | PublishErrorKind::Unconfirmed => ErrorKind::Io,
                    _ => ErrorKind::InvalidState,
                };
                Error::new(kind, error.to_string()).at_path(&manifest)
            })
        };
        py.detach(|| runtime.wait(published))
    });
    Ok(published.map_err(raise)?.version.to_string())
}
