//! `leveltable salvage`: copies the readable part of a damaged table into a new one.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::db::KeyKind;
use leveltable::repair::{
    IndexState, LostRange, SalvageOptions, SalvageReport, SalvageTarget, salvage,
};
use leveltable::{ErrorKind, OpenOptions, WriteOptions};

use crate::Answer;
use crate::database::{self, order_beside};
use crate::failure::Failure;
use crate::interrupt;
use crate::open::{
    AnyTable, Keys, KeysArg, check_is_file, is_manifest, note_unknown_order, open_as,
};
use crate::output::{and_entries, count, entries, print};
use crate::place::{check_order_of_arguments, check_url, is_url, source};
use crate::progress::Progress;
use crate::remote::{download, file_at, holds_manifests, is_same_object, upload};
use crate::sort::{KeyOrder, temporary_failure};
use crate::write::{TableOptions, check_free};

/// Copy the readable part of a damaged table into a new table.
///
/// Finds the blocks through the index, or by searching the file if the index is damaged. Leaves out blocks with
/// wrong checksums and lists what is lost. Exits with status 1 if entries are lost or may be lost.
///
/// A table in an object store, which IN names by its URL, is copied to a temporary file first. If OUT is a URL, the new table is
/// made in a temporary file, and then uploaded.
///
/// A table in an order that is neither byte order nor a database's is copied in the order in which it is stored, and
/// then has a filter only if --filter asks for one. The copy has the codec of IN unless --codec names another.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/salvage.txt").trim_end())]
pub(crate) struct Args {
    /// The damaged table's file or URL, or the directory of a database
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The new table's file or URL
    pub(crate) out: PathBuf,
    /// Replace OUT if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Of a database, copy tables and logs that are no part of it, too: what was deleted may appear again
    #[arg(long)]
    pub(crate) unlisted: bool,
    /// Copy blocks whose keys overlap, too, all in the order in which they are stored
    #[arg(long)]
    stored_order: bool,
    #[command(flatten)]
    keys: KeysArg,
    #[command(flatten)]
    pub(crate) table: TableOptions,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    if args.out.as_os_str() == "-" {
        return Err(Failure::new(
            "OUT must be a file, because the report goes to standard output: write ./- for a file named -",
        ));
    }
    check_url(&args.out)?;
    check_order_of_arguments(&args.out, &args.input)?;
    if args.input.is_dir() && !holds_manifests(&args.input) {
        return database::salvage::run(args);
    }
    check_is_file(&args.input)?;
    // Check this before asking for --force, which must not overwrite IN.
    if is_same_file(&args.input, &args.out) {
        return Err(Failure::new(
            "IN and OUT are the same file: name another file for OUT, to keep the damaged table",
        ));
    }
    if is_manifest(&args.input).unwrap_or(false) {
        let what = "is the manifest of a set, which lists tables and holds none of their entries: salvage the tables, \
                    then publish them";
        return Err(Failure::new(what).at(args.input.display()));
    }
    check_free(&args.out, args.force)?;
    let (attempt, report) = copy_to_out(args)?;
    if attempt.stored {
        let remedy = "copied in the order in which they are stored";
        note_unknown_order(&args.input, args.keys.keys, remedy);
    }
    print(describe(attempt.order, args, &report))?;
    Ok(Answer::yes_if(report.is_complete()))
}

fn copy_to_out(args: &Args) -> Result<(Attempt, SalvageReport), Failure> {
    let (input, keys) = (&args.input, args.keys.keys);
    let first = Attempt::first(input, keys, args.stored_order);
    let options = |attempt: Attempt| args.table.write(attempt.order, attempt.stored);
    if is_url(&args.out) {
        let (attempt, report, file) = copy_to_temporary(input, keys, first, options)?;
        upload(&file, &args.out, args.force)?;
        return Ok((attempt, report));
    }
    let create = |attempt| {
        let options = options(attempt)?.replace_existing(args.force);
        Ok(interrupt::create(&options, &args.out)?)
    };
    let (attempt, report, builder) = copy(input, keys, first, create, |e| match e.path() {
        // The path is that of OUT, because IN was opened as a file.
        Some(_) => e.into(),
        None => Failure::from(e).at(input.display()),
    })?;
    builder.finish()?;
    Ok((attempt, report))
}

/// Copies the readable part of the table at `path` to a table in a temporary file. The file has no name, so it cannot be left
/// on disk.
fn copy_to_temporary(
    path: &Path,
    keys: Keys,
    first: Attempt,
    options: impl Fn(Attempt) -> Result<WriteOptions, Failure>,
) -> Result<(Attempt, SalvageReport, File), Failure> {
    let fail =
        |e: &dyn Display| temporary_failure("copying the readable part", e).at(path.display());
    let file = tempfile::tempfile().map_err(|e| fail(&e))?;
    let create = |attempt| {
        let mut file = &file;
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        emptied.map_err(|e| fail(&e))?;
        Ok(options(attempt)?.build(file))
    };
    let (attempt, report, builder) = copy(path, keys, first, create, |e| fail(&e))?;
    builder.finish().map_err(|e| fail(&e))?;
    Ok((attempt, report, file))
}

/// Opens the table at `path`. An object in a store is copied to a temporary file first, because salvaging reads it many times and
/// in any order.
fn file_of(path: &Path) -> Result<File, Failure> {
    if is_url(path) {
        return Ok(download(path)?);
    }
    File::open(path).map_err(|e| Failure::new(e.to_string()).at(path.display()))
}

/// Returns whether `input`, which exists, is the file or the object at `out`.
fn is_same_file(input: &Path, out: &Path) -> bool {
    let file = |path: &Path| file_at(path).and_then(|file| fs::canonicalize(file).ok());
    match (file(input), file(out)) {
        (Some(input), Some(out)) => input == out,
        _ => is_url(input) && is_url(out) && is_same_object(input, out),
    }
}

/// The order in which salvage is tried.
#[derive(Clone, Copy)]
struct Attempt {
    order: KeyOrder,
    /// Copy the entries in the order in which they are stored, because they are not in `order`.
    stored: bool,
}

impl Attempt {
    /// Returns the first one for the table at `path`, in the order that its database names, or that `keys` imply.
    fn first(path: &Path, keys: Keys, stored: bool) -> Attempt {
        let named = order_beside(path).filter(|_| keys == Keys::Auto);
        let order = match keys.named() {
            Some(KeyKind::Database) => KeyOrder::Internal,
            _ => named.unwrap_or(KeyOrder::Bytewise),
        };
        Attempt { order, stored }
    }
}

/// Copies the readable part of the table at `path` to a builder that `create` makes, which is then to be finished. Tries the order of
/// `attempt`, then others. Fails if nothing was copied, unless the table is empty.
fn copy<B: SalvageTarget>(
    path: &Path,
    keys: Keys,
    mut attempt: Attempt,
    create: impl Fn(Attempt) -> Result<B, Failure>,
    failed: impl Fn(leveltable::Error) -> Failure,
) -> Result<(Attempt, SalvageReport, B), Failure> {
    let file = file_of(path)?;
    let fail = |e: io::Error| Failure::new(e.to_string()).at(path.display());
    loop {
        let mut builder = create(attempt)?;
        let mut bar = Progress::bytes(file.metadata().ok().map(|metadata| metadata.len()));
        let mut options = SalvageOptions::new().progress(|progress| {
            // Salvaging passes over each byte twice.
            bar.set(progress.done / 2);
            ControlFlow::Continue(())
        });
        let is_database = attempt.order.is_database().then_some(KeyKind::Database);
        if let Some(kind) = is_database.or(keys.named()) {
            options = options.keys(kind);
        }
        if attempt.stored {
            options = options.stored_order();
        }
        match salvage(file.try_clone().map_err(fail)?, &mut builder, options) {
            // Started anew, for a table without a filter, which may not fit the order.
            Ok(report) if report.stored_order && !attempt.stored => attempt.stored = true,
            Ok(report) => {
                if report.entries == 0 && !report.is_complete() {
                    return Err(nothing_to_salvage(path));
                }
                attempt.stored = report.stored_order;
                return Ok((attempt, report, builder));
            }
            Err(e) => match e.kind() {
                ErrorKind::DatabaseTable
                    if keys == Keys::Auto && attempt.order == KeyOrder::Bytewise =>
                {
                    attempt.order = KeyOrder::Internal;
                }
                ErrorKind::Comparator if !attempt.stored => attempt.stored = true,
                _ => return Err(failed(e)),
            },
        }
    }
}

fn nothing_to_salvage(path: &Path) -> Failure {
    let options = OpenOptions::new().no_filter().no_cache();
    match source(path).and_then(|source| options.open_source(source)) {
        // Another kind of file is named.
        Err(e) if e.kind() == ErrorKind::NotATable => e.into(),
        _ => {
            let what = "nothing to salvage: the file has no intact block of a table";
            Failure::new(what).at(path.display())
        }
    }
}

/// What `scan --skip-damaged` shows of a damaged table.
pub(crate) struct Rescued {
    pub(crate) table: AnyTable,
    /// A line for each part of the file that is left out.
    pub(crate) left_out: Vec<String>,
}

/// Copies the readable part of the table at `path`, which is in this order if one is given, to a temporary table.
pub(crate) fn rescue(path: &Path, keys: Keys, order: Option<KeyOrder>) -> Result<Rescued, Failure> {
    let mut first = Attempt::first(path, keys, false);
    first.order = order.unwrap_or(first.order);
    let options = WriteOptions::new().no_filter();
    let write = |attempt: Attempt| Ok(options.clone().comparator(attempt.order.comparator()));
    let (attempt, report, file) = copy_to_temporary(path, keys, first, write)?;
    let is_database = attempt.order.is_database() && keys != Keys::Stored;
    let order = (!attempt.stored).then_some(attempt.order);
    let options = OpenOptions::new().no_cache().no_filter();
    let opened = open_as(is_database, order, file, options);
    let lost = report.lost.iter();
    let mut left_out: Vec<String> = lost
        .map(|lost| describe_lost(attempt.order, lost))
        .collect();
    if !matches!(report.index, IndexState::Sound | IndexState::Found) {
        left_out.push("the index is damaged: other blocks may be missing".into());
    }
    left_out.extend(describe_out_of_order(&report));
    let stated = describe_stated(&report);
    left_out.extend(stated.map(|stated| format!("other blocks may be missing: {stated}")));
    Ok(Rescued {
        table: opened.map_err(|e| Failure::from(e).at(path.display()))?,
        left_out,
    })
}

/// Returns a summary line and a line for each lost range.
fn describe(order: KeyOrder, args: &Args, report: &SalvageReport) -> String {
    let fate = if report.is_complete() {
        "nothing lost".to_owned()
    } else if !report.lost.is_empty() {
        format!(
            "{} of {} bytes lost",
            report.lost_bytes(),
            report.file_bytes
        )
    } else if report.is_as_stated() {
        "everything that the file holds".to_owned()
    } else {
        "fewer than the table had".to_owned()
    };
    let (n, blocks) = (entries(report.entries), count(report.data_blocks, "block"));
    let mut lines = vec![format!(
        "{n} of {blocks} copied to {}, {fate}",
        args.out.display()
    )];
    match report.index {
        IndexState::Sound => {}
        IndexState::Found => {
            lines.push("the index was not where the footer says, but was found elsewhere".into())
        }
        _ => lines.push(
            "the index is lost: blocks were found by searching the file, and others may be missing"
                .into(),
        ),
    }
    lines.extend(describe_stated(report));
    lines.extend(describe_out_of_order(report).map(|left_out| format!("left out {left_out}")));
    lines.extend(report.uncertain.iter().map(|Range { start, end }| {
        format!(
            "bytes {start} to {end} may be no block of the table: they may have been stored in a value of a damaged one"
        )
    }));
    let lost = report.lost.iter();
    lines.extend(lost.map(|lost| format!("lost {}", describe_lost(order, lost))));
    let input = args.input.display();
    lines
        .iter()
        .map(|line| format!("{input}: {line}\n"))
        .collect()
}

fn describe_out_of_order(report: &SalvageReport) -> Option<String> {
    let n = report.entries_out_of_order;
    (n > 0).then(|| format!("{}, which were out of order", entries(n)))
}

/// Returns how much the table's properties state, if something else was copied.
fn describe_stated(report: &SalvageReport) -> Option<String> {
    let stated = (report.stated_entries?, report.stated_data_blocks?);
    (!report.is_as_stated()).then(|| {
        let blocks = count(stated.1, "block");
        format!(
            "the table's properties state {} in {blocks}",
            entries(stated.0)
        )
    })
}

fn describe_lost(order: KeyOrder, lost: &LostRange) -> String {
    let Range { start, end } = lost.range;
    let n = and_entries(lost.entries);
    let key = |which: &str, key: &Option<Bytes>| {
        let key = key
            .as_ref()
            .map(|key| format!(", {which} key {}", order.show(key)));
        key.unwrap_or_default()
    };
    let (after, before) = (key("after", &lost.after), key("before", &lost.before));
    format!("bytes {start} to {end}{n}{after}{before}: {}", lost.reason)
}
