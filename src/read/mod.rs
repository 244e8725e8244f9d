//! Reading tables. A room imports only from those above it in this list:
//!
//! - `source`: bytes at offsets, from a file, memory or elsewhere, and their errors with section and offset;
//! - `parts`: index, filters and order. They say which block may hold a key, or which parts are missing, and never read;
//! - `store`: a checked data block, from memory, the cache or the file;
//! - `table`: an open table, which uses `parts` and `store`;
//! - `walk`: cursors, ranges and merges;
//! - `open`: opening a table;
//! - `remote`: tables over a network.
//!
//! A lookup, [`Table::get`](crate::Table::get), has these steps:
//!
//! 1. `Opened::candidate`: which block may hold the key?
//! 2. `TableFilter::ask`: the filter comes first and rejects most absent keys; but if the previous key passed, or filters are per
//!    window, the index is searched first, and the block prefetched;
//! 3. `Index::seek`: the tops select the piece of the index, and the piece selects the block;
//! 4. `Opened::ask`: if a part is missing, it is read and admitted, and the question is asked again;
//! 5. `BlockStore::load`: the block in memory, or of `CachedBlocks`, or `TableFile::read_frame` and `admit`;
//! 6. `check_frame`: checksum, codec, structure, and at the first use the order of its keys;
//! 7. `find_value`: the restarts, then the entries.

pub(crate) mod open;
pub(crate) mod parts;
#[cfg(feature = "async")]
pub mod remote;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod walk;
