//! A second decoder of the format, the oracle of the targets: plain, slow, and with none of the crate's code.
//!
//! It takes only what a sound writer could have written, and answers `None` for all else. So what it
//! takes the crate must take, and must answer alike; what it refuses the crate may refuse or read.

use std::cmp::Ordering;
use std::ops::Range;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// An order of keys.
pub type Compare = fn(&[u8], &[u8]) -> Ordering;

/// Length of a footer.
pub const FOOTER_LEN: usize = 48;

/// Bytes behind a block: codec and checksum.
pub const TRAILER_LEN: usize = 5;

/// A block of entries, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The entries from first to last.
    pub entries: Vec<Entry>,
    /// Whether restarts ascend from 0 and each is the offset of an entry that is stored whole.
    pub restarts_are_sound: bool,
    /// Of each entry, whether it is at a restart.
    at_restarts: Vec<bool>,
}

impl Block {
    /// Decodes the entries one after the other; `None` where one makes no sense, or the restarts do not
    /// fit. At most `most` entries, so that a block of many tiny ones costs no more than the crate's own walk.
    pub fn decode(payload: &[u8], most: usize) -> Option<Block> {
        let (rest, count) = payload.split_last_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let entries_len = rest.len().checked_sub(count.checked_mul(4)?)?;
        let (mut rest, restarts) = rest.split_at(entries_len);
        let (restarts, _) = restarts.as_chunks::<4>();
        let mut restarts = restarts.iter().map(|r| u32::from_le_bytes(*r) as usize);
        if count == 0 && entries_len > 0 {
            return None;
        }
        let mut restart = restarts.next();
        let mut restarts_are_sound = restart.is_none_or(|restart| restart == 0);
        let (mut entries, mut at_restarts) = (Vec::<Entry>::new(), Vec::new());
        while !rest.is_empty() {
            if entries.len() == most {
                return None;
            }
            let at = entries_len - rest.len();
            let shared = usize::try_from(varint(&mut rest, 32)?).ok()?;
            let unshared = usize::try_from(varint(&mut rest, 32)?).ok()?;
            let value_len = usize::try_from(varint(&mut rest, 32)?).ok()?;
            at_restarts.push(restart == Some(at));
            if restart == Some(at) {
                restarts_are_sound &= shared == 0;
                restart = restarts.next();
            }
            let previous = entries.last().map_or(&[][..], |(key, _)| key);
            let mut key = previous.get(..shared)?.to_vec();
            key.extend(take(&mut rest, unshared)?);
            entries.push((key, take(&mut rest, value_len)?.to_vec()));
        }
        // What is left was the offset of no entry, but for the one restart of a block without any.
        restarts_are_sound &= restart.is_none() || (entries.is_empty() && count == 1);
        Some(Block {
            entries,
            restarts_are_sound,
            at_restarts,
        })
    }

    /// Whether the keys ascend.
    pub fn ascends(&self, compare: Compare) -> bool {
        ascends(self.entries.iter().map(|(key, _)| &key[..]), compare)
    }
}

/// Whether each of `keys` is before the next.
pub fn ascends<'a>(mut keys: impl Iterator<Item = &'a [u8]>, compare: Compare) -> bool {
    let Some(mut previous) = keys.next() else {
        return true;
    };
    keys.all(|key| compare(std::mem::replace(&mut previous, key), key).is_lt())
}

/// Encodes a block. Each entry comes with how many bytes at most it shares with the key before, and
/// whether it is a restart; the first always is.
pub fn encode_block<'a>(
    entries: impl IntoIterator<Item = (&'a [u8], &'a [u8], usize, bool)>,
) -> Vec<u8> {
    let (mut block, mut restarts, mut previous) = (Vec::new(), vec![0], &[][..]);
    for (key, value, most_shared, restart) in entries {
        if restart && !block.is_empty() {
            restarts.push(block.len() as u32);
            previous = &[];
        }
        let common = key.iter().zip(previous).take_while(|(a, b)| a == b).count();
        let shared = common.min(most_shared);
        put_varint(&mut block, shared as u64);
        put_varint(&mut block, (key.len() - shared) as u64);
        put_varint(&mut block, value.len() as u64);
        block.extend(&key[shared..]);
        block.extend(value);
        previous = key;
    }
    for restart in &restarts {
        block.extend(restart.to_le_bytes());
    }
    block.extend((restarts.len() as u32).to_le_bytes());
    block
}

/// Offset and size of a block, its trailer not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// Offset in the file.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

impl Handle {
    /// Takes a handle off the front of `src`.
    pub fn decode(src: &mut &[u8]) -> Option<Handle> {
        Some(Handle {
            offset: varint(src, 64)?,
            size: varint(src, 64)?,
        })
    }

    /// The encoded form.
    pub fn encode(&self) -> Vec<u8> {
        let mut dst = Vec::new();
        put_varint(&mut dst, self.offset);
        put_varint(&mut dst, self.size);
        dst
    }

    /// Where the block lies, if with its trailer it ends at or before `limit`.
    pub fn range(&self, limit: usize) -> Option<Range<usize>> {
        let start = usize::try_from(self.offset).ok()?;
        let end = start.checked_add(usize::try_from(self.size).ok()?)?;
        (end.checked_add(TRAILER_LEN)? <= limit).then_some(start..end)
    }
}

/// The handles of metaindex and index.
pub fn footer(file: &[u8]) -> Option<(Handle, Handle)> {
    let mut footer = file.last_chunk::<FOOTER_LEN>()?.as_slice();
    if footer[40..] != 0xdb47_7524_8b80_fb57_u64.to_le_bytes() {
        return None;
    }
    footer = &footer[..40];
    Some((Handle::decode(&mut footer)?, Handle::decode(&mut footer)?))
}

/// The masked checksum of a block: of payload and codec.
pub fn checksum(covered: &[u8]) -> [u8; 4] {
    masked(crc32c::crc32c(covered))
}

/// A checksum as it is stored.
fn masked(crc: u32) -> [u8; 4] {
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// The sound blocks that lie within the block at `outer`: in a value, as when a table is stored in a table.
/// Takes the square of the block's size.
pub fn blocks_within(file: &[u8], outer: Handle) -> Vec<Handle> {
    let mut blocks = Vec::new();
    let outer_range = outer.range(file.len()).unwrap_or_default();
    for start in outer_range.clone() {
        let mut crc = 0;
        for codec_at in start..outer_range.end {
            crc = crc32c::crc32c_append(crc, &file[codec_at..=codec_at]);
            if file[codec_at + 1..].starts_with(&masked(crc)) {
                let (offset, size) = (start as u64, (codec_at - start) as u64);
                blocks.push(Handle { offset, size });
            }
        }
    }
    blocks
}

/// What lies at a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A block whose checksum is right, decompressed.
    Content(Vec<u8>),
    /// A block whose checksum is wrong.
    WrongChecksum,
    /// Nothing that can be read here: other codecs than Snappy are refused.
    Unknown,
}

/// The block at `handle`, decompressed if it is a Snappy one.
pub fn payload_at(file: &[u8], handle: Handle) -> Payload {
    let limit = file.len().saturating_sub(FOOTER_LEN);
    let Some(range) = handle.range(limit) else {
        return Payload::Unknown;
    };
    let covered = &file[range.start..range.end + 1];
    if file[range.end + 1..range.end + TRAILER_LEN] != checksum(covered) {
        return Payload::WrongChecksum;
    }
    content(file, range).map_or(Payload::Unknown, Payload::Content)
}

/// The content of the block that lies at `range`, decompressed if it is a Snappy one, whatever its checksum.
fn content(file: &[u8], range: Range<usize>) -> Option<Vec<u8>> {
    match file[range.end] {
        0 => Some(file[range].to_vec()),
        // A claim is made good by the crate, not here.
        1 if snap::raw::decompress_len(&file[range.clone()]).is_ok_and(|len| len <= 1 << 22) => {
            let mut decoder = snap::raw::Decoder::new();
            decoder.decompress_vec(&file[range]).ok()
        }
        _ => None,
    }
}

fn payload(file: &[u8], handle: Handle) -> Option<Vec<u8>> {
    match payload_at(file, handle) {
        Payload::Content(content) => Some(content),
        Payload::WrongChecksum | Payload::Unknown => None,
    }
}

/// The entries of the sound block at `handle`.
pub fn entries_at(file: &[u8], handle: Handle) -> Option<Vec<Entry>> {
    Some(Block::decode(&payload(file, handle)?, usize::MAX)?.entries)
}

/// The entries of a sound table, in the order `compare`; `None` where anything in it is not as a
/// writer would write it, metaindex and filter left aside. At most `most` entries.
pub fn table(file: &[u8], compare: Compare, most: usize) -> Option<Vec<Entry>> {
    let (metaindex, index) = footer(file)?;
    let data_end = usize::try_from(metaindex.offset.min(index.offset)).ok()?;
    metaindex.range(file.len() - FOOTER_LEN)?;
    let index = Block::decode(&payload(file, index)?, most)?;
    if !index.restarts_are_sound || !index.ascends(compare) {
        return None;
    }
    // No builder of blocks gives the second entry a restart and a later one none: such an index is refused.
    if index.at_restarts.get(1) == Some(&true) && index.at_restarts.contains(&false) {
        return None;
    }
    let keys_len: usize = index.entries.iter().map(|(key, _)| key.len()).sum();
    if keys_len > 16 * file.len() {
        return None;
    }
    let mut entries: Vec<Entry> = Vec::new();
    let (mut previous_end, mut previous_separator) = (0, None);
    for (separator, handle) in &index.entries {
        let handle = Handle::decode(&mut &handle[..])?;
        let range = handle.range(data_end)?;
        if range.start < previous_end {
            return None;
        }
        previous_end = range.end + TRAILER_LEN;
        let block = Block::decode(&payload(file, handle)?, most)?;
        let separated = block.entries.iter().all(|(key, _)| {
            previous_separator.is_none_or(|previous: &Vec<u8>| compare(previous, key).is_lt())
                && compare(key, separator).is_le()
        });
        if !block.restarts_are_sound || !block.ascends(compare) || !separated {
            return None;
        }
        previous_separator = Some(separator);
        entries.extend(block.entries);
        if entries.len() > most {
            return None;
        }
    }
    Some(entries)
}

/// The order of keys that the table's properties name, whether or not their checksum is right.
pub fn named_order(file: &[u8]) -> Option<Vec<u8>> {
    let value_of = |handle: Handle, name: &[u8]| {
        let range = handle.range(file.len() - FOOTER_LEN)?;
        let block = Block::decode(&content(file, range)?, usize::MAX)?;
        let (_, value) = block.entries.into_iter().find(|(key, _)| key == name)?;
        Some(value)
    };
    let (metaindex, _) = footer(file)?;
    let properties = value_of(metaindex, b"about.leveltable")?;
    value_of(Handle::decode(&mut &properties[..])?, b"comparator")
}

/// The data blocks that the index names, in its order, whatever order their keys are in; `None` in place of one that cannot
/// be read. At most `most` entries in each.
pub fn data_blocks(file: &[u8], most: usize) -> Option<Vec<Option<Block>>> {
    let (_, index) = footer(file)?;
    let index = Block::decode(&payload(file, index)?, most)?;
    let block = |handle: &[u8]| {
        let handle = Handle::decode(&mut &handle[..])?;
        Block::decode(&payload(file, handle)?, most)
    };
    Some(
        index
            .entries
            .iter()
            .map(|(_, handle)| block(handle))
            .collect(),
    )
}

/// Whether the index is sound and names a data block whose checksum is wrong.
pub fn has_damaged_data(file: &[u8]) -> bool {
    let is_damaged = |handle: &[u8]| {
        let range = Handle::decode(&mut &handle[..])?.range(file.len() - FOOTER_LEN)?;
        let checksum = checksum(&file[range.start..range.end + 1]);
        Some(file[range.end + 1..range.end + TRAILER_LEN] != checksum)
    };
    let index = footer(file).and_then(|(_, index)| Block::decode(&payload(file, index)?, 1000));
    index.is_some_and(|index| {
        let mut handles = index.entries.iter().map(|(_, handle)| &handle[..]);
        handles.any(|handle| is_damaged(handle) == Some(true))
    })
}

/// Makes the checksums right of all blocks that can be found: those that the footer names, then those
/// that index and metaindex name.
pub fn repair_checksums(file: &mut [u8]) {
    let Some((metaindex, index)) = footer(file) else {
        return;
    };
    for handle in [metaindex, index] {
        seal(file, handle);
        let Some(payload) = payload(file, handle) else {
            continue;
        };
        for (_, value) in walk(&payload) {
            if let Some(handle) = Handle::decode(&mut &value[..]) {
                seal(file, handle);
            }
        }
    }
}

/// The entries of a block as far as they can be read.
fn walk(mut payload: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    while entries.len() < 256 {
        let mut next = || {
            let [_shared, unshared, value_len] = [(); 3].map(|()| varint(&mut payload, 32));
            let key = take(&mut payload, usize::try_from(unshared?).ok()?)?;
            let value = take(&mut payload, usize::try_from(value_len?).ok()?)?;
            Some((key.to_vec(), value.to_vec()))
        };
        match next() {
            Some(entry) => entries.push(entry),
            None => break,
        }
    }
    entries
}

fn seal(file: &mut [u8], handle: Handle) {
    if let Some(range) = handle.range(file.len() - FOOTER_LEN) {
        let checksum = checksum(&file[range.start..range.end + 1]);
        file[range.end + 1..range.end + TRAILER_LEN].copy_from_slice(&checksum);
    }
}

/// Takes a varint of at most `bits` bits off the front of `src`.
pub fn varint(src: &mut &[u8], bits: u32) -> Option<u64> {
    let mut value = 0u128;
    for i in 0..bits.div_ceil(7) {
        let byte = *src.split_off_first()?;
        value |= u128::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return u64::try_from(value).ok().filter(|_| value >> bits == 0);
        }
    }
    None
}

/// Appends a varint.
pub fn put_varint(dst: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        dst.push(value as u8 | 0x80);
        value >>= 7;
    }
    dst.push(value as u8);
}

fn take<'a>(src: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = src.split_at_checked(len)?;
    *src = rest;
    Some(taken)
}

/// Whether a LevelDB Bloom filter lets a key pass: written from its description.
pub fn bloom_matches(key: &[u8], filter: &[u8], signed_tail: bool) -> bool {
    let Some((&k, array)) = filter.split_last() else {
        return false;
    };
    if array.is_empty() {
        return false;
    }
    if k > 30 {
        return true;
    }
    let mut h = 0xbc9f_1d34_u32 ^ (key.len() as u32).wrapping_mul(0xc6a4_a793);
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        h = h.wrapping_add(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        h = h.wrapping_mul(0xc6a4_a793);
        h ^= h >> 16;
    }
    if !words.remainder().is_empty() {
        for (i, &byte) in words.remainder().iter().enumerate() {
            let word = match signed_tail {
                true => byte as i8 as i32 as u32,
                false => u32::from(byte),
            };
            h = h.wrapping_add(word << (8 * i));
        }
        h = h.wrapping_mul(0xc6a4_a793);
        h ^= h >> 24;
    }
    let bits = 8 * array.len() as u64;
    let delta = h.rotate_right(17);
    (0..k).all(|_| {
        let bit = u64::from(h) % bits;
        h = h.wrapping_add(delta);
        array[(bit / 8) as usize] >> (bit % 8) & 1 == 1
    })
}

/// Which filter of a filter block covers `block_offset`, from the description of the format. `None` for a
/// block that is not well-formed; `Some(None)` where there is no filter to ask.
pub fn filter_of(contents: &[u8], block_offset: u64) -> Option<Option<&[u8]>> {
    let (rest, &[o0, o1, o2, o3, lg]) = contents.split_last_chunk::<5>()?;
    let array_at = u32::from_le_bytes([o0, o1, o2, o3]) as usize;
    let offsets = rest.get(array_at..)?;
    if lg >= 64 {
        return None;
    }
    let i = block_offset >> lg;
    if i >= offsets.len() as u64 / 4 {
        return Some(None);
    }
    let at = array_at + 4 * i as usize;
    let word = |at: usize| u32::from_le_bytes(contents[at..at + 4].try_into().unwrap()) as usize;
    let (start, end) = (word(at), word(at + 4));
    Some(
        (end <= array_at)
            .then(|| contents.get(start..end))
            .flatten(),
    )
}

/// Whether a filter of `leveltable.Ribbon1` lets a key pass: written from the description of its encoding.
pub fn ribbon_matches(key: &[u8], filter: &[u8]) -> bool {
    filter
        .first()
        .is_some_and(|_| ribbon_verdict(key, filter).unwrap_or(true))
}

/// `None` where the numbers do not fit each other, or where every key of the last layer is let pass.
fn ribbon_verdict(key: &[u8], filter: &[u8]) -> Option<bool> {
    let len = filter.len();
    let word = |at: usize| {
        let bytes = filter.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let [.., columns, layers] = *filter else {
        return None;
    };
    let (columns, layers) = (u64::from(columns), usize::from(layers));
    let narrow = u64::from(word(len.checked_sub(6)?)?);
    // The ends stand from the last layer to the first, right before `narrow`.
    let end = |layer: usize| word(len.checked_sub(10 + 4 * layer)?).map(u64::from);
    let all = end(layers.checked_sub(1)?)?;
    let most_columns = columns + u64::from(narrow < all);
    if columns < 4 || most_columns > 32 || narrow > all {
        return None;
    }
    let words = all * columns + all - narrow;
    let codes_at = usize::try_from(4 * words).ok()?;
    let codes_len = all.div_ceil(4) as usize;
    if codes_at + codes_len + 4 * layers + 6 != len {
        return None;
    }
    let mut h = xxhash_rust::xxh3::xxh3_64(key);
    for layer in 0..layers {
        let first = match layer {
            0 => 0,
            _ => end(layer - 1)?,
        };
        let segments = end(layer)?.checked_sub(first).filter(|&m| m > 0)?;
        let starts = 32 * segments - 31;
        let start = ((u128::from(h) * u128::from(starts)) >> 64) as u64;
        let (segment, offset) = (first + start / 32, start % 32);
        if segment >= all.next_multiple_of(4) {
            return None;
        }
        let code = filter[codes_at + (segment / 4) as usize] >> (2 * (segment % 4)) & 3;
        if offset < [0, 8, 16, 32][usize::from(code)] {
            h = (h ^ (h >> 32)).wrapping_mul(0x243f_6a88_85a3_08d3);
            continue;
        }
        let r = h.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (coefficients, fingerprint) = ((r >> 32) as u32 | 1, r as u32);
        let width = columns + u64::from(segment >= narrow);
        let column = |segment: u64, j: u64| {
            let at = segment * columns + segment.saturating_sub(narrow) + j;
            (at < words).then(|| word(4 * at as usize))?
        };
        let mut verdict = true;
        for j in 0..width {
            let next_width = columns + u64::from(segment + 1 >= narrow);
            // 64 slots: those of the segment and of the next.
            let here = u64::from(column(segment, j)?);
            let next = match offset {
                0 => 0,
                _ if j < next_width => u64::from(column(segment + 1, j)?),
                _ => return None,
            };
            let slots = (here | next << 32) >> offset;
            let sum = (slots as u32 & coefficients).count_ones() & 1;
            verdict &= sum == fingerprint >> j & 1;
        }
        return Some(verdict);
    }
    None
}
