//! The blocks of a damaged file: those that footer and index lead to, and those that a scan finds between.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use leveltable::Section;
use leveltable::db::{InternalKey, MAX_SEQUENCE};
use leveltable::format::{
    BlockHandle, Defect, Entries, FilterBlock, Footer, Named, Pieces, Properties, codec_name,
    open_frame, verify_frame,
};
use leveltable::sister_crates::{Evidence, Order, Style, page};

use super::scan::{Scanner, padding};
use crate::file::{File, handles, open_sound};
use crate::progress::Reporter;

/// A block with a correct checksum, or the footer.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) range: Range<u64>,
    pub(crate) section: Section,
    /// Number of entries, if it is a readable block of entries.
    pub(super) entries: u64,
    /// Whether its keys ascend in the builder's order.
    pub(super) ascends: bool,
    pub(super) codec: Option<&'static str>,
}

/// An index that lists the blocks of the table.
pub(crate) struct Index {
    pub(crate) block: Bytes,
    /// Whether the footer led to it.
    pub(super) is_in_place: bool,
}

/// The blocks that were found in a file.
pub(crate) struct Blocks<'a> {
    pub(super) file: &'a File,
    pub(super) order: &'a Order,
    /// By offset, without overlaps.
    pub(crate) found: BTreeMap<u64, Found>,
    pub(crate) index: Option<Index>,
    /// The style of the table, including its properties.
    pub(super) style: Style,
    /// The evidence of the data blocks' keys about their kind.
    pub(super) evidence: Evidence,
}

/// The contents of a block of entries.
struct Contents {
    entries: u64,
    ascends: bool,
    evidence: Evidence,
    /// Whether all names are those of a metaindex, or of RocksDB's properties.
    names_parts: bool,
    names_rocksdbs: bool,
    /// Whether all values are handles; and where the blocks end, if these follow each other from the start of the file.
    has_handles: bool,
    end_of_listed: Option<u64>,
}

impl<'a> Blocks<'a> {
    pub(crate) fn find(
        file: &'a File,
        order: &'a Order,
        progress: &mut Reporter<'_>,
    ) -> Blocks<'a> {
        let mut blocks = Blocks {
            file,
            order,
            found: BTreeMap::new(),
            index: None,
            style: Style::default(),
            evidence: Evidence::default(),
        };
        let _ = blocks.run(progress);
        blocks
    }

    fn run(&mut self, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        if let Ok(footer) = self.file.footer() {
            self.follow(footer, progress)?;
        }
        let mut scanner = Scanner::new(self.file);
        for gap in self.gaps() {
            let mut take = |at, frame: Bytes, is_expected| {
                let found = self.inspect(at, &frame, None);
                // Some checksums are correct by chance: a block that cannot be decoded must at least be in its place.
                let is_block = found.codec.is_some() || is_expected;
                is_block.then(|| self.insert(found)).is_some()
            };
            scanner.scan(gap, &mut take, &mut |at| progress.reach(at))?;
        }
        if self.index.is_none() {
            self.choose_index();
        }
        progress.reach(self.file.size)
    }

    /// Adds the blocks that the footer leads to: those that are sound are what footer, metaindex and index say. Handles in a damaged
    /// block count if they lead to sound frames.
    fn follow(&mut self, footer: Footer, progress: &mut Reporter<'_>) -> ControlFlow<()> {
        let start = self.file.footer_offset();
        self.insert(Found::new(start..self.file.size, Section::Footer));
        self.place(footer.metaindex, Section::Metaindex);
        self.place(footer.index, Section::Index);
        let mut parts = Vec::new();
        self.each_entry(footer.metaindex, |name, handle| {
            let section = match Named::of(name) {
                Named::Filter(_) | Named::Prefixes(_) => Section::Filter,
                Named::Properties => Section::Properties,
                Named::Pieces => Section::Pieces,
                Named::Other => Section::Metaindex,
            };
            parts.push((handle, section));
        });
        for (handle, section) in parts {
            self.place(handle, section);
        }
        let mut data = Vec::new();
        self.each_entry(footer.index, |_, handle| data.push(handle));
        for handle in data {
            self.place(handle, Section::Data);
            progress.reach(handle.offset)?;
        }
        ControlFlow::Continue(())
    }

    /// Calls `each` with the keys and handles in the block at `handle`, up to the first value that is not a handle.
    fn each_entry(&self, handle: BlockHandle, mut each: impl FnMut(&[u8], BlockHandle)) {
        let block = self.frame(handle).map(|frame| open_frame(&frame));
        if let Some(Ok(mut entries)) = block.map(|block| Entries::of_damaged(block?)) {
            while let Ok(true) = entries.advance()
                && let Some((handle, _)) = BlockHandle::decode(entries.value())
            {
                each(entries.key(), handle);
            }
        }
    }

    /// The frame at `handle`. Its checksum may be wrong.
    fn frame(&self, handle: BlockHandle) -> Option<Bytes> {
        self.file.read(handle.frame()?).ok()
    }

    /// Adds the block at `handle`, which is a part of this `section`, if its checksum is correct.
    fn place(&mut self, handle: BlockHandle, section: Section) {
        let frame = self.frame(handle);
        if let Some(frame) = frame.filter(|frame| verify_frame(frame).is_ok()) {
            let found = self.inspect(handle.offset, &frame, Some(section));
            self.insert(found);
        }
    }

    /// Adds a frame, unless it overlaps another.
    fn insert(&mut self, found: Found) {
        let before = self.found.range(..found.range.end).next_back();
        if before.is_none_or(|(_, before)| before.range.end <= found.range.start) {
            self.found.insert(found.range.start, found);
        }
    }

    /// The parts of the file in which no frame was found, without padding that the next block needs in an aligned table.
    pub(super) fn gaps(&self) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), 0);
        let end = Found::new(self.file.size..self.file.size, Section::Footer);
        for next in self.found.values().chain([&end]) {
            let (start, len) = (next.range.start, next.range.end - next.range.start);
            let needs_padding = next.section == Section::Data && page::padding(at, len) > 0;
            let padded = at + padding(self.file, at);
            if padded < start || padded == start && needs_padding {
                at = padded;
            }
            if at < start {
                gaps.push(at..start);
            }
            at = next.range.end;
        }
        gaps
    }

    pub(super) fn data(&self) -> impl Iterator<Item = &Found> {
        let data = self.found.values();
        data.filter(|found| found.section == Section::Data && found.entries > 0)
    }

    /// Determines the contents of a sound frame: a part of the section that handles name, or else what its bytes show.
    fn inspect(&mut self, offset: u64, frame: &Bytes, section: Option<Section>) -> Found {
        let mut found = Found::new(
            offset..offset + frame.len() as u64,
            section.unwrap_or(Section::Data),
        );
        let Ok(block) = open_frame(frame) else {
            return found;
        };
        let contents = self.read(&block);
        match &contents {
            Ok(contents) => {
                (found.entries, found.ascends) = (contents.entries, contents.ascends);
                found.section = section.unwrap_or_else(|| contents.section(&block, offset));
            }
            Err(_) if section.is_none() => match not_entries(&block) {
                Some(part) => found.section = part,
                None => return found,
            },
            Err(_) => return found,
        }
        found.codec = codec_name(frame).ok();
        match (found.section, contents) {
            (Section::Data, Ok(contents)) => self.evidence.add(&contents.evidence),
            (Section::Metaindex, _) => self.note_filter(&block),
            (Section::Properties, _) if self.style.properties.is_none() => {
                self.style.properties = Properties::decode(&block).ok();
            }
            (Section::Index, Ok(contents)) if section.is_some() && contents.has_handles => {
                let is_in_place = true;
                self.index = Some(Index { block, is_in_place });
            }
            _ => {}
        }
        found
    }

    /// Reads the entries of a block.
    fn read(&self, block: &Bytes) -> Result<Contents, Defect> {
        let mut entries = Entries::new(block.clone())?;
        let mut contents = Contents {
            entries: 0,
            ascends: true,
            evidence: Evidence::default(),
            names_parts: true,
            names_rocksdbs: true,
            has_handles: true,
            end_of_listed: Some(0),
        };
        let mut last = Vec::new();
        while entries.advance()? {
            let (key, value) = (entries.key(), entries.value());
            let previous = (contents.entries > 0).then_some(&last[..]);
            contents.evidence.add_entry(previous, key, value);
            contents.ascends &=
                previous.is_none_or(|previous| self.order.compare(previous, key).is_lt());
            let handle = BlockHandle::decode(value).filter(|(_, len)| *len == value.len());
            contents.has_handles &= handle.is_some();
            contents.names_parts &=
                handle.is_some() && PARTS.iter().any(|name| key.starts_with(name));
            contents.names_rocksdbs &= key.starts_with(b"rocksdb.");
            contents.end_of_listed = contents.end_of_listed.and_then(|end| {
                let (handle, _) = handle?;
                let follows = [end, end + page::to_boundary(end)].contains(&handle.offset);
                handle.frame().filter(|_| follows).map(|frame| frame.end)
            });
            contents.entries += 1;
            key.clone_into(&mut last);
        }
        Ok(contents)
    }

    /// Notes the filter that a metaindex lists.
    fn note_filter(&mut self, metaindex: &Bytes) {
        let Ok(mut names) = Entries::new(metaindex.clone()) else {
            return;
        };
        let filter = self.style.filter.get_or_insert_default();
        while let Ok(true) = names.advance() {
            if let (Named::Filter(policy), None) = (Named::of(names.key()), &filter) {
                *filter = Some(String::from_utf8_lossy(policy).into_owned());
            }
        }
    }

    /// Chooses the index, if no footer leads to it, among the blocks that look like one. A block with one handle may also be data: it
    /// is the index only if the block that it lists is the only data that was found.
    fn choose_index(&mut self) {
        let data = self.data().count();
        let candidates = self
            .found
            .values()
            .filter(|found| found.section == Section::Index);
        let usable = candidates.filter_map(|own| {
            let block = open_sound(&self.file.read(own.range.clone()).ok()?).ok()?;
            let listed = handles(&block)
                .filter(|listed| self.is_found(listed))
                .count();
            let is_usable = match own.entries {
                1 => data == listed,
                _ => data == 0 || listed > 0,
            };
            is_usable.then_some((listed, block))
        });
        if let Some((_, block)) = usable.max_by_key(|(listed, _)| *listed) {
            for range in handles(&block) {
                if let Some(found) = self.found.get_mut(&range.start) {
                    found.section = Section::Data;
                }
            }
            let is_in_place = false;
            self.index = Some(Index { block, is_in_place });
        }
    }

    /// Treats as data what looks like another part of a table but has only internal keys, as only data and the index of a database's table
    /// do. An index has several entries, or a key with the largest sequence number: such a block is data without a place.
    pub(crate) fn take_internal_keys_for_data(&mut self) {
        let is_other = |found: &&mut Found| found.entries > 0 && found.section != Section::Data;
        for found in self.found.values_mut().filter(is_other) {
            let entries = self.file.read(found.range.clone()).ok();
            let entries = entries.and_then(|frame| Entries::new(open_sound(&frame).ok()?).ok());
            let Some(mut entries) = entries else { continue };
            let (mut is_internal, mut highest) = (true, 0);
            while let Ok(true) = entries.advance() {
                let key = InternalKey::parse(entries.key());
                is_internal &= key.is_some();
                highest = key.map_or(highest, |key| key.sequence.max(highest));
            }
            if is_internal {
                let may_be_index = found.section == Section::Index && found.entries > 1;
                found.ascends &= !may_be_index && highest < MAX_SEQUENCE;
                found.section = Section::Data;
            }
        }
    }

    /// Whether a sound data block is exactly there.
    fn is_found(&self, range: &Range<u64>) -> bool {
        let found = self.found.get(&range.start);
        found.is_some_and(|found| found.range == *range && found.section == Section::Data)
    }
}

impl Contents {
    /// The section of a block at this offset, from its contents. Properties are recognised by their names, a metaindex by its names
    /// and handles, an index by the handles of blocks that lie before it.
    fn section(&self, block: &Bytes, offset: u64) -> Section {
        if self.entries == 0 || self.names_parts {
            Section::Metaindex
        } else if self.names_rocksdbs || Properties::decode(block).is_ok() {
            Section::Properties
        } else if self
            .end_of_listed
            .is_some_and(|end| end <= offset || self.entries > 1)
        {
            Section::Index
        } else {
            Section::Data
        }
    }
}

impl Found {
    fn new(range: Range<u64>, section: Section) -> Found {
        Found {
            range,
            section,
            entries: 0,
            ascends: true,
            codec: None,
        }
    }
}

/// The section of a block that holds no entries.
fn not_entries(block: &Bytes) -> Option<Section> {
    if let Ok(Some(_)) = Pieces::decode(block.clone()) {
        return Some(Section::Pieces);
    }
    let filter = FilterBlock::new(block.clone()).ok()?;
    filter.check_offsets().ok().map(|()| Section::Filter)
}

/// Prefixes of the names in a metaindex.
const PARTS: [&[u8]; 4] = [b"filter.", b"about.", b"rocksdb.", b"fullfilter."];
