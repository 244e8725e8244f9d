//! What is known of a data block since it was read, in 32 bits.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::format::block_search::LINE;

/// What was seen of a data block: that it is sound, if so, and its middle restart: the cache line of the block that
/// it begins in, and the first bits of its key behind those that all keys of the block share.
///
/// Only where memory is touched early depends on the middle: were it wrong, lookups would be slower.
#[derive(Debug, Default)]
pub(super) struct Seen(AtomicU32);

/// Which part of a block a search will look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All before the middle restart, and the line that it begins in.
    Lower {
        end: usize,
    },
    /// All from the middle restart on.
    Upper {
        start: usize,
    },
    Whole,
}

impl Seen {
    const SOUND: u32 = 1 << 31;
    const LINE_SHIFT: u32 = 16;
    const MAX_LINE: usize = 0x7fff;

    /// How many bits of a key are kept.
    pub(super) const KEY_BITS: u32 = u16::BITS;

    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.0.load(Relaxed) & Self::SOUND != 0
    }

    pub(super) fn set_sound(&self) {
        self.0.fetch_or(Self::SOUND, Relaxed);
    }

    /// Takes down that the middle restart begins at byte `start` of the block. In the first line or very far
    /// back it is not worth knowing.
    pub(super) fn set_middle(&self, start: usize, key: u16) {
        let line = start / LINE;
        if (1..=Self::MAX_LINE).contains(&line) {
            let middle = (line as u32) << Self::LINE_SHIFT | u32::from(key);
            self.0.fetch_or(middle, Relaxed);
        }
    }

    /// Where a search goes for a key with these bits: told where they differ from the middle's.
    #[inline]
    pub(super) fn part(&self, key: u16) -> Part {
        let seen = self.0.load(Relaxed);
        let start = LINE * ((seen & !Self::SOUND) >> Self::LINE_SHIFT) as usize;
        match key.cmp(&(seen as u16)) {
            _ if start == 0 => Part::Whole,
            Ordering::Less => Part::Lower { end: start + LINE },
            Ordering::Equal => Part::Whole,
            Ordering::Greater => Part::Upper { start },
        }
    }
}
