//! Servers that are slow, busy, cut off or wrong: every answer is right or an error, within its deadline.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use leveltable::remote::{AsyncReadAt, AsyncTable};
use leveltable::{Error, ErrorKind, OpenOptions, Result};
use leveltable_object_store::{
    ObjectSource, Retries, TableSet, Timeouts, UploadOptions, Uploaded, publish,
};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::BUSY;
use crate::proxy::{Fault, Proxy};
use crate::servers::{Server, azurite, s3rver, seaweed};
use crate::suite::{entries, local, options, upload};

/// A table on a server, and a proxy before the server.
struct Scene {
    server: &'static Server,
    proxy: Proxy,
    /// By the proxy.
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// The table has the keys up to this one.
    count: u64,
    uploaded: Uploaded,
}

impl Scene {
    async fn new(server: &'static Server, name: &str, count: u64) -> Scene {
        let path = Path::from(format!("faults/{name}.ldb"));
        let uploaded = upload(&server.store(), &path, 0..count).await;
        let proxy = Proxy::start(server.address).await;
        Scene {
            server,
            store: server.store_by(proxy.address),
            proxy,
            path,
            count,
            uploaded,
        }
    }

    /// Three attempts of half a second, pauses of 10 and 20 ms.
    fn source(&self) -> ObjectSource {
        ObjectSource::new(Arc::clone(&self.store), self.path.clone())
            .timeouts(Timeouts::new(Duration::from_millis(500), 100 << 20))
            .retries(Retries::new(2, Duration::from_millis(10)))
    }

    async fn open(&self) -> Result<AsyncTable> {
        let source = self.source();
        let options = OpenOptions::new();
        options
            .open_async(source, Some(self.uploaded.tail_len))
            .await
    }

    /// Replaces the object by another of the same length, which is built before.
    fn swap(&self) -> impl Future<Output = ()> + Send + 'static {
        let (store, path) = (self.server.store(), self.path.clone());
        let mut builder = options().build(Vec::new());
        for (key, mut value) in entries(0..self.count) {
            value.reverse();
            builder.add(key, value).unwrap();
        }
        let (file, _) = builder.finish_into_writer().unwrap();
        async move {
            store.put(&path, file.into()).await.unwrap();
        }
    }

    /// Reads all entries, which must be those of one object, until the first error. Returns whether it was the swapped one.
    async fn all(&self, table: &AsyncTable) -> Result<bool> {
        let mut range = table.range(..);
        let mut is_swapped = None;
        for (key, mut value) in entries(0..self.count) {
            let (found, found_value) = range.next().await?.unwrap();
            if *is_swapped.get_or_insert(found_value != value[..]) {
                value.reverse();
            }
            let expected = (key.as_bytes(), &value[..]);
            assert_eq!((&found[..], &found_value[..]), expected, "{}", self.path);
        }
        assert_eq!(range.next().await?, None);
        Ok(is_swapped.unwrap())
    }
}

fn kind(error: Error) -> io::ErrorKind {
    io::Error::from(error).kind()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn a_busy_server_is_asked_again_and_not_for_ever() {
    let scene = Scene::new(seaweed(), "busy", 10_000).await;
    let table = scene.open().await.unwrap();
    let busy = |most| {
        move |_: &_, i| {
            if i < most {
                Fault::Status(503)
            } else {
                Fault::None
            }
        }
    };
    scene.proxy.rule(busy(2));
    assert!(table.get("0000000000000007").await.unwrap().is_some());
    assert_eq!(scene.proxy.take().len(), 3);
    scene.proxy.rule(busy(usize::MAX));
    let error = table.get("0000000000009007").await.unwrap_err();
    assert_eq!(scene.proxy.take().len(), 3);
    let message = error.to_string();
    for part in [
        "faults/busy.ldb",
        "bytes at offset",
        "attempt 3 of 3",
        "503",
    ] {
        assert!(message.contains(part), "{message}");
    }
    // Opening asks for the size after the first failure.
    scene.proxy.rule(busy(1));
    scene.open().await.unwrap();
    let methods: Vec<String> = scene
        .proxy
        .take()
        .into_iter()
        .map(|seen| seen.method)
        .collect();
    assert_eq!(methods, ["GET", "HEAD", "GET"]);
    // What will not pass is not tried again.
    scene.proxy.rule(|_, _| Fault::Status(403));
    let error = table.get("0000000000005007").await.unwrap_err();
    assert_eq!(kind(error), io::ErrorKind::PermissionDenied);
    assert_eq!(scene.proxy.take().len(), 1);
}

/// The store's retries and those of the source do not make a read longer than its deadline.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn a_store_that_retries_ends_with_the_deadline() {
    let _alone = BUSY.lock().await;
    let scene = Scene::new(seaweed(), "retries", 10_000).await;
    let store = scene.server.store_with(scene.proxy.address, 10);
    let source = ObjectSource::new(store, scene.path.clone())
        .timeouts(Timeouts::new(Duration::from_millis(500), 100 << 20))
        .retries(Retries::new(1, Duration::from_millis(10)));
    source.read_at(0, 100).await.unwrap();
    scene.proxy.rule(|_, _| Fault::Status(503));
    let start = Instant::now();
    let error = source.read_at(100, 100).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    // The store by itself would go on for half a minute. `wrong_answers` measures exactly, by a clock of its own.
    assert!(start.elapsed() < Duration::from_secs(5));
    let requests = scene.proxy.take().len();
    assert!((2..=22).contains(&requests), "{requests}");
}

/// With default options, a store that fails, by answers or by none, is asked four times within ten seconds.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn a_lookup_in_a_shard_that_fails_takes_four_requests_and_ten_seconds() {
    let _alone = BUSY.lock().await;
    let scene = Scene::new(seaweed(), "set/shard", 10_000).await;
    let (store, manifest) = (Arc::clone(&scene.store), Path::from("faults/set/manifest"));
    let _ = store.delete(&manifest).await;
    let path = std::slice::from_ref(&scene.path);
    publish(Arc::clone(&store), &manifest, path, None)
        .await
        .unwrap();
    type Break = fn() -> Fault;
    let breaks: [Break; 3] = [
        || Fault::Status(503),
        || Fault::CutAfter(0),
        || Fault::Stall,
    ];
    for broken in breaks {
        let set = TableSet::open(Arc::clone(&store), &manifest).await.unwrap();
        scene.proxy.rule(move |_, _| broken());
        let start = Instant::now();
        set.get("0000000000000007").await.unwrap_err();
        let (requests, took) = (scene.proxy.take().len(), start.elapsed());
        println!("{requests} requests, {took:?}");
        assert!(requests <= 4, "{requests}");
        // `wrong_answers` measures exactly. On a busy machine, timers are late.
        assert!(took < Duration::from_secs(15), "{took:?}");
        scene.proxy.rule(|_, _| Fault::None);
    }
}

/// Each part is told to slow down three times: it is sent four times.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn parts_that_are_told_to_slow_down_are_sent_four_times() {
    let scene = Scene::new(seaweed(), "slowed", 10).await;
    let store = scene.server.store_with(scene.proxy.address, 3);
    let mut told = HashMap::new();
    scene.proxy.rule(move |seen, _| {
        let times = told.entry(seen.target.clone()).or_insert(0);
        *times += 1;
        if seen.target.contains("partNumber=") && *times <= 3 {
            Fault::Status(503)
        } else {
            Fault::None
        }
    });
    let uploaded = upload(&store, &Path::from("faults/slowed-parts.ldb"), 0..250_000).await;
    let size = uploaded.summary.file_bytes;
    let sent: u64 = scene.proxy.take().iter().map(|seen| seen.sent).sum();
    println!("{sent} bytes sent for a table of {size}");
    assert!(sent <= 4 * size + 10_000, "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn stalls_and_cuts_end_with_the_right_bytes_or_an_error() {
    let _alone = BUSY.lock().await;
    for (name, server) in [("s3", seaweed()), ("azure", azurite()), ("wrong", s3rver())] {
        let scene = Scene::new(server, &format!("cut-{name}"), 10_000).await;
        type Break = fn() -> Fault;
        let breaks: [Break; 5] = [
            || Fault::Stall,
            || Fault::StallAfter(0),
            || Fault::StallAfter(1000),
            || Fault::CutAfter(0),
            || Fault::CutAfter(1000),
        ];
        for broken in breaks {
            let table = scene.open().await.unwrap();
            // Each request fails at first.
            scene
                .proxy
                .rule(move |_, i| if i == 0 { broken() } else { Fault::None });
            assert!(!scene.all(&table).await.unwrap());
            let table = scene.open().await.unwrap();
            scene.proxy.rule(move |_, _| broken());
            let start = Instant::now();
            let error = table.get("0000000000000007").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{name}: {error}");
            assert!(start.elapsed() < Duration::from_secs(10), "{name}");
            assert_eq!(scene.proxy.take().len(), 3, "{name}");
            let start = Instant::now();
            scene.open().await.unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(10), "{name}");
            scene.proxy.rule(|_, _| Fault::None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn an_object_swapped_between_any_two_requests_is_an_error() {
    for (name, server) in [("s3", seaweed()), ("azure", azurite()), ("wrong", s3rver())] {
        // Opening with a short tail takes several requests, a scan more.
        for at in 1.. {
            let scene = Scene::new(server, &format!("swap-{name}"), 10_000).await;
            let swap = std::sync::Mutex::new(Some(scene.swap()));
            scene.proxy.rule(move |_, i| {
                let swap = if i == at {
                    swap.lock().unwrap().take()
                } else {
                    None
                };
                swap.map_or(Fault::None, |swap| Fault::After(Box::pin(swap)))
            });
            let answered = async {
                let options = OpenOptions::new();
                // A request waits for the swap before it. If its deadline passed meanwhile, as on a busy machine, the next attempt
                // would overtake the swap, and might be answered from the first object.
                let source = scene.source();
                let source = source.timeouts(Timeouts::new(Duration::from_secs(60), 100 << 20));
                // The last server may give the old object's ETag with the new one's bytes, if an object is replaced while it
                // answers. One request at a time: objects change between two.
                let source = match name {
                    "wrong" => source.max_requests(1),
                    _ => source,
                };
                let table = options.open_async(source, Some(100)).await?;
                scene.all(&table).await
            };
            let answered = answered.await;
            if scene.proxy.take().len() <= at {
                assert!(!answered.unwrap());
                assert!(at > 3, "{name}: the object was hardly swapped");
                break;
            }
            if name == "wrong" && at == 1 {
                // Its first response is rejected, so the first object was not seen.
                assert!(answered.unwrap());
                continue;
            }
            let Err(error) = answered else {
                panic!("{name}: no error after the swap before request {at}");
            };
            assert_eq!(error.kind(), ErrorKind::Replaced, "{name} {at}: {error}");
        }
    }
}

/// The responses to the writes that make an object appear are lost.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn a_lost_reply_is_found_out() {
    let scene = Scene::new(seaweed(), "lost", 10).await;
    let upload = UploadOptions::new().timeouts(Timeouts::new(Duration::from_secs(5), 100 << 20));
    let repeating = scene.server.store_with(scene.proxy.address, 2);
    let build = async |count, replace, path: &Path| {
        let upload = upload.clone().replace_existing(replace);
        let store = Arc::clone(&repeating);
        let mut builder = upload.create(store, path.clone(), &options())?;
        for (key, value) in entries(0..count) {
            builder.add(key, value).await?;
        }
        builder.finish().await
    };
    let lose = |i| {
        if i == 0 {
            Fault::LoseReply
        } else {
            Fault::None
        }
    };
    for replace in [false, true] {
        let path = Path::from(format!("faults/lost-{replace}.ldb"));
        scene.proxy.rule(move |_, i| lose(i));
        let uploaded = build(1000, replace, &path).await.unwrap();
        let found = scene.server.store().head(&path).await.unwrap();
        assert_eq!(found.e_tag, uploaded.version.e_tag);
        assert_eq!(scene.proxy.take().len(), if replace { 2 } else { 3 });
        if !replace {
            // A race that is lost is told from it.
            let error = build(1001, replace, &path).await.unwrap_err();
            assert_eq!(kind(error), io::ErrorKind::AlreadyExists);
            let now = scene.server.store().head(&path).await.unwrap();
            assert_eq!(now.e_tag, found.e_tag);
        }
    }
    // The last request of an upload in parts cannot be told: it is an error, and the object is whole.
    let path = Path::from("faults/lost-parts.ldb");
    scene.proxy.rule(|seen, _| {
        let completes = seen.method == "POST" && seen.target.contains("uploadId=");
        if completes {
            Fault::LoseReply
        } else {
            Fault::None
        }
    });
    let error = build(100_000, true, &path).await.unwrap_err();
    assert!(
        error.to_string().contains("may have been carried out"),
        "{error}"
    );
    let found = scene.server.store().get(&path).await.unwrap();
    let found = found.bytes().await.unwrap();
    assert!(found == local(0..100_000).0);
}

/// Number of uploads of `faults/built.ldb` that have begun, and were neither completed nor aborted.
fn uploads() -> usize {
    let listed = seaweed().send("GET", "/bucket?uploads&prefix=faults/built");
    assert!(listed.contains("ListMultipartUploadsResult"), "{listed}");
    listed.matches("<UploadId>").count()
}

/// One test, since all count the uploads to one path.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs servers"]
async fn builds_upload_in_parts_and_leave_nothing() {
    let scene = Scene::new(seaweed(), "builds", 10).await;
    let path = Path::from("faults/built.ldb");
    let upload = UploadOptions::new().timeouts(Timeouts::new(Duration::from_secs(2), 100 << 20));
    let repeating = scene.server.store_with(scene.proxy.address, 2);
    let begin = async |count| {
        let store = Arc::clone(&repeating);
        let mut builder = upload.create(store, path.clone(), &options()).unwrap();
        for (key, value) in entries(0..count) {
            if let Err(error) = builder.add(key, value).await {
                return Err((builder, error));
            }
        }
        Ok(builder)
    };
    let is_there = async || scene.server.store().head(&path).await.is_ok();
    let parts = |size: u64| size.div_ceil(8 << 20) as usize;

    // 22 MB, in three parts.
    let builder = begin(200_000).await.unwrap();
    assert_eq!(uploads(), 1);
    assert!(!is_there().await);
    let uploaded = builder.finish().await.unwrap();
    let requests = scene.proxy.take();
    assert_eq!(requests.len(), parts(uploaded.summary.file_bytes) + 2);
    assert_eq!(uploads(), 0);
    scene.server.store().delete(&path).await.unwrap();

    // Given up.
    let builder = begin(200_000).await.unwrap();
    assert_eq!(uploads(), 1);
    builder.abort().await.unwrap();
    assert_eq!(uploads(), 0);

    // Dropped.
    drop(begin(200_000).await.unwrap());
    let start = Instant::now();
    while uploads() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // A part that fails once is uploaded again.
    let is_part = |target: &str, number| target.contains(&format!("partNumber={number}"));
    let mut failed = 0;
    scene.proxy.rule(move |seen, _| {
        failed += usize::from(is_part(&seen.target, 2));
        if is_part(&seen.target, 2) && failed == 1 {
            Fault::Status(503)
        } else {
            Fault::None
        }
    });
    let builder = begin(200_000).await.unwrap();
    let uploaded = builder.finish().await.unwrap();
    let requests = scene.proxy.take().len();
    assert_eq!(requests, parts(uploaded.summary.file_bytes) + 3);
    scene.server.store().delete(&path).await.unwrap();

    // One that always fails, or is never answered, fails the build: nothing appears, and nothing is left.
    type Break = fn() -> Fault;
    let breaks: [(Break, u64); 3] = [
        (|| Fault::Status(503), 2),
        (|| Fault::Stall, 10),
        (|| Fault::LoseReply, 2),
    ];
    for (broken, seconds) in breaks {
        scene.proxy.rule(move |seen, _| {
            if is_part(&seen.target, 2) {
                broken()
            } else {
                Fault::None
            }
        });
        let start = Instant::now();
        match begin(200_000).await {
            Ok(builder) => drop(builder.finish().await.unwrap_err()),
            Err((builder, _)) => builder.abort().await.unwrap(),
        }
        assert!(start.elapsed() < Duration::from_secs(seconds + 30));
        assert!(!is_there().await);
        assert_eq!(uploads(), 0);
    }

    // Nor does an upload of a table that is there leave any.
    let (built, _) = local(0..200_000);
    let table = Bytes::from(built);
    scene.proxy.rule(move |seen, _| {
        if is_part(&seen.target, 2) {
            Fault::Status(503)
        } else {
            Fault::None
        }
    });
    let uploaded = upload.upload(Arc::clone(&repeating), path.clone(), &table);
    uploaded.await.unwrap_err();
    assert!(!is_there().await);
    assert_eq!(uploads(), 0);
}
