//! The entries, the tables and the keys to look up, in a directory for all processes; and what they find.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use leveltable::{Compression, WriteOptions};

pub const KEY_LEN: usize = 16;
pub const VALUE_LEN: usize = 100;
pub type Key = [u8; KEY_LEN];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Even numbers in 16 decimal digits. The odd numbers between them are absent.
    Decimal,
    /// Random bytes.
    Random,
}

/// Which keys are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    Present,
    Absent,
    /// Half of them present.
    Mixed,
    /// Present, by Zipf's law; hot keys are far apart.
    Scattered,
    /// Present, by Zipf's law; hot keys are neighbours.
    Ranges,
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As C++ LevelDB does, without compression.
    LevelDb,
    /// With the default filter, without compression.
    Default,
    /// As C++ LevelDB does, with Snappy.
    Snappy,
}

impl Kind {
    pub fn options(self) -> WriteOptions {
        match self {
            Kind::LevelDb => WriteOptions::leveldb().compression(Compression::None),
            Kind::Default => WriteOptions::new().compression(Compression::None),
            Kind::Snappy => WriteOptions::leveldb().compression(Compression::Snappy),
        }
    }
}

/// Entries, and the tables that they are divided among, each a range of the keys.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    pub entries: usize,
    pub tables: usize,
    pub kind: Kind,
}

/// Keys to look up, and the number of each one's table.
#[derive(Default)]
pub struct Probes {
    pub keys: Vec<Key>,
    pub tables: Vec<u8>,
}

/// A probe in a file: the number of its table, and its key.
pub const PROBE_LEN: usize = 1 + KEY_LEN;

impl Data {
    pub fn directory(&self, files: &Path, shape: Shape) -> PathBuf {
        files.join(format!("{shape:?}-{}-{}", self.entries, self.tables))
    }

    pub fn table(&self, files: &Path, shape: Shape, number: usize) -> PathBuf {
        let name = format!("{:?}-{number}.ldb", self.kind);
        self.directory(files, shape).join(name)
    }

    pub fn probes(&self, files: &Path, shape: Shape, keys: Keys) -> PathBuf {
        self.directory(files, shape).join(format!("{keys:?}"))
    }

    pub fn redb(&self, files: &Path, shape: Shape) -> PathBuf {
        self.directory(files, shape).join("redb")
    }

    /// The files of all keys, and of values that entries take in turns.
    pub fn entries(&self, files: &Path, shape: Shape) -> (PathBuf, PathBuf) {
        let directory = self.directory(files, shape);
        (directory.join("keys"), directory.join("values"))
    }

    pub fn read_entries(&self, files: &Path, shape: Shape) -> Result<(Vec<Key>, Vec<u8>)> {
        let (keys, values) = self.entries(files, shape);
        Ok((read(&keys)?.as_chunks().0.to_vec(), read(&values)?))
    }

    pub fn read_probes(&self, files: &Path, shape: Shape, keys: Keys) -> Result<Probes> {
        let bytes = read(&self.probes(files, shape, keys))?;
        let (probes, _) = bytes.as_chunks::<PROBE_LEN>();
        let key = |probe: &[u8; PROBE_LEN]| *probe.last_chunk().expect("a probe ends with a key");
        Ok(Probes {
            keys: probes.iter().map(key).collect(),
            tables: probes.iter().map(|probe| probe[0]).collect(),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

/// What was found, in which order. `benches/peers/cpp/workload.h` has the same sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    pub checksum: u64,
    pub count: u64,
}

impl Answers {
    #[inline]
    pub fn value(&mut self, value: &[u8]) {
        self.add(first_word(value));
    }

    #[inline]
    pub fn entry(&mut self, key: &[u8], value: &[u8]) {
        let key = key.last_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        self.add(key ^ first_word(value));
    }

    #[inline]
    fn add(&mut self, word: u64) {
        self.checksum = self.checksum.rotate_left(1).wrapping_add(word);
        self.count += 1;
    }
}

#[inline]
fn first_word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}
