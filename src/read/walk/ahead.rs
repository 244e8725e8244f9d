//! Read-ahead of a walk: the longer it goes on, the more blocks one read takes.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Result;
use crate::format::frame;
use crate::read::parts::bounds::Direction;
use crate::read::parts::index::BlockRef;
use crate::read::parts::state::BlockState;
use crate::read::source::coalesce::{Group, MAX_GAP, MAX_READ_LEN};
use crate::read::source::file::FileSlice;
use crate::read::store::{ReadOptions, Use};
use crate::read::table::opened::Opened;

/// Maximum number of bytes of the index that a walk reads at once.
const INDEX_LEN: u64 = 64 << 10;

/// The blocks that a walk has read and not reached yet, or announced in a mapped file, and the length of its next read.
///
/// The first two blocks are read alone, so that a short walk reads nothing that it does not need. From then on, each read
/// takes twice as many blocks as the one before, up to [`MAX_READ_LEN`] bytes: a walk over 1,000 blocks of 4 KiB makes 23 reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadAhead {
    /// The data blocks that the walk may need; `None` until that is known.
    pub(crate) limits: Option<Range<usize>>,
    /// The data blocks that were read together. In a mapped file, announced blocks: the next are announced once the walk has passed these.
    run: Group,
    /// Their frames, if there are several.
    slice: FileSlice,
    /// The direction of the walk; `None` at its first block.
    direction: Option<Direction>,
    /// Maximum number of blocks of the next read.
    blocks: usize,
}

impl Group {
    /// A data block on its own.
    pub(crate) fn of(found: BlockRef) -> Group {
        Group {
            items: found.block..found.block + 1,
            bytes: found.handle.frame_in_file(),
        }
    }
}

impl ReadAhead {
    /// The data blocks that the walk may need; none until that is known.
    pub(crate) fn limits(&self) -> Range<usize> {
        self.limits.clone().unwrap_or_default()
    }

    /// Data block `i`, at which a walk in `direction` has arrived, or begins. The pieces of the index that name its next blocks are read
    /// with its own.
    pub(crate) fn find(
        &self,
        opened: &Opened,
        i: usize,
        direction: Option<Direction>,
    ) -> Result<BlockRef> {
        let found = opened.parts.index.block(i);
        found.or_else(|_| self.load_pieces(opened, i, direction))
    }

    #[cold]
    fn load_pieces(
        &self,
        opened: &Opened,
        i: usize,
        direction: Option<Direction>,
    ) -> Result<BlockRef> {
        // If a piece further ahead is damaged, the walk finds that out when it reaches the piece: the block's own piece
        // is then read alone.
        let pieces = opened
            .parts
            .pieces_of_walk(i, &self.limits(), direction, INDEX_LEN);
        opened.read_parts(pieces).ok();
        opened.block(i)
    }

    /// A data block at which a walk in `direction` has arrived, or begins; and whether it is a slice of a longer read.
    pub(crate) fn load(
        &mut self,
        opened: &Opened,
        found: BlockRef,
        direction: Option<Direction>,
        read: ReadOptions,
    ) -> Result<(Bytes, bool)> {
        if self.direction != direction {
            (self.direction, self.blocks) = (direction, 1);
        }
        let Opened { parts, store, .. } = opened;
        if store.file.is_memory() {
            if store.file.map().is_some() {
                self.announce(opened, found);
            }
            return Ok((store.load_bytes(parts, found, read)?, false));
        }
        if let Some(block) = store.cached(parts, found) {
            return Ok((block, false));
        }
        if !self.run.items.contains(&found.block) {
            self.read(opened, found);
        }
        if let Some(frame) = self.slice.get(&found.handle.frame_in_file()) {
            if let Ok(block) = store.try_admit(parts, found, &frame, read, Use::Walk) {
                return Ok((block, frame::is_raw(&frame)));
            }
            // It is read alone, and the others of the same read are read again: they may be damaged as well.
            (self.run, self.slice) = (Group::default(), FileSlice::default());
        }
        Ok((store.load_checked(parts, found, read)?, false))
    }

    /// If the walk goes on, reads a data block together with the next ones. A block that would be read alone is left to
    /// the caller.
    fn read(&mut self, opened: &Opened, found: BlockRef) {
        self.slice = FileSlice::default();
        let mut run = self.next_blocks(opened, found);
        // A read may extend past the end of a piece of the index. If the next piece cannot be read, the walk fails when it reaches
        // that piece.
        if let Some(direction) = self.direction
            && let Some(next) = direction.first(&direction.rest(&self.limits(), &run.items))
            && opened.parts.index.block(next).is_err()
            && self.load_pieces(opened, next, self.direction).is_ok()
        {
            run = self.next_blocks(opened, found);
        }
        if run.items.len() > 1 {
            let offset = run.bytes.start;
            match opened.store.file.read_range(&run.bytes) {
                Ok(bytes) => self.slice = FileSlice { offset, bytes },
                // If the blocks ahead cannot be read, the walk finds that out when it reaches them.
                Err(_) => run = Group::of(found),
            }
        }
        self.blocks = self.blocks.saturating_mul(2);
        self.run = run;
    }

    /// Asks the system to read the next blocks of a walk through a mapped file that has reached a data block.
    ///
    /// When at most half of the announced blocks are left, and at most 16 blocks, the next ones are announced, so that the system reads
    /// while entries are used. The one or two blocks of a short walk are announced only if they were never read: otherwise they are
    /// probably in memory, and asking takes longer than finding them there.
    fn announce(&mut self, opened: &Opened, found: BlockRef) {
        if self.run.items.contains(&found.block) {
            return;
        }
        self.run = self.next_blocks(opened, found);
        if !opened.parts.index.state(found).has(BlockState::CHECKED) {
            opened
                .store
                .file
                .announce(self.run.bytes.start, self.run.len());
        }
        self.blocks = self.blocks.saturating_mul(2);
        let left = 16.min(self.run.items.len() / 2);
        match self.direction {
            Some(Direction::Backward) => self.run.items.start += left,
            _ => self.run.items.end -= left,
        }
    }

    /// The next blocks to announce, from `found` on: one block where a walk begins.
    fn next_blocks(&self, opened: &Opened, found: BlockRef) -> Group {
        match self.direction {
            Some(direction) => {
                let most = (self.blocks, MAX_READ_LEN);
                next_run(opened, found, direction, &self.limits(), most)
            }
            None => Group::of(found),
        }
    }
}

/// The data blocks from `found` on that a walk reads together: at most `most_blocks` within `limits`, and `most_bytes` of the file. Ends
/// before a block in the cache, and before an index piece that is not loaded. At least one block.
pub(crate) fn next_run(
    Opened { parts, store, .. }: &Opened,
    found: BlockRef,
    direction: Direction,
    limits: &Range<usize>,
    (most_blocks, most_bytes): (usize, u64),
) -> Group {
    let mut run = Group::of(found);
    while run.items.len() < most_blocks
        && let Some(next) = direction.first(&direction.rest(limits, &run.items))
        && let Ok(next) = parts.index.block(next)
        && !store.is_cached(parts, next)
        && let Some(both) = run.join(&Group::of(next), MAX_GAP, most_bytes)
    {
        run = both;
    }
    run
}
