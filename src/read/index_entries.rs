//! Entries of an index in memory: which of some neighbouring data blocks may hold a key, without touching the file.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::format::footer::BlockHandle;

/// Neighbouring entries of an index, decoded and checked once: searching them cannot fail.
///
/// For each data block it holds a key at or after all of the block's keys and before all of the next block's, and the
/// block's handle. Takes the entries' bytes and 33 more per data block.
///
/// A search in bytewise order compares eight bytes of each key. Whole keys are read only to settle ties. Without ties, it reads one
/// span of prefixes, which arrive together, besides the ends of spans: one number for every eight entries.
#[derive(Debug)]
pub(super) struct IndexEntries {
    /// What the keys lie in.
    bytes: Bytes,
    entries: Box<[IndexEntry]>,
    /// The eight bytes after the shared ones, of each key but the last.
    prefixes: Box<[u64]>,
    /// Those of the last entry of each span.
    span_ends: Box<[u64]>,
    /// The leading bytes that all keys but the last share. The last may be the successor of the table's last key, often a
    /// single byte, and would end what all others share: a search leaves it out.
    shared: Bytes,
    /// The first eight of them, and the last eight, as numbers; of fewer, both are all of them and zeros.
    ends: [u64; 2],
}

/// Number of neighbouring entries that are compared together.
const SPAN: usize = 8;

#[derive(Debug)]
pub(super) struct IndexEntry {
    /// Where the key lies in the bytes.
    key: Range<u32>,
    handle: BlockHandle,
}

impl IndexEntry {
    /// Blocks are smaller than 4 GiB.
    pub(super) fn new(key: Range<usize>, handle: BlockHandle) -> IndexEntry {
        let key = key.start as u32..key.end as u32;
        IndexEntry { key, handle }
    }
}

impl IndexEntries {
    /// Entries whose keys ascend and lie in `bytes`.
    pub(super) fn new(bytes: Bytes, entries: Vec<IndexEntry>) -> IndexEntries {
        let mut made = IndexEntries {
            prefixes: Box::default(),
            span_ends: Box::default(),
            shared: Bytes::new(),
            ends: [0; 2],
            entries: entries.into(),
            bytes,
        };
        let others = 0..made.len().saturating_sub(1);
        if let Some(last) = others.clone().next_back() {
            let (first, last) = (made.key(0), made.key(last));
            made.shared = (made.bytes).slice_ref(first.split_at(common_prefix(first, last)).0);
            let ends = [0, made.shared.len().saturating_sub(8)];
            made.ends = ends.map(|start| prefix_at(&made.shared, start));
        }
        let prefixes = others.map(|i| prefix_at(made.key(i), made.shared.len()));
        made.prefixes = prefixes.collect();
        let ends = made.prefixes.iter().skip(SPAN - 1).step_by(SPAN);
        made.span_ends = ends.copied().collect();
        made
    }

    /// Bytes of memory that it takes, with those that its keys lie in.
    pub(super) fn weight(&self) -> usize {
        let own = size_of::<IndexEntries>()
            + size_of_val(&*self.span_ends)
            + size_of_val(&*self.prefixes);
        self.bytes.len() + own + size_of_val(&*self.entries)
    }

    /// Number of data blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The handle of data block `i` of them, one of `0..len()`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "callers' `i` is below `len()`")]
    pub(super) fn handle(&self, i: usize) -> BlockHandle {
        self.entries[i].handle
    }

    /// A key at or after the last of data block `i` of them, one of `0..len()`, and before the first of the next.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as `handle`; decoded from `bytes`")]
    pub(super) fn key(&self, i: usize) -> &[u8] {
        let Range { start, end } = self.entries[i].key;
        &self.bytes[start as usize..end as usize]
    }

    /// The first data block whose key is at or after `key`; the last one if no key before that one's is.
    #[inline]
    pub(super) fn seek(&self, key: &[u8], order: &Order) -> usize {
        match order {
            _ if self.len() == 1 => 0, // common: the tops of an index that is one piece
            Order::Bytewise => self.seek_by_prefix(key),
            Order::Custom(_) => self.first_at_or_after(key, 0..self.prefixes.len(), order),
        }
    }

    fn seek_by_prefix(&self, key: &[u8]) -> usize {
        // Up to sixteen bytes are compared without a function call.
        let (shared, [head, tail]) = (&*self.shared, self.ends);
        let (len, first) = (shared.len(), prefix_at(key, 0) ^ head);
        let is_shared = key.len() >= len
            && first.leading_zeros() as usize >= 8 * len.min(8)
            && (len <= 8 || prefix_at(key, len - 8) == tail)
            && (len <= 16 || key.starts_with(shared));
        if !is_shared {
            return if key < shared { 0 } else { self.prefixes.len() };
        }
        let prefix = prefix_at(key, len);
        let start = SPAN * self.span_ends.partition_point(|&end| end < prefix);
        // Counted rather than searched: the processor fetches all of the span at once.
        let span = self.prefixes.iter().skip(start).take(SPAN);
        let low = start + span.filter(|&&other| other < prefix).count();
        let rest = self.prefixes.get(low..).unwrap_or_default();
        if rest.first() != Some(&prefix) {
            return low;
        }
        let ties = rest.partition_point(|&other| other == prefix);
        self.first_at_or_after(key, low..low + ties, &Order::Bytewise)
    }

    /// The first of the data blocks in `range` whose key is at or after `key`, or the range's end. By halves, with fewer comparisons
    /// than the standard library's search takes.
    fn first_at_or_after(&self, key: &[u8], range: Range<usize>, order: &Order) -> usize {
        let Range {
            start: mut low,
            end: mut high,
        } = range;
        while low < high {
            let middle = low + (high - low) / 2;
            if order.compare(self.key(middle), key).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The eight bytes of `key` from byte `start` on as a number that orders as they do; zeros past its end.
#[inline]
fn prefix_at(key: &[u8], start: usize) -> u64 {
    let rest = key.get(start..).unwrap_or(&[]);
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    // The last bytes of the key, and others before them that do not count.
    let join = |n, &byte| n << 8 | u64::from(byte);
    let last = key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let last = last.unwrap_or_else(|| key.iter().fold(0, join));
    last.unbounded_shl(8 * (8 - rest.len() as u32))
}
