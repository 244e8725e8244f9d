//! Damaged tables, and the entries that `salvage` recovers from them.
//!
//! What is expected comes from the entries that a table was written from and from the places of its
//! blocks, which `common::Layout` finds without the crate's code.

mod around;
mod blocks;
#[path = "../../../tests/common/mod.rs"]
mod common;
mod model;
mod mutated;
mod progress;
mod real;
#[path = "../../../database/src/record.rs"] // what `indexeddb.rs` of the same crate decodes with
#[allow(dead_code, unreachable_pub)]
mod record;
mod rules;
mod sound;
mod sources;

use std::ops::Range;

use bytes::Bytes;
use common::{Entry, Layout, Random};
use leveltable::{Compression, OpenOptions, Source, WriteOptions};
use leveltable_repair::{SalvageOptions, SalvageReport, VerifyOptions, salvage, verify};

const CODECS: [Compression; 2] = [Compression::None, Compression::Snappy];

/// Options for small blocks, so that a table of moderate size has many.
fn options(compression: Compression) -> WriteOptions {
    WriteOptions::leveldb()
        .block_size(256)
        .compression(compression)
}

/// The same for all tables of blocks that tests decode: of each codec, and as LevelDB lays them out (which has no properties,
/// and the index last) and as this crate does (properties, index, metaindex). Without optimisation, some of these: each codec, and
/// each layout.
fn all_options() -> Vec<WriteOptions> {
    let of = |codec| [options(codec), options(codec).properties(true)];
    let step = if cfg!(debug_assertions) { 3 } else { 1 };
    CODECS.into_iter().flat_map(of).step_by(step).collect()
}

/// Entries that compress somewhat, about seven to a block of `options`.
fn entries(n: usize) -> Vec<Entry> {
    let mut random = Random(n as u64);
    let entry = |i: usize| {
        let mut value = random.bytes(12);
        value.extend([b'v'; 20]);
        (format!("key {i:07}").into_bytes(), value)
    };
    (0..n).map(entry).collect()
}

fn entry(key: &str, value: &[u8]) -> Entry {
    (key.as_bytes().to_vec(), value.to_vec())
}

/// Builds `file` from blocks whose bounds the test chooses.
fn build_blocks(options: &WriteOptions, blocks: &[Vec<Entry>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut builder = options.clone().block_size(1 << 20).build(&mut file);
    for block in blocks {
        for (key, value) in block {
            builder.add(key, value).unwrap();
        }
        builder.flush().unwrap();
    }
    builder.finish().unwrap();
    file
}

/// Salvages `source` and reads the result back with everything checked.
fn rescue_with(options: &WriteOptions, source: impl Into<Source>) -> (SalvageReport, Vec<Entry>) {
    let mut rescued = Vec::new();
    let mut builder = options.build(&mut rescued);
    let report = salvage(source, &mut builder, SalvageOptions::new()).unwrap();
    let summary = builder.finish().unwrap();
    assert_eq!(summary.properties.entries, report.entries);
    let verified = verify(rescued.clone(), VerifyOptions::new()).unwrap();
    assert!(verified.is_sound(), "{verified}");
    let table = OpenOptions::new().open_source(rescued).unwrap();
    (report, content(table.iter()))
}

fn rescue(source: impl Into<Source>) -> (SalvageReport, Vec<Entry>) {
    rescue_with(&WriteOptions::new(), source)
}

fn content(range: leveltable::TableRange) -> Vec<Entry> {
    let owned = |(key, value): (Bytes, Bytes)| (key.to_vec(), value.to_vec());
    range.map(|entry| owned(entry.unwrap())).collect()
}

/// Overwrites a range with rubbish that differs everywhere from what was there.
fn destroy(file: &mut [u8], range: Range<usize>) {
    let mut random = Random(range.start as u64 + 1);
    for byte in &mut file[range] {
        *byte ^= 1 + (random.next() % 255) as u8;
    }
}

/// The entries of each data block, decoded without the crate.
fn by_block(file: &[u8], layout: &Layout) -> Vec<Vec<Entry>> {
    let blocks = layout.data.iter();
    blocks
        .map(|block| common::entries(&common::payload(file, block)))
        .collect()
}

fn without(blocks: &[Vec<Entry>], lost: impl Fn(usize) -> bool) -> Vec<Entry> {
    let kept = blocks.iter().enumerate().filter(|(i, _)| !lost(*i));
    kept.flat_map(|(_, entries)| entries.clone()).collect()
}

fn ranges(report: &SalvageReport) -> Vec<Range<usize>> {
    let usizes = |range: &Range<u64>| range.start as usize..range.end as usize;
    report.lost.iter().map(|lost| usizes(&lost.range)).collect()
}
