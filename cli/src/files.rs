//! The files that a command was given: several, and directories of tables.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Answer;
use crate::database::is_database;
use crate::failure::Failure;
use crate::output::complain;
use crate::place::check_no_secret;

/// Returns the files themselves, and for a directory its tables. A database stays in the list unless `apart` asks for its tables; a
/// directory of manifests is a set, whatever else is in it, and stays; so does one without tables, so that opening it is the error
/// that it should be. Fails if one of them is a URL with a secret, which nothing may show.
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

/// Returns whether numbered manifests of a set are in a directory.
pub(crate) fn holds_manifests(directory: &Path) -> bool {
    let is_number = |name: &str| name.len() >= 10 && name.bytes().all(|b| b.is_ascii_digit());
    let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_str().is_some_and(is_number))
}

/// Returns the tables of a directory (`.ldb` and `.sst`) in the order of their numbers, those without a number last.
/// `None` if it is not a directory that can be read.
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

/// Runs `each` on every file, also after a failure, which is printed. Returns the worst answer.
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
