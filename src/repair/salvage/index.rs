//! An index that was found, and where the blocks lie that it lists.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::copy::index_room;
use super::found::{Content, Found};
use super::kinds::{Clues, properties_in};
use super::survey::{Survey, moved, run_of};
use crate::comparator::Order;
use crate::error::Section;
use crate::format::footer::BlockHandle;
use crate::format::page;
use crate::format::properties::Properties;
use crate::read::recognise::is_separator;

/// An index that lists the data blocks of a table.
#[derive(Debug, Default)]
pub(super) struct Index {
    range: Range<u64>,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) handles: Vec<BlockHandle>,
    /// Where each listed block begins. Until all is [settled](Index::settle): by how far it may have moved.
    pub(super) places: Vec<Option<u64>>,
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
    /// How many of the blocks nearest to it, as many as it lists, are among its own, and of how many.
    near: (usize, usize),
    /// Whether there are blocks in their places, and all of them fit.
    fits: bool,
}

/// Most distances by which blocks are looked for: one for each place where bytes were lost or added.
const MAX_SHIFTS: usize = 16;

impl Index {
    /// Reads the list in `found`, and finds its blocks by how far they have moved: as far as a footer tells, or as many blocks
    /// before the index say by their keys and sizes. `None` if a value is no handle, or the keys take more memory than a sound
    /// table's would.
    pub(super) fn locate(
        survey: &Survey<'_>,
        found: &Found,
        moved_by: Option<u64>,
    ) -> Option<Index> {
        let mut index = Index::read(survey, found, moved_by)?;
        let keys = IndexKeys::of(&index, survey.order());
        // The table ends where its index begins. Before a footer lies another table.
        let start = index.range.start;
        let is_footer = |found: &&Found| found.section == Section::Footer;
        let footer = survey.before(start).find(is_footer);
        let begin = footer.map_or(0, |footer| footer.range.end);
        let own = survey
            .before(start)
            .take_while(|found| found.range.start >= begin);
        let own = own.filter(|found| found.digest().is_some());
        let own: Vec<&Found> = own.take(4 * index.handles.len() + 64).collect();
        // A size alone says little: two blocks have to agree.
        let mut votes: HashMap<u64, usize> = HashMap::from([(0, 2)]);
        for found in own.iter().filter(|found| found.data().is_some()) {
            for i in keys.candidates(found) {
                let by = index.shift(i, found.range.start);
                *votes.entry(by).or_default() += 1 + usize::from(keys.fits(i, found, true));
            }
        }
        votes.retain(|_, votes| *votes > 1);
        let mut shifts: Vec<(u64, usize)> = votes.into_iter().collect();
        shifts.sort_unstable_by_key(|(by, votes)| Reverse((*votes, *by as i64)));
        let shifts = shifts.into_iter().map(|(by, _)| by);
        let mut places = vec![None; index.handles.len()];
        let mut used = HashSet::new();
        for by in moved_by.into_iter().chain(shifts).take(MAX_SHIFTS) {
            for (place, handle) in places.iter_mut().zip(&index.handles) {
                let found = moved(*handle, by).and_then(|range| survey.at(&range));
                let found = found.filter(|found| {
                    // A block cannot lie where its own index does.
                    place.is_none()
                        && found.range.start != start
                        && found.range.start >= begin
                        && (found.data().is_some()
                            || Some(by) == moved_by && found.digest().is_some())
                });
                if let Some(found) = found.filter(|found| used.insert(found.range.start)) {
                    *place = Some(found.range.start);
                }
            }
        }
        let is_used = |found: &&&Found| used.contains(&found.range.start);
        let near = own
            .iter()
            .filter(|found| is_used(found) || found.data().is_some());
        let near: Vec<_> = near.take(places.len()).collect();
        let near = (near.iter().copied().filter(is_used).count(), near.len());
        let fits = |(i, place): (usize, &Option<u64>)| {
            let found = place.and_then(|place| survey.frames.get(&place));
            found.is_none_or(|found| keys.fits(i, found, true))
        };
        index.fits = near.0 > 0 && places.iter().enumerate().all(fits);
        index.near = near;
        index.places = places;
        Some(index)
    }

    fn read(survey: &Survey<'_>, found: &Found, moved_by: Option<u64>) -> Option<Index> {
        // A footer in the middle of the file is that of another table.
        let size = survey.file().size;
        let last = survey.before(size).next()?;
        let mut index = Index {
            range: found.range.clone(),
            moved_by,
            is_in_place: moved_by == Some(0)
                && names_just(last, &found.range)
                && last.range.end == size,
            ..Index::default()
        };
        let mut room = index_room(size);
        let mut entries = survey.entries(found.handle())?;
        while entries.next().ok()? {
            room = room.checked_sub(entries.key().len() as u64)?;
            index.keys.push(entries.key().into());
            index.handles.push(BlockHandle::decode(entries.value())?.0);
        }
        Some(index)
    }

    /// How far block `i` has moved if it begins at `start`.
    fn shift(&self, i: usize, start: u64) -> u64 {
        let offset = self.handles.get(i).map_or(0, |handle| handle.offset);
        start.wrapping_sub(offset)
    }

    /// Whether the list in `found` is an index: a footer says so, or its sizes are those of most blocks before it, and it can be
    /// told from data whose values are handles.
    pub(super) fn is_likely(
        &self,
        survey: &Survey<'_>,
        found: &Found,
        clues: &Clues,
        must_have_room: bool,
    ) -> bool {
        if self.moved_by.is_some() {
            // Nothing else can be the index of an empty table.
            return !self.handles.is_empty() || survey.data().next().is_none();
        }
        let (matched, of) = self.near;
        (2 * matched >= of && of > 0 || fills_the_front(&self.handles))
            && self.stands_apart(survey, found, clues, must_have_room)
    }

    /// Whether the list in `found`, which no footer names, can be told from data whose values are handles by its keys or by
    /// what lies around it.
    ///
    /// Data would continue the keys of the block before it. An index does so only if that is the only one which it lists.
    /// Then either its key is what a writer makes of a block's last key, or metaindex, filter or a gap lies between the two; and
    /// no data comes right after it. `must_have_room`: whether anything after it shows that it is no index which has lost
    /// what was before it.
    fn stands_apart(
        &self,
        survey: &Survey<'_>,
        found: &Found,
        clues: &Clues,
        must_have_room: bool,
    ) -> bool {
        let Range { start, end } = self.range;
        let is_data = |found: &Found| found.data().is_some();
        let has_data_after = survey.frames.get(&end).is_some_and(is_data);
        if let ([key], [handle]) = (&self.keys[..], &self.handles[..])
            && (clues.has_block(handle.size, key) || is_separator(key) && clues.is_database)
        {
            return !has_data_after;
        }
        let before = survey.before(start).find_map(Found::data);
        let continues = before.zip(found.digest()).is_some_and(|(before, own)| {
            let ascend = before.ascends && own.ascends;
            ascend && survey.order().compare(&before.last, &own.first).is_lt()
        });
        let has_its_form = || {
            let has_restarts_only = found.digest().is_some_and(|own| own.has_restarts_only);
            has_restarts_only && !self.handles.contains(&found.handle())
        };
        if self.handles.len() > 1 && (!continues || self.fits && !has_data_after && has_its_form())
        {
            return true;
        }
        let before = survey.before(start).next();
        let before = before.filter(|before| before.range.end == start);
        let follows_data = before.is_some_and(is_data);
        let ends_a_table =
            |found: &Found| matches!(found.section, Section::Metaindex | Section::Footer);
        // Where no data is left, the listed block must at least have had room, unless bytes may be missing.
        let has_room = self.near.1 > 0
            || self.handles.len() > 1
            || self.handles.last().and_then(BlockHandle::end) <= Some(start)
            || before.map_or(start > 0, ends_a_table)
            || !must_have_room;
        // Data of another table, which came in front of it: its keys go before, or the front of its own is gone.
        let may_be_others = !continues || !survey.frames.contains_key(&0);
        let is_others = may_be_others && !must_have_room && fills_the_front(&self.handles);
        let has_more = survey.frames.contains_key(&end);
        has_room && !has_data_after && (!follows_data || is_others && has_more)
    }

    /// Whether its table seems to be stored in a value of a damaged block: it is whole, begins a stretch of frames with bytes
    /// before and after it that belong to none, and data comes after these.
    pub(super) fn is_inside_a_value(&self, survey: &Survey<'_>, runs: &[Range<u64>]) -> bool {
        let is_data = |found: &Found| found.data().is_some();
        let mut runs = runs.iter();
        runs.find(|run| run.contains(&self.range.start))
            .is_some_and(|run| {
                let after = survey.from(self.range.end);
                let mut in_run = after.take_while(|found| found.range.start < run.end);
                run.start > 0
                    && self.is_whole()
                    && self.places.iter().flatten().min() == Some(&run.start)
                    && !in_run.any(is_data)
                    && survey.from(run.end).any(is_data)
            })
    }

    /// The properties after it, where this crate writes them, or between it and its data. None of another table.
    pub(super) fn properties(&self, survey: &Survey<'_>) -> Option<Properties> {
        let listed: HashSet<&u64> = self.places.iter().flatten().collect();
        let is_beside = |found: &&Found| {
            !matches!(found.section, Section::Index | Section::Footer)
                && !listed.contains(&found.range.start)
                && found.data().is_none()
        };
        let after = survey.from(self.range.end).take_while(is_beside);
        let before = survey.before(self.range.start).take_while(is_beside);
        let mut beside = after.chain(before);
        beside.find_map(|found| properties_in(survey, found))
    }

    /// Decides where each block lies: in its place if it fits its index key, or wherever one is found that does. `is_other`:
    /// whether the table says that its order is not the builder's.
    pub(super) fn settle(&mut self, survey: &Survey<'_>, is_other: bool) {
        let keys = IndexKeys::of(self, survey.order());
        let places = self.places.iter();
        let mut blocks: Vec<Option<&Found>> = places
            .map(|place| survey.frames.get(place.as_ref()?))
            .collect();
        let mut is_ordered = !is_other && keys.in_order(&blocks);
        let mut together: HashMap<u64, usize> = HashMap::new();
        for (i, found) in blocks.iter().enumerate() {
            let by = found.map(|found| self.shift(i, found.range.start));
            by.into_iter()
                .for_each(|by| *together.entry(by).or_default() += 1);
        }
        for (i, block) in blocks.iter_mut().enumerate() {
            *block = block.filter(|found| {
                // One that moved by itself may lie inside another one.
                let by = self.shift(i, found.range.start);
                let is_alone = together.get(&by) == Some(&1);
                let is_placed = by == 0 || Some(by) == self.moved_by || !is_alone;
                // In another order, an index key may have been shortened: the block is no other's.
                is_placed && (keys.fits(i, found, is_ordered) || !is_ordered && !keys.names(found))
            });
        }
        let (extents, mut inside) = self.measure(survey, &blocks);
        // What is found shows how far those around it have moved, and so what lies inside another one.
        for _ in 0..2 {
            if !blocks.iter().all(Option::is_some) {
                self.search(survey, &keys, &inside, is_ordered, &mut blocks);
                inside = self.measure(survey, &blocks).1;
            }
        }
        // If hardly a block was in its place, those found elsewhere tell the order.
        is_ordered = !is_other && keys.in_order(&blocks);
        let places = blocks.iter().map(|found| Some(found.as_ref()?.range.start));
        self.places = places.collect();
        (self.extents, self.inside, self.is_ordered) = (extents, inside, is_ordered);
    }

    /// Takes what is missing from wherever a block fits. Of several, one by its last key, or the last before the index: what
    /// an older table left lies before that.
    fn search<'s>(
        &self,
        survey: &'s Survey<'_>,
        keys: &IndexKeys<'_>,
        inside: &[Range<u64>],
        is_ordered: bool,
        blocks: &mut [Option<&'s Found>],
    ) {
        let used = blocks.iter().flatten();
        let used: HashSet<u64> = used.map(|found| found.range.start).collect();
        let mut elsewhere: BTreeMap<usize, (_, &Found)> = BTreeMap::new();
        for found in survey.data() {
            let start = found.range.start;
            if used.contains(&start) || run_of(inside, found).is_some() {
                continue;
            }
            let place = keys.candidates(found).find_map(|i| {
                let is_missing = blocks.get(i).is_some_and(Option::is_none);
                let rank = (keys.tests(i, found).0, start < self.range.start, start);
                let is_better = elsewhere.get(&i).is_none_or(|(other, _)| rank > *other);
                (is_missing && is_better && keys.fits(i, found, is_ordered)).then_some((i, rank))
            });
            elsewhere.extend(place.map(|(i, rank)| (i, (rank, found))));
        }
        for (i, block) in blocks.iter_mut().enumerate() {
            *block = block.or(elsewhere.get(&i).map(|(_, found)| *found));
        }
    }

    /// Finds where the listed blocks should lie: as far from their handles as the block before them, or else the one after
    /// them. If both are as far, what lies inside of one that is missing is known, too: else bytes were lost or added.
    fn measure(
        &self,
        survey: &Survey<'_>,
        blocks: &[Option<&Found>],
    ) -> (Vec<Option<Range<u64>>>, Vec<Range<u64>>) {
        let shift = |i: usize| {
            let found = blocks.get(i).copied().flatten()?;
            Some(self.shift(i, found.range.start))
        };
        let from_end = || (0..blocks.len()).rev();
        let mut by = self.moved_by.or_else(|| from_end().find_map(shift));
        let after = from_end().map(|i| {
            by = shift(i).or(by);
            by
        });
        let after: Vec<Option<u64>> = after.collect();
        let (mut before, mut missing) = (None, BTreeMap::new());
        let handles = self.handles.iter().zip(after.into_iter().rev()).enumerate();
        let extents = handles.map(|(i, (handle, after))| {
            before = shift(i).or(before);
            let by = before.or(after);
            let extent = moved(*handle, by?).filter(|extent| extent.end <= survey.file().size)?;
            if shift(i).is_none() && after == by {
                missing.insert(extent.start, extent.end);
            }
            Some(extent)
        });
        let extents = extents.collect();
        let mut inside = survey.runs();
        // Before a value come lengths and a key, and after it the restarts.
        inside.retain(|run| {
            let around = missing.range(..run.start).next_back();
            around.is_some_and(|(_, end)| run.end < *end)
        });
        (extents, inside)
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.places.iter().all(Option::is_some)
    }

    /// Whether a block lies inside one that is missing.
    pub(super) fn is_inside_another(&self, found: &Found) -> bool {
        run_of(&self.inside, found).is_some()
    }
}

/// Whether `found` is a footer that names an index at `range`.
fn names_just(found: &Found, range: &Range<u64>) -> bool {
    let Content::Footer(footer) = &found.content else {
        return false;
    };
    moved(footer.index, 0).as_ref() == Some(range)
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

/// The keys and the sizes of an index, to find out which of its blocks a block is.
struct IndexKeys<'i> {
    index: &'i Index,
    order: &'i Order,
    by_key: HashMap<&'i [u8], usize>,
    /// Of sizes that one block has.
    by_size: HashMap<u64, Option<usize>>,
}

impl<'i> IndexKeys<'i> {
    fn of(index: &'i Index, order: &'i Order) -> IndexKeys<'i> {
        let keys = index.keys.iter().enumerate();
        let mut by_size = HashMap::new();
        for (i, handle) in index.handles.iter().enumerate() {
            by_size
                .entry(handle.size)
                .and_modify(|one| *one = None)
                .or_insert(Some(i));
        }
        IndexKeys {
            index,
            order,
            by_key: keys.map(|(i, key)| (&**key, i)).collect(),
            by_size,
        }
    }

    /// Which blocks of its size a block may be: by its last key, in any order and in the builder's, or as the only one of
    /// that size.
    fn candidates(&self, found: &Found) -> impl Iterator<Item = usize> {
        let size = found.handle().size;
        let last = found.digest().map(|digest| &*digest.last);
        let between = |last: &[u8]| {
            self.index
                .keys
                .partition_point(|key| self.order.compare(key, last).is_lt())
        };
        let by_last = last.and_then(|last| self.by_key.get(last).copied());
        let between = last.map(between).filter(|i| Some(*i) != by_last);
        let by_size = self.by_size.get(&size).copied().flatten();
        let by_size = by_size.filter(|i| ![by_last, between].contains(&Some(*i)));
        let all = [by_last, between, by_size].into_iter().flatten();
        all.filter(move |i| {
            self.index
                .handles
                .get(*i)
                .is_some_and(|handle| handle.size == size)
        })
    }

    /// Whether the last key of a block is the index key of block `i`, and whether the block lies between that and the one before.
    fn tests(&self, i: usize, found: &Found) -> (bool, bool) {
        let (Some(key), Some(digest)) = (self.index.keys.get(i), found.digest()) else {
            return (false, false);
        };
        let before = i
            .checked_sub(1)
            .and_then(|before| self.index.keys.get(before));
        let is_after = |before| self.order.compare(before, &digest.first).is_lt();
        let reaches = |end: &[u8]| self.order.compare(end, key).is_le();
        let is_between = before.is_none_or(|before| is_after(before))
            && reaches(&digest.first)
            && reaches(&digest.last);
        (*digest.last == **key, is_between)
    }

    /// Whether a block fits its index key, in the builder's order or in another one.
    fn fits(&self, i: usize, found: &Found, is_ordered: bool) -> bool {
        let (is_last, is_between) = self.tests(i, found);
        is_last || is_ordered && is_between
    }

    /// Whether the last key of a block is an index key.
    fn names(&self, found: &Found) -> bool {
        found
            .digest()
            .is_some_and(|digest| self.by_key.contains_key(&*digest.last))
    }

    /// Whether the table seems to be in the builder's order: whether most blocks fit, each at whichever place is its.
    fn in_order(&self, blocks: &[Option<&Found>]) -> bool {
        let (mut all, mut only_last, mut only_between, mut neither) = (0, 0, 0, 0);
        let mut misordered = 0;
        for found in blocks.iter().flatten() {
            let (is_last, is_between) = self
                .candidates(found)
                .next()
                .map_or((false, false), |i| self.tests(i, found));
            all += 1;
            only_last += usize::from(is_last && !is_between);
            only_between += usize::from(is_between && !is_last);
            neither += usize::from(!is_last && !is_between);
            misordered += usize::from(found.digest().is_some_and(|digest| !digest.ascends));
        }
        // Where index keys were shortened in the builder's order, keys out of order are a fault of the writer.
        let is_evident = 2 * only_between > all && 2 * misordered <= all;
        self.index
            .keys
            .is_sorted_by(|a, b| self.order.compare(a, b).is_lt())
            && only_last <= neither
            && 2 * neither <= all
            && (misordered == 0 || is_evident)
    }
}
