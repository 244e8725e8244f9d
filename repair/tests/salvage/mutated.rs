//! Tables that somebody changed, with right checksums. They may lie, and do no other harm: no panic, no hang.

use std::time::{Duration, Instant};

use leveltable::{Compression, WriteOptions};
use leveltable_repair::{SalvageOptions, VerifyOptions, blocks, layout, salvage, verify};

use super::common::{Layout, Random, build, seal};
use super::entries;

fn mutated_tables(seeds: std::ops::Range<u64>) {
    let tables: Vec<Vec<u8>> = [WriteOptions::new(), WriteOptions::leveldb()]
        .into_iter()
        .flat_map(|options| [1, 30].map(|n| (options.clone(), n)))
        .map(|(options, n)| {
            let options = options.compression(Compression::None).block_size(200);
            build(&options, &entries(n))
        })
        .collect();
    for seed in seeds {
        let mut random = Random(seed);
        let mut file = tables[random.below(tables.len())].clone();
        let layout_of_file = Layout::of(&file);
        let named = [
            layout_of_file.filter,
            layout_of_file.properties,
            layout_of_file.pieces,
        ];
        let parts = named.into_iter().flatten().chain(layout_of_file.data);
        let parts = parts.chain([layout_of_file.metaindex, layout_of_file.index]);
        let parts: Vec<_> = parts.collect();
        for _ in 0..1 + random.below(3) {
            let part = &parts[random.below(parts.len())];
            let at = part.start + random.below(part.len() - 4);
            file[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)];
            seal(&mut file, part);
        }
        let start = Instant::now();
        let _ = verify(file.clone(), VerifyOptions::new()).unwrap();
        let _ = layout(file.clone());
        let _ = blocks(file.clone()).map(|blocks| blocks.count());
        let mut builder = WriteOptions::new().build(Vec::new());
        if salvage(file, &mut builder, SalvageOptions::new()).is_ok() {
            let (copy, _) = builder.finish_into_writer().unwrap();
            let verified = verify(copy, VerifyOptions::new()).unwrap();
            assert!(verified.blocks_are_sound(), "seed {seed}: {verified}");
        }
        let elapsed = start.elapsed();
        assert!(
            elapsed < Duration::from_secs(60), // a hang, and no busy machine
            "seed {seed}: {elapsed:?}"
        );
    }
}

#[test]
fn tables_that_lie_do_no_other_harm() {
    mutated_tables(0..2_000);
}

#[test]
#[ignore = "takes minutes: run it in a release build"]
fn of_300000_tables_that_lie_none_does_other_harm() {
    mutated_tables(2_000..302_000);
}
