//! Cursors and ranges of plain tables as sorted inputs, and ranges as iterators.

use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{Comparator, Order};
use crate::error::Result;
use crate::read::parts::bounds::Direction;
use crate::read::walk::cursor::Cursor;
use crate::read::walk::merge::MergeCursor;
use crate::read::walk::range::TableRange;
use crate::read::walk::table_walk::TableWalk;
use crate::sorted_input::{SortedCursor, SortedInput};

/// The moves of a cursor, and both traits: with the methods of these names, and with those that lend and seek stored keys.
macro_rules! sorted_cursor {
    ($(#[$note:meta])* $type:ident, $key:ident, $seek:ident) => {
        /// Moves.
        impl $type {
            /// Moves to the first entry; returns `false` if there is none.
            ///
            /// # Errors
            ///
            /// Same as [`seek`](Self::seek).
            pub fn seek_to_first(&mut self) -> Result<bool> {
                self.seek_to_start(Direction::Forward)
            }

            /// Moves to the last entry; returns `false` if there is none.
            ///
            /// # Errors
            ///
            /// Same as [`seek`](Self::seek).
            pub fn seek_to_last(&mut self) -> Result<bool> {
                self.seek_to_start(Direction::Backward)
            }

            /// Moves to the next entry: from before the first entry to the first. Returns `false` after the last.
            ///
            /// # Errors
            ///
            /// Same as [`seek`](Self::seek), and [`ErrorKind::InvalidState`](crate::ErrorKind::InvalidState) after a failed move.
            #[inline]
            #[expect(clippy::should_implement_trait, reason = "an Iterator cannot lend")]
            pub fn next(&mut self) -> Result<bool> {
                self.step(Direction::Forward)
            }

            /// Moves to the previous entry: from after the last entry to the last. Returns `false` before the first.
            ///
            /// # Errors
            ///
            /// Same as [`next`](Self::next).
            #[inline]
            pub fn prev(&mut self) -> Result<bool> {
                self.step(Direction::Backward)
            }
        }

        $(#[$note])*
        impl SortedInput for $type {
            fn advance(&mut self) -> Result<bool> {
                self.next()
            }

            fn key(&self) -> &[u8] {
                self.$key()
            }

            fn value(&self) -> &[u8] {
                self.value()
            }
        }

        impl SortedCursor for $type {
            fn seek(&mut self, key: &[u8]) -> Result<bool> {
                self.$seek(key)
            }

            fn seek_to_first(&mut self) -> Result<bool> {
                self.seek_to_first()
            }

            fn seek_to_last(&mut self) -> Result<bool> {
                self.seek_to_last()
            }

            fn prev(&mut self) -> Result<bool> {
                self.prev()
            }

            fn value_bytes(&self) -> Bytes {
                self.value_bytes()
            }

            fn comparator(&self) -> Result<Arc<dyn Comparator>> {
                self.order().map(Order::to_comparator)
            }
        }
    };
}

/// Makes a range a sorted input, which lends keys with this method of its walk, and an iterator of its entries from both ends.
macro_rules! sorted_range {
    ($(#[$note:meta])* $type:ident, $entry:ty, $key:path) => {
        $(#[$note])*
        impl SortedInput for $type {
            fn advance(&mut self) -> Result<bool> {
                self.advance()
            }

            fn key(&self) -> &[u8] {
                self.0.lent().map_or(&[], $key)
            }

            fn value(&self) -> &[u8] {
                self.value()
            }
        }

        impl Iterator for $type {
            type Item = Result<$entry>;

            #[inline]
            fn next(&mut self) -> Option<Self::Item> {
                self.0.take(Direction::Forward)
            }

            /// Goes to the last entry at once: the entries between are not read, and so not checked.
            fn last(mut self) -> Option<Self::Item> {
                self.next_back()
            }
        }

        impl DoubleEndedIterator for $type {
            fn next_back(&mut self) -> Option<Self::Item> {
                self.0.take(Direction::Backward)
            }
        }

        impl std::iter::FusedIterator for $type {}
    };
}

pub(crate) use {sorted_cursor, sorted_range};

sorted_cursor!(
    /// The entries from the cursor's position on.
    Cursor, key, seek
);
sorted_cursor!(
    /// The entries from the cursor's position on.
    MergeCursor, key, seek
);

sorted_range!(
    /// The remaining entries of the range. Lends keys, which the iterator copies.
    TableRange, (Bytes, Bytes), TableWalk::key
);
