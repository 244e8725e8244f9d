//! Requests in flight, shared by all tasks that want the same blocks, or the same pieces of index and filters.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use futures_util::future::{Shared, WeakShared};

use crate::error::Result;
use crate::read::source::async_read_at::{BoxFuture, MAX_REQUEST_LEN};
use crate::read::source::coalesce::coalesce;
use crate::read::source::file::FileSlice;

/// The result of a request. All who wait for it get its error.
type Response = BoxFuture<'static, Result<FileSlice>>;

/// A request. It goes on while anybody awaits it. When nobody holds it any more, it is cancelled, or forgotten if it has
/// arrived.
#[derive(Clone)]
pub(super) struct Flight {
    /// The bytes of the file that it fetches.
    pub(super) bytes: Range<u64>,
    pub(super) response: Shared<Response>,
}

/// A request, and the items wanted from it: the bytes of each, and what it is for.
pub(super) type Awaited<W> = (Flight, Vec<(Range<u64>, W)>);

/// A table's requests in flight, by the items that they fetch. Each item comes with all bytes that its request fetches.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Range<u64>, OnItsWay>>);

/// The bytes of the file that a request fetches, and the request while anybody awaits it.
type OnItsWay = (Range<u64>, WeakShared<Response>);

impl Flights {
    /// Joins the requests that fetch `items`, which ascend, and begins others for the remaining items: one request for items at
    /// most `max_gap` bytes apart. A new request does nothing until it is awaited.
    pub(super) fn join<W>(
        &self,
        items: Vec<(Range<u64>, W)>,
        max_gap: u64,
        request: impl Fn(Range<u64>) -> Flight,
    ) -> Vec<Awaited<W>> {
        let (mut joined, mut new): (Vec<Awaited<W>>, _) = (Vec::new(), Vec::new());
        // Dropped after the lock is released: the last owner of a request drops the source's future, which may use the
        // table.
        let mut upgraded = Vec::new();
        // No code that holds the lock can panic.
        let mut by_item = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for item in items {
            let flight = by_item.get(&item.0).and_then(|(bytes, response)| {
                let (bytes, response) = (bytes.clone(), response.upgrade()?);
                // A failed request only concerns those who waited for it.
                let has_failed = matches!(response.peek(), Some(Err(_)));
                (!has_failed).then_some(Flight { bytes, response })
            });
            match (flight, joined.last_mut()) {
                (None, _) => new.push(item),
                (Some(flight), Some((last, items))) if flight.bytes == last.bytes => {
                    items.push(item);
                }
                (Some(flight), _) => joined.push((flight, vec![item])),
            }
        }
        if by_item.len() == by_item.capacity() {
            // Before it grows, it removes those that nobody holds any more.
            by_item.retain(|_, (_, response)| {
                let response = response.upgrade();
                let is_there = response.is_some();
                upgraded.extend(response);
                is_there
            });
        }
        let ranges: Vec<Range<u64>> = new.iter().map(|(range, _)| range.clone()).collect();
        let mut new = new.into_iter();
        for group in coalesce(&ranges, max_gap, MAX_REQUEST_LEN) {
            let flight = request(group.bytes);
            let items: Vec<(Range<u64>, W)> = new.by_ref().take(group.items.len()).collect();
            by_item.extend(items.iter().filter_map(|(item, _)| {
                let response = flight.response.downgrade()?;
                Some((item.clone(), (flight.bytes.clone(), response)))
            }));
            joined.push((flight, items));
        }
        joined
    }
}
