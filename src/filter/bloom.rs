//! LevelDB's Bloom filter, bit for bit.

use super::{FilterBuilder, FilterPolicy};

/// LevelDB's Bloom filter, named `leveldb.BuiltinBloomFilter2`. Every LevelDB can use it.
///
/// A filter of `n` keys has `n * bits_per_key` bits (at least 64, rounded up to whole bytes), then one byte `k`. Each key sets
/// `k` bits. LevelDB chooses `k = bits_per_key * 0.69`, close to `bits_per_key * ln 2`, which minimises false positives. With
/// an ideal hash their rate is `0.6185^bits_per_key` (Bloom 1970).
///
/// The hash has 32 bits and is weak on structured keys. At 10 bits per key and one filter for each 2 KiB, the false-positive
/// rate is 1 % for random keys, and 3 % for decimal numbers. For tables that only this crate reads, use
/// [`RibbonFilterPolicy`](crate::RibbonFilterPolicy).
///
/// A builder keeps 4 bytes for each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloomFilterPolicy {
    bits_per_key: u32,
}

impl BloomFilterPolicy {
    /// A policy with `bits_per_key` bits of filter for each key. LevelDB's usual choice is 10. More than 43 gain little,
    /// since a key sets at most 30 bits. A table cannot be started with 0. See
    /// [`WriteOptions::filter_policy`](crate::WriteOptions::filter_policy).
    pub fn new(bits_per_key: u32) -> BloomFilterPolicy {
        BloomFilterPolicy { bits_per_key }
    }

    /// Number of bits that each key sets and each probe tests, 1 to 30.
    fn probes(&self) -> u8 {
        // Truncated floating point, as in C++: another rounding would make another file.
        (f64::from(self.bits_per_key) * 0.69).clamp(1.0, 30.0) as u8
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
        may_match(hash32(key, u32::from), filter)
    }

    fn check(&self) -> Result<(), String> {
        match self.bits_per_key {
            0 => Err("its bits per key must be at least 1, not 0".into()),
            _ => Ok(()),
        }
    }
}

/// Keeps a 32-bit hash of each key.
struct BloomFilterBuilder {
    policy: BloomFilterPolicy,
    hashes: Vec<u32>,
}

/// Maximum length of a filter's array, in bytes. For a longer one, readers disagree on the modulus: C++ computes it in 64
/// bits, goleveldb in 32. At 10 bits per key the limit is reached at 429 million keys in one filter. With more keys the
/// filter gets denser instead of longer.
const MAX_BYTES: u64 = (u32::MAX / 8) as u64;

impl FilterBuilder for BloomFilterBuilder {
    fn add_key(&mut self, key: &[u8]) {
        self.hashes.push(hash32(key, u32::from));
    }

    #[expect(clippy::indexing_slicing, reason = "probes are below the length")]
    fn finish(&mut self, dst: &mut Vec<u8>) {
        let keys = self.hashes.len() as u64;
        let bits = (keys * u64::from(self.policy.bits_per_key)).max(64);
        let bytes = bits.div_ceil(8).min(MAX_BYTES) as usize;
        let k = self.policy.probes();
        let start = dst.len();
        dst.resize(start + bytes, 0);
        let (_, array) = dst.split_at_mut(start);
        let modulo = modulo_of_many(bytes as u64);
        for &hash in &self.hashes {
            for (at, bit) in probes(hash, k, &modulo) {
                array[at] |= 1 << (bit % 8);
            }
        }
        dst.push(k);
        self.hashes.clear();
    }
}

/// The `k` bits of `hash` in an array. Each is the number of a byte, and the number of a bit modulo 8; `modulo` takes a number modulo the
/// array's length.
///
/// Double hashing (Kirsch and Mitzenmacher 2006), where the second hash is the first one rotated.
#[inline]
fn probes(hash: u32, k: u8, modulo: impl Fn(u32) -> u32) -> impl Iterator<Item = (usize, u32)> {
    let delta = hash.rotate_right(17);
    (0..k).scan(hash, move |h, _| {
        // The bit is `h % (8 * bytes)`. Modulo 8 that is `h % 8`, and divided by 8 it is `h / 8 % bytes`.
        let probe = (modulo(*h / 8) as usize, *h);
        *h = h.wrapping_add(delta);
        Some(probe)
    })
}

/// Returns numbers modulo `divisor`, which has at most 32 bits: two multiplications take less time than a division (Lemire, Kaser and Kurz
/// 2019).
#[inline]
fn modulo_of_many(divisor: u64) -> impl Fn(u32) -> u32 {
    // 0 if the divisor is 1.
    let inverse = (u64::MAX / divisor).wrapping_add(1);
    move |n| {
        let fraction = inverse.wrapping_mul(n.into());
        ((u128::from(fraction) * u128::from(divisor)) >> 64) as u32
    }
}

#[inline]
#[expect(clippy::indexing_slicing, reason = "probes are below the length")]
fn may_match(hash: u32, filter: &[u8]) -> bool {
    match filter.split_last() {
        // As in LevelDB: an array without bits holds no key, and a k above 30 is reserved for other encodings.
        None | Some((_, [])) => false,
        Some((31.., _)) => true,
        Some((&k, array)) => {
            // Tests all bits even if the first is not set: the loads overlap, and cost less than a branch that the
            // processor cannot predict.
            // They stay within the first 2^32 bits: a longer array counts as one of that length.
            let bytes = u32::try_from(array.len()).unwrap_or(u32::MAX);
            let probes = probes(hash, k, |n| n % bytes);
            probes.fold(1, |all, (at, bit)| all & array[at].rotate_right(bit)) & 1 != 0
        }
    }
}

/// LevelDB's hash of a key, similar to MurmurHash. `widen` turns a byte of the tail into a word.
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

fn signed(byte: u8) -> u32 {
    i32::from(byte as i8) as u32
}

/// Filters named `leveldb.BuiltinBloomFilter`, without the 2.
///
/// LevelDB before 1.18 hashed the tail of a key as `char`, which is signed on x86. goleveldb writes the same name with today's
/// hash, which is unsigned. The file does not tell which, so a key may match if it matches under either hash. No key is
/// hidden; the false-positive rate at most doubles. It makes goleveldb's filters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldBloomFilterPolicy(pub(crate) BloomFilterPolicy);

impl FilterPolicy for OldBloomFilterPolicy {
    fn name(&self) -> &str {
        "leveldb.BuiltinBloomFilter"
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        self.0.builder()
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        may_match(hash32(key, u32::from), filter) || may_match(hash32(key, signed), filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::create_filter;

    /// Expectations from LevelDB's `util/bloom_test.cc`. `tests/engine/golden.rs` compares whole filters with those of C++.
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
                "{bits} bits per key"
            );
        }
    }

    /// LevelDB's bit is `hash % bits`.
    #[test]
    fn bits_are_those_of_leveldb() {
        let hashes = [0, 1, 7, 8, 63, 64, 12345, 1 << 31, u32::MAX - 1, u32::MAX];
        for bytes in (1..200).chain([1 << 20, (1 << 29) - 1, 1 << 29]) {
            let bits = bytes * 8;
            let edges = [bits - 1, bits, bits + 1, 2 * bits - 1].map(|h| h as u32);
            for hash in hashes.into_iter().chain(edges) {
                let divided = probes(hash, 1, |n| n % bytes as u32).next();
                let probe = probes(hash, 1, modulo_of_many(bytes)).next();
                assert_eq!(probe, divided);
                let bit = probe.map(|(at, bit)| at as u64 * 8 + u64::from(bit % 8));
                assert_eq!(bit, Some(u64::from(hash) % bits), "{hash} % {bits}");
            }
        }
    }

    #[test]
    fn any_bytes_are_a_filter() {
        let policy = BloomFilterPolicy::new(10);
        let old = OldBloomFilterPolicy(policy);
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
            assert_eq!(old.key_may_match(b"key", filter), expected);
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
        let old = OldBloomFilterPolicy(BloomFilterPolicy::new(10));
        let keys: Vec<Vec<u8>> = (0..500u16)
            .map(|i| vec![b'k', 0x80 | i as u8, (i >> 3) as u8])
            .collect();
        for widen in [u32::from as fn(u8) -> u32, signed] {
            let mut builder = BloomFilterBuilder {
                policy: BloomFilterPolicy::new(10),
                hashes: keys.iter().map(|key| hash32(key, widen)).collect(),
            };
            let mut filter = Vec::new();
            builder.finish(&mut filter);
            assert!(keys.iter().all(|key| old.key_may_match(key, &filter)));
        }
        let differ = keys
            .iter()
            .filter(|key| hash32(key, u32::from) != hash32(key, signed));
        assert_eq!(differ.count(), 500);
    }
}
