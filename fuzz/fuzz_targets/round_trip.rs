//! What is written is read: by the crate from every source, and by the naive decoder.

#![no_main]

use std::io::{self, Write};

use arbitrary::Arbitrary;
use bytes::Bytes;
use leveltable::{BytewiseComparator, Compression, ErrorKind, OpenOptions, Table, WriteOptions};
use leveltable_fuzz::naive::{self, Entry};
use leveltable_fuzz::tables::{self, DbEntry, Entries, KeyOrder, Options};
use leveltable_fuzz::{ask, source};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    options: Options,
    is_database: bool,
    /// After how many entries a block ends early, and where an entry that does not belong is offered.
    flush_every: u8,
    misplaced_every: u8,
    entries: Entries,
    absent: [Vec<u8>; 2],
}

fuzz_target!(|input: Input| {
    let order = input.options.order;
    match input.is_database {
        true => database(&input, &input.entries.clone().into_versions(order)),
        false => plain(&input, &input.entries.clone().in_order(order)),
    }
});

fn plain(input: &Input, entries: &[Entry]) {
    let Options { order, write, .. } = &input.options;
    let file = build(input, write, entries);
    assert_eq!(build(input, write, entries), file, "the same bytes again");
    let mut choppy = Choppy(Vec::new());
    write_to(&mut choppy, input, write, entries);
    assert_eq!(
        choppy.0, file,
        "the same bytes through a writer that takes few at a time"
    );

    let file = Bytes::from(file);
    if matches!(
        input.options.compression,
        Compression::None | Compression::Snappy
    ) {
        let read = naive::table(&file, order.compare(), usize::MAX);
        assert_eq!(
            read.as_deref(),
            Some(entries),
            "as the naive decoder reads it"
        );
    }
    let options = match order {
        KeyOrder::Bytewise => OpenOptions::new().comparator(BytewiseComparator),
        other => OpenOptions::new().comparator(*other),
    };
    let cached = cached_if_slow(input, &options);
    let options = options.no_cache();
    let mut probes = input.absent.to_vec();
    probes.sort();
    for entry in entries.iter().step_by(5) {
        probes.push(entry.0.clone());
    }
    let memory = cached.open_source(file.clone()).unwrap();
    assert_holds(&memory, entries);
    ask::check(&memory, entries, order.compare(), &probes);

    // A lookup reads one block at most, and a filter that says no spares it.
    let table = options.preload(true);
    let table = table.open_source(source::disk(&file)).unwrap();
    assert_holds(&table, entries);
    for key in &probes {
        let before = table.stats().source_reads;
        let found = table.get(key).unwrap();
        let reads = table.stats().source_reads - before;
        assert!(reads <= u64::from(table.may_contain(key).unwrap()));
        assert_eq!(found, memory.get(key).unwrap());
    }
}

/// The same options, with a cache only where blocks take long to decompress: one table is asked for each of
/// them many times.
fn cached_if_slow(input: &Input, options: &OpenOptions) -> OpenOptions {
    match input.options.compression {
        Compression::None | Compression::Snappy => options.clone().no_cache(),
        _ => options.clone().cache(ask::cache()),
    }
}

/// No key is lost to a filter, and both walks give all entries.
fn assert_holds(table: &Table, entries: &[Entry]) {
    for (key, value) in entries {
        assert!(table.may_contain(key).unwrap());
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    let owned = |entry: leveltable::Result<(Bytes, Bytes)>| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    };
    assert!(table.iter().map(owned).eq(entries.iter().cloned()));
    let backward = table.iter().rev().map(owned);
    assert!(backward.eq(entries.iter().rev().cloned()));
}

fn build(input: &Input, options: &WriteOptions, entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    write_to(&mut file, input, options, entries);
    file
}

fn write_to(file: impl Write, input: &Input, options: &WriteOptions, entries: &[Entry]) {
    let mut builder = options.build(file);
    for (i, (key, value)) in entries.iter().enumerate() {
        builder.add(key, value).unwrap();
        if is_multiple(i, input.misplaced_every) {
            // It is refused, and nothing is changed by it.
            let earlier = &entries[i / 2].0;
            let refused = builder.add(earlier, b"misplaced").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::OutOfOrder);
        }
        if is_multiple(i, input.flush_every) {
            builder.flush().unwrap();
        }
    }
    let summary = builder.finish().unwrap();
    assert_eq!(summary.properties.entries, entries.len() as u64);
}

/// Whether entry `i` ends a run of so many; in the upper half of the range no runs end.
fn is_multiple(i: usize, every: u8) -> bool {
    every < 0x80 && (i + 1).is_multiple_of(usize::from(every) + 1)
}

/// A writer that takes about half of what it is given.
struct Choppy(Vec<u8>);

impl Write for Choppy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(7 + bytes.len() / 2);
        self.0.extend(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn database(input: &Input, entries: &[DbEntry]) {
    let Options { order, write, .. } = &input.options;
    let file = tables::build_db(write, entries);
    assert_eq!(
        tables::build_db(write, entries),
        file,
        "the same bytes again"
    );
    let options = match order {
        KeyOrder::Bytewise => OpenOptions::new(),
        other => OpenOptions::new().comparator(*other),
    };
    let file = Bytes::from(file);
    let options = cached_if_slow(input, &options);
    let table = options.open_db_source(file.clone()).unwrap();
    let stored: Vec<Entry> = entries.iter().map(stored).collect();
    let mut user_keys = input.absent.to_vec();
    user_keys.extend(entries.iter().step_by(5).map(|(key, ..)| key.clone()));
    ask::check_db(&table, &stored, &user_keys);
    let on_disk = options.open_db_source(source::disk(&file)).unwrap();
    assert_eq!(
        ask::ask_db(&on_disk, &user_keys),
        ask::ask_db(&table, &user_keys)
    );
    if *order == KeyOrder::Bytewise
        && matches!(
            input.options.compression,
            Compression::None | Compression::Snappy
        )
    {
        let read = naive::table(&file, ask::compare_internal, usize::MAX);
        assert_eq!(read, Some(stored), "as the naive decoder reads it");
    }
}

/// An entry as a database's table stores it, from the description.
fn stored((key, sequence, value): &DbEntry) -> Entry {
    let tag = sequence << 8 | u64::from(value.is_some());
    let key = [&key[..], &tag.to_le_bytes()].concat();
    (key, value.clone().unwrap_or_default())
}
