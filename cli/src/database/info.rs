//! What `info` shows of a database.

use std::io::{self, Write};

use leveltable_database::{Database, DatabaseFile, FileKind, GapKind, Recovery};
use serde_json::{Value, json};

use super::state_name;
use crate::failure::Failure;
use crate::info::{shown, size};
use crate::output::{BOLD, count, file_record};

/// Everything that is shown of a database.
pub(crate) struct DatabaseInfo<'a> {
    db: &'a Database,
    files: Vec<DatabaseFile>,
    recovery: Recovery,
}

impl DatabaseInfo<'_> {
    pub(crate) fn of(db: &Database) -> Result<DatabaseInfo<'_>, Failure> {
        Ok(DatabaseInfo {
            db,
            files: db.files()?,
            recovery: db.recovery(),
        })
    }

    fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|file| file.bytes).sum()
    }

    pub(crate) fn draw(&self, out: &mut impl Write) -> io::Result<()> {
        let order = shown(&self.db.comparator());
        let is_known = if self.db.has_known_order() {
            ""
        } else {
            ", which is not known"
        };
        let (bytes, sequence) = (size(self.bytes()), self.db.last_sequence());
        writeln!(out, "a LevelDB database, {bytes}, last sequence {sequence}")?;
        writeln!(out, "order   {order}{is_known}")?;
        for log in &self.recovery.logs {
            let batches = count(log.batches, "batch").replace("batchs", "batches");
            let changes = count(log.changes, "change");
            writeln!(out, "log     {:06}: {changes} in {batches}", log.number)?;
        }
        for left_out in &self.recovery.gaps {
            let (file, gap) = (&left_out.file, &left_out.gap);
            let what = gap_name(gap.kind);
            writeln!(
                out,
                "        {file}: {} bytes at offset {}: {what}",
                gap.bytes, gap.offset
            )?;
        }
        let titles = ("level", "bytes", "state");
        writeln!(
            out,
            "\n{BOLD}{:>5} {:>12}  {:<10}  file{BOLD:#}",
            titles.0, titles.1, titles.2
        )?;
        for file in &self.files {
            let level = file.listed.as_ref().map(|(level, _)| level.to_string());
            let level = level.unwrap_or_default();
            let bytes = file.bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
            let state = state_name(file.state);
            writeln!(
                out,
                "{level:>5} {bytes:>12}  {state:<10}  {}",
                shown(&file.name)
            )?;
        }
        Ok(())
    }

    pub(crate) fn to_json(&self, fields: &[&str]) -> Value {
        let file = |file: &DatabaseFile| {
            json!({
                "name": file.name,
                "bytes": file.bytes,
                "state": state_name(file.state),
                "level": file.listed.as_ref().map(|(level, _)| level),
            })
        };
        let logs = self.recovery.logs.iter().map(
            |log| json!({"number": log.number, "batches": log.batches, "changes": log.changes}),
        );
        let gaps = self.recovery.gaps.iter().map(|left_out| {
            let gap = &left_out.gap;
            json!({"file": left_out.file, "offset": gap.offset, "bytes": gap.bytes, "what": gap_name(gap.kind)})
        });
        let tables = self
            .files
            .iter()
            .filter(|file| file.kind == FileKind::Table);
        let record = json!({
            "file_bytes": self.bytes(),
            "keys": "database",
            "order_known": self.db.has_known_order(),
            "comparator": self.db.comparator(),
            "last_sequence": self.db.last_sequence(),
            "tables": tables.filter(|file| file.listed.is_some()).count(),
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
            "logs": logs.collect::<Vec<_>>(),
            "left_out": gaps.collect::<Vec<_>>(),
        });
        file_record(self.db.path(), fields, record)
    }
}

/// Returns what bytes of a log or MANIFEST that are no record are.
pub(crate) fn gap_name(kind: GapKind) -> &'static str {
    match kind {
        GapKind::Torn => "a record that its writer did not finish",
        GapKind::Zeros => "zeros",
        GapKind::Damaged => "damage",
    }
}
