//! Tells the frames that were found apart: data, metadata, index.
//!
//! - What a usable index lists is data.
//! - Another block is *metadata* if it decodes as properties, or if its keys are names of a metaindex and its values are
//!   handles that lead to no data. User keys may begin with `filter.`, and user values may look like handles.
//! - An *index* lists handles whose sizes are those of the data blocks before it. A footer may name it, but need not: it is
//!   usable wherever it lies, and in whatever order its keys are. It certainly is one if `about.pieces` divides it, or if
//!   properties after it state as many blocks of as many bytes as it lists.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use super::found::{Content, Digest, Found};
use super::index::Index;
use super::survey::{Survey, moved};
use crate::error::Section;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::format::internal_key::user_order;
use crate::format::pieces::Pieces;
use crate::format::properties::Properties;

/// How the names begin under which most tables have parts.
const STOCK: [&[u8]; 3] = [b"about.", b"filter.leveldb.", b"filter.leveltable."];

/// Most parts of a table that are looked for by its metaindex.
pub(super) const MAX_PARTS: usize = 16;

/// The table to copy.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// Its index: of several whole ones, the last in the file.
    pub(super) index: Option<Index>,
    /// Without one, the blocks of a whole table that seems to be stored in a value: they are better attested than others.
    pub(super) attested: HashSet<u64>,
    /// What it says of itself, if it is clear which of several tables it is.
    pub(super) properties: Option<Properties>,
    /// Whether its keys are in another order than the builder's, by what it says of itself.
    pub(super) is_other_order: bool,
}

impl Kinds {
    /// Tells each frame of `survey` what it is.
    pub(super) fn of(survey: &mut Survey<'_>) -> Kinds {
        let named = follow_footers(survey);
        set_aside_metaindexes(survey, &named);
        let (mut index, inside) = find_index(survey, &named);
        for start in named.keys() {
            // One that lists nothing of use is no data either.
            set(survey, *start, Section::Index, |found| {
                found.section == Section::Data
            });
        }
        let properties = match &index {
            Some(index) => index.properties(survey),
            None => {
                // Those of the file, if they are the only ones.
                let mut all = survey
                    .frames
                    .values()
                    .filter_map(|found| properties_in(survey, found));
                all.next().filter(|_| all.next().is_none())
            }
        };
        let order = user_order(survey.order()).unwrap_or(survey.order());
        let is_other = |properties: &Properties| properties.comparator != order.comparator().name();
        let is_other_order = properties.as_ref().is_some_and(is_other);
        if let Some(index) = &mut index {
            index.settle(survey, is_other_order);
            for start in index.places.iter().flatten() {
                set(survey, *start, Section::Data, |_| true);
            }
        }
        Kinds {
            attested: inside
                .into_iter()
                .flat_map(|index| index.places)
                .flatten()
                .collect(),
            index,
            properties,
            is_other_order,
        }
    }
}

fn set(survey: &mut Survey<'_>, start: u64, section: Section, if_so: fn(&Found) -> bool) {
    if let Some(found) = survey.frames.get_mut(&start).filter(|found| if_so(found)) {
        found.section = section;
    }
}

/// Finds the index of the table to copy, or at least of one that seems to be stored in a value, and sets aside those of others.
fn find_index(
    survey: &mut Survey<'_>,
    named: &HashMap<u64, u64>,
) -> (Option<Index>, Option<Index>) {
    let runs = survey.runs();
    let clues = Clues::of(survey);
    let starts: Vec<u64> = survey.frames.keys().rev().copied().collect();
    let (mut listed, mut must_have_room) = (HashSet::<u64>::new(), false);
    let (mut index, mut inside) = (None, None);
    for start in starts {
        let Some(found) = survey.frames.get(&start) else {
            continue;
        };
        let moved_by = named.get(&start).copied();
        let is_certain = clues.certain.contains(&start);
        let is_list = found.data().is_some_and(|digest| digest.is_list);
        let may_be_one = moved_by.is_some() || is_certain || is_list;
        let is_in_the_way = shows_that_nothing_is_missing(survey, found);
        let found_index = (may_be_one && !listed.contains(&start))
            .then(|| Index::locate(survey, found, moved_by))
            .flatten()
            .filter(|index| is_certain || index.is_likely(survey, found, &clues, must_have_room));
        let Some(found_index) = found_index else {
            must_have_room |= is_in_the_way;
            continue;
        };
        listed.extend(found_index.places.iter().flatten());
        set(survey, start, Section::Index, |_| true);
        if index.is_none() {
            if !found_index.is_inside_a_value(survey, &runs) {
                // One that seemed to be inside a value cannot be: this index comes before it.
                index = inside.take().or(Some(found_index));
            } else if inside.is_none() {
                inside = Some(found_index);
            }
        }
    }
    (index, inside)
}

/// Whether a block that comes after a list shows that the list is no index which has lost all that was before it: data,
/// pieces and properties that are another one's, or what has not moved.
fn shows_that_nothing_is_missing(survey: &Survey<'_>, found: &Found) -> bool {
    let is_there =
        |handle: BlockHandle| moved(handle, 0).is_some_and(|range| survey.at(&range).is_some());
    match (&found.content, found.section) {
        (_, Section::Pieces | Section::Properties) => true,
        (Content::Footer(footer), _) => is_there(footer.index),
        (_, Section::Metaindex) => survey.handles_in(found.handle()).into_iter().any(is_there),
        _ => found.data().is_some(),
    }
}

/// What shows that a list of handles is an index.
pub(super) struct Clues {
    /// Where the lists begin that certainly are.
    certain: HashSet<u64>,
    /// Whether keys are a database's: none of the data has the largest sequence number.
    pub(super) is_database: bool,
    hasher: RandomState,
    /// By size and key, as hashes: what an index says of a block of data, if it is shortened as by this crate or not at all.
    entries: HashSet<u64>,
}

impl Clues {
    fn of(survey: &Survey<'_>) -> Clues {
        let mut clues = Clues {
            certain: certain_indexes(survey),
            is_database: survey.order().shortens_filter_keys(),
            hasher: RandomState::new(),
            entries: HashSet::new(),
        };
        for found in survey.data() {
            let size = found.handle().size;
            let last = found.digest().map(|digest| digest.last.to_vec());
            let mut key = last.unwrap_or_default();
            clues.entries.insert(clues.hasher.hash_one((size, &key)));
            survey.order().comparator().find_short_successor(&mut key);
            clues.entries.insert(clues.hasher.hash_one((size, &key)));
        }
        clues
    }

    /// Whether some block of this size has just this key in the index, if it is the last of its table.
    pub(super) fn has_block(&self, size: u64, key: &[u8]) -> bool {
        let entry = self.hasher.hash_one((size, &key.to_vec()));
        self.entries.contains(&entry)
    }
}

/// The lists that an `about.pieces` after them divides, or of which properties after them state the blocks, wherever they have
/// moved. Reads each list twice at most.
fn certain_indexes(survey: &Survey<'_>) -> HashSet<u64> {
    let (mut certain, mut pieces, mut properties) = (HashSet::new(), None, None);
    for found in survey.before(survey.file().size) {
        if found.section == Section::Pieces {
            let decoded = survey.payload(found.handle()).map(Pieces::decode);
            pieces = decoded.and_then(Result::ok).flatten().or(pieces);
        }
        properties = properties_in(survey, found).or(properties);
        if !found.is_list() {
            continue;
        }
        let divides = |pieces: &mut Pieces| {
            found.handle().size == pieces.index.handle.size
                && survey
                    .payload(found.handle())
                    .is_some_and(|block| pieces.index.check_block(&block).is_ok())
        };
        let states = |properties: &mut Properties| {
            let handles = survey.handles_in(found.handle());
            let sizes = handles
                .iter()
                .map(|handle| handle.size + TRAILER_LEN as u64);
            (handles.len() as u64, sizes.sum()) == (properties.data_blocks, properties.data_bytes)
        };
        if pieces.take_if(divides).is_some() | properties.take_if(states).is_some() {
            certain.insert(found.range.start);
        }
    }
    certain
}

/// Sets aside the metaindex that each footer names. Returns the indexes that they name, each with how far it has moved.
fn follow_footers(survey: &mut Survey<'_>) -> HashMap<u64, u64> {
    let (mut named, mut metadata) = (HashMap::new(), Vec::new());
    for found in survey.frames.values() {
        let Content::Footer(footer) = &found.content else {
            continue;
        };
        let Some(end) = footer.blocks_end() else {
            continue;
        };
        let by = found.range.start.wrapping_sub(end);
        let entries_at = |handle: BlockHandle| {
            let found = survey.at(&moved(handle, by)?)?;
            matches!(found.content, Content::Entries(_)).then_some(found)
        };
        let metaindex = entries_at(footer.metaindex);
        metadata.extend(metaindex.map(|found| found.range.start));
        // A footer that lost bytes of its padding is read from a byte too early, and may name anything.
        let is_index = |found: &&Found| {
            found.digest().is_none_or(|digest| {
                digest.is_list && (by == 0 || metaindex.is_some() || !digest.names_parts)
            })
        };
        let index = entries_at(footer.index).filter(is_index);
        if let (Some(index), Some(metaindex)) = (index, metaindex) {
            // Other parts that it names are no data, unless the index lists them.
            let listed = survey.handles_in(index.handle());
            let mut parts = survey.handles_in(metaindex.handle());
            parts.truncate(MAX_PARTS);
            parts.retain(|part| !listed.contains(part));
            let parts = parts.into_iter().filter_map(entries_at);
            metadata.extend(
                parts
                    .filter(|part| part.data().is_some())
                    .map(|part| part.range.start),
            );
        }
        named.extend(index.map(|found| (found.range.start, by)));
    }
    for start in metadata {
        set(survey, start, Section::Metaindex, |_| true);
    }
    named
}

/// Sets aside metaindexes by their names and by what their handles lead to.
fn set_aside_metaindexes(survey: &mut Survey<'_>, named: &HashMap<u64, u64>) {
    let mut metaindexes = Vec::new();
    // The lengths of the parts that hold no data, of which a metaindex comes after those that it names.
    let mut parts = HashSet::new();
    // Whether there was a gap since the last block of data.
    let (mut has_gap, mut end) = (false, 0);
    for found in survey.frames.values() {
        has_gap |= found.range.start != end;
        end = found.range.end;
        let Some(digest) = found.data() else {
            parts.insert(found.len());
            continue;
        };
        let leads_to_no_data = |part: &BlockHandle| {
            moved(*part, 0).is_some_and(|place| {
                let block = data_before(survey, digest, place.end);
                let is_free = block.is_none_or(|block| block.end <= place.start);
                let is_part = || parts.contains(&(place.end - place.start));
                block != Some(&place) && (has_gap || is_free || is_part())
            })
        };
        let is_metaindex = digest.names_parts && !named.contains_key(&found.range.start) && {
            let handles = survey.handles_in(found.handle());
            handles.iter().all(leads_to_no_data)
        };
        if is_metaindex {
            metaindexes.push(found.range.start);
        } else {
            has_gap &= digest.is_list;
        }
    }
    for start in metaindexes {
        set(survey, start, Section::Metaindex, |_| true);
    }
}

/// The last block of data that begins before `end`. What a stock name in `metaindex` leads to may have moved, so that other
/// metadata, or itself, is there.
fn data_before<'s>(survey: &'s Survey<'_>, metaindex: &Digest, end: u64) -> Option<&'s Range<u64>> {
    let is_stock = STOCK.iter().any(|name| metaindex.first.starts_with(name));
    let is_data = |digest: &Digest| !is_stock || !digest.is_list && !digest.names_parts;
    let mut before = survey.before(end);
    let block = before.find(|found| found.data().is_some_and(is_data))?;
    Some(&block.range)
}

/// What the properties block `found` says, if it is one.
pub(super) fn properties_in(survey: &Survey<'_>, found: &Found) -> Option<Properties> {
    let is_one = found.section == Section::Properties;
    let block = is_one.then(|| survey.payload(found.handle()))??;
    Properties::decode(&block).ok()
}
