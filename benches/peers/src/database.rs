//! Databases built, shrunk and repaired by this workspace. `cpp/leveldb.cc` does the same with LevelDB, and prepares the old ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use leveltable_database::{
    CompactOptions, Database, DatabaseBuildOptions, DatabaseBuilder, compact_into,
};
use leveltable_repair::{Grade, RepairOptions, repair};

use crate::workload::{self, Answers, Measured, file_bytes, remove};

/// The file with the workload's entries as lines, for the tool.
pub const LINES: &str = "lines";

/// Times the work, elapsed since the other side has threads, and reads the database that it leaves.
pub fn run(directory: &Path, work: &str, how: &str) -> Result<Measured> {
    let new = directory.join("database-by-leveltable");
    remove(&new)?;
    let start;
    match (work, how) {
        ("database-build", "tool") => {
            let tool = tool().context("the tool was not built")?;
            let mut command = Command::new(tool);
            command.args(["build", "--database", "--raw"]);
            command.arg(&new).arg(directory.join(LINES));
            start = Instant::now();
            ensure!(command.status()?.success(), "the tool failed");
        }
        ("database-build", _) => {
            let keys = workload::read_keys(directory, "keys")?;
            let values = workload::read(directory, "values")?;
            start = Instant::now();
            let mut builder = DatabaseBuilder::create(&new, DatabaseBuildOptions::new())?;
            for (key, value) in workload::entries(&keys, &values) {
                builder.put(key, value)?;
            }
            builder.finish()?;
        }
        ("database-shrink", _) => {
            start = Instant::now();
            compact_into(directory.join("old"), &new, CompactOptions::new())?;
        }
        ("database-repair", _) => {
            start = Instant::now();
            let report = repair(directory.join("broken"), &new, RepairOptions::new())?;
            // Without a MANIFEST it cannot be proven that nothing else was there.
            let mut findings = report.findings.iter();
            let lost = findings.any(|finding| finding.grade == Grade::Lost);
            ensure!(!lost, "not all was recovered: {report:?}");
        }
        _ => bail!("unknown work {work}"),
    }
    let took = start.elapsed();
    let mut answers = Answers::default();
    let mut entries = Database::open_read_only(&new)?.iter();
    while entries.advance()? {
        answers.entry(entries.key(), entries.value());
    }
    let measured = Measured {
        figure: took.as_nanos() as f64,
        disk_bytes: file_bytes(&new)? as f64,
        answers,
    };
    remove(&new)?;
    Ok(measured)
}

/// Returns the path of the tool, if it was built beside this program.
pub fn tool() -> Option<PathBuf> {
    let tool = std::env::current_exe().ok()?.with_file_name("leveltable");
    tool.exists().then_some(tool)
}

/// Writes the entries for the tool, which takes their bytes as they are. Only decimal keys have no line ends.
pub fn write_lines(directory: &Path) -> Result<()> {
    let keys = workload::read_keys(directory, "keys")?;
    let values = workload::read(directory, "values")?;
    let entries = workload::entries(&keys, &values);
    let lines: Vec<&[u8]> = entries
        .flat_map(|(key, value)| [key, &b"\t"[..], value, b"\n"])
        .collect();
    Ok(std::fs::write(directory.join(LINES), lines.concat())?)
}
