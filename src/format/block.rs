//! A block of sorted entries: its builder and its cursor.
//!
//! ```text
//! entry*  fixed32 offset of each restart*  fixed32 number of restarts
//! entry = varint32 shared, varint32 unshared, varint32 value length, unshared key bytes, value
//! ```
//!
//! A key is stored without the bytes that it shares with the key before. Every so many entries one is
//! stored whole (`shared` is 0); such a *restart* is where a binary search can land.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use super::Defect;
use crate::coding::{fixed32_at, get_varint32, put_fixed32, put_varint};
use crate::comparator::{Order, common_prefix};

/// Bytes of a block's tail that do not grow with it: the number of restarts.
const COUNT_LEN: usize = 4;

/// Builds one block after another, entry by entry.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    buffer: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: usize,
    entries_since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// Starts an empty block that stores every `restart_interval`th key whole (at least 1).
    pub(crate) fn new(restart_interval: usize) -> BlockBuilder {
        BlockBuilder {
            buffer: Vec::new(),
            restarts: vec![0],
            restart_interval: restart_interval.max(1),
            entries_since_restart: 0,
            last_key: Vec::new(),
        }
    }

    /// Whether an entry of these lengths still fits the format, whose offsets have 32 bits.
    ///
    /// Counts generously: three varints of five bytes, and a restart for the entry.
    pub(crate) fn has_room(&self, key_len: usize, value_len: usize) -> bool {
        let more = key_len as u64 + value_len as u64 + 15 + 4;
        self.len() as u64 + more <= u64::from(u32::MAX)
    }

    /// Appends an entry. The caller vouches for the order, and that there [is room](Self::has_room).
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        let shared = if self.buffer.is_empty() {
            0
        } else if self.entries_since_restart < self.restart_interval {
            common_prefix(&self.last_key, key)
        } else {
            self.restarts.push(self.buffer.len() as u32);
            self.entries_since_restart = 0;
            0
        };
        let unshared = key.get(shared..).unwrap_or_default();
        put_varint(&mut self.buffer, shared as u64);
        put_varint(&mut self.buffer, unshared.len() as u64);
        put_varint(&mut self.buffer, value.len() as u64);
        self.buffer.extend_from_slice(unshared);
        self.buffer.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(unshared);
        self.entries_since_restart += 1;
    }

    /// The key added last, be it to this block or the one before.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Whether the block has no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Length of the block in bytes if it were finished now.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() + 4 * self.restarts.len() + COUNT_LEN
    }

    /// Appends the restarts and gives the whole block to `take`, then starts the next one.
    pub(crate) fn finish<R>(&mut self, take: impl FnOnce(&[u8]) -> R) -> R {
        for &restart in &self.restarts {
            put_fixed32(&mut self.buffer, restart);
        }
        put_fixed32(&mut self.buffer, self.restarts.len() as u32);
        let taken = take(&self.buffer);
        self.buffer.clear();
        self.restarts.truncate(1);
        self.entries_since_restart = 0;
        taken
    }
}

/// A block as read, over bytes that it borrows or owns.
///
/// Nothing in it is trusted: what [`parse`](Block::parse) has not checked is checked on the way.
#[derive(Debug, Clone)]
pub(crate) struct Block<B> {
    data: B,
    /// Length of the entries: where the restart offsets begin.
    entries_len: usize,
    restart_count: usize,
}

/// Where the parts of an entry lie in its block.
#[derive(Debug, Clone, Copy)]
struct Entry {
    shared: usize,
    key_start: usize,
    value_start: usize,
    end: usize,
}

/// The first entry at or after a target, and whether its key equals the target.
struct Landing {
    offset: usize,
    entry: Entry,
    exact: bool,
}

impl Block<Bytes> {
    /// A block without entries.
    pub(crate) fn empty() -> Block<Bytes> {
        Block {
            data: Bytes::new(),
            entries_len: 0,
            restart_count: 0,
        }
    }
}

impl<B: AsRef<[u8]>> Block<B> {
    /// Finds the entries and the restarts. Constant time; looks at the last four bytes only.
    #[inline]
    pub(crate) fn parse(data: B) -> Result<Block<B>, Defect> {
        let bytes = data.as_ref();
        let Some(count_at) = bytes.len().checked_sub(COUNT_LEN) else {
            return Err(Defect::new(
                "a block of at least 4 bytes",
                format!("{}", bytes.len()),
            ));
        };
        let restart_count = fixed32_at(bytes, count_at).unwrap_or_default() as usize;
        if restart_count > count_at / 4 {
            return Err(Defect::new(
                format!("at most {} restarts in {} bytes", count_at / 4, bytes.len()),
                format!("{restart_count}"),
            ));
        }
        let entries_len = count_at - 4 * restart_count;
        if restart_count == 0 && entries_len > 0 {
            // LevelDB takes such a block for empty, which hides its entries.
            return Err(Defect::new(
                "a restart for the first entry",
                format!("none, before {entries_len} bytes of entries"),
            ));
        }
        Ok(Block {
            data,
            entries_len,
            restart_count,
        })
    }

    /// Checks that restarts ascend from 0 and stay inside the entries: for when a block is first seen.
    pub(crate) fn check_restarts(&self) -> Result<(), Defect> {
        let mut before = None;
        for i in 0..self.restart_count {
            let restart = self.restart(i);
            let in_order = match before {
                None => restart == 0,
                Some(before) => restart > before && restart < self.entries_len,
            };
            if !in_order {
                return Err(Defect::new(
                    format!(
                        "restart {i} of {} after {before:?}, the first at 0, all below {}",
                        self.restart_count, self.entries_len
                    ),
                    format!("{restart}"),
                ));
            }
            before = Some(restart);
        }
        Ok(())
    }

    pub(crate) fn restart_count(&self) -> usize {
        self.restart_count
    }

    /// The bytes of the block.
    pub(crate) fn data(&self) -> &B {
        &self.data
    }

    fn entries(&self) -> &[u8] {
        self.data
            .as_ref()
            .get(..self.entries_len)
            .unwrap_or_default()
    }

    #[inline]
    fn restart(&self, i: usize) -> usize {
        fixed32_at(self.data.as_ref(), self.entries_len + 4 * i).unwrap_or_default() as usize
    }

    /// Decodes the entry at `offset`. It lies inside the entries, whatever it claims.
    #[inline]
    fn entry(&self, offset: usize) -> Result<Entry, Defect> {
        let entries = self.entries();
        let decode = || {
            let header = entries.get(offset..)?;
            // Nearly always the three lengths take a byte each.
            let (shared, unshared, value_len, header_len) = match *header {
                [a, b, c, ..] if (a | b | c) < 0x80 => (a.into(), b.into(), c.into(), 3),
                _ => {
                    let (shared, a) = get_varint32(header)?;
                    let (unshared, b) = get_varint32(header.get(a..)?)?;
                    let (value_len, c) = get_varint32(header.get(a + b..)?)?;
                    (shared, unshared, value_len, a + b + c)
                }
            };
            let key_start = offset + header_len;
            let value_start = key_start.checked_add(unshared as usize)?;
            let end = value_start.checked_add(value_len as usize)?;
            (end <= entries.len()).then_some(Entry {
                shared: shared as usize,
                key_start,
                value_start,
                end,
            })
        };
        decode().ok_or_else(|| {
            let header = entries.get(offset..).unwrap_or_default();
            let header = header.get(..header.len().min(15)).unwrap_or_default();
            Defect::new(
                format!(
                    "an entry at byte {offset} of the block's {} of entries",
                    entries.len()
                ),
                format!("lengths that do not fit: {header:02x?}"),
            )
        })
    }

    #[inline]
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.data.as_ref().get(range).unwrap_or_default()
    }

    #[inline]
    fn unshared(&self, entry: &Entry) -> &[u8] {
        self.bytes(entry.key_start..entry.value_start)
    }

    /// Offset of restart `i`'s entry, and its key, which must be stored whole.
    #[inline]
    fn restart_key(&self, i: usize) -> Result<(usize, &[u8]), Defect> {
        let offset = self.restart(i);
        let entry = self.entry(offset)?;
        check_shared(offset, entry.shared, 0)?;
        Ok((offset, self.unshared(&entry)))
    }

    /// Offset of the last restart before byte `end` of the entries.
    fn restart_before(&self, end: usize) -> usize {
        let (mut low, mut high) = (0, self.restart_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.restart(middle) < end {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).map_or(0, |i| self.restart(i))
    }

    /// Offset of the last restart whose key is below `target`, or 0: where a search begins to walk.
    #[inline]
    fn walk_from(&self, target: &[u8], order: &Order) -> Result<usize, Defect> {
        // Restart 0 is where the walk begins if no other is below the target: never looked at.
        let (mut low, mut high) = (1, self.restart_count);
        let mut from = 0;
        while low < high {
            let middle = low + (high - low) / 2;
            let (offset, key) = self.restart_key(middle)?;
            if order.compare(key, target) == Ordering::Less {
                from = offset;
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(from)
    }

    /// Walks from the restart at `from` to the first entry at or after `target` in bytewise order,
    /// without putting keys together.
    ///
    /// Between entries only the length `matched` of the prefix that the entry before shares with the
    /// target is kept. That entry was below the target, so one that shares more than `matched` bytes
    /// with it is below too, for the same byte; any other begins with `shared` bytes of the target
    /// and is compared from there on. Nothing is assumed of how much a writer chose to share.
    #[inline]
    fn walk_bytewise(&self, from: usize, target: &[u8]) -> Result<Option<Landing>, Defect> {
        let (mut offset, mut matched, mut key_len) = (from, 0, 0);
        while offset < self.entries_len {
            let entry = self.entry(offset)?;
            check_shared(offset, entry.shared, key_len)?;
            if entry.shared <= matched {
                let unshared = self.unshared(&entry);
                let rest = target.get(entry.shared..).unwrap_or_default();
                let common = common_prefix(unshared, rest);
                matched = entry.shared + common;
                let at_or_after = match (unshared.get(common), rest.get(common)) {
                    (_, None) => true,
                    (None, Some(_)) => false,
                    (Some(a), Some(b)) => a > b,
                };
                if at_or_after {
                    let exact = common == unshared.len() && common == rest.len();
                    return Ok(Some(Landing {
                        offset,
                        entry,
                        exact,
                    }));
                }
            }
            key_len = entry.shared + (entry.value_start - entry.key_start);
            offset = entry.end;
        }
        Ok(None)
    }

    /// The same in any order, which takes whole keys: `key` ends as that of the entry landed on.
    fn walk_custom(
        &self,
        from: usize,
        target: &[u8],
        order: &Order,
        key: &mut Vec<u8>,
    ) -> Result<Option<Landing>, Defect> {
        let mut offset = from;
        key.clear();
        while offset < self.entries_len {
            let entry = self.entry(offset)?;
            check_shared(offset, entry.shared, key.len())?;
            key.truncate(entry.shared);
            key.extend_from_slice(self.unshared(&entry));
            match order.compare(key, target) {
                Ordering::Less => offset = entry.end,
                ordering => {
                    let exact = ordering == Ordering::Equal;
                    return Ok(Some(Landing {
                        offset,
                        entry,
                        exact,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Where the value of `key` lies in the block; `None` if the block does not hold the key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], order: &Order) -> Result<Option<Range<usize>>, Defect> {
        let from = self.walk_from(key, order)?;
        let landing = match order {
            Order::Bytewise => self.walk_bytewise(from, key)?,
            Order::Custom(_) => self.walk_custom(from, key, order, &mut Vec::new())?,
        };
        Ok(landing
            .filter(|landing| landing.exact)
            .map(|Landing { entry, .. }| entry.value_start..entry.end))
    }
}

#[inline]
fn check_shared(offset: usize, shared: usize, key_len: usize) -> Result<(), Defect> {
    if shared <= key_len {
        return Ok(());
    }
    Err(Defect::new(
        format!("an entry at byte {offset} of the block that shares at most {key_len} bytes"),
        format!("{shared}"),
    ))
}

/// Walks the entries of a block in both directions.
///
/// An entry knows what it shares with the one before, so backward steps need the keys before it. The
/// first step back decodes the restart interval once and keeps, for each entry, the bytes that it cut
/// off the key before: an undo log, no longer than the interval itself.
#[derive(Debug)]
pub(crate) struct BlockCursor<B> {
    block: Block<B>,
    position: Position,
    key: Vec<u8>,
    /// Offset of the current entry; its value; where the next entry begins.
    offset: usize,
    value: Range<usize>,
    undo: Vec<Undo>,
    /// The cut-off key bytes of all of `undo`, end to end.
    tails: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    BeforeFirst,
    OnEntry,
    AfterLast,
}

/// What takes the cursor from an entry back to the one before it.
#[derive(Debug, Clone)]
struct Undo {
    offset: usize,
    value: Range<usize>,
    shared: usize,
    tail_start: usize,
}

impl<B: AsRef<[u8]>> BlockCursor<B> {
    /// A cursor before the first entry of `block`.
    pub(crate) fn new(block: Block<B>) -> BlockCursor<B> {
        BlockCursor {
            block,
            position: Position::BeforeFirst,
            key: Vec::new(),
            offset: 0,
            value: 0..0,
            undo: Vec::new(),
            tails: Vec::new(),
        }
    }

    /// Turns to another block, before its first entry, keeping the buffers.
    pub(crate) fn reset(&mut self, block: Block<B>) {
        self.block = block;
        self.position = Position::BeforeFirst;
    }

    /// The current key; meaningless where the last move answered `false`.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current value.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.block.bytes(self.value.clone())
    }

    /// Where the current value lies in the block's bytes.
    pub(crate) fn value_range(&self) -> Range<usize> {
        self.value.clone()
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
        let (offset, key_len) = match self.position {
            Position::OnEntry => (self.value.end, self.key.len()),
            Position::BeforeFirst => (0, 0),
            Position::AfterLast => return Ok(false),
        };
        if offset >= self.block.entries_len {
            self.position = Position::AfterLast;
            return Ok(false);
        }
        let entry = self.block.entry(offset)?;
        check_shared(offset, entry.shared, key_len)?;
        self.undo.clear();
        self.take(offset, entry);
        Ok(true)
    }

    /// Makes `entry` the current one; its shared bytes are the first of `self.key`.
    #[inline]
    fn take(&mut self, offset: usize, entry: Entry) {
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(self.block.unshared(&entry));
        self.land(offset, entry);
    }

    /// Makes `entry`, whose key `self.key` holds already, the current one.
    #[inline]
    fn land(&mut self, offset: usize, entry: Entry) {
        self.offset = offset;
        self.value = entry.value_start..entry.end;
        self.position = Position::OnEntry;
    }

    /// Steps to the previous entry, from behind the last to the last. `false` before the first.
    ///
    /// Amortised constant time in a walk backward.
    pub(crate) fn prev(&mut self) -> Result<bool, Defect> {
        let here = match self.position {
            Position::OnEntry => self.offset,
            Position::AfterLast => self.block.entries_len,
            Position::BeforeFirst => return Ok(false),
        };
        if here == 0 {
            self.position = Position::BeforeFirst;
            return Ok(false);
        }
        match self.undo.pop() {
            Some(undo) if self.position == Position::OnEntry => self.step_back(undo),
            _ => self.walk_up_to(here)?,
        }
        Ok(true)
    }

    fn step_back(&mut self, undo: Undo) {
        self.key.truncate(undo.shared);
        let tail = self.tails.get(undo.tail_start..).unwrap_or_default();
        self.key.extend_from_slice(tail);
        self.tails.truncate(undo.tail_start);
        self.offset = undo.offset;
        self.value = undo.value;
    }

    /// Makes the entry that ends at `end` current, and logs the way back to its restart.
    fn walk_up_to(&mut self, end: usize) -> Result<(), Defect> {
        self.undo.clear();
        self.tails.clear();
        self.key.clear();
        let mut offset = self.block.restart_before(end);
        let first = self.block.entry(offset)?;
        check_shared(offset, first.shared, 0)?;
        self.take(offset, first);
        while self.value.end < end {
            offset = self.value.end;
            let entry = self.block.entry(offset)?;
            check_shared(offset, entry.shared, self.key.len())?;
            self.undo.push(Undo {
                offset: self.offset,
                value: self.value.clone(),
                shared: entry.shared,
                tail_start: self.tails.len(),
            });
            let tail = self.key.get(entry.shared..).unwrap_or_default();
            self.tails.extend_from_slice(tail);
            self.take(offset, entry);
        }
        if self.value.end > end {
            return Err(Defect::new(
                format!("an entry that ends at byte {end} of the block"),
                format!("one from {} to {}", self.offset, self.value.end),
            ));
        }
        Ok(())
    }

    /// Moves behind the last entry, so that [`prev`](Self::prev) leads to it.
    pub(crate) fn move_behind_last(&mut self) {
        self.position = Position::AfterLast;
    }

    /// Moves to the first entry whose key is at or after `target`; `false`, behind the last, if none.
    pub(crate) fn seek(&mut self, target: &[u8], order: &Order) -> Result<bool, Defect> {
        self.undo.clear();
        let from = self.block.walk_from(target, order)?;
        let landing = match order {
            Order::Bytewise => self.block.walk_bytewise(from, target)?,
            Order::Custom(_) => self.block.walk_custom(from, target, order, &mut self.key)?,
        };
        let Some(Landing { offset, entry, .. }) = landing else {
            self.position = Position::AfterLast;
            return Ok(false);
        };
        if let Order::Bytewise = order {
            // What the entry shares with the one before, it shares with the target (see the walk).
            self.key.clear();
            self.key
                .extend_from_slice(target.get(..entry.shared).unwrap_or_default());
            self.key.extend_from_slice(self.block.unshared(&entry));
        }
        self.land(offset, entry);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparator::Comparator;
    use proptest::prelude::*;

    type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    fn build(entries: &Entries, restart_interval: usize) -> Vec<u8> {
        let mut builder = BlockBuilder::new(restart_interval);
        for (key, value) in entries {
            builder.add(key, value);
        }
        let expected_len = builder.len();
        let block = builder.finish(<[u8]>::to_vec);
        assert_eq!(block.len(), expected_len);
        block
    }

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

    fn strings(entries: &[(&str, &str)]) -> Entries {
        let owned = |s: &str| s.as_bytes().to_vec();
        entries.iter().map(|(k, v)| (owned(k), owned(v))).collect()
    }

    #[test]
    fn bytes_are_leveldbs() {
        assert_eq!(build(&Entries::new(), 16), [0, 0, 0, 0, 1, 0, 0, 0]);
        let entries = strings(&[("apple", "red"), ("apricot", "orange")]);
        let expected = b"\x00\x05\x03applered\x02\x05\x06ricotorange\0\0\0\0\x01\0\0\0";
        assert_eq!(build(&entries, 16), expected);
        let every = b"\x00\x05\x03applered\x00\x07\x06apricotorange\0\0\0\0\x0b\0\0\0\x02\0\0\0";
        assert_eq!(build(&entries, 1), every);
    }

    #[test]
    fn hidden_entries_and_lying_counts_are_corruption() {
        let parse = |bytes: &'static [u8]| Block::parse(bytes);
        assert!(parse(b"\0\0\0").is_err(), "no room for the count");
        assert_eq!(parse(b"\0\0\0\0").unwrap().entries_len, 0);
        assert!(
            parse(b"\x00\x01\x00a\0\0\0\0").is_err(),
            "entries before no restart"
        );
        assert!(parse(b"\x02\0\0\0").is_err(), "more restarts than bytes");
        assert!(parse(b"\xff\xff\xff\xff").is_err());
        for restarts in [[1, 2], [0, 0], [0, 9], [5, 0]] {
            let mut block = b"\x00\x01\x01ab\x00\x01\x00c".to_vec();
            restarts.iter().for_each(|&r| put_fixed32(&mut block, r));
            put_fixed32(&mut block, 2);
            let block = Block::parse(block).unwrap();
            assert!(block.check_restarts().is_err(), "{restarts:?}");
        }
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
