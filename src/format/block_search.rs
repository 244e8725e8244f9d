//! Finding a key in a block: a binary search over the restarts, then a walk from entry to entry.

use std::cmp::Ordering;
use std::ops::Range;

use super::Defect;
use super::block::{Block, Entry, SplitEntry, check_shared, split_entry};
use super::touch::{LINE, lines, touch};
use crate::comparator::{Order, common_prefix};

/// The first entry at or after a target, and whether its key equals the target.
pub(crate) struct Landing {
    pub(super) offset: usize,
    pub(super) entry: Entry,
    exact: bool,
}

impl Landing {
    /// Where the entry's value lies, if the entry's key is the target.
    #[inline]
    pub(crate) fn exact_value(self) -> Option<Range<usize>> {
        self.exact.then_some(self.entry.value_start..self.entry.end)
    }
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

/// Walks from the restart at `from` of a block's `entries` to the first entry at or after `target` in bytewise order.
///
/// Does not assemble keys. All it remembers of the entry before is how many bytes that key and the target share,
/// `matched`. That key was below the target:
///
/// - An entry that shares more than `matched` bytes with that key has the same byte after them, and so is below too.
/// - Any other begins with `shared` bytes of the target, and is compared from there on.
///
/// For example, on the way to `apricot`, `apple` sets `matched` to 2. Then `applet`, stored as 5 and `t`, is passed
/// without a look at its bytes; `apricot`, stored as 2 and `ricot`, is compared with `ricot`.
///
/// This holds for writers that share less than they could, too.
#[inline]
fn walk_bytewise(entries: &[u8], target: &[u8], from: usize) -> Result<Option<Landing>, Defect> {
    let Some(mut rest) = entries.get(from..) else {
        return Err(past_entries(entries, from));
    };
    let (mut matched, mut key_len) = (0, 0);
    while !rest.is_empty() {
        let offset = entries.len() - rest.len();
        let SplitEntry {
            shared,
            unshared,
            value,
            rest: after,
        } = split_entry(entries, rest)?;
        if shared > matched {
            check_shared(offset, shared, key_len)?;
        } else {
            #[expect(clippy::indexing_slicing, reason = "`matched` counts target bytes")]
            let target = &target[shared..];
            let common = common_prefix_of_short(unshared, target);
            // The next byte decides; the end of a key comes before any byte.
            if unshared.get(common) >= target.get(common) {
                let end = entries.len() - after.len();
                let value_start = end - value.len();
                return Ok(Some(Landing {
                    offset,
                    entry: Entry {
                        shared,
                        key_start: value_start - unshared.len(),
                        value_start,
                        end,
                    },
                    exact: common == unshared.len() && common == target.len(),
                }));
            }
            matched = shared + common;
        }
        key_len = shared + unshared.len();
        rest = after;
    }
    Ok(None)
}

#[cold]
fn past_entries(entries: &[u8], restart: usize) -> Defect {
    Defect::new(
        format!("restarts in {} bytes of entries", entries.len()),
        format!("one at {restart}"),
    )
}

/// The same as [`common_prefix`], for keys that mostly differ in the first byte.
#[inline]
fn common_prefix_of_short(a: &[u8], b: &[u8]) -> usize {
    if a.len() < 8 {
        let pairs = a.iter().zip(b);
        pairs.take_while(|(x, y)| x == y).count()
    } else {
        common_prefix(a, b)
    }
}

impl<B: AsRef<[u8]>> Block<B> {
    /// Where the value of `key` lies in the block; `None` if the block does not hold the key.
    #[inline(always)] // on the path of every lookup
    pub(crate) fn find(
        &self,
        key: &[u8],
        order: &Order,
        part: SearchPart,
    ) -> Result<Option<Range<usize>>, Defect> {
        let landing = match order {
            Order::Bytewise => self.seek_bytewise(key, part)?,
            Order::Custom(_) => self.seek_custom(key, order, &mut Vec::new())?,
        };
        Ok(landing.and_then(Landing::exact_value))
    }

    /// Finds the first entry at or after `target`, which should be in `part`, in bytewise order. The bytes that its key shares
    /// with the one before are also the first bytes of `target`.
    #[inline]
    pub(super) fn seek_bytewise(
        &self,
        target: &[u8],
        part: SearchPart,
    ) -> Result<Option<Landing>, Defect> {
        let from = self.walk_from(target, &Order::Bytewise, part)?;
        let landing = walk_bytewise(self.entries(), target, from)?;
        match &landing {
            // No entry below the target was seen, so entries before the restart may be at or after it, too.
            Some(landing) if landing.offset == from && from > 0 => self.seek_again(target),
            _ => Ok(landing),
        }
    }

    #[cold]
    #[inline(never)]
    fn seek_again(&self, target: &[u8]) -> Result<Option<Landing>, Defect> {
        let from = self.walk_from(target, &Order::Bytewise, SearchPart::WHOLE)?;
        walk_bytewise(self.entries(), target, from)
    }

    /// Finds the first entry at or after `target` in any order. Comparators take whole keys, so this assembles each key in
    /// `key`, which holds the entry's own at the end.
    pub(super) fn seek_custom(
        &self,
        target: &[u8],
        order: &Order,
        key: &mut Vec<u8>,
    ) -> Result<Option<Landing>, Defect> {
        let mut offset = self.walk_from(target, order, SearchPart::WHOLE)?;
        key.clear();
        while offset < self.entries().len() {
            let entry = self.entry(offset)?;
            check_shared(offset, entry.shared, key.len())?;
            key.truncate(entry.shared);
            key.extend_from_slice(self.unshared(&entry));
            match order.compare(key, target) {
                Ordering::Less => offset = entry.end,
                ordering => {
                    let exact = ordering == Ordering::Equal;
                    return Ok(Some(Landing {
                        offset,
                        entry,
                        exact,
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Where the walk to `target` begins: at the last restart of `part` whose key is below it, or at the first restart of
    /// `part` if there is none. Touches the entries up to the next restart in a block that is too large to be touched as a
    /// whole.
    #[inline]
    fn walk_from(&self, target: &[u8], order: &Order, part: SearchPart) -> Result<usize, Defect> {
        let (count, step) = (self.restart_count(), self.fence_step());
        let first = count.saturating_sub(1).min(usize::from(part.first) * step);
        let mut high = count.min((usize::from(part.last) + 1) * step);
        // The first restart is not compared: the walk begins there if no other is below the target.
        let mut low = first + 1;
        let mut interval = 0..self.entries().len();
        if first > 0 {
            interval.start = self.restart(first);
        }
        while low < high {
            let middle = low + (high - low - 1) / 2;
            let (offset, key) = self.restart_key(middle)?;
            if order.compare(key, target) == Ordering::Less {
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
        let entry = self.entry(offset)?;
        check_shared(offset, entry.shared, 0)?;
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
        let last = SearchPart::new(2, 2, [1, 2]);
        let find = |block: &[u8], key: &str, part| {
            Block::parse(block.to_vec())
                .and_then(|b| b.find(key.as_bytes(), &Order::Bytewise, part))
        };
        assert!(find(&sound, "399", last).unwrap().is_some());

        let mut past_the_end = sound.clone();
        for restart in past_the_end[restarts_at..].chunks_exact_mut(4).take(300) {
            restart.copy_from_slice(&(1u32 << 20).to_le_bytes());
        }
        for part in SearchPart::all() {
            assert!(find(&past_the_end, "399", part).is_err(), "{part:?}");
        }

        // The only restart of its part, at which the walk begins without a look at its key.
        let mut small = build(&entries[..3].to_vec(), 1);
        assert!(find(&small, "102", last).unwrap().is_some());
        let at = small.len() - 8;
        small[at..at + 4].copy_from_slice(&(1u32 << 20).to_le_bytes());
        assert!(find(&small, "102", last).is_err());

        let mut descending = sound[..restarts_at].to_vec();
        for restart in sound[restarts_at..].chunks_exact(4).take(300).rev() {
            descending.extend_from_slice(restart);
        }
        descending.extend_from_slice(&300u32.to_le_bytes());
        for part in SearchPart::all() {
            for (key, _) in &entries {
                let _ = find(&descending, std::str::from_utf8(key).unwrap(), part);
            }
        }
    }
}
