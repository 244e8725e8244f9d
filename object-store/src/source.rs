//! Reading an object by ranges, always of one version.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use leveltable::remote::{AsyncReadAt, BoxFuture, Tail};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore};
use tokio::task::JoinSet;

use crate::attempts::{Failure, Retries, Timeouts, attempts};
use crate::version::Version;

/// An object that holds a table, for [`OpenOptions::open_async`](leveltable::OpenOptions::open_async).
///
/// Each read is one ranged request, conditional on the version that the first response had. The range, the size and the number of
/// bytes of each response are compared with what was asked for, since some servers answer ranges wrongly.
///
/// Opening asks for the end of the object by one request. A store that has no such requests, as Azure, or fails at it, is asked
/// for the size first.
///
/// Reads of more than 64 KiB go on in a task of their own while the caller is busy, and end when their future is dropped.
pub struct ObjectSource(Arc<Object>);

/// The object, shared with the tasks that read it.
#[derive(Clone)]
struct Object {
    store: Arc<dyn ObjectStore>,
    path: Path,
    name: String,
    timeouts: Timeouts,
    retries: Retries,
    allow_unpinned: bool,
    /// From the caller.
    size: Option<u64>,
    /// Whether the store fails to return the end of an object of unknown size.
    has_no_suffix: Arc<AtomicBool>,
    pinned: Arc<Mutex<Pinned>>,
}

/// Longer reads are made in tasks of their own.
const MOST_IN_PLACE: usize = 64 << 10;

/// What is known of the object.
#[derive(Debug, Clone, Default)]
struct Pinned {
    /// From the caller or the first response.
    version: Option<Version>,
    /// From the first response.
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
    /// The object at `path` of `store`. Makes no request.
    pub fn new(store: Arc<dyn ObjectStore>, path: Path) -> ObjectSource {
        ObjectSource(Arc::new(Object {
            name: format!("{store}/{path}"),
            store,
            path,
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            allow_unpinned: false,
            size: None,
            has_no_suffix: Arc::default(),
            pinned: Arc::default(),
        }))
    }

    /// Reads this version of the object only, as it was learned when the object was written, or from a manifest.
    ///
    /// A version of which nothing is known changes nothing.
    pub fn pinned_to(self, version: Version) -> ObjectSource {
        if !version.is_unknown() {
            self.0.pinned().version = Some(version);
        }
        self
    }

    /// The size of the object, as it was learned when the object was written, or from a manifest. Its end is then asked for by its
    /// place, which takes one request in every store. An object of another size is one that was replaced.
    pub fn sized(mut self, bytes: u64) -> ObjectSource {
        self.object().size = Some(bytes);
        self
    }

    /// Whether to read from a store that gives neither ETag nor version. Refused by default: the object's size and time of its last
    /// change are all that is compared then, and a replaced object may be taken for the old one.
    pub fn allow_unpinned(mut self, yes: bool) -> ObjectSource {
        self.object().allow_unpinned = yes;
        self
    }

    /// How long each attempt of a request may take.
    pub fn timeouts(mut self, timeouts: Timeouts) -> ObjectSource {
        self.object().timeouts = timeouts;
        self
    }

    /// How often a request that failed is made again.
    pub fn retries(mut self, retries: Retries) -> ObjectSource {
        self.object().retries = retries;
        self
    }

    /// What error messages call the object, such as its URL. By default the store's name and the path.
    pub fn named(mut self, name: impl Into<String>) -> ObjectSource {
        self.object().name = name.into();
        self
    }

    /// The version that is read: known from the first response on, or since [`pinned_to`](ObjectSource::pinned_to).
    pub fn version(&self) -> Option<Version> {
        self.0.pinned().version.clone()
    }

    /// To set an option.
    fn object(&mut self) -> &mut Object {
        Arc::make_mut(&mut self.0)
    }
}

impl Object {
    fn pinned(&self) -> MutexGuard<'_, Pinned> {
        // Nothing that holds the lock can panic.
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One request, conditional on what is known of the object.
    async fn request(&self, range: Option<GetRange>) -> Result<GetResult, Failure> {
        let pinned = self.pinned().clone();
        let version = pinned.version.unwrap_or_default();
        let options = GetOptions {
            if_match: version.condition(),
            // An ETag needs no right to read old versions.
            version: version.version.filter(|_| version.e_tag.is_none()),
            head: range.is_none(),
            range,
            ..GetOptions::default()
        };
        let response = self.store.get_opts(&self.path, options).await;
        let response = response.map_err(|error| match error {
            object_store::Error::Precondition { .. } => replaced("its ETag is another one"),
            object_store::Error::NotFound { .. } if pinned.seen.is_some() => replaced("it is gone"),
            error => Failure::from(error),
        })?;
        self.admit(&response.meta)?;
        Ok(response)
    }

    /// Checks that a response is of the object that was read before. The first one says which that is.
    fn admit(&self, found: &ObjectMeta) -> Result<(), Failure> {
        let version = Version::from(found);
        let mut pinned = self.pinned();
        if let Some(expected) = &pinned.version
            && !expected.is_same(&version)
        {
            let why = format!(
                "expected {}, found {}",
                expected.describe(),
                version.describe()
            );
            return Err(replaced(&why));
        }
        if version.is_unknown() && !self.allow_unpinned {
            let why = "the store gives neither ETag nor version of the object, so that a replaced one could be taken for it; \
                       allow_unpinned(true) reads it all the same";
            return Err(Failure::lasting(io::Error::new(
                io::ErrorKind::InvalidInput,
                why,
            )));
        }
        if let Some(size) = self.size.filter(|size| *size != found.size) {
            return Err(replaced(&format!(
                "it has {} bytes, and not {size}",
                found.size
            )));
        }
        match &pinned.seen {
            None => {
                pinned.version = Some(version).filter(|version| !version.is_unknown());
                pinned.seen = Some(found.clone());
                Ok(())
            }
            Some(seen) if seen.size != found.size => Err(replaced(&format!(
                "it has {} bytes, and had {}",
                found.size, seen.size
            ))),
            Some(seen) if version.is_unknown() && seen.last_modified != found.last_modified => {
                Err(replaced("it was changed"))
            }
            Some(_) => Ok(()),
        }
    }

    /// One attempt at the end of the object.
    async fn tail(&self, len: u64) -> Result<Tail, Failure> {
        if let Some(size) = self.size {
            let bytes = self.range(size.saturating_sub(len)..size).await?;
            return Ok(Tail { size, bytes });
        }
        if len > 0 && !self.has_no_suffix.load(Ordering::Relaxed) {
            match self.suffix(len).await {
                Err(failure) if failure.error.kind() == io::ErrorKind::Unsupported => {
                    self.has_no_suffix.store(true, Ordering::Relaxed);
                }
                Err(failure) => {
                    // Perhaps the server takes such a request wrongly, which the next attempt does not make.
                    self.has_no_suffix
                        .store(failure.may_pass, Ordering::Relaxed);
                    return Err(failure);
                }
                tail => return tail,
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
            return Err(Failure::lasting(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                why,
            )));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let response = self.request(Some(GetRange::Bounded(range.clone()))).await?;
        collect(response, range).await
    }
}

/// The object is not the one that was read before.
fn replaced(why: &str) -> Failure {
    let why = format!("the object was replaced: {why}");
    Failure::lasting(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, why))
}

/// Most bytes that are reserved because a response claims to have them. A buffer for more grows as they come.
const MOST_RESERVED: usize = 8 << 20;

/// The bytes of a response, which must be those of `range`.
pub(crate) async fn collect(response: GetResult, range: Range<u64>) -> Result<Bytes, Failure> {
    let wrong = |what: String| {
        let why = format!(
            "expected bytes {} to {}, found {what}",
            range.start, range.end
        );
        Failure::passing(io::Error::new(io::ErrorKind::InvalidData, why))
    };
    if response.range != range {
        let found = &response.range;
        return Err(wrong(format!("{} to {}", found.start, found.end)));
    }
    let len = usize::try_from(range.end - range.start)
        .map_err(|_| Failure::lasting(io::ErrorKind::OutOfMemory.into()))?;
    // A file is read whole, and not in small pieces.
    if !matches!(response.payload, GetResultPayload::Stream(_)) {
        let bytes = response.bytes().await?;
        if bytes.len() != len {
            return Err(wrong(format!("{} bytes", bytes.len())));
        }
        return Ok(bytes);
    }
    let mut chunks = response.into_stream();
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        let found = first.len() + all.len() + chunk.len();
        if found > len {
            return Err(wrong("more".into()));
        }
        if first.is_empty() && all.is_empty() {
            // Most responses come in one piece, which needs no copy.
            first = chunk;
            continue;
        }
        if all.is_empty() {
            all.reserve(len.min(MOST_RESERVED));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&chunk);
    }
    let bytes = if all.is_empty() { first } else { all.freeze() };
    if bytes.len() != len {
        return Err(wrong(format!("{} bytes", bytes.len())));
    }
    Ok(bytes)
}

impl Object {
    async fn read_tail(&self, len: u64) -> io::Result<Tail> {
        let attempt = || self.tail(len);
        attempts(&self.timeouts, &self.retries, len, attempt).await
    }

    async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let range = offset..offset.saturating_add(len as u64);
        let attempt = || self.range(range.clone());
        attempts(&self.timeouts, &self.retries, len as u64, attempt).await
    }
}

/// Runs `work` in a task of its own, so that bytes are collected and deadlines kept while the caller is busy. The task ends when the
/// future is dropped.
async fn apart<T: Send + 'static>(
    work: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is ending.
        Some(Err(error)) => Err(io::Error::other(error)),
        None => Err(io::Error::other("the task is gone")),
    }
}

impl AsyncReadAt for ObjectSource {
    fn name(&self) -> Option<String> {
        Some(self.0.name.clone())
    }

    fn read_tail(&self, len: u64) -> BoxFuture<'_, io::Result<Tail>> {
        Box::pin(self.0.read_tail(len))
    }

    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        if len <= MOST_IN_PLACE {
            return Box::pin(self.0.read_at(offset, len));
        }
        let object = Arc::clone(&self.0);
        Box::pin(apart(async move { object.read_at(offset, len).await }))
    }
}
