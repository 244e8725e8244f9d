//! How many disk reads does a filter avoid?
//!
//! Writes real tables to a temporary directory, with one filter after another, looks up keys that are there
//! and keys that are not, and counts the reads that looking for an absent key cost all the same.
//!
//! ```text
//! cargo run --release --example avoided_reads                    a million generated entries
//! cargo run --release --example avoided_reads -- --from DIR      the files under DIR
//! cargo run --release --example avoided_reads -- --plot DIR      draws the curves into DIR
//! ```
//!
//! Every present key is looked up and its value compared, every absent key must be reported absent, and the
//! filter's word must agree with the reads that were counted; otherwise the program fails.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use measure::{Filter, Measured};
use workload::{Shape, Workload};

#[path = "avoided_reads/measure.rs"]
mod measure;
#[path = "avoided_reads/page_cache.rs"]
mod page_cache;
#[path = "avoided_reads/plot.rs"]
mod plot;
#[path = "avoided_reads/workload.rs"]
mod workload;

const USAGE: &str = "\
Usage: avoided_reads [--entries N | --from DIR] [--plot DIR]

Options:
  --entries N   generate N entries for each shape of keys [default: 1000000]
  --from DIR    index the files under DIR instead (path -> size and modification
                time), and ask for siblings that do not exist
  --plot DIR    instead of printing tables, draw wasted reads against bits a key
                into DIR/avoided_reads.svg and .png; takes some minutes
  --help        print this";

/// Lookups of absent keys for each filter.
const LOOKUPS: usize = 200_000;

/// The filters that are compared. More bits than 10 show what they buy, and where they buy nothing.
const FILTERS: [Filter; 7] = [
    Filter::None,
    Filter::BloomWindows(10),
    Filter::BloomWindows(16),
    Filter::BloomTable(10),
    Filter::BloomTable(16),
    Filter::Ribbon(10),
    Filter::Ribbon(16),
];

/// The two of them that the summary of a workload compares: LevelDB's own, and this crate's default.
const STOCK: Filter = Filter::BloomWindows(10);
const BEST: Filter = Filter::Ribbon(10);

/// What the columns of the tables mean.
const LEGEND: &str = "\
bits a key       asked of the filter policy; spent on the whole filter block
false positives  absent keys that the filter lets pass: by theory, and here
wasted reads     data blocks that were read for absent keys, counted at the file
disk bytes       what the system read from disk, the table's pages dropped before
time             of a lookup of an absent key, the table's pages in memory
";

fn main() -> ExitCode {
    let done = Args::parse()
        .map_err(Into::into)
        .and_then(|args| run(args, &mut io::stdout()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough.
        Err(e) if is_broken_pipe(&*e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("avoided_reads: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Option<Args>, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let Some(args) = args else {
        writeln!(out, "{USAGE}")?;
        return Ok(());
    };
    if let Some(dir) = &args.plot {
        return plot::draw(dir, args.entries, out);
    }
    writeln!(out, "{LEGEND}")?;
    // Removed when it is dropped, whether or not all went well.
    let dir = tempfile::Builder::new()
        .prefix("avoided_reads-")
        .tempdir()?;
    if let Some(from) = &args.from {
        return compare(&Workload::files(from, LOOKUPS)?, dir.path(), out);
    }
    for shape in Shape::ALL {
        let workload = Workload::generate(shape, 0..args.entries, LOOKUPS);
        compare(&workload, dir.path(), out)?;
    }
    Ok(())
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

struct Args {
    entries: u64,
    from: Option<PathBuf>,
    plot: Option<PathBuf>,
}

impl Args {
    /// The command line; `None` where it asks for help.
    fn parse() -> Result<Option<Args>, lexopt::Error> {
        use lexopt::prelude::*;
        let mut entries = None;
        let mut from = None;
        let mut plot = None;
        let mut parser = lexopt::Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Long("entries") => entries = Some(parser.value()?.parse()?),
                Long("from") => from = Some(parser.value()?.into()),
                Long("plot") => plot = Some(parser.value()?.into()),
                Short('h') | Long("help") => return Ok(None),
                _ => return Err(arg.unexpected()),
            }
        }
        if from.is_some() && (entries.is_some() || plot.is_some()) {
            return Err(
                "--from takes its keys from a directory: it goes with no other option".into(),
            );
        }
        let entries = entries.unwrap_or(1_000_000);
        if entries == 0 {
            return Err("--entries must be at least 1".into());
        }
        Ok(Some(Args {
            entries,
            from,
            plot,
        }))
    }
}

/// Prints a table: a row for each filter, as it is measured.
fn compare(workload: &Workload, dir: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (key, value) = &workload.entries[workload.entries.len() / 2];
    writeln!(out, "{}, such as {}", workload.title, show_key(key))?;
    writeln!(
        out,
        "{} entries with values of {} bytes; {} lookups of absent keys\n",
        thousands(workload.entries.len() as u64),
        value.len(),
        thousands(workload.absent.len() as u64),
    )?;
    writeln!(
        out,
        "                        bits a key      false positives     wasted   disk bytes    time per"
    )?;
    writeln!(
        out,
        "filter                 asked   spent   expected  measured    reads   per lookup      lookup"
    )?;
    let mut stock = None;
    let mut best = None;
    for filter in FILTERS {
        let measured = measure::on_disk(dir, workload, filter)?;
        writeln!(out, "{}", row(filter, &measured))?;
        match filter {
            STOCK => stock = Some(measured),
            BEST => best = Some(measured),
            _ => {}
        }
    }
    if let (Some(stock), Some(best)) = (stock, best) {
        writeln!(out, "\n{}", summary(&stock, &best))?;
    }
    writeln!(out)?;
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
        // Not every system tells, nor does every file system count.
        measured
            .disk_bytes_per_lookup
            .map_or("n/a".into(), |bytes| format!("{bytes:.1}")),
        format!("{} ns", measured.time_per_lookup.as_nanos()),
    )
}

fn summary(stock: &Measured, best: &Measured) -> String {
    let words = format!(
        "LevelDB's own filter wastes {} reads at {:.1} bits a key, the ribbon {} at {:.1}",
        thousands(stock.wasted_reads),
        stock.bits_per_key,
        thousands(best.wasted_reads),
        best.bits_per_key,
    );
    match best.wasted_reads {
        0 => words,
        reads => format!(
            "{words}: {:.1} times fewer",
            stock.wasted_reads as f64 / reads as f64
        ),
    }
}

fn percent(rate: f64) -> String {
    let digits = if rate < 0.1 { 3 } else { 1 };
    format!("{:.digits$} %", rate * 100.0)
}

/// As text where it is text, else in hexadecimal.
fn show_key(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains(char::is_control) => text.into(),
        _ => key.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// 1234567 as 1,234,567.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
