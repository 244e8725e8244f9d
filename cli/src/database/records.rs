//! Records of a log or a MANIFEST, as `scan` shows them.

use std::path::Path;

use leveltable::Corruption;
use leveltable_database::{Batch, Edit, FileKind, GapKind, LogItem, LogReader, LogRecord};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::notation::key_json;
use crate::path::kind_of;
use crate::row::Row;

/// The contents of a log or a MANIFEST.
pub(crate) enum Record {
    Change(Row),
    Edit(Map<String, Value>),
    /// Bytes that are not a record, their kind, and a description.
    No(GapKind, String),
}

/// Reads the log or the MANIFEST at `path`. Calls `each` with the offset and the content of each record until it returns false.
pub(crate) fn read(
    path: &Path,
    mut each: impl FnMut(u64, Record) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let is_manifest = kind_of(path).0 == FileKind::Manifest;
    for item in LogReader::open(path)? {
        let (offset, records) = match item.map_err(|e| Failure::of(path, e))? {
            LogItem::Record(record) => {
                let records = parse(&record, is_manifest).unwrap_or_else(|defect| {
                    let (expected, found) = (defect.expected, defect.found);
                    let what = format!("byte {}: expected {expected}", defect.offset);
                    let at = record.offset;
                    let what = format!("record at offset {at}, {what}, found {found}");
                    vec![Record::No(GapKind::Damaged, what)]
                });
                (record.offset, records)
            }
            LogItem::Gap(gap) => {
                let what = format!("{} bytes at offset {}", gap.bytes, gap.offset);
                let what = format!("{what}: expected {}, found {}", gap.expected, gap.found);
                (gap.offset, vec![Record::No(gap.kind, what)])
            }
        };
        for record in records {
            if !each(offset, record)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns the edit of a MANIFEST, or the changes of a log's batch.
fn parse(record: &LogRecord, is_manifest: bool) -> Result<Vec<Record>, Corruption> {
    if is_manifest {
        return Ok(vec![Record::Edit(fields_of(&Edit::parse(
            &record.payload,
        )?))]);
    }
    let batch = Batch::parse(&record.payload)?;
    let changes = batch.changes.into_iter().map(|change| {
        Record::Change(Row {
            lead: vec![("offset", json!(record.offset))],
            ..Row::of_version(change.user_key, change.sequence, change.version)
        })
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
    let mut fields = Map::new();
    for (name, value) in [
        ("comparator", json!(name)),
        ("log_number", json!(edit.log_number)),
        ("prev_log_number", json!(edit.prev_log_number)),
        ("next_file_number", json!(edit.next_file_number)),
        ("last_sequence", json!(edit.last_sequence)),
        ("deleted", deleted.collect()),
        ("added", added.collect()),
    ] {
        if !value.is_null() && value != json!([]) {
            fields.insert(name.into(), value);
        }
    }
    fields
}
