//! Sorted inputs of other kinds in a merge.

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
use crate::read::parts::bounds::{Bounds, Direction, is_within, key_of};
use crate::sorted_input::SortedCursor;

/// A sorted input of any type that can be cloned.
pub(crate) trait AnyCursor: SortedCursor + Send + Sync {
    fn copy(&self) -> Box<dyn AnyCursor>;
}

impl<C: SortedCursor + Clone + Send + Sync + 'static> AnyCursor for C {
    fn copy(&self) -> Box<dyn AnyCursor> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn AnyCursor> {
    fn clone(&self) -> Box<dyn AnyCursor> {
        (**self).copy()
    }
}

/// Its entries within bounds.
#[derive(Clone)]
pub(crate) struct Foreign {
    cursor: Box<dyn AnyCursor>,
    pub(crate) order: Order,
    bounds: Bounds,
    /// A copy of the current key: a merge compares keys several times for each step.
    key: Vec<u8>,
    /// At the end of a walk in this direction; `None` on an entry.
    end: Option<Direction>,
}

impl Foreign {
    pub(crate) fn new(cursor: impl AnyCursor + 'static, bounds: Bounds) -> Result<Foreign> {
        Ok(Foreign {
            order: Order::of(cursor.comparator()?),
            cursor: Box::new(cursor),
            bounds,
            key: Vec::new(),
            end: Some(Direction::Backward),
        })
    }

    #[inline(always)]
    pub(crate) fn current_key(&self) -> Option<&[u8]> {
        self.is_read().then_some(&self.key)
    }

    #[inline(always)]
    pub(crate) fn is_read(&self) -> bool {
        self.end.is_none()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    pub(crate) fn value_bytes(&self) -> Bytes {
        self.cursor.value_bytes()
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if !is_within(&self.order, &self.bounds, key, Direction::Forward) {
            return self.seek_to_start(Direction::Forward);
        }
        let moved = self.cursor.seek(key);
        self.stop_at_bound(moved, Direction::Forward)
    }

    pub(crate) fn seek_to_start(&mut self, direction: Direction) -> Result<bool> {
        let moved = self.place_at_start(direction);
        self.stop_at_bound(moved, direction)
    }

    fn place_at_start(&mut self, direction: Direction) -> Result<bool> {
        let cursor = &mut self.cursor;
        let bound = key_of(direction.pick(&self.bounds.0, &self.bounds.1));
        let mut moved = match (bound, direction) {
            (None, Direction::Forward) => cursor.seek_to_first()?,
            (Some(key), Direction::Forward) => cursor.seek(key)?,
            (None, Direction::Backward) => cursor.seek_to_last()?,
            (Some(key), Direction::Backward) => {
                // After all entries with the key, of which there may be several.
                let mut moved = cursor.seek(key)?;
                while moved && is_within(&self.order, &self.bounds, cursor.key(), direction) {
                    moved = cursor.advance()?;
                }
                moved || cursor.seek_to_last()?
            }
        };
        while moved && !is_within(&self.order, &self.bounds, cursor.key(), direction) {
            moved = match direction {
                Direction::Forward => cursor.advance()?,
                Direction::Backward => cursor.prev()?,
            };
        }
        Ok(moved)
    }

    /// Moves to the next entry in `direction`; from the end of the opposite walk, to the first.
    pub(crate) fn step(&mut self, direction: Direction) -> Result<bool> {
        let moved = match (self.end, direction) {
            (Some(end), _) if end == direction => return Ok(false),
            (Some(_), _) => self.place_at_start(direction),
            (None, Direction::Forward) => self.cursor.advance(),
            (None, Direction::Backward) => self.cursor.prev(),
        };
        self.stop_at_bound(moved, direction)
    }

    /// Completes a move in `direction`: there are no entries past the bound.
    fn stop_at_bound(&mut self, moved: Result<bool>, direction: Direction) -> Result<bool> {
        self.end = Some(direction);
        if moved? {
            self.cursor.key().clone_into(&mut self.key);
            if is_within(&self.order, &self.bounds, &self.key, direction.reverse()) {
                self.end = None;
            }
        }
        Ok(self.is_read())
    }
}
