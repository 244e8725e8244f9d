//! Fetches data blocks, and pieces of index and filters: for one lookup, or for many together.

use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};

use super::flights::{Awaited, Flight, Flights};
use crate::error::{Error, ErrorKind, Result, Section};
use crate::read::parts::index::BlockRef;
use crate::read::parts::{Missing, Part, Parts};
use crate::read::source::async_read_at::{AsyncReadAt, MAX_REQUEST_GAP};
use crate::read::source::coalesce::saturating_len;
use crate::read::source::file::FileSlice;
use crate::read::table::Table;
use crate::read::table::opened::{MAX_READS, Opened, still_missing};

/// Maximum number of bytes between pieces of index and filters that are fetched by one request. Requests for pieces are made at
/// the same time, and a piece is not much longer than this.
const MAX_PIECE_GAP: u64 = 16 << 10;

/// Maximum number of requests of one call that are in flight.
const MAX_IN_FLIGHT: usize = 32;

/// Number of layers of a ribbon filter whose pieces are requested at once: 99 % of keys then need no second round trip.
pub(super) const REQUEST_LAYERS: usize = 2;

/// A table that decides what to read, the source to read it from, and the requests in flight.
#[derive(Clone)]
pub(super) struct Fetcher {
    pub(super) table: Table,
    source: Arc<dyn AsyncReadAt>,
    flights: Arc<Flights>,
}

/// Shows the table.
impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl Fetcher {
    pub(super) fn new(table: Table, source: Arc<dyn AsyncReadAt>) -> Fetcher {
        Fetcher {
            table,
            source,
            flights: Arc::default(),
        }
    }

    /// A data block, from the cache or from the source, checked on arrival.
    pub(super) async fn fetch_block(&self, found: BlockRef) -> Result<Bytes> {
        let Opened { parts, store, .. } = &*self.table.opened;
        if let Some(block) = store.cached(parts, found) {
            return Ok(block);
        }
        let item = (found.handle.frame_in_file(), found);
        let none = || Error::new(ErrorKind::InvalidState, "a request brought no block");
        let wanted = self.join(vec![item], MAX_REQUEST_GAP).pop();
        let admit = |frame: &_, found| store.admit(parts, found, frame, self.table.read);
        let arrived = self.arrive(wanted.ok_or_else(none)?, |_| Section::Data, admit);
        arrived.await?.pop().ok_or_else(none)
    }

    /// The data blocks `wanted`, which ascend, with their positions, in the order of arrival: those in the cache first.
    pub(super) fn fetch_blocks<'a>(
        &'a self,
        wanted: &[BlockRef],
    ) -> BoxStream<'a, Result<(usize, Bytes)>> {
        let (Opened { parts, store, .. }, read) = (&*self.table.opened, self.table.read);
        let (mut cached, mut missing) = (Vec::new(), Vec::new());
        for (at, &found) in wanted.iter().enumerate() {
            match store.cached(parts, found) {
                Some(block) => cached.push(Ok((at, block))),
                None => missing.push((found.handle.frame_in_file(), (at, found))),
            }
        }
        let admit =
            move |frame: &Bytes, (at, found)| Ok((at, store.admit(parts, found, frame, read)?));
        let fetched = self.fetch(missing, MAX_REQUEST_GAP, |_| Section::Data, admit);
        stream::iter(cached).chain(fetched).boxed()
    }

    /// Returns the answer of `ask`, which answers or names the missing parts: those are fetched, and it is asked again.
    pub(super) async fn ask<T>(&self, mut ask: impl FnMut() -> Result<T, Missing>) -> Result<T> {
        for _ in 0..=MAX_READS {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(missing) => self.read_parts(missing).await?,
            }
        }
        Err(still_missing())
    }

    /// Reads parts of index and filters, all at once, and keeps them.
    pub(super) async fn read_parts(&self, parts: Vec<Part>) -> Result<()> {
        let opened = &*self.table.opened;
        let unread = opened.parts.unread(parts);
        let admit = |bytes: &Bytes, part| opened.admit_part(part, bytes);
        let arriving = self.fetch(unread, MAX_PIECE_GAP, Parts::section, admit);
        arriving.try_collect().await
    }

    /// Returns the results of `admit` for `items`, which ascend, in the order of arrival. Items at most `max_gap` bytes apart are
    /// fetched by one request, which other tasks that want the same items share.
    fn fetch<'a, W: Copy + Send + Sync + 'a, T: Send + 'a>(
        &'a self,
        items: Vec<(Range<u64>, W)>,
        max_gap: u64,
        section: fn(W) -> Section,
        admit: impl Fn(&Bytes, W) -> Result<T> + Copy + Send + Sync + 'a,
    ) -> BoxStream<'a, Result<T>> {
        let arrive = move |wanted| self.arrive(wanted, section, admit);
        let arriving = stream::iter(self.join(items, max_gap)).map(arrive);
        let arrived = arriving.buffer_unordered(MAX_IN_FLIGHT);
        let each = |made: Vec<T>| stream::iter(made.into_iter().map(Ok));
        arrived.map_ok(each).try_flatten().boxed()
    }

    fn join<W>(&self, items: Vec<(Range<u64>, W)>, max_gap: u64) -> Vec<Awaited<W>> {
        self.flights
            .join(items, max_gap, |bytes| self.request(bytes))
    }

    /// The results of `admit` for the wanted items of a request, each in its own memory, so that a value does not keep the whole
    /// response.
    ///
    /// A damaged item is fetched once more, alone, before it is reported as damaged: it may have been damaged in transit. If a
    /// request fails, so do all its items, with one exception: if another task made the request for more than this one item, the
    /// item is requested again, alone.
    async fn arrive<W: Copy, T>(
        &self,
        (flight, items): Awaited<W>,
        section: impl Fn(W) -> Section,
        admit: impl Fn(&Bytes, W) -> Result<T>,
    ) -> Result<Vec<T>> {
        let is_part = matches!(&*items, [(item, _)] if *item != flight.bytes);
        let failed = |error: Error, of| Err(error.of_section(section(of)));
        let slice = match (flight.response.await, items.first()) {
            (Err(error), Some(&(_, of))) if !is_part => return failed(error, of),
            (slice, _) => slice.unwrap_or_default(),
        };
        let mut admitted = Vec::with_capacity(items.len());
        for (item, of) in items {
            let own = slice.get(&item).map(|it| Bytes::copy_from_slice(&it));
            if let Some(Ok(made)) = own.map(|own| admit(&own, of)) {
                admitted.push(made);
                continue;
            }
            match self.request(item).response.await {
                Ok(alone) => admitted.push(admit(&alone.bytes, of)?),
                Err(error) => return failed(error, of),
            }
        }
        Ok(admitted)
    }

    /// The request for `bytes` of the file, which begins when it is polled.
    pub(super) fn request(&self, bytes: Range<u64>) -> Flight {
        let (table, source) = (self.table.clone(), Arc::clone(&self.source));
        let (offset, len) = (bytes.start, saturating_len(&bytes));
        let response = async move {
            let file = &table.opened.store.file;
            file.count_reads(&[(offset, len)]);
            let read = async { source.read_at(offset, len).await };
            let read = AssertUnwindSafe(read).catch_unwind().await;
            let panicked = |_| Err(io::Error::other("the source panicked"));
            let bytes = file.check_read(offset, len, read.unwrap_or_else(panicked))?;
            Ok(FileSlice { offset, bytes })
        };
        let response = response.boxed().shared();
        Flight { bytes, response }
    }
}
