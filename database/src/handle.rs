//! The state that the clones of a database and its ranges share, and reading it again.

use std::sync::{Arc, PoisonError, RwLock};

use leveltable::Result;

use crate::state::{State, retry};
use crate::storage::Directory;

/// A database's directory, and its state as of opening, or of the last time it was read. Clones share both.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) dir: Arc<dyn Directory>,
    /// Locked only to read or replace the `Arc`.
    state: Arc<RwLock<Arc<State>>>,
}

impl Handle {
    pub(crate) fn new(state: State) -> Handle {
        Handle {
            dir: state.dir.clone(),
            state: Arc::new(RwLock::new(Arc::new(state))),
        }
    }

    pub(crate) fn state(&self) -> Arc<State> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }

    /// Reads the database again.
    pub(crate) fn read_again(&self) -> Result<()> {
        let known = self.state();
        let mut read = State::read(&self.dir, &known.options)?;
        if read.current == known.current {
            read.open_tables = known.open_tables.clone();
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read a later state.
        let progress = |state: &State| (state.last_sequence, state.version.bytes);
        if state.current != read.current || progress(&state) <= progress(&read) {
            *state = Arc::new(read);
        }
        Ok(())
    }

    /// Calls `work` with the state; if the state turns out to be out of date, reads the database again and repeats the call.
    pub(crate) fn with_state<T>(
        &self,
        mut work: impl FnMut(&Arc<State>) -> Result<T>,
    ) -> Result<T> {
        retry(|attempt| {
            if attempt > 1 {
                self.read_again()?;
            }
            work(&self.state())
        })
    }
}
