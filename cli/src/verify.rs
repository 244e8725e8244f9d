//! `leveltable verify`: checks tables and lists everything that is wrong with them.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use leveltable::db::KeyKind;
use leveltable::repair::{Finding, VerifyOptions, VerifyReport, verify};
use leveltable::{ErrorKind, OpenOptions, Section, Source, Table};
use serde_json::{Value, json};

use crate::Answer;
use crate::database::{self, is_database, order_beside};
use crate::failure::Failure;
use crate::files::{each_file, expand};
use crate::notation::quoted;
use crate::open::{Keys, KeysArg, check_is_file, order_stated};
use crate::output::{Rows, count, entries};
use crate::place::{copy_if_remote, source};
use crate::progress::Progress;
use crate::remote::open_set;
use crate::set::{Set, Shard, entries_of};
use crate::sort::KeyOrder;

/// Check whether tables are sound.
///
/// Reads the whole of each file; of a directory, that of each table in it; of a set, that of each table that it lists; of a directory
/// with CURRENT, which is a database, that of the MANIFEST, of the logs and of each listed table, which must be as listed.
/// Checks checksums, structure, the order of the keys, the index, and each key against the filter, and lists everything
/// that is wrong. Exits with status 1 if a file is damaged, is not a table or could not be checked completely, with status 2
/// if a file is unreadable, and with status 3 if nothing is wrong, but the order of the keys is not known.
///
/// A table of a set must also be the one that was published, and have as many entries and the first and the last key that the
/// set lists.
///
/// The order is not known if the keys are neither in byte order nor in that of a database. Everything else is then checked.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/verify.txt").trim_end())]
pub(crate) struct Args {
    /// Tables' files or URLs, databases, manifests of sets, or directories of tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Of a database, check all tables one by one, and nothing else
    #[arg(long = "files")]
    apart: bool,
    #[command(flatten)]
    keys: KeysArg,
    /// The keys are in an order of their own: do not check it
    #[arg(long)]
    stored_order: bool,
    /// Print errors only, and report findings by the exit status
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Print a JSON object for each file
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let mut report = Report {
        args,
        rows: Rows::new(),
    };
    let worst = each_file(&expand(&args.files, args.apart)?, |path| {
        match open_set(path) {
            Ok(None) if is_database(path) => database::verify::check(path, &mut report),
            Ok(Some(set)) => check_set(path, &*set, &mut report),
            Ok(None) => report.table(path, verify_file(path, args)),
            // What is wrong with a damaged manifest is told as of any table.
            Err(failure) => {
                let verified = verify_file(path, args).ok();
                let damaged = verified.filter(|verified| !verified.is_sound());
                report.table(path, damaged.ok_or(failure))
            }
        }
    })?;
    report.rows.flush()?;
    Ok(worst)
}

/// Prints what is found out.
pub(crate) struct Report<'a> {
    args: &'a Args,
    rows: Rows,
}

impl Report<'_> {
    /// Prints what was found out about the table at `path`.
    pub(crate) fn table(
        &mut self,
        path: &Path,
        verified: Result<Verified, Failure>,
    ) -> Result<Answer, Failure> {
        let error = verified
            .as_ref()
            .err()
            .map(|failure| json!({"error": failure.to_string()}));
        self.record(path, verified.as_ref().ok(), error)?;
        // What is buffered comes before the error that is about to be printed.
        self.rows.flush()?;
        let verified = verified?;
        self.text(|| describe(path, &verified))?;
        Ok(verified.answer())
    }

    /// Prints what was found out about a set or a database, or that a file of it is missing. The record has these fields, too.
    pub(crate) fn whole(
        &mut self,
        path: &Path,
        answer: Answer,
        what: &str,
        mut fields: Value,
    ) -> Result<Answer, Failure> {
        let is_sound = answer == Answer::Yes;
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("sound".into(), is_sound.into());
            if is_sound {
                fields.insert("error".into(), Value::Null);
            }
        }
        self.record(path, None, Some(fields))?;
        let sound = if is_sound { "sound" } else { "not sound" };
        self.text(|| format!("{}: {sound}: {what}\n", path.display()))?;
        Ok(answer)
    }

    fn record(
        &mut self,
        path: &Path,
        verified: Option<&Verified>,
        fields: Option<Value>,
    ) -> Result<(), Failure> {
        if !self.args.json {
            return Ok(());
        }
        let mut record = to_json(verified);
        let fields = fields.as_ref().and_then(Value::as_object);
        if let Some(record) = record.as_object_mut() {
            record.insert("file".into(), path.to_string_lossy().into());
            let fields = fields.into_iter().flatten();
            record.extend(fields.map(|(name, value)| (name.clone(), value.clone())));
        }
        self.rows.write(|out| writeln!(out, "{record}"))
    }

    fn text(&mut self, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.args.json || self.args.quiet {
            return Ok(());
        }
        self.rows.write(|out| out.write_all(text().as_bytes()))
    }
}

/// What was found out about a table.
#[derive(Default)]
pub(crate) struct Verified {
    pub(crate) report: VerifyReport,
    /// Whether the file has the footer of a table.
    is_table: bool,
    /// How it differs from what its set or database lists.
    pub(crate) difference: Option<String>,
}

impl Verified {
    pub(crate) fn is_sound(&self) -> bool {
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

/// Checks each table of a set, and that it is the one that the set lists.
fn check_set(path: &Path, set: &dyn Set, report: &mut Report<'_>) -> Result<Answer, Failure> {
    let shards = set.shards();
    let worst = each_file(shards.iter().zip(set.copies()), |(shard, copy)| {
        let name = Path::new(&shard.path);
        let verified = copy.map_err(Failure::from);
        let options = report.args.open_options(name);
        let verified = verified.and_then(|copy| check_shard(shard, copy, options));
        report.table(name, verified)
    })?;
    let error = "not all of its tables are sound and as listed";
    let fields = json!({"entries": entries_of(&shards), "error": error});
    let tables = count(shards.len() as u64, "table");
    report.whole(path, worst, &format!("a set of {tables}"), fields)
}

fn check_shard(shard: &Shard, copy: Source, options: Known) -> Result<Verified, Failure> {
    let mut verified = verify_source(copy.clone(), Some(shard.bytes), options)?;
    let n = verified.report.entries;
    if let Some(listed) = shard.entries.filter(|&listed| listed != n) {
        verified.difference = Some(format!("the set lists {}", entries(listed)));
    } else if verified.report.is_sound() {
        // All of it was checked before.
        let options = OpenOptions::new().no_filter().no_cache();
        let table = options.open_source(copy)?;
        let listed = [&shard.first_key.key[..], &shard.last_key.key];
        let show = |key: &[u8]| quoted(key, 60);
        verified.difference = other_ends(&table, listed, show, "the set lists")?;
    }
    Ok(verified)
}

/// Returns how the first or the last key of a table differs from those that `who` says, as `show` writes keys: lookups would miss
/// others.
pub(crate) fn other_ends(
    table: &Table,
    listed: [&[u8]; 2],
    show: impl Fn(&[u8]) -> String,
    who: &str,
) -> Result<Option<String>, Failure> {
    let ends = [("first", table.first()?), ("last", table.last()?)];
    for ((which, end), listed) in ends.into_iter().zip(listed) {
        let found = end.map(|(key, _)| key);
        if found.as_ref().is_none_or(|key| key != listed) {
            let found = found.map_or_else(|| "none".to_owned(), |key| show(&key));
            let listed = show(listed);
            return Ok(Some(format!(
                "its {which} key is {found}, and {who} {listed}"
            )));
        }
    }
    Ok(None)
}

fn verify_file(path: &Path, args: &Args) -> Result<Verified, Failure> {
    check_is_file(path)?;
    copy_if_remote(path)?;
    let size = fs::metadata(path).map(|metadata| metadata.len());
    verify_source(source(path)?, size.ok(), args.open_options(path))
}

impl Args {
    /// Returns what is known of the keys of the table at `path`.
    fn open_options(&self, path: &Path) -> Known {
        let (kind, options) = (self.keys.keys.named(), OpenOptions::new());
        if self.stored_order {
            return (kind, options.stored_order());
        }
        let known = order_beside(path).or_else(|| order_stated(path));
        match known.filter(|_| self.keys.keys == Keys::Auto) {
            Some(order) => known_order(Some(order)),
            None => (kind, options),
        }
    }
}

/// What is known of the keys of a table: their kind, and their order.
type Known = (Option<KeyKind>, OpenOptions);

/// Returns what is known of the keys of a table of a database in this order, or in one that is none of those that are known.
pub(crate) fn known_order(order: Option<KeyOrder>) -> Known {
    let options = OpenOptions::new();
    let options = match order {
        Some(order) => options.comparator(order.of_user_keys()),
        None => options.stored_order(),
    };
    (Some(KeyKind::Database), options)
}

/// Verifies the table of `size` bytes in `source`.
pub(crate) fn verify_source(
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

/// Returns a summary line and a line for each finding.
fn describe(path: &Path, verified: &Verified) -> String {
    let (file, report) = (path.display(), &verified.report);
    let mut footer = { report.findings.iter() }.filter(|f| f.section() == Section::Footer);
    // No finding says that there are blocks of a table all the same.
    if !verified.is_table
        && report.unchecked < 2
        && let Some(finding) = footer.next()
    {
        return format!("{file}: not a table: {}\n", finding.found());
    }
    let blocks = count(report.data_blocks, "block");
    let readable = format!("{} in {blocks}", entries(report.entries));
    let mut text = if let Some(difference) = &verified.difference {
        format!("{file}: not as listed: {readable}, {difference}")
    } else if report.is_sound() {
        format!("{file}: sound: {readable}")
    } else if report.blocks_are_sound() {
        format!("{file}: blocks sound, order not known: {readable}")
    } else {
        format!(
            "{file}: {} damaged, {} unchecked: {readable} could be read, {} of {} bytes were checked",
            report.damage, report.unchecked, report.checked_bytes, report.file_bytes
        )
    };
    if let Some(clue) = &report.order_clue {
        text += &format!("; {clue}");
    }
    if report.warnings > 0 {
        text += &format!("; {}", count(report.warnings, "warning"));
    }
    text.push('\n');
    for finding in &report.findings {
        text += &match finding.section() {
            // This finding is a sentence about the whole file, so it needs no section.
            Section::Footer if !verified.is_table => {
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

/// Returns the record of a table. Of what is not known, all fields are null, so that every record has the same.
fn to_json(verified: Option<&Verified>) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "severity": finding.severity().to_string(),
            "section": finding.section().to_string(),
            "offset": finding.offset(),
            "expected": finding.expected(),
            "found": finding.found(),
        })
    };
    let empty = Verified::default();
    let verified_or_empty = verified.unwrap_or(&empty);
    let report = &verified_or_empty.report;
    let mut record = json!({
        "file": null,
        "sound": verified_or_empty.is_sound(),
        "error": verified_or_empty.difference,
        "keys": if report.keys == KeyKind::Database { "database" } else { "plain" },
        "order_known": !report.unknown_order,
        "entries": report.entries,
        "data_blocks": report.data_blocks,
        "file_bytes": report.file_bytes,
        "checked_bytes": report.checked_bytes,
        "damage": report.damage,
        "unchecked": report.unchecked,
        "warnings": report.warnings,
        "notes": report.notes,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_left_out": report.left_out(),
    });
    if let (None, Some(fields)) = (verified, record.as_object_mut()) {
        fields.values_mut().for_each(|value| *value = Value::Null);
    }
    record
}
