//! Internals that the fuzz targets in `fuzz/` use. Not part of the public API.
//!
//! Compiled with `--cfg fuzzing` only, which `cargo fuzz` sets.

use std::sync::Arc;

use crate::read::open::options::OpenOptions;

pub use crate::comparator::Order;
pub use crate::format::block::Block;
pub use crate::format::block_cursor::BlockCursor;
pub use crate::format::block_search::SearchPart;
pub use crate::format::filter_block::{FilterBlockBuilder, FilterBlockReader};

/// The policies that every reader knows.
pub fn built_in_policies() -> Vec<Arc<dyn crate::filter::FilterPolicy>> {
    OpenOptions::new().known_policies()
}
