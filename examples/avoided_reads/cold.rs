//! Shows cold lookups beside C++ LevelDB's, which are quoted from docs/performance.md.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use crate::format::thousands;

/// `benches/peers` measures C++ LevelDB, which this example does without.
const PERFORMANCE: &str = include_str!("../../docs/performance.md");

/// The start of the heading of the section whose table is quoted. The date follows.
const SECTION: &str = "## As users open a table, cold, ";

/// Lookups as `Table::open(path)` makes them, starting with none of the table in the page cache.
pub(crate) struct Cold {
    pub(crate) lookups: usize,
    /// Reads of the file for each lookup.
    pub(crate) reads: f64,
    /// Bytes that the system read from disk for each lookup. `None` where the system does not count them.
    pub(crate) disk_bytes: Option<f64>,
    pub(crate) time: Duration,
}

/// Prints lookups of present and of absent keys, and LevelDB's.
pub(crate) fn compare(
    title: &str,
    [present, absent]: &[Cold; 2],
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let quoted = Quoted::find(PERFORMANCE)?;
    writeln!(
        out,
        "
{title}, none of the table in the page cache, {} lookups of present keys and {} of absent ones: time and bytes
from disk of a lookup

                                 present key                  absent key
Table::open(path)                {:<27}  {}
  reads of the file              {:<27.3}  {:.3}
C++ LevelDB 1.23, {} *",
        thousands(present.lookups as u64),
        thousands(absent.lookups as u64),
        show(present),
        show(absent),
        present.reads,
        absent.reads,
        quoted.date,
    )?;
    for [opening, present, absent] in &quoted.rows {
        writeln!(out, "  {opening:<29}  {present:<27}  {absent}")?;
    }
    writeln!(
        out,
        "* quoted from docs/performance.md, measured by benches/peers on another table and machine"
    )?;
    Ok(())
}

fn show(cold: &Cold) -> String {
    let time = match cold.time.as_nanos() {
        ns if ns < 10_000 => format!("{ns} ns"),
        ns => format!("{:.1} µs", ns as f64 / 1e3),
    };
    match cold.disk_bytes {
        Some(bytes) => format!("{time}, {} B", thousands(bytes.round() as u64)),
        None => format!("{time}, bytes not counted"),
    }
}

/// Rows of docs/performance.md.
struct Quoted<'a> {
    date: &'a str,
    /// The way of opening, and the cells of a present and of an absent key.
    rows: Vec<[&'a str; 3]>,
}

impl<'a> Quoted<'a> {
    fn find(text: &'a str) -> Result<Quoted<'a>, Box<dyn Error>> {
        let section = text
            .split_once(SECTION)
            .ok_or("no cold section to quote")?
            .1;
        let section = section.split("\n## ").next().unwrap_or(section);
        let mut lines = section.lines();
        let date = lines.next().unwrap_or_default();
        let mut rows = lines
            .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
            .map(|line| line.split(" | ").collect::<Vec<_>>());
        let header = rows.next().ok_or("no table to quote")?;
        let column = |name| header.iter().position(|title| *title == name).ok_or(name);
        let (present, absent) = (column("get, present")?, column("get, absent")?);
        let quote = |row: Vec<&'a str>| {
            let opening = row.first()?.strip_prefix("C++ LevelDB, ")?;
            Some([opening, row.get(present)?, row.get(absent)?])
        };
        let rows: Vec<_> = rows.filter_map(quote).collect();
        if rows.is_empty() {
            return Err("no rows of C++ LevelDB to quote".into());
        }
        Ok(Quoted { date, rows })
    }
}
