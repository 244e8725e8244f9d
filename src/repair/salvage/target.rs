//! Whether the builder is one for the kind and the order of the damaged table.

use super::found::Found;
use super::kinds::Kinds;
use super::survey::Survey;
use crate::comparator::Order;
use crate::error::{Error, ErrorKind, Result, show_key};
use crate::format::internal_key::user_order;
use crate::format::properties::KeyKind;
use crate::read::recognise::Evidence;

/// Refuses a builder for the other kind of table. `named` is the kind of keys that the caller named.
pub(super) fn check_kind(
    survey: &Survey<'_>,
    kinds: &Kinds<'_>,
    named: Option<KeyKind>,
) -> Result<()> {
    let built = match survey.order() {
        Order::Bytewise => KeyKind::Plain,
        order if order.shortens_filter_keys() => KeyKind::Database,
        // Another order tells nothing about the kind.
        _ => return Ok(()),
    };
    let evidence = evidence(survey, kinds);
    let stated = kinds.properties.as_ref();
    let stated = stated.map(|properties| properties.key_kind);
    // With its index a database's table has lost what tells it from a plain one with the same keys.
    let is_unclear = || kinds.index.is_none() && evidence.may_hold_internal_keys();
    let (kind, why) = match (built, named.or(stated).or(evidence.verdict())) {
        (KeyKind::Plain, Some(KeyKind::Database)) => (
            ErrorKind::DatabaseTable,
            "this table belongs to a LevelDB database (its keys end in a sequence number and a type): salvage it \
             with a DbTableBuilder",
        ),
        (KeyKind::Plain, None) if is_unclear() => (
            ErrorKind::DatabaseTable,
            "this table may belong to a LevelDB database (each key ends in what may be a sequence number and a \
             type): salvage it with a DbTableBuilder, or say that its keys are plain",
        ),
        (KeyKind::Database, Some(KeyKind::Plain)) => (
            ErrorKind::Comparator,
            "the keys of this table are not a database's: salvage it with a TableBuilder",
        ),
        _ => return Ok(()),
    };
    Err(Error::new(kind, why))
}

/// The error where the order is not the builder's, and the new table cannot say so.
pub(super) fn order_cannot_be_said(survey: &Survey<'_>, kinds: &Kinds<'_>) -> Error {
    let stated = kinds.properties.as_ref().filter(|_| kinds.is_other_order);
    let why = match stated {
        Some(stated) => {
            let name = show_key(stated.comparator.as_bytes());
            format!("this table is ordered by {name}")
        }
        None => {
            let order = user_order(survey.order()).unwrap_or(survey.order());
            let name = order.comparator().name();
            format!("the keys of this table do not ascend under comparator {name:?}")
        }
    };
    Error::new(
        ErrorKind::Comparator,
        format!(
            "{why}, and the new table has no properties to say so: build it with the comparator that the old one was \
             written with, or with properties, or let salvage copy it in its stored order"
        ),
    )
}

/// The kind of keys that the table seems to hold.
pub(super) fn kind(survey: &Survey<'_>, kinds: &Kinds<'_>) -> KeyKind {
    match &kinds.properties {
        Some(properties) => properties.key_kind,
        None => evidence(survey, kinds).kind(),
    }
}

/// What the table's keys say about its kind.
fn evidence(survey: &Survey<'_>, kinds: &Kinds<'_>) -> Evidence {
    let mut evidence = Evidence::default();
    let Some(index) = &kinds.index else {
        let data = survey.data().filter_map(Found::data);
        data.for_each(|digest| evidence.add(&digest.evidence));
        return evidence;
    };
    for (key, block) in index.keys.iter().zip(&index.blocks) {
        evidence.add_index_key(key);
        if let Some(digest) = block.and_then(Found::digest) {
            evidence.add(&digest.evidence);
        }
    }
    evidence
}
