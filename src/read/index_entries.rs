//! Entries of an index in memory: which of some neighbouring data blocks may hold a key, without touching the file.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::format::block::Block;
use crate::format::block_search::SearchPart;
use crate::format::footer::BlockHandle;
use crate::format::prefetch::prefetch;
use crate::read::state::State;

/// Neighbouring entries of an index, decoded and checked once: searching them cannot fail.
///
/// For each data block it holds a key at or after all of the block's keys and before all of the next block's, the block's handle,
/// and what is known of the block. Takes the entries' bytes and 33 more per data block.
///
/// A search in bytewise order compares eight bytes of each key. Whole keys are read only to settle ties. Without ties it waits for
/// memory once: prefixes, handles and states of one span arrive together.
#[derive(Debug)]
pub(super) struct IndexEntries {
    /// What the keys lie in.
    bytes: Bytes,
    /// Where each key lies in the bytes.
    keys: Box<[Range<u32>]>,
    /// Prefixes and handles of all entries.
    spans: Box<[Span]>,
    /// What is known of the data blocks of each span. Apart, since absent keys do without.
    states: Box<[SpanStates]>,
    /// The last prefix of each span, without the last entry of all.
    span_ends: Box<[u64]>,
    /// The handles, if one of them is too large to be packed; otherwise none.
    large_handles: Box<[BlockHandle]>,
    /// The leading bytes that all keys but the last share. The last may be the successor of the table's last key, often a
    /// single byte, and would end what all others share: a search leaves it out.
    shared: Bytes,
    /// The first eight of them, and the last eight, as numbers; of fewer, both are all of them and zeros.
    ends: [u64; 2],
}

/// Number of neighbouring entries that are compared together.
const SPAN: usize = 8;

/// Neighbouring entries, in two cache lines: processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Span {
    /// The eight bytes after the shared ones, of each key but the last of all; for that one and for entries that the last span lacks,
    /// the greatest number.
    prefixes: [u64; SPAN],
    handles: [PackedHandle; SPAN],
}

/// In one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct SpanStates([State; SPAN]);

/// A handle in eight bytes: 40 bits of offset, 24 of size.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct PackedHandle(u64);

impl PackedHandle {
    const OFFSET_BITS: u32 = 40;
    /// Stands for a handle that does not fit.
    const TOO_LARGE: PackedHandle = PackedHandle(u64::MAX);

    fn new(handle: BlockHandle) -> PackedHandle {
        let BlockHandle { offset, size } = handle;
        let fits = offset >> Self::OFFSET_BITS == 0 && size < (1 << (64 - Self::OFFSET_BITS)) - 1;
        if fits {
            PackedHandle(size << Self::OFFSET_BITS | offset)
        } else {
            Self::TOO_LARGE
        }
    }

    #[inline]
    fn unpack(self) -> BlockHandle {
        BlockHandle {
            offset: self.0 & ((1 << Self::OFFSET_BITS) - 1),
            size: self.0 >> Self::OFFSET_BITS,
        }
    }
}

/// An entry of an index: where its key lies in the bytes of all keys, and the handle of its data block.
#[derive(Debug)]
pub(super) struct IndexEntry {
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

/// The result of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought {
    /// Which of the data blocks it is.
    pub(super) at: usize,
    /// The prefix of the key that was looked for; 0 where the search did without. Only how fast the block is searched depends on it.
    pub(super) prefix: u64,
}

impl IndexEntries {
    /// Entries whose keys ascend and lie in `bytes`.
    pub(super) fn new(bytes: Bytes, entries: Vec<IndexEntry>) -> IndexEntries {
        let mut made = IndexEntries {
            bytes,
            keys: entries.iter().map(|entry| entry.key.clone()).collect(),
            spans: Box::default(),
            states: entries
                .chunks(SPAN)
                .map(|_| SpanStates::default())
                .collect(),
            span_ends: Box::default(),
            large_handles: Box::default(),
            shared: Bytes::new(),
            ends: [0; 2],
        };
        let others = made.len().saturating_sub(1);
        if let Some(last) = others.checked_sub(1) {
            let (first, last) = (made.key(0), made.key(last));
            made.shared = (made.bytes).slice_ref(first.split_at(common_prefix(first, last)).0);
            let ends = [0, made.shared.len().saturating_sub(8)];
            made.ends = ends.map(|start| prefix_at(&made.shared, start));
        }
        let span = |(number, entries): (usize, &[IndexEntry])| {
            let mut span = Span::default();
            let slots = span.prefixes.iter_mut().zip(&mut span.handles);
            for (i, ((prefix, handle), entry)) in (SPAN * number..).zip(slots.zip(entries)) {
                *handle = PackedHandle::new(entry.handle);
                if i < others {
                    *prefix = prefix_at(made.key(i), made.shared.len());
                }
            }
            span
        };
        made.spans = entries.chunks(SPAN).enumerate().map(span).collect();
        let whole = made.spans.iter().take(others / SPAN);
        made.span_ends = whole
            .filter_map(|span| span.prefixes.last().copied())
            .collect();
        let mut handles = made.spans.iter().flat_map(|span| &span.handles);
        if handles.any(|&handle| handle == PackedHandle::TOO_LARGE) {
            made.large_handles = entries.iter().map(|entry| entry.handle).collect();
        }
        made
    }

    /// Bytes of memory that it takes, with those that its keys lie in.
    pub(super) fn weight(&self) -> usize {
        let own = size_of::<IndexEntries>()
            + size_of_val(&*self.keys)
            + size_of_val(&*self.spans)
            + size_of_val(&*self.states)
            + size_of_val(&*self.span_ends)
            + size_of_val(&*self.large_handles);
        self.bytes.len() + own
    }

    /// Number of data blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The handle of data block `i` of them, one of `0..len()`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "callers' `i` is below `len()`")]
    pub(super) fn handle(&self, i: usize) -> BlockHandle {
        let packed = self.spans[i / SPAN].handles[i % SPAN];
        if packed == PackedHandle::TOO_LARGE
            && let Some(handle) = self.large_handles.get(i)
        {
            return *handle;
        }
        packed.unpack()
    }

    /// What is known of data block `i` of them, one of `0..len()`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as `handle`")]
    pub(super) fn state(&self, i: usize) -> &State {
        &self.states[i / SPAN].0[i % SPAN]
    }

    /// A key at or after the last of data block `i` of them, one of `0..len()`, and before the first of the next.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as `handle`; decoded from `bytes`")]
    pub(super) fn key(&self, i: usize) -> &[u8] {
        let Range { start, end } = self.keys[i];
        &self.bytes[start as usize..end as usize]
    }

    /// The first data block whose key is at or after `key`; the last one if no key before that one's is. If it `is_wanted`, its state is
    /// prefetched.
    #[inline]
    pub(super) fn seek(&self, key: &[u8], order: &Order, is_wanted: bool) -> Sought {
        let others = self.len().saturating_sub(1);
        match order {
            // Common: the tops of an index that is one piece.
            _ if others == 0 => Sought { at: 0, prefix: 0 },
            Order::Bytewise => self.seek_by_prefix(key, is_wanted),
            Order::Custom(_) => {
                let at = first_where(0..others, |i| order.compare(self.key(i), key).is_ge());
                Sought { at, prefix: 0 }
            }
        }
    }

    #[inline]
    fn seek_by_prefix(&self, key: &[u8], is_wanted: bool) -> Sought {
        let others = self.len() - 1;
        // Up to sixteen bytes are compared without a function call.
        let (shared, [head, tail]) = (&*self.shared, self.ends);
        let (len, first) = (shared.len(), prefix_at(key, 0) ^ head);
        let is_shared = key.len() >= len
            && first.leading_zeros() as usize >= 8 * len.min(8)
            && (len <= 8 || prefix_at(key, len - 8) == tail)
            && (len <= 16 || key.starts_with(shared));
        if !is_shared {
            let at = if key < shared { 0 } else { others };
            return Sought { at, prefix: 0 };
        }
        let prefix = prefix_at(key, len);
        let number = self.span_ends.partition_point(|&end| end < prefix);
        let Some(span) = self.spans.get(number) else {
            return Sought { at: others, prefix };
        };
        prefetch(span.handles.first().into_iter());
        if is_wanted {
            self.prefetch_states(number);
        }
        // Counted rather than searched: nothing to predict.
        let below = span
            .prefixes
            .iter()
            .filter(|&&other| other < prefix)
            .count();
        let mut at = SPAN * number + below;
        if span.prefixes.get(below) == Some(&prefix) {
            // Whole keys settle ties.
            at = first_where(at..others, |i| {
                self.prefix(i) > prefix || self.key(i) >= key
            });
        }
        Sought { at, prefix }
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as `handle`")]
    fn prefix(&self, i: usize) -> u64 {
        self.spans[i / SPAN].prefixes[i % SPAN]
    }

    /// Prefetches the span in which a search for `key` ends, in bytewise order.
    #[inline]
    pub(super) fn prefetch(&self, key: &[u8]) {
        let prefix = prefix_at(key, self.shared.len());
        let number = self.span_ends.partition_point(|&end| end < prefix);
        if let Some(span) = self.spans.get(number) {
            prefetch(span.prefixes.first().into_iter());
            prefetch(span.handles.first().into_iter());
            self.prefetch_states(number);
        }
    }

    #[inline]
    fn prefetch_states(&self, span: usize) {
        if let Some([first, ..]) = self.states.get(span).map(|states| &states.0) {
            first.prefetch();
        }
    }

    /// The part of the data block that a search has found in which the key should be.
    #[inline(always)]
    pub(super) fn part(&self, sought: Sought) -> SearchPart {
        let Sought { at, prefix } = sought;
        self.state(at).part(self.position(at, prefix))
    }

    /// Learns the fences of data block `i`, whose keys are in bytewise order.
    pub(super) fn learn<B: AsRef<[u8]>>(&self, i: usize, block: &Block<B>) {
        let position = |key: &[u8]| self.position(i, prefix_at(key, self.shared.len()));
        self.state(i).learn(block, position);
    }

    /// Where a key with this prefix lies between the keys before and of data block `i`: the first 16 bits in which keys of the
    /// block can differ. `None` where these keys do not tell: at both ends, and if they share the prefix.
    #[inline(always)]
    fn position(&self, i: usize, prefix: u64) -> Option<u16> {
        if i == 0 || i + 1 >= self.len() {
            return None;
        }
        let (low, high) = (self.prefix(i - 1), self.prefix(i));
        let width = u64::BITS - high.checked_sub(low)?.leading_zeros();
        let from_low = prefix.checked_sub(low)?;
        u16::try_from(from_low >> width.saturating_sub(u16::BITS)).ok()
    }
}

impl Default for Span {
    fn default() -> Span {
        Span {
            prefixes: [u64::MAX; SPAN],
            handles: Default::default(),
        }
    }
}

/// The first of `range` for which `is` is true, or the range's end; `is` is true of all after the first. By halves, with fewer
/// calls than the standard library's search makes.
#[inline]
fn first_where(range: Range<usize>, is: impl Fn(usize) -> bool) -> usize {
    let Range {
        start: mut low,
        end: mut high,
    } = range;
    while low < high {
        let middle = low + (high - low) / 2;
        if is(middle) {
            high = middle;
        } else {
            low = middle + 1;
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
    // The last bytes of the key, and others before them that do not count.
    let join = |n, &byte| n << 8 | u64::from(byte);
    let last = key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let last = last.unwrap_or_else(|| key.iter().fold(0, join));
    last.unbounded_shl(8 * (8 - rest.len() as u32))
}
