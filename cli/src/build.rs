//! `leveltable build`: a table from lines of text.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use leveltable::{Destination, ErrorKind, TableBuilder};

use crate::Answer;
use crate::failure::Failure;
use crate::input::{Entries, Format};
use crate::interrupt;
use crate::notation::Notation;
use crate::progress::Progress;
use crate::sort::{KeyOrder, Sorter};
use crate::write::{TableOptions, check_free, not_written, parse_size, report};

/// Build a table from lines of text.
///
/// A line is `key<TAB>value`, with escapes, or a JSON object as `scan --json` writes it. The table appears
/// at OUT when it is whole and on disk, or not at all.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  printf 'apple\\tred\\nbanana\\tyellow\\n' | leveltable build fruit.ldb
  leveltable build words.ldb words.tsv --sort
  leveltable scan old.ldb --json | leveltable build new.ldb --codec zstd
  leveltable scan db/000005.ldb | leveltable build --database new.ldb
  leveltable build - < sorted.tsv > table.ldb

Keys must ascend, byte by byte, as `LC_ALL=C sort` has them; --sort brings them in order, in \
temporary files where they are more than memory takes. Empty lines are skipped. A \
carriage return at the end of a line belongs to the line end (with --raw, to the value): write one in a value as \\r.

What a pipe brings is built even where the command before it fails half-way, which only `set -o pipefail` shows \
in the status. To copy a damaged table, use `leveltable salvage`.

A build that is interrupted leaves OUT as it was; one that is killed perhaps also a file \
.leveltable-*.tmp beside it, which can be deleted.")]
pub(crate) struct Args {
    /// Where the table is to be; - for standard output
    out: PathBuf,
    /// The lines; - for standard input
    #[arg(value_name = "IN", default_value = "-")]
    input: PathBuf,
    /// Replace OUT if it is there
    #[arg(long)]
    force: bool,
    /// Where there are no entries, build a table without any
    #[arg(long, help_heading = "Input")]
    allow_empty: bool,
    /// How a line holds an entry
    #[arg(long, value_enum, default_value_t = Format::Auto, value_name = "FORMAT", help_heading = "Input")]
    format: Format,
    /// Sort the entries first
    #[arg(long, help_heading = "Input")]
    sort: bool,
    /// Of several entries of one key take the last, instead of refusing them
    #[arg(long, requires = "sort", help_heading = "Input")]
    keep_last: bool,
    /// Memory to sort in; beyond, temporary files are used
    #[arg(long, requires = "sort", value_parser = parse_size, default_value = "256M", value_name = "SIZE",
        help_heading = "Input")]
    sort_memory: usize,
    /// Build a table of a LevelDB database: entries have a sequence number and a type, too
    #[arg(long, help_heading = "Input")]
    database: bool,
    /// Keys and values in lines with tabs are in hexadecimal
    #[arg(long, help_heading = "Input")]
    hex: bool,
    /// Keys and values in lines with tabs have no escapes: a backslash is one
    #[arg(long, conflicts_with = "hex", help_heading = "Input")]
    raw: bool,
    #[command(flatten)]
    table: TableOptions,
}

impl Args {
    fn is_to_stdout(&self) -> bool {
        self.out.as_os_str() == "-"
    }

    /// Writing the table failed.
    fn failure(&self, error: leveltable::Error) -> Failure {
        match self.is_to_stdout() {
            true => Failure::from(error).at("standard output"),
            false => not_written(error, &self.out),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let options = args.table.write(order(args))?;
    let notation = match (args.hex, args.raw) {
        (true, _) => Notation::Hex,
        (_, true) => Notation::Raw,
        _ => Notation::Text,
    };
    let to_stdout = args.is_to_stdout();
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::new(
            "a table is no text for a terminal: send it to a file",
        ));
    }
    if !to_stdout {
        check_free(&args.out, args.force)?;
    }
    let entries = Entries::open(&args.input, args.format, notation, args.database)?;
    let summary = match to_stdout {
        true => {
            let mut builder = options.build(io::stdout().lock());
            fill(&mut builder, entries, args)
                .and_then(|()| builder.finish().map_err(|e| args.failure(e)))
        }
        false => {
            let options = options.replace_existing(args.force);
            let mut builder =
                interrupt::create(&options, &args.out).map_err(|e| args.failure(e))?;
            fill(&mut builder, entries, args)
                .and_then(|()| builder.finish().map_err(|e| args.failure(e)))
        }
    }?;
    report(&args.out, &summary);
    Ok(Answer::Yes)
}

/// Adds all entries to the table.
fn fill<D: Destination>(
    builder: &mut TableBuilder<D>,
    mut entries: Entries,
    args: &Args,
) -> Result<(), Failure> {
    let mut progress = Progress::bytes(entries.size);
    let (mut key, mut value, mut previous) = (Vec::new(), Vec::new(), Vec::new());
    let mut sorter =
        (args.sort).then(|| Sorter::new(order(args), args.keep_last, args.sort_memory));
    let mut is_empty = true;
    while entries.next(&mut key, &mut value)? {
        progress.set(entries.position());
        match &mut sorter {
            Some(sorter) => sorter.add(&key, &value)?,
            None => builder.add(&key, &value).map_err(|e| match e.kind() {
                ErrorKind::OutOfOrder => {
                    Failure::new(out_of_order(order(args), &previous, &key)).at(entries.place())
                }
                ErrorKind::TooLarge => Failure::from(e).at(entries.place()),
                _ => args.failure(e),
            })?,
        }
        std::mem::swap(&mut key, &mut previous);
        is_empty = false;
    }
    if is_empty && !args.allow_empty {
        // More often than not, what should have written them has failed.
        let what = "no entries: give --allow-empty for a table without any";
        return Err(Failure::new(what).at(entries.name()));
    }
    match sorter {
        Some(sorter) => {
            sorter.drain(|key, value| builder.add(key, value).map_err(|e| args.failure(e)))
        }
        None => Ok(()),
    }
}

#[cold]
fn out_of_order(order: KeyOrder, previous: &[u8], key: &[u8]) -> String {
    let shown = order.show(key);
    match key == previous {
        true => format!("key {shown} is there twice: remove one, or give --sort --keep-last"),
        false => format!(
            "key {shown} comes before {}, which is in front of it: sort the lines, or give --sort",
            order.show(previous)
        ),
    }
}

fn order(args: &Args) -> KeyOrder {
    match args.database {
        true => KeyOrder::Internal,
        false => KeyOrder::Bytewise,
    }
}
