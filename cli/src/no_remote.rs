//! Stands in for reading and writing object stores, without the feature `object-store`.

use std::path::Path;

use leveltable::{Error, ErrorKind, Source, Summary, WriteOptions};

use crate::failure::Failure;

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
