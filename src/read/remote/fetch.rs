//! Fetching data blocks, and pieces of index and filters: those of one lookup, and those of many together.

use std::io;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};

use super::flights::{Response, Wanted};
use super::source::{AsyncReadAt, BoxFuture};
use super::table::AsyncTable;
use crate::error::{Error, ErrorKind, Result};
use crate::format::frame;
use crate::read::file::{Stretch, TableFile, saturating_len};
use crate::read::index::BlockRef;
use crate::read::parts::Part;
use crate::read::store::frame_range;

/// Most bytes of one request, unless a single block takes more.
pub(super) const MAX_REQUEST_LEN: u64 = 8 << 20;

/// Parts that lie at most so many bytes apart come with one request, and what lies between them with them: at 100 MB/s, that
/// takes less than a millisecond, and a request some thirty.
pub(in crate::read) const MAX_GAP: u64 = 64 << 10;

/// Most bytes between pieces of index and filters that come with one request. Requests for pieces are made at the same time, and a
/// piece is not much longer.
const MAX_PIECE_GAP: u64 = 16 << 10;

/// Most requests of one call that are on their way at once.
const MAX_IN_FLIGHT: usize = 32;

/// Requests parts of a file that is being opened, all at the same time.
pub(in crate::read) async fn request_parts(
    file: &TableFile,
    source: &dyn AsyncReadAt,
    parts: &[(u64, usize)],
) -> Result<Vec<Stretch>> {
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    file.count_reads(parts);
    let mut responses = source.read_many_at(parts).await.into_iter();
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
        if let Some(block) = self.table.inner.cached(found) {
            return Ok(block);
        }
        let item = (frame_range(found.handle), found);
        let request = |bytes: &Range<u64>| self.request(bytes);
        let mut arrived = Vec::new();
        for wanted in self.flights.join(vec![item], MAX_GAP, request) {
            let admit = |stretch: &_, _: &_, found| self.admit(stretch, found, false);
            arrived.extend(self.arrive(wanted, admit).await?);
        }
        let none = || Error::new(ErrorKind::InvalidState, "a request brought no block");
        arrived.pop().map(|(block, _)| block).ok_or_else(none)
    }

    /// The data blocks `wanted`, which ascend, in the order in which they arrive: those that are in the cache first.
    pub(super) fn fetch_blocks<'a>(
        &'a self,
        wanted: &[BlockRef],
    ) -> BoxStream<'a, Result<Vec<(BlockRef, Bytes)>>> {
        let (mut cached, mut missing) = (Vec::new(), Vec::new());
        for &found in wanted {
            match self.table.inner.cached(found) {
                Some(block) => cached.push((found, block)),
                None => missing.push((frame_range(found.handle), found)),
            }
        }
        let fetched = self.fetch(missing, MAX_GAP, |stretch, _, found| {
            let (block, _) = self.admit(stretch, found, false)?;
            Ok((found, block))
        });
        stream::iter([Ok(cached)]).chain(fetched).boxed()
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

    /// Reads parts of index and filters, all at once, and keeps them. Tasks that want the same share the request.
    pub(super) async fn bring(&self, parts: Vec<Part>) -> Result<()> {
        let inner = &*self.table.inner;
        let unread = inner.unread(parts)?;
        let mut arrived = self.fetch(unread, MAX_PIECE_GAP, |stretch, range, part| {
            let bytes = stretch.get(range).unwrap_or_default();
            inner.admit_part(part, &Bytes::copy_from_slice(&bytes))
        });
        while arrived.try_next().await?.is_some() {}
        Ok(())
    }

    /// What `admit` makes of `items`, which ascend, in the order in which they arrive. Those that lie at most `max_gap` bytes apart
    /// come with one request.
    fn fetch<'a, W: Copy + Send + Sync + 'a, T: Send + 'a>(
        &'a self,
        items: Vec<(Range<u64>, W)>,
        max_gap: u64,
        admit: impl Fn(&Stretch, &Range<u64>, W) -> Result<T> + Copy + Send + Sync + 'a,
    ) -> BoxStream<'a, Result<Vec<T>>> {
        let wanted = self
            .flights
            .join(items, max_gap, |bytes| self.request(bytes));
        let arrive = move |wanted| self.arrive(wanted, admit);
        let arriving = stream::iter(wanted).map(arrive);
        arriving.buffer_unordered(MAX_IN_FLIGHT).boxed()
    }

    /// What `admit` makes of the items that are wanted of a request. One that is not sound is fetched once more, alone, before it is
    /// called damaged: it may have been damaged on its way. If a request for several fails, each is asked for alone: an error is that
    /// of one item.
    async fn arrive<W: Copy, T>(
        &self,
        (flight, items): Wanted<W>,
        admit: impl Fn(&Stretch, &Range<u64>, W) -> Result<T>,
    ) -> Result<Vec<T>> {
        let is_alone = items.iter().all(|(item, _)| *item == flight.bytes);
        let stretch = match self.check(&flight.bytes, flight.response().await) {
            Err(error) if is_alone => return Err(error),
            stretch => stretch.ok(),
        };
        let mut admitted = Vec::with_capacity(items.len());
        for (item, of) in items {
            let made = stretch.as_ref().map(|stretch| admit(stretch, &item, of));
            admitted.push(match made {
                Some(Ok(made)) => made,
                Some(Err(_)) | None => {
                    let alone = self.check(&item, self.request(&item).await)?;
                    admit(&alone, &item, of)?
                }
            });
        }
        Ok(admitted)
    }

    /// The request for `bytes` of the file, which begins when it is polled.
    pub(super) fn request(&self, bytes: &Range<u64>) -> BoxFuture<'static, Response> {
        let (table, source) = (self.table.clone(), Arc::clone(&self.source));
        let (offset, len) = (bytes.start, saturating_len(bytes));
        Box::pin(async move {
            table.inner.file.count_reads(&[(offset, len)]);
            let read = async { source.read_at(offset, len).await };
            let read = AssertUnwindSafe(read).catch_unwind().await;
            let panicked = |_| Err(io::Error::other("the source panicked"));
            read.unwrap_or_else(panicked).map_err(Arc::new)
        })
    }

    /// What the source returned for `bytes` of the file: as many, or an error.
    pub(super) fn check(&self, bytes: &Range<u64>, response: Response) -> Result<Stretch> {
        let response = response.map_err(|error| io::Error::new(error.kind(), error));
        let (offset, len) = (bytes.start, saturating_len(bytes));
        let bytes = self.table.inner.file.check_read(offset, len, response)?;
        Ok(Stretch { offset, bytes })
    }

    /// A data block that came with `stretch`: checked, and kept in the cache. In memory of its own, so that a value does not keep all
    /// that came with it; but a slice of `stretch` if that is allowed, the block is stored raw and the cache does not keep it.
    /// Returns whether it is a slice.
    pub(super) fn admit(
        &self,
        stretch: &Stretch,
        found: BlockRef,
        may_be_slice: bool,
    ) -> Result<(Bytes, bool)> {
        let (inner, read) = (&*self.table.inner, self.table.read);
        // It is there, since the stretch was read for the block: none would be an error like a damaged one.
        let frame = stretch.get(&frame_range(found.handle)).unwrap_or_default();
        let is_kept = read.fill_cache && inner.cache.is_some();
        let is_raw = frame::is_raw(&frame);
        let is_slice = is_raw && may_be_slice && !is_kept;
        let frame = if is_raw && !is_slice {
            Bytes::copy_from_slice(&frame)
        } else {
            frame
        };
        Ok((inner.admit(found, &frame, read)?, is_slice))
    }
}
