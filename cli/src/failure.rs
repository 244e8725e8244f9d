//! The errors of commands.

use std::env;
use std::error::Error as _;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

use leveltable::{Error, ErrorKind, Section};

use crate::path::{is_url, reading_command, repair_command};

/// The reason why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Standard output cannot be written, so no other file can be shown either.
    Output(io::Error),
    /// One line with the error and, where possible, a remedy.
    Message(String),
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// Returns the failure of the file or the object at `path`.
    pub(crate) fn of(path: &Path, what: impl Display) -> Failure {
        Failure::new(what.to_string()).at(path.display())
    }

    /// Returns the failure with `place` prepended to its message.
    pub(crate) fn at(self, place: impl Display) -> Failure {
        match self {
            Failure::Output(_) => self,
            Failure::Message(message) => Failure::Message(format!("{place}: {message}")),
        }
    }

    /// Returns the failure for a table that would replace an existing file at `path`.
    pub(crate) fn taken(path: &Path) -> Failure {
        let what = "already exists: use --force to replace it, or name another file";
        Failure::of(path, what)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match (explain(&error), error.path()) {
            (Some(what), Some(path)) => Failure::of(path, what),
            (Some(what), None) => Failure::new(what),
            // The file has appeared since its path was checked.
            (None, Some(path)) if cause_of(&error) == Some(io::ErrorKind::AlreadyExists) => {
                Failure::taken(path)
            }
            _ => Failure::Message(with_remedies(&error)),
        }
    }
}

fn cause_of(error: &Error) -> Option<io::ErrorKind> {
    error.io_error().map(io::Error::kind)
}

/// Returns whether an error says that the file or object does not exist.
pub(crate) fn is_not_found(error: &Error) -> bool {
    cause_of(error) == Some(io::ErrorKind::NotFound)
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Output(error) => write!(f, "writing to standard output: {error}"),
            Failure::Message(message) => f.write_str(message),
        }
    }
}

/// Returns the message of an error, with the tool's commands in place of the library's hint.
pub(crate) fn with_remedies(error: &Error) -> String {
    let (kind, path) = (error.kind(), error.path());
    if kind == ErrorKind::InvalidState && error.hint().is_some() {
        let advice = "leave out `--keys stored` to look up user keys";
        return error.clone().with_hint(advice).to_string();
    }
    let section = error.corruption().map(|damage| damage.section);
    let reading = path.filter(|_| kind == ErrorKind::NotATable);
    let command = reading.and_then(reading_command);
    let command = command.or_else(|| path.and_then(repair_command));
    let advice = match (kind, section, error.hint()) {
        (ErrorKind::Corruption, Some(Section::Log), Some(_)) => Some(
            "`scan --skip-damaged` reads the database without the damaged records, and reports them",
        ),
        // With a hint, the others are about a database that has lost a file.
        (ErrorKind::Corruption, Some(Section::Manifest), Some(_))
        | (ErrorKind::Io | ErrorKind::NotADatabase, _, Some(_)) => {
            let of_any = "`leveltable repair` writes what is left to a new one";
            Some(of_any).filter(|_| command.is_none())
        }
        // A part of a database is not salvaged by itself.
        (ErrorKind::Corruption, Some(_), Some(_)) if command.is_some() => {
            Some("`leveltable verify` lists all damage")
        }
        (ErrorKind::Corruption, Some(_), Some(_)) => Some(
            "`leveltable verify` lists all damage, and `leveltable salvage` copies what is sound",
        ),
        (ErrorKind::Corruption | ErrorKind::NotATable, ..) => None,
        _ => return error.to_string(),
    };
    let advice: Vec<&str> = advice.into_iter().chain(command.as_deref()).collect();
    if advice.is_empty() {
        return error.to_string();
    }
    error.clone().with_hint(&advice.join("; ")).to_string()
}

pub(crate) const NO_CREDENTIALS: &str = "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
     AWS_SKIP_SIGNATURE=true for a bucket that everybody may read (~/.aws/credentials is not read)";

/// Explains a store's `error` in a line, if the store does so only at length or not at all.
fn explain(error: &Error) -> Option<String> {
    let is_of_url = error.path().map(is_url);
    if is_of_url == Some(false) {
        return None;
    }
    let mut causes = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    let says = |what: &str| causes.iter().any(|cause| cause.contains(what));
    if says("NoSuchBucket") || says("ContainerNotFound") {
        return Some("no such bucket".into());
    }
    if says("builder error") {
        let what = "the endpoint has no https: set AWS_ALLOW_HTTP=true (AZURE_ALLOW_HTTP, GOOGLE_ALLOW_HTTP) to use it";
        return Some(what.into());
    }
    if says("169.254.169.254") || says("metadata") && says("credential") {
        return Some(NO_CREDENTIALS.into());
    }
    if says("error sending request") {
        let root = causes.last().map_or("", String::as_str);
        let endpoint = match env::var("AWS_ENDPOINT") {
            Ok(endpoint) => format!("AWS_ENDPOINT is {endpoint}"),
            Err(_) => "AWS_ENDPOINT is not set, so this is Amazon".to_owned(),
        };
        return Some(format!("no connection to the store: {root} ({endpoint})"));
    }
    if is_of_url == Some(true) && is_not_found(error) {
        return Some("no such object".into());
    }
    // The tool does not have this option.
    let (message, _) = causes.first()?.split_once("; allow_unpinned(true)")?;
    Some(message.to_owned())
}
