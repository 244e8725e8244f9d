//! Tables of each kind and databases, behind one interface.

use std::ops::Bound as Limit;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::filter::FilterEntry;
use leveltable::format::Properties;
use leveltable::remote::AsyncTable;
use leveltable::{
    BytewiseComparator, Comparator as _, Error, ErrorKind, OpenOptions, Result, Stats, Table,
};
use leveltable_database::Database;
use leveltable_object_store::set::SetOptions;
use leveltable_object_store::{ObjectSource, TableSet};
use pyo3::{IntoPyObject, Python};

use crate::keys::Bounds;
use crate::runtime::{Runtime, local, locate};
use crate::walk::{Step, step_of};

/// The property that marks a table as the manifest of a set.
const MANIFEST: &str = "leveltable.set";

/// The facts that `Table` prints about itself, and that `len` and `set_id` return.
#[derive(Default, IntoPyObject)]
pub(crate) struct About {
    bytes: u64,
    entries: Option<u64>,
    filter: Option<String>,
    /// For a set, its publication and the number of its tables.
    set_id: Option<String>,
    tables: Option<usize>,
}

/// An open table, set or database.
pub(crate) type Handle = Arc<dyn Entries>;

/// The common interface of tables, sets and databases. Methods that may read are called without the interpreter's lock.
pub(crate) trait Entries: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>>;

    /// The entries within the bounds.
    fn step(&self, bounds: Bounds, reverse: bool) -> Result<Step>;

    /// Bounds of up to `parts` parts of similar size.
    fn splits(&self, parts: usize) -> Result<Vec<(Limit<Bytes>, Limit<Bytes>)>>;

    /// Fails if the keys of a prefix need not be adjacent.
    fn check_prefix(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    /// `None` for a database, whose tables change.
    fn stats(&self) -> Option<Stats> {
        None
    }

    /// `None` for anything but a table, and for a table that another program wrote.
    fn properties(&self) -> Option<&Properties> {
        None
    }

    fn is_current(&self) -> Result<bool> {
        let message = "only the file of a table tells whether it has changed";
        Err(Error::new(ErrorKind::InvalidState, message))
    }

    fn about(&self) -> About {
        About::default()
    }

    fn as_set(&self) -> Option<&TableSet> {
        None
    }

    fn as_database(&self) -> Option<&Database> {
        None
    }
}

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
        return Ok(Arc::new(table));
    }
    let (runtime, (store, object)) = (Python::attach(Runtime::get)?, locate(name)?);
    let set = SetOptions::new().tables(options.clone());
    let open_set = |missing: Option<Error>| match runtime.wait(set.open(store.clone(), &object)) {
        Ok(set) => Ok(Arc::new(Remote(set, runtime)) as Handle),
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
        Ok(table) if !is_manifest(table.properties()) => Ok(Arc::new(Remote(table, runtime))),
        // In a store that cannot replace on a condition, there is a directory of manifests.
        Err(error) if !is_not_found(&error) => Err(error),
        found => open_set(found.err()),
    }
}

/// An object in a store, and the threads of its requests.
struct Remote<T>(T, Runtime);

fn about_table(bytes: u64, entries: Option<u64>, filter: Option<&FilterEntry>) -> About {
    About {
        bytes,
        entries,
        filter: filter.map(|it| it.policy.clone()),
        ..About::default()
    }
}

impl Entries for Table {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        self.get_many(keys)
    }

    fn step(&self, bounds: Bounds, reverse: bool) -> Result<Step> {
        if reverse {
            return Ok(step_of(self.range(bounds).rev()));
        }
        // Lends keys, where the range would copy them.
        let mut cursor = Table::merge([self.range(bounds)])?;
        Ok(Box::new(move |chunk| {
            while chunk.has_room() && cursor.next()? {
                chunk.push(cursor.key(), cursor.value());
            }
            Ok(())
        }))
    }

    fn splits(&self, parts: usize) -> Result<Vec<(Limit<Bytes>, Limit<Bytes>)>> {
        self.splits(parts)
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.stats())
    }

    fn properties(&self) -> Option<&Properties> {
        self.properties()
    }

    fn is_current(&self) -> Result<bool> {
        self.is_current()
    }

    fn about(&self) -> About {
        about_table(self.file_bytes(), self.entries(), self.filter())
    }
}

/// Implements [`Entries`] for objects in a store. Tables and sets have the same methods, but no trait for them.
macro_rules! remote {
    ($kind:ty, { $($own:tt)* }) => {
        impl Entries for Remote<$kind> {
            fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
                self.1.wait(self.0.get(key))
            }

            fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
                self.1.wait(self.0.get_many(keys))
            }

            fn step(&self, bounds: Bounds, reverse: bool) -> Result<Step> {
                let (range, runtime) = (self.0.range(bounds), self.1);
                let mut range = if reverse { range.reverse() } else { range };
                Ok(Box::new(move |chunk| {
                    runtime.wait(async {
                        while chunk.has_room() && range.advance().await? {
                            chunk.push(range.key(), range.value());
                        }
                        Ok(())
                    })
                }))
            }

            fn splits(&self, parts: usize) -> Result<Vec<(Limit<Bytes>, Limit<Bytes>)>> {
                self.1.wait(self.0.splits(parts))
            }

            fn stats(&self) -> Option<Stats> {
                Some(self.0.stats())
            }

            $($own)*
        }
    };
}

remote!(AsyncTable, {
    fn properties(&self) -> Option<&Properties> {
        self.0.properties()
    }

    fn about(&self) -> About {
        about_table(self.0.file_bytes(), self.0.entries(), self.0.filter())
    }
});

remote!(TableSet, {
    fn about(&self) -> About {
        let shards = self.0.shards();
        About {
            bytes: shards.iter().map(|shard| shard.size).sum(),
            entries: self.0.entries(),
            filter: None,
            set_id: Some(self.0.version().to_string()),
            tables: Some(shards.len()),
        }
    }

    fn as_set(&self) -> Option<&TableSet> {
        Some(&self.0)
    }
});

impl Entries for Database {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        self.get_many(keys)
    }

    fn step(&self, bounds: Bounds, reverse: bool) -> Result<Step> {
        let mut range = self.range(bounds);
        if reverse {
            return Ok(step_of(range.rev()));
        }
        Ok(Box::new(move |chunk| {
            while chunk.has_room() && range.advance()? {
                chunk.push(range.key(), range.value());
            }
            Ok(())
        }))
    }

    fn splits(&self, _: usize) -> Result<Vec<(Limit<Bytes>, Limit<Bytes>)>> {
        Ok(vec![(Limit::Unbounded, Limit::Unbounded)])
    }

    /// Only in bytewise order, the keys of a prefix are always adjacent. In another order, a range of them returns an
    /// error.
    fn check_prefix(&self, prefix: &[u8]) -> Result<()> {
        if self.comparator() == BytewiseComparator.name() {
            return Ok(());
        }
        self.prefix(prefix).next().transpose().map(drop)
    }

    fn as_database(&self) -> Option<&Database> {
        Some(self)
    }
}

fn is_not_found(error: &Error) -> bool {
    let cause = error.io_error();
    cause.is_some_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}
