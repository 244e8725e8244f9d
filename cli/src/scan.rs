//! `leveltable scan`: the entries of a table, or some of them.

use std::ffi::OsString;
use std::ops::Bound;

use crate::Answer;
use crate::failure::Failure;
use crate::notation::{Notation, NotationArgs};
use crate::open::{Bounds, Keys, TableArgs};
use crate::output::Rows;

/// Show entries, in order, a line each.
///
/// A line is `key<TAB>value`, in a database's table `key<TAB>sequence<TAB>type<TAB>value`. Reads on only while
/// somebody takes the lines.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable scan 000005.ldb | head               the first entries
  leveltable scan 000005.ldb --reverse --limit 1  the last entry
  leveltable scan 000005.ldb --prefix user: --keys-only
  leveltable scan 000005.ldb --from b --to d      keys that begin with b or c
  leveltable scan 000005.ldb --json | jq -r .key

Damage ends it with status 2 after the entries in front; `leveltable salvage` has those behind, too.

In JSON, bytes that are not UTF-8 appear as key_hex and value_hex in place of key and value; \
with --hex, all do.")]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// Begin with this key, or the first one behind it
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// End before this key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Only keys that begin so
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// From the last entry to the first
    #[arg(long, short)]
    reverse: bool,
    /// At most so many entries
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
    /// Leave the values out
    #[arg(long, short)]
    keys_only: bool,
    #[command(flatten)]
    notation: NotationArgs,
    /// A JSON object a line
    #[arg(long, conflicts_with = "raw")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let notation = args.notation.shown();
    let bounds = bounds(args)?;
    let table = args.table.open()?;
    let rows = table.rows(bounds);
    let rows: Box<dyn Iterator<Item = _>> = match args.reverse {
        true => Box::new(rows.rev()),
        false => rows,
    };
    let mut out = Rows::new();
    for row in rows.take(args.limit.unwrap_or(usize::MAX)) {
        let row = row?;
        out.write(|out| match args.json {
            true => row.write_json(notation == Notation::Hex, args.keys_only, out),
            false => row.write_line(notation, args.keys_only, out),
        })?;
    }
    out.finish()?;
    Ok(Answer::Yes)
}

/// The keys that lie within all of `--from`, `--to` and `--prefix`.
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
            "--prefix does not go with --keys stored, in whose order keys of one prefix need not lie together",
        ));
    }
    let behind_prefix = prefix.as_deref().and_then(behind);
    // `None` is before all keys here, and behind all keys there.
    let lower = from.max(prefix);
    let upper = match (to, behind_prefix) {
        (Some(to), Some(behind)) => Some(to.min(behind)),
        (to, behind) => to.or(behind),
    };
    Ok((
        lower.map_or(Bound::Unbounded, Bound::Included),
        upper.map_or(Bound::Unbounded, Bound::Excluded),
    ))
}

/// The first key behind all that begin with `prefix`, if any key is.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut behind = prefix.get(..=at)?.to_vec();
    *behind.last_mut()? += 1;
    Some(behind)
}
