//! What a salvage makes of a frame by itself: entries in brief, a filter, or a codec that this build lacks.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::Order;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::BlockHandle;
use crate::format::frame::{self, TRAILER_LEN};

/// A frame whose checksum is right, and what is in it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) range: Range<u64>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Entries(Summary),
    Filter,
    /// Its codec is not in this build, or its keys are too large.
    Unreadable(String),
}

/// A block of entries in brief.
#[derive(Debug)]
pub(super) struct Summary {
    /// Entries that ascend, greedily from the first on, and entries that do not fit between those.
    pub(super) entries: u64,
    pub(super) out_of_order: u64,
    /// Of the entries that ascend.
    pub(super) first: Box<[u8]>,
    pub(super) last: Box<[u8]>,
    /// Whether every value is a block handle and nothing else, and there is one.
    pub(super) all_handles: bool,
}

impl Found {
    /// Number of entries, of which some may be out of order; 0 for what is not a block of entries.
    pub(crate) fn entries(&self) -> u64 {
        match &self.content {
            Content::Entries(summary) => summary.entries + summary.out_of_order,
            _ => 0,
        }
    }

    pub(super) fn is_filter(&self) -> bool {
        matches!(self.content, Content::Filter)
    }

    pub(super) fn summary(&self) -> Option<&Summary> {
        match &self.content {
            Content::Entries(summary) if summary.entries > 0 => Some(summary),
            _ => None,
        }
    }

    /// Length of the frame.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn handle(&self) -> BlockHandle {
        BlockHandle {
            offset: self.range.start,
            size: self.len() - TRAILER_LEN as u64,
        }
    }
}

/// What may be held in memory of the keys of a file's blocks.
///
/// Raw and Snappy blocks cannot come near it: no block is more than 64 / 3 of what is stored of it, and two of
/// its keys are held at most. Other codecs make a key of megabytes from a few bytes.
pub(super) fn key_room(file_size: u64) -> u64 {
    file_size.saturating_mul(64).saturating_add(16 << 20)
}

impl Found {
    /// The same, but unreadable if its keys are more than `room`; else they are taken from that.
    pub(super) fn within(mut self, room: &mut u64) -> Found {
        if let Content::Entries(summary) = &self.content {
            let keys = (summary.first.len() + summary.last.len()) as u64;
            match room.checked_sub(keys) {
                Some(rest) => *room = rest,
                None => {
                    let reason = "its keys take more memory than a sound table's would";
                    self.content = Content::Unreadable(reason.into());
                }
            }
        }
        self
    }
}

/// Opens the frame and sees what is in it.
pub(super) fn inspect(frame: &Bytes, order: &Order, work: &mut KeyWork) -> Result<Content, Defect> {
    frame::verify(frame)?;
    let payload = match frame::open(frame) {
        Ok(payload) => payload,
        // A codec that this build lacks is told from a payload that does not decompress.
        Err(defect) => {
            let what = defect.into_unsupported()?;
            return Ok(Content::Unreadable(format!("the block {what}")));
        }
    };
    summarise(payload.clone(), order, work)
        .map(Content::Entries)
        .or_else(|defect| {
            let is_filter = frame::is_raw(frame)
                && FilterBlockReader::new(payload)
                    .is_ok_and(|reader| reader.check_offsets().is_ok());
            is_filter.then_some(Content::Filter).ok_or(defect)
        })
}

fn summarise(payload: Bytes, order: &Order, work: &mut KeyWork) -> Result<Summary, Defect> {
    let block = Block::parse(payload)?;
    block.check_entries()?;
    work.take(&block)?;
    let mut cursor = BlockCursor::new(block);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let (mut entries, mut out_of_order, mut all_handles) = (0, 0, true);
    while cursor.next()? {
        let key = cursor.key();
        let value = cursor.value();
        all_handles &= BlockHandle::decode(value).is_some_and(|(_, len)| len == value.len());
        if entries == 0 {
            first = key.to_vec();
        } else if order.compare(&last, key).is_ge() {
            out_of_order += 1;
            continue;
        }
        entries += 1;
        last.clear();
        last.extend_from_slice(key);
    }
    Ok(Summary {
        entries,
        out_of_order,
        first: first.into(),
        last: last.into(),
        all_handles: all_handles && entries > 0,
    })
}
