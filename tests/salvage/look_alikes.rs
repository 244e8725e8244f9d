//! Data that looks like something else, tables inside of values, several tables in a file.

use std::ops::Range;

use leveltable::repair::{IndexState, SalvageOptions, VerifyOptions, salvage, verify};
use leveltable::{Compression, ErrorKind, OpenOptions, Section, WriteOptions};

use super::common::{Entry, Layout, Random, append_end, block, build, handle_of, varint};
use super::{
    CODECS, build_blocks, by_block, content, destroy, entries, entry, options, rescue, rescue_with,
    without,
};

/// Data whose values are the very handles of the blocks before it, or whose keys are those of a
/// metaindex, is data.
///
/// One entry whose key, too, is just what the index of the block before it would have is the next test's.
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
        let second = vec![entry("ca", &handle_of(&one))];
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

/// A file that ends after it may be the beginning of a table of one block, to the byte: its index is not to be copied.
#[test]
fn a_block_that_is_to_the_byte_the_index_of_the_one_before_is_not_copied() {
    let options = options(Compression::None).properties(true);
    let first = vec![entry("a", b"1"), entry("b", b"2")];
    let table = build_blocks(&options, std::slice::from_ref(&first));
    let layout = Layout::of(&table);
    let second = vec![entry("c", &handle_of(&layout.data[0]))];
    let file = build_blocks(&options, &[first.clone(), second.clone()]);
    let cut = &file[..Layout::of(&file).data[1].end];
    assert_eq!(cut, &table[..layout.index.end]);
    let (report, rescued) = rescue(cut.to_vec());
    assert_eq!(rescued, first, "{report}");
    assert_eq!(report.set_aside.len(), 1);
    // Whole, and without its footer, it is data: the index lists it.
    let (_, rescued) = rescue(file.clone());
    assert_eq!(rescued, [first.clone(), second.clone()].concat());
    let mut damaged = file.clone();
    destroy(&mut damaged, Layout::of(&file).footer);
    let (_, rescued) = rescue(damaged);
    assert_eq!(rescued, [first, second].concat());
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

/// The last whole index in the file is that of a table in a damaged value. Data comes after it: it is not that of the file.
#[test]
fn the_index_of_a_table_in_a_damaged_value_is_not_the_files() {
    let inner = build(&options(Compression::None), &entries(30));
    let value = [&[0xee; 9], &inner[..], &[0xee; 9]].concat();
    let blocks: Vec<Vec<Entry>> = ["a", "m", "z"]
        .iter()
        .map(|key| vec![entry(key, &value), entry(&format!("{key}2"), b"x")])
        .collect();
    let mut file = build_blocks(&options(Compression::Snappy), &blocks[..1]);
    file.truncate(Layout::of(&file).data[0].end);
    let rest = build_blocks(&options(Compression::None), &blocks[1..]);
    let layout = Layout::of(&rest);
    let at = file.len();
    file.extend(&rest[..layout.data[1].end]);
    file[at + layout.data[0].start + 1] ^= 0xff;
    let (report, rescued) = rescue(file);
    for entry in blocks[0].iter().chain(&blocks[2]) {
        assert!(rescued.contains(entry), "{report}");
    }
    assert!(!report.uncertain.is_empty() && !report.is_complete());
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

/// One stray block that reaches over all keys must not cost all the rest.
#[test]
fn the_most_entries_are_kept_not_the_first() {
    let stray = [entry("key", b"stray"), entry("zzz", b"stray")];
    let stray = build(&options(Compression::None), &stray);
    let stray = &stray[..Layout::of(&stray).data[0].end];
    let all = entries(100);
    let file = build(&options(Compression::None), &all);
    let data = &file[..Layout::of(&file).metaindex.start];
    let (report, rescued) = rescue([stray, data].concat());
    assert!(rescued == all, "{report}");
    assert_eq!(report.lost[0].entries, Some(2));
    assert_eq!(report.lost[0].range, 0..stray.len() as u64);
    assert_eq!(
        (&report.lost[0].after, &report.lost[0].before),
        (&None, &None)
    );
    assert_eq!(report.entries_out_of_order, 2);
}

/// Without an index, blocks are sorted by their keys: those that changed places are all there.
#[test]
fn blocks_that_changed_places_are_sorted() {
    let all = entries(100);
    let file = build(&options(Compression::None), &all);
    let layout = Layout::of(&file);
    let mut blocks = layout.data.clone();
    blocks.reverse();
    blocks.rotate_left(3);
    let data: Vec<u8> = blocks
        .into_iter()
        .flat_map(|block| file[block].to_vec())
        .collect();
    let (report, rescued) = rescue(data);
    assert!(rescued == all, "{report}");
    assert!(report.lost.is_empty() && !report.is_complete(), "{report}");
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
    // Those of the copies are all there.
    assert_eq!(report.entries_out_of_order, 0);
    assert!(report.lost.is_empty(), "{report}");
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

/// An empty table has an index without handles, which is that of any table without blocks: it costs the one before nothing.
#[test]
fn an_empty_table_after_another_or_in_a_value_costs_nothing() {
    let all = entries(100);
    for options in [WriteOptions::new(), options(Compression::None)] {
        let good = build(&options, &all);
        for empty in [WriteOptions::new(), WriteOptions::leveldb()] {
            let empty = build(&empty, &[]);
            let (report, rescued) = rescue([&good[..], &empty].concat());
            assert!(rescued == all, "{report}");
            assert_ne!(report.index, IndexState::Lost, "{report}");
            // The value of a damaged block.
            let value = [&[0xee; 9], &empty[..], &[0xee; 9]].concat();
            let last = vec![entry("z", &value), entry("zz", b"x")];
            let raw = options.clone().compression(Compression::None);
            let mut file = build_blocks(&raw, &[all.clone(), last]);
            let layout = Layout::of(&file);
            file[layout.data[1].start + 1] ^= 0xff;
            let (report, rescued) = rescue(file.clone());
            assert!(rescued == all, "{report}");
            destroy(&mut file, layout.index.clone());
            let (report, rescued) = rescue(file);
            assert!(rescued == all, "{report}");
        }
    }
}

/// The table that is copied has no properties: those of the one before it are not its own.
#[test]
fn properties_of_another_table_are_not_taken() {
    let (first, second) = (entries(100), entries(60));
    let stock = build(&options(Compression::None), &second);
    let crates = build(&WriteOptions::new().comparator(super::common::Reverse), &{
        let mut first = first;
        first.reverse();
        first
    });
    let (report, rescued) = rescue([&crates[..], &stock].concat());
    assert!(rescued == second, "{report}");
    assert_eq!(report.stated_entries, None, "{report}");
    assert!(!report.stored_order, "{report}");
}

/// The footer names where the index was, and the metaindex has not moved: nothing is missing that the value could lead to.
#[test]
fn a_block_of_one_entry_is_not_the_index_beside_footer_and_metaindex() {
    let entries = [entry("count", &[0, 5])];
    for bits in [10, 100] {
        let policy = leveltable::BloomFilterPolicy::new(bits);
        let options = options(Compression::None).filter_policy(policy);
        let mut file = build(&options, &entries);
        let index = Layout::of(&file).index;
        file[index.start + 1] ^= 1;
        let (report, rescued) = rescue(file);
        assert!(rescued == entries, "{report}");
    }
}

/// An older block has as many entries as the one that is lost: the numbers of the properties do not say that all is there.
#[test]
fn a_copy_with_an_older_block_in_place_of_a_lost_one_is_not_complete() {
    let block = |key: &str, value: &[u8]| -> Vec<Entry> {
        let entry = |i| entry(&format!("{key}{i:03}"), value);
        (0..100).map(entry).collect()
    };
    let options = options(Compression::None).properties(true).no_filter();
    let older = build_blocks(&options, &[block("b", b"older")]);
    let older = &older[Layout::of(&older).data[0].clone()];
    let blocks = [block("a", b"new"), block("c", b"new"), block("e", b"new")];
    let mut file = build_blocks(&options, &blocks);
    let layout = Layout::of(&file);
    destroy(&mut file, layout.data[2].start..layout.index.end);
    let (report, _) = rescue([older, &file].concat());
    assert_eq!((report.entries, report.data_blocks), (300, 3), "{report}");
    assert!(!report.is_complete(), "{report}");
    assert!(!report.lost.is_empty(), "{report}");
}

/// A table whose footer is gone, right before the data of another: its index is still its index.
#[test]
fn an_index_right_before_data_is_not_taken_for_data() {
    let first = entries(100);
    let second: Vec<Entry> = (0..50)
        .map(|i| entry(&format!("more {i:05}"), b"value"))
        .collect();
    for file_options in [options(Compression::None), options(Compression::Snappy)] {
        let mut file = build(&file_options, &first);
        let other = build(&file_options, &second);
        file.truncate(Layout::of(&file).footer.start);
        let data = &other[..Layout::of(&other).data.last().unwrap().end];
        let (report, rescued) = rescue([&file[..], data].concat());
        assert!(rescued == first, "{report}");
        assert_eq!(report.index, IndexState::Found, "{report}");
    }
}

/// The kind of a table is that of its own keys, and not of those of another table in the file.
#[test]
fn of_two_tables_of_different_kinds_the_last_one_tells_its_own() {
    for count in [3, 200] {
        let plain = build(&WriteOptions::new(), &entries(10 * count));
        let mut builder = WriteOptions::leveldb().build_db(Vec::new());
        for i in 0..count as u64 {
            let key = format!("user {i:05}");
            builder.put(key, i + 5, b"v").unwrap();
        }
        let (database, _) = builder.finish_into_writer().unwrap();
        let file = [plain, database].concat();
        let mut builder = WriteOptions::new().build(Vec::new());
        let refused = salvage(file.clone(), &mut builder, SalvageOptions::new());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::DatabaseTable);
        let mut builder = WriteOptions::new().build_db(Vec::new());
        let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
        assert_eq!(report.entries, count as u64);
    }
}

/// The block of a table of one entry, whose value could be a handle, is found although the table has moved and lost its end.
#[test]
fn a_moved_table_of_one_block_that_looks_like_an_index_is_found() {
    let all = [entry("key0", &[0, 5])];
    for options in [WriteOptions::leveldb(), WriteOptions::new()] {
        let file = build(&options.compression(Compression::None), &all);
        for lost in [1, 48] {
            let moved = [&[0xaa; 7][..], &file[..file.len() - lost]].concat();
            let (report, found) = rescue(moved);
            assert_eq!(found, all, "{lost} bytes lost: {report}");
            assert!(report.is_complete());
        }
    }
}

/// Data of another table whose values are handles that fill the front of the file is reported, and not taken for an index.
#[test]
fn another_tables_data_of_handles_is_reported() {
    for count in [2, 7, 40] {
        let mut offset = 0;
        let handles = (0..count).map(|i| {
            let handle = handle_of(&(offset..offset + 60));
            offset += 60;
            entry(&format!("a{i:03}"), &handle)
        });
        let first = build_blocks(&options(Compression::None), &[handles.collect()]);
        let last = build(&options(Compression::None), &entries(20));
        let (report, found) = rescue([first.clone(), last].concat());
        assert_eq!(found, entries(20));
        assert!(!report.is_complete(), "{count}: {report:?}");
        let data = Layout::of(&first).data[0].clone();
        let is_it = |range: &Range<u64>| range.start == data.start as u64;
        assert!(report.lost.iter().any(|lost| is_it(&lost.range)), "{count}");
        assert!(!report.set_aside.iter().any(|(_, range)| is_it(range)));
    }
}

/// The last block before the index is a copy of the first, so that the index seems to continue its keys; and where a block was cut
/// out, another one of its size has moved into its place. Most blocks lie where the index says all the same.
#[test]
fn an_index_of_which_two_blocks_are_others_is_known_by_the_rest() {
    let options = options(Compression::None).properties(true).block_size(1);
    let all: Vec<Entry> = (0..10)
        .map(|i| entry(&format!("key {:03}", 5 * i), b"value"))
        .collect();
    let mut file = build(&options, &all);
    let layout = Layout::of(&file);
    file.truncate(layout.index.end + 9);
    file.copy_within(layout.data[0].clone(), layout.data[9].start);
    file.drain(layout.data[6].clone());
    let (report, rescued) = rescue(file);
    assert_eq!(rescued, [&all[..6], &all[7..9]].concat(), "{report}");
    assert_eq!(report.index, IndexState::Found);
    assert!(!report.is_complete());
}

/// All that is left of one table is a block, of another its index, which continues the keys and comes right after it. No frame
/// begins the file: what the index lists may well be gone. It is set aside, but says nothing about the block.
#[test]
fn the_index_of_a_table_that_is_gone_is_not_copied_with_anothers_data() {
    let options = options(Compression::None).properties(true);
    let left = [entry("akey 0", b"left"), entry("akey 2", b"left")];
    let block = &build(&options, &left)[..];
    let block = &block[Layout::of(block).data[0].clone()];
    let gone = &build(&options, &[entry("akey 3", b"of another length")])[..];
    let index = &gone[Layout::of(gone).index];
    let (report, rescued) = rescue([&[0xee; 240], block, index, &[0xee; 11]].concat());
    assert_eq!(rescued, left, "{report}");
    assert_eq!(report.set_aside[0].0, Section::Index);
    assert_eq!(report.index, IndexState::Lost);
    assert!(!report.is_complete());
}

/// The second table's properties state one block of just so many bytes as the filter of the first has, to which the first one's
/// metaindex leads.
#[test]
fn a_metaindex_is_no_index_though_properties_state_as_many_bytes() {
    let first = [entry("c", b"first")];
    let raw = options(Compression::None);
    let mut file = build(&raw, &first);
    let layout = Layout::of(&file);
    let filter = layout.filter.as_ref().unwrap();
    destroy(&mut file, layout.index.start..layout.footer.end);
    let stated = raw.clone().properties(true);
    let of_len = |len: usize| [entry("d", &vec![b'v'; len])];
    let is_as_long =
        |second: &[Entry; 1]| Layout::of(&build(&stated, second)).data[0].len() == filter.len();
    let second = (0..200).map(of_len).find(is_as_long).unwrap();
    let mut other = build(&stated, &second);
    let layout = Layout::of(&other);
    destroy(&mut other, layout.index.clone());
    destroy(&mut other, layout.footer.clone());
    let (report, rescued) = rescue([file, other].concat());
    assert_eq!(rescued, [first, second].concat(), "{report}");
}

/// The first table's index has the size of the second's only block, which is destroyed, and its key comes before that block's.
/// The second's footer says where it was.
#[test]
fn the_index_of_another_table_is_no_block_of_this_one() {
    let raw = options(Compression::None).no_filter();
    let mut first = build(&raw, &[entry("a", b"1"), entry("b", b"2")]);
    let layout = Layout::of(&first);
    let index = layout.index.clone();
    destroy(&mut first, layout.metaindex);
    destroy(&mut first, layout.footer);
    let mut second = build(&raw, &[entry("d", b"vv")]);
    let data = Layout::of(&second).data[0].clone();
    assert_eq!(data.len(), index.len());
    destroy(&mut second, data);
    let (report, rescued) = rescue([first, second].concat());
    assert_eq!(rescued, [], "{report}");
    assert!(!report.is_complete());
    assert_eq!(report.entries_out_of_order, 2);
}

/// Data of handles, as the campaign makes it, in an order that the builder does not know: a block of several entries is no index
/// unless it is written as one.
#[test]
fn data_of_handles_in_another_order_is_kept() {
    let raw = options(Compression::None).comparator(super::common::Reverse);
    let handle = |i: usize| handle_of(&(i * 40..i * 40 + 40));
    let of = |i: usize| entry(&format!("key {:03}", 99 - i), &handle(i % 5));
    let blocks: Vec<Vec<Entry>> = (0..6)
        .map(|b| (5 * b..5 * b + 5).map(of).collect())
        .collect();
    let mut file = build_blocks(&raw, &blocks);
    let layout = Layout::of(&file);
    destroy(&mut file, layout.index.start..layout.footer.end);
    let mut builder = WriteOptions::new().build(Vec::new());
    let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
    assert!(report.stored_order, "{report}");
    let (rescued, _) = builder.finish_into_writer().unwrap();
    let table = OpenOptions::new().stored_order();
    let table = table.open_source(rescued).unwrap();
    assert_eq!(content(table.iter()), blocks.concat());
}

/// A last block of one entry could be the index of a table that is gone, or of the first block. It decides nothing about the other
/// blocks: only it is set aside.
#[test]
fn a_block_that_may_be_an_index_costs_no_other_block() {
    let all = entries(20);
    for len in [9, 90] {
        let mut blocks: Vec<Vec<Entry>> = all.chunks(4).map(<[Entry]>::to_vec).collect();
        blocks.push(vec![entry("last", &[0, len])]);
        let mut file = build_blocks(&options(Compression::None), &blocks);
        let layout = Layout::of(&file);
        destroy(&mut file, layout.data[0].clone());
        file.truncate(layout.data[5].end);
        let (report, rescued) = rescue(file);
        assert_eq!(rescued, all[4..], "{report}");
        let last = layout.data[5].start as u64..layout.data[5].end as u64;
        assert!(report.set_aside.contains(&(Section::Index, last)));
        assert!(!report.is_complete());
    }
}

/// Data of the second table, before the first one's index, lists a block of just the size that the first one's properties state.
#[test]
fn properties_state_what_the_nearest_index_lists() {
    let raw = options(Compression::None).properties(true);
    let first = build(&raw, &[entry("a", b"of the first table")]);
    let one = Layout::of(&first);
    let second = [entry("c", &handle_of(&one.data[0]))];
    let other = build(&raw.clone().no_filter(), &second);
    let two = Layout::of(&other);
    // The two blocks have changed places.
    let file = [
        &other[two.data[0].clone()],
        &first[one.data[0].end..],
        &first[one.data[0].clone()],
        &other[two.data[0].end..],
    ];
    let (report, rescued) = rescue(file.concat());
    assert_eq!(rescued, second, "{report}");
}

/// Where the front of the file is gone, its handles lead into the data of another table.
#[test]
fn a_metaindex_at_the_front_is_not_copied() {
    let all = entries(40);
    let file = build(&options(Compression::None), &all);
    let layout = Layout::of(&file);
    let front = &file[layout.metaindex.clone()];
    let data = &file[..layout.data.last().unwrap().end];
    let (report, rescued) = rescue([front, &[0xee; 30], data].concat());
    assert_eq!(rescued, all, "{report}");
    assert_eq!(report.set_aside[0].0, Section::Metaindex);
}

/// It lies in place of the block that it lists, which is gone from there.
#[test]
fn a_copy_of_the_index_is_no_block() {
    let raw = options(Compression::None).no_filter();
    let file = build(&raw, &[entry("k", &[0, 3])]);
    let layout = Layout::of(&file);
    let index = &file[layout.index.clone()];
    assert_eq!(index.len(), layout.data[0].len());
    let moved = [index, &[0xee; 18], &file[..layout.index.end]].concat();
    let (report, rescued) = rescue(moved);
    assert_eq!(rescued, [entry("k", &[0, 3])], "{report}");
}

/// The only block of a sound table and its index are the same to the byte: the footer tells them apart.
#[test]
fn a_block_that_is_the_same_as_its_index_is_copied() {
    let raw = options(Compression::None).no_filter();
    let all = [(vec![0xff], vec![0, 14])];
    let file = build(&raw, &all);
    let layout = Layout::of(&file);
    assert_eq!(file[layout.index.clone()], file[layout.data[0].clone()]);
    let (report, rescued) = rescue(file);
    assert_eq!(rescued, all, "{report}");
    assert!(report.is_complete());
}

/// The index lists a block that would end with the last byte that 64 bits can count.
#[test]
fn a_handle_of_nearly_all_bytes_is_lost_and_counted() {
    let huge = [varint(0), varint(u64::MAX - 5)].concat();
    let file = append_end(Vec::new(), &[], &block(&[entry("b", &huge)]));
    let (report, rescued) = rescue(file);
    assert_eq!(rescued, [], "{report}");
    assert!(report.lost_bytes() > u64::MAX / 2 && !report.is_complete());
}

/// The index of a table of one block leads to the front of it.
#[test]
fn a_list_that_does_not_begin_at_the_front_is_data() {
    let all = entries(20);
    let raw = options(Compression::None);
    let mut blocks: Vec<Vec<Entry>> = all.chunks(4).map(<[Entry]>::to_vec).collect();
    let layout = Layout::of(&build_blocks(&raw, &blocks));
    blocks.push(vec![entry("last", &handle_of(&layout.data[3]))]);
    let mut file = build_blocks(&raw, &blocks);
    let layout = Layout::of(&file);
    destroy(&mut file, layout.data[4].clone());
    file.truncate(layout.data[5].end);
    let (report, rescued) = rescue(file);
    assert_eq!(rescued, [&all[..16], &blocks[5]].concat(), "{report}");
}
