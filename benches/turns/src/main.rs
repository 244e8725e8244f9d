//! Two commits of leveltable take turns at the same files: see `README.md`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use lexopt::prelude::*;
use rustix::thread::sched_getaffinity;
use work::rounds::{LEVELDB, Sides};
use work::{build, prepare, report, rows, side};

const USAGE: &str = "\
usage: turns [--against COMMIT]   the other commit (default: the one in benches/turns/baseline)
             [--this DIRECTORY]   this one: a checkout (default: the one that this program is of)
             [--rows NAME,..]     rows and groups of rows (default: all)
             [--rounds NUMBER]    at least so many (default: 9)
             [--quick]            a smoke: small tables, one round
             [--fail-at PERCENT]  fails if a row is so much slower, or cannot be told
             [--build-only]
       turns --list";

#[derive(Default)]
struct Arguments {
    this: Option<PathBuf>,
    against: Option<String>,
    rows: Option<String>,
    rounds: Option<usize>,
    quick: bool,
    fail_at: Option<f64>,
    build_only: bool,
    list: bool,
    /// What this program tells those that it starts: something to do for a row, and where the files are.
    order: Option<(Order, String)>,
    files: PathBuf,
}

enum Order {
    Prepare,
    Work,
    WorkOfRedb,
}

fn parse() -> Result<Arguments> {
    let mut it = Arguments::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("prepare") => it.order = Some((Order::Prepare, parser.value()?.string()?)),
            Long("work") => it.order = Some((Order::Work, parser.value()?.string()?)),
            Long("work-of-redb") => it.order = Some((Order::WorkOfRedb, parser.value()?.string()?)),
            Long("files") => it.files = parser.value()?.into(),
            Long("this") => it.this = Some(parser.value()?.into()),
            Long("against") => it.against = Some(parser.value()?.string()?),
            Long("rows") => it.rows = Some(parser.value()?.string()?),
            Long("rounds") => it.rounds = Some(parser.value()?.parse()?),
            Long("fail-at") => it.fail_at = Some(parser.value()?.parse()?),
            Long("quick") => it.quick = true,
            Long("build-only") => it.build_only = true,
            Long("list") => it.list = true,
            Long("help") => bail!("{USAGE}"),
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
        return Ok(ExitCode::SUCCESS);
    }
    let Some((order, name)) = &arguments.order else {
        return drive(&arguments);
    };
    let (case, files) = (rows::named(name, arguments.quick)?, &arguments.files);
    match order {
        Order::Prepare => prepare::prepare(&case.row, files, case.shape)?,
        Order::Work => side::work(&case, files)?,
        Order::WorkOfRedb => side::work_of_redb(&case, files)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn drive(arguments: &Arguments) -> Result<ExitCode> {
    let cases = rows::selected(arguments.rows.as_deref().unwrap_or("all"), arguments.quick)?;
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let engine = arguments.this.as_ref().unwrap_or(&own);
    let against = arguments
        .against
        .as_deref()
        .unwrap_or(include_str!("../baseline"));
    let against = build::commit(engine, against.trim())?;
    let sides = Sides {
        other: build::with_commit(engine, &against)?,
        this: match arguments.this {
            None if arguments.quick => std::env::current_exe()?,
            _ => build::with_engine(engine, "this")?,
        },
        files: build::scratch()?.join("files"),
        quick: arguments.quick,
        processors: sched_getaffinity(None)?,
    };
    if arguments.build_only {
        return Ok(ExitCode::SUCCESS);
    }
    if LEVELDB.is_none() {
        println!(
            "C++ LevelDB is left out: g++ or libleveldb-dev was not installed when this program was compiled.\n"
        );
    }
    println!("{}", report::head(engine, &against)?);
    let rounds = arguments
        .rounds
        .unwrap_or(if arguments.quick { 1 } else { 9 });
    let _ = fs::remove_dir_all(&sides.files);
    let mut failed = Vec::new();
    for case in cases {
        let outcome = sides.turns(case, rounds)?;
        println!("{}", report::line(&outcome));
        if arguments
            .fail_at
            .is_some_and(|percent| !outcome.is_within(percent))
        {
            failed.push(case.name());
        }
    }
    fs::remove_dir_all(&sides.files)?;
    println!("\nLoad afterwards: {}.", report::load()?);
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "Slower than allowed, or the machine was too busy to tell: {}.",
        failed.join(", ")
    );
    Ok(ExitCode::FAILURE)
}
