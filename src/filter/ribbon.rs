//! This crate's own filter: a bumped ribbon over XXH3, 1 % above the least space that a filter can take.
//!
//! # What it is
//!
//! A Bloom filter spends 44 % more bits than the rate of its errors demands. A ribbon filter stores
//! the solution of a system of linear equations over single bits instead: it has one *slot* of `c`
//! bits for (nearly) every key, and each key asks that the exclusive or of certain slots, picked by
//! its hash among 32 neighbours, be equal to `c` other bits of its hash, its *fingerprint*. A key of
//! the set passes, since the system was solved for it; any other key passes with probability 2⁻ᶜ.
//!
//! Equations whose slots lie within a narrow band are quick to solve, but a band of 32 slots that
//! is filled to the last slot has contradictions. So some keys (9 %) are *bumped*: two bits for every
//! 32 slots say which keys must look in the next *layer* instead, a small ribbon of its own, which
//! bumps some to the next. In the end all but 0.2 % of the slots carry a key.
//!
//! Ribbon filters are due to Dillinger and Walzer ("Ribbon filter: practically smaller than Bloom and
//! Xor", 2021), bumping to Dillinger, Hübschle-Schneider, Sanders and Walzer ("Fast succinct retrieval
//! and approximate membership using ribbon", SEA 2022). `docs/filters.md` has the measurements by which
//! the parameters here were chosen.
//!
//! The encoding is described with [`RibbonFilterPolicy`].

mod builder;

use xxhash_rust::xxh3::xxh3_64;

use super::{FilterBuilder, FilterPolicy, not_finite};
use builder::RibbonBuilder;

/// Slots in a segment, and bits in an equation's coefficients.
const SLOTS: usize = 32;

/// Bytes of the part of a filter that is always there, at its end: end of layer 0, narrow, columns, layers.
const TRAILER: usize = 10;

/// Fewest columns: a probe reads four at a time.
const MIN_COLUMNS: usize = 4;

/// Most columns: as many bits as a fingerprint has.
const MAX_COLUMNS: usize = 32;

/// This crate's own filter policy: a bumped ribbon filter, `leveltable.Ribbon1`.
///
/// At 10 bits a key, everything in the filter block counted, 0.106 % of the absent keys pass (0.098 %
/// is the least that any filter could reach, a Bloom filter with a good hash lets 0.82 % pass), whatever
/// the keys look like. A probe hashes the key once, and reads two bits in one place, some 80 bytes in another.
///
/// It pays where one filter covers many keys, best the whole table. No filter takes less than 27 bytes
/// (47 at 10 bits a key), and from some 500 keys on it costs no more than its bits a key.
///
/// Building keeps 8 bytes a key until [`finish`](FilterBuilder::finish), takes 17 while that runs, and time in
/// proportion to the number of keys, however many they are. It does not fail: should no filter be found
/// for the keys, which takes keys chosen with intent, the filter lets every key pass.
///
/// ```
/// use leveltable::{RibbonFilterPolicy, filter::{FilterPolicy, create_filter}};
///
/// let policy = RibbonFilterPolicy::new(10);
/// let keys: Vec<[u8; 4]> = (0..10_000u32).map(u32::to_be_bytes).collect();
/// let mut filter = Vec::new();
/// create_filter(&policy, &keys, &mut filter);
///
/// assert!(filter.len() * 8 <= 10 * keys.len());
/// assert!(keys.iter().all(|key| policy.key_may_match(key, &filter)));
/// ```
///
/// # Encoding of `leveltable.Ribbon1`
///
/// All integers are little-endian, all arithmetic is modulo 2⁶⁴ unless said otherwise.
///
/// ```text
/// filter  = word*  code*  end(last layer) .. end(layer 1)  end(layer 0)  narrow  columns  layers
///           u32    u8     u32                              u32           u32     u8       u8
/// ```
///
/// The slots, 32 to a *segment*, are numbered through all layers: layer `i` has the segments from
/// `end(i - 1)` (0 for the first) up to `end(i)`, at least one, and `end(last)` is the number `S` of all
/// segments.
///
/// - **Words.** A segment has one word for every column: the first `narrow` segments have `columns`
///   (`c` for short) of them, the others `c + 1`. Segments stand one after the other, in each the columns
///   in order, so segment `g` begins at word `g c + max(g - narrow, 0)` and there are `S c + S - narrow`
///   words. Bit `b` of the word of column `j` is bit `j` of slot `b` of the segment. `c` is at least 4, no
///   segment has more than 32 columns, and `narrow <= S`.
/// - **Codes.** Two bits a segment, four segments a byte, the first in the low bits; `ceil(S / 4)` bytes,
///   of which unused bits are zero. Codes 0, 1, 2, 3 mean that keys are bumped which start in the first
///   0, 8, 16, 32 slots of the segment.
///
/// A key is looked up so, beginning with `h` = XXH3-64 of the key (seed 0) and layer 0:
///
/// 1. A layer of `m` segments has `s = 32 m - 31` places to start at. The key starts at slot
///    `h s / 2⁶⁴`, rounded down, of the layer; the product has 128 bits.
/// 2. If the code of the segment that the start is in bumps it: `h = (h ^ (h >> 32)) * 0x243f6a8885a308d3`
///    and the next layer. If there is none, the key may match.
/// 3. Otherwise let `r = h * 0x9e3779b97f4a7c15`. The *coefficients* are the upper 32 bits of `r`, the
///    lowest of them set to 1; the *fingerprint* is the lower 32 bits of `r`.
/// 4. The key may match if, for each column `j` of that segment, the exclusive or of bit `j` of the slots
///    `start + i`, over all `i` for which bit `i` of the coefficients is set, is bit `j` of the
///    fingerprint. These slots lie in the segment and the next one (which has as many columns, or one more).
///
/// Two more forms: no bytes at all are the filter of no keys, and nothing matches; where `layers` is 0,
/// or where the numbers do not fit each other or the filter's length, everything may match. A writer to
/// whom the improbable happens, that 32 layers do not suffice, writes ten zero bytes.
///
/// A writer may choose layers, codes, widths and values of free slots as it likes, if no key of the last layer
/// is bumped. This one writes the same bytes on every platform.
///
/// For example, the keys `apple`, `grape` and `lemon` at a rate of 1/16 give this filter of one segment:
///
/// ```text
/// 04 00 00 00  04 00 00 00  00 00 00 00  04 00 00 00    words of columns 0 to 3: of the slots only 2 is not zero
/// 00                                                    codes: the segment bumps nothing
/// 01 00 00 00                                           layer 0 ends behind segment 0
/// 01 00 00 00                                           one segment is narrow
/// 04                                                    and has four columns
/// 01                                                    one layer
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RibbonFilterPolicy {
    target: Target,
}

/// What decides on the number of columns.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    /// The whole filter block costs at most so many bits a key.
    BitsPerKey(f64),
    /// Of the absent keys at most this part passes.
    Rate(f64),
}

impl RibbonFilterPolicy {
    /// A policy whose filters cost at most `bits_per_key` bits a key, from some 500 keys on.
    ///
    /// Everything is counted: all that the filter stores, and the 9 bytes that a filter block adds to its
    /// one filter. The bits need not be a whole number. An absent key passes with a probability of about 2
    /// to the power of `-0.99 bits_per_key`. Less than 5 is taken for 5, more than 33 for 33; a table cannot be begun
    /// with NaN or infinity.
    ///
    /// A filter of fewer keys may cost more, by at most 60 bytes at 10 bits a key: it grows in steps of 32
    /// slots, and would otherwise have to let more absent keys pass.
    pub fn new(bits_per_key: impl Into<f64>) -> Self {
        Self {
            target: Target::BitsPerKey(bits_per_key.into()),
        }
    }

    /// A policy whose filters let an absent key pass with a probability of at most `rate`.
    ///
    /// `0.001` stands for one absent key in a thousand, and costs `1.01 log2(1 / rate)` bits a key in filters
    /// of 10 000 keys or more. A rate above 1/16 is taken for 1/16, one below 2⁻³² for 2⁻³²; a table cannot be begun
    /// with NaN or infinity.
    pub fn with_false_positive_rate(rate: f64) -> Self {
        Self {
            target: Target::Rate(rate),
        }
    }
}

impl Target {
    /// The nearest target that the encoding can express. NaN, which a table refuses, becomes the least.
    fn limited(self) -> Target {
        let limited = |value: f64, least, most| f64::min(value.max(least), most);
        match self {
            Target::BitsPerKey(bits) => Target::BitsPerKey(limited(bits, 5.0, 33.0)),
            Target::Rate(rate) => {
                let least = 1.0 / (1u64 << MAX_COLUMNS) as f64;
                let most = 1.0 / (1u64 << MIN_COLUMNS) as f64;
                Target::Rate(limited(rate, least, most))
            }
        }
    }
}

impl FilterPolicy for RibbonFilterPolicy {
    fn name(&self) -> &str {
        "leveltable.Ribbon1"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        Box::new(RibbonBuilder::new(self.target.limited()))
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        if filter.is_empty() {
            return false;
        }
        Ribbon::parse(filter)
            .and_then(|ribbon| ribbon.may_match(xxh3_64(key)))
            .unwrap_or(true)
    }

    fn check(&self) -> Result<(), String> {
        match self.target {
            Target::BitsPerKey(bits) if !bits.is_finite() => {
                Err(not_finite("bits per key", "from 5 to 33"))
            }
            Target::Rate(rate) if !rate.is_finite() => {
                Err(not_finite("false positive rate", "above 0 and below 1"))
            }
            _ => Ok(()),
        }
    }
}

// What reader and writer agree on: from a hash to a place and an equation.

/// Number of places in a layer of `segments` where a key can start and have 32 slots before it.
#[inline]
fn starts(segments: usize) -> u64 {
    (segments as u64 * SLOTS as u64).saturating_sub(SLOTS as u64 - 1)
}

/// Where in a layer with so many `starts` the key of this hash starts. Grows with the hash, so that
/// the order of the hashes is that of the starts.
#[inline]
fn start(hash: u64, starts: u64) -> u64 {
    ((u128::from(hash) * u128::from(starts)) >> 64) as u64
}

/// Coefficients and fingerprint of the key of this hash. The factor is 2⁶⁴ over the golden ratio.
#[inline]
fn equation(hash: u64) -> (u32, u32) {
    let row = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((row >> 32) as u32 | 1, row as u32)
}

/// The hash of a bumped key in the next layer. The factor is the fraction of pi. Both steps can be
/// inverted, so that different hashes stay different.
#[inline]
fn rehash(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(0x243f_6a88_85a3_08d3)
}

/// The number of slots at the front of a segment where a start means that the key was bumped: 0, 8, 16
/// or 32, for the low two bits of `code`. By a shift, since the processor could not foresee a branch.
#[inline]
fn bumped_slots(code: u8) -> u64 {
    u64::from(0x2010_0800_u32 >> (8 * (code & 3)) & 0xff)
}

/// A filter's bytes, taken apart. Nothing in it is trusted: each access is checked, and `None` stands
/// for a filter that contradicts itself.
struct Ribbon<'a> {
    words: &'a [u8],
    codes: &'a [u8],
    /// Ends of the layers from the last to the second, four bytes each.
    ends: &'a [[u8; 4]],
    /// End of the first layer.
    end: u32,
    narrow: u64,
    columns: u64,
}

impl<'a> Ribbon<'a> {
    #[inline]
    fn parse(filter: &'a [u8]) -> Option<Self> {
        let (rest, &[e0, e1, e2, e3, n0, n1, n2, n3, columns, layers]) =
            filter.split_last_chunk::<TRAILER>()?;
        let end = u32::from_le_bytes([e0, e1, e2, e3]);
        let narrow = u64::from(u32::from_le_bytes([n0, n1, n2, n3]));
        let columns = u64::from(columns);

        let ends_len = 4 * usize::from(layers.checked_sub(1)?);
        let (rest, ends) = rest.split_at_checked(rest.len().checked_sub(ends_len)?)?;
        let (ends, _) = ends.as_chunks::<4>();
        let segments = u64::from(ends.first().map_or(end, |&last| u32::from_le_bytes(last)));

        let wide = segments.checked_sub(narrow)?;
        if columns + u64::from(wide > 0) > MAX_COLUMNS as u64 {
            return None;
        }
        let words_len = 4 * (segments * columns + wide);
        let (words, codes) = rest.split_at_checked(usize::try_from(words_len).ok()?)?;
        (codes.len() as u64 == segments.div_ceil(4)).then_some(Self {
            words,
            codes,
            ends,
            end,
            narrow,
            columns,
        })
    }

    #[inline]
    fn may_match(&self, mut hash: u64) -> Option<bool> {
        let mut layer = 0..self.end;
        let mut ends = self.ends.iter().rev();
        loop {
            let size = layer
                .end
                .checked_sub(layer.start)
                .filter(|&size| size > 0)?;
            let start = start(hash, starts(size as usize));
            let segment = u64::from(layer.start) + start / SLOTS as u64;
            let offset = start % SLOTS as u64;
            let code = self.codes.get((segment / 4) as usize)? >> (segment % 4 * 2);
            if offset >= bumped_slots(code) {
                return self.holds(hash, segment, offset);
            }
            layer = layer.end..u32::from_le_bytes(*ends.next()?);
            hash = rehash(hash);
        }
    }

    /// Whether the equation of `hash`, which starts at `offset` in `segment`, is true in each column.
    #[inline]
    fn holds(&self, hash: u64, segment: u64, offset: u64) -> Option<bool> {
        let width = self.columns + u64::from(segment >= self.narrow);
        let at = 4 * (segment * self.columns + segment.saturating_sub(self.narrow));
        let (here, next) = self
            .words
            .get(usize::try_from(at).ok()?..)?
            .split_at_checked(4 * width as usize)?;
        // What starts at the front of a segment needs no other, and the last segment has no other.
        let next = if offset == 0 { here } else { next };

        let (coefficients, fingerprint) = equation(hash);
        let coefficients = u64::from(coefficients) << offset;
        // Twice side by side, since a pair of columns is read at once.
        let low = (coefficients & 0xffff_ffff) * 0x1_0000_0001;
        let high = (coefficients >> 32) * 0x1_0000_0001;

        // Four columns at a time: the first four tell 15 in 16 absent keys. The last four may overlap those
        // before.
        let last = here.len().checked_sub(16)?;
        let mut at = 0;
        loop {
            let (a01, a23) = word_pairs(here, at)?;
            let (b01, b23) = word_pairs(next, at)?;
            let sums = parities((a01 & low) ^ (b01 & high), (a23 & low) ^ (b23 & high));
            if sums != spread(fingerprint >> (at / 4)) {
                return Some(false);
            }
            if at == last {
                return Some(true);
            }
            at = last.min(at + 16);
        }
    }
}

/// The words of four columns: the first two in one number, the others in another.
#[inline]
fn word_pairs(words: &[u8], at: usize) -> Option<(u64, u64)> {
    let four = u128::from_le_bytes(*words.get(at..)?.first_chunk()?);
    Some((four as u64, (four >> 64) as u64))
}

/// The parities of four words, which come in pairs as [`word_pairs`] gives them: at bits 0, 32, 16 and
/// 48, the others being zero. Each step folds words to half their width; the first also puts the two
/// pairs together. (Processors can count bits, but a portable program may not ask them to.)
#[inline]
fn parities(first: u64, second: u64) -> u64 {
    let first = (first ^ (first >> 16)) & 0x0000_ffff_0000_ffff;
    let second = (second ^ (second << 16)) & 0xffff_0000_ffff_0000;
    let mut x = first | second;
    x ^= x >> 8;
    x ^= x >> 4;
    x ^= x >> 2;
    x ^= x >> 1;
    x & 0x0001_0001_0001_0001
}

/// The low four bits at the places where [`parities`] has those of the columns: the factor makes copies
/// that are shifted by 0, 31, 14 and 45, so that they do not touch.
#[inline]
fn spread(fingerprint: u32) -> u64 {
    (u64::from(fingerprint & 15) * 0x0000_2000_8000_4001) & 0x0001_0001_0001_0001
}

#[cfg(test)]
mod tests {
    use super::builder::BLOCK_OVERHEAD;
    use super::*;
    use crate::filter::create_filter;

    /// Numbers that only look random (SplitMix64).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }
    }

    fn filter_of<K: AsRef<[u8]>>(
        policy: RibbonFilterPolicy,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<u8> {
        let mut filter = Vec::new();
        create_filter(&policy, keys, &mut filter);
        filter
    }

    fn numbers(count: u32) -> impl Iterator<Item = [u8; 4]> {
        (0..count).map(u32::to_be_bytes)
    }

    #[test]
    fn small_filter_is_the_one_in_the_documentation() {
        let policy = RibbonFilterPolicy::with_false_positive_rate(1.0 / 16.0);
        let filter = filter_of(policy, ["apple", "grape", "lemon"]);
        let hex: Vec<String> = filter.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex.join(" "),
            "04 00 00 00 04 00 00 00 00 00 00 00 04 00 00 00 00 01 00 00 00 01 00 00 00 04 01"
        );
    }

    #[test]
    fn encoding_does_not_drift() {
        let pinned = |policy, keys| {
            let filter = filter_of(policy, numbers(keys));
            (filter.len(), xxh3_64(&filter))
        };
        let ten = RibbonFilterPolicy::new(10);
        assert_eq!(pinned(ten, 20), (47, 0xfeac43e656150e74));
        assert_eq!(pinned(ten, 1_000), (1238, 0x8e28a14976c1519d));
        assert_eq!(pinned(ten, 30_000), (37490, 0x1cad7326864028e7));
        assert_eq!(
            pinned(RibbonFilterPolicy::new(20.5), 1_000),
            (2550, 0x552dda15b23bdcd5)
        );
        let rate = RibbonFilterPolicy::with_false_positive_rate(0.003);
        assert_eq!(pinned(rate, 1_000), (1106, 0x39f277e3b8c49468));
    }

    /// The encoding once more, from its description alone and as plainly as possible.
    struct Model {
        columns: usize,
        narrow: usize,
        ends: Vec<usize>,
        codes: Vec<u8>,
        /// All bits of all slots.
        slots: Vec<Vec<bool>>,
    }

    impl Model {
        fn read(filter: &[u8]) -> Model {
            let u32_at = |at: usize| u32::from_le_bytes(filter[at..at + 4].try_into().unwrap());
            let layers = usize::from(filter[filter.len() - 1]);
            let columns = usize::from(filter[filter.len() - 2]);
            let narrow = u32_at(filter.len() - 6) as usize;
            let ends: Vec<usize> = (0..layers)
                .map(|layer| u32_at(filter.len() - 10 - 4 * layer) as usize)
                .collect();
            let segments = ends[layers - 1];

            let mut slots = Vec::new();
            let mut word = 0;
            for segment in 0..segments {
                let width = if segment < narrow {
                    columns
                } else {
                    columns + 1
                };
                for slot in 0..32 {
                    let bit = |column| u32_at(4 * (word + column)) >> slot & 1 == 1;
                    slots.push((0..width).map(bit).collect());
                }
                word += width;
            }
            let codes = (0..segments).map(|g| filter[4 * word + g / 4] >> (g % 4 * 2) & 3);
            let codes: Vec<u8> = codes.collect();
            assert_eq!(
                4 * word + segments.div_ceil(4) + 4 * layers + 6,
                filter.len()
            );
            Model {
                columns,
                narrow,
                ends,
                codes,
                slots,
            }
        }

        /// The slots that a key's equation sums up, the number of columns, and the fingerprint.
        fn equation(&self, key: &[u8]) -> Option<(Vec<usize>, usize, u64)> {
            let mut h = u128::from(xxh3_64(key));
            let mut begin = 0;
            for &end in &self.ends {
                let places = 32 * (end - begin) as u128 - 31;
                let start = 32 * begin + ((h * places) >> 64) as usize;
                let bumped = [0, 8, 16, 32][usize::from(self.codes[start / 32])];
                if start % 32 >= bumped {
                    let r = (h * 0x9e37_79b9_7f4a_7c15) % (1 << 64);
                    let coefficients = (r >> 32) | 1;
                    let sum = (0..32).filter(|i| coefficients >> i & 1 == 1);
                    let width = self.columns + usize::from(start / 32 >= self.narrow);
                    return Some((
                        sum.map(|i| start + i).collect(),
                        width,
                        r as u64 & 0xffff_ffff,
                    ));
                }
                h = (h ^ (h >> 32)) * 0x243f_6a88_85a3_08d3 % (1 << 64);
                begin = end;
            }
            None
        }

        fn may_match(&self, key: &[u8]) -> bool {
            self.equation(key).is_none_or(|(sum, width, fingerprint)| {
                (0..width).all(|column| {
                    let bit = sum
                        .iter()
                        .fold(false, |bit, &slot| bit ^ self.slots[slot][column]);
                    bit == (fingerprint >> column & 1 == 1)
                })
            })
        }

        /// Solves the keys' equations by Gaussian elimination of the whole matrix. What is left open is 0.
        fn solve(&self, keys: impl Iterator<Item = [u8; 4]>) -> Vec<u64> {
            let mut pivots: Vec<Option<(Vec<u64>, u64)>> = vec![None; self.slots.len()];
            for key in keys {
                let (sum, _, mut right) = self
                    .equation(&key)
                    .expect("no key falls out of the last layer");
                let mut left = vec![0u64; self.slots.len().div_ceil(64)];
                sum.iter()
                    .for_each(|slot| left[slot / 64] |= 1 << (slot % 64));
                for slot in 0..self.slots.len() {
                    if left[slot / 64] >> (slot % 64) & 1 == 0 {
                        continue;
                    }
                    let Some((pivot, value)) = &pivots[slot] else {
                        pivots[slot] = Some((left.clone(), right));
                        right = 0;
                        break;
                    };
                    left.iter_mut().zip(pivot).for_each(|(a, b)| *a ^= b);
                    right ^= value;
                }
                assert_eq!(right, 0, "a contradiction");
            }
            let mut solution = vec![0; self.slots.len()];
            for slot in (0..solution.len()).rev() {
                if let Some((left, right)) = &pivots[slot] {
                    let later =
                        (slot + 1..solution.len()).filter(|s| left[s / 64] >> (s % 64) & 1 == 1);
                    solution[slot] = later.fold(*right, |sum, s| sum ^ solution[s]);
                }
            }
            solution
        }
    }

    #[test]
    fn a_model_made_from_the_documentation_agrees() {
        let mut most_layers = 0;
        for (bits, keys) in [
            (10.0, 1),
            (10.0, 2),
            (10.0, 30),
            (7.3, 100),
            (12.9, 400),
            (33.0, 300),
            (10.0, 1_500),
        ] {
            let filter = filter_of(RibbonFilterPolicy::new(bits), numbers(keys));
            let model = Model::read(&filter);
            most_layers = model.ends.len().max(most_layers);
            let solution = model.solve(numbers(keys));
            for (slot, bits) in model.slots.iter().enumerate() {
                for (column, &bit) in bits.iter().enumerate() {
                    assert_eq!(
                        bit,
                        solution[slot] >> column & 1 == 1,
                        "{keys} keys, slot {slot}"
                    );
                }
            }
            let policy = RibbonFilterPolicy::new(bits);
            for (i, key) in numbers(20_000).enumerate() {
                let matches = policy.key_may_match(&key, &filter);
                assert_eq!(matches, model.may_match(&key), "{keys} keys");
                assert!(matches || i >= keys as usize);
            }
        }
        assert!(most_layers >= 2, "bumped keys are tested too");
    }

    #[test]
    fn no_key_is_ever_missed() {
        let policies = [
            RibbonFilterPolicy::new(5),
            RibbonFilterPolicy::new(10),
            RibbonFilterPolicy::new(15.9),
            RibbonFilterPolicy::new(33),
            RibbonFilterPolicy::with_false_positive_rate(0.06),
            RibbonFilterPolicy::with_false_positive_rate(1e-9),
        ];
        let mut random = Random(1);
        let sizes = (0..130).chain([255, 256, 257, 1_000, 2_239, 2_240, 2_241, 20_000]);
        for size in sizes {
            for policy in policies {
                let keys: Vec<[u8; 8]> = (0..size).map(|_| random.next().to_le_bytes()).collect();
                let filter = filter_of(policy, &keys);
                assert!(
                    keys.iter().all(|key| policy.key_may_match(key, &filter)),
                    "{size} keys, {policy:?}"
                );
                assert_ne!(filter, [0; TRAILER], "{size} keys, {policy:?}");
            }
        }
    }

    #[test]
    fn no_keys_make_an_empty_filter_that_nothing_matches() {
        let policy = RibbonFilterPolicy::new(10);
        assert!(filter_of(policy, [""; 0]).is_empty());
        assert!(!policy.key_may_match(b"", &[]));
        let filter = filter_of(policy, [""]);
        assert!(policy.key_may_match(b"", &filter));
        assert!(!policy.key_may_match(b"another", &filter));
    }

    /// Part of the absent keys that pass.
    fn measured_rate(
        policy: RibbonFilterPolicy,
        filter: &[u8],
        absent: impl Iterator<Item = Vec<u8>>,
    ) -> f64 {
        let (mut passed, mut probed) = (0, 0);
        for key in absent {
            probed += 1;
            passed += u32::from(policy.key_may_match(&key, filter));
        }
        f64::from(passed) / f64::from(probed)
    }

    #[test]
    fn ten_bits_a_key_keep_their_promise_whatever_the_keys_look_like() {
        let shapes: [fn(u64) -> Vec<u8>; 5] = [
            |i| format!("{i:016}").into_bytes(),
            |i| format!("{i:016x}").into_bytes(),
            |i| format!("https://example.com/{}/{i}", i % 97).into_bytes(),
            |i| i.to_be_bytes().to_vec(),
            |i| Random(i).next().to_le_bytes().to_vec(),
        ];
        let policy = RibbonFilterPolicy::new(10);
        for shape in shapes {
            for keys in [10_000, 50_000] {
                // Every other number; absent are those between and some beyond.
                let filter = filter_of(policy, (0..keys).map(|i| shape(2 * i)));
                assert!((filter.len() + BLOCK_OVERHEAD) as u64 * 8 <= 10 * keys);
                let rate = measured_rate(policy, &filter, (0..150_000).map(|i| shape(2 * i + 1)));
                assert!(
                    rate < 0.00145,
                    "{rate}: the mean is 0.00107, its deviation 0.00009"
                );
            }
        }
    }

    #[test]
    fn small_filters_keep_their_rate_and_stay_small() {
        let policy = RibbonFilterPolicy::new(10);
        for keys in [
            1, 2, 10, 18, 29, 30, 31, 60, 100, 200, 400, 600, 1_000, 3_000,
        ] {
            let filter = filter_of(policy, numbers(keys));
            let bytes = filter.len() + BLOCK_OVERHEAD;
            assert!(
                bytes * 8 <= 10 * keys as usize + 8 * 60,
                "{keys} keys: {bytes} bytes"
            );
            assert!(
                keys < 500 || bytes * 8 <= 10 * keys as usize,
                "{keys} keys: {bytes} bytes"
            );
            let absent = (0..50_000u64).map(|i| i.to_le_bytes().to_vec());
            let rate = measured_rate(policy, &filter, absent);
            assert!(rate < 0.0027, "{keys} keys: {rate}");
        }
    }

    #[test]
    fn a_rate_asked_for_is_the_rate_reached() {
        for rate in [0.0625, 0.05, 0.01, 0.004, 0.0015] {
            let policy = RibbonFilterPolicy::with_false_positive_rate(rate);
            let filter = filter_of(policy, numbers(20_000));
            let bits = filter.len() as f64 * 8.0 / 20_000.0;
            assert!(
                bits < 1.01 * -rate.log2() + 0.15,
                "{rate}: {bits} bits a key"
            );
            let absent = (0..200_000u64).map(|i| i.to_le_bytes().to_vec());
            let measured = measured_rate(policy, &filter, absent);
            let deviation = (rate / 200_000.0).sqrt();
            assert!(
                (measured - rate).abs() < 4.0 * deviation + 0.01 * rate,
                "{rate}: {measured}"
            );
        }
    }

    #[test]
    fn parameters_out_of_range_are_brought_into_it() {
        for (bits, limited) in [(0.0, 5.0), (-1.5, 5.0), (10.5, 10.5), (1e300, 33.0)] {
            let policy = RibbonFilterPolicy::new(bits);
            assert_eq!(policy.target.limited(), Target::BitsPerKey(limited));
            assert_eq!(policy.check(), Ok(()));
        }
        for bits in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let message = RibbonFilterPolicy::new(bits).check().unwrap_err();
            assert!(message.contains("finite number from 5 to 33"), "{message}");
        }
        for rate in [f64::NAN, f64::NEG_INFINITY, 0.0, 1.0, f64::INFINITY] {
            let policy = RibbonFilterPolicy::with_false_positive_rate(rate);
            assert_eq!(policy.check().is_ok(), rate.is_finite());
            let filter = filter_of(policy, numbers(100));
            assert!(numbers(100).all(|key| policy.key_may_match(&key, &filter)));
            let rate = measured_rate(
                policy,
                &filter,
                (0..1_000u64).map(|i| i.to_le_bytes().to_vec()),
            );
            assert!(rate < 0.1);
        }
    }

    #[test]
    fn repeated_keys_count_once() {
        let policy = RibbonFilterPolicy::new(10);
        let repeated = numbers(1_000).flat_map(|key| [key; 7]);
        assert_eq!(
            filter_of(policy, repeated),
            filter_of(policy, numbers(1_000))
        );
        // Not in order, as two different keys of one hash could come.
        let twice = numbers(1_000).chain(numbers(1_000));
        let filter = filter_of(policy, twice);
        assert!(numbers(1_000).all(|key| policy.key_may_match(&key, &filter)));
    }

    #[test]
    fn builder_starts_anew_and_appends() {
        let policy = RibbonFilterPolicy::new(10);
        let mut builder = policy.builder();
        let mut dst = b"before".to_vec();
        for keys in [1_000, 10] {
            let begin = dst.len();
            numbers(keys).for_each(|key| builder.add_key(&key));
            builder.finish(&mut dst);
            assert_eq!(dst[begin..], filter_of(policy, numbers(keys)));
        }
        builder.finish(&mut dst);
        assert!(dst.starts_with(b"before"));
        // The key added last before `finish` is not taken for a repetition afterwards.
        let begin = dst.len();
        builder.add_key(&9u32.to_be_bytes());
        builder.finish(&mut dst);
        assert!(dst.len() > begin);
    }

    #[test]
    fn damaged_and_hostile_filters_do_no_harm() {
        let policy = RibbonFilterPolicy::new(10);
        let filter = filter_of(policy, numbers(600));
        let probe = |filter: &[u8]| {
            numbers(40)
                .filter(|key| policy.key_may_match(key, filter))
                .count()
        };
        for cut in 1..filter.len() {
            assert_eq!(
                probe(&filter[cut..]),
                40,
                "a part is missing, so everything may match"
            );
            probe(&filter[..cut]);
        }
        let mut random = Random(2);
        for _ in 0..20_000 {
            let mut damaged = filter.clone();
            // Most of them in the trailer, where all the numbers are.
            let from = if random.next().is_multiple_of(4) {
                0
            } else {
                damaged.len() - 14
            };
            for _ in 0..=random.next() % 3 {
                let at = from + random.next() as usize % (damaged.len() - from);
                damaged[at] =
                    [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.next() as usize % 6];
            }
            probe(&damaged);
        }
        for len in 1..200 {
            for fill in [0, 1, 4, 0x7f, 0x80, 0xff] {
                probe(&vec![fill; len]);
            }
            let noise: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            probe(&noise);
        }
    }

    #[test]
    fn numbers_that_do_not_fit_each_other_match_everything() {
        // (ends, narrow, columns, layers) over words and codes for two segments of four columns.
        let matches = |ends: &[u32], narrow: u32, columns: u8, layers: u8, body: usize| {
            // Words of ones and zero codes: an honest filter of this kind matches hardly anything.
            let mut filter = vec![0xff; body];
            filter.push(0);
            ends.iter()
                .rev()
                .for_each(|end| filter.extend(end.to_le_bytes()));
            filter.extend(narrow.to_le_bytes());
            filter.extend([columns, layers]);
            numbers(100)
                .filter(|key| RibbonFilterPolicy::new(10).key_may_match(key, &filter))
                .count()
        };
        assert!(matches(&[2], 2, 4, 1, 32) < 50, "honest");
        assert!(
            matches(&[1, 2], 2, 4, 2, 32) < 50,
            "honest, and no key is bumped"
        );
        for (why, count) in [
            ("no layer", matches(&[2], 2, 4, 0, 32)),
            ("more layers than bytes", matches(&[2], 2, 4, 255, 32)),
            ("a first layer of nothing", matches(&[0, 2], 2, 4, 2, 32)),
            (
                "more narrow segments than segments",
                matches(&[2], 3, 4, 1, 32),
            ),
            ("too few columns", matches(&[2], 2, 3, 1, 24)),
            ("too many columns", matches(&[2], 2, 33, 1, 264)),
            ("too many in wide segments", matches(&[2], 1, 32, 1, 260)),
            ("too many words", matches(&[2], 2, 4, 1, 36)),
            ("too few words", matches(&[2], 2, 4, 1, 28)),
            (
                "segments beyond the bytes",
                matches(&[u32::MAX], u32::MAX, 255, 1, 32),
            ),
            (
                "a layer beyond the segments",
                matches(&[u32::MAX, 2], 2, 4, 2, 32),
            ),
        ] {
            assert!(count >= 99, "{why}: {count}");
        }
    }
}
