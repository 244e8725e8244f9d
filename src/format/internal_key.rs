//! The keys of a LevelDB database's tables: user key, sequence number, type.
//!
//! ```text
//! user key   fixed64: sequence << 8 | type        type 0: deletion, 1: value
//! ```
//!
//! A database writes each change under a new sequence number. Its tables are ordered by user key, and
//! for one user key by sequence, newest first.

use std::any::Any;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::coding::put_fixed64;
use crate::comparator::{Comparator, Order};
use crate::error::{ErrorKind, show_key};
use crate::format::Defect;

/// The largest sequence number that an internal key can hold, 2^56 - 1.
pub const MAX_SEQUENCE: u64 = (1 << 56) - 1;

/// Number of bytes after the user key: sequence number and type.
const TAG_LEN: usize = 8;

/// Whether an [`InternalKey`] records a value or a deletion. LevelDB has no third type; other engines do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum ValueType {
    /// The user key was deleted at this sequence number.
    Deletion = 0,
    /// The user key was set to the entry's value.
    Value = 1,
}

/// A parsed internal key: a change of a user key.
///
/// ```
/// use leveltable::db::{InternalKey, ValueType};
///
/// let key = InternalKey { user_key: b"k", sequence: 7, value_type: ValueType::Value };
/// let mut stored = Vec::new();
/// key.encode(&mut stored);
/// assert_eq!(stored, b"k\x01\x07\0\0\0\0\0\0");
/// assert_eq!(InternalKey::parse(&stored), Some(key));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InternalKey<'a> {
    /// The key as the database's user knows it.
    pub user_key: &'a [u8],
    /// When it was written, at most [`MAX_SEQUENCE`].
    pub sequence: u64,
    /// Whether it was written or deleted.
    pub value_type: ValueType,
}

impl<'a> InternalKey<'a> {
    /// Parses a stored key; `None` if it is shorter than 8 bytes or its type is above 1.
    #[inline]
    pub fn parse(stored: &'a [u8]) -> Option<InternalKey<'a>> {
        let is_internal = matches!(stored.last_chunk::<TAG_LEN>(), Some([0 | 1, ..]));
        is_internal.then(|| InternalKey::of_checked(stored))
    }

    /// Takes a stored key that [parses](InternalKey::parse) apart. An empty one is a deletion with the sequence number 0.
    #[inline]
    pub(crate) fn of_checked(stored: &'a [u8]) -> InternalKey<'a> {
        let (user_key, tag) = split(stored);
        let tag = tag.unwrap_or(0);
        let value_type = match tag & 0xff {
            0 => ValueType::Deletion,
            _ => ValueType::Value,
        };
        InternalKey::new(user_key, tag >> 8, value_type)
    }

    #[inline]
    pub(crate) fn new(user_key: &'a [u8], sequence: u64, value_type: ValueType) -> InternalKey<'a> {
        InternalKey {
            user_key,
            sequence,
            value_type,
        }
    }

    /// Appends the stored form. A sequence number above [`MAX_SEQUENCE`] is stored as [`MAX_SEQUENCE`].
    pub fn encode(&self, dst: &mut Vec<u8>) {
        dst.extend_from_slice(self.user_key);
        let sequence = self.sequence.min(MAX_SEQUENCE);
        put_fixed64(dst, sequence << 8 | self.value_type as u64);
    }

    /// The stored form.
    pub(crate) fn to_stored(self) -> Vec<u8> {
        let mut stored = Vec::with_capacity(self.user_key.len() + TAG_LEN);
        self.encode(&mut stored);
        stored
    }

    /// The stored key at which a search for `user_key` as of `sequence` begins: the first of its changes at or before
    /// `sequence`.
    pub(crate) fn seek_target(user_key: &'a [u8], sequence: u64) -> Vec<u8> {
        InternalKey::new(user_key, sequence, ValueType::Value).to_stored()
    }

    /// The last of all keys that `user_key` could be stored under.
    pub(crate) fn oldest(user_key: &'a [u8]) -> Vec<u8> {
        InternalKey::new(user_key, 0, ValueType::Deletion).to_stored()
    }
}

/// The user key and the tag of a stored key. A key that is too short to have a tag is all user key, so that it has a
/// place in the order.
#[inline]
fn split(stored: &[u8]) -> (&[u8], Option<u64>) {
    match stored.split_last_chunk() {
        Some((user_key, tag)) => (user_key, Some(u64::from_le_bytes(*tag))),
        None => (stored, None),
    }
}

/// Sequence number and type of a stored key: `sequence << 8 | type`. `None` if the key is too short.
#[inline]
pub(crate) fn tag(stored: &[u8]) -> Option<u64> {
    split(stored).1
}

/// The user key of a stored key.
#[inline]
pub fn user_key(stored: &[u8]) -> &[u8] {
    split(stored).0
}

/// The order of a database's tables, `leveldb.InternalKeyComparator`: by user key, then newest first.
///
/// [`DbTable`](crate::DbTable) uses it automatically. To look at the keys as they are stored, open the
/// table with it:
///
/// ```no_run
/// use leveltable::{BytewiseComparator, OpenOptions, db::InternalKeyComparator};
///
/// let order = InternalKeyComparator::new(BytewiseComparator);
/// let table = OpenOptions::new().comparator(order).open("000005.ldb")?;
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct InternalKeyComparator {
    user: Order,
}

impl InternalKeyComparator {
    /// For user keys in bytewise order.
    pub(crate) const BYTEWISE: InternalKeyComparator = InternalKeyComparator {
        user: Order::Bytewise,
    };

    /// Orders user keys by `user`.
    pub fn new(user: impl Comparator + 'static) -> InternalKeyComparator {
        let user = Order::of(user);
        InternalKeyComparator { user }
    }

    /// Replaces `stored` by `shorter`, with the tag that comes before all changes of that user key, if `shorter` is
    /// shorter and a larger user key.
    fn shorten(&self, stored: &mut Vec<u8>, mut shorter: Vec<u8>) {
        let user_key = user_key(stored);
        if shorter.len() < user_key.len() && self.user.compare(user_key, &shorter) == Ordering::Less
        {
            put_fixed64(&mut shorter, MAX_SEQUENCE << 8 | ValueType::Value as u64);
            *stored = shorter;
        }
    }
}

impl Comparator for InternalKeyComparator {
    fn name(&self) -> &str {
        "leveldb.InternalKeyComparator"
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        // Does not use `split`, which allows for missing tags: that would cost a tenth of a lookup in a database.
        if let (Some((user_a, tag_a)), Some((user_b, tag_b))) =
            (a.split_last_chunk(), b.split_last_chunk())
        {
            let [newer, older] = [tag_b, tag_a].map(|tag| u64::from_le_bytes(*tag));
            return self.user.compare(user_a, user_b).then(newer.cmp(&older));
        }
        let ((user_a, tag_a), (user_b, tag_b)) = (split(a), split(b));
        self.user.compare(user_a, user_b).then(tag_b.cmp(&tag_a))
    }

    /// The user key, which is what lookups have, and what LevelDB's filters hold.
    fn filter_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        self.user.filter_key(user_key(key))
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        let mut shorter = user_key(start).to_vec();
        let comparator = self.user.comparator();
        comparator.find_shortest_separator(&mut shorter, user_key(limit));
        // A user key equal to the limit's would, with its tag, come before the limit and hide it.
        if self.user.compare(&shorter, user_key(limit)) == Ordering::Less {
            self.shorten(start, shorter);
        }
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        let mut shorter = user_key(key).to_vec();
        self.user.comparator().find_short_successor(&mut shorter);
        self.shorten(key, shorter);
    }
}

/// The order of user keys, if `order` is that of a database's tables.
pub fn user_order(order: &Order) -> Option<&Order> {
    let Order::Custom(comparator) = order else {
        return None;
    };
    let any: &dyn Any = &**comparator;
    let shared = || any.downcast_ref::<Arc<InternalKeyComparator>>();
    let internal = any.downcast_ref().or_else(|| shared().map(Arc::as_ref))?;
    Some(&internal.user)
}

impl Order {
    /// Returns `key` as messages show it: escaped, in quotes, and cut if it is long. For a database's key, shows the user key, the
    /// sequence number, and whether it is a deletion.
    #[cold]
    pub(crate) fn describe_key(&self, key: &[u8]) -> String {
        let Some(internal) = user_order(self).and_then(|_| InternalKey::parse(key)) else {
            return show_key(key);
        };
        let (key, at) = (show_key(internal.user_key), internal.sequence);
        match internal.value_type {
            ValueType::Deletion => format!("{key} at {at} (a deletion)"),
            ValueType::Value => format!("{key} at {at}"),
        }
    }

    /// Whether this is the order of a database's tables, and `key` is not a key of one.
    pub(crate) fn is_foreign(&self, key: &[u8]) -> bool {
        user_order(self).is_some() && InternalKey::parse(key).is_none()
    }

    /// The defect of keys that are not in this order: the table is damaged, or was written in another order. `what` describes the keys;
    /// two of them that come in the other order in the file are shown.
    #[cold]
    pub(crate) fn misordered(&self, what: &str, previous: &[u8], key: &[u8]) -> Defect {
        let name = self.comparator().name();
        let advice = if self.is_foreign(previous) || self.is_foreign(key) {
            "these are not internal keys of a database: open the table with the comparator that it was written with, as a Table"
        } else {
            "open the table with the comparator that it was written with, and as a DbTable if it is a database's"
        };
        let (previous, key) = (self.describe_key(previous), self.describe_key(key));
        let what = format!(
            ": {what} do not ascend in the order {name:?}: {previous} comes before {key}; {advice}"
        );
        Defect(Box::new((ErrorKind::Comparator, what, String::new())))
    }
}

/// The order of the tables of a database whose user keys are in the order `user`.
pub fn internal_order(user: Order) -> Order {
    Order::of(InternalKeyComparator { user })
}

/// The defect of a stored key that is not an internal key.
#[cold]
pub(crate) fn not_internal(stored: &[u8]) -> Defect {
    let found = match stored.last_chunk::<8>() {
        Some([value_type, ..]) => format!("{} with type {value_type}", show_key(stored)),
        None => format!("{} of length {}", show_key(stored), stored.len()),
    };
    let expected = "internal keys of at least 8 bytes and of type 0 or 1 \
                    (if this is not a database's table, open it with Table)";
    Defect::new(expected, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparator::BytewiseComparator;

    fn stored(user_key: &[u8], sequence: u64, value_type: ValueType) -> Vec<u8> {
        let mut dst = Vec::new();
        InternalKey {
            user_key,
            sequence,
            value_type,
        }
        .encode(&mut dst);
        dst
    }

    fn value(user_key: &[u8], sequence: u64) -> Vec<u8> {
        stored(user_key, sequence, ValueType::Value)
    }

    #[test]
    fn keys_round_trip_and_nonsense_does_not_parse() {
        for sequence in [0, 1, 255, 256, 1 << 40, MAX_SEQUENCE] {
            for value_type in [ValueType::Deletion, ValueType::Value] {
                for user_key in [&b""[..], b"k", b"longer key"] {
                    let bytes = stored(user_key, sequence, value_type);
                    let expected = InternalKey {
                        user_key,
                        sequence,
                        value_type,
                    };
                    assert_eq!(InternalKey::parse(&bytes), Some(expected));
                }
            }
        }
        assert_eq!(InternalKey::parse(b""), None);
        assert_eq!(InternalKey::parse(&[0; 7]), None);
        assert_eq!(InternalKey::parse(&[2, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    /// The order that LevelDB's `db/dbformat_test.cc` states: user keys ascending, sequence numbers descending, then
    /// types descending.
    #[test]
    fn order_is_user_key_then_newest() {
        let order = InternalKeyComparator::new(BytewiseComparator);
        let ascending = [
            value(b"", MAX_SEQUENCE),
            value(b"", 1),
            value(b"a", 9),
            stored(b"a", 9, ValueType::Deletion),
            value(b"a", 8),
            value(b"a\0", 100),
            value(b"b", 1),
        ];
        assert!(ascending.is_sorted_by(|a, b| order.compare(a, b).is_lt()));
    }

    /// Expectations of LevelDB's `db/dbformat_test.cc`.
    #[test]
    fn separators_are_leveldbs() {
        let order = InternalKeyComparator::new(BytewiseComparator);
        let separator = |start: Vec<u8>, limit: Vec<u8>| {
            let mut start = start;
            order.find_shortest_separator(&mut start, &limit);
            start
        };
        let successor = |mut key: Vec<u8>| {
            order.find_short_successor(&mut key);
            key
        };
        assert_eq!(
            separator(value(b"foo", 100), value(b"foo", 99)),
            value(b"foo", 100)
        );
        assert_eq!(
            separator(value(b"foo", 100), value(b"bar", 99)),
            value(b"foo", 100)
        );
        assert_eq!(
            separator(value(b"foo", 100), value(b"hello", 200)),
            value(b"g", MAX_SEQUENCE)
        );
        assert_eq!(
            separator(value(b"foo", 100), value(b"foobar", 200)),
            value(b"foo", 100)
        );
        assert_eq!(
            separator(value(b"foobar", 100), value(b"foo", 200)),
            value(b"foobar", 100)
        );
        assert_eq!(successor(value(b"foo", 100)), value(b"g", MAX_SEQUENCE));
        assert_eq!(successor(value(b"\xff\xff", 100)), value(b"\xff\xff", 100));
    }

    #[test]
    fn the_order_of_user_keys_is_found_in_any_arc() {
        let order = InternalKeyComparator::BYTEWISE;
        let shared: Arc<dyn Comparator> = Arc::new(order.clone());
        for order in [
            Order::of(order.clone()),
            Order::of(Arc::new(order)),
            Order::of(shared),
            internal_order(Order::Bytewise),
        ] {
            assert!(
                matches!(user_order(&order), Some(Order::Bytewise)),
                "{order:?}"
            );
        }
        assert!(user_order(&Order::Bytewise).is_none());
    }

    #[test]
    fn filters_see_user_keys_only() {
        let order = InternalKeyComparator::new(BytewiseComparator);
        assert_eq!(order.filter_key(&value(b"k", 5)), b"k");
        assert_eq!(order.filter_key(b"short"), b"short");
    }
}
