//! The properties block: reads what the table says of itself, and compares that with what was counted.

use std::ops::RangeInclusive;

use super::Verifier;
use super::report::Severity;
use crate::db::recognise::KeyKind;
use crate::error::Section;
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

/// A property that is a number: its name, what was counted and what is stated.
type Number = (&'static str, fn(&Summary) -> u64, fn(&Properties) -> u64);

const NUMBERS: [Number; 6] = [
    ("entries", |data| data.entries, |stated| stated.entries),
    (
        "key.bytes",
        |data| data.key_bytes,
        |stated| stated.key_bytes,
    ),
    (
        "value.bytes",
        |data| data.value_bytes,
        |stated| stated.value_bytes,
    ),
    (
        "data.blocks",
        |data| data.data_blocks,
        |stated| stated.data_blocks,
    ),
    (
        "data.bytes",
        |data| data.data_bytes,
        |stated| stated.data_bytes,
    ),
    (
        "deletions",
        |data| data.deletions,
        |stated| stated.deletions,
    ),
];

impl Verifier<'_, '_> {
    /// Reads the properties block at `handle`.
    pub(super) fn read_properties(
        &mut self,
        handle: BlockHandle,
        named_by: (Section, u64),
        named_surely: bool,
    ) {
        let loaded = self.load_named(handle, Section::Properties, named_by, named_surely);
        if let Some(loaded) = loaded.filter(|loaded| loaded.trusted) {
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
        let number = |number: u64| Some(number.to_string());
        let mut rows = Vec::new();
        if is_complete {
            for (name, counted, stated) in NUMBERS {
                rows.push((name, number(counted(&data)), number(stated(&properties))));
            }
            let min =
                |range: &Option<RangeInclusive<u64>>| Some(range.as_ref()?.start().to_string());
            let max = |range: &Option<RangeInclusive<u64>>| Some(range.as_ref()?.end().to_string());
            let (counted, stated) = (&data.sequences, &properties.sequences);
            rows.push(("sequence.min", min(counted), min(stated)));
            rows.push(("sequence.max", max(counted), max(stated)));
            // A longer one is left out.
            let short = |key: &Vec<u8>| key.len() <= MAX_KEY_LEN;
            let show = |key: Option<Vec<u8>>| key.map(|key| show_all(&key));
            let counted = (data.first_key.filter(short), data.last_key.filter(short));
            rows.push(("key.first", show(counted.0), show(properties.first_key)));
            rows.push(("key.last", show(counted.1), show(properties.last_key)));
        }
        if let Some(filters) = filters {
            let stated = properties.filter_policy.map(String::into_bytes);
            // Of several filters, the properties name one.
            let mut named = filters.iter();
            let named = named.find(|(policy, _)| Some(policy) == stated.as_ref());
            let (policy, bytes) = named.or(filters.first()).cloned().unzip();
            // The size of another filter says nothing.
            if policy == stated {
                let stated = properties.filter_bytes.and_then(number);
                rows.push(("filter.bytes", bytes.and_then(number), stated));
            }
            let show = |name: Option<Vec<u8>>| name.map(|name| show_all(&name));
            rows.push(("filter.policy", show(policy), show(stated)));
        }
        let none = || "none".to_owned();
        for (name, counted, stated) in rows {
            if counted != stated {
                let counted = counted.unwrap_or_else(none);
                let expected = format!("the property {name} {counted}, as the table has");
                let place = (Section::Properties, offset);
                let found = stated.unwrap_or_else(none);
                self.report.find(Severity::Damage, place, expected, found);
            }
        }
    }
}

/// A key or a name in full, in the form of [`show_key`](crate::error::show_key).
fn show_all(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}
