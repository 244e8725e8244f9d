//! What the table is copied to, and whether its kind and its order fit.

use super::found::Found;
use super::kinds::Kinds;
use super::plan::Plan;
use super::survey::Survey;
use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, show_key};
use crate::format::internal_key::user_order;
use crate::format::properties::KeyKind;
use crate::read::recognise::Evidence;

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
    pub(super) fn plan<'s>(&self, survey: &'s Survey<'_>, kinds: &Kinds) -> Result<Plan<'s>> {
        self.check_kind(survey, kinds)?;
        let named = kinds.properties.as_ref();
        let named = named.map(|properties| &*properties.comparator);
        let plan = Plan::of(survey, kinds, self.stored_order);
        if !plan.stored_order || self.stored_order || self.has_properties {
            return Ok(plan);
        }
        let why = match named.filter(|_| kinds.is_other_order) {
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
        let evidence = evidence(survey, kinds);
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
        let data = survey.data().filter_map(Found::data);
        data.for_each(|digest| evidence.add(&digest.evidence));
        return evidence;
    };
    for (key, place) in index.keys.iter().zip(&index.places) {
        evidence.add_index_key(key);
        let listed = place.and_then(|place| survey.frames.get(&place));
        if let Some(digest) = listed.and_then(Found::digest) {
            evidence.add(&digest.evidence);
        }
    }
    evidence
}
