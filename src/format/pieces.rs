//! The block `about.pieces`: how the index block and the filter blocks are divided into *pieces*, which a reader reads, verifies
//! and uses one by one.
//!
//! The blocks themselves are ordinary ones, with checksums of their own. LevelDB ignores `about.pieces` and reads them whole.
//!
//! ```text
//! version            u8, 1
//! filters            u8, number of filter blocks that are divided
//! index              handle of the index block
//! divided filter*    see pieces_filter.rs
//! tops               a block of entries (block.rs), one for each piece of the index, with a restart every 16 entries:
//!                    key = last key of the piece, its *top*
//!                    value = varint32 length, varint32 number of entries, handle of its last data block, fixed32 CRC-32C
//! ```
//!
//! - The index block is stored raw, every key of it whole, each with a handle and nothing after that.
//! - Pieces of the index are whole entries, one after another from byte 0. Their lengths, four bytes for each entry and four
//!   more, for the number of restarts, add up to the index block. Restarts belong to no piece.
//! - A CRC-32C is of the piece's bytes, and is not masked.
//! - Tops ascend in the table's order, and none is longer than 4,096 bytes. The handles of last data blocks ascend without
//!   overlap, before the index.
//! - The first byte is not zero, so the block never passes for a block of entries, of which the first shares nothing.
//! - A reader that does not know the version ignores the block.
//!
//! A writer is free to choose where pieces end. This one ends them after at most 16 KiB, at the shortest key that ends in the last
//! quarter of that, since tops are what opening reads of the index. Should tops take more than 512 KiB, or a filter have more than
//! 65,536 pieces, these pieces are doubled in length. Tops are keys of the index as they are: a shorter one would lead to the wrong
//! piece.
//!
//! # What makes a piece trusted
//!
//! `about.pieces` may lie, with a checksum that is right. So a piece is read from the beginning of the entry before it: by the top
//! and the last handle of the piece before, that entry's bytes are known, and must be there. Then the top before this piece is a key
//! of the index. The piece must have the stated number of entries, and end with its own top and last handle. After the last piece
//! must come the first restart, whose four bytes are zero: no entry begins so, since its value is a handle. So a key is looked for
//! in the one piece that can have it; one past the last top in the last piece, which shows that nothing comes after it.

use std::cmp::Reverse;
use std::ops::Range;

use bytes::Bytes;

use super::Defect;
use super::block::{Block, BlockBuilder, Entry, check_shared, entries_of};
use super::block_check::KeyWork;
use super::block_cursor::BlockCursor;
use super::block_key::Key;
use super::checksum::crc32c;
use super::footer::BlockHandle;
use super::pieces_filter::FilterPieces;
use crate::coding::{fixed32_at, get_varint32, get_varint64, put_fixed32, put_varint, varint_len};
use crate::comparator::{Order, common_prefix};
use crate::error::show_key;

/// The metaindex's name of the block. It sorts before all filters, and after the properties.
pub(crate) const PIECES_NAME: &[u8] = b"about.pieces";

/// The version that this reader knows.
const VERSION: u8 = 1;

/// Most bytes of a piece, unless it is of one entry, or there would be too many pieces.
pub(super) const PIECE_LEN: usize = 16 << 10;

/// Most bytes of a top. A table that would have a longer one gets no `about.pieces`.
const MAX_TOP: usize = 4096;

/// Most bytes of all tops, and what is said of their pieces.
const MAX_TOPS: usize = 512 << 10;

/// Number of tops between restarts.
const TOP_INTERVAL: usize = 16;

/// First bytes of a block's restarts, the first of which is 0.
const FIRST_RESTART: [u8; 4] = [0; 4];

/// `about.pieces`, decoded.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) index: IndexPieces,
    /// At most one for each filter block. The caller checks that the metaindex names their handles.
    pub(crate) filters: Vec<FilterPieces>,
}

impl Pieces {
    /// Decodes the block; `None` if it is of another version, and so to be ignored.
    ///
    /// Takes the block, which stays in memory, and 12 bytes for each piece of the index. Checks everything that can be checked
    /// without the blocks and the order: see [`IndexPieces::check_order`]. The caller compares the handles with those of footer and
    /// metaindex.
    pub(crate) fn decode(block: Bytes) -> Result<Option<Pieces>, Defect> {
        let mut input = Input {
            bytes: block,
            at: 0,
        };
        if input.byte()? != VERSION {
            return Ok(None);
        }
        let filters = input.byte()?;
        let index = input.handle()?;
        let filters = (0..filters).map(|_| FilterPieces::decode(&mut input));
        let filters: Vec<FilterPieces> = filters.collect::<Result<_, _>>()?;
        let index = IndexPieces::decode(index, input.rest())?;
        Ok(Some(Pieces { index, filters }))
    }

    /// Checks that what is divided is the index block at `index`, and filter blocks of these handles.
    pub(crate) fn check_handles(
        &self,
        index: BlockHandle,
        filters: &[BlockHandle],
    ) -> Result<(), Defect> {
        let mut unknown = self.filters.iter().map(|filter| filter.handle);
        let unknown = match self.index.handle == index {
            true => unknown.find(|handle| !filters.contains(handle)),
            false => Some(self.index.handle),
        };
        unknown.map_or(Ok(()), |BlockHandle { offset, size }| {
            let expected = "pieces of the index and of filters that the metaindex names";
            let found = format!("pieces of a block of {size} bytes at {offset}");
            Err(Defect::new(expected, found))
        })
    }
}

/// The bytes of the block from `at` on.
pub(super) struct Input {
    bytes: Bytes,
    at: usize,
}

impl Input {
    pub(super) fn take(&mut self, len: usize) -> Result<Bytes, Defect> {
        let end = self.at.checked_add(len);
        let Some(end) = end.filter(|&end| end <= self.bytes.len()) else {
            return Err(self.ends_early(len));
        };
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Defect> {
        let byte = self.take(1)?;
        byte.first().copied().ok_or_else(|| self.ends_early(1))
    }

    pub(super) fn number(&mut self) -> Result<u64, Defect> {
        let left = self.bytes.get(self.at..).unwrap_or(&[]);
        let (number, len) = get_varint64(left).ok_or_else(|| self.ends_early(1))?;
        self.at += len;
        Ok(number)
    }

    pub(super) fn handle(&mut self) -> Result<BlockHandle, Defect> {
        let (offset, size) = (self.number()?, self.number()?);
        Ok(BlockHandle { offset, size })
    }

    fn rest(self) -> Bytes {
        self.bytes.slice(self.at..)
    }

    #[cold]
    fn ends_early(&self, len: usize) -> Defect {
        let left = self.bytes.len() - self.at;
        Defect::new(
            format!(
                "{len} or more bytes of numbers at byte {} of the block",
                self.at
            ),
            format!("{left} bytes, or a number that is too large"),
        )
    }
}

/// The index block in pieces: where they lie, and what they must hold.
#[derive(Debug)]
pub(crate) struct IndexPieces {
    /// The handle of the index block.
    pub(crate) handle: BlockHandle,
    tops: Block<Bytes>,
    pieces: Vec<Piece>,
}

/// What is kept of a piece, to find it. The rest is decoded from the tops.
#[derive(Debug)]
struct Piece {
    /// Where its entry in the tops begins.
    at: u32,
    /// Where it ends in the index block.
    end: u32,
    /// Number of data blocks up to its end.
    blocks: u32,
}

/// Length of the index's entry with a key of so many bytes.
fn entry_len(key_len: usize, handle: BlockHandle) -> usize {
    let handle_len = varint_len(handle.offset) + varint_len(handle.size);
    let lens = [0, key_len, handle_len].map(|len| varint_len(len as u64));
    lens.iter().sum::<usize>() + key_len + handle_len
}

/// What the tops say of a piece.
struct Facts {
    len: u32,
    blocks: u32,
    last: BlockHandle,
    crc: u32,
}

impl Facts {
    fn decode(value: &[u8]) -> Option<Facts> {
        let (len, a) = get_varint32(value)?;
        let (blocks, b) = get_varint32(value.get(a..)?)?;
        let (last, c) = BlockHandle::decode(value.get(a + b..)?)?;
        let crc = fixed32_at(value, a + b + c)?;
        (value.len() == a + b + c + 4).then_some(Facts {
            len,
            blocks,
            last,
            crc,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut value = Vec::new();
        put_varint(&mut value, self.len.into());
        put_varint(&mut value, self.blocks.into());
        self.last.encode(&mut value);
        put_fixed32(&mut value, self.crc);
        value
    }
}

impl IndexPieces {
    fn decode(handle: BlockHandle, tops: Bytes) -> Result<IndexPieces, Defect> {
        let tops = Block::parse(tops)?;
        let (mut pieces, mut data_end) = (Vec::new(), 0);
        let (mut end, mut blocks) = (0, 0);
        let mut restarts = tops.restarts();
        for (i, entry) in tops.iter().enumerate() {
            let entry = entry?;
            let wrong = |expected: &str| {
                let value = tops.bytes(entry.value());
                let value = value.get(..40).unwrap_or(value);
                let expected = format!("piece {i} of the index to {expected}");
                Defect::new(expected, format!("{value:02x?}"))
            };
            let is_restart = i % TOP_INTERVAL == 0;
            if is_restart && (entry.shared() > 0 || restarts.next() != Some(entry.offset())) {
                return Err(wrong("have its last key stored whole, at a restart"));
            }
            let facts = Facts::decode(tops.bytes(entry.value()));
            let facts = facts.ok_or_else(|| wrong("have four numbers and a checksum"))?;
            let last_entry = entry_len(entry.key_len(), facts.last);
            if entry.key_len() > MAX_TOP || facts.blocks == 0 || (facts.len as usize) < last_entry {
                return Err(wrong("have an entry, and a last key of at most 4096 bytes"));
            }
            let last_end = facts.last.end().filter(|&end| end <= handle.offset);
            let Some(last_end) = last_end.filter(|_| facts.last.offset >= data_end) else {
                return Err(wrong("end with a block between those before and the index"));
            };
            data_end = last_end;
            end += u64::from(facts.len);
            blocks += u64::from(facts.blocks);
            if end + 4 * blocks + 4 > handle.size.min(u32::MAX.into()) {
                return Err(wrong("end before the restarts"));
            }
            pieces.push(Piece {
                at: entry.offset() as u32,
                end: end as u32,
                blocks: blocks as u32,
            });
        }
        let is_whole = end + 4 * blocks + 4 == handle.size && restarts.next().is_none();
        if pieces.is_empty() || !is_whole {
            let size = handle.size;
            return Err(Defect::new(
                format!("an index of {size} bytes, and a restart for every {TOP_INTERVAL} tops"),
                format!(
                    "{} pieces of {end} bytes and {blocks} entries, {} restarts",
                    pieces.len(),
                    tops.restart_count()
                ),
            ));
        }
        drop(restarts);
        Ok(IndexPieces {
            handle,
            tops,
            pieces,
        })
    }

    /// Checks that tops ascend in `order`. With a comparator, the work is bounded as for a block.
    pub(crate) fn check_order(&self, order: &Order) -> Result<(), Defect> {
        let mut work = KeyWork::of_block();
        self.tops.check_keys(order, &mut work, |_, _| Ok(()))
    }

    /// Bytes of memory that it takes.
    pub(crate) fn weight(&self) -> usize {
        self.tops.data().len() + size_of::<Piece>() * self.pieces.len()
    }

    /// Number of pieces, at least one.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Number of data blocks: of all entries, as the block states them. The properties know it, too.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks_before(self.len())
    }

    /// Number of the first data block of piece `i`; of `len()`, of all blocks.
    #[inline]
    pub(crate) fn blocks_before(&self, i: usize) -> usize {
        self.piece_before(i)
            .map_or(0, |piece| piece.blocks as usize)
    }

    /// The piece whose entry data block `block`, one of `0..blocks()`, has.
    #[inline]
    pub(crate) fn piece_of(&self, block: usize) -> usize {
        self.pieces
            .partition_point(|piece| piece.blocks as usize <= block)
    }

    /// The piece that `key` is looked for in: the first whose top is at or after it, or the last one. There, a key past the top is
    /// absent only once the piece was [decoded](Self::decode_piece).
    pub(crate) fn seek(&self, key: &[u8], order: &Order) -> usize {
        let landing = self.tops.seek(key, order, &mut Key::default());
        // An error cannot be: `decode` has decoded every entry.
        let found = landing.ok().flatten().map_or(self.len(), |landing| {
            let at = landing.entry.offset();
            self.pieces
                .partition_point(|piece| (piece.at as usize) < at)
        });
        found.min(self.len() - 1)
    }

    /// The top of piece `i`, one of `0..len()`: its last key.
    pub(crate) fn top(&self, i: usize) -> Vec<u8> {
        let mut top = Vec::new();
        let group = i - i % TOP_INTERVAL;
        let at = self.pieces.get(group).map_or(0, |piece| piece.at as usize);
        for entry in self.tops.entries_from(at, 0).take(i - group + 1).flatten() {
            top.truncate(entry.shared());
            top.extend_from_slice(self.tops.unshared(&entry));
        }
        top
    }

    /// All tops, in the order of their pieces.
    pub(crate) fn tops(&self) -> BlockCursor<Bytes> {
        BlockCursor::new(self.tops.clone())
    }

    /// The handle of the last data block of piece `i`, one of `0..len()`.
    pub(crate) fn last_handle(&self, i: usize) -> BlockHandle {
        self.facts(i)
            .map_or(BlockHandle::default(), |facts| facts.last)
    }

    /// Where the bytes lie in the file that [`decode_piece`](Self::decode_piece) takes: those of the piece, and those beside it that
    /// show that its ends are right.
    pub(crate) fn range(&self, i: usize) -> Range<u64> {
        let end = |piece: Option<&Piece>| piece.map_or(0, |piece| u64::from(piece.end));
        let before = self.last_entry_before(i).len() as u64;
        let after = self.after(i).len() as u64;
        let start = self.handle.offset + end(self.piece_before(i)) - before;
        start..self.handle.offset + end(self.pieces.get(i)) + after
    }

    /// Decodes piece `i` from the `bytes` at its [`range`](Self::range), and calls `take` with each entry: where its key lies in
    /// `bytes`, and its handle. What it was called with is to be trusted only if the result is `Ok`.
    ///
    /// Checks all that [makes a piece trusted](self), that handles ascend without overlap, before the index, and that keys ascend,
    /// unless the order is not known (`None`).
    pub(crate) fn decode_piece(
        &self,
        i: usize,
        bytes: &[u8],
        order: Option<&Order>,
        mut take: impl FnMut(Range<usize>, BlockHandle),
    ) -> Result<(), Defect> {
        let before = self.last_entry_before(i);
        let piece = bytes.strip_prefix(&before[..]);
        let piece = piece.and_then(|piece| piece.strip_suffix(self.after(i)));
        let (Some(piece), Some(facts)) = (piece, self.facts(i)) else {
            return Err(self.ends_elsewhere(i));
        };
        if crc32c(piece) != facts.crc || piece.len() != facts.len as usize {
            return Err(Defect::new(
                format!(
                    "piece {i} of {} bytes, checksum {:#010x}",
                    facts.len, facts.crc
                ),
                format!("{} bytes, {:#010x}", piece.len(), crc32c(piece)),
            ));
        }
        let top_before = i.checked_sub(1).map(|before| self.top(before));
        let data = self.data_before(i)..self.handle.offset;
        let (mut last, mut blocks) = (0, 0);
        decode_entries(
            piece,
            top_before.as_deref(),
            data,
            order,
            |entry, handle| {
                let (at, len) = entry.unshared_at();
                take(before.len() + at..before.len() + at + len, handle);
                (last, blocks) = (entry.offset(), blocks + 1);
            },
        )?;
        if blocks != facts.blocks || piece.get(last..) != Some(&self.last_entry(i)[..]) {
            return Err(Defect::new(
                format!(
                    "piece {i} of {} entries, the last {}",
                    facts.blocks,
                    show_key(&self.top(i))
                ),
                format!("{blocks}, or another last entry"),
            ));
        }
        Ok(())
    }

    fn piece_before(&self, i: usize) -> Option<&Piece> {
        self.pieces.get(i.checked_sub(1)?)
    }

    /// An offset that no data block of piece `i` comes before.
    fn data_before(&self, i: usize) -> u64 {
        let last = self.facts(i.wrapping_sub(1)).map(|before| before.last);
        last.and_then(|last| last.end()).unwrap_or(0)
    }

    /// What the tops say of piece `i`. `None` if there is no such piece.
    fn facts(&self, i: usize) -> Option<Facts> {
        let entry = self.top_entry(i)?;
        Facts::decode(self.tops.bytes(entry.value()))
    }

    fn top_entry(&self, i: usize) -> Option<Entry> {
        let at = self.pieces.get(i)?.at as usize;
        self.tops.entries_from(at, MAX_TOP).next()?.ok()
    }

    /// The bytes of the index's entry that piece `i` ends with; none if there is no such piece.
    fn last_entry(&self, i: usize) -> Vec<u8> {
        let mut entry = Vec::new();
        if let Some(facts) = self.facts(i) {
            put_entry(&mut entry, &self.top(i), facts.last);
        }
        entry
    }

    fn last_entry_before(&self, i: usize) -> Vec<u8> {
        i.checked_sub(1)
            .map_or(Vec::new(), |before| self.last_entry(before))
    }

    /// What comes after piece `i` and is read with it.
    fn after(&self, i: usize) -> &'static [u8] {
        if i + 1 == self.len() {
            &FIRST_RESTART
        } else {
            &[]
        }
    }

    #[cold]
    fn ends_elsewhere(&self, i: usize) -> Defect {
        Defect::new(
            format!(
                "piece {i} of the index between the entry that ends the piece before, and the first restart after the last"
            ),
            "other bytes",
        )
    }
}

/// The entry of an index block, whose key is stored whole.
fn put_entry(dst: &mut Vec<u8>, key: &[u8], handle: BlockHandle) {
    let mut value = Vec::new();
    handle.encode(&mut value);
    for len in [0, key.len(), value.len()] {
        put_varint(dst, len as u64);
    }
    dst.extend_from_slice(key);
    dst.extend_from_slice(&value);
}

/// Decodes neighbouring entries of an index, and calls `take` with each entry and its handle.
///
/// Checks that keys are stored whole and ascend in `order`, unless that is not known, the first past `previous`; and that handles
/// ascend without overlap, within `data`.
pub(crate) fn decode_entries(
    bytes: &[u8],
    previous: Option<&[u8]>,
    data: Range<u64>,
    order: Option<&Order>,
    mut take: impl FnMut(&Entry, BlockHandle),
) -> Result<(), Defect> {
    let mut walk = Walk {
        previous,
        data,
        order,
    };
    for entry in entries_of(bytes) {
        let entry = entry?;
        let handle = walk.step(bytes, &entry)?;
        take(&entry, handle);
    }
    Ok(())
}

/// Checks the entries of a piece one after another.
struct Walk<'a> {
    previous: Option<&'a [u8]>,
    /// Where the data blocks of entries that are left may lie.
    data: Range<u64>,
    order: Option<&'a Order>,
}

impl<'a> Walk<'a> {
    fn step(&mut self, piece: &'a [u8], entry: &Entry) -> Result<BlockHandle, Defect> {
        check_shared(entry, 0)?;
        let (at, len) = entry.unshared_at();
        let key = piece.get(at..at + len).unwrap_or(&[]);
        if let (Some(previous), Some(order)) = (self.previous, self.order)
            && order.compare(previous, key).is_ge()
        {
            let message = order.order_message("index keys", previous, key);
            return Err(Defect::misordered(message));
        }
        let value = piece.get(entry.value()).unwrap_or(&[]);
        let decoded = BlockHandle::decode(value).map(|(handle, _)| (handle, handle.end()));
        match decoded {
            Some((handle, Some(end)))
                if handle.offset >= self.data.start
                    && end <= self.data.end
                    && u32::try_from(handle.size).is_ok() =>
            {
                self.data.start = end;
                self.previous = Some(key);
                Ok(handle)
            }
            _ => {
                let value = value.get(..BlockHandle::MAX_LEN).unwrap_or(value);
                Err(Defect::new(
                    format!("the handle of a data block in {:?}", self.data),
                    format!("{value:02x?}"),
                ))
            }
        }
    }
}

/// Collects what `about.pieces` says while a table is finished.
#[derive(Debug)]
pub(crate) struct PiecesBuilder {
    index: BlockHandle,
    tops: Vec<u8>,
    filters: Vec<u8>,
    filter_count: u8,
}

impl PiecesBuilder {
    /// Cuts the index block `index`, which has entries and will be stored raw at `offset`. `None` if a top would be too long: the
    /// table then gets no `about.pieces`.
    pub(crate) fn new(index: &[u8], offset: u64) -> Option<PiecesBuilder> {
        let block = Block::parse(index).ok()?;
        let mut len = PIECE_LEN;
        let mut tops = tops_of(&block, len)?;
        while tops.len() > MAX_TOPS {
            len *= 2;
            tops = tops_of(&block, len)?;
        }
        Some(PiecesBuilder {
            index: BlockHandle {
                offset,
                size: index.len() as u64,
            },
            tops,
            filters: Vec::new(),
            filter_count: 0,
        })
    }

    /// Divides the filter block `block`, which lies at `offset`, if it is one ribbon filter with layers. Others stay whole.
    pub(crate) fn add_filter(&mut self, block: &[u8], offset: u64) {
        if FilterPieces::encode(block, offset, &mut self.filters).is_some() {
            self.filter_count += 1;
        }
    }

    /// The block.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut block = vec![VERSION, self.filter_count];
        self.index.encode(&mut block);
        block.extend_from_slice(&self.filters);
        block.extend_from_slice(&self.tops);
        block
    }
}

/// The tops of the index block, cut into pieces of at most `piece_len` bytes.
fn tops_of(index: &Block<&[u8]>, piece_len: usize) -> Option<Vec<u8>> {
    let start = |i| {
        if i < index.restart_count() {
            index.restart(i)
        } else {
            index.entries().len()
        }
    };
    let mut tops = BlockBuilder::new(TOP_INTERVAL);
    let mut first = 0;
    while first < index.restart_count() {
        let end = piece_end(index, first, piece_len);
        let (top, value) = index.restart_entry(end - 1)?;
        let bytes = index.entries().get(start(first)..start(end))?;
        let facts = Facts {
            len: bytes.len() as u32,
            blocks: (end - first) as u32,
            last: BlockHandle::decode(value)?.0,
            crc: crc32c(bytes),
        };
        if top.len() > MAX_TOP {
            return None;
        }
        tops.add(top, common_prefix(tops.last_key(), top), &facts.encode());
        first = end;
    }
    Some(tops.finish(<[u8]>::to_vec))
}

/// The entry before which the piece ends that begins with entry `first`: after the last of the shortest keys in its last quarter.
fn piece_end(index: &Block<&[u8]>, first: usize, piece_len: usize) -> usize {
    let count = index.restart_count();
    let start = index.restart(first);
    let end = |i: usize| if i + 1 < count { index.restart(i + 1) } else { index.entries().len() } - start;
    let fitting = (first..count).take_while(|&i| end(i) <= piece_len);
    let last = fitting.last().unwrap_or(first);
    if last + 1 == count {
        return count;
    }
    let key_len = |i: usize| index.restart_entry(i).map_or(0, |(key, _)| key.len());
    let quarter = (first..=last).filter(|&i| end(i) > piece_len / 4 * 3);
    quarter
        .min_by_key(|&i| (key_len(i), Reverse(i)))
        .unwrap_or(last)
        + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index block of these keys, with data blocks of 100 bytes each.
    fn index_of(keys: &[Vec<u8>]) -> Vec<u8> {
        let mut builder = BlockBuilder::new(1);
        for (i, key) in keys.iter().enumerate() {
            let mut value = Vec::new();
            let (offset, size) = (105 * i as u64, 100);
            BlockHandle { offset, size }.encode(&mut value);
            builder.add(key, common_prefix(builder.last_key(), key), &value);
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
        let Range { start, end } = pieces.range(i);
        let at = |offset| (offset - pieces.handle.offset) as usize;
        &index[at(start)..at(end)]
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
            assert_eq!(pieces.blocks(), count);
            pieces.check_order(&Order::Bytewise).unwrap();
            let mut found = Vec::new();
            for i in 0..pieces.len() {
                assert_eq!(found.len(), pieces.blocks_before(i));
                assert_eq!(pieces.piece_of(found.len()), i);
                let bytes = bytes_of(&index, &pieces, i);
                let order = Some(&Order::Bytewise);
                pieces
                    .decode_piece(i, bytes, order, |key, handle| {
                        assert_eq!(handle.offset, 105 * found.len() as u64);
                        found.push(bytes[key].to_vec());
                    })
                    .unwrap();
                assert_eq!(found.last(), Some(&pieces.top(i)));
            }
            assert_eq!(found, keys);
        }
    }
}
