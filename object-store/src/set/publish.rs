//! Publishing a set: describing its shards, then replacing the manifest.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use leveltable::OpenOptions;
use leveltable::remote::AsyncTable;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::time::sleep;

use super::SetOptions;
use super::error::{PublishError, PublishErrorKind};
use super::manifest::{Id, Lineage, Manifest};
use super::place::{Answer, Client, Condition, Found, Place, PutFailure};
use super::record::{MAX_TAIL, Shard};
use crate::ObjectSource;
use crate::source::{UNKNOWN, is_same, version_of};
use crate::upload::LEAST_TAIL;

/// Most shards that are looked at at a time.
const MAX_AT_A_TIME: usize = 32;

/// Which publication of a set is meant: what [`publish`] is to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetVersion {
    pub(super) lineage: Lineage,
    pub(super) place: Place,
}

/// The random number of the publication, in hexadecimal.
impl fmt::Display for SetVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lineage)
    }
}

/// A set that was published.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Published {
    /// The publication, for the next one to replace.
    pub version: SetVersion,
    /// The shards, in the order of their keys.
    pub shards: Vec<Shard>,
    /// Size of the manifest in bytes.
    pub manifest_bytes: u64,
}

/// Publishes the tables at `shards` as the set whose manifest is at `manifest`, with default options; see
/// [`SetOptions::publish`].
///
/// # Errors
///
/// As [`SetOptions::publish`].
pub async fn publish(
    store: Arc<dyn ObjectStore>,
    manifest: &Path,
    shards: &[Path],
    previous: Option<&SetVersion>,
) -> Result<Published, PublishError> {
    let options = SetOptions::new();
    options.publish(store, manifest, shards, previous).await
}

impl Shard {
    /// Looks at the table at `path`, with default options; see [`SetOptions::describe`].
    ///
    /// # Errors
    ///
    /// As [`SetOptions::describe`].
    pub async fn describe(
        store: Arc<dyn ObjectStore>,
        path: &Path,
    ) -> leveltable::Result<Option<Shard>> {
        SetOptions::new().describe(store, path).await
    }
}

impl SetOptions {
    /// Looks at the table at `path`, to be a shard: opens it, by one or two requests. `None` if it has no entries, since a set has
    /// no use for it.
    ///
    /// The first and the last key are those that the table's properties state. A table without properties, as other writers
    /// make them, or with longer keys than these have, takes two more requests.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open_async`]: no such object, no table, a damaged one, one in another order than the bytewise.
    pub async fn describe(
        &self,
        store: Arc<dyn ObjectStore>,
        path: &Path,
    ) -> leveltable::Result<Option<Shard>> {
        let source = ObjectSource::new(store, path.clone())
            .timeouts(self.timeouts.clone())
            .retries(self.retries.clone());
        let source = Arc::new(source);
        let options = OpenOptions::new().no_cache();
        let table = options.open_async(Arc::clone(&source), None).await?;
        // The last 64 KiB say where the pieces of index and filter are, which are read when a lookup needs them. A table that they did
        // not open has no pieces, and everything that comes after its data is read at once.
        let tail_len = match table.stats().source_reads {
            1 => LEAST_TAIL,
            _ => table.tail_len().clamp(LEAST_TAIL, MAX_TAIL),
        };
        let Some((first_key, last_key)) = ends(&table).await? else {
            return Ok(None);
        };
        Ok(Some(Shard {
            path: path.clone(),
            first_key,
            last_key,
            size: table.file_bytes(),
            tail_len: tail_len.min(table.file_bytes()),
            version: source.version().unwrap_or(UNKNOWN),
            entries: table.entries(),
        }))
    }

    /// Publishes the tables at `shards`, in any order, as the set whose manifest is at `manifest`: opens them all, then creates or
    /// replaces the manifest by one conditional request.
    ///
    /// `previous` is what is replaced: [`TableSet::version`](super::TableSet::version) of the set that was read, or
    /// [`Published::version`]; `None` if there must be none. Of several publishers that replace the same publication, one succeeds.
    /// Tables without entries are left out.
    ///
    /// If the reply to the request is lost, the manifest is read back: a publication knows itself by a random number, even if
    /// another one has replaced it since. If the manifest is still the earlier one, the request is repeated.
    ///
    /// A future that is dropped publishes the set or leaves the earlier one.
    ///
    /// # Errors
    ///
    /// Each [`PublishErrorKind`]. Unless it is [`Unconfirmed`](PublishErrorKind::Unconfirmed), nothing was published.
    pub async fn publish(
        &self,
        store: Arc<dyn ObjectStore>,
        manifest: &Path,
        shards: &[Path],
        previous: Option<&SetVersion>,
    ) -> Result<Published, PublishError> {
        let describe = |path: Path| {
            let store = Arc::clone(&store);
            async move {
                let described = self.describe(store, &path).await;
                described.map_err(|error| bad_shard(&path).caused_by(error))
            }
        };
        let described = stream::iter(shards.to_vec()).map(describe);
        let described: Vec<Option<Shard>> = described
            .buffer_unordered(MAX_AT_A_TIME)
            .try_collect()
            .await?;
        let shards = described.into_iter().flatten().collect();
        self.commit(store, manifest, shards, previous).await
    }

    /// As [`publish`](SetOptions::publish), of shards that were described before, such as those of the previous publication, and
    /// new ones that whoever built them has described. Makes one request for each to see that its object is still the same.
    ///
    /// # Errors
    ///
    /// As [`publish`](SetOptions::publish).
    pub async fn publish_shards(
        &self,
        store: Arc<dyn ObjectStore>,
        manifest: &Path,
        shards: Vec<Shard>,
        previous: Option<&SetVersion>,
    ) -> Result<Published, PublishError> {
        let client = self.client(Arc::clone(&store));
        let check = |shard: Shard| {
            let client = &client;
            async move {
                client.check(&shard).await?;
                Ok(shard)
            }
        };
        let checked = stream::iter(shards).map(check);
        let shards = checked.buffer_unordered(MAX_AT_A_TIME).try_collect();
        self.commit(store, manifest, shards.await?, previous).await
    }

    async fn commit(
        &self,
        store: Arc<dyn ObjectStore>,
        path: &Path,
        shards: Vec<Shard>,
        previous: Option<&SetVersion>,
    ) -> Result<Published, PublishError> {
        let mut id = Id::default();
        getrandom::fill(&mut id).map_err(|error| {
            let message = "no random number for the publication";
            PublishError::new(PublishErrorKind::Io, message).caused_by(error)
        })?;
        let manifest = Manifest {
            lineage: Lineage::new(id, previous.map(|previous| &previous.lineage)),
            shards: in_order(shards)?,
        };
        let bytes = manifest.encode(path).map_err(|error| {
            PublishError::new(PublishErrorKind::Shard, "the manifest cannot be written")
                .caused_by(error)
        })?;
        let client = self.client(store);
        let place = client
            .commit(path, &bytes, &manifest.lineage, previous)
            .await?;
        Ok(Published {
            version: SetVersion {
                lineage: manifest.lineage,
                place,
            },
            shards: manifest.shards,
            manifest_bytes: bytes.len() as u64,
        })
    }
}

/// The first and the last key; `None` without entries.
async fn ends(table: &AsyncTable) -> leveltable::Result<Option<(Bytes, Bytes)>> {
    if let Some(properties) = table.properties()
        && let (Some(first), Some(last)) = (&properties.first_key, &properties.last_key)
    {
        return Ok(Some((first.clone().into(), last.clone().into())));
    }
    let first = table.range(..).next().await?;
    let last = table.range(..).reverse().next().await?;
    Ok(first.zip(last).map(|((first, _), (last, _))| (first, last)))
}

/// The shards in the order of their keys, if they do not overlap.
fn in_order(mut shards: Vec<Shard>) -> Result<Vec<Shard>, PublishError> {
    shards.sort_by(|a, b| a.first_key.cmp(&b.first_key));
    for pair in shards.windows(2) {
        if let [a, b] = pair
            && a.last_key >= b.first_key
        {
            let message = format!(
                "the shards {} and {} overlap: {} is the last key of the one, {} the first of the other",
                a.path,
                b.path,
                a.last_key.escape_ascii(),
                b.first_key.escape_ascii()
            );
            return Err(PublishError::new(PublishErrorKind::Overlap, message));
        }
    }
    Ok(shards)
}

fn bad_shard(path: &Path) -> PublishError {
    let message = format!("{path} cannot be a shard");
    PublishError::new(PublishErrorKind::Shard, message)
}

/// What came of a request that was to publish, as the current manifest tells.
enum Outcome {
    /// The manifest is there, or others have replaced it since.
    Published(Place),
    /// The earlier manifest is still there, if there was one.
    NotYet(Option<Place>),
}

/// What came of the request for `own` that ended with `failure`, if the manifest is now what was `found`.
fn outcome(
    path: &Path,
    found: Found,
    own: &Lineage,
    previous: Option<&Lineage>,
    failure: &mut PutFailure,
) -> Result<Outcome, PublishError> {
    let is_refused = failure.answer == Answer::Refused;
    let mut unclear = |why| {
        let error = std::mem::replace(&mut failure.error, io::ErrorKind::Other.into());
        Err(unconfirmed(path, why).caused_by(error))
    };
    let (current, place) = match found {
        Found::Manifest(bytes, place) => match Manifest::decode(bytes, path) {
            Ok(manifest) => (manifest.lineage, place),
            // Others have put it there, perhaps after this publication.
            Err(error) if is_refused => return Err(conflict(path).caused_by(error)),
            Err(error) => {
                let why = "and what can be read back is no manifest";
                return Err(unconfirmed(path, why).caused_by(error));
            }
        },
        Found::Nothing | Found::Same if previous.is_none() => return Ok(Outcome::NotYet(None)),
        // Someone has removed the earlier one, or this one.
        Found::Nothing | Found::Same => return unclear("and there is no manifest any more"),
    };
    if current.id == own.id {
        Ok(Outcome::Published(place))
    } else if current.follows(&own.id) {
        Ok(Outcome::Published(Place::Unknown))
    } else if previous.is_some_and(|previous| previous.id == current.id) {
        Ok(Outcome::NotYet(Some(place)))
    } else if is_refused
        || current.is_complete()
        || previous.is_some_and(|previous| current.follows(&previous.id))
    {
        Err(conflict(path))
    } else {
        unclear("and too many others have published since")
    }
}

impl Client {
    /// Checks that the object of `shard` is still the one that was described.
    async fn check(&self, shard: &Shard) -> Result<(), PublishError> {
        let bad = || bad_shard(&shard.path);
        shard.check().map_err(|why| bad().caused_by(why))?;
        let head = self.attempts(|| async { Ok(self.store.head(&shard.path).await?) });
        let head = head.await.map_err(|error| bad().caused_by(error))?;
        if !is_same(&shard.version, &version_of(&head)) || shard.size != head.size {
            return Err(bad().caused_by("the object was replaced since it was described"));
        }
        Ok(())
    }

    /// Makes `bytes` the manifest in place of `previous`. Returns where it lies.
    async fn commit(
        &self,
        path: &Path,
        bytes: &Bytes,
        own: &Lineage,
        previous: Option<&SetVersion>,
    ) -> Result<Place, PublishError> {
        let previous_lineage = previous.map(|previous| &previous.lineage);
        let mut condition = self.first_attempt(path, own, previous).await?;
        let mut attempt = 1;
        loop {
            let mut failure = match self.put(path, bytes, &condition).await {
                Ok(place) => return Ok(place),
                Err(failure) if failure.answer == Answer::Unsupported && attempt == 1 => {
                    return Err(unsupported(path, failure));
                }
                Err(failure) => failure,
            };
            // Whatever the answer, the manifest may be there: the reply to a request may be lost, and clients repeat it by
            // themselves. What is there now tells.
            let found = self.read(path, None).await.map_err(|error| {
                unconfirmed(path, "and the manifest cannot be read back").caused_by(error)
            })?;
            let place = match outcome(path, found, own, previous_lineage, &mut failure)? {
                Outcome::Published(place) => return Ok(place),
                Outcome::NotYet(place) => place,
            };
            // It was not carried out, and will not be, unless an earlier attempt is still on its way.
            let is_denied = failure.error.kind() == io::ErrorKind::PermissionDenied;
            if is_denied && attempt == 1 {
                return Err(failed(path, failure.error));
            }
            if is_denied || attempt > self.retries.most {
                let why = "the earlier manifest is still there";
                return Err(unconfirmed(path, why).caused_by(failure.error));
            }
            sleep(self.retries.pause(attempt)).await;
            attempt += 1;
            // If the same manifest was written again, as by a copy onto itself, its version is another one.
            if let Some(now) = place.and_then(|place| place.condition()) {
                condition = now;
            }
        }
    }

    /// The condition on which `own` replaces `previous`.
    async fn first_attempt(
        &self,
        path: &Path,
        own: &Lineage,
        previous: Option<&SetVersion>,
    ) -> Result<Condition, PublishError> {
        let Some(previous) = previous else {
            let condition = self.first_condition(path, &own.id).await;
            return condition.map_err(|failure| match failure.answer {
                Answer::Unsupported => unsupported(path, failure),
                Answer::Refused | Answer::Unclear => failed(path, failure.error),
            });
        };
        if let Some(condition) = previous.place.condition() {
            return Ok(condition);
        }
        let read = self.read(path, None).await;
        let Found::Manifest(bytes, place) = read.map_err(|error| failed(path, error))? else {
            return Err(conflict(path));
        };
        if lineage(bytes, path)?.id != previous.lineage.id {
            return Err(conflict(path));
        }
        place.condition().ok_or_else(|| conflict(path))
    }
}

/// Which publication the manifest is that was found at `path`. What is no manifest was put there by others.
fn lineage(bytes: Bytes, path: &Path) -> Result<Lineage, PublishError> {
    let manifest = Manifest::decode(bytes, path);
    Ok(manifest
        .map_err(|error| conflict(path).caused_by(error))?
        .lineage)
}

#[cold]
fn unsupported(path: &Path, failure: PutFailure) -> PublishError {
    let message = format!("{path} was not published: the store cannot do it safely");
    PublishError::new(PublishErrorKind::Unsupported, message).caused_by(failure.error)
}

#[cold]
fn failed(path: &Path, error: io::Error) -> PublishError {
    let message = format!("{path} was not published");
    PublishError::new(PublishErrorKind::Io, message).caused_by(error)
}

#[cold]
fn conflict(path: &Path) -> PublishError {
    let message = format!("{path} was not published: what is there is not what was to be replaced");
    PublishError::new(PublishErrorKind::Conflict, message)
}

#[cold]
fn unconfirmed(path: &Path, why: &str) -> PublishError {
    let message = format!("{path} may or may not have been published: the request failed, {why}");
    PublishError::new(PublishErrorKind::Unconfirmed, message)
}
