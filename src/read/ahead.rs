//! Reading ahead of a walk: the longer it goes on, the more blocks come with one read.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Result;
use crate::format::frame;
use crate::read::file::{Stretch, saturating_len};
use crate::read::options::ReadOptions;
use crate::read::store::{MAX_READ_LEN, frame_range};
use crate::read::table::Inner;

/// What a walk has read and not reached yet, or announced in a mapped file, and how much it reads next.
///
/// The first two blocks come alone, so that a short walk reads nothing that it does not need. From then on, each read takes
/// twice as many bytes as the one before: a walk over 1,000 blocks of 4 KiB makes 23 reads.
#[derive(Debug, Clone)]
pub(super) struct ReadAhead {
    /// The data blocks that were read together, or announced.
    blocks: Range<usize>,
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
enum Direction {
    Forward,
    Backward,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead {
            blocks: 0..0,
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

    /// Data block `i` of a file that is not in memory, and whether it is a slice of all that was read with it.
    pub(super) fn load(
        &mut self,
        inner: &Inner,
        i: usize,
        read: ReadOptions,
    ) -> Result<(Bytes, bool)> {
        let found = inner.index.block(i);
        self.turn_to(i);
        if let Some(block) = inner.cached(found) {
            return Ok((block, false));
        }
        if !self.blocks.contains(&i) {
            self.read(inner, i)?;
        }
        let is_alone = self.blocks.len() == 1;
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
                    return Err(inner.locate(i, defect));
                }
                Ok((inner.load_owned(found, read)?, false))
            }
        }
    }

    fn forget(&mut self) {
        (self.blocks, self.stretch) = (0..0, Stretch::default());
    }

    /// Notes that the walk has come to data block `i`. If it did not come on from the last one, a new walk begins.
    fn turn_to(&mut self, i: usize) {
        let direction = match self.last {
            Some(last) if i == last + 1 => Some(Direction::Forward),
            Some(last) if i + 1 == last => Some(Direction::Backward),
            _ => None,
        };
        if direction.is_none()
            || self
                .direction
                .is_some_and(|before| Some(before) != direction)
        {
            self.len = self.first_len;
        }
        (self.last, self.direction) = (Some(i), direction);
    }

    /// Reads data block `i`, and on a walk that goes on, the blocks that come next.
    fn read(&mut self, inner: &Inner, i: usize) -> Result<()> {
        self.forget();
        let mut blocks = self.next_blocks(inner, i);
        let mut bytes = read_blocks(inner, &blocks);
        if bytes.is_err() && blocks.len() > 1 {
            // If the blocks ahead cannot be read, that is for those who come to them.
            blocks = i..i + 1;
            bytes = read_blocks(inner, &blocks);
        }
        self.stretch = bytes?;
        self.blocks = blocks;
        self.grow(inner);
        Ok(())
    }

    /// Has the system read what comes next on a walk through a mapped file that has come to data block `i`.
    ///
    /// When the walk arrives in the second half of what was announced, the next blocks are due, so that the system reads while
    /// entries are used. The one or two blocks of a short walk are announced only if they were never read: they are likely to be
    /// in memory, and asking takes longer than to find them there.
    pub(super) fn announce(&mut self, inner: &Inner, i: usize) {
        self.turn_to(i);
        let Range { start, end } = self.blocks;
        let next = match self.direction {
            _ if !self.blocks.contains(&i) => Some(i),
            Some(Direction::Forward) if i - start >= (end - start) / 2 => Some(end),
            Some(Direction::Backward) if end - i > (end - start) / 2 => start.checked_sub(1),
            _ => None,
        };
        let is_needed =
            |&next: &usize| next == i || self.limits.contains(&next) && next < inner.index.len();
        let Some(next) = next.filter(is_needed) else {
            return;
        };
        let blocks = self.next_blocks(inner, next);
        if blocks.len() > 2 || !inner.states.of(next).is_checked() {
            let range = inner.range_of(&blocks);
            inner.file.announce(range.start, range.end - range.start);
        }
        // From where the walk is to the end of what was announced.
        self.blocks = i.min(blocks.start)..blocks.end.max(i + 1);
        self.grow(inner);
    }

    /// The blocks from data block `i` on, as many as are due.
    fn next_blocks(&self, inner: &Inner, i: usize) -> Range<usize> {
        match self.direction {
            Some(Direction::Backward) => inner.blocks_to(i, self.limits.start, self.len),
            Some(Direction::Forward) | None => inner.blocks_from(i, self.limits.end, self.len),
        }
    }

    /// Sets the length of the next read, after the walk has gone on: room for twice as many blocks, padding included.
    fn grow(&mut self, inner: &Inner) {
        self.len = match self.direction {
            Some(_) => {
                let start = inner.range_of(&self.blocks).start;
                MAX_READ_LEN.min(2 * (inner.padded_end(self.blocks.end - 1) - start))
            }
            None => self.first_len,
        };
    }
}

/// Reads `blocks`, of which there is at least one.
fn read_blocks(inner: &Inner, blocks: &Range<usize>) -> Result<Stretch> {
    let range = inner.range_of(blocks);
    let bytes = inner.file.read(range.start, saturating_len(&range))?;
    Ok(Stretch {
        offset: range.start,
        bytes,
    })
}
