//! Times the same work done by leveltable, C++ LevelDB, RocksDB and the `sstable` crate, and prints a table.
//!
//! README.md describes the work and the options.

mod leveltable_peer;
mod rows;
mod sstable_peer;
mod workload;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};

use rows::{ROWS, Row, Size, Unit};
use workload::{Answers, KeyShape, Measured};

/// Times leveltable and other libraries that read and write the same tables.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of entries in the table; some rows use a tenth or a fiftieth of it.
    #[arg(long, default_value_t = 1_000_000)]
    entries: usize,
    /// Number of lookups in one measurement.
    #[arg(long, default_value_t = 1_000_000)]
    probes: usize,
    /// Number of processes for each row and peer; the table shows medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The shape of the keys.
    #[arg(long, value_enum, default_value_t = KeyShape::Decimal)]
    keys: KeyShape,
    /// The peers to compare with.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Peer::OTHERS)]
    peers: Vec<Peer>,
    /// Run only these rows.
    #[arg(long, value_delimiter = ',', value_parser = row_names())]
    only: Vec<String>,
    /// Directory for the workload, which is kept [default: a temporary directory].
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Run on little data, to show that everything works; the figures are meaningless.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    #[value(skip)]
    Leveltable,
    Leveldb,
    Rocksdb,
    Sstable,
}

impl Peer {
    const OTHERS: [Peer; 3] = [Peer::Leveldb, Peer::Rocksdb, Peer::Sstable];

    fn name(self) -> &'static str {
        match self {
            Peer::Leveltable => "leveltable",
            Peer::Leveldb => "C++ LevelDB",
            Peer::Rocksdb => "RocksDB",
            Peer::Sstable => "`sstable`",
        }
    }

    /// Returns the program that does this peer's work. For Rust peers it is this program with another argument.
    fn program(self) -> Result<Command> {
        let cpp = |built: Option<&str>| match built {
            Some(program) => Ok(Command::new(program)),
            None => bail!(
                "the {} peer was not built: install its library, or name others with --peers",
                self.name()
            ),
        };
        let rust = |worker| -> Result<Command> {
            let mut program = Command::new(std::env::current_exe()?);
            program.arg(worker);
            Ok(program)
        };
        match self {
            Peer::Leveltable => rust("leveltable-worker"),
            Peer::Sstable => rust("sstable-worker"),
            Peer::Leveldb => cpp(option_env!("PEER_leveldb")),
            Peer::Rocksdb => cpp(option_env!("PEER_rocksdb")),
        }
    }

    /// Does one piece of work in a new process and returns the result that it printed.
    fn run(self, directory: &Path, work: &str, table: &str, probes: &str) -> Result<Measured> {
        let mut program = self.program()?;
        program.arg(directory).args([work, table, probes]);
        let output = program.output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{} failed at {work} of {table}: {}{printed}",
            self.name(),
            String::from_utf8_lossy(&output.stderr)
        );
        parse(&printed).with_context(|| format!("{} printed {printed:?}", self.name()))
    }
}

/// Parses the line that a worker prints: figure, checksum in hexadecimal, count.
fn parse(line: &str) -> Option<Measured> {
    let mut words = line.split_whitespace();
    Some(Measured {
        figure: words.next()?.parse().ok()?,
        answers: Answers {
            checksum: u64::from_str_radix(words.next()?, 16).ok()?,
            count: words.next()?.parse().ok()?,
        },
    })
}

fn row_names() -> clap::builder::PossibleValuesParser {
    ROWS.iter().map(|row| row.name).collect::<Vec<_>>().into()
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["leveltable-worker", directory, work, table, probes] => {
            report(leveltable_peer::run(
                directory.as_ref(),
                work,
                table,
                probes,
            )?);
        }
        ["sstable-worker", directory, work, table, probes] => {
            report(sstable_peer::run(directory.as_ref(), work, table, probes)?);
        }
        _ => compare(Arguments::parse())?,
    }
    Ok(())
}

fn report(Measured { figure, answers }: Measured) {
    println!("{figure:.3} {:x} {}", answers.checksum, answers.count);
}

fn compare(mut arguments: Arguments) -> Result<()> {
    if arguments.quick {
        arguments.entries = 20_000;
        arguments.probes = 20_000;
        arguments.rounds = 1;
    }
    let selected: Vec<&Row> = ROWS
        .iter()
        .filter(|row| arguments.only.is_empty() || arguments.only.iter().any(|n| n == row.name))
        .collect();
    let workloads = Workloads::prepare(&arguments, &selected)?;
    let mut table = Table::new(&arguments)?;
    for row in selected {
        eprintln!("{}", row.name);
        let directory = workloads.directory(row.size);
        table.add(row, &measure(row, &directory, &arguments)?)?;
    }
    print!("{}", table.text);
    Ok(())
}

/// The workloads of all sizes.
struct Workloads {
    root: PathBuf,
    /// Removes the files at the end, unless `--directory` keeps them.
    _temporary: Option<tempfile::TempDir>,
}

impl Workloads {
    fn prepare(arguments: &Arguments, rows: &[&Row]) -> Result<Workloads> {
        let workloads = match &arguments.directory {
            Some(directory) => Workloads {
                root: directory.clone(),
                _temporary: None,
            },
            None => {
                let temporary = tempfile::TempDir::with_prefix("leveltable-peers-")?;
                Workloads {
                    root: temporary.path().to_owned(),
                    _temporary: Some(temporary),
                }
            }
        };
        for (size, share) in [(Size::Main, 1), (Size::Tenth, 10), (Size::Fiftieth, 50)] {
            if !rows.iter().any(|row| row.size == size) {
                continue;
            }
            let entries = arguments.entries / share;
            eprintln!("preparing {entries} entries");
            let directory = workloads.directory(size);
            workload::write(&directory, entries, arguments.probes, arguments.keys)?;
            if arguments.peers.contains(&Peer::Leveldb) {
                Peer::Leveldb.run(&directory, "prepare", "raw", "present")?;
            }
            if arguments.peers.contains(&Peer::Rocksdb) {
                for table in ["raw", "snappy"] {
                    Peer::Rocksdb.run(&directory, "prepare", table, "present")?;
                }
            }
        }
        Ok(workloads)
    }

    fn directory(&self, size: Size) -> PathBuf {
        self.root.join(format!("{size:?}"))
    }
}

/// The medians of a row.
struct Results {
    ours: Measured,
    /// In the order of `--peers`.
    theirs: Vec<Measured>,
}

/// Runs all peers in turn, once in each round, so that a noisy minute affects all of them.
fn measure(row: &Row, directory: &Path, arguments: &Arguments) -> Result<Results> {
    let theirs = arguments.peers.iter().map(|&peer| (peer, row.theirs));
    let all: Vec<_> = [(Peer::Leveltable, row.ours)]
        .into_iter()
        .chain(theirs)
        .collect();
    let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); all.len()];
    for _ in 0..arguments.rounds {
        for (results, &(peer, (work, table))) in rounds.iter_mut().zip(&all) {
            results.push(peer.run(directory, work, table, row.probes)?);
        }
    }
    let mut medians = rounds.iter_mut().map(|results| {
        results.sort_by(|a, b| a.figure.total_cmp(&b.figure));
        results[results.len() / 2]
    });
    let ours = medians.next().context("no rounds")?;
    let theirs: Vec<Measured> = medians.collect();
    for (&peer, measured) in arguments.peers.iter().zip(&theirs) {
        // The sstable crate is known to lose keys. Another peer with other results did other work.
        ensure!(
            measured.answers == ours.answers || peer == Peer::Sstable,
            "{}: {} answered {:?}, leveltable {:?}",
            row.name,
            peer.name(),
            measured.answers,
            ours.answers
        );
    }
    Ok(Results { ours, theirs })
}

/// Prints the table as Markdown.
struct Table {
    text: String,
    /// The column of C++ LevelDB, the reference of the ratios.
    leveldb: Option<usize>,
}

impl Table {
    fn new(arguments: &Arguments) -> Result<Table> {
        let keys = arguments.keys.to_possible_value();
        let mut text = format!(
            "{}, {}; {} entries, {} keys, {} lookups; medians of {}.\n\n",
            date()?,
            processor(),
            arguments.entries,
            keys.as_ref().map_or("", |keys| keys.get_name()),
            arguments.probes,
            arguments.rounds,
        );
        text.push_str("| work | leveltable | ratio to C++ LevelDB | to reach |");
        for peer in &arguments.peers {
            write!(text, " {} |", peer.name())?;
        }
        text.push_str("\n|---|---:|---:|---:|");
        text.push_str(&"---:|".repeat(arguments.peers.len()));
        text.push('\n');
        let leveldb = arguments
            .peers
            .iter()
            .position(|&peer| peer == Peer::Leveldb);
        Ok(Table { text, leveldb })
    }

    fn add(&mut self, row: &Row, Results { ours, theirs }: &Results) -> Result<()> {
        let leveldb = self.leveldb.and_then(|column| theirs.get(column));
        let ratio = match row.unit {
            Unit::TimesOneThread => Some(ours.figure),
            _ => leveldb.map(|leveldb| leveldb.figure / ours.figure),
        };
        let show = |figure: Option<f64>| figure.map_or("-".into(), |f| format!("{f:.2}"));
        write!(
            self.text,
            "| {} | {} | {} | {} |",
            row.what,
            row.unit.show(ours.figure),
            show(ratio),
            show(row.target),
        )?;
        for measured in theirs {
            write!(self.text, " {}", row.unit.show(measured.figure))?;
            if measured.answers != ours.answers {
                let (found, of) = (measured.answers.count, ours.answers.count);
                write!(self.text, " (wrong: {found} of {of} found)")?;
            }
            self.text.push_str(" |");
        }
        self.text.push('\n');
        Ok(())
    }
}

impl Unit {
    fn show(self, figure: f64) -> String {
        match self {
            Unit::Nanoseconds if figure < 100.0 => format!("{figure:.1} ns"),
            Unit::Nanoseconds => format!("{figure:.0} ns"),
            Unit::Microseconds => format!("{:.1} µs", figure / 1e3),
            Unit::Kilobytes => format!("{:.1} kB", figure / 1e3),
            Unit::TimesOneThread => format!("{figure:.2} times"),
        }
    }
}

fn date() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the name of the processor, if the system has it.
fn processor() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    match (field("model name"), field("model\t")) {
        (Some(name), Some(model)) => format!("{name} (model {model})"),
        _ => "unknown processor".into(),
    }
}
