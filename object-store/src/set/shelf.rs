//! The tables of a set that are open.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use leveltable::remote::{AsyncTable, BoxFuture};
use leveltable::{Error, ErrorKind, OpenTable, Result, Stats, TableCache};

/// What comes of an opening, for all who wait for it. It goes on while any of them polls it, and is cancelled when all are gone.
type Opening = BoxFuture<'static, Result<AsyncTable>>;

/// Open tables by a number of their shard, in the engine's [`TableCache`], which closes those used the longest time ago.
///
/// A set and those that it becomes by being refreshed share a shelf, on which a shard keeps its number.
pub(super) struct Shelf {
    open: TableCache<usize, Open>,
    state: Mutex<State>,
    /// The work of tables that were closed.
    closed: Arc<Mutex<Stats>>,
}

#[derive(Default)]
struct State {
    /// The number of the next shard.
    next: usize,
    /// May have ended, or been cancelled.
    openings: HashMap<usize, WeakShared<Opening>>,
}

/// An open table, whose work is counted when it is closed.
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
        f.debug_tuple("Shelf").field(&self.open).finish()
    }
}

impl Shelf {
    pub(super) fn new(most_open: usize, most_bytes: u64) -> Shelf {
        Shelf {
            open: TableCache::new(most_open, most_bytes),
            state: Mutex::default(),
            closed: Arc::default(),
        }
    }

    /// A number for a shard that has none.
    pub(super) fn number(&self) -> usize {
        let mut state = lock(&self.state);
        state.next += 1;
        state.next
    }

    /// Closes the table of `shard`, if it is open.
    pub(super) fn close(&self, shard: usize) {
        self.open.remove(&shard);
    }

    /// The table of `shard`, by the future of `open` if it is not open yet. All who want it at the same time share one opening, and
    /// its error.
    pub(super) async fn table(
        &self,
        shard: usize,
        open: impl FnOnce() -> Opening,
    ) -> Result<AsyncTable> {
        let opening = {
            // An opening that ends meanwhile is forgotten only after its table is open.
            let mut state = lock(&self.state);
            if let Some(table) = self.open_table(shard) {
                return Ok(table);
            }
            let on_its_way = state.openings.get(&shard).and_then(WeakShared::upgrade);
            on_its_way.unwrap_or_else(|| {
                let opening = open().shared();
                state.openings.extend(Some(shard).zip(opening.downgrade()));
                opening
            })
        };
        let opened = opening.clone().await;
        if let Ok(table) = &opened {
            let (table, closed) = (table.clone(), Arc::clone(&self.closed));
            let counted = || Ok(Open(Arc::new(Counted { table, closed })));
            self.open.get(&shard, counted)?;
        }
        // After an error, the next one tries again, also while somebody has yet to see it.
        self.forget(shard, &opening);
        opened
    }

    /// The table of `shard` if it is open.
    pub(super) fn open_table(&self, shard: usize) -> Option<AsyncTable> {
        let none = || Err(Error::new(ErrorKind::InvalidState, "not open"));
        Some(self.open.get(&shard, none).ok()?.0.table.clone())
    }

    /// The work of all tables so far, and how many are open.
    pub(super) fn stats(&self) -> (Stats, usize) {
        let open = self.open.tables();
        let stats: Stats = open.iter().map(|open| open.0.table.stats()).sum();
        // Not under the lock of `closed`: a table that was closed meanwhile is counted when `open` goes.
        let closed = *lock(&self.closed);
        (closed + stats, open.len())
    }

    /// Forgets `opening`, which has ended, unless another one has begun since.
    fn forget(&self, shard: usize, opening: &Shared<Opening>) {
        let mut state = lock(&self.state);
        let current = state.openings.get(&shard).and_then(WeakShared::upgrade);
        if current.is_some_and(|current| current.ptr_eq(opening)) {
            state.openings.remove(&shard);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds a lock can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
