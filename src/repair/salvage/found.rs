//! What a frame holds by itself: entries, described by a digest; a filter; or a block that cannot be read.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::Order;
use crate::db::recognise::{Counts, Evidence};
use crate::error::Section;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::BlockHandle;
use crate::format::frame::{self, TRAILER_LEN};
use crate::format::properties::{FIRST_PROPERTY, Properties};

/// A frame whose checksum is right, and what is in it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) range: Range<u64>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Entries(Digest),
    Filter,
    /// Why its entries cannot be read: its codec is not in this build, or its keys are too large.
    Unreadable(String),
}

/// What is kept of a block of entries.
#[derive(Debug)]
pub(super) struct Digest {
    /// Entries that ascend, taken greedily from the first on.
    pub(super) entries: u64,
    /// The other entries.
    pub(super) out_of_order: u64,
    /// The first and the last key of the entries that ascend.
    pub(super) first: Box<[u8]>,
    pub(super) last: Box<[u8]>,
    /// Whether there is an entry, and every value is a block handle and nothing else.
    pub(super) all_handles: bool,
    /// Whether they are what a table says of itself.
    pub(super) is_properties: bool,
    /// What all keys say about the kind of table.
    pub(super) evidence: Counts,
}

impl Digest {
    /// Number of all entries.
    pub(super) fn all_entries(&self) -> u64 {
        self.entries + self.out_of_order
    }
}

impl Found {
    /// Number of entries, including those out of order; 0 for anything but a block of data.
    pub(crate) fn entries(&self) -> u64 {
        self.digest().map_or(0, Digest::all_entries)
    }

    /// The section of a block that holds no data, whatever lies around it: a filter or properties.
    pub(super) fn no_data(&self) -> Option<Section> {
        match &self.content {
            Content::Filter => Some(Section::Filter),
            Content::Entries(digest) if digest.is_properties => Some(Section::Properties),
            _ => None,
        }
    }

    /// The digest of a block that may hold data.
    pub(super) fn digest(&self) -> Option<&Digest> {
        match &self.content {
            Content::Entries(digest) if digest.entries > 0 && !digest.is_properties => Some(digest),
            _ => None,
        }
    }

    /// Length of the frame.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn handle(&self) -> BlockHandle {
        handle_of(&self.range)
    }
}

/// The handle of the block whose frame lies at `range`.
pub(super) fn handle_of(range: &Range<u64>) -> BlockHandle {
    BlockHandle {
        offset: range.start,
        size: range.end - range.start - TRAILER_LEN as u64,
    }
}

/// How much of the keys of a file's blocks may be held in memory.
///
/// Raw and Snappy blocks cannot come near it: a block is at most 64 / 3 of its stored size, and at most two of its keys
/// are held. Other codecs make a key of megabytes from a few bytes.
pub(super) fn key_room(file_size: u64) -> u64 {
    file_size.saturating_mul(64).saturating_add(16 << 20)
}

impl Found {
    /// The same, but unreadable if its keys take more than `room`. Otherwise takes them from `room`.
    pub(super) fn within(mut self, room: &mut u64) -> Found {
        if let Content::Entries(digest) = &self.content {
            let keys = (digest.first.len() + digest.last.len()) as u64;
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

/// Opens the frame and examines its content.
pub(super) fn inspect(frame: &Bytes, order: &Order, work: &mut KeyWork) -> Result<Content, Defect> {
    frame::verify(frame)?;
    let payload = match frame::open(frame) {
        Ok(payload) => payload,
        // A missing codec is not a payload that fails to decompress.
        Err(defect) => {
            let what = defect.into_unsupported()?;
            return Ok(Content::Unreadable(format!("the block {what}")));
        }
    };
    digest(payload.clone(), order, work)
        .map(Content::Entries)
        .or_else(|defect| {
            let is_filter = frame::is_raw(frame)
                && FilterBlockReader::new(payload)
                    .is_ok_and(|reader| reader.check_offsets().is_ok());
            is_filter.then_some(Content::Filter).ok_or(defect)
        })
}

fn digest(payload: Bytes, order: &Order, work: &mut KeyWork) -> Result<Digest, Defect> {
    let block = Block::parse(payload.clone())?;
    block.check_entries()?;
    work.take(&block)?;
    let mut cursor = BlockCursor::new(block);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let (mut entries, mut out_of_order, mut all_handles) = (0, 0, true);
    let mut evidence = Evidence::default();
    while cursor.next()? {
        let key = cursor.key();
        let value = cursor.value();
        evidence.add_entry(key, value);
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
    Ok(Digest {
        is_properties: first == FIRST_PROPERTY && Properties::decode(&payload).is_ok(),
        entries,
        out_of_order,
        first: first.into(),
        last: last.into(),
        all_handles: all_handles && entries > 0,
        evidence: evidence.counts(),
    })
}
