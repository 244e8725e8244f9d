//! The errors of commands.

use std::env;
use std::error::Error as _;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

use leveltable::{Error, ErrorKind};

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
            // The file has appeared since its path was checked. A database never replaces anything, even with --force.
            (None, Some(path))
                if cause_of(&error) == Some(io::ErrorKind::AlreadyExists)
                    && !error.to_string().contains("a database replaces nothing") =>
            {
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

/// The library's hint for a database without a sound MANIFEST.
const WITHOUT_MANIFEST: &str = "; open_without_manifest reads what tables and logs say";

/// The library's hint for a database without a table that its MANIFEST lists.
const MISSING_TABLE: &str = "; `repair` of leveltable-repair makes a new database of what is left";

/// Returns the message of an error, with the library's options replaced by the tool's, and the command for a damaged database.
pub(crate) fn with_remedies(error: &Error) -> String {
    let message = error.to_string();
    let is_no_table = error.kind() == ErrorKind::NotATable;
    let is_damaged = is_no_table
        || error.kind() == ErrorKind::Corruption
        || message.ends_with(WITHOUT_MANIFEST)
        || message.ends_with(MISSING_TABLE);
    let path = error.path().filter(|_| is_damaged);
    let reading = path.filter(|_| is_no_table).and_then(reading_command);
    let command = reading.or_else(|| path.and_then(repair_command));
    // A part of a database is not salvaged by itself.
    let of_damage = if command.is_some() {
        "`leveltable verify` lists all damage"
    } else {
        "`leveltable verify` lists all damage, and `leveltable salvage` copies what is sound"
    };
    let of_any = "; `leveltable repair` writes what is left to a new one";
    let of_any = command.as_ref().map_or(of_any, |_| "");
    message
        .replace(WITHOUT_MANIFEST, of_any)
        .replace(MISSING_TABLE, of_any)
        .replace(
            "skip_damaged reads the database",
            "`scan --skip-damaged` reads the database",
        )
        .replace(
            "build the new one with the comparator that it was written with",
            "only a program that has its comparator can copy it, by `salvage` of leveltable-repair",
        )
        .replace("need DatabaseOptions::comparator", "need one that is known")
        .replace(
            "name the comparator that this database was",
            "name by --comparator the one that it was",
        )
        .replace(
            "`verify` of leveltable-repair lists all damage, and `salvage` copies what is sound",
            of_damage,
        )
        + &command.map_or_else(String::new, |command| format!("; {command}"))
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
