//! Reading tables. A room imports only from those before it in this list:
//!
//! - `source`: bytes at offsets, from a file, memory or elsewhere, and their errors with section and offset;
//! - `parts`: index, filters and order. They answer which block may hold a key, or name what is missing to tell, and never read;
//! - `store`: a checked data block, from memory, the cache or the file;
//! - `table`: an open table, which drives the two;
//! - `walk`: cursors, ranges and merges;
//! - `open`: opening a table;
//! - `remote`: tables over a network.
//!
//! A lookup, [`Table::get`](crate::Table::get), has these steps:
//!
//! 1. `Table::candidate`: which block may hold the key?
//! 2. `TableFilter::ask`: the filter, first, rejects most absent keys; but if the last key passed, or filters are per window, the
//!    block is looked for first and prefetched;
//! 3. `Index::seek`: the tops tell the piece of the index, and the piece tells the block;
//! 4. `Opened::ask`: where a part is missing to tell, it is read and admitted, and the question is asked again;
//! 5. `BlockStore::load`: the block in memory, or `cached`, or `TableFile::read_frame` and `admit`;
//! 6. `check_frame`: checksum, codec, form, and at the first use the order of its keys;
//! 7. `find_value`: the restarts, then the entries.

pub(crate) mod open;
pub(crate) mod parts;
#[cfg(feature = "async")]
pub mod remote;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod walk;
