//! The filters of an open table, which appear when they are first needed.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::filter::{FilterLayout, FilterPolicy, PrefixExtractor};
use crate::format::Defect;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::format::prefix_block::PrefixBlockReader;
use crate::read::index::Absent;

/// The filter in use, with the policy that understands it.
#[derive(Debug)]
pub(crate) struct TableFilter {
    pub(crate) policy: Arc<dyn FilterPolicy>,
    pub(super) handle: BlockHandle,
    block: OnceLock<KeyFilter>,
}

/// A filter block that was read.
#[derive(Debug)]
pub(crate) struct KeyFilter {
    pub(crate) block: FilterBlockReader,
    /// Whether one filter covers every data block.
    pub(crate) whole_table: bool,
}

impl TableFilter {
    pub(super) fn new(policy: Arc<dyn FilterPolicy>, handle: BlockHandle) -> TableFilter {
        TableFilter {
            policy,
            handle,
            block: OnceLock::new(),
        }
    }

    #[inline]
    pub(crate) fn block(&self) -> Result<&KeyFilter, Absent> {
        self.block.get().ok_or(Absent)
    }

    pub(super) fn layout(&self) -> Result<FilterLayout, Absent> {
        let filter = self.block()?;
        Ok(FilterLayout {
            filters: filter.block.filter_count(),
            whole_table: filter.whole_table,
        })
    }

    /// Whether the filter of the whole table passes `key`; `None` if there are filters of windows, which know no key of another
    /// block.
    #[inline]
    pub(super) fn passes_table(&self, key: &[u8]) -> Result<Option<bool>, Absent> {
        let filter = self.block()?;
        let passes = |filter: &KeyFilter| filter.block.key_may_match(&*self.policy, 0, key);
        Ok(filter.whole_table.then(|| passes(filter)))
    }

    /// Whether the filter of the data block at `block_offset` passes `key`; `None` if there is one filter of the whole table.
    #[inline]
    pub(super) fn passes_block(&self, block_offset: u64, key: &[u8]) -> Result<Option<bool>, Absent> {
        let filter = self.block()?;
        let passes = |filter: &KeyFilter| filter.block.key_may_match(&*self.policy, block_offset, key);
        Ok((!filter.whole_table).then(|| passes(filter)))
    }

    /// Keeps the filter block in `frame`, unless it is there. `last_block` is the offset of the last data block. Returns how many bytes
    /// of memory it takes.
    pub(super) fn admit(&self, frame: &Bytes, last_block: Option<u64>) -> Result<usize, Defect> {
        let contents = sound_contents(frame)?;
        let weight = contents.len();
        let block = FilterBlockReader::new(contents)?;
        let whole_table = last_block.is_some_and(|last| block.covers_all(last));
        let kept = self.block.set(KeyFilter { block, whole_table });
        Ok(if kept.is_ok() { weight } else { 0 })
    }
}

/// The prefix filter in use. Only in a table whose keys, or user keys, are in bytewise order.
#[derive(Debug)]
pub(super) struct PrefixFilter {
    pub(super) extractor: Arc<dyn PrefixExtractor>,
    pub(super) handle: BlockHandle,
    block: OnceLock<PrefixBlockReader>,
}

impl PrefixFilter {
    pub(super) fn new(extractor: Arc<dyn PrefixExtractor>, handle: BlockHandle) -> PrefixFilter {
        PrefixFilter {
            extractor,
            handle,
            block: OnceLock::new(),
        }
    }

    /// Whether a key of the table may begin with `prefix`.
    pub(super) fn passes(&self, prefix: &[u8]) -> Result<bool, Absent> {
        let block = self.block.get().ok_or(Absent)?;
        Ok(block.may_match(prefix))
    }

    /// Whether the filter block is there.
    pub(super) fn is_there(&self) -> bool {
        self.block.get().is_some()
    }

    /// Keeps the filter block in `frame`, unless it is there. Returns how many bytes of memory it takes.
    pub(super) fn admit(&self, frame: &Bytes) -> Result<usize, Defect> {
        let contents = sound_contents(frame)?;
        let weight = contents.len();
        let kept = self.block.set(PrefixBlockReader::new(contents)?);
        Ok(if kept.is_ok() { weight } else { 0 })
    }
}

/// The block in `frame`, which has a right checksum.
fn sound_contents(frame: &Bytes) -> Result<Bytes, Defect> {
    frame::verify(frame)?;
    frame::open(frame)
}
