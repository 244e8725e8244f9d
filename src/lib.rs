//! Reads and writes the sorted table files of LevelDB (`.ldb`, `.sst`), and asks a filter before it
//! asks the disk.
//!
//! A *table* is an immutable file of key-value entries, sorted by key: written once, from the first
//! key to the last, and then read by anybody who needs one key or a run of them. Databases keep their
//! data in such files; so can an application that has a large sorted map to publish.
//!
//! ```
//! use leveltable::{Table, TableBuilder};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("fruit.ldb");
//! let mut builder = TableBuilder::create(&path)?;
//! builder.add(b"apple", b"red")?;
//! builder.add(b"banana", b"yellow")?;
//! builder.finish()?; // only now is there a file, whole and on disk
//!
//! let table = Table::open(&path)?;
//! assert_eq!(table.get(b"apple")?.as_deref(), Some(&b"red"[..]));
//! assert_eq!(table.get(b"cherry")?, None); // the filter said no: nothing was read
//! # Ok::<(), leveltable::Error>(())
//! ```
//!
//! # Where to find what
//!
//! - **Writing**: [`TableBuilder`], with [`WriteOptions`] for block size, codec, filter and order.
//! - **Reading**: [`Table`], with [`OpenOptions`]; [`Cursor`] and [`Range`] to walk it both ways.
//! - **A LevelDB database's own tables**, whose keys end in a sequence number and a type: [`DbTable`] and
//!   [`DbTableBuilder`].
//! - **Filters**: [`RibbonFilterPolicy`], the default; [`BloomFilterPolicy`], LevelDB's; and the traits
//!   [`FilterPolicy`](filter::FilterPolicy) and [`FilterBuilder`](filter::FilterBuilder) for one's own.
//! - **Other orders**: [`Comparator`].
//! - **Other places than files**: [`Source`] and [`ReadAt`].
//! - **Damage**: [`repair::verify`] lists it, also in a file that does not open; [`repair::salvage`] copies the rest into a
//!   new table.
//! - **What a file is made of**: [`Table::layout`] and [`Table::blocks`].
//! - **What went wrong**: [`Error`], with [`Corruption`] for where.
//!
//! # The file
//!
//! ```text
//! data blocks     entries in order, each key without what it shares with the key before
//! filter block    the filters
//! metaindex       filter.<policy name> -> where the filter block is
//! index           for each data block, a key at or after its last -> where the block is
//! footer          where metaindex and index are; a magic number
//! ```
//!
//! Blocks are stored with a byte for the codec and a CRC-32C. [`Table::open`] reads footer, index,
//! metaindex and filter and keeps what it needs of them in memory. A lookup then asks the filter,
//! searches the index, and reads one block: the only one that can hold the key.
//!
//! # What is promised
//!
//! - What C++ LevelDB 1.23 wrote is read, and the other way round. With
//!   [`WriteOptions::leveldb`] and without compression, the bytes are the same.
//! - A damaged table gives an error or the right answer. Checksums are verified by default, those of index and
//!   filter always. No file makes this crate panic, or take memory that its size does not explain.
//! - A table at a path is there whole, synced, or not at all.
//! - No `unsafe` code.
//!
//! And what is not: a hostile file whose checksums are right may lie about what it holds; a file must not be
//! changed while it is open (replacing it is fine); a memory-mapped file that is truncated raises SIGBUS.
//! On Windows a file that is open cannot be replaced, and a directory cannot be synced, so that a crash
//! right after `finish` may take the new name back.
//!
//! # Threads and memory
//!
//! Any number of threads may use a [`Table`] at once; cursors and ranges own what they need and can be sent to
//! another. No lock is held while a block is read or decompressed. An open table holds its index block (and 23 bytes a data
//! block) and its filter; blocks live in a [`BlockCache`] of 8 MiB that all tables share, unless
//! [`OpenOptions`] says otherwise. A value from [`Table::get`] is a slice of its block and keeps that
//! block alive.
//!
//! The minimum supported Rust version is 1.88.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
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
mod comparator;
pub mod db;
mod error;
pub mod filter;
mod format;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod inspect;
mod read;
pub mod repair;
mod write;

pub use comparator::{BytewiseComparator, Comparator};
pub use db::{DbTable, DbTableBuilder};
pub use error::{Corruption, Error, ErrorKind, Result, Section};
pub use filter::{BloomFilterPolicy, RibbonFilterPolicy};
pub use format::codec::Compression;
pub use read::cache::BlockCache;
pub use read::cursor::Cursor;
pub use read::options::{OpenOptions, ReadOptions};
pub use read::range::{KeyRange, Range};
pub use read::source::{ReadAt, Source};
pub use read::stats::Stats;
pub use read::table::Table;
pub use write::builder::TableBuilder;
pub use write::new_file::{Destination, NewFile};
pub use write::options::WriteOptions;
pub use write::summary::Summary;

/// The README's code is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
