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
use crate::output::{Rows, count, entries, file_record};
use crate::place::{copy_if_remote, source};
use crate::progress::Progress;
use crate::remote::open_set;
use crate::set::{Set, entries_of};

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
    let mut rows = Rows::new();
    let worst = each_file(&expand(&args.files, args.apart)?, |path| {
        match open_set(path) {
            Ok(None) if is_database(path) => database::verify::check(path, args, &mut rows),
            Ok(Some(set)) => check_set(path, &*set, args, &mut rows),
            Ok(None) => check_table(path, || verify_file(path, args), args, &mut rows),
            // What is wrong with a damaged manifest is told as of any table.
            Err(failure) => {
                let verify = || match verify_file(path, args) {
                    Ok(verified) if !verified.is_sound() => Ok(verified),
                    _ => Err(failure),
                };
                check_table(path, verify, args, &mut rows)
            }
        }
    })?;
    rows.finish()?;
    Ok(worst)
}

/// What was found out about a table.
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

/// Prints what `verify` finds out about the table at `path`.
pub(crate) fn check_table(
    path: &Path,
    verify: impl FnOnce() -> Result<Verified, Failure>,
    args: &Args,
    rows: &mut Rows,
) -> Result<Answer, Failure> {
    let verified = verify();
    if args.json {
        rows.write(|out| writeln!(out, "{}", to_json(path, &verified)))?;
    }
    // What is buffered comes before the error that is about to be printed.
    rows.flush()?;
    let verified = verified?;
    if !args.json && !args.quiet {
        rows.write(|out| out.write_all(describe(path, &verified).as_bytes()))?;
    }
    Ok(verified.answer())
}

/// Checks each table of a set, and that it is the one that the set lists.
fn check_set(path: &Path, set: &dyn Set, args: &Args, rows: &mut Rows) -> Result<Answer, Failure> {
    let shards = set.shards();
    let worst = each_file(shards.iter().zip(set.copies()), |(shard, copy)| {
        let name = Path::new(&shard.path);
        let verify = || {
            let copy = copy?;
            let options = args.open_options(name);
            let mut verified = verify_source(copy.clone(), Some(shard.bytes), options)?;
            let n = verified.report.entries;
            if let Some(listed) = shard.entries.filter(|&listed| listed != n) {
                verified.difference = Some(format!("the set lists {}", entries(listed)));
            } else if verified.report.is_sound() {
                // All of it was checked before.
                let options = OpenOptions::new().no_filter().no_cache();
                let table = options.open_source(copy)?;
                let listed = [&shard.first_key, &shard.last_key];
                let show = |key: &[u8]| quoted(key, 60);
                verified.difference = other_ends(&table, listed, show, "the set lists")?;
            }
            Ok(verified)
        };
        check_table(name, verify, args, rows)
    })?;
    let is_sound = worst == Answer::Yes;
    if args.json {
        let record = json!({
            "sound": is_sound,
            "entries": entries_of(&shards),
            "error": (!is_sound).then_some("not all of its tables are sound and as listed"),
        });
        rows.write(|out| writeln!(out, "{}", file_record(path, &FIELDS, record)))?;
    } else if !args.quiet {
        let sound = if is_sound { "sound" } else { "not sound" };
        let tables = count(shards.len() as u64, "table");
        rows.write(|out| writeln!(out, "{}: {sound}: a set of {tables}", path.display()))?;
    }
    Ok(worst)
}

/// Returns how the first or the last key of a table differs from those that `who` says, as `show` writes keys: lookups would miss
/// others.
pub(crate) fn other_ends(
    table: &Table,
    listed: [&Vec<u8>; 2],
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
    let options = args.open_options(path);
    verify_source(source(path)?, size.ok(), options)
}

impl Args {
    /// Returns what is known of the keys of the table at `path`: their kind, and their order.
    fn open_options(&self, path: &Path) -> (Option<KeyKind>, OpenOptions) {
        let options = OpenOptions::new();
        if self.stored_order {
            return (self.keys.keys.named(), options.stored_order());
        }
        let known = order_beside(path).or_else(|| order_stated(path));
        match known.filter(|_| self.keys.keys == Keys::Auto) {
            Some(order) => (
                Some(KeyKind::Database),
                options.comparator(order.of_user_keys()),
            ),
            None => (self.keys.keys.named(), options),
        }
    }
}

/// Verifies the table of `size` bytes in `source`, whose keys are of this kind if one is given.
pub(crate) fn verify_source(
    source: Source,
    size: Option<u64>,
    (kind, open_options): (Option<KeyKind>, OpenOptions),
) -> Result<Verified, Failure> {
    let mut bar = Progress::bytes(size);
    let mut options = VerifyOptions::new().progress(|progress| {
        bar.set(progress.done);
        ControlFlow::Continue(())
    });
    if let Some(kind) = kind {
        options = options.keys(kind);
    }
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
    let file = path.display();
    let Verified {
        report,
        is_table,
        difference,
    } = verified;
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
    let mut footer = { report.findings.iter() }.filter(|f| f.section() == Section::Footer);
    // No finding says that there are blocks of a table all the same.
    if !is_table
        && *unchecked < 2
        && let Some(finding) = footer.next()
    {
        return format!("{file}: not a table: {}\n", finding.found());
    }
    let readable = format!("{} in {}", entries(*n), count(*data_blocks, "block"));
    let mut text = if let Some(difference) = difference {
        format!("{file}: not as listed: {readable}, {difference}")
    } else if report.is_sound() {
        format!("{file}: sound: {readable}")
    } else if report.blocks_are_sound() {
        format!("{file}: blocks sound, order not known: {readable}")
    } else {
        format!(
            "{file}: {damage} damaged, {unchecked} unchecked: {readable} could be read, {checked_bytes} of \
             {file_bytes} bytes were checked"
        )
    };
    if let Some(clue) = &report.order_clue {
        text += &format!("; {clue}");
    }
    if *warnings > 0 {
        text += &format!("; {}", count(*warnings, "warning"));
    }
    text.push('\n');
    for finding in &report.findings {
        text += &match finding.section() {
            // This finding is a sentence about the whole file, so it needs no section.
            Section::Footer if !*is_table => {
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

/// The fields of the record of a file. All are there in each record.
pub(crate) const FIELDS: [&str; 14] = [
    "sound",
    "keys",
    "order_known",
    "entries",
    "data_blocks",
    "file_bytes",
    "checked_bytes",
    "damage",
    "unchecked",
    "warnings",
    "notes",
    "findings",
    "findings_left_out",
    "error",
];

fn to_json(path: &Path, verified: &Result<Verified, Failure>) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "severity": finding.severity().to_string(),
            "section": finding.section().to_string(),
            "offset": finding.offset(),
            "expected": finding.expected(),
            "found": finding.found(),
        })
    };
    let record = match verified {
        Ok(verified @ Verified { report, .. }) => json!({
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
            "notes": report.notes,
            "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
            "findings_left_out": report.left_out(),
        }),
        Err(failure) => json!({ "error": failure.to_string() }),
    };
    file_record(path, &FIELDS, record)
}
