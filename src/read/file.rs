//! A table's file as it is read: bytes at offsets, blocks at handles, and every error with its place.

use std::io;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer};
use crate::format::frame::{self, TRAILER_LEN};
use crate::read::coalesce::coalesce;
use crate::read::identify;
use crate::read::owners::Owners;
use crate::read::source::{ReadAt, Source, SourceBytes};
use crate::read::stats::{Counter, Counters};
use crate::read::store::MAX_READ_LEN;
use crate::trace;

/// Bytes at the end of a file that opening reads at once. An ordinary small table lies in them whole, and of one of up to
/// 10 MB the index.
pub(super) const TAIL_LEN: u64 = 64 << 10;

/// Bytes before a metaindex that are read with it: an ordinary properties block takes some 300.
const PROPERTIES_ROOM: u64 = 4 << 10;

/// Parts that opening needs are read together up to this length. Larger ones take longer to come than to be asked for, and are
/// read each into memory of its own.
const MAX_TOGETHER: u64 = 8 << 20;

/// The source, its size, and counters of what was read.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) source: Source,
    pub(crate) size: u64,
    pub(crate) counters: Counters,
    owners: Owners,
    /// What was read while the table is being opened.
    held: Vec<Stretch>,
}

/// Bytes of the file that were read together.
#[derive(Debug, Clone, Default)]
pub(super) struct Stretch {
    /// Where they begin in the file.
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
}

impl Stretch {
    /// The bytes at `range` of the file, if the stretch has them all.
    pub(super) fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let start = usize::try_from(range.start.checked_sub(self.offset)?).ok()?;
        let end = start.checked_add(usize::try_from(range.end - range.start).ok()?)?;
        (end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }
}

/// Reads parts of a file that is being opened: from the file itself, or by requests to a store.
///
/// Opening says what it needs; this is all that differs between [`Table::open`](crate::Table::open) and its asynchronous twin.
pub(super) trait Fetch: Sync {
    /// Parts that lie at most so many bytes apart are read as one.
    const MAX_GAP: u64;

    /// Most bytes of pieces of index and filters that are read as one.
    const MAX_LEN: u64;

    /// Reads `parts`, each an offset and a length inside the file, at the same time. A part that cannot be read may be missing
    /// from the result only if [`TableFile::read`] reads it again when it is needed.
    fn fetch(
        &self,
        file: &TableFile,
        parts: &[(u64, usize)],
    ) -> impl Future<Output = Result<Vec<Stretch>>> + Send;
}

/// Reads from the file's own source, without waiting.
pub(super) struct FromSource;

impl Fetch for FromSource {
    const MAX_GAP: u64 = 0;
    const MAX_LEN: u64 = MAX_READ_LEN;

    async fn fetch(&self, file: &TableFile, parts: &[(u64, usize)]) -> Result<Vec<Stretch>> {
        let mut stretches = Vec::with_capacity(parts.len());
        let mut hold = |i, read| {
            // What could not be read with other parts is read alone when it is needed.
            if let (Some(&(offset, _)), Ok(bytes)) = (parts.get(i), read) {
                stretches.push(Stretch { offset, bytes });
            }
        };
        for &(offset, len) in parts {
            file.announce(offset, len as u64);
        }
        match parts {
            &[(offset, len)] => hold(0, file.read(offset, len)),
            _ => file.read_many(parts, &mut hold),
        }
        Ok(stretches)
    }
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
            held: Vec::new(),
        };
        file.size = size.map_err(|e| file.name_in(Error::io("asking for the table's size", e)))?;
        Ok(file)
    }

    /// The end of the file, which holds all that opening needs of a small table.
    pub(super) fn tail(&self) -> Range<u64> {
        self.size.saturating_sub(TAIL_LEN)..self.size
    }

    /// Where the footer lies.
    pub(super) fn footer_range(&self) -> Range<u64> {
        self.footer_offset()..self.size
    }

    /// Both ends of the file, which tell what it is if it is no table.
    pub(super) fn ends_to_identify(&self) -> [Range<u64>; 2] {
        let len = self.size.min(identify::PEEK_LEN as u64);
        [0..len, self.size - len..self.size]
    }

    /// Where the metaindex lies and what may be the properties before it, and the index, which is needed in any case. Nothing if
    /// the tail has the metaindex: the index then comes with what that names.
    pub(super) fn metadata(&self, footer: &Footer) -> Vec<Range<u64>> {
        let metaindex = self.range_of(footer.metaindex);
        let Some(metaindex) = metaindex.filter(|metaindex| !self.holds(metaindex)) else {
            return Vec::new();
        };
        let metaindex = metaindex.start.saturating_sub(PROPERTIES_ROOM)..metaindex.end;
        [Some(metaindex), self.range_of(footer.index)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Reads those of `parts` that are not held yet, all at once, and holds them until [`release`](TableFile::release).
    pub(super) async fn hold<F: Fetch>(
        &mut self,
        fetch: &F,
        parts: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<()> {
        let parts = parts.into_iter();
        let mut missing: Vec<Range<u64>> = parts.filter(|part| !self.holds(part)).collect();
        missing.sort_unstable_by_key(|part| (part.start, part.end));
        let groups = coalesce(&missing, F::MAX_GAP, MAX_TOGETHER);
        let parts: Vec<(u64, usize)> = groups
            .iter()
            .map(|group| (group.bytes.start, saturating_len(&group.bytes)))
            .collect();
        if self.is_memory() {
            for &(offset, len) in &parts {
                self.announce(offset, len as u64);
                let bytes = self.read(offset, len)?;
                self.held.push(Stretch { offset, bytes });
            }
        } else if !parts.is_empty() {
            let stretches = fetch.fetch(self, &parts).await?;
            self.held.extend(stretches);
        }
        Ok(())
    }

    /// Holds stretches of the file that somebody else has read.
    #[cfg(feature = "async")]
    pub(super) fn hold_stretch(&mut self, stretch: Stretch) {
        self.held.push(stretch);
    }

    /// Whether all bytes at `range` are held; of a mapped file, whether they were announced.
    pub(super) fn holds(&self, range: &Range<u64>) -> bool {
        let mut held = self.held.iter();
        held.any(|stretch| stretch.get(range).is_some())
    }

    /// Drops the bytes that were held for opening.
    pub(crate) fn release(&mut self) {
        self.held = Vec::new();
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

    /// Whether the file ends as a table does. `true` if its end cannot be read, which is an error of reading the footer.
    pub(super) fn has_magic(&self) -> bool {
        let footer = self.size >= FOOTER_LEN as u64;
        footer
            && self
                .read(self.footer_offset(), FOOTER_LEN)
                .map_or(true, |bytes| Footer::has_magic(&bytes))
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
    pub(super) fn range_of(&self, handle: BlockHandle) -> Option<Range<u64>> {
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
            SourceBytes::Io(source) => {
                if let Some(part) = self.read_held(offset, len) {
                    return Ok(part);
                }
                self.count_read(offset, len);
                source.read_at(offset, len)
            }
        };
        self.check_read(offset, len, read)
    }

    /// The `len` bytes at `offset`, if they are held: in memory of their own, unless they are most of their stretch.
    fn read_held(&self, offset: u64, len: usize) -> Option<Bytes> {
        let range = offset..offset.checked_add(len as u64)?;
        self.held.iter().find_map(|stretch| {
            let part = stretch.get(&range)?;
            Some(if part.len() < stretch.bytes.len() / 8 * 7 {
                Bytes::copy_from_slice(&part)
            } else {
                part
            })
        })
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
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.source.ended_early(error, self.size)
            }
            Err(error) => error,
        };
        let reading = format!("reading {len} bytes at offset {offset}");
        let error = self.with_path(Error::reading(reading, error));
        Err(trace::error(error, None, Some(offset)))
    }
}

/// The bytes of the frame of the block at `handle`, if this machine's memory could hold so many.
fn frame_len(handle: BlockHandle) -> Option<usize> {
    usize::try_from(handle.size).ok()?.checked_add(TRAILER_LEN)
}

/// How long `range` is. What does not fit this machine's memory is an error when it is read.
pub(super) fn saturating_len(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
}

#[cold]
fn is_no_table(what: String) -> Error {
    Error::new(ErrorKind::NotATable, format!("this is {what}"))
}
