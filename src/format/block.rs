//! A block of sorted entries: its builder and its reader.
//!
//! ```text
//! entry*  fixed32 offset of each restart*  fixed32 number of restarts
//! entry = varint32 shared, varint32 unshared, varint32 value length, unshared key bytes, value
//! ```
//!
//! A key is stored without the prefix that it shares with the key before it. After `apple`, `apricot` is stored as a
//! `shared` of 2 and the bytes `ricot`. Every `restart_interval` entries a key is stored whole (`shared` is 0). The block
//! ends with the offsets of these *restarts*, for a binary search: only their keys can be read without the keys before
//! them.

use std::ops::Range;

use super::prefetch::LINE;
use super::{Defect, require};
use crate::coding::{get_varint32, put_fixed32, put_varint, varint_len};

/// Length of the number of restarts, at the end of a block.
const COUNT_LEN: usize = 4;

/// Builds one block after another, entry by entry.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    buffer: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: usize,
    /// Number of entries before the next restart.
    until_restart: usize,
    /// The last key added, to this block or the previous one.
    pub(crate) last_key: Vec<u8>,
}

impl BlockBuilder {
    /// An empty block with a restart every `restart_interval` entries (at least 1).
    pub(crate) fn new(restart_interval: usize) -> BlockBuilder {
        BlockBuilder {
            buffer: Vec::new(),
            restarts: vec![0],
            restart_interval: restart_interval.max(1),
            until_restart: 0,
            last_key: Vec::new(),
        }
    }

    /// Whether an entry of these lengths still fits: the format's offsets have 32 bits.
    ///
    /// Assumes the worst: three varints of five bytes, and a new restart.
    #[inline]
    pub(crate) fn has_room(&self, key_len: usize, value_len: usize) -> bool {
        let more = key_len as u64 + value_len as u64 + 15 + 4;
        self.len() as u64 + more <= u64::from(u32::MAX)
    }

    /// Appends an entry.
    ///
    /// The caller ensures that the keys ascend, that [there is room](Self::has_room), and that `shared` is the length of
    /// the common prefix of `key` and the last key.
    #[inline(always)]
    pub(crate) fn add(&mut self, key: &[u8], shared: usize, value: &[u8]) {
        let shared = match self.until_restart {
            0 => self.start_interval(),
            _ => shared,
        };
        self.until_restart -= 1;
        let (_, unshared) = key.split_at(shared);
        for len in [shared, unshared.len(), value.len()] {
            put_varint(&mut self.buffer, len as u64);
        }
        self.buffer.extend_from_slice(unshared);
        self.buffer.extend_from_slice(value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// Makes the next entry a restart. Returns the number of bytes that its key shares: 0.
    #[inline(never)]
    fn start_interval(&mut self) -> usize {
        if !self.buffer.is_empty() {
            self.restarts.push(self.buffer.len() as u32);
        }
        self.until_restart = self.restart_interval;
        0
    }

    /// Whether the block has no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Length of the block in bytes if it were finished now.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() + 4 * self.restarts.len() + COUNT_LEN
    }

    /// Length of the block in bytes if an entry of these lengths were added, and the block then finished.
    pub(crate) fn len_with(&self, key_len: usize, shared: usize, value_len: usize) -> usize {
        let (shared, restart) = match self.until_restart {
            0 if self.is_empty() => (0, 0),
            0 => (0, 4),
            _ => (shared, 0),
        };
        let unshared = key_len - shared;
        let lens = [shared, unshared, value_len].map(|len| varint_len(len as u64));
        self.len() + restart + lens.iter().sum::<usize>() + unshared + value_len
    }

    /// Appends the restarts and passes the whole block to `take`, then starts the next block.
    pub(crate) fn finish<R>(&mut self, take: impl FnOnce(&[u8]) -> R) -> R {
        for &restart in &self.restarts {
            put_fixed32(&mut self.buffer, restart);
        }
        put_fixed32(&mut self.buffer, self.restarts.len() as u32);
        let taken = take(&self.buffer);
        self.buffer.clear();
        self.restarts.truncate(1);
        self.until_restart = 0;
        taken
    }
}

/// A block as read, over bytes that it borrows or owns.
///
/// [`parse`](Block::parse) checks that entries and restarts lie inside the bytes. Everything else is untrusted, and
/// checked where it is decoded. `block_check.rs` checks a block as a whole, when it is first read.
/// The default is a block without entries.
#[derive(Debug, Clone, Default)]
pub struct Block<B> {
    /// The bytes of the block.
    pub data: B,
    /// Length of the entries, and so the offset of the restarts.
    entries_len: usize,
    pub(crate) restart_count: usize,
}

impl<B: AsRef<[u8]>> Block<B> {
    /// Finds the entries and the restarts. Takes constant time: it reads the last four bytes only.
    #[inline(always)] // on the path of every lookup
    pub fn parse(data: B) -> Result<Block<B>, Defect> {
        let bytes = data.as_ref();
        let parse = || {
            let (before, count) = bytes.split_last_chunk::<COUNT_LEN>()?;
            let restart_count = u32::from_le_bytes(*count);
            let before_len = u32::try_from(before.len()).ok()?;
            let entries_len = before_len.checked_sub(restart_count.checked_mul(4)?)?;
            // LevelDB treats a block without restarts as empty, which hides its entries.
            let is_shown = restart_count > 0 || entries_len == 0;
            is_shown.then_some((entries_len as usize, restart_count as usize))
        };
        let Some((entries_len, restart_count)) = parse() else {
            let expected = "a block of less than 4 GiB, a restart for the first entry, and no more restarts in it than fit";
            let (_, count) = bytes.split_at(bytes.len().saturating_sub(COUNT_LEN));
            let found = format!(
                "{} bytes, with a number of restarts of {count:02x?}",
                bytes.len()
            );
            return Err(Defect::new(expected, found));
        };
        Ok(Block {
            data,
            entries_len,
            restart_count,
        })
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`parse` checked the length")]
    pub(crate) fn entries(&self) -> &[u8] {
        &self.data.as_ref()[..self.entries_len]
    }

    /// The restarts as they are stored.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`parse` checked both lengths")]
    fn stored_restarts(&self) -> &[[u8; 4]] {
        let (restarts, _) = self.data.as_ref()[self.entries_len..].as_chunks();
        &restarts[..self.restart_count]
    }

    /// The offsets of all restarts.
    pub(crate) fn restarts(&self) -> impl Iterator<Item = usize> {
        self.stored_restarts().iter().map(restart_offset)
    }

    /// Offset of restart `i`, one of `0..restart_count`.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`i` is below `restart_count`")]
    pub(crate) fn restart(&self, i: usize) -> usize {
        restart_offset(&self.stored_restarts()[i])
    }

    /// The entry at restart `i`, one of `0..restart_count`. Its key must be stored whole.
    #[inline]
    pub(crate) fn entry_at_restart(&self, i: usize) -> Result<Entry, Defect> {
        let offset = self.restart(i);
        let none = || Defect::new("an entry at each restart", format!("none at byte {offset}"));
        self.entries_from(offset, 0).next().ok_or_else(none)?
    }

    /// Checks that the restarts ascend from 0 and lie inside the entries.
    pub fn check_restarts(&self) -> Result<(), Defect> {
        let (end, count) = (self.entries().len(), self.restart_count);
        let mut allowed = 0..1;
        for (i, restart) in self.restarts().enumerate() {
            let expected =
                || format!("restart {i} of {count} after the one before, in {allowed:?}");
            require(allowed.contains(&restart), expected, || {
                format!("{restart}")
            })?;
            allowed = restart + 1..end;
        }
        Ok(())
    }

    /// Number of restarts in a third of the block, rounded up.
    #[inline]
    pub(super) fn third(&self) -> usize {
        self.restart_count.div_ceil(3)
    }

    /// Cache line and key of a fence, 1 or 2: the first restart of the second or the last third. `None` if the block has none, or it is too far from the block's beginning.
    pub(crate) fn fence(&self, number: usize) -> Option<(u8, &[u8])> {
        let restart = number * self.third();
        let entry = (restart < self.restart_count).then(|| self.entry_at_restart(restart));
        let entry = entry?.ok()?;
        let line = u8::try_from(entry.offset() / LINE).ok()?;
        Some((line, self.unshared(&entry)))
    }

    /// Offset of the last restart before offset `end`.
    pub(super) fn restart_before(&self, end: usize) -> usize {
        let restarts = self.stored_restarts();
        let before = restarts.partition_point(|restart| restart_offset(restart) < end);
        // The entries begin at 0, whatever unchecked restarts say.
        before.checked_sub(1).map_or(0, |i| self.restart(i))
    }

    /// Decodes the entries from the first on.
    #[inline]
    pub(crate) fn iter(&self) -> Entries<'_> {
        self.entries_from(0, 0)
    }

    /// Decodes the entries from offset `offset` on, after a key of `key_len` bytes.
    #[inline]
    pub(super) fn entries_from(&self, offset: usize, key_len: usize) -> Entries<'_> {
        entries_of(self.entries(), offset, key_len)
    }

    /// The bytes at `range`, which comes from an [`Entry`] of this block.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "entries lie inside their block")]
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.data.as_ref()[range]
    }

    /// The bytes of the key of `entry` that it does not share with the previous key.
    #[inline]
    pub(crate) fn unshared(&self, entry: &Entry) -> &[u8] {
        self.bytes(entry.unshared())
    }
}

#[inline]
fn restart_offset(stored: &[u8; 4]) -> usize {
    u32::from_le_bytes(*stored) as usize
}

/// Where the parts of an entry lie in its block, within the part of the entries. Blocks are smaller than 4 GiB.
///
/// An entry is never empty, since its key begins after its lengths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Entry {
    offset: u32,
    shared: u32,
    key_start: u32,
    value_start: u32,
    end: u32,
}

impl Entry {
    /// Not an entry: the offset at which a block's entries begin or end.
    pub(super) fn none_at(offset: usize) -> Entry {
        let offset = offset as u32;
        Entry {
            offset,
            shared: 0,
            key_start: offset,
            value_start: offset,
            end: offset,
        }
    }

    /// Whether this is an entry: [`none_at`](Entry::none_at) returns one that is not.
    #[inline]
    pub(super) fn is_entry(&self) -> bool {
        self.key_start > self.offset
    }

    /// Where the entry begins in the block.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Where the entry ends, and the next one begins.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.end as usize
    }

    /// Number of bytes that its key shares with the previous key.
    #[inline]
    pub(crate) fn shared(&self) -> usize {
        self.shared as usize
    }

    /// Length of its key.
    #[inline]
    pub(super) fn key_len(&self) -> usize {
        self.shared() + (self.value_start - self.key_start) as usize
    }

    /// Where the unshared bytes of its key lie.
    #[inline]
    pub(crate) fn unshared(&self) -> Range<usize> {
        self.key_start as usize..self.value_start as usize
    }

    /// Where its value lies.
    #[inline]
    pub(crate) fn value(&self) -> Range<usize> {
        self.value_start as usize..self.end as usize
    }
}

/// Decodes the entries of a block one after another; used by search, check and cursor alike.
///
/// Every entry that it returns lies inside the block's entries, and shares no more bytes than the previous key has. After
/// an error it does not advance.
#[derive(Debug)]
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    /// Where the next entry begins.
    offset: usize,
    /// Length of the previous key.
    key_len: usize,
}

/// Decodes the entries in `bytes`, from offset `offset` on, after a key of `key_len` bytes.
#[inline]
pub(super) fn entries_of(bytes: &[u8], offset: usize, key_len: usize) -> Entries<'_> {
    Entries {
        bytes,
        offset,
        key_len,
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Defect>;

    #[inline(always)] // on the path of every lookup and of every step
    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.decode_short() {
            Some(entry) if entry.shared() <= self.key_len => entry,
            _ if self.offset == self.bytes.len() => return None,
            // A copy, so that the iterator stays in registers.
            _ => match (Entries { ..*self }).decode_any() {
                Ok(entry) => entry,
                Err(defect) => return Some(Err(defect)),
            },
        };
        self.offset = entry.end();
        self.key_len = entry.key_len();
        Some(Ok(entry))
    }
}

impl Entries<'_> {
    /// Decodes an entry with the usual lengths: one byte for `shared`, one for `unshared`, one or two for the value. `None`
    /// for other entries, for damaged ones, and for a last one of three bytes.
    #[inline(always)]
    fn decode_short(&self) -> Option<Entry> {
        let header = self.bytes.get(self.offset..self.offset + 4)?;
        let &[shared, unshared, low, high] = header.first_chunk()?;
        let (value_len, taken) = match (low, high) {
            (..0x80, _) => (low.into(), 3),
            (_, ..0x80) => (u32::from(low & 0x7f) | u32::from(high) << 7, 4),
            _ => return None,
        };
        if (shared | unshared) >= 0x80 {
            return None;
        }
        self.entry(taken, shared.into(), unshared.into(), value_len)
    }

    /// Decodes an entry with any lengths.
    #[inline(never)]
    fn decode_any(self) -> Result<Entry, Defect> {
        let decode = || {
            let header = self.bytes.get(self.offset..)?;
            let (shared, a) = get_varint32(header)?;
            let (unshared, b) = get_varint32(header.get(a..)?)?;
            let (value_len, c) = get_varint32(header.get(a + b..)?)?;
            self.entry(a + b + c, shared, unshared, value_len)
        };
        let entry = decode().ok_or_else(|| {
            let header: Vec<&u8> = self.bytes.iter().skip(self.offset).take(15).collect();
            let (offset, len) = (self.offset, self.bytes.len());
            Defect::new(
                format!("an entry at byte {offset} of the block's {len} of entries"),
                format!("lengths that do not fit: {header:02x?}"),
            )
        })?;
        check_shared(&entry, self.key_len)?;
        Ok(entry)
    }

    /// The entry at this offset, given its lengths and the number of bytes that these take. `None` if it does not end
    /// inside the entries.
    #[inline(always)]
    fn entry(&self, taken: usize, shared: u32, unshared: u32, value_len: u32) -> Option<Entry> {
        let key_start = self.offset + taken;
        let value_start = key_start as u64 + u64::from(unshared);
        let end = value_start + u64::from(value_len);
        (end <= self.bytes.len() as u64).then_some(Entry {
            offset: self.offset as u32,
            shared,
            key_start: key_start as u32,
            value_start: value_start as u32,
            end: end as u32,
        })
    }
}

/// Checks that `entry` shares at most `key_len` bytes, the length of the previous key.
#[inline]
pub(super) fn check_shared(entry: &Entry, key_len: usize) -> Result<(), Defect> {
    let &Entry { offset, shared, .. } = entry;
    let expected =
        || format!("an entry at byte {offset} of the block that shares at most {key_len} bytes");
    require(entry.shared() <= key_len, expected, || format!("{shared}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::comparator::common_prefix;

    pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    pub(crate) fn build(entries: &Entries, restart_interval: usize) -> Vec<u8> {
        let mut builder = BlockBuilder::new(restart_interval);
        for (key, value) in entries {
            builder.add(key, common_prefix(&builder.last_key, key), value);
        }
        let expected_len = builder.len();
        let block = builder.finish(<[u8]>::to_vec);
        assert_eq!(block.len(), expected_len);
        block
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
}
