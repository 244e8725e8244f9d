//! `leveltable publish`: makes tables one set.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use crate::Answer;
use crate::failure::Failure;
use crate::output::{count, entries};
use crate::place::check_no_secret;
use crate::remote;

/// Make tables one set.
///
/// Opens all tables, then writes the manifest, which lists them, by one request: readers see the set that was there before, or the
/// new one. Fails if tables have keys in common, or lie elsewhere than under the manifest's directory. Leaves out tables
/// without entries.
///
/// `get`, `scan`, `splits`, `info` and `verify` take MANIFEST as they take a table.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/publish.txt").trim_end())]
pub(crate) struct Args {
    /// The file or URL of the set
    manifest: PathBuf,
    /// The tables' files or URLs; - for lines of standard input
    #[arg(required = true, value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// Replace the set that is published there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    check_no_secret(&args.manifest)?;
    let mut tables = Vec::new();
    for table in &args.tables {
        if table.as_os_str() == "-" {
            read_names(&mut tables)?;
        } else {
            tables.push(table.clone());
        }
    }
    for table in &tables {
        check_no_secret(table)?;
    }
    let published = remote::publish(&args.manifest, &tables, args.force)?;
    if io::stderr().is_terminal() {
        let manifest = args.manifest.display();
        let tables = count(published.shards as u64, "table");
        let n = published
            .entries
            .map(|n| format!(", {}", entries(n)))
            .unwrap_or_default();
        let size = indicatif::BinaryBytes(published.bytes);
        anstream::eprintln!("{manifest}: {tables}{n}, {size}");
    }
    Ok(Answer::Yes)
}

/// Reads the names on the lines of standard input. Empty lines are skipped.
fn read_names(tables: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|e| Failure::new(format!("reading standard input: {e}")))?;
        let name = line.trim_end_matches('\r');
        if !name.is_empty() {
            tables.push(Path::new(name).to_owned());
        }
    }
    Ok(())
}
