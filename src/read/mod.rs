//! The read path. `open`: footer, metaindex, index, filters. `get`: filter, index, `fetch_block`, find.

mod ahead;
pub(crate) mod cache;
pub(crate) mod cursor;
pub(crate) mod ends;
mod fetch;
pub(crate) mod file;
mod get_many;
mod hints;
pub(crate) mod index;
pub(crate) mod input;
mod map;
pub(crate) mod merge;
mod metaindex;
mod open;
pub(crate) mod options;
mod order_check;
mod owners;
mod positional;
mod prefixes;
pub(crate) mod range;
#[cfg(feature = "async")]
pub mod remote;
pub(crate) mod sorted;
pub(crate) mod source;
mod splits;
pub(crate) mod stats;
pub(crate) mod table;
