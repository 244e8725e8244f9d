//! Finding a key in a block: a binary search over the restarts, then a walk from entry to entry.

use std::cmp::Ordering;
use std::ops::Range;

use super::Defect;
use super::block::{Block, Entry};
use super::buffer::Buffer;
use super::prefetch::{LINE, lines, prefetch};
use crate::comparator::{Order, compare_bytes};

impl<B: AsRef<[u8]>> Block<B> {
    /// Where the value of `key` lies in the block; `None` if the block does not hold the key.
    #[inline(always)] // on the path of every lookup
    pub fn find(&self, key: &[u8], order: &Order) -> Result<Option<Range<usize>>, Defect> {
        let found = self.seek(key, order, &mut Buffer::default())?;
        let exact = found.filter(|(_, is_exact)| *is_exact);
        Ok(exact.map(|(entry, _)| entry.value()))
    }

    /// Finds the first entry at or after `target`, and whether its key is the target.
    ///
    /// In bytewise order it assembles no keys. All it remembers of the key before is how many bytes that and the target
    /// share, `matched`. That key was below the target:
    ///
    /// - An entry that shares more than `matched` bytes with that key has the same byte after them, and so is below too.
    /// - Any other begins with `shared` bytes of the target, and is compared from there on.
    ///
    /// For example, on the way to `apricot`, `apple` sets `matched` to 2. Then `applet`, stored as 5 and `t`, is passed
    /// without a look at its bytes; `apricot`, stored as 2 and `ricot`, is compared with `ricot`. This holds for writers that
    /// share less than they could, too.
    ///
    /// Other comparators take whole keys. It assembles them in `key`, which becomes the key of the entry.
    #[inline]
    pub(super) fn seek(
        &self,
        target: &[u8],
        order: &Order,
        key: &mut Buffer,
    ) -> Result<Option<(Entry, bool)>, Defect> {
        let (from, mut matched) = self.restart_below(target, order)?;
        let entries = match order {
            Order::Bytewise => self.entries_from(from.end(), from.key_len()),
            Order::Custom(_) => self.entries_from(from.offset(), 0),
        };
        for entry in entries {
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
                    key.splice(entry.shared(), self.data.as_ref(), entry.unshared());
                    comparator.compare(key.as_slice(), target)
                }
            };
            if ordering.is_ge() {
                return Ok(Some((entry, ordering.is_eq())));
            }
        }
        Ok(None)
    }

    /// The entry at the last restart whose key is below `target`, and in bytewise order the length of their common prefix. No entry,
    /// at the beginning, if there is none. Prefetches the entries from there up to the next restart.
    #[inline]
    fn restart_below(&self, target: &[u8], order: &Order) -> Result<(Entry, usize), Defect> {
        let (mut below, mut matched) = (Entry::default(), 0);
        let mut end = self.entries().len();
        // The first restart is not compared: the walk begins there if no other is below the target.
        let (mut low, mut high) = (1, self.restart_count);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry_at_restart(middle)?;
            let key = self.unshared(&entry);
            let (ordering, common) = match order {
                Order::Bytewise => compare_bytes(key, target),
                Order::Custom(comparator) => (comparator.compare(key, target), 0),
            };
            if ordering.is_lt() {
                (below, matched) = (entry, common);
                low = middle + 1;
            } else {
                end = entry.offset();
                high = middle;
            }
        }
        // Restarts that were not checked may leave no interval.
        if let Some(interval) = self.entries().get(below.offset()..end) {
            // With a constant length, no line is checked for.
            match interval.first_chunk::<{ WALKED * LINE }>() {
                Some(walked) => prefetch(lines(walked)),
                None => prefetch(lines(interval)),
            }
        }
        Ok((below, matched))
    }
}

/// Number of lines to prefetch where a walk begins: about as many as processors fetch at once. A walk seldom gets further.
const WALKED: usize = 16;

/// Prefetches the end of `block`, where a search begins: with the number of restarts, then the restarts. Also prefetches its
/// beginning, usually on another page, so that both address translations overlap.
#[inline]
pub(crate) fn prefetch_block(block: &[u8]) {
    prefetch(block.last().into_iter().chain(block.first()));
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
