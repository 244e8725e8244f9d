//! How many disk reads does a filter avoid?
//!
//! Writes tables to a temporary directory, each with another filter, looks up keys that are present and keys
//! that are absent, and counts the data blocks that were read for the absent ones.
//!
//! ```text
//! cargo run --release --example avoided_reads                    two filters, five shapes of keys
//! cargo run --release --example avoided_reads -- --keys decimal  all filters, one shape of keys
//! cargo run --release --example avoided_reads -- --from DIR      all filters, the files under DIR
//! ```
//!
//! The program fails if a present key is not found with its value, if an absent key is found, or if the number
//! of absent keys that pass the filter differs from the number of reads.
//!
//! `benches/charts` draws the results: `cargo run --release -p leveltable-charts -- DIR`.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use format::{percent, thousands};
use measure::{Filter, Measured};
use workload::{Shape, Workload};

#[path = "avoided_reads/cold.rs"]
mod cold;
#[path = "avoided_reads/disk.rs"]
mod disk;
#[path = "avoided_reads/files.rs"]
mod files;
#[path = "avoided_reads/format.rs"]
mod format;
#[path = "avoided_reads/measure.rs"]
mod measure;
#[path = "avoided_reads/workload.rs"]
mod workload;

const USAGE: &str = "\
Usage: avoided_reads [--entries N] [--keys SHAPE | --all]
       avoided_reads --from DIR

Compares LevelDB's filter with the ribbon filter, for five shapes of keys.

Options:
  --entries N   generate N entries for each shape of keys [default: 1000000]
  --keys SHAPE  measure all filters, for one shape of keys:
                decimal, hexadecimal, url, counter or random
  --all         measure all filters, for every shape of keys; takes a minute
  --from DIR    measure all filters, on a table of the files under DIR (path -> size
                and modification time), and look up siblings that do not exist
  --help        print this help";

/// Lookups of absent keys for each filter.
const LOOKUPS: usize = 200_000;

/// Every filter that `--all` compares. The ones with 16 bits show what more bits buy.
const FILTERS: [Filter; 7] = [
    Filter::None,
    Filter::BloomWindows(10),
    Filter::BloomWindows(16),
    Filter::BloomTable(10),
    Filter::BloomTable(16),
    Filter::Ribbon(10),
    Filter::Ribbon(16),
];

/// The two filters that the summary compares: LevelDB's own, and this crate's default.
const LEVELDB: Filter = Filter::BloomWindows(10);
const RIBBON: Filter = Filter::Ribbon(10);

const LEGEND: &str = "\
bits per key     asked of the filter policy; spent on the whole filter block
false positives  absent keys that the filter passes: in theory, and measured
wasted reads     data blocks that were read for absent keys
disk bytes       read from disk, starting with none of the table in the page cache
time             of a lookup of an absent key, with the table in the page cache
";

fn main() -> ExitCode {
    let done = Args::parse()
        .map_err(Into::into)
        .and_then(|args| run(args, &mut io::stdout()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output, such as `head`, has seen enough.
        Err(e) if is_broken_pipe(&*e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("avoided_reads: {e}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// What to measure.
enum Args {
    Help,
    /// Two filters, for every shape.
    Summary {
        entries: u64,
    },
    /// All filters, for these shapes.
    Tables {
        shapes: Vec<Shape>,
        entries: u64,
    },
    /// All filters, for the files under a directory.
    Files(PathBuf),
}

impl Args {
    fn parse() -> Result<Args, lexopt::Error> {
        use lexopt::prelude::*;
        let mut entries = None;
        let mut shapes = None;
        let mut from = None;
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("entries") => entries = Some(parser.value()?.parse()?),
                Long("keys") => shapes = Some(vec![parser.value()?.parse()?]),
                Long("all") => shapes = Some(Shape::ALL.to_vec()),
                Long("from") => from = Some(parser.value()?.into()),
                Short('h') | Long("help") => return Ok(Args::Help),
                _ => return Err(arg.unexpected()),
            }
        }
        if let Some(from) = from {
            if entries.is_some() || shapes.is_some() {
                return Err(
                    "--from takes the keys from a directory: use it without other options".into(),
                );
            }
            return Ok(Args::Files(from));
        }
        let entries = entries.unwrap_or(1_000_000);
        if entries == 0 {
            return Err("--entries must be at least 1".into());
        }
        Ok(match shapes {
            Some(shapes) => Args::Tables { shapes, entries },
            None => Args::Summary { entries },
        })
    }
}

fn run(args: Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    // Removes itself when dropped, also after an error.
    let dir = tempfile::Builder::new()
        .prefix("avoided_reads-")
        .tempdir()?;
    match args {
        Args::Help => writeln!(out, "{USAGE}")?,
        Args::Summary { entries } => summarize(entries, dir.path(), out)?,
        Args::Tables { shapes, entries } => {
            writeln!(out, "{LEGEND}")?;
            for shape in shapes {
                let workload = Workload::generate(shape, 0..entries, LOOKUPS);
                compare(&workload, dir.path(), out)?;
            }
        }
        Args::Files(from) => {
            writeln!(out, "{LEGEND}")?;
            compare(&files::workload(&from, LOOKUPS)?, dir.path(), out)?;
        }
    }
    Ok(())
}

/// Prints a row for each shape of keys: the wasted reads of LevelDB's filter and of the ribbon.
fn summarize(entries: u64, dir: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "\
Tables of {} entries, with LevelDB's own filter and with the ribbon filter.
Wasted reads are data blocks that were read for {} lookups of absent keys.

                             LevelDB's filter        ribbon filter
                          bits per    wasted    bits per    wasted    times
keys                           key     reads         key     reads    fewer",
        thousands(entries),
        thousands(entries.min(LOOKUPS as u64)),
    )?;
    let mut cold = None;
    for shape in Shape::ALL {
        let workload = Workload::generate(shape, 0..entries, LOOKUPS);
        let leveldb = disk::measure(dir, &workload, LEVELDB)?;
        let ribbon = match &cold {
            Some(_) => disk::measure(dir, &workload, RIBBON)?,
            None => {
                let (ribbon, lookups) = disk::measure_cold(dir, &workload, RIBBON)?;
                cold = Some((workload.title.clone(), lookups));
                ribbon
            }
        };
        writeln!(
            out,
            "{:<26}  {:>6}  {:>8}      {:>6}  {:>8}  {:>7}",
            workload.title,
            format!("{:.2}", leveldb.bits_per_key),
            thousands(leveldb.wasted_reads),
            format!("{:.2}", ribbon.bits_per_key),
            thousands(ribbon.wasted_reads),
            times_fewer(&leveldb, &ribbon).map_or("-".into(), |times| format!("{times:.1}")),
        )?;
    }
    // LevelDB's figures are of decimal keys, which come first.
    if let Some((title, lookups)) = cold {
        cold::compare(&title, &lookups, out)?;
    }
    Ok(())
}

/// Prints a row for each filter, and a line that compares the two of the summary.
fn compare(workload: &Workload, dir: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (key, value) = &workload.entries[workload.entries.len() / 2];
    writeln!(
        out,
        "\
{}, such as {}
{} entries with values of {} bytes; {} lookups of absent keys

                        bits per key    false positives     wasted   disk bytes    time per
filter                 asked   spent   expected  measured    reads   per lookup      lookup",
        workload.title,
        show_key(key),
        thousands(workload.entries.len() as u64),
        value.len(),
        thousands(workload.absent.len() as u64),
    )?;
    let mut leveldb = None;
    let mut ribbon = None;
    for filter in FILTERS {
        let measured = disk::measure(dir, workload, filter)?;
        writeln!(out, "{}", row(filter, &measured))?;
        match filter {
            LEVELDB => leveldb = Some(measured),
            RIBBON => ribbon = Some(measured),
            _ => {}
        }
    }
    if let (Some(leveldb), Some(ribbon)) = (leveldb, ribbon) {
        write!(
            out,
            "\nLevelDB's own filter wastes {} reads at {:.1} bits per key, the ribbon {} at {:.1}",
            thousands(leveldb.wasted_reads),
            leveldb.bits_per_key,
            thousands(ribbon.wasted_reads),
            ribbon.bits_per_key,
        )?;
        if let Some(times) = times_fewer(&leveldb, &ribbon) {
            write!(out, ": {times:.1} times fewer")?;
        }
        writeln!(out, "\n")?;
    }
    Ok(())
}

fn row(filter: Filter, measured: &Measured) -> String {
    format!(
        "{filter:<21}  {:>5}  {:>6}  {:>8}  {:>8}  {:>7}  {:>11}  {:>10}",
        filter
            .bits_asked()
            .map_or("-".into(), |bits| bits.to_string()),
        format!("{:.2}", measured.bits_per_key),
        percent(filter.expected_rate()),
        percent(measured.rate()),
        thousands(measured.wasted_reads),
        measured
            .disk_bytes_per_lookup
            .map_or("n/a".into(), |bytes| format!("{bytes:.1}")),
        format!("{} ns", measured.time_per_lookup.as_nanos()),
    )
}

/// Returns `None` if the ribbon wastes no read at all.
fn times_fewer(leveldb: &Measured, ribbon: &Measured) -> Option<f64> {
    (ribbon.wasted_reads > 0).then(|| leveldb.wasted_reads as f64 / ribbon.wasted_reads as f64)
}

/// Returns a readable key as it is, any other in hexadecimal.
fn show_key(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains(char::is_control) => text.into(),
        _ => key.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
