//! Where requests to stores run, and what URLs name.

use std::path::{self, Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use leveltable::{Error, ErrorKind, Result};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use url::Url;

/// What the names of variables begin with that say how to reach a store, and with which credentials.
const VARIABLES: [&str; 3] = ["aws_", "azure_", "google_"];

/// The threads that requests run on. They are those of one process: after a fork, the child has none of them.
#[derive(Clone, Copy)]
pub(crate) struct Runtime {
    tokio: &'static tokio::runtime::Runtime,
    process: u32,
}

impl Runtime {
    /// The threads of this process. Call it with the interpreter's lock held: no other thread then forks meanwhile, so that no
    /// child inherits the mutex locked.
    pub(crate) fn get() -> Result<Runtime> {
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
        // Never freed, since a process that was forked could not join the threads.
        let runtime = Runtime {
            tokio: Box::leak(Box::new(tokio)),
            process: std::process::id(),
        };
        *current = Some(runtime);
        Ok(runtime)
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits for `work`, which is often ready at once.
    pub(crate) fn wait<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.is_here() {
            let what = "opened before this process was forked, and its connections are the parent's: open it again here";
            return Err(Error::new(ErrorKind::InvalidState, what));
        }
        let mut work = pin!(work);
        let _entered = self.tokio.enter();
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => self.tokio.block_on(work),
        }
    }
}

/// A table's name: a path of a file, or a URL.
pub(crate) enum Place {
    File(PathBuf),
    Url(Url),
}

impl Place {
    pub(crate) fn of(name: &Path) -> Result<Place> {
        let Some(text) = name.to_str().filter(|text| text.contains("://")) else {
            return Ok(Place::File(name.to_owned()));
        };
        let url = Url::parse(text).map_err(|error| unsupported(name, &error))?;
        if url.scheme() != "file" {
            return Ok(Place::Url(url));
        }
        let file = url.to_file_path();
        let file = file.map_err(|()| unsupported(name, &"a URL of no file on this machine"))?;
        Ok(Place::File(file))
    }

    /// The store, and the path in it.
    pub(crate) fn locate(&self) -> Result<(Arc<dyn ObjectStore>, ObjectPath)> {
        match self {
            Place::File(file) => {
                let file = path::absolute(file).map_err(|error| unsupported(file, &error))?;
                let object = ObjectPath::from_absolute_path(&file)
                    .map_err(|error| unsupported(&file, &error))?;
                Ok((Arc::new(LocalFileSystem::new().with_fsync(true)), object))
            }
            Place::Url(url) => {
                let (store, object) = object_store::parse_url_opts(url, variables())
                    .map_err(|error| unsupported(Path::new(url.as_str()), &error))?;
                Ok((Arc::from(store), object))
            }
        }
    }
}

fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?.to_ascii_lowercase();
        let is_for_stores = VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        Some((name, value.into_string().ok()?)).filter(|_| is_for_stores)
    })
}

fn unsupported(name: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, why.to_string()).at_path(name)
}
