//! `leveltable get`: prints the value of one key.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

use crate::Answer;
use crate::failure::Failure;
use crate::notation::{Notation, NotationArgs, quoted};
use crate::open::{AnyTable, Row, TableArgs};
use crate::output::{Rows, complain};
use leveltable::db::{MAX_SEQUENCE, ValueType};

/// Show the value of a key.
///
/// Shows the newest version if it is a table of a database. Exits with status 1 if the key is absent or deleted,
/// and with status 2 if damage makes the answer unknown.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable get 000005.ldb user:17
  leveltable get 000005.ldb 'b\\x00\\x00\\x01'       a key of arbitrary bytes
  leveltable get 000005.ldb --hex 62000001        the same, in hexadecimal
  leveltable get 000005.ldb thumbnail --raw > thumbnail.png")]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// The key, as text with escapes
    key: OsString,
    /// The value as of this sequence number, in a table of a database
    #[arg(long, value_name = "SEQUENCE")]
    at: Option<u64>,
    #[command(flatten)]
    notation: NotationArgs,
    /// Show the entry as a JSON object
    #[arg(long, conflicts_with = "raw")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let notation = args.notation.shown();
    let key = args.notation.parse_key("KEY", &args.key)?;
    let table = args.table.open()?;
    let Some(row) = find(&table, &key, args.at)? else {
        return Ok(no("not found", args, &key));
    };
    let deleted_at = row
        .tag
        .filter(|&(_, value_type)| value_type == ValueType::Deletion);
    let mut rows = Rows::new();
    match deleted_at {
        _ if args.json => {
            rows.write(|out| row.write_json(notation == Notation::Hex, false, out))?;
        }
        Some(_) => {}
        None => rows.write(|out| {
            notation.write(&row.value, out)?;
            match notation {
                Notation::Raw => Ok(()),
                _ => out.write_all(b"\n"),
            }
        })?,
    }
    rows.finish()?;
    Ok(match deleted_at {
        Some((sequence, _)) => no(&format!("deleted at sequence {sequence}"), args, &key),
        None => Answer::Yes,
    })
}

/// Returns the entry of `key`. In a table of a database that is its newest entry not newer than `at`.
fn find(table: &AnyTable, key: &[u8], at: Option<u64>) -> Result<Option<Row>, Failure> {
    match table {
        AnyTable::Plain(_) if at.is_some() => Err(Failure::new(
            "--at needs a table of a database: the keys of this table have no sequence numbers",
        )),
        AnyTable::Plain(table) => Ok(table.get(key)?.map(|value| Row {
            key: key.to_vec().into(),
            tag: None,
            value,
        })),
        AnyTable::Database(table) => {
            let at = at.unwrap_or(MAX_SEQUENCE);
            // The entries of a key are sorted from new to old.
            let bounds = (Bound::Included(key), Bound::Included(key));
            for entry in table.range(bounds) {
                let entry = entry?;
                if entry.sequence <= at {
                    return Ok(Some(entry.into()));
                }
            }
            Ok(None)
        }
    }
}

/// Prints to standard error that `key` has no value.
fn no(what: &str, args: &Args, key: &[u8]) -> Answer {
    let file = args.table.file.display();
    complain(what, &format!("key {} in {file}", quoted(key, 100)));
    Answer::No
}
