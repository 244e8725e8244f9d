//! Stores that answer wrongly, late or without saying which version they read: each answer is right or an error.

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::Odd;
use futures_util::{FutureExt, StreamExt, stream};
use leveltable::remote::AsyncReadAt;
use leveltable::{Compression, ErrorKind, WriteOptions};
use leveltable_object_store::{
    ObjectSource, ObjectTableBuilder, Retries, Timeouts, UploadOptions, Version, open,
};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStoreExt, Result,
};
use tokio::time::Instant;

const LEN: usize = 1000;

fn content() -> Bytes {
    (0..LEN).map(|i| (i * 7 % 251) as u8).collect()
}

async fn source(odd: Odd) -> (ObjectSource, Arc<Odd>) {
    let odd = Arc::new(odd);
    let path = Path::from("o");
    odd.inner.put(&path, content().into()).await.unwrap();
    let source = ObjectSource::new(odd.clone(), path);
    (source, odd)
}

fn body(chunks: Vec<Bytes>) -> GetResultPayload {
    GetResultPayload::Stream(stream::iter(chunks.into_iter().map(Ok)).boxed())
}

/// A response with another body.
fn with_body(response: Result<GetResult>, chunks: Vec<Bytes>) -> Result<GetResult> {
    response.map(|response| GetResult {
        payload: body(chunks),
        ..response
    })
}

/// Bodies that are too short or too long, in one piece or in many.
#[tokio::test(start_paused = true)]
async fn a_body_has_the_length_that_was_asked_for() {
    for len in [0, 1, 99, 101, 10_000] {
        for pieces in [1, 7] {
            let odd = Odd::new(move |_, _, response| {
                let body = Bytes::from(vec![1; len]);
                let pieces = body.chunks(len.div_ceil(pieces).max(1));
                with_body(response, pieces.map(Bytes::copy_from_slice).collect())
            });
            let (source, odd) = source(odd).await;
            let error = source.read_at(100, 100).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert!(error.to_string().starts_with("attempt 3 of 3: "), "{error}");
            assert_eq!(odd.reads.load(Ordering::Relaxed), 3);
        }
    }
    // As many pieces as bytes.
    let odd = Odd::new(|_, _, response| {
        let pieces = content().slice(100..200);
        with_body(
            response,
            pieces.chunks(1).map(Bytes::copy_from_slice).collect(),
        )
    });
    let (source, _) = source(odd).await;
    assert_eq!(source.read_at(100, 100).await.unwrap(), content()[100..200]);
}

/// A store that claims 2^50 bytes, and sends two.
#[tokio::test(start_paused = true)]
async fn no_memory_is_reserved_for_what_is_only_claimed() {
    const CLAIMED: u64 = 1 << 50;
    let odd = Odd::new(|options, _, _| {
        let range = match options.range {
            Some(GetRange::Bounded(range)) => range,
            Some(GetRange::Suffix(len)) => CLAIMED - len..CLAIMED,
            _ => 0..CLAIMED,
        };
        Ok(GetResult {
            payload: body(vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")]),
            meta: ObjectMeta {
                location: Path::from("o"),
                last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
                size: CLAIMED,
                e_tag: Some("e".into()),
                version: None,
            },
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    });
    let (source, _) = source(odd).await;
    for len in [100, 1 << 30, 1 << 49] {
        let error = source.read_tail(len).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains("found 2 bytes"), "{error}");
    }
}

/// A body that hardly ever ends is not collected.
#[tokio::test(start_paused = true)]
async fn a_body_without_an_end_is_refused() {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let odd = Odd::new(move |_, _, response| {
        let counter = Arc::clone(&counter);
        let more = stream::repeat_with(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from_static(b"more"))
        });
        response.map(|response| GetResult {
            payload: GetResultPayload::Stream(more.take(100_000).boxed()),
            ..response
        })
    });
    let (source, _) = source(odd).await;
    let error = source.read_at(100, 100).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    // Three attempts, each until the first piece too many.
    assert_eq!(taken.load(Ordering::Relaxed), 3 * 26);
}

/// Another range than the one that was asked for, with as many bytes.
#[tokio::test(start_paused = true)]
async fn a_response_has_the_range_that_was_asked_for() {
    let odd = Odd::new(|_, _, response| {
        response.map(|response| GetResult {
            range: 0..100,
            ..response
        })
    });
    let (source, _) = source(odd).await;
    assert_eq!(source.read_at(0, 100).await.unwrap(), content()[..100]);
    let error = source.read_at(100, 100).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

/// A suffix that is taken for a range from the start, or refused, or of another size: the size is asked for instead.
#[tokio::test(start_paused = true)]
async fn a_store_without_suffix_ranges_is_asked_for_the_size() {
    let is_suffix = |options: &GetOptions| matches!(options.range, Some(GetRange::Suffix(_)));
    let refused = move |options: GetOptions, _, response| match response {
        Ok(_) if is_suffix(&options) => Err(Error::NotSupported {
            source: "no suffix".into(),
        }),
        response => response,
    };
    let from_start = move |options: GetOptions, _, response: Result<GetResult>| {
        if !is_suffix(&options) {
            return response;
        }
        response.map(|response| GetResult {
            range: 0..100,
            payload: body(vec![content().slice(..100)]),
            ..response
        })
    };
    for (odd, reads) in [(Odd::new(refused), 3), (Odd::new(from_start), 3)] {
        let (source, odd) = source(odd).await;
        let tail = source.read_tail(100).await.unwrap();
        assert_eq!((tail.size, tail.bytes), (1000, content().slice(900..)));
        assert_eq!(odd.reads.load(Ordering::Relaxed), reads);
        // It is remembered.
        source.read_tail(2000).await.unwrap();
        assert_eq!(odd.reads.load(Ordering::Relaxed), reads + 2);
    }
}

/// No ETag, no version: refused, or read with a check of size and time.
#[tokio::test(start_paused = true)]
async fn a_store_that_tells_no_version_is_refused_unless_allowed() {
    let unpinned = |_, _, response: Result<GetResult>| {
        response.map(|mut response| {
            response.meta.e_tag = None;
            response
        })
    };
    let (refused, odd) = source(Odd::new(unpinned)).await;
    let error = refused.read_tail(100).await.unwrap_err();
    assert!(
        error.to_string().contains("allow_unpinned(true)"),
        "{error}"
    );
    assert_eq!(odd.reads.load(Ordering::Relaxed), 1);
    assert_eq!(refused.version(), None);

    let (allowed, odd) = source(Odd::new(unpinned)).await;
    let allowed = allowed.allow_unpinned(true);
    assert_eq!(allowed.read_tail(100).await.unwrap().size, 1000);
    assert_eq!(allowed.version(), None);
    assert_eq!(allowed.read_at(0, 10).await.unwrap(), content()[..10]);
    let other = content().slice(1..);
    odd.inner.put(&Path::from("o"), other.into()).await.unwrap();
    let error = allowed.read_at(0, 10).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle);

    // A version that was pinned must be told.
    let (pinned, _) = source(Odd::new(unpinned)).await;
    let pinned = pinned.allow_unpinned(true).pinned_to(Version {
        e_tag: Some("\"0\"".into()),
        version: None,
    });
    let error = pinned.read_at(0, 10).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle);
}

/// A store that ignores conditions, and says what it returns.
#[tokio::test(start_paused = true)]
async fn each_response_is_compared_with_the_first() {
    let e_tags = |e_tags: &'static [&str]| {
        move |_, read: usize, response: Result<GetResult>| {
            response.map(|mut response| {
                response.meta.e_tag = Some(e_tags[read].into());
                response
            })
        }
    };
    // A weak one is no condition, and compared all the same.
    let (weak, _) = source(Odd::new(e_tags(&["W/\"a\"", "W/\"a\"", "W/\"b\""]))).await;
    weak.read_tail(10).await.unwrap();
    weak.read_at(0, 10).await.unwrap();
    let error = weak.read_at(0, 10).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle);
    // The size of the same version cannot change.
    let grown = |_, read, response: Result<GetResult>| {
        response.map(|mut response| {
            response.meta.size += read as u64;
            response
        })
    };
    let (grown, _) = source(Odd::new(grown)).await;
    grown.read_at(0, 10).await.unwrap();
    let error = grown.read_at(0, 10).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle);
}

/// The clock stands still but for the deadlines: time is exact.
#[tokio::test(start_paused = true)]
async fn every_request_ends_by_its_deadline() {
    let mut odd = Odd::new(|_, _, response| response);
    odd.delay = Duration::from_secs(3600);
    let (source, odd) = source(odd).await;
    let source = source
        .timeouts(Timeouts::new(Duration::from_secs(2), 100))
        .retries(Retries::new(3, Duration::from_millis(10)));
    let start = Instant::now();
    let error = source.read_at(0, 500).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let message = error.to_string();
    assert!(message.starts_with("attempt 4 of 4: not complete after "));
    assert_eq!(odd.reads.load(Ordering::Relaxed), 4);
    // Seven seconds for all attempts and pauses.
    let took = start.elapsed();
    let (least, most) = (Duration::from_millis(6990), Duration::from_millis(7010));
    assert!((least..=most).contains(&took), "{took:?}");
    // A pause that would be longer than what is left is not begun.
    let source = source.retries(Retries::new(3, Duration::from_secs(60)));
    let start = Instant::now();
    source.read_at(0, 500).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(4));
}

/// A block that is damaged on its way, and not in the store, is fetched once more; one that stays damaged is an error after that.
#[tokio::test(start_paused = true)]
async fn a_block_is_fetched_once_more_before_it_is_called_damaged() {
    let mut builder = WriteOptions::new().build(Vec::new());
    let keys: Vec<String> = (0..20_000).map(|i| format!("{i:08}")).collect();
    for key in &keys {
        builder.add(key, key.repeat(4)).unwrap();
    }
    let table: Bytes = builder.finish_into_writer().unwrap().0.into();
    for damaged in [1, 2] {
        // Counts the reads since the damage began.
        let (begin, count) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
        let is_on = Arc::clone(&begin);
        let odd = Odd::new(move |_, _, response: Result<GetResult>| {
            let is_due =
                is_on.load(Ordering::Relaxed) && count.fetch_add(1, Ordering::Relaxed) < damaged;
            response.map(|response| if is_due { flip(response) } else { response })
        });
        let path = Path::from("t");
        odd.inner.put(&path, table.clone().into()).await.unwrap();
        let odd = Arc::new(odd);
        let table = open(Arc::clone(&odd) as _, path).await.unwrap();
        let reads = odd.reads.load(Ordering::Relaxed);
        begin.store(true, Ordering::Relaxed);
        let found = table.get(&keys[7]).await;
        assert_eq!(odd.reads.load(Ordering::Relaxed) - reads, 2);
        match found {
            Ok(value) => assert_eq!((value.unwrap(), damaged), (keys[7].repeat(4).into(), 1)),
            Err(error) => {
                assert_eq!((error.kind(), damaged), (ErrorKind::Corruption, 2));
            }
        }
        // Of a batch and of a walk.
        let values = table.get_many(&keys).await.unwrap();
        assert!(values.iter().all(Option::is_some));
    }
}

/// The response with a byte changed.
fn flip(mut response: GetResult) -> GetResult {
    let bytes = match response.payload {
        GetResultPayload::Stream(stream) => stream,
        _ => panic!("not a stream"),
    };
    let flipped = bytes.enumerate().map(|(i, chunk)| {
        let mut chunk = chunk?.to_vec();
        if i == 0 {
            chunk[3] ^= 1;
        }
        Ok(Bytes::from(chunk))
    });
    response.payload = GetResultPayload::Stream(flipped.boxed());
    response
}

/// What lies past the end is no request, once the size is known.
#[tokio::test(start_paused = true)]
async fn reads_past_the_end_are_errors() {
    let (source, odd) = source(Odd::new(|_, _, response| response)).await;
    for (offset, len) in [(999, 2), (1000, 1), (u64::MAX, 1)] {
        source.read_at(offset, len).await.unwrap_err();
    }
    source.read_tail(10).await.unwrap();
    let reads = odd.reads.load(Ordering::Relaxed);
    for (offset, len) in [(999, 2), (1000, 1), (u64::MAX, 1), (u64::MAX, usize::MAX)] {
        let error = source.read_at(offset, len).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    }
    assert!(source.read_at(1000, 0).await.unwrap().is_empty());
    assert_eq!(odd.reads.load(Ordering::Relaxed), reads);
}

/// A part goes with the call that waited for its turn: the builder does not go on without it.
#[tokio::test(start_paused = true)]
async fn an_add_that_is_given_up_ends_the_build() {
    let store = Arc::new(Odd::new(|_, _, response| response));
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = ObjectTableBuilder::create(store, Path::from("t"), &options).unwrap();
    let value = vec![7; 100_000];
    let mut keys = 0u32..;
    let mut add = async || {
        let key = keys.next().unwrap().to_be_bytes();
        tokio::time::timeout(Duration::from_secs(1), builder.add(key, &value)).await
    };
    while add().await.is_ok() {}
    let error = add().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    let error = builder.finish().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
}

/// Each part takes ten seconds, which nobody who gives up waits for.
#[tokio::test(start_paused = true)]
async fn aborting_does_not_wait_for_parts() {
    let store = Arc::new(Odd::new(|_, _, response| response));
    let options = WriteOptions::new().compression(Compression::None);
    let mut builder = ObjectTableBuilder::create(store, Path::from("t"), &options).unwrap();
    for key in 0u32..300 {
        let value = vec![7; 100_000];
        builder.add(key.to_be_bytes(), value).await.unwrap();
    }
    let begun = Instant::now();
    builder.abort().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// Tasks of a runtime with several threads can build and open.
#[test]
fn futures_move_between_threads() {
    fn is_send(_: impl Send) {}
    let store = Arc::new(Odd::new(|_, _, response| response));
    let (path, options) = (Path::from("t"), WriteOptions::new());
    is_send(open(store.clone(), path.clone()));
    let upload = UploadOptions::new();
    is_send(upload.upload(store.clone(), path.clone(), &content()));
    is_send(async move {
        let mut builder = ObjectTableBuilder::create(store.clone(), path.clone(), &options)?;
        builder.add("key", "value").await?;
        builder.finish().await?;
        ObjectTableBuilder::create(store, path, &options)?
            .abort()
            .await
    });
}

/// How a body is watched: the pieces that were taken of it, and whether it was dropped.
#[derive(Default)]
struct Watched {
    taken: AtomicUsize,
    dropped: AtomicUsize,
}

struct OnDrop(Arc<Watched>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bodies of pieces of 100 bytes, a millisecond apart.
fn slow(watched: &Arc<Watched>) -> Odd {
    let watched = Arc::clone(watched);
    Odd::new(move |_, _, response| {
        let watched = OnDrop(Arc::clone(&watched));
        let pieces = stream::iter(0..).then(move |_| {
            watched.0.taken.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1))
        });
        let pieces = pieces.map(|()| Ok(Bytes::from_static(&[7; 100])));
        response.map(|response| GetResult {
            range: 0..100_000,
            payload: GetResultPayload::Stream(pieces.take(1_000).boxed()),
            ..response
        })
    })
}

/// While its caller is busy with something else, a long read goes on.
#[tokio::test(start_paused = true)]
async fn a_long_read_needs_no_polling() {
    let watched = Arc::default();
    let (source, _) = source(slow(&watched)).await;
    let mut read = source.read_at(0, 100_000);
    assert!(futures_util::poll!(&mut read).is_pending());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(watched.taken.load(Ordering::Relaxed), 1_000);
    assert_eq!(read.await.unwrap().len(), 100_000);
}

/// A read that is dropped ends: nothing goes on that nobody waits for.
#[tokio::test(start_paused = true)]
async fn a_long_read_ends_when_it_is_dropped() {
    let watched = Arc::default();
    let (source, odd) = source(slow(&watched)).await;
    let mut read = source.read_at(0, 100_000);
    assert!(futures_util::poll!(&mut read).is_pending());
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(read);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(watched.taken.load(Ordering::Relaxed) < 100);
    assert_eq!(watched.dropped.load(Ordering::Relaxed), 1);
    assert_eq!(odd.reads.load(Ordering::Relaxed), 1);
}

/// A panic in the store is one in its caller, wherever the read was made.
#[tokio::test(start_paused = true)]
async fn a_panic_in_the_store_reaches_the_caller() {
    let odd = Odd::new(|_, _, _| panic!("the store's own"));
    let (source, _) = source(odd).await;
    for len in [100, 100_000] {
        let read = std::panic::AssertUnwindSafe(source.read_at(0, len)).catch_unwind();
        let panic = read.await.unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"the store's own"));
    }
}
