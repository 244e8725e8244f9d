//! An index that was found, and where the blocks lie that it lists.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;

use super::copy::index_room;
use super::found::Found;
use super::kinds::clue;
use super::survey::{Survey, moved, run_of};
use crate::error::Section;
use crate::format::footer::BlockHandle;
use crate::read::recognise::is_separator;

/// An index that lists the data blocks of a table.
pub(super) struct Index<'s> {
    /// The block that it is.
    pub(super) list: &'s Found,
    survey: &'s Survey<'s>,
    pub(super) listed: Vec<Listed<'s>>,
    by_key: HashMap<Bytes, usize>,
    /// The stretches of frames that lie inside a block that is missing: they were parts of its values.
    inside: Vec<Range<u64>>,
    /// How far the table has moved, if a footer tells.
    moved_by: Option<u64>,
    /// Whether the footer is right where the file ends, and leads to it.
    pub(super) is_in_place: bool,
    /// Whether the blocks are in the builder's order.
    pub(super) is_ordered: bool,
}

/// A block that an index lists.
pub(super) struct Listed<'s> {
    pub(super) key: Bytes,
    pub(super) handle: BlockHandle,
    /// The block. Until all is [settled](Index::settle): that in a place to which it may have moved.
    pub(super) found: Option<&'s Found>,
    /// Where it should lie, unless that is not in the file any more.
    pub(super) extent: Option<Range<u64>>,
}

impl Listed<'_> {
    /// How far the block has moved, if it was found.
    fn shift(&self) -> Option<u64> {
        Some(self.found?.range.start.wrapping_sub(self.handle.offset))
    }
}

/// Most distances by which blocks are looked for: one for each place where bytes were lost or added.
const MAX_SHIFTS: usize = 16;

impl<'s> Index<'s> {
    /// The blocks that were found.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &'s Found> {
        self.listed.iter().filter_map(|listed| listed.found)
    }

    /// Where they begin.
    pub(super) fn starts(&self) -> HashSet<u64> {
        self.blocks().map(|found| found.range.start).collect()
    }

    /// Reads `list`, and finds its blocks by how far they have moved: as far as a footer tells, or as many blocks
    /// before the index say by their keys and sizes. The table lies from `begin` on. `None` if a value is no handle, or the keys take
    /// more memory than a sound table's would.
    pub(super) fn locate(
        survey: &'s Survey<'s>,
        list: &'s Found,
        moved_by: Option<u64>,
        begin: u64,
    ) -> Option<Index<'s>> {
        let mut index = Index::read(survey, list, moved_by)?;
        // The table ends where its index begins.
        let own = survey.before(list.range.start);
        let own = own.take_while(|found| found.range.start >= begin);
        let own = own.take(4 * index.listed.len() + 64);
        // A size alone says little: two blocks have to agree.
        let mut votes: HashMap<u64, usize> = HashMap::from([(0, 2)]);
        for found in own.filter(|found| found.is_data()) {
            for (i, listed) in index.candidates(found) {
                let by = found.range.start.wrapping_sub(listed.handle.offset);
                *votes.entry(by).or_default() += 1 + usize::from(index.fits(i, found, true));
            }
        }
        let votes = votes.into_iter().filter(|(_, votes)| *votes > 1);
        let mut shifts: Vec<(u64, usize)> = votes.collect();
        shifts.sort_unstable_by_key(|(by, votes)| Reverse((*votes, *by as i64)));
        let shifts = shifts.into_iter().map(|(by, _)| by);
        let mut used = HashSet::new();
        for by in moved_by.into_iter().chain(shifts).take(MAX_SHIFTS) {
            let may_be = |found: &&Found| {
                let is_named = Some(by) == moved_by && found.has_entries();
                // Its own index is no block, nor is a copy of that, unless a footer says so: the two may be the same to the byte.
                let is_list = found.range == list.range
                    || Some(by) != moved_by && found.identity() == list.identity();
                let is_free = found.range.start >= begin && !used.contains(&found.range.start);
                !is_list && is_free && (found.is_data() || is_named)
            };
            let missing = index.listed.iter_mut().filter(|own| own.found.is_none());
            let found =
                missing.filter_map(|own| Some((survey.at(own.handle, by).filter(may_be)?, own)));
            let found: Vec<_> = found.collect();
            // One that moved by itself, and not as far as the footer says, may be another's, or lie inside another one.
            if found.len() > 1 || by == 0 || moved_by.is_none_or(|moved_by| by == moved_by) {
                for (found, own) in found {
                    used.insert(found.range.start);
                    own.found = Some(found);
                }
            }
        }
        Some(index)
    }

    fn read(survey: &'s Survey<'s>, list: &'s Found, moved_by: Option<u64>) -> Option<Index<'s>> {
        // A footer in the middle of the file is that of another table.
        let is_last = || { survey.file.footer() }.is_ok_and(|own| own.index == list.handle());
        let (mut listed, mut by_key) = (Vec::new(), HashMap::new());
        let mut room = index_room(survey.file.size);
        let mut entries = survey.entries(list.handle())?;
        while entries.next().ok()? {
            room = room.checked_sub(entries.key().len() as u64)?;
            let key = Bytes::copy_from_slice(entries.key());
            let (handle, _) = BlockHandle::decode(entries.value())?;
            by_key.insert(key.clone(), listed.len());
            listed.push(Listed {
                key,
                handle,
                found: None,
                extent: None,
            });
        }
        Some(Index {
            list,
            survey,
            listed,
            by_key,
            inside: Vec::new(),
            moved_by,
            is_in_place: moved_by == Some(0) && is_last(),
            is_ordered: false,
        })
    }

    /// Whether the list, whose blocks follow each other from the front of a file and which no footer names, can be told from data
    /// whose values are handles by its keys or by what lies around it.
    ///
    /// Data would continue the keys of the block before it. An index does so only if that is the only one which it lists, or a
    /// copy of its first. Then it is known by a key that is what a writer makes of a block's last key, or by a metaindex, filter or
    /// gap between the two; a longer one also by its form, if most blocks that it leads to fit. And no data comes right after it.
    ///
    /// `must_have_room`: whether a later block shows that nothing before the list is missing.
    pub(super) fn is_likely(&self, clues: &HashMap<u64, usize>, must_have_room: bool) -> bool {
        let survey = self.survey;
        let Range { start, end } = self.list.range;
        let after = survey.frames.get(&end);
        let is_last = !after.is_some_and(Found::is_data);
        let before = survey.before(start).next();
        let before = before.filter(|before| before.range.end == start);
        let follows_data = before.is_some_and(Found::is_data);
        let own = &self.list.digest;
        let data_before = survey.before(start).find(|found| found.is_data());
        let continues = data_before.is_some_and(|Found { digest, .. }| {
            let ascend = digest.ascends && own.ascends;
            ascend && survey.order.compare(&digest.last, &own.first).is_lt()
        });
        let [only] = &self.listed[..] else {
            let blocks = self.listed.iter().enumerate();
            let found = blocks.filter_map(|(i, listed)| Some((i, listed.found?)));
            let (fit, other): (Vec<_>, Vec<_>) =
                found.partition(|(i, own)| self.fits(*i, own, true));
            let is_whole = own.ascends && fit.len() == self.listed.len();
            let has_form = own.has_restarts_only;
            let is_attested = has_form && fit.len() > other.len();
            return (has_form || is_whole)
                && (!continues || is_last && (!follows_data || is_attested));
        };
        if self.has_clue(clues) {
            return is_last || !follows_data;
        }
        let ends_a_table =
            |found: &Found| matches!(found.section.get(), Section::Metaindex | Section::Footer);
        // Where no data is left, the listed block must at least have had room, unless bytes may be missing.
        let has_room = only.handle.end() <= Some(start)
            || before.map_or(start > 0, ends_a_table)
            || !must_have_room;
        // Data of another table, which came in front of it, while its own is gone: keys go before, or there is no front.
        let may_be_others = !continues || !survey.frames.contains_key(&0);
        let is_others = may_be_others && only.found.is_none() && !must_have_room;
        has_room && is_last && (!follows_data || is_others)
    }

    /// Whether it lists one block, which is known by its key: that may be the key of a block of just that size.
    pub(super) fn has_clue(&self, clues: &HashMap<u64, usize>) -> bool {
        let [Listed { key, handle, .. }] = &self.listed[..] else {
            return false;
        };
        // None of a database's data has the largest sequence number.
        let is_shortened = self.survey.order.shortens_filter_keys() && is_separator(key);
        // A list of its own size is not to attest itself.
        let is_itself = handle.size == self.list.handle().size;
        let blocks = clues.get(&clue(handle.size, key)).copied();
        is_shortened || blocks.unwrap_or_default() > usize::from(is_itself)
    }

    /// Whether its table seems to be stored in a value of a damaged block: it begins a stretch of frames with bytes
    /// before and after it that belong to none, and data before and after these.
    pub(super) fn is_inside_a_value(&self, runs: &[Range<u64>]) -> bool {
        let survey = self.survey;
        run_of(runs, self.list).is_some_and(|run| {
            let after = survey.from(self.list.range.end);
            let mut in_run = after.take_while(|found| found.range.start < run.end);
            let starts = self.blocks().map(|found| found.range.start);
            survey.before(run.start).any(Found::is_data)
                && starts.min() == Some(run.start)
                && !in_run.any(Found::is_data)
                && survey.from(run.end).any(Found::is_data)
        })
    }

    /// Decides where each block lies: in its place if it fits its index key, or wherever one is found that does. `is_other`:
    /// whether the table says that its order is not the builder's.
    pub(super) fn settle(&mut self, is_other: bool) {
        self.is_ordered = !is_other && self.is_in_order();
        let kept = self.listed.iter().enumerate().map(|(i, listed)| {
            let found = listed.found?;
            // In another order, an index key may have been shortened: the block is no other's.
            let names_other = || self.by_key.contains_key(&found.digest.last[..]);
            let fits = self.fits(i, found, self.is_ordered) || !self.is_ordered && !names_other();
            fits.then_some(found)
        });
        let kept: Vec<_> = kept.collect();
        for (listed, found) in self.listed.iter_mut().zip(kept) {
            listed.extent = found.map(|found| found.range.clone());
            listed.found = found;
        }
        self.measure();
        // What is found shows how far those around it have moved, and so what lies inside another one.
        for _ in 0..2 {
            if self.listed.iter().any(|listed| listed.found.is_none()) {
                self.search();
                self.measure();
            }
        }
        // If hardly a block was in its place, those found elsewhere tell the order.
        self.is_ordered = !is_other && self.is_in_order();
    }

    /// Takes what is missing from wherever a block fits. Of several, one by its last key, or the last before the index: what
    /// an older table left lies before that.
    fn search(&mut self) {
        let used = self.starts();
        let mut elsewhere: BTreeMap<usize, (_, &Found)> = BTreeMap::new();
        for found in self.survey.data() {
            let start = found.range.start;
            let is_copy = found.identity() == self.list.identity();
            if is_copy || used.contains(&start) || self.is_inside_another(found) {
                continue;
            }
            let place = self.candidates(found).find_map(|(i, listed)| {
                let rank = (self.tests(i, found).0, start < self.list.range.start, start);
                let is_better = elsewhere.get(&i).is_none_or(|(other, _)| rank > *other);
                // Against the index of another table of one block, only the very key speaks.
                let has_key = || {
                    let keys = found.index_keys(self.survey.order);
                    keys.iter().any(|key| listed.key == *key)
                };
                let is_its = self.listed.len() > 1 || !found.may_be_index() || has_key();
                let fits = is_better && is_its && self.fits(i, found, self.is_ordered);
                (listed.found.is_none() && fits).then_some((i, (rank, found)))
            });
            elsewhere.extend(place);
        }
        for (i, (_, found)) in elsewhere {
            if let Some(listed) = self.listed.get_mut(i) {
                listed.found = Some(found);
            }
        }
    }

    /// Finds where the listed blocks should lie: as far from their handles as the block before them, or else the one after
    /// them. If both are as far, what lies inside of one that is missing is known, too: else bytes were lost or added.
    fn measure(&mut self) {
        let size = self.survey.file.size;
        let mut afters: Vec<Option<u64>> = self.listed.iter().map(Listed::shift).collect();
        let last = afters.iter().rev().find_map(|by| *by);
        let mut after = self.moved_by.or(last);
        for by in afters.iter_mut().rev() {
            after = by.or(after);
            *by = after;
        }
        let (mut before, mut missing) = (None, BTreeMap::new());
        for (listed, after) in self.listed.iter_mut().zip(afters) {
            before = listed.shift().or(before);
            let by = before.or(after);
            let extent = by.and_then(|by| moved(listed.handle, by));
            let extent = extent.filter(|extent| listed.found.is_none() && extent.end <= size);
            if let Some(extent) = extent.as_ref().filter(|_| after == by) {
                missing.insert(extent.start, extent.end);
            }
            listed.extent = listed.extent.take().or(extent);
        }
        self.inside = self.survey.runs();
        // Before a value come lengths and a key, and after it the restarts.
        self.inside.retain(|run| {
            let around = missing.range(..run.start).next_back();
            around.is_some_and(|(_, end)| run.end < *end)
        });
    }

    /// Whether a block lies inside one that is missing.
    pub(super) fn is_inside_another(&self, found: &Found) -> bool {
        run_of(&self.inside, found).is_some()
    }

    /// Which blocks of its size a block may be: by its last key, in any order and in the builder's.
    fn candidates(&self, found: &Found) -> impl Iterator<Item = (usize, &Listed<'s>)> {
        let (size, last) = (found.handle().size, &found.digest.last[..]);
        let is_before = |own: &Listed<'_>| self.survey.order.compare(&own.key, last).is_lt();
        let by_last = self.by_key.get(last).copied();
        let between = self.listed.partition_point(is_before);
        let between = (Some(between) != by_last).then_some(between);
        let all = by_last.into_iter().chain(between);
        let all = all.filter_map(|i| Some((i, self.listed.get(i)?)));
        all.filter(move |(_, listed)| listed.handle.size == size)
    }

    /// Whether the last key of a block is the index key of block `i`, and whether the block lies between that and the one before.
    fn tests(&self, i: usize, found: &Found) -> (bool, bool) {
        let digest = &found.digest;
        let Some(Listed { key, .. }) = self.listed.get(i) else {
            return (false, false);
        };
        let before = i.checked_sub(1).and_then(|before| self.listed.get(before));
        let is_after =
            |own: &Listed<'_>| self.survey.order.compare(&own.key, &digest.first).is_lt();
        let reaches = |end: &[u8]| self.survey.order.compare(end, key).is_le();
        let is_between =
            before.is_none_or(is_after) && reaches(&digest.first) && reaches(&digest.last);
        (digest.last == *key, is_between)
    }

    /// Whether a block fits its index key, in the builder's order or in another one.
    fn fits(&self, i: usize, found: &Found, is_ordered: bool) -> bool {
        let (is_last, is_between) = self.tests(i, found);
        is_last || is_ordered && is_between
    }

    /// Whether the table seems to be in the builder's order: whether most blocks fit, each at whichever place is its.
    fn is_in_order(&self) -> bool {
        let tests = self.blocks().map(|found| {
            let place = self.candidates(found).next();
            place.map_or((false, false), |(i, _)| self.tests(i, found))
        });
        let tests: Vec<(bool, bool)> = tests.collect();
        let count = |of| tests.iter().filter(|tests| **tests == of).count();
        let (only_last, neither) = (count((true, false)), count((false, false)));
        let misordered = { self.blocks() }.filter(|found| !found.digest.ascends);
        let (misordered, all) = (misordered.count(), tests.len());
        // Where index keys were shortened in the builder's order, keys out of order are a fault of the writer.
        let is_evident = 2 * count((false, true)) > all && 2 * misordered <= all;
        let keys = self.listed.iter().map(|listed| &listed.key);
        keys.is_sorted_by(|a, b| self.survey.order.compare(a, b).is_lt())
            && only_last <= neither
            && 2 * neither <= all
            && (misordered == 0 || is_evident)
    }
}
