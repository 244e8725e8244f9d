//! What a person reads.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::build::{git, run};
use crate::rounds::{Outcome, Sorted, TOO_BUSY, Turn};
use crate::rows::{Beside, Work};

/// Which commits, where and when.
pub fn head(engine: &Path, against: &str) -> Result<String> {
    let this = run(git(engine).args(["describe", "--always", "--dirty", "--abbrev=7"]))?;
    let processors = fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.unwrap_or("unknown").trim_matches([':', ' ', '\t']);
    Ok(format!(
        "This: {this}; the other: {against}. {} processors ({model}), {}, load {}.\n\n\
         | work | this | {} | times as fast | range | beside it |\n|---|---|---|---|---|---|",
        std::thread::available_parallelism()?,
        run(Command::new("date").arg("+%Y-%m-%d %H:%M"))?,
        load()?,
        &against[..7],
    ))
}

pub fn load() -> Result<String> {
    let load = fs::read_to_string("/proc/loadavg").context("reading the load")?;
    Ok(load.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// The line of a row.
pub fn line(outcome: &Outcome) -> String {
    let (row, speed) = (&outcome.case.row, outcome.rounds(Turn::speed));
    let doubt = match outcome.doubt() {
        doubt if doubt > TOO_BUSY && outcome.rounds.len() > 1 => {
            format!("; too busy to tell: {:.1} % off", 100.0 * doubt)
        }
        _ => String::new(),
    };
    // A part of a scan, and of a build, is all entries; two threads share the keys.
    let each = match row.work {
        Work::Scan { .. } | Work::Build => row.data.entries,
        Work::Threads => row.len / 2,
        _ => row.len,
    };
    let time = |of: fn(&Turn) -> f64| {
        let nanos = outcome.rounds(of).median() / each as f64;
        match nanos {
            n if n < 100.0 => format!("{n:.1} ns"),
            n if n < 10_000.0 => format!("{n:.0} ns"),
            n => format!("{:.1} us", n / 1000.0),
        }
    };
    format!(
        "| {} (`{}`) | {} | {} | {:.2} | {:.2} to {:.2}, {} rounds{doubt} | {} |",
        row.what,
        outcome.case.name(),
        time(Turn::this),
        time(Turn::other),
        speed.median(),
        speed.least(),
        speed.most(),
        outcome.rounds.len(),
        beside(outcome).join("; "),
    )
}

/// This one's time in times of others.
fn beside(outcome: &Outcome) -> Vec<String> {
    let mut words = Vec::new();
    let times = |it: Sorted| format!("{:.2} ({:.2} to {:.2})", it.median(), it.least(), it.most());
    if let Some(beside) = outcome.case.row.beside {
        let what = match beside {
            Beside::Map => "the map's time",
            Beside::Loop => "the time of a loop",
            Beside::Pread => "a read of 64 KiB",
            Beside::TwoTables => "the time with two tables",
            Beside::NoFilter => "the time without a filter",
        };
        let other = outcome.rounds(Turn::other_beside).median();
        let this = times(outcome.rounds(Turn::beside));
        words.push(format!("{this} of {what}, the other {other:.2}"));
    }
    for (name, ratios) in [
        ("C++ LevelDB", outcome.rounds(Turn::to_leveldb)),
        ("redb", outcome.rounds(Turn::to_redb)),
    ] {
        if !ratios.median().is_nan() {
            words.push(format!("{} of {name}'s", times(ratios)));
        }
    }
    if let Some([this, other]) = outcome.peaks {
        words.push(format!(
            "{this:.1} bytes of memory per key, the other {other:.1}"
        ));
    }
    words
}
