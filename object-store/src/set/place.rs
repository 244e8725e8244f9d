//! Finds the current manifest, and replaces it by one conditional request. The [module](super) describes how.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use super::manifest::{Id, Lineage, MAX_LEN, Manifest};
use super::record::number_of;
use super::settings::Settings;
use crate::Version;
use crate::attempts::{Failure, Patience, within};
use crate::source::{UNKNOWN, collect, version_of};

/// Where a manifest is, and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At the path itself: an object of this version, which is [`UNKNOWN`] if it was not learned.
    Object(Version),
    /// In the directory of the path, under this number.
    Numbered(u64),
}

impl Place {
    /// Whether enough is known to replace the manifest.
    pub(super) fn is_known(&self) -> bool {
        *self != Place::Object(UNKNOWN)
    }
}

/// Identifies a publication of a set, for [`publish`](super::publish) to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetVersion {
    pub(super) lineage: Lineage,
    pub(super) place: Place,
}

/// Shows the random number of the publication, in hexadecimal.
impl fmt::Display for SetVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.lineage.id))
    }
}

/// A store, with the time limits of its requests.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) patience: Patience,
}

impl Client {
    pub(super) fn new(settings: &Settings, store: Arc<dyn ObjectStore>) -> Client {
        Client {
            store,
            patience: settings.patience.clone(),
        }
    }

    /// The current manifest, and its place.
    pub(super) async fn current(&self, path: &Path) -> leveltable::Result<(Manifest, Place)> {
        let read = self.read(path, None).await?;
        // Cannot happen: the request had no condition.
        read.ok_or_else(|| io::Error::other("the manifest is not modified").into())
    }

    /// The current manifest, and its place; `None` if it is the one that is `known`. One request if it is an object at the path, and one if
    /// it is unchanged.
    pub(super) async fn read(
        &self,
        path: &Path,
        known: Option<&Place>,
    ) -> leveltable::Result<Option<(Manifest, Place)>> {
        let found = self.find(path, known).await.map_err(|error| {
            let error = leveltable::Error::io("reading the manifest", error);
            error.at_path(path.as_ref().as_ref())
        })?;
        let decode = |(bytes, place)| Ok((Manifest::decode(bytes, path)?, place));
        found.map(decode).transpose()
    }

    /// The bytes of the current manifest, and its place; `None` if it is the one that is `known`.
    pub(super) async fn find(
        &self,
        path: &Path,
        known: Option<&Place>,
    ) -> io::Result<Option<(Bytes, Place)>> {
        let (last, e_tag) = match known {
            Some(Place::Numbered(number)) => (Some(*number), None),
            Some(Place::Object(version)) => (None, version.e_tag.as_deref()),
            None => (None, None),
        };
        if last.is_none() {
            // A weak ETag never matches a condition.
            let e_tag = e_tag.filter(|e_tag| !e_tag.starts_with("W/"));
            match self.get(path, e_tag).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(found) => {
                    return Ok(found.map(|(bytes, version)| (bytes, Place::Object(version))));
                }
                Err(error) => return Err(error),
            }
        }
        // Truncated since it was listed: there is a later one.
        let mut empty = Path::default();
        for _ in 0..=self.patience.retries.most {
            let number = self.highest(path).await?;
            if last == Some(number) {
                return Ok(None);
            }
            empty = numbered(path, number);
            match self.get(&empty, None).await {
                Ok(Some((bytes, _))) if !bytes.is_empty() => {
                    return Ok(Some((bytes, Place::Numbered(number))));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let why = format!(
            "the manifest with the highest number, {empty}, is empty: it was not completely written, as after a \
             loss of power. While nobody publishes, remove it; then the one before is the current one again"
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// The whole object, unless it has the ETag `known`.
    async fn get(&self, path: &Path, known: Option<&str>) -> io::Result<Option<(Bytes, Version)>> {
        let request = || async {
            let options = GetOptions {
                if_none_match: known.map(str::to_owned),
                ..GetOptions::default()
            };
            match self.store.get_opts(path, options).await {
                Err(Error::NotModified { .. }) => Ok(None),
                response => Ok(Some(response?)),
            }
        };
        let mut is_last = self.patience.retries.most == 0;
        loop {
            let Some(response) = self.patience.attempts(0, request).await? else {
                return Ok(None);
            };
            let (size, version) = (response.meta.size, version_of(&response.meta));
            if size > MAX_LEN {
                let why = format!("{size} bytes are too many for a manifest");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            // The size, and so the time limit, is known only now.
            let deadline = self.patience.timeouts.of(size);
            match within(deadline, collect(response, 0..size)).await {
                Ok(bytes) => return Ok(Some((bytes, version))),
                Err(failure) if is_last || !failure.may_pass => return Err(failure.error),
                Err(_) => is_last = true,
            }
        }
    }

    /// The highest number of a manifest in the directory `path`.
    async fn highest(&self, path: &Path) -> io::Result<u64> {
        let list = || async { Ok(self.store.list_with_delimiter(Some(path)).await?) };
        let listed = self.patience.attempts(0, list).await?;
        let numbers = listed.objects.iter();
        let numbers = numbers.filter_map(|object| Some(number_of(&object.location)?.1));
        let none = || io::Error::new(io::ErrorKind::NotFound, "there is no manifest");
        numbers.max().ok_or_else(none)
    }

    /// The place that the first manifest at `path` replaces: asks the store which conditions it supports, and whether it
    /// keeps to them.
    ///
    /// Uses an object that belongs to the publication `id` alone, since another publisher could delete a common one in between.
    /// An empty object is left if it cannot be deleted.
    pub(super) async fn before_first(&self, path: &Path, id: &Id) -> io::Result<Option<Place>> {
        let id = u128::from_be_bytes(*id);
        let probe = Path::from(format!("{path}.{id:032x}.probe"));
        let before = self.probe(&probe).await;
        let _ = within(self.patience.timeouts.of(0), self.store.delete(&probe)).await;
        before
    }

    /// Asks the store which conditions it supports, with an object that does not exist.
    async fn probe(&self, probe: &Path) -> io::Result<Option<Place>> {
        // A version that the object cannot have.
        let version = Version {
            e_tag: Some("\"leveltable-probe\"".into()),
            version: Some("1".into()),
        };
        let lax = || {
            let why = "the store writes an object although the condition is not met, so that one publisher could overwrite what \
                       another has published";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        };
        let before = match self.ask(probe, PutMode::Update(version)).await? {
            Ok(()) => return lax(),
            Err(failure) if failure.is_refusal() => None,
            Err(_) => Some(Place::Numbered(0)),
        };
        // The first of the two is refused if the store's client has repeated it.
        for _ in 0..2 {
            match self.ask(probe, PutMode::Create).await? {
                Ok(()) => {}
                Err(failure) if failure.is_refusal() => return Ok(before),
                Err(failure) => return Err(failure.error),
            }
        }
        lax()
    }

    /// Writes an empty object on a condition. Returns the outcome: it was written, the condition is not met, or the store does not
    /// support the condition.
    async fn ask(&self, path: &Path, mode: PutMode) -> io::Result<Result<(), Failure>> {
        let request = || async {
            match self.put_at(path, PutPayload::new(), mode.clone()).await {
                Err(failure) if !failure.is_refusal() && !failure.is_unsupported() => Err(failure),
                answer => Ok(answer.map(drop)),
            }
        };
        self.patience.attempts(0, request).await
    }

    /// Writes the manifest on the condition that what it replaces is still there, or that nothing is: one request, made
    /// once.
    pub(super) async fn put(
        &self,
        path: &Path,
        manifest: &Bytes,
        replaced: Option<&Place>,
    ) -> Result<Place, Failure> {
        let payload = PutPayload::from(manifest.clone());
        let mode = match replaced {
            Some(Place::Numbered(number)) => {
                // The highest number exists, so it cannot be created.
                let number = number.saturating_add(1);
                let path = numbered(path, number);
                self.put_at(&path, payload, PutMode::Create).await?;
                return Ok(Place::Numbered(number));
            }
            Some(Place::Object(version)) => PutMode::Update(version.clone()),
            None => PutMode::Create,
        };
        Ok(Place::Object(self.put_at(path, payload, mode).await?))
    }

    async fn put_at(
        &self,
        path: &Path,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<Version, Failure> {
        let deadline = self.patience.timeouts.of(payload.content_length() as u64);
        let put = self.store.put_opts(path, payload, mode.into());
        Ok(Version::from(within(deadline, put).await?))
    }
}

fn numbered(path: &Path, number: u64) -> Path {
    path.clone().join(format!("{number:010}"))
}

/// Whether the object does not exist.
pub(super) fn is_not_found(error: &leveltable::Error) -> bool {
    let cause = error.io_error();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}
