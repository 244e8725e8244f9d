//! Records of a log or a MANIFEST, as `scan` shows them.

use std::path::Path;

use bytes::Bytes;
use leveltable_database::{Batch, Defect, Edit, FileKind, GapKind, LogItem, LogReader};
use serde_json::{Map, Value, json};

use super::kind_of;
use crate::Answer;
use crate::failure::Failure;
use crate::notation::key_json;
use crate::output::complain;
use crate::row::Row;

/// What a log or a MANIFEST records.
pub(crate) enum Record {
    Change(Row),
    Edit(Map<String, Value>),
}

/// Reads the log or the MANIFEST at `path`. Calls `each` with the offset and the content of each record until that returns false,
/// and `fault` with what is no record.
pub(crate) fn read(
    path: &Path,
    mut each: impl FnMut(u64, Record) -> Result<bool, Failure>,
    mut fault: impl FnMut(GapKind, String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let is_manifest = kind_of(path).0 == FileKind::Manifest;
    for item in LogReader::open(path)? {
        match item.map_err(|e| Failure::new(e.to_string()).at(path.display()))? {
            LogItem::Record(record) => match parse(&record.payload, is_manifest) {
                Ok(records) => {
                    for one in records {
                        if !each(record.offset, one)? {
                            return Ok(());
                        }
                    }
                }
                Err(defect) => {
                    let what = format!("record at offset {}: {defect}", record.offset);
                    fault(GapKind::Damaged, what)?;
                }
            },
            LogItem::Gap(gap) => {
                let what = format!("{} bytes at offset {}", gap.bytes, gap.offset);
                let what = format!("{what}: expected {}, found {}", gap.expected, gap.found);
                fault(gap.kind, what)?;
            }
        }
    }
    Ok(())
}

/// Shows the records of the log or MANIFEST at `path` with `show`, which returns whether it takes more. Damage is an error unless
/// `skip_damaged` says that it is only reported.
pub(crate) fn scan(
    path: &Path,
    skip_damaged: bool,
    show: impl FnMut(u64, Record) -> Result<bool, Failure>,
) -> Result<Answer, Failure> {
    let mut answer = Answer::Yes;
    read(path, show, |kind, what| {
        if kind != GapKind::Damaged {
            complain("note", &format!("{}: no record in {what}", path.display()));
            return Ok(());
        }
        let fault = Failure::new(what).at(path.display());
        if !skip_damaged {
            return Err(fault);
        }
        complain("left out", &fault.to_string());
        answer = Answer::No;
        Ok(())
    })?;
    Ok(answer)
}

/// Returns the edit of a MANIFEST, or the changes of a log's batch.
fn parse(payload: &[u8], is_manifest: bool) -> Result<Vec<Record>, Defect> {
    if is_manifest {
        return Ok(vec![Record::Edit(fields_of(&Edit::parse(payload)?))]);
    }
    let batch = Batch::parse(payload)?;
    let changes = batch.changes().map(|change| {
        let key = Bytes::copy_from_slice(change.user_key);
        let value = change.value.map(Bytes::copy_from_slice);
        Record::Change(Row::of_version(key, change.sequence, value.into()))
    });
    Ok(changes.collect())
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
