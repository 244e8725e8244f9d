//! Tables in object stores, which URLs name.
//!
//! The commands know tables as `leveltable::Table`, which reads by calls that block. An [`Object`] makes such a call of a request, so
//! that every command reads an object as it reads a file. What reads much goes another way: [`rows`] walks a table as
//! [`AsyncTable`] does, and [`download`] copies it to a file.

mod errors;
mod object;
mod set;
mod store;
mod upload;

use std::fs::File;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use leveltable::{Error, OpenOptions, Source};
use tokio::runtime::{self, Runtime};
use url::Url;

use crate::open::{Bounds, Direction};
use crate::place::is_url;
use crate::row::{Row, RowSource};
use object::{Object, TAIL_LEN};
use store::{locate, locate_for_upload};

pub(crate) use errors::explain;
pub(crate) use set::{describe, holds_manifests, open_set, prune, publish};
pub(crate) use upload::{upload, write};

/// The threads that requests run on.
fn runtime() -> leveltable::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let built = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Error::io("starting threads for requests", e))?;
    Ok(RUNTIME.get_or_init(|| built))
}

/// Fails if `path` is not a URL of a store.
pub(crate) fn check(path: &Path) -> leveltable::Result<()> {
    locate(path).map(drop)
}

/// Opens the object at the URL `path`.
pub(crate) fn source(path: &Path) -> leveltable::Result<Source> {
    Ok(Source::from(object(path)?).named(path))
}

/// Returns the object at the URL `path`, the same when called with the same URL again: commands look at a table several times, to
/// see what it is, and in other orders.
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
    let copied = object(path)?.download_visibly();
    copied.map_err(|e| not_copied(e, path))
}

fn not_copied(error: io::Error, path: &Path) -> Error {
    Error::io("copying the table to a temporary file", error).at_path(path)
}

/// Returns the entries within `bounds` of the table at the URL `path`, whose keys are plain ones in order.
pub(crate) fn rows(
    path: &Path,
    bounds: Bounds,
    direction: Direction,
) -> leveltable::Result<RowSource> {
    let runtime = runtime()?;
    let options = OpenOptions::new().no_filter().no_cache();
    let opened = wait(runtime, options.open_async(object(path)?, Some(TAIL_LEN)));
    let mut range = opened?.range(bounds);
    if direction.is_whole {
        range = range.expect_all();
    }
    if direction.reverse {
        range = range.reverse();
    }
    Ok(Box::new(iter::from_fn(move || {
        row(wait(runtime, range.next()))
    })))
}

fn row(entry: leveltable::Result<Option<(Bytes, Bytes)>>) -> Option<leveltable::Result<Row>> {
    Some(entry.transpose()?.map(Row::from))
}

/// Returns the path of the file that `path` names, which may be a URL of a file.
pub(crate) fn file_at(path: &Path) -> Option<PathBuf> {
    if !is_url(path) {
        return Some(path.to_owned());
    }
    let url = Url::parse(path.to_str()?).ok()?;
    let is_file = url.scheme() == "file";
    is_file.then(|| url.to_file_path().ok()).flatten()
}

/// Returns whether two URLs name the same object.
pub(crate) fn is_same_object(one: &Path, other: &Path) -> bool {
    let name = |path| locate(path).map(|(store, object)| format!("{store}/{object}"));
    matches!((name(one), name(other)), (Ok(one), Ok(other)) if one == other)
}

/// Waits for `work`, which is often ready at once.
fn wait<F: Future>(runtime: &Runtime, work: F) -> F::Output {
    let mut work = pin!(work);
    let _runtime = runtime.enter();
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => runtime.block_on(work),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::is_same_object;

    /// What keeps salvage from overwriting the damaged table.
    #[test]
    fn one_object_has_many_names() {
        let object = Path::new("s3://bucket/a%20b/1.ldb");
        for same in [
            "s3://bucket/a%20b/1.ldb",
            "s3://bucket/a b/1.ldb",
            "S3://bucket/a%20b/1.ldb",
            "s3a://bucket/a%20b/1.ldb",
            "s3://bucket/a%20b/./1.ldb",
            "s3://bucket/c/../a%20b/1.ldb",
        ] {
            assert!(is_same_object(object, Path::new(same)), "{same}");
        }
        for other in [
            "s3://bucket/a%20b/2.ldb",
            "s3://bucket2/a%20b/1.ldb",
            "s3://bucket/b/1.ldb",
            "gs://bucket/a%20b/1.ldb",
        ] {
            assert!(!is_same_object(object, Path::new(other)), "{other}");
        }
    }
}
