//! A table's file as it is read: bytes at offsets, blocks at handles, and every error with its place.

use std::io;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::format::frame::{self, TRAILER_LEN};
use crate::read::owners::Owners;
use crate::read::source::{ReadAt, Source, SourceBytes};
use crate::read::stats::{Counter, Counters};
use crate::repair::identify;
use crate::trace;

/// Bytes at the end of a file that opening reads at once. An ordinary small table lies in them whole, and of one of up to
/// 10 MB the index.
pub(super) const TAIL_LEN: u64 = 64 << 10;

/// Bytes before a metaindex that are read with it: an ordinary properties block takes some 300.
const PROPERTIES_ROOM: u64 = 4 << 10;

/// Parts that lie together are read at once up to this length. Larger ones take longer to come than to be asked for, and are
/// read each into memory of its own.
const MOST_TOGETHER: u64 = 8 << 20;

/// Longer parts are not read ahead.
const MOST_AHEAD: u64 = 64 << 20;

/// The source, its size, and counters of what was read.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) source: Source,
    pub(crate) size: u64,
    pub(crate) counters: Counters,
    owners: Owners,
    /// What was read ahead, while the table is being opened: stretches of the file with their offsets.
    ahead: Vec<(u64, Bytes)>,
}

impl TableFile {
    pub(crate) fn new(source: Source) -> Result<TableFile> {
        let (size, owners) = match &source.bytes {
            SourceBytes::Memory(bytes) => (Ok(bytes.len() as u64), Owners::new()),
            SourceBytes::Io(source) => (source.size(), Owners::none()),
        };
        let mut file = TableFile {
            source,
            size: 0,
            counters: Counters::default(),
            owners,
            ahead: Vec::new(),
        };
        file.size = size.map_err(|e| file.name_in(Error::io("asking for the table's size", e)))?;
        Ok(file)
    }

    /// Reads the end of the file, which holds all that opening needs of a small table, and keeps it until
    /// [`forget_ahead`](TableFile::forget_ahead).
    pub(crate) fn read_tail(&mut self) {
        self.keep_all(vec![self.tail()]);
    }

    fn tail(&self) -> Range<u64> {
        self.size.saturating_sub(TAIL_LEN)..self.size
    }

    /// Reads metaindex and index at once, and what may be the properties before the metaindex, if the tail does not tell
    /// what the table has.
    pub(crate) fn read_metadata_ahead(&mut self, footer: &Footer) {
        let (metaindex, index) = (self.range_of(footer.metaindex), self.range_of(footer.index));
        if let (Some(metaindex), Some(index)) = (metaindex, index)
            && !self.is_kept(&metaindex)
        {
            let start = metaindex.start.saturating_sub(PROPERTIES_ROOM);
            let parts = self.missing([start..metaindex.end, index]);
            // A single one is read when it is needed.
            if parts.len() > 1 {
                self.keep_all(together(parts));
            }
        }
    }

    /// Reads the blocks at `handles` and the bytes at `ranges` at once, as far as they have not been read, and keeps them until
    /// [`forget_ahead`](TableFile::forget_ahead).
    ///
    /// Reports no error. What could not be read, or lies outside of the file, is an error when it is needed.
    pub(crate) fn read_ahead(
        &mut self,
        handles: impl IntoIterator<Item = BlockHandle>,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) {
        let handles = handles.into_iter();
        let blocks = self.missing(handles.filter_map(|handle| self.range_of(handle)));
        let ranges = self.missing(ranges);
        // A single block is read when it is needed.
        if blocks.len() > 1 || !ranges.is_empty() {
            self.keep_all(together([blocks, ranges].concat()));
        }
    }

    /// Those of `ranges` that have not been read ahead and may be.
    fn missing(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        // A hostile file may claim parts of gigabytes. Those are read one by one, and checked before the next.
        let is_missing =
            |range: &Range<u64>| range.end - range.start <= MOST_AHEAD && !self.is_kept(range);
        ranges.into_iter().filter(is_missing).collect()
    }

    /// Reads all `ranges` of the file at once, and keeps those that could be read.
    fn keep_all(&mut self, ranges: Vec<Range<u64>>) {
        if self.is_memory() {
            let announce = |range: Range<u64>| self.announce(range.start, range.end - range.start);
            return ranges.into_iter().for_each(announce);
        }
        let part = |range: Range<u64>| {
            let len = usize::try_from(range.end - range.start).ok()?;
            Some((range.start, len))
        };
        let parts: Vec<(u64, usize)> = ranges.into_iter().filter_map(part).collect();
        let mut stretches = Vec::with_capacity(parts.len());
        let mut keep = |i, stretch: Result<Bytes>| {
            if let (Some(&(offset, _)), Ok(bytes)) = (parts.get(i), stretch) {
                stretches.push((offset, bytes));
            }
        };
        match parts[..] {
            [(offset, len)] => keep(0, self.read(offset, len)),
            _ => self.read_many(&parts, &mut keep),
        }
        self.ahead.append(&mut stretches);
    }

    /// Whether all bytes at `range` were read ahead, or announced as the tail of a map.
    fn is_kept(&self, range: &Range<u64>) -> bool {
        let is_within =
            |stretch: Range<u64>| stretch.start <= range.start && range.end <= stretch.end;
        if self.is_memory() {
            return is_within(self.tail());
        }
        let mut stretches = self.ahead.iter();
        stretches.any(|(start, bytes)| is_within(*start..start + bytes.len() as u64))
    }

    /// Keeps stretches of the file, each with its offset, that somebody else has read.
    #[cfg(feature = "async")]
    pub(super) fn keep(&mut self, stretches: impl IntoIterator<Item = (u64, Bytes)>) {
        self.ahead.extend(stretches);
    }

    /// Drops the bytes that were kept for opening.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead = Vec::new();
    }

    /// Whether the file lies in memory, where reading is no I/O.
    pub(crate) fn is_memory(&self) -> bool {
        self.memory().is_some()
    }

    /// Whether the file lies in memory as a map, where to touch it may be I/O.
    pub(crate) fn is_mapped(&self) -> bool {
        self.source.map.is_some()
    }

    /// Asks the system to read `len` bytes at `offset` of a mapped file, without waiting for them.
    pub(crate) fn announce(&self, offset: u64, len: u64) {
        if let Some(map) = &self.source.map {
            map.announce(offset, len);
        }
    }

    /// Tells the system that from now on a mapped file is read here and there: reading ahead of that would be wasted.
    pub(crate) fn expect_random_access(&self) {
        if let Some(map) = &self.source.map {
            map.expect_random_access();
        }
    }

    /// The bytes of the file, if they are in memory.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Bytes> {
        match &self.source.bytes {
            SourceBytes::Memory(bytes) => Some(bytes),
            SourceBytes::Io(_) => None,
        }
    }

    /// The same bytes of the file in memory, with a reference count that the calling thread shares with few others.
    pub(super) fn own<'a>(&'a self, bytes: &'a Bytes) -> &'a Bytes {
        self.owners.of_this_thread(bytes)
    }

    /// Where the file was opened, if that is known.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.source.path.as_deref()
    }

    /// `error`, with the path of the file if it is known, and reported to those who trace.
    #[cold]
    pub(crate) fn name_in(&self, error: Error) -> Error {
        trace::error(self.with_path(error), None, None)
    }

    #[cold]
    fn with_path(&self, error: Error) -> Error {
        match self.path() {
            Some(path) => error.at_path(path),
            None => error,
        }
    }

    /// The error of a defect in the part of this file that begins at `offset`.
    #[cold]
    pub(crate) fn locate(&self, defect: Defect, section: Section, offset: u64) -> Error {
        let error = self.with_path(defect.locate(section, offset));
        trace::error(error, Some(section), Some(offset))
    }

    /// Where the footer begins; 0 in a file that is too short for one.
    pub(crate) fn footer_offset(&self) -> u64 {
        self.size.saturating_sub(FOOTER_LEN as u64)
    }

    /// The footer; where there is none, the error says what the file is instead.
    pub(crate) fn footer(&self) -> Result<Footer> {
        if self.size < FOOTER_LEN as u64 {
            return Err(self.not_a_table());
        }
        let bytes = self.read(self.footer_offset(), FOOTER_LEN)?;
        if !Footer::has_magic(&bytes) {
            return Err(self.not_a_table());
        }
        Footer::decode(&bytes)
            .map_err(|defect| self.locate(defect, Section::Footer, self.footer_offset()))
    }

    #[cold]
    fn not_a_table(&self) -> Error {
        let error = self.identify().map(is_no_table);
        error.map_or_else(|error| error, |error| self.name_in(error))
    }

    /// What a file without a footer is: a noun, a colon, and advice.
    pub(crate) fn identify(&self) -> Result<String> {
        let (head, tail) = self.ends(identify::PEEK_LEN)?;
        Ok(identify::describe(&head, &tail, self.size))
    }

    /// Refuses a table of one of LevelDB's relatives, whose blocks may be sound and still not be a table's data.
    pub(crate) fn refuse_foreign(&self) -> Result<()> {
        let len = self.size.min(FOOTER_LEN as u64);
        // If the end cannot be read, the rest may be a table all the same.
        let tail = self.read(self.size - len, len as usize).ok();
        match tail.and_then(|tail| identify::foreign_table(&tail)) {
            Some(what) => Err(self.name_in(is_no_table(what))),
            None => Ok(()),
        }
    }

    /// At most `len` bytes from each end of the file.
    fn ends(&self, len: usize) -> Result<(Bytes, Bytes)> {
        let len = usize::try_from(self.size).map_or(len, |size| size.min(len));
        Ok((self.read(0, len)?, self.read(self.size - len as u64, len)?))
    }

    /// The index block.
    pub(crate) fn read_index(&self, footer: &Footer) -> Result<Bytes> {
        let named_by = (Section::Footer, self.footer_offset());
        let index = self.read_block(footer.index, Section::Index, named_by);
        index.map_err(|error| match error.kind() {
            ErrorKind::Corruption => error.with_hint("restore the file from a copy"),
            _ => error,
        })
    }

    /// The metaindex block.
    pub(crate) fn read_metaindex(&self, footer: &Footer) -> Result<Bytes> {
        let named_by = (Section::Footer, self.footer_offset());
        self.read_block(footer.metaindex, Section::Metaindex, named_by)
    }

    /// A block other than a data block, which the handle in `named_by` (a section and its offset) names.
    /// Always verified.
    pub(crate) fn read_block(
        &self,
        handle: BlockHandle,
        section: Section,
        named_by: (Section, u64),
    ) -> Result<Bytes> {
        let frame = self.read_sound_frame(handle, section, named_by)?;
        frame::open(&frame).map_err(|defect| self.locate(defect, section, handle.offset))
    }

    /// The frame of such a block.
    pub(crate) fn read_sound_frame(
        &self,
        handle: BlockHandle,
        section: Section,
        named_by: (Section, u64),
    ) -> Result<Bytes> {
        let len = self
            .check_handle(handle, section)
            .map_err(|defect| self.locate(defect, named_by.0, named_by.1))?;
        self.announce(handle.offset, len);
        let frame = self.read_frame(handle)?;
        match frame::verify(&frame) {
            Ok(()) => Ok(frame),
            Err(defect) => Err(self.locate(defect, section, handle.offset)),
        }
    }

    /// Checks that a handle to a block of `section` leads into the file. Returns the bytes of the frame there.
    pub(crate) fn check_handle(
        &self,
        handle: BlockHandle,
        section: Section,
    ) -> Result<u64, Defect> {
        let range = self.range_of(handle).ok_or_else(|| {
            let most = self.footer_offset();
            Defect::new(
                format!(
                    "a handle to the {section}, of less than 4 GiB and at or before the footer at {most}"
                ),
                format!(
                    "one to {} bytes and a trailer at {}",
                    handle.size, handle.offset
                ),
            )
        })?;
        Ok(range.end - range.start)
    }

    /// Where the frame of the block at `handle` lies, if that is smaller than 4 GiB and lies before the footer.
    fn range_of(&self, handle: BlockHandle) -> Option<Range<u64>> {
        u32::try_from(handle.size).ok()?;
        let end = handle.end().filter(|&end| end <= self.footer_offset())?;
        Some(handle.offset..end)
    }

    /// The frame of a block that lies inside the file.
    pub(crate) fn read_frame(&self, handle: BlockHandle) -> Result<Bytes> {
        match frame_len(handle) {
            Some(len) => self.read(handle.offset, len),
            None => Err(self.name_in(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a block of {} bytes does not fit this machine's memory",
                    handle.size
                ),
            ))),
        }
    }

    /// The same if it was read ahead, for a caller who does not keep it: a slice of all that came with it.
    pub(super) fn frame_ahead(&self, handle: BlockHandle) -> Option<Bytes> {
        let (frame, _) = self.read_from_ahead(handle.offset, frame_len(handle)?)?;
        Some(frame)
    }

    /// Gives `each` all `parts`, each an offset and a length inside the file, by their positions, or why one cannot be read.
    /// All are asked for at once.
    pub(crate) fn read_many(
        &self,
        parts: &[(u64, usize)],
        each: &mut dyn FnMut(usize, Result<Bytes>),
    ) {
        let SourceBytes::Io(source) = &self.source.bytes else {
            for (i, &(offset, len)) in parts.iter().enumerate() {
                each(i, self.read(offset, len));
            }
            return;
        };
        if parts.is_empty() {
            return;
        }
        let bytes = parts.iter().map(|&(_, len)| len as u64).sum();
        self.counters.add(Counter::SourceReads, parts.len() as u64);
        self.counters.add(Counter::SourceBytes, bytes);
        trace::read_many(self.path(), parts, bytes);
        let mut left: Vec<Option<(u64, usize)>> = parts.iter().copied().map(Some).collect();
        source.read_many_at(parts, &mut |i, read| {
            // What was not asked for, or was given already, is ignored.
            if let Some((offset, len)) = left.get_mut(i).and_then(Option::take) {
                each(i, self.check_read(offset, len, read));
            }
        });
        for (i, part) in left.into_iter().enumerate() {
            if let Some((offset, len)) = part {
                let missing = io::Error::other("the source returned no result for this part");
                each(i, self.check_read(offset, len, Err(missing)));
            }
        }
    }

    /// The `len` bytes at `offset`, which lie inside the file.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let read = match &self.source.bytes {
            SourceBytes::Memory(bytes) => self.own(bytes).read_at(offset, len),
            SourceBytes::Io(source) => match self.read_from_ahead(offset, len) {
                // A part of a stretch is copied, so that it does not keep all of that in memory.
                Some((part, whole)) if part.len() < whole / 8 * 7 => {
                    Ok(Bytes::copy_from_slice(&part))
                }
                Some((part, _)) => Ok(part),
                None => {
                    self.count_read(offset, len);
                    source.read_at(offset, len)
                }
            },
        };
        self.check_read(offset, len, read)
    }

    /// Counts a read from the source that is about to be made.
    #[inline]
    pub(super) fn count_read(&self, offset: u64, len: usize) {
        self.counters.add(Counter::SourceReads, 1);
        self.counters.add(Counter::SourceBytes, len as u64);
        trace::read(self.path(), offset, len);
    }

    /// What the source returned for the `len` bytes at `offset`: as many bytes, or an error.
    #[inline]
    pub(super) fn check_read(
        &self,
        offset: u64,
        len: usize,
        read: io::Result<Bytes>,
    ) -> Result<Bytes> {
        let error = match read {
            Ok(bytes) if bytes.len() == len => return Ok(bytes),
            Ok(bytes) => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the source returned {} bytes", bytes.len()),
            ),
            Err(error) => error,
        };
        // Of a file that is fetched as it is opened: no error, the part is just not there yet.
        let is_awaited = error.kind() == io::ErrorKind::WouldBlock;
        let reading = format!("reading {len} bytes at offset {offset}");
        let error = self.with_path(Error::reading(reading, error));
        Err(if is_awaited {
            error
        } else {
            trace::error(error, None, Some(offset))
        })
    }

    /// The `len` bytes at `offset`, if they were read ahead, and the length of the stretch that they keep in memory.
    fn read_from_ahead(&self, offset: u64, len: usize) -> Option<(Bytes, usize)> {
        self.ahead.iter().find_map(|(start, stretch)| {
            let start = usize::try_from(offset.checked_sub(*start)?).ok()?;
            let end = start.checked_add(len).filter(|&end| end <= stretch.len())?;
            Some((stretch.slice(start..end), stretch.len()))
        })
    }
}

/// The bytes of the frame of the block at `handle`, if this machine's memory could hold so many.
fn frame_len(handle: BlockHandle) -> Option<usize> {
    usize::try_from(handle.size).ok()?.checked_add(TRAILER_LEN)
}

/// `ranges` as they are read: in the file's order, each byte once, and together what lies together.
fn together(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut together: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let Some(before) = together
            .last_mut()
            .filter(|before| range.start <= before.end)
        else {
            together.push(range);
            continue;
        };
        let overlaps = range.start < before.end;
        let most = if overlaps {
            u64::from(u32::MAX)
        } else {
            MOST_TOGETHER
        };
        let end = range.end.max(before.end);
        if end - before.start <= most {
            before.end = end;
        } else if !overlaps {
            together.push(range);
        } // else it is no part of a table, and is read when it is needed
    }
    together
}

#[cold]
fn is_no_table(what: String) -> Error {
    Error::new(ErrorKind::NotATable, format!("this is {what}"))
}
