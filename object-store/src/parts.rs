//! An upload in parts, some of them on their way.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, PutMultipartOptions, PutPayload};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::attempts::{Failure, Retries, Timeouts, attempts};
use crate::upload::UploadOptions;
use crate::version::Version;

/// Most parts on their way at once. With the one that is being filled, and what copies take, they are less than eight.
const MOST_IN_FLIGHT: usize = 6;

/// An upload in parts that has begun. Unless it is completed, its parts are removed: by [`abort`](Parts::abort), or in the background
/// if it is dropped within a Tokio runtime.
pub(crate) struct Parts {
    /// None once it is completed or aborted.
    upload: Option<Box<dyn MultipartUpload>>,
    on_their_way: JoinSet<io::Result<()>>,
    sent: u64,
    timeouts: Timeouts,
    retries: Retries,
}

impl Parts {
    pub(crate) async fn begin(
        store: &dyn ObjectStore,
        path: &Path,
        options: &UploadOptions,
    ) -> io::Result<Parts> {
        let UploadOptions {
            timeouts, retries, ..
        } = options;
        let request = || async {
            let options = retrying(retries);
            let upload = store.put_multipart_opts(path, options).await;
            upload.map_err(Failure::from)
        };
        let upload = attempts(timeouts, retries, 0, request).await?;
        Ok(Parts {
            upload: Some(upload),
            on_their_way: JoinSet::new(),
            sent: 0,
            timeouts: timeouts.clone(),
            retries: retries.clone(),
        })
    }

    /// Bytes of all parts so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Begins to upload a part, once fewer than the most are on their way.
    pub(crate) async fn send(&mut self, part: Bytes) -> io::Result<()> {
        while self.on_their_way.len() >= MOST_IN_FLIGHT {
            self.wait_for_one().await?;
        }
        let Some(upload) = &mut self.upload else {
            return Err(io::Error::other("the upload has ended"));
        };
        let len = part.len() as u64;
        self.sent += len;
        let request = upload.put_part(PutPayload::from(part));
        let deadline = self.deadline(len);
        self.on_their_way.spawn(async move {
            match tokio::time::timeout(deadline, request).await {
                Ok(uploaded) => uploaded.map_err(|error| Failure::from(error).error),
                Err(_) => Err(late(deadline)),
            }
        });
        Ok(())
    }

    /// A store cannot be asked to upload the same part anew, so the attempts and pauses are within one deadline.
    fn deadline(&self, len: u64) -> Duration {
        let attempts = self.retries.most.saturating_add(1);
        self.timeouts.of(len).saturating_mul(attempts)
    }

    /// Waits until all parts have arrived.
    pub(crate) async fn wait(&mut self) -> io::Result<()> {
        while !self.on_their_way.is_empty() {
            self.wait_for_one().await?;
        }
        Ok(())
    }

    async fn wait_for_one(&mut self) -> io::Result<()> {
        match self.on_their_way.join_next().await {
            Some(Ok(uploaded)) => uploaded,
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Ok(()),
        }
    }

    /// Makes the object appear. If that fails, returns the upload, to be aborted.
    pub(crate) async fn complete(mut self) -> Result<Version, (Parts, io::Error)> {
        let deadline = self.deadline(0);
        let Some(upload) = &mut self.upload else {
            return Err((self, io::Error::other("the upload has ended")));
        };
        match tokio::time::timeout(deadline, upload.complete()).await {
            Ok(Ok(result)) => {
                self.upload = None;
                Ok(Version::from(result))
            }
            Ok(Err(error)) => Err((self, Failure::from(error).error)),
            Err(_) => Err((self, late(deadline))),
        }
    }

    /// Removes the parts, and waits for none on its way: their requests end here. A store may keep a part of which it had all bytes,
    /// and has yet to write them, until its rule for incomplete uploads removes it.
    pub(crate) async fn abort(mut self) -> io::Result<()> {
        let upload = self.upload.take();
        let parts = std::mem::take(&mut self.on_their_way);
        remove(upload, parts, &self.timeouts, &self.retries).await
    }
}

async fn remove(
    upload: Option<Box<dyn MultipartUpload>>,
    mut parts: JoinSet<io::Result<()>>,
    timeouts: &Timeouts,
    retries: &Retries,
) -> io::Result<()> {
    // None goes on after the request to abort.
    parts.shutdown().await;
    let Some(upload) = upload else {
        return Ok(());
    };
    let upload = Mutex::new(upload);
    let request = || async {
        match upload.lock().await.abort().await {
            // It is gone already.
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Failure::from(error)),
        }
    };
    attempts(timeouts, retries, 0, request).await
}

impl Drop for Parts {
    fn drop(&mut self) {
        let (Some(upload), Ok(runtime)) =
            (self.upload.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let parts = std::mem::take(&mut self.on_their_way);
        let (timeouts, retries) = (self.timeouts.clone(), self.retries.clone());
        runtime.spawn(async move {
            // Nobody is left to be told of a failure.
            let _ = remove(Some(upload), parts, &timeouts, &retries).await;
        });
    }
}

fn late(deadline: Duration) -> io::Error {
    let why = format!("not complete after {deadline:?}");
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Options of an upload whose parts are uploaded anew after failures that may pass: by the store, since its interface has no way to
/// do so from outside.
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
fn retrying(retries: &Retries) -> PutMultipartOptions {
    let policy = policy::PartRetries(retries.clone());
    PutMultipartOptions::default().with_retry_policy(std::sync::Arc::new(policy))
}

/// Other stores do not retry.
#[cfg(not(any(feature = "aws", feature = "azure", feature = "gcp")))]
fn retrying(_: &Retries) -> PutMultipartOptions {
    PutMultipartOptions::default()
}

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
mod policy {
    //! When a part is uploaded anew.

    use leveltable::remote::BoxFuture;
    use object_store::retry::{RetryContext, RetryFailure, RetryPolicy};

    use crate::attempts::Retries;

    #[derive(Debug)]
    pub(super) struct PartRetries(pub(super) Retries);

    impl RetryPolicy for PartRetries {
        fn retry<'a, 'b>(&'a self, context: RetryContext) -> BoxFuture<'b, bool>
        where
            'a: 'b,
        {
            let may_pass = match context.failure {
                RetryFailure::Status(status) => {
                    status.is_server_error() || matches!(status.as_u16(), 408 | 429)
                }
                _ => true,
            };
            let attempt = u32::try_from(context.attempt).unwrap_or(u32::MAX);
            let is_due = may_pass && attempt <= self.0.most;
            let pause = self.0.pause(attempt);
            Box::pin(async move {
                if is_due {
                    tokio::time::sleep(pause).await;
                }
                is_due
            })
        }
    }
}
