//! Walking the entries of a block, forward and backward.

use std::ops::Range;

use super::Defect;
use super::block::{Block, Entry, check_shared};
use super::block_search::Landing;
use crate::comparator::Order;

/// Walks the entries of a block in both directions.
///
/// An entry knows what it shares with the one before, so backward steps need the keys before it. The
/// first step back decodes the restart interval once and keeps, for each entry, the bytes that it cut
/// off the key before: an undo log, no longer than the interval itself.
#[derive(Debug)]
pub(crate) struct BlockCursor<B> {
    block: Block<B>,
    /// Whether there is a current entry. Where not, its key and value are empty, and `next` is 0 before the
    /// first entry, the entries' length behind the last.
    on_entry: bool,
    key: Buffer,
    offset: usize,
    value_start: usize,
    /// Where the value ends, and the next entry begins.
    next: usize,
    undo: Vec<Undo>,
    /// The cut-off key bytes of all of `undo`, end to end.
    tails: Buffer,
}

/// What takes the cursor from an entry back to the one before it. Blocks are smaller than 4 GiB.
#[derive(Debug, Clone, Copy)]
struct Undo {
    offset: u32,
    value_start: u32,
    value_end: u32,
    shared: u32,
    tail_start: u32,
}

impl<B: AsRef<[u8]>> BlockCursor<B> {
    /// A cursor before the first entry of `block`.
    pub(crate) fn new(block: Block<B>) -> BlockCursor<B> {
        BlockCursor {
            block,
            on_entry: false,
            key: Buffer::default(),
            offset: 0,
            value_start: 0,
            next: 0,
            undo: Vec::new(),
            tails: Buffer::default(),
        }
    }

    /// Turns to another block, before its first entry, keeping the buffers.
    pub(crate) fn reset(&mut self, block: Block<B>) {
        self.block = block;
        self.move_before_first();
    }

    /// Moves before the first entry.
    pub(crate) fn move_before_first(&mut self) {
        self.leave(0);
    }

    /// Moves behind the last entry, so that [`prev`](Self::prev) leads to it.
    pub(crate) fn move_behind_last(&mut self) {
        self.leave(self.block.entries().len());
    }

    /// Leaves the entries for the end that begins or ends at `next`.
    fn leave(&mut self, next: usize) {
        self.on_entry = false;
        self.key.len = 0;
        self.value_start = next;
        self.next = next;
    }

    /// Whether the cursor stands on an entry.
    #[inline]
    pub(crate) fn is_on_entry(&self) -> bool {
        self.on_entry
    }

    /// The current key; empty off the entries.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// The current value; empty off the entries.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.block.bytes(self.value_range())
    }

    /// Where the current value lies in the block's bytes.
    #[inline]
    pub(crate) fn value_range(&self) -> Range<usize> {
        self.value_start..self.next
    }

    /// The block that the cursor walks.
    pub(crate) fn block(&self) -> &Block<B> {
        &self.block
    }

    /// Steps to the next entry, from before the first to the first. `false` behind the last.
    ///
    /// After an error of this or any other move, the cursor must be positioned anew.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool, Defect> {
        if self.next >= self.block.entries().len() {
            self.move_behind_last();
            return Ok(false);
        }
        let offset = self.next;
        let entry = self.block.entry(offset)?;
        check_shared(offset, entry.shared, self.key.len)?;
        self.undo.clear();
        self.take(offset, entry);
        Ok(true)
    }

    /// Makes `entry` the current one; its shared bytes are the first of `self.key`.
    #[inline]
    fn take(&mut self, offset: usize, entry: Entry) {
        self.key.len = entry.shared;
        let unshared = entry.value_start - entry.key_start;
        self.key
            .append(self.block.data().as_ref(), entry.key_start, unshared);
        self.offset = offset;
        self.value_start = entry.value_start;
        self.next = entry.end;
        self.on_entry = true;
    }

    /// Steps to the previous entry, from behind the last to the last. `false` before the first.
    ///
    /// Amortised constant time in a walk backward.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<bool, Defect> {
        if self.on_entry
            && let Some(undo) = self.undo.pop()
        {
            self.step_back(undo);
            return Ok(true);
        }
        let here = if self.on_entry {
            self.offset
        } else {
            self.next
        };
        if here == 0 {
            self.move_before_first();
            return Ok(false);
        }
        self.walk_up_to(here)?;
        Ok(true)
    }

    #[inline]
    fn step_back(&mut self, undo: Undo) {
        let tail_start = undo.tail_start as usize;
        let tail_len = self.tails.len - tail_start;
        self.key.len = undo.shared as usize;
        self.key.append(&self.tails.bytes, tail_start, tail_len);
        self.tails.len = tail_start;
        self.offset = undo.offset as usize;
        self.value_start = undo.value_start as usize;
        self.next = undo.value_end as usize;
    }

    /// Makes the entry that ends at `end` current, and logs the way back to its restart.
    fn walk_up_to(&mut self, end: usize) -> Result<(), Defect> {
        self.undo.clear();
        self.tails.len = 0;
        self.key.len = 0;
        let mut offset = self.block.restart_before(end);
        let first = self.block.entry(offset)?;
        check_shared(offset, first.shared, 0)?;
        self.take(offset, first);
        while self.next < end {
            offset = self.next;
            let entry = self.block.entry(offset)?;
            check_shared(offset, entry.shared, self.key.len)?;
            self.undo.push(Undo {
                offset: self.offset as u32,
                value_start: self.value_start as u32,
                value_end: self.next as u32,
                shared: entry.shared as u32,
                tail_start: self.tails.len as u32,
            });
            self.tails
                .append(&self.key.bytes, entry.shared, self.key.len - entry.shared);
            self.take(offset, entry);
        }
        if self.next > end {
            return Err(Defect::new(
                format!("an entry that ends at byte {end} of the block"),
                format!("one from {} to {}", self.offset, self.next),
            ));
        }
        Ok(())
    }

    /// Moves to the first entry whose key is at or after `target`; `false`, behind the last, if none.
    pub(crate) fn seek(&mut self, target: &[u8], order: &Order) -> Result<bool, Defect> {
        self.undo.clear();
        let mut whole_key = None;
        let landing = match order {
            Order::Bytewise => self.block.seek_bytewise(target)?,
            Order::Custom(_) => {
                let key = whole_key.insert(Vec::new());
                self.block.seek_custom(target, order, key)?
            }
        };
        let Some(Landing { offset, entry, .. }) = landing else {
            self.move_behind_last();
            return Ok(false);
        };
        // In bytewise order the entry shares with the target what it shares with the one before.
        let head = whole_key.as_deref().unwrap_or(target);
        self.key.len = 0;
        self.key.append(head, 0, entry.shared);
        self.take(offset, entry);
        Ok(true)
    }
}

/// A byte string that short pieces are appended to by copies of a fixed size: a few instructions, where a
/// copy of any length is a call.
#[derive(Debug, Default)]
struct Buffer {
    /// The string and, behind it, room that holds anything.
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// What one copy takes.
    const CHUNK: usize = 16;

    #[inline]
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Appends the `len` bytes at `start` of `from`, which lie inside it. What follows there is copied along,
    /// into the room behind.
    #[inline]
    fn append(&mut self, from: &[u8], start: usize, len: usize) {
        if len <= Self::CHUNK
            && let Some(piece) = from.get(start..start + Self::CHUNK)
            && let Some(room) = self.bytes.get_mut(self.len..self.len + Self::CHUNK)
        {
            room.copy_from_slice(piece);
            self.len += len;
        } else {
            self.append_slowly(from.get(start..start + len).unwrap_or_default());
        }
    }

    #[cold]
    #[inline(never)]
    fn append_slowly(&mut self, piece: &[u8]) {
        self.bytes.truncate(self.len);
        self.bytes.extend_from_slice(piece);
        self.len = self.bytes.len();
        self.bytes.resize(self.len + 4 * Self::CHUNK, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::{Entries, build};
    use super::*;
    use crate::coding::put_fixed32;
    use crate::comparator::Comparator;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// The decoder that the specification describes, with none of the cursor's care: the oracle.
    fn decode_naively(block: &[u8]) -> Entries {
        let count = u32::from_le_bytes(block[block.len() - 4..].try_into().unwrap());
        let mut rest = &block[..block.len() - 4 - 4 * count as usize];
        let mut key = Vec::new();
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let mut varint = || {
                let (mut value, mut shift) = (0, 0);
                loop {
                    let byte = rest[0];
                    rest = &rest[1..];
                    value |= usize::from(byte & 0x7f) << shift;
                    shift += 7;
                    if byte < 0x80 {
                        return value;
                    }
                }
            };
            let (shared, unshared, value_len) = (varint(), varint(), varint());
            key.truncate(shared);
            key.extend_from_slice(&rest[..unshared]);
            entries.push((key.clone(), rest[unshared..unshared + value_len].to_vec()));
            rest = &rest[unshared + value_len..];
        }
        entries
    }

    /// LevelDB writers share all they can; another may share less, and must be read alike.
    #[test]
    fn keys_that_share_less_than_they_could_are_found() {
        // a, ab (shared 0), abc (shared 1), abd (shared 2), b
        let block = b"\x00\x01\x01a1\x00\x02\x01ab2\x01\x02\x01bc3\x02\x01\x01d4\x00\x01\x01b5\0\0\0\0\x01\0\0\0";
        let entries = decode_naively(block);
        check_against_model(block.to_vec(), &entries, &Order::Bytewise);
    }

    #[derive(Debug)]
    struct Reverse;

    impl Comparator for Reverse {
        fn name(&self) -> &str {
            "test.Reverse"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            b.cmp(a)
        }
    }

    /// Every lookup, every seek, and steps from there in both directions, against the entry list.
    fn check_against_model(block: Vec<u8>, entries: &Entries, order: &Order) {
        let block = Block::parse(block).unwrap();
        block.check_restarts().unwrap();
        let mut cursor = BlockCursor::new(block.clone());
        let mut targets: Vec<Vec<u8>> = vec![vec![], vec![0xff; 9]];
        for (key, _) in entries {
            targets.push(key.clone());
            targets.push([&key[..], &[0]].concat());
            targets.push(key[..key.len().saturating_sub(1)].to_vec());
            if let Some((last, head)) = key.split_last() {
                targets.push([head, &[last.wrapping_sub(1), 0xff]].concat());
            }
        }
        for target in targets {
            let at = entries.partition_point(|(k, _)| order.compare(k, &target).is_lt());
            let expected = entries.get(at).filter(|(k, _)| *k == target);
            let found = block.find(&target, order).unwrap();
            assert_eq!(found.map(|r| block.bytes(r)), expected.map(|(_, v)| &v[..]));
            // Two steps back, then forward over the landing again.
            assert_eq!(cursor.seek(&target, order).unwrap(), at < entries.len());
            for step in [0isize, -1, -1, 1, 1, 1, -1] {
                let moved = match step {
                    -1 => cursor.prev().unwrap(),
                    1 => cursor.next().unwrap(),
                    _ => at < entries.len(),
                };
                let Some((key, value)) = moved.then(|| (cursor.key(), cursor.value())) else {
                    break;
                };
                let here = entries.iter().position(|(k, _)| k == key).unwrap();
                assert_eq!(value, entries[here].1);
                if step == 0 {
                    assert_eq!(here, at);
                }
            }
        }
    }

    fn walk(cursor: &mut BlockCursor<Vec<u8>>, forward: bool) -> Entries {
        let mut seen = Entries::new();
        while if forward {
            cursor.next()
        } else {
            cursor.prev()
        }
        .unwrap()
        {
            seen.push((cursor.key().to_vec(), cursor.value().to_vec()));
        }
        seen
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn cursors_agree_with_the_naive_decoder(
            entries in prop::collection::btree_map(
                prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xfe, 0xff]), 0..9),
                prop::collection::vec(any::<u8>(), 0..200),
                0..60,
            ),
            restart_interval in 1usize..20,
            reverse: bool,
        ) {
            let mut entries: Entries = entries.into_iter().collect();
            let order = if reverse { Order::of(Reverse) } else { Order::Bytewise };
            if reverse {
                entries.reverse();
            }
            let block = build(&entries, restart_interval);
            prop_assert_eq!(&decode_naively(&block), &entries);
            let mut cursor = BlockCursor::new(Block::parse(block.clone()).unwrap());
            prop_assert_eq!(&walk(&mut cursor, true), &entries);
            let mut backward = walk(&mut cursor, false);
            backward.reverse();
            prop_assert_eq!(&backward, &entries);
            prop_assert_eq!(&walk(&mut cursor, true), &entries);
            check_against_model(block, &entries, &order);
        }

        /// Any bytes at all: every operation ends, without a panic.
        #[test]
        fn arbitrary_bytes_do_not_panic(
            mut data in prop::collection::vec(prop_oneof![3 => 0u8..6, 1 => any::<u8>()], 0..80),
            restarts in prop::collection::vec(0u32..80, 0..4),
            target in prop::collection::vec(0u8..6, 0..4),
            reverse: bool,
        ) {
            for &restart in &restarts {
                put_fixed32(&mut data, restart);
            }
            put_fixed32(&mut data, restarts.len() as u32);
            let order = if reverse { Order::of(Reverse) } else { Order::Bytewise };
            if let Ok(block) = Block::parse(data) {
                let _ = block.check_restarts();
                let _ = block.find(&target, &order);
                let mut cursor = BlockCursor::new(block);
                let mut steps = 0;
                while let Ok(true) = cursor.next() {
                    steps += 1;
                }
                prop_assert!(steps <= 80);
                cursor.move_behind_last();
                while let Ok(true) = cursor.prev() {
                    steps += 1;
                }
                prop_assert!(steps <= 160);
                let _ = cursor.seek(&target, &order);
                let _ = cursor.prev();
            }
        }
    }
}
