//! Uploads a table, while it is built or from a file.

use std::fs::File;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use bytes::Bytes;
use futures_util::future::{Either, select};
use leveltable::{Error, ReadAt, Result, Summary, WriteOptions};
use leveltable_object_store::{ObjectTableBuilder, UploadOptions};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::sync::Notify;

use super::runtime::{RUNTIME, wait};
use super::store::locate_with;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::complain;
use crate::sort::Add;

/// A table that appears in a store when it is finished, and never if it is aborted or the user ends the program first.
///
/// Shared by the thread that handles signals and the thread that builds.
struct Upload {
    state: Mutex<State>,
    /// Tells the building thread, which may hold the lock while it waits for requests, to release it.
    stop: Notify,
}

/// The state of the upload.
struct State {
    /// `None` if the upload is finished, has failed or was aborted, or is the upload of a file.
    builder: Option<Box<ObjectTableBuilder>>,
    is_there: bool,
}

impl Upload {
    fn start(builder: Option<ObjectTableBuilder>) -> Arc<Upload> {
        let state = State {
            builder: builder.map(Box::new),
            is_there: false,
        };
        let upload = Arc::new(Upload {
            state: Mutex::new(state),
            stop: Notify::new(),
        });
        let interrupted = upload.clone();
        interrupt::before_end(move || {
            interrupted.stop.notify_one();
            interrupted.abort()
        });
        upload
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Aborts the upload, unless it is finished or aborted already. Returns `false` if the table exists.
    fn abort(&self) -> bool {
        // The lock is held until it is aborted, so that a signal does not end the program earlier.
        let mut state = self.lock();
        if let Some(builder) = state.builder.take()
            && let Err(e) = RUNTIME.block_on(builder.abort())
        {
            let what = "parts of it may remain until the store removes incomplete uploads";
            complain("note", &format!("{e}: {what}"));
        }
        !state.is_there
    }

    /// Adds an entry.
    fn add(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if let Some(builder) = &mut state.builder {
            let adding = pin!(builder.add(key, value));
            let stopped = pin!(self.stop.notified());
            if let Either::Left((added, _)) = wait(select(adding, stopped)) {
                return added;
            }
        }
        await_end(state)
    }

    /// Makes the table appear with `work`. The lock is held meanwhile, so that a signal ends the program before or after that, but
    /// not during it.
    fn finish<T>(
        mut state: MutexGuard<'_, State>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let done = RUNTIME.block_on(work);
        state.is_there = done.is_ok();
        if let Err(e) = &done
            && interrupt::is_interrupted()
        {
            // The error of a request names the path.
            if e.path().is_some() {
                complain("note", &e.to_string());
            }
            await_end(state)
        }
        done
    }
}

/// Builds a table with the entries that `fill` adds, at `path`, a URL.
pub(crate) fn write(
    options: &WriteOptions,
    path: &Path,
    force: bool,
    fill: impl FnOnce(&mut Add<'_>) -> std::result::Result<(), Failure>,
) -> std::result::Result<Summary, Failure> {
    let (store, object, to) = destination(path, force)?;
    let upload = Upload::start(Some(to.create(store, object, options)?));
    let filled = fill(&mut |key, value| upload.add(key, value));
    let written = filled.and_then(|()| {
        let mut state = upload.lock();
        match state.builder.take() {
            Some(builder) => Ok(Upload::finish(state, builder.finish())?.summary),
            None => await_end(state),
        }
    });
    if written.is_err() {
        upload.abort();
    }
    written
}

/// Uploads the table in `file` to `path`, a URL. It appears complete, or not at all if the user ends the program first.
pub(crate) fn upload(file: &File, path: &Path, force: bool) -> Result<()> {
    let (store, object, to) = destination(path, force)?;
    let upload = Upload::start(None);
    let file = UntilInterrupted(file);
    Upload::finish(upload.lock(), to.upload(store, object, &file)).map(drop)
}

/// Returns the destination and the options of an upload to `path`. Fails if an object exists, before anything is sent; whether
/// it may be replaced is decided when it is written.
fn destination(
    path: &Path,
    force: bool,
) -> Result<(Arc<dyn ObjectStore>, ObjectPath, UploadOptions)> {
    // Here only the store retries.
    let (store, object) = locate_with(path, 3)?;
    // Other errors show when it is written.
    if !force && wait(store.head(&object)).is_ok() {
        let error = io::Error::new(io::ErrorKind::AlreadyExists, "there is an object already");
        return Err(Error::io("looking for an object that is there", error).at_path(path));
    }
    let options = UploadOptions::new().replace_existing(force);
    Ok((store, object, options.named(path.to_string_lossy())))
}

/// A file that cannot be read any more once the user ends the program, so that its upload is aborted.
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

/// Waits until the thread that handles signals, which may need the lock, ends the program.
fn await_end(locked: MutexGuard<'_, State>) -> ! {
    drop(locked);
    loop {
        thread::park();
    }
}
