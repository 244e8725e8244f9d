//! `leveltable compact`: writes the live entries of a database, with changes, to a new one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use leveltable::Compression;
use leveltable_database::{CompactOptions, compact_into};

use crate::Answer;
use crate::database::{self, order_beside};
use crate::failure::Failure;
use crate::input::{self, Input, Lines, parse_change};
use crate::interrupt;
use crate::notation::Notation;
use crate::output::{count, print};
use crate::path::shell_word;
use crate::replace::{check_directories, how_to_replace};
use crate::row::Bounds;
use crate::sort::KeyOrder;
use crate::write::{codecs, compression, report_leftovers};

/// Write the live entries of a database to a new one, which needs less space.
///
/// NEW is a directory, and appears only when it is complete and on disk. DIR is only read, without its lock. It keeps the newest value
/// of each key, and the database's comparator, codec, filter and table size. A damaged database is rejected.
///
/// Prints the commands that put NEW in the place of DIR. If a program has the database open, NEW holds its contents at one
/// moment, and later changes by the program would be lost: then no commands are printed, and the exit status is 1.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/compact.txt").trim_end())]
pub(crate) struct Args {
    /// The database's directory
    dir: PathBuf,
    /// The new directory
    new: PathBuf,
    /// Keep only keys that begin with PREFIX
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Keep only this key and those after it
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// Keep only keys before this one
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Keys in options are in hexadecimal
    #[arg(long)]
    hex: bool,
    /// JSON lines of changes, applied last: {"key", "value"} puts, {"key", "delete": true} deletes; - for standard
    /// input
    #[arg(long, value_name = "FILE")]
    changes: Option<PathBuf>,
    /// Compression of the blocks [default: that of the largest table]
    #[arg(long, value_parser = codecs())]
    codec: Option<Compression>,
    /// Compression level, if the codec has levels
    #[arg(
        long,
        value_name = "N",
        requires = "codec",
        allow_negative_numbers = true
    )]
    level: Option<i32>,
    /// Start even if less space is free than DIR takes
    #[arg(long)]
    ignore_space: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    check_directories(&args.dir, &args.new)?;
    let mut options = CompactOptions::new().database(database::options(false));
    let notation = Notation::of(args.hex, false);
    let key = |option: &str, written: &Option<OsString>| {
        let parse = |key: &OsString| {
            let parsed = notation.parse(key.as_encoded_bytes());
            parsed.map_err(|e| Failure::new(e).at(option))
        };
        written.as_ref().map(parse).transpose()
    };
    let (from, to) = (key("--from", &args.from)?, key("--to", &args.to)?);
    let is_part = args.prefix.is_some() || from.is_some() || to.is_some();
    if let Some(prefix) = key("--prefix", &args.prefix)? {
        options = options.prefix(prefix);
    } else if is_part {
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let bounds: Bounds = (from, to.map_or(Bound::Unbounded, Bound::Excluded));
        options = options.range(bounds);
    }
    if let Some(codec) = args.codec {
        options = options.compression(compression(codec, args.level)?);
    }
    if let Some(path) = &args.changes {
        let order = order_beside(&args.dir).unwrap_or(KeyOrder::Internal);
        options = options.changes(read_changes(path, order)?);
    }
    let compacted = interrupt::guard_directory(|guard| {
        let options = options.ignore_space(args.ignore_space).on_temporary(guard);
        compact_into(&args.dir, &args.new, options)
    })?;
    let (dir, new, built) = (&args.dir, &args.new, &compacted.built);
    let (entries, tables) = (count(built.entries, "entry"), count(built.tables, "table"));
    let mut lines = vec![
        format!("{}: {} bytes", dir.display(), compacted.bytes_before),
        format!(
            "{}: {} bytes, {entries} in {tables}",
            new.display(),
            built.bytes
        ),
    ];
    if compacted.has_writer {
        lines.push(format!(
            "A program has {} open, and what it writes is not in {}. Close it, delete {2}, and run this again.",
            dir.display(),
            new.display(),
            shell_word(new)
        ));
    } else {
        let what = if is_part { "this part" } else { "it" };
        lines.extend(how_to_replace(what, dir, new));
    }
    print(lines.join("\n") + "\n")?;
    report_leftovers(&built.leftovers);
    Ok(Answer::yes_if(!compacted.has_writer))
}

/// A key, and its new value, or `None` to delete it.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// Reads changes, and sorts them. If several have the same key, the last one counts.
fn read_changes(path: &Path, order: KeyOrder) -> Result<Vec<Change>, Failure> {
    let Input { reader, name, .. } = input::open(path)?;
    let mut lines = Lines::new(reader, false);
    let mut changes = BTreeMap::new();
    let failed = |e: std::io::Error| Failure::new(e.to_string()).at(&name);
    while lines.next().map_err(failed)? {
        let place = || format!("{name}, line {}", lines.number);
        let change = parse_change(&lines.line).map_err(|e| Failure::new(e).at(place()))?;
        changes.insert(change.0, change.1);
    }
    let mut changes: Vec<_> = changes.into_iter().collect();
    let order = order.of_user_keys();
    changes.sort_by(|(a, _), (b, _)| order.compare(a, b));
    Ok(changes)
}
