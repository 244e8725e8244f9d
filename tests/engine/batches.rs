//! Reads that bring more than one block: batches of lookups, and walks that read ahead.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{self, CountingReadAt, Entry, Layout};
use bytes::Bytes;
use leveltable::{
    BlockCache, BytewiseComparator, Compression, ErrorKind, OpenOptions, ReadAt, ReadOptions,
    Source, Table, WriteOptions,
};

/// Part of a file: an offset and a length.
type Part = (u64, usize);

/// Records every read, and fails those that touch one byte of the file.
struct Disk {
    file: Bytes,
    reads: Mutex<Vec<Part>>,
    batches: Mutex<Vec<Vec<Part>>>,
    broken: AtomicU64,
}

impl Disk {
    fn of(file: &Bytes) -> Arc<Disk> {
        Arc::new(Disk {
            file: file.clone(),
            reads: Mutex::default(),
            batches: Mutex::default(),
            broken: AtomicU64::new(u64::MAX),
        })
    }

    fn read(&self, (offset, len): Part) -> io::Result<Bytes> {
        let broken = self.broken.load(Ordering::Relaxed);
        if (offset..offset + len as u64).contains(&broken) {
            return Err(io::Error::other("a bad sector"));
        }
        self.file.read_at(offset, len)
    }

    fn taken_reads(&self) -> Vec<Part> {
        std::mem::take(&mut self.reads.lock().unwrap())
    }

    fn taken_batches(&self) -> Vec<Vec<Part>> {
        std::mem::take(&mut self.batches.lock().unwrap())
    }
}

impl ReadAt for Disk {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.reads.lock().unwrap().push((offset, len));
        self.read((offset, len))
    }

    fn read_many_at(&self, parts: &[Part], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        self.batches.lock().unwrap().push(parts.to_vec());
        for (i, &part) in parts.iter().enumerate() {
            each(i, self.read(part));
        }
    }
}

fn entries(count: u32) -> Vec<Entry> {
    let entry = |i: u32| (key(i), common::Random(i.into()).bytes(100));
    (0..count).map(entry).collect()
}

fn key(i: u32) -> Vec<u8> {
    format!("{:08}", 2 * i).into_bytes()
}

fn build(count: u32) -> (Bytes, Layout) {
    let options = WriteOptions::new().compression(Compression::None);
    let file = Bytes::from(common::build(&options, &entries(count)));
    let layout = Layout::of(&file);
    (file, layout)
}

fn open(disk: &Arc<Disk>) -> Table {
    let table = OpenOptions::new().no_cache().open_source(Arc::clone(disk));
    disk.taken_reads();
    table.unwrap()
}

#[test]
fn a_walk_over_a_thousand_blocks_takes_23_reads() {
    let (file, layout) = build(36_000);
    let blocks = layout.data.len();
    assert!((900..1100).contains(&blocks), "{blocks}");
    let disk = Disk::of(&file);
    let table = open(&disk);
    let bytes: usize = layout.data.iter().map(|range| range.len()).sum();
    for walk in [
        |table: &Table| table.iter().map(Result::unwrap).count(),
        |table: &Table| table.iter().rev().map(Result::unwrap).count(),
    ] {
        assert_eq!(walk(&table), 36_000);
        let reads = disk.taken_reads();
        assert!(reads.len() <= 23, "{} reads", reads.len());
        assert_eq!(reads.iter().map(|&(_, len)| len).sum::<usize>(), bytes);
        assert!(reads.iter().all(|&(_, len)| len <= 256 << 10));
    }
}

/// A walk that ends after two blocks has read two. A range reads no block that has none of its keys.
#[test]
fn a_walk_reads_nothing_that_it_does_not_need() {
    let (file, layout) = build(4_000);
    let disk = Disk::of(&file);
    let table = open(&disk);
    let last_keys = layout.last_keys(&file);
    let block_of = |key: &[u8]| last_keys.partition_point(|last| &last[..] < key);
    for first in (0..4_000).step_by(97) {
        for count in [1, 10, 39, 100, 700] {
            let last = (first + count - 1).min(3_999);
            let needed = block_of(&key(first))..=block_of(&key(last));
            let start = layout.data[*needed.start()].start as u64;
            let end = layout.data[*needed.end()].end as u64;
            for range in [
                table.range(key(first)..=key(last)),
                table.range(key(first)..=key(last)),
            ] {
                for is_forward in [true, false] {
                    let found = if is_forward {
                        range.clone().map(Result::unwrap).count()
                    } else {
                        range.clone().rev().map(Result::unwrap).count()
                    };
                    assert_eq!(found as u32, last - first + 1);
                    let reads = disk.taken_reads();
                    assert!(
                        reads
                            .iter()
                            .all(|&(offset, len)| start <= offset && offset + len as u64 <= end)
                    );
                    let bytes: usize = reads.iter().map(|&(_, len)| len).sum();
                    assert_eq!(bytes as u64, end - start, "{first} {count} {is_forward}");
                }
            }
            // Without an end, a few entries are at most two blocks.
            let mut cursor = table.cursor();
            cursor.seek(key(first)).unwrap();
            for _ in 0..10 {
                cursor.next().unwrap();
            }
            let reads = disk.taken_reads();
            assert!(reads.len() <= 2);
            let bytes: usize = reads.iter().map(|&(_, len)| len).sum();
            assert!(bytes <= 2 * 4400, "{bytes} bytes");
        }
    }
}

/// Blocks that were read ahead and cannot be read are no errors of the entries before them.
#[test]
fn a_walk_ends_at_the_block_that_cannot_be_read() {
    let (file, layout) = build(4_000);
    for bad in [0, 1, 2, 3, 10, 50, layout.data.len() - 1] {
        for is_forward in [true, false] {
            let disk = Disk::of(&file);
            let table = open(&disk);
            disk.broken
                .store(layout.data[bad].start as u64 + 7, Ordering::Relaxed);
            let walk: Vec<_> = if is_forward {
                table.iter().collect()
            } else {
                table.iter().rev().collect()
            };
            let (error, before) = walk.split_last().unwrap();
            assert_eq!(error.as_ref().unwrap_err().kind(), ErrorKind::Io);
            let whole: Vec<Entry> = if is_forward {
                entries(4_000)
            } else {
                entries(4_000).into_iter().rev().collect()
            };
            let blocks = if is_forward {
                &layout.data[..bad]
            } else {
                &layout.data[bad + 1..]
            };
            let count: usize = blocks
                .iter()
                .map(|block| common::entries(&common::payload(&file, block)).len())
                .sum();
            assert_eq!(before.len(), count);
            for (found, expected) in before.iter().zip(&whole) {
                let (key, value) = found.as_ref().unwrap();
                assert_eq!((&key[..], &value[..]), (&expected.0[..], &expected.1[..]));
            }
        }
    }
}

/// A block that cannot be read, or is damaged, is an error of its keys and of no others.
#[test]
fn a_failed_read_of_a_batch_fails_the_keys_that_need_it() {
    let (file, layout) = build(4_000);
    let everything = entries(4_000);
    let keys: Vec<&Vec<u8>> = everything.iter().rev().map(|(key, _)| key).collect();
    for bad in [0, 1, 17, layout.data.len() - 1] {
        let at = layout.data[bad].start + 7;
        let of_bad = common::entries(&common::payload(&file, &layout.data[bad]));
        for is_damaged in [false, true] {
            let mut bytes = file.to_vec();
            bytes[at] ^= u8::from(is_damaged);
            let disk = Disk::of(&bytes.into());
            let table = open(&disk);
            if !is_damaged {
                disk.broken.store(at as u64, Ordering::Relaxed);
            }
            let kind = if is_damaged {
                ErrorKind::Corruption
            } else {
                ErrorKind::Io
            };
            for (key, value) in everything.iter().rev().step_by(17).chain(&of_bad) {
                let result = table.get_many(&[key]);
                if of_bad.iter().any(|(bad, _)| bad == key) {
                    assert_eq!(result.unwrap_err().kind(), kind);
                } else {
                    assert_eq!(result.unwrap()[0].as_ref().unwrap(), value);
                }
            }
            assert_eq!(table.get_many(&keys).unwrap_err().kind(), kind);
            let others: Vec<_> = keys
                .iter()
                .filter(|key| of_bad.iter().all(|(bad, _)| bad != **key))
                .collect();
            let values = table.get_many(&others).unwrap();
            let expected = everything.iter().rev();
            let expected = expected.filter(|(key, _)| of_bad.iter().all(|(bad, _)| bad != key));
            assert!(
                values
                    .iter()
                    .map(|value| value.as_deref())
                    .eq(expected.map(|(_, value)| Some(&value[..])))
            );
        }
    }
}

/// However many keys are asked for, a batch has at most 4 MiB and 512 parts. Parts do not overlap, ascend, and hold what is needed.
#[test]
fn batches_are_bounded_in_parts_and_bytes() {
    let (file, layout) = build(60_000);
    let disk = Disk::of(&file);
    let options = OpenOptions::new().no_cache().preload(true);
    let table = options.open_source(Arc::clone(&disk)).unwrap();
    // Those of opening.
    disk.taken_reads();
    disk.taken_batches();
    for step in [1, 50, 90] {
        let keys: Vec<Vec<u8>> = (0..60_000).rev().step_by(step).map(key).collect();
        let values = table.get_many(&keys).unwrap();
        assert!(values.iter().all(Option::is_some));
        assert!(disk.taken_reads().is_empty());
        let batches = disk.taken_batches();
        assert!(batches.len() > 1);
        let mut end = 0;
        for batch in &batches {
            assert!(batch.len() <= 512, "{} parts", batch.len());
            let bytes: usize = batch.iter().map(|&(_, len)| len).sum();
            assert!(bytes <= (4 << 20) + 512 * 5, "{bytes} bytes");
            for &(offset, len) in batch {
                assert!(end <= offset && len <= 256 << 10);
                end = offset + len as u64;
            }
        }
        let last_keys = layout.last_keys(&file);
        let block_of = |key: &Vec<u8>| last_keys.partition_point(|last| last < key);
        let needed: std::collections::BTreeSet<usize> = keys.iter().map(block_of).collect();
        let bytes: u64 = batches.iter().flatten().map(|&(_, len)| len as u64).sum();
        let lens = needed.iter().map(|&block| &layout.data[block]);
        assert_eq!(bytes, lens.map(|block| block.len() as u64).sum::<u64>());
    }
}

/// Blocks of a file that lie apart are read alone, and those that follow each other together.
#[test]
fn a_batch_of_a_file_finds_keys_that_lie_near_and_far() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let (file, layout) = build(4_000);
    std::fs::write(&path, &file).unwrap();
    for distance in [1, 500, 3_999] {
        let table = OpenOptions::new().no_cache().open(&path).unwrap();
        let (keys, values): (Vec<_>, Vec<_>) = entries(4_000).into_iter().step_by(distance).unzip();
        let before = table.stats().source_reads;
        let found = table.get_many(&keys).unwrap();
        assert!(
            found
                .into_iter()
                .eq(values.into_iter().map(|value| Some(value.into())))
        );
        let reads = table.stats().source_reads - before;
        assert!(
            reads < layout.data.len() as u64 / 4,
            "{reads} for {distance}"
        );
    }
}

/// A value from a file does not keep its block in memory, let alone what was read with the block.
#[test]
fn values_of_a_file_are_in_memory_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let (file, _) = build(4_000);
    std::fs::write(&path, &file).unwrap();
    let table = OpenOptions::new().no_cache().open(&path).unwrap();
    let in_memory = OpenOptions::new()
        .open_source(Source::load(&path).unwrap())
        .unwrap();
    let keys: Vec<Vec<u8>> = (0..4_000).map(key).collect();
    assert_eq!(
        table.get_many(&keys).unwrap(),
        in_memory.get_many(&keys).unwrap()
    );
    let values = table.get_many(&keys).unwrap();
    // Unique bytes can be taken back as a vector of their own length.
    for value in values.into_iter().flatten() {
        let vector: Vec<u8> = value.try_into_mut().expect("a copy").into();
        assert!(vector.capacity() < 200);
    }
}

/// Nor does a value of a walk keep the other blocks that came with its own: each block is copied when a value of it is taken.
#[test]
fn values_of_a_walk_keep_one_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let (file, layout) = build(4_000);
    std::fs::write(&path, &file).unwrap();
    let table = OpenOptions::new().no_cache().open(&path).unwrap();
    let values: Vec<Bytes> = table.iter().map(|entry| entry.unwrap().1).collect();
    let mut first = 0;
    let mut starts = Vec::new();
    for block in &layout.data {
        starts.push(values[first].as_ptr() as usize);
        first += common::entries(&common::payload(&file, block)).len();
    }
    assert_eq!(first, values.len());
    for (starts, blocks) in starts.windows(2).zip(layout.data.windows(2)) {
        let apart = starts[1].wrapping_sub(starts[0]);
        assert_ne!(apart, blocks[1].start - blocks[0].start, "as in the file");
    }
}

/// A block in memory is decompressed once for neighbouring keys, even if no cache keeps it, and even if their filter comes in pieces.
#[test]
fn a_batch_decompresses_a_block_in_memory_once() {
    let entries: Vec<Entry> = (0..100_000).map(|i| (key(i), vec![b'v'; 100])).collect();
    let options = WriteOptions::new().compression(Compression::Snappy);
    let file = common::build(&options, &entries);
    let table = OpenOptions::new().cache(BlockCache::new(1 << 20));
    let table = table.read(ReadOptions::new().fill_cache(false));
    let table = table.open_source(file).unwrap();
    let keys: Vec<&[u8]> = entries.iter().map(|(key, _)| &key[..]).collect();
    let found = table.get_many(&keys).unwrap();
    assert!(found.iter().all(Option::is_some));
    assert_eq!(table.stats().cache_misses, table.data_blocks() as u64);
}

#[test]
fn an_unknown_order_fails_a_batch() {
    let (file, _) = build(10);
    let table = OpenOptions::new().stored_order().open_source(file).unwrap();
    let result = table.get_many(&[key(1), key(2)]);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Comparator);
}

/// A source that knows nothing of batches is asked for one part after another.
#[test]
fn a_source_without_batches_reads_part_by_part() {
    struct Simple(Bytes);

    impl ReadAt for Simple {
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }

        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            self.0.read_at(offset, len)
        }
    }

    let (file, _) = build(4_000);
    let disk = Arc::new(CountingReadAt::new(Arc::new(Simple(file))));
    let table = OpenOptions::new()
        .no_cache()
        .open_source(Arc::clone(&disk))
        .unwrap();
    let opening = (disk.batches(), disk.reads());
    let keys: Vec<Vec<u8>> = (0..4_000).step_by(400).map(key).collect();
    assert!(table.get_many(&keys).unwrap().iter().all(Option::is_some));
    let batches = disk.batches() - opening.0;
    assert_eq!((batches, disk.reads() - opening.1), (1, 10));
}

/// A run of blocks is not read for one that lies in a long stretch of cached ones, and a cached block is taken from the cache.
#[test]
fn a_walk_reads_few_blocks_that_are_cached() {
    let (file, layout) = build(40_000);
    let disk = Disk::of(&file);
    let options = OpenOptions::new().cache(BlockCache::new(64 << 20));
    let table = options.open_source(Arc::clone(&disk)).unwrap();
    let not_cached = |i: usize| i % 20 == 19;
    for (i, block) in layout.data.iter().enumerate() {
        if !not_cached(i) {
            let first = &common::entries(&common::payload(&file, block))[0].0;
            table.get(first).unwrap();
        }
    }
    disk.taken_reads();
    let before = table.stats();
    for is_forward in [true, false] {
        let aside = table.with_read_options(ReadOptions::new().fill_cache(false));
        let walked = if is_forward {
            aside.iter().map(Result::unwrap).count()
        } else {
            aside.iter().rev().map(Result::unwrap).count()
        };
        assert_eq!(walked, 40_000);
        let blocks = 0..layout.data.len();
        let missing = blocks.filter(|&i| not_cached(i)).map(|i| &layout.data[i]);
        let expected: Vec<Part> = missing
            .map(|block| (block.start as u64, block.len()))
            .collect();
        let mut reads = disk.taken_reads();
        reads.sort_unstable();
        assert_eq!(reads, expected);
    }
    let stats = table.stats();
    let missing = layout.data.len().div_ceil(20) as u64;
    assert!(stats.cache_misses - before.cache_misses <= 2 * missing);
}

/// A source that gives too few results, or too many, for the parts that it was asked for, and those backward.
#[test]
fn results_that_are_missing_are_errors_and_more_are_ignored() {
    struct Miscounting(Bytes, isize);

    impl ReadAt for Miscounting {
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }

        fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            self.0.read_at(offset, len)
        }

        fn read_many_at(&self, parts: &[Part], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
            let count = parts.len().saturating_add_signed(self.1);
            let given = parts.iter().enumerate().cycle().take(count);
            let given: Vec<_> = given.collect();
            for &(i, &(offset, len)) in given.iter().rev() {
                each(i, self.0.read_at(offset, len));
            }
            if self.1 > 0 {
                each(0, Err(io::Error::other("given before")));
                each(parts.len(), Ok(Bytes::new()));
            }
        }
    }

    let (file, _) = build(4_000);
    let keys: Vec<Vec<u8>> = (0..4_000).step_by(400).map(key).collect();
    for (more, missing) in [(-1, 1), (-10, 10), (1, 0), (5, 0)] {
        let source = Arc::new(Miscounting(file.clone(), more));
        let table = OpenOptions::new().no_cache().open_source(source).unwrap();
        let results = table.get_many(&keys);
        if missing > 0 {
            assert_eq!(results.unwrap_err().kind(), ErrorKind::Io);
            continue;
        }
        for (found, i) in results.unwrap().iter().zip((0..).step_by(400)) {
            let value = common::Random(i).bytes(100);
            assert_eq!(found.as_ref().unwrap(), &value);
        }
    }
}

/// What lies between blocks is not read, except for the padding of an aligned table: a sparse file may have any amount.
#[test]
fn gaps_between_blocks_are_not_read() {
    let block = |i: u32| common::block(&[(i.to_be_bytes().to_vec(), vec![7; 20])]);
    let mut file = Vec::new();
    let mut index = Vec::new();
    for i in 0..64u32 {
        let range = common::append(&mut file, &block(i));
        index.push((i.to_be_bytes().to_vec(), common::handle_of(&range)));
        file.resize(file.len() + if i % 2 == 0 { 200_000 } else { 0 }, 0);
    }
    let file = common::append_end(file, &[], &common::block(&index));
    let keys: Vec<[u8; 4]> = (0..64u32).map(u32::to_be_bytes).collect();
    let disk = Disk::of(&file.into());
    let options = OpenOptions::new().comparator(BytewiseComparator).no_cache();
    let table = options.open_source(Arc::clone(&disk)).unwrap();
    // Those of opening.
    disk.taken_reads();
    disk.taken_batches();
    assert!(table.get_many(&keys).unwrap().iter().all(Option::is_some));
    let bytes: usize = disk
        .taken_batches()
        .iter()
        .flatten()
        .map(|&(_, len)| len)
        .sum();
    assert_eq!(bytes, 64 * (block(0).len() + 5));
    for _ in 0..2 {
        assert_eq!(table.iter().map(Result::unwrap).count(), 64);
        let bytes: usize = disk.taken_reads().iter().map(|&(_, len)| len).sum();
        assert_eq!(bytes, 64 * (block(0).len() + 5));
    }
}
