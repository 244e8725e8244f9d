//! Entries in ascending order from any source: the one interface between sources and consumers of entries.

use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{BytewiseComparator, Comparator};
use crate::error::Result;

mod adapters;

pub use adapters::{RangeMap, SortedEntries, SortedMap, SortedSlice};

/// A source of entries in ascending order of their keys, which it lends one at a time.
///
/// Tables, merges, databases, sorted collections and a [`Sorter`](crate::Sorter) are sources. Builders take them:
/// [`TableBuilder::extend`](crate::TableBuilder::extend), [`DbTableBuilder::extend`](crate::DbTableBuilder::extend), and
/// `DatabaseBuilder::extend` of `leveltable-database`. Implement it for a memtable, for example. An [`Iterator`] of pairs becomes a source
/// with [`SortedEntries`].
///
/// Keys are plain keys, or all of them are stored keys of a database's table (see [`InternalKey`](crate::db::InternalKey)):
/// [`DbCursor`](crate::db::DbCursor), [`DbRange`](crate::db::DbRange) and [`Compaction`](crate::db::Compaction) lend the latter.
/// The source does not check its order; the consumer does.
///
/// ```
/// use leveltable::{SortedEntries, SortedInput};
/// use std::collections::BTreeMap;
///
/// /// Returns the number of bytes of all keys and values.
/// fn bytes_of(input: &mut dyn SortedInput) -> leveltable::Result<usize> {
///     let mut bytes = 0;
///     while input.advance()? {
///         bytes += input.key().len() + input.value().len();
///     }
///     Ok(bytes)
/// }
///
/// let memtable = BTreeMap::from([("apple", "red"), ("banana", "yellow")]);
/// assert_eq!(bytes_of(&mut SortedEntries::new(&memtable))?, 20);
/// # Ok::<(), leveltable::Error>(())
/// ```
pub trait SortedInput {
    /// Moves to the next entry: from before the first entry, where a source begins, to the first. Returns `false` if none is left.
    ///
    /// # Errors
    ///
    /// Errors of reading the entry. There is no next entry after an error.
    fn advance(&mut self) -> Result<bool>;

    /// The key of the current entry, until the next move; empty if there is none.
    fn key(&self) -> &[u8];

    /// The value of the current entry, until the next move; empty if there is none, and for a deletion.
    fn value(&self) -> &[u8];
}

/// A sorted input that also seeks and moves back, for ranges and merges: see [`TableRange::of`](crate::TableRange::of)
/// and [`DbRange::of`](crate::db::DbRange::of).
///
/// Cursors and merges of tables are such inputs, sorted slices with [`SortedSlice`], and maps with [`SortedMap`]. Implement it for a
/// memtable that is walked while it grows: `examples/lsm.rs` does, for the `SkipMap` of `crossbeam_skiplist`. In the order of a database's
/// tables, keys are stored keys, also those of seeks: [`InternalKey`](crate::db::InternalKey) takes them apart.
///
/// Keys must be distinct: a merge, which may show entries of one key from several inputs, goes into a range or another merge as
/// itself.
///
/// Each move returns whether it ended on an entry. After a move that found none or failed, callers must seek before they step: ranges and
/// merges do. They call [`advance`](SortedInput::advance) and [`prev`](SortedCursor::prev) only on an entry, may change direction at any,
/// and copy the key of each entry once. In C++ LevelDB, this is `Iterator`.
///
/// ```
/// use leveltable::{SortedCursor, SortedInput, SortedSlice};
///
/// let mut fruit = SortedSlice::new([("apple", "red"), ("banana", "yellow")]);
/// let cursor: &mut dyn SortedCursor = &mut fruit;
/// assert!(cursor.seek(b"b")?);
/// assert_eq!(cursor.value(), b"yellow");
/// assert!(cursor.prev()?);
/// assert_eq!(cursor.key(), b"apple");
/// assert!(!cursor.seek(b"c")?);
/// # Ok::<(), leveltable::Error>(())
/// ```
pub trait SortedCursor: SortedInput {
    /// Moves to the first entry whose key is at or after `key`.
    ///
    /// # Errors
    ///
    /// Errors of reading the entry, as for all moves.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;

    /// Moves to the first entry; see [`seek`](SortedCursor::seek).
    ///
    /// # Errors
    ///
    /// Errors of reading the entry.
    fn seek_to_first(&mut self) -> Result<bool>;

    /// Moves to the last entry, from which [`prev`](SortedCursor::prev) continues.
    ///
    /// # Errors
    ///
    /// Errors of reading the entry.
    fn seek_to_last(&mut self) -> Result<bool>;

    /// Moves from an entry to the one before it.
    ///
    /// # Errors
    ///
    /// Errors of reading the entry.
    fn prev(&mut self) -> Result<bool>;

    /// The current [value](SortedInput::value), to keep: by default a copy.
    fn value_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.value())
    }

    /// The order of the keys: by default bytewise. That of stored keys of a database is
    /// [`InternalKeyComparator`](crate::db::InternalKeyComparator).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Comparator`](crate::ErrorKind::Comparator) if it is not known: ranges and merges then cannot take the input.
    fn comparator(&self) -> Result<Arc<dyn Comparator>> {
        Ok(Arc::new(BytewiseComparator))
    }
}

impl<S: SortedInput + ?Sized> SortedInput for &mut S {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn key(&self) -> &[u8] {
        (**self).key()
    }

    fn value(&self) -> &[u8] {
        (**self).value()
    }
}

impl<S: SortedInput + ?Sized> SortedInput for Box<S> {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn key(&self) -> &[u8] {
        (**self).key()
    }

    fn value(&self) -> &[u8] {
        (**self).value()
    }
}
