//! Records of a log or a MANIFEST, as `scan` shows them.

use std::path::Path;

use bytes::Bytes;
use leveltable_database::{Batch, Edit, FileKind, GapKind, LogItem, LogReader};
use serde_json::{Map, Value, json};

use super::kind_of;
use crate::Answer;
use crate::failure::Failure;
use crate::info::key_json;
use crate::open::Row;
use crate::output::complain;

/// Shows the records of the log or MANIFEST at `path` with `show`, which gets the offset and a change of a log or the fields of a
/// MANIFEST's edit, and returns whether it takes more. Damage is an error unless `skip_damaged` says that it is only reported.
pub(crate) fn scan(
    path: &Path,
    skip_damaged: bool,
    mut show: impl FnMut(u64, Record) -> Result<bool, Failure>,
) -> Result<Answer, Failure> {
    let is_manifest = kind_of(path).0 == FileKind::Manifest;
    let mut answer = Answer::Yes;
    for item in LogReader::open(path)? {
        let item = item.map_err(|e| Failure::new(e.to_string()).at(path.display()))?;
        let fault = match item {
            LogItem::Record(record) => {
                let records = if is_manifest {
                    Edit::parse(&record.payload).map(|edit| vec![Record::Edit(fields_of(&edit))])
                } else {
                    Batch::parse(&record.payload).map(|batch| changes_of(&batch))
                };
                match records {
                    Ok(records) => {
                        for one in records {
                            if !show(record.offset, one)? {
                                return Ok(answer);
                            }
                        }
                        continue;
                    }
                    Err(defect) => format!("record at offset {}: {defect}", record.offset),
                }
            }
            LogItem::Gap(gap) => {
                let what = format!("{} bytes at offset {}", gap.bytes, gap.offset);
                let what = format!("{what}: expected {}, found {}", gap.expected, gap.found);
                if gap.kind != GapKind::Damaged {
                    complain("note", &format!("{}: no record in {what}", path.display()));
                    continue;
                }
                what
            }
        };
        let fault = Failure::new(fault).at(path.display());
        if !skip_damaged {
            return Err(fault);
        }
        complain("left out", &fault.to_string());
        answer = Answer::No;
    }
    Ok(answer)
}

/// What a log or a MANIFEST records.
pub(crate) enum Record {
    Change(Row),
    Edit(Map<String, Value>),
}

fn changes_of(batch: &Batch<'_>) -> Vec<Record> {
    let changes = batch.changes().map(|change| {
        let key = Bytes::copy_from_slice(change.user_key);
        let value = change.value.map(Bytes::copy_from_slice);
        Record::Change(Row::of_version(key, change.sequence, value.into()))
    });
    changes.collect()
}

/// Returns the fields that an edit sets.
fn fields_of(edit: &Edit) -> Map<String, Value> {
    let deleted = edit.deleted.iter();
    let deleted = deleted.map(|(level, number)| json!({"level": level, "number": number}));
    let added = edit.added.iter().map(|(level, file)| {
        json!({
            "level": level,
            "number": file.number,
            "bytes": file.size,
            "first_key": key_json(file.first_user_key()),
            "last_key": key_json(file.last_user_key()),
        })
    });
    let name = edit.comparator.as_deref().map(String::from_utf8_lossy);
    let fields = [
        ("comparator", json!(name)),
        ("log_number", json!(edit.log_number)),
        ("prev_log_number", json!(edit.prev_log_number)),
        ("next_file_number", json!(edit.next_file_number)),
        ("last_sequence", json!(edit.last_sequence)),
        ("deleted", deleted.collect()),
        ("added", added.collect()),
    ];
    let is_set = |value: &Value| !value.is_null() && *value != json!([]);
    let fields = fields.into_iter().filter(|(_, value)| is_set(value));
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
