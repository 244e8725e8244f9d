//! Reading sets, against a map in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use leveltable::WriteOptions;
use leveltable::filter::FixedPrefix;
use leveltable_object_store::set::SetOptions;
use leveltable_object_store::{TableSet, publish};
use object_store::ObjectStore;
use object_store::path::Path;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::common::{Model, collect, manifest, numbered, put, put_numbered, run, stores, table};

/// Few different bytes, so that keys share prefixes and bounds meet keys.
fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![Just(b'a'), Just(b'b'), Just(0), Just(0xff)],
        0..5,
    )
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    entries: Model,
    /// After how many entries a shard ends, again and again.
    shard_lens: Vec<usize>,
    block_size: usize,
    with_properties: bool,
    max_open: usize,
    probes: Vec<Vec<u8>>,
    bounds: Vec<Bounds>,
    parts: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let entries = btree_map(key(), vec(any::<u8>(), 0..20), 0..120);
    let table = (1usize..200, any::<bool>(), 1usize..4);
    (
        entries,
        vec(1usize..40, 1..5),
        table,
        vec(key(), 0..40),
        vec((bound(), bound()), 0..8),
        1usize..20,
    )
        .prop_map(|(entries, shard_lens, table, probes, bounds, parts)| Case {
            entries,
            shard_lens,
            block_size: table.0,
            with_properties: table.1,
            max_open: table.2,
            probes,
            bounds,
            parts,
        })
}

/// Publishes the tables of `case`, in an order that is not theirs.
async fn put_set(store: &Arc<dyn ObjectStore>, case: &Case) -> TableSet {
    let options = WriteOptions::new()
        .block_size(case.block_size.max(1))
        .properties(case.with_properties)
        .prefix_filter(FixedPrefix::new(1));
    let mut paths = Vec::new();
    let mut entries = case.entries.iter().peekable();
    let mut lens = case.shard_lens.iter().cycle();
    while entries.peek().is_some() {
        let shard = entries.by_ref().take(*lens.next().unwrap());
        let path = Path::from(format!("set/part {}.ldb", paths.len()));
        put(&**store, &path, table(&options, shard)).await;
        paths.insert(0, path);
    }
    let published = publish(Arc::clone(store), &manifest(), &paths, None).await;
    assert_eq!(published.unwrap().shards.len(), paths.len());
    let options = SetOptions::new().max_open(case.max_open);
    options.open(Arc::clone(store), &manifest()).await.unwrap()
}

fn within(model: &Model, bounds: &Bounds) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_within = |key: &Vec<u8>| {
        (match &bounds.0 {
            Bound::Included(lower) => key >= lower,
            Bound::Excluded(lower) => key > lower,
            Bound::Unbounded => true,
        }) && match &bounds.1 {
            Bound::Included(upper) => key <= upper,
            Bound::Excluded(upper) => key < upper,
            Bound::Unbounded => true,
        }
    };
    let entries = model.iter().filter(|(key, _)| is_within(key));
    entries.map(|(k, v)| (k.clone(), v.clone())).collect()
}

async fn check(store: Arc<dyn ObjectStore>, case: Case) {
    let set = put_set(&store, &case).await;
    let model = &case.entries;
    let mut probes: Vec<Vec<u8>> = model.keys().cloned().collect();
    probes.extend(case.probes.clone());
    probes.reverse();
    for key in &probes {
        let value = set.get(key).await.unwrap();
        assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice));
        assert!(set.may_contain(key).await.unwrap() || value.is_none());
        assert!(set.open_tables() <= case.max_open);
    }
    let values = set.get_many(&probes).await.unwrap();
    for (key, value) in probes.iter().zip(values) {
        assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice));
    }
    for bounds in &case.bounds {
        let found = collect(set.range(bounds.clone())).await.unwrap();
        assert_eq!(found, within(model, bounds));
        let mut reversed = collect(set.range(bounds.clone()).expect_all().reverse())
            .await
            .unwrap();
        reversed.reverse();
        assert_eq!(reversed, found);
    }
    for prefix in &case.probes {
        let found = collect(set.prefix(prefix)).await.unwrap();
        let expected = model.iter().filter(|(key, _)| key.starts_with(prefix));
        let expected: Vec<_> = expected.map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(found, expected);
        for start in case.probes.iter().take(3) {
            let rest = set.prefix_from(prefix, Bound::Excluded(start));
            let found = collect(rest).await.unwrap();
            let expected = expected.iter().filter(|(key, _)| key > start);
            assert_eq!(found, expected.cloned().collect::<Vec<_>>());
        }
    }
    let splits = set.splits(case.parts).await.unwrap();
    assert!(splits.len() <= case.parts);
    assert_eq!(splits.first().unwrap().0, Bound::Unbounded);
    let mut all = Vec::new();
    for bounds in splits {
        all.extend(collect(set.range(bounds)).await.unwrap());
    }
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(all, expected, "each key is in one part");
    if case.with_properties {
        assert_eq!(set.entries(), Some(model.len() as u64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn sets_answer_as_a_map_does(case in case()) {
        for (store, _directory) in stores() {
            run(check(store, case.clone()));
        }
    }
}

#[test]
fn parts_are_about_as_large() {
    for (store, _directory) in stores() {
        run(async move {
            let mut paths = Vec::new();
            for i in 0..8 {
                let path = format!("set/{i}.ldb");
                paths.push(put_numbered(&*store, &path, 5000 * i..5000 * (i + 1), "a").await);
            }
            let manifest = manifest();
            publish(Arc::clone(&store), &manifest, &paths, None)
                .await
                .unwrap();
            let set = TableSet::open(store, &manifest).await.unwrap();
            for (n, fewest, most) in [
                (1, 40_000, 40_000),
                (3, 10_000, 15_000),
                (8, 5000, 5000),
                (20, 1000, 3000),
            ] {
                let splits = set.splits(n).await.unwrap();
                assert!(splits.len() * 5 >= n * 4, "{} of {n}", splits.len());
                for bounds in splits {
                    let entries = collect(set.range(bounds)).await.unwrap().len();
                    assert!((fewest..=most).contains(&entries), "{n}: {entries}");
                }
            }
        });
    }
}

/// Tasks that move between threads share tables of which only two stay open.
#[test]
fn many_tasks_share_few_open_tables() {
    for (store, _directory) in stores() {
        run(async move {
            let mut paths = Vec::new();
            for i in 0..10 {
                let path = format!("set/{i}.ldb");
                paths.push(put_numbered(&*store, &path, 100 * i..100 * (i + 1), "a").await);
            }
            let manifest = manifest();
            publish(Arc::clone(&store), &manifest, &paths, None)
                .await
                .unwrap();
            let options = SetOptions::new().max_open(2);
            let set = options.open(Arc::clone(&store), &manifest).await.unwrap();
            let model = Arc::new(numbered(0..1000, "a"));
            let tasks: Vec<_> = (0..8u32)
                .map(|task| {
                    let (set, model) = (set.clone(), Arc::clone(&model));
                    tokio::spawn(async move {
                        for i in 0..500 {
                            let key = format!("{:08}", (i * 7919 + task * 31) % 1000);
                            let value = set.get(&key).await.unwrap().unwrap();
                            assert_eq!(value, model[key.as_bytes()]);
                        }
                        let all: BTreeMap<_, _> =
                            collect(set.range(..)).await.unwrap().into_iter().collect();
                        assert!(all == *model);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert!(set.open_tables() <= 2);

            // Any table has more bytes than that, and the last one stays open.
            let options = SetOptions::new().max_bytes(1);
            let set = options.open(store, &manifest).await.unwrap();
            for key in ["00000007", "00000507", "00000907"] {
                assert!(set.contains_key(key).await.unwrap());
                assert_eq!(set.open_tables(), 1);
            }
            assert!(set.stats().source_reads >= 3, "those of closed ones, too");
        });
    }
}

#[test]
fn an_empty_set_is_a_set() {
    for (store, _directory) in stores() {
        run(async move {
            let empty = put_numbered(&*store, "set/empty.ldb", 0..0, "a").await;
            let manifest = manifest();
            let published = publish(Arc::clone(&store), &manifest, &[empty], None).await;
            assert_eq!(published.unwrap().shards, []);
            let set = TableSet::open(store, &manifest).await.unwrap();
            assert_eq!(set.get("a").await.unwrap(), None);
            assert_eq!(collect(set.range(..)).await.unwrap(), []);
            assert_eq!(set.entries(), Some(0));
            assert_eq!(set.splits(5).await.unwrap().len(), 1);
        });
    }
}
