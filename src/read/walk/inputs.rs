//! Cursors and ranges of plain tables as sorted inputs.

use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{Comparator, Order};
use crate::error::Result;
use crate::read::walk::cursor::Cursor;
use crate::read::walk::merge::MergeCursor;
use crate::read::walk::range::TableRange;
use crate::sorted_input::{SortedCursor, SortedInput};

/// Implements both traits with the methods of these names, and with those that lend and seek stored keys.
macro_rules! sorted_cursor {
    ($(#[$note:meta])* $type:ident, $key:ident, $seek:ident) => {
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

pub(crate) use sorted_cursor;

sorted_cursor!(
    /// The entries from the cursor's position on.
    Cursor, key, seek
);
sorted_cursor!(
    /// The entries from the cursor's position on.
    MergeCursor, key, seek
);

/// The remaining entries of the range. Lends keys, which the iterator copies.
impl SortedInput for TableRange {
    fn advance(&mut self) -> Result<bool> {
        self.advance()
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn value(&self) -> &[u8] {
        self.value()
    }
}
