//! Finds blocks in a file without an index.
//!
//! Nothing in the file marks where a block begins or how long it is. But blocks follow each other without
//! gaps, so where one ends the next begins, and from a known beginning the end can be told:
//! a raw block is walked entry by entry to its restarts, a Snappy block element by element to the length
//! that it declares, and the checksum confirms. That costs a read of the file.
//!
//! Behind damage neither end is known. There, all frames of a window of the file are found at once by what
//! [`frames_by_checksum`] knows about CRCs, whatever their codec and content, at a fixed cost for each byte.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use crate::coding::{fixed32_at, get_varint32};
use crate::comparator::Order;
use crate::error::Section;
use crate::file::TableFile;
use crate::format::Defect;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::FilterBlockReader;
use crate::format::footer::BlockHandle;
use crate::format::frame::{self, TRAILER_LEN};

/// A frame whose checksum is right, and what is in it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) range: Range<u64>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Entries(Summary),
    Filter,
    /// Its codec is not in this build.
    Unreadable(String),
}

/// A block of entries in brief.
#[derive(Debug)]
pub(super) struct Summary {
    /// Entries that ascend, greedily from the first on, and entries that do not fit between those.
    pub(super) entries: u64,
    pub(super) out_of_order: u64,
    /// Of the entries that ascend.
    pub(super) first: Box<[u8]>,
    pub(super) last: Box<[u8]>,
    /// Whether every value is a block handle and nothing else, and there is one.
    pub(super) all_handles: bool,
}

impl Found {
    /// Number of entries, of which some may be out of order; 0 for what is not a block of entries.
    pub(crate) fn entries(&self) -> u64 {
        match &self.content {
            Content::Entries(summary) => summary.entries + summary.out_of_order,
            _ => 0,
        }
    }

    pub(super) fn summary(&self) -> Option<&Summary> {
        match &self.content {
            Content::Entries(summary) if summary.entries > 0 => Some(summary),
            _ => None,
        }
    }

    /// Length of the frame.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn handle(&self) -> BlockHandle {
        BlockHandle {
            offset: self.range.start,
            size: self.len() - TRAILER_LEN as u64,
        }
    }
}

/// Opens the frame and sees what is in it.
pub(super) fn inspect(frame: &Bytes, order: &Order) -> Result<Content, Defect> {
    frame::verify(frame)?;
    let payload = match frame::open(frame) {
        Ok(payload) => payload,
        Err(defect) => return unreadable(defect),
    };
    summarise(payload.clone(), order)
        .map(Content::Entries)
        .or_else(|defect| {
            let is_filter = frame::is_raw(frame)
                && FilterBlockReader::new(payload)
                    .is_ok_and(|reader| reader.check_offsets().is_ok());
            is_filter.then_some(Content::Filter).ok_or(defect)
        })
}

/// Tells a codec that this build lacks from a payload that does not decompress.
fn unreadable(defect: Defect) -> Result<Content, Defect> {
    let error = defect.locate(Section::Data, 0);
    match error.corruption() {
        Some(corruption) => Err(Defect::new(corruption.expected(), corruption.found())),
        None => Ok(Content::Unreadable(error.to_string())),
    }
}

fn summarise(payload: Bytes, order: &Order) -> Result<Summary, Defect> {
    let block = Block::parse(payload)?;
    block.check_restarts()?;
    block.check_entries()?;
    let mut cursor = BlockCursor::new(block);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let (mut entries, mut out_of_order, mut all_handles) = (0, 0, true);
    while cursor.next()? {
        let key = cursor.key();
        let value = cursor.value();
        all_handles &= BlockHandle::decode(value).is_some_and(|(_, len)| len == value.len());
        if entries == 0 {
            first = key.to_vec();
        } else if order.compare(&last, key).is_ge() {
            out_of_order += 1;
            continue;
        }
        entries += 1;
        last.clear();
        last.extend_from_slice(key);
    }
    Ok(Summary {
        entries,
        out_of_order,
        first: first.into(),
        last: last.into(),
        all_handles: all_handles && entries > 0,
    })
}

// ---- Scanning ------------------------------------------------------------------------------------

/// Windows in which frames are searched by their checksums: where a search begins, and the largest.
const SMALLEST_WINDOW: u64 = 256 << 10;
const LARGEST_WINDOW: u64 = 4 << 20;

/// What is read at once where few bytes are looked at.
const PAGE: usize = 64 << 10;

/// The smallest part that is read by itself where reading fails: a disk's sector, these days.
pub(super) const SECTOR: u64 = 4 << 10;

/// Finds frames with valid checksums and sensible content, wherever they are.
pub(crate) struct Scanner<'a> {
    file: &'a TableFile,
    order: &'a Order,
    page: Page<'a>,
    /// Steps that walks may still take: more than any honest file needs. When they run out, walks get no
    /// further than a page each.
    steps: u64,
}

/// The search by checksums, which goes from window to window.
#[derive(Debug, Default)]
struct Search {
    from: u64,
    size: u64,
    /// Frames of this window that were not looked at yet, the first of them last.
    pending: Vec<Range<u64>>,
    /// Bytes that may still be looked at in this window: hostile ones could hold frames within frames.
    budget: u64,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(file: &'a TableFile, order: &'a Order) -> Scanner<'a> {
        Scanner {
            file,
            order,
            page: Page {
                file,
                start: 0,
                bytes: Bytes::new(),
            },
            steps: file.size.saturating_mul(4).saturating_add(1 << 20),
        }
    }

    /// All frames of `range` that can be found, in order and without overlaps.
    pub(crate) fn scan(&mut self, range: Range<u64>) -> Vec<Found> {
        let mut frames = Vec::new();
        let mut search = Search::default();
        let mut at = range.start;
        while let Some(found) = self
            .walk(at, range.end)
            .or_else(|| self.search(&mut search, at, range.end))
        {
            at = found.range.end;
            frames.push(found);
        }
        frames
    }

    /// The frame at `range`, if its checksum is right and its content makes sense.
    fn check(&mut self, range: Range<u64>) -> Option<Found> {
        let len = range.end - range.start;
        self.steps = self.steps.saturating_sub(len / 8);
        let frame = self
            .file
            .read(range.start, usize::try_from(len).ok()?)
            .ok()?;
        let content = inspect(&frame, self.order).ok()?;
        Some(Found { range, content })
    }

    // -- From a known beginning.

    /// The frame that begins at `at` and ends at or before `end`: found by walking it.
    fn walk(&mut self, at: u64, end: u64) -> Option<Found> {
        let end = match self.steps {
            0 => end.min(at + PAGE as u64),
            _ => end,
        };
        if let Some(payload_end) = self.end_of_snappy(at, end)
            && let Some(found) = self.check(at..payload_end + TRAILER_LEN as u64)
        {
            return Some(found);
        }
        self.walk_raw(at, end)
    }

    fn step(&mut self) {
        self.steps = self.steps.saturating_sub(1);
    }

    /// The end of the Snappy data at `at`: where its elements have made the length that it declares.
    fn end_of_snappy(&mut self, at: u64, end: u64) -> Option<u64> {
        let (declared, header_len) = get_varint32(self.page.at(at, 5))?;
        let declared = u64::from(declared);
        let (mut p, mut made) = (at + header_len as u64, 0);
        if declared < 4 {
            return None; // no block is as short
        }
        while made < declared {
            self.step();
            let element = self.page.at(p, 5);
            let &tag = element.first()?;
            let number = |bytes: u64| {
                let word = u32::from_le_bytes(*element.get(1..)?.first_chunk()?);
                Some(u64::from(word) & ((1 << (8 * bytes)) - 1))
            };
            let upper = u64::from(tag >> 2);
            let (len, element_len, copy_from) = match (tag & 3, upper) {
                (0, 60..) => {
                    let len_bytes = upper - 59;
                    let len = number(len_bytes)? + 1;
                    (len, 1 + len_bytes + len, None)
                }
                (0, _) => (upper + 1, upper + 2, None),
                (1, _) => (4 + (upper & 7), 2, Some((upper >> 3 << 8) | number(1)?)),
                (2, _) => (upper + 1, 3, Some(number(2)?)),
                _ => (upper + 1, 5, Some(number(4)?)),
            };
            if copy_from.is_some_and(|back| back == 0 || back > made) {
                return None;
            }
            made += len;
            p += element_len;
            if p + TRAILER_LEN as u64 > end {
                return None;
            }
        }
        (made == declared).then_some(p)
    }

    /// The raw frame at `at`: entry by entry until what follows reads like the restarts of those.
    fn walk_raw(&mut self, at: u64, end: u64) -> Option<Found> {
        /// How often the restarts may seem to begin.
        const MOST_TRIES: u32 = 8;
        let (mut p, mut key_len, mut tries) = (at, 0, 0);
        while p + (4 + TRAILER_LEN) as u64 <= end && tries < MOST_TRIES {
            self.step();
            if fixed32_at(self.page.at(p, 4), 0) == Some(0) {
                tries += 1;
                if let Some(payload_end) = self.end_of_restarts(p, p - at, end)
                    && payload_end + TRAILER_LEN as u64 <= end
                    && let Some(found) = self.check(at..payload_end + TRAILER_LEN as u64)
                {
                    return Some(found);
                }
            }
            let header = self.page.at(p, 15);
            let (shared, a) = get_varint32(header)?;
            let (unshared, b) = get_varint32(header.get(a..)?)?;
            let (value_len, c) = get_varint32(header.get(a + b..)?)?;
            if u64::from(shared) > key_len {
                return None;
            }
            key_len = u64::from(shared) + u64::from(unshared);
            p += (a + b + c) as u64 + u64::from(unshared) + u64::from(value_len);
        }
        None
    }

    /// The end of the block whose restarts begin at `p`, after `entries_len` bytes of entries.
    fn end_of_restarts(&mut self, p: u64, entries_len: u64, end: u64) -> Option<u64> {
        let (mut at, mut count, mut before) = (p, 0, None);
        while at + 4 <= end {
            self.step();
            let number = fixed32_at(self.page.at(at, 4), 0)?;
            at += 4;
            // An entry takes 3 bytes at least, so that no restart but the first is as small as its number.
            if number == count && count > 0 {
                return Some(at);
            }
            let in_order = match before {
                None => number == 0,
                Some(before) => number > before && u64::from(number) < entries_len,
            };
            if !in_order {
                return None;
            }
            before = Some(number);
            count += 1;
        }
        None
    }

    // -- From anywhere.

    /// The first frame at or after `at` that ends at or before `end`.
    ///
    /// A frame of up to half the largest window is found wherever it begins.
    fn search(&mut self, search: &mut Search, at: u64, end: u64) -> Option<Found> {
        loop {
            while let Some(range) = search.pending.pop() {
                if range.start < at {
                    continue;
                }
                let len = range.end - range.start;
                let Some(budget) = search.budget.checked_sub(len) else {
                    search.pending.clear();
                    break;
                };
                search.budget = budget;
                if let Some(found) = self.check(range) {
                    // With a codec that cannot be read nothing but the checksum speaks for a frame, and
                    // that is right by chance now and then: its place must be likely, too.
                    if found.range.start == at || !matches!(found.content, Content::Unreadable(_)) {
                        return Some(found);
                    }
                }
            }
            if search.size == 0 || at > search.from {
                search.from = at;
                search.size = SMALLEST_WINDOW;
            } else if search.from + search.size >= end {
                return None;
            } else if search.size < LARGEST_WINDOW {
                search.size *= 4;
            } else {
                search.from += search.size / 2;
            }
            let window = search.from..end.min(search.from + search.size);
            if window.is_empty() {
                return None;
            }
            let bytes = read_what_can_be(self.file, window.clone());
            let frames = frames_by_checksum(&bytes);
            search
                .pending
                .extend(frames.into_iter().map(|(start, end)| {
                    window.start + u64::from(start)..window.start + u64::from(end)
                }));
            search.budget = 16 * LARGEST_WINDOW;
        }
    }
}

/// A part of the file in memory, for looking at a few bytes here and there.
struct Page<'a> {
    file: &'a TableFile,
    start: u64,
    bytes: Bytes,
}

impl Page<'_> {
    /// The `len` bytes at `offset`; fewer where the file ends.
    fn at(&mut self, offset: u64, len: usize) -> &[u8] {
        let end = self.file.size.min(offset.saturating_add(len as u64));
        if offset >= end {
            return &[];
        }
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let page_end = self.file.size.min(offset + PAGE as u64);
            self.bytes = read_what_can_be(self.file, offset..page_end);
            self.start = offset;
        }
        // Both fit: they lie within what is in memory.
        let (from, to) = ((offset - self.start) as usize, (end - self.start) as usize);
        self.bytes.get(from..to).unwrap_or_default()
    }
}

/// The bytes at `range`, a few megabytes at most, with zeros for what cannot be read.
fn read_what_can_be(file: &TableFile, range: Range<u64>) -> Bytes {
    let read = |range: &Range<u64>| {
        let len = usize::try_from(range.end - range.start).unwrap_or_default();
        (len, file.read(range.start, len))
    };
    let (len, whole) = read(&range);
    whole.unwrap_or_else(|_| {
        let mut bytes = Vec::with_capacity(len);
        let mut at = range.start;
        while at < range.end {
            let sector_end = (at / SECTOR + 1) * SECTOR;
            let (len, sector) = read(&(at..sector_end.min(range.end)));
            match sector {
                Ok(sector) => bytes.extend_from_slice(&sector),
                Err(_) => bytes.resize(bytes.len() + len, 0),
            }
            at += len as u64;
        }
        bytes.into()
    })
}

// ---- Frames by their checksums -------------------------------------------------------------------

/// The types of blocks that are searched for: none, Snappy, Zstandard or zlib, deflate.
const CODECS: [u8; 4] = [0, 1, 2, 4];

/// All pairs of a beginning and an end in `bytes`, up to 4 GiB, between which there is a frame with a valid
/// checksum: for each beginning the nearest end, the first beginning last.
///
/// It takes one pass from right to left and a hash table, where trying all pairs would take the
/// square of the length.
///
/// A CRC is a remainder of polynomials over GF(2), and as such linear. Write `x` for the polynomial of one
/// bit, `n` for the length of `bytes`, and `raw(a, b)` for the CRC register after the bytes `a..b`, begun
/// with 0. Then, with `k = n - c` bytes behind `c`,
///
/// ```text
/// raw(s, n) = raw(s, c) * x^8k + raw(c, n)                                            (+ is XOR)
/// ```
///
/// and a register that began with all ones adds `ones * x^8(c - s)` to `raw(s, c)`. The frame
/// `s..c` is valid if that sum is the `register` which the checksum stored at `c` stands for. Multiplied
/// by `x^8k`:
///
/// ```text
/// raw(s, n) + ones * x^8(n - s)  =  raw(c, n) + register * x^8(n - c)
/// ```
///
/// The left side depends on the beginning alone, the right side on the end alone.
fn frames_by_checksum(bytes: &[u8]) -> Vec<(u32, u32)> {
    /// How a register stands for the polynomial 1: bits are reflected, the highest power is the lowest bit.
    const ONE: u32 = 1 << 31;
    let mut frames = Vec::new();
    let mut ends: HashMap<u32, u32> = HashMap::new();
    let mut raw = 0u32; // raw(at, n)
    let mut power = ONE; // x^8(n - at)
    let mut ones = u32::MAX; // ones * x^8(n - at)
    let mut bit = times_x8(1 << 7); // what the top bit of the byte before `at` will add to `raw`
    for (at, &byte) in bytes.iter().enumerate().rev() {
        (power, ones) = (times_x8(power), times_x8(ones));
        for i in (0..8).rev() {
            raw ^= bit & u32::from(byte >> i & 1).wrapping_neg();
            bit = times_x(bit);
        }
        let at = at as u32;
        if let Some(end) = ends.get(&(raw ^ ones)) {
            frames.push((at, end + 4));
        }
        // Zeros are no checksum, but there are many of them.
        let stored = fixed32_at(bytes, at as usize).unwrap_or_default();
        let codec = at.checked_sub(1).and_then(|i| bytes.get(i as usize));
        if stored != 0 && codec.is_some_and(|codec| CODECS.contains(codec)) {
            let register = !frame::unmask(stored);
            ends.insert(raw ^ multiply(register, power), at);
        }
    }
    frames
}

/// `a * x` modulo the polynomial of CRC-32C, reflected.
const fn times_x(a: u32) -> u32 {
    const CRC32C: u32 = 0x82f6_3b78;
    (a >> 1) ^ (CRC32C & (a & 1).wrapping_neg())
}

/// `a * x^8`.
fn times_x8(a: u32) -> u32 {
    #[expect(clippy::indexing_slicing, reason = "the compiler evaluates it")]
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut entry, mut bit) = (i as u32, 0);
            while bit < 8 {
                entry = times_x(entry);
                bit += 1;
            }
            table[i] = entry;
            i += 1;
        }
        table
    };
    let low = TABLE.get((a & 0xff) as usize);
    (a >> 8) ^ low.copied().unwrap_or_default()
}

/// `a * b` modulo the polynomial of CRC-32C.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for i in (0..32).rev() {
        product ^= b & (a >> i & 1).wrapping_neg();
        b = times_x(b);
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::frame::seal_raw;
    use proptest::prelude::*;

    /// Every pair tried, with the CRC of the crate that everybody uses: the nearest end for each beginning.
    fn by_trying(bytes: &[u8]) -> Vec<(u32, u32)> {
        let mut frames = Vec::new();
        for start in (0..bytes.len()).rev() {
            let end = (start + 5..=bytes.len()).find(|&end| {
                let stored = u32::from_le_bytes(bytes[end - 4..end].try_into().unwrap());
                let crc = crc32c::crc32c(&bytes[start..end - 4]);
                stored != 0 && CODECS.contains(&bytes[end - 5]) && frame::mask(crc) == stored
            });
            frames.extend(end.map(|end| (start as u32, end as u32)));
        }
        frames
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Frames among rubbish, side by side, and within each other.
        #[test]
        fn frames_are_found_wherever_they_are(
            parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), 0..3), 0..8),
        ) {
            let mut bytes = Vec::new();
            let mut frames = 0;
            for (part, what) in parts {
                match what {
                    0 => bytes.extend(part),
                    1 => {
                        seal_raw(&part, &mut bytes);
                        frames += 1;
                    }
                    _ => {
                        let inner = std::mem::take(&mut bytes);
                        seal_raw(&inner, &mut bytes);
                        frames += 1;
                    }
                }
            }
            let found = frames_by_checksum(&bytes);
            prop_assert_eq!(&found, &by_trying(&bytes));
            prop_assert!(found.len() <= frames);
        }
    }
}
