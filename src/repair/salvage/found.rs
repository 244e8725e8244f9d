//! What a frame holds by itself: entries, described by a digest; a filter; pieces; a footer; or a block that cannot be read.

use std::cell::Cell;
use std::ops::Range;

use bytes::Bytes;

use super::survey::Survey;
use crate::coding::fixed32_at;
use crate::comparator::Order;
use crate::error::Section;
use crate::format::Defect;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame::{self, TRAILER_LEN};
use crate::format::page;
use crate::format::pieces::Pieces;
use crate::format::properties::{FIRST_PROPERTY, Properties};
use crate::read::recognise::Evidence;

/// A frame whose checksum is right, or a footer: where it lies and what is in it.
pub(crate) struct Found {
    pub(super) range: Range<u64>,
    /// What it is a part of: data, until something shows that it is not.
    pub(super) section: Cell<Section>,
    /// What is in it, if it is a block of entries. In the section of data, a block without entries cannot be read: its codec is not
    /// in this build, its keys are too large, or it makes no sense. Filters and `about.pieces` may be large, and are decoded again
    /// where they are used.
    pub(crate) digest: Digest,
}

/// What is kept of a block of entries, or of a footer. Of anything else, the default.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    pub(crate) entries: u64,
    /// Whether the keys ascend in the builder's order.
    pub(super) ascends: bool,
    /// The first and the last key as they are stored.
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
    /// Whether every key could be a metaindex's, and every value is one handle.
    pub(super) names_parts: bool,
    /// Whether every value is one handle, and they ascend without overlap, as in an index.
    pub(super) is_list: bool,
    /// Whether they also follow each other from the front of a file, without gaps or with the padding of an aligned table.
    pub(super) fills_front: bool,
    /// Whether every key is stored whole, at a restart, as nearly all writers do in an index and few in data.
    pub(super) has_restarts_only: bool,
    /// The checksum as it is stored, to tell copies of a block.
    pub(super) checksum: u32,
    pub(super) codec: &'static str,
    /// What its keys say about the kind of table.
    pub(super) evidence: Evidence,
    pub(super) footer: Option<Footer>,
}

impl Found {
    pub(super) fn new(range: Range<u64>, section: Section, digest: Digest) -> Found {
        Found {
            range,
            section: section.into(),
            digest,
        }
    }

    /// Whether it is a block that holds entries, whatever they are.
    pub(super) fn has_entries(&self) -> bool {
        self.digest.entries > 0
    }

    /// Whether it is a block that holds data, or cannot be told from data.
    pub(crate) fn is_data(&self) -> bool {
        self.has_entries() && self.section.get() == Section::Data
    }

    /// Whether its checksum is right, and nothing else is known of it.
    pub(super) fn is_unreadable(&self) -> bool {
        !self.has_entries() && self.section.get() == Section::Data
    }

    /// Whether nothing in it tells it from the index of a table of one block.
    pub(super) fn may_be_index(&self) -> bool {
        self.digest.fills_front && self.digest.entries == 1
    }

    /// The keys that an index may have for the last block of its table: the block's last key, as it is and, if that differs, shortened
    /// as by this crate.
    pub(super) fn index_keys(&self, order: &Order) -> Vec<Vec<u8>> {
        let mut shortened = self.digest.last.clone();
        order.comparator().find_short_successor(&mut shortened);
        let mut keys = vec![self.digest.last.clone(), shortened];
        keys.dedup();
        keys
    }

    /// Length of the frame.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn handle(&self) -> BlockHandle {
        handle_of(&self.range)
    }

    /// Checksum and length: equal for copies of a block, and for one in 2^32 of other blocks.
    pub(super) fn identity(&self) -> (u32, u64) {
        (self.digest.checksum, self.len())
    }
}

/// The handle of the block whose frame lies at `range`.
pub(super) fn handle_of(range: &Range<u64>) -> BlockHandle {
    BlockHandle {
        offset: range.start,
        size: range.end - range.start - TRAILER_LEN as u64,
    }
}

impl Survey<'_> {
    /// Examines the frame at `offset`. `None` if its checksum is wrong.
    pub(super) fn inspect(&mut self, offset: u64, frame: &Bytes) -> Option<Found> {
        frame::verify(frame).ok()?;
        let range = offset..offset + frame.len() as u64;
        let content = self.content(frame);
        let (section, digest) = content.unwrap_or((Section::Data, Digest::default()));
        Some(Found::new(range, section, digest))
    }

    fn content(&mut self, frame: &Bytes) -> Option<(Section, Digest)> {
        let payload = frame::open(frame).ok()?;
        let Ok((section, mut digest)) = self.digest(&payload) else {
            // Filters and pieces are always stored raw.
            let section = not_entries(payload).filter(|_| frame::is_raw(frame))?;
            return Some((section, Digest::default()));
        };
        let keys = digest.first.len() + digest.last.len();
        self.room = self.room.checked_sub(keys as u64)?;
        digest.checksum = fixed32_at(frame, frame.len() - 4)?;
        digest.codec = frame::codec_name(frame).ok()?;
        Some((section, digest))
    }

    /// Describes a block of entries, and tells what it is a part of by itself.
    fn digest(&mut self, payload: &Bytes) -> Result<(Section, Digest), Defect> {
        let block = self.work.open(payload.clone())?;
        let restarts = block.restart_count as u64;
        let mut cursor = BlockCursor::new(block);
        let mut digest = Digest {
            ascends: true,
            names_parts: true,
            fills_front: true,
            ..Digest::default()
        };
        let (mut list_end, mut is_rocksdbs) = (Some(0), true);
        while cursor.next()? {
            let (key, value) = (cursor.key(), cursor.value());
            let previous = (digest.entries > 0).then_some(&digest.last[..]);
            digest.evidence.add_entry(previous, key, value);
            let handle = BlockHandle::decode(value).filter(|(_, len)| *len == value.len());
            digest.names_parts &= handle.is_some() && names_part(key);
            let follows = handle.filter(|(handle, _)| Some(handle.offset) >= list_end);
            digest.fills_front &= follows.zip(list_end).is_some_and(|((handle, _), end)| {
                [end, end.saturating_add(page::to_boundary(end))].contains(&handle.offset)
            });
            list_end = list_end.and(follows).and_then(|(handle, _)| handle.end());
            is_rocksdbs &= key.starts_with(b"rocksdb.") && !key.iter().any(u8::is_ascii_digit);
            if digest.entries == 0 {
                digest.first = key.to_vec();
            } else {
                digest.ascends &= self.order.compare(&digest.last, key).is_lt();
            }
            digest.entries += 1;
            digest.last.clear();
            digest.last.extend_from_slice(key);
        }
        digest.is_list = digest.entries > 0 && list_end.is_some();
        digest.has_restarts_only = digest.entries == restarts;
        // RocksDB's metaindex has such names, too, but handles as values.
        let is_properties = is_rocksdbs && !digest.names_parts
            || digest.first == FIRST_PROPERTY && Properties::decode(payload).is_ok();
        let section = match digest.entries {
            0 => Section::Metaindex,
            _ if is_properties => Section::Properties,
            _ => Section::Data,
        };
        Ok((section, digest))
    }
}

/// What a block that holds no entries is a part of.
fn not_entries(payload: Bytes) -> Option<Section> {
    // The end of a long one could pass for that of a filter.
    if let Ok(Some(_)) = Pieces::decode(payload.clone()) {
        return Some(Section::Pieces);
    }
    let filter = FilterBlockReader::new(payload).ok()?;
    filter.check_offsets().ok().map(|()| Section::Filter)
}

/// Whether a metaindex, of this crate or of RocksDB, has a filter or properties under `name`.
fn names_part(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 4] = [b"filter.", b"fullfilter.", b"about.", b"rocksdb."];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
