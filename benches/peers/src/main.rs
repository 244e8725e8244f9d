//! Times the same work done by leveltable and by other libraries, and prints tables.
//!
//! README.md describes the work and the options.

#[cfg(feature = "databases")]
mod coordinode;
mod database;
#[cfg(feature = "databases")]
mod databases;
#[cfg(feature = "databases")]
mod dictionaries;
mod disk;
mod figures;
mod leveltable_peer;
mod openings;
mod peer;
#[cfg(feature = "databases")]
mod ports;
mod requests;
mod rows;
mod sstable_peer;
mod store;
mod tuned;
mod workload;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};

use figures::Figures;
use openings::{
    BUILD, BUILD_WORK, COLD, COLD_WORK, DATABASES, Opening, TOOL, WARM, WARM_WORK, Work,
};
use peer::Peer;
use rows::{ROWS, Row, Size};
use workload::{KeyShape, Measured, TUNED};

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
    /// Number of entries in the table of the cold part.
    #[arg(long, default_value_t = 5_000_000)]
    cold_entries: usize,
    /// Number of cold passes of 256 keys in a process.
    #[arg(long, default_value_t = 8)]
    cold_passes: usize,
    /// The peers to compare with.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Peer::others())]
    peers: Vec<Peer>,
    /// Run only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// Run only these rows.
    #[arg(long, value_delimiter = ',', value_parser = row_names())]
    only: Vec<String>,
    /// Run the parts `warm`, `cold`, `build` and `databases` for these openings only.
    #[arg(long, value_delimiter = ',', value_parser = opening_names())]
    openings: Vec<String>,
    /// Directory for the workload, which is kept [default: a temporary directory].
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Run on little data, to show that everything works; the figures are meaningless.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// As users open a table, the file in the page cache.
    Warm,
    /// As users open a table, nothing in the page cache.
    Cold,
    /// As users build a table: time, and bytes on disk.
    Build,
    /// Databases built, shrunk and repaired.
    Databases,
    /// Number of read requests.
    Requests,
    /// Each library opened for the most speed; building and opening.
    Tuned,
}

impl Part {
    const ALL: [Part; 6] = [
        Part::Warm,
        Part::Cold,
        Part::Build,
        Part::Databases,
        Part::Requests,
        Part::Tuned,
    ];
}

fn row_names() -> clap::builder::PossibleValuesParser {
    let warm = WARM_WORK.iter().map(|work| format!("warm-{}", work.name));
    let cold = COLD_WORK.iter().map(|work| format!("cold-{}", work.name));
    let tuned = ROWS.iter().map(|row| row.name.to_owned());
    let databases = DATABASES.iter().map(|(work, _)| database_row(work));
    warm.chain(cold)
        .chain([BUILD_ROW.to_owned()])
        .chain(databases)
        .chain([REQUESTS.to_owned()])
        .chain(tuned)
        .collect::<Vec<_>>()
        .into()
}

fn opening_names() -> clap::builder::PossibleValuesParser {
    let mut names: Vec<_> = WARM
        .iter()
        .chain(COLD)
        .chain(BUILD)
        .chain(DATABASES.iter().flat_map(|(_, openings)| *openings))
        .map(|opening| opening.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

// The names of further rows for `--only`.
const REQUESTS: &str = "requests";
const BUILD_ROW: &str = "build-table";

fn database_row(work: &Work) -> String {
    format!("databases-{}", work.name)
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["worker", peer, directory, work, table, probes] => {
            peer::report(run_worker(
                peer,
                directory.as_ref(),
                work,
                table,
                probes,
                TUNED,
            )?);
        }
        ["worker", peer, directory, work, table, probes, opening] => {
            peer::report(run_worker(
                peer,
                directory.as_ref(),
                work,
                table,
                probes,
                opening,
            )?);
        }
        _ => compare(Arguments::parse())?,
    }
    Ok(())
}

/// Does the work of a peer in Rust, in a process of its own.
fn run_worker(
    peer: &str,
    directory: &Path,
    work: &str,
    table: &str,
    probes: &str,
    opening: &str,
) -> Result<Measured> {
    match peer {
        "leveltable" if work.starts_with("database-") => database::run(directory, work, opening),
        "leveltable" => leveltable_peer::run(directory, work, table, probes, opening),
        "disk" => disk::run(directory, work, table),
        "sstable" => sstable_peer::run(directory, work, table, probes, opening),
        #[cfg(feature = "databases")]
        "lsm-tree" | "coordinode" | "redb" | "lmdb" | "fst" | "cdb64" | "tantivy-sstable"
        | "rusty-leveldb" | "bedrock-leveldb" => databases::run(peer, directory, work, probes),
        _ => anyhow::bail!(
            "{peer} is not in this build: add --features databases to Cargo's options"
        ),
    }
}

fn compare(mut arguments: Arguments) -> Result<()> {
    if arguments.quick {
        arguments.entries = 20_000;
        arguments.probes = 20_000;
        arguments.cold_entries = 40_000;
        arguments.cold_passes = 2;
        arguments.rounds = 1;
    }
    let arguments = arguments;
    let load_before = load()?;
    let tuned: Vec<&Row> = ROWS
        .iter()
        .filter(|row| arguments.has(Part::Tuned, row.name))
        .collect();
    let warm = arguments.works(Part::Warm, WARM_WORK);
    let cold = arguments.works(Part::Cold, COLD_WORK);
    let build = arguments.has(Part::Build, BUILD_ROW);
    let databases: Vec<_> = DATABASES
        .iter()
        .filter(|(work, _)| arguments.has(Part::Databases, &database_row(work)))
        // The peer that writes the old ones.
        .filter(|_| arguments.peers.contains(&Peer::Leveldb))
        .collect();
    let requests = arguments.has(Part::Requests, REQUESTS);

    let workloads = Workloads::new(arguments.directory.as_deref())?;
    let openings = !warm.is_empty() || build || !databases.is_empty() || requests;
    workloads.prepare_all(&arguments, &tuned, openings)?;
    println!("{}\n", arguments.describe()?);
    let main = workloads.directory(Size::Main);
    let mut warm_figures = Figures::default();
    if !warm.is_empty() {
        arguments.prepare_databases(&main)?;
        arguments.measure(&mut warm_figures, "warm", &main, WARM, &warm)?;
    }
    let mut cold_figures = Figures::default();
    if !cold.is_empty() {
        let directory = workloads.root.join("Cold");
        arguments.prepare_cold(&directory)?;
        arguments.measure(&mut cold_figures, "cold", &directory, COLD, &cold)?;
        cold_figures.disk_is_counted = disk::is_counted(&directory)?;
        if !cold_figures.disk_is_counted {
            println!(
                "The system does not count what is read from the disk of {}, or keeps its files in memory: the figures \
                 called cold are not. Use --directory to choose another disk.\n",
                directory.display()
            );
        }
    }
    let mut written = Figures::default();
    if build {
        arguments.measure(&mut written, "build", &main, BUILD, &[&BUILD_WORK])?;
    }
    if !databases.is_empty() {
        arguments.prepare_old_databases(&main)?;
        for (work, openings) in &databases {
            arguments.measure(&mut written, "databases", &main, openings, &[work])?;
        }
    }
    println!(
        "Load of the last 1, 5 and 15 minutes: {load_before} before, {} after.\n",
        load()?
    );
    if !(warm.is_empty() || cold.is_empty()) {
        let table = figures::readme(&warm_figures, &cold_figures);
        section("README.md, \"Speed\"", &table);
    }
    if !warm.is_empty() {
        section(
            "docs/performance.md: as users open a table, warm",
            &warm_figures.warm_matrix(),
        );
    }
    if !cold.is_empty() {
        section(
            "docs/performance.md: as users open a table, cold",
            &cold_figures.cold_matrix(),
        );
    }
    if build {
        section("docs/performance.md: building", &written.build_table());
    }
    if !databases.is_empty() {
        let before = |work: &str| match work {
            "shrink" => workload::file_bytes(&main.join("old")).ok(),
            "repair" => workload::file_bytes(&main.join("broken")).ok(),
            _ => None,
        };
        section(
            "docs/performance.md: databases",
            &written.database_table(before),
        );
    }
    if !(warm.is_empty() && cold.is_empty()) {
        section("Goals", &figures::goals(&warm_figures, &cold_figures));
    }
    if requests {
        section("docs/performance.md: requests", &requests::table(&main)?);
    }
    if !tuned.is_empty() {
        let peers: Vec<Peer> = arguments
            .peers
            .iter()
            .copied()
            .filter(|peer| peer.is_tuned())
            .collect();
        let directory = |row: &Row| workloads.directory(row.size);
        let table = tuned::table(&tuned, &peers, arguments.rounds, directory)?;
        section(
            "docs/performance.md: each library opened for the most speed",
            &table,
        );
    }
    Ok(())
}

fn section(title: &str, table: &str) {
    println!("## {title}\n\n{table}");
}

impl Arguments {
    /// Returns whether a row is to be run.
    fn has(&self, part: Part, row: &str) -> bool {
        self.parts.contains(&part)
            && (self.only.is_empty() || self.only.iter().any(|name| name == row))
    }

    fn works(&self, part: Part, works: &'static [Work]) -> Vec<&'static Work> {
        let prefix = if part == Part::Warm { "warm" } else { "cold" };
        works
            .iter()
            .filter(|work| self.has(part, &format!("{prefix}-{}", work.name)))
            .collect()
    }

    /// Returns the openings that were asked for and are possible.
    fn openings(&self, openings: &'static [Opening]) -> impl Iterator<Item = &'static Opening> {
        openings.iter().filter(|opening| {
            let ours = match opening.name {
                TOOL => self.keys == KeyShape::Decimal && database::tool().is_some(),
                _ => matches!(opening.peer, Peer::Leveltable | Peer::Disk),
            };
            (ours || self.peers.contains(&opening.peer))
                && (self.openings.is_empty()
                    || self.openings.iter().any(|name| name == opening.name))
        })
    }

    /// Runs all openings in turn, once in each round, so that a noisy minute affects all of them.
    fn measure(
        &self,
        figures: &mut Figures,
        part: &str,
        directory: &Path,
        openings: &'static [Opening],
        works: &[&'static Work],
    ) -> Result<()> {
        for work in works {
            eprintln!("{part}-{}", work.name);
            let mut answers = None;
            for _ in 0..self.rounds {
                for opening in self.openings(openings).filter(|opening| opening.does(work)) {
                    let scanned = self.scanned().to_string();
                    let probes = match work.probes {
                        "scanned" => &scanned,
                        probes => probes,
                    };
                    let measured = opening.peer.run(
                        directory,
                        opening.word(work),
                        opening.table,
                        probes,
                        opening.how,
                    )?;
                    let expected = *answers.get_or_insert(measured.answers);
                    if measured.answers != expected {
                        match opening.peer {
                            Peer::Disk => {} // knows of no entries
                            // The sstable crate is known to lose some.
                            Peer::Sstable => {
                                figures.add_wrong(opening, work, measured.answers, expected);
                            }
                            _ => bail!(
                                "{part}-{}: {} answered {:?}, others {expected:?}",
                                work.name,
                                opening.name,
                                measured.answers,
                            ),
                        }
                    }
                    figures.add(opening, work, measured);
                }
            }
        }
        Ok(())
    }

    /// Number of entries in a cold scan.
    fn scanned(&self) -> usize {
        self.cold_entries / 5
    }

    fn prepare_cold(&self, directory: &Path) -> Result<()> {
        eprintln!("preparing {} entries on disk", self.cold_entries);
        workload::write_cold(directory, self.cold_entries, self.cold_passes, self.keys)?;
        self.prepare_databases(directory)?;
        disk::sync(directory)
    }

    /// Has the databases make theirs of the workload.
    fn prepare_databases(&self, directory: &Path) -> Result<()> {
        let peers = Peer::DATABASES.into_iter().chain([Peer::Rocksdb]);
        for peer in peers.filter(|peer| self.peers.contains(peer)) {
            peer.run(directory, "prepare", "raw", "present", "default")?;
        }
        Ok(())
    }

    /// Has C++ LevelDB make the databases that are shrunk and repaired.
    fn prepare_old_databases(&self, directory: &Path) -> Result<()> {
        if self
            .openings(DATABASES[0].1)
            .any(|opening| opening.name == TOOL)
        {
            database::write_lines(directory)?;
        } else {
            eprintln!("without `leveltable build`: the tool was not built beside this program");
        }
        Peer::Leveldb.run(directory, "database-prepare", "snappy", "keys", "default")?;
        Ok(())
    }

    /// Describes the run.
    fn describe(&self) -> Result<String> {
        let keys = self.keys.to_possible_value();
        Ok(format!(
            "{}, {}; {} entries, {} keys, {} lookups; cold: {} entries, {} passes of {} lookups; medians of {} rounds, and in \
             brackets the range of the rounds. `~`: the rounds differ by more than 10 %.\n\nLibraries: {}.",
            date()?,
            processor(),
            self.entries,
            keys.as_ref().map_or("", |keys| keys.get_name()),
            self.probes,
            self.cold_entries,
            self.cold_passes,
            workload::BATCH,
            self.rounds,
            self.versions()?,
        ))
    }

    /// Lists the libraries that are compared: those in C++ by what they say, crates by Cargo.lock.
    fn versions(&self) -> Result<String> {
        let mut versions = Vec::new();
        for peer in &self.peers {
            versions.push(match peer {
                Peer::Leveldb | Peer::Rocksdb => {
                    format!("{} {}", peer.name(), peer.linked_version()?)
                }
                _ => locked_version(peer.package()).context("a peer that is not in Cargo.lock")?,
            });
        }
        Ok(versions.join(", "))
    }
}

/// The workloads of all sizes.
struct Workloads {
    root: PathBuf,
    /// Removes the files at the end, unless `--directory` keeps them.
    _temporary: Option<tempfile::TempDir>,
}

impl Workloads {
    fn new(directory: Option<&Path>) -> Result<Workloads> {
        if let Some(directory) = directory {
            return Ok(Workloads {
                root: directory.to_owned(),
                _temporary: None,
            });
        }
        let temporary = tempfile::TempDir::with_prefix("leveltable-peers-")?;
        Ok(Workloads {
            root: temporary.path().to_owned(),
            _temporary: Some(temporary),
        })
    }

    /// Writes the workloads that are read from the page cache: those of the rows, and the main one also for the openings.
    fn prepare_all(&self, arguments: &Arguments, rows: &[&Row], openings: bool) -> Result<()> {
        for (size, share) in [(Size::Main, 1), (Size::Tenth, 10), (Size::Fiftieth, 50)] {
            let tuned = rows.iter().any(|row| row.size == size);
            let openings = openings && size == Size::Main;
            if !tuned && !openings {
                continue;
            }
            let entries = arguments.entries / share;
            eprintln!("preparing {entries} entries");
            let directory = self.directory(size);
            workload::write(&directory, entries, arguments.probes, arguments.keys)?;
            if arguments.peers.contains(&Peer::Leveldb) {
                Peer::Leveldb.run(&directory, "prepare", "raw", "present", TUNED)?;
            }
            if tuned && arguments.peers.contains(&Peer::Rocksdb) {
                for table in ["raw", "snappy"] {
                    Peer::Rocksdb.run(&directory, "prepare", table, "present", TUNED)?;
                }
            }
        }
        Ok(())
    }

    fn directory(&self, size: Size) -> PathBuf {
        self.root.join(format!("{size:?}"))
    }
}

/// Returns the name and version of a package in Cargo.lock.
fn locked_version(package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = include_str!("../Cargo.lock").lines();
    lines.find(|line| *line == name)?;
    let version = lines.next()?.strip_prefix("version = ")?;
    Some(format!("{package} {}", version.trim_matches('"')))
}

/// Returns how many processes were ready to run or waited for the disk, on average in the last 1, 5 and 15 minutes.
fn load() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let averages: Vec<&str> = load.split_whitespace().take(3).collect();
    Ok(averages.join(" "))
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
