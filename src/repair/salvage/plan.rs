//! Plans what the new table is made of: which of the blocks found are its data, and in which order.

use std::collections::HashMap;
use std::ops::Range;

use super::IndexState;
use super::found::{Content, Found, Summary, inspect};
use super::recognise::{belongs, block_around};
use super::scan::{PAGE, SECTOR};
use super::survey::{Survey, gaps};
use crate::comparator::Order;
use crate::db::key::InternalKey;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::block_check::KeyWork;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::read::index::Index;

/// What the new table will be made of.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) pieces: Vec<Piece>,
    /// Entries of the blocks to copy that ascend, and all that do not.
    pub(super) entries: u64,
    out_of_order: u64,
    /// Those of `out_of_order` whose block is left out.
    pub(super) left_out: u64,
}

/// A part of the file, in the order of the new table.
#[derive(Debug)]
pub(super) enum Piece {
    Copy {
        handle: BlockHandle,
        by_index: bool,
    },
    Lost {
        range: Range<u64>,
        reason: String,
        entries: Option<u64>,
    },
}

impl Piece {
    /// How many bytes of the file it takes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Piece::Copy { handle, .. } => handle.size.saturating_add(TRAILER_LEN as u64),
            Piece::Lost { range, .. } => range.end.saturating_sub(range.start),
        }
    }
}

impl Survey<'_> {
    pub(super) fn plan(&self) -> Result<Plan> {
        self.check_kind()?;
        if self.map.frames.is_empty() && self.file.size > 0 {
            // Nothing at all: perhaps since nothing can be read.
            self.file.read(0, self.file.size.min(SECTOR) as usize)?;
        }
        let plan = match &self.index {
            Some(index) => self.plan_by_index(index),
            None => self.plan_by_keys(),
        };
        // Some entries out of order are damage of some kind, or whole blocks are those of another table; most of them are
        // neither.
        if plan.out_of_order > plan.entries && !self.most_blocks_ascend() {
            return Err(Error::new(
                ErrorKind::Comparator,
                format!(
                    "{} of {} entries do not ascend under comparator {:?}: build the new table with the \
                     comparator that the old one was written with",
                    plan.out_of_order,
                    plan.out_of_order + plan.entries,
                    self.order.comparator().name(),
                ),
            ));
        }
        Ok(plan)
    }

    /// Whether most of the blocks that show an order are in the builder's: those of several entries, but for what may be
    /// an index.
    fn most_blocks_ascend(&self) -> bool {
        let (mut ascending, mut others) = (0, 0);
        for (_, summary) in self.data() {
            match summary.out_of_order {
                _ if summary.all_handles => {}
                0 if summary.entries > 1 => ascending += 1,
                0 => {}
                _ => others += 1,
            }
        }
        ascending > others
    }

    /// Refuses a builder for the other kind of table.
    fn check_kind(&self) -> Result<()> {
        let all = |is: fn(&[u8]) -> bool| {
            let mut ends = self
                .data()
                .flat_map(|(_, summary)| [&summary.first, &summary.last]);
            ends.all(|key| is(key))
        };
        if self.data().next().is_none() {
            return Ok(());
        }
        match self.order {
            Order::Bytewise if all(crate::db::recognise::may_be_internal) => Err(Error::new(
                ErrorKind::DatabaseTable,
                "this table belongs to a LevelDB database (each key ends in a sequence number and a \
                 type): salvage it with salvage_db",
            )),
            order
                if order.shortens_filter_keys() && all(|key| InternalKey::parse(key).is_none()) =>
            {
                Err(Error::new(
                    ErrorKind::Comparator,
                    "no key of this table is a database's: salvage it as a plain table",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The blocks that the index lists, each from where it says or from where the scan found it.
    fn plan_by_index(&self, index: &Index) -> Plan {
        let by_footer = self.index_state == IndexState::Sound;
        let is_in_a_value = |found: &Found| {
            let around = block_around(index, found.handle());
            around.is_some_and(|block| block.offset < found.range.start)
        };
        let mut elsewhere = HashMap::new();
        for (found, _) in self.data() {
            if let Some(i) = belongs(index, found, self.order)
                && !(by_footer && is_in_a_value(found))
            {
                // Of several the last before the index: what an older table left lies farther in front.
                let best = elsewhere.entry(i).or_insert(found);
                if found.range.start < self.index_offset {
                    *best = found;
                }
            }
        }
        let mut plan = Plan::default();
        for i in 0..index.len() {
            let handle = index.handle(i);
            let end = handle.end().unwrap_or(u64::MAX);
            let here = self.map.at(handle);
            // What the index found by scanning says of places may be off by some bytes, or by a whole table; its sizes
            // and keys are not.
            let found = match (here, elsewhere.get(&i)) {
                (Some(here), _) if by_footer => Some(here),
                (Some(here), None) if here.summary().is_none() => Some(here),
                (_, elsewhere) => elsewhere.copied(),
            };
            let found = found.filter(|found| !self.is_set_aside(found));
            match found {
                Some(found) => match &found.content {
                    Content::Entries(summary) => {
                        plan.copy(found, summary, by_footer && here.is_some())
                    }
                    Content::Unreadable(reason) => {
                        plan.lose(found.range.clone(), || reason.clone())
                    }
                    Content::Filter => {
                        plan.lose(found.range.clone(), || "no data block: a filter".into());
                    }
                },
                None => plan.lose(handle.offset..end, || self.why_not(handle)),
            }
        }
        plan
    }

    /// Why the block at `handle` is not among the sound ones.
    fn why_not(&self, handle: BlockHandle) -> String {
        if handle.end().is_none_or(|end| end > self.file.size) {
            return format!("the file ends before it, at {}", self.file.size);
        }
        let frame = match self.file.read_frame(handle) {
            Ok(frame) => frame,
            Err(error) => return error.to_string(),
        };
        match inspect(&frame, self.order, &mut KeyWork::of_block()) {
            Ok(_) => "its place is taken by another block".into(),
            Err(defect) => defect.locate(Section::Data, handle.offset).to_string(),
        }
    }

    /// Without an index: the most entries that can be had in order from blocks in the file's order.
    fn plan_by_keys(&self) -> Plan {
        let data: Vec<(&Found, &Summary)> = self.data().collect();
        let chosen = heaviest_chain(&data, self.order);
        let mut plan = Plan::default();
        let mut data = data.into_iter().zip(chosen).peekable();
        for part in self.parts() {
            match part {
                Part::Found(found) => {
                    let Some(((_, summary), chosen)) =
                        data.next_if(|((data, _), _)| data.range == found.range)
                    else {
                        if let Content::Unreadable(reason) = &found.content {
                            plan.lose(found.range.clone(), || reason.clone());
                        }
                        continue;
                    };
                    if chosen {
                        plan.copy(found, summary, false);
                        continue;
                    }
                    plan.leave_out(found);
                }
                Part::Gap(range) => plan.lose(range.clone(), || match self.read_error(range) {
                    Some(error) => format!("not all of it can be read: {error}"),
                    None => {
                        "no sound block begins here: lost data, or a part that holds none (filter, \
                             metaindex, index, footer)"
                            .into()
                    }
                }),
            }
        }
        plan
    }

    /// What the source says of the first part of `range` that it cannot read.
    fn read_error(&self, range: Range<u64>) -> Option<Error> {
        let end = range.end;
        range.step_by(PAGE).find_map(|at| {
            let len = (end - at).min(PAGE as u64) as usize;
            self.file.read(at, len).err()
        })
    }

    /// All of the file in order: what was found, and gaps that are not known to be without data.
    fn parts(&self) -> Vec<Part<'_>> {
        let metaindex = self
            .set_aside
            .iter()
            .find(|(section, _)| *section == Section::Metaindex);
        // Once a metaindex is known, whatever comes after it is no data.
        let data_end = metaindex.map_or(self.file.size, |(_, range)| range.start);
        let mut covered: Vec<Range<u64>> = self
            .map
            .frames
            .values()
            .map(|found| found.range.clone())
            .collect();
        covered.extend(self.set_aside.iter().map(|(_, range)| range.clone()));
        covered.sort_by_key(|range| range.start);
        let gaps = gaps(covered.into_iter(), self.file.size).into_iter();
        let mut parts: Vec<Part<'_>> = gaps
            .filter(|gap| gap.start < data_end)
            .map(Part::Gap)
            .chain(self.map.frames.values().map(Part::Found))
            .collect();
        parts.sort_by_key(Part::start);
        parts
    }
}

enum Part<'a> {
    Found(&'a Found),
    Gap(Range<u64>),
}

impl Part<'_> {
    fn start(&self) -> u64 {
        match self {
            Part::Found(found) => found.range.start,
            Part::Gap(range) => range.start,
        }
    }
}

impl Plan {
    fn copy(&mut self, found: &Found, summary: &Summary, by_index: bool) {
        self.entries += summary.entries;
        self.out_of_order += summary.out_of_order;
        self.pieces.push(Piece::Copy {
            handle: found.handle(),
            by_index,
        });
    }

    /// Leaves out a block whose keys do not fit between those of others.
    fn leave_out(&mut self, found: &Found) {
        self.out_of_order += found.entries();
        self.left_out += found.entries();
        self.pieces.push(Piece::Lost {
            range: found.range.clone(),
            reason: "its keys are out of order here: a block of another table?".into(),
            entries: Some(found.entries()),
        });
    }

    /// Adds a range that is lost, to the one before if it goes on there.
    fn lose(&mut self, range: Range<u64>, reason: impl FnOnce() -> String) {
        match self.pieces.last_mut() {
            Some(Piece::Lost {
                range: before,
                entries: None,
                ..
            }) if before.end == range.start => before.end = range.end,
            _ => self.pieces.push(Piece::Lost {
                range,
                reason: reason(),
                entries: None,
            }),
        }
    }
}

/// Which of `blocks` to copy, so that keys ascend and the most entries come along.
///
/// For each block: the best chain that ends in it is the best of those that end before its first key, and
/// it. The best of those is the largest of the first so many by last key, which a Fenwick tree keeps: O(n log n).
fn heaviest_chain(blocks: &[(&Found, &Summary)], order: &Order) -> Vec<bool> {
    let mut lasts: Vec<&[u8]> = blocks.iter().map(|(_, summary)| &*summary.last).collect();
    lasts.sort_unstable_by(|a, b| order.compare(a, b));
    let below = |key: &[u8]| lasts.partition_point(|last| order.compare(last, key).is_lt());
    let mut chains = Chains::new(blocks.len());
    let mut before: Vec<Option<usize>> = Vec::with_capacity(blocks.len());
    for (block, (_, summary)) in blocks.iter().enumerate() {
        let longest = chains.best(below(&summary.first));
        let entries = summary.entries + longest.map_or(0, |chain| chain.entries);
        before.push(longest.map(|chain| chain.block));
        chains.add(below(&summary.last), Chain { entries, block });
    }
    let mut chosen = vec![false; blocks.len()];
    let mut next = chains.best(blocks.len()).map(|chain| chain.block);
    while let Some(block) = next {
        if let Some(chosen) = chosen.get_mut(block) {
            *chosen = true;
        }
        next = before.get(block).copied().flatten();
    }
    chosen
}

/// Blocks in order, by the last of them.
#[derive(Debug, Clone, Copy)]
struct Chain {
    entries: u64,
    block: usize,
}

/// The best chain among those of the first so many ranks: a Fenwick tree of maxima.
struct Chains(Vec<Option<Chain>>);

impl Chains {
    fn new(ranks: usize) -> Chains {
        Chains(vec![None; ranks + 1])
    }

    /// The best below `rank`; the first that was added of several.
    fn best(&self, rank: usize) -> Option<Chain> {
        let node = |at: usize| Some(at).filter(|&at| at > 0);
        let nodes = std::iter::successors(node(rank), |&at| node(at & (at - 1)));
        let chains = nodes.filter_map(|at| *self.0.get(at)?);
        chains.reduce(|a, b| if b.entries > a.entries { b } else { a })
    }

    /// Adds one of rank `rank`.
    fn add(&mut self, rank: usize, chain: Chain) {
        let mut at = rank + 1;
        while let Some(best) = self.0.get_mut(at) {
            if best.is_none_or(|best| chain.entries > best.entries) {
                *best = Some(chain);
            }
            at += at & at.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary(first: &str, last: &str, entries: u64) -> (Found, Summary) {
        let of = |entries| Summary {
            entries,
            out_of_order: 0,
            first: first.as_bytes().into(),
            last: last.as_bytes().into(),
            all_handles: false,
        };
        let content = Content::Entries(of(entries));
        (
            Found {
                range: 0..1,
                content,
            },
            of(entries),
        )
    }

    /// The best subset by trying all of them.
    fn heaviest_by_trying(blocks: &[(Found, Summary)]) -> u64 {
        let subsets = 0..1u32 << blocks.len();
        let weights = subsets.filter_map(|subset| {
            let chosen = blocks
                .iter()
                .enumerate()
                .filter(|(i, _)| subset >> i & 1 == 1);
            let chosen: Vec<_> = chosen.map(|(_, (_, summary))| summary).collect();
            let ascends = chosen.windows(2).all(|pair| pair[0].last < pair[1].first);
            ascends.then(|| chosen.iter().map(|summary| summary.entries).sum())
        });
        weights.max().unwrap_or_default()
    }

    proptest! {
        #[test]
        fn the_most_entries_in_order_are_chosen(
            blocks in prop::collection::vec((0u8..20, 0u8..6, 1u64..9), 0..10),
        ) {
            let key = |n: u8| format!("{n:02}");
            let blocks: Vec<_> = blocks
                .into_iter()
                .map(|(first, len, entries)| summary(&key(first), &key(first + len), entries))
                .collect();
            let pairs: Vec<_> = blocks.iter().map(|(found, summary)| (found, summary)).collect();
            let chosen = heaviest_chain(&pairs, &Order::Bytewise);
            let chosen: Vec<_> =
                blocks.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|((_, s), _)| s).collect();
            prop_assert!(chosen.windows(2).all(|pair| pair[0].last < pair[1].first));
            let entries: u64 = chosen.iter().map(|summary| summary.entries).sum();
            prop_assert_eq!(entries, heaviest_by_trying(&blocks));
        }
    }
}
