//! Measures a filter on keys that its table does not have.

use crate::comparator::Order;
use crate::read::filter::TableFilter;

/// Bounds of the sample, in keys and in bytes. At a rate of 0.1 %, 32,000 keys give a figure good to about a fifth.
const MAX_KEYS: usize = 32_000;
const MAX_BYTES: usize = 2 << 20;

/// How a table's filter did on absent keys; see [`Blocks::filter_rate`](crate::inspect::Blocks::filter_rate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterRate {
    /// Number of absent keys that the filter was asked for, at least 1 and at most 32,000.
    pub sampled_keys: u64,
    /// How many of them it passed. A lookup of such a key reads a block for nothing.
    pub passed_keys: u64,
}

impl FilterRate {
    /// The filter's false-positive rate: the share of absent keys that it passes.
    pub fn false_positive_rate(&self) -> f64 {
        self.passed_keys as f64 / self.sampled_keys as f64
    }
}

/// A sample of absent keys, spread evenly over the table and similar to its keys.
///
/// Each lies strictly between two neighbours in the table's order, which proves it absent. It is the lower neighbour with
/// its last byte incremented, or if that is no key between the two, with a byte added. Lookups ask for keys like those
/// that are present, and a weak hash fails on them.
///
/// Of a database's keys it is the user key that changes, since that is what a filter is given. For example, between
/// `apple` at sequence 9 and `cherry` at sequence 4 it takes `applf` at sequence 9.
#[derive(Debug, Default)]
pub(crate) struct AbsentKeys {
    /// Each with the number of the entry before it, and the file offset of the data block of its upper neighbour.
    keys: Vec<(u64, Vec<u8>, u64)>,
    /// Bytes of all keys.
    bytes: usize,
    /// One gap in `1 << halvings` is sampled: that after an entry whose number ends in so many zeros.
    halvings: u32,
}

impl AbsentKeys {
    /// Offers the gap between `below`, entry number `n` of the table, and `above`, the next one.
    pub(crate) fn offer(
        &mut self,
        n: u64,
        below: &[u8],
        above: &[u8],
        block_offset: u64,
        order: &Order,
    ) {
        if n.trailing_zeros() < self.halvings {
            return;
        }
        let stem = order.filter_key(below);
        let Some(tail) = below.strip_prefix(stem) else {
            return; // a comparator whose filter keys are no prefixes
        };
        let (last, head) = stem.split_last().unwrap_or((&0, &[]));
        let candidates = [(head, last.wrapping_add(1)), (stem, b'0')];
        // The filter knows the user key of `above`, at whatever sequence number.
        let is_absent = |key: &Vec<u8>| {
            order.compare(below, key).is_lt()
                && order.compare(key, above).is_lt()
                && order.filter_key(key) != order.filter_key(above)
        };
        let keys = candidates.map(|(stem, last)| [stem, &[last][..], tail].concat());
        if let Some(key) = keys.into_iter().find(is_absent) {
            self.bytes += key.len();
            self.keys.push((n, key, block_offset));
        }
        while self.keys.len() > MAX_KEYS || self.bytes > MAX_BYTES {
            self.halvings += 1;
            self.keys
                .retain(|(n, ..)| n.trailing_zeros() >= self.halvings);
            self.bytes = self.keys.iter().map(|(_, key, _)| key.len()).sum();
        }
    }

    /// Asks a filter for every sampled key; `None` if there is none.
    pub(crate) fn measure(&self, order: &Order, filter: &TableFilter) -> Option<FilterRate> {
        let passed = self
            .keys
            .iter()
            .filter(|(_, key, block)| filter.ask(order.filter_key(key), *block) != Ok(false));
        (!self.keys.is_empty()).then(|| FilterRate {
            sampled_keys: self.keys.len() as u64,
            passed_keys: passed.count() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn sample(keys: &BTreeSet<Vec<u8>>, order: &Order) -> AbsentKeys {
        let mut absent = AbsentKeys::default();
        for (n, (below, above)) in keys.iter().zip(keys.iter().skip(1)).enumerate() {
            absent.offer(n as u64 + 1, below, above, 0, order);
        }
        absent
    }

    #[test]
    fn sampled_keys_are_absent_alike_and_bounded() {
        let keys: BTreeSet<Vec<u8>> = (0..100_000u32)
            .map(|i| format!("{:08}", i * 7).into_bytes())
            .collect();
        let absent = sample(&keys, &Order::Bytewise);
        let sampled = absent.keys.len();
        assert!((8_000..=MAX_KEYS).contains(&sampled), "{sampled}");
        assert!(absent.keys.iter().all(|(_, key, _)| !keys.contains(key)));
        let alike = absent
            .keys
            .iter()
            .filter(|(_, key, _)| key.len() == 8)
            .count();
        assert!(
            alike > sampled / 2,
            "{alike} of {sampled} are of the same length"
        );
        // Spread over the table: the last tenth has its share.
        let late = absent
            .keys
            .iter()
            .filter(|(_, key, _)| key[..] > b"00630000"[..])
            .count();
        assert!(
            late > sampled / 20,
            "{late} of {sampled} are of the last tenth"
        );
    }

    #[test]
    fn many_keys_are_thinned_out_evenly() {
        let keys: BTreeSet<Vec<u8>> = (0..600_000u32)
            .map(|i| (i * 7).to_be_bytes().into())
            .collect();
        let absent = sample(&keys, &Order::Bytewise);
        let sampled = absent.keys.len();
        assert!((MAX_KEYS / 3..=MAX_KEYS).contains(&sampled), "{sampled}");
        let late = absent
            .keys
            .iter()
            .filter(|(_, key, _)| **key > 2_100_000u32.to_be_bytes()[..])
            .count();
        assert!(
            (sampled / 3..sampled * 2 / 3).contains(&late),
            "{late} of {sampled} are of the second half"
        );
    }

    /// A sampled user key must not be one of the table's, of which older versions come after newer ones.
    #[test]
    fn the_keys_of_a_database_are_sampled_between_user_keys() {
        use crate::format::internal_key::{
            InternalKey, InternalKeyComparator, ValueType, user_key,
        };
        let order = Order::of(InternalKeyComparator::new(crate::BytewiseComparator));
        let stored = |i: u32| {
            let user_key = &format!("{i:06}").into_bytes()[..];
            let sequence = u64::from(100_000 - i);
            let mut stored = Vec::new();
            InternalKey {
                user_key,
                sequence,
                value_type: ValueType::Value,
            }
            .encode(&mut stored);
            stored
        };
        let mut absent = AbsentKeys::default();
        for i in 0..20_000 {
            absent.offer(u64::from(i) + 1, &stored(i), &stored(i + 1), 0, &order);
        }
        let present: BTreeSet<Vec<u8>> = (0..=20_000).map(|i| format!("{i:06}").into()).collect();
        assert!(absent.keys.len() > 2000);
        assert!(
            absent
                .keys
                .iter()
                .all(|(_, key, _)| !present.contains(user_key(key)))
        );
    }

    #[test]
    fn large_keys_do_not_gather() {
        let keys: BTreeSet<Vec<u8>> = (0..40u8).map(|i| vec![i; 1 << 20]).collect();
        assert!(sample(&keys, &Order::Bytewise).bytes <= MAX_BYTES);
    }
}
