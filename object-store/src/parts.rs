//! An object that is being written: by one request, or in parts, of which some are in flight.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use leveltable::{Error, ReadAt, Result};
use object_store::path::Path;
use object_store::{
    GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions,
    PutPayload,
};
use tokio::task::JoinSet;

use crate::attempts::{Failure, within};
use crate::source::{join, version_of};
use crate::{UploadOptions, Version};

/// Size of each part but the last. Some stores require at least 5 MiB, and all parts of one size.
pub(crate) const PART_LEN: usize = 8 << 20;

/// Maximum number of parts in flight. With the one that is being filled, and the memory of copies, these are less than
/// eight parts.
const MAX_IN_FLIGHT: usize = 6;

/// An object that is being written. Unless it is finished, its parts are removed: by [`abort`](Upload::abort), or in the background
/// if it is dropped within a Tokio runtime.
///
/// The store retries failed requests: its interface has no way to send a part again, or to complete an upload again, from
/// outside.
pub(crate) struct Upload {
    store: Arc<dyn ObjectStore>,
    path: Path,
    options: UploadOptions,
    /// The object's name in errors.
    pub(crate) name: String,
    /// `None` while the table may fit into one request, and after the upload is completed or aborted.
    parts: Option<Box<dyn MultipartUpload>>,
    on_their_way: JoinSet<Result<(), Failure>>,
    /// Size of all parts so far.
    pub(crate) sent: u64,
}

impl Upload {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, path: Path, options: UploadOptions) -> Upload {
        let name = options.name.clone();
        Upload {
            name: name.unwrap_or_else(|| format!("{store}/{path}")),
            store,
            path,
            options,
            parts: None,
            on_their_way: JoinSet::new(),
            sent: 0,
        }
    }

    /// Begins to upload a part, once fewer than the maximum are in flight.
    pub(crate) async fn send(&mut self, part: Bytes) -> Result<()> {
        self.wait_until_left(MAX_IN_FLIGHT - 1).await?;
        if self.parts.is_none() {
            let options = PutMultipartOptions::default();
            let begin = self.store.put_multipart_opts(&self.path, options);
            let begun = within(self.options.timeouts.of(0), begin).await;
            self.parts = Some(begun.map_err(|error| self.error("beginning an upload", error))?);
        }
        self.sent += part.len() as u64;
        let deadline = self.options.timeouts.of(part.len() as u64);
        if let Some(parts) = &mut self.parts {
            let request = parts.put_part(PutPayload::from(part));
            self.on_their_way.spawn(within(deadline, request));
        }
        Ok(())
    }

    /// Waits until at most `most` parts are in flight.
    async fn wait_until_left(&mut self, most: usize) -> Result<()> {
        while self.on_their_way.len() > most {
            let uploaded = join(&mut self.on_their_way).await;
            let uploaded = uploaded.and_then(|uploaded| Ok(uploaded?));
            uploaded.map_err(|error| self.error("uploading a part", error))?;
        }
        Ok(())
    }

    /// Uploads all of `table`, and makes the object appear.
    pub(crate) async fn copy(&mut self, table: &(impl ReadAt + ?Sized)) -> Result<Version> {
        let failed = |error| Error::io("reading the table that is uploaded", error);
        let size = table.size().map_err(failed)?;
        let mut offset = 0;
        loop {
            let len = (size - offset).min(PART_LEN as u64);
            let part = table.read_at(offset, len as usize).map_err(failed)?;
            if part.len() as u64 != len {
                let what = format!("{} bytes instead of {len} at offset {offset}", part.len());
                return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
            }
            offset += len;
            if offset == size {
                return self.finish(part).await;
            }
            self.send(part).await?;
        }
    }

    /// Uploads `rest`, and makes the object appear.
    pub(crate) async fn finish(&mut self, mut rest: Bytes) -> Result<Version> {
        if self.parts.is_some() || rest.len() > PART_LEN {
            while !rest.is_empty() {
                let part = rest.split_to(PART_LEN.min(rest.len()));
                self.send(part).await?;
            }
            self.wait_until_left(0).await?;
            if !self.options.replace {
                let absent = self.check_absent().await;
                let doing = "looking for an object that is there";
                absent.map_err(|error| self.error(doing, error))?;
            }
        }
        let Some(parts) = &mut self.parts else {
            let put = self.put(rest).await;
            return put.map_err(|error| self.error("writing the object", error));
        };
        let completed = within(self.options.timeouts.of(0), parts.complete()).await;
        let doing = "completing the upload, which may have been carried out";
        let completed = completed.map_err(|error| self.error(doing, error))?;
        self.parts = None;
        Ok(Version::from(completed))
    }

    /// Returns the result of the upload. If it failed, first removes the parts.
    pub(crate) async fn or_abort<T>(&mut self, ended: Result<T>) -> Result<T> {
        let Err(error) = ended else {
            return ended;
        };
        match self.abort().await {
            Ok(()) => Err(error),
            Err(abort) => {
                let doing = format!(
                    "the upload failed, and parts of it may remain until the store removes incomplete uploads ({abort})"
                );
                Err(self.error(&doing, error))
            }
        }
    }

    /// Removes the parts, without waiting for those in flight: their requests end here. A store that has received all bytes of a
    /// part, but not written them yet, may keep the part until its rule for incomplete uploads removes it.
    pub(crate) async fn abort(&mut self) -> Result<()> {
        let Some(removal) = self.removal() else {
            return Ok(());
        };
        let removed = removal.await;
        removed.map_err(|error| self.error("aborting an upload", error))
    }

    fn removal(&mut self) -> Option<impl Future<Output = Result<(), Failure>> + use<>> {
        let mut parts = self.parts.take()?;
        let mut on_their_way = std::mem::take(&mut self.on_their_way);
        let deadline = self.options.timeouts.of(0);
        Some(async move {
            // No part is sent after the request to abort.
            on_their_way.shutdown().await;
            match within(deadline, parts.abort()).await {
                // It is gone already.
                Err(failure) if failure.error.kind() == io::ErrorKind::NotFound => Ok(()),
                aborted => aborted,
            }
        })
    }

    fn error(&self, doing: &str, error: impl Into<io::Error>) -> Error {
        Error::io(doing, error.into()).at_path(self.name.as_ref())
    }

    /// Writes the whole object by one request.
    async fn put(&mut self, object: Bytes) -> Result<Version, Failure> {
        let mode = if self.options.replace {
            PutMode::Overwrite
        } else {
            PutMode::Create
        };
        let (store, path) = (&self.store, &self.path);
        let deadline = self.options.timeouts.of(object.len() as u64);
        let payload = PutPayload::from(object.clone());
        let put = store.put_opts(path, payload, mode.into());
        match within(deadline, put).await {
            Ok(result) => Ok(Version::from(result)),
            // Perhaps an earlier attempt by the store's client has written it.
            Err(failure) if failure.error.kind() == io::ErrorKind::AlreadyExists => {
                let read = async {
                    let found = store.get_opts(path, GetOptions::default());
                    let found = found.await?;
                    let version = version_of(&found.meta);
                    let is_long = found.meta.size != object.len() as u64;
                    let is_same = !is_long && found.bytes().await? == object;
                    Ok::<_, object_store::Error>(is_same.then_some(version))
                };
                within(deadline, read).await?.ok_or(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Fails if there is an object at the path.
    async fn check_absent(&mut self) -> Result<(), Failure> {
        let head = self.store.head(&self.path);
        match within(self.options.timeouts.of(0), head).await {
            Err(failure) if failure.error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(failure) => Err(failure),
            Ok(_) => {
                let why = "there is an object already";
                Err(Failure::lasting(io::ErrorKind::AlreadyExists, why))
            }
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Some(removal) = self.removal()
        {
            // Nobody is left to receive an error.
            runtime.spawn(removal);
        }
    }
}
