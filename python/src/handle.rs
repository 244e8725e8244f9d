//! Tables of each kind and databases, read in the same way.

use std::ops::Bound as Limit;
use std::path::Path;

use bytes::Bytes;
use leveltable::filter::FilterInfo;
use leveltable::inspect::Properties;
use leveltable::remote::AsyncTable;
use leveltable::{Error, ErrorKind, OpenOptions, Result, Stats, Table};
use leveltable_database::{Database, DatabaseRange};
use leveltable_object_store::set::SetOptions;
use leveltable_object_store::{ObjectSource, TableSet};

use crate::keys::{Bounds, Ends, half_open};
use crate::runtime::{Place, Runtime};
use crate::walk::{Local, Walk};

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
        let place = Place::of(name)?;
        let is_set = |properties: Option<&Properties>| {
            properties.is_some_and(|properties| properties.user(MANIFEST).is_some())
        };
        let opened = match &place {
            Place::File(file) if file.is_dir() => return open_directory(file, options, runtime),
            Place::File(file) => Handle::Local(options.open(file)?),
            Place::Url(_) => {
                let runtime = runtime()?;
                let (store, object) = place.locate()?;
                let source = ObjectSource::new(store, object).named(name.to_string_lossy());
                match runtime.wait(options.open_async(source, None)) {
                    Ok(table) => Handle::Remote(table, runtime),
                    Err(error) if is_not_found(&error) => {
                        // A store that cannot replace on a condition has a directory of manifests there.
                        return open_set(&place, options, runtime).map_err(|other| match other {
                            other if is_not_found(&other) => error,
                            other => other.at_path(name),
                        });
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        match opened {
            Handle::Remote(table, runtime) if is_set(table.properties()) => {
                open_set(&place, options, runtime).map_err(|error| error.at_path(name))
            }
            Handle::Local(table) if is_set(table.properties()) => {
                let what = "the manifest of a set, which lies in a directory of manifests: open that directory";
                Err(Error::new(ErrorKind::Unsupported, what).at_path(name))
            }
            opened => Ok(opened),
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
            Handle::Remote(table, runtime) => runtime.wait(table.contains_key(key)),
            Handle::Set(..) | Handle::Database(_) => Ok(self.get(key)?.is_some()),
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

    pub(crate) fn walk(&self, bounds: Bounds, reverse: bool) -> Result<Box<dyn Walk>> {
        Ok(match self {
            Handle::Local(table) => {
                let cursor = Table::merge([table.range(bounds)])?;
                Box::new(Local {
                    cursor,
                    reverse,
                    has_begun: false,
                })
            }
            Handle::Database(database) => Box::new(DatabaseWalk {
                range: database.range(bounds),
                reverse,
                entry: Default::default(),
            }),
            _ if reverse => {
                let what = "a walk of a remote table or a set goes forward: leave out reverse";
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
            Handle::Remote(table, runtime) => Box::new((table.range(bounds), *runtime)),
            Handle::Set(set, runtime) => Box::new((set.range(bounds), *runtime)),
        })
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
        let entries = match self.entries() {
            Some(entries) => format!(", {entries} entries"),
            None => String::new(),
        };
        let table = |bytes, filter: Option<FilterInfo>| {
            let filter = filter.map_or("no filter".into(), |filter| {
                format!("filter {}", filter.policy)
            });
            format!("{bytes} bytes{entries}, {filter}")
        };
        match self {
            Handle::Local(found) => table(found.file_bytes(), found.filter()),
            Handle::Remote(found, _) => table(found.file_bytes(), found.filter()),
            Handle::Set(set, _) => {
                let shards = set.shards();
                let bytes: u64 = shards.iter().map(|shard| shard.size).sum();
                format!("a set of {} tables, {bytes} bytes{entries}", shards.len())
            }
            Handle::Database(database) => {
                let (order, last) = (database.comparator(), database.last_sequence());
                format!("order {order}, last sequence {last}")
            }
        }
    }
}

/// The live entries of a database.
struct DatabaseWalk {
    range: DatabaseRange,
    reverse: bool,
    entry: (Bytes, Bytes),
}

impl Walk for DatabaseWalk {
    fn advance(&mut self) -> Result<bool> {
        let next = if self.reverse {
            self.range.next_back()
        } else {
            self.range.next()
        };
        let next = next.transpose()?;
        let found = next.is_some();
        self.entry = next.unwrap_or_default();
        Ok(found)
    }

    fn key(&self) -> &[u8] {
        &self.entry.0
    }

    fn value(&self) -> &[u8] {
        &self.entry.1
    }
}

/// A directory is a set if manifests lie in it.
fn open_directory(
    directory: &Path,
    options: &OpenOptions,
    runtime: impl FnOnce() -> Result<Runtime>,
) -> Result<Handle> {
    let refused = |what| Err(Error::new(ErrorKind::NotATable, what).at_path(directory));
    if directory.join("CURRENT").exists() {
        return refused("a directory of a database: open it with leveltable.Database");
    }
    match open_set(&Place::File(directory.to_path_buf()), options, runtime()?) {
        Err(error) if is_not_found(&error) => {
            refused("a directory without the manifest of a set: open a table in it by its name")
        }
        opened => opened.map_err(|error| error.at_path(directory)),
    }
}

fn open_set(place: &Place, options: &OpenOptions, runtime: Runtime) -> Result<Handle> {
    let (store, manifest) = place.locate()?;
    let set = runtime.wait(
        SetOptions::new()
            .tables(options.clone())
            .open(store, &manifest),
    )?;
    Ok(Handle::Set(set, runtime))
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    use std::error::Error as _;
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::NotFound)
}
