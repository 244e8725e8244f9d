//! Iterators, slices and maps as sorted inputs.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use crate::comparator::{BytewiseComparator, Comparator};
use crate::error::Result;
use crate::sorted_input::{SortedCursor, SortedInput};

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

/// The entries of a sorted slice, array or vector, or of an `Arc` of one, as a [`SortedCursor`]. Keys must be distinct.
///
/// A seek is a binary search. Allocates nothing.
///
/// ```
/// use leveltable::{SortedSlice, Table, TableRange};
///
/// let new = SortedSlice::new([("apple", "green"), ("cherry", "dark")]);
/// let old = SortedSlice::new([("apple", "red"), ("banana", "yellow")]);
/// let mut both = Table::merge([TableRange::of(new, ..), TableRange::of(old, "b"..)])?;
/// assert!(both.seek_to_last()?);
/// assert_eq!((both.key(), both.input()), (&b"cherry"[..], 0));
/// assert!(both.prev()?);
/// assert_eq!((both.key(), both.input()), (&b"banana"[..], 1));
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SortedSlice<S, K, V> {
    entries: S,
    /// The number of entries up to and including the current one, plus one after the last.
    at: usize,
    order: Arc<dyn Comparator>,
    of: PhantomData<fn() -> (K, V)>,
}

impl<S: AsRef<[(K, V)]>, K: AsRef<[u8]>, V: AsRef<[u8]>> SortedSlice<S, K, V> {
    /// A cursor before the first of `entries`, which are in bytewise order.
    pub fn new(entries: S) -> SortedSlice<S, K, V> {
        SortedSlice {
            entries,
            at: 0,
            order: Arc::new(BytewiseComparator),
            of: PhantomData,
        }
    }

    /// Says that the entries are in another order: see [`DbRange::of`](crate::db::DbRange::of).
    pub fn with_comparator(self, comparator: impl Comparator) -> SortedSlice<S, K, V> {
        let order = Arc::new(comparator);
        SortedSlice { order, ..self }
    }

    fn current(&self) -> Option<&(K, V)> {
        self.entries.as_ref().get(self.at.checked_sub(1)?)
    }
}

impl<S: AsRef<[(K, V)]>, K: AsRef<[u8]>, V: AsRef<[u8]>> SortedInput for SortedSlice<S, K, V> {
    fn advance(&mut self) -> Result<bool> {
        self.at = (self.at + 1).min(self.entries.as_ref().len() + 1);
        Ok(self.current().is_some())
    }

    fn key(&self) -> &[u8] {
        self.current().map_or(&[], |(key, _)| key.as_ref())
    }

    fn value(&self) -> &[u8] {
        self.current().map_or(&[], |(_, value)| value.as_ref())
    }
}

impl<S: AsRef<[(K, V)]>, K: AsRef<[u8]>, V: AsRef<[u8]>> SortedCursor for SortedSlice<S, K, V> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let is_before = |entry: &(K, V)| self.order.compare(entry.0.as_ref(), key).is_lt();
        self.at = self.entries.as_ref().partition_point(is_before);
        self.advance()
    }

    fn seek_to_first(&mut self) -> Result<bool> {
        self.at = 0;
        self.advance()
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        self.at = self.entries.as_ref().len();
        Ok(self.at > 0)
    }

    fn prev(&mut self) -> Result<bool> {
        self.at = self.at.saturating_sub(1);
        Ok(self.current().is_some())
    }

    fn comparator(&self) -> Result<Arc<dyn Comparator>> {
        Ok(self.order.clone())
    }
}

/// A map that a [`SortedMap`] reads: an `Arc` of a `BTreeMap`, for example, or a map behind a lock.
pub trait RangeMap {
    /// The type of keys, which are cheap to clone if they are [`Bytes`](bytes::Bytes).
    type Key: AsRef<[u8]>;
    /// The type of values.
    type Value: AsRef<[u8]>;

    /// Copies of the first `most` entries from `start` on, ascending, for a [`SortedMap`] that moves forward; fewer only if there are no
    /// more.
    fn first(&self, start: Bound<&[u8]>, most: usize) -> Vec<(Self::Key, Self::Value)>;

    /// Copies of the last `most` entries up to `end`, descending, for a [`SortedMap`] that moves back; fewer only if there are no
    /// more.
    fn last(&self, end: Bound<&[u8]>, most: usize) -> Vec<(Self::Key, Self::Value)>;
}

impl<K, V> RangeMap for Arc<BTreeMap<K, V>>
where
    K: AsRef<[u8]> + Borrow<[u8]> + Ord + Clone,
    V: AsRef<[u8]> + Clone,
{
    type Key = K;
    type Value = V;

    fn first(&self, start: Bound<&[u8]>, most: usize) -> Vec<(K, V)> {
        let range = self.range::<[u8], _>((start, Bound::Unbounded)).take(most);
        range.map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    fn last(&self, end: Bound<&[u8]>, most: usize) -> Vec<(K, V)> {
        let range = self.range::<[u8], _>((Bound::Unbounded, end));
        let last = range.rev().take(most);
        last.map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

/// The entries of a map, as a [`SortedCursor`].
///
/// Each seek reads a new range of the map, and so does a step whenever the entries read before are used up: four, then twice as many each
/// time, up to 64. So the map is borrowed, or locked, only for short moments, and may grow meanwhile. Entries are copied, which costs
/// little if keys and values are [`Bytes`](bytes::Bytes).
///
/// If the map is not in bytewise order, as with stored keys of a database, name its order by
/// [`with_comparator`](SortedMap::with_comparator).
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// use leveltable::{SortedMap, TableRange};
///
/// let memtable = Arc::new(BTreeMap::from([(b"apple".to_vec(), "red"), (b"banana".to_vec(), "yellow")]));
/// let mut range = TableRange::of(SortedMap::new(memtable.clone()), "b"..);
/// assert!(range.advance()?);
/// assert_eq!(range.key(), b"banana");
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SortedMap<M: RangeMap> {
    map: M,
    /// Consecutive entries, on the way forward or back; `None` before the first move.
    taken: Option<Vec<(M::Key, M::Value)>>,
    is_back: bool,
    /// The index of the current entry in `taken`.
    at: usize,
    order: Arc<dyn Comparator>,
}

/// Number of entries that are read from a map at first, and at most.
const TAKEN: [usize; 2] = [4, 64];

impl<M: RangeMap> SortedMap<M> {
    /// A cursor before the first entry of `map`, which is in bytewise order.
    pub fn new(map: M) -> SortedMap<M> {
        SortedMap {
            map,
            taken: None,
            is_back: false,
            at: 0,
            order: Arc::new(BytewiseComparator),
        }
    }

    /// Says that the map is in another order: that of the entries which its [`RangeMap`] returns. It is not checked.
    pub fn with_comparator(self, comparator: impl Comparator) -> SortedMap<M> {
        let order = Arc::new(comparator);
        SortedMap { order, ..self }
    }

    fn current(&self) -> Option<&(M::Key, M::Value)> {
        self.taken.as_ref()?.get(self.at)
    }

    /// Stores entries read from the map. Returns whether there are any.
    fn take(&mut self, taken: Vec<(M::Key, M::Value)>, is_back: bool) -> bool {
        let is_any = !taken.is_empty();
        (self.taken, self.is_back, self.at) = (Some(taken), is_back, 0);
        is_any
    }

    /// Moves to the next entry. There is none beyond an end.
    fn step(&mut self, is_back: bool) -> bool {
        let [few, many] = TAKEN;
        let (from, most) = match (&self.taken, self.current()) {
            (None, _) => (Bound::Unbounded, few),
            (Some(_), None) => return false,
            (Some(taken), Some((key, _))) if self.is_back == is_back => {
                if self.at + 1 < taken.len() {
                    self.at += 1;
                    return true;
                }
                (Bound::Excluded(key.as_ref()), many.min(2 * taken.len()))
            }
            (Some(_), Some((key, _))) => (Bound::Excluded(key.as_ref()), few),
        };
        let taken = match is_back {
            false => self.map.first(from, most),
            true => self.map.last(from, most),
        };
        self.take(taken, is_back)
    }
}

impl<M: RangeMap> SortedInput for SortedMap<M> {
    fn advance(&mut self) -> Result<bool> {
        Ok(self.step(false))
    }

    fn key(&self) -> &[u8] {
        self.current().map_or(&[], |(key, _)| key.as_ref())
    }

    fn value(&self) -> &[u8] {
        self.current().map_or(&[], |(_, value)| value.as_ref())
    }
}

impl<M: RangeMap> SortedCursor for SortedMap<M> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let taken = self.map.first(Bound::Included(key), TAKEN[0]);
        Ok(self.take(taken, false))
    }

    fn seek_to_first(&mut self) -> Result<bool> {
        let taken = self.map.first(Bound::Unbounded, TAKEN[0]);
        Ok(self.take(taken, false))
    }

    fn seek_to_last(&mut self) -> Result<bool> {
        let taken = self.map.last(Bound::Unbounded, TAKEN[0]);
        Ok(self.take(taken, true))
    }

    fn prev(&mut self) -> Result<bool> {
        Ok(self.step(true))
    }

    fn comparator(&self) -> Result<Arc<dyn Comparator>> {
        Ok(self.order.clone())
    }
}
