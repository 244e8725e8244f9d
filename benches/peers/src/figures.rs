//! The figures of the openings, and the tables that are printed from them.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::openings::{
    BUILD, BUILD_WORK, COLD, COLD_WORK, DATABASES, GOALS, Goal, HELD, Measure, Opening, TURNS,
    WARM, WARM_WORK, Work,
};
use crate::workload::{Answers, Measured};

/// The figures of one part, warm or cold: those of all rounds, in the order of the rounds.
#[derive(Default)]
pub struct Figures {
    /// By the names of opening and work.
    cells: HashMap<(&'static str, &'static str), Vec<Measured>>,
    /// Cells of a peer that is known to lose entries: how many it found, and how many there are.
    wrong: HashMap<(&'static str, &'static str), (u64, u64)>,
    /// Whether the system counts what is read from the disk.
    pub disk_is_counted: bool,
}

/// How far rounds may differ, as a share of the median, before a cell is marked.
const MOST_SPREAD: f64 = 0.1;

/// The median of the rounds, and the least and greatest.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

impl Spread {
    /// Returns `None` if there are no figures.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        Some(Spread {
            median: *figures.get(figures.len() / 2)?,
            least: *figures.first()?,
            greatest: *figures.last()?,
        })
    }

    /// Marks a cell whose rounds differ much.
    fn mark(self, cell: &str) -> String {
        let differ = self.greatest - self.least > MOST_SPREAD * self.median;
        format!("{}{cell}", if differ { "~" } else { "" })
    }

    /// Shows a ratio, which has no range if there was one round only.
    fn show(self) -> String {
        let digits = if self.median >= 50.0 { 0 } else { 2 };
        let median = format!("{:.digits$}", self.median);
        if self.least == self.greatest {
            return median;
        }
        format!(
            "{median} ({:.digits$} to {:.digits$})",
            self.least, self.greatest
        )
    }
}

impl Figures {
    pub fn add(&mut self, opening: &Opening, work: &Work, measured: Measured) {
        let cell = self.cells.entry((opening.name, work.name)).or_default();
        cell.push(measured);
    }

    /// Remembers that the opening found other entries than there are.
    pub fn add_wrong(&mut self, opening: &Opening, work: &Work, found: Answers, of: Answers) {
        let counts = (found.count, of.count);
        self.wrong.insert((opening.name, work.name), counts);
    }

    fn rounds(&self, opening: &'static str, work: &'static str) -> &[Measured] {
        self.cells.get(&(opening, work)).map_or(&[], Vec::as_slice)
    }

    fn all(&self, opening: &'static str, work: &'static str) -> impl Iterator<Item = f64> {
        let rounds = self.rounds(opening, work).iter();
        rounds.map(|measured| measured.figure)
    }

    fn spread(&self, opening: &'static str, work: &'static str) -> Option<Spread> {
        Spread::of(self.all(opening, work))
    }

    fn disk_bytes(&self, opening: &'static str, work: &'static str) -> Option<f64> {
        let rounds = self.rounds(opening, work).iter();
        let bytes = Spread::of(rounds.map(|measured| measured.disk_bytes));
        bytes
            .filter(|_| self.disk_is_counted)
            .map(|spread| spread.median)
    }

    /// The first opening's time divided by that of the second, round by round, since one noisy minute affects both.
    fn ratio(
        &self,
        of: (&'static str, &'static str),
        to: (&'static str, &'static str),
    ) -> Option<Spread> {
        let (of, to) = (self.rounds(of.0, of.1), self.rounds(to.0, to.1));
        Spread::of(of.iter().zip(to).map(|(of, to)| of.figure / to.figure))
    }

    /// A table with a row for each opening and a column for each work.
    fn matrix(
        &self,
        openings: &[Opening],
        works: &[Work],
        cell: impl Fn(&'static str, &'static str) -> String,
    ) -> String {
        let measured =
            |opening: &Opening, work: &Work| self.cells.contains_key(&(opening.name, work.name));
        let works: Vec<&Work> = works
            .iter()
            .filter(|work| openings.iter().any(|opening| measured(opening, work)))
            .collect();
        let mut text = header(
            "how the table is opened",
            works.iter().map(|work| work.what),
        );
        for opening in openings {
            if works.iter().any(|work| measured(opening, work)) {
                let cells = works.iter().map(|work| cell(opening.name, work.name));
                row(&mut text, opening.what, cells);
            }
        }
        text
    }

    /// docs/performance.md: as users open a table, warm.
    pub fn warm_matrix(&self) -> String {
        self.matrix(WARM, WARM_WORK, |opening, work| {
            self.warm_cell(opening, work)
        })
    }

    fn warm_cell(&self, opening: &'static str, work: &'static str) -> String {
        let Some(spread) = self.spread(opening, work) else {
            return "-".into();
        };
        let mut cell = spread.mark(&match work {
            HELD => format!("{:.1} MB", spread.median / 1e6),
            _ => time(spread.median),
        });
        if let Some((found, of)) = self.wrong.get(&(opening, work)) {
            cell += &format!(" (wrong: {found} of {of} found)");
        }
        cell
    }

    /// docs/performance.md: as users open a table, cold.
    pub fn cold_matrix(&self) -> String {
        self.matrix(COLD, COLD_WORK, |opening, work| {
            self.cold_cell(opening, work)
        })
    }

    fn cold_cell(&self, opening: &'static str, work: &'static str) -> String {
        let Some(spread) = self.spread(opening, work) else {
            return "-".into();
        };
        let cell = match (work, self.disk_bytes(opening, work)) {
            (TURNS, _) => format!("{:.2}", spread.median),
            (_, None) => time(spread.median),
            (_, Some(bytes)) => format!("{}, {}", time(spread.median), size(bytes)),
        };
        spread.mark(&cell)
    }

    /// docs/performance.md: building.
    pub fn build_table(&self) -> String {
        let mut text = header("built by", ["time per entry", "bytes on disk"]);
        for opening in BUILD {
            if let Some(cells) = self.written(opening.name, BUILD_WORK.name) {
                row(&mut text, opening.what, cells);
            }
        }
        text
    }

    /// docs/performance.md: databases. `before` has the sizes of the old ones, by the name of the work.
    pub fn database_table(&self, before: impl Fn(&str) -> Option<u64>) -> String {
        let mut text = header("work", ["time", "bytes before", "bytes after"]);
        for (work, openings) in DATABASES {
            for opening in *openings {
                if let Some([time, after]) = self.written(opening.name, work.name) {
                    let before = before(work.name).map_or("-".into(), |bytes| size(bytes as f64));
                    row(&mut text, opening.what, [time, before, after]);
                }
            }
        }
        text
    }

    /// Time and size of what was written.
    fn written(&self, opening: &'static str, work: &'static str) -> Option<[String; 2]> {
        let spread = self.spread(opening, work)?;
        let rounds = self.rounds(opening, work).iter();
        let bytes = Spread::of(rounds.map(|measured| measured.disk_bytes))?;
        let cells = [time(spread.median), size(bytes.median)];
        Some([spread.mark(&cells[0]), bytes.mark(&cells[1])])
    }
}

/// README.md, "Speed": for each way of opening, also the one whose cold lookups are those of a table in use.
pub fn readme(warm: &Figures, cold: &Figures) -> String {
    let rows = [
        ("`Table::open(path)`", "open", "preloaded"),
        ("`Source::map(path)`", "mapped", "mapped-preloaded"),
        (
            "C++ LevelDB 1.23, its default: mapped",
            "leveldb",
            "leveldb",
        ),
        (
            "C++ LevelDB, positional reads",
            "leveldb-pread",
            "leveldb-pread",
        ),
        ("LMDB", "lmdb", "lmdb"),
        ("`redb` 4.5", "redb", "redb"),
    ];
    let columns = [
        "open, first key: cold",
        "present key: cold",
        "present key",
        "absent key",
        "scan, per entry",
    ];
    let mut text = header("opened by", columns);
    for (what, opening, in_use) in rows {
        let in_cache = |work| warm.warm_cell(opening, work);
        let cells = [
            cold.cold_cell(opening, "first"),
            cold.cold_cell(in_use, "present"),
            in_cache("present"),
            in_cache("absent"),
            in_cache("forward"),
        ];
        row(&mut text, what, cells);
    }
    text
}

/// The goals that were measured, and which of them are met.
pub fn goals(warm: &Figures, cold: &Figures) -> String {
    let mut text = header("goal", ["measured", "must reach", "aim", ""]);
    for goal in GOALS {
        let figures = if goal.cold { cold } else { warm };
        let Some(measured) = goal.measured(figures) else {
            continue;
        };
        let relation = if goal.measure == Measure::TimesAsFast {
            ">="
        } else {
            "<="
        };
        let verdict = match (
            goal.reaches(measured.median, goal.must),
            goal.reaches(measured.median, goal.aim),
        ) {
            (_, true) => "aim reached",
            (true, _) => "reached",
            _ => "**not reached**",
        };
        let cells = [
            measured.show(),
            format!("{relation} {}", goal.must),
            format!("{relation} {}", goal.aim),
            verdict.into(),
        ];
        row(&mut text, goal.what, cells);
    }
    text
}

impl Goal {
    fn measured(&self, figures: &Figures) -> Option<Spread> {
        let ours = (self.ours, self.work);
        let theirs = (self.theirs, self.their_work.unwrap_or(self.work));
        match self.measure {
            Measure::TimesAsFast => figures.ratio(theirs, ours),
            Measure::TimesTheTime => figures.ratio(ours, theirs),
            Measure::Figure => Spread::of(figures.all(ours.0, ours.1)),
            Measure::DiskBytes => Spread::of(figures.disk_bytes(ours.0, ours.1)),
        }
    }

    fn reaches(&self, measured: f64, goal: f64) -> bool {
        match self.measure {
            Measure::TimesAsFast => measured >= goal,
            Measure::TimesTheTime | Measure::Figure | Measure::DiskBytes => measured <= goal,
        }
    }
}

pub fn header(title: &str, columns: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut text = format!("| {title} |");
    let mut line = String::from("|---|");
    for column in columns {
        text = text + " " + column.as_ref() + " |";
        line += "---:|";
    }
    text + "\n" + &line + "\n"
}

pub fn row(text: &mut String, title: &str, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<String> = cells.into_iter().collect();
    // Writing to a string does not fail.
    let _ = writeln!(text, "| {title} | {} |", cells.join(" | "));
}

/// Shows nanoseconds.
fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 99.95 => format!("{n:.1} ns"),
        n if n < 999.5 => format!("{n:.0} ns"),
        n if n < 9995.0 => format!("{:.2} µs", n / 1e3),
        n if n < 999_950.0 => format!("{:.1} µs", n / 1e3),
        n if n < 999_950_000.0 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// Shows 1234567 as `1,234,567`.
fn thousands(n: usize) -> String {
    if n < 1000 {
        return n.to_string();
    }
    format!("{},{:03}", thousands(n / 1000), n % 1000)
}

/// Shows bytes.
fn size(bytes: f64) -> String {
    match bytes {
        b if b < 999_950.0 => format!("{} B", thousands(b.round() as usize)),
        b => format!("{:.1} MB", b / 1e6),
    }
}
