//! `leveltable salvage`: copies the readable part of a damaged table into a new one.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

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
use crate::output::{Rows, count, entries};
use crate::place::{check_order_of_arguments, check_url, is_url, source};
use crate::progress::Progress;
use crate::remote::{download, file_at, holds_manifests, is_same_object, upload};
use crate::sort::{KeyOrder, temporary_failure};
use crate::write::{TableOptions, check_free, not_written};

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
    let (attempt, report) = if is_url(&args.out) {
        salvage_to_url(args)?
    } else {
        salvage_to_file(args)?
    };
    if attempt.stored {
        note_unknown_order(
            &args.input,
            args.keys.keys,
            "copied in the order in which they are stored",
        );
    }
    let mut rows = Rows::new();
    rows.write(|out| out.write_all(describe(attempt.order, args, &report).as_bytes()))?;
    rows.finish()?;
    Ok(if report.is_complete() {
        Answer::Yes
    } else {
        Answer::No
    })
}

fn salvage_to_file(args: &Args) -> Result<(Attempt, SalvageReport), Failure> {
    check_free(&args.out, args.force)?;
    let create = |attempt: Attempt| {
        let table = args.table.write(attempt.order, attempt.stored)?;
        interrupt::create(&table.replace_existing(args.force), &args.out)
            .map_err(|e| not_written(e, &args.out))
    };
    let failed = |e: leveltable::Error| match e.path() {
        // The path is that of OUT, because IN was opened as a file.
        Some(_) => not_written(e, &args.out),
        None => Failure::from(e).at(args.input.display()),
    };
    let file = file_of(&args.input)?;
    let first = Attempt::first(&args.input, args.keys.keys, args.stored_order);
    let salvaged = salvage_file(&file, args.keys.keys, first, create, failed)?;
    let (attempt, report, builder) = salvaged.check(&args.input)?;
    builder.finish().map_err(|e| not_written(e, &args.out))?;
    Ok((attempt, report))
}

fn salvage_to_url(args: &Args) -> Result<(Attempt, SalvageReport), Failure> {
    check_free(&args.out, args.force)?;
    let write = |attempt: Attempt| args.table.write(attempt.order, attempt.stored);
    let (attempt, report, file) = salvage_to_temporary(
        &args.input,
        args.keys.keys,
        Attempt::first(&args.input, args.keys.keys, args.stored_order),
        write,
    )?;
    upload(&file, &args.out, args.force).map_err(|e| not_written(e, &args.out))?;
    Ok((attempt, report))
}

/// Copies the readable part of the table at `path` to a table in a temporary file. The file has no name, so it cannot be left
/// on disk.
fn salvage_to_temporary(
    path: &Path,
    keys: Keys,
    first: Attempt,
    options: impl Fn(Attempt) -> Result<WriteOptions, Failure>,
) -> Result<(Attempt, SalvageReport, File), Failure> {
    let fail =
        |e: &dyn Display| temporary_failure("copying the readable part", e).at(path.display());
    let file = tempfile::tempfile().map_err(|e| fail(&e))?;
    let create = |attempt: Attempt| {
        let mut file = &file;
        file.set_len(0).map_err(|e| fail(&e))?;
        file.rewind().map_err(|e| fail(&e))?;
        Ok(options(attempt)?.build(file))
    };
    let salvaged = salvage_file(&file_of(path)?, keys, first, create, |e| fail(&e))?;
    let (attempt, report, builder) = salvaged.check(path)?;
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
    let file = |path: &Path| fs::canonicalize(file_at(path).as_deref().unwrap_or(path));
    match (file(input), file(out)) {
        (Ok(input), Ok(out)) => input == out,
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

/// What was copied, in which order, to a builder that is not finished.
struct Salvaged<B> {
    attempt: Attempt,
    report: SalvageReport,
    builder: B,
}

impl<B> Salvaged<B> {
    /// Fails if nothing was copied of the table at `path`, which is not empty.
    fn check(self, path: &Path) -> Result<(Attempt, SalvageReport, B), Failure> {
        if self.report.entries == 0 && !self.report.is_complete() {
            let options = OpenOptions::new().no_filter().no_cache();
            let opened = source(path).and_then(|source| options.open_source(source));
            // Another kind of file is named.
            if let Err(e) = opened.map(drop)
                && e.kind() == ErrorKind::NotATable
            {
                return Err(e.into());
            }
            let what = "nothing to salvage: the file has no intact block of a table";
            return Err(Failure::new(what).at(path.display()));
        }
        Ok((self.attempt, self.report, self.builder))
    }
}

/// Salvages the table in `file` to a builder that `create` makes. Tries the order that `keys` implies, then the stored
/// one.
fn salvage_file<B: SalvageTarget>(
    file: &File,
    keys: Keys,
    mut attempt: Attempt,
    mut create: impl FnMut(Attempt) -> Result<B, Failure>,
    failed: impl Fn(leveltable::Error) -> Failure,
) -> Result<Salvaged<B>, Failure> {
    loop {
        let mut builder = create(attempt)?;
        match salvage_in(attempt, file, keys, &mut builder) {
            // Started anew, for a table without a filter, which may not fit the order.
            Ok(report) if report.stored_order && !attempt.stored => attempt.stored = true,
            Ok(report) => {
                attempt.stored = report.stored_order;
                return Ok(Salvaged {
                    attempt,
                    report,
                    builder,
                });
            }
            Err(e) => match (e.kind(), attempt) {
                (
                    ErrorKind::DatabaseTable,
                    Attempt {
                        order: KeyOrder::Bytewise,
                        ..
                    },
                ) if keys == Keys::Auto => attempt.order = KeyOrder::Internal,
                (ErrorKind::Comparator, Attempt { stored: false, .. }) => attempt.stored = true,
                _ => return Err(failed(e)),
            },
        }
    }
}

fn salvage_in(
    attempt: Attempt,
    file: &File,
    keys: Keys,
    builder: &mut impl SalvageTarget,
) -> leveltable::Result<SalvageReport> {
    let own = file.try_clone();
    let file = own.map_err(|e| leveltable::Error::io("opening the file once more", e))?;
    let mut bar = Progress::bytes(file.metadata().ok().map(|metadata| metadata.len()));
    let mut options = SalvageOptions::new().progress(|progress| {
        // Salvaging passes over each byte twice.
        bar.set(progress.done / 2);
        ControlFlow::Continue(())
    });
    let kind = match attempt.order {
        KeyOrder::Bytewise => keys.named(),
        _ => Some(KeyKind::Database),
    };
    if let Some(kind) = kind {
        options = options.keys(kind);
    }
    if attempt.stored {
        options = options.stored_order();
    }
    salvage(file, builder, options)
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
    let write = |attempt: Attempt| Ok(attempt.order.write(WriteOptions::new().no_filter()));
    let (attempt, report, file) = salvage_to_temporary(path, keys, first, write)?;
    let is_database = attempt.order.is_database() && keys != Keys::Stored;
    let order = (!attempt.stored).then_some(attempt.order);
    let options = OpenOptions::new().no_cache().no_filter();
    let opened = open_as(is_database, order, file, options);
    let mut left_out: Vec<String> = report
        .lost
        .iter()
        .map(|lost| describe_lost(attempt.order, lost))
        .collect();
    if !matches!(report.index, IndexState::Sound | IndexState::Found) {
        left_out.push("the index is damaged: other blocks may be missing".into());
    }
    if report.entries_out_of_order > 0 {
        let n = entries(report.entries_out_of_order);
        left_out.push(format!("{n}, which were out of order"));
    }
    if let Some(stated) = describe_stated(&report) {
        left_out.push(format!("other blocks may be missing: {stated}"));
    }
    Ok(Rescued {
        table: opened.map_err(|e| Failure::from(e).at(path.display()))?,
        left_out,
    })
}

/// Returns a summary line and a line for each lost range.
fn describe(order: KeyOrder, args: &Args, report: &SalvageReport) -> String {
    let input = args.input.display();
    let SalvageReport {
        file_bytes,
        entries: n,
        data_blocks,
        entries_out_of_order,
        ..
    } = report;
    let mut text = format!(
        "{input}: {} of {} copied to {}",
        entries(*n),
        count(*data_blocks, "block"),
        args.out.display()
    );
    text += &if report.is_complete() {
        ", nothing lost\n".to_owned()
    } else if report.lost.is_empty() && report.is_as_stated() {
        ", everything that the file holds\n".to_owned()
    } else if report.lost.is_empty() {
        ", fewer than the table had\n".to_owned()
    } else {
        format!(", {} of {file_bytes} bytes lost\n", report.lost_bytes())
    };
    match report.index {
        IndexState::Sound => {}
        IndexState::Found => {
            text += &format!(
                "{input}: the index was not where the footer says, but was found elsewhere\n"
            );
        }
        _ => {
            text += &format!(
                "{input}: the index is lost: blocks were found by searching the file, and others may be missing\n"
            );
        }
    }
    if let Some(stated) = describe_stated(report) {
        text += &format!("{input}: {stated}\n");
    }
    if *entries_out_of_order > 0 {
        text += &format!(
            "{input}: left out {}, which were out of order\n",
            entries(*entries_out_of_order)
        );
    }
    for range in &report.uncertain {
        text += &format!(
            "{input}: bytes {} to {} may be no block of the table: they may have been stored in a value of a damaged one\n",
            range.start, range.end
        );
    }
    for lost in &report.lost {
        text += &format!("{input}: lost {}\n", describe_lost(order, lost));
    }
    text
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
    let mut text = format!("bytes {} to {}", lost.range.start, lost.range.end);
    if let Some(n) = lost.entries {
        text += &format!(", {}", entries(n));
    }
    if let Some(key) = &lost.after {
        text += &format!(", after key {}", order.show(key));
    }
    if let Some(key) = &lost.before {
        text += &format!(", before key {}", order.show(key));
    }
    text + &format!(": {}", lost.reason)
}
