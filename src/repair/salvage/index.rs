//! An index that was found, and where the blocks lie that it lists.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;

use super::copy::index_room;
use super::found::{Content, Found};
use super::kinds::Clues;
use super::survey::{Survey, moved, run_of};
use crate::comparator::Order;
use crate::error::Section;
use crate::format::footer::BlockHandle;
use crate::format::page;
use crate::read::recognise::is_separator;

/// An index that lists the data blocks of a table.
#[derive(Debug)]
pub(super) struct Index<'s> {
    /// The block that it is.
    pub(super) list: &'s Found,
    order: &'s Order,
    pub(super) keys: Vec<Bytes>,
    pub(super) handles: Vec<BlockHandle>,
    by_key: HashMap<Bytes, usize>,
    /// The blocks. Until all is [settled](Index::settle): those in the places to which they may have moved.
    pub(super) blocks: Vec<Option<&'s Found>>,
    /// Where each should lie, unless that is not in the file any more.
    pub(super) extents: Vec<Option<Range<u64>>>,
    /// The stretches of frames that lie inside a block that is missing: they were parts of its values.
    inside: Vec<Range<u64>>,
    /// How far the table has moved, if a footer tells.
    moved_by: Option<u64>,
    /// Whether the footer is right where the file ends, and leads to it.
    pub(super) is_in_place: bool,
    /// Whether the blocks are in the builder's order.
    pub(super) is_ordered: bool,
    /// Whether there are blocks near it, and whether at least half of those, as many as it lists, are its own.
    has_near: bool,
    owns_near: bool,
    /// Whether there are blocks in their places, and all of them fit.
    fits: bool,
}

/// Most distances by which blocks are looked for: one for each place where bytes were lost or added.
const MAX_SHIFTS: usize = 16;

impl<'s> Index<'s> {
    /// Reads `list`, and finds its blocks by how far they have moved: as far as a footer tells, or as many blocks
    /// before the index say by their keys and sizes. `None` if a value is no handle, or the keys take more memory than a sound
    /// table's would.
    pub(super) fn locate(
        survey: &'s Survey<'_>,
        list: &'s Found,
        moved_by: Option<u64>,
    ) -> Option<Index<'s>> {
        let mut index = Index::read(survey, list, moved_by)?;
        let count = index.handles.len();
        // The table ends where its index begins. Before a footer lies another table.
        let mut before = survey.before(list.range.start);
        let footer = before.find(|found| found.section() == Section::Footer);
        let begin = footer.map_or(0, |footer| footer.range.end);
        let own = survey.before(list.range.start);
        let own = own.take_while(|found| found.range.start >= begin);
        let own = own.filter(|found| found.digest().is_some());
        let own: Vec<&Found> = own.take(4 * count + 64).collect();
        // A size alone says little: two blocks have to agree.
        let mut votes: HashMap<u64, usize> = HashMap::from([(0, 2)]);
        for found in own.iter().filter(|found| found.data().is_some()) {
            for (i, handle) in index.candidates(found) {
                let by = found.range.start.wrapping_sub(handle.offset);
                *votes.entry(by).or_default() += 1 + usize::from(index.fits(i, found, true));
            }
        }
        votes.retain(|_, votes| *votes > 1);
        let mut shifts: Vec<(u64, usize)> = votes.into_iter().collect();
        shifts.sort_unstable_by_key(|(by, votes)| Reverse((*votes, *by as i64)));
        let shifts = shifts.into_iter().map(|(by, _)| by);
        let mut used = HashSet::new();
        for by in moved_by.into_iter().chain(shifts).take(MAX_SHIFTS) {
            let may_be = |found: &&Found| {
                let is_named = Some(by) == moved_by && found.digest().is_some();
                // A block cannot lie where its own index does.
                let is_own = found.range != list.range && found.range.start >= begin;
                is_own && (found.data().is_some() || is_named)
            };
            for (block, handle) in index.blocks.iter_mut().zip(&index.handles) {
                if block.is_none() {
                    let found = moved(*handle, by).and_then(|range| survey.at(&range));
                    let found = found.filter(may_be);
                    *block = found.filter(|found| used.insert(found.range.start));
                }
            }
        }
        let is_used = |found: &&Found| used.contains(&found.range.start);
        let near = own.into_iter();
        let near = near.filter(|found| is_used(found) || found.data().is_some());
        let near: Vec<&Found> = near.take(count).collect();
        let matched = near.iter().copied().filter(is_used).count();
        index.has_near = !near.is_empty();
        index.owns_near = index.has_near && 2 * matched >= near.len();
        let mut blocks = index.blocks.iter().enumerate();
        let fit = blocks.all(|(i, block)| block.is_none_or(|found| index.fits(i, found, true)));
        index.fits = matched > 0 && fit;
        Some(index)
    }

    fn read(survey: &'s Survey<'_>, list: &'s Found, moved_by: Option<u64>) -> Option<Index<'s>> {
        let size = survey.file().size;
        // A footer in the middle of the file is that of another table.
        let is_last = |last: &Found| {
            let names_it =
                matches!(&last.content, Content::Footer(footer) if footer.index == list.handle());
            names_it && last.range.end == size
        };
        let (mut keys, mut handles) = (Vec::new(), Vec::new());
        let mut by_key = HashMap::new();
        let mut room = index_room(size);
        let mut entries = survey.entries(list.handle())?;
        while entries.next().ok()? {
            room = room.checked_sub(entries.key().len() as u64)?;
            let key = Bytes::copy_from_slice(entries.key());
            let (handle, _) = BlockHandle::decode(entries.value())?;
            by_key.insert(key.clone(), keys.len());
            keys.push(key);
            handles.push(handle);
        }
        Some(Index {
            list,
            order: survey.order(),
            blocks: vec![None; keys.len()],
            keys,
            handles,
            by_key,
            extents: Vec::new(),
            inside: Vec::new(),
            moved_by,
            is_in_place: moved_by == Some(0) && survey.before(size).next().is_some_and(is_last),
            is_ordered: false,
            has_near: false,
            owns_near: false,
            fits: false,
        })
    }

    /// Whether the list is an index: a footer says so, or its sizes are those of most blocks before it, and it can be
    /// told from data whose values are handles.
    pub(super) fn is_likely(
        &self,
        survey: &Survey<'_>,
        clues: &Clues,
        must_have_room: bool,
    ) -> bool {
        if self.moved_by.is_some() {
            // Nothing else can be the index of an empty table.
            return !self.handles.is_empty() || survey.data().next().is_none();
        }
        (self.owns_near || fills_the_front(&self.handles))
            && self.stands_apart(survey, clues, must_have_room)
    }

    /// Whether the list, which no footer names, can be told from data whose values are handles by its keys or by what lies
    /// around it.
    ///
    /// Data would continue the keys of the block before it. An index does so only if that is the only one which it lists.
    /// Then either its key is what a writer makes of a block's last key, or metaindex, filter or a gap lies between the two; and
    /// no data comes right after it, which a longer one that does not continue the keys may have. `must_have_room`: whether anything after it shows that it is no index which has lost
    /// what was before it.
    fn stands_apart(&self, survey: &Survey<'_>, clues: &Clues, must_have_room: bool) -> bool {
        let Range { start, end } = self.list.range;
        let is_data = |found: &Found| found.data().is_some();
        let after = survey.frames.get(&end);
        let is_last = !after.is_some_and(is_data);
        let before = survey.before(start).next();
        let before = before.filter(|before| before.range.end == start);
        let follows_data = before.is_some_and(is_data);
        let data_before = survey.before(start).find_map(Found::data);
        let continues = data_before
            .zip(self.list.digest())
            .is_some_and(|(before, own)| {
                let ascend = before.ascends && own.ascends;
                ascend && self.order.compare(&before.last, &own.first).is_lt()
            });
        let ([key], [handle]) = (&self.keys[..], &self.handles[..]) else {
            let digest = self.list.digest();
            let has_its_form = digest.is_some_and(|own| own.has_restarts_only)
                && !self.handles.contains(&self.list.handle());
            return !continues || is_last && (!follows_data || self.fits && has_its_form);
        };
        // None of a database's data has the largest sequence number.
        let is_shortened = self.order.shortens_filter_keys() && is_separator(key);
        if is_shortened || clues.has_block(handle.size, key) {
            return is_last;
        }
        let ends_a_table =
            |found: &Found| matches!(found.section(), Section::Metaindex | Section::Footer);
        // Where no data is left, the listed block must at least have had room, unless bytes may be missing.
        let has_room = self.has_near
            || handle.end() <= Some(start)
            || before.map_or(start > 0, ends_a_table)
            || !must_have_room;
        // Data of another table, which came in front of it: its keys go before, or the front of its own is gone.
        let may_be_others = !continues || !survey.frames.contains_key(&0);
        let is_others = may_be_others && !must_have_room && fills_the_front(&self.handles);
        has_room && is_last && (!follows_data || is_others && after.is_some())
    }

    /// Whether its table seems to be stored in a value of a damaged block: it is whole, begins a stretch of frames with bytes
    /// before and after it that belong to none, and data comes after these.
    pub(super) fn is_inside_a_value(&self, survey: &Survey<'_>, runs: &[Range<u64>]) -> bool {
        let is_data = |found: &Found| found.data().is_some();
        run_of(runs, self.list).is_some_and(|run| {
            let after = survey.from(self.list.range.end);
            let mut in_run = after.take_while(|found| found.range.start < run.end);
            let starts = self.blocks.iter().flatten().map(|found| found.range.start);
            run.start > 0
                && self.blocks.iter().all(Option::is_some)
                && starts.min() == Some(run.start)
                && !in_run.any(is_data)
                && survey.from(run.end).any(is_data)
        })
    }

    /// Decides where each block lies: in its place if it fits its index key, or wherever one is found that does. `is_other`:
    /// whether the table says that its order is not the builder's.
    pub(super) fn settle(&mut self, survey: &'s Survey<'_>, is_other: bool) {
        self.is_ordered = !is_other && self.is_in_order();
        let mut together: HashMap<u64, usize> = HashMap::new();
        for by in (0..self.blocks.len()).filter_map(|i| self.shift(i)) {
            *together.entry(by).or_default() += 1;
        }
        let blocks = self.blocks.iter().enumerate();
        let kept = blocks.map(|(i, block)| {
            let found = (*block)?;
            // One that moved by itself may lie inside another one.
            let by = self.shift(i)?;
            let is_alone = together.get(&by) == Some(&1);
            let is_placed = by == 0 || Some(by) == self.moved_by || !is_alone;
            // In another order, an index key may have been shortened: the block is no other's.
            let names_other = found
                .digest()
                .is_some_and(|own| self.by_key.contains_key(&own.last[..]));
            let fits = self.fits(i, found, self.is_ordered) || !self.is_ordered && !names_other;
            (is_placed && fits).then_some(found)
        });
        self.blocks = kept.collect();
        self.extents = self.measure(survey);
        // What is found shows how far those around it have moved, and so what lies inside another one.
        for _ in 0..2 {
            if !self.blocks.iter().all(Option::is_some) {
                self.search(survey);
                self.measure(survey);
            }
        }
        // If hardly a block was in its place, those found elsewhere tell the order.
        self.is_ordered = !is_other && self.is_in_order();
    }

    /// Takes what is missing from wherever a block fits. Of several, one by its last key, or the last before the index: what
    /// an older table left lies before that.
    fn search(&mut self, survey: &'s Survey<'_>) {
        let used = self.blocks.iter().flatten();
        let used: HashSet<u64> = used.map(|found| found.range.start).collect();
        let mut elsewhere: BTreeMap<usize, (_, &Found)> = BTreeMap::new();
        for found in survey.data() {
            let start = found.range.start;
            if used.contains(&start) || self.is_inside_another(found) {
                continue;
            }
            let place = self.candidates(found).find_map(|(i, _)| {
                let is_missing = self.blocks.get(i).is_some_and(Option::is_none);
                let rank = (self.tests(i, found).0, start < self.list.range.start, start);
                let is_better = elsewhere.get(&i).is_none_or(|(other, _)| rank > *other);
                let fits = is_missing && is_better && self.fits(i, found, self.is_ordered);
                fits.then_some((i, (rank, found)))
            });
            elsewhere.extend(place);
        }
        for (i, block) in self.blocks.iter_mut().enumerate() {
            *block = block.or(elsewhere.get(&i).map(|(_, found)| *found));
        }
    }

    /// How far block `i` has moved, if it was found.
    fn shift(&self, i: usize) -> Option<u64> {
        let (found, handle) = self
            .blocks
            .get(i)
            .copied()
            .flatten()
            .zip(self.handles.get(i))?;
        Some(found.range.start.wrapping_sub(handle.offset))
    }

    /// Finds where the listed blocks should lie: as far from their handles as the block before them, or else the one after
    /// them. If both are as far, what lies inside of one that is missing is known, too: else bytes were lost or added.
    fn measure(&mut self, survey: &Survey<'_>) -> Vec<Option<Range<u64>>> {
        let from_end = || (0..self.blocks.len()).rev();
        let mut by = self
            .moved_by
            .or_else(|| from_end().find_map(|i| self.shift(i)));
        let after = from_end().map(|i| {
            by = self.shift(i).or(by);
            by
        });
        let after: Vec<Option<u64>> = after.collect();
        let (mut before, mut missing) = (None, BTreeMap::new());
        let handles = self.handles.iter().zip(after.into_iter().rev()).enumerate();
        let extents = handles.map(|(i, (handle, after))| {
            let shift = self.shift(i);
            before = shift.or(before);
            let by = before.or(after);
            let extent = moved(*handle, by?).filter(|extent| extent.end <= survey.file().size)?;
            if shift.is_none() && after == by {
                missing.insert(extent.start, extent.end);
            }
            Some(extent)
        });
        let extents = extents.collect();
        self.inside = survey.runs();
        // Before a value come lengths and a key, and after it the restarts.
        self.inside.retain(|run| {
            let around = missing.range(..run.start).next_back();
            around.is_some_and(|(_, end)| run.end < *end)
        });
        extents
    }

    /// Whether a block lies inside one that is missing.
    pub(super) fn is_inside_another(&self, found: &Found) -> bool {
        run_of(&self.inside, found).is_some()
    }

    /// Which blocks of its size a block may be: by its last key, in any order and in the builder's.
    fn candidates(&self, found: &Found) -> impl Iterator<Item = (usize, BlockHandle)> {
        let size = found.handle().size;
        let last = found.digest().map(|digest| &digest.last[..]);
        let is_before =
            |key: &Bytes| last.is_some_and(|last| self.order.compare(key, last).is_lt());
        let by_last = last.and_then(|last| self.by_key.get(last).copied());
        let between = last.map(|_| self.keys.partition_point(is_before));
        let between = between.filter(|i| Some(*i) != by_last);
        let all = [by_last, between].into_iter().flatten();
        let all = all.filter_map(|i| Some((i, *self.handles.get(i)?)));
        all.filter(move |(_, handle)| handle.size == size)
    }

    /// Whether the last key of a block is the index key of block `i`, and whether the block lies between that and the one before.
    fn tests(&self, i: usize, found: &Found) -> (bool, bool) {
        let (Some(key), Some(digest)) = (self.keys.get(i), found.digest()) else {
            return (false, false);
        };
        let before = i.checked_sub(1).and_then(|before| self.keys.get(before));
        let is_after = |before: &Bytes| self.order.compare(before, &digest.first).is_lt();
        let reaches = |end: &[u8]| self.order.compare(end, key).is_le();
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
        let (mut all, mut only_last, mut only_between, mut neither) = (0, 0, 0, 0);
        let mut misordered = 0;
        for found in self.blocks.iter().flatten() {
            let place = self.candidates(found).next();
            let (is_last, is_between) = place.map_or((false, false), |(i, _)| self.tests(i, found));
            all += 1;
            only_last += usize::from(is_last && !is_between);
            only_between += usize::from(is_between && !is_last);
            neither += usize::from(!is_last && !is_between);
            misordered += usize::from(found.digest().is_some_and(|digest| !digest.ascends));
        }
        // Where index keys were shortened in the builder's order, keys out of order are a fault of the writer.
        let is_evident = 2 * only_between > all && 2 * misordered <= all;
        let keys = self.keys.iter();
        keys.is_sorted_by(|a, b| self.order.compare(a, b).is_lt())
            && only_last <= neither
            && 2 * neither <= all
            && (misordered == 0 || is_evident)
    }
}

/// Whether the blocks of an index follow each other from the front of a file, without gaps or with the padding of an aligned
/// table. Values are not like this by chance.
fn fills_the_front(handles: &[BlockHandle]) -> bool {
    let mut end = Some(0);
    handles.iter().all(|handle| {
        let follows = end.is_some_and(|end: u64| {
            end == handle.offset || end.checked_add(page::to_boundary(end)) == Some(handle.offset)
        });
        end = handle.end();
        follows
    })
}
