//! Publishing a set: describing its shards, then replacing the manifest.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use leveltable::OpenOptions;
use leveltable::remote::AsyncTable;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::time::{sleep, timeout};

use super::SetOptions;
use super::error::{PublishError, PublishErrorKind};
use super::manifest::{Id, Lineage, Manifest};
use super::place::{Client, Place, PutFailure, timed_out};
use super::record::Shard;
use crate::{ObjectSource, Version};

/// Most shards that are looked at at a time.
const MOST_AT_A_TIME: usize = 32;

/// Which publication of a set is meant: what [`publish`] is to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetVersion {
    pub(super) lineage: Lineage,
    pub(super) place: Place,
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
        let Some((first_key, last_key)) = ends(&table).await? else {
            return Ok(None);
        };
        Ok(Some(Shard {
            path: path.clone(),
            first_key,
            last_key,
            size: table.file_bytes(),
            tail_len: table.tail_len(),
            version: source.version().unwrap_or_default(),
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
            .buffer_unordered(MOST_AT_A_TIME)
            .try_collect()
            .await?;
        let shards = described.into_iter().flatten().collect();
        self.commit(store, manifest, shards, previous).await
    }

    /// As [`publish`](SetOptions::publish), of shards that were described before, such as those of the previous publication and
    /// new ones. Makes one request for each to see that its object is still the same.
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
        let shards = checked.buffer_unordered(MOST_AT_A_TIME).try_collect();
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
    let Some((first, _)) = table.range(..).next().await? else {
        return Ok(None);
    };
    // The last data block.
    let mut last = first.clone();
    if let Some(bounds) = table.splits(table.data_blocks()).pop() {
        let mut entries = table.range(bounds);
        while let Some((key, _)) = entries.next().await? {
            last = key;
        }
    }
    Ok(Some((first, last)))
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
    Published,
    /// And others have replaced it since.
    PublishedAndReplaced,
    /// The earlier manifest is still there.
    NotYet,
    Lost,
    /// Too many publications have followed for the history to tell.
    Forgotten,
}

impl Outcome {
    fn of(current: Option<&Lineage>, own: &Lineage, previous: Option<&Lineage>) -> Outcome {
        let Some(current) = current else {
            // Either none was ever published, or someone removed what was.
            return if previous.is_none() {
                Outcome::NotYet
            } else {
                Outcome::Lost
            };
        };
        if current.id == own.id {
            Outcome::Published
        } else if current.follows(&own.id) {
            Outcome::PublishedAndReplaced
        } else if previous.is_some_and(|previous| previous.id == current.id) {
            Outcome::NotYet
        } else if current.is_complete()
            || previous.is_some_and(|previous| current.follows(&previous.id))
        {
            Outcome::Lost
        } else {
            Outcome::Forgotten
        }
    }
}

impl Client {
    /// Checks that the object of `shard` is still the one that was described.
    async fn check(&self, shard: &Shard) -> Result<(), PublishError> {
        let bad = || bad_shard(&shard.path);
        let head = self.attempts(|| async {
            let head = timeout(self.timeouts.of(0), self.store.head(&shard.path));
            Ok(head.await.map_err(|_| timed_out())??)
        });
        let head = head.await.map_err(|error| bad().caused_by(error))?;
        if !shard.version.is_same(&Version::from(&head)) || shard.size != head.size {
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
        let not_published = |failure| match failure {
            PutFailure::Unsupported(error) => unsupported(path).caused_by(error),
            PutFailure::Refused(error) | PutFailure::Unclear(error) => {
                let message = format!("asking what the store can do with {path}");
                PublishError::new(PublishErrorKind::Io, message).caused_by(error)
            }
        };
        let mut condition = match previous {
            Some(previous) => previous.place.condition(),
            None => Some(self.first_condition(path).await.map_err(not_published)?),
        };
        let mut attempt = 1;
        // Whether a request may have reached the store.
        let mut has_asked = false;
        loop {
            let failure = match &condition {
                Some(condition) => {
                    has_asked = true;
                    match self.put(path, bytes, condition).await {
                        Ok(Place::Unknown) => None,
                        Ok(place) => return Ok(place),
                        Err(PutFailure::Unsupported(error)) => {
                            return Err(unsupported(path).caused_by(error));
                        }
                        Err(failure) => Some(failure),
                    }
                }
                None => None,
            };
            let is_written = condition.is_some() && failure.is_none();
            let (is_refused, error) = match failure {
                Some(PutFailure::Refused(error)) => (true, Some(error)),
                Some(PutFailure::Unclear(error) | PutFailure::Unsupported(error)) => {
                    (false, Some(error))
                }
                None => (false, None),
            };
            // The store's answer may be to a repetition of a request that it had carried out: only the manifest tells.
            let current = match self.current(path).await {
                Ok(current) => current,
                Err(_) if is_written => return Ok(Place::Unknown),
                Err(failed) if has_asked => {
                    let message = format!(
                        "{path} may have been published: the reply was lost, and the manifest cannot be read back"
                    );
                    let error = PublishError::new(PublishErrorKind::Unconfirmed, message);
                    return Err(error.caused_by(failed));
                }
                Err(failed) => {
                    let message = format!("reading the manifest {path}");
                    let error = PublishError::new(PublishErrorKind::Io, message);
                    return Err(error.caused_by(failed));
                }
            };
            let (found, place) = current.unzip();
            match Outcome::of(
                found.as_ref(),
                own,
                previous.map(|previous| &previous.lineage),
            ) {
                Outcome::Published => return Ok(place.unwrap_or(Place::Unknown)),
                Outcome::PublishedAndReplaced => return Ok(Place::Unknown),
                Outcome::Lost => return Err(conflict(path, found)),
                Outcome::Forgotten if is_refused || !has_asked => {
                    return Err(conflict(path, found));
                }
                Outcome::Forgotten => {
                    let message = format!(
                        "{path} may have been published: many publications have followed since"
                    );
                    let unconfirmed = PublishError::new(PublishErrorKind::Unconfirmed, message);
                    return Err(match error {
                        Some(error) => unconfirmed.caused_by(error),
                        None => unconfirmed,
                    });
                }
                Outcome::NotYet => {}
            }
            if attempt > self.retries.most {
                let message = format!(
                    "{path} was not published by {attempt} attempts, unless a request is still on its way"
                );
                let unconfirmed = PublishError::new(PublishErrorKind::Unconfirmed, message);
                return Err(match error {
                    Some(error) => unconfirmed.caused_by(error),
                    None => unconfirmed,
                });
            }
            if error.is_some() {
                sleep(self.retries.pause(attempt)).await;
            }
            attempt += 1;
            // The same content may have been written again, as by a copy: its version counts now.
            if let Some(place) = place {
                condition = place.condition();
            }
        }
    }

    /// The publication that is current, and where its manifest lies.
    async fn current(&self, path: &Path) -> leveltable::Result<Option<(Lineage, Place)>> {
        let doing = || format!("reading back {path}");
        let read = self.read(path).await;
        let read = read.map_err(|error| leveltable::Error::io(doing(), error))?;
        let Some((bytes, place)) = read else {
            return Ok(None);
        };
        let manifest = Manifest::decode(bytes, path)?;
        Ok(Some((manifest.lineage, place)))
    }
}

fn unsupported(path: &Path) -> PublishError {
    let message =
        format!("{path} cannot be published: the store does not write an object on a condition");
    PublishError::new(PublishErrorKind::Unsupported, message)
}

fn conflict(path: &Path, found: Option<Lineage>) -> PublishError {
    let what = match found {
        Some(_) => "another publication is there",
        None => "it was removed",
    };
    let message = format!("{path} is not what was to be replaced: {what}");
    PublishError::new(PublishErrorKind::Conflict, message)
}
