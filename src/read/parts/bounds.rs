//! The direction of a walk, and its bounds.

use std::cmp::Ordering;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::comparator::Order;
use crate::filter::prefix_end;

/// The direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Returns one of these two: the first for a walk forward, the second for a walk back.
    #[inline(always)]
    pub(crate) fn pick<T>(self, forward: T, back: T) -> T {
        match self {
            Direction::Forward => forward,
            Direction::Backward => back,
        }
    }

    pub(crate) fn reverse(self) -> Direction {
        self.pick(Direction::Backward, Direction::Forward)
    }

    /// The first of these numbers that a walk reaches.
    pub(crate) fn first(self, numbers: &Range<usize>) -> Option<usize> {
        match self {
            Direction::Forward => numbers.clone().next(),
            Direction::Backward => numbers.clone().next_back(),
        }
    }

    /// The numbers that a walk reaches after `run`, which is a part of them.
    pub(crate) fn rest(self, numbers: &Range<usize>, run: &Range<usize>) -> Range<usize> {
        self.pick(run.end..numbers.end, numbers.start..run.start)
    }
}

/// A lower and an upper bound.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The key of a bound, if there is one.
pub(crate) fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Whether `key` is within the bound at which a walk in `direction` starts. Without a bound, the order is not used.
pub(crate) fn is_within(order: &Order, bounds: &Bounds, key: &[u8], direction: Direction) -> bool {
    let before = direction.pick(Ordering::Less, Ordering::Greater);
    match direction.pick(&bounds.0, &bounds.1) {
        Bound::Unbounded => true,
        Bound::Included(limit) => order.compare(key, limit) != before,
        Bound::Excluded(limit) => order.compare(key, limit) == before.reverse(),
    }
}

/// Whether no key can lie within these bounds.
pub(crate) fn exclude_all(order: &Order, bounds: &Bounds) -> bool {
    let (Some(lower), Some(upper)) = (key_of(&bounds.0), key_of(&bounds.1)) else {
        return false;
    };
    let is_closed = matches!(bounds, (Bound::Included(_), Bound::Included(_)));
    let compared = order.compare(lower, upper);
    compared.is_gt() || compared.is_eq() && !is_closed
}

/// Returns the bounds, in bytewise order, of the keys that begin with `prefix`: for [`Table::range`](crate::Table::range), other maps, or
/// one end of a narrower range. A range within them is answered by a filter [of prefixes](crate::WriteOptions::prefix_filter), as
/// [`Table::prefix`](crate::Table::prefix) is.
///
/// Reads nothing; allocates the two bounds. In C++ LevelDB, a program seeks to the prefix and compares each key with it.
///
/// ```
/// use std::ops::Bound;
///
/// use leveltable::prefix_bounds;
///
/// let (first, end) = prefix_bounds("user/");
/// assert_eq!(first, Bound::Included(b"user/".to_vec()));
/// assert_eq!(end, Bound::Excluded(b"user0".to_vec())); // `0` is the byte after the slash
/// assert_eq!(prefix_bounds([0xff]).1, Bound::Unbounded);
/// ```
pub fn prefix_bounds(prefix: impl AsRef<[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let prefix = prefix.as_ref();
    let upper = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), upper)
}

/// The bounds of the keys that begin with `prefix` and are at or after `start`.
pub fn prefix_bounds_from(prefix: &[u8], start: Bound<impl AsRef<[u8]>>) -> Bounds {
    let (lower, upper) = prefix_bounds(prefix);
    let start = start.map(|key| key.as_ref().to_vec());
    let is_within = key_of(&start).is_some_and(|key| key >= prefix);
    (if is_within { start } else { lower }, upper)
}

/// Bounds of a [`Table::range`](crate::Table::range): every kind of range over strings, slices, arrays or vectors, and `..`.
///
/// Sealed. (With the standard `RangeBounds` instead, the type of the key could often not be inferred.)
pub trait KeyRange: sealed::KeyRange {
    /// The lower and the upper bound, as for [`Table::range`](crate::Table::range), for types that consist of several tables.
    fn key_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>)
    where
        Self: Sized,
    {
        let owned = |key: &Self::Key| key.as_ref().to_vec();
        (self.start_bound().map(owned), self.end_bound().map(owned))
    }
}

impl<R: sealed::KeyRange> KeyRange for R {}

mod sealed {
    pub trait KeyRange: std::ops::RangeBounds<Self::Key> {
        type Key: AsRef<[u8]>;
    }
}

impl sealed::KeyRange for RangeFull {
    type Key = [u8; 0];
}

impl<K: AsRef<[u8]>> sealed::KeyRange for Range<K> {
    type Key = K;
}

impl<K: AsRef<[u8]>> sealed::KeyRange for RangeInclusive<K> {
    type Key = K;
}

impl<K: AsRef<[u8]>> sealed::KeyRange for RangeFrom<K> {
    type Key = K;
}

impl<K: AsRef<[u8]>> sealed::KeyRange for RangeTo<K> {
    type Key = K;
}

impl<K: AsRef<[u8]>> sealed::KeyRange for RangeToInclusive<K> {
    type Key = K;
}

impl<K: AsRef<[u8]>> sealed::KeyRange for (Bound<K>, Bound<K>) {
    type Key = K;
}
