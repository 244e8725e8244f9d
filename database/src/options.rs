//! How a database is opened.

use std::sync::Arc;

use leveltable::{Comparator, OpenOptions};

#[cfg(doc)]
use crate::Database;

/// How a database is opened.
///
/// ```no_run
/// use leveltable::{BlockCache, OpenOptions};
/// use leveltable_database::DatabaseOptions;
///
/// let options = DatabaseOptions::new()
///     .tables(OpenOptions::new().cache(BlockCache::new(256 << 20)))
///     .max_open_tables(2000)
///     .skip_damaged(true);
/// let db = options.open_read_only("db")?;
/// for (file, gap) in &db.recovery().gaps {
///     println!("{file}: {} bytes at {}", gap.bytes, gap.offset);
/// }
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct DatabaseOptions {
    pub(crate) comparator: Option<Arc<dyn Comparator>>,
    pub(crate) tables: OpenOptions,
    max_open_tables: Option<usize>,
    pub(crate) skip_damaged: bool,
    pub(crate) skip_held: bool,
}

impl DatabaseOptions {
    /// The comparator that the MANIFEST names, the shared cache of 32 MiB, up to 500 open tables, damage is an error.
    pub fn new() -> DatabaseOptions {
        DatabaseOptions::default()
    }

    /// The order of the user keys, where it is not one that this crate knows: [`BytewiseComparator`](leveltable::BytewiseComparator) and
    /// [`IndexedDbComparator`](crate::IndexedDbComparator) are found by the name in the MANIFEST. Opening a database that names another order fails.
    /// By default, a database in an order that is not known can only be walked.
    pub fn comparator(mut self, comparator: impl Comparator + 'static) -> DatabaseOptions {
        self.comparator = Some(Arc::new(comparator));
        self
    }

    /// How tables are opened and read: filter policies, caches. By default as by [`OpenOptions::new`]. Its comparator is not used.
    pub fn tables(mut self, options: OpenOptions) -> DatabaseOptions {
        self.tables = options;
        self
    }

    /// How many tables may be open at a time, each with its index and filter in memory; at least 1, and 500 by default. Ranges keep
    /// those open that they are in.
    pub fn max_open_tables(mut self, most: usize) -> DatabaseOptions {
        self.max_open_tables = Some(most.max(1));
        self
    }

    /// Leaves out damaged records of logs instead of failing; [`Database::recovery`] then says which. What they set is missing,
    /// and what they deleted or replaced appears again. `false` by default.
    pub fn skip_damaged(mut self, yes: bool) -> DatabaseOptions {
        self.skip_damaged = yes;
        self
    }

    /// Lets [`open_without_manifest`](DatabaseOptions::open_without_manifest) leave out files that another program holds instead of
    /// failing, as LevelDB holds its log and its MANIFEST on Windows. [`Recovery::held`](crate::Recovery::held) names them, and
    /// [`Recovery::unknown`](crate::Recovery::unknown) says what is not known without them. `false` by default.
    pub fn skip_held(mut self, yes: bool) -> DatabaseOptions {
        self.skip_held = yes;
        self
    }

    pub(crate) fn open_tables_limit(&self) -> usize {
        self.max_open_tables.unwrap_or(500)
    }
}
