//! Tables of a LevelDB database: internal keys over the plain tables of `read` and `write`.

pub(crate) mod builder;
mod compaction;
pub(crate) mod cursor;
pub(crate) mod key;
mod memtable;
pub(crate) mod range;
pub(crate) mod recognise;
mod snapshot;
pub(crate) mod table;

pub use builder::DbTableBuilder;
pub use compaction::Compaction;
pub use cursor::DbCursor;
pub use key::{InternalKey, InternalKeyComparator, MAX_SEQUENCE, ValueType};
pub use memtable::Memtable;
pub use range::DbRange;
pub use recognise::KeyKind;
pub use snapshot::Snapshot;
pub use table::{DbEntry, DbTable, Version};
