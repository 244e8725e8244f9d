//! Cursors and ranges of a database's tables as sorted inputs: their keys are internal keys.

use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{Comparator, Order};
use crate::db::compaction::Compaction;
use crate::db::cursor::DbCursor;
use crate::db::entry::DbEntry;
use crate::db::range::DbRange;
use crate::error::Result;
use crate::read::parts::bounds::Direction;
use crate::read::walk::ends::Walk;
use crate::read::walk::inputs::{sorted_cursor, sorted_range};
use crate::sorted_input::{SortedCursor, SortedInput};

sorted_cursor!(
    /// From the cursor's position on. The key is the stored one: user key, sequence number and type; seeks are for stored keys, too.
    DbCursor, stored_key, seek_stored
);

sorted_range!(
    /// The remaining entries of the range. The key is the stored one: user key, sequence number and type.
    DbRange, DbEntry, DbCursor::stored_key
);

/// The remaining entries of the compaction. The key is the stored one: user key, sequence number and type.
impl<D: FnMut(&[u8]) -> bool> SortedInput for Compaction<D> {
    fn advance(&mut self) -> Result<bool> {
        Ok(self.next()?.is_some())
    }

    fn key(&self) -> &[u8] {
        self.versions.stored_key()
    }

    fn value(&self) -> &[u8] {
        self.versions.value()
    }
}
