//! Fetching data blocks, and pieces of index and filters: those of one lookup, and those of many together.

use std::io;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};

use super::flights::{Plan, Response, Waiter};
use super::source::BoxFuture;
use super::table::AsyncTable;
use crate::error::{Error, ErrorKind, Result};
use crate::format::frame;
use crate::read::coalesce::coalesce;
use crate::read::file::{Stretch, saturating_len};
use crate::read::index::BlockRef;
use crate::read::parts::Part;
use crate::read::store::frame_range;

/// Most bytes of one request, unless a single block takes more.
pub(super) const MAX_REQUEST_LEN: u64 = 8 << 20;

/// Parts that lie at most so many bytes apart come with one request, and what lies between them with them: at 100 MB/s, that
/// takes less than a millisecond, and a request some thirty.
pub(super) const MAX_GAP: u64 = 64 << 10;

/// Most requests of one call that are on their way at once.
const MAX_IN_FLIGHT: usize = 32;

impl AsyncTable {
    /// A data block, from the cache or from the source: checked when it comes in.
    pub(super) async fn fetch_block(&self, found: BlockRef) -> Result<Bytes> {
        if let Some(block) = self.table.inner.cached(found) {
            return Ok(block);
        }
        let arrived = match self.join(&[frame_range(found.handle)]).pop() {
            Some(waiter) => self
                .arrive(waiter, |stretch, _| self.admit(stretch, found))
                .await?
                .pop(),
            None => None,
        };
        match arrived {
            Some(block) => Ok(block),
            None => {
                let stretch = self.fetch_alone(&frame_range(found.handle)).await?;
                self.admit(&stretch, found)
            }
        }
    }

    /// Those data blocks of `wanted`, which ascend, that are not in the cache: each with its number, in the order in which they
    /// arrive.
    pub(super) fn fetch_all<'a>(
        &'a self,
        wanted: &'a [BlockRef],
    ) -> BoxStream<'a, Result<Vec<(BlockRef, Bytes)>>> {
        let frames: Vec<Range<u64>> = wanted
            .iter()
            .map(|found| frame_range(found.handle))
            .collect();
        let waiters = stream::iter(self.join(&frames));
        let arrive = move |waiter| {
            self.arrive(waiter, move |stretch, frame| {
                let i = wanted.partition_point(|found| found.handle.offset < frame.start);
                let found = *wanted.get(i).ok_or_else(not_wanted)?;
                Ok((found, self.admit(stretch, found)?))
            })
        };
        waiters.map(arrive).buffer_unordered(MAX_IN_FLIGHT).boxed()
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
        let wanted = inner.unread(parts)?;
        let ranges: Vec<Range<u64>> = wanted.iter().map(|(range, _)| range.clone()).collect();
        let wanted = &wanted;
        let arrive = |waiter| {
            self.arrive(waiter, move |stretch, range| {
                let bytes = stretch.get(range).unwrap_or_default();
                let bytes = Bytes::copy_from_slice(&bytes);
                let mut parts = wanted.iter().filter(|(wanted, _)| wanted == range);
                parts.try_for_each(|(_, part)| inner.admit_part(*part, &bytes))
            })
        };
        let waiters = stream::iter(self.join(&ranges));
        let mut arrived = waiters.map(arrive).buffer_unordered(MAX_IN_FLIGHT);
        while arrived.try_next().await?.is_some() {}
        Ok(())
    }

    /// What `admit` makes of the wanted items that a request brings. One that is not sound is fetched once more, alone, before it is
    /// called damaged: it may have been damaged on its way. If a request for several fails, each is asked for alone: an error is that
    /// of one item.
    async fn arrive<T>(
        &self,
        waiter: Waiter,
        admit: impl Fn(&Stretch, &Range<u64>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let is_alone = waiter.items.iter().all(|item| *item == waiter.bytes);
        let stretch = match self.check(&waiter.bytes, waiter.response().await) {
            Err(error) if is_alone => return Err(error),
            stretch => stretch.ok(),
        };
        let mut admitted = Vec::with_capacity(waiter.items.len());
        for item in &waiter.items {
            admitted.push(match stretch.as_ref().map(|stretch| admit(stretch, item)) {
                Some(Ok(made)) => made,
                Some(Err(_)) | None => admit(&self.fetch_alone(item).await?, item)?,
            });
        }
        Ok(admitted)
    }

    /// The bytes at `range` by a request that nobody shares.
    async fn fetch_alone(&self, range: &Range<u64>) -> Result<Stretch> {
        self.check(range, self.request(range).await)
    }

    /// Joins or begins the requests for `items`, which ascend: those that lie near each other come with one.
    fn join(&self, items: &[Range<u64>]) -> Vec<Waiter> {
        let plan = |items: &[Range<u64>]| {
            let groups = coalesce(items, MAX_GAP, MAX_REQUEST_LEN).into_iter();
            let plan = groups.map(|group| Plan {
                bytes: group.bytes,
                items: items.get(group.parts).unwrap_or(&[]).to_vec(),
            });
            plan.collect()
        };
        self.flights.join(items, plan, |bytes| self.request(bytes))
    }

    /// The request for `bytes` of the file, which begins when it is polled.
    pub(super) fn request(&self, bytes: &Range<u64>) -> BoxFuture<'static, Response> {
        let (table, source) = (self.table.clone(), Arc::clone(&self.source));
        let (offset, len) = (bytes.start, saturating_len(bytes));
        Box::pin(async move {
            table.inner.file.count_read(offset, len);
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

    /// A data block that came with `stretch`: checked, kept in the cache, and in memory of its own, so that a value does not
    /// keep all that came with it.
    fn admit(&self, stretch: &Stretch, found: BlockRef) -> Result<Bytes> {
        let frame = frame(stretch, found);
        let frame = if frame::is_raw(&frame) {
            Bytes::copy_from_slice(&frame)
        } else {
            frame
        };
        self.table.inner.admit(found, &frame, self.table.read)
    }

    /// Like [`admit`](AsyncTable::admit), but a slice of `stretch` if the block is stored raw and the cache does not keep it. Returns
    /// the block, and whether it is such a slice.
    pub(super) fn admit_slice(&self, stretch: &Stretch, found: BlockRef) -> Result<(Bytes, bool)> {
        let (inner, read) = (&*self.table.inner, self.table.read);
        if read.fill_cache && inner.cache.is_some() {
            return Ok((self.admit(stretch, found)?, false));
        }
        let frame = frame(stretch, found);
        let block = inner.admit(found, &frame, read)?;
        Ok((block, frame::is_raw(&frame)))
    }
}

/// The frame of a data block. It is there, since the block is one that the stretch was read for: none would be an error like
/// a damaged one.
fn frame(stretch: &Stretch, found: BlockRef) -> Bytes {
    stretch.get(&frame_range(found.handle)).unwrap_or_default()
}

#[cold]
fn not_wanted() -> Error {
    Error::new(
        ErrorKind::InvalidState,
        "a request brings a block that nobody wants",
    )
}
