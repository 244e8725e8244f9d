//! What `info` finds out of a file, as it prints it in JSON.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use leveltable::db::InternalKey;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::Args;
use crate::notation::{Notation, key_json, quoted};
use crate::row::{Tag, type_name};
use crate::set::Shard;

/// The record of a file. Every record has all fields, of which those are null that do not apply.
#[derive(Default, Serialize)]
pub(crate) struct Record {
    pub(crate) file: String,
    pub(crate) error: Option<String>,
    pub(crate) file_bytes: Option<u64>,
    pub(crate) keys: Option<&'static str>,
    pub(crate) order_known: Option<bool>,
    pub(crate) comparator: Option<String>,
    pub(crate) entries: Option<u64>,
    pub(crate) first_key: Option<Key>,
    pub(crate) last_key: Option<Key>,
    /// Numbers that the properties of a table state, or that were counted.
    pub(crate) key_bytes: Option<u64>,
    pub(crate) value_bytes: Option<u64>,
    pub(crate) data_blocks: Option<usize>,
    pub(crate) data_stored_bytes: Option<u64>,
    /// Uncompressed size of the data blocks, and the codecs by their names, if they were read.
    pub(crate) data_bytes: Option<u64>,
    pub(crate) codecs: Option<BTreeMap<&'static str, Codec>>,
    pub(crate) sections: Option<Vec<Part>>,
    pub(crate) filter: Option<Filter>,
    pub(crate) prefix_filter: Option<OtherFilter>,
    /// The filters that the table was opened without, and why.
    pub(crate) unused_filters: Option<Vec<OtherFilter>>,
    /// Errors of what was read.
    pub(crate) unreadable: Option<Vec<String>>,
    /// The tables of a set.
    pub(crate) shards: Option<Vec<Shard>>,
    /// Of a database.
    pub(crate) last_sequence: Option<u64>,
    pub(crate) tables: Option<usize>,
    pub(crate) files: Value,
    pub(crate) logs: Value,
    pub(crate) left_out: Value,
    /// The data blocks, if they are to be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocks: Option<Option<Vec<Block>>>,
    /// Whether the metaindex is damaged, and whether there are data blocks that cannot be read.
    #[serde(skip)]
    pub(crate) has_damaged_metaindex: bool,
    #[serde(skip)]
    pub(crate) lacks_blocks: bool,
    /// Where the last readable data block ends, if all were read, and the bytes between them that keep the next one within its pages.
    #[serde(skip)]
    pub(crate) data_end: Option<u64>,
    #[serde(skip)]
    pub(crate) padding: u64,
}

impl Record {
    /// Returns the record of a file of which nothing is known. The data blocks are a field only if they are asked for.
    pub(super) fn new(path: &Path, args: &Args) -> Record {
        Record {
            file: path.to_string_lossy().into_owned(),
            blocks: args.blocks.then_some(None),
            ..Record::default()
        }
    }
}

/// A key, with sequence number and type in a table of a database. One without is also read.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct Key {
    pub(crate) key: Bytes,
    tag: Option<Tag>,
}

impl Key {
    /// Returns what a table stores as `stored`.
    pub(crate) fn of(stored: &[u8], is_database: bool) -> Key {
        let parsed = InternalKey::parse(stored).filter(|_| is_database);
        Key {
            key: Bytes::copy_from_slice(parsed.map_or(stored, |key| key.user_key)),
            tag: parsed.map(|key| (key.sequence, key.value_type)),
        }
    }

    /// Returns the key as text, cut to fit a line.
    pub(crate) fn show(&self) -> String {
        match self.tag {
            Some((sequence, value_type)) => {
                let key = quoted(&self.key, 36);
                format!("{key}, sequence {sequence}, {}", type_name(value_type))
            }
            None => quoted(&self.key, 64),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Written {
    Key(String),
    KeyHex(String),
}

impl TryFrom<Written> for Key {
    type Error = String;

    fn try_from(written: Written) -> Result<Key, String> {
        let key = match written {
            Written::Key(text) => text.into_bytes(),
            Written::KeyHex(digits) => Notation::Hex.parse(digits.as_bytes())?,
        };
        Ok(Key::of(&key, false))
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = key_json(&self.key);
        if let (Some((sequence, value_type)), Some(object)) = (self.tag, json.as_object_mut()) {
            object.insert("sequence".into(), json!(sequence));
            object.insert("type".into(), json!(type_name(value_type)));
        }
        json.serialize(serializer)
    }
}

/// A stretch of a table's file.
#[derive(Serialize)]
pub(crate) struct Part {
    pub(crate) section: &'static str,
    pub(crate) offset: u64,
    pub(crate) stored_bytes: u64,
    #[serde(skip)]
    pub(crate) what: String,
}

impl Part {
    pub(super) fn new(section: &'static str, offset: u64, stored_bytes: u64, what: &str) -> Part {
        Part {
            section,
            offset,
            stored_bytes,
            what: what.to_owned(),
        }
    }
}

/// The blocks that use one codec.
#[derive(Default, Serialize)]
pub(crate) struct Codec {
    pub(crate) blocks: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) bytes: u64,
}

#[derive(Default, Serialize)]
pub(crate) struct Filter {
    pub(crate) policy: String,
    pub(crate) bytes: u64,
    pub(crate) bits_per_key: Option<f64>,
    pub(crate) filters: Option<usize>,
    pub(crate) whole_table: Option<bool>,
    pub(crate) false_positive_rate: Option<f64>,
    pub(crate) sampled_keys: Option<u64>,
}

/// A filter of prefixes, which has an extractor, or one that is not used.
#[derive(Default, Serialize)]
pub(crate) struct OtherFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) extractor: Option<String>,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Block {
    pub(crate) offset: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) codec: &'static str,
    pub(crate) entries: u64,
    pub(crate) first_key: Option<Key>,
}
