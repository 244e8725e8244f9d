//! `leveltable salvage`: copies the readable part of a damaged table into a new one.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leveltable::db::KeyKind;
use leveltable::{Destination, ErrorKind, OpenOptions, TableBuilder, WriteOptions};
use leveltable_repair::{IndexState, SalvageOptions, SalvageReport, salvage};

use crate::Answer;
use crate::database::{self, order_beside};
use crate::failure::Failure;
use crate::interrupt;
use crate::open::{AnyTable, Keys, KeysArg, check_is_file, is_manifest, open_as};
use crate::output::{Progress, and_entries, count, print};
use crate::path::{is_url, repair_command};
use crate::place::{check_order_of_arguments, holds_manifests, source};
use crate::remote::{download, file_at, name_in_store, upload};
use crate::sort::{KeyOrder, temporary_failure};
use crate::write::{TableOptions, check_out};

/// Copy the readable part of a damaged table into a new table.
///
/// Finds the blocks through the index, or by searching the file if the index is damaged. Leaves out blocks with
/// wrong checksums and lists what is lost. Exits with status 1 if entries are lost or may be lost.
///
/// If IN is a URL, the table is copied to a temporary file first. If OUT is a URL, the new table is made in a temporary file,
/// and then uploaded.
///
/// Except where options say otherwise, the copy is like IN: it has its codec and its filter, and blocks end where those of IN do. A
/// table in an order that is neither byte order nor a database's is not copied.
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
    /// From a database, also copy tables and logs that are not part of it: deleted entries may reappear
    #[arg(long)]
    pub(crate) unlisted: bool,
    #[command(flatten)]
    keys: KeysArg,
    #[command(flatten)]
    pub(crate) table: TableOptions,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let (input, out) = (&args.input, &args.out);
    if out.as_os_str() == "-" {
        return Err(Failure::new(
            "OUT must be a file, because the report goes to standard output: write ./- for a file named -",
        ));
    }
    check_order_of_arguments(out, input)?;
    if input.is_dir() && !holds_manifests(input) {
        return database::salvage::run(args);
    }
    check_is_file(input)?;
    // Check this before suggesting --force, which must not overwrite IN.
    if is_same_file(input, out) {
        return Err(Failure::new(
            "IN and OUT are the same file: name another file for OUT, to keep the damaged table",
        ));
    }
    if is_manifest(input).unwrap_or(false) {
        let what = "is the manifest of a set, which lists tables and holds none of their entries: salvage the tables, \
                    then publish them";
        return Err(Failure::of(input, what));
    }
    check_out(out, args.force)?;
    let (order, report) = copy_to_out(args)?;
    print(lines_of(input, &describe(order, out, &report)))?;
    Ok(Answer::yes_if(report.is_complete()))
}

fn copy_to_out(args: &Args) -> Result<(KeyOrder, SalvageReport), Failure> {
    let (input, out, keys) = (&args.input, &args.out, args.keys.keys);
    let first = first_order(input, keys);
    let options = |order| args.table.write(order);
    if is_url(out) {
        let (order, report, file) = copy_to_temporary(input, keys, first, options)?;
        upload(&file, out, args.force)?;
        return Ok((order, report));
    }
    let create = |order| {
        let options = options(order)?.replace_existing(args.force);
        Ok(interrupt::create(&options, out)?)
    };
    let (order, report, builder) = copy(input, keys, first, create, |e| match e.path() {
        // The path is that of OUT, because IN has been opened as a file.
        Some(_) => e.into(),
        None => Failure::from(e).at(input.display()),
    })?;
    builder.finish()?;
    Ok((order, report))
}

/// Copies the readable part of the table at `path` to a table in a temporary file. The file has no name, so it cannot be left
/// on disk.
fn copy_to_temporary(
    path: &Path,
    keys: Keys,
    first: KeyOrder,
    options: impl Fn(KeyOrder) -> Result<WriteOptions, Failure>,
) -> Result<(KeyOrder, SalvageReport, File), Failure> {
    let fail =
        |e: &dyn Display| temporary_failure("copying the readable part", e).at(path.display());
    let file = tempfile::tempfile().map_err(|e| fail(&e))?;
    let create = |order| {
        let mut file = &file;
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        emptied.map_err(|e| fail(&e))?;
        Ok(options(order)?.build(file))
    };
    let (order, report, builder) = copy(path, keys, first, create, |e| fail(&e))?;
    builder.finish().map_err(|e| fail(&e))?;
    Ok((order, report, file))
}

/// Returns whether `input`, which exists, is the file or the object at `out`.
fn is_same_file(input: &Path, out: &Path) -> bool {
    let name = |path: &Path| match file_at(path) {
        Some(file) => fs::canonicalize(file).ok(),
        None => name_in_store(path).ok(),
    };
    name(input).is_some_and(|input| name(out) == Some(input))
}

/// Returns the order that the database of the table at `path` names, or that `keys` imply.
fn first_order(path: &Path, keys: Keys) -> KeyOrder {
    match keys.named() {
        Some(kind) => KeyOrder::of(kind == KeyKind::Database),
        None => order_beside(path).unwrap_or(KeyOrder::Bytewise),
    }
}

/// Copies the readable part of the table at `path` to a builder from `create`, which the caller finishes. Tries this order
/// first, then others. Fails if nothing was copied, unless the table is empty.
///
/// An object in a store is copied to a temporary file first, because salvaging reads it many times and in any order.
fn copy<D: Destination>(
    path: &Path,
    keys: Keys,
    first: KeyOrder,
    create: impl Fn(KeyOrder) -> Result<TableBuilder<D>, Failure>,
    failed: impl Fn(leveltable::Error) -> Failure,
) -> Result<(KeyOrder, SalvageReport, TableBuilder<D>), Failure> {
    let fail = |e: io::Error| Failure::of(path, e);
    let file = if is_url(path) {
        download(path)?
    } else {
        File::open(path).map_err(fail)?
    };
    let others = [KeyOrder::Internal, KeyOrder::IndexedDb];
    let mut others = others.into_iter().filter(|other| *other != first);
    let (mut order, mut refused) = (first, None);
    loop {
        let mut builder = create(order)?;
        let mut bar = Progress::bytes(file.metadata().ok().map(|metadata| metadata.len()));
        let mut options = SalvageOptions::new().progress(|progress| {
            // Salvaging reads each byte twice.
            bar.set(progress.done / 2);
            ControlFlow::Continue(())
        });
        let is_database = order.is_database().then_some(KeyKind::Database);
        if let Some(kind) = is_database.or(keys.named()) {
            options = options.keys(kind);
        }
        match salvage(file.try_clone().map_err(fail)?, &mut builder, options) {
            Ok(report) if report.entries == 0 && !report.is_complete() => {
                return Err(nothing_to_salvage(path));
            }
            Ok(report) => return Ok((order, report, builder)),
            Err(e) => {
                let is_database = e.kind() == ErrorKind::DatabaseTable && keys == Keys::Auto
                    || e.kind() == ErrorKind::Comparator && order.is_database();
                if let Some(other) = others.next().filter(|_| is_database) {
                    order = other;
                    // The error names an order that was tried: of a database's two, the likelier one.
                    refused = refused.or(Some(e).filter(|e| e.kind() == ErrorKind::Comparator));
                } else {
                    return Err(failed(without_comparator(refused.unwrap_or(e))));
                }
            }
        }
    }
}

/// Returns the error with the tool's hint, if it is about an order that the tool does not know.
fn without_comparator(error: leveltable::Error) -> leveltable::Error {
    if error.kind() != ErrorKind::Comparator || error.hint().is_none() {
        return error;
    }
    error.with_hint(
        "only a program that has its comparator can copy it, by `salvage` of leveltable-repair",
    )
}

fn nothing_to_salvage(path: &Path) -> Failure {
    let options = OpenOptions::new().no_filter().no_cache();
    match source(path).and_then(|source| options.open_source(source)) {
        // The error says which kind of file it is.
        Err(e) if e.kind() == ErrorKind::NotATable => e.into(),
        _ => {
            let what = "nothing to salvage: the file has no intact block of a table";
            let command = repair_command(path).map(|command| format!("; {command}"));
            Failure::of(path, format!("{what}{}", command.unwrap_or_default()))
        }
    }
}

/// The part of a damaged table that `scan --skip-damaged` shows.
pub(crate) struct Rescued {
    pub(crate) table: AnyTable,
    /// A line for each part of the file that was left out.
    pub(crate) left_out: Vec<String>,
}

/// Copies the readable part of the table at `path`, which is in `order` if one is given, to a temporary table.
pub(crate) fn rescue(path: &Path, keys: Keys, order: Option<KeyOrder>) -> Result<Rescued, Failure> {
    let first = order.unwrap_or_else(|| first_order(path, keys));
    let options = WriteOptions::new().no_filter();
    let options = |order: KeyOrder| Ok(options.clone().comparator(order.comparator()));
    let (order, report, file) = copy_to_temporary(path, keys, first, options)?;
    let is_database = order.is_database() && keys != Keys::Stored;
    let options = OpenOptions::new().no_cache().no_filter();
    let table = open_as(is_database, Some(order), file, &options);
    let table = table.map_err(|e| Failure::from(e).at(path.display()))?;
    let mut left_out: Vec<String> = describe_lost(order, &report).collect();
    if report.index == IndexState::Lost {
        left_out.push("the index is damaged: other blocks may be missing".into());
    }
    let stated = describe_stated(&report);
    left_out.extend(stated.map(|stated| format!("other blocks may be missing: {stated}")));
    Ok(Rescued { table, left_out })
}

/// Returns lines about the file at `path`.
pub(crate) fn lines_of(path: &Path, lines: &[String]) -> String {
    let path = path.display();
    let lines = lines.iter().map(|line| format!("{path}: {line}\n"));
    lines.collect()
}

/// Returns a summary and a line for each lost range.
fn describe(order: KeyOrder, out: &Path, report: &SalvageReport) -> Vec<String> {
    let fate = if report.is_complete() {
        "nothing lost".to_owned()
    } else if !report.lost.is_empty() {
        let lost = report.lost_bytes();
        format!("{lost} of {} bytes lost", report.file_bytes)
    } else if report.is_as_stated() {
        "everything that the file holds".to_owned()
    } else {
        "fewer than the table had".to_owned()
    };
    let copied = in_blocks("of", report.entries, report.data_blocks);
    let mut lines = vec![format!("{copied} copied to {}, {fate}", out.display())];
    let index = match report.index {
        IndexState::Sound => None,
        IndexState::Found => {
            Some("the index was not where the footer says, but was found elsewhere")
        }
        _ => Some(
            "the index is lost: blocks were found by searching the file, and others may be missing",
        ),
    };
    lines.extend(index.map(str::to_owned));
    lines.extend(describe_stated(report));
    lines.extend(describe_lost(order, report).map(|lost| format!("lost {lost}")));
    lines
}

/// Returns the numbers of entries and blocks, such as `3 entries of 1 block`.
pub(crate) fn in_blocks(of: &str, entries: u64, blocks: u64) -> String {
    let (entries, blocks) = (count(entries, "entry"), count(blocks, "block"));
    format!("{entries} {of} {blocks}")
}

/// Returns the counts in the table's properties, if they differ from what was copied.
fn describe_stated(report: &SalvageReport) -> Option<String> {
    let stated = in_blocks("in", report.stated_entries?, report.stated_data_blocks?);
    (!report.is_as_stated()).then(|| format!("the table's properties state {stated}"))
}

fn describe_lost(order: KeyOrder, report: &SalvageReport) -> impl Iterator<Item = String> {
    report.lost.iter().map(move |lost| {
        let Range { start, end } = lost.range;
        let n = and_entries(lost.entries);
        let key = |which: &str, key: &Option<Bytes>| {
            let key = key.as_ref().map(|key| order.show(key));
            key.map_or_else(String::new, |key| format!(", {which} key {key}"))
        };
        let (after, before) = (key("after", &lost.after), key("before", &lost.before));
        format!("bytes {start} to {end}{n}{after}{before}: {}", lost.reason)
    })
}
