//! Entries of a database's tables.

use bytes::Bytes;

use crate::error::Result;
use crate::format::internal_key::{InternalKey, ValueType, not_internal};
use crate::read::walk::table_walk::TableWalk;

/// The state of a user key at some sequence number: a value or a deletion; returned by [`DbTable::get`](crate::DbTable::get).
///
/// ```
/// use leveltable::db::Version;
///
/// assert_eq!(Version::Value("red".into()).into_value(), Some("red".into()));
/// assert_eq!(Version::Deleted.into_value(), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Version {
    /// The key has this value.
    Value(Bytes),
    /// The key was deleted. Not the same as absent: an engine must not go on to look in older tables.
    Deleted,
}

impl Version {
    /// The value; `None` for a deletion.
    pub fn into_value(self) -> Option<Bytes> {
        match self {
            Version::Value(value) => Some(value),
            Version::Deleted => None,
        }
    }
}

/// An entry of a database's table, as ranges return it. An engine can return the entries of its memtable in the same form: see
/// [`new`](DbEntry::new).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DbEntry {
    /// The key as the database's user knows it.
    pub user_key: Bytes,
    /// When it was written: larger is later.
    pub sequence: u64,
    /// The value, or that the key was deleted.
    pub version: Version,
}

impl DbEntry {
    /// A version of `user_key`, written as number `sequence`.
    ///
    /// ```
    /// use leveltable::db::{DbEntry, Version};
    ///
    /// let entry = DbEntry::new("apple", 4, Version::Value("red".into()));
    /// assert_eq!(entry.user_key, "apple");
    /// ```
    pub fn new(user_key: impl Into<Bytes>, sequence: u64, version: Version) -> DbEntry {
        DbEntry {
            user_key: user_key.into(),
            sequence,
            version,
        }
    }

    #[inline]
    pub(super) fn of(key: InternalKey<'_>, value: impl FnOnce() -> Bytes) -> DbEntry {
        let version = match key.value_type {
            ValueType::Value => Version::Value(value()),
            ValueType::Deletion => Version::Deleted,
        };
        DbEntry::new(Bytes::copy_from_slice(key.user_key), key.sequence, version)
    }
}

/// Returns `moved`, whether a walk over stored keys has moved to an entry. Fails, and ends the walk, if that entry's key is not an internal
/// key.
#[inline]
pub(super) fn check_entry(stored: &mut TableWalk, moved: bool) -> Result<bool> {
    if InternalKey::parse(stored.key()).is_some() || !moved {
        return Ok(moved);
    }
    let defect = not_internal(stored.key());
    Err(stored.fail(defect))
}
