//! Entries of an index in memory: which of some neighbouring data blocks may hold a key, without touching the file.

use std::cmp::Ordering;
use std::mem::size_of;
use std::ops::Range;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::format::footer::BlockHandle;

/// Neighbouring entries of an index, decoded and checked once: searching them cannot fail.
///
/// For each data block it holds a key at or after all of the block's keys and before all of the next block's, and the
/// block's handle. Takes the entries' bytes and 24 more per data block.
///
/// A search in bytewise order compares eight bytes of each key: first those of every span's last key, in one small array,
/// then those of the few entries of one span, which lie beside the handle that is looked for. Whole keys are read only to
/// settle ties.
#[derive(Debug)]
pub(super) struct IndexEntries {
    /// The entries, as they are stored.
    bytes: Bytes,
    keys: Vec<KeyAt>,
    entries: Vec<IndexEntry>,
    /// The leading bytes that all keys but the last share. The last may be the successor of the table's last key, often a
    /// single byte, and would end what all others share: a search leaves it out.
    shared: Bytes,
    /// The prefix of the last entry of each whole span.
    spans: Vec<u64>,
}

/// Where a key lies in the bytes of all.
#[derive(Debug, Clone, Copy)]
struct KeyAt {
    start: u32,
    len: u32,
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

impl IndexEntries {
    /// The `entries`, which were checked: where in `bytes` each key lies, with its handle right behind, and the handle.
    pub(super) fn new(bytes: Bytes, entries: &[(Range<usize>, BlockHandle)]) -> IndexEntries {
        let key = |(range, _): &(Range<usize>, BlockHandle)| bytes.slice(range.clone());
        // Keys ascend, so what the first and the last but one share, all between them share.
        let shared = match entries {
            [first, .., last_but_one, _] => {
                let (first, last_but_one) = (key(first), key(last_but_one));
                first.slice(..common_prefix(&first, &last_but_one))
            }
            [first, _] => key(first),
            _ => Bytes::new(),
        };
        let entry = |(range, handle): &(Range<usize>, BlockHandle)| IndexEntry {
            prefix: prefix_at(bytes.get(range.clone()).unwrap_or(&[]), shared.len()),
            handle: PackedHandle::of(*handle),
        };
        let keys = entries.iter().map(|(range, _)| KeyAt {
            start: range.start as u32,
            len: range.len() as u32,
        });
        let keys = keys.collect();
        let entries: Vec<IndexEntry> = entries.iter().map(entry).collect();
        // Mapped, not filtered: the number of spans is known, and no more is allocated.
        let last_prefix = |span: &[IndexEntry]| span.last().map_or(u64::MAX, |last| last.prefix);
        let spans = all_but_last(&entries).chunks_exact(SPAN);
        let spans = spans.map(last_prefix).collect();
        IndexEntries {
            bytes,
            keys,
            entries,
            shared,
            spans,
        }
    }

    /// Bytes of memory that it takes, with its bytes or without.
    pub(super) fn weight(&self, with_bytes: bool) -> usize {
        let bytes = if with_bytes { self.bytes.len() } else { 0 };
        bytes + 24 * self.entries.len() + 8 * self.spans.len() + size_of::<IndexEntries>()
    }

    /// Number of data blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The handle of data block `i` of them, one of `0..len()`.
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
        reason = "every handle was decoded when the entries were"
    )]
    fn large_handle(&self, i: usize) -> BlockHandle {
        let value = self
            .keys
            .get(i)
            .and_then(|key| self.bytes.get((key.start + key.len) as usize..));
        let decoded = value.and_then(BlockHandle::decode);
        decoded.expect("a handle that was decoded before").0
    }

    /// A key at or after the last of data block `i` of them, one of `0..len()`, and before the first of the next.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "as `handle`; and the entries were decoded from these bytes"
    )]
    pub(super) fn key(&self, i: usize) -> &[u8] {
        let KeyAt { start, len } = self.keys[i];
        &self.bytes[start as usize..][..len as usize]
    }

    /// The first data block whose key is at or after `key`; the last one if no key before that one's is.
    #[inline]
    pub(super) fn seek(&self, key: &[u8], order: &Order) -> usize {
        match order {
            Order::Bytewise => self.seek_by_prefix(key),
            Order::Custom(_) => self.first_at_or_after(key, 0, self.len().saturating_sub(1), order),
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
    /// the index keys of data block `i` of them and the one before. If they do not, whole keys must be compared.
    ///
    /// The eight bytes lie beside the handles, which a lookup has just read, where the index keys themselves are memory that
    /// nobody may have touched since they were decoded.
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
fn prefix_at(key: &[u8], start: usize) -> u64 {
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
