//! The ways that users open a table, warm and cold, and the work that is measured on each; the ways to build tables and databases.

use crate::peer::Peer;

/// A way to open a table.
pub struct Opening {
    /// The name for `--openings`.
    pub name: &'static str,
    pub what: &'static str,
    pub peer: Peer,
    /// The peer's word for it.
    pub how: &'static str,
    pub table: &'static str,
}

const fn opening(
    name: &'static str,
    what: &'static str,
    peer: Peer,
    how: &'static str,
    table: &'static str,
) -> Opening {
    Opening {
        name,
        what,
        peer,
        how,
        table,
    }
}

use Peer::{
    BedrockLeveldb, Cdb, Coordinode, Disk, Fst, Leveldb, Leveltable, Lmdb, LsmTree, Redb, Rocksdb,
    RustyLeveldb, Sstable, TantivySstable,
};

// Opened in one way, warm and cold.
const ROCKSDB: Opening = opening("rocksdb", "RocksDB 7.8, Bloom", Rocksdb, "default", "raw");
const LSM_TREE: Opening = opening("lsm-tree", "`lsm-tree` 3.1", LsmTree, "default", "lsm-tree");
const COORDINODE: Opening = opening(
    "coordinode",
    "`coordinode-lsm-tree` 7.4",
    Coordinode,
    "default",
    "coordinode",
);
const REDB: Opening = opening("redb", "`redb` 4.5", Redb, "default", "redb");
const LMDB: Opening = opening("lmdb", "LMDB (`heed` 0.23)", Lmdb, "default", "lmdb");
const FST: Opening = opening(
    "fst",
    "`fst` 0.4, values in a flat file, both mapped",
    Fst,
    "default",
    "fst",
);
const TANTIVY: Opening = opening(
    "tantivy-sstable",
    "`tantivy-sstable` 0.27, values in a flat file, both mapped",
    TantivySstable,
    "default",
    "tantivy-sstable",
);
const SSTABLE: Opening = opening(
    "sstable",
    "`sstable` 0.11, a LevelDB table",
    Sstable,
    "default",
    "raw",
);
const RUSTY: Opening = opening(
    "rusty-leveldb",
    "`rusty-leveldb` 4.0, a database of its own",
    RustyLeveldb,
    "default",
    "rusty-leveldb",
);
const BEDROCK: Opening = opening(
    "bedrock-leveldb",
    "`bedrock-leveldb` 0.3, a LevelDB database",
    BedrockLeveldb,
    "default",
    "bedrock-leveldb",
);
const CDB: Opening = opening(
    "cdb64",
    "`cdb64` 0.2 (hash, unordered), mapped",
    Cdb,
    "default",
    "cdb64",
);

/// The openings that are measured with the file in the page cache.
pub const WARM: &[Opening] = &[
    opening(
        "open",
        "`Table::open(path)`",
        Leveltable,
        "default",
        "default",
    ),
    opening(
        "open-leveldb",
        "the same, LevelDB's filter",
        Leveltable,
        "default",
        "raw",
    ),
    opening(
        "open-snappy",
        "the same, Snappy",
        Leveltable,
        "default",
        "new",
    ),
    opening(
        "no-cache",
        "the same without a cache",
        Leveltable,
        "no-cache",
        "default",
    ),
    opening(
        "256-mib",
        "the same, a cache of 256 MiB",
        Leveltable,
        "256-mib",
        "default",
    ),
    opening("mapped", "mapped", Leveltable, "mapped", "default"),
    opening(
        "mapped-leveldb",
        "mapped, LevelDB's filter",
        Leveltable,
        "mapped",
        "raw",
    ),
    opening(
        "leveldb",
        "C++ LevelDB, its default (mapped)",
        Leveldb,
        "default",
        "raw",
    ),
    opening(
        "leveldb-pread",
        "C++ LevelDB, positional reads",
        Leveldb,
        "pread",
        "raw",
    ),
    opening(
        "leveldb-snappy",
        "C++ LevelDB, its default, Snappy",
        Leveldb,
        "default",
        "snappy",
    ),
    ROCKSDB,
    LSM_TREE,
    COORDINODE,
    REDB,
    LMDB,
    FST,
    CDB,
    TANTIVY,
    SSTABLE,
    RUSTY,
    BEDROCK,
];

/// The openings that are measured with none of the file in the page cache.
pub const COLD: &[Opening] = &[
    opening(
        "open",
        "`Table::open(path)`",
        Leveltable,
        "default",
        "default",
    ),
    opening(
        "open-leveldb",
        "the same, LevelDB's filter",
        Leveltable,
        "default",
        "raw",
    ),
    opening(
        "preloaded",
        "the same, index and filter preloaded",
        Leveltable,
        "preloaded",
        "default",
    ),
    opening(
        "preloaded-aligned",
        "the same, preloaded, aligned blocks",
        Leveltable,
        "preloaded",
        "aligned",
    ),
    opening("mapped", "mapped", Leveltable, "mapped", "default"),
    opening(
        "mapped-leveldb",
        "mapped, LevelDB's filter",
        Leveltable,
        "mapped",
        "raw",
    ),
    opening(
        "mapped-preloaded",
        "mapped, preloaded",
        Leveltable,
        "mapped-preloaded",
        "default",
    ),
    opening(
        "leveldb",
        "C++ LevelDB, its default (mapped)",
        Leveldb,
        "default",
        "raw",
    ),
    opening(
        "leveldb-pread",
        "C++ LevelDB, positional reads",
        Leveldb,
        "pread",
        "raw",
    ),
    opening(
        "disk",
        "the disk itself: the same blocks by `pread`",
        Disk,
        "default",
        "default",
    ),
    opening(
        "disk-aligned",
        "the same, aligned blocks",
        Disk,
        "default",
        "aligned",
    ),
    ROCKSDB,
    LSM_TREE,
    COORDINODE,
    REDB,
    LMDB,
    FST,
    CDB,
    TANTIVY,
    SSTABLE,
    RUSTY,
    BEDROCK,
];

/// Ways to build a table, or what another library has in its place, of entries in memory.
pub const BUILD: &[Opening] = &[
    opening(
        "default",
        "`TableBuilder::create(path)`, uncompressed; synced",
        Leveltable,
        "default",
        "default",
    ),
    opening(
        "raw",
        "the same, LevelDB's filter; synced",
        Leveltable,
        "default",
        "raw",
    ),
    opening(
        "new",
        "the same, this crate's filter, Snappy; synced",
        Leveltable,
        "default",
        "new",
    ),
    opening(
        "leveldb",
        "C++ LevelDB, `TableBuilder`; synced",
        Leveldb,
        "default",
        "raw",
    ),
    opening(
        "leveldb-snappy",
        "the same, Snappy; synced",
        Leveldb,
        "default",
        "snappy",
    ),
    Opening {
        what: "RocksDB 7.8, `SstFileWriter`, ingested into a database; synced",
        ..ROCKSDB
    },
    Opening {
        what: "`lsm-tree` 3.1, ingestion; synced",
        ..LSM_TREE
    },
    Opening {
        what: "`coordinode-lsm-tree` 7.4, ingestion; synced",
        ..COORDINODE
    },
    Opening {
        what: "`redb` 4.5, one transaction; synced",
        ..REDB
    },
    Opening {
        what: "LMDB (`heed` 0.23), one transaction, appended; synced",
        ..LMDB
    },
    Opening {
        what: "`fst` 0.4, values in a flat file; not synced",
        ..FST
    },
    Opening {
        what: "`cdb64` 0.2; not synced",
        ..CDB
    },
    Opening {
        what: "`tantivy-sstable` 0.27, values in a flat file; not synced",
        ..TANTIVY
    },
    Opening {
        what: "`sstable` 0.11, `TableBuilder`; not synced",
        ..SSTABLE
    },
    Opening {
        what: "`rusty-leveldb` 4.0, batches of 1,000; not synced",
        ..RUSTY
    },
    Opening {
        what: "`bedrock-leveldb` 0.3, batches of 1,000, one flush; not synced",
        ..BEDROCK
    },
];

/// Name of the opening that needs the tool.
pub const TOOL: &str = "tool";

/// Work on databases, and who does it. All are compressed with Snappy and have LevelDB's filter.
pub const DATABASES: &[(Work, &[Opening])] = &[
    (
        work("build", "build", "database-build", "keys"),
        &[
            opening(
                "builder",
                "build: `DatabaseBuilder`; synced",
                Leveltable,
                "builder",
                "snappy",
            ),
            opening(
                TOOL,
                "build: `leveltable build --database` from lines; synced",
                Leveltable,
                TOOL,
                "snappy",
            ),
            opening(
                "batches",
                "build: C++ LevelDB, batches of 1,000; not synced",
                Leveldb,
                "default",
                "snappy",
            ),
            opening(
                "batches-compacted",
                "build: the same, then `CompactRange`",
                Leveldb,
                "compacted",
                "snappy",
            ),
        ],
    ),
    (
        work("shrink", "shrink", "database-shrink", "keys"),
        &[
            opening(
                "compact-into",
                "shrink: `compact_into`; synced",
                Leveltable,
                "default",
                "snappy",
            ),
            opening(
                "compact-range",
                "shrink: C++ LevelDB, `CompactRange`",
                Leveldb,
                "default",
                "snappy",
            ),
        ],
    ),
    (
        work("repair", "repair", "database-repair", "keys"),
        &[
            opening(
                "repair",
                "repair: `repair`; synced",
                Leveltable,
                "default",
                "snappy",
            ),
            opening(
                "repair-db",
                "repair: C++ LevelDB, `RepairDB`",
                Leveldb,
                "default",
                "snappy",
            ),
        ],
    ),
];

impl Opening {
    /// Returns whether this opening can do that work.
    pub fn does(&self, work: &Work) -> bool {
        let batch = work.work.ends_with("get-many");
        match self.peer {
            // The tables of which it is known where the blocks lie.
            Leveltable if work.name == TURNS => self.table != "raw",
            _ if work.name == TURNS => false,
            Leveltable | Coordinode | Rocksdb => true,
            // It loses keys, and the first one must be there.
            Sstable if work.work.ends_with("first") => false,
            Disk => work.name == "present" || batch,
            // It has no order.
            Cdb => !batch && !matches!(work.name, "forward" | "backward" | "seek"),
            // Their streams have one direction, and the way back of rusty-leveldb skips entries.
            Fst | TantivySstable | RustyLeveldb => !batch && work.name != "backward",
            // It walks over all keys, or those of a prefix.
            BedrockLeveldb => !matches!(work.name, "backward" | "seek"),
            _ => !batch,
        }
    }

    /// Returns the peer's word for a work. Where the system reads ahead of a map, a pass of few lookups is enough: more
    /// would bring in the whole file. Absent keys read little but the index and the filter.
    pub fn word(&self, work: &Work) -> &'static str {
        let reads_ahead =
            self.name == "leveldb" || matches!(self.peer, Lmdb | Fst | Cdb | TantivySstable);
        match work.work {
            "cold-get" if reads_ahead && work.name == "present" => "cold-get-few",
            word => word,
        }
    }
}

/// A piece of work: a column of a table.
pub struct Work {
    /// The name for `--only`, after `warm-` or `cold-`.
    pub name: &'static str,
    pub what: &'static str,
    /// The peers' word for it.
    pub work: &'static str,
    pub probes: &'static str,
}

const fn work(
    name: &'static str,
    what: &'static str,
    work: &'static str,
    probes: &'static str,
) -> Work {
    Work {
        name,
        what,
        work,
        probes,
    }
}

pub const HELD: &str = "held";

/// Work whose figure is a ratio.
pub const TURNS: &str = "turns";

pub const WARM_WORK: &[Work] = &[
    work("open", "open", "open", "present"),
    work("first", "open, first key", "first", "present"),
    work(HELD, "held", "held", "present"),
    work("present", "get, present", "get", "present"),
    work("zipf", "get, present, Zipfian", "get", "zipf"),
    work("absent", "get, absent", "get", "absent"),
    work("batch", "batch", "get-many", "present"),
    work("forward", "scan, per entry", "forward", "keys"),
    work("backward", "scan backward", "backward", "keys"),
    work("seek", "seek and 10 entries", "seek", "starts"),
];

pub const BUILD_WORK: Work = work("build", "build", "build", "keys");

pub const COLD_WORK: &[Work] = &[
    work("open", "open", "cold-open", "present"),
    work("first", "open, first key", "cold-first", "present"),
    work("present", "get, present", "cold-get", "present"),
    work(
        TURNS,
        "time to that of `pread`, in turns",
        "cold-get-in-turns",
        "present",
    ),
    work("absent", "get, absent", "cold-get", "absent"),
    work("batch", "batch, per key", "cold-get-many", "present"),
    work("forward", "scan, per entry", "cold-forward", "scanned"),
];

/// A goal for the ratio of two openings' times, or for a figure of one.
pub struct Goal {
    pub what: &'static str,
    pub cold: bool,
    pub ours: &'static str,
    pub theirs: &'static str,
    pub work: &'static str,
    /// The other opening's work, if it is another one.
    pub their_work: Option<&'static str>,
    pub measure: Measure,
    pub must: f64,
    pub aim: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// How many times as fast as the other opening; more is better.
    TimesAsFast,
    /// The time divided by that of the other opening; less is better.
    TimesTheTime,
    /// The figure itself, which is a ratio; less is better.
    Figure,
    /// Bytes from disk of an operation; less is better.
    DiskBytes,
}

const FAST: Goal = Goal {
    what: "",
    cold: false,
    ours: "open",
    theirs: "leveldb",
    work: "present",
    their_work: None,
    measure: Measure::TimesAsFast,
    must: 1.0,
    aim: 1.2,
};

/// Lookups whose pieces of index and filter were read, beside reads of the same blocks.
const NEAR: Goal = Goal {
    cold: true,
    ours: "preloaded",
    theirs: "disk",
    measure: Measure::TimesTheTime,
    ..FAST
};

const TURN: Goal = Goal {
    work: TURNS,
    measure: Measure::Figure,
    ..NEAR
};

const BATCH: Goal = Goal {
    work: "batch",
    their_work: Some("present"),
    ..NEAR
};

pub const GOALS: &[Goal] = &[
    Goal {
        what: "warm, `Table::open(path)`: get present, to C++ LevelDB",
        ..FAST
    },
    Goal {
        what: "the same, LevelDB's filter on both sides",
        ours: "open-leveldb",
        ..FAST
    },
    Goal {
        what: "warm, `Table::open(path)`: scan, to C++ LevelDB",
        work: "forward",
        must: 1.5,
        aim: 2.0,
        ..FAST
    },
    Goal {
        what: "warm, `Table::open(path)`, Snappy: get present, to C++ LevelDB with Snappy",
        ours: "open-snappy",
        theirs: "leveldb-snappy",
        must: 1.35,
        aim: 1.35,
        ..FAST
    },
    Goal {
        what: "warm, `Table::open(path)`: get present, time to that without a cache",
        theirs: "no-cache",
        measure: Measure::TimesTheTime,
        must: 1.05,
        aim: 1.0,
        ..FAST
    },
    Goal {
        what: "warm, mapped: get present, to C++ LevelDB",
        ours: "mapped",
        must: 3.0,
        aim: 4.0,
        ..FAST
    },
    Goal {
        what: "warm, mapped: get absent, default filter, to C++ LevelDB",
        ours: "mapped",
        work: "absent",
        must: 15.0,
        aim: 20.0,
        ..FAST
    },
    Goal {
        what: "warm, mapped: scan, to C++ LevelDB",
        ours: "mapped",
        work: "forward",
        must: 3.5,
        aim: 4.0,
        ..FAST
    },
    Goal {
        what: "cold, preloaded: get present, time to that of `pread`s of as many bytes, in turns",
        must: 1.1,
        aim: 1.05,
        ..TURN
    },
    Goal {
        what: "the same, to that of `pread`s in a process of their own",
        must: 1.1,
        aim: 1.05,
        ..NEAR
    },
    Goal {
        what: "cold, mapped and preloaded: get present, time to that of `pread`s of as many bytes, in turns",
        ours: "mapped-preloaded",
        must: 1.25,
        aim: 1.1,
        ..TURN
    },
    Goal {
        what: "the same, to that of `pread`s in a process of their own",
        ours: "mapped-preloaded",
        must: 1.25,
        aim: 1.1,
        ..NEAR
    },
    Goal {
        what: "cold, `get_many` of 256: time to that of one `pread` after another",
        must: 0.5,
        aim: 0.4,
        ..BATCH
    },
    Goal {
        what: "cold, `get_many` of 256: time to that of 64 reads in flight",
        their_work: Some("batch"),
        must: 1.4,
        aim: 1.2,
        ..BATCH
    },
    Goal {
        what: "the same, aligned: to one `pread` after another",
        ours: "preloaded-aligned",
        theirs: "disk-aligned",
        must: 0.5,
        aim: 0.4,
        ..BATCH
    },
    Goal {
        what: "the same, aligned: to 64 reads in flight",
        ours: "preloaded-aligned",
        theirs: "disk-aligned",
        their_work: Some("batch"),
        must: 1.4,
        aim: 1.2,
        ..BATCH
    },
    Goal {
        what: "cold, preloaded: get absent, default filter, to C++ LevelDB",
        cold: true,
        ours: "preloaded",
        work: "absent",
        must: 250.0,
        aim: 400.0,
        ..FAST
    },
    Goal {
        what: "cold: bytes from disk of a present key, aligned",
        ours: "preloaded-aligned",
        measure: Measure::DiskBytes,
        must: 4200.0,
        aim: 4096.0,
        ..NEAR
    },
];
