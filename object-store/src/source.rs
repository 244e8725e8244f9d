//! Reads an object by ranges, always of one version.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use leveltable::remote::{AsyncReadAt, BoxFuture, Tail};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Version;
use crate::attempts::{Failure, Patience, Retries, Timeouts};

/// An object that holds a table, for [`OpenOptions::open_async`](leveltable::OpenOptions::open_async).
///
/// Each read is one ranged request, conditional on the version of the first response. The range, the size and the number of bytes
/// of each response are compared with the request, since some servers answer ranges wrongly.
///
/// Opening requests the end of the object. A store that does not support such requests, like Azure, or fails at one, is asked
/// for the size first.
///
/// Each read runs in its own task while the caller is busy, and ends when its future is dropped.
///
/// ```no_run
/// # use std::sync::Arc;
/// use leveltable::OpenOptions;
/// use leveltable_object_store::{ObjectSource, Retries, Timeouts};
/// # use leveltable::remote::AsyncTable;
/// # use object_store::{ObjectStore, path::Path};
/// # async fn open(store: Arc<dyn ObjectStore>) -> leveltable::Result<AsyncTable> {
/// let source = ObjectSource::new(store, Path::from("fruit.ldb"))
///     .sized(4096)
///     .allow_unpinned(true)
///     .max_requests(16)
///     .timeouts(Timeouts::default())
///     .retries(Retries::none())
///     .named("s3://bucket/fruit.ldb");
/// OpenOptions::new().open_async(source, None).await
/// # }
/// ```
pub struct ObjectSource(Arc<Object>);

/// The object, shared with the tasks that read it.
#[derive(Clone)]
struct Object {
    store: Arc<dyn ObjectStore>,
    path: Path,
    name: String,
    patience: Patience,
    allow_unpinned: bool,
    /// Limits the number of requests at once.
    limit: Arc<Semaphore>,
    /// The size, if the caller gave it.
    size: Option<u64>,
    /// Whether the store fails to return the end of an object of unknown size.
    has_no_suffix: Arc<AtomicBool>,
    pinned: Arc<Mutex<Pinned>>,
}

/// Default limit for the requests in flight of an object or a set.
pub(crate) const MAX_REQUESTS: usize = 64;

/// The known facts about the object.
#[derive(Debug, Clone, Default)]
struct Pinned {
    /// The version, from the caller or the first response.
    version: Option<Version>,
    /// The metadata of the first response.
    seen: Option<ObjectMeta>,
}

impl fmt::Debug for ObjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectSource")
            .field("name", &self.0.name)
            .field("pinned", &self.0.pinned())
            .finish_non_exhaustive()
    }
}

impl ObjectSource {
    /// The object at `path` in `store`. Makes no request.
    pub fn new(store: Arc<dyn ObjectStore>, path: Path) -> ObjectSource {
        ObjectSource(Arc::new(Object {
            name: format!("{store}/{path}"),
            store,
            path,
            patience: Patience::default(),
            allow_unpinned: false,
            limit: Arc::new(Semaphore::new(MAX_REQUESTS)),
            size: None,
            has_no_suffix: Arc::default(),
            pinned: Arc::default(),
        }))
    }

    /// Only reads this version of the object, as it was learned when the object was [written](crate::Uploaded::version), or from a
    /// manifest.
    ///
    /// A version without ETag and version has no effect.
    pub fn pinned_to(self, version: Version) -> ObjectSource {
        if version != UNKNOWN {
            self.0.pinned().version = Some(version);
        }
        self
    }

    /// The size of the object, as it was learned when the object was written, or from a manifest. Its end is then requested by its
    /// offsets, which takes one request in every store. An object of another size counts as replaced.
    pub fn sized(mut self, bytes: u64) -> ObjectSource {
        self.object().size = Some(bytes);
        self
    }

    /// Whether to read from a store that reports neither ETag nor version. Off by default: then only the object's size and
    /// modification time are compared, and a replaced object may be taken for the old one.
    pub fn allow_unpinned(mut self, yes: bool) -> ObjectSource {
        self.object().allow_unpinned = yes;
        self
    }

    /// Maximum number of requests in flight, 64 by default: others wait for their turn before their time begins to count.
    pub fn max_requests(self, requests: usize) -> ObjectSource {
        self.limited(Arc::new(Semaphore::new(requests.max(1))))
    }

    /// Shares the limit with other objects.
    pub(crate) fn limited(mut self, limit: Arc<Semaphore>) -> ObjectSource {
        self.object().limit = limit;
        self
    }

    /// How long a request may take.
    pub fn timeouts(mut self, timeouts: Timeouts) -> ObjectSource {
        self.object().patience.timeouts = timeouts;
        self
    }

    /// How often a failed request is retried.
    pub fn retries(mut self, retries: Retries) -> ObjectSource {
        self.object().patience.retries = retries;
        self
    }

    /// The object's name in error messages, such as its URL. The default is the store's name and the path.
    pub fn named(mut self, name: impl Into<String>) -> ObjectSource {
        self.object().name = name.into();
        self
    }

    /// The version that is read: known after the first response, or from [`pinned_to`](ObjectSource::pinned_to).
    pub fn version(&self) -> Option<Version> {
        self.0.pinned().version.clone()
    }

    /// The object, to set an option.
    fn object(&mut self) -> &mut Object {
        Arc::make_mut(&mut self.0)
    }
}

impl Object {
    fn pinned(&self) -> MutexGuard<'_, Pinned> {
        // No code that holds the lock can panic.
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses between attempts count as requests: a store that needs a pause gets fewer requests meanwhile.
    async fn attempts<T, F>(&self, bytes: u64, attempt: impl FnMut() -> F) -> io::Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        // The semaphore is never closed.
        let _permit = self.limit.acquire().await;
        self.patience.attempts(bytes, attempt).await
    }

    /// One request, conditional on the known facts about the object.
    async fn request(&self, range: Option<GetRange>) -> Result<GetResult, Failure> {
        let pinned = self.pinned().clone();
        let version = pinned.version.unwrap_or(UNKNOWN);
        let has_e_tag = version.e_tag.is_some();
        let options = GetOptions {
            // A weak ETag never matches a condition.
            if_match: version.e_tag.filter(|e_tag| !e_tag.starts_with("W/")),
            // With an ETag, no permission to read old versions is needed.
            version: version.version.filter(|_| !has_e_tag),
            head: range.is_none(),
            range,
            ..GetOptions::default()
        };
        let response = self.store.get_opts(&self.path, options).await;
        let response = response.map_err(|error| match error {
            Error::Precondition { .. } => replaced("its ETag is another one"),
            Error::NotFound { .. } if pinned.seen.is_some() => replaced("it is gone"),
            error => Failure::from(error),
        })?;
        self.admit(&response.meta)?;
        Ok(response)
    }

    /// Checks that a response is for the object that was read before. The first response defines it.
    fn admit(&self, found: &ObjectMeta) -> Result<(), Failure> {
        let version = version_of(found);
        let mut pinned = self.pinned();
        if let Some(expected) = &pinned.version
            && !is_same(expected, &version)
        {
            let (expected, found) = (describe(expected), describe(&version));
            return Err(replaced(&format!("expected {expected}, found {found}")));
        }
        if version == UNKNOWN && !self.allow_unpinned {
            let why = "the store gives neither ETag nor version of the object, so that a replaced one could be taken for it; \
                       allow_unpinned(true) reads it all the same";
            return Err(Failure::lasting(io::ErrorKind::InvalidInput, why));
        }
        let size = pinned.seen.as_ref().map(|seen| seen.size).or(self.size);
        if let Some(size) = size.filter(|size| *size != found.size) {
            let why = format!("it has {} bytes, and not {size}", found.size);
            return Err(replaced(&why));
        }
        if let Some(seen) = &pinned.seen
            && version == UNKNOWN
            && seen.last_modified != found.last_modified
        {
            return Err(replaced("it was changed"));
        }
        if pinned.seen.is_none() {
            pinned.version = Some(version).filter(|version| *version != UNKNOWN);
            pinned.seen = Some(found.clone());
        }
        Ok(())
    }

    /// One attempt to read the end of the object.
    async fn tail(&self, len: u64) -> Result<Tail, Failure> {
        if let Some(size) = self.size {
            let bytes = self.range(size.saturating_sub(len)..size).await?;
            return Ok(Tail { size, bytes });
        }
        if len > 0 && !self.has_no_suffix.load(Ordering::Relaxed) {
            let tail = self.suffix(len).await;
            let Err(failure) = tail else {
                return tail;
            };
            // Perhaps the server mishandles such a request, which the next attempt avoids.
            let has_none = failure.is_unsupported();
            self.has_no_suffix
                .store(has_none || failure.may_pass, Ordering::Relaxed);
            if !has_none {
                return Err(failure);
            }
        }
        let size = self.request(None).await?.meta.size;
        let bytes = self.range(size.saturating_sub(len)..size).await?;
        Ok(Tail { size, bytes })
    }

    async fn suffix(&self, len: u64) -> Result<Tail, Failure> {
        let response = self.request(Some(GetRange::Suffix(len))).await?;
        let size = response.meta.size;
        let bytes = collect(response, size.saturating_sub(len)..size).await?;
        Ok(Tail { size, bytes })
    }

    /// One attempt at a range.
    async fn range(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        if let Some(seen) = &self.pinned().seen
            && range.end > seen.size
        {
            let why = format!("the object has {} bytes", seen.size);
            return Err(Failure::lasting(io::ErrorKind::UnexpectedEof, why));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let response = self.request(Some(GetRange::Bounded(range.clone()))).await?;
        collect(response, range).await
    }
}

/// The version of an object if the store reports nothing.
pub(crate) const UNKNOWN: Version = Version {
    e_tag: None,
    version: None,
};

pub(crate) fn version_of(meta: &ObjectMeta) -> Version {
    Version {
        e_tag: meta.e_tag.clone(),
        version: meta.version.clone(),
    }
}

/// Whether `found`, from a response, is the version `expected`. The ETag decides if it is known, and otherwise the store's own
/// version.
pub(crate) fn is_same(expected: &Version, found: &Version) -> bool {
    if expected.e_tag.is_some() {
        expected.e_tag == found.e_tag
    } else {
        expected.version == found.version
    }
}

/// Describes a version for a message.
fn describe(version: &Version) -> String {
    match (&version.e_tag, &version.version) {
        (Some(e_tag), _) => format!("ETag {e_tag}"),
        (None, Some(version)) => format!("version {version}"),
        (None, None) => "no version".into(),
    }
}

/// The object is not the one that was read before.
fn replaced(why: &str) -> Failure {
    let why = format!("the object was replaced: {why}");
    Failure::lasting(io::ErrorKind::StaleNetworkFileHandle, why)
}

/// The bytes of a response, which must be those of `range`. No memory is reserved for bytes that a response only claims to
/// have.
pub(crate) async fn collect(response: GetResult, range: Range<u64>) -> Result<Bytes, Failure> {
    let wrong = |what: String| {
        let (start, end) = (range.start, range.end);
        let why = format!("expected bytes {start} to {end}, found {what}");
        Failure::passing(io::ErrorKind::InvalidData, why)
    };
    if response.range != range {
        let found = &response.range;
        return Err(wrong(format!("{} to {}", found.start, found.end)));
    }
    let len = range.end - range.start;
    let (mut chunks, mut found) = (Vec::new(), 0);
    if matches!(response.payload, GetResultPayload::Stream(_)) {
        let mut stream = response.into_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk?;
            found += chunk.len() as u64;
            chunks.push(chunk);
            if found > len {
                return Err(wrong("more".into()));
            }
        }
    } else {
        // A file is read as a whole, and not in small pieces.
        let bytes = response.bytes().await?;
        found = bytes.len() as u64;
        chunks.push(bytes);
    }
    if found != len {
        return Err(wrong(format!("{found} bytes")));
    }
    // Most responses consist of one piece, which needs no copy.
    match &mut *chunks {
        [chunk] => Ok(std::mem::take(chunk)),
        chunks => Ok(chunks.concat().into()),
    }
}

/// Runs `work` in its own task, so that bytes are collected, deadlines kept, and other requests get their turn while the caller is busy
/// or waits for something else. The task ends when the future is dropped.
async fn apart<T: Send + 'static>(
    work: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let mut task = JoinSet::new();
    task.spawn(work);
    join(&mut task).await?
}

/// The result of the only task in `tasks`. Dropping the future while it waits loses nothing.
pub(crate) async fn join<T: 'static>(tasks: &mut JoinSet<T>) -> io::Result<T> {
    match tasks.join_next().await {
        Some(Ok(done)) => Ok(done),
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down.
        Some(Err(error)) => Err(io::Error::other(error)),
        None => Err(io::Error::other("the task is gone")),
    }
}

impl AsyncReadAt for ObjectSource {
    fn name(&self) -> Option<String> {
        Some(self.0.name.clone())
    }

    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        let object = Arc::clone(&self.0);
        Box::pin(apart(async move {
            object.attempts(len, || object.tail(len)).await
        }))
    }

    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        let object = Arc::clone(&self.0);
        let range = offset..offset.saturating_add(len as u64);
        Box::pin(apart(async move {
            let attempt = || object.range(range.clone());
            object.attempts(len as u64, attempt).await
        }))
    }
}
