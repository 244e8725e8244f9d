//! What is known of each data block: a byte. The index stays as it was decoded; this changes while a table is open.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A byte for each data block.
#[derive(Debug)]
pub(super) struct States(Box<[State]>);

/// What is known of a data block. Nothing is known of one that was never read.
#[derive(Debug, Default)]
pub(super) struct State(AtomicU8);

impl State {
    /// The block has the form of a block, and, unless the table's order is not known, its keys ascend and lie between its index
    /// keys.
    const CHECKED: u8 = 1;
    /// The block is used where it lies in memory: it is stored raw, and was checked.
    const IN_PLACE: u8 = 2;
    /// In place, with a right checksum.
    const VERIFIED: u8 = 4;
    /// The block was put in the cache, and may still be there.
    const CACHED: u8 = 8;

    /// Whether the block was checked when it was read before.
    pub(super) fn is_checked(&self) -> bool {
        self.has(State::CHECKED)
    }

    pub(super) fn set_checked(&self) {
        self.set(State::CHECKED);
    }

    /// Whether the block can be used where it lies in memory; if `verified` is asked for, with a right checksum.
    #[inline]
    pub(super) fn is_in_place(&self, verified: bool) -> bool {
        self.has(if verified {
            State::VERIFIED
        } else {
            State::IN_PLACE
        })
    }

    pub(super) fn set_in_place(&self, verified: bool) {
        let verified = if verified { State::VERIFIED } else { 0 };
        self.set(State::IN_PLACE | verified);
    }

    /// Whether it is worth searching the cache for the block.
    #[inline]
    pub(super) fn may_be_cached(&self) -> bool {
        self.has(State::CACHED)
    }

    pub(super) fn set_cached(&self) {
        self.set(State::CACHED);
    }

    #[inline]
    fn has(&self, bit: u8) -> bool {
        self.0.load(Relaxed) & bit != 0
    }

    fn set(&self, bits: u8) {
        self.0.fetch_or(bits, Relaxed);
    }
}

impl States {
    /// For so many data blocks, of which nothing is known.
    pub(super) fn new(blocks: usize) -> States {
        States((0..blocks).map(|_| State::default()).collect())
    }

    /// The data blocks that were put in the cache.
    pub(super) fn cached(&self) -> impl Iterator<Item = usize> {
        let blocks = self.0.iter().enumerate();
        blocks.filter_map(|(i, state)| state.may_be_cached().then_some(i))
    }

    /// What is known of data block `i`.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "`i` comes from the index, which has as many blocks"
    )]
    pub(super) fn of(&self, i: usize) -> &State {
        &self.0[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_do_not_disturb_each_other() {
        let states = States::new(2);
        let state = states.of(1);
        assert!(!state.is_checked() && !state.is_in_place(false) && !state.may_be_cached());
        state.set_checked();
        state.set_in_place(false);
        assert!(state.is_in_place(false) && !state.is_in_place(true) && !state.may_be_cached());
        state.set_in_place(true);
        state.set_cached();
        assert!(state.is_in_place(true) && state.is_checked() && state.may_be_cached());
        let other = states.of(0);
        assert!(!other.is_checked() && !other.is_in_place(false) && !other.may_be_cached());
    }
}
