//! Tables of a LevelDB database: user keys with sequence numbers, deletions, and several versions of a key.
//!
//! A database stores each change under an *internal key*: the user key, the number of the change, and whether it was a put or a
//! deletion. User keys ascend, and the versions of each go from the newest to the oldest.
//!
//! | to | use |
//! |---|---|
//! | look keys up in one table, or walk it | [`DbTable`](crate::DbTable) |
//! | see it as of a sequence number | [`DbTable::at`](crate::DbTable::at) to look keys up, [`DbRange::at`] to walk |
//! | walk several tables as one | [`DbTable::merge`](crate::DbTable::merge), which makes a [`DbCursor`] |
//! | put a memtable among them | [`DbRange::of`], of a [`SortedCursor`](crate::SortedCursor) |
//! | put a level of tables among them, which are opened when they are needed | [`DbRange::of_run`], of a [`TableRun`](crate::TableRun) |
//! | keep many tables open | [`TableCache`](crate::TableCache) |
//! | write a table | [`DbTableBuilder`](crate::DbTableBuilder) |
//! | keep only what somebody can still see | [`Compaction`] |
//! | take stored keys apart | [`InternalKey`] |
//!
//! A table alone does not say what the database holds: newer versions may lie in other tables and in the log. The crate
//! `leveltable-database` reads whole databases, and `examples/lsm.rs` builds a small one on these types.
//!
//! ```
//! use leveltable::db::{MAX_SEQUENCE, Version};
//! use leveltable::{OpenOptions, WriteOptions};
//!
//! let mut builder = WriteOptions::leveldb().build_db(Vec::new());
//! builder.put("apple", 9, "green")?;
//! builder.put("apple", 4, "red")?;
//! let (file, _) = builder.finish_into_writer()?;
//!
//! let table = OpenOptions::new().open_db_source(file)?;
//! assert_eq!(table.at(MAX_SEQUENCE).get("apple")?, Some(Version::Value("green".into())));
//! assert_eq!(table.at(5).get("apple")?, Some(Version::Value("red".into())));
//! # Ok::<(), leveltable::Error>(())
//! ```

pub(crate) mod builder;
mod compaction;
pub(crate) mod cursor;
pub(crate) mod entry;
pub(crate) mod range;
mod snapshot;
pub(crate) mod table;

pub use crate::format::internal_key::{
    InternalKey, InternalKeyComparator, MAX_SEQUENCE, ValueType,
};
pub use crate::format::properties::KeyKind;
pub use compaction::Compaction;
pub use cursor::DbCursor;
pub use entry::{DbEntry, Version};
pub use range::DbRange;
pub use snapshot::Snapshot;
