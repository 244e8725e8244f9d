//! What is known of a data block since it was read, in six bytes.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use crate::format::block_search::SearchPart;
use crate::format::touch::LINE;

/// What was seen of a data block: that it is sound, if so, and its [fences](crate::format::block::Block::fence).
///
/// Only how long a search takes depends on the fences, not what it finds.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// A bit for a sound block, seven bits each for the lines of the block that the fences begin in.
    lines: AtomicU16,
    /// The first bits of the fences' keys behind those that all keys of the block share.
    keys: [AtomicU16; 2],
}

impl Seen {
    const SOUND: u16 = 1 << 15;
    const LINE_BITS: u32 = 7;
    const LINE_MASK: u16 = (1 << Self::LINE_BITS) - 1;

    /// How many bits of a key are kept.
    pub(super) const KEY_BITS: u32 = u16::BITS;

    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.lines.load(Relaxed) & Self::SOUND != 0
    }

    pub(super) fn set_sound(&self) {
        self.lines.fetch_or(Self::SOUND, Relaxed);
    }

    /// Takes down the offsets of the fences that there are, and bits of their keys. In the first line or very far back
    /// they are not worth knowing.
    pub(super) fn set_fences(&self, second: (usize, u16), third: Option<(usize, u16)>) {
        let fences = [second, third.unwrap_or((second.0, u16::MAX))];
        let [second, third] = fences.map(|(offset, _)| offset / LINE);
        if second > 0 && third <= Self::LINE_MASK.into() {
            for (slot, (_, key)) in self.keys.iter().zip(fences) {
                slot.store(key, Relaxed);
            }
            let lines = (second as u16) << Self::LINE_BITS | third as u16;
            self.lines.fetch_or(lines, Relaxed);
        }
    }

    /// Where a search goes for a key with these bits: on both sides of a fence that has the same.
    #[inline]
    pub(super) fn part(&self, key: u16) -> SearchPart {
        let lines = self.lines.load(Relaxed);
        let fences = [lines >> Self::LINE_BITS, lines].map(|line| (line & Self::LINE_MASK) as u8);
        if fences == [0, 0] {
            return SearchPart::WHOLE;
        }
        let [second, third] = self.keys.each_ref().map(|key| key.load(Relaxed));
        // Counted, so that there is nothing to predict.
        let first = u8::from(key > second) + u8::from(key > third);
        let last = u8::from(key >= second) + u8::from(key >= third);
        SearchPart::new(first, last, fences)
    }
}
