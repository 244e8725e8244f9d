//! What lookups have learned about the data blocks: which were checked, and which part of a block a search needs.
//!
//! The index stays as it was read; all that changes while a table is open is here.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};

use crate::format::block::Block;
use crate::format::block_search::SearchPart;
use crate::format::touch::LINE;
use crate::read::index::Index;

/// Six bytes for each data block.
#[derive(Debug)]
pub(super) struct Hints {
    blocks: Box<[Hint]>,
    any_in_place: AtomicBool,
}

/// What is known of a data block: how far it was checked, and its [fences](Block::fence).
///
/// The fences decide only how long a search takes, not what it finds.
#[derive(Debug, Default)]
pub(super) struct Hint {
    /// Three bits of state, then the lines of the block in which the fences begin: six bits and seven.
    state: AtomicU16,
    /// The fences' keys, as far as their [position](Index::position) tells.
    keys: [AtomicU16; 2],
}

impl Hint {
    /// The block's keys ascend and lie between its index keys.
    const ORDERED: u16 = 1 << 15;
    /// The block is used where it lies in memory, since it is stored raw and has the form of a block.
    const IN_PLACE: u16 = 1 << 14;
    /// The same, and its checksum is right.
    const VERIFIED: u16 = 1 << 13;

    const SECOND_BITS: u32 = 6;
    const THIRD_BITS: u32 = 7;
    const LINES: u16 = (1 << (Hint::SECOND_BITS + Hint::THIRD_BITS)) - 1;

    /// Whether the block can be used where it lies in memory; if `verified` is asked for, with a right checksum.
    #[inline]
    pub(super) fn is_in_place(&self, verified: bool) -> bool {
        let wanted = if verified {
            Hint::VERIFIED
        } else {
            Hint::IN_PLACE
        };
        self.state.load(Relaxed) & wanted != 0
    }

    fn set_in_place(&self, verified: bool) {
        let verified = if verified { Hint::VERIFIED } else { 0 };
        self.state.fetch_or(Hint::IN_PLACE | verified, Relaxed);
    }

    /// Whether the block's keys were seen to ascend and to lie between its index keys.
    pub(super) fn is_ordered(&self) -> bool {
        self.state.load(Relaxed) & Hint::ORDERED != 0
    }

    pub(super) fn set_ordered(&self) {
        self.state.fetch_or(Hint::ORDERED, Relaxed);
    }

    /// Whether the block's fences are known.
    pub(super) fn has_fences(&self) -> bool {
        self.state.load(Relaxed) & Hint::LINES != 0
    }

    /// Remembers the fences of `block`, which is data block `i` of a table in bytewise order. In a block's first line, or
    /// very far into it, they are not worth knowing.
    pub(super) fn set_fences<B: AsRef<[u8]>>(&self, block: &Block<B>, i: usize, index: &Index) {
        let fence = |number| {
            let (offset, key) = block.fence(number)?;
            Some((offset / LINE, index.position(i, key)?))
        };
        let Some(second) = fence(1) else { return };
        let third = fence(2).unwrap_or((second.0, u16::MAX));
        if second.0 > 0 && second.0 >> Hint::SECOND_BITS == 0 && third.0 >> Hint::THIRD_BITS == 0 {
            for (slot, key) in self.keys.iter().zip([second.1, third.1]) {
                slot.store(key, Relaxed);
            }
            let lines = (second.0 as u16) << Hint::THIRD_BITS | third.0 as u16;
            self.state.fetch_or(lines, Relaxed);
        }
    }

    /// Which part of the block a search looks at for a key at `position`: both sides of a fence at the same position.
    #[inline]
    pub(super) fn part(&self, position: Option<u16>) -> SearchPart {
        let state = self.state.load(Relaxed);
        let lines = state & Hint::LINES;
        let (Some(position), 1..) = (position, lines) else {
            return SearchPart::WHOLE;
        };
        let [second, third] = self.keys.each_ref().map(|key| key.load(Relaxed));
        // Counted, so that there is nothing to predict.
        let first = u8::from(position > second) + u8::from(position > third);
        let last = u8::from(position >= second) + u8::from(position >= third);
        let third_line = lines & ((1 << Hint::THIRD_BITS) - 1);
        SearchPart::new(
            first,
            last,
            [(lines >> Hint::THIRD_BITS) as u8, third_line as u8],
        )
    }
}

impl Hints {
    /// For so many data blocks, none of which was seen.
    pub(super) fn new(blocks: usize) -> Hints {
        Hints {
            blocks: (0..blocks).map(|_| Hint::default()).collect(),
            any_in_place: AtomicBool::new(false),
        }
    }

    /// Notes that data block `i` is used where it lies in memory, and whether its checksum was verified.
    pub(super) fn set_in_place(&self, i: usize, verified: bool) {
        self.of(i).set_in_place(verified);
        self.any_in_place.store(true, Relaxed);
    }

    /// Whether any data block is known to be used where it lies in memory.
    #[inline]
    pub(super) fn any_in_place(&self) -> bool {
        self.any_in_place.load(Relaxed)
    }

    /// What is known of data block `i`.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "`i` comes from the index, which has as many blocks"
    )]
    pub(super) fn of(&self, i: usize) -> &Hint {
        &self.blocks[i]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::comparator::{Order, common_prefix};
    use crate::format::block::BlockBuilder;
    use crate::read::index::tests::{decode, encode};

    #[test]
    fn states_and_fences_do_not_disturb_each_other() {
        let hints = Hints::new(2);
        assert!(!hints.of(1).is_ordered() && !hints.of(1).is_in_place(false));
        hints.of(1).set_ordered();
        hints.of(1).set_in_place(false);
        assert!(hints.of(1).is_in_place(false) && !hints.of(1).is_in_place(true));
        hints.of(1).set_in_place(true);
        assert!(hints.of(1).is_in_place(true) && hints.of(1).is_ordered());
        assert_eq!(hints.of(1).part(Some(7)), SearchPart::WHOLE);
        assert!(!hints.of(0).is_ordered() && !hints.of(0).is_in_place(false));
    }

    proptest! {
        /// A block's keys are on the side of the middle that is told for them, by their bits alone.
        #[test]
        fn parts_hold_what_is_looked_for(
            keys in prop::collection::btree_set(
                prop::collection::vec(prop::sample::select(vec![0u8, b'1', b'2', 0xff]), 0..20), 20..300),
            head in prop::collection::vec(0u8..2, 0..12),
            block_len in 4usize..20,
            interval in 1usize..4,
        ) {
            let keys: Vec<Vec<u8>> = keys.iter().map(|key| [&head[..], key].concat()).collect();
            let blocks: Vec<&[Vec<u8>]> = keys.chunks(block_len).collect();
            let last_keys: Vec<Vec<u8>> = blocks.iter().map(|keys| keys[keys.len() - 1].clone()).collect();
            let index = decode(&encode(&last_keys, 1)).unwrap();
            let hints = Hints::new(index.len());
            for (i, keys) in blocks.iter().enumerate() {
                let mut builder = BlockBuilder::new(interval);
                for key in *keys {
                    builder.add(key, common_prefix(builder.last_key(), key), &[7; 50]);
                }
                let block = Block::parse(builder.finish(<[u8]>::to_vec)).unwrap();
                prop_assert_eq!(hints.of(i).part(index.position(i, &keys[0])), SearchPart::WHOLE);
                hints.of(i).set_fences(&block, i, &index);
                for key in *keys {
                    let part = hints.of(i).part(index.position(i, key));
                    let value = block.find(key, &Order::Bytewise).unwrap().unwrap();
                    let entry_start = value.start - 3;
                    prop_assert!(part.start() <= entry_start, "{part:?} {entry_start}");
                }
            }
        }
    }

    #[test]
    fn parts_are_told_for_ordinary_keys() {
        let keys: Vec<Vec<u8>> = (0..1000).map(|i| format!("{i:016}").into_bytes()).collect();
        let blocks: Vec<&[Vec<u8>]> = keys.chunks(40).collect();
        let last_keys: Vec<Vec<u8>> = blocks.iter().map(|keys| keys[39].clone()).collect();
        let index = decode(&encode(&last_keys, 1)).unwrap();
        let hints = Hints::new(index.len());
        // For the first and the last block an index key on one side is missing.
        for (i, keys) in blocks.iter().enumerate().take(24).skip(1) {
            let mut builder = BlockBuilder::new(16);
            for key in *keys {
                builder.add(key, common_prefix(builder.last_key(), key), &[7; 100]);
            }
            let block = Block::parse(builder.finish(<[u8]>::to_vec)).unwrap();
            hints.of(i).set_fences(&block, i, &index);
            let lines = [1, 2].map(|number| (block.fence(number).unwrap().0 / 64) as u8);
            for (j, key) in keys.iter().enumerate() {
                let (first, last) = (j.saturating_sub(1) / 16, j / 16);
                let expected = SearchPart::new(first as u8, last as u8, lines);
                assert_eq!(hints.of(i).part(index.position(i, key)), expected, "{j}");
            }
        }
    }
}
