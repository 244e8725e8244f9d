//! The properties block: reads what the table says of itself, and compares that with what was counted.

use bytes::Bytes;

use super::Verifier;
use super::blocks::NamedBy;
use super::report::Severity;
use crate::error::Section;
use crate::format::footer::BlockHandle;
use crate::format::frame::TRAILER_LEN;
use crate::format::properties::KeyKind;
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

    /// Counts the data block at `handle`, as the index has it.
    pub(super) fn add_block(&mut self, handle: BlockHandle) {
        let len = handle.size.saturating_add(TRAILER_LEN as u64);
        self.data.data_bytes = self.data.data_bytes.saturating_add(len);
    }

    /// The properties that the table should have: `stated`, but for what was counted.
    fn into_properties(self, mut stated: Properties) -> Properties {
        if let Some(filters) = self.filters {
            // Of several filters, the properties name one.
            let name = |filter: &(Vec<u8>, u64)| String::from_utf8_lossy(&filter.0).into_owned();
            let is_named = |filter: &&(Vec<u8>, u64)| Some(name(filter)) == stated.filter_policy;
            let named = filters.iter().find(is_named);
            // The size of another filter says nothing.
            if let Some((_, bytes)) = named {
                stated.filter_bytes = Some(*bytes);
            } else if filters.is_empty() && stated.filter_policy.is_none() {
                stated.filter_bytes = None;
            } else {
                stated.filter_policy = filters.first().map(name);
            }
        }
        if !self.is_complete {
            return stated;
        }
        // A longer one is left out.
        let short = |key: &Vec<u8>| key.len() <= MAX_KEY_LEN;
        Properties {
            entries: self.data.entries,
            key_bytes: self.data.key_bytes,
            value_bytes: self.data.value_bytes,
            data_blocks: self.data.data_blocks,
            data_bytes: self.data.data_bytes,
            deletions: self.data.deletions,
            sequences: self.data.sequences,
            first_key: self.data.first_key.filter(short),
            last_key: self.data.last_key.filter(short),
            ..stated
        }
    }
}

impl Verifier<'_, '_> {
    /// Reads the properties block at `handle`.
    pub(super) fn read_properties(&mut self, handle: BlockHandle, named_by: NamedBy) {
        let decode = |block: Bytes| Properties::decode(&block);
        let loaded = self.load_as(handle, Section::Properties, named_by, decode);
        if let Some((properties, true)) = loaded {
            let offset = handle.offset;
            self.stated = Some(Stated { properties, offset });
        }
    }

    /// Compares the properties with what was counted, as far as that is complete.
    pub(super) fn compare_properties(&mut self) {
        let Some(Stated { properties, offset }) = self.stated.take() else {
            return;
        };
        let stated = rows(&properties);
        let counted = std::mem::take(&mut self.counted).into_properties(properties);
        let none = || "none".to_owned();
        for ((name, counted), (_, stated)) in rows(&counted).into_iter().zip(stated) {
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

/// What can be counted of a table, in words.
fn rows(properties: &Properties) -> [(&'static str, Option<String>); 12] {
    let number = |number: u64| Some(number.to_string());
    let key = |key: &Option<Vec<u8>>| key.as_ref().map(|key| show_all(key));
    let sequences = properties.sequences.as_ref();
    let policy = properties.filter_policy.as_ref();
    [
        ("entries", number(properties.entries)),
        ("key.bytes", number(properties.key_bytes)),
        ("value.bytes", number(properties.value_bytes)),
        ("data.blocks", number(properties.data_blocks)),
        ("data.bytes", number(properties.data_bytes)),
        ("deletions", number(properties.deletions)),
        (
            "sequence.min",
            sequences.and_then(|range| number(*range.start())),
        ),
        (
            "sequence.max",
            sequences.and_then(|range| number(*range.end())),
        ),
        ("key.first", key(&properties.first_key)),
        ("key.last", key(&properties.last_key)),
        ("filter.bytes", properties.filter_bytes.and_then(number)),
        (
            "filter.policy",
            policy.map(|policy| show_all(policy.as_bytes())),
        ),
    ]
}

/// A key or a name in full, in the form of [`show_key`](crate::error::show_key).
fn show_all(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}
