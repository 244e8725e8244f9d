//! Copies what can be read of a damaged table into a new one.
//!
//! Three steps: a *survey* finds blocks whose checksums are right, by the index where that is sound and by
//! scanning where it is not (see `scan.rs`); a *plan* decides which of them are the table's data, and in which order;
//! *copying* reads those once more and adds their entries to the builder.

mod scan;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use crate::builder::TableBuilder;
use crate::comparator::Order;
use crate::db_table::DbTableBuilder;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::file::TableFile;
use crate::format::block::Block;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame::{self, TRAILER_LEN};
use crate::index::{Index, IndexPlace};
use crate::internal_key::{self, InternalKey};
use crate::publish::Destination;
use crate::source::Source;

pub(crate) use scan::Scanner;
use scan::{Content, Found, SECTOR, Summary, inspect};

// ---- What a caller sees -------------------------------------------------------------------------

/// What [`salvage`] copied, and what is lost.
///
/// Its [`Display`](fmt::Display) is for people: a line of figures and a line for each range that is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Size of the damaged file.
    pub file_bytes: u64,
    /// Entries copied.
    pub entries: u64,
    /// Those of them whose block the index led to; the rest was found by scanning.
    pub entries_by_index: u64,
    /// Data blocks copied.
    pub data_blocks: u64,
    /// What became of the index.
    pub index: IndexState,
    /// Entries that could be read, but were not written since they are out of order: of blocks that some
    /// older table left behind, say.
    pub entries_out_of_order: u64,
    /// The ranges of the file from which nothing was copied although there was, or may have been, data,
    /// in the order of the keys around them.
    pub lost: Vec<LostRange>,
    /// Sound blocks without data that were set aside, and what they were taken for.
    pub set_aside: Vec<(Section, Range<u64>)>,
}

/// Part of a file whose entries are lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// Offsets in the file.
    pub range: Range<u64>,
    /// Why it could not be copied.
    pub reason: String,
    /// How many entries it has, where that can be told.
    pub entries: Option<u64>,
    /// The last key copied before it: all lost keys lie behind this one. `None`: it is in front of all.
    pub after: Option<Bytes>,
    /// The first key copied after it: all lost keys lie before this one. `None`: it is behind all.
    pub before: Option<Bytes>,
}

/// What became of a damaged table's index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexState {
    /// The footer led to it, and it is sound: it says which blocks there are.
    Sound,
    /// It is sound, but was not where a footer says; its blocks may be elsewhere, too.
    Found,
    /// There is none, or it is damaged: all data blocks were found by scanning.
    #[default]
    Lost,
}

impl SalvageReport {
    /// Bytes of all ranges that are lost.
    pub fn lost_bytes(&self) -> u64 {
        self.lost
            .iter()
            .map(|lost| lost.range.end - lost.range.start)
            .sum()
    }

    /// Whether nothing is known to be lost.
    pub fn is_complete(&self) -> bool {
        self.lost.is_empty() && self.entries_out_of_order == 0
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries copied from {} data blocks, {} of them by the index; {} of {} bytes lost; \
             {} entries out of order",
            self.entries,
            self.data_blocks,
            self.entries_by_index,
            self.lost_bytes(),
            self.file_bytes,
            self.entries_out_of_order
        )?;
        self.lost.iter().try_for_each(|lost| write!(f, "\n{lost}"))
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range;
        write!(f, "lost: bytes {start} to {end}")?;
        if let Some(key) = &self.after {
            write!(f, ", behind key \"{}\"", key.escape_ascii())?;
        }
        if let Some(key) = &self.before {
            write!(f, ", before key \"{}\"", key.escape_ascii())?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Copies every readable entry of the damaged table in `source` to `builder`, in order, and reports what
/// is lost. The caller finishes the builder.
///
/// The index says which blocks there are, where it is sound. Where it, or the footer that leads to it, is
/// damaged, the file is scanned for blocks with valid checksums. Damage to one block costs
/// that block only, and one whose checksum is wrong is not copied at all: of what it still seems to hold,
/// nobody knows which bytes are right.
///
/// **Nothing is invented.** Index, metaindex and filter blocks are told from data, also without the footer
/// that names them: an index by its values, the sizes of the blocks before it, and its keys,
/// which separate theirs; a metaindex by the filters that it names. If no index is found, blocks that do not
/// fit into the order of the rest are left out, so that as many entries as can be are copied, and
/// reported. What no program can tell: blocks of an older table that the file still holds *and* whose
/// keys fit in, and tables stored as values in a block that is damaged itself, in a file without an index.
///
/// The order is the builder's. A builder in the wrong one is noticed; for a database's table use
/// [`salvage_db`]. (To treat a plain table whose keys look like a database's as what it is,
/// give its builder the comparator `Arc::new(BytewiseComparator)`.)
///
/// A part of the source that cannot be read is lost like a damaged one. A read that fails is tried in smaller
/// parts, down to 4 KiB.
///
/// # Cost
///
/// Two reads of each data block that the index leads to, three of one that is found behind another. Where damage has
/// to be searched for what comes behind, about 100 ns for each byte, in windows that begin at 256 KiB (so some
/// 20 ms for each damaged place) and grow to 4 MiB. Blocks larger than
/// 2 MiB are found behind other blocks and at the front of the file, or by the index, but not right behind
/// damage. Memory: the largest block; the first and last key and some 150 bytes for each block;
/// up to 120 MB while windows of 4 MiB are searched.
///
/// # Errors
///
/// Those of [`TableBuilder::add`]; [`ErrorKind::Io`] where nothing of the source can be read;
/// [`ErrorKind::DatabaseTable`] and [`ErrorKind::Comparator`] where the builder's order does not fit. Nothing
/// was added in the latter cases.
///
/// ```
/// use leveltable::{WriteOptions, salvage};
///
/// let mut file = Vec::new();
/// let options = WriteOptions::new().block_size(64);
/// let mut builder = options.build(&mut file);
/// for i in 0..100 {
///     builder.add(format!("key {i:02}").as_bytes(), b"value")?;
/// }
/// builder.finish()?;
/// file[5] ^= 1; // in the first data block
/// let end = file.len();
/// file[end - 300..].fill(0); // footer, index and more
///
/// let mut rescued = Vec::new();
/// let mut builder = options.build(&mut rescued);
/// let report = salvage(file, &mut builder)?;
/// builder.finish()?;
/// assert!(report.entries > 90);
/// assert_eq!(report.lost[0].range.start, 0);
/// println!("{report}");
/// # Ok::<(), leveltable::Error>(())
/// ```
pub fn salvage<D: Destination>(
    source: impl Into<Source>,
    builder: &mut TableBuilder<D>,
) -> Result<SalvageReport> {
    let file = TableFile::new(source.into(), None)?;
    let order = builder.order().clone();
    let mut survey = Survey::new(&file, &order);
    survey.run();
    let plan = survey.plan()?;
    let copy = Copy {
        file: &file,
        builder,
        report: survey.report(plan.left_out),
        last_key: None,
        open: 0,
    };
    copy.run(plan.pieces)
}

/// Like [`salvage`], for a table of a LevelDB database. Stored keys are copied as they are.
///
/// # Errors
///
/// As [`salvage`].
pub fn salvage_db<D: Destination>(
    source: impl Into<Source>,
    builder: &mut DbTableBuilder<D>,
) -> Result<SalvageReport> {
    salvage(source, builder.table_mut())
}

/// How many entries [`salvage`] would copy, from how many blocks; but for what an order of blocks' keys
/// within themselves costs.
pub(crate) fn recoverable(file: &TableFile, order: &Order) -> Result<(u64, u64)> {
    let mut survey = Survey::new(file, order);
    survey.run();
    let plan = survey.plan()?;
    let blocks = plan
        .pieces
        .iter()
        .filter(|piece| matches!(piece, Piece::Copy { .. }));
    Ok((plan.entries, blocks.count() as u64))
}

// ---- Survey: which sound blocks there are --------------------------------------------------------

/// What was found where, without overlaps.
#[derive(Debug, Default)]
struct Map(BTreeMap<u64, Found>);

impl Map {
    /// Adds a frame, unless it overlaps one that is there.
    fn insert(&mut self, found: Found) {
        let before = self.0.range(..found.range.end).next_back();
        if before.is_none_or(|(_, before)| before.range.end <= found.range.start) {
            self.0.insert(found.range.start, found);
        }
    }

    fn at(&self, handle: BlockHandle) -> Option<&Found> {
        let found = self.0.get(&handle.offset)?;
        (Some(found.range.end) == handle.end()).then_some(found)
    }

    /// The frames that overlap `range`, last first.
    fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = &Found> {
        let before_end = self.0.range(..range.end).rev().map(|(_, found)| found);
        before_end.take_while(move |found| found.range.end > range.start)
    }

    /// The ranges below `end` that nothing was found in.
    fn gaps(&self, end: u64) -> Vec<Range<u64>> {
        gaps(self.0.values().map(|found| found.range.clone()), end)
    }
}

/// What ascending `ranges` leave of `0..end`.
fn gaps(ranges: impl Iterator<Item = Range<u64>>, end: u64) -> Vec<Range<u64>> {
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

/// A block that may be the index.
#[derive(Debug)]
struct Candidate {
    index: Index,
    metaindex: Option<BlockHandle>,
    /// Bytes of the blocks before it that it knows.
    known_bytes: u64,
}

/// Finds all sound blocks of a file, and its index if there is one.
struct Survey<'a> {
    file: &'a TableFile,
    order: &'a Order,
    map: Map,
    index: Option<Index>,
    index_state: IndexState,
    /// Parts that are known to be no data.
    set_aside: Vec<(Section, Range<u64>)>,
}

impl<'a> Survey<'a> {
    fn new(file: &'a TableFile, order: &'a Order) -> Survey<'a> {
        Survey {
            file,
            order,
            map: Map::default(),
            index: None,
            index_state: IndexState::Lost,
            set_aside: Vec::new(),
        }
    }

    fn run(&mut self) {
        if let Ok(footer) = self.file.footer() {
            self.follow(footer);
        }
        let index_says_all = self
            .index
            .as_ref()
            .is_some_and(|index| (0..index.len()).all(|i| self.map.at(index.handle(i)).is_some()));
        if index_says_all {
            return;
        }
        let mut scanner = Scanner::new(self.file, self.order);
        for gap in self.map.gaps(self.file.size) {
            for found in scanner.scan(gap) {
                self.map.insert(found);
            }
        }
        if self.index.is_none() {
            self.look_for_index();
        }
        if self.index.is_none() {
            self.look_for_metaindex();
        }
    }

    /// Finds what footer, metaindex and index lead to. None of them is believed further than checksums
    /// bear them out: the footer has none of its own.
    fn follow(&mut self, footer: Footer) {
        let footer_at = self.file.footer_offset();
        let footer_range = footer_at..self.file.size;
        self.set_aside.push((Section::Footer, footer_range));
        if self.take_metaindex(footer.metaindex) {
            self.take_filters(footer.metaindex);
        }
        let Some(index) = self.sound_index(footer.index, footer.index.offset) else {
            let payload = self.read(footer.index).map(|frame| frame::open(&frame));
            if let Some(Ok(payload)) = payload {
                self.follow_handles(payload);
            }
            self.follow_displaced(footer);
            return;
        };
        self.set_aside(Section::Index, footer.index);
        (0..index.len()).for_each(|i| self.place(index.handle(i)));
        // One that is somewhere else and leads to no sound block is perhaps no index.
        let leads_to_data = (0..index.len()).any(|i| self.map.at(index.handle(i)).is_some());
        if leads_to_data || (index.len() > 0 && footer.index.end() == Some(footer_at)) {
            self.index = Some(index);
            self.index_state = IndexState::Sound;
        }
    }

    /// Looks right before the footer for an index that is not where the footer says, in a file that lost
    /// or gained bytes in front of it.
    fn follow_displaced(&mut self, footer: Footer) {
        let Some(end) = footer.index.end() else {
            return;
        };
        let by = self.file.footer_offset().wrapping_sub(end);
        let displaced = |handle: BlockHandle| BlockHandle {
            offset: handle.offset.wrapping_add(by),
            ..handle
        };
        let handle = displaced(footer.index);
        if by != 0
            && let Some(index) = self.sound_index(handle, u64::MAX)
        {
            self.set_aside(Section::Index, handle);
            self.take_metaindex(displaced(footer.metaindex));
            // One of an empty table says nothing about blocks that are here.
            if index.len() > 0 {
                self.index = Some(index);
                self.index_state = IndexState::Found;
            }
        }
    }

    /// The block at `handle` as an index, if it is sound and its blocks end at or before `data_end`.
    fn sound_index(&self, handle: BlockHandle, data_end: u64) -> Option<Index> {
        let place = IndexPlace {
            offset: handle.offset,
            data_end,
            file_size: self.file.size,
        };
        Index::decode(self.payload(handle)?, place, self.order).ok()
    }

    /// Takes what sense a damaged index still makes for hints.
    fn follow_handles(&mut self, payload: Bytes) {
        let Ok(block) = Block::parse(payload) else {
            return;
        };
        let mut cursor = BlockCursor::new(block);
        let mut end_before = 0;
        while let Ok(true) = cursor.next() {
            let Some((handle, _)) = BlockHandle::decode(cursor.value()) else {
                return;
            };
            match handle.end() {
                // Blocks in file order: so no byte is read twice, whatever the handles say.
                Some(end) if handle.offset >= end_before && end <= self.file.size => {
                    end_before = end;
                    self.place(handle);
                }
                _ => return,
            }
        }
    }

    /// Sets the block at `handle` aside as the metaindex if it looks like one.
    fn take_metaindex(&mut self, handle: BlockHandle) -> bool {
        self.place(handle);
        let found = self.map.at(handle);
        let is_one = found.is_some_and(|found| match &found.content {
            Content::Entries(summary) if summary.entries > 0 => {
                summary.all_handles && summary.first.starts_with(FILTER_PREFIX)
            }
            Content::Entries(_) => true,
            _ => false,
        });
        if is_one {
            self.set_aside(Section::Metaindex, handle);
        }
        is_one
    }

    /// Sets aside what the metaindex at `handle` says are filters, unless something else is there.
    fn take_filters(&mut self, handle: BlockHandle) {
        for filter in self.handles_in(handle) {
            self.place(filter);
            let found = self.map.at(filter);
            let may_be_one = found.is_none_or(|found| matches!(found.content, Content::Filter));
            if may_be_one && filter.end().is_some_and(|end| end <= handle.offset) {
                self.set_aside(Section::Filter, filter);
            }
        }
    }

    fn set_aside(&mut self, section: Section, handle: BlockHandle) {
        if let Some(end) = handle.end() {
            self.set_aside.push((section, handle.offset..end));
        }
    }

    fn is_set_aside(&self, found: &Found) -> bool {
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
            && let Ok(content) = inspect(&frame, self.order)
        {
            let range = handle.offset..end;
            self.map.insert(Found { range, content });
        }
    }

    /// The block at `handle`, which was found sound.
    fn payload(&self, handle: BlockHandle) -> Option<Bytes> {
        let frame = self.read(handle)?;
        frame::verify(&frame).ok()?;
        frame::open(&frame).ok()
    }

    /// The handles in the sound block at `handle`: those of a metaindex, which are few.
    fn handles_in(&self, handle: BlockHandle) -> Vec<BlockHandle> {
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

    /// Looks among the blocks found for one that is the index of those before it. Of several the one that
    /// knows most, as there may be that of an older table; but none that lies within a block of another,
    /// where it is part of a value.
    fn look_for_index(&mut self) {
        /// How many candidates are looked at closely. Only data that consists of handles makes more, and
        /// the true index comes behind it.
        const MOST: usize = 64;
        let candidates = self.data().filter(|(_, summary)| summary.all_handles);
        let candidates: Vec<BlockHandle> = candidates.map(|(found, _)| found.handle()).collect();
        let indexes = candidates.into_iter().rev().filter_map(|handle| {
            // In a file that lost or gained bytes in front, handles may lead anywhere.
            let index = self.sound_index(handle, u64::MAX)?;
            Some((handle, index))
        });
        let likely = indexes.take(MOST).filter_map(|(handle, index)| {
            let candidate = self.index_at(handle, index)?;
            Some((handle, candidate))
        });
        let likely: Vec<(BlockHandle, Candidate)> = likely.collect();
        let is_inside = |inner: BlockHandle| {
            let mut indexes = likely.iter().map(|(_, candidate)| &candidate.index);
            indexes.any(|index| lies_within_a_block(index, inner))
        };
        let inside: Vec<bool> = likely
            .iter()
            .map(|(handle, _)| is_inside(*handle))
            .collect();
        let best = likely
            .into_iter()
            .zip(inside)
            .filter_map(|(candidate, inside)| (!inside).then_some(candidate))
            .max_by_key(|(_, candidate)| candidate.known_bytes);
        if let Some((handle, candidate)) = best {
            self.set_aside(Section::Index, handle);
            if let Some(metaindex) = candidate.metaindex {
                self.set_aside(Section::Metaindex, metaindex);
            }
            self.index = Some(candidate.index);
            self.index_state = IndexState::Found;
        }
    }

    /// `index`, which is the block at `handle`, if it can be one to the blocks before it.
    ///
    /// A data block could pass for one only if each of its values were the handle of a block, in the file's
    /// order, and the blocks before it had those sizes, and its keys separated theirs. With two
    /// blocks or more, its keys would then be out of order as data. One that has a single block before it is
    /// told by its place: a metaindex lies between the last data block and the index, and no data behind.
    fn index_at(&self, handle: BlockHandle, index: Index) -> Option<Candidate> {
        let end = handle.end()?;
        let known = |found: &Found| belongs(&index, found, self.order);
        let in_place =
            |found: &Found| known(found).is_some_and(|i| index.handle(i) == found.handle());
        let mut before = self.data_before(handle.offset).peekable();
        let metaindex = before.next_if(|found| !in_place(found) && self.is_metaindex(found));
        let metaindex = metaindex.map(Found::handle);
        let behind_metaindex = |data_end: u64| {
            let before = self.map.0.range(..handle.offset).next_back();
            let is_empty = before.is_some_and(|(_, before)| {
                before.range.end == handle.offset && before.entries() == 0
            });
            let has_room = data_end.checked_add(LEAST_METAINDEX)? <= handle.offset;
            (metaindex.is_some() || is_empty || has_room).then_some(())
        };
        if let Some(last) = before.peek() {
            known(last)?;
            behind_metaindex(last.range.end)?;
        } else {
            // No data block survived. The handles must at least fit the place.
            behind_metaindex(index.handle(index.len().checked_sub(1)?).end()?)?;
        }
        let (mut blocks, mut known_bytes, mut unknown_bytes) = (0, 0, 0);
        for found in before {
            if known(found).is_some() {
                blocks += 1;
                known_bytes += found.len();
            } else if !lies_within_a_block(&index, found.handle()) {
                unknown_bytes += found.len();
            } // else it was part of a value there, in a block that is damaged
        }
        let is_last = || {
            self.map
                .0
                .range(end..)
                .all(|(_, found)| found.summary().is_none())
        };
        (known_bytes >= unknown_bytes && (blocks != 1 || is_last())).then_some(Candidate {
            index,
            metaindex,
            known_bytes,
        })
    }

    /// The data blocks below `offset`, the last first.
    fn data_before(&self, offset: u64) -> impl Iterator<Item = &Found> {
        let before = self.map.0.range(..offset).rev().map(|(_, found)| found);
        before.filter(|found| found.summary().is_some() && !self.is_set_aside(found))
    }

    /// Looks for a metaindex at the end of what was found: without an index, nothing else tells it from
    /// data whose keys come before `filter.`.
    fn look_for_metaindex(&mut self) {
        let last = self.data_before(self.file.size).next();
        let metaindex = last
            .filter(|last| self.is_metaindex(last))
            .map(Found::handle);
        if let Some(handle) = metaindex {
            self.set_aside(Section::Metaindex, handle);
        }
    }

    /// Whether `found` names filters that lie before it and are not data.
    fn is_metaindex(&self, found: &Found) -> bool {
        let Some(summary) = found.summary().filter(|summary| summary.all_handles) else {
            return false;
        };
        if !summary.first.starts_with(FILTER_PREFIX) && !summary.last.starts_with(FILTER_PREFIX) {
            return false;
        }
        let start = found.range.start;
        let name = summary.first.strip_prefix(FILTER_PREFIX);
        let is_stock = summary.entries == 1 && name.is_some_and(|name| STOCK.contains(&name));
        let is_filter = |found: &Found| matches!(found.content, Content::Filter);
        let is_free = |place: Range<u64>| {
            let mut others = self.map.overlapping(place);
            others.all(|other| other.range == found.range || is_filter(other))
        };
        self.handles_in(found.handle()).iter().all(|filter| {
            let Some(end) = filter.end() else {
                return false;
            };
            // It leads to a filter, or to nothing sound: in a file that lost bytes perhaps up to the block
            // itself, and under a name that no data has by chance, wherever that is.
            let here = (is_stock || filter.offset < start) && is_free(filter.offset..end);
            // In a file that lost or gained bytes, the filter is the block right before, or was.
            let len = end - filter.offset;
            let right_before = || match is_stock {
                true => is_free(start.saturating_sub(len)..start),
                false => start
                    .checked_sub(len)
                    .and_then(|at| self.map.0.get(&at))
                    .is_some_and(|found| found.range.end == start && is_filter(found)),
            };
            here || right_before()
        })
    }
}

/// What the metaindex's names of filters begin with.
const FILTER_PREFIX: &[u8] = b"filter.";

/// The policies that most tables have a filter of.
const STOCK: [&[u8]; 3] = [
    b"leveldb.BuiltinBloomFilter2",
    b"leveldb.BuiltinBloomFilter",
    b"leveltable.Ribbon1",
];

/// Length of the shortest metaindex's frame: a block of no entry and no restart.
const LEAST_METAINDEX: u64 = 4 + TRAILER_LEN as u64;

/// Which data block of `index` the block `found` is, wherever in the file it lies: by its size, and by the
/// index keys, between which its keys must lie.
fn belongs(index: &Index, found: &Found, order: &Order) -> Option<usize> {
    let summary = found.summary()?;
    let i = index.seek(&summary.last, order)?;
    let behind_previous = i
        .checked_sub(1)
        .is_none_or(|before| order.compare(index.key(before), &summary.first).is_lt());
    (behind_previous && index.handle(i).size == found.handle().size).then_some(i)
}

/// Whether the block `inner` lies where `index` has a larger one.
fn lies_within_a_block(index: &Index, inner: BlockHandle) -> bool {
    let (mut low, mut high) = (0, index.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match index.handle(middle).offset <= inner.offset {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    let outer = low.checked_sub(1).and_then(|i| index.handle(i).end());
    outer.is_some_and(|outer| inner.end().is_some_and(|inner| inner <= outer))
}

// ---- Plan: which of them are data, in which order ------------------------------------------------

/// What the new table will be made of.
#[derive(Debug, Default)]
struct Plan {
    pieces: Vec<Piece>,
    /// Entries of the blocks to copy that ascend, and all that do not.
    entries: u64,
    out_of_order: u64,
    /// Those of `out_of_order` whose block is left out.
    left_out: u64,
}

/// A part of the file, in the order of the new table.
#[derive(Debug)]
enum Piece {
    Copy {
        handle: BlockHandle,
        by_index: bool,
    },
    Lost {
        range: Range<u64>,
        reason: String,
        entries: Option<u64>,
    },
}

impl Survey<'_> {
    fn plan(&self) -> Result<Plan> {
        self.check_kind()?;
        if self.map.0.is_empty() && self.file.size > 0 {
            // Nothing at all: perhaps since nothing can be read.
            self.file.read(0, self.file.size.min(SECTOR) as usize)?;
        }
        let plan = match &self.index {
            Some(index) => self.plan_by_index(index),
            None => self.plan_by_keys(),
        };
        // Some entries out of order are damage of some kind; most of them are not.
        if plan.out_of_order > plan.entries {
            return Err(Error::new(
                ErrorKind::Comparator,
                format!(
                    "{} of {} entries do not ascend under comparator {:?}: build the new table with the \
                     comparator that the old one was written with",
                    plan.out_of_order,
                    plan.out_of_order + plan.entries,
                    self.order.comparator().name(),
                ),
            ));
        }
        Ok(plan)
    }

    /// A report of what was surveyed, before anything is copied.
    fn report(self, entries_out_of_order: u64) -> SalvageReport {
        let mut set_aside = self.set_aside;
        for (start, found) in self.map.0 {
            let is_known = set_aside.iter().any(|(_, range)| range.start == start);
            if let Content::Filter = found.content
                && !is_known
            {
                set_aside.push((Section::Filter, found.range));
            }
        }
        set_aside.sort_by_key(|(_, range)| range.start);
        SalvageReport {
            file_bytes: self.file.size,
            index: self.index_state,
            entries_out_of_order,
            set_aside,
            ..SalvageReport::default()
        }
    }

    /// The data blocks found.
    fn data(&self) -> impl Iterator<Item = (&Found, &Summary)> {
        self.map
            .0
            .values()
            .filter(|found| !self.is_set_aside(found))
            .filter_map(|found| Some((found, found.summary()?)))
    }

    /// Refuses a builder for the other kind of table.
    fn check_kind(&self) -> Result<()> {
        let all = |is: fn(&[u8]) -> bool| {
            let mut ends = self
                .data()
                .flat_map(|(_, summary)| [&summary.first, &summary.last]);
            ends.all(|key| is(key))
        };
        if self.data().next().is_none() {
            return Ok(());
        }
        match self.order {
            Order::Bytewise if all(internal_key::is_plausible) => Err(Error::new(
                ErrorKind::DatabaseTable,
                "this table belongs to a LevelDB database (each key ends in a sequence number and a \
                 type): salvage it with salvage_db",
            )),
            order
                if internal_key::is_internal(order)
                    && all(|key| InternalKey::parse(key).is_none()) =>
            {
                Err(Error::new(
                    ErrorKind::Comparator,
                    "no key of this table is a database's: salvage it as a plain table",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The blocks that the index lists, each from where it says or from where the scan found it.
    fn plan_by_index(&self, index: &Index) -> Plan {
        let mut elsewhere = HashMap::new();
        for (found, _) in self.data() {
            if let Some(i) = belongs(index, found, self.order) {
                elsewhere.entry(i).or_insert(found);
            }
        }
        let by_footer = self.index_state == IndexState::Sound;
        let mut plan = Plan::default();
        for i in 0..index.len() {
            let handle = index.handle(i);
            let end = handle.end().unwrap_or(u64::MAX);
            let here = self.map.at(handle);
            // What the index found by scanning says of places may be off by some bytes; its sizes are not.
            let found = match (here, elsewhere.get(&i)) {
                (Some(here), None) => Some(here),
                (Some(here), Some(_)) if by_footer => Some(here),
                (_, elsewhere) => elsewhere.copied(),
            };
            let found = found.filter(|found| !self.is_set_aside(found));
            match found {
                Some(found) => match &found.content {
                    Content::Entries(summary) => {
                        plan.copy(found, summary, by_footer && here.is_some())
                    }
                    Content::Unreadable(reason) => {
                        plan.lose(found.range.clone(), || reason.clone())
                    }
                    Content::Filter => {
                        plan.lose(found.range.clone(), || "no data block: a filter".into());
                    }
                },
                None => plan.lose(handle.offset..end, || self.why_not(handle)),
            }
        }
        plan
    }

    /// Why the block at `handle` is not among the sound ones.
    fn why_not(&self, handle: BlockHandle) -> String {
        if handle.end().is_none_or(|end| end > self.file.size) {
            return format!("the file ends before it, at {}", self.file.size);
        }
        let frame = match self.file.read_frame(handle) {
            Ok(frame) => frame,
            Err(error) => return error.to_string(),
        };
        match inspect(&frame, self.order) {
            Ok(_) => "its place is taken by another block".into(),
            Err(defect) => defect.locate(Section::Data, handle.offset).to_string(),
        }
    }

    /// Without an index: the most entries that can be had in order from blocks in the file's order.
    fn plan_by_keys(&self) -> Plan {
        let data: Vec<(&Found, &Summary)> = self.data().collect();
        let chosen = heaviest_chain(&data, self.order);
        let mut plan = Plan::default();
        let mut data = data.into_iter().zip(chosen).peekable();
        for part in self.parts() {
            match part {
                Part::Found(found) => {
                    let Some(((_, summary), chosen)) =
                        data.next_if(|((data, _), _)| data.range == found.range)
                    else {
                        if let Content::Unreadable(reason) = &found.content {
                            plan.lose(found.range.clone(), || reason.clone());
                        }
                        continue;
                    };
                    if chosen {
                        plan.copy(found, summary, false);
                        continue;
                    }
                    plan.leave_out(found);
                }
                Part::Gap(range) => plan.lose(range, || {
                    "no sound block begins here: lost data, or a part that holds none (filter, metaindex, \
                     index, footer)"
                        .into()
                }),
            }
        }
        plan
    }

    /// All of the file in order: what was found, and gaps that are not known to be without data.
    fn parts(&self) -> Vec<Part<'_>> {
        let metaindex = self
            .set_aside
            .iter()
            .find(|(section, _)| *section == Section::Metaindex);
        // Once a metaindex is known, whatever comes after it is no data.
        let data_end = metaindex.map_or(self.file.size, |(_, range)| range.start);
        let mut covered: Vec<Range<u64>> = self
            .map
            .0
            .values()
            .map(|found| found.range.clone())
            .collect();
        covered.extend(self.set_aside.iter().map(|(_, range)| range.clone()));
        covered.sort_by_key(|range| range.start);
        let gaps = gaps(covered.into_iter(), self.file.size).into_iter();
        let mut parts: Vec<Part<'_>> = gaps
            .filter(|gap| gap.start < data_end)
            .map(Part::Gap)
            .chain(self.map.0.values().map(Part::Found))
            .collect();
        parts.sort_by_key(Part::start);
        parts
    }
}

enum Part<'a> {
    Found(&'a Found),
    Gap(Range<u64>),
}

impl Part<'_> {
    fn start(&self) -> u64 {
        match self {
            Part::Found(found) => found.range.start,
            Part::Gap(range) => range.start,
        }
    }
}

impl Plan {
    fn copy(&mut self, found: &Found, summary: &Summary, by_index: bool) {
        self.entries += summary.entries;
        self.out_of_order += summary.out_of_order;
        self.pieces.push(Piece::Copy {
            handle: found.handle(),
            by_index,
        });
    }

    /// Leaves out a block whose keys do not fit between those of others.
    fn leave_out(&mut self, found: &Found) {
        self.out_of_order += found.entries();
        self.left_out += found.entries();
        self.pieces.push(Piece::Lost {
            range: found.range.clone(),
            reason: "its keys are out of order here: a block of another table?".into(),
            entries: Some(found.entries()),
        });
    }

    /// Adds a range that is lost, to the one before if it goes on there.
    fn lose(&mut self, range: Range<u64>, reason: impl FnOnce() -> String) {
        match self.pieces.last_mut() {
            Some(Piece::Lost {
                range: before,
                entries: None,
                ..
            }) if before.end == range.start => before.end = range.end,
            _ => self.pieces.push(Piece::Lost {
                range,
                reason: reason(),
                entries: None,
            }),
        }
    }
}

/// Which of `blocks` to copy, so that keys ascend and the most entries come along.
///
/// For each block: the best chain that ends in it is the best of those that end before its first key, and
/// it. A chain is worth keeping only if it has more entries than all that end before it, so
/// those kept ascend in both, and the best is found by binary search: O(n log n) comparisons.
fn heaviest_chain(blocks: &[(&Found, &Summary)], order: &Order) -> Vec<bool> {
    /// The best chain that ends in `block`.
    struct Chain<'a> {
        last: &'a [u8],
        block: usize,
        entries: u64,
    }
    let mut best: Vec<Chain<'_>> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(blocks.len());
    for (block, (_, summary)) in blocks.iter().enumerate() {
        let fitting =
            best.partition_point(|chain| order.compare(chain.last, &summary.first).is_lt());
        let longest = fitting.checked_sub(1).and_then(|i| best.get(i));
        let entries = summary.entries + longest.map_or(0, |chain| chain.entries);
        before.push(longest.map(|chain| chain.block));
        let at = best.partition_point(|chain| order.compare(chain.last, &summary.last).is_lt());
        if at
            .checked_sub(1)
            .and_then(|i| best.get(i))
            .is_some_and(|chain| chain.entries >= entries)
        {
            continue;
        }
        let beaten = best
            .iter()
            .skip(at)
            .take_while(|chain| chain.entries <= entries)
            .count();
        let chain = Chain {
            last: &summary.last,
            block,
            entries,
        };
        best.splice(at..at + beaten, [chain]);
    }
    let mut chosen = vec![false; blocks.len()];
    let mut next = best.last().map(|chain| chain.block);
    while let Some(block) = next {
        if let Some(chosen) = chosen.get_mut(block) {
            *chosen = true;
        }
        next = before.get(block).copied().flatten();
    }
    chosen
}

// ---- Copying -------------------------------------------------------------------------------------

struct Copy<'a, D: Destination> {
    file: &'a TableFile,
    builder: &'a mut TableBuilder<D>,
    report: SalvageReport,
    last_key: Option<Bytes>,
    /// From here on, ranges in the report wait for the key behind them.
    open: usize,
}

impl<D: Destination> Copy<'_, D> {
    fn run(mut self, pieces: Vec<Piece>) -> Result<SalvageReport> {
        for piece in pieces {
            match piece {
                Piece::Copy { handle, by_index } => self.copy(handle, by_index)?,
                Piece::Lost {
                    range,
                    reason,
                    entries,
                } => self.lose(range, reason, entries),
            }
        }
        Ok(self.report)
    }

    fn lose(&mut self, range: Range<u64>, reason: String, entries: Option<u64>) {
        self.report.lost.push(LostRange {
            range,
            reason,
            entries,
            after: self.last_key.clone(),
            before: None,
        });
    }

    fn copy(&mut self, handle: BlockHandle, by_index: bool) -> Result<()> {
        let range = handle.offset..handle.end().unwrap_or(u64::MAX);
        let frame = match self.file.read_frame(handle) {
            Ok(frame) => frame,
            Err(error) => {
                self.lose(range, error.to_string(), None);
                return Ok(());
            }
        };
        let block = frame::verify(&frame)
            .and_then(|()| frame::open(&frame))
            .and_then(Block::parse);
        let block = match block {
            Ok(block) => block,
            Err(defect) => {
                // It was sound a moment ago: the medium gives out, or somebody writes to the file.
                self.lose(
                    range,
                    defect.locate(Section::Data, handle.offset).to_string(),
                    None,
                );
                return Ok(());
            }
        };
        let (mut copied, mut refused) = (0, 0);
        let mut last = Vec::new();
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            match self.builder.add(cursor.key(), cursor.value()) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::OutOfOrder => {
                    refused += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if copied == 0 {
                let first = Bytes::copy_from_slice(cursor.key());
                for lost in self.report.lost.iter_mut().skip(self.open) {
                    lost.before = Some(first.clone());
                }
                self.open = self.report.lost.len();
            }
            copied += 1;
            last.clear();
            last.extend_from_slice(cursor.key());
        }
        self.report.entries += copied;
        self.report.entries_by_index += if by_index { copied } else { 0 };
        self.report.entries_out_of_order += refused;
        self.report.data_blocks += 1;
        if copied > 0 {
            self.last_key = Some(last.into());
        }
        if refused > 0 {
            self.lose(
                range,
                format!("{refused} of its entries are out of order"),
                Some(refused),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary(first: &str, last: &str, entries: u64) -> (Found, Summary) {
        let of = |entries| Summary {
            entries,
            out_of_order: 0,
            first: first.as_bytes().into(),
            last: last.as_bytes().into(),
            all_handles: false,
        };
        let content = Content::Entries(of(entries));
        (
            Found {
                range: 0..1,
                content,
            },
            of(entries),
        )
    }

    /// The best subset by trying all of them.
    fn heaviest_by_trying(blocks: &[(Found, Summary)]) -> u64 {
        let subsets = 0..1u32 << blocks.len();
        let weights = subsets.filter_map(|subset| {
            let chosen = blocks
                .iter()
                .enumerate()
                .filter(|(i, _)| subset >> i & 1 == 1);
            let chosen: Vec<_> = chosen.map(|(_, (_, summary))| summary).collect();
            let ascends = chosen.windows(2).all(|pair| pair[0].last < pair[1].first);
            ascends.then(|| chosen.iter().map(|summary| summary.entries).sum())
        });
        weights.max().unwrap_or_default()
    }

    proptest! {
        #[test]
        fn the_most_entries_in_order_are_chosen(
            blocks in prop::collection::vec((0u8..20, 0u8..6, 1u64..9), 0..10),
        ) {
            let key = |n: u8| format!("{n:02}");
            let blocks: Vec<_> = blocks
                .into_iter()
                .map(|(first, len, entries)| summary(&key(first), &key(first + len), entries))
                .collect();
            let pairs: Vec<_> = blocks.iter().map(|(found, summary)| (found, summary)).collect();
            let chosen = heaviest_chain(&pairs, &Order::Bytewise);
            let chosen: Vec<_> =
                blocks.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|((_, s), _)| s).collect();
            prop_assert!(chosen.windows(2).all(|pair| pair[0].last < pair[1].first));
            let entries: u64 = chosen.iter().map(|summary| summary.entries).sum();
            prop_assert_eq!(entries, heaviest_by_trying(&blocks));
        }
    }
}
