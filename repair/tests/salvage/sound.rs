//! A sound table is copied whole, whatever its kind and order.

use std::collections::BTreeSet;
use std::sync::Arc;

use leveltable::db::{InternalKey, KeyKind, ValueType};
use leveltable::{
    BytewiseComparator, Comparator, Compression, ErrorKind, OpenOptions, RibbonFilterPolicy,
    WriteOptions,
};
use leveltable_repair::{
    IndexState, SalvageOptions, SalvageReport, VerifyOptions, salvage, verify,
};

use super::common;
use super::common::{Entry, Layout, Random, Reverse, build, handle_of, seal, take_varint};
use super::{CODECS, by_block, content, destroy, entries, entry, options, rescue, without};

/// Salvages as a program does that knows nothing about the table: as a plain one, unless that is refused for a database's. If the order of
/// user keys is another one, the program knows of which kind they are. Returns the kind and the entries of the new table.
fn rescue_unknown(
    file: &[u8],
    comparator: Option<(Arc<dyn Comparator>, KeyKind)>,
) -> (SalvageReport, KeyKind, Vec<Entry>) {
    let (comparator, kind) = comparator.unzip();
    let options = options(Compression::None);
    let options = match comparator {
        Some(comparator) => options.comparator(comparator),
        None => options,
    };
    let told = || match kind {
        Some(kind) => SalvageOptions::new().keys(kind),
        None => SalvageOptions::new(),
    };
    let mut builder = options.build(Vec::new());
    let may_be_plain = kind != Some(KeyKind::Database);
    let plain = may_be_plain.then(|| salvage(file.to_vec(), &mut builder, told()));
    let (report, kind, rescued) = match plain {
        Some(Ok(report)) => (
            report,
            KeyKind::Plain,
            builder.finish_into_writer().unwrap().0,
        ),
        refused => {
            if let Some(Err(error)) = refused {
                assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
                assert_eq!(builder.entries(), 0);
            }
            let mut builder = options.build_db(Vec::new());
            let report = salvage(file.to_vec(), builder.table_mut(), told());
            let (rescued, _) = builder.finish_into_writer().unwrap();
            (report.unwrap(), KeyKind::Database, rescued)
        }
    };
    let table = OpenOptions::new().stored_order().open_source(rescued);
    (report, kind, content(table.unwrap().iter()))
}

#[track_caller]
fn assert_whole(report: &SalvageReport, what: &str) {
    assert_eq!(report.index, IndexState::Sound, "{what}: {report}");
    assert!(
        report.is_complete() && report.lost.is_empty(),
        "{what}: {report}"
    );
}

/// Two keys that could be versions of one user key, but would then be the older one first: verified as sound, the second was
/// left out by a salvage.
#[test]
fn plain_keys_that_end_like_a_databases_are_plain() {
    let key = |sequence: u8| [&b"key"[..], &[1, sequence, 0, 0, 0, 0, 0, 0]].concat();
    let entries: Vec<Entry> = (1..=2).map(|i| (key(i), b"value".to_vec())).collect();
    let file = build(&options(Compression::None), &entries);
    let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
    assert!(verified.is_sound(), "{verified}");
    assert_eq!(verified.keys, KeyKind::Plain);
    let (report, rescued) = rescue(file);
    assert_whole(&report, "");
    assert_eq!(rescued, entries);
}

/// Key number `i`, perhaps a random one.
type Design = fn(u64, &mut Random) -> Vec<u8>;

/// Keys as applications design them, many of which end in what could be a sequence number and a type.
const DESIGNS: [(&str, Design); 13] = [
    ("big-endian microseconds on the minute", |i, _| {
        (1_700_000_000_000_000 / 60_000_000 * 60_000_000 + i * 60_000_000)
            .to_be_bytes()
            .to_vec()
    }),
    ("big-endian offsets of pages", |i, _| {
        (i << 12).to_be_bytes().to_vec()
    }),
    ("an id and a zero byte", |i, _| {
        [&i.to_be_bytes()[..], &[0]].concat()
    }),
    ("table, zero, name, zero", |i, _| {
        format!("table{}\0name{:02}\0", i / 50, i % 50).into_bytes()
    }),
    ("little-endian {u32 0 or 1, u32 id}", |i, _| {
        [(i as u32 % 2).to_le_bytes(), (i as u32 / 2).to_le_bytes()].concat()
    }),
    ("little-endian counter << 8 | 1", |i, _| {
        (i << 8 | 1).to_le_bytes().to_vec()
    }),
    ("UUIDs", |_, random| random.bytes(16)),
    ("ULIDs", |i, random| {
        [&i.to_be_bytes()[2..], &random.bytes(10)].concat()
    }),
    ("hashes", |_, random| random.bytes(32)),
    ("names padded with zeros", |i, _| {
        let mut name = format!("name {i}").into_bytes();
        name.resize(16, 0);
        name
    }),
    ("decimal text", |i, _| i.to_string().into_bytes()),
    ("padded decimal text", |i, _| {
        format!("{i:016}").into_bytes()
    }),
    ("single bytes", |i, _| vec![i as u8]),
];

fn designed(design: fn(u64, &mut Random) -> Vec<u8>, n: u64, random: &mut Random) -> Vec<Entry> {
    let from = random.next() % 1000;
    let keys: BTreeSet<Vec<u8>> = (from..from + n).map(|i| design(i, random)).collect();
    keys.into_iter().map(|key| (key, random.bytes(9))).collect()
}

/// Index keys are the last keys of the blocks, as by writers that shorten nothing.
#[derive(Debug, Clone, Copy)]
struct Unshortened;

impl Comparator for Unshortened {
    fn name(&self) -> &str {
        "leveldb.BytewiseComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

/// All of these but the text were refused, or made a database's table that `Table::open` refuses.
#[test]
fn intact_plain_tables_are_copied_as_plain_whatever_their_keys() {
    let mut random = Random(91);
    for (name, design) in DESIGNS {
        for n in [0, 1, 2, 20, 1000] {
            let entries = designed(design, n, &mut random);
            let shortened = options(Compression::Snappy);
            for options in [shortened.clone(), shortened.comparator(Unshortened)] {
                let file = build(&options, &entries);
                let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
                assert!(verified.is_sound(), "{name}, {n}: {verified}");
                assert_eq!(verified.keys, KeyKind::Plain, "{name}, {n}");
                let (report, rescued) = rescue(file);
                assert_whole(&report, name);
                assert!(rescued == entries, "{name}, {n}: {report}");
            }
        }
    }
}

/// As plain tables they lost keys.
#[test]
fn intact_databases_are_copied_as_such_whatever_their_sequence_numbers() {
    let mut random = Random(92);
    let micros = 1_700_000_000_000_000;
    for first in [0, 1, 1 << 40, 1 << 48, micros, (1 << 56) - 1 - 3000] {
        for n in [1, 2, 20, 1000] {
            for versions in [1, 3] {
                let mut file = Vec::new();
                let mut builder = options(Compression::Snappy).build_db(&mut file);
                let mut keys = BTreeSet::new();
                keys.extend((0..n).map(|_| random.bytes(6)));
                for key in keys {
                    let newest = first + random.next() % 1000 + versions;
                    for version in 0..versions {
                        if random.below(5) == 0 {
                            builder.delete(&key, newest - version).unwrap();
                        } else {
                            builder.put(&key, newest - version, b"value").unwrap();
                        }
                    }
                }
                builder.finish().unwrap();
                let expected = by_block(&file, &Layout::of(&file)).concat();
                let what = format!("{n} keys, {versions} versions from {first}");
                let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
                assert!(verified.is_sound(), "{what}: {verified}");
                assert_eq!(verified.keys, KeyKind::Database, "{what}");
                let (report, kind, rescued) = rescue_unknown(&file, None);
                assert_whole(&report, &what);
                assert_eq!(kind, KeyKind::Database, "{what}");
                assert!(rescued == expected, "{what}: {report}");
            }
        }
    }
}

/// It said "complete", and wrote a table in which no key is a database's.
#[test]
fn plain_tables_are_not_copied_as_a_databases() {
    let mut random = Random(93);
    for n in [1, 5, 1000, 8000] {
        let mut entries: Vec<Entry> = (0..n)
            .map(|_| (random.bytes(16), random.bytes(9)))
            .collect();
        entries.sort();
        let file = build(&options(Compression::Snappy), &entries);
        let headless = file[..Layout::of(&file).index.start].to_vec();
        for file in [file, headless] {
            let mut builder = WriteOptions::new().build_db(Vec::new());
            let error = salvage(file, builder.table_mut(), SalvageOptions::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
            assert_eq!(builder.table_mut().entries(), 0);
        }
    }
}

/// The index of a table in another order was called lost, and what did not ascend bytewise was left out.
#[test]
fn a_table_in_another_order_needs_its_comparator() {
    let orders: [Arc<dyn Comparator>; 3] =
        [Arc::new(Reverse), Arc::new(ByLastByte), Arc::new(ByLength)];
    for comparator in orders {
        let mut all: Vec<Entry> = (0..300)
            .map(|i: u32| entry(&(i * i).to_string(), b"value"))
            .collect();
        all.sort_by(|a, b| comparator.compare(&a.0, &b.0));
        let options = options(Compression::Snappy);
        let own = options.clone().comparator(Arc::clone(&comparator));
        let file = build(&own, &all);
        let layout = Layout::of(&file);
        let (mut damaged, mut headless) = (file.clone(), file.clone());
        destroy(&mut damaged, layout.data[2].clone());
        destroy(&mut headless, layout.index.start..layout.footer.end);
        let blocks = by_block(&file, &layout);
        for (file, lost) in [(file, usize::MAX), (damaged, 2), (headless, usize::MAX)] {
            let mut builder = options.build(Vec::new());
            let error = salvage(file.clone(), &mut builder, SalvageOptions::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
            assert!(error.to_string().contains("leveldb.Bytewise"), "{error}");
            assert_eq!(builder.entries(), 0);

            let mut builder = own.build(Vec::new());
            let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
            let (rescued, _) = builder.finish_into_writer().unwrap();
            let named = OpenOptions::new().comparator(Arc::clone(&comparator));
            let table = named.open_source(rescued).unwrap();
            let expected = without(&blocks, |i| i == lost);
            assert!(content(table.iter()) == expected, "{report}");
        }
    }
}

/// The caller's word that a table is a database's was passed over where its order was unknown: it was said to be plain.
#[test]
fn a_databases_table_in_another_order_is_called_one() {
    for options in [WriteOptions::new(), WriteOptions::leveldb()] {
        let mut builder = options.comparator(Reverse).build_db(Vec::new());
        for i in (0..2000).rev() {
            builder.put(format!("key{i:05}"), 1 << 45, "value").unwrap();
        }
        let (file, _) = builder.finish_into_writer().unwrap();
        for keys in [None, Some(KeyKind::Database)] {
            let mut builder = WriteOptions::new().build_db(Vec::new());
            let mut options = SalvageOptions::new();
            if let Some(keys) = keys {
                options = options.keys(keys);
            }
            let error = salvage(file.clone(), builder.table_mut(), options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Comparator);
            let message = error.to_string();
            assert!(
                message
                    .contains("this table is not in the order of \"leveldb.BytewiseComparator\"")
            );
            assert!(
                message.contains("build the new one with the comparator that it was written with")
            );
            assert!(!message.contains("not a database's"), "{message}");
        }
    }
}

/// Adds blocks to a table and names them in its metaindex, beside values that are no handles.
fn with_more_in_metaindex(
    file: &[u8],
    named: &[(&str, Vec<Entry>)],
    notes: &[(&str, &[u8])],
) -> Vec<u8> {
    let layout = Layout::of(file);
    let mut metaindex: BTreeSet<Entry> = common::entries(&common::payload(file, &layout.metaindex))
        .into_iter()
        .collect();
    let mut out = file[..layout.metaindex.start].to_vec();
    let mut frame = |payload: &[u8]| {
        let range = out.len()..out.len() + payload.len() + 5;
        out.extend(payload);
        out.extend([0; 5]);
        seal(&mut out, &range);
        range
    };
    for (name, entries) in named {
        let range = frame(&common::block(entries));
        metaindex.insert((name.as_bytes().to_vec(), handle_of(&range)));
    }
    metaindex.extend(
        notes
            .iter()
            .map(|(name, note)| (name.as_bytes().to_vec(), note.to_vec())),
    );
    let metaindex = common::block(&metaindex.into_iter().collect::<Vec<_>>());
    let index = common::payload(file, &layout.index);
    let metaindex = frame(&metaindex);
    // It stays where it is, unless it was last.
    let index = if layout.metaindex.start < layout.index.start {
        frame(&index)
    } else {
        layout.index.clone()
    };
    out.extend(common::footer(&metaindex, &index));
    out
}

/// What a table says of itself is kept: its order, by name, and what the application added.
#[test]
fn properties_are_trusted_and_kept() {
    let mut all: Vec<Entry> = (0..300).map(|i| entry(&i.to_string(), b"value")).collect();
    all.sort_by(|a, b| ByLength.compare(&a.0, &b.0));
    let options = WriteOptions::new().block_size(100);
    for is_database in [false, true] {
        let mut file = Vec::new();
        let by_length = options.clone().comparator(ByLength);
        if is_database {
            let mut builder = by_length.build_db(&mut file);
            builder.table_mut().property("schema", "v3").unwrap();
            for (key, value) in &all {
                builder.put(key, 7, value).unwrap();
            }
            builder.finish().unwrap();
        } else {
            let mut builder = by_length.build(&mut file);
            builder.property("schema", "v3").unwrap();
            for (key, value) in &all {
                builder.add(key, value).unwrap();
            }
            builder.finish().unwrap();
        }
        let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
        assert!(verified.blocks_are_sound(), "{verified}");
        assert!(verified.unknown_order && verified.to_string().contains("test.ByLength"));

        let mut plain = options.clone().properties(false).build(Vec::new());
        let error = salvage(file.clone(), &mut plain, SalvageOptions::new()).unwrap_err();
        if is_database {
            assert_eq!(error.kind(), ErrorKind::DatabaseTable, "{error}");
        } else {
            assert_eq!(error.kind(), ErrorKind::Comparator, "{error}");
            assert!(error.to_string().contains("test.ByLength"), "{error}");
        }
        let mut rescued = Vec::new();
        let open = OpenOptions::new().comparator(ByLength);
        let options = options.clone().comparator(ByLength);
        if is_database {
            let mut builder = options.build_db(&mut rescued);
            let report = salvage(file, builder.table_mut(), SalvageOptions::new()).unwrap();
            assert_whole(&report, "");
            builder.finish().unwrap();
            let table = open.open_db_source(rescued).unwrap();
            let properties = table.as_table().properties().unwrap();
            assert_eq!(properties.user("schema"), Some(&b"v3"[..]));
            assert!(all.iter().all(|(key, _)| table.get(key).unwrap().is_some()));
        } else {
            let mut builder = options.build(&mut rescued);
            builder.property("schema", "v4").unwrap();
            let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
            assert_whole(&report, "");
            builder.finish().unwrap();
            let table = open.open_source(rescued).unwrap();
            // The caller's own comes first.
            assert_eq!(table.properties().unwrap().user("schema"), Some(&b"v4"[..]));
            assert!(all.iter().all(|(key, _)| table.get(key).unwrap().is_some()));
        }
    }
}

/// A table of what a table says of itself is a table like any other.
#[test]
fn properties_as_data_are_data() {
    let file = build(&WriteOptions::new(), &entries(100));
    let layout = Layout::of(&file);
    let about = common::entries(&common::payload(&file, &layout.metaindex));
    let (name, handle) = &about[0];
    assert_eq!(name, b"about.leveltable");
    let mut handle = &handle[..];
    let [offset, len] = [(); 2].map(|()| take_varint(&mut handle));
    let about = common::entries(&common::payload(&file, &(offset..offset + len + 5)));
    for options in [WriteOptions::leveldb(), WriteOptions::new()] {
        let (report, rescued) = rescue(build(&options, &about));
        assert_whole(&report, "");
        assert_eq!(rescued, about);
    }
}

/// A table of RocksDB's first format, which has LevelDB's magic number, with blocks in LZ4: "corrupt deflate stream", and its
/// properties were salvaged as a table.
#[test]
fn rocksdbs_codec_is_named_and_its_properties_are_no_data() {
    let mut file = Vec::new();
    let mut frame = |payload: &[u8], codec: u8| {
        let range = file.len()..file.len() + payload.len() + 5;
        file.extend(payload);
        file.push(codec);
        file.extend([0; 4]);
        seal(&mut file, &range);
        range
    };
    let lz4 = |block: &[u8]| {
        // Literals only: a token with their number, and they.
        assert!((15..270).contains(&block.len()));
        let len = block.len() as u64;
        [
            &len.to_le_bytes()[..],
            &[0xf0, block.len() as u8 - 15],
            block,
        ]
        .concat()
    };
    let data = frame(
        &lz4(&common::block(&[entry(
            "key\x01\x09\0\0\0\0\0\0",
            b"value",
        )])),
        4,
    );
    let index = frame(
        &lz4(&common::block(&[entry(
            "l\x01\x09\0\0\0\0\0\0",
            &handle_of(&data),
        )])),
        4,
    );
    let properties = [
        entry("rocksdb.compression", b"LZ4"),
        entry("rocksdb.data.size", b"9"),
    ];
    let properties = frame(&common::block(&properties), 0);
    let metaindex = [entry("rocksdb.properties", &handle_of(&properties))];
    let metaindex = frame(&common::block(&metaindex), 0);
    let mut footer = [handle_of(&metaindex), handle_of(&index)].concat();
    footer.resize(40, 0);
    footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
    file.extend(footer);

    let error = OpenOptions::new().open_source(file.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(
        error.to_string().contains("LZ4, as RocksDB writes it"),
        "{error}"
    );
    let verified = verify(file.clone(), VerifyOptions::new()).unwrap();
    assert_eq!(verified.damage, 0, "{verified}");
    assert!(
        verified.to_string().contains("LZ4, as RocksDB writes it"),
        "{verified}"
    );
    let (report, rescued) = rescue(file);
    assert_eq!(rescued, [], "{report}");
    assert!(
        report.lost.iter().any(|lost| lost.reason.contains("LZ4")),
        "{report}"
    );
}

/// By last byte, then bytewise.
#[derive(Debug, Clone, Copy)]
struct ByLastByte;

impl Comparator for ByLastByte {
    fn name(&self) -> &str {
        "test.ByLastByte"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.last().cmp(&b.last()).then_with(|| a.cmp(b))
    }
}

/// By length, then bytewise.
#[derive(Debug, Clone, Copy)]
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "test.ByLength"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}

#[test]
fn sound_tables_are_copied_whole() {
    (0..200).for_each(copy_a_sound_table);
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_sound_tables_are_copied_whole() {
    (200..10_200).for_each(copy_a_sound_table);
}

/// A table of any kind, order, codec and size, with more in its metaindex.
fn copy_a_sound_table(seed: u64) {
    let mut random = Random(seed);
    let codecs = Compression::all();
    let codec = codecs[random.below(codecs.len())];
    let mut options = WriteOptions::leveldb()
        .block_size([1, 64, 300, 4096][random.below(4)])
        .restart_interval([1, 2, 16][random.below(3)])
        .properties(random.below(2) == 0)
        .compression(codec);
    options = match random.below(3) {
        0 => options.no_filter(),
        1 => options,
        _ => options.filter_policy(RibbonFilterPolicy::new(10)),
    };
    let (order, comparator): (&str, Arc<dyn Comparator>) = match random.below(6) {
        0 => ("reverse", Arc::new(Reverse)),
        1 => ("by last byte", Arc::new(ByLastByte)),
        2 => ("by length", Arc::new(ByLength)),
        3 => ("unshortened", Arc::new(Unshortened)),
        _ => ("bytewise", Arc::new(BytewiseComparator)),
    };
    let options = options.comparator(Arc::clone(&comparator));
    let (design_name, design) = DESIGNS[random.below(DESIGNS.len())];
    let n = [0, 1, 2, 3, 20, 200][random.below(6)];
    let mut entries = designed(design, n, &mut random);
    entries.sort_by(|a, b| comparator.compare(&a.0, &b.0));
    let is_database = random.below(3) == 0;
    let mut file = Vec::new();
    if is_database {
        let mut sequence = random.next() >> (8 + random.below(40));
        let mut builder = options.build_db(&mut file);
        let mut stored = Vec::new();
        for (key, value) in &entries {
            for _ in 0..=random.below(3) {
                sequence = sequence.saturating_sub(1 + random.next() % 9);
                let is_deletion = random.below(5) == 0;
                let (value_type, value) = if is_deletion {
                    builder.delete(key, sequence).unwrap();
                    (ValueType::Deletion, Vec::new())
                } else {
                    builder.put(key, sequence, value).unwrap();
                    (ValueType::Value, value.clone())
                };
                let mut key_stored = Vec::new();
                InternalKey {
                    user_key: key,
                    sequence,
                    value_type,
                }
                .encode(&mut key_stored);
                stored.push((key_stored, value));
                if sequence < 10 {
                    break;
                }
            }
        }
        builder.finish().unwrap();
        entries = stored;
    } else {
        file = build(&options, &entries);
    }
    // What tests decode by themselves is raw or Snappy.
    let is_decodable = CODECS.contains(&codec);
    if is_decodable && random.below(2) == 0 {
        let named = [
            (
                "rocksdb.properties",
                vec![entry("rocksdb.block.based.table.index.type", &[0; 4])],
            ),
            (
                "leveltable.properties",
                vec![entry("comparator", b"x"), entry("entries", b"9")],
            ),
            ("zz", vec![]),
        ];
        let notes = [
            ("a note", &b"to whom it may concern"[..]),
            // No block of seven bytes lies there.
            ("handle", b"\0\x07"),
        ];
        file = with_more_in_metaindex(&file, &named[..random.below(4)], &notes[..random.below(3)]);
    }
    let what = format!("{seed}: {n} of {design_name}, {order}, database: {is_database}");
    let own_kind = if is_database {
        KeyKind::Database
    } else {
        KeyKind::Plain
    };
    let is_own = !matches!(order, "bytewise" | "unshortened");
    let known = is_own.then(|| (Arc::clone(&comparator), own_kind));
    let (report, kind, rescued) = rescue_unknown(&file, known);
    assert_whole(&report, &what);
    assert!(rescued == entries, "{what}: {report}");
    if !is_database && matches!(order, "bytewise" | "unshortened") {
        assert_eq!(kind, KeyKind::Plain, "{what}");
    }
    let open = OpenOptions::new().comparator(comparator);
    // Some are too small to show of which kind their keys are.
    let options = VerifyOptions::new().open_options(open).keys(own_kind);
    let verified = verify(file, options).unwrap();
    assert!(verified.is_sound(), "{what}: {verified}");
    assert_eq!(verified.entries, entries.len() as u64, "{what}: {verified}");
}

/// Only the index is damaged, and the values of a data block could be handles. The metaindex after it, which the footer names, shows
/// that it is not the index.
#[test]
fn a_data_block_is_not_the_index_because_the_metaindex_is_set_aside() {
    // As two bytes, big-endian: 9.
    let entries = vec![(b"count".to_vec(), vec![0, 9])];
    for file in common::in_both_orders(&build(&WriteOptions::new(), &entries)) {
        let mut file = file.clone();
        let index = Layout::of(&file).index;
        file[index.start + 1] ^= 1;
        let mut rescued = Vec::new();
        let mut builder = WriteOptions::new().build(&mut rescued);
        let report = salvage(file, &mut builder, SalvageOptions::new()).unwrap();
        assert_eq!(report.entries, 1, "{report}");
    }
}
