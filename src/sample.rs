//! Keys that are not in a table, gathered while it is written, to measure its filter on.

use std::cmp::Ordering;

use crate::comparator::Order;
use crate::format::filter_block::FilterBlockReader;
use crate::{filter::FilterPolicy, internal_key};

/// How many absent keys are made for one gap between two keys.
const PER_GAP: u8 = 8;

/// Most sampled keys, and most bytes of them. At a rate of 0.1 %, 32 000 keys give a figure good to a
/// fifth or so.
const MOST_KEYS: usize = 32_000;
const MOST_BYTES: usize = 2 << 20;

/// A sample of absent keys, spread evenly over the table and shaped like its keys.
///
/// Each lies strictly between two neighbours in the table's order, which proves it absent; it differs from
/// the one below in its last byte, or where no byte fits there, by a byte more. Keys like
/// those that are present are what lookups ask for, and what a weak hash fails on.
#[derive(Debug, Default)]
pub(crate) struct AbsentKeys {
    keys: Vec<AbsentKey>,
    bytes: usize,
    /// One in `1 << stride_lg` gaps is sampled.
    stride_lg: u32,
}

#[derive(Debug)]
struct AbsentKey {
    key: Box<[u8]>,
    /// File offset of the data block that would hold it.
    block_offset: u64,
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
        if n.trailing_zeros() >= self.stride_lg {
            self.sample(below, above, block_offset, order);
        }
    }

    fn sample(&mut self, below: &[u8], above: &[u8], block_offset: u64, order: &Order) {
        // In a database's table the filter knows user keys, so it is these that must differ.
        let (stem, tag) = match internal_key::is_internal(order) {
            true => below.split_at(internal_key::user_key(below).len()),
            false => (below, &[][..]),
        };
        let (last, head) = stem.split_last().unwrap_or((&0, &[]));
        let nearby = (1..=PER_GAP).map(|i| [head, &[last.wrapping_add(i)], tag].concat());
        let longer = (0..PER_GAP).map(|i| [stem, &[b'0' + i], tag].concat());
        let lies_between = |key: &Vec<u8>| {
            order.compare(below, key) == Ordering::Less
                && order.compare(key, above) == Ordering::Less
        };
        for key in nearby
            .chain(longer)
            .filter(lies_between)
            .take(PER_GAP.into())
        {
            self.bytes += key.len();
            let key = key.into_boxed_slice();
            self.keys.push(AbsentKey { key, block_offset });
        }
        while self.keys.len() > MOST_KEYS || self.bytes > MOST_BYTES {
            self.thin_out();
        }
    }

    /// Drops every other gap's keys, and samples half as many from here on.
    fn thin_out(&mut self) {
        self.stride_lg += 1;
        let mut n = 0;
        self.keys.retain(|_| {
            n += 1;
            (n / usize::from(PER_GAP)) % 2 == 0
        });
        self.bytes = self.keys.iter().map(|sample| sample.key.len()).sum();
        if self.keys.len() <= usize::from(PER_GAP) {
            // Keys so large that a handful breaks the bound: none are kept.
            self.keys.clear();
            self.bytes = 0;
        }
    }

    /// How many keys were sampled, and the share of them that `filters` let pass.
    pub(crate) fn measure(
        &self,
        policy: &dyn FilterPolicy,
        filters: &FilterBlockReader,
    ) -> (u64, Option<f64>) {
        let passes =
            |sample: &&AbsentKey| filters.key_may_match(policy, sample.block_offset, &sample.key);
        let passed = self.keys.iter().filter(passes).count();
        let sampled = self.keys.len();
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
        assert!(
            (MOST_KEYS / 4..=MOST_KEYS).contains(&absent.keys.len()),
            "{}",
            absent.keys.len()
        );
        assert!(
            absent
                .keys
                .iter()
                .all(|sample| !keys.contains(&*sample.key))
        );
        let alike = absent
            .keys
            .iter()
            .filter(|sample| sample.key.len() == 8)
            .count();
        assert!(alike > absent.keys.len() / 2);
        // Spread over the table: the last tenth has its share.
        let late = absent
            .keys
            .iter()
            .filter(|sample| sample.key[..] > b"00630000"[..])
            .count();
        assert!(late > absent.keys.len() / 20, "{late}");
    }

    #[test]
    fn large_keys_do_not_gather() {
        let keys: BTreeSet<Vec<u8>> = (0..40u8).map(|i| vec![i; 1 << 20]).collect();
        assert!(sample(&keys, &Order::Bytewise).bytes <= MOST_BYTES);
    }
}
