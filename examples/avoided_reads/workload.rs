//! The present keys of a table, and the absent keys that are looked up.

use std::ops::Range;
use std::str::FromStr;

use fastrand::Rng;

/// The entries of a table, and absent keys to look up.
pub(crate) struct Workload {
    pub(crate) title: String,
    /// Sorted by key, each key once.
    pub(crate) entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys of the same kind that are not in `entries`, in random order.
    pub(crate) absent: Vec<Vec<u8>>,
}

/// The shape of generated keys.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Decimal,
    Hexadecimal,
    Url,
    /// A number in binary, most significant byte first. LevelDB's windows do worst on this shape. The keys of a
    /// window differ only in the last byte, which the Bloom filter's hash reads as the top byte of a word. It
    /// hardly mixes that byte into the low bits, and those select the bit of the filter.
    BinaryCounter,
    Random,
}

/// Length of a generated value in bytes.
const VALUE_LEN: usize = 100;

/// Fixed, so that every run looks up the same keys.
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

    /// Returns key number `n` of this shape. URLs are longer than 16 bytes, all other keys have 16.
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

/// Parses the name of a shape on the command line.
impl FromStr for Shape {
    type Err = String;

    fn from_str(name: &str) -> Result<Shape, String> {
        match name {
            "decimal" => Ok(Shape::Decimal),
            "hexadecimal" => Ok(Shape::Hexadecimal),
            "url" => Ok(Shape::Url),
            "counter" => Ok(Shape::BinaryCounter),
            "random" => Ok(Shape::Random),
            _ => Err(format!(
                "no shape `{name}`: expected decimal, hexadecimal, url, counter or random"
            )),
        }
    }
}

impl Workload {
    /// Makes key `2 * n` present for each `n` of `numbers`, and key `2 * n + 1` absent for up to `lookups` of them.
    /// Except for random keys, each absent key thus directly follows a present one.
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

    /// Sorts the entries and keeps one of each key. Drops absent keys that are present, and shuffles the others.
    pub(crate) fn new(
        title: String,
        mut entries: Vec<(Vec<u8>, Vec<u8>)>,
        mut absent: Vec<Vec<u8>>,
    ) -> Workload {
        entries.sort();
        entries.dedup_by(|a, b| a.0 == b.0);
        absent.retain(|key| entries.binary_search_by(|entry| entry.0.cmp(key)).is_err());
        Rng::with_seed(SEED).shuffle(&mut absent);
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
