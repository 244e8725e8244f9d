//! Finds blocks in a file without an index.
//!
//! Nothing in the file marks where a block begins or how long it is. But blocks follow each other without gaps, or after
//! the padding of an aligned table, so the next block begins where one ends, and a block's end can be found from its
//! beginning: a raw block is walked entry by entry to its restarts, a Snappy block element by element to the length that
//! it declares, and the checksum confirms the end. That costs a read of the file.
//!
//! After damage, neither the beginning nor the end is known. [`frames_by_checksum`] then finds all frames in a window of
//! the file at once, whatever their codec and content, by a property of CRCs, at a fixed cost for each byte.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use super::checksums::frames_by_checksum;
use super::found::{Content, Found, inspect, key_room};
use crate::coding::{fixed32_at, get_varint32};
use crate::comparator::Order;
use crate::format::block_check::KeyWork;
use crate::format::footer::{FOOTER_LEN, Footer};
use crate::format::frame::TRAILER_LEN;
use crate::format::page;
use crate::read::file::TableFile;

/// Sizes of the windows in which frames are searched by their checksums: the first, and the largest.
const SMALLEST_WINDOW: u64 = 256 << 10;
const LARGEST_WINDOW: u64 = 4 << 20;

/// Bytes read at once where few of them are needed.
pub(super) const PAGE: usize = 64 << 10;

/// Bytes read at once where larger reads fail: a disk's sector.
pub(super) const SECTOR: u64 = 4 << 10;

/// How long a search goes on that finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// To the end of the file.
    Endless,
    /// For one window of the largest size: a file that is no table takes no longer than that.
    Limited,
}

/// Finds frames with valid checksums and sensible content, wherever they are.
pub(crate) struct Scanner<'a> {
    file: &'a TableFile,
    order: &'a Order,
    patience: Patience,
    page: Page<'a>,
    /// Steps that walks may still take: more than any honest file needs. When they run out, each walk ends after a page.
    steps: u64,
    /// Bytes of keys that may still be held.
    room: u64,
    work: KeyWork,
}

/// The search by checksums, which goes from window to window.
#[derive(Debug, Default)]
struct Search {
    from: u64,
    size: u64,
    /// The window.
    bytes: Bytes,
    /// Frames of this window that were not examined yet, the first of them last.
    pending: Vec<Range<u64>>,
    /// Bytes that may still be examined in this window: a hostile one could hold frames within frames.
    budget: u64,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(file: &'a TableFile, order: &'a Order, patience: Patience) -> Scanner<'a> {
        Scanner {
            file,
            order,
            patience,
            page: Page {
                file,
                start: 0,
                bytes: Bytes::new(),
            },
            steps: file.size.saturating_mul(4).saturating_add(1 << 20),
            room: key_room(file.size),
            work: KeyWork::of_file(),
        }
    }

    /// All frames of `range` that can be found, in order and without overlaps. Calls `reached` with the offsets up to which
    /// nothing is left to find; it may end the scan there.
    pub(crate) fn scan(
        &mut self,
        range: Range<u64>,
        mut reached: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Vec<Found> {
        let mut frames = Vec::new();
        let mut search = Search::default();
        let mut at = range.start;
        while let Some(found) = self
            .footer(at, range.end)
            .or_else(|| self.walk(at, range.end))
            .or_else(|| self.walk_after_padding(at, range.end))
            .or_else(|| self.search(&mut search, at, range.end, &mut reached))
        {
            at = found.range.end;
            frames.push(found.within(&mut self.room));
            if reached(at).is_break() {
                break;
            }
        }
        frames
    }

    /// The frame at `range`, if its checksum is right and its content makes sense.
    fn check(&mut self, range: Range<u64>) -> Option<Found> {
        let len = usize::try_from(range.end - range.start).ok()?;
        let frame = self.file.read(range.start, len).ok()?;
        self.check_frame(range, &frame)
    }

    /// The same of a frame that was read.
    fn check_frame(&mut self, range: Range<u64>, frame: &Bytes) -> Option<Found> {
        self.steps = self.steps.saturating_sub(frame.len() as u64 / 8);
        let content = inspect(range.start, frame, self.order, &mut self.work).ok()?;
        Some(Found { range, content })
    }

    // -- From a known beginning.

    /// The footer that begins at `at`: it comes right after a frame.
    fn footer(&mut self, at: u64, end: u64) -> Option<Found> {
        let footer = Footer::decode(self.page.at(at, FOOTER_LEN)).ok()?;
        let range = at..at + FOOTER_LEN as u64;
        (range.end <= end).then_some(Found {
            range,
            content: Content::Footer(footer),
        })
    }

    /// The frame that begins at `at` and ends at or before `end`, found by walking it.
    fn walk(&mut self, at: u64, end: u64) -> Option<Found> {
        let end = if self.steps == 0 {
            end.min(at + PAGE as u64)
        } else {
            end
        };
        if let Some(payload_end) = self.end_of_snappy(at, end)
            && let Some(found) = self.check(at..payload_end + TRAILER_LEN as u64)
        {
            return Some(found);
        }
        self.walk_raw(at, end)
    }

    /// The same, if padding comes first, as in an aligned table.
    fn walk_after_padding(&mut self, at: u64, end: u64) -> Option<Found> {
        let len = page::to_boundary(at);
        let padding = self.page.at(at, len as usize);
        let is_padding = len > 0 && page::is_padding(at, padding);
        is_padding.then(|| self.walk(at + len, end))?
    }

    fn step(&mut self) {
        self.steps = self.steps.saturating_sub(1);
    }

    /// The end of the Snappy data at `at`: where its elements add up to the length that it declares.
    fn end_of_snappy(&mut self, at: u64, end: u64) -> Option<u64> {
        let (declared, header_len) = get_varint32(self.page.at(at, 5))?;
        let declared = u64::from(declared);
        let (mut p, mut made) = (at + header_len as u64, 0);
        if declared < 4 {
            return None; // no block is that short
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

    /// The raw frame at `at`: entry by entry, until what follows reads like their restarts.
    fn walk_raw(&mut self, at: u64, end: u64) -> Option<Found> {
        /// Most places where the restarts may seem to begin.
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
            // An entry takes at least 3 bytes, so that only the first restart can be as small as its number.
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

    /// The first frame at or after `at` that ends at or before `end`. Also `None` if `reached` ends the search, or if
    /// patience does.
    ///
    /// A frame of up to half the largest window is found wherever it begins.
    fn search(
        &mut self,
        search: &mut Search,
        at: u64,
        end: u64,
        reached: &mut impl FnMut(u64) -> ControlFlow<()>,
    ) -> Option<Found> {
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
                let in_window = |at: u64| (at - search.from) as usize;
                let frame = search
                    .bytes
                    .slice(in_window(range.start)..in_window(range.end));
                if let Some(found) = self.check_frame(range, &frame) {
                    // If the content cannot be read, only the checksum speaks for the frame, and that is right by
                    // chance now and then: its place must be likely, too.
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
            } else if self.patience == Patience::Limited {
                return None;
            } else {
                search.from += search.size / 2;
            }
            if reached(search.from).is_break() {
                return None;
            }
            let window = search.from..end.min(search.from + search.size);
            if window.is_empty() {
                return None;
            }
            search.bytes = read_what_can_be(self.file, window.clone());
            let frames = frames_by_checksum(&search.bytes);
            search
                .pending
                .extend(frames.into_iter().map(|(start, end)| {
                    window.start + u64::from(start)..window.start + u64::from(end)
                }));
            search.budget = 16 * LARGEST_WINDOW;
        }
    }
}

/// A part of the file in memory, for reading a few bytes here and there.
struct Page<'a> {
    file: &'a TableFile,
    start: u64,
    bytes: Bytes,
}

impl Page<'_> {
    /// The `len` bytes at `offset`; fewer at the end of the file.
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
        let (from, to) = ((offset - self.start) as usize, (end - self.start) as usize);
        #[expect(
            clippy::indexing_slicing,
            reason = "the page holds these bytes: it was read again if it did not"
        )]
        &self.bytes[from..to]
    }
}

/// The bytes at `range`, a few megabytes at most, with zeros for what cannot be read.
fn read_what_can_be(file: &TableFile, range: Range<u64>) -> Bytes {
    let read = |range: &Range<u64>| {
        let len = (range.end - range.start) as usize;
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
