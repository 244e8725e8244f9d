//! Filters: no key that was put in is denied, and any bytes at all are answered as their description says.

#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use bytes::Bytes;
use leveltable::format::FilterBlock;
use leveltable::fuzzing::FilterBlockBuilder;
use leveltable::sister_crates::POLICIES;
use leveltable::{BloomFilterPolicy, RibbonFilterPolicy, filter::FilterPolicy};
use leveltable_fuzz::naive;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    policy: Policy,
    whole_table: bool,
    /// Data blocks: how many bytes of file each takes, its keys, and how many more keys to count up.
    blocks: Vec<(u16, Vec<&'a [u8]>, u8)>,
    edits: Vec<(u16, u8)>,
    probes: [(u64, &'a [u8]); 3],
    bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Policy {
    Bloom(u16),
    Ribbon(f64),
    BuiltIn(u8),
}

impl Policy {
    fn make(self) -> Arc<dyn FilterPolicy> {
        match self {
            // More would be honest megabytes for a few bytes of input.
            Policy::Bloom(bits) => Arc::new(BloomFilterPolicy::new(u32::from(bits % 600))),
            Policy::Ribbon(bits) => Arc::new(RibbonFilterPolicy::new(bits)),
            Policy::BuiltIn(i) => {
                let policies = built_in_policies();
                Arc::clone(&policies[usize::from(i) % policies.len()])
            }
        }
    }
}

/// The policies that every reader knows.
fn built_in_policies() -> Vec<Arc<dyn FilterPolicy>> {
    POLICIES.iter().map(|policy| (policy.make)(10.0)).collect()
}

fuzz_target!(|input: Input| {
    let policy = input.policy.make();
    let contents = build(&input, &*policy);
    let mut edited = contents.clone();
    for &(at, byte) in &input.edits {
        let at = usize::from(at) % edited.len();
        edited[at] = byte;
    }
    read_any(&edited, &input);
    read_any(input.bytes, &input);
});

/// Keys of a data block, with its offset in the file.
fn keys_of(input: &Input) -> Vec<(u64, Vec<Vec<u8>>)> {
    let mut offset = 0;
    let keys_of = |&(len, ref keys, more): &(u16, Vec<&[u8]>, u8)| {
        let stem = keys.first().copied().unwrap_or_default();
        // Many keys out of few bytes of input: a count behind the first one.
        let counted = (0..u32::from(more)).map(|i| [stem, &i.to_be_bytes()].concat());
        let keys = keys.iter().map(|key| key.to_vec()).chain(counted);
        let block = (offset, keys.collect());
        offset += u64::from(len);
        block
    };
    input.blocks.iter().map(keys_of).collect()
}

/// Builds a filter block and asks it for all its keys.
fn build(input: &Input, policy: &dyn FilterPolicy) -> Vec<u8> {
    let blocks = keys_of(input);
    let make = || {
        let mut builder = FilterBlockBuilder::new(policy.builder(), input.whole_table);
        builder.start_block(0);
        for (offset, keys) in &blocks {
            builder.start_block(*offset);
            keys.iter().for_each(|key| builder.add_key(key));
        }
        let lens = input.blocks.iter().map(|(len, ..)| u64::from(*len));
        builder.finish(lens.sum()).expect("less than 4 GiB")
    };
    let contents = make();
    assert_eq!(contents, make(), "the same keys, the same filter");
    let reader = FilterBlock::new(Bytes::from(contents.clone())).unwrap();
    let last_with_keys = blocks.iter().rev().find(|(_, keys)| !keys.is_empty());
    if let (true, Some((offset, _))) = (input.whole_table, last_with_keys) {
        assert!(reader.covers_all(*offset));
    }
    for (offset, keys) in &blocks {
        for key in keys {
            assert!(reader.key_may_match(policy, *offset, key), "{key:02x?}");
        }
    }
    contents
}

/// Reads `contents`, whatever they are, with every policy.
fn read_any(contents: &[u8], input: &Input) {
    let policies = built_in_policies();
    let reader = FilterBlock::new(Bytes::copy_from_slice(contents));
    for (offset, key) in input.probes {
        // The bytes as a filter, and as a block of filters.
        verdicts(&policies, key, contents);
        let filter = naive::filter_of(contents, offset);
        match (&reader, filter) {
            (Ok(reader), Some(filter)) => {
                let expected = filter.map(|filter| verdicts(&policies, key, filter));
                for (i, policy) in policies.iter().enumerate() {
                    assert_eq!(
                        reader.key_may_match(&**policy, offset, key),
                        expected.as_ref().is_none_or(|verdicts| verdicts[i]),
                    );
                }
            }
            (Err(_), None) => {}
            _ => panic!("{reader:?}, but {filter:?}"),
        }
    }
}

/// What each policy says of `key`, checked against the descriptions of their encodings.
fn verdicts(policies: &[Arc<dyn FilterPolicy>], key: &[u8], filter: &[u8]) -> Vec<bool> {
    let verdict = |policy: &Arc<dyn FilterPolicy>| {
        let verdict = policy.key_may_match(key, filter);
        let unsigned = naive::bloom_matches(key, filter, false);
        match policy.name() {
            "leveldb.BuiltinBloomFilter2" => assert_eq!(verdict, unsigned),
            "leveldb.BuiltinBloomFilter" => {
                assert_eq!(verdict, unsigned || naive::bloom_matches(key, filter, true));
            }
            "leveltable.Ribbon1" => assert_eq!(verdict, naive::ribbon_matches(key, filter)),
            other => panic!("no description of {other}"),
        }
        verdict
    };
    policies.iter().map(verdict).collect()
}
