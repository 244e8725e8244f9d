//! A table's index, in pieces that appear when they are first needed: which data block may hold a key.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;

use crate::comparator::{Order, common_prefix};
use crate::format::Defect;
use crate::format::block::{Block, BlockBuilder};
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::format::pieces::{IndexPieces, PIECE_LEN, decode_entries};
use crate::read::index_entries::IndexEntries;
use crate::read::recognise::{Evidence, may_be_internal};
use crate::read::states::{State, States};

/// Most memory that keys may unfold to, in multiples of the file's size.
///
/// LevelDB stores index keys whole, and nothing unfolds. The index of another writer may share prefixes; in a hostile one
/// the keys could take the square of the block's length.
const MAX_UNFOLDED: u64 = 32;

/// Where the file's index block and its data blocks lie, which must agree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexPlace {
    /// Offset of the index block in the file.
    pub(crate) offset: u64,
    /// The data blocks end at or before this offset.
    pub(crate) data_end: u64,
    pub(crate) file_size: u64,
}

/// The index block, cut into pieces of neighbouring entries. Of each piece it is known from the start how many entries it has, and
/// its last one, whose key is the *top*: these entries are an index of the pieces. So a search knows the piece that it needs, and
/// data blocks are numbered through.
///
/// A piece is decoded and checked once, and immutable then. Takes some 100 bytes per piece, and what those take that are there.
#[derive(Debug)]
pub(crate) struct Index {
    form: Form,
    /// The last entry of each piece.
    tops: IndexEntries,
    slots: Vec<Slot>,
    /// The number of the first data block of each piece, and the number of all.
    firsts: Vec<usize>,
    place: IndexPlace,
}

/// Where the entries come from.
#[derive(Debug)]
enum Form {
    /// The index block, which was read at opening. Every key is stored whole, and has a restart.
    Whole(Block<Bytes>),
    /// The file, piece by piece, as its `about.pieces` says.
    InFile(IndexPieces),
}

/// A piece, once it is there.
#[derive(Debug, Default)]
struct Slot {
    piece: OnceLock<Box<Piece>>,
    /// Whether its [anchor](IndexPieces::anchor) was checked.
    is_anchored: AtomicBool,
    /// Whether it is known to begin after the last entry of the piece before.
    is_placed: AtomicBool,
}

#[derive(Debug)]
struct Piece {
    entries: IndexEntries,
    /// What is known of each data block.
    states: States,
}

/// What keeps a search of index or filter from an answer: a piece that it needs is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotLoaded;

/// A data block: the result of a search of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRef {
    /// Which of the table's data blocks it is, from 0.
    pub(crate) block: usize,
    /// Which piece of the index names it, and which of that piece's blocks it is.
    pub(super) piece: u32,
    at: u32,
    pub(crate) handle: BlockHandle,
}

impl Index {
    /// The index in the block `contents`, cut at restarts. No piece is decoded yet; tops and their handles are checked.
    ///
    /// An index that shares prefixes is unfolded: every key is stored whole in memory.
    pub(crate) fn of_block(
        contents: Bytes,
        place: IndexPlace,
        order: Option<&Order>,
    ) -> Result<Index, Defect> {
        let mut block = Block::parse(contents)?;
        if !has_restart_at_second(&block)? {
            block = unfold(&block, place)?;
        }
        // A file has no room for more data blocks, whatever the index claims.
        let most = place.data_end / TRAILER_LEN as u64;
        let count = if block.entries().is_empty() {
            0
        } else {
            block.restart_count()
        };
        if count as u64 > most {
            let expected = format!(
                "at most {most} data blocks before offset {}",
                place.data_end
            );
            return Err(Defect::new(expected, format!("an index of {count}")));
        }
        let (mut tops, mut firsts, mut first) = (Vec::new(), vec![0], 0);
        while first < count {
            let most = block.restart(first).saturating_add(PIECE_LEN);
            let end = last_within(&block, first, most);
            let Ok(entry) = block.entry_at_restart(end - 1) else {
                let expected = format!("the entry of data block {} where a restart says", end - 1);
                return Err(Defect::new(expected, "none"));
            };
            let value = block.data().get(entry.value()).unwrap_or(&[]);
            let Some((handle, _)) = BlockHandle::decode(value) else {
                let value = value.get(..BlockHandle::MAX_LEN).unwrap_or(value);
                let expected = format!("the handle of a data block in index entry {}", end - 1);
                return Err(Defect::new(expected, format!("{value:02x?}")));
            };
            tops.push((entry.unshared(), handle));
            firsts.push(end);
            first = end;
        }
        let tops = IndexEntries::new(block.data().clone(), &tops);
        Index::new(Form::Whole(block), tops, firsts, place, order)
    }

    /// The index in a file that says how it is divided. Nothing of it is read yet.
    pub(crate) fn in_file(
        pieces: IndexPieces,
        place: IndexPlace,
        order: Option<&Order>,
    ) -> Result<Index, Defect> {
        let (bytes, tops) = pieces.tops();
        let data_end = tops.last().and_then(|(_, last)| last.end());
        if data_end.is_none_or(|end| end > place.data_end) {
            let expected = format!("data blocks before offset {}", place.data_end);
            return Err(Defect::new(
                expected,
                format!("the last one up to {data_end:?}"),
            ));
        }
        let firsts = (0..=pieces.len())
            .map(|p| pieces.blocks_before(p))
            .collect();
        let tops = IndexEntries::new(bytes, &tops);
        Index::new(Form::InFile(pieces), tops, firsts, place, order)
    }

    fn new(
        form: Form,
        tops: IndexEntries,
        firsts: Vec<usize>,
        place: IndexPlace,
        order: Option<&Order>,
    ) -> Result<Index, Defect> {
        for p in 1..tops.len() {
            let (before, top) = (tops.key(p - 1), tops.key(p));
            if let Some(order) = order.filter(|order| order.compare(before, top).is_ge()) {
                let message = order.order_message("index keys", before, top);
                return Err(Defect::misordered(message));
            }
        }
        Ok(Index {
            form,
            slots: (0..tops.len()).map(|_| Slot::default()).collect(),
            tops,
            firsts,
            place,
        })
    }

    /// Whether `about.pieces` divides the index block, which is then read in pieces.
    pub(crate) fn is_divided(&self) -> bool {
        matches!(self.form, Form::InFile(_))
    }

    /// Number of data blocks.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// Offset of the index block in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.place.offset
    }

    /// Number of pieces.
    pub(super) fn pieces(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of memory that it takes without its pieces.
    pub(super) fn weight(&self) -> usize {
        let own = match &self.form {
            Form::Whole(_) => 0,
            Form::InFile(pieces) => pieces.weight(),
        };
        let slots = (size_of::<Slot>() + size_of::<usize>()) * self.slots.len();
        own + self.tops.weight(true) + slots
    }

    /// The last key of each piece.
    pub(crate) fn tops(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.tops.len()).map(|p| self.tops.key(p))
    }

    /// The data blocks end at or before this offset.
    pub(super) fn data_bound(&self) -> u64 {
        self.place.data_end
    }

    /// Where in the file the last data block of piece `p`, one of `0..pieces()`, ends.
    pub(super) fn data_end(&self, p: usize) -> Option<u64> {
        self.tops.handle(p).end()
    }

    /// The data blocks of piece `p`.
    pub(super) fn blocks_of(&self, p: usize) -> Range<usize> {
        let at = |p: usize| self.firsts.get(p).copied();
        let start = at(p).unwrap_or(self.len());
        start..at(p + 1).unwrap_or(start)
    }

    /// The piece that names data block `i`, one of `0..len()`.
    #[inline]
    pub(super) fn piece_of(&self, i: usize) -> usize {
        match *self.firsts {
            [_, _] => 0,
            _ => self
                .firsts
                .partition_point(|&first| first <= i)
                .saturating_sub(1),
        }
    }

    /// Whether piece `p` is there.
    pub(super) fn has(&self, p: usize) -> bool {
        self.piece(p).is_ok()
    }

    #[inline]
    fn piece(&self, p: usize) -> Result<&Piece, NotLoaded> {
        let slot = self.slots.get(p);
        slot.and_then(|slot| slot.piece.get())
            .map(Box::as_ref)
            .ok_or(NotLoaded)
    }

    /// The piece that a block was found in.
    #[inline]
    #[expect(clippy::expect_used, reason = "a piece that was there stays")]
    fn piece_with(&self, found: BlockRef) -> &Piece {
        let piece = self.piece(found.piece as usize);
        piece.expect("the piece that a block was found in")
    }

    /// What is known of a data block.
    #[inline]
    pub(super) fn state(&self, found: BlockRef) -> &State {
        self.piece_with(found).states.of(found.at as usize)
    }

    /// A key at or after the last of a data block, and before the first of the next.
    pub(crate) fn key(&self, found: BlockRef) -> &[u8] {
        self.piece_with(found).entries.key(found.at as usize)
    }

    /// Data block `i`, one of `0..len()`.
    #[inline]
    pub(super) fn block(&self, i: usize) -> Result<BlockRef, NotLoaded> {
        let p = self.piece_of(i);
        Ok(self.block_in(self.piece(p)?, p, i - self.blocks_of(p).start))
    }

    /// The data block after `found`; `None` after the last.
    #[inline]
    pub(super) fn block_after(&self, found: BlockRef) -> Option<Result<BlockRef, NotLoaded>> {
        let (p, at) = (found.piece as usize, found.at as usize + 1);
        let piece = self.piece_with(found);
        if at < piece.entries.len() {
            return Some(Ok(self.block_in(piece, p, at)));
        }
        let next = found.block + 1;
        (next < self.len()).then(|| self.block(next))
    }

    /// The data block before `found`; `None` before the first.
    pub(super) fn block_before(&self, found: BlockRef) -> Option<Result<BlockRef, NotLoaded>> {
        match found.at.checked_sub(1) {
            Some(at) => {
                let piece = self.piece_with(found);
                Some(Ok(self.block_in(piece, found.piece as usize, at as usize)))
            }
            None => Some(self.block(found.block.checked_sub(1)?)),
        }
    }

    /// Block number `at` of piece `p`.
    #[inline]
    fn block_in(&self, piece: &Piece, p: usize, at: usize) -> BlockRef {
        BlockRef {
            block: self.firsts.get(p).map_or(at, |first| first + at),
            piece: p as u32,
            at: at as u32,
            handle: piece.entries.handle(at),
        }
    }

    /// The data blocks that were put in the cache.
    pub(super) fn cached(&self) -> impl Iterator<Item = BlockHandle> {
        let pieces = self.slots.iter().filter_map(|slot| slot.piece.get());
        pieces.flat_map(|piece| piece.states.cached().map(|i| piece.entries.handle(i)))
    }

    /// The one data block that can hold `key`; `None` past the last index key.
    #[inline]
    pub(super) fn seek(&self, key: &[u8], order: &Order) -> Result<Option<BlockRef>, NotLoaded> {
        let Some(p) = self.seek_piece(key, order) else {
            return Ok(None);
        };
        let piece = self.piece(p)?;
        Ok(Some(self.block_in(
            piece,
            p,
            piece.entries.seek(key, order),
        )))
    }

    /// The piece that names the one data block that can hold `key`; `None` past the last index key.
    #[inline]
    pub(super) fn seek_piece(&self, key: &[u8], order: &Order) -> Option<usize> {
        let last = self.tops.len().checked_sub(1)?;
        let p = self.tops.seek(key, order);
        (p < last || order.compare(self.tops.key(last), key).is_ge()).then_some(p)
    }

    /// The key before those of a data block: the index key of the block before.
    fn key_before(&self, found: BlockRef) -> Option<&[u8]> {
        match found.at.checked_sub(1) {
            Some(before) => Some(self.piece_with(found).entries.key(before as usize)),
            None => self.top_before(found.piece as usize),
        }
    }

    /// The top of the piece before piece `p`.
    fn top_before(&self, p: usize) -> Option<&[u8]> {
        Some(self.tops.key(p.checked_sub(1)?))
    }

    /// Checks that a block whose keys go from `first` to `last` lies where the index has it: after the index key of the
    /// block before, and not past its own.
    pub(super) fn check_ends(
        &self,
        found: BlockRef,
        first: &[u8],
        last: &[u8],
        order: &Order,
    ) -> Result<(), Defect> {
        let piece = self.piece_with(found);
        if matches!(order, Order::Bytewise)
            && piece
                .entries
                .prefixes_enclose(found.at as usize, first, last)
        {
            return Ok(());
        }
        let misordered = |what, low: &[u8], high: &[u8]| {
            Err(Defect::misordered(order.order_message(what, low, high)))
        };
        let before = self.key_before(found);
        if let Some(before) = before.filter(|before| order.compare(before, first).is_ge()) {
            return misordered("an index key and the next block's", before, first);
        }
        let own = self.key(found);
        if order.compare(last, own).is_gt() {
            return misordered("a block's last key and its index key", last, own);
        }
        Ok(())
    }

    /// Whether it is known that piece `p` begins where it says, so that an answer may rely on what it does not hold.
    #[inline]
    pub(super) fn is_placed(&self, p: usize) -> bool {
        let slot = self.slots.get(p);
        slot.is_some_and(|slot| slot.is_placed.load(Relaxed)) || self.find_place(p)
    }

    #[cold]
    fn find_place(&self, p: usize) -> bool {
        let Some(slot) = self.slots.get(p) else {
            return false;
        };
        let is_counted = self.is_anchored(0);
        let is_shown = |p: usize| {
            let placed = self
                .slots
                .get(p)
                .is_some_and(|slot| slot.is_placed.load(Relaxed));
            p == 0 || placed || is_counted && self.is_anchored(p)
        };
        // A piece that is there ends where the next one begins.
        let follows = |before: usize| self.has(before) && is_shown(before);
        let is_whole = matches!(self.form, Form::Whole(_));
        let found = is_whole || is_shown(p) || p.checked_sub(1).is_some_and(follows);
        if found {
            slot.is_placed.store(true, Relaxed);
        }
        found
    }

    /// Notes where all pieces begin, which are there.
    pub(super) fn place_all(&self) {
        for p in 0..self.pieces() {
            self.is_placed(p);
        }
    }

    /// Whether the anchor of piece `p` was checked.
    pub(super) fn is_anchored(&self, p: usize) -> bool {
        let slot = self.slots.get(p);
        slot.is_some_and(|slot| slot.is_anchored.load(Relaxed))
    }

    /// Where in the file the anchor of piece `p` lies; `None` if the index was read at opening.
    pub(super) fn anchor(&self, p: usize) -> Option<Range<u64>> {
        match &self.form {
            Form::Whole(_) => None,
            Form::InFile(pieces) => Some(pieces.anchor(p)),
        }
    }

    /// Checks the bytes of the anchor of piece `p`.
    pub(super) fn admit_anchor(&self, p: usize, bytes: &[u8]) -> Result<(), Defect> {
        if let (Form::InFile(pieces), Some(slot)) = (&self.form, self.slots.get(p)) {
            pieces.check_anchor(p, bytes)?;
            slot.is_anchored.store(true, Relaxed);
        }
        Ok(())
    }

    /// Where in the file the bytes lie that [`admit`](Index::admit) takes of piece `p`; `None` if it needs none.
    pub(super) fn range(&self, p: usize) -> Option<Range<u64>> {
        match &self.form {
            Form::Whole(_) => None,
            Form::InFile(pieces) => Some(pieces.range(p)),
        }
    }

    /// Decodes, checks and keeps piece `p`, unless it is there. Returns how many bytes of memory it takes.
    ///
    /// Handles must be in the file's order without overlap. Keys must ascend, unless the order is not known (`None`).
    pub(super) fn admit(
        &self,
        p: usize,
        bytes: &Bytes,
        order: Option<&Order>,
    ) -> Result<usize, Defect> {
        if self.has(p) {
            return Ok(0);
        }
        let (bytes, entries) = match &self.form {
            Form::Whole(block) => self.decode_held(block, p, order)?,
            Form::InFile(pieces) => {
                let mut entries = Vec::new();
                pieces.decode_piece(p, bytes, order, |key, handle| entries.push((key, handle)))?;
                (bytes.clone(), entries)
            }
        };
        let piece = Piece {
            states: States::new(entries.len()),
            entries: IndexEntries::new(bytes, &entries),
        };
        let is_read = matches!(self.form, Form::InFile(_));
        let weight = piece.entries.weight(is_read) + entries.len();
        // Another thread may have been faster.
        let kept = self
            .slots
            .get(p)
            .map(|slot| slot.piece.set(Box::new(piece)));
        Ok(if matches!(kept, Some(Ok(()))) {
            weight
        } else {
            0
        })
    }

    /// Decodes piece `p` of an index block that was read at opening.
    fn decode_held(
        &self,
        block: &Block<Bytes>,
        p: usize,
        order: Option<&Order>,
    ) -> Result<Decoded, Defect> {
        let blocks = self.blocks_of(p);
        // A restart of another writer's index may say anything.
        let len = block.entries().len();
        let start = block.restart(blocks.start).min(len);
        let end = match blocks.end {
            end if end == self.len() => len,
            end => block.restart(end).min(len),
        };
        let before = p.checked_sub(1);
        let data_start = before.and_then(|before| self.data_end(before));
        let data = data_start.unwrap_or(0)..self.place.data_end;
        let bytes = block.data().slice(start..end.max(start));
        let mut restarts = blocks.clone().map(|i| block.restart(i).wrapping_sub(start));
        let (mut entries, mut has_restarts) = (Vec::with_capacity(blocks.len()), true);
        decode_entries(&bytes, self.top_before(p), data, order, |entry, handle| {
            entries.push((entry.unshared(), handle));
            // LevelDB finds an entry by its restart.
            has_restarts &= restarts.next() == Some(entry.offset());
        })?;
        if !has_restarts || restarts.next().is_some() {
            let expected = format!(
                "{} index entries from byte {start} on, each with a restart",
                blocks.len()
            );
            return Err(Defect::new(
                expected,
                format!("{} entries, or restarts elsewhere", entries.len()),
            ));
        }
        Ok((bytes, entries))
    }

    /// Whether all keys of the first piece and all tops may be internal keys.
    pub(super) fn may_hold_internal_keys(&self) -> bool {
        let first = self.blocks_of(0).filter_map(|i| self.block(i).ok());
        let mut keys = first.map(|found| self.key(found)).chain(self.tops());
        keys.all(may_be_internal)
    }

    /// What the index keys say of the table's kind: the tops, and the keys of the first piece if it is there.
    pub(super) fn evidence(&self) -> Evidence {
        let mut evidence = Evidence::default();
        for i in self.blocks_of(0) {
            if let Ok(found) = self.block(i) {
                evidence.add_index_key(self.key(found));
            }
        }
        for top in self.tops().skip(1) {
            evidence.add_index_key(top);
        }
        evidence.end_block();
        evidence
    }
}

/// The bytes of a piece, where in them each key lies, and the handle behind it.
type Decoded = (Bytes, Vec<(Range<usize>, BlockHandle)>);

/// Whether a second entry has a restart of its own, or there is none: then all do, in what any builder of blocks writes, and every key
/// is stored whole. Where a later one does not, that is an error when its piece is decoded.
fn has_restart_at_second(block: &Block<Bytes>) -> Result<bool, Defect> {
    let mut entries = block.iter();
    let first = entries.next().transpose()?;
    let second = entries.next().transpose()?;
    let restart = (block.restart_count() > 1).then(|| block.restart(1));
    Ok(first.is_none() || second.map(|second| second.offset()) == restart)
}

/// The restart after the last one that begins before byte `end`, but after restart `first`.
fn last_within(block: &Block<Bytes>, first: usize, end: usize) -> usize {
    let (mut low, mut high) = (first + 1, block.restart_count());
    while low < high {
        let middle = low + (high - low) / 2;
        if block.restart(middle) <= end {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// A copy of `block` in which every key is stored whole.
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind, Section};
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

    /// The index with all of its pieces.
    fn decode(block: &[u8]) -> Result<Index, Error> {
        let place = IndexPlace {
            offset: 1 << 20,
            data_end: 1 << 20,
            file_size: 2 << 20,
        };
        decode_at(Bytes::copy_from_slice(block), place)
    }

    fn decode_at(block: Bytes, place: IndexPlace) -> Result<Index, Error> {
        let decode = || {
            let index = Index::of_block(block, place, Some(&Order::Bytewise))?;
            for p in 0..index.pieces() {
                index.admit(p, &Bytes::new(), Some(&Order::Bytewise))?;
            }
            Ok(index)
        };
        decode().map_err(|defect: Defect| defect.locate(Section::Index, place.offset))
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
                let found = index.seek(&target, &Order::Bytewise).unwrap();
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
            // What is no handle at all is noticed at the end of a piece before its entries are decoded.
            let expected = if bad.1.len() < 2 {
                "the handle of a data block in index entry 1"
            } else {
                "data block between 15"
            };
            assert!(corruption.expected().contains(expected), "{error}");
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
        let index = decode_at(block, place).unwrap();
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
        let decode_before = |data_end| {
            let place = IndexPlace {
                offset: data_end,
                data_end,
                file_size: 1 << 20,
            };
            decode_at(block.clone(), place)
        };
        assert_eq!(decode_before(500).unwrap().len(), 100);
        for data_end in [0, 5, 495, 499] {
            let error = decode_before(data_end).unwrap_err().to_string();
            let expected = format!("at most {} data blocks", data_end / 5);
            assert!(error.contains(&expected), "{error}");
        }
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
