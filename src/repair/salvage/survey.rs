//! Surveys a damaged file: which frames there are. Follows the footer as far as checksums confirm what it leads to, and
//! scans the rest (see `scan.rs`) unless the index says that nothing is missing.

use std::collections::BTreeMap;
use std::iter::once;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use super::found::Found;
use super::kinds::MAX_PARTS;
use crate::comparator::Order;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::{frame, page};
use crate::read::file::TableFile;
use crate::repair::progress::Reporter;

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
    pub(super) is_patient: bool,
    /// Where the page begins that was read last, and its bytes.
    pub(super) page: (u64, Bytes),
    /// Bytes that may still be gone through in vain where a frame could begin. Then each such walk ends after a page.
    pub(super) walk_budget: u64,
    /// Where the window begins in which frames were searched for last, by their checksums, and its bytes.
    pub(super) window: (u64, Bytes),
    /// Frames of the window that were not examined yet, the first of them last.
    pub(super) pending: Vec<(u32, u32)>,
    /// Bytes that may still be examined in the window: a hostile one could hold frames within frames.
    pub(super) window_budget: u64,
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
    pub(super) fn insert(&mut self, found: impl IntoIterator<Item = Found>) {
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
        let mut handles = Vec::new();
        if let Some(mut entries) = self.entries(handle) {
            while let Ok(true) = entries.next()
                && let Some((handle, _)) = BlockHandle::decode(entries.value())
            {
                handles.push(handle);
            }
        }
        handles
    }

    /// The frame that is just `range`.
    pub(super) fn at(&self, range: &Range<u64>) -> Option<&Found> {
        let found = self.frames.get(&range.start);
        found.filter(|found| found.range == *range)
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
