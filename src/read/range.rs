//! The entries of a table within bounds, from both ends.

use std::ops::{Bound, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::prefix_end;
use crate::read::cursor::Cursor;
use crate::read::table::Table;

impl Table {
    /// All entries in order, from either end.
    pub fn iter(&self) -> TableRange {
        self.range(..)
    }

    /// The entries whose keys lie within `bounds`, from either end.
    ///
    /// If the lower bound is above the upper one, the range is empty, and nothing is read. If no key within the bounds can have
    /// another prefix, as between `user/1` and `user/5` where prefixes end at a slash, a filter [of
    /// prefixes](crate::WriteOptions::prefix_filter) is asked, and if it knows that no key has the prefix, nothing is read.
    /// Other filters are not: they know single keys.
    ///
    /// ```
    /// # use leveltable::{OpenOptions, WriteOptions};
    /// # let mut file = Vec::new();
    /// # let mut builder = WriteOptions::new().build(&mut file);
    /// # for key in ["apple", "banana", "cherry"] { builder.add(key.as_bytes(), b"")?; }
    /// # builder.finish()?;
    /// # let table = OpenOptions::new().open_source(file)?;
    /// let mut from_b = table.range("b"..);
    /// let (key, _) = from_b.next().unwrap()?;
    /// assert_eq!(key, "banana");
    /// # Ok::<(), leveltable::Error>(())
    /// ```
    pub fn range(&self, bounds: impl KeyRange) -> TableRange {
        let mut range = self.unfiltered_range(bounds);
        if let (Ok(Order::Bytewise), State::Fresh) = (self.order(), &range.state) {
            match self.prefixes_exclude(&range.lower, &range.upper) {
                Ok(false) => {}
                Ok(true) => range.state = State::Done,
                Err(error) => range.state = State::Failed(error),
            }
        }
        range
    }

    /// Like [`range`](Table::range), without asking a filter of prefixes.
    pub(super) fn unfiltered_range(&self, bounds: impl KeyRange) -> TableRange {
        let (lower, upper) = bounds.into_bounds();
        // If the order is not known, the first move with a bound is an error.
        let order = self.order();
        let is_empty = order.is_ok_and(|order| exclude_all(order, &lower, &upper));
        let mut range = TableRange::new(self.cursor(), lower, upper);
        if is_empty {
            range.state = State::Done;
        }
        range
    }

    /// The entries whose keys begin with `prefix`, from either end.
    ///
    /// Reads nothing if a filter [of prefixes](crate::WriteOptions::prefix_filter) knows that there are none. `prefix` may be
    /// longer than the prefixes in the filter. If it is shorter, the filter cannot tell.
    ///
    /// Only in bytewise order do such keys always lie together. In any other order the only item is an error of
    /// [`ErrorKind::Comparator`]: use a [`range`](Table::range) there.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TableRange {
        match self.unmet_prefix() {
            Some(error) => TableRange::failed(self.cursor(), error),
            None => self.range(prefix_bounds(prefix.as_ref())),
        }
    }

    /// The error of asking for the keys of a prefix, if they need not lie together in the table. The order is not asked about the
    /// prefix, which may be no key to it.
    pub(super) fn unmet_prefix(&self) -> Option<Error> {
        match self.order() {
            Ok(order @ Order::Custom(_)) => Some(no_prefixes(order)),
            Ok(Order::Bytewise) | Err(_) => None,
        }
    }

    /// The first entry, or `None` in an empty table.
    ///
    /// # Errors
    ///
    /// Those of reading a data block; see [`get`](Table::get).
    pub fn first(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.iter().next().transpose()
    }

    /// The last entry, or `None` in an empty table.
    ///
    /// # Errors
    ///
    /// Those of reading a data block; see [`get`](Table::get).
    pub fn last(&self) -> Result<Option<(Bytes, Bytes)>> {
        self.iter().next_back().transpose()
    }
}

/// All of the table.
impl From<&Table> for TableRange {
    fn from(table: &Table) -> TableRange {
        table.iter()
    }
}

impl Table {
    /// Whether `key` is within the bound `lower`, in the order of the table.
    #[inline]
    pub(super) fn is_above(&self, key: &[u8], lower: &Bound<Vec<u8>>) -> Result<bool> {
        Ok(match lower {
            Bound::Unbounded => true,
            Bound::Included(limit) => self.order()?.compare(key, limit).is_ge(),
            Bound::Excluded(limit) => self.order()?.compare(key, limit).is_gt(),
        })
    }

    /// Whether `key` is within the bound `upper`, in the order of the table.
    #[inline]
    pub(super) fn is_below(&self, key: &[u8], upper: &Bound<Vec<u8>>) -> Result<bool> {
        Ok(match upper {
            Bound::Unbounded => true,
            Bound::Included(limit) => self.order()?.compare(key, limit).is_le(),
            Bound::Excluded(limit) => self.order()?.compare(key, limit).is_lt(),
        })
    }
}

/// All of the table.
impl From<Table> for TableRange {
    fn from(table: Table) -> TableRange {
        table.iter()
    }
}

/// All entries, as by [`Table::iter`].
impl IntoIterator for &Table {
    type Item = Result<(Bytes, Bytes)>;
    type IntoIter = TableRange;

    fn into_iter(self) -> TableRange {
        self.iter()
    }
}

/// The entries of a table within bounds, from both ends; made by [`Table::range`].
///
/// Owns its data. Ends after its first error: no entry is skipped in silence. Uses one cursor, so taking
/// from both ends in turn seeks at every turn. Each key is a copy, where a [`Cursor`] lends it; values are slices of their
/// blocks.
#[derive(Debug, Clone)]
#[must_use]
pub struct TableRange {
    cursor: Cursor,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    /// Nothing was taken since the bounds were set.
    Fresh,
    /// The cursor stands on the entry last taken from the front, or from the back.
    Front,
    Back,
    Done,
    /// The range could not be made: this is its only item.
    Failed(Error),
}

impl TableRange {
    fn new(cursor: Cursor, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> TableRange {
        TableRange {
            cursor,
            lower,
            upper,
            state: State::Fresh,
        }
    }

    /// A range whose only item is `error`.
    pub(super) fn failed(cursor: Cursor, error: Error) -> TableRange {
        TableRange {
            state: State::Failed(error),
            ..TableRange::new(cursor, Bound::Unbounded, Bound::Unbounded)
        }
    }

    /// The cursor, and the bounds of what is left, or `None` if nothing is; an error if the range could not be made.
    pub(super) fn into_parts(mut self) -> Result<(Cursor, Option<Bounds>)> {
        match self.state {
            State::Fresh => {}
            State::Front => self.lower = Bound::Excluded(self.cursor.key().to_vec()),
            State::Back => self.upper = Bound::Excluded(self.cursor.key().to_vec()),
            State::Done => return Ok((self.cursor, None)),
            State::Failed(error) => return Err(error),
        }
        Ok((self.cursor, Some((self.lower, self.upper))))
    }

    fn step_front(&mut self) -> Result<bool> {
        if matches!(self.state, State::Back) {
            self.upper = Bound::Excluded(self.cursor.key().to_vec());
            self.state = State::Fresh;
        }
        if let State::Front = self.state {
            return Ok(self.cursor.next()? && self.is_below_upper()?);
        }
        self.cursor.read_within(&self.lower, &self.upper)?;
        let moved = self.cursor.seek_lower(&self.lower)?;
        self.state = State::Front;
        Ok(moved && self.is_below_upper()?)
    }

    fn step_back(&mut self) -> Result<bool> {
        if matches!(self.state, State::Front) {
            self.lower = Bound::Excluded(self.cursor.key().to_vec());
            self.state = State::Fresh;
        }
        if let State::Back = self.state {
            return Ok(self.cursor.prev()? && self.is_above_lower()?);
        }
        self.cursor.read_within(&self.lower, &self.upper)?;
        let moved = self.cursor.seek_upper(&self.upper)?;
        self.state = State::Back;
        Ok(moved && self.is_above_lower()?)
    }

    fn is_above_lower(&self) -> Result<bool> {
        let table = &self.cursor.table;
        table.is_above(self.cursor.key(), &self.lower)
    }

    fn is_below_upper(&self) -> Result<bool> {
        let table = &self.cursor.table;
        table.is_below(self.cursor.key(), &self.upper)
    }

    fn take(
        &mut self,
        step: impl FnOnce(&mut TableRange) -> Result<bool>,
    ) -> Option<Result<(Bytes, Bytes)>> {
        let moved = match &self.state {
            State::Done => return None,
            State::Failed(error) => Err(error.clone()),
            State::Fresh | State::Front | State::Back => step(self),
        };
        match moved {
            Ok(true) => {
                let key = Bytes::copy_from_slice(self.cursor.key());
                Some(Ok((key, self.cursor.value_bytes())))
            }
            Ok(false) => {
                self.state = State::Done;
                None
            }
            Err(error) => {
                self.state = State::Done;
                Some(Err(error))
            }
        }
    }
}

/// The error of asking for the keys of a prefix in an order in which they need not lie together.
#[cold]
pub(crate) fn no_prefixes(order: &Order) -> Error {
    let name = order.comparator().name();
    let message =
        format!("keys of one prefix need not lie together in the order {name:?}: use a range");
    Error::new(ErrorKind::Comparator, message)
}

impl Iterator for TableRange {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(TableRange::step_front)
    }
}

impl DoubleEndedIterator for TableRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(TableRange::step_back)
    }
}

impl std::iter::FusedIterator for TableRange {}

/// Bounds of a [`Table::range`]: every kind of range over strings, slices, arrays or vectors, and `..`.
///
/// Sealed. (With the standard `RangeBounds` instead, the type of the key could often not be inferred.)
pub trait KeyRange: sealed::KeyRange {
    /// The lower and the upper bound, for what is made of several tables.
    fn key_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>)
    where
        Self: Sized,
    {
        self.into_bounds()
    }
}

impl<R: sealed::KeyRange> KeyRange for R {}

mod sealed {
    use std::ops::Bound;

    pub trait KeyRange {
        fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
    }
}

fn owned(key: impl AsRef<[u8]>) -> Vec<u8> {
    key.as_ref().to_vec()
}

pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Whether no key can lie within these bounds.
pub(crate) fn exclude_all(order: &Order, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => order.compare(lower, upper).is_gt(),
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => order.compare(lower, upper).is_ge(),
    }
}

/// The bounds, in bytewise order, of the keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> Bounds {
    let upper = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), upper)
}

impl sealed::KeyRange for RangeFull {
    fn into_bounds(self) -> Bounds {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> sealed::KeyRange for std::ops::Range<K> {
    fn into_bounds(self) -> Bounds {
        (
            Bound::Included(owned(self.start)),
            Bound::Excluded(owned(self.end)),
        )
    }
}

impl<K: AsRef<[u8]>> sealed::KeyRange for RangeInclusive<K> {
    fn into_bounds(self) -> Bounds {
        let (start, end) = self.into_inner();
        (Bound::Included(owned(start)), Bound::Included(owned(end)))
    }
}

impl<K: AsRef<[u8]>> sealed::KeyRange for RangeFrom<K> {
    fn into_bounds(self) -> Bounds {
        (Bound::Included(owned(self.start)), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> sealed::KeyRange for RangeTo<K> {
    fn into_bounds(self) -> Bounds {
        (Bound::Unbounded, Bound::Excluded(owned(self.end)))
    }
}

impl<K: AsRef<[u8]>> sealed::KeyRange for RangeToInclusive<K> {
    fn into_bounds(self) -> Bounds {
        (Bound::Unbounded, Bound::Included(owned(self.end)))
    }
}

impl<K: AsRef<[u8]>> sealed::KeyRange for (Bound<K>, Bound<K>) {
    fn into_bounds(self) -> Bounds {
        (self.0.map(owned), self.1.map(owned))
    }
}
