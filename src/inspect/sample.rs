//! Keys that are not in a table, gathered while it is written, to measure its filter on.

use std::cmp::Ordering;

use crate::comparator::Order;
use crate::db::key as internal_key;
use crate::filter::FilterPolicy;
use crate::format::filter_block::FilterBlockReader;

/// Most sampled keys, and most bytes of them. At a rate of 0.1 %, 32 000 keys give a figure good to a
/// fifth or so.
const MOST_KEYS: usize = 32_000;
const MOST_BYTES: usize = 2 << 20;

/// All gaps between the first so many keys are sampled, and then one in `1 << FIRST_STRIDE_LG`, so that
/// a table of any size spends a few nanoseconds an entry on it.
const FIRST_KEYS: u64 = 1024;
const FIRST_STRIDE_LG: u32 = 3;

/// A sample of absent keys, spread evenly over the table and shaped like its keys.
///
/// Each lies strictly between two neighbours in the table's order, which proves it absent; it differs from
/// the one below in its last byte, or where no byte fits there, by a byte more. Keys like
/// those that are present are what lookups ask for, and what a weak hash fails on.
#[derive(Debug)]
pub(crate) struct AbsentKeys {
    samples: Vec<Sample>,
    /// All sampled keys, end to end.
    keys: Vec<u8>,
    /// One in `1 << stride_lg` gaps is sampled.
    stride_lg: u32,
}

#[derive(Debug)]
struct Sample {
    /// Where the key ends in `keys`; it begins where the one before ends.
    key_end: usize,
    /// File offset of the data block of the key below.
    block_offset: u64,
}

impl Default for AbsentKeys {
    fn default() -> AbsentKeys {
        AbsentKeys {
            samples: Vec::new(),
            keys: Vec::new(),
            stride_lg: FIRST_STRIDE_LG,
        }
    }
}

impl AbsentKeys {
    /// Offers the gap between `below`, entry number `n` of the table, and `above`, the next one.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        n: u64,
        below: &[u8],
        above: &[u8],
        block_offset: u64,
        order: &Order,
    ) {
        if n.trailing_zeros() >= self.stride_lg || n < FIRST_KEYS {
            self.sample(below, above, block_offset, order);
        }
    }

    fn sample(&mut self, below: &[u8], above: &[u8], block_offset: u64, order: &Order) {
        // In a database's table the filter knows user keys, and it is these that a sampled one must lie between:
        // with the newest tag behind `below`, with the oldest before `above`.
        let (stem, newest, oldest): (_, &[u8], &[u8]) = match order.shortens_filter_keys() {
            true => (internal_key::user_key(below), &[0xff; 8], &[0; 8]),
            false => (below, &[], &[]),
        };
        let (last, head) = stem.split_last().unwrap_or((&0, &[]));
        let start = self.keys.len();
        for (stem, last) in [(head, last.wrapping_add(1)), (stem, b'0')] {
            self.keys.extend_from_slice(stem);
            self.keys.push(last);
            let tag_start = self.keys.len();
            self.keys.extend_from_slice(newest);
            let is_above = order.compare(below, self.keys_from(start)) == Ordering::Less;
            self.keys.truncate(tag_start);
            self.keys.extend_from_slice(oldest);
            let is_below = order.compare(self.keys_from(start), above) == Ordering::Less;
            if is_above && is_below {
                let key_end = self.keys.len();
                self.samples.push(Sample {
                    key_end,
                    block_offset,
                });
                break;
            }
            self.keys.truncate(start);
        }
        while self.samples.len() > MOST_KEYS || self.keys.len() > MOST_BYTES {
            self.thin_out();
        }
    }

    fn keys_from(&self, start: usize) -> &[u8] {
        self.keys.get(start..).unwrap_or_default()
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut start = 0;
        self.samples.iter().map(move |sample| {
            let key = self.keys.get(start..sample.key_end).unwrap_or_default();
            start = sample.key_end;
            (key, sample.block_offset)
        })
    }

    /// Drops every other sample (a single one too), and takes half as many from here on.
    fn thin_out(&mut self) {
        let mut keys = Vec::new();
        let mut samples = Vec::new();
        for (key, block_offset) in self.iter().skip(1).step_by(2) {
            keys.extend_from_slice(key);
            let key_end = keys.len();
            samples.push(Sample {
                key_end,
                block_offset,
            });
        }
        *self = AbsentKeys {
            samples,
            keys,
            stride_lg: self.stride_lg + 1,
        };
    }

    /// How many keys were sampled, and the share of them that `filters` let pass.
    pub(crate) fn measure(
        &self,
        policy: &dyn FilterPolicy,
        filters: &FilterBlockReader,
    ) -> (u64, Option<f64>) {
        let passes = |(key, offset): &(&[u8], u64)| filters.key_may_match(policy, *offset, key);
        let passed = self.iter().filter(passes).count();
        let sampled = self.samples.len();
        (
            sampled as u64,
            (sampled > 0).then(|| passed as f64 / sampled as f64),
        )
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
        let sampled = absent.samples.len();
        assert!((8_000..=MOST_KEYS).contains(&sampled), "{sampled}");
        assert!(absent.iter().all(|(key, _)| !keys.contains(key)));
        let alike = absent.iter().filter(|(key, _)| key.len() == 8).count();
        assert!(
            alike > sampled / 2,
            "{alike} of {sampled} are of the same length"
        );
        // Spread over the table: the last tenth has its share.
        let late = absent
            .iter()
            .filter(|(key, _)| *key > &b"00630000"[..])
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
        let sampled = absent.samples.len();
        assert!((MOST_KEYS / 3..=MOST_KEYS).contains(&sampled), "{sampled}");
        let late = absent
            .iter()
            .filter(|(key, _)| **key > 2_100_000u32.to_be_bytes()[..])
            .count();
        assert!(
            (sampled / 3..sampled * 2 / 3).contains(&late),
            "{late} of {sampled} are of the second half"
        );
    }

    /// A sampled user key must not be one of the table's: older versions sort behind newer ones.
    #[test]
    fn the_keys_of_a_database_are_sampled_between_user_keys() {
        use crate::db::key::{InternalKey, InternalKeyComparator, ValueType, user_key};
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
        assert!(absent.samples.len() > 2000);
        assert!(
            absent
                .iter()
                .all(|(key, _)| !present.contains(user_key(key)))
        );
    }

    #[test]
    fn large_keys_do_not_gather() {
        let keys: BTreeSet<Vec<u8>> = (0..40u8).map(|i| vec![i; 1 << 20]).collect();
        assert!(sample(&keys, &Order::Bytewise).keys.len() <= MOST_BYTES);
    }
}
