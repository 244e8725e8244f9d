//! Stands in for reading and writing object stores, without the feature `object-store`.

use std::fs::File;
use std::iter::Empty;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use leveltable::{Error, ErrorKind, Source, Summary, WriteOptions};

use crate::failure::Failure;
use crate::open::{Bounds, Row};
use crate::place::check_url;

const NEEDS_FEATURE: &str = "reading and writing object stores needs the feature `object-store`: \
                             cargo install leveltable-cli --features object-store";

/// Fails: a URL needs the feature.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    Err(Failure::new(NEEDS_FEATURE).at(path.display()))
}

/// Nobody calls this with a URL that passed [`check`].
pub(crate) fn source(path: &Path) -> leveltable::Result<Source> {
    Source::open(path)
}

/// No path is a URL that passed [`check`].
pub(crate) fn file_at(_: &Path) -> Option<PathBuf> {
    None
}

/// No set is known.
pub(crate) fn holds_manifests(_: &Path) -> bool {
    false
}

/// Neither is a URL that passed [`check`].
pub(crate) fn is_same_object(_: &Path, _: &Path) -> bool {
    false
}

/// Nobody calls this with a URL that passed [`check`].
pub(crate) fn download(path: &Path) -> leveltable::Result<File> {
    Err(Error::new(ErrorKind::Unsupported, NEEDS_FEATURE).at_path(path))
}

/// Nobody calls this with a URL that passed [`check`].
pub(crate) fn upload(_: &File, path: &Path, _: bool) -> leveltable::Result<()> {
    Err(Error::new(ErrorKind::Unsupported, NEEDS_FEATURE).at_path(path))
}

/// Nobody has an error of a store.
pub(crate) fn explain(_: &Error) -> Option<String> {
    None
}

/// Which way a walk goes.
#[derive(Clone, Copy)]
pub(crate) struct Direction {
    pub(crate) reverse: bool,
    #[expect(dead_code, reason = "stores read ahead by it")]
    pub(crate) is_whole: bool,
}

/// Nobody calls this with a URL that passed [`check`].
pub(crate) fn rows(
    path: &Path,
    _: Bounds,
    _: Direction,
) -> leveltable::Result<Empty<leveltable::Result<Row>>> {
    Err(Error::new(ErrorKind::Unsupported, NEEDS_FEATURE).at_path(path))
}

/// Nobody has one: a URL does not pass [`check`].
pub(crate) enum Upload {}

impl Upload {
    pub(crate) fn create(_: &WriteOptions, path: &Path, _: bool) -> leveltable::Result<Upload> {
        Err(Error::new(ErrorKind::Unsupported, NEEDS_FEATURE).at_path(path))
    }

    pub(crate) fn add(&mut self, _: &[u8], _: &[u8]) -> leveltable::Result<()> {
        match *self {}
    }

    pub(crate) fn finish(self) -> leveltable::Result<Summary> {
        match self {}
    }
}

/// Nobody has one.
pub(crate) enum Set {}

/// A table of a set.
pub(crate) struct Shard {
    pub(crate) path: String,
    pub(crate) first_key: Vec<u8>,
    pub(crate) last_key: Vec<u8>,
    pub(crate) bytes: u64,
    pub(crate) entries: Option<u64>,
}

impl Set {
    /// Takes no path for a manifest.
    pub(crate) fn open(path: &Path) -> Result<Option<Set>, Failure> {
        check_url(path)?;
        Ok(None)
    }

    pub(crate) fn get_many(&self, _: &[Vec<u8>]) -> leveltable::Result<Vec<Option<Bytes>>> {
        match *self {}
    }

    pub(crate) fn rows(&self, _: Bounds, _: Direction) -> Empty<leveltable::Result<Row>> {
        match *self {}
    }

    pub(crate) fn difference(
        &self,
        _: usize,
        _: &Shard,
        _: u64,
    ) -> Result<Option<String>, Failure> {
        match *self {}
    }

    pub(crate) fn source(&self, _: usize) -> leveltable::Result<Source> {
        match *self {}
    }

    pub(crate) fn splits(&self, _: usize) -> leveltable::Result<Vec<(Bound<Bytes>, Bound<Bytes>)>> {
        match *self {}
    }

    pub(crate) fn id(&self) -> String {
        match *self {}
    }

    pub(crate) fn entries(&self) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn shards(&self) -> Empty<Shard> {
        match *self {}
    }
}

pub(crate) fn prune(directory: &Path, _: Duration, _: bool) -> Result<Vec<(String, u64)>, Failure> {
    Err(Failure::new(NEEDS_FEATURE).at(directory.display()))
}

/// What was published.
pub(crate) struct Published {
    pub(crate) shards: usize,
    pub(crate) bytes: u64,
    pub(crate) entries: Option<u64>,
}

pub(crate) fn publish(manifest: &Path, _: &[PathBuf], _: bool) -> Result<Published, Failure> {
    Err(Failure::new(NEEDS_FEATURE).at(manifest.display()))
}
