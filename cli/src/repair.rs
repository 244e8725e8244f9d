//! `leveltable repair`: writes what is left of a damaged database as a new one.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use leveltable::ErrorKind;
use leveltable_database::FileKind;
use leveltable_repair::{Grade, RepairFinding, RepairOptions, RepairReport, RepairedFile, repair};

use crate::Answer;
use crate::failure::Failure;
use crate::interrupt;
use crate::notation::{Field, write_json};
use crate::output::{Progress, count, print};
use crate::replace::{check_directories, how_to_replace};
use crate::sort::{KeyOrder, comparators};
use crate::write::report_leftovers;

/// Write what is left of a damaged database to a new one.
///
/// Reads every readable MANIFEST, table and log in DIR, and never writes there. NEW is a directory, and appears only when it is complete
/// and on disk. It has the newest value of each key, and the old database's comparator, codec, filter and table size.
///
/// Says first whether anything is lost, then what was found in each file, what is lost or unproven, and the commands that put NEW in the
/// place of DIR. Exits with status 1 if anything is lost or unproven.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/repair.txt").trim_end())]
pub(crate) struct Args {
    /// The damaged database's directory
    dir: PathBuf,
    /// The new directory
    new: PathBuf,
    /// Write the findings to this new file, as JSON lines
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The order of the keys, if no MANIFEST is left that names it; Chrome's IndexedDB has idb_cmp1
    #[arg(long, value_name = "NAME", value_parser = comparators())]
    comparator: Option<KeyOrder>,
    /// Start even if less space is free than DIR takes
    #[arg(long)]
    ignore_space: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let (dir, new) = (&args.dir, &args.new);
    check_directories(dir, new)?;
    if let Some(path) = &args.report {
        check_report(path, dir)?;
    }
    let mut bar = Progress::bytes(None);
    let report = interrupt::guard_directory(|guard| {
        let options = RepairOptions::new().ignore_space(args.ignore_space);
        let options = match args.comparator {
            Some(order) => options.comparator(order.of_user_keys()),
            None => options,
        };
        let options = options.on_temporary(guard).progress(|progress| {
            bar.set(progress.done);
            ControlFlow::Continue(())
        });
        repair(dir, new, options).map_err(|error| match error.kind() {
            ErrorKind::Comparator => {
                error.with_hint("name by --comparator the one that it was written with")
            }
            _ => error,
        })
    });
    drop(bar);
    let report = report?;
    if let Some(path) = &args.report {
        write_report(path, &report.findings).map_err(|e| Failure::of(path, e))?;
    }
    print(describe(args, &report).join("\n") + "\n")?;
    report_leftovers(&report.written.leftovers);
    Ok(Answer::yes_if(report.is_complete()))
}

/// Fails if the report would replace a file, or be in the directory that must not change.
fn check_report(path: &Path, dir: &Path) -> Result<(), Failure> {
    if fs::symlink_metadata(path).is_ok() {
        let what = "already exists: name another file for the report";
        return Err(Failure::of(path, what));
    }
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")));
    let parent = parent.map_err(|e| Failure::of(path, e))?;
    if fs::canonicalize(dir).is_ok_and(|dir| parent.starts_with(dir)) {
        let what = "lies in the damaged database, which is only read: name a file elsewhere for the report";
        return Err(Failure::of(path, what));
    }
    Ok(())
}

/// Writes a line with a JSON object for each finding.
fn write_report(path: &Path, findings: &[RepairFinding]) -> io::Result<()> {
    let mut out = BufWriter::new(File::create_new(path)?);
    for finding in findings {
        let grade = finding.grade.to_string();
        let number = |n: Option<u64>| n.map(|n| Field::Json(n.into()));
        let fields = [
            ("grade", Some(Field::Text(&grade))),
            ("file", finding.file.as_deref().map(Field::Text)),
            ("offset", number(finding.offset)),
            ("bytes", number(finding.bytes)),
            ("reason", Some(Field::Text(&finding.reason))),
            ("from", finding.from.as_deref().map(Field::Bytes)),
            ("to", finding.to.as_deref().map(Field::Bytes)),
            ("keys", number(finding.keys)),
        ];
        let known = fields
            .into_iter()
            .filter_map(|(name, field)| Some((name, field?)));
        write_json(known, false, &mut out)?;
    }
    out.into_inner()?.sync_all()
}

/// Number of findings that are printed; a report in a file has all of them.
const PRINTED: usize = 100;

/// Returns the lines for the user, the most important ones first.
fn describe(args: &Args, report: &RepairReport) -> Vec<String> {
    let has = |grade| report.findings.iter().any(|found| found.grade == grade);
    let verdict = if report.is_complete() {
        "nothing is lost"
    } else if has(Grade::Lost) {
        "data are lost: the lines that begin with `lost` say which"
    } else {
        "nothing is known to be lost, but not all is proven: the lines that begin with `unproven` say why"
    };
    let mut lines = vec![format!("{}: {verdict}", args.dir.display())];
    lines.extend(report.files.iter().map(describe_file));
    let findings = &report.findings;
    lines.extend(findings.iter().take(PRINTED).map(ToString::to_string));
    if findings.len() > PRINTED {
        let more = count((findings.len() - PRINTED) as u64, "more finding");
        lines.push(format!("and {more}: --report FILE writes all to a file"));
    }
    let built = &report.written;
    let (entries, tables) = (count(built.entries, "entry"), count(built.tables, "table"));
    lines.push(format!(
        "{}: {} bytes, {entries} in {tables}",
        args.new.display(),
        built.bytes
    ));
    lines.extend(how_to_replace("it", &args.dir, &args.new));
    lines
}

fn describe_file(file: &RepairedFile) -> String {
    let (name, state) = (&file.name, &file.state);
    let read = match file.kind {
        FileKind::Manifest => format!(", {}", count(file.versions, "record")),
        FileKind::Table | FileKind::Log => format!(", {}", count(file.versions, "version")),
        _ => String::new(),
    };
    match file.bytes {
        Some(bytes) => format!("  {name}: {bytes} bytes{read}: {state}"),
        None => format!("  {name}: {state}"),
    }
}
