//! Finding a key in a block: a binary search over the restarts, then a walk from entry to entry.

use std::cmp::Ordering;
use std::ops::Range;

use super::Defect;
use super::block::{Block, Entry, check_shared, entry_at};
use crate::comparator::{Order, compare_bytes};

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

/// Walks from the restart at `offset` of a block's `entries` to the first entry at or after `target` in bytewise
/// order, without putting keys together.
///
/// Between entries only the length `matched` of the prefix that the entry before shares with the
/// target is kept. That entry was below the target, so one that shares more than `matched` bytes
/// with it is below too, for the same byte; any other begins with `shared` bytes of the target
/// and is compared from there on. Nothing is assumed of how much a writer chose to share.
#[inline]
fn walk_bytewise(
    entries: &[u8],
    target: &[u8],
    mut offset: usize,
) -> Result<Option<Landing>, Defect> {
    let (mut matched, mut key_len) = (0, 0);
    while offset < entries.len() {
        let entry = entry_at(entries, offset)?;
        check_shared(offset, entry.shared, key_len)?;
        if entry.shared <= matched {
            let unshared = entries.get(entry.key_start..entry.value_start);
            let rest = target.get(entry.shared..);
            match compare(unshared.unwrap_or_default(), rest.unwrap_or_default()) {
                (Ordering::Less, common) => matched = entry.shared + common,
                (ordering, _) => {
                    let exact = ordering.is_eq();
                    return Ok(Some(Landing {
                        offset,
                        entry,
                        exact,
                    }));
                }
            }
        }
        key_len = entry.shared + (entry.value_start - entry.key_start);
        offset = entry.end;
    }
    Ok(None)
}

/// The order of two keys' ends, and how many leading bytes they share.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> (Ordering, usize) {
    match (a.first(), b.first()) {
        // Nearly always one byte decides.
        (Some(x), Some(y)) if x != y => (x.cmp(y), 0),
        _ => compare_bytes(a, b),
    }
}

impl<B: AsRef<[u8]>> Block<B> {
    /// Where the value of `key` lies in the block; `None` if the block does not hold the key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], order: &Order) -> Result<Option<Range<usize>>, Defect> {
        let landing = match order {
            Order::Bytewise => self.seek_bytewise(key)?,
            Order::Custom(_) => self.seek_custom(key, order, &mut Vec::new())?,
        };
        Ok(landing.and_then(Landing::exact_value))
    }

    /// Finds the first entry at or after `target` in bytewise order. Its key begins with as many bytes of
    /// the target as it shares with the one before.
    #[inline]
    pub(super) fn seek_bytewise(&self, target: &[u8]) -> Result<Option<Landing>, Defect> {
        let from = self.walk_from(target, &Order::Bytewise)?;
        walk_bytewise(self.entries(), target, from)
    }

    /// The same in any order, which takes whole keys: `key` ends as that of the entry landed on.
    pub(super) fn seek_custom(
        &self,
        target: &[u8],
        order: &Order,
        key: &mut Vec<u8>,
    ) -> Result<Option<Landing>, Defect> {
        let mut offset = self.walk_from(target, order)?;
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

    /// Where the walk to `target` begins: at the last restart whose key is below it, or the first. In a block too
    /// large to be touched as a whole, the restart interval is touched here.
    #[inline]
    fn walk_from(&self, target: &[u8], order: &Order) -> Result<usize, Defect> {
        // Restart 0 is where the walk begins if no other is below the target: never looked at.
        let (mut low, mut high) = (1, self.restart_count());
        let mut interval = 0..self.entries().len();
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
            touch(self.bytes(interval.start..end), None);
        }
        Ok(interval.start)
    }

    /// The restart that a search looks at first; 0 if there is no other.
    #[inline]
    pub(crate) fn middle_restart(&self) -> usize {
        self.restart_count() / 2
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

/// Bytes that processors fetch at once.
pub(crate) const LINE: usize = 64;

/// Reads a byte of every cache line of `bytes`, and `other`.
///
/// A search goes from the block's end to its restarts to an entry to the next, each to be waited for before the
/// next is known. Read beforehand, the lines that are not in the processor's caches arrive together.
#[inline]
pub(crate) fn touch(bytes: &[u8], other: Option<&u8>) {
    let last = bytes.last().into_iter().chain(other);
    let all = last.fold(0, |all, byte| all | byte);
    // Four at a time: the loop takes longer than the reads, where they hit.
    let (groups, rest) = bytes.as_chunks::<{ 4 * LINE }>();
    let all = groups.iter().fold(all, |all, group| {
        all | group[0] | group[LINE] | group[2 * LINE] | group[3 * LINE]
    });
    let rest = rest.iter().step_by(LINE);
    std::hint::black_box(rest.fold(all, |all, byte| all | byte));
}
