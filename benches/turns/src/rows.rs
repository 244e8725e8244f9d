//! The rows of the bench: what is done to which tables.

use anyhow::{Result, bail};

use crate::data::{Data, Keys, Kind, Shape};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Looks keys up, and is lent the values.
    Lent(Keys),
    /// Looks keys up, and keeps each value until the next.
    Bytes,
    /// Looks keys up, so many in a call.
    Many(usize),
    /// Seeks a key, and takes so many entries from there on.
    Seek(usize),
    Scan {
        back: bool,
        values: bool,
    },
    /// Two threads look keys up in one table; beside it, each in a table of its own.
    Threads,
    Open,
    Build,
    /// Builds a table of small entries with the default filter; beside it, without a filter.
    BuildNumbers,
}

impl Work {
    pub fn probes(self) -> Option<Keys> {
        match self {
            Work::Lent(keys) => Some(keys),
            Work::Bytes | Work::Many(_) | Work::Seek(_) => Some(Keys::Present),
            Work::Threads => Some(Keys::Mixed),
            Work::Scan { .. } | Work::Open | Work::Build | Work::BuildNumbers => None,
        }
    }
}

/// What the same process does right after a part of the row's work, for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// The same work on mapped tables.
    Map,
    /// Lookups one by one.
    Loop,
    /// Opening the file and reading its last 64 KiB.
    Pread,
    /// Each thread has a table of its own.
    TwoTables,
    NoFilter,
}

#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    pub group: &'static str,
    pub what: &'static str,
    pub data: Data,
    pub work: Work,
    pub mapped: bool,
    /// Keys, entries or openings of a part of the work; a part of a scan is all of it. What fits in the processor's caches is used
    /// several times in a part, since the other sides displace it in between.
    pub len: usize,
    /// Sides take turns after each part.
    pub parts: usize,
    /// Keys that are looked up before the first part, to fill caches. Mapped tables need a sixth of them, after a scan.
    pub warm: usize,
    /// Whether it is run with random keys, too.
    pub random: bool,
    pub beside: Option<Beside>,
    /// Whether C++ LevelDB and `redb` take their turns.
    pub leveldb: bool,
    pub redb: bool,
}

const fn data(entries: usize, tables: usize, kind: Kind) -> Data {
    Data {
        entries,
        tables,
        kind,
    }
}

const LEVELDB: Data = data(1_000_000, 1, Kind::LevelDb);
const OURS: Data = data(1_000_000, 1, Kind::Default);
const SNAPPY: Data = data(1_000_000, 1, Kind::Snappy);

const fn scan(back: bool, values: bool) -> Work {
    Work::Scan { back, values }
}

const PRESENT: Row = Row {
    name: "present",
    group: "lookup",
    what: "present key, lent",
    data: LEVELDB,
    work: Work::Lent(Keys::Present),
    mapped: true,
    len: 5_000,
    parts: 36,
    warm: 300_000,
    random: true,
    beside: None,
    leveldb: false,
    redb: false,
};

const SCAN: Row = Row {
    name: "scan",
    what: "scan, values touched",
    work: scan(false, true),
    parts: 12,
    ..PRESENT
};

const OPEN: Row = Row {
    name: "open-leveldb",
    what: "opening, LevelDB's table of 2 MB",
    data: data(20_000, 1, Kind::LevelDb),
    work: Work::Open,
    mapped: false,
    len: 100,
    random: false,
    beside: Some(Beside::Pread),
    ..PRESENT
};

const DEFAULT: Row = Row {
    name: "default-20k",
    group: "default",
    what: "present key, 20 k entries (2 MB), LevelDB's",
    data: data(20_000, 1, Kind::LevelDb),
    mapped: false,
    random: false,
    beside: Some(Beside::Map),
    ..PRESENT
};

const ZIPF: Row = Row {
    name: "zipf-scattered",
    what: "Zipfian, hot keys scattered, 120 MB",
    data: OURS,
    work: Work::Lent(Keys::Scattered),
    redb: true,
    ..DEFAULT
};

const BUILD: Row = Row {
    name: "build-raw",
    group: "build",
    what: "build, raw, LevelDB's filter",
    data: LEVELDB,
    work: Work::Build,
    parts: 2,
    random: false,
    leveldb: true,
    ..PRESENT
};

pub const ROWS: &[Row] = &[
    Row {
        leveldb: true,
        ..PRESENT
    },
    Row {
        name: "present-bytes",
        what: "present key, as `Bytes`",
        work: Work::Bytes,
        ..PRESENT
    },
    Row {
        name: "present-default",
        what: "present key, lent, default filter",
        data: OURS,
        ..PRESENT
    },
    Row {
        name: "present-100k",
        what: "present key, lent, 100 k entries",
        data: data(100_000, 1, Kind::LevelDb),
        len: 15_000,
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
        what: "absent key, LevelDB's filter",
        work: Work::Lent(Keys::Absent),
        len: 20_000,
        leveldb: true,
        ..PRESENT
    },
    Row {
        name: "seek",
        what: "seek, then ten entries",
        work: Work::Seek(10),
        len: 4_000,
        leveldb: true,
        ..PRESENT
    },
    Row {
        name: "many",
        what: "`get_many` of 256 keys, per key",
        work: Work::Many(256),
        len: 256 * 20,
        ..PRESENT
    },
    Row {
        leveldb: true,
        ..SCAN
    },
    Row {
        name: "back",
        what: "back, values touched",
        work: scan(true, true),
        ..SCAN
    },
    Row {
        name: "scan-keys",
        what: "scan, values not touched",
        work: scan(false, false),
        ..SCAN
    },
    Row {
        name: "back-keys",
        what: "back, values not touched",
        work: scan(true, false),
        ..SCAN
    },
    Row {
        name: "snappy-scan",
        what: "Snappy: scan, values touched",
        data: SNAPPY,
        parts: 4,
        leveldb: true,
        ..SCAN
    },
    Row {
        name: "snappy-present",
        what: "Snappy: present key, lent",
        data: SNAPPY,
        len: 4_000,
        leveldb: true,
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
        data: data(920_000, 1, Kind::Default),
        ..OPEN
    },
    Row {
        name: "open-1g",
        what: "opening, 1 GB",
        data: data(9_200_000, 1, Kind::Default),
        len: 30,
        ..OPEN
    },
    Row {
        leveldb: true,
        ..DEFAULT
    },
    Row {
        name: "default-20k-ours",
        what: "present key, 20 k entries (2 MB), ours",
        data: data(20_000, 1, Kind::Default),
        ..DEFAULT
    },
    Row {
        name: "default-100k",
        what: "present key, 100 k entries (12 MB), LevelDB's",
        data: data(100_000, 1, Kind::LevelDb),
        leveldb: true,
        len: 20_000,
        ..DEFAULT
    },
    Row {
        name: "default-100k-ours",
        what: "present key, 100 k entries (12 MB), ours",
        data: data(100_000, 1, Kind::Default),
        len: 20_000,
        ..DEFAULT
    },
    Row {
        name: "default-ten",
        what: "present key, ten tables of 2 MB",
        data: data(200_000, 10, Kind::LevelDb),
        leveldb: true,
        len: 25_000,
        ..DEFAULT
    },
    Row {
        name: "default-1m",
        what: "present key, 1 M entries (120 MB)",
        data: OURS,
        redb: true,
        ..DEFAULT
    },
    Row {
        name: "default-fifty",
        what: "present key, fifty tables of 2 MB",
        data: data(1_000_000, 50, Kind::Default),
        ..DEFAULT
    },
    ZIPF,
    Row {
        name: "zipf-ranges",
        what: "Zipfian, hot ranges, 120 MB",
        work: Work::Lent(Keys::Ranges),
        ..ZIPF
    },
    Row {
        name: "default-many",
        what: "`get_many` of 256 keys, per key, 120 MB",
        data: OURS,
        work: Work::Many(256),
        len: 256 * 20,
        beside: Some(Beside::Loop),
        ..DEFAULT
    },
    Row {
        name: "default-absent",
        what: "absent key, 120 MB",
        data: OURS,
        work: Work::Lent(Keys::Absent),
        len: 20_000,
        beside: None,
        ..DEFAULT
    },
    Row {
        name: "default-seek",
        what: "seek, then ten entries, 120 MB",
        data: OURS,
        work: Work::Seek(10),
        len: 3_000,
        beside: None,
        ..DEFAULT
    },
    Row {
        name: "default-scan",
        what: "scan, values touched, 120 MB",
        data: OURS,
        work: scan(false, true),
        parts: 12,
        beside: None,
        ..DEFAULT
    },
    Row {
        name: "threads",
        group: "threads",
        what: "two threads, one table, half of the keys present",
        work: Work::Threads,
        len: 60_000,
        parts: 12,
        random: false,
        beside: Some(Beside::TwoTables),
        ..PRESENT
    },
    BUILD,
    Row {
        name: "build-snappy",
        what: "build, Snappy, LevelDB's filter",
        data: SNAPPY,
        ..BUILD
    },
    Row {
        name: "build-filter",
        what: "build, default filter, entries of 8 + 8 bytes",
        work: Work::BuildNumbers,
        len: 20_000_000,
        parts: 1,
        beside: Some(Beside::NoFilter),
        leveldb: false,
        ..BUILD
    },
];

/// A row with its shape of keys.
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
            row.len = row.len.min(5_000);
            row.parts = 2;
            row.warm = 5_000;
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

/// The rows that `words` name, with commas between: groups, rows with both shapes of keys, or with one (`present:random`).
pub fn selected(words: &str, quick: bool) -> Result<Vec<Case>> {
    let is_named = |case: &Case, word: &str| {
        let shape = format!("{:?}", case.shape).to_lowercase();
        let (row, only) = word.split_once(':').unwrap_or((word, &shape));
        only == shape && [case.row.name, case.row.group, "all"].contains(&row)
    };
    for word in words.split(',') {
        if !cases(quick).any(|case| is_named(&case, word)) {
            bail!("no row or group is called {word}");
        }
    }
    let is_selected = |case: &Case| words.split(',').any(|word| is_named(case, word));
    Ok(cases(quick).filter(is_selected).collect())
}
