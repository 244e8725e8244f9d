//! Walking the entries of a block, forward and backward.

pub(super) mod key;
mod way_back;

use std::fmt;
use std::ops::Range;

use super::Defect;
use super::block::{Block, Entry, check_shared};
use super::block_search::Landing;
use crate::comparator::Order;
use key::{Key, Piece};
use way_back::WayBack;

/// Walks the entries of a block in both directions.
///
/// A step to an ordinary entry is inlined and makes no call. Everything else is left to functions that are slow and
/// complete: `next_slowly` and `prev_slowly`.
#[derive(Clone)]
pub(crate) struct BlockCursor<B> {
    block: Block<B>,
    at: EntrySpan,
    key: Key,
    way_back: WayBack,
}

/// Where an entry and its value lie. The next entry begins where the value ends. Blocks are smaller than 4 GiB.
///
/// A cursor that is on no entry has an empty span where the entries begin or end. (An entry's span is never empty, since
/// its value begins after its lengths.)
#[derive(Debug, Clone, Copy, Default)]
struct EntrySpan {
    /// How many bytes of its key the entry shares with the one before it, as it says.
    shared: u32,
    offset: u32,
    value_start: u32,
    value_len: u32,
}

impl EntrySpan {
    #[inline]
    fn of(offset: usize, entry: &Entry) -> EntrySpan {
        EntrySpan {
            shared: entry.shared as u32,
            offset: offset as u32,
            value_start: entry.value_start as u32,
            value_len: (entry.end - entry.value_start) as u32,
        }
    }

    #[inline]
    fn end(self) -> usize {
        self.value_start as usize + self.value_len as usize
    }
}

/// Short: the position, not the buffers.
impl<B> fmt::Debug for BlockCursor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCursor")
            .field("block", &self.block)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl<B: AsRef<[u8]>> BlockCursor<B> {
    /// A cursor before the first entry of `block`.
    pub(crate) fn new(block: Block<B>) -> BlockCursor<B> {
        BlockCursor {
            block,
            at: EntrySpan::default(),
            key: Key::default(),
            way_back: WayBack::default(),
        }
    }

    /// Moves before the first entry of another block. Keeps the buffers.
    pub(crate) fn reset(&mut self, block: Block<B>) {
        self.block = block;
        self.move_before_first();
    }

    /// Moves before the first entry.
    pub(crate) fn move_before_first(&mut self) {
        self.leave(0);
    }

    /// Moves past the last entry, so that [`prev`](Self::prev) leads to it.
    pub(crate) fn move_past_last(&mut self) {
        self.leave(self.block.entries().len());
    }

    /// Leaves the entries for `end`, the offset where they begin or end.
    fn leave(&mut self, end: usize) {
        self.way_back.clear();
        self.key.clear();
        self.at = EntrySpan {
            shared: 0,
            offset: end as u32,
            value_start: end as u32,
            value_len: 0,
        };
    }

    /// Whether the cursor is on an entry.
    #[inline]
    pub(crate) fn is_on_entry(&self) -> bool {
        self.at.value_start > self.at.offset
    }

    /// The current key; empty if the cursor is on no entry.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// After a move forward from an entry: eight bytes of the key as a number that orders as they do, those of its first `len`
    /// bytes from `start` on, with zeros past their end. `before` is the same number of the key before.
    ///
    /// Reads nothing but the entry, in which the bytes lie that are new: the key itself was stored a moment ago, and a load of
    /// eight bytes from there waits for that. `None` if the entry does not tell: it shares fewer than `start` bytes or all
    /// bytes of the number, or is near the end of the block.
    #[inline(always)]
    pub(crate) fn number_after(&self, start: usize, len: usize, before: u64) -> Option<u64> {
        let shared = self.at.shared as usize;
        let (kept, len) = (shared.checked_sub(start)?, len.checked_sub(start)?);
        let key_start = (self.at.value_start as usize).checked_sub(self.key.len() - shared)?;
        let block = self.block.data().as_ref();
        let new = u64::from_be_bytes(*block.get(key_start..)?.first_chunk()?);
        // A zero may be one past the end of what `before` was taken of, where the keys can share more: the tags of user keys.
        let is_told = kept == 0 || kept < 8 && (before >> (64 - 8 * kept)) as u8 != 0;
        if !is_told {
            return None;
        }
        let is_new = u64::MAX >> (8 * kept);
        let is_past = if len < 8 { u64::MAX >> (8 * len) } else { 0 };
        Some((before & !is_new | new >> (8 * kept)) & !is_past)
    }

    /// The current value; empty if the cursor is on no entry.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.block.bytes(self.value_range())
    }

    /// Where the current value lies in the block's bytes.
    #[inline]
    pub(crate) fn value_range(&self) -> Range<usize> {
        self.at.value_start as usize..self.at.end()
    }

    /// Where the current entry begins in the block's bytes.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.at.offset as usize
    }

    /// The block that the cursor walks.
    pub(crate) fn block(&self) -> &Block<B> {
        &self.block
    }

    /// Moves to the next entry: from before the first to the first. Returns `false` past the last.
    ///
    /// After an error of this or any other move, the cursor must be positioned anew.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool, Defect> {
        if self.step() {
            Ok(true)
        } else {
            self.next_slowly()
        }
    }

    /// Moves to the next entry if it is an ordinary one. Otherwise, or if there is none, stays and returns `false`.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> bool {
        // Need not clear the way back: it leads away from an earlier entry, and `pop_short` notices.
        let offset = self.at.end();
        let Some(entry) = self.block.short_entry(offset) else {
            return false;
        };
        let stepped = self
            .key
            .splice_short(entry.shared, Piece::unshared(&self.block, &entry));
        if stepped {
            self.at = EntrySpan::of(offset, &entry);
        }
        stepped
    }

    #[inline(never)]
    fn next_slowly(&mut self) -> Result<bool, Defect> {
        let offset = self.at.end();
        if offset >= self.block.entries().len() {
            self.move_past_last();
            return Ok(false);
        }
        let entry = self.block.entry(offset)?;
        check_shared(offset, entry.shared, self.key.len())?;
        self.enter(offset, entry);
        Ok(true)
    }

    /// Makes `entry` the current one. The bytes that it shares must be the first bytes of `self.key`.
    fn enter(&mut self, offset: usize, entry: Entry) {
        self.key
            .splice(entry.shared, Piece::unshared(&self.block, &entry));
        self.at = EntrySpan::of(offset, &entry);
    }

    /// Moves to the previous entry: from past the last to the last. Returns `false` before the first.
    ///
    /// Takes amortised constant time in a walk backward.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<bool, Defect> {
        if self.step_back() {
            Ok(true)
        } else {
            self.prev_slowly()
        }
    }

    /// Moves to the previous entry if it was decoded before. Otherwise, or if there is none, stays and returns `false`.
    #[inline]
    pub(crate) fn step_back(&mut self) -> bool {
        let before = self.way_back.pop_short(self.at, &mut self.key);
        if let Some(before) = before {
            self.at = before;
        }
        before.is_some()
    }

    #[inline(never)]
    fn prev_slowly(&mut self) -> Result<bool, Defect> {
        let end = self.at.offset as usize;
        if end == 0 {
            self.move_before_first();
            return Ok(false);
        }
        self.at = match self.way_back.pop_long(self.at, &mut self.key) {
            Some(before) => before,
            None => self.way_back.decode(&self.block, end, &mut self.key)?,
        };
        Ok(true)
    }

    /// Moves to the first entry whose key is at or after `target`, which should be in `part`. Past the last, and `false`, if there
    /// is none.
    pub(crate) fn seek(&mut self, target: &[u8], order: &Order) -> Result<bool, Defect> {
        self.way_back.clear();
        // In bytewise order, the bytes that the entry shares with the one before are also the first bytes of `target`. In
        // another order they are the first bytes of the assembled key.
        let mut assembled = Vec::new();
        let (landing, head) = match order {
            Order::Bytewise => (self.block.seek_bytewise(target)?, target),
            Order::Custom(_) => {
                let landing = self.block.seek_custom(target, order, &mut assembled)?;
                (landing, &assembled[..])
            }
        };
        let Some(Landing { offset, entry, .. }) = landing else {
            self.move_past_last();
            return Ok(false);
        };
        self.key.splice(0, Piece::of(head, 0, entry.shared));
        self.enter(offset, entry);
        Ok(true)
    }
}
