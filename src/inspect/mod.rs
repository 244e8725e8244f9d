//! What a table says of itself and of its filters, for tools that show a table rather than use it.

use crate::error::Result;
use crate::filter::FilterLayout;
pub use crate::format::properties::Properties;
use crate::read::filter::TableFilter;
use crate::read::table::Table;

impl Table {
    /// The layout of the filter block in use; `None` without one. Reads the filter, if it was not needed before.
    ///
    /// # Errors
    ///
    /// Those of reading the filter.
    pub fn filter_layout(&self) -> Result<Option<FilterLayout>> {
        Ok(self.whole_filter()?.and_then(TableFilter::layout))
    }
}
