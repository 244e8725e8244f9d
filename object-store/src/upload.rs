//! Uploads a table, while it is built or from a file.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use leveltable::{Error, ErrorKind, ReadAt, Result, Summary, TableBuilder, WriteOptions};
use object_store::ObjectStore;
use object_store::path::Path;

use crate::Version;
use crate::attempts::Timeouts;
use crate::parts::{PART_LEN, Upload};

/// Opening a table reads at least this many bytes at its end, if it has as many.
pub(crate) const LEAST_TAIL: u64 = 64 << 10;

/// Room for the bytes of a part's last write that exceed the part, so that the buffer does not move.
const SLACK: usize = 512 << 10;

/// Options for uploading an object.
///
/// ```
/// # use std::sync::Arc;
/// # use leveltable::WriteOptions;
/// # use object_store::{memory::InMemory, path::Path};
/// use leveltable_object_store::UploadOptions;
///
/// # let (store, path) = (Arc::new(InMemory::new()), Path::from("fruit.ldb"));
/// let upload = UploadOptions::new().replace_existing(false);
/// let builder = upload.create(store, path, &WriteOptions::new())?;
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct UploadOptions {
    pub(crate) replace: bool,
    pub(crate) timeouts: Timeouts,
    pub(crate) name: Option<String>,
}

impl Default for UploadOptions {
    fn default() -> UploadOptions {
        UploadOptions::new()
    }
}

impl UploadOptions {
    /// Replaces an existing object. A request may take a minute, and a second for each 256 KiB.
    pub fn new() -> UploadOptions {
        UploadOptions {
            replace: true,
            timeouts: Timeouts::new(Duration::from_secs(60), 256 << 10),
            name: None,
        }
    }

    /// With `false`, an existing object at the path stays, and `finish` fails with
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists). `true` by default.
    ///
    /// For a table of up to 8 MiB, the store decides at the moment of writing. If it answers that there is an object, that object
    /// is read, and one with the same bytes counts as this one: the response to an earlier attempt may have been lost. So building
    /// the same table again succeeds, and writes nothing.
    ///
    /// For a larger table, which is uploaded in parts, no store can decide this: `finish` asks before it completes the upload,
    /// and an object that appears in between is replaced.
    pub fn replace_existing(mut self, yes: bool) -> UploadOptions {
        self.replace = yes;
        self
    }

    /// How long a request may take, including retries by the store, which alone retries the requests of an upload,
    /// according to its [`RetryConfig`](object_store::RetryConfig). By default a minute, and a second for each 256 KiB.
    pub fn timeouts(mut self, timeouts: Timeouts) -> UploadOptions {
        self.timeouts = timeouts;
        self
    }

    /// The object's name in [errors](leveltable::Error), such as its URL. The default is the store's name and the path.
    pub fn named(mut self, name: impl Into<String>) -> UploadOptions {
        self.name = Some(name.into());
        self
    }

    /// Starts a table that appears at `path` when it is finished. Makes no request.
    ///
    /// # Errors
    ///
    /// [`InvalidState`](ErrorKind::InvalidState) if one of `options` is out of its range.
    pub fn create(
        &self,
        store: Arc<dyn ObjectStore>,
        path: Path,
        options: &WriteOptions,
    ) -> Result<ObjectTableBuilder> {
        let written = Written::default();
        let mut table = options.build(written.clone());
        // Options out of range are rejected now.
        table.flush()?;
        Ok(ObjectTableBuilder {
            table,
            written,
            full_at: PART_LEN as u64,
            upload: Upload::new(store, path, self.clone()),
            has_failed: false,
        })
    }

    /// Uploads a finished table, for example from a file, byte for byte. The object appears when this returns, complete, or not
    /// at all; see [`ObjectTableBuilder`] for requests and parts. The bytes are not checked.
    ///
    /// Reads up to 8 MiB at a time on the thread that polls the future, and holds at most 56 MiB. Dropping the future removes the
    /// parts, as for a builder.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use leveltable::WriteOptions;
    /// # use object_store::{memory::InMemory, path::Path};
    /// # use leveltable_object_store::UploadOptions;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let (store, object) = (Arc::new(InMemory::new()), Path::from("fruit.ldb"));
    /// # let path = tempfile::NamedTempFile::new()?.into_temp_path();
    /// let mut builder = WriteOptions::new().create(&path)?;
    /// builder.add("apple", "red")?;
    /// builder.finish()?;
    /// let file = std::fs::File::open(&path)?;
    /// UploadOptions::new().upload(store, object, &file).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io) if `table` could not be read, or a request failed. The upload is then aborted, as by
    /// [`ObjectTableBuilder::finish`].
    pub async fn upload(
        &self,
        store: Arc<dyn ObjectStore>,
        path: Path,
        table: &(impl ReadAt + ?Sized),
    ) -> Result<Version> {
        let mut upload = Upload::new(store, path, self.clone());
        let uploaded = upload.copy(table).await;
        upload.or_abort(uploaded).await
    }
}

/// Builds a table as an object: [`add`](ObjectTableBuilder::add) every entry in order, then
/// [`finish`](ObjectTableBuilder::finish).
///
/// Uploads parts of 8 MiB while entries are added, six at a time. Holds at most 64 MiB of the table besides what a
/// [`TableBuilder`] holds; when it finishes, the filter as well. A table of up to 8 MiB is written by a single request, a larger one
/// by one for each part, one before and one after them. Stores accept up to 10,000 parts, so tables of up to 80 GB.
///
/// The object appears when `finish` returns, complete, or not at all. Until then, parts may be in the store, and cost money.
/// [`abort`](ObjectTableBuilder::abort) removes them. So does a builder that is dropped within a Tokio runtime, in the background if the
/// runtime lives long enough. Only the store can remove the parts of a killed process: give the bucket a rule that removes incomplete
/// uploads after some days.
#[must_use = "there is no object until `finish`"]
pub struct ObjectTableBuilder {
    table: TableBuilder<Written>,
    /// The bytes that `table` has written and that are not in a part yet.
    written: Written,
    /// Size of the table at which the next part may be full.
    full_at: u64,
    upload: Upload,
    has_failed: bool,
}

/// The summary and the version of an uploaded table, returned by [`ObjectTableBuilder::finish`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uploaded {
    /// The table's summary. Its `file_bytes` are the object's size.
    pub summary: Summary,
    /// With this length, opening the table takes one request: the bytes after the last data block, and at least 64 KiB if
    /// there are as many.
    pub tail_len: u64,
    /// The object's version, for [`ObjectSource::pinned_to`](crate::ObjectSource::pinned_to). Unknown if the store does not
    /// report it.
    pub version: Version,
}

impl fmt::Debug for ObjectTableBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectTableBuilder")
            .field("name", &self.upload.name)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl ObjectTableBuilder {
    /// Starts a table with [`UploadOptions::new`]; see [`UploadOptions::create`].
    ///
    /// # Errors
    ///
    /// Same as [`UploadOptions::create`].
    pub fn create(
        store: Arc<dyn ObjectStore>,
        path: Path,
        options: &WriteOptions,
    ) -> Result<ObjectTableBuilder> {
        UploadOptions::new().create(store, path, options)
    }

    /// Adds an entry. Keys come in ascending order, each once.
    ///
    /// Waits only when a part is full and six others are in flight.
    ///
    /// # Errors
    ///
    /// Same as [`TableBuilder::add`]. [`Io`](ErrorKind::Io) if a part could not be uploaded. Every further call then fails, as it does
    /// if the future of a call was dropped while it waited. If that call was the one that began the upload, the store may keep an
    /// upload without parts that nobody knows of.
    pub async fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.check()?;
        self.table.add(key, value)?;
        if self.table.file_bytes() < self.full_at {
            return Ok(());
        }
        // If this future is dropped while it waits, a part is lost with it.
        self.has_failed = true;
        let uploaded = self.upload_full_parts().await;
        self.has_failed = uploaded.is_err();
        uploaded
    }

    /// Stores a property of the application in the table; see [`TableBuilder::property`].
    ///
    /// # Errors
    ///
    /// Same as [`TableBuilder::property`].
    pub fn property(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<()> {
        self.table.property(name, value)
    }

    /// Number of entries added so far, as by [`TableBuilder::entries`].
    pub fn entries(&self) -> u64 {
        self.table.entries()
    }

    /// Bytes of the table so far, as by [`TableBuilder::file_bytes`]: the finished data blocks.
    pub fn file_bytes(&self) -> u64 {
        self.table.file_bytes()
    }

    /// Writes everything after the entries, and makes the object appear.
    ///
    /// # Errors
    ///
    /// Same as [`TableBuilder::finish`], and [`Io`](ErrorKind::Io) if a request failed. The upload is then aborted, and the object at the
    /// path is the one that was there before, unless the last request was carried out and its response was lost: the error says so.
    pub async fn finish(mut self) -> Result<Uploaded> {
        let finished = self.try_finish().await;
        self.upload.or_abort(finished).await
    }

    /// Aborts the upload: removes the parts that were uploaded. The object at the path stays as it was.
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io) if the store did not confirm it. Parts may then remain.
    pub async fn abort(mut self) -> Result<()> {
        self.upload.abort().await
    }

    fn check(&self) -> Result<()> {
        let why = "a part could not be uploaded, or waiting for it was given up";
        if self.has_failed {
            return Err(Error::new(ErrorKind::InvalidState, why));
        }
        Ok(())
    }

    async fn try_finish(&mut self) -> Result<Uploaded> {
        self.check()?;
        self.table.flush()?;
        let data_end = self.table.file_bytes();
        // Finishing consumes the builder.
        let table = std::mem::replace(
            &mut self.table,
            WriteOptions::new().build(Written::default()),
        );
        let summary = table.finish()?;
        let rest = Bytes::from(std::mem::take(&mut *self.written.lock()));
        let version = self.upload.finish(rest).await?;
        let tail_len = LEAST_TAIL.max(summary.file_bytes - data_end);
        Ok(Uploaded {
            tail_len: tail_len.min(summary.file_bytes),
            summary,
            version,
        })
    }

    /// Begins to upload the full parts.
    async fn upload_full_parts(&mut self) -> Result<()> {
        loop {
            let part = {
                let mut written = self.written.lock();
                if written.len() < PART_LEN {
                    self.full_at = self.upload.sent + PART_LEN as u64;
                    return Ok(());
                }
                let mut next = Vec::with_capacity(PART_LEN + SLACK);
                next.extend_from_slice(written.get(PART_LEN..).unwrap_or_default());
                let mut part = std::mem::replace(&mut *written, next);
                part.truncate(PART_LEN);
                Bytes::from(part)
            };
            self.upload.send(part).await?;
        }
    }
}

/// The bytes that a [`TableBuilder`] has written, shared with it.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // No code that holds the lock can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
