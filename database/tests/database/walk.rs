//! Ranges from both ends, to keep entries and lent, against a model. The files are made here, by a second encoder.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::ops::Bound;
use std::path::Path;

use crate::common::{Log, batch, edit, internal, listing, scratch, take, write_database};
use bytes::Bytes;
use leveltable::WriteOptions;
use leveltable_database::{Database, TableMetadata};

type Entry = (Bytes, Bytes);

/// Of each key, the newest sequence number and value.
type Changes = BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>;

fn key(random: &mut fastrand::Rng) -> Vec<u8> {
    format!("k{:02}", random.u8(..60)).into_bytes()
}

fn changes(random: &mut fastrand::Rng, sequence: &mut u64) -> Changes {
    let mut change = |random: &mut fastrand::Rng| {
        *sequence += 1;
        let value = (random.u8(..4) > 0).then(|| sequence.to_string().into_bytes());
        (key(random), (*sequence, value))
    };
    let count = random.usize(1..30);
    (0..count).map(|_| change(random)).collect()
}

fn write_table(dir: &Path, number: u64, changes: &Changes) -> TableMetadata {
    let path = dir.join(format!("{number:06}.ldb"));
    let mut builder = WriteOptions::new().create_db(&path).unwrap();
    for (key, (sequence, value)) in changes {
        match value {
            Some(value) => builder.put(key, *sequence, value).unwrap(),
            None => builder.delete(key, *sequence).unwrap(),
        }
    }
    builder.finish().unwrap();
    let end = |(key, (sequence, value)): (&Vec<u8>, &(u64, Option<Vec<u8>>))| {
        let mut stored = internal(key, *sequence);
        stored[key.len()] = value.is_some().into();
        stored
    };
    TableMetadata {
        number,
        size: fs::metadata(path).unwrap().len(),
        smallest: end(changes.first_key_value().unwrap()),
        largest: end(changes.last_key_value().unwrap()),
    }
}

/// Tables of level 0 that overlap, and a log. Returns what is live.
fn write(dir: &Path, random: &mut fastrand::Rng) -> BTreeMap<Bytes, Bytes> {
    let (mut sequence, mut all) = (0, Changes::new());
    let mut manifest = Log::default();
    manifest.add(&edit(3, &[]));
    for number in 10..10 + random.u64(..5) {
        let changes = changes(random, &mut sequence);
        manifest.add(&listing(0, &write_table(dir, number, &changes)));
        all.extend(changes);
    }
    let mut log = Log::default();
    if random.bool() {
        for (key, (_, value)) in changes(random, &mut sequence) {
            sequence += 1;
            log.add(&batch(sequence, &[(&key, value.as_deref())]));
            all.insert(key, (sequence, value));
        }
    }
    write_database(dir, &manifest.0, &log.0);
    let live =
        { all.into_iter() }.filter_map(|(key, (_, value))| Some((key.into(), value?.into())));
    live.collect()
}

#[test]
fn ranges_are_the_same_from_both_ends_to_keep_and_lent() {
    for seed in 0..100 {
        let (dir, mut random) = (scratch(), fastrand::Rng::with_seed(seed));
        let live = write(dir.path(), &mut random);
        let db = Database::open_read_only(&dir).unwrap();
        for _ in 0..20 {
            let mut ends = [(); 2].map(|()| Bytes::from(key(&mut random)));
            ends.sort();
            let [from, to] = ends;
            let bound = |kind: u8, key: Bytes| match kind {
                0 => Bound::Unbounded,
                1 => Bound::Excluded(key),
                _ => Bound::Included(key),
            };
            let lower = bound(random.u8(..3), from.clone());
            // Both excluded, at one key, the model's range would panic.
            let upper = bound(if from == to { 2 } else { random.u8(..3) }, to);
            let left = live.range((lower.clone(), upper.clone()));
            let mut left: VecDeque<Entry> = left.map(|(k, v)| (k.clone(), v.clone())).collect();
            let mut range = db.range((lower, upper));
            let mut lent = Entry::default();
            loop {
                let way = random.u8(..3);
                let expected = match way {
                    0 | 1 => left.pop_front(),
                    _ => left.pop_back(),
                };
                let found = take(&mut range, way).map(Result::unwrap);
                assert_eq!(found, expected, "seed {seed}");
                // What the front lends stays while entries are taken from the back.
                if way < 2 || expected.is_none() {
                    lent = expected.clone().unwrap_or_default();
                }
                assert_eq!((range.key(), range.value()), (&lent.0[..], &lent.1[..]));
                if expected.is_none() {
                    break;
                }
            }
            assert!(range.next().is_none() && range.next_back().is_none());
            assert!(!range.advance().unwrap());
        }
    }
}
