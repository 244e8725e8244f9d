//! Plans what the new table is made of: which of the blocks found are its data, and in which order.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::LostRange;
use super::copy::open_block;
use super::found::Found;
use super::index::Index;
use super::kinds::Kinds;
use super::survey::{Survey, moved, run_of};
use crate::comparator::Order;
use crate::error::Section;

/// What the new table will be made of.
#[derive(Default)]
pub(super) struct Plan<'s> {
    pub(super) parts: Vec<Planned<'s>>,
    /// Whether entries are copied in the order in which they are stored.
    pub(super) stored_order: bool,
    /// Entries of sound blocks that are left out.
    pub(super) left_out: u64,
    /// Where those ranges begin that are lost.
    lost: HashSet<u64>,
}

/// A part of the file, in the order of the new table.
pub(super) enum Planned<'s> {
    Copy(Copy<'s>),
    /// A part that is not copied, and whether it lay between the keys of the parts around it. Without a reason, no block
    /// was found there.
    Lost(LostRange, bool),
}

/// A block to copy.
#[derive(Clone, Copy)]
pub(super) struct Copy<'s> {
    pub(super) found: &'s Found,
    /// Whether it may have been a part of a value.
    pub(super) is_uncertain: bool,
}

impl<'s> Plan<'s> {
    /// `keep_all`: whether, without an index, blocks that overlap are copied in the order in which they are stored.
    pub(super) fn of(kinds: &Kinds<'s>, keep_all: bool) -> Plan<'s> {
        let survey = kinds.survey;
        let mut plan = Plan::default();
        let why = if let Some(index) = &kinds.index {
            plan.add_listed(survey, index);
            "it has no place in the index: a block of another table, or out of its place"
        } else {
            plan.add_found(kinds, keep_all);
            "its keys overlap those of other blocks: a block of another table?"
        };
        let mut copied: HashSet<_> = plan.blocks().map(|block| block.found.identity()).collect();
        for found in survey.data() {
            let is_inside = |index: &Index<'_>| index.is_inside_another(found);
            if !kinds.index.as_ref().is_some_and(is_inside) && copied.insert(found.identity()) {
                let entries = found.digest.entries;
                plan.left_out += entries;
                plan.lose(found.range.clone(), why.into(), Some(entries), false);
            }
        }
        plan
    }

    /// Adds the blocks that the index lists, in its order.
    fn add_listed(&mut self, survey: &'s Survey<'_>, index: &Index<'s>) {
        self.stored_order = !index.is_ordered;
        for listed in &index.listed {
            if let Some(found) = listed.found {
                self.parts.push(Planned::Copy(Copy {
                    found,
                    is_uncertain: false,
                }));
                continue;
            }
            let (range, why) = match &listed.extent {
                Some(extent) => (extent.clone(), why_not(survey, extent)),
                None => (
                    moved(listed.handle, 0).unwrap_or_default(),
                    "what is left of the file does not hold it: these are the offsets of its handle".into(),
                ),
            };
            self.lose(range, why, None, true);
        }
    }

    /// Without an index, adds the blocks sorted by their keys, if keys ascend in them, or else all in the file's order.
    fn add_found(&mut self, kinds: &Kinds<'s>, keep_all: bool) {
        let data = data_once(kinds);
        let ascend = !kinds.is_other_order && data.iter().all(|block| block.found.digest.ascends);
        let chain = ascend.then(|| heaviest_chain(data.clone(), kinds.survey.order));
        let chain = chain.filter(|chain| !keep_all || chain.len() == data.len());
        self.stored_order = chain.is_none();
        let blocks = chain.unwrap_or(data);
        let in_file_order = blocks.is_sorted_by_key(|block| block.found.range.start);
        let mut gaps = gaps_of_data(kinds).into_iter().peekable();
        for block in blocks {
            let is_before = |gap: &(Range<u64>, _)| gap.0.start < block.found.range.start;
            while in_file_order && let Some((gap, why)) = gaps.next_if(is_before) {
                self.lose(gap, why, None, true);
            }
            self.parts.push(Planned::Copy(block));
        }
        gaps.for_each(|(gap, why)| self.lose(gap, why, None, in_file_order));
    }

    /// The blocks to copy.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Copy<'s>> {
        self.parts.iter().filter_map(|part| match part {
            Planned::Copy(block) => Some(block),
            Planned::Lost(..) => None,
        })
    }

    /// The codec of the blocks to copy: some may not have shrunk.
    pub(super) fn codec(&self) -> Option<&'static str> {
        let codecs = self.blocks().map(|block| block.found.digest.codec);
        codecs.min_by_key(|codec| *codec == "none")
    }

    /// Adds a range that is lost, as a part of the previous one if it begins where that ends.
    fn lose(&mut self, range: Range<u64>, reason: String, entries: Option<u64>, has_place: bool) {
        if !self.lost.insert(range.start) {
            return;
        }
        if let Some(Planned::Lost(before, had_place)) = self.parts.last_mut()
            && before.range.end == range.start
            && *had_place == has_place
            && before.entries.is_some() == entries.is_some()
        {
            before.range.end = range.end;
            before.entries = before.entries.zip(entries).map(|(a, b)| a + b);
            return;
        }
        let lost = LostRange {
            range,
            reason,
            entries,
            ..LostRange::default()
        };
        self.parts.push(Planned::Lost(lost, has_place));
    }
}

/// Why the block at `extent` is not copied.
fn why_not(survey: &Survey<'_>, extent: &Range<u64>) -> String {
    match open_block(survey.file, extent) {
        Ok(_) => "another block is there, or one whose keys take too much memory".into(),
        Err(error) => error.to_string(),
    }
}

/// The blocks that may be data, of identical ones the first.
///
/// Those between bytes that belong to no frame are uncertain: they may have been parts of values of one damaged block. So is one that
/// could be the index of a table of which nothing else is left.
fn data_once<'s>(kinds: &Kinds<'s>) -> Vec<Copy<'s>> {
    let survey = kinds.survey;
    let mut uncertain = survey.runs();
    uncertain.retain(|run| {
        let last = survey.before(run.end).next();
        let ends_in_data = last.is_some_and(Found::is_data);
        run.start > 0 && (run.end < survey.file.size || ends_in_data)
    });
    let mut seen: HashMap<_, &Found> = HashMap::new();
    let payload = |found: &Found| survey.payload(found.handle());
    let data = survey.data().filter(|&found| {
        let first = *seen.entry(found.identity()).or_insert(found);
        first.range == found.range || payload(first) != payload(found)
    });
    let data = data.map(|found| Copy {
        found,
        is_uncertain: run_of(&uncertain, found).is_some() || found.may_be_index(),
    });
    data.collect()
}

/// The parts in which no data was found although there may have been, each with why, if that is known.
fn gaps_of_data(kinds: &Kinds<'_>) -> Vec<(Range<u64>, String)> {
    let survey = kinds.survey;
    // After metadata comes no data of the same table.
    let data_end = survey.data().last().map_or(0, |last| last.range.end);
    let mut after = survey.from(data_end);
    let metadata = after.find(|found| found.section.get() != Section::Data);
    let mut end = metadata.map_or(survey.file.size, |found| found.range.start);
    if let Some(stated) = &kinds.properties {
        // Where the data ends at least if it begins the file: padding is not counted. After the block with the last key none is missing.
        let is_last = |found: &Found| stated.last_key.as_ref() == Some(&found.digest.last);
        let has_last = stated.entries == 0 || survey.data().any(is_last);
        if has_last || data_end < stated.data_bytes {
            end = end.min(stated.data_bytes.max(data_end));
        }
    }
    let gaps = survey.gaps().into_iter().map(|gap| (gap, String::new()));
    let unreadable = survey.from(0).filter(|found| found.is_unreadable());
    let unreadable = unreadable.map(|own| (own.range.clone(), why_not(survey, &own.range)));
    let mut gaps: Vec<_> = gaps.chain(unreadable).collect();
    gaps.retain_mut(|(gap, _)| {
        gap.end = gap.end.min(end);
        gap.start < end
    });
    gaps.sort_by_key(|(gap, _)| gap.start);
    gaps
}

/// Which of `blocks`, whose keys ascend, to copy, and in which order, so that no two overlap: those with the most entries,
/// first of blocks that are certainly no part of a value.
///
/// The heaviest chain of blocks that end no later than a given one is either the one without it, or that block after the
/// heaviest chain of those that end before its first key: O(n log n) in all.
fn heaviest_chain<'s>(mut blocks: Vec<Copy<'s>>, order: &Order) -> Vec<Copy<'s>> {
    blocks.sort_by(|a, b| order.compare(&a.found.digest.last, &b.found.digest.last));
    // `chains[n]` is the heaviest chain of the first n blocks: its weight, in entries that are certainly the table's, and in
    // the lower half others; and if it ends with block n - 1, the index of the chain that this block is added to.
    let mut chains = vec![(0, None)];
    for block in &blocks {
        let is_before = |other: &Copy<'_>| {
            let (last, first) = (&other.found.digest.last, &block.found.digest.first);
            order.compare(last, first).is_lt()
        };
        let before = blocks.partition_point(is_before);
        let (mut with, _) = chains.get(before).copied().unwrap_or_default();
        with += u128::from(block.found.digest.entries) << if block.is_uncertain { 0 } else { 64 };
        let (without, _) = chains.last().copied().unwrap_or_default();
        chains.push(if with > without {
            (with, Some(before))
        } else {
            (without, None)
        });
    }
    let mut chosen = Vec::new();
    let mut n = blocks.len();
    while let Some(last) = n.checked_sub(1) {
        let (_, before) = chains.get(n).copied().unwrap_or_default();
        chosen.extend(before.and_then(|_| blocks.get(last)));
        n = before.unwrap_or(last);
    }
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::found::Digest;
    use super::*;
    use proptest::prelude::*;

    fn found(first: &str, last: &str, entries: u64) -> Found {
        let digest = Digest {
            entries,
            ascends: true,
            first: first.into(),
            last: last.into(),
            ..Digest::default()
        };
        Found {
            range: 0..1,
            section: Section::Data.into(),
            digest,
        }
    }

    /// The weight of the best subset without overlaps, by trying all of them.
    fn heaviest_by_trying(blocks: &[Copy<'_>]) -> [u64; 2] {
        let weights = (0..1u32 << blocks.len()).filter_map(|subset| {
            let chosen = blocks
                .iter()
                .enumerate()
                .filter(|(i, _)| subset >> i & 1 == 1);
            let chosen: Vec<_> = chosen.map(|(_, block)| *block).collect();
            ascend(&chosen).then(|| weight(&chosen))
        });
        weights.max().unwrap()
    }

    fn ascend(chosen: &[Copy<'_>]) -> bool {
        let mut sorted = chosen.to_vec();
        sorted.sort_by(|a, b| a.found.digest.first.cmp(&b.found.digest.first));
        sorted.windows(2).all(is_apart)
    }

    fn is_apart(pair: &[Copy<'_>]) -> bool {
        pair[0].found.digest.last < pair[1].found.digest.first
    }

    fn weight(chosen: &[Copy<'_>]) -> [u64; 2] {
        [false, true].map(|is_uncertain| {
            let blocks = chosen
                .iter()
                .filter(|block| block.is_uncertain == is_uncertain);
            blocks.map(|block| block.found.digest.entries).sum()
        })
    }

    proptest! {
        #[test]
        fn the_most_entries_in_order_are_chosen(
            blocks in prop::collection::vec((0u8..20, 0u8..6, 1u64..9, any::<bool>()), 0..10),
        ) {
            let key = |n: u8| format!("{n:02}");
            let frames: Vec<_> = { blocks.iter() }
                .map(|(first, len, entries, _)| found(&key(*first), &key(first + len), *entries))
                .collect();
            let blocks: Vec<_> = { frames.iter().zip(&blocks) }
                .map(|(found, (.., is_uncertain))| Copy {
                    found,
                    is_uncertain: *is_uncertain,
                })
                .collect();
            let chosen = heaviest_chain(blocks.clone(), &Order::Bytewise);
            prop_assert!(chosen.windows(2).all(is_apart));
            prop_assert_eq!(weight(&chosen), heaviest_by_trying(&blocks));
        }
    }
}
