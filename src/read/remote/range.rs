//! The entries of a remote table within bounds.

use std::ops::{Bound, Range};

use bytes::{Bytes, BytesMut};

use super::ahead::Blocks;
use super::table::AsyncTable;
use crate::comparator::Order;
use crate::error::{Error, Result};
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::read::cursor::lost;
use crate::read::index::BlockRef;
use crate::read::range::{self, Bounds};
use crate::read::table::Table;

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
    blocks: Blocks,
    /// Walks data block `block`.
    entries: BlockCursor<Bytes>,
    block: Option<BlockRef>,
    /// Whether the bounds include all entries of the block.
    is_inner: bool,
    /// Whether the block is a slice of all that came with it.
    is_slice: bool,
    /// A copy of such a block, once a value is asked for that keeps its block in memory.
    own: Option<Bytes>,
    /// Memory of such a copy that nobody has kept, for the next one.
    spare: BytesMut,
    /// The first and the last data block of the range: others have no entries outside the bounds.
    ends: (usize, usize),
    /// Whether it is known which data blocks those are.
    is_planned: bool,
    /// To return instead of the first entry.
    error: Option<Error>,
    is_reverse: bool,
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
    pub(super) fn new(table: &AsyncTable, range: range::TableRange) -> AsyncRange {
        let (bounds, error) = match range.into_parts() {
            Ok((_, bounds)) => (bounds, None),
            Err(error) => (None, Some(error)),
        };
        AsyncRange {
            table: table.clone(),
            is_done: bounds.is_none() && error.is_none(),
            is_planned: false,
            bounds: bounds.unwrap_or((Bound::Unbounded, Bound::Unbounded)),
            ends: (0, 0),
            blocks: Blocks::new(0..0),
            entries: BlockCursor::new(Block::empty()),
            block: None,
            is_inner: false,
            is_slice: false,
            own: None,
            spare: BytesMut::new(),
            error,
            is_reverse: false,
        }
    }

    /// Finds out which data blocks may have entries within the bounds: none if a filter of prefixes rules them out.
    async fn plan(&mut self) -> Result<()> {
        let (table, (lower, upper)) = (&self.table, &self.bounds);
        let inner = &*table.table.inner;
        let mut blocks = 0..0;
        let is_bytewise = matches!(inner.order, Some(Order::Bytewise));
        if is_bytewise {
            table.bring_prefixes(lower, upper).await?;
        }
        if !is_bytewise || !table.table.prefixes_exclude(lower, upper)? {
            table.bring(inner.parts_for_bounds(lower, upper)?).await?;
            blocks = blocks_of(&table.table, &self.bounds)?;
        }
        self.ends = (blocks.start, blocks.end.saturating_sub(1));
        self.blocks.begin(blocks);
        self.is_planned = true;
        Ok(())
    }

    /// Returns the entries from the last to the first. To be called before the first is asked for.
    pub fn reverse(mut self) -> AsyncRange {
        self.blocks.reverse();
        self.is_reverse = true;
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
        if self.is_inner && self.entries.step() {
            return Ok(true);
        }
        self.advance_slowly().await
    }

    /// The current key; empty before the first entry, after the last, after an error, and after a call of
    /// [`advance`](AsyncRange::advance) that was dropped while it waited.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.entries.key()
    }

    /// The current value; empty like [`key`](AsyncRange::key).
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.entries.value()
    }

    /// The current entry, to keep: a copy of the key, and a slice of the value's block. Both are empty where
    /// [`key`](AsyncRange::key) is.
    #[inline]
    pub fn entry(&mut self) -> (Bytes, Bytes) {
        let key = Bytes::copy_from_slice(self.entries.key());
        let data = self.entries.block().data();
        let block = if self.is_slice {
            let spare = &mut self.spare;
            self.own
                .get_or_insert_with(|| copy(data, std::mem::take(spare)))
        } else {
            data
        };
        (key, block.slice(self.entries.value_range()))
    }

    async fn advance_slowly(&mut self) -> Result<bool> {
        if self.is_done {
            return Ok(false);
        }
        let moved = self.step().await;
        if !matches!(moved, Ok(true)) {
            self.is_done = true;
            // No step leads on from there.
            self.entries.move_past_last();
        }
        moved
    }

    async fn step(&mut self) -> Result<bool> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if !self.is_planned {
            self.plan().await?;
        }
        loop {
            let moved = if self.is_reverse {
                self.entries.prev()
            } else {
                self.entries.next()
            };
            if moved.map_err(|defect| self.locate(defect))? {
                match self.place()? {
                    Place::Within => return Ok(true),
                    // The walk has yet to come to the bounds.
                    Place::Before if !self.is_reverse => continue,
                    Place::After if self.is_reverse => continue,
                    Place::Before | Place::After => return Ok(false),
                }
            }
            self.leave_block();
            let Some(arrived) = self.blocks.next(&self.table).await? else {
                return Ok(false);
            };
            let i = arrived.found.block;
            self.block = Some(arrived.found);
            let block = Block::parse(arrived.payload);
            self.entries
                .reset(block.map_err(|defect| self.locate(defect))?);
            if self.is_reverse {
                self.entries.move_past_last();
            }
            self.is_slice = arrived.is_slice;
            // The shortest way leads forward.
            self.is_inner = !self.is_reverse
                && (i != self.ends.0 || self.bounds.0 == Bound::Unbounded)
                && (i != self.ends.1 || self.bounds.1 == Bound::Unbounded);
        }
    }

    /// The error of a defect in the block that the range is in.
    #[cold]
    fn locate(&self, defect: Defect) -> Error {
        match self.block {
            Some(found) => self.table.table.locate(found, defect),
            None => lost(),
        }
    }

    /// Forgets the block. If nobody has kept a value of the copy that was made of it, the next copy takes its memory.
    fn leave_block(&mut self) {
        self.entries.reset(Block::empty());
        if let Some(Ok(memory)) = self.own.take().map(Bytes::try_into_mut) {
            self.spare = memory;
        }
    }

    /// Where the current key lies.
    fn place(&self) -> Result<Place> {
        let (table, key) = (&self.table.table, self.entries.key());
        let block = self.block.map(|found| found.block);
        if block == Some(self.ends.0) && !table.is_above(key, &self.bounds.0)? {
            return Ok(Place::Before);
        }
        if block == Some(self.ends.1) && !table.is_below(key, &self.bounds.1)? {
            return Ok(Place::After);
        }
        Ok(Place::Within)
    }
}

/// A copy of `block`, in the memory that is to spare if that is about as large: a value keeps all of it.
#[inline(never)]
fn copy(block: &[u8], mut spare: BytesMut) -> Bytes {
    let len = block.len().next_multiple_of(1 << 10);
    spare.clear();
    if !(block.len()..=2 * len).contains(&spare.capacity()) {
        spare = BytesMut::with_capacity(len);
    }
    spare.extend_from_slice(block);
    spare.freeze()
}

/// The data blocks that may have entries within `bounds`, or must be seen to be sure that none has. The walk checks the places of
/// those that it comes to.
fn blocks_of(table: &Table, (lower, upper): &Bounds) -> Result<Range<usize>> {
    let all = table.data_blocks();
    let block_at = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => table.inner.seek_one(key, table.order()?),
        Bound::Unbounded => Ok(None),
    };
    let start = match (lower, block_at(lower)?) {
        // The block ends with the key at the latest.
        (Bound::Excluded(key), Some(found))
            if table
                .order()?
                .compare(key, table.index().key(found))
                .is_eq() =>
        {
            found.block + 1
        }
        (_, Some(found)) => found.block,
        (Bound::Unbounded, None) => 0,
        // Past the last index key there is nothing if the last block is in order, which is seen when it comes in.
        (_, None) if table.index().is_end_checked() => all,
        (_, None) => all.saturating_sub(1),
    };
    let end = block_at(upper)?.map_or(all, |last| last.block + 1);
    Ok(start..end.max(start))
}
