//! Surveys a damaged file: which sound blocks there are, and where its index is.
//!
//! Follows footer, metaindex and index as far as checksums confirm them, scans the gaps that this leaves (see `scan.rs`),
//! and then looks for an index among the blocks found (see `recognise.rs`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use super::found::{Content, Digest, Found, inspect, key_room};
use super::recognise::block_around;
use super::recognise::names_part;
use super::scan::{Patience, Scanner};
use super::{IndexState, SalvageReport};
use crate::comparator::Order;
use crate::error::Section;
use crate::format::block::Block;
use crate::format::block_check::KeyWork;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame;
use crate::format::properties::Properties;
use crate::read::file::TableFile;
use crate::read::index::{Index, IndexPlace};
use crate::repair::progress::Reporter;

/// What was found where, without overlaps.
#[derive(Debug, Default)]
pub(super) struct Map {
    pub(super) frames: BTreeMap<u64, Found>,
    /// Where the frames begin that are not filters.
    others: BTreeSet<u64>,
    /// Length of all frames together.
    bytes: u64,
}

impl Map {
    /// Adds a frame, unless it overlaps one that is there.
    fn insert(&mut self, found: Found) {
        let before = self.frames.range(..found.range.end).next_back();
        if before.is_none_or(|(_, before)| before.range.end <= found.range.start) {
            self.bytes += found.len();
            if found.no_data().is_none() {
                self.others.insert(found.range.start);
            }
            self.frames.insert(found.range.start, found);
        }
    }

    pub(super) fn at(&self, handle: BlockHandle) -> Option<&Found> {
        let found = self.frames.get(&handle.offset)?;
        (Some(found.range.end) == handle.end()).then_some(found)
    }

    /// Whether nothing but filters lies in `range`, and the frame that begins at `itself`.
    pub(super) fn has_only_filters(&self, range: Range<u64>, itself: u64) -> bool {
        let mut before_end = self.others.range(..range.end).rev();
        let last = before_end.find(|&&start| start != itself);
        let last = last.and_then(|start| self.frames.get(start));
        last.is_none_or(|last| last.range.end <= range.start)
    }

    /// The ranges below `end` that nothing was found in.
    fn gaps(&self, end: u64) -> Vec<Range<u64>> {
        gaps(self.frames.values().map(|found| found.range.clone()), end)
    }
}

/// The parts of `0..end` that ascending `ranges` do not cover.
pub(super) fn gaps(ranges: impl Iterator<Item = Range<u64>>, end: u64) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for range in ranges.chain(std::iter::once(end..end)) {
        if range.start > at {
            gaps.push(at..range.start);
        }
        at = at.max(range.end);
    }
    gaps
}

/// Finds all sound blocks of a file, and its index if there is one.
pub(super) struct Survey<'a> {
    pub(super) file: &'a TableFile,
    pub(super) order: &'a Order,
    patience: Patience,
    pub(super) map: Map,
    pub(super) index: Option<Index>,
    pub(super) index_state: IndexState,
    /// Where the index begins.
    pub(super) index_offset: u64,
    /// Bytes of keys that may still be held, of blocks that handles lead to.
    room: u64,
    work: KeyWork,
    /// What the table says of itself.
    pub(super) properties: Option<Properties>,
    /// Parts that are known not to be data.
    pub(super) set_aside: Vec<(Section, Range<u64>)>,
}

impl<'a> Survey<'a> {
    pub(super) fn new(file: &'a TableFile, order: &'a Order, patience: Patience) -> Survey<'a> {
        Survey {
            file,
            order,
            patience,
            map: Map::default(),
            index: None,
            index_state: IndexState::Lost,
            index_offset: 0,
            room: key_room(file.size),
            work: KeyWork::of_file(),
            properties: None,
            set_aside: Vec::new(),
        }
    }

    /// Surveys the whole file, unless the callback of `progress` ends the run early.
    pub(super) fn run(&mut self, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        self.find_blocks(progress)?;
        // If there are several, keep those of the last table. A block that the index lists is data, even if it looks like
        // properties.
        let is_data = |found: &Found| {
            let index = self.index.as_ref();
            index.is_some_and(|index| block_around(index, found.handle()).is_some())
        };
        let found = self
            .map
            .frames
            .values()
            .rev()
            .filter(|found| found.no_data() == Some(Section::Properties) && !is_data(found));
        let mut payloads = found.filter_map(|found| self.payload(found.handle()));
        self.properties = payloads.find_map(|payload| Properties::decode(&payload).ok());
        progress.reach(self.file.size)
    }

    fn find_blocks(&mut self, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        if let Ok(footer) = self.file.footer() {
            self.follow(footer, progress)?;
        }
        let index_says_all = self
            .index
            .as_ref()
            .is_some_and(|index| (0..index.len()).all(|i| self.map.at(index.handle(i)).is_some()));
        if index_says_all {
            return ControlFlow::Continue(());
        }
        let mut scanner = Scanner::new(self.file, self.order, self.patience);
        let mut done = self.map.bytes;
        for gap in self.map.gaps(self.file.size) {
            let Range { start, end } = gap;
            let frames = scanner.scan(gap, |at| progress.reach(done + (at - start)));
            frames.into_iter().for_each(|found| self.map.insert(found));
            done += end - start;
            progress.reach(done)?;
        }
        if self.index.is_none() {
            self.look_for_index();
        }
        let mut set_aside = self.set_aside.iter();
        let has_metaindex = set_aside.any(|(section, _)| *section == Section::Metaindex);
        // Without the index, an empty block may have been taken for the metaindex.
        if self.index.is_none() || !has_metaindex {
            self.look_for_metaindex();
        }
        ControlFlow::Continue(())
    }

    /// Finds what footer, metaindex and index lead to. They are believed only as far as checksums confirm them: the
    /// footer has none of its own.
    fn follow(&mut self, footer: Footer, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        let footer_at = self.file.footer_offset();
        let footer_range = footer_at..self.file.size;
        self.set_aside.push((Section::Footer, footer_range));
        if self.take_metaindex(footer.metaindex) {
            self.take_named(&footer);
        }
        // In whichever order its keys are: that is for the plan to judge.
        let index = self.index_in_order(footer.index, footer.index.offset, None);
        let Some(index) = index else {
            let payload = self.read(footer.index).map(|frame| frame::open(&frame));
            if let Some(Ok(payload)) = payload {
                self.follow_handles(payload, progress)?;
            }
            self.follow_displaced(footer);
            return ControlFlow::Continue(());
        };
        self.set_aside(Section::Index, footer.index);
        for i in 0..index.len() {
            self.place(index.handle(i));
            progress.reach(self.map.bytes)?;
        }
        // An index that lies elsewhere and leads to no sound block may be none. One that leads to filters is the
        // metaindex: if a footer lost bytes after its handles, they are read from a byte too early.
        let leads_to_data = (0..index.len()).any(|i| {
            let found = self.map.at(index.handle(i));
            found.is_some_and(|found| found.no_data().is_none())
        });
        let is_in_place = footer.blocks_end() == Some(footer_at);
        if leads_to_data
            || (is_in_place && (index.len() > 0 || self.is_empty_table(footer.metaindex)))
        {
            self.set_aside_beside(footer.metaindex, &index);
            self.settle_on(index, footer.index, IndexState::Sound);
        }
        ControlFlow::Continue(())
    }

    /// Whether nothing lies in the file but index, footer, the metaindex at `metaindex`, and what that names.
    fn is_empty_table(&mut self, metaindex: BlockHandle) -> bool {
        let mut ranges: Vec<Range<u64>> = self
            .set_aside
            .iter()
            .map(|(_, range)| range.clone())
            .collect();
        for handle in self.handles_in(metaindex).into_iter().chain([metaindex]) {
            self.place(handle);
            ranges.extend(self.map.at(handle).map(|found| found.range.clone()));
        }
        ranges.sort_by_key(|range| range.start);
        gaps(ranges.into_iter(), self.file.size).is_empty()
    }

    /// Sets aside the sound block at `metaindex` and the sound blocks that it names, except those that `index` lists.
    fn set_aside_beside(&mut self, metaindex: BlockHandle, index: &Index) {
        for handle in self.handles_in(metaindex).into_iter().chain([metaindex]) {
            let is_data = block_around(index, handle).is_some();
            let found = self
                .map
                .at(handle)
                .filter(|found| !is_data && !self.is_set_aside(found));
            if found.is_some_and(|found| found.no_data().is_none()) {
                self.set_aside(Section::Metaindex, handle);
            }
        }
    }

    /// Settles on the index at `handle`.
    pub(super) fn settle_on(&mut self, index: Index, handle: BlockHandle, state: IndexState) {
        self.index = Some(index);
        self.index_state = state;
        self.index_offset = handle.offset;
    }

    /// Looks near the footer for an index that is not where the footer says, in a file that lost or gained bytes before it.
    fn follow_displaced(&mut self, footer: Footer) {
        let Some(end) = footer.blocks_end() else {
            return;
        };
        let by = self.file.footer_offset().wrapping_sub(end);
        let displaced = |handle: BlockHandle| BlockHandle {
            offset: handle.offset.wrapping_add(by),
            ..handle
        };
        let handle = displaced(footer.index);
        if by != 0
            && let Some(index) = self.sound_index_at(handle, u64::MAX)
        {
            self.set_aside(Section::Index, handle);
            self.take_metaindex(displaced(footer.metaindex));
            // The index of an empty table says nothing about blocks that are here.
            if index.len() > 0 {
                self.settle_on(index, handle, IndexState::Found);
            }
        }
    }

    /// The block at `handle` as an index, if it is sound and its blocks end at or before `data_end`.
    pub(super) fn sound_index_at(&self, handle: BlockHandle, data_end: u64) -> Option<Index> {
        self.index_in_order(handle, data_end, Some(self.order))
    }

    fn index_in_order(
        &self,
        handle: BlockHandle,
        data_end: u64,
        order: Option<&Order>,
    ) -> Option<Index> {
        let place = IndexPlace {
            offset: handle.offset,
            data_end,
            file_size: self.file.size,
        };
        Index::decode(self.payload(handle)?, place, order).ok()
    }

    /// Takes the handles of a damaged index for hints, as far as they make sense.
    fn follow_handles(&mut self, payload: Bytes, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        let Ok(block) = Block::parse(payload) else {
            return ControlFlow::Continue(());
        };
        let mut cursor = BlockCursor::new(block);
        let mut end_before = 0;
        while let Ok(true) = cursor.next() {
            let Some((handle, _)) = BlockHandle::decode(cursor.value()) else {
                break;
            };
            match handle.end() {
                // Blocks in file order, so that no byte is read twice.
                Some(end) if handle.offset >= end_before && end <= self.file.size => {
                    end_before = end;
                    self.place(handle);
                    progress.reach(self.map.bytes)?;
                }
                _ => break,
            }
        }
        ControlFlow::Continue(())
    }

    /// Sets the block at `handle` aside as the metaindex, if it looks like one.
    fn take_metaindex(&mut self, handle: BlockHandle) -> bool {
        self.place(handle);
        let found = self.map.at(handle);
        let is_one = found.is_some_and(|found| match &found.content {
            Content::Entries(digest) if digest.entries > 0 => {
                digest.all_handles && names_part(&digest.first)
            }
            Content::Entries(_) => true,
            _ => false,
        });
        if is_one {
            self.set_aside(Section::Metaindex, handle);
        }
        is_one
    }

    /// Sets aside the filters that the metaindex names, and other blocks, such as properties, that lie right before metaindex
    /// and index.
    fn take_named(&mut self, footer: &Footer) {
        let metaindex = footer.metaindex;
        let mut handles = self.handles_in(metaindex);
        handles.sort_by_key(|handle| std::cmp::Reverse(handle.offset));
        let index_is_beside = footer.index.end() == Some(metaindex.offset);
        let mut beside = if index_is_beside {
            footer.index.offset
        } else {
            metaindex.offset
        };
        for handle in handles {
            self.place(handle);
            let found = self.map.at(handle);
            let section = found.map_or(Some(Section::Filter), Found::no_data);
            if handle.end().is_none_or(|end| end > metaindex.offset) {
                continue;
            }
            if let Some(section) = section {
                self.set_aside(section, handle);
            } else if handle.end() == Some(beside) {
                self.set_aside(Section::Metaindex, handle);
            }
            if handle.end() == Some(beside) {
                beside = handle.offset;
            }
        }
    }

    pub(super) fn set_aside(&mut self, section: Section, handle: BlockHandle) {
        if let Some(end) = handle.end() {
            self.set_aside.push((section, handle.offset..end));
        }
    }

    pub(super) fn is_set_aside(&self, found: &Found) -> bool {
        self.set_aside
            .iter()
            .any(|(_, range)| *range == found.range)
    }

    /// The frame at `handle`, if the file has it.
    fn read(&self, handle: BlockHandle) -> Option<Bytes> {
        handle.end().filter(|&end| end <= self.file.size)?;
        self.file.read_frame(handle).ok()
    }

    /// Adds the frame at `handle` to the map if it is sound.
    fn place(&mut self, handle: BlockHandle) {
        if let (Some(frame), Some(end)) = (self.read(handle), handle.end())
            && let Ok(content) = inspect(&frame, self.order, &mut self.work)
        {
            let range = handle.offset..end;
            let found = Found { range, content };
            self.map.insert(found.within(&mut self.room));
        }
    }

    /// The block at `handle`, if it is sound.
    pub(super) fn payload(&self, handle: BlockHandle) -> Option<Bytes> {
        let frame = self.read(handle)?;
        frame::verify(&frame).ok()?;
        frame::open(&frame).ok()
    }

    /// The handles in the sound block at `handle`, which is a metaindex and holds few.
    pub(super) fn handles_in(&self, handle: BlockHandle) -> Vec<BlockHandle> {
        const MOST: usize = 16;
        let mut handles = Vec::new();
        if let Some(Ok(block)) = self.payload(handle).map(Block::parse) {
            let mut cursor = BlockCursor::new(block);
            while let (Ok(true), true) = (cursor.next(), handles.len() < MOST) {
                handles.extend(BlockHandle::decode(cursor.value()).map(|(handle, _)| handle));
            }
        }
        handles
    }

    /// A report of what was surveyed, before anything is copied.
    pub(super) fn report(self) -> SalvageReport {
        let mut set_aside = self.set_aside;
        let known: HashSet<u64> = set_aside.iter().map(|(_, range)| range.start).collect();
        let others = self
            .map
            .frames
            .into_values()
            .filter(|found| !known.contains(&found.range.start));
        set_aside.extend(others.filter_map(|found| Some((found.no_data()?, found.range))));
        set_aside.sort_by_key(|(_, range)| range.start);
        SalvageReport {
            file_bytes: self.file.size,
            index: self.index_state,
            set_aside,
            ..SalvageReport::default()
        }
    }

    /// The data blocks found.
    pub(super) fn data(&self) -> impl Iterator<Item = (&Found, &Digest)> {
        self.map
            .frames
            .values()
            .filter(|found| !self.is_set_aside(found))
            .filter_map(|found| Some((found, found.digest()?)))
    }

    /// The data blocks below `offset`, the last first.
    pub(super) fn data_before(&self, offset: u64) -> impl Iterator<Item = &Found> {
        let before = self
            .map
            .frames
            .range(..offset)
            .rev()
            .map(|(_, found)| found);
        before.filter(|found| found.digest().is_some() && !self.is_set_aside(found))
    }
}
