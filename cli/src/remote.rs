//! Stands in for reading and writing object stores, without the feature `object-store`.

use std::path::Path;

use leveltable::Source;

use crate::failure::Failure;

/// Fails: a URL needs the feature.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let what = "reading and writing object stores needs the feature `object-store`: \
                cargo install leveltable-cli --features object-store";
    Err(Failure::new(what).at(path.display()))
}

/// Nobody calls this with a URL that passed [`check`].
pub(crate) fn source(path: &Path) -> leveltable::Result<Source> {
    Source::open(path)
}
