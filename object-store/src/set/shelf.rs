//! The tables of a set that are open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leveltable::remote::AsyncTable;
use leveltable::{Result, Stats};
use tokio::sync::OnceCell;

/// Open tables by the number of their shard: at most so many, of which the one that was not used for longest is closed first.
#[derive(Debug)]
pub(super) struct Shelf {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: HashMap<usize, Slot>,
    /// Rises with each use.
    clock: u64,
    /// The work of tables that were closed.
    closed: Stats,
}

#[derive(Debug)]
struct Slot {
    table: Arc<OnceCell<AsyncTable>>,
    /// When it was last used.
    used: u64,
}

/// Someone who waits for a table. The last one to leave before it is open takes its slot away.
struct Waiting<'a> {
    shelf: &'a Shelf,
    shard: usize,
    table: Arc<OnceCell<AsyncTable>>,
}

impl Shelf {
    pub(super) fn new(most: usize) -> Shelf {
        Shelf {
            most: most.max(1),
            state: Mutex::default(),
        }
    }

    /// The table of `shard`, which `open` opens if it is not open yet. All who want it at the same time share one opening; if that
    /// one fails or is dropped, the next one in the queue tries.
    pub(super) async fn table(
        &self,
        shard: usize,
        open: impl Future<Output = Result<AsyncTable>>,
    ) -> Result<AsyncTable> {
        let waiting = self.wait_for(shard);
        if let Some(table) = waiting.table.get() {
            return Ok(table.clone());
        }
        let table = waiting.table.get_or_try_init(|| open).await?.clone();
        self.close_surplus();
        Ok(table)
    }

    /// The table of `shard` if it is open.
    pub(super) fn open_table(&self, shard: usize) -> Option<AsyncTable> {
        self.state().slots.get(&shard)?.table.get().cloned()
    }

    /// The work of all tables so far, and how many are open.
    pub(super) fn stats(&self) -> (Stats, usize) {
        let state = self.state();
        let open: Vec<_> = state.open().map(|(_, table)| table.stats()).collect();
        let sum = open.iter().copied().fold(state.closed, |a, b| a + b);
        (sum, open.len())
    }

    fn wait_for(&self, shard: usize) -> Waiting<'_> {
        let mut state = self.state();
        state.clock += 1;
        let used = state.clock;
        let slot = state.slots.entry(shard).or_insert_with(|| Slot {
            table: Arc::default(),
            used,
        });
        slot.used = used;
        Waiting {
            shelf: self,
            shard,
            table: Arc::clone(&slot.table),
        }
    }

    fn close_surplus(&self) {
        let mut closed = Vec::new();
        let mut state = self.state();
        while state.open().count() > self.most {
            let oldest = state
                .open()
                .min_by_key(|(shard, _)| state.slots.get(shard).map(|slot| slot.used));
            let Some((shard, stats)) = oldest.map(|(shard, table)| (shard, table.stats())) else {
                break;
            };
            state.closed += stats;
            closed.extend(state.slots.remove(&shard));
        }
        // A table may be large: not under the lock.
        drop(state);
        drop(closed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&self) -> impl Iterator<Item = (usize, &AsyncTable)> {
        self.slots
            .iter()
            .filter_map(|(&shard, slot)| Some((shard, slot.table.get()?)))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.table.initialized() {
            return;
        }
        let mut state = self.shelf.state();
        let is_own = |slot: &&Slot| Arc::ptr_eq(&slot.table, &self.table);
        let slot = state.slots.get(&self.shard).filter(is_own);
        // The slot's and this one: nobody else waits.
        if slot.is_some() && Arc::strong_count(&self.table) == 2 && !self.table.initialized() {
            state.slots.remove(&self.shard);
        }
    }
}
