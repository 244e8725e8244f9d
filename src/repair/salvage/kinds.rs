//! Tells the frames that were found apart: data, metadata, index.
//!
//! - What a usable index lists is data.
//! - Another block is *metadata* if it decodes as properties, or if its keys are names of a metaindex and its values are
//!   handles that lead to no data. User keys may begin with `filter.`, and user values may look like handles.
//! - An *index* lists handles whose sizes, in order, are those of the data blocks before it. A footer may name it, but need
//!   not: it is usable wherever it lies, and in whatever order its keys are.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::copy::index_room;
use super::found::{Content, Digest, Found, handle_of};
use super::survey::Survey;
use crate::error::Section;
use crate::format::block_cursor::BlockCursor;
use crate::format::footer::BlockHandle;
use crate::format::page;
use crate::format::properties::Properties;

/// How the names begin under which most tables have parts.
const STOCK: [&[u8]; 3] = [b"about.", b"filter.leveldb.", b"filter.leveltable."];

/// Most parts of a table that are looked for by its metaindex.
pub(super) const MOST_PARTS: usize = 16;

/// The frames by kind.
pub(super) struct Kinds {
    /// The index of the table to copy: of several whole ones, the last in the file.
    pub(super) index: Option<Index>,
    /// The frames that hold no data, by their offsets.
    pub(super) metadata: HashMap<u64, Section>,
    /// What the table says of itself, if it is clear which of several tables it is.
    pub(super) properties: Option<Properties>,
}

/// An index that lists the data blocks of a table.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) range: Range<u64>,
    pub(super) handles: Vec<BlockHandle>,
    pub(super) keys: Vec<Box<[u8]>>,
    /// Where each listed block begins in the file, by its size and the blocks around it.
    pub(super) places: Vec<Option<Place>>,
    /// How far the table has moved, if a footer tells.
    pub(super) moved_by: Option<u64>,
    /// Whether the footer is right where the file ends, and leads to it.
    pub(super) is_in_place: bool,
}

/// Where a listed block begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u64,
    /// Whether only its size speaks for it: it is as far from its handle as no block beside it.
    pub(super) is_guess: bool,
}

/// Which blocks have the sizes that handles state, in order.
struct Alignment {
    places: Vec<Option<Place>>,
    /// How many of the blocks nearest to the index, as many as it lists, are among them.
    matched: usize,
    of: usize,
}

impl Kinds {
    pub(super) fn of(survey: &Survey<'_>) -> Kinds {
        let mut kinds = Kinds {
            index: None,
            metadata: HashMap::new(),
            properties: None,
        };
        let named = kinds.set_aside_named(survey);
        kinds.set_aside_metadata(survey, &named);
        let runs = survey.runs();
        let (mut listed, mut has_data_after, mut inside) = (HashSet::new(), false, None);
        for found in survey.before(survey.file.size) {
            let start = found.range.start;
            let by_footer = named.get(&start).copied();
            let is_list = found.digest().is_some_and(|digest| digest.is_list);
            let may_be_index = is_list && !kinds.metadata.contains_key(&start);
            if (by_footer.is_some() || may_be_index)
                && !listed.contains(&start)
                && let Some(mut index) = kinds.as_index(survey, found, by_footer, has_data_after)
            {
                kinds.metadata.insert(start, Section::Index);
                listed.extend(index.starts());
                let is_last = kinds.index.is_none() && inside.is_none();
                let is_usable = kinds.index.is_none() && index.read_keys(survey);
                let is_inside = is_inside_a_value(survey, &index, &runs);
                if is_usable && is_last && !is_inside {
                    kinds.choose(survey, index, &listed);
                } else if is_usable && is_last {
                    inside = Some((index, listed.clone()));
                } else if is_usable && !is_inside {
                    // Not inside a value of this one, which comes before it.
                    if let Some((last, listed)) = inside.take() {
                        kinds.choose(survey, last, &listed);
                    }
                }
            }
            has_data_after |= kinds.data(found).is_some();
        }
        // An index that lists nothing of use is no data either, if a footer names it.
        for start in named.keys() {
            kinds.metadata.entry(*start).or_insert(Section::Index);
        }
        if kinds.index.is_none() {
            // Those of the file, if they are the only ones.
            let mut all = survey
                .frames
                .values()
                .filter_map(|found| kinds.properties_in(survey, found));
            kinds.properties = all.next().filter(|_| all.next().is_none());
        }
        kinds
    }

    fn choose(&mut self, survey: &Survey<'_>, index: Index, listed: &HashSet<u64>) {
        self.properties = self.properties_beside(survey, &index, listed);
        self.index = Some(index);
    }

    /// Sets aside all that holds no data by itself, and metaindexes by what their handles lead to.
    fn set_aside_metadata(&mut self, survey: &Survey<'_>, named: &HashMap<u64, u64>) {
        // The sizes of the parts that hold no data, of which a metaindex comes after those that it names.
        let mut parts: HashSet<u64> = HashSet::new();
        let ranges = |is_one: fn(&Found) -> bool| -> Vec<Range<u64>> {
            let found = survey.frames.values().filter(|found| is_one(found));
            found.map(|found| found.range.clone()).collect()
        };
        let (data, plain) = (ranges(is_data), ranges(is_plain));
        // Whether there was a gap since the last block of data.
        let (mut has_gap, mut end) = (false, 0);
        for found in survey.frames.values() {
            let start = found.range.start;
            has_gap |= start != end;
            end = found.range.end;
            parts.extend((!is_data(found)).then(|| found.len()));
            // What a stock name leads to may have moved, so that other metadata, or itself, is there.
            let data = match found.data() {
                Some(digest) if STOCK.iter().any(|name| digest.first.starts_with(name)) => &plain,
                _ => &data,
            };
            // Where it says or, in a file that lost or gained bytes, elsewhere.
            let leads_to_no_data = |part: &BlockHandle| {
                let Some(place) = moved(*part, 0) else {
                    return false;
                };
                let is_data = data.binary_search_by_key(&place.start, |data| data.start);
                let is_data = is_data.is_ok_and(|i| data.get(i) == Some(&place));
                let has_part = || parts.contains(&(place.end - place.start));
                !is_data && (has_gap || has_part() || is_free(data, &place))
            };
            let section = match &found.content {
                Content::Filter => Section::Filter,
                Content::Footer(_) => Section::Footer,
                Content::Entries(digest) if digest.entries == 0 => Section::Metaindex,
                Content::Entries(digest) if digest.is_properties => Section::Properties,
                Content::Entries(digest)
                    if digest.names_parts
                        && !named.contains_key(&start)
                        && survey
                            .handles_in(found.handle())
                            .iter()
                            .all(leads_to_no_data) =>
                {
                    Section::Metaindex
                }
                Content::Entries(digest) => {
                    has_gap &= digest.is_list;
                    continue;
                }
                Content::Unreadable(_) => continue,
            };
            self.metadata.entry(start).or_insert(section);
        }
    }

    /// Whether the frame holds data, or cannot be told from data.
    pub(super) fn data<'a>(&self, found: &'a Found) -> Option<&'a Digest> {
        found
            .data()
            .filter(|_| !self.metadata.contains_key(&found.range.start))
    }

    /// Sets aside the metaindex that each footer names. Returns the indexes that they name, each with how far it has moved.
    fn set_aside_named(&mut self, survey: &Survey<'_>) -> HashMap<u64, u64> {
        let mut named = HashMap::new();
        for found in survey.frames.values() {
            let Content::Footer(footer) = &found.content else {
                continue;
            };
            let Some(end) = footer.blocks_end() else {
                continue;
            };
            let by = found.range.start.wrapping_sub(end);
            let entries_at = |handle: BlockHandle| {
                let range = moved(handle, by)?;
                let is_block = |found: &&Found| matches!(found.content, Content::Entries(_));
                survey.at(&range).filter(is_block)
            };
            let metaindex = entries_at(footer.metaindex);
            if let Some(found) = metaindex {
                self.metadata.insert(found.range.start, Section::Metaindex);
            }
            // A footer that lost bytes of its padding is read from a byte too early, and may name anything.
            let index = entries_at(footer.index).filter(|found| match &found.content {
                Content::Entries(digest) if digest.entries > 0 => {
                    digest.is_list && (by == 0 || metaindex.is_some() || !digest.names_parts)
                }
                _ => true,
            });
            if let (Some(index), Some(metaindex)) = (index, metaindex) {
                // Other parts that it names are no data, unless the index lists them.
                let parts = survey
                    .handles_in(metaindex.handle())
                    .into_iter()
                    .take(MOST_PARTS);
                let listed = survey.handles_in(index.handle());
                for part in parts.filter(|part| !listed.contains(part)) {
                    let part = entries_at(part).filter(|part| part.data().is_some());
                    let section = part.map(|part| (part.range.start, Section::Metaindex));
                    self.metadata.extend(section);
                }
            }
            named.extend(index.map(|found| (found.range.start, by)));
        }
        named
    }

    /// The list in `found` as an index, if it is usable. `by_footer`: how far it has moved, if a footer names it.
    fn as_index(
        &self,
        survey: &Survey<'_>,
        found: &Found,
        by_footer: Option<u64>,
        has_data_after: bool,
    ) -> Option<Index> {
        let range = found.range.clone();
        let handles = survey.handles_in(found.handle());
        let by = by_footer.unwrap_or_default();
        let Alignment {
            places,
            matched,
            of,
        } = self.align(survey, &handles, range.start, by);
        let is_usable = match (by_footer, found.digest()) {
            // Nothing else can be the index of an empty table.
            (Some(_), None) => survey
                .frames
                .values()
                .all(|found| self.data(found).is_none()),
            (Some(_), Some(_)) => true,
            (None, Some(digest)) => {
                let is_likely = 2 * matched >= of && of > 0 || fills_the_front(&handles);
                let may_be_last = !has_data_after;
                is_likely
                    && self.stands_apart(survey, found, digest, &handles, (of == 0, may_be_last))
            }
            (None, None) => false,
        };
        // A footer in the middle of the file is that of another table.
        let last = survey.before(survey.file.size).next();
        let is_in_place = by_footer == Some(0)
            && last.is_some_and(|last| match &last.content {
                _ if last.range.end < survey.file.size => false,
                Content::Footer(footer) => moved(footer.index, 0) == Some(range.clone()),
                _ => false,
            });
        is_usable.then_some(Index {
            range,
            handles,
            keys: Vec::new(),
            places,
            moved_by: by_footer,
            is_in_place,
        })
    }

    /// Finds the blocks before `end` that have the sizes of `handles`, in order. `by`: how far they may have moved.
    fn align(
        &self,
        survey: &Survey<'_>,
        handles: &[BlockHandle],
        end: u64,
        mut by: u64,
    ) -> Alignment {
        let mut by_size: HashMap<u64, Vec<usize>> = HashMap::new();
        for (i, handle) in handles.iter().enumerate() {
            by_size.entry(handle.size).or_default().push(i);
        }
        let mut alignment = Alignment {
            places: vec![None; handles.len()],
            matched: 0,
            of: 0,
        };
        let (mut below, mut guess) = (handles.len(), None);
        // Backward, since the table ends where its index begins. Before a footer lies another table.
        let before = survey.before(end);
        let own = before.take_while(|found| !matches!(found.content, Content::Footer(_)));
        let own = own.filter(|found| found.digest().is_some());
        for (number, found) in own.take(4 * handles.len() + 64).enumerate() {
            let block = found.handle();
            let moved_by = |by: u64| {
                let offset = block.offset.wrapping_sub(by);
                let i = handles.binary_search_by_key(&offset, |handle| handle.offset);
                i.ok().filter(|&i| {
                    handles
                        .get(i)
                        .is_some_and(|handle| handle.size == block.size)
                })
            };
            let by_order = || {
                let same_size = by_size.get(&block.size)?;
                let before = same_size.partition_point(|&i| i < below).checked_sub(1)?;
                same_size.get(before).copied()
            };
            let i = moved_by(by).or_else(|| moved_by(0));
            if i.is_none() && self.data(found).is_none() {
                continue;
            }
            let i = i.or_else(by_order);
            let is_near = number < handles.len();
            alignment.of += usize::from(is_near);
            let Some(i) = i.filter(|&i| alignment.places.get(i).is_some_and(Option::is_none))
            else {
                continue;
            };
            let place = |is_guess| {
                Some(Place {
                    start: block.offset,
                    is_guess,
                })
            };
            let shift = handles
                .get(i)
                .map_or(by, |handle| block.offset.wrapping_sub(handle.offset));
            if let Some((before, start)) = guess.filter(|_| shift == by)
                && let Some(place) = alignment.places.get_mut(before)
            {
                *place = Some(Place {
                    start,
                    is_guess: false,
                });
            }
            let is_guess = shift != by && shift != 0;
            guess = is_guess.then_some((i, block.offset));
            if let Some(slot) = alignment.places.get_mut(i) {
                *slot = place(is_guess);
            }
            by = shift;
            alignment.matched += usize::from(is_near && i < below);
            below = below.min(i);
        }
        alignment
    }

    /// Whether `found`, before which `has_no_data` left, and after which none if it `may_be_last`, can be told from data whose
    /// values are handles by its keys or by what lies around it.
    ///
    /// Data would continue the keys of the block before it. An index does so only if that is the only one which it lists;
    /// but then metaindex, filter or a gap lies between the two, and no data right after it.
    fn stands_apart(
        &self,
        survey: &Survey<'_>,
        found: &Found,
        digest: &Digest,
        handles: &[BlockHandle],
        (has_no_data, may_be_last): (bool, bool),
    ) -> bool {
        let Range { start, end } = found.range;
        let mut data_before = survey.before(start).filter_map(|found| self.data(found));
        let continues = data_before.next().is_some_and(|before| {
            let ascend = before.ascends && digest.ascends;
            ascend && survey.order.compare(&before.last, &digest.first).is_lt()
        });
        if handles.len() > 1 && !continues {
            return true;
        }
        let before = survey.before(start).next();
        let before = before.filter(|before| before.range.end == start);
        let after = survey.frames.get(&end);
        let is_data = |found: &Found| self.data(found).is_some();
        let is_metaindex = |found: &Found| {
            let sections = [Section::Metaindex, Section::Footer].map(Some);
            sections.contains(&self.metadata.get(&found.range.start).copied())
        };
        // Where no data is left, the listed block must at least have had room, unless bytes may be missing.
        let may_lack_bytes = match before {
            Some(before) => is_metaindex(before),
            None => start > 0,
        };
        let has_room = !has_no_data
            || handles.len() > 1
            || handles.last().and_then(BlockHandle::end) <= Some(start)
            || may_lack_bytes
            || may_be_last && after.is_none_or(is_metaindex);
        has_room && !before.is_some_and(is_data) && !after.is_some_and(is_data)
    }

    /// The properties between the data of `index` and the index itself.
    fn properties_beside(
        &self,
        survey: &Survey<'_>,
        index: &Index,
        listed: &HashSet<u64>,
    ) -> Option<Properties> {
        let mut beside = survey.before(index.range.start).take_while(|found| {
            let is_footer = matches!(found.content, Content::Footer(_));
            !is_footer && !listed.contains(&found.range.start) && self.data(found).is_none()
        });
        beside.find_map(|found| self.properties_in(survey, found))
    }

    fn properties_in(&self, survey: &Survey<'_>, found: &Found) -> Option<Properties> {
        let section = self.metadata.get(&found.range.start);
        let block = section.filter(|section| **section == Section::Properties)?;
        let block = Some(block).and_then(|_| survey.block(found.handle()))?;
        Properties::decode(block.data()).ok()
    }
}

impl Index {
    fn starts(&self) -> impl Iterator<Item = u64> {
        self.places.iter().flatten().map(|place| place.start)
    }

    /// Reads its keys. `false` if they take more memory than a sound table's would.
    fn read_keys(&mut self, survey: &Survey<'_>) -> bool {
        let mut room = index_room(survey.file.size);
        let Some(block) = survey.block(handle_of(&self.range)) else {
            return false;
        };
        let mut cursor = BlockCursor::new(block);
        while let Ok(true) = cursor.next() {
            let Some(rest) = room.checked_sub(cursor.key().len() as u64) else {
                return false;
            };
            room = rest;
            self.keys.push(cursor.key().into());
        }
        self.keys.len() == self.handles.len()
    }
}

/// Where the frame at `handle` lies if it has moved by so many bytes, counted round and round.
pub(super) fn moved(handle: BlockHandle, by: u64) -> Option<Range<u64>> {
    let offset = handle.offset.wrapping_add(by);
    let end = BlockHandle { offset, ..handle }.end()?;
    Some(offset..end)
}

/// Whether the frame may hold data, by itself.
fn is_data(found: &Found) -> bool {
    found.data().is_some()
}

/// The same, and it cannot be an index or a metaindex.
fn is_plain(found: &Found) -> bool {
    let data = found.data();
    data.is_some_and(|digest| !digest.is_list && !digest.names_parts)
}

/// Whether none of the blocks at `data` reaches into `place`.
fn is_free(data: &[Range<u64>], place: &Range<u64>) -> bool {
    let before = data.partition_point(|block| block.start < place.end);
    let last = before.checked_sub(1).and_then(|last| data.get(last));
    last.is_none_or(|last| last.end <= place.start)
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

/// Whether the table of `index` seems to be stored in a value of a damaged block: it is whole, with bytes before and after it
/// that belong to no frame, and frames after these.
fn is_inside_a_value(survey: &Survey<'_>, index: &Index, runs: &[Range<u64>]) -> bool {
    let after = runs.partition_point(|run| run.end <= index.range.start);
    let Some(run) = runs.get(after).filter(|run| run.start > 0) else {
        return false;
    };
    let begins_run = index.starts().min() == Some(run.start);
    let is_whole = begins_run && index.places.iter().all(Option::is_some);
    let ends_run = || {
        let mut after = survey.from(index.range.end);
        let mut after = after
            .by_ref()
            .take_while(|found| found.range.start < run.end);
        after.all(|found| found.data().is_none_or(|digest| digest.names_parts))
    };
    is_whole && ends_run() && survey.from(run.end).next().is_some()
}
