//! Tables that say what they are are opened as exactly that, or rejected; and what they say is compared with what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{self, Entry, Layout, Reverse, block, handle_of, varint};
use bytes::Bytes;
use leveltable::db::{DbEntry, InternalKeyComparator, KeyKind};
use leveltable::repair::{self, SalvageOptions, Severity, VerifyOptions};
use leveltable::{
    BytewiseComparator, Comparator, ErrorKind, OpenOptions, Section, Table, WriteOptions,
};

fn plain(options: &WriteOptions, keys: &[&str]) -> Bytes {
    let mut builder = options.build(Vec::new());
    for key in keys {
        builder.add(key, format!("value of {key}")).unwrap();
    }
    builder.finish_into_writer().unwrap().0.into()
}

fn database(options: &WriteOptions, keys: &[&str]) -> Bytes {
    let mut builder = options.build_db(Vec::new());
    for key in keys {
        builder.put(key, 7, format!("value of {key}")).unwrap();
    }
    builder.finish_into_writer().unwrap().0.into()
}

/// The bytewise order under a name of its own.
#[derive(Debug)]
struct Renamed;

impl Comparator for Renamed {
    fn name(&self) -> &str {
        "test.Renamed"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

fn kind_of_error(opened: leveltable::Result<Table>) -> (ErrorKind, String) {
    let error = opened.unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_table_in_another_order_is_refused_by_name() {
    let options = WriteOptions::new().comparator(Renamed);
    // Its keys ascend bytewise, so that nothing but the name shows it; and it is longer than what is checked whole.
    let long: Vec<String> = (0..5000).map(|i| format!("key {i:06} {:030}", i)).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    for file in [plain(&options, &["a", "b"]), plain(&options, &long)] {
        let bytewise: Arc<dyn Comparator> = Arc::new(BytewiseComparator);
        for open in [
            OpenOptions::new(),
            OpenOptions::new().comparator(bytewise),
            OpenOptions::new().comparator(Reverse),
            OpenOptions::new().comparator(InternalKeyComparator::new(Renamed)),
        ] {
            let (kind, message) = kind_of_error(open.open_source(file.clone()));
            assert_eq!(kind, ErrorKind::Comparator, "{message}");
            assert!(message.contains("ordered by \"test.Renamed\""), "{message}");
        }
        let open = OpenOptions::new().comparator(Renamed);
        let table = open.open_source(file.clone()).unwrap();
        assert_eq!(table.properties().unwrap().comparator, "test.Renamed");
        let stored = OpenOptions::new().stored_order().open_source(file).unwrap();
        assert!(
            table
                .iter()
                .map(Result::unwrap)
                .eq(stored.iter().map(Result::unwrap))
        );
    }
}

/// A database's table in which nothing was shortened, and which fits both kinds by its keys alone.
#[test]
fn a_databases_table_is_known_by_its_properties() {
    for keys in [&["k"][..], &[], &["a", "b", "c"]] {
        let file = database(&WriteOptions::new(), keys);
        let (kind, message) = kind_of_error(OpenOptions::new().open_source(file.clone()));
        assert_eq!(kind, ErrorKind::DatabaseTable, "{message}");
        let db = OpenOptions::new().open_db_source(file.clone()).unwrap();
        let properties = db.as_table().properties().unwrap();
        assert_eq!(properties.key_kind, KeyKind::Database);
        assert_eq!(properties.comparator, "leveldb.BytewiseComparator");
        assert_eq!(properties.entries, keys.len() as u64);
        assert_eq!(properties.sequences, (!keys.is_empty()).then_some(7..=7));
        let found: Vec<DbEntry> = db.iter().map(Result::unwrap).collect();
        assert!(
            found
                .iter()
                .map(|entry| &entry.user_key[..])
                .eq(keys.iter().map(|key| key.as_bytes()))
        );

        let error = OpenOptions::new()
            .comparator(Reverse)
            .open_db_source(file)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Comparator);
        assert!(
            error.to_string().contains("leveldb.BytewiseComparator"),
            "{error}"
        );
    }
    let error = OpenOptions::new()
        .open_db_source(plain(&WriteOptions::new(), &["k"]))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    assert!(error.to_string().contains("plain table"), "{error}");
}

/// Keys that end in what could be a sequence number and a type: a guess could be wrong, but there is none.
#[test]
fn a_plain_table_is_known_by_its_properties() {
    let mut builder = WriteOptions::new().build(Vec::new());
    for i in 1..=100u64 {
        let key = [
            &i.to_be_bytes()[..],
            &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ]
        .concat();
        builder.add(&key, "").unwrap();
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let table = OpenOptions::new().open_source(file.clone()).unwrap();
    assert_eq!(table.properties().unwrap().key_kind, KeyKind::Plain);
    assert_eq!(table.iter().map(Result::unwrap).count(), 100);
    assert!(table.filter().is_some());
    assert!(OpenOptions::new().open_db_source(file).is_err());
}

#[test]
fn leveldbs_preset_writes_none() {
    let table = plain(&WriteOptions::leveldb(), &["a"]);
    let table = OpenOptions::new().open_source(table).unwrap();
    assert_eq!(table.properties(), None);
    let table = plain(&WriteOptions::leveldb().properties(true), &["a"]);
    let table = OpenOptions::new().open_source(table).unwrap();
    assert_eq!(table.properties().unwrap().entries, 1);
}

/// A damaged properties block is an error, as a damaged filter is, and the same option does without.
#[test]
fn damaged_properties_are_an_error() {
    let file = plain(&WriteOptions::new(), &["a", "b"]);
    let at = file
        .windows(10)
        .position(|window| window == b"comparator")
        .unwrap();
    let mut damaged = file.to_vec();
    damaged[at] ^= 1;
    let error = OpenOptions::new().open_source(damaged.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("properties block"), "{error}");
    let table = OpenOptions::new().no_filter().open_source(damaged).unwrap();
    assert_eq!(table.get("b").unwrap().unwrap(), "value of b");
    assert_eq!(table.properties(), None);
}

/// `file` with the properties block that `change` makes of its own, and every checksum right.
fn with_properties(file: &[u8], change: impl FnOnce(&mut BTreeMap<Vec<u8>, Vec<u8>>)) -> Vec<u8> {
    let layout = Layout::of(file);
    let old = layout.properties.unwrap();
    let mut properties = common::entries(&common::payload(file, &old))
        .into_iter()
        .collect();
    change(&mut properties);
    let mut named = common::entries(&common::payload(file, &layout.metaindex));
    let mut changed = file[..old.start].to_vec();
    let properties: Vec<Entry> = properties.into_iter().collect();
    let properties = handle_of(&common::append(&mut changed, &block(&properties)));
    let pieces = layout.pieces.map(|pieces| common::payload(file, &pieces));
    let pieces = pieces.map(|pieces| handle_of(&common::append(&mut changed, &pieces)));
    for (name, value) in &mut named {
        match &name[..] {
            b"about.leveltable" => value.clone_from(&properties),
            b"about.pieces" => value.clone_from(pieces.as_ref().unwrap()),
            _ => {}
        }
    }
    let metaindex = common::append(&mut changed, &block(&named));
    changed.extend(common::footer(&metaindex, &layout.index));
    changed
}

/// A database's table with every property that there is: a deletion, a value, a filter.
fn full_table() -> Vec<u8> {
    let mut builder = WriteOptions::new().build_db(Vec::new());
    for i in 0..1000u64 {
        let key = format!("key {i:06}");
        builder.put(&key, 5000 + i, format!("value {i}")).unwrap();
        builder.delete(&key, 40 + i).unwrap();
    }
    builder.finish_into_writer().unwrap().0
}

/// Each property wrong once, and left out once where that says something: `verify` reports it, and nothing else notices.
#[test]
fn verify_compares_each_property_with_the_table() {
    let file = full_table();
    let same = with_properties(&file, |_| {});
    let report = repair::verify(same.clone(), VerifyOptions::new()).unwrap();
    assert!(report.is_sound() && report.findings.is_empty(), "{report}");
    let offset = Layout::of(&file).properties.unwrap().start as u64;
    let mut checked = BTreeSet::new();
    let mut expect = |name: &str, value: Option<Vec<u8>>, found: &str| {
        let wrong = with_properties(&file, |properties| {
            match value {
                Some(value) => properties.insert(name.into(), value),
                None => properties.remove(name.as_bytes()),
            }
            .unwrap();
        });
        let report = repair::verify(wrong.clone(), VerifyOptions::new()).unwrap();
        assert_eq!(report.findings.len(), 1, "{name}: {report}");
        let finding = &report.findings[0];
        assert_eq!(finding.severity(), Severity::Damage);
        assert_eq!(
            (finding.section(), finding.offset()),
            (Section::Properties, offset)
        );
        assert!(finding.expected().contains(name), "{name}: {report}");
        assert_eq!(finding.found(), found, "{name}: {report}");
        checked.insert(name.to_owned());
        // What lookups depend on is as it was.
        let db = OpenOptions::new().open_db_source(wrong.clone()).unwrap();
        assert!(db.get(b"key 000500").unwrap().is_some());
        let options = SalvageOptions::new();
        let mut salvaged = WriteOptions::new().build_db(Vec::new());
        let report = repair::salvage(wrong, &mut salvaged, options).unwrap();
        assert!(report.is_complete(), "{name}: {report}");
    };
    for name in [
        "entries",
        "key.bytes",
        "value.bytes",
        "data.blocks",
        "data.bytes",
        "deletions",
        "filter.bytes",
    ] {
        let stored = properties_of(&file)[name.as_bytes()].clone();
        let right = common::take_varint(&mut &stored[..]) as u64;
        for wrong in [right - 1, right + 1, 0, u64::MAX] {
            expect(name, Some(varint(wrong)), &wrong.to_string());
        }
    }
    expect("filter.policy", Some(b"other".to_vec()), "\"other\"");
    // The largest of all is 5999, the smallest 40.
    expect("sequence.min", Some(varint(41)), "41");
    expect("sequence.min", Some(varint(39)), "39");
    expect("sequence.max", Some(varint(5998)), "5998");
    expect("sequence.max", Some(varint(6000)), "6000");
    for name in ["key.first", "key.last"] {
        expect(name, Some(b"key".to_vec()), "\"key\"");
        expect(name, None, "none");
    }
    expect("filter.bytes", None, "none");
    expect("filter.policy", None, "none");
    expect("deletions", None, "0");
    let unchecked = ["comparator", "creator", "key.kind"].map(str::to_owned);
    let all: BTreeSet<String> = properties_of(&file)
        .into_keys()
        .map(|name| String::from_utf8(name).unwrap())
        .collect();
    checked.extend(unchecked);
    assert_eq!(all, checked);
}

fn properties_of(file: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let range = Layout::of(file).properties.unwrap();
    common::entries(&common::payload(file, &range))
        .into_iter()
        .collect()
}

/// What a plain or an empty table does not have, and keys of a length that properties leave out.
#[test]
fn properties_that_a_table_does_not_have_are_found() {
    let table = plain(&WriteOptions::new().no_filter(), &["a", "b"]);
    let empty = database(&WriteOptions::new().no_filter(), &[]);
    for (file, name, value) in [
        (&table, "sequence", varint(7)),
        (&table, "deletions", varint(1)),
        (&table, "filter.policy", b"leveltable.Ribbon1".to_vec()),
        (&table, "filter.bytes", varint(0)),
        (&empty, "sequence", varint(0)),
        (&empty, "key.first", vec![]),
        (&empty, "key.last", vec![]),
    ] {
        let names = match name {
            "sequence" => vec!["sequence.min", "sequence.max"],
            name => vec![name],
        };
        let wrong = with_properties(file, |properties| {
            for name in &names {
                assert_eq!(properties.insert((*name).into(), value.clone()), None);
            }
        });
        let report = repair::verify(wrong, VerifyOptions::new()).unwrap();
        assert_eq!(report.findings.len(), names.len(), "{name}: {report}");
        assert!(report.findings.iter().zip(names).all(|(finding, name)| {
            finding.section() == Section::Properties && finding.expected().contains(name)
        }));
    }
    let long = "k".repeat(5000);
    let table = plain(&WriteOptions::new(), &["a", &long]);
    let report = repair::verify(table, VerifyOptions::new()).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

/// A merge stands on the first key that the properties state, and finds that the table has no blocks.
#[test]
fn keys_of_a_table_without_blocks_are_damage() {
    let empty = plain(&WriteOptions::new().no_filter(), &[]);
    let wrong = with_properties(&empty, |properties| {
        properties.insert("key.first".into(), b"a".to_vec());
        properties.insert("key.last".into(), b"b".to_vec());
    });
    let table = OpenOptions::new().open_source(wrong).unwrap();
    let mut merge = Table::merge([&table, &table]).unwrap();
    for moved in [merge.seek_to_first(), merge.seek_to_last()] {
        assert_eq!(moved.unwrap_err().kind(), ErrorKind::Corruption);
    }
}

/// Where something is damaged, fewer entries are counted than there were: that is no second finding.
#[test]
fn properties_are_not_compared_with_a_part_of_the_table() {
    let file = full_table();
    let layout = Layout::of(&file);
    for damaged_part in [&layout.data[3], &layout.index, &layout.metaindex] {
        let mut damaged = file.clone();
        damaged[damaged_part.start + 3] ^= 1;
        let report = repair::verify(damaged, VerifyOptions::new()).unwrap();
        assert!(report.damage > 0);
        let mut sections = report.findings.iter().map(|finding| finding.section());
        assert!(
            sections.all(|section| section != Section::Properties),
            "{report}"
        );
    }
}
