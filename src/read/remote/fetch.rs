//! Fetching data blocks: those of one lookup, and those of many together.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use super::flights::{Plan, Response, Ticket};
use super::missing::MOST_GAP;
use super::source::BoxFuture;
use super::table::AsyncTable;
use crate::error::Result;
use crate::format::frame;
use crate::read::fetch::Run;
use crate::read::options::ReadOptions;

/// Most bytes of one request, unless a single block takes more.
pub(super) const MOST_REQUEST_LEN: u64 = 8 << 20;

/// Most requests of one call that are on their way at once.
pub(super) const MOST_IN_FLIGHT: usize = 32;

impl AsyncTable {
    /// Data block `i`, from the cache or from the source: checked when it comes in.
    pub(super) async fn fetch_block(&self, i: usize) -> Result<Bytes> {
        let inner = &*self.table.inner;
        if let Some(block) = inner.cached(inner.index.block(i)) {
            return Ok(block);
        }
        let arrived = match self.board(&[i]).pop() {
            Some(ticket) => self.arrive(ticket).await?.pop(),
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
        let tickets = stream::iter(self.board(wanted));
        let arrive = |ticket| self.arrive(ticket);
        tickets.map(arrive).buffer_unordered(MOST_IN_FLIGHT).boxed()
    }

    /// The wanted blocks that a request brings. If it was for several and fails, or what it brings is not sound, each is asked for
    /// alone: an error is that of one block.
    async fn arrive(&self, ticket: Ticket) -> Result<Vec<(usize, Bytes)>> {
        let is_alone = ticket.run.blocks.len() == 1;
        let bytes = match self.check(&ticket.run, ticket.response().await) {
            Err(error) if is_alone => return Err(error),
            bytes => bytes.ok(),
        };
        let mut blocks = Vec::with_capacity(ticket.blocks.len());
        for &i in &ticket.blocks {
            let admit = |bytes| self.admit(&ticket.run, bytes, i, self.table.read);
            let block = match bytes.as_ref().map(admit) {
                Some(Ok(block)) => block,
                Some(Err(error)) if is_alone => return Err(error),
                Some(Err(_)) | None => self.fetch_alone(i).await?,
            };
            blocks.push((i, block));
        }
        Ok(blocks)
    }

    /// Data block `i` by a request that nobody shares.
    async fn fetch_alone(&self, i: usize) -> Result<Bytes> {
        let run = self.table.inner.run(i..i + 1);
        let bytes = self.check(&run, self.request(&run).await)?;
        self.admit(&run, &bytes, i, self.table.read)
    }

    /// Joins or begins the requests for `blocks`.
    fn board(&self, blocks: &[usize]) -> Vec<Ticket> {
        let plan = |blocks: &[usize]| self.plan(blocks.iter().copied());
        let request = |run: &Run| self.request(run);
        self.flights.board(blocks, plan, request)
    }

    /// Requests for the blocks of `missing`, in ascending order: blocks that lie near each other come with one.
    fn plan(&self, missing: impl Iterator<Item = usize>) -> Vec<Plan> {
        let inner = &*self.table.inner;
        let mut plans: Vec<Plan> = Vec::new();
        for i in missing {
            let alone = inner.run(i..i + 1);
            let last = plans.last_mut().filter(|last| {
                let gap = alone.offset - (last.run.offset + last.run.len);
                let len = alone.offset + alone.len - last.run.offset;
                gap <= MOST_GAP && len <= MOST_REQUEST_LEN
            });
            match last {
                Some(last) => {
                    last.run = inner.run(last.run.blocks.start..i + 1);
                    last.blocks.push(i);
                }
                None => plans.push(Plan {
                    run: alone,
                    blocks: vec![i],
                }),
            }
        }
        plans
    }

    /// The request for `run`, which begins when it is polled.
    pub(super) fn request(&self, run: &Run) -> BoxFuture<'static, Response> {
        let (table, source, run) = (self.table.clone(), Arc::clone(&self.source), run.clone());
        Box::pin(async move {
            // A block that does not fit the memory of a 32-bit machine.
            let len = usize::try_from(run.len)
                .map_err(|_| Arc::new(io::ErrorKind::OutOfMemory.into()))?;
            table.inner.file.count_read(run.offset, len);
            let read = async { source.read_at(run.offset, len).await };
            let read = AssertUnwindSafe(read).catch_unwind().await;
            let panicked = |_| Err(io::Error::other("the source panicked"));
            read.unwrap_or_else(panicked).map_err(Arc::new)
        })
    }

    /// What the source returned for `run`: as many bytes, or an error.
    pub(super) fn check(&self, run: &Run, response: Response) -> Result<Bytes> {
        let response = response.map_err(|error| io::Error::new(error.kind(), error));
        let len = usize::try_from(run.len).unwrap_or(usize::MAX);
        self.table.inner.file.check_read(run.offset, len, response)
    }

    /// Data block `i`, of which `bytes` came with `run`: checked, kept in the cache, and in memory of its own, so that a value
    /// does not keep all that came with it.
    fn admit(&self, run: &Run, bytes: &Bytes, i: usize, read: ReadOptions) -> Result<Bytes> {
        let frame = self.frame(run, bytes, i);
        let frame = if frame::is_raw(&frame) {
            Bytes::copy_from_slice(&frame)
        } else {
            frame
        };
        let inner = &*self.table.inner;
        inner.admit(inner.index.block(i), &frame, read)
    }

    /// The same, but not in memory of its own if it is stored raw and the cache does not keep it. Returns the block, and whether
    /// it is a slice of all that came with it.
    pub(super) fn admit_slice(
        &self,
        run: &Run,
        bytes: &Bytes,
        i: usize,
        read: ReadOptions,
    ) -> Result<(Bytes, bool)> {
        let inner = &*self.table.inner;
        if read.fill_cache && inner.cache.is_some() {
            return Ok((self.admit(run, bytes, i, read)?, false));
        }
        let frame = self.frame(run, bytes, i);
        let block = inner.admit(inner.index.block(i), &frame, read)?;
        Ok((block, frame::is_raw(&frame)))
    }

    /// The frame of data block `i`. It is there, since the block is one of the run's: none would be an error like a damaged one.
    fn frame(&self, run: &Run, bytes: &Bytes, i: usize) -> Bytes {
        let handle = self.table.inner.index.handle(i);
        run.frame(bytes, handle).unwrap_or_default()
    }
}
