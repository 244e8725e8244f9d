//! Tables in object stores, which URLs name.
//!
//! The commands know tables as `leveltable::Table`, which reads by calls that block. A [`Blocking`] source makes such a call of a
//! request, so that every command reads an object as it reads a file.

mod blocking;
mod set;
mod upload;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{self, Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use leveltable::{Error, ErrorKind, ReadAt as _, Source};
use leveltable_object_store::ObjectSource;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use tokio::runtime::{self, Runtime};
use url::Url;

use crate::failure::Failure;
use crate::place::is_url;
use crate::progress::Progress;
use blocking::Blocking;
pub(crate) use set::{Set, Shard, holds_manifests, publish};
pub(crate) use upload::{Upload, upload};

/// What the names of variables begin with that say how to reach a store, and with which credentials.
const VARIABLES: [&str; 3] = ["aws_", "azure_", "google_"];

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
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    locate(path)?;
    Ok(())
}

/// Opens the object at the URL `path`.
pub(crate) fn source(path: &Path) -> leveltable::Result<Source> {
    Ok(Source::from(blocking(path)?).named(path))
}

/// Returns the path of the file that `path` names, if it is a URL of a file.
pub(crate) fn file_at(path: &Path) -> Option<PathBuf> {
    let url = Url::parse(path.to_str().filter(|_| is_url(path))?).ok()?;
    (url.scheme() == "file")
        .then(|| url.to_file_path().ok())
        .flatten()
}

/// Returns whether two URLs name the same object.
pub(crate) fn is_same_object(one: &Path, other: &Path) -> bool {
    let name = |path| {
        let (store, object) = locate(path).ok()?;
        Some(format!("{store}/{object}"))
    };
    name(one).is_some_and(|one| name(other).is_some_and(|other| one == other))
}

/// Copies the object at the URL `path` to a temporary file, which has no name and so cannot be left on disk.
pub(crate) fn download(path: &Path) -> leveltable::Result<File> {
    const STEP: u64 = 8 << 20;
    let object = blocking(path)?;
    let failed = |what: &str, e: io::Error| Error::io(what, e).at_path(path);
    let from_store = |e| failed("downloading the table", e);
    let to_disk = |e| failed("copying the table to a temporary file", e);
    let size = object.size().map_err(from_store)?;
    let mut bar = Progress::bytes(Some(size));
    let mut file = tempfile::tempfile().map_err(to_disk)?;
    for offset in (0..size).step_by(STEP as usize) {
        let len = STEP.min(size - offset) as usize;
        let part = object.read_at(offset, len).map_err(from_store)?;
        file.write_all(&part).map_err(to_disk)?;
        bar.set(offset + len as u64);
    }
    Ok(file)
}

fn blocking(path: &Path) -> leveltable::Result<Arc<Blocking>> {
    // Commands open a table several times: to see what it is, and in other orders.
    static LAST: Mutex<Option<(PathBuf, Arc<Blocking>)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let source = match &*last {
        Some((opened, source)) if opened == path => source.clone(),
        _ => {
            let (store, object) = locate(path)?;
            let object = ObjectSource::new(store, object).named(path.to_string_lossy());
            let source = Arc::new(Blocking::new(object, runtime()?));
            *last = Some((path.to_owned(), source.clone()));
            source
        }
    };
    Ok(source)
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

/// Returns the path of a file, which need not exist, from the root and without links and dots.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let path = path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(path),
    }
}

/// Returns the store and the path in it of a URL, or of a file.
fn locate(path: &Path) -> leveltable::Result<(Arc<dyn ObjectStore>, ObjectPath)> {
    let failed = |what: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unsupported, what.to_string()).at_path(path)
    };
    if !is_url(path) {
        let absolute = resolve(path).map_err(|e| failed(&e))?;
        let object = ObjectPath::from_absolute_path(absolute).map_err(|e| failed(&e))?;
        return Ok((files(), object));
    }
    let url = Url::parse(&path.to_string_lossy()).map_err(|e| failed(&e))?;
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?.to_ascii_lowercase();
        let is_for_stores = VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        Some((name, value.into_string().ok()?)).filter(|_| is_for_stores)
    });
    let (store, object) = object_store::parse_url_opts(&url, variables).map_err(|e| failed(&e))?;
    if url.scheme() == "file" {
        return Ok((files(), object));
    }
    Ok((Arc::from(store), object))
}

/// Returns the store of local files. They are on disk when the tool says that they are written, as those that it names without a URL.
fn files() -> Arc<dyn ObjectStore> {
    Arc::new(LocalFileSystem::new().with_fsync(true))
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
