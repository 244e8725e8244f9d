//! `leveltable prune`: removes tables that no set lists.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::Answer;
use crate::failure::Failure;
use crate::output::{Rows, complain, count};
use crate::place::check_url;
use crate::remote;

/// List, or remove, tables that no set lists.
///
/// Looks under DIRECTORY for tables that no manifest there lists, left by failed attempts and replaced sets, and for leftovers of
/// killed publishers. Reads every manifest there, and stops if one cannot be read, or lists a table elsewhere. Removes nothing
/// without --delete.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/prune.txt").trim_end())]
pub(crate) struct Args {
    /// The directory or its URL
    directory: PathBuf,
    /// Only include objects last modified at least this long ago, such as 12h or 7d
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration, default_value = "7d")]
    older_than: Duration,
    /// Remove them
    #[arg(long)]
    delete: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    check_url(&args.directory)?;
    let found = remote::prune(&args.directory, args.older_than, args.delete)?;
    let mut rows = Rows::new();
    for (name, _) in &found {
        rows.write(|out| writeln!(out, "{name}"))?;
    }
    rows.flush()?;
    let bytes: u64 = found.iter().map(|(_, bytes)| bytes).sum();
    let objects = count(found.len() as u64, "object");
    let size = indicatif::BinaryBytes(bytes);
    let done = if args.delete {
        "removed"
    } else {
        "not removed without --delete"
    };
    complain("note", &format!("{objects}, {size}: {done}"));
    Ok(Answer::Yes)
}
