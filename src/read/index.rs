//! A table's index in memory: which data block may hold a key, without touching the file.

use std::cmp::Ordering;
use std::mem::size_of;
use std::ops::Range;

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::db::recognise::Evidence;
use crate::error::{Error, ErrorKind, Section};
use crate::format::Defect;
use crate::format::block::{Block, BlockBuilder};
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;

/// The index block, decoded and checked once: searching it cannot fail. Immutable.
///
/// For each data block it holds a key at or after all of the block's keys and before all of the next block's, and the
/// block's handle. Takes the index block and 17 bytes per data block.
///
/// A search in bytewise order compares eight bytes of each key: first those of every span's last key, in one small array,
/// then those of the few entries of one span, which lie beside the handle that is looked for. Whole keys are read only to
/// settle ties.
#[derive(Debug)]
pub(crate) struct Index {
    /// The index block. Every key in it is stored whole, so that its restarts find its entries.
    block: Block<Bytes>,
    entries: Vec<IndexEntry>,
    /// The leading bytes that all keys but the last share. The last is the successor of the table's last key, often a
    /// single byte, and would end what all others share: a search leaves it out.
    shared: Bytes,
    /// The prefix of the last entry of each whole span.
    spans: Vec<u64>,
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

/// A data block: the result of a search of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRef {
    /// Which of the table's data blocks it is, from 0.
    pub(crate) block: usize,
    pub(crate) handle: BlockHandle,
}

/// Number of entries in a span, which takes two lines of the processor's cache.
const SPAN: usize = 8;

/// Most memory that keys may unfold to, in multiples of the file's size.
///
/// LevelDB stores index keys whole, and nothing unfolds. The index of another writer may share prefixes; in a hostile one
/// the keys could take the square of the block's length.
const MAX_UNFOLDED: u64 = 32;

/// Where an index block lies, and what its entries are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexPlace {
    /// Offset of the index block in the file.
    pub(crate) offset: u64,
    /// The data blocks end at or before this offset.
    pub(crate) data_end: u64,
    pub(crate) file_size: u64,
}

impl Index {
    /// Checks the index block `contents`.
    ///
    /// Handles must be in the file's order without overlap, which bounds their number by the file's size. Keys must
    /// ascend, unless the order is not known (`None`).
    pub(crate) fn decode(
        contents: Bytes,
        place: IndexPlace,
        order: Option<&Order>,
    ) -> Result<Index, Error> {
        let corrupt = |defect: Defect| defect.locate(Section::Index, place.offset);
        let mut index = Index::of(Block::parse(contents).map_err(corrupt)?);
        if !index.decode_entries(place, order)? {
            index = Index::of(unfold(&index.block, place).map_err(corrupt)?);
            let whole = index.decode_entries(place, order)?;
            debug_assert!(whole, "unfolded keys are stored whole");
        }
        // Mapped, not filtered: the number of spans is known, and no more is allocated.
        let last_prefix = |span: &[IndexEntry]| span.last().map_or(u64::MAX, |last| last.prefix);
        let spans = index.all_but_last().chunks_exact(SPAN);
        index.spans = spans.map(last_prefix).collect();
        Ok(index)
    }

    /// An index of `block`, of which no entry has been decoded.
    fn of(block: Block<Bytes>) -> Index {
        Index {
            entries: Vec::new(),
            shared: shared_by_all_but_last(&block),
            spans: Vec::new(),
            block,
        }
    }

    /// Checks all entries, and keeps what a search needs of them. Returns `false` if restarts and entries do
    /// not correspond one to one: a key may then be stored without its prefix.
    fn decode_entries(&mut self, place: IndexPlace, order: Option<&Order>) -> Result<bool, Error> {
        let corrupt = |defect: Defect| defect.locate(Section::Index, place.offset);
        let Index { block, shared, .. } = &*self;
        if block.entries().is_empty() {
            return Ok(true);
        }
        let mut rest = block.iter();
        // A file has no room for more, whatever the block claims.
        let most = usize::try_from(place.data_end / TRAILER_LEN as u64).unwrap_or(usize::MAX);
        let mut entries = Vec::with_capacity(block.restart_count().min(most));
        let mut previous: Option<&[u8]> = None;
        let mut previous_end = 0;
        for (i, restart) in block.restarts().enumerate() {
            let Some(entry) = rest.next().transpose().map_err(corrupt)? else {
                return Ok(false);
            };
            if restart != entry.offset() || entry.shared() > 0 {
                return Ok(false);
            }
            let (key, value) = (block.unshared(&entry), block.bytes(entry.value()));
            if let (Some(previous), Some(order)) = (previous, order)
                && order.compare(previous, key) != Ordering::Less
            {
                return Err(not_ascending(i, previous, key, order));
            }
            let bounds = previous_end..place.data_end;
            let Some((handle, frame_end)) = decode_handle(value, &bounds) else {
                return Err(corrupt(misplaced(i, value, bounds)));
            };
            entries.push(IndexEntry {
                prefix: prefix_at(key, shared.len()),
                handle: PackedHandle::of(handle),
            });
            (previous, previous_end) = (Some(key), frame_end);
        }
        let whole = rest.next().is_none();
        self.entries = entries;
        Ok(whole)
    }

    /// Number of data blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn all_but_last(&self) -> &[IndexEntry] {
        self.entries.split_last().map_or(&[], |(_, others)| others)
    }

    /// The handle of data block `i`, one of `0..len()`.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "callers have `i` from a search, or count to `len()`"
    )]
    pub(crate) fn handle(&self, i: usize) -> BlockHandle {
        let handle = self.entries[i].handle.unpack();
        handle.unwrap_or_else(|| self.large_handle(i))
    }

    #[cold]
    #[expect(
        clippy::expect_used,
        reason = "every value was decoded when the index was made"
    )]
    fn large_handle(&self, i: usize) -> BlockHandle {
        let decoded = BlockHandle::decode(self.entry(i).1);
        decoded.expect("a handle that was decoded before").0
    }

    /// A key at or after the last of data block `i`, one of `0..len()`, and before the first of the next.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        self.entry(i).0
    }

    #[inline]
    #[expect(
        clippy::expect_used,
        reason = "every entry was decoded when the index was made"
    )]
    fn entry(&self, i: usize) -> (&[u8], &[u8]) {
        self.block
            .restart_entry(i)
            .expect("an entry that was decoded before")
    }

    /// What the index keys say of the table's kind.
    pub(crate) fn evidence(&self) -> Evidence {
        let mut evidence = Evidence::default();
        (0..self.len()).for_each(|i| evidence.add_index_key(self.key(i)));
        evidence.end_block();
        evidence
    }

    /// Data block `i`, one of `0..len()`, without a key that is looked for in it.
    pub(crate) fn block(&self, i: usize) -> BlockRef {
        BlockRef {
            block: i,
            handle: self.handle(i),
        }
    }

    /// The one data block that can hold `key`; `None` past the last index key.
    #[inline]
    pub(crate) fn seek(&self, key: &[u8], order: &Order) -> Option<BlockRef> {
        let last = self.len().checked_sub(1)?;
        let block = match order {
            Order::Bytewise => self.seek_by_prefix(key),
            Order::Custom(_) => self.first_at_or_after(key, 0, last, order),
        };
        if block == last && order.compare(self.key(last), key).is_lt() {
            return None;
        }
        Some(BlockRef {
            block,
            handle: self.handle(block),
        })
    }

    /// The first of all keys but the last that is at or after `key`, in bytewise order.
    #[inline]
    fn seek_by_prefix(&self, key: &[u8]) -> usize {
        let entries = self.all_but_last();
        // An empty prefix is not compared: its pointer may dangle, and a masked load from it costs 100 ns.
        if !self.shared.is_empty() && !key.starts_with(&self.shared) {
            let is_before = *key < *self.shared;
            return if is_before { 0 } else { entries.len() };
        }
        let prefix = prefix_at(key, self.shared.len());
        let start = self.span_start(prefix);
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

    /// Where the span begins that holds the first entry at or after `prefix`.
    #[inline]
    fn span_start(&self, prefix: u64) -> usize {
        SPAN * self.spans.partition_point(|&last| last < prefix)
    }

    /// Checks that a block whose keys go from `first` to `last` lies where data block `i` belongs: after the index key of the
    /// block before, and not past its own.
    pub(crate) fn check_ends(
        &self,
        i: usize,
        first: &[u8],
        last: &[u8],
        order: &Order,
    ) -> Result<(), Defect> {
        if matches!(order, Order::Bytewise) && self.prefixes_enclose(i, first, last) {
            return Ok(());
        }
        let misordered = |what, low: &[u8], high: &[u8]| {
            Err(Defect::misordered(order.order_message(what, low, high)))
        };
        let before = i.checked_sub(1).map(|before| self.key(before));
        if let Some(before) = before.filter(|before| order.compare(before, first).is_ge()) {
            return misordered("an index key and the next block's", before, first);
        }
        if order.compare(last, self.key(i)).is_gt() {
            return misordered("a block's last key and its index key", last, self.key(i));
        }
        Ok(())
    }

    /// Returns whether eight bytes of each key show, in bytewise order, that the block lies between its index keys. If they do not,
    /// whole keys must be compared.
    ///
    /// The eight bytes lie beside the handles, which a lookup has just read, where the index keys themselves are memory that
    /// nobody may have touched since the table was opened.
    fn prefixes_enclose(&self, i: usize, first: &[u8], last: &[u8]) -> bool {
        let Some(high) = self.all_but_last().get(i) else {
            return false;
        };
        let low = i.checked_sub(1).and_then(|before| self.entries.get(before));
        let start = self.shared.len();
        [first, last]
            .iter()
            .all(|key| key.starts_with(&self.shared))
            && low.is_none_or(|low| low.prefix < prefix_at(first, start))
            && prefix_at(last, start) < high.prefix
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
}

/// Keys ascend (which is checked afterwards), so what the first and the last but one share, all share.
fn shared_by_all_but_last(block: &Block<Bytes>) -> Bytes {
    let key = |i| Some(block.restart_entry(i)?.0);
    let last_but_one = block.restart_count().checked_sub(2);
    match (key(0), last_but_one.and_then(key)) {
        (Some(first), Some(last_but_one)) => {
            let (shared, _) = first.split_at(common_prefix(first, last_but_one));
            block.data().slice_ref(shared)
        }
        _ => Bytes::new(),
    }
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
fn decode_handle(value: &[u8], bounds: &Range<u64>) -> Option<(BlockHandle, u64)> {
    // Bytes after the handle are ignored, as LevelDB does.
    let (handle, _) = BlockHandle::decode(value)?;
    let end = handle.end()?;
    let fits = handle.offset >= bounds.start && end <= bounds.end;
    (fits && u32::try_from(handle.size).is_ok()).then_some((handle, end))
}

#[cold]
fn misplaced(i: usize, value: &[u8], bounds: Range<u64>) -> Defect {
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

/// The same block with every key stored whole.
fn unfold(block: &Block<Bytes>, place: IndexPlace) -> Result<Block<Bytes>, Defect> {
    block.check_restarts()?;
    let most = place
        .file_size
        .saturating_mul(MAX_UNFOLDED)
        .min(isize::MAX as u64 / 2);
    let mut builder = BlockBuilder::new(1);
    let mut cursor = BlockCursor::new(block.clone());
    while cursor.next()? {
        let (key, value) = (cursor.key(), cursor.value());
        let len = (builder.len() + key.len() + value.len()) as u64;
        if len > most || !builder.has_room(key.len(), value.len()) {
            return Err(Defect::new(
                format!("index keys that take at most {MAX_UNFOLDED} times the file, and 4 GiB"),
                format!("{len} bytes of entries"),
            ));
        }
        builder.add(key, common_prefix(builder.last_key(), key), value);
    }
    Block::parse(builder.finish(Bytes::copy_from_slice))
}

#[cold]
fn not_ascending(i: usize, previous: &[u8], key: &[u8], order: &Order) -> Error {
    let what = format!("index keys {} and {i}", i - 1);
    Error::new(
        ErrorKind::Comparator,
        order.order_message(&what, previous, key),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn encode(keys: &[Vec<u8>], interval: usize) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval);
        for (i, key) in keys.iter().enumerate() {
            let mut value = Vec::new();
            let handle = BlockHandle {
                offset: 20 * i as u64,
                size: 15,
            };
            handle.encode(&mut value);
            builder.add(key, common_prefix(builder.last_key(), key), &value);
        }
        builder.finish(<[u8]>::to_vec)
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Index, Error> {
        let place = IndexPlace {
            offset: 1 << 20,
            data_end: 1 << 20,
            file_size: 2 << 20,
        };
        Index::decode(Bytes::copy_from_slice(block), place, Some(&Order::Bytewise))
    }

    proptest! {
        /// Keys of few letters and zeros make ties, common prefixes, and prefixes of each other.
        #[test]
        fn seeks_agree_with_a_linear_search(
            keys in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(vec![0u8, 1, 7, 0xff]), 0..14), 0..300),
            head in prop::collection::vec(0u8..2, 0..12),
            targets in prop::collection::vec(
                prop::collection::vec(prop::sample::select(vec![0u8, 1, 7, 0xff]), 0..16), 30),
            last_is_successor: bool,
            interval in 1usize..4,
        ) {
            let mut keys: Vec<Vec<u8>> = keys.iter().map(|key| [&head[..], key].concat()).collect();
            if last_is_successor {
                keys.push(vec![0xff; 20]);
            }
            let index = decode(&encode(&keys, interval)).unwrap();
            prop_assert_eq!(index.len(), keys.len());
            let targets = targets.iter().flat_map(|t| [t.clone(), [&head[..], t].concat()]);
            for target in targets.chain(keys.clone()) {
                let expected = keys.iter().position(|key| *key >= target);
                let found = index.seek(&target, &Order::Bytewise);
                prop_assert_eq!(found.map(|found| found.block), expected, "{:?}", target);
                // As the first key of each block, as its last, and as both.
                let around = expected.unwrap_or(keys.len());
                for i in around.saturating_sub(2)..keys.len().min(around + 2) {
                    let is_after = i == 0 || keys[i - 1] < target;
                    let is_within = target <= keys[i];
                    let inside = keys[i].clone();
                    for (first, last, expected) in [
                        (&target, &inside, is_after),
                        (&target, &target, is_after && is_within),
                        (&inside, &target, is_within),
                    ] {
                        let checked = index.check_ends(i, first, last, &Order::Bytewise);
                        prop_assert_eq!(checked.is_ok(), expected, "{}: {:?} {:?}", i, first, last);
                    }
                }
            }
            for (i, key) in keys.iter().enumerate() {
                prop_assert_eq!(index.key(i), &key[..]);
                prop_assert_eq!(index.handle(i).offset, 20 * i as u64);
            }
        }
    }

    fn one(key: &[u8], offset: u64, size: u64) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::new();
        BlockHandle { offset, size }.encode(&mut value);
        (key.to_vec(), value)
    }

    #[test]
    fn handles_that_overlap_repeat_or_leave_the_file_are_refused() {
        for bad in [
            one(b"b", 0, 10),
            one(b"b", 14, 10),
            one(b"b", 5, 1),
            one(b"b", 1 << 20, 1),
            one(b"b", (1 << 20) - 5, 1),
            one(b"b", u64::MAX, 1),
            one(b"b", u64::MAX - 5, 5),
            one(b"b", 20, u64::MAX),
            (b"b".to_vec(), vec![]),
            (b"b".to_vec(), vec![0x80]),
        ] {
            let mut builder = BlockBuilder::new(1);
            let (key, value) = one(b"a", 0, 10);
            builder.add(&key, 0, &value);
            builder.add(&bad.0, 0, &bad.1);
            let error = decode(&builder.finish(<[u8]>::to_vec)).unwrap_err();
            let corruption = error.corruption().unwrap();
            assert_eq!(corruption.section(), Section::Index);
            assert!(corruption.expected().contains("data block 1"), "{error}");
        }
    }

    #[test]
    fn handles_of_any_size_and_with_gaps_between_are_kept() {
        let handles = [
            (7, 0),
            (12, (1 << 24) - 1),
            (1 << 30, 1 << 24),
            ((1 << 40) - 1, (1 << 24) - 1),
            ((1 << 41) - 1, (1 << 24) - 1),
            (u64::MAX >> 1, u32::MAX.into()),
        ];
        let mut builder = BlockBuilder::new(1);
        for (i, (offset, size)) in handles.into_iter().enumerate() {
            let (key, value) = one(&[i as u8], offset, size);
            builder.add(&key, 0, &value);
        }
        let place = IndexPlace {
            offset: u64::MAX,
            data_end: u64::MAX,
            file_size: u64::MAX,
        };
        let block = builder.finish(Bytes::copy_from_slice);
        let index = Index::decode(block, place, Some(&Order::Bytewise)).unwrap();
        for (i, (offset, size)) in handles.into_iter().enumerate() {
            assert_eq!(index.handle(i), BlockHandle { offset, size });
        }
    }

    #[test]
    fn keys_that_do_not_ascend_show_the_wrong_comparator() {
        let error = decode(&encode(&[b"b".to_vec(), b"a".to_vec()], 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator);
        assert!(
            error.to_string().contains("leveldb.BytewiseComparator"),
            "{error}"
        );
    }

    /// 2 000 keys that share a prefix of 100 000 bytes would unfold to 200 MB.
    #[test]
    fn keys_that_unfold_without_bound_are_refused() {
        let keys: Vec<Vec<u8>> = (0..2000u32)
            .map(|i| [vec![b'k'; 100_000], i.to_be_bytes().to_vec()].concat())
            .collect();
        let block = encode(&keys, usize::MAX);
        let error = decode(&block).unwrap_err();
        assert!(error.to_string().contains("32 times the file"), "{error}");
    }
}
