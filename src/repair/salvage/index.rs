//! An index that was found, and where the blocks lie that it lists.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;

use super::copy::index_room;
use super::found::{Digest, Found};
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
    /// The block. Until all is [settled](Index::settle): that in its place.
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

/// Frames around an index of one block among which that block is looked for.
const NEAR: usize = 64;

fn is_data(found: &Found) -> bool {
    found.data().is_some()
}

impl<'s> Index<'s> {
    /// Reads `list`, and finds its blocks where a footer says that they have moved to, or where they were written. `None` if a
    /// value is no handle, or the keys take more memory than a sound table's would.
    pub(super) fn locate(
        survey: &'s Survey<'s>,
        list: &'s Found,
        moved_by: Option<u64>,
    ) -> Option<Index<'s>> {
        // A footer in the middle of the file is that of another table.
        let footer = survey.file.footer();
        let is_last = footer.is_ok_and(|footer| footer.index == list.handle());
        // The table ends where its index begins. Before a footer lies another table.
        let mut before = survey.before(list.range.start);
        let footer = before.find(|found| found.section.get() == Section::Footer);
        let begin = footer.map_or(0, |footer| footer.range.end);
        // A block cannot lie where its own index does.
        let is_own = |found: &&Found| found.range != list.range && found.range.start >= begin;
        let (mut listed, mut by_key) = (Vec::new(), HashMap::new());
        let mut room = index_room(survey.file.size);
        let mut entries = survey.entries(list.handle())?;
        while entries.next().ok()? {
            room = room.checked_sub(entries.key().len() as u64)?;
            let key = Bytes::copy_from_slice(entries.key());
            let (handle, _) = BlockHandle::decode(entries.value())?;
            let at = |by| survey.at(&moved(handle, by)?).filter(is_own);
            let named = moved_by
                .and_then(at)
                .filter(|found| found.digest().is_some());
            by_key.insert(key.clone(), listed.len());
            listed.push(Listed {
                key,
                handle,
                found: named.or_else(|| at(0).filter(|found| is_data(found))),
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
            is_in_place: moved_by == Some(0) && is_last,
            is_ordered: false,
        })
    }

    /// Whether the list is an index: a footer says so, or its blocks follow each other from the front of a file, and it can be
    /// told from data whose values are handles.
    pub(super) fn is_likely(&self, must_have_room: bool) -> bool {
        if self.moved_by.is_some() {
            // Nothing else can be the index of an empty table.
            return !self.listed.is_empty() || self.survey.data().next().is_none();
        }
        let fills_the_front = self.list.digest().is_some_and(|own| own.fills_the_front);
        fills_the_front && self.stands_apart(must_have_room)
    }

    /// Whether the list, which no footer names, can be told from data whose values are handles by its keys or by what lies
    /// around it.
    ///
    /// Data would continue the keys of the block before it. An index does so only if that is the only one which it lists.
    /// Then either its key is what a writer makes of the last key of a block nearby, or metaindex, filter or a gap lies between
    /// the two; and no data comes right after it, which a longer one that does not continue the keys may have.
    /// `must_have_room`: whether anything after it shows that it is no index which has lost what was before it.
    fn stands_apart(&self, must_have_room: bool) -> bool {
        let survey = self.survey;
        let Range { start, end } = self.list.range;
        let after = survey.frames.get(&end);
        let is_last = !after.is_some_and(is_data);
        let before = survey.before(start).find(|found| is_data(found));
        let follows_data = before.is_some_and(|before| before.range.end == start);
        let keys = before.and_then(Found::data).zip(self.list.digest());
        let continues = keys.is_some_and(|(before, own)| {
            let ascend = before.ascends && own.ascends;
            ascend && survey.order.compare(&before.last, &own.first).is_lt()
        });
        let [only] = &self.listed[..] else {
            let has_its_form = self.list.digest().is_some_and(|own| own.has_restarts_only);
            let mut blocks = self.listed.iter().enumerate();
            let fit = |(i, listed): (usize, &Listed<'s>)| {
                listed.found.is_none_or(|found| self.fits(i, found, true))
            };
            return !continues || is_last && (!follows_data || has_its_form && blocks.all(fit));
        };
        let is_its = |block: &Digest| {
            let mut shortened = block.last.clone();
            survey
                .order
                .comparator()
                .find_short_successor(&mut shortened);
            only.key == block.last || only.key == shortened
        };
        let near = survey.before(start).take(NEAR);
        let near = near.chain(survey.from(end).take(NEAR));
        let near = near.filter(|found| found.handle().size == only.handle.size);
        // None of a database's data has the largest sequence number.
        let is_shortened = survey.order.shortens_filter_keys() && is_separator(&only.key);
        let has_its = is_shortened || near.filter_map(Found::data).any(is_its);
        // Where no data is left, the listed block must at least have had room, unless bytes may be missing.
        let ends_a_table =
            |found: &Found| matches!(found.section.get(), Section::Metaindex | Section::Footer);
        let next_to = survey.before(start).next();
        let next_to = next_to.filter(|found| found.range.end == start);
        let has_room = only.handle.end() <= Some(start)
            || next_to.map_or(start > 0, ends_a_table)
            || !must_have_room;
        // Data of another table, which came in front of it: its keys go before, or the front of its own is gone.
        let is_others = !must_have_room && (!continues || !survey.frames.contains_key(&0));
        is_last && (has_its || has_room && (!follows_data || is_others && after.is_some()))
    }

    /// Whether its table seems to be stored in a value of a damaged block: it is whole, begins a stretch of frames with bytes
    /// before and after it that belong to none, and data comes after these.
    pub(super) fn is_inside_a_value(&self, runs: &[Range<u64>]) -> bool {
        let survey = self.survey;
        run_of(runs, self.list).is_some_and(|run| {
            let after = survey.from(self.list.range.end);
            let mut in_run = after.take_while(|found| found.range.start < run.end);
            let starts = self
                .listed
                .iter()
                .map(|listed| Some(listed.found?.range.start));
            run.start > 0
                && starts.min() == Some(Some(run.start))
                && !in_run.any(is_data)
                && survey.from(run.end).any(is_data)
        })
    }

    /// Decides where each block lies: in its place if it fits its index key, or wherever one is found that does. `is_other`:
    /// whether the table says that its order is not the builder's.
    pub(super) fn settle(&mut self, is_other: bool) {
        self.is_ordered = !is_other && self.is_in_order();
        let kept = self.listed.iter().enumerate().map(|(i, listed)| {
            let found = listed.found?;
            // In another order, an index key may have been shortened: the block is no other's.
            let names_other = |own: &Digest| self.by_key.contains_key(&own.last[..]);
            let names_other = || found.digest().is_some_and(names_other);
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
            self.search();
            self.measure();
        }
        // If hardly a block was in its place, those found elsewhere tell the order.
        self.is_ordered = !is_other && self.is_in_order();
    }

    /// Takes what is missing from wherever a block fits. Of several, one by its last key, or the last before the index: what
    /// an older table left lies before that.
    fn search(&mut self) {
        let used = self.listed.iter().filter_map(|listed| listed.found);
        let used: HashSet<u64> = used.map(|found| found.range.start).collect();
        let mut elsewhere: BTreeMap<usize, (_, &Found)> = BTreeMap::new();
        for found in self.survey.data() {
            let start = found.range.start;
            if used.contains(&start) || self.is_inside_another(found) {
                continue;
            }
            let place = self.candidates(found).find_map(|(i, listed)| {
                let rank = (self.tests(i, found).0, start < self.list.range.start, start);
                let is_better = elsewhere.get(&i).is_none_or(|(other, _)| rank > *other);
                let fits = is_better && self.fits(i, found, self.is_ordered);
                (listed.found.is_none() && fits).then_some((i, (rank, found)))
            });
            elsewhere.extend(place);
        }
        for (i, (_, found)) in elsewhere {
            self.listed
                .get_mut(i)
                .into_iter()
                .for_each(|listed| listed.found = Some(found));
        }
    }

    /// Finds where the missing blocks should lie: as far from their handles as the block before them, or else the one after them,
    /// or else the index. If the one after them is as far, what lies inside of them is known, too: else bytes were lost or added.
    fn measure(&mut self) {
        let size = self.survey.file.size;
        let mut by = self.listed.iter().find_map(Listed::shift).or(self.moved_by);
        for listed in &mut self.listed {
            by = listed.shift().or(by);
            if listed.found.is_none() {
                let extent = by.and_then(|by| moved(listed.handle, by));
                listed.extent = extent.filter(|extent| extent.end <= size);
            }
        }
        let mut missing = BTreeMap::new();
        by = self.moved_by.or(by);
        for listed in self.listed.iter().rev() {
            by = listed.shift().or(by);
            let extent = by.and_then(|by| moved(listed.handle, by));
            if listed.found.is_none() && extent == listed.extent {
                missing.extend(extent.map(|extent| (extent.start, extent.end)));
            }
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
        let size = found.handle().size;
        let last = found.digest().map(|digest| &digest.last[..]);
        let is_before = |own: &Listed<'_>| {
            last.is_some_and(|last| self.survey.order.compare(&own.key, last).is_lt())
        };
        let by_last = last.and_then(|last| self.by_key.get(last).copied());
        let between = last.map(|_| self.listed.partition_point(is_before));
        let between = between.filter(|i| Some(*i) != by_last);
        let all = [by_last, between].into_iter().flatten();
        let all = all.filter_map(|i| Some((i, self.listed.get(i)?)));
        all.filter(move |(_, listed)| listed.handle.size == size)
    }

    /// Whether the last key of a block is the index key of block `i`, and whether the block lies between that and the one before.
    fn tests(&self, i: usize, found: &Found) -> (bool, bool) {
        let (Some(Listed { key, .. }), Some(digest)) = (self.listed.get(i), found.digest()) else {
            return (false, false);
        };
        let before = i.checked_sub(1).and_then(|before| self.listed.get(before));
        let is_after =
            |own: &Listed<'_>| self.survey.order.compare(&own.key, &digest.first).is_lt();
        let ends_before = self.survey.order.compare(&digest.last, key).is_le();
        (
            digest.last == *key,
            before.is_none_or(is_after) && ends_before,
        )
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
        for found in self.listed.iter().filter_map(|listed| listed.found) {
            let place = self.candidates(found).next();
            let (is_last, is_between) = place.map_or((false, false), |(i, _)| self.tests(i, found));
            all += 1;
            only_last += usize::from(is_last && !is_between);
            only_between += usize::from(is_between && !is_last);
            neither += usize::from(!is_last && !is_between);
            misordered += usize::from(found.digest().is_some_and(|digest| !digest.ascends));
        }
        let keys = self.listed.iter().map(|listed| &listed.key);
        // Where index keys were shortened in the builder's order, keys out of order are a fault of the writer.
        keys.is_sorted_by(|a, b| self.survey.order.compare(a, b).is_lt())
            && only_last <= neither
            && (misordered == 0 || 2 * only_between > all)
    }
}
