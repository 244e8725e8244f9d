//! What `info` shows of a database.

use leveltable_database::{Database, FileKind, GapKind};
use serde_json::json;

use super::state_name;
use crate::info::{Record, shown, size};
use crate::output::{BOLD, count};

/// Fills in the record of a database. Returns also its lines.
pub(crate) fn describe(db: &Database, empty: Record) -> leveltable::Result<(Record, Vec<String>)> {
    let (all, recovery) = (db.files()?, db.recovery());
    let bytes = all.iter().filter_map(|file| file.bytes).sum();
    let unknown = (!db.has_known_order()).then_some(", which is not known");
    let (order, sequence) = (shown(&db.comparator()), db.last_sequence());
    let mut lines = vec![
        format!(
            "a LevelDB database, {}, last sequence {sequence}",
            size(bytes)
        ),
        format!("order   {order}{}", unknown.unwrap_or_default()),
    ];
    let (mut logs, mut gaps, mut files, mut tables) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for log in &recovery.logs {
        let (number, batches, changes) = (log.number, log.batches, log.changes);
        logs.push(json!({"number": number, "batches": batches, "changes": changes}));
        let (batches, changes) = (count(batches, "batch"), count(changes, "change"));
        lines.push(format!("log     {number:06}: {changes} in {batches}"));
    }
    for (file, gap) in &recovery.gaps {
        let (what, offset, bytes) = (gap_name(gap.kind), gap.offset, gap.bytes);
        gaps.push(json!({"file": file, "offset": offset, "bytes": bytes, "what": what}));
        lines.push(format!(
            "        {file}: {bytes} bytes at offset {offset}: {what}"
        ));
    }
    if let Some(unknown) = recovery.unknown() {
        lines.push(format!("unknown {unknown}"));
    }
    let title = format!("{:>5} {:>12}  {:<10}  file", "level", "bytes", "state");
    lines.push(format!("\n{BOLD}{title}{BOLD:#}"));
    for file in &all {
        let state = if recovery.held.contains(&file.name) {
            "held"
        } else {
            state_name(file.state)
        };
        let (name, bytes) = (&file.name, file.bytes);
        let level = file.listed.as_ref().map(|(level, _)| level);
        files.push(json!({"name": name, "bytes": bytes, "state": state, "level": level}));
        tables += usize::from(file.kind == FileKind::Table && level.is_some());
        let level = level.map_or_else(String::new, ToString::to_string);
        let bytes = bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
        lines.push(format!(
            "{level:>5} {bytes:>12}  {state:<10}  {}",
            shown(name)
        ));
    }
    let record = Record {
        file_bytes: Some(bytes),
        keys: Some("database"),
        order_known: Some(db.has_known_order()),
        comparator: Some(db.comparator()),
        last_sequence: Some(sequence),
        tables: Some(tables),
        files: files.into(),
        logs: logs.into(),
        left_out: gaps.into(),
        ..empty
    };
    Ok((record, lines))
}

/// Returns what bytes of a log or MANIFEST that are no record are.
pub(crate) fn gap_name(kind: GapKind) -> &'static str {
    match kind {
        GapKind::Torn => "a record that its writer did not finish",
        GapKind::Zeros => "zeros",
        GapKind::Damaged => "damage",
    }
}
