//! Fetching data blocks: those of one lookup, and those of many together.

use std::io;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use super::flights::{Plan, Response, Waiter};
use super::source::BoxFuture;
use super::table::AsyncTable;
use crate::error::Result;
use crate::format::frame;
use crate::read::coalesce::coalesce;
use crate::read::file::{Stretch, saturating_len};
use crate::read::options::ReadOptions;
use crate::read::store::frame_range;

/// Most bytes of one request, unless a single block takes more.
pub(super) const MAX_REQUEST_LEN: u64 = 8 << 20;

/// Parts that lie at most so many bytes apart come with one request, and what lies between them with them: at 100 MB/s, that
/// takes less than a millisecond, and a request some thirty.
pub(super) const MAX_GAP: u64 = 64 << 10;

/// Most requests of one call that are on their way at once.
const MAX_IN_FLIGHT: usize = 32;

impl AsyncTable {
    /// Data block `i`, from the cache or from the source: checked when it comes in.
    pub(super) async fn fetch_block(&self, i: usize) -> Result<Bytes> {
        let inner = &*self.table.inner;
        if let Some(block) = inner.cached(inner.index.block(i)) {
            return Ok(block);
        }
        let arrived = match self.join(&[i]).pop() {
            Some(waiter) => self.arrive(waiter).await?.pop(),
            None => None,
        };
        match arrived {
            Some((_, block)) => Ok(block),
            None => self.fetch_alone(i).await,
        }
    }

    /// Those data blocks of `wanted`, which ascend, that are not in the cache: each with its number, in the order in which they
    /// arrive.
    pub(super) fn fetch_all(&self, wanted: &[usize]) -> BoxStream<'_, Result<Vec<(usize, Bytes)>>> {
        let waiters = stream::iter(self.join(wanted));
        let arrive = |waiter| self.arrive(waiter);
        waiters.map(arrive).buffer_unordered(MAX_IN_FLIGHT).boxed()
    }

    /// The wanted blocks that a request brings. One that is not sound is fetched once more, alone, before it is called damaged: it may
    /// have been damaged on its way. If a request for several fails, each is asked for alone: an error is that of one block.
    async fn arrive(&self, waiter: Waiter) -> Result<Vec<(usize, Bytes)>> {
        let is_alone = waiter
            .blocks
            .iter()
            .all(|&i| self.frame_range(i) == waiter.bytes);
        let stretch = match self.check(&waiter.bytes, waiter.response().await) {
            Err(error) if is_alone => return Err(error),
            stretch => stretch.ok(),
        };
        let mut blocks = Vec::with_capacity(waiter.blocks.len());
        for &i in &waiter.blocks {
            let admit = |stretch| self.admit(stretch, i, self.table.read);
            let block = match stretch.as_ref().map(admit) {
                Some(Ok(block)) => block,
                Some(Err(_)) | None => self.fetch_alone(i).await?,
            };
            blocks.push((i, block));
        }
        Ok(blocks)
    }

    /// Data block `i` by a request that nobody shares.
    async fn fetch_alone(&self, i: usize) -> Result<Bytes> {
        let bytes = self.frame_range(i);
        let stretch = self.check(&bytes, self.request(&bytes).await)?;
        self.admit(&stretch, i, self.table.read)
    }

    /// Joins or begins the requests for `blocks`, which ascend.
    fn join(&self, blocks: &[usize]) -> Vec<Waiter> {
        let request = |bytes: &Range<u64>| self.request(bytes);
        self.flights
            .join(blocks, |blocks| self.plan(blocks), request)
    }

    /// Requests for `blocks`: those that lie near each other come with one.
    fn plan(&self, blocks: &[usize]) -> Vec<Plan> {
        let frames: Vec<Range<u64>> = blocks.iter().map(|&i| self.frame_range(i)).collect();
        let groups = coalesce(&frames, MAX_GAP, MAX_REQUEST_LEN).into_iter();
        let plan = groups.map(|group| Plan {
            bytes: group.bytes,
            blocks: blocks.get(group.parts).unwrap_or(&[]).to_vec(),
        });
        plan.collect()
    }

    fn frame_range(&self, i: usize) -> Range<u64> {
        frame_range(self.table.inner.index.handle(i))
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

    /// Data block `i`, which came with `stretch`: checked, kept in the cache, and in memory of its own, so that a value does not
    /// keep all that came with it.
    fn admit(&self, stretch: &Stretch, i: usize, read: ReadOptions) -> Result<Bytes> {
        let frame = self.frame(stretch, i);
        let frame = if frame::is_raw(&frame) {
            Bytes::copy_from_slice(&frame)
        } else {
            frame
        };
        let inner = &*self.table.inner;
        inner.admit(inner.index.block(i), &frame, read)
    }

    /// Like [`admit`](AsyncTable::admit), but a slice of `stretch` if the block is stored raw and the cache does not keep it. Returns
    /// the block, and whether it is such a slice.
    pub(super) fn admit_slice(
        &self,
        stretch: &Stretch,
        i: usize,
        read: ReadOptions,
    ) -> Result<(Bytes, bool)> {
        let inner = &*self.table.inner;
        if read.fill_cache && inner.cache.is_some() {
            return Ok((self.admit(stretch, i, read)?, false));
        }
        let frame = self.frame(stretch, i);
        let block = inner.admit(inner.index.block(i), &frame, read)?;
        Ok((block, frame::is_raw(&frame)))
    }

    /// The frame of data block `i`. It is there, since the block is one that the stretch was read for: none would be an error like
    /// a damaged one.
    fn frame(&self, stretch: &Stretch, i: usize) -> Bytes {
        stretch.get(&self.frame_range(i)).unwrap_or_default()
    }
}
