//! An index that was found, and where the blocks lie that it lists.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::found::{Content, Found};
use super::kinds::Kinds;
use super::survey::Survey;
use crate::comparator::Order;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::page;

/// An index that lists the data blocks of a table.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) range: Range<u64>,
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) handles: Vec<BlockHandle>,
    /// Where each listed block begins, by how far it may have moved: there is a block of its size.
    pub(super) places: Vec<Option<u64>>,
    /// How far the table has moved, if a footer tells.
    moved_by: Option<u64>,
    /// Whether the footer is right where the file ends, and leads to it.
    pub(super) is_in_place: bool,
}

impl Index {
    /// The list in `found` as an index, if it is one. `moved_by`: how far it has moved, if a footer names it. `is_divided`: whether
    /// an `about.pieces` divides it.
    pub(super) fn of(
        survey: &Survey<'_>,
        kinds: &Kinds,
        found: &Found,
        moved_by: Option<u64>,
        is_divided: bool,
        must_have_room: bool,
    ) -> Option<Index> {
        let mut index = Index::read(survey, found, moved_by)?;
        let (matched, of) = index.locate(survey, kinds);
        let is_likely = 2 * matched >= of && of > 0 || fills_the_front(&index.handles);
        let is_usable = match moved_by {
            _ if is_divided => true,
            // Nothing else can be the index of an empty table.
            Some(_) => {
                !index.handles.is_empty()
                    || !survey
                        .frames
                        .values()
                        .any(|found| kinds.data(found).is_some())
            }
            None => is_likely && index.stands_apart(survey, kinds, found, of == 0, must_have_room),
        };
        is_usable.then_some(index)
    }

    /// Reads keys and handles. `None` if a value is no handle, or the keys take more memory than a sound table's would.
    fn read(survey: &Survey<'_>, found: &Found, moved_by: Option<u64>) -> Option<Index> {
        // A footer in the middle of the file is that of another table.
        let last = survey.before(survey.file.size).next()?;
        let is_in_place = match &last.content {
            Content::Footer(footer) => {
                last.range.end == survey.file.size && moved(footer.index, 0)? == found.range
            }
            _ => false,
        };
        let mut index = Index {
            range: found.range.clone(),
            keys: Vec::new(),
            handles: Vec::new(),
            places: Vec::new(),
            moved_by,
            is_in_place: moved_by == Some(0) && is_in_place,
        };
        let mut room = super::copy::index_room(survey.file.size);
        let mut cursor = BlockCursor::new(survey.block(found.handle())?);
        while cursor.next().ok()? {
            room = room.checked_sub(cursor.key().len() as u64)?;
            index.keys.push(cursor.key().into());
            index.handles.push(BlockHandle::decode(cursor.value())?.0);
        }
        Some(index)
    }

    /// Finds the listed blocks by how far they have moved: as far as a footer tells, or as many blocks before the index say by
    /// their keys and sizes. Returns how many of the blocks nearest to the index, as many as it lists, are among them, and
    /// of how many.
    fn locate(&mut self, survey: &Survey<'_>, kinds: &Kinds) -> (usize, usize) {
        let keys = IndexKeys::of(self, survey.order);
        // The table ends where its index begins. Before a footer lies another table.
        let before = survey.before(self.range.start);
        let is_footer = |found: &&Found| matches!(found.content, Content::Footer(_));
        let footer = survey.before(self.range.start).find(is_footer);
        let begin = footer.map_or(0, |footer| footer.range.end);
        let own = before.take_while(|found| found.range.start >= begin);
        let own = own.filter(|found| found.digest().is_some());
        let own: Vec<&Found> = own.take(4 * self.handles.len() + 64).collect();
        // A size alone says little: two blocks have to agree.
        let mut votes: HashMap<u64, usize> = HashMap::from([(0, 2)]);
        for found in own.iter().filter(|found| kinds.data(found).is_some()) {
            for i in keys.candidates(found) {
                let handle = self.handles.get(i).copied().unwrap_or_default();
                let by = found.range.start.wrapping_sub(handle.offset);
                *votes.entry(by).or_default() += 1 + usize::from(keys.fits(i, found, true));
            }
        }
        votes.retain(|_, votes| *votes > 1);
        let mut shifts: Vec<(u64, usize)> = votes.into_iter().collect();
        shifts.sort_unstable_by_key(|(by, votes)| Reverse((*votes, *by as i64)));
        let shifts = shifts.into_iter().map(|(by, _)| by);
        let shifts = self.moved_by.into_iter().chain(shifts);
        let mut places = vec![None; self.handles.len()];
        let mut used = HashSet::new();
        for by in shifts.take(MOST_SHIFTS) {
            for (place, handle) in places.iter_mut().zip(&self.handles) {
                let found = moved(*handle, by).and_then(|range| survey.at(&range));
                let found = found.filter(|found| {
                    // A block cannot lie where its own index does.
                    place.is_none()
                        && found.range.start != self.range.start
                        && found.range.start >= begin
                        && (kinds.data(found).is_some()
                            || Some(by) == self.moved_by && found.digest().is_some())
                });
                if let Some(found) = found.filter(|found| used.insert(found.range.start)) {
                    *place = Some(found.range.start);
                }
            }
        }
        self.places = places;
        let is_used = |found: &&&Found| used.contains(&found.range.start);
        let near = own
            .iter()
            .filter(|found| is_used(found) || kinds.data(found).is_some());
        let near: Vec<_> = near.take(self.handles.len()).collect();
        (
            near.iter().filter(|found| is_used(found)).count(),
            near.len(),
        )
    }

    /// Whether the list in `found`, which no footer names, can be told from data whose values are handles by its keys or by
    /// what lies around it.
    ///
    /// Data would continue the keys of the block before it. An index does so only if that is the only one which it lists.
    /// Then either its key is what a writer makes of that block's last key, or metaindex, filter or a gap lies between the two; and
    /// no data comes right after it. `must_have_room`: whether anything after it shows that it is no index which has lost
    /// what was before it.
    fn stands_apart(
        &self,
        survey: &Survey<'_>,
        kinds: &Kinds,
        found: &Found,
        has_no_data: bool,
        must_have_room: bool,
    ) -> bool {
        let Range { start, end } = self.range;
        let is_data = |found: &Found| kinds.data(found).is_some();
        let after = survey.frames.get(&end);
        if self.lists_just_the_one_before(survey) {
            return !after.is_some_and(is_data);
        }
        let mut data_before = survey.before(start).filter_map(|found| kinds.data(found));
        let continues = data_before
            .next()
            .zip(found.digest())
            .is_some_and(|(before, own)| {
                let ascend = before.ascends && own.ascends;
                ascend && survey.order.compare(&before.last, &own.first).is_lt()
            });
        if self.handles.len() > 1 && !continues {
            return true;
        }
        let before = survey.before(start).next();
        let before = before.filter(|before| before.range.end == start);
        // Where no data is left, the listed block must at least have had room, unless bytes may be missing.
        let may_lack_bytes = before.map_or(start > 0, |before| kinds.ends_a_table(before));
        let has_room = !has_no_data
            || self.handles.len() > 1
            || self.handles.last().and_then(BlockHandle::end) <= Some(start)
            || may_lack_bytes
            || !must_have_room && after.is_none_or(|after| kinds.ends_a_table(after));
        has_room && !before.is_some_and(is_data) && !after.is_some_and(is_data)
    }

    /// Whether the only block that it lists is the one right before it, and its key what a writer makes of that block's last key.
    fn lists_just_the_one_before(&self, survey: &Survey<'_>) -> bool {
        let ([key], [Some(place)]) = (&self.keys[..], &self.places[..]) else {
            return false;
        };
        let listed = survey.frames.get(place);
        let listed = listed.filter(|listed| listed.range.end == self.range.start);
        listed.and_then(Found::digest).is_some_and(|listed| {
            let mut successor = listed.last.to_vec();
            let comparator = survey.order.comparator();
            comparator.find_short_successor(&mut successor);
            [&listed.last[..], &successor].contains(&&key[..])
        })
    }
}

/// Most distances by which blocks are looked for: one for each place where bytes were lost or added.
const MOST_SHIFTS: usize = 16;

/// Where the frame at `handle` lies if it has moved by so many bytes, counted round and round.
pub(super) fn moved(handle: BlockHandle, by: u64) -> Option<Range<u64>> {
    let offset = handle.offset.wrapping_add(by);
    let end = BlockHandle { offset, ..handle }.end()?;
    Some(offset..end)
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

/// The blocks that an index lists, each from its place or from where one was found that fits.
pub(super) struct Placement<'s> {
    pub(super) blocks: Vec<Option<&'s Found>>,
    /// Where each should lie, unless that is not in the file any more.
    pub(super) extents: Vec<Option<Range<u64>>>,
    /// The stretches of frames that lie inside a block that is missing: they were parts of its values.
    inside: Vec<Range<u64>>,
    /// Whether the blocks are in the builder's order.
    pub(super) is_ordered: bool,
}

impl<'s> Placement<'s> {
    /// `is_other`: whether the table says that its order is not the builder's.
    pub(super) fn of(
        survey: &'s Survey<'_>,
        kinds: &Kinds,
        index: &Index,
        is_other: bool,
    ) -> Placement<'s> {
        let keys = IndexKeys::of(index, survey.order);
        let places = index.places.iter();
        let mut blocks: Vec<Option<&Found>> = places
            .map(|place| survey.frames.get(place.as_ref()?))
            .collect();
        let is_ordered = !is_other && keys.in_order(&blocks);
        let moved_by = |i: usize| {
            Some(
                index
                    .places
                    .get(i)?
                    .as_ref()?
                    .wrapping_sub(index.handles.get(i)?.offset),
            )
        };
        let mut moved_together: HashMap<Option<u64>, usize> = HashMap::new();
        (0..blocks.len()).for_each(|i| *moved_together.entry(moved_by(i)).or_default() += 1);
        for (i, block) in blocks.iter_mut().enumerate() {
            // In another order, an index key may have been shortened: the block is no other's.
            *block = block.filter(|found| {
                keys.fits(i, found, is_ordered) || !is_ordered && !keys.names(found)
            });
        }
        // One that moved by itself may lie inside another one.
        let alone: Vec<Option<&Found>> = blocks
            .iter_mut()
            .enumerate()
            .map(|(i, block)| {
                let by = moved_by(i);
                let is_alone =
                    by != Some(0) && by != index.moved_by && moved_together.get(&by) == Some(&1);
                block.take_if(|_| is_alone)
            })
            .collect();
        let mut placement = Placement {
            blocks,
            extents: Vec::new(),
            inside: Vec::new(),
            is_ordered,
        };
        placement.measure(survey, index);
        for (i, found) in alone.into_iter().enumerate() {
            let found = found.filter(|found| !placement.is_inside_another(found));
            if let (Some(block), Some(found)) = (placement.blocks.get_mut(i), found) {
                *block = Some(found);
            }
        }
        placement.measure(survey, index);
        if !placement.is_whole() {
            placement.search(survey, kinds, index, &keys);
            // If hardly a block was in its place, those found elsewhere tell the order.
            placement.is_ordered = !is_other && keys.in_order(&placement.blocks);
        }
        placement
    }

    /// Takes what is missing from wherever a block fits. Of several, one by its last key, or the last before the index: what
    /// an older table left lies before that.
    fn search(
        &mut self,
        survey: &'s Survey<'_>,
        kinds: &Kinds,
        index: &Index,
        keys: &IndexKeys<'_>,
    ) {
        let used = self.blocks.iter().flatten();
        let used: HashSet<u64> = used.map(|found| found.range.start).collect();
        let mut elsewhere: HashMap<usize, (_, &Found)> = HashMap::new();
        for found in survey.frames.values() {
            let start = found.range.start;
            if used.contains(&start) || kinds.data(found).is_none() || self.is_inside_another(found)
            {
                continue;
            }
            let place = keys.candidates(found).find_map(|i| {
                let is_missing = self.blocks.get(i).is_some_and(Option::is_none);
                let rank = (keys.tests(i, found).0, start < index.range.start, start);
                let is_better = elsewhere.get(&i).is_none_or(|(other, _)| rank > *other);
                (is_missing && is_better && keys.fits(i, found, self.is_ordered))
                    .then_some((i, rank))
            });
            if let Some((i, rank)) = place {
                elsewhere.insert(i, (rank, found));
            }
        }
        for (i, (_, found)) in elsewhere {
            if let Some(block) = self.blocks.get_mut(i) {
                *block = Some(found);
            }
        }
    }

    /// Finds where the listed blocks should lie: as far from their handles as the block before them, or else the one after
    /// them. If both are as far, what lies inside of one that is missing is known, too: else bytes were lost or added.
    fn measure(&mut self, survey: &Survey<'_>, index: &Index) {
        let pairs = || index.handles.iter().zip(&self.blocks);
        let shift = |(handle, found): (&BlockHandle, &Option<&Found>)| {
            found.map(|found| found.range.start.wrapping_sub(handle.offset))
        };
        let mut by = index.moved_by.or_else(|| pairs().rev().find_map(shift));
        let after = pairs().rev().map(|pair| {
            by = shift(pair).or(by);
            by
        });
        let mut after: Vec<Option<u64>> = after.collect();
        after.reverse();
        let (mut before, mut missing) = (None, BTreeMap::new());
        let extents = pairs().zip(after).map(|(pair, after)| {
            before = shift(pair).or(before);
            let by = before.or(after);
            let extent = moved(*pair.0, by?).filter(|extent| extent.end <= survey.file.size)?;
            if pair.1.is_none() && after == by {
                missing.insert(extent.start, extent.end);
            }
            Some(extent)
        });
        self.extents = extents.collect();
        self.inside = survey.runs();
        // Before a value come lengths and a key, and after it the restarts.
        self.inside.retain(|run| {
            let around = missing.range(..run.start).next_back();
            around.is_some_and(|(_, end)| run.end < *end)
        });
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.blocks.iter().all(Option::is_some)
    }

    /// Whether a block lies inside one that is missing.
    pub(super) fn is_inside_another(&self, found: &Found) -> bool {
        run_of(&self.inside, found).is_some()
    }
}

/// The one of `runs`, which ascend, that a frame belongs to.
pub(super) fn run_of<'r>(runs: &'r [Range<u64>], found: &Found) -> Option<&'r Range<u64>> {
    let after = runs.partition_point(|run| run.end <= found.range.start);
    runs.get(after).filter(|run| run.start <= found.range.start)
}
