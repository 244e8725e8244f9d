//! Where the current manifest lies, and replacing it by one conditional request. The [module](super) says how.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use tokio::time::{sleep, timeout};

use super::manifest::{Id, MOST_LEN};
use crate::attempts::{Failure, Retries, Timeouts, attempts};
use crate::source::collect;

/// Where a manifest lies, in which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At the path itself: an object of this version.
    Object(UpdateVersion),
    /// In the directory of the path, under this number.
    Numbered(u64),
    /// At the path, in a version that was not learned.
    Unknown,
}

/// The condition on which a manifest is written.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    /// There is no object at the path.
    IsNew,
    /// The object at the path is this one.
    Is(UpdateVersion),
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
    /// The bytes of the current manifest and where they lie; `None` if there is none. One request if it is an object at the path.
    pub(super) async fn read(&self, path: &Path) -> io::Result<Option<(Bytes, Place)>> {
        if let Some((bytes, version)) = self.get(path).await? {
            return Ok(Some((bytes, Place::Object(version))));
        }
        // Truncated since it was listed: there is a later one.
        let mut empty = Path::default();
        for _ in 0..=self.retries.most {
            let Some(number) = self.highest(path).await? else {
                return Ok(None);
            };
            let path = numbered(path, number);
            let found = self.get(&path).await?;
            if let Some((bytes, _)) = found.filter(|(bytes, _)| !bytes.is_empty()) {
                return Ok(Some((bytes, Place::Numbered(number))));
            }
            empty = path;
        }
        let why = format!(
            "the manifest with the highest number, {empty}, is empty: it was not completely written, as after a \
             loss of power. While nobody publishes, remove it; then the one before is the current one again"
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// All of an object, and its version.
    async fn get(&self, path: &Path) -> io::Result<Option<(Bytes, UpdateVersion)>> {
        let got = self.attempts(|| async {
            let response = self.store.get_opts(path, GetOptions::default());
            let response = timeout(self.timeouts.of(0), response).await;
            let response = response.map_err(|_| timed_out())??;
            let size = response.meta.size;
            if size > MOST_LEN {
                let why = format!("{size} bytes are too many for a manifest");
                return Err(Failure::lasting(io::Error::new(
                    io::ErrorKind::InvalidData,
                    why,
                )));
            }
            let version = UpdateVersion {
                e_tag: response.meta.e_tag.clone(),
                version: response.meta.version.clone(),
            };
            let bytes = timeout(self.timeouts.of(size), collect(response, 0..size)).await;
            let bytes = bytes.map_err(|_| timed_out())??;
            Ok((bytes, version))
        });
        match got.await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            got => got.map(Some),
        }
    }

    /// The highest number of a manifest in the directory `path`.
    async fn highest(&self, path: &Path) -> io::Result<Option<u64>> {
        let list = || async {
            let list = timeout(
                self.timeouts.of(0),
                self.store.list_with_delimiter(Some(path)),
            );
            Ok(list.await.map_err(|_| timed_out())??)
        };
        let listed = self.attempts(list).await?;
        let numbers = listed.objects.iter().filter_map(|object| {
            let name = object.location.filename()?;
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
            name.parse::<u64>().ok().filter(|_| is_number)
        });
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
        let _ = timeout(self.timeouts.of(0), self.store.delete(&probe)).await;
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
        let version = UpdateVersion {
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
            UpdateVersion {
                e_tag: None,
                version: None,
            } => Place::Unknown,
            version => Place::Object(version),
        })
    }

    async fn put_at(
        &self,
        path: &Path,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<UpdateVersion, PutFailure> {
        use object_store::Error as E;
        let deadline = self.timeouts.of(payload.content_length() as u64);
        let put = self.store.put_opts(path, payload, mode.into());
        let Ok(put) = timeout(deadline, put).await else {
            return Err(PutFailure {
                answer: Answer::Unclear,
                error: timed_out().error,
            });
        };
        put.map(UpdateVersion::from).map_err(|error| PutFailure {
            answer: match error {
                E::NotImplemented { .. } | E::NotSupported { .. } => Answer::Unsupported,
                // Some stores say so of an object that should be replaced, and does not exist.
                E::NotFound { .. } => Answer::Refused,
                E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => {
                    Answer::Refused
                }
                _ => Answer::Unclear,
            },
            error: Failure::from(error).error,
        })
    }

    /// Makes attempts that have deadlines of their own.
    pub(super) async fn attempts<T, F>(&self, request: impl FnMut() -> F) -> io::Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        attempts(&self.timeouts, &self.retries, u64::MAX, request).await
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

fn numbered(path: &Path, number: u64) -> Path {
    path.clone().join(format!("{number:010}"))
}

pub(super) fn timed_out() -> Failure {
    let error = io::Error::new(io::ErrorKind::TimedOut, "not complete within its deadline");
    Failure::passing(error)
}
