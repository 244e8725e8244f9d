//! What a person reads.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::build::{git, run};
use crate::rounds::{Outcome, Ratio, Round, TOO_BUSY};
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
    let (row, speed) = (&outcome.case.row, outcome.speed());
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
    let time = |of: fn(&Round) -> f64| {
        let nanos = outcome.ratio(of).median() / (each * row.parts) as f64;
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
        time(Round::this),
        time(Round::other),
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
    let times = |it: Ratio| format!("{:.2} ({:.2} to {:.2})", it.median(), it.least(), it.most());
    if let Some(beside) = outcome.case.row.beside {
        let what = match beside {
            Beside::Map => "the map's time",
            Beside::Loop => "the time of a loop",
            Beside::Pread => "a read of 64 KiB",
            Beside::TwoTables => "the time with two tables",
            Beside::NoFilter => "the time without a filter",
        };
        let other = outcome.ratio(Round::other_beside).median();
        let this = times(outcome.ratio(Round::beside));
        words.push(format!("{this} of {what}, the other {other:.2}"));
    }
    let peers = [
        (
            "C++ LevelDB",
            outcome
                .rounds
                .iter()
                .map(|it| it.leveldb)
                .collect::<Option<Vec<f64>>>(),
        ),
        ("redb", outcome.rounds.iter().map(|it| it.redb).collect()),
    ];
    for (name, nanos) in peers {
        if let Some(nanos) = nanos {
            let this = outcome.rounds.iter().map(Round::this);
            let ratio = Ratio::of(this.zip(nanos).map(|(this, peer)| this / peer));
            words.push(format!("{} of {name}'s", times(ratio)));
        }
    }
    if let Some([this, other]) = outcome.peaks {
        words.push(format!(
            "{this:.1} bytes of memory per key, the other {other:.1}"
        ));
    }
    words
}
