//! The tables that are open.

use leveltable::{DbTable, Result};
use quick_cache::sync::Cache;

/// Open tables by number, a bounded number of them: those that were used lately.
#[derive(Debug)]
pub(crate) struct TableCache {
    open: Cache<u64, DbTable>,
}

impl TableCache {
    pub(crate) fn new(max_open: usize) -> TableCache {
        TableCache {
            open: Cache::new(max_open),
        }
    }

    /// Returns the table of this number, opened by `open` if it is not. No lock is held meanwhile: two threads may both open it.
    pub(crate) fn get(
        &self,
        number: u64,
        open: impl FnOnce() -> Result<DbTable>,
    ) -> Result<DbTable> {
        if let Some(table) = self.open.get(&number) {
            return Ok(table);
        }
        let table = open()?;
        self.open.insert(number, table.clone());
        Ok(table)
    }
}
