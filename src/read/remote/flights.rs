//! Requests on their way, which all tasks share that want the same blocks, or the same pieces of index and filters.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::{FutureExt, Shared};

use super::source::BoxFuture;

/// What a request brings. Its error is that of all who wait for it.
pub(super) type Response = Result<Bytes, Arc<io::Error>>;

/// The requests of a table that are on their way, by the items that they bring: bytes of the file that belong together.
#[derive(Debug, Default)]
pub(super) struct Flights {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_item: HashMap<Range<u64>, u64>,
    flights: HashMap<u64, Flight>,
    next: u64,
}

/// A request, and how many wait for it.
#[derive(Debug)]
struct Flight {
    bytes: Range<u64>,
    items: Vec<Range<u64>>,
    response: Shared<BoxFuture<'static, Response>>,
    waiting: usize,
}

/// Waits for a request. When the last waiter is dropped, the request is cancelled, or forgotten if it has arrived.
#[derive(Debug)]
pub(super) struct Waiter {
    flights: Arc<Flights>,
    number: u64,
    /// Which bytes of the file the request brings, and which of its items are wanted here.
    pub(super) bytes: Range<u64>,
    pub(super) items: Vec<Range<u64>>,
    response: Shared<BoxFuture<'static, Response>>,
}

/// A request that was not made yet: the bytes that it brings, and which of its items are wanted.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) bytes: Range<u64>,
    pub(super) items: Vec<Range<u64>>,
}

impl Flights {
    /// Joins the requests that bring `items`, and begins those of the `plan` for items that none brings yet. A request that is
    /// begun does nothing until it is awaited.
    ///
    /// The plan is made while no other request can begin or be forgotten, so that nothing is asked for twice.
    pub(super) fn join(
        self: &Arc<Flights>,
        items: &[Range<u64>],
        plan: impl FnOnce(&[Range<u64>]) -> Vec<Plan>,
        request: impl Fn(&Range<u64>) -> BoxFuture<'static, Response>,
    ) -> Vec<Waiter> {
        let mut state = self.state();
        let mut waiters = Vec::new();
        let mut new = Vec::new();
        let mut joined = HashMap::new();
        for item in items {
            let number = state.by_item.get(item).copied();
            // A request that failed is only for those who waited for it.
            let is_sound = |number: &u64| {
                let flight = state.flights.get(number);
                flight.is_some_and(|flight| flight.response.peek().is_none_or(Result::is_ok))
            };
            match number.filter(is_sound) {
                Some(number) => joined
                    .entry(number)
                    .or_insert_with(Vec::new)
                    .push(item.clone()),
                None => new.push(item.clone()),
            }
        }
        for (number, items) in joined {
            if let Some(flight) = state.flights.get_mut(&number) {
                flight.waiting += 1;
                waiters.push(self.waiter(number, items, flight));
            }
        }
        for Plan { bytes, items } in plan(&new) {
            let number = state.next;
            state.next += 1;
            for item in &items {
                state.by_item.insert(item.clone(), number);
            }
            let response = request(&bytes).shared();
            let flight = Flight {
                bytes,
                items: items.clone(),
                response,
                waiting: 1,
            };
            waiters.push(self.waiter(number, items, &flight));
            state.flights.insert(number, flight);
        }
        waiters
    }

    fn waiter(self: &Arc<Flights>, number: u64, items: Vec<Range<u64>>, flight: &Flight) -> Waiter {
        Waiter {
            flights: Arc::clone(self),
            number,
            bytes: flight.bytes.clone(),
            items,
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
        for item in forgotten.iter().flat_map(|flight| &flight.items) {
            if state.by_item.get(item) == Some(&self.number) {
                state.by_item.remove(item);
            }
        }
        // To drop the request is to cancel it, which is the source's code: not under the lock.
        drop(state);
        drop(forgotten);
    }
}
