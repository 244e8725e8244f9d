//! Tables of the crate [`leveltable`] in object storage: S3, Google Cloud Storage, Azure Blob Storage, or a directory, through
//! the crate [`object_store`].
//!
//! A table is one object. [`ObjectTableBuilder`] uploads it while it builds it, and [`open`] reads it where it is, by requests for the
//! bytes that a lookup needs: one request for the last 64 KiB to open a table of any size, some for the pieces of filter and index
//! that lookups need first, then none for a key that the filter excludes, and one for any other.
//!
//! ```
//! use std::sync::Arc;
//!
//! use leveltable::WriteOptions;
//! use leveltable_object_store::{ObjectTableBuilder, open};
//! use object_store::memory::InMemory;
//! use object_store::path::Path;
//!
//! # tokio_test(async {
//! let store = Arc::new(InMemory::new()); // or an AmazonS3, a GoogleCloudStorage, ..
//! let path = Path::from("fruit.ldb");
//!
//! let mut builder = ObjectTableBuilder::create(store.clone(), path.clone(), &WriteOptions::new())?;
//! builder.add("apple", "red").await?; // keys in ascending order
//! builder.add("banana", "yellow").await?;
//! builder.finish().await?; // the object appears now, complete
//!
//! let table = open(store, path).await?;
//! assert_eq!(table.get("apple").await?.as_deref(), Some(&b"red"[..]));
//! assert_eq!(table.get("cherry").await?, None); // the filter excludes it: no request
//! # Ok(())
//! # });
//! # fn tokio_test(work: impl Future<Output = leveltable::Result<()>>) {
//! #     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! #     runtime.block_on(work).unwrap();
//! # }
//! ```
//!
//! # One object, never a mixture of two
//!
//! An [`ObjectSource`] learns from its first response which version of the object it reads, from the object's ETag or version, and
//! makes every later request conditional on it. An object that was replaced or removed in the meantime is an error of kind
//! [`Replaced`](leveltable::ErrorKind::Replaced); reopen it. A store that reports neither is rejected unless
//! [`allow_unpinned`](ObjectSource::allow_unpinned) is set.
//!
//! # Sets
//!
//! Data that outgrow one table are split by key into many tables, which a manifest lists: a [`TableSet`] reads like one table,
//! opens a shard by one request when it is needed, and is replaced as a whole by [`publish`]. The module [`set`] describes this.
//!
//! # Time and retries
//!
//! Only one layer retries a request. Reads are retried by this crate: up to three times ([`Retries`]), within one deadline that grows
//! with their bytes ([`Timeouts`]). So build stores for reading with `RetryConfig { max_retries: 0, .. }`; otherwise `object_store`
//! retries each attempt up to ten times, within the same deadline. The requests of an upload are retried by the store alone, since
//! its interface has no way to repeat them from outside: upload to a store that retries.
//!
//! Deadlines need a Tokio runtime with its timer, and so do the stores.
//!
//! # Features
//!
//! `aws`, `azure`, `gcp`, `http` and `fs` switch on the stores of these names in `object_store`. None is on by default.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

pub mod guide {
    //! The guide to sets from `docs/` in the repository: how engines write them, what they cost.

    #[doc = include_str!("../docs/scaling.md")]
    pub mod scaling {}
}
mod attempts;
mod parts;
pub mod set;
mod source;
mod upload;

use std::sync::Arc;

use leveltable::remote::AsyncTable;
use leveltable::{OpenOptions, Result};
use object_store::ObjectStore;
use object_store::path::Path;

pub use attempts::{Retries, Timeouts};
/// Identifies a content of an object, as reported by its store: the ETag, and in some stores a version.
///
/// Two contents of an object have different ETags. Stores compute them in different ways, so they say nothing about equal
/// contents.
pub use object_store::UpdateVersion as Version;
pub use set::{Shard, TableSet, publish};
pub use source::ObjectSource;
pub use upload::{ObjectTableBuilder, UploadOptions, Uploaded};

/// Opens the table at `path` with [`OpenOptions::new`]: one request for a table of this crate, of any size. Pieces of
/// its index and filters are requested when they are first needed.
///
/// # Errors
///
/// Same as [`open_with`].
pub async fn open(store: Arc<dyn ObjectStore>, path: Path) -> Result<AsyncTable> {
    open_with(store, path, &OpenOptions::new()).await
}

/// Opens the table at `path` with `options`.
///
/// For other timeouts, or a known version, make an [`ObjectSource`] and pass it to [`OpenOptions::open_async`].
///
/// # Errors
///
/// Same as [`OpenOptions::open_async`]; [`Io`](leveltable::ErrorKind::Io) with [`NotFound`](std::io::ErrorKind::NotFound) if there
/// is no such object.
pub async fn open_with(
    store: Arc<dyn ObjectStore>,
    path: Path,
    options: &OpenOptions,
) -> Result<AsyncTable> {
    let source = ObjectSource::new(store, path);
    options.open_async(source, None).await
}

/// The README's code is compiled with the tests.
#[cfg(all(doctest, feature = "aws"))]
#[doc = include_str!("../README.md")]
struct Readme;
