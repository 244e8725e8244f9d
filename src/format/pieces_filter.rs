//! A ribbon filter in pieces, as `about.pieces` divides its block.
//!
//! ```text
//! block     handle of the filter block
//! lg        u8: pieces have 1 << lg bytes, 12 to 31
//! tail      varint32 length, and a copy of the end of the block: of the ribbon from its layer ends on, and all after it
//! pieces    fixed32 CRC-32C of each, not masked: of the words, then of the codes
//! ```
//!
//! The words of the ribbon are one sequence of pieces and its codes another: the last piece of each ends where they do. Pieces lie at
//! fixed offsets, whatever segments they cut in two.
//!
//! Only a block of one filter, a ribbon with layers, is divided. Any other is read whole.

use std::iter;
use std::ops::Range;

use bytes::Bytes;

use super::Defect;
use super::checksum::crc32c;
use super::footer::BlockHandle;
use super::pieces::{Input, PIECE_LEN};
use crate::coding::{fixed32_at, put_fixed32, put_varint};
#[cfg(any(doc, test))]
use crate::filter::RibbonFilterPolicy;
use crate::filter::{RibbonLayout, RibbonProbe as Probe};

/// After the filter: its offset, the offset of the offsets, lg(base).
const BLOCK_END: usize = 9;

/// Most pieces of a filter, unless they would be longer than the longest.
const MAX_PIECES: usize = 1 << 16;

/// Logarithms of the shortest and of the longest piece. No equation needs words of more than two pieces.
const PIECE_LGS: Range<u8> = 12..32;

/// A divided filter block. Its pieces are numbered: those of the words, those of the codes, and the tail.
#[derive(Debug)]
pub(crate) struct FilterPieces {
    /// The handle of the filter block.
    pub(crate) handle: BlockHandle,
    lg: u8,
    /// Copied from `about.pieces`.
    tail: Bytes,
    crcs: Bytes,
    words_len: usize,
    codes_len: usize,
}

/// What a filter in pieces says of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The key is absent.
    No,
    /// The key may be there.
    Maybe,
    /// These pieces are needed first.
    Needs(Vec<usize>),
}

impl FilterPieces {
    /// Appends the description of the filter block `block` at file offset `offset`. `None`, and nothing is appended, if it is not
    /// one ribbon filter with layers.
    pub(super) fn encode(block: &[u8], offset: u64, dst: &mut Vec<u8>) -> Option<()> {
        let size = block.len() as u64;
        let layout = layout_of(block, size)?;
        let (words, rest) = block.split_at_checked(layout.words_len)?;
        let (codes, tail) = rest.split_at_checked(layout.codes_len)?;
        let mut len = PIECE_LEN;
        while block.len() / len > MAX_PIECES {
            len *= 2;
        }
        BlockHandle { offset, size }.encode(dst);
        dst.push(len.ilog2() as u8);
        put_varint(dst, tail.len() as u64);
        dst.extend_from_slice(tail);
        for piece in words.chunks(len).chain(codes.chunks(len)) {
            put_fixed32(dst, crc32c(piece));
        }
        Some(())
    }

    /// Checks that the copy of the tail describes a block of the handle's size.
    pub(super) fn decode(input: &mut Input) -> Result<FilterPieces, Defect> {
        let handle = input.handle()?;
        let lg = input.byte()?;
        let tail_len = usize::try_from(input.number()?).unwrap_or(usize::MAX);
        let tail = input.take(tail_len)?;
        let wrong = || {
            Defect::new(
                format!(
                    "the end of a ribbon filter in a block of {} bytes",
                    handle.size
                ),
                format!(
                    "{} bytes that are none, or pieces of 1 << {lg} bytes",
                    tail.len()
                ),
            )
        };
        let layout = layout_of(&tail, handle.size).ok_or_else(wrong)?;
        let (words_len, codes_len) = (layout.words_len, layout.codes_len);
        if layout.tail_len() + BLOCK_END != tail.len() || !PIECE_LGS.contains(&lg) {
            return Err(wrong());
        }
        let count = words_len.div_ceil(1 << lg) + codes_len.div_ceil(1 << lg);
        let crcs = input.take(4 * count)?;
        Ok(FilterPieces {
            handle,
            lg,
            tail,
            crcs,
            words_len,
            codes_len,
        })
    }

    /// Number of pieces, the tail included.
    pub(crate) fn len(&self) -> usize {
        self.crcs.len() / 4 + 1
    }

    /// The last piece: the end of the block, of which there is a copy. Nothing is rejected before the copy was compared with it.
    fn tail_piece(&self) -> usize {
        self.len() - 1
    }

    /// Whether the filter has the keys of every data block that begins before `data_end`, and so of the whole table: LevelDB's
    /// formula for the blocks of filter 0. For a filter of keys; one of prefixes is always of the whole table.
    pub(crate) fn covers(&self, data_end: u64) -> bool {
        let lg = self.tail.last().map_or(64, |&lg| u32::from(lg));
        data_end.checked_shr(lg) == Some(0)
    }

    /// Where piece `i`, one of `0..len()`, lies in the file.
    pub(crate) fn range(&self, i: usize) -> Range<u64> {
        let part = self.range_in_block(i);
        self.handle.offset + part.start as u64..self.handle.offset + part.end as u64
    }

    fn range_in_block(&self, i: usize) -> Range<usize> {
        let words = self.words_len.div_ceil(1 << self.lg);
        let codes_end = self.words_len + self.codes_len;
        let (start, end) = match i {
            _ if i < words => (i << self.lg, self.words_len),
            _ if i < self.tail_piece() => (self.words_len + ((i - words) << self.lg), codes_end),
            _ => return codes_end..codes_end + self.tail.len(),
        };
        start..end.min(start + (1 << self.lg))
    }

    /// Checks the bytes at the [`range`](Self::range) of piece `i`. Those of the tail must equal their copy, by which pieces were
    /// found.
    pub(crate) fn check(&self, i: usize, bytes: &[u8]) -> Result<(), Defect> {
        let range = self.range_in_block(i);
        let sound = match fixed32_at(&self.crcs, 4 * i) {
            Some(crc) => crc == crc32c(bytes) && bytes.len() == range.len(),
            None => *bytes == *self.tail,
        };
        if sound {
            return Ok(());
        }
        Err(Defect::new(
            format!(
                "{} bytes as about.pieces has them or their checksum",
                range.len()
            ),
            format!(
                "others, {} with checksum {:#010x}",
                bytes.len(),
                crc32c(bytes)
            ),
        ))
    }

    /// The pieces that a key with this [hash](RibbonFilterPolicy::hash) needs if it is in one of the first `layers` layers, with the
    /// tail: what to read at once where no piece is there yet. A key is in layer 0 with a probability of 91 %, and in layer 0 or 1
    /// with 99 %.
    pub(crate) fn needs(&self, hash: u64, layers: usize) -> Vec<usize> {
        let mut needs = vec![self.tail_piece()];
        if let Some(layout) = self.layout() {
            let places = iter::successors(layout.first(hash), |probe| layout.next(probe));
            needs.extend(
                places
                    .take(layers)
                    .flat_map(|probe| self.pieces_for(&layout, &probe)),
            );
        }
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// Whether the filter may have a key with this [hash](RibbonFilterPolicy::hash). `piece` returns a piece that is there and has
    /// been [checked](Self::check), by its number.
    ///
    /// A filter that contradicts itself has every key. Never says [`Answer::No`] without the tail piece.
    #[inline]
    pub(crate) fn ask<'p>(&self, hash: u64, piece: impl Fn(usize) -> Option<&'p [u8]>) -> Answer {
        let Some(layout) = self.layout() else {
            return Answer::Maybe;
        };
        let has_tail = piece(self.tail_piece()).is_some();
        let mut probe = layout.first(hash);
        while let Some(place) = &probe {
            let at = place.code_at();
            if at >= self.codes_len {
                break;
            }
            let codes = piece(self.codes_piece(at)).filter(|_| has_tail);
            let Some(codes) = codes else {
                return self.missing(&layout, place, piece);
            };
            let Some(&code) = codes.get(at & self.mask()) else {
                break;
            };
            if !place.is_bumped(code) {
                let words = layout.words_at(place);
                return match self.gather(words, &mut [0; RibbonLayout::MAX_WORDS], &piece) {
                    None => self.missing(&layout, place, piece),
                    Some(words) if layout.holds(place, words) == Some(false) => Answer::No,
                    Some(_) => Answer::Maybe,
                };
            }
            probe = layout.next(place);
        }
        Answer::Maybe
    }

    /// The words at `range`, which may lie in two pieces; `None` if one is missing.
    #[inline]
    fn gather<'b, 'p: 'b>(
        &self,
        range: Range<usize>,
        both: &'b mut [u8; RibbonLayout::MAX_WORDS],
        piece: &impl Fn(usize) -> Option<&'p [u8]>,
    ) -> Option<&'b [u8]> {
        let first = piece(range.start >> self.lg)?;
        let (start, len) = (range.start & self.mask(), range.len());
        if let Some(words) = first.get(start..start + len) {
            return Some(words);
        }
        let second = piece((range.start >> self.lg) + 1)?;
        let bytes = first.iter().skip(start).chain(second);
        let both = both.get_mut(..len)?;
        both.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        Some(both)
    }

    /// The pieces for this place of a key that are missing, and perhaps the tail.
    #[cold]
    fn missing<'p>(
        &self,
        layout: &RibbonLayout<'_>,
        place: &Probe,
        piece: impl Fn(usize) -> Option<&'p [u8]>,
    ) -> Answer {
        let mut needs = self.pieces_for(layout, place);
        needs.retain(|&i| piece(i).is_none());
        Answer::Needs(needs)
    }

    /// The pieces with the words and the codes for this place of a key, and the tail.
    fn pieces_for(&self, layout: &RibbonLayout<'_>, place: &Probe) -> Vec<usize> {
        let words = layout.words_at(place);
        let codes = Some(place.code_at()).filter(|&at| at < self.codes_len);
        let words = words.start >> self.lg..words.end.div_ceil(1 << self.lg);
        let codes = codes.map(|at| self.codes_piece(at));
        words.chain(codes).chain([self.tail_piece()]).collect()
    }

    #[inline]
    fn codes_piece(&self, at: usize) -> usize {
        self.words_len.div_ceil(1 << self.lg) + (at >> self.lg)
    }

    #[inline]
    fn mask(&self) -> usize {
        (1 << self.lg) - 1
    }

    #[inline]
    fn layout(&self) -> Option<RibbonLayout<'_>> {
        layout_of(&self.tail, self.handle.size)
    }
}

/// The layout of the ribbon of a filter block of `size` bytes that ends with `tail`, which may be all of it.
#[inline]
fn layout_of(tail: &[u8], size: u64) -> Option<RibbonLayout<'_>> {
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
    use super::super::filter_block::{FilterBlockBuilder, FilterSpan};
    use super::super::pieces::{Pieces, PiecesBuilder};
    use super::*;
    use crate::filter::FilterPolicy;
    use crate::format::block::BlockBuilder;

    const OFFSET: u64 = 1_000;

    fn filter_block(keys: u32) -> Vec<u8> {
        let policy = RibbonFilterPolicy::new(10);
        let mut builder = FilterBlockBuilder::new(policy.builder(), FilterSpan::Table);
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

    /// Every answer is that of the whole filter, and needs few pieces. None is asked for in vain.
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
            assert_eq!(parts.concat(), block);
            let policy = RibbonFilterPolicy::new(10);
            let (mut asked, mut again, mut straddling) = (0, 0, 0);
            for key in (0..40_000u32).map(|i| (i * 17).to_be_bytes()) {
                let hash = RibbonFilterPolicy::hash(&key);
                let mut there = vec![false; parts.len()];
                let mut rounds = 0;
                let found = loop {
                    match pieces.ask(hash, |i| parts.get(i).copied().filter(|_| there[i])) {
                        Answer::Needs(needs) => {
                            assert!(!needs.is_empty() && needs.iter().all(|&i| !there[i]));
                            if rounds == 0 {
                                let mut needs = needs.clone();
                                needs.sort();
                                assert_eq!(needs, pieces.needs(hash, 1));
                                straddling += u32::from(needs.len() > 3);
                            }
                            needs.iter().for_each(|&i| there[i] = true);
                            rounds += 1;
                        }
                        Answer::Maybe => break true,
                        Answer::No => break false,
                    }
                };
                assert_eq!(found, policy.key_may_match(&key, filter));
                assert!(found || there[parts.len() - 1], "rejected without the tail");
                (asked, again) = (asked + 1, again + u32::from(rounds > 1));
            }
            assert!(again <= asked / 8, "{keys} keys: {again} of {asked}");
            assert!(
                straddling <= asked / 150,
                "{keys} keys: {straddling} of {asked}"
            );
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
