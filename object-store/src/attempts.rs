//! How long a request may take, and how often it is retried.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long a request may take, with all its attempts and the pauses between them: a fixed part, and time for its bytes.
///
/// ```
/// use leveltable_object_store::Timeouts;
/// use std::time::Duration;
///
/// let timeouts = Timeouts::new(Duration::from_secs(10), 1 << 20);
/// assert_eq!(timeouts, Timeouts::default());
/// assert_eq!(timeouts.of(8 << 20), Duration::from_secs(18));
/// ```
///
/// With the default of 10 seconds and 1 MiB a second, a block of 4 KiB has 10 seconds, and 8 MiB have 18. An attempt may take half of
/// the remaining time, and the last one all of it, so that a stalled connection leaves time for another attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// For a request without bytes.
    pub fixed: Duration,
    /// The slowest acceptable transfer rate.
    pub bytes_per_second: u64,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts::new(Duration::from_secs(10), 1 << 20)
    }
}

impl Timeouts {
    /// `fixed` for each request, plus the time for its bytes at `bytes_per_second`.
    pub fn new(fixed: Duration, bytes_per_second: u64) -> Timeouts {
        Timeouts {
            fixed,
            bytes_per_second,
        }
    }

    /// How long a request that transfers `bytes` may take.
    pub fn of(&self, bytes: u64) -> Duration {
        let seconds = bytes as f64 / self.bytes_per_second.max(1) as f64;
        let transfer = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.fixed.saturating_add(transfer)
    }
}

/// How often a failed request is retried, and after which pauses.
///
/// ```
/// use leveltable_object_store::Retries;
/// use std::time::Duration;
///
/// assert_eq!(Retries::new(3, Duration::from_millis(100)), Retries::default());
/// assert_eq!(Retries::none().most, 0);
/// ```
///
/// By default three times: after 100 ms, 200, and 400. Each pause is shortened at random by up to a half, so that many clients do not
/// return at once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retries {
    /// Maximum number of retries.
    pub most: u32,
    /// The pause before the first retry. Each further one is twice as long, up to 10 seconds.
    pub first_pause: Duration,
}

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(10);

impl Default for Retries {
    fn default() -> Retries {
        Retries::new(3, Duration::from_millis(100))
    }
}

impl Retries {
    /// Up to `most` retries, the first after `first_pause`.
    pub fn new(most: u32, first_pause: Duration) -> Retries {
        Retries { most, first_pause }
    }

    /// No retries: the first failure is returned.
    pub fn none() -> Retries {
        Retries::new(0, Duration::ZERO)
    }

    /// The pause after attempt number `attempt`, counted from 1.
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        let factor = 1u32
            .checked_shl(attempt.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let pause = self.first_pause.saturating_mul(factor).min(MAX_PAUSE);
        // A hasher with random keys, since std has no random number generator.
        let random = RandomState::new().build_hasher().finish();
        pause.mul_f64(1.0 - (random % 1000) as f64 / 2000.0)
    }
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: io::Error,
    /// Whether another attempt may succeed.
    pub(crate) may_pass: bool,
}

impl Failure {
    /// A failure that another attempt would meet again.
    pub(crate) fn lasting(kind: io::ErrorKind, why: impl Into<String>) -> Failure {
        Failure {
            error: io::Error::new(kind, why.into()),
            may_pass: false,
        }
    }

    pub(crate) fn passing(kind: io::ErrorKind, why: String) -> Failure {
        Failure {
            may_pass: true,
            ..Failure::lasting(kind, why)
        }
    }

    /// Whether the store has refused to write because a condition is not met. Perhaps it was met, and this is the response to a
    /// repeated request.
    pub(crate) fn is_refusal(&self) -> bool {
        use io::ErrorKind::{AlreadyExists, NotFound, StaleNetworkFileHandle};
        // Some stores return "not found" if the object to replace does not exist.
        matches!(
            self.error.kind(),
            AlreadyExists | NotFound | StaleNetworkFileHandle
        )
    }

    /// Whether the store does not support the operation.
    pub(crate) fn is_unsupported(&self) -> bool {
        self.error.kind() == io::ErrorKind::Unsupported
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        failure.error
    }
}

/// Interprets the store's error.
impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Failure {
        use io::ErrorKind::{
            AlreadyExists, InvalidInput, NotFound, Other, PermissionDenied, StaleNetworkFileHandle,
            TimedOut, Unsupported,
        };
        use object_store::Error as E;
        let (kind, may_pass) = match &error {
            E::NotFound { .. } => (NotFound, false),
            E::AlreadyExists { .. } => (AlreadyExists, false),
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => (PermissionDenied, false),
            E::NotSupported { .. } | E::NotImplemented { .. } => (Unsupported, false),
            E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => (InvalidInput, false),
            E::Precondition { .. } | E::NotModified { .. } => (StaleNetworkFileHandle, false),
            // A busy server, a lost connection, and errors that the store does not distinguish from these.
            E::Generic { source, .. } => match io_kind(&**source) {
                Some(kind) => (kind, kind == TimedOut),
                None => (Other, true),
            },
            _ => (Other, true),
        };
        Failure {
            error: io::Error::new(kind, error),
            may_pass,
        }
    }
}

/// The kind of a missed deadline, and of a directory's error that such a file cannot exist.
fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    use io::ErrorKind::{
        InvalidFilename, IsADirectory, NotADirectory, ReadOnlyFilesystem, TimedOut,
    };
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut kinds = causes.filter_map(|error| Some(error.downcast_ref::<io::Error>()?.kind()));
    kinds.find(|kind| {
        matches!(
            kind,
            InvalidFilename | IsADirectory | NotADirectory | ReadOnlyFilesystem | TimedOut
        )
    })
}

/// How long requests may take, and how often they are retried.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patience {
    pub(crate) timeouts: Timeouts,
    pub(crate) retries: Retries,
}

impl Patience {
    /// Makes attempts at a request that transfers `bytes` until one succeeds or fails permanently, or the attempts or the time run
    /// out.
    ///
    /// The error says how many attempts were made.
    pub(crate) async fn attempts<T, F>(
        &self,
        bytes: u64,
        mut request: impl FnMut() -> F,
    ) -> io::Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (start, deadline) = (Instant::now(), self.timeouts.of(bytes));
        let left = || deadline.saturating_sub(start.elapsed());
        let most = self.retries.most.saturating_add(1);
        let mut attempt = 1;
        loop {
            let patience = if attempt == most { left() } else { left() / 2 };
            let failure = match within(patience, request()).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            let pause = self.retries.pause(attempt);
            if !failure.may_pass || attempt == most || pause >= left() {
                let error = failure.error;
                let message = format!("attempt {attempt} of {most}: {error}");
                return Err(io::Error::new(error.kind(), Described { message, error }));
            }
            sleep(pause).await;
            attempt += 1;
        }
    }
}

/// The result of a request that is made once, or an error if it takes too long.
pub(crate) async fn within<T, E>(
    deadline: Duration,
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure>
where
    Failure: From<E>,
{
    match timeout(deadline, request).await {
        Ok(done) => Ok(done?),
        Err(_) => {
            let why = format!("not complete after {deadline:?}");
            Err(Failure::passing(io::ErrorKind::TimedOut, why))
        }
    }
}

/// An error with a longer message.
#[derive(Debug)]
struct Described {
    message: String,
    error: io::Error,
}

impl std::fmt::Display for Described {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Described {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
