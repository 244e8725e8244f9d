//! Fetching data blocks, and pieces of index and filters: those of one lookup, and those of many together.

use std::io;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};

use super::flights::{Awaited, Flight};
use super::source::AsyncReadAt;
use super::table::AsyncTable;
use crate::error::{Error, ErrorKind, Result};
use crate::read::file::{Stretch, TableFile, coalesced, saturating_len};
use crate::read::index::BlockRef;
use crate::read::parts::Part;
use crate::read::store::frame_range;

/// Most bytes of one request, unless a single block takes more.
pub(super) const MAX_REQUEST_LEN: u64 = 8 << 20;

/// Parts that lie at most so many bytes apart come with one request, and what lies between them with them: at 100 MB/s, that
/// takes less than a millisecond, and a request some thirty.
const MAX_REQUEST_GAP: u64 = 64 << 10;

/// Most bytes between pieces of index and filters that come with one request. Requests for pieces are made at the same time, and a
/// piece is not much longer.
const MAX_PIECE_GAP: u64 = 16 << 10;

/// Most requests of one call that are on their way at once.
const MAX_IN_FLIGHT: usize = 32;

/// Requests parts of a file that is being opened, which ascend, all at the same time.
pub(in crate::read) async fn request_parts(
    file: &TableFile,
    source: &dyn AsyncReadAt,
    parts: &[Range<u64>],
) -> Result<Vec<Stretch>> {
    let parts = coalesced(parts, MAX_REQUEST_GAP, MAX_REQUEST_LEN);
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    file.count_reads(&parts);
    let mut responses = source.read_many_at(&parts).await.into_iter();
    let stretches = parts.iter().map(|&(offset, len)| {
        let none = || Err(io::Error::other("the source returned no result"));
        let response = responses.next().unwrap_or_else(none);
        let bytes = file.check_read(offset, len, response)?;
        Ok(Stretch { offset, bytes })
    });
    stretches.collect()
}

impl AsyncTable {
    /// A data block, from the cache or from the source: checked when it comes in.
    pub(super) async fn fetch_block(&self, found: BlockRef) -> Result<Bytes> {
        let (inner, read) = (&*self.table.inner, self.table.read);
        if let Some(block) = inner.cached(found) {
            return Ok(block);
        }
        let item = (frame_range(found.handle), found);
        let none = || Error::new(ErrorKind::InvalidState, "a request brought no block");
        let wanted = self
            .join(vec![item], MAX_REQUEST_GAP)
            .pop()
            .ok_or_else(none)?;
        let admit = |frame: &_, found| inner.admit(found, frame, read);
        self.arrive(wanted, admit).await?.pop().ok_or_else(none)
    }

    /// The data blocks `wanted`, which ascend, with their positions, in the order in which they arrive: those that are in the cache
    /// first.
    pub(super) fn fetch_blocks<'a>(
        &'a self,
        wanted: &[BlockRef],
    ) -> BoxStream<'a, Result<(usize, Bytes)>> {
        let (inner, read) = (&*self.table.inner, self.table.read);
        let (mut cached, mut missing) = (Vec::new(), Vec::new());
        for (at, &found) in wanted.iter().enumerate() {
            match inner.cached(found) {
                Some(block) => cached.push(Ok((at, block))),
                None => missing.push((frame_range(found.handle), (at, found))),
            }
        }
        let fetched = self.fetch(missing, MAX_REQUEST_GAP, move |frame, (at, found)| {
            Ok((at, inner.admit(found, frame, read)?))
        });
        stream::iter(cached).chain(fetched).boxed()
    }

    /// Fetches what is `missing` of index and filters, until nothing is: a key may be in any layer of a ribbon filter.
    pub(super) async fn bring_all(&self, missing: impl Fn() -> Vec<Part>) -> Result<()> {
        loop {
            let parts = missing();
            if parts.is_empty() {
                return Ok(());
            }
            self.bring(parts).await?;
        }
    }

    /// Reads parts of index and filters, all at once, and keeps them.
    pub(super) async fn bring(&self, parts: Vec<Part>) -> Result<()> {
        let inner = &*self.table.inner;
        let unread = inner.unread(parts);
        let admit = |bytes: &Bytes, part| inner.admit_part(part, bytes);
        let arriving = self.fetch(unread, MAX_PIECE_GAP, admit);
        arriving.try_collect().await
    }

    /// What `admit` makes of `items`, which ascend, in the order in which they arrive. Those that lie at most `max_gap` bytes apart
    /// come with one request, which other tasks share that want the same.
    fn fetch<'a, W: Copy + Send + Sync + 'a, T: Send + 'a>(
        &'a self,
        items: Vec<(Range<u64>, W)>,
        max_gap: u64,
        admit: impl Fn(&Bytes, W) -> Result<T> + Copy + Send + Sync + 'a,
    ) -> BoxStream<'a, Result<T>> {
        let arrive = move |wanted| self.arrive(wanted, admit);
        let arriving = stream::iter(self.join(items, max_gap)).map(arrive);
        let arrived = arriving.buffer_unordered(MAX_IN_FLIGHT);
        let each = |made: Vec<T>| stream::iter(made.into_iter().map(Ok));
        arrived.map_ok(each).try_flatten().boxed()
    }

    fn join<W>(&self, items: Vec<(Range<u64>, W)>, max_gap: u64) -> Vec<Awaited<W>> {
        self.flights
            .join(items, max_gap, |bytes| self.request(bytes))
    }

    /// What `admit` makes of the items that are wanted of a request, each in memory of its own, so that a value does not keep all that
    /// came with it.
    ///
    /// An item that is not sound is fetched once more, alone, before it is called damaged: it may have been damaged on its way. If a
    /// request fails, so do all its items, but one item of a request that another task made for more: that is asked for alone.
    async fn arrive<W: Copy, T>(
        &self,
        (flight, items): Awaited<W>,
        admit: impl Fn(&Bytes, W) -> Result<T>,
    ) -> Result<Vec<T>> {
        let is_part = matches!(&*items, [(item, _)] if *item != flight.bytes);
        let stretch = match flight.response.await {
            Err(error) if !is_part => return Err(error),
            stretch => stretch.unwrap_or_default(),
        };
        let mut admitted = Vec::with_capacity(items.len());
        for (item, of) in items {
            let own = stretch.get(&item).map(|it| Bytes::copy_from_slice(&it));
            admitted.push(match own.map(|own| admit(&own, of)) {
                Some(Ok(made)) => made,
                Some(Err(_)) | None => admit(&self.request(item).response.await?.bytes, of)?,
            });
        }
        Ok(admitted)
    }

    /// The request for `bytes` of the file, which begins when it is polled.
    pub(super) fn request(&self, bytes: Range<u64>) -> Flight {
        let (table, source) = (self.table.clone(), Arc::clone(&self.source));
        let (offset, len) = (bytes.start, saturating_len(&bytes));
        let response = async move {
            let file = &table.inner.file;
            file.count_reads(&[(offset, len)]);
            let read = async { source.read_at(offset, len).await };
            let read = AssertUnwindSafe(read).catch_unwind().await;
            let panicked = |_| Err(io::Error::other("the source panicked"));
            let bytes = file.check_read(offset, len, read.unwrap_or_else(panicked))?;
            Ok(Stretch { offset, bytes })
        };
        let response = response.boxed().shared();
        Flight { bytes, response }
    }
}
