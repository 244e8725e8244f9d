//! What went wrong in trials, each by the rule that it broke.

use leveltable::{Compression, OpenOptions, WriteOptions};
use leveltable_repair::{IndexState, SalvageOptions, VerifyOptions, blocks, salvage, verify};

use super::common::{Entry, Layout, Random, block, build, footer, handle_of};
use super::{content, destroy, entries, entry, options, rescue, rescue_with};

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
        assert!(!report.is_complete());
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
        let mut codecs: Vec<_> = blocks(file)
            .unwrap()
            .map(|block| block.unwrap().codec)
            .collect();
        codecs.dedup();
        codecs
    };
    for &codec in Compression::all() {
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

/// 60,000 keys that share 60,000 bytes, in 600 KB: each was stored whole, some 6 GB of them. No such block opens.
#[test]
fn keys_that_are_thousands_of_times_their_block_are_not_copied() {
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
    let (report, rescued) = rescue(file);
    assert_eq!(rescued, []);
    let reason = &report.lost[0].reason;
    assert!(reason.contains("keys of at most"), "{report}");
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
    // After the table; and after its data, where no index tells what belongs to it.
    let after = [&file[..], &old_data].concat();
    let instead = [&file[..layout.metaindex.start], &old_data].concat();
    for (file, has_index) in [(after, true), (instead, false)] {
        let (report, rescued) = rescue(file);
        assert!(rescued == new, "{report}");
        let index = if has_index {
            IndexState::Found
        } else {
            IndexState::Lost
        };
        assert_eq!(report.index, index);
        let lost = report.lost.iter().filter_map(|lost| lost.entries);
        assert_eq!(lost.sum::<u64>(), 50);
    }
}

/// One stray block that reaches over all keys must not cost all the rest.
#[test]
fn a_stray_block_before_the_others_costs_itself() {
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
        for (file, expected) in [(data.to_vec(), &entries[..]), (zeros, &entries[100..])] {
            let (report, rescued) = rescue(file);
            assert!(rescued == expected, "{} entries: {report}", rescued.len());
        }
    }
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
    assert!(blocks(file).unwrap().all(|block| block.is_ok()));
}
