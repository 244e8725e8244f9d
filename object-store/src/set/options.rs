//! Options for sets, and what is done with them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
#[cfg(doc)]
use leveltable::ErrorKind;
use leveltable::{OpenOptions, Result};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::error::PublishError;
#[cfg(doc)]
use super::error::PublishErrorKind;
use super::manifest::Manifest;
use super::place::{Place, SetVersion};
use super::prune;
use super::publish::{self, Published};
use super::settings::Settings;
use super::shard::Shard;
use super::table_set::TableSet;
use crate::Version;
use crate::attempts::{Retries, Timeouts};
use crate::source::UNKNOWN;

/// Options for opening and publishing a set.
///
/// ```no_run
/// # use std::sync::Arc;
/// use leveltable::{BlockCache, OpenOptions};
/// use leveltable_object_store::set::SetOptions;
/// use leveltable_object_store::{Retries, Timeouts};
/// # use leveltable_object_store::TableSet;
/// # use object_store::{ObjectStore, path::Path};
/// # async fn open(store: Arc<dyn ObjectStore>, manifest: Path) -> leveltable::Result<TableSet> {
/// let options = SetOptions::new()
///     .tables(OpenOptions::new().cache(BlockCache::new(256 << 20)))
///     .max_open(200)
///     .max_bytes(1 << 30)
///     .max_requests(32)
///     .timeouts(Timeouts::default())
///     .retries(Retries::none());
/// options.open(store, &manifest).await
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct SetOptions(Settings);

impl Default for SetOptions {
    fn default() -> SetOptions {
        SetOptions::new()
    }
}

impl SetOptions {
    /// Tables are opened with [`OpenOptions::new`], and 64 of them stay open, with at most 128 MiB.
    pub fn new() -> SetOptions {
        SetOptions(Settings::new())
    }

    /// Options for opening the tables, such as a separate cache. The default is [`OpenOptions::new`].
    pub fn tables(mut self, options: OpenOptions) -> SetOptions {
        self.0.tables = options;
        self
    }

    /// Maximum number of open tables, at least one, and 64 by default. Tables that were not used recently are closed. An open table keeps the
    /// pieces of its filter and its index that are loaded; see [`AsyncTable::weight`](leveltable::remote::AsyncTable::weight).
    pub fn max_open(mut self, tables: usize) -> SetOptions {
        self.0.max_open = tables;
        self
    }

    /// Maximum memory of the open tables in bytes, without blocks: 128 MiB by default. Beyond that, tables that were not used recently are
    /// closed, except the last.
    pub fn max_bytes(mut self, bytes: u64) -> SetOptions {
        self.0.max_bytes = bytes;
        self
    }

    /// Maximum number of requests in flight for the tables of a set, 64 by default. Others wait for their turn.
    pub fn max_requests(mut self, requests: usize) -> SetOptions {
        self.0.max_requests = requests;
        self
    }

    /// How long a request may take; the default is that of [`Timeouts`].
    pub fn timeouts(mut self, timeouts: Timeouts) -> SetOptions {
        self.0.patience.timeouts = timeouts;
        self
    }

    /// How often a failed request is retried; the default is that of [`Retries`].
    pub fn retries(mut self, retries: Retries) -> SetOptions {
        self.0.patience.retries = retries;
        self
    }

    /// Opens the set whose manifest is at `manifest`: one request, however many shards it has.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Io`], with [`NotFound`](std::io::ErrorKind::NotFound) if there is no manifest.
    /// - [`ErrorKind::NotATable`] if the object is not a manifest, and [`ErrorKind::Unsupported`] if it has a later version.
    /// - [`ErrorKind::Corruption`] if it is damaged.
    pub async fn open(&self, store: Arc<dyn ObjectStore>, manifest: &Path) -> Result<TableSet> {
        TableSet::open_with(&self.0, store, manifest).await
    }

    /// The set of a manifest that was read before: these `bytes` of the object at `path`, in this version. Makes no
    /// request.
    ///
    /// # Errors
    ///
    /// Errors of [`open`](SetOptions::open) if it is not a manifest.
    pub fn open_manifest(
        &self,
        store: Arc<dyn ObjectStore>,
        path: &Path,
        bytes: Bytes,
        version: Option<Version>,
    ) -> Result<TableSet> {
        let place = Place::Object(version.unwrap_or(UNKNOWN));
        let read = (Manifest::decode(bytes, path)?, place);
        Ok(TableSet::of_manifest(&self.0, store, path, read))
    }

    /// Describes the table at `path` as a shard: opens it, by one or two requests. `None` if it has no entries, and so no place in
    /// a set.
    ///
    /// The first and the last key come from the table's properties. A table without properties, from another writer, or
    /// with keys that are too long for these, takes two more requests.
    ///
    /// # Errors
    ///
    /// Same as [`OpenOptions::open_async`]: the object does not exist, is not a table, is damaged, or is not in bytewise order.
    pub async fn describe(
        &self,
        store: Arc<dyn ObjectStore>,
        path: &Path,
    ) -> leveltable::Result<Option<Shard>> {
        Shard::describe_with(&self.0, store, path).await
    }

    /// Publishes the tables at `shards`, in any order, as the set whose manifest is at `manifest`: opens them all, then creates or
    /// replaces the manifest by one conditional request.
    ///
    /// `previous` is the publication to replace: [`TableSet::version`] of the set that was read, or
    /// [`Published::version`]; `None` if there must be none. Of several publishers that replace the same publication, one succeeds.
    /// Tables without entries are left out.
    ///
    /// If the response is lost, the manifest is read: a publication recognises itself by a random number, even if another one
    /// has replaced it since. If the manifest is still the earlier one, the request is repeated.
    ///
    /// Dropping the future either publishes the set or leaves the earlier one.
    ///
    /// # Errors
    ///
    /// Every [`PublishErrorKind`]. Unless it is [`Unconfirmed`](PublishErrorKind::Unconfirmed), nothing was published.
    pub async fn publish(
        &self,
        store: Arc<dyn ObjectStore>,
        manifest: &Path,
        shards: &[Path],
        previous: Option<&SetVersion>,
    ) -> Result<Published, PublishError> {
        publish::publish_tables(&self.0, store, manifest, shards, previous).await
    }

    /// Like [`publish`](SetOptions::publish), for shards that were described before, such as those of the previous publication,
    /// and new ones described by their builders. Makes one request for each to check that its object is unchanged.
    ///
    /// # Errors
    ///
    /// Same as [`publish`](SetOptions::publish).
    pub async fn publish_shards(
        &self,
        store: Arc<dyn ObjectStore>,
        manifest: &Path,
        shards: Vec<Shard>,
        previous: Option<&SetVersion>,
    ) -> Result<Published, PublishError> {
        publish::publish_shards(&self.0, store, manifest, shards, previous).await
    }

    /// Returns the tables under `directory` that no manifest under it lists, and the probes that publishers left there, if they were
    /// last modified at least `age` ago.
    ///
    /// Lists the directory, and reads the end of each object that is not listed by a manifest, since any of them may be one. Of the
    /// numbered manifests in a local directory, the highest counts.
    ///
    /// `age` must be longer than any table waits for its publication from the start of its build, plus the difference
    /// between the clocks of this machine and of the store. A set that is still read after it was replaced loses its tables.
    ///
    /// # Errors
    ///
    /// Fails if an object cannot be read, or is a damaged table, which may be a manifest; if a manifest lists a table outside of
    /// `directory`; [`NotFound`](std::io::ErrorKind::NotFound) if there is no manifest.
    pub async fn unlisted(
        &self,
        store: &Arc<dyn ObjectStore>,
        directory: &Path,
        age: Duration,
    ) -> Result<Vec<ObjectMeta>> {
        prune::unlisted(&self.0, store, directory, age).await
    }

    /// Removes the objects that [`unlisted`](SetOptions::unlisted) returns, and returns them. Lists twice, and removes what was
    /// unlisted both times: while one manifest was read, a table may have moved from it to another.
    ///
    /// # Errors
    ///
    /// Same as [`unlisted`](SetOptions::unlisted); also fails if an object could not be removed. Others may have been
    /// removed by then.
    pub async fn prune(
        &self,
        store: &Arc<dyn ObjectStore>,
        directory: &Path,
        age: Duration,
    ) -> Result<Vec<ObjectMeta>> {
        prune::prune(&self.0, store, directory, age).await
    }
}

/// Publishes the tables at `shards` as the set whose manifest is at `manifest`, with default options; see
/// [`SetOptions::publish`].
///
/// # Errors
///
/// Same as [`SetOptions::publish`].
pub async fn publish(
    store: Arc<dyn ObjectStore>,
    manifest: &Path,
    shards: &[Path],
    previous: Option<&SetVersion>,
) -> Result<Published, PublishError> {
    let options = SetOptions::new();
    options.publish(store, manifest, shards, previous).await
}
