//! The filters of an open table, which appear when they are first needed: whole, or piece by piece.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::filter::{FilterLayout, FilterPolicy, PrefixExtractor, RibbonFilterPolicy};
use crate::format::Defect;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::format::pieces_filter::FilterPieces;
use crate::read::index::NotLoaded;
use crate::read::store::frame_range;

/// A filter in use.
#[derive(Debug)]
pub(crate) struct TableFilter {
    pub(super) of: FilterOf,
    pub(super) handle: BlockHandle,
    form: Form,
    /// Bytes of memory that the pieces take that are there.
    held: AtomicUsize,
}

/// What a filter holds.
#[derive(Debug, Clone)]
pub(crate) enum FilterOf {
    /// Keys, by this policy.
    Keys(Arc<dyn FilterPolicy>),
    /// Prefixes of keys, by the default policy. Only in a table whose keys, or user keys, are in bytewise order.
    Prefixes(Arc<dyn PrefixExtractor>),
}

#[derive(Debug)]
enum Form {
    /// All of it, which is piece 0.
    Whole(OnceLock<Whole>),
    /// A ribbon of the whole table, as `about.pieces` divides it, and the pieces that are there.
    InPieces(FilterPieces, Box<[OnceLock<Bytes>]>),
}

/// A filter block that was read whole.
#[derive(Debug)]
struct Whole {
    filter: FilterBlockReader,
    /// Whether it consists of filters of the keys of data blocks at some offsets; else it is one filter of the keys of every data
    /// block, or of their prefixes.
    is_of_windows: bool,
}

impl TableFilter {
    /// The filter in the block at `handle`, which is read whole unless it is divided.
    pub(super) fn new(
        of: FilterOf,
        handle: BlockHandle,
        pieces: Option<FilterPieces>,
    ) -> TableFilter {
        let form = match pieces {
            None => Form::Whole(OnceLock::new()),
            Some(pieces) => {
                let cells = (0..pieces.len()).map(|_| OnceLock::new()).collect();
                Form::InPieces(pieces, cells)
            }
        };
        let held = AtomicUsize::new(0);
        TableFilter {
            of,
            handle,
            form,
            held,
        }
    }

    /// Decodes a block that was read whole. `last_block` is the offset of the last data block.
    fn decode(&self, contents: Bytes, last_block: Option<u64>) -> Result<Whole, Defect> {
        let filter = FilterBlockReader::new(contents)?;
        let is_of_windows = match &self.of {
            FilterOf::Keys(_) => !last_block.is_some_and(|last| filter.covers_all(last)),
            FilterOf::Prefixes(_) => filter.check_prefixes().map(|()| false)?,
        };
        Ok(Whole {
            filter,
            is_of_windows,
        })
    }

    /// Bytes of memory that it takes, with the pieces that are there.
    pub(super) fn weight(&self) -> usize {
        let own = match &self.form {
            Form::Whole(_) => 0,
            Form::InPieces(pieces, cells) => pieces.weight() + size_of_val(&**cells),
        };
        own + self.held.load(Relaxed)
    }

    /// Number of pieces.
    pub(super) fn pieces(&self) -> usize {
        match &self.form {
            Form::Whole(_) => 1,
            Form::InPieces(pieces, _) => pieces.len(),
        }
    }

    /// Whether piece `i` is there.
    pub(super) fn has(&self, i: usize) -> bool {
        match &self.form {
            Form::Whole(block) => block.get().is_some(),
            Form::InPieces(_, cells) => piece(cells, i).is_some(),
        }
    }

    /// The pieces that `key` needs next, some of which may be there; where its codes are missing, those that it needs if it is in one
    /// of the first `layers` layers of the ribbon.
    pub(super) fn needed(&self, key: &[u8], layers: usize) -> Vec<usize> {
        match &self.form {
            Form::Whole(_) => vec![0],
            Form::InPieces(pieces, cells) => {
                pieces.missing(RibbonFilterPolicy::hash(key), layers, |i| piece(cells, i))
            }
        }
    }

    /// Where piece `i` lies in the file.
    pub(super) fn range(&self, i: usize) -> Range<u64> {
        match &self.form {
            Form::Whole(_) => frame_range(self.handle),
            Form::InPieces(pieces, _) => pieces.range(i),
        }
    }

    /// Checks and keeps piece `i`, whose `bytes` are those at its range; `last_block` is the offset of the last data block.
    pub(super) fn admit(
        &self,
        i: usize,
        bytes: &Bytes,
        last_block: Option<u64>,
    ) -> Result<(), Defect> {
        // Another thread may have been faster.
        let is_new = match &self.form {
            Form::Whole(block) => {
                frame::verify(bytes)?;
                let decoded = self.decode(frame::open(bytes)?, last_block)?;
                block.set(decoded).is_ok()
            }
            Form::InPieces(pieces, cells) => {
                pieces.check(i, bytes)?;
                let cell = cells.get(i);
                cell.is_some_and(|cell| cell.set(bytes.clone()).is_ok())
            }
        };
        if is_new {
            self.held.fetch_add(bytes.len(), Relaxed);
        }
        Ok(())
    }

    /// Whether it consists of filters of windows, which know no key of another block than the one that they are asked for.
    #[inline]
    pub(super) fn is_of_windows(&self) -> Result<bool, NotLoaded> {
        match &self.form {
            Form::InPieces(..) => Ok(false),
            Form::Whole(filter) => Ok(filter.get().ok_or(NotLoaded)?.is_of_windows),
        }
    }

    /// Whether the filter passes `key`, which is looked for in the data block at offset `block`: any, unless it is [of
    /// windows](Self::is_of_windows).
    #[inline(never)]
    pub(crate) fn ask(&self, key: &[u8], block: u64) -> Result<bool, NotLoaded> {
        match &self.form {
            Form::InPieces(pieces, cells) => {
                let passes = pieces.ask(RibbonFilterPolicy::hash(key), |i| piece(cells, i));
                passes.ok_or(NotLoaded)
            }
            Form::Whole(filter) => {
                let filter = &filter.get().ok_or(NotLoaded)?.filter;
                Ok(match &self.of {
                    FilterOf::Keys(policy) => filter.key_may_match(&**policy, block, key),
                    FilterOf::Prefixes(_) => filter.prefix_may_match(key),
                })
            }
        }
    }

    /// What is in the block; `None` if it is read whole, and is not there.
    pub(crate) fn layout(&self) -> Option<FilterLayout> {
        let filters = match &self.form {
            Form::InPieces(..) => 1,
            Form::Whole(filter) => filter.get()?.filter.filter_count,
        };
        Some(FilterLayout {
            filters,
            whole_table: !self.is_of_windows().ok()?,
        })
    }
}

/// A piece of a filter, if it is there.
#[inline]
fn piece(cells: &[OnceLock<Bytes>], i: usize) -> Option<&[u8]> {
    cells.get(i)?.get().map(Bytes::as_ref)
}
