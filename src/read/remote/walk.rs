//! Read-ahead of a walk: each request fetches more than the one before.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use futures_util::future::{FutureExt, join_all, select};

use super::fetch::Fetcher;
use super::flights::Flight;
use crate::error::Result;
use crate::format::frame;
use crate::read::parts::bounds::Direction;
use crate::read::parts::index::BlockRef;
use crate::read::source::async_read_at::MAX_REQUEST_LEN;
use crate::read::source::coalesce::Group;
use crate::read::source::file::FileSlice;
use crate::read::store::Use;
use crate::read::table::opened::Opened;
use crate::read::walk::ahead::next_run;

/// Length of a walk's first request, unless a single block is longer: it takes no longer than a block of 4 KiB.
const FIRST_LEN: u64 = 64 << 10;

/// Maximum number of bytes of the index that a walk fetches at once: these name some 128 MB of data blocks.
const INDEX_LEN: u64 = 1 << 20;

/// Maximum number of requests of a walk in flight: after its first one, and once they are long. With requests of 8 MiB, they and
/// the walk's current response take 56 MiB.
///
/// A request of 8 MiB to a nearby store takes 30 ms until its first byte, and perhaps 10 until its last: with four in flight, the
/// connection would be idle between them.
const MAX_AHEAD: [usize; 2] = [4, 6];

/// The data blocks of a walk, which are requested ahead of it.
pub(super) struct WalkBlocks {
    /// The blocks that the walk may need and that were not requested yet.
    pub(super) unasked: Range<usize>,
    /// Maximum length of the next request.
    len: u64,
    /// The requested blocks.
    asked: VecDeque<(Range<usize>, Flight)>,
    /// The response that contains the walk's current block.
    here: FileSlice,
}

/// Short: shows which blocks are left, not the responses.
impl fmt::Debug for WalkBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} left", self.unasked)
    }
}

impl WalkBlocks {
    /// For a walk over `blocks`.
    pub(super) fn new(blocks: Range<usize>) -> WalkBlocks {
        WalkBlocks {
            unasked: blocks,
            len: FIRST_LEN,
            asked: VecDeque::new(),
            here: FileSlice::default(),
        }
    }

    /// Says that the walk will reach all blocks: its requests are long from the first on.
    pub(super) fn expect_all(&mut self) {
        self.len = MAX_REQUEST_LEN;
    }

    /// Data block `i`, which the walk has reached, and whether it is a slice of a whole response and keeps that in memory. Dropping the
    /// future before it is ready has no effect.
    pub(super) async fn take(
        &mut self,
        table: &Fetcher,
        i: usize,
        direction: Direction,
    ) -> Result<(BlockRef, Bytes, bool)> {
        let Opened { parts, store, .. } = &*table.table.opened;
        if parts.block(i).is_err() {
            // If a piece further ahead cannot be read, the walk finds that out when it reaches the piece.
            let ahead = parts.pieces_of_walk(i, &self.unasked, Some(direction), INDEX_LEN);
            table.read_parts(ahead).await.ok();
        }
        let found = table.ask(|| parts.block(i)).await?;
        let bytes = found.handle.frame_in_file();
        if self.here.get(&bytes).is_none() {
            self.here = FileSlice::default();
            self.ask(table, direction);
            match self.arrived(i).await {
                Some(Ok(slice)) => self.here = slice,
                // Requests ahead are forgotten as well.
                Some(Err(_)) => *self = WalkBlocks::new(direction.rest(&self.unasked, &(i..i + 1))),
                None => {}
            }
        }
        if let Some(frame) = self.here.get(&bytes)
            && let Ok(payload) = store.try_admit(parts, found, &frame, table.table.read, Use::Walk)
        {
            return Ok((found, payload, frame::is_raw(&frame)));
        }
        // A block that did not arrive, or is damaged, is fetched alone: an error is that of one block.
        Ok((found, table.fetch_block(found).await?, false))
    }

    /// The response of the first request, if that is for data block `i`. All requests are polled until it has arrived, and new ones
    /// begin even if it already has.
    async fn arrived(&mut self, i: usize) -> Option<Result<FileSlice>> {
        let (_, first) = self.asked.front().filter(|(run, _)| run.contains(&i))?;
        let responses = self.asked.iter().map(|(_, flight)| flight.response.clone());
        select(join_all(responses), first.response.clone()).await;
        let (_, first) = self.asked.pop_front()?;
        first.response.now_or_never()
    }

    /// Makes requests for the next blocks that are not in the cache, up to where the walk needs the next piece of the index.
    fn ask(&mut self, table: &Fetcher, direction: Direction) {
        let opened = &*table.table.opened;
        let Opened { parts, store, .. } = opened;
        let [few, many] = MAX_AHEAD;
        let most = match self.len {
            FIRST_LEN => 1,
            len if len <= FIRST_LEN << few => few,
            _ => many,
        };
        while self.asked.len() < most
            && let Some(next) = direction.first(&self.unasked)
            && let Ok(found) = parts.block(next)
        {
            let mut run = Group::of(found);
            if !store.is_cached(parts, found) {
                run = next_run(
                    opened,
                    found,
                    direction,
                    &self.unasked,
                    (usize::MAX, self.len),
                );
                let flight = table.request(run.bytes);
                self.asked.push_back((run.items.clone(), flight));
                self.len = MAX_REQUEST_LEN.min(2 * self.len);
            }
            self.unasked = direction.rest(&self.unasked, &run.items);
        }
    }
}
