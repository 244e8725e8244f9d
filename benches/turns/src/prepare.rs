//! One process writes the entries, the tables and the keys to look up for all others.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;

use crate::data::{KEY_LEN, Key, Keys, Kind, PROBE_LEN, Shape, VALUE_LEN};
use crate::redb_peer;
use crate::rows::{Row, Work};

/// A prime, so that neighbouring entries have different values.
const VALUES: usize = 10_007;
/// Keys to look up: those of the longest row, and some to warm up with.
const PROBES: usize = 1_200_000;
/// Neighbouring entries that are equally hot, of probes in hot ranges.
const RANGE: usize = 256;

/// Writes the files of `row` that are not there yet.
pub fn prepare(row: &Row, files: &Path, shape: Shape) -> Result<()> {
    if row.work == Work::BuildNumbers {
        return Ok(());
    }
    let data = row.data;
    fs::create_dir_all(data.directory(files, shape))?;
    let mut rng = fastrand::Rng::with_seed(data.entries as u64);
    let (keys, others) = keys(shape, data.entries, &mut rng);
    let values: Vec<u8> = (0..VALUES).flat_map(|_| value(&mut rng)).collect();
    let per_table = data.entries.div_ceil(data.tables);
    let mut entries = keys.iter().zip(values.chunks_exact(VALUE_LEN).cycle());
    for number in 0..data.tables {
        let part = entries.by_ref().take(per_table);
        new(&data.table(files, shape, number), |path| {
            write_table(data.kind, path, part)
        })?;
    }
    if row.work == Work::Build {
        let (to_keys, to_values) = data.entries(files, shape);
        new(&to_keys, |path| write_synced(path, keys.as_flattened()))?;
        new(&to_values, |path| write_synced(path, &values))?;
    }
    if row.redb {
        let entries = keys.iter().zip(values.chunks_exact(VALUE_LEN).cycle());
        new(&data.redb(files, shape), |path| {
            redb_peer::write(path, entries)
        })?;
    }
    if let Some(which) = row.work.probes() {
        let mut rng = fastrand::Rng::with_seed(1);
        new(&data.probes(files, shape, which), |path| {
            let drawn = draw(which, &keys, &others, per_table, &mut rng);
            write_synced(path, drawn.as_flattened())
        })?;
    }
    Ok(())
}

fn new(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() { Ok(()) } else { write(path) }
}

fn write_table<'a>(
    kind: Kind,
    path: &Path,
    entries: impl Iterator<Item = (&'a Key, &'a [u8])>,
) -> Result<()> {
    let mut bytes = Vec::new();
    let mut builder = kind.options().build(&mut bytes);
    for (key, value) in entries {
        builder.add(key, value)?;
    }
    builder.finish()?;
    write_synced(path, &bytes)
}

/// Synced, so that the system does not write it to the disk while others are timed.
fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    Ok(file.sync_all()?)
}

/// Returns `entries` keys, and as many others that are not among them.
fn keys(shape: Shape, entries: usize, rng: &mut fastrand::Rng) -> (Vec<Key>, Vec<Key>) {
    if shape == Shape::Decimal {
        let from = |first| (0..entries).map(move |i| decimal(2 * i + first)).collect();
        return (from(0), from(1));
    }
    let mut keys = vec![[0; KEY_LEN]; 2 * entries];
    keys.iter_mut().for_each(|key| rng.fill(key));
    let others = keys.split_off(entries);
    keys.sort_unstable();
    (keys, others)
}

fn decimal(number: usize) -> Key {
    let mut key = [b'0'; KEY_LEN];
    let digits = number.to_string();
    key[KEY_LEN - digits.len()..].copy_from_slice(digits.as_bytes());
    key
}

/// Returns a value as LevelDB's own benchmark makes it: printable random bytes, then the same bytes again.
fn value(rng: &mut fastrand::Rng) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    let (half, again) = value.split_at_mut(VALUE_LEN / 2);
    half.fill_with(|| rng.u8(b' '..=b'~'));
    again.copy_from_slice(half);
    value
}

fn draw(
    which: Keys,
    keys: &[Key],
    others: &[Key],
    per_table: usize,
    rng: &mut fastrand::Rng,
) -> Vec<[u8; PROBE_LEN]> {
    let zipf = Zipf::new(keys.len());
    let one = |_| {
        let (from, at) = match which {
            Keys::Present => (keys, rng.usize(..keys.len())),
            Keys::Absent => (others, rng.usize(..keys.len())),
            Keys::Mixed => ([keys, others][rng.usize(..2)], rng.usize(..keys.len())),
            Keys::Scattered => (keys, scatter(zipf.draw(rng), keys.len())),
            Keys::Ranges => (keys, in_ranges(zipf.draw(rng), keys.len())),
        };
        let mut probe = [0; PROBE_LEN];
        probe[0] = (at / per_table) as u8;
        probe[1..].copy_from_slice(&from[at]);
        probe
    };
    (0..PROBES).map(one).collect()
}

/// Moves `rank` to another place among `len`, each to one of its own unless `len` is a multiple of the prime.
fn scatter(rank: usize, len: usize) -> usize {
    (rank as u64 * 2_654_435_761 % len as u64) as usize
}

fn in_ranges(rank: usize, len: usize) -> usize {
    let ranges = (len / RANGE).max(1);
    (scatter(rank / RANGE % ranges, ranges) * RANGE + rank % RANGE).min(len - 1)
}

/// Draws ranks below a number by Zipf's law with the exponent 0.99.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(len: usize) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=len).map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        });
        Zipf(sums.collect())
    }

    fn draw(&self, rng: &mut fastrand::Rng) -> usize {
        let sum = self.0.last().copied().unwrap_or_default();
        let point = rng.f64() * sum;
        let rank = self.0.partition_point(|&upto| upto <= point);
        rank.min(self.0.len() - 1)
    }
}
