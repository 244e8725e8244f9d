//! Draws wasted reads against bits per key, with the measurements of the example `avoided_reads`.
//!
//! ```text
//! cargo run --release -p leveltable-charts -- docs
//! ```
//!
//! draws `docs/avoided_reads.svg` and `docs/avoided_reads.png`, in a few minutes.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

#[path = "../../../examples/avoided_reads/format.rs"]
#[expect(dead_code, reason = "the example uses all of it")]
mod format;
#[path = "../../../examples/avoided_reads/measure.rs"]
#[expect(dead_code, reason = "the example uses all of it")]
mod measure;
mod plot;
#[path = "../../../examples/avoided_reads/workload.rs"]
#[expect(dead_code, reason = "the example uses all of it")]
mod workload;

const USAGE: &str = "\
Usage: leveltable-charts [--entries N] DIR

Draws wasted reads against bits per key into DIR/avoided_reads.svg and .png.

Options:
  --entries N  generate N entries for each table [default: 1000000]
  --help       print this help";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("leveltable-charts: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    use lexopt::prelude::*;
    let mut entries = 1_000_000;
    let mut dir = None;
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("entries") => entries = parser.value()?.parse()?,
            Value(path) if dir.is_none() => dir = Some(PathBuf::from(path)),
            Short('h') | Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            _ => return Err(arg.unexpected().into()),
        }
    }
    if entries == 0 {
        return Err("--entries must be at least 1".into());
    }
    let dir = dir.ok_or("no DIR to draw into: see --help")?;
    plot::draw(&dir, entries, &mut io::stdout())
}
