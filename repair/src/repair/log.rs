//! Reads the contents of logs, and finds what is lost of them. Sequence numbers of batches ascend without gaps from log
//! to log: a gap is a loss.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use leveltable::db::{DbEntry, InternalKey, MAX_SEQUENCE, ValueType, Version};
use leveltable::sister_crates::Order;
use leveltable::{Result, Section};
use leveltable_database::sister_crates::{
    Directory, Sequential, check_foreign, failed, is_indexed_db_key,
};
use leveltable_database::{Batch, GapKind, LogItem, LogReader};

use super::report::{Grade, RepairFinding};
use super::table::{Role, Row};

/// A log of the directory.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) name: String,
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// Whether its changes are not in tables yet.
    pub(super) counts: bool,
    pub(super) versions: u64,
    /// Offset and length of an unfinished record at its end.
    unfinished: Option<(u64, u64)>,
}

impl Log {
    pub(super) fn new(name: &str, number: u64, bytes: u64) -> Log {
        Log {
            name: name.to_owned(),
            number,
            bytes,
            counts: false,
            versions: 0,
            unfinished: None,
        }
    }

    /// Its state in the report.
    pub(super) fn state(&self) -> &'static str {
        if self.counts {
            "its changes are included"
        } else {
            "not needed: tables have its changes"
        }
    }
}

/// What has been read of the logs.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// The newest version of each key.
    newest: HashMap<Bytes, DbEntry>,
    pub(super) findings: Vec<RepairFinding>,
    /// The sequence numbers of the changes that are lost.
    pub(super) lost: Vec<Range<u64>>,
    pub(super) last_sequence: u64,
    /// The smallest possible sequence number of the next batch.
    expected: Option<u64>,
}

/// Bytes of a log that are not a batch, and not an end that a crash leaves.
struct Damage {
    offset: u64,
    bytes: u64,
    what: String,
}

impl Damage {
    fn new(offset: u64, bytes: u64, expected: &str, found: &str) -> Damage {
        let what = format!("expected {expected}, found {found}");
        Damage {
            offset,
            bytes,
            what,
        }
    }
}

/// Opens a log or a MANIFEST.
pub(super) fn open(dir: &dyn Directory, name: &str) -> Result<LogReader<Sequential>> {
    let file = dir.open(name);
    let file = file.map_err(|error| failed("opening the file", error, &dir.path().join(name)))?;
    Ok(LogReader::new(Sequential::new(file)))
}

/// Reads a log to its end. Passes the offset of each record and its batch, or anything else that is there, to `take`.
fn read(
    dir: &dyn Directory,
    log: &mut Log,
    mut take: impl FnMut(Result<(u64, Vec<DbEntry>), Damage>),
) -> Result<()> {
    let path = dir.path().join(&log.name);
    for item in open(dir, &log.name)? {
        let damage = match item {
            Ok(LogItem::Record(record)) => match Batch::parse(&record.payload) {
                Ok(batch) => {
                    log.versions += batch.changes.len() as u64;
                    take(Ok((record.offset, batch.changes)));
                    continue;
                }
                Err(defect) => {
                    let bytes = record.payload.len() as u64;
                    Damage::new(record.offset, bytes, &defect.expected, &defect.found)
                }
            },
            Ok(LogItem::Gap(gap)) if gap.is_cut => {
                let is_record = gap.kind != GapKind::Zeros;
                log.unfinished = is_record.then_some((gap.offset, gap.bytes));
                continue;
            }
            Ok(LogItem::Gap(gap)) => {
                check_foreign(Section::Log, &path, gap.offset, &gap.found)?;
                Damage::new(gap.offset, gap.bytes, &gap.expected, &gap.found)
            }
            Err(error) => Damage::new(0, log.bytes, "to read all of it", &error.to_string()),
        };
        take(Err(damage));
    }
    Ok(())
}

impl Logged {
    /// Reads the next log. Changes with sequence numbers above `tables_end` are not in tables if no log had a batch so far, and a log
    /// before this one is missing or has none: LevelDB only begins a log when the previous one has some.
    pub(super) fn read(
        &mut self,
        dir: &dyn Directory,
        log: &mut Log,
        tables_end: Option<u64>,
    ) -> Result<()> {
        let (name, mut damage) = (log.name.clone(), None);
        read(dir, log, |item| {
            let (offset, changes) = match item {
                Ok(batch) => batch,
                Err(found) => return damage = Some(found),
            };
            let Some(first) = changes.first().map(|change| change.sequence) else {
                return;
            };
            if let Some(expected) = self.expected.filter(|&expected| first < expected) {
                let what = format!(
                    "a batch of sequence number {first} after {}: left out",
                    expected - 1
                );
                let (bytes, found) = (0, &mut damage);
                let back = Damage {
                    offset,
                    bytes,
                    what,
                };
                self.lose(&name, Some(&back), None);
                found.get_or_insert(back);
                return;
            }
            let from = match self.expected {
                Some(expected) => Some(expected),
                None if damage.is_some() => Some(0),
                None => tables_end.map(|end| end + 1),
            };
            if let Some(from) = from.filter(|&from| from < first) {
                self.lose(&name, damage.as_ref(), Some(from..first));
            }
            damage = None;
            self.expected = Some(first + changes.len() as u64);
            self.last_sequence = self.last_sequence.max(first + changes.len() as u64 - 1);
            for change in changes {
                self.newest.insert(change.user_key.clone(), change);
            }
        })?;
        if let Some(damage) = damage {
            let lost = self.expected.unwrap_or(0)..MAX_SEQUENCE + 1;
            self.lose(&name, Some(&damage), Some(lost));
        }
        if let Some((offset, bytes)) = log.unfinished {
            let reason = format!("{bytes} bytes of a record that its writer did not finish");
            let note = RepairFinding::new(Grade::Note, Some(name), reason, (None, None));
            self.findings.push(RepairFinding {
                offset: Some(offset),
                bytes: Some(bytes),
                ..note
            });
        }
        Ok(())
    }

    /// Reads a log whose changes are, or were, in tables.
    pub(super) fn read_old(&mut self, dir: &dyn Directory, log: &mut Log) -> Result<()> {
        read(dir, log, |item| {
            for change in item.into_iter().flat_map(|(_, changes)| changes) {
                let known = self.newest.get(&change.user_key);
                if known.is_none_or(|known| known.sequence < change.sequence) {
                    self.newest.insert(change.user_key.clone(), change);
                }
            }
        })
    }

    /// Reports lost changes, which may be of any key.
    fn lose(&mut self, file: &str, damage: Option<&Damage>, lost: Option<Range<u64>>) {
        let counted = lost
            .clone()
            .filter(|lost| lost.start > 0 && lost.end <= MAX_SEQUENCE);
        let changes = counted.map(|lost| lost.end - lost.start);
        let mut reason = match (&changes, self.expected) {
            (Some(changes), None) => format!("{changes} changes of an earlier log are lost"),
            (Some(changes), _) => format!("{changes} changes before this place are lost"),
            (None, _) => "changes are lost".to_owned(),
        };
        if let Some(damage) = damage {
            reason = format!("{reason}: {}", damage.what);
        }
        self.lost.extend(lost);
        self.findings.push(RepairFinding {
            offset: damage.map(|damage| damage.offset),
            bytes: damage.map(|damage| damage.bytes).filter(|&bytes| bytes > 0),
            keys: changes,
            ..RepairFinding::new(Grade::Lost, Some(file.to_owned()), reason, (None, None))
        });
    }

    pub(super) fn are_keys_of_indexed_db(&self) -> bool {
        self.newest.keys().all(|key| is_indexed_db_key(key))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    /// The newest version of each key, in order.
    pub(super) fn into_rows(self, role: Role, order: &Order) -> Vec<Row> {
        let row = |change: DbEntry| {
            let mut key = Vec::with_capacity(change.user_key.len() + 8);
            let (user_key, sequence) = (&change.user_key[..], change.sequence);
            let value_type = match change.version {
                Version::Value(_) => ValueType::Value,
                _ => ValueType::Deletion,
            };
            InternalKey {
                user_key,
                sequence,
                value_type,
            }
            .encode(&mut key);
            let value = change.version.into_value().unwrap_or_default();
            let (rank, table) = ((role, 0), None);
            Row {
                key,
                value,
                rank,
                table,
            }
        };
        let mut rows: Vec<Row> = self.newest.into_values().map(row).collect();
        rows.sort_by(|a, b| a.cmp(b, order));
        rows
    }
}
