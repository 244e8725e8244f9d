//! The open tables of a set.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt;
use futures_util::future::WeakShared;
use leveltable::remote::{AsyncTable, BoxFuture};
use leveltable::{Error, ErrorKind, OpenTable, Result, Stats, TableCache};
use tokio::sync::Semaphore;

use super::settings::Settings;
use super::shard::Shard;

/// The result of opening a table, for all who wait for it. It goes on while any of them polls it, and is cancelled when none is
/// left.
type Opening = BoxFuture<'static, Result<AsyncTable>>;

/// The open tables of shards, in the engine's [`TableCache`], which closes those that were not used recently.
///
/// A set and the sets that `refresh` makes from it share a shelf.
pub(super) struct Shelf {
    open: TableCache<Shard, Open>,
    /// The counters of all open tables, and of some that were closed.
    counted: Mutex<Vec<Weak<Counted>>>,
    /// Openings that ended or were cancelled are removed when the next one begins.
    openings: Mutex<HashMap<Shard, WeakShared<Opening>>>,
    /// The statistics of closed tables.
    closed: Arc<Mutex<Stats>>,
    /// Limits the number of requests at once.
    pub(super) limit: Arc<Semaphore>,
}

/// An open table, whose statistics are added when it is closed.
#[derive(Clone)]
struct Open(Arc<Counted>);

struct Counted {
    table: AsyncTable,
    closed: Arc<Mutex<Stats>>,
}

impl OpenTable for Open {
    fn weight(&self) -> usize {
        self.0.table.weight()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *lock(&self.closed) += self.table.stats();
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shelf({} open)", self.open.len())
    }
}

impl Shelf {
    pub(super) fn new(settings: &Settings) -> Arc<Shelf> {
        Arc::new(Shelf {
            open: TableCache::new(settings.max_open, settings.max_bytes),
            counted: Mutex::default(),
            openings: Mutex::default(),
            closed: Arc::default(),
            limit: Arc::new(Semaphore::new(settings.max_requests.max(1))),
        })
    }

    /// Closes the table of `shard`, if it is open.
    pub(super) fn close(&self, shard: &Shard) {
        self.open.remove(shard);
    }

    /// The table of `shard`, opened with the future of `open` if necessary. All who want it at the same time share one opening, and
    /// its error.
    pub(super) async fn table(
        &self,
        shard: &Shard,
        open: impl FnOnce() -> Opening,
    ) -> Result<AsyncTable> {
        let opening = {
            // An opening that ends meanwhile stays in the map until its table is in the cache.
            let mut openings = lock(&self.openings);
            if let Some(table) = self.open_table(shard) {
                return Ok(table);
            }
            let on_its_way = openings.get(shard).and_then(WeakShared::upgrade);
            // After an error, the next caller tries again, even while somebody has not seen the error yet.
            let on_its_way = on_its_way.filter(|it| !matches!(it.peek(), Some(Err(_))));
            on_its_way.unwrap_or_else(|| {
                let opening = open().shared();
                openings.retain(|_, opening| opening.upgrade().is_some());
                openings.extend(Some(shard.clone()).zip(opening.downgrade()));
                opening
            })
        };
        let table = opening.clone().await?;
        let closed = Arc::clone(&self.closed);
        let open = || {
            let opened = Arc::new(Counted { table, closed });
            let mut counted = lock(&self.counted);
            counted.retain(|table| table.strong_count() > 0);
            counted.push(Arc::downgrade(&opened));
            Ok(Open(opened))
        };
        Ok(self.open.get(shard, open)?.0.table.clone())
    }

    /// The table of `shard` if it is open.
    pub(super) fn open_table(&self, shard: &Shard) -> Option<AsyncTable> {
        let none = || Err(Error::new(ErrorKind::InvalidState, "not open"));
        Some(self.open.get(shard, none).ok()?.0.table.clone())
    }

    /// The statistics of all tables so far, and the number of open ones.
    pub(super) fn stats(&self) -> (Stats, usize) {
        let open: Vec<_> = lock(&self.counted)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let stats: Stats = open.iter().map(|open| open.table.stats()).sum();
        // Not under the lock of `closed`: a table that was closed meanwhile is counted when `open` is dropped.
        let closed = *lock(&self.closed);
        (closed + stats, open.len())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds a lock can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
