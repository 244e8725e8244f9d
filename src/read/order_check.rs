//! The order of a table's keys, checked when it is opened.
//!
//! Each block that a lookup reads is checked first. That is not enough: if the index happens to ascend, and the blocks that lookups
//! read happen to be in place, a key that lies in another block is missed. So opening looks at all blocks, or, where there are too
//! many, at some: in a table of another order most are out of order.

use std::ops::Range;

use crate::error::Result;
use crate::format::block_check::KeyWork;
use crate::format::frame;
use crate::read::ahead::ReadAhead;
use crate::read::fetch::Run;
use crate::read::file::TAIL_LEN;
use crate::read::table::Inner;

/// Up to this size, the order of all keys is checked when a table is opened, whatever the table says of itself: all of it was
/// read, and in so few blocks an index ascends by chance.
pub(super) const SMALL: u64 = TAIL_LEN;

/// Up to this size, the sample of a table that does not name its order is the whole table. By its defaults LevelDB seldom writes
/// larger ones: compactions end a table after 2 MiB (`max_file_size`), and a memtable has some 4 MiB (`write_buffer_size`).
const WHOLE: u64 = 4 << 20;

/// Before its tail, the sample of a larger table has at most so many runs of blocks, each of so many bytes or one block, and of
/// so many bytes in all.
const MOST_RUNS: u8 = 16;
const RUN_LEN: u64 = 64 << 10;
const MOST_LEN: u64 = WHOLE;

/// Most bytes of a sample's blocks once decompressed, so that a hostile file cannot make opening slow: of a table of
/// [`WHOLE`] bytes, what a codec gives that makes a sixteenth of them.
const MOST_PAYLOAD: u64 = 64 << 20;

impl Inner {
    /// The data blocks that tell the most about the order of all, for what it costs to read them: those in the tail, which was
    /// read anyway, and of the others all, or runs of some at even distances.
    pub(super) fn sample(&self) -> Vec<Run> {
        let blocks = self.index.len();
        let tail = self.file.size.saturating_sub(TAIL_LEN);
        let is_in_tail = |&i: &usize| self.index.handle(i).offset >= tail;
        let in_tail = (0..blocks).rev().take_while(is_in_tail).count();
        let before = blocks - in_tail;
        let mut runs = Vec::new();
        runs.extend(self.run_of(before..blocks));
        if self.file.size <= WHOLE {
            runs.extend(self.run_of(0..before));
        } else {
            runs.extend(self.spread(before));
        }
        runs
    }

    /// The run of `blocks`, if there are any.
    fn run_of(&self, blocks: Range<usize>) -> Option<Run> {
        (!blocks.is_empty()).then(|| self.run(blocks))
    }

    /// Runs of the first `blocks` data blocks, at even distances.
    fn spread(&self, blocks: usize) -> impl Iterator<Item = Run> {
        // No overflow: a table of so many blocks has no room in memory for its index.
        let start = move |n: u8| usize::from(n) * blocks / usize::from(MOST_RUNS);
        // The middle before the quarters, so that what there is room for is spread if blocks are large.
        let places = (0..MOST_RUNS).map(|n| n.reverse_bits() / (u8::MAX / MOST_RUNS + 1));
        let places = places.map(move |n| start(n)..start(n + 1));
        let places = places.filter(|blocks| !blocks.is_empty());
        let mut left = MOST_LEN;
        places.filter_map(move |blocks| {
            let run = self.run_from(blocks.start, blocks.end, RUN_LEN);
            left = left.checked_sub(run.len)?;
            Some(run)
        })
    }

    /// Checks the order of keys in these data blocks. One that cannot be read, or is damaged, is left for lookups to find.
    pub(super) fn check_sample(&self, sample: &[Run]) -> Result<()> {
        let is_limited = self.file.size > SMALL;
        let (mut left, mut work) = (MOST_PAYLOAD, KeyWork::of_block());
        for run in sample {
            // For what could not be read at once.
            let mut ahead = ReadAhead::over_all();
            ahead.limit(run.blocks.clone());
            for i in run.blocks.clone() {
                // Of a small file, no block may be left out because of others.
                if !is_limited {
                    (left, work) = (u64::MAX, KeyWork::of_block());
                }
                let frame = self.file.frame_ahead(self.index.handle(i));
                let Ok(frame) = frame.map_or_else(|| ahead.frame(self, i), Ok) else {
                    continue;
                };
                if frame::verify(&frame).is_err() {
                    continue;
                }
                let block = match frame::open_within(&frame, left) {
                    Ok(block) => block,
                    // Too long for what is left; or no honest writer made it, since the checksum is right, and to see that may
                    // have taken all that was left.
                    Err(defect) if is_limited && !defect.is_unsupported() => return Ok(()),
                    Err(_) => continue,
                };
                left = left.saturating_sub(block.len() as u64);
                match self.check_payload(i, &block, &mut work) {
                    Err(defect) if defect.is_misordered() => return Err(self.locate(i, defect)),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Checks the order of keys in all data blocks. One that cannot be read, or is damaged, is an error.
    pub(super) fn check_order(&self) -> Result<()> {
        let mut ahead = ReadAhead::over_all();
        for i in 0..self.index.len() {
            let frame = ahead.frame(self, i);
            if frame.is_ok_and(|frame| self.check_frame(i, &frame, true).is_ok()) {
                continue;
            }
            // Read anew: what came with other blocks may have been read wrongly.
            let frame = self.file.read_frame(self.index.handle(i))?;
            let checked = self.check_frame(i, &frame, true);
            checked.map_err(|defect| self.locate(i, defect))?;
        }
        Ok(())
    }
}
