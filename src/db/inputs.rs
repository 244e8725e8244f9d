//! Cursors and ranges of a database's tables as sorted inputs: their keys are internal keys.

use crate::db::compaction::Compaction;
use crate::db::cursor::DbCursor;
use crate::db::range::DbRange;
use crate::error::Result;
use crate::read::parts::bounds::Way;
use crate::sorted_input::SortedInput;

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

/// What is left of the range. The key is the stored one: user key, sequence number and type.
impl SortedInput for DbRange {
    fn advance(&mut self) -> Result<bool> {
        self.0.advance(Way::Forward)
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
