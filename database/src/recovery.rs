//! Reading logs and the MANIFEST as a whole: what they say, and what was passed over.

use std::io::{Read, Seek};
use std::path::Path;

use leveltable::{Corruption, Error, ErrorKind, Result, Section};

use crate::directory::{Current, FileKind, WITHOUT_MANIFEST, failed, name_of};
use crate::log::{Gap, GapKind, LogItem, LogReader, LogRecord};
use crate::record::{Batch, Change, Version};

const SKIP_DAMAGED: &str =
    "skip_damaged reads the database without the damaged records, and reports them";

/// What opening a database read, and what it passed over; returned by [`Database::recovery`](crate::Database::recovery).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Whether the contents are what tables and logs say, without a MANIFEST.
    pub without_manifest: bool,
    /// The logs that were read, in ascending order.
    pub logs: Vec<ReadLog>,
    /// Bytes of logs and MANIFEST that are no record: ends that a writer did not finish, zeros, and damage that was left out with
    /// [`skip_damaged`](crate::DatabaseOptions::skip_damaged).
    pub gaps: Vec<FileGap>,
    /// The log that the MANIFEST says is in use, if it is not there.
    pub missing_log: Option<u64>,
    /// With [`skip_damaged`](crate::DatabaseOptions::skip_damaged) and without a MANIFEST: tables that were left out, and why.
    pub unreadable_tables: Vec<(String, Error)>,
}

/// A log that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadLog {
    /// Its number.
    pub number: u64,
    /// Bytes up to where reading ended.
    pub bytes: u64,
    /// Number of batches.
    pub batches: u64,
    /// Number of changes in them.
    pub changes: u64,
}

/// A gap in a log or in the MANIFEST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileGap {
    /// The file's name.
    pub file: String,
    /// Where in it.
    pub gap: Gap,
}

impl Recovery {
    /// Reads all items. Passes each record to `take`. Notes torn ends and runs of zeros; damage, too, if it may be skipped.
    fn read(
        &mut self,
        items: &mut LogReader<impl Read>,
        path: &Path,
        (section, skip_damaged): (Section, bool),
        mut take: impl FnMut(&LogRecord) -> Result<(), Corruption>,
    ) -> Result<()> {
        for item in items {
            let item = item.map_err(|error| failed(&format!("reading the {section}"), error, path));
            let taken = match item? {
                LogItem::Gap(gap) => Err(gap),
                LogItem::Record(record) => take(&record).map_err(|defect| Gap {
                    kind: GapKind::Damaged,
                    offset: record.offset,
                    bytes: record.payload.len() as u64,
                    expected: format!("{} in its byte {}", defect.expected(), defect.offset()),
                    found: defect.found().into(),
                }),
            };
            if let Err(gap) = taken {
                if gap.kind == GapKind::Damaged && !skip_damaged {
                    return Err(damage(path, section, gap.offset, gap.expected, gap.found));
                }
                let file = name_of(path);
                self.gaps.push(FileGap { file, gap });
            }
        }
        Ok(())
    }

    /// Reads a log to its end. Passes each change to `take`, with the offset of its record.
    pub(crate) fn read_log(
        &mut self,
        path: &Path,
        mut items: LogReader<impl Read>,
        skip_damaged: bool,
        mut take: impl FnMut(Change<'_>, u64),
    ) -> Result<()> {
        let (mut batches, mut changes) = (0, 0);
        self.read(&mut items, path, (Section::Log, skip_damaged), |record| {
            let batch = Batch::parse(&record.payload)?;
            batches += 1;
            for change in batch.changes() {
                changes += 1;
                take(change, record.offset);
            }
            Ok(())
        })?;
        self.logs.push(ReadLog {
            number: FileKind::of(&name_of(path)).1.unwrap_or(0),
            bytes: items.offset(),
            batches,
            changes,
        });
        Ok(())
    }
}

/// Reads the MANIFEST from its start.
pub(crate) fn read_manifest(current: &Current) -> Result<(Version, Recovery)> {
    let (path, mut file) = (&*current.path, current.handle.as_file());
    file.rewind()
        .map_err(|error| failed("reading the MANIFEST", error, path))?;
    let (mut version, mut recovery) = (Version::default(), Recovery::default());
    let (mut items, how) = (LogReader::new(file), (Section::Manifest, false));
    recovery.read(&mut items, path, how, |record| {
        version.apply(&record.payload)
    })?;
    version.bytes = items.offset();
    let (log, stated) = (version.stated.log_number, &version.stated);
    if [log, stated.next_file_number, stated.last_sequence].contains(&None) {
        let expected = "a log number, a next file number and a last sequence number";
        let found = format!("not all of them in {} bytes", version.bytes);
        return Err(damage(path, Section::Manifest, 0, expected, found));
    }
    Ok((version, recovery))
}

/// The error of damage in a file of a database, which says what to do about it.
#[cold]
pub(crate) fn damage(
    path: &Path,
    section: Section,
    offset: u64,
    expected: impl Into<String>,
    found: String,
) -> Error {
    if found.contains("RocksDB") {
        let place = format!("at offset {offset}, it has {found}");
        let message = format!("a {section} of RocksDB or Pebble: {place}");
        return Error::new(ErrorKind::Unsupported, message).at_path(path);
    }
    let advice = match section {
        Section::Manifest => WITHOUT_MANIFEST,
        Section::Log => SKIP_DAMAGED,
        _ => "a copy of the database may be incomplete",
    };
    let corruption = Corruption::new(section, offset, expected, found);
    Error::damage(path, corruption, advice)
}
