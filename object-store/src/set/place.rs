//! Where the current manifest lies, and replacing it by one conditional request. The [module](super) says how.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::time::{sleep, timeout};

use super::manifest::{Id, MAX_LEN};
use super::record::directory_of;
use crate::Version;
use crate::attempts::{Failure, Retries, Timeouts, attempts, late, within};
use crate::source::{UNKNOWN, collect, version_of};

/// Where a manifest lies, in which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At the path itself: an object of this version.
    Object(Version),
    /// In the directory of the path, under this number.
    Numbered(u64),
    /// At the path, in a version that was not learned.
    Unknown,
}

/// What there is at the place of a manifest.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    /// The manifest that is known.
    Same,
    Manifest(Bytes, Place),
}

/// The condition on which a manifest is written.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    /// There is no object at the path.
    IsNew,
    /// The object at the path is this one.
    Is(Version),
    /// There is no manifest of this number.
    NumberIsNew(u64),
}

/// Why a manifest was not written, as far as the store tells.
#[derive(Debug)]
pub(super) struct PutFailure {
    pub(super) answer: Answer,
    pub(super) error: io::Error,
}

/// What a store answers to a conditional request that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It cannot do such a thing, whatever the manifest.
    Unsupported,
    /// The condition is not met. Perhaps it was, and this is the answer to a repetition of the request on its way.
    Refused,
    /// Anything else, or no answer. The manifest may have been written.
    Unclear,
}

/// A store, and how long its requests may take.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) timeouts: Timeouts,
    pub(super) retries: Retries,
}

impl Client {
    /// The current manifest, unless it is the one that is `known` to lie somewhere. One request if it is an object at the path, and
    /// one if it is the same.
    pub(super) async fn read(&self, path: &Path, known: Option<&Place>) -> io::Result<Found> {
        let last = match known {
            Some(Place::Numbered(number)) => Some(*number),
            Some(Place::Object(version)) => {
                let e_tag = version.e_tag.as_deref();
                match self
                    .get(path, e_tag.filter(|e_tag| !e_tag.starts_with("W/")))
                    .await?
                {
                    Found::Nothing => None,
                    found => return Ok(found),
                }
            }
            Some(Place::Unknown) | None => match self.get(path, None).await? {
                Found::Nothing => None,
                found => return Ok(found),
            },
        };
        // Truncated since it was listed: there is a later one.
        let mut empty = Path::default();
        for _ in 0..=self.retries.most {
            let Some(number) = self.highest(path).await? else {
                return Ok(Found::Nothing);
            };
            if last == Some(number) {
                return Ok(Found::Same);
            }
            let path = numbered(path, number);
            if let Found::Manifest(bytes, _) = self.get(&path, None).await?
                && !bytes.is_empty()
            {
                return Ok(Found::Manifest(bytes, Place::Numbered(number)));
            }
            empty = path;
        }
        let why = format!(
            "the manifest with the highest number, {empty}, is empty: it was not completely written, as after a \
             loss of power. While nobody publishes, remove it; then the one before is the current one again"
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// All of an object, unless it has the ETag `known`.
    async fn get(&self, path: &Path, known: Option<&str>) -> io::Result<Found> {
        let request = || async {
            let options = GetOptions {
                if_none_match: known.map(str::to_owned),
                ..GetOptions::default()
            };
            Ok(match self.store.get_opts(path, options).await {
                Err(Error::NotFound { .. }) => Err(Found::Nothing),
                Err(Error::NotModified { .. }) => Err(Found::Same),
                response => Ok(response?),
            })
        };
        let mut is_last = self.retries.most == 0;
        loop {
            let response = match self.attempts(request).await? {
                Ok(response) => response,
                Err(found) => return Ok(found),
            };
            let (size, version) = (response.meta.size, version_of(&response.meta));
            if size > MAX_LEN {
                let why = format!("{size} bytes are too many for a manifest");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            // Only now is it known how long it may take.
            let deadline = self.timeouts.of(size);
            let collected = timeout(deadline, collect(response, 0..size)).await;
            let failure = match collected {
                Ok(Ok(bytes)) => return Ok(Found::Manifest(bytes, Place::Object(version))),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::passing(late(deadline)),
            };
            if is_last || !failure.may_pass {
                return Err(failure.error);
            }
            is_last = true;
        }
    }

    /// The highest number of a manifest in the directory `path`.
    async fn highest(&self, path: &Path) -> io::Result<Option<u64>> {
        let list = || async { Ok(self.store.list_with_delimiter(Some(path)).await?) };
        let listed = self.attempts(list).await?;
        let numbers = listed.objects.iter();
        let numbers = numbers.filter_map(|object| Some(number_of(&object.location)?.1));
        Ok(numbers.max())
    }

    /// The condition for the first manifest at `path`: asks the store which conditions it knows, and whether it keeps to them.
    ///
    /// Asks with an object of the publication `id` alone, since another publisher could delete a common one in between. An empty
    /// object is left if it cannot be deleted.
    pub(super) async fn first_condition(
        &self,
        path: &Path,
        id: &Id,
    ) -> Result<Condition, PutFailure> {
        let id = u128::from_be_bytes(*id);
        let probe = Path::from(format!("{path}.{id:032x}.probe"));
        let condition = self.probe(&probe).await;
        let _ = within(self.timeouts.of(0), self.store.delete(&probe)).await;
        condition?.ok_or_else(|| {
            let why = "the store writes an object although the condition is not met, so that one publisher could overwrite what \
                       another has published";
            PutFailure {
                answer: Answer::Unsupported,
                error: io::Error::new(io::ErrorKind::Unsupported, why),
            }
        })
    }

    /// The same, by an object that does not exist. `None` if the store writes it against a condition.
    async fn probe(&self, probe: &Path) -> Result<Option<Condition>, PutFailure> {
        // A version that it cannot have.
        let version = Version {
            e_tag: Some("\"leveltable-probe\"".into()),
            version: Some("1".into()),
        };
        let replaced = self.ask(probe, PutMode::Update(version)).await;
        let condition = match replaced.map_err(|failure| (failure.answer, failure)) {
            Ok(()) => return Ok(None),
            Err((Answer::Unsupported, _)) => Condition::NumberIsNew(1),
            Err((Answer::Refused, _)) => Condition::IsNew,
            Err((Answer::Unclear, failure)) => return Err(failure),
        };
        // The first of the two is refused if the store's client has repeated it.
        for _ in 0..2 {
            match self.ask(probe, PutMode::Create).await {
                Ok(()) => {}
                Err(failure) if failure.answer == Answer::Refused => return Ok(Some(condition)),
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Writes an empty object on a condition, until the answer is clear.
    async fn ask(&self, path: &Path, mode: PutMode) -> Result<(), PutFailure> {
        let mut attempt = 1;
        loop {
            match self.put_at(path, PutPayload::new(), mode.clone()).await {
                Err(failure)
                    if failure.answer == Answer::Unclear && attempt <= self.retries.most =>
                {
                    sleep(self.retries.pause(attempt)).await;
                    attempt += 1;
                }
                answer => return answer.map(|_| ()),
            }
        }
    }

    /// Writes the manifest on a condition: one request, made once.
    pub(super) async fn put(
        &self,
        path: &Path,
        manifest: &Bytes,
        condition: &Condition,
    ) -> Result<Place, PutFailure> {
        let payload = PutPayload::from(manifest.clone());
        let version = match condition {
            Condition::IsNew => self.put_at(path, payload, PutMode::Create).await?,
            Condition::Is(version) => {
                let mode = PutMode::Update(version.clone());
                self.put_at(path, payload, mode).await?
            }
            Condition::NumberIsNew(number) => {
                let path = numbered(path, *number);
                self.put_at(&path, payload, PutMode::Create).await?;
                return Ok(Place::Numbered(*number));
            }
        };
        Ok(match version {
            UNKNOWN => Place::Unknown,
            version => Place::Object(version),
        })
    }

    async fn put_at(
        &self,
        path: &Path,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<Version, PutFailure> {
        let deadline = self.timeouts.of(payload.content_length() as u64);
        let put = self.store.put_opts(path, payload, mode.into());
        let put = within(deadline, put).await;
        put.map(Version::from).map_err(|error| PutFailure {
            answer: match error {
                Error::NotImplemented { .. } | Error::NotSupported { .. } => Answer::Unsupported,
                // Some stores say so of an object that should be replaced, and does not exist.
                Error::NotFound { .. } => Answer::Refused,
                Error::AlreadyExists { .. }
                | Error::Precondition { .. }
                | Error::NotModified { .. } => Answer::Refused,
                _ => Answer::Unclear,
            },
            error: Failure::from(error).error,
        })
    }

    /// Makes attempts of a request whose response is short.
    pub(super) async fn attempts<T, F>(&self, request: impl FnMut() -> F) -> io::Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        attempts(&self.timeouts, &self.retries, 0, request).await
    }
}

impl Place {
    /// The condition on which what lies here is replaced; `None` if the version was not learned.
    pub(super) fn condition(&self) -> Option<Condition> {
        match self {
            Place::Object(version) => Some(Condition::Is(version.clone())),
            Place::Numbered(number) => Some(Condition::NumberIsNew(number.checked_add(1)?)),
            Place::Unknown => None,
        }
    }
}

/// Where the manifests lie that `path` is one of by its name, and its number.
pub(super) fn number_of(path: &Path) -> Option<(Path, u64)> {
    let name = path.filename()?;
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let number = name.parse().ok().filter(|_| is_number)?;
    Some((directory_of(path), number))
}

fn numbered(path: &Path, number: u64) -> Path {
    path.clone().join(format!("{number:010}"))
}
