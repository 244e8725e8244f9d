//! What a frame holds by itself: entries, described by a digest; a filter; pieces; a footer; or a block that cannot be read.

use std::ops::Range;

use bytes::Bytes;

use crate::coding::fixed32_at;
use crate::comparator::Order;
use crate::db::recognise::{Counts, Evidence};
use crate::error::Section;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame::{self, TRAILER_LEN};
use crate::format::pieces::Pieces;
use crate::format::properties::{FIRST_PROPERTY, Properties};

/// A frame whose checksum is right, or a footer, and what is in it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) range: Range<u64>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Entries(Digest),
    Filter,
    /// `about.pieces`. Decoded again where it is used, since it may be large.
    Pieces,
    Footer(Footer),
    /// Why its entries cannot be read: its codec is not in this build, its keys are too large, or it makes no sense.
    Unreadable(String),
}

/// What is kept of a block of entries.
#[derive(Debug)]
pub(super) struct Digest {
    pub(super) entries: u64,
    /// Whether the keys ascend in the builder's order.
    pub(super) ascends: bool,
    /// The first and the last key as they are stored.
    pub(super) first: Box<[u8]>,
    pub(super) last: Box<[u8]>,
    /// Whether it is what a table says of itself: of this crate or of RocksDB.
    pub(super) is_properties: bool,
    /// Whether every key could be a metaindex's, and every value is one handle.
    pub(super) names_parts: bool,
    /// Whether every value is one handle, and they ascend without overlap, as in an index.
    pub(super) is_list: bool,
    /// The checksum as it is stored, to tell copies of a block.
    pub(super) checksum: u32,
    pub(super) codec: &'static str,
    /// What its keys say about the kind of table.
    pub(super) evidence: Counts,
}

/// Checksum, length, number of entries, first and last key: what tells copies of a block, but for one in 2^32.
pub(super) type Identity<'a> = (u32, u64, u64, &'a [u8], &'a [u8]);

impl Digest {
    pub(super) fn identity(&self, found: &Found) -> Identity<'_> {
        let (checksum, entries) = (self.checksum, self.entries);
        (checksum, found.len(), entries, &self.first, &self.last)
    }
}

impl Found {
    /// Number of entries; 0 for anything but a block of data.
    pub(crate) fn entries(&self) -> u64 {
        self.data().map_or(0, |digest| digest.entries)
    }

    /// The digest of a block of entries.
    pub(super) fn digest(&self) -> Option<&Digest> {
        match &self.content {
            Content::Entries(digest) if digest.entries > 0 => Some(digest),
            _ => None,
        }
    }

    /// The digest of a block that may hold data.
    pub(super) fn data(&self) -> Option<&Digest> {
        self.digest().filter(|digest| !digest.is_properties)
    }

    /// Length of the frame.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn handle(&self) -> BlockHandle {
        handle_of(&self.range)
    }

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

/// The handle of the block whose frame lies at `range`.
pub(super) fn handle_of(range: &Range<u64>) -> BlockHandle {
    BlockHandle {
        offset: range.start,
        size: range.end - range.start - TRAILER_LEN as u64,
    }
}

/// How much of a file's keys may be held in memory, of its blocks, and as much of its index.
///
/// Raw and Snappy blocks cannot come near it: a block is at most 64 / 3 of its stored size, and at most two of its keys
/// are held. Other codecs make a key of megabytes from a few bytes.
pub(super) fn key_room(file_size: u64) -> u64 {
    file_size.saturating_mul(64).saturating_add(16 << 20)
}

/// Opens the frame at `offset` and examines its content. An error if its checksum is wrong.
pub(super) fn inspect(
    offset: u64,
    frame: &Bytes,
    order: &Order,
    work: &mut KeyWork,
) -> Result<Content, Defect> {
    frame::verify(frame)?;
    let digest = frame::open(frame).and_then(|payload| {
        let digest = digest(payload.clone(), order, work);
        digest.map(Content::Entries).or_else(|defect| {
            let content = frame::is_raw(frame).then(|| raw_content(payload));
            content.flatten().ok_or(defect)
        })
    });
    Ok(match digest {
        Ok(Content::Entries(digest)) => Content::Entries(Digest {
            checksum: fixed32_at(frame, frame.len() - 4).unwrap_or_default(),
            codec: frame::codec_name(frame)?,
            ..digest
        }),
        Ok(content) => content,
        Err(defect) => Content::Unreadable(defect.locate(Section::Data, offset).to_string()),
    })
}

/// What a block holds that is always stored raw, and not entries.
fn raw_content(payload: Bytes) -> Option<Content> {
    // The end of a long one could pass for that of a filter.
    if let Ok(Some(_)) = Pieces::decode(payload.clone()) {
        return Some(Content::Pieces);
    }
    let filter = FilterBlockReader::new(payload).ok()?;
    filter.check_offsets().is_ok().then_some(Content::Filter)
}

fn digest(payload: Bytes, order: &Order, work: &mut KeyWork) -> Result<Digest, Defect> {
    let block = Block::parse(payload.clone())?;
    block.check_entries()?;
    work.take(&block)?;
    let mut cursor = BlockCursor::new(block);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let (mut entries, mut ascends) = (0, true);
    let (mut is_handles, mut is_list, mut list_end) = (true, true, 0);
    let (mut names_parts, mut is_rocksdbs) = (true, true);
    let mut evidence = Evidence::default();
    while cursor.next()? {
        let (key, value) = (cursor.key(), cursor.value());
        evidence.add_entry(key, value);
        let handle = BlockHandle::decode(value).filter(|(_, len)| *len == value.len());
        is_handles &= handle.is_some();
        let end = handle.and_then(|(handle, _)| handle.end().filter(|_| handle.offset >= list_end));
        is_list &= end.is_some();
        list_end = end.unwrap_or(list_end);
        names_parts &= names_part(key);
        is_rocksdbs &= key.starts_with(b"rocksdb.") && !key.iter().any(u8::is_ascii_digit);
        if entries == 0 {
            first = key.to_vec();
        } else {
            ascends = ascends && order.compare(&last, key).is_lt();
        }
        entries += 1;
        last.clear();
        last.extend_from_slice(key);
    }
    let has_entries = entries > 0;
    Ok(Digest {
        is_properties: (has_entries && is_rocksdbs && !is_handles)
            || first == FIRST_PROPERTY && Properties::decode(&payload).is_ok(),
        entries,
        ascends,
        first: first.into(),
        last: last.into(),
        names_parts: has_entries && names_parts && is_handles,
        is_list: has_entries && is_list,
        checksum: 0,
        codec: "",
        evidence: evidence.counts(),
    })
}

/// Whether a metaindex, of this crate or of RocksDB, has a filter or properties under `name`.
fn names_part(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 4] = [b"filter.", b"fullfilter.", b"about.", b"rocksdb."];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
