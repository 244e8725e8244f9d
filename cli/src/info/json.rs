//! The JSON object that `info` prints of a table.

use std::collections::BTreeMap;

use leveltable::db::InternalKey;
use leveltable::inspect::BlockInfo;
use serde_json::{Map, Value, json};

use super::{Anatomy, CodecUse};
use crate::open::{Order, type_name};
use crate::output::file_record;

impl Anatomy<'_> {
    /// Returns the object. What was not measured is null.
    pub(super) fn to_json(&self) -> Value {
        let measured = self.measured.as_ref();
        let sections = self.parts().into_iter().map(
            |part| json!({"section": part.name, "offset": part.offset, "stored_bytes": part.bytes}),
        );
        let (first, last) = self.key_range.clone().unzip();
        let prefixes = self.table.prefix_filter();
        let order_known = match self.order {
            Order::Certain => Some(true),
            Order::Assumed => None,
            Order::Unknown => Some(false),
        };
        let mut json = json!({
            "file_bytes": self.table.file_bytes(),
            "keys": if self.is_database { "database" } else { "plain" },
            "order_known": order_known,
            "comparator": self.comparator(),
            "entries": self.entries,
            "key_bytes": self.key_bytes,
            "value_bytes": self.value_bytes,
            "first_key": first.map(|key| self.key_to_json(&key)),
            "last_key": last.map(|key| self.key_to_json(&key)),
            "data_blocks": self.table.data_blocks(),
            "data_stored_bytes": self.data_stored_bytes,
            "data_bytes": measured.map(|measured| measured.bytes),
            "codecs": measured.map(|measured| codecs_to_json(&measured.codecs)),
            "sections": sections.collect::<Vec<_>>(),
            "filter": self.filter_to_json(),
            "prefix_filter": prefixes.map(|prefixes| {
                json!({"extractor": prefixes.extractor, "bytes": prefixes.bytes})
            }),
            "unused_filters": self.unused_filters_to_json(),
            "unreadable": self.all_faults().collect::<Vec<_>>(),
        });
        if let (true, Some(object)) = (self.args.blocks, json.as_object_mut()) {
            let blocks = measured.iter().flat_map(|measured| &measured.blocks);
            let blocks = blocks.map(|block| self.block_to_json(block));
            object.insert("blocks".into(), blocks.collect());
        }
        file_record(self.path, self.args.fields(), json)
    }

    fn filter_to_json(&self) -> Option<Value> {
        let rate = self
            .measured
            .as_ref()
            .and_then(|measured| measured.filter_rate);
        let layout = (self.measured.as_ref()).and_then(|measured| measured.filter_layout);
        self.filter.as_ref().map(|filter| {
            json!({
                "policy": filter.policy,
                "bytes": filter.bytes,
                "filters": layout.map(|layout| layout.filters),
                "whole_table": layout.map(|layout| layout.whole_table),
                "bits_per_key": self.entries.map(|n| filter.bits_per_key(n)),
                "false_positive_rate": rate.map(|rate| rate.false_positive_rate()),
                "sampled_keys": rate.map(|rate| rate.sampled_keys),
            })
        })
    }

    fn unused_filters_to_json(&self) -> Vec<Value> {
        let unused = self.unused_filters().into_iter();
        unused
            .map(|(filter, why)| match &filter.prefixes {
                None => json!({"policy": filter.policy, "bytes": filter.bytes, "why": why}),
                Some(extractor) => {
                    json!({"extractor": extractor, "bytes": filter.bytes, "why": why})
                }
            })
            .collect()
    }

    fn block_to_json(&self, block: &BlockInfo) -> Value {
        let first = block.key_range.as_ref().map(|(first, _)| first);
        json!({
            "offset": block.offset,
            "stored_bytes": block.stored_bytes,
            "bytes": block.bytes,
            "codec": block.codec,
            "entries": block.entries,
            "first_key": first.map(|key| self.key_to_json(key)),
        })
    }

    /// Returns a key with the fields that `scan --json` prints.
    fn key_to_json(&self, key: &[u8]) -> Value {
        let parsed = InternalKey::parse(key).filter(|_| self.is_database);
        let user_key = parsed.map_or(key, |parsed| parsed.user_key);
        let mut json = key_json(user_key);
        if let (Some(parsed), Some(object)) = (parsed, json.as_object_mut()) {
            object.insert("sequence".into(), parsed.sequence.into());
            object.insert("type".into(), type_name(parsed.value_type).into());
        }
        json
    }
}

fn codecs_to_json(codecs: &BTreeMap<&'static str, CodecUse>) -> Value {
    let codec = |(&name, codec): (&&str, &CodecUse)| {
        let CodecUse {
            blocks,
            stored_bytes,
            bytes,
        } = codec;
        let codec = json!({"blocks": blocks, "stored_bytes": stored_bytes, "bytes": bytes});
        (name.to_owned(), codec)
    };
    Value::Object(codecs.iter().map(codec).collect::<Map<_, _>>())
}

/// Returns a key without sequence number with the field that `scan --json` prints.
pub(crate) fn key_json(key: &[u8]) -> Value {
    match std::str::from_utf8(key) {
        Ok(text) => json!({"key": text}),
        Err(_) => {
            let hex: String = key.iter().map(|b| format!("{b:02x}")).collect();
            json!({"key_hex": hex})
        }
    }
}
