//! Tables of each kind and databases, read in the same way.

use std::ops::Bound as Limit;
use std::path::Path;

use bytes::Bytes;
use leveltable::format::Properties;
use leveltable::remote::AsyncTable;
use leveltable::{Error, ErrorKind, OpenOptions, Result, Stats, Table};
use leveltable_database::Database;
use leveltable_object_store::set::SetOptions;
use leveltable_object_store::{ObjectSource, TableSet};
use pyo3::Python;

use crate::keys::{Bounds, Ends, ends};
use crate::runtime::{Runtime, local, locate};
use crate::walk::{Step, Walk, step_of};

/// The property of a table that is the manifest of a set.
const MANIFEST: &str = "leveltable.set";

/// The size in bytes, the entries, the filter; of a set its publication and the number of tables.
pub(crate) type About = (u64, Option<u64>, Option<String>, Option<(String, usize)>);

/// An open table, set or database. Clones are cheap.
#[derive(Clone)]
pub(crate) enum Handle {
    Local(Table),
    Remote(AsyncTable, Runtime),
    Set(TableSet, Runtime),
    Database(Database),
}

impl Handle {
    /// Opens the table or the set at `name`. Called without the interpreter's lock.
    pub(crate) fn open(name: &Path, options: &OpenOptions) -> Result<Handle> {
        let refused = |kind, what| Error::new(kind, what).at_path(name);
        let is_manifest =
            |found: Option<&Properties>| found.is_some_and(|found| found.user(MANIFEST).is_some());
        let file = local(name)?;
        if let Some(file) = file.as_ref().filter(|file| !file.is_dir()) {
            let table = options.open(file)?;
            if is_manifest(table.properties()) {
                let what = "the manifest of a set, which lies in a directory of manifests: open that directory";
                return Err(refused(ErrorKind::Unsupported, what));
            }
            return Ok(Handle::Local(table));
        }
        let (runtime, (store, object)) = (Python::attach(Runtime::get)?, locate(name)?);
        let set = SetOptions::new().tables(options.clone());
        let open_set = |missing: Option<Error>| match runtime.wait(set.open(store.clone(), &object))
        {
            Ok(set) => Ok(Handle::Set(set, runtime)),
            Err(error) if is_not_found(&error) => Err(missing.unwrap_or(error)),
            Err(error) => Err(error.at_path(name)),
        };
        if file.is_some() {
            let what = "a directory without the manifest of a set: open a table in it by its name, or a database by \
                        leveltable.Database";
            return open_set(Some(refused(ErrorKind::NotATable, what)));
        }
        let source = ObjectSource::new(store.clone(), object.clone());
        let source = source.named(name.to_string_lossy());
        match runtime.wait(options.open_async(source, None)) {
            Ok(table) if !is_manifest(table.properties()) => Ok(Handle::Remote(table, runtime)),
            // A store that cannot replace on a condition has a directory of manifests there.
            Err(error) if !is_not_found(&error) => Err(error),
            found => open_set(found.err()),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self {
            Handle::Local(table) => table.get(key),
            Handle::Remote(table, runtime) => runtime.wait(table.get(key)),
            Handle::Set(set, runtime) => runtime.wait(set.get(key)),
            Handle::Database(database) => database.get(key),
        }
    }

    pub(crate) fn get_many<K: AsRef<[u8]> + Sync>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        match self {
            Handle::Local(table) => table.get_many(keys),
            Handle::Remote(table, runtime) => runtime.wait(table.get_many(keys)),
            Handle::Set(set, runtime) => runtime.wait(set.get_many(keys)),
            Handle::Database(database) => database.get_many(keys),
        }
    }

    pub(crate) fn walk(&self, bounds: Bounds, reverse: bool) -> Result<Walk> {
        let step: Step = match self {
            Handle::Local(table) if reverse => step_of(table.range(bounds).rev()),
            Handle::Local(table) => {
                // Lends keys, which the range would copy.
                let mut cursor = Table::merge([table.range(bounds)])?;
                Box::new(move |chunk| {
                    while chunk.has_room() && cursor.next()? {
                        chunk.push(cursor.key(), cursor.value());
                    }
                    Ok(())
                })
            }
            Handle::Database(database) if reverse => step_of(database.range(bounds).rev()),
            Handle::Database(database) => {
                let mut range = database.range(bounds);
                Box::new(move |chunk| {
                    while chunk.has_room() && range.advance()? {
                        chunk.push(range.key(), range.value());
                    }
                    Ok(())
                })
            }
            Handle::Remote(table, runtime) => {
                let (range, runtime) = (table.range(bounds), *runtime);
                let mut range = if reverse { range.reverse() } else { range };
                Box::new(move |chunk| {
                    runtime.wait(async {
                        while chunk.has_room() && range.advance().await? {
                            chunk.push(range.key(), range.value());
                        }
                        Ok(())
                    })
                })
            }
            Handle::Set(set, runtime) => {
                let (range, runtime) = (set.range(bounds), *runtime);
                let mut range = if reverse { range.reverse() } else { range };
                Box::new(move |chunk| {
                    runtime.wait(async {
                        while chunk.has_room() && range.advance().await? {
                            chunk.push(range.key(), range.value());
                        }
                        Ok(())
                    })
                })
            }
        };
        Ok(Walk::new(step))
    }

    /// Bounds of up to `parts` parts of about the same size.
    pub(crate) fn splits(&self, parts: usize) -> Result<Vec<Ends>> {
        let bounds = match self {
            Handle::Local(table) => table.splits(parts)?,
            Handle::Remote(table, runtime) => runtime.wait(table.splits(parts))?,
            Handle::Set(set, runtime) => runtime.wait(set.splits(parts))?,
            Handle::Database(_) => vec![(Limit::Unbounded, Limit::Unbounded)],
        };
        Ok(bounds.into_iter().map(ends).collect())
    }

    /// `None` for a database, whose tables come and go.
    pub(crate) fn stats(&self) -> Option<Stats> {
        match self {
            Handle::Local(table) => Some(table.stats()),
            Handle::Remote(table, _) => Some(table.stats()),
            Handle::Set(set, _) => Some(set.stats()),
            Handle::Database(_) => None,
        }
    }

    /// `None` for all but tables, and for a table that other programs wrote.
    pub(crate) fn properties(&self) -> Option<&Properties> {
        match self {
            Handle::Local(table) => table.properties(),
            Handle::Remote(table, _) => table.properties(),
            Handle::Set(..) | Handle::Database(_) => None,
        }
    }

    pub(crate) fn about(&self) -> About {
        let (bytes, entries, filter, set) = match self {
            Handle::Local(table) => (table.file_bytes(), table.entries(), table.filter(), None),
            Handle::Remote(table, _) => (table.file_bytes(), table.entries(), table.filter(), None),
            Handle::Set(set, _) => {
                let sizes = set.shards().iter().map(|shard| shard.size);
                let publication = (set.version().to_string(), sizes.len());
                (sizes.sum(), set.entries(), None, Some(publication))
            }
            Handle::Database(_) => (0, None, None, None),
        };
        (bytes, entries, filter.map(|it| it.policy.clone()), set)
    }
}

fn is_not_found(error: &Error) -> bool {
    let cause = error.io_error();
    cause.is_some_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}
