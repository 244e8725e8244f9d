//! The rule that tells a database's table from a plain one, where the file does not say what it is.

use crate::comparator::{Comparator, compare_bytes};
use crate::db::key::{InternalKey, InternalKeyComparator, MAX_SEQUENCE, tag};

/// What kind of keys a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// Keys as an application chose them.
    Plain,
    /// Internal keys of a LevelDB database: a user key, a sequence number and a type.
    Database,
}

/// What the keys of a table say about their kind, counted both ways.
///
/// Nothing in LevelDB's format names the kind. Eight bytes of anything can be a sequence number and a type, so a key by
/// itself proves little. What tells the kinds apart is
///
/// - a key that cannot be an internal key: the table is plain;
/// - an index key that was shortened, since a database's then ends in the largest sequence number;
/// - two neighbours that ascend in the order of one kind, but not in that of the other.
///
/// Where nothing speaks for a database, the table is plain. That can be wrong: the table of a database that holds one
/// version of each key, in keys of which the index shortened none, fits both kinds.
///
/// ```text
/// plain       big-endian counters         the 8 last bytes are seldom of type 0 or 1
/// database    "k" at 7, "k" at 3          descends bytewise, if 7 < 3 did; ascends as internal keys
/// database    index key "l" at 2^56 - 1   the successor of "key", shortened
/// ```
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    for_database: u64,
    against: u64,
    /// The key before, if there was one in the same block.
    previous: Vec<u8>,
    has_previous: bool,
}

impl Evidence {
    /// Adds a key of the index. They come in the block's order.
    pub(crate) fn add_index_key(&mut self, key: &[u8]) {
        self.for_database += u64::from(is_separator(key));
        self.add_key(key);
    }

    /// Adds a key of a data block. They come in the block's order.
    pub(crate) fn add_key(&mut self, key: &[u8]) {
        self.against += u64::from(!may_be_internal(key));
        if self.has_previous {
            let bytewise = compare_bytes(&self.previous, key).0.is_lt();
            let internal = InternalKeyComparator::BYTEWISE
                .compare(&self.previous, key)
                .is_lt();
            self.for_database += u64::from(internal && !bytewise);
            self.against += u64::from(bytewise && !internal);
        }
        self.has_previous = true;
        self.previous.clear();
        self.previous.extend_from_slice(key);
    }

    /// Ends a block: the next key is not compared with the one before.
    pub(crate) fn end_block(&mut self) {
        self.has_previous = false;
    }

    /// What the table is by all the keys added.
    pub(crate) fn kind(&self) -> KeyKind {
        if self.for_database > self.against {
            KeyKind::Database
        } else {
            KeyKind::Plain
        }
    }

    /// Whether nothing contradicts that the keys are internal keys.
    pub(crate) fn may_be_database(&self) -> bool {
        self.against == 0
    }
}

/// The types of RocksDB's keys end below this.
const TYPES_END: u64 = 0x80;

/// Whether `key` has a sequence number and a type. In a separator the type is the largest that its writer knew: 1 in
/// LevelDB, more in RocksDB, whose first format is LevelDB's.
pub(crate) fn may_be_internal(key: &[u8]) -> bool {
    InternalKey::parse(key).is_some() || is_separator(key)
}

/// Whether `key` ends as an index key does that was shortened: in the largest sequence number.
fn is_separator(key: &[u8]) -> bool {
    tag(key).is_some_and(|tag| tag >> 8 == MAX_SEQUENCE && (1..TYPES_END).contains(&(tag & 0xff)))
}
