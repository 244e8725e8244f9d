//! An upload in parts, some of them on their way.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, PutMultipartOptions, PutPayload, Result};
use tokio::task::JoinSet;

use crate::Version;
use crate::attempts::{Timeouts, within};

/// Most parts on their way at once. With the one that is being filled, and what copies take, they are less than eight.
const MAX_IN_FLIGHT: usize = 6;

/// An upload in parts that has begun. Unless it is completed, its parts are removed: by [`abort`](Parts::abort), or in the background
/// if it is dropped within a Tokio runtime.
///
/// The store repeats what fails: its interface has no way to send a part again, or to complete an upload again, from outside.
pub(crate) struct Parts {
    /// None once it is completed or aborted.
    upload: Option<Box<dyn MultipartUpload>>,
    on_their_way: JoinSet<Result<()>>,
    sent: u64,
    timeouts: Timeouts,
}

impl Parts {
    pub(crate) async fn begin(
        store: &dyn ObjectStore,
        path: &Path,
        timeouts: &Timeouts,
    ) -> Result<Parts> {
        let begin = store.put_multipart_opts(path, PutMultipartOptions::default());
        Ok(Parts {
            upload: Some(within(timeouts.of(0), begin).await?),
            on_their_way: JoinSet::new(),
            sent: 0,
            timeouts: timeouts.clone(),
        })
    }

    /// Bytes of all parts so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Begins to upload a part, once fewer than the most are on their way.
    pub(crate) async fn send(&mut self, part: Bytes) -> Result<()> {
        while self.on_their_way.len() >= MAX_IN_FLIGHT {
            self.wait_for_one().await?;
        }
        let Some(upload) = &mut self.upload else {
            return Err(ended());
        };
        self.sent += part.len() as u64;
        let deadline = self.timeouts.of(part.len() as u64);
        let request = upload.put_part(PutPayload::from(part));
        self.on_their_way.spawn(within(deadline, request));
        Ok(())
    }

    /// Waits until all parts have arrived.
    pub(crate) async fn wait(&mut self) -> Result<()> {
        while !self.on_their_way.is_empty() {
            self.wait_for_one().await?;
        }
        Ok(())
    }

    async fn wait_for_one(&mut self) -> Result<()> {
        match self.on_their_way.join_next().await {
            Some(Ok(uploaded)) => uploaded,
            Some(Err(error)) => Err(failed(error)),
            None => Ok(()),
        }
    }

    /// Makes the object appear. If that fails, returns the upload, to be aborted.
    pub(crate) async fn complete(mut self) -> std::result::Result<Version, (Parts, Error)> {
        let Some(upload) = &mut self.upload else {
            return Err((self, ended()));
        };
        match within(self.timeouts.of(0), upload.complete()).await {
            Ok(result) => {
                self.upload = None;
                Ok(Version::from(result))
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Removes the parts, and waits for none on its way: their requests end here. A store may keep a part of which it had all bytes,
    /// and has yet to write them, until its rule for incomplete uploads removes it.
    pub(crate) async fn abort(mut self) -> Result<()> {
        let parts = std::mem::take(&mut self.on_their_way);
        match self.upload.take() {
            Some(upload) => remove(upload, parts, &self.timeouts).await,
            None => Ok(()),
        }
    }
}

async fn remove(
    mut upload: Box<dyn MultipartUpload>,
    mut parts: JoinSet<Result<()>>,
    timeouts: &Timeouts,
) -> Result<()> {
    // None goes on after the request to abort.
    parts.shutdown().await;
    match within(timeouts.of(0), upload.abort()).await {
        // It is gone already.
        Err(Error::NotFound { .. }) => Ok(()),
        aborted => aborted,
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let (Some(upload), Ok(runtime)) =
            (self.upload.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let parts = std::mem::take(&mut self.on_their_way);
        let timeouts = self.timeouts.clone();
        // Nobody is left to be told of a failure.
        runtime.spawn(async move { remove(upload, parts, &timeouts).await });
    }
}

fn ended() -> Error {
    failed("the upload has ended")
}

fn failed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic {
        store: "upload",
        source: why.into(),
    }
}
