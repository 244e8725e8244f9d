//! What went wrong in trials, each by the rule that it broke.

use std::sync::Arc;

use leveltable::db::InternalKeyComparator;
use leveltable::repair::{IndexState, SalvageOptions, VerifyOptions, salvage, verify};
use leveltable::{Comparator, Compression, ErrorKind, OpenOptions, WriteOptions};

use super::common::{self, Entry, Layout, Random, Reverse, block, build, footer, handle_of};
use super::{content, destroy, entries, entry, options, rescue};
use crate::model::{IndexedDb, codecs};

/// A table in the order of IndexedDB, whose keys nobody knows how to compare, and its entries as they are stored.
fn indexed_db(options: &WriteOptions) -> (Vec<u8>, Vec<Entry>) {
    let number_key = |i: u32| [&[0, 1, 1, 1, 3][..], &(f64::from(i) * 0.75).to_le_bytes()].concat();
    let mut file = Vec::new();
    let options = options.clone().comparator(IndexedDb);
    let mut builder = options.build_db(&mut file);
    let mut random = Random(24);
    let mut entries = Vec::new();
    for i in 0..3806 {
        let (key, value) = (number_key(i), random.bytes(40));
        builder.put(&key, 7, &value).unwrap();
        entries.push(([&key[..], &(7u64 << 8 | 1).to_le_bytes()].concat(), value));
    }
    builder.finish().unwrap();
    (file, entries)
}

/// 24 % of the entries were lost.
#[test]
fn a_flipped_bit_of_the_magic_number_costs_no_entry_of_another_order() {
    let (mut file, entries) = indexed_db(&WriteOptions::leveldb());
    let last = file.len() - 1;
    file[last] ^= 1;
    let mut rescued = Vec::new();
    let mut builder = WriteOptions::new().build_db(&mut rescued);
    let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
    builder.finish().unwrap();
    assert_eq!(report.entries, 3806, "{report}");
    assert_eq!(report.index, IndexState::Found);
    assert!(report.stored_order && report.is_complete(), "{report}");
    let table = OpenOptions::new()
        .stored_order()
        .open_source(rescued)
        .unwrap();
    assert!(content(table.iter()) == entries);
}

/// Block 997 of 1,000 copied over block 1 left 160 of 40,000 entries; where block 1 is destroyed, 39,960. A table without
/// properties was refused.
#[test]
fn a_block_copied_over_another_costs_that_one() {
    for options in [WriteOptions::new(), WriteOptions::leveldb()] {
        let all: Vec<Entry> = (0..40_000)
            .map(|i| entry(&format!("key {i:07}"), b"a value"))
            .collect();
        let mut file = Vec::new();
        let mut builder = options
            .clone()
            .compression(Compression::None)
            .block_size(1 << 20)
            .build(&mut file);
        for block in all.chunks(40) {
            block
                .iter()
                .for_each(|(key, value)| builder.add(key, value).unwrap());
            builder.flush().unwrap();
        }
        builder.finish().unwrap();
        let layout = Layout::of(&file);
        let one = layout.data[1].clone();
        let same_size = layout.data[..=997]
            .iter()
            .rposition(|block| block.len() == one.len());
        let other = layout.data[same_size.unwrap()].clone();
        assert!(same_size > Some(900));
        file.copy_within(other, one.start);
        let mut rescued = Vec::new();
        let mut builder = options.build(&mut rescued);
        let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
        builder.finish().unwrap();
        assert_eq!(report.entries, 39_960, "{report}");
        assert!(!report.is_complete() && !report.stored_order);
        assert_eq!(report.lost.len(), 1, "{report}");
        let expected = [&all[..40], &all[80..]].concat();
        assert!(content(OpenOptions::new().open_source(rescued).unwrap().iter()) == expected);
    }
}

/// Rows that were a metaindex's, RocksDB's properties, and an index entry.
#[test]
fn metadata_is_no_data_without_footer_and_index() {
    let mut file = build(
        &WriteOptions::leveldb().compression(Compression::None),
        &entries(1),
    );
    let layout = Layout::of(&file);
    destroy(&mut file, layout.footer.clone());
    let (_, rescued) = rescue(file.clone());
    assert_eq!(rescued, entries(1));
    let properties = [
        entry("rocksdb.data.size", b"\x09"),
        entry("rocksdb.num.entries", b"\x01"),
    ];
    let data = file[..layout.data[0].end].to_vec();
    let mut with_properties = data.clone();
    let range = super::common::append(&mut with_properties, &block(&properties));
    let metaindex = [entry("rocksdb.properties", &handle_of(&range))];
    super::common::append(&mut with_properties, &block(&metaindex));
    let (report, rescued) = rescue(with_properties);
    assert_eq!(rescued, entries(1), "{report}");
}

/// Both were called complete.
#[test]
fn complete_means_that_something_says_what_the_whole_is() {
    for properties in [false, true] {
        let file = build(
            &options(Compression::None).properties(properties),
            &entries(100),
        );
        let layout = Layout::of(&file);
        for data in &layout.data {
            let (report, _) = rescue(file[..data.end].to_vec());
            assert!(report.entries > 0 && !report.is_complete(), "{report}");
        }
        let (report, _) = rescue(file[layout.footer.clone()].to_vec());
        assert!(!report.is_complete(), "{report}");
        // Properties say it, and are enough.
        let mut headless = file.clone();
        destroy(&mut headless, layout.index.clone());
        destroy(&mut headless, layout.footer.clone());
        let (report, rescued) = rescue(headless);
        assert_eq!(rescued, entries(100));
        assert_eq!(report.is_complete(), properties, "{report}");
        let (report, _) = rescue(file);
        assert!(report.is_complete());
    }
    let (report, _) = rescue(build(&WriteOptions::new(), &[]));
    assert!(report.is_complete(), "{report}");
    let (report, _) = rescue(footer(&(0..13), &(13..26)));
    assert!(!report.is_complete(), "{report}");
}

/// Minecraft's LevelDB and Bitcoin's cannot read Snappy.
#[test]
fn a_copy_has_the_codec_of_its_source_unless_it_is_asked_for_another() {
    let all: Vec<Entry> = (0..500)
        .map(|i| entry(&format!("key {i:05}"), &[b'v'; 60]))
        .collect();
    let codecs_of = |file: Vec<u8>| {
        let table = OpenOptions::new().open_source(file).unwrap();
        let mut codecs: Vec<_> = table.blocks().map(|block| block.unwrap().codec).collect();
        codecs.dedup();
        codecs
    };
    for codec in codecs() {
        let file = build(&WriteOptions::new().compression(codec), &all);
        let own = codecs_of(file.clone());
        let copy = |options: WriteOptions| {
            let mut rescued = Vec::new();
            let mut builder = options.build(&mut rescued);
            let report = salvage(file.clone(), &mut builder, SalvageOptions::new()).unwrap();
            assert!(report.is_complete());
            builder.finish().unwrap();
            codecs_of(rescued)
        };
        assert_eq!(copy(WriteOptions::new()), own);
        assert_eq!(copy(WriteOptions::leveldb()), own);
        assert_eq!(
            copy(WriteOptions::new().compression(Compression::Snappy)),
            ["snappy"]
        );
        assert_eq!(
            copy(WriteOptions::new().compression(Compression::None)),
            ["none"]
        );
    }
}

/// A copy in the order of the file says so: nobody can take it for one in bytewise order, and a comparator that does not fit
/// is found out.
#[test]
fn a_copy_in_file_order_needs_a_comparator_and_is_checked_whole() {
    let mut all = entries(30_000);
    all.reverse();
    let reverse = options(Compression::None).comparator(Reverse);
    let source = build(&reverse, &all);
    let layout = Layout::of(&source);
    let mut headless = source.clone();
    destroy(&mut headless, layout.index.clone());
    destroy(&mut headless, layout.footer.clone());
    let mut swapped = headless.clone();
    let (a, b) = (layout.data[3].clone(), layout.data[200].clone());
    assert_eq!(a.len(), b.len());
    swapped.copy_within(b.clone(), a.start);
    swapped[b].copy_from_slice(&source[a]);
    let copy = |file: &[u8]| {
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new().no_filter().build(&mut rescued);
        let report = salvage(file.to_vec(), &mut builder, SalvageOptions::new()).unwrap();
        assert_eq!(
            (report.entries, report.stored_order),
            (30_000, true),
            "{report}"
        );
        builder.finish().unwrap();
        rescued
    };
    let (whole, misordered) = (copy(&headless), copy(&swapped));
    for rescued in [&whole, &misordered] {
        let open = || OpenOptions::new();
        let error = open().open_source(rescued.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator);
        assert!(
            error.to_string().contains("leveltable.StoredOrder"),
            "{error}"
        );
        let table = open().stored_order().open_source(rescued.clone()).unwrap();
        assert_eq!(table.iter().count(), 30_000);
    }
    let open = |file: &[u8]| {
        OpenOptions::new()
            .comparator(Reverse)
            .check_order(false)
            .open_source(file.to_vec())
    };
    let table = open(&whole).unwrap();
    assert!(
        all.iter()
            .all(|(key, value)| table.get(key).unwrap().as_deref() == Some(&value[..]))
    );
    assert_eq!(open(&misordered).unwrap_err().kind(), ErrorKind::Comparator);
    // Without properties the copy could not say so.
    let mut builder = WriteOptions::leveldb().build(Vec::new());
    let error = salvage(headless.clone(), &mut builder, SalvageOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    let asked = SalvageOptions::new().stored_order();
    assert_eq!(
        salvage(headless, &mut builder, asked).unwrap().entries,
        30_000
    );
}

/// The same where the source records its order: so does the copy, and is checked whole, too.
#[test]
fn a_copy_in_file_order_keeps_the_name_of_its_comparator() {
    let (source, entries) = indexed_db(&WriteOptions::new());
    let handle = |at: usize| super::common::take_varint(&mut &source[at..]);
    assert!(handle(source.len() - 48) > 0);
    let mut rescued = Vec::new();
    let mut builder = WriteOptions::new().build_db(&mut rescued);
    let report = salvage(source, &mut builder, SalvageOptions::new()).unwrap();
    builder.finish().unwrap();
    assert!(report.stored_order && report.is_complete(), "{report}");
    let order: Arc<dyn Comparator> = Arc::new(InternalKeyComparator::new(IndexedDb));
    let table = OpenOptions::new()
        .comparator(order)
        .open_source(rescued.clone())
        .unwrap();
    assert_eq!(table.properties().unwrap().comparator, "idb_cmp1");
    assert!(content(table.iter()) == entries);
    let verified = verify(rescued, VerifyOptions::new()).unwrap();
    assert_eq!(verified.damage, 0, "{verified}");
}

/// A frame between bytes that belong to none may have been stored in a value.
#[test]
fn frames_in_a_damaged_block_are_uncertain_without_an_index_and_left_out_with_one() {
    let inner = build(
        &options(Compression::None).no_filter(),
        &[entry("inner", b"row")],
    );
    let inner_block = &inner[Layout::of(&inner).data[0].clone()];
    let value = [&[0xee; 30], inner_block, &[0xee; 30]].concat();
    let mut all = entries(30);
    all.push((b"key 0000030".to_vec(), value));
    all.extend((31..60).map(|i| entry(&format!("key {i:07}"), b"value")));
    let mut file = build(&options(Compression::None), &all);
    let layout = Layout::of(&file);
    let at = file
        .windows(inner_block.len())
        .position(|bytes| bytes == inner_block)
        .unwrap();
    let outer = layout
        .data
        .iter()
        .find(|block| block.contains(&at))
        .unwrap()
        .clone();
    file[outer.start + 3] ^= 1;
    let (report, rescued) = rescue(file.clone());
    assert!(
        report.uncertain.is_empty() && !rescued.contains(&entry("inner", b"row")),
        "{report}"
    );
    destroy(&mut file, layout.index.clone());
    let (report, rescued) = rescue(file);
    let inner = at as u64..(at + inner_block.len()) as u64;
    assert!(report.uncertain.contains(&inner), "{report}");
    assert!(rescued.contains(&entry("inner", b"row")) && !report.is_complete());
}

/// 60,000 keys that share 60,000 bytes, in 600 KB: each was stored whole, some 6 GB of them.
#[test]
fn a_copy_that_would_be_thousands_of_times_the_file_stops() {
    let count = 60_000u32;
    let long = vec![b'k'; count as usize];
    let varint = super::common::varint;
    let mut block = [
        vec![0],
        varint(long.len() as u64 + 4),
        vec![0],
        long.clone(),
        vec![0; 4],
    ]
    .concat();
    for i in 1..count {
        block.extend(varint(long.len() as u64));
        block.extend([4, 0]);
        block.extend(i.to_be_bytes());
    }
    block.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    let mut file = Vec::new();
    let data = super::common::append(&mut file, &block);
    let last = [&long[..], &count.to_be_bytes()].concat();
    let index = super::common::block(&[(last, handle_of(&data))]);
    let file = super::common::append_end(file, &[], &index);
    assert!(file.len() < 800_000);
    let mut builder = WriteOptions::new().build(std::io::sink());
    let error = salvage(file.clone(), &mut builder, SalvageOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("index"), "{error}");
    assert!(builder.file_bytes() < 128 << 20);
}

/// The reverse order of bytes, in which index keys are shortened.
#[derive(Debug)]
struct Shortening;

impl Comparator for Shortening {
    fn name(&self) -> &str {
        "test.Shortening"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        b.cmp(a)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        *start = [limit, &[0]].concat();
    }
}

/// Blocks of one size, of which one is gone and those after it have moved: each is copied once. Some were copied for two handles.
#[test]
fn no_block_is_copied_for_two_handles() {
    let numbered = |i| entry(&format!("key {i:05}"), b"value 00000");
    let mut sorted: Vec<Entry> = (0..60).map(numbered).collect();
    sorted.reverse();
    for (options, cut) in [WriteOptions::new(), WriteOptions::leveldb()]
        .into_iter()
        .flat_map(|options| [1, 3, 5, 8].map(|cut| (options.clone(), cut)))
    {
        let options = options.compression(Compression::None).block_size(100);
        let mut file = build(&options.comparator(Shortening), &sorted);
        let layout = Layout::of(&file);
        let gone = common::entries(&common::payload(&file, &layout.data[cut]));
        file.drain(layout.data[cut].clone());
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new().build(&mut rescued);
        let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
        builder.finish().unwrap();
        let table = OpenOptions::new().stored_order();
        let mut found = content(table.open_source(rescued).unwrap().iter());
        found.sort();
        let mut expected: Vec<Entry> = sorted.clone();
        expected.retain(|entry| !gone.contains(entry));
        expected.sort();
        assert_eq!(found, expected, "block {cut}: {report}");
    }
}

/// The keys of an index, which share prefixes as LevelDB's never do, unfold to more memory than a sound table's. Its entries were
/// copied as data.
#[test]
fn an_index_that_cannot_be_used_is_no_data() {
    const BLOCKS: usize = 20_000;
    let (mut file, mut index) = (Vec::new(), Vec::new());
    let varint = |n: usize| common::varint(n as u64);
    for i in 0..BLOCKS {
        let data = common::append(&mut file, &block(&[entry(&format!("k{i:06}"), b"v")]));
        let key = format!("{}{i:06}", "k".repeat(20_000));
        let shared = if i == 0 { 0 } else { 20_000 };
        let handle = handle_of(&data);
        index.extend(varint(shared));
        index.extend(varint(key.len() - shared));
        index.push(handle.len() as u8);
        index.extend(&key.as_bytes()[shared..]);
        index.extend(handle);
    }
    index.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    let metaindex = common::append(&mut file, &block(&[]));
    let index = common::append(&mut file, &index);
    file.extend(footer(&metaindex, &index));
    let (report, found) = rescue(file);
    assert_eq!(report.entries, BLOCKS as u64, "{report}");
    assert_eq!(found.len(), BLOCKS);
}
