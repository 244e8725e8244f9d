//! The order of a table's keys, checked when it is opened.
//!
//! Each block that a lookup reads is checked first. That is not enough: if the index happens to ascend, and the blocks that lookups
//! read happen to be in place, a key that lies in another block is missed. So opening looks at all blocks, or, where there are too
//! many, at some: in a table of another order most are out of order.

use std::ops::Range;

use crate::error::Result;
use crate::read::ahead::ReadAhead;
use crate::read::fetch::Run;
use crate::read::file::TAIL_LEN;
use crate::read::table::Inner;

/// Up to this size, the order of all keys is checked when a table is opened, whatever the table says of itself: all of it was
/// read, and in so few blocks an index ascends by chance.
pub(super) const SMALL: u64 = TAIL_LEN;

/// Up to this size, the sample of a table that does not name its order is the whole table. By its defaults LevelDB writes no
/// larger ones: compactions end a table after 2 MiB (`max_file_size`), and a memtable has 4 MiB (`write_buffer_size`).
const WHOLE: u64 = 4 << 20;

/// Before its tail, the sample of a larger table has at most so many runs of blocks, each of so many bytes or one block, and of
/// so many bytes in all.
const MOST_RUNS: usize = 16;
const RUN_LEN: u64 = 64 << 10;
const MOST_LEN: u64 = WHOLE;

/// Most bytes of a sample's blocks once decompressed, so that a hostile file cannot make opening slow: of a table of [`WHOLE`] bytes,
/// what a codec gives that makes a sixteenth of them.
const MOST_PAYLOAD: usize = 64 << 20;

impl Inner {
    /// The data blocks that tell the most about the order of all, for what it costs to read them, in ascending order: those in
    /// the tail, which was read anyway, and of the others all, or runs of some at even distances.
    pub(super) fn sample(&self) -> Vec<Run> {
        let blocks = self.index.len();
        let tail = self.file.size.saturating_sub(TAIL_LEN);
        let is_in_tail = |&i: &usize| self.index.handle(i).offset >= tail;
        let in_tail = (0..blocks).rev().take_while(is_in_tail).count();
        let before = blocks - in_tail;
        let mut runs = if self.file.size <= WHOLE {
            self.run_of(0..before).into_iter().collect()
        } else {
            self.spread(before)
        };
        runs.extend(self.run_of(before..blocks));
        runs
    }

    /// The run of `blocks`, if there are any.
    fn run_of(&self, blocks: Range<usize>) -> Option<Run> {
        (!blocks.is_empty()).then(|| self.run(blocks))
    }

    /// Runs of the first `blocks` data blocks, at even distances.
    fn spread(&self, blocks: usize) -> Vec<Run> {
        let Some(last) = blocks.checked_sub(1) else {
            return Vec::new();
        };
        let mean = self.frame_end(last) / blocks as u64;
        let affordable = MOST_LEN / mean.max(RUN_LEN);
        let wanted = usize::try_from(affordable).map_or(MOST_RUNS, |n| n.min(MOST_RUNS));
        let wanted = wanted.min(blocks);
        let mut left = MOST_LEN;
        let fits = |run: &Run| {
            let rest = left.checked_sub(run.len);
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        // No overflow: a table of so many blocks has no room in memory for its index.
        let start = |n| n * blocks / wanted;
        let runs = (0..wanted).map(|n| self.run_from(start(n), start(n + 1), RUN_LEN));
        // Some blocks may be much longer than the mean.
        runs.filter(fits).collect()
    }

    /// Checks the order of keys in these data blocks. One that cannot be read, or is damaged, is left for lookups to find.
    pub(super) fn check_sample(&self, sample: &[Run]) -> Result<()> {
        let mut left = match self.file.size {
            0..=SMALL => usize::MAX,
            _ => MOST_PAYLOAD,
        };
        for i in sample.iter().flat_map(|run| run.blocks.clone()) {
            let frame = self.file.look_at_frame(self.index.handle(i));
            match frame.map(|frame| self.check_frame(i, &frame, true)) {
                Ok(Ok(block)) if block.len() <= left => left -= block.len(),
                Ok(Ok(_)) => break,
                Ok(Err(defect)) if defect.is_misordered() => return Err(self.locate(i, defect)),
                Ok(Err(_)) | Err(_) => {}
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
