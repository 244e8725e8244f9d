//! A block of sorted entries: its builder and its cursor.
//!
//! ```text
//! entry*  fixed32 offset of each restart*  fixed32 number of restarts
//! entry = varint32 shared, varint32 unshared, varint32 value length, unshared key bytes, value
//! ```
//!
//! A key is stored without the bytes that it shares with the key before. Every so many entries one is
//! stored whole (`shared` is 0); such a *restart* is where a binary search can land.

use std::ops::Range;

use bytes::Bytes;

use super::Defect;
use crate::coding::{fixed32_at, get_varint32, put_fixed32, put_fixed64, put_varint};

/// Bytes of a block's tail that do not grow with it: the number of restarts.
const COUNT_LEN: usize = 4;

/// Builds one block after another, entry by entry.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    buffer: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: usize,
    /// Number of entries before the next one that is stored whole.
    until_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// Starts an empty block that stores every `restart_interval`th key whole (at least 1).
    pub(crate) fn new(restart_interval: usize) -> BlockBuilder {
        BlockBuilder {
            buffer: Vec::new(),
            restarts: vec![0],
            restart_interval: restart_interval.max(1),
            until_restart: 0,
            last_key: Vec::new(),
        }
    }

    /// Whether an entry of these lengths still fits the format, whose offsets have 32 bits.
    ///
    /// Counts generously: three varints of five bytes, and a restart for the entry.
    #[inline]
    pub(crate) fn has_room(&self, key_len: usize, value_len: usize) -> bool {
        let more = key_len as u64 + value_len as u64 + 15 + 4;
        self.len() as u64 + more <= u64::from(u32::MAX)
    }

    /// Appends an entry. The caller vouches for the order, that there [is room](Self::has_room), and that
    /// `key` shares its first `shared` bytes, and no more, with [the one before](Self::last_key).
    #[inline(always)]
    pub(crate) fn add(&mut self, key: &[u8], shared: usize, value: &[u8]) {
        let shared = match self.until_restart {
            0 => self.start_interval(),
            _ => shared,
        };
        self.until_restart -= 1;
        self.append(key, shared, value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// The next key is stored whole: it shares this many bytes.
    #[inline(never)]
    fn start_interval(&mut self) -> usize {
        if !self.buffer.is_empty() {
            self.restarts.push(self.buffer.len() as u32);
        }
        self.until_restart = self.restart_interval;
        0
    }

    #[inline(always)]
    fn append(&mut self, key: &[u8], shared: usize, value: &[u8]) {
        let unshared = key.len().saturating_sub(shared);
        match (unshared, key.last_chunk()) {
            // Three lengths of a byte each and a few bytes of the key, as ascending keys have it, make a word; what else
            // is in it is cut off.
            (1..=5, Some(last)) if shared < 0x80 && value.len() < 0x80 => {
                let lengths = shared | unshared << 8 | value.len() << 16;
                let tail = u64::from_le_bytes(*last) >> (64 - 8 * unshared);
                let end = self.buffer.len() + 3 + unshared;
                put_fixed64(&mut self.buffer, lengths as u64 | tail << 24);
                self.buffer.truncate(end);
            }
            _ => self.append_key(key, shared, value.len()),
        }
        self.buffer.extend_from_slice(value);
    }

    #[inline(never)]
    fn append_key(&mut self, key: &[u8], shared: usize, value_len: usize) {
        let unshared = key.get(shared..).unwrap_or_default();
        let lengths = [shared, unshared.len(), value_len];
        if lengths.iter().all(|&len| len < 0x80) {
            self.buffer.extend_from_slice(&lengths.map(|len| len as u8));
        } else {
            lengths
                .iter()
                .for_each(|&len| put_varint(&mut self.buffer, len as u64));
        }
        self.buffer.extend_from_slice(unshared);
    }

    /// The key added last, be it to this block or the one before.
    #[inline]
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
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

    /// Appends the restarts and gives the whole block to `take`, then starts the next one.
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
pub(crate) struct Entry {
    pub(super) shared: usize,
    pub(super) key_start: usize,
    pub(super) value_start: usize,
    pub(super) end: usize,
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
    #[inline(always)] // on the path of every lookup
    pub(crate) fn parse(data: B) -> Result<Block<B>, Defect> {
        let bytes = data.as_ref();
        let count_at = bytes.len().checked_sub(COUNT_LEN);
        let Some(count_at) = count_at.filter(|&at| u32::try_from(at).is_ok()) else {
            return Err(Defect::new(
                "a block of 4 bytes to 4 GiB",
                format!("{} bytes", bytes.len()),
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

    /// Checks that entries fill their part of the block to its end, and that each restart is the beginning of
    /// one whose key is stored whole: what [`check_restarts`](Block::check_restarts) leaves open.
    pub(crate) fn check_entries(&self) -> Result<(), Defect> {
        let (mut offset, mut key_len, mut restarts) = (0, 0, 0);
        while offset < self.entries_len {
            let entry = self.entry(offset)?;
            let is_restart = restarts < self.restart_count && self.restart(restarts) == offset;
            check_shared(offset, entry.shared, if is_restart { 0 } else { key_len })?;
            restarts += usize::from(is_restart);
            key_len = entry.shared + (entry.value_start - entry.key_start);
            offset = entry.end;
        }
        if restarts == self.restart_count || self.entries_len == 0 {
            return Ok(());
        }
        Err(Defect::new(
            format!("restart {restarts} at the beginning of an entry"),
            format!("at byte {} of the block", self.restart(restarts)),
        ))
    }

    /// The bytes of all keys together, as far as entries can be walked: what it takes to look at each whole.
    fn key_bytes(&self) -> u64 {
        let (mut offset, mut key_len, mut key_bytes) = (0, 0, 0u64);
        while offset < self.entries_len
            && let Ok(entry) = self.entry(offset)
            && entry.shared <= key_len
        {
            key_len = entry.shared + (entry.value_start - entry.key_start);
            key_bytes = key_bytes.saturating_add(key_len as u64);
            offset = entry.end;
        }
        key_bytes
    }

    #[inline]
    pub(crate) fn restart_count(&self) -> usize {
        self.restart_count
    }

    /// The bytes of the block.
    pub(crate) fn data(&self) -> &B {
        &self.data
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[u8] {
        self.data
            .as_ref()
            .get(..self.entries_len)
            .unwrap_or_default()
    }

    #[inline]
    pub(crate) fn restart(&self, i: usize) -> usize {
        fixed32_at(self.data.as_ref(), self.entries_len + 4 * i).unwrap_or_default() as usize
    }

    /// Decodes the entry at `offset`. It lies inside the entries, whatever it claims.
    #[inline]
    pub(super) fn entry(&self, offset: usize) -> Result<Entry, Defect> {
        match self.short_entry(offset) {
            Some(entry) => Ok(entry),
            None => entry_of_any_length(self.entries(), offset),
        }
    }

    /// The same if its lengths are [short](short_lengths); `None` for others and damaged ones.
    #[inline]
    pub(super) fn short_entry(&self, offset: usize) -> Option<Entry> {
        short_entry_at(self.data.as_ref(), self.entries_len, offset)
    }

    #[inline]
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.data.as_ref().get(range).unwrap_or_default()
    }

    #[inline]
    pub(super) fn unshared(&self, entry: &Entry) -> &[u8] {
        self.bytes(entry.key_start..entry.value_start)
    }

    /// The offsets of all restarts.
    pub(crate) fn restarts(&self) -> impl Iterator<Item = usize> {
        let behind = self.data.as_ref().get(self.entries_len..);
        let (restarts, _) = behind.unwrap_or_default().as_chunks();
        let restarts = restarts.get(..self.restart_count).unwrap_or_default();
        restarts
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes) as usize)
    }

    /// Key and value of restart `i`'s entry; `None` if it is damaged.
    #[inline]
    pub(crate) fn restart_entry(&self, i: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entry(self.restart(i)).ok()?;
        Some((
            self.unshared(&entry),
            self.bytes(entry.value_start..entry.end),
        ))
    }

    /// Offset of the last restart before byte `end` of the entries.
    pub(super) fn restart_before(&self, end: usize) -> usize {
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
}

/// Decodes the entry at `offset` of a block's `entries`. It lies inside them, whatever it claims.
#[inline]
pub(super) fn entry_at(entries: &[u8], offset: usize) -> Result<Entry, Defect> {
    match short_entry_at(entries, entries.len(), offset) {
        Some(entry) => Ok(entry),
        None => entry_of_any_length(entries, offset),
    }
}

/// The same of a block, `data`, whose entries are its first `entries_len` bytes, if its lengths are
/// [short](short_lengths).
#[inline]
fn short_entry_at(data: &[u8], entries_len: usize, offset: usize) -> Option<Entry> {
    let lengths = short_lengths(data.get(offset..)?)?;
    let key_start = offset + lengths.taken;
    let value_start = key_start + lengths.unshared;
    let end = value_start + lengths.value;
    (end <= entries_len).then_some(Entry {
        shared: lengths.shared,
        key_start,
        value_start,
        end,
    })
}

/// The lengths that an entry begins with, and how many bytes they take.
struct Lengths {
    shared: usize,
    unshared: usize,
    value: usize,
    taken: usize,
}

/// Decodes lengths as nearly all are: a byte for each of the key's parts, two at most for the value, and a byte behind.
#[inline]
fn short_lengths(header: &[u8]) -> Option<Lengths> {
    let &[shared, unshared, low, high, ..] = header else {
        return None;
    };
    let (value, taken) = match (low, high) {
        (..0x80, _) => (usize::from(low), 3),
        (_, ..0x80) => (usize::from(low & 0x7f) | usize::from(high) << 7, 4),
        _ => return None,
    };
    ((shared | unshared) < 0x80).then_some(Lengths {
        shared: shared.into(),
        unshared: unshared.into(),
        value,
        taken,
    })
}

/// The number of bytes that an entry shares, the rest of its key, its value, and what is behind it.
pub(crate) type Parts<'a> = (usize, &'a [u8], &'a [u8], &'a [u8]);

/// Splits off the first entry of `rest`, if its lengths are [short](short_lengths).
///
/// Splitting takes one check for each part, where slicing takes two.
#[inline]
pub(super) fn split_short_entry(rest: &[u8]) -> Option<Parts<'_>> {
    let lengths = short_lengths(rest)?;
    let (_, behind) = rest.split_at_checked(lengths.taken)?;
    let (key, behind) = behind.split_at_checked(lengths.unshared)?;
    let (value, behind) = behind.split_at_checked(lengths.value)?;
    Some((lengths.shared, key, value, behind))
}

/// Splits off the first entry of `rest`, the last of a block's `entries`.
#[inline]
pub(crate) fn split_entry<'a>(entries: &'a [u8], rest: &'a [u8]) -> Result<Parts<'a>, Defect> {
    split_short_entry(rest).map_or_else(|| split_entry_of_any_length(entries, rest), Ok)
}

#[inline(never)]
fn split_entry_of_any_length<'a>(entries: &'a [u8], rest: &'a [u8]) -> Result<Parts<'a>, Defect> {
    let entry = entry_of_any_length(entries, entries.len() - rest.len())?;
    let part = |range| entries.get(range).unwrap_or_default();
    let key = part(entry.key_start..entry.value_start);
    let value = part(entry.value_start..entry.end);
    Ok((entry.shared, key, value, part(entry.end..entries.len())))
}

#[inline(never)]
fn entry_of_any_length(entries: &[u8], offset: usize) -> Result<Entry, Defect> {
    let header = entries.get(offset..).unwrap_or_default();
    let decode = || {
        let (shared, a) = get_varint32(header)?;
        let (unshared, b) = get_varint32(header.get(a..)?)?;
        let (value_len, c) = get_varint32(header.get(a + b..)?)?;
        let key_start = offset + a + b + c;
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
        let (len, header) = (entries.len(), header.get(..15).unwrap_or(header));
        Defect::new(
            format!("an entry at byte {offset} of the block's {len} of entries"),
            format!("lengths that do not fit: {header:02x?}"),
        )
    })
}

/// How many bytes of keys may still be looked at whole.
///
/// Keys that share long prefixes are the square of their block at worst. No ordinary table comes near what is granted: it
/// would take more than 4 GiB of keys that are larger than a kilobyte, differ in a byte or two, have no values, and
/// come by the hundreds to a restart.
#[derive(Debug)]
pub(crate) struct KeyWork(u64);

impl KeyWork {
    /// What is granted at the outset, and for each byte of a block.
    const FREE: u64 = 4 << 30;
    const TIMES: u64 = 256;

    /// For a file.
    pub(crate) fn of_file() -> KeyWork {
        KeyWork(KeyWork::FREE)
    }

    /// For one block, by itself.
    pub(crate) fn of_block() -> KeyWork {
        KeyWork(0)
    }

    /// Takes the keys of `block`, unless they are more: they must not be looked at whole then.
    pub(crate) fn take<B: AsRef<[u8]>>(&mut self, block: &Block<B>) -> Result<(), Defect> {
        let granted = (block.entries_len as u64).saturating_mul(KeyWork::TIMES);
        let most = self.0.saturating_add(granted);
        let key_bytes = block.key_bytes();
        match most.checked_sub(key_bytes) {
            Some(left) => {
                self.0 = left.min(KeyWork::FREE);
                Ok(())
            }
            None => Err(Defect::new(
                format!("keys of {most} bytes at most, all together"),
                format!("{key_bytes}"),
            )),
        }
    }
}

/// Checks that an entry shares no more than there is: `key_len` bytes.
#[inline]
pub(super) fn check_shared(offset: usize, shared: usize, key_len: usize) -> Result<(), Defect> {
    match shared <= key_len {
        true => Ok(()),
        false => Err(shares_too_much(offset, shared, key_len)),
    }
}

#[cold]
#[inline(never)]
fn shares_too_much(offset: usize, shared: usize, key_len: usize) -> Defect {
    Defect::new(
        format!("an entry at byte {offset} of the block that shares at most {key_len} bytes"),
        format!("{shared}"),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::comparator::common_prefix;

    pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    pub(crate) fn build(entries: &Entries, restart_interval: usize) -> Vec<u8> {
        let mut builder = BlockBuilder::new(restart_interval);
        for (key, value) in entries {
            builder.add(key, common_prefix(builder.last_key(), key), value);
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
