//! What a file is made of.

use std::collections::BTreeSet;

use crate::common::{self, Entry, Layout};
use leveltable::{BloomFilterPolicy, Compression, ErrorKind, OpenOptions, Section, WriteOptions};
use leveltable_repair::{blocks, layout};

/// Entries of which every other block's compress.
fn entries(n: u32) -> Vec<Entry> {
    let noise = |i: u32| {
        (0..60u32)
            .map(|j| (i * 31 + j * j * 7 + i * j) as u8)
            .collect()
    };
    let value = |i| match i / 50 % 2 {
        0 => vec![b'v'; 60],
        _ => noise(i),
    };
    let key = |i| format!("key-{:07}", i * 3).into_bytes();
    (0..n).map(|i| (key(i), value(i))).collect()
}

/// Counted once while writing and once while reading.
#[test]
fn the_totals_of_all_blocks_are_the_builders_summary() {
    for options in [
        WriteOptions::new(),
        WriteOptions::new().no_filter().block_size(1),
        WriteOptions::leveldb().filter_policy(BloomFilterPolicy::new(2)),
    ] {
        for n in [0, 1, 5_000] {
            let mut builder = options.build(Vec::new());
            for (key, value) in entries(n) {
                builder.add(key, value).unwrap();
            }
            let (file, written) = builder.finish_into_writer().unwrap();
            let mut blocks = blocks(file).unwrap();
            assert!(blocks.all(|block| block.is_ok()));
            let (totals, written) = (blocks.totals(), written.properties);
            assert_eq!(totals.entries, written.entries);
            assert_eq!(totals.key_bytes, written.key_bytes);
            assert_eq!(totals.value_bytes, written.value_bytes);
            assert_eq!(totals.data_blocks, written.data_blocks);
            assert_eq!(totals.data_bytes, written.data_bytes);
            assert_eq!(totals.first_key, written.first_key);
            assert_eq!(totals.last_key, written.last_key);
        }
    }
}

/// Blocks, sections and footer tile the file, and the blocks' keys are the table's.
#[test]
fn parts_are_where_they_were_written() {
    let entries = entries(2_000);
    let file = common::build(&WriteOptions::new(), &entries);
    let expected = Layout::of(&file);
    let mut rest = entries.iter().map(|(key, _)| key);
    let mut codecs = BTreeSet::new();
    let mut described = blocks(file.clone()).unwrap();
    for range in &expected.data {
        let block = described.next().unwrap().unwrap();
        assert_eq!(
            (block.offset, block.stored_bytes),
            (range.start as u64, range.len() as u64)
        );
        codecs.insert(block.codec);
        let (first, last) = block.key_range.unwrap();
        assert_eq!(rest.next().unwrap(), &first);
        assert_eq!(rest.nth(block.entries as usize - 2).unwrap(), &last);
    }
    assert!(described.next().is_none() && rest.next().is_none());
    assert_eq!(codecs.into_iter().collect::<Vec<_>>(), ["none", "snappy"]);

    let layout = layout(file).unwrap();
    let named = layout
        .named
        .iter()
        .map(|block| (&block.name[..], block.offset as usize));
    let named: Vec<_> = named.collect();
    let start = |range: Option<std::ops::Range<usize>>| range.unwrap().start;
    let parts = [
        (&b"about.leveltable"[..], start(expected.properties)),
        (b"about.pieces", start(expected.pieces)),
        (b"filter.leveltable.Ribbon1", start(expected.filter)),
    ];
    assert_eq!(named, parts);
    assert_eq!(layout.index.offset as usize, expected.index.start);
    assert_eq!(layout.metaindex.offset as usize, expected.metaindex.start);
    assert_eq!(layout.footer_offset as usize, expected.footer.start);
}

#[test]
fn a_damaged_block_is_an_error_of_its_own() {
    let options = WriteOptions::new().compression(Compression::None);
    let mut file = common::build(&options, &entries(1_000));
    file[5_000] ^= 1;
    let mut blocks = blocks(file.clone()).unwrap();
    let results: Vec<_> = blocks.by_ref().collect();
    let damaged: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert_eq!(damaged.len(), 1);
    let corruption = damaged[0].corruption().unwrap();
    assert_eq!(corruption.section, Section::Data);
    assert!((1..=5_000).contains(&corruption.offset));
    let table = OpenOptions::new().open_source(file).unwrap();
    assert_eq!(
        blocks.totals().data_blocks as usize,
        table.data_blocks() - 1
    );
}

/// What is no table is said as by opening it, and errors name the file.
#[test]
fn what_is_no_table_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table.ldb");
    std::fs::write(&path, "<html>").unwrap();
    let source = || leveltable::Source::open(&path).unwrap();
    let opened = OpenOptions::new().open_source(source()).unwrap_err();
    for error in [layout(source()).unwrap_err(), blocks(source()).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NotATable);
        assert_eq!(error.path(), Some(&*path));
        assert_eq!(error.to_string(), opened.to_string());
    }
}
