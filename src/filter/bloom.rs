//! LevelDB's Bloom filter, bit for bit.

use super::{FilterBuilder, FilterPolicy, not_finite};

/// LevelDB's own Bloom filter, `leveldb.BuiltinBloomFilter2`: what every LevelDB can use.
///
/// A filter is `n * bits_per_key` bits (at least 64, whole bytes) and one byte `k`, the number of
/// bits a key sets: `k = bits_per_key * 0.69`, which is `ln 2` to two digits, where a Bloom filter's
/// false positives are fewest, `0.6185^bits_per_key` of absent keys for an ideal hash.
///
/// The hash has 32 bits and is weak on keys with structure: at 10 bits a key, 1 % of absent random keys
/// pass, and 3 % of absent decimal numbers. In tables that only this crate reads, use
/// [`RibbonFilterPolicy`](crate::RibbonFilterPolicy).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloomFilterPolicy {
    /// `None` if the policy was made for a rate that is no finite number: [`check`](FilterPolicy::check) refuses it.
    bits_per_key: Option<u32>,
}

impl BloomFilterPolicy {
    /// A policy that spends `bits_per_key` bits of each filter on each key. 10 is LevelDB's usual choice;
    /// more than 43 brings nothing, since no more than 30 bits are set for a key.
    pub fn new(bits_per_key: u32) -> BloomFilterPolicy {
        BloomFilterPolicy {
            bits_per_key: Some(bits_per_key),
        }
    }

    /// The policy with the fewest bits a key that lets at most this share of absent keys pass, for an
    /// ideal hash; `0.01` takes 10 bits. See the type's note on keys with structure: measure, by
    /// [`Blocks::filter_rate`](crate::inspect::Blocks::filter_rate). Rates below 10⁻⁹ are out of reach. A table cannot be begun
    /// with a rate of NaN or infinity.
    pub fn with_false_positive_rate(rate: f64) -> BloomFilterPolicy {
        const MOST_USEFUL: u32 = 43;
        if !rate.is_finite() {
            return BloomFilterPolicy { bits_per_key: None };
        }
        let enough = |bits: &u32| BloomFilterPolicy::new(*bits).expected_rate() <= rate;
        BloomFilterPolicy::new((1..MOST_USEFUL).find(enough).unwrap_or(MOST_USEFUL))
    }

    /// 10 stands in for a rate that [`check`](FilterPolicy::check) refuses.
    fn bits_per_key(&self) -> u32 {
        self.bits_per_key.unwrap_or(10)
    }

    /// Share of absent keys that pass for an ideal hash: `(1 - e^(-k / b))^k` at `b` bits a key (Bloom 1970).
    fn expected_rate(&self) -> f64 {
        let k = f64::from(self.probes());
        (1.0 - (-k / f64::from(self.bits_per_key())).exp()).powf(k)
    }

    /// Number of bits that each key sets and each probe tests, 1 to 30.
    fn probes(&self) -> u8 {
        // In floating point and cut off, as in C++: a different k would be a different file.
        (f64::from(self.bits_per_key()) * 0.69).clamp(1.0, 30.0) as u8
    }
}

impl FilterPolicy for BloomFilterPolicy {
    fn name(&self) -> &str {
        "leveldb.BuiltinBloomFilter2"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        Box::new(BloomFilterBuilder {
            policy: *self,
            hashes: Vec::new(),
        })
    }

    #[inline]
    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        may_match(hash32(key, unsigned), filter)
    }

    fn check(&self) -> Result<(), String> {
        match self.bits_per_key {
            Some(_) => Ok(()),
            None => Err(not_finite("false positive rate", "above 0 and below 1")),
        }
    }
}

/// Keeps a hash of four bytes for each key.
struct BloomFilterBuilder {
    policy: BloomFilterPolicy,
    hashes: Vec<u32>,
}

/// `1 << i`: shifts by a number that is not known take longer than a load.
const BITS: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Most bytes in one filter's array: beyond, implementations disagree on the modulus (C++ computes it
/// in 64 bits, goleveldb in 32). At 10 bits a key that is 429 million keys in one filter; with more,
/// the filter gets denser, not larger.
const MAX_BYTES: u64 = (u32::MAX / 8) as u64;

impl FilterBuilder for BloomFilterBuilder {
    fn add_key(&mut self, key: &[u8]) {
        self.hashes.push(hash32(key, unsigned));
    }

    fn finish(&mut self, dst: &mut Vec<u8>) {
        let keys = self.hashes.len() as u64;
        let bits = (keys * u64::from(self.policy.bits_per_key())).max(64);
        let bytes = bits.div_ceil(8).min(MAX_BYTES) as usize;
        let k = self.policy.probes();
        let start = dst.len();
        dst.resize(start + bytes, 0);
        let array = dst.get_mut(start..).unwrap_or_default();
        match k {
            6 => set_bits(array, &self.hashes, 6), // of 10 bits a key: a loop of known length
            k => set_bits(array, &self.hashes, k),
        }
        dst.push(k);
        self.hashes.clear();
    }
}

#[inline(always)]
fn set_bits(array: &mut [u8], hashes: &[u32], k: u8) {
    let modulus = Modulus::new(array.len());
    for &hash in hashes {
        for (at, bit) in probes(hash, k, modulus) {
            if let Some(byte) = array.get_mut(at) {
                *byte |= BITS.get(bit as usize % 8).copied().unwrap_or_default();
            }
        }
    }
}

/// The `k` bits of `hash` in an array of `modulus` bytes, each as a byte and a bit of it, modulo 8: double hashing,
/// the second hash being the first rotated (Kirsch and Mitzenmacher 2006).
#[inline]
fn probes(hash: u32, k: u8, modulus: Modulus) -> impl Iterator<Item = (usize, u32)> {
    let delta = hash.rotate_right(17);
    (0..k).scan(hash, move |h, _| {
        // Bit `h % (8 * bytes)` of the array: what `h` leaves modulo 8, that leaves, too.
        let probe = (modulus.of(*h / 8), *h);
        *h = h.wrapping_add(delta);
        Some(probe)
    })
}

/// A number of bytes to take hashes modulo, by multiplications instead of a division for each.
///
/// With `inverse = ceil(2^64 / bytes)`, `h % bytes` is the integer part of `bytes` times the fraction that
/// `inverse * h` leaves below 2^64: exact for numbers of 32 bits (Lemire, Kaser and Kurz 2019).
#[derive(Clone, Copy)]
struct Modulus {
    bytes: u64,
    inverse: u64,
}

impl Modulus {
    /// Of an array of `bytes` bytes, at least one.
    #[inline]
    fn new(bytes: usize) -> Modulus {
        let bytes = bytes as u64;
        Modulus {
            bytes,
            inverse: (u64::MAX / bytes.max(1)).wrapping_add(1),
        }
    }

    #[inline]
    fn of(self, hash: u32) -> usize {
        let fraction = self.inverse.wrapping_mul(hash.into());
        ((u128::from(fraction) * u128::from(self.bytes)) >> 64) as usize
    }
}

#[inline]
fn may_match(hash: u32, filter: &[u8]) -> bool {
    match filter.split_last() {
        // LevelDB: an array of no bits holds nothing, and k above 30 is reserved for other encodings.
        None | Some((_, [])) => false,
        Some((31.., _)) => true,
        Some((&k, array)) => {
            // All bits, whatever the first ones are: loads that overlap cost less than a branch that
            // nobody can foresee.
            let probes = probes(hash, k, Modulus::new(array.len()));
            probes.fold(1, |all, (at, bit)| {
                let byte = array.get(at).copied().unwrap_or_default();
                all & byte.rotate_right(bit)
            }) & 1
                != 0
        }
    }
}

/// LevelDB's hash of a key, similar to MurmurHash. `widen` is how a byte of the tail becomes a word.
#[inline]
fn hash32(key: &[u8], widen: fn(u8) -> u32) -> u32 {
    const SEED: u32 = 0xbc9f_1d34;
    const M: u32 = 0xc6a4_a793;
    let (words, tail) = key.as_chunks::<4>();
    let mut h = SEED ^ (key.len() as u32).wrapping_mul(M);
    for word in words {
        h = h.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(M);
        h ^= h >> 16;
    }
    if !tail.is_empty() {
        for (i, &byte) in tail.iter().enumerate() {
            h = h.wrapping_add(widen(byte) << (8 * i));
        }
        h = h.wrapping_mul(M);
        h ^= h >> 24;
    }
    h
}

fn unsigned(byte: u8) -> u32 {
    u32::from(byte)
}

fn signed(byte: u8) -> u32 {
    i32::from(byte as i8) as u32
}

/// Reads filters named `leveldb.BuiltinBloomFilter`, without the 2.
///
/// LevelDB before 1.18 hashed a key's tail with the sign of `char`: negative on x86. goleveldb writes
/// the name with the hash as it is now. The file does not tell which, so a key may match if it does
/// under either: no key is hidden, at the price of up to twice the false positives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldBloomFilterPolicy;

impl FilterPolicy for OldBloomFilterPolicy {
    fn name(&self) -> &str {
        "leveldb.BuiltinBloomFilter"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        BloomFilterPolicy::new(10).builder()
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        may_match(hash32(key, unsigned), filter) || may_match(hash32(key, signed), filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::create_filter;

    /// What LevelDB's `util/bloom_test.cc` expects. Whole filters by C++ are compared in `tests/golden.rs`.
    #[test]
    fn small_filters_are_leveldbs() {
        let mut filter = Vec::new();
        create_filter(
            &BloomFilterPolicy::new(10),
            [&b"hello"[..], b"world"],
            &mut filter,
        );
        assert_eq!(filter.len(), 9, "64 bits at least, and k");
        assert_eq!(filter[8], 6);
        let policy = BloomFilterPolicy::new(10);
        assert!(policy.key_may_match(b"hello", &filter) && policy.key_may_match(b"world", &filter));
        assert!(!policy.key_may_match(b"x", &filter) && !policy.key_may_match(b"foo", &filter));
    }

    #[test]
    fn the_number_of_probes_is_leveldbs() {
        for (bits, k) in [
            (0, 1),
            (1, 1),
            (2, 1),
            (3, 2),
            (10, 6),
            (16, 11),
            (43, 29),
            (44, 30),
            (500, 30),
        ] {
            assert_eq!(
                BloomFilterPolicy::new(bits).probes(),
                k,
                "{bits} bits a key"
            );
        }
    }

    /// Bits a key by the textbook formula `-log2(rate) / ln 2`, rounded up; k is cut off, not rounded,
    /// which can cost one more.
    #[test]
    fn a_rate_takes_the_textbook_number_of_bits() {
        for rate in [0.5, 0.1, 0.05, 0.01, 0.001, 1e-4, 1e-6] {
            let textbook = (-f64::log2(rate) / std::f64::consts::LN_2).ceil() as u32;
            let bits = BloomFilterPolicy::with_false_positive_rate(rate).bits_per_key();
            assert!(
                (textbook..=textbook + 1).contains(&bits),
                "{rate}: {bits}, not {textbook}"
            );
        }
        for (rate, bits) in [(2.0, 1), (0.0, 43), (-1.0, 43)] {
            let policy = BloomFilterPolicy::with_false_positive_rate(rate);
            assert_eq!((policy.bits_per_key(), policy.check()), (bits, Ok(())));
        }
        for rate in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let policy = BloomFilterPolicy::with_false_positive_rate(rate);
            assert!(policy.check().is_err(), "{rate}");
            create_filter(&policy, [b"a table would refuse it"], &mut Vec::new());
        }
    }

    /// LevelDB's bit is `hash % bits`.
    #[test]
    fn the_modulus_is_exact() {
        let hashes = [0, 1, 7, 8, 63, 64, 12345, 1 << 31, u32::MAX - 1, u32::MAX];
        for bytes in (1..200).chain([1 << 20, (1 << 29) - 1, 1 << 29]) {
            let bits = bytes as u64 * 8;
            let edges = [bits - 1, bits, bits + 1, 2 * bits - 1].map(|h| h as u32);
            for hash in hashes.into_iter().chain(edges) {
                let probe = probes(hash, 1, Modulus::new(bytes)).next();
                let bit = probe.map(|(at, bit)| at as u64 * 8 + u64::from(bit % 8));
                assert_eq!(bit, Some(u64::from(hash) % bits), "{hash} % {bits}");
            }
        }
    }

    #[test]
    fn any_bytes_are_a_filter() {
        let policy = BloomFilterPolicy::new(10);
        for (filter, expected) in [
            (&[][..], false),
            (&[6], false),
            (&[0, 31], true),
            (&[0, 255], true),
            (&[0, 6], false),
            (&[255, 6], true),
            (&[0, 0], true),
        ] {
            assert_eq!(policy.key_may_match(b"key", filter), expected, "{filter:?}");
            assert_eq!(OldBloomFilterPolicy.key_may_match(b"key", filter), expected);
        }
    }

    #[test]
    fn random_keys_pass_at_the_expected_rate() {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state ^ (state >> 29)).to_le_bytes()
        };
        let policy = BloomFilterPolicy::new(10);
        let present: Vec<_> = (0..10_000).map(|_| random()).collect();
        let mut filter = Vec::new();
        create_filter(&policy, &present, &mut filter);
        assert!(present.iter().all(|key| policy.key_may_match(key, &filter)));
        let passed = (0..100_000)
            .filter(|_| policy.key_may_match(&random(), &filter))
            .count();
        assert!(
            (500..1500).contains(&passed),
            "{passed} of 100 000, where 0.8 % is expected"
        );
    }

    /// The two hashes of the older name differ on tails with a high bit; either must match.
    #[test]
    fn the_older_name_covers_both_hashes() {
        let keys: Vec<Vec<u8>> = (0..500u16)
            .map(|i| vec![b'k', 0x80 | i as u8, (i >> 3) as u8])
            .collect();
        for widen in [unsigned, signed] {
            let mut builder = BloomFilterBuilder {
                policy: BloomFilterPolicy::new(10),
                hashes: keys.iter().map(|key| hash32(key, widen)).collect(),
            };
            let mut filter = Vec::new();
            builder.finish(&mut filter);
            assert!(
                keys.iter()
                    .all(|key| OldBloomFilterPolicy.key_may_match(key, &filter))
            );
        }
        let differ = keys
            .iter()
            .filter(|key| hash32(key, unsigned) != hash32(key, signed));
        assert_eq!(differ.count(), 500);
    }
}
