//! The order of a table's keys.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

/// A total order over keys, and how to shorten keys within it.
///
/// A table must be read in the order in which it was written. A wrong order is noticed when the table is opened or when one of
/// its data blocks is first read, since the keys do not ascend in it: that is an error of
/// [`ErrorKind::Comparator`](crate::ErrorKind::Comparator).
///
/// Tables with properties, as this crate writes by default, record their order. Of other tables, what is read is checked: the index when
/// the table is opened, data blocks when they are first read, and a file of up to 64 KiB whole. **In a larger one, a wrong order can hide
/// keys:** if the index happens to ascend in it, a lookup may read the wrong block, find that in order, and return `None`. Keys in an order
/// that is nearly bytewise are the likely case. [`OpenOptions::check_order`](crate::OpenOptions::check_order) rules that out by reading the
/// whole file once.
///
/// The crate `leveltable-database` has one for the IndexedDB databases of Chrome and Electron.
///
/// ```
/// use leveltable::{Comparator, OpenOptions, WriteOptions};
/// use std::cmp::Ordering;
///
/// #[derive(Debug)]
/// struct Descending;
///
/// impl Comparator for Descending {
///     fn name(&self) -> &str {
///         "example.Descending"
///     }
///
///     fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
///         b.cmp(a)
///     }
/// }
///
/// let mut builder = WriteOptions::new().comparator(Descending).build(Vec::new());
/// builder.add("banana", "yellow")?;
/// builder.add("apple", "red")?;
/// let (file, _) = builder.finish_into_writer()?;
/// let table = OpenOptions::new().comparator(Descending).open_source(file)?;
/// assert!(table.contains_key("apple")?);
/// # Ok::<(), leveltable::Error>(())
/// ```
///
/// # Comparators and filters
///
/// A filter knows bytes, not order. If `compare` treats two *different* byte strings as equal, because it ignores case for
/// example, then a lookup for one spelling checks the filter for bytes that it was never given, and the key is reported absent
/// although the order says it is there. With such a comparator, use a [`FilterPolicy`](crate::filter::FilterPolicy) that
/// agrees with it, such as one that hashes the folded key, or no filter.
pub trait Comparator: Any + Debug + Send + Sync {
    /// Name of this order, such as `leveldb.BytewiseComparator`.
    ///
    /// Change it when the order changes in any way.
    fn name(&self) -> &str;

    /// Compares two keys. Must be a total order, the same in every process that reads the table.
    ///
    /// Must accept any bytes without a panic: a damaged file may hold keys that nobody wrote.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;

    /// The part of `key` that filters are given, when a table is written and when a key is looked up; by default the
    /// whole key.
    ///
    /// Override it for keys with a suffix that lookups do not know, such as the sequence number in the keys of a
    /// LevelDB database: see [`InternalKeyComparator`](crate::db::InternalKeyComparator).
    fn filter_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key
    }

    /// Shortens `start` in place to some key `s` with `start <= s < limit`, or leaves it unchanged, which is the default and
    /// always correct.
    ///
    /// The index holds such separators instead of whole keys. In bytewise order, between `the quick brown fox` and `the who`,
    /// `the r` is one, and [`BytewiseComparator`] finds it. The result is checked before it is written.
    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        let _ = (start, limit);
    }

    /// Shortens `key` in place to some key `s >= key`, or leaves it unchanged, which is the default. [`BytewiseComparator`]
    /// makes `u` of `the who`.
    fn find_short_successor(&self, key: &mut Vec<u8>) {
        let _ = key;
    }
}

/// Lexicographic order of unsigned bytes, named `leveldb.BytewiseComparator`: the default; see
/// [`OpenOptions::comparator`](crate::OpenOptions::comparator).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BytewiseComparator;

impl Comparator for BytewiseComparator {
    fn name(&self) -> &str {
        "leveldb.BytewiseComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    /// Cuts after the first byte that differs and increments it, if the result stays below `limit`.
    ///
    /// Byte for byte what C++ LevelDB does. Like LevelDB, it gives up if the incremented byte would reach `limit`'s, although
    /// a later cut could be found.
    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        let shared = common_prefix(start, limit);
        if let (Some(&a), Some(&b)) = (start.get(shared), limit.get(shared))
            && a < 0xff
            && a + 1 < b
        {
            start.truncate(shared);
            start.push(a + 1);
        }
    }

    /// Cuts after the first byte that is not 0xff, incremented; a run of 0xff is left alone.
    fn find_short_successor(&self, key: &mut Vec<u8>) {
        let mut bytes = key.iter_mut().enumerate();
        if let Some((at, byte)) = bytes.find(|(_, byte)| **byte != 0xff) {
            *byte += 1;
            key.truncate(at + 1);
        }
    }
}

/// Compares two keys bytewise, and also returns the length of their common prefix. Comparing slices would call a library function.
#[inline]
pub(crate) fn compare_bytes(a: &[u8], b: &[u8]) -> (Ordering, usize) {
    // Most keys of a block differ from the target in the first byte that they are not known to share.
    if let ([x, ..], [y, ..]) = (a, b)
        && x != y
    {
        return (x.cmp(y), 0);
    }
    let len = a.len().min(b.len());
    let ((a_head, _), (b_head, _)) = (a.split_at(len), b.split_at(len));
    let ((words, rest), (other_words, other_rest)) = (a_head.as_chunks(), b_head.as_chunks());
    for (i, (x, y)) in words.iter().zip(other_words).enumerate() {
        // The first byte is the most significant one.
        let (x, y) = (u64::from_be_bytes(*x), u64::from_be_bytes(*y));
        if x != y {
            return (x.cmp(&y), 8 * i + (x ^ y).leading_zeros() as usize / 8);
        }
    }
    for (i, (x, y)) in rest.iter().zip(other_rest).enumerate() {
        if x != y {
            return (x.cmp(y), 8 * words.len() + i);
        }
    }
    (a.len().cmp(&b.len()), len)
}

/// Returns the length of the common prefix of `a` and `b`.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    compare_bytes(a, b).1
}

/// A table's order. The bytewise one is known by its type: hot loops then need no virtual call, and can compare along shared
/// prefixes, which is right for no other order.
#[derive(Debug, Clone)]
pub enum Order {
    /// The order of [`BytewiseComparator`].
    Bytewise,
    /// Any other order.
    Custom(Arc<dyn Comparator>),
}

impl Order {
    /// The order of `comparator`.
    pub fn of(comparator: impl Comparator) -> Order {
        let mut comparator: Arc<dyn Comparator> = Arc::new(comparator);
        // Looks into nested `Arc`s, so that the bytewise order is recognised.
        while let Some(inner) = (&*comparator as &dyn Any).downcast_ref::<Arc<dyn Comparator>>() {
            comparator = Arc::clone(inner);
        }
        let any: &dyn Any = &*comparator;
        if any.is::<BytewiseComparator>() || any.is::<Arc<BytewiseComparator>>() {
            Order::Bytewise
        } else {
            Order::Custom(comparator)
        }
    }

    /// The comparator itself, for code that is not hot.
    pub fn comparator(&self) -> &dyn Comparator {
        match self {
            Order::Bytewise => &BytewiseComparator,
            Order::Custom(comparator) => &**comparator,
        }
    }

    /// The comparator to share.
    pub(crate) fn to_comparator(&self) -> Arc<dyn Comparator> {
        match self {
            Order::Bytewise => Arc::new(BytewiseComparator),
            Order::Custom(comparator) => comparator.clone(),
        }
    }

    /// Compares two keys.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Order::Bytewise => compare_bytes(a, b).0,
            Order::Custom(comparator) => comparator.compare(a, b),
        }
    }

    /// Returns the part of `key` that filters are given.
    #[inline]
    pub fn filter_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self {
            Order::Bytewise => key,
            Order::Custom(comparator) => comparator.filter_key(key),
        }
    }

    /// Whether filters are given only a part of each key.
    pub fn shortens_filter_keys(&self) -> bool {
        let key = [0; 16];
        self.filter_key(&key).len() < key.len()
    }
}

impl<C: Comparator + ?Sized> Comparator for Arc<C> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        (**self).compare(a, b)
    }

    fn filter_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        (**self).filter_key(key)
    }

    fn find_shortest_separator(&self, start: &mut Vec<u8>, limit: &[u8]) {
        (**self).find_shortest_separator(start, limit);
    }

    fn find_short_successor(&self, key: &mut Vec<u8>) {
        (**self).find_short_successor(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::internal_key::InternalKeyComparator;

    fn separator(start: &[u8], limit: &[u8]) -> Vec<u8> {
        let mut s = start.to_vec();
        BytewiseComparator.find_shortest_separator(&mut s, limit);
        s
    }

    fn successor(key: &[u8]) -> Vec<u8> {
        let mut s = key.to_vec();
        BytewiseComparator.find_short_successor(&mut s);
        s
    }

    #[test]
    fn separators_are_leveldbs() {
        assert_eq!(separator(b"abcdefghi", b"abzz"), b"abd");
        assert_eq!(
            separator(b"abc1xyz", b"abc2"),
            b"abc1xyz",
            "no byte fits between"
        );
        assert_eq!(separator(b"abc", b"abcd"), b"abc", "a prefix is left alone");
        assert_eq!(separator(b"", b"a"), b"");
        assert_eq!(separator(b"a\xff\xff", b"b"), b"a\xff\xff");
        assert_eq!(
            separator(b"a\xfe\x01", b"a\xff"),
            b"a\xfe\x01",
            "0xff is the limit's own byte"
        );
        assert_eq!(separator(b"a", b"c"), b"b");
    }

    #[test]
    fn successors_are_leveldbs() {
        assert_eq!(successor(b"hello"), b"i");
        assert_eq!(successor(b"\xff\xffhello"), b"\xff\xffi");
        assert_eq!(successor(b"\xff\xff"), b"\xff\xff");
        assert_eq!(successor(b""), b"");
    }

    #[test]
    fn common_prefix_agrees_with_the_naive_count() {
        let text: Vec<u8> = (0..40).collect();
        for len in 0..40 {
            for differ in 0..=len {
                let mut other = text[..len].to_vec();
                if differ < len {
                    other[differ] ^= 0x80;
                }
                for cut in 0..=40 {
                    let expected = differ.min(cut).min(len);
                    assert_eq!(common_prefix(&text[..cut], &other), expected);
                }
            }
        }
    }

    #[test]
    fn the_bytewise_comparator_is_known_in_any_arc() {
        let shared: Arc<dyn Comparator> = Arc::new(BytewiseComparator);
        for order in [
            Order::of(BytewiseComparator),
            Order::of(Arc::new(BytewiseComparator)),
            Order::of(shared),
        ] {
            assert!(matches!(order, Order::Bytewise), "{order:?}");
        }
        let other = InternalKeyComparator::new(BytewiseComparator);
        assert!(matches!(Order::of(Arc::new(other)), Order::Custom(_)));
    }
}
