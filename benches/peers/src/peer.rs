//! The libraries that are compared, and the processes that do their work.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::workload::{Answers, Measured};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    #[value(skip)]
    Leveltable,
    /// No library: the same bytes, with plain reads.
    #[value(skip)]
    Disk,
    Leveldb,
    Rocksdb,
    Sstable,
    LsmTree,
    Redb,
    Lmdb,
    Fst,
    TantivySstable,
    /// `cdb64`.
    #[value(name = "cdb64")]
    Cdb,
    /// `coordinode-lsm-tree`.
    Coordinode,
    RustyLeveldb,
    BedrockLeveldb,
}

impl Peer {
    /// The peers of the feature `databases`.
    pub const DATABASES: [Peer; 9] = [
        Peer::LsmTree,
        Peer::Coordinode,
        Peer::Redb,
        Peer::Lmdb,
        Peer::Fst,
        Peer::TantivySstable,
        Peer::Cdb,
        Peer::RustyLeveldb,
        Peer::BedrockLeveldb,
    ];

    /// The peers that a run has unless `--peers` names others.
    pub fn others() -> Vec<Peer> {
        let mut others = vec![Peer::Leveldb, Peer::Rocksdb, Peer::Sstable];
        if cfg!(feature = "databases") {
            others.extend(Peer::DATABASES);
        }
        others
    }

    pub fn name(self) -> &'static str {
        match self {
            Peer::Leveltable => "leveltable",
            Peer::Disk => "the disk",
            Peer::Leveldb => "C++ LevelDB",
            Peer::Rocksdb => "RocksDB",
            Peer::Sstable => "`sstable`",
            Peer::LsmTree => "`lsm-tree`",
            Peer::Redb => "`redb`",
            Peer::Lmdb => "LMDB",
            Peer::Fst => "`fst`",
            Peer::TantivySstable => "`tantivy-sstable`",
            Peer::Cdb => "`cdb64`",
            Peer::Coordinode => "`coordinode-lsm-tree`",
            Peer::RustyLeveldb => "`rusty-leveldb`",
            Peer::BedrockLeveldb => "`bedrock-leveldb`",
        }
    }

    /// Returns the name of a Rust peer's package.
    pub fn package(self) -> &'static str {
        match self {
            Peer::Lmdb => "lmdb-master-sys",
            peer => peer.name().trim_matches('`'),
        }
    }

    /// Returns whether the rows of the part `tuned` have this peer.
    pub fn is_tuned(self) -> bool {
        matches!(self, Peer::Leveldb | Peer::Rocksdb | Peer::Sstable)
    }

    /// Returns the program that does this peer's work. For Rust peers it is this program with another argument.
    fn program(self) -> Result<Command> {
        let cpp = |built: Option<&str>| match built {
            Some(program) => Ok(Command::new(program)),
            None => bail!(
                "the {} peer was not built: install its library, or name others with --peers",
                self.name()
            ),
        };
        let rust = |worker| -> Result<Command> {
            let mut program = Command::new(std::env::current_exe()?);
            program.args(["worker", worker]);
            Ok(program)
        };
        match self {
            Peer::Leveltable => rust("leveltable"),
            Peer::Disk => rust("disk"),
            Peer::Sstable => rust("sstable"),
            Peer::LsmTree => rust("lsm-tree"),
            Peer::Redb => rust("redb"),
            Peer::Lmdb => rust("lmdb"),
            Peer::Fst => rust("fst"),
            Peer::TantivySstable => rust("tantivy-sstable"),
            Peer::Cdb => rust("cdb64"),
            Peer::Coordinode => rust("coordinode"),
            Peer::RustyLeveldb => rust("rusty-leveldb"),
            Peer::BedrockLeveldb => rust("bedrock-leveldb"),
            Peer::Leveldb => cpp(option_env!("PEER_leveldb")),
            Peer::Rocksdb => cpp(option_env!("PEER_rocksdb")),
        }
    }

    /// Returns the version of the library that a peer in C++ is linked with. Those of crates are in Cargo.lock.
    pub fn linked_version(self) -> Result<String> {
        let output = self.program()?.output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Does one piece of work in a new process and returns the result that it printed.
    pub fn run(
        self,
        directory: &Path,
        work: &str,
        table: &str,
        probes: &str,
        opening: &str,
    ) -> Result<Measured> {
        let mut program = self.program()?;
        program.arg(directory).args([work, table, probes, opening]);
        let output = program.output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{} failed at {work} of {table}: {}{printed}",
            self.name(),
            String::from_utf8_lossy(&output.stderr)
        );
        parse(&printed).with_context(|| format!("{} printed {printed:?}", self.name()))
    }
}

/// Parses the line that a worker prints: figure, checksum in hexadecimal, count, bytes from disk.
fn parse(line: &str) -> Option<Measured> {
    let mut words = line.split_whitespace();
    Some(Measured {
        figure: words.next()?.parse().ok()?,
        answers: Answers {
            checksum: u64::from_str_radix(words.next()?, 16).ok()?,
            count: words.next()?.parse().ok()?,
        },
        disk_bytes: words.next()?.parse().ok()?,
    })
}

/// Prints what `parse` reads.
pub fn report(measured: Measured) {
    let Measured {
        figure,
        disk_bytes,
        answers: Answers { checksum, count },
    } = measured;
    println!("{figure:.3} {checksum:x} {count} {disk_bytes:.3}");
}
