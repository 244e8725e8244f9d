//! Takes entries from both ends of a walk.

use std::cmp::Ordering;

use crate::error::{Error, ErrorKind, Result};
use crate::read::parts::bounds::Direction;

/// A cursor in both directions, as the basis of an iterator.
pub(crate) trait Walk: Clone {
    type Entry;

    fn is_on_entry(&self) -> bool;
    fn is_before_first(&self) -> bool;

    /// Moves to the next entry in `direction`; from the end of the opposite walk, to the first.
    fn step(&mut self, direction: Direction) -> Result<bool>;

    /// Moves to the first entry of a walk in `direction`.
    fn seek_to_start(&mut self, direction: Direction) -> Result<bool>;

    /// The current entry, to keep.
    fn entry(&self) -> Self::Entry;

    /// Compares the current entries of two cursors in the order of the walk.
    fn compare(&self, other: &Self) -> Result<Ordering>;
}

/// Takes entries from both ends, with a cursor for each, until they meet or one fails.
#[derive(Debug, Clone)]
pub(crate) struct DoubleEnded<C> {
    pub(crate) front: C,
    /// Whether the front cursor's entry is still to be taken.
    front_is_left: bool,
    /// Created when the first entry is taken from the back.
    back: Option<Box<C>>,
    /// Set when no entries are left; a range that could not be made has its error here.
    end: Option<Option<Error>>,
}

impl<C: Walk> DoubleEnded<C> {
    /// All entries from the position of `cursor` on, or an error instead.
    pub(crate) fn new(cursor: C, error: Option<Error>) -> DoubleEnded<C> {
        DoubleEnded {
            front_is_left: cursor.is_on_entry(),
            front: cursor,
            back: None,
            end: error.map(Some),
        }
    }

    /// The cursor, if all entries are left.
    pub(crate) fn into_whole(self) -> Result<C> {
        match self.end {
            None if self.back.is_none() && self.front.is_before_first() => Ok(self.front),
            end => Err(end.flatten().unwrap_or_else(not_whole)),
        }
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, direction: Direction) -> Option<Result<C::Entry>> {
        match self.advance(direction) {
            Ok(true) => Some(Ok(self.cursor(direction).entry())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// The cursor that takes entries in `direction`.
    #[inline(always)]
    pub(crate) fn cursor(&self, direction: Direction) -> &C {
        match (direction, &self.back) {
            (Direction::Backward, Some(back)) => back,
            _ => &self.front,
        }
    }

    /// The cursor on the entry last taken from the front; `None` before the first and after the end.
    pub(crate) fn lent(&self) -> Option<&C> {
        (self.end.is_none() && !self.front_is_left).then_some(&self.front)
    }

    /// Takes an entry, for [`cursor`](DoubleEnded::cursor) to lend. Returns `false` if none is left.
    #[inline(always)]
    pub(crate) fn advance(&mut self, direction: Direction) -> Result<bool> {
        if let Some(error) = &mut self.end {
            return error.take().map_or(Ok(false), Err);
        }
        let moved = match direction {
            Direction::Forward => self.step_front(),
            Direction::Backward => self.step_back(),
        };
        if !matches!(moved, Ok(true)) {
            self.end = Some(None);
        }
        moved
    }

    /// Moves to the next entry from the front. Returns whether it is still to be taken.
    #[inline(always)]
    fn step_front(&mut self) -> Result<bool> {
        let moved =
            std::mem::take(&mut self.front_is_left) || self.front.step(Direction::Forward)?;
        match &self.back {
            Some(back) if moved => Ok(self.front.compare(back)?.is_lt()),
            _ => Ok(moved),
        }
    }

    /// Moves to the next entry from the back. Returns whether it is still to be taken.
    fn step_back(&mut self) -> Result<bool> {
        if !self.front.is_on_entry() && !self.front.is_before_first() {
            // After the last entry, or without a position.
            return self.front.step(Direction::Forward);
        }
        let moved = match &mut self.back {
            Some(back) => back.step(Direction::Backward)?,
            None => {
                let back = self.back.insert(Box::new(self.front.clone()));
                back.seek_to_start(Direction::Backward)?
            }
        };
        match &self.back {
            Some(back) if moved && self.front.is_on_entry() => {
                let front = self.front.compare(back)?;
                Ok(front.is_lt() || self.front_is_left && front.is_eq())
            }
            _ => Ok(moved),
        }
    }
}

/// The error for a range or cursor that was advanced before it was merged.
#[cold]
pub(crate) fn not_whole() -> Error {
    Error::new(
        ErrorKind::InvalidState,
        "a range or cursor was advanced before it was merged, and a merge begins at the first entry: make a new one",
    )
}
