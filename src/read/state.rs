//! What is known of a data block: what was checked, and which part of it a search needs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::format::block::Block;
use crate::format::block_search::SearchPart;
use crate::format::prefetch::prefetch_atomic;

/// What is known of a data block. Nothing is known of one that was never read.
///
/// From bit 0 on: eight flags; the lines in which the block's two [fences](Block::fence) lie, a byte each; from bit 32 on, the
/// positions of their keys, two bytes each. The fences decide how long a search takes, and nothing that it finds.
#[derive(Debug, Default)]
pub(super) struct State(AtomicU64);

impl State {
    /// The block has the form of a block, and, unless the table's order is not known, its keys ascend and lie between its index
    /// keys.
    pub(super) const CHECKED: u64 = 1;
    /// In place: the block is stored raw in memory, is used there, and was checked.
    pub(super) const RAW: u64 = 2;
    /// In place, checksum verified.
    pub(super) const VERIFIED: u64 = 4;
    /// The block was put in the cache, and may still be there.
    pub(super) const CACHED: u64 = 8;

    #[inline]
    pub(super) fn has(&self, bit: u64) -> bool {
        self.0.load(Relaxed) & bit != 0
    }

    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_atomic(&self.0);
    }

    pub(super) fn set(&self, bits: u64) {
        self.0.fetch_or(bits, Relaxed);
    }

    /// Learns the fences of `block`, unless they are known; `position` tells where a key lies among those that the block can have.
    pub(super) fn learn<B: AsRef<[u8]>>(
        &self,
        block: &Block<B>,
        position: impl Fn(&[u8]) -> Option<u16>,
    ) {
        let fence = |number| {
            let (line, key) = block.fence(number)?;
            Some((u64::from(line), u64::from(position(key)?)))
        };
        // The first line of a block needs no fence.
        let is_known = self.0.load(Relaxed) >> 8 != 0;
        if !is_known && let Some((second @ 1.., key)) = fence(1) {
            let (third, last) = fence(2).unwrap_or((second, u16::MAX.into()));
            self.set(second << 8 | third << 16 | key << 32 | last << 48);
        }
    }

    /// The part of the block that has a key at `position`: both sides of a fence at the same one.
    #[inline(always)]
    pub(super) fn part(&self, position: Option<u16>) -> SearchPart {
        let [_, second, third, _, a, b, c, d] = self.0.load(Relaxed).to_le_bytes();
        let Some(position) = position.filter(|_| second > 0) else {
            return SearchPart::default();
        };
        let keys = [[a, b], [c, d]].map(u16::from_le_bytes);
        // Counted, so that there is nothing to predict.
        let count = |is: fn(&u16, &u16) -> bool| keys.map(|key| u8::from(is(&position, &key)));
        let [first, skipped] = [count(u16::gt), count(u16::lt)].map(|[a, b]| a + b);
        let line = [0, second, third][usize::from(first)];
        SearchPart {
            first,
            skipped,
            line,
        }
    }
}
