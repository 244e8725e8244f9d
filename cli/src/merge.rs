//! `leveltable merge`: merges several tables into one.

use std::path::{Path, PathBuf};

use leveltable::TableRange;

use crate::Answer;
use crate::failure::Failure;
use crate::open::{Keys, KeysArg, Opened, open_unfiltered};
use crate::place::{check_order_of_arguments, copy_if_remote, expand};
use crate::sort::{KeyOrder, merge};
use crate::write::{TableOptions, check_out, write_table};

/// Merge tables into a new one.
///
/// OUT has the entries of all tables, in order, and appears only when it is complete and on disk. For tables of a database, it
/// has all versions of each key. Memory does not grow with the size of the tables.
///
/// Fails if two tables have the same key, or in a database the same version, unless --keep-last says that the table named
/// last counts.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/merge.txt").trim_end())]
pub(crate) struct Args {
    /// The new table's file or URL; - for standard output
    out: PathBuf,
    /// The tables' files or URLs, or directories of tables
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// If several entries have the same key, take that of the last table
    #[arg(long)]
    keep_last: bool,
    #[command(flatten)]
    keys: KeysArg,
    #[command(flatten)]
    table: TableOptions,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    for input in &args.inputs {
        check_order_of_arguments(&args.out, input)?;
    }
    check_out(&args.out, args.force)?;
    let mut order = None;
    let mut inputs = Vec::new();
    for path in expand(&args.inputs, true)? {
        let (range, own) = open(&path, args.keys.keys)?;
        if *order.get_or_insert(own) != own {
            let what = "not of the same kind as the tables before, plain or of a database, or in another order";
            return Err(Failure::of(&path, what));
        }
        inputs.push(range);
    }
    let order = order.unwrap_or(KeyOrder::Bytewise);
    let options = args.table.write(order)?;
    write_table(&args.out, args.force, &options, |add| {
        merge(order, args.keep_last, inputs, add)
    })?;
    Ok(Answer::Yes)
}

/// Opens the table at `path` with its stored keys. Also returns their order.
fn open(path: &Path, keys: Keys) -> Result<(TableRange, KeyOrder), Failure> {
    copy_if_remote(path)?;
    let Opened::Table(table) = open_unfiltered(path, keys)? else {
        return Err(Failure::of(path, "not a single table: name its tables"));
    };
    let order = table.order.ok_or_else(|| {
        let what = "the keys are in an order of their own, in which tables cannot be merged";
        Failure::of(path, what)
    })?;
    Ok((table.table.iter(), order))
}
