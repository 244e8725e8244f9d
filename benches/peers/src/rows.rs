//! The rows of the table: the work to measure, and the goals.

/// The size of a row's workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// The number of entries of `--entries`.
    Main,
    /// A tenth of the entries, which fits in the last-level cache.
    Tenth,
    /// A fiftieth of the entries: a table of 2 MB, the size that LevelDB writes by default.
    Fiftieth,
}

/// The unit of a row's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Time of one operation. The goal is a ratio to C++ LevelDB's time.
    Nanoseconds,
    Microseconds,
    /// Bytes of memory.
    Kilobytes,
    /// Work of two threads divided by that of one in the same time. The goal is a value of this figure.
    TimesOneThread,
}

pub struct Row {
    /// The name for `--only`.
    pub name: &'static str,
    pub what: &'static str,
    pub size: Size,
    pub unit: Unit,
    /// The work and the table for leveltable.
    pub ours: (&'static str, &'static str),
    /// The work and the table for the other peers.
    pub theirs: (&'static str, &'static str),
    pub probes: &'static str,
    /// The goal; `None` for rows without one.
    pub target: Option<f64>,
}

const LOOKUP: Row = Row {
    name: "",
    what: "",
    size: Size::Main,
    unit: Unit::Nanoseconds,
    ours: ("get-with", "raw"),
    theirs: ("get", "raw"),
    probes: "present",
    target: None,
};

const SCAN: Row = Row {
    probes: "starts",
    ..LOOKUP
};

const OPEN: Row = Row {
    unit: Unit::Microseconds,
    ..LOOKUP
};

pub const ROWS: &[Row] = &[
    Row {
        name: "present",
        what: "get, present, mapped, `get_with`",
        target: Some(2.0),
        ..LOOKUP
    },
    Row {
        name: "present-bytes",
        what: "get, present, mapped, `get`",
        ours: ("get", "raw"),
        target: Some(1.9),
        ..LOOKUP
    },
    Row {
        name: "present-tenth",
        what: "get, present, a tenth of the entries",
        size: Size::Tenth,
        target: Some(3.3),
        ..LOOKUP
    },
    Row {
        name: "present-snappy",
        what: "get, present, Snappy, all blocks in the cache",
        ours: ("get-with", "snappy"),
        theirs: ("get", "snappy"),
        target: Some(2.0),
        ..LOOKUP
    },
    Row {
        name: "get-many",
        what: "get, present, mapped, `get_many` of 256 keys",
        ours: ("get-many", "raw"),
        theirs: ("get-many", "raw"),
        target: Some(3.0),
        ..LOOKUP
    },
    Row {
        name: "absent",
        what: "get, absent, LevelDB's 2 KiB filters",
        probes: "absent",
        target: Some(3.0),
        ..LOOKUP
    },
    Row {
        name: "absent-whole",
        what: "get, absent, one Bloom filter for the table",
        ours: ("get-with", "whole"),
        probes: "absent",
        ..LOOKUP
    },
    Row {
        name: "absent-default",
        what: "get, absent, `WriteOptions::new()`",
        ours: ("get-with", "default"),
        probes: "absent",
        target: Some(10.0),
        ..LOOKUP
    },
    Row {
        name: "forward",
        what: "scan forward, cursor, per entry",
        ours: ("forward", "raw"),
        theirs: ("forward", "raw"),
        target: Some(4.0),
        ..SCAN
    },
    Row {
        name: "backward",
        what: "scan backward, cursor, per entry",
        ours: ("backward", "raw"),
        theirs: ("backward", "raw"),
        target: Some(8.0),
        ..SCAN
    },
    Row {
        name: "seek",
        what: "seek to an absent key, then 10 entries",
        ours: ("seek", "raw"),
        theirs: ("seek", "raw"),
        target: Some(2.5),
        ..SCAN
    },
    Row {
        name: "build",
        what: "build into memory, per entry",
        ours: ("build-memory", "raw"),
        theirs: ("build-memory", "raw"),
        target: Some(2.3),
        ..SCAN
    },
    Row {
        name: "build-snappy",
        what: "build into memory, Snappy, per entry",
        ours: ("build-memory", "snappy"),
        theirs: ("build-memory", "snappy"),
        target: Some(2.0),
        ..SCAN
    },
    Row {
        name: "build-small",
        what: "build into memory, a fiftieth of the entries, per entry",
        size: Size::Fiftieth,
        ours: ("build-memory", "raw"),
        theirs: ("build-memory", "raw"),
        ..SCAN
    },
    Row {
        name: "build-default",
        what: "build into memory, `WriteOptions::new()` without compression, per entry",
        ours: ("build-memory", "default"),
        theirs: ("build-memory", "raw"),
        ..SCAN
    },
    Row {
        name: "build-file",
        what: "build into a file, not synced, per entry",
        ours: ("build-file", "raw"),
        theirs: ("build-file", "raw"),
        ..SCAN
    },
    Row {
        name: "build-file-snappy",
        what: "build into a file, not synced, Snappy, per entry",
        ours: ("build-file", "snappy"),
        theirs: ("build-file", "snappy"),
        ..SCAN
    },
    Row {
        name: "open-small",
        what: "open, a fiftieth of the entries",
        size: Size::Fiftieth,
        ours: ("open", "raw"),
        theirs: ("open", "raw"),
        ..OPEN
    },
    Row {
        name: "open-small-snappy",
        what: "open, a fiftieth of the entries, Snappy",
        size: Size::Fiftieth,
        ours: ("open", "snappy"),
        theirs: ("open", "snappy"),
        target: Some(1.0),
        ..OPEN
    },
    Row {
        name: "open",
        what: "open",
        ours: ("open", "raw"),
        theirs: ("open", "raw"),
        ..OPEN
    },
    Row {
        name: "open-snappy",
        what: "open, Snappy",
        ours: ("open", "snappy"),
        theirs: ("open", "snappy"),
        target: Some(1.0),
        ..OPEN
    },
    Row {
        name: "memory",
        what: "memory that an open table holds",
        unit: Unit::Kilobytes,
        ours: ("memory", "raw"),
        theirs: ("memory", "raw"),
        ..OPEN
    },
    Row {
        name: "memory-snappy",
        what: "memory that an open table holds, Snappy",
        unit: Unit::Kilobytes,
        ours: ("memory", "snappy"),
        theirs: ("memory", "snappy"),
        ..OPEN
    },
    Row {
        name: "threads",
        what: "two threads, present, `get_with`",
        unit: Unit::TimesOneThread,
        ours: ("threads-get-with", "raw"),
        theirs: ("threads", "raw"),
        target: Some(1.9),
        ..LOOKUP
    },
    Row {
        name: "threads-default",
        what: "two threads, present, `get_with`, `WriteOptions::new()`",
        unit: Unit::TimesOneThread,
        ours: ("threads-get-with", "default"),
        theirs: ("threads", "raw"),
        ..LOOKUP
    },
    Row {
        name: "threads-bytes",
        what: "two threads, present, `get`",
        unit: Unit::TimesOneThread,
        ours: ("threads-get", "raw"),
        theirs: ("threads", "raw"),
        target: Some(1.6),
        ..LOOKUP
    },
];
