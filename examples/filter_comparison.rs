//! Compares LevelDB's Bloom filter, Bloom filters with a better hash, a plain ribbon filter, and this crate's
//! ribbon filter: bits per key, false positives, and the time to build and to query.
//!
//! ```text
//! cargo run --release --example filter_comparison [keys ...]     # default: 100 10000 1000000
//! ```
//!
//! Each time is the best of several rounds. The filters take turns in each round, so that other load on the
//! machine affects all of them. `docs/filters.md` has the results of a run and discusses them.

use std::hint::black_box;
use std::time::Instant;

use leveltable::{
    BloomFilterPolicy, RibbonFilterPolicy,
    filter::{FilterBuilder, FilterPolicy},
};
use xxhash_rust::xxh3::xxh3_64;

fn main() {
    let sizes: Vec<usize> = std::env::args()
        .skip(1)
        .map(|arg| arg.parse().expect("a number of keys"))
        .collect();
    let sizes = if sizes.is_empty() {
        vec![100, 10_000, 1_000_000]
    } else {
        sizes
    };
    let policies: [(&str, Box<dyn FilterPolicy>); 6] = [
        ("LevelDB's Bloom", Box::new(BloomFilterPolicy::new(10))),
        ("Bloom, XXH3", Box::new(XxBloom { blocked: false })),
        ("Bloom in cache lines", Box::new(XxBloom { blocked: true })),
        ("plain ribbon of 128", Box::new(PlainRibbon)),
        ("RibbonFilterPolicy", Box::new(RibbonFilterPolicy::new(10))),
        (
            "RibbonFilterPolicy, 8 bits",
            Box::new(RibbonFilterPolicy::new(8)),
        ),
    ];

    for &keys in &sizes {
        println!("\n{keys} decimal keys of 16 bytes\n");
        println!("| filter | bits per key | false positives | build | absent key | present key |");
        println!("|---|---|---|---|---|---|");
        let present = Keys::new(keys, |i| decimal(2 * i));
        let absent = Keys::new(200_000, |i| decimal(2 * (random(i) % (1 << 40)) + 1));
        let asked = Keys::new(200_000, |i| decimal(2 * (random(i) % keys as u64)));
        let mut rows = vec![Row::default(); policies.len()];
        for _ in 0..if keys > 1_000_000 { 3 } else { 10 } {
            for (row, (_, policy)) in rows.iter_mut().zip(&policies) {
                row.measure(policy.as_ref(), &present, &absent, &asked);
            }
        }
        for (row, (name, policy)) in rows.iter().zip(&policies) {
            println!(
                "| {name} | {:.2} | {:.3} % | {:.0} ns | {:.0} ns | {:.0} ns |",
                (row.filter.len() + BLOCK_OVERHEAD) as f64 * 8.0 / keys as f64,
                100.0 * rate(policy.as_ref(), &row.filter, |i| decimal(2 * i + 1)),
                row.build,
                row.absent,
                row.present,
            );
        }
    }

    println!("\nFalse positives by the shape of the keys, 1000000 keys\n");
    println!("| filter | decimal | hexadecimal | URL | big-endian counter | random |");
    println!("|---|---|---|---|---|---|");
    let shapes: [fn(u64) -> Vec<u8>; 5] = [
        decimal,
        |i| format!("{i:016x}").into_bytes(),
        |i| format!("https://example.com/user/{}/item/{i}", i % 997).into_bytes(),
        |i| [0u64.to_be_bytes(), i.to_be_bytes()].concat(),
        |i| [random(i).to_le_bytes(), random(!i).to_le_bytes()].concat(),
    ];
    for (name, policy) in &policies {
        print!("| {name} |");
        for shape in shapes {
            let mut filter = Vec::new();
            let mut builder = policy.builder();
            (0..1_000_000).for_each(|i| builder.add_key(&shape(2 * i)));
            builder.finish(&mut filter);
            let rate = rate(policy.as_ref(), &filter, |i| shape(2 * i + 1));
            print!(" {:.3} % |", 100.0 * rate);
        }
        println!();
    }
}

/// Bytes that a filter block adds to its only filter: the offsets of its start and end, and lg(base).
const BLOCK_OVERHEAD: usize = 9;

fn decimal(i: u64) -> Vec<u8> {
    format!("{i:016}").into_bytes()
}

/// Returns a pseudo-random number for `i` (SplitMix64).
fn random(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the share of two million absent keys that a filter passes. Absent keys are odd numbers from 1 on,
/// present keys even numbers. With `n` present keys, all absent keys except the first `n` are past the last present
/// one.
fn rate(policy: &dyn FilterPolicy, filter: &[u8], absent: impl Fn(u64) -> Vec<u8>) -> f64 {
    const PROBES: u64 = 2_000_000;
    let passed = (0..PROBES).filter(|&i| policy.key_may_match(&absent(i), filter));
    passed.count() as f64 / PROBES as f64
}

/// Keys of 16 bytes, stored contiguously so that reading them costs no cache misses.
struct Keys(Vec<u8>);

impl Keys {
    fn new(count: usize, key: impl Fn(u64) -> Vec<u8>) -> Keys {
        Keys((0..count as u64).flat_map(key).collect())
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.chunks_exact(16)
    }
}

/// A row of the table. Times are nanoseconds a key, the best so far.
#[derive(Clone)]
struct Row {
    filter: Vec<u8>,
    build: f64,
    absent: f64,
    present: f64,
}

impl Default for Row {
    fn default() -> Row {
        let (build, absent, present) = (f64::MAX, f64::MAX, f64::MAX);
        Row {
            filter: Vec::new(),
            build,
            absent,
            present,
        }
    }
}

impl Row {
    fn measure(&mut self, policy: &dyn FilterPolicy, keys: &Keys, absent: &Keys, present: &Keys) {
        // Builds a small filter many times, to take long enough for the clock.
        let times = (100_000 / keys.iter().len()).max(1);
        let begin = Instant::now();
        for _ in 0..times {
            self.filter.clear();
            let mut builder = policy.builder();
            keys.iter().for_each(|key| builder.add_key(key));
            builder.finish(&mut self.filter);
        }
        let built = begin.elapsed().as_nanos() as f64 / (times * keys.iter().len()) as f64;
        self.build = self.build.min(built);

        for (keys, best) in [(absent, &mut self.absent), (present, &mut self.present)] {
            let begin = Instant::now();
            let passed = keys
                .iter()
                .filter(|key| policy.key_may_match(key, &self.filter));
            black_box(passed.count());
            *best = best.min(begin.elapsed().as_nanos() as f64 / keys.iter().len() as f64);
        }
    }
}

/// A Bloom filter with 10 bits per key, 7 probes and a good hash. The probes go to the whole filter or, if `blocked`,
/// to one cache line (512 bits).
#[derive(Debug)]
struct XxBloom {
    blocked: bool,
}

impl XxBloom {
    /// Returns the bits of a key in a filter of `bytes` bytes.
    fn bits(&self, hash: u64, bytes: usize) -> impl Iterator<Item = usize> + use<> {
        let scale = |hash: u64, n: usize| ((u128::from(hash) * n as u128) >> 64) as usize;
        let (first, size, mixed) = if self.blocked {
            let line = scale(hash, bytes / 64);
            (line * 512, 512, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        } else {
            (0, bytes * 8, hash)
        };
        let step = mixed.rotate_left(32) | 1;
        (0..7).map(move |i| first + scale(mixed.wrapping_add(step.wrapping_mul(i)), size))
    }
}

impl FilterPolicy for XxBloom {
    fn name(&self) -> &str {
        "example.XxBloom"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        let blocked = self.blocked;
        HashBuilder::boxed(move |hashes, dst| {
            let mut filter = vec![0u8; (hashes.len() * 10 / 8).max(64).next_multiple_of(64)];
            for &mut hash in hashes {
                for bit in (XxBloom { blocked }).bits(hash, filter.len()) {
                    filter[bit / 8] |= 1 << (bit % 8);
                }
            }
            dst.append(&mut filter);
        })
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        self.bits(xxh3_64(key), filter.len())
            .all(|bit| filter[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

/// A ribbon filter of width 128 without bumping. It starts with 5 % more slots than keys and adds 1 % until the
/// equations have a solution. Fingerprints have 9 or 10 bits, mixed to spend 10 bits per key.
#[derive(Debug)]
struct PlainRibbon;

impl PlainRibbon {
    /// Returns start, coefficients and fingerprint of a key, in a ribbon of `blocks` blocks of 128 slots.
    fn equation(hash: u64, blocks: usize) -> (usize, u128, u16) {
        let start = (u128::from(hash) * (blocks as u128 * 128 - 127)) >> 64;
        let low = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let high = (hash ^ (hash >> 32)).wrapping_mul(0x243f_6a88_85a3_08d3);
        let coefficients = (u128::from(high) << 64) | u128::from(low) | 1;
        let fingerprint = (hash.wrapping_mul(0xc2b2_ae3d_27d4_eb4f) >> 48) as u16;
        (start as usize, coefficients, fingerprint)
    }

    fn build(hashes: &mut [u64], dst: &mut Vec<u8>) {
        hashes.sort_unstable(); // also sorts by start
        let mut blocks = (hashes.len() * 105).div_ceil(100 * 128);
        let rows = loop {
            match Self::eliminate(hashes, blocks) {
                Some(rows) => break rows,
                None => blocks += (hashes.len() / 12_800).max(1),
            }
        };
        let words = (hashes.len() * 10 / 8).saturating_sub(BLOCK_OVERHEAD + 12) / 16;
        let columns = (words / blocks).clamp(9, 15);
        let narrow = blocks - words.saturating_sub(columns * blocks).min(blocks);
        let at = |block: usize| block * columns + block.saturating_sub(narrow);
        let begin = dst.len();
        dst.resize(begin + 16 * at(blocks), 0);
        let mut window = [0u128; 16];
        for (block, rows) in rows.chunks_exact(128).enumerate().rev() {
            for &(coefficients, fingerprint) in rows.iter().rev() {
                for (column, bits) in window.iter_mut().enumerate() {
                    let later = *bits << 1;
                    let sum =
                        (later & coefficients).count_ones() ^ u32::from(fingerprint >> column);
                    *bits = later | u128::from(sum & 1);
                }
            }
            let words = dst[begin + 16 * at(block)..].chunks_exact_mut(16);
            let width = columns + usize::from(block >= narrow);
            for (to, bits) in words.zip(window).take(width) {
                to.copy_from_slice(&bits.to_le_bytes());
            }
        }
        for number in [blocks, narrow, columns] {
            dst.extend_from_slice(&(number as u32).to_le_bytes());
        }
    }

    fn eliminate(hashes: &[u64], blocks: usize) -> Option<Vec<(u128, u16)>> {
        let mut rows = vec![(0u128, 0u16); blocks * 128];
        for &hash in hashes {
            let (mut slot, mut coefficients, mut fingerprint) = Self::equation(hash, blocks);
            while rows[slot].0 != 0 {
                coefficients ^= rows[slot].0;
                fingerprint ^= rows[slot].1;
                if coefficients == 0 {
                    break;
                }
                slot += coefficients.trailing_zeros() as usize;
                coefficients >>= coefficients.trailing_zeros();
            }
            if coefficients != 0 {
                rows[slot] = (coefficients, fingerprint);
            } else if fingerprint != 0 {
                return None;
            }
        }
        Some(rows)
    }
}

impl FilterPolicy for PlainRibbon {
    fn name(&self) -> &str {
        "example.PlainRibbon"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        HashBuilder::boxed(Self::build)
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        let (words, trailer) = filter.split_last_chunk::<12>().expect("whole filters");
        let number =
            |i: usize| u32::from_le_bytes(*trailer[4 * i..].first_chunk().unwrap()) as usize;
        let (blocks, narrow, columns) = (number(0), number(1), number(2));
        let (start, coefficients, fingerprint) = Self::equation(xxh3_64(key), blocks);
        let (block, offset) = (start / 128, start % 128);
        let width = columns + usize::from(block >= narrow);
        let words = &words[16 * (block * columns + block.saturating_sub(narrow))..];
        let next = if offset == 0 {
            words
        } else {
            &words[16 * width..]
        };
        let word =
            |words: &[u8], i: usize| u128::from_le_bytes(*words[16 * i..].first_chunk().unwrap());
        (0..width).all(|column| {
            let high = coefficients.checked_shr(128 - offset as u32).unwrap_or(0);
            let sum = word(words, column) & (coefficients << offset) ^ word(next, column) & high;
            (sum.count_ones() ^ u32::from(fingerprint >> column)) & 1 == 0
        })
    }
}

/// Collects XXH3 hashes and builds the filter with `make`.
struct HashBuilder<F> {
    hashes: Vec<u64>,
    make: F,
}

impl<F: Fn(&mut [u64], &mut Vec<u8>) + Send + 'static> HashBuilder<F> {
    fn boxed(make: F) -> Box<dyn FilterBuilder> {
        Box::new(HashBuilder {
            hashes: Vec::new(),
            make,
        })
    }
}

impl<F: Fn(&mut [u64], &mut Vec<u8>) + Send + 'static> FilterBuilder for HashBuilder<F> {
    fn add_key(&mut self, key: &[u8]) {
        self.hashes.push(xxh3_64(key));
    }

    fn finish(&mut self, dst: &mut Vec<u8>) {
        (self.make)(&mut self.hashes, dst);
        self.hashes.clear();
    }
}
