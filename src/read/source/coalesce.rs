//! Decides which parts of a file are read together.

use std::ops::Range;

use crate::format::page::PAGE_LEN;

/// Maximum number of bytes of adjacent data blocks that are read at once.
pub(crate) const MAX_READ_LEN: u64 = 256 << 10;

/// Maximum number of bytes between two blocks that are read together: less than a page, such as the padding of an
/// aligned table.
pub(crate) const MAX_GAP: u64 = PAGE_LEN - 1;

/// Parts of a file that are read at once, such as data blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// The positions of the parts.
    pub(crate) items: Range<usize>,
    /// The bytes to read: from the first part's start to the furthest end.
    pub(crate) bytes: Range<u64>,
}

impl Group {
    /// Both groups together, if at most `max_gap` bytes lie between them and they take at most `max_len` bytes.
    pub(crate) fn join(&self, other: &Group, max_gap: u64, max_len: u64) -> Option<Group> {
        let (a, b) = (self, other);
        let items = a.items.start.min(b.items.start)..a.items.end.max(b.items.end);
        let bytes = a.bytes.start.min(b.bytes.start)..a.bytes.end.max(b.bytes.end);
        let gap = (bytes.end - bytes.start).saturating_sub(a.len() + b.len());
        (gap <= max_gap && bytes.end - bytes.start <= max_len).then_some(Group { items, bytes })
    }

    /// The bytes to read, as their offset and length.
    pub(crate) fn part(&self) -> (u64, usize) {
        (self.bytes.start, saturating_len(&self.bytes))
    }

    /// Number of bytes of the file that it takes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// Groups `parts`, which ascend by their starts: neighbours come together if at most `max_gap` bytes lie between them and the
/// group takes at most `max_len` bytes. A longer part is a group of its own.
pub(crate) fn coalesce(parts: &[Range<u64>], max_gap: u64, max_len: u64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let (items, bytes) = (i..i + 1, part.clone());
        let here = Group { items, bytes };
        let last = groups.last_mut();
        match last.map(|last| (last.join(&here, max_gap, max_len), last)) {
            Some((Some(both), last)) => *last = both,
            _ => groups.push(here),
        }
    }
    groups
}

/// The length of `range`. A length that exceeds this machine's address space is an error when it is read.
pub(crate) fn saturating_len(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_come_together_within_gap_and_length() {
        let group = |items, bytes| Group { items, bytes };
        let parts = [0..10, 10..20, 25..30, 40..50, 50..200, 200..201];
        assert_eq!(
            coalesce(&parts, 5, 100),
            [
                group(0..3, 0..30),
                group(3..4, 40..50),
                group(4..5, 50..200),
                group(5..6, 200..201)
            ]
        );
        assert_eq!(coalesce(&parts, 0, 20)[0], group(0..2, 0..20));
        assert_eq!(coalesce(&parts, 1000, u64::MAX), [group(0..6, 0..201)]);
        assert_eq!(coalesce(&[], 5, 100), []);
    }

    proptest! {
        /// Every part lies in exactly one group, in order; no group is too long, unless a single part is.
        #[test]
        fn groups_hold_their_parts(
            parts in prop::collection::vec((0u64..5000, 0u64..300), 0..40),
            max_gap in 0u64..200,
            max_len in 1u64..1000,
        ) {
            let mut parts: Vec<Range<u64>> = parts.into_iter().map(|(start, len)| start..start + len).collect();
            parts.sort_unstable_by_key(|part| (part.start, part.end));
            let mut next = 0;
            for group in coalesce(&parts, max_gap, max_len) {
                prop_assert_eq!(group.items.start, next);
                prop_assert!(!group.items.is_empty());
                for part in &parts[group.items.clone()] {
                    prop_assert!(group.bytes.start <= part.start && part.end <= group.bytes.end);
                }
                prop_assert!(group.items.len() == 1 || group.bytes.end - group.bytes.start <= max_len);
                next = group.items.end;
            }
            prop_assert_eq!(next, parts.len());
        }
    }
}
