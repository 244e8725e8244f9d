//! Internals that the fuzz targets in `fuzz/` use. Not part of the public API.
//!
//! Compiled with `--cfg fuzzing` only, which `cargo fuzz` sets.

pub use crate::format::block::Block;
pub use crate::format::block_cursor::BlockCursor;
pub use crate::format::block_search::{SearchPart, find};
pub use crate::format::filter_block::FilterBlockBuilder;
