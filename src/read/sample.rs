//! The order of a table that does not name its order, judged by some of its data blocks.
//!
//! Each block that a lookup reads is checked first, so that a wrong order goes unnoticed only if the index happens to ascend
//! and the blocks that lookups read happen to be in place. Other blocks of such a table are usually out of order, and a sample
//! finds them.

use crate::error::Result;
use crate::read::file::TAIL_LEN;
use crate::read::open::SMALL;
use crate::read::table::Inner;

/// Up to this size of the file, the sample is the whole table: its data comes with one read, in no more time than a few blocks
/// that lie apart.
const WHOLE: u64 = 4 * SMALL;

/// Most blocks before the tail that a sample of a larger table has, and most bytes of them.
const MOST_BLOCKS: usize = 16;
const MOST_LEN: u64 = 512 << 10;

impl Inner {
    /// The data blocks that tell the most about the order of all, for what it costs to read them, in ascending order: those in
    /// the tail, which was read anyway, and of the others the first, the last, and some at even distances between.
    pub(super) fn sample(&self) -> Vec<usize> {
        let blocks = self.index.len();
        if self.file.size <= WHOLE {
            return (0..blocks).collect();
        }
        let tail = self.file.size - TAIL_LEN;
        let is_in_tail = |&i: &usize| self.index.handle(i).offset >= tail;
        let in_tail = (0..blocks).rev().take_while(is_in_tail).count();
        let before = blocks - in_tail;
        let mut sample = self.spread(before);
        sample.extend(before..blocks);
        sample
    }

    /// Some of the first `blocks` data blocks, at even distances.
    fn spread(&self, blocks: usize) -> Vec<usize> {
        let Some(last) = blocks.checked_sub(1) else {
            return Vec::new();
        };
        // At least the bytes of a trailer.
        let mean = (self.frame_end(last) / blocks as u64).max(1);
        let affordable = MOST_LEN / mean;
        let most = usize::try_from(affordable).map_or(MOST_BLOCKS, |n| n.min(MOST_BLOCKS));
        let wanted = most.min(blocks);
        let mut left = MOST_LEN;
        let fits = |&i: &usize| {
            let len = self.frame_end(i) - self.index.handle(i).offset;
            let rest = left.checked_sub(len);
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        // A sample of one block has no gap.
        let gaps = wanted.saturating_sub(1).max(1);
        // No overflow: a table of so many blocks has no room in memory for its index.
        let spread = (0..wanted).map(|n| n * last / gaps);
        // Some may be much longer than the mean.
        spread.filter(fits).collect()
    }

    /// Checks the order of keys in these data blocks. One that cannot be read, or is damaged, is left for lookups to find.
    pub(super) fn check_sample(&self, sample: &[usize]) -> Result<()> {
        for &i in sample {
            let frame = self.file.read_frame(self.index.handle(i));
            let checked = frame.map(|frame| self.check_frame(i, &frame, true));
            if let Ok(Err(defect)) = checked
                && defect.is_misordered()
            {
                return Err(self.locate(i, defect));
            }
        }
        Ok(())
    }
}
