//! Uploading a table, while it is built or from a file.

use std::fs::File;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::{io, thread};

use bytes::Bytes;
use futures_util::future::{Either, select};
use leveltable::{Error, ReadAt, Summary, WriteOptions};
use leveltable_object_store::{ObjectTableBuilder, UploadOptions};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::{locate_for_upload, runtime, wait};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::complain;
use crate::write::Add;

/// A table that appears in a store when it is finished, and never if it is dropped or the user ends the program before.
struct Upload {
    shared: Arc<Shared>,
    runtime: &'static Runtime,
}

/// What the thread that handles signals shares with the one that builds.
struct Shared {
    state: Mutex<State>,
    /// Tells the thread that builds, which may wait for requests and hold the lock, to let go of it.
    stop: Notify,
}

/// How far the upload is.
struct State {
    /// `None` if the upload is finished, has failed or was aborted.
    builder: Option<Box<ObjectTableBuilder>>,
    is_there: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Aborts the upload, if it is neither finished nor aborted. Returns `false` if the table is there.
    fn abort(&self, runtime: &Runtime) -> bool {
        // The lock is held until it is aborted, so that a signal does not end the program before.
        let mut state = self.lock();
        if let Some(builder) = state.builder.take()
            && let Err(e) = runtime.block_on(builder.abort())
        {
            let what = "parts of it may remain until the store removes incomplete uploads";
            complain("note", &format!("{e}: {what}"));
        }
        !state.is_there
    }
}

impl Upload {
    /// Starts a table at `path`, a URL.
    fn create(options: &WriteOptions, path: &Path, force: bool) -> leveltable::Result<Upload> {
        let (runtime, store, object, upload) = destination(path, force)?;
        let builder = upload.create(store, object, options)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                builder: Some(Box::new(builder)),
                is_there: false,
            }),
            stop: Notify::new(),
        });
        let interrupted = shared.clone();
        interrupt::before_end(move || {
            interrupted.stop.notify_one();
            interrupted.abort(runtime)
        });
        Ok(Upload { shared, runtime })
    }

    /// Adds an entry.
    fn add(&mut self, key: &[u8], value: &[u8]) -> leveltable::Result<()> {
        let mut locked = self.shared.lock();
        let Some(builder) = &mut locked.builder else {
            await_end(Some(locked))
        };
        {
            let adding = pin!(builder.add(key, value));
            let stopped = pin!(self.shared.stop.notified());
            if let Either::Left((added, _)) = wait(self.runtime, select(adding, stopped)) {
                return added;
            }
        }
        await_end(Some(locked))
    }

    /// Makes the table appear.
    fn finish(self) -> leveltable::Result<Summary> {
        // The lock is held until the table is there, so that a signal ends the program before or after, and not between.
        let mut locked = self.shared.lock();
        let Some(builder) = locked.builder.take() else {
            await_end(Some(locked))
        };
        match self.runtime.block_on(builder.finish()) {
            Ok(uploaded) => {
                locked.is_there = true;
                Ok(uploaded.summary)
            }
            Err(e) if interrupt::is_interrupted() => {
                complain("note", &e.to_string());
                await_end(Some(locked))
            }
            Err(e) => Err(e),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.shared.abort(self.runtime);
    }
}

/// Builds the table of the entries that `fill` adds, at `path`, a URL.
pub(crate) fn write(
    options: &WriteOptions,
    path: &Path,
    force: bool,
    fill: impl FnOnce(&mut Add<'_>) -> Result<(), Failure>,
) -> Result<Summary, Failure> {
    let mut upload = Upload::create(options, path, force)?;
    fill(&mut |key, value| upload.add(key, value))?;
    Ok(upload.finish()?)
}

/// Uploads the table in `file` to `path`, a URL. It appears as a whole, or not at all if the user ends the program before.
pub(crate) fn upload(file: &File, path: &Path, force: bool) -> leveltable::Result<()> {
    let (runtime, store, object, options) = destination(path, force)?;
    let (end, ended) = mpsc::channel();
    // A signal ends the program when the parts are removed, or not at all if the table is there.
    interrupt::before_end(move || ended.recv() != Ok(true));
    let uploaded = runtime.block_on(options.upload(store, object, &UntilInterrupted(file)));
    let is_there = uploaded.is_ok();
    let is_interrupted = interrupt::is_interrupted();
    // The error of a request names the path.
    if let Err(e) = &uploaded
        && is_interrupted
        && e.path().is_some()
    {
        complain("note", &e.to_string());
    }
    // Nobody listens unless there was a signal.
    let _ = end.send(is_there);
    if is_interrupted && !is_there {
        await_end(None)
    }
    uploaded.map(drop)
}

/// Returns where and how a table is uploaded to `path`. Fails if there is an object, before anything is sent; whether it may be
/// replaced is decided when it is written.
fn destination(
    path: &Path,
    force: bool,
) -> leveltable::Result<(
    &'static Runtime,
    Arc<dyn ObjectStore>,
    ObjectPath,
    UploadOptions,
)> {
    let runtime = runtime()?;
    let (store, object) = locate_for_upload(path)?;
    // Whether it can be written at all is seen then.
    if !force && wait(runtime, store.head(&object)).is_ok() {
        let error = io::Error::new(io::ErrorKind::AlreadyExists, "there is an object already");
        return Err(Error::io("looking for an object that is there", error).at_path(path));
    }
    let options = UploadOptions::new().replace_existing(force);
    Ok((
        runtime,
        store,
        object,
        options.named(path.to_string_lossy()),
    ))
}

/// A file of which nothing more can be read once the user ends the program, so that its upload is aborted.
struct UntilInterrupted<'a>(&'a File);

impl ReadAt for UntilInterrupted<'_> {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        if interrupt::is_interrupted() {
            return Err(io::Error::other("interrupted"));
        }
        self.0.read_at(offset, len)
    }
}

/// Waits until the thread that handles signals, which may need what is locked, ends the program.
fn await_end(locked: Option<MutexGuard<'_, State>>) -> ! {
    drop(locked);
    loop {
        thread::park();
    }
}
