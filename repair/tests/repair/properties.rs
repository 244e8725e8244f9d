//! What a table says of itself is compared with what it holds.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::properties::{database, plain, with_properties};
use crate::common::{self, Layout, varint};
use leveltable::{OpenOptions, Section, WriteOptions};
use leveltable_repair::{SalvageOptions, Severity, VerifyOptions, salvage, verify};

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
    let report = verify(same.clone(), VerifyOptions::new()).unwrap();
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
        let report = verify(wrong.clone(), VerifyOptions::new()).unwrap();
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
        let report = salvage(wrong, salvaged.table_mut(), options).unwrap();
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
        let report = verify(wrong, VerifyOptions::new()).unwrap();
        assert_eq!(report.findings.len(), names.len(), "{name}: {report}");
        assert!(report.findings.iter().zip(names).all(|(finding, name)| {
            finding.section() == Section::Properties && finding.expected().contains(name)
        }));
    }
    let long = "k".repeat(5000);
    let table = plain(&WriteOptions::new(), &["a", &long]);
    let report = verify(table, VerifyOptions::new()).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

/// Where something is damaged, fewer entries are counted than there were: that is no second finding.
#[test]
fn properties_are_not_compared_with_a_part_of_the_table() {
    let file = full_table();
    let layout = Layout::of(&file);
    for damaged_part in [&layout.data[3], &layout.index, &layout.metaindex] {
        let mut damaged = file.clone();
        damaged[damaged_part.start + 3] ^= 1;
        let report = verify(damaged, VerifyOptions::new()).unwrap();
        assert!(report.damage > 0);
        let mut sections = report.findings.iter().map(|finding| finding.section());
        assert!(
            sections.all(|section| section != Section::Properties),
            "{report}"
        );
    }
}
