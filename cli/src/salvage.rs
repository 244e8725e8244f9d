//! `leveltable salvage`: what can be read of a damaged table, in a new one.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use leveltable::{ErrorKind, IndexState, SalvageReport, salvage_with};

use crate::Answer;
use crate::failure::Failure;
use crate::interrupt;
use crate::open::{check_is_file, own_order};
use crate::output::{Rows, count, entries};
use crate::progress::Progress;
use crate::sort::KeyOrder;
use crate::write::{TableOptions, check_free, not_written};

/// Copy what can be read of a damaged table into a new one.
///
/// By the index where that is sound, by a search for whole blocks where it is not. Blocks whose checksums
/// are wrong are left out, and what was lost is listed. Ends with status 1 where something was, or may have
/// been.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leveltable salvage damaged.ldb rescued.ldb
  leveltable salvage db/000005.ldb 000005.ldb --filter bloom

For LevelDB to use a salvaged table in place of the old one, stop the database, move the table there, and let \
LevelDB repair the database.")]
pub(crate) struct Args {
    /// The damaged table
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file that the new one is to be
    out: PathBuf,
    /// Replace OUT if it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    table: TableOptions,
}

pub(crate) fn run(args: &Args) -> Result<Answer, Failure> {
    if args.out.as_os_str() == "-" {
        return Err(Failure::new(
            "OUT is to be a file, since standard output gets the report: name one (./- if it is to be called -)",
        ));
    }
    check_is_file(&args.input)?;
    // Before it is asked whether OUT may be replaced: this one may not.
    if fs::canonicalize(&args.out).ok() == fs::canonicalize(&args.input).ok() {
        return Err(Failure::new(
            "IN and OUT are the same file: name another, to keep the damaged one",
        ));
    }
    check_free(&args.out, args.force)?;
    match salvage_as(KeyOrder::Bytewise, args)? {
        Some(answer) => Ok(answer),
        None => salvage_as(KeyOrder::Internal, args)?.ok_or_else(|| {
            Failure::new("its keys are neither plain nor a database's").at(args.input.display())
        }),
    }
}

/// Salvages a table in this order. `None` where its keys are in the other.
fn salvage_as(order: KeyOrder, args: &Args) -> Result<Option<Answer>, Failure> {
    let named_in = |e: &dyn Display| Failure::new(e.to_string()).at(args.input.display());
    let file = File::open(&args.input).map_err(|e| named_in(&e))?;
    let options = args.table.write(order)?.replace_existing(args.force);
    let not_written = |e| not_written(e, &args.out);
    let mut builder = interrupt::create(&options, &args.out).map_err(not_written)?;
    let mut bar = Progress::bytes(file.metadata().ok().map(|metadata| metadata.len()));
    let salvaged = salvage_with(file, &mut builder, |progress| {
        // Each byte is dealt with twice; the bar has it once.
        bar.set(progress.done / 2);
        ControlFlow::Continue(())
    });
    drop(bar);
    let report = match salvaged {
        Ok(report) => report,
        Err(e) if e.kind() == ErrorKind::DatabaseTable => return Ok(None),
        Err(e) if e.kind() == ErrorKind::Comparator => return Err(own_order(&args.input)),
        // OUT was opened by its path, IN was not.
        Err(e) if e.path().is_some() => return Err(not_written(e)),
        Err(e) => return Err(named_in(&e)),
    };
    if report.entries == 0 && !is_all(&report) {
        return Err(named_in(
            &"nothing in it can be salvaged: it holds no whole block of a table",
        ));
    }
    builder.finish().map_err(not_written)?;

    let mut rows = Rows::new();
    rows.write(|out| out.write_all(describe(order, args, &report).as_bytes()))?;
    rows.finish()?;
    Ok(Some(match is_all(&report) {
        true => Answer::Yes,
        false => Answer::No,
    }))
}

/// Whether all entries that the table ever had were copied: only its index can tell.
fn is_all(report: &SalvageReport) -> bool {
    report.is_complete() && matches!(report.index, IndexState::Sound | IndexState::Found)
}

/// A line that sums up, and one for each range that is lost.
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
    text += &match (report.is_complete(), is_all(report)) {
        (_, true) => ", nothing lost\n".to_owned(),
        (true, false) => ", all that the file holds\n".to_owned(),
        (false, _) => format!(", {} of {file_bytes} bytes lost\n", report.lost_bytes()),
    };
    match report.index {
        IndexState::Sound => {}
        IndexState::Found => {
            text += &format!("{input}: the index was not where the footer says\n");
        }
        _ => {
            text += &format!(
                "{input}: the index is lost, so blocks were searched for, and what else there was is not known\n"
            );
        }
    }
    if *entries_out_of_order > 0 {
        text += &format!(
            "{input}: left out for being out of order: {}\n",
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
            text += &format!(", behind key {}", order.show(key));
        }
        if let Some(key) = &lost.before {
            text += &format!(", before key {}", order.show(key));
        }
        text += &format!(": {}\n", lost.reason);
    }
    text
}
