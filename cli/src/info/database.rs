//! The output of `info` for a database.

use leveltable_database::{Database, FileKind};
use serde::Serialize;
use serde_json::{Value, json};

use super::record::Described;
use super::text::{shown, size};
use crate::database::{gap_name, state_name};
use crate::failure::with_remedies;
use crate::output::{BOLD, count};

#[derive(Serialize)]
struct DatabaseRecord {
    file_bytes: u64,
    keys: &'static str,
    order_known: bool,
    comparator: String,
    last_sequence: u64,
    tables: usize,
    logs: Vec<Value>,
    /// The gaps in logs and MANIFESTs.
    left_out: Vec<Value>,
    files: Vec<Value>,
    /// What is unknown because the MANIFEST was not read.
    unknown: Option<String>,
}

/// Describes a database.
pub(super) fn describe(db: &Database) -> leveltable::Result<Described> {
    let (all, recovery) = (db.files()?, db.recovery());
    let mut lines = Vec::new();
    let (mut logs, mut gaps, mut files, mut tables) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for log in &recovery.logs {
        let (number, batches, changes) = (log.number, log.batches, log.changes);
        logs.push(json!({"number": number, "batches": batches, "changes": changes}));
        let (batches, changes) = (count(batches, "batch"), count(changes, "change"));
        lines.push(format!("log     {number:06}: {changes} in {batches}"));
    }
    for (file, gap) in &recovery.gaps {
        let (what, offset, bytes) = (gap_name(gap), gap.offset, gap.bytes);
        gaps.push(json!({"file": file, "offset": offset, "bytes": bytes, "what": what}));
        lines.push(format!(
            "        {file}: {bytes} bytes at offset {offset}: {what}"
        ));
    }
    let unknown = recovery.unknown();
    if let Some(unknown) = &unknown {
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
    let record = DatabaseRecord {
        file_bytes: all.iter().filter_map(|file| file.bytes).sum(),
        keys: "database",
        // Only the MANIFEST names the order.
        order_known: db.has_known_order() && !recovery.without_manifest,
        comparator: db.comparator(),
        last_sequence: db.last_sequence(),
        tables,
        logs,
        left_out: gaps,
        files,
        unknown,
    };
    // Each field is named here, or its lines are made above with it, so that none is forgotten.
    let DatabaseRecord {
        file_bytes,
        keys: _,
        order_known,
        comparator,
        last_sequence,
        tables: _,
        logs: _,
        left_out: _,
        files: _,
        unknown: _,
    } = &record;
    let (bytes, order) = (size(*file_bytes), shown(comparator));
    let unknown = (!order_known).then_some(", which is not known");
    let head = [
        format!("a LevelDB database, {bytes}, last sequence {last_sequence}"),
        format!("order   {order}{}", unknown.unwrap_or_default()),
    ];
    lines.splice(0..0, head);
    let unreadable = recovery.unreadable_tables.iter();
    Ok(Described {
        kind: Some("database"),
        record: json!(record),
        lines,
        unreadable: unreadable.map(|(_, e)| with_remedies(e)).collect(),
    })
}
