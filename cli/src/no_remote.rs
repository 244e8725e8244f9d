//! Replaces reading and writing object stores without the feature `object-store`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leveltable::{Error, ErrorKind, Result, Summary, WriteOptions};

use crate::failure::Failure;
use crate::path::is_url;
use crate::row::{RowSource, Walk};
use crate::set::{Set, Shard};
use crate::sort::Add;

/// The error of every operation on a URL, which comes after [`check`].
pub(crate) fn needs_feature<T>(path: &Path) -> Result<T> {
    let what = "reading and writing object stores needs the feature `object-store`: cargo install leveltable-cli \
                --features object-store";
    Err(Error::new(ErrorKind::Unsupported, what).at_path(path))
}

pub(crate) use {
    needs_feature as describe, needs_feature as download, needs_feature as name_in_store,
    needs_feature as source,
};

pub(crate) fn check(path: &Path) -> Result<()> {
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

pub(crate) fn rows(path: &Path, _: &Walk) -> Result<RowSource> {
    needs_feature(path)
}

pub(crate) fn prune(directory: &Path, _: Duration, _: bool) -> Result<Vec<(String, u64)>> {
    needs_feature(directory)
}

pub(crate) fn publish(
    manifest: &Path,
    _: &[PathBuf],
    _: Vec<Shard>,
    _: bool,
) -> std::result::Result<Vec<Shard>, Failure> {
    Ok(needs_feature(manifest)?)
}

/// Finds no set: every path is treated as a table.
pub(crate) fn open_set(_: &Path) -> std::result::Result<Option<Box<dyn Set>>, Failure> {
    Ok(None)
}

pub(crate) fn file_at(path: &Path) -> Option<PathBuf> {
    (!is_url(path)).then(|| path.to_owned())
}
