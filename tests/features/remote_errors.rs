//! Remote tables: what other tasks do at the same time, sources that fail, and what must not be read.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

use crate::common::{self, Entry};
use bytes::Bytes;
use futures_util::future::{FutureExt, poll_immediate};
use leveltable::remote::{AsyncReadAt, AsyncTable, BoxFuture, Tail};
use leveltable::{BlockCache, Compression, OpenOptions, ReadAt, Section, WriteOptions};

fn key(i: u64) -> Vec<u8> {
    format!("{i:08}").into_bytes()
}

fn table_of(count: u64) -> Bytes {
    let options = WriteOptions::new().compression(Compression::None);
    let entries: Vec<Entry> = (0..count).map(|i| (key(i), vec![b'v'; 100])).collect();
    common::build(&options, &entries).into()
}

fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("ready at once")
}

/// A key whose `as_ref` does what another thread may do at that moment: it looks key 0 up, which puts block 0 into the cache.
struct Meddling(Vec<u8>, Arc<OnceLock<AsyncTable>>, AtomicUsize, usize);

impl AsRef<[u8]> for Meddling {
    fn as_ref(&self) -> &[u8] {
        if self.2.fetch_add(1, SeqCst) == self.3 {
            let table = self.1.get().unwrap();
            assert!(now(table.get(key(0))).unwrap().is_some());
        }
        &self.0
    }
}

/// The block comes into the cache while the batch is being planned.
#[test]
fn a_batch_finds_keys_whose_blocks_come_into_the_cache_meanwhile() {
    let options = OpenOptions::new().cache(BlockCache::new(64 << 20));
    let table = now(options.open_async(table_of(20_000), None)).unwrap();
    assert!(now(table.get(key(9_000))).unwrap().is_some());
    let shared = Arc::new(OnceLock::from(table.clone()));
    let keys = [
        Meddling(key(0), Arc::clone(&shared), AtomicUsize::new(0), 99),
        // As the cached block of this key is searched.
        Meddling(key(9_000), shared, AtomicUsize::new(0), 1),
    ];
    let values = now(table.get_many(&keys)).unwrap();
    assert!(values[1].is_some());
    assert!(
        values[0].is_some(),
        "a key that exists is said to be absent"
    );
}

/// The same with two threads and nothing odd.
#[test]
fn a_batch_finds_all_keys_while_another_thread_looks_them_up() {
    let file = table_of(20_000);
    for round in 0..300 {
        let options = OpenOptions::new().cache(BlockCache::new(64 << 20));
        let table = now(options.open_async(file.clone(), None)).unwrap();
        let keys: Vec<Vec<u8>> = (0..500).map(|i| key(i * 40)).collect();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                for key in keys.iter() {
                    assert!(block_on(table.get(key)).unwrap().is_some());
                }
            });
            start.wait();
            let values = table.get_many(&keys);
            let values = block_on(values).unwrap();
            let lost = values.iter().filter(|value| value.is_none()).count();
            assert_eq!(
                lost, 0,
                "round {round}: {lost} keys that exist are said to be absent"
            );
        });
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// Fails while `fails`, after one round of waiting.
struct Flaky {
    object: Bytes,
    fails: AtomicBool,
    requests: AtomicUsize,
    waits: AtomicBool,
}

impl AsyncReadAt for Flaky {
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        AsyncReadAt::read_tail(&self.object, len)
    }
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(async move {
            self.requests.fetch_add(1, SeqCst);
            let mut waited = !self.waits.load(SeqCst);
            std::future::poll_fn(|context| {
                if std::mem::replace(&mut waited, true) {
                    return std::task::Poll::Ready(());
                }
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            })
            .await;
            if self.fails.load(SeqCst) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            ReadAt::read_at(&self.object, offset, len)
        })
    }
}

/// A call that begins after a request has failed makes a new one, though a task has not yet looked at the failure.
#[test]
fn a_request_that_has_failed_is_not_joined() {
    let source = Arc::new(Flaky {
        object: table_of(20_000),
        fails: AtomicBool::new(true),
        requests: AtomicUsize::new(0),
        waits: AtomicBool::new(true),
    });
    let table = now(OpenOptions::new()
        .no_cache()
        .open_async(Arc::clone(&source), None))
    .unwrap();
    // A task that waits, and is not polled again for now.
    let mut slow = Box::pin(table.get(key(0)));
    assert!(now(poll_immediate(&mut slow)).is_none());
    let first = block_on(table.get(key(0)));
    assert!(first.is_err());
    source.fails.store(false, SeqCst);
    let retried = block_on(table.get(key(0)));
    assert_eq!(source.requests.load(SeqCst), 2, "the retry made no request");
    assert!(retried.unwrap().is_some());
    drop(slow);
}

/// A source of which a part cannot be read.
struct Hole(Bytes, std::ops::Range<u64>);

impl Hole {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if offset < self.1.end && self.1.start < offset + len as u64 {
            return Err(io::Error::other("a bad sector"));
        }
        ReadAt::read_at(&self.0, offset, len)
    }
}

impl ReadAt for Hole {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.read(offset, len)
    }
}

impl AsyncReadAt for Hole {
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        AsyncReadAt::read_tail(&self.0, len)
    }
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        let read = self.read(offset, len);
        Box::pin(async move { read })
    }
}

/// A walk returns all entries before the block that cannot be read, as that of a `Table`.
#[test]
fn a_walk_fails_where_the_unreadable_block_is() {
    let object = table_of(20_000);
    let hole = || Hole(object.clone(), 1_000_000..1_000_001);
    let table = OpenOptions::new()
        .no_cache()
        .open_source(Arc::new(hole()))
        .unwrap();
    let remote = now(OpenOptions::new().no_cache().open_async(hole(), None)).unwrap();
    let expected = table.iter().take_while(Result::is_ok).count();
    let mut range = remote.range(..);
    let mut found = 0;
    while let Ok(Some(_)) = now(range.next()) {
        found += 1;
    }
    assert_eq!(found, expected);
}

/// It shares a batch's longer request, of which another part cannot be read.
#[test]
fn a_lookup_does_not_fail_for_another_block() {
    let source = Arc::new(Flaky {
        object: table_of(20_000),
        fails: AtomicBool::new(false),
        requests: AtomicUsize::new(0),
        waits: AtomicBool::new(true),
    });
    struct Both(Arc<Flaky>, Hole);
    impl AsyncReadAt for Both {
        fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
            self.0.read_tail(len)
        }
        fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
            let hole = self.1.read(offset, len);
            Box::pin(async move {
                self.0.read_at(offset, len).await?;
                hole
            })
        }
    }
    let object = source.object.clone();
    let both = Both(source, Hole(object, 20_000..20_001));
    let table = now(OpenOptions::new().no_cache().open_async(both, None)).unwrap();
    let keys = [key(0), key(180)];
    let mut batch = Box::pin(table.get_many(&keys));
    assert!(now(poll_immediate(&mut batch)).is_none());
    let value = block_on(table.get(key(0)));
    assert!(value.unwrap().is_some());
}

#[test]
fn check_order_fails_on_damage_as_that_of_a_table_does() {
    let mut object = table_of(20_000).to_vec();
    // In a value.
    let at = 1_000_000
        + object[1_000_000..]
            .iter()
            .position(|&byte| byte == b'v')
            .unwrap()
        + 20;
    object[at] ^= 1;
    let object = Bytes::from(object);
    let options = OpenOptions::new().no_cache().check_order(true);
    let table = options.open_source(object.clone());
    let remote = now(options.open_async(object, None));
    assert_eq!(table.is_ok(), remote.is_ok());
}

/// Each key is 8 bytes: others are a mistake of the caller's that `prefix` promises to answer with an error.
#[test]
fn prefix_does_not_ask_another_order_about_a_prefix() {
    let entries: Vec<Entry> = (0..10).map(|i| (key(i), vec![])).collect();
    let file = common::build(
        &WriteOptions::new().comparator(common::EightBytes),
        &entries,
    );
    let table = OpenOptions::new()
        .comparator(common::EightBytes)
        .open_source(file)
        .unwrap();
    assert!(table.prefix("000").next().unwrap().is_err());
}

/// It came whole with the tail.
#[test]
fn check_order_of_a_small_table_makes_no_more_requests() {
    let source = Arc::new(Flaky {
        object: table_of(300),
        fails: AtomicBool::new(false),
        requests: AtomicUsize::new(0),
        waits: AtomicBool::new(false),
    });
    let options = OpenOptions::new().check_order(true);
    now(options.open_async(Arc::clone(&source), None)).unwrap();
    assert_eq!(source.requests.load(SeqCst), 0);
}

/// A range of bytes that cannot be read.
struct BadSector(Bytes, std::ops::Range<u64>);

impl AsyncReadAt for BadSector {
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        AsyncReadAt::read_tail(&self.0, len)
    }
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        let is_bad = offset < self.1.end && self.1.start < offset + len as u64;
        let read = if is_bad {
            Err(io::Error::other("bad sector"))
        } else {
            ReadAt::read_at(&self.0, offset, len)
        };
        Box::pin(std::future::ready(read))
    }
}

/// A small table comes whole, but a block that cannot be read is for those who look in it.
#[test]
fn a_small_table_opens_without_a_block() {
    let file = table_of(300);
    assert!(file.len() < 64 << 10);
    let source = || BadSector(file.clone(), 5_000..5_001);
    for tail_len in [4096, 8192] {
        let table = now(OpenOptions::new().open_async(source(), Some(tail_len))).unwrap();
        let found = (0..300).filter(|&i| now(table.get(key(i))).is_ok_and(|value| value.is_some()));
        assert!((200..300).contains(&found.count()));
        let options = OpenOptions::new().check_order(true);
        assert!(now(options.open_async(source(), Some(tail_len))).is_err());
    }
}

/// What is no table is said to be none, however short the tail that is asked for.
#[test]
fn what_is_no_table_is_said_whatever_the_tail() {
    let junk = Bytes::from(vec![b'x'; 100_000]);
    for tail_len in [0, 48, 1000, 20_000, 40_000, 300_000] {
        let opened = now(OpenOptions::new().open_async(junk.clone(), Some(tail_len)));
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), leveltable::ErrorKind::NotATable, "{error}");
    }
}

/// A source that panics once: that is an error for all who wait for the block, and the next one asks again.
#[test]
fn a_panic_in_the_source_does_not_hang_those_who_wait() {
    struct Panics(Bytes, AtomicUsize);
    impl AsyncReadAt for Panics {
        fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
            AsyncReadAt::read_tail(&self.0, len)
        }
        fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
            let mut polls = 0;
            Box::pin(std::future::poll_fn(move |_| {
                polls += 1;
                if polls < 3 {
                    return std::task::Poll::Pending;
                }
                if self.1.fetch_add(1, SeqCst) == 0 {
                    panic!("a bug in the source");
                }
                std::task::Poll::Ready(ReadAt::read_at(&self.0, offset, len))
            }))
        }
    }
    struct Woken(AtomicBool);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.store(true, SeqCst);
        }
    }
    let source = Panics(table_of(20_000), AtomicUsize::new(0));
    let table = now(OpenOptions::new().no_cache().open_async(source, None)).unwrap();
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = std::task::Waker::from(Arc::clone(&woken));
    let mut waits = Box::pin(table.get(key(0)));
    assert!(
        waits
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
            .is_pending()
    );
    woken.0.store(false, SeqCst);
    let first =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(table.get(key(0)))));
    println!("first: {}", first.is_err());
    let later =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(table.get(key(0)))));
    println!(
        "later lookups of the block: {}",
        if later.is_err() { "panic" } else { "work" }
    );
    assert!(woken.0.load(SeqCst), "the one who waits is never woken");
}

/// No part asks for the last block of the part before it.
#[test]
fn parts_ask_for_their_own_blocks_only() {
    struct Noted(Bytes, Mutex<Vec<(u64, usize)>>);
    impl AsyncReadAt for Noted {
        fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
            AsyncReadAt::read_tail(&self.0, len)
        }
        fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
            self.1.lock().unwrap().push((offset, len));
            AsyncReadAt::read_at(&self.0, offset, len)
        }
    }
    let source = Arc::new(Noted(table_of(20_000), Mutex::default()));
    let table = now(OpenOptions::new()
        .no_cache()
        .open_async(Arc::clone(&source), None))
    .unwrap();
    let mut end = 0;
    for part in block_on(table.splits(4)).unwrap() {
        source.1.lock().unwrap().clear();
        let mut range = table.range(part);
        while now(range.next()).unwrap().is_some() {}
        let asked = source.1.lock().unwrap();
        assert!(
            asked[0].0 >= end,
            "asks from {} on, and the part before ended at {end}",
            asked[0].0
        );
        end = asked
            .iter()
            .map(|part| part.0 + part.1 as u64)
            .max()
            .unwrap();
    }
}
/// A request for the properties that fails is no damage that a caller without filters could do without.
#[test]
fn a_failed_request_for_the_properties_is_an_error_without_filters_too() {
    /// The file, and where its properties lie.
    struct Fails(Bytes, std::ops::Range<u64>);
    impl AsyncReadAt for Fails {
        fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
            AsyncReadAt::read_tail(&self.0, len)
        }
        fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
            let is_asked = (offset..offset + len as u64).contains(&self.1.start);
            if is_asked && offset + len as u64 <= self.1.end {
                return Box::pin(async { Err(io::ErrorKind::StaleNetworkFileHandle.into()) });
            }
            AsyncReadAt::read_at(&self.0, offset, len)
        }
    }
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = options.build(Vec::new());
    for i in 0..20_000 {
        builder.add(key(i), b"value").unwrap();
    }
    // Too long to come with the metaindex.
    builder.property("long", vec![b'p'; 300_000]).unwrap();
    let (file, _) = builder.finish_into_writer().unwrap();
    let properties = common::Layout::of(&file).properties.unwrap();
    let properties = properties.start as u64..properties.end as u64;
    let options = OpenOptions::new().no_filter();
    let source = Fails(file.into(), properties);
    let opened = now(options.open_async(source, Some(48)));
    assert!(
        opened.is_err(),
        "opened: it has {:?} entries",
        opened.unwrap().entries()
    );
}

struct FarHole(common::Hole);

impl AsyncReadAt for FarHole {
    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        AsyncReadAt::read_tail(&self.0.0, len)
    }
    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        let read = ReadAt::read_at(&self.0, offset, len);
        Box::pin(async move { read })
    }
}

/// The error of a byte that cannot be read says in which section it is, as that of a `Table` does.
#[test]
fn an_error_of_the_source_names_the_section() {
    let (file, keys, holes) = common::table_with_holes();
    let layout = common::Layout::of(&file);
    let mut named = Vec::new();
    for hole in holes {
        let source = FarHole(common::Hole(file.clone(), hole));
        let read = async {
            let options = OpenOptions::new().no_cache();
            // A short tail, which does not bring the filter.
            let table = options.open_async(source, Some(8 << 10)).await?;
            for key in keys.iter().step_by(97) {
                table.get(key).await?;
            }
            let mut range = table.range(..);
            while range.next().await?.is_some() {}
            table.get_many(&keys).await
        };
        let (section, _) = layout.section_at(hole);
        if let Err(error) = now(read) {
            common::assert_names_section(&error, section);
            named.push(section);
        }
    }
    for section in [Section::Data, Section::Index, Section::Filter] {
        assert!(named.contains(&section), "{section}: {named:?}");
    }
}
