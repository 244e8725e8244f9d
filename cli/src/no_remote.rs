//! Stands in for reading and writing object stores, without the feature `object-store`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leveltable::{Error, ErrorKind, Result, Source, Summary, WriteOptions};

use crate::failure::Failure;
use crate::open::{Bounds, Direction};
use crate::place::{check_url, is_url};
use crate::row::RowSource;
use crate::set::{Set, Shard};
use crate::write::Add;

/// Every operation on a URL, which comes after [`check`].
fn needs_feature<T>(path: &Path) -> Result<T> {
    let what = "reading and writing object stores needs the feature `object-store`: cargo install leveltable-cli \
                --features object-store";
    Err(Error::new(ErrorKind::Unsupported, what).at_path(path))
}

pub(crate) fn check(path: &Path) -> Result<()> {
    needs_feature(path)
}

pub(crate) fn source(path: &Path) -> Result<Source> {
    needs_feature(path)
}

pub(crate) fn download(path: &Path) -> Result<File> {
    needs_feature(path)
}

pub(crate) fn upload(_: &File, path: &Path, _: bool) -> Result<()> {
    needs_feature(path)
}

pub(crate) fn write(
    _: &WriteOptions,
    path: &Path,
    _: bool,
    _: impl FnOnce(&mut Add<'_>) -> std::result::Result<(), Failure>,
) -> std::result::Result<Summary, Failure> {
    Ok(needs_feature(path)?)
}

pub(crate) fn rows(path: &Path, _: Bounds, _: Direction) -> Result<RowSource> {
    needs_feature(path)
}

pub(crate) fn prune(directory: &Path, _: Duration, _: bool) -> Result<Vec<(String, u64)>> {
    needs_feature(directory)
}

pub(crate) fn describe(path: &Path) -> Result<Option<Shard>> {
    needs_feature(path)
}

pub(crate) fn publish(
    manifest: &Path,
    _: &[PathBuf],
    _: Vec<Shard>,
    _: bool,
) -> std::result::Result<Vec<Shard>, Failure> {
    Ok(needs_feature(manifest)?)
}

/// Takes no path for a manifest.
pub(crate) fn open_set(path: &Path) -> std::result::Result<Option<Box<dyn Set>>, Failure> {
    check_url(path)?;
    Ok(None)
}

pub(crate) fn file_at(path: &Path) -> Option<PathBuf> {
    (!is_url(path)).then(|| path.to_owned())
}

pub(crate) fn holds_manifests(_: &Path) -> bool {
    false
}

pub(crate) fn is_same_object(_: &Path, _: &Path) -> bool {
    false
}

/// Nobody has an error of a store.
pub(crate) fn explain(_: &Error) -> Option<String> {
    None
}
