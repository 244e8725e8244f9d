//! Keys that are there, and keys that are not.

use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::time::UNIX_EPOCH;

use fastrand::Rng;
use walkdir::WalkDir;

/// The entries of a table, and the keys that are looked up in vain.
pub(crate) struct Workload {
    pub(crate) title: String,
    /// Sorted by key, no key twice.
    pub(crate) entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// None of the keys of `entries`, but of the same kind and from among them, in no order.
    pub(crate) absent: Vec<Vec<u8>>,
}

/// What generated keys look like.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Decimal,
    Hexadecimal,
    Url,
    /// A number in binary, the largest byte first. Of all shapes the hardest on LevelDB's windows: the
    /// neighbours in a window differ in the last byte only, which the Bloom filter's hash reads as the
    /// top of a word and hardly stirs into the low bits, and those decide which bit of the filter is
    /// meant.
    BinaryCounter,
    Random,
}

/// Bytes of a generated value.
const VALUE_LEN: usize = 100;

/// So that every run asks the same.
const SEED: u64 = 1;

impl Shape {
    pub(crate) const ALL: [Shape; 5] = [
        Shape::Decimal,
        Shape::Hexadecimal,
        Shape::Url,
        Shape::BinaryCounter,
        Shape::Random,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Shape::Decimal => "Decimal keys",
            Shape::Hexadecimal => "Hexadecimal keys",
            Shape::Url => "URLs",
            Shape::BinaryCounter => "Big-endian binary counters",
            Shape::Random => "Random keys",
        }
    }

    /// Key number `n` of this shape: of 16 bytes, but for URLs.
    fn key(self, n: u64) -> Vec<u8> {
        match self {
            Shape::Decimal => format!("{n:016}").into_bytes(),
            Shape::Hexadecimal => format!("{n:016x}").into_bytes(),
            Shape::Url => format!("https://example.org/item?id={n:08}&lang=en").into_bytes(),
            Shape::BinaryCounter => u128::from(n).to_be_bytes().to_vec(),
            Shape::Random => Rng::with_seed(n).u128(..).to_be_bytes().to_vec(),
        }
    }
}

impl Workload {
    /// For each of `numbers`, an entry whose key is of twice that number; and up to `lookups` absent keys,
    /// whose numbers are the odd ones behind them, each once. So, but for random keys, an absent key lies
    /// between two that are present.
    pub(crate) fn generate(shape: Shape, numbers: Range<u64>, lookups: usize) -> Workload {
        let mut rng = Rng::with_seed(SEED);
        let mut numbers: Vec<_> = numbers.collect();
        let present = numbers.iter().map(|n| shape.key(2 * n));
        let entries = present
            .map(|key| (key, random_bytes(&mut rng, VALUE_LEN)))
            .collect();
        rng.shuffle(&mut numbers);
        let absent = numbers
            .iter()
            .take(lookups)
            .map(|n| shape.key(2 * n + 1))
            .collect();
        Workload::new(shape.title().into(), entries, absent)
    }

    /// The files under `dir`: path to size and modification time, in seconds since 1970, both as 8 bytes.
    /// Absent are `path.1`, `path.2` and so on, unless there are such files.
    pub(crate) fn files(dir: &Path, lookups: usize) -> Result<Workload, Box<dyn Error>> {
        let mut entries = Vec::new();
        let mut unreadable = 0;
        for entry in WalkDir::new(dir) {
            let (entry, metadata) = match entry.and_then(|e| Ok((e.metadata()?, e))) {
                Ok((metadata, entry)) => (entry, metadata),
                Err(e) if e.depth() == 0 => return Err(e.into()),
                Err(_) => {
                    unreadable += 1;
                    continue;
                }
            };
            if metadata.is_file() {
                let modified = metadata.modified()?.duration_since(UNIX_EPOCH);
                let seconds = modified.map_or(0, |time| time.as_secs());
                let value = [metadata.len().to_le_bytes(), seconds.to_le_bytes()].concat();
                entries.push((entry.path().as_os_str().as_encoded_bytes().to_vec(), value));
            }
        }
        if unreadable > 0 {
            eprintln!("{unreadable} files or directories could not be read and are left out");
        }
        if entries.is_empty() {
            return Err(format!("no files under {}", dir.display()).into());
        }
        let siblings = (1..).flat_map(|n| {
            let suffix = format!(".{n}");
            entries
                .iter()
                .map(move |(path, _)| [path, suffix.as_bytes()].concat())
        });
        let mut absent: Vec<_> = siblings.take(lookups).collect();
        Rng::with_seed(SEED).shuffle(&mut absent);
        let title = format!("Paths of the files under {}", dir.display());
        Ok(Workload::new(title, entries, absent))
    }

    fn new(
        title: String,
        mut entries: Vec<(Vec<u8>, Vec<u8>)>,
        mut absent: Vec<Vec<u8>>,
    ) -> Workload {
        entries.sort();
        entries.dedup_by(|a, b| a.0 == b.0);
        absent.retain(|key| entries.binary_search_by(|entry| entry.0.cmp(key)).is_err());
        Workload {
            title,
            entries,
            absent,
        }
    }
}

fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}
