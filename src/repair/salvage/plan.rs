//! Plans what the new table is made of: which of the blocks found are its data, and in which order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::found::{Content, Digest, Found, handle_of, inspect};
use super::kinds::{Index, Kinds, Place, moved};
use super::survey::Survey;
use crate::comparator::Order;
use crate::error::Section;
use crate::format::block_check::KeyWork;
use crate::format::footer::BlockHandle;

/// What the new table will be made of.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) pieces: Vec<Piece>,
    /// Whether entries are copied in the order in which they are stored.
    pub(super) stored_order: bool,
    /// Entries of sound blocks that are left out.
    pub(super) left_out: u64,
}

/// A part of the file, in the order of the new table.
#[derive(Debug)]
pub(super) enum Piece {
    Copy(Copy),
    Lost(Lost),
}

/// A block to copy.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) range: Range<u64>,
    pub(super) entries: u64,
    pub(super) codec: &'static str,
    /// Whether the index led to it.
    pub(super) by_index: bool,
    /// Whether it may have been a part of a value.
    pub(super) is_uncertain: bool,
}

/// A part that is not copied.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) range: Range<u64>,
    /// `None` if no block was found here.
    pub(super) reason: Option<String>,
    pub(super) entries: Option<u64>,
    /// Whether it lay between the keys of the pieces around it.
    pub(super) has_place: bool,
}

impl Plan {
    /// `is_other`: whether the table says that its order is not the builder's. `keep_all`: whether blocks that overlap are
    /// copied in the order in which they are stored.
    pub(super) fn of(survey: &Survey<'_>, kinds: &Kinds, is_other: bool, keep_all: bool) -> Plan {
        match &kinds.index {
            Some(index) => {
                let placement = Placement::of(survey, kinds, index, is_other);
                Plan::by_index(survey, kinds, index, placement)
            }
            None => Plan::by_keys(survey, kinds, is_other, keep_all),
        }
    }

    /// The blocks that the index lists, in its order.
    fn by_index(
        survey: &Survey<'_>,
        kinds: &Kinds,
        index: &Index,
        placement: Placement<'_>,
    ) -> Plan {
        let mut plan = Plan {
            stored_order: placement.fit != Fit::Between,
            ..Plan::default()
        };
        let mut lost = HashSet::new();
        for (i, (found, extent)) in placement.blocks.iter().zip(&placement.extents).enumerate() {
            if let Some((found, digest)) = found.and_then(|found| Some((found, found.digest()?))) {
                let place = index.places.get(i).copied().flatten();
                let by_index = place.is_some_and(|place| place.start == found.range.start);
                plan.copy(found, digest, by_index, false);
            } else {
                let handle = index.handles.get(i).and_then(|handle| moved(*handle, 0));
                let range = extent.clone().or(handle).unwrap_or_default();
                let why = why_not(survey, &range, extent.is_some());
                lost.insert(range.start);
                plan.lose(range, Some(why), None, true);
            }
        }
        let used = placement.blocks.iter().flatten();
        let starts: HashSet<u64> = used.clone().map(|found| found.range.start).collect();
        let copies: HashSet<_> = used.filter_map(|found| identity(found)).collect();
        let inside = Inside::of(survey, &placement);
        for found in survey.frames.values() {
            let Some(digest) = kinds
                .data(found)
                .filter(|_| !starts.contains(&found.range.start))
            else {
                continue;
            };
            let is_copied = identity(found).is_some_and(|copy| copies.contains(&copy));
            if !is_copied && !inside.holds(found) {
                plan.left_out += digest.entries;
                if !lost.contains(&found.range.start) {
                    let why = "it has no place in the index: a block of another table, or out of its place";
                    plan.lose(
                        found.range.clone(),
                        Some(why.into()),
                        Some(digest.entries),
                        false,
                    );
                }
            }
        }
        plan
    }

    /// Without an index: the blocks sorted by their keys, if keys ascend in them, or else all in the file's order.
    fn by_keys(survey: &Survey<'_>, kinds: &Kinds, is_other: bool, keep_all: bool) -> Plan {
        let uncertain = uncertain(survey, kinds);
        let mut seen: HashMap<_, &Found> = HashMap::new();
        let data = survey
            .frames
            .values()
            .filter(|found| kinds.data(found).is_some());
        let data = data.filter(|found| {
            let first = *identity(found).map_or(found, |copy| seen.entry(copy).or_insert(found));
            let is_copy = first.range != found.range
                && survey
                    .read(first.handle())
                    .is_some_and(|frame| survey.read(found.handle()) == Some(frame));
            !is_copy
        });
        let data: Vec<Block<'_>> = data
            .filter_map(|found| {
                Some(Block {
                    found,
                    digest: found.data()?,
                    is_uncertain: uncertain.holds(found),
                })
            })
            .collect();
        let ascend = !is_other && data.iter().all(|block| block.digest.ascends);
        let chosen = ascend.then(|| heaviest_chain(&data, survey.order));
        let mut plan = Plan::default();
        let chosen = match chosen {
            Some(chosen) if !keep_all || chosen.len() == data.len() => chosen,
            _ => {
                plan.stored_order = true;
                (0..data.len()).collect()
            }
        };
        let mut left: HashSet<usize> = (0..data.len()).collect();
        let blocks: Vec<&Block<'_>> = chosen
            .into_iter()
            .filter(|i| left.remove(i))
            .filter_map(|i| data.get(i))
            .collect();
        let in_file_order = blocks.is_sorted_by_key(|block| block.found.range.start);
        let mut gaps = gaps_of_data(survey, kinds).into_iter().peekable();
        for block in blocks {
            while in_file_order
                && let Some((gap, why)) =
                    gaps.next_if(|(gap, _)| gap.start < block.found.range.start)
            {
                plan.lose(gap, why, None, true);
            }
            plan.copy(block.found, block.digest, false, block.is_uncertain);
        }
        gaps.for_each(|(gap, why)| plan.lose(gap, why, None, in_file_order));
        let mut left: Vec<&Block<'_>> = left.into_iter().filter_map(|i| data.get(i)).collect();
        left.sort_by_key(|block| block.found.range.start);
        for Block { found, digest, .. } in left {
            plan.left_out += digest.entries;
            let why = "its keys overlap those of other blocks: a block of another table?";
            plan.lose(
                found.range.clone(),
                Some(why.into()),
                Some(digest.entries),
                false,
            );
        }
        plan
    }

    /// The codec of most blocks to copy, but for those that did not shrink.
    pub(super) fn codec(&self) -> Option<&'static str> {
        let mut codecs: BTreeMap<&str, u64> = BTreeMap::new();
        for piece in &self.pieces {
            if let Piece::Copy(block) = piece {
                *codecs.entry(block.codec).or_default() += 1;
            }
        }
        let compressed = codecs.iter().filter(|(codec, _)| **codec != "none");
        let most = compressed.max_by_key(|(_, blocks)| **blocks);
        most.or(codecs.first_key_value().as_ref().map(|(a, b)| (*a, *b)))
            .map(|(codec, _)| *codec)
    }

    fn copy(&mut self, found: &Found, digest: &Digest, by_index: bool, is_uncertain: bool) {
        self.pieces.push(Piece::Copy(Copy {
            range: found.range.clone(),
            entries: digest.entries,
            codec: digest.codec,
            by_index,
            is_uncertain,
        }));
    }

    /// Adds a range that is lost, as a part of the previous one if it begins where that ends.
    fn lose(
        &mut self,
        range: Range<u64>,
        reason: Option<String>,
        entries: Option<u64>,
        has_place: bool,
    ) {
        match self.pieces.last_mut() {
            Some(Piece::Lost(before))
                if before.range.end == range.start
                    && before.has_place == has_place
                    && before.entries.is_some() == entries.is_some() =>
            {
                before.range.end = range.end;
                before.entries = before.entries.zip(entries).map(|(a, b)| a + b);
            }
            _ => self.pieces.push(Piece::Lost(Lost {
                range,
                reason,
                entries,
                has_place,
            })),
        }
    }
}

/// Checksum, length, number of entries, first and last key: what tells copies of a block, but for one in 2^32.
type Identity<'a> = (u32, u64, u64, &'a [u8], &'a [u8]);

fn identity(found: &Found) -> Option<Identity<'_>> {
    let digest = found.digest()?;
    Some((
        digest.checksum,
        found.len(),
        digest.entries,
        &digest.first,
        &digest.last,
    ))
}

/// Why no block of a table lies at `extent`. `is_place`: whether it would be there, and not where its handle says only.
fn why_not(survey: &Survey<'_>, extent: &Range<u64>, is_place: bool) -> String {
    if extent.end > survey.file.size {
        return format!("the file ends before it, at {}", survey.file.size);
    }
    if !is_place {
        return "what is left of the file does not hold it: these are the offsets of its handle"
            .into();
    }
    if let Some(Found {
        content: Content::Unreadable(why),
        ..
    }) = survey.at(extent)
    {
        return why.clone();
    }
    let frame = match survey.file.read_frame(handle_of(extent)) {
        Ok(frame) => frame,
        Err(error) => return error.to_string(),
    };
    match inspect(extent.start, &frame, survey.order, &mut KeyWork::of_block()) {
        Ok(_) => "its place is taken by another block".into(),
        Err(defect) => defect.locate(Section::Data, extent.start).to_string(),
    }
}

// -- By the index.

/// When a block fits its index key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Its last key is the index key, or it lies between this one and the one before, in the builder's order.
    Between,
    /// The order is another one: its last key is the index key.
    Last,
    /// The order is another one, in which index keys were shortened: any block fits.
    Any,
}

/// Where blocks should lie, of which the file may hold no more.
type Extents = Vec<Option<Range<u64>>>;

/// The blocks that an index lists, each from its place there or from where one was found that fits.
pub(super) struct Placement<'s> {
    blocks: Vec<Option<&'s Found>>,
    /// Where each should lie, unless that is not in the file any more.
    extents: Extents,
    /// The same, as far as the blocks before and after agree on it.
    certain: Extents,
    fit: Fit,
}

impl<'s> Placement<'s> {
    pub(super) fn of(
        survey: &'s Survey<'_>,
        kinds: &Kinds,
        index: &Index,
        is_other: bool,
    ) -> Placement<'s> {
        let found = |place: &Option<Place>| survey.frames.get(&place.as_ref()?.start);
        let mut blocks: Vec<Option<&Found>> = index.places.iter().map(found).collect();
        let keys = IndexKeys::of(index, survey.order);
        let fit = keys.choose_fit(&blocks, is_other);
        for (i, block) in blocks.iter_mut().enumerate() {
            let place = index.places.get(i).copied().flatten();
            let is_guess = place.is_some_and(|place| place.is_guess);
            *block = block.filter(|found| {
                keys.fit(i, found, fit) || !is_guess && keys.may_be_shortened(found, fit)
            });
        }
        let guesses = blocks.iter_mut().zip(&index.places).map(|(block, place)| {
            let is_guess = place.is_some_and(|place| place.is_guess);
            block.take_if(|_| is_guess)
        });
        let guesses: Vec<Option<&Found>> = guesses.collect();
        let (extents, certain) = extents(survey, index, &blocks);
        let mut placement = Placement {
            blocks,
            extents,
            certain,
            fit,
        };
        let inside = Inside::of(survey, &placement);
        for (block, guess) in placement.blocks.iter_mut().zip(guesses) {
            *block = block.or(guess.filter(|found| !inside.holds(found)));
        }
        if fit != Fit::Any && !placement.is_whole() {
            placement.search(survey, kinds, index, &keys, &inside);
            // If hardly a block was in its place, those found elsewhere tell the order.
            placement.fit = keys.choose_fit(&placement.blocks, is_other);
        }
        placement
    }

    /// Takes what is missing from wherever a block fits. Of several, the last before the index: what an older table left lies
    /// before that.
    fn search(
        &mut self,
        survey: &'s Survey<'_>,
        kinds: &Kinds,
        index: &Index,
        keys: &IndexKeys<'_>,
        inside: &Inside,
    ) {
        let used = self.blocks.iter().flatten();
        let used: HashSet<u64> = used.map(|found| found.range.start).collect();
        let mut elsewhere: BTreeMap<usize, (bool, &Found)> = BTreeMap::new();
        let before = survey.frames.range(..index.range.start);
        let before = before.map(|(_, found)| found);
        for found in survey.from(index.range.start).chain(before) {
            let is_used = used.contains(&found.range.start);
            if let Some(digest) = kinds
                .data(found)
                .filter(|_| !is_used && !inside.holds(found))
            {
                // By its last key rather than by what it lies between.
                for i in keys.places(digest).into_iter().flatten() {
                    let is_missing = self.blocks.get(i).is_some_and(Option::is_none);
                    let by_key = keys.tests(i, found).0;
                    let is_better = elsewhere.get(&i).is_none_or(|other| by_key >= other.0);
                    if is_missing && is_better && keys.fit(i, found, self.fit) {
                        elsewhere.insert(i, (by_key, found));
                        break;
                    }
                }
            }
        }
        for (i, (_, found)) in elsewhere {
            if let Some(block) = self.blocks.get_mut(i) {
                *block = Some(found);
            }
        }
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.blocks.iter().all(Option::is_some)
    }
}

/// The keys of an index, to find out which of its blocks a block is.
struct IndexKeys<'i> {
    index: &'i Index,
    order: &'i Order,
    by_key: HashMap<&'i [u8], usize>,
}

impl<'i> IndexKeys<'i> {
    fn of(index: &'i Index, order: &'i Order) -> IndexKeys<'i> {
        let keys = index.keys.iter().enumerate();
        IndexKeys {
            index,
            order,
            by_key: keys.map(|(i, key)| (&**key, i)).collect(),
        }
    }

    /// Which of the blocks a block may be by its last key: in any order, and in the builder's.
    fn places(&self, digest: &Digest) -> [Option<usize>; 2] {
        let keys = &self.index.keys;
        let between = keys.partition_point(|key| self.order.compare(key, &digest.last).is_lt());
        [self.by_key.get(&*digest.last).copied(), Some(between)]
    }

    /// Whether a block has the size of block `i`, and its last key is the index key, or it lies between that and the one
    /// before.
    fn tests(&self, i: usize, found: &Found) -> (bool, bool) {
        let (keys, handle) = (&self.index.keys, self.index.handles.get(i));
        let (Some(key), Some(digest)) = (keys.get(i), found.digest()) else {
            return (false, false);
        };
        if handle.is_none_or(|handle| handle.size != found.handle().size) {
            return (false, false);
        }
        let before = i.checked_sub(1).and_then(|before| keys.get(before));
        let is_after = |before| self.order.compare(before, &digest.first).is_lt();
        let reaches = |end: &[u8]| self.order.compare(end, key).is_le();
        let is_between = before.is_none_or(|before| is_after(before))
            && reaches(&digest.first)
            && reaches(&digest.last);
        (*digest.last == **key, is_between)
    }

    /// Whether a block can be block `i`.
    fn fit(&self, i: usize, found: &Found, fit: Fit) -> bool {
        let (is_last, is_between) = self.tests(i, found);
        match fit {
            Fit::Between => is_last || is_between,
            Fit::Last => is_last,
            Fit::Any => true,
        }
    }

    /// Whether a block in another order, which is in its place, may have an index key that was shortened: it is no other's.
    fn may_be_shortened(&self, found: &Found, fit: Fit) -> bool {
        let digest = found.digest().filter(|_| fit == Fit::Last);
        digest.is_some_and(|digest| !self.by_key.contains_key(&*digest.last))
    }

    /// How the blocks of the table fit: the way in which most do, each at whichever place is its.
    fn choose_fit(&self, blocks: &[Option<&Found>], is_other: bool) -> Fit {
        let (mut all, mut last, mut only_last, mut only_between, mut neither) = (0, 0, 0, 0, 0);
        let mut misordered = 0;
        let blocks = blocks.iter().flatten();
        for (found, digest) in blocks.filter_map(|found| Some((found, found.digest()?))) {
            let place = self.places(digest).into_iter().flatten().next();
            let (is_last, is_between) = place.map_or((false, false), |i| self.tests(i, found));
            all += 1;
            last += usize::from(is_last);
            only_last += usize::from(is_last && !is_between);
            only_between += usize::from(is_between && !is_last);
            neither += usize::from(!is_last && !is_between);
            misordered += usize::from(!digest.ascends);
        }
        let keys = &self.index.keys;
        // Where index keys were shortened in the builder's order, keys out of order are a fault of the writer.
        let is_evident = 2 * only_between > all && 2 * misordered <= all;
        let is_other = is_other
            || !keys.is_sorted_by(|a, b| self.order.compare(a, b).is_lt())
            || only_last > neither
            || 2 * neither > all
            || misordered > 0 && !is_evident;
        match is_other {
            false => Fit::Between,
            true if 2 * last >= all => Fit::Last,
            true => Fit::Any,
        }
    }
}

/// Where the listed blocks should lie: as far from their handles as the block before them, or else the one after them. Once
/// more, as far as both are as far: else bytes were lost or added between.
fn extents(survey: &Survey<'_>, index: &Index, blocks: &[Option<&Found>]) -> (Extents, Extents) {
    let pairs = || index.handles.iter().zip(blocks);
    let shift = |(handle, found): (&BlockHandle, &Option<&Found>)| {
        found.map(|found| found.range.start.wrapping_sub(handle.offset))
    };
    let place = |handle: BlockHandle, by: Option<u64>| {
        moved(handle, by?).filter(|extent| extent.end <= survey.file.size)
    };
    let mut by = index.moved_by.or_else(|| pairs().rev().find_map(shift));
    let from_behind = pairs().rev().map(|pair| {
        by = shift(pair).or(by);
        place(*pair.0, by)
    });
    let mut certain: Extents = from_behind.collect();
    certain.reverse();
    let mut by = pairs().find_map(shift).or(index.moved_by);
    let from_front = pairs().map(|pair| {
        by = shift(pair).or(by);
        place(*pair.0, by)
    });
    let extents: Extents = from_front.collect();
    for (certain, extent) in certain.iter_mut().zip(&extents) {
        *certain = certain
            .take()
            .filter(|place| Some(place) == extent.as_ref());
    }
    (extents, certain)
}

/// The stretches of frames that lie inside a block that is missing: they were parts of its values.
struct Inside(Vec<Range<u64>>);

impl Inside {
    fn of(survey: &Survey<'_>, placement: &Placement<'_>) -> Inside {
        let blocks = placement.certain.iter().zip(&placement.blocks);
        let missing = blocks.filter(|(_, block)| block.is_none());
        let missing = missing.filter_map(|(extent, _)| extent.as_ref());
        let missing: BTreeMap<u64, u64> = missing.map(|at| (at.start, at.end)).collect();
        let mut runs = survey.runs();
        runs.retain(|run| {
            // Before a value come lengths and a key, and after it the restarts.
            let around = missing.range(..run.start).next_back();
            around.is_some_and(|(_, end)| run.end < *end)
        });
        Inside(runs)
    }

    fn holds(&self, found: &Found) -> bool {
        let after = self.0.partition_point(|run| run.end <= found.range.start);
        self.0
            .get(after)
            .is_some_and(|run| run.contains(&found.range.start))
    }
}

// -- Without an index.

/// A block that may be data.
struct Block<'s> {
    found: &'s Found,
    digest: &'s Digest,
    is_uncertain: bool,
}

/// The stretches of frames between bytes that belong to none: they may have been parts of values of one damaged block.
fn uncertain(survey: &Survey<'_>, kinds: &Kinds) -> Inside {
    let mut runs = survey.runs();
    runs.retain(|run| {
        let ends_in_data = survey
            .before(run.end)
            .next()
            .is_some_and(|last| kinds.data(last).is_some());
        run.start > 0 && (run.end < survey.file.size || ends_in_data)
    });
    Inside(runs)
}

/// The parts in which no data was found although there may have been, each with why, if that is known.
fn gaps_of_data(survey: &Survey<'_>, kinds: &Kinds) -> Vec<(Range<u64>, Option<String>)> {
    let gaps = survey.gaps().into_iter().map(|gap| (gap, None));
    let unreadable = survey
        .frames
        .values()
        .filter_map(|found| match &found.content {
            Content::Unreadable(why) => Some((found.range.clone(), Some(why.clone()))),
            _ => None,
        });
    let mut gaps: Vec<_> = gaps.chain(unreadable).collect();
    gaps.sort_by_key(|(gap, _)| gap.start);
    // After metadata comes no data of the same table.
    let is_data = |found: &&Found| kinds.data(found).is_some();
    let data_end = survey
        .before(survey.file.size)
        .find(is_data)
        .map_or(0, |last| last.range.end);
    let metadata = survey
        .from(data_end)
        .find(|found| kinds.metadata.contains_key(&found.range.start));
    let end = metadata.map_or(survey.file.size, |found| found.range.start);
    gaps.retain(|(gap, _)| gap.start < end);
    gaps
}

/// Which of `blocks`, whose keys ascend, to copy, and in which order, so that no two overlap: those with the most entries,
/// of blocks that are certainly the table's first.
///
/// The heaviest chain of blocks that end no later than a given one is either the one without it, or that block after the
/// heaviest chain of those that end before its first key: O(n log n) in all.
fn heaviest_chain(blocks: &[Block<'_>], order: &Order) -> Vec<usize> {
    let mut by_last: Vec<(usize, &Block<'_>)> = blocks.iter().enumerate().collect();
    by_last.sort_by(|(_, a), (_, b)| order.compare(&a.digest.last, &b.digest.last));
    // Of the first so many blocks.
    let mut chains = vec![Chain::default()];
    for (i, block) in &by_last {
        let is_before = |other: &Digest| order.compare(&other.last, &block.digest.first).is_lt();
        let before = by_last.partition_point(|(_, other)| is_before(other.digest));
        let mut weight = chains.get(before).map_or([0, 0], |chain| chain.weight);
        let [certain, uncertain] = &mut weight;
        *(if block.is_uncertain {
            uncertain
        } else {
            certain
        }) += block.digest.entries;
        let without = chains.last().copied().unwrap_or_default();
        let last = Some((*i, before));
        chains.push(if weight > without.weight {
            Chain { weight, last }
        } else {
            without
        });
    }
    let mut chosen = Vec::new();
    let mut last = chains.last().and_then(|chain| chain.last);
    while let Some((i, before)) = last {
        chosen.push(i);
        last = chains.get(before).and_then(|chain| chain.last);
    }
    chosen.reverse();
    chosen
}

/// The heaviest chain of blocks without overlaps.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    /// Entries that are certainly the table's, and others.
    weight: [u64; 2],
    /// Its last block, and of the first how many blocks the rest of it is the heaviest chain.
    last: Option<(usize, usize)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::recognise::Counts;
    use proptest::prelude::*;

    fn found(first: &str, last: &str, entries: u64) -> Found {
        let content = Content::Entries(Digest {
            entries,
            ascends: true,
            first: first.as_bytes().into(),
            last: last.as_bytes().into(),
            is_properties: false,
            names_parts: false,
            is_list: false,
            checksum: 0,
            codec: "none",
            evidence: Counts::default(),
        });
        Found {
            range: 0..1,
            content,
        }
    }

    /// The weight of the best subset without overlaps, by trying all of them.
    fn heaviest_by_trying(blocks: &[Block<'_>]) -> [u64; 2] {
        let weights = (0..1u32 << blocks.len()).filter_map(|subset| {
            let chosen = blocks
                .iter()
                .enumerate()
                .filter(|(i, _)| subset >> i & 1 == 1);
            let chosen: Vec<_> = chosen.map(|(_, block)| block).collect();
            ascend(&chosen).then(|| weight(&chosen))
        });
        weights.max().unwrap()
    }

    fn ascend(chosen: &[&Block<'_>]) -> bool {
        let mut sorted = chosen.to_vec();
        sorted.sort_by(|a, b| a.digest.first.cmp(&b.digest.first));
        sorted
            .windows(2)
            .all(|pair| pair[0].digest.last < pair[1].digest.first)
    }

    fn weight(chosen: &[&Block<'_>]) -> [u64; 2] {
        let of = |is_uncertain| {
            let blocks = chosen
                .iter()
                .filter(|block| block.is_uncertain == is_uncertain);
            blocks.map(|block| block.digest.entries).sum()
        };
        [of(false), of(true)]
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
                .map(|(found, (.., is_uncertain))| Block {
                    found,
                    digest: found.data().unwrap(),
                    is_uncertain: *is_uncertain,
                })
                .collect();
            let chosen = heaviest_chain(&blocks, &Order::Bytewise);
            let chosen: Vec<_> = chosen.into_iter().map(|i| &blocks[i]).collect();
            prop_assert!(chosen.windows(2).all(|pair| pair[0].digest.last < pair[1].digest.first));
            prop_assert_eq!(weight(&chosen), heaviest_by_trying(&blocks));
        }
    }
}
