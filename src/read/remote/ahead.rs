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
use crate::read::ahead::Direction;
use crate::read::file::Stretch;
use crate::read::index::BlockRef;
use crate::read::store::Run;
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

/// The data blocks of a walk, in order.
pub(super) struct Blocks {
    /// Those that the walk has yet to come to.
    left: Range<usize>,
    /// Whether it comes to the last one first.
    is_reverse: bool,
    /// Where those begin that were not asked for, or end in reverse.
    unasked: usize,
    /// Most bytes of the next request.
    len: u64,
    /// How many requests may be on their way.
    most: usize,
    /// What was asked for, and what comes of it. Requests do not go on unless they are polled.
    asked: VecDeque<Asked>,
    /// The blocks that came with the one that the walk is in, and their frames.
    here: Option<(Range<usize>, Stretch)>,
}

/// A request for blocks that follow each other.
struct Asked {
    blocks: Range<usize>,
    bytes: Range<u64>,
    response: MaybeDone<BoxFuture<'static, Response>>,
}

/// A data block that a walk has come to.
pub(super) struct Arrived {
    pub(super) found: BlockRef,
    pub(super) payload: Bytes,
    /// Whether it is a slice of all that came with it, and keeps that in memory.
    pub(super) is_slice: bool,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks")
            .field("left", &self.left)
            .field("on_their_way", &self.asked.len())
            .finish_non_exhaustive()
    }
}

impl Blocks {
    pub(super) fn new(blocks: Range<usize>) -> Blocks {
        Blocks {
            unasked: blocks.start,
            is_reverse: false,
            left: blocks,
            len: FIRST_LEN,
            most: 1,
            asked: VecDeque::new(),
            here: None,
        }
    }

    /// Says which they are, before the first.
    pub(super) fn begin(&mut self, blocks: Range<usize>) {
        self.unasked = match self.direction() {
            Direction::Forward => blocks.start,
            Direction::Backward => blocks.end,
        };
        self.left = blocks;
    }

    fn direction(&self) -> Direction {
        if self.is_reverse {
            Direction::Backward
        } else {
            Direction::Forward
        }
    }

    /// Says that the walk will come to all of them: its requests are long from the first on.
    pub(super) fn expect_all(&mut self) {
        (self.len, self.most) = (MAX_REQUEST_LEN, MAX_AHEAD);
    }

    /// Says that the walk begins at the last one.
    pub(super) fn reverse(&mut self) {
        (self.unasked, self.is_reverse) = (self.left.end, true);
    }

    /// The next data block; `None` after the last. A call that is dropped before it is ready is as if it had not
    /// been made.
    pub(super) async fn next(&mut self, table: &AsyncTable) -> Result<Option<Arrived>> {
        let mut left = self.left.clone();
        let next = if self.is_reverse {
            left.next_back()
        } else {
            left.next()
        };
        let Some(i) = next else {
            return Ok(None);
        };
        let found = table.find_for_walk(i, &self.left, self.direction()).await?;
        let (payload, is_slice) = match self.read(table, found).await {
            Some(read) => read,
            None => (table.fetch_block(found).await?, false),
        };
        self.left = left;
        Ok(Some(Arrived {
            found,
            payload,
            is_slice,
        }))
    }

    /// A data block out of what was asked for ahead, and whether it is a slice of that. `None` if that does not bring it, or
    /// nothing sound: it is then fetched alone, so that an error is that of one block.
    async fn read(&mut self, table: &AsyncTable, found: BlockRef) -> Option<(Bytes, bool)> {
        let i = found.block;
        let is_here = |(blocks, _): &(Range<usize>, Stretch)| blocks.contains(&i);
        if !self.here.as_ref().is_some_and(is_here) {
            self.here = None;
            self.ask(table);
            self.asked
                .front()
                .filter(|asked| asked.blocks.contains(&i))?;
            let (blocks, bytes, response) = self.arrived().await?;
            match table.check(&bytes, response) {
                Ok(stretch) => self.here = Some((blocks, stretch)),
                Err(_) => {
                    self.begin_anew(i);
                    return None;
                }
            }
        }
        let (_, stretch) = self.here.as_ref()?;
        table.admit_slice(stretch, found).ok()
    }

    /// The first request and its response. All of them go on until it is there, and one that is new begins, even if the first is
    /// there already.
    async fn arrived(&mut self) -> Option<(Range<usize>, Range<u64>, Response)> {
        poll_fn(|context| {
            let mut first = Poll::Ready(());
            for (i, asked) in self.asked.iter_mut().enumerate() {
                let polled = Pin::new(&mut asked.response).poll(context);
                if i == 0 {
                    first = polled;
                }
            }
            first
        })
        .await;
        let mut asked = self.asked.pop_front()?;
        let response = Pin::new(&mut asked.response).take_output()?;
        Some((asked.blocks, asked.bytes, response))
    }

    /// Forgets what was asked for, and begins after data block `i` with short requests.
    fn begin_anew(&mut self, i: usize) {
        *self = Blocks {
            left: self.left.clone(),
            is_reverse: self.is_reverse,
            unasked: if self.is_reverse { i } else { i + 1 },
            ..Blocks::new(0..0)
        };
    }

    /// Makes requests for the blocks that come next and are not in the cache.
    fn ask(&mut self, table: &AsyncTable) {
        let is_due = self.asked.is_empty();
        while self.asked.len() < self.most {
            let Some(Run { blocks, bytes }) = self.next_run(&table.table.inner) else {
                break;
            };
            let response = maybe_done(table.request(&bytes));
            self.asked.push_back(Asked {
                blocks,
                bytes,
                response,
            });
            self.len = MAX_REQUEST_LEN.min(2 * self.len);
        }
        if is_due && !self.asked.is_empty() {
            self.most = MAX_AHEAD.min(MORE_AHEAD * self.most);
        }
    }

    /// The next blocks to ask for, which are not in the cache; `None` after the last, and where the walk must first come to the next
    /// piece of the index.
    fn next_run(&mut self, inner: &Inner) -> Option<Run> {
        let Range { start, end } = self.left;
        // The walk may have come further by itself.
        self.unasked = self.unasked.clamp(start, end);
        loop {
            let next = match self.direction() {
                Direction::Forward if self.unasked < end => self.unasked,
                Direction::Backward if self.unasked > start => self.unasked - 1,
                Direction::Forward | Direction::Backward => return None,
            };
            let found = inner.index.block(next).ok()?;
            let is_cached = inner.is_cached(found);
            let run = match self.direction() {
                _ if is_cached => Run::of(found),
                direction => inner.run_of(found, direction, &self.left, self.len),
            };
            self.unasked = match self.direction() {
                Direction::Forward => run.blocks.end,
                Direction::Backward => run.blocks.start,
            };
            if !is_cached {
                return Some(run);
            }
        }
    }
}
