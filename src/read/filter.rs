//! The filters of an open table, which appear when they are first needed: whole, or piece by piece.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::filter::{FilterLayout, FilterPolicy, PrefixExtractor, RibbonFilterPolicy};
use crate::format::Defect;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::format::pieces_filter::FilterPieces;
use crate::format::prefix_block::PrefixBlockReader;
use crate::read::index::NotLoaded;
use crate::read::store::frame_range;

/// A filter block, of which `W` is the decoded form where it is read whole.
#[derive(Debug)]
pub(crate) struct FilterBlock<W> {
    pub(super) handle: BlockHandle,
    form: Form<W>,
}

#[derive(Debug)]
enum Form<W> {
    Whole(OnceLock<W>),
    /// A ribbon of the whole table, as `about.pieces` divides it, and the pieces that are there.
    InPieces(FilterPieces, Box<[OnceLock<Bytes>]>),
}

impl<W> FilterBlock<W> {
    /// The block at `handle`, which is read whole unless it is divided.
    pub(super) fn new(handle: BlockHandle, pieces: Option<FilterPieces>) -> FilterBlock<W> {
        let form = match pieces {
            None => Form::Whole(OnceLock::new()),
            Some(pieces) => {
                let cells = (0..pieces.len()).map(|_| OnceLock::new()).collect();
                Form::InPieces(pieces, cells)
            }
        };
        FilterBlock { handle, form }
    }

    /// Bytes of memory that it takes without its pieces.
    pub(super) fn weight(&self) -> usize {
        match &self.form {
            Form::Whole(_) => 0,
            Form::InPieces(pieces, cells) => pieces.weight() + size_of_val(&**cells),
        }
    }

    /// Whether the filter passes a key: `whole` says what the block does, if it is read whole, and `hash` is that of the key.
    #[inline]
    fn ask(
        &self,
        hash: impl FnOnce() -> u64,
        whole: impl FnOnce(&W) -> bool,
    ) -> Result<bool, NotLoaded> {
        match &self.form {
            Form::Whole(block) => Ok(whole(block.get().ok_or(NotLoaded)?)),
            Form::InPieces(pieces, cells) => {
                let passes = pieces.ask(hash(), |i| there(cells, i));
                passes.ok_or(NotLoaded)
            }
        }
    }

    /// The pieces that are not there and that a key with this `hash` needs next; where its codes are missing, those that it needs
    /// if it is in one of the first `layers` layers of the ribbon. A block that is read whole is piece 0.
    pub(super) fn missing_for(&self, hash: u64, layers: usize) -> Vec<usize> {
        match &self.form {
            Form::Whole(_) => self.missing(),
            Form::InPieces(pieces, cells) => pieces.missing(hash, layers, |i| there(cells, i)),
        }
    }

    /// All pieces that are not there.
    pub(super) fn missing(&self) -> Vec<usize> {
        match &self.form {
            Form::Whole(block) if block.get().is_some() => Vec::new(),
            Form::Whole(_) => vec![0],
            Form::InPieces(pieces, cells) => (0..pieces.len())
                .filter(|&i| there(cells, i).is_none())
                .collect(),
        }
    }

    /// Where piece `i` lies in the file.
    pub(super) fn range(&self, i: usize) -> Range<u64> {
        match &self.form {
            Form::Whole(_) => frame_range(self.handle),
            Form::InPieces(pieces, _) => pieces.range(i),
        }
    }

    /// Checks and keeps piece `i`, whose `bytes` are those at its range; `decode` takes a block that is read whole. Returns how many
    /// bytes of memory it takes.
    fn admit(
        &self,
        i: usize,
        bytes: &Bytes,
        decode: impl FnOnce(Bytes) -> Result<W, Defect>,
    ) -> Result<usize, Defect> {
        let is_new = match &self.form {
            Form::Whole(block) => {
                frame::verify(bytes)?;
                block.set(decode(frame::open(bytes)?)?).is_ok()
            }
            Form::InPieces(pieces, cells) => {
                pieces.check(i, bytes)?;
                cells
                    .get(i)
                    .is_some_and(|cell| cell.set(bytes.clone()).is_ok())
            }
        };
        Ok(if is_new { bytes.len() } else { 0 })
    }
}

/// A piece of a filter, if it is there.
#[inline]
fn there(cells: &[OnceLock<Bytes>], i: usize) -> Option<&[u8]> {
    cells.get(i)?.get().map(Bytes::as_ref)
}

/// The filter in use, with the policy that understands it.
#[derive(Debug)]
pub(crate) struct TableFilter {
    pub(crate) policy: Arc<dyn FilterPolicy>,
    pub(super) block: FilterBlock<KeyFilter>,
}

/// A block of filters of keys, read whole.
#[derive(Debug)]
pub(super) struct KeyFilter {
    block: FilterBlockReader,
    /// Whether one filter covers every data block.
    whole_table: bool,
}

impl TableFilter {
    /// Whether a filter of the whole table passes `key`. `None` if there are filters of windows, which know no key of another block.
    #[inline]
    pub(super) fn passes_table(&self, key: &[u8]) -> Result<Option<bool>, NotLoaded> {
        let mut is_of_table = true;
        let hash = || RibbonFilterPolicy::hash(key);
        let passes = self.block.ask(hash, |filter| {
            is_of_table = filter.whole_table;
            !is_of_table || filter.block.key_may_match(&*self.policy, 0, key)
        })?;
        Ok(is_of_table.then_some(passes))
    }

    /// Whether the filter of the data block at `block_offset` passes `key`. `None` if there is one filter of the whole table.
    #[inline]
    pub(super) fn passes_block(
        &self,
        block_offset: u64,
        key: &[u8],
    ) -> Result<Option<bool>, NotLoaded> {
        match &self.block.form {
            Form::InPieces(..) => Ok(None),
            Form::Whole(block) => {
                let filter = block.get().ok_or(NotLoaded)?;
                let passes = || filter.block.key_may_match(&*self.policy, block_offset, key);
                Ok((!filter.whole_table).then(passes))
            }
        }
    }

    /// Whether the filter passes `key`, which is looked for in the data block at `block_offset`.
    pub(crate) fn passes(&self, block_offset: u64, key: &[u8]) -> Result<bool, NotLoaded> {
        match self.passes_table(key)? {
            Some(passes) => Ok(passes),
            None => Ok(self.passes_block(block_offset, key)?.unwrap_or(true)),
        }
    }

    /// What is in the block; `None` if it is read whole, and is not there.
    pub(crate) fn layout(&self) -> Option<FilterLayout> {
        match &self.block.form {
            Form::InPieces(..) => Some(FilterLayout {
                filters: 1,
                whole_table: true,
            }),
            Form::Whole(block) => block.get().map(|filter| FilterLayout {
                filters: filter.block.filter_count(),
                whole_table: filter.whole_table,
            }),
        }
    }

    /// Checks and keeps piece `i`; `last_block` is the offset of the last data block. Returns how many bytes of memory it takes.
    pub(super) fn admit(
        &self,
        i: usize,
        bytes: &Bytes,
        last_block: Option<u64>,
    ) -> Result<usize, Defect> {
        self.block.admit(i, bytes, |contents| {
            let block = FilterBlockReader::new(contents)?;
            let whole_table = last_block.is_some_and(|last| block.covers_all(last));
            Ok(KeyFilter { block, whole_table })
        })
    }
}

/// The prefix filter in use. Only in a table whose keys, or user keys, are in bytewise order.
#[derive(Debug)]
pub(super) struct PrefixFilter {
    pub(super) extractor: Arc<dyn PrefixExtractor>,
    pub(super) block: FilterBlock<PrefixBlockReader>,
}

impl PrefixFilter {
    /// Whether a key of the table may begin with `prefix`.
    pub(super) fn passes(&self, prefix: &[u8]) -> Result<bool, NotLoaded> {
        let hash = || RibbonFilterPolicy::hash(prefix);
        self.block.ask(hash, |block| block.may_match(prefix))
    }

    /// Checks and keeps piece `i`. Returns how many bytes of memory it takes.
    pub(super) fn admit(&self, i: usize, bytes: &Bytes) -> Result<usize, Defect> {
        self.block.admit(i, bytes, PrefixBlockReader::new)
    }
}
