//! Reading ahead of a walk: each request brings more than the one before.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use futures_util::future::{MaybeDone, maybe_done, poll_fn};

use super::fetch::MAX_REQUEST_LEN;
use super::flights::Response;
use super::source::BoxFuture;
use super::table::AsyncTable;
use crate::error::Result;
use crate::read::ahead::Run;
use crate::read::bounds::Way;
use crate::read::file::Stretch;
use crate::read::index::BlockRef;
use crate::read::table::Inner;

/// Bytes of a walk's first request, unless a single block takes more: they take no longer than a block of 4 KiB.
const FIRST_LEN: u64 = 64 << 10;

/// Most requests of a walk that are on their way at once. With requests of 8 MiB, they and what the walk is in take 56 MiB.
///
/// A request of 8 MiB from a near store takes 30 ms until its first byte, and perhaps 10 until its last: with four on their way, the
/// connection would stand still between them.
const MAX_AHEAD: usize = 6;

/// By how much the number of requests grows each time that all have come in.
const MORE_AHEAD: usize = 4;

/// The data blocks of a walk, which are asked for before it comes to them.
pub(super) struct Blocks {
    /// Those that the walk may need and that were not asked for.
    unasked: Range<usize>,
    /// Most bytes of the next request.
    len: u64,
    /// How many requests may be on their way.
    most: usize,
    /// What was asked for, and what comes of it. Requests do not go on unless they are polled.
    asked: VecDeque<(Run, MaybeDone<BoxFuture<'static, Response>>)>,
    /// The blocks that came with the one that the walk is in, and their frames.
    here: (Range<usize>, Stretch),
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks")
            .field("unasked", &self.unasked)
            .field("on_their_way", &self.asked.len())
            .finish_non_exhaustive()
    }
}

impl Blocks {
    /// For a walk over `blocks`.
    pub(super) fn new(blocks: Range<usize>) -> Blocks {
        Blocks {
            unasked: blocks,
            len: FIRST_LEN,
            most: 1,
            asked: VecDeque::new(),
            here: (0..0, Stretch::default()),
        }
    }

    /// Says which they are, before the first is taken.
    pub(super) fn begin(&mut self, blocks: Range<usize>) {
        self.unasked = blocks;
    }

    /// Says that the walk will come to all of them: its requests are long from the first on.
    pub(super) fn expect_all(&mut self) {
        (self.len, self.most) = (MAX_REQUEST_LEN, MAX_AHEAD);
    }

    /// Data block `i`, to which a walk over `blocks` comes, and whether it is a slice of all that came with it and keeps that in
    /// memory. A call that is dropped before it is ready is as if it had not been made.
    pub(super) async fn take(
        &mut self,
        table: &AsyncTable,
        i: usize,
        blocks: &Range<usize>,
        way: Way,
    ) -> Result<(BlockRef, Bytes, bool)> {
        let found = table.find_for_walk(i, blocks, way).await?;
        if !self.here.0.contains(&i) {
            self.here = (0..0, Stretch::default());
            self.ask(table, way);
            if let Some((run, response)) = self.arrived(i).await {
                match table.check(&run.bytes, response) {
                    Ok(stretch) => self.here = (run.blocks, stretch),
                    // What was asked for ahead is forgotten, too.
                    Err(_) => *self = Blocks::new(way.rest(blocks, &(i..i + 1))),
                }
            }
        }
        // What did not come, or is not sound, is fetched alone: an error is that of one block.
        let slice = self
            .here
            .0
            .contains(&i)
            .then(|| table.admit(&self.here.1, found, true));
        let (payload, is_slice) = match slice {
            Some(Ok(slice)) => slice,
            Some(Err(_)) | None => (table.fetch_block(found).await?, false),
        };
        Ok((found, payload, is_slice))
    }

    /// The first request and its response, if it brings data block `i`. All requests go on until it is there, and one that is new
    /// begins, even if the first is there already.
    async fn arrived(&mut self, i: usize) -> Option<(Run, Response)> {
        self.asked
            .front()
            .filter(|(run, _)| run.blocks.contains(&i))?;
        poll_fn(|context| {
            let polled = self
                .asked
                .iter_mut()
                .map(|(_, response)| Pin::new(response).poll(context));
            // All are polled.
            polled.rev().last().unwrap_or(Poll::Ready(()))
        })
        .await;
        let (run, mut response) = self.asked.pop_front()?;
        Some((run, Pin::new(&mut response).take_output()?))
    }

    /// Makes requests for the blocks that come next and are not in the cache.
    fn ask(&mut self, table: &AsyncTable, way: Way) {
        let is_due = self.asked.is_empty();
        while self.asked.len() < self.most {
            let Some(run) = self.next_run(&table.table.inner, way) else {
                break;
            };
            let response = maybe_done(table.request(&run.bytes));
            self.asked.push_back((run, response));
            self.len = MAX_REQUEST_LEN.min(2 * self.len);
        }
        if is_due && !self.asked.is_empty() {
            self.most = MAX_AHEAD.min(MORE_AHEAD * self.most);
        }
    }

    /// The next blocks to ask for, which are not in the cache; `None` after the last, and where the walk must first come to the next
    /// piece of the index.
    fn next_run(&mut self, inner: &Inner, way: Way) -> Option<Run> {
        loop {
            let found = inner.index.block(way.first(&self.unasked)?).ok()?;
            let is_cached = inner.is_cached(found);
            let run = if is_cached {
                Run::of(found)
            } else {
                inner.run(found, way, &self.unasked, self.len)
            };
            self.unasked = way.rest(&self.unasked, &run.blocks);
            if !is_cached {
                return Some(run);
            }
        }
    }
}
