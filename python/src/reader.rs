//! Tables of each kind, read in the same way.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::inspect::Properties;
use leveltable::remote::AsyncTable;
use leveltable::{Error, ErrorKind, OpenOptions, Result, Stats, Table};
use leveltable_object_store::set::SetOptions;
use leveltable_object_store::{ObjectSource, TableSet};

use crate::keys::{Bounds, Ends, half_open};
use crate::runtime::{Place, Runtime};
use crate::walk::{Backward, Walk};

/// The property of a table that is the manifest of a set.
const MANIFEST: &str = "leveltable.set";

/// An open table or set.
#[derive(Clone)]
pub(crate) enum Reader {
    Local(Table),
    Remote(AsyncTable, Runtime),
    Set(TableSet, Runtime),
}

impl Reader {
    /// Opens the table or the set at `name`. `runtime` is that of this process.
    pub(crate) fn open(
        name: &Path,
        options: &OpenOptions,
        runtime: impl FnOnce() -> Result<Runtime>,
    ) -> Result<Reader> {
        let place = Place::of(name)?;
        let is_set = |properties: Option<&Properties>| {
            properties.is_some_and(|properties| properties.user(MANIFEST).is_some())
        };
        let opened = match &place {
            Place::File(file) if file.is_dir() => return open_directory(file, options, runtime),
            Place::File(file) => Reader::Local(options.open(file)?),
            Place::Url(_) => {
                let runtime = runtime()?;
                let (store, object) = place.locate()?;
                let source = ObjectSource::new(store, object).named(name.to_string_lossy());
                match runtime.wait(options.open_async(source, None)) {
                    Ok(table) => Reader::Remote(table, runtime),
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
            Reader::Remote(table, runtime) if is_set(table.properties()) => {
                open_set(&place, options, runtime).map_err(|error| error.at_path(name))
            }
            Reader::Local(table) if is_set(table.properties()) => {
                let what = "the manifest of a set, which lies in a directory of manifests: open that directory";
                Err(Error::new(ErrorKind::Unsupported, what).at_path(name))
            }
            opened => Ok(opened),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self {
            Reader::Local(table) => table.get(key),
            Reader::Remote(table, runtime) => runtime.wait(table.get(key)),
            Reader::Set(set, runtime) => runtime.wait(set.get(key)),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Reader::Local(table) => table.contains_key(key),
            Reader::Remote(table, runtime) => runtime.wait(table.contains_key(key)),
            Reader::Set(..) => Ok(self.get(key)?.is_some()),
        }
    }

    pub(crate) fn get_many<K: AsRef<[u8]> + Sync>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        match self {
            Reader::Local(table) => table.get_many(keys),
            Reader::Remote(table, runtime) => runtime.wait(table.get_many(keys)),
            Reader::Set(set, runtime) => runtime.wait(set.get_many(keys)),
        }
    }

    pub(crate) fn walk(&self, bounds: Bounds, reverse: bool) -> Result<Box<dyn Walk>> {
        Ok(match self {
            Reader::Local(table) => {
                let cursor = Table::merge([table.range(bounds)])?;
                if reverse {
                    Box::new(Backward::new(cursor))
                } else {
                    Box::new(cursor)
                }
            }
            _ if reverse => {
                let what = "a walk of a remote table or a set goes forward: leave out reverse";
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
            Reader::Remote(table, runtime) => Box::new((table.range(bounds), *runtime)),
            Reader::Set(set, runtime) => Box::new((set.range(bounds), *runtime)),
        })
    }

    pub(crate) fn splits(&self, parts: usize) -> Result<Vec<Ends>> {
        let bounds = match self {
            Reader::Local(table) => table.splits(parts),
            Reader::Remote(table, _) => table.splits(parts),
            Reader::Set(set, runtime) => runtime.wait(set.splits(parts))?,
        };
        Ok(bounds.into_iter().map(half_open).collect())
    }

    pub(crate) fn entries(&self) -> Option<u64> {
        match self {
            Reader::Local(table) => table.entries(),
            Reader::Remote(table, _) => table.entries(),
            Reader::Set(set, _) => set.entries(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match self {
            Reader::Local(table) => table.stats(),
            Reader::Remote(table, _) => table.stats(),
            Reader::Set(set, _) => set.stats(),
        }
    }

    /// `None` for a set, and for a table that other programs wrote.
    pub(crate) fn properties(&self) -> Option<&Properties> {
        match self {
            Reader::Local(table) => table.properties(),
            Reader::Remote(table, _) => table.properties(),
            Reader::Set(..) => None,
        }
    }

    /// The publication of a set.
    pub(crate) fn set_id(&self) -> Option<String> {
        match self {
            Reader::Set(set, _) => Some(set.version().to_string()),
            Reader::Local(_) | Reader::Remote(..) => None,
        }
    }

    /// Size, entries and filter, for people.
    pub(crate) fn describe(&self) -> String {
        let (what, bytes, filter) = match self {
            Reader::Local(table) => ("table", table.file_bytes(), table.filter()),
            Reader::Remote(table, _) => ("table", table.file_bytes(), table.filter()),
            Reader::Set(set, _) => {
                let bytes = set.shards().iter().map(|shard| shard.size()).sum();
                ("set", bytes, None)
            }
        };
        let mut text = format!("{what} of {bytes} bytes");
        if let Reader::Set(set, _) = self {
            text += &format!(" in {} tables", set.shards().len());
        }
        if let Some(entries) = self.entries() {
            text += &format!(", {entries} entries");
        }
        match filter {
            Some(filter) => text += &format!(", filter {}", filter.policy),
            None if self.set_id().is_none() => text += ", no filter",
            None => {}
        }
        text
    }
}

/// A directory is a set if manifests lie in it.
fn open_directory(
    directory: &PathBuf,
    options: &OpenOptions,
    runtime: impl FnOnce() -> Result<Runtime>,
) -> Result<Reader> {
    let refused = |what| Err(Error::new(ErrorKind::NotATable, what).at_path(directory));
    if directory.join("CURRENT").exists() {
        return refused("a directory of a database: open it with leveltable.Database");
    }
    match open_set(&Place::File(directory.clone()), options, runtime()?) {
        Err(error) if is_not_found(&error) => {
            refused("a directory without the manifest of a set: open a table in it by its name")
        }
        opened => opened.map_err(|error| error.at_path(directory)),
    }
}

fn open_set(place: &Place, options: &OpenOptions, runtime: Runtime) -> Result<Reader> {
    let (store, manifest) = place.locate()?;
    let set = runtime.wait(
        SetOptions::new()
            .tables(options.clone())
            .open(store, &manifest),
    )?;
    Ok(Reader::Set(set, runtime))
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    use std::error::Error as _;
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::NotFound)
}
