//! The filter of prefixes, as `verify` and `salvage` know it.

use std::ops::Range;

use crate::common::Layout;
use crate::common::prefixes::{Mixed, Named, by_slash, fixed, tenants, write};
use leveltable::{Compression, OpenOptions, Section, WriteOptions};
use leveltable_repair::{SalvageOptions, VerifyOptions, salvage, verify};

#[test]
fn verify_checks_the_prefix_of_every_key() {
    for options in [
        by_slash(),
        fixed(4),
        by_slash().no_filter().properties(false),
    ] {
        let file = write(&options, tenants(3));
        let report = verify(file, VerifyOptions::new()).unwrap();
        assert!(report.is_sound(), "{report}");
        assert!(report.findings.is_empty(), "{report}");
    }
    let mut builder = by_slash().build_db(Vec::new());
    for key in tenants(3) {
        builder.put(key, 7, "value").unwrap();
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let report = verify(file, VerifyOptions::new()).unwrap();
    assert!(report.is_sound(), "{report}");
    // An extractor of the application's own.
    let own = write(
        &WriteOptions::new().prefix_filter(Mixed),
        [".ab1", "/1", "0"],
    );
    let without = verify(own.clone(), VerifyOptions::new()).unwrap();
    let with = verify(
        own,
        VerifyOptions::new().open_options(OpenOptions::new().prefix_extractor(Mixed)),
    )
    .unwrap();
    assert!(with.is_sound() && without.is_sound());
    assert_eq!((without.filter_checks, with.filter_checks), (3, 6));
    // A filter of other prefixes than its name says.
    let lying = WriteOptions::new().prefix_filter(Named("leveltable.FixedPrefix(4)"));
    let report = verify(write(&lying, tenants(3)), VerifyOptions::new()).unwrap();
    assert_eq!(report.findings.len(), 1, "{report}");
    assert_eq!(report.findings[0].section(), Section::Filter);
    assert!(
        report
            .to_string()
            .contains("leveltable.FixedPrefix(4) passes each key"),
        "{report}"
    );
}

/// Whatever becomes of the parts after the data, all entries are rescued, and nothing else: no block of these parts is taken for
/// data or called lost.
#[test]
fn salvage_knows_what_the_block_is() {
    let keys = tenants(2);
    let options = by_slash().compression(Compression::None);
    for options in [
        options.clone(),
        options.clone().no_filter(),
        options.clone().properties(false),
        options.no_filter().properties(false),
    ] {
        let file = write(&options, &keys);
        let layout = Layout::of(&file);
        let named = [
            layout.filter,
            layout.prefixes,
            layout.properties,
            layout.pieces,
        ];
        let parts = named.into_iter().flatten();
        let (metaindex, index) = (layout.metaindex, layout.index);
        let parts = parts.chain([metaindex.clone(), index, layout.footer]);
        let parts: Vec<Range<usize>> = parts.collect();
        for subset in 0..1 << parts.len() {
            let mut damaged = file.clone();
            for (i, part) in parts.iter().enumerate() {
                if subset >> i & 1 == 1 {
                    let bytes = &mut damaged[part.clone()];
                    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
                }
            }
            let mut cut = vec![0xee; 77];
            cut.extend(&damaged[metaindex.start - 9..]);
            let mut rescued = Vec::new();
            let mut builder = options.build(&mut rescued);
            let report = salvage(damaged, &mut builder, SalvageOptions::new()).unwrap();
            assert_eq!(report.entries, keys.len() as u64, "{subset:b}: {report}");
            // Without an index, a gap may be a lost block.
            let has_index = subset >> (parts.len() - 2) & 1 == 0;
            assert!(report.lost.is_empty() || !has_index, "{subset:b}: {report}");
            builder.finish().unwrap();
            assert_eq!(rescued, file, "{subset:b}: {report}");

            // The end of the file, whose handles lead nowhere.
            let mut builder = options.build(Vec::new());
            let report = salvage(cut, &mut builder, SalvageOptions::new()).unwrap();
            assert_eq!(report.entries, 0, "{subset:b}: {report}");
        }
    }
}
