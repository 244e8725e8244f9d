//! The entries of a cursor, taken from both ends.

use std::cmp::Ordering;

use crate::error::Result;

/// A cursor whose entries an iterator takes.
pub(crate) trait Lend: Clone {
    type Entry;

    fn is_on_entry(&self) -> bool;
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
    /// Made when the first entry is taken from the back.
    back: Option<Box<C>>,
    is_done: bool,
}

impl<C: Lend> Ends<C> {
    /// All entries of `cursor`, which stands before the first.
    pub(crate) fn new(cursor: C) -> Ends<C> {
        Ends {
            front: cursor,
            back: None,
            is_done: false,
        }
    }

    /// Whether nothing was taken yet.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.is_done && self.back.is_none() && !self.front.is_on_entry()
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
        let moved = self.front.step();
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
        let moved = match &mut self.back {
            Some(back) => back.step_back(),
            None => self
                .back
                .insert(Box::new(self.front.clone()))
                .move_to_last(),
        };
        let Some(back) = &self.back else { return None };
        let is_left = moved.and_then(|moved| {
            Ok(moved && (!self.front.is_on_entry() || self.front.compare(back)?.is_lt()))
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
