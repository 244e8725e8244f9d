//! A table's file: bytes at offsets, blocks at handles, and errors with their place.

use std::fs::File;
use std::io;
use std::ops::Range;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::Defect;
use crate::format::footer::{BlockHandle, Footer};
use crate::format::frame::TRAILER_LEN;
#[cfg(feature = "async")]
use crate::read::source::async_read_at::{MAX_REQUEST_GAP, MAX_REQUEST_LEN};
use crate::read::source::coalesce::{Group, MAX_GAP, MAX_READ_LEN, coalesce, saturating_len};
use crate::read::source::identify;
use crate::read::source::owners::Owners;
use crate::read::source::read_at::Announce;
use crate::read::source::stats::{Counter, Counters};
use crate::read::source::weight::ARC;
use crate::read::source::{ReadAt, Source, SourceBytes};

/// Number of bytes at the end of a file that opening reads at once. They contain an ordinary small table completely, and
/// the index of one of up to 10 MB.
pub(crate) const TAIL_LEN: u64 = 64 << 10;

/// Advice for a damaged file.
const REMEDY: &str =
    "`verify` of leveltable-repair lists all damage, and `salvage` copies what is sound";

/// The source, its size, and counters of reads.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) source: Source,
    pub(crate) size: u64,
    pub(crate) counters: Counters,
    /// Reference counts that few threads share, for a file in memory.
    pub(crate) owners: Owners,
    /// The parts that have been read while the table is being opened.
    pub(crate) fetched: Vec<FileSlice>,
}

/// Bytes of the file that were read together.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileSlice {
    /// Where the bytes begin in the file.
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

impl FileSlice {
    /// The bytes at `range` of the file, if the slice has all of them.
    pub(crate) fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let start = range.start.checked_sub(self.offset)?;
        self.bytes.read_at(start, saturating_len(range)).ok()
    }
}

impl TableFile {
    pub(crate) fn new(source: Source, size: u64) -> TableFile {
        TableFile {
            owners: Owners::new(matches!(source.bytes, SourceBytes::Memory(..))),
            source,
            size,
            counters: Counters::default(),
            fetched: Vec::new(),
        }
    }

    /// Both ends of the file, by which a file that is not a table is identified.
    pub(crate) fn ends(&self) -> [Range<u64>; 2] {
        let len = self.size.min(identify::PEEK_LEN as u64);
        [0..len, self.size - len..self.size]
    }

    /// Reads the `parts` that have not been fetched, all at once, and keeps them.
    ///
    /// Only awaits requests: with other sources, the parts are there when the future is first polled. A part that cannot be read with
    /// others is read alone when it is needed.
    pub(crate) async fn fetch(
        &mut self,
        parts: impl IntoIterator<Item = (Section, Range<u64>)>,
    ) -> Result<()> {
        let missing = parts
            .into_iter()
            .filter(|(_, part)| !self.has_fetched(part));
        let mut missing: Vec<(Section, Range<u64>)> = missing.collect();
        missing.sort_unstable_by_key(|(_, part)| (part.start, part.end));
        let ranges: Vec<Range<u64>> = missing.iter().map(|(_, part)| part.clone()).collect();
        let mut slices = Vec::new();
        match &self.source.bytes {
            #[cfg(feature = "async")]
            SourceBytes::Remote(source) if !ranges.is_empty() => {
                let groups = coalesce(&ranges, MAX_REQUEST_GAP, MAX_REQUEST_LEN);
                let parts: Vec<_> = groups.iter().map(Group::part).collect();
                self.count_reads(&parts);
                let mut responses = source.read_many_at(&parts).await.into_iter();
                for (group, (offset, len)) in groups.iter().zip(parts) {
                    let none = || Err(io::Error::other("the source returned no result"));
                    let response = responses.next().unwrap_or_else(none);
                    let bytes = self.check_read(offset, len, response);
                    let bytes = bytes.map_err(|e| match missing.get(group.items.start) {
                        Some((section, _)) => e.of_section(*section),
                        None => e,
                    })?;
                    slices.push(FileSlice { offset, bytes });
                }
            }
            _ => {
                let groups = coalesce(&ranges, MAX_GAP, MAX_READ_LEN);
                let parts: Vec<_> = groups.iter().map(Group::part).collect();
                self.read_many(&parts, &mut |i, read| {
                    if let (Some(&(offset, _)), Ok(bytes)) = (parts.get(i), read) {
                        slices.push(FileSlice { offset, bytes });
                    }
                });
            }
        }
        self.fetched.extend(slices);
        Ok(())
    }

    /// Reads `ranges`, which ascend, all at once: ranges at most [`MAX_GAP`] bytes apart together, up to [`MAX_READ_LEN`]
    /// bytes.
    ///
    /// Passes the bytes of every range to `each`, with its position, as they arrive, in memory of their own; for a file in memory, a
    /// slice of it. A range that cannot be read with others is read alone: an error is that of one range.
    pub(crate) fn read_each(
        &self,
        ranges: &[Range<u64>],
        each: &mut dyn FnMut(usize, Result<Bytes>),
    ) {
        // If nothing is read, reading together has no use.
        let max_len = if self.is_memory() { 0 } else { MAX_READ_LEN };
        let groups = coalesce(ranges, MAX_GAP, max_len);
        let parts: Vec<(u64, usize)> = groups.iter().map(Group::part).collect();
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

    /// Whether all bytes at `range` have been fetched; for a mapped file, whether they have been announced.
    pub(crate) fn has_fetched(&self, range: &Range<u64>) -> bool {
        self.fetched.iter().any(|slice| slice.get(range).is_some())
    }

    /// Bytes of memory that this takes, apart from the structure itself, its owners, and what belongs to the caller: a file in memory, or
    /// another source.
    pub(crate) fn weight(&self) -> usize {
        let (path, opened) = (&self.source.path, &self.source.opened);
        let file = if self.reads_alone() {
            ARC + size_of::<File>()
        } else {
            0
        };
        let path = path.as_ref().map_or(0, |path| ARC + path.as_os_str().len());
        let opened = opened.as_ref().map_or(0, |opened| ARC + opened.weight());
        Counters::WEIGHT + file + path + opened
    }

    /// Whether a block that is read alone has its own memory: another source may return a slice of something large.
    pub(crate) fn reads_alone(&self) -> bool {
        matches!(self.source.bytes, SourceBytes::File(_))
    }

    /// Whether the file lies in memory, where reading takes no I/O.
    pub(crate) fn is_memory(&self) -> bool {
        self.memory().is_some()
    }

    /// How to announce reads of the file, if it is mapped, where touching memory may be I/O.
    pub(crate) fn map(&self) -> Option<&Announce> {
        match &self.source.bytes {
            SourceBytes::Memory(_, announce) => announce.as_ref(),
            _ => None,
        }
    }

    /// Asks the system to read `len` bytes at `offset` of a mapped file, without waiting for them.
    pub(crate) fn announce(&self, offset: u64, len: u64) {
        if let Some(announce) = self.map() {
            announce(offset, len);
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

    /// `error`, with the path of the file if it is known.
    #[cold]
    pub(crate) fn with_path(&self, error: Error) -> Error {
        error.in_file(self.source.path.as_deref())
    }

    /// The error of a defect in the part of this file that begins at `offset`.
    #[cold]
    pub(crate) fn locate(&self, defect: Defect, section: Section, offset: u64) -> Error {
        let error = self.with_path(defect.locate(section, offset));
        if error.kind() != ErrorKind::Corruption {
            return error;
        }
        // The tail is kept while the table is being opened.
        let [_, tail] = self.ends();
        let tail = self.fetched.iter().find_map(|slice| slice.get(&tail));
        let copy = tail.and_then(|tail| identify::describe_copy(&tail, self.size));
        // The footer itself may be damaged.
        match copy {
            None => error.with_hint(REMEDY),
            Some(copy) => error
                .with_note(&format!("this may be {copy}"))
                .with_hint(&format!("if that does not help, {REMEDY}")),
        }
    }

    /// Where the footer begins; 0 if the file is too short for one.
    pub(crate) fn footer_offset(&self) -> u64 {
        self.size.saturating_sub(Footer::LEN as u64)
    }

    /// The error of a file without a footer, which says what the file is.
    #[cold]
    pub(crate) fn not_a_table(&self) -> Error {
        match self.ends().map(|end| self.read_range(&end)) {
            [Ok(head), Ok(tail)] => {
                let what = identify::describe(&head, &tail, self.size);
                self.with_path(Error::new(ErrorKind::NotATable, format!("this is {what}")))
            }
            [Err(error), _] | [_, Err(error)] => error,
        }
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

    /// Passes all `parts`, each an offset and a length inside the file, to `each` by their positions, or the error of a
    /// part. All are requested at once.
    pub(crate) fn read_many(
        &self,
        parts: &[(u64, usize)],
        each: &mut dyn FnMut(usize, Result<Bytes>),
    ) {
        if self.is_memory() {
            let announce = |&(offset, len): &(u64, usize)| self.announce(offset, len as u64);
            parts.iter().for_each(announce);
            let parts = parts.iter().enumerate();
            return parts.for_each(|(i, &(offset, len))| each(i, self.read(offset, len)));
        }
        if parts.is_empty() {
            return;
        }
        self.count_reads(parts);
        let mut left: Vec<Option<(u64, usize)>> = parts.iter().copied().map(Some).collect();
        self.source.read_many_at(parts, &mut |i, read| {
            // A part that was not requested, or has been passed already, is ignored.
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
        let read = match self.memory() {
            Some(bytes) => self.owners.of_this_thread(bytes).read_at(offset, len),
            None => {
                if let Some(fetched) = self.read_fetched(offset, len) {
                    return Ok(fetched);
                }
                self.count_reads(&[(offset, len)]);
                self.source.read_at(offset, len)
            }
        };
        self.check_read(offset, len, read)
    }

    /// The `len` bytes at `offset`, if they were fetched: in their own memory, unless they are most of their slice.
    fn read_fetched(&self, offset: u64, len: usize) -> Option<Bytes> {
        let range = offset..offset.checked_add(len as u64)?;
        self.fetched.iter().find_map(|slice| {
            let part = slice.get(&range)?;
            let is_most = part.len() >= slice.bytes.len() / 8 * 7;
            let copy = (!is_most).then(|| Bytes::copy_from_slice(&part));
            copy.or(Some(part))
        })
    }

    /// Counts reads that are about to be made from the source, of parts that are requested at once.
    pub(crate) fn count_reads(&self, parts: &[(u64, usize)]) {
        let bytes = parts.iter().map(|&(_, len)| len as u64).sum();
        self.counters.add(Counter::SourceReads, parts.len() as u64);
        self.counters.add(Counter::SourceBytes, bytes);
    }

    /// Checks what the source returned for the `len` bytes at `offset`: as many bytes, or an error.
    pub(crate) fn check_read(
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
            Err(error) => self.source.explain(error, self.size),
        };
        let reading = format!("reading {len} bytes at offset {offset}");
        Err(self.with_path(Error::reading(reading, error)))
    }
}
