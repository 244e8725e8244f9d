//! The command-line tool `leveltable`: inspects, searches, checks and repairs LevelDB's table files, and builds
//! new ones.
//!
//! It uses only the public interface of the library.
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
mod files;
mod get;
mod info;
mod input;
mod interrupt;
mod merge;
mod notation;
mod open;
mod output;
mod place;
mod progress;
mod prune;
mod publish;
#[cfg(feature = "object-store")]
mod remote;
#[cfg(not(feature = "object-store"))]
#[path = "no_remote.rs"]
mod remote;
mod salvage;
mod scan;
mod set_info;
mod shell;
mod sort;
mod splits;
mod verify;
mod write;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Inspects, searches and checks LevelDB's table files (.ldb, .sst), salvages damaged ones and builds new
/// ones.
#[derive(Parser)]
#[command(name = "leveltable", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(infer_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  leveltable info 000005.ldb                      sections, blocks, codecs, filter
  leveltable scan 000005.ldb --prefix user:       entries, as escaped text
  leveltable get 000005.ldb user:17               one value
  leveltable verify db                            everything that is wrong with a directory's tables
  leveltable salvage damaged.ldb rescued.ldb      copies the readable part of a damaged table
  leveltable scan old.ldb --json | leveltable build new.ldb --format jsonl

Keys are given and shown as text with escapes: \\t \\n \\r \\\\ and \\xNN for any byte.

Exit status:
  0    success: the key is present, the table is sound
  1    the answer is no:
         get      a key is absent
         info     some blocks are unreadable
         scan     with --skip-damaged: something was left out
         verify   a file is damaged, is not a table, or was not checked completely
         salvage  entries are lost, or may be lost
  2    an error: bad arguments, a failed read or write, a file that is not a table
       (for verify see 1), or damage at which info, get or scan must stop; of several
       files or keys, the others are still shown
  3    verify: nothing is wrong, but the order of the keys is not known
  130  interrupted: no file was written";

#[derive(Subcommand)]
enum Command {
    Info(info::Args),
    Get(get::Args),
    Scan(scan::Args),
    Splits(splits::Args),
    Verify(verify::Args),
    Salvage(salvage::Args),
    Build(build::Args),
    Merge(merge::Args),
    Publish(publish::Args),
    Prune(prune::Args),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

/// The result of a command that ran to its end, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Yes,
    /// The table is sound as far as can be told without its order.
    Unordered,
    /// The key is absent, the table is not sound, or not all of it was copied.
    No,
    /// Part of the work failed, and the reason was printed.
    Unknown,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Info(args) => info::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Splits(args) => splits::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Publish(args) => publish::run(&args),
        Command::Prune(args) => prune::run(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    };
    match done {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::Unordered) => ExitCode::from(3),
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Unknown) => ExitCode::from(2),
        // The reader of the output, such as `head`, has seen enough.
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Output(message) | Failure::Message(message)) => {
            output::complain("error", &message);
            ExitCode::from(2)
        }
    }
}
