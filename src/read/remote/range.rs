//! The entries of a remote table within bounds.

use std::ops::{Bound, Range};

use bytes::Bytes;

use super::ahead::Blocks;
use super::table::AsyncTable;
use crate::error::{Error, Result};
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::read::range::{self, Bounds};
use crate::read::table::Table;

/// The entries of an [`AsyncTable`] within bounds, in order; made by [`AsyncTable::range`].
///
/// Ends after its first error: no entry is skipped in silence. Each key is a copy; values are slices of their blocks. What
/// was asked for and has not come yet is cancelled when the range is dropped.
#[derive(Debug)]
#[must_use]
pub struct AsyncRange {
    table: AsyncTable,
    bounds: Bounds,
    blocks: Blocks,
    /// Walks data block `block`.
    entries: BlockCursor<Bytes>,
    block: usize,
    /// The first and the last data block of the range: others have no entries outside the bounds.
    ends: (usize, usize),
    /// To return instead of the first entry.
    error: Option<Error>,
    is_done: bool,
}

/// Where a key lies.
enum Place {
    Before,
    Within,
    After,
}

impl AsyncRange {
    /// What is left of `range`, which is one of the table.
    pub(super) fn new(table: &AsyncTable, range: range::Range) -> AsyncRange {
        let plan = || match range.into_parts()? {
            (_, Some(bounds)) => Ok(Some((blocks_of(&table.table, &bounds)?, bounds))),
            (_, None) => Ok(None),
        };
        let (planned, error) = match plan() {
            Ok(planned) => (planned, None),
            Err(error) => (None, Some(error)),
        };
        let (blocks, bounds) = planned.unwrap_or((0..0, (Bound::Unbounded, Bound::Unbounded)));
        AsyncRange {
            table: table.clone(),
            bounds,
            ends: (blocks.start, blocks.end.saturating_sub(1)),
            blocks: Blocks::new(blocks),
            entries: BlockCursor::new(Block::empty()),
            block: 0,
            error,
            is_done: false,
        }
    }

    /// Says that all entries will be read: requests are of 8 MiB from the first on, four at a time, instead of growing to that.
    /// Saves some three round trips, and wastes up to 32 MiB of reading if the caller stops early after all.
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
    pub async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        if self.is_done {
            return Ok(None);
        }
        let next = self.step().await;
        self.is_done = !matches!(next, Ok(Some(_)));
        next
    }

    async fn step(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        loop {
            let table = &self.table.table;
            let moved = self.entries.next();
            if moved.map_err(|defect| table.locate(self.block, defect))? {
                match self.place()? {
                    Place::Before => continue,
                    Place::Within => return Ok(Some(self.entry())),
                    Place::After => return Ok(None),
                }
            }
            let Some((i, payload)) = self.blocks.next(&self.table).await? else {
                return Ok(None);
            };
            let block = Block::parse(payload);
            self.entries
                .reset(block.map_err(|defect| table.locate(i, defect))?);
            self.block = i;
        }
    }

    /// Where the current key lies.
    fn place(&self) -> Result<Place> {
        let (table, key) = (&self.table.table, self.entries.key());
        if self.block == self.ends.0 && !table.is_above(key, &self.bounds.0)? {
            return Ok(Place::Before);
        }
        if self.block == self.ends.1 && !table.is_below(key, &self.bounds.1)? {
            return Ok(Place::After);
        }
        Ok(Place::Within)
    }

    /// The current entry, to keep.
    fn entry(&self) -> (Bytes, Bytes) {
        let value = self.entries.value_range();
        let key = Bytes::copy_from_slice(self.entries.key());
        (key, self.entries.block().data().slice(value))
    }
}

/// The data blocks that may have entries within `bounds`, or must be seen to be sure that none has.
fn blocks_of(table: &Table, (lower, upper): &Bounds) -> Result<Range<usize>> {
    let all = table.data_blocks();
    let block_at = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => {
            let found = table.index().seek(key, table.order()?);
            Ok(found.map(|found| found.block))
        }
        Bound::Unbounded => Ok(None),
    };
    let start = match (lower, block_at(lower)?) {
        // The block ends with the key at the latest.
        (Bound::Excluded(key), Some(block))
            if table
                .order()?
                .compare(key, table.index().key(block))
                .is_eq() =>
        {
            block + 1
        }
        (_, Some(block)) => block,
        (Bound::Unbounded, None) => 0,
        // Past the last index key there is nothing if the last block is in order, which is seen when it comes in.
        (_, None) if table.inner.knows_end() => all,
        (_, None) => all.saturating_sub(1),
    };
    let end = block_at(upper)?.map_or(all, |last| last + 1);
    Ok(start..end.max(start))
}
