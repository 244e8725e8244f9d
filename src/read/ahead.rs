//! Reading ahead of a walk: the longer it goes on, the more blocks come with one read.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Result;
use crate::format::frame;
use crate::read::bounds::Way;
use crate::read::coalesce::Group;
use crate::read::file::Stretch;
use crate::read::index::BlockRef;
use crate::read::options::ReadOptions;
use crate::read::state::State;
use crate::read::store::{MAX_GAP, MAX_READ_LEN, Use, frame_range};
use crate::read::table::Inner;

/// Most bytes of the index that a walk reads at once.
const INDEX_LEN: u64 = 64 << 10;

/// What a walk has read and not reached yet, or announced in a mapped file, and how much it reads next.
///
/// The first two blocks come alone, so that a short walk reads nothing that it does not need. From then on, each read takes
/// twice as many bytes as the one before: a walk over 1,000 blocks of 4 KiB makes 23 reads.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadAhead {
    /// The data blocks that the walk may need.
    pub(super) limits: Range<usize>,
    /// The data blocks that were read together; of those that were announced, the ones before the next are due.
    run: Group,
    /// Their frames, if they are several.
    stretch: Stretch,
    /// The direction of the walk; `None` at its first block.
    way: Option<Way>,
    /// Most bytes of the next read, unless a single block takes more.
    len: u64,
}

impl Group {
    /// A data block alone.
    pub(super) fn of(found: BlockRef) -> Group {
        Group {
            parts: found.block..found.block + 1,
            bytes: frame_range(found.handle),
        }
    }
}

impl ReadAhead {
    /// Data block `i`, at which a walk along `way` has arrived, or begins. The pieces of the index that name its next blocks are read
    /// with its own.
    pub(super) fn find(&self, inner: &Inner, i: usize, way: Option<Way>) -> Result<BlockRef> {
        let found = inner.index.block(i);
        found.or_else(|_| self.bring_pieces(inner, i, way))
    }

    #[cold]
    fn bring_pieces(&self, inner: &Inner, i: usize, way: Option<Way>) -> Result<BlockRef> {
        // If a piece ahead is damaged, that is for those who come to it: the block's own piece is then read alone.
        inner
            .bring(inner.pieces_of_walk(i, &self.limits, way, INDEX_LEN))
            .ok();
        inner.block(i)
    }

    /// A data block at which a walk has arrived, along `way`, or begins; and whether it is a slice of all that was read with it.
    pub(super) fn load(
        &mut self,
        inner: &Inner,
        found: BlockRef,
        way: Option<Way>,
        read: ReadOptions,
    ) -> Result<(Bytes, bool)> {
        if self.way != way {
            (self.way, self.len) = (way, 0);
        }
        if inner.file.is_memory() {
            if inner.file.map().is_some() {
                self.announce(inner, found);
            }
            return Ok((inner.load_bytes(found, read)?, false));
        }
        if let Some(block) = inner.cached(found) {
            return Ok((block, false));
        }
        if !self.run.parts.contains(&found.block) {
            self.read(inner, found);
        }
        if let Some(frame) = self.stretch.get(&frame_range(found.handle)) {
            if let Ok(block) = inner.try_admit(found, &frame, read, Use::Walk) {
                return Ok((block, frame::is_raw(&frame)));
            }
            // It is read alone, and the others that came with it are read again: they may be bad, too.
            (self.run, self.stretch) = (Group::default(), Stretch::default());
        }
        Ok((inner.load_anew(found, read)?, false))
    }

    /// On a walk that goes on, reads a data block and those that come next. One that comes alone is left to be read.
    fn read(&mut self, inner: &Inner, found: BlockRef) {
        self.stretch = Stretch::default();
        let mut run = self.next_blocks(inner, found);
        // No read ends where a piece of the index does. A piece that cannot be read is an error of the walk when it comes to that.
        if let Some(way) = self.way
            && let Some(next) = way.first(&way.rest(&self.limits, &run.parts))
            && inner.index.block(next).is_err()
            && self.bring_pieces(inner, next, self.way).is_ok()
        {
            run = self.next_blocks(inner, found);
        }
        if run.parts.len() > 1 {
            let offset = run.bytes.start;
            match inner.file.read_range(&run.bytes) {
                Ok(bytes) => self.stretch = Stretch { offset, bytes },
                // If the blocks ahead cannot be read, that is for those who come to them.
                Err(_) => run = Group::of(found),
            }
        }
        self.run = run;
        self.grow(inner);
    }

    /// Has the system read what comes next on a walk through a mapped file that has come to a data block.
    ///
    /// When no more than half of what was announced is left, and no more than 16 blocks, the next ones are due, so that the system
    /// reads while entries are used. The one or two blocks of a short walk are announced only if they were never read: they are likely to be
    /// in memory, and asking takes longer than to find them there.
    fn announce(&mut self, inner: &Inner, found: BlockRef) {
        if self.run.parts.contains(&found.block) {
            return;
        }
        self.run = self.next_blocks(inner, found);
        if !inner.index.state(found).has(State::CHECKED) {
            inner.file.announce(self.run.bytes.start, self.run.len());
        }
        self.grow(inner);
        let left = 16.min(self.run.parts.len() / 2);
        match self.way {
            Some(Way::Back) => self.run.parts.start += left,
            _ => self.run.parts.end -= left,
        }
    }

    /// The blocks from `found` on, as many as are due: one where a walk begins.
    fn next_blocks(&self, inner: &Inner, found: BlockRef) -> Group {
        match self.way {
            Some(way) => inner.run(found, way, &self.limits, self.len),
            None => Group::of(found),
        }
    }

    /// Sets the length of the next read, after the walk has gone on: room for twice as many blocks, padding included.
    fn grow(&mut self, inner: &Inner) {
        if self.way.is_some() {
            let last = inner.index.block(self.run.parts.end - 1);
            let end = last.map_or(self.run.bytes.end, |last| inner.padded_end(last));
            self.len = MAX_READ_LEN.min(2 * (end - self.run.bytes.start));
        }
    }
}

impl Inner {
    /// The data blocks from `found` on that a walk reads together: blocks of `limits`, at most `len` bytes of the file, none of them
    /// in the cache but the first, and all named by pieces of the index that are there. One block at least.
    pub(super) fn run(&self, found: BlockRef, way: Way, limits: &Range<usize>, len: u64) -> Group {
        let mut run = Group::of(found);
        while let Some(next) = way.first(&way.rest(limits, &run.parts))
            && let Ok(next) = self.index.block(next)
            && !self.is_cached(next)
            && let Some(both) = run.join(&Group::of(next), MAX_GAP, len)
        {
            run = both;
        }
        run
    }
}
