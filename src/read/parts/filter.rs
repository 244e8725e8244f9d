//! The filters of an open table, which are loaded when they are first needed: whole, or piece by piece.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::filter::{FilterEntry, FilterPolicy, PrefixExtractor, RibbonFilterPolicy};
use crate::format::Defect;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::BlockHandle;
use crate::format::frame;
use crate::format::pieces_filter::FilterPieces;
use crate::read::parts::index::NotLoaded;
use crate::read::source::weight::weight_of;

/// A filter in use.
#[derive(Debug)]
pub(crate) struct TableFilter {
    pub(crate) of: FilterContents,
    pub(crate) entry: FilterEntry,
    handle: BlockHandle,
    /// A ribbon of the whole table, as divided by `about.pieces`. Another filter is read whole, as piece 0.
    divided: Option<FilterPieces>,
    /// The pieces that are loaded.
    cells: Box<[OnceLock<Bytes>]>,
    /// A filter that is read whole, once it is loaded.
    whole: OnceLock<Whole>,
}

/// The contents of a filter.
#[derive(Debug, Clone)]
pub(crate) enum FilterContents {
    /// Keys, with this policy.
    Keys(Arc<dyn FilterPolicy>),
    /// Prefixes of keys, with the default policy. Only in a table whose keys, or user keys, are in bytewise order.
    Prefixes(Arc<dyn PrefixExtractor>),
}

/// A filter block that was read whole.
#[derive(Debug)]
struct Whole {
    filter: FilterBlockReader,
    /// Whether it consists of filters for the keys of data blocks at certain offsets; otherwise one filter covers every data
    /// block.
    is_per_window: bool,
}

impl TableFilter {
    /// The filter in the block at `handle`, which is read whole unless it is divided.
    pub(crate) fn new(
        of: FilterContents,
        handle: BlockHandle,
        divided: Option<FilterPieces>,
    ) -> TableFilter {
        let pieces = divided.as_ref().map_or(1, FilterPieces::len);
        let (policy, prefixes) = match &of {
            FilterContents::Keys(policy) => (policy.name(), None),
            FilterContents::Prefixes(extractor) => {
                (RibbonFilterPolicy::NAME, Some(extractor.name()))
            }
        };
        let entry = FilterEntry {
            policy: policy.to_owned(),
            prefixes: prefixes.map(str::to_owned),
            bytes: handle.size,
        };
        TableFilter {
            of,
            entry,
            handle,
            divided,
            cells: (0..pieces).map(|_| OnceLock::new()).collect(),
            whole: OnceLock::new(),
        }
    }

    /// Bytes of memory that this takes with the loaded pieces, apart from what lies in a `file` in memory.
    pub(crate) fn weight(&self, file: Option<&Bytes>) -> usize {
        let own = self.divided.as_ref().map_or(0, FilterPieces::weight);
        let pieces = (0..self.pieces()).map(|i| self.weight_of(i, file));
        own + self.entry.weight() + size_of_val(&*self.cells) + pieces.sum::<usize>()
    }

    /// The part of this that piece `i` takes, if it is loaded.
    pub(crate) fn weight_of(&self, i: usize, file: Option<&Bytes>) -> usize {
        let piece = self.cells.get(i).and_then(OnceLock::get);
        piece.map_or(0, |piece| weight_of(piece, file))
    }

    /// Number of pieces.
    pub(crate) fn pieces(&self) -> usize {
        self.cells.len()
    }

    /// Whether piece `i` is loaded.
    pub(crate) fn has(&self, i: usize) -> bool {
        self.piece(i).is_some()
    }

    /// The pieces that `key` needs next, some of which may be loaded; if its codes are missing, those that it needs in the first
    /// `layers` layers of the ribbon.
    pub(crate) fn needed(&self, key: &[u8], layers: usize) -> Vec<usize> {
        match &self.divided {
            None => vec![0],
            Some(pieces) => {
                pieces.missing(RibbonFilterPolicy::hash(key), layers, |i| self.piece(i))
            }
        }
    }

    /// Where piece `i` lies in the file.
    pub(crate) fn range(&self, i: usize) -> Range<u64> {
        match &self.divided {
            None => self.handle.frame_in_file(),
            Some(pieces) => pieces.range(i),
        }
    }

    /// Checks and keeps piece `i`, whose `bytes` are those at its range; `last_block` is the offset of the last data block. Returns
    /// whether the piece was not loaded before.
    pub(crate) fn admit(
        &self,
        i: usize,
        bytes: &Bytes,
        last_block: Option<u64>,
    ) -> Result<bool, Defect> {
        let mut kept = bytes.clone();
        if let Some(pieces) = &self.divided {
            pieces.check(i, bytes)?;
        } else {
            frame::verify(bytes)?;
            kept = frame::open(bytes)?;
            let filter = FilterBlockReader::new(kept.clone())?;
            let is_per_window = match self.of {
                FilterContents::Keys(_) => !last_block.is_some_and(|last| filter.covers_all(last)),
                FilterContents::Prefixes(_) => filter.check_prefixes().map(|()| false)?,
            };
            self.whole.get_or_init(|| Whole {
                filter,
                is_per_window,
            });
        }
        // From here on, the piece is loaded. Another thread may have been faster.
        Ok(self.cells.get(i).is_some_and(|cell| cell.set(kept).is_ok()))
    }

    /// Whether it consists of filters of windows, each of which knows only the keys of its blocks.
    #[inline]
    pub(crate) fn is_per_window(&self) -> Result<bool, NotLoaded> {
        let is_whole = self.divided.is_none();
        Ok(is_whole && self.whole.get().ok_or(NotLoaded)?.is_per_window)
    }

    /// The filters of windows, if it consists of such, and they are loaded.
    #[inline]
    pub(crate) fn windows(&self) -> Option<&FilterBlockReader> {
        let whole = self.whole.get().filter(|whole| whole.is_per_window);
        whole.map(|whole| &whole.filter)
    }

    /// Whether the filter passes `key`, for the data block at offset `block`, which only matters to filters [of
    /// windows](Self::is_per_window).
    #[inline]
    pub(crate) fn ask(&self, key: &[u8], block: u64) -> Result<bool, NotLoaded> {
        if let Some(pieces) = &self.divided {
            let passes = pieces.ask(RibbonFilterPolicy::hash(key), |i| self.piece(i));
            return passes.ok_or(NotLoaded);
        }
        let filter = &self.whole.get().ok_or(NotLoaded)?.filter;
        Ok(match &self.of {
            FilterContents::Keys(policy) => filter.key_may_match(&**policy, block, key),
            FilterContents::Prefixes(_) => filter.prefix_may_match(key),
        })
    }

    /// Piece `i`, if it is loaded.
    #[inline]
    fn piece(&self, i: usize) -> Option<&[u8]> {
        self.cells.get(i)?.get().map(Bytes::as_ref)
    }
}
