//! `leveltable info`: describes the parts of a table's file.

mod absent_keys;
mod database;
mod record;
mod set;
mod table;
mod text;

use std::path::{Path, PathBuf};

use leveltable::{ErrorKind, OpenOptions, Section};

use crate::Answer;
use crate::database::{note_part, open_beside};
use crate::failure::{Failure, with_remedies};
use crate::open::{
    AnyTable, Keys, KeysArg, Opened, SHOWN_AS_STORED, note_unknown_order, open_any,
    open_in_stored_order, open_with,
};
use crate::output::{BOLD, complain, print};
use crate::place::{each_file, expand};
use record::Described;
use table::{Fault, Wanted};

/// Show the sections, keys and filter of tables.
///
/// For a directory with CURRENT, which is a database, shows the order, the logs and the files: live, missing, obsolete, or not
/// listed.
///
/// Reads the metadata of a table; for the first and the last key also their blocks, if the properties do not have them. With --full, reads
/// the whole file twice, the first time to check the order of the keys: counts entries, measures codecs and the filter's false-positive
/// rate, and lists blocks that cannot be read. Exits with status 1 if something that was read is damaged.
///
/// If the keys are neither in byte order nor in a database's, shows everything but the filter.
#[derive(clap::Args)]
#[command(after_help = include_str!("help/info.txt").trim_end())]
pub(crate) struct Args {
    /// Tables' files or URLs, databases, manifests of sets, or directories of tables
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// In a database, describe the tables one by one
    #[arg(long = "files")]
    apart: bool,
    #[command(flatten)]
    keys: KeysArg,
    /// Read all data blocks, to measure entries, codecs and filter
    #[arg(long)]
    full: bool,
    /// Also list the data blocks; implies --full
    #[arg(long)]
    blocks: bool,
    /// Print a JSON object for each file
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    let mut is_first = true;
    each_file(&expand(&args.files, args.apart)?, |path| {
        let described = describe(path, args, is_first);
        is_first = false;
        if let (true, Err(failure @ Failure::Message(_))) = (args.json, &described) {
            print(Described::default().json(path, Some(failure.to_string())))?;
        }
        described
    })
}

fn describe(path: &Path, args: &Args, is_first: bool) -> Result<Answer, Failure> {
    let wanted = Wanted {
        keys: args.keys.keys,
        full: args.full || args.blocks,
        blocks: args.blocks,
    };
    if !args.apart {
        note_part(path);
    }
    let mut fault = None;
    let opened = open_any(path, false, || {
        open_with_filter(path, wanted.keys, wanted.full, &mut fault)
    });
    let (opened, held) = match opened {
        Err(failure) => match open_beside(path) {
            Some(db) => (Opened::Database(db), Some(failure)),
            None => return Err(failure),
        },
        Ok(opened) => (opened, None),
    };
    let described = match opened {
        Opened::Table(mut table) => {
            // In a large table, a wrong order shows only when a block is read.
            let is_another = |e: leveltable::Error| e.kind() == ErrorKind::Comparator;
            if table.order.is_some()
                && !wanted.full
                && table::ends(&table.table).is_err_and(is_another)
            {
                table = open_in_stored_order(path, table.database.is_some())?;
            }
            if table.order.is_none() {
                note_unknown_order(path, wanted.keys, SHOWN_AS_STORED);
            }
            table::describe(&table, fault, path, wanted)?
        }
        Opened::Database(db) => database::describe(&db)?,
        Opened::Set(set) => set::describe(set.shards(), args.blocks),
    };
    if args.json {
        let error = held.as_ref().map(Failure::to_string);
        print(described.json(path, error))?;
    } else {
        let (gap, file) = (if is_first { "" } else { "\n" }, path.display());
        let lines = described.lines.join("\n");
        print(format!("{gap}{BOLD}{file}{BOLD:#}\n{lines}\n"))?;
    }
    for fault in &described.unreadable {
        complain("unreadable", fault);
    }
    if let Some(failure) = held {
        complain("error", &failure.to_string());
        return Ok(Answer::Unknown);
    }
    Ok(Answer::yes_if(described.unreadable.is_empty()))
}

/// Opens the table with its filter, and checks the order of all its keys if `is_full`. If filter, metaindex (which leads to it) or
/// properties are damaged, opens it without filters, and `fault` is the damage; with damaged data, the order is that of the index.
fn open_with_filter(
    path: &Path,
    keys: Keys,
    is_full: bool,
    fault: &mut Fault,
) -> leveltable::Result<AnyTable> {
    let options = match fault {
        None => OpenOptions::new(),
        Some(_) => OpenOptions::new().no_filter(),
    };
    open_with(path, keys, options, is_full).or_else(|e| {
        let section = e.corruption().map(|corruption| corruption.section);
        match section {
            Some(section @ (Section::Filter | Section::Metaindex | Section::Properties))
                if fault.is_none() =>
            {
                *fault = Some((section, with_remedies(&e)));
                open_with_filter(path, keys, is_full, fault)
            }
            Some(_) if is_full => open_with_filter(path, keys, false, fault),
            _ => Err(e),
        }
    })
}
