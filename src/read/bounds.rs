//! Where a walk goes: its way, and the bounds of the keys that it shows.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::comparator::Order;
use crate::error::Result;
use crate::filter::prefix_end;
use crate::read::state::State;
use crate::read::table::{Inner, Table};

/// The direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Back,
}

impl Way {
    /// What a walk forward takes of these two, or what a walk back takes.
    #[inline(always)]
    pub(super) fn pick<T>(self, forward: T, back: T) -> T {
        match self {
            Way::Forward => forward,
            Way::Back => back,
        }
    }

    pub(super) fn reverse(self) -> Way {
        self.pick(Way::Back, Way::Forward)
    }

    /// The first of these numbers that a walk comes to.
    pub(super) fn first(self, numbers: &Range<usize>) -> Option<usize> {
        match self {
            Way::Forward => numbers.clone().next(),
            Way::Back => numbers.clone().next_back(),
        }
    }

    /// Those of these numbers that a walk comes to after `run`, which are some of them.
    pub(super) fn rest(self, numbers: &Range<usize>, run: &Range<usize>) -> Range<usize> {
        self.pick(run.end..numbers.end, numbers.start..run.start)
    }
}

/// A lower and an upper bound.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The key of a bound, if there is one.
pub(super) fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Whether no key can lie within these bounds.
pub(super) fn exclude_all(order: &Order, bounds: &Bounds) -> bool {
    let (Some(lower), Some(upper)) = (key_of(&bounds.0), key_of(&bounds.1)) else {
        return false;
    };
    let is_closed = matches!(bounds, (Bound::Included(_), Bound::Included(_)));
    let compared = order.compare(lower, upper);
    compared.is_gt() || compared.is_eq() && !is_closed
}

/// Returns the bounds, in bytewise order, of the keys that begin with `prefix`: for [`Table::range`], other maps, or one end of a
/// narrower range. A range within them is answered by a filter [of prefixes](crate::WriteOptions::prefix_filter), as
/// [`Table::prefix`] is.
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

/// The bounds of those keys that come from `start` on.
pub fn prefix_bounds_from(prefix: &[u8], start: Bound<impl AsRef<[u8]>>) -> Bounds {
    let (lower, upper) = prefix_bounds(prefix);
    let start = start.map(|key| key.as_ref().to_vec());
    let is_within = key_of(&start).is_some_and(|key| key >= prefix);
    (if is_within { start } else { lower }, upper)
}

impl Inner {
    /// The data blocks that may have entries within bounds. The pieces of the index that name the first and the last of them are
    /// there, or are read.
    pub(super) fn blocks_within(&self, (lower, upper): &Bounds) -> Result<Range<usize>> {
        let all = self.index.len();
        let block_at = |bound| match key_of(bound) {
            Some(key) => self.seek(key, self.order()?, false),
            None => Ok(None),
        };
        let start = match (lower, block_at(lower)?) {
            (Bound::Excluded(key), Some(found))
                if key == found.key() && found.state().has(State::CHECKED) =>
            {
                // The block ends with the key at the latest, as was seen when it came in.
                found.block() + 1
            }
            (_, Some(found)) => found.block(),
            (Bound::Unbounded, None) => 0,
            (_, None) => all,
        };
        let end = block_at(upper)?.map_or(all, |last| last.block() + 1);
        Ok(start..end.max(start))
    }
}

impl Table {
    /// The first key that a walk along `way` comes to, if the properties name it.
    pub(crate) fn stated_key(&self, way: Way) -> Option<&[u8]> {
        let properties = self.properties()?;
        let key = way.pick(&properties.first_key, &properties.last_key);
        key.as_deref()
    }
}

/// Bounds of a [`Table::range`](crate::Table::range): every kind of range over strings, slices, arrays or vectors, and `..`.
///
/// Sealed. (With the standard `RangeBounds` instead, the type of the key could often not be inferred.)
pub trait KeyRange: sealed::KeyRange {
    /// The lower and the upper bound, for what is made of several tables.
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
