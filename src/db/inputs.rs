//! Cursors and ranges of a database's tables as sorted inputs: their keys are internal keys.

use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{Comparator, Order};
use crate::db::compaction::Compaction;
use crate::db::cursor::DbCursor;
use crate::db::range::DbRange;
use crate::error::Result;
use crate::sorted_input::{SortedCursor, SortedInput};

/// From the cursor's position on. The key is the stored one: user key, sequence number and type.
impl SortedInput for DbCursor {
    fn advance(&mut self) -> Result<bool> {
        self.next()
    }

    fn key(&self) -> &[u8] {
        self.stored_key()
    }

    fn value(&self) -> &[u8] {
        self.value()
    }
}

/// Seeks stored keys, too.
impl SortedCursor for DbCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.seek_stored(key)
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
        self.stored.order().map(Order::to_comparator)
    }
}

/// What is left of the range. The key is the stored one: user key, sequence number and type.
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

/// What is left of the compaction. The key is the stored one: user key, sequence number and type.
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
