//! The entries of a remote table within bounds.

use bytes::Bytes;

use super::fetch::{Fetcher, REQUEST_LAYERS};
use super::walk::WalkBlocks;
use crate::error::{Error, Result};
use crate::read::parts::bounds::{Bounds, Direction};
use crate::read::walk::cursor::Cursor;

/// The entries of an [`AsyncTable`](crate::remote::AsyncTable) within bounds, in order; made by
/// [`AsyncTable::range`](crate::remote::AsyncTable::range).
///
/// [`next`](AsyncRange::next) returns entries to keep: each key is a copy, and values are slices of their blocks.
/// [`advance`](AsyncRange::advance) lends them until its next call, which takes less than half the time;
/// [`entry`](AsyncRange::entry) then returns one to keep.
///
/// Ends after its first error: no entry is skipped silently. Dropping the range cancels its requests in flight.
#[derive(Debug)]
#[must_use]
pub struct AsyncRange {
    table: Fetcher,
    /// Its blocks come from `blocks`.
    cursor: Cursor,
    blocks: WalkBlocks,
    direction: Direction,
    /// Returned instead of the first entry.
    error: Option<Error>,
}

impl AsyncRange {
    /// The entries of the table within `bounds`, or an error instead.
    pub(super) fn new(table: &Fetcher, bounds: Bounds, error: Option<Error>) -> AsyncRange {
        AsyncRange {
            cursor: Cursor::of_table(&table.table, bounds),
            table: table.clone(),
            blocks: WalkBlocks::new(0..0),
            direction: Direction::Forward,
            error,
        }
    }

    /// Finds the data blocks that may have entries within the bounds: none if a filter of prefixes excludes them.
    async fn plan(&mut self) -> Result<()> {
        let (table, cursor) = (&self.table, &mut self.cursor);
        let parts = &table.table.opened.parts;
        if let Some(prefix) = cursor.prefix_to_ask() {
            let passes = table.ask(|| parts.passes_prefix(&prefix, REQUEST_LAYERS));
            cursor.note_prefix(passes.await?);
        }
        if cursor.ahead.limits.is_none() {
            let order = table.table.order_of(&cursor.bounds)?;
            let within = table.ask(|| parts.blocks_within(&cursor.bounds, order));
            cursor.limit_to(within.await?);
        }
        self.blocks.unasked = cursor.ahead.limits();
        Ok(())
    }

    /// Returns the entries from the last to the first. Call it before the first entry is taken. A [`TableRange`](crate::TableRange) can be
    /// read from both ends, this one only from the chosen end.
    pub fn reverse(mut self) -> AsyncRange {
        self.direction = Direction::Backward;
        self
    }

    /// Says that all entries of the range will be read, of an [`AsyncTable`](super::table::AsyncTable): requests are of 8 MiB from the
    /// first on, six at a time, instead of growing to that. Saves some two round trips, and wastes up to 48 MiB of reads if the caller stops early.
    pub fn expect_all(mut self) -> AsyncRange {
        self.blocks.expect_all();
        self
    }

    /// Returns the next entry, or `None` after the last.
    ///
    /// Dropping the future before it is ready takes no entry: the next call returns it.
    ///
    /// # Errors
    ///
    /// Errors of reading a data block; see [`AsyncTable::get`](crate::remote::AsyncTable::get). The range then ends.
    pub async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        let moved = self.advance().await?;
        Ok(moved.then(|| self.entry()))
    }

    /// Moves to the next entry; the first call moves to the first one. Returns `false` after the last.
    ///
    /// The range lends the entry as [`key`](AsyncRange::key) and [`value`](AsyncRange::value), without allocating, until the
    /// next call. Dropping the future before it is ready takes no entry.
    ///
    /// ```
    /// # use leveltable::remote::AsyncTable;
    /// # async fn sum(table: AsyncTable) -> leveltable::Result<usize> {
    /// let (mut all, mut bytes) = (table.range(..), 0);
    /// while all.advance().await? {
    ///     bytes += all.key().len() + all.value().len();
    /// }
    /// # Ok(bytes)
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`next`](AsyncRange::next).
    pub async fn advance(&mut self) -> Result<bool> {
        if self.cursor.step_fast(self.direction) {
            return Ok(true);
        }
        let moved = self.step().await;
        if !matches!(moved, Ok(true)) {
            // Nothing is left.
            self.cursor = self.table.table.cursor();
            self.cursor.limit_to(0..0);
        }
        moved
    }

    /// The current key; empty before the first entry, after the last, after an error, and after a call of
    /// [`advance`](AsyncRange::advance) that was dropped while it waited.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    /// The current value; empty like [`key`](AsyncRange::key).
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    /// The current entry, to keep: a copy of the key, and a slice of the value's block. Both are empty when
    /// [`key`](AsyncRange::key) is.
    pub fn entry(&self) -> (Bytes, Bytes) {
        (
            Bytes::copy_from_slice(self.key()),
            self.cursor.value_bytes(),
        )
    }

    async fn step(&mut self) -> Result<bool> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.cursor.ahead.limits.is_none() {
            self.plan().await?;
        }
        let (direction, cursor) = (self.direction, &mut self.cursor);
        let mut moved = cursor.is_valid() && cursor.step_in_block(direction)?;
        while !moved {
            let Some(i) = cursor.next_block(direction) else {
                return Ok(false);
            };
            let (found, payload, is_slice) = self.blocks.take(&self.table, i, direction).await?;
            cursor.enter(found, payload, is_slice)?;
            moved = cursor.seek_in_block(direction)?;
        }
        cursor.stop_at_bound(moved, direction)
    }
}
