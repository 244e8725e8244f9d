//! Sets: many tables that read like one, and are replaced as one.
//!
//! A *shard* is a table; no other shard of the set has keys between its first and its last. A *manifest* lists the shards. Any
//! engine may build the shards, on many machines; then one of them publishes the manifest. Readers see the earlier set or the new
//! one, never a mixture.
//!
//! ```
//! use std::sync::Arc;
//!
//! use leveltable::WriteOptions;
//! use leveltable_object_store::{ObjectTableBuilder, TableSet, publish};
//! use object_store::memory::InMemory;
//! use object_store::path::Path;
//!
//! # let work = async {
//! let store = Arc::new(InMemory::new()); // or an AmazonS3, a LocalFileSystem, ..
//! let shards = [Path::from("fruit/a.ldb"), Path::from("fruit/b.ldb")];
//! for (path, key) in shards.iter().zip(["apple", "banana"]) {
//!     let mut builder = ObjectTableBuilder::create(store.clone(), path.clone(), &WriteOptions::new())?;
//!     builder.add(key, "a value").await?;
//!     builder.finish().await?;
//! }
//! let manifest = Path::from("fruit/manifest");
//! publish(store.clone(), &manifest, &shards, None).await?; // None: there is no earlier set
//!
//! let set = TableSet::open(store.clone(), &manifest).await?;
//! assert_eq!(set.get("banana").await?.as_deref(), Some(&b"a value"[..]));
//! assert_eq!(set.get("aubergine").await?, None); // between two shards: no request
//! let mut all = set.range(..);
//! while let Some((key, value)) = all.next().await? {
//!     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
//! }
//!
//! // Replaces the set that was read. It is an error if another publisher has replaced it meanwhile.
//! publish(store, &manifest, &shards[..1], Some(set.version())).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # };
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # runtime.block_on(work).unwrap();
//! ```
//!
//! # Requests
//!
//! | | requests |
//! |---|---|
//! | opening a set | one for the manifest, which is read as a whole |
//! | [`refresh`](TableSet::refresh) | one, whose response is empty if the manifest is unchanged; a local directory is listed |
//! | a key between shards | none |
//! | a key of a shard that is not open | one for the last 64 KiB of the shard; for a table without pieces, for everything after its data; then as for an open one |
//! | a key of an open shard | as for an [`AsyncTable`](leveltable::remote::AsyncTable): none if the filter excludes it or the block is in the cache, otherwise one; the first keys also need pieces of filter and index |
//! | [`get_many`](TableSet::get_many) | as for a table; 32 shards at the same time |
//! | a walk | as for a table; the next shard is opened ahead after half of the bytes of a shard were returned |
//! | [`publish`] | one for each shard, two if it has no pieces, one for the manifest; the first publication makes four more to learn what the store can do |
//!
//! A set has at most 64 requests for its tables in flight; see [`SetOptions::max_requests`].
//!
//! Each shard is read in the version that the manifest names, by the object's ETag or version. A shard that was replaced or
//! removed is an error of kind [`Replaced`](leveltable::ErrorKind::Replaced): reopen the set. So a publication does not disturb
//! readers of the earlier set as long as its shards are kept; remove them when no reader can be left, and write new shards
//! under new names.
//!
//! # Publishing
//!
//! The manifest is written after all shards, by one request that only has an effect if the manifest is still the one to be
//! replaced, or if there still is none. Of several publishers, one wins, and the others get a
//! [`Conflict`](PublishErrorKind::Conflict). A publisher that is killed, at whatever request, leaves the earlier set or the new
//! one.
//!
//! A response may be lost, and clients repeat requests, so a response that the condition is not met may mean that the first
//! request was successful. The manifest is then read. It contains a random number, by which its publisher recognises it, and
//! the numbers of its predecessors, which tell the publisher if others have replaced it since. If the earlier manifest is still
//! there, the request is repeated. Only if the manifest is gone, or cannot be read, or no attempt succeeds, the outcome is
//! [`Unconfirmed`](PublishErrorKind::Unconfirmed).
//!
//! A store that ignores conditions is rejected. The first publication asks it to replace an object that does not exist, then to
//! create the object twice, and deletes it. Its path is the manifest's with the random number and `.probe` appended. A publisher that
//! is killed meanwhile, or has no permission to delete, leaves it there, empty.
//!
//! # Directories
//!
//! A directory, through `object_store`'s `LocalFileSystem`, cannot replace a file on a condition, but it can create one on the
//! condition that there is none (by a hard link). There, and in any other store with this limit, the manifest's path is a directory
//! of numbered manifests, `0000000001` and so on, and the highest number is the current one. To replace number 7, a publisher
//! creates number 8, and only one publisher can. Opening takes two more requests. A publisher that is killed leaves at most a
//! temporary file, which is not listed.
//!
//! A loss of power may leave the last manifest empty, or its shards, since `LocalFileSystem` syncs nothing by default: use
//! `LocalFileSystem::with_fsync(true)`. A set whose last manifest is empty cannot be opened or replaced, and the error says which
//! file to remove.
//!
//! Earlier manifests stay. To reclaim their space, truncate all but the last. Do not delete them: a late publisher that has read
//! the manifest before could create the deleted number again, and believe that it has succeeded.
//!
//! # Pruning
//!
//! Some tables are listed by no manifest: those of failed attempts, and of replaced sets. [`SetOptions::prune`] removes them. It
//! reads every manifest under a directory, so it must be given the directory of all manifests that may list a table there.
//!
//! A set cannot be copied to another place by copying its objects, since the copies have other ETags. Publish it there.
//!
//! # The manifest's bytes
//!
//! A table in bytewise order, without a filter, and otherwise ordinary: tools that read tables show it. Three [properties of the
//! application](leveltable::TableBuilder::property) mark it as a manifest:
//!
//! ```text
//! leveltable.set          version of this format: the text "1"
//! leveltable.set.id       16 random bytes
//! leveltable.set.history  those of the publications before, the latest first; at most 64
//! ```
//!
//! It has an entry for each shard. The key is the last key of the shard. The value is a record: fields in ascending order of their
//! tags, each at most once.
//!
//! ```text
//! field   tag      varint
//!         length   varint
//!         payload  as many bytes
//!
//! tag
//!   1  path, relative to the directory of the manifest: UTF-8, segments parted by "/"
//!   2  first key
//!   3  size of the object in bytes, at least 48            varint
//!   4  bytes at its end that are read to open it           varint, at most 4 GiB; 64 KiB, or what a table without pieces needs
//!   5  ETag, if the store has one: UTF-8
//!   6  version, if the store has one: UTF-8
//!   7  number of entries, if the table says                varint
//! ```
//!
//! All shards lie under the directory of the manifest. A reader ignores tags from 64 on that it does not know. Other unknown tags
//! stand for something that must not be ignored, and the manifest is rejected.
//!
//! For example, the record of the shard `a/0.ldb` with the keys from `apple` to `fig`, of 300 bytes, of which the last 44 are read
//! to open it:
//!
//! ```text
//! offset  bytes
//!      0  01 07  "a/0.ldb"  path
//!      9  02 05  "apple"  first key
//!     16  03 02  ac 02  300 bytes
//!     20  04 01  2c  the last 44 open it
//!     23  05 04  22 "e1" 22  ETag, with its quotes
//!     29  07 01  03  entries
//! ```

mod error;
mod manifest;
mod open_set;
mod options;
mod place;
mod prune;
mod publish;
mod range;
mod record;
mod settings;
mod shard;
mod shelf;
mod table_set;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use leveltable::remote::BoxFuture;

pub use error::{PublishError, PublishErrorKind};
pub use manifest::read_local;
pub use options::{SetOptions, publish};
pub use place::SetVersion;
pub use publish::Published;
pub use range::SetRange;
pub use shard::Shard;
pub use table_set::TableSet;

/// Maximum number of tables that a call reads or checks at the same time.
const MAX_AT_A_TIME: usize = 32;

/// The results of `work` for each of `items`, in any order.
fn each<'a, T, R, E, F>(
    items: impl IntoIterator<Item = T, IntoIter: Send + 'a>,
    work: impl FnMut(T) -> F + Send + 'a,
) -> BoxFuture<'a, Result<Vec<R>, E>>
where
    T: Send + 'a,
    R: Send + 'a,
    E: Send + 'a,
    F: Future<Output = Result<R, E>> + Send + 'a,
{
    let results = stream::iter(items).map(work);
    results
        .buffer_unordered(MAX_AT_A_TIME)
        .try_collect()
        .boxed()
}
