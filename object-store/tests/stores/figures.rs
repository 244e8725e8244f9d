//! Requests and bytes of a table of a million entries, counted at the proxy. `benches/requests` measures the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use leveltable::OpenOptions;
use leveltable_object_store::{ObjectSource, ObjectTableBuilder, open};
use object_store::path::Path;

use crate::BUSY;
use crate::proxy::{Proxy, Seen};
use crate::servers::seaweed;
use crate::suite::{entries, options, upload};

const COUNT: u64 = 1_000_000;

/// Number of requests and bytes of their responses.
fn sum(seen: &[Seen]) -> (usize, u64) {
    (seen.len(), seen.iter().map(|seen| seen.received).sum())
}

/// Random keys of the table, the same each time.
fn scattered(count: u64) -> Vec<String> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!("{:016}", (state >> 33) % COUNT)
    };
    (0..count).map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn a_million_entries() {
    let proxy = Proxy::start(seaweed().address).await;
    let store = seaweed().store_by(proxy.address);
    let path = Path::from("figures.ldb");

    let mut builder =
        ObjectTableBuilder::create(Arc::clone(&store), path.clone(), &options()).unwrap();
    for (key, value) in entries(0..COUNT) {
        builder.add(key, value).await.unwrap();
    }
    let uploaded = builder.finish().await.unwrap();
    let size = uploaded.summary.file_bytes;
    let parts = size.div_ceil(8 << 20) as usize;
    assert_eq!(proxy.take().len(), parts + 2);

    proxy.delay(Duration::from_millis(30));
    let table = open(Arc::clone(&store), path.clone()).await.unwrap();
    assert_eq!(sum(&proxy.take()), (1, 64 << 10), "to open");
    // Pieces of filter and index, and the block.
    assert!(table.get(&scattered(1)[0]).await.unwrap().is_some());
    let (requests, bytes) = sum(&proxy.take());
    assert!(requests <= 6, "{requests} requests for a first key");
    assert!(bytes <= 150 << 10, "{bytes}");

    let source = ObjectSource::new(Arc::clone(&store), path.clone());
    let source = source.pinned_to(uploaded.version);
    let opened = OpenOptions::new()
        .open_async(source, Some(uploaded.tail_len))
        .await;
    // The end of the file has all of index and filter.
    let table = opened.unwrap();
    assert_eq!(sum(&proxy.take()), (1, uploaded.tail_len));

    // Present, in the cache, absent.
    let key = &scattered(1)[0];
    assert!(table.get(key).await.unwrap().is_some());
    let (requests, bytes) = sum(&proxy.take());
    assert!(requests == 1 && (4000..=4300).contains(&bytes), "{bytes}");
    assert!(table.get(key).await.unwrap().is_some());
    assert_eq!(table.get("0000000000000007.5").await.unwrap(), None);
    assert_eq!(proxy.take().len(), 0);

    // 256 in one call, then neighbours.
    let keys = scattered(256);
    let values = table.get_many(&keys).await.unwrap();
    assert!(values.iter().all(Option::is_some));
    let (requests, bytes) = sum(&proxy.take());
    assert!(requests <= 225, "{requests} requests for 256 keys");
    assert!(bytes <= 2_500_000, "{bytes}");
    let keys: Vec<String> = (500_000..500_256).map(|i| format!("{i:016}")).collect();
    let values = table.get_many(&keys).await.unwrap();
    assert!(values.iter().all(Option::is_some));
    let (requests, _) = sum(&proxy.take());
    assert!(requests <= 2, "{requests} requests for neighbours");

    // A hundred tasks that want one block.
    let wanted = stream::iter(700_000..700_100).map(|_| {
        let table = table.clone();
        tokio::spawn(async move { table.get("0000000000700000").await.unwrap().unwrap() })
    });
    let found: Vec<_> = wanted.buffer_unordered(100).collect().await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(proxy.take().len(), 1);

    let absent = stream::iter(0..200_000).map(|i| {
        let table = &table;
        async move { table.get(format!("{:016}.5", i * 5)).await.unwrap() }
    });
    let found = absent.buffer_unordered(64).filter(|value| {
        let is_some = value.is_some();
        async move { is_some }
    });
    assert_eq!(found.count().await, 0);
    let (requests, _) = sum(&proxy.take());
    assert!(requests <= 300, "{requests} requests for absent keys");

    // A scan of a table just opened, so that no block is in the cache.
    let no_cache = OpenOptions::new().no_cache();
    let source = ObjectSource::new(Arc::clone(&store), path.clone());
    let table = no_cache
        .open_async(source, Some(uploaded.tail_len))
        .await
        .unwrap();
    proxy.take();
    let mut all = table.range(..);
    let mut count = 0;
    while all.next().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, COUNT);
    let (requests, bytes) = sum(&proxy.take());
    assert!(requests <= 20, "{requests} requests for a scan");
    assert!(bytes <= size + size / 100, "{bytes}");
}

/// A thousand random keys of a table just opened, by one call.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn a_thousand_keys() {
    let _alone = BUSY.lock().await;
    let path = Path::from("thousand.ldb");
    upload(&seaweed().store(), &path, 0..COUNT).await;
    let proxy = Proxy::start(seaweed().address).await;
    let store = seaweed().store_by(proxy.address);
    proxy.delay(Duration::from_millis(30));
    let keys = scattered(1000);
    let mut times = Vec::new();
    for _ in 0..5 {
        let (start, ticks) = (Instant::now(), ticks());
        let table = open(Arc::clone(&store), path.clone()).await.unwrap();
        let values = table.get_many(&keys).await.unwrap();
        times.push(start.elapsed());
        assert!(values.iter().all(Option::is_some));
        let (requests, bytes) = sum(&proxy.take());
        let (time, ticks) = (times.last().unwrap(), 10 * (self::ticks() - ticks));
        println!("{requests} requests, {bytes} bytes, {time:?}, {ticks} ms of the processor");
        assert!(requests <= 1010, "{requests}");
    }
    let best = times.into_iter().min().unwrap();
    let most = Duration::from_millis(if cfg!(debug_assertions) { 6000 } else { 1200 });
    assert!(best <= most, "{best:?}");
}

/// Clock ticks of 10 ms that this process, the proxy included, has taken of the processors.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split(' ');
    let ticks = fields.skip(12).take(2);
    ticks.map(|ticks| ticks.parse::<u64>().unwrap_or(0)).sum()
}
