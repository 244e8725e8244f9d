//! `leveltable scan`: prints the entries of a table, or a range of them.

use std::ffi::OsString;
use std::ops::Bound;

use crate::Answer;
use crate::failure::Failure;
use crate::notation::{Notation, NotationArgs};
use crate::open::{Bounds, Keys, TableArgs};
use crate::output::Rows;

/// Show entries in order, one a line.
///
/// A line is `key<TAB>value`, or `key<TAB>sequence<TAB>type<TAB>value` in a table of a database. Stops reading
/// when its output is closed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable scan 000005.ldb | head               the first entries
  leveltable scan 000005.ldb --reverse --limit 1  the last entry
  leveltable scan 000005.ldb --prefix user: --keys-only
  leveltable scan 000005.ldb --from b --to d      keys that begin with b or c
  leveltable scan 000005.ldb --json | jq -r .key

If a block is damaged, scan prints the entries before it and exits with status 2. `leveltable salvage` also \
copies those after it.

In JSON, a key or value that is not UTF-8 appears as key_hex or value_hex; with --hex, all of them do.")]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Start at this key, or at the first key after it
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// Stop before this key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Show only keys that begin with PREFIX
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// Show entries from the last to the first
    #[arg(long, short)]
    reverse: bool,
    /// Show at most N entries
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
    /// Leave out the values
    #[arg(long, short)]
    keys_only: bool,
    #[command(flatten)]
    notation: NotationArgs,
    /// Show each entry as a JSON object
    #[arg(long, conflicts_with = "raw")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let notation = args.notation.shown();
    let bounds = bounds(args)?;
    let table = args.table.open()?;
    let rows = table.rows(bounds);
    let rows: Box<dyn Iterator<Item = _>> = if args.reverse {
        Box::new(rows.rev())
    } else {
        rows
    };
    let mut out = Rows::new();
    for row in rows.take(args.limit.unwrap_or(usize::MAX)) {
        let row = row?;
        out.write(|out| {
            if args.json {
                row.write_json(notation == Notation::Hex, args.keys_only, out)
            } else {
                row.write_line(notation, args.keys_only, out)
            }
        })?;
    }
    out.finish()?;
    Ok(Answer::Yes)
}

/// Returns the intersection of `--from`, `--to` and `--prefix`.
fn bounds(args: &Args) -> Result<Bounds, Failure> {
    let key = |option: &str, written: &Option<OsString>| {
        let written = written.as_ref();
        let key = written.map(|written| args.notation.parse_key(option, written));
        key.transpose()
    };
    let (from, to) = (key("--from", &args.from)?, key("--to", &args.to)?);
    let prefix = key("--prefix", &args.prefix)?;
    if prefix.is_some() && args.table.keys == Keys::Stored {
        return Err(Failure::new(
            "--prefix cannot be used with --keys stored: keys with the same prefix may be apart in that order",
        ));
    }
    let after_prefix = prefix.as_deref().and_then(after);
    // `None` sorts before all keys, which is right for `max` here, but not for `min` below.
    let lower = from.max(prefix);
    let upper = match (to, after_prefix) {
        (Some(to), Some(after)) => Some(to.min(after)),
        (to, after) => to.or(after),
    };
    Ok((
        lower.map_or(Bound::Unbounded, Bound::Included),
        upper.map_or(Bound::Unbounded, Bound::Excluded),
    ))
}

/// Returns the first key after all keys that begin with `prefix`, if there is one.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut after = prefix.get(..=at)?.to_vec();
    *after.last_mut()? += 1;
    Some(after)
}
