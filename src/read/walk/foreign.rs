//! Sorted inputs of other kinds among those of a merge.

use bytes::Bytes;

use crate::comparator::Order;
use crate::error::Result;
use crate::read::parts::bounds::{Bounds, Direction, is_within, key_of};
use crate::sorted_input::SortedCursor;

/// A sorted input of any kind that can be copied.
pub(crate) trait AnyCursor: SortedCursor + Send + Sync {
    fn copy(&self) -> Box<dyn AnyCursor>;
}

impl<C: SortedCursor + Clone + Send + Sync + 'static> AnyCursor for C {
    fn copy(&self) -> Box<dyn AnyCursor> {
        Box::new(self.clone())
    }
}

/// Those of its entries that are within bounds.
pub(crate) struct Foreign {
    cursor: Box<dyn AnyCursor>,
    pub(crate) order: Order,
    bounds: Bounds,
    /// A copy of the current key: a merge compares keys several times for each step.
    key: Vec<u8>,
    is_on_entry: bool,
    /// Where it stands if that is on no entry: where a walk in this direction ends.
    end: Direction,
}

impl Clone for Foreign {
    fn clone(&self) -> Foreign {
        Foreign {
            cursor: self.cursor.copy(),
            order: self.order.clone(),
            bounds: self.bounds.clone(),
            key: self.key.clone(),
            is_on_entry: self.is_on_entry,
            end: self.end,
        }
    }
}

impl Foreign {
    pub(crate) fn new(cursor: impl AnyCursor + 'static, bounds: Bounds) -> Result<Foreign> {
        Ok(Foreign {
            order: Order::of(cursor.comparator()?),
            cursor: Box::new(cursor),
            bounds,
            key: Vec::new(),
            is_on_entry: false,
            end: Direction::Backward,
        })
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.is_on_entry.then_some(&self.key)
    }

    pub(crate) fn value(&self) -> &[u8] {
        if self.is_on_entry {
            self.cursor.value()
        } else {
            &[]
        }
    }

    pub(crate) fn value_bytes(&self) -> Bytes {
        self.cursor.value_bytes()
    }

    /// Moves before the first entry.
    pub(crate) fn rewind(&mut self) {
        (self.is_on_entry, self.end) = (false, Direction::Backward);
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
            (None, Direction::Backward) => cursor.seek_to_last()?,
            (Some(key), Direction::Forward) => cursor.seek(key)?,
            (Some(key), Direction::Backward) => {
                // Past all entries of the key, of which there may be several.
                let mut moved = cursor.seek(key)?;
                while moved && is_within(&self.order, &self.bounds, cursor.key(), direction) {
                    moved = cursor.advance()?;
                }
                if moved {
                    cursor.prev()?
                } else {
                    cursor.seek_to_last()?
                }
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

    /// Moves to the next entry in `direction`; from where the opposite walk ends, to the first.
    pub(crate) fn step(&mut self, direction: Direction) -> Result<bool> {
        if !self.is_on_entry {
            return if self.end == direction {
                Ok(false)
            } else {
                self.seek_to_start(direction)
            };
        }
        let moved = match direction {
            Direction::Forward => self.cursor.advance(),
            Direction::Backward => self.cursor.prev(),
        };
        self.stop_at_bound(moved, direction)
    }

    /// Ends a move in `direction`: there are no entries past the bound.
    fn stop_at_bound(&mut self, moved: Result<bool>, direction: Direction) -> Result<bool> {
        (self.is_on_entry, self.end) = (false, direction);
        if moved? {
            self.cursor.key().clone_into(&mut self.key);
            self.is_on_entry = is_within(&self.order, &self.bounds, &self.key, direction.reverse());
        }
        Ok(self.is_on_entry)
    }
}
