//! Aligned tables ([`WriteOptions::block_align`]): where their blocks lie, what a lookup reads, and that the padding
//! between the blocks is neither damage nor a loss.
//!
//! Where blocks lie comes from `common::Layout`, which has none of the crate's code.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{self, Entry, Layout, Random, build, seal};
use bytes::Bytes;
use leveltable::{
    BloomFilterPolicy, Compression, DbTable, OpenOptions, ReadAt, Table, WriteOptions,
    db::{KeyKind, Version},
};
use leveltable_repair::{
    IndexState, SalvageOptions, SalvageReport, Severity, VerifyOptions, VerifyReport, blocks,
    salvage, verify,
};
use proptest::prelude::*;
use proptest::sample::select;

const PAGE: usize = 4096;

/// Number of pages that a range of a file touches.
fn pages(range: &Range<usize>) -> usize {
    match range.len() {
        0 => 0,
        _ => (range.end - 1) / PAGE - range.start / PAGE + 1,
    }
}

/// Asserts that no data block touches more pages than its length needs, that there is no padding without need, and that
/// the padding is zeros.
fn assert_aligned(file: &[u8]) {
    let layout = Layout::of(file);
    let mut end = 0;
    for block in &layout.data {
        assert_eq!(pages(block), block.len().div_ceil(PAGE), "{block:?}");
        if block.start > end {
            assert_eq!(block.start, end.next_multiple_of(PAGE), "after {end}");
            let unpadded = end..end + block.len();
            assert!(pages(&unpadded) > pages(block), "{block:?} after {end}");
            assert!(file[end..block.start].iter().all(|&byte| byte == 0));
        }
        end = block.end;
    }
    let named = [&layout.filter, &layout.properties, &layout.pieces];
    let named = named.into_iter().flatten();
    let mut rest: Vec<_> = named.chain([&layout.index, &layout.metaindex]).collect();
    rest.sort_by_key(|part| part.start);
    for part in rest.into_iter().chain([&layout.footer]) {
        assert_eq!(part.start, end, "no padding after the data");
        end = part.end;
    }
    assert_eq!(end, file.len());
}

/// Decimal keys and values of 100 bytes, the second half of which repeats the first.
fn numbers(n: usize) -> Vec<Entry> {
    let mut random = Random(n as u64);
    let mut value = || random.bytes(50).repeat(2);
    (0..n)
        .map(|i| (format!("{i:016}").into_bytes(), value()))
        .collect()
}

fn aligned(compression: Compression) -> WriteOptions {
    WriteOptions::new()
        .compression(compression)
        .block_align(true)
}

fn open(file: Vec<u8>) -> Table {
    OpenOptions::new().open_source(file).unwrap()
}

// ---- Where blocks lie -----------------------------------------------------------------------

#[derive(Debug, Clone)]
struct Shape {
    block_size: usize,
    restart_interval: usize,
    compression: Compression,
    /// Bits a key, and whether one filter is for the whole table.
    filter: Option<(u32, bool)>,
    flush_every: usize,
}

fn shape() -> impl Strategy<Value = Shape> {
    let block_size = prop_oneof![
        Just(1usize),
        2usize..9000,
        select(vec![1024, 2048, 4096, 5000, 16 << 10, 1 << 20]),
    ];
    let filter = prop::option::of((1u32..20, any::<bool>()));
    let compression = select(Compression::all());
    let flush_every = prop_oneof![3 => Just(0usize), 1 => 1usize..30];
    (block_size, 1usize..20, compression, filter, flush_every).prop_map(
        |(block_size, restart_interval, compression, filter, flush_every)| Shape {
            block_size,
            restart_interval,
            compression,
            filter,
            flush_every,
        },
    )
}

impl Shape {
    fn options(&self) -> WriteOptions {
        let options = WriteOptions::new()
            .block_size(self.block_size)
            .restart_interval(self.restart_interval)
            .compression(self.compression)
            .block_align(true);
        match self.filter {
            None => options.no_filter(),
            Some((bits, whole_table)) => options
                .filter_policy(BloomFilterPolicy::new(bits))
                .whole_table_filter(whole_table),
        }
    }

    fn flushes_after(&self, i: usize) -> bool {
        self.flush_every > 0 && i.is_multiple_of(self.flush_every)
    }
}

/// Values of all lengths on both sides of a page, some of which compress.
fn values() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let len = prop_oneof![
        6 => 0usize..200,
        2 => 0usize..3000,
        1 => 3900usize..4200,
        1 => 0usize..20_000,
    ];
    let value = (len, any::<u64>(), any::<bool>()).prop_map(|(len, seed, compresses)| {
        let mut random = Random(seed);
        if compresses {
            random.bytes(len.div_ceil(4)).repeat(4)[..len].to_vec()
        } else {
            random.bytes(len)
        }
    });
    prop::collection::vec(value, 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn blocks_lie_within_pages_and_read_back(values in values(), shape in shape()) {
        let entry = |(i, value)| (format!("key {:05}", 3 * i).into_bytes(), value);
        let entries: Vec<Entry> = values.into_iter().enumerate().map(entry).collect();
        let mut builder = shape.options().build(Vec::new());
        let mut bytes = 0;
        for (i, (key, value)) in entries.iter().enumerate() {
            builder.add(key, value).unwrap();
            if shape.flushes_after(i) {
                builder.flush().unwrap();
            }
            prop_assert!(builder.file_bytes() >= bytes);
            bytes = builder.file_bytes();
        }
        let (file, summary) = builder.finish_into_writer().unwrap();
        if matches!(shape.compression, Compression::None | Compression::Snappy) {
            assert_aligned(&file);
        }
        let report = verify(file.clone(), VerifyOptions::new()).unwrap();
        prop_assert_eq!(&report.findings, &[]);
        prop_assert_eq!(report.checked_bytes, summary.file_bytes);

        let mut described = blocks(file.clone()).unwrap();
        for block in &mut described {
            let block = block.unwrap();
            let range = block.offset as usize..(block.offset + block.stored_bytes) as usize;
            prop_assert_eq!(pages(&range), range.len().div_ceil(PAGE));
        }
        let (totals, written) = (described.totals(), summary.properties);
        prop_assert_eq!(totals.data_blocks, written.data_blocks);
        prop_assert_eq!(totals.data_bytes, written.data_bytes);
        prop_assert_eq!(totals.entries, written.entries);
        prop_assert_eq!(&totals.first_key, &written.first_key);
        prop_assert_eq!(&totals.last_key, &written.last_key);
        let table = open(file);
        common::assert_holds(&table, &entries);
        // A filter in the wrong place hides keys.
        for (key, _) in &entries {
            prop_assert!(table.may_contain(key).unwrap());
        }
        if matches!(shape.filter, Some((10.., _))) && entries.len() > 50 {
            let passed = entries.iter().filter(|(key, _)| table.may_contain([key, &b"x"[..]].concat()).unwrap());
            prop_assert!(passed.count() < entries.len() / 2);
        }
    }

    #[test]
    fn database_tables_are_aligned_too(values in values(), shape in shape()) {
        let mut builder = shape.options().build_db(Vec::new());
        for (i, value) in values.iter().enumerate() {
            let user_key = format!("key {:05}", i / 2);
            builder.put(&user_key, 1000 - i as u64, value).unwrap();
            if shape.flushes_after(i) {
                builder.table_mut().flush().unwrap();
            }
        }
        let (file, _) = builder.finish_into_writer().unwrap();
        if matches!(shape.compression, Compression::None | Compression::Snappy) {
            assert_aligned(&file);
        }
        let options = VerifyOptions::new().keys(KeyKind::Database);
        let report = verify(file.clone(), options).unwrap();
        prop_assert_eq!(&report.findings, &[]);
        let table: DbTable = OpenOptions::new().open_db_source(file).unwrap();
        for (i, value) in values.iter().enumerate().step_by(2) {
            let found = table.get(format!("key {:05}", i / 2)).unwrap();
            prop_assert_eq!(found, Some(Version::Value(value.clone().into())));
        }
    }
}

/// A block of 4 KiB is a page to the byte, and no block has room for the entry after it. With values of 49 and of 4,074 bytes
/// the entries fill the page; with 44, they would if the last had no restart.
#[test]
fn pages_are_as_full_as_entries_allow() {
    for len in [1, 20, 44, 49, 100, 500, 1000, 2034, 4074] {
        let mut random = Random(len as u64);
        let entry = |i: usize| (format!("{i:05}").into_bytes(), random.bytes(len));
        let entries: Vec<Entry> = (0..600).map(entry).collect();
        let file = build(&aligned(Compression::None).restart_interval(1), &entries);
        assert_aligned(&file);
        let layout = Layout::of(&file);
        // Each key whole, three lengths, a restart; a block has the number of restarts and a trailer.
        let lengths = if len < 128 { 3 } else { 4 };
        let entry_len = lengths + 5 + len + 4;
        let fit = (PAGE - 4 - 5) / entry_len;
        let (_, full) = layout.data.split_last().unwrap();
        for block in full {
            assert_eq!(block.len(), fit * entry_len + 9, "{len}");
        }
        assert_eq!(layout.data.len(), entries.len().div_ceil(fit));
    }
}

/// The option is off by default, and LevelDB's bytes stay as they are.
#[test]
fn tables_are_not_aligned_unless_asked() {
    let entries = numbers(1000);
    for options in [WriteOptions::new(), WriteOptions::leveldb()] {
        let options = options.compression(Compression::None);
        let file = build(&options, &entries);
        assert_eq!(file, build(&options.clone().block_align(false), &entries));
        let layout = Layout::of(&file);
        assert!(layout.data.iter().any(|block| pages(block) > 1));
        let mut end = 0;
        for block in &layout.data {
            assert_eq!(block.start, end);
            end = block.end;
        }
        assert_aligned(&build(&options.block_align(true), &entries));
    }
}

// ---- What it costs, and what a lookup reads -------------------------------------------------

/// Counts the pages that reads touch.
struct CountingPages {
    file: Vec<u8>,
    pages: AtomicU64,
    reads: AtomicU64,
}

impl CountingPages {
    fn new(file: Vec<u8>) -> Arc<CountingPages> {
        Arc::new(CountingPages {
            file,
            pages: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        })
    }
}

impl ReadAt for CountingPages {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let range = offset as usize..offset as usize + len;
        let touched = pages(&range) as u64;
        self.pages.fetch_add(touched, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(Bytes::copy_from_slice(&self.file[range]))
    }
}

/// Pages that a lookup of each entry reads, per lookup, without a cache, once index and filter are there.
fn pages_a_lookup(file: Vec<u8>, entries: &[Entry]) -> f64 {
    let disk = CountingPages::new(file);
    let options = OpenOptions::new().no_cache().preload(true);
    let table = options.open_source(Arc::clone(&disk)).unwrap();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (pages, reads) = (count(&disk.pages), count(&disk.reads));
    for (key, value) in entries {
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    assert_eq!(count(&disk.reads) - reads, entries.len() as u64);
    (count(&disk.pages) - pages) as f64 / entries.len() as f64
}

#[test]
fn a_lookup_reads_one_page() {
    let entries = numbers(20_000);
    for (compression, block_size, before, after, growth) in [
        (Compression::None, 4096, 2.0, 1.0, 1.02),
        (Compression::None, 1024, 1.2, 1.0, 1.03),
        (Compression::None, 16 << 10, 5.0, 4.0, 1.01),
        (Compression::Snappy, 4096, 1.5, 1.0, 1.02),
    ] {
        let options = WriteOptions::new()
            .compression(compression)
            .block_size(block_size);
        let plain = build(&options, &entries);
        let file = build(&options.block_align(true), &entries);
        let grown = file.len() as f64 / plain.len() as f64;
        assert!(grown < growth, "{compression:?} {block_size}: {grown}");
        assert!(pages_a_lookup(plain, &entries) > before);
        let pages = pages_a_lookup(file, &entries);
        assert!(pages <= after, "{compression:?} {block_size}: {pages}");
    }
}

/// The padding between blocks is no reason to read them one at a time.
#[test]
fn walks_read_as_far_ahead_as_without_padding() {
    let entries = numbers(37_000);
    for compression in [Compression::None, Compression::Snappy] {
        let disk = CountingPages::new(build(&aligned(compression), &entries));
        let options = OpenOptions::new().no_cache();
        let table = options.open_source(Arc::clone(&disk)).unwrap();
        let requests = |walk: &dyn Fn() -> usize| {
            let before = disk.reads.load(Ordering::Relaxed);
            assert_eq!(walk(), entries.len());
            disk.reads.load(Ordering::Relaxed) - before
        };
        let last = &entries.last().unwrap().0;
        // One block alone, a second, then 2, 4, 8, 16 and 32, and then as many as fit 64 pages, at least 40 of them in each read.
        let most = 7 + table.data_blocks() as u64 / 40;
        assert!(most < 34, "{compression:?}: {most}");
        for walked in [
            requests(&|| table.range(..=last).count()),
            requests(&|| table.range(..=last).rev().count()),
            requests(&|| {
                let mut cursor = table.cursor();
                assert!(cursor.seek_to_first().unwrap());
                1 + std::iter::from_fn(|| cursor.next().unwrap().then_some(())).count()
            }),
        ] {
            assert!(walked <= most, "{compression:?}: {walked} of {most}");
        }
    }
}

/// Compression that varies from block to block: the padding stays small, and lookups read one page.
#[test]
fn the_length_of_compressed_blocks_is_expected_well() {
    let mut random = Random(5);
    let words: Vec<Vec<u8>> = (0..2000)
        .map(|_| {
            let len = 2 + random.below(9);
            (0..len).map(|_| b'a' + random.below(26) as u8).collect()
        })
        .collect();
    let mut text = || {
        let mut value = Vec::new();
        let len = 50 + random.below(300);
        while value.len() < len {
            // Frequent words and seldom ones.
            let most = 1 + random.below(words.len());
            value.extend(&words[random.below(most)]);
            value.push(b' ');
        }
        value
    };
    let entries: Vec<Entry> = (0..20_000)
        .map(|i| (format!("{i:016}").into_bytes(), text()))
        .collect();
    let options = WriteOptions::new();
    let plain = build(&options, &entries);
    let file = build(&options.block_align(true), &entries);
    assert_aligned(&file);
    let grown = file.len() as f64 / plain.len() as f64;
    assert!(grown < 1.1, "{grown}");
    let (before, after) = (
        pages_a_lookup(plain, &entries),
        pages_a_lookup(file, &entries),
    );
    println!("{before} pages per lookup, aligned {after}; {grown} times the file");
    assert!(before > 1.5 && after < 1.15, "{before} {after}");
}

// ---- Damage ---------------------------------------------------------------------------------

fn check(file: &[u8]) -> VerifyReport {
    verify(file.to_vec(), VerifyOptions::new()).unwrap()
}

fn rescue(file: &[u8]) -> (SalvageReport, Vec<Entry>) {
    let mut builder = WriteOptions::new().build(Vec::new());
    let report = salvage(file.to_vec(), &mut builder, SalvageOptions::new()).unwrap();
    let (rescued, _) = builder.finish_into_writer().unwrap();
    let owned = |(key, value): (Bytes, Bytes)| (key.to_vec(), value.to_vec());
    let entries = open(rescued).iter().map(|entry| owned(entry.unwrap()));
    (report, entries.collect())
}

/// A table in which nearly every block has padding after it.
fn padded(compression: Compression) -> (Vec<Entry>, Vec<u8>, Layout) {
    let entries = numbers(2000);
    let file = build(&aligned(compression), &entries);
    let layout = Layout::of(&file);
    let gaps = layout
        .data
        .windows(2)
        .filter(|pair| pair[0].end < pair[1].start);
    assert!(gaps.count() > 15, "{compression:?}");
    (entries, file, layout)
}

const CODECS: [Compression; 2] = [Compression::None, Compression::Snappy];

#[test]
fn padding_is_not_lost() {
    for compression in CODECS {
        let (entries, file, layout) = padded(compression);
        let (report, rescued) = rescue(&file);
        assert!(report.is_complete(), "{report}");
        assert_eq!(report.index, IndexState::Sound);
        assert_eq!(rescued, entries);

        // Without a footer, the index is found, and everything.
        let (report, rescued) = rescue(&file[..layout.footer.start]);
        assert!(report.is_complete(), "{report}");
        assert_eq!(report.index, IndexState::Found);
        assert_eq!(rescued, entries);

        // Without an index, the blocks are found one after the other.
        let mut damaged = file.clone();
        damaged[layout.index.clone()].fill(0x55);
        let (report, rescued) = rescue(&damaged);
        assert_eq!(rescued, entries);
        assert_eq!(report.index, IndexState::Lost);
        assert!(
            report.lost.iter().all(|lost| {
                let lost = lost.range.start as usize..lost.range.end as usize;
                lost.start >= layout.data.last().unwrap().end
            }),
            "{report}"
        );

        // Without anything after the data.
        let data_end = layout.data.last().unwrap().end;
        let (report, rescued) = rescue(&file[..data_end]);
        assert_eq!(rescued, entries);
        assert!(report.lost.is_empty() && !report.is_complete(), "{report}");
    }
}

/// A block is lost, and neither another nor the padding before it.
#[test]
fn a_damaged_block_costs_its_own_entries() {
    for compression in CODECS {
        let (_, file, layout) = padded(compression);
        let blocks = layout.data.iter();
        let blocks: Vec<Vec<Entry>> = blocks
            .map(|block| common::entries(&common::payload(&file, block)))
            .collect();
        for with_index in [true, false] {
            for lost in [0, 1, 7, blocks.len() - 1] {
                let mut damaged = file.clone();
                let range = &layout.data[lost];
                damaged[range.clone()]
                    .iter_mut()
                    .for_each(|byte| *byte ^= 0x5a);
                if with_index {
                    let report = check(&damaged);
                    assert_eq!(report.findings.len(), 1, "{report}");
                    assert_eq!(report.findings[0].offset(), range.start as u64);
                } else {
                    damaged.truncate(layout.data.last().unwrap().end);
                }
                let (report, rescued) = rescue(&damaged);
                let kept = blocks.iter().enumerate().filter(|(i, _)| *i != lost);
                let kept: Vec<Entry> = kept.flat_map(|(_, entries)| entries.clone()).collect();
                assert_eq!(
                    rescued, kept,
                    "{compression:?} {with_index} {lost}: {report}"
                );
                assert_eq!(report.lost.len(), 1, "{report}");
                assert_eq!(report.lost[0].range.start, range.start as u64, "{report}");
                let next = layout
                    .data
                    .get(lost + 1)
                    .map_or(range.end, |next| next.start);
                let end = if with_index { range.end } else { next };
                assert_eq!(report.lost[0].range.end, end as u64, "{report}");
            }
        }
    }
}

/// Zeros that are as long as a page were one.
#[test]
fn a_page_of_zeros_is_no_padding() {
    let (entries, file, layout) = padded(Compression::None);
    let lost = &layout.data[5];
    let mut damaged = file[..layout.data.last().unwrap().end].to_vec();
    damaged[lost.start..lost.start + PAGE].fill(0);
    let (report, rescued) = rescue(&damaged);
    assert!(rescued.len() < entries.len());
    assert_eq!(report.lost.len(), 1, "{report}");
    let range = &report.lost[0].range;
    assert_eq!(*range, lost.start as u64..(lost.start + PAGE) as u64);
}

/// A table of `sizes.len()` blocks, each of one entry, whose value has that many bytes.
fn blocks_of(sizes: &[usize]) -> (Vec<u8>, Layout) {
    let mut builder = aligned(Compression::None).no_filter().build(Vec::new());
    for (i, len) in sizes.iter().enumerate() {
        builder
            .add(format!("key {i:02}"), vec![b'v'; *len])
            .unwrap();
        builder.flush().unwrap();
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let layout = Layout::of(&file);
    assert_eq!(layout.data.len(), sizes.len());
    (file, layout)
}

/// The next block would have fitted into the rest of the page, so the zeros were a block.
#[test]
fn a_zeroed_block_at_the_end_of_a_page_is_lost() {
    let (file, layout) = blocks_of(&[900; 12]);
    let lost = &layout.data[3];
    let zeros = lost.start..PAGE;
    assert_eq!(layout.data[4].start, PAGE);
    let mut damaged = file.clone();
    damaged[zeros.clone()].fill(0);
    damaged[layout.index.start] ^= 1;
    // Without properties, too.
    for damaged in [&damaged[..], &damaged[..layout.data[11].end]] {
        let (report, rescued) = rescue(damaged);
        assert_eq!(rescued.len(), 11);
        assert!(!report.is_complete(), "{report}");
        let first = &report.lost[0].range;
        assert_eq!(*first, zeros.start as u64..zeros.end as u64, "{report}");
    }
}

/// The writer pads no page after the last block.
#[test]
fn a_zeroed_block_at_the_end_of_the_data_is_lost() {
    let (file, layout) = blocks_of(&[900; 8]);
    let lost = layout.data[7].start..2 * PAGE;
    let mut damaged = file[..lost.start].to_vec();
    damaged.resize(lost.end, 0);
    let (report, rescued) = rescue(&damaged);
    assert_eq!(rescued.len(), 7);
    assert!(!report.is_complete(), "{report}");
    assert_eq!(report.lost[0].range, lost.start as u64..lost.end as u64);
}

/// The next block needs padding, so the zeros look like that. The properties state that there was another block.
#[test]
fn a_zeroed_block_that_looks_like_padding_is_missed_by_the_properties() {
    let (file, layout) = blocks_of(&[3000, 500, 2000, 2000]);
    assert_eq!(layout.data[2].start, PAGE);
    let mut damaged = file.clone();
    damaged[layout.data[1].start..PAGE].fill(0);
    damaged[layout.index.start] ^= 1;
    let (report, rescued) = rescue(&damaged);
    assert_eq!(rescued.len(), 3);
    assert_eq!(
        (report.stated_entries, report.stated_data_blocks),
        (Some(4), Some(4))
    );
    assert!(!report.is_as_stated() && !report.is_complete(), "{report}");
    let text = report.to_string();
    assert!(
        text.contains("; the properties state 4 entries in 4 data blocks"),
        "{text}"
    );

    // Of a sound table, all is copied that they state.
    let (report, _) = rescue(&file);
    assert!(report.is_as_stated() && report.is_complete(), "{report}");
    assert!(!report.to_string().contains("state"), "{report}");
}

/// Zeros up to a page, where the block after them needed no padding.
#[test]
fn zeros_without_need_are_found() {
    let (file, layout) = blocks_of(&[900; 12]);
    let lost = &layout.data[3];
    let mut damaged = file.clone();
    damaged[lost.start..PAGE].fill(0);
    // An index without the block.
    damaged.truncate(layout.data[11].end);
    let kept = layout.data.iter().enumerate().filter(|(i, _)| *i != 3);
    let handles: Vec<Entry> = kept
        .map(|(i, block)| (format!("key {i:02}").into_bytes(), common::handle_of(block)))
        .collect();
    let damaged = common::append_end(damaged, &[], &common::block(&handles));
    let report = check(&damaged);
    assert_eq!((report.warnings, report.findings.len()), (1, 1), "{report}");
    assert_eq!(report.findings[0].offset(), lost.start as u64);
}

/// Bytes in the padding, and padding where no aligned table has any, are still worth a warning.
#[test]
fn other_bytes_between_blocks_are_found() {
    let (_, file, layout) = padded(Compression::None);
    let gap = layout.data[3].end..layout.data[4].start;
    for at in [gap.start, gap.end - 1] {
        let mut changed = file.clone();
        changed[at] = 1;
        let report = check(&changed);
        assert_eq!((report.warnings, report.findings.len()), (1, 1), "{report}");
        let finding = &report.findings[0];
        assert_eq!(finding.severity(), Severity::Warning);
        assert_eq!(finding.offset(), gap.start as u64);
    }
}

/// All data destroyed: the index is recognised by its handles, which have gaps.
#[test]
fn an_index_without_its_blocks_is_recognised() {
    let (_, file, layout) = padded(Compression::None);
    let mut damaged = file[..layout.footer.start].to_vec();
    let data_end = layout.data.last().unwrap().end;
    damaged[..data_end]
        .iter_mut()
        .for_each(|byte| *byte ^= 0x5a);
    let mut builder = WriteOptions::new().build(Vec::new());
    let report = salvage(damaged, &mut builder, SalvageOptions::new()).unwrap();
    assert_eq!(report.entries, 0);
    assert_eq!(report.index, IndexState::Found, "{report}");
}

/// A block that begins with zeros, some bytes before the end of a page, is not taken for padding.
#[test]
fn blocks_that_begin_with_zeros_are_found() {
    let sealed = |file: &mut Vec<u8>, entries: &[Entry]| {
        let start = file.len();
        file.extend(common::block(entries));
        file.extend([0; 5]);
        let range = start..file.len();
        seal(file, &range);
    };
    for before in 1..8 {
        let mut file = Vec::new();
        let value = PAGE - before - 5 - 12;
        // An empty key and the value: four bytes of lengths, eight of restarts, a trailer.
        sealed(&mut file, &[(vec![], vec![b'f'; value])]);
        assert_eq!(file.len(), PAGE - before);
        sealed(&mut file, &[(b"\0".to_vec(), vec![])]);
        let (report, rescued) = rescue(&file);
        assert_eq!(rescued.len(), 2, "{before}: {report}");
        assert!(report.lost.is_empty(), "{report}");
    }
}
