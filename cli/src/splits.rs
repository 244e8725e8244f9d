//! `leveltable splits`: the bounds of parts for workers that read one each.

use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::Bound;
use std::path::PathBuf;

use bytes::Bytes;
use serde_json::Value;

use crate::Answer;
use crate::failure::Failure;
use crate::notation::{Field, Notation, write_json};
use crate::open::{Keys, Opened, open_unfiltered};
use crate::output::Rows;
use crate::sort::KeyOrder;

/// Divide a table or a set into parts of about the same size.
///
/// A line has the options with which `scan` shows one part, quoted for a shell: `--from KEY --to KEY`. The first part begins
/// with the empty key, and the last has no --to. Every key lies in exactly one part. Parts begin and end where blocks do, so
/// there may be fewer than N. Only reads indexes; for a set with at least N tables, only the manifest.
///
/// For a set, a line also has `--set ID`, with which `scan` fails if another set has been published since.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/splits.txt").trim_end())]
pub(crate) struct Args {
    /// The table's file or URL, or the manifest of a set
    file: PathBuf,
    /// Maximum number of parts
    n: NonZeroUsize,
    /// Show keys in hexadecimal
    #[arg(long)]
    hex: bool,
    /// Show each part as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let (file, n) = (&args.file, args.n.get());
    let (set, parts) = match open_unfiltered(file, Keys::Auto)? {
        Opened::Set(set) => (Some(set.id()), set.splits(n)?),
        Opened::Database(_) => {
            let what = "a database: only a table or a set can be divided, such as one that `leveltable build` makes \
                        of what `leveltable scan` prints";
            return Err(Failure::of(file, what));
        }
        Opened::Table(table) if table.order != Some(KeyOrder::Bytewise) => {
            let what = "only a table of plain keys in byte order can be divided";
            return Err(Failure::of(file, what));
        }
        Opened::Table(table) => (None, table.table.splits(n)?),
    };
    let mut rows = Rows::new();
    for (lower, upper) in parts {
        let from = first(lower);
        // The next part begins where this one ends.
        let to = first(match upper {
            Bound::Included(key) => Bound::Excluded(key),
            Bound::Excluded(key) => Bound::Included(key),
            Bound::Unbounded => Bound::Unbounded,
        });
        rows.write(|out| {
            if args.json {
                let set = set.as_deref().map(|id| ("set", Field::Text(id)));
                let bounds = [("from", bound(&from)), ("to", bound(&to))];
                return write_json(bounds.into_iter().chain(set), args.hex, out);
            }
            // Some versions of `xargs` ignore an empty line.
            write!(out, "--from {}", quote(&from.unwrap_or_default(), args.hex))?;
            if let Some(to) = to {
                write!(out, " --to {}", quote(&to, args.hex))?;
            }
            if let Some(id) = &set {
                write!(out, " --set {id}")?;
            }
            // `xargs` would join a line that ends with a space to the next one.
            writeln!(out)
        })?;
    }
    rows.flush()?;
    Ok(Answer::Yes)
}

fn bound(key: &Option<Vec<u8>>) -> Field<'_> {
    key.as_deref()
        .map_or(Field::Json(Value::Null), Field::Bytes)
}

/// Returns the first possible key of a part with this lower bound, in byte order.
fn first(lower: Bound<Bytes>) -> Option<Vec<u8>> {
    match lower {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(key.to_vec()),
        Bound::Excluded(key) => Some([&key[..], b"\0"].concat()),
    }
}

/// Returns `key` in quotes that shells, `xargs` and Python's `shlex` understand.
fn quote(key: &[u8], hex: bool) -> String {
    let written = Notation::of(hex, false).text(key).replace('\'', r#"'"'"'"#);
    format!("'{written}'")
}
