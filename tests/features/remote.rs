//! Remote tables over a simulated network: the answers of [`Table`], few requests, errors, and futures that are dropped.
//!
//! Time here is counted, not measured: each request takes 30 ms of a clock that jumps on when nothing else can go on.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::ops::Bound;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{self, Entry, Random, Reverse};
use bytes::Bytes;
use futures_util::future::{FutureExt, join, join_all, poll_immediate};
use leveltable::filter::DelimitedPrefix;
use leveltable::remote::{AsyncRange, AsyncReadAt, AsyncTable, BoxFuture, Tail};
use leveltable::{
    BlockCache, Comparator, Compression, ErrorKind, OpenOptions, ReadAt, ReadOptions, WriteOptions,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

// ---- The network ----------------------------------------------------------------------------

/// How long a request takes, in milliseconds.
const LATENCY: u64 = 30;

/// An object on a server, and what was asked of it.
struct Server {
    object: Mutex<Bytes>,
    requests: Mutex<Vec<(u64, usize)>>,
    now: AtomicU64,
    sleepers: Mutex<Vec<(u64, Waker)>>,
    /// Requests that are on their way, and the most that there were.
    flying: AtomicUsize,
    most_flying: AtomicUsize,
    /// The number of the first request that fails, and how it and all that follow do.
    fault: Mutex<Option<(usize, Fault)>>,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Error(io::ErrorKind),
    Short,
    Long,
}

impl Server {
    fn of(object: impl Into<Bytes>) -> Arc<Server> {
        Arc::new(Server {
            object: Mutex::new(object.into()),
            requests: Mutex::default(),
            now: AtomicU64::new(0),
            sleepers: Mutex::default(),
            flying: AtomicUsize::new(0),
            most_flying: AtomicUsize::new(0),
            fault: Mutex::default(),
        })
    }

    /// The requests since the last call, and how long they took.
    fn taken(&self) -> (Vec<(u64, usize)>, u64) {
        let requests = std::mem::take(&mut *self.requests.lock().unwrap());
        (requests, self.now.swap(0, Relaxed))
    }

    /// The number of requests since the last call.
    fn count(&self) -> usize {
        self.taken().0.len()
    }

    /// Notes a request, and takes its time. Returns its number.
    async fn note(&self, offset: u64, len: usize) -> usize {
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push((offset, len));
            requests.len() - 1
        };
        let flight = Flight::of(self);
        Sleep {
            server: self,
            until: self.now.load(Relaxed) + LATENCY,
        }
        .await;
        drop(flight);
        number
    }

    async fn respond(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let number = self.note(offset, len).await;
        let object = self.object.lock().unwrap().clone();
        let read = ReadAt::read_at(&object, offset, len);
        match *self.fault.lock().unwrap() {
            Some((at, fault)) if number >= at => match fault {
                Fault::Error(kind) => Err(kind.into()),
                Fault::Short => read.map(|bytes| bytes.slice(..bytes.len() / 2)),
                Fault::Long => read.map(|bytes| [&bytes[..], b"?"].concat().into()),
            },
            _ => read,
        }
    }

    /// Runs `future` to its end.
    fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            if woken.0.swap(false, Relaxed) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return output;
                }
                continue;
            }
            let mut sleepers = self.sleepers.lock().unwrap();
            let next = sleepers.iter().map(|sleeper| sleeper.0).min();
            let next = next.expect("nothing can go on, and the future is not ready");
            self.now.store(next.max(self.now.load(Relaxed)), Relaxed);
            let due: Vec<_> = sleepers
                .extract_if(.., |sleeper| sleeper.0 <= next)
                .collect();
            drop(sleepers);
            due.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Relaxed);
    }
}

struct Flight<'a>(&'a Server);

impl Flight<'_> {
    fn of(server: &Server) -> Flight<'_> {
        let flying = server.flying.fetch_add(1, Relaxed) + 1;
        server.most_flying.fetch_max(flying, Relaxed);
        Flight(server)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.flying.fetch_sub(1, Relaxed);
    }
}

struct Sleep<'a> {
    server: &'a Server,
    until: u64,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.server.now.load(Relaxed) >= self.until {
            return Poll::Ready(());
        }
        let sleeper = (self.until, context.waker().clone());
        self.server.sleepers.lock().unwrap().push(sleeper);
        Poll::Pending
    }
}

impl AsyncReadAt for Server {
    fn name(&self) -> Option<String> {
        Some("sim://object".into())
    }

    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        Box::pin(async move {
            let size = self.object.lock().unwrap().len() as u64;
            let start = size.saturating_sub(len);
            let bytes = self.respond(start, (size - start) as usize).await?;
            Ok(Tail { size, bytes })
        })
    }

    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(self.respond(offset, len))
    }
}

// ---- Tables ---------------------------------------------------------------------------------

/// 100-byte values under 16-byte keys: 116 bytes per entry.
fn entry(i: u64) -> Entry {
    (key(i), Random(i).bytes(100))
}

fn key(i: u64) -> Vec<u8> {
    format!("{:016}", 2 * i).into_bytes()
}

fn table_of(count: u64) -> Bytes {
    let options = WriteOptions::new().compression(Compression::None);
    let entries: Vec<Entry> = (0..count).map(entry).collect();
    common::build(&options, &entries).into()
}

/// Opens the object of `server` with a cache of its own, and forgets the requests of that.
fn open(server: &Arc<Server>) -> AsyncTable {
    open_with(server, false)
}

/// The same with index and filters.
fn preload(server: &Arc<Server>) -> AsyncTable {
    open_with(server, true)
}

fn open_with(server: &Arc<Server>, preload: bool) -> AsyncTable {
    let options = OpenOptions::new().cache(BlockCache::new(64 << 20));
    let options = options.preload(preload);
    let table = server.run(options.open_async(Arc::clone(server), None));
    server.taken();
    table.unwrap()
}

/// The pieces of an index that was fetched whole need no request.
#[test]
fn a_table_of_leveldbs_with_a_large_index_is_preloaded() {
    let mut file = Vec::new();
    let mut builder = WriteOptions::leveldb().block_size(64).build(&mut file);
    for i in 0..20_000 {
        builder.add(format!("{i:016}"), [b'v'; 64]).unwrap();
    }
    builder.finish().unwrap();
    let server = Server::of(file);
    let table = preload(&server);
    let value = server.run(table.get(format!("{:016}", 19_999))).unwrap();
    assert_eq!(value.as_deref(), Some(&[b'v'; 64][..]));
}

async fn collect(mut range: AsyncRange) -> (Vec<(Bytes, Bytes)>, Option<ErrorKind>) {
    let mut entries = Vec::new();
    loop {
        match range.next().await {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => return (entries, None),
            Err(error) => {
                assert!(
                    range.next().await.unwrap().is_none(),
                    "an entry after an error"
                );
                return (entries, Some(error.kind()));
            }
        }
    }
}

/// The same of a table that is read at once.
fn walk(range: leveltable::TableRange) -> (Vec<(Bytes, Bytes)>, Option<ErrorKind>) {
    let mut entries = Vec::new();
    for entry in range {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(error) => return (entries, Some(error.kind())),
        }
    }
    (entries, None)
}

// ---- The same answers -----------------------------------------------------------------------

#[derive(Debug, Clone)]
struct Shape {
    options: WriteOptions,
    tail_len: Option<u64>,
    check_order: bool,
    filter: bool,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let preset = select(vec![false, true]);
    let size = select(vec![64, 200, 1 << 10, 4 << 10]);
    let codec = select(vec![Compression::None, Compression::Snappy]);
    let tail_len = prop::option::of(0_u64..40_000);
    (preset, size, codec, tail_len, any::<[bool; 4]>()).prop_map(
        |(preset, size, codec, tail_len, [a, b, c, d])| {
            let options = if preset {
                WriteOptions::leveldb()
            } else {
                WriteOptions::new()
            };
            let options = options
                .block_size(size)
                .compression(codec)
                .block_align(a && codec == Compression::None);
            Shape {
                options: if b {
                    options.prefix_filter(DelimitedPrefix::new(b'/'))
                } else {
                    options
                },
                tail_len,
                check_order: c,
                filter: d,
            }
        },
    )
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    let part = || select(vec!["", "a", "b", "ab", "user", "x"]);
    (part(), part(), 0_u32..400).prop_map(|(a, b, i)| format!("{a}/{b}{i}").into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_a_table(
        shape in shapes(),
        entries in prop::collection::btree_map(keys(), vec(any::<u8>(), 0..80), 0..1500),
        probes in vec(keys(), 1..40),
        picks in vec(any::<Index>(), 0..10),
        excluded in any::<[bool; 2]>(),
    ) {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let file: Bytes = common::build(&shape.options, &entries).into();
        let mut options = OpenOptions::new().cache(BlockCache::new(1 << 20)).check_order(shape.check_order);
        if !shape.filter {
            options = options.no_filter();
        }
        let table = options.open_source(file.clone()).unwrap();
        let server = Server::of(file.clone());
        let remote = server.run(options.open_async(Arc::clone(&server), shape.tail_len)).unwrap();
        prop_assert_eq!(remote.file_bytes(), table.file_bytes());
        prop_assert_eq!(remote.entries(), table.entries());
        prop_assert_eq!(remote.properties(), table.properties());
        let opened = remote.stats();
        prop_assert_eq!(opened.source_reads, server.count() as u64);

        // What is behind the data is all that opening needs.
        let exact = server.run(options.clone().check_order(false).open_async(Arc::clone(&server), Some(remote.tail_len())));
        prop_assert!(exact.is_ok());
        prop_assert_eq!(server.taken().0, [(file.len() as u64 - remote.tail_len(), remote.tail_len() as usize)]);

        let present = picks.iter().filter(|_| !entries.is_empty()).map(|pick| pick.get(&entries).0.clone());
        let probes: Vec<Vec<u8>> = probes.into_iter().chain(present).chain([vec![], vec![0xff; 3]]).collect();
        for key in &probes {
            let value = table.get(key).unwrap();
            prop_assert_eq!(server.run(remote.get(key)).unwrap(), value.clone());
            prop_assert!(server.run(remote.may_contain(key)).unwrap() || value.is_none());
            let prefix = &key[..key.len() / 2];
            prop_assert_eq!(server.run(collect(remote.prefix(prefix))), walk(table.prefix(prefix)));
            let start = Bound::Excluded(key);
            prop_assert_eq!(server.run(collect(remote.prefix_from(prefix, start))), walk(table.prefix_from(prefix, start)));
        }
        let fresh = server.run(options.open_async(Arc::clone(&server), shape.tail_len)).unwrap();
        prop_assert_eq!(server.run(fresh.get_many(&probes)).unwrap(), table.get_many(&probes).unwrap());

        let mut bounds = vec![(Bound::Unbounded, Bound::Unbounded)];
        for pair in probes.windows(2) {
            let end = |key: &Vec<u8>, excluded| if excluded { Bound::Excluded(key.clone()) } else { Bound::Included(key.clone()) };
            let (lower, upper) = (end(&pair[0], excluded[0]), end(&pair[1], excluded[1]));
            bounds.extend([(lower.clone(), Bound::Unbounded), (Bound::Unbounded, upper.clone()), (lower, upper)]);
        }
        for bounds in bounds {
            let (forward, error) = walk(table.range(bounds.clone()));
            let backward = forward.iter().rev().cloned().collect();
            prop_assert_eq!(server.run(collect(fresh.range(bounds.clone()).reverse())), (backward, error));
            let bytes = server.run(remote.approximate_bytes(bounds.clone()));
            prop_assert_eq!(bytes.unwrap(), table.approximate_bytes(bounds.clone()).unwrap());
            prop_assert_eq!(server.run(collect(remote.range(bounds))), (forward, error));
        }
        for fraction in [0.0, 0.3, 0.5, 1.0] {
            let key = server.run(remote.key_at_fraction(fraction)).unwrap();
            prop_assert_eq!(key, table.key_at_fraction(fraction).unwrap());
        }
        for n in [0, 1, 2, 7, 100_000] {
            let parts = server.run(remote.splits(n)).unwrap();
            prop_assert!(parts.len() <= n.max(1) && parts.len() <= table.data_blocks().max(1));
            let all: Vec<_> = parts.into_iter().flat_map(|part| walk(table.range(part)).0).collect();
            prop_assert_eq!(all, walk(table.range(..)).0);
        }
    }

    /// Damage anywhere: the remote table opens if the other does, and both answer the same or fail alike.
    #[test]
    fn damage_is_seen_as_in_a_table(
        shape in shapes(),
        count in 1_u64..800,
        at in any::<Index>(),
        change in 1_u8..,
        cut in prop::option::of(any::<Index>()),
        probes in vec(0_u64..900, 1..20),
    ) {
        let entries: Vec<Entry> = (0..count).map(|i| (key(i), Random(i).bytes(20))).collect();
        let mut file = common::build(&shape.options, &entries);
        match cut {
            Some(cut) => file.truncate(cut.index(file.len())),
            None => {
                let at = at.index(file.len());
                file[at] ^= change;
            }
        }
        let file = Bytes::from(file);
        let mut options = OpenOptions::new().no_cache().check_order(shape.check_order);
        if !shape.filter {
            options = options.no_filter();
        }
        let server = Server::of(file.clone());
        let disk: Arc<dyn ReadAt> = Arc::new(file.clone());
        let table = options.open_source(disk);
        let remote = server.run(options.open_async(Arc::clone(&server), shape.tail_len));
        let (table, remote) = match (table, remote) {
            (Ok(table), Ok(remote)) => (table, remote),
            (table, remote) => {
                let kind = |error: leveltable::Error| (error.kind(), error.corruption().cloned());
                prop_assert_eq!(table.map(drop).map_err(kind), remote.map(drop).map_err(kind));
                return Ok(());
            }
        };
        for i in probes {
            let kind = |error: leveltable::Error| (error.kind(), error.corruption().cloned());
            let expected = table.get(key(i)).map_err(kind);
            prop_assert_eq!(server.run(remote.get(key(i))).map_err(kind), expected);
        }
        prop_assert_eq!(server.run(collect(remote.range(..))), walk(table.range(..)));
    }
}

#[test]
fn futures_and_what_they_return_travel_between_threads() {
    fn assert_send<T: Send>(_: &T) {}
    let server = Server::of(table_of(10));
    let opening = OpenOptions::new().open_async(Arc::clone(&server), None);
    assert_send(&opening);
    let table = server.run(opening).unwrap();
    assert_send(&table.get("key"));
    assert_send(&table.get_many(&["a", "b"]));
    let mut range = table.range("a".."b");
    assert_send(&range);
    assert_send(&range.next());
    drop(server.run(range.next()));
}

// ---- Few requests ---------------------------------------------------------------------------

#[test]
fn opening_takes_one_request() {
    let file = table_of(100_000);
    let server = Server::of(file.clone());
    let table = server.run(AsyncTable::open(Arc::clone(&server))).unwrap();
    let tail_len = table.tail_len();
    let tail = (file.len() as u64 - (64 << 10), 64 << 10);
    assert_eq!(server.taken(), (vec![tail], LATENCY));

    let known = OpenOptions::new().open_async(Arc::clone(&server), Some(tail_len));
    server.run(known).unwrap();
    let expected = (file.len() as u64 - tail_len, tail_len as usize);
    assert_eq!(server.taken(), (vec![expected], LATENCY));
}

/// What a first lookup needs of filter and index comes in one round trip, of 99 keys in 100, and the block in another.
#[test]
fn a_first_lookup_takes_two_round_trips() {
    let server = Server::of(table_of(250_000));
    let mut random = Random(7);
    let mut more = 0;
    for _ in 0..200 {
        let i = random.next() % 250_000;
        let table = open(&server);
        let found = server.run(table.get(key(i))).unwrap();
        assert_eq!(found, Some(entry(i).1.into()));
        let (requests, time) = server.taken();
        more += usize::from(time > 2 * LATENCY);
        assert!(time <= 3 * LATENCY, "{requests:?}");
        let bytes: usize = requests.iter().map(|request| request.1).sum();
        // Pieces, and what lies between those that are near each other.
        assert!(bytes <= 110_000, "{requests:?}");
        // The next one near it takes its block.
        let near = (i + 40).min(249_999);
        assert!(server.run(table.may_contain(key(near))).unwrap());
    }
    assert!(more <= 6, "{more} of 200");
}

/// A shard of 250 MB, and one of 2 GB, opened by path: the requests and bytes of that and of a first key.
#[test]
#[ignore = "writes tables of 250 MB and 2 GB"]
fn open_and_first_key_of_large_tables() {
    /// A file, and what was asked of it at the same time.
    struct Counted(std::fs::File, Arc<Server>);
    impl AsyncReadAt for Counted {
        fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
            Box::pin(async move {
                let size = self.0.size()?;
                let bytes = self.read_at(size - len, len as usize).await?;
                Ok(Tail { size, bytes })
            })
        }
        fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
            Box::pin(async move {
                self.1.note(offset, len).await;
                ReadAt::read_at(&self.0, offset, len)
            })
        }
    }
    for count in [2_150_000, 17_200_000] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.ldb");
        let options = WriteOptions::new().compression(Compression::None);
        let mut builder = options.create(&path).unwrap();
        for i in 0..count {
            builder.add(key(i), [i as u8; 100]).unwrap();
        }
        builder.finish().unwrap();
        let server = Server::of(Bytes::new());
        let mut random = Random(7);
        let (mut more, mut all) = (0, Vec::new());
        for _ in 0..1000 {
            let file = Counted(std::fs::File::open(&path).unwrap(), Arc::clone(&server));
            let key = key(random.next() % count);
            let found = server.run(async { AsyncTable::open(file).await?.get(key).await });
            assert!(found.unwrap().is_some());
            let (requests, time) = server.taken();
            more += usize::from(time > 3 * LATENCY);
            let bytes: usize = requests.iter().map(|request| request.1).sum();
            all.push((bytes, requests.len()));
        }
        all.sort_unstable();
        let sum: usize = all.iter().map(|it| it.0).sum();
        println!(
            "{count} entries: {} bytes, at most {:?}; {more} of 1000 take more than 3 round trips",
            sum / 1000,
            all.last()
        );
        assert!(more <= 10, "{more}");
        assert!(all.last().unwrap().0 <= 150_000 + 4_200, "{:?}", all.last());
    }
}

#[test]
fn a_lookup_takes_one_request_or_none() {
    let server = Server::of(table_of(100_000));
    let table = preload(&server);
    assert_eq!(
        server.run(table.get(key(77_777))).unwrap(),
        Some(entry(77_777).1.into())
    );
    let (requests, time) = server.taken();
    assert_eq!((requests.len(), time), (1, LATENCY));
    assert!(requests[0].1 < 4400, "one block: {requests:?}");
    assert!(server.run(table.get(key(77_777))).unwrap().is_some());
    assert_eq!(server.taken(), (vec![], 0));
    for i in 0..20_000_u64 {
        let absent = format!("{:016}", 2 * (i * 5) + 1);
        assert_eq!(server.run(table.get(&absent)).unwrap(), None);
    }
    assert!(server.count() <= 30, "absent keys");
    let stats = table.stats();
    assert!(stats.filter_rejected >= 19_970, "{stats:?}");
}

#[test]
fn batches_merge_what_lies_near() {
    let server = Server::of(table_of(250_000));
    let table = preload(&server);
    let mut random = Random(1);
    let keys: Vec<Vec<u8>> = (0..256).map(|_| key(random.next() % 250_000)).collect();
    let values = server.run(table.get_many(&keys)).unwrap();
    assert!(values.iter().all(Option::is_some));
    let (requests, time) = server.taken();
    let bytes: usize = requests.iter().map(|request| request.1).sum();
    let distinct: BTreeSet<_> = requests.iter().collect();
    assert_eq!(distinct.len(), requests.len());
    assert!(
        requests.len() < 256 && bytes < 256 * (4400 + (64 << 10)),
        "{} {bytes}",
        requests.len()
    );
    assert_eq!(time, LATENCY * requests.len().div_ceil(32) as u64);
    assert_eq!(server.most_flying.load(Relaxed), 32);

    // Where pieces of filter and index must come first, these take three round trips at most.
    let table = open(&server);
    assert_eq!(server.run(table.get_many(&keys)).unwrap(), values);
    let (_, unloaded_time) = server.taken();
    assert!(
        unloaded_time <= time + 3 * LATENCY,
        "{unloaded_time} {time}"
    );

    let neighbours: Vec<Vec<u8>> = (1000..1256).map(key).collect();
    let table = preload(&server);
    server.run(table.get_many(&neighbours)).unwrap();
    assert_eq!(server.count(), 1);
    // All of them again: from the cache.
    assert!(server.run(table.get_many(&neighbours)).unwrap()[255].is_some());
    assert_eq!(server.count(), 0);
}

/// With no cache, too.
#[test]
fn tasks_that_want_one_block_share_its_request() {
    let server = Server::of(table_of(50_000));
    for options in [
        OpenOptions::new().no_cache(),
        OpenOptions::new().cache(BlockCache::new(1 << 20)),
    ] {
        // Without pieces, they share the requests for these, too.
        let table = server.run(options.open_async(Arc::clone(&server), None));
        server.taken();
        let table = table.unwrap();
        let lookups = (0..100).map(|_| table.get(key(123)));
        assert!(
            server
                .run(join_all(lookups))
                .into_iter()
                .all(|value| value.unwrap().is_some())
        );
        let (requests, time) = server.taken();
        let distinct: BTreeSet<_> = requests.iter().collect();
        assert_eq!(distinct.len(), requests.len(), "{requests:?}");
        assert!(time <= 3 * LATENCY, "{time}");

        let options = options.preload(true);
        let table = server
            .run(options.open_async(Arc::clone(&server), None))
            .unwrap();
        server.taken();
        let lookups = (0..100).map(|_| table.get(key(123)));
        let values = server.run(join_all(lookups));
        assert!(
            values
                .into_iter()
                .all(|value| value.unwrap() == Some(entry(123).1.into()))
        );
        let (requests, time) = server.taken();
        assert_eq!((requests.len(), time), (1, LATENCY));
        // A batch joins, too, and asks for the rest alone.
        let (one, many) = (table.get(key(9_000)), [key(9_000), key(40_000)]);
        let (one, many) = server.run(join(one, table.get_many(&many)));
        assert_eq!(many.unwrap()[0], one.unwrap());
        assert_eq!(server.count(), 2);
    }
}

#[test]
fn a_walk_reads_ahead_and_no_further_than_its_end() {
    let count = 250_000;
    let file = table_of(count);
    let server = Server::of(file.clone());
    // The index takes a request more, and a round trip.
    let table = open(&server);
    let (entries, error) = server.run(collect(table.range(..)));
    assert_eq!((entries.len() as u64, error), (count, None));
    let (requests, time) = server.taken();
    assert!(requests.len() <= 11, "{requests:?}");
    assert!(time <= 5 * LATENCY, "{time} ms");

    let table = preload(&server);
    let (entries, error) = server.run(collect(table.range(..)));
    assert_eq!((entries.len() as u64, error), (count, None));
    let (requests, time) = server.taken();
    let bytes: usize = requests.iter().map(|request| request.1).sum();
    assert!(requests.len() <= 10, "{requests:?}");
    assert!(bytes <= file.len());
    assert!(time <= 4 * LATENCY, "{time} ms");
    assert!(server.most_flying.load(Relaxed) <= 6);

    let table = preload(&server);
    let (entries, error) = server.run(collect(table.range(..).expect_all()));
    assert_eq!((entries.len() as u64, error), (count, None));
    let (requests, time) = server.taken();
    let bytes: usize = requests.iter().map(|request| request.1).sum();
    assert!(requests.len() <= 4 && bytes <= file.len(), "{requests:?}");
    assert_eq!(time, LATENCY);

    let table = preload(&server);
    let (mut reversed, error) = server.run(collect(table.range(..).reverse()));
    reversed.reverse();
    assert_eq!((reversed, error), (entries, None));
    let (requests, time) = server.taken();
    let bytes: usize = requests.iter().map(|request| request.1).sum();
    assert!(requests.len() <= 10 && bytes <= file.len(), "{requests:?}");
    assert!(time <= 4 * LATENCY, "{time} ms");

    let table = preload(&server);
    let (entries, _) = server.run(collect(table.range(key(5_000)..key(5_020))));
    assert_eq!(entries.len(), 20);
    let (requests, _) = server.taken();
    assert!(
        requests.len() == 1 && requests[0].1 < 2 * 4400,
        "{requests:?}"
    );
    let mut early = table.range(..);
    server.run(early.next()).unwrap();
    drop(early);
    assert_eq!(server.count(), 1, "a walk that ends early");

    // Nothing is asked for between bounds that exclude each other, or past the end.
    for bounds in [(key(9), key(3)), (key(3), key(3))] {
        assert_eq!(server.run(collect(table.range(bounds.0..bounds.1))).0, []);
    }
    assert_eq!(server.count(), 0);
    assert_eq!(server.run(collect(table.range("a"..))).0, []);
    assert!(
        server.count() <= 1,
        "the last block shows that no key is after its index key"
    );
    assert_eq!(server.run(collect(table.range("a"..))).0, []);
    assert_eq!(server.count(), 0);
}

/// While a slow reader is in one run, all that was asked for has come in. The next request goes out with its next step all the
/// same, and not after a round trip.
#[test]
fn a_slow_reader_does_not_stop_the_read_ahead() {
    let server = Server::of(table_of(500_000));
    let table = preload(&server);
    let mut all = table.range(..).expect_all();
    let (mut entries, mut waits) = (0, 0);
    loop {
        let before = server.now.load(Relaxed);
        if server.run(all.next()).unwrap().is_none() {
            break;
        }
        waits += server.now.load(Relaxed) - before;
        entries += 1;
        // All that is on its way arrives between the reader's steps, at least at the end of a run.
        if entries % 1_000 == 0 {
            server.now.fetch_add(LATENCY, Relaxed);
        }
    }
    assert_eq!(entries, 500_000);
    assert_eq!(waits, LATENCY, "only for the first request");
}

#[test]
fn a_walk_takes_what_is_in_the_cache() {
    let server = Server::of(table_of(20_000));
    let table = open(&server);
    let first = server.run(collect(table.range(..)));
    assert!(server.count() > 3);
    assert_eq!(server.run(collect(table.range(..))), first);
    assert_eq!(server.count(), 0);
}

#[test]
fn a_read_that_does_not_fill_the_cache_uses_what_is_there() {
    let server = Server::of(table_of(8_000));
    let table = preload(&server);
    let aside = table.with_read_options(ReadOptions::new().fill_cache(false));
    let requests = |table: &AsyncTable| {
        assert!(server.run(table.get(key(5))).unwrap().is_some());
        server.count()
    };
    assert_eq!([requests(&aside), requests(&aside)], [1, 1]);
    assert_eq!([requests(&table), requests(&aside)], [1, 0]);
}

#[test]
fn a_value_does_not_keep_what_came_with_it() {
    let server = Server::of(table_of(50_000));
    let table = open(&server);
    // The memory that the last owner of a value keeps.
    let kept_by = |value: Bytes| {
        value
            .try_into_mut()
            .map_or(usize::MAX, |own| own.capacity())
    };
    // The cache keeps a block of its own, so these are the only owners.
    let values = server.run(table.get_many(&[key(1), key(30)])).unwrap();
    for value in values.into_iter().flatten() {
        assert!(kept_by(value) < 10_000);
    }

    // A walk whose blocks no cache takes.
    let options = OpenOptions::new().no_cache();
    let table = server.run(options.open_async(Arc::clone(&server), None));
    let mut all = table.unwrap().range(..).expect_all();
    let mut kept = Vec::new();
    for i in 0..50_000 {
        let (_, value) = server.run(all.next()).unwrap().unwrap();
        assert_eq!(value, entry(i).1);
        if i % 1_000 == 0 {
            kept.push(value);
        }
    }
    drop(all);
    for (i, value) in (0..).step_by(1_000).zip(kept) {
        assert_eq!(value, entry(i).1, "its memory is not used again");
        assert!(kept_by(value) < 10_000);
    }
}

/// Entries that are lent are those that are returned to keep, in any mixture, within bounds, with a cache and without.
#[test]
fn a_walk_lends_the_entries_that_it_returns() {
    let file = table_of(20_000);
    let server = Server::of(file.clone());
    let no_cache = OpenOptions::new().no_cache();
    let no_cache = server.run(no_cache.open_async(Arc::clone(&server), None));
    for table in [open(&server), no_cache.unwrap()] {
        for (from, to) in [(0, 20_000), (3, 4), (17, 19_000), (9_000, 9_000)] {
            let mut range = table.range(key(from)..key(to));
            assert_eq!((range.key(), range.value()), (&[][..], &[][..]));
            let mut kept = Vec::new();
            for i in from..to {
                let (key, value) = entry(i);
                if i % 3 == 0 {
                    kept.push((i, server.run(range.next()).unwrap().unwrap()));
                } else {
                    assert!(server.run(range.advance()).unwrap());
                }
                assert_eq!((range.key(), range.value()), (&key[..], &value[..]));
                assert_eq!(range.entry(), (key.into(), value.into()));
            }
            for _ in 0..2 {
                assert!(!server.run(range.advance()).unwrap());
                assert_eq!((range.key(), range.value()), (&[][..], &[][..]));
                assert_eq!(range.entry(), Default::default());
            }
            for (i, (key, value)) in kept {
                assert_eq!((&key[..], &value[..]), (&entry(i).0[..], &entry(i).1[..]));
            }
        }
    }
}

// ---- Errors ---------------------------------------------------------------------------------

/// From each request in turn on, all fail, in each way: every answer is right, or an error that says which request.
#[test]
fn a_request_that_fails_is_an_error_of_those_who_need_it() {
    let file = table_of(8_000);
    let server = Server::of(file);
    let faults = [
        Fault::Error(io::ErrorKind::TimedOut),
        Fault::Error(io::ErrorKind::StaleNetworkFileHandle),
        Fault::Short,
        Fault::Long,
    ];
    let ask = |tail_len: u64| {
        let options = OpenOptions::new().no_cache();
        let server = Arc::clone(&server);
        async move {
            let table: AsyncTable = options.open_async(server, Some(tail_len)).await?;
            let value = table.get(key(77)).await?;
            assert_eq!(value, Some(entry(77).1.into()));
            let values = table.get_many(&[key(1), key(4_000), key(7_999)]).await?;
            assert!(values.iter().all(Option::is_some));
            let mut range = table.range(..);
            let mut entries = 0;
            while range.next().await?.is_some() {
                entries += 1;
            }
            assert_eq!(entries, 8_000);
            leveltable::Result::Ok(())
        }
    };
    for tail_len in [48, 1000, 256 << 10] {
        *server.fault.lock().unwrap() = None;
        server.run(ask(tail_len)).unwrap();
        let requests = server.count();
        assert!(requests > 5);
        for (at, fault) in (0..requests).flat_map(|at| faults.map(|fault| (at, fault))) {
            *server.fault.lock().unwrap() = Some((at, fault));
            let error: leveltable::Error = server.run(ask(tail_len)).unwrap_err();
            server.taken();
            let expected = match fault {
                Fault::Error(io::ErrorKind::StaleNetworkFileHandle) => ErrorKind::Replaced,
                _ => ErrorKind::Io,
            };
            assert_eq!(error.kind(), expected, "{error}");
            assert!(
                error.to_string().starts_with("sim://object: reading "),
                "{error}"
            );
        }
    }
}

/// All who share a request get its error, and the next one who asks makes a new request.
#[test]
fn a_failed_request_is_not_remembered() {
    let server = Server::of(table_of(8_000));
    let table = open(&server);
    *server.fault.lock().unwrap() = Some((0, Fault::Error(io::ErrorKind::ConnectionReset)));
    let lookups = server.run(join_all((0..10).map(|_| table.get(key(5)))));
    assert!(lookups.iter().all(|value| {
        value
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Io)
    }));
    *server.fault.lock().unwrap() = None;
    assert!(server.run(table.get(key(5))).unwrap().is_some());
    assert_eq!(server.count(), 2);
}

/// The source has repeated it already: asking for each block of it would only take long.
#[test]
fn a_failed_batch_is_not_repeated_block_by_block() {
    let server = Server::of(table_of(8_000));
    let table = preload(&server);
    *server.fault.lock().unwrap() = Some((0, Fault::Error(io::ErrorKind::TimedOut)));
    let keys: Vec<Vec<u8>> = (0..1000).map(key).collect();
    let error = server.run(table.get_many(&keys)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let (requests, time) = server.taken();
    assert_eq!((requests.len(), time), (1, LATENCY), "{requests:?}");
}

/// A request ahead fails, and the call that then asks for a block alone is dropped. The walk goes on from that block, in its own
/// direction, and reads ahead again.
#[test]
fn a_walk_goes_on_after_a_request_ahead_that_fails() {
    let count = 20_000;
    let server = Server::of(table_of(count));
    for is_reverse in [false, true] {
        let table = preload(&server);
        let mut expected: Vec<(Bytes, Bytes)> = (0..count)
            .map(entry)
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        let mut range = table.range(..);
        if is_reverse {
            expected.reverse();
            range = range.reverse();
        }
        let mut found = vec![server.run(range.next()).unwrap().unwrap()];
        while let Some(next) = server.run(poll_immediate(range.next())) {
            found.push(next.unwrap().unwrap());
        }
        assert!((found.len() as u64) < count, "it waits for a request");
        *server.fault.lock().unwrap() = Some((0, Fault::Error(io::ErrorKind::TimedOut)));
        server.now.fetch_add(LATENCY, Relaxed);
        assert!(server.run(poll_immediate(range.next())).is_none());
        *server.fault.lock().unwrap() = None;
        server.taken();
        let (left, error) = server.run(collect(range));
        found.extend(left);
        assert_eq!(error, None);
        assert!(found == expected, "{} entries", found.len());
        let (requests, _) = server.taken();
        assert!(requests.len() <= 12, "{requests:?}");
    }
}

/// A size that cannot be: an error, or, where all offsets are right for all that, the right answer.
#[test]
fn a_source_that_lies_about_its_size_is_an_error() {
    struct Liar(Bytes, u64);
    impl AsyncReadAt for Liar {
        fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
            let (mut tail, size) = (self.0.clone(), self.1);
            let start = tail.len().saturating_sub(len as usize);
            let bytes = tail.split_off(start);
            Box::pin(async move { Ok(Tail { size, bytes }) })
        }

        fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
            let read = ReadAt::read_at(&self.0, offset, len);
            Box::pin(async move { read })
        }
    }
    let file = table_of(5_000);
    let len = file.len() as u64;
    for size in [0, 1, len - 1, len + 1, 1 << 40, u64::MAX] {
        for tail_len in [0, 48, 1 << 10, 1 << 20] {
            let opening = OpenOptions::new().open_async(Liar(file.clone(), size), Some(tail_len));
            let opened = opening.now_or_never().expect("ready at once");
            if let Ok(table) = opened {
                let value = table.get(key(77)).now_or_never().expect("ready at once");
                assert_eq!(value.unwrap(), Some(entry(77).1.into()));
                assert!(size > len, "{size} {tail_len}");
            }
        }
    }
}

// ---- Futures that are dropped ---------------------------------------------------------------

/// A call that is dropped after any number of polls loses nothing: the next one returns what it would have returned.
#[test]
fn dropped_futures_lose_nothing() {
    let count = 20_000;
    let server = Server::of(table_of(count));
    let table = open(&server);
    let mut range = table.range(..);
    let mut random = Random(3);
    for i in 0..count {
        let mut next = None;
        while next.is_none() && random.next().is_multiple_of(2) {
            next = server.run(poll_immediate(range.next()));
        }
        let next = match next {
            Some(next) => next,
            None => server.run(range.next()),
        };
        assert_eq!(next.unwrap().unwrap().0, key(i));
    }
    assert!(server.run(range.next()).unwrap().is_none());

    // A lookup that is given up is cancelled; one that others wait for is not.
    server.taken();
    let table = open(&server);
    let mut first = Box::pin(table.get(key(100)));
    let mut second = Box::pin(table.get(key(100)));
    assert!(server.run(poll_immediate(&mut first)).is_none());
    assert_eq!(server.flying.load(Relaxed), 1);
    assert!(server.run(poll_immediate(&mut second)).is_none());
    drop(first);
    assert_eq!(server.flying.load(Relaxed), 1);
    assert_eq!(server.run(second).unwrap(), Some(entry(100).1.into()));
    assert_eq!(server.count(), 1);
    let mut alone = Box::pin(table.get(key(10_000)));
    assert!(server.run(poll_immediate(&mut alone)).is_none());
    drop(alone);
    assert_eq!(server.flying.load(Relaxed), 0, "cancelled");
    assert!(server.run(table.get(key(10_000))).unwrap().is_some());
    assert_eq!(server.count(), 2);
}

// ---- Other orders ---------------------------------------------------------------------------

/// Bytewise, but for two keys in each other's place.
#[derive(Debug)]
struct Swapped(Vec<u8>, Vec<u8>);

impl Swapped {
    fn place<'a>(&'a self, key: &'a [u8]) -> &'a [u8] {
        match key {
            key if key == self.0 => &self.1,
            key if key == self.1 => &self.0,
            key => key,
        }
    }
}

impl Comparator for Swapped {
    fn name(&self) -> &str {
        "test.Swapped"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        self.place(a).cmp(self.place(b))
    }
}

#[test]
fn tables_in_other_orders_are_read_or_refused() {
    let entries: Vec<Entry> = (0..5_000).rev().map(entry).collect();
    let options = WriteOptions::new().comparator(Reverse);
    let server = Server::of(common::build(&options, &entries));
    let open = |options: OpenOptions| server.run(options.open_async(Arc::clone(&server), Some(60)));
    let error = open(OpenOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
    let table = open(OpenOptions::new().comparator(Reverse)).unwrap();
    assert!(server.run(table.get(key(7))).unwrap().is_some());
    let (found, _) = server.run(collect(table.range(key(20)..key(10))));
    assert_eq!(found.len(), 10);
    let (found, error) = server.run(collect(table.prefix("0")));
    assert_eq!((found, error), (vec![], Some(ErrorKind::Comparator)));

    let table = open(OpenOptions::new().stored_order()).unwrap();
    assert_eq!(server.run(collect(table.range(..))).0.len(), 5_000);
    assert_eq!(
        server.run(table.get("key")).unwrap_err().kind(),
        ErrorKind::Comparator
    );
    assert_eq!(
        server.run(collect(table.range("a"..))).1,
        Some(ErrorKind::Comparator)
    );
    assert_eq!(server.run(table.splits(9)).unwrap().len(), 1);
}

/// Opening a large foreign table with its order checked fetches all of it once, in long requests: the tail, the index, and the blocks,
/// up to 512 at a time.
#[test]
fn checking_the_order_fetches_the_table_once() {
    let entries: Vec<Entry> = (0..20_000).map(entry).collect();
    let file = common::build(
        &WriteOptions::leveldb().compression(Compression::None),
        &entries,
    );
    let server = Server::of(file.clone());
    let options = OpenOptions::new().no_cache().check_order(true);
    server
        .run(options.open_async(Arc::clone(&server), None))
        .unwrap();
    let (requests, _) = server.taken();
    let bytes: usize = requests.iter().map(|request| request.1).sum();
    assert!(bytes < file.len() + (256 << 10) + 1);
    assert!(requests.len() <= 4, "{requests:?}");

    // Two keys in the midst of blocks that no lookup reads: nothing but a check of all blocks sees them.
    let (a, b) = (key(2_000), key(4_000));
    let mut disorder = entries;
    disorder.swap(2_000, 4_000);
    let options = WriteOptions::leveldb().comparator(Swapped(a, b));
    let server = Server::of(common::build(&options, &disorder));
    let open = |options: OpenOptions| server.run(options.open_async(Arc::clone(&server), None));
    assert!(open(OpenOptions::new()).is_ok());
    let error = open(OpenOptions::new().check_order(true)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Comparator);
}
