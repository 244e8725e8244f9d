//! The rule that distinguishes a database's table from a plain one, if the file does not say what it is.

use crate::comparator::{Comparator, compare_bytes};
use crate::format::internal_key::{
    InternalKey, InternalKeyComparator, MAX_SEQUENCE, ValueType, tag, user_key,
};
use crate::format::properties::KeyKind;

/// Evidence of the kind and the order of a table's keys, as counts.
///
/// LevelDB's format does not record the kind. Any eight bytes can be a sequence number and a type, so a single key
/// proves little. The kinds differ in
///
/// - a key that cannot be an internal key, or a deletion that has a value: the table is plain;
/// - an index key that was shortened, since a database's then ends with the largest sequence number;
/// - two neighbours that ascend in the order of one kind, but not in the other;
/// - if the keys fit both kinds: a user key and a sequence number below 2^40 in every key.
///
/// Without evidence of a database, the table is plain. That can be wrong: a database's table fits both kinds if it has one
/// version of each key, larger sequence numbers, and no shortened index key. Its filter holds user keys: if the keys fit both
/// kinds, the filter must not be used.
///
/// ```text
/// plain       big-endian counters         neighbours share a user key, and the older version comes first
/// plain       "name" padded with zeros    deletions that have values
/// database    "k" at 7, "k" at 3          descends bytewise, if 7 < 3 did; ascends as internal keys
/// database    index key "l" at 2^56 - 1   the successor of "key", shortened
/// ```
///
/// Neighbours that ascend in neither order show that the table has an order of its own. The versions of one user key are
/// then still newest first in a database.
#[derive(Debug, Default)]
pub struct Evidence {
    keys: u64,
    /// Number of keys that no database has.
    foreign: u64,
    /// Number of keys with an ordinary sequence number after a user key that is not empty.
    ordinary: u64,
    /// Evidence for a database: index keys that end with the largest sequence number, and neighbours that ascend in its order
    /// only.
    for_database: u64,
    /// Evidence against a database: neighbours that ascend bytewise only, and versions of one user key with the older
    /// first.
    against: u64,
    /// Number of neighbours that ascend in neither order.
    neither: u64,
}

/// Evidence for a database has to outweigh that against it by this factor.
const WEIGHT: u64 = 4;

/// One in this many keys may be foreign if other evidence points to a database. RocksDB's tables of the first format have
/// keys with types that LevelDB does not have.
const FOREIGN_IN: u64 = 16;

/// Keys in an unknown order are a database's only if there are at least this many and all look like it: a few may do so
/// by chance.
const FEWEST_KEYS: u64 = 4;

impl Evidence {
    /// Adds a key of the index, which follows `previous` in its block.
    pub fn add_index_key(&mut self, previous: Option<&[u8]>, key: &[u8]) {
        self.for_database += u64::from(is_separator(key));
        self.add_key(previous, key);
    }

    /// Adds an entry of a data block, which follows the key `previous`.
    pub fn add_entry(&mut self, previous: Option<&[u8]>, key: &[u8], value: &[u8]) {
        let is_deletion =
            InternalKey::parse(key).is_some_and(|key| key.value_type == ValueType::Deletion);
        self.foreign += u64::from(is_deletion && !value.is_empty());
        self.add_key(previous, key);
    }

    fn add_key(&mut self, previous: Option<&[u8]>, key: &[u8]) {
        self.keys += 1;
        self.foreign += u64::from(!may_be_internal(key));
        self.ordinary += u64::from(is_ordinary(key));
        let Some(previous) = previous else {
            return;
        };
        let bytewise = compare_bytes(previous, key).0.is_lt();
        let internal = InternalKeyComparator::BYTEWISE
            .compare(previous, key)
            .is_lt();
        let is_version = tag(key).is_some() && user_key(previous) == user_key(key);
        self.for_database += u64::from(internal && !bytewise);
        self.against += u64::from(!internal && (bytewise || is_version));
        self.neither += u64::from(!internal && !bytewise);
    }

    /// Adds the evidence of another block.
    pub fn add(&mut self, other: &Evidence) {
        self.keys += other.keys;
        self.foreign += other.foreign;
        self.ordinary += other.ordinary;
        self.for_database += other.for_database;
        self.against += other.against;
        self.neither += other.neither;
    }

    /// Returns the kind of the keys added so far; `None` if they fit both.
    pub fn verdict(&self) -> Option<KeyKind> {
        let Evidence { keys, foreign, .. } = *self;
        let (mut for_database, mut against) = (self.for_database, self.against);
        if foreign * FOREIGN_IN >= keys {
            against += foreign;
        }
        let has_own_order = self.neither > 0;
        if has_own_order && keys >= FEWEST_KEYS {
            for_database += keys / WEIGHT;
        }
        if for_database > WEIGHT * against {
            Some(KeyKind::Database)
        } else if foreign > 0 || against > 0 || has_own_order {
            Some(KeyKind::Plain)
        } else {
            // Both orders fit. A plain key may have two zeros in this place by chance, but rarely do all of them.
            (keys > 0 && self.ordinary == keys).then_some(KeyKind::Database)
        }
    }

    /// Whether there are keys, and each of them may be an internal key.
    pub fn may_hold_internal_keys(&self) -> bool {
        self.keys > 0 && self.foreign == 0
    }
}

/// RocksDB's key types end below this value.
const TYPES_END: u64 = 0x80;

/// Whether `key` has a sequence number and a type. In a separator the type is the largest that its writer knew: 1 in
/// LevelDB, more in RocksDB, whose first format is LevelDB's.
pub(crate) fn may_be_internal(key: &[u8]) -> bool {
    InternalKey::parse(key).is_some() || is_separator(key)
}

/// Whether `key` is an internal key of a database with fewer than 2^40 writes.
fn is_ordinary(key: &[u8]) -> bool {
    InternalKey::parse(key).is_some_and(|key| key.sequence < 1 << 40 && !key.user_key.is_empty())
}

/// Whether `key` ends like a shortened index key: with the largest sequence number.
pub(crate) fn is_separator(key: &[u8]) -> bool {
    tag(key).is_some_and(|tag| tag >> 8 == MAX_SEQUENCE && (1..TYPES_END).contains(&(tag & 0xff)))
}
