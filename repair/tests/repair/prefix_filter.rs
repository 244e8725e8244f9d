//! The filter of prefixes, as `verify` and `salvage` know it.

use std::ops::Range;

use crate::common::Layout;
use leveltable::filter::{DelimitedPrefix, FixedPrefix, PrefixExtractor};
use leveltable::{Compression, OpenOptions, Section, WriteOptions};
use leveltable_repair::{SalvageOptions, VerifyOptions, salvage, verify};

fn write<K: AsRef<[u8]>>(options: &WriteOptions, keys: impl IntoIterator<Item = K>) -> Vec<u8> {
    let mut builder = options.build(Vec::new());
    for key in keys {
        builder.add(key, "value").unwrap();
    }
    builder.finish_into_writer().unwrap().0
}

fn by_slash() -> WriteOptions {
    WriteOptions::new().prefix_filter(DelimitedPrefix::new(b'/'))
}

fn fixed(len: usize) -> WriteOptions {
    WriteOptions::new().prefix_filter(FixedPrefix::new(len))
}

fn tenants(each: u32) -> Vec<String> {
    let tenants = (0..1000).step_by(2);
    tenants
        .flat_map(|tenant| (0..each).map(move |i| format!("{tenant:04}/{i:06}")))
        .collect()
}

/// One byte of keys that begin with a slash, three of those that begin with a dot, none of others.
#[derive(Debug)]
struct Mixed;

impl PrefixExtractor for Mixed {
    fn name(&self) -> &str {
        "test.Mixed(/,1,.,3)"
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        match key.first()? {
            b'/' => Some(1),
            b'.' => Some(3),
            _ => None,
        }
    }
}

/// Takes the first three bytes, whatever its name says.
#[derive(Debug)]
struct Named(&'static str);

impl PrefixExtractor for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn prefix_len(&self, _: &[u8]) -> Option<usize> {
        Some(3)
    }
}

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
