//! Requests on their way, which all tasks share that want the same blocks, or the same pieces of index and filters.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use futures_util::future::{FutureExt, Shared};

use super::fetch::MAX_REQUEST_LEN;
use super::source::BoxFuture;
use crate::read::coalesce::coalesce;

/// What a request brings. Its error is that of all who wait for it.
pub(super) type Response = Result<Bytes, Arc<io::Error>>;

/// The requests of a table that are on their way, by the items that they bring: bytes of the file that belong together.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<ByItem>);

type ByItem = HashMap<Range<u64>, Weak<Flight>>;

/// A request. When nobody waits for it any more, it is cancelled, or forgotten if it has arrived.
#[derive(Debug)]
pub(super) struct Flight {
    /// Which bytes of the file it brings, and which items.
    pub(super) bytes: Range<u64>,
    items: Vec<Range<u64>>,
    response: Shared<BoxFuture<'static, Response>>,
    flights: Arc<Flights>,
}

/// A request, and what is wanted of it: items, and what each is for.
pub(super) type Wanted<W> = (Arc<Flight>, Vec<(Range<u64>, W)>);

impl Flights {
    /// Joins the requests that bring `items`, which ascend, and begins others for items that none brings yet: those that lie at
    /// most `max_gap` bytes apart come with one. A request that is begun does nothing until it is awaited.
    pub(super) fn join<W>(
        self: &Arc<Flights>,
        items: Vec<(Range<u64>, W)>,
        max_gap: u64,
        request: impl Fn(&Range<u64>) -> BoxFuture<'static, Response>,
    ) -> Vec<Wanted<W>> {
        let (mut joined, mut new): (Vec<Wanted<W>>, _) = (Vec::new(), Vec::new());
        // Dropped after the lock, which a flight takes when it is dropped.
        let mut failed = Vec::new();
        let mut by_item = self.lock();
        for item in items {
            let flight = by_item.get(&item.0).and_then(Weak::upgrade);
            match (flight, joined.last_mut()) {
                (None, _) => new.push(item),
                // A request that failed is only for those who waited for it.
                (Some(flight), _) if matches!(flight.response.peek(), Some(Err(_))) => {
                    failed.push(flight);
                    new.push(item);
                }
                (Some(flight), Some((last, items))) if Arc::ptr_eq(&flight, last) => {
                    items.push(item);
                }
                (Some(flight), _) => joined.push((flight, vec![item])),
            }
        }
        let ranges: Vec<Range<u64>> = new.iter().map(|(range, _)| range.clone()).collect();
        let mut new = new.into_iter();
        for group in coalesce(&ranges, max_gap, MAX_REQUEST_LEN) {
            let items: Vec<(Range<u64>, W)> = new.by_ref().take(group.parts.len()).collect();
            let flight = Arc::new(Flight {
                response: request(&group.bytes).shared(),
                bytes: group.bytes,
                items: items.iter().map(|(range, _)| range.clone()).collect(),
                flights: Arc::clone(self),
            });
            let of_flight = |item: &Range<u64>| (item.clone(), Arc::downgrade(&flight));
            by_item.extend(flight.items.iter().map(of_flight));
            joined.push((flight, items));
        }
        joined
    }

    fn lock(&self) -> MutexGuard<'_, ByItem> {
        // Nothing that holds the lock can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// What the request brings. Only while somebody awaits it, it goes on.
    pub(super) async fn response(&self) -> Response {
        self.response.clone().await
    }
}

impl Drop for Flight {
    /// The request itself is dropped after this, and so cancelled, which is the source's code: not under the lock.
    fn drop(&mut self) {
        let mut by_item = self.flights.lock();
        for item in &self.items {
            let other = by_item.get(item).map(Weak::as_ptr);
            if other.is_some_and(|flight| std::ptr::eq(flight, self)) {
                by_item.remove(item);
            }
        }
    }
}
