//! Reading ahead of a walk: the longer it goes on, the more blocks come with one read.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Result;
use crate::format::frame;
use crate::read::file::{Stretch, saturating_len};
use crate::read::index::{BlockRef, State};
use crate::read::options::ReadOptions;
use crate::read::store::{MAX_READ_LEN, Run, frame_range};
use crate::read::table::Inner;

/// Most bytes of the index that a walk reads at once.
const INDEX_LEN: u64 = 64 << 10;

/// What a walk has read and not reached yet, or announced in a mapped file, and how much it reads next.
///
/// The first two blocks come alone, so that a short walk reads nothing that it does not need. From then on, each read takes
/// twice as many bytes as the one before: a walk over 1,000 blocks of 4 KiB makes 23 reads.
#[derive(Debug, Clone)]
pub(super) struct ReadAhead {
    /// The data blocks that were read together, or announced.
    run: Run,
    /// Their frames.
    stretch: Stretch,
    /// The last data block of the walk, and its direction.
    last: Option<usize>,
    direction: Option<Direction>,
    /// Most bytes of the next read, unless a single block takes more.
    len: u64,
    /// Most bytes of a walk's first read.
    first_len: u64,
    /// The data blocks that the walk may need.
    limits: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead {
            run: Run::default(),
            stretch: Stretch::default(),
            last: None,
            direction: None,
            len: 0,
            first_len: 0,
            limits: 0..usize::MAX,
        }
    }
}

impl ReadAhead {
    /// For a walk that is known to go over the whole table: its reads are long from the first on.
    pub(super) fn over_all() -> ReadAhead {
        ReadAhead {
            first_len: MAX_READ_LEN,
            ..ReadAhead::default()
        }
    }

    /// Reads no other data blocks ahead than `limits`.
    pub(super) fn limit(&mut self, limits: Range<usize>) {
        self.limits = limits;
    }

    /// The data blocks that the walk may need.
    pub(super) fn limits(&self) -> &Range<usize> {
        &self.limits
    }

    /// Data block `i`, which a walk has come to. The pieces of the index that name its next blocks are read with its own.
    pub(super) fn find(&mut self, inner: &Inner, i: usize) -> Result<BlockRef> {
        let found = match inner.index.block(i) {
            Ok(found) => found,
            Err(_) => self.bring_pieces(inner, i)?,
        };
        inner.check_place(found)?;
        Ok(found)
    }

    #[cold]
    fn bring_pieces(&self, inner: &Inner, i: usize) -> Result<BlockRef> {
        let direction = self.direction_to(i);
        // If a piece ahead is damaged, that is for those who come to it: the block's own piece is then read alone.
        let ahead = inner.bring(inner.parts_for_walk(i, &self.limits, direction, INDEX_LEN));
        ahead.or_else(|_| inner.block(i).map(drop))?;
        inner.block(i)
    }

    /// A data block of a file that is not in memory, and whether it is a slice of all that was read with it.
    pub(super) fn load(
        &mut self,
        inner: &Inner,
        found: BlockRef,
        read: ReadOptions,
    ) -> Result<(Bytes, bool)> {
        self.turn_to(found.block);
        if let Some(block) = inner.cached(found) {
            return Ok((block, false));
        }
        if !self.run.blocks.contains(&found.block) {
            self.read(inner, found)?;
        }
        let is_alone = self.run.blocks.len() == 1;
        let frame = match self.stretch.get(&frame_range(found.handle)) {
            Some(frame) => frame,
            None => inner.file.read_frame(found.handle)?,
        };
        match inner.try_admit(found, &frame, read) {
            Ok(block) => Ok((block, !is_alone && frame::is_raw(&frame))),
            Err(defect) => {
                // Drop what was read: the other blocks may be bad, too.
                self.forget();
                if is_alone {
                    return Err(inner.locate(found, defect));
                }
                Ok((inner.load_owned(found, read)?, false))
            }
        }
    }

    fn forget(&mut self) {
        (self.run, self.stretch) = (Run::default(), Stretch::default());
    }

    /// The direction in which the walk comes to data block `i` from the last one; `None` if it does not.
    fn direction_to(&self, i: usize) -> Option<Direction> {
        match self.last {
            Some(last) if i == last + 1 => Some(Direction::Forward),
            Some(last) if i + 1 == last => Some(Direction::Backward),
            _ => None,
        }
    }

    /// Notes that the walk has come to data block `i`. If it did not come on from the last one, a new walk begins.
    fn turn_to(&mut self, i: usize) {
        let direction = self.direction_to(i);
        if direction.is_none()
            || self
                .direction
                .is_some_and(|before| Some(before) != direction)
        {
            self.len = self.first_len;
        }
        (self.last, self.direction) = (Some(i), direction);
    }

    /// Reads a data block, and on a walk that goes on, the blocks that come next.
    fn read(&mut self, inner: &Inner, found: BlockRef) -> Result<()> {
        self.forget();
        let mut run = self.next_blocks(inner, found);
        if self.bring_pieces_after(inner, &run) {
            run = self.next_blocks(inner, found);
        }
        let mut stretch = read_run(inner, &run);
        if stretch.is_err() && run.blocks.len() > 1 {
            // If the blocks ahead cannot be read, that is for those who come to them.
            run = Run::of(found);
            stretch = read_run(inner, &run);
        }
        self.stretch = stretch?;
        self.run = run;
        self.grow(inner);
        Ok(())
    }

    /// Reads the pieces of the index that a walk comes to after `run`, so that no read ends where a piece does. Returns whether it
    /// did: a piece that cannot be read is an error of the walk when it comes to that.
    fn bring_pieces_after(&self, inner: &Inner, run: &Run) -> bool {
        let next = match self.direction {
            None => None,
            Some(Direction::Forward) => Some(run.blocks.end),
            Some(Direction::Backward) => run.blocks.start.checked_sub(1),
        };
        let is_missing = |&next: &usize| {
            let is_due = self.limits.contains(&next) && next < inner.index.len();
            is_due && inner.index.block(next).is_err()
        };
        next.filter(is_missing).is_some_and(|next| {
            let pieces = inner.parts_for_walk(next, &self.limits, self.direction, INDEX_LEN);
            inner.bring(pieces).is_ok()
        })
    }

    /// Has the system read what comes next on a walk through a mapped file that has come to a data block.
    ///
    /// When the walk arrives in the second half of what was announced, the next blocks are due, so that the system reads while
    /// entries are used. The one or two blocks of a short walk are announced only if they were never read: they are likely to be
    /// in memory, and asking takes longer than to find them there.
    pub(super) fn announce(&mut self, inner: &Inner, found: BlockRef) {
        let i = found.block;
        self.turn_to(i);
        let Range { start, end } = self.run.blocks;
        let next = match self.direction {
            _ if !self.run.blocks.contains(&i) => Some(i),
            Some(Direction::Forward) if i - start >= (end - start) / 2 => Some(end),
            Some(Direction::Backward) if end - i > (end - start) / 2 => start.checked_sub(1),
            _ => None,
        };
        let is_needed =
            |&next: &usize| next == i || self.limits.contains(&next) && next < inner.index.len();
        let next = next.filter(is_needed);
        // What a piece of the index names that is not there is announced when the walk comes to it.
        let Some(next) = next.and_then(|next| inner.index.block(next).ok()) else {
            return;
        };
        let run = self.next_blocks(inner, next);
        if run.blocks.len() > 2 || !inner.index.state(next).has(State::CHECKED) {
            let Range { start, end } = run.bytes;
            inner.file.announce(start, end - start);
        }
        // From where the walk is to the end of what was announced.
        let here = frame_range(found.handle);
        self.run = Run {
            blocks: i.min(run.blocks.start)..run.blocks.end.max(i + 1),
            bytes: here.start.min(run.bytes.start)..run.bytes.end.max(here.end),
        };
        self.grow(inner);
    }

    /// The blocks from `found` on, as many as are due.
    fn next_blocks(&self, inner: &Inner, found: BlockRef) -> Run {
        let direction = self.direction.unwrap_or(Direction::Forward);
        inner.run_of(found, direction, &self.limits, self.len)
    }

    /// Sets the length of the next read, after the walk has gone on: room for twice as many blocks, padding included.
    fn grow(&mut self, inner: &Inner) {
        self.len = match self.direction {
            Some(_) => {
                let last = inner.index.block(self.run.blocks.end - 1);
                let end = last.map_or(self.run.bytes.end, |last| inner.padded_end(last));
                MAX_READ_LEN.min(2 * (end - self.run.bytes.start))
            }
            None => self.first_len,
        };
    }
}

/// Reads the blocks of a run.
fn read_run(inner: &Inner, run: &Run) -> Result<Stretch> {
    let offset = run.bytes.start;
    let bytes = inner.file.read(offset, saturating_len(&run.bytes))?;
    Ok(Stretch { offset, bytes })
}
