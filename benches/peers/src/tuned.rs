//! The rows in which each library is opened for the most speed, and those of building and opening.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::figures::{Spread, header, row as add_row};
use crate::peer::Peer;
use crate::rows::{Row, Unit};
use crate::workload::{Measured, TUNED};

/// Measures the rows and returns a table of them.
pub fn table(
    rows: &[&'static Row],
    peers: &[Peer],
    rounds: usize,
    directory: impl Fn(&Row) -> std::path::PathBuf,
) -> Result<String> {
    let columns = [
        "leveltable",
        "ratio to C++ LevelDB",
        "in all rounds",
        "to reach",
    ];
    let names = peers.iter().map(|peer| peer.name());
    let mut text = header("work", columns.into_iter().chain(names));
    for row in rows {
        eprintln!("{}", row.name);
        let results = measure(row, &directory(row), peers, rounds)?;
        add_row(&mut text, row.what, cells(row, &results));
    }
    Ok(text)
}

/// Ratios below the goal are bold.
fn cells(row: &Row, results: &Results) -> Vec<String> {
    let Results {
        ours,
        theirs,
        ratio,
    } = results;
    let ratio = ratio.filter(|_| row.unit != Unit::TimesOneThread);
    // Two threads have their own goal: the figure itself.
    let figure = ratio.map_or(ours.figure, |ratio| ratio.median);
    let below = row.target.is_some_and(|target| figure < target);
    let mark = if below { "**" } else { "" };
    let mut cells = vec![
        row.unit.show(ours.figure),
        ratio.map_or("-".into(), |ratio| {
            format!("{mark}{:.2}{mark}", ratio.median)
        }),
        ratio.map_or("-".into(), |ratio| {
            format!("{:.2} to {:.2}", ratio.least, ratio.greatest)
        }),
        row.target
            .map_or("-".into(), |target| format!("{target:.2}")),
    ];
    for measured in theirs {
        let mut cell = row.unit.show(measured.figure);
        if measured.answers != ours.answers {
            let (found, of) = (measured.answers.count, ours.answers.count);
            cell += &format!(" (wrong: {found} of {of} found)");
        }
        cells.push(cell);
    }
    cells
}

/// The medians of a row.
struct Results {
    ours: Measured,
    /// In the order of the peers.
    theirs: Vec<Measured>,
    /// The ratio to C++ LevelDB, round by round.
    ratio: Option<Spread>,
}

/// Runs all peers in turn, once in each round, so that a noisy minute affects all of them.
fn measure(row: &Row, directory: &Path, peers: &[Peer], rounds: usize) -> Result<Results> {
    let theirs = peers.iter().map(|&peer| (peer, row.theirs));
    let all: Vec<_> = [(Peer::Leveltable, row.ours)]
        .into_iter()
        .chain(theirs)
        .collect();
    let mut all_results: Vec<Vec<Measured>> = vec![Vec::new(); all.len()];
    for _ in 0..rounds {
        for (results, &(peer, (work, table))) in all_results.iter_mut().zip(&all) {
            results.push(peer.run(directory, work, table, row.probes, TUNED)?);
        }
    }
    let leveldb = all.iter().position(|&(peer, _)| peer == Peer::Leveldb);
    let ratio = leveldb.and_then(|leveldb| {
        let theirs = all_results[leveldb].iter().map(|theirs| theirs.figure);
        let ours = all_results[0].iter().map(|ours| ours.figure);
        Spread::of(theirs.zip(ours).map(|(theirs, ours)| theirs / ours))
    });
    let mut rounds = all_results;
    let mut medians = rounds.iter_mut().map(|results| {
        results.sort_by(|a, b| a.figure.total_cmp(&b.figure));
        results[results.len() / 2]
    });
    let ours = medians.next().context("no rounds")?;
    let theirs: Vec<Measured> = medians.collect();
    for (&peer, measured) in peers.iter().zip(&theirs) {
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
    Ok(Results {
        ours,
        theirs,
        ratio,
    })
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
