//! A store in memory whose answers a test changes.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

type Change = Box<dyn Fn(GetOptions, usize, Result<GetResult>) -> Result<GetResult> + Send + Sync>;

/// [`InMemory`], of which the responses to reads are changed, and uploads in parts forget what they are given.
pub(crate) struct Odd {
    pub(crate) inner: InMemory,
    /// Changes a response, of which it is told the options and how many reads there were before.
    pub(crate) change: Change,
    /// How long a read takes.
    pub(crate) delay: Duration,
    /// Number of reads so far.
    pub(crate) reads: AtomicUsize,
}

impl Odd {
    pub(crate) fn new(
        change: impl Fn(GetOptions, usize, Result<GetResult>) -> Result<GetResult>
        + Send
        + Sync
        + 'static,
    ) -> Odd {
        Odd {
            inner: InMemory::new(),
            change: Box::new(change),
            delay: Duration::ZERO,
            reads: AtomicUsize::new(0),
        }
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Odd")
    }
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("odd")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Odd {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Sink))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.delay).await;
        let response = self.inner.get_opts(path, options.clone()).await;
        (self.change)(options, read, response)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// An upload that keeps nothing, and takes a while for each part.
#[derive(Debug)]
struct Sink;

#[async_trait::async_trait]
impl MultipartUpload for Sink {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            drop(data);
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        Ok(PutResult {
            e_tag: Some("\"sunk\"".into()),
            version: None,
            extensions: Default::default(),
        })
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}
