//! Cursors and ranges of plain tables as sorted inputs.

use crate::error::Result;
use crate::read::parts::bounds::Way;
use crate::read::walk::cursor::Cursor;
use crate::read::walk::merge::MergeCursor;
use crate::read::walk::range::TableRange;
use crate::sorted_input::SortedInput;

/// From the cursor's position on.
impl SortedInput for Cursor {
    fn advance(&mut self) -> Result<bool> {
        self.next()
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn value(&self) -> &[u8] {
        self.value()
    }
}

/// From the cursor's position on.
impl SortedInput for MergeCursor {
    fn advance(&mut self) -> Result<bool> {
        self.next()
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn value(&self) -> &[u8] {
        self.value()
    }
}

/// What is left of the range. Lends keys, which the iterator copies.
impl SortedInput for TableRange {
    fn advance(&mut self) -> Result<bool> {
        self.0.advance(Way::Forward)
    }

    fn key(&self) -> &[u8] {
        self.0.lent().map_or(&[], MergeCursor::key)
    }

    fn value(&self) -> &[u8] {
        self.0.lent().map_or(&[], MergeCursor::value)
    }
}
