//! Tables of a LevelDB database: internal keys over the plain tables of `read` and `write`.

pub(crate) mod builder;
mod compaction;
pub(crate) mod cursor;
pub(crate) mod entry;
mod inputs;
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
