//! `leveltable publish`: makes a set of tables.

use std::path::PathBuf;

use crate::Answer;
use crate::failure::Failure;
use crate::input::{Lines, standard_input};
use crate::output::{and_entries, count, report};
use crate::place::check_no_secret;
use crate::remote;
use crate::set::{Shard, entries_of};

/// Make a set of tables.
///
/// Opens all tables, then writes the manifest, which lists them, by one request: readers see the earlier set or the new one. If a table is
/// given as the record that `build --json` printed, only checks that it is unchanged. Fails if tables overlap, or are not under the
/// manifest's directory. Leaves out tables without entries.
///
/// `get`, `scan`, `splits`, `info` and `verify` accept MANIFEST like a table.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/publish.txt").trim_end())]
pub(crate) struct Args {
    /// The file or URL of the set
    manifest: PathBuf,
    /// The tables' files or URLs; - for lines of standard input, which are these or records
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// Replace the published set
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    check_no_secret(&args.manifest)?;
    let (mut tables, mut described) = (Vec::new(), Vec::new());
    for table in &args.tables {
        if table.as_os_str() == "-" {
            read_lines(&mut tables, &mut described)?;
        } else {
            tables.push(table.clone());
        }
    }
    if let Some(directory) = tables.iter().find(|table| table.is_dir()) {
        let what = "is a directory: name the tables, which must have plain keys";
        return Err(Failure::of(directory, what));
    }
    let shards = remote::publish(&args.manifest, &tables, described, args.force)?;
    let (tables, n) = (
        count(shards.len() as u64, "table"),
        and_entries(entries_of(&shards)),
    );
    let size = indicatif::BinaryBytes(shards.iter().map(|shard| shard.bytes).sum());
    report(&args.manifest, format!("{tables}{n}, {size}"));
    Ok(Answer::Yes)
}

/// Reads the names, or the records from `build --json`, on the lines of standard input. Empty lines are skipped.
fn read_lines(tables: &mut Vec<PathBuf>, described: &mut Vec<Shard>) -> Result<(), Failure> {
    let mut lines = Lines::new(standard_input(), false);
    let failed = |e| Failure::new(format!("reading standard input: {e}"));
    while lines.next().map_err(failed)? {
        let place = || format!("standard input, line {}", lines.number);
        let line = str::from_utf8(&lines.line).map_err(|_| {
            Failure::new("neither a table's name nor a record: not UTF-8").at(place())
        })?;
        if line.starts_with('{') {
            described.push(serde_json::from_str(line).map_err(|e| {
                let what = format!("no record of a table, as `build --json` prints it: {e}");
                Failure::new(what).at(place())
            })?);
        } else {
            tables.push(line.into());
        }
    }
    Ok(())
}
