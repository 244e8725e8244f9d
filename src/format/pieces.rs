//! The block `about.pieces`: how the index block and the filter blocks are divided into *pieces*, which a reader reads, verifies
//! and uses one by one.
//!
//! The blocks themselves are ordinary ones, with checksums of their own. LevelDB ignores `about.pieces` and reads them whole.
//!
//! ```text
//! version            u8, 1
//! filters            varint, number of filter blocks that are divided
//! index              handle of the index block
//! divided filter*    see pieces_filter.rs
//! tops               a block of entries (block.rs), one for each piece of the index, with a restart every 16 entries:
//!                    key = last key of the piece, its *top*
//!                    value = varint32 length, varint32 number of entries, handle of its last data block, fixed32 CRC-32C
//! ```
//!
//! - The index block is stored uncompressed, and every key whole; each entry's value is a handle and nothing else.
//! - Pieces of the index are whole entries, one after another from byte 0. Their lengths, four bytes for each entry and four
//!   more, for the number of restarts, add up to the index block. Restarts belong to no piece.
//! - Each CRC-32C is that of a piece's bytes, and is not masked.
//! - Tops ascend in the table's order, and none is longer than 4,096 bytes. The handles of last data blocks ascend without
//!   overlap, before the index.
//! - The first byte is not zero, so the block cannot be taken for a block of entries, whose first entry shares nothing.
//! - A reader that does not know the version ignores the block.
//!
//! A writer is free to choose where pieces end. This one ends them after at most 16 KiB, at the shortest key that ends in the last
//! quarter of these, since opening reads the tops. If tops would take more than 512 KiB, or a filter would have more than 65,536
//! pieces, the length of these pieces is doubled. Tops are unchanged keys of the index: a shorter one would lead to the wrong
//! piece.
//!
//! A reader checks that each piece has the stated checksum, number of entries, last key and last handle, that its keys ascend from the
//! top before it, and that its handles ascend within the data.

use std::ops::Range;

use bytes::Bytes;

use super::block::{Block, BlockBuilder, Entry, check_shared, entries_of};
use super::block_check;
use super::block_cursor::BlockCursor;
use super::checksum::crc32c;
use super::footer::BlockHandle;
use super::pieces_filter::FilterPieces;
use super::pieces_input::{Input, PIECE_LEN, part};
use super::{Defect, require};
use crate::coding::{fixed32_at, get_varint32, put_fixed32, put_varint};
use crate::comparator::{Order, common_prefix};

/// The block's name in the metaindex. It sorts before all filters and prefix filters, and after the properties.
pub(crate) const PIECES_NAME: &[u8] = b"about.pieces";

/// The version that this reader knows.
const VERSION: u8 = 1;

/// Maximum length of a top, in bytes. A table that would have a longer one gets no `about.pieces`.
const MAX_TOP: usize = 4096;

/// Maximum size of the block of tops, values included.
const MAX_TOPS: usize = 512 << 10;

/// Number of tops between restarts.
const TOP_INTERVAL: usize = 16;

/// `about.pieces`, decoded: how index and filters are divided. [`Entries`](super::Entries) shows how to find its block in the
/// metaindex, as [`Named::Pieces`](super::Named::Pieces).
#[derive(Debug)]
pub struct Pieces {
    pub(crate) index: IndexPieces,
    pub(crate) filters: Vec<FilterPieces>,
}

impl Pieces {
    /// Decodes the block; `None` if it has another version, which readers ignore.
    ///
    /// Checks everything but the order of the tops and the handles ([`check_index`](Pieces::check_index),
    /// [`check_filters`](Pieces::check_filters)). Takes at most 16 times the block's size in memory, and some 70 bytes for each piece
    /// of the index.
    ///
    /// # Errors
    ///
    /// The block does not follow its version's format.
    pub fn decode(block: Bytes) -> Result<Option<Pieces>, Defect> {
        let mut input = Input(block);
        if input.take(1)?.first() != Some(&VERSION) {
            return Ok(None);
        }
        let filters = input.number()?;
        let index = input.handle()?;
        let filters = (0..filters).map(|_| FilterPieces::decode(&mut input));
        let filters: Vec<FilterPieces> = filters.collect::<Result<_, _>>()?;
        let index = IndexPieces::decode(index, input.0)?;
        Ok(Some(Pieces { index, filters }))
    }

    /// Checks that the index block is the one at `handle`, the handle in the [footer](super::Footer).
    ///
    /// # Errors
    ///
    /// Another block is divided.
    pub fn check_index(&self, handle: BlockHandle) -> Result<(), Defect> {
        let show =
            |BlockHandle { offset, size }| format!("the index, of {size} bytes, at {offset}");
        let divided = self.index.handle;
        let expected = || format!("{}, as about.pieces has it", show(divided));
        require(divided == handle, expected, || show(handle))
    }

    /// Checks the pieces of the block at `handle`, the index or a filter, as [`open_frame`](super::open_frame) returns it.
    /// A block that is not divided has none.
    ///
    /// # Errors
    ///
    /// A piece differs from what was written.
    pub fn check_block(&self, handle: BlockHandle, block: &[u8]) -> Result<(), Defect> {
        if handle == self.index.handle {
            return self.index.check_block(block);
        }
        let mut divided = self.filters.iter();
        let divided = divided.find(|divided| divided.handle == handle);
        divided.map_or(Ok(()), |divided| divided.check_block(block))
    }

    /// Checks that the divided filter blocks are among `handles`, those of filters in the metaindex (see
    /// [`Named`](super::Named)).
    ///
    /// # Errors
    ///
    /// Another block is divided.
    pub fn check_filters(&self, handles: &[BlockHandle]) -> Result<(), Defect> {
        self.filters.iter().try_for_each(|filter| {
            let BlockHandle { offset, size } = filter.handle;
            let expected = || "pieces of filters that the metaindex names".into();
            let found = || format!("those of a block of {size} bytes at {offset}");
            require(handles.contains(&filter.handle), expected, found)
        })
    }
}

/// The pieces of the index block: where they lie, and what they must hold.
#[derive(Debug)]
pub(crate) struct IndexPieces {
    /// The handle of the index block.
    pub(crate) handle: BlockHandle,
    /// The last keys of all pieces, concatenated.
    tops: Bytes,
    pieces: Vec<Piece>,
}

#[derive(Debug, Default)]
struct Piece {
    /// Where its last key lies in `tops`.
    top: Range<usize>,
    /// The handle of its last data block.
    handle: BlockHandle,
    /// Where it ends in the index block.
    end: u32,
    /// Number of data blocks up to its end.
    blocks: u32,
    crc: u32,
}

impl Piece {
    /// Decodes the piece after `before` from the entry `top`, `value` in the block of tops. Appends its top to `tops`.
    fn decode(
        before: Option<&Piece>,
        top: &[u8],
        value: &[u8],
        tops: &mut Vec<u8>,
    ) -> Option<Piece> {
        let (len, a) = get_varint32(value)?;
        let (blocks, b) = get_varint32(value.get(a..)?)?;
        let (handle, c) = BlockHandle::decode(value.get(a + b..)?)?;
        let crc = fixed32_at(value, a + b + c)?;
        let start = tops.len();
        tops.extend_from_slice(top);
        let data_end = before.map_or(Some(0), |before| before.handle.end())?;
        let none = Piece::default();
        let before = before.unwrap_or(&none);
        let fits = blocks > 0 && handle.offset >= data_end;
        fits.then_some(Piece {
            top: start..tops.len(),
            handle,
            end: before.end.checked_add(len)?,
            blocks: before.blocks.checked_add(blocks)?,
            crc,
        })
    }

    /// The size of an index that ends with this piece.
    fn index_size(&self) -> u64 {
        u64::from(self.end) + 4 * u64::from(self.blocks) + 4
    }
}

impl IndexPieces {
    fn decode(handle: BlockHandle, tops: Bytes) -> Result<IndexPieces, Defect> {
        let most = TOP_INTERVAL * tops.len();
        let mut cursor = BlockCursor::new(block_check::open(tops)?);
        let (mut all_tops, mut pieces) = (Vec::new(), Vec::<Piece>::new());
        while cursor.next()? {
            let top = cursor.key();
            let piece = Piece::decode(pieces.last(), top, cursor.value(), &mut all_tops);
            let is_short = all_tops.len() <= most && top.len() <= MAX_TOP;
            let Some(piece) = piece.filter(|_| is_short) else {
                let i = pieces.len();
                let expected = format!("piece {i} of the index, its blocks past those before");
                return Err(Defect::new(expected, format!("{:02x?}", cursor.value())));
            };
            pieces.push(piece);
        }
        let size = pieces.last().map(Piece::index_size);
        let expected = || format!("pieces of an index of {} bytes", handle.size);
        let found = || format!("of {size:?}");
        require(size == Some(handle.size), expected, found)?;
        Ok(IndexPieces {
            handle,
            tops: all_tops.into_boxed_slice().into(),
            pieces,
        })
    }

    /// Bytes of memory that this takes, apart from the tops, which are shared.
    pub(crate) fn weight(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>()
    }

    /// Number of pieces, at least one.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The bytes that hold all tops, and for each piece where its top lies and the handle of its last data block. The caller checks
    /// that tops ascend.
    pub(crate) fn tops(&self) -> (Bytes, Vec<(Range<usize>, BlockHandle)>) {
        let pieces = self.pieces.iter();
        let tops = pieces.map(|piece| (piece.top.clone(), piece.handle));
        (self.tops.clone(), tops.collect())
    }

    /// Number of the first data block of piece `i`; for `len()`, the number of all blocks.
    pub(crate) fn blocks_before(&self, i: usize) -> usize {
        self.before(i).map_or(0, |piece| piece.blocks as usize)
    }

    fn before(&self, i: usize) -> Option<&Piece> {
        self.pieces.get(i.wrapping_sub(1))
    }

    /// Where piece `i`, one of `0..len()`, lies in the file.
    pub(crate) fn range(&self, i: usize) -> Range<u64> {
        let start = self.before(i).map_or(0, |before| before.end);
        let end = self.pieces.get(i).map_or(start, |piece| piece.end);
        let offset = self.handle.offset;
        offset + u64::from(start)..offset + u64::from(end)
    }

    /// Decodes piece `i` from the `bytes` at its [`range`](Self::range), and calls `take` with each entry: where its key lies in
    /// `bytes`, and its handle. Its arguments can be trusted only if the result is `Ok`.
    ///
    /// Checks the checksum, the number of entries and the last entry, that handles ascend without overlap from the previous piece
    /// on, and that keys ascend from the previous top on, unless the order is not known (`None`).
    pub(crate) fn decode_piece(
        &self,
        i: usize,
        bytes: &[u8],
        order: Option<&Order>,
        mut take: impl FnMut(Range<usize>, BlockHandle),
    ) -> Result<(), Defect> {
        let before = self.before(i);
        let Some(said) = self.pieces.get(i) else {
            return Ok(());
        };
        let crc = crc32c(bytes);
        let expected = || format!("piece {i} of the index with checksum {:#010x}", said.crc);
        let found = || format!("{crc:#010x} (computed from {} bytes)", bytes.len());
        require(crc == said.crc, expected, found)?;
        let data_start = before.and_then(|before| before.handle.end());
        let mut data = data_start.unwrap_or(0)..self.handle.offset;
        let mut blocks = 0;
        let mut previous = before.and_then(|before| self.tops.get(before.top.clone()));
        for entry in entries_of(bytes, 0, 0) {
            let entry = entry?;
            check_shared(&entry, 0)?;
            let [key, value] =
                [entry.unshared(), entry.value()].map(|range| bytes.get(range).unwrap_or(&[]));
            let handle = take_handle((key, value), previous, &mut data, order)?;
            take(entry.unshared(), handle);
            (previous, blocks) = (Some(key), blocks + 1);
        }
        let stated = said.blocks as usize - self.blocks_before(i);
        let has_top = previous == self.tops.get(said.top.clone());
        let is_as_stated = blocks == stated && has_top && Some(data.start) == said.handle.end();
        let expected = || format!("{stated} entries in piece {i} of the index, the last as stated");
        require(is_as_stated, expected, || {
            format!("{blocks} entries, or another")
        })
    }

    /// Checks that the index block `index`, wherever it lies, has these pieces. Makes one pass over it.
    pub(crate) fn check_block(&self, index: &[u8]) -> Result<(), Defect> {
        let expected = || format!("an index of {} bytes, stored raw", self.handle.size);
        let found = || format!("{}", index.len());
        require(index.len() as u64 == self.handle.size, expected, found)?;
        (0..self.len()).try_for_each(|i| {
            let bytes = part(index, self.handle, self.range(i));
            self.decode_piece(i, bytes, None, |_, _| ())
        })
    }
}

/// Returns the handle in an index entry with this key and value, which follows the key `previous`. The handle must lie in `data`,
/// which then shrinks to what comes after it: handles ascend without overlap.
///
/// Checks that keys ascend in `order`, unless it is not known.
#[inline(always)] // so that its result is returned in registers
pub(crate) fn take_handle(
    (key, value): (&[u8], &[u8]),
    previous: Option<&[u8]>,
    data: &mut Range<u64>,
    order: Option<&Order>,
) -> Result<BlockHandle, Defect> {
    if let (Some(previous), Some(order)) = (previous, order)
        && order.compare(previous, key).is_ge()
    {
        return Err(order.misordered("index keys", previous, key));
    }
    let handle = BlockHandle::decode(value).and_then(|(handle, _)| {
        let end = handle.end().filter(|&end| end <= data.end)?;
        let fits = handle.offset >= data.start && u32::try_from(handle.size).is_ok();
        fits.then_some((handle, end))
    });
    let Some((handle, end)) = handle else {
        let Range { start, end } = data;
        let expected = format!("the handle of a data block between {start} and {end}");
        return Err(BlockHandle::missing(expected, value));
    };
    data.start = end;
    Ok(handle)
}

/// Collects the contents of `about.pieces` while a table is finished.
#[derive(Debug)]
pub(crate) struct PiecesBuilder {
    index: BlockHandle,
    tops: Vec<u8>,
    filters: Vec<Vec<u8>>,
}

impl PiecesBuilder {
    /// Divides the index block `index`, which has entries and will be stored uncompressed at `offset`. `None` if a top would be
    /// too long: the table then gets no `about.pieces`.
    pub(crate) fn new(index: &[u8], offset: u64) -> Option<PiecesBuilder> {
        let block = Block::parse(index).ok()?;
        let mut len = PIECE_LEN;
        let mut tops = tops_of(&block, len)?;
        while tops.len() > MAX_TOPS {
            len *= 2;
            tops = tops_of(&block, len)?;
        }
        let size = index.len() as u64;
        Some(PiecesBuilder {
            index: BlockHandle { offset, size },
            tops,
            filters: Vec::new(),
        })
    }

    /// Divides the filter block `block` at `offset` if it is one ribbon filter with layers. Other blocks stay whole.
    pub(crate) fn add_filter(&mut self, block: &[u8], offset: u64) {
        self.filters.extend(FilterPieces::encode(block, offset));
    }

    /// Returns the block.
    pub(crate) fn finish(self) -> Vec<u8> {
        let start = vec![VERSION, self.filters.len() as u8];
        let filters = self.filters.concat();
        [start, self.index.encode(), filters, self.tops].concat()
    }
}

/// The block of tops of an index divided into pieces of at most `piece_len` bytes. `None` if a top is too long.
fn tops_of(index: &Block<&[u8]>, piece_len: usize) -> Option<Vec<u8>> {
    let mut tops = BlockBuilder::new(TOP_INTERVAL);
    let mut start = 0;
    while let Some(bytes) = index.entries().get(start..).filter(|rest| !rest.is_empty()) {
        let (last, count) = last_of_piece(index, start, piece_len)?;
        let bytes = bytes.get(..last.end() - start)?;
        let top = index.unshared(&last);
        if top.len() > MAX_TOP {
            return None;
        }
        let mut value = Vec::new();
        put_varint(&mut value, bytes.len() as u64);
        put_varint(&mut value, count);
        value.extend_from_slice(index.bytes(last.value()));
        put_fixed32(&mut value, crc32c(bytes));
        tops.add(top, common_prefix(&tops.last_key, top), &value);
        start = last.end();
    }
    Some(tops.finish(<[u8]>::to_vec))
}

/// The last entry of the piece that begins at byte `start` of the index, and the number of entries up to it: the last of those
/// with the shortest key in the piece's last quarter.
fn last_of_piece(index: &Block<&[u8]>, start: usize, piece_len: usize) -> Option<(Entry, u64)> {
    let (mut last, mut best) = (None, None::<(Entry, u64)>);
    for (entry, count) in index.entries_from(start, 0).zip(1..) {
        let entry = entry.ok()?;
        let len = entry.end() - start;
        if len > piece_len && count > 1 {
            return best.or(last);
        }
        last = Some((entry, count));
        let is_short = |(best, _): (Entry, u64)| entry.key_len() <= best.key_len();
        if len > piece_len / 4 * 3 && best.is_none_or(is_short) {
            best = last;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index block of these keys, with data blocks of 100 bytes each.
    fn index_of(keys: &[Vec<u8>]) -> Vec<u8> {
        let mut builder = BlockBuilder::new(1);
        for (i, key) in keys.iter().enumerate() {
            let (offset, size) = (105 * i as u64, 100);
            let value = BlockHandle { offset, size }.encode();
            builder.add(key, common_prefix(&builder.last_key, key), &value);
        }
        builder.finish(<[u8]>::to_vec)
    }

    fn numbers(count: usize) -> Vec<Vec<u8>> {
        let keys = (0..count).map(|i| format!("{:016}", 3 * i).into_bytes());
        keys.collect()
    }

    fn pieces_of(index: &[u8], offset: u64) -> IndexPieces {
        let block = PiecesBuilder::new(index, offset).unwrap().finish();
        Pieces::decode(block.into()).unwrap().unwrap().index
    }

    fn bytes_of<'a>(index: &'a [u8], pieces: &IndexPieces, i: usize) -> &'a [u8] {
        part(index, pieces.handle, pieces.range(i))
    }

    fn top(pieces: &IndexPieces, i: usize) -> &[u8] {
        &pieces.tops[pieces.pieces[i].top.clone()]
    }

    #[test]
    fn the_pieces_of_an_index_hold_its_entries() {
        for count in [1, 2, 15, 600, 700, 9_000, 60_000] {
            let keys = numbers(count);
            let index = index_of(&keys);
            let offset = 105 * count as u64;
            let pieces = pieces_of(&index, offset);
            // Keys of one length: every piece but the last is full.
            let entries_len = index.len() - 4 * count - 4;
            assert_eq!(pieces.len(), entries_len.div_ceil(PIECE_LEN - 8));
            assert_eq!(pieces.blocks_before(pieces.len()), count);
            let mut found = Vec::new();
            for i in 0..pieces.len() {
                assert_eq!(found.len(), pieces.blocks_before(i));
                let bytes = bytes_of(&index, &pieces, i);
                let order = Some(&Order::Bytewise);
                pieces
                    .decode_piece(i, bytes, order, |key, handle| {
                        assert_eq!(handle.offset, 105 * found.len() as u64);
                        found.push(bytes[key].to_vec());
                    })
                    .unwrap();
                assert_eq!(found.last().unwrap()[..], *top(&pieces, i));
            }
            assert_eq!(found, keys);
            pieces.check_block(&index).unwrap();
            assert!(pieces.check_block(&index[..index.len() - 5]).is_err());
            assert!(pieces.check_block(&index_of(&numbers(count + 1))).is_err());
        }
    }

    /// Flipped bits, a wrong number of entries, and keys or handles out of order.
    #[test]
    fn a_piece_that_is_not_as_stated_is_an_error() {
        let decode = |index: &[u8], pieces: &IndexPieces, i| {
            let bytes = bytes_of(index, pieces, i);
            pieces.decode_piece(i, bytes, Some(&Order::Bytewise), |_, _| ())
        };
        let index = index_of(&numbers(1_500));
        let sound = || pieces_of(&index, 105 * 1_500);
        assert_eq!(sound().len(), 3);
        for i in 0..3 {
            let Range { start, end } = sound().range(i);
            for at in (start..end).step_by(97) {
                let mut damaged = index.clone();
                damaged[(at - 105 * 1_500) as usize] ^= 1 << (at % 8);
                assert!(decode(&damaged, &sound(), i).is_err(), "{at}");
            }
            let mut pieces = sound();
            pieces.pieces[i].blocks += 1;
            assert!(decode(&index, &pieces, i).is_err());
        }
        // The keys and the data of the first piece come after those of the second.
        let mut pieces = sound();
        let [first, second] = [0, 1].map(|i| pieces.pieces[i].top.clone());
        pieces.pieces[0].top = pieces.pieces[2].top.clone();
        assert!(decode(&index, &pieces, 1).is_err());
        pieces.pieces[0].top = first;
        assert!(decode(&index, &pieces, 1).is_ok());
        pieces.pieces[0].handle = pieces.pieces[2].handle;
        assert!(decode(&index, &pieces, 1).is_err());
        assert_eq!(top(&pieces, 1), &pieces.tops[second]);
    }

    #[test]
    fn a_top_that_is_too_long_is_not_written_and_many_make_longer_pieces() {
        let long: Vec<Vec<u8>> = (0..20u8)
            .map(|i| [vec![b'k'; 4096], vec![i]].concat())
            .collect();
        assert!(PiecesBuilder::new(&index_of(&long), 1 << 30).is_none());
        let most: Vec<Vec<u8>> = long.iter().map(|key| key[1..].to_vec()).collect();
        let pieces = pieces_of(&index_of(&most), 1 << 30);
        assert!((5..=7).contains(&pieces.len()), "{}", pieces.len());
        // Shared prefixes, but few keys per piece: the tops exceed 512 KiB.
        let many: Vec<Vec<u8>> = (0..30_000u32)
            .map(|i| [vec![b'k'; 3_000], (i << 4).to_be_bytes().repeat(30)].concat())
            .collect();
        let index = index_of(&many);
        let block = PiecesBuilder::new(&index, 1 << 30).unwrap().finish();
        assert!(block.len() <= MAX_TOPS + 20, "{}", block.len());
        let pieces = Pieces::decode(block.into()).unwrap().unwrap().index;
        let bytes = bytes_of(&index, &pieces, 7);
        assert!(bytes.len() > PIECE_LEN, "{}", bytes.len());
        pieces
            .decode_piece(7, bytes, Some(&Order::Bytewise), |_, _| ())
            .unwrap();
    }

    /// Keys of different lengths: a piece ends with the last of the shortest keys in its last quarter.
    #[test]
    fn pieces_end_with_short_keys() {
        let len = |i: usize| 20 + (i * 7919) % 50;
        let keys =
            (0..5_000).map(|i| [format!("{i:08}").into_bytes(), vec![b'k'; len(i)]].concat());
        let keys: Vec<Vec<u8>> = keys.collect();
        let index = index_of(&keys);
        let parsed = Block::parse(&index[..]).unwrap();
        let pieces = pieces_of(&index, 1 << 30);
        assert!(pieces.len() > 15);
        for i in 0..pieces.len() - 1 {
            let first = pieces.blocks_before(i);
            let start = parsed.restart(first);
            let fits: Vec<usize> = (first..5_000)
                .filter(|&i| i + 1 < 5_000 && parsed.restart(i + 1) - start <= 16_384)
                .filter(|&i| parsed.restart(i + 1) - start > 12_288)
                .collect();
            let shortest = fits.iter().map(|&i| keys[i].len()).min().unwrap();
            let expected = fits
                .iter()
                .rev()
                .find(|&&i| keys[i].len() == shortest)
                .unwrap();
            assert_eq!(pieces.blocks_before(i + 1), expected + 1);
        }
    }
}
