//! The state of a data block: what was checked, and which part of it a search needs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::format::block::Block;
use crate::format::block_search::SearchPart;
use crate::format::prefetch::prefetch;

/// The state of a data block. All zeros if the block was never read.
///
/// From bit 0 on: flags, in one byte; the cache lines of the block's two [fences](Block::fence), a byte each; the epoch of the cache
/// in which the block was last missed, in one byte, 0 if never; the positions of the fences' keys, two bytes each. The fences only
/// affect how long a search takes, not its result.
#[derive(Debug, Default)]
pub(crate) struct BlockState(AtomicU64);

impl BlockState {
    /// The block has a correct structure, and, unless the table's order is not known, its keys ascend and lie between its index
    /// keys.
    pub(crate) const CHECKED: u64 = 1;
    /// The block is stored uncompressed in memory, is used there, and was checked.
    pub(crate) const IN_PLACE: u64 = 2;
    /// The block was put into the cache, and may still be there.
    pub(crate) const CACHED: u64 = 4;

    #[inline]
    pub(crate) fn has(&self, bit: u64) -> bool {
        self.0.load(Relaxed) & bit != 0
    }

    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(std::iter::once(&self.0));
    }

    pub(crate) fn set(&self, bits: u64) {
        self.0.fetch_or(bits, Relaxed);
    }

    pub(crate) fn clear(&self, bits: u64) {
        self.0.fetch_and(!bits, Relaxed);
    }

    /// Notes a miss in an epoch of the cache. Returns whether a miss was noted in this epoch or the one before.
    pub(crate) fn missed_lately(&self, epoch: u64) -> bool {
        let [now, before] = [epoch, epoch + 254].map(|epoch| 1 + epoch % 255);
        let last = self.0.load(Relaxed) >> 24 & 0xff;
        if last != now {
            // Two threads that note a miss at once may set a wrong epoch.
            self.0.fetch_xor((last ^ now) << 24, Relaxed);
        }
        last == now || last == before
    }

    /// Learns the fences of `block`, unless they are known; `position` says where a key lies between the keys that the block can
    /// have.
    pub(crate) fn learn<B: AsRef<[u8]>>(
        &self,
        block: &Block<B>,
        position: impl Fn(&[u8]) -> Option<u16>,
    ) {
        let fence = |number| {
            let (line, key) = block.fence(number)?;
            Some((u64::from(line), u64::from(position(key)?)))
        };
        // A fence never lies in a block's first line.
        let is_known = self.0.load(Relaxed) >> 8 & 0xff != 0;
        if !is_known && let Some((second @ 1.., key)) = fence(1) {
            let (third, last) = fence(2).unwrap_or((second, u16::MAX.into()));
            self.set(second << 8 | third << 16 | key << 32 | last << 48);
        }
    }

    /// The part of the block for a key at `position`; if a fence has the same position, the parts on both sides of it.
    #[inline(always)]
    pub(crate) fn part(&self, position: Option<u16>) -> SearchPart {
        let [_, second, third, _, a, b, c, d] = self.0.load(Relaxed).to_le_bytes();
        let Some(position) = position.filter(|_| second > 0) else {
            return SearchPart::default();
        };
        let keys = [[a, b], [c, d]].map(u16::from_le_bytes);
        // Counted, to avoid unpredictable branches.
        let count = |is: fn(&u16, &u16) -> bool| keys.map(|key| u8::from(is(&position, &key)));
        let [first, skipped] = [count(u16::gt), count(u16::lt)].map(|[a, b]| a + b);
        let line = match first {
            0 => 0,
            1 => second,
            _ => third,
        };
        SearchPart {
            first,
            skipped,
            line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::BlockBuilder;

    /// Keys of the block, and keys between them, whether or not their positions differ.
    #[test]
    fn the_part_of_a_key_is_where_the_block_has_it() {
        for (entries, step) in [(1, 1), (5, 1), (34, 7), (34, 1), (300, 1)] {
            let mut builder = BlockBuilder::new(4);
            for i in 0..entries {
                let value = [b'v'; 40];
                builder.add(format!("{:05}", 2 * i).as_bytes(), 0, &value);
            }
            let block = builder.finish(|bytes| Block::parse(bytes.to_vec()).unwrap());
            let number = |key: &[u8]| std::str::from_utf8(key).unwrap().parse::<u16>().unwrap();
            let position = |key: &[u8]| Some(number(key) / step);
            let state = BlockState::default();
            assert_eq!(state.part(Some(0)), SearchPart::default());
            state.learn(&block, position);
            state.learn(&block, |_| Some(u16::MAX));
            let third = block.restart_count.div_ceil(3);
            for key in 0..2 * entries + 2 {
                let part = state.part(Some(key / step));
                // The last restart at or before the key.
                let restart = (usize::from(key) / 2 / 4).min(block.restart_count - 1);
                let (first, skipped) = (usize::from(part.first), usize::from(part.skipped));
                let restarts = first * third..(3 - skipped) * third;
                assert!(restarts.contains(&restart), "{key} of {entries}: {part:?}");
                if part != SearchPart::default() {
                    let start = [0, 1, 2].map(|i| block.restarts().nth(i * third));
                    assert_eq!(Some(usize::from(part.line)), start[first].map(|at| at / 64));
                }
            }
        }
    }

    #[test]
    fn a_miss_is_remembered_in_its_epoch_and_the_next() {
        let state = BlockState::default();
        state.set(BlockState::CHECKED);
        let missed = [
            (0, false), // never before
            (0, true),
            (1, true),
            (3, false),
            (4, true),
            (254, false),
            (255, true),
            (256, true),
            (258, false),
            (1000, false),
        ];
        for (epoch, is_late) in missed {
            assert_eq!(state.missed_lately(epoch), is_late, "epoch {epoch}");
        }
        assert!(state.has(BlockState::CHECKED) && !state.has(BlockState::CACHED));
    }
}
