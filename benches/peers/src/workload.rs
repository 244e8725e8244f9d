//! The input of every peer, and the format of its results.
//!
//! The driver writes a workload of each size to a directory. Every peer, in Rust or C++, reads it from there, so
//! that all of them do the same work in the same order:
//!
//! | file | content |
//! |---|---|
//! | `keys` | all keys, ascending, concatenated |
//! | `values` | 10,007 values, concatenated; entry `i` has value `i % 10,007` |
//! | `present` | keys of the table, drawn at random with replacement |
//! | `zipf` | keys of the table, drawn from a Zipfian distribution (0.99); the most frequent ones lie scattered |
//! | `absent` | keys that are not in the table, drawn likewise, each between two that are |
//! | `starts` | the first fifth of `absent`, for seeks |
//! | `raw.ldb`, `snappy.ldb` | tables with `WriteOptions::leveldb()` |
//! | `whole.ldb` | the same, uncompressed, with one filter for the whole table |
//! | `default.ldb` | `WriteOptions::new()`, uncompressed: this crate's own filter |
//! | `new.ldb` | `WriteOptions::new()`: Snappy and this crate's own filter |
//!
//! The cold workload is a directory of its own, with `values`, `raw.ldb` and `default.ldb` as above, and
//!
//! | file | content |
//! |---|---|
//! | `present` | passes of 256 keys of the table; no two keys of a pass are in the same block or page |
//! | `absent` | the absent keys that follow them |
//! | `aligned.ldb` | as `default.ldb`, with blocks that do not cross pages |
//! | `default.blocks`, `aligned.blocks` | offset and length of the block of each of these keys, little-endian words |

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use leveltable::{Compression, Destination, Source, TableBuilder, WriteOptions};
use rustix::time::{ClockId, clock_gettime};

pub const KEY_LEN: usize = 16;
pub const VALUE_LEN: usize = 100;
pub const SEEK_STEPS: usize = 10;
/// Number of keys in a call of `get_many`, or of RocksDB's `MultiGet`.
pub const BATCH: usize = 256;
/// Number of lookups in a cold pass where the system reads ahead, some systems 8 MiB for each lookup. A pass must bring in
/// a small part of the file only.
pub const FEW: usize = 16;
pub const THREADS: usize = 2;
pub const CACHE_BYTES: u64 = 2 << 30;
/// The cache of every library that has one, where tables are opened as users do: this crate's default.
pub const USERS_CACHE_BYTES: u64 = 32 << 20;
/// The opening with the most speed: mapped where the peer can, with a cache of `CACHE_BYTES`.
pub const TUNED: &str = "tuned";

/// Entries between two keys of a cold pass: at least three blocks or pages of any peer.
const APART: usize = 128;

/// A prime, so that neighbouring entries have different values.
const VALUES: usize = 10_007;

pub type Key = [u8; KEY_LEN];

/// The shape of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyShape {
    /// Even numbers in 16 decimal digits. The odd numbers between them are absent.
    Decimal,
    /// Random bytes.
    Random,
}

/// Writes the workload of `entries` entries to `directory`.
pub fn write(directory: &Path, entries: usize, probes: usize, shape: KeyShape) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(entries as u64);
    let (keys, others) = match shape {
        KeyShape::Decimal => decimal_keys(entries),
        KeyShape::Random => random_keys(entries, &mut rng),
    };
    let mut draw = |from: &[Key], count| -> Vec<u8> {
        let drawn = (0..count).flat_map(|_| from[rng.usize(..from.len())]);
        drawn.collect()
    };
    let absent = draw(&others, probes);
    fs::create_dir_all(directory)?;
    fs::write(directory.join("keys"), keys.as_flattened())?;
    fs::write(directory.join("present"), draw(&keys, probes))?;
    fs::write(directory.join("zipf"), draw_zipf(&keys, probes, &mut rng))?;
    fs::write(directory.join("starts"), &absent[..probes / 5 * KEY_LEN])?;
    fs::write(directory.join("absent"), absent)?;
    let values: Vec<u8> = (0..VALUES)
        .flat_map(|_| half_compressible(&mut rng))
        .collect();
    fs::write(directory.join("values"), &values)?;
    for name in ["raw", "snappy", "whole", "default", "new"] {
        let mut file = Vec::new();
        build(&write_options(name), &mut file, &keys, &values)?;
        fs::write(directory.join(name).with_extension("ldb"), file)?;
    }
    Ok(())
}

/// Writes the cold workload of `entries` entries to `directory`, and keys for `passes` passes.
pub fn write_cold(directory: &Path, entries: usize, passes: usize, shape: KeyShape) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(entries as u64);
    let (keys, others) = match shape {
        KeyShape::Decimal => decimal_keys(entries),
        KeyShape::Random => random_keys(entries, &mut rng),
    };
    let mut apart: Vec<usize> = (0..entries).step_by(APART).collect();
    ensure!(
        apart.len() >= BATCH,
        "{entries} entries are too few: a cold pass needs {}",
        BATCH * APART
    );
    let mut probes = Vec::new();
    for _ in 0..passes {
        rng.shuffle(&mut apart);
        probes.extend_from_slice(&apart[..BATCH]);
    }
    let drawn = |from: &[Key]| -> Vec<u8> { probes.iter().flat_map(|&i| from[i]).collect() };
    fs::create_dir_all(directory)?;
    fs::write(directory.join("keys"), keys.as_flattened())?;
    fs::write(directory.join("present"), drawn(&keys))?;
    fs::write(directory.join("absent"), drawn(&others))?;
    let values: Vec<u8> = (0..VALUES)
        .flat_map(|_| half_compressible(&mut rng))
        .collect();
    fs::write(directory.join("values"), &values)?;
    for name in ["raw", "default", "aligned"] {
        let path = directory.join(name).with_extension("ldb");
        let mut file = BufWriter::new(File::create(&path)?);
        build(&write_options(name), &mut file, &keys, &values)?;
        file.into_inner()?.sync_all()?;
        if name != "raw" {
            write_blocks(directory, name, &probes)?;
        }
    }
    Ok(())
}

/// Draws keys as YCSB does: the key of rank `r` with a weight of `1 / r^0.99`, ranks in random order.
fn draw_zipf(keys: &[Key], count: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut ranked: Vec<usize> = (0..keys.len()).collect();
    rng.shuffle(&mut ranked);
    let mut total = 0.0;
    let sums: Vec<f64> = (1..=keys.len())
        .map(|rank| {
            total += (rank as f64).powf(-0.99);
            total
        })
        .collect();
    let drawn = (0..count).flat_map(|_| {
        let at = rng.f64() * total;
        keys[ranked[sums.partition_point(|sum| *sum <= at)]]
    });
    drawn.collect()
}

/// Writes where the blocks of the entries with these numbers are.
fn write_blocks(directory: &Path, name: &str, probes: &[usize]) -> Result<()> {
    let path = directory.join(name);
    let table = Source::open(path.with_extension("ldb"))?;
    let mut ends = Vec::new(); // the number of entries up to the end of each block
    let mut blocks = Vec::new();
    let mut entries = 0;
    for block in leveltable_repair::blocks(table)? {
        let block = block?;
        entries += block.entries as usize;
        ends.push(entries);
        blocks.push([block.offset, block.stored_bytes].map(u64::to_le_bytes));
    }
    let of_probes: Vec<_> = probes
        .iter()
        .map(|probe| blocks[ends.partition_point(|end| end <= probe)])
        .collect();
    let words = of_probes.as_flattened().as_flattened();
    Ok(fs::write(path.with_extension("blocks"), words)?)
}

/// Offset and length of a block in a file, checksum included.
pub type Block = (u64, usize);

/// Reads what `write_blocks` wrote of the table at `path`.
pub fn read_blocks(path: &Path) -> Result<Vec<Block>> {
    let path = path.with_extension("blocks");
    let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let (words, _) = bytes.as_chunks::<8>();
    let (blocks, _) = words.as_chunks::<2>();
    let block = |block: &[[u8; 8]; 2]| {
        let [offset, len] = block.map(u64::from_le_bytes);
        (offset, len as usize)
    };
    Ok(blocks.iter().map(block).collect())
}

pub fn write_options(table: &str) -> WriteOptions {
    let raw = Compression::None;
    match table {
        "aligned" => WriteOptions::new().compression(raw).block_align(true),
        "new" => WriteOptions::new(),
        "snappy" => WriteOptions::leveldb(),
        "whole" => WriteOptions::leveldb()
            .compression(raw)
            .whole_table_filter(true),
        "default" => WriteOptions::new().compression(raw),
        _ => WriteOptions::leveldb().compression(raw),
    }
}

/// Writes a table to `file` and returns the number of its entries.
pub fn build(
    options: &WriteOptions,
    file: impl std::io::Write,
    keys: &[Key],
    values: &[u8],
) -> leveltable::Result<Answers> {
    fill(options.build(file), keys, values)
}

/// Adds all entries to a table and finishes it. Returns their number.
pub fn fill<D: Destination>(
    mut builder: TableBuilder<D>,
    keys: &[Key],
    values: &[u8],
) -> leveltable::Result<Answers> {
    for (key, value) in entries(keys, values) {
        builder.add(key, value)?;
    }
    let count = builder.finish()?.properties.entries;
    Ok(Answers { checksum: 0, count })
}

/// The entries of the workload.
pub fn entries<'a>(keys: &'a [Key], values: &'a [u8]) -> impl Iterator<Item = (&'a Key, &'a [u8])> {
    keys.iter().zip(values.chunks_exact(VALUE_LEN).cycle())
}

/// Returns `entries` keys, and as many other keys that are not among them.
fn decimal_keys(entries: usize) -> (Vec<Key>, Vec<Key>) {
    let decimal = |n: usize| -> Key {
        let mut key = [b'0'; KEY_LEN];
        let digits = n.to_string();
        key[KEY_LEN - digits.len()..].copy_from_slice(digits.as_bytes());
        key
    };
    let from = |first: usize| (0..entries).map(move |i| decimal(2 * i + first)).collect();
    (from(0), from(1))
}

fn random_keys(entries: usize, rng: &mut fastrand::Rng) -> (Vec<Key>, Vec<Key>) {
    let mut keys = vec![[0; KEY_LEN]; 2 * entries];
    keys.iter_mut().for_each(|key| rng.fill(key));
    let others = keys.split_off(entries);
    keys.sort_unstable();
    (keys, others)
}

/// Returns a value as LevelDB's own benchmark makes it: random bytes, then the same bytes again.
fn half_compressible(rng: &mut fastrand::Rng) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    let (half, again) = value.split_at_mut(VALUE_LEN / 2);
    // Printable, as in that benchmark, and so slightly compressible.
    half.fill_with(|| rng.u8(b' '..=b'~'));
    again.copy_from_slice(half);
    value
}

/// Reads the keys in the file `name` of the workload.
pub fn read_keys(directory: &Path, name: &str) -> Result<Vec<Key>> {
    let bytes = read(directory, name)?;
    Ok(bytes.as_chunks().0.to_vec())
}

pub fn read(directory: &Path, name: &str) -> Result<Vec<u8>> {
    fs::read(directory.join(name)).with_context(|| format!("reading the workload's {name}"))
}

/// Summarises what was found, and in which order. `cpp/workload.h` has the C++ counterpart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    pub checksum: u64,
    pub count: u64,
}

impl Answers {
    #[inline]
    pub fn value(&mut self, value: &[u8]) {
        self.add(first_word(value));
    }

    #[inline]
    pub fn entry(&mut self, key: &[u8], value: &[u8]) {
        let key = key.last_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        self.add(key ^ first_word(value));
    }

    #[inline]
    fn add(&mut self, word: u64) {
        self.checksum = self.checksum.rotate_left(1).wrapping_add(word);
        self.count += 1;
    }
}

#[inline]
fn first_word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

/// A peer's measurement, in the unit of the row, and a summary of what it found.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub figure: f64,
    /// Bytes read from disk for each operation, in cold rows; size of the files, where files are written.
    pub disk_bytes: f64,
    pub answers: Answers,
}

/// Returns the processor time of the calling thread. The work never waits, so on an idle machine this equals the
/// elapsed time, and on a busy machine it excludes other programs.
pub fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs one pass to warm up and times a second one. Returns nanoseconds for each of `operations`.
pub fn time_second_pass(
    operations: usize,
    mut pass: impl FnMut() -> Result<Answers>,
) -> Result<Measured> {
    pass()?;
    let start = processor_time();
    let answers = pass()?;
    let took = processor_time() - start;
    Ok(Measured {
        disk_bytes: 0.0,
        figure: took.as_nanos() as f64 / operations as f64,
        answers,
    })
}

/// Times one call of `write`, which writes a file or directory at `path`: elapsed nanoseconds for each of `operations`, since libraries
/// write and sync in threads of their own, and the size of the files.
pub fn time_writing(
    operations: usize,
    path: &Path,
    write: impl FnOnce() -> Result<()>,
) -> Result<Measured> {
    remove(path)?;
    let start = Instant::now();
    write()?;
    let took = start.elapsed();
    let measured = Measured {
        figure: took.as_nanos() as f64 / operations as f64,
        disk_bytes: file_bytes(path)? as f64,
        answers: Answers {
            checksum: 0,
            count: operations as u64,
        },
    };
    remove(path)?;
    Ok(measured)
}

/// Removes a file or directory, if there is one.
pub fn remove(path: &Path) -> Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)?;
    } else if path.exists() {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Returns the size of a file, or of all files in a directory.
pub fn file_bytes(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path).with_context(|| format!("measuring {}", path.display()))?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += file_bytes(&entry?.path())?;
    }
    Ok(bytes)
}

/// Returns the work of two threads divided by that of one in the same time. `pass(first)` looks up all probes,
/// starting with number `first` and wrapping around.
pub fn time_threads(
    probes: usize,
    pass: impl Fn(usize) -> Result<Answers> + Sync,
) -> Result<Measured> {
    let pass = &pass;
    pass(0)?;
    let start = Instant::now();
    pass(0)?;
    let alone = start.elapsed();
    let start = Instant::now();
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| scope.spawn(move || pass(probes / THREADS * t)))
            .collect();
        let mut sum = Answers::default();
        for thread in threads {
            let answers = thread.join().expect("a lookup panicked")?;
            sum.checksum = sum.checksum.wrapping_add(answers.checksum);
            sum.count += answers.count;
        }
        anyhow::Ok(sum)
    })?;
    let together = start.elapsed();
    Ok(Measured {
        disk_bytes: 0.0,
        figure: alone.as_secs_f64() * THREADS as f64 / together.as_secs_f64(),
        answers,
    })
}

/// Returns the mean time of `open` in nanoseconds. Dropping the result is not timed. There is one result at a time: some
/// databases lock their directory.
pub fn time_open<T>(mut open: impl FnMut() -> Result<T>) -> Result<Measured> {
    drop(open()?);
    let (mut total, mut openings) = (Duration::ZERO, 0);
    while openings < 10 || total < Duration::from_millis(200) {
        let start = processor_time();
        let opened = open()?;
        total += processor_time() - start;
        drop(opened);
        openings += 1;
    }
    Ok(Measured {
        disk_bytes: 0.0,
        figure: total.as_nanos() as f64 / openings as f64,
        answers: Answers::default(),
    })
}

/// Returns the bytes on the heap that the result of `open` holds.
pub fn measure_memory<T>(open: impl FnOnce() -> Result<T>) -> Result<Measured> {
    let before = heap_bytes();
    let opened = open()?;
    let figure = heap_bytes() as f64 - before as f64;
    drop(opened);
    Ok(Measured {
        disk_bytes: 0.0,
        figure,
        answers: Answers::default(),
    })
}

/// Returns the bytes that glibc's allocator has handed out.
fn heap_bytes() -> usize {
    // SAFETY: the call only reads the allocator's counters.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
