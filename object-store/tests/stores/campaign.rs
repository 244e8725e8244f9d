//! A service under load on a server that fails in many ways, while sets are published and refreshed beside it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use leveltable::{BlockCache, ErrorKind, OpenOptions, WriteOptions};
use leveltable_object_store::set::SetOptions;
use leveltable_object_store::{Retries, TableSet, Timeouts, publish};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::BUSY;
use crate::proxy::{Fault, Proxy};
use crate::servers::seaweed;

const SHARDS: u64 = 8;
const KEYS: u64 = 4_000;
const LOOKUPS: usize = if cfg!(debug_assertions) {
    20_000
} else {
    100_000
};
const TASKS: usize = 64;

/// A sequence of numbers that looks random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }
}

fn key(i: u64) -> String {
    format!("{i:08}")
}

fn value(version: &str, i: u64) -> String {
    format!("{version}/{i}:").repeat(12)
}

/// Puts the tables of a version, each with keys of its own.
async fn put_version(store: &Arc<dyn ObjectStore>, version: &str) -> Vec<Path> {
    let mut paths = Vec::new();
    for shard in 0..SHARDS {
        let mut builder = WriteOptions::new().build(Vec::new());
        for i in shard * KEYS..(shard + 1) * KEYS {
            builder.add(key(i), value(version, i)).unwrap();
        }
        let (table, _) = builder.finish_into_writer().unwrap();
        let path = Path::from(format!("campaign/{version}/{shard}.ldb"));
        store.put(&path, table.into()).await.unwrap();
        paths.push(path);
    }
    paths
}

/// One request in twenty fails, in one of twelve ways.
fn fault(numbers: &mut Numbers) -> Fault {
    if numbers.next(20) > 0 {
        return Fault::None;
    }
    let at = numbers.next(3000) as usize;
    match numbers.next(12) {
        0 => Fault::Stall,
        1 => Fault::StallAfter(0),
        2 => Fault::StallAfter(at),
        3 => Fault::CutAfter(0),
        4 => Fault::CutAfter(at),
        5 => Fault::FlipAt(0),
        6 => Fault::FlipAt(at),
        7 => Fault::Status(500),
        8 => Fault::Status(503),
        9 => Fault::Status(429),
        10 => Fault::LoseReply,
        _ => Fault::After(Box::pin(tokio::time::sleep(Duration::from_millis(300)))),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn no_answer_is_wrong_and_none_hangs() {
    let _alone = BUSY.lock().await;
    let direct = seaweed().store();
    let manifest = Path::from("campaign/manifest");
    let _ = direct.delete(&manifest).await;
    let paths = put_version(&direct, "0").await;
    let first = publish(Arc::clone(&direct), &manifest, &paths, None).await;
    let mut current = first.unwrap().version;
    let proxy = Proxy::start(seaweed().address).await;
    let options = SetOptions::new()
        .tables(OpenOptions::new().cache(BlockCache::new(1 << 20)))
        .max_open(6)
        .timeouts(Timeouts::new(Duration::from_secs(2), 1 << 20))
        .retries(Retries::new(3, Duration::from_millis(20)));
    let set = options
        .open(seaweed().store_by(proxy.address), &manifest)
        .await;
    let set = Arc::new(RwLock::new(set.unwrap()));
    let mut numbers = Numbers(1);
    proxy.rule(move |_, _| fault(&mut numbers));

    let is_over = Arc::new(AtomicBool::new(false));
    let (watched, over) = (Arc::clone(&set), Arc::clone(&is_over));
    let watcher = tokio::spawn(async move {
        let mut refreshed = 0;
        while !over.load(Ordering::Relaxed) {
            let set: TableSet = watched.read().unwrap().clone();
            if let Ok(newer) = set.refresh().await {
                refreshed += usize::from(newer.version() != set.version());
                *watched.write().unwrap() = newer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        refreshed
    });
    let (over, store) = (Arc::clone(&is_over), Arc::clone(&direct));
    let publisher = tokio::spawn(async move {
        for version in 1.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            // Half of the tables are new ones.
            let new = put_version(&store, &version.to_string()).await;
            let kept = paths.iter().zip(&new).enumerate();
            let paths = kept.map(|(i, (old, new))| if i % 2 == version % 2 { old } else { new });
            let paths: Vec<Path> = paths.cloned().collect();
            let published = publish(Arc::clone(&store), &manifest, &paths, Some(&current)).await;
            current = published.unwrap().version;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    let start = Instant::now();
    let errors = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..TASKS as u64)
        .map(|task| {
            let (set, errors) = (Arc::clone(&set), Arc::clone(&errors));
            tokio::spawn(async move {
                let mut numbers = Numbers(task);
                for _ in 0..LOOKUPS.div_ceil(TASKS) {
                    let set = set.read().unwrap().clone();
                    let i = numbers.next(SHARDS * KEYS);
                    let is_there = numbers.next(4) > 0;
                    let wanted = key(i) + if is_there { "" } else { "x" };
                    let begun = Instant::now();
                    let found = set.get(&wanted).await;
                    assert!(
                        begun.elapsed() < Duration::from_secs(30),
                        "{:?}",
                        begun.elapsed()
                    );
                    let shard = &set.shards()[(i / KEYS) as usize];
                    let version = shard.path.as_ref().split('/').nth(1).unwrap();
                    match found {
                        Ok(Some(found)) => {
                            assert!(is_there, "{wanted}");
                            assert_eq!(found, value(version, i).as_bytes());
                        }
                        Ok(None) => assert!(!is_there, "{wanted}"),
                        Err(error) => {
                            let kind = error.kind();
                            assert!(
                                matches!(kind, ErrorKind::Io | ErrorKind::Corruption),
                                "{error}"
                            );
                            errors.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let refreshed = watcher.await.unwrap();
    publisher.await.unwrap();
    let errors = errors.load(Ordering::Relaxed);
    let requests = proxy.take().len();
    println!(
        "{LOOKUPS} lookups in {:?}: {requests} requests, {errors} errors, {refreshed} sets",
        start.elapsed()
    );
    assert!(refreshed > 3, "{refreshed}");
    // Each answer that fails has met four faults in a row, or two flipped bytes.
    assert!(errors < LOOKUPS / 200, "{errors}");
}
