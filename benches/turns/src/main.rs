//! Two commits of leveltable take turns at the same files: see `README.md`.

mod build;
mod data;
mod rounds;
mod rows;
mod side;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use lexopt::prelude::*;
use rustix::thread::{CpuSet, sched_setaffinity, sched_getaffinity};

use crate::rounds::{Outcome, Sides};
use crate::rows::Beside;

/// A doubt from which on the machine is too busy to tell.
const TOO_BUSY: f64 = 0.02;

const USAGE: &str = "usage: turns [--this DIRECTORY] [--against COMMIT] [--rows NAME,..] [--rounds N] [--quick] [--fail-at PERCENT]
             [--build-only]
       turns --list";

#[derive(Default)]
struct Arguments {
    this: Option<PathBuf>,
    against: Option<String>,
    rows: Vec<String>,
    rounds: Option<usize>,
    quick: bool,
    fail_at: Option<f64>,
    build_only: bool,
    list: bool,
    /// What this program tells its own processes.
    measure: Option<String>,
    prepare: Option<String>,
    files: PathBuf,
}

fn parse() -> Result<Arguments> {
    let mut it = Arguments::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("this") => it.this = Some(parser.value()?.into()),
            Long("against") => it.against = Some(parser.value()?.string()?),
            Long("rows") => {
                let words = parser.value()?.string()?;
                it.rows = words.split(',').map(str::to_owned).collect();
            }
            Long("rounds") => it.rounds = Some(parser.value()?.parse()?),
            Long("quick") => it.quick = true,
            Long("fail-at") => it.fail_at = Some(parser.value()?.parse()?),
            Long("build-only") => it.build_only = true,
            Long("list") => it.list = true,
            Long("measure") => it.measure = Some(parser.value()?.string()?),
            Long("prepare") => it.prepare = Some(parser.value()?.string()?),
            Long("files") => it.files = parser.value()?.into(),
            Long("help") | Short('h') => bail!("{USAGE}"),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(it)
}

fn main() -> Result<ExitCode> {
    let arguments = parse()?;
    if arguments.list {
        for row in rows::ROWS {
            println!("{:18} {:8} {}", row.name, row.group, row.what);
        }
    } else if let Some(name) = &arguments.measure {
        let case = rows::named(name, arguments.quick)?;
        println!("{}", rounds::render(&side::measure(&case, &arguments.files)?));
    } else if let Some(name) = &arguments.prepare {
        let rows::Case { row, shape } = rows::named(name, arguments.quick)?;
        row.data.prepare(&arguments.files, shape, row.work.probes())?;
    } else {
        return drive(&arguments);
    }
    Ok(ExitCode::SUCCESS)
}

fn drive(arguments: &Arguments) -> Result<ExitCode> {
    let words = match arguments.rows[..] {
        [] => vec!["all".to_owned()],
        _ => arguments.rows.clone(),
    };
    let cases = rows::selected(&words, arguments.quick)?;
    let repository = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let repository = arguments.this.clone().unwrap_or(repository);
    let against = build::commit(&repository, arguments.against.as_deref().unwrap_or("HEAD"))?;
    let files = build::scratch()?.join("files");
    let sides = Sides {
        this: match &arguments.this {
            Some(engine) => build::with_engine(engine)?,
            None => std::env::current_exe()?,
        },
        other: build::with_engine(&build::check_out(&repository, &against)?)?,
        quick: arguments.quick,
        files,
    };
    if arguments.build_only {
        return Ok(ExitCode::SUCCESS);
    }
    let this = build::run(build::git(&repository).args(["describe", "--always", "--dirty", "--abbrev=7"]))?;
    println!("{}\n", machine(&this, &against)?);
    keep_to_one_processor()?;
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 9 });
    println!("| work | this | {} | times as fast | range | beside it |", &against[..7]);
    println!("|---|---|---|---|---|---|");
    let _ = fs::remove_dir_all(&sides.files);
    let mut slower = Vec::new();
    for case in cases {
        let outcome = sides.turns(case, rounds)?;
        println!("{}", line(&outcome));
        let limit = arguments.fail_at.map_or(0.0, |percent| 1.0 / (1.0 + percent / 100.0));
        if outcome.speed().median() < limit {
            slower.push(case.name());
        }
    }
    fs::remove_dir_all(&sides.files)?;
    println!("\nLoad afterwards: {}", load()?);
    if slower.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("Too slow: {}", slower.join(", "));
    Ok(ExitCode::FAILURE)
}

fn line(outcome: &Outcome) -> String {
    let (speed, (this, other)) = (outcome.speed(), outcome.beside());
    let (from, to) = speed.range();
    let beside = match outcome.case.row.beside {
        None => String::new(),
        Some(beside) => {
            let what = match beside {
                Beside::Map => "the map's time",
                Beside::Pread => "a `pread` of 64 KiB",
            };
            format!("{:.2} x {what}; other {:.2} x", this.median(), other.median())
        }
    };
    let busy = match outcome.doubt() {
        doubt if doubt > TOO_BUSY => format!(" **too busy to tell: {:.1} %**", 100.0 * doubt),
        _ => String::new(),
    };
    format!(
        "| {} ({}) | {} | {} | {:.2}{busy} | {from:.2} to {to:.2} of {} | {beside} |",
        outcome.case.row.what,
        outcome.case.name(),
        nanos(outcome.this()),
        nanos(outcome.other()),
        speed.median(),
        outcome.len(),
    )
}

fn nanos(nanos: f64) -> String {
    match nanos {
        n if n < 100.0 => format!("{n:.1} ns"),
        n if n < 10_000.0 => format!("{n:.0} ns"),
        n => format!("{:.1} us", n / 1000.0),
    }
}

fn load() -> Result<String> {
    let load = fs::read_to_string("/proc/loadavg").context("reading the load")?;
    Ok(load.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

fn machine(this: &str, against: &str) -> Result<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let model = model.trim_matches(|c: char| c == ':' || c.is_whitespace());
    let date = build::run(std::process::Command::new("date").arg("+%Y-%m-%d %H:%M"))?;
    let processors = std::thread::available_parallelism()?;
    let load = load()?;
    Ok(format!(
        "This: {this}; the other: {against}. {processors} processors of {model}, {date}. Load before: {load}."
    ))
}

/// Binds this process to the last of its processors, and with it those that it starts: caches then stay where they are.
fn keep_to_one_processor() -> Result<()> {
    let all = sched_getaffinity(None)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| all.is_set(cpu));
    let mut one = CpuSet::new();
    one.set(last.unwrap_or_default());
    Ok(sched_setaffinity(None, &one)?)
}
