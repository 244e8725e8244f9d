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
    /// Created when the first entry is taken from the back.
    back: Option<Box<C>>,
    state: State,
}

/// The state of a walk from both ends.
#[derive(Debug, Clone)]
enum State {
    /// The entries after the front cursor's are left.
    Rest,
    /// Nothing is left, except the error of a range that could not be made.
    Over(Option<Error>),
}

impl<C: Walk> DoubleEnded<C> {
    /// All entries of `cursor`, which is before the first, or an error instead.
    pub(crate) fn new(cursor: C, error: Option<Error>) -> DoubleEnded<C> {
        DoubleEnded {
            front: cursor,
            back: None,
            state: error.map_or(State::Rest, |error| State::Over(Some(error))),
        }
    }

    /// From the ends of what `change` makes of the cursor. An error that is due stays due.
    pub(crate) fn restart(self, change: impl FnOnce(C) -> C) -> DoubleEnded<C> {
        let error = match self.state {
            State::Over(error) => error,
            State::Rest => None,
        };
        DoubleEnded::new(change(self.front), error)
    }

    /// The cursor, if all entries are left.
    pub(crate) fn into_whole(self) -> Result<C> {
        match self.state {
            State::Over(Some(error)) => Err(error),
            State::Rest if self.back.is_none() && self.front.is_before_first() => Ok(self.front),
            _ => Err(not_whole()),
        }
    }

    #[inline(always)]
    pub(crate) fn take(&mut self, direction: Direction) -> Option<Result<C::Entry>> {
        let moved = self.advance(direction);
        let taken = match (direction, &self.back) {
            (Direction::Backward, Some(back)) => &**back,
            _ => &self.front,
        };
        moved.map(|moved| moved.then(|| taken.entry())).transpose()
    }

    /// The cursor on the entry last taken from the front; `None` before the first and after the end.
    #[inline(always)]
    pub(crate) fn lent(&self) -> Option<&C> {
        matches!(self.state, State::Rest).then_some(&self.front)
    }

    /// Takes an entry. Returns `false` if none is left.
    #[inline(always)]
    pub(crate) fn advance(&mut self, direction: Direction) -> Result<bool> {
        let moved = match (&mut self.state, direction) {
            (State::Over(error), _) => return error.take().map_or(Ok(false), Err),
            (_, Direction::Forward) => self.step_front(),
            (_, Direction::Backward) => self.step_back(),
        };
        if !matches!(moved, Ok(true)) {
            self.state = State::Over(None);
        }
        moved
    }

    /// Moves to the next entry from the front. Returns whether it is still to be taken.
    #[inline(always)]
    fn step_front(&mut self) -> Result<bool> {
        let moved = self.front.step(Direction::Forward)?;
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
                Ok(self.front.compare(back)?.is_lt())
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
