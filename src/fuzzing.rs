//! What the fuzz targets in `fuzz/` reach beside the public API: blocks, filter blocks, and the policies
//! that have no public name.
//!
//! Compiled with `--cfg fuzzing` only, which `cargo fuzz` sets. No part of the API.

use std::sync::Arc;

use bytes::Bytes;

use crate::comparator::{Comparator, Order};
use crate::filter::FilterPolicy;
use crate::format::{Defect, block, block_cursor, filter_block};
use crate::read::options::OpenOptions;

/// Why some bytes were refused.
pub type Refused = String;

fn refused(defect: Defect) -> Refused {
    format!("{defect:?}")
}

/// The policies that every reader knows.
pub fn built_in_policies() -> Vec<Arc<dyn FilterPolicy>> {
    OpenOptions::new().known_policies()
}

/// A cursor over a block that passed the checks of a block when it is first read.
#[derive(Debug)]
pub struct BlockCursor {
    cursor: block_cursor::BlockCursor<Bytes>,
    order: Order,
}

impl BlockCursor {
    /// A cursor before the first entry of `block`, whose keys are in the order of `comparator`.
    ///
    /// # Errors
    ///
    /// Where the restarts do not fit the block.
    pub fn new(block: Bytes, comparator: impl Comparator + 'static) -> Result<Self, Refused> {
        let block = block::Block::parse(block).map_err(refused)?;
        block.check_restarts().map_err(refused)?;
        Ok(BlockCursor {
            cursor: block_cursor::BlockCursor::new(block),
            order: Order::of(comparator),
        })
    }

    /// Moves before the first entry.
    pub fn rewind(&mut self) {
        self.cursor.move_before_first();
    }

    /// Moves past the last entry.
    pub fn move_past_last(&mut self) {
        self.cursor.move_past_last();
    }

    /// Moves to the first entry at or after `target`; `false` if there is none.
    ///
    /// # Errors
    ///
    /// Where an entry on the way makes no sense, as for all moves. The cursor must then be positioned anew.
    pub fn seek(&mut self, target: &[u8]) -> Result<bool, Refused> {
        self.cursor.seek(target, &self.order).map_err(refused)
    }

    /// Moves to the next entry; `false` past the last.
    ///
    /// # Errors
    ///
    /// As [`seek`](Self::seek).
    #[expect(
        clippy::should_implement_trait,
        reason = "named as in the cursor inside"
    )]
    pub fn next(&mut self) -> Result<bool, Refused> {
        self.cursor.next().map_err(refused)
    }

    /// Moves to the previous entry; `false` before the first.
    ///
    /// # Errors
    ///
    /// As [`seek`](Self::seek).
    pub fn prev(&mut self) -> Result<bool, Refused> {
        self.cursor.prev().map_err(refused)
    }

    /// The current key.
    pub fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    /// The current value.
    pub fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    /// The value of `key` by a lookup, wherever the cursor stands.
    ///
    /// # Errors
    ///
    /// As [`seek`](Self::seek).
    pub fn find(&self, key: &[u8]) -> Result<Option<Bytes>, Refused> {
        let block = self.cursor.block();
        let found = block.find(key, &self.order).map_err(refused)?;
        Ok(found.map(|value| block.data().slice(value)))
    }
}

/// The builder of filter blocks; its calls match `(start_block add_key*)* finish`.
pub struct FilterBlockBuilder(filter_block::FilterBlockBuilder);

impl FilterBlockBuilder {
    /// A builder of one filter for the whole table, or of one for each 2 KiB of file.
    pub fn new(policy: &dyn FilterPolicy, whole_table: bool) -> Self {
        let span = match whole_table {
            true => filter_block::FilterSpan::Table,
            false => filter_block::FilterSpan::Window,
        };
        FilterBlockBuilder(filter_block::FilterBlockBuilder::new(
            policy.builder(),
            span,
        ))
    }

    /// Announces the data block at file offset `offset`.
    pub fn start_block(&mut self, offset: u64) {
        self.0.start_block(offset);
    }

    /// Adds a key of that block.
    pub fn add_key(&mut self, key: &[u8]) {
        self.0.add_key(key);
    }

    /// The filter block of a table whose data ends at file offset `data_end`.
    pub fn finish(self, data_end: u64) -> Option<Vec<u8>> {
        self.0.finish(data_end)
    }
}

/// The reader of filter blocks.
#[derive(Debug)]
pub struct FilterBlockReader(filter_block::FilterBlockReader);

impl FilterBlockReader {
    /// Takes a filter block apart.
    ///
    /// # Errors
    ///
    /// Where its parts do not fit it.
    pub fn new(contents: Bytes) -> Result<Self, Refused> {
        let reader = filter_block::FilterBlockReader::new(contents).map_err(refused)?;
        Ok(FilterBlockReader(reader))
    }

    /// Whether one filter covers every block up to the one at `last_block`.
    pub fn covers_all(&self, last_block: u64) -> bool {
        self.0.covers_all(last_block)
    }

    /// Number of filters.
    pub fn filter_count(&self) -> usize {
        self.0.filter_count()
    }

    /// Whether the data block at `block_offset` may hold `key`.
    pub fn key_may_match(&self, policy: &dyn FilterPolicy, block_offset: u64, key: &[u8]) -> bool {
        self.0.key_may_match(policy, block_offset, key)
    }
}
