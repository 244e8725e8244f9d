//! Why a set was not published.

use std::error::Error;
use std::fmt;

/// Why a set was not published. One word wide, as the engine's [`Error`](leveltable::Error), which it may have as its
/// [`source`](Error::source).
pub struct PublishError(Box<Repr>);

struct Repr {
    kind: PublishErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The classes of [`PublishError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// Another publisher has replaced what was to be replaced, or was the first. Nothing was published.
    Conflict,
    /// Two shards have keys in common. Nothing was published.
    Overlap,
    /// A shard is missing, is no sound table in bytewise order, was replaced since it was described, or does not lie under the
    /// directory of the manifest. Nothing was published.
    Shard,
    /// The store cannot create an object on a condition. Nothing was published.
    Unsupported,
    /// A request failed before the one that publishes, or that one is not permitted. Nothing was published.
    Io,
    /// The request that publishes failed, and so did finding out what came of it: the set may have been published, or may yet be.
    /// Read the manifest.
    Unconfirmed,
}

impl PublishError {
    #[cold]
    pub(super) fn new(kind: PublishErrorKind, message: impl Into<String>) -> PublishError {
        PublishError(Box::new(Repr {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    pub(super) fn caused_by(
        mut self,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> PublishError {
        self.0.source = Some(source.into());
        self
    }

    /// The class of the error, for programs to decide on.
    pub fn kind(&self) -> PublishErrorKind {
        self.0.kind
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishError")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&**self.0.source.as_ref()?)
    }
}
