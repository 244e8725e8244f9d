//! A ribbon filter in pieces, into which `about.pieces` divides its block.
//!
//! ```text
//! block     handle of the filter block
//! lg        varint: pieces have 1 << lg bytes, 12 to 31
//! tail      varint length, and a copy of the end of the block: of the ribbon from its layer ends on, and all after it
//! pieces    fixed32 CRC-32C of each, not masked: of the words, then of the codes
//! ```
//!
//! The words of the ribbon are one sequence of pieces and its codes another: the last piece of each ends where they do. Pieces lie at
//! fixed offsets, and may split a segment.
//!
//! Only a block of one filter, a ribbon with layers, is divided. Any other is read whole.

use std::ops::Range;

use bytes::Bytes;

use super::checksum::crc32c;
use super::footer::BlockHandle;
use super::pieces_input::{Input, PIECE_LEN, part};
use super::{Defect, require};
use crate::coding::{fixed32_at, put_fixed32, put_varint};
use crate::filter::{RibbonLayout, RibbonProbe};

/// Length of what follows the filter: its offset, the offset of the offsets, lg(base).
const BLOCK_END: usize = 9;

/// Maximum number of pieces of a filter, unless they would be longer than the longest allowed.
const MAX_PIECES: usize = 1 << 16;

/// Logarithms of the shortest and of the longest piece. No equation needs words of more than two pieces.
const PIECE_LGS: Range<u64> = 12..32;

/// A divided filter block. Pieces are numbered: first those of the words, then those of the codes. A copy of the tail takes the
/// place of the rest.
#[derive(Debug)]
pub(crate) struct FilterPieces {
    /// The handle of the filter block.
    pub(crate) handle: BlockHandle,
    lg: u32,
    /// The length of a piece, less one.
    mask: usize,
    /// Copied from `about.pieces`.
    tail: Bytes,
    /// The layout that the tail describes.
    layout: RibbonLayout,
    crcs: Bytes,
    /// Number of the first piece of the codes.
    codes: usize,
}

impl FilterPieces {
    /// Describes the filter block `block` at file offset `offset`, for `about.pieces`. `None` if it is not one ribbon filter
    /// with layers.
    pub(super) fn encode(block: &[u8], offset: u64) -> Option<Vec<u8>> {
        let size = block.len() as u64;
        let layout = layout_of(block, size)?;
        let (words, rest) = block.split_at_checked(layout.words_len)?;
        let (codes, tail) = rest.split_at_checked(layout.codes_len)?;
        let mut len = PIECE_LEN;
        while block.len() / len > MAX_PIECES {
            len *= 2;
        }
        let mut described = BlockHandle { offset, size }.encode();
        described.push(len.ilog2() as u8);
        put_varint(&mut described, tail.len() as u64);
        described.extend_from_slice(tail);
        for piece in words.chunks(len).chain(codes.chunks(len)) {
            put_fixed32(&mut described, crc32c(piece));
        }
        Some(described)
    }

    /// Checks that the copy of the tail describes a block of the handle's size.
    pub(super) fn decode(input: &mut Input) -> Result<FilterPieces, Defect> {
        let (handle, lg) = (input.handle()?, input.number()?);
        let tail_len = usize::try_from(input.number()?).unwrap_or(usize::MAX);
        let tail = input.take(tail_len)?;
        let layout = layout_of(&tail, handle.size);
        let layout = layout
            .filter(|layout| layout.tail_len() + BLOCK_END == tail_len && PIECE_LGS.contains(&lg));
        let Some(layout) = layout else {
            let size = handle.size;
            let expected = format!("the end of a ribbon filter in a block of {size} bytes");
            let found = format!("{tail:02x?}, pieces of 1 << {lg}");
            return Err(Defect::new(expected, found));
        };
        let words = layout.words_len.div_ceil(1 << lg);
        let count = words + layout.codes_len.div_ceil(1 << lg);
        Ok(FilterPieces {
            handle,
            lg: lg as u32,
            mask: (1 << lg) - 1,
            // Copied, because these live with the table, and the block need not.
            crcs: Bytes::copy_from_slice(&input.take(4 * count)?),
            codes: words,
            layout,
            tail: Bytes::copy_from_slice(&tail),
        })
    }

    /// Bytes of memory that this takes.
    pub(crate) fn weight(&self) -> usize {
        self.tail.len() + self.crcs.len()
    }

    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.crcs.len() / 4
    }

    /// Whether the filter has the keys of every data block that begins before `data_end`, and so of the whole table: LevelDB's
    /// formula for the blocks of filter 0. Only for a filter of keys; one of prefixes always covers the whole table.
    pub(crate) fn covers(&self, data_end: u64) -> bool {
        let lg = self.tail.last().map_or(64, |&lg| u32::from(lg));
        data_end.checked_shr(lg) == Some(0)
    }

    /// Where piece `i`, one of `0..len()`, lies in the file.
    pub(crate) fn range(&self, i: usize) -> Range<u64> {
        let words_len = self.layout.words_len;
        let codes_end = words_len + self.layout.codes_len;
        let (start, end) = if i < self.codes {
            (i << self.lg, words_len)
        } else {
            (words_len + ((i - self.codes) << self.lg), codes_end)
        };
        let end = end.min(start + (1 << self.lg));
        self.handle.offset + start as u64..self.handle.offset + end as u64
    }

    /// Checks the bytes at the [`range`](Self::range) of piece `i`.
    pub(crate) fn check(&self, i: usize, bytes: &[u8]) -> Result<(), Defect> {
        let (stored, computed) = (fixed32_at(&self.crcs, 4 * i), crc32c(bytes));
        let expected = || {
            let crc = stored.unwrap_or_default();
            format!("piece {i} of the filter with checksum {crc:#010x}")
        };
        let found = || format!("{computed:#010x} (computed from {} bytes)", bytes.len());
        require(stored == Some(computed), expected, found)
    }

    /// Checks that the filter block `block`, wherever it lies, has these pieces.
    pub(crate) fn check_block(&self, block: &[u8]) -> Result<(), Defect> {
        let expected = || format!("a filter that ends with {:02x?}", self.tail);
        let end = block.len().saturating_sub(self.tail.len());
        let end = block.get(end..).unwrap_or(&[]);
        require(*end == *self.tail, expected, || format!("{end:02x?}"))?;
        (0..self.len()).try_for_each(|i| self.check(i, part(block, self.handle, self.range(i))))
    }

    /// Whether the filter may have a key with this [hash](crate::filter::RibbonFilterPolicy::hash). `piece` returns a [checked](Self::check)
    /// piece by its number, if it is in memory. `None` if a piece is [missing](Self::missing).
    ///
    /// A filter that contradicts itself may have every key.
    #[inline]
    pub(crate) fn ask<'p>(
        &self,
        hash: u64,
        piece: impl Fn(usize) -> Option<&'p [u8]>,
    ) -> Option<bool> {
        let layout = &self.layout;
        let mut place = layout.first(hash);
        while let Some(probe) = place.filter(|probe| probe.code_at() < layout.codes_len) {
            let codes = piece(self.codes_piece(&probe))?;
            if !probe.is_bumped(*codes.get(probe.code_at() & self.mask)?) {
                return self.holds(probe, piece);
            }
            place = layout.next(&probe, self.ribbon_tail());
        }
        Some(true)
    }

    /// The pieces that a key with this hash needs next and that are not in memory. If the codes are missing, the key may be in
    /// any layer: then the words of the first `layers` layers are requested. 91 % of the keys are in the first, 99 % in the first
    /// two.
    pub(crate) fn missing<'p>(
        &self,
        hash: u64,
        mut layers: usize,
        piece: impl Fn(usize) -> Option<&'p [u8]>,
    ) -> Vec<usize> {
        let mut needs = Vec::new();
        let layout = &self.layout;
        let mut place = layout.first(hash);
        while let Some(probe) = place {
            let codes = piece(self.codes_piece(&probe));
            let code = codes.and_then(|codes| codes.get(probe.code_at() & self.mask));
            if code.is_none_or(|&code| !probe.is_bumped(code)) {
                let words = layout.words_at(&probe);
                needs.extend(words.start >> self.lg..words.end.div_ceil(1 << self.lg));
                needs
                    .extend((probe.code_at() < layout.codes_len).then(|| self.codes_piece(&probe)));
                layers = code.map_or(layers.saturating_sub(1), |_| 0);
                if layers == 0 {
                    break;
                }
            }
            place = layout.next(&probe, self.ribbon_tail());
        }
        needs.retain(|&i| piece(i).is_none());
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// Whether the equation of `probe` holds, given its words, which may lie in two pieces; `None` if one of these is
    /// missing.
    #[inline]
    fn holds<'p>(
        &self,
        probe: RibbonProbe,
        piece: impl Fn(usize) -> Option<&'p [u8]>,
    ) -> Option<bool> {
        let range = self.layout.words_at(&probe);
        if range.is_empty() {
            return Some(true);
        }
        let i = range.start >> self.lg;
        let first = piece(i)?;
        let holds = |words: &[u8]| self.layout.holds(probe, words).unwrap_or(true);
        let start = range.start & self.mask;
        Some(match first.get(start..start + range.len()) {
            Some(words) => holds(words),
            None => {
                let second = piece(i + 1)?;
                holds(&joined(first, second, start, range.len()))
            }
        })
    }

    /// The end of the filter, without the block's own end.
    fn ribbon_tail(&self) -> &[u8] {
        self.tail.get(..self.layout.tail_len()).unwrap_or(&[])
    }

    /// The piece with the code for this probe.
    #[inline]
    fn codes_piece(&self, probe: &RibbonProbe) -> usize {
        self.codes + (probe.code_at() >> self.lg)
    }
}

/// The `len` bytes from byte `start` of `first` on, which extend into the next piece.
#[cold]
fn joined(first: &[u8], second: &[u8], start: usize, len: usize) -> Vec<u8> {
    let bytes = first.iter().skip(start).chain(second);
    bytes.take(len).copied().collect()
}

/// The layout of the ribbon of a filter block of `size` bytes that ends with `tail`, which may be all of it.
#[inline]
fn layout_of(tail: &[u8], size: u64) -> Option<RibbonLayout> {
    let (ribbon, &[0, 0, 0, 0, a, b, c, d, _]) = tail.split_last_chunk::<BLOCK_END>()? else {
        return None;
    };
    let len = u32::from_le_bytes([a, b, c, d]);
    if u64::from(len) + BLOCK_END as u64 != size {
        return None;
    }
    RibbonLayout::parse(ribbon, len as usize)
}

#[cfg(test)]
mod tests {
    use super::super::filter_block::FilterBlockBuilder;
    use super::super::pieces::{Pieces, PiecesBuilder};
    use super::*;
    use crate::filter::{FilterPolicy, RibbonFilterPolicy};
    use crate::format::block::BlockBuilder;

    const OFFSET: u64 = 1_000;

    fn filter_block(keys: u32) -> Vec<u8> {
        let policy = RibbonFilterPolicy::new(10);
        let mut builder = FilterBlockBuilder::new(policy.builder(), true);
        builder.start_block(0);
        (0..keys).for_each(|key| builder.add_key(&key.to_be_bytes()));
        builder.finish(100).unwrap()
    }

    fn pieces_of(filter: &[u8]) -> Option<FilterPieces> {
        let mut index = BlockBuilder::new(1);
        index.add(b"key", 0, &[0, 20]);
        let mut builder = index
            .finish(|index| PiecesBuilder::new(index, 100))
            .unwrap();
        builder.add_filter(filter, OFFSET);
        let mut pieces = Pieces::decode(builder.finish().into()).unwrap().unwrap();
        pieces.filters.pop()
    }

    /// Every answer equals that of the whole filter, and needs few pieces. No piece is requested in vain.
    #[test]
    fn a_filter_in_pieces_answers_as_a_whole_one() {
        for keys in [1, 20, 1_000, 100_000, 300_000] {
            let block = filter_block(keys);
            let (filter, _) = block.split_at(block.len() - BLOCK_END);
            let pieces = pieces_of(&block).unwrap();
            let parts: Vec<&[u8]> = (0..pieces.len())
                .map(|i| {
                    let Range { start, end } = pieces.range(i);
                    let part = &block[(start - OFFSET) as usize..(end - OFFSET) as usize];
                    pieces.check(i, part).unwrap();
                    assert!(pieces.check(i, &part[1..]).is_err());
                    part
                })
                .collect();
            assert_eq!([&parts.concat()[..], &pieces.tail].concat(), block);
            pieces.check_block(&block).unwrap();
            let mut damaged = block.clone();
            *damaged.last_mut().unwrap() ^= 1;
            assert!(pieces.check_block(&damaged).is_err());
            let policy = RibbonFilterPolicy::new(10);
            let (mut asked, mut again, mut straddling) = (0, 0, 0);
            for key in (0..40_000u32).map(|i| (i * 17).to_be_bytes()) {
                let hash = RibbonFilterPolicy::hash(&key);
                let mut there = vec![false; parts.len()];
                let mut rounds = 0;
                let found = loop {
                    let piece = |i: usize| parts.get(i).copied().filter(|_| there[i]);
                    if let Some(found) = pieces.ask(hash, piece) {
                        assert!(pieces.missing(hash, 1, piece).is_empty());
                        break found;
                    }
                    let needs = pieces.missing(hash, 1, piece);
                    assert!(!needs.is_empty() && needs.iter().all(|&i| !there[i]));
                    if rounds == 0 {
                        straddling += u32::from(needs.len() > 2);
                        let both = pieces.missing(hash, 2, piece);
                        assert!(needs.iter().all(|piece| both.contains(piece)));
                    }
                    needs.iter().for_each(|&i| there[i] = true);
                    rounds += 1;
                };
                assert_eq!(found, policy.key_may_match(&key, filter));
                (asked, again) = (asked + 1, again + u32::from(rounds > 1));
            }
            assert!(again <= asked / 8, "{keys} keys: {again} of {asked}");
            assert!(
                straddling <= asked / 150,
                "{keys} keys: {straddling} of {asked}"
            );
        }
    }

    /// If the ends of layers do not ascend, a key may be placed past all words. Then its missing pieces can still be
    /// named, or it passes.
    #[test]
    fn a_filter_that_contradicts_itself_asks_for_pieces_that_it_has() {
        let segments = 131_073_u32;
        let words = vec![0; 16 * segments as usize];
        let mut codes = vec![0xff; segments.div_ceil(4) as usize];
        *codes.last_mut().unwrap() = 0;
        let ends = [segments, segments + 3, segments, segments];
        let ends = ends.map(u32::to_le_bytes);
        let ribbon = [&words[..], &codes, ends.as_flattened(), &[4, 3]].concat();
        let len = (ribbon.len() as u32).to_le_bytes();
        let block = [&ribbon[..], &[0; 4], &len, &[11]].concat();
        let pieces = pieces_of(&block).unwrap();
        for key in (0..1_000u32).map(u32::to_be_bytes) {
            let hash = RibbonFilterPolicy::hash(&key);
            let mut there = vec![false; pieces.len()];
            let part = |i: usize| part(&block, pieces.handle, pieces.range(i));
            while pieces.ask(hash, |i| there[i].then(|| part(i))).is_none() {
                let needs = pieces.missing(hash, 1, |i| there[i].then(|| part(i)));
                assert!(!needs.is_empty(), "{key:?} needs what nothing brings");
                needs.iter().for_each(|&i| there[i] = true);
            }
        }
    }

    #[test]
    fn only_one_ribbon_with_layers_is_divided() {
        let block = filter_block(100);
        assert!(pieces_of(&block).is_some());
        assert!(pieces_of(&[0, 0, 0, 0, 11]).is_none(), "no keys");
        // The filter that every key matches.
        let all = [&[0; 14][..], &[10, 0, 0, 0, 1]].concat();
        assert!(pieces_of(&all).is_none());
        for cut in 1..block.len() {
            assert!(pieces_of(&block[cut..]).is_none(), "{cut}");
            assert!(pieces_of(&block[..cut]).is_none(), "{cut}");
        }
    }
}
