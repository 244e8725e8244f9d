//! `leveltable verify`: checks tables and lists everything that is wrong with them.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use leveltable::db::KeyKind;
use leveltable::{ErrorKind, OpenOptions, Section, Source};
use leveltable_database::{Database, DatabaseFile, FileState, TableMetadata};
use leveltable_repair::{Finding, VerifyOptions, VerifyReport, verify};
use serde_json::{Value, json};

use crate::Answer;
use crate::database::{self, gap_name, is_damage, state_name};
use crate::failure::{Failure, is_not_found};
use crate::open::{Keys, KeysArg, check_is_file, is_manifest, order_named};
use crate::output::{Progress, Rows, count, note};
use crate::path::{is_database, is_url, reading_command, repair_command};
use crate::place::{copy_if_remote, each_file, expand, source};
use crate::remote::open_set;
use crate::salvage::{in_blocks, lines_of};
use crate::set::{Set, entries_of};
use crate::sort::KeyOrder;

/// Check whether tables are sound.
///
/// Reads each file completely; of a directory, each table in it; of a set, each table that it lists; of a directory with CURRENT,
/// which is a database, the MANIFEST, the logs and each listed table, which must be as listed. Checks checksums, structure, the order
/// of the keys, the index, and each key against the filter, and lists everything that is wrong. Exits with status 1 if a file is
/// damaged, is not a table or could not be checked completely, with status 2 if a file is unreadable, and with status 3 if nothing is
/// wrong, but the order of the keys is not known.
///
/// A table of a set must also be the one that was published, with the number of entries and the first and last keys that the
/// set lists.
///
/// The order is not known if the keys are neither in byte order nor in a database's. Everything else is then checked.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/verify.txt").trim_end())]
pub(crate) struct Args {
    /// Tables' files or URLs, databases, manifests of sets, or directories of tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// In a database, check all tables one by one, and nothing else
    #[arg(long = "files")]
    apart: bool,
    #[command(flatten)]
    keys: KeysArg,
    /// The keys are in another order: do not check it
    #[arg(long)]
    stored_order: bool,
    /// Print only errors, and report findings by the exit status
    #[arg(long, short)]
    quiet: bool,
    /// Print a JSON object for each file
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let mut report = Report {
        args,
        rows: Rows::new(),
    };
    each_file(&expand(&args.files, args.apart)?, |path| {
        if is_database(path) {
            return check_database(path, &mut report);
        }
        let answer = check_file(path, &mut report)?;
        Ok(report.or_repair(path, answer))
    })
}

/// Checks a table or a set.
fn check_file(path: &Path, report: &mut Report<'_>) -> Result<Answer, Failure> {
    // Reading a large table only to find that it is not a manifest would take long.
    let may_be_set = if is_url(path) || path.is_file() {
        is_manifest(path).unwrap_or_else(|e| is_not_found(&e))
    } else {
        path.is_dir()
    };
    match may_be_set.then(|| open_set(path)).transpose() {
        Ok(Some(Some(set))) => check_set(path, &*set, report),
        Ok(_) => report.table(path, verify_file(path, report.args)),
        // A damaged manifest is checked like any table.
        Err(failure) => {
            let verified = verify_file(path, report.args).ok();
            let damaged = verified.filter(|verified| !verified.is_sound());
            report.table(path, damaged.ok_or(failure))
        }
    }
}

/// Prints the results.
struct Report<'a> {
    args: &'a Args,
    rows: Rows,
}

impl Report<'_> {
    /// Prints the result for the table at `path`.
    fn table(
        &mut self,
        path: &Path,
        verified: Result<Verified, Failure>,
    ) -> Result<Answer, Failure> {
        let (fields, text) = match &verified {
            Ok(verified) => (to_json(verified), describe(verified)),
            Err(failure) => (json!({"error": failure.to_string()}), Vec::new()),
        };
        self.write(path, fields, text)?;
        Ok(verified?.answer())
    }

    /// Suggests what to do if a database, or a file of one, is damaged.
    fn or_repair(&self, path: &Path, answer: Answer) -> Answer {
        if answer == Answer::No
            && !self.args.quiet
            && let Some(command) = reading_command(path).or_else(|| repair_command(path))
        {
            note(path, command);
        }
        answer
    }

    /// Prints the result for a set or a database, or that a file of it is missing. The record also has this field, and the error
    /// unless everything is sound.
    fn whole(
        &mut self,
        path: &Path,
        answer: Answer,
        what: &str,
        error: &str,
        (name, value): (&str, Value),
    ) -> Result<Answer, Failure> {
        let is_sound = answer == Answer::Yes;
        let error = (!is_sound).then_some(error);
        let fields = json!({"sound": is_sound, "error": error, (name): value});
        let sound = if is_sound { "sound" } else { "not sound" };
        self.write(path, fields, vec![format!("{sound}: {what}")])?;
        Ok(answer)
    }

    /// Prints a record with these fields, or the lines, before any error that is printed next. Every record has the same fields:
    /// unknown ones are null.
    fn write(&mut self, path: &Path, fields: Value, lines: Vec<String>) -> Result<(), Failure> {
        let text = if self.args.json {
            let mut record = to_json(&Verified::default());
            if let (Value::Object(record), Value::Object(fields)) = (&mut record, fields) {
                record.values_mut().for_each(|value| *value = Value::Null);
                record.extend(fields);
                record.insert("file".into(), path.to_string_lossy().into());
            }
            format!("{record}\n")
        } else if self.args.quiet {
            String::new()
        } else {
            lines_of(path, &lines)
        };
        self.rows.write(|out| out.write_all(text.as_bytes()))?;
        self.rows.flush()
    }
}

/// The result for a table.
#[derive(Default)]
struct Verified {
    report: VerifyReport,
    /// Whether the file has the footer of a table.
    is_table: bool,
    /// How it differs from its entry in the set or database.
    difference: Option<String>,
}

impl Verified {
    fn is_sound(&self) -> bool {
        self.answer() == Answer::Yes
    }

    fn answer(&self) -> Answer {
        if !self.report.blocks_are_sound() || self.difference.is_some() {
            Answer::No
        } else if self.report.unknown_order {
            Answer::Unordered
        } else {
            Answer::Yes
        }
    }
}

/// Checks each table of a set, and that it is the listed one.
fn check_set(path: &Path, set: &dyn Set, report: &mut Report<'_>) -> Result<Answer, Failure> {
    let shards = set.shards();
    let worst = each_file(shards.iter().zip(set.copies()), |(shard, copy)| {
        let name = Path::new(&shard.path);
        let listed = Listed {
            by: "the set lists",
            bytes: shard.bytes,
            entries: shard.entries,
            ends: [&shard.first_key.key, &shard.last_key.key],
            order: KeyOrder::Bytewise,
        };
        let known = report.args.open_options(name);
        let verified = copy.map_err(Failure::from);
        let verified = verified.and_then(|copy| verify_listed(copy, known, &listed));
        report.table(name, verified)
    })?;
    let error = "not all of its tables are sound and as listed";
    let what = format!("a set of {}", count(shards.len() as u64, "table"));
    let entries = ("entries", entries_of(&shards).into());
    report.whole(path, worst, &what, error, entries)
}

/// The entry of a table in a set or a MANIFEST: lookups would miss keys before the listed first key or after the last.
struct Listed<'a> {
    by: &'static str,
    bytes: u64,
    entries: Option<u64>,
    /// The first and the last stored key.
    ends: [&'a [u8]; 2],
    order: KeyOrder,
}

/// Verifies the table in `source`, and that it agrees with its entry.
fn verify_listed(source: Source, known: Known, listed: &Listed<'_>) -> Result<Verified, Failure> {
    let mut verified = verify_source(source.clone(), Some(listed.bytes), known)?;
    let (by, report) = (listed.by, &verified.report);
    if let Some(n) = listed.entries.filter(|&n| n != report.entries) {
        verified.difference = Some(format!("{by} {}", count(n, "entry")));
    } else if report.is_sound() {
        let (found, bytes) = (report.file_bytes, listed.bytes);
        let size = (found != bytes).then(|| format!("{found} bytes, and {by} {bytes}"));
        verified.difference = match size {
            Some(size) => Some(size),
            None => other_ends(source, listed)?,
        };
    }
    Ok(verified)
}

/// Returns how the first or the last key of a sound table differs from the listed ones.
fn other_ends(source: Source, listed: &Listed<'_>) -> Result<Option<String>, Failure> {
    let options = OpenOptions::new().no_filter().no_cache().stored_order();
    let table = options.open_source(source)?;
    let ends = [("first", table.first()?), ("last", table.last()?)];
    for ((which, end), key) in ends.into_iter().zip(listed.ends) {
        let found = end.map(|(key, _)| key);
        if found.as_ref().is_none_or(|found| found != key) {
            let found = found.map_or_else(|| "none".to_owned(), |key| listed.order.show(&key));
            let (by, key) = (listed.by, listed.order.show(key));
            return Ok(Some(format!("its {which} key is {found}, and {by} {key}")));
        }
    }
    Ok(None)
}

/// Checks the database in the directory `path`.
fn check_database(path: &Path, report: &mut Report<'_>) -> Result<Answer, Failure> {
    let keys = || ("keys", "database".into());
    // Opening reads the MANIFEST and the logs.
    let db = match database::options(false).open_read_only(path) {
        Ok(db) => db,
        Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NotADatabase) => {
            let what = Failure::from(e).to_string();
            // The line begins with the path.
            let what = what
                .strip_prefix(&format!("{}: ", path.display()))
                .unwrap_or(&what);
            return report.whole(path, Answer::No, what, what, keys());
        }
        Err(e) => return Err(e.into()),
    };
    let (mut tables, mut notes) = (0, String::new());
    let mut worst = each_file(db.files()?, |file| match (file.state, &file.listed) {
        (FileState::Live, Some((_, listed))) => {
            tables += 1;
            let verified = check_table(&db, &file, listed, &mut notes);
            report.table(&path.join(&file.name), verified)
        }
        (FileState::Missing, Some(_)) => {
            let what = "missing: the MANIFEST lists it";
            report.whole(&path.join(&file.name), Answer::No, what, what, keys())
        }
        // LevelDB opens a database without its newest log.
        (FileState::Missing | FileState::Orphan, _) => {
            notes += &format!("; note: {} is {}", file.name, state_name(file.state));
            if file.state == FileState::Missing {
                notes += ": changes that no table has, if there were any, are lost";
            }
            Ok(Answer::Yes)
        }
        _ => Ok(Answer::Yes),
    })?;
    for (file, gap) in &db.recovery().gaps {
        if is_damage(gap) {
            worst = worst.max(Answer::No);
        }
        let (place, what) = (format!("{file} at offset {}", gap.offset), gap_name(gap));
        notes += &format!("; note: {place}: {} bytes: {what}", gap.bytes);
    }
    let logs = count(db.recovery().logs.len() as u64, "log");
    let tables = count(tables, "table");
    let what = format!("a database of {tables} and {logs}{notes}");
    let answer = report.whole(path, worst, &what, &what, keys())?;
    Ok(report.or_repair(path, answer))
}

/// Checks a table that the MANIFEST lists, in the order that the MANIFEST names, and that it agrees with its entry.
fn check_table(
    db: &Database,
    file: &DatabaseFile,
    listed: &TableMetadata,
    notes: &mut String,
) -> Result<Verified, Failure> {
    let path = db.path().join(&file.name);
    let listed = Listed {
        by: "the MANIFEST says",
        bytes: listed.size,
        entries: None,
        ends: [&listed.smallest, &listed.largest],
        order: KeyOrder::Internal,
    };
    let verify_in = |order| verify_listed(source(&path)?, known_order(order), &listed);
    let order = KeyOrder::of_database(&db.comparator());
    let verified = verify_in(order)?;
    // Programs that do not know Chrome's order have opened its databases, and written tables in byte order.
    if order == Some(KeyOrder::IndexedDb) && !verified.is_sound() {
        let bytewise = verify_in(Some(KeyOrder::Internal))?;
        if bytewise.report.is_sound() {
            *notes += &format!("; note: {} is in byte order", file.name);
            return Ok(bytewise);
        }
    }
    Ok(verified)
}

fn verify_file(path: &Path, args: &Args) -> Result<Verified, Failure> {
    check_is_file(path)?;
    copy_if_remote(path)?;
    let size = fs::metadata(path).map(|metadata| metadata.len());
    verify_source(source(path)?, size.ok(), args.open_options(path))
}

impl Args {
    /// Returns the known facts about the keys of the table at `path`.
    fn open_options(&self, path: &Path) -> Known {
        let kind = self.keys.keys.named();
        let is_open = self.keys.keys == Keys::Auto;
        match is_open.then(|| order_named(path)).flatten() {
            _ if self.stored_order => (kind, OpenOptions::new().stored_order()),
            Some(order) => known_order(Some(order)),
            None => (kind, OpenOptions::new()),
        }
    }
}

/// The known facts about the keys of a table: their kind, and options with their order.
type Known = (Option<KeyKind>, OpenOptions);

/// Returns the known facts about the keys of a database's table in this order, or in an unknown one.
fn known_order(order: Option<KeyOrder>) -> Known {
    let options = OpenOptions::new();
    let options = match order {
        Some(order) => options.comparator(order.of_user_keys()),
        None => options.stored_order(),
    };
    (Some(KeyKind::Database), options)
}

/// Verifies the table of `size` bytes in `source`.
fn verify_source(
    source: Source,
    size: Option<u64>,
    (kind, open_options): Known,
) -> Result<Verified, Failure> {
    let mut bar = Progress::bytes(size);
    let options = VerifyOptions::new().progress(|progress| {
        bar.set(progress.done);
        ControlFlow::Continue(())
    });
    let options = match kind {
        Some(kind) => options.keys(kind),
        None => options,
    };
    let report = verify(source.clone(), options.open_options(open_options))?;
    let is_table = report.data_blocks > 0 || {
        let opened = OpenOptions::new().no_filter().open_source(source);
        !opened.is_err_and(|e| e.kind() == ErrorKind::NotATable)
    };
    Ok(Verified {
        report,
        is_table,
        difference: None,
    })
}

/// Returns a summary and a line for each finding.
fn describe(verified: &Verified) -> Vec<String> {
    let report = &verified.report;
    let mut footer = { report.findings.iter() }.filter(|f| f.section() == Section::Footer);
    // No finding says that the file contains blocks of a table nevertheless.
    if !verified.is_table
        && report.unchecked < 2
        && let Some(finding) = footer.next()
    {
        return vec![format!("not a table: {}", finding.found())];
    }
    let readable = in_blocks("in", report.entries, report.data_blocks);
    let mut summary = if let Some(difference) = &verified.difference {
        format!("not as listed: {readable}, {difference}")
    } else if report.is_sound() {
        format!("sound: {readable}")
    } else if report.blocks_are_sound() {
        format!("blocks sound, order not known: {readable}")
    } else {
        format!(
            "{} damaged, {} unchecked: {readable} could be read, {} of {} bytes were checked",
            report.damage, report.unchecked, report.checked_bytes, report.file_bytes
        )
    };
    if let Some(clue) = &report.order_clue {
        summary += &format!("; {clue}");
    }
    if report.warnings > 0 {
        summary += &format!("; {}", count(report.warnings, "warning"));
    }
    let mut lines = vec![summary];
    lines.extend(report.findings.iter().map(|finding| {
        // A finding about the whole file is a sentence, so it needs no section.
        if finding.section() == Section::Footer && !verified.is_table {
            format!("{}: {}", finding.severity(), finding.found())
        } else {
            finding.to_string()
        }
    }));
    if let left_out @ 1.. = report.left_out() {
        lines.push(format!("and {left_out} more"));
    }
    lines
}

/// Returns the record of a table.
fn to_json(verified: &Verified) -> Value {
    let report = &verified.report;
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
        "file": null,
        "sound": verified.is_sound(),
        "error": verified.difference,
        "keys": if report.keys == KeyKind::Database { "database" } else { "plain" },
        "order_known": !report.unknown_order,
        "entries": report.entries,
        "data_blocks": report.data_blocks,
        "file_bytes": report.file_bytes,
        "checked_bytes": report.checked_bytes,
        "damage": report.damage,
        "unchecked": report.unchecked,
        "warnings": report.warnings,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_left_out": report.left_out(),
    })
}
