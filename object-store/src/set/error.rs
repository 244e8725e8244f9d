//! The error of publishing a set.

use std::error::Error;
use std::fmt;

use object_store::path::Path;

/// The error of publishing a set. It may have the engine's [`Error`](leveltable::Error) as its
/// [`source`](Error::source).
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The classes of [`PublishError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// Another publisher has replaced the set to be replaced, or was the first. Nothing was published.
    Conflict,
    /// Two shards have keys in common. Nothing was published.
    Overlap,
    /// A shard is missing, is not a sound table in bytewise order, was replaced since it was described, or does not lie under
    /// the directory of the manifest. Nothing was published.
    Shard,
    /// The store cannot create an object on a condition. Nothing was published.
    Unsupported,
    /// A request before the publishing one failed, or the publishing one is not permitted. Nothing was published.
    Io,
    /// The request that publishes failed, and so did finding out its outcome: the set may have been published, or may yet be.
    /// Read the manifest.
    Unconfirmed,
}

impl PublishError {
    #[cold]
    pub(super) fn new(kind: PublishErrorKind, message: impl Into<String>) -> PublishError {
        PublishError {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// The manifest at `path` was not published, because it is not that of the set to be replaced.
    pub(super) fn conflict(path: &Path) -> PublishError {
        let why = "another set is there than the one to replace";
        let message = format!("{path} was not published: {why}: open it, and pass its version");
        PublishError::new(PublishErrorKind::Conflict, message)
    }

    /// It was not published for this reason, which decides the kind of error.
    pub(super) fn not_published(path: &Path, error: impl Into<std::io::Error>) -> PublishError {
        let error = error.into();
        let (kind, why) = match error.kind() {
            std::io::ErrorKind::Unsupported => (
                PublishErrorKind::Unsupported,
                ": the store cannot do it safely",
            ),
            _ => (PublishErrorKind::Io, ""),
        };
        PublishError::new(kind, format!("{path} was not published{why}")).caused_by(error)
    }

    pub(super) fn unconfirmed(path: &Path, why: &str) -> PublishError {
        let message =
            format!("{path} may or may not have been published: the request failed, {why}");
        PublishError::new(PublishErrorKind::Unconfirmed, message)
    }

    pub(super) fn caused_by(
        mut self,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> PublishError {
        self.source = Some(source.into());
        self
    }

    /// The class of the error, for programs to decide on; see [`PublishErrorKind`].
    pub fn kind(&self) -> PublishErrorKind {
        self.kind
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&**self.source.as_ref()?)
    }
}
