//! Surveys a damaged file: which frames there are. Follows the footer as far as checksums confirm what it leads to, and
//! scans the rest (see `scan.rs`) unless the index says that nothing is missing.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use super::found::{Content, Found, inspect, key_room};
use super::index::Placement;
use super::kinds::{Kinds, MOST_PARTS};
use super::scan::{Patience, Scanner};
use crate::comparator::Order;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::pieces::Pieces;
use crate::format::{frame, page};
use crate::read::file::TableFile;
use crate::repair::progress::Reporter;

/// The sound frames of a file.
pub(super) struct Survey<'a> {
    pub(super) file: &'a TableFile,
    pub(super) order: &'a Order,
    patience: Patience,
    /// By their offsets, without overlaps.
    pub(super) frames: BTreeMap<u64, Found>,
    /// Bytes of keys that may still be held, of blocks that handles lead to.
    room: u64,
    work: KeyWork,
    /// Length of all frames together.
    bytes: u64,
}

impl<'a> Survey<'a> {
    pub(super) fn new(file: &'a TableFile, order: &'a Order, patience: Patience) -> Survey<'a> {
        Survey {
            file,
            order,
            patience,
            frames: BTreeMap::new(),
            room: key_room(file.size),
            work: KeyWork::of_file(),
            bytes: 0,
        }
    }

    /// Surveys the whole file, unless the callback of `progress` ends the run early.
    pub(super) fn run(&mut self, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        if let Ok(footer) = self.file.footer() {
            self.follow(footer, progress)?;
        }
        let kinds = Kinds::of(self);
        let is_whole = kinds.index.as_ref().is_some_and(|index| {
            index.is_in_place && Placement::of(self, &kinds, index, false).is_whole()
        });
        if !is_whole {
            let mut scanner = Scanner::new(self.file, self.order, self.patience);
            let mut done = self.bytes;
            for gap in self.gaps() {
                let Range { start, end } = gap;
                let frames = scanner.scan(gap, |at| progress.reach(done + (at - start)));
                frames.into_iter().for_each(|found| self.insert(found));
                done += end - start;
                progress.reach(done)?;
            }
        }
        progress.reach(self.file.size)
    }

    /// Finds what footer, index and metaindex lead to. They are trusted only as far as checksums confirm them: the
    /// footer has none of its own, and a damaged index may still lead to blocks that no search finds.
    fn follow(&mut self, footer: Footer, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        let range = self.file.footer_offset()..self.file.size;
        // Elsewhere, the scan finds it: one that lost bytes would reach into the block before it.
        if footer.blocks_end() == Some(range.start) {
            let content = Content::Footer(footer);
            self.insert(Found { range, content });
        }
        let mut end_before = 0;
        for handle in self.handles_in(footer.index) {
            // Blocks in file order, so that no byte is read twice.
            let Some(end) = handle.end().filter(|_| handle.offset >= end_before) else {
                break;
            };
            end_before = end;
            self.place(handle);
            progress.reach(self.bytes)?;
        }
        self.place(footer.index);
        self.place(footer.metaindex);
        let parts = self.handles_in(footer.metaindex);
        parts
            .into_iter()
            .take(MOST_PARTS)
            .for_each(|part| self.place(part));
        ControlFlow::Continue(())
    }

    /// Adds a frame, unless it overlaps one that is there.
    fn insert(&mut self, found: Found) {
        let before = self.frames.range(..found.range.end).next_back();
        if before.is_none_or(|(_, before)| before.range.end <= found.range.start) {
            self.bytes += found.range.end - found.range.start;
            self.frames.insert(found.range.start, found);
        }
    }

    /// Adds the frame at `handle` if its checksum is right.
    fn place(&mut self, handle: BlockHandle) {
        if let (Some(frame), Some(end)) = (self.read(handle), handle.end())
            && let Ok(content) = inspect(handle.offset, &frame, self.order, &mut self.work)
        {
            let range = handle.offset..end;
            let found = Found { range, content }.within(&mut self.room);
            self.insert(found);
        }
    }

    /// The frame at `handle`, if the file has it.
    pub(super) fn read(&self, handle: BlockHandle) -> Option<Bytes> {
        handle.end().filter(|&end| end <= self.file.size)?;
        self.file.read_frame(handle).ok()
    }

    /// The block at `handle`, whose checksum may be wrong.
    pub(super) fn block(&self, handle: BlockHandle) -> Option<Block<Bytes>> {
        Block::parse(self.payload(handle)?).ok()
    }

    /// The payload of the frame at `handle`, decompressed.
    pub(super) fn payload(&self, handle: BlockHandle) -> Option<Bytes> {
        frame::open(&self.read(handle)?).ok()
    }

    /// The pieces that `found` holds, if it does.
    pub(super) fn pieces(&self, found: &Found) -> Option<Pieces> {
        if !matches!(found.content, Content::Pieces) {
            return None;
        }
        Pieces::decode(self.payload(found.handle())?).ok()?
    }

    /// The handles in the block at `handle`, up to the first value that is none.
    pub(super) fn handles_in(&self, handle: BlockHandle) -> Vec<BlockHandle> {
        let mut handles = Vec::new();
        if let Some(block) = self.block(handle) {
            let mut cursor = BlockCursor::new(block);
            while let Ok(true) = cursor.next()
                && let Some((handle, _)) = BlockHandle::decode(cursor.value())
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
    /// gap is all padding only if `next` holds data and needs that.
    fn padding(&self, gap: Range<u64>, next: Option<&Found>) -> u64 {
        let (padding, len) = (page::to_boundary(gap.start), gap.end - gap.start);
        let needs_padding = |next: &Found| {
            let is_data = match &next.content {
                Content::Entries(digest) => !digest.is_list && next.data().is_some(),
                content => matches!(content, Content::Unreadable(_)),
            };
            is_data && page::padding(gap.start, next.range.end - next.range.start) > 0
        };
        let may_be_padding = gap.start > 0
            && padding > 0
            && (padding < len || padding == len && next.is_some_and(needs_padding));
        let is_padding = may_be_padding && {
            let bytes = self.file.read(gap.start, padding as usize);
            bytes.is_ok_and(|bytes| page::is_padding(gap.start, &bytes))
        };
        if is_padding { padding } else { 0 }
    }

    /// The stretches of frames that follow each other without a gap.
    pub(super) fn runs(&self) -> Vec<Range<u64>> {
        let mut at = 0;
        let mut runs = Vec::new();
        let end = self.file.size..self.file.size;
        for gap in self.gaps().into_iter().chain([end]) {
            if at < gap.start {
                runs.push(at..gap.start);
            }
            at = gap.end;
        }
        runs
    }
}
