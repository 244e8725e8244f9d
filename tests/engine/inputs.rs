//! Every kind of sorted input lends the same entries, also as `dyn`, and ends after an error.

use std::cmp;
use std::collections::BTreeMap;
use std::ops::Bound;

use leveltable::db::{Compaction, InternalKey, MAX_SEQUENCE};
use leveltable::{
    Compression, DbTable, ErrorKind, OpenOptions, RangeMap, Result, SortedEntries, SortedInput,
    SortedMap, Table, TableRange, WriteOptions,
};

use crate::common::Reverse;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn collect(input: &mut dyn SortedInput) -> Result<Entries> {
    let mut entries = Vec::new();
    assert_eq!((input.key(), input.value()), (&b""[..], &b""[..]));
    while input.advance()? {
        entries.push((input.key().to_vec(), input.value().to_vec()));
    }
    assert!(!input.advance()?);
    assert_eq!((input.key(), input.value()), (&b""[..], &b""[..]));
    Ok(entries)
}

fn model() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entry = |i: u32| (format!("{i:05}").into_bytes(), vec![i as u8; 50]);
    (0..2000).map(entry).collect()
}

fn table(model: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = options.build(Vec::new());
    for (key, value) in model {
        builder.add(key, value).unwrap();
    }
    builder.finish_into_writer().unwrap().0
}

#[test]
fn plain_inputs_lend_the_same_entries() {
    let model = model();
    let expected: Entries = model.clone().into_iter().collect();
    let table = OpenOptions::new().open_source(table(&model)).unwrap();
    let slice = &expected[..];
    let pairs = slice.iter().map(|(key, value)| (key, value));
    let mut inputs: Vec<Box<dyn SortedInput>> = vec![
        Box::new(SortedEntries::new(&model)),
        Box::new(SortedEntries::new(pairs)),
        Box::new(table.cursor()),
        Box::new(table.iter()),
        Box::new(Table::merge([table.range(.."00500"), table.range("00500"..)]).unwrap()),
    ];
    for input in &mut inputs {
        assert_eq!(collect(&mut &mut **input).unwrap(), expected);
    }
}

#[test]
fn inputs_of_databases_lend_stored_keys() {
    let model = model();
    let mut builder = WriteOptions::new().build_db(Vec::new());
    for (key, value) in &model {
        builder.put(key, 7, value).unwrap();
    }
    let file = builder.finish_into_writer().unwrap().0;
    let table = OpenOptions::new().open_db_source(file).unwrap();
    let mut inputs: Vec<Box<dyn SortedInput>> = vec![
        Box::new(table.cursor()),
        Box::new(table.iter()),
        Box::new(table.range(..).at(MAX_SEQUENCE)),
        Box::new(DbTable::merge([&table]).unwrap()),
        Box::new(Compaction::new(table.cursor(), [])),
    ];
    for input in &mut inputs {
        let entries = collect(&mut *input).unwrap();
        assert_eq!(entries.len(), model.len());
        for ((stored, value), (key, expected)) in entries.iter().zip(&model) {
            let stored = InternalKey::parse(stored).unwrap();
            assert_eq!((stored.user_key, stored.sequence), (&key[..], 7));
            assert_eq!(value, expected);
        }
    }
}

#[test]
fn an_error_ends_an_input() {
    let mut file = table(&model());
    file[20_000] ^= 1;
    let table = OpenOptions::new().open_source(file).unwrap();
    let mut range = table.iter();
    let error = loop {
        match SortedInput::advance(&mut range) {
            Ok(true) => {}
            Ok(false) => panic!("no error"),
            Err(error) => break error,
        }
    };
    assert!(error.corruption().is_some());
    assert!(SortedInput::key(&range).is_empty());
    assert!(!SortedInput::advance(&mut range).unwrap());
}

#[test]
fn builders_take_inputs() {
    let model = model();
    let mut builder = WriteOptions::new().build(Vec::new());
    builder.extend(SortedEntries::new(&model)).unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let table = OpenOptions::new().open_source(file).unwrap();
    assert_eq!(collect(&mut table.iter()).unwrap().len(), model.len());

    let mut builder = WriteOptions::new().build(Vec::new());
    builder.extend(table.range("00010"..)).unwrap();
    let error = builder.extend(table.iter()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfOrder);
    assert_eq!(builder.entries(), 1990);

    let mut builder = WriteOptions::new().build_db(Vec::new());
    builder.put("a", 7, "new").unwrap();
    builder.delete("a", 3).unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let versions = OpenOptions::new().open_db_source(file).unwrap();
    let mut builder = WriteOptions::new().build_db(Vec::new());
    builder.extend(versions.iter()).unwrap();
    let error = builder.extend(table.iter()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    let words = "\"00000\" is not an internal key, which ends in sequence number and type";
    assert!(error.to_string().contains(words), "{error}");
    let (file, summary) = builder.finish_into_writer().unwrap();
    assert_eq!(summary.properties.entries, 2);
    let copy = OpenOptions::new().open_db_source(file).unwrap();
    assert_eq!(
        collect(&mut copy.iter()).unwrap(),
        collect(&mut versions.iter()).unwrap()
    );
}

/// A map in the order of `Reverse`.
#[derive(Clone)]
struct Descending(BTreeMap<cmp::Reverse<Vec<u8>>, &'static str>);

impl RangeMap for Descending {
    type Key = Vec<u8>;
    type Value = &'static str;

    fn first(&self, start: Bound<&[u8]>, most: usize) -> Vec<(Vec<u8>, &'static str)> {
        let start = start.map(|key| cmp::Reverse(key.to_vec()));
        let range = self.0.range((start, Bound::Unbounded)).take(most);
        range.map(|(key, value)| (key.0.clone(), *value)).collect()
    }

    fn last(&self, end: Bound<&[u8]>, most: usize) -> Vec<(Vec<u8>, &'static str)> {
        let end = end.map(|key| cmp::Reverse(key.to_vec()));
        let range = self.0.range((Bound::Unbounded, end)).rev().take(most);
        range.map(|(key, value)| (key.0.clone(), *value)).collect()
    }
}

#[test]
fn maps_can_be_in_another_order() {
    let map = |keys: [&str; 2]| {
        let entry = |key: &str| (cmp::Reverse(key.as_bytes().to_vec()), "");
        SortedMap::new(Descending(keys.map(entry).into())).with_comparator(Reverse)
    };
    let inputs = [map(["a", "d"]), map(["b", "c"])].map(|map| TableRange::of(map, ..));
    let mut merged = Table::merge(inputs).unwrap();
    let mut keys = String::new();
    while merged.next().unwrap() {
        keys += str::from_utf8(merged.key()).unwrap();
    }
    assert_eq!(keys, "dcba");
    let mut range = TableRange::of(map(["a", "d"]), "c"..);
    assert!(range.advance().unwrap());
    assert_eq!(range.key(), b"a");
}
