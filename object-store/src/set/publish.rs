//! Publishes a set: describes its shards, then replaces the manifest.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryFutureExt;
use leveltable::ErrorKind;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::time::sleep;

use super::each;
use super::error::{PublishError, PublishErrorKind};
use super::manifest::{Id, Lineage, Manifest};
#[cfg(doc)]
use super::options::{SetOptions, publish};
use super::place::{Client, Place, SetVersion, is_not_found};
use super::settings::Settings;
use super::shard::Shard;
use crate::source::{UNKNOWN, is_same, version_of};

/// A set that was published; returned by [`publish`] and [`SetOptions::publish`].
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

/// Publishes the tables at `shards`; see [`SetOptions::publish`].
pub(super) async fn publish_tables(
    settings: &Settings,
    store: Arc<dyn ObjectStore>,
    manifest: &Path,
    shards: &[Path],
    previous: Option<&SetVersion>,
) -> Result<Published, PublishError> {
    let described = each(shards, |path| {
        let described = Shard::describe_with(settings, Arc::clone(&store), path);
        described.map_err(|error| bad_shard(path).caused_by(error))
    });
    let shards = described.await?.into_iter().flatten().collect();
    commit(settings, store, manifest, shards, previous).await
}

/// Publishes shards that were described before; see [`SetOptions::publish_shards`].
pub(super) async fn publish_shards(
    settings: &Settings,
    store: Arc<dyn ObjectStore>,
    manifest: &Path,
    shards: Vec<Shard>,
    previous: Option<&SetVersion>,
) -> Result<Published, PublishError> {
    let client = Client::new(settings, Arc::clone(&store));
    let checked = each(shards, |shard| async {
        client.check(&shard).await?;
        Ok(shard)
    });
    commit(settings, store, manifest, checked.await?, previous).await
}

async fn commit(
    settings: &Settings,
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
    let client = Client::new(settings, store);
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

/// Sorts the shards by their keys, and fails if they overlap.
fn in_order(mut shards: Vec<Shard>) -> Result<Vec<Shard>, PublishError> {
    shards.sort_by(|a, b| (&a.first_key, &a.path).cmp(&(&b.first_key, &b.path)));
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

impl Client {
    /// Checks that the object of `shard` is still the one that was described.
    async fn check(&self, shard: &Shard) -> Result<(), PublishError> {
        let bad = || bad_shard(&shard.path);
        shard.check().map_err(|why| bad().caused_by(why))?;
        let head = || async { Ok(self.store.head(&shard.path).await?) };
        let head = self.patience.attempts(0, head).await;
        let head = head.map_err(|error| bad().caused_by(error))?;
        if !is_same(&shard.version, &version_of(&head)) || shard.size != head.size {
            return Err(bad().caused_by("the object was replaced since it was described"));
        }
        Ok(())
    }

    /// Makes `bytes` the manifest in place of `previous`. Returns its place.
    async fn commit(
        &self,
        path: &Path,
        bytes: &Bytes,
        own: &Lineage,
        previous: Option<&SetVersion>,
    ) -> Result<Place, PublishError> {
        let mut replaced = self.replaced(path, own, previous).await?;
        let previous = previous.map(|previous| &previous.lineage);
        let mut attempt = 1;
        loop {
            let failure = match self.put(path, bytes, replaced.as_ref()).await {
                Ok(place) => return Ok(place),
                Err(failure) if failure.is_unsupported() && attempt == 1 => {
                    return Err(PublishError::not_published(path, failure));
                }
                Err(failure) => failure,
            };
            // Whatever the response, the manifest may have been written: the response to a request may be lost, and
            // clients repeat requests. The current manifest tells.
            let unconfirmed = |why| PublishError::unconfirmed(path, why);
            match self.current(path).await {
                Ok((current, place)) if current.lineage.id == own.id => return Ok(place),
                // Others have replaced it since.
                Ok((current, _)) if current.lineage.follows(&own.id) => {
                    return Ok(Place::Object(UNKNOWN));
                }
                // If the same manifest was written again, for example copied onto itself, it has a new version.
                Ok((current, place)) if previous.is_some_and(|it| it.id == current.lineage.id) => {
                    replaced = Some(place).filter(Place::is_known).or(replaced);
                }
                Ok((current, _)) => {
                    let comes_after = |it: &Lineage| current.lineage.follows(&it.id);
                    let is_another = failure.is_refusal()
                        || current.lineage.is_complete()
                        || previous.is_some_and(comes_after);
                    return Err(if is_another {
                        PublishError::conflict(path)
                    } else {
                        unconfirmed("and too many others have published since")
                            .caused_by(failure.error)
                    });
                }
                Err(error) if is_not_found(&error) => {
                    if previous.is_some() {
                        // Somebody has removed the manifest, the earlier one or this one.
                        let why = "and there is no manifest any more";
                        return Err(unconfirmed(why).caused_by(failure.error));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Io => {
                    return Err(
                        unconfirmed("and the manifest cannot be read back").caused_by(error)
                    );
                }
                // Others have put it there, perhaps after this publication.
                Err(error) if failure.is_refusal() => {
                    return Err(PublishError::conflict(path).caused_by(error));
                }
                Err(error) => {
                    let why = "and what is there is not a manifest";
                    return Err(unconfirmed(why).caused_by(error));
                }
            }
            // It was not carried out, and will not be, unless an earlier attempt is still in flight.
            let is_denied = failure.error.kind() == io::ErrorKind::PermissionDenied;
            if is_denied && attempt == 1 {
                return Err(PublishError::not_published(path, failure));
            }
            if is_denied || attempt > self.patience.retries.most {
                let why = "the earlier manifest is still there";
                return Err(unconfirmed(why).caused_by(failure.error));
            }
            sleep(self.patience.retries.pause(attempt)).await;
            attempt += 1;
        }
    }

    /// The place of the manifest that `own` replaces: that of `previous`.
    async fn replaced(
        &self,
        path: &Path,
        own: &Lineage,
        previous: Option<&SetVersion>,
    ) -> Result<Option<Place>, PublishError> {
        let Some(previous) = previous else {
            let before = self.before_first(path, &own.id).await;
            return before.map_err(|error| PublishError::not_published(path, error));
        };
        if previous.place.is_known() {
            return Ok(Some(previous.place.clone()));
        }
        match self.current(path).await {
            Ok((current, place)) if current.lineage.id == previous.lineage.id => {
                let known = Some(place).filter(Place::is_known);
                known.map(Some).ok_or_else(|| PublishError::conflict(path))
            }
            Ok(_) => Err(PublishError::conflict(path)),
            Err(error) if error.kind() == ErrorKind::Io && !is_not_found(&error) => {
                Err(PublishError::not_published(path, error))
            }
            // Anything but a manifest was put there by others.
            Err(error) => Err(PublishError::conflict(path).caused_by(error)),
        }
    }
}
