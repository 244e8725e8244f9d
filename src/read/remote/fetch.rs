//! Fetching data blocks: those of one lookup, and those of many together.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::flights::{Plan, Response, Ticket};
use super::missing::MOST_GAP;
use super::source::BoxFuture;
use super::table::AsyncTable;
use crate::error::Result;
use crate::read::fetch::Run;
use crate::read::index::BlockRef;
use crate::read::options::ReadOptions;

/// Most bytes of one request, unless a single block takes more.
pub(super) const MOST_REQUEST_LEN: u64 = 8 << 20;

/// Most requests of one call that are on their way at once.
pub(super) const MOST_IN_FLIGHT: usize = 32;

impl AsyncTable {
    /// A data block, from the cache or from the source: checked when it comes in.
    pub(super) async fn fetch_block(&self, found: BlockRef) -> Result<Bytes> {
        let inner = &*self.table.inner;
        loop {
            if let Some(block) = inner.cached(found) {
                return Ok(block);
            }
            // None if the block came into the cache just now.
            if let Some(ticket) = self.board(&[found.block]).pop() {
                let bytes = self.receive(&ticket).await?;
                return self.admit(&ticket.run, &bytes, found.block, self.table.read);
            }
        }
    }

    /// The data blocks of `missing`, in ascending order, each with its number, in the order in which they arrive.
    pub(super) fn fetch_all(
        &self,
        missing: &[usize],
    ) -> BoxStream<'_, Result<Vec<(usize, Bytes)>>> {
        let arrive = async |ticket: Ticket| {
            let bytes = self.receive(&ticket).await?;
            let admit = |&i: &usize| Ok((i, self.admit(&ticket.run, &bytes, i, self.table.read)?));
            ticket.blocks.iter().map(admit).collect()
        };
        let tickets = stream::iter(self.board(missing));
        tickets.map(arrive).buffer_unordered(MOST_IN_FLIGHT).boxed()
    }

    /// Joins or begins the requests for `blocks` that are not in the cache.
    fn board(&self, blocks: &[usize]) -> Vec<Ticket> {
        let inner = &self.table.inner;
        let plan = |blocks: &[usize]| {
            let is_missing = |i: &usize| !inner.is_cached(*i);
            self.plan(blocks.iter().copied().filter(is_missing))
        };
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
            source.read_at(run.offset, len).await.map_err(Arc::new)
        })
    }

    /// The bytes that the request of `ticket` brings.
    async fn receive(&self, ticket: &Ticket) -> Result<Bytes> {
        self.check(&ticket.run, ticket.response().await)
    }

    /// What the source returned for `run`: as many bytes, or an error.
    pub(super) fn check(&self, run: &Run, response: Response) -> Result<Bytes> {
        let response = response.map_err(|error| io::Error::new(error.kind(), error));
        let len = usize::try_from(run.len).unwrap_or(usize::MAX);
        self.table.inner.file.check_read(run.offset, len, response)
    }

    /// Data block `i`, of which `bytes` came with `run`: checked, kept in the cache, and in memory of its own, so that a value does
    /// not keep all that came with it.
    pub(super) fn admit(
        &self,
        run: &Run,
        bytes: &Bytes,
        i: usize,
        read: ReadOptions,
    ) -> Result<Bytes> {
        let inner = &*self.table.inner;
        let found = inner.index.block(i);
        // It is there, since the block is one of the run's. None would be an error like a damaged one.
        let frame = run.frame(bytes, found.handle).unwrap_or_default();
        inner.admit(found, &Bytes::copy_from_slice(&frame), read)
    }
}
