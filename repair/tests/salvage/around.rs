//! Whatever becomes of footer, index, metaindex and filter, no entry is lost, and none of them is taken for data.

use std::time::Instant;

use leveltable::{Compression, WriteOptions};
use leveltable_repair::IndexState;

use super::common;
use super::common::{Entry, Layout, append, block, build, varint};
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
    // The block in the value is sound, and has no place.
    assert_eq!(report.lost.len(), 2, "{report}");
    assert_eq!(report.lost[1].entries, Some(1));
}

/// Lists of one handle, and metaindexes with names of this crate and of others, without anything else. Each was compared with all blocks
/// before it: half a megabyte took 1 to 4 s with optimisation, and a megabyte four times as long.
#[test]
fn many_small_lists_take_time_in_proportion_to_their_number() {
    let handle = |offset: usize| [varint(offset as u64), varint(1)].concat();
    let lists: [&dyn Fn(usize) -> Entry; 3] = [
        &|at| entry("filter.x", &handle(at.saturating_sub(6))),
        &|_| entry("about.x", &handle(1 << 40)),
        &|at| entry(&format!("{at:09}"), &handle(at.saturating_sub(6))),
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
