//! LevelDB's log format, used for logs and MANIFESTs: records in blocks of 32 KiB. Also reads whole files, and reports what was
//! skipped.
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
use std::sync::Arc;

use leveltable::db::DbEntry;
use leveltable::sister_crates::{crc32c, mask};
use leveltable::{Corruption, Error, ErrorKind, ReadAt, Result, Section};

use crate::directory::{FileKind, REPAIR, WITHOUT_MANIFEST, changed, name_of};
use crate::record::{Batch, FOREIGN};
use crate::storage::{Sequential, failed, open_file};

const BLOCK_LEN: usize = 32 * 1024;
const HEADER_LEN: usize = 7;

/// Types of fragments.
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Total number of bytes that a reader checks in search of fragments after damage. A crafted file could otherwise take the
/// square of the block's length for each block.
const MAX_SEARCHED: usize = 1 << 30;

/// An item that a [`LogReader`] finds in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogItem {
    /// A record, all of whose checksums are correct.
    Record(LogRecord),
    /// Bytes that are not a record.
    Gap(Gap),
}

/// A record of a log or MANIFEST, as a [`LogReader`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Offset in the file of its first fragment.
    pub offset: u64,
    /// Its bytes, with the fragments joined: a [`Batch`] in a log, an [`Edit`](crate::Edit) in a MANIFEST.
    pub payload: Vec<u8>,
}

/// Bytes of a log or MANIFEST that are not a record, as a [`LogReader`] returns them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The kind of gap.
    pub kind: GapKind,
    /// Offset in the file at which the gap begins: the start of a record.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// What a sound file would have there.
    pub expected: String,
    /// What is there instead.
    pub found: String,
    /// Whether a crash can leave such an end of a file: a record that extends past it, or only zeros.
    pub is_cut: bool,
}

/// The kind of bytes in a [`Gap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapKind {
    /// The end of a file whose writer died, or is still writing: no fragment with a correct checksum comes after it.
    Torn,
    /// Zeros from a fragment's place to the end of its block or further: space that a writer allocated and did not use, or that
    /// a crash left.
    Zeros,
    /// Damage, since sound fragments come later.
    Damaged,
}

/// Reads a log or a MANIFEST: its records, and everything between them.
///
/// The contents of the file never make the reader fail: damage is an item, and the next item is the first record that begins
/// after it. Holds one block and one record in memory.
///
/// ```no_run
/// use leveltable_database::{Batch, LogItem, LogReader};
///
/// for item in LogReader::open("db/000003.log")? {
///     match item? {
///         LogItem::Record(record) => match Batch::parse(&record.payload) {
///             Ok(batch) => println!("{}: {} changes", record.offset, batch.changes.len()),
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
    /// The reader's position within the block.
    at: usize,
    /// Whether the file ends in this block.
    is_last: bool,
    /// The rest of [`MAX_SEARCHED`].
    may_search: usize,
}

impl LogReader<File> {
    /// Opens the file at `path`, for reading only.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<LogReader<File>> {
        let path = path.as_ref();
        let file = open_file(path).map_err(|error| failed("opening the log", error, path))?;
        Ok(LogReader::new(file))
    }
}

impl<R: Read> LogReader<R> {
    /// Reads `input` from its current position, the start of a file. [`open`](LogReader::open) reads the file at a path.
    pub fn new(input: R) -> LogReader<R> {
        LogReader {
            input,
            block: Vec::with_capacity(BLOCK_LEN),
            block_offset: 0,
            at: 0,
            is_last: false,
            may_search: MAX_SEARCHED,
        }
    }

    /// Offset in the file of the next [item](LogItem).
    pub fn offset(&self) -> u64 {
        self.block_offset + self.at as u64
    }

    /// Returns the next item; `None` at the end of the file.
    fn read_item(&mut self) -> io::Result<Option<LogItem>> {
        let (mut begun, mut payload) = (None, Vec::new());
        loop {
            // The end of a block is too short for a header.
            while self.rest().len() < HEADER_LEN && !self.is_last {
                self.next_block()?;
            }
            let offset = begun.unwrap_or(self.offset());
            match self.fragment() {
                Some((kind, part)) if matches!(kind, FULL | FIRST) == begun.is_none() => {
                    begun = Some(offset);
                    self.at = part.end;
                    payload.extend_from_slice(self.block.get(part).unwrap_or_default());
                    if matches!(kind, FULL | LAST) {
                        return Ok(Some(LogItem::Record(LogRecord { offset, payload })));
                    }
                }
                None if begun.is_none() && self.rest().is_empty() => return Ok(None),
                _ => return self.gap(offset, begun.is_some()).map(Some),
            }
        }
    }

    fn rest(&self) -> &[u8] {
        self.block.get(self.at..).unwrap_or_default()
    }

    /// Type, stored checksum and payload range of the fragment at the reader's position; `None` if it does not fit into the
    /// block.
    fn header(&self) -> Option<(u8, u32, Range<usize>)> {
        let &[a, b, c, d, low, high, kind] = self.rest().first_chunk()?;
        let start = self.at + HEADER_LEN;
        let end = start + usize::from(u16::from_le_bytes([low, high]));
        (end <= self.block.len()).then_some((kind, u32::from_le_bytes([a, b, c, d]), start..end))
    }

    /// The checksum of a type and the payload after it, masked like those of blocks.
    fn masked_crc(&self, payload: Range<usize>) -> Option<u32> {
        let covered = self.block.get(payload.start - 1..payload.end)?;
        Some(mask(crc32c(covered)))
    }

    /// Type and payload range of the fragment at the reader's position, if its type is known and its checksum correct.
    fn fragment(&self) -> Option<(u8, Range<usize>)> {
        let (kind, stored, payload) = self.header()?;
        let is_known = (FULL..=LAST).contains(&kind);
        let is_sound = is_known && self.masked_crc(payload.clone()) == Some(stored);
        is_sound.then_some((kind, payload))
    }

    /// Describes what is at the reader's position instead of the fragment that a record needs.
    fn fault(&self) -> String {
        let Some((kind, stored, payload)) = self.header() else {
            return format!("{} bytes, too few for a fragment", self.rest().len());
        };
        // RocksDB's recyclable fragments have the log's number between header and payload.
        let computed = self.masked_crc(payload.clone());
        let recyclable = self.masked_crc(payload.start..payload.end + 4);
        if kind > LAST && [computed, recyclable].contains(&Some(stored)) {
            return format!("type {kind} with a right checksum{FOREIGN}");
        }
        let computed = computed.unwrap_or_default();
        format!("a fragment of type {kind} with checksum {stored:#010x}, not {computed:#010x}")
    }

    /// After an error there is no next block.
    fn next_block(&mut self) -> io::Result<()> {
        self.block_offset += self.block.len() as u64;
        self.at = 0;
        self.block.clear();
        let mut limited = self.input.by_ref().take(BLOCK_LEN as u64);
        let read = limited.read_to_end(&mut self.block);
        self.is_last = !matches!(read, Ok(BLOCK_LEN));
        read.map(drop).inspect_err(|_| self.block.clear())
    }

    /// Skips bytes that are not a record, from `offset` to the next start of one.
    fn gap(&mut self, offset: u64, is_in_record: bool) -> io::Result<LogItem> {
        let (found, is_short) = (self.fault(), self.is_short());
        // Records of another engine, of which more may follow, are not an unfinished end.
        let (mut is_damage, mut is_zeros) = (found.ends_with(FOREIGN), !is_in_record);
        loop {
            let from = self.at;
            let is_blank = self.rest().iter().all(|&byte| byte == 0);
            let fragment = self.search();
            is_zeros &= is_blank || self.at == from;
            is_damage |= fragment.is_some() || self.may_search == 0;
            match fragment {
                Some((FULL | FIRST, _)) => break,
                Some((_, payload)) => (self.at, is_zeros) = (payload.end, false),
                None if self.is_last => break,
                None => self.next_block()?,
            }
        }
        let bytes = self.offset() - offset;
        let kind = match (is_zeros && bytes >= HEADER_LEN as u64, is_damage) {
            (true, _) => GapKind::Zeros,
            (false, true) => GapKind::Damaged,
            (false, false) => GapKind::Torn,
        };
        let part = if is_in_record { "rest" } else { "start" };
        Ok(LogItem::Gap(Gap {
            kind,
            is_cut: !is_damage && (is_short || is_zeros),
            offset,
            bytes,
            expected: format!("the {part} of a record"),
            found,
        }))
    }

    /// Whether the file ends within the fragment at the reader's position.
    fn is_short(&self) -> bool {
        let length = self.rest().get(4..6).and_then(|bytes| bytes.first_chunk());
        let length = length.map_or(0, |bytes| usize::from(u16::from_le_bytes(*bytes)));
        let end = self.at + HEADER_LEN + length;
        self.is_last && end > self.block.len() && end <= BLOCK_LEN
    }

    /// Where the damaged fragment at the reader's position ends by its own length, if a sound fragment or the block's end is there. (Its
    /// payload may hold what looks like sound fragments.)
    fn end_of_damaged(&mut self) -> Option<usize> {
        let (FULL..=LAST, _, payload) = self.header()? else {
            return None;
        };
        let from = self.at;
        self.at = payload.end;
        let is_end = if self.is_last {
            self.rest().is_empty()
        } else {
            self.rest().len() < HEADER_LEN
        };
        let is_there = is_end || self.fragment().is_some();
        self.at = from;
        (is_there && !payload.is_empty()).then_some(payload.end)
    }

    /// Moves to the first sound fragment in the rest of the block, or to the block's end.
    fn search(&mut self) -> Option<(u8, Range<usize>)> {
        if self.fragment().is_none()
            && let Some(end) = self.end_of_damaged()
        {
            self.at = end;
        }
        while self.at < self.block.len() && self.may_search > 0 {
            if let Some((FULL..=LAST, _, payload)) = self.header() {
                self.may_search = self.may_search.saturating_sub(HEADER_LEN + payload.len());
                if let Some(fragment) = self.fragment() {
                    return Some(fragment);
                }
            }
            self.at += 1;
        }
        self.at = self.block.len();
        None
    }
}

/// Ends after an error, which is an error of reading.
impl<R: Read> Iterator for LogReader<R> {
    type Item = io::Result<LogItem>;

    fn next(&mut self) -> Option<io::Result<LogItem>> {
        self.read_item().transpose()
    }
}

/// A file with one record.
pub(crate) fn encode_record(payload: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let (mut rest, mut is_first) = (payload, true);
    while is_first || !rest.is_empty() {
        let room = BLOCK_LEN - file.len() % BLOCK_LEN;
        if room < HEADER_LEN {
            file.resize(file.len() + room, 0);
            continue;
        }
        let (part, after) = rest.split_at(rest.len().min(room - HEADER_LEN));
        let kind = match (is_first, after.is_empty()) {
            (true, true) => FULL,
            (true, false) => FIRST,
            (false, false) => MIDDLE,
            (false, true) => LAST,
        };
        let covered = [&[kind], part].concat();
        file.extend(mask(crc32c(&covered)).to_le_bytes());
        file.extend((part.len() as u16).to_le_bytes());
        file.extend(covered);
        (rest, is_first) = (after, false);
    }
    file
}

/// What was read when a database was opened, and what was skipped; returned by
/// [`Database::recovery`](crate::Database::recovery).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Whether the contents come from tables and logs, without a MANIFEST.
    pub without_manifest: bool,
    /// The logs that were read, in ascending order.
    pub logs: Vec<ReadLog>,
    /// Names of files, and the bytes of these logs and MANIFESTs that are not records: unfinished ends, zeros, and damage that
    /// was left out with [`skip_damaged`](crate::DatabaseOptions::skip_damaged).
    pub gaps: Vec<(String, Gap)>,
    /// The log that is in use according to the MANIFEST, if it is missing.
    pub missing_log: Option<u64>,
    /// With [`skip_damaged`](crate::DatabaseOptions::skip_damaged) and without a MANIFEST: tables that were left out, and why.
    pub unreadable_tables: Vec<(String, Error)>,
    /// With [`skip_held`](crate::DatabaseOptions::skip_held) and without a MANIFEST: names of files that were left out because
    /// another program holds them.
    pub held: Vec<String>,
}

/// A log that was read; one of [`Recovery::logs`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadLog {
    /// The log's number.
    pub number: u64,
    /// Number of bytes up to where reading ended.
    pub bytes: u64,
    /// Number of batches.
    pub batches: u64,
    /// Number of changes in them.
    pub changes: u64,
}

impl Recovery {
    /// What is not known of the contents because the MANIFEST was not read and other programs hold files; `None` if it was read.
    /// [`DatabaseOptions::skip_held`](crate::DatabaseOptions::skip_held) leaves such files out.
    pub fn unknown(&self) -> Option<String> {
        let mut unknown = "which tables are obsolete, and so which keys were deleted".to_owned();
        if !self.held.is_empty() {
            let held = self.held.join(", ");
            let program = "which another program holds";
            unknown += &format!("; newer values and deletions in {held}, {program}");
        }
        self.without_manifest.then_some(unknown)
    }

    /// Reads all items, and returns their end. Passes each record to `take`. Notes torn ends and runs of zeros, and also damage
    /// if it may be skipped.
    pub(crate) fn read(
        &mut self,
        path: &Path,
        mut items: LogReader<impl Read>,
        (section, skip_damaged): (Section, bool),
        mut take: impl FnMut(&LogRecord) -> Result<(), Corruption>,
    ) -> Result<u64> {
        for item in &mut items {
            let item = item.map_err(|error| failed(&format!("reading the {section}"), error, path));
            let taken = match item? {
                LogItem::Gap(gap) => Err(gap),
                LogItem::Record(record) => take(&record).map_err(|defect| Gap {
                    kind: GapKind::Damaged,
                    offset: record.offset,
                    bytes: record.payload.len() as u64,
                    expected: format!("{} in its byte {}", defect.expected, defect.offset),
                    found: defect.found,
                    is_cut: false,
                }),
            };
            if let Err(gap) = taken {
                if !skip_damaged {
                    check_foreign(section, path, gap.offset, &gap.found)?;
                }
                if gap.kind == GapKind::Damaged && !skip_damaged {
                    let defect = Corruption::new(section, gap.offset, gap.expected, gap.found);
                    return Err(damage(path, defect));
                }
                self.gaps.push((name_of(path), gap));
            }
        }
        Ok(items.offset())
    }

    /// Reads a listed log to its end: it could be opened unless the database has changed. Passes each change to `take`, with the
    /// offset of its record.
    pub(crate) fn read_log(
        &mut self,
        path: &Path,
        file: io::Result<Arc<dyn ReadAt>>,
        skip_damaged: bool,
        mut take: impl FnMut(DbEntry, u64),
    ) -> Result<()> {
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => changed(path),
            _ => failed("opening the log", error, path),
        })?;
        let items = LogReader::new(Sequential::new(file));
        let mut log = ReadLog::default();
        log.bytes = self.read(path, items, (Section::Log, skip_damaged), |record| {
            let batch = Batch::parse(&record.payload)?;
            log.batches += 1;
            log.changes += batch.changes.len() as u64;
            let changes = batch.changes.into_iter();
            changes.for_each(|change| take(change, record.offset));
            Ok(())
        })?;
        log.number = FileKind::of(&name_of(path)).1.unwrap_or(0);
        self.logs.push(log);
        Ok(())
    }
}

/// Rejects what was found at an offset of a log or MANIFEST if another engine wrote it.
pub fn check_foreign(section: Section, path: &Path, offset: u64, found: &str) -> Result<()> {
    if !found.ends_with(FOREIGN) {
        return Ok(());
    }
    let message = format!("a {section} of RocksDB or Pebble: at offset {offset}, it has {found}");
    Err(Error::new(ErrorKind::Unsupported, message).at_path(path))
}

/// The error of damage in a file of a database, which says what to do about it.
pub(crate) fn damage(path: &Path, defect: Corruption) -> Error {
    let advice = match defect.section {
        Section::Manifest => WITHOUT_MANIFEST,
        Section::Log => {
            "skip_damaged reads the database without the damaged records, and reports them"
        }
        _ => REPAIR,
    };
    Error::corrupt(defect).with_hint(advice).at_path(path)
}
