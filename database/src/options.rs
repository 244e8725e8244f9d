//! How a database is opened.

use std::path::Path;
use std::sync::Arc;

use leveltable::{BytewiseComparator, Comparator, Error, ErrorKind, OpenOptions, Result};

use crate::database::Database;
use crate::indexeddb::IndexedDbComparator;
use crate::state::State;

/// How a database is opened.
///
/// ```no_run
/// use leveltable_database::DatabaseOptions;
///
/// let db = DatabaseOptions::new().skip_damaged(true).open_read_only("db")?;
/// for left_out in &db.recovery().gaps {
///     println!("{}: {} bytes at {}", left_out.file, left_out.gap.bytes, left_out.gap.offset);
/// }
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct DatabaseOptions {
    comparator: Option<Arc<dyn Comparator>>,
    pub(crate) tables: OpenOptions,
    /// 500 by default.
    pub(crate) max_open_tables: Option<usize>,
    pub(crate) skip_damaged: bool,
}

impl DatabaseOptions {
    /// The comparator that the MANIFEST names, the shared cache of 32 MiB, up to 500 open tables, damage is an error.
    pub fn new() -> DatabaseOptions {
        DatabaseOptions::default()
    }

    /// The order of the user keys, where it is not one that this crate knows: [`BytewiseComparator`] and
    /// [`IndexedDbComparator`] are found by the name in the MANIFEST. Opening a database that names another order fails.
    pub fn comparator(mut self, comparator: impl Comparator + 'static) -> DatabaseOptions {
        self.comparator = Some(Arc::new(comparator));
        self
    }

    /// How tables are opened and read: filter policies, caches, checksums. Its comparator is not used.
    pub fn tables(mut self, options: OpenOptions) -> DatabaseOptions {
        self.tables = options;
        self
    }

    /// How many tables may be open at a time, each with its index and filter in memory; at least 1. Ranges keep those open that
    /// they are in.
    pub fn max_open_tables(mut self, most: usize) -> DatabaseOptions {
        self.max_open_tables = Some(most.max(1));
        self
    }

    /// Leaves out damaged records of logs instead of failing; [`Database::recovery`] then says which. What they set is missing,
    /// and what they deleted or replaced appears again.
    pub fn skip_damaged(mut self, yes: bool) -> DatabaseOptions {
        self.skip_damaged = yes;
        self
    }

    /// Opens the database in the directory `dir`; see [`Database::open_read_only`].
    ///
    /// # Errors
    ///
    /// As [`Database::open_read_only`], and [`ErrorKind::Comparator`] if the MANIFEST names another order than
    /// [`comparator`](DatabaseOptions::comparator).
    pub fn open_read_only(&self, dir: impl AsRef<Path>) -> Result<Database> {
        let state = State::read(dir.as_ref(), self, None)?;
        Ok(Database::new(dir.as_ref(), self, state))
    }

    /// Reads all tables and logs in `dir` as if a MANIFEST listed them, the tables in level 0: for a directory whose MANIFEST
    /// is lost or damaged. Opens every table.
    ///
    /// The newest version of each key wins, by sequence number. Files that the lost MANIFEST no longer listed count as well, so
    /// keys may appear that were deleted; [`Recovery::without_manifest`](crate::Recovery::without_manifest) is set. The order is
    /// bytewise unless [`comparator`](DatabaseOptions::comparator) says otherwise. With
    /// [`skip_damaged`](DatabaseOptions::skip_damaged), tables that cannot be opened are left out.
    ///
    /// # Errors
    ///
    /// Those of listing the directory, of reading a log, and of opening a table.
    pub fn open_without_manifest(&self, dir: impl AsRef<Path>) -> Result<Database> {
        let state = State::read_without_manifest(dir.as_ref(), self)?;
        Ok(Database::new(dir.as_ref(), self, state))
    }

    /// The name of the order, and the order by the name in the MANIFEST; `None` if it is not known.
    pub(crate) fn order(
        &self,
        stated: Option<&[u8]>,
    ) -> Result<(String, Option<Arc<dyn Comparator>>)> {
        let bytewise: Arc<dyn Comparator> = Arc::new(BytewiseComparator);
        let default = self.comparator.as_ref().unwrap_or(&bytewise);
        let name = stated.map_or(default.name().into(), String::from_utf8_lossy);
        if self.comparator.is_some() && default.name() != name {
            let given = default.name();
            let message =
                format!("the MANIFEST names the comparator {name:?}, and the options {given:?}");
            return Err(Error::new(ErrorKind::Comparator, message));
        }
        let known = [default.clone(), Arc::new(IndexedDbComparator)];
        let order = known.into_iter().find(|known| known.name() == name);
        Ok((name.into_owned(), order))
    }

    /// How tables of a database in this order are opened.
    pub(crate) fn table_options(&self, order: Option<&Arc<dyn Comparator>>) -> OpenOptions {
        let options = self.tables.clone();
        let Some(order) = order else {
            return options.stored_order();
        };
        // Programs that do not know an order are known to have opened databases under its name, and to have written tables in
        // bytewise order there. Nobody does that to bytewise databases.
        let is_bytewise = order.name() == BytewiseComparator.name();
        let options = options.comparator(order.clone());
        if is_bytewise {
            options
        } else {
            options.check_order(true)
        }
    }
}
