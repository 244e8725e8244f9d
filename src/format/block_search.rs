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
    pub(crate) fn find(&self, key: &[u8], order: &Order) -> Result<Option<Range<usize>>, Defect> {
        let landing = match order {
            Order::Bytewise => self.seek_bytewise(key)?,
            Order::Custom(_) => self.seek_custom(key, order, &mut Vec::new())?,
        };
        Ok(landing.and_then(Landing::exact_value))
    }

    /// Finds the first entry at or after `target`, which should be in `part`, in bytewise order. The bytes that its key shares
    /// with the one before are also the first bytes of `target`.
    #[inline]
    pub(super) fn seek_bytewise(&self, target: &[u8]) -> Result<Option<Landing>, Defect> {
        let from = self.walk_from(target, &Order::Bytewise)?;
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
        let mut offset = self.walk_from(target, order)?;
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
    fn walk_from(&self, target: &[u8], order: &Order) -> Result<usize, Defect> {
        // The first restart is not compared: the walk begins there if no other is below the target.
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
        let from = interval.start;
        // Restarts that were not checked may leave no interval, and nothing to touch.
        if self.entries().len() > TOUCH_WHOLE
            && let Some(interval) = self.entries().get(interval)
        {
            touch(lines(interval).take(TOUCH_WHOLE / LINE));
        }
        Ok(from)
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

/// Touches `block` if it is of ordinary size.
#[inline]
pub(crate) fn prefetch_block(block: &[u8]) {
    if block.len() <= TOUCH_WHOLE {
        touch(lines(block).chain(block.last()));
    }
}
