//! The read path. `open`: footer, metaindex, index, filters. `get`: filter, index, `load`, find.

mod ahead;
mod approximate;
pub(crate) mod bounds;
pub(crate) mod cache;
mod coalesce;
mod current;
pub(crate) mod cursor;
pub(crate) mod file;
pub(crate) mod filter;
pub(crate) mod get_many;
pub(crate) mod identify;
pub(crate) mod index;
mod index_entries;
mod inputs;
mod map;
pub(crate) mod merge;
pub(crate) mod metaindex;
mod open;
pub(crate) mod options;
mod owners;
mod parts;
mod positional;
mod prefixes;
pub(crate) mod range;
pub(crate) mod recognise;
#[cfg(feature = "async")]
pub mod remote;
pub(crate) mod source;
mod splits;
mod state;
pub(crate) mod stats;
mod store;
pub(crate) mod table;
pub(crate) mod table_cache;
mod weight;
