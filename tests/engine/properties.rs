//! Tables that say what they are are opened as exactly that, or rejected; and what they say is compared with what they hold.

use std::sync::Arc;

use crate::common::Reverse;
use crate::common::properties::{database, plain, with_properties};
use leveltable::db::{DbEntry, InternalKeyComparator, KeyKind};
use leveltable::{BytewiseComparator, Comparator, ErrorKind, OpenOptions, Table, WriteOptions};

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
            assert!(
                message.contains("in the order \"test.Renamed\""),
                "{message}"
            );
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
