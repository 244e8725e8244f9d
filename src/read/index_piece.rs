//! A piece of an index in memory: which of some neighbouring data blocks may hold a key, without touching the file.

use std::cmp::Ordering;
use std::mem::size_of;
use std::ops::Range;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::db::key::user_order;
use crate::db::recognise::may_be_internal;
use crate::db::table::not_internal;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::footer::BlockHandle;
use crate::read::states::States;

/// Neighbouring entries of an index, decoded and checked once: searching them cannot fail. Only what is known of their data blocks
/// changes.
///
/// For each data block it holds a key at or after all of the block's keys and before all of the next block's, and the
/// block's handle. Takes the entries' bytes and 21 more per data block.
///
/// A search in bytewise order compares eight bytes of each key: first those of every span's last key, in one small array,
/// then those of the few entries of one span, which lie beside the handle that is looked for. Whole keys are read only to
/// settle ties.
#[derive(Debug)]
pub(super) struct Piece {
    /// The entries. Every key is stored whole.
    block: Block<Bytes>,
    /// Where in the block each entry begins.
    starts: Vec<u32>,
    entries: Vec<IndexEntry>,
    /// The leading bytes that all keys but the last share. The last may be the successor of the table's last key, often a
    /// single byte, and would end what all others share: a search leaves it out.
    shared: Bytes,
    /// The prefix of the last entry of each whole span.
    spans: Vec<u64>,
    /// What is known of each data block.
    pub(super) states: States,
}

#[derive(Debug)]
struct IndexEntry {
    /// The eight bytes of the key after the shared ones, as a big-endian number; zeros past its end.
    prefix: u64,
    /// The data block's handle.
    handle: PackedHandle,
}

const _: () = assert!(size_of::<IndexEntry>() == 16);

/// A handle in eight bytes, if it fits: 40 bits of offset, 24 of size.
#[derive(Debug, Clone, Copy)]
struct PackedHandle(u64);

impl PackedHandle {
    const OFFSET_BITS: u32 = 40;
    /// Stands for a handle that does not fit, and is decoded from the index block each time.
    const TOO_LARGE: PackedHandle = PackedHandle(u64::MAX);

    fn of(handle: BlockHandle) -> PackedHandle {
        let BlockHandle { offset, size } = handle;
        if offset >> Self::OFFSET_BITS == 0 && size >> (u64::BITS - Self::OFFSET_BITS) == 0 {
            PackedHandle(size << Self::OFFSET_BITS | offset)
        } else {
            PackedHandle::TOO_LARGE
        }
    }

    #[inline]
    fn unpack(self) -> Option<BlockHandle> {
        (self.0 != Self::TOO_LARGE.0).then_some(BlockHandle {
            offset: self.0 & ((1 << Self::OFFSET_BITS) - 1),
            size: self.0 >> Self::OFFSET_BITS,
        })
    }
}

/// Number of entries in a span, which takes two lines of the processor's cache.
const SPAN: usize = 8;

/// What the entries of a piece must agree with.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    /// Number of the piece's first data block in the table.
    pub(super) first: usize,
    /// Number of entries.
    pub(super) len: usize,
    /// The key before the piece's first, if that has one.
    pub(super) before: Option<&'a [u8]>,
    /// The last key, and its handle.
    pub(super) top: &'a [u8],
    pub(super) last: Option<BlockHandle>,
    /// Where the data blocks lie: behind those before, and before whatever comes after.
    pub(super) data: Range<u64>,
}

impl Piece {
    /// Checks the entries in `bytes`.
    ///
    /// Handles must be in the file's order without overlap. Keys must be stored whole and ascend, unless the order is not known
    /// (`None`). A database's must be internal keys.
    pub(super) fn decode(
        bytes: Bytes,
        bounds: &Bounds<'_>,
        order: Option<&Order>,
    ) -> Result<Piece, Defect> {
        let block = Block::of_entries(bytes);
        let is_database = order.is_some_and(|order| user_order(order).is_some());
        let mut previous = bounds.before;
        let mut previous_end = bounds.data.start;
        let mut last = None;
        // The number of entries is not trusted: an entry takes three bytes at least.
        let room = bounds.len.min(block.entries().len() / 3);
        let (mut starts, mut handles) = (Vec::with_capacity(room), Vec::with_capacity(room));
        for entry in block.iter() {
            let entry = entry?;
            let (i, key) = (bounds.first + starts.len(), block.unshared(&entry));
            if entry.shared() > 0 {
                let found = format!("one that shares {} bytes", entry.shared());
                return Err(Defect::new(format!("index key {i} stored whole"), found));
            }
            if let (Some(previous), Some(order)) = (previous, order)
                && order.compare(previous, key) != Ordering::Less
            {
                return Err(not_ascending(i, previous, key, order));
            }
            if is_database && !may_be_internal(key) {
                return Err(not_internal(key));
            }
            let within = previous_end..bounds.data.end;
            let value = block.bytes(entry.value());
            let Some((handle, frame_end)) = decode_handle(value, &within) else {
                return Err(misplaced(i, value, within));
            };
            starts.push(entry.offset() as u32);
            handles.push(PackedHandle::of(handle));
            (previous, previous_end, last) = (Some(key), frame_end, Some(handle));
        }
        if starts.len() != bounds.len || previous != Some(bounds.top) || last != bounds.last {
            return Err(Defect::new(
                format!(
                    "{} index entries, the last with the key and the handle that are stated for the piece",
                    bounds.len
                ),
                format!("{} entries, which end otherwise", starts.len()),
            ));
        }
        Ok(Piece::of(block, starts, handles))
    }

    /// A piece of entries that were checked.
    fn of(block: Block<Bytes>, starts: Vec<u32>, handles: Vec<PackedHandle>) -> Piece {
        let key_at = |start: Option<&u32>| Some(block.entry_at(*start? as usize)?.0);
        // Keys ascend, so what the first and the last but one share, all between them share.
        let last_but_one = starts.len().checked_sub(2).and_then(|i| starts.get(i));
        let shared = match (key_at(starts.first()), key_at(last_but_one)) {
            (Some(first), Some(last_but_one)) => {
                let (shared, _) = first.split_at(common_prefix(first, last_but_one));
                block.data().slice_ref(shared)
            }
            _ => Bytes::new(),
        };
        let entry = |(start, handle)| IndexEntry {
            prefix: key_at(Some(start)).map_or(0, |key| prefix_at(key, shared.len())),
            handle,
        };
        let entries: Vec<IndexEntry> = starts.iter().zip(handles).map(entry).collect();
        // Mapped, not filtered: the number of spans is known, and no more is allocated.
        let last_prefix = |span: &[IndexEntry]| span.last().map_or(u64::MAX, |last| last.prefix);
        let spans = all_but_last(&entries).chunks_exact(SPAN);
        let spans = spans.map(last_prefix).collect();
        Piece {
            states: States::new(entries.len()),
            block,
            starts,
            entries,
            shared,
            spans,
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn weight(&self) -> usize {
        self.block.entries().len() + 21 * self.entries.len() + 8 * self.spans.len() + size_of::<Piece>()
    }

    /// Where each entry begins in the piece.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        self.starts.iter().map(|&start| start as usize)
    }

    /// Number of data blocks.
    fn len(&self) -> usize {
        self.entries.len()
    }

    /// The handle of data block `i` of the piece, one of `0..len()`.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "callers have `i` from a search, or count to `len()`"
    )]
    pub(super) fn handle(&self, i: usize) -> BlockHandle {
        let handle = self.entries[i].handle.unpack();
        handle.unwrap_or_else(|| self.large_handle(i))
    }

    #[cold]
    #[expect(
        clippy::expect_used,
        reason = "every value was decoded when the piece was made"
    )]
    fn large_handle(&self, i: usize) -> BlockHandle {
        let decoded = BlockHandle::decode(self.entry(i).1);
        decoded.expect("a handle that was decoded before").0
    }

    /// A key at or after the last of data block `i` of the piece, one of `0..len()`, and before the first of the next.
    #[inline]
    pub(super) fn key(&self, i: usize) -> &[u8] {
        self.entry(i).0
    }

    #[inline]
    #[expect(
        clippy::expect_used,
        clippy::indexing_slicing,
        reason = "every entry was decoded when the piece was made"
    )]
    fn entry(&self, i: usize) -> (&[u8], &[u8]) {
        self.block
            .entry_at(self.starts[i] as usize)
            .expect("an entry that was decoded before")
    }

    /// The first data block whose key is at or after `key`. The caller knows that the last key is.
    #[inline]
    pub(super) fn seek(&self, key: &[u8], order: &Order) -> usize {
        match order {
            Order::Bytewise => self.seek_by_prefix(key),
            Order::Custom(_) => self.first_at_or_after(key, 0, self.len() - 1, order),
        }
    }

    /// The first of all keys but the last that is at or after `key`, in bytewise order.
    #[inline]
    fn seek_by_prefix(&self, key: &[u8]) -> usize {
        let entries = all_but_last(&self.entries);
        // An empty prefix is not compared: its pointer may dangle, and a masked load from it costs 100 ns.
        if !self.shared.is_empty() && !key.starts_with(&self.shared) {
            let is_before = *key < *self.shared;
            return if is_before { 0 } else { entries.len() };
        }
        let prefix = prefix_at(key, self.shared.len());
        let start = SPAN * self.spans.partition_point(|&last| last < prefix);
        let rest = entries.get(start..).unwrap_or(&[]);
        let span = rest.get(..SPAN).unwrap_or(rest);
        // Counted rather than searched: nothing to predict, and all lines read at once.
        let below = span.iter().filter(|entry| entry.prefix < prefix).count();
        let low = start + below;
        let rest = entries.get(low..).unwrap_or(&[]);
        if rest.first().is_none_or(|entry| entry.prefix != prefix) {
            return low;
        }
        let ties = rest.partition_point(|entry| entry.prefix == prefix);
        self.first_at_or_after(key, low, low + ties, &Order::Bytewise)
    }

    /// The first `i` of `low..high` whose key is at or after `key`, or `high`.
    fn first_at_or_after(
        &self,
        key: &[u8],
        mut low: usize,
        mut high: usize,
        order: &Order,
    ) -> usize {
        while low < high {
            let middle = low + (high - low) / 2;
            if order.compare(self.key(middle), key) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns whether eight bytes of each key show, in bytewise order, that a block whose keys go from `first` to `last` lies between
    /// the index keys of data block `i` of the piece and the one before. If they do not, whole keys must be compared.
    ///
    /// The eight bytes lie beside the handles, which a lookup has just read, where the index keys themselves are memory that
    /// nobody may have touched since the piece was decoded.
    pub(super) fn prefixes_enclose(&self, i: usize, first: &[u8], last: &[u8]) -> bool {
        let (Some(high), Some(low)) = (
            all_but_last(&self.entries).get(i),
            i.checked_sub(1).and_then(|before| self.entries.get(before)),
        ) else {
            return false;
        };
        let start = self.shared.len();
        [first, last]
            .iter()
            .all(|key| key.starts_with(&self.shared))
            && low.prefix < prefix_at(first, start)
            && prefix_at(last, start) < high.prefix
    }
}

fn all_but_last(entries: &[IndexEntry]) -> &[IndexEntry] {
    entries.split_last().map_or(&[], |(_, others)| others)
}

/// The eight bytes of `key` from byte `start` on as a number that orders as they do; zeros past its end.
#[inline]
pub(super) fn prefix_at(key: &[u8], start: usize) -> u64 {
    let rest = key.get(start..).unwrap_or(&[]);
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let missing = 8 * (8 - rest.len() as u32);
    match key.last_chunk() {
        // The key's last eight bytes, those before `start` shifted out.
        Some(bytes) => u64::from_be_bytes(*bytes).unbounded_shl(missing),
        None => {
            let join = |n, &byte| n << 8 | u64::from(byte);
            rest.iter().fold(0u64, join).unbounded_shl(missing)
        }
    }
}

/// Decodes a data block's handle, which lies within `bounds`. Also returns where its frame ends.
#[inline]
pub(super) fn decode_handle(value: &[u8], bounds: &Range<u64>) -> Option<(BlockHandle, u64)> {
    // Bytes after the handle are ignored, as LevelDB does.
    let (handle, _) = BlockHandle::decode(value)?;
    let end = handle.end()?;
    let fits = handle.offset >= bounds.start && end <= bounds.end;
    (fits && u32::try_from(handle.size).is_ok()).then_some((handle, end))
}

#[cold]
pub(super) fn misplaced(i: usize, value: &[u8], bounds: Range<u64>) -> Defect {
    let found = match BlockHandle::decode(value) {
        Some((BlockHandle { offset, size }, _)) => {
            format!("{size} bytes and a trailer at {offset}")
        }
        None => {
            let value = value.get(..BlockHandle::MAX_LEN).unwrap_or(value);
            format!("no handle: {value:02x?}")
        }
    };
    let Range { start, end } = bounds;
    Defect::new(format!("data block {i} between {start} and {end}"), found)
}

#[cold]
pub(super) fn not_ascending(i: usize, previous: &[u8], key: &[u8], order: &Order) -> Defect {
    let what = format!("index keys {} and {i}", i - 1);
    Defect::misordered(order.order_message(&what, previous, key))
}
