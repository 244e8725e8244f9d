//! What a frame holds by itself: entries, described by a digest; a filter; pieces; a footer; or a block that cannot be read.

use std::ops::Range;

use bytes::Bytes;

use crate::coding::fixed32_at;
use crate::comparator::Order;
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
use crate::read::recognise::{Counts, Evidence};

/// A frame whose checksum is right, or a footer: where it lies and what is in it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) range: Range<u64>,
    pub(super) content: Content,
    /// What it is a part of: data, until something shows that it is not.
    pub(super) section: Section,
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
    /// Whether every key is stored whole, at a restart, as nearly all writers do in an index and few in data.
    pub(super) has_restarts_only: bool,
    /// The checksum as it is stored, to tell copies of a block.
    pub(super) checksum: u32,
    pub(super) codec: &'static str,
    /// What its keys say about the kind of table.
    pub(super) evidence: Counts,
}

impl Found {
    pub(super) fn new(range: Range<u64>, content: Content) -> Found {
        let section = content.section();
        Found {
            range,
            content,
            section,
        }
    }

    /// Number of entries; 0 for anything but a block of data.
    pub(crate) fn entries(&self) -> u64 {
        self.data().map_or(0, |digest| digest.entries)
    }

    /// The digest of a block of entries, whatever they are.
    pub(super) fn digest(&self) -> Option<&Digest> {
        match &self.content {
            Content::Entries(digest) if digest.entries > 0 => Some(digest),
            _ => None,
        }
    }

    /// The digest of a block that holds data, or cannot be told from data.
    pub(super) fn data(&self) -> Option<&Digest> {
        let is_data = self.section == Section::Data;
        self.digest().filter(|_| is_data)
    }

    /// Length of the frame.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn handle(&self) -> BlockHandle {
        handle_of(&self.range)
    }

    /// What tells copies of a block, but for one in 2^32. `None` for anything but a block of entries.
    pub(super) fn identity(&self) -> Option<Identity<'_>> {
        let digest = self.digest()?;
        let keys = (&*digest.first, &*digest.last);
        Some((digest.checksum, self.len(), digest.entries, keys))
    }
}

/// Checksum, length, number of entries, first and last key.
pub(super) type Identity<'a> = (u32, u64, u64, (&'a [u8], &'a [u8]));

impl Content {
    /// What it is a part of, by itself.
    pub(super) fn section(&self) -> Section {
        match self {
            Content::Entries(digest) if digest.entries == 0 => Section::Metaindex,
            Content::Entries(digest) if digest.is_properties => Section::Properties,
            Content::Entries(_) | Content::Unreadable(_) => Section::Data,
            Content::Filter => Section::Filter,
            Content::Pieces => Section::Pieces,
            Content::Footer(_) => Section::Footer,
        }
    }
}

/// The handle of the block whose frame lies at `range`.
pub(super) fn handle_of(range: &Range<u64>) -> BlockHandle {
    BlockHandle {
        offset: range.start,
        size: range.end - range.start - TRAILER_LEN as u64,
    }
}

/// Opens frames and examines what they hold, within limits for a file.
#[derive(Debug)]
pub(super) struct Inspector<'a> {
    pub(super) order: &'a Order,
    work: KeyWork,
    /// Bytes of keys that may still be held in memory.
    ///
    /// Raw and Snappy blocks cannot come near it: a block is at most 64 / 3 of its stored size, and at most two of its keys are
    /// held. Other codecs make a key of megabytes from a few bytes.
    room: u64,
}

impl<'a> Inspector<'a> {
    pub(super) fn new(file_size: u64, order: &'a Order) -> Inspector<'a> {
        Inspector {
            order,
            work: KeyWork::of_file(),
            room: file_size.saturating_mul(64).saturating_add(16 << 20),
        }
    }

    /// Examines the frame at `offset`. `None` if its checksum is wrong.
    pub(super) fn inspect(&mut self, offset: u64, frame: &Bytes) -> Option<Found> {
        frame::verify(frame).ok()?;
        let content = self.content(frame).unwrap_or_else(|defect| {
            Content::Unreadable(defect.locate(Section::Data, offset).to_string())
        });
        Some(Found::new(offset..offset + frame.len() as u64, content))
    }

    fn content(&mut self, frame: &Bytes) -> Result<Content, Defect> {
        let payload = frame::open(frame)?;
        match self.digest(payload.clone()) {
            Ok(digest) => {
                let keys = (digest.first.len() + digest.last.len()) as u64;
                let Some(room) = self.room.checked_sub(keys) else {
                    let reason = "its keys take more memory than a sound table's would";
                    return Ok(Content::Unreadable(reason.into()));
                };
                self.room = room;
                Ok(Content::Entries(Digest {
                    checksum: fixed32_at(frame, frame.len() - 4).unwrap_or_default(),
                    codec: frame::codec_name(frame)?,
                    ..digest
                }))
            }
            // Filters and pieces are always stored raw.
            Err(defect) if frame::is_raw(frame) => not_entries(payload).ok_or(defect),
            Err(defect) => Err(defect),
        }
    }

    fn digest(&mut self, payload: Bytes) -> Result<Digest, Defect> {
        let block = Block::parse(payload.clone())?;
        block.check_entries()?;
        self.work.take(&block)?;
        let restarts = block.restart_count() as u64;
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
            let end =
                handle.and_then(|(handle, _)| handle.end().filter(|_| handle.offset >= list_end));
            is_list &= end.is_some();
            list_end = end.unwrap_or(list_end);
            names_parts &= names_part(key);
            is_rocksdbs &= key.starts_with(b"rocksdb.") && !key.iter().any(u8::is_ascii_digit);
            if entries == 0 {
                first = key.to_vec();
            } else {
                ascends = ascends && self.order.compare(&last, key).is_lt();
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
            has_restarts_only: entries == restarts,
            checksum: 0,
            codec: "",
            evidence: evidence.counts(),
        })
    }
}

/// What a block holds that is not entries.
fn not_entries(payload: Bytes) -> Option<Content> {
    // The end of a long one could pass for that of a filter.
    if let Ok(Some(_)) = Pieces::decode(payload.clone()) {
        return Some(Content::Pieces);
    }
    let filter = FilterBlockReader::new(payload).ok()?;
    filter.check_offsets().is_ok().then_some(Content::Filter)
}

/// Whether a metaindex, of this crate or of RocksDB, has a filter or properties under `name`.
fn names_part(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 4] = [b"filter.", b"fullfilter.", b"about.", b"rocksdb."];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
