//! Reading logs and the MANIFEST as a whole: what they say, and what was passed over.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::db::Version as Value;
use leveltable::{Corruption, Error, ErrorKind, Result, Section};

use crate::batch::{Batch, Change};
use crate::decode::Defect;
use crate::directory::{Current, WITHOUT_MANIFEST, failed, name_of};
use crate::log::{Gap, GapKind, LogItem, LogReader};
use crate::manifest::Version;

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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Reads `input` to its end, and returns the number of bytes. Passes the payload of each record to `take`. Notes torn ends and
    /// runs of zeros; damage, too, if it may be skipped.
    fn read(
        &mut self,
        input: impl Read,
        path: &Path,
        (section, skip_damaged): (Section, bool),
        mut take: impl FnMut(&[u8]) -> Result<(), Defect>,
    ) -> Result<u64> {
        let doing = format!("reading the {section}");
        let mut items = LogReader::new(input);
        for item in &mut items {
            let taken = match item.map_err(|error| failed(&doing, error, path))? {
                LogItem::Gap(gap) => Err(gap),
                LogItem::Record(record) => take(&record.payload).map_err(|defect| Gap {
                    kind: GapKind::Damaged,
                    offset: record.offset,
                    bytes: record.payload.len() as u64,
                    expected: format!("{} in its byte {}", defect.expected, defect.offset),
                    found: defect.found,
                }),
            };
            if let Err(gap) = taken {
                if gap.kind == GapKind::Damaged && !skip_damaged {
                    return Err(damage(section, gap, path));
                }
                let file = name_of(path);
                self.gaps.push(FileGap { file, gap });
            }
        }
        Ok(items.offset())
    }

    /// Reads the MANIFEST from its start. Returns the number of bytes read, too.
    pub(crate) fn read_manifest(&mut self, current: &Current) -> Result<(Version, u64)> {
        let (path, mut file) = (&*current.path, current.handle.as_file());
        file.rewind()
            .map_err(|error| failed("reading the MANIFEST", error, path))?;
        let mut version = Version::default();
        let how = (Section::Manifest, false);
        let bytes = self.read(file, path, how, |payload| version.apply(payload))?;
        let stated = [
            (version.stated.log_number, "a log number"),
            (version.stated.next_file_number, "a next file number"),
            (version.stated.last_sequence, "a last sequence number"),
        ];
        if let Some((_, what)) = stated.iter().find(|(stated, _)| stated.is_none()) {
            let found = format!("none in {bytes} bytes");
            return Err(bad_manifest(current, what, found));
        }
        Ok((version, bytes))
    }

    /// Reads a log to its end.
    pub(crate) fn read_log(
        &mut self,
        (number, path, file): &(u64, PathBuf, File),
        skip_damaged: bool,
        newest: &mut Newest,
    ) -> Result<()> {
        let (mut batches, mut changes) = (0, 0);
        let bytes = self.read(file, path, (Section::Log, skip_damaged), |payload| {
            let batch = Batch::parse(payload)?;
            batches += 1;
            changes += u64::from(batch.count());
            batch.changes().for_each(|change| newest.add(change));
            Ok(())
        })?;
        self.logs.push(ReadLog {
            number: *number,
            bytes,
            batches,
            changes,
        });
        Ok(())
    }
}

/// The newest version of each user key in the logs read so far.
#[derive(Default)]
pub(crate) struct Newest {
    pub(crate) versions: HashMap<Bytes, (u64, Value)>,
    pub(crate) last_sequence: u64,
}

impl Newest {
    fn add(&mut self, change: Change<'_>) {
        self.last_sequence = self.last_sequence.max(change.sequence);
        let known = self.versions.get(change.user_key);
        if known.is_none_or(|(sequence, _)| *sequence <= change.sequence) {
            let key = Bytes::copy_from_slice(change.user_key);
            let value = change.value.map(Bytes::copy_from_slice);
            self.versions.insert(key, (change.sequence, value.into()));
        }
    }
}

#[cold]
fn damage(section: Section, gap: Gap, path: &Path) -> Error {
    if gap.found.contains("RocksDB") {
        let place = format!("at offset {}, it has {}", gap.offset, gap.found);
        let message = format!("a {section} of RocksDB or Pebble: {place}");
        return Error::new(ErrorKind::Unsupported, message).at_path(path);
    }
    let advice = match section {
        Section::Manifest => WITHOUT_MANIFEST,
        _ => "skip_damaged reads the database without the damaged records, and reports them",
    };
    let corruption = Corruption::new(section, gap.offset, gap.expected, gap.found);
    Error::damage(path, corruption, advice)
}

/// The error of a MANIFEST whose records are sound and make no sense.
#[cold]
pub(crate) fn bad_manifest(current: &Current, expected: &str, found: String) -> Error {
    let corruption = Corruption::new(Section::Manifest, 0, expected, found);
    Error::damage(&current.path, corruption, WITHOUT_MANIFEST)
}
