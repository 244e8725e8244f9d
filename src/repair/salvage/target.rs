//! What the table is copied to, and whether its kind and its order fit.

use super::found::{Content, Found};
use super::kinds::{Index, Kinds};
use super::plan::Plan;
use super::survey::Survey;
use crate::comparator::Order;
use crate::db::key::user_order;
use crate::db::recognise::{Evidence, KeyKind};
use crate::error::{Error, ErrorKind, Result, Section, show_key};
use crate::format::block_cursor::BlockCursor;
use crate::format::filter_block::{FILTER_PREFIX, FilterBlockReader};
use crate::read::options::OpenOptions;

/// The table that entries are copied to, and what the caller says about the damaged one.
#[derive(Debug)]
pub(super) struct Target {
    /// Of the keys as they are stored.
    pub(super) order: Order,
    /// The kind of keys that the damaged table holds.
    pub(super) keys: Option<KeyKind>,
    /// Whether the caller asks for the stored order where keys are in another than the builder's.
    pub(super) stored_order: bool,
    /// Whether the new table can say that its order is not the builder's.
    pub(super) has_properties: bool,
}

impl Target {
    /// The comparator's name, of user keys for a database's table.
    fn comparator(&self) -> &str {
        let order = user_order(&self.order).unwrap_or(&self.order);
        order.comparator().name()
    }

    /// The kind of table that is built. `None` for an order that tells nothing about it.
    fn kind(&self) -> Option<KeyKind> {
        match &self.order {
            Order::Bytewise => Some(KeyKind::Plain),
            order => order.shortens_filter_keys().then_some(KeyKind::Database),
        }
    }

    /// Plans the copy. An error if the builder is for the other kind of table, or cannot say that the order is another.
    pub(super) fn plan(&self, survey: &Survey<'_>, kinds: &Kinds) -> Result<Plan> {
        self.check_kind(survey, kinds)?;
        let named = kinds.properties.as_ref();
        let named = named.map(|properties| &*properties.comparator);
        let is_other = named.is_some_and(|name| name != self.comparator());
        let plan = Plan::of(survey, kinds, is_other, self.stored_order);
        if !plan.stored_order || self.stored_order || self.has_properties {
            return Ok(plan);
        }
        let why = match named.filter(|_| is_other) {
            Some(name) => format!("this table is ordered by {}", show_key(name.as_bytes())),
            None => format!(
                "the keys of this table do not ascend under comparator {:?}",
                self.comparator()
            ),
        };
        Err(Error::new(
            ErrorKind::Comparator,
            format!(
                "{why}, and the new table has no properties to say so: build it with the comparator that the old one was \
                 written with, or with properties, or let salvage copy it in its stored order"
            ),
        ))
    }

    /// Refuses a builder for the other kind of table.
    fn check_kind(&self, survey: &Survey<'_>, kinds: &Kinds) -> Result<()> {
        let Some(built) = self.kind() else {
            return Ok(());
        };
        let mut evidence = evidence(survey, kinds);
        if let Some(index) = kinds
            .index
            .as_ref()
            .filter(|_| evidence.verdict().is_none())
        {
            ask_filter(survey, kinds, index, &mut evidence);
        }
        let stated = kinds.properties.as_ref();
        let stated = stated.map(|properties| properties.key_kind);
        // With its index a database's table has lost what tells it from a plain one with the same keys.
        let is_unclear = || kinds.index.is_none() && evidence.may_hold_internal_keys();
        match (built, self.keys.or(stated).or(evidence.verdict())) {
            (KeyKind::Plain, Some(KeyKind::Database)) => Err(Error::new(
                ErrorKind::DatabaseTable,
                "this table belongs to a LevelDB database (its keys end in a sequence number and a type): salvage it \
                 with a DbTableBuilder",
            )),
            (KeyKind::Plain, None) if is_unclear() => Err(Error::new(
                ErrorKind::DatabaseTable,
                "this table may belong to a LevelDB database (each key ends in what may be a sequence number and a \
                 type): salvage it with a DbTableBuilder, or say that its keys are plain",
            )),
            (KeyKind::Database, Some(KeyKind::Plain)) => Err(Error::new(
                ErrorKind::Comparator,
                "the keys of this table are not a database's: salvage it with a TableBuilder",
            )),
            _ => Ok(()),
        }
    }
}

/// Adds what a filter of a built-in policy replies about the keys of a data block: that of a database holds user keys.
fn ask_filter(survey: &Survey<'_>, kinds: &Kinds, index: &Index, evidence: &mut Evidence) {
    let mut listed = index.handles.iter().zip(&index.places);
    let Some((handle, found)) = listed.find_map(|(handle, place)| {
        let found = survey.frames.get(&place.as_ref()?.start)?;
        Some((handle, found))
    }) else {
        return;
    };
    let is_filter = |found: &&Found| matches!(found.content, Content::Filter);
    let filter = survey.from(found.range.end).find(is_filter);
    let filter =
        filter.and_then(|found| FilterBlockReader::new(survey.payload(found.handle())?).ok());
    let metaindex = survey.from(found.range.end).find(|found| {
        let section = kinds.metadata.get(&found.range.start);
        section == Some(&Section::Metaindex) && found.digest().is_some()
    });
    let names = metaindex.and_then(|found| survey.block(found.handle()));
    let (Some(filter), Some(names), Some(block)) = (filter, names, survey.block(found.handle()))
    else {
        return;
    };
    let policies = OpenOptions::new().known_policies();
    let mut names = BlockCursor::new(names);
    let mut policy = None;
    while let Ok(true) = names.next() {
        let name = names.key().strip_prefix(FILTER_PREFIX);
        policy = policies
            .iter()
            .find(|policy| Some(policy.name().as_bytes()) == name)
            .or(policy);
    }
    let mut cursor = BlockCursor::new(block);
    while let (Some(policy), Ok(true)) = (policy, cursor.next()) {
        evidence.add_filter_replies(cursor.key(), |key| {
            filter.key_may_match(&**policy, handle.offset, key)
        });
    }
}

/// The kind of keys that the table seems to hold.
pub(super) fn kind(survey: &Survey<'_>, kinds: &Kinds) -> KeyKind {
    match &kinds.properties {
        Some(properties) => properties.key_kind,
        None => evidence(survey, kinds).kind(),
    }
}

/// What the table's keys say about its kind.
fn evidence(survey: &Survey<'_>, kinds: &Kinds) -> Evidence {
    let mut evidence = Evidence::default();
    let Some(index) = &kinds.index else {
        let data = survey.frames.values().filter_map(|found| kinds.data(found));
        data.for_each(|digest| evidence.add(&digest.evidence));
        return evidence;
    };
    for (key, place) in index.keys.iter().zip(&index.places) {
        evidence.add_index_key(key);
        let listed = place.and_then(|place| survey.frames.get(&place.start));
        if let Some(digest) = listed.and_then(Found::digest) {
            evidence.add(&digest.evidence);
            if digest.ascends {
                evidence.add_separator(&digest.last, key);
            }
        }
    }
    evidence
}
