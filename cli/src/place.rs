//! The place of a table: a file, perhaps found in a directory, or an object that a URL names.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use leveltable::Source;

use crate::Answer;
use crate::failure::Failure;
use crate::output::complain;
use crate::path::{is_database, is_url};
use crate::remote;

/// Rejects a URL that contains a secret, or that this tool cannot open.
pub(crate) fn check_url(path: &Path) -> Result<(), Failure> {
    check_no_secret(path)?;
    if is_url(path) {
        remote::check(path)?;
    }
    Ok(())
}

/// Rejects a URL that contains a secret, before any message shows it.
pub(crate) fn check_no_secret(path: &Path) -> Result<(), Failure> {
    let url = path.to_str().filter(|_| is_url(path));
    let Some((_, rest)) = url.and_then(|url| url.split_once("://")) else {
        return Ok(());
    };
    let remedy = "pass credentials in the environment, as AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_KEY or \
                  GOOGLE_SERVICE_ACCOUNT";
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // A slash in a password ends the authority part. Only Azure's URLs have something other than a user before an @:
    // `container@account`.
    let before_name = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let has_colon = authority.contains(':');
    let what = if !authority.is_empty()
        && (has_colon && rest.contains('@') || before_name.contains('@'))
    {
        format!(
            "a URL with a password, or with an @ that may end one: {remedy}, and write %40 for an @ in a name"
        )
    } else if rest.contains(['?', '#']) {
        format!("a URL with a query or a fragment, which may hold credentials: {remedy}")
    } else {
        return Ok(());
    };
    Err(Failure::new(what))
}

/// Fails if `input`, a file to read, does not exist, but `other`, another argument, does: then they were probably swapped.
/// Commands check this before they can replace `other`.
pub(crate) fn check_order_of_arguments(other: &Path, input: &Path) -> Result<(), Failure> {
    let is_there = |path: &Path| is_url(path) || path.as_os_str() == "-" || path.exists();
    if is_there(input) || !other.is_file() {
        return Ok(());
    }
    let other = other.display();
    let what = format!("no such file, but {other} is there: were the arguments swapped?");
    Err(Failure::of(input, what))
}

/// The source that was opened last.
static LAST: Mutex<Option<(PathBuf, Source)>> = Mutex::new(None);

/// Copies the object at `path`, if that is a URL, to a temporary file, which [`source`] returns from then on: for work that reads
/// the whole table, or in an order that makes many requests.
pub(crate) fn copy_if_remote(path: &Path) -> leveltable::Result<()> {
    if is_url(path) {
        let copy: File = remote::download(path)?;
        let copy = Source::from(copy).named(path);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((path.to_owned(), copy));
    }
    Ok(())
}

/// Opens the file or the object at `path`; if called with the same path again, returns the same source. Commands open a table
/// more than once: to find out what it is, and in other orders.
pub(crate) fn source(path: &Path) -> leveltable::Result<Source> {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, source)) = last.as_ref().filter(|(opened, _)| opened == path) {
        return Ok(source.clone());
    }
    let source = if is_url(path) {
        remote::source(path)?
    } else {
        Source::open(path)?
    };
    *last = Some((path.to_owned(), source.clone()));
    Ok(source)
}

/// Returns the files themselves, and for a directory its tables. A database stays in the list unless `apart` asks for its tables; a
/// directory of manifests is a set, whatever else is in it, and stays. A directory without tables stays as well: opening it says what
/// is wrong. Fails if one of them is a URL with a secret, which nothing may show.
pub(crate) fn expand(given: &[PathBuf], apart: bool) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in given {
        check_no_secret(path)?;
        let is_directory = path.is_dir() && (apart || !is_database(path));
        match is_directory.then(|| tables_in(path)).flatten() {
            Some(tables) if !tables.is_empty() && !holds_manifests(path) => files.extend(tables),
            _ => files.push(path.clone()),
        }
    }
    Ok(files)
}

/// Returns whether a directory contains numbered manifests of a set.
pub(crate) fn holds_manifests(directory: &Path) -> bool {
    let is_number = |name: &str| name.len() >= 10 && name.bytes().all(|b| b.is_ascii_digit());
    let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_str().is_some_and(is_number))
}

/// Returns the tables of a directory (`.ldb` and `.sst`) in the order of their numbers, tables without a number last.
/// `None` if it is not a readable directory.
pub(crate) fn tables_in(directory: &Path) -> Option<Vec<PathBuf>> {
    let paths = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let is_table = |path: &PathBuf| {
        let is_named = path.extension().is_some_and(|e| e == "ldb" || e == "sst");
        is_named && !path.is_dir()
    };
    let mut tables: Vec<PathBuf> = paths.filter(is_table).collect();
    tables.sort_by_cached_key(|path| {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let number = stem.and_then(|stem| stem.parse::<u64>().ok());
        (number.unwrap_or(u64::MAX), path.clone())
    });
    Some(tables)
}

/// Runs `each` on every file, even after a failure, which is printed. Returns the worst answer.
pub(crate) fn each_file<Name>(
    files: impl IntoIterator<Item = Name>,
    mut each: impl FnMut(Name) -> Result<Answer, Failure>,
) -> Result<Answer, Failure> {
    let mut worst = Answer::Yes;
    for file in files {
        let answer = match each(file) {
            Ok(answer) => answer,
            Err(Failure::Message(message)) => {
                complain("error", &message);
                Answer::Unknown
            }
            Err(failure) => return Err(failure),
        };
        worst = worst.max(answer);
    }
    Ok(worst)
}
