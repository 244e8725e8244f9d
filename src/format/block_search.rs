//! Finding a key in a block: a binary search over the restarts, then a walk from entry to entry.

use std::cmp::Ordering;
use std::ops::Range;

use super::Defect;
use super::block::{Block, Entry};
use super::block_key::Key;
use super::touch::{LINE, lines, touch};
use crate::comparator::{Order, compare_bytes};

/// The first entry at or after a target.
pub(super) struct Landing {
    pub(super) entry: Entry,
    /// Whether its key is the target.
    is_exact: bool,
}

/// A hint: the part of a block where an earlier lookup learned that a key must be.
///
/// Two [fences](Block::fence) divide a block into three parts; the hint names one or more of them. A wrong hint makes a
/// search slower and does not change what it finds. (Except in a block whose keys do not ascend although its checksum is
/// right, which takes a hostile writer. There any search may miss a key, and a hint decides which keys it misses.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SearchPart {
    /// The first and the last of the parts, from 0.
    first: u8,
    last: u8,
    /// The cache line of the block in which the first part begins, and the number of lines to touch from there.
    first_line: u8,
    lines: u8,
}

impl SearchPart {
    /// All of a block.
    pub(crate) const WHOLE: SearchPart = SearchPart {
        first: 0,
        last: 2,
        first_line: 0,
        lines: (TOUCH_WHOLE / LINE) as u8,
    };

    /// All of a block that was touched before.
    pub(crate) const TOUCHED: SearchPart = SearchPart {
        lines: 0,
        ..SearchPart::WHOLE
    };

    /// Number of lines to touch where the walk is known to begin: as many as processors fetch at once. A walk seldom
    /// gets further, and more would delay it.
    const WALKED: u8 = 16;

    /// Parts `first` to `last`, where parts 1 and 2 begin in lines `fences`.
    #[inline]
    pub(crate) fn new(first: u8, last: u8, fences: [u8; 2]) -> SearchPart {
        let [second, third] = fences;
        SearchPart {
            first,
            last,
            first_line: match first {
                0 => 0,
                1 => second,
                _ => third,
            },
            lines: SearchPart::WALKED,
        }
    }

    /// Every hint, right or wrong.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn all() -> impl Iterator<Item = SearchPart> {
        (0..3).flat_map(|first| (first..3).map(move |last| SearchPart::new(first, last, [1, 2])))
    }

    /// Where in a block the search begins, to the line.
    #[cfg(test)]
    pub(crate) fn start(&self) -> usize {
        LINE * usize::from(self.first_line)
    }
}

impl<B: AsRef<[u8]>> Block<B> {
    /// Where the value of `key` lies in the block; `None` if the block does not hold the key.
    #[inline(always)] // on the path of every lookup
    pub(crate) fn find(&self, key: &[u8], order: &Order) -> Result<Option<Range<usize>>, Defect> {
        let landing = self.seek(key, order, &mut Key::default())?;
        let exact = landing.filter(|landing| landing.is_exact);
        Ok(exact.map(|landing| landing.entry.value()))
    }

    /// Finds the first entry at or after `target`.
    ///
    /// In bytewise order, it does not assemble keys. All it remembers of the entry before is how many bytes that key and
    /// the target share, `matched`. That key was below the target:
    ///
    /// - An entry that shares more than `matched` bytes with that key has the same byte after them, and so is below too.
    /// - Any other begins with `shared` bytes of the target, and is compared from there on.
    ///
    /// For example, on the way to `apricot`, `apple` sets `matched` to 2. Then `applet`, stored as 5 and `t`, is passed
    /// without a look at its bytes; `apricot`, stored as 2 and `ricot`, is compared with `ricot`. This holds for writers that
    /// share less than they could, too.
    ///
    /// Other comparators take whole keys, which it assembles in `key`. That ends as the key of the entry.
    #[inline]
    pub(super) fn seek(
        &self,
        target: &[u8],
        order: &Order,
        key: &mut Key,
    ) -> Result<Option<Landing>, Defect> {
        let mut matched = 0;
        for entry in self.entries_from(self.walk_from(target, order)?, 0) {
            let entry = entry?;
            let ordering = match order {
                Order::Bytewise if entry.shared() > matched => Ordering::Less,
                Order::Bytewise => {
                    let (_, rest) = target.split_at(entry.shared());
                    let (ordering, common) = compare_bytes(self.unshared(&entry), rest);
                    matched = entry.shared() + common;
                    ordering
                }
                Order::Custom(comparator) => {
                    key.splice(entry.shared(), self.data().as_ref(), entry.unshared());
                    comparator.compare(key.as_slice(), target)
                }
            };
            if ordering.is_ge() {
                let is_exact = ordering.is_eq();
                return Ok(Some(Landing { entry, is_exact }));
            }
        }
        Ok(None)
    }

    /// Where the walk to `target` begins: at the last restart whose key is below it, or at the first entry if there is none.
    /// Touches the entries up to the next restart in a block that is too large to be touched as a whole.
    #[inline]
    fn walk_from(&self, target: &[u8], order: &Order) -> Result<usize, Defect> {
        let mut interval = 0..self.entries().len();
        // The first restart is not compared: the walk begins there if no other is below the target.
        let (mut low, mut high) = (1, self.restart_count());
        while low < high {
            let middle = low + (high - low) / 2;
            let (offset, key) = self.restart_key(middle)?;
            if order.compare(key, target).is_lt() {
                interval.start = offset;
                low = middle + 1;
            } else {
                interval.end = offset;
                high = middle;
            }
        }
        let from = interval.start;
        // Restarts that were not checked may leave no interval, and nothing to touch.
        if self.entries().len() > TOUCH_WHOLE
            && let Some(interval) = self.entries().get(interval)
        {
            touch(lines(interval).take(TOUCH_WHOLE / LINE));
        }
        Ok(from)
    }

    /// Number of restarts in each part of a block: a third of them, rounded up.
    #[inline]
    fn fence_step(&self) -> usize {
        self.restart_count().div_ceil(3)
    }

    /// Offset and key of the restart with which part `number`, 1 or 2, begins. `None` if there is no such part, or no
    /// whole key: a hint need not be given.
    pub(crate) fn fence(&self, number: u8) -> Option<(usize, &[u8])> {
        let restart = usize::from(number) * self.fence_step();
        if restart < self.restart_count() {
            self.restart_key(restart).ok()
        } else {
            None
        }
    }

    /// Offset and key of the entry at restart `i`. The key must be stored whole.
    #[inline]
    fn restart_key(&self, i: usize) -> Result<(usize, &[u8]), Defect> {
        let offset = self.restart(i);
        let none = || Defect::new("an entry at each restart", format!("none at byte {offset}"));
        let entry = self.entries_from(offset, 0).next().ok_or_else(none)??;
        Ok((offset, self.unshared(&entry)))
    }
}

/// Up to this length, a block is touched as a whole when it is fetched. In a larger block, a search touches the restart
/// interval that it ends in.
pub(crate) const TOUCH_WHOLE: usize = 8 << 10;

/// Touches the `part` of `block` that a search will look at, and the block's last byte, if the block is of ordinary size.
///
/// A search goes from the block's end to its restarts, to an entry, to the next entry. Each step would wait for memory.
#[inline]
pub(crate) fn touch_part(block: &[u8], part: SearchPart) {
    if block.len() > TOUCH_WHOLE {
        return;
    }
    // A wrong hint may lead past the end.
    if let Some(from_first) = block.get(usize::from(part.first_line) * LINE..) {
        let lines = lines(from_first).take(part.lines.into());
        touch(lines.chain(block.last()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::{Entries, build};
    use super::*;

    /// Restarts are checked when a block comes in. A search must survive without: it reports what it cannot follow.
    #[test]
    fn restarts_that_were_not_checked_do_not_panic_or_hide_keys() {
        let entries: Entries = (100..400u32)
            .map(|i| (i.to_string().into(), vec![b'v'; 40]))
            .collect();
        let sound = build(&entries, 1);
        assert!(sound.len() > TOUCH_WHOLE, "searches touch an interval");
        let restarts_at = sound.len() - 4 - 4 * entries.len();
        let find = |block: &[u8], key: &str| {
            Block::parse(block.to_vec()).and_then(|b| b.find(key.as_bytes(), &Order::Bytewise))
        };
        assert!(find(&sound, "399").unwrap().is_some());

        let mut past_the_end = sound.clone();
        for restart in past_the_end[restarts_at..].chunks_exact_mut(4).take(300) {
            restart.copy_from_slice(&(1u32 << 20).to_le_bytes());
        }
        assert!(find(&past_the_end, "399").is_err());

        let mut at_the_end = build(&entries[..3].to_vec(), 1);
        assert!(find(&at_the_end, "102").unwrap().is_some());
        let restart = at_the_end.len() - 8;
        let end = restart as u32 - 8;
        at_the_end[restart..restart + 4].copy_from_slice(&end.to_le_bytes());
        assert!(find(&at_the_end, "102").is_err());

        let mut descending = sound[..restarts_at].to_vec();
        for restart in sound[restarts_at..].chunks_exact(4).take(300).rev() {
            descending.extend_from_slice(restart);
        }
        descending.extend_from_slice(&300u32.to_le_bytes());
        for (key, _) in &entries {
            let _ = find(&descending, std::str::from_utf8(key).unwrap());
        }
    }
}
