//! A key in the JSON of `info`, `build` and manifests.

use bytes::Bytes;
use leveltable::db::InternalKey;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use crate::notation::{Notation, key_json, quoted};
use crate::row::{Tag, type_name};

/// A key, with sequence number and type in a table of a database. Keys without these can also be read.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Written")]
pub(crate) struct Key {
    pub(crate) key: Bytes,
    tag: Option<Tag>,
}

impl Key {
    /// Returns the key that a table stores as `stored`.
    pub(crate) fn of(stored: &[u8], is_database: bool) -> Key {
        let parsed = InternalKey::parse(stored).filter(|_| is_database);
        Key {
            key: Bytes::copy_from_slice(parsed.map_or(stored, |key| key.user_key)),
            tag: parsed.map(|key| (key.sequence, key.value_type)),
        }
    }

    /// Returns the key as text, shortened to fit into a line.
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
