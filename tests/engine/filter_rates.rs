//! All policies that are built in; and the documented rates of the ribbon filter, at the documented sizes, in release builds only:
//! `cargo test --release --test engine filter_rates:: -- --ignored`.

use bytes::Bytes;
use leveltable::sister_crates::{POLICIES, filter_with};
use leveltable::{OpenOptions, RibbonFilterPolicy, WriteOptions, filter::FilterPolicy};

/// A table of each policy says its name, is opened with its filter, and is rid of most absent keys by it.
#[test]
fn every_policy_that_is_built_in_is_written_and_read() {
    for policy in &POLICIES {
        let name = (policy.make)(10.0).name().to_owned();
        let mut file = Vec::new();
        let mut builder = filter_with(WriteOptions::new(), policy, 10.0).build(&mut file);
        let key = |i: u32| format!("{i:06}");
        for i in 0..2000 {
            builder.add(key(2 * i), b"value").unwrap();
        }
        let summary = builder.finish().unwrap();
        assert_eq!(summary.properties.filter_policy.as_ref(), Some(&name));
        let table = OpenOptions::new().open_source(Bytes::from(file)).unwrap();
        assert_eq!(table.filter().unwrap().policy, name);
        for i in 0..2000 {
            assert!(table.contains_key(key(2 * i)).unwrap(), "{name}: {i}");
        }
        for i in 0..2000 {
            assert!(!table.contains_key(key(2 * i + 1)).unwrap(), "{name}: {i}");
        }
        let rejected = table.stats().filter_rejected;
        assert!(rejected > 1900, "{name}: {rejected}");
    }
}

/// Bytes of a filter block beside its filter: two offsets and lg(base).
const BLOCK_OVERHEAD: usize = 9;

/// A sequence without repetition (SplitMix64).
fn random(i: u64) -> u64 {
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

type Shape = (&'static str, fn(u64) -> Vec<u8>);

const SHAPES: [Shape; 5] = [
    ("decimal", |i| format!("{i:016}").into_bytes()),
    ("hexadecimal", |i| format!("{i:016x}").into_bytes()),
    ("URL", |i| {
        format!("https://example.org/item?id={i:08}&lang=en").into_bytes()
    }),
    ("big-endian counter", |i| {
        u128::from(i).to_be_bytes().to_vec()
    }),
    ("random", |i| {
        [random(i).to_le_bytes(), random(!i).to_le_bytes()].concat()
    }),
];

/// At most 10 bits per key, everything in the block counted, and at most `most` of the absent keys pass: even
/// numbers are present, odd ones asked for.
fn check_rate(keys: u64, asked: u64, most: f64) {
    let policy = RibbonFilterPolicy::new(10);
    for (name, key) in SHAPES {
        let mut filter = Vec::new();
        let mut builder = policy.builder();
        (0..keys).for_each(|i| builder.add_key(&key(2 * i)));
        builder.finish(&mut filter);
        let bits = 8.0 * (filter.len() + BLOCK_OVERHEAD) as f64 / keys as f64;
        let passed = (0..asked)
            .filter(|i| policy.key_may_match(&key(2 * i + 1), &filter))
            .count();
        let rate = passed as f64 / asked as f64;
        println!(
            "{name}, {keys} keys: {bits:.3} bits per key, {:.4} % pass",
            100.0 * rate
        );
        assert!(
            bits <= 10.0 && rate <= most,
            "{name}: {bits} bits per key, {rate}"
        );
    }
}

#[test]
#[ignore = "for release builds"]
fn a_million_keys_of_every_shape() {
    check_rate(1_000_000, 2_000_000, 0.00137);
}

#[test]
#[ignore = "for release builds"]
fn ten_thousand_keys_of_every_shape() {
    check_rate(10_000, 2_000_000, 0.002);
}

#[test]
#[ignore = "for release builds"]
fn no_key_is_missed_in_a_hundred_million_probes() {
    let mut probes = 0;
    let mut filters = 0;
    while probes < 100_000_000u64 {
        // From none to three million keys, more often few; from 5 to 33 bits per key.
        let keys = random(filters) % (1 << (random(!filters) % 22)).min(3_000_000)
            + u64::from(filters > 0);
        let policy = RibbonFilterPolicy::new(5.0 + (random(filters ^ 77) % 280) as f64 / 10.0);
        let key = |i: u64| random(filters << 32 | i).to_le_bytes();
        let mut filter = Vec::new();
        let mut builder = policy.builder();
        (0..keys).for_each(|i| builder.add_key(&key(i)));
        builder.finish(&mut filter);
        for i in 0..keys {
            assert!(
                policy.key_may_match(&key(i), &filter),
                "{policy:?}, {keys} keys, key {i}"
            );
        }
        probes += keys;
        filters += 1;
    }
    println!("{probes} probes of present keys in {filters} filters");
}
