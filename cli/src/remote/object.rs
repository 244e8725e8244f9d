//! An object at a URL, for blocking calls and for others.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use leveltable::ReadAt;
use leveltable::remote::{AsyncReadAt, BoxFuture, Tail};
use leveltable_object_store::{ObjectSource, Version};

use super::runtime::wait;
use super::store::locate;

/// Number of bytes of the object's end that are read with its size: for most tables, all that opening reads.
pub(super) const TAIL_LEN: u64 = 256 << 10;

/// Length of each request of a download, and the number of requests in flight.
const STEP: u64 = 8 << 20;
const MAX_IN_FLIGHT: usize = 4;

/// An object whose end is read once.
pub(super) struct Object {
    source: ObjectSource,
    /// The response to the request for the end of the object: the tail, or that there is no object.
    tail: OnceLock<Option<Tail>>,
}

impl Object {
    /// The object at the URL `path`. Makes no request.
    pub(super) fn at(path: &Path) -> leveltable::Result<Arc<Object>> {
        let (store, object) = locate(path)?;
        let source = ObjectSource::new(store, object).named(path.to_string_lossy());
        Ok(Arc::new(Object::new(source)))
    }

    pub(super) fn new(source: ObjectSource) -> Object {
        Object {
            source,
            tail: OnceLock::new(),
        }
    }

    /// The version of the tail.
    pub(super) fn version(&self) -> Option<Version> {
        self.source.version()
    }

    async fn tail(&self) -> io::Result<&Tail> {
        if self.tail.get().is_none() {
            let read = self.source.read_tail(TAIL_LEN).await;
            match read {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let _ = self.tail.set(None);
                    return Err(e);
                }
                tail => self.tail.set(Some(tail?)).unwrap_or_default(),
            }
        }
        let tail = self.tail.get().and_then(Option::as_ref);
        tail.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    async fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if let Some(Some(tail)) = self.tail.get() {
            let start = tail.size - tail.bytes.len() as u64;
            let from = offset.checked_sub(start).map(|from| from as usize);
            let range = from.map(|from| from..from.saturating_add(len));
            if let Some(range) = range.filter(|range| range.end <= tail.bytes.len()) {
                return Ok(tail.bytes.slice(range));
            }
        }
        self.source.read_at(offset, len).await
    }

    /// The whole object.
    pub(super) fn all(&self) -> io::Result<Bytes> {
        let len = usize::try_from(self.size()?).map_err(io::Error::other)?;
        wait(self.read(0, len))
    }

    /// Copies the object to a temporary file, which has no name and so cannot be left on disk. Calls `progress` with the number
    /// of bytes so far.
    pub(super) async fn download(&self, mut progress: impl FnMut(u64)) -> io::Result<File> {
        let size = self.tail().await?.size;
        let parts = (0..size).step_by(STEP as usize);
        let parts = stream::iter(parts.map(|offset| {
            let len = STEP.min(size - offset);
            self.read(offset, len as usize)
        }));
        let mut parts = parts.buffered(MAX_IN_FLIGHT);
        let (mut file, mut done) = (tempfile::tempfile()?, 0);
        while let Some(part) = parts.try_next().await? {
            file.write_all(&part)?;
            done += part.len() as u64;
            progress(done);
        }
        Ok(file)
    }
}

impl ReadAt for Object {
    fn size(&self) -> io::Result<u64> {
        Ok(wait(self.tail())?.size)
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        wait(self.read(offset, len))
    }

    fn read_many_at(&self, parts: &[(u64, usize)], each: &mut dyn FnMut(usize, io::Result<Bytes>)) {
        let read = wait(AsyncReadAt::read_many_at(self, parts));
        for (i, part) in read.into_iter().enumerate() {
            each(i, part);
        }
    }
}

impl AsyncReadAt for Object {
    fn name(&self) -> Option<String> {
        self.source.name()
    }

    /// Returns [`TAIL_LEN`] bytes, whatever is requested: tables are opened with these.
    fn read_tail(&self, _: u64) -> BoxFuture<'_, io::Result<Tail>> {
        Box::pin(async { Ok(self.tail().await?.clone()) })
    }

    fn read_at(&self, offset: u64, len: usize) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(self.read(offset, len))
    }
}
