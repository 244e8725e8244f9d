//! Tables of each kind and databases, read in the same way.

use std::mem;
use std::ops::Bound as Limit;
use std::path::Path;

use bytes::Bytes;
use leveltable::inspect::Properties;
use leveltable::remote::AsyncTable;
use leveltable::{Error, ErrorKind, OpenOptions, Result, Stats, Table};
use leveltable_database::Database;
use leveltable_object_store::set::SetOptions;
use leveltable_object_store::{ObjectSource, TableSet};

use crate::keys::{Bounds, Ends, half_open};
use crate::runtime::{Place, Runtime};
use crate::walk::{Step, Walk};

/// The property of a table that is the manifest of a set.
const MANIFEST: &str = "leveltable.set";

/// An open table, set or database. Clones are cheap.
#[derive(Clone)]
pub(crate) enum Handle {
    Local(Table),
    Remote(AsyncTable, Runtime),
    Set(TableSet, Runtime),
    Database(Database),
}

impl Handle {
    /// Opens the table or the set at `name`. `runtime` is that of this process.
    pub(crate) fn open(
        name: &Path,
        options: &OpenOptions,
        runtime: impl FnOnce() -> Result<Runtime>,
    ) -> Result<Handle> {
        let refused = |kind, what| Err(Error::new(kind, what).at_path(name));
        let is_manifest =
            |found: Option<&Properties>| found.is_some_and(|found| found.user(MANIFEST).is_some());
        let place = Place::of(name)?;
        if let Place::File(file) = &place {
            if file.join("CURRENT").exists() {
                let what = "a directory of a database: open it with leveltable.Database";
                return refused(ErrorKind::NotATable, what);
            }
            if !file.is_dir() {
                let table = options.open(file)?;
                if is_manifest(table.properties()) {
                    let what = "the manifest of a set, which lies in a directory of manifests: open that directory";
                    return refused(ErrorKind::Unsupported, what);
                }
                return Ok(Handle::Local(table));
            }
        }
        let (runtime, (store, object)) = (runtime()?, place.locate()?);
        let mut missing = None;
        if let Place::Url(_) = place {
            let source = ObjectSource::new(store.clone(), object.clone());
            let source = source.named(name.to_string_lossy());
            match runtime.wait(options.open_async(source, None)) {
                Ok(table) if is_manifest(table.properties()) => {}
                Ok(table) => return Ok(Handle::Remote(table, runtime)),
                // A store that cannot replace on a condition has a directory of manifests there.
                Err(error) if is_not_found(&error) => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        let set = SetOptions::new().tables(options.clone());
        match runtime.wait(set.open(store, &object)) {
            Ok(set) => Ok(Handle::Set(set, runtime)),
            Err(error) if is_not_found(&error) => match missing {
                Some(error) => Err(error),
                None => refused(
                    ErrorKind::NotATable,
                    "a directory without the manifest of a set: open a table in it by its name",
                ),
            },
            Err(error) => Err(error.at_path(name)),
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

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Handle::Local(table) => table.contains_key(key),
            _ => Ok(self.get(key)?.is_some()),
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
            Handle::Local(table) => {
                let mut cursor = Table::merge([table.range(bounds)])?;
                let mut has_begun = false;
                Box::new(move |to| {
                    let moved = if !reverse {
                        cursor.next()?
                    } else if mem::replace(&mut has_begun, true) {
                        cursor.prev()?
                    } else {
                        cursor.seek_to_last()?
                    };
                    if moved {
                        to.push(cursor.key(), cursor.value());
                    }
                    Ok(moved)
                })
            }
            Handle::Database(database) => {
                let mut range = database.range(bounds);
                Box::new(move |to| {
                    let next = if reverse {
                        range.next_back()
                    } else {
                        range.next()
                    };
                    let next = next.transpose()?;
                    let moved = next.map(|(key, value)| to.push(&key, &value));
                    Ok(moved.is_some())
                })
            }
            Handle::Remote(table, runtime) => {
                let (range, runtime) = (table.range(bounds), *runtime);
                let mut range = if reverse { range.reverse() } else { range };
                Box::new(move |to| {
                    let moved = runtime.wait(range.advance())?;
                    if moved {
                        to.push(range.key(), range.value());
                    }
                    Ok(moved)
                })
            }
            Handle::Set(set, runtime) => {
                let (range, runtime) = (set.range(bounds), *runtime);
                let mut range = if reverse { range.reverse() } else { range };
                Box::new(move |to| {
                    let moved = runtime.wait(range.advance())?;
                    if moved {
                        to.push(range.key(), range.value());
                    }
                    Ok(moved)
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
        Ok(bounds.into_iter().map(half_open).collect())
    }

    pub(crate) fn entries(&self) -> Option<u64> {
        match self {
            Handle::Local(table) => table.entries(),
            Handle::Remote(table, _) => table.entries(),
            Handle::Set(set, _) => set.entries(),
            Handle::Database(_) => None,
        }
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

    /// The publication of a set.
    pub(crate) fn set_id(&self) -> Option<String> {
        match self {
            Handle::Set(set, _) => Some(set.version().to_string()),
            _ => None,
        }
    }

    /// Size, entries and filter, for people.
    pub(crate) fn describe(&self) -> String {
        let entries = self.entries();
        let entries = entries.map_or(String::new(), |entries| format!(", {entries} entries"));
        let (bytes, filter) = match self {
            Handle::Local(table) => (table.file_bytes(), table.filter()),
            Handle::Remote(table, _) => (table.file_bytes(), table.filter()),
            Handle::Set(set, _) => {
                let (tables, bytes) = (set.shards().len(), set.shards().iter().map(|it| it.size));
                let bytes: u64 = bytes.sum();
                return format!("a set of {tables} tables, {bytes} bytes{entries}");
            }
            Handle::Database(database) => {
                let (order, last) = (database.comparator(), database.last_sequence());
                return format!("order {order}, last sequence {last}");
            }
        };
        let filter = filter.map_or("no filter".into(), |found| {
            format!("filter {}", found.policy)
        });
        format!("{bytes} bytes{entries}, {filter}")
    }
}

fn is_not_found(error: &Error) -> bool {
    use std::error::Error as _;
    let source = error.source().and_then(|e| e.downcast_ref());
    source.is_some_and(|e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound)
}
