//! Which part of a mapped file the system should read ahead of a walk.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Most bytes that are announced at once.
const MOST: u64 = 256 << 10;

/// What was announced ahead of a walk: at first a block, then twice as much each time, up to [`MOST`]. When the walk arrives in the
/// middle of an announcement, the next one is due, so that the system reads while entries are used.
///
/// A walk backward is seen in a mirror: its places are counted from the end of all numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct WalkAhead {
    is_backward: bool,
    /// Where the walk was at the last announcement.
    place: u64,
    /// When that was; `None` for a walk's first.
    time: Option<Instant>,
    /// The length and the end of the last announcement.
    len: u64,
    end: u64,
}

impl WalkAhead {
    /// A walk arrives at a data block that lies at `frame`. Returns what to announce now.
    ///
    /// A block that `is_known` was seen before, and so is likely to be in memory. If the walk shows that it is not, by taking longer
    /// than one through memory does, it is announced as well.
    pub(super) fn arrive(
        &mut self,
        frame: Range<u64>,
        is_backward: bool,
        is_known: bool,
    ) -> Option<Range<u64>> {
        let frame_len = frame.end - frame.start;
        let place = if is_backward { !frame.end } else { frame.start };
        // There may be gaps between blocks.
        let ahead = self.place..=self.end.saturating_add(MOST);
        let goes_on = self.is_backward == is_backward && self.len > 0 && ahead.contains(&place);
        if goes_on && place < self.end - self.len / 2 {
            return None;
        }
        let (time, start, len) = if goes_on {
            let len = (2 * self.len).min(MOST).max(frame_len);
            (Some(Instant::now()), self.end.max(place), len)
        } else {
            (None, place, frame_len)
        };
        let took = time.zip(self.time).map(|(now, before)| now - before);
        let is_slow = took.is_some_and(|took| took > time_in_memory(place - self.place));
        let end = start.saturating_add(len);
        *self = WalkAhead {
            is_backward,
            place,
            time,
            len,
            end,
        };
        let announced = if is_backward {
            !end..!start
        } else {
            start..end
        };
        (!is_known || is_slow).then_some(announced)
    }
}

/// More time than a walk takes through so many bytes of memory, and less than one that waits for a disk at each page.
fn time_in_memory(bytes: u64) -> Duration {
    Duration::from_nanos(2 * bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4 << 10;

    fn frame(i: u64) -> Range<u64> {
        i * BLOCK..(i + 1) * BLOCK
    }

    /// Asserts that a walk over `blocks` that were not seen before has each announced once, before it arrives there, and never
    /// much more than the walk has covered.
    fn assert_announces(ahead: &mut WalkAhead, blocks: &[u64], is_backward: bool) -> usize {
        let mut announced: Vec<Range<u64>> = Vec::new();
        for &i in blocks {
            if let Some(bytes) = ahead.arrive(frame(i), is_backward, false) {
                let is_new =
                    |other: &Range<u64>| bytes.end <= other.start || other.end <= bytes.start;
                assert!(announced.iter().all(is_new), "{bytes:?} of {announced:?}");
                announced.push(bytes);
            }
            let holds =
                |other: &Range<u64>| other.start <= frame(i).start && frame(i).end <= other.end;
            assert!(announced.iter().any(holds), "{i}: {announced:?}");
            let bytes: u64 = announced.iter().map(|bytes| bytes.end - bytes.start).sum();
            let covered = frame(i).start.abs_diff(frame(blocks[0]).start) + BLOCK;
            let most = (3 * covered).min(covered + MOST + MOST / 2);
            assert!(bytes <= most, "{bytes} for {covered}");
        }
        announced.len()
    }

    #[test]
    fn walks_are_announced_ahead_both_ways_and_from_anywhere() {
        let forward: Vec<u64> = (500..1500).collect();
        let backward: Vec<u64> = (500..1500).rev().collect();
        let mut ahead = WalkAhead::default();
        assert!(assert_announces(&mut ahead, &forward, false) < 30);
        assert!(assert_announces(&mut ahead, &backward, true) < 30);
        assert!(assert_announces(&mut ahead, &forward, false) < 30);
        // At the file's beginning, and with gaps between the blocks.
        let gaps: Vec<u64> = (0..1000).step_by(2).collect();
        assert_announces(&mut ahead, &gaps, false);
        let gaps: Vec<u64> = gaps.into_iter().rev().collect();
        assert_announces(&mut ahead, &gaps, true);
    }

    #[test]
    fn a_short_walk_announces_little() {
        let mut ahead = WalkAhead::default();
        assert_eq!(ahead.arrive(frame(7), false, false), Some(frame(7)));
        assert_eq!(
            ahead.arrive(frame(8), false, false),
            Some(8 * BLOCK..10 * BLOCK)
        );
        // Elsewhere, the walk begins anew.
        assert_eq!(ahead.arrive(frame(900), false, false), Some(frame(900)));
        assert_eq!(ahead.arrive(frame(899), true, false), Some(frame(899)));
    }

    #[test]
    fn known_blocks_are_announced_to_a_slow_walk_only() {
        let walk = |pause: Duration| {
            let mut ahead = WalkAhead::default();
            let arrivals = (0..200).filter(|&i| {
                std::thread::sleep(pause);
                ahead.arrive(frame(i), false, true).is_some()
            });
            arrivals.count()
        };
        assert!(walk(Duration::from_micros(50)) > 3);
        // A test machine may stop for a while.
        assert!((0..100).any(|_| walk(Duration::ZERO) == 0));
    }
}
