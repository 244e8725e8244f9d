//! Reading logs and the MANIFEST as a whole: what they say, and what was passed over.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::db::{Memtable, Version as Value};
use leveltable::{Comparator, Corruption, Error, ErrorKind, Result, Section};

use crate::batch::{Batch, Change};
use crate::decode::Defect;
use crate::directory::{Current, WITHOUT_MANIFEST, failed};
use crate::log::{Gap, GapKind, LogItem, LogReader, LogRecord};
use crate::manifest::{Edit, Version};

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

/// Reads `input` to its end. Passes each record to `take`, and each torn end and run of zeros to `recovery`; damage, too, if it
/// may be skipped.
pub(crate) fn read_records(
    input: impl Read,
    path: &Path,
    (section, skip_damaged): (Section, bool),
    recovery: &mut Recovery,
    mut take: impl FnMut(&LogRecord) -> Result<(), Defect>,
) -> Result<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let doing = format!("reading the {section}");
    let mut items = LogReader::new(input);
    for item in &mut items {
        let taken = match item.map_err(|error| failed(&doing, error, path))? {
            LogItem::Gap(gap) => Err(gap),
            LogItem::Record(record) => take(&record).map_err(|defect| Gap {
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
            let file = name.clone().into_owned();
            recovery.gaps.push(FileGap { file, gap });
        }
    }
    Ok(items.offset())
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

/// Reads the MANIFEST from its start. Returns the number of bytes read, too.
pub(crate) fn read_manifest(current: &Current, recovery: &mut Recovery) -> Result<(Version, u64)> {
    let (path, mut file) = (&*current.path, current.handle.as_file());
    file.rewind()
        .map_err(|error| failed("reading the MANIFEST", error, path))?;
    let mut version = Version::default();
    let take = |record: &LogRecord| Edit::parse(&record.payload).map(|edit| version.apply(edit));
    let bytes = read_records(file, path, (Section::Manifest, false), recovery, take)?;
    let stated = [
        (version.log_number, "a log number"),
        (version.next_file_number, "a next file number"),
        (version.last_sequence, "a last sequence number"),
    ];
    if let Some((_, what)) = stated.iter().find(|(stated, _)| stated.is_none()) {
        let found = format!("none in {bytes} bytes");
        return Err(bad_manifest(current, what, found));
    }
    Ok((version, bytes))
}

/// The newest version of each user key in the logs read so far.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    versions: HashMap<Bytes, (u64, Value)>,
    pub(crate) last_sequence: u64,
}

impl Logged {
    /// Reads a log to its end.
    pub(crate) fn read(
        &mut self,
        (number, file): (u64, &File),
        path: &Path,
        skip_damaged: bool,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let (mut batches, mut changes) = (0, 0);
        let take = |record: &LogRecord| {
            let batch = Batch::parse(&record.payload)?;
            batches += 1;
            changes += u64::from(batch.count());
            batch.changes().for_each(|change| self.add(change));
            Ok(())
        };
        let bytes = read_records(file, path, (Section::Log, skip_damaged), recovery, take)?;
        recovery.logs.push(ReadLog {
            number,
            bytes,
            batches,
            changes,
        });
        Ok(())
    }

    fn add(&mut self, change: Change<'_>) {
        self.last_sequence = self.last_sequence.max(change.sequence);
        let known = self.versions.get(change.user_key);
        if known.is_none_or(|(sequence, _)| *sequence <= change.sequence) {
            let key = Bytes::copy_from_slice(change.user_key);
            let value = change.value.map(Bytes::copy_from_slice);
            self.versions.insert(key, (change.sequence, value.into()));
        }
    }

    pub(crate) fn into_memtable(self, order: Option<&Arc<dyn Comparator>>) -> Memtable {
        let memtable = order.map_or_else(Memtable::new, |order| {
            Memtable::with_comparator(order.clone())
        });
        for (user_key, (sequence, version)) in self.versions {
            memtable.add(user_key, sequence, version);
        }
        memtable
    }
}
