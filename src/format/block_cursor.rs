//! Walks the entries of a block, forward and backward.

use std::ops::Range;

use super::Defect;
use super::block::{Block, Entries, Entry};
use super::block_search::{SearchPart, seek_bytewise, seek_custom};
use super::buffer::Buffer;
use crate::comparator::Order;

/// Walks the entries of a block in both directions.
#[derive(Debug, Clone)]
pub struct BlockCursor<B> {
    /// The block.
    pub block: Block<B>,
    /// The current entry; none before the first and after the last.
    at: Entry,
    /// The key of the current entry; empty if there is none.
    key: Buffer,
    /// The entries between a restart and the current entry, for steps backward.
    ///
    /// An entry does not say where the previous one begins, so the first step back decodes the entries from the restart on,
    /// and the following steps take them from here.
    way_back: Vec<Entry>,
    /// The keys of these entries, one after another. Their length is limited, as in any block that passed its check.
    keys: Buffer,
}

impl<B: AsRef<[u8]>> BlockCursor<B> {
    /// A cursor before the first entry of `block`.
    pub fn new(block: Block<B>) -> BlockCursor<B> {
        BlockCursor {
            block,
            at: Entry::default(),
            key: Buffer::default(),
            way_back: Vec::new(),
            keys: Buffer::default(),
        }
    }

    /// Moves to before the first entry.
    pub fn move_before_first(&mut self) {
        self.leave(0);
    }

    /// Moves to after the last entry, so that [`prev`](Self::prev) leads to it.
    pub fn move_past_last(&mut self) {
        self.leave(self.block.entries().len());
    }

    /// Moves to `end`, the offset at which the entries begin or end.
    fn leave(&mut self, end: usize) {
        self.way_back.clear();
        self.keys.truncate(0);
        self.key.truncate(0);
        self.at = Entry::none_at(end);
    }

    /// Whether the cursor is on an entry.
    #[inline]
    pub(crate) fn is_on_entry(&self) -> bool {
        self.at.is_entry()
    }

    /// The current key; empty if the cursor is on no entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// The current value; empty if the cursor is on no entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.block.bytes(self.at.value())
    }

    /// Where the current value lies in the block's bytes.
    #[inline]
    pub(crate) fn value_range(&self) -> Range<usize> {
        self.at.value()
    }

    /// Where the current entry begins in the block's bytes.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.at.offset()
    }

    /// Moves to the next entry: from before the first to the first. Returns `false` after the last.
    ///
    /// After an error of this or any other move, the cursor must be positioned again.
    #[inline]
    pub fn next(&mut self) -> Result<bool, Defect> {
        if self.step() { Ok(true) } else { self.stop() }
    }

    /// Moves to the next entry. Stays, and returns `false`, if there is none or if it is damaged: [`next`](Self::next) finds
    /// out which.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> bool {
        let Some(Ok(entry)) = self.following().next() else {
            return false;
        };
        self.enter(entry);
        true
    }

    /// Moves to after the last entry. Fails if a damaged entry follows instead.
    #[inline(never)]
    fn stop(&mut self) -> Result<bool, Defect> {
        self.following().next().transpose()?;
        self.move_past_last();
        Ok(false)
    }

    /// The entries after the current one.
    #[inline(always)]
    fn following(&self) -> Entries<'_> {
        self.block.entries_from(self.at.end(), self.key.len())
    }

    /// Makes `entry` the current one. The bytes that it shares must be the first bytes of `self.key`.
    #[inline(always)]
    fn enter(&mut self, entry: Entry) {
        let block = self.block.data.as_ref();
        self.key.splice(entry.shared(), block, entry.unshared());
        self.at = entry;
    }

    /// Moves to the previous entry: from after the last to the last. Returns `false` before the first.
    ///
    /// Takes amortised constant time in a walk backward.
    #[inline]
    pub fn prev(&mut self) -> Result<bool, Defect> {
        if self.step_back() {
            Ok(true)
        } else {
            self.prev_slowly()
        }
    }

    #[inline(never)]
    fn prev_slowly(&mut self) -> Result<bool, Defect> {
        let end = self.at.offset();
        if end == 0 {
            self.move_before_first();
            return Ok(false);
        }
        self.leave(end);
        let (block, mut last) = (self.block.data.as_ref(), Entry::default());
        for entry in self.block.entries_from(self.block.restart_before(end), 0) {
            last = entry?;
            self.key.splice(last.shared(), block, last.unshared());
            if last.end() >= end {
                break;
            }
            self.way_back.push(last);
            self.keys.append(self.key.memory(), 0..self.key.len());
        }
        if last.end() != end {
            let expected = format!("an entry that ends at byte {end} of the block");
            let found = format!("one from byte {} to {}", last.offset(), last.end());
            return Err(Defect::new(expected, found));
        }
        self.at = last;
        Ok(true)
    }

    /// Moves to the previous entry if it has been decoded already. Otherwise, or if there is none, stays and returns
    /// `false`.
    #[inline(always)]
    pub(crate) fn step_back(&mut self) -> bool {
        // After a step forward, the way back begins at an earlier entry.
        let begin = self.at.offset();
        let Some(entry) = self.way_back.pop_if(|entry| entry.end() == begin) else {
            return false;
        };
        let end = self.keys.len();
        let start = end - entry.key_len();
        self.key.truncate(0);
        self.key.append(self.keys.memory(), start..end);
        self.keys.truncate(start);
        self.at = entry;
        true
    }

    /// Moves to the first entry whose key is at or after `target`, which should be in `part`. Returns `false`, and stands after the last,
    /// if there is none.
    pub fn seek(&mut self, target: &[u8], order: &Order, part: SearchPart) -> Result<bool, Defect> {
        self.move_past_last();
        let found = match order {
            Order::Bytewise => seek_bytewise(&self.block, target, part)?,
            Order::Custom(_) => seek_custom(&self.block, target, order, &mut self.key)?,
        };
        let Some((entry, _)) = found else {
            self.key.truncate(0);
            return Ok(false);
        };
        if let Order::Bytewise = order {
            // The search did not assemble the key. The bytes that this key shares with the previous key are also those
            // of `target`.
            self.key.splice(0, target, 0..entry.shared());
        }
        self.enter(entry);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::{Entries, build};
    use super::super::block_search::find;
    use super::*;
    use crate::coding::put_fixed32;
    use crate::comparator::Comparator;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// A decoder written straight from the specification, as an oracle for the cursor.
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

    /// LevelDB shares as many bytes as possible. Another writer may share less, and its tables must read the same.
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
            for part in SearchPart::all() {
                let found = find(&block, &target, order, part).unwrap();
                let found = found.map(|range| block.bytes(range));
                assert_eq!(found, expected.map(|(_, value)| &value[..]), "{part:?}");
                assert_eq!(
                    cursor.seek(&target, order, part).unwrap(),
                    at < entries.len()
                );
                assert_eq!(
                    cursor.key(),
                    entries.get(at).map_or(&[][..], |(key, _)| key)
                );
            }
            // Two steps back, then forward over the same entry again. The position before the first entry is -1.
            let mut here = at as isize;
            let mut on_entry = cursor.seek(&target, order, SearchPart::default()).unwrap();
            for step in [-1, -1, 1, 1, 1, -1, 0] {
                let expected = usize::try_from(here).ok().and_then(|i| entries.get(i));
                assert_eq!(on_entry, expected.is_some(), "{target:?}, {here}");
                if let Some((key, value)) = expected {
                    assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
                }
                on_entry = match step {
                    -1 => cursor.prev().unwrap(),
                    1 => cursor.next().unwrap(),
                    _ => break,
                };
                here = (here + step).clamp(-1, entries.len() as isize);
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
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Keys up to and beyond what one copy takes, values whose length takes two bytes, intervals up to and
        /// beyond LevelDB's.
        #[test]
        fn cursors_agree_with_the_naive_decoder(
            entries in prop::collection::btree_map(
                (
                    prop::sample::select(vec![0, 0, 5, 15, 20, 31, 40]),
                    prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xfe, 0xff]), 0..9),
                ),
                prop::collection::vec(any::<u8>(), 0..200),
                0..150,
            ),
            restart_interval in prop_oneof![1usize..20, 50usize..200],
            reverse: bool,
            steps in prop::collection::vec((any::<bool>(), 1usize..40), 20),
        ) {
            let entries: std::collections::BTreeMap<Vec<u8>, Vec<u8>> = entries
                .into_iter()
                .map(|((head, key), value)| ([&vec![b'h'; head][..], &key].concat(), value))
                .collect();
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
            cursor.move_before_first();
            // 0 is before the first entry.
            let mut at = 0;
            let steps = steps.into_iter().flat_map(|(forward, times)| vec![forward; times]);
            for forward in steps {
                let moved = if forward { cursor.next() } else { cursor.prev() }.unwrap();
                at = if forward { (at + 1).min(entries.len() + 1) } else { at.saturating_sub(1) };
                let expected = at.checked_sub(1).and_then(|i| entries.get(i));
                prop_assert_eq!(moved, expected.is_some());
                prop_assert_eq!(cursor.is_on_entry(), moved);
                let (key, value) = expected.map_or((&[][..], &[][..]), |(k, v)| (k, v));
                prop_assert_eq!((cursor.key(), cursor.value()), (key, value));
            }
            check_against_model(block, &entries, &order);
        }

        /// Every operation on arbitrary bytes ends without a panic.
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
                for part in SearchPart::all() {
                    let _ = find(&block, &target, &order, part);
                }
                let mut cursor = BlockCursor::new(block);
                let mut steps = 0;
                while let Ok(true) = cursor.next() {
                    steps += 1;
                }
                prop_assert!(steps <= 80);
                cursor.move_past_last();
                while let Ok(true) = cursor.prev() {
                    steps += 1;
                }
                prop_assert!(steps <= 160);
                let _ = cursor.seek(&target, &order, SearchPart::default());
                let _ = cursor.prev();
            }
        }
    }
}
