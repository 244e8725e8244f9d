//! Reads and writes LevelDB's sorted table files (`.ldb`, `.sst`), and asks a filter before it asks the disk.
//!
//! A *table* is an immutable file of key-value entries, sorted by key. It is written once, from the first key to the last.
//! Databases keep their data in such files. An application can publish a large sorted map as one.
//!
//! ```
//! use leveltable::{Table, TableBuilder};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("fruit.ldb");
//! let mut builder = TableBuilder::create(&path)?;
//! builder.add("apple", "red")?; // keys in ascending order
//! builder.add("banana", "yellow")?;
//! builder.finish()?; // the file appears now: complete, and synced to disk
//!
//! let table = Table::open(&path)?;
//! assert_eq!(table.get("apple")?.as_deref(), Some(&b"red"[..]));
//! assert_eq!(table.get("cherry")?, None); // the filter excludes it: no block is read
//! for entry in table.range("b"..) {
//!     let (key, value) = entry?;
//!     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # Ok::<(), leveltable::Error>(())
//! ```
//!
//! # Where to find what
//!
//! | | |
//! |---|---|
//! | write a table | [`TableBuilder`]; [`WriteOptions`] for block size, codec, filter and order |
//! | look keys up | [`Table`]: [`get`](Table::get), [`get_with`](Table::get_with), [`get_many`](Table::get_many), [`may_contain`](Table::may_contain) |
//! | read in order | [`Table::range`], [`Table::prefix`], [`Cursor`]: both ways |
//! | see how large a range is, and find the middle of a table | [`Table::approximate_bytes`], [`Table::key_at_fraction`], [`Table::splits`] |
//! | read several tables as one | [`Table::merge`], [`DbTable::merge`], module [`merge`] |
//! | pass on sorted entries, whatever holds them | [`SortedInput`], [`SortedEntries`] |
//! | choose how a table is opened | [`OpenOptions`], [`BlockCache`], [`ReadOptions`] |
//! | read from memory, from a map, or from anywhere else | [`Source`], [`ReadAt`] |
//! | read a table over a network, in async code | `remote::AsyncTable`, of the feature `async`; the crate `leveltable-object-store` for object stores |
//! | tables of a LevelDB database, with sequence numbers and deletions | [`DbTable`], [`DbTableBuilder`], module [`db`] |
//! | choose a filter, or write one | [`RibbonFilterPolicy`] (the default), [`BloomFilterPolicy`] (LevelDB's), module [`filter`] |
//! | scan one prefix of many, and read nothing if no key has it | [`WriteOptions::prefix_filter`], [`Table::prefix`] |
//! | keys in another order | [`Comparator`] |
//! | see what went wrong | [`Error`]; [`Corruption`] says where |
//! | check a table, rescue a damaged one, see what a file is made of | the crate `leveltable-repair` |
//! | take a file apart | module [`format`](mod@format) |
//! | count reads | [`Table::stats`] |
//!
//! # The file
//!
//! ```text
//! data blocks     entries in order, each key without the prefix that it shares with the previous key
//! index           for each data block, a key at or after its last key -> offset and size of the block
//! prefix filter   a filter of the keys' prefixes, if the writer asked for one
//! filter block    the filters
//! properties      what the table says of itself
//! pieces          which parts of index and filters a lookup needs
//! metaindex       "filter.<policy name>", "about.prefixes.<rule>", "about.leveltable", "about.pieces" -> these blocks
//! footer          offsets and sizes of metaindex and index; a magic number
//! ```
//!
//! Each block is followed by a byte for its codec and a CRC-32C. LevelDB puts the metaindex before the index, and so does this
//! crate in tables without [properties](WriteOptions::properties).
//!
//! Opening reads the last 64 KiB of the file. Pieces of index and filter are read when a lookup first needs them, and kept; a table
//! without pieces, such as LevelDB's, has its index read at opening. A lookup asks the filter, searches the index, and reads
//! one block, the only one that can contain the key.
//!
//! # Serving reads
//!
//! - [`Table::open`] uses positional reads: a lookup that is not in the cache reads one block, and a failing disk is an error.
//! - [`Source::load`] reads the whole file into memory. `Source::map`, of the feature `mmap`, maps it. Uncompressed blocks are then
//!   used in place, without a copy or a cache. Compressed ones are decompressed into the cache.
//! - Any number of threads may use a [`Table`] at once, and clones are cheap. Cursors and ranges own what they need and can be
//!   sent to another thread. No lock is held while a block is read or decompressed.
//! - An open table holds what was read of its index and filter: see [`Table::weight`]. Blocks that were decompressed are
//!   kept in a [`BlockCache`] of 32 MiB that all tables share, unless [`OpenOptions`] says otherwise. So are uncompressed blocks
//!   of a file that fit in it or are asked for again.
//! - A value from [`Table::get`] is a slice of its block and keeps the block in memory.
//! - In async code, call lookups where blocking is allowed, such as Tokio's `spawn_blocking`. [`Table::may_contain`] reads
//!   only pieces of index and filter that were not read yet. `AsyncTable`, of the feature `async`, awaits its reads instead, under any runtime.
//! - A path given to [`TableBuilder::create`] is replaced atomically. Open tables go on reading the old file.
//!
//! # Promises
//!
//! - This crate reads what C++ LevelDB 1.23 writes, and the other way round. With [`WriteOptions::leveldb`] and without
//!   compression, the bytes are the same.
//! - A lookup in a damaged table returns an error or the right answer. Checksums are always verified.
//! - The order of keys is checked when a block is first read, and in files of up to 64 KiB when a table is opened. A comparator
//!   in another order than the table's is an error as soon as it shows. A table that does not record its order, and is in one that
//!   seldom differs from the assumed one, can hide keys until then; [`OpenOptions::check_order`] checks all blocks at opening.
//! - No file makes this crate panic, or use more memory than the file's size explains.
//! - A table at a path is there completely and synced, or not at all.
//! - No `unsafe` code, except for the one call that maps a file, with the feature `mmap`: what it is trusted with is in the
//!   documentation of `Source::map`.
//!
//! # Limits
//!
//! - A constructed file may lie about its contents; it does no other harm.
//! - A file must not change while it is open; it may be replaced. Access to a memory map of a truncated file raises SIGBUS.
//! - On Windows, an open file cannot be replaced. A directory cannot be synced there, so the new file's name may be lost in a crash
//!   right after `finish`.
//!
//! The minimum supported Rust version is 1.88.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "mmap"), forbid(unsafe_code))]
#![cfg_attr(feature = "mmap", deny(unsafe_code))] // allowed in `read/source/map.rs`
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod coding;
#[allow(unreachable_pub, reason = "`fuzzing` exports some items")]
mod comparator;
pub mod db;
mod error;
pub mod filter;
#[allow(unreachable_pub, reason = "`fuzzing` exports some items")]
pub mod format;
#[cfg(fuzzing)]
pub mod fuzzing;
mod held;
pub mod merge {
    //! Walking several tables as one: what [`Table::merge`](crate::Table::merge) returns.

    pub use crate::read::walk::merge::MergeCursor;
}
mod read;
#[doc(hidden)]
pub mod sister_crates;
mod sorted_input;
mod write;

/// The crate whose [`Bytes`](bytes::Bytes) this interface uses.
pub use bytes;
pub use comparator::{BytewiseComparator, Comparator};
pub use db::{builder::DbTableBuilder, table::DbTable};
pub use error::{Corruption, Error, ErrorKind, Result, Section};
pub use filter::{bloom::BloomFilterPolicy, ribbon::RibbonFilterPolicy};
pub use format::codec::Compression;
pub use read::open::options::OpenOptions;
pub use read::parts::bounds::{KeyRange, prefix_bounds};
#[cfg(feature = "async")]
pub use read::remote;
pub use read::source::stats::Stats;
pub use read::source::{ReadAt, Source};
pub use read::store::ReadOptions;
pub use read::store::cache::{BlockCache, CacheStats};
pub use read::table::Table;
pub use read::table::table_cache::{OpenTable, TableCache};
pub use read::walk::cursor::Cursor;
pub use read::walk::range::TableRange;
pub use sorted_input::{SortedEntries, SortedInput};
pub use write::builder::TableBuilder;
pub use write::new_file::{Destination, NewFile};
pub use write::options::WriteOptions;
pub use write::summary::Summary;

/// The code of the README, and of the page about serving reads, is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/serving.md")]
struct Pages;
