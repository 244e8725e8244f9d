//! What lookups have learned about the data blocks: which were checked.
//!
//! The index stays as it was read; all that changes while a table is open is here.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// A byte for each data block.
#[derive(Debug)]
pub(super) struct Hints {
    blocks: Box<[Hint]>,
    any_in_place: AtomicBool,
}

/// What is known of a data block: how far it was checked.
#[derive(Debug, Default)]
pub(super) struct Hint(AtomicU8);

impl Hint {
    /// The block's keys ascend and lie between its index keys.
    const ORDERED: u8 = 1;
    /// The block is used where it lies in memory, since it is stored raw and has the form of a block.
    const IN_PLACE: u8 = 2;
    /// The same, and its checksum is right.
    const VERIFIED: u8 = 4;

    /// Whether the block can be used where it lies in memory; if `verified` is asked for, with a right checksum.
    #[inline]
    pub(super) fn is_in_place(&self, verified: bool) -> bool {
        let wanted = if verified {
            Hint::VERIFIED
        } else {
            Hint::IN_PLACE
        };
        self.0.load(Relaxed) & wanted != 0
    }

    fn set_in_place(&self, verified: bool) {
        let verified = if verified { Hint::VERIFIED } else { 0 };
        self.0.fetch_or(Hint::IN_PLACE | verified, Relaxed);
    }

    /// Whether the block's keys were seen to ascend and to lie between its index keys.
    pub(super) fn is_ordered(&self) -> bool {
        self.0.load(Relaxed) & Hint::ORDERED != 0
    }

    pub(super) fn set_ordered(&self) {
        self.0.fetch_or(Hint::ORDERED, Relaxed);
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
    use super::*;

    #[test]
    fn states_do_not_disturb_each_other() {
        let hints = Hints::new(2);
        assert!(!hints.of(1).is_ordered() && !hints.of(1).is_in_place(false));
        hints.of(1).set_ordered();
        hints.of(1).set_in_place(false);
        assert!(hints.of(1).is_in_place(false) && !hints.of(1).is_in_place(true));
        hints.of(1).set_in_place(true);
        assert!(hints.of(1).is_in_place(true) && hints.of(1).is_ordered());
        assert!(!hints.of(0).is_ordered() && !hints.of(0).is_in_place(false));
    }
}
