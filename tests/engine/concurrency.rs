//! Many threads on one table with a cache too small for it, all checked against a model.
//!
//! Under ThreadSanitizer, which needs the nightly toolchain with `rust-src`:
//!
//! ```text
//! RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu \
//!     --test engine concurrency::
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::{self, Entry, Random};
use bytes::Bytes;
use leveltable::{
    BlockCache, BloomFilterPolicy, Compression, Cursor, OpenOptions, ReadAt, ReadOptions, Source,
    Table, WriteOptions,
};

const THREADS: u64 = 8;

/// Operations of each thread.
const OPERATIONS: usize = 300;

/// Even numbers, so that there is something absent between any two keys. Keys and lengths are the same whatever `salt`
/// is, and all values of four bytes or more differ.
fn some_entries(salt: u8) -> Vec<Entry> {
    let mut random = Random(0);
    let entry = |i: usize| {
        let len = random.below(60);
        let mut value = random.bytes(len);
        value.iter_mut().for_each(|byte| *byte ^= salt);
        (key(2 * i), value)
    };
    (0..1000).map(entry).collect()
}

fn key(number: usize) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn small_blocks() -> WriteOptions {
    WriteOptions::new().block_size(400).restart_interval(5)
}

/// A table and the entries that it holds.
#[derive(Clone)]
struct Modelled {
    table: Table,
    entries: Arc<Vec<Entry>>,
}

impl Modelled {
    fn new(table: Table, entries: Vec<Entry>) -> Modelled {
        Modelled {
            table,
            entries: Arc::new(entries),
        }
    }

    /// The place of the first entry at or after key number `number`.
    fn lower_bound(&self, number: usize) -> usize {
        number.div_ceil(2).min(self.entries.len())
    }

    /// One operation of a random kind at a random place; returns how much of it failed, if nothing
    /// else is wrong. A value that it got is added to `kept`.
    fn operate(
        &self,
        random: &mut Random,
        cursor: &mut Cursor,
        kept: &mut Vec<(usize, Bytes)>,
    ) -> usize {
        let Modelled { table, entries } = self;
        let number = random.below(2 * entries.len() + 2);
        let here = self.lower_bound(number);
        let present = number
            .is_multiple_of(2)
            .then(|| entries.get(here))
            .flatten();
        match random.below(8) {
            0 | 1 => match table.get(key(number)) {
                Ok(found) => {
                    assert_eq!(found.as_deref(), present.map(|(_, value)| &value[..]));
                    kept.extend(found.map(|value| (here, value)));
                    return 0;
                }
                Err(_) => return 1,
            },
            2 => match table.get_with(key(number), <[u8]>::to_vec) {
                Ok(found) => assert_eq!(found.as_ref(), present.map(|(_, value)| value)),
                Err(_) => return 1,
            },
            3 => assert!(table.may_contain(key(number)).unwrap() || present.is_none()),
            4 => {
                let end = number + random.below(60);
                let range = table.range(key(number)..key(end));
                return check_walk(range, entries[here..self.lower_bound(end)].iter());
            }
            5 => {
                let end = number + random.below(60);
                let aside = table.with_read_options(ReadOptions::new().fill_cache(false));
                let range = aside.range(key(number)..key(end)).rev();
                return check_walk(range, entries[here..self.lower_bound(end)].iter().rev());
            }
            6 => {
                let numbers: Vec<usize> = (0..20).map(|i| number + 7 * i).collect();
                let keys: Vec<_> = numbers.iter().map(|&number| key(number)).collect();
                let Ok(values) = table.get_many(&keys) else {
                    return 1;
                };
                for (number, found) in numbers.into_iter().zip(values) {
                    let place = number.is_multiple_of(2).then_some(number / 2);
                    let expected = place.and_then(|place| entries.get(place));
                    assert_eq!(found.as_deref(), expected.map(|(_, value)| &value[..]));
                    kept.extend(found.map(|value| (number / 2, value)));
                }
            }
            _ => {
                let mut place = here;
                let mut moved = cursor.seek(key(number));
                for _ in 0..random.below(30) {
                    let Ok(found) = moved else { return 1 };
                    let expected = entries.get(place);
                    assert_eq!(found, expected.is_some());
                    let (key, value) = expected.cloned().unwrap_or_default();
                    assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
                    moved = if random.below(2) == 0 && place < entries.len() {
                        place += 1;
                        cursor.next()
                    } else if place > 0 {
                        place -= 1;
                        cursor.prev()
                    } else {
                        cursor.seek_to_first()
                    };
                }
            }
        }
        0
    }
}

/// Asserts that a walk is right as far as it goes; returns 1 if it ended in an error.
fn check_walk<'a>(
    mut walk: impl Iterator<Item = leveltable::Result<(Bytes, Bytes)>>,
    expected: impl Iterator<Item = &'a Entry>,
) -> usize {
    for (key, value) in expected {
        match walk.next().expect("ends early") {
            Ok(entry) => assert_eq!((&entry.0[..], &entry.1[..]), (&key[..], &value[..])),
            Err(_) => return 1,
        }
    }
    // To know that it is at its end, a range may have to read one block more.
    match walk.next() {
        None => 0,
        Some(Ok((key, _))) => panic!("goes on to {:?}", key.escape_ascii()),
        Some(Err(_)) => 1,
    }
}

/// Runs all threads on all of `tables` at once; returns how many operations failed. Cursors change hands,
/// and values are compared again at the end.
fn hammer(tables: &[Modelled]) -> usize {
    let failed: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|seed| {
                // Made here, used there.
                let mut cursors: Vec<Cursor> = tables.iter().map(|t| t.table.cursor()).collect();
                scope.spawn(move || {
                    let mut random = Random(seed);
                    let mut kept = vec![Vec::new(); tables.len()];
                    let mut failed = 0;
                    for _ in 0..OPERATIONS {
                        let i = random.below(tables.len());
                        failed += tables[i].operate(&mut random, &mut cursors[i], &mut kept[i]);
                    }
                    for (table, kept) in tables.iter().zip(kept) {
                        for (i, value) in kept {
                            assert_eq!(value, table.entries[i].1);
                        }
                    }
                    failed
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    failed.into_iter().sum()
}

/// Reads whose bytes were counted by the source, to hold against the table's own statistics.
struct Disk {
    file: Bytes,
    reads: AtomicU64,
    /// Fails every so many reads; 0 for never.
    fails_every: u64,
}

impl ReadAt for Disk {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.len() as u64)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let read = 1 + self.reads.fetch_add(1, Ordering::Relaxed);
        // Opening always succeeds.
        if read > 4 && read.is_multiple_of(self.fails_every) {
            return Err(io::Error::other("the disk is on fire"));
        }
        self.file.read_at(offset, len)
    }
}

fn disk(write: &WriteOptions, entries: &[Entry], fails_every: u64) -> Arc<Disk> {
    let file = common::build(write, entries).into();
    Arc::new(Disk {
        file,
        reads: AtomicU64::new(0),
        fails_every,
    })
}

/// A cache for a twentieth of the table, so that blocks come and go all the time.
fn tiny_cache() -> OpenOptions {
    OpenOptions::new().cache(BlockCache::new(4 << 10))
}

#[test]
fn threads_share_a_table_and_a_tiny_cache() {
    let entries = some_entries(0);
    let bloom = small_blocks()
        .filter_policy(BloomFilterPolicy::new(10))
        .whole_table_filter(false);
    for write in [small_blocks(), small_blocks().no_filter(), bloom] {
        let disk = disk(&write, &entries, 0);
        let table = tiny_cache().open_source(Arc::clone(&disk)).unwrap();
        assert_eq!(hammer(&[Modelled::new(table.clone(), entries.clone())]), 0);
        let stats = table.stats();
        assert_eq!(
            stats.source_reads,
            disk.reads.load(Ordering::Relaxed),
            "none uncounted"
        );
        assert!(
            stats.cache_misses > 100 && stats.cache_hits > 0,
            "{stats:?}"
        );
    }
}

#[test]
fn threads_share_a_table_without_a_cache() {
    let entries = some_entries(0);
    let disk = disk(&small_blocks(), &entries, 0);
    let table = OpenOptions::new().no_cache().open_source(disk).unwrap();
    assert_eq!(hammer(&[Modelled::new(table, entries)]), 0);
}

/// Blocks in memory are verified once, whoever comes first; compressed ones go through the cache.
#[test]
fn threads_share_a_table_in_memory() {
    let entries = some_entries(0);
    for compression in [Compression::None, Compression::Snappy] {
        let file = common::build(&small_blocks().compression(compression), &entries);
        let table = tiny_cache().open_source(file).unwrap();
        assert_eq!(hammer(&[Modelled::new(table, entries.clone())]), 0);
    }
}

#[test]
fn threads_share_a_file() {
    let entries = some_entries(0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    std::fs::write(&path, common::build(&small_blocks(), &entries)).unwrap();
    let table = tiny_cache().open(&path).unwrap();
    assert_eq!(hammer(&[Modelled::new(table, entries)]), 0);
}

/// The blocks of all three have the same offsets, and must not be taken for each other.
#[test]
fn tables_share_a_tiny_cache() {
    let options = tiny_cache();
    let write = small_blocks().compression(Compression::None);
    let layouts = [1, 2, 3].map(|salt| {
        let file = common::build(&write, &some_entries(salt));
        format!("{:?}", common::Layout::of(&file).data)
    });
    assert!(layouts.iter().all(|layout| *layout == layouts[0]));
    let table = |salt| {
        let entries = some_entries(salt);
        let table = options.open_source(disk(&write, &entries, 0)).unwrap();
        Modelled::new(table, entries)
    };
    let tables = [1, 2, 3].map(table);
    assert_eq!(hammer(&tables), 0);
    for Modelled { table, .. } in tables {
        assert!(table.stats().cache_hits > 0, "{:?}", table.stats());
    }
}

/// A read that fails costs its own operation and does not affect the others.
#[test]
fn threads_share_a_disk_that_fails_now_and_then() {
    let entries = some_entries(0);
    let disk = disk(&small_blocks(), &entries, 7);
    let source = Source::from(disk.clone());
    let table = tiny_cache().open_source(source).unwrap();
    let failed = hammer(&[Modelled::new(table, entries)]);
    let reads = disk.reads.load(Ordering::Relaxed);
    println!("{failed} operations failed for {} failed reads", reads / 7);
    assert!(failed > 0 && failed as u64 <= reads / 7);
}
