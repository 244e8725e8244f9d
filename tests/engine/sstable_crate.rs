//! The crate `sstable`, an implementation that shares no code with this one, walks what this crate writes,
//! and this crate reads what it writes.
//!
//! By iteration only: its `get` loses keys of sound tables. It takes the first metaindex entry at or after
//! its own filter's name for its filter, so it is told to look for the one that the table has, or for
//! none.

use std::sync::Arc;

use crate::common::{self, Entry, Random};
use leveltable::filter::FixedPrefix;
use leveltable::{
    BloomFilterPolicy, Compression, ErrorKind, OpenOptions, RibbonFilterPolicy, WriteOptions,
};
use sstable::SSIterator;

fn options(filter: sstable::filter::BoxedFilterPolicy) -> sstable::Options {
    sstable::Options {
        filter_policy: filter,
        ..sstable::Options::default()
    }
}

fn no_filter() -> sstable::filter::BoxedFilterPolicy {
    Arc::new(Box::new(sstable::filter::NoFilterPolicy::new()))
}

fn bloom() -> sstable::filter::BoxedFilterPolicy {
    Arc::new(Box::new(sstable::filter::BloomPolicy::new(10)))
}

/// Entries of several kinds, by name.
fn samples() -> Vec<(&'static str, Vec<Entry>)> {
    let mut random = Random(7);
    let mut noise: Vec<Entry> = (0..500)
        .map(|_| {
            let (key_len, value_len) = (1 + random.below(20), random.below(300));
            (random.bytes(key_len), random.bytes(value_len))
        })
        .collect();
    noise.sort();
    noise.dedup_by(|a, b| a.0 == b.0);
    let numbers = |i: u32| {
        (
            format!("{i:08}").into_bytes(),
            format!("value {i}").into_bytes(),
        )
    };
    let edges = [
        &b"\0"[..],
        b"\0\0",
        b"a",
        b"a\0",
        b"ab",
        b"a\xff",
        b"\xff",
        b"\xff\xff",
    ];
    vec![
        ("one", vec![(b"k".to_vec(), b"v".to_vec())]),
        ("numbers", (0..2000).map(numbers).collect()),
        ("noise", noise),
        ("edges", edges.map(|key| (key.to_vec(), vec![])).to_vec()),
        (
            "large values",
            (0..5).map(|i| (vec![b'k', i], vec![i; 100_000])).collect(),
        ),
    ]
}

fn walk(table: &sstable::Table) -> Vec<Entry> {
    let mut walk = table.iter();
    std::iter::from_fn(|| SSIterator::next(&mut walk)).collect()
}

#[test]
fn the_sstable_crate_walks_our_tables() {
    let mut tables = 0;
    for (name, entries) in samples() {
        for compression in [Compression::None, Compression::Snappy] {
            let sizes = [(1, 1), (100, 3), (4096, 16), (1 << 20, 1)];
            let aligned = sizes.map(|size| (true, size));
            let sizes = sizes.map(|size| (false, size)).into_iter().chain(aligned);
            for (is_aligned, (block_size, restart_interval)) in sizes {
                let shape = WriteOptions::new()
                    .compression(compression)
                    .block_align(is_aligned)
                    .block_size(block_size)
                    .restart_interval(restart_interval);
                let prefixes = shape.clone().prefix_filter(FixedPrefix::new(2));
                let with_bloom = shape.clone().filter_policy(BloomFilterPolicy::new(10));
                let with_ribbon = shape.clone().filter_policy(RibbonFilterPolicy::new(10));
                for (write, filter) in [
                    (shape.clone(), no_filter()),
                    (shape.no_filter(), bloom()),
                    (with_bloom.clone().whole_table_filter(false), bloom()),
                    (with_bloom.whole_table_filter(true), bloom()),
                    (with_ribbon.clone().whole_table_filter(false), no_filter()),
                    (with_ribbon.whole_table_filter(true), no_filter()),
                    (prefixes.clone(), no_filter()),
                    (prefixes.filter_policy(BloomFilterPolicy::new(10)), bloom()),
                ] {
                    let file = common::build(&write, &entries);
                    let size = file.len();
                    let table = sstable::Table::new(options(filter), Box::new(file), size).unwrap();
                    assert!(walk(&table) == entries, "{name}, {write:?}");
                    tables += 1;
                }
            }
        }
    }
    println!("{tables} tables walked");
}

/// It takes the first metaindex entry at or after its filter's name for the filter. That must not be the properties
/// block or a filter of prefixes: asked as a filter, they hide keys, or end the program.
#[test]
fn the_sstable_crate_does_not_take_other_blocks_for_a_filter() {
    for (name, entries) in samples() {
        let with_bloom = WriteOptions::leveldb();
        for write in [with_bloom.clone(), with_bloom.no_filter()] {
            let prefixes = write.clone().prefix_filter(FixedPrefix::new(3));
            let with_properties = [write.clone(), prefixes.clone()].map(|w| w.properties(true));
            let others = with_properties.into_iter().chain([prefixes]);
            let found: Vec<_> = std::iter::once(write.clone())
                .chain(others)
                .enumerate()
                .map(|(i, write)| {
                    let file = common::build(&write, &entries);
                    let ours = OpenOptions::new().open_source(file.clone()).unwrap();
                    let layout = common::Layout::of(&file);
                    let named = common::entries(&common::payload(&file, &layout.metaindex));
                    let others = named.len() - usize::from(ours.filter().is_some());
                    assert_eq!(others, [0, 2, 3, 1][i]);
                    let size = file.len();
                    let table =
                        sstable::Table::new(options(bloom()), Box::new(file), size).unwrap();
                    assert!(walk(&table) == entries, "{name}");
                    let keys = entries.iter().map(|(key, _)| key);
                    keys.map(|key| table.get(key).unwrap()).collect::<Vec<_>>()
                })
                .collect();
            assert!(
                found.iter().all(|others| *others == found[0]),
                "{name}, {write:?}"
            );
            assert!(found[0].iter().any(Option::is_some) || entries.len() < 10);
        }
    }
}

#[test]
fn we_read_tables_of_the_sstable_crate() {
    let mut refused = 0;
    for (name, entries) in samples() {
        for compression_type in [
            sstable::CompressionType::CompressionNone,
            sstable::CompressionType::CompressionSnappy,
        ] {
            for (block_size, block_restart_interval) in [(1, 1), (100, 3), (4096, 16)] {
                for (filter_policy, filter) in [
                    (bloom(), Some("leveldb.BuiltinBloomFilter2")),
                    (no_filter(), None),
                ] {
                    let write = sstable::Options {
                        compression_type,
                        block_size,
                        block_restart_interval,
                        ..options(filter_policy)
                    };
                    let mut file = Vec::new();
                    let mut builder = sstable::TableBuilder::new(write, &mut file);
                    for (key, value) in &entries {
                        builder.add(key, value).unwrap();
                    }
                    builder.finish().unwrap();

                    let opened = OpenOptions::new().open_source(file.clone());
                    if let Err(error) = &opened {
                        assert!(separators_hide_keys(&entries), "{name}: {error}");
                        assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
                        let table = OpenOptions::new().stored_order().open_source(file).unwrap();
                        let walked = table.iter().map(|entry| {
                            let (key, value) = entry.unwrap();
                            (key.to_vec(), value.to_vec())
                        });
                        assert!(walked.eq(entries.iter().cloned()), "{name}");
                        refused += 1;
                        continue;
                    }
                    let table = opened.unwrap();
                    let policy = table.filter().map(|filter| filter.policy.clone());
                    assert_eq!(policy.as_deref(), filter, "{name}");
                    common::assert_holds(&table, &entries);
                    let mut rejected = 0;
                    for (key, _) in &entries {
                        assert!(table.may_contain(key).unwrap());
                        let longer = [&key[..], b" and more"].concat();
                        assert_eq!(table.get(&longer).unwrap(), None);
                        rejected += usize::from(!table.may_contain(&longer).unwrap());
                    }
                    let is_used = rejected * 2 > entries.len();
                    assert!(is_used || filter.is_none(), "{name}: {rejected} rejected");
                }
            }
        }
    }
    assert!(refused > 0, "the fault of the crate's writer did not show");
}

/// Where a key is the one before (or, at the front, the empty one) and a zero, the crate's separator is
/// that key itself. By the format the key then belongs to the block before the one that it is in, where LevelDB, too, looks
/// for it in vain. We refuse such a table, whose keys can be walked in their stored order.
fn separators_hide_keys(entries: &[Entry]) -> bool {
    let keys = entries.iter().map(|(key, _)| &key[..]);
    let before = std::iter::once(&b""[..]).chain(keys.clone());
    before
        .zip(keys)
        .any(|(before, key)| key.strip_prefix(before) == Some(b"\0"))
}
