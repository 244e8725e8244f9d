//! The `sstable` crate as a second reader: where both take a table, both must find the same entries in it.
//! And what is found is written again by this crate, for the other to read.

#![no_main]

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use bytes::Bytes;
use leveltable::{BloomFilterPolicy, BytewiseComparator, Compression, OpenOptions, WriteOptions};
use leveltable_fuzz::naive::{self, Entry, FOOTER_LEN, Handle};
use leveltable_fuzz::source::MAX_ENTRIES;
use leveltable_fuzz::{seeds, tables};
use libfuzzer_sys::fuzz_target;
use sstable::SSIterator;

fuzz_target!(init: seeds::write_if_asked(), |file: &[u8]| {
    let mut file = file.to_vec();
    naive::repair_checksums(&mut file);
    let Some(entries) = ours(&file) else {
        return;
    };
    // To the other reader an empty key is the end of its block, of data or of the index.
    let index = naive::footer(&file).and_then(|(_, index)| naive::entries_at(&file, index));
    let is_empty = |(key, _): &Entry| key.is_empty();
    if entries.iter().chain(index.iter().flatten()).any(is_empty) {
        return;
    }
    // The other reader skips what it cannot read and says nothing; only of sound tables it must find all.
    if naive::table(&file, |a, b| a.cmp(b), MAX_ENTRIES).is_some() {
        // A block without restarts, which no writer makes, is a reason for it to refuse.
        if let Some(theirs) = theirs(without_metaindex(&file)) {
            assert_eq!(theirs, entries);
        }
    }
    if entries.is_sorted_by(|(a, _), (b, _)| a < b) {
        let rewritten = tables::build(&options(&file), &entries);
        assert_eq!(ours(&rewritten).as_ref(), Some(&entries));
        assert_eq!(theirs(rewritten), Some(entries));
    }
});

/// The table with an empty metaindex. The other reader takes any filter whose name comes behind its own for its own, and
/// allocates whatever the handle says.
fn without_metaindex(file: &[u8]) -> Vec<u8> {
    let (_, index) = naive::footer(file).expect("a sound table");
    let (in_front, footer) = file.split_at(file.len() - FOOTER_LEN);
    let block = [0, 0, 0, 0, 1, 0, 0, 0];
    let metaindex = Handle {
        offset: in_front.len() as u64,
        size: block.len() as u64,
    };
    let uncompressed = [&block[..], &[0]].concat();
    let mut handles = [metaindex.encode(), index.encode()].concat();
    handles.resize(FOOTER_LEN - 8, 0);
    let crc = naive::checksum(&uncompressed);
    [
        in_front,
        &uncompressed,
        &crc,
        &handles,
        &footer[FOOTER_LEN - 8..],
    ]
    .concat()
}

/// Some options that LevelDB's readers understand, by the bytes of the file.
fn options(file: &[u8]) -> WriteOptions {
    let choice = crc32c::crc32c(file);
    let options = WriteOptions::leveldb()
        .compression(match choice & 1 {
            0 => Compression::None,
            _ => Compression::Snappy,
        })
        .block_size((choice >> 8 & 0x3ff) as usize + 1)
        .restart_interval((choice >> 1 & 7) as usize + 1);
    match choice >> 4 & 3 {
        0 => options.no_filter(),
        1 => options.whole_table_filter(true),
        2 => options.filter_policy(BloomFilterPolicy::new((choice >> 24).max(1))),
        _ => options,
    }
}

fn ours(file: &[u8]) -> Option<Vec<Entry>> {
    let options = OpenOptions::new()
        .comparator(BytewiseComparator)
        .no_cache()
        .preload(true);
    let table = options.open_source(Bytes::copy_from_slice(file)).ok()?;
    let mut entries = Vec::new();
    for entry in table.iter() {
        let (key, value) = entry.ok()?;
        entries.push((key.to_vec(), value.to_vec()));
        if entries.len() > MAX_ENTRIES {
            return None;
        }
    }
    Some(entries)
}

/// What the `sstable` crate reads; `None` where it refuses, or panics, which is its own affair.
fn theirs(file: Vec<u8>) -> Option<Vec<Entry>> {
    let abort = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let read = panic::catch_unwind(AssertUnwindSafe(|| read_theirs(file)));
    panic::set_hook(abort);
    read.ok().flatten()
}

thread_local! {
    /// Made once: the crate's caches are never freed.
    static OPTIONS: sstable::Options = sstable::Options {
        filter_policy: Arc::new(Box::new(NoFilter)),
        ..sstable::Options::default().with_cache_capacity(1)
    };
}

fn read_theirs(file: Vec<u8>) -> Option<Vec<Entry>> {
    let len = file.len();
    let options = OPTIONS.with(sstable::Options::clone);
    // Where it panicked before, it had its cache locked, and would refuse every table from then on.
    options.block_cache.clear_poison();
    let table = sstable::Table::new(options, Box::new(file), len).ok()?;
    let mut iterator = table.iter();
    let mut entries = Vec::new();
    while iterator.advance() {
        let (mut key, mut value) = Default::default();
        assert!(iterator.current(&mut key, &mut value));
        entries.push((key, value));
    }
    Some(entries)
}

/// A policy whose name comes behind all others: the crate takes any filter at or behind its own name.
struct NoFilter;

impl sstable::filter::FilterPolicy for NoFilter {
    fn name(&self) -> &'static str {
        "\u{10ffff}"
    }

    fn create_filter(&self, _: &[u8], _: &[usize]) -> Vec<u8> {
        Vec::new()
    }

    fn key_may_match(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}
