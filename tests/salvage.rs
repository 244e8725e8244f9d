//! Damaged tables, and the entries that `salvage` recovers from them.
//!
//! What is expected comes from the entries that a table was written from and from the places of its
//! blocks, which `common::Layout` finds without the crate's code.

mod common;

use std::collections::BTreeSet;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use bytes::Bytes;
use common::{Entry, Layout, Random, Reverse, build, handle_of, seal, take_varint};
use leveltable::db::KeyKind;
use leveltable::repair::{
    IndexState, LostRange, SalvageOptions, SalvageReport, VerifyOptions, salvage, verify,
};
use leveltable::{
    BloomFilterPolicy, BytewiseComparator, Comparator, Compression, ErrorKind, OpenOptions, ReadAt,
    RibbonFilterPolicy, Section, Source, WriteOptions,
    db::{InternalKey, InternalKeyComparator, ValueType},
};
use sha2::Digest;

const CODECS: [Compression; 2] = [Compression::None, Compression::Snappy];

/// Options for small blocks, so that a table of moderate size has many.
fn options(compression: Compression) -> WriteOptions {
    WriteOptions::leveldb()
        .block_size(256)
        .compression(compression)
}

/// The same for all tables of blocks that tests decode: of each codec, and as LevelDB lays them out (which has no properties,
/// and the index last) and as this crate does (properties, index, metaindex). Without optimisation, some of these: each codec, and
/// each layout.
fn all_options() -> Vec<WriteOptions> {
    let of = |codec| [options(codec), options(codec).properties(true)];
    let step = if cfg!(debug_assertions) { 3 } else { 1 };
    CODECS.into_iter().flat_map(of).step_by(step).collect()
}

/// Entries that compress somewhat, about seven to a block of `options`.
fn entries(n: usize) -> Vec<Entry> {
    let mut random = Random(n as u64);
    let entry = |i: usize| {
        let mut value = random.bytes(12);
        value.extend([b'v'; 20]);
        (format!("key {i:07}").into_bytes(), value)
    };
    (0..n).map(entry).collect()
}

/// Salvages `source` and reads the result back with everything checked.
fn rescue_with(options: &WriteOptions, source: impl Into<Source>) -> (SalvageReport, Vec<Entry>) {
    let mut rescued = Vec::new();
    let mut builder = options.build(&mut rescued);
    let report = salvage(source, &mut builder, SalvageOptions::new()).unwrap();
    let summary = builder.finish().unwrap();
    assert_eq!(summary.entries, report.entries);
    let verified = verify(rescued.clone(), VerifyOptions::new()).unwrap();
    assert!(verified.is_sound(), "{verified}");
    let table = OpenOptions::new().open_source(rescued).unwrap();
    (report, content(table.iter()))
}

fn rescue(source: impl Into<Source>) -> (SalvageReport, Vec<Entry>) {
    rescue_with(&WriteOptions::new(), source)
}

fn content(range: leveltable::Range) -> Vec<Entry> {
    let owned = |(key, value): (Bytes, Bytes)| (key.to_vec(), value.to_vec());
    range.map(|entry| owned(entry.unwrap())).collect()
}

/// Overwrites a range with rubbish that differs everywhere from what was there.
fn destroy(file: &mut [u8], range: Range<usize>) {
    let mut random = Random(range.start as u64 + 1);
    for byte in &mut file[range] {
        *byte ^= 1 + (random.next() % 255) as u8;
    }
}

/// The entries of each data block, decoded without the crate.
fn by_block(file: &[u8], layout: &Layout) -> Vec<Vec<Entry>> {
    let blocks = layout.data.iter();
    blocks
        .map(|block| common::entries(&common::payload(file, block)))
        .collect()
}

fn without(blocks: &[Vec<Entry>], lost: impl Fn(usize) -> bool) -> Vec<Entry> {
    let kept = blocks.iter().enumerate().filter(|(i, _)| !lost(*i));
    kept.flat_map(|(_, entries)| entries.clone()).collect()
}

fn ranges(report: &SalvageReport) -> Vec<Range<usize>> {
    let usizes = |range: &Range<u64>| range.start as usize..range.end as usize;
    report.lost.iter().map(|lost| usizes(&lost.range)).collect()
}

// ---- Damage to blocks -----------------------------------------------------------------------

#[test]
fn damage_to_one_block_of_a_thousand_costs_that_block_only() {
    each_block_of_a_thousand(Compression::None, false);
    each_block_of_a_thousand(Compression::None, true);
}

#[test]
fn damage_to_one_snappy_block_of_a_thousand_costs_that_block_only() {
    each_block_of_a_thousand(Compression::Snappy, false);
    each_block_of_a_thousand(Compression::Snappy, true);
}

/// Each of 1 000 blocks destroyed in turn costs its own entries and no others.
fn each_block_of_a_thousand(compression: Compression, properties: bool) {
    let value = |i: u32| [&i.to_le_bytes()[..], &[b'v'; 50]].concat();
    let entries: Vec<Entry> = (0..2000)
        .map(|i| (format!("{i:04}").into_bytes(), value(i)))
        .collect();
    let options = options(compression).properties(properties);
    let file = build(&options.block_size(100), &entries);
    let layout = Layout::of(&file);
    let blocks = by_block(&file, &layout);
    assert_eq!(blocks.len(), 1000);
    let codec = file[layout.data[500].end - 5];
    assert_eq!(codec, u8::from(compression == Compression::Snappy));
    // All of them take a minute without optimisation.
    let step = if cfg!(debug_assertions) { 29 } else { 1 };
    for (i, range) in layout.data.iter().enumerate().step_by(step) {
        let mut damaged = file.clone();
        destroy(&mut damaged, range.clone());
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::leveldb().no_filter().build(&mut rescued);
        let report = salvage(damaged, &mut builder, SalvageOptions::new()).unwrap();
        builder.finish().unwrap();
        let table = OpenOptions::new().open_source(rescued).unwrap();
        let expected = without(&blocks, |block| block == i);
        assert!(content(table.iter()) == expected, "block {i}");
        assert_eq!(report.entries, 1998);
        assert_eq!(report.entries_by_index, 1998);
        assert_eq!(ranges(&report), std::slice::from_ref(range));
        let lost = &report.lost[0];
        let neighbour = |entry: Option<&Entry>| entry.map(|(key, _)| Bytes::from(key.clone()));
        let before = (2 * i).checked_sub(1).map(|last| &entries[last]);
        assert_eq!(lost.after, neighbour(before));
        assert_eq!(lost.before, neighbour(entries.get(2 * i + 2)));
        assert!(lost.reason.contains("checksum"), "{}", lost.reason);
    }
}

/// The same without footer and index: the end of the damage must be found, too.
#[test]
fn damage_to_one_block_costs_that_block_only_without_an_index() {
    for options in all_options() {
        let file = build(&options, &entries(700));
        let layout = Layout::of(&file);
        let blocks = by_block(&file, &layout);
        for (i, range) in layout.data.iter().enumerate() {
            let mut damaged = file.clone();
            destroy(&mut damaged, range.clone());
            destroy(&mut damaged, layout.index.clone());
            destroy(&mut damaged, layout.footer.clone());
            let (report, rescued) = rescue(damaged);
            assert!(
                rescued == without(&blocks, |block| block == i),
                "block {i}: {report}"
            );
            assert_eq!(report.index, IndexState::Lost);
            assert_eq!(ranges(&report)[0], *range);
            assert_eq!(report.lost[0].entries, None);
        }
    }
}

#[test]
fn many_damaged_blocks_cost_themselves_only() {
    let mut random = Random(3);
    for options in all_options() {
        let file = build(&options, &entries(1400));
        let layout = Layout::of(&file);
        let blocks = by_block(&file, &layout);
        for with_index in [true, false] {
            let hit: BTreeSet<usize> = (0..60).map(|_| random.below(blocks.len())).collect();
            let mut damaged = file.clone();
            for &i in &hit {
                let at = layout.data[i].start + random.below(layout.data[i].len());
                damaged[at] ^= 0x10;
            }
            if !with_index {
                destroy(&mut damaged, layout.index.clone());
                destroy(&mut damaged, layout.footer.clone());
            }
            let (report, rescued) = rescue(damaged);
            assert!(
                rescued == without(&blocks, |i| hit.contains(&i)),
                "{report}"
            );
            let lost: usize = hit.iter().map(|&i| layout.data[i].len()).sum();
            assert_eq!(report.lost_bytes(), lost as u64);
        }
    }
}

/// Blocks much larger than the first window of the search, as large values make them.
#[test]
fn large_blocks_are_found_after_others_and_after_damage() {
    for options in all_options() {
        let mut random = Random(8);
        let sizes = [10, 1_900_000, 20, 300_000, 40, 1_500_000, 5, 700_000, 9];
        let entries: Vec<Entry> = sizes
            .iter()
            .enumerate()
            .map(|(i, &len)| (vec![b'k', i as u8], random.bytes(len)))
            .collect();
        let file = build(&options.block_size(1), &entries);
        let layout = Layout::of(&file);
        let cases = [
            (vec![0, 4], vec![1, 2, 3, 5, 6, 7, 8]),
            (vec![], vec![0, 1, 2, 3, 4, 5, 6, 7, 8]),
            (vec![2], vec![0, 1, 3, 4, 5, 6, 7, 8]),
        ];
        let most = if cfg!(debug_assertions) { 1 } else { 3 };
        for (lost, kept) in cases.into_iter().take(most) {
            let mut damaged = file.clone();
            for &i in &lost {
                destroy(&mut damaged, layout.data[i].clone());
            }
            destroy(&mut damaged, layout.index.clone());
            destroy(&mut damaged, layout.footer.clone());
            let (report, rescued) = rescue(damaged);
            let expected: Vec<Entry> = kept.iter().map(|&i| entries[i].clone()).collect();
            assert!(rescued == expected, "{lost:?}: {report}");
        }
    }
}

// ---- Footer, index, metaindex and filter ----------------------------------------------------

/// Tables of these entries: with a filter and without, and those with properties also in the order of LevelDB, as this crate
/// once wrote them.
fn tables(options: &WriteOptions, entries: &[Entry]) -> Vec<Vec<u8>> {
    let files =
        [options.clone(), options.clone().no_filter()].map(|options| build(&options, entries));
    let both = files.iter().flat_map(|file| common::in_both_orders(file));
    both.collect()
}

/// All that can be destroyed beside data, in all combinations: every entry recovered, none invented.
#[test]
fn no_entry_is_lost_or_invented_whatever_becomes_of_the_rest() {
    for options in all_options() {
        for n in [0, 1, 2, 7, 8, 15, 300] {
            let entries = entries(n);
            for file in tables(&options, &entries) {
                let layout = Layout::of(&file);
                let mut parts = vec![
                    layout.metaindex.clone(),
                    layout.index.clone(),
                    layout.footer.clone(),
                ];
                parts.extend(layout.filter.clone());
                parts.extend(layout.properties.clone());
                for subset in 0..1 << parts.len() {
                    let mut damaged = file.clone();
                    for (i, part) in parts.iter().enumerate() {
                        if subset >> i & 1 == 1 {
                            destroy(&mut damaged, part.clone());
                        }
                    }
                    let (report, rescued) = rescue(damaged.clone());
                    assert!(rescued == entries, "{n} entries, {subset:b}: {report}");
                    assert_eq!(report.entries_out_of_order, 0);
                    // With the data gone as well, what is left of the rest is no data.
                    layout
                        .data
                        .iter()
                        .for_each(|block| destroy(&mut damaged, block.clone()));
                    let (without_data, rescued) = rescue(damaged);
                    assert!(
                        rescued.is_empty(),
                        "{n} entries, {subset:b}: {without_data}"
                    );
                    let index_whole = subset >> 1 & 1 == 0;
                    if index_whole && n > 0 {
                        assert_ne!(report.index, IndexState::Lost, "{n} entries, {subset:b}");
                    }
                    // The metaindex says that index and footer are all that is lost.
                    let named = layout.filter.is_some() || layout.properties.is_some();
                    if (index_whole && n > 0) || (named && subset & !0b110 == 0) {
                        assert_eq!(report.lost, [], "{n} entries, {subset:b}");
                    }
                }
            }
        }
    }
}

/// A file cut at any length: all of the blocks that are whole, and nothing else.
#[test]
fn a_cut_file_gives_up_the_blocks_that_are_whole() {
    for options in all_options() {
        for entries in [entries(1), entries(60)] {
            for file in tables(&options, &entries) {
                let layout = Layout::of(&file);
                let blocks = by_block(&file, &layout);
                let step = if cfg!(debug_assertions) { 11 } else { 1 };
                for len in (0..file.len()).step_by(step) {
                    let (report, rescued) = rescue(file[..len].to_vec());
                    let expected = without(&blocks, |i| layout.data[i].end > len);
                    let what = format!("{len} of {} bytes: {report}", file.len());
                    assert!(rescued == expected, "{what}");
                    // What is whole is of use.
                    let index_is_whole = layout.index.end <= len;
                    assert_eq!(report.index != IndexState::Lost, index_is_whole, "{what}");
                }
            }
        }
    }
}

/// The last of a table without the first, and tables inside of other bytes: offsets are all off.
#[test]
fn bytes_missing_or_added_in_front_do_no_harm() {
    for options in all_options() {
        for n in [1, 7, 100] {
            let entries = entries(n);
            let file = build(&options, &entries);
            let layout = Layout::of(&file);
            let blocks = by_block(&file, &layout);
            for len in [1, 20, 4096, 300_000] {
                let mut shifted = Random(5).bytes(len);
                shifted.extend(&file);
                let (report, rescued) = rescue(shifted.clone());
                assert!(
                    rescued == entries,
                    "{n} entries, {len} bytes in front: {report}"
                );
                shifted.extend(vec![0; len]);
                let (report, rescued) = rescue(shifted);
                assert!(
                    rescued == entries,
                    "{n} entries, {len} bytes around: {report}"
                );
            }
            for missing in (1..layout.metaindex.start.min(layout.index.start)).step_by(41) {
                let (report, rescued) = rescue(file[missing..].to_vec());
                let expected = without(&blocks, |i| layout.data[i].start < missing);
                assert!(
                    rescued == expected,
                    "{n} entries, {missing} bytes missing: {report}"
                );
            }
            let middle = layout.data[blocks.len() / 2].clone();
            let mut torn = file.clone();
            torn.drain(middle.start + 1..middle.end - 2);
            let (report, rescued) = rescue(torn);
            assert!(
                rescued == without(&blocks, |i| i == blocks.len() / 2),
                "{report}"
            );
        }
    }
}

/// Single bits of the whole file: never a wrong entry, and at most one block's entries lost.
#[test]
fn every_flipped_bit_costs_one_block_at_most() {
    for options in all_options() {
        for file in tables(&options, &entries(12)) {
            let layout = Layout::of(&file);
            let blocks = by_block(&file, &layout);
            // All of them take two minutes without optimisation. This step gets to each bit of a byte.
            let step = if cfg!(debug_assertions) { 11 } else { 1 };
            for bit in (0..file.len() * 8).step_by(step) {
                let mut damaged = file.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let (report, rescued) = rescue(damaged);
                let expected = without(&blocks, |i| layout.data[i].contains(&(bit / 8)));
                assert!(rescued == expected, "bit {bit}: {report}");
            }
        }
    }
}

// ---- What must not be mistaken --------------------------------------------------------------

/// Builds `file` from blocks whose bounds the test chooses.
fn build_blocks(options: &WriteOptions, blocks: &[Vec<Entry>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut builder = options.clone().block_size(1 << 20).build(&mut file);
    for block in blocks {
        for (key, value) in block {
            builder.add(key, value).unwrap();
        }
        builder.flush().unwrap();
    }
    builder.finish().unwrap();
    file
}

fn entry(key: &str, value: &[u8]) -> Entry {
    (key.as_bytes().to_vec(), value.to_vec())
}

/// Data whose values are the very handles of the blocks before it, or whose keys are those of a
/// metaindex, is data.
#[test]
fn data_that_looks_like_an_index_or_a_metaindex_is_not_lost() {
    let raw = options(Compression::None);
    let with_properties = raw.clone().properties(true);
    for options in [
        raw.clone().no_filter(),
        raw,
        with_properties.clone().no_filter(),
        with_properties,
    ] {
        let first = vec![entry("a", b"1"), entry("b", b"2")];
        let one = Layout::of(&build_blocks(&options, std::slice::from_ref(&first))).data[0].clone();
        let second = vec![entry("c", &handle_of(&one))];
        let pair = [first.clone(), second.clone()];
        let two = Layout::of(&build_blocks(&options, &pair)).data[1].clone();
        let tables = [
            pair.to_vec(),
            vec![
                first.clone(),
                vec![entry("c", &handle_of(&one)), entry("d", &handle_of(&two))],
            ],
            vec![vec![entry("a", &handle_of(&one))], second.clone()],
            vec![
                first.clone(),
                second.clone(),
                vec![entry("d", &handle_of(&one)), entry("e", &handle_of(&two))],
            ],
            vec![
                first.clone(),
                vec![entry(
                    "filter.leveldb.BuiltinBloomFilter2",
                    &handle_of(&one),
                )],
            ],
            vec![
                first.clone(),
                second.clone(),
                vec![entry("filter.x", &handle_of(&two))],
            ],
            vec![
                vec![entry("filter.x", &handle_of(&one))],
                vec![entry("filter.y", &handle_of(&one))],
            ],
        ];
        for (i, blocks) in tables.iter().enumerate() {
            let file = build_blocks(&options, blocks);
            let layout = Layout::of(&file);
            assert_eq!(layout.data.len(), blocks.len());
            let all: Vec<Entry> = blocks.concat();
            for lost in [
                vec![],
                vec![layout.footer.clone()],
                vec![layout.index.clone()],
                vec![layout.footer.clone(), layout.index.clone()],
                vec![
                    layout.footer.clone(),
                    layout.index.clone(),
                    layout.metaindex.clone(),
                ],
            ] {
                let mut damaged = file.clone();
                for part in &lost {
                    destroy(&mut damaged, part.clone());
                }
                let (report, rescued) = rescue(damaged);
                assert!(rescued == all, "table {i}, without {lost:?}: {report}");
            }
            // The file may also end right after the data.
            let (report, rescued) = rescue(file[..layout.data[blocks.len() - 1].end].to_vec());
            assert!(rescued == all, "table {i} cut: {report}");
        }
    }
}

/// A table whose values are tables: what is inside of a value is no block of this table.
#[test]
fn tables_inside_of_values_are_not_opened() {
    for compression in CODECS {
        let inner = build(&options(Compression::None), &entries(30));
        let blocks: Vec<Vec<Entry>> = ["a", "m", "z"]
            .iter()
            .map(|key| vec![entry(key, &inner), entry(&format!("{key}2"), b"x")])
            .collect();
        let file = build_blocks(&options(compression), &blocks);
        let layout = Layout::of(&file);
        let all = blocks.concat();
        let lose = |parts: &[&Range<usize>]| {
            let mut damaged = file.clone();
            for part in parts {
                destroy(&mut damaged, (*part).clone());
            }
            rescue(damaged).1
        };
        assert!(lose(&[]) == all);
        assert!(lose(&[&layout.footer]) == all);
        assert!(lose(&[&layout.footer, &layout.index]) == all);
        // Damaged at the front only, the block still holds whole blocks of the other table. The index,
        // even one found by scanning, shows that they are not part of this one.
        let mut damaged = file.clone();
        damaged[layout.data[1].start] ^= 0xff;
        assert!(rescue(damaged.clone()).1 == without(&blocks, |i| i == 1));
        destroy(&mut damaged, layout.footer.clone());
        let (report, rescued) = rescue(damaged);
        assert!(rescued == without(&blocks, |i| i == 1), "{report}");
        assert_eq!(report.index, IndexState::Found);
        // Even where more of the other tables is sound than of this one.
        let mut damaged = file.clone();
        damaged[layout.data[0].start] ^= 0xff;
        damaged[layout.data[1].start] ^= 0xff;
        destroy(&mut damaged, layout.footer.clone());
        let (report, rescued) = rescue(damaged);
        assert!(rescued == without(&blocks, |i| i < 2), "{report}");
    }
}

/// Where the index is damaged only in part, the rest of its handles still leads to blocks that no search
/// finds.
#[test]
fn a_damaged_index_still_leads_to_large_blocks() {
    let mut random = Random(9);
    let sizes = [10, 5_000_000, 20, 30];
    let values = sizes.iter().enumerate();
    let entries: Vec<Entry> = values
        .map(|(i, &len)| (vec![b'k', i as u8], random.bytes(len)))
        .collect();
    let file = build(&options(Compression::None).block_size(1), &entries);
    let layout = Layout::of(&file);
    let mut damaged = file;
    destroy(&mut damaged, layout.data[0].clone());
    damaged[layout.index.end - 13] ^= 1; // its last restart
    let (report, rescued) = rescue(damaged);
    assert!(rescued == entries[1..], "{report}");
    assert_eq!(report.index, IndexState::Lost);
}

/// Blocks that an older table left in the file are dropped where it is out of order, and the index keeps them out
/// altogether.
#[test]
fn blocks_of_an_older_table_are_left_out() {
    let new = entries(100);
    let file = build(&options(Compression::Snappy), &new);
    let layout = Layout::of(&file);
    let old: Vec<Entry> = (0..50)
        .map(|i| entry(&format!("key {:07}", i * 2), b"old"))
        .collect();
    let old = build(&options(Compression::Snappy), &old);
    let old_data = old[..Layout::of(&old).data.last().unwrap().end].to_vec();
    // After the table; in front of it; and after its data, where no index tells what belongs to it.
    let after = [&file[..], &old_data].concat();
    let in_front = [&old_data[..], &file].concat();
    let instead = [&file[..layout.metaindex.start], &old_data].concat();
    for (file, has_index) in [(after, true), (in_front, true), (instead, false)] {
        let (report, rescued) = rescue(file);
        assert!(rescued == new, "{report}");
        if has_index {
            assert_eq!(report.index, IndexState::Found);
        } else {
            assert_eq!(report.index, IndexState::Lost);
            assert_eq!(report.entries_out_of_order, 50);
            let lost = report.lost.iter().filter_map(|lost| lost.entries);
            assert_eq!(lost.sum::<u64>(), 50);
        }
    }
}

/// One stray block with a high key in front must not cost all the rest.
#[test]
fn the_most_entries_are_kept_not_the_first() {
    let stray = build(&options(Compression::None), &[entry("zzz", b"stray")]);
    let stray = &stray[..Layout::of(&stray).data[0].end];
    let all = entries(100);
    let file = build(&options(Compression::None), &all);
    let data = &file[..Layout::of(&file).metaindex.start];
    let (report, rescued) = rescue([stray, data].concat());
    assert!(rescued == all, "{report}");
    assert_eq!(report.lost[0].entries, Some(1));
    assert_eq!(report.lost[0].range, 0..stray.len() as u64);
    assert_eq!(report.lost[0].after, None);
    assert_eq!(report.lost[0].before.as_deref(), Some(&all[0].0[..]));
}

#[test]
fn files_that_are_no_tables_give_nothing() {
    let mut random = Random(11);
    for file in [
        vec![],
        vec![0; 5],
        vec![0; 1 << 20],
        random.bytes(300_000),
        b"hello".repeat(1000),
    ] {
        let len = file.len() as u64;
        let (report, rescued) = rescue(file);
        assert_eq!(rescued, []);
        assert_eq!(report.lost_bytes(), len);
        assert_eq!(report.index, IndexState::Lost);
    }
}

// ---- Orders ---------------------------------------------------------------------------------

/// Its blocks are sound and look like a table's, but those of its properties are no entries, and its keys carry tags:
/// all that was copied, and nothing said.
#[test]
fn the_tables_of_other_programs_are_refused() {
    let mut file = build(&options(Compression::None), &entries(100));
    let magic_at = file.len() - 8;
    for (magic, name) in [
        (
            0x88e2_41b7_85f4_cff7_u64,
            "RocksDB or Pebble block-based table",
        ),
        (0x8242_2296_63bf_9564, "RocksDB plain table"),
        (0xb3aa_9ff0_b3aa_9ff0, "Pebble table"),
    ] {
        file[magic_at..].copy_from_slice(&magic.to_le_bytes());
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new().build(&mut rescued);
        let error = salvage(file.clone(), &mut builder, SalvageOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotATable);
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(builder.entries(), 0);
        let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
        assert!(!verified.is_sound());
        assert!(!verified.to_string().contains("salvage"), "{verified}");
    }
}

#[test]
fn any_comparator_will_do_but_it_must_be_the_right_one() {
    let mut entries = entries(300);
    entries.push((vec![], vec![])); // the empty key is the last, and its entry looks like restarts
    entries.sort_by(|a, b| b.0.cmp(&a.0));
    let options = options(Compression::None).comparator(Reverse);
    let file = build(&options, &entries);
    let layout = Layout::of(&file);
    for damage in [
        layout.footer.start..file.len(),
        layout.index.start..file.len(),
    ] {
        let mut damaged = file.clone();
        destroy(&mut damaged, damage);
        let mut rescued = Vec::new();
        let mut builder = options.build(&mut rescued);
        let _ = salvage(damaged.clone(), &mut builder, SalvageOptions::new()).unwrap();
        builder.finish().unwrap();
        let open = OpenOptions::new().comparator(Reverse);
        assert!(content(open.open_source(rescued).unwrap().iter()) == entries);

        let mut wrong = WriteOptions::new().build(Vec::new());
        let error = salvage(damaged, &mut wrong, SalvageOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
        assert_eq!(wrong.entries(), 0, "nothing was added");
    }
}

#[test]
fn a_databases_table_keeps_its_stored_keys() {
    let mut file = Vec::new();
    let mut builder = options(Compression::Snappy).build_db(&mut file);
    for i in 0..300u64 {
        let key = format!("user key {i:04}");
        if i % 3 == 0 {
            builder.delete(key.as_bytes(), 1000 + i).unwrap();
        }
        builder.put(key.as_bytes(), i + 1, b"a value").unwrap();
    }
    builder.finish().unwrap();
    let layout = Layout::of(&file);
    let stored: Vec<Entry> = by_block(&file, &layout).concat();
    assert_eq!(stored.len(), 400);
    destroy(&mut file, layout.index.start..layout.footer.end);

    let mut rescued = Vec::new();
    let mut builder = WriteOptions::leveldb().build_db(&mut rescued);
    let report = salvage(file.clone(), &mut builder, SalvageOptions::new()).unwrap();
    builder.finish().unwrap();
    assert_eq!(report.entries, 400);
    let db = OpenOptions::new().open_db_source(rescued).unwrap();
    assert!(content(db.as_table().iter()) == stored);

    let newest = db.iter().next().unwrap().unwrap();
    assert_eq!(
        (newest.sequence, newest.version),
        (1000, leveltable::db::Version::Deleted)
    );

    // The wrong kind of builder is refused, before anything is added.
    let mut plain = WriteOptions::new().build(Vec::new());
    let error = salvage(file.clone(), &mut plain, SalvageOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
    assert_eq!(plain.entries(), 0);
    let plain_file = build(&options(Compression::Snappy), &entries(50));
    let mut db = WriteOptions::new().build_db(Vec::new());
    let words: Vec<Entry> = (0..50)
        .map(|i| entry(&format!("word {i:02}"), b""))
        .collect();
    for plain in [plain_file, build(&options(Compression::Snappy), &words)] {
        let error = salvage(plain, &mut db, SalvageOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
    }

    // Unless the caller insists.
    let mut plain = WriteOptions::new().build(Vec::new());
    let insist = SalvageOptions::new().keys(KeyKind::Plain);
    assert_eq!(salvage(file, &mut plain, insist).unwrap().entries, 400);
    let mut db = WriteOptions::new().build_db(Vec::new());
    let insist = SalvageOptions::new().keys(KeyKind::Database);
    let words = build(&options(Compression::Snappy), &words);
    assert_eq!(salvage(words, &mut db, insist).unwrap().entries, 50);
}

// ---- Sources that fail ----------------------------------------------------------------------

/// A disk with sectors that cannot be read.
struct BadSectors {
    file: Bytes,
    bad: Vec<Range<u64>>,
}

impl ReadAt for BadSectors {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let end = offset + len as u64;
        let is_bad = |bad: &Range<u64>| bad.start < end && offset < bad.end;
        if self.bad.iter().any(is_bad) {
            Err(io::Error::other("bad sector"))
        } else {
            self.file.read_at(offset, len)
        }
    }
}

#[test]
fn sectors_that_cannot_be_read_cost_the_blocks_they_hold() {
    for compression in CODECS {
        let file = build(&options(compression).block_size(4096), &entries(20_000));
        let layout = Layout::of(&file);
        let blocks = by_block(&file, &layout);
        let len = file.len() as u64;
        for end_is_bad in [false, true] {
            let mut bad = vec![40_960..45_056, 200_704..204_800];
            if end_is_bad {
                bad.push(len - 100..len);
            }
            let source = BadSectors {
                file: file.clone().into(),
                bad: bad.clone(),
            };
            let (report, rescued) = rescue(Arc::new(source));
            let is_lost = |i: usize| {
                let block = &layout.data[i];
                let is_in = |bad: &Range<u64>| {
                    (bad.start as usize) < block.end && block.start < bad.end as usize
                };
                bad.iter().any(is_in)
            };
            assert!(rescued == without(&blocks, is_lost), "{report}");
            assert!(!end_is_bad || report.index == IndexState::Lost);
            assert!(!report.is_complete());
            let says_why = |lost: &LostRange| lost.reason.contains("bad sector");
            for sector in &bad[..2] {
                let overlaps = |lost: &&LostRange| {
                    lost.range.start < sector.end && sector.start < lost.range.end
                };
                let mut lost = report.lost.iter().filter(overlaps).peekable();
                assert!(lost.peek().is_some() && lost.all(says_why), "{report}");
            }
        }
    }
    let mut dead = BadSectors {
        file: vec![0; 100].into(),
        bad: vec![],
    };
    dead.bad.push(0..100);
    let mut builder = WriteOptions::new().build(Vec::new());
    let error = salvage(Arc::new(dead), &mut builder, SalvageOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn blocks_of_a_codec_that_is_not_built_in_are_named() {
    let entries = entries(30);
    let mut file = build(&options(Compression::None), &entries);
    let layout = Layout::of(&file);
    let blocks = by_block(&file, &layout);
    let range = layout.data[1].clone();
    file[range.end - 5] = 7;
    seal(&mut file, &range);
    for (damage, index) in [
        (0..0, IndexState::Sound),
        (layout.index.start..file.len(), IndexState::Lost),
    ] {
        let mut damaged = file.clone();
        destroy(&mut damaged, damage);
        let (report, rescued) = rescue(damaged);
        assert!(rescued == without(&blocks, |i| i == 1), "{report}");
        assert_eq!(ranges(&report)[0], range);
        assert_eq!(report.index, index);
        let named = report.lost[0].reason.contains("type 7");
        assert!(named || index == IndexState::Lost, "{report}");
    }
}

/// Entries out of order inside of a block whose checksum is right: a writer's fault.
#[test]
fn entries_out_of_order_are_counted_and_left_out() {
    let block = vec![
        entry("a", b"1"),
        entry("c", b"2"),
        entry("d", b"3"),
        entry("e", b"4"),
    ];
    let mut file = build_blocks(
        &options(Compression::None),
        &[block, vec![entry("x", b"5")]],
    );
    let range = Layout::of(&file).data[0].clone();
    let at = range.start
        + file[range.clone()]
            .windows(3)
            .position(|w| w == b"\x01\x01d")
            .unwrap();
    file[at + 2] = b'b';
    seal(&mut file, &range);
    let (report, rescued) = rescue(file);
    let keys: Vec<&[u8]> = rescued.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [b"a", b"c", b"e", b"x"]);
    assert_eq!(report.entries_out_of_order, 1);
    assert_eq!(report.lost[0].entries, Some(1));
    assert_eq!(ranges(&report), [range]);
}

/// Errors of the builder come through, and what it wrote stands as it is.
#[test]
fn a_full_disk_ends_the_salvage() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let file = build(&options(Compression::None), &entries(20_000));
    let mut builder = options(Compression::None).build(Full);
    let error = salvage(file, &mut builder, SalvageOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn what_was_set_aside_is_reported() {
    let file = build(&options(Compression::None), &entries(100));
    let layout = Layout::of(&file);
    let (report, _) = rescue(file.clone());
    assert!(report.is_complete());
    assert_eq!(report.entries_by_index, 100);
    let as_range = |range: &Range<usize>| range.start as u64..range.end as u64;
    let expected = [
        (Section::Filter, as_range(layout.filter.as_ref().unwrap())),
        (Section::Metaindex, as_range(&layout.metaindex)),
        (Section::Index, as_range(&layout.index)),
        (Section::Footer, as_range(&layout.footer)),
    ];
    assert_eq!(report.set_aside, expected);
    let mut damaged = file;
    destroy(&mut damaged, layout.index.start..layout.footer.end);
    let (report, _) = rescue(damaged);
    assert_eq!(report.set_aside, expected[..2]);
}

// ---- Real tables ----------------------------------------------------------------------------

/// Tables by other programs, whose content is known from elsewhere: `tests/corpus.rs` says what the folder
/// holds.
#[test]
#[ignore = "needs a folder of real tables, named by LEVELTABLE_CORPUS"]
fn real_tables_are_salvaged_without_index_and_footer() {
    let folder = std::path::PathBuf::from(std::env::var_os("LEVELTABLE_CORPUS").unwrap());
    let manifest = std::fs::read_to_string(folder.join("manifest.jsonl")).unwrap();
    let mut tables = 0;
    for line in manifest.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(expected) = line["kv_sha256"].as_str() else {
            continue;
        };
        let name = line["file"].as_str().unwrap();
        let is_internal = line["internal_keys"] == true;
        let file = std::fs::read(folder.join(name)).unwrap();
        let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
        if verified
            .findings
            .iter()
            .any(|f| f.found().contains("this build cannot read"))
        {
            println!("{name}: codec not built in");
            continue;
        }
        assert!(verified.is_sound(), "{name}: {verified}");
        assert_eq!(verified.keys == KeyKind::Database, is_internal, "{name}");
        let mut handles = &file[file.len() - 48..];
        let [_, _, index, _] = [(); 4].map(|()| take_varint(&mut handles));
        for damage in [file.len() - 48..file.len(), index..file.len(), 0..0] {
            let mut damaged = file.clone();
            destroy(&mut damaged, damage.clone());
            let mut rescued = Vec::new();
            let report = if is_internal {
                let mut builder = WriteOptions::leveldb().build_db(&mut rescued);
                let report = salvage(damaged, &mut builder, SalvageOptions::new()).unwrap();
                builder.finish().unwrap();
                report
            } else {
                let mut builder = WriteOptions::leveldb().build(&mut rescued);
                let report = salvage(damaged, &mut builder, SalvageOptions::new()).unwrap();
                builder.finish().unwrap();
                report
            };
            let order: Arc<dyn Comparator> = if is_internal {
                Arc::new(InternalKeyComparator::new(BytewiseComparator))
            } else {
                Arc::new(BytewiseComparator)
            };
            let table = OpenOptions::new()
                .comparator(order)
                .open_source(rescued)
                .unwrap();
            let mut hash = sha2::Sha256::new();
            for (key, value) in content(table.iter()) {
                for part in [key, value] {
                    hash.update((part.len() as u32).to_le_bytes());
                    hash.update(&part);
                }
            }
            let hash: String = hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(hash, expected, "{name} without {damage:?}: {report}");
        }
        tables += 1;
    }
    assert!(tables > 10);
    println!("{tables} tables");
}

/// Found by fuzzing. With bytes missing or added in front, no handle in the metaindex leads to a block any more,
/// and its entry was copied as data.
#[test]
fn a_metaindex_whose_handles_lead_nowhere_is_not_taken_for_data() {
    for options in [WriteOptions::leveldb(), WriteOptions::new()] {
        for entries in [vec![], entries(30)] {
            let file = common::build(&options, &entries);
            let layout = Layout::of(&file);
            let without = |parts: &[&Range<usize>]| {
                let mut damaged = file.clone();
                for part in parts {
                    destroy(&mut damaged, (*part).clone());
                }
                damaged
            };
            let filter = layout.filter.clone().unwrap();
            for damaged in [
                file.clone(),
                without(&[&layout.index]),
                without(&[&layout.index, &layout.footer]),
                without(&[&layout.index, &layout.footer, &filter]),
            ] {
                let cut = (0..=layout.metaindex.start).map(|missing| damaged[missing..].to_vec());
                let added = (1..300)
                    .step_by(13)
                    .map(|more| [&vec![0xee; more], &damaged[..]].concat());
                for changed in cut.chain(added) {
                    let mut rescued = Vec::new();
                    let mut builder = options.build(&mut rescued);
                    let report = salvage(changed, &mut builder, SalvageOptions::new()).unwrap();
                    builder.finish().unwrap();
                    let table = OpenOptions::new().open_source(rescued).unwrap();
                    let invented = table.prefix(b"filter.").next();
                    assert!(invented.is_none(), "{invented:?}: {report}");
                }
            }
        }
    }
}

// ---- Progress -------------------------------------------------------------------------------

/// Whichever way the blocks are found: told of on the way, never back, and to the end.
#[test]
fn progress_ascends_to_the_end() {
    let file = build(&options(Compression::None), &entries(3000));
    let layout = Layout::of(&file);
    let size = file.len();
    let headless = file[..layout.index.start].to_vec();
    let mut damaged = file.clone();
    destroy(&mut damaged, layout.data[200].clone());
    // In the search after damage, which goes through a megabyte of rubbish in windows.
    let mut rubbish = file[..layout.data[200].start].to_vec();
    rubbish.extend(Random(1).bytes(1 << 20));
    rubbish.extend(&headless[layout.data[200].start..]);
    let nothing = Random(2).bytes(1 << 20);
    for (name, file, steps) in [
        ("sound", file.clone(), 2 * layout.data.len()),
        ("damaged", damaged, 2 * layout.data.len()),
        ("without an index", headless, 2 * layout.data.len()),
        ("with a gap", rubbish, 2 * layout.data.len()),
        ("cut", file[..size / 2].to_vec(), layout.data.len()),
        ("no table", nothing, 3),
        ("empty", Vec::new(), 1),
    ] {
        let total = 2 * file.len() as u64;
        let mut seen = Vec::new();
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new().build(&mut rescued);
        let options = SalvageOptions::new().progress(|progress| {
            assert_eq!(progress.total, total, "{name}");
            seen.push(progress.done);
            ControlFlow::Continue(())
        });
        let report = salvage(file, &mut builder, options).unwrap();
        assert!(!report.cancelled);
        assert!(seen.is_sorted(), "{name}: {seen:?}");
        assert_eq!(seen.last(), Some(&total), "{name}");
        // A step each time a block is found or copied, and none of them is most of the way.
        assert!(seen.len() >= steps, "{name}: {}", seen.len());
        if steps > 3 {
            let strides = [0].iter().chain(&seen).zip(&seen);
            let widest = strides.map(|(before, after)| after - before).max();
            assert!(widest.unwrap() <= total / 2, "{name}: {widest:?}");
        }
        // Both halves of the work are told of.
        assert!(seen.contains(&(total / 2)), "{name}");
    }
}

#[test]
fn a_salvage_can_be_ended_early() {
    let file = build(&options(Compression::None), &entries(1000));
    let blocks = Layout::of(&file).data.len();
    let headless = file[..Layout::of(&file).index.start].to_vec();
    let run = |file: &[u8], calls_before: usize| {
        let mut calls = 0;
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new().build(&mut rescued);
        let options = SalvageOptions::new().progress(|_| {
            calls += 1;
            if calls > calls_before {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let report = salvage(file.to_vec(), &mut builder, options).unwrap();
        assert_eq!(calls, calls_before + 1, "called again after it said to end");
        assert!(report.cancelled && !report.is_complete());
        assert!(report.to_string().contains("cancelled"));
        assert_eq!(builder.finish().unwrap().entries, report.entries);
        report
    };
    // While blocks are looked for: nothing is copied.
    for file in [&file, &headless] {
        for calls in [0, 1, blocks / 2] {
            assert_eq!(run(file, calls).entries, 0);
        }
    }
    // While they are copied: the first three.
    let report = run(&file, blocks + 3);
    assert_eq!(report.data_blocks, 3);
    let first_three = by_block(&file, &Layout::of(&file))[..3].concat();
    assert_eq!(report.entries, first_three.len() as u64);
}

/// Found by fuzzing. Where footer, data and a part of the metaindex were gone, so that the index had come nearer
/// to the front than the data reached, its entries were copied as data; and also with the data there, where too
/// little of the metaindex was left between.
#[test]
fn an_index_without_what_was_before_it_is_not_taken_for_data() {
    let tables = [
        vec![(Vec::new(), Vec::new())],
        vec![entry("key", b"value")],
        entries(30),
    ];
    let [unfiltered, bare] =
        [WriteOptions::new(), WriteOptions::leveldb()].map(WriteOptions::no_filter);
    for options in [
        WriteOptions::leveldb(),
        WriteOptions::new(),
        unfiltered,
        bare,
    ] {
        for entries in &tables {
            let mut file = build(&options, entries);
            let layout = Layout::of(&file);
            destroy(&mut file, layout.footer.clone());
            let in_front = (1..=layout.index.start).map(|missing| file[missing..].to_vec());
            let metaindex = layout.metaindex.clone();
            let between = (1..metaindex.len()).map(|missing| {
                [&file[..metaindex.start], &file[metaindex.start + missing..]].concat()
            });
            for damaged in in_front.chain(between) {
                let missing = file.len() - damaged.len();
                let (report, rescued) = rescue(damaged);
                let invented = rescued.iter().find(|entry| !entries.contains(entry));
                assert_eq!(invented, None, "{missing} bytes missing: {report}");
            }
        }
    }
}

/// Found by fuzzing. An index is found by its distance from the footer; a metaindex that the same
/// distance did not lead to was taken for a data block that had its length, and whose keys would be as high.
#[test]
fn a_metaindex_as_long_as_the_data_block_is_not_taken_for_it() {
    let options = options(Compression::None);
    let mut file = build(&options, &[entry("z", &[b'v'; 35])]);
    let layout = Layout::of(&file);
    assert_eq!(layout.metaindex.len(), layout.data[0].len());
    destroy(&mut file, layout.data[0].clone());
    let (in_front, index) = file.split_at(layout.index.start);
    // The metaindex is a byte nearer to the front than it was, the index a byte farther.
    let (report, rescued) = rescue([&in_front[1..], &[0xee; 2], index].concat());
    assert_eq!(rescued, [], "{report}");
}

/// Found by fuzzing. Where bytes inserted into the footer made it name the empty index as the metaindex, the true one
/// was copied as data.
#[test]
fn a_metaindex_is_told_where_the_footer_names_an_empty_block_instead() {
    let file = build(&WriteOptions::leveldb(), &[]);
    let (to_handles, padding) = file.split_at(Layout::of(&file).footer.start + 4);
    for inserted in 1..=4 {
        let (report, rescued) = rescue([to_handles, &vec![0; inserted], padding].concat());
        assert_eq!(rescued, [], "{inserted} bytes inserted: {report}");
    }
}

/// Found by fuzzing. Where a filter had lost bytes, and the footer was damaged, the place that the metaindex names held
/// other blocks: it was not recognised, nor was the index after it, which was copied in place of the data.
#[test]
fn a_metaindex_is_told_where_other_blocks_have_come_to_its_filters_place() {
    // Few entries, as many blocks, and filters that are longer than metaindex and index.
    let entries: Vec<Entry> = (0..4).map(|i| entry(&format!("a{i}"), b"value")).collect();
    let options = options(Compression::None).block_size(1);
    let bloom = |bits| options.clone().filter_policy(BloomFilterPolicy::new(bits));
    let files = [
        bloom(300),
        bloom(1000).properties(true),
        options.clone().filter_policy(RibbonFilterPolicy::new(30)),
    ];
    let files = files.map(|options| build(&options, &entries));
    let files = files.iter().flat_map(|file| common::in_both_orders(file));
    for mut file in files {
        let layout = Layout::of(&file);
        destroy(&mut file, layout.footer.clone());
        let filter = layout.filter.clone().unwrap();
        assert!(filter.len() > layout.footer.start - filter.end);
        for (from, whole) in [(filter.start, 4), (layout.data[3].end - 7, 3)] {
            for missing in 1..filter.end - from {
                for added in 0..3 {
                    let damaged = [&vec![0xee; added], &file[..from], &file[from + missing..]];
                    let (report, rescued) = rescue(damaged.concat());
                    let what = format!("{missing} bytes missing from {from}, {added} in front");
                    assert!(rescued == entries[..whole], "{what}: {report}");
                }
            }
        }
    }
}

/// With the footer gone and so many bytes missing that the index stands right after data, its keys still tell.
#[test]
fn an_index_right_after_data_is_not_taken_for_data() {
    let entries: Vec<Entry> = ["a1", "a3", "a5"].map(|key| entry(key, b"value")).into();
    let small = options(Compression::None).block_size(1);
    let files = [small.clone(), small.properties(true)].map(|options| tables(&options, &entries));
    for mut file in files.concat() {
        let layout = Layout::of(&file);
        destroy(&mut file, layout.footer.clone());
        for data_end in [layout.data[1].end, layout.data[2].end] {
            let (in_front, index) = (&file[..data_end], &file[layout.index.start..]);
            let whole = layout.data.iter().filter(|block| block.end <= data_end);
            let (report, rescued) = rescue([in_front, index].concat());
            assert!(rescued == entries[..whole.count()], "{report}");
        }
    }
}

/// Found by fuzzing. Where footer and data were gone, an index whose key looks like the name of a filter was taken for
/// the metaindex, and the metaindex before it for data.
#[test]
fn an_index_whose_key_looks_like_a_filters_name_is_not_taken_for_the_metaindex() {
    for policy in [WriteOptions::leveldb(), WriteOptions::new()] {
        for key in ["filter.", "filter.z", "filter.leveldb.BuiltinBloomFilter2"] {
            // In this order the index has the very keys of the data.
            for options in [policy.clone(), policy.clone().comparator(Reverse)] {
                let file = build(&options, &[entry(key, b"value")]);
                let layout = Layout::of(&file);
                let (in_front, index) = file.split_at(layout.index.start);
                for more in 0..3 {
                    let mut damaged = [in_front, &vec![0xee; more], index].concat();
                    let footer = damaged.len() - layout.footer.len()..damaged.len();
                    destroy(&mut damaged, footer);
                    for data in [layout.data[0].clone(), 0..layout.metaindex.start] {
                        let mut damaged = damaged.clone();
                        destroy(&mut damaged, data);
                        let mut rescued = Vec::new();
                        let report = salvage(
                            damaged,
                            &mut options.build(&mut rescued),
                            SalvageOptions::new(),
                        )
                        .unwrap();
                        assert_eq!(report.entries, 0, "{key}, {more} bytes inserted: {report}");
                    }
                }
            }
        }
    }
}

/// Found by fuzzing: a block stored in a value of a damaged block, and an index that inserted bytes have moved, the footer
/// damaged, are what the documentation says cannot be told. In a tiny table the index's entries may outnumber the data's:
/// that is an error, with nothing written, as for a builder in another order.
#[test]
fn a_tiny_table_with_a_block_in_a_damaged_value_is_refused_whole() {
    // From the fourth byte of the last key on, these are a block and its trailer: one entry and its restart.
    let value = b"\x29\0\0\xb2\x10\x10\x22\x23\0\0\0\0\x01\0\0\0\0\x25\x69\xa6\xf1\0\0".to_vec();
    let entries = [
        entry("", b""),
        (vec![6, 0], vec![]),
        (b"ev\0\0\0?".to_vec(), vec![]),
        (vec![0xe0], b"\0\"te".to_vec()),
        (b"\xe4\x8c\x09\0".to_vec(), b"\0\0\x0b\0\x89 ".to_vec()),
        (b"\xe4\x8c\x09\0\x02\x0a\"".to_vec(), vec![]),
        (b"\xe4\x8c\x09\0\x02\x0a\"\"\"\"".to_vec(), value),
    ];
    let options = options(Compression::None)
        .block_size(1)
        .whole_table_filter(true);
    let mut damaged = build(&options, &entries);
    let layout = Layout::of(&damaged);
    damaged.insert(layout.data[6].start + 6, 0xff);
    damaged.insert(layout.footer.start + 12, 0xff);
    let mut rescued = Vec::new();
    let mut builder = options.build(&mut rescued);
    let refused = salvage(damaged, &mut builder, SalvageOptions::new()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Comparator, "{refused}");
    assert_eq!(builder.finish().unwrap().entries, 0);
}

/// Found by fuzzing. Footer and index are whole, two blocks are damaged, and a value of the first holds a block as long as
/// the second, with a key that fits in there: it was copied in its place.
#[test]
fn a_block_in_a_value_is_not_taken_for_one_that_the_index_names() {
    let small = options(Compression::None).block_size(1).no_filter();
    let inner = build(&small, &[entry("d", b"xyz")]);
    let inner = &inner[Layout::of(&inner).data[0].clone()];
    let entries = [
        entry("a", b""),
        entry("b", &[b"value ", inner, b" and more"].concat()),
        entry("d", b"123"),
        entry("e", b""),
    ];
    let mut damaged = build(&small, &entries);
    let layout = Layout::of(&damaged);
    assert_eq!(layout.data[2].len(), inner.len());
    damaged[layout.data[1].start + 3] ^= 0xff;
    damaged[layout.data[2].start + 3] ^= 0xff;
    let (report, rescued) = rescue_with(&small, damaged);
    assert_eq!(report.entries, 2, "{report}");
    assert_eq!(rescued, [entries[0].clone(), entries[3].clone()]);
    assert_eq!(report.lost.len(), 1, "{report}");
}

// ---- Several tables in a file, and blocks like others ------------------------------------------

/// Entries whose values have all lengths.
fn entries_of_all_lengths(prefix: &str, n: usize, random: &mut Random) -> Vec<Entry> {
    let mut entry = |i| {
        let len = random.below(200);
        (format!("{prefix}{i:08}").into_bytes(), random.bytes(len))
    };
    (0..n).map(&mut entry).collect()
}

/// A block of the first, of the right size and with keys that fit, took the place of one of the second, whose index it
/// is: the first found was copied, not the last before the index. Nothing was said to be lost.
#[test]
fn of_two_tables_in_a_file_the_second_loses_nothing() {
    let mut random = Random(80);
    for compression in CODECS {
        for (first, second) in [("a", "b"), ("z", "b"), ("k", "k")] {
            for block_size in [256, 4096] {
                let options = options(compression).block_size(block_size);
                let old = entries_of_all_lengths(first, 3000, &mut random);
                let new = entries_of_all_lengths(second, 2900, &mut random);
                let (old, file) = (build(&options, &old), build(&options, &new));
                let (report, rescued) = rescue([old.clone(), file.clone()].concat());
                assert!(rescued == new, "{first} {second} {block_size}: {report}");
                // With one block damaged, too, unless the first table fills its place: that cannot be told.
                let layout = Layout::of(&file);
                let hit = random.below(layout.data.len());
                let mut damaged = file.clone();
                destroy(&mut damaged, layout.data[hit].clone());
                let (report, rescued) = rescue([old, damaged].concat());
                let of_new: Vec<Entry> = rescued
                    .into_iter()
                    .filter(|entry| new.contains(entry))
                    .collect();
                let expected = without(&by_block(&file, &layout), |i| i == hit);
                assert!(
                    of_new == expected,
                    "{first} {second} {block_size}: {report}"
                );
            }
        }
    }
}

/// The block that had moved into its place, as long as it, was copied, and its own lost.
#[test]
fn a_block_cut_out_among_its_likes_is_the_one_that_is_lost() {
    let file_of = |entries: &[Entry]| build(&options(Compression::None).block_size(1), entries);
    let mut random = Random(4);
    let entry = |i: usize| (format!("key {i:07}").into_bytes(), random.bytes(30));
    let entries: Vec<Entry> = (0..200).map(entry).collect();
    let file = file_of(&entries);
    let layout = Layout::of(&file);
    for cut in [0, 5, 198, 199] {
        let mut file = file.clone();
        file.drain(layout.data[cut].clone());
        let (report, rescued) = rescue(file);
        assert!(
            rescued == without(&by_block(&file_of(&entries), &layout), |i| i == cut),
            "{report}"
        );
        let [lost] = &report.lost[..] else {
            panic!("{report}")
        };
        let key = |i: usize| entries.get(i).map(|(key, _)| key.clone());
        assert_eq!(
            lost.after.as_deref().map(<[u8]>::to_vec),
            cut.checked_sub(1).and_then(key)
        );
        assert_eq!(lost.before.as_deref().map(<[u8]>::to_vec), key(cut + 1));
    }
}

/// The handles are then read from one byte further in front: the metaindex was taken for the index, the filter for data,
/// and everything was lost.
#[test]
fn a_footer_that_lost_padding_costs_nothing() {
    for options in [WriteOptions::leveldb(), WriteOptions::new()] {
        for n in (1..600).step_by(7) {
            let entries = entries(n);
            let file = build(&options, &entries);
            let padding = file.len() - 18;
            for lost in 1..=6 {
                let mut file = file.clone();
                file.drain(padding..padding + lost);
                let (report, rescued) = rescue(file);
                assert!(rescued == entries, "{n} entries, {lost} bytes: {report}");
            }
        }
    }
}

/// A first sound block with one value that could be a handle was taken for an index of nothing, and everything after
/// it was dropped.
#[test]
fn values_that_could_be_handles_make_no_index() {
    for value in [&b"ok"[..], b"42", b"\x03\x01"] {
        let value = |i: usize| {
            if i.is_multiple_of(50) {
                value
            } else {
                b"a value"
            }
        };
        let entries: Vec<Entry> = (0..500)
            .map(|i| (format!("key {i:07}").into_bytes(), value(i).to_vec()))
            .collect();
        let file = build(&options(Compression::None).block_size(1), &entries);
        let layout = Layout::of(&file);
        let data = &file[..layout.metaindex.start];
        let mut zeros = data.to_vec();
        zeros[..layout.data[100].start].fill(0);
        let after_junk = [&[0xee; 1000][..], data].concat();
        for (file, expected) in [
            (data.to_vec(), &entries[..]),
            (zeros, &entries[100..]),
            (after_junk, &entries),
        ] {
            let (report, rescued) = rescue(file);
            assert!(rescued == expected, "{} entries: {report}", rescued.len());
        }
    }
}

/// Where the data of three tables lie one after another, most entries are out of order: none was copied, and the
/// comparator blamed.
#[test]
fn of_three_tables_without_an_index_one_is_kept() {
    let entries = entries(500);
    let file = build(&options(Compression::None), &entries);
    let data = &file[..Layout::of(&file).metaindex.start];
    let (report, rescued) = rescue(data.repeat(3));
    assert_eq!(rescued, entries);
    assert_eq!(report.entries_out_of_order, 1000);
}

/// Keys that were the square of their blocks, as no hostile file's but this crate's own writer can make them, were called
/// damaged, and none was copied.
#[test]
fn long_keys_that_share_nearly_all_are_kept() {
    let key = |i: u32| [&[b'k'; 2000][..], format!("{i:08}").as_bytes()].concat();
    let entries: Vec<Entry> = (0..3000).map(|i| (key(i), vec![])).collect();
    let options = options(Compression::Snappy)
        .block_size(16 << 10)
        .restart_interval(1 << 20);
    let file = build(&options, &entries);
    let (report, rescued) = rescue_with(&options, file.clone());
    assert!(rescued == entries, "{report}");
    let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
    assert!(verified.is_sound(), "{verified}");
    let table = OpenOptions::new().open_source(file).unwrap();
    assert!(table.blocks().all(|block| block.is_ok()));
}

// ---- Sound tables -------------------------------------------------------------------------------

/// Salvages as a program does that knows nothing about the table: as a plain one in whichever order, unless that is refused
/// for a database's. Returns the kind and the entries of the new table.
fn rescue_unknown(file: &[u8]) -> (SalvageReport, KeyKind, Vec<Entry>) {
    let options = options(Compression::None);
    let mut rescued = Vec::new();
    let mut builder = options.build(&mut rescued);
    let (report, kind) = match salvage(file.to_vec(), &mut builder, stored_order()) {
        Ok(report) => {
            builder.finish().unwrap();
            (report, KeyKind::Plain)
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
            assert_eq!(builder.entries(), 0);
            drop(builder);
            let mut builder = options.build_db(&mut rescued);
            let report = salvage(file.to_vec(), &mut builder, stored_order()).unwrap();
            builder.finish().unwrap();
            (report, KeyKind::Database)
        }
    };
    let entries = by_block(&rescued, &Layout::of(&rescued)).concat();
    (report, kind, entries)
}

fn stored_order() -> SalvageOptions<'static> {
    SalvageOptions::new().stored_order()
}

#[track_caller]
fn assert_whole(report: &SalvageReport, what: &str) {
    assert_eq!(report.index, IndexState::Sound, "{what}: {report}");
    assert!(
        report.is_complete() && report.lost.is_empty(),
        "{what}: {report}"
    );
}

/// Two keys that could be versions of one user key, but would then be the older one first: verified as sound, the second was
/// left out by a salvage.
#[test]
fn plain_keys_that_end_like_a_databases_are_plain() {
    let key = |sequence: u8| [&b"key"[..], &[1, sequence, 0, 0, 0, 0, 0, 0]].concat();
    let entries: Vec<Entry> = (1..=2).map(|i| (key(i), b"value".to_vec())).collect();
    let file = build(&options(Compression::None), &entries);
    let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
    assert!(verified.is_sound(), "{verified}");
    assert_eq!(verified.keys, KeyKind::Plain);
    let (report, rescued) = rescue(file);
    assert_whole(&report, "");
    assert_eq!(rescued, entries);
}

/// Key number `i`, perhaps a random one.
type Design = fn(u64, &mut Random) -> Vec<u8>;

/// Keys as applications design them, many of which end in what could be a sequence number and a type.
const DESIGNS: [(&str, Design); 13] = [
    ("big-endian microseconds on the minute", |i, _| {
        (1_700_000_000_000_000 / 60_000_000 * 60_000_000 + i * 60_000_000)
            .to_be_bytes()
            .to_vec()
    }),
    ("big-endian offsets of pages", |i, _| {
        (i << 12).to_be_bytes().to_vec()
    }),
    ("an id and a zero byte", |i, _| {
        [&i.to_be_bytes()[..], &[0]].concat()
    }),
    ("table, zero, name, zero", |i, _| {
        format!("table{}\0name{:02}\0", i / 50, i % 50).into_bytes()
    }),
    ("little-endian {u32 0 or 1, u32 id}", |i, _| {
        [(i as u32 % 2).to_le_bytes(), (i as u32 / 2).to_le_bytes()].concat()
    }),
    ("little-endian counter << 8 | 1", |i, _| {
        (i << 8 | 1).to_le_bytes().to_vec()
    }),
    ("UUIDs", |_, random| random.bytes(16)),
    ("ULIDs", |i, random| {
        [&i.to_be_bytes()[2..], &random.bytes(10)].concat()
    }),
    ("hashes", |_, random| random.bytes(32)),
    ("names padded with zeros", |i, _| {
        let mut name = format!("name {i}").into_bytes();
        name.resize(16, 0);
        name
    }),
    ("decimal text", |i, _| i.to_string().into_bytes()),
    ("padded decimal text", |i, _| {
        format!("{i:016}").into_bytes()
    }),
    ("single bytes", |i, _| vec![i as u8]),
];

fn designed(design: fn(u64, &mut Random) -> Vec<u8>, n: u64, random: &mut Random) -> Vec<Entry> {
    let from = random.next() % 1000;
    let keys: BTreeSet<Vec<u8>> = (from..from + n).map(|i| design(i, random)).collect();
    keys.into_iter().map(|key| (key, random.bytes(9))).collect()
}

/// Index keys are the last keys of the blocks, as by writers that shorten nothing.
#[derive(Debug, Clone, Copy)]
struct Unshortened;

impl Comparator for Unshortened {
    fn name(&self) -> &str {
        "leveldb.BytewiseComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

/// All of these but the text were refused, or made a database's table that `Table::open` refuses.
#[test]
fn intact_plain_tables_are_copied_as_plain_whatever_their_keys() {
    let mut random = Random(91);
    for (name, design) in DESIGNS {
        for n in [0, 1, 2, 20, 1000] {
            let entries = designed(design, n, &mut random);
            let shortened = options(Compression::Snappy);
            for options in [shortened.clone(), shortened.comparator(Unshortened)] {
                let file = build(&options, &entries);
                let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
                assert!(verified.is_sound(), "{name}, {n}: {verified}");
                assert_eq!(verified.keys, KeyKind::Plain, "{name}, {n}");
                let (report, rescued) = rescue(file);
                assert_whole(&report, name);
                assert!(rescued == entries, "{name}, {n}: {report}");
                assert!(!report.stored_order);
            }
        }
    }
}

/// As plain tables they lost keys.
#[test]
fn intact_databases_are_copied_as_such_whatever_their_sequence_numbers() {
    let mut random = Random(92);
    let micros = 1_700_000_000_000_000;
    for first in [0, 1, 1 << 40, 1 << 48, micros, (1 << 56) - 1 - 3000] {
        for n in [1, 2, 20, 1000] {
            for versions in [1, 3] {
                let mut file = Vec::new();
                let mut builder = options(Compression::Snappy).build_db(&mut file);
                let mut keys = BTreeSet::new();
                keys.extend((0..n).map(|_| random.bytes(6)));
                for key in keys {
                    let newest = first + random.next() % 1000 + versions;
                    for version in 0..versions {
                        if random.below(5) == 0 {
                            builder.delete(&key, newest - version).unwrap();
                        } else {
                            builder.put(&key, newest - version, b"value").unwrap();
                        }
                    }
                }
                builder.finish().unwrap();
                let expected = by_block(&file, &Layout::of(&file)).concat();
                let what = format!("{n} keys, {versions} versions from {first}");
                let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
                assert!(verified.is_sound(), "{what}: {verified}");
                assert_eq!(verified.keys, KeyKind::Database, "{what}");
                let (report, kind, rescued) = rescue_unknown(&file);
                assert_whole(&report, &what);
                assert_eq!(kind, KeyKind::Database, "{what}");
                assert!(rescued == expected, "{what}: {report}");
            }
        }
    }
}

/// It said "complete", and wrote a table in which no key is a database's.
#[test]
fn plain_tables_are_not_copied_as_a_databases() {
    let mut random = Random(93);
    for n in [1, 5, 1000, 8000] {
        let mut entries: Vec<Entry> = (0..n)
            .map(|_| (random.bytes(16), random.bytes(9)))
            .collect();
        entries.sort();
        let file = build(&options(Compression::Snappy), &entries);
        let headless = file[..Layout::of(&file).index.start].to_vec();
        for file in [file, headless] {
            let mut builder = WriteOptions::new().build_db(Vec::new());
            let error = salvage(file, &mut builder, stored_order()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
            assert_eq!(builder.entries(), 0);
        }
    }
}

/// The index of a table in another order was called lost, and what did not ascend bytewise was left out.
#[test]
fn a_table_whose_comparator_is_not_at_hand_is_copied_in_its_stored_order() {
    let orders: [Arc<dyn Comparator>; 3] =
        [Arc::new(Reverse), Arc::new(ByLastByte), Arc::new(ByLength)];
    for comparator in orders {
        let mut all: Vec<Entry> = (0..300)
            .map(|i: u32| entry(&(i * i).to_string(), b"value"))
            .collect();
        all.sort_by(|a, b| comparator.compare(&a.0, &b.0));
        let options = options(Compression::Snappy);
        let file = build(&options.clone().comparator(Arc::clone(&comparator)), &all);
        let layout = Layout::of(&file);
        let mut damaged = file.clone();
        destroy(&mut damaged, layout.data[2].clone());
        let blocks = by_block(&file, &layout);
        for (file, lost) in [(file, usize::MAX), (damaged, 2)] {
            let mut builder = options.build(Vec::new());
            let error = salvage(file.clone(), &mut builder, SalvageOptions::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
            assert_eq!(builder.entries(), 0);

            let mut rescued = Vec::new();
            let mut builder = options.build(&mut rescued);
            let report = salvage(file.clone(), &mut builder, stored_order()).unwrap();
            builder.finish().unwrap();
            assert!(report.stored_order, "{report}");
            assert_eq!(report.lost.len(), usize::from(lost == 2), "{report}");
            let named = OpenOptions::new().comparator(Arc::clone(&comparator));
            let table = named.open_source(rescued).unwrap();
            let expected = without(&blocks, |i| i == lost);
            assert!(content(table.iter()) == expected, "{report}");
            for (key, _) in &expected {
                assert!(table.get(key).unwrap().is_some());
            }

            let mut holds_one = options.build(Vec::new());
            holds_one.add(b"a", b"").unwrap();
            let error = salvage(file, &mut holds_one, stored_order()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
        }
    }
}

/// Adds blocks to a table and names them in its metaindex, beside values that are no handles.
fn with_more_in_metaindex(
    file: &[u8],
    named: &[(&str, Vec<Entry>)],
    notes: &[(&str, &[u8])],
) -> Vec<u8> {
    let layout = Layout::of(file);
    let mut metaindex: BTreeSet<Entry> = common::entries(&common::payload(file, &layout.metaindex))
        .into_iter()
        .collect();
    let mut out = file[..layout.metaindex.start.min(layout.index.start)].to_vec();
    let mut frame = |payload: &[u8]| {
        let range = out.len()..out.len() + payload.len() + 5;
        out.extend(payload);
        out.extend([0; 5]);
        seal(&mut out, &range);
        range
    };
    for (name, entries) in named {
        let range = frame(&common::block(entries));
        metaindex.insert((name.as_bytes().to_vec(), handle_of(&range)));
    }
    metaindex.extend(
        notes
            .iter()
            .map(|(name, note)| (name.as_bytes().to_vec(), note.to_vec())),
    );
    let metaindex = common::block(&metaindex.into_iter().collect::<Vec<_>>());
    let index = common::payload(file, &layout.index);
    // In the order in which they are.
    let (metaindex, index) = if layout.metaindex.start < layout.index.start {
        (frame(&metaindex), frame(&index))
    } else {
        let index = frame(&index);
        (frame(&metaindex), index)
    };
    out.extend(common::footer(&metaindex, &index));
    out
}

/// What a table says of itself is kept: its order, by name, and what the application added.
#[test]
fn properties_are_believed_and_kept() {
    let mut all: Vec<Entry> = (0..300).map(|i| entry(&i.to_string(), b"value")).collect();
    all.sort_by(|a, b| ByLength.compare(&a.0, &b.0));
    let options = WriteOptions::new().block_size(100);
    for is_database in [false, true] {
        let mut file = Vec::new();
        let by_length = options.clone().comparator(ByLength);
        if is_database {
            let mut builder = by_length.build_db(&mut file);
            builder.property("schema", "v3").unwrap();
            for (key, value) in &all {
                builder.put(key, 7, value).unwrap();
            }
            builder.finish().unwrap();
        } else {
            let mut builder = by_length.build(&mut file);
            builder.property("schema", "v3").unwrap();
            for (key, value) in &all {
                builder.add(key, value).unwrap();
            }
            builder.finish().unwrap();
        }
        let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
        assert_eq!((verified.damage, verified.unchecked), (0, 1), "{verified}");
        assert!(verified.unknown_order && verified.to_string().contains("test.ByLength"));

        let mut plain = options.build(Vec::new());
        let error = salvage(file.clone(), &mut plain, SalvageOptions::new()).unwrap_err();
        if is_database {
            assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
        } else {
            assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
            assert!(error.to_string().contains("test.ByLength"), "{error}");
        }
        let mut rescued = Vec::new();
        let open = OpenOptions::new().comparator(ByLength);
        if is_database {
            let mut builder = options.build_db(&mut rescued);
            let report = salvage(file, &mut builder, stored_order()).unwrap();
            assert_whole(&report, "");
            builder.finish().unwrap();
            let table = open.open_db_source(rescued).unwrap();
            assert_eq!(
                table.as_table().properties().unwrap().user("schema"),
                Some(&b"v3"[..])
            );
            assert!(all.iter().all(|(key, _)| table.get(key).unwrap().is_some()));
        } else {
            let mut builder = options.build(&mut rescued);
            builder.property("schema", "v4").unwrap();
            let report = salvage(file, &mut builder, stored_order()).unwrap();
            assert_whole(&report, "");
            builder.finish().unwrap();
            let table = open.open_source(rescued).unwrap();
            // The caller's own comes first.
            assert_eq!(table.properties().unwrap().user("schema"), Some(&b"v4"[..]));
            assert!(all.iter().all(|(key, _)| table.get(key).unwrap().is_some()));
        }
    }
}

/// A table of what a table says of itself is a table like any other.
#[test]
fn properties_as_data_are_data() {
    let file = build(&WriteOptions::new(), &entries(100));
    let layout = Layout::of(&file);
    let about = common::entries(&common::payload(&file, &layout.metaindex));
    let (name, handle) = &about[0];
    assert_eq!(name, b"about.leveltable");
    let mut handle = &handle[..];
    let [offset, len] = [(); 2].map(|()| take_varint(&mut handle));
    let about = common::entries(&common::payload(&file, &(offset..offset + len + 5)));
    for options in [WriteOptions::leveldb(), WriteOptions::new()] {
        let (report, rescued) = rescue(build(&options, &about));
        assert_whole(&report, "");
        assert_eq!(rescued, about);
    }
}

/// A table of RocksDB's first format, which has LevelDB's magic number, with blocks in LZ4: "corrupt deflate stream", and its
/// properties were salvaged as a table.
#[test]
fn rocksdbs_codec_is_named_and_its_properties_are_no_data() {
    let mut file = Vec::new();
    let mut frame = |payload: &[u8], codec: u8| {
        let range = file.len()..file.len() + payload.len() + 5;
        file.extend(payload);
        file.push(codec);
        file.extend([0; 4]);
        seal(&mut file, &range);
        range
    };
    let lz4 = |block: &[u8]| {
        // Literals only: a token with their number, and they.
        assert!((15..270).contains(&block.len()));
        let len = block.len() as u64;
        [
            &len.to_le_bytes()[..],
            &[0xf0, block.len() as u8 - 15],
            block,
        ]
        .concat()
    };
    let data = frame(
        &lz4(&common::block(&[entry(
            "key\x01\x09\0\0\0\0\0\0",
            b"value",
        )])),
        4,
    );
    let index = frame(
        &lz4(&common::block(&[entry(
            "l\x01\x09\0\0\0\0\0\0",
            &handle_of(&data),
        )])),
        4,
    );
    let properties = [
        entry("rocksdb.compression", b"LZ4"),
        entry("rocksdb.data.size", b"9"),
    ];
    let properties = frame(&common::block(&properties), 0);
    let metaindex = [entry("rocksdb.properties", &handle_of(&properties))];
    let metaindex = frame(&common::block(&metaindex), 0);
    let mut footer = [handle_of(&metaindex), handle_of(&index)].concat();
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
    file.extend(footer);

    let error = OpenOptions::new().open_source(file.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(
        error.to_string().contains("LZ4, as RocksDB writes it"),
        "{error}"
    );
    let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
    assert_eq!(verified.damage, 0, "{verified}");
    assert!(
        verified.to_string().contains("LZ4, as RocksDB writes it"),
        "{verified}"
    );
    let (report, rescued) = rescue(file);
    assert_eq!(rescued, [], "{report}");
    assert!(
        report.lost.iter().any(|lost| lost.reason.contains("LZ4")),
        "{report}"
    );
}

/// By last byte, then bytewise.
#[derive(Debug, Clone, Copy)]
struct ByLastByte;

impl Comparator for ByLastByte {
    fn name(&self) -> &str {
        "test.ByLastByte"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.last().cmp(&b.last()).then_with(|| a.cmp(b))
    }
}

/// By length, then bytewise.
#[derive(Debug, Clone, Copy)]
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "test.ByLength"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}

#[test]
fn sound_tables_are_copied_whole() {
    (0..200).for_each(copy_a_sound_table);
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_sound_tables_are_copied_whole() {
    (200..10_200).for_each(copy_a_sound_table);
}

/// A table of any kind, order, codec and size, with more in its metaindex.
fn copy_a_sound_table(seed: u64) {
    let mut random = Random(seed);
    let codecs: Vec<Compression> = [
        &CODECS[..],
        #[cfg(feature = "zstd")]
        &[Compression::Zstd(1)],
        #[cfg(feature = "zlib")]
        &[Compression::Zlib(1), Compression::Deflate(1)],
    ]
    .concat();
    let codec = codecs[random.below(codecs.len())];
    let mut options = WriteOptions::leveldb()
        .block_size([1, 64, 300, 4096][random.below(4)])
        .restart_interval([1, 2, 16][random.below(3)])
        .properties(random.below(2) == 0)
        .compression(codec);
    options = match random.below(3) {
        0 => options.no_filter(),
        1 => options,
        _ => options.filter_policy(RibbonFilterPolicy::new(10)),
    };
    let (order, comparator): (&str, Arc<dyn Comparator>) = match random.below(6) {
        0 => ("reverse", Arc::new(Reverse)),
        1 => ("by last byte", Arc::new(ByLastByte)),
        2 => ("by length", Arc::new(ByLength)),
        3 => ("unshortened", Arc::new(Unshortened)),
        _ => ("bytewise", Arc::new(BytewiseComparator)),
    };
    let options = options.comparator(Arc::clone(&comparator));
    let (design_name, design) = DESIGNS[random.below(DESIGNS.len())];
    let n = [0, 1, 2, 3, 20, 200][random.below(6)];
    let mut entries = designed(design, n, &mut random);
    entries.sort_by(|a, b| comparator.compare(&a.0, &b.0));
    let is_database = random.below(3) == 0;
    let mut file = Vec::new();
    if is_database {
        let mut sequence = random.next() >> (8 + random.below(40));
        let mut builder = options.build_db(&mut file);
        let mut stored = Vec::new();
        for (key, value) in &entries {
            for _ in 0..=random.below(3) {
                sequence = sequence.saturating_sub(1 + random.next() % 9);
                let is_deletion = random.below(5) == 0;
                let (value_type, value) = if is_deletion {
                    builder.delete(key, sequence).unwrap();
                    (ValueType::Deletion, Vec::new())
                } else {
                    builder.put(key, sequence, value).unwrap();
                    (ValueType::Value, value.clone())
                };
                let mut key_stored = Vec::new();
                InternalKey {
                    user_key: key,
                    sequence,
                    value_type,
                }
                .encode(&mut key_stored);
                stored.push((key_stored, value));
                if sequence < 10 {
                    break;
                }
            }
        }
        builder.finish().unwrap();
        entries = stored;
    } else {
        file = build(&options, &entries);
    }
    // What tests decode by themselves is raw or Snappy.
    let is_decodable = CODECS.contains(&codec);
    if is_decodable && random.below(2) == 0 {
        let named = [
            (
                "rocksdb.properties",
                vec![entry("rocksdb.block.based.table.index.type", &[0; 4])],
            ),
            (
                "leveltable.properties",
                vec![entry("comparator", b"x"), entry("entries", b"9")],
            ),
            ("zz", vec![]),
        ];
        let notes = [
            ("a note", &b"to whom it may concern"[..]),
            ("handle", b"\0\x08"),
        ];
        file = with_more_in_metaindex(&file, &named[..random.below(4)], &notes[..random.below(3)]);
    }
    let what = format!("{seed}: {n} of {design_name}, {order}, database: {is_database}");
    let (report, kind, rescued) = rescue_unknown(&file);
    assert_whole(&report, &what);
    assert!(rescued == entries, "{what}: {report}");
    if !is_database && matches!(order, "bytewise" | "unshortened") {
        assert_eq!(kind, KeyKind::Plain, "{what}");
    }
    let verified = verify(file, VerifyOptions::new()).unwrap();
    assert_eq!(verified.damage, 0, "{what}: {verified}");
    assert_eq!(verified.entries, entries.len() as u64, "{what}: {verified}");
    assert_eq!(
        verified.is_sound(),
        !verified.unknown_order,
        "{what}: {verified}"
    );
}

/// Only the index is damaged, and the values of a data block could be handles. The metaindex after it, which the footer names, shows
/// that it is not the index.
#[test]
fn a_data_block_is_not_the_index_because_the_metaindex_is_set_aside() {
    // As two bytes, big-endian: 9.
    let entries = vec![(b"count".to_vec(), vec![0, 9])];
    for file in common::in_both_orders(&build(&WriteOptions::new(), &entries)) {
        let mut file = file.clone();
        let index = Layout::of(&file).index;
        file[index.start + 1] ^= 1;
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new().build(&mut rescued);
        let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
        assert_eq!(report.entries, 1, "{report}");
    }
}
