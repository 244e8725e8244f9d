//! The entries of a cursor, taken from both ends.

use std::cmp::Ordering;

use crate::error::Result;

/// A cursor whose entries an iterator takes.
pub(crate) trait Lend: Clone {
    type Entry;

    fn is_on_entry(&self) -> bool;
    fn is_before_first(&self) -> bool;
    fn move_to_last(&mut self) -> Result<bool>;
    fn step(&mut self) -> Result<bool>;
    fn step_back(&mut self) -> Result<bool>;

    /// The current entry, to keep.
    fn entry(&self) -> Self::Entry;

    /// How the entries that the two cursors stand on compare in the order of the walk.
    fn compare(&self, other: &Self) -> Result<Ordering>;
}

/// Takes entries from both ends, with a cursor for each, until they meet or one fails.
#[derive(Debug, Clone)]
pub(crate) struct Ends<C> {
    pub(crate) front: C,
    /// Whether the entry that the front cursor stands on is still to be taken.
    front_is_left: bool,
    /// Made when the first entry is taken from the back.
    back: Option<Box<C>>,
    is_done: bool,
}

impl<C: Lend> Ends<C> {
    /// All entries from the position of `cursor` on.
    pub(crate) fn new(cursor: C) -> Ends<C> {
        Ends {
            front_is_left: cursor.is_on_entry(),
            front: cursor,
            back: None,
            is_done: false,
        }
    }

    /// Whether all entries are left.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_done && self.back.is_none() && self.front.is_before_first()
    }

    /// Takes no more.
    pub(crate) fn finish(&mut self) {
        self.is_done = true;
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<Result<C::Entry>> {
        if self.is_done {
            return None;
        }
        let moved = if std::mem::take(&mut self.front_is_left) {
            Ok(true)
        } else {
            self.front.step()
        };
        let is_left = moved.and_then(|moved| {
            Ok(moved
                && match &self.back {
                    Some(back) => self.front.compare(back)?.is_lt(),
                    None => true,
                })
        });
        match is_left {
            Ok(true) => Some(Ok(self.front.entry())),
            ended => self.end(ended),
        }
    }

    pub(crate) fn next_back(&mut self) -> Option<Result<C::Entry>> {
        if self.is_done {
            return None;
        }
        if !self.front.is_on_entry() && !self.front.is_before_first() {
            // After the last entry, or lost.
            let ended = self.front.step();
            return self.end(ended);
        }
        let moved = match &mut self.back {
            Some(back) => back.step_back(),
            None => self
                .back
                .insert(Box::new(self.front.clone()))
                .move_to_last(),
        };
        let Some(back) = &self.back else { return None };
        let is_left = moved.and_then(|moved| {
            if !moved || !self.front.is_on_entry() {
                return Ok(moved);
            }
            let front = self.front.compare(back)?;
            Ok(front.is_lt() || self.front_is_left && front.is_eq())
        });
        match is_left {
            Ok(true) => Some(Ok(back.entry())),
            ended => self.end(ended),
        }
    }

    #[cold]
    fn end(&mut self, ended: Result<bool>) -> Option<Result<C::Entry>> {
        self.is_done = true;
        ended.err().map(Err)
    }
}
