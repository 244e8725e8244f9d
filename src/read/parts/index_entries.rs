//! Entries of an index in memory: which of a series of data blocks may hold a key.

use std::ops::Range;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::format::block::Block;
use crate::format::block_search::SearchPart;
use crate::format::footer::BlockHandle;
use crate::format::prefetch::prefetch;
use crate::read::parts::state::BlockState;
use crate::read::source::weight::weight_of;

/// Adjacent entries of an index, decoded and checked once: searching them cannot fail.
///
/// For each data block, it holds a key at or after all keys of the block and before all keys of the next, the block's handle, and
/// the block's state. Takes the entries' bytes and 37 more per data block.
///
/// A search in bytewise order compares eight bytes of each key. Whole keys are read only to break ties. Without ties, it waits for
/// memory once: prefixes, offsets and states of one span arrive together.
#[derive(Debug)]
pub(crate) struct IndexEntries {
    /// The bytes that contain the keys.
    bytes: Bytes,
    /// Where each key lies in the bytes.
    keys: Box<[Range<u32>]>,
    /// Prefixes and offsets of all entries.
    spans: Box<[Span]>,
    /// The rest of what a lookup needs. Separate, because absent keys do not need it.
    blocks: Box<[SpanBlocks]>,
    /// The last prefix of each span, disregarding the last entry of all.
    span_ends: Box<[u64]>,
    /// The common prefix of all keys but the last. The last key may be the successor of the table's last key, often a
    /// single byte, which would shorten the common prefix: a search leaves it out.
    shared: Bytes,
    /// The first eight and the last eight bytes of `shared`, as numbers; if it is shorter, both are all of its bytes
    /// and zeros.
    ends: [u64; 2],
}

/// Number of adjacent entries that are compared together.
const SPAN: usize = 8;

/// Adjacent entries, in two cache lines: processors fetch lines in pairs.
#[derive(Debug, Clone)]
#[repr(align(128))]
struct Span {
    /// The eight bytes after `shared` of each key but the last of all; for the last one, and for entries that the last span lacks,
    /// the maximum.
    prefixes: [u64; SPAN],
    /// Where the data blocks begin in the file.
    offsets: [u64; SPAN],
}

/// What a lookup needs of the data blocks that it reads.
#[derive(Debug, Default)]
#[repr(align(32))]
struct SpanBlocks {
    states: [BlockState; SPAN],
    /// Lengths of the blocks.
    sizes: [u32; SPAN],
}

/// An entry of an index: where its key lies in the bytes of all keys, and the handle of its data block.
#[derive(Debug)]
pub(crate) struct IndexEntry {
    key: Range<u32>,
    handle: BlockHandle,
}

impl IndexEntry {
    /// Blocks are smaller than 4 GiB.
    pub(crate) fn new(key: Range<usize>, handle: BlockHandle) -> IndexEntry {
        let key = key.start as u32..key.end as u32;
        IndexEntry { key, handle }
    }
}

/// The result of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sought {
    /// The number of the data block among the entries.
    pub(crate) at: usize,
    /// The prefix of the target; 0 if the search did not need it. It only affects how fast the block is searched.
    pub(crate) prefix: u64,
}

impl IndexEntries {
    /// Takes entries whose keys ascend and lie in `bytes`.
    #[expect(clippy::indexing_slicing, reason = "as many spans as the entries fill")]
    pub(crate) fn new(bytes: Bytes, entries: Vec<IndexEntry>) -> IndexEntries {
        let mut made = IndexEntries {
            bytes,
            keys: entries.iter().map(|entry| entry.key.clone()).collect(),
            spans: Box::default(),
            blocks: Box::default(),
            span_ends: Box::default(),
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
        let count = entries.len().div_ceil(SPAN);
        let mut spans = vec![Span::EMPTY; count];
        let mut blocks: Vec<_> = (0..count).map(|_| SpanBlocks::default()).collect();
        for (i, IndexEntry { handle, .. }) in entries.iter().enumerate() {
            let (number, at) = (i / SPAN, i % SPAN);
            if i < others {
                spans[number].prefixes[at] = prefix_at(made.key(i), made.shared.len());
            }
            spans[number].offsets[at] = handle.offset;
            blocks[number].sizes[at] = handle.size as u32; // smaller than 4 GiB
        }
        let whole = spans.iter().take(others / SPAN);
        made.span_ends = whole.map(|span| span.prefixes[SPAN - 1]).collect();
        (made.spans, made.blocks) = (spans.into(), blocks.into());
        made
    }

    /// Bytes of memory that this takes, including the bytes of the keys.
    pub(crate) fn weight(&self, file: Option<&Bytes>) -> usize {
        weight_of(&self.bytes, file)
            + size_of_val(&*self.keys)
            + size_of_val(&*self.spans)
            + size_of_val(&*self.blocks)
            + size_of_val(&*self.span_ends)
    }

    /// Number of data blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The handle of data block `i`, one of `0..len()`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "callers' `i` is below `len()`")]
    pub(crate) fn handle(&self, i: usize) -> BlockHandle {
        BlockHandle {
            offset: self.spans[i / SPAN].offsets[i % SPAN],
            size: self.blocks[i / SPAN].sizes[i % SPAN].into(),
        }
    }

    /// Where data block `i`, one of `0..len()`, begins in the file.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as `handle`")]
    pub(crate) fn offset(&self, i: usize) -> u64 {
        self.spans[i / SPAN].offsets[i % SPAN]
    }

    /// The state of data block `i`, one of `0..len()`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as `handle`")]
    pub(crate) fn state(&self, i: usize) -> &BlockState {
        &self.blocks[i / SPAN].states[i % SPAN]
    }

    /// A key at or after the last of data block `i`, one of `0..len()`, and before the first of the next.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as `handle`; decoded from `bytes`")]
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let Range { start, end } = self.keys[i];
        &self.bytes[start as usize..end as usize]
    }

    /// The first data block whose key is at or after `key`; the last block if there is no other. If it `is_wanted`, its state is
    /// prefetched.
    #[inline]
    pub(crate) fn seek(&self, key: &[u8], order: &Order, is_wanted: bool) -> Sought {
        let others = self.len().saturating_sub(1);
        match order {
            // Common: the tops of an index with one piece.
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
        prefetch(span.offsets.first().into_iter());
        if is_wanted {
            self.prefetch_blocks(number);
        }
        // Counted rather than searched, to avoid unpredictable branches.
        let prefixes = span.prefixes.iter();
        let below = prefixes.filter(|&&other| other < prefix).count();
        let mut at = SPAN * number + below;
        if span.prefixes.get(below) == Some(&prefix) {
            // Whole keys break ties.
            let is_at_or_after = |i| self.prefix(i) > prefix || self.key(i) >= key;
            at = first_where(at..others, is_at_or_after);
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
    pub(crate) fn prefetch(&self, key: &[u8]) {
        let prefix = prefix_at(key, self.shared.len());
        let number = self.span_ends.partition_point(|&end| end < prefix);
        if let Some(span) = self.spans.get(number) {
            prefetch(span.prefixes.first().into_iter());
            prefetch(span.offsets.first().into_iter());
            self.prefetch_blocks(number);
        }
    }

    #[inline]
    fn prefetch_blocks(&self, span: usize) {
        if let Some(SpanBlocks {
            states: [state, ..],
            sizes,
        }) = self.blocks.get(span)
        {
            state.prefetch();
            prefetch(sizes.last().into_iter());
        }
    }

    /// The part of the data block `found` in which the key should be.
    #[inline(always)]
    pub(crate) fn part(&self, sought: Sought) -> SearchPart {
        let Sought { at, prefix } = sought;
        self.state(at).part(self.position(at, prefix))
    }

    /// Learns the fences of data block `i`, whose keys are in bytewise order.
    pub(crate) fn learn<B: AsRef<[u8]>>(&self, i: usize, block: &Block<B>) {
        let position = |key: &[u8]| self.position(i, prefix_at(key, self.shared.len()));
        self.state(i).learn(block, position);
    }

    /// The position of a key with this prefix between the previous data block's key and that of data block `i`: the first 16
    /// bits in which keys of the block can differ. `None` if these keys do not say: at both ends, and if they share the
    /// prefix.
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

impl Span {
    const EMPTY: Span = Span {
        prefixes: [u64::MAX; SPAN],
        offsets: [0; SPAN],
    };
}

/// The first of `range` for which `is` is true, or the range's end; `is` must be true for all later ones. A bisection with
/// fewer calls than the standard library's.
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

/// The eight bytes of `key` from byte `start` on, as a number with the same order; zeros past the key's end.
#[inline]
fn prefix_at(key: &[u8], start: usize) -> u64 {
    let rest = key.get(start..).unwrap_or(&[]);
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    // The last bytes of the key, preceded by others that do not matter.
    let join = |n, &byte| n << 8 | u64::from(byte);
    let last = key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let last = last.unwrap_or_else(|| key.iter().fold(0, join));
    last.unbounded_shl(8 * (8 - rest.len() as u32))
}
