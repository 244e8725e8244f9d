//! Whatever becomes of footer, index, metaindex and filter, no entry is lost, and none of them is taken for data.

use std::ops::Range;
use std::time::Instant;

use leveltable::repair::{IndexState, SalvageOptions, salvage};
use leveltable::{BloomFilterPolicy, Compression, OpenOptions, RibbonFilterPolicy, WriteOptions};

use super::common;
use super::common::{Entry, Layout, Random, Reverse, append, block, build, varint};
use super::{
    all_options, by_block, destroy, entries, entry, options, rescue, rescue_with, without,
};

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
/// damaged. The table was refused whole; the index is of use wherever it lies.
#[test]
fn a_tiny_table_with_a_block_in_a_damaged_value_keeps_the_rest() {
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
    let (report, rescued) = rescue_with(&options, damaged);
    assert!(rescued == entries[..6], "{report}");
    assert!(!report.is_complete());
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

/// Lists of one handle, and metaindexes with names of this crate and of others, without anything else. Each was compared with all blocks
/// before it: half a megabyte took 1 to 4 s with optimisation, and a megabyte four times as long.
#[test]
fn many_small_lists_take_time_in_proportion_to_their_number() {
    let handle = |offset: usize| [varint(offset as u64), varint(1)].concat();
    let lists: [&dyn Fn(usize) -> Entry; 3] = [
        &|at| entry("filter.x", &handle(at.saturating_sub(6))),
        &|_| entry("about.x", &handle(1 << 40)),
        &|at| entry(&format!("{at}"), &handle(at.saturating_sub(6))),
    ];
    for list in lists {
        let [few, many] = [1, 8].map(|times| {
            let mut file = vec![0xee];
            while file.len() < times * 60_000 {
                let frame = block(&[list(file.len())]);
                append(&mut file, &frame);
            }
            // The shortest of three times: other work takes some, too.
            let times = [(); 3].map(|()| {
                let (file, start) = (file.clone(), Instant::now());
                let (report, _) = rescue(file);
                assert!(report.set_aside.len() as u64 + report.entries > 1000);
                start.elapsed()
            });
            times.into_iter().min().unwrap()
        });
        assert!(many < 30 * few, "{few:?}, eight times as much: {many:?}");
    }
}
