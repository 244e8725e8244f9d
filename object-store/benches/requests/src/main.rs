//! Requests, bytes and time of a table of a million entries in object storage, with 30 ms added to each request: read by
//! `leveltable-object-store`, by plain adapters of `object_store`, and, with the feature `slatedb`, the same entries by SlateDB.
//!
//! Install the server first: `object-store/tests/servers/install`. Prints a table in Markdown. With the argument `scans`, compares
//! scans and downloads only.

#[path = "../../../tests/stores/proxy.rs"]
#[allow(dead_code)]
mod proxy;
#[path = "../../../tests/stores/servers.rs"]
#[allow(dead_code)]
mod servers;

mod adapters;
#[cfg(feature = "slatedb")]
mod slate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use leveltable::remote::{AsyncTable, BoxFuture};
use leveltable::{Compression, OpenOptions, WriteOptions};
use leveltable_object_store::{ObjectSource, ObjectTableBuilder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::proxy::Proxy;
use crate::servers::seaweed;

pub const COUNT: u64 = 1_000_000;

/// What is added to each request.
const DELAY: Duration = Duration::from_millis(30);

/// Measurements of one operation are repeated so often, and the median is shown.
const ROUNDS: usize = 5;

pub fn key(i: u64) -> String {
    format!("{i:016}")
}

pub fn value(i: u64) -> [u8; 100] {
    let mut state = i;
    [(); 100].map(|()| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    })
}

/// Random keys of the table, others in each round.
fn scattered(round: usize, count: u64) -> Vec<String> {
    let mut state = 1 + round as u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        key((state >> 33) % COUNT)
    };
    (0..count).map(|_| next()).collect()
}

/// A table or database that is open.
pub trait Reader: Send + Sync {
    fn get(&self, key: String) -> BoxFuture<'_, Option<Bytes>>;

    /// The values of all keys, at the same time if it can do that.
    fn get_many(&self, keys: Vec<String>) -> BoxFuture<'_, Vec<Option<Bytes>>>;

    /// Number of entries, by reading all.
    fn scan(&self) -> BoxFuture<'_, u64>;

    /// Ends what it does in the background.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Reader for AsyncTable {
    fn get(&self, key: String) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move { self.get(key).await.unwrap() })
    }

    fn get_many(&self, keys: Vec<String>) -> BoxFuture<'_, Vec<Option<Bytes>>> {
        Box::pin(async move { AsyncTable::get_many(self, &keys).await.unwrap() })
    }

    fn scan(&self) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let mut all = self.range(..).expect_all();
            let mut count = 0;
            while all.advance().await.unwrap() {
                count += 1;
            }
            count
        })
    }
}

/// Reopens it, with an empty cache.
pub type Open = Box<dyn Fn() -> BoxFuture<'static, Arc<dyn Reader>>>;

/// Requests, bytes and time.
#[derive(Debug, Clone, Copy)]
struct Cost(usize, u64, Duration);

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let &Cost(requests, bytes, time) = self;
        let bytes = match bytes {
            0..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
            _ => format!("{:.2} MB", bytes as f64 / 1e6),
        };
        let time = match time.as_micros() {
            micros @ 0..1000 => format!("{micros} us"),
            micros @ 1000..1_000_000 => format!("{} ms", micros / 1000),
            micros => format!("{:.1} s", micros as f64 / 1e6),
        };
        write!(f, "{requests}, {bytes}, {time}")
    }
}

/// Runs `work`, and counts at the proxy.
async fn measure<T>(proxy: &Proxy, work: impl Future<Output = T>) -> (T, Cost) {
    proxy.take();
    let start = Instant::now();
    let done = work.await;
    let time = start.elapsed();
    let seen = proxy.take();
    let bytes = seen.iter().map(|seen| seen.received).sum();
    (done, Cost(seen.len(), bytes, time))
}

fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by_key(|cost| cost.2);
    costs[costs.len() / 2]
}

/// The rows of one contestant, in order.
async fn measure_all(proxy: &Proxy, open: &Open) -> Vec<(&'static str, Cost)> {
    let mut rows: BTreeMap<usize, (&'static str, Vec<Cost>)> = BTreeMap::new();
    let mut add = |at, name, cost| rows.entry(at).or_insert((name, Vec::new())).1.push(cost);
    for round in 0..ROUNDS {
        let (table, cost) = measure(proxy, open()).await;
        add(0, "open", cost);
        let keys = scattered(round, 1);
        let (found, cost) = measure(proxy, table.get(keys[0].clone())).await;
        assert!(found.is_some());
        add(1, "get, present", cost);
        let (_, cost) = measure(proxy, table.get(keys[0].clone())).await;
        add(2, "get, in the cache", cost);
        let another = scattered(round + 100, 1).remove(0);
        let (found, cost) = measure(proxy, table.get(another)).await;
        assert!(found.is_some());
        add(3, "get, another key", cost);
        let (found, cost) = measure(proxy, table.get(key(round as u64) + ".5")).await;
        assert!(found.is_none());
        add(4, "get, absent", cost);
        let (found, cost) = measure(proxy, table.get_many(scattered(round, 256))).await;
        assert!(found.iter().all(Option::is_some));
        add(5, "256 random keys", cost);
        let start = 500_000 + 10_000 * round as u64;
        let keys = (start..start + 256).map(key).collect();
        let (found, cost) = measure(proxy, table.get_many(keys)).await;
        assert!(found.iter().all(Option::is_some));
        add(6, "256 neighbours", cost);
        let wanted = key(700_000 + 10_000 * round as u64);
        let tasks = (0..100).map(|_| {
            let (table, wanted) = (Arc::clone(&table), wanted.clone());
            tokio::spawn(async move { table.get(wanted).await.unwrap() })
        });
        // Spawned within the measurement.
        let all = async { futures_util::future::join_all(tasks).await };
        let (_, cost) = measure(proxy, all).await;
        add(7, "100 tasks, one block", cost);
        table.close().await;
        let table = open().await;
        let (count, cost) = measure(proxy, table.scan()).await;
        assert_eq!(count, COUNT);
        add(9, "scan", cost);
        table.close().await;
    }
    let table = open().await;
    let absent = stream::iter((0..200_000).map(|i| key(i * 5) + ".5"));
    let absent = absent.map(|key| table.get(key)).buffer_unordered(64);
    let found = absent.filter(|value| std::future::ready(value.is_some()));
    let (count, cost) = measure(proxy, found.count()).await;
    assert_eq!(count, 0);
    add(8, "200,000 absent keys", cost);
    table.close().await;
    let rows = rows.into_values();
    rows.map(|(name, costs)| (name, median(costs))).collect()
}

/// Rounds in which scans and downloads take turns.
const SCAN_ROUNDS: usize = 15;

/// Clock ticks of 10 ms that this process, the proxy included, has taken of the processors.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split(' ');
    let ticks = fields.skip(12).take(2);
    ticks.map(|ticks| ticks.parse::<u64>().unwrap_or(0)).sum()
}

/// Downloads and scans of one object take turns, so that other load slows all of them.
async fn scans_against_downloads(proxy: &Proxy, store: &Arc<dyn ObjectStore>, path: &Path) {
    const NAMES: [&str; 6] = [
        "download, one GET",
        "download, GETs of 8 MiB, four at a time",
        "scan, `expect_all`, `next`",
        "scan, `expect_all`, `advance`",
        "scan, `next`",
        "scan, `advance`",
    ];
    let size = store.head(path).await.unwrap().size;
    let whole = async || {
        let body = store.get(path).await.unwrap();
        assert_eq!(body.bytes().await.unwrap().len() as u64, size);
    };
    let parts = async || {
        let starts = (0..size).step_by(8 << 20);
        let part = |start| store.get_range(path, start..size.min(start + (8 << 20)));
        let parts = stream::iter(starts.map(part)).buffered(4);
        let parts: Vec<_> = parts.collect().await;
        let len: usize = parts.into_iter().map(|part| part.unwrap().len()).sum();
        assert_eq!(len as u64, size);
    };
    let scan = async |table: AsyncTable, is_expected: bool, is_lent: bool| {
        let mut all = table.range(..);
        if is_expected {
            all = all.expect_all();
        }
        let mut count = 0;
        if is_lent {
            while all.advance().await.unwrap() {
                count += 1;
            }
        } else {
            while all.next().await.unwrap().is_some() {
                count += 1;
            }
        }
        assert_eq!(count, COUNT);
    };
    let mut costs = [(); NAMES.len()].map(|()| Vec::new());
    let mut ticks = [0; NAMES.len()];
    let mut ratios = [(); NAMES.len()].map(|()| Vec::new());
    for _ in 0..SCAN_ROUNDS {
        let mut times = Vec::new();
        for (i, costs) in costs.iter_mut().enumerate() {
            let source = ObjectSource::new(Arc::clone(store), path.clone());
            let options = OpenOptions::new().cache(leveltable::BlockCache::new(32 << 20));
            let table = options.open_async(source, None).await.unwrap();
            let before = cpu();
            let work: BoxFuture<'_, ()> = match i {
                0 => Box::pin(whole()),
                1 => Box::pin(parts()),
                _ => Box::pin(scan(table, i <= 3, i % 2 == 1)),
            };
            let (_, cost) = measure(proxy, work).await;
            ticks[i] += cpu() - before;
            times.push(cost.2.as_secs_f64());
            costs.push(cost);
        }
        for (ratios, time) in ratios.iter_mut().zip(&times) {
            ratios.push(time / times[0]);
        }
    }
    for (i, name) in NAMES.iter().enumerate() {
        ratios[i].sort_by(f64::total_cmp);
        println!(
            "{name}: {}, {:.2} times ({:.2} to {:.2}) the first, {} ms here",
            median(costs[i].clone()),
            ratios[i][SCAN_ROUNDS / 2],
            ratios[i][SCAN_ROUNDS / 4],
            ratios[i][SCAN_ROUNDS * 3 / 4],
            10 * ticks[i] / SCAN_ROUNDS as u64,
        );
    }
}

#[tokio::main]
async fn main() {
    let proxy = Proxy::start(seaweed().address).await;
    let store = seaweed().store_by(proxy.address);
    let path = Path::from("table.ldb");
    proxy.delay(DELAY);

    let options = WriteOptions::new().compression(Compression::None);
    let build = async {
        let mut builder =
            ObjectTableBuilder::create(Arc::clone(&store), path.clone(), &options).unwrap();
        for i in 0..COUNT {
            builder.add(key(i), value(i)).await.unwrap();
        }
        builder.finish().await.unwrap()
    };
    let (uploaded, built) = measure(&proxy, build).await;
    let size = uploaded.summary.file_bytes;
    println!(
        "{COUNT} entries of 116 bytes, {size} bytes, a tail of {}",
        uploaded.tail_len
    );
    println!("build: {built}; {} parts\n", size.div_ceil(8 << 20));
    scans_against_downloads(&proxy, &store, &path).await;
    if std::env::args().any(|argument| argument == "scans") {
        return;
    }

    // What the manifest of a set knows.
    let mut opened = Vec::new();
    for _ in 0..ROUNDS {
        let source = ObjectSource::new(Arc::clone(&store), path.clone());
        let source = source.pinned_to(uploaded.version.clone());
        let options = OpenOptions::new();
        let known = options.open_async(source, Some(uploaded.tail_len));
        opened.push(measure(&proxy, known).await.1);
    }
    println!("open, size of the tail known: {}", median(opened));

    // What a scan costs without a network.
    let object = store.get(&path).await.unwrap().bytes().await.unwrap();
    let table = AsyncTable::open(object).await.unwrap();
    let (_, cost) = measure(&proxy, table.scan()).await;
    println!("scan in memory: {cost}\n");

    let by_path: Open = {
        let (store, path) = (Arc::clone(&store), path.clone());
        Box::new(move || {
            let (store, path) = (Arc::clone(&store), path.clone());
            Box::pin(async move {
                // Each with a cache of its own.
                let cache = leveltable::BlockCache::new(32 << 20);
                let source = ObjectSource::new(store, path);
                let options = OpenOptions::new().cache(cache);
                Arc::new(options.open_async(source, None).await.unwrap()) as Arc<dyn Reader>
            })
        })
    };
    let mut columns = vec![("this crate", by_path)];
    columns.push(("plain `ReadAt`", adapters::open(&store, &path, false)));
    columns.push(("`get_ranges`", adapters::open(&store, &path, true)));
    #[cfg(feature = "slatedb")]
    {
        slate::load(seaweed().store()).await;
        columns.push(("SlateDB", slate::open(&store)));
    }
    let mut table: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut header = "| requests, bytes, time |".to_owned();
    for (name, open) in &columns {
        header += &format!(" {name} |");
        for (at, (row, cost)) in measure_all(&proxy, open).await.into_iter().enumerate() {
            let cells = table.entry(at).or_insert_with(|| vec![row.to_owned()]);
            cells.push(cost.to_string());
        }
        eprintln!("{name} is done");
    }
    println!("{header}\n|---|{}", "---|".repeat(columns.len()));
    for cells in table.values() {
        println!("| {} |", cells.join(" | "));
    }
}
