//! Finding a key in a block: a binary search over the restarts, then a walk from entry to entry.

use std::cmp::Ordering;
use std::ops::Range;

use super::Defect;
use super::block::{Block, Entry, check_shared, entry_at, split_entry, split_short_entry};
use super::touch::{LINE, lines, touch};
use crate::comparator::{Order, common_prefix};

/// The first entry at or after a target, and whether its key equals the target.
pub(crate) struct Landing {
    pub(super) offset: usize,
    pub(super) entry: Entry,
    exact: bool,
}

impl Landing {
    /// Where the entry's value lies, if its key is the target.
    #[inline]
    pub(crate) fn exact_value(self) -> Option<Range<usize>> {
        self.exact.then_some(self.entry.value_start..self.entry.end)
    }
}

/// What a search in a block may confine itself to, as far as that is known from a time before: one or more of the
/// three parts that [fences](Block::fence) separate.
///
/// A search that is sent to the wrong part ends where any other does, only later. (Where keys do not ascend though the
/// checksum is right, which takes a hostile writer, any search may miss a key, and one from another part may not.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first and the last of the parts, from 0.
    first: u8,
    last: u8,
    /// The line that the first begins in, and how many to touch from there.
    first_line: u8,
    lines: u8,
}

impl Part {
    /// All of a block.
    pub(crate) const WHOLE: Part = Part {
        first: 0,
        last: 2,
        first_line: 0,
        lines: (TOUCH_WHOLE / LINE) as u8,
    };

    /// All of a block, none of which is to be touched: it was before.
    pub(crate) const TOUCHED: Part = Part {
        lines: 0,
        ..Part::WHOLE
    };

    /// How many lines are touched where a walk is known to begin: as many as processors fetch at once. It seldom
    /// gets further, and more would only hold it up.
    const WALKED: u8 = 16;

    /// Parts `first` to `last`, where those behind part 0 begin in lines `fences`.
    #[inline]
    pub(crate) fn new(first: u8, last: u8, fences: [u8; 2]) -> Part {
        let [second, third] = fences;
        Part {
            first,
            last,
            first_line: match first {
                0 => 0,
                1 => second,
                _ => third,
            },
            lines: Part::WALKED,
        }
    }

    /// Whatever a search can be told, right or wrong.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Part> {
        (0..3).flat_map(|first| (first..3).map(move |last| Part::new(first, last, [1, 2])))
    }

    /// Where in a block the search begins, to the line.
    #[cfg(test)]
    pub(crate) fn start(&self) -> usize {
        LINE * usize::from(self.first_line)
    }
}

/// Walks from the restart at `from` of a block's `entries` to the first entry at or after `target` in bytewise
/// order, without putting keys together.
///
/// Between entries only the length `matched` of the prefix that the entry before shares with the
/// target is kept. That entry was below the target, so one that shares more than `matched` bytes
/// with it is below too, for the same byte; any other begins with `shared` bytes of the target
/// and is compared from there on. Nothing is assumed of how much a writer chose to share.
#[inline]
fn walk_bytewise(entries: &[u8], target: &[u8], from: usize) -> Result<Option<Landing>, Defect> {
    let (mut matched, mut key_len) = (0, 0);
    let mut rest = entries.get(from..).unwrap_or_default();
    loop {
        let (shared, key, value, behind) = match split_short_entry(rest) {
            Some(parts) => parts,
            None if rest.is_empty() => return Ok(None),
            None => split_entry(entries, rest)?,
        };
        if shared > matched {
            check_shared(entries.len() - rest.len(), shared, key_len)?;
        } else {
            let target = target.get(shared..).unwrap_or_default();
            let common = common_prefix_of_short(key, target);
            if key.get(common) >= target.get(common) {
                let end = entries.len() - behind.len();
                let value_start = end - value.len();
                return Ok(Some(Landing {
                    offset: entries.len() - rest.len(),
                    entry: Entry {
                        shared,
                        key_start: value_start - key.len(),
                        value_start,
                        end,
                    },
                    exact: common == key.len() && common == target.len(),
                }));
            }
            matched = shared + common;
        }
        key_len = shared + key.len();
        rest = behind;
    }
}

/// The same as [`common_prefix`], for keys whose first byte nearly always decides.
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
        part: Part,
    ) -> Result<Option<Range<usize>>, Defect> {
        let landing = match order {
            Order::Bytewise => self.seek_from_part(key, part)?,
            Order::Custom(_) => self.seek_custom(key, order, &mut Vec::new())?,
        };
        Ok(landing.and_then(Landing::exact_value))
    }

    /// Finds the first entry at or after `target` in bytewise order. Its key begins with as many bytes of
    /// the target as it shares with the one before.
    #[inline]
    pub(super) fn seek_bytewise(&self, target: &[u8]) -> Result<Option<Landing>, Defect> {
        let from = self.walk_from(target, &Order::Bytewise, Part::WHOLE)?;
        walk_bytewise(self.entries(), target, from)
    }

    /// The same, by way of the part that the target is said to be in or behind.
    #[inline]
    fn seek_from_part(&self, target: &[u8], part: Part) -> Result<Option<Landing>, Defect> {
        let from = self.walk_from(target, &Order::Bytewise, part)?;
        let landing = walk_bytewise(self.entries(), target, from)?;
        match &landing {
            // At the restart itself: what is before may be at or after the target, too.
            Some(landing) if landing.offset == from && from > 0 => self.seek_again(target),
            _ => Ok(landing),
        }
    }

    #[cold]
    #[inline(never)]
    fn seek_again(&self, target: &[u8]) -> Result<Option<Landing>, Defect> {
        self.seek_bytewise(target)
    }

    /// The same in any order, which takes whole keys: `key` ends as that of the entry landed on.
    pub(super) fn seek_custom(
        &self,
        target: &[u8],
        order: &Order,
        key: &mut Vec<u8>,
    ) -> Result<Option<Landing>, Defect> {
        let mut offset = self.walk_from(target, order, Part::WHOLE)?;
        let entries = self.entries();
        key.clear();
        while offset < entries.len() {
            let entry = entry_at(entries, offset)?;
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

    /// Where the walk to `target` begins: at the last restart whose key is below it, or the first, among those of
    /// `part`, of which the first is taken to be below. In a block too large to be touched as a whole, the restart
    /// interval is touched here.
    #[inline]
    fn walk_from(&self, target: &[u8], order: &Order, part: Part) -> Result<usize, Defect> {
        let (count, step) = (self.restart_count(), self.fence_step());
        let first = count.saturating_sub(1).min(usize::from(part.first) * step);
        let mut high = count.min((usize::from(part.last) + 1) * step);
        // The first is where the walk begins if no other is below the target: never looked at.
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
        if self.entries().len() > TOUCH_WHOLE {
            let end = interval.end.min(interval.start.saturating_add(TOUCH_WHOLE));
            touch(lines(self.bytes(interval.start..end)));
        }
        Ok(interval.start)
    }

    /// How many restarts are in each part of a block: a third of them, except for the last.
    #[inline]
    fn fence_step(&self) -> usize {
        self.restart_count().div_ceil(3)
    }

    /// The restart that part `number`, 1 or 2, begins with: its offset and its key. `None` if there is no such part.
    pub(crate) fn fence(&self, number: u8) -> Option<(usize, &[u8])> {
        let restart = usize::from(number) * self.fence_step();
        let inside = restart < self.restart_count();
        inside.then(|| self.restart_key(restart).ok()).flatten()
    }

    /// Offset of restart `i`'s entry, and its key, which must be stored whole.
    #[inline]
    fn restart_key(&self, i: usize) -> Result<(usize, &[u8]), Defect> {
        let offset = self.restart(i);
        let entry = self.entry(offset)?;
        check_shared(offset, entry.shared, 0)?;
        Ok((offset, self.unshared(&entry)))
    }
}

/// Up to this length, a block is touched as a whole when it is fetched; in a larger one, only the restart
/// interval that a search ends in.
pub(crate) const TOUCH_WHOLE: usize = 8 << 10;

/// Touches the `part` of `block` that a search will look at, and the block's end; if the block is of ordinary size.
///
/// A search goes from the block's end to its restarts to an entry to the next, each to be waited for before the
/// next is known.
#[inline]
pub(crate) fn touch_part(block: &[u8], part: Part) {
    if block.len() > TOUCH_WHOLE {
        return;
    }
    let first = usize::from(part.first_line) * LINE;
    let from_first = block.get(first..).unwrap_or_default();
    let lines = lines(from_first).take(part.lines.into());
    touch(lines.chain(block.last()));
}
