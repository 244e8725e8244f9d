//! Checks a block when it is first read: its structure, and the order of its keys, on which every search relies.

use super::Defect;
use super::block::{Block, Entry, check_shared};
use super::buffer::Buffer;
use crate::comparator::Order;

/// Parses a block and checks its [structure](check_entries).
pub(crate) fn open<B: AsRef<[u8]>>(data: B) -> Result<Block<B>, Defect> {
    let block = Block::parse(data)?;
    check_entries(&block)?;
    Ok(block)
}

/// Checks the structure of the block: its [restarts](Block::check_restarts), that the entries follow one another up
/// to the restarts, and that an entry whose key is stored whole begins at each restart.
pub(crate) fn check_entries(block: &Block<impl AsRef<[u8]>>) -> Result<(), Defect> {
    check_each_entry(block, |_| Ok(()))
}

/// Checks the structure of the block, and that its keys ascend. Then calls `check_ends` with the first key and the
/// last, if there are any.
pub(crate) fn check_keys(
    block: &Block<impl AsRef<[u8]>>,
    order: &Order,
    check_ends: impl FnOnce(&[u8], &[u8]) -> Result<(), Defect>,
) -> Result<(), Defect> {
    // The previous key: where it lies in the block, or spliced.
    let (mut first, mut whole, mut spliced) = (None, None, Buffer::default());
    check_each_entry(block, |entry| {
        let (shared, unshared) = (entry.shared(), block.unshared(entry));
        let previous = whole.unwrap_or(spliced.as_slice());
        let key = || [previous.split_at(shared).0, unshared].concat();
        let ascends = || match order {
            Order::Bytewise => previous.split_at(shared).1 < unshared,
            Order::Custom(comparator) => comparator.compare(previous, &key()).is_lt(),
        };
        if first.is_none() {
            first = Some(unshared);
        } else if !ascends() {
            return Err(order.misordered("keys", previous, &key()));
        }
        if let Some(whole) = whole.take() {
            spliced.truncate(0);
            spliced.extend(whole.split_at(shared).0);
        }
        if shared == 0 && unshared.len() > LONG {
            whole = Some(unshared);
        } else {
            spliced.splice(shared, block.data.as_ref(), entry.unshared());
        }
        Ok(())
    })?;
    let last = whole.unwrap_or(spliced.as_slice());
    first.map_or(Ok(()), |first| check_ends(first, last))
}

/// Checks the structure of the block and [the lengths of its keys](most_key_bytes), and calls `check` with each
/// entry.
#[inline]
fn check_each_entry(
    block: &Block<impl AsRef<[u8]>>,
    mut check: impl FnMut(&Entry) -> Result<(), Defect>,
) -> Result<(), Defect> {
    block.check_restarts()?;
    let most = most_key_bytes(block.data.as_ref().len());
    let mut restarts = block.restarts().enumerate().peekable();
    let mut key_bytes = 0;
    for entry in block.iter() {
        let entry = entry?;
        key_bytes += entry.key_len() as u64;
        if key_bytes > most {
            let expected = format!("keys of at most {most} bytes, all together");
            return Err(Defect::new(expected, "more"));
        }
        if restarts.next_if(|&(_, at)| at == entry.offset()).is_some() {
            // The key at a restart is stored whole.
            check_shared(&entry, 0)?;
        }
        if let Some((i, at)) = restarts.next_if(|&(_, at)| at < entry.end()) {
            let expected = format!("restart {i} at the beginning of an entry");
            return Err(Defect::new(expected, format!("at byte {at} of the block")));
        }
        check(&entry)?;
    }
    Ok(())
}

/// Limit for the total length of the keys of a block of `len` bytes: 64 MiB plus 256 times the block.
///
/// Keys that share long prefixes can add up to the square of the block's size, and so could the time and the memory for
/// comparing or copying them. No ordinary block comes near the limit: it takes thousands of keys that are longer than a
/// kilobyte, differ in a byte or two, have no values, and share a restart with hundreds of others.
pub(crate) fn most_key_bytes(len: usize) -> u64 {
    (len as u64).saturating_mul(256).saturating_add(64 << 20)
}

/// Longer keys that are stored whole are not copied until the next key shares a part of them.
const LONG: usize = 4096;

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;
    use crate::coding::{put_fixed32, put_varint};
    use crate::comparator::{Comparator, common_prefix};

    /// The same order as the built-in one, but as a type that the check does not recognise.
    #[derive(Debug)]
    struct Bytes;

    impl Comparator for Bytes {
        fn name(&self) -> &str {
            "test.Bytes"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            a.cmp(b)
        }
    }

    /// A block of these keys, in any order. Shares no more than `most_shared` bytes.
    fn block(keys: &[Vec<u8>], interval: usize, most_shared: usize) -> Block<Vec<u8>> {
        let (mut bytes, mut restarts, mut before) = (Vec::new(), Vec::new(), &[][..]);
        for (i, key) in keys.iter().enumerate() {
            let is_restart = i % interval == 0;
            if is_restart {
                restarts.push(bytes.len() as u32);
            }
            let most_shared = if is_restart { 0 } else { most_shared };
            let shared = common_prefix(before, key).min(most_shared);
            for len in [shared, key.len() - shared, 1] {
                put_varint(&mut bytes, len as u64);
            }
            bytes.extend_from_slice(&key[shared..]);
            bytes.push(b'v');
            before = key;
        }
        restarts.iter().for_each(|&r| put_fixed32(&mut bytes, r));
        put_fixed32(&mut bytes, restarts.len() as u32);
        Block::parse(bytes).unwrap()
    }

    #[test]
    fn each_restart_is_an_entry_with_a_whole_key() {
        let whole = b"\x00\x01\x01a1\x00\x01\x01b2\x00\x01\x01c3";
        let shared = b"\x00\x01\x01a1\x01\x01\x01b2\x02\x01\x01c3";
        for (entries, sound) in [(whole, &[5, 10][..]), (shared, &[])] {
            for restart in 1..20 {
                let mut block = entries.to_vec();
                for n in [0, restart, 2] {
                    put_fixed32(&mut block, n);
                }
                let checked = check_entries(&Block::parse(block).unwrap());
                assert_eq!(checked.is_ok(), sound.contains(&restart), "{restart}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Short keys, and keys longer than a chunk; equal ones, and beginnings of each other.
        #[test]
        fn keys_ascend_where_a_plain_comparison_says_so(
            keys in prop::collection::vec(
                (
                    prop::sample::select(vec![0, 0, 0, 14, 31, 40, 5000]),
                    prop::collection::vec(prop::sample::select(vec![0u8, b'a', 0xff]), 0..4),
                ),
                1..12,
            ),
            is_sorted in prop::sample::select(vec![true, true, true, false]),
            repeated in prop::option::of(any::<prop::sample::Index>()),
            interval in 1usize..6,
            most_shared in prop::sample::select(vec![0, 3, 35, usize::MAX]),
        ) {
            let long = |(head, tail): (usize, Vec<u8>)| [vec![b'h'; head], tail].concat();
            let mut keys: Vec<Vec<u8>> = keys.into_iter().map(long).collect();
            if is_sorted {
                keys.sort();
                keys.dedup();
            }
            if let Some(i) = repeated {
                let i = i.index(keys.len());
                keys.insert(i, keys[i].clone());
            }
            let expected = keys.windows(2).all(|pair| pair[0] < pair[1]);
            let block = block(&keys, interval, most_shared);
            for order in [Order::Bytewise, Order::Custom(std::sync::Arc::new(Bytes))] {
                let mut ends = None;
                let checked = check_keys(&block, &order, |first, last| {
                    ends = Some((first.to_vec(), last.to_vec()));
                    Ok(())
                });
                prop_assert_eq!(checked.is_ok(), expected);
                let expected_ends = (keys[0].clone(), keys[keys.len() - 1].clone());
                prop_assert_eq!(ends, expected.then_some(expected_ends));
            }
        }
    }
}
