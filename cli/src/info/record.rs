//! The results of `info` for a file, as JSON: a record for each kind of file, with its own fields.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::key::Key;

/// The result of `info` for a table, a database or a set.
#[derive(Default)]
pub(super) struct Described {
    /// The kind of file; null if it cannot be read.
    pub(super) kind: Option<&'static str>,
    /// The fields of this kind.
    pub(super) record: Value,
    pub(super) lines: Vec<String>,
    /// Errors of reading its parts.
    pub(super) unreadable: Vec<String>,
}

impl Described {
    /// Returns the line of JSON of the file at `path`, which could not be read if there is an `error`.
    pub(super) fn json(&self, path: &Path, error: Option<String>) -> String {
        let file = path.to_string_lossy();
        let mut line = json!({"file": file, "kind": self.kind, "error": error});
        if let (Some(line), Some(fields)) = (line.as_object_mut(), self.record.as_object()) {
            line.extend(fields.clone());
        }
        format!("{line}\n")
    }
}

/// The record of a table. Fields that were not measured are null.
#[derive(Default, Serialize)]
pub(super) struct TableRecord {
    pub(super) file_bytes: u64,
    pub(super) keys: &'static str,
    pub(super) order_known: Option<bool>,
    pub(super) comparator: Option<String>,
    pub(super) entries: Option<u64>,
    pub(super) first_key: Option<Key>,
    pub(super) last_key: Option<Key>,
    /// Numbers from the properties, or counted.
    pub(super) key_bytes: Option<u64>,
    pub(super) value_bytes: Option<u64>,
    pub(super) data_blocks: usize,
    pub(super) data_stored_bytes: Option<u64>,
    /// Uncompressed size of the data blocks, and the codecs by their names, if the blocks were read.
    pub(super) data_bytes: Option<u64>,
    pub(super) codecs: Option<BTreeMap<&'static str, Codec>>,
    pub(super) sections: Vec<FileSection>,
    pub(super) filter: Option<Filter>,
    pub(super) prefix_filter: Option<OtherFilter>,
    /// The filters that are not in use, and why.
    pub(super) unused_filters: Vec<OtherFilter>,
    /// Errors of reading its parts.
    pub(super) unreadable: Vec<String>,
    /// The data blocks, if they are to be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) blocks: Option<Vec<Block>>,
    /// Whether the metaindex is damaged, and whether some data blocks cannot be read.
    #[serde(skip)]
    pub(super) has_damaged_metaindex: bool,
    #[serde(skip)]
    pub(super) lacks_blocks: bool,
    /// The end of the last readable data block, if all were read, and the total padding between blocks.
    #[serde(skip)]
    pub(super) data_end: Option<u64>,
    #[serde(skip)]
    pub(super) padding: u64,
}

/// A part of a table's file.
#[derive(Serialize)]
pub(super) struct FileSection {
    pub(super) section: &'static str,
    pub(super) offset: u64,
    pub(super) stored_bytes: u64,
    #[serde(skip)]
    pub(super) what: String,
}

impl FileSection {
    pub(super) fn new(
        section: &'static str,
        offset: u64,
        stored_bytes: u64,
        what: &str,
    ) -> FileSection {
        FileSection {
            section,
            offset,
            stored_bytes,
            what: what.to_owned(),
        }
    }
}

/// The blocks that use one codec.
#[derive(Default, Serialize)]
pub(super) struct Codec {
    pub(super) blocks: u64,
    pub(super) stored_bytes: u64,
    pub(super) bytes: u64,
}

#[derive(Default, Serialize)]
pub(super) struct Filter {
    pub(super) policy: String,
    pub(super) bytes: u64,
    pub(super) bits_per_key: Option<f64>,
    pub(super) false_positive_rate: Option<f64>,
    pub(super) sampled_keys: Option<u64>,
}

/// A filter of prefixes, which has an extractor, or a filter that is not in use.
#[derive(Default, Serialize)]
pub(super) struct OtherFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extractor: Option<String>,
    pub(super) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) stored_bytes: u64,
    pub(super) bytes: u64,
    pub(super) codec: &'static str,
    pub(super) entries: u64,
    pub(super) first_key: Option<Key>,
}
