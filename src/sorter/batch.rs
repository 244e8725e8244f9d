//! Entries in memory, and their order.

use crate::comparator::{Order, common_prefix};
use crate::error::Result;
use crate::format::internal_key::user_order;
use crate::format::prefetch::{lines, prefetch};
use crate::sorted_input::SortedInput;
use crate::sorter::run::{MAX_HEADER_LEN, put_entry, split_entry};

/// Groups of at most this many entries are sorted by comparing their keys.
const SMALL: usize = 24;

/// Maximum depth of sorting groups by the next bytes of their keys; deeper ones are sorted by comparison. Bounds the
/// use of the stack.
const MAX_DEPTH: usize = 64;

/// Number of low bits of a record, which hold the index of its entry.
const PLACE_BITS: u32 = 60;

/// Number of entries ahead, and of bytes of each, that are prefetched: sorted neighbours are far apart in memory.
const AHEAD: (usize, usize) = (12, 192);

/// Entries in the order in which they were added; a sorted input after [`sort`](Batch::sort).
pub(super) struct Batch {
    pub(super) order: Order,
    pub(super) keep_all: bool,
    entries: Vec<u8>,
    /// A number for each entry. Its high bits are the head: eight bytes of the key, then how many bytes were left there, 9 for more than
    /// eight. The low bits are its index in `entries`, so that equal keys stay in the order in which they were added.
    records: Vec<u128>,
    /// The number of records up to and including the current one, once sorted.
    at: usize,
}

fn head(record: u128) -> u128 {
    record >> PLACE_BITS
}

fn place(record: u128) -> u128 {
    record & ((1 << PLACE_BITS) - 1)
}

impl Batch {
    pub(super) fn new(order: Order, keep_all: bool) -> Batch {
        Batch {
            order,
            keep_all,
            entries: Vec::new(),
            records: Vec::new(),
            at: 0,
        }
    }

    /// Whether the entry fits into the memory. The first one always does.
    pub(super) fn has_room(&self, key: &[u8], value: &[u8], memory: usize) -> bool {
        let records = (self.records.len() + 1) * size_of::<u128>();
        let entries = self.entries.len() + MAX_HEADER_LEN + key.len() + value.len();
        self.records.is_empty() || entries + records <= memory
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8], memory: usize) {
        let (len, more) = (self.entries.len(), MAX_HEADER_LEN + key.len() + value.len());
        if self.entries.capacity() - len < more {
            // Doubling could exceed the memory.
            let left = memory.saturating_sub(len);
            self.entries.reserve_exact(len.min(left).max(more));
        }
        put_entry(&mut self.entries, key, value);
        self.records.push(len as u128);
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.records.clear();
        self.at = 0;
    }

    pub(super) fn sort(&mut self) {
        self.at = 0;
        let begins_with = user_order(&self.order).unwrap_or(&self.order);
        let has_heads = matches!(begins_with, Order::Bytewise);
        let mut records = std::mem::take(&mut self.records);
        self.sort_group(&mut records, 0, if has_heads { 0 } else { MAX_DEPTH });
        self.records = records;
    }

    /// Sorts records of keys that share their first `skip` bytes.
    fn sort_group(&self, records: &mut [u128], skip: usize, depth: usize) {
        if records.len() <= SMALL || depth >= MAX_DEPTH {
            return records.sort_unstable_by(|a, b| {
                let by_key = self.order.compare(self.key(*a), self.key(*b));
                by_key.then(place(*a).cmp(&place(*b)))
            });
        }
        let skip = skip + self.shared(records, skip);
        for record in records.iter_mut() {
            let part = self.part(*record, skip);
            let mut bytes = part.iter().take(8);
            let bytes = match part.first_chunk() {
                Some(bytes) => u64::from_be_bytes(*bytes),
                None => (0..8).fold(0, |n, _| n << 8 | bytes.next().map_or(0, |&b| b.into())),
            };
            let left = part.len().min(9) as u128;
            *record = u128::from(bytes) << 64 | left << PLACE_BITS | place(*record);
        }
        records.sort_unstable();
        for group in records.chunk_by_mut(|a, b| head(*a) == head(*b)) {
            let has_ended = group.first().is_some_and(|record| head(*record) & 15 <= 8);
            if group.len() > 1 {
                self.sort_group(
                    group,
                    skip + 8,
                    if has_ended { MAX_DEPTH } else { depth + 1 },
                );
            }
        }
    }

    /// Length of the common prefix of all keys after the first `skip` bytes.
    fn shared(&self, records: &[u128], skip: usize) -> usize {
        let mut parts = records.iter().map(|record| self.part(*record, skip));
        let first = parts.next().unwrap_or_default();
        let shared = parts.try_fold(first.len(), |shared, part| {
            let shared = shared.min(common_prefix(first, part));
            (shared > 0).then_some(shared)
        });
        shared.unwrap_or(0)
    }

    fn entry(&self, record: u128) -> &[u8] {
        let place = place(record) as usize;
        self.entries.get(place..).unwrap_or_default()
    }

    fn key(&self, record: u128) -> &[u8] {
        split_entry(self.entry(record)).map_or(&[], |(key, ..)| key)
    }

    /// The part of a key that is sorted bytewise, without its first `skip` bytes.
    fn part(&self, record: u128, skip: usize) -> &[u8] {
        let part = self.order.filter_key(self.key(record));
        part.get(skip..).unwrap_or_default()
    }

    fn current(&self) -> Option<u128> {
        self.records.get(self.at.checked_sub(1)?).copied()
    }

    /// Whether the next entry has the same key as the current one, which is then dropped.
    fn is_replaced(&self) -> bool {
        let (Some(current), Some(&next)) = (self.current(), self.records.get(self.at)) else {
            return false;
        };
        // Equal keys have equal heads.
        !self.keep_all
            && head(current) == head(next)
            && self
                .order
                .compare(self.key(current), self.key(next))
                .is_eq()
    }
}

/// Sorted entries. Does not fail.
impl SortedInput for Batch {
    fn advance(&mut self) -> Result<bool> {
        self.at = (self.at + 1).min(self.records.len() + 1);
        while self.is_replaced() {
            self.at += 1;
        }
        let (ahead, bytes) = AHEAD;
        if let Some(&record) = self.records.get(self.at + ahead) {
            let entry = self.entry(record);
            prefetch(lines(entry.get(..bytes).unwrap_or(entry)));
        }
        Ok(self.current().is_some())
    }

    fn key(&self) -> &[u8] {
        self.current().map_or(&[], |record| self.key(record))
    }

    fn value(&self) -> &[u8] {
        let entry = self.current().map_or(&[][..], |record| self.entry(record));
        split_entry(entry).map_or(&[], |(_, value, _)| value)
    }
}
