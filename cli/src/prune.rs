//! `leveltable prune`: removes the tables that no set lists.

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
/// Looks under DIRECTORY for tables that no manifest there lists, as attempts leave them that failed and sets that were replaced, and
/// for what publishers leave that were killed. Reads every manifest there, and stops if one cannot be read, or lists a table
/// elsewhere. Removes nothing without --delete.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable prune s3://bucket/words
  leveltable prune s3://bucket/words --older-than 3d --delete

A table that is being built, or was not published yet, is not listed either: --older-than must be longer than that ever takes. \
Readers of a set that was replaced need its tables, too. Manifests above DIRECTORY are not seen: name the directory of them \
all.")]
pub(crate) struct Args {
    /// The directory or its URL
    directory: PathBuf,
    /// Take only what was last changed so long ago, such as 12h or 7d
    #[arg(long, value_name = "AGE", value_parser = parse_age, default_value = "7d")]
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
    rows.finish()?;
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

/// Parses an age: a number of seconds, minutes, hours or days.
fn parse_age(text: &str) -> Result<Duration, String> {
    let wrong = || "an age is a number with s, m, h or d, such as 7d".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text
        .strip_suffix(unit)
        .and_then(|number| number.parse().ok())
        .ok_or_else(wrong)?;
    let seconds = number.checked_mul(seconds).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}
