//! The read path. `open`: footer, index, metaindex, filters. `get`: filter, index, `fetch_block`, find.

mod ahead;
mod bounded;
pub(crate) mod cache;
pub(crate) mod cursor;
pub(crate) mod ends;
mod fetch;
pub(crate) mod file;
mod get_many;
mod hints;
pub(crate) mod index;
mod map;
pub(crate) mod merge;
mod open;
pub(crate) mod options;
mod owners;
mod positional;
mod prefixes;
pub(crate) mod range;
mod ranking;
pub(crate) mod source;
pub(crate) mod stats;
pub(crate) mod table;
mod tournament;
