//! Cursors and ranges of a database's tables as sorted inputs: their keys are internal keys.

use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{Comparator, Order};
use crate::db::compaction::Compaction;
use crate::db::cursor::DbCursor;
use crate::db::range::DbRange;
use crate::error::Result;
use crate::read::walk::inputs::sorted_cursor;
use crate::sorted_input::{SortedCursor, SortedInput};

sorted_cursor!(
    /// From the cursor's position on. The key is the stored one: user key, sequence number and type; seeks are for stored keys, too.
    DbCursor, stored_key, seek_stored
);

/// The remaining entries of the range. The key is the stored one: user key, sequence number and type.
impl SortedInput for DbRange {
    fn advance(&mut self) -> Result<bool> {
        self.advance()
    }

    fn key(&self) -> &[u8] {
        self.0.lent().map_or(&[], DbCursor::stored_key)
    }

    fn value(&self) -> &[u8] {
        self.0.lent().map_or(&[], DbCursor::value)
    }
}

/// The remaining entries of the compaction. The key is the stored one: user key, sequence number and type.
impl SortedInput for Compaction {
    fn advance(&mut self) -> Result<bool> {
        Ok(self.next()?.is_some())
    }

    fn key(&self) -> &[u8] {
        self.current().stored_key()
    }

    fn value(&self) -> &[u8] {
        self.current().value()
    }
}
