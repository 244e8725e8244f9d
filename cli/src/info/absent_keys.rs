//! Keys that a table does not have, to measure its filter.

use std::sync::Arc;

use leveltable::{Comparator, Table};

/// Limits of the sample, in keys and in bytes. At a rate of 0.1 %, 32,000 keys give a figure accurate to about a fifth.
const MAX_KEYS: usize = 32_000;
const MAX_BYTES: usize = 2 << 20;

/// A sample of absent keys, spread evenly over the table and similar to its keys.
///
/// Each lies strictly between two neighbours in the table's order, which proves it absent. It is the lower neighbour with
/// its last byte incremented, or if that key is not between the two, with a byte appended. Lookups ask for keys similar
/// to present ones, and a weak hash fails on those.
///
/// In a database's key, only the user key changes, since that is what the filter holds. For example, between `apple` at
/// sequence 9 and `cherry` at sequence 4 it takes `applf` at sequence 9.
pub(super) struct AbsentKeys {
    /// The order of the stored keys; in an unknown order, nothing is sampled.
    order: Option<Arc<dyn Comparator>>,
    /// The key that was added last, unless unknown keys follow it.
    last: Option<Vec<u8>>,
    /// Number of keys that were added.
    added: u64,
    /// The sampled keys, each with the number of the key before it.
    keys: Vec<(u64, Vec<u8>)>,
    /// Total length of the keys.
    bytes: usize,
    /// One gap in `1 << halvings` is sampled: that after a key whose number ends in this many zero bits.
    halvings: u32,
}

impl AbsentKeys {
    pub(super) fn new(order: Option<Arc<dyn Comparator>>) -> AbsentKeys {
        AbsentKeys {
            order,
            last: None,
            added: 0,
            keys: Vec::new(),
            bytes: 0,
            halvings: 0,
        }
    }

    /// Adds the next key of the table, and samples the gap before it.
    pub(super) fn add(&mut self, key: &[u8]) {
        let is_sampled = self.added.trailing_zeros() >= self.halvings;
        if let (Some(order), Some(last), true) = (&self.order, &self.last, is_sampled)
            && let Some(absent) = between(&**order, last, key)
        {
            self.bytes += absent.len();
            self.keys.push((self.added, absent));
        }
        while self.keys.len() > MAX_KEYS || self.bytes > MAX_BYTES {
            self.halvings += 1;
            let halvings = self.halvings;
            self.keys.retain(|(n, _)| n.trailing_zeros() >= halvings);
            self.bytes = self.keys.iter().map(|(_, key)| key.len()).sum();
        }
        self.added += 1;
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Notes that unknown keys of the table follow.
    pub(super) fn skip(&mut self) {
        self.last = None;
    }

    /// Looks up each key of the sample in the filter of `table`. Returns the number of keys, and how many the filter
    /// passes.
    pub(super) fn measure(&self, table: &Table) -> leveltable::Result<(u64, u64)> {
        let mut passed = 0;
        for (_, key) in &self.keys {
            passed += u64::from(table.may_contain(key)?);
        }
        Ok((self.keys.len() as u64, passed))
    }
}

/// A key between `below` and `above` that was not added to the filter.
fn between(order: &dyn Comparator, below: &[u8], above: &[u8]) -> Option<Vec<u8>> {
    let stem = order.filter_key(below);
    // Not possible for a comparator whose filter keys are not prefixes.
    let tail = below.strip_prefix(stem)?;
    let (last, head) = stem.split_last().unwrap_or((&0, &[]));
    let candidates = [(head, last.wrapping_add(1)), (stem, b'0')];
    let keys = candidates.map(|(stem, last)| [stem, &[last][..], tail].concat());
    // The filter holds the user key of `above`, at any sequence number.
    keys.into_iter().find(|key| {
        order.compare(below, key).is_lt()
            && order.compare(key, above).is_lt()
            && order.filter_key(key) != order.filter_key(above)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use leveltable::BytewiseComparator;
    use leveltable::db::InternalKeyComparator;

    use super::*;

    fn sample(order: impl Comparator, keys: impl IntoIterator<Item = Vec<u8>>) -> AbsentKeys {
        let mut absent = AbsentKeys::new(Some(Arc::new(order)));
        keys.into_iter().for_each(|key| absent.add(&key));
        absent
    }

    #[test]
    fn sampled_keys_are_absent_alike_and_bounded() {
        let keys: BTreeSet<Vec<u8>> = (0..600_000u32)
            .map(|i| format!("{:08}", i * 7).into_bytes())
            .collect();
        let absent = sample(BytewiseComparator, keys.clone());
        let sampled = absent.keys.len();
        assert!((MAX_KEYS / 5..=MAX_KEYS).contains(&sampled), "{sampled}");
        assert!(absent.keys.iter().all(|(_, key)| !keys.contains(key)));
        let alike = absent.keys.iter().filter(|(_, key)| key.len() == 8).count();
        assert!(
            alike > sampled / 2,
            "{alike} of {sampled} are of the same length"
        );
        let middle = &b"02100000"[..];
        let late = absent
            .keys
            .iter()
            .filter(|(_, key)| &key[..] > middle)
            .count();
        assert!(
            (sampled / 3..sampled * 2 / 3).contains(&late),
            "{late} of {sampled}"
        );
        let large = sample(BytewiseComparator, (0..40u8).map(|i| vec![i; 1 << 20]));
        assert!(large.bytes <= MAX_BYTES);
    }

    /// A sampled user key must not be one of the table's, although older versions come after newer ones.
    #[test]
    fn the_keys_of_a_database_are_sampled_between_user_keys() {
        let user_key = |i: u64| format!("{i:06}").into_bytes();
        let stored = |i| [&user_key(i)[..], &((100_000 - i) << 8 | 1).to_le_bytes()].concat();
        let order = InternalKeyComparator::new(BytewiseComparator);
        let absent = sample(order, (0..20_000).map(stored));
        let present: BTreeSet<Vec<u8>> = (0..=20_000).map(user_key).collect();
        assert!(absent.keys.len() > 2000);
        let is_absent = |(_, key): &(u64, Vec<u8>)| !present.contains(&key[..key.len() - 8]);
        assert!(absent.keys.iter().all(is_absent));
    }
}
