//! A store that counts requests, and in which some fail.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::time::Instant;

/// What happens to a request.
pub(crate) enum Fate {
    Served,
    /// It fails without effect.
    Lost,
    /// The same, with this error.
    Denied(Error),
    /// The same as if lost, after a while.
    LostAfter(Duration),
    /// It has its effect, then `Box` runs, and the reply is this error, or never comes.
    ReplyLost(BoxFuture<'static, ()>, Option<Error>),
    /// The future runs before it is served.
    After(BoxFuture<'static, ()>),
    /// It never ends, and has no effect.
    Stalled,
}

impl Fate {
    /// The effect, and an error that tells nothing.
    pub(crate) fn reply_lost() -> Fate {
        Fate::ReplyLost(Box::pin(async {}), Some(failure()))
    }
}

pub(crate) fn failure() -> Error {
    Error::Generic {
        store: "Watched",
        source: "connection reset".into(),
    }
}

type Judge = Box<dyn FnMut(usize, &str) -> Fate + Send>;

/// Notes each request as `get path`, `put path` and so on.
pub(crate) struct Watched {
    inner: Arc<dyn ObjectStore>,
    log: Mutex<Vec<String>>,
    count: AtomicUsize,
    judge: Mutex<Judge>,
    /// Whether objects are created although they exist.
    ignores_create: AtomicBool,
    line: Mutex<Line>,
}

/// The line that all responses to reads share, one after another.
struct Line {
    /// How long a byte takes.
    per_byte: Duration,
    free_at: Instant,
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Arc<Watched> {
        Watched::with(inner, |_, _| Fate::Served)
    }

    /// `judge` gets the number of the request, from 0, and what is noted of it.
    pub(crate) fn with(
        inner: Arc<dyn ObjectStore>,
        judge: impl FnMut(usize, &str) -> Fate + Send + 'static,
    ) -> Arc<Watched> {
        Arc::new(Watched {
            inner,
            log: Mutex::default(),
            count: AtomicUsize::new(0),
            judge: Mutex::new(Box::new(judge)),
            ignores_create: AtomicBool::new(false),
            line: Mutex::new(Line {
                per_byte: Duration::ZERO,
                free_at: Instant::now(),
            }),
        })
    }

    /// From now on, each byte that is read takes so long.
    pub(crate) fn slow_down(&self, per_byte: Duration) {
        self.line.lock().unwrap().per_byte = per_byte;
    }

    /// From now on, objects are created although they exist.
    pub(crate) fn ignore_create(&self) {
        self.ignores_create.store(true, Ordering::Relaxed);
    }

    /// The requests since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    async fn serve<T>(
        &self,
        what: String,
        request: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.log.lock().unwrap().push(what.clone());
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let fate = (self.judge.lock().unwrap())(number, &what);
        match fate {
            Fate::Served => request.await,
            Fate::Lost => Err(failure()),
            Fate::Denied(error) => Err(error),
            Fate::LostAfter(delay) => {
                tokio::time::sleep(delay).await;
                Err(failure())
            }
            Fate::Stalled => std::future::pending().await,
            Fate::After(then) => {
                then.await;
                request.await
            }
            Fate::ReplyLost(then, error) => {
                request.await?;
                then.await;
                match error {
                    Some(error) => Err(error),
                    None => std::future::pending().await,
                }
            }
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

#[async_trait]
impl ObjectStore for Watched {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        if self.ignores_create.load(Ordering::Relaxed) && matches!(options.mode, PutMode::Create) {
            options.mode = PutMode::Overwrite;
        }
        let put = self.inner.put_opts(location, payload, options);
        self.serve(format!("put {location}"), put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let what = if options.head { "head" } else { "get" };
        let get = self.inner.get_opts(location, options);
        let response = self.serve(format!("{what} {location}"), get).await?;
        if !is_head {
            let free_at = {
                let mut line = self.line.lock().unwrap();
                let bytes = response.range.end - response.range.start;
                let time = line.per_byte * bytes as u32;
                line.free_at = line.free_at.max(Instant::now()) + time;
                line.free_at
            };
            tokio::time::sleep_until(free_at).await;
        }
        Ok(response)
    }

    async fn get_ranges(&self, _: &Path, _: &[Range<u64>]) -> Result<Vec<Bytes>> {
        panic!("not counted")
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let list = self.inner.list_with_delimiter(prefix);
        let prefix = prefix.cloned().unwrap_or_default();
        self.serve(format!("list {prefix}"), list).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
