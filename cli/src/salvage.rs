//! `leveltable salvage`: copies the readable part of a damaged table into a new one.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use leveltable::ErrorKind;
use leveltable::db::KeyKind;
use leveltable::repair::{IndexState, SalvageOptions, SalvageReport, salvage};

use crate::Answer;
use crate::failure::Failure;
use crate::interrupt;
use crate::open::{check_is_file, own_order};
use crate::output::{Rows, count, entries};
use crate::progress::Progress;
use crate::sort::KeyOrder;
use crate::write::{TableOptions, check_free, not_written};

/// Copy the readable part of a damaged table into a new table.
///
/// Finds the blocks through the index, or by searching the file if the index is damaged. Leaves out blocks with
/// wrong checksums and lists what is lost. Exits with status 1 if entries are lost or may be lost.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable salvage damaged.ldb rescued.ldb
  leveltable salvage db/000005.ldb 000005.ldb --filter bloom

To use a salvaged table in a LevelDB database, stop the database, replace the old table, and let LevelDB repair \
the database.")]
pub(crate) struct Args {
    /// The damaged table
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The new table
    out: PathBuf,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    table: TableOptions,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    if args.out.as_os_str() == "-" {
        return Err(Failure::new(
            "OUT must be a file, because the report goes to standard output: write ./- for a file named -",
        ));
    }
    check_is_file(&args.input)?;
    // Check this before asking for --force, which must not overwrite IN.
    if fs::canonicalize(&args.out).ok() == fs::canonicalize(&args.input).ok() {
        return Err(Failure::new(
            "IN and OUT are the same file: name another file for OUT, to keep the damaged table",
        ));
    }
    check_free(&args.out, args.force)?;
    match salvage_as(KeyOrder::Bytewise, args)? {
        Some(answer) => Ok(answer),
        None => salvage_as(KeyOrder::Internal, args)?.ok_or_else(|| {
            Failure::new("the keys are neither plain nor those of a database")
                .at(args.input.display())
        }),
    }
}

/// Salvages a table in this order. Returns `None` if its keys turn out to be in the other order.
fn salvage_as(order: KeyOrder, args: &Args) -> Result<Option<Answer>, Failure> {
    let named_in = |e: &dyn Display| Failure::new(e.to_string()).at(args.input.display());
    let file = File::open(&args.input).map_err(|e| named_in(&e))?;
    let options = args.table.write(order)?.replace_existing(args.force);
    let not_written = |e| not_written(e, &args.out);
    let mut builder = interrupt::create(&options, &args.out).map_err(not_written)?;
    let mut bar = Progress::bytes(file.metadata().ok().map(|metadata| metadata.len()));
    let keys = match order {
        KeyOrder::Bytewise => SalvageOptions::new(),
        KeyOrder::Internal => SalvageOptions::new().keys(KeyKind::Database),
    };
    let options = keys.progress(|progress| {
        // Salvaging passes over each byte twice.
        bar.set(progress.done / 2);
        ControlFlow::Continue(())
    });
    let salvaged = salvage(file, &mut builder, options);
    drop(bar);
    let report = match salvaged {
        Ok(report) => report,
        Err(e) if e.kind() == ErrorKind::DatabaseTable => return Ok(None),
        Err(e) if e.kind() == ErrorKind::Comparator => return Err(own_order(&args.input)),
        // Only OUT was opened by path, so an error with a path is about OUT.
        Err(e) if e.path().is_some() => return Err(not_written(e)),
        Err(e) => return Err(named_in(&e)),
    };
    if report.entries == 0 && !is_all(&report) {
        return Err(named_in(
            &"nothing to salvage: the file has no intact block of a table",
        ));
    }
    builder.finish().map_err(not_written)?;

    let mut rows = Rows::new();
    rows.write(|out| out.write_all(describe(order, args, &report).as_bytes()))?;
    rows.finish()?;
    Ok(Some(if is_all(&report) {
        Answer::Yes
    } else {
        Answer::No
    }))
}

/// Returns whether all entries that the table ever had were copied. That is known only if its index is intact.
fn is_all(report: &SalvageReport) -> bool {
    report.is_complete() && matches!(report.index, IndexState::Sound | IndexState::Found)
}

/// Returns a summary line and a line for each lost range.
fn describe(order: KeyOrder, args: &Args, report: &SalvageReport) -> String {
    let input = args.input.display();
    let SalvageReport {
        file_bytes,
        entries: n,
        data_blocks,
        entries_out_of_order,
        ..
    } = report;
    let mut text = format!(
        "{input}: {} of {} copied to {}",
        entries(*n),
        count(*data_blocks, "block"),
        args.out.display()
    );
    text += &if is_all(report) {
        ", nothing lost\n".to_owned()
    } else if report.is_complete() {
        ", everything that the file holds\n".to_owned()
    } else {
        format!(", {} of {file_bytes} bytes lost\n", report.lost_bytes())
    };
    match report.index {
        IndexState::Sound => {}
        IndexState::Found => {
            text += &format!(
                "{input}: the index was not where the footer says, but was found elsewhere\n"
            );
        }
        _ => {
            text += &format!(
                "{input}: the index is lost: blocks were found by searching the file, and others may be missing\n"
            );
        }
    }
    if *entries_out_of_order > 0 {
        text += &format!(
            "{input}: left out {}, which were out of order\n",
            entries(*entries_out_of_order)
        );
    }
    for lost in &report.lost {
        text += &format!(
            "{input}: lost bytes {} to {}",
            lost.range.start, lost.range.end
        );
        if let Some(n) = lost.entries {
            text += &format!(", {}", entries(n));
        }
        if let Some(key) = &lost.after {
            text += &format!(", after key {}", order.show(key));
        }
        if let Some(key) = &lost.before {
            text += &format!(", before key {}", order.show(key));
        }
        text += &format!(": {}\n", lost.reason);
    }
    text
}
