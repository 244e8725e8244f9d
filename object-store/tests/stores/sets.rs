//! Sets on servers: who wins a race, lost replies of the server itself, requests counted at the proxy.
//!
//! `tests/sets` has all else, in memory and in a directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leveltable_object_store::set::{
    PublishError, PublishErrorKind, Published, SetOptions, SetVersion,
};
use leveltable_object_store::{Retries, Shard, TableSet, Timeouts, publish};
use object_store::ObjectStore;
use object_store::path::Path;

use crate::proxy::{Fault, Proxy, Seen};
use crate::servers::{Server, azurite, s3rver, seaweed};
use crate::suite::{entries, upload};

const SHARDS: u64 = 4;
/// Entries of a shard, each of 116 bytes.
const ENTRIES: u64 = 10_000;

fn options() -> SetOptions {
    SetOptions::new().retries(Retries::new(2, Duration::from_millis(1)))
}

/// Shards under `directory`, each in a version of its own: a shard that is written twice is another one.
async fn put_shards(store: &Arc<dyn ObjectStore>, directory: &str) -> Vec<Path> {
    let mut paths = Vec::new();
    for i in 0..SHARDS {
        let path = Path::from(format!("{directory}/{i}.ldb"));
        upload(store, &path, ENTRIES * i..ENTRIES * (i + 1)).await;
        paths.push(path);
    }
    paths
}

async fn current(store: &Arc<dyn ObjectStore>, manifest: &Path) -> SetVersion {
    let set = TableSet::open(Arc::clone(store), manifest).await;
    set.unwrap().version().clone()
}

fn kind(result: &Result<Published, PublishError>) -> Option<PublishErrorKind> {
    result.as_ref().err().map(PublishError::kind)
}

/// A directory of the server that no other test has.
fn directory(name: &str, server: &Server) -> String {
    format!("sets-{name}-{}", server.address.port())
}

async fn publish_and_read(server: &Server) {
    let store = server.store();
    let directory = directory("read", server);
    let manifest = Path::from(format!("{directory}/manifest"));
    let error = TableSet::open(Arc::clone(&store), &manifest).await;
    assert_eq!(error.unwrap_err().kind(), leveltable::ErrorKind::Io);
    let paths = put_shards(&store, &directory).await;
    let first = publish(Arc::clone(&store), &manifest, &paths[..3], None);
    let first = first.await.unwrap();
    let second = publish(Arc::clone(&store), &manifest, &paths, Some(&first.version));
    let second = second.await.unwrap();
    for late in [None, Some(&first.version)] {
        let late = publish(Arc::clone(&store), &manifest, &paths[..1], late).await;
        assert_eq!(kind(&late), Some(PublishErrorKind::Conflict));
    }
    let set = TableSet::open(store, &manifest).await.unwrap();
    assert_eq!(set.version(), &second.version);
    assert_eq!(set.entries(), Some(SHARDS * ENTRIES));
    let mut range = set.range(..);
    for (key, value) in entries(0..SHARDS * ENTRIES) {
        let found = range.next().await.unwrap().unwrap();
        assert_eq!((&found.0[..], &found.1[..]), (key.as_bytes(), &value[..]));
    }
    assert_eq!(range.next().await.unwrap(), None);
    let keys: Vec<_> = entries(0..SHARDS * ENTRIES).step_by(97).collect();
    let wanted: Vec<_> = keys.iter().map(|(key, _)| key).collect();
    let found = set.get_many(&wanted).await.unwrap();
    for ((_, value), found) in keys.iter().zip(found) {
        assert_eq!(found.unwrap(), &value[..]);
    }
}

/// Publishers that replace the same publication at the same time: one wins, all others are told.
async fn race(server: &Server) {
    let store = server.store();
    let directory = directory("race", server);
    let manifest = Path::from(format!("{directory}/manifest"));
    let paths = put_shards(&store, &directory).await;
    let mut previous = None;
    for _ in 0..10 {
        let tasks = (0..4).map(|_| {
            let (store, manifest) = (Arc::clone(&store), manifest.clone());
            let (paths, previous) = (paths.clone(), previous.clone());
            tokio::spawn(async move { publish(store, &manifest, &paths, previous.as_ref()).await })
        });
        let mut winners = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            match task.await.unwrap() {
                Ok(published) => winners.push(published.version),
                Err(error) => assert_eq!(error.kind(), PublishErrorKind::Conflict, "{error}"),
            }
        }
        assert_eq!(winners.len(), 1);
        previous = winners.pop();
        assert_eq!(Some(current(&store, &manifest).await), previous);
    }
}

/// What the proxy does to the first request that publishes, and what comes of it.
async fn faults(server: &Server) {
    let direct = server.store();
    let directory = directory("faults", server);
    let manifest = Path::from(format!("{directory}/manifest"));
    let paths = put_shards(&direct, &directory).await;
    let publish = async |store: Arc<dyn ObjectStore>, previous: Option<SetVersion>| {
        let options = options().timeouts(Timeouts::new(Duration::from_secs(2), 1 << 20));
        let published = options.publish(store, &manifest, &paths, previous.as_ref());
        published.await
    };
    let is_publication = |seen: &Seen| {
        seen.method == "PUT"
            && seen
                .target
                .split('?')
                .next()
                .unwrap()
                .ends_with("/manifest")
    };
    let mut previous = None;
    // The client's own retries meet what its first request has done.
    for retries in [0, 3] {
        for fault in [
            || Fault::LoseReply,
            || Fault::Status(503),
            || Fault::Status(500),
            || Fault::Stall,
        ] {
            let proxy = Proxy::start(server.address).await;
            let mut fault = Some(fault());
            proxy.rule(move |seen, _| {
                let fault = fault.take_if(|_| is_publication(seen));
                fault.unwrap_or(Fault::None)
            });
            let store = server.store_with(proxy.address, retries);
            let published = publish(store, previous.clone()).await.unwrap();
            assert_eq!(published.version, current(&direct, &manifest).await);
            previous = Some(published.version);
        }
        // Another publisher comes first, and the reply to the one that loses is lost, too.
        let proxy = Proxy::start(server.address).await;
        let (other, own) = (Arc::clone(&direct), previous.clone());
        let winner = publish(other, own).await.unwrap();
        let mut fault = Some(Fault::LoseReply);
        proxy.rule(move |seen, _| {
            let fault = fault.take_if(|_| is_publication(seen));
            fault.unwrap_or(Fault::None)
        });
        let store = server.store_with(proxy.address, retries);
        let loser = publish(store, previous.clone()).await;
        assert_eq!(kind(&loser), Some(PublishErrorKind::Conflict));
        assert_eq!(current(&direct, &manifest).await, winner.version);
        previous = Some(winner.version);
    }
}

/// Requests at 30 ms each.
async fn figures(server: &Server) {
    let directory = directory("figures", server);
    let manifest = Path::from(format!("{directory}/manifest"));
    let paths = put_shards(&server.store(), &directory).await;
    let proxy = Proxy::start(server.address).await;
    let store = server.store_by(proxy.address);
    publish(Arc::clone(&store), &manifest, &paths, None)
        .await
        .unwrap();
    // Azure has no requests for the end of an object, and is asked for its size first.
    let reads = if server.has_suffixes() { 1 } else { 2 };
    // The store is asked what it can do by three writes, which a deletion follows.
    assert_eq!(proxy.take().len(), reads * paths.len() + 4 + 1);
    proxy.delay(Duration::from_millis(30));
    let begun = Instant::now();
    let set = TableSet::open(store, &manifest).await.unwrap();
    let opened = begun.elapsed();
    assert_eq!(proxy.take().len(), 1);
    // The first connection was made. In a shard that is not open yet: opened, and read.
    let begun = Instant::now();
    assert!(set.get(format!("{:016}", 12_345)).await.unwrap().is_some());
    let got = begun.elapsed();
    let seen = proxy.take();
    assert_eq!(seen.len(), 2);
    let shard = &set.shards()[1];
    assert!(seen[0].received <= shard.tail_len, "{}", seen[0].received);
    assert!(seen[1].received <= 4300, "{}", seen[1].received);
    // In an open one, then absent, within shards and between them.
    assert!(set.get(format!("{:016}", 16_000)).await.unwrap().is_some());
    assert_eq!(proxy.take().len(), 1);
    assert_eq!(set.get(format!("{:016}x", 16_000)).await.unwrap(), None);
    assert_eq!(
        set.get(format!("{:016}x", ENTRIES - 1)).await.unwrap(),
        None
    );
    assert_eq!(proxy.take().len(), 0);
    println!("opened in {opened:?}; key of a shard that was not open in {got:?}");

    // Refreshed: nothing has changed; the same shards were published again; one of them is new, and is opened and read.
    let set = set.refresh().await.unwrap();
    assert_eq!(proxy.take().len(), 1);
    for new in [None, Some(1)] {
        let mut shards = set.shards().to_vec();
        if let Some(new) = new {
            let path = Path::from(format!("{directory}/new.ldb"));
            upload(&server.store(), &path, ENTRIES..2 * ENTRIES).await;
            let described = Shard::describe(server.store(), &path).await.unwrap();
            shards[new] = described.unwrap();
        }
        let current = current(&server.store(), &manifest).await;
        let (options, store) = (options(), server.store());
        let published = options.publish_shards(store, &manifest, shards, Some(&current));
        published.await.unwrap();
        let set = set.refresh().await.unwrap();
        assert_eq!(proxy.take().len(), 1);
        assert!(set.get(format!("{:016}", 12_345)).await.unwrap().is_some());
        assert_eq!(proxy.take().len(), if new.is_some() { 2 } else { 0 });
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn on_seaweedfs() {
    publish_and_read(seaweed()).await;
    race(seaweed()).await;
    faults(seaweed()).await;
    figures(seaweed()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn on_azurite() {
    publish_and_read(azurite()).await;
    race(azurite()).await;
    faults(azurite()).await;
    figures(azurite()).await;
}

/// It ignores conditions, so that a publisher could overwrite another's set.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn on_s3rver_sets_are_refused() {
    let store = s3rver().store();
    let paths = put_shards(&store, "sets").await;
    let manifest = Path::from("sets/manifest");
    let published = publish(Arc::clone(&store), &manifest, &paths, None).await;
    assert_eq!(kind(&published), Some(PublishErrorKind::Unsupported));
    assert!(TableSet::open(store, &manifest).await.is_err());
}
