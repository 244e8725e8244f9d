//! A table's index, in pieces that are loaded when they are first needed: which data block may hold a key.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::comparator::Order;
use crate::format::block::Block;
use crate::format::block_search::SearchPart;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame::TRAILER_LEN;
use crate::format::pieces::{IndexPieces, take_handle};
use crate::format::{Defect, require};
use crate::read::parts::index_entries::{IndexEntries, IndexEntry, Sought};
use crate::read::parts::state::BlockState;

/// Limit for the memory of decoded keys, in multiples of the file's size; with the block, at most 1 GiB.
///
/// LevelDB stores index keys whole, which takes no such memory. The index of another writer may share prefixes; in a
/// hostile one, the keys could take the square of the block's length.
const MAX_UNFOLDED: u64 = 32;

/// The index block, in the pieces that `about.pieces` describes; without it, one piece, which is loaded from the start. Each piece's
/// number of entries and its last entry, whose key is the *top*, are known from the start: these last entries are an index of the
/// pieces. So a search knows the piece that it needs, and data blocks are numbered through all pieces.
///
/// A piece is decoded and checked once, and is immutable from then on. Takes some 100 bytes per piece, plus the loaded pieces.
#[derive(Debug)]
pub(crate) struct Index {
    /// How `about.pieces` divides the index block, which is then read in pieces; `None` if it was read at opening.
    pub(crate) divided: Option<IndexPieces>,
    /// The last entry of each piece.
    tops: IndexEntries,
    slots: Vec<Slot>,
    /// Number of data blocks.
    len: usize,
    /// Where the index block lies, and where data blocks end at the latest.
    pub(crate) footer: Footer,
}

/// A piece, once it is loaded.
#[derive(Debug, Default)]
struct Slot {
    /// The number of its first data block.
    first: usize,
    piece: OnceLock<Box<LoadedPiece>>,
}

#[derive(Debug)]
struct LoadedPiece {
    /// The number of its first data block.
    first: usize,
    entries: IndexEntries,
}

/// A search of index or filter needs a piece that is not loaded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotLoaded;

/// A data block: the result of a search of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRef {
    /// The number of the data block in the table, from 0.
    pub(crate) block: usize,
    /// The piece of the index that names it, and its number in that piece.
    piece: u32,
    at: u32,
    pub(crate) handle: BlockHandle,
}

/// A data block that a search for a key has found, with its place in the index, so that lookups need not find it again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'i> {
    piece: &'i LoadedPiece,
    /// The number of the piece in the index.
    p: usize,
    sought: Sought,
}

impl Found<'_> {
    /// The number of the data block in the table, from 0.
    pub(crate) fn block(&self) -> usize {
        self.piece.first + self.sought.at
    }

    #[inline]
    pub(crate) fn handle(&self) -> BlockHandle {
        self.piece.entries.handle(self.sought.at)
    }

    /// Where the block begins in the file.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.piece.entries.offset(self.sought.at)
    }

    /// The state of the block.
    #[inline]
    pub(crate) fn state(&self) -> &BlockState {
        self.piece.entries.state(self.sought.at)
    }

    /// The part of the block in which the key should be.
    #[inline]
    pub(crate) fn part(&self) -> SearchPart {
        self.piece.entries.part(self.sought)
    }

    /// A key at or after the last of the block, and before the first of the next.
    pub(crate) fn key(&self) -> &[u8] {
        self.piece.entries.key(self.sought.at)
    }

    pub(crate) fn to_ref(self) -> BlockRef {
        self.piece.block(self.p, self.sought.at)
    }
}

impl LoadedPiece {
    /// Data block number `at` of these entries, which are piece `p`.
    #[inline]
    fn block(&self, p: usize, at: usize) -> BlockRef {
        BlockRef {
            block: self.first + at,
            piece: p as u32,
            at: at as u32,
            handle: self.entries.handle(at),
        }
    }
}

impl Index {
    /// Decodes and checks the whole index in the block `contents`. Keys that are stored whole, as LevelDB's are, are used in place;
    /// others are decoded into memory after a copy of the block.
    pub(crate) fn of_block(
        contents: Bytes,
        footer: Footer,
        file_size: u64,
        order: Option<&Order>,
    ) -> Result<Index, Defect> {
        let (block_len, most) = (contents.len(), file_size.saturating_mul(MAX_UNFOLDED));
        let most = most.max(block_len as u64).saturating_add(block_len as u64);
        let expected =
            || format!("keys that take at most {MAX_UNFOLDED} times the file, and 1 GiB");
        let block = Block::parse(&contents)?;
        block.check_restarts()?;
        // A file has no room for more data blocks, whatever the index claims.
        let room = footer.data_end() as usize / TRAILER_LEN;
        let mut entries = Vec::with_capacity(block.restart_count.min(room));
        let mut keys = Cow::Borrowed(&*contents);
        let (mut last, mut data) = (0..0, 0..footer.data_end());
        for entry in block.iter() {
            let entry = entry?;
            let mut key = entry.unshared();
            if entry.shared() > 0 {
                let (start, keys) = (keys.len(), keys.to_mut());
                keys.extend_from_within(last.start..last.start + entry.shared());
                keys.extend_from_slice(block.unshared(&entry));
                key = start..keys.len();
                let found = || format!("{} bytes of them", keys.len() - block_len);
                require(keys.len() as u64 <= most.min(1 << 30), expected, found)?;
            }
            let at = |range: &Range<usize>| keys.get(range.clone()).unwrap_or_default();
            let previous = (!entries.is_empty()).then(|| at(&last));
            let value = block.bytes(entry.value());
            let handle = take_handle((at(&key), value), previous, &mut data, order)?;
            last = key.clone();
            entries.push(IndexEntry::new(key, handle));
        }
        let keys = match keys {
            Cow::Borrowed(_) => contents,
            Cow::Owned(keys) => keys.into_boxed_slice().into(),
        };
        let entries = IndexEntries::new(keys, entries);
        let last = entries.len().checked_sub(1);
        let top = last.map_or(&[][..], |last| entries.key(last));
        let tops = last.map(|last| IndexEntry::new(0..top.len(), entries.handle(last)));
        let tops = IndexEntries::new(Bytes::copy_from_slice(top), tops.into_iter().collect());
        let index = Index::new(None, tops, entries.len(), footer);
        index.keep(0, entries);
        Ok(index)
    }

    /// The index of a file that says how it is divided. Reads nothing yet.
    pub(crate) fn in_file(
        pieces: IndexPieces,
        footer: Footer,
        order: Option<&Order>,
    ) -> Result<Index, Defect> {
        let (bytes, tops) = pieces.tops();
        let data_end = tops.last().and_then(|(_, last)| last.end());
        let fits = data_end.is_some_and(|end| end <= footer.data_end());
        let expected = || format!("data blocks before offset {}", footer.data_end());
        let found = || format!("the last one up to {data_end:?}");
        require(fits, expected, found)?;
        let entry = |(key, handle)| IndexEntry::new(key, handle);
        let tops = IndexEntries::new(bytes, tops.into_iter().map(entry).collect());
        for p in 1..tops.len() {
            let (before, top) = (tops.key(p - 1), tops.key(p));
            if let Some(order) = order.filter(|order| order.compare(before, top).is_ge()) {
                return Err(order.misordered("index keys", before, top));
            }
        }
        let len = pieces.blocks_before(pieces.len());
        Ok(Index::new(Some(pieces), tops, len, footer))
    }

    fn new(divided: Option<IndexPieces>, tops: IndexEntries, len: usize, footer: Footer) -> Index {
        let pieces = divided.as_ref();
        let slot = |p| Slot {
            first: pieces.map_or(0, |pieces| pieces.blocks_before(p)),
            ..Slot::default()
        };
        Index {
            slots: (0..tops.len()).map(slot).collect(),
            divided,
            tops,
            len,
            footer,
        }
    }

    /// Number of data blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of pieces.
    pub(crate) fn pieces(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of memory that this takes with the loaded pieces, apart from what lies in a `file` in memory.
    pub(crate) fn weight(&self, file: Option<&Bytes>) -> usize {
        let own = self.divided.as_ref().map_or(0, IndexPieces::weight);
        let slots = size_of_val(&*self.slots);
        let pieces = (0..self.pieces()).map(|p| self.weight_of(p, file));
        own + self.tops.weight(file) + slots + pieces.sum::<usize>()
    }

    /// The part of this that piece `p` takes, if it is loaded.
    pub(crate) fn weight_of(&self, p: usize, file: Option<&Bytes>) -> usize {
        let piece = self.piece(p).ok();
        piece.map_or(0, |piece| {
            size_of::<LoadedPiece>() + piece.entries.weight(file)
        })
    }

    /// The last key of each piece.
    pub(crate) fn tops(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.tops.len()).map(|p| self.tops.key(p))
    }

    /// The offset of the last data block; `None` in an empty table.
    pub(crate) fn last_block_offset(&self) -> Option<u64> {
        let last = self.tops.len().checked_sub(1)?;
        Some(self.tops.handle(last).offset)
    }

    /// Where in the file the last data block of piece `p`, one of `0..pieces()`, ends.
    pub(crate) fn data_end(&self, p: usize) -> u64 {
        self.tops.handle(p).frame_in_file().end
    }

    /// The piece that names data block `i`, one of `0..len()`.
    pub(crate) fn piece_of(&self, i: usize) -> usize {
        let after = self.slots.partition_point(|slot| slot.first <= i);
        after.saturating_sub(1)
    }

    /// Whether piece `p` is loaded, or does not exist: an empty index has no piece.
    pub(crate) fn has(&self, p: usize) -> bool {
        let slot = self.slots.get(p);
        slot.is_none_or(|slot| slot.piece.get().is_some())
    }

    #[inline]
    fn piece(&self, p: usize) -> Result<&LoadedPiece, NotLoaded> {
        let slot = self.slots.get(p).ok_or(NotLoaded)?;
        slot.piece.get().map(Box::as_ref).ok_or(NotLoaded)
    }

    /// The piece that a block was found in.
    #[inline]
    #[expect(clippy::expect_used, reason = "a piece that was there stays")]
    fn piece_with(&self, found: BlockRef) -> &LoadedPiece {
        let piece = self.piece(found.piece as usize);
        piece.expect("the piece that a block was found in")
    }

    /// The state of a data block.
    #[inline]
    pub(crate) fn state(&self, found: BlockRef) -> &BlockState {
        self.piece_with(found).entries.state(found.at as usize)
    }

    /// Learns the fences of a data block, whose keys are in bytewise order.
    pub(crate) fn learn<B: AsRef<[u8]>>(&self, found: BlockRef, block: &Block<B>) {
        let entries = &self.piece_with(found).entries;
        entries.learn(found.at as usize, block);
    }

    /// A key at or after the last of a data block, and before the first of the next.
    pub(crate) fn key(&self, found: BlockRef) -> &[u8] {
        self.piece_with(found).entries.key(found.at as usize)
    }

    /// Data block `i`, one of `0..len()`.
    pub(crate) fn block(&self, i: usize) -> Result<BlockRef, NotLoaded> {
        let p = self.piece_of(i);
        let piece = self.piece(p)?;
        Ok(piece.block(p, i - piece.first))
    }

    /// The only data block that can hold `key`; `None` after the last index key. If it `is_wanted`, its state is prefetched.
    #[inline(always)] // so that the result stays in registers, which saves 20 ns per lookup
    pub(crate) fn seek(
        &self,
        key: &[u8],
        order: &Order,
        is_wanted: bool,
    ) -> Result<Option<Found<'_>>, NotLoaded> {
        let Some(last) = self.slots.len().checked_sub(1) else {
            return Ok(None);
        };
        let p = self.tops.seek(key, order, false).at;
        let piece = self.piece(p)?;
        let sought = piece.entries.seek(key, order, is_wanted);
        let is_last = p == last && sought.at + 1 == piece.entries.len();
        if is_last && order.compare(piece.entries.key(sought.at), key).is_lt() {
            return Ok(None);
        }
        Ok(Some(Found { piece, p, sought }))
    }

    /// Prefetches what a search for `key` reads, if its piece is loaded and keys are in bytewise order.
    #[inline]
    pub(crate) fn prefetch(&self, key: &[u8], order: &Order) {
        let p = self.tops.seek(key, order, false).at;
        if let (Order::Bytewise, Ok(piece)) = (order, self.piece(p)) {
            piece.entries.prefetch(key);
        }
    }

    /// The piece that names the only data block that can hold `key`; `None` after the last index key.
    #[inline]
    pub(crate) fn seek_piece(&self, key: &[u8], order: &Order) -> Option<usize> {
        let last = self.tops.len().checked_sub(1)?;
        let Sought { at: p, .. } = self.tops.seek(key, order, false);
        (p < last || order.compare(self.tops.key(last), key).is_ge()).then_some(p)
    }

    /// Checks that a block whose keys go from `first` to `last` fits its place in the index: after the previous block's
    /// index key, and not past its own.
    pub(crate) fn check_ends(
        &self,
        found: BlockRef,
        first: &[u8],
        last: &[u8],
        order: &Order,
    ) -> Result<(), Defect> {
        let before = match found.at.checked_sub(1) {
            Some(before) => Some(self.piece_with(found).entries.key(before as usize)),
            None => (found.piece.checked_sub(1)).map(|before| self.tops.key(before as usize)),
        };
        if let Some(before) = before.filter(|before| order.compare(before, first).is_ge()) {
            let what = "an index key and the next block's";
            return Err(order.misordered(what, before, first));
        }
        let own = self.key(found);
        if order.compare(last, own).is_gt() {
            return Err(order.misordered("a block's last key and its index key", last, own));
        }
        Ok(())
    }

    /// Decodes, checks and keeps piece `p`, unless it is loaded: `bytes` are those at its [range](IndexPieces::range).
    ///
    /// Handles must ascend in the file without overlap. Keys must ascend, unless the order is not known (`None`). Returns whether the
    /// piece was not loaded before.
    pub(crate) fn admit(
        &self,
        p: usize,
        bytes: &Bytes,
        order: Option<&Order>,
    ) -> Result<bool, Defect> {
        let Some(pieces) = self.divided.as_ref().filter(|_| !self.has(p)) else {
            return Ok(false);
        };
        let mut entries = Vec::new();
        pieces.decode_piece(p, bytes, order, |key, handle| {
            entries.push(IndexEntry::new(key, handle));
        })?;
        Ok(self.keep(p, IndexEntries::new(bytes.clone(), entries)))
    }

    /// Keeps piece `p`, which has these entries, unless another thread was faster.
    fn keep(&self, p: usize, entries: IndexEntries) -> bool {
        self.slots.get(p).is_some_and(|slot| {
            let first = slot.first;
            let piece = Box::new(LoadedPiece { first, entries });
            slot.piece.set(piece).is_ok()
        })
    }

    /// The keys of the first piece, if it is loaded: all keys of an index that is not [divided](Self::divided).
    pub(crate) fn first_keys(&self) -> impl Iterator<Item = &[u8]> {
        let entries = self.piece(0).map(|piece| &piece.entries).into_iter();
        entries.flat_map(|entries| (0..entries.len()).map(|i| entries.key(i)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::comparator::common_prefix;
    use crate::error::{Error, ErrorKind, Section};
    use crate::format::block::BlockBuilder;
    use proptest::prelude::*;

    pub(crate) fn encode(keys: &[Vec<u8>], interval: usize) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval);
        for (i, key) in keys.iter().enumerate() {
            let handle = BlockHandle {
                offset: 20 * i as u64,
                size: 15,
            };
            let shared = common_prefix(&builder.last_key, key);
            builder.add(key, shared, &handle.encode());
        }
        builder.finish(<[u8]>::to_vec)
    }

    /// The index with all of its pieces.
    fn decode(block: &[u8]) -> Result<Index, Error> {
        decode_at(Bytes::copy_from_slice(block), 1 << 20, 2 << 20)
    }

    /// The index that lies at `offset`, where data blocks end.
    fn decode_at(block: Bytes, offset: u64, file_size: u64) -> Result<Index, Error> {
        let handle = BlockHandle { offset, size: 0 };
        let footer = Footer {
            metaindex: handle,
            index: handle,
        };
        let index = Index::of_block(block, footer, file_size, Some(&Order::Bytewise));
        index.map_err(|defect| defect.locate(Section::Index, offset))
    }

    proptest! {
        /// Keys made of few letters and zeros have ties, common prefixes, and prefixes of each other.
        #[test]
        fn seeks_agree_with_a_linear_search(
            keys in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(vec![0u8, 1, 7, 0xff]), 0..14), 0..300),
            head in prop::collection::vec(0u8..2, 0..26),
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
            // Every byte that keys share is compared, and their ends.
            let near = keys.iter().take(3).flat_map(|key| {
                let cut = (0..key.len()).map(|end| key[..end].to_vec());
                let changed = (0..key.len()).flat_map(|at| [1, 0xff].map(|by| {
                    let mut key = key.clone();
                    key[at] = key[at].wrapping_add(by);
                    key
                }));
                cut.chain(changed).chain([[&key[..], &[0]].concat()])
            });
            for target in targets.chain(near).chain(keys.clone()) {
                let expected = keys.iter().position(|key| *key >= target);
                let found = index.seek(&target, &Order::Bytewise, true).unwrap();
                prop_assert_eq!(found.map(|found| found.block()), expected, "{:?}", target);
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
                        let checked = index.check_ends(index.block(i).unwrap(), first, last, &Order::Bytewise);
                        prop_assert_eq!(checked.is_ok(), expected, "{}: {:?} {:?}", i, first, last);
                    }
                }
            }
            for (i, key) in keys.iter().enumerate() {
                let found = index.block(i).unwrap();
                prop_assert_eq!(index.key(found), &key[..]);
                prop_assert_eq!(found.handle.offset, 20 * i as u64);
            }
        }
    }

    fn one(key: &[u8], offset: u64, size: u64) -> (Vec<u8>, Vec<u8>) {
        (key.to_vec(), BlockHandle { offset, size }.encode())
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
            assert_eq!(corruption.section, Section::Index);
            let expected = "data block between 15";
            assert!(corruption.expected.contains(expected), "{error}");
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
        let block = builder.finish(Bytes::copy_from_slice);
        let index = decode_at(block, u64::MAX, u64::MAX).unwrap();
        for (i, (offset, size)) in handles.into_iter().enumerate() {
            assert_eq!(index.block(i).unwrap().handle, BlockHandle { offset, size });
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

    /// A data block takes at least the 5 bytes of its trailer. Every restart that an index claims takes memory.
    #[test]
    fn more_data_blocks_than_the_file_has_room_for_are_refused() {
        let keys: Vec<Vec<u8>> = (0..100u8).map(|i| vec![i]).collect();
        let mut builder = BlockBuilder::new(1);
        for (i, key) in keys.iter().enumerate() {
            let (key, handle) = one(key, 5 * i as u64, 0);
            builder.add(&key, 0, &handle);
        }
        let block = builder.finish(Bytes::copy_from_slice);
        let decode_before = |data_end| decode_at(block.clone(), data_end, 1 << 20);
        assert_eq!(decode_before(500).unwrap().len(), 100);
        for data_end in [0, 5, 495, 499] {
            let error = decode_before(data_end).unwrap_err().to_string();
            let expected = format!("data block between {} and {data_end}", data_end / 5 * 5);
            assert!(error.contains(&expected), "{error}");
        }
    }

    /// 2,000 keys that share a prefix of 100,000 bytes would decode to 200 MB.
    #[test]
    fn keys_that_unfold_without_bound_are_refused() {
        let keys: Vec<Vec<u8>> = (0..2000u32)
            .map(|i| [vec![b'k'; 100_000], i.to_be_bytes().to_vec()].concat())
            .collect();
        let block = encode(&keys, usize::MAX);
        let error = decode(&block).unwrap_err();
        assert!(error.to_string().contains("32 times the file"), "{error}");

        // All keys but the first need memory.
        let block = Bytes::from(encode(&keys[..9], usize::MAX));
        let least = (8 * 100_004u64).div_ceil(32);
        assert_eq!(decode_at(block.clone(), 1 << 20, least).unwrap().len(), 9);
        assert!(decode_at(block, 1 << 20, least - 1).is_err());
    }
}
