//! Entries of an index in memory: which of some neighbouring data blocks may hold a key, without touching the file.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::format::footer::BlockHandle;

/// Neighbouring entries of an index, decoded and checked once: searching them cannot fail.
///
/// For each data block it holds a key at or after all of the block's keys and before all of the next block's, and the
/// block's handle. Takes the entries' bytes and 32 more per data block.
///
/// A search in bytewise order compares eight bytes of each key. Whole keys are read only to settle ties.
#[derive(Debug)]
pub(super) struct IndexEntries {
    /// What the keys lie in.
    bytes: Bytes,
    entries: Vec<IndexEntry>,
    /// Of each key but the last, the eight bytes after the shared ones.
    prefixes: Box<[u64]>,
    /// The leading bytes that all keys but the last share. The last may be the successor of the table's last key, often a
    /// single byte, and would end what all others share: a search leaves it out.
    shared: Bytes,
}

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
            shared: Bytes::new(),
            entries,
            bytes,
        };
        let others = 0..made.len().saturating_sub(1);
        if let Some(last) = others.clone().next_back() {
            let (first, last) = (made.key(0), made.key(last));
            let (shared, _) = first.split_at(common_prefix(first, last));
            made.shared = made.bytes.slice_ref(shared);
        }
        let prefixes = others.map(|i| prefix_at(made.key(i), made.shared.len()));
        made.prefixes = prefixes.collect();
        made
    }

    /// Bytes of memory that it takes, with those that its keys lie in or without.
    pub(super) fn weight(&self, with_bytes: bool) -> usize {
        let bytes = if with_bytes { self.bytes.len() } else { 0 };
        let per_entry = size_of::<IndexEntry>() + size_of::<u64>();
        bytes + size_of::<IndexEntries>() + per_entry * self.entries.len()
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
        self.entries[i].handle
    }

    /// A key at or after the last of data block `i` of them, one of `0..len()`, and before the first of the next.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "as `handle`; and the entries were decoded from these bytes"
    )]
    pub(super) fn key(&self, i: usize) -> &[u8] {
        let Range { start, end } = self.entries[i].key;
        &self.bytes[start as usize..end as usize]
    }

    /// The first data block whose key is at or after `key`; the last one if no key before that one's is.
    #[inline]
    pub(super) fn seek(&self, key: &[u8], order: &Order) -> usize {
        match order {
            Order::Bytewise => self.seek_by_prefix(key),
            Order::Custom(_) => self.first_at_or_after(key, 0..self.prefixes.len(), order),
        }
    }

    fn seek_by_prefix(&self, key: &[u8]) -> usize {
        let prefixes = &*self.prefixes;
        // An empty prefix is not compared: its pointer may dangle, and a masked load from it costs 100 ns.
        if !self.shared.is_empty() && !key.starts_with(&self.shared) {
            let is_before = *key < *self.shared;
            return if is_before { 0 } else { prefixes.len() };
        }
        let prefix = prefix_at(key, self.shared.len());
        let low = prefixes.partition_point(|&other| other < prefix);
        if prefixes.get(low) != Some(&prefix) {
            return low;
        }
        let high = prefixes.partition_point(|&other| other <= prefix);
        self.first_at_or_after(key, low..high, &Order::Bytewise)
    }

    /// The first of the data blocks in `range` whose key is at or after `key`, or the range's end.
    fn first_at_or_after(&self, key: &[u8], range: Range<usize>, order: &Order) -> usize {
        partition_point(range, |i| order.compare(self.key(i), key).is_lt())
    }
}

/// The first number of `range` that is not `before`, or the range's end. All that are `before` come first.
pub(super) fn partition_point(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let Range {
        start: mut low,
        end: mut high,
    } = range;
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The eight bytes of `key` from byte `start` on as a number that orders as they do; zeros past its end.
#[inline]
fn prefix_at(key: &[u8], start: usize) -> u64 {
    let rest = key.get(start..).unwrap_or(&[]);
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let join = |n, &byte| n << 8 | u64::from(byte);
    let missing = 8 * (8 - rest.len() as u32);
    rest.iter().fold(0u64, join).unbounded_shl(missing)
}
