//! Surveys a damaged file: which frames there are. Follows the footer as far as checksums confirm what it leads to, and
//! scans the rest unless the index says that nothing is missing.
//!
//! Nothing in the file marks where a block begins or how long it is. But blocks follow each other without gaps, or after
//! the padding of an aligned table. So the next block begins where one ends, and ends where the checksum of what comes after
//! is right: that is one pass over its bytes, whatever its codec and content.
//!
//! After damage, neither the beginning nor the end is known. [`frames_by_checksum`] then finds all frames in a window of
//! the file at once, by a property of CRCs, at a fixed cost for each byte.

use std::collections::BTreeMap;
use std::iter::once;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use super::checksums::{frame_end, frames_by_checksum};
use super::found::{Digest, Found};
use super::kinds::MAX_PARTS;
use crate::comparator::Order;
use crate::error::Section;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::format::frame::{self, TRAILER_LEN};
use crate::format::page;
use crate::read::file::TableFile;
use crate::repair::progress::Reporter;

/// Bytes that are searched at once where no frame is known to begin.
const WINDOW: u64 = 4 << 20;

/// Bytes read at once where few of them are needed.
pub(super) const PAGE: usize = 64 << 10;

/// Bytes read at once where larger reads fail: a disk's sector.
pub(super) const SECTOR: u64 = 4 << 10;

/// The sound frames of a file, and how far the search for them has come.
pub(crate) struct Survey<'a> {
    pub(super) file: &'a TableFile,
    pub(super) order: &'a Order,
    /// By their offsets, without overlaps.
    pub(crate) frames: BTreeMap<u64, Found>,
    pub(super) work: KeyWork,
    /// Bytes of keys that may still be held in memory.
    ///
    /// Raw and Snappy blocks cannot come near it: a block is at most 64 / 3 of its stored size, and at most two of its keys are
    /// held. Other codecs make a key of megabytes from a few bytes.
    pub(super) room: u64,
    /// Whether a search that finds nothing goes on to the end of the file, and not for one window only.
    is_patient: bool,
    /// Where the page begins that was read last, and its bytes.
    page: (u64, Bytes),
    /// Bytes that may still be gone through in vain where a frame could begin. Then each such walk ends after a page.
    walk_budget: u64,
    /// Where the window begins in which frames were searched for last, by their checksums, and its bytes.
    window: (u64, Bytes),
    /// Frames of the window that were not examined yet, the first of them last.
    pending: Vec<(u32, u32)>,
    /// Bytes that may still be examined in the window: a hostile one could hold frames within frames.
    window_budget: u64,
}

impl<'a> Survey<'a> {
    /// If it is not patient, a file that is no table takes no longer than one window.
    pub(crate) fn new(file: &'a TableFile, order: &'a Order, is_patient: bool) -> Survey<'a> {
        let walk_budget = file.size.saturating_mul(4).saturating_add(1 << 20);
        Survey {
            file,
            order,
            frames: BTreeMap::new(),
            work: KeyWork::of_file(),
            room: file.size.saturating_mul(64).saturating_add(16 << 20),
            is_patient,
            page: (0, Bytes::new()),
            walk_budget: if is_patient { walk_budget } else { 0 },
            window: (0, Bytes::new()),
            pending: Vec::new(),
            window_budget: 0,
        }
    }

    /// Surveys the whole file, unless the callback of `progress` ends the run early.
    pub(super) fn run(&mut self, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        if let Ok(footer) = self.file.footer() {
            self.follow(footer, progress)?;
        }
        let mut done: u64 = self.frames.values().map(Found::len).sum();
        for gap in self.gaps() {
            let Range { start, end } = gap;
            let reached = |at| progress.reach(done + (at - start));
            self.scan(gap, reached);
            done += end - start;
            progress.reach(done)?;
        }
        progress.reach(self.file.size)
    }

    /// Finds what footer, index and metaindex lead to. They are trusted only as far as checksums confirm them: the
    /// footer has none of its own, and a damaged index may still lead to blocks that no search finds.
    fn follow(&mut self, footer: Footer, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        let (start, size) = (self.file.footer_offset(), self.file.size);
        // Elsewhere, the scan finds it: one that lost bytes would reach into the block before it.
        if footer.blocks_end() == Some(start) {
            let found = self.footer(start, size);
            self.insert(found);
        }
        let (mut end_before, mut done) = (0, 0);
        for handle in self.handles_in(footer.index) {
            // Blocks in file order, so that no byte is read twice.
            let Some(end) = handle.end().filter(|_| handle.offset >= end_before) else {
                break;
            };
            end_before = end;
            done += self.place(handle);
            progress.reach(done)?;
        }
        let parts = self.handles_in(footer.metaindex).into_iter();
        let parts = parts.take(MAX_PARTS);
        for handle in [footer.index, footer.metaindex].into_iter().chain(parts) {
            self.place(handle);
        }
        ControlFlow::Continue(())
    }

    /// Adds frames, unless they overlap one that is there.
    fn insert(&mut self, found: impl IntoIterator<Item = Found>) {
        for found in found {
            let before = self.before(found.range.end).next();
            if before.is_none_or(|before| before.range.end <= found.range.start) {
                self.frames.insert(found.range.start, found);
            }
        }
    }

    /// Adds the frame at `handle` if its checksum is right. Returns its length.
    fn place(&mut self, handle: BlockHandle) -> u64 {
        let frame = self.frame(handle);
        let found = frame.and_then(|frame| self.inspect(handle.offset, &frame));
        let len = found.as_ref().map_or(0, Found::len);
        self.insert(found);
        len
    }

    /// The frame at `handle`. Its checksum may be wrong.
    fn frame(&self, handle: BlockHandle) -> Option<Bytes> {
        handle.end().filter(|&end| end <= self.file.size)?;
        self.file.read_frame(handle).ok()
    }

    /// The payload of the frame at `handle`, decompressed. Its checksum may be wrong.
    pub(super) fn payload(&self, handle: BlockHandle) -> Option<Bytes> {
        frame::open(&self.frame(handle)?).ok()
    }

    /// The entries of the block at `handle`, whose checksum may be wrong.
    pub(super) fn entries(&self, handle: BlockHandle) -> Option<BlockCursor<Bytes>> {
        let block = Block::parse(self.payload(handle)?).ok()?;
        Some(BlockCursor::new(block))
    }

    /// The handles in the block at `handle`, up to the first value that is none.
    pub(super) fn handles_in(&self, handle: BlockHandle) -> Vec<BlockHandle> {
        let mut entries = self.entries(handle);
        let next = || {
            let entries = entries.as_mut()?;
            let is_there = entries.next().ok()?;
            Some(BlockHandle::decode(entries.value()).filter(|_| is_there)?.0)
        };
        std::iter::from_fn(next).collect()
    }

    /// The frame at `handle`, if it has moved by so many bytes.
    pub(super) fn at(&self, handle: BlockHandle, by: u64) -> Option<&Found> {
        let range = moved(handle, by)?;
        let found = self.frames.get(&range.start);
        found.filter(|found| found.range == range)
    }

    /// The frames before `offset`, the last first.
    pub(super) fn before(&self, offset: u64) -> impl Iterator<Item = &Found> {
        self.frames.range(..offset).rev().map(|(_, found)| found)
    }

    /// The frames from `offset` on.
    pub(super) fn from(&self, offset: u64) -> impl Iterator<Item = &Found> {
        self.frames.range(offset..).map(|(_, found)| found)
    }

    /// Those that hold data, or cannot be told from data.
    pub(crate) fn data(&self) -> impl Iterator<Item = &Found> {
        self.frames.values().filter(|found| found.is_data())
    }

    /// The parts of the file in which no frame was found, without the padding of an aligned table.
    pub(super) fn gaps(&self) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for next in self.frames.values().map(Some).chain([None]) {
            let next_start = next.map_or(self.file.size, |next| next.range.start);
            let start = at + self.padding(at..next_start, next);
            if start < next_start {
                gaps.push(start..next_start);
            }
            at = next.map_or(next_start, |next| next.range.end);
        }
        gaps
    }

    /// Bytes of padding at the front of `gap`, before the frame `next`. A lost block may be zeros up to a page, too: so the
    /// gap is all padding only if `next` may hold data and needs that.
    fn padding(&self, gap: Range<u64>, next: Option<&Found>) -> u64 {
        let (padding, len) = (page::to_boundary(gap.start), gap.end - gap.start);
        let needs_padding = |next: &Found| {
            next.is_data() && !next.digest.is_list && page::padding(gap.start, next.len()) > 0
        };
        let has_room = padding < len || padding == len && next.is_some_and(needs_padding);
        let is_padding = gap.start > 0 && padding > 0 && has_room && {
            let bytes = self.file.read(gap.start, padding as usize);
            bytes.is_ok_and(|bytes| page::is_padding(gap.start, &bytes))
        };
        if is_padding { padding } else { 0 }
    }

    /// The stretches of frames that follow each other without a gap.
    pub(super) fn runs(&self) -> Vec<Range<u64>> {
        let gaps = self.gaps();
        let starts = once(0).chain(gaps.iter().map(|gap| gap.end));
        let ends = gaps.iter().map(|gap| gap.start).chain([self.file.size]);
        let runs = starts.zip(ends).map(|(start, end)| start..end);
        runs.filter(|run| !run.is_empty()).collect()
    }
}

impl Survey<'_> {
    /// Adds all frames of `range` that can be found. Calls `reached` with the offsets up to which nothing is left to find; it may
    /// end the scan there.
    pub(crate) fn scan(
        &mut self,
        range: Range<u64>,
        mut reached: impl FnMut(u64) -> ControlFlow<()>,
    ) {
        let mut at = range.start;
        self.window = (at, Bytes::new());
        self.pending.clear();
        while let Some(found) = self
            .footer(at, range.end)
            .or_else(|| self.walk(at, range.end))
            .or_else(|| self.search(at, range.end, &mut reached))
        {
            at = found.range.end;
            self.insert([found]);
            if reached(at).is_break() {
                break;
            }
        }
    }

    /// The footer that begins at `at`: it comes right after a frame.
    fn footer(&mut self, at: u64, end: u64) -> Option<Found> {
        let range = at..at.saturating_add(FOOTER_LEN as u64);
        let digest = Digest {
            footer: Some(Footer::decode(self.page_from(at).get(..FOOTER_LEN)?).ok()?),
            ..Digest::default()
        };
        let found = Found::new(range, Section::Footer, digest);
        (found.range.end <= end).then_some(found)
    }

    /// The frame that begins at `at`, or after the padding there, and ends at or before `end`.
    fn walk(&mut self, at: u64, end: u64) -> Option<Found> {
        let len = page::to_boundary(at);
        let page = self.page_from(at);
        let padding = page.get(..len as usize).unwrap_or_default();
        let is_padded = len > 0 && page::is_padding(at, padding);
        let padded = is_padded.then(|| self.walk_from(at + len, end));
        padded.flatten().or_else(|| self.walk_from(at, end))
    }

    fn walk_from(&mut self, start: u64, end: u64) -> Option<Found> {
        let end = match self.walk_budget {
            0 => end.min(start.saturating_add(PAGE as u64)),
            _ => end,
        };
        let (mut register, mut at) = (u32::MAX, start);
        while at + (TRAILER_LEN as u64) <= end {
            let mut bytes = self.page_from(at);
            bytes.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
            if let Some(len) = frame_end(&mut register, &bytes) {
                let len = (at - start) as usize + len;
                return self.inspect(start, &self.file.read(start, len).ok()?);
            }
            at += bytes.len().saturating_sub(TRAILER_LEN - 1).max(1) as u64;
        }
        self.walk_budget = self.walk_budget.saturating_sub(at - start);
        None
    }

    /// The first frame at or after `at` that ends at or before `end`. Also `None` if `reached` ends the search, or if
    /// patience does.
    ///
    /// A frame of up to half a window is found wherever it begins.
    fn search(
        &mut self,
        at: u64,
        end: u64,
        reached: &mut impl FnMut(u64) -> ControlFlow<()>,
    ) -> Option<Found> {
        loop {
            while let Some((from, to)) = self.pending.pop() {
                let start = self.window.0 + u64::from(from);
                let left = self.window_budget.checked_sub(u64::from(to - from));
                let Some(left) = left.filter(|_| start >= at) else {
                    continue;
                };
                self.window_budget = left;
                let frame = self.window.1.slice(from as usize..to as usize);
                let found = self.inspect(start, &frame);
                // If the content cannot be read, only the checksum speaks for the frame, and that is right by chance now
                // and then: its place must be likely, too.
                let found = found.filter(|found| start == at || !found.is_unreadable());
                if found.is_some() {
                    return found;
                }
            }
            let (mut start, searched) = (at, self.window.1.len() as u64);
            if searched > 0 {
                if self.window.0 + searched >= end || !self.is_patient {
                    return None;
                }
                start = at.max(self.window.0 + WINDOW / 2);
            }
            if start >= end || reached(start).is_break() {
                return None;
            }
            let bytes = read_what_can_be(self.file, start..end.min(start + WINDOW));
            self.pending = frames_by_checksum(&bytes);
            self.window = (start, bytes);
            self.window_budget = 16 * WINDOW;
        }
    }

    /// The bytes from `at` on: those of a footer and more, or all up to the end of the file.
    fn page_from(&mut self, at: u64) -> Bytes {
        let size = self.file.size;
        let has = self.page.0..=self.page.0 + self.page.1.len() as u64;
        let is_enough = at + FOOTER_LEN as u64 <= *has.end() || *has.end() == size;
        if !(has.contains(&at) && is_enough) {
            let end = size.min(at.saturating_add(PAGE as u64));
            self.page = (at, read_what_can_be(self.file, at.min(end)..end));
        }
        self.page.1.slice((at - self.page.0) as usize..)
    }
}

/// Where the frame at `handle` lies if it has moved by so many bytes, counted round and round.
pub(super) fn moved(handle: BlockHandle, by: u64) -> Option<Range<u64>> {
    let offset = handle.offset.wrapping_add(by);
    let end = BlockHandle { offset, ..handle }.end()?;
    Some(offset..end)
}

/// The one of `runs`, which ascend, that a frame belongs to.
pub(super) fn run_of<'r>(runs: &'r [Range<u64>], found: &Found) -> Option<&'r Range<u64>> {
    let after = runs.partition_point(|run| run.end <= found.range.start);
    runs.get(after).filter(|run| run.start <= found.range.start)
}

/// The bytes at `range`, a few megabytes at most, with zeros for what cannot be read.
fn read_what_can_be(file: &TableFile, range: Range<u64>) -> Bytes {
    let read = |at: u64, end: u64| file.read(at, (end - at) as usize);
    if let Ok(bytes) = read(range.start, range.end) {
        return bytes;
    }
    let mut bytes = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min((at / SECTOR + 1) * SECTOR);
        match read(at, end) {
            Ok(sector) => bytes.extend_from_slice(&sector),
            Err(_) => bytes.resize(bytes.len() + (end - at) as usize, 0),
        }
        at = end;
    }
    bytes.into()
}
