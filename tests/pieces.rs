//! Index and filters in pieces: what opening and first lookups read, that damage to a piece is an error or harmless, and that pieces
//! may end anywhere.
//!
//! `about.pieces` is decoded and written here from `docs/format.md`, with none of the crate's code.

mod common;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};

use bytes::Bytes;
use common::{Entry, Layout, Random, handle_of, take_varint, varint};
use leveltable::filter::FixedPrefix;
use leveltable::{
    BytewiseComparator, Compression, OpenOptions, ReadAt, Section, Table, WriteOptions,
};

const TAIL: usize = 64 << 10;

// ---- A source that notes what is read -------------------------------------------------------

/// A file that notes what it is asked for: a step for each call, since a caller waits for one before it makes the next.
struct Disk<F> {
    file: F,
    steps: Mutex<Vec<Vec<Range<u64>>>>,
}

impl<F: ReadAt> Disk<F> {
    fn of(file: F) -> Arc<Disk<F>> {
        Arc::new(Disk {
            file,
            steps: Mutex::default(),
        })
    }

    fn note(&self, parts: &[(u64, usize)]) {
        let range = |&(offset, len): &(u64, usize)| offset..offset + len as u64;
        let step = parts.iter().map(range).collect();
        self.steps.lock().unwrap().push(step);
    }

    fn take(&self) -> Steps {
        Steps(std::mem::take(&mut self.steps.lock().unwrap()))
    }
}

impl<F: ReadAt> ReadAt for Disk<F> {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.note(&[(offset, len)]);
        self.file.read_at(offset, len)
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        self.note(parts);
        self.file.read_many_at(parts, each);
    }
}

#[derive(Debug)]
struct Steps(Vec<Vec<Range<u64>>>);

impl Steps {
    fn reads(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    fn bytes(&self) -> u64 {
        self.0
            .iter()
            .flatten()
            .map(|read| read.end - read.start)
            .sum()
    }

    /// Number of steps, and of reads, before one that touches a byte before `data_end`.
    fn before_data(&self, data_end: u64) -> usize {
        let is_data = |step: &Vec<Range<u64>>| step.iter().any(|read| read.start < data_end);
        self.0.iter().take_while(|step| !is_data(step)).count()
    }
}

// ---- Tables ---------------------------------------------------------------------------------

/// Keys of `len` bytes that separators shorten little, with room between them for absent ones.
fn key(i: usize, len: usize) -> Vec<u8> {
    let number = format!("{:012}", 7 * i);
    let mut key = vec![b'k'; len - number.len()];
    key.extend(number.bytes());
    key
}

fn absent(i: usize, len: usize) -> Vec<u8> {
    let mut key = key(i, len);
    *key.last_mut().unwrap() += 1;
    key
}

/// A table of about so many bytes: keys of `key_len`, values of `value_len`. Returns it and the number of its entries.
fn write<W: io::Write>(to: W, bytes: u64, key_len: usize, value_len: usize) -> (W, usize) {
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = options.build(to);
    let value = vec![b'v'; value_len];
    let mut count = 0;
    while builder.file_bytes() < bytes {
        for _ in 0..100 {
            builder.add(key(count, key_len), &value).unwrap();
            count += 1;
        }
    }
    (builder.finish_into_writer().unwrap().0, count)
}

fn open<F: ReadAt + 'static>(disk: &Arc<Disk<F>>) -> Table {
    let options = OpenOptions::new().no_cache();
    options.open_source(Arc::clone(disk)).unwrap()
}

/// Where data ends, and where `about.pieces` lies, by the end of the file.
fn places(file: &impl ReadAt) -> (u64, Range<u64>) {
    let size = file.size().unwrap();
    let footer = file.read_at(size - 48, 48).unwrap();
    let mut handles = &footer[..];
    let next = |handles: &mut &[u8]| {
        let start = take_varint(handles) as u64;
        start..start + take_varint(handles) as u64 + 5
    };
    let (metaindex, index) = (next(&mut handles), next(&mut handles));
    let len = (metaindex.end - metaindex.start) as usize;
    let metaindex = file.read_at(metaindex.start, len - 5).unwrap();
    let named = common::entries(&metaindex);
    let pieces = named.iter().find(|(name, _)| name == b"about.pieces");
    let pieces = next(&mut &pieces.expect("a table with pieces").1[..]);
    (index.start, pieces)
}

/// What opening and first lookups may cost, in reads and bytes.
struct Bounds {
    opening: (usize, u64),
    weight: usize,
}

/// Opens the table many times, for a present and an absent key each.
fn assert_costs<F: ReadAt + 'static>(file: F, count: usize, key_len: usize, bounds: &Bounds) {
    let size = file.size().unwrap();
    let (data_end, pieces) = places(&file);
    let what = format!("{size} bytes, keys of {key_len}");
    let disk = Disk::of(file);
    let table = open(&disk);
    let opening = disk.take();
    // The tail; and `about.pieces`, if it begins before that.
    let tail = size - TAIL as u64..size;
    assert_eq!(opening.0[0], std::slice::from_ref(&tail), "{what}");
    let missing = pieces.start < size - TAIL as u64;
    assert_eq!(
        opening.reads(),
        1 + usize::from(missing),
        "{what}: {opening:?}"
    );
    assert!(opening.reads() <= bounds.opening.0, "{what}: {opening:?}");
    assert!(
        opening.bytes() <= bounds.opening.1,
        "{what}: {}",
        opening.bytes()
    );
    assert!(
        table.weight() <= bounds.weight,
        "{what}: {}",
        table.weight()
    );
    println!(
        "{what}: opening {} reads, {} bytes; weighs {}",
        opening.reads(),
        opening.bytes(),
        table.weight()
    );

    let mut random = Random(3);
    let (mut of_present, mut of_absent, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..60 {
        let i = random.below(count);
        let table = open(&disk);
        disk.take();
        assert!(table.get(key(i, key_len)).unwrap().is_some());
        let steps = disk.take();
        of_present.push(steps.reads());
        bytes.push(steps.bytes());
        // The same key again takes its block.
        assert!(table.get(key(i, key_len)).unwrap().is_some());
        assert_eq!(disk.take().reads(), 1, "{what}");

        let table = open(&disk);
        disk.take();
        let may_be = table.may_contain(absent(i, key_len)).unwrap();
        let steps = disk.take();
        if !may_be {
            of_absent.push(steps.reads());
        }
        assert_eq!(
            steps.before_data(data_end),
            steps.0.len(),
            "{what}: {steps:?}"
        );
    }
    for reads in [&mut of_present, &mut of_absent] {
        reads.sort_unstable();
    }
    bytes.sort_unstable();
    println!(
        "{what}: present {of_present:?} absent {of_absent:?}, bytes {}..{}",
        bytes[0], bytes[59]
    );
    // Nine of ten keys are in the filter's first layer: codes, words; index; block.
    assert!(of_present[60 * 85 / 100] <= 4, "{what}: {of_present:?}");
    assert!(of_present[59] <= 8, "{what}: {of_present:?}");
    assert!(of_absent.len() > 55, "{what}");
    assert!(
        of_absent[of_absent.len() * 85 / 100] <= 3,
        "{what}: {of_absent:?}"
    );
    assert!(*bytes.last().unwrap() <= 120_000, "{what}: {bytes:?}");
}

#[test]
fn a_table_of_any_size_is_opened_by_its_tail() {
    for (bytes, key_len, bounds) in [
        (
            2 << 20,
            16,
            Bounds {
                opening: (1, 64 << 10),
                weight: 100_000,
            },
        ),
        (
            100_000_000,
            16,
            Bounds {
                opening: (1, 64 << 10),
                weight: 100_000,
            },
        ),
        (
            2 << 20,
            200,
            Bounds {
                opening: (1, 64 << 10),
                weight: 120_000,
            },
        ),
        (
            100_000_000,
            200,
            Bounds {
                opening: (2, 200_000),
                weight: 400_000,
            },
        ),
    ] {
        let (file, count) = write(Vec::new(), bytes, key_len, 100);
        assert_costs(Bytes::from(file), count, key_len, &bounds);
    }
}

#[test]
#[ignore = "writes two files of 1 GB"]
fn a_table_of_a_gigabyte_is_opened_by_its_tail() {
    for (key_len, bounds) in [
        (
            16,
            Bounds {
                opening: (1, 64 << 10),
                weight: 100_000,
            },
        ),
        (
            200,
            Bounds {
                opening: (2, 1 << 20),
                weight: 4 << 20,
            },
        ),
    ] {
        let file = tempfile::tempfile().unwrap();
        let writer = io::BufWriter::with_capacity(1 << 20, file);
        let (writer, count) = write(writer, 1_000_000_000, key_len, 100);
        assert_costs(writer.into_inner().unwrap(), count, key_len, &bounds);
    }
}

/// A question names all that it lacks at once: an answer takes one round trip, and the data another. A key in the second layer of the
/// filter, as one in ten is, takes one more.
#[test]
fn what_is_missing_for_an_answer_is_read_at_once() {
    let (file, count) = write(Vec::new(), 20_000_000, 16, 100);
    let disk = Disk::of(Bytes::from(file));
    let data_end = places(&disk.file).0;
    let keys: Vec<Vec<u8>> = (0..60).map(|i| key(i * count / 61, 16)).collect();
    // The round trips before a data block is read, and with those that read them.
    let trips = |ask: &dyn Fn(&Table, &Vec<u8>)| {
        let trips = keys.iter().map(|key| {
            let table = open(&disk);
            disk.take();
            ask(&table, key);
            let steps = disk.take();
            (steps.before_data(data_end), steps.0.len())
        });
        let mut trips: Vec<(usize, usize)> = trips.collect();
        trips.sort_unstable();
        trips
    };
    let key_of_nine_in_ten = 60 * 85 / 100;
    let present = trips(&|table, key| assert!(table.get(key).unwrap().is_some()));
    assert!(present[key_of_nine_in_ten] <= (1, 2), "{present:?}");
    assert!(present[59] <= (3, 4), "{present:?}");
    let batch = trips(&|table, key| {
        let other = keys[59].clone();
        let found = table.get_many(&[key.clone(), other]).unwrap();
        assert!(found.iter().all(Option::is_some));
    });
    assert!(batch[key_of_nine_in_ten] <= (2, 3), "{batch:?}");
    // Both ends of a range are found by one.
    let ranges = trips(&|table, key| {
        let mut bounded = table.range(&key[..]..&keys[59][..]);
        assert!(key == &keys[59] || bounded.next().is_some());
    });
    assert!(ranges[59] <= (1, 2), "{ranges:?}");
    let seeks = trips(&|table, key| assert!(table.cursor().seek(key).unwrap()));
    assert!(seeks[59] <= (1, 2), "{seeks:?}");
}

/// As many data blocks as a table of 1 GB has, a small value each.
#[test]
fn an_index_of_a_gigabyte_weighs_little() {
    let options = WriteOptions::new()
        .compression(Compression::None)
        .block_size(1);
    let mut builder = options.build(Vec::new());
    for i in 0..236_000 {
        builder.add(key(i, 16), b"v").unwrap();
    }
    let (file, _) = builder.finish_into_writer().unwrap();
    let disk = Disk::of(Bytes::from(file));
    let table = open(&disk);
    assert_eq!(table.data_blocks(), 236_000);
    let opening = disk.take();
    assert_eq!((opening.reads(), opening.bytes()), (1, 64 << 10));
    // The index takes less than 100 KB of it, the rest are counters and what every open table has.
    assert!(table.weight() <= 110_000, "{}", table.weight());
    // What was needed is counted, and what is there is not read again.
    let before = table.weight();
    assert!(table.get(key(100_000, 16)).unwrap().is_some());
    assert!(table.weight() > before);
    let (size, data_end) = (disk.size().unwrap(), places(&disk.file).0);
    for i in 0..236_000 {
        assert!(i % 100 > 0 || table.may_contain(key(i, 16)).unwrap());
    }
    disk.take();
    let all = table.weight() as u64;
    assert!(all > (size - data_end) * 9 / 10, "{all}");
    assert!(all < (size - data_end) * 3, "{all}");
    for i in (0..236_000).step_by(100) {
        assert!(table.may_contain(key(i, 16)).unwrap());
    }
    assert_eq!(disk.take().reads(), 0);
    assert_eq!(table.weight() as u64, all);
}

/// The promise of `preload`: later lookups read their data block and nothing else.
#[test]
fn preloading_reads_all() {
    let (file, count) = write(Vec::new(), 20 << 20, 16, 100);
    for file in common::in_both_orders(&file) {
        let layout = Layout::of(&file);
        let data_end = layout.data.last().unwrap().end as u64;
        let disk = Disk::of(Bytes::from(file));
        let options = OpenOptions::new().no_cache().preload(true);
        let table = options.open_source(Arc::clone(&disk)).unwrap();
        let opening = disk.take();
        assert_eq!(opening.before_data(data_end), opening.0.len());
        assert!(opening.reads() <= 5, "{opening:?}");
        // A few bytes beside pieces are read with each.
        let rest = disk.size().unwrap() - data_end + TAIL as u64 + (8 << 10);
        assert!(opening.bytes() <= rest, "{} {rest}", opening.bytes());
        let weight = table.weight();
        for i in (0..count).step_by(97) {
            let _ = table.may_contain(absent(i, 16)).unwrap();
            assert_eq!(disk.take().reads(), 0);
            assert!(table.get(key(i, 16)).unwrap().is_some());
            assert_eq!(disk.take().reads(), 1);
        }
        assert_eq!(table.weight(), weight);
    }
}

/// Each piece of an index that is in memory was read once more: nothing, at the beginning of the file.
#[test]
fn preloading_a_table_of_leveldbs_reads_nothing_for_the_pieces_of_its_index() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::leveldb().block_size(64).build(&mut file);
    for i in 0..20_000 {
        builder.add(key(i, 16), [b'v'; 64]).unwrap();
    }
    builder.finish().unwrap();
    let disk = Disk::of(Bytes::from(file));
    let options = OpenOptions::new().preload(true);
    options.open_source(Arc::clone(&disk)).unwrap();
    let opening = disk.take();
    assert!(opening.0.iter().all(|read| !read.is_empty()), "{opening:?}");
    assert!(opening.reads() <= 4, "{opening:?}");
}

/// A walk of 1,000 blocks takes as many reads as with the whole index in memory, and those of pieces of the index.
#[test]
fn a_walk_reads_a_piece_of_the_index_at_a_time() {
    let (file, count) = write(Vec::new(), 30 << 20, 16, 100);
    let layout = Layout::of(&file);
    let data_end = layout.data.last().unwrap().end as u64;
    let disk = Disk::of(Bytes::from(file));
    let per_block = count / layout.data.len();
    for forward in [true, false] {
        let [of_lazy, of_preloaded] = [false, true].map(|preload| {
            let options = OpenOptions::new().no_cache().preload(preload);
            let table = options.open_source(Arc::clone(&disk)).unwrap();
            disk.take();
            let first = count / 3;
            let range = table.range(key(first, 16)..key(first + 1000 * per_block, 16));
            let walked = if forward {
                range.map(Result::unwrap).count()
            } else {
                range.rev().map(Result::unwrap).count()
            };
            assert_eq!(walked, 1000 * per_block);
            let reads = disk.take().0.concat().into_iter();
            reads.partition(|read| read.start < data_end)
        });
        let (data, rest): (Vec<Range<u64>>, Vec<Range<u64>>) = of_lazy;
        assert_eq!((data, vec![]), of_preloaded);
        assert!(of_preloaded.0.len() <= 24, "{} reads", of_preloaded.0.len());
        // Entries of some 24 bytes: 1,000 of them lie in three pieces at most, those of the bounds among them.
        assert!(rest.len() <= 3, "{rest:?}");
    }
}

/// Entries are of one size, so the number of entries shows how even the parts are.
#[test]
fn splitting_reads_the_index_only_for_parts_of_few_pieces() {
    let (file, count) = write(Vec::new(), 16 << 20, 400, 400);
    let disk = Disk::of(Bytes::from(file));
    for (n, reads_index) in [(1, false), (2, false), (8, false), (40, true), (300, true)] {
        let table = open(&disk);
        disk.take();
        let parts = table.splits(n).unwrap();
        assert_eq!(disk.take().reads() > 0, reads_index, "{n} parts");
        assert_eq!(parts.len(), n);
        let mut sum = 0;
        for bounds in parts {
            let entries = table.range(bounds).map(Result::unwrap).count();
            let even = count / n;
            assert!(entries.abs_diff(even) * 4 <= even, "{entries} of {even}");
            sum += entries;
        }
        assert_eq!(sum, count);
    }
}

/// The pieces that a batch needs come in as few waves as those of one key, whatever the number of keys: filter and index; then a wave
/// for each further layer of the filter that one of the keys is in.
#[test]
fn a_batch_brings_pieces_in_as_few_waves_as_one_key() {
    let (file, count) = write(Vec::new(), 50 << 20, 16, 100);
    let data_end = Layout::of(&file).data.last().unwrap().end as u64;
    let disk = Disk::of(Bytes::from(file));
    let mut random = Random(8);
    for of in [1, 10, 1000] {
        let table = open(&disk);
        disk.take();
        let picked: Vec<usize> = (0..of).map(|_| random.below(count)).collect();
        let present = picked.iter().map(|&i| key(i, 16));
        let keys: Vec<Vec<u8>> = present
            .chain(picked.iter().map(|&i| absent(i, 16)))
            .collect();
        let found = table.get_many(&keys).unwrap();
        for (i, value) in found.iter().enumerate() {
            assert_eq!(value.is_some(), i < of);
        }
        let steps = disk.take();
        let waves = steps.before_data(data_end);
        assert!(waves <= 3, "{of} keys: {waves} waves");
        let data = &steps.0[waves..];
        assert!(data.iter().flatten().all(|read| read.start < data_end));
    }
}

// ---- about.pieces, from docs/format.md ------------------------------------------------------

#[derive(Debug, Clone)]
struct About {
    version: u8,
    filter_count: u8,
    index: (u64, u64),
    filters: Vec<AboutFilter>,
    tops: Vec<Top>,
}

#[derive(Debug, Clone)]
struct AboutFilter {
    handle: (u64, u64),
    lg: u8,
    tail: Vec<u8>,
    crcs: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Top {
    key: Vec<u8>,
    len: u64,
    blocks: u64,
    last: (u64, u64),
    crc: u32,
}

fn take_u32(src: &mut &[u8]) -> u32 {
    let (number, rest) = src.split_first_chunk().unwrap();
    *src = rest;
    u32::from_le_bytes(*number)
}

fn take_pair(src: &mut &[u8]) -> (u64, u64) {
    (take_varint(src) as u64, take_varint(src) as u64)
}

fn pair((offset, size): (u64, u64)) -> Vec<u8> {
    [varint(offset), varint(size)].concat()
}

impl About {
    fn of(file: &[u8], layout: &Layout) -> About {
        let block = common::payload(file, layout.pieces.as_ref().unwrap());
        let (&version, mut rest) = block.split_first().unwrap();
        let filter_count = take_varint(&mut rest) as u8;
        let index = take_pair(&mut rest);
        let filter = |src: &mut &[u8]| {
            let handle = take_pair(src);
            let lg = take_varint(src) as u8;
            let (tail, after) = {
                let len = take_varint(src);
                src.split_at(len)
            };
            *src = after;
            let number = |from_end: usize| {
                let at = tail.len() - from_end;
                u32::from_le_bytes(tail[at..at + 4].try_into().unwrap()) as usize
            };
            // Before the offset of the filter, the offset of the offsets, lg(base): layers, bits, narrow segments, layer ends.
            let layers = usize::from(tail[tail.len() - 10]);
            let columns = usize::from(tail[tail.len() - 11]);
            let narrow = number(15);
            let segments = number(19 + 4 * (layers - 1));
            let words = 4 * (segments * columns + segments - narrow);
            let codes = segments.div_ceil(4);
            let count = words.div_ceil(1 << lg) + codes.div_ceil(1 << lg);
            assert_eq!(words + codes + tail.len(), handle.1 as usize);
            let crcs = (0..count).map(|_| take_u32(src)).collect();
            AboutFilter {
                handle,
                lg,
                tail: tail.to_vec(),
                crcs,
            }
        };
        let filters = (0..filter_count).map(|_| filter(&mut rest)).collect();
        let top = |(key, value): Entry| {
            let mut value = &value[..];
            Top {
                key,
                len: take_varint(&mut value) as u64,
                blocks: take_varint(&mut value) as u64,
                last: take_pair(&mut value),
                crc: take_u32(&mut value),
            }
        };
        let tops = common::entries(rest).into_iter().map(top).collect();
        About {
            version,
            filter_count,
            index,
            filters,
            tops,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut block = vec![self.version, self.filter_count];
        block.extend(pair(self.index));
        for filter in &self.filters {
            block.extend(pair(filter.handle));
            block.push(filter.lg);
            block.extend(varint(filter.tail.len() as u64));
            block.extend(&filter.tail);
            block.extend(filter.crcs.iter().flat_map(|crc| crc.to_le_bytes()));
        }
        let tops: Vec<Entry> = self
            .tops
            .iter()
            .map(|top| {
                let numbers = [varint(top.len), varint(top.blocks), pair(top.last)].concat();
                let value = [&numbers[..], &top.crc.to_le_bytes()].concat();
                (top.key.clone(), value)
            })
            .collect();
        block.extend(shared_block(&tops, 16));
        block
    }

    /// The ranges of the file that the pieces of index and filters take, as a reader asks for them.
    fn pieces(&self) -> Vec<(Section, Range<usize>)> {
        let mut pieces = Vec::new();
        let mut at = self.index.0 as usize;
        for top in &self.tops {
            pieces.push((Section::Index, at..at + top.len as usize));
            at += top.len as usize;
        }
        for filter in &self.filters {
            let start = filter.handle.0 as usize;
            let end = start + filter.handle.1 as usize;
            let tail = end - filter.tail.len();
            // Words and codes are divided apart, but together they are all that lies before the tail.
            for at in (start..tail).step_by(1 << filter.lg) {
                pieces.push((Section::Filter, at..tail.min(at + (1 << filter.lg))));
            }
        }
        pieces
    }

    /// The sums of the pieces' bytes, wherever they lie now.
    fn compute_crcs(&mut self, file: &[u8]) {
        let mut at = self.index.0 as usize;
        for top in &mut self.tops {
            let end = at.saturating_add(top.len as usize).min(file.len());
            top.crc = crc32c::crc32c(file.get(at..end).unwrap_or(&[]));
            at = end;
        }
    }
}

/// A block whose keys share prefixes, with a restart every `interval` entries.
fn shared_block(entries: &[Entry], interval: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut restarts: Vec<u32> = Vec::new();
    let mut before: &[u8] = &[];
    for (i, (key, value)) in entries.iter().enumerate() {
        let mut shared = 0;
        if i % interval == 0 {
            restarts.push(bytes.len() as u32);
        } else {
            let common = before.iter().zip(key);
            shared = common.take_while(|(a, b)| a == b).count();
        }
        let lens = [shared, key.len() - shared, value.len()];
        bytes.extend(lens.iter().flat_map(|&len| varint(len as u64)));
        bytes.extend(&key[shared..]);
        bytes.extend(value);
        before = key;
    }
    if restarts.is_empty() {
        restarts.push(0);
    }
    restarts.push(restarts.len() as u32);
    bytes.extend(restarts.iter().flat_map(|n| n.to_le_bytes()));
    bytes
}

/// `file` with another `about.pieces`, its checksum right, under `name`.
fn with_about(file: &[u8], layout: &Layout, name: &[u8], block: &[u8]) -> Vec<u8> {
    let start = layout.pieces.as_ref().unwrap().start;
    assert!(layout.metaindex.start > start && layout.index.start < start);
    let mut named = common::entries(&common::payload(file, &layout.metaindex));
    let mut out = file[..start].to_vec();
    let about = common::append(&mut out, block);
    for (key, value) in &mut named {
        if key == b"about.pieces" {
            (*key, *value) = (name.to_vec(), handle_of(&about));
        }
    }
    named.sort();
    let metaindex = common::append(&mut out, &common::block(&named));
    out.extend(common::footer(&metaindex, &layout.index));
    out
}

// ---- A sound table, and what it must answer -------------------------------------------------

struct Specimen {
    name: &'static str,
    file: Vec<u8>,
    layout: Layout,
    about: About,
    entries: Vec<Entry>,
    probes: Vec<Vec<u8>>,
}

impl Specimen {
    fn new(name: &'static str, options: &WriteOptions, entries: Vec<Entry>) -> Specimen {
        Specimen::of(name, common::build(options, &entries), entries)
    }

    fn of(name: &'static str, file: Vec<u8>, entries: Vec<Entry>) -> Specimen {
        let layout = Layout::of(&file);
        let about = About::of(&file, &layout);
        let mut specimen = Specimen {
            name,
            file,
            layout,
            about,
            entries,
            probes: Vec::new(),
        };
        specimen.choose_probes();
        // What was decoded here is all that there is.
        let block = common::payload(&specimen.file, specimen.layout.pieces.as_ref().unwrap());
        assert_eq!(specimen.about.encode(), block, "{name}");
        specimen
    }

    /// Keys about every top, and some others.
    fn choose_probes(&mut self) {
        let tops = self.about.tops.iter().map(|top| top.key.clone());
        let step = self.entries.len() / 40 + 1;
        let (first, last) = (&self.entries[0].0, &self.entries.last().unwrap().0);
        let some = self
            .entries
            .iter()
            .step_by(step)
            .map(|(key, _)| key.clone());
        let mut probes = BTreeSet::new();
        for key in tops.chain(some).chain([first.clone(), last.clone()]) {
            let at = self.entries.partition_point(|(other, _)| *other < key);
            for near in at.saturating_sub(2)..(at + 3).min(self.entries.len()) {
                probes.insert(self.entries[near].0.clone());
            }
            probes.insert([&key[..], b"\0"].concat());
            probes.insert(key[..key.len() - 1].to_vec());
            probes.insert(key);
        }
        probes.insert(vec![0xff; 20]);
        probes.insert(Vec::new());
        self.probes = probes.into_iter().collect();
    }

    fn position(&self, key: &[u8]) -> usize {
        self.entries.partition_point(|(other, _)| &other[..] < key)
    }

    fn value(&self, key: &[u8]) -> Option<&[u8]> {
        let entry = self.entries.get(self.position(key))?;
        (entry.0 == key).then_some(&entry.1[..])
    }

    /// Asks every `step`th probe everything. Returns how many answers were errors; none may be wrong.
    fn examine(&self, file: &[u8], step: usize, what: &str) -> Outcome {
        let file = Bytes::copy_from_slice(file);
        let options = OpenOptions::new()
            .no_cache()
            .prefix_extractor(FixedPrefix::new(PREFIX));
        let mut outcome = Outcome::default();
        for source in [
            leveltable::Source::from(file.clone()),
            Arc::new(file).into(),
        ] {
            let Ok(table) = options.open_source(source) else {
                outcome.refused += 1;
                continue;
            };
            let mut cursor = table.cursor();
            let mut errors = 0;
            for key in self.probes.iter().step_by(step) {
                let context = || format!("{}, {what}: {}", self.name, key.escape_ascii());
                let expected = self.value(key);
                match table.may_contain(key) {
                    Ok(may_be) => assert!(may_be || expected.is_none(), "{}", context()),
                    Err(_) => errors += 1,
                }
                match table.get(key) {
                    Ok(found) => assert_eq!(found.as_deref(), expected, "{}", context()),
                    Err(_) => errors += 1,
                }
                let at = self.position(key);
                match cursor.seek(key) {
                    Ok(found) => {
                        let here = found.then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
                        assert_eq!(here.as_ref(), self.entries.get(at), "seek, {}", context());
                    }
                    Err(_) => errors += 1,
                }
                if key.len() >= PREFIX {
                    let prefix = &key[..PREFIX];
                    let first = self.entries.get(self.position(prefix));
                    let first = first.filter(|(key, _)| key.starts_with(prefix));
                    match table.prefix(prefix).next() {
                        Some(Err(_)) => errors += 1,
                        found => {
                            let found = found.map(|entry| entry.unwrap().0.to_vec());
                            let expected = first.map(|(key, _)| key.clone());
                            assert_eq!(found, expected, "prefix, {}", context());
                        }
                    }
                }
            }
            match table.get_many(&self.probes) {
                Ok(values) => {
                    for (key, value) in self.probes.iter().zip(values) {
                        assert_eq!(value.as_deref(), self.value(key), "{what}");
                    }
                }
                Err(_) => errors += 1,
            }
            match table.last() {
                Ok(last) => assert_eq!(last.unwrap().0, self.entries.last().unwrap().0, "{what}"),
                Err(_) => errors += 1,
            }
            if step == 1 {
                errors += self.walk(table.iter(), self.entries.iter(), what);
                errors += self.walk(table.iter().rev(), self.entries.iter().rev(), what);
            }
            outcome.errors += usize::from(errors > 0);
            outcome.unharmed += usize::from(errors == 0);
        }
        outcome
    }

    fn walk<'a>(
        &self,
        walk: impl Iterator<Item = leveltable::Result<(Bytes, Bytes)>>,
        mut expected: impl Iterator<Item = &'a Entry>,
        what: &str,
    ) -> usize {
        for found in walk {
            let Ok((key, value)) = found else { return 1 };
            let found = (key.to_vec(), value.to_vec());
            assert_eq!(Some(&found), expected.next(), "{}, {what}", self.name);
        }
        assert_eq!(
            expected.next(),
            None,
            "{}, {what}: a walk ends early",
            self.name
        );
        0
    }
}

const PREFIX: usize = 8;

/// How many openings, from memory and by reads, were refused, gave errors, or only right answers.
#[derive(Debug, Default, Clone, Copy)]
struct Outcome {
    refused: usize,
    errors: usize,
    unharmed: usize,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Outcome) {
        self.refused += other.refused;
        self.errors += other.errors;
        self.unharmed += other.unharmed;
    }
}

/// Tables whose tail is longer than what opening reads, with pieces before it: short keys; long keys of different lengths,
/// compressed; prefixes.
fn specimens() -> Vec<Specimen> {
    let value = |i: usize| format!("value {i}").into_bytes();
    let short = (0..6_000).map(|i| (key(i, 16), value(i))).collect();
    let mut random = Random(5);
    let mut long: Vec<Entry> = (0..1_500)
        .map(|i| {
            let len = 13 + random.below(200);
            (key(i, len), value(i))
        })
        .collect();
    long.sort();
    let prefixes = (0..5_000).map(|i| (format!("{:08}{:04}", i / 3, i).into_bytes(), value(i)));
    let options = WriteOptions::new().block_size(1);
    vec![
        Specimen::new(
            "short keys",
            &options.clone().compression(Compression::None),
            short,
        ),
        Specimen::new(
            "long keys",
            &options.clone().compression(Compression::Snappy),
            long,
        ),
        Specimen::new(
            "prefixes",
            &options.prefix_filter(FixedPrefix::new(PREFIX)),
            prefixes.collect(),
        ),
    ]
}

// ---- Damage ---------------------------------------------------------------------------------

#[test]
fn sound_tables_answer_right() {
    for specimen in specimens() {
        let sound = specimen.examine(&specimen.file, 1, "sound");
        assert_eq!(sound.unharmed, 2, "{}", specimen.name);
        assert!(
            specimen.about.tops.len() > 2,
            "{}",
            specimen.about.tops.len()
        );
        assert!(!specimen.about.filters.is_empty());
    }
}

/// Every bit of what opening needs: properties, `about.pieces`, metaindex, footer.
#[test]
fn every_flipped_bit_of_the_tail_is_an_error_or_harmless() {
    for specimen in specimens() {
        let start = specimen.layout.properties.as_ref().unwrap().start;
        assert!(start < specimen.layout.pieces.as_ref().unwrap().start);
        let mut damaged = specimen.file.clone();
        let mut tally = Outcome::default();
        for byte in start..damaged.len() {
            for bit in 0..8 {
                damaged[byte] ^= 1 << bit;
                let what = format!("bit {bit} of byte {byte}");
                tally += specimen.examine(&damaged, 29, &what);
                damaged[byte] ^= 1 << bit;
            }
        }
        println!("{}: {tally:?}, 0 wrong", specimen.name);
        // Only the zeros after the footer's handles do not matter.
        assert!(tally.unharmed <= 2 * 8 * 40, "{tally:?}");
        assert!(
            tally.refused >= 2 * 8 * (specimen.file.len() - 40 - start),
            "{tally:?}"
        );
    }
}

/// Eight bits of every piece: those who need it get an error, all others the right answer, and opening need not see it.
#[test]
fn flipped_bits_of_pieces_are_errors_where_they_are_needed() {
    let mut random = Random(26);
    for specimen in specimens() {
        let mut tally = Outcome::default();
        for (section, piece) in specimen.about.pieces() {
            for _ in 0..8 {
                let (byte, bit) = (piece.start + random.below(piece.len()), random.below(8));
                let mut damaged = specimen.file.clone();
                damaged[byte] ^= 1 << bit;
                let what = format!("bit {bit} of byte {byte}, {section}");
                let outcome = specimen.examine(&damaged, 1, &what);
                assert_eq!(outcome.unharmed, 0, "{what}: {outcome:?}");
                tally += outcome;
                let all = OpenOptions::new()
                    .prefix_extractor(FixedPrefix::new(PREFIX))
                    .preload(true)
                    .open_source(damaged);
                let error = all.expect_err("preloading reads all");
                let corruption = error.corruption().expect("corruption");
                assert_eq!(corruption.section, section, "{what}: {error}");
            }
        }
        println!("{}: {tally:?}, 0 wrong", specimen.name);
        assert!(tally.errors > 0, "{tally:?}");
    }
}

// ---- Other writers' pieces ------------------------------------------------------------------

/// The index's entries, and where each begins in the block.
fn index_entries(specimen: &Specimen) -> (Vec<Entry>, Vec<usize>) {
    let block = common::payload(&specimen.file, &specimen.layout.index);
    let entries = common::entries(&block);
    let mut starts = vec![0];
    for (key, value) in &entries {
        let lens = 1 + varint(key.len() as u64).len() + varint(value.len() as u64).len();
        starts.push(starts.last().unwrap() + lens + key.len() + value.len());
    }
    (entries, starts)
}

/// What any writer may choose: pieces that end elsewhere.
fn cut(about: &About, file: &[u8], entries: &[Entry], starts: &[usize], ends: &[usize]) -> About {
    let mut first = 0;
    let mut lie = about.clone();
    lie.tops = ends
        .iter()
        .map(|&end| {
            let (key, value) = &entries[end - 1];
            let top = Top {
                key: key.clone(),
                len: (starts[end] - starts[first]) as u64,
                blocks: (end - first) as u64,
                last: take_pair(&mut &value[..]),
                crc: 0,
            };
            first = end;
            top
        })
        .collect();
    lie.compute_crcs(file);
    lie
}

fn random_cut(random: &mut Random, count: usize) -> Vec<usize> {
    let most = 1 + random.below(60);
    let mut ends: BTreeSet<usize> = (0..random.below(most))
        .map(|_| 1 + random.below(count))
        .collect();
    ends.insert(count);
    ends.into_iter().collect()
}

/// Whoever ignores the block answers right, by the entries; with the block in its place, too.
#[test]
fn a_reader_that_ignores_the_block_answers_right() {
    for specimen in specimens() {
        let block = specimen.about.encode();
        let ignored = with_about(&specimen.file, &specimen.layout, b"about.piecez", &block);
        assert_eq!(specimen.examine(&ignored, 1, "ignored").unharmed, 2);
        let same = with_about(&specimen.file, &specimen.layout, b"about.pieces", &block);
        assert_eq!(specimen.examine(&same, 1, "same").unharmed, 2);
        let other_version = About {
            version: 7,
            ..specimen.about.clone()
        };
        let unknown = other_version.encode();
        let unknown = with_about(&specimen.file, &specimen.layout, b"about.pieces", &unknown);
        assert_eq!(specimen.examine(&unknown, 1, "version 7").unharmed, 2);
    }
}

#[test]
fn pieces_may_end_anywhere() {
    let mut random = Random(4);
    for specimen in specimens() {
        let (entries, starts) = index_entries(&specimen);
        let count = entries.len();
        let each: Vec<usize> = (1..=count).collect();
        let mut cuts = vec![vec![count], each];
        cuts.extend((0..10).map(|_| random_cut(&mut random, count)));
        for ends in cuts {
            let about = cut(&specimen.about, &specimen.file, &entries, &starts, &ends);
            let block = about.encode();
            let file = with_about(&specimen.file, &specimen.layout, b"about.pieces", &block);
            let outcome = specimen.examine(&file, 1, "cut elsewhere");
            assert_eq!(outcome.unharmed, 2, "{}: {ends:?}", specimen.name);
        }
    }
}

// ---- Tables of other writers ----------------------------------------------------------------

/// A table without properties and without `about.pieces`, an entry a block, whose index block is made by `index`.
fn foreign(count: usize, index: impl FnOnce(&[Entry]) -> Vec<u8>) -> (Vec<u8>, Vec<Entry>) {
    let entries: Vec<Entry> = (0..count).map(|i| (key(i, 40), varint(i as u64))).collect();
    let mut file = Vec::new();
    let handles: Vec<Entry> = entries
        .iter()
        .map(|entry| {
            let block = common::append(&mut file, &common::block(std::slice::from_ref(entry)));
            (entry.0.clone(), handle_of(&block))
        })
        .collect();
    let index = index(&handles);
    (common::append_end(file, &[], &index), entries)
}

fn from_reads(file: &[u8]) -> leveltable::Result<Table> {
    let source = Arc::new(Bytes::copy_from_slice(file));
    let options = OpenOptions::new().comparator(BytewiseComparator).no_cache();
    options.open_source(source)
}

#[test]
fn an_index_of_any_restart_interval_is_read() {
    for count in [1, 2, 3, 16, 17, 33, 5_000] {
        for interval in [1, 2, 3, 16, 10_000] {
            let (file, entries) = foreign(count, |handles| shared_block(handles, interval));
            let table = from_reads(&file).unwrap();
            assert_eq!(table.data_blocks(), count);
            common::assert_holds(&table, &entries);
            for i in (0..count).step_by(count / 7 + 1) {
                assert_eq!(table.get(absent(i, 40)).unwrap(), None);
            }
        }
    }
}

/// The index is read and decoded when the table is opened.
#[test]
fn the_index_of_another_writer_is_read_once() {
    let (file, entries) = foreign(5_000, common::block);
    let layout = Layout::of(&file);
    assert!(layout.index.len() > 5 * (16 << 10));
    let disk = Disk::of(Bytes::from(file));
    let options = OpenOptions::new().comparator(BytewiseComparator).no_cache();
    let table = options.open_source(Arc::clone(&disk)).unwrap();
    let opening = disk.take();
    assert!(opening.reads() <= 3, "{opening:?}");
    let weight = table.weight();
    assert!(weight >= layout.index.len());
    for (key, value) in entries.iter().step_by(50) {
        assert_eq!(table.get(key).unwrap().as_deref(), Some(&value[..]));
        assert_eq!(disk.take().reads(), 1);
    }
    assert_eq!(table.weight(), weight);
}

/// Restarts that do not ascend, or lead elsewhere, are errors of opening. If one is missing, or is no entry, every answer is right.
#[test]
fn irregular_restarts_of_an_index_are_errors() {
    let mut random = Random(6);
    for count in [40, 5_000] {
        let regular = foreign(count, common::block);
        let starts = {
            let index = common::payload(&regular.0, &Layout::of(&regular.0).index);
            let at = index.len() - 4 - 4 * count;
            let restarts = index[at..index.len() - 4].chunks_exact(4);
            let restarts = restarts.map(|n| u32::from_le_bytes(n.try_into().unwrap()));
            restarts.collect::<Vec<u32>>()
        };
        let with = |restarts: &[u32]| {
            let (file, _) = foreign(count, |handles| {
                let mut block = common::block(handles);
                block.truncate(block.len() - 4 - 4 * count);
                block.extend(restarts.iter().flat_map(|n| n.to_le_bytes()));
                block.extend((restarts.len() as u32).to_le_bytes());
                block
            });
            file
        };
        assert_eq!(with(&starts), regular.0);
        let entries = &regular.1;
        for round in 0..60 {
            let at = match round {
                0 => 2,
                1 => count - 1,
                _ => 2 + random.below(count - 2),
            };
            let mut restarts = starts.clone();
            match round % 5 {
                0 => drop(restarts.remove(at)),
                1 => restarts.insert(at, starts[at] - 1),
                2 => restarts[at] += 1,
                3 => restarts[at] = starts[at - 1],
                _ => restarts[at] = u32::MAX,
            }
            let file = with(&restarts);
            let what = format!("{count} entries, round {round}, restart {at}");
            let opened = from_reads(&file);
            if round % 5 > 2 {
                assert!(opened.is_err(), "{what}");
                continue;
            }
            let table = opened.expect(&what);
            common::assert_holds(&table, entries);
            for i in (0..count).step_by(13) {
                assert_eq!(table.get(absent(i, 40)).unwrap(), None, "{what}");
            }
        }
    }
}

// ---- Handles that lie -----------------------------------------------------------------------

/// Opened and asked for every key: no present key is missing in silence.
fn assert_nothing_hidden(file: &[u8], keys: &[Vec<u8>], what: &str) {
    let from_memory = OpenOptions::new().open_source(file.to_vec());
    for table in [from_memory, from_reads(file)].into_iter().flatten() {
        for key in keys {
            assert_ne!(table.get(key).ok(), Some(None), "{what}: {key:?}");
        }
    }
}

/// By the last handle of an index it was decided whether a filter of the first 2 KiB is one of the whole table: a handle that leads to
/// the first block hid the keys of all others.
#[test]
fn a_last_handle_that_lies_makes_no_filter_one_of_the_whole_table() {
    let bloom = leveltable::BloomFilterPolicy::new(10);
    let options = WriteOptions::leveldb().compression(Compression::None);
    let options = options.block_size(1).filter_policy(bloom);
    let keys: Vec<Vec<u8>> = (0..8000).map(|i| key(i, 40)).collect();
    let entries: Vec<Entry> = keys
        .iter()
        .map(|key| (key.clone(), b"v".to_vec()))
        .collect();
    let file = common::build(&options, &entries);
    let layout = Layout::of(&file);
    let mut index = common::entries(&common::payload(&file, &layout.index));
    index.last_mut().unwrap().1 = index[0].1.clone();
    // The filter of the first 2 KiB alone, with an offset of its own.
    let filters = common::payload(&file, layout.filter.as_ref().unwrap());
    let four = |at: usize| u32::from_le_bytes(filters[at..at + 4].try_into().unwrap()) as usize;
    let end = four(four(filters.len() - 5) + 4);
    let first = [&filters[..end], &[0; 4], &(end as u32).to_le_bytes(), &[11]].concat();
    let mut lie = file[..layout.data.last().unwrap().end].to_vec();
    let filter = common::append(&mut lie, &first);
    let named = [(
        b"filter.leveldb.BuiltinBloomFilter2".to_vec(),
        handle_of(&filter),
    )];
    let lie = common::append_end(lie, &named, &common::block(&index));
    assert_nothing_hidden(&lie, &keys, "the last handle leads to the first block");
}

/// A footer and `about.pieces` that agree on an index outside the file: no panic, and no read of it.
#[test]
fn an_index_outside_the_file_is_an_error_of_the_footer() {
    let entries: Vec<Entry> = (0..5000).map(|i| (key(i, 16), b"v".to_vec())).collect();
    let file = common::build(&WriteOptions::new().block_size(1), &entries);
    let layout = Layout::of(&file);
    for offset in [
        u64::MAX - 3,
        u64::MAX - 300_000,
        1 << 50,
        2 * file.len() as u64,
    ] {
        let mut about = About::of(&file, &layout);
        about.index.0 = offset;
        let mut lie = file[..layout.pieces.as_ref().unwrap().start].to_vec();
        let at = common::append(&mut lie, &about.encode());
        let mut named = common::entries(&common::payload(&file, &layout.metaindex));
        for (name, value) in &mut named {
            if name == b"about.pieces" {
                *value = handle_of(&at);
            }
        }
        let metaindex = common::append(&mut lie, &common::block(&named));
        let mut footer = [handle_of(&metaindex), pair(about.index)].concat();
        footer.resize(40, 0);
        lie.extend(footer);
        lie.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
        for opened in [
            OpenOptions::new().open_source(lie.clone()),
            from_reads(&lie),
        ] {
            let error = opened.unwrap_err();
            let section = error.corruption().map(|corruption| corruption.section);
            assert_eq!(section, Some(Section::Footer), "{offset}: {error}");
        }
    }
}

/// A damaged piece of the index costs a walk its own blocks' entries and those behind it, and none before.
#[test]
fn a_walk_goes_on_to_the_piece_that_is_damaged() {
    let entries: Vec<Entry> = (0..40_000).map(|i| (key(i, 16), b"v".to_vec())).collect();
    let options = WriteOptions::new().compression(Compression::None);
    let mut file = common::build(&options.block_size(1), &entries);
    let about = About::of(&file, &Layout::of(&file));
    let bad = about.tops.len() / 2;
    let at = &about.pieces()[bad].1;
    file[at.start + at.len() / 2] ^= 1;
    let blocks = |tops: &[Top]| tops.iter().map(|top| top.blocks as usize).sum::<usize>();
    let sound = [blocks(&about.tops[..bad]), blocks(&about.tops[bad + 1..])];
    for opened in [
        OpenOptions::new().open_source(file.clone()),
        from_reads(&file),
    ] {
        let table = opened.unwrap();
        let forward = table.iter().take_while(Result::is_ok).count();
        let backward = table.iter().rev().take_while(Result::is_ok).count();
        assert_eq!([forward, backward], sound);
    }
}

// ---- Threads --------------------------------------------------------------------------------

/// Many threads that ask for the same pieces at once: the same answers, and no piece is kept or weighed twice.
#[test]
fn threads_may_ask_for_the_same_pieces_at_once() {
    const THREADS: usize = 8;
    let (file, count) = write(Vec::new(), 10 << 20, 16, 100);
    let file = Bytes::from(file);
    let options = OpenOptions::new().no_cache();
    let preloaded = options.clone().preload(true);
    let whole = preloaded
        .open_source(Arc::new(file.clone()))
        .unwrap()
        .weight();
    for round in 0..20 {
        let table = options.open_source(Arc::new(file.clone())).unwrap();
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (table, barrier) = (&table, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for i in (round..count).step_by(count / 150) {
                        if thread % 2 == 0 {
                            assert!(table.get(key(i, 16)).unwrap().is_some());
                            assert_eq!(table.get(absent(i, 16)).unwrap(), None);
                        } else {
                            let keys = [key(i, 16), absent(i, 16)];
                            let found = table.get_many(&keys).unwrap();
                            assert!(found[0].is_some() && found[1].is_none());
                        }
                    }
                    assert_eq!(table.iter().map(Result::unwrap).count(), count);
                });
            }
        });
        assert!(table.weight() <= whole, "{} {whole}", table.weight());
        // By now every piece is there.
        assert!(
            table.weight() >= whole * 9 / 10,
            "{} {whole}",
            table.weight()
        );
    }
}
