//! The tables of a set that are open.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use leveltable::remote::{AsyncTable, BoxFuture};
use leveltable::{Result, Stats};

/// What comes of an opening, for all who wait for it. It goes on while any of them polls it, and is cancelled when all are gone.
type Opening = BoxFuture<'static, Result<AsyncTable>>;

/// Open tables by a number of their shard: at most so many, of which the one that was not used for longest is closed first.
///
/// A set and those that it becomes by being refreshed share a shelf, on which a shard keeps its number.
#[derive(Debug)]
pub(super) struct Shelf {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<usize, Open>,
    /// The number of the next shard.
    next: usize,
    /// May have ended, or been cancelled.
    openings: HashMap<usize, WeakShared<Opening>>,
    /// Rises with each use.
    clock: u64,
    /// The work of tables that were closed.
    closed: Stats,
}

#[derive(Debug)]
struct Open {
    table: AsyncTable,
    /// When it was last used.
    used: u64,
}

impl State {
    /// Forgets `opening`, which has ended. False if that was done before, also if another one has begun since, which stays.
    fn remove(&mut self, shard: usize, opening: &Shared<Opening>) -> bool {
        let current = self.openings.get(&shard).and_then(WeakShared::upgrade);
        let is_current = current.is_some_and(|current| current.ptr_eq(opening));
        if is_current {
            self.openings.remove(&shard);
        }
        is_current
    }
}

impl Shelf {
    pub(super) fn new(most: usize) -> Shelf {
        Shelf {
            most: most.max(1),
            state: Mutex::default(),
        }
    }

    /// A number for a shard that has none.
    pub(super) fn number(&self) -> usize {
        let mut state = self.state();
        state.next += 1;
        state.next
    }

    /// Closes the tables of all other shards.
    pub(super) fn keep_only(&self, shards: &HashSet<usize>) {
        let mut state = self.state();
        let gone = state.open.extract_if(|shard, _| !shards.contains(shard));
        let gone: Vec<Open> = gone.map(|(_, open)| open).collect();
        state.closed += gone.iter().map(|open| open.table.stats()).sum();
        drop(state);
    }

    /// The table of `shard`, by the future of `open` if it is not open yet. All who want it at the same time share one opening, and
    /// its error.
    pub(super) async fn table(
        &self,
        shard: usize,
        open: impl FnOnce() -> Opening,
    ) -> Result<AsyncTable> {
        let opening = match self.find(shard, open) {
            Ok(table) => return Ok(table),
            Err(opening) => opening,
        };
        match opening.clone().await {
            Ok(table) => {
                self.keep(shard, &opening, &table);
                Ok(table)
            }
            Err(error) => {
                // The next one tries again, also while somebody has yet to see this error.
                self.state().remove(shard, &opening);
                Err(error)
            }
        }
    }

    /// The table of `shard` if it is open.
    pub(super) fn open_table(&self, shard: usize) -> Option<AsyncTable> {
        Some(self.state().open.get(&shard)?.table.clone())
    }

    /// The work of all tables so far, and how many are open.
    pub(super) fn stats(&self) -> (Stats, usize) {
        let state = self.state();
        let open: Stats = state.open.values().map(|open| open.table.stats()).sum();
        (state.closed + open, state.open.len())
    }

    /// The open table, or the opening to wait for.
    fn find(
        &self,
        shard: usize,
        open: impl FnOnce() -> Opening,
    ) -> Result<AsyncTable, Shared<Opening>> {
        let mut state = self.state();
        state.clock += 1;
        let used = state.clock;
        if let Some(open) = state.open.get_mut(&shard) {
            open.used = used;
            return Ok(open.table.clone());
        }
        let on_its_way = state.openings.get(&shard).and_then(WeakShared::upgrade);
        Err(on_its_way.unwrap_or_else(|| {
            let opening = open().shared();
            state.openings.extend(Some(shard).zip(opening.downgrade()));
            opening
        }))
    }

    /// Puts the table of `shard`, which was just opened, on the shelf, unless another who waited for it has done so.
    fn keep(&self, shard: usize, opening: &Shared<Opening>, table: &AsyncTable) {
        let mut state = self.state();
        if !state.remove(shard, opening) {
            return;
        }
        let used = state.clock;
        let table = table.clone();
        state.open.insert(shard, Open { table, used });
        let mut closed = Vec::new();
        while state.open.len() > self.most {
            let oldest = state.open.iter().min_by_key(|(_, open)| open.used);
            let oldest = oldest.map(|(&shard, _)| shard);
            closed.extend(oldest.and_then(|shard| state.open.remove(&shard)));
        }
        state.closed += closed.iter().map(|open| open.table.stats()).sum();
        // A table may be large: it is not freed under the lock.
        drop(state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
