//! Reads and writes LevelDB's sorted table files (`.ldb`, `.sst`), and checks a filter before it reads the disk.
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
//! # The filter
//!
//! [`Table::get`] checks the table's filter before it reads. The default, [`RibbonFilterPolicy`] at 10 bits per key, has a false-positive
//! rate of 0.1 %, whatever the keys look like. A lookup then searches the index and reads one block, the only one that can contain the key.
//! [`guide::filters`] compares filters.
//!
//! # The format
//!
//! LevelDB's, with additions that LevelDB ignores: it reads these tables without their filter. [`WriteOptions::leveldb`] writes LevelDB's
//! own filter, and the same bytes as LevelDB. What [`TableBuilder::create`] writes is [version 1](guide::format#version-1), which every
//! later version of this crate reads.
//!
//! ```text
//! data blocks     entries in order, each key without the prefix that it shares with the previous key
//! index           for each data block, a key at or after its last key -> offset and size of the block
//! filter block    the filter
//! properties      what the table says of itself
//! pieces          which parts of index and filter a lookup needs
//! metaindex       names -> these blocks
//! footer          offsets and sizes of metaindex and index; a magic number
//! ```
//!
//! Each block has a CRC-32C, which is always verified. An error or the right answer: a block that cannot be read is never "not found".
//! [`guide::format`] describes the file to the byte.
//!
//! # Beyond one table
//!
//! | | |
//! |---|---|
//! | serve lookups: threads, caches, memory maps, batches, async code | [`guide::serving`]; [`OpenOptions`], [`BlockCache`], [`Source`], [`ReadAt`], [`Stats`] |
//! | find the counterparts of other programs' and crates' names | [`guide::from_leveldb`] |
//! | choose block size, codec, filter and order | [`WriteOptions`], [`Comparator`]; module [`filter`] |
//! | look many keys up at once | [`Table::get_many`], [`Table::get_with`], [`Table::may_contain`] |
//! | read in order, both ways, by pages | [`Table::range`], [`Table::prefix`], [`Table::prefix_from`], [`Cursor`], [`ReadOptions`] |
//! | scan one prefix of many, and read nothing if no key has it | [`WriteOptions::prefix_filter`] |
//! | see how large a range is, and divide a table | [`Table::approximate_bytes`], [`Table::key_at_fraction`], [`Table::splits`] |
//! | read several tables as one, keep many open | [`Table::merge`], [`DbTable::merge`], module [`merge`]; [`TableCache`] |
//! | pass sorted entries on from any source | [`SortedInput`], [`SortedEntries`] |
//! | entries in any order | [`Sorter`] |
//! | tables of a LevelDB database, with sequence numbers and deletions | [`DbTable`], [`DbTableBuilder`], module [`db`] |
//! | whole LevelDB databases | the crate [`leveltable-database`](https://docs.rs/leveltable-database) |
//! | check a table or a database, rescue a damaged one | the crate [`leveltable-repair`](https://docs.rs/leveltable-repair) |
//! | read over a network, in async code | `remote::AsyncTable`, of the feature `async`; the crate [`leveltable-object-store`](https://docs.rs/leveltable-object-store) |
//! | what went wrong, and where | [`Error`], [`Corruption`] |
//! | promises, their tests, and limits | [`guide::reliability`], [`guide::compatibility`] |
//! | figures | [`guide::performance`] |
//! | take a file apart | module [`format`](mod@format) |
//!
//! `unsafe` code is one call, which maps a file, with the feature `mmap`. The minimum supported Rust version is 1.88.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "mmap"), forbid(unsafe_code))]
#![cfg_attr(feature = "mmap", deny(unsafe_code))] // allowed in `Source::map`
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
pub mod guide;
mod held;
pub mod merge {
    //! Walking several tables as one: what [`Table::merge`](crate::Table::merge) returns.

    pub use crate::read::walk::merge::MergeCursor;
}
mod read;
#[doc(hidden)]
pub mod sister_crates;
mod sorted_input;
mod sorter;
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
pub use read::walk::run::TableRun;
pub use sorted_input::{
    RangeMap, SortedCursor, SortedEntries, SortedInput, SortedMap, SortedSlice,
};
pub use sorter::{Sorted, Sorter};
pub use write::builder::TableBuilder;
pub use write::new_file::{Destination, NewFile};
pub use write::options::WriteOptions;
pub use write::summary::Summary;

/// The code of the README is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Pages;
