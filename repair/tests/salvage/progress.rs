//! Progress, and ending a run early.

use std::ops::ControlFlow;

use leveltable::{Compression, WriteOptions};
use leveltable_repair::{SalvageOptions, salvage};

use super::common::{Layout, Random, build};
use super::{by_block, destroy, entries, options};

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
        assert_eq!(builder.finish().unwrap().properties.entries, report.entries);
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
