//! The command line of `leveltable`: looks into LevelDB's table files, searches, checks and repairs
//! them, and builds new ones.
//!
//! A user of the library's public interface, like any other program.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod build;
mod failure;
mod get;
mod info;
mod input;
mod interrupt;
mod notation;
mod open;
mod output;
mod progress;
mod salvage;
mod scan;
mod sort;
mod verify;
mod write;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Looks into the table files of LevelDB (.ldb, .sst): what is in them, and whether they are sound. Salvages
/// damaged ones, and builds new ones.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100)]
#[command(infer_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  leveltable info 000005.ldb                      what the file is made of
  leveltable scan 000005.ldb --prefix user:       entries, as escaped text
  leveltable get 000005.ldb user:17               one value
  leveltable verify db/*.ldb                      all that is wrong with them
  leveltable salvage damaged.ldb rescued.ldb      what can be read of a damaged one
  leveltable scan old.ldb --json | leveltable build new.ldb

Keys are given and shown as text with escapes: \\t \\n \\r \\\\ and \\xNN for any byte.

Exit status:
  0    it was done: the key is there, the table is sound
  1    it is not so:
         get      there is no such key
         info     data blocks cannot be read
         verify   a file is damaged, is no table, or could not all be checked
         salvage  something is lost, or may be
  2    it could not be done: bad arguments, a failed read or write, a file that is no table
       (but see verify), or damage that info, get or scan cannot pass
  130  it was interrupted: no file was written";

#[derive(Subcommand)]
enum Command {
    Info(info::Args),
    Get(get::Args),
    Scan(scan::Args),
    Verify(verify::Args),
    Salvage(salvage::Args),
    Build(build::Args),
}

/// How a command ended that did what it was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    /// The key is not there, or the table is not sound, or not all of it was copied.
    No,
    /// Some of it could not be done, and why was said.
    Unknown,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Info(args) => info::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Build(args) => build::run(&args),
    };
    match done {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Unknown) => ExitCode::from(2),
        // Whoever read our output, `head` say, has seen enough.
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Message(message)) => {
            output::complain("error", &message);
            ExitCode::from(2)
        }
    }
}
