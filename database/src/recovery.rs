//! Reading logs and the MANIFEST as a whole: what they say, and what was passed over.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::db::{Memtable, Version as Value};
use leveltable::{Comparator, Corruption, Error, ErrorKind, Result, Section};

use crate::batch::Batch;
use crate::decode::Defect;
use crate::directory::{Current, failed};
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
        let gap = match item.map_err(|error| failed(&doing, error, path))? {
            LogItem::Gap(gap) => gap,
            LogItem::Record(record) => match take(&record) {
                Ok(()) => continue,
                Err(defect) => Gap {
                    kind: GapKind::Damaged,
                    offset: record.offset,
                    bytes: record.payload.len() as u64,
                    expected: format!("{} in its byte {}", defect.expected, defect.offset),
                    found: defect.found,
                },
            },
        };
        if gap.kind == GapKind::Damaged && !skip_damaged {
            return Err(damage(section, gap, path));
        }
        let file = name.clone().into_owned();
        recovery.gaps.push(FileGap { file, gap });
    }
    Ok(items.offset())
}

#[cold]
fn damage(section: Section, gap: Gap, path: &Path) -> Error {
    let advice = if section == Section::Manifest {
        "open_without_manifest reads what tables and logs say".to_owned()
    } else {
        let bytes = gap.bytes;
        format!("skip_damaged reads the database without these {bytes} bytes, and reports them")
    };
    let corruption = Corruption::new(section, gap.offset, gap.expected, gap.found);
    Error::damage(path, corruption, &advice)
}

/// Reads the MANIFEST from its start. Returns the number of bytes read, too.
pub(crate) fn read_manifest(current: &Current, recovery: &mut Recovery) -> Result<(Version, u64)> {
    let mut version = Version::default();
    let mut other_engine = None;
    let mut file: &File = &current.file;
    file.rewind()
        .map_err(|error| failed("reading the MANIFEST", error, &current.path))?;
    let take = |record: &LogRecord| match Edit::parse(&record.payload) {
        Ok(edit) => {
            version.apply(edit);
            Ok(())
        }
        Err(defect) => {
            if defect.found.contains("RocksDB") {
                other_engine = Some(defect.clone());
            }
            Err(defect)
        }
    };
    let read = read_records(
        file,
        &current.path,
        (Section::Manifest, false),
        recovery,
        take,
    );
    if let Some(defect) = other_engine {
        let message = format!(
            "this is a database of RocksDB or Pebble: its MANIFEST has {}",
            defect.found
        );
        return Err(Error::new(ErrorKind::Unsupported, message).at_path(&current.path));
    }
    let bytes = read?;
    let stated = [
        (version.log_number, "log number"),
        (version.next_file_number, "next file number"),
        (version.last_sequence, "last sequence number"),
    ];
    if let Some((_, what)) = stated.iter().find(|(stated, _)| stated.is_none()) {
        let found = format!("none in {bytes} bytes");
        let corruption = Corruption::new(Section::Manifest, 0, format!("a {what}"), found);
        let advice = "open_without_manifest reads what tables and logs say";
        return Err(Error::damage(&current.path, corruption, advice));
    }
    Ok((version, bytes))
}

/// The newest version of each user key in the logs read so far.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    versions: HashMap<Bytes, (u64, Value)>,
    pub(crate) last_sequence: u64,
}

impl Newest {
    /// Reads a log to its end.
    pub(crate) fn read_log(
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
            self.add(&batch);
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

    fn add(&mut self, batch: &Batch<'_>) {
        for change in batch.changes() {
            self.last_sequence = self.last_sequence.max(change.sequence);
            let value = change.value.map(Bytes::copy_from_slice);
            let version = (change.sequence, Value::from(value));
            match self.versions.get_mut(change.user_key) {
                Some((newest, _)) if *newest > change.sequence => {}
                Some(slot) => *slot = version,
                None => {
                    let key = Bytes::copy_from_slice(change.user_key);
                    self.versions.insert(key, version);
                }
            }
        }
    }

    pub(crate) fn into_memtable(self, order: Option<&Arc<dyn Comparator>>) -> Memtable {
        let memtable = match order {
            Some(order) => Memtable::with_comparator(order.clone()),
            None => Memtable::new(),
        };
        for (user_key, (sequence, version)) in self.versions {
            memtable.add(user_key, sequence, version);
        }
        memtable
    }
}
