//! The properties block: reads what the table says of itself, and compares that with what was counted.

use std::ops::RangeInclusive;

use super::Verifier;
use super::report::Severity;
use crate::db::recognise::KeyKind;
use crate::error::{Section, show_key};
use crate::format::footer::BlockHandle;
use crate::format::properties::{MAX_KEY_LEN, Properties};
use crate::write::summary::Summary;

/// What the table says of itself, and where.
pub(super) struct Stated {
    properties: Properties,
    offset: u64,
}

impl Stated {
    pub(super) fn key_kind(&self) -> KeyKind {
        self.properties.key_kind
    }

    /// The name of the order that the table is in.
    pub(super) fn comparator(&self) -> &str {
        &self.properties.comparator
    }
}

/// What the table holds, in the terms of its properties.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) data: Summary,
    /// Whether `data` is of all data blocks: none of them is damaged, and nor is the index.
    pub(super) is_complete: bool,
    /// Name of the policy and size of each filter; `None` if the metaindex is damaged.
    pub(super) filters: Option<Vec<(Vec<u8>, u64)>>,
}

impl Counted {
    /// Counts an entry. `is_database`: whether its key holds a sequence number.
    #[inline]
    pub(super) fn add_entry(&mut self, key: &[u8], value: &[u8], is_database: bool) {
        self.data.entries += 1;
        self.data.key_bytes += key.len() as u64;
        self.data.value_bytes += value.len() as u64;
        if is_database {
            self.data.add_version(key);
        }
    }
}

impl Verifier<'_, '_> {
    /// Reads the properties block at `handle`.
    pub(super) fn read_properties(
        &mut self,
        handle: BlockHandle,
        named_by: (Section, u64),
        named_surely: bool,
    ) {
        // Otherwise the handle may be rubbish, unless it leads to a sound block.
        if (named_surely || self.try_frame(handle).is_some())
            && let Some(loaded) = self.load(handle, Section::Properties, named_by)
            && loaded.trusted
        {
            let offset = handle.offset;
            match Properties::decode(&loaded.payload) {
                Ok(properties) => self.stated = Some(Stated { properties, offset }),
                Err(defect) => self
                    .report
                    .find_defect((Section::Properties, offset), defect),
            }
        }
    }

    /// Compares the properties with what was counted, as far as that is complete.
    pub(super) fn compare_properties(&mut self) {
        let Some(Stated { properties, offset }) = self.stated.take() else {
            return;
        };
        let Counted {
            data,
            is_complete,
            filters,
        } = std::mem::take(&mut self.counted);
        let mut disagreements = Vec::new();
        if is_complete {
            let (min, max) = ends(data.sequences);
            let (stated_min, stated_max) = ends(properties.sequences);
            let number = |name, counted, stated| differ(name, counted, stated, u64::to_string);
            // A longer one is left out.
            let short = |key: Option<Vec<u8>>| key.filter(|key| key.len() <= MAX_KEY_LEN);
            let key =
                |name, counted, stated| differ(name, short(counted), stated, |key| show_key(key));
            let found = [
                number("entries", Some(data.entries), Some(properties.entries)),
                number(
                    "key.bytes",
                    Some(data.key_bytes),
                    Some(properties.key_bytes),
                ),
                number(
                    "value.bytes",
                    Some(data.value_bytes),
                    Some(properties.value_bytes),
                ),
                number(
                    "data.blocks",
                    Some(data.data_blocks),
                    Some(properties.data_blocks),
                ),
                number(
                    "data.bytes",
                    Some(data.data_bytes),
                    Some(properties.data_bytes),
                ),
                number(
                    "deletions",
                    Some(data.deletions),
                    Some(properties.deletions),
                ),
                number("sequence.min", min, stated_min),
                number("sequence.max", max, stated_max),
                key("key.first", data.first_key, properties.first_key),
                key("key.last", data.last_key, properties.last_key),
            ];
            disagreements.extend(found.into_iter().flatten());
        }
        if let Some(filters) = filters {
            let stated = properties.filter_policy.map(String::into_bytes);
            // Of several filters, the properties name one.
            let named = filters
                .iter()
                .find(|(policy, _)| Some(policy) == stated.as_ref());
            let (policy, bytes) = named.or(filters.first()).cloned().unzip();
            let policies = differ("filter.policy", policy, stated, |name| show_key(name));
            // The size of another filter says nothing.
            let stated = properties.filter_bytes;
            let sizes = || differ("filter.bytes", bytes, stated, u64::to_string);
            disagreements.extend(policies.or_else(sizes));
        }
        for (counted, stated) in disagreements {
            let place = (Section::Properties, offset);
            self.report.find(Severity::Damage, place, counted, stated);
        }
    }
}

fn ends(range: Option<RangeInclusive<u64>>) -> (Option<u64>, Option<u64>) {
    range.map(RangeInclusive::into_inner).unzip()
}

/// What was expected and what was found if the property `name` is not what was counted.
fn differ<T: PartialEq>(
    name: &str,
    counted: Option<T>,
    stated: Option<T>,
    show: impl Fn(&T) -> String,
) -> Option<(String, String)> {
    let show = |value: &Option<T>| value.as_ref().map_or_else(|| "none".into(), &show);
    (counted != stated).then(|| {
        let expected = format!("the property {name} {}, as the table has", show(&counted));
        (expected, show(&stated))
    })
}
