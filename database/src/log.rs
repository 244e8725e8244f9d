//! LevelDB's log format, of logs and MANIFESTs: records in blocks of 32 KiB.
//!
//! ```text
//! block     fragment*  zeros, if fewer than 7 bytes are left
//! fragment  fixed32 masked CRC-32C of type and payload, fixed16 length, type, payload
//! type      1 a whole record; 2, 3, 4 the first, a middle, the last part of one
//! ```
//!
//! `docs/format.md` has a worked example.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use crc_fast::CrcAlgorithm;
use leveltable::{Error, Result};

const BLOCK_LEN: usize = 32 * 1024;
const HEADER_LEN: usize = 7;

/// Types of fragments; the one between, 3, is of middle parts.
const FULL: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

/// Bytes that a reader checks in all in search of fragments after damage. A file made for it could otherwise take the square of
/// the block's length for each block.
const SEARCH_LIMIT: usize = 1 << 30;

/// What a [`LogReader`] finds next in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogItem {
    /// A record, all of whose checksums are right.
    Record(LogRecord),
    /// Bytes that are no record.
    Gap(Gap),
}

/// A record of a log or MANIFEST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Offset in the file where its first fragment begins.
    pub offset: u64,
    /// Its bytes, the fragments put together: a [`Batch`](crate::Batch) in a log, an [`Edit`](crate::Edit) in a MANIFEST.
    pub payload: Vec<u8>,
}

/// Bytes of a log or MANIFEST that are no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// What they are.
    pub kind: GapKind,
    /// Offset in the file where they begin: the start of a record.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// What a sound file would have there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// What bytes that are no record are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapKind {
    /// The end of a file whose writer died, or is still writing: no fragment with a right checksum comes after it.
    Torn,
    /// Zeros from a fragment's place to the end of its block or further: space that a writer allocated and did not use, or that
    /// a crash left.
    Zeros,
    /// Something was there, since sound fragments come later.
    Damaged,
}

/// Reads a log or a MANIFEST: its records, and whatever lies between them.
///
/// The reader never fails because of what the file says: damage is an item, and the next item is the first record that begins
/// after it. Holds one block and one record in memory.
///
/// ```no_run
/// use leveltable_database::{Batch, LogItem, LogReader};
///
/// for item in LogReader::open("db/000003.log")? {
///     match item? {
///         LogItem::Record(record) => match Batch::parse(&record.payload) {
///             Ok(batch) => println!("{}: {} changes from {}", record.offset, batch.count(), batch.sequence()),
///             Err(defect) => println!("{}: {defect}", record.offset),
///         },
///         LogItem::Gap(gap) => println!("{}: {} bytes {:?}", gap.offset, gap.bytes, gap.kind),
///     }
/// }
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug)]
pub struct LogReader<R> {
    input: R,
    block: Vec<u8>,
    /// Offset of the block in the file.
    block_offset: u64,
    /// Within the block.
    at: usize,
    /// Whether the file ends in this block.
    is_last: bool,
    /// What is left of [`SEARCH_LIMIT`].
    may_search: usize,
    failed: bool,
}

/// A fragment whose checksum is right.
struct Fragment {
    kind: u8,
    /// Of the payload within the block.
    payload: Range<usize>,
}

impl Fragment {
    fn starts_record(&self) -> bool {
        matches!(self.kind, FULL | FIRST)
    }
}

/// What is at the reader's place.
enum Next {
    Fragment(Fragment),
    Zeros,
    /// Neither: why.
    Fault(Gap),
    End,
}

impl Gap {
    /// A gap whose place is not known yet.
    fn new(kind: GapKind, expected: impl Into<String>, found: impl Into<String>) -> Gap {
        Gap {
            kind,
            offset: 0,
            bytes: 0,
            expected: expected.into(),
            found: found.into(),
        }
    }
}

impl LogReader<File> {
    /// Opens the file at `path`, for reading only.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](leveltable::ErrorKind::Io).
    pub fn open(path: impl AsRef<Path>) -> Result<LogReader<File>> {
        let path = path.as_ref();
        let file = crate::directory::open_file(path)
            .map_err(|error| Error::io("opening the log", error).at_path(path))?;
        Ok(LogReader::new(file))
    }
}

impl<R: Read> LogReader<R> {
    /// Reads `input` from its current position, the start of a file.
    pub fn new(input: R) -> LogReader<R> {
        LogReader {
            input,
            block: Vec::new(),
            block_offset: 0,
            at: 0,
            is_last: false,
            may_search: SEARCH_LIMIT,
            failed: false,
        }
    }

    /// Offset in the file of what comes next.
    pub fn offset(&self) -> u64 {
        self.block_offset + self.at as u64
    }

    /// Returns the next item; `None` at the end of the file.
    fn read_item(&mut self) -> io::Result<Option<LogItem>> {
        use GapKind::{Damaged, Torn};
        const REST: &str = "the rest of the record";
        let mut record: Option<LogRecord> = None;
        loop {
            let next = self.fragment()?;
            let offset = record
                .as_ref()
                .map_or(self.offset(), |record| record.offset);
            let fault = match (next, record.is_some()) {
                (Next::End, false) => return Ok(None),
                (Next::Zeros, false) => return self.zeros().map(Some),
                (Next::End, true) => Gap::new(Torn, REST, "the end of the file"),
                (Next::Zeros, true) => Gap::new(Torn, "a fragment", "zeros"),
                (Next::Fault(fault), _) => fault,
                (Next::Fragment(fragment), goes_on) if fragment.starts_record() != goes_on => {
                    let payload = Vec::new();
                    let record_so_far = record.get_or_insert(LogRecord { offset, payload });
                    self.at = fragment.payload.end;
                    let payload = self.block.get(fragment.payload).unwrap_or_default();
                    record_so_far.payload.extend_from_slice(payload);
                    if matches!(fragment.kind, FULL | LAST) {
                        return Ok(record.map(LogItem::Record));
                    }
                    continue;
                }
                (Next::Fragment(_), true) => Gap::new(Damaged, REST, "the start of another"),
                (Next::Fragment(_), false) => {
                    Gap::new(Damaged, "the start of a record", "a later part of one")
                }
            };
            return self.gap(fault, offset).map(Some);
        }
    }

    /// Looks at what comes next, and stays before it. Skips the end of a block that has no room for a header.
    fn fragment(&mut self) -> io::Result<Next> {
        while self.rest().len() < HEADER_LEN {
            if self.is_last && self.rest().is_empty() {
                return Ok(Next::End);
            }
            // The end of a whole block is filler.
            if self.is_last && self.block.len() < BLOCK_LEN {
                let found = format!("the end of the file after {} bytes", self.rest().len());
                let fault = Gap::new(GapKind::Torn, "a header of 7 bytes", found);
                return Ok(Next::Fault(fault));
            }
            self.next_block()?;
        }
        if self.rest().iter().all(|&byte| byte == 0) {
            return Ok(Next::Zeros);
        }
        Ok(match self.sound_fragment(self.at) {
            Some(fragment) => Next::Fragment(fragment),
            None => Next::Fault(self.defect()),
        })
    }

    fn rest(&self) -> &[u8] {
        self.block.get(self.at..).unwrap_or_default()
    }

    /// Type, stored checksum and place of the payload of a fragment at `at`; `None` if it does not fit the block.
    fn header(&self, at: usize) -> Option<(u8, u32, Range<usize>)> {
        let header: [u8; HEADER_LEN] = *self.block.get(at..)?.first_chunk()?;
        let [a, b, c, d, low, high, kind] = header;
        let start = at + HEADER_LEN;
        let end = start + usize::from(u16::from_le_bytes([low, high]));
        (end <= self.block.len()).then_some((kind, u32::from_le_bytes([a, b, c, d]), start..end))
    }

    /// The fragment at `at`, if its type is known and its checksum right.
    fn sound_fragment(&self, at: usize) -> Option<Fragment> {
        let (kind, stored, payload) = self.header(at)?;
        let covered = self.block.get(payload.start - 1..payload.end)?;
        let is_sound = (FULL..=LAST).contains(&kind) && masked_crc(covered) == stored;
        is_sound.then_some(Fragment { kind, payload })
    }

    /// Why there is no fragment at the reader's place, where there is room for a header.
    #[cold]
    fn defect(&self) -> Gap {
        let Some((kind, stored, payload)) = self.header(self.at) else {
            let left = self.rest().len() - HEADER_LEN;
            let found = format!("a longer one; {left} bytes are left");
            return Gap::new(
                GapKind::Torn,
                "a payload that fits its block and the file",
                found,
            );
        };
        let has_crc = |end| {
            let covered = self.block.get(payload.start - 1..end);
            covered.is_some_and(|covered| masked_crc(covered) == stored)
        };
        // RocksDB's recyclable fragments have the log's number between header and payload.
        if kind > LAST && (has_crc(payload.end) || has_crc(payload.end + 4)) {
            let found = format!("type {kind} with a right checksum, as RocksDB and Pebble write");
            return Gap::new(GapKind::Damaged, "a fragment of type 1 to 4", found);
        }
        let covered = self.block.get(payload.start - 1..payload.end);
        let computed = masked_crc(covered.unwrap_or_default());
        if computed != stored {
            let expected = format!("a fragment with the checksum {stored:#010x}");
            return Gap::new(GapKind::Torn, expected, format!("{computed:#010x}"));
        }
        Gap::new(GapKind::Torn, "a type from 1 to 4", kind.to_string())
    }

    fn next_block(&mut self) -> io::Result<()> {
        self.block_offset += self.block.len() as u64;
        self.at = 0;
        self.block.clear();
        let mut limited = (&mut self.input).take(BLOCK_LEN as u64);
        limited.read_to_end(&mut self.block)?;
        self.is_last = self.block.len() < BLOCK_LEN;
        Ok(())
    }

    /// Passes over zeros to the end of this block, and over all blocks of zeros that follow.
    fn zeros(&mut self) -> io::Result<LogItem> {
        let start = self.offset();
        while self.rest().iter().all(|&byte| byte == 0) {
            self.at = self.block.len();
            if self.is_last {
                break;
            }
            self.next_block()?;
        }
        Ok(self.gap_to_here(Gap::new(GapKind::Zeros, "a fragment", "zeros"), start))
    }

    /// Passes over bytes that are no fragment, to the next start of a record. They are damage if a fragment follows.
    fn gap(&mut self, mut fault: Gap, start: u64) -> io::Result<LogItem> {
        loop {
            match self.search() {
                Some(fragment) => {
                    fault.kind = GapKind::Damaged;
                    if fragment.starts_record() {
                        break;
                    }
                    self.at = fragment.payload.end;
                }
                None if self.is_last => break,
                None => self.next_block()?,
            }
        }
        if self.may_search == 0 {
            // There may be one.
            fault.kind = GapKind::Damaged;
        }
        Ok(self.gap_to_here(fault, start))
    }

    /// Moves to the first sound fragment in what is left of the block, or to its end.
    fn search(&mut self) -> Option<Fragment> {
        while self.at < self.block.len() {
            if let Some((FULL..=LAST, _, payload)) = self.header(self.at) {
                let cost = payload.len() + HEADER_LEN;
                self.may_search = self.may_search.saturating_sub(cost);
                if self.may_search > 0
                    && let Some(fragment) = self.sound_fragment(self.at)
                {
                    return Some(fragment);
                }
            }
            self.at += 1;
        }
        None
    }

    /// The gap from `start` to here.
    fn gap_to_here(&self, gap: Gap, start: u64) -> LogItem {
        LogItem::Gap(Gap {
            offset: start,
            bytes: self.offset() - start,
            ..gap
        })
    }
}

/// Ends after an error, which is one of reading.
impl<R: Read> Iterator for LogReader<R> {
    type Item = io::Result<LogItem>;

    fn next(&mut self) -> Option<io::Result<LogItem>> {
        if self.failed {
            return None;
        }
        let item = self.read_item();
        self.failed = item.is_err();
        item.transpose()
    }
}

/// The stored form of a checksum, masked as those of blocks are.
fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}
