//! Manifests that anybody may have written.

use std::sync::Arc;

use bytes::Bytes;
use leveltable::{Compression, ErrorKind, OpenOptions, WriteOptions};
use leveltable_object_store::{TableSet, publish};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use proptest::prelude::*;

use crate::common::{collect, manifest, numbered, put, put_numbered, run, stores, table};

type Store = Arc<dyn ObjectStore>;

/// A store with a set of three shards, and the bytes of its manifest.
async fn put_set() -> (Store, Bytes) {
    let store: Store = Arc::new(InMemory::new());
    let mut paths = Vec::new();
    for i in 0..3 {
        let path = format!("set/{i}.ldb");
        paths.push(put_numbered(&*store, &path, 100 * i..100 * (i + 1), "a").await);
    }
    publish(Arc::clone(&store), &manifest(), &paths, None)
        .await
        .unwrap();
    let object = store.get(&manifest()).await.unwrap();
    let bytes = object.bytes().await.unwrap();
    (store, bytes)
}

/// Opens what is there and reads all of it. An error, or what was published.
async fn read(store: &Store) -> leveltable::Result<usize> {
    let set = TableSet::open(Arc::clone(store), &manifest()).await?;
    set.get("00000150").await?;
    set.splits(20).await?;
    set.splits(usize::MAX).await?;
    let entries = collect(set.range(..)).await?;
    Ok(entries.len())
}

/// The records of a manifest, and its user properties.
type Parts = (Vec<(Vec<u8>, Vec<u8>)>, Vec<(String, Vec<u8>)>);

fn take_apart(file: Bytes) -> Parts {
    let table = OpenOptions::new().open_source(file).unwrap();
    let entry = |entry: leveltable::Result<(Bytes, Bytes)>| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    };
    let records = table.iter().map(entry).collect();
    let property =
        |(name, value): (&[u8], &[u8])| (String::from_utf8(name.to_vec()).unwrap(), value.to_vec());
    let properties = table.properties().unwrap().user_properties();
    (records, properties.map(property).collect())
}

fn put_together((records, properties): &Parts) -> Bytes {
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = options.build(Vec::new());
    for (name, value) in properties {
        builder.property(name, value).unwrap();
    }
    for (key, value) in records {
        builder.add(key, value).unwrap();
    }
    builder.finish_into_writer().unwrap().0.into()
}

/// Checksums find all of these.
#[test]
fn every_changed_byte_and_every_cut_is_an_error() {
    run(async {
        let (store, file) = put_set().await;
        assert_eq!(read(&store).await.unwrap(), 300);
        for at in 0..file.len() {
            let mut changed = file.to_vec();
            changed[at] ^= 0x41;
            put(&*store, &manifest(), changed.into()).await;
            // Padding, of which no byte is read, is all that may change.
            if let Ok(entries) = read(&store).await {
                assert_eq!(entries, 300, "{at}");
            }
            put(&*store, &manifest(), file.slice(..at)).await;
            assert!(read(&store).await.is_err(), "{at}");
        }
    });
}

/// What the manifest says, changed under good checksums.
#[test]
fn what_makes_no_sense_is_refused() {
    run(async {
        let (store, file) = put_set().await;
        let sound = take_apart(file);
        let error = async |change: fn(&mut Parts)| {
            let mut parts = sound.clone();
            change(&mut parts);
            put(&*store, &manifest(), put_together(&parts)).await;
            read(&store).await.unwrap_err()
        };
        put(&*store, &manifest(), put_together(&sound)).await;
        assert_eq!(read(&store).await.unwrap(), 300);
        let names = [
            "leveltable.set",
            "leveltable.set.history",
            "leveltable.set.id",
        ];
        let found: Vec<_> = sound.1.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, names);

        let without = error(|(_, properties)| properties.clear()).await;
        assert_eq!(without.kind(), ErrorKind::NotATable, "{without}");
        let later = error(|(_, properties)| properties[0].1 = b"2".to_vec()).await;
        assert_eq!(later.kind(), ErrorKind::Unsupported, "{later}");
        assert!(later.to_string().contains("set/manifest"), "{later}");
        let id = error(|(_, properties)| properties[2].1.truncate(15)).await;
        assert_eq!(id.kind(), ErrorKind::Corruption, "{id}");
        let history = error(|(_, properties)| properties[1].1 = vec![0; 17]).await;
        assert_eq!(history.kind(), ErrorKind::Corruption, "{history}");
        let none = error(|(records, _)| records[1].1.clear()).await;
        assert!(none.to_string().contains("shard 2"), "{none}");
        // Sizes, of which each fits 64 bits. The field follows the first key.
        let sizes = error(|(records, _)| {
            for (i, (_, record)) in records.iter_mut().enumerate() {
                let key = format!("{:08}", 100 * i).into_bytes();
                let at = record.windows(8).position(|part| part == key).unwrap() + 8;
                let len = usize::from(record[at + 1]);
                let huge = [vec![3, 10], vec![0xff; 9], vec![1]].concat();
                record.splice(at..at + 2 + len, huge);
            }
        });
        let sizes = sizes.await;
        assert!(sizes.to_string().contains("add up"), "{sizes}");
        // A table is never so short. With shorter ones, there were more parts than were asked for.
        let short = error(|(records, _)| {
            let record = &mut records[2].1;
            let at = record.windows(8).position(|part| part == b"00000200");
            let at = at.unwrap() + 8;
            let len = usize::from(record[at + 1]);
            record.splice(at..at + 2 + len, [3, 1, 1]);
            let len = usize::from(record[at + 4]);
            record.splice(at + 3..at + 5 + len, [4, 1, 1]);
        });
        let short = short.await;
        assert!(short.to_string().contains("shard 3"), "{short}");
        // The second shard again, under a later key.
        let twice = error(|(records, _)| {
            let record = records[1].1.clone();
            records.push((b"9".to_vec(), record));
        });
        let twice = twice.await;
        assert!(twice.to_string().contains("overlap"), "{twice}");
    });
}

/// A directory has no file there, and asking again does not help.
#[test]
fn a_path_that_cannot_be_is_asked_for_once() {
    let (store, _directory) = stores().pop().unwrap();
    run(async move {
        put(&*store, &Path::from("file"), Bytes::from_static(b"x")).await;
        for path in ["file/x.ldb".to_owned(), "x".repeat(300)] {
            let opened = leveltable_object_store::open(Arc::clone(&store), Path::from(path));
            let error = opened.await.unwrap_err();
            assert!(error.to_string().contains("attempt 1 of 4"), "{error}");
        }
    });
}

/// Changes a manifest.
type Lie = fn(&mut Parts);

/// The keys or the number of entries of a record are not those of the table: an error, and no entry is missed in silence.
#[test]
fn a_record_that_does_not_match_its_table_is_refused() {
    run(async {
        let (store, file) = put_set().await;
        let sound = take_apart(file);
        // The last key of the second shard; the first key of the third, and its number of entries, which is its last field.
        let lies: [(Lie, &str, &str); 3] = [
            (
                |(records, _)| records[1].0 = b"00000149".to_vec(),
                "00000175",
                "last key",
            ),
            (
                |(records, _)| {
                    let record = &mut records[2].1;
                    let at = record.windows(8).position(|key| key == b"00000200");
                    let at = at.unwrap();
                    record[at..at + 8].copy_from_slice(b"00000250");
                },
                "00000275",
                "first key",
            ),
            (
                |(records, _)| *records[2].1.last_mut().unwrap() = 99,
                "00000275",
                "number of entries",
            ),
        ];
        for (lie, key, what) in lies {
            let mut parts = sound.clone();
            lie(&mut parts);
            put(&*store, &manifest(), put_together(&parts)).await;
            let set = TableSet::open(Arc::clone(&store), &manifest())
                .await
                .unwrap();
            let error = collect(set.range(..)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            assert!(error.to_string().contains(what), "{error}");
            // A key that is said to lie outside is not looked for.
            if what != "last key" {
                let error = set.get(key).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            }
        }
    });
}

/// A table without properties cannot contradict its record: a walk returns what lookups find.
#[test]
fn a_walk_keeps_to_the_keys_of_the_manifest() {
    run(async {
        let store: Store = Arc::new(InMemory::new());
        let path = Path::from("set/0.ldb");
        let options = WriteOptions::new().properties(false);
        put(&*store, &path, table(&options, &numbered(0..100, "a"))).await;
        let shards = [path];
        publish(Arc::clone(&store), &manifest(), &shards, None)
            .await
            .unwrap();
        let object = store.get(&manifest()).await.unwrap();
        let mut parts = take_apart(object.bytes().await.unwrap());
        parts.0[0].0 = b"00000049".to_vec();
        put(&*store, &manifest(), put_together(&parts)).await;
        let set = TableSet::open(Arc::clone(&store), &manifest())
            .await
            .unwrap();
        assert_eq!(set.get("00000075").await.unwrap(), None);
        let range = |range| async { collect(range).await.unwrap().len() };
        assert_eq!(range(set.range(..)).await, 50);
        assert_eq!(range(set.range("00000010"..)).await, 40);
        assert_eq!(range(set.range("00000010".."00000020")).await, 10);
        assert_eq!(range(set.range(.."00000020")).await, 20);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Records of any bytes, or changed ones, under good checksums: an error, or answers. No panic, and no more memory than the
    /// objects have bytes.
    #[test]
    fn any_records_are_refused_or_read(
        changes in prop::collection::vec((0usize..3, any::<prop::sample::Index>(), any::<u8>()), 1..4),
        extra in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        run(async move {
            let (store, file) = put_set().await;
            let mut parts = take_apart(file);
            for (record, at, byte) in changes {
                let record = &mut parts.0[record].1;
                let at = at.index(record.len());
                record[at] = byte;
            }
            put(&*store, &manifest(), put_together(&parts)).await;
            let _ = read(&store).await;
            parts.0.push((b"\xff".to_vec(), extra));
            put(&*store, &manifest(), put_together(&parts)).await;
            let _ = read(&store).await;
        });
    }
}
