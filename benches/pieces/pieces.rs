//! Times the pieces of a table: hashes, the checksum, searching and scanning a block, filters, building,
//! two threads at once.
//!
//! Uses the public interface only. A piece that is not public is measured with a table in which little else
//! happens: a lookup in a table of one block is mostly the search in that block. These benchmarks show the
//! effect of a change; `benches/peers` compares with other implementations.
//!
//! `cargo bench -p leveltable-pieces` runs all of them, `cargo bench -p leveltable-pieces -- NAME` those whose
//! names contain NAME.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use leveltable::{
    BlockCache, BloomFilterPolicy, Compression, OpenOptions, RibbonFilterPolicy, Table,
    WriteOptions, filter::FilterPolicy,
};

type Key = [u8; 16];

const BLOCK: usize = 4096;

/// Entries of 16 and 100 bytes that fill about one block.
const ENTRIES_OF_A_BLOCK: u64 = 38;

/// Returns `n` in 16 decimal digits.
fn key(n: u64) -> Key {
    let mut key = [b'0'; 16];
    let digits = n.to_string();
    key[16 - digits.len()..].copy_from_slice(digits.as_bytes());
    key
}

/// Returns 100 bytes, the second half equal to the first.
fn value(rng: &mut fastrand::Rng) -> [u8; 100] {
    let mut value = [0; 100];
    rng.fill(&mut value[..50]);
    value.copy_within(..50, 50);
    value
}

/// Returns the file of a table whose keys are the even numbers below `2 * entries`.
fn build(options: &WriteOptions, entries: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(entries);
    let mut file = Vec::new();
    let mut builder = options.build(&mut file);
    for n in 0..entries {
        builder.add(key(2 * n), value(&mut rng)).unwrap();
    }
    builder.finish().unwrap();
    file
}

fn open(file: Vec<u8>) -> Table {
    let options = OpenOptions::new().cache(BlockCache::new(1 << 30));
    options.open_source(file).unwrap()
}

fn raw() -> WriteOptions {
    WriteOptions::leveldb().compression(Compression::None)
}

/// Returns a table of one block, with a restart every 16 keys and no filter.
fn one_block(compression: Compression) -> Vec<u8> {
    let options = raw().compression(compression).no_filter();
    build(&options.block_size(1 << 20), ENTRIES_OF_A_BLOCK)
}

/// Returns the numbers of `range` as keys, in random order.
fn shuffled(range: impl Iterator<Item = u64>) -> Vec<Key> {
    let mut keys: Vec<Key> = range.map(key).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut keys);
    keys
}

/// Appends the filter that `policy` makes of `keys` to `dst`.
fn create_filter<K: AsRef<[u8]>>(
    policy: &(impl FilterPolicy + ?Sized),
    keys: impl IntoIterator<Item = K>,
    dst: &mut Vec<u8>,
) {
    let mut builder = policy.builder();
    for key in keys {
        builder.add_key(key.as_ref());
    }
    builder.finish(dst);
}

/// Building one filter of `n` keys, and asking it for present and for absent keys. A filter of few keys stays
/// in the fastest cache, so its probes show the cost of the hash.
fn filters(c: &mut Criterion) {
    let policies: [(&str, &dyn FilterPolicy); 2] = [
        ("bloom", &BloomFilterPolicy::new(10)),
        ("ribbon", &RibbonFilterPolicy::new(10)),
    ];
    for (name, policy) in policies {
        let mut group = c.benchmark_group(format!("filter/{name}"));
        for n in [1_000, 1_000_000] {
            let present = shuffled((0..n).map(|i| 2 * i));
            let absent = shuffled((0..n).map(|i| 2 * i + 1));
            let mut filter = Vec::new();
            create_filter(policy, &present, &mut filter);
            group.throughput(Throughput::Elements(1));
            for (which, keys) in [("present", &present), ("absent", &absent)] {
                let mut keys = keys.iter().cycle();
                group.bench_function(format!("probe {which} of {n}"), |b| {
                    b.iter(|| policy.key_may_match(keys.next().unwrap(), &filter));
                });
            }
            group.throughput(Throughput::Elements(n));
            group.bench_function(format!("make {n}"), |b| {
                b.iter(|| {
                    let mut filter = Vec::new();
                    create_filter(policy, black_box(&present), &mut filter);
                    filter
                });
            });
        }
    }
}

/// LevelDB's hash alone, in a filter of 64 bits with a single probe.
fn hash(c: &mut Criterion) {
    let policy = BloomFilterPolicy::new(1);
    let mut group = c.benchmark_group("hash");
    for len in [8, 16, 64, 1024] {
        let key = vec![b'k'; len];
        let mut filter = Vec::new();
        create_filter(&policy, [&key], &mut filter);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("{len} bytes"), |b| {
            b.iter(|| policy.key_may_match(black_box(&key), black_box(&filter)));
        });
    }
}

/// The checksum: reading a block of one large value from a source.
fn checksum(c: &mut Criterion) {
    let mut group = c.benchmark_group("checksum");
    for len in [BLOCK, 256 << 10] {
        let mut file = Vec::new();
        let mut builder = raw().no_filter().build(&mut file);
        builder.add(b"key", vec![b'v'; len]).unwrap();
        builder.finish().unwrap();
        // `Bytes` alone would be memory, which is verified only once. In an `Arc` it is a source to read from.
        let source = std::sync::Arc::new(Bytes::from(file));
        let table = OpenOptions::new().no_cache().open_source(source).unwrap();
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("read and verify {len} bytes"), |b| {
            b.iter(|| table.get_with(black_box(b"key"), <[u8]>::len).unwrap());
        });
    }
}

/// Searching one block that is in the processor's caches.
fn block_search(c: &mut Criterion) {
    let table = open(one_block(Compression::None));
    let present = shuffled((0..ENTRIES_OF_A_BLOCK).map(|n| 2 * n));
    let absent = shuffled((0..ENTRIES_OF_A_BLOCK).map(|n| 2 * n + 1));
    let mut group = c.benchmark_group("block");
    for (which, keys) in [("present", &present), ("absent", &absent)] {
        let mut keys = keys.iter().cycle();
        group.bench_function(format!("find {which}"), |b| {
            b.iter(|| table.get_with(keys.next().unwrap(), <[u8]>::len).unwrap());
        });
    }
    let mut cursor = table.cursor();
    let mut keys = present.iter().cycle();
    group.bench_function("seek", |b| {
        b.iter(|| cursor.seek(keys.next().unwrap()).unwrap());
    });
}

/// Decoding: scanning all entries of a block. The figures are for one entry.
fn decode(c: &mut Criterion) {
    let table = open(one_block(Compression::None));
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(ENTRIES_OF_A_BLOCK));
    let mut cursor = table.cursor();
    group.bench_function("forward", |b| {
        b.iter(|| {
            let mut bytes = 0;
            let mut on_entry = cursor.seek_to_first().unwrap();
            while on_entry {
                bytes += cursor.key().len() + cursor.value().len();
                on_entry = cursor.next().unwrap();
            }
            bytes
        });
    });
    group.bench_function("backward", |b| {
        b.iter(|| {
            let mut bytes = 0;
            let mut on_entry = cursor.seek_to_last().unwrap();
            while on_entry {
                bytes += cursor.key().len() + cursor.value().len();
                on_entry = cursor.prev().unwrap();
            }
            bytes
        });
    });
    group.bench_function("range", |b| {
        b.iter(|| {
            table
                .iter()
                .map(|entry| entry.unwrap().1.len())
                .sum::<usize>()
        });
    });
    // Without a cache, every lookup decompresses the block.
    let file = one_block(Compression::Snappy);
    let snappy = OpenOptions::new().no_cache().open_source(file).unwrap();
    group.throughput(Throughput::Bytes(BLOCK as u64));
    group.bench_function("Snappy block", |b| {
        b.iter(|| snappy.get_with(black_box(&key(0)), <[u8]>::len).unwrap());
    });
}

/// Encoding: building a table of 10,000 entries in memory. The figures are for one entry.
fn encode(c: &mut Criterion) {
    let mut rng = fastrand::Rng::with_seed(1);
    let entries: Vec<_> = (0..10_000).map(|n| (key(2 * n), value(&mut rng))).collect();
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements(entries.len() as u64));
    for (name, options) in [
        ("blocks alone", raw().no_filter()),
        ("with 2 KiB Bloom filters", raw()),
        ("with one Bloom filter", raw().whole_table_filter(true)),
        ("new()", WriteOptions::new().compression(Compression::None)),
        ("Snappy, no filter", WriteOptions::leveldb().no_filter()),
    ] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || Vec::with_capacity(4 << 20),
                |file| {
                    let mut builder = options.build(file);
                    for (key, value) in &entries {
                        builder.add(key, value).unwrap();
                    }
                    builder.finish().unwrap()
                },
                BatchSize::LargeInput,
            );
        });
    }
}

/// The index: finding the data block of a key among 27,000. The filter then excludes the key, so no block is
/// searched.
fn index(c: &mut Criterion) {
    let table = open(build(&raw(), 1_000_000));
    let keys = shuffled((0..100_000).map(|n| 20 * n + 1));
    let mut keys = keys.iter().cycle();
    c.bench_function("index/seek and 2 KiB filter", |b| {
        b.iter(|| table.may_contain(keys.next().unwrap()).unwrap());
    });
    let mut group = c.benchmark_group("open");
    for (name, options) in [("raw", raw()), ("Snappy", WriteOptions::leveldb())] {
        let file = Bytes::from(build(&options, 1_000_000));
        let options = OpenOptions::new();
        group.bench_function(format!("1,000,000 entries, {name}"), |b| {
            b.iter_with_large_drop(|| options.open_source(file.clone()).unwrap());
        });
    }
}

type LookUp<'a> = &'a (dyn Fn(&Key) + Sync);

/// Lookups in a small table in memory, by one thread and by two. The figures are for one lookup of each thread: if threads do not
/// contend, both are the same. On a busy machine two threads seldom run at the same time, and then do not show it.
fn threads(c: &mut Criterion) {
    let table = open(build(&raw(), 1000));
    let keys = shuffled((0..1000).map(|n| 2 * n));
    let get = |key: &Key| drop(black_box(table.get(key).unwrap()));
    let get_with = |key: &Key| {
        table.get_with(key, <[u8]>::len).unwrap();
    };
    let mut group = c.benchmark_group("threads");
    for (name, look_up) in [("get", &get as LookUp<'_>), ("get_with", &get_with)] {
        for threads in [1, 2] {
            group.bench_function(format!("{name}, {threads}"), |b| {
                b.iter_custom(|lookups| {
                    let barrier = Barrier::new(threads);
                    let time = || {
                        barrier.wait();
                        let start = Instant::now();
                        let keys = keys.iter().cycle();
                        keys.take(lookups as usize).for_each(look_up);
                        start.elapsed()
                    };
                    std::thread::scope(|scope| {
                        let running: Vec<_> = (0..threads).map(|_| scope.spawn(time)).collect();
                        let times = running.into_iter().map(|thread| thread.join().unwrap());
                        times.sum::<Duration>() / threads as u32
                    })
                });
            });
        }
    }
}

criterion_group!(
    pieces,
    hash,
    checksum,
    filters,
    block_search,
    decode,
    encode,
    index,
    threads
);
criterion_main!(pieces);
