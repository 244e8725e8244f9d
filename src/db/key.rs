//! The keys of a LevelDB database's tables: user key, sequence number, type.
//!
//! ```text
//! user key   fixed64: sequence << 8 | type        type 0: deletion, 1: value
//! ```
//!
//! A database writes each change under a new sequence number. Its tables are ordered by user key, and
//! for one user key by sequence, newest first.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use crate::coding::{fixed64_at, put_fixed64};
use crate::comparator::{Comparator, Order};
use crate::filter::{FilterBuilder, FilterPolicy};

/// The largest sequence number that an internal key can hold, 2^56 - 1.
pub const MAX_SEQUENCE: u64 = (1 << 56) - 1;

/// Bytes behind the user key.
const TAG_LEN: usize = 8;

/// What an internal key says of its user key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ValueType {
    /// The user key was deleted at this sequence number.
    Deletion = 0,
    /// The entry's value is the user key's from this sequence number on.
    Value = 1,
}

/// A parsed internal key: a change of a user key.
///
/// ```
/// use leveltable::{InternalKey, ValueType};
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
    /// Parses a stored key; `None` where it is shorter than 8 bytes or its type is above 1.
    pub fn parse(stored: &'a [u8]) -> Option<InternalKey<'a>> {
        let (user_key, tag) = split(stored);
        let tag = tag?;
        let value_type = match tag & 0xff {
            0 => ValueType::Deletion,
            1 => ValueType::Value,
            _ => return None,
        };
        Some(InternalKey {
            user_key,
            sequence: tag >> 8,
            value_type,
        })
    }

    /// Appends the stored form. A sequence above [`MAX_SEQUENCE`] is stored as that.
    pub fn encode(&self, dst: &mut Vec<u8>) {
        dst.extend_from_slice(self.user_key);
        put_fixed64(
            dst,
            self.sequence.min(MAX_SEQUENCE) << 8 | self.value_type as u64,
        );
    }

    /// The stored key where a search for `user_key` as of `sequence` begins: the first of all its
    /// changes at or before that.
    pub(crate) fn seek_target(user_key: &'a [u8], sequence: u64) -> Vec<u8> {
        let mut target = Vec::with_capacity(user_key.len() + TAG_LEN);
        let value_type = ValueType::Value;
        InternalKey {
            user_key,
            sequence,
            value_type,
        }
        .encode(&mut target);
        target
    }
}

/// The user key and the tag of a stored key. One too short to have a tag is all user key, so that it
/// has a place in the order.
#[inline]
fn split(stored: &[u8]) -> (&[u8], Option<u64>) {
    let at = stored.len().checked_sub(TAG_LEN);
    match at.and_then(|at| stored.split_at_checked(at)) {
        Some((user_key, tag)) => (user_key, fixed64_at(tag, 0)),
        None => (stored, None),
    }
}

/// The user key of a stored key.
#[inline]
pub(crate) fn user_key(stored: &[u8]) -> &[u8] {
    split(stored).0
}

/// The order of a database's tables, `leveldb.InternalKeyComparator`: by user key, then newest first.
///
/// [`DbTable`](crate::DbTable) uses it by itself. To look at the keys as they are stored, open the
/// table with it:
///
/// ```no_run
/// use leveltable::{BytewiseComparator, InternalKeyComparator, OpenOptions};
///
/// let order = InternalKeyComparator::new(BytewiseComparator);
/// let table = OpenOptions::new().comparator(order).open("000005.ldb")?;
/// # Ok::<(), leveltable::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct InternalKeyComparator {
    user: Order,
}

const COMPARATOR_NAME: &str = "leveldb.InternalKeyComparator";

impl InternalKeyComparator {
    /// Orders user keys by `user`.
    pub fn new(user: impl Comparator + 'static) -> InternalKeyComparator {
        let user = Order::of(user);
        InternalKeyComparator { user }
    }

    /// Replaces `stored` by `shorter`, tagged to come before all changes of that user key, if that is
    /// shorter and its user key is larger.
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
        COMPARATOR_NAME
    }

    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let ((user_a, tag_a), (user_b, tag_b)) = (split(a), split(b));
        let by_user_key = self.user.compare(user_a, user_b);
        by_user_key.then_with(|| Reverse(tag_a).cmp(&Reverse(tag_b)))
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        let mut shorter = user_key(start).to_vec();
        let comparator = self.user.comparator();
        comparator.find_shortest_separator(&mut shorter, user_key(limit));
        // A user key equal to the limit's would come before the limit all the same, and hide it.
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

/// A filter policy over the user keys of a database's table: strips the 8 bytes behind each key.
///
/// It keeps the name of the policy inside, as LevelDB does: the file does not tell whether its filter
/// holds user keys. Tables in [`InternalKeyComparator`] order wrap the policies they are given by themselves.
#[derive(Debug, Clone)]
pub struct InternalFilterPolicy {
    user: Arc<dyn FilterPolicy>,
}

impl InternalFilterPolicy {
    /// Gives `user` the user keys only.
    pub fn new(user: impl FilterPolicy + 'static) -> InternalFilterPolicy {
        InternalFilterPolicy::over(Arc::new(user))
    }

    fn over(user: Arc<dyn FilterPolicy>) -> InternalFilterPolicy {
        InternalFilterPolicy { user }
    }
}

impl FilterPolicy for InternalFilterPolicy {
    fn name(&self) -> &str {
        self.user.name()
    }

    fn builder(&self) -> Box<dyn FilterBuilder> {
        Box::new(UserKeys(self.user.builder()))
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        self.user.key_may_match(user_key(key), filter)
    }

    fn strips_tags(&self) -> bool {
        true
    }
}

struct UserKeys(Box<dyn FilterBuilder>);

impl FilterBuilder for UserKeys {
    fn add_key(&mut self, key: &[u8]) {
        self.0.add_key(user_key(key));
    }

    fn finish(&mut self, dst: &mut Vec<u8>) {
        self.0.finish(dst);
    }
}

/// `policy` as tables in `order` need it: over user keys where the table holds internal keys.
///
/// The same for writing and reading, whoever chose the policy, or one would hide what the other put in.
pub(crate) fn policy_for(policy: &Arc<dyn FilterPolicy>, order: &Order) -> Arc<dyn FilterPolicy> {
    match is_internal(order) && !policy.strips_tags() {
        true => Arc::new(InternalFilterPolicy::over(policy.clone())),
        false => policy.clone(),
    }
}

/// The order of the tables of a database whose user keys are in the order `user`.
pub(crate) fn internal_order(user: Order) -> Order {
    Order::of(InternalKeyComparator { user })
}

/// Whether tables in `order` hold internal keys.
pub(crate) fn is_internal(order: &Order) -> bool {
    matches!(order, Order::Custom(comparator) if comparator.name() == COMPARATOR_NAME)
}

/// Whether `stored` could be a key that a database wrote.
///
/// Eight bytes of anything parse as a tag one time in 128. What tells a sequence number is that it
/// counts writes: it starts at 1 (at 0 only where RocksDB forgot the number of an old value),
/// stays far below 2^48, and is [`MAX_SEQUENCE`] in the separators of an index. These have the largest type
/// that their writer knew: LevelDB 1, RocksDB (whose first format is LevelDB's) more from version to version.
pub(crate) fn is_plausible(stored: &[u8]) -> bool {
    /// RocksDB's types end below this.
    const TYPES_END: u64 = 0x80;
    let (_, tag) = split(stored);
    tag.is_some_and(|tag| match (tag >> 8, tag & 0xff) {
        (MAX_SEQUENCE, value_type) => (1..TYPES_END).contains(&value_type),
        (sequence, value_type) => (1..1 << 48).contains(&sequence) && value_type <= 1 || tag == 1,
    })
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

    /// The order that LevelDB's `db/dbformat_test.cc` states: user keys up, sequences down, then types
    /// down.
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
    fn the_filter_sees_user_keys_only() {
        let policy = InternalFilterPolicy::new(crate::BloomFilterPolicy::new(10));
        let mut filter = Vec::new();
        crate::create_filter(&policy, [value(b"k", 5)], &mut filter);
        assert!(policy.key_may_match(&value(b"k", MAX_SEQUENCE), &filter));
        assert!(crate::BloomFilterPolicy::new(10).key_may_match(b"k", &filter));
        assert!(!policy.key_may_match(&value(b"x", 5), &filter));
    }

    #[test]
    fn plain_keys_are_seldom_plausible() {
        assert!(is_plausible(&value(b"user", 1)));
        assert!(is_plausible(&stored(b"user", 1 << 40, ValueType::Deletion)));
        assert!(is_plausible(&value(b"g", MAX_SEQUENCE)));
        assert!(is_plausible(&value(b"forgotten", 0)));
        assert!(!is_plausible(&stored(b"user", 0, ValueType::Deletion)));
        let rocksdb_separator = [b"g", &[0x18][..], &[0xff; 7]].concat();
        assert!(is_plausible(&rocksdb_separator));
        for plain in [
            &b"short"[..],
            b"a text of some length",
            &[0; 16],
            &7u64.to_be_bytes(),
            &[0xff; 16],
        ] {
            assert!(!is_plausible(plain), "{plain:?}");
        }
    }
}
