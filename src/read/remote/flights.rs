//! Requests on their way, which all tasks share that want the same blocks.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::{FutureExt, Shared};

use super::source::BoxFuture;

/// What a request brings. Its error is that of all who wait for it.
pub(super) type Response = Result<Bytes, Arc<io::Error>>;

/// The requests of a table that are on their way, by the data blocks that they bring.
#[derive(Debug, Default)]
pub(super) struct Flights {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_block: HashMap<usize, u64>,
    flights: HashMap<u64, Flight>,
    next: u64,
}

/// A request, and how many wait for it.
#[derive(Debug)]
struct Flight {
    bytes: Range<u64>,
    blocks: Vec<usize>,
    response: Shared<BoxFuture<'static, Response>>,
    waiting: usize,
}

/// Waits for a request. When the last waiter is dropped, the request is cancelled, or forgotten if it has arrived.
#[derive(Debug)]
pub(super) struct Waiter {
    flights: Arc<Flights>,
    number: u64,
    /// Which bytes of the file the request brings, and which of its blocks are wanted here.
    pub(super) bytes: Range<u64>,
    pub(super) blocks: Vec<usize>,
    response: Shared<BoxFuture<'static, Response>>,
}

/// A request that was not made yet: the bytes that it brings, and which of its blocks are wanted.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) bytes: Range<u64>,
    pub(super) blocks: Vec<usize>,
}

impl Flights {
    /// Joins the requests that bring `blocks`, and begins those of the `plan` for blocks that none brings yet. A request that is
    /// begun does nothing until it is awaited.
    ///
    /// The plan is made while no other request can begin or be forgotten, so that no block is asked for twice.
    pub(super) fn join(
        self: &Arc<Flights>,
        blocks: &[usize],
        plan: impl FnOnce(&[usize]) -> Vec<Plan>,
        request: impl Fn(&Range<u64>) -> BoxFuture<'static, Response>,
    ) -> Vec<Waiter> {
        let mut state = self.state();
        let mut waiters = Vec::new();
        let mut new = Vec::new();
        let mut joined = HashMap::new();
        for &i in blocks {
            let number = state.by_block.get(&i).copied();
            // A request that failed is only for those who waited for it.
            let is_sound = |number: &u64| {
                let flight = state.flights.get(number);
                flight.is_some_and(|flight| flight.response.peek().is_none_or(Result::is_ok))
            };
            match number.filter(is_sound) {
                Some(number) => joined.entry(number).or_insert_with(Vec::new).push(i),
                None => new.push(i),
            }
        }
        for (number, blocks) in joined {
            if let Some(flight) = state.flights.get_mut(&number) {
                flight.waiting += 1;
                waiters.push(self.waiter(number, blocks, flight));
            }
        }
        for Plan { bytes, blocks } in plan(&new) {
            let number = state.next;
            state.next += 1;
            for &i in &blocks {
                state.by_block.insert(i, number);
            }
            let response = request(&bytes).shared();
            let flight = Flight {
                bytes,
                blocks: blocks.clone(),
                response,
                waiting: 1,
            };
            waiters.push(self.waiter(number, blocks, &flight));
            state.flights.insert(number, flight);
        }
        waiters
    }

    fn waiter(self: &Arc<Flights>, number: u64, blocks: Vec<usize>, flight: &Flight) -> Waiter {
        Waiter {
            flights: Arc::clone(self),
            number,
            bytes: flight.bytes.clone(),
            blocks,
            response: flight.response.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// What the request brings. Only while somebody awaits it, it goes on.
    pub(super) async fn response(&self) -> Response {
        self.response.clone().await
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.flights.state();
        let Some(flight) = state.flights.get_mut(&self.number) else {
            return;
        };
        flight.waiting -= 1;
        if flight.waiting > 0 {
            return;
        }
        let forgotten = state.flights.remove(&self.number);
        for i in forgotten.iter().flat_map(|flight| &flight.blocks) {
            if state.by_block.get(i) == Some(&self.number) {
                state.by_block.remove(i);
            }
        }
        // To drop the request is to cancel it, which is the source's code: not under the lock.
        drop(state);
        drop(forgotten);
    }
}
