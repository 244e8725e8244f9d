//! The properties block: a table's description of itself.
//!
//! A block of sorted entries like any other, all keys stored whole (restart interval 1). The metaindex lists it as
//! [`PROPERTIES_NAME`]. It lies near the end of the file, so that one read gets both.
//!
//! ```text
//! comparator    name of the keys' order; in a database's table, of the user keys' order
//! creator       program, and the first version of it that wrote this version of the format
//! data.blocks   number of data blocks
//! data.bytes    what they take in the file, trailers included
//! deletions     number of entries that are deletions          (database)
//! entries       number of entries
//! filter.bytes  size of the filter block, without its trailer (with a filter)
//! filter.policy name of its policy                            (with a filter)
//! key.bytes     bytes of all keys
//! key.first     the first key as it is stored                 (with entries; up to 4096 bytes)
//! key.kind      "plain", or "database": keys end in a sequence number and a type
//! key.last      the last key as it is stored                  (with entries; up to 4096 bytes)
//! sequence.max  largest sequence number                       (database, with entries)
//! sequence.min  smallest sequence number                      (database, with entries)
//! user.*        whatever the application added
//! value.bytes   bytes of all values
//! ```
//!
//! Numbers are varints; everything else is text, or keys as stored. A reader ignores keys that it does not know.
//!
//! # A worked example
//!
//! The block of the table in [`format`](super), as version 0.1.0 would write it with a `schema` added by the application.
//! Each entry has three lengths (nothing shared, key, value), its key and its value:
//!
//! ```text
//! offset  bytes
//!      0  00 0a 1a  "comparator"  "leveldb.BytewiseComparator"
//!     39  00 07 10  "creator"  "leveltable 0.1.0"
//!     65  00 0b 01  "data.blocks"  01     one block
//!     80  00 0a 01  "data.bytes"  26     of 38 bytes, trailer included
//!     94  00 07 01  "entries"  02     two entries
//!    105  00 09 01  "key.bytes"  0c     keys of 12 bytes, all together
//!    118  00 09 05  "key.first"  "apple"
//!    135  00 08 05  "key.kind"  "plain"
//!    151  00 08 07  "key.last"  "apricot"
//!    169  00 0b 02  "user.schema"  "v3"
//!    185  00 0b 01  "value.bytes"  09     values of nine bytes
//!    200  00 00 00 00  27 00 00 00  41 00 00 00  50 00 00 00  5e 00 00 00  69 00 00 00  restarts: each
//!    224  76 00 00 00  87 00 00 00  97 00 00 00  a9 00 00 00  b9 00 00 00  0b 00 00 00  key; their number
//! ```
//!
//! This module's test checks the example against the encoder.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::Defect;
use super::block::{Block, BlockBuilder, check_shared};
use super::internal_key::{InternalKey, ValueType, user_order};
use crate::coding::{get_varint64, put_varint};
use crate::comparator::Order;
use crate::error::{Error, ErrorKind, show_key};

/// The `creator` of version 1 of the format: the first version of this crate that wrote it. The writing version must not be in the file, or
/// each release would write different bytes.
const CREATOR: &str = "leveltable 0.1.0";

/// The block's name in the metaindex.
///
/// It sorts before all filters: some readers take any entry at or after their filter's name for the filter.
pub(crate) const PROPERTIES_NAME: &[u8] = b"about.leveltable";

/// Longer first or last keys are left out, since opening a table reads the block.
pub(crate) const MAX_KEY_LEN: usize = 4096;

/// Limit for an application's names and values, in bytes.
const MAX_USER_BYTES: usize = 16 << 20;

const USER_PREFIX: &[u8] = b"user.";

/// The kind of keys that a table holds; see [`Properties::key_kind`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// Plain keys, as the application chose them.
    #[default]
    Plain,
    /// Internal keys of a LevelDB database: a user key, a sequence number and a type.
    Database,
}

/// A table's own description; see [`Table::properties`](crate::Table::properties), and
/// [`WriteOptions::properties`](crate::WriteOptions::properties) for writing it.
///
/// The writer is trusted: the block's checksum covers it, but only `verify` of the crate `leveltable-repair` compares it with the
/// table's entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Name of the comparator; in a database's table, of that for user keys.
    pub comparator: String,
    /// Whether keys are an application's own or a database's.
    pub key_kind: KeyKind,
    /// The program that wrote the table, and the first version of it that wrote this version of the format: `leveltable 0.1.0`.
    pub creator: Option<String>,
    /// Number of entries.
    pub entries: u64,
    /// The first key as stored; `None` without entries, or if it is longer than 4096 bytes.
    pub first_key: Option<Vec<u8>>,
    /// The last key as stored; `None` without entries, or if it is longer than 4096 bytes.
    pub last_key: Option<Vec<u8>>,
    /// Total length of all keys, in bytes.
    pub key_bytes: u64,
    /// Total length of all values, in bytes.
    pub value_bytes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Size of the data blocks in the file, in bytes: compressed, with their trailers.
    pub data_bytes: u64,
    /// Name of the filter's policy, if there is a filter.
    pub filter_policy: Option<String>,
    /// Size of the filter block, in bytes.
    pub filter_bytes: Option<u64>,
    /// Smallest and largest sequence number; `None` in a plain or an empty table.
    pub sequences: Option<RangeInclusive<u64>>,
    /// Number of entries that are deletions; 0 in a plain table.
    pub deletions: u64,
    /// Properties of the application under `user.`, and those that this version does not know.
    pub(crate) others: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Properties {
    /// Returns the value that the application stored under `name`; see [`TableBuilder::property`](crate::TableBuilder::property).
    pub fn user(&self, name: &str) -> Option<&[u8]> {
        self.others.get(&user_key(name)).map(Vec::as_slice)
    }

    /// All properties that the application stored, in bytewise order of their names; see [`user`](Properties::user).
    pub fn user_properties(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.others.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(USER_PREFIX)?;
            Some((name, &value[..]))
        })
    }

    /// Bytes of memory that this takes, apart from the structure itself.
    pub(crate) fn weight(&self) -> usize {
        let texts = [&self.creator, &self.filter_policy];
        let keys = [&self.first_key, &self.last_key];
        let texts = texts.into_iter().flatten().map(String::capacity);
        let keys = keys.into_iter().flatten().map(Vec::capacity);
        let others = self.others.iter();
        let others = others.map(|(name, value)| name.capacity() + value.capacity());
        // A node of the map has room for eleven.
        let node = 11 * size_of::<(Vec<u8>, Vec<u8>)>() + 2 * size_of::<usize>();
        let nodes = self.others.len().div_ceil(11) * node;
        self.comparator.capacity() + nodes + texts.chain(keys).chain(others).sum::<usize>()
    }

    /// The properties of a table without entries whose keys are in `order`.
    pub(crate) fn of_order(order: &Order) -> Properties {
        let (key_kind, order) = match user_order(order) {
            Some(user) => (KeyKind::Database, user),
            None => (KeyKind::Plain, order),
        };
        Properties {
            comparator: order.comparator().name().to_owned(),
            key_kind,
            creator: Some(CREATOR.into()),
            ..Properties::default()
        }
    }

    /// Stores a property of the application. Replaces an earlier one of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`]: the properties of the application would take more than [`MAX_USER_BYTES`].
    pub(crate) fn set_user(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        let key = user_key(name);
        let others = self.others.iter().filter(|(other, _)| **other != key);
        let others: usize = others.map(|(key, value)| key.len() + value.len()).sum();
        if others + key.len() + value.len() > MAX_USER_BYTES {
            let message = format!(
                "the property {name:?} of {} bytes does not fit the {MAX_USER_BYTES} bytes of all, of which {others} are taken",
                value.len()
            );
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        self.others.insert(key, value.to_vec());
        Ok(())
    }

    /// Counts an entry of a table, after those before it.
    #[inline(always)] // in the loop of every build
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        if self.entries == 0 {
            self.first_key = Some(key.to_vec());
        }
        self.entries += 1;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        if self.key_kind == KeyKind::Database {
            self.add_version(key);
        }
    }

    /// Counts the stored key of an entry in a database's table. A key that is not an internal key is ignored.
    fn add_version(&mut self, stored: &[u8]) {
        let Some(key) = InternalKey::parse(stored) else {
            return;
        };
        let (seen, sequence) = (self.sequences.clone(), key.sequence);
        let seen = seen.unwrap_or(sequence..=sequence);
        self.sequences = Some(sequence.min(*seen.start())..=sequence.max(*seen.end()));
        self.deletions += u64::from(key.value_type == ValueType::Deletion);
    }

    /// Returns the block; `None` if it exceeds 4 GiB, the limit for a block.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let is_database = self.key_kind == KeyKind::Database;
        let kind = if is_database { "database" } else { "plain" };
        let number = |number| {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            Some(bytes)
        };
        let text = |text: &Option<String>| text.clone().map(String::into_bytes);
        let key = |key: &Option<Vec<u8>>| key.clone().filter(|key| key.len() <= MAX_KEY_LEN);
        let bounds = self.sequences.as_ref();
        let properties = [
            ("comparator", Some(self.comparator.clone().into())),
            ("creator", text(&self.creator)),
            ("data.blocks", number(self.data_blocks)),
            ("data.bytes", number(self.data_bytes)),
            ("deletions", number(self.deletions).filter(|_| is_database)),
            ("entries", number(self.entries)),
            ("filter.bytes", self.filter_bytes.and_then(number)),
            ("filter.policy", text(&self.filter_policy)),
            ("key.bytes", number(self.key_bytes)),
            ("key.first", key(&self.first_key)),
            ("key.kind", Some(kind.into())),
            ("key.last", key(&self.last_key)),
            ("sequence.max", bounds.and_then(|at| number(*at.end()))),
            ("sequence.min", bounds.and_then(|at| number(*at.start()))),
            ("value.bytes", number(self.value_bytes)),
        ];
        let mut stored = self.others.clone();
        stored.extend(
            properties
                .into_iter()
                .filter_map(|(name, value)| Some((name.into(), value?))),
        );
        let mut block = BlockBuilder::new(1);
        for (key, value) in &stored {
            if !block.has_room(key.len(), value.len()) {
                return None;
            }
            block.add(key, 0, value);
        }
        Some(block.finish(<[u8]>::to_vec))
    }

    /// Decodes a properties block, which need not be trustworthy. [`Entries`](super::Entries) shows how to find it.
    ///
    /// # Errors
    ///
    /// A property is missing or malformed.
    pub fn decode(block: &[u8]) -> Result<Properties, Defect> {
        let mut stored = Stored::read(block)?;
        let min = stored.number("sequence.min")?;
        let sequences = min.zip(stored.number("sequence.max")?);
        let kind = required("key.kind", stored.text("key.kind")?)?;
        Ok(Properties {
            comparator: required("comparator", stored.text("comparator")?)?,
            key_kind: match &*kind {
                "plain" => KeyKind::Plain,
                "database" => KeyKind::Database,
                _ => {
                    let found = show_key(kind.as_bytes());
                    return Err(Defect::new("key.kind plain or database", found));
                }
            },
            creator: stored.text("creator")?,
            entries: required("entries", stored.number("entries")?)?,
            first_key: stored.0.remove(&b"key.first"[..]),
            last_key: stored.0.remove(&b"key.last"[..]),
            key_bytes: required("key.bytes", stored.number("key.bytes")?)?,
            value_bytes: required("value.bytes", stored.number("value.bytes")?)?,
            data_blocks: required("data.blocks", stored.number("data.blocks")?)?,
            data_bytes: required("data.bytes", stored.number("data.bytes")?)?,
            filter_policy: stored.text("filter.policy")?,
            filter_bytes: stored.number("filter.bytes")?,
            sequences: sequences.map(|(min, max)| min..=max),
            deletions: stored.number("deletions")?.unwrap_or(0),
            // Collected again, because a map keeps the memory of removed entries.
            others: stored.0.into_iter().collect(),
        })
    }
}

/// The key of the application's property `name`.
fn user_key(name: &str) -> Vec<u8> {
    [USER_PREFIX, name.as_bytes()].concat()
}

fn required<T>(key: &str, value: Option<T>) -> Result<T, Defect> {
    value.ok_or_else(|| Defect::new(format!("the property {key}"), "none"))
}

/// The entries of a properties block that have not been taken yet.
struct Stored(BTreeMap<Vec<u8>, Vec<u8>>);

impl Stored {
    fn read(block: &[u8]) -> Result<Stored, Defect> {
        let (block, mut stored) = (Block::parse(block)?, BTreeMap::new());
        for entry in block.iter() {
            let entry = entry?;
            // If keys shared prefixes, they could take the square of the block's size.
            check_shared(&entry, 0)?;
            let (key, value) = (block.unshared(&entry), block.bytes(entry.value()));
            stored.insert(key.to_vec(), value.to_vec());
        }
        Ok(Stored(stored))
    }

    /// Takes the value of `key` and decodes it with `decode`; the error says that it should be `what`.
    fn take<T>(
        &mut self,
        key: &str,
        what: &str,
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Defect> {
        let Some(value) = self.0.remove(key.as_bytes()) else {
            return Ok(None);
        };
        let decoded = decode(&value);
        let damaged = || Defect::new(format!("{what} as the property {key}"), show_key(&value));
        decoded.ok_or_else(damaged).map(Some)
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>, Defect> {
        self.take(key, "a varint", |value| {
            let number = get_varint64(value).filter(|&(_, len)| len == value.len());
            number.map(|(number, _)| number)
        })
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, Defect> {
        self.take(key, "UTF-8", |value| String::from_utf8(value.to_vec()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{Entries, build};

    fn example() -> Properties {
        Properties {
            comparator: "leveldb.BytewiseComparator".into(),
            key_kind: KeyKind::Plain,
            creator: Some("leveltable 0.1.0".into()),
            entries: 2,
            first_key: Some(b"apple".to_vec()),
            last_key: Some(b"apricot".to_vec()),
            key_bytes: 12,
            value_bytes: 9,
            data_blocks: 1,
            data_bytes: 38,
            filter_policy: None,
            filter_bytes: None,
            sequences: None,
            deletions: 0,
            others: [(user_key("schema"), b"v3".to_vec())].into(),
        }
    }

    /// Properties with everything that a database's table and a filter add, and one of a later version.
    fn full() -> Properties {
        let mut properties = example();
        properties.key_kind = KeyKind::Database;
        properties.filter_policy = Some("leveltable.Ribbon1".into());
        properties.filter_bytes = Some(u64::MAX);
        properties.sequences = Some(0..=(1 << 56) - 1);
        properties.deletions = 300;
        let others = [
            (&b"zone"[..], &b"\xff"[..]),
            (b"entries.live", b""),
            (b"user.", b"nameless"),
        ];
        properties
            .others
            .extend(others.map(|(key, value)| (key.to_vec(), value.to_vec())));
        properties
    }

    fn entries(properties: &Properties) -> Entries {
        let block = properties.encode().unwrap();
        Stored::read(&block).unwrap().0.into_iter().collect()
    }

    /// The bytes of the example above, in which text is in quotes.
    fn example_bytes() -> Vec<u8> {
        let this_file = include_str!("properties.rs");
        let text = this_file.split("```").nth(3).unwrap();
        let mut bytes = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("//!")) {
            let Some((offset, rest)) = line.trim().split_once("  ") else {
                continue;
            };
            let Ok(offset) = offset.parse::<usize>() else {
                continue;
            };
            assert_eq!(offset, bytes.len(), "{line}");
            for (i, part) in rest.split('"').enumerate() {
                let hex = |word: &str| {
                    u8::from_str_radix(word, 16)
                        .ok()
                        .filter(|_| word.len() == 2)
                };
                if i % 2 == 1 {
                    bytes.extend(part.bytes());
                } else {
                    bytes.extend(part.split_whitespace().map_while(hex));
                }
            }
        }
        bytes
    }

    #[test]
    fn the_worked_example_is_what_the_encoder_makes() {
        let bytes = example_bytes();
        assert_eq!(bytes.len(), 248);
        assert_eq!(example().encode().unwrap(), bytes);
        assert_eq!(Properties::decode(&bytes).unwrap(), example());
    }

    #[test]
    fn everything_comes_back_and_what_is_not_known_is_kept() {
        let decoded = Properties::decode(&full().encode().unwrap()).unwrap();
        assert_eq!(decoded, full());
        assert_eq!(decoded.user("schema"), Some(&b"v3"[..]));
        assert_eq!(decoded.user("zone"), None);
        let names: Vec<_> = decoded.user_properties().map(|(name, _)| name).collect();
        assert_eq!(names, [&b""[..], b"schema"]);
        assert_eq!(decoded.others[&b"zone"[..]], b"\xff");
    }

    #[test]
    fn long_keys_are_left_out() {
        let mut properties = example();
        properties.first_key = Some(vec![b'k'; MAX_KEY_LEN]);
        properties.last_key = Some(vec![b'k'; MAX_KEY_LEN + 1]);
        let decoded = Properties::decode(&properties.encode().unwrap()).unwrap();
        assert_eq!(decoded.first_key, properties.first_key);
        assert_eq!(decoded.last_key, None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let sound = entries(&full());
        let decode = |entries: &Entries| Properties::decode(&build(entries, 1));
        assert!(decode(&sound).is_ok());
        let changed = |key: &str, value: &[u8]| {
            let mut entries = sound.clone();
            let entry = entries.iter_mut().find(|(k, _)| k == key.as_bytes());
            entry.unwrap().1 = value.to_vec();
            format!("{:?}", decode(&entries).unwrap_err())
        };
        for (key, value, message) in [
            ("entries", &b""[..], "a varint as the property entries"),
            ("entries", b"\x80", "a varint"),
            ("entries", b"\x01\x01", "a varint"),
            ("data.bytes", &[0xff; 11], "a varint"),
            ("deletions", b"\x80\x80", "a varint"),
            ("comparator", b"\xff", "UTF-8 as the property comparator"),
            ("filter.policy", b"\xc0\x80", "UTF-8"),
            ("key.kind", b"", "key.kind plain or database"),
            ("key.kind", b"Plain", "key.kind plain or database"),
            ("sequence.max", b"", "a varint"),
        ] {
            let error = changed(key, value);
            assert!(error.contains(message), "{error}");
        }
        let without = |key: &str| {
            let mut entries = sound.clone();
            entries.retain(|(k, _)| k != key.as_bytes());
            decode(&entries)
        };
        for key in [
            "comparator",
            "entries",
            "data.blocks",
            "key.bytes",
            "key.kind",
        ] {
            let error = format!("{:?}", without(key).unwrap_err());
            assert!(error.contains(&format!("the property {key}")), "{error}");
        }
        for key in ["creator", "deletions", "filter.policy", "key.first", "zone"] {
            assert!(without(key).is_ok(), "{key}");
        }
    }

    /// Keys that share long prefixes would take a hundred times as much memory as the block.
    #[test]
    fn memory_is_bounded_by_the_block() {
        let entry = |i: u32| ([&[b'k'; 1000], &i.to_be_bytes()[..]].concat(), vec![]);
        let block = build(&(0..200).map(entry).collect(), 200);
        let error = format!("{:?}", Properties::decode(&block).unwrap_err());
        assert!(error.contains("shares at most 0 bytes"), "{error}");
    }

    #[test]
    fn damage_does_not_panic() {
        let block = full().encode().unwrap();
        for bit in 0..block.len() * 8 {
            let mut block = block.clone();
            block[bit / 8] ^= 1 << (bit % 8);
            let _ = Properties::decode(&block);
            let _ = Properties::decode(&block[..bit / 8]);
        }
    }
}
