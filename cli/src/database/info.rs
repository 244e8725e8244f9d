//! What `info` shows of a database.

use std::io::{self, Write};

use leveltable_database::{Database, DatabaseFile, FileKind, GapKind};
use serde_json::json;

use super::state_name;
use crate::info::{Record, shown, size};
use crate::output::{BOLD, count};

/// Fills in the record of a database with these files.
pub(crate) fn describe(db: &Database, files: &[DatabaseFile], empty: Record) -> Record {
    let recovery = db.recovery();
    let is_listed = |file: &&DatabaseFile| file.kind == FileKind::Table && file.listed.is_some();
    let logs = { recovery.logs.iter() }
        .map(|log| json!({"number": log.number, "batches": log.batches, "changes": log.changes}));
    let gaps = recovery.gaps.iter().map(|left_out| {
        let gap = &left_out.gap;
        json!({"file": left_out.file, "offset": gap.offset, "bytes": gap.bytes, "what": gap_name(gap.kind)})
    });
    let bytes = files.iter().filter_map(|file| file.bytes).sum();
    let tables = files.iter().filter(is_listed).count();
    let files = files.iter().map(|file| {
        json!({
            "name": file.name,
            "bytes": file.bytes,
            "state": state_name(file.state),
            "level": file.listed.as_ref().map(|(level, _)| level),
        })
    });
    Record {
        file_bytes: Some(bytes),
        keys: Some("database"),
        order_known: Some(db.has_known_order()),
        comparator: Some(db.comparator()),
        last_sequence: Some(db.last_sequence()),
        tables: Some(tables),
        files: files.collect(),
        logs: logs.collect(),
        left_out: gaps.collect(),
        ..empty
    }
}

pub(crate) fn draw(
    db: &Database,
    files: &[DatabaseFile],
    record: &Record,
    out: &mut impl Write,
) -> io::Result<()> {
    let order = shown(&db.comparator());
    let (bytes, sequence) = (size(record.file_bytes.unwrap_or(0)), db.last_sequence());
    writeln!(out, "a LevelDB database, {bytes}, last sequence {sequence}")?;
    let unknown = (!db.has_known_order()).then_some(", which is not known");
    writeln!(out, "order   {order}{}", unknown.unwrap_or_default())?;
    let recovery = db.recovery();
    for log in &recovery.logs {
        let batches = count(log.batches, "batch");
        let changes = count(log.changes, "change");
        writeln!(out, "log     {:06}: {changes} in {batches}", log.number)?;
    }
    for left_out in &recovery.gaps {
        let (file, gap) = (&left_out.file, &left_out.gap);
        let what = format!("{} bytes at offset {}", gap.bytes, gap.offset);
        writeln!(out, "        {file}: {what}: {}", gap_name(gap.kind))?;
    }
    let title = format!("{:>5} {:>12}  {:<10}  file", "level", "bytes", "state");
    writeln!(out, "\n{BOLD}{title}{BOLD:#}")?;
    for file in files {
        let level = file.listed.as_ref().map(|(level, _)| level.to_string());
        let level = level.unwrap_or_default();
        let bytes = file.bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
        let (state, name) = (state_name(file.state), shown(&file.name));
        writeln!(out, "{level:>5} {bytes:>12}  {state:<10}  {name}")?;
    }
    Ok(())
}

/// Returns what bytes of a log or MANIFEST that are no record are.
pub(crate) fn gap_name(kind: GapKind) -> &'static str {
    match kind {
        GapKind::Torn => "a record that its writer did not finish",
        GapKind::Zeros => "zeros",
        GapKind::Damaged => "damage",
    }
}
