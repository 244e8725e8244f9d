//! Entries in ascending order, from wherever they come: the one interface between what yields them and what takes them.

use crate::error::Result;

/// A source of entries in ascending order of their keys, which it lends one at a time.
///
/// Tables, merges, databases and sorted collections are sources; builders take them. Implement it for a memtable, for example. An
/// [`Iterator`] of pairs becomes a source with [`SortedEntries`].
///
/// Keys are plain keys, or all of them are the stored keys of a database's table (see [`InternalKey`](crate::db::InternalKey)):
/// [`DbCursor`](crate::db::DbCursor), [`DbRange`](crate::db::DbRange) and [`Compaction`](crate::db::Compaction) lend the latter.
/// The source does not check its order; who takes the entries does.
///
/// ```
/// use leveltable::{SortedEntries, SortedInput, TableBuilder, WriteOptions};
/// use std::collections::BTreeMap;
///
/// fn add_all(input: &mut dyn SortedInput, builder: &mut TableBuilder<Vec<u8>>) -> leveltable::Result<()> {
///     while input.advance()? {
///         builder.add(input.key(), input.value())?;
///     }
///     Ok(())
/// }
///
/// let memtable = BTreeMap::from([("apple", "red"), ("banana", "yellow")]);
/// let mut builder = WriteOptions::new().build(Vec::new());
/// add_all(&mut SortedEntries::new(&memtable), &mut builder)?;
/// assert_eq!(builder.entries(), 2);
/// # Ok::<(), leveltable::Error>(())
/// ```
pub trait SortedInput {
    /// Moves to the next entry: from before the first entry, where a source begins, to the first. Returns `false` if none is left.
    ///
    /// # Errors
    ///
    /// Those of reading the entry. There is no next entry after an error.
    fn advance(&mut self) -> Result<bool>;

    /// The key of the current entry, until the next move; empty if there is none.
    fn key(&self) -> &[u8];

    /// The value of the current entry, until the next move; empty if there is none, and for a deletion.
    fn value(&self) -> &[u8];
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

/// The entries of an iterator over pairs, such as that of a `BTreeMap`, as a [`SortedInput`].
///
/// ```
/// use leveltable::{SortedEntries, SortedInput};
///
/// let sorted = [("apple", "red"), ("banana", "yellow")];
/// let mut input = SortedEntries::new(sorted);
/// assert!(input.advance()?);
/// assert_eq!(input.value(), b"red");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SortedEntries<I, K, V> {
    entries: I,
    current: Option<(K, V)>,
}

impl<I: Iterator<Item = (K, V)>, K: AsRef<[u8]>, V: AsRef<[u8]>> SortedEntries<I, K, V> {
    /// A source of `entries`, which come in ascending order of their keys.
    pub fn new(entries: impl IntoIterator<IntoIter = I>) -> SortedEntries<I, K, V> {
        SortedEntries {
            entries: entries.into_iter(),
            current: None,
        }
    }
}

impl<I, K, V> SortedInput for SortedEntries<I, K, V>
where
    I: Iterator<Item = (K, V)>,
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    fn advance(&mut self) -> Result<bool> {
        self.current = self.entries.next();
        Ok(self.current.is_some())
    }

    fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(key, _)| key.as_ref())
    }

    fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(_, v)| v.as_ref())
    }
}
