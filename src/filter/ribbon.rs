//! This crate's own filter: a bumped ribbon filter with XXH3 hashes. It takes 1 % more space than the theoretical
//! minimum.
//!
//! A Bloom filter takes 44 % more bits than its false-positive rate requires. A ribbon filter instead stores the solution of
//! a system of linear equations over bits. It has one *slot* of `c` bits for nearly every key. The hash of a key picks some
//! slots among 32 neighbours, and the key's *equation* demands that the exclusive or of these slots is `c` other bits of the
//! hash, its *fingerprint*. A key of the set passes, since the system was solved for it. Any other key passes with a
//! probability of 2⁻ᶜ.
//!
//! Equations whose slots lie in a narrow band are fast to solve. But if nearly all slots are used, equations in a band of 32
//! slots contradict each other. So 9 % of the keys are *bumped*: two bits for every 32 slots say which keys must look in the
//! next *layer*, a smaller ribbon, which bumps some of its keys to the next. In the end, all but 0.2 % of the slots hold a
//! key.
//!
//! Ribbon filters are by Dillinger and Walzer ("Ribbon filter: practically smaller than Bloom and Xor", 2021), bumping by
//! Dillinger, Hübschle-Schneider, Sanders and Walzer ("Fast succinct retrieval and approximate membership using ribbon", SEA
//! 2022). `docs/filters.md` has the measurements behind the parameters. The encoding is specified in the documentation of
//! [`RibbonFilterPolicy`].

mod builder;
mod equation;
mod reader;

use xxhash_rust::xxh3::xxh3_64;

use super::{FilterBuilder, FilterPolicy};
use builder::RibbonBuilder;
pub(crate) use reader::{Layout, Probe};

/// This crate's own filter policy: a bumped ribbon filter, named `leveltable.Ribbon1`.
///
/// At 10 bits per key, which counts the whole filter block, its false-positive rate is 0.106 %, whatever the keys look like. No
/// filter can be better than 0.098 %; a Bloom filter with a good hash has 0.82 %. A probe hashes the key once, then reads two
/// bits in one place and some 80 bytes in another.
///
/// The policy is meant for filters of many keys, best one for the whole table. A filter takes at least 27 bytes, or 47 at 10
/// bits per key. From about 500 keys on, it stays within its bits per key.
///
/// The builder keeps 8 bytes for each key, and 10 while [`finish`](FilterBuilder::finish) runs, which takes linear time; for fewer than
/// a million keys, up to 1 MB more. It never fails: if no filter can be found, the filter passes every key. That happens only with keys
/// chosen to collide.
///
/// ```
/// use leveltable::{RibbonFilterPolicy, filter::FilterPolicy};
///
/// let policy = RibbonFilterPolicy::new(10);
/// let keys: Vec<[u8; 4]> = (0..10_000u32).map(u32::to_be_bytes).collect();
/// let (mut builder, mut filter) = (policy.builder(), Vec::new());
/// keys.iter().for_each(|key| builder.add_key(key));
/// builder.finish(&mut filter);
///
/// assert!(filter.len() * 8 <= 10 * keys.len());
/// assert!(keys.iter().all(|key| policy.key_may_match(key, &filter)));
/// ```
///
/// # Encoding of `leveltable.Ribbon1`
///
/// All integers are little-endian. All arithmetic is modulo 2⁶⁴ unless stated otherwise.
///
/// ```text
/// filter  = word*  code*  end(last layer) .. end(layer 1)  end(layer 0)  narrow  columns  layers
///           u32    u8     u32                              u32           u32     u8       u8
/// ```
///
/// Slots come in *segments* of 32, which are numbered through all layers. Layer `i` has the segments from `end(i - 1)` (0 for
/// the first layer) up to `end(i)`, at least one. `end(last layer)` is the number `S` of all segments.
///
/// - **Words.** A segment has one word for each column. The first `narrow` segments have `columns` words (`c` for short), the
///   others `c + 1`. Segments follow one another, and so do the columns in each. Segment `g` begins at word
///   `g c + max(g - narrow, 0)`, and there are `S c + S - narrow` words. Bit `b` of the word of column `j` is bit `j` of slot
///   `b` of the segment. `c` is at least 4, no segment has more than 32 columns, and `narrow <= S`.
/// - **Codes.** Two bits for each segment, four segments in a byte, the first in the low bits. There are `ceil(S / 4)` bytes,
///   and unused bits are zero. A code of 0, 1, 2 or 3 means that the segment bumps the keys that start in its first 0, 8, 16
///   or 32 slots.
///
/// To look up a key, begin with `h` = XXH3-64 of the key (seed 0) and layer 0:
///
/// 1. A layer of `m` segments has `s = 32 m - 31` starts. The key starts at slot `h s / 2⁶⁴`, rounded down, of the layer,
///    where the product has 128 bits.
/// 2. If the code of the start's segment bumps the key, let `h = (h ^ (h >> 32)) * 0x243f6a8885a308d3` and go to the next
///    layer. If there is none, the key may match.
/// 3. Otherwise let `r = h * 0x9e3779b97f4a7c15`. The *coefficients* are the upper 32 bits of `r`, with the lowest of them set
///    to 1. The *fingerprint* is the lower 32 bits of `r`.
/// 4. For each column `j` of the start's segment, take the exclusive or of bit `j` of the slots `start + i`, over all `i` for
///    which bit `i` of the coefficients is set. The key may match if the result is bit `j` of the fingerprint for every
///    column. The slots lie in the segment and the next one, which has as many columns, or one more.
///
/// Two more forms exist. A filter of no bytes is the filter of no keys, and nothing matches. If `layers` is 0, or if the
/// numbers contradict each other or the length of the filter, everything may match. A writer that would need more than 32
/// layers, which is improbable, writes ten zero bytes instead.
///
/// A writer is free to choose layers, codes, widths and the values of free slots, as long as the last layer bumps no key. This
/// crate writes the same bytes on every platform.
///
/// For example, the keys `apple`, `grape` and `lemon` at 5 bits per key make this filter of one segment:
///
/// ```text
/// 04 00 00 00  04 00 00 00  00 00 00 00  04 00 00 00    words of columns 0 to 3: only slot 2 is not zero
/// 00                                                    codes: the segment bumps nothing
/// 01 00 00 00                                           layer 0 ends after segment 0
/// 01 00 00 00                                           one segment is narrow
/// 04                                                    and has four columns
/// 01                                                    one layer
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RibbonFilterPolicy {
    bits_per_key: f64,
}

impl RibbonFilterPolicy {
    pub(crate) const NAME: &str = "leveltable.Ribbon1";

    /// 10 bits per key: the default for tables, and for filters of prefixes. It reads any filter, since bits per key only
    /// matter to builders.
    pub(crate) const DEFAULT: RibbonFilterPolicy = RibbonFilterPolicy { bits_per_key: 10.0 };

    /// The hash that filters use for `key`.
    #[inline]
    pub(crate) fn hash(key: &[u8]) -> u64 {
        xxh3_64(key)
    }

    /// A policy whose filters take at most `bits_per_key` bits per key, from about 500 keys on.
    ///
    /// That includes everything in the filter, and the 9 bytes that a filter block adds to a single filter. The bits need not
    /// be a whole number. The false-positive rate is about 2 to the power of `-0.99 bits_per_key`.
    ///
    /// A table cannot be started with a number outside of 5 to 33. A builder that is used without a table takes the nearest number in
    /// this range.
    ///
    /// A filter of fewer keys can take more: at 10 bits per key, up to 60 bytes more. It grows in steps of 32 slots, and would
    /// otherwise have more false positives.
    pub fn new(bits_per_key: impl Into<f64>) -> Self {
        Self {
            bits_per_key: bits_per_key.into(),
        }
    }

    /// The nearest number of bits that the encoding can express. NaN, which a builder rejects, becomes the lower limit.
    fn limited(self) -> f64 {
        f64::min(self.bits_per_key.max(5.0), 33.0)
    }
}

impl FilterPolicy for RibbonFilterPolicy {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        Box::new(RibbonBuilder::new(self.limited()))
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        if filter.is_empty() {
            return false;
        }
        // `None` means a filter that contradicts itself: everything may match.
        reader::may_match(filter, Self::hash(key)).unwrap_or(true)
    }

    fn is_divided(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        if (5.0..=33.0).contains(&self.bits_per_key) {
            return Ok(());
        }
        let bits = self.bits_per_key;
        Err(format!("its bits per key must be from 5 to 33, not {bits}"))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::builder::BLOCK_OVERHEAD;
    use super::equation::TRAILER;
    use super::*;
    use crate::filter::create_filter;

    /// Pseudorandom numbers (SplitMix64).
    pub(super) struct Random(pub(super) u64);

    impl Random {
        pub(super) fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }
    }

    pub(super) fn filter_of<K: AsRef<[u8]>>(
        policy: RibbonFilterPolicy,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<u8> {
        let mut filter = Vec::new();
        create_filter(&policy, keys, &mut filter);
        filter
    }

    pub(super) fn numbers(count: u32) -> impl Iterator<Item = [u8; 4]> {
        (0..count).map(u32::to_be_bytes)
    }

    #[test]
    fn small_filter_is_the_one_in_the_documentation() {
        let policy = RibbonFilterPolicy::new(5);
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
        // Large enough to be sorted in several parts.
        assert_eq!(pinned(ten, 100_000), (124990, 0x777dc1d77e534ddc));
        assert_eq!(
            pinned(RibbonFilterPolicy::new(20.5), 1_000),
            (2550, 0x552dda15b23bdcd5)
        );
    }

    #[test]
    fn no_key_is_ever_missed() {
        let policies = [
            RibbonFilterPolicy::new(5),
            RibbonFilterPolicy::new(10),
            RibbonFilterPolicy::new(15.9),
            RibbonFilterPolicy::new(33),
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

    /// The measured false-positive rate.
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
                // The even numbers are present. The odd ones are absent, between those and after them.
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

    /// As documented in `new`.
    #[test]
    fn the_rate_halves_with_each_bit() {
        for bits in [5.5, 7.0, 9.25] {
            let policy = RibbonFilterPolicy::new(bits);
            let filter = filter_of(policy, numbers(20_000));
            let absent = (0..200_000u64).map(|i| i.to_le_bytes().to_vec());
            let measured = measured_rate(policy, &filter, absent);
            let rate = f64::exp2(-0.99 * bits);
            assert!((measured - rate).abs() < 0.1 * rate, "{bits}: {measured}");
        }
    }

    #[test]
    fn parameters_are_limited_to_their_range() {
        for (bits, limited) in [(5.0, 5.0), (10.5, 10.5), (33.0, 33.0)] {
            let policy = RibbonFilterPolicy::new(bits);
            assert_eq!(policy.limited(), limited);
            assert_eq!(policy.check(), Ok(()));
        }
        let others = [(0.0, 5.0), (-1.5, 5.0), (4.9, 5.0), (1e300, 33.0)];
        for (bits, limited) in others {
            assert_eq!(RibbonFilterPolicy::new(bits).limited(), limited);
        }
        let not_finite = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        for bits in others.map(|(bits, _)| bits).into_iter().chain(not_finite) {
            let message = RibbonFilterPolicy::new(bits).check().unwrap_err();
            let expected = format!("its bits per key must be from 5 to 33, not {bits}");
            assert_eq!(message, expected);
        }
        // A filter made with any of these numbers holds its keys.
        for bits in [f64::NAN, f64::NEG_INFINITY, 0.0, f64::INFINITY] {
            let policy = RibbonFilterPolicy::new(bits);
            let filter = filter_of(policy, numbers(100));
            assert!(numbers(100).all(|key| policy.key_may_match(&key, &filter)));
            let absent = (0..1_000u64).map(|i| i.to_le_bytes().to_vec());
            assert!(measured_rate(policy, &filter, absent) < 0.1);
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
        // Equal hashes that are not adjacent, as from two keys that collide.
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
        // The last key before `finish` counts again after it.
        let begin = dst.len();
        builder.add_key(&9u32.to_be_bytes());
        builder.finish(&mut dst);
        assert!(dst.len() > begin);
    }
}
