//! How a database is opened, by its [`DatabaseOptions`](crate::DatabaseOptions).

use std::sync::Arc;

use leveltable::{Comparator, OpenOptions};

/// The options' values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) comparator: Option<Arc<dyn Comparator>>,
    pub(crate) tables: OpenOptions,
    pub(crate) max_open_tables: Option<usize>,
    pub(crate) skip_damaged: bool,
    pub(crate) skip_held: bool,
}

impl Settings {
    pub(crate) fn open_tables_limit(&self) -> usize {
        self.max_open_tables.unwrap_or(500)
    }
}
