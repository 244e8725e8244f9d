//! The threads of requests to stores, and the meaning of URLs.

use std::fmt::Display;
use std::path::{self, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use leveltable::{Error, ErrorKind, Result};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use pyo3::Python;
use url::Url;

/// The threads of requests. They belong to one process: after a fork, the child has none of them.
#[derive(Clone, Copy)]
pub(crate) struct Runtime {
    tokio: &'static tokio::runtime::Runtime,
    process: u32,
}

impl Runtime {
    /// The threads of this process. No other thread forks while this one has the interpreter's lock, so no child inherits the
    /// mutex locked.
    pub(crate) fn get(_: Python<'_>) -> Result<Runtime> {
        static CURRENT: Mutex<Option<Runtime>> = Mutex::new(None);
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = current.filter(Runtime::is_here) {
            return Ok(runtime);
        }
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Error::io("starting threads for requests", error))?;
        // Never freed, since a forked process could not join the threads.
        let tokio = Box::leak(Box::new(tokio));
        let process = std::process::id();
        Ok(*current.insert(Runtime { tokio, process }))
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits for `work`.
    pub(crate) fn wait<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.is_here() {
            let what = "opened before this process was forked, and its connections are the parent's: open it again here";
            return Err(Error::new(ErrorKind::InvalidState, what));
        }
        self.tokio.block_on(work)
    }
}

/// The file with the path or the URL `name`; `None` for the URL of an object.
pub(crate) fn local(name: &Path) -> Result<Option<PathBuf>> {
    let Some(url) = name.to_str().filter(|name| name.contains("://")) else {
        return Ok(Some(name.to_owned()));
    };
    let url = Url::parse(url).map_err(|error| unsupported(name, &error))?;
    if url.scheme() != "file" {
        return Ok(None);
    }
    let file = url.to_file_path();
    let file = file.map_err(|()| unsupported(name, &"a URL of no file on this machine"))?;
    Ok(Some(file))
}

/// The store, and the path in it, of a file or an object.
pub(crate) fn locate(name: &Path) -> Result<(Arc<dyn ObjectStore>, ObjectPath)> {
    if let Some(file) = local(name)? {
        let file = path::absolute(file).map_err(|error| unsupported(name, &error))?;
        let object = ObjectPath::from_absolute_path(file);
        let object = object.map_err(|error| unsupported(name, &error))?;
        return Ok((Arc::new(LocalFileSystem::new().with_fsync(true)), object));
    }
    let url = Url::parse(&name.to_string_lossy()).map_err(|error| unsupported(name, &error))?;
    // These say how to reach a store, and with which credentials.
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?.to_ascii_lowercase();
        let is_for_stores = ["aws_", "azure_", "google_"]
            .iter()
            .any(|it| name.starts_with(it));
        Some((name, value.into_string().ok()?)).filter(|_| is_for_stores)
    });
    let located = object_store::parse_url_opts(&url, variables);
    let (store, object) = located.map_err(|error| unsupported(name, &error))?;
    Ok((Arc::from(store), object))
}

fn unsupported(name: &Path, why: &dyn Display) -> Error {
    Error::new(ErrorKind::Unsupported, why.to_string()).at_path(name)
}
