//! Sound tables, and tables with one thing wrong that `verify` must name: where, and what.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{self, Entry, Layout, Renamed, Reverse, block, build, handle_of, seal};
use bytes::Bytes;
use leveltable::db::KeyKind;
use leveltable::{
    BloomFilterPolicy, BytewiseComparator, Comparator, Compression, OpenOptions, ReadAt,
    RibbonFilterPolicy, Section, Source, WriteOptions,
    db::InternalKeyComparator,
    filter::{FilterPolicy, FixedPrefix},
};

use leveltable_repair::{Severity, VerifyOptions, VerifyReport};

fn entries(n: usize) -> Vec<Entry> {
    let entry = |i| {
        (
            format!("key {i:05}").into_bytes(),
            format!("the value of {i}").into_bytes(),
        )
    };
    (0..n).map(entry).collect()
}

/// Raw blocks of about ten entries and a Bloom filter.
fn options() -> WriteOptions {
    WriteOptions::leveldb()
        .block_size(256)
        .compression(Compression::None)
}

fn verify(file: &[u8]) -> VerifyReport {
    leveltable_repair::verify(file.to_vec(), VerifyOptions::new()).unwrap()
}

/// Asserts that there is exactly one finding, and where and what it is.
#[track_caller]
fn assert_finds(file: &[u8], severity: Severity, section: Section, offset: usize, words: &str) {
    assert_is_only_finding(verify(file), severity, section, offset, words);
}

/// Checks a table of which it is known that the order is bytewise.
fn verify_bytewise(file: &[u8]) -> VerifyReport {
    let options =
        VerifyOptions::new().open_options(OpenOptions::new().comparator(BytewiseComparator));
    leveltable_repair::verify(file.to_vec(), options).unwrap()
}

#[track_caller]
fn assert_is_only_finding(
    report: VerifyReport,
    severity: Severity,
    section: Section,
    offset: usize,
    words: &str,
) {
    assert_eq!(report.findings.len(), 1, "{report}");
    let finding = &report.findings[0];
    assert_eq!(finding.severity(), severity, "{report}");
    assert_eq!(finding.section(), section, "{report}");
    assert_eq!(finding.offset(), offset as u64, "{report}");
    assert!(
        finding.to_string().contains(words),
        "{words:?} not in: {report}"
    );
    assert_eq!(report.is_sound(), severity == Severity::Warning);
}

/// Puts tables together from parts that the test is free to get wrong.
#[derive(Default)]
struct Forge(Vec<u8>);

impl Forge {
    fn frame(&mut self, payload: &[u8]) -> Range<usize> {
        let start = self.0.len();
        self.0.extend(payload);
        self.0.extend([0; 5]);
        let range = start..self.0.len();
        seal(&mut self.0, &range);
        range
    }

    fn finish(mut self, metaindex: &Range<usize>, index: &Range<usize>) -> Vec<u8> {
        let mut footer = [handle_of(metaindex), handle_of(index)].concat();
        footer.resize(40, 0);
        footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
        self.0.extend(footer);
        self.0
    }

    /// A table of these data blocks and index keys, without a filter.
    fn table(blocks: &[(&str, &[&str])]) -> (Vec<u8>, Layout) {
        let mut forge = Forge::default();
        let mut index = Vec::new();
        for (separator, keys) in blocks {
            let entries: Vec<Entry> = keys
                .iter()
                .map(|key| (key.as_bytes().to_vec(), b"value".to_vec()))
                .collect();
            let range = forge.frame(&block(&entries));
            index.push((separator.as_bytes().to_vec(), handle_of(&range)));
        }
        let metaindex = forge.frame(&block(&[]));
        let index = forge.frame(&block(&index));
        let file = forge.finish(&metaindex, &index);
        let layout = Layout::of(&file);
        (file, layout)
    }
}

// ---- Sound tables ---------------------------------------------------------------------------

#[test]
fn tables_by_cpp_leveldb_are_sound() {
    let testdata = common::root().join("testdata");
    let manifest = fs::read_to_string(testdata.join("manifest.tsv")).unwrap();
    let mut tables = 0;
    for line in manifest.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (file, entries, keys, comparator) = (columns[0], columns[1], columns[3], columns[4]);
        let entries = count_entries(&fs::read(testdata.join(entries)).unwrap());
        let mut options = VerifyOptions::new();
        match (comparator, keys) {
            ("reverse", "internal") => {
                let open = OpenOptions::new().comparator(Reverse);
                options = options.open_options(open).keys(KeyKind::Database);
            }
            ("reverse", _) => {
                options = options.open_options(OpenOptions::new().comparator(Reverse))
            }
            _ => {}
        }
        let source = Source::open(testdata.join(file)).unwrap();
        let report = leveltable_repair::verify(source, options).unwrap();
        assert!(
            report.is_sound() && report.findings.is_empty(),
            "{file}: {report}"
        );
        assert_eq!(report.entries, entries, "{file}");
        assert_eq!(report.checked_bytes, report.file_bytes, "{file}");
        assert_eq!(
            report.keys == KeyKind::Database,
            keys == "internal" && (entries > 0 || comparator == "reverse"),
            "{file}"
        );
        let filtered = columns[8] != "none";
        assert_eq!(
            report.filter_checks,
            if filtered { entries } else { 0 },
            "{file}"
        );
        tables += 1;
    }
    assert!(tables > 50);
}

/// Number of entries in a list of them: u32 key length, key, u32 value length, value.
fn count_entries(mut list: &[u8]) -> u64 {
    let mut strings = 0;
    while let Some((len, rest)) = list.split_first_chunk() {
        list = &rest[u32::from_le_bytes(*len) as usize..];
        strings += 1;
    }
    strings / 2
}

#[test]
fn our_own_tables_are_sound_open_or_not() {
    for options in [
        WriteOptions::new(),
        WriteOptions::leveldb(),
        options().no_filter(),
    ] {
        for n in [0, 1, 1000] {
            let file = build(&options, &entries(n));
            let table = OpenOptions::new().open_source(file.clone()).unwrap();
            let report = verify(&file);
            assert!(report.is_sound() && report.findings.is_empty(), "{report}");
            assert_eq!(
                (report.entries, report.data_blocks),
                (n as u64, table.data_blocks() as u64)
            );
        }
    }
    let mut db = Vec::new();
    let mut builder = WriteOptions::new().build_db(&mut db);
    builder.put(b"a", 2, b"new").unwrap();
    builder.put(b"a", 1, b"old").unwrap();
    builder.finish().unwrap();
    let report = verify(&db);
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.keys, KeyKind::Database);
    let named = VerifyOptions::new().keys(KeyKind::Database);
    assert_eq!(leveltable_repair::verify(db, named).unwrap(), report);
}

#[test]
fn a_filter_of_the_callers_own_is_checked_too() {
    let file = build(&options().filter_policy(Renamed), &entries(100));
    assert_eq!(verify(&file).filter_checks, 0, "nobody knows it");
    assert!(verify(&file).is_sound());
    // A second policy does not replace the first.
    let open = OpenOptions::new()
        .filter_policy(Renamed)
        .filter_policy(RibbonFilterPolicy::new(20));
    let options = VerifyOptions::new().open_options(open);
    assert_eq!(
        leveltable_repair::verify(file, options)
            .unwrap()
            .filter_checks,
        100
    );
}

// ---- One thing wrong ------------------------------------------------------------------------

/// Every bit of `about.pieces` flipped, and its checksum right: it is found there, and nothing else is. What says the same in other
/// words is none: pieces of a filter twice as long, where there is only one.
#[test]
fn pieces_that_do_not_fit_their_blocks_are_found() {
    let filter = FixedPrefix::new(2);
    let options = WriteOptions::new().compression(Compression::None);
    let file = build(&options.block_size(1).prefix_filter(filter), &entries(30));
    assert!(verify(&file).findings.is_empty());
    let pieces = Layout::of(&file).pieces.unwrap();
    let mut alike = 0;
    for bit in pieces.start * 8..(pieces.end - 5) * 8 {
        let mut lying = file.clone();
        lying[bit / 8] ^= 1 << (bit % 8);
        seal(&mut lying, &pieces);
        let report = verify(&lying);
        let findings = &report.findings;
        assert!(
            findings
                .iter()
                .all(|finding| finding.section() == Section::Pieces),
            "bit {bit}: {report}"
        );
        if bit / 8 == pieces.start {
            // Another version.
            let [note] = &findings[..] else {
                panic!("bit {bit}: {report}");
            };
            assert_eq!(note.severity(), Severity::Warning);
        } else if findings.is_empty() {
            alike += 1;
        } else {
            assert!(report.damage > 0, "bit {bit}: {report}");
        }
    }
    assert!((2..=8).contains(&alike), "{alike}");
}

/// Every bit of a table flipped: it is found, in the section where it is.
#[test]
fn every_flipped_bit_is_found_where_it_is() {
    let all = entries(30);
    for (compression, properties) in [
        (Compression::None, false),
        (Compression::None, true),
        (Compression::Snappy, true),
    ] {
        let options = options().compression(compression);
        let file = build(&options.properties(properties), &all);
        let layout = Layout::of(&file);
        assert_eq!(layout.properties.is_some(), properties);
        let handles = [handle_of(&layout.metaindex), handle_of(&layout.index)].concat();
        let padding = layout.footer.start + handles.len()..file.len() - 8;
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let report = verify(&damaged);
            assert!(
                !padding.contains(&(bit / 8)) || report.is_sound(),
                "{report}"
            );
            if report.is_sound() {
                // The padding means nothing, and a varint may go on into its zeros.
                assert_eq!(layout.section_at(bit / 8).0, Section::Footer);
                let [note] = &report.findings[..] else {
                    panic!("bit {bit}: {report}");
                };
                assert_eq!(
                    (note.severity(), note.section()),
                    (Severity::Warning, Section::Footer)
                );
                common::assert_holds(&OpenOptions::new().open_source(damaged).unwrap(), &all);
                continue;
            }
            assert!(report.damage > 0, "bit {bit}: {report}");
            let (section, start) = layout.section_at(bit / 8);
            if section == Section::Footer {
                // Handles that lead astray show where they lead.
                continue;
            }
            assert_eq!(report.damage, 1, "bit {bit}: {report}");
            let damage = report
                .findings
                .iter()
                .find(|f| f.severity() == Severity::Damage)
                .unwrap();
            assert_eq!(
                (damage.section(), damage.offset()),
                (section, start as u64),
                "{report}"
            );
        }
    }
}

/// Not the first damage only: each of several, with everything else still checked.
#[test]
fn all_damage_is_reported() {
    let all = entries(300);
    let mut file = build(&options(), &all);
    let layout = Layout::of(&file);
    let hit = [
        layout.data[2].start,
        layout.data[7].start,
        layout.data[20].start,
    ];
    let filter = layout.filter.clone().unwrap();
    for at in hit.iter().chain([&filter.start]) {
        file[*at] ^= 1;
    }
    let report = verify(&file);
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|f| (f.section(), f.offset() as usize))
        .collect();
    let data = hit.map(|offset| (Section::Data, offset));
    assert_eq!(found[..3], data);
    assert_eq!(found[3..], [(Section::Filter, filter.start)]);
    assert_eq!(report.damage, 4);
    assert_eq!(report.data_blocks, layout.data.len() as u64 - 3);
    let lost: usize = [2, 7, 20]
        .iter()
        .map(|&i| common::entries(&common::payload(&file, &layout.data[i])).len())
        .sum();
    assert_eq!(report.entries, 300 - lost as u64);
    let text = report.to_string();
    assert_eq!(text.lines().count(), 5, "{text}");
}

#[test]
fn a_damaged_index_or_footer_leaves_the_rest_to_be_checked() {
    let all = entries(300);
    let file = build(&options(), &all);
    let layout = Layout::of(&file);
    let data_len = layout.metaindex.start - layout.filter.as_ref().unwrap().len();

    // One bit in the last key of the index: all handles before it still lead to sound blocks.
    let mut damaged = file.clone();
    damaged[layout.index.end - 10] ^= 1;
    let report = verify(&damaged);
    assert_eq!(report.damage, 1, "{report}");
    assert_eq!(
        report
            .findings
            .iter()
            .filter(|f| f.section() == Section::Index)
            .count(),
        1
    );

    // Nothing left of it.
    let mut damaged = file.clone();
    damaged[layout.index.clone()].fill(0x55);
    let report = verify(&damaged);
    assert_eq!(report.damage, 1, "{report}");
    assert_eq!(report.unchecked, 1);
    let gap = &report.findings[0];
    assert_eq!(
        (gap.severity(), gap.section(), gap.offset()),
        (Severity::Unchecked, Section::Data, 0)
    );
    assert!(
        gap.found().starts_with(&format!("{data_len} bytes")),
        "{report}"
    );
    // No footer: the message is that of `open`.
    let report = verify(&file[..layout.footer.start]);
    let opened = OpenOptions::new()
        .open_source(file[..layout.footer.start].to_vec())
        .unwrap_err();
    let footer = report
        .findings
        .iter()
        .find(|f| f.section() == Section::Footer)
        .unwrap();
    assert!(opened.to_string().contains(footer.found()), "{report}");
    assert_eq!(footer.severity(), Severity::Damage);
    for not_a_table in [&b""[..], b"x", b"<html>not found</html>"] {
        let report = verify(not_a_table);
        assert!(!report.is_sound());
        assert_eq!(report.findings[0].section(), Section::Footer);
    }
}

#[test]
fn separators_are_held_against_their_blocks() {
    let sound: &[(&str, &[&str])] = &[("c", &["a", "b"]), ("f", &["d", "f"]), ("z", &["x"])];
    assert!(verify(&Forge::table(sound).0).findings.is_empty());

    let (file, layout) = Forge::table(&[("c", &["a", "d"]), ("f", &["e"])]);
    assert_is_only_finding(
        verify_bytewise(&file),
        Severity::Damage,
        Section::Data,
        layout.data[0].start,
        "at or before its index key \"c\"",
    );
    let (file, layout) = Forge::table(&[("c", &["a"]), ("f", &["c", "e"])]);
    assert_is_only_finding(
        verify_bytewise(&file),
        Severity::Damage,
        Section::Data,
        layout.data[1].start,
        "after the previous index key, \"c\"",
    );
    // Both: the blocks overlap.
    let (file, layout) = Forge::table(&[("c", &["a", "e"]), ("f", &["d", "f"])]);
    let report = verify_bytewise(&file);
    let offsets: Vec<_> = report
        .findings
        .iter()
        .map(|f| f.offset() as usize)
        .collect();
    assert_eq!(
        offsets,
        [layout.data[0].start, layout.data[1].start],
        "{report}"
    );
    assert!(
        report.findings[1]
            .expected()
            .contains("the last key of the previous block"),
        "{report}"
    );
}

#[test]
fn keys_out_of_order_are_found_within_blocks_and_in_the_index() {
    let (file, layout) = Forge::table(&[("c", &["a", "c", "b", "a"]), ("f", &["d"])]);
    assert_is_only_finding(
        verify_bytewise(&file),
        Severity::Damage,
        Section::Data,
        layout.data[0].start,
        "one after \"c\", found \"b\"",
    );
    let (file, layout) = Forge::table(&[("c", &["a", "b", "b"]), ("f", &["d"])]);
    assert_is_only_finding(
        verify_bytewise(&file),
        Severity::Damage,
        Section::Data,
        layout.data[0].start,
        "one after \"b\", found \"b\"",
    );
    let (file, layout) = Forge::table(&[("f", &["a"]), ("e", &[]), ("g", &["g"])]);
    assert_is_only_finding(
        verify_bytewise(&file),
        Severity::Damage,
        Section::Index,
        layout.index.start,
        "one after \"f\"",
    );
    // The wrong comparator, in other words.
    let file = build(&options(), &entries(100));
    let options = VerifyOptions::new().open_options(OpenOptions::new().comparator(Reverse));
    let report = leveltable_repair::verify(file, options).unwrap();
    assert!(report.damage > 10, "{report}");
}

/// Sound tables in an order of their own were called damaged.
#[test]
fn an_order_that_is_not_known_is_no_damage() {
    let mut all = entries(300);
    all.reverse();
    let file = build(&options().comparator(Reverse), &all);
    let layout = Layout::of(&file);
    let report = verify(&file);
    assert_eq!((report.damage, report.unchecked), (0, 0), "{report}");
    assert!(report.unknown_order && report.blocks_are_sound() && !report.is_sound());
    assert_eq!((report.entries, report.filter_checks), (300, 300));
    assert!(report.findings.is_empty(), "{report}");
    let clue = "keys ascend neither bytewise nor as a database's, first in the index block";
    assert_eq!(report.order_clue.as_deref(), Some(clue));
    // Whoever says that the order is one of its own gets a table that is sound.
    let stored = VerifyOptions::new().open_options(OpenOptions::new().stored_order());
    let stored = leveltable_repair::verify(file.clone(), stored).unwrap();
    assert!(stored.is_sound() && !stored.unknown_order, "{stored}");
    let named = || VerifyOptions::new().open_options(OpenOptions::new().comparator(Reverse));
    let report = leveltable_repair::verify(file.clone(), named()).unwrap();
    assert!(report.is_sound() && !report.unknown_order, "{report}");

    // Damage in it is found all the same.
    let mut damaged = file;
    damaged[layout.data[3].start] ^= 1;
    let report = verify(&damaged);
    assert_eq!((report.damage, report.unchecked), (1, 0), "{report}");
    assert!(report.unknown_order && !report.blocks_are_sound());
    assert_eq!(
        leveltable_repair::verify(damaged, named()).unwrap().damage,
        1
    );

    // The keys of a database are user keys in that order: the filter holds those.
    let mut db = Vec::new();
    let mut builder = options().comparator(Reverse).build_db(&mut db);
    for (i, (key, value)) in all.iter().enumerate() {
        builder.put(key, i as u64, value).unwrap();
    }
    builder.finish().unwrap();
    let report = verify(&db);
    assert!(
        report.unknown_order && report.blocks_are_sound(),
        "{report}"
    );
    assert_eq!(report.keys, KeyKind::Database);
    let stored = VerifyOptions::new().open_options(OpenOptions::new().stored_order());
    let stored = leveltable_repair::verify(db.clone(), stored).unwrap();
    assert!(stored.is_sound(), "{stored}");
    let report = leveltable_repair::verify(db, named().keys(KeyKind::Database)).unwrap();
    assert!(report.is_sound(), "{report}");
}

/// In no order does a key come before itself.
#[test]
fn a_repeated_key_is_damage_in_any_order() {
    let entry = |key: &str| (key.as_bytes().to_vec(), b"value".to_vec());
    let mut file = Vec::new();
    let data = common::append(&mut file, &block(&["z", "m", "m", "a"].map(entry)));
    let index = block(&[(b"a".to_vec(), handle_of(&data))]);
    let file = common::append_end(file, &[], &index);
    for open in [OpenOptions::new(), OpenOptions::new().stored_order()] {
        let options = VerifyOptions::new().open_options(open);
        let report = leveltable_repair::verify(file.clone(), options).unwrap();
        assert_eq!(report.damage, 1, "{report}");
        assert!(report.findings[0].expected().contains("one after \"m\""));
    }
}

/// Lookups here use the better filter; those of C++ LevelDB use the other.
#[test]
fn the_filter_of_each_policy_is_held_against_keys() {
    let all = entries(100);
    let bloom = BloomFilterPolicy::new(10);
    let own = build(
        &WriteOptions::new()
            .compression(Compression::None)
            .properties(false),
        &all,
    );
    let others = build(&options(), &[(b"another key".to_vec(), Vec::new())]);
    let [layout, other] = [&own, &others].map(|file| Layout::of(file));
    let (mut file, mut index) = (Vec::new(), Vec::new());
    for (range, key) in layout.data.iter().zip(layout.last_keys(&own)) {
        let data = common::append(&mut file, &common::payload(&own, range));
        index.push((key, handle_of(&data)));
    }
    let ribbon = common::payload(&own, layout.filter.as_ref().unwrap());
    let wrong = common::payload(&others, other.filter.as_ref().unwrap());
    let wrong = common::append(&mut file, &wrong);
    let ribbon = common::append(&mut file, &ribbon);
    let name = |policy: &dyn FilterPolicy| format!("filter.{}", policy.name()).into_bytes();
    let metaindex = [
        (name(&bloom), handle_of(&wrong)),
        (name(&RibbonFilterPolicy::new(10)), handle_of(&ribbon)),
    ];
    let file = common::append_end(file, &metaindex, &block(&index));
    let report = verify(&file);
    assert_eq!(report.filter_checks, 200, "{report}");
    assert_eq!(report.damage, 1, "{report}");
    assert_eq!(report.findings[0].offset(), wrong.start as u64);
}

/// The filter alone shows that these are the keys of a database: one version of each, and none that could be shortened in
/// the index. It was called damaged, since it rejects keys as they are stored.
#[test]
fn a_filter_shows_what_kind_of_keys_a_table_holds() {
    for options in [WriteOptions::leveldb(), WriteOptions::new()] {
        let mut file = Vec::new();
        let mut builder = options.build_db(&mut file);
        for (sequence, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
            builder.put(key, sequence as u64 + 9, b"value").unwrap();
        }
        builder.finish().unwrap();
        let report = verify(&file);
        assert!(report.is_sound(), "{report}");
        assert_eq!(report.keys, KeyKind::Database);
        let plain = VerifyOptions::new().keys(KeyKind::Plain);
        assert_eq!(leveltable_repair::verify(file, plain).unwrap().damage, 1);
    }
}

/// Two keys that could be versions of the empty user key. The filter passes both as they are stored, and rejects that: it was
/// called damaged, since only the keys decided.
#[test]
fn a_filter_that_passes_all_stored_keys_speaks_for_a_plain_table() {
    for counter in [1, 500, 987] {
        let key = |i: u64| ((counter + i) << 8 | 1).to_le_bytes().to_vec();
        let entries = [(key(1), b"value".to_vec()), (key(0), b"value".to_vec())];
        let file = build(&options().comparator(Reverse), &entries);
        let report = verify(&file);
        assert_eq!((report.damage, report.unchecked), (0, 0), "{report}");
        assert_eq!(report.entries, 2);
    }
}

/// Where keys fit both kinds, either may be what the filter holds. One that rejects keys of both was not mentioned.
#[test]
fn a_filter_is_held_against_keys_that_fit_both_kinds() {
    let newest = (1 << 56) - 100;
    let fit_both = [0, 1].map(|i: u64| {
        let user_key = vec![0xff; 2 + i as usize];
        (user_key, newest + i)
    });
    // Plain ones, and a database's.
    let (mut plain, mut db) = (Vec::new(), Vec::new());
    let mut builder = options().build(&mut plain);
    let mut db_builder = options().build_db(&mut db);
    for (user_key, sequence) in &fit_both {
        db_builder.put(user_key, *sequence, b"value").unwrap();
        let key = [&user_key[..], &(sequence << 8 | 1).to_le_bytes()].concat();
        builder.add(&key, b"value").unwrap();
    }
    builder.finish().unwrap();
    db_builder.finish().unwrap();
    for mut file in [plain, db] {
        let report = verify(&file);
        assert!(report.is_sound() && report.findings.is_empty(), "{report}");
        let filter = Layout::of(&file).filter.unwrap();
        // A filter of no bits that rejects all, in place of that of both keys.
        file[filter.start..filter.start + 8].fill(0);
        seal(&mut file, &filter);
        let report = verify(&file);
        assert_eq!(report.unchecked + report.damage, 1, "{report}");
        assert_eq!(report.findings[0].section(), Section::Filter);
    }
}

/// Each was compared with all before it: half a minute for a megabyte.
#[test]
fn many_filters_in_a_metaindex_take_no_square_of_time() {
    let mut forge = Forge::default();
    let data = forge.frame(&block(&[(b"key".to_vec(), b"value".to_vec())]));
    let names = (0..130_000).map(|i| format!("filter.{i:06}").into_bytes());
    let names: Vec<Entry> = names.map(|name| (name, handle_of(&data))).collect();
    let metaindex = forge.frame(&block(&names));
    let index = forge.frame(&block(&[(b"l".to_vec(), handle_of(&data))]));
    let file = forge.finish(&metaindex, &index);
    let start = std::time::Instant::now();
    let report = verify(&file);
    assert!(!report.is_sound(), "data is no filter");
    let elapsed = start.elapsed();
    // The square of these takes minutes.
    assert!(elapsed.as_secs() < 60, "{elapsed:?}");
}

#[test]
fn the_structure_of_blocks_is_checked_to_the_last_byte() {
    let keys: &[(&str, &[&str])] = &[("c", &["aa", "ab", "ac"])];
    let (sound, layout) = Forge::table(keys);
    let data = layout.data[0].clone();
    let entry_len = 3 + 2 + 5;
    let restarts = data.start + 3 * entry_len;
    let damaged = |at: usize, byte: u8| {
        let mut file = sound.clone();
        file[at] = byte;
        seal(&mut file, &data);
        file
    };
    for (at, byte, words) in [
        (restarts + 4, 1, "restart 1 at the beginning of an entry"),
        (restarts + 4, 20, "restart 2 of 3 after"),
        (restarts, 10, "restart 0 of 3"),
        (restarts + 8, 29, "restart 2 at the beginning of an entry"),
        (data.start + entry_len, 1, "shares at most 0 bytes"),
        (data.start + 2, 200, "an entry at byte"),
        (restarts + 12, 0, "a restart for the first entry"),
        (restarts + 12, 200, "restarts in"),
        (restarts + 12, 2, "restart 0 of 2"),
    ] {
        assert_finds(
            &damaged(at, byte),
            Severity::Damage,
            Section::Data,
            data.start,
            words,
        );
    }
}

#[test]
fn handles_that_leave_the_file_or_make_no_sense_are_found() {
    let (sound, layout) = Forge::table(&[("a", &["a"]), ("b", &["b"])]);
    let forge = |second: Vec<u8>| {
        let mut forge = Forge(sound[..layout.index.start].to_vec());
        let index = [
            (b"a".to_vec(), handle_of(&layout.data[0])),
            (b"b".to_vec(), second),
        ];
        let index = forge.frame(&block(&index));
        forge.finish(&layout.metaindex, &index)
    };
    let at = layout.index.start;
    let beyond = sound.len()..sound.len() + 100;
    let max = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    for (second, words) in [
        (handle_of(&beyond), "a handle to the data block"),
        (
            [max.clone(), max.clone()].concat(),
            "a handle to the data block",
        ),
        (vec![0x80], "a handle for data block 1"),
        (vec![], "a handle for data block 1"),
    ] {
        let report = verify(&forge(second));
        let index = report
            .findings
            .iter()
            .find(|f| f.section() == Section::Index)
            .unwrap();
        assert_eq!(index.offset() as usize, at);
        assert!(index.expected().contains(words), "{report}");
        // The block that is not reached any more is a gap.
        let gap = report
            .findings
            .iter()
            .find(|f| f.offset() as usize == layout.data[1].start);
        assert!(
            gap.unwrap().found().contains("that no handle leads to"),
            "{report}"
        );
    }
    let trailing = [handle_of(&layout.data[1]), vec![7, 7]].concat();
    assert_finds(
        &forge(trailing),
        Severity::Warning,
        Section::Index,
        at,
        "2 bytes more",
    );

    // The same block twice: it overlaps itself, and the second is a gap.
    let report = verify(&forge(handle_of(&layout.data[0])));
    let words = report.to_string();
    assert!(words.contains("blocks that do not overlap"), "{report}");
    assert!(words.contains("no handle leads to"), "{report}");
    // One that begins within another.
    let inside = layout.data[0].start + 4..layout.data[1].end;
    assert!(
        verify(&forge(handle_of(&inside)))
            .to_string()
            .contains("blocks that do not overlap")
    );
}

#[test]
fn gaps_are_a_warning() {
    let mut forge = Forge::default();
    let entry = |key: &[u8]| (key.to_vec(), b"v".to_vec());
    let first = forge.frame(&block(&[entry(b"a")]));
    forge.0.extend([0xee; 77]);
    let hidden = forge.frame(&block(&[entry(b"b")]));
    let last = forge.frame(&block(&[entry(b"c")]));
    let metaindex = forge.frame(&block(&[]));
    let index = vec![
        (b"a".to_vec(), handle_of(&first)),
        (b"b".to_vec(), handle_of(&hidden)),
        (b"c".to_vec(), handle_of(&last)),
    ];
    let index = forge.frame(&block(&index));
    let file = forge.finish(&metaindex, &index);
    assert_finds(
        &file,
        Severity::Warning,
        Section::Data,
        first.end,
        "77 bytes before the data block",
    );
}

#[test]
fn a_filter_that_hides_keys_is_found() {
    let all = entries(200);
    let sound = build(&options(), &all);
    let layout = Layout::of(&sound);
    let filter = layout.filter.clone().unwrap();
    let mut file = sound.clone();
    file[filter.start..filter.start + 8].fill(0);
    seal(&mut file, &filter);
    assert_finds(
        &file,
        Severity::Damage,
        Section::Filter,
        filter.start,
        "rejected, which is in the data block at 0",
    );
    let found = verify(&file).findings[0].found().to_owned();
    assert!(found.contains("more such"), "{found}");

    // Bounds of a filter that make no sense hide its keys from C++ LevelDB.
    let array = {
        let at = filter.end - 5 - 5;
        u32::from_le_bytes(sound[at..at + 4].try_into().unwrap()) as usize
    };
    let mut file = sound.clone();
    file[filter.start + array] = 0xff;
    seal(&mut file, &filter);
    assert_finds(
        &file,
        Severity::Damage,
        Section::Filter,
        filter.start,
        "to begin at",
    );
    let mut file = sound.clone();
    file[filter.end - 6] = 64;
    seal(&mut file, &filter);
    assert_finds(
        &file,
        Severity::Damage,
        Section::Filter,
        filter.start,
        "lg(base)",
    );
    // A smaller base leaves the later blocks without a filter, and gives the others the wrong one.
    let mut file = sound;
    file[filter.end - 6] = 10;
    seal(&mut file, &filter);
    let report = verify(&file);
    assert!(report.damage == 1 && report.warnings == 1, "{report}");
}

#[test]
fn the_metaindex_may_hold_more_but_in_order() {
    let (sound, layout) = Forge::table(&[("a", &["a"])]);
    let with_metaindex = |names: &[(&str, Vec<u8>)]| {
        let mut forge = Forge(sound[..layout.metaindex.start].to_vec());
        let entries: Vec<Entry> = names
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.clone()))
            .collect();
        let metaindex = forge.frame(&block(&entries));
        let index = forge.frame(&block(&[(b"a".to_vec(), handle_of(&layout.data[0]))]));
        forge.finish(&metaindex, &index)
    };
    let at = layout.metaindex.start;
    let report = verify(&with_metaindex(&[
        ("app", b"anything".to_vec()),
        ("zoo", vec![]),
    ]));
    assert!(report.findings.is_empty(), "{report}");
    let file = with_metaindex(&[("zoo", vec![]), ("app", vec![])]);
    assert_finds(
        &file,
        Severity::Damage,
        Section::Metaindex,
        at,
        "one after \"zoo\"",
    );
    let file = with_metaindex(&[("filter.x", vec![0x80])]);
    assert_finds(
        &file,
        Severity::Damage,
        Section::Metaindex,
        at,
        "the handle of \"filter.x\"",
    );
    let file = with_metaindex(&[("filter.x", vec![0xff, 0x7f, 5])]);
    assert_finds(
        &file,
        Severity::Damage,
        Section::Metaindex,
        at,
        "a handle to the filter block",
    );
}

#[test]
fn properties_must_make_sense() {
    let mut file = build(&options().properties(true), &entries(30));
    assert!(verify(&file).findings.is_empty());
    let properties = Layout::of(&file).properties.unwrap();
    let at = file.windows(8).position(|bytes| bytes == b"key.kind");
    file[at.unwrap()] = b'K';
    seal(&mut file, &properties);
    let (at, words) = (properties.start, "the property key.kind");
    assert_finds(&file, Severity::Damage, Section::Properties, at, words);
}

#[test]
fn keys_of_a_databases_table_must_parse() {
    let mut file = Vec::new();
    let mut builder = options().no_filter().build_db(&mut file);
    for i in 0..100u64 {
        builder
            .put(format!("{i:03}").as_bytes(), i + 1, b"v")
            .unwrap();
    }
    builder.finish().unwrap();
    let layout = Layout::of(&file);
    let block = layout.data[1].clone();
    let text = common::entries(&common::payload(&file, &block))[0]
        .0
        .clone();
    let at = block.start
        + file[block.clone()]
            .windows(text.len())
            .position(|w| w == text)
            .unwrap();
    file[at + 3] = 9; // its type
    seal(&mut file, &block);
    assert_finds(
        &file,
        Severity::Damage,
        Section::Data,
        block.start,
        "of type 0 or 1",
    );
    // The order's name says that the keys are internal keys, too.
    let verify_in = |order: Arc<dyn Comparator>| {
        let options = VerifyOptions::new().open_options(OpenOptions::new().comparator(order));
        leveltable_repair::verify(file.clone(), options).unwrap()
    };
    let report = verify_in(Arc::new(InternalKeyComparator::new(BytewiseComparator)));
    assert_eq!(report.damage, 1, "{report}");
    // As a plain table, whose keys may be anything, it is sound.
    let report = verify_in(Arc::new(BytewiseComparator));
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.keys, KeyKind::Plain);
    let named = VerifyOptions::new().keys(KeyKind::Plain);
    assert_eq!(leveltable_repair::verify(file, named).unwrap(), report);
}

#[test]
fn codecs_that_are_not_built_in_are_unchecked_not_damaged() {
    let mut file = build(&options(), &entries(30));
    let block = Layout::of(&file).data[1].clone();
    file[block.end - 5] = 7;
    seal(&mut file, &block);
    assert_finds(
        &file,
        Severity::Unchecked,
        Section::Data,
        block.start,
        "type 7",
    );
}

/// A reader could not tell the difference, but this crate refuses the file: verify must not call it sound.
#[test]
fn what_is_sound_opens() {
    let mut forge = Forge::default();
    let metaindex = forge.frame(&block(&[]));
    let data = forge.frame(&block(&[(b"a".to_vec(), vec![])]));
    let index = forge.frame(&block(&[(b"a".to_vec(), handle_of(&data))]));
    let file = forge.finish(&metaindex, &index);
    let opened = OpenOptions::new().open_source(file.clone());
    assert!(opened.is_err(), "{opened:?}");
    let report = verify(&file);
    assert!(!report.is_sound(), "{report}");
}

// ---- The run itself -------------------------------------------------------------------------

#[test]
fn progress_ascends_to_the_end_and_can_stop() {
    let file = build(&options(), &entries(500));
    let layout = Layout::of(&file);
    let mut seen = Vec::new();
    let options = VerifyOptions::new().progress(|progress| {
        assert_eq!(progress.total, file.len() as u64);
        seen.push(progress.done);
        ControlFlow::Continue(())
    });
    let report = leveltable_repair::verify(file.clone(), options).unwrap();
    assert!(report.is_sound());
    assert!(seen.is_sorted());
    assert_eq!(*seen.last().unwrap(), file.len() as u64);
    assert_eq!(seen.len(), layout.data.len() + 1);

    let mut calls = 0;
    let options = VerifyOptions::new().progress(|_| {
        calls += 1;
        if calls == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let report = leveltable_repair::verify(file, options).unwrap();
    assert_eq!((calls, report.data_blocks), (3, 3));
    assert!(report.cancelled && !report.is_sound());
    assert_eq!(report.damage, 0);
}

/// Entries that share a key of a megabyte are refused, and the first of them are not looked at for long to tell a database's table.
#[test]
fn a_block_of_keys_that_share_a_megabyte_takes_no_time() {
    let key = vec![b'a'; 1 << 20];
    let mut payload = vec![0];
    payload.extend([0x80, 0x80, 0x40, 0]); // its length, and none of a value
    payload.extend(&key);
    for i in 0..40_000 {
        payload.extend([0xff, 0xff, 0x3f, 1, 0, i as u8]);
    }
    payload.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    let mut forge = Forge::default();
    let data = forge.frame(&payload);
    let metaindex = forge.frame(&block(&[]));
    let index = forge.frame(&block(&[(b"z".to_vec(), handle_of(&data))]));
    let file = forge.finish(&metaindex, &index);
    let mut calls = 0;
    let options = VerifyOptions::new().progress(|_| {
        calls += 1;
        ControlFlow::Break(())
    });
    let start = Instant::now();
    let report = leveltable_repair::verify(file, options).unwrap();
    // 64 KiB of keys, and not 40 GB: it took half a minute, and only then could be cancelled.
    assert!(start.elapsed() < Duration::from_secs(15));
    assert!(report.cancelled);
    assert_eq!(calls, 1);
}

/// The table's key has a prefix, and a block without filters says that none has.
#[test]
fn a_filter_of_prefixes_that_hides_keys_is_found() {
    for (payload, found) in [
        (&[0; 5][..], "rejected"),
        // Two empty filters.
        (&[0; 13], "one filter of prefixes, or none"),
    ] {
        let mut forge = Forge::default();
        let data = forge.frame(&block(&[(b"a/1".to_vec(), b"value".to_vec())]));
        let filter = forge.frame(payload);
        let name = b"about.prefixes.leveltable.DelimitedPrefix(2f)".to_vec();
        let metaindex = forge.frame(&block(&[(name, handle_of(&filter))]));
        let index = forge.frame(&block(&[(b"a/1".to_vec(), handle_of(&data))]));
        let file = forge.finish(&metaindex, &index);
        assert_finds(
            &file,
            Severity::Damage,
            Section::Filter,
            filter.start,
            found,
        );
    }
}

/// Who says that it is a database's, or whose properties do, is told so.
#[test]
fn the_kind_is_what_is_said_although_the_index_cannot_be_read() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::new().build_db(&mut file);
    builder.put("key", 7, "value").unwrap();
    builder.finish().unwrap();
    let index = Layout::of(&file).index;
    let mut damaged = file.clone();
    damaged[index.start + 2] ^= 1;
    assert_eq!(verify(&damaged).keys, KeyKind::Database);
    let end = file.len() - 1;
    file[end] ^= 1;
    let options = VerifyOptions::new().keys(KeyKind::Database);
    let report = leveltable_repair::verify(file, options).unwrap();
    assert_eq!(report.keys, KeyKind::Database);
}

/// A comparator that shortens no index key, and names that zeros fill up: only some in the middle of later blocks show that these
/// are no keys of a database. The caller's word decides.
#[test]
fn keys_that_look_like_a_databases_at_first_are_plain_if_that_is_said() {
    #[derive(Debug)]
    struct Whole;

    impl Comparator for Whole {
        fn name(&self) -> &str {
            "test.Whole"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            a.cmp(b)
        }
    }
    let key = |i| {
        let mut key = format!("name{i:06}").into_bytes();
        if i % 40 == 35 {
            key.resize(32, b'a');
        }
        key.resize(32, 0);
        key
    };
    let entries: Vec<Entry> = (0..100).map(|i| (key(i), Vec::new())).collect();
    let options = options().block_size(200).no_filter().comparator(Whole);
    let file = build(&options, &entries);
    let plain = VerifyOptions::new().keys(KeyKind::Plain);
    let report = leveltable_repair::verify(file, plain).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.keys, KeyKind::Plain);
}

/// The filter passes the first block's only key as it is stored, too, by chance. It was called unchecked for rejecting others.
#[test]
fn a_filter_that_passes_the_first_key_by_chance_holds_user_keys_all_the_same() {
    for first in 0..300 {
        let mut file = Vec::new();
        let options = WriteOptions::new().properties(false).block_size(1);
        let mut builder = options
            .filter_policy(BloomFilterPolicy::new(10))
            .build_db(&mut file);
        for key in 1..40u8 {
            let sequence = (1 << 41) + first * 1_000 + u64::from(key);
            builder.put([key], sequence, b"value").unwrap();
        }
        builder.finish().unwrap();
        let report = verify(&file);
        assert!(report.is_sound(), "{first}: {report}");
    }
}

/// Findings are bounded, in number and in length, whatever a file does; and so is the work.
#[test]
fn a_hostile_file_does_not_make_the_report_or_the_work_grow() {
    // Thousands of index entries that all lead to one large block.
    let mut forge = Forge::default();
    let big: Vec<Entry> = (0..1000u32)
        .map(|i| (i.to_be_bytes().to_vec(), vec![0; 300]))
        .collect();
    let data = forge.frame(&block(&big));
    let index: Vec<Entry> = (0..20_000u32)
        .map(|i| (i.to_be_bytes().to_vec(), handle_of(&data)))
        .collect();
    let metaindex = forge.frame(&block(&[]));
    let index = forge.frame(&block(&index));
    let file = forge.finish(&metaindex, &index);
    let report = verify(&file);
    assert!(report.entries <= 4000, "{}", report.entries);
    assert_eq!(report.findings.len(), 1000);
    assert!(report.left_out() > 10_000, "{}", report.left_out());
    let text = report.to_string();
    assert!(text.ends_with(&format!("and {} more", report.left_out())));

    // Keys of a megabyte.
    let long = |last: u8| [vec![0xff; 1 << 20], vec![last]].concat();
    let mut forge = Forge::default();
    let data = forge.frame(&block(&[(long(2), long(2)), (long(1), vec![])]));
    let metaindex = forge.frame(&block(&[(long(9), long(9)), (long(8), vec![])]));
    let index = forge.frame(&block(&[(long(0), handle_of(&data)), (long(0), long(0))]));
    let report = verify_bytewise(&forge.finish(&metaindex, &index));
    assert!(report.damage >= 4, "{report}");
    let longest = report
        .findings
        .iter()
        .map(|f| f.to_string().len())
        .max()
        .unwrap();
    assert!(longest < 2000, "{longest}");
}

#[test]
fn reads_that_fail_are_findings() {
    struct Failing(Bytes, Range<u64>);
    impl ReadAt for Failing {
        fn size(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            if offset < self.1.end && self.1.start < offset + len as u64 {
                Err(io::Error::other("bad sector"))
            } else {
                self.0.read_at(offset, len)
            }
        }
    }
    let file = build(&options(), &entries(300));
    let layout = Layout::of(&file);
    let sections = [
        (layout.data[3].clone(), Section::Data),
        (layout.filter.clone().unwrap(), Section::Filter),
        (layout.metaindex.clone(), Section::Metaindex),
        (layout.index.clone(), Section::Index),
        (layout.footer.clone(), Section::Footer),
    ];
    for (range, section) in sections {
        let bad = range.start as u64..range.start as u64 + 1;
        let source = Arc::new(Failing(file.clone().into(), bad));
        let report = leveltable_repair::verify(source, VerifyOptions::new()).unwrap();
        let finding = report
            .findings
            .iter()
            .find(|f| f.found().contains("bad sector"));
        let finding = finding.unwrap_or_else(|| panic!("{section}: {report}"));
        assert_eq!(
            (finding.severity(), finding.section()),
            (Severity::Unchecked, section)
        );
        assert_eq!(finding.offset() as usize, range.start);
        assert!(!report.is_sound());
        assert_eq!(report.damage, 0, "{report}");
    }
}

/// Errors name the file, findings do not: whoever prints a report knows which file it is about.
#[test]
fn the_path_is_in_errors_and_not_in_findings() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.ldb");
    fs::write(&path, build(&options(), &entries(100))).unwrap();
    let verify =
        || leveltable_repair::verify(Source::open(&path).unwrap(), VerifyOptions::new()).unwrap();
    assert!(verify().is_sound());
    let mut file = fs::read(&path).unwrap();
    file[6] ^= 1;
    for damaged in [&file[..], &file[..20], b"<html>"] {
        fs::write(&path, damaged).unwrap();
        let report = verify();
        assert!(report.damage > 0);
        assert!(!report.to_string().contains("table.ldb"), "{report}");
    }
    #[cfg(unix)]
    {
        let error = Source::open(dir.path()).unwrap_err();
        assert_eq!(error.kind(), leveltable::ErrorKind::Io);
        assert_eq!(error.path(), Some(dir.path()));
        // Opened by the caller, it is a source whose reads fail.
        let directory = Source::from(fs::File::open(dir.path()).unwrap());
        let report = leveltable_repair::verify(directory, VerifyOptions::new()).unwrap();
        assert!(
            !report.is_sound() && !report.to_string().contains("tmp"),
            "{report}"
        );
    }
}

/// A file on a network drive that was replaced is unreadable, as before, and not damaged.
#[test]
fn verify_does_not_take_a_replaced_source_for_damage() {
    struct Stale(Bytes, io::ErrorKind);
    impl ReadAt for Stale {
        fn size(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            if offset == 0 {
                return Err(self.1.into());
            }
            self.0.read_at(offset, len)
        }
    }
    let file = Bytes::from(build(&WriteOptions::new(), &entries(2_000)));
    for kind in [
        io::ErrorKind::TimedOut,
        io::ErrorKind::StaleNetworkFileHandle,
    ] {
        let source = Source::from(Arc::new(Stale(file.clone(), kind)));
        let report = leveltable_repair::verify(source, VerifyOptions::new()).unwrap();
        assert_eq!(report.damage, 0, "{kind}: {report}");
    }
}
