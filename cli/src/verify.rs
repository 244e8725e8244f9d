//! `leveltable verify`: checks tables and lists everything that is wrong with them.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use leveltable::db::KeyKind;
use leveltable::repair::{Finding, VerifyOptions, VerifyReport, verify};
use leveltable::{ErrorKind, OpenOptions, Section};
use serde_json::{Value, json};

use crate::Answer;
use crate::failure::Failure;
use crate::open::{check_is_file, own_order};
use crate::output::{Rows, complain, count, entries};
use crate::progress::Progress;

/// Check whether tables are sound.
///
/// Reads the whole of each file. Checks checksums, structure, the order of the keys, the index, and each key
/// against the filter, and lists everything that is wrong. Exits with status 1 if a file is damaged, is not a
/// table or could not be checked completely, and with status 2 if a file is unreadable or was written with a
/// custom comparator.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable verify 000005.ldb
  leveltable verify db/*.ldb --quiet && echo all sound
  leveltable verify db/*.ldb --json | jq -r 'select(.sound | not) | .file'

To copy the entries of a damaged table, use `leveltable salvage`.")]
pub(crate) struct Args {
    /// The tables' files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print errors only, and report findings by the exit status
    #[arg(long, short)]
    quiet: bool,
    /// Print a JSON object for each file
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let mut rows = Rows::new();
    let mut answer = Answer::Yes;
    for path in &args.files {
        let (report, is_table) = match verify_file(path) {
            Ok(verified) => verified,
            Err(Failure::Message(message)) => {
                complain("error", &message);
                answer = Answer::Unknown;
                continue;
            }
            Err(closed) => return Err(closed),
        };
        if answer == Answer::Yes && !report.is_sound() {
            answer = Answer::No;
        }
        if args.json {
            rows.write(|out| writeln!(out, "{}", to_json(path, &report)))?;
        } else if !args.quiet {
            rows.write(|out| out.write_all(describe(path, &report, is_table).as_bytes()))?;
        }
    }
    rows.finish()?;
    Ok(answer)
}

/// Returns the report on a file, and whether the file has the footer of a table.
fn verify_file(path: &Path) -> Result<(VerifyReport, bool), Failure> {
    check_is_file(path)?;
    let named = |e: &dyn Display| Failure::new(e.to_string()).at(path.display());
    let opened = OpenOptions::new().no_filter().open(path);
    let is_table = match opened.map_err(|e| e.kind()) {
        // In a foreign order every key would be a finding.
        Err(ErrorKind::Comparator) => return Err(own_order(path)),
        Err(ErrorKind::NotATable) => false,
        _ => true,
    };
    let file = File::open(path).map_err(|e| named(&e))?;
    let mut bar = Progress::bytes(file.metadata().ok().map(|metadata| metadata.len()));
    let options = VerifyOptions::new().progress(|progress| {
        bar.set(progress.done);
        ControlFlow::Continue(())
    });
    verify(file, options)
        .map(|report| (report, is_table))
        .map_err(|e| named(&e))
}

/// Returns a summary line and a line for each finding.
fn describe(path: &Path, report: &VerifyReport, is_table: bool) -> String {
    let file = path.display();
    let VerifyReport {
        file_bytes,
        checked_bytes,
        data_blocks,
        entries: n,
        damage,
        unchecked,
        warnings,
        ..
    } = report;
    let readable = format!("{} in {}", entries(*n), count(*data_blocks, "block"));
    let mut text = if report.is_sound() {
        format!("{file}: sound: {readable}")
    } else {
        format!(
            "{file}: {damage} damaged, {unchecked} unchecked: {readable} could be read, {checked_bytes} of \
             {file_bytes} bytes were checked"
        )
    };
    if *warnings > 0 {
        text += &format!("; {}", count(*warnings, "warning"));
    }
    text.push('\n');
    for finding in &report.findings {
        text += &match finding.section() {
            // This finding is a sentence about the whole file, so it needs no section.
            Section::Footer if !is_table => {
                format!("{file}: {}: {}\n", finding.severity(), finding.found())
            }
            _ => format!("{file}: {finding}\n"),
        };
    }
    if let left_out @ 1.. = report.left_out() {
        text += &format!("{file}: and {left_out} more\n");
    }
    text
}

fn to_json(path: &Path, report: &VerifyReport) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "severity": finding.severity().to_string(),
            "section": finding.section().to_string(),
            "offset": finding.offset(),
            "expected": finding.expected(),
            "found": finding.found(),
        })
    };
    json!({
        "file": path.to_string_lossy(),
        "sound": report.is_sound(),
        "keys": if report.keys == KeyKind::Database { "database" } else { "plain" },
        "entries": report.entries,
        "data_blocks": report.data_blocks,
        "file_bytes": report.file_bytes,
        "checked_bytes": report.checked_bytes,
        "damage": report.damage,
        "unchecked": report.unchecked,
        "warnings": report.warnings,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
