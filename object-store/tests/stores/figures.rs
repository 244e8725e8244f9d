//! Requests and bytes of a table of a million entries, counted at the proxy. `benches/requests` measures the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use leveltable::OpenOptions;
use leveltable_object_store::set::SetOptions;
use leveltable_object_store::{ObjectSource, ObjectTableBuilder, open, publish};
use object_store::ObjectStoreExt;
use object_store::path::Path;

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

const ROUNDS: usize = 9;

/// A table of 230 MB, and a set of it, scanned in turns with a download by the same client: one GET whose body is collected. Each
/// request takes 30 ms, and all of them share a line: of 1 Gbit/s, and as fast as the machine.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn scans_to_downloads() {
    let (count, path) = (2 * COUNT, Path::from("scans/table.ldb"));
    let direct = seaweed().store();
    let size = upload(&direct, &path, 0..count).await.summary.file_bytes;
    let manifest = Path::from("scans/manifest");
    let _ = direct.delete(&manifest).await;
    let published = publish(direct, &manifest, &[path.clone()], None).await;
    published.unwrap();
    let proxy = Proxy::start(seaweed().address).await;
    let store = seaweed().store_by(proxy.address);
    proxy.delay(Duration::from_millis(30));
    let cold = || OpenOptions::new().no_cache();
    let table = async || {
        let source = ObjectSource::new(Arc::clone(&store), path.clone());
        let table = cold().open_async(source, None).await.unwrap();
        table.range(..).expect_all()
    };
    let set = async || {
        let options = SetOptions::new().tables(cold());
        let set = options.open(Arc::clone(&store), &manifest).await.unwrap();
        set.range(..).expect_all()
    };
    macro_rules! walk {
        ($range:expr, next) => {{
            let (mut all, mut n) = ($range, 0);
            while all.next().await.unwrap().is_some() {
                n += 1;
            }
            assert_eq!(n, count);
        }};
        ($range:expr, advance) => {{
            let (mut all, mut n) = ($range, 0);
            while all.advance().await.unwrap() {
                n += 1;
            }
            assert_eq!(n, count);
        }};
    }
    let names = [
        "download",
        "table, next",
        "table, advance",
        "set, next",
        "set, advance",
    ];
    for line in [1 << 27, u64::MAX] {
        proxy.bytes_per_second(line.min(1 << 30));
        let mut ratios = [(); 5].map(|()| Vec::new());
        let mut costs = [(0.0, 0); 5];
        for _ in 0..ROUNDS {
            let mut plain = 0.0;
            for (i, name) in names.iter().enumerate() {
                proxy.take();
                let (start, before) = (Instant::now(), ticks());
                match *name {
                    "download" => {
                        let body = store.get(&path).await.unwrap().bytes().await.unwrap();
                        assert_eq!(body.len() as u64, size);
                    }
                    "table, next" => walk!(table().await, next),
                    "table, advance" => walk!(table().await, advance),
                    "set, next" => walk!(set().await, next),
                    _ => walk!(set().await, advance),
                }
                let time = start.elapsed().as_secs_f64();
                if i == 0 {
                    plain = time;
                }
                ratios[i].push(time / plain);
                costs[i].0 += time / ROUNDS as f64;
                costs[i].1 += ticks() - before;
            }
        }
        println!("{size} bytes, at most {line} a second");
        for ((name, ratios), (time, ticks)) in names.iter().zip(&mut ratios).zip(costs) {
            ratios.sort_by(f64::total_cmp);
            let [low, middle, high] = [1, 2, 3].map(|quarter| ratios[ROUNDS * quarter / 4]);
            let ms = 10 * ticks / ROUNDS as u64;
            println!(
                "{name}: {time:.2} s, {middle:.2} times ({low:.2} to {high:.2}) the download, {ms} ms here"
            );
            assert!(
                line == u64::MAX || cfg!(debug_assertions) || low <= 1.2,
                "{name}"
            );
        }
    }
}
