//! Compaction into a new directory, of databases that this crate built, and of directories in memory with faults.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use leveltable::db::{InternalKey, ValueType};
use leveltable::sister_crates::{POLICIES, filter_with};
use leveltable::{BloomFilterPolicy, Compression, DbTable, ErrorKind, SortedEntries, WriteOptions};
use leveltable_database::sister_crates::{self, open};
use leveltable_database::{
    CompactOptions, Compacted, Database, DatabaseBuildOptions, DatabaseBuilder, DatabaseOptions,
    compact_into,
};

use crate::common::memory::{Fault, Memory};
use crate::common::{Log, batch, codecs, edit, manifest, scratch, write_database};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database of old versions, deletions, and a log over them. Returns the live entries.
fn write(dir: &Path, seed: u64, tables: WriteOptions) -> Model {
    let mut random = fastrand::Rng::with_seed(seed);
    let options = DatabaseBuildOptions::new().table_bytes(5000).tables(tables);
    let mut builder = DatabaseBuilder::create(dir, options).unwrap();
    let mut model = Model::new();
    for key in 0..1000u32 {
        let key = format!("key/{key:05}").into_bytes();
        let sequences = (1..=random.u64(1..6))
            .map(|n| 100 * n + u64::from(key[8]))
            .rev();
        for (nth, sequence) in sequences.enumerate() {
            let value: Vec<u8> = (0..random.usize(..50)).map(|_| random.u8(..)).collect();
            let is_deletion = random.u8(..4) == 0;
            let value_type = if is_deletion {
                ValueType::Deletion
            } else {
                ValueType::Value
            };
            let version = InternalKey {
                user_key: &key,
                sequence,
                value_type,
            };
            builder
                .add(version, if is_deletion { &[] } else { &value[..] })
                .unwrap();
            if nth == 0 && !is_deletion {
                model.insert(key.clone(), value);
            }
        }
    }
    builder.finish().unwrap();
    let mut log = Log::default();
    for n in 0..100 {
        let key = format!("key/{:05}", random.u32(..1100)).into_bytes();
        let value = (random.u8(..3) > 0).then(|| vec![n as u8; 10]);
        log.add(&batch(10_000 + n, &[(&key, value.as_deref())]));
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
    fs::write(dir.join("000900.log"), log.0).unwrap();
    model
}

fn contents(db: &Database) -> Model {
    let entries = db
        .iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    entries.collect::<Result<_, _>>().unwrap()
}

/// Compacts, and checks that the source stays what it was. Returns the contents.
fn compacted(dir: &Path, options: CompactOptions<'_>) -> (Compacted, Model) {
    let times = |dir: &Path| -> BTreeMap<_, _> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.unwrap();
            let bytes = fs::read(entry.path()).unwrap();
            (
                entry.file_name(),
                (entry.metadata().unwrap().modified().unwrap(), bytes),
            )
        };
        fs::read_dir(dir).unwrap().map(entry).collect()
    };
    let before = (times(dir), fs::metadata(dir).unwrap().modified().unwrap());
    let new = dir.with_extension(format!("new{}", fastrand::u64(..)));
    let compacted = compact_into(dir, &new, options).unwrap();
    assert_eq!(
        (times(dir), fs::metadata(dir).unwrap().modified().unwrap()),
        before
    );
    let db = Database::open_read_only(&new).unwrap();
    let contents = contents(&db);
    assert_eq!(compacted.built.entries, contents.len() as u64);
    assert_eq!(
        db.history_range(..).unwrap().count(),
        contents.len(),
        "one version of each"
    );
    (compacted, contents)
}

#[test]
fn what_is_live_is_kept_and_nothing_else() {
    for seed in 0..10 {
        let scratch = scratch();
        let dir = scratch.path().join("db");
        let model = write(&dir, seed, WriteOptions::leveldb());
        let (all, copy) = compacted(&dir, CompactOptions::new());
        assert_eq!(copy, model);
        assert!(all.bytes_before > all.built.bytes && !all.has_writer);
        assert_eq!(all.built.last_sequence, 10_099);
        // Each entry keeps its sequence number.
        let old = Database::open_read_only(&dir).unwrap();
        let (key, _) = model.iter().nth(30).unwrap();
        let history = old.history(key).unwrap();
        let (_, two) = compacted(&dir, CompactOptions::new().range(&key[..]..=&key[..]));
        assert!(two.keys().eq([key]));
        assert!(history[0].sequence > 0);

        let bounds = (&b"key/00200"[..], &b"key/00700"[..]);
        let (_, part) = compacted(&dir, CompactOptions::new().range(bounds.0..bounds.1));
        let within = |key: &&Vec<u8>| &key[..] >= bounds.0 && &key[..] < bounds.1;
        assert!(part.keys().eq(model.keys().filter(within)));
        let (_, part) = compacted(&dir, CompactOptions::new().prefix("key/003"));
        assert!(
            part.keys()
                .eq(model.keys().filter(|key| key.starts_with(b"key/003")))
        );
        let (none, _) = compacted(&dir, CompactOptions::new().prefix("other"));
        assert_eq!((none.built.entries, none.built.last_sequence), (0, 10_099));
    }
}

#[test]
fn changes_come_last() {
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let scratch = scratch();
        let dir = scratch.path().join("db");
        let mut model = write(&dir, seed, WriteOptions::leveldb());
        let change = |random: &mut fastrand::Rng| {
            let key = format!("key/{:05}", random.u32(..1300)).into_bytes();
            (key, random.bool().then(|| vec![random.u8(..); 30]))
        };
        let changes: BTreeMap<_, _> = (0..200).map(|_| change(&mut random)).collect();
        let source = changes.iter().map(|(key, value)| (key, value.as_ref()));
        let (done, copy) = compacted(&dir, CompactOptions::new().changes(source));
        for (key, value) in &changes {
            match value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(key),
            };
        }
        assert_eq!(copy, model);
        assert_eq!(done.built.last_sequence, 10_100);
        // A change of a key that is not kept is made all the same.
        let source = [("a", Some("new"))];
        let (_, copy) = compacted(&dir, CompactOptions::new().prefix("none").changes(source));
        assert_eq!(copy, Model::from([(b"a".to_vec(), b"new".to_vec())]));
    }
}

#[test]
fn changes_that_do_not_ascend_are_an_error() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    write(&dir, 1, WriteOptions::leveldb());
    for changes in [["y", "x"], ["x", "x"]] {
        let changes = changes.map(|key| (key, None::<&str>));
        let options = CompactOptions::new().changes(changes);
        let error = compact_into(&dir, scratch.path().join("new"), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfOrder, "{error}");
    }
    assert!(!scratch.path().join("new").exists());
}

/// A policy that compaction does not know would be replaced in silence.
#[test]
fn every_filter_policy_that_is_built_in_is_kept() {
    for policy in &POLICIES {
        let scratch = scratch();
        let [dir, new] = ["db", "new"].map(|name| scratch.path().join(name));
        let tables = filter_with(WriteOptions::leveldb(), policy, 10.0);
        let options = DatabaseBuildOptions::new().tables(tables);
        let mut builder = DatabaseBuilder::create(&dir, options).unwrap();
        builder
            .extend(SortedEntries::new([("key", "value")]))
            .unwrap();
        builder.finish().unwrap();
        compact_into(&dir, &new, CompactOptions::new()).unwrap();
        let table = DbTable::open(new.join("000002.ldb")).unwrap();
        let name = (policy.make)(10.0).name().to_owned();
        assert_eq!(table.as_table().filter().unwrap().policy, name);
    }
}

#[test]
fn codec_filter_and_size_of_tables_are_the_sources() {
    let bloom = |bits| WriteOptions::leveldb().filter_policy(BloomFilterPolicy::new(bits));
    for (tables, codec, filter) in [
        (
            bloom(10).compression(Compression::None),
            "none",
            Some((10, "leveldb.BuiltinBloomFilter2")),
        ),
        (
            bloom(16),
            "snappy",
            Some((16, "leveldb.BuiltinBloomFilter2")),
        ),
        (WriteOptions::leveldb().no_filter(), "snappy", None),
        (
            WriteOptions::new(),
            "snappy",
            Some((10, "leveltable.Ribbon1")),
        ),
    ] {
        let scratch = scratch();
        let dir = scratch.path().join("db");
        let text = |i: u32| {
            (
                format!("key/{i:08}"),
                format!("the value of {i}, ").repeat(8),
            )
        };
        let entries: Vec<_> = (0..100_000).map(text).collect();
        let options = DatabaseBuildOptions::new()
            .tables(tables)
            .table_bytes(8 << 20);
        let mut builder = DatabaseBuilder::create(&dir, options).unwrap();
        builder
            .extend(SortedEntries::new(entries.iter().map(|(k, v)| (k, v))))
            .unwrap();
        let built = builder.finish().unwrap();
        let new = scratch.path().join("new");
        let copy = compact_into(&dir, &new, CompactOptions::new()).unwrap();
        if codec == "none" {
            assert_eq!(copy.built.tables, built.tables);
        }
        let filters = [&dir, &new].map(|dir| {
            let table = DbTable::open(dir.join("000002.ldb")).unwrap();
            let table = table.as_table();
            let codecs = codecs(table);
            assert!(codecs.contains(&codec), "{codecs:?}");
            table.filter().cloned()
        });
        assert_eq!(
            filters[0].as_ref().map(|f| &f.policy),
            filters[1].as_ref().map(|f| &f.policy)
        );
        assert_eq!(
            filters[1].as_ref().map(|f| &*f.policy),
            filter.map(|(_, name)| name)
        );
        let other = scratch.path().join("raw");
        let raw = CompactOptions::new().compression(Compression::None);
        compact_into(&dir, &other, raw).unwrap();
        let table = DbTable::open(other.join("000002.ldb")).unwrap();
        let codecs = codecs(table.as_table());
        assert!(codecs.iter().all(|&codec| codec == "none"), "{codecs:?}");
        assert_eq!(
            table.as_table().filter().map(|f| &*f.policy),
            filter.map(|(_, name)| name)
        );
    }
}

/// A directory that was copied without its logs, for example.
#[test]
fn a_missing_log_is_an_error_that_points_to_repair() {
    let scratch = scratch();
    let (dir, new) = (scratch.path().join("db"), scratch.path().join("new"));
    fs::create_dir(&dir).unwrap();
    let mut log = Log::default();
    log.add(&batch(1001, &[(b"key", Some(b"value"))]));
    write_database(&dir, &manifest(&[edit(3, &[])]), &log.0);
    let compacted = compact_into(&dir, &new, CompactOptions::new()).unwrap();
    assert_eq!(compacted.built.entries, 1);
    fs::remove_dir_all(&new).unwrap();
    fs::remove_file(dir.join("000003.log")).unwrap();
    let error = compact_into(&dir, &new, CompactOptions::new()).unwrap_err();
    let message = error.to_string();
    let expected = "opening a log that the MANIFEST needs: no such file; `repair` of ";
    assert!(
        message.contains(expected) && message.contains("000003.log"),
        "{message}"
    );
    assert!(!new.exists());
}

#[test]
fn damage_is_an_error_that_points_to_repair() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    write(&dir, 1, WriteOptions::leveldb());
    let tables: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    for file in tables
        .iter()
        .filter(|path| path.file_name().unwrap() != "CURRENT")
    {
        let name = file.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(file).unwrap();
        let mut damaged = bytes.clone();
        damaged[20] ^= 0x40;
        fs::write(file, &damaged).unwrap();
        let new = scratch.path().join("new");
        let error = compact_into(&dir, &new, CompactOptions::new()).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(name) && message.contains("repair it first"),
            "{message}"
        );
        if name.ends_with(".ldb") {
            fs::remove_file(file).unwrap();
            let message = compact_into(&dir, &new, CompactOptions::new())
                .unwrap_err()
                .to_string();
            assert!(
                message.contains(name) && message.contains("no such file; `repair` of "),
                "{message}"
            );
        }
        fs::write(file, bytes).unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
    let options = CompactOptions::new();
    let error = compact_into(&dir, dir.join("new"), options).unwrap_err();
    assert!(error.to_string().contains("beside it"), "{error}");
    assert!(
        compact_into(
            scratch.path(),
            scratch.path().join("new"),
            CompactOptions::new()
        )
        .is_err()
    );
}

#[test]
fn an_error_at_any_step_of_reading_and_writing_leaves_no_database() {
    let scratch = scratch();
    let dir = scratch.path().join("db");
    let model = write(&dir, 2, WriteOptions::leveldb());
    let read = || Memory::of(&dir);
    let run = |from: &Memory, to: &Memory| {
        let changes = CompactOptions::new().changes([("z", Some("last"))]);
        sister_crates::compact(Arc::new(from.clone()), Box::new(to.clone()), changes)
    };
    let (from, to) = (read(), Memory::new("new"));
    run(&from, &to).unwrap();
    let copy = open(Arc::new(to.clone()), &DatabaseOptions::new()).unwrap();
    assert_eq!(contents(&copy).len(), model.len() + 1);
    let steps = from.steps();
    for (step, what) in steps.iter().enumerate() {
        for fault in [Fault::Error(io::ErrorKind::Other), Fault::Short] {
            let (from, to) = (read().failing_at(step, fault), Memory::new("new"));
            let outcome = run(&from, &to);
            match outcome {
                Ok(_) => {
                    // Looking whether a writer is at work comes after the work.
                    assert!(to.is_published());
                    let copy = open(Arc::new(to), &DatabaseOptions::new()).unwrap();
                    assert_eq!(contents(&copy).len(), model.len() + 1, "{what}");
                }
                Err(error) => {
                    assert!(!to.is_published(), "{what}");
                    let file = what.split(' ').next_back().unwrap();
                    let is_named = error.to_string().contains(file) || what == "listing";
                    assert!(is_named, "{what}: {error}");
                }
            }
        }
    }
}

/// A table of one short entry has a raw block, whatever its writer compresses with. So had the newest tables of real databases, whose
/// compaction then made them twice as large.
#[test]
fn a_small_table_does_not_show_the_codec() {
    let scratch = scratch();
    let [dir, new] = ["db", "new"].map(|name| scratch.path().join(name));
    let options = DatabaseBuildOptions::new().table_bytes(1);
    let mut builder = DatabaseBuilder::create(&dir, options).unwrap();
    builder.put("a", "value, ".repeat(1000)).unwrap();
    builder.put("b", "7").unwrap();
    assert_eq!(builder.finish().unwrap().tables, 2);
    let newest = DbTable::open(dir.join("000003.ldb")).unwrap();
    assert!(codecs(newest.as_table()).contains(&"none"));
    compact_into(&dir, &new, CompactOptions::new()).unwrap();
    let table = DbTable::open(new.join("000002.ldb")).unwrap();
    assert!(codecs(table.as_table()).contains(&"snappy"));
}
