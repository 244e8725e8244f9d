//! The read path. `open`: footer, index, metaindex, filters. `get`: filter, index, `fetch_block`, find.

mod ahead;
pub(crate) mod cache;
pub(crate) mod cursor;
mod fetch;
pub(crate) mod file;
mod get_many;
mod hints;
pub(crate) mod index;
mod open;
pub(crate) mod options;
mod positional;
mod prefixes;
pub(crate) mod range;
pub(crate) mod source;
pub(crate) mod stats;
pub(crate) mod table;
