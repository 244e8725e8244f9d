//! Tables in object stores, addressed by URLs.
//!
//! The commands use tables as `leveltable::Table`, which reads with blocking calls. An [`Object`] turns a request into such a call,
//! so that every command reads an object like a file. Large reads take another path: [`rows`] walks a table like [`AsyncTable`], and
//! [`download`] copies it to a file.

mod object;
mod runtime;
mod set;
mod store;
mod upload;

use std::fs::File;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use leveltable::{Error, OpenOptions, ReadAt as _, Source};
use url::Url;

use crate::output::Progress;
use crate::path::is_url;
use crate::row::{Row, RowSource, Walk};
use object::{Object, TAIL_LEN};
use runtime::wait;
use store::locate;

pub(crate) use set::{describe, open_set, prune, publish};
pub(crate) use upload::{upload, write};

/// Fails if `path` is not a URL of a store.
pub(crate) fn check(path: &Path) -> leveltable::Result<()> {
    locate(path).map(drop)
}

/// Opens the object at the URL `path`.
pub(crate) fn source(path: &Path) -> leveltable::Result<Source> {
    Ok(Source::from(object(path)?).named(path))
}

/// Returns the object at the URL `path`, the same if called with the same URL again: commands open a table several times, to find
/// out what it is, and in other orders.
fn object(path: &Path) -> leveltable::Result<Arc<Object>> {
    static LAST: Mutex<Option<(PathBuf, Arc<Object>)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, object)) = last.as_ref().filter(|(opened, _)| opened == path) {
        return Ok(Arc::clone(object));
    }
    let object = Object::at(path)?;
    *last = Some((path.to_owned(), Arc::clone(&object)));
    Ok(object)
}

/// Copies the object at the URL `path` to a temporary file.
pub(crate) fn download(path: &Path) -> leveltable::Result<File> {
    let object = object(path)?;
    let copied = object.size().and_then(|size| {
        let mut bar = Progress::bytes(Some(size));
        wait(object.download(|done| bar.set(done)))
    });
    copied.map_err(|e| not_copied(e, path))
}

fn not_copied(error: io::Error, path: &Path) -> Error {
    Error::io("copying the table to a temporary file", error).at_path(path)
}

/// Returns the wanted entries of the table at the URL `path`, whose keys are plain ones in order.
pub(crate) fn rows(path: &Path, walk: &Walk) -> leveltable::Result<RowSource> {
    let options = OpenOptions::new().no_filter().no_cache();
    let table = wait(options.open_async(object(path)?, Some(TAIL_LEN)))?;
    let mut range = table.range(walk.bounds.clone());
    if walk.is_whole {
        range = range.expect_all();
    }
    if walk.reverse {
        range = range.reverse();
    }
    Ok(Box::new(iter::from_fn(move || row(wait(range.next())))))
}

fn row(entry: leveltable::Result<Option<(Bytes, Bytes)>>) -> Option<leveltable::Result<Row>> {
    Some(entry.transpose()?.map(Row::from))
}

/// Returns the path of a file for `path`, which may be the URL of a file.
pub(crate) fn file_at(path: &Path) -> Option<PathBuf> {
    if !is_url(path) {
        return Some(path.to_owned());
    }
    let url = Url::parse(path.to_str()?).ok()?;
    url.to_file_path().ok().filter(|_| url.scheme() == "file")
}

/// Returns the canonical name of the object at the URL `path`, which may have several.
pub(crate) fn name_in_store(path: &Path) -> leveltable::Result<PathBuf> {
    let (store, object) = locate(path)?;
    Ok(format!("{store}/{object}").into())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::name_in_store;

    /// This keeps salvage from overwriting the damaged table.
    #[test]
    fn one_object_has_many_names() {
        let name = |url: &str| name_in_store(Path::new(url)).unwrap();
        let object = name("s3://bucket/a%20b/1.ldb");
        for same in [
            "s3://bucket/a%20b/1.ldb",
            "s3://bucket/a b/1.ldb",
            "S3://bucket/a%20b/1.ldb",
            "s3a://bucket/a%20b/1.ldb",
            "s3://bucket/a%20b/./1.ldb",
            "s3://bucket/c/../a%20b/1.ldb",
        ] {
            assert_eq!(name(same), object, "{same}");
        }
        for other in [
            "s3://bucket/a%20b/2.ldb",
            "s3://bucket2/a%20b/1.ldb",
            "s3://bucket/b/1.ldb",
            "gs://bucket/a%20b/1.ldb",
        ] {
            assert_ne!(name(other), object, "{other}");
        }
    }
}
