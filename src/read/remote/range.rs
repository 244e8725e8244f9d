//! The entries of a remote table within bounds.

use std::ops::Range;

use bytes::Bytes;

use super::ahead::Blocks;
use super::table::AsyncTable;
use crate::comparator::Order;
use crate::error::{Error, Result};
use crate::read::bounds::{Bounds, Way, exclude_all, is_past_start, start};
use crate::read::cursor::Cursor;

/// The entries of an [`AsyncTable`] within bounds, in order; made by [`AsyncTable::range`].
///
/// [`next`](AsyncRange::next) returns entries to keep: each key is a copy, and values are slices of their blocks.
/// [`advance`](AsyncRange::advance) lends them until its next call, which takes less than half the time; those that
/// are wanted after all, [`entry`](AsyncRange::entry) returns.
///
/// Ends after its first error: no entry is skipped in silence. What was asked for and has not come yet is cancelled when the
/// range is dropped.
#[derive(Debug)]
#[must_use]
pub struct AsyncRange {
    table: AsyncTable,
    bounds: Bounds,
    /// It is given its blocks, which come from `blocks`.
    cursor: Cursor,
    blocks: Blocks,
    way: Way,
    /// Whether the bounds include all entries of the block that come next.
    is_inner: bool,
    /// Whether it is known which data blocks the walk may need.
    is_planned: bool,
    /// To return instead of the first entry.
    error: Option<Error>,
}

impl AsyncRange {
    /// The entries of the table within `bounds`, or an error instead.
    pub(super) fn new(table: &AsyncTable, bounds: Bounds, error: Option<Error>) -> AsyncRange {
        AsyncRange {
            cursor: table.table.cursor(),
            table: table.clone(),
            bounds,
            blocks: Blocks::new(0..0),
            way: Way::Forward,
            is_inner: false,
            is_planned: false,
            error,
        }
    }

    /// The data blocks that may have entries within the bounds: none if a filter of prefixes rules them out.
    async fn plan(&self) -> Result<Range<usize>> {
        let table = &self.table.table;
        match table.order() {
            Ok(order) if exclude_all(order, &self.bounds) => return Ok(0..0),
            Ok(Order::Bytewise) => {
                self.table.bring_prefixes(&self.bounds).await?;
                if table.prefixes_exclude(&self.bounds)? {
                    return Ok(0..0);
                }
            }
            // If the order is not known, a bound is an error.
            Ok(Order::Custom(_)) | Err(_) => {}
        }
        let parts = table.inner.missing_for_bounds(&self.bounds)?;
        self.table.bring(parts).await?;
        table.inner.blocks_within(&self.bounds)
    }

    /// Says which data blocks the walk may need.
    fn limit(&mut self, blocks: Range<usize>) {
        self.blocks.unasked = blocks.clone();
        self.cursor.ahead.limits = blocks;
        self.is_planned = true;
    }

    /// Returns the entries from the last to the first. To be called before the first is asked for.
    pub fn reverse(mut self) -> AsyncRange {
        self.way = Way::Back;
        self
    }

    /// Says that all entries will be read: requests are of 8 MiB from the first on, six at a time, instead of growing to that.
    /// Saves some two round trips, and wastes up to 48 MiB of reading if the caller stops early after all.
    pub fn expect_all(mut self) -> AsyncRange {
        self.blocks.expect_all();
        self
    }

    /// Returns the next entry, or `None` after the last.
    ///
    /// A future that is dropped before it is ready takes no entry: the next call returns it.
    ///
    /// # Errors
    ///
    /// Those of reading a data block; see [`AsyncTable::get`]. There are no entries after one.
    #[inline]
    pub async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        let moved = self.advance().await?;
        Ok(moved.then(|| self.entry()))
    }

    /// Moves to the next entry: to the first one at the first call. Returns `false` after the last.
    ///
    /// The range lends the entry as [`key`](AsyncRange::key) and [`value`](AsyncRange::value), without allocating, until the
    /// next call. A future that is dropped before it is ready takes no entry.
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
    /// As [`next`](AsyncRange::next).
    #[inline]
    pub async fn advance(&mut self) -> Result<bool> {
        if self.is_inner && self.cursor.step_plainly(self.way) {
            return Ok(true);
        }
        self.advance_slowly().await
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

    /// The current entry, to keep: a copy of the key, and a slice of the value's block. Both are empty where
    /// [`key`](AsyncRange::key) is.
    #[inline]
    pub fn entry(&self) -> (Bytes, Bytes) {
        (
            Bytes::copy_from_slice(self.key()),
            self.cursor.value_bytes(),
        )
    }

    async fn advance_slowly(&mut self) -> Result<bool> {
        let moved = self.step().await;
        if !matches!(moved, Ok(true)) {
            // Nothing is left.
            self.cursor = self.table.table.cursor();
            self.limit(0..0);
        }
        moved
    }

    async fn step(&mut self) -> Result<bool> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if !self.is_planned {
            let blocks = self.plan().await?;
            self.limit(blocks);
        }
        let (way, cursor) = (self.way, &mut self.cursor);
        let mut moved = cursor.is_valid() && cursor.step_in_block(way)?;
        while !moved {
            let Some(i) = cursor.next_block(way) else {
                return Ok(false);
            };
            let (found, payload, is_slice) = self.blocks.take(&self.table, i, way).await?;
            cursor.enter(found, payload, is_slice)?;
            self.is_inner = way.reverse().first(&cursor.ahead.limits) != Some(i);
            moved = cursor.seek_in_block(start(&self.bounds, way), way)?;
        }
        let order = || self.table.table.order();
        Ok(self.is_inner || is_past_start(&self.bounds, way.reverse(), self.cursor.key(), order)?)
    }
}
