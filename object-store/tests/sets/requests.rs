//! How many requests a call makes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leveltable::{BlockCache, Compression, ErrorKind, OpenOptions, WriteOptions};
use leveltable_object_store::set::{SetOptions, SetRange};
use leveltable_object_store::{ObjectTableBuilder, Retries, Shard, TableSet, open_with, publish};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::common::{collect, manifest, numbered, put_numbered, run, stores};
use crate::watched::{Fate, Watched};

/// A set of `shards` tables of 2000 entries each, with a gap of 1000 between them.
async fn put_set(store: &Arc<dyn ObjectStore>, shards: u32) {
    let mut paths = Vec::new();
    for i in 0..shards {
        let (path, start) = (format!("set/{i}.ldb"), 3000 * i);
        paths.push(put_numbered(&**store, &path, start..start + 2000, "a").await);
    }
    let published = publish(Arc::clone(store), &manifest(), &paths, None).await;
    assert_eq!(published.unwrap().shards.len() as u32, shards);
}

fn options() -> SetOptions {
    SetOptions::new().tables(OpenOptions::new().cache(BlockCache::new(64 << 20)))
}

async fn open(shards: u32) -> (Arc<Watched>, TableSet) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    put_set(&store, shards).await;
    let watched = Watched::new(store);
    let set = open_at(&watched, options()).await;
    (watched, set)
}

/// The set in a store that is watched.
async fn open_at(store: &Arc<Watched>, options: SetOptions) -> TableSet {
    let store: Arc<dyn ObjectStore> = Arc::clone(store) as _;
    options.open(store, &manifest()).await.unwrap()
}

/// The store with answers that take `delay`, and how many requests are on their way now, and were at most.
fn counted(
    store: Arc<dyn ObjectStore>,
    delay: Duration,
) -> (Arc<Watched>, Arc<Mutex<(usize, usize)>>) {
    let now = Arc::new(Mutex::new((0, 0)));
    let counted = Arc::clone(&now);
    let slow = Watched::with(store, move |_, _| {
        let now = Arc::clone(&counted);
        Fate::After(Box::pin(async move {
            {
                let mut now = now.lock().unwrap();
                now.0 += 1;
                now.1 = now.1.max(now.0);
            }
            tokio::time::sleep(delay).await;
            now.lock().unwrap().0 -= 1;
        }))
    });
    (slow, now)
}

#[test]
fn opening_takes_one_request_and_so_does_opening_a_shard() {
    run(async {
        let (store, set) = open(100).await;
        assert_eq!(store.take(), ["get set/manifest"]);
        assert_eq!(set.shards().len(), 100);
        assert_eq!(set.get("00003001").await.unwrap().unwrap(), "a 3001");
        assert_eq!(store.take(), ["get set/1.ldb"; 2]);
        assert_eq!(set.get("00003001").await.unwrap().unwrap(), "a 3001");
        assert_eq!(store.take(), [""; 0], "from the cache");
        assert_eq!(set.get("00004999").await.unwrap().unwrap(), "a 4999");
        assert_eq!(store.take(), ["get set/1.ldb"], "another block");
        assert_eq!(set.stats().source_reads, 3);
    });
}

/// A set of one shard of `entries` with keys of 16 bytes and values of 100, uncompressed.
async fn put_large_shard(store: &Arc<dyn ObjectStore>, entries: u64) -> u64 {
    let (path, options) = (Path::from("set/large.ldb"), WriteOptions::new());
    let options = options.compression(Compression::None).block_size(16 << 10);
    let mut builder =
        ObjectTableBuilder::create(Arc::clone(store), path.clone(), &options).unwrap();
    for i in 0..entries {
        builder.add(format!("{i:016}"), [7; 100]).await.unwrap();
    }
    let uploaded = builder.finish().await.unwrap();
    let published = publish(Arc::clone(store), &manifest(), &[path], None).await;
    assert_eq!(published.unwrap().shards[0].tail_len, 64 << 10);
    uploaded.tail_len
}

/// Not by all of its index and filter.
#[test]
fn a_large_shard_is_opened_by_its_last_64_kib() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let tail = put_large_shard(&store, 150_000).await;
        assert!(tail > 200 << 10, "{tail}");
        let set = TableSet::open(store, &manifest()).await.unwrap();
        assert_eq!(set.get("0000000000000007.5").await.unwrap(), None);
        // Some pieces of the filter.
        let bytes = set.stats().source_bytes;
        assert!((64 << 10..128 << 10).contains(&bytes), "{bytes}");
    });
}

/// Bytes of a key where nearly each is in a shard of 250 MB that is not open; and of one of ten in each of these.
#[test]
#[ignore = "a shard of 250 MB in memory"]
fn keys_of_large_shards_take_few_bytes() {
    run(async {
        let (entries, tries) = (2_150_000, 200);
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_large_shard(&store, entries).await;
        let key = |i: u64| format!("{:016}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % entries);
        let (mut alone, mut of_ten, mut weight, mut requests) = (0, 0, 0, [0; 2]);
        for i in 0..tries {
            let set = TableSet::open(Arc::clone(&store), &manifest())
                .await
                .unwrap();
            assert!(set.get(key(i)).await.unwrap().is_some());
            alone += set.stats().source_bytes;
            requests[0] += set.stats().source_reads;
            let set = TableSet::open(Arc::clone(&store), &manifest())
                .await
                .unwrap();
            let keys: Vec<String> = (0..10).map(|k| key(1000 * i + k)).collect();
            let values = set.get_many(&keys).await.unwrap();
            assert!(values.iter().all(Option::is_some));
            of_ten += set.stats().source_bytes;
            requests[1] += set.stats().source_reads;
            let table =
                leveltable_object_store::open(Arc::clone(&store), Path::from("set/large.ldb"));
            weight = table.await.unwrap().weight();
        }
        let (alone, of_ten) = (alone / tries, of_ten / (10 * tries));
        println!(
            "alone: {alone} bytes, one of ten: {of_ten} bytes, opened: {weight} bytes of memory"
        );
        let requests = requests.map(|requests| requests as f64 / tries as f64);
        println!("requests for one key and for ten: {requests:?}");
        assert!(alone <= 300_000 && of_ten <= 150_000);
    });
}

/// Publishing opens each table by one request, asks what the store can do, and publishes.
#[test]
fn publishing_takes_a_request_for_each_shard_and_few_more() {
    run(async {
        let store = Watched::new(Arc::new(InMemory::new()));
        put_set(&(Arc::clone(&store) as _), 3).await;
        let mut log = store.take();
        let publishing = log.split_off(3);
        let (last, described) = (&publishing[3..], &publishing[..3]);
        assert!(
            described
                .iter()
                .all(|request| request.starts_with("get set/"))
        );
        let [probes @ .., published] = last else {
            panic!("no request");
        };
        assert_eq!(probes.len(), 3);
        assert!(probes.iter().all(|probe| *probe == probes[0]));
        assert!(probes[0].starts_with("put set/manifest.") && probes[0].ends_with(".probe"));
        assert_eq!(published, "put set/manifest");
        // The next publication asks nothing.
        let set = TableSet::open(Arc::clone(&store) as _, &manifest())
            .await
            .unwrap();
        store.take();
        let shards = set.shards().to_vec();
        options()
            .publish_shards(
                Arc::clone(&store) as _,
                &manifest(),
                shards,
                Some(set.version()),
            )
            .await
            .unwrap();
        let log = store.take();
        assert!(
            log[..3]
                .iter()
                .all(|request| request.starts_with("head set/"))
        );
        assert_eq!(log[3..], ["put set/manifest"]);
    });
}

/// When a request ends: after all who are to wait for it do, on a busy machine, too.
const LATE: Duration = Duration::from_millis(500);

/// One opening fails for all who wait for it, and for each of them in the same way.
#[test]
fn a_shard_that_was_replaced_is_replaced_for_all_who_wait() {
    run(async {
        let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&inner, 1).await;
        let store = Watched::with(Arc::clone(&inner), |_, _| {
            Fate::After(Box::pin(tokio::time::sleep(LATE)))
        });
        let set = open_at(&store, options()).await;
        put_numbered(&*inner, "set/0.ldb", 0..2000, "b").await;
        store.take();
        let get = || set.get("00000001");
        let errors = futures_util::future::join_all((0..10).map(|_| get())).await;
        assert_eq!(store.take(), ["get set/0.ldb"]);
        for error in errors.into_iter().map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Replaced, "{error}");
            assert!(error.to_string().contains("set/0.ldb"), "{error}");
        }
    });
}

#[test]
fn absent_keys_take_none_but_for_opening() {
    run(async {
        let (store, set) = open(10).await;
        store.take();
        // Between shards, before the first, after the last.
        for key in ["00002500", "00005999", "", "9", "00001999x"] {
            assert_eq!(set.get(key).await.unwrap(), None);
            assert!(!set.may_contain(key).await.unwrap());
        }
        assert_eq!(store.take(), [""; 0]);
        // Within shards, the filters exclude all but some in a thousand.
        let keys: Vec<_> = (0..1000).map(|i| format!("{:08}x", 3 * i)).collect();
        for key in &keys {
            assert_eq!(set.get(key).await.unwrap(), None);
        }
        let requests = store.take().len();
        assert!(requests < 20, "{requests}");
        let values = set.get_many(&keys).await.unwrap();
        assert!(values.iter().all(Option::is_none));
        assert_eq!(store.take(), [""; 0]);
    });
}

/// All who want a shard at the same time share the request that opens it, and the one that reads the block.
#[test]
fn many_tasks_share_one_opening() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 2).await;
        let slow = Watched::with(store, |_, _| {
            Fate::After(Box::pin(tokio::time::sleep(LATE)))
        });
        let set = open_at(&slow, options()).await;
        slow.take();
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let set = set.clone();
                tokio::spawn(async move { set.get("00000007").await.unwrap().unwrap() })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), "a 7");
        }
        assert_eq!(slow.take(), ["get set/0.ldb"; 2]);
    });
}

/// Those who open a shard go away, and the next one opens it.
#[test]
fn an_opening_that_is_dropped_hurts_nobody_else() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 2).await;
        let watched = Watched::with(store, |n, _| match n {
            1 => Fate::Stalled,
            _ => Fate::Served,
        });
        let set = open_at(&watched, options()).await;
        watched.take();
        let mut dropped = Box::pin(set.get("00000007"));
        while watched.take() != ["get set/0.ldb"] {
            assert!(futures_util::poll!(&mut dropped).is_pending());
            tokio::task::yield_now().await;
        }
        drop(dropped);
        let get = timeout(Duration::from_secs(60), set.get("00000007"));
        assert_eq!(get.await.unwrap().unwrap().unwrap(), "a 7");
        assert_eq!(watched.take(), ["get set/0.ldb"; 2]);
    });
}

/// All who wait get the error at once, and the next one tries again.
#[test]
fn an_opening_that_fails_fails_for_all_who_wait() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 2).await;
        let watched = Watched::with(store, |n, _| match n {
            1 => Fate::LostAfter(LATE),
            _ => Fate::Served,
        });
        let set = open_at(&watched, options().retries(Retries::none())).await;
        watched.take();
        let gets = (0..10).map(|_| set.get("00000007"));
        for value in futures_util::future::join_all(gets).await {
            let error = value.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("connection reset"), "{error}");
        }
        assert_eq!(watched.take(), ["get set/0.ldb"]);
        assert_eq!(set.get("00000007").await.unwrap().unwrap(), "a 7");
    });
}

/// A walk that has begun to open the next shard, and is not polled, holds nobody up.
#[test]
fn a_walk_that_pauses_holds_nobody_up() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 2).await;
        let slow = Watched::with(store, |_, _| {
            Fate::After(Box::pin(tokio::time::sleep(Duration::from_millis(20))))
        });
        let set = open_at(&slow, options()).await;
        slow.take();
        let mut range = set.range(..);
        let mut walked = 0;
        while !slow.take().iter().any(|request| request == "get set/1.ldb") {
            range.next().await.unwrap().unwrap();
            walked += 1;
            if walked > 1000 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(walked < 2000);
        let get = timeout(Duration::from_secs(60), set.get("00003007"));
        assert_eq!(get.await.unwrap().unwrap().unwrap(), "a 3007");
        assert_eq!(collect(range).await.unwrap().len(), 4000 - walked);
    });
}

/// A walk opens the next shard in a task: its error is the walk's when it gets there, and nobody else's.
#[test]
fn an_opening_that_failed_is_not_shared_any_more() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 2).await;
        let mut is_first = true;
        let watched = Watched::with(store, move |_, request| {
            if request == "get set/1.ldb" && std::mem::take(&mut is_first) {
                Fate::LostAfter(LATE)
            } else {
                Fate::Served
            }
        });
        let set = open_at(&watched, options().retries(Retries::none())).await;
        let mut range = set.range(..);
        let is_ahead = |request: &String| request == "get set/1.ldb";
        let mut walked = 0;
        while !watched.take().iter().any(is_ahead) {
            range.next().await.unwrap().unwrap();
            walked += 1;
            if walked > 1000 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(set.get("00003007").await.is_err());
        assert_eq!(set.get("00003007").await.unwrap().unwrap(), "a 3007");
        let error = loop {
            match range.next().await {
                Ok(entry) => {
                    entry.unwrap();
                    walked += 1;
                }
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), walked), (ErrorKind::Io, 2000));
        assert_eq!(collect(set.range(..)).await.unwrap().len(), 4000);
    });
}

/// One who sees late that an opening failed does not end the one that others have begun since.
#[test]
fn a_late_waiter_does_not_remove_a_newer_opening() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 2).await;
        let release = Arc::new(Notify::new());
        let (released, mut openings) = (Arc::clone(&release), 0);
        let watched = Watched::with(store, move |_, request| {
            openings += u32::from(request == "get set/1.ldb");
            match openings {
                1 if request == "get set/1.ldb" => Fate::LostAfter(LATE),
                2 if request == "get set/1.ldb" => {
                    let released = Arc::clone(&released);
                    Fate::After(Box::pin(async move { released.notified().await }))
                }
                _ => Fate::Served,
            }
        });
        let set = open_at(&watched, options().retries(Retries::none())).await;
        let is_opening = |request: &String| request == "get set/1.ldb";
        let mut late = Box::pin(set.get("00003008"));
        assert!(futures_util::poll!(&mut late).is_pending());
        assert!(set.get("00003007").await.is_err());
        let newer = set.clone();
        let newer = tokio::spawn(async move { newer.get("00003007").await });
        assert!(watched.take().iter().any(is_opening));
        while !watched.take().iter().any(is_opening) {
            tokio::task::yield_now().await;
        }
        assert!(late.await.is_err());
        let mut third = Box::pin(set.get("00003009"));
        assert!(futures_util::poll!(&mut third).is_pending());
        assert!(!watched.take().iter().any(is_opening), "a third opening");
        release.notify_one();
        assert_eq!(newer.await.unwrap().unwrap().unwrap(), "a 3007");
        assert_eq!(third.await.unwrap().unwrap(), "a 3009");
    });
}

/// A set that is watched takes one request for each look, and one for each shard that has changed.
#[test]
fn a_refresh_reads_what_has_changed() {
    for (store, _guard) in stores() {
        let is_directory = _guard.is_some();
        run(async move {
            put_set(&store, 64).await;
            let watched = Watched::new(Arc::clone(&store));
            let mut set = open_at(&watched, options()).await;
            let (options, manifest) = (options(), manifest());
            let keys: Vec<String> = (0..64).map(|i| format!("{:08}", 3000 * i + 7)).collect();
            set.get_many(&keys).await.unwrap();
            assert_eq!(set.open_tables(), 64);
            watched.take();
            // Nothing has changed.
            set = set.refresh().await.unwrap();
            assert_eq!(watched.take().len(), 1);
            // The same shards are published again.
            let published = options.publish_shards(
                Arc::clone(&store),
                &manifest,
                set.shards().to_vec(),
                Some(set.version()),
            );
            let published = published.await.unwrap();
            set = set.refresh().await.unwrap();
            assert_eq!(*set.version(), published.version);
            // A directory is listed, and then the manifest is read.
            assert_eq!(watched.take().len(), 1 + usize::from(is_directory));
            set.get_many(&keys).await.unwrap();
            assert_eq!(watched.take(), [""; 0], "from the cache");
            // One is replaced, and the last is left out.
            let old = set.clone();
            let path = put_numbered(&*store, "set/new.ldb", 3000..5000, "b").await;
            let new = Shard::describe(Arc::clone(&store), &path).await.unwrap();
            let mut shards = set.shards()[..63].to_vec();
            shards[1] = new.unwrap();
            let published =
                options.publish_shards(Arc::clone(&store), &manifest, shards, Some(set.version()));
            published.await.unwrap();
            set = set.refresh().await.unwrap();
            assert_eq!((set.shards().len(), set.open_tables()), (63, 62));
            let values = set.get_many(&keys).await.unwrap();
            assert_eq!(values[1].as_deref(), Some(&b"b 3007"[..]));
            assert_eq!(values[63], None);
            let log = watched.take();
            let opened = log.iter().filter(|request| *request == "get set/new.ldb");
            // Opened, and the block that was asked for.
            assert_eq!(
                (log.len() - usize::from(is_directory), opened.count()),
                (3, 2)
            );
            // Who still has the old one reads that.
            assert_eq!(old.get(&keys[1]).await.unwrap().unwrap(), "a 3007");
            assert_eq!(old.get(&keys[63]).await.unwrap().unwrap(), "a 189007");
        });
    }
}

/// Walks that pause keep no other request from its turn, though each has asked for what comes next.
#[test]
fn walks_that_pause_do_not_use_up_the_requests() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 4).await;
        let slow = Watched::with(store, |_, _| {
            Fate::After(Box::pin(tokio::time::sleep(Duration::from_millis(5))))
        });
        let set = open_at(&slow, options().max_requests(2)).await;
        let mut walks = Vec::new();
        for _ in 0..4 {
            let mut walk = set.range(..);
            for _ in 0..1200 {
                walk.next().await.unwrap().unwrap();
            }
            // Asks for the next block, and is not polled again.
            let mut lookup = Box::pin(walk_on(set.range("00000500"..)));
            assert!(futures_util::poll!(&mut lookup).is_pending());
            walks.push((walk, lookup));
        }
        let get = timeout(Duration::from_secs(60), set.get("00009007"));
        assert_eq!(get.await.unwrap().unwrap().unwrap(), "a 9007");
        drop(walks);
    });
}

async fn walk_on(mut range: SetRange) -> bool {
    range.advance().await.unwrap()
}

/// A thousand tasks send no more requests at once than the set allows.
#[test]
fn requests_on_their_way_are_limited() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 20).await;
        let (slow, now) = counted(store, Duration::from_millis(5));
        let set = open_at(&slow, options().max_requests(8)).await;
        let tasks: Vec<_> = (0..1000)
            .map(|i| {
                let set = set.clone();
                let i = 3000 * (i % 20) + 2 * (i / 20);
                tokio::spawn(async move {
                    let found = set
                        .get_with(format!("{i:08}"), |value| value.to_vec())
                        .await;
                    assert_eq!(found.unwrap().unwrap(), format!("a {i}").into_bytes());
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(now.lock().unwrap().1, 8);
        assert!(set.contains_key("00000007").await.unwrap());
        assert!(!set.contains_key("00000007x").await.unwrap());
    });
}

/// Each call is dropped whenever it waits, again and again, across shards.
#[test]
fn a_call_for_the_next_entry_that_is_dropped_loses_nothing() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 4).await;
        let slow = Watched::with(store, |_, _| {
            Fate::After(Box::pin(tokio::time::sleep(Duration::from_millis(5))))
        });
        let set = open_at(&slow, options()).await;
        slow.take();
        let mut range = set.range(..);
        let (mut entries, mut drops) = (Vec::new(), 0);
        loop {
            match timeout(Duration::from_millis(1), range.advance()).await {
                Err(_) => {
                    drops += 1;
                    assert_eq!(range.entry(), Default::default());
                }
                Ok(moved) => match moved.unwrap() {
                    true => entries.push((range.key().to_vec(), range.value().to_vec())),
                    false => break,
                },
            }
        }
        assert!(drops >= 3, "{drops}");
        let model: Vec<_> = (0..4)
            .flat_map(|i| numbered(3000 * i..3000 * i + 2000, "a"))
            .collect();
        assert!(entries == model, "{} entries", entries.len());
        // Nothing was asked for twice.
        assert_eq!(slow.take().len(), 8);
    });
}

/// Keys of many shards are read at the same time, with at most 32 requests on their way.
#[test]
fn get_many_reads_shards_concurrently() {
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        put_set(&store, 64).await;
        let (slow, now) = counted(store, Duration::from_millis(20));
        let set = open_at(&slow, options().max_requests(32)).await;
        slow.take();
        let model = numbered(0..64 * 3000, "a");
        // Of each shard two keys of one block, of a few shards very many.
        let mut keys: Vec<_> = (0..64).flat_map(|i| [3000 * i + 7, 3000 * i + 8]).collect();
        keys.extend((0..1000).map(|i| 30_000 + 2 * i));
        // In no order.
        let keys: Vec<_> = (0..keys.len())
            .map(|i| keys[i * 787 % keys.len()])
            .map(|i| format!("{i:08}"))
            .collect();
        let values = set.get_many(&keys).await.unwrap();
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(value.unwrap(), model[key.as_bytes()]);
        }
        let (_, most) = *now.lock().unwrap();
        assert!((17..=32).contains(&most), "{most} at a time");
        let log = slow.take();
        // Each was opened once.
        assert!(log.len() <= 64 * 2 + 4, "{}", log.len());
    });
}

/// A shard is opened while the one before is walked, and not long before.
#[test]
fn a_walk_reads_ahead_into_the_next_shard_only() {
    run(async {
        let (store, set) = open(3).await;
        store.take();
        let mut range = set.range("00000100"..);
        assert_eq!(store.take(), [""; 0]);
        for _ in 0..500 {
            range.next().await.unwrap();
        }
        assert!(
            store
                .take()
                .iter()
                .all(|request| request == "get set/0.ldb")
        );
        for _ in 0..1900 - 500 {
            range.next().await.unwrap();
        }
        let log = store.take();
        assert!(!log.iter().any(|request| request == "get set/2.ldb"));
        let rest = collect(range).await.unwrap();
        assert_eq!(rest.len(), 4000);
        let log = [log, store.take()].concat();
        for shard in ["get set/1.ldb", "get set/2.ldb"] {
            let requests = log.iter().filter(|request| *request == shard).count();
            assert!(requests <= 3, "{requests} of {shard}");
        }
        // What lies before the bounds, or after, is not opened.
        let (store, set) = open(3).await;
        store.take();
        let range = set.range("00003000".."00006000");
        assert_eq!(collect(range).await.unwrap().len(), 2000);
        assert!(
            store
                .take()
                .iter()
                .all(|request| request == "get set/1.ldb")
        );
    });
}

#[test]
fn up_to_as_many_parts_as_shards_take_no_request() {
    run(async {
        let (store, set) = open(10).await;
        store.take();
        assert_eq!(set.splits(10).await.unwrap().len(), 10);
        assert_eq!(set.splits(4).await.unwrap().len(), 4);
        assert_eq!(store.take(), [""; 0]);
        assert!(set.splits(30).await.unwrap().len() > 20);
        assert_eq!(store.take().len(), 10);
    });
}

/// As many shards as 10 TB have, each tiny here. Prints figures.
#[test]
#[ignore = "takes a minute without optimisation"]
fn forty_thousand_shards() {
    const SHARDS: u32 = 40_000;
    run(async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let mut paths = Vec::new();
        for i in 0..SHARDS {
            let path = format!("set/2026-11-22/part-{i:05}.ldb");
            paths.push(put_numbered(&*store, &path, 2 * i..2 * i + 2, "a").await);
        }
        let watched = Watched::new(store);
        let begun = Instant::now();
        let path = manifest();
        let published = publish(Arc::clone(&watched) as _, &path, &paths, None);
        let published = published.await.unwrap();
        println!(
            "published in {:?}: a manifest of {} bytes",
            begun.elapsed(),
            published.manifest_bytes
        );
        assert_eq!(watched.take().len() as u32, SHARDS + 4);
        let begun = Instant::now();
        let set = TableSet::open(Arc::clone(&watched) as _, &manifest())
            .await
            .unwrap();
        println!("opened in {:?}", begun.elapsed());
        assert_eq!(watched.take().len(), 1);
        assert_eq!(set.entries(), Some(2 * u64::from(SHARDS)));
        assert_eq!(set.splits(1000).await.unwrap().len(), 1000);
        assert_eq!(set.get("00051234").await.unwrap().unwrap(), "a 51234");
        assert_eq!(watched.take().len(), 2);
    });
}

/// Requests have deadlines, also those that are made ahead: 30 ms a request and 1 us a byte, and a second between two entries.
#[tokio::test(start_paused = true)]
async fn a_walk_may_be_slower_than_the_deadlines_of_its_requests() {
    let inner = Arc::new(InMemory::new());
    let mut paths = Vec::new();
    for i in 0..2 {
        let path = format!("set/{i}.ldb");
        paths.push(put_numbered(&*inner, &path, 5000 * i..5000 * (i + 1), "a").await);
    }
    publish(inner.clone(), &manifest(), &paths, None)
        .await
        .unwrap();
    let throttle = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(30),
        wait_get_per_byte: Duration::from_micros(1),
        ..ThrottleConfig::default()
    };
    let store = Arc::new(ThrottledStore::new(inner, throttle));
    let set = TableSet::open(store, &manifest()).await.unwrap();
    let mut range = set.range(..);
    let mut count = 0;
    while range.next().await.unwrap().is_some() {
        count += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(count, 10_000);
}

/// Clock ticks of 10 ms that this process has taken of the processors.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split(' ');
    let ticks = fields.skip(12).take(2);
    ticks.map(|ticks| ticks.parse::<u64>().unwrap_or(0)).sum()
}

/// Returns the seconds that a call takes on the simulated network. Prints them, its requests and its processor time.
async fn cost(store: &Watched, what: &str, call: impl Future) -> f64 {
    store.take();
    let (start, before) = (tokio::time::Instant::now(), ticks());
    call.await;
    let seconds = start.elapsed().as_secs_f64();
    let (requests, ms) = (store.take().len(), 10 * (ticks() - before));
    println!(
        "{what}: {requests} requests, {seconds:.2} s of the network, {ms} ms of the processor"
    );
    seconds
}

/// A table of 230 MB alone and in a set, 30 ms a request, on a line of 1 Gbit/s that all requests share: scans take as long as a
/// download by one request of the same store, and 1,000 random keys 1.2 s.
#[tokio::test(start_paused = true)]
#[ignore = "a table of 230 MB in memory"]
async fn a_scan_takes_little_longer_than_a_download() {
    const COUNT: u64 = 2_300_000;
    let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    put_large_shard(&inner, COUNT).await;
    let (slow, _) = counted(inner, Duration::from_millis(30));
    slow.slow_down(Duration::from_nanos(8));
    let store: Arc<dyn ObjectStore> = Arc::clone(&slow) as _;
    let path = Path::from("set/large.ldb");
    let plain = cost(&slow, "a download", async {
        let body = store.get(&path).await.unwrap().bytes().await.unwrap();
        println!("{} bytes", body.len());
        assert!(body.len() > 230_000_000);
    });
    let plain = plain.await;
    for is_set in [false, true] {
        for is_lent in [false, true] {
            let (options, what) = (
                OpenOptions::new().no_cache(),
                format!("set: {is_set}, lent: {is_lent}"),
            );
            let scan = async {
                let mut count = 0;
                if is_set {
                    let options = SetOptions::new().tables(options);
                    let set = options.open(Arc::clone(&store), &manifest()).await.unwrap();
                    let mut all = set.range(..).expect_all();
                    while if is_lent {
                        all.advance().await.unwrap()
                    } else {
                        all.next().await.unwrap().is_some()
                    } {
                        count += 1;
                    }
                } else {
                    let table = open_with(Arc::clone(&store), path.clone(), &options)
                        .await
                        .unwrap();
                    let mut all = table.range(..).expect_all();
                    while if is_lent {
                        all.advance().await.unwrap()
                    } else {
                        all.next().await.unwrap().is_some()
                    } {
                        count += 1;
                    }
                }
                assert_eq!(count, COUNT);
            };
            let seconds = cost(&slow, &what, scan).await;
            assert!(seconds <= 1.2 * plain, "{what}: {seconds} to {plain}");
        }
    }
    let keys =
        (0..1000u64).map(|i| format!("{:016}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % COUNT));
    let keys: Vec<String> = keys.collect();
    let batch = async {
        let table = leveltable_object_store::open(Arc::clone(&store), path.clone())
            .await
            .unwrap();
        assert!(
            table
                .get_many(&keys)
                .await
                .unwrap()
                .iter()
                .all(Option::is_some)
        );
    };
    let seconds = cost(&slow, "1,000 keys", batch).await;
    assert!(seconds <= 1.2, "{seconds}");
}
