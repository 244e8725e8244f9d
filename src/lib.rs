//! Reads and writes LevelDB's sorted table files, and asks a filter before it asks the disk.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod builder;
mod cache;
mod coding;
mod comparator;
mod cursor;
mod db_table;
mod error;
mod filter;
mod format;
mod index;
mod internal_key;
mod options;
mod publish;
mod sample;
mod source;
mod stats;
mod table;

pub use builder::{FilterSummary, Summary, TableBuilder};
pub use cache::BlockCache;
pub use comparator::{BytewiseComparator, Comparator};
pub use cursor::{Cursor, KeyRange, Range};
pub use db_table::{DbEntry, DbRange, DbTable, DbTableBuilder, Version};
pub use error::{Corruption, Error, ErrorKind, Result, Section};
pub use filter::{BloomFilterPolicy, FilterBuilder, FilterPolicy, create_filter};
pub use format::frame::Compression;
pub use internal_key::{
    InternalFilterPolicy, InternalKey, InternalKeyComparator, MAX_SEQUENCE, ValueType,
};
pub use options::{OpenOptions, ReadOptions, WriteOptions};
pub use publish::{Destination, NewFile};
pub use source::{CountingReadAt, ReadAt, Source};
pub use stats::Stats;
pub use table::{FilterInfo, Table};
