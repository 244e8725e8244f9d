//! Options for opening a database.

use std::sync::Arc;

use leveltable::{Comparator, OpenOptions};

#[cfg(doc)]
use crate::Database;

/// Options for opening a database.
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
    /// The comparator named in the MANIFEST, the shared cache of 32 MiB, up to 500 open tables, damage is an error.
    pub fn new() -> DatabaseOptions {
        DatabaseOptions::default()
    }

    /// The order of the user keys, if it is not built in: [`BytewiseComparator`](leveltable::BytewiseComparator) and
    /// [`IndexedDbComparator`](crate::IndexedDbComparator) are found by the name in the MANIFEST. Opening a database that names another
    /// order fails. By default, a database in an unknown order can only be walked.
    pub fn comparator(mut self, comparator: impl Comparator + 'static) -> DatabaseOptions {
        self.comparator = Some(Arc::new(comparator));
        self
    }

    /// Options for opening and reading tables: filter policies, caches. The default is [`OpenOptions::new`]. Its comparator is not
    /// used.
    pub fn tables(mut self, options: OpenOptions) -> DatabaseOptions {
        self.tables = options;
        self
    }

    /// Maximum number of open tables, each with its index and filter in memory; at least 1, and 500 by default. Ranges keep their
    /// current tables open.
    pub fn max_open_tables(mut self, most: usize) -> DatabaseOptions {
        self.max_open_tables = Some(most.max(1));
        self
    }

    /// Leaves out damaged records of logs instead of failing; [`Database::recovery`] then says which. Values that they set are
    /// missing, and values that they deleted or replaced reappear. `false` by default.
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
