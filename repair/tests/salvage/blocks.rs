//! Damage to data blocks costs those blocks, and no others.

use std::collections::BTreeSet;

use bytes::Bytes;
use leveltable::{Compression, OpenOptions, WriteOptions};
use leveltable_repair::{IndexState, SalvageOptions, salvage};

use super::common::{Entry, Layout, Random, build};
use super::{all_options, by_block, content, destroy, entries, options, ranges, rescue, without};

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
        assert_eq!(report.index, IndexState::Sound);
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
