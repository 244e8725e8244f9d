//! Tells the frames that were found apart: data, metadata, index.
//!
//! - What a usable index lists is data.
//! - Another block is *metadata* if it decodes as properties, or if its keys are names of a metaindex and its values are
//!   handles that lead to no data. User keys may begin with `filter.`, and user values may look like handles.
//! - An *index* lists handles whose sizes are those of the data blocks before it. A footer may name it, but need not: it is
//!   usable wherever it lies, and in whatever order its keys are. One that `about.pieces` divides is certainly an index.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::found::{Content, Digest, Found};
use super::index::{Index, moved};
use super::survey::Survey;
use crate::error::Section;
use crate::format::footer::BlockHandle;
use crate::format::pieces::Pieces;
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

impl Kinds {
    pub(super) fn of(survey: &Survey<'_>) -> Kinds {
        let mut kinds = Kinds {
            index: None,
            metadata: HashMap::new(),
            properties: None,
        };
        let named = kinds.follow_footers(survey);
        kinds.set_aside_metadata(survey, &named);
        let divided = divided_indexes(survey);
        let runs = survey.runs();
        let (mut listed, mut must_have_room, mut inside) = (HashSet::new(), false, None);
        for found in survey.before(survey.file.size) {
            let start = found.range.start;
            let moved_by = named.get(&start).copied();
            let is_divided = divided.contains(&start);
            let is_list = kinds.data(found).is_some_and(|digest| digest.is_list);
            if (moved_by.is_some() || is_divided || is_list)
                && !listed.contains(&start)
                && let Some(index) =
                    Index::of(survey, &kinds, found, moved_by, is_divided, must_have_room)
            {
                kinds.metadata.insert(start, Section::Index);
                listed.extend(index.places.iter().flatten());
                let is_inside = kinds.is_inside_a_value(survey, &index, &runs);
                match &kinds.index {
                    // One that seemed to be inside a value cannot be: this index comes before it.
                    None if !is_inside => kinds.index = inside.take().or(Some(index)),
                    None if inside.is_none() => inside = Some(index),
                    _ => {}
                }
            }
            // Pieces that divide another index would divide this one.
            must_have_room |=
                matches!(found.content, Content::Pieces) || kinds.data(found).is_some();
        }
        // An index that lists nothing of use is no data either, if a footer names it.
        for start in named.keys() {
            kinds.metadata.entry(*start).or_insert(Section::Index);
        }
        if let Some(index) = &kinds.index {
            kinds.properties = kinds.properties_beside(survey, index, &listed);
        } else {
            // Those of the file, if they are the only ones.
            let frames = survey.frames.values();
            let mut all = frames.filter_map(|found| kinds.properties_in(survey, found));
            kinds.properties = all.next().filter(|_| all.next().is_none());
        }
        kinds
    }

    /// Whether the frame holds data, or cannot be told from data.
    pub(super) fn data<'a>(&self, found: &'a Found) -> Option<&'a Digest> {
        let is_metadata = self.metadata.contains_key(&found.range.start);
        found.data().filter(|_| !is_metadata)
    }

    /// Whether the table of `index` seems to be stored in a value of a damaged block: it is whole, begins a stretch of frames
    /// with bytes before and after it that belong to none, and data comes after these.
    fn is_inside_a_value(&self, survey: &Survey<'_>, index: &Index, runs: &[Range<u64>]) -> bool {
        let run = runs.iter().find(|run| run.contains(&index.range.start));
        let first = index.places.iter().flatten().min();
        let is_whole = index.places.iter().all(Option::is_some);
        let is_data = |found: &Found| self.data(found).is_some();
        is_whole
            && run.is_some_and(|run| {
                let mut in_run = survey
                    .from(index.range.end)
                    .take_while(|found| found.range.start < run.end);
                run.start > 0
                    && first == Some(&run.start)
                    && !in_run.any(is_data)
                    && survey.from(run.end).any(is_data)
            })
    }

    /// Whether the frame is one of the last of a table.
    pub(super) fn ends_a_table(&self, found: &Found) -> bool {
        let section = self.metadata.get(&found.range.start);
        matches!(section, Some(Section::Metaindex | Section::Footer))
    }

    /// Sets aside the metaindex that each footer names. Returns the indexes that they name, each with how far it has moved.
    fn follow_footers(&mut self, survey: &Survey<'_>) -> HashMap<u64, u64> {
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
                let found = survey.at(&moved(handle, by)?)?;
                matches!(found.content, Content::Entries(_)).then_some(found)
            };
            let metaindex = entries_at(footer.metaindex);
            let section = metaindex.map(|found| (found.range.start, Section::Metaindex));
            self.metadata.extend(section);
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
                parts.truncate(MOST_PARTS);
                parts.retain(|part| !listed.contains(part));
                let parts = parts.into_iter().filter_map(entries_at);
                let parts = parts.filter(|part| part.data().is_some());
                let sections = parts.map(|part| (part.range.start, Section::Metaindex));
                self.metadata.extend(sections);
            }
            named.extend(index.map(|found| (found.range.start, by)));
        }
        named
    }

    /// Sets aside all that holds no data by itself, and metaindexes by what their handles lead to.
    fn set_aside_metadata(&mut self, survey: &Survey<'_>, named: &HashMap<u64, u64>) {
        let ranges = |is_one: fn(&Digest) -> bool| -> Vec<Range<u64>> {
            let found = survey.frames.values();
            let found = found.filter(|found| found.data().is_some_and(is_one));
            found.map(|found| found.range.clone()).collect()
        };
        let data = ranges(|_| true);
        let plain = ranges(|digest| !digest.is_list && !digest.names_parts);
        // The sizes of the parts that hold no data, of which a metaindex comes after those that it names.
        let mut parts: HashSet<u64> = HashSet::new();
        // Whether there was a gap since the last block of data.
        let (mut has_gap, mut end) = (false, 0);
        for found in survey.frames.values() {
            let start = found.range.start;
            has_gap |= start != end;
            end = found.range.end;
            if found.data().is_none() {
                parts.insert(found.len());
            }
            let section = match &found.content {
                Content::Filter => Section::Filter,
                Content::Pieces => Section::Pieces,
                Content::Footer(_) => Section::Footer,
                Content::Unreadable(_) => continue,
                Content::Entries(digest) if digest.entries == 0 => Section::Metaindex,
                Content::Entries(digest) if digest.is_properties => Section::Properties,
                Content::Entries(digest) => {
                    // What a stock name leads to may have moved, so that other metadata, or itself, is there.
                    let is_stock = STOCK.iter().any(|name| digest.first.starts_with(name));
                    let data = if is_stock { &plain } else { &data };
                    // Where it says or, in a file that lost or gained bytes, elsewhere.
                    let leads_to_no_data = |part: &BlockHandle| {
                        moved(*part, 0).is_some_and(|place| {
                            let is_part = || parts.contains(&(place.end - place.start));
                            let block = last_before(data, place.end);
                            block != Some(&place)
                                && (has_gap
                                    || is_part()
                                    || block.is_none_or(|block| block.end <= place.start))
                        })
                    };
                    let is_metaindex = digest.names_parts
                        && !named.contains_key(&start)
                        && survey
                            .handles_in(found.handle())
                            .iter()
                            .all(leads_to_no_data);
                    if !is_metaindex {
                        has_gap &= digest.is_list;
                        continue;
                    }
                    Section::Metaindex
                }
            };
            self.metadata.entry(start).or_insert(section);
        }
    }

    /// The properties after `index`, where this crate writes them, or between it and its data. None of another table.
    fn properties_beside(
        &self,
        survey: &Survey<'_>,
        index: &Index,
        listed: &HashSet<u64>,
    ) -> Option<Properties> {
        let is_beside = |found: &&Found| {
            let section = self.metadata.get(&found.range.start);
            let ends = matches!(section, Some(Section::Index | Section::Footer));
            !ends && !listed.contains(&found.range.start) && self.data(found).is_none()
        };
        let after = survey.from(index.range.end).take_while(is_beside);
        let before = survey.before(index.range.start).take_while(is_beside);
        let mut beside = after.chain(before);
        beside.find_map(|found| self.properties_in(survey, found))
    }

    fn properties_in(&self, survey: &Survey<'_>, found: &Found) -> Option<Properties> {
        let section = self.metadata.get(&found.range.start);
        section.filter(|section| **section == Section::Properties)?;
        Properties::decode(survey.block(found.handle())?.data()).ok()
    }
}

/// Where the indexes begin that an `about.pieces` after them divides, wherever they have moved. Reads each list once at most.
fn divided_indexes(survey: &Survey<'_>) -> HashSet<u64> {
    let (mut divided, mut pieces) = (HashSet::new(), None);
    for found in survey.before(survey.file.size) {
        pieces = survey.pieces(found).or(pieces);
        let divides = |pieces: &mut Pieces| {
            found.digest().is_some_and(|digest| digest.is_list)
                && found.handle().size == pieces.index.handle.size
                && survey
                    .payload(found.handle())
                    .is_some_and(|block| pieces.index.check_block(&block).is_ok())
        };
        if pieces.take_if(divides).is_some() {
            divided.insert(found.range.start);
        }
    }
    divided
}

/// The last of `ranges` that begins before `end`.
fn last_before(ranges: &[Range<u64>], end: u64) -> Option<&Range<u64>> {
    let before = ranges.partition_point(|range| range.start < end);
    ranges.get(before.checked_sub(1)?)
}
