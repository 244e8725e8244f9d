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
mod compact;
mod database;
mod failure;
mod get;
mod info;
mod input;
mod interrupt;
mod key;
mod merge;
mod notation;
mod open;
mod output;
mod path;
mod place;
mod prune;
mod publish;
#[cfg(feature = "object-store")]
mod remote;
#[cfg(not(feature = "object-store"))]
#[path = "no_remote.rs"]
mod remote;
mod repair;
mod replace;
mod row;
mod salvage;
mod scan;
mod set;
mod shell;
mod sort;
mod splits;
mod verify;
mod write;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Inspects, searches and checks LevelDB's table files (.ldb, .sst), salvages damaged ones and builds new
/// ones; builds, compacts and repairs databases.
#[derive(Parser)]
#[command(name = "leveltable", version, after_help = include_str!("help/leveltable.txt").trim_end(), max_term_width = 100)]
#[command(infer_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Info(info::Args),
    Get(get::Args),
    Scan(scan::Args),
    Splits(splits::Args),
    Verify(verify::Args),
    Salvage(salvage::Args),
    Repair(repair::Args),
    Build(build::Args),
    Compact(compact::Args),
    Merge(merge::Args),
    Publish(publish::Args),
    Prune(prune::Args),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

/// The result of a completed command, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Yes,
    /// The table is sound, as far as can be told without its order.
    Unordered,
    /// The key is absent, the table is not sound, or not all of it was copied.
    No,
    /// Part of the work failed, and the reason was printed.
    Unknown,
}

impl Answer {
    fn yes_if(is_so: bool) -> Answer {
        if is_so { Answer::Yes } else { Answer::No }
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Info(args) => info::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Splits(args) => splits::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Compact(args) => compact::run(&args),
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
        // The reader of the output, such as `head`, has stopped reading.
        Err(Failure::Output(e)) if e.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain("error", &failure.to_string());
            ExitCode::from(2)
        }
    }
}
