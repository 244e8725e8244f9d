//! Tells the frames that were found apart: data, metadata, index. Then whether the builder is one for such a table.
//!
//! - What a usable index lists is data.
//! - Another block is *metadata* if it decodes as properties, or if its keys are names of a metaindex and its values are
//!   handles that lead to no data. User keys may begin with `filter.`, and user values may look like handles.
//! - An *index* lists handles of blocks that follow each other from the front of a file. A footer may name it, but need not: it is
//!   usable wherever it lies, and in whatever order its keys are.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use super::found::Found;
use super::index::Index;
use super::survey::{Survey, moved};
use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, Section};
use crate::format::footer::BlockHandle;
use crate::format::internal_key::user_order;
use crate::format::properties::{KeyKind, Properties};
use crate::read::recognise::Evidence;

/// How the names begin under which most tables have parts.
const STOCK: [&[u8]; 3] = [b"about.", b"filter.leveldb.", b"filter.leveltable."];

/// Most parts of a table that are looked for by its metaindex.
pub(super) const MAX_PARTS: usize = 16;

/// The table to copy.
pub(super) struct Kinds<'s> {
    pub(super) survey: &'s Survey<'s>,
    /// Its index: of several whole ones, the last in the file.
    pub(super) index: Option<Index<'s>>,
    /// What it says of itself, if it is clear which of several tables it is.
    pub(super) properties: Option<Properties>,
    /// Whether its keys are in another order than the builder's, by what it says of itself.
    pub(super) is_other_order: bool,
}

impl<'s> Kinds<'s> {
    /// Tells each frame of `survey` what it is.
    pub(super) fn of(survey: &'s Survey<'s>) -> Kinds<'s> {
        let named = follow_footers(survey);
        set_aside_metaindexes(survey);
        let (mut index, doubtful) = find_index(survey, &named);
        // What a footer names is no data, even if it lists nothing of use.
        let named = { named.keys() }.filter_map(|start| survey.frames.get(start));
        { named.filter(|list| list.is_data()) }.for_each(|list| list.section.set(Section::Index));
        let properties = match &index {
            Some(index) => properties_of(survey, index),
            None => {
                // Those of the file, if they are the only ones.
                let frames = survey.frames.values();
                let mut all = frames.filter_map(|found| properties_in(survey, found));
                all.next().filter(|_| all.next().is_none())
            }
        };
        let order = user_order(survey.order).unwrap_or(survey.order);
        let is_other = |properties: &Properties| properties.comparator != order.comparator().name();
        let is_other_order = properties.as_ref().is_some_and(is_other);
        if let Some(index) = &mut index {
            index.settle(is_other_order);
        }
        { doubtful.into_iter() }.for_each(|list| list.section.set(Section::Index));
        if let Some(index) = &index {
            { index.blocks() }.for_each(|found| found.section.set(Section::Data));
        }
        Kinds {
            survey,
            index,
            properties,
            is_other_order,
        }
    }

    /// Refuses a builder for the other kind of table. `named` is the kind of keys that the caller named.
    pub(super) fn check_kind(&self, named: Option<KeyKind>) -> Result<()> {
        let built = match self.survey.order {
            Order::Bytewise => KeyKind::Plain,
            order if order.shortens_filter_keys() => KeyKind::Database,
            // Another order tells nothing about the kind.
            _ => return Ok(()),
        };
        let evidence = self.evidence();
        let kind = named.or(self.stated_kind()).or(evidence.verdict());
        // With its index a database's table has lost what tells it from a plain one with the same keys.
        let is_unclear =
            kind.is_none() && self.index.is_none() && evidence.may_hold_internal_keys();
        match built {
            KeyKind::Plain if kind == Some(KeyKind::Database) || is_unclear => Err(Error::new(
                ErrorKind::DatabaseTable,
                "this table belongs to a LevelDB database, or may do so (its keys end in what may be a sequence number and \
                 a type): salvage it with a DbTableBuilder, or say that its keys are plain",
            )),
            KeyKind::Database if kind == Some(KeyKind::Plain) => Err(Error::new(
                ErrorKind::Comparator,
                "the keys of this table are not a database's: salvage it with a TableBuilder",
            )),
            _ => Ok(()),
        }
    }

    /// The error where the order is not the builder's, and the new table cannot say so.
    pub(super) fn order_cannot_be_said(&self) -> Error {
        let order = user_order(self.survey.order).unwrap_or(self.survey.order);
        let stated = self.properties.as_ref();
        let own = stated.map_or("not named", |stated| &stated.comparator);
        let message = format!(
            "this table is not in the order of {:?} (its own: {own}), and the new one has no properties to say so: build it with the \
             comparator that the old one was written with, or with properties, or let salvage copy it in its stored order",
            order.comparator().name()
        );
        Error::new(ErrorKind::Comparator, message)
    }

    /// The kind of keys that the table says it holds.
    pub(super) fn stated_kind(&self) -> Option<KeyKind> {
        self.properties.as_ref().map(|stated| stated.key_kind)
    }

    /// What the table's keys say about its kind.
    pub(super) fn evidence(&self) -> Evidence {
        let mut evidence = Evidence::default();
        let blocks: Vec<&Found> = match &self.index {
            None => self.survey.data().collect(),
            Some(index) => {
                let mut previous = None;
                for listed in &index.listed {
                    evidence.add_index_key(previous.replace(&listed.key[..]), &listed.key);
                }
                index.blocks().collect()
            }
        };
        { blocks.iter() }.for_each(|found| evidence.add(&found.digest.evidence));
        evidence
    }
}

/// Finds the index of the table to copy, and sets aside those of others and of tables that seem to be stored in a value.
fn find_index<'s>(
    survey: &'s Survey<'s>,
    named: &HashMap<u64, u64>,
) -> (Option<Index<'s>>, Vec<&'s Found>) {
    let runs = survey.runs();
    let clues = clues(survey);
    let (mut listed, mut must_have_room) = (HashSet::<u64>::new(), false);
    let (mut index, mut inside, mut doubtful) = (None, None, Vec::new());
    // Before a footer lie other tables.
    let footers = { survey.from(0) }.filter(|found| found.section.get() == Section::Footer);
    let footers: BTreeSet<u64> = footers.map(|found| found.range.end).collect();
    for found in survey.before(survey.file.size) {
        let start = found.range.start;
        let begin = footers.range(..=start).next_back().copied().unwrap_or(0);
        let moved_by = named.get(&start).copied();
        // Values do not follow each other from the front of a file by chance.
        let is_list = found.digest.fills_front && found.is_data();
        let may_be_one = !listed.contains(&start) && (is_list || moved_by.is_some());
        let own = may_be_one.then(|| Index::locate(survey, found, moved_by, begin));
        let is_one = |own: &Index<'_>| match moved_by {
            // Nothing else can be the index of an empty table.
            Some(_) => !own.listed.is_empty() || survey.data().next().is_none(),
            None => own.is_likely(&clues, must_have_room),
        };
        let Some(found_index) = own.flatten().filter(is_one) else {
            must_have_room |= shows_that_nothing_is_missing(survey, found);
            continue;
        };
        let is_confirmed = moved_by.is_some() || found_index.listed.len() > 1;
        if !is_confirmed && (index.is_some() || !found_index.has_clue(&clues)) {
            // Another one may list it. Where its table is gone, if it is an index, it says nothing of others.
            doubtful.push(found);
            continue;
        }
        listed.extend(found_index.starts());
        found.section.set(Section::Index);
        if index.is_some() {
            continue;
        }
        if found_index.is_inside_a_value(&runs) {
            inside.get_or_insert(found_index);
        } else {
            // One that seemed to be inside a value cannot be: this index comes before it.
            index = inside.take().or(Some(found_index));
        }
    }
    (index, doubtful)
}

/// Whether a block after a list shows that nothing before the list is missing: data, or a footer or metaindex whose handles lead to
/// frames in their places.
fn shows_that_nothing_is_missing(survey: &Survey<'_>, found: &Found) -> bool {
    let is_there = |handle: BlockHandle| survey.at(handle, 0).is_some();
    let is_metaindex = found.section.get() == Section::Metaindex;
    found.is_data()
        || { found.digest.footer }.is_some_and(|footer| is_there(footer.index))
        || is_metaindex && survey.handles_in(found.handle()).into_iter().any(is_there)
}

/// What an index says of the last block of its table, with the number of blocks of data that it may be: with a key that is shortened as
/// by this crate, or not at all.
fn clues(survey: &Survey<'_>) -> HashMap<u64, usize> {
    let mut clues = HashMap::new();
    for found in survey.data() {
        for key in found.index_keys(survey.order) {
            *clues.entry(clue(found.handle().size, &key)).or_default() += 1;
        }
    }
    clues
}

/// What an index says of a block, as a hash: the keys themselves would take memory.
pub(super) fn clue(size: u64, key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (size, key).hash(&mut hasher);
    hasher.finish()
}

/// Sets aside the metaindex that each footer names. Returns the indexes that they name, each with how far it has moved.
fn follow_footers(survey: &Survey<'_>) -> HashMap<u64, u64> {
    let mut named = HashMap::new();
    for found in survey.from(0) {
        let footer = found.digest.footer;
        let Some((footer, end)) = footer.and_then(|own| Some((own, own.blocks_end()?))) else {
            continue;
        };
        let by = found.range.start.wrapping_sub(end);
        let entries_at = |handle: BlockHandle| {
            let found = survey.at(handle, by)?;
            let is_empty = || found.section.get() == Section::Metaindex;
            (found.has_entries() || is_empty()).then_some(found)
        };
        let metaindex = entries_at(footer.metaindex);
        // A footer that lost bytes of its padding is read from a byte too early, and may name anything.
        let is_index = |found: &&Found| {
            let may_be_one = by == 0 || metaindex.is_some() || !found.digest.names_parts;
            !found.has_entries() || found.digest.is_list && may_be_one
        };
        let index = entries_at(footer.index).filter(is_index);
        if let (Some(index), Some(metaindex)) = (index, metaindex) {
            // Other parts that it names are no data, unless the index lists them.
            let listed = survey.handles_in(index.handle());
            let mut parts = survey.handles_in(metaindex.handle());
            parts.truncate(MAX_PARTS);
            parts.retain(|part| !listed.contains(part));
            let parts = parts.into_iter().filter_map(entries_at);
            let parts = parts.filter(|part| part.is_data());
            parts.for_each(|part| part.section.set(Section::Metaindex));
        }
        metaindex.inspect(|found| found.section.set(Section::Metaindex));
        named.extend(index.map(|found| (found.range.start, by)));
    }
    named
}

/// Sets aside metaindexes by their names and by what their handles lead to.
fn set_aside_metaindexes(survey: &Survey<'_>) {
    // The lengths of the parts that hold no data, of which a metaindex comes after those that it names.
    let mut parts = HashSet::new();
    // Whether there was a gap since the last block of data.
    let (mut has_gap, mut end) = (false, 0);
    // Where data begins. What a stock name leads to may have moved, so that other metadata, or itself, is there.
    let start = |found: &Found| found.range.start;
    let cannot_be_moved = |found: &&Found| !found.digest.is_list && !found.digest.names_parts;
    let mut data: BTreeSet<u64> = survey.data().map(start).collect();
    let firm: BTreeSet<u64> = survey.data().filter(cannot_be_moved).map(start).collect();
    for found in survey.from(0) {
        has_gap |= found.range.start != end;
        end = found.range.end;
        if !found.is_data() {
            parts.insert(found.len());
            continue;
        }
        let is_stock = { STOCK.iter() }.any(|name| found.digest.first.starts_with(name));
        let known = if is_stock { &firm } else { &data };
        let leads_to_no_data = |part: &BlockHandle| {
            moved(*part, 0).is_some_and(|place| {
                let before = known.range(..place.end).next_back();
                let block = before.and_then(|start| Some(&survey.frames.get(start)?.range));
                let is_free = block.is_none_or(|block| block.end <= place.start);
                let is_part = || parts.contains(&(place.end - place.start));
                block != Some(&place) && (has_gap || is_stock || is_free || is_part())
            })
        };
        let handles = || survey.handles_in(found.handle());
        if found.digest.names_parts && handles().iter().all(leads_to_no_data) {
            found.section.set(Section::Metaindex);
            data.remove(&found.range.start);
        } else {
            has_gap = false;
        }
    }
}

/// The properties after an index, where this crate writes them, or between it and its data. None of another table.
fn properties_of(survey: &Survey<'_>, index: &Index<'_>) -> Option<Properties> {
    let is_beside = |found: &&Found| {
        !matches!(
            found.section.get(),
            Section::Data | Section::Index | Section::Footer
        )
    };
    let Range { start, end } = index.list.range;
    let after = survey.from(end).take_while(is_beside);
    let mut beside = after.chain(survey.before(start).take_while(is_beside));
    beside.find_map(|found| properties_in(survey, found))
}

/// What the properties block `found` says, if it is one.
fn properties_in(survey: &Survey<'_>, found: &Found) -> Option<Properties> {
    let is_one = found.section.get() == Section::Properties;
    let block = is_one.then(|| survey.payload(found.handle()))??;
    Properties::decode(&block).ok()
}
