//! A table's file as it is read: bytes at offsets, blocks at handles, and every error with its place.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::footer::{BlockHandle, FOOTER_LEN, Footer, MAGIC};
use crate::format::frame::{self, TRAILER_LEN};
#[cfg(feature = "async")]
use crate::read::source::async_read_at::{self, MAX_REQUEST_GAP, MAX_REQUEST_LEN};
use crate::read::source::coalesce::{MAX_GAP, MAX_READ_LEN, coalesce};
use crate::read::source::identify;
use crate::read::source::owners::Owners;
use crate::read::source::stats::{Counter, Counters};
use crate::read::source::weight::ARC;
use crate::read::source::{MappedFile, ReadAt, Source, SourceBytes};

/// Bytes at the end of a file that opening reads at once. An ordinary small table lies in them whole, and of one of up to
/// 10 MB the index.
pub(crate) const TAIL_LEN: u64 = 64 << 10;

/// What to do about damage.
const REMEDY: &str =
    "`verify` of leveltable-repair lists all damage, and `salvage` copies what is sound";

/// The source, its size, and counters of what was read.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) source: Source,
    pub(crate) size: u64,
    pub(crate) counters: Counters,
    /// Of a file in memory, reference counts that few threads share.
    pub(crate) owners: Owners,
    /// What was read while the table is being opened.
    pub(crate) fetched: Vec<FileSlice>,
}

/// Bytes of the file that were read together.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileSlice {
    /// Where they begin in the file.
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

impl FileSlice {
    /// The bytes at `range` of the file, if the slice has them all.
    pub(crate) fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        Some(self.bytes.slice(self.place(range)?))
    }

    /// Where in the slice they are.
    fn place(&self, range: &Range<u64>) -> Option<Range<usize>> {
        let start = usize::try_from(range.start.checked_sub(self.offset)?).ok()?;
        let end = start.checked_add(saturating_len(range))?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

impl TableFile {
    pub(crate) fn new(source: Source) -> Result<TableFile> {
        let size = match &source.bytes {
            SourceBytes::Memory(bytes, _) => Ok(bytes.len() as u64),
            SourceBytes::File(file) => {
                (source.opened.as_ref()).map_or_else(|| file.size(), |opened| Ok(opened.size()))
            }
            SourceBytes::Io(source) => source.size(),
            #[cfg(feature = "async")]
            SourceBytes::Remote(_) => Ok(0), // it comes with the tail
        };
        let mut file = TableFile {
            source,
            size: 0,
            counters: Counters::default(),
            owners: Owners::new(false),
            fetched: Vec::new(),
        };
        file.owners = Owners::new(file.is_memory());
        file.size =
            size.map_err(|e| file.with_path(Error::io("asking for the table's size", e)))?;
        Ok(file)
    }

    /// Both ends of the file, which tell what it is if it is no table.
    pub(crate) fn ends(&self) -> [Range<u64>; 2] {
        let len = self.size.min(identify::PEEK_LEN as u64);
        [0..len, self.size - len..self.size]
    }

    /// Reads those of `parts` that were not fetched yet, all at once, and keeps them.
    ///
    /// Awaits requests, and nothing else: of other sources, the parts are there when the future is first polled. What of these cannot
    /// be read with other parts is read alone when it is needed. An error names the section, if all that is missing is of one.
    pub(crate) async fn fetch(
        &mut self,
        parts: impl IntoIterator<Item = (Section, Range<u64>)>,
    ) -> Result<()> {
        let missing = parts
            .into_iter()
            .filter(|(_, part)| !self.has_fetched(part));
        let (sections, mut missing): (Vec<Section>, Vec<Range<u64>>) = missing.unzip();
        missing.sort_unstable_by_key(|part| (part.start, part.end));
        let slices = match &self.source.bytes {
            #[cfg(feature = "async")]
            SourceBytes::Remote(source) => self.request(&**source, &missing).await,
            _ => {
                let parts = coalesced(&missing, MAX_GAP, MAX_READ_LEN);
                let mut slices = Vec::new();
                let mut keep = |i, read| {
                    if let (Some(&(offset, _)), Ok(bytes)) = (parts.get(i), read) {
                        slices.push(FileSlice { offset, bytes });
                    }
                };
                self.read_many(&parts, &mut keep);
                Ok(slices)
            }
        };
        let slices = slices.map_err(|e: Error| match &sections[..] {
            [section, rest @ ..] if rest.iter().all(|other| other == section) => {
                e.of_section(*section)
            }
            _ => e,
        });
        self.fetched.extend(slices?);
        Ok(())
    }

    /// Requests `parts`, which ascend, all at the same time.
    #[cfg(feature = "async")]
    async fn request(
        &self,
        source: &dyn async_read_at::AsyncReadAt,
        parts: &[Range<u64>],
    ) -> Result<Vec<FileSlice>> {
        let parts = coalesced(parts, MAX_REQUEST_GAP, MAX_REQUEST_LEN);
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        self.count_reads(&parts);
        let mut responses = source.read_many_at(&parts).await.into_iter();
        let slices = parts.iter().map(|&(offset, len)| {
            let none = || Err(io::Error::other("the source returned no result"));
            let response = responses.next().unwrap_or_else(none);
            let bytes = self.check_read(offset, len, response)?;
            Ok(FileSlice { offset, bytes })
        });
        slices.collect()
    }

    /// Reads `ranges`, which ascend, all at once: those at most [`MAX_GAP`] bytes apart together, up to [`MAX_READ_LEN`] bytes.
    ///
    /// Gives `each` the bytes of every range, with its position, as they come in, in memory of their own; of a file in memory, a slice of
    /// it. A range that cannot be read with others is read alone: an error is that of one range.
    pub(crate) fn read_each(
        &self,
        ranges: &[Range<u64>],
        each: &mut dyn FnMut(usize, Result<Bytes>),
    ) {
        // Where nothing is read, nothing is gained by reading together.
        let max_len = if self.is_memory() { 0 } else { MAX_READ_LEN };
        let groups = coalesce(ranges, MAX_GAP, max_len);
        let parts: Vec<(u64, usize)> = groups.iter().map(|group| part(&group.bytes)).collect();
        self.read_many(&parts, &mut |i, read| {
            let Some(group) = groups.get(i) else { return };
            if group.items.len() == 1 {
                return each(group.items.start, read);
            }
            let offset = group.bytes.start;
            let slice = read.ok().map(|bytes| FileSlice { offset, bytes });
            let ranges = ranges.iter().enumerate();
            for (i, range) in ranges.skip(group.items.start).take(group.items.len()) {
                let bytes = slice.as_ref().and_then(|slice| slice.get(range));
                let copy = bytes.map(|bytes| Bytes::copy_from_slice(&bytes));
                each(i, copy.map_or_else(|| self.read_range(range), Ok));
            }
        });
    }

    /// Whether all bytes at `range` were fetched; of a mapped file, whether they were announced.
    pub(crate) fn has_fetched(&self, range: &Range<u64>) -> bool {
        self.fetched
            .iter()
            .any(|slice| slice.place(range).is_some())
    }

    /// Bytes of memory that it takes, apart from the structure itself, its owners, and what the caller made: a file in memory, or another
    /// source.
    pub(crate) fn weight(&self) -> usize {
        let Source {
            bytes,
            path,
            opened,
        } = &self.source;
        let file = match bytes {
            SourceBytes::File(_) => ARC + size_of::<File>(),
            _ => 0,
        };
        let path = path.as_ref().map_or(0, |path| ARC + path.as_os_str().len());
        let opened = opened.as_ref().map_or(0, |opened| ARC + opened.weight());
        Counters::WEIGHT + file + path + opened
    }

    /// Whether a block that is read alone lies in bytes of its own: another source may return a slice of something large.
    pub(crate) fn reads_alone(&self) -> bool {
        matches!(self.source.bytes, SourceBytes::File(_))
    }

    /// Whether the file lies in memory, where reading is no I/O.
    pub(crate) fn is_memory(&self) -> bool {
        self.memory().is_some()
    }

    /// The map of a file that lies in memory as one, where to touch it may be I/O.
    pub(crate) fn map(&self) -> Option<&dyn MappedFile> {
        match &self.source.bytes {
            SourceBytes::Memory(_, map) => map.as_deref(),
            _ => None,
        }
    }

    /// Asks the system to read `len` bytes at `offset` of a mapped file, without waiting for them.
    pub(crate) fn announce(&self, offset: u64, len: u64) {
        if let Some(map) = self.map() {
            map.announce(offset, len);
        }
    }

    /// The bytes of the file, if they are in memory.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Bytes> {
        match &self.source.bytes {
            SourceBytes::Memory(bytes, _) => Some(bytes),
            _ => None,
        }
    }

    /// Where the file was opened, if that is known.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.source.path.as_deref()
    }

    /// `error`, with the path of the file if it is known.
    #[cold]
    pub(crate) fn with_path(&self, error: Error) -> Error {
        error.in_file(self.path())
    }

    /// The error of a defect in the part of this file that begins at `offset`.
    #[cold]
    pub(crate) fn locate(&self, defect: Defect, section: Section, offset: u64) -> Error {
        let error = self.with_path(defect.locate(section, offset));
        if error.kind() != ErrorKind::Corruption {
            return error;
        }
        // While the table is being opened, its tail is kept.
        let [_, tail] = self.ends();
        let tail = self.read_fetched(tail.start, saturating_len(&tail));
        let copy = tail.and_then(|tail| identify::describe_copy(&tail, self.size));
        match copy {
            // The footer itself may be what is damaged.
            Some(copy) => error.with_hint(&format!(
                "this may be {copy}; if that does not help, {REMEDY}"
            )),
            None => error.with_hint(REMEDY),
        }
    }

    /// Where the footer begins; 0 in a file that is too short for one.
    pub(crate) fn footer_offset(&self) -> u64 {
        self.size.saturating_sub(FOOTER_LEN as u64)
    }

    /// The footer; `None` if the file does not end as a table does.
    pub(crate) fn find_footer(&self) -> Result<Option<Footer>> {
        if self.size < FOOTER_LEN as u64 {
            return Ok(None);
        }
        let bytes = self.read(self.footer_offset(), FOOTER_LEN);
        let bytes = bytes.map_err(|e| e.of_section(Section::Footer))?;
        if !bytes.ends_with(&MAGIC.to_le_bytes()) {
            return Ok(None);
        }
        let footer = Footer::decode(&bytes).map(Some);
        footer.map_err(|defect| self.locate(defect, Section::Footer, self.footer_offset()))
    }

    /// The error of a file without a footer, which says what it is.
    #[cold]
    pub(crate) fn not_a_table(&self) -> Error {
        match self.ends().map(|end| self.read_range(&end)) {
            [Ok(head), Ok(tail)] => {
                let what = identify::describe(&head, &tail, self.size);
                self.with_path(is_no_table(what))
            }
            [Err(error), _] | [_, Err(error)] => error,
        }
    }

    /// The frame of a block other than a data block, which the handle in `named_by` (a section and its offset) names.
    /// Always verified.
    pub(crate) fn read_sound_frame(
        &self,
        handle: BlockHandle,
        section: Section,
        named_by: (Section, u64),
    ) -> Result<Bytes> {
        let checked = self.check_handle(handle, section);
        checked.map_err(|defect| self.locate(defect, named_by.0, named_by.1))?;
        let frame = self.read_frame(handle, section)?;
        let verified = frame::verify(&frame);
        verified.map_err(|defect| self.locate(defect, section, handle.offset))?;
        Ok(frame)
    }

    /// Checks that a handle to a block of `section` leads into the file. Returns where the frame lies.
    pub(crate) fn check_handle(
        &self,
        handle: BlockHandle,
        section: Section,
    ) -> Result<Range<u64>, Defect> {
        handle.check(section, self.footer_offset())
    }

    /// Where the frame of the block at `handle` lies, if that is smaller than 4 GiB and lies before the footer.
    pub(crate) fn range_of(&self, handle: BlockHandle) -> Option<Range<u64>> {
        handle.frame_before(self.footer_offset())
    }

    /// The frame of a block that lies inside the file.
    pub(crate) fn read_frame(&self, handle: BlockHandle, section: Section) -> Result<Bytes> {
        let len = usize::try_from(handle.size).unwrap_or(usize::MAX);
        let read = self.read(handle.offset, len.saturating_add(TRAILER_LEN));
        read.map_err(|e| e.of_section(section))
    }

    /// The bytes at `range`, which lies inside the file.
    pub(crate) fn read_range(&self, range: &Range<u64>) -> Result<Bytes> {
        self.read(range.start, saturating_len(range))
    }

    /// Gives `each` all `parts`, each an offset and a length inside the file, by their positions, or why one cannot be read.
    /// All are asked for at once.
    pub(crate) fn read_many(
        &self,
        parts: &[(u64, usize)],
        each: &mut dyn FnMut(usize, Result<Bytes>),
    ) {
        let source: &dyn ReadAt = match &self.source.bytes {
            SourceBytes::File(file) => file,
            SourceBytes::Io(source) => source,
            _ => {
                let announce = |&(offset, len): &(u64, usize)| self.announce(offset, len as u64);
                parts.iter().for_each(announce);
                let parts = parts.iter().enumerate();
                return parts.for_each(|(i, &(offset, len))| each(i, self.read(offset, len)));
            }
        };
        if parts.is_empty() {
            return;
        }
        self.count_reads(parts);
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
        if !self.is_memory() {
            if let Some(fetched) = self.read_fetched(offset, len) {
                return Ok(fetched);
            }
            self.count_reads(&[(offset, len)]);
        }
        let read = match &self.source.bytes {
            SourceBytes::Memory(bytes, _) => self.owners.of_this_thread(bytes).read_at(offset, len),
            SourceBytes::File(file) => file.read_at(offset, len),
            SourceBytes::Io(source) => source.read_at(offset, len),
            #[cfg(feature = "async")]
            SourceBytes::Remote(_) => Err(io::Error::other("this part was not fetched")),
        };
        self.check_read(offset, len, read)
    }

    /// The `len` bytes at `offset`, if they were fetched: in memory of their own, unless they are most of their slice.
    fn read_fetched(&self, offset: u64, len: usize) -> Option<Bytes> {
        let range = offset..offset.checked_add(len as u64)?;
        self.fetched.iter().find_map(|slice| {
            let part = slice.get(&range)?;
            let is_most = part.len() >= slice.bytes.len() / 8 * 7;
            let copy = (!is_most).then(|| Bytes::copy_from_slice(&part));
            copy.or(Some(part))
        })
    }

    /// Counts reads from the source that are about to be made, of parts that are asked for at once.
    pub(crate) fn count_reads(&self, parts: &[(u64, usize)]) {
        let bytes = parts.iter().map(|&(_, len)| len as u64).sum();
        self.counters.add(Counter::SourceReads, parts.len() as u64);
        self.counters.add(Counter::SourceBytes, bytes);
    }

    /// What the source returned for the `len` bytes at `offset`: as many bytes, or an error.
    pub(crate) fn check_read(
        &self,
        offset: u64,
        len: usize,
        read: io::Result<Bytes>,
    ) -> Result<Bytes> {
        match read {
            Ok(bytes) if bytes.len() == len => Ok(bytes),
            read => Err(self.failed_read(offset, len, read)),
        }
    }

    #[cold]
    fn failed_read(&self, offset: u64, len: usize, read: io::Result<Bytes>) -> Error {
        let error = match read {
            Ok(bytes) => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the source returned {} bytes", bytes.len()),
            ),
            Err(error) => self.source.explain(error, self.size),
        };
        let reading = format!("reading {len} bytes at offset {offset}");
        self.with_path(Error::reading(reading, error))
    }
}

/// How long `range` is. What does not fit this machine's memory is an error when it is read.
pub(crate) fn saturating_len(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
}

/// `range` as its offset and length.
fn part(range: &Range<u64>) -> (u64, usize) {
    (range.start, saturating_len(range))
}

/// Which parts of the file to read for `ranges`, which ascend.
pub(crate) fn coalesced(ranges: &[Range<u64>], max_gap: u64, max_len: u64) -> Vec<(u64, usize)> {
    let groups = coalesce(ranges, max_gap, max_len);
    groups.iter().map(|group| part(&group.bytes)).collect()
}

#[cold]
fn is_no_table(what: String) -> Error {
    Error::new(ErrorKind::NotATable, format!("this is {what}"))
}
