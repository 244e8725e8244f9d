//! The rows of the bench: what is done to which tables.

use anyhow::{Result, bail};

use crate::data::{Data, Kind, Shape};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probes {
    Present,
    Absent,
    /// Present and absent by turns.
    Mixed,
    /// Present, by Zipf's law; hot keys are far apart.
    Scattered,
    /// Present, by Zipf's law; hot keys are neighbours.
    Ranges,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Looks keys up, and is lent the values.
    Lent(Probes),
    /// Looks keys up, and keeps each value until the next.
    Bytes(Probes),
    /// Looks keys up, so many in a call.
    Many(usize),
    /// Seeks a key, and takes so many entries from there on.
    Seek(usize),
    Scan {
        back: bool,
        values: bool,
    },
    Open,
}

impl Work {
    pub fn probes(self) -> Option<Probes> {
        match self {
            Work::Lent(probes) | Work::Bytes(probes) => Some(probes),
            Work::Many(_) | Work::Seek(_) => Some(Probes::Present),
            Work::Scan { .. } | Work::Open => None,
        }
    }
}

/// What the same process does for comparison, right after the row's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// The same work on mapped tables.
    Map,
    /// One read of the last 64 KiB of the file.
    Pread,
}

#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    pub group: &'static str,
    pub what: &'static str,
    pub data: Data,
    pub work: Work,
    /// Keys of a pass; of a scan, 0.
    pub keys: usize,
    /// Passes that are timed.
    pub passes: usize,
    pub mapped: bool,
    /// Whether it is run with random keys, too.
    pub random: bool,
    pub beside: Option<Beside>,
}

const fn data(entries: usize, tables: usize, kind: Kind) -> Data {
    Data {
        entries,
        tables,
        kind,
    }
}

const MILLION: Data = data(1_000_000, 1, Kind::LevelDb);

const PRESENT: Row = Row {
    name: "present",
    group: "lookup",
    what: "present key, lent",
    data: MILLION,
    work: Work::Lent(Probes::Present),
    keys: 200_000,
    passes: 1,
    mapped: true,
    random: true,
    beside: None,
};

const SCAN: Row = Row {
    name: "scan",
    what: "scan, values touched",
    work: Work::Scan {
        back: false,
        values: true,
    },
    keys: 0,
    passes: 12,
    ..PRESENT
};

const OPEN: Row = Row {
    name: "open-leveldb",
    what: "opening, LevelDB's table of 2 MB",
    data: data(20_000, 1, Kind::LevelDb),
    work: Work::Open,
    keys: 1,
    passes: 5_000,
    mapped: false,
    random: false,
    beside: Some(Beside::Pread),
    ..PRESENT
};

const DEFAULT: Row = Row {
    name: "default-20k",
    group: "default",
    what: "`Table::open`: present key, 20 k entries (2 MB), LevelDB's",
    data: data(20_000, 1, Kind::LevelDb),
    mapped: false,
    random: false,
    beside: Some(Beside::Map),
    ..PRESENT
};

pub const ROWS: &[Row] = &[
    PRESENT,
    Row {
        name: "present-bytes",
        what: "present key, as `Bytes`",
        work: Work::Bytes(Probes::Present),
        ..PRESENT
    },
    Row {
        name: "present-default",
        what: "present key, lent, default filter",
        data: data(1_000_000, 1, Kind::Default),
        ..PRESENT
    },
    Row {
        name: "present-100k",
        what: "present key, lent, 100 k entries",
        data: data(100_000, 1, Kind::LevelDb),
        passes: 4,
        ..PRESENT
    },
    Row {
        name: "present-4m",
        what: "present key, lent, 4 M entries",
        data: data(4_000_000, 1, Kind::LevelDb),
        ..PRESENT
    },
    Row {
        name: "absent",
        what: "absent key",
        work: Work::Lent(Probes::Absent),
        passes: 6,
        ..PRESENT
    },
    Row {
        name: "seek",
        what: "seek, then ten entries",
        work: Work::Seek(10),
        ..PRESENT
    },
    Row {
        name: "many",
        what: "`get_many` of 256 keys, per key",
        work: Work::Many(256),
        ..PRESENT
    },
    SCAN,
    Row {
        name: "back",
        what: "back, values touched",
        work: Work::Scan {
            back: true,
            values: true,
        },
        ..SCAN
    },
    Row {
        name: "scan-keys",
        what: "scan, values not touched",
        work: Work::Scan {
            back: false,
            values: false,
        },
        passes: 24,
        ..SCAN
    },
    Row {
        name: "back-keys",
        what: "back, values not touched",
        work: Work::Scan {
            back: true,
            values: false,
        },
        ..SCAN
    },
    Row {
        name: "snappy-scan",
        what: "Snappy: scan, values touched",
        data: data(1_000_000, 1, Kind::Snappy),
        passes: 4,
        ..SCAN
    },
    Row {
        name: "snappy-present",
        what: "Snappy: present key, lent",
        data: data(1_000_000, 1, Kind::Snappy),
        ..PRESENT
    },
    OPEN,
    Row {
        name: "open-2m",
        what: "opening, 2 MB",
        data: data(20_000, 1, Kind::Default),
        ..OPEN
    },
    Row {
        name: "open-100m",
        what: "opening, 100 MB",
        data: data(870_000, 1, Kind::Default),
        ..OPEN
    },
    Row {
        name: "open-1g",
        what: "opening, 1 GB",
        data: data(8_700_000, 1, Kind::Default),
        passes: 2_000,
        ..OPEN
    },
    DEFAULT,
    Row {
        name: "default-20k-ours",
        what: "`Table::open`: present key, 20 k entries (2 MB), ours",
        data: data(20_000, 1, Kind::Default),
        ..DEFAULT
    },
    Row {
        name: "default-100k",
        what: "`Table::open`: present key, 100 k entries (12 MB), LevelDB's",
        data: data(100_000, 1, Kind::LevelDb),
        ..DEFAULT
    },
    Row {
        name: "default-ten",
        what: "`Table::open`: present key, ten tables of 2 MB",
        data: data(200_000, 10, Kind::LevelDb),
        ..DEFAULT
    },
    Row {
        name: "default-1m",
        what: "`Table::open`: present key, 1 M entries (120 MB)",
        data: MILLION,
        ..DEFAULT
    },
    Row {
        name: "default-fifty",
        what: "`Table::open`: present key, fifty tables of 2 MB",
        data: data(1_000_000, 50, Kind::LevelDb),
        ..DEFAULT
    },
];

/// A row with its shape of keys, and whether it is only a smoke.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub row: Row,
    pub shape: Shape,
}

impl Case {
    pub fn name(&self) -> String {
        match self.shape {
            Shape::Decimal => self.row.name.to_owned(),
            Shape::Random => format!("{}:random", self.row.name),
        }
    }
}

fn cases(quick: bool) -> impl Iterator<Item = Case> {
    ROWS.iter().flat_map(move |row| {
        let mut row = *row;
        if quick {
            row.data.entries = row.data.entries.min(20_000);
            row.data.tables = row.data.tables.min(10);
            row.keys = row.keys.min(5_000);
            row.passes = row.passes.min(10);
        }
        let shapes = if row.random { 2 } else { 1 };
        let shapes = [Shape::Decimal, Shape::Random].into_iter().take(shapes);
        shapes.map(move |shape| Case { row, shape })
    })
}

pub fn named(name: &str, quick: bool) -> Result<Case> {
    match cases(quick).find(|case| case.name() == name) {
        Some(case) => Ok(case),
        None => bail!("no row is called {name}"),
    }
}

/// The rows that `words` name: groups, rows with both shapes of keys, or one (`present:random`, `present:decimal`).
pub fn selected(words: &[String], quick: bool) -> Result<Vec<Case>> {
    let is_named = |case: &Case, word: &str| {
        let shape = format!("{:?}", case.shape).to_lowercase();
        let (row, only) = word.split_once(':').unwrap_or((word, &shape));
        only == shape && [case.row.name, case.row.group, "all"].contains(&row)
    };
    for word in words {
        if !cases(quick).any(|case| is_named(&case, word)) {
            bail!("no row or group is called {word}");
        }
    }
    let is_selected = |case: &Case| words.iter().any(|word| is_named(case, word));
    Ok(cases(quick).filter(is_selected).collect())
}
