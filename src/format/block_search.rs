//! Finding a key in a block: a binary search over the restarts, then a walk from entry to entry.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Defect;
use super::block::{Block, Entry};
use super::buffer::Buffer;
use super::prefetch::{LINE, lines, prefetch, prefetch_address};
use crate::comparator::{Order, compare_bytes};

/// Where the value of `key`, which should be in `part`, lies in the block; `None` if the block does not hold the key.
#[inline(always)] // on the path of every lookup
pub fn find(
    block: &Block<impl AsRef<[u8]>>,
    key: &[u8],
    order: &Order,
    part: SearchPart,
) -> Result<Option<Range<usize>>, Defect> {
    let found = match order {
        Order::Bytewise => seek_bytewise(block, key, part)?,
        Order::Custom(_) => seek_custom(block, key, order, &mut Buffer::default())?,
    };
    let exact = found.filter(|(_, is_exact)| *is_exact);
    Ok(exact.map(|(entry, _)| entry.value()))
}

/// Finds the first entry at or after `target`, which should be in `part`, in bytewise order, and whether its key is the target.
#[inline]
pub(super) fn seek_bytewise(
    block: &Block<impl AsRef<[u8]>>,
    target: &[u8],
    part: SearchPart,
) -> Result<Option<(Entry, bool)>, Defect> {
    let from = walk_start(block, target, &Order::Bytewise, part)?;
    match walk_bytewise(block, target, from)? {
        // No entry below the target was seen, so entries before this one may also be at or after it.
        Some((entry, _)) if entry.offset() == from && from > 0 => seek_again(block, target),
        landed => Ok(landed),
    }
}

#[cold]
#[inline(never)]
fn seek_again(
    block: &Block<impl AsRef<[u8]>>,
    target: &[u8],
) -> Result<Option<(Entry, bool)>, Defect> {
    let from = walk_start(block, target, &Order::Bytewise, SearchPart::default())?;
    walk_bytewise(block, target, from)
}

/// Walks from the restart at `from` to the first entry at or after `target` in bytewise order, and returns whether its key is
/// the target.
///
/// It assembles no keys. It only remembers `matched`, the length of the common prefix of the previous key and the target. The
/// previous key was below the target:
///
/// - An entry that shares more than `matched` bytes with the previous key has the same next byte, and so is below
///   the target as well.
/// - Any other entry begins with `shared` bytes of the target, and is compared from there on.
///
/// For example, on the way to `apricot`, `apple` sets `matched` to 2. Then `applet`, stored as 5 and `t`, is passed
/// without reading its bytes; `apricot`, stored as 2 and `ricot`, is compared with `ricot`. This also works for writers
/// that share less than they could.
#[inline]
fn walk_bytewise(
    block: &Block<impl AsRef<[u8]>>,
    target: &[u8],
    from: usize,
) -> Result<Option<(Entry, bool)>, Defect> {
    let mut matched = 0;
    for entry in block.entries_from(from, 0) {
        let entry = entry?;
        if entry.shared() <= matched {
            let (_, rest) = target.split_at(entry.shared());
            let (ordering, common) = compare_bytes(block.unshared(&entry), rest);
            if ordering.is_ge() {
                return Ok(Some((entry, ordering.is_eq())));
            }
            matched = entry.shared() + common;
        }
    }
    Ok(None)
}

/// Finds the first entry at or after `target` in any order, and whether its key is the target. Comparators take whole keys: it
/// assembles them in `key`, which becomes the key of the entry.
#[inline]
pub(super) fn seek_custom(
    block: &Block<impl AsRef<[u8]>>,
    target: &[u8],
    order: &Order,
    key: &mut Buffer,
) -> Result<Option<(Entry, bool)>, Defect> {
    let from = walk_start(block, target, order, SearchPart::default())?;
    for entry in block.entries_from(from, 0) {
        let entry = entry?;
        key.splice(entry.shared(), block.data.as_ref(), entry.unshared());
        let ordering = order.compare(key.as_slice(), target);
        if ordering.is_ge() {
            return Ok(Some((entry, ordering.is_eq())));
        }
    }
    Ok(None)
}

/// Where the walk to `target` begins: at the last restart of `part` whose key is below it, or else at the part's first one.
/// Prefetches the entries from there up to the next restart, unless the part says that this has been done.
#[inline]
fn walk_start(
    block: &Block<impl AsRef<[u8]>>,
    target: &[u8],
    order: &Order,
    part: SearchPart,
) -> Result<usize, Defect> {
    let (third, parts) = (block.third(), 3 - usize::from(part.skipped));
    let last = block.restart_count.saturating_sub(1);
    let first = last.min(third * usize::from(part.first));
    let mut from = if first > 0 { block.restart(first) } else { 0 };
    let mut end = block.entries().len();
    // The first restart need not be compared: the walk begins there if no other is below the target.
    let (mut low, mut high) = (first + 1, block.restart_count.min(parts * third));
    while low < high {
        let middle = low + (high - low) / 2;
        let entry = block.entry_at_restart(middle)?;
        let key = block.unshared(&entry);
        let ordering = match order {
            Order::Bytewise => compare_bytes(key, target).0,
            Order::Custom(comparator) => comparator.compare(key, target),
        };
        if ordering.is_lt() {
            from = entry.offset();
            low = middle + 1;
        } else {
            end = entry.offset();
            high = middle;
        }
    }
    // Unchecked restarts may leave no interval.
    if part == SearchPart::default()
        && let Some(interval) = block.entries().get(from..end)
    {
        // With a constant length, the lines need no bounds checks.
        match interval.first_chunk::<{ WALKED * LINE }>() {
            Some(walked) => prefetch(lines(walked)),
            None => prefetch(lines(interval)),
        }
    }
    Ok(from)
}

/// The third of a block in which a key should be, according to the *fences*: the first restarts of the other two thirds. A wrong part
/// makes a search slower, but does not change its result. The default is the whole block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchPart {
    /// Number of thirds before this part.
    pub(crate) first: u8,
    /// Number of thirds after this part.
    pub(crate) skipped: u8,
    /// The cache line of the block in which this part begins.
    pub(crate) line: u8,
}

impl SearchPart {
    /// Every part, right or wrong, and some that no block has.
    #[cfg(any(test, fuzzing))]
    pub fn all() -> impl Iterator<Item = SearchPart> {
        let part = |first, skipped| SearchPart {
            first,
            skipped,
            line: 3 * first,
        };
        (0..3).flat_map(move |first| (0..3).map(move |skipped| part(first, skipped)))
    }
}

/// Number of lines to prefetch where a walk begins: about as many as processors fetch at once. A walk rarely gets further.
const WALKED: usize = 16;

/// Prefetches what a search in `part` of `block` reads: the block's end, with the restarts, and the start of the walk, which is
/// usually on another page, so that both address translations overlap.
#[inline]
pub(crate) fn prefetch_part(block: &[u8], part: SearchPart) {
    prefetch(block.last().into_iter());
    let walked = block.get(LINE * usize::from(part.line)..);
    let walked = walked.unwrap_or_default();
    match walked.first_chunk::<{ WALKED * LINE }>() {
        Some(walked) => prefetch(lines(walked)),
        None => prefetch(lines(walked)),
    }
}

/// Where a block is, or once was, so that its parts can be prefetched: its address, and in the lower 16 bits the number of its lines.
#[derive(Debug, Default)]
pub(crate) struct BlockAddress(AtomicU64);

impl BlockAddress {
    pub(crate) fn set(&self, block: &[u8]) {
        let lines = (block.len() / LINE).min(u16::MAX.into());
        let address = block.as_ptr().addr() as u64;
        self.0.store(address << 16 | lines as u64, Relaxed);
    }

    /// Like [`prefetch_part`], but lines beyond the block's end as well: in a batch of lookups in memory, these cost 3 to 8 %.
    #[inline]
    pub(crate) fn prefetch(&self, part: SearchPart) {
        let known = self.0.load(Relaxed);
        let block = (known >> 16) as usize;
        let len = LINE * usize::from(known as u16);
        prefetch_address(block.wrapping_add(len.saturating_sub(1)));
        let walked = block.wrapping_add(LINE * usize::from(part.line));
        (0..WALKED).for_each(|line| prefetch_address(walked.wrapping_add(LINE * line)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::{Entries, build};
    use super::*;

    /// Restarts are checked when a block is read. A search must survive without that check: it reports what it cannot
    /// follow.
    #[test]
    fn restarts_that_were_not_checked_do_not_panic_or_hide_keys() {
        let entries: Entries = (100..400u32)
            .map(|i| (i.to_string().into(), vec![b'v'; 40]))
            .collect();
        let sound = build(&entries, 1);
        let restarts_at = sound.len() - 4 - 4 * entries.len();
        let find = |block: &[u8], key: &str| {
            Block::parse(block.to_vec()).and_then(|block| {
                super::find(
                    &block,
                    key.as_bytes(),
                    &Order::Bytewise,
                    SearchPart::default(),
                )
            })
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
